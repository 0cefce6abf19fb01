//! Device memory, and which launches need not be run again.
//!
//! An allocation owns a window of addresses of its own, so that an access past its end meets nothing. A kernel is a
//! function of the memory that it reads: a launch whose inputs are as they were the last time would write what it
//! wrote then, and is not interpreted. So that memory still holds what the last launch wrote, an allocation has a
//! version: what it should hold. Where it should hold the output of a launch that was passed over after another
//! one had written there, that launch is made up for as soon as somebody looks.

use std::cell::Cell;
use std::sync::Arc;

use crate::cache::{Recorder, Trace};
use crate::scenario::Corrupt;
use crate::timeline::Pause;

const WINDOW: u32 = 38;
/// 49-bit addresses, as GPUs have them.
const WINDOWS: usize = (1 << (49 - WINDOW)) - 1;

/// What an allocation should hold: what the host left there, and the launch that wrote over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    /// Changed by the host, and by launches that write different parts of the same allocation.
    base: u64,
    /// The execution whose output lies on top; 0 where there is none.
    execution: u64,
}

/// Everything that identifies a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub module: u64,
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub params: Vec<Vec<u8>>,
}

/// Bytes of an allocation, from and to, in order and apart.
type Ranges = Vec<(u64, u64)>;

/// A launch that was executed.
pub struct Execution {
    pub key: Key,
    pub counts: ptx::Counts,
    pub trace: Trace,
    /// It reads a clock, so that what else happens on the GPU shows in its output.
    pub reads_clock: bool,
    module: Arc<ptx::Module>,
    reads: Vec<(usize, Version)>,
    writes: Vec<Write>,
}

struct Write {
    window: usize,
    after: Version,
    ranges: Ranges,
}

struct Allocation {
    bytes: Vec<u8>,
    version: Version,
    /// What it does hold.
    holds: Version,
    owner: Option<Arc<Execution>>,
    /// A kernel has used it.
    touched: bool,
    /// When the last kernel that writes it is done, in the device's own time.
    written_s: f64,
}

/// How launches are executed.
pub struct Rules {
    pub l2_bytes: u64,
    pub resident_warps: usize,
    pub instruction_limit: u64,
    pub corrupt: Vec<Corrupt>,
}

pub struct DeviceMemory {
    rules: Rules,
    windows: Vec<Option<Allocation>>,
    /// Windows are used in turn, so that an address is not given again soon after it was freed.
    next: usize,
    allocated: u64,
    counter: u64,
}

/// An address that belongs to nobody.
#[derive(Debug, PartialEq, Eq)]
pub struct Stray;

/// The window and the place in it.
fn split(address: u64) -> Option<(usize, u64)> {
    let window = usize::try_from(address >> WINDOW).ok()?.checked_sub(1)?;
    Some((window, address & ((1 << WINDOW) - 1)))
}

impl DeviceMemory {
    pub fn new(rules: Rules) -> Self {
        Self { rules, windows: Vec::new(), next: 0, allocated: 0, counter: 0 }
    }

