//! L2, and what of a kernel's accesses reaches it.
//!
//! An access asks for sectors of 32 bytes; lanes of one instruction that ask for the same sector ask once, and a
//! sector that is still in L1 is not asked for at all. L2 holds lines of 128 bytes, the least recently used give way,
//! and of a line the sectors that were asked for. A sector that is read and not there comes from DRAM. One that is
//! written goes back there once, however often it is written before it gives way; that is counted at the first write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const LINE: u64 = 128;
const SECTOR: u64 = 32;
const SECTORS: u64 = LINE / SECTOR;
/// Sectors after which a warp lets the next one go first when traces are woven together.
const TURN: u32 = 64;

/// Sectors that follow each other, touched in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    first: u64,
    sectors: u32,
    write: bool,
}

/// What a launch asked of L2, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Trace {
    pub runs: Vec<Run>,
    /// Bytes asked for; the sectors of `runs` may hold more.
    pub bytes: u64,
}

/// Line numbers spread well by one multiplication.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

const NONE: u32 = u32::MAX;

struct Node {
    line: u64,
    newer: u32,
    older: u32,
    /// Sectors that are there, and those that are to go back, by bit.
    there: u8,
    dirty: u8,
}

/// The lines that L2 holds, by last use.
pub struct L2 {
    capacity: usize,
    places: HashMap<u64, u32, BuildHasherDefault<Multiply>>,
    nodes: Vec<Node>,
    newest: u32,
    oldest: u32,
}

impl L2 {
    pub fn new(bytes: u64) -> Self {
        let capacity = usize::try_from(bytes / LINE).unwrap_or(usize::MAX).clamp(1, NONE as usize - 1);
        Self { capacity, places: HashMap::default(), nodes: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Touches every sector of a trace; the bytes that DRAM moves for it.
    pub fn replay(&mut self, runs: &[Run]) -> u64 {
        runs.iter().map(|run| self.touch_all(run.first, u64::from(run.sectors), run.write)).sum::<u64>()
            * SECTOR
    }

    /// Touches a range of addresses. More than twice what L2 holds leaves nothing of the start behind.
    pub fn sweep(&mut self, address: u64, bytes: u64, write: bool) {
        if bytes == 0 {
            return;
        }
        let end = (address + bytes).div_ceil(SECTOR);
        let kept = end.saturating_sub(2 * self.capacity as u64 * SECTORS);
        let first = (address / SECTOR).max(kept);
        self.touch_all(first, end - first, write);
    }

    /// Sectors that DRAM moves.
    fn touch_all(&mut self, mut first: u64, mut sectors: u64, write: bool) -> u64 {
        let mut missed = 0;
        while sectors > 0 {
            let (line, begin) = (first / SECTORS, first % SECTORS);
            let here = sectors.min(SECTORS - begin);
            missed += self.touch(line, (((1 << here) - 1) << begin) as u8, write);
            first += here;
            sectors -= here;
        }
        missed
    }

    fn touch(&mut self, line: u64, sectors: u8, write: bool) -> u64 {
        let dirty = if write { sectors } else { 0 };
        if let Some(&place) = self.places.get(&line) {
            self.unlink(place);
            self.link(place);
            let node = &mut self.nodes[place as usize];
            let new = sectors & !if write { node.dirty } else { node.there };
            node.there |= sectors;
            node.dirty |= dirty;
            return u64::from(new.count_ones());
        }
        let place = if self.nodes.len() < self.capacity {
            self.nodes.push(Node { line, newer: NONE, older: NONE, there: sectors, dirty });
            (self.nodes.len() - 1) as u32
        } else {
            let place = self.oldest;
            self.unlink(place);
            let node = &mut self.nodes[place as usize];
            self.places.remove(&node.line);
            (node.line, node.there, node.dirty) = (line, sectors, dirty);
            place
        };
        self.places.insert(line, place);
        self.link(place);
        u64::from(sectors.count_ones())
    }

    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    fn link(&mut self, place: u32) {
        let second = self.newest;
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, second);
        match second {
            NONE => self.oldest = place,
            second => self.nodes[second as usize].newer = place,
        }
        self.newest = place;
    }
}

/// Turns the accesses of a launch into a trace.
pub struct Recorder {
    /// Runs of each warp, because the interpreter runs one warp after the other and a GPU runs many at once.
    warps: Vec<Vec<Run>>,
    current: usize,
    of: HashMap<(u64, u32), usize>,
    /// Sectors that the present instruction has asked for.
    asked: [u64; 64],
    asked_count: usize,
    /// The sector in each place of L1.
    l1: Vec<u64>,
    cached: bool,
    bytes: u64,
}

impl Recorder {
    /// For an L2 of `l2_bytes`; L1 is an eighth of it within what GPUs have.
    pub fn new(l2_bytes: u64) -> Self {
        let sectors = (l2_bytes / 8).clamp(4 << 10, 128 << 10) / SECTOR;
        Self {
            warps: vec![Vec::new()],
            current: 0,
            of: HashMap::new(),
            asked: [0; 64],
            asked_count: 0,
            l1: vec![u64::MAX; sectors.next_power_of_two() as usize],
            cached: true,
            bytes: 0,
        }
    }

    /// A new instruction of a warp begins.
    pub fn instruction(&mut self, block: u64, warp: u32, cached: bool) {
        self.asked_count = 0;
        self.cached = cached;
        let Self { of, warps, .. } = self;
        self.current = *of.entry((block, warp)).or_insert_with(|| {
            warps.push(Vec::new());
            warps.len() - 1
        });
    }

