//! Tensor memory of a block: 128 lanes and 512 columns of words, who used each last, and what the order is between
//! warps and the tensor core.
//!
//! An agent is a warp as it loads, as it stores, or the asynchronous unit as a warp uses it. Each of its uses of tensor memory has a number, and a
//! warp sees those of others up to a number that it has heard of: from a warp that ran `tcgen05.fence::before_thread_sync`
//! and then met it at a barrier, or from an mbarrier that a `tcgen05.commit` arrived at, and only from its own next
//! `tcgen05.fence::after_thread_sync` on.

use std::collections::BTreeMap;

use crate::shared::{Ranges, Shared, Thread};
use crate::warp::Trouble;

pub(crate) const LANES: usize = 128;
pub(crate) const COLUMNS: usize = 512;

/// The agent that none is.
const NOBODY: u16 = u16::MAX;

/// How a warp comes to tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Load,
    Store,
    Unit,
}

/// A use of tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    agent: u16,
    number: u32,
}

#[derive(Clone, Copy)]
struct Cell {
    word: u32,
    written: Use,
    read: Use,
}

const UNUSED: Cell =
    Cell { word: 0, written: Use { agent: NOBODY, number: 0 }, read: Use { agent: NOBODY, number: 0 } };

/// The number of each agent's last use that somebody knows of.
pub(crate) type Clock = Vec<u32>;

fn join(into: &mut Clock, from: &Clock) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
}

/// What each warp of a block sees.
#[derive(Default)]
pub(crate) struct Order {
    warps: usize,
    last: Clock,
    sees: Vec<Clock>,
    published: Vec<Clock>,
    heard: Vec<Clock>,
    is_used: bool,
}

impl Order {
    fn new(warps: usize) -> Self {
        let clocks = vec![vec![0; 3 * warps]; warps];
        Self {
            warps,
            last: vec![0; 3 * warps],
            sees: clocks.clone(),
            published: clocks.clone(),
            heard: clocks,
            is_used: false,
        }
    }

    fn agent(&self, warp: u16, by: By) -> usize {
        by as usize * self.warps + usize::from(warp)
    }

    /// The next use by a warp or for it.
    pub fn next(&mut self, warp: u16, by: By) -> Use {
        let agent = self.agent(warp, by);
        self.is_used = true;
        self.last[agent] += 1;
        Use { agent: agent as u16, number: self.last[agent] }
    }

    /// The warp has waited for all its own loads or stores.
    pub fn waited(&mut self, warp: u16, by: By) {
        let agent = self.agent(warp, by);
        self.sees[usize::from(warp)][agent] = self.last[agent];
    }

    pub fn before(&mut self, warp: u16) {
        let warp = usize::from(warp);
        self.published[warp].clone_from(&self.sees[warp]);
    }

    pub fn after(&mut self, warp: u16) {
        let warp = usize::from(warp);
        join(&mut self.sees[warp], &self.heard[warp]);
    }

    /// Warps have met at a barrier.
    pub fn meet(&mut self, warps: &[usize]) {
        if !self.is_used {
            return;
        }
        let mut all = vec![0; self.last.len()];
        warps.iter().for_each(|&warp| join(&mut all, &self.published[warp]));
        warps.iter().for_each(|&warp| join(&mut self.heard[warp], &all));
    }

    pub fn hear(&mut self, warp: u16, clock: &Clock) {
        join(&mut self.heard[usize::from(warp)], clock);
    }

    pub fn published(&self, warp: u16) -> Clock {
        self.published[usize::from(warp)].clone()
    }

    /// What is known of the asynchronous unit where a warp's use of it is done.
    fn of_unit(&self, warp: u16, number: u32) -> Clock {
        let mut clock = vec![0; self.last.len()];
        clock[self.agent(warp, By::Unit)] = number;
        clock
    }