    /// Bytes of all allocations, each rounded up as the driver does.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// The address of `bytes` bytes; `None` where the host cannot give them.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let length = usize::try_from(bytes).ok().filter(|_| bytes <= 1 << WINDOW)?;
        let free =
            |windows: &[Option<Allocation>], window: usize| windows.get(window).is_none_or(Option::is_none);
        let window = (0..WINDOWS)
            .map(|step| (self.next + step) % WINDOWS)
            .find(|&window| free(&self.windows, window))?;
        self.next = (window + 1) % WINDOWS;
        let bytes = zeroed(length)?;
        if self.windows.len() <= window {
            self.windows.resize_with(window + 1, || None);
        }
        let version = self.fresh();
        self.allocated += rounded(bytes.len());
        self.windows[window] =
            Some(Allocation { bytes, version, holds: version, owner: None, touched: false, written_s: 0.0 });
        Some((window as u64 + 1) << WINDOW)
    }

    /// Ends the allocation that starts at `address`.
    pub fn free(&mut self, address: u64) -> Result<(), Stray> {
        let window = self.place(address, 0)?.0;
        if address & ((1 << WINDOW) - 1) != 0 {
            return Err(Stray);
        }
        self.settle_readers(&[window]);
        if let Some(allocation) = self.windows[window].take() {
            self.allocated -= rounded(allocation.bytes.len());
        }
        Ok(())
    }

    /// Whether the bytes lie in one allocation.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), Stray> {
        self.place(address, bytes).map(|_| ())
    }

    /// The bytes, with every launch made up for whose output they are.
    pub fn read(&mut self, address: u64, bytes: u64) -> Result<&[u8], Stray> {
        let (window, first, last) = self.place(address, bytes)?;
        self.settle(window);
        match &self.windows[window] {
            Some(allocation) => Ok(&allocation.bytes[first..last]),
            None => Err(Stray),
        }
    }

    /// Has the host change the bytes.
    pub fn change(&mut self, address: u64, bytes: u64, change: impl FnOnce(&mut [u8])) -> Result<(), Stray> {
        let (window, first, last) = self.place(address, bytes)?;
        self.settle_readers(&[window]);
        let whole = self.windows[window].as_ref().is_some_and(|it| last - first == it.bytes.len());
        if !whole {
            self.settle(window);
        }
        let version = self.fresh();
        if let Some(allocation) = &mut self.windows[window] {
            change(&mut allocation.bytes[first..last]);
            (allocation.version, allocation.holds, allocation.owner) = (version, version, None);
        }
        Ok(())
    }

    /// Whether the launch would do what it did.
    pub fn is_same(&self, earlier: &Execution) -> bool {
        let get = |window: usize| self.windows.get(window).and_then(Option::as_ref);
        let reads = earlier
            .reads
            .iter()
            .all(|&(window, version)| get(window).is_some_and(|it| it.version == version));
        reads
            && earlier.writes.iter().all(|write| {
                get(write.window).is_some_and(|it| {
                    it.version.base == write.after.base
                        && it
                            .owner
                            .as_ref()
                            .is_none_or(|owner| owner.ranges(write.window) == Some(&write.ranges))
                })
            })
    }

    /// Has memory count as though the launch had been executed again.
    pub fn pass_over(&mut self, earlier: &Arc<Execution>) {
        let written: Vec<usize> = earlier.writes.iter().map(|write| write.window).collect();
        self.settle_readers(&written);
        for write in &earlier.writes {
            if let Some(allocation) = &mut self.windows[write.window] {
                allocation.version = write.after;
                allocation.owner = Some(Arc::clone(earlier));
            }
        }
    }

    /// Bytes of the allocations that a launch is the first one to use.
    pub fn touch(&mut self, launch: &Execution) -> u64 {
        let read = launch.reads.iter().map(|&(window, _)| window);
        let used = read.chain(launch.writes.iter().map(|write| write.window));
        let mut fresh = 0;
        for window in used {
            if let Some(allocation) = self.windows[window].as_mut().filter(|it| !it.touched) {
                allocation.touched = true;
                fresh += allocation.bytes.len() as u64;
            }
        }
        fresh
    }

    /// A launch is done at that moment, and what it writes is not there before.
    pub fn written(&mut self, launch: &Execution, done_s: f64) {
        for write in &launch.writes {
            if let Some(allocation) = &mut self.windows[write.window] {
                allocation.written_s = allocation.written_s.max(done_s);
            }
        }
    }

    /// When the last launch that writes there is done.
    pub fn written_s(&self, address: u64) -> f64 {
        let found = split(address).and_then(|(window, _)| self.windows.get(window)?.as_ref());
        found.map_or(0.0, |allocation| allocation.written_s)
    }

    /// Executes a launch. What was written before a fault stays written. Its clock runs on in the pauses.
    pub fn execute(
        &mut self,
        module: &Arc<ptx::Module>,
        key: Key,
        pauses: &[Pause],
    ) -> Result<Arc<Execution>, ptx::Fault> {
        for window in 0..self.windows.len() {
            self.settle(window);
        }
        let done = self.interpret(module, &key, pauses);
        let reads = (done.read.iter().enumerate())
            .filter(|(_, read)| **read)
            .filter_map(|(window, _)| Some((window, self.windows[window].as_ref()?.version)))
            .collect();
        self.counter += 1;
        let number = self.counter;
        let mut writes = Vec::new();
        for (window, ranges) in done.written.into_iter().enumerate() {
            let Some(allocation) = self.windows[window].as_ref().filter(|_| !ranges.is_empty()) else {
                continue;
            };
            // Over bytes that no other launch left there, only this launch's output counts.
            let alone = allocation.owner.as_ref().is_none_or(|owner| owner.ranges(window) == Some(&ranges));
            let base =
                if alone && done.outcome.is_ok() { allocation.version.base } else { self.fresh().base };
            writes.push(Write { window, after: Version { base, execution: number }, ranges });
        }
        let counts = done.outcome.as_ref().cloned().unwrap_or_default();
        let module = Arc::clone(module);
        let (trace, reads_clock) = (done.trace, done.reads_clock);
        let execution = Arc::new(Execution { key, module, counts, trace, reads_clock, reads, writes });
        self.pass_over(&execution);
        for write in &execution.writes {
            if let Some(allocation) = &mut self.windows[write.window] {
                allocation.holds = write.after;
            }
        }
        done.outcome.map(|_| execution)
    }

    /// Makes up for the launch whose output an allocation should hold and does not.
    fn settle(&mut self, window: usize) {
        let stale = self.windows.get(window).and_then(Option::as_ref).filter(|it| it.version != it.holds);
        let Some(owner) = stale.and_then(|it| it.owner.clone()) else { return };
        for &(read, _) in &owner.reads {
            self.settle(read);
        }
        self.interpret(&owner.module, &owner.key, &[]);
        for write in &owner.writes {
            if let Some(allocation) = &mut self.windows[write.window] {
                allocation.holds = write.after;
            }
        }
    }

    /// Makes up for the launches that read what is about to change.
    fn settle_readers(&mut self, changing: &[usize]) {
        for window in 0..self.windows.len() {
            let stale = self.windows[window].as_ref().filter(|it| it.version != it.holds);
            let owner = stale.and_then(|it| it.owner.as_ref());
            if owner.is_some_and(|owner| owner.reads.iter().any(|(read, _)| changing.contains(read))) {
                self.settle(window);
            }
        }
    }

    fn interpret(&mut self, module: &ptx::Module, key: &Key, pauses: &[Pause]) -> Done {
        let count = self.windows.len();
        let mut view = View {
            windows: &mut self.windows,
            read: vec![false; count],
            written: vec![Ranges::new(); count],
            recorder: Recorder::new(self.rules.l2_bytes),
            pauses,
            reads_clock: Cell::new(false),
        };
        let outcome = match module.entry(&key.entry) {
            Some(entry) => {
                let launch = ptx::Launch {
                    grid: key.grid,
                    block: key.block,
                    shared_bytes: key.shared_bytes,
                    params: &key.params,
                    limit: self.rules.instruction_limit,
                };
                ptx::launch(entry, &launch, &mut view)
            }
            None => Err(ptx::Fault::Params(format!("no entry {}", key.entry))),
        };
        let View { read, mut written, recorder, reads_clock, .. } = view;
        written.iter_mut().for_each(tidy);
        for corrupt in &self.rules.corrupt {
            if corrupt.entry == "*" || corrupt.entry == key.entry {
                damage(&mut self.windows, &written, corrupt.words);
            }
        }
        let trace = recorder.finish(self.rules.resident_warps);
        Done { outcome, read, written, trace, reads_clock: reads_clock.get() }
    }

    fn fresh(&mut self) -> Version {
        self.counter += 1;
        Version { base: self.counter, execution: 0 }
    }

    /// The window that the bytes lie in, from and to.
    fn place(&self, address: u64, bytes: u64) -> Result<(usize, usize, usize), Stray> {
        let (window, offset) = split(address).ok_or(Stray)?;
        let length = self.windows.get(window).and_then(Option::as_ref).ok_or(Stray)?.bytes.len() as u64;
        let last = offset.checked_add(bytes).filter(|&last| last <= length).ok_or(Stray)?;
        Ok((window, offset as usize, last as usize))
    }
}