    /// One lane's access.
    pub fn touch(&mut self, address: u64, bytes: usize, write: bool) {
        let last = address + (bytes as u64).max(1) - 1;
        for sector in address / SECTOR..=last / SECTOR {
            self.sector(sector, write);
        }
    }

    fn sector(&mut self, sector: u64, write: bool) {
        let known = self.asked_count.min(self.asked.len());
        if self.asked[..known].contains(&sector) {
            return;
        }
        self.asked[self.asked_count % self.asked.len()] = sector;
        self.asked_count += 1;
        let place = sector as usize & (self.l1.len() - 1);
        if !write && self.cached && self.l1[place] == sector {
            return;
        }
        // A load past L1 leaves nothing there; a store goes through it and keeps what is there alive.
        if !write && self.cached {
            self.l1[place] = sector;
        }
        self.bytes += SECTOR;
        let runs = &mut self.warps[self.current];
        match runs.last_mut() {
            Some(run)
                if run.write == write
                    && run.sectors < TURN
                    && sector == run.first + u64::from(run.sectors) =>
            {
                run.sectors += 1;
            }
            _ => runs.push(Run { first: sector, sectors: 1, write }),
        }
    }

    /// The trace, with `resident` warps taking turns.
    pub fn finish(self, resident: usize) -> Trace {
        let mut waiting = self.warps.into_iter().filter(|runs| !runs.is_empty()).map(Vec::into_iter);
        let mut active: Vec<_> = waiting.by_ref().take(resident.max(1)).collect();
        let mut runs = Vec::new();
        while !active.is_empty() {
            active.retain_mut(|warp| match warp.next() {
                Some(run) => {
                    runs.push(run);
                    true
                }
                None => match waiting.next() {
                    Some(next) => {
                        *warp = next;
                        true
                    }
                    None => false,
                },
            });
        }
        Trace { runs, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, lines: u32, write: bool) -> Run {
        Run { first: first * SECTORS, sectors: lines * SECTORS as u32, write }
    }

    #[test]
    fn what_fits_stays_and_what_does_not_is_always_missed() {
        let mut l2 = L2::new(8 * LINE);
        assert_eq!(l2.replay(&[run(0, 8, false)]), 8 * LINE);
        assert_eq!(l2.replay(&[run(0, 8, false)]), 0);
        // Nine lines in turn through eight places: each gives way just before it is needed.
        for _ in 0..3 {
            assert_eq!(l2.replay(&[run(100, 9, false)]), 9 * LINE);
        }
        // The line used last stays.
        assert_eq!(l2.replay(&[run(108, 1, false), run(0, 7, false), run(108, 1, false)]), 7 * LINE);
    }

    #[test]
    fn a_written_line_goes_back_once() {
        let mut l2 = L2::new(8 * LINE);
        assert_eq!(l2.replay(&[run(0, 4, false), run(0, 4, true), run(0, 4, true)]), 8 * LINE);
        assert_eq!(l2.replay(&[run(50, 8, true)]), 8 * LINE);
        assert_eq!(l2.replay(&[run(0, 4, true)]), 4 * LINE);
    }

    #[test]
    fn of_a_line_only_what_is_asked_for_is_moved() {
        let mut l2 = L2::new(8 * LINE);
        let part = |first, sectors| Run { first, sectors, write: false };
        assert_eq!(l2.replay(&[part(3, 3)]), 3 * SECTOR);
        assert_eq!(l2.replay(&[part(0, 8)]), 5 * SECTOR);
        assert_eq!(l2.replay(&[Run { first: 1, sectors: 1, write: true }, part(0, 8)]), SECTOR);
    }

    #[test]
    fn a_sweep_leaves_the_end_behind() {
        let mut l2 = L2::new(8 * LINE);
        l2.sweep(0, 100 * LINE, true);
        assert_eq!(l2.replay(&[run(92, 8, true)]), 0);
        assert_eq!(l2.replay(&[run(0, 1, false)]), LINE);
        l2.sweep(0, 0, true);
    }

    #[test]
    fn lanes_that_share_a_sector_ask_once_and_l1_answers_again() {
        let mut recorder = Recorder::new(64 << 10);
        for round in 0..3 {
            recorder.instruction(0, 0, true);
            for lane in 0..32 {
                recorder.touch(0x1000 + lane * 16, 16, false);
            }
            recorder.instruction(0, 0, round == 0);
            for _ in 0..32 {
                recorder.touch(0x8000, 2, false);
            }
        }
        let trace = recorder.finish(1);
        let part = |first, sectors| Run { first, sectors, write: false };
        // 512 bytes once; the other address once through L1, and twice past it.
        assert_eq!(trace.bytes, 512 + 3 * SECTOR);
        assert_eq!(trace.runs, [run(32, 4, false), part(0x400, 1), part(0x400, 1), part(0x400, 1)]);
    }

    #[test]
    fn resident_warps_take_turns() {
        let mut recorder = Recorder::new(64 << 10);
        for warp in 0..3 {
            for step in 0..2 {
                recorder.instruction(0, warp, false);
                recorder.touch(u64::from(warp) << 20 | step << 14, 4, false);
            }
        }
        let order: Vec<_> = recorder.finish(2).runs.iter().map(|run| run.first >> 15).collect();
        assert_eq!(order, [0, 1, 0, 1, 2, 2]);
    }
}
