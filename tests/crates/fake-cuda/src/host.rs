//! The CPU's side of time: what calls cost, and what they leave behind them.

use std::collections::{HashSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use crate::scenario::Host;

/// Copies of no more bytes from pageable memory are staged: the call returns before they are done.
pub const STAGED_BYTES: u64 = 64 << 10;
/// The longest that a query in a row takes.
const LONGEST_POLL_S: f64 = 1e-3;

/// Compiling a module takes longer, and nobody times it.
const LONGEST_SPIN_S: f64 = 5e-3;

/// Something that a call left behind, and when it is done.
pub struct Pending {
    pub done_s: f64,
    pub what: Left,
}

pub enum Left {
    Upload {
        to: u64,
        content: Vec<u8>,
    },
    Fill {
        address: u64,
        pattern: Vec<u8>,
        count: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    /// Into pinned memory that the driver gave: its address, and the place there.
    Download {
        pinned: u64,
        offset: usize,
        from: u64,
        bytes: u64,
    },
}

/// The CPU's clock.
pub struct HostClock {
    pub costs: Host,
    /// Now, on the clock that the device's own time is on, too.
    pub now_s: f64,
    /// When the last call returned, outside.
    left: Option<Instant>,
    entered: Instant,
    paid_s: f64,
    poll_s: f64,
    submissions: u64,
    /// When launches that wait for the device are done.
    queue: VecDeque<f64>,
    pub pending: Vec<Pending>,
    /// Functions that were launched before, and graphs that were uploaded.
    pub warm_functions: HashSet<(u64, String)>,
    pub warm_graphs: HashSet<u64>,
    random: u64,
}

impl HostClock {
    pub fn new(costs: Host, seed: u64) -> Self {
        Self {
            poll_s: costs.poll_s,
            costs,
            now_s: 0.0,
            left: None,
            entered: Instant::now(),
            paid_s: 0.0,
            submissions: 0,
            queue: VecDeque::new(),
            pending: Vec::new(),
            warm_functions: HashSet::new(),
            warm_graphs: HashSet::new(),
            random: seed,
        }
    }

    /// A call begins.
    pub fn enter(&mut self) {
        self.entered = Instant::now();
        if let Some(left) = self.left {
            self.now_s += self.entered.duration_since(left).as_secs_f64() * self.costs.real;
        }
        self.paid_s = 0.0;
        self.pay(self.costs.call_s);
    }

    /// A call ends. Its costs have passed outside as well, where that is wanted.
    pub fn leave(&mut self) {
        if self.costs.spin {
            let until = self.entered + Duration::from_secs_f64(self.paid_s.clamp(0.0, LONGEST_SPIN_S));
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                if left > Duration::from_micros(200) {
                    thread::sleep(left - Duration::from_micros(100));
                } else if !left.is_zero() {
                    std::hint::spin_loop();
                }
                if left.is_zero() {
                    break;
                }
            }
        }
        self.left = Some(Instant::now());
    }

    /// Time that the CPU spends in the driver.
    pub fn pay(&mut self, seconds: f64) {
        self.now_s += seconds;
        self.paid_s += seconds;
    }

    /// Time that the caller spends on its data, before or after the call.
    pub fn handle(&mut self, bytes: u64) {
        self.now_s += bytes as f64 / f64::from(1 << 20) * self.costs.mib_s;
    }

    /// One more submission; what it takes longer than others.
    pub fn stall(&mut self) -> f64 {
        self.submissions += 1;
        let every = self.costs.stall_every;
        if every > 0 && self.submissions.is_multiple_of(every) { self.costs.stall_s } else { 0.0 }
    }

    /// Waits until there is room for one more launch, and puts it there.
    pub fn queue(&mut self, done_s: f64) {
        while self.queue.front().is_some_and(|&done_s| done_s <= self.now_s) {
            self.queue.pop_front();
        }
        self.queue.push_back(done_s);
        if self.queue.len() > self.costs.queue {
            let room_s = self.queue.pop_front().unwrap_or(0.0);
            self.now_s = self.now_s.max(room_s);
        }
    }

    /// Waits for a moment of the device; how long that is.
    pub fn wait(&mut self, until_s: f64) -> f64 {
        let waited_s = (until_s - self.now_s).max(0.0);
        self.now_s += waited_s;
        self.poll_s = self.costs.poll_s;
        waited_s
    }

    /// Whether a moment of the device has come; if not, asking took its time.
    pub fn poll(&mut self, until_s: f64) -> bool {
        if until_s <= self.now_s {
            self.poll_s = self.costs.poll_s;
            return true;
        }
        self.now_s += self.poll_s;
        self.poll_s = (2.0 * self.poll_s).min(LONGEST_POLL_S);
        false
    }

    /// Between the two.
    pub fn between(&mut self, [from, to]: [f64; 2]) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (to - from) * ((self.random >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// What is done by then, in the order in which it was.
    pub fn done_by(&mut self, moment_s: f64) -> Vec<Left> {
        if self.pending.iter().all(|pending| pending.done_s > moment_s) {
            return Vec::new();
        }
        let (mut done, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.done_s <= moment_s);
        self.pending = left;
        done.sort_by(|a, b| a.done_s.total_cmp(&b.done_s));
        done.into_iter().map(|pending| pending.what).collect()
    }
}