impl Execution {
    fn ranges(&self, window: usize) -> Option<&Ranges> {
        self.writes.iter().find(|write| write.window == window).map(|write| &write.ranges)
    }
}

/// What an interpretation left behind.
struct Done {
    outcome: Result<ptx::Counts, ptx::Fault>,
    read: Vec<bool>,
    written: Vec<Ranges>,
    trace: Trace,
    reads_clock: bool,
}

/// Zeroed bytes that cost nothing before they are used; `None` where there are not so many.
fn zeroed(length: usize) -> Option<Vec<u8>> {
    if length < 1 << 30 {
        return Some(vec![0; length]);
    }
    // `vec!` ends the process where memory does not suffice.
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(length).ok()?;
    drop(probe);
    Some(vec![0; length])
}

/// As much as an allocation takes away.
pub fn rounded(length: usize) -> u64 {
    (length as u64).max(1).next_multiple_of(512)
}

fn tidy(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut tidied = Ranges::with_capacity(ranges.len().min(64));
    for &(first, last) in ranges.iter() {
        match tidied.last_mut() {
            Some(previous) if first <= previous.1 => previous.1 = previous.1.max(last),
            _ => tidied.push((first, last)),
        }
    }
    *ranges = tidied;
}

/// Changes `words` words of what was written, spread evenly.
fn damage(windows: &mut [Option<Allocation>], written: &[Ranges], words: u64) {
    let all: u64 = written.iter().flatten().map(|(first, last)| (last - first) / 4).sum();
    let words = words.min(all);
    for word in 0..words {
        let mut skip = (u128::from(all) * (2 * u128::from(word) + 1) / (2 * u128::from(words))) as u64;
        for (window, ranges) in written.iter().enumerate() {
            let Some(allocation) = &mut windows[window] else { continue };
            for &(first, last) in ranges {
                let here = (last - first) / 4;
                if skip < here {
                    let place = (first + 4 * skip) as usize;
                    // The highest bit of a float's or half's exponent, and one of an integer that is noticed.
                    for byte in &mut allocation.bytes[place..place + 4] {
                        *byte ^= 0x40;
                    }
                }
                skip = match skip.checked_sub(here) {
                    Some(rest) if skip >= here => rest,
                    _ => u64::MAX,
                };
            }
        }
    }
}

