//! Shared memory of a block, with a record of who used each byte since the last barrier.
//!
//! Bytes that no one wrote are all ones, a NaN in every format: a kernel may read more than it wrote and drop the rest,
//! but what it uses of that shows in its results.
//!
//! Tensor cores read through the asynchronous proxy: what a thread wrote reaches them only after a `fence.proxy.async`
//! of that thread, or of the one that reads, past a barrier; and until they are done nobody may write there.

use crate::warp::Trouble;

/// The thread that no thread is.
const NOBODY: u16 = u16::MAX;
/// Threads of several warps.
const MANY: u16 = u16::MAX - 1;
/// An atomic operation of any thread.
const ATOMIC: u16 = u16::MAX - 2;
/// Several lanes of the warp in the bits below.
const LANES: u16 = 0x8000;

/// A thread that uses shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread {
    pub warp: u16,
    pub lane: u16,
    /// Barriers of its warp so far, with the lanes that were there.
    pub meetings: u32,
}

/// Who used a byte last, and when.
#[derive(Debug, Clone, Copy)]
struct Last {
    /// Warp times 32 plus lane, or one of the constants above.
    who: u16,
    epoch: u32,
    meetings: u32,
}

impl Last {
    const NEVER: Self = Self { who: NOBODY, epoch: 0, meetings: 0 };

    fn warp(self) -> u16 {
        if self.who & LANES == 0 { self.who / 32 } else { self.who & !LANES }
    }

    /// Whether no barrier is between this use and one by `thread` now.
    fn unordered(self, thread: Thread, epoch: u32, partial: bool) -> bool {
        match self.who {
            NOBODY => false,
            _ if self.epoch != epoch => false,
            MANY | ATOMIC => !partial,
            _ if self.warp() != thread.warp => !partial,
            who => self.meetings == thread.meetings && who != thread.warp * 32 + thread.lane,
        }
    }

    fn by(thread: Thread, epoch: u32) -> Self {
        Self { who: thread.warp * 32 + thread.lane, epoch, meetings: thread.meetings }
    }

    /// The same with one more thread.
    fn and(self, thread: Thread, epoch: u32) -> Self {
        let new = Self::by(thread, epoch);
        if self.who == NOBODY || self.epoch != epoch || self.who == new.who {
            new
        } else if self.who >= ATOMIC || self.warp() != thread.warp {
            Self { who: MANY, ..new }
        } else if self.meetings == thread.meetings {
            Self { who: LANES | thread.warp, ..new }
        } else {
            new
        }
    }
}

#[derive(Clone, Copy)]
struct Record {
    written: Last,
    read: Last,
    /// Proxy fences of the writer before it wrote.
    fences: u32,
    /// Asynchronous readers that have not finished.
    busy: u16,
}

/// What an asynchronous instruction reads until it is done.
pub(crate) type Ranges = Vec<std::ops::Range<usize>>;

/// Shared memory of a block.
pub(crate) struct Shared {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Barriers of the whole block so far.
    epoch: u32,
    /// A barrier of some warps orders them in a way that the record does not follow.
    partial: bool,
    /// Proxy fences of each thread so far.
    fences: Vec<u32>,
    /// The epoch of each warp's last proxy fence.
    fenced: Vec<Option<u32>>,
}

/// Threads of a block at most.
const THREADS: usize = 1024;

impl Shared {
    pub fn new(bytes: usize) -> Self {
        let mut shared = Self {
            bytes: vec![0; bytes],
            records: Vec::new(),
            epoch: 0,
            partial: false,
            fences: Vec::new(),
            fenced: Vec::new(),
        };
        shared.clear();
        shared
    }

    /// For the next block: nothing is written.
    pub fn clear(&mut self) {
        let fresh = Record { written: Last::NEVER, read: Last::NEVER, fences: 0, busy: 0 };
        self.bytes.fill(0xff);
        self.records.clear();
        self.records.resize(self.bytes.len(), fresh);
        self.epoch = 0;
        self.fences = vec![0; THREADS];
        self.fenced = vec![None; THREADS / 32];
    }

    /// All warps of the block have met.
    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Some warps of the block have met.
    pub fn partial_barrier(&mut self) {
        self.partial = true;
    }

    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Trouble> {
        let size = self.bytes.len();
        usize::try_from(address)
            .ok()
            .and_then(|first| Some(first..first.checked_add(length)?))
            .filter(|range| range.end <= size)
            .ok_or_else(|| Trouble::Memory {
                address,
                what: format!("{length} bytes at {address:#x} of the {size} bytes of shared memory"),
            })
    }