    /// Whether a use is over for `who`, or runs before it because the unit does one after the other.
    fn is_before(&self, earlier: Use, who: Use) -> bool {
        let warp = usize::from(who.agent) % self.warps;
        let is_async = usize::from(who.agent) / self.warps == By::Unit as usize;
        earlier.agent == NOBODY
            || (is_async && earlier.agent == who.agent)
            || self.sees[warp][usize::from(earlier.agent)] >= earlier.number
    }
}

/// An arrival that is under way.
struct Arrival {
    clock: Clock,
    ranges: Ranges,
}

/// An mbarrier object.
pub(crate) struct MBarrier {
    count: u32,
    pending: u32,
    pub phase: u32,
    arriving: Vec<Arrival>,
    gathered: Clock,
    /// Of the last phase that is complete.
    pub complete: Clock,
    pub by: Thread,
    /// The unit knows of it.
    pub is_fenced: bool,
}

impl MBarrier {
    pub fn new(count: u32, by: Thread) -> Self {
        Self {
            count,
            pending: count,
            phase: 0,
            arriving: Vec::new(),
            gathered: Vec::new(),
            complete: Vec::new(),
            by,
            is_fenced: false,
        }
    }

    pub fn arrive(&mut self, clock: Clock) {
        if self.gathered.is_empty() {
            self.gathered = clock;
        } else {
            join(&mut self.gathered, &clock);
        }
        self.pending -= 1;
        if self.pending == 0 {
            self.phase += 1;
            self.pending = self.count;
            self.complete = std::mem::take(&mut self.gathered);
        }
    }

    /// Lets the next arrival that is under way come in. It did not before somebody looked in vain.
    pub fn deliver(&mut self, shared: &mut Shared) {
        if !self.arriving.is_empty() {
            let Arrival { clock, ranges } = self.arriving.remove(0);
            shared.release(&ranges);
            self.arrive(clock);
        }
    }
}

/// What a thread has given the unit to do and not committed.
#[derive(Default)]
struct Issued {
    last: u32,
    ranges: Ranges,
}

/// Tensor memory and its order.
#[derive(Default)]
pub(crate) struct Tensor {
    pub order: Order,
    cells: Vec<Cell>,
    /// First column and number of columns.
    allocations: Vec<(usize, usize)>,
    is_relinquished: bool,
    pub barriers: BTreeMap<u64, MBarrier>,
    issued: BTreeMap<(u16, u16), Issued>,
}

impl Tensor {
    pub fn new(warps: usize) -> Self {
        Self { order: Order::new(warps), ..Self::default() }
    }

    /// The address of the first of `columns`, as far from 0 as there is room.
    pub fn allocate(&mut self, columns: u64) -> Result<u64, Trouble> {
        let refused = |what: String| Err(Trouble::Descriptor { what });
        if !columns.is_power_of_two() || !(32..=512).contains(&columns) {
            return refused(format!(
                "{columns} columns cannot be allocated; a power of two of 32 to 512 can"
            ));
        }
        if self.is_relinquished {
            return refused("the permit to allocate is relinquished".to_owned());
        }
        let columns = columns as usize;
        let is_free = |first: usize| {
            let apart = |&(other, count): &(usize, usize)| first + columns <= other || other + count <= first;
            self.allocations.iter().all(apart)
        };
        let Some(first) = (0..COLUMNS / columns).rev().map(|at| at * columns).find(|&first| is_free(first))
        else {
            return refused(format!("{columns} columns of tensor memory are never free"));
        };
        if self.cells.is_empty() {
            self.cells = vec![UNUSED; LANES * COLUMNS];
        }
        for lane in 0..LANES {
            self.cells[lane * COLUMNS + first..][..columns].fill(UNUSED);
        }
        self.allocations.push((first, columns));
        Ok(first as u64)
    }

    pub fn relinquish(&mut self) {
        self.is_relinquished = true;
    }

