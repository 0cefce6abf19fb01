//! Reads of files that may hang, in helper threads and with a time limit.
//!
//! One helper reads the sources in turn. When nothing has been heard for a while it is taken for stuck and another
//! helper goes on with the rest of the queue, so a stuck source delays nobody but itself. It is not asked again
//! before it has answered. There are never more than [`MOST_HELPERS`]; one that comes back and finds another idle
//! ends.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::file::{OpenFile, ReadError};

/// How long all sources together are waited for.
pub(super) const TIME_LIMIT: Duration = Duration::from_millis(200);
/// When nothing is heard for this long another helper joins; slow I2C sensors take a few milliseconds. The wait is
/// halved each time, because a firmware that hangs takes all its sensors with it.
const SILENCE: Duration = Duration::from_millis(10);
const SHORTEST_SILENCE: Duration = Duration::from_millis(1);
/// Helpers at which no more are started: a board's worth of sensors.
const MOST_HELPERS: usize = 32;

/// The text of a source and when it was read.
pub(super) type Answer = Result<(String, Instant), ReadError>;

struct Done {
    index: usize,
    source: OpenFile,
    answer: Answer,
}

#[derive(Default)]
struct Work {
    queue: VecDeque<(usize, OpenFile)>,
    helpers: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    more: Condvar,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        // No helper panics while it holds the lock; if one did, the queue would still be whole.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Slot {
    Ready(OpenFile),
    Away { path: String, since: Instant },
}

/// Reads a fixed set of files that may hang, within a time limit.
pub(super) struct TimedReader {
    slots: Vec<Slot>,
    shared: Arc<Shared>,
    done: (Sender<Done>, Receiver<Done>),
    time_limit: Duration,
}

impl TimedReader {
    /// Keeps `sources`; answers come in their order.
    pub fn new(sources: Vec<OpenFile>) -> Self {
        Self {
            slots: sources.into_iter().map(Slot::Ready).collect(),
            shared: Arc::default(),
            done: mpsc::channel(),
            time_limit: TIME_LIMIT,
        }
    }

    /// The same with another time limit.
    pub fn waiting(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Reads every source that is not stuck. Takes no longer than the time limit.
    pub fn read_all(&mut self) -> Vec<Answer> {
        let due = vec![true; self.slots.len()];
        let answers = self.read_due(&due).into_iter().enumerate();
        answers.map(|(index, answer)| answer.unwrap_or_else(|| Err(self.late(index)))).collect()
    }

    /// The same for the sources that are `due`, in their order; the others have no answer.
    pub fn read_due(&mut self, due: &[bool]) -> Vec<Option<Answer>> {
        let is_due = |index: usize| due.get(index).copied().unwrap_or(false);
        let start = Instant::now();
        while let Ok(done) = self.done.1.try_recv() {
            self.slots[done.index] = Slot::Ready(done.source);
        }
        let mut answers: Vec<Option<Answer>> = self.slots.iter().map(|_| None).collect();
        let stuck_before = self.stuck();
        let mut awaited = self.hand_out(start, is_due);
        let mut silence = SILENCE;
        // With every helper stuck there is nothing to wait for.
        while awaited > 0 && stuck_before < MOST_HELPERS {
            let elapsed = start.elapsed();
            let wait = silence.min(self.time_limit.saturating_sub(elapsed));
            match self.done.1.recv_timeout(wait) {
                Ok(done) => {
                    // A source that was stuck before this sample may come back at any time; its text is old.
                    let asked_now =
                        matches!(self.slots[done.index], Slot::Away { since, .. } if since == start);
                    self.slots[done.index] = Slot::Ready(done.source);
                    if asked_now {
                        answers[done.index] = Some(done.answer);
                        awaited -= 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) if elapsed + wait < self.time_limit => {
                    silence = (silence / 2).max(SHORTEST_SILENCE);
                    self.reinforce();
                }
                Err(_) => break,
            }
        }
        if awaited > 0 {
            self.recall(&mut answers);
        }
        let answers = answers.into_iter().enumerate();
        let settled = |(index, answer): (usize, Option<Answer>)| {
            is_due(index).then(|| answer.unwrap_or_else(|| Err(self.late(index))))
        };
        answers.map(settled).collect()
    }

    /// Sources that have not answered.
    pub fn stuck(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Away { .. })).count()
    }

    /// Queues what is here and due, and returns how many that is.
    fn hand_out(&mut self, now: Instant, is_due: impl Fn(usize) -> bool) -> usize {
        let mut work = self.shared.work();
        let mut queued = 0;
        for (index, slot) in self.slots.iter_mut().enumerate().filter(|(index, _)| is_due(*index)) {
            let Slot::Ready(source) = slot else { continue };
            let away = Slot::Away { path: source.logical().to_owned(), since: now };
            if let Slot::Ready(source) = std::mem::replace(slot, away) {
                work.queue.push_back((index, source));
                queued += 1;
            }
        }
        let idle = work.idle;
        drop(work);
        if queued > 0 {
            if idle > 0 { self.shared.more.notify_one() } else { self.reinforce() }
        }
        queued
    }

    /// Starts another helper if there is work left that nobody takes.
    fn reinforce(&self) {
        let mut work = self.shared.work();
        if work.queue.is_empty() || work.helpers >= MOST_HELPERS {
            return;
        }
        let (shared, done) = (Arc::clone(&self.shared), self.done.0.clone());
        let helper = thread::Builder::new().name("sensor".into()).stack_size(128 << 10);
        // Without a thread the sources stay in the queue and are reported at the end of the time limit.
        if helper.spawn(move || help(&shared, &done)).is_ok() {
            work.helpers += 1;
        }
    }

    /// Takes back from the queue what no helper has begun.
    fn recall(&mut self, answers: &mut [Option<Answer>]) {
        let left = std::mem::take(&mut self.shared.work().queue);
        for (index, source) in left {
            answers[index] = Some(Err(ReadError::Crowded { path: source.logical().to_owned() }));
            self.slots[index] = Slot::Ready(source);
        }
    }

    fn late(&self, index: usize) -> ReadError {
        let path = match &self.slots[index] {
            Slot::Away { path, .. } => path.clone(),
            // It came back between two looks at the clock; the next sample reads it.
            Slot::Ready(source) => source.logical().to_owned(),
        };
        ReadError::Late { path }
    }
}

impl Drop for TimedReader {
    fn drop(&mut self) {
        self.shared.work().closed = true;
        self.shared.more.notify_all();
    }
}

/// What a helper thread runs: takes sources from the queue until it is closed or another helper is idle already.
fn help(shared: &Shared, done: &Sender<Done>) {
    let mut work = shared.work();
    loop {
        if let Some((index, mut source)) = work.queue.pop_front() {
            drop(work);
            let answer = source.read().map(|text| (text, Instant::now()));
            if done.send(Done { index, source, answer }).is_err() {
                return;
            }
            work = shared.work();
        } else if work.closed || work.idle > 0 {
            work.helpers -= 1;
            return;
        } else {
            work.idle += 1;
            work = shared.more.wait(work).unwrap_or_else(PoisonError::into_inner);
            work.idle -= 1;
        }
    }
}
