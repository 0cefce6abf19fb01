//! The thread that reads the machine: a slow sensor delays a sample, never an answer.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rooflined_core::board::BoardState;

/// Enough for reading files; only what is touched is ever resident.
const STACK_BYTES: usize = 256 * 1024;

/// The daemon's hold on the thread. Dropping it ends the thread after the sample it is taking.
#[derive(Debug)]
pub struct Sampler {
    periods: Sender<Duration>,
}

impl Sampler {
    /// Starts sampling every `period`, the first time one period from now. `read` reads the machine, `deliver` hands
    /// a sample on and returns false once nobody wants any.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        period: Duration,
        read: impl FnMut() -> BoardState + Send + 'static,
        deliver: impl FnMut(BoardState) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (periods, orders) = channel();
        let body = move || run(period, &orders, read, deliver);
        thread::Builder::new().name("sampler".into()).stack_size(STACK_BYTES).spawn(body)?;
        Ok(Self { periods })
    }

    /// Samples every `period` from now on; at once if the last sample is older than that.
    pub fn every(&self, period: Duration) {
        // The thread ends only with this sender or with the loop that calls this.
        let _ = self.periods.send(period);
    }
}

fn run(
    mut period: Duration,
    orders: &Receiver<Duration>,
    mut read: impl FnMut() -> BoardState,
    mut deliver: impl FnMut(BoardState) -> bool,
) {
    let mut last = Instant::now();
    loop {
        match orders.recv_timeout((last + period).saturating_duration_since(Instant::now())) {
            Ok(asked) => period = asked,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                last = Instant::now();
                if !deliver(read()) {
                    return;
                }
            }
        }
    }
}