    pub fn free(&mut self, warp: u16, address: u64, columns: u64) -> Result<(), Trouble> {
        let found = self
            .allocations
            .iter()
            .position(|&(first, count)| first as u64 == address && count as u64 == columns);
        let Some(found) = found else {
            let what = format!("{columns} columns at {address:#x} of tensor memory are not allocated");
            return Err(Trouble::Descriptor { what });
        };
        let who = Use { agent: warp, number: 0 };
        let (first, count) = self.allocations.swap_remove(found);
        for lane in 0..LANES {
            for column in first..first + count {
                let cell = self.cells[lane * COLUMNS + column];
                for earlier in [cell.written, cell.read] {
                    if !self.order.is_before(earlier, who) {
                        return Err(unordered(lane, column, "freed"));
                    }
                }
            }
        }
        Ok(())
    }

    /// That a block that ended has freed all.
    pub fn finished(&self) -> Result<(), Trouble> {
        match self.allocations.first() {
            None => Ok(()),
            Some((_, columns)) => Err(Trouble::Descriptor {
                what: format!("the kernel ends with {columns} columns of tensor memory allocated"),
            }),
        }
    }

    fn cell(&mut self, lane: usize, column: usize) -> Result<&mut Cell, Trouble> {
        let is_allocated =
            self.allocations.iter().any(|&(first, count)| (first..first + count).contains(&column));
        if lane >= LANES || !is_allocated {
            let what = format!("lane {lane}, column {column} of tensor memory is not allocated");
            return Err(Trouble::Memory { address: (lane << 16 | column) as u64, what });
        }
        Ok(&mut self.cells[lane * COLUMNS + column])
    }

    pub fn read(&mut self, who: Use, lane: usize, column: usize) -> Result<u32, Trouble> {
        let written = self.cell(lane, column)?.written;
        if written.agent == NOBODY {
            let what = format!("lane {lane}, column {column} of tensor memory");
            return Err(Trouble::Uninitialised { what });
        }
        if !self.order.is_before(written, who) {
            return Err(unordered(lane, column, "read"));
        }
        let cell = self.cell(lane, column)?;
        cell.read = who;
        Ok(cell.word)
    }

    pub fn write(&mut self, who: Use, lane: usize, column: usize, word: u32) -> Result<(), Trouble> {
        let &mut Cell { written, read, .. } = self.cell(lane, column)?;
        // A warp's own stores come one after the other.
        let again = written.agent == who.agent;
        if !(again || self.order.is_before(written, who)) || !self.order.is_before(read, who) {
            return Err(unordered(lane, column, "written"));
        }
        let cell = self.cell(lane, column)?;
        (cell.word, cell.written) = (word, who);
        Ok(())
    }

    /// A thread has given the unit something to do that reads shared memory.
    pub fn issue(&mut self, thread: Thread, given: Use, mut ranges: Ranges) {
        let issued = self.issued.entry((thread.warp, thread.lane)).or_default();
        issued.last = given.number;
        issued.ranges.append(&mut ranges);
    }

    /// Has the mbarrier hear of the end of all that the thread has given the unit.
    pub fn commit(&mut self, thread: Thread, address: u64) -> Result<(), Trouble> {
        let issued = self.issued.entry((thread.warp, thread.lane)).or_default();
        let ranges = std::mem::take(&mut issued.ranges);
        let clock = self.order.of_unit(thread.warp, issued.last);
        let barrier = self.barrier(address)?;
        if !barrier.is_fenced {
            let what = format!("the mbarrier at {address:#x} is not fenced since it was initialised");
            return Err(Trouble::Race { what });
        }
        barrier.arriving.push(Arrival { clock, ranges });
        Ok(())
    }

    pub fn barrier(&mut self, address: u64) -> Result<&mut MBarrier, Trouble> {
        self.barriers.get_mut(&address).ok_or_else(|| Trouble::Memory {
            address,
            what: format!("there is no mbarrier at {address:#x} of shared memory"),
        })
    }
}

#[cold]
fn unordered(lane: usize, column: usize, how: &str) -> Trouble {
    let what = format!(
        "lane {lane}, column {column} of tensor memory is {how} without having waited for its last use"
    );
    Trouble::Race { what }
}
