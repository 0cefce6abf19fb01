//! Pinned workers behind a spin-then-park barrier.
//!
//! The calling thread is worker 0, so a region on one worker costs a function call. Each other worker watches a
//! cache line of its own: first spinning, then yielding, at last parked. A region started right after the last one
//! is picked up within a core-to-core latency or two; an idle pool costs no CPU time.

use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use rustix::time::{ClockId, clock_gettime};

/// Polls before a waiting thread starts to yield: some milliseconds, a time slice. A thread that yields next to other work is off
/// its CPU for a slice, and workers that yield to it in turn are never on at the same time.
const SPINS: u32 = 100_000;
/// Yields before a worker parks. Yielding lets an oversubscribed CPU run the thread that we wait for.
const YIELDS: u32 = 200;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Two lines: adjacent-line prefetchers drag neighbours along.
#[repr(align(128))]
struct Padded<T>(T);

struct Slot {
    /// Incremented to start a region.
    started: Padded<AtomicU32>,
    /// Follows `started` when the region is done.
    done: Padded<AtomicU32>,
    parked: AtomicBool,
    failed: AtomicBool,
    /// Nanoseconds of CPU time inside regions, while that is counted.
    busy: AtomicU64,
}

impl Slot {
    /// Runs the share of one worker.
    fn share(&self, counted: bool, job: impl FnOnce()) {
        if !counted {
            return job();
        }
        let begin = thread_time();
        job();
        self.busy.fetch_add(thread_time().saturating_sub(begin), Ordering::Relaxed);
    }
}

/// Nanoseconds of CPU time of this thread.
pub fn thread_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

pub fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

struct Shared {
    job: UnsafeCell<Option<Job<'static>>>,
    quit: AtomicBool,
    /// The workers count their CPU time.
    counted: AtomicBool,
    slots: Vec<Slot>,
}

// SAFETY: `job` is written only by the caller of `Pool::run` while no worker is inside a region, and read by workers
// only between the release store to `started` and their own release store to `done`.
unsafe impl Sync for Shared {}
// SAFETY: as above; everything else in `Shared` is `Send`.
unsafe impl Send for Shared {}

/// Worker threads, each pinned to a CPU of its own.
pub struct Pool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    threads: Vec<Thread>,
    cpus: Vec<u32>,
    callers_mask: CpuSet,
}