    pub fn read(&mut self, thread: Thread, address: u64, into: &mut [u8]) -> Result<(), Trouble> {
        let range = self.range(address, into.len())?;
        for record in &mut self.records[range.clone()] {
            if record.written.unordered(thread, self.epoch, self.partial) {
                return Err(race("read", address, record.written));
            }
            record.read = record.read.and(thread, self.epoch);
        }
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    pub fn write(&mut self, thread: Thread, address: u64, from: &[u8]) -> Result<(), Trouble> {
        let range = self.range(address, from.len())?;
        for record in &mut self.records[range.clone()] {
            for last in [record.written, record.read] {
                if last.unordered(thread, self.epoch, self.partial) {
                    return Err(race("written", address, last));
                }
            }
            if record.busy > 0 {
                let what = format!("shared memory at {address:#x} is written while a tensor core reads it");
                return Err(Trouble::Race { what });
            }
            record.written = Last::by(thread, self.epoch);
            record.fences = self.fences[usize::from(thread.warp * 32 + thread.lane)];
        }
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    /// `fence.proxy.async` of a thread.
    pub fn proxy_fence(&mut self, thread: Thread) {
        self.fences[usize::from(thread.warp * 32 + thread.lane)] += 1;
        self.fenced[usize::from(thread.warp)] = Some(self.epoch);
    }

    /// A read by a tensor core for `thread`, which goes on until [`Self::release`]. `ends_with_warp` where the warp
    /// itself waits for it, so that others know of its end by a barrier only.
    pub fn read_async(
        &mut self,
        thread: Thread,
        address: u64,
        into: &mut [u8],
        ends_with_warp: bool,
    ) -> Result<std::ops::Range<usize>, Trouble> {
        let range = self.range(address, into.len())?;
        let fenced = self.fenced[usize::from(thread.warp)];
        for record in &mut self.records[range.clone()] {
            let written = record.written;
            if written.unordered(thread, self.epoch, self.partial) {
                return Err(race("read", address, written));
            }
            let own_fence = written.who < LANES && self.fences[usize::from(written.who)] > record.fences;
            let readers_fence = fenced.is_some_and(|epoch| epoch > written.epoch);
            if written.who != NOBODY && !own_fence && !readers_fence {
                let what = format!(
                    "shared memory at {address:#x} is read by a tensor core with no fence.proxy.async since \
                     thread {} wrote it",
                    written.who
                );
                return Err(Trouble::Race { what });
            }
            if ends_with_warp {
                record.read = record.read.and(thread, self.epoch);
            }
            record.busy += 1;
        }
        into.copy_from_slice(&self.bytes[range.clone()]);
        Ok(range)
    }

    /// An asynchronous reader is done with these bytes.
    pub fn release(&mut self, ranges: &Ranges) {
        for range in ranges {
            for record in &mut self.records[range.clone()] {
                record.busy -= 1;
            }
        }
    }

    /// An atomic operation's bytes before it, for any number of threads in turn.
    pub fn atomic(&mut self, address: u64, into: &mut [u8]) -> Result<(), Trouble> {
        let range = self.range(address, into.len())?;
        if self.records[range.clone()].iter().any(|record| record.written.who == NOBODY) {
            return Err(Trouble::Uninitialised { what: format!("shared memory at {address:#x}") });
        }
        for record in &mut self.records[range.clone()] {
            record.written = Last { who: ATOMIC, epoch: self.epoch, meetings: 0 };
        }
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    /// What an atomic operation leaves.
    pub fn atomic_end(&mut self, address: u64, from: &[u8]) -> Result<(), Trouble> {
        let range = self.range(address, from.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }
}

#[cold]
fn race(how: &str, address: u64, other: Last) -> Trouble {
    let whom = match other.who {
        MANY => "threads of several warps".to_owned(),
        ATOMIC => "an atomic operation".to_owned(),
        who if who & LANES != 0 => format!("several lanes of warp {}", other.warp()),
        who => format!("thread {who}"),
    };
    Trouble::Race {
        what: format!("shared memory at {address:#x} is {how} with no barrier since its use by {whom}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn thread(warp: u16, lane: u16, meetings: u32) -> Thread {
        Thread { warp, lane, meetings }
    }

    fn raced(result: &Result<(), Trouble>) -> bool {
        matches!(result, Err(Trouble::Race { .. }))
    }

    #[test]
    fn bytes_pass_between_warps_only_across_a_barrier() {
        let mut shared = Shared::new(16);
        let mut word = [0; 4];
        let (here, there) = (thread(0, 0, 0), thread(1, 0, 0));
        shared.read(here, 0, &mut word).unwrap();
        assert_eq!(word, [0xff; 4]);
        shared.write(here, 0, &[1, 2, 3, 4]).unwrap();
        shared.read(here, 0, &mut word).unwrap();
        assert!(raced(&shared.read(there, 0, &mut word)));
        shared.barrier();
        shared.read(there, 0, &mut word).unwrap();
        assert_eq!(word, [1, 2, 3, 4]);
        assert!(raced(&shared.write(here, 0, &[0])));
        shared.write(there, 0, &[0]).unwrap();
        shared.barrier();
        shared.write(here, 0, &[0]).unwrap();
        assert!(matches!(shared.read(here, 14, &mut word), Err(Trouble::Memory { .. })));
        assert!(matches!(shared.read(here, u64::MAX, &mut word), Err(Trouble::Memory { .. })));
        shared.clear();
        shared.read(there, 0, &mut word).unwrap();
        assert_eq!(word, [0xff; 4]);
    }

    #[test]
    fn bytes_pass_between_lanes_only_where_their_warp_met() {
        let mut shared = Shared::new(4);
        let mut byte = [0];
        shared.write(thread(2, 5, 0), 0, &[7]).unwrap();
        assert!(raced(&shared.read(thread(2, 6, 0), 0, &mut byte)));
        shared.read(thread(2, 6, 1), 0, &mut byte).unwrap();
        shared.read(thread(2, 7, 1), 0, &mut byte).unwrap();
        // Both lanes have read it since the warp met.
        assert!(raced(&shared.write(thread(2, 6, 1), 0, &[8])));
        shared.write(thread(2, 6, 2), 0, &[8]).unwrap();
        // A meeting of one's own warp says nothing to others.
        assert!(raced(&shared.read(thread(1, 6, 9), 0, &mut byte)));
    }
}