/// Memory as a kernel sees it.
struct View<'a> {
    windows: &'a mut [Option<Allocation>],
    read: Vec<bool>,
    written: Vec<Ranges>,
    recorder: Recorder,
    pauses: &'a [Pause],
    reads_clock: Cell<bool>,
}

impl View<'_> {
    fn find(&mut self, address: u64, bytes: usize) -> Result<(usize, u64, &mut [u8]), String> {
        let Some((window, offset)) = split(address) else {
            return Err(format!("{bytes} bytes at {address:#x} lie below every allocation"));
        };
        let Some(allocation) = self.windows.get_mut(window).and_then(Option::as_mut) else {
            return Err(format!("{bytes} bytes at {address:#x} lie in no allocation"));
        };
        let length = allocation.bytes.len();
        match allocation.bytes.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..bytes)) {
            Some(found) => Ok((window, offset, found)),
            None => {
                Err(format!("{bytes} bytes at {address:#x}, {offset} bytes into an allocation of {length}"))
            }
        }
    }
}

impl ptx::Memory for View<'_> {
    fn warp(&mut self, block: u64, warp: u32, cached: bool) {
        self.recorder.instruction(block, warp, cached);
    }

    fn clock(&self, executed: u64) -> u64 {
        self.reads_clock.set(true);
        let passed = self.pauses.iter().filter(|pause| pause.at <= executed);
        executed + passed.map(|pause| pause.cycles).sum::<u64>()
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), String> {
        let (window, _, found) = self.find(address, into.len())?;
        into.copy_from_slice(found);
        self.read[window] = true;
        self.recorder.touch(address, into.len(), false);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        let (window, first, found) = self.find(address, from.len())?;
        found.copy_from_slice(from);
        let last = first + from.len() as u64;
        let ranges = &mut self.written[window];
        match ranges.last_mut() {
            Some(previous) if previous.1 == first => previous.1 = last,
            _ => ranges.push((first, last)),
        }
        self.recorder.touch(address, from.len(), true);
        Ok(())
    }
}
