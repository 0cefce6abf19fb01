//! Supervises workers that hold the GPU, and goes on with another one when a kernel costs one.
//!
//! All ordinary kernels share a worker. Those of modules that stand apart ([`Group::apart`]) have one each until they have been
//! right on this GPU, and come last. What a lost worker was measuring is skipped with the reason, and so is what else would
//! run the same kernels; everything else is measured by the next worker.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::cuda::{self, Group, Identity, TOLERANCE};
use super::known::{Ended, Known};
use super::probe::{Outcome, Probe};
use super::worker::{Answer, Ask, Loss};
use rooflined_predict::calibration::{DriverFacts, Held, Kernel, Plan, Sample, Step};

/// This program where its file has been replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// The hidden form that answers a supervisor.
pub const WORKER: &str = "--worker";
/// How long a further worker may take to open the GPU.
const OPENING: Duration = Duration::from_secs(60);
/// How long a step may take that is not a whole model, on a machine whose CPUs others keep busy too. Kernels that hang are
/// given up by the worker long before; this is for calls into the driver that never return.
const STEP: Duration = Duration::from_secs(120);
/// How long a worker may take to answer once it was told to stop.
const STOPPING: Duration = Duration::from_millis(500);
/// How long a worker may take to end when it is asked nothing more, and when it is killed.
const ENDING: Duration = Duration::from_secs(2);
const DYING: Duration = Duration::from_millis(500);
/// How long one that was killed may keep its hold on the GPU before the next one opens it.
const VANISHING: Duration = Duration::from_secs(5);
/// Before the GPU counts as one that cannot be opened again, it is tried once more after so long.
const PAUSE: Duration = Duration::from_secs(1);
/// One that is stopped in a step of its own after so long, and does not answer, may hang; before that nobody can tell.
const LONG: Duration = Duration::from_secs(10);
/// What ends a program of Rust after a panic.
const PANICKED: i32 = 101;
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// Workers that ordinary kernels may cost: a device that loses more is not one to be measured.
const MOST_LOST: usize = 4;
/// The same while kernels are verified, of which each is to be heard of.
const MOST_LOST_VERIFYING: usize = 16;

const OVERDUE: &str =
    "a call into the GPU's driver did not return within the time limit; look at dmesg for Xid messages";

const CRASHED: &str = ": the GPU's driver may have crashed; look at dmesg for Xid messages";

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It was not tried, or cannot be done.
    Refused(String),
    /// It was told to stop.
    Stopped,
    /// It cost the worker.
    Lost { reason: String, loss: Loss },
}

pub struct WorkerSupervisor {
    /// What workers are told first.
    plan: Plan,
    known: Known,
    identity: Identity,
    worker: Option<Worker>,
    /// Those that were killed and may not be gone yet.
    killed: Vec<u32>,
    /// Why modules are not run again by this process.
    lost: BTreeMap<&'static str, String>,
    most_lost: usize,
    /// Workers that ordinary kernels have cost.
    losses: usize,
    /// Why ordinary kernels cannot be run any more.
    gone: Option<String>,
    /// What the first loss was, for whom nothing is left.
    first_loss: Option<String>,
    has_measured: bool,
}

impl WorkerSupervisor {
    /// Opens the first GPU for `plan`, and remembers in `known` how kernels that stand apart end.
    ///
    /// # Errors
    /// There is no driver, no device, or it does not answer; the reason, for people.
    pub fn open(plan: &Plan, known: Option<PathBuf>, stop: &dyn Fn() -> bool) -> Result<Self, String> {
        let plan = plan.clone();
        let limit = Duration::try_from_secs_f64(plan.time_limit_s).unwrap_or(Duration::MAX);
        let opened = Worker::open(&plan, None, limit, stop);
        let (worker, identity) = opened.map_err(|trouble| match trouble {
            Trouble::Refused(reason) | Trouble::Lost { reason, .. } => reason,
            Trouble::Stopped => "it was stopped while it opened the GPU".into(),
        })?;
        Ok(Self {
            known: Known::read(known),
            identity,
            worker: Some(worker),
            killed: Vec::new(),
            lost: BTreeMap::new(),
            most_lost: MOST_LOST,
            losses: 0,
            gone: None,
            first_loss: None,
            has_measured: false,
            plan,
        })
    }