/// The CPUs that this process may run on, in the order of `wanted`; all of them where `wanted` is empty.
pub fn allowed_cpus(wanted: &[u32]) -> io::Result<Vec<u32>> {
    let mask = sched_getaffinity(None)?;
    let allowed: Vec<u32> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| mask.is_set(cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect();
    if wanted.is_empty() {
        return Ok(allowed);
    }
    let mut cpus = Vec::new();
    for cpu in wanted {
        if allowed.contains(cpu) && !cpus.contains(cpu) {
            cpus.push(*cpu);
        }
    }
    Ok(cpus)
}

fn pin(cpu: u32) -> io::Result<()> {
    let mut mask = CpuSet::new();
    mask.set(cpu as usize);
    Ok(sched_setaffinity(None, &mask)?)
}

impl Pool {
    /// Pins the calling thread to the first CPU and one new thread to each of the others.
    pub fn new(cpus: &[u32]) -> io::Result<Self> {
        let Some(&first) = cpus.first() else {
            return Err(io::Error::other("this process may use none of the requested CPUs"));
        };
        let callers_mask = sched_getaffinity(None)?;
        let slot = || Slot {
            started: Padded(AtomicU32::new(0)),
            done: Padded(AtomicU32::new(0)),
            parked: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            busy: AtomicU64::new(0),
        };
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            quit: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            slots: cpus.iter().map(|_| slot()).collect(),
        });
        let mut pool =
            Self { shared, handles: Vec::new(), threads: Vec::new(), cpus: cpus.to_vec(), callers_mask };
        for (index, &cpu) in cpus.iter().enumerate().skip(1) {
            let shared = Arc::clone(&pool.shared);
            let handle = thread::Builder::new().name(format!("probe-{index}")).spawn(move || {
                // A CPU that went offline since the mask was read leaves the worker unpinned but working; the
                // operating point of each sample shows the disturbance.
                let _ = pin(cpu);
                work(&shared, index);
            })?;
            pool.threads.push(handle.thread().clone());
            pool.handles.push(handle);
        }
        pin(first)?;
        Ok(pool)
    }

    /// Number of workers, the caller included.
    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    /// The CPUs of the workers, in order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// From now on, or no longer, the workers count the CPU time that they spend inside regions. It costs each region some
    /// tenths of a microsecond.
    pub fn count_time(&self, counted: bool) {
        self.shared.counted.store(counted, Ordering::Relaxed);
    }

    /// The most CPU time in seconds that one worker has counted since this was last asked.
    pub fn most_time(&self) -> f64 {
        let most = self.shared.slots.iter().map(|slot| slot.busy.swap(0, Ordering::Relaxed)).max();
        Duration::from_nanos(most.unwrap_or(0)).as_secs_f64()
    }

    /// Runs `job(0)` here and `job(1)..job(workers-1)` on the others; returns when all are done.
    pub fn run(&self, workers: usize, job: Job<'_>) {
        let others = workers.min(self.len());
        if others > 1 {
            // SAFETY: only the lifetime is erased, and `job` outlives the region because this function waits for
            // every worker below, also when its own share panics.
            let erased = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
            // SAFETY: no worker is inside a region here, see `Shared`.
            unsafe { *self.shared.job.get() = Some(erased) };
            for (slot, thread) in self.shared.slots[1..others].iter().zip(&self.threads) {
                let next = slot.started.0.load(Ordering::Relaxed).wrapping_add(1);
                // SeqCst pairs with the worker's store to `parked`: one of the two sees the other.
                slot.started.0.store(next, Ordering::SeqCst);
                if slot.parked.load(Ordering::SeqCst) {
                    thread.unpark();
                }
            }
        }
        let counted = self.shared.counted.load(Ordering::Relaxed);
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.slots[0].share(counted, || job(0))));
        let mut failed = false;
        for slot in &self.shared.slots[1..others.max(1)] {
            let target = slot.started.0.load(Ordering::Relaxed);
            let mut polls = 0_u32;
            while slot.done.0.load(Ordering::Acquire) != target {
                polls = polls.saturating_add(1);
                if polls < SPINS { std::hint::spin_loop() } else { sched_yield() }
            }
            failed |= slot.failed.swap(false, Ordering::Relaxed);
        }
        match own {
            Err(panic) => resume_unwind(panic),
            Ok(()) if failed => resume_unwind(Box::new("a probe worker panicked")),
            Ok(()) => {}
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let slot = &shared.slots[index];
    let mut seen = 0;
    loop {
        let mut polls = 0_u32;
        let next = loop {
            let started = slot.started.0.load(Ordering::Acquire);
            if started != seen {
                break started;
            }
            if shared.quit.load(Ordering::Relaxed) {
                return;
            }
            polls = polls.saturating_add(1);
            if polls < SPINS {
                std::hint::spin_loop();
            } else if polls < SPINS + YIELDS {
                sched_yield();
            } else {
                slot.parked.store(true, Ordering::SeqCst);
                if slot.started.0.load(Ordering::SeqCst) == seen {
                    thread::park_timeout(Duration::from_secs(1));
                }
                slot.parked.store(false, Ordering::SeqCst);
            }
        };
        seen = next;
        // SAFETY: between `started` and `done` the caller of `run` neither writes `job` nor lets it expire.
        let job = unsafe { *shared.job.get() };
        let counted = shared.counted.load(Ordering::Relaxed);
        if let Some(job) = job
            && catch_unwind(AssertUnwindSafe(|| slot.share(counted, || job(index)))).is_err()
        {
            slot.failed.store(true, Ordering::Relaxed);
        }
        slot.done.0.store(seen, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        for (thread, handle) in self.threads.iter().zip(self.handles.drain(..)) {
            thread.unpark();
            let _ = handle.join();
        }
        let _ = sched_setaffinity(None, &self.callers_mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_worker_runs_once_per_region_even_after_parking() {
        let cpus = allowed_cpus(&[]).unwrap();
        let pool = Pool::new(&cpus[..cpus.len().min(4)]).unwrap();
        let counts: Vec<AtomicUsize> = (0..pool.len()).map(|_| AtomicUsize::new(0)).collect();
        for round in 0..200 {
            if round == 100 {
                thread::sleep(Duration::from_millis(30));
            }
            pool.run(pool.len(), &|worker| {
                counts[worker].fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 200));
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_leaves_the_pool_usable() {
        let cpus = allowed_cpus(&[]).unwrap();
        let pool = Pool::new(&cpus).unwrap();
        let last = pool.len() - 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(pool.len(), &|worker| assert!(worker != last, "planted"));
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        pool.run(pool.len(), &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), pool.len());
    }

    #[test]
    fn the_time_inside_regions_is_that_of_the_busiest_worker() {
        let pool = Pool::new(&allowed_cpus(&[]).unwrap()).unwrap();
        let work = |worker: usize| {
            let begin = thread_time();
            while thread_time() - begin < 1_000_000 * (worker as u64 + 1) {}
            // Not the time of the thread.
            thread::sleep(Duration::from_millis(5));
        };
        pool.run(pool.len(), &work);
        assert_eq!(pool.most_time(), 0.0, "it is not counted");
        pool.count_time(true);
        pool.run(pool.len(), &work);
        let (most, least) = (pool.most_time(), 1e-3 * pool.len() as f64);
        assert!(most >= least && most < least + 4e-3, "{most} of {least}");
        assert_eq!(pool.most_time(), 0.0, "it starts again");
    }

    #[test]
    fn cpus_outside_the_mask_or_named_twice_are_left_out() {
        let allowed = allowed_cpus(&[]).unwrap();
        assert_eq!(allowed_cpus(&[allowed[0], 100_000, allowed[0]]).unwrap(), [allowed[0]]);
    }
}
