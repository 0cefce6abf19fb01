//! The process that holds the GPU: asked a line at a time on standard input, a socket, and answering on it too. Standard output
//! is left to whatever libraries print.
//!
//! A kernel that faults or hangs takes its process' hold on the device along, and a driver's library may crash. So the
//! process that was given the plan ([`super::worker_supervisor`]) touches no GPU, and has workers that it can lose.

use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::cuda::{Cuda, GpuError, HUNG, Identity, OURS};
use super::probe::{Outcome, Probe};
use rooflined_predict::calibration::{Held, Plan, Sample, Step};

/// How long a worker may take to end when nobody asks any more.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// First of all, and once: the plan for its limits and models. Its steps are asked for one by one.
    Open(Box<Plan>),
    Measure(Step),
    Hold {
        step: Step,
        length_s: f64,
    },
    /// An entry.
    Verify(String),
    /// Whether what was measured since says that something spoilt this sample.
    Doubt(Box<Sample>),
    /// End what is being measured.
    Stop,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Opened(Identity),
    Measured(Box<Sample>),
    Held(Box<Held>),
    /// The deviation.
    Verified(f64),
    Doubted(bool),
    /// It cannot be done; what is asked next may.
    Refused(String),
    Stopped,
    /// The device is lost to this process, which ends.
    Lost {
        reason: String,
        loss: Loss,
    },
}

/// What a worker was lost to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    Faulted,
    Hung,
    /// Somebody, the want of memory, or a fault of this program: it says nothing of the kernel.
    Killed,
}

impl Answer {
    fn lost(reason: String) -> Self {
        let loss = match &reason {
            reason if reason.starts_with(HUNG) => Loss::Hung,
            reason if reason.starts_with(OURS) => Loss::Killed,
            _ => Loss::Faulted,
        };
        Self::Lost { reason, loss }
    }
}

/// The hidden form of `rooflined probe`: answers what it is asked until its standard input ends.
#[must_use]
pub fn worker_main() -> ExitCode {
    // Without it the end of standard input ends this process too, only not while the driver is waited for.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let stop = Arc::new(AtomicBool::new(false));
    let asks = listen(Arc::clone(&stop));
    let Ok(Ask::Open(plan)) = asks.recv() else {
        eprintln!("rooflined probe: a worker needs an order first; give a plan to rooflined probe instead");
        return ExitCode::from(2);
    };
    let mut cuda = match Cuda::new(&plan) {
        Ok(cuda) => cuda,
        Err(reason) => {
            let _ = say(&Answer::Refused(reason));
            return ExitCode::FAILURE;
        }
    };
    let mut said = say(&Answer::Opened(cuda.identity()));
    while said.is_ok() {
        let Ok(ask) = asks.recv() else { return ExitCode::SUCCESS };
        let answer = answer(&mut cuda, ask, &|| stop.load(Ordering::Relaxed));
        said = say(&answer);
        if matches!(answer, Answer::Lost { .. }) {
            // Whatever the driver has to say at an orderly end may wait for what hangs.
            end_now();
        }
    }
    ExitCode::SUCCESS
}

/// Reads what is asked. At the end of it, what runs is stopped, and if it does not stop so is the process.
fn listen(stop: Arc<AtomicBool>) -> mpsc::Receiver<Ask> {
    let (sender, asks) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Ask::Stop) => stop.store(true, Ordering::Relaxed),
                Ok(ask) => {
                    if sender.send(ask).is_err() {
                        return;
                    }
                }
                Err(error) => eprintln!("rooflined probe: a worker was asked {line:?}: {error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(sender);
        thread::sleep(GRACE);
        end_now();
    });
    asks
}

fn end_now() -> ! {
    // It cannot fail on ourselves, and if it did an exit is what is left.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::exit(1);
}

fn answer(cuda: &mut Cuda, ask: Ask, stop: &dyn Fn() -> bool) -> Answer {
    match ask {
        Ask::Measure(step) => match cuda.measure(&step, stop) {
            Outcome::Measured(sample) => Answer::Measured(sample),
            Outcome::Skipped(reason) => Answer::Refused(reason),
            Outcome::Stopped => Answer::Stopped,
            Outcome::Lost(reason) => Answer::lost(reason),
        },
        Ask::Hold { step, length_s } => {
            let length = Duration::try_from_secs_f64(length_s).unwrap_or(Duration::ZERO);
            match cuda.hold(&step, length, stop) {
                Ok(held) => Answer::Held(Box::new(held)),
                Err(reason) if cuda.lost().is_some() => Answer::lost(reason),
                Err(reason) => Answer::Refused(reason),
            }
        }
        Ask::Verify(entry) => match cuda.verify(&entry) {
            Ok(error) => Answer::Verified(error),
            Err(GpuError::Step(reason)) => Answer::Refused(reason),
            Err(GpuError::Fatal(reason)) => Answer::lost(reason),
        },
        Ask::Doubt(sample) => Answer::Doubted(cuda.in_doubt(&sample)),
        Ask::Open(_) | Ask::Stop => Answer::Refused("it is open already".into()),
    }
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(&line)
}