    /// What the driver says of the GPU.
    pub fn facts(&self) -> &DriverFacts {
        &self.identity.facts
    }

    /// Whether an entry's module has a worker of its own.
    pub fn is_apart(&self, entry: &str) -> bool {
        cuda::group(entry, self.identity.capability).is_some_and(|group| group.apart)
    }

    /// Runs an entry once; its deviation from the reference.
    pub fn verify(&mut self, entry: &str) -> Result<f64, Trouble> {
        self.most_lost = MOST_LOST_VERIFYING;
        let group = cuda::group(entry, self.identity.capability);
        self.opened(group.as_ref(), &|| false)?;
        match self.asked(group, &Ask::Verify(entry.to_owned()), STEP, &|| false)? {
            Answer::Verified(error) => Ok(error),
            _ => Err(Trouble::Refused("its worker gave another answer".into())),
        }
    }

    /// Whether a module has a worker of its own.
    fn is_alone(&self, group: &Group) -> bool {
        group.apart && !self.known.is_right(group, &self.identity)
    }

    fn group(&self, kernel: &Kernel) -> Option<Group> {
        cuda::group_of(kernel, self.identity.capability)
    }

    /// What a step of a plan is answered.
    fn step(
        &mut self,
        kernel: &Kernel,
        ask: &Ask,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, Trouble> {
        let group = self.group(kernel);
        if let Some(group) = &group {
            let known = self.known.refusal(group, &self.identity);
            if let Some(reason) = known.or_else(|| self.lost.get(group.module).cloned()) {
                return Err(Trouble::Refused(reason));
            }
        }
        self.opened(group.as_ref(), stop)?;
        if let Some(group) = group.as_ref().filter(|group| self.is_alone(group)) {
            self.known.begin(group, &self.identity);
        }
        let began = Instant::now();
        let answer = self.asked(group, ask, limit, stop);
        if let Some(group) = group.filter(|group| group.apart) {
            let known = &mut self.known;
            match &answer {
                Ok(Answer::Measured(sample))
                    if sample.max_error_ratio.is_none_or(|error| error <= TOLERANCE) =>
                {
                    known.ended(&group, &self.identity, Ended::Right, "");
                }
                Err(Trouble::Lost { reason, loss: Loss::Faulted }) => {
                    known.ended(&group, &self.identity, Ended::Faulted, reason);
                }
                Err(Trouble::Lost { reason, loss: Loss::Hung }) => {
                    known.ended(&group, &self.identity, Ended::Hung, reason);
                }
                // Killed in the middle of it: the next time it happens it counts.
                Err(Trouble::Stopped) if self.worker.is_none() && began.elapsed() >= LONG => {}
                _ => known.not_run(&group, &self.identity),
            }
        }
        self.has_measured |= matches!(answer, Ok(Answer::Measured(_) | Answer::Held(_)));
        answer
    }

    /// Sees to it that the worker is there that a group's kernels run in.
    fn opened(&mut self, group: Option<&Group>, stop: &dyn Fn() -> bool) -> Result<(), Trouble> {
        // One that has just been right stays where it is: opening the GPU takes longer than the step.
        let held =
            |group: &Group| self.worker.as_ref().is_some_and(|worker| worker.alone == Some(group.module));
        let alone = group.filter(|group| self.is_alone(group) || held(group)).map(|group| group.module);
        if let Some(reason) = self.gone.as_ref().filter(|_| alone.is_none()) {
            return Err(Trouble::Refused(reason.clone()));
        }
        if self.worker.as_ref().is_some_and(|worker| worker.alone == alone) {
            return Ok(());
        }
        // One at a time: the GPU may be for one process only, and two would measure each other.
        self.killed.extend(self.worker.take().map(|worker| worker.child.id()));
        self.vanished(stop);
        let mut opened = Worker::open(&self.plan, alone, OPENING, stop);
        if matches!(opened, Err(Trouble::Refused(_))) && !stop() {
            thread::sleep(PAUSE);
            opened = Worker::open(&self.plan, alone, OPENING, stop);
        }
        match opened {
            Ok((worker, _)) => self.worker = Some(worker),
            Err(Trouble::Stopped) => return Err(Trouble::Stopped),
            Err(Trouble::Refused(reason) | Trouble::Lost { reason, .. }) => {
                let after =
                    self.first_loss.as_ref().map_or_else(String::new, |loss| format!(" after: {loss}"));
                let reason = format!("the GPU cannot be opened again: {reason}{after}");
                if alone.is_none() {
                    self.gone = Some(reason.clone());
                }
                return Err(Trouble::Refused(reason));
            }
        }
        Ok(())
    }

    /// Waits for those that were killed: until they are gone they have the GPU.
    fn vanished(&mut self, stop: &dyn Fn() -> bool) {
        let begun = Instant::now();
        while self.killed.iter().any(|pid| is_alive(*pid)) && begun.elapsed() < VANISHING && !stop() {
            thread::sleep(LOOK);
        }
        self.killed.clear();
    }

    /// Gives up a worker that is lost.
    fn give_up(&mut self) {
        if let Some(worker) = self.worker.take_if(|worker| worker.is_lost) {
            self.killed.push(worker.child.id());
        }
    }

    fn asked(
        &mut self,
        group: Option<Group>,
        ask: &Ask,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, Trouble> {
        let Some(worker) = &mut self.worker else { return Err(Trouble::Stopped) };
        let is_alone = worker.alone.is_some();
        let answer = worker.ask(ask, limit, stop);
        match &answer {
            Ok(Answer::Refused(reason)) => return Err(Trouble::Refused(reason.clone())),
            Ok(_) | Err(Trouble::Refused(_)) => {}
            Err(Trouble::Stopped) => {
                if worker.is_lost {
                    self.first_loss.get_or_insert_with(|| OVERDUE.to_owned());
                }
            }
            Err(Trouble::Lost { reason, .. }) => {
                if let Some(group) = group {
                    self.lost
                        .insert(group.module, format!("its kernels have cost the GPU already: {reason}"));
                }
                if !is_alone {
                    self.losses += 1;
                    if self.losses >= self.most_lost {
                        self.gone =
                            Some(format!("{} kernels have cost the GPU, the last: {reason}", self.losses));
                    }
                }
                self.first_loss.get_or_insert_with(|| reason.clone());
            }
        }
        self.give_up();
        answer
    }
}

impl Probe for WorkerSupervisor {
    fn measure(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Outcome {
        match self.step(&step.kernel, &Ask::Measure(*step), STEP, stop) {
            Ok(Answer::Measured(sample)) => Outcome::Measured(sample),
            Ok(_) | Err(Trouble::Stopped) => Outcome::Stopped,
            Err(Trouble::Refused(reason) | Trouble::Lost { reason, .. }) => Outcome::Skipped(reason),
        }
    }

    fn hold(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, String> {
        let ask = Ask::Hold { step: *step, length_s: length.as_secs_f64() };
        let limit = STEP.saturating_add(length);
        match self.step(&step.kernel, &ask, limit, stop) {
            Ok(Answer::Held(held)) => Ok(*held),
            Ok(_) | Err(Trouble::Stopped) => Err("it was stopped".into()),
            Err(Trouble::Refused(reason) | Trouble::Lost { reason, .. }) => Err(reason),
        }
    }

    fn stands_apart(&self, kernel: &Kernel) -> bool {
        self.group(kernel).is_some_and(|group| self.is_alone(&group))
    }

    fn in_doubt(&mut self, sample: &Sample) -> bool {
        // Only the worker that all ordinary kernels share has seen others.
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.alone.is_none()) else { return false };
        let answer = worker.ask(&Ask::Doubt(Box::new(sample.clone())), STEP, &|| false);
        self.give_up();
        matches!(answer, Ok(Answer::Doubted(true)))
    }

    /// A device that gave nothing at all.
    fn lost(&self) -> Option<&str> {
        self.first_loss.as_deref().filter(|_| !self.has_measured)
    }
}

/// A process that holds the GPU.
struct Worker {
    child: Child,
    asks: UnixStream,
    answers: Receiver<Answer>,
    /// The module that it is for; `None` for all ordinary ones.
    alone: Option<&'static str>,
    /// Whether it has to be killed.
    is_lost: bool,
}

impl Worker {
    /// Starts one and has it open the GPU.
    fn open(
        plan: &Plan,
        alone: Option<&'static str>,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Self, Identity), Trouble> {
        let program = env::current_exe().ok().filter(|path| path.exists());
        let mut command = Command::new(program.unwrap_or_else(|| PROGRAM.into()));
        let socket = || -> io::Result<_> {
            let (ours, theirs) = UnixStream::pair()?;
            Ok((ours.try_clone()?, ours, OwnedFd::from(theirs), io::stderr().as_fd().try_clone_to_owned()?))
        };
        let none = |error| Trouble::Refused(format!("no process can be started for it: {error}"));
        let (asks, answering, theirs, errors) = socket().map_err(none)?;
        // It answers where it is asked. What libraries print on standard output are no answers.
        command.args(["probe", WORKER]).stdin(theirs).stdout(errors);
        // Calls that only return when the device is done would leave nothing queued.
        command.env_remove("CUDA_LAUNCH_BLOCKING");
        let child = command.spawn().map_err(none)?;
        // The other end is the worker's alone, so that its death is seen.
        drop(command);
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(answering).split(b'\n').map_while(Result::ok) {
                let answer = serde_json::from_slice(&line).unwrap_or_else(|error| {
                    Answer::Refused(format!("what its worker answered cannot be read: {error}"))
                });
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        let mut worker = Self { child, asks, answers, alone, is_lost: false };
        match worker.ask(&Ask::Open(Box::new(plan.clone())), limit, stop)? {
            Answer::Opened(identity) => Ok((worker, identity)),
            Answer::Refused(reason) => Err(Trouble::Refused(reason)),
            _ => Err(Trouble::Refused("its worker gave another answer".into())),
        }
    }

    fn say(&mut self, ask: &Ask) {
        // One that has died is recognised by the end of its answers.
        if let Ok(mut line) = serde_json::to_vec(ask) {
            line.push(b'\n');
            let _ = self.asks.write_all(&line);
        }
    }

    fn ask(&mut self, ask: &Ask, limit: Duration, stop: &dyn Fn() -> bool) -> Result<Answer, Trouble> {
        self.say(ask);
        let begun = Instant::now();
        let mut told: Option<Instant> = None;
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(Answer::Lost { reason, loss }) => {
                    self.is_lost = true;
                    return Err(Trouble::Lost { reason, loss });
                }
                Ok(Answer::Stopped) => return Err(Trouble::Stopped),
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    self.is_lost = true;
                    return Err(self.died());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if told.is_none() && stop() {
                told = Some(Instant::now());
                self.say(&Ask::Stop);
            }
            if told.is_some_and(|at| at.elapsed() >= STOPPING) {
                self.is_lost = true;
                return Err(Trouble::Stopped);
            }
            if begun.elapsed() >= limit {
                self.is_lost = true;
                let opening = matches!(ask, Ask::Open(_)) && self.alone.is_none();
                let reason = if opening {
                    OVERDUE.to_owned()
                } else {
                    format!(
                        "a call into the GPU's driver has not returned within {limit:?}; look at dmesg for Xid messages"
                    )
                };
                return Err(Trouble::Lost { reason, loss: Loss::Hung });
            }
        }
    }

    /// How it ended without having been asked to.
    fn died(&mut self) -> Trouble {
        let ended = ended(&mut self.child, DYING);
        let (how, loss) = match ended {
            // The kernel's own, for want of memory, or somebody's.
            Some(status) if status.signal() == Some(9) => {
                ("was killed; if memory ran out, dmesg says so".to_owned(), Loss::Killed)
            }
            Some(status) if status.code() == Some(PANICKED) => {
                ("panicked: this is a fault of rooflined, please report it".to_owned(), Loss::Killed)
            }
            Some(status) => (format!("ended with {status}{CRASHED}"), Loss::Faulted),
            None => (format!("closed its output{CRASHED}"), Loss::Faulted),
        };
        Trouble::Lost { reason: format!("the process that ran it {how}"), loss }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of what it is asked; it fails on one that is dead.
        let _ = self.asks.shutdown(Shutdown::Write);
        if !self.is_lost && ended(&mut self.child, ENDING).is_some() {
            return;
        }
        let _ = self.child.kill();
        // One that waits in the kernel cannot even be killed, and is left behind.
        let _ = ended(&mut self.child, DYING);
    }
}

/// Its status, if it ends within `limit`.
fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() < limit => thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

/// Whether a process that was killed is still there; one that nobody has waited for holds nothing any more.
fn is_alive(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
