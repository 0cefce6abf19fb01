//! The loop: receive, let the governor decide, carry out. It owns the governor and with it everything that changes.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::archive::{Archive, Item};
use super::calibrate::{Probe, Program};
use super::power::Power;
use super::sampler::Sampler;
use super::store::GPU_KERNELS;
use super::{logging, model, notify, status};
use crate::server::{Command, Request};
use answer::Catalogue;
use decide::snapshot::Snapshot;
use governor::{Effect, Event, Governor, KeptHolds, Now, Policy, Reply, Severity, Ticket};
use hw::boot_time;
use predict::calibration::{CalibrationRecord, Sample};
use predict::learning::Residuals;
use predict::learning::models::ObservedRuns;
use predict::learning::reports::Reports;
use roofline::units::Seconds;

/// Between two writes of what was learned, so that a stream of observations costs one write and not many.
const SAVES_APART: Duration = Duration::from_secs(5);
/// What could not be saved is tried again after this long.
const SAVE_AGAIN: Duration = Duration::from_secs(30);
/// Looks that follow each other more closely than this tell the governor nothing new.
const LOOKS_APART: Duration = Duration::from_millis(500);
/// A sample is overdue after three periods and this long.
const SAMPLE_GRACE: Duration = Duration::from_secs(10);
/// No client has it: those of clients are counted from one.
const OWN_TICKET: Ticket = 0;
/// Far enough not to come, near enough to be added to any instant.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The two clocks.
#[must_use]
pub fn now() -> Now {
    let unix = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    Now { boottime: boot_time(), unix_s: unix.unwrap_or_default().as_secs_f64() }
}

/// A period as the timers take it.
#[must_use]
pub fn duration(seconds: Seconds) -> Duration {
    Duration::try_from_secs_f64(seconds.get()).unwrap_or(NEVER).clamp(Duration::from_millis(10), NEVER)
}

#[derive(Debug)]
pub struct Runtime {
    governor: Governor,
    published: watch::Sender<Arc<Snapshot>>,
    events: mpsc::Sender<Event>,
    sampler: Sampler,
    /// This program, for the probe.
    program: PathBuf,
    /// The simulated board that the probe measures; `None` on a real machine.
    simulated: Option<PathBuf>,
    state_dir: PathBuf,
    archive: Archive,
    catalogue: Arc<Catalogue>,
    probe: Option<Probe>,
    power: Option<Power>,
    waiting: HashMap<Ticket, oneshot::Sender<Reply>>,
    last_ticket: Ticket,
    looked_at: Option<Instant>,
    period: Duration,
    sampled_at: Instant,
    overdue: bool,
    unsaved: Option<(Unsaved, Instant)>,
    /// What was learned last.
    saved_at: Option<Instant>,
    /// When the governor next wants to know that time has passed.
    wake_at: Option<Instant>,
    status: String,
}

/// What is not on the disk yet.
#[derive(Debug, Default)]
struct Unsaved {
    /// Only where saving it failed.
    calibration: Option<(Box<CalibrationRecord>, Vec<Sample>)>,
    residuals: Option<Arc<Residuals>>,
    observed_runs: Option<Arc<ObservedRuns>>,
    reports: Option<Arc<Reports>>,
    /// Only where saving them failed.
    holds: Option<Arc<KeptHolds>>,
}

/// What the loop is built from.
pub struct Parts {
    pub governor: Governor,
    /// Publishes the snapshot to the servers.
    pub published: watch::Sender<Arc<Snapshot>>,
    /// The way back into the loop for what runs beside it.
    pub events: mpsc::Sender<Event>,
    pub sampler: Sampler,
    /// Connection to the privileged helper.
    pub power: Power,
    pub program: PathBuf,
    /// The simulated board that the probe measures; `None` on a real machine.
    pub simulated: Option<PathBuf>,
    /// Where the probe keeps things.
    pub state_dir: PathBuf,
    /// Where this process does.
    pub archive: Archive,
    /// Known hardware and models.
    pub catalogue: Arc<Catalogue>,
    pub period: Duration,
}

impl Runtime {
    /// The loop before its first turn.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            governor: parts.governor,
            published: parts.published,
            events: parts.events,
            sampler: parts.sampler,
            program: parts.program,
            simulated: parts.simulated,
            state_dir: parts.state_dir,
            archive: parts.archive,
            catalogue: parts.catalogue,
            probe: None,
            power: Some(parts.power),
            waiting: HashMap::new(),
            last_ticket: OWN_TICKET,
            looked_at: None,
            period: parts.period,
            sampled_at: Instant::now(),
            overdue: false,
            unsaved: None,
            saved_at: None,
            wake_at: None,
            status: String::new(),
        }
    }

    /// One line about the present state.
    pub fn status(&mut self) -> &str {
        self.status = status::line(&self.governor.snapshot());
        &self.status
    }

    /// Serves until `stop` resolves, and hands on what that says. `reload` resolves when the configuration was read
    /// again, with what to report of it to the governor.
    pub async fn run<T>(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        requests: &mut mpsc::Receiver<Request>,
        mut reload: impl AsyncFnMut() -> Vec<Event>,
        stop: impl Future<Output = T>,
    ) -> T {
        let mut stop = std::pin::pin!(stop);
        let watchdog = notify::watchdog_period();
        let mut alive_at = Instant::now();
        loop {
            let feed_at = alive_at + watchdog.unwrap_or(NEVER);
            let wake_at = self.wake_at.unwrap_or_else(|| Instant::now() + NEVER);
            let save_at = self.unsaved.as_ref().map_or_else(|| Instant::now() + NEVER, |(_, at)| *at);
            tokio::select! {
                ended = &mut stop => return ended,
                Some(event) = events.recv() => self.take(event).await,
                Some(request) = requests.recv() => self.ask(request).await,
                changes = reload() => {
                    for event in changes {
                        self.take(event).await;
                    }
                    notify::ready(self.status());
                }
                () = sleep_until(self.sample_due()) => self.miss_sample().await,
                () = sleep_until(wake_at), if self.wake_at.is_some() => {
                    self.wake_at = None;
                    self.take(Event::Tick).await;
                }
                () = sleep_until(save_at), if self.unsaved.is_some() => {
                    for event in self.save().await {
                        self.take(event).await;
                    }
                }
                () = sleep_until(feed_at), if watchdog.is_some() => {
                    notify::alive();
                    alive_at = Instant::now();
                }
            }
        }
    }

    /// Ends the probe, lets go of the privileged helper and saves what is not saved, within `limit`.
    pub async fn end(&mut self, events: &mut mpsc::Receiver<Event>, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.take(Event::CancelRequested { ticket: OWN_TICKET, job: None }).await;
        while self.probe.is_some() {
            tokio::select! {
                Some(event) = events.recv() => self.take(event).await,
                () = sleep_until(deadline) => break,
            }
        }
        // What becomes of it stands in the log; nobody is left to be told.
        for event in self.save().await {
            self.take(event).await;
        }
        if let Some(power) = self.power.take()
            && tokio::time::timeout_at(deadline, power.end()).await.is_err()
        {
            tracing::warn!("the privileged helper is still restoring the previous mode");
        }
    }

    /// Tells the governor what happened and does what it wants, what follows from that included. Who is replied to finds
    /// all of it done, or what was not done among what is degraded.
    pub async fn take(&mut self, event: Event) {
        let mut queue = VecDeque::from([event]);
        let mut replies = Vec::new();
        while let Some(event) = queue.pop_front() {
            match &event {
                Event::Sampled(_) => {
                    tracing::trace!("sampled");
                    self.sampled_at = Instant::now();
                    if std::mem::take(&mut self.overdue) {
                        queue.push_back(Event::Degraded { name: "sampler", problem: None });
                    }
                }
                Event::ProbeEnded { job, .. }
                    if self.probe.as_ref().is_some_and(|probe| probe.job == *job) =>
                {
                    self.probe = None;
                }
                Event::ClientGone { ticket } => {
                    self.waiting.remove(ticket);
                }
                _ => {}
            }
            for effect in self.governor.handle(now(), event) {
                match effect {
                    Effect::Reply { ticket, reply } => replies.push((ticket, reply)),
                    effect => queue.extend(self.carry_out(effect).await),
                }
            }
            if queue.is_empty() && !replies.is_empty() && self.is_save_due() {
                queue.extend(self.save().await);
            }
        }
        for (ticket, reply) in replies {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // The client may have gone this instant.
                let _ = waiting.send(reply);
            }
        }
    }

    /// Does one thing; what comes of it at once is returned.
    async fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Publish(snapshot) => {
                self.published.send_replace(snapshot);
                let before = std::mem::take(&mut self.status);
                if self.status() != before {
                    notify::status(&self.status);
                }
            }
            Effect::StartProbe { job, plan } => {
                if let Some(running) = &self.probe {
                    let problem =
                        format!("the probe of job {} is still running; try again later", running.job);
                    return Some(Event::ProbeEnded { job, outcome: Err(problem) });
                }
                let program = Program {
                    path: self.program.clone(),
                    simulated: self.simulated.clone(),
                    known: self.state_dir.join(GPU_KERNELS),
                };
                self.probe = Some(Probe::start(job, plan, program, self.events.clone()));
            }
            Effect::StopProbe { job } => match &mut self.probe {
                Some(probe) if probe.job == job => probe.stop(),
                _ => tracing::debug!(job, "there is no such probe to stop"),
            },
            // A reply that follows may say that it is done, so it must be on the disk by then.
            Effect::SaveCalibration { record, samples } => {
                if let Some((unsaved, _)) = &mut self.unsaved {
                    unsaved.calibration = None;
                }
                return Some(self.keep(Item::Calibration(record, samples)).await);
            }
            Effect::SaveHolds(kept) => {
                if let Some((unsaved, _)) = &mut self.unsaved {
                    unsaved.holds = None;
                }
                return Some(self.keep(Item::Holds(kept)).await);
            }
            Effect::Actuate { order, what } => return self.power.as_ref()?.order(order, what),
            Effect::SaveResiduals(residuals) => self.unsaved_mut().residuals = Some(residuals),
            Effect::SaveObservedRuns(observed_runs) => self.unsaved_mut().observed_runs = Some(observed_runs),
            Effect::SaveReports(reports) => self.unsaved_mut().reports = Some(reports),
            // Given when everything else is done.
            Effect::Reply { .. } => {}
            Effect::WakeAt(at) => {
                self.wake_at = at.map(|at| Instant::now() + duration((at - boot_time()).max(Seconds::ZERO)));
            }
            Effect::SampleEvery(period) => {
                tracing::debug!(period_s = period.get(), "sampling");
                // Nobody looks any more, or a calibration has ended: what that took is not needed until the next time.
                if duration(period) > self.period {
                    probe::release_free_memory();
                }
                self.period = duration(period);
                // The next sample is due a period from now, however long the last one is past.
                self.sampled_at = Instant::now();
                self.sampler.every(self.period);
            }
            Effect::Log { severity, message, record: Some(record) } => {
                let serial = self.governor.snapshot().serial;
                logging::audit(severity, &message, &record, serial);
            }
            Effect::Log { severity, message, record: None } => {
                let serial = self.governor.snapshot().serial;
                match severity {
                    Severity::Info => tracing::info!(serial, "{message}"),
                    Severity::Warning => tracing::warn!(serial, "{message}"),
                    Severity::Error => tracing::error!(serial, "{message}"),
                }
            }
        }
        None
    }

    /// Turns a request into an event with a ticket of its own.
    async fn ask(&mut self, request: Request) {
        if request.command == Command::Watched {
            let seen = self.looked_at.is_some_and(|at| at.elapsed() < LOOKS_APART);
            if !seen {
                tracing::trace!("somebody looks");
                self.looked_at = Some(Instant::now());
                self.take(Event::Watched).await;
            }
            return;
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.waiting.insert(ticket, forward(ticket, request.reply, self.events.clone()));
        let event = match request.command {
            Command::Calibrate { plan, wait, force } => {
                Event::CalibrateRequested { ticket, plan, wait, force }
            }
            Command::Cancel { job } => Event::CancelRequested { ticket, job },
            Command::Measure { work, models, power } => {
                if !models.is_empty() {
                    let (events, catalogue) = (self.events.clone(), Arc::clone(&self.catalogue));
                    tokio::spawn(async move {
                        let models = model::found(catalogue, models).await;
                        // Only the end of the daemon closes its queue.
                        let _ = events.send(Event::MeasureRequested { ticket, work, models, power }).await;
                    });
                    return;
                }
                Event::MeasureRequested { ticket, work, models: Vec::new(), power }
            }
            Command::Observe { by, observations } => Event::Observed { ticket, by, observations },
            Command::Forget { which, by } => Event::ForgetRequested { ticket, which, by },
            Command::ConfirmReport { id, uid } => Event::ConfirmReportRequested { ticket, id, uid },
            Command::Control { client, request } => Event::ControlRequested { ticket, client, request },
            Command::Closed { connection } => Event::ConnectionClosed { connection },
            Command::Watched => Event::Watched,
        };
        self.take(event).await;
    }

    fn sample_due(&self) -> Instant {
        if self.overdue { Instant::now() + NEVER } else { self.sampled_at + self.period * 3 + SAMPLE_GRACE }
    }

    async fn miss_sample(&mut self) {
        self.overdue = true;
        let problem = format!(
            "the machine has not been read for {} s, so clocks and temperatures are old; a sensor driver does not \
             answer: look for it in the kernel's log (dmesg)",
            self.sampled_at.elapsed().as_secs()
        );
        self.take(Event::Degraded { name: "sampler", problem: Some(problem) }).await;
    }

    fn is_save_due(&self) -> bool {
        self.unsaved.as_ref().is_some_and(|(_, at)| *at <= Instant::now())
    }

    /// Saves what is not saved; what could not be is tried again later.
    async fn save(&mut self) -> Vec<Event> {
        let Some((unsaved, _)) = self.unsaved.take() else { return Vec::new() };
        self.saved_at = Some(Instant::now());
        let items = [
            unsaved.calibration.map(|(record, samples)| Item::Calibration(record, samples)),
            unsaved.residuals.map(Item::Residuals),
            unsaved.observed_runs.map(Item::ObservedRuns),
            unsaved.reports.map(Item::Reports),
            unsaved.holds.map(Item::Holds),
        ];
        let mut events = Vec::new();
        for item in items.into_iter().flatten() {
            events.push(self.keep(item).await);
        }
        events
    }

    /// Saves one thing, and returns what to report of that.
    async fn keep(&mut self, item: Item) -> Event {
        let kept = self.archive.keep(item).await;
        if let Some(item) = kept.again {
            let later = || (Unsaved::default(), Instant::now() + SAVE_AGAIN);
            self.unsaved.get_or_insert_with(later).0.add(item);
        }
        if kept.remade {
            tracing::warn!("the state directory had been removed; everything is saved again");
            let snapshot = self.governor.snapshot();
            let (unsaved, at) = self.unsaved.get_or_insert_with(|| (Unsaved::default(), Instant::now()));
            *at = Instant::now();
            unsaved.add_all(&snapshot);
        }
        kept.event
    }

    /// What is to be saved; the time of the first of it holds for all.
    fn unsaved_mut(&mut self) -> &mut Unsaved {
        let saved_at = self.saved_at;
        let due = || {
            let now = Instant::now();
            (Unsaved::default(), saved_at.map_or(now, |at| now.max(at + SAVES_APART)))
        };
        &mut self.unsaved.get_or_insert_with(due).0
    }
}

impl Unsaved {
    /// What could not be saved, unless there is something newer.
    fn add(&mut self, item: Item) {
        match item {
            Item::Calibration(record, samples) => {
                self.calibration.get_or_insert((record, samples));
            }
            Item::Residuals(residuals) => {
                self.residuals.get_or_insert(residuals);
            }
            Item::ObservedRuns(observed_runs) => {
                self.observed_runs.get_or_insert(observed_runs);
            }
            Item::Reports(reports) => {
                self.reports.get_or_insert(reports);
            }
            Item::Holds(kept) => {
                self.holds.get_or_insert(kept);
            }
        }
    }

    /// All there is. The raw samples of the calibration are not kept in memory.
    fn add_all(&mut self, snapshot: &Snapshot) {
        if let Some(record) = &snapshot.calibration {
            self.add(Item::Calibration(Box::new(record.clone()), Vec::new()));
        }
        self.add(Item::Residuals(Arc::clone(&snapshot.residuals)));
        self.add(Item::ObservedRuns(Arc::clone(&snapshot.observed_runs)));
        self.add(Item::Reports(Arc::clone(&snapshot.reports)));
    }
}

/// The way of a reply to its client; a client that goes before it comes is reported.
fn forward(
    ticket: Ticket,
    mut client: oneshot::Sender<Reply>,
    events: mpsc::Sender<Event>,
) -> oneshot::Sender<Reply> {
    let (reply, replied) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            reply = replied => {
                if let Ok(reply) = reply {
                    let _ = client.send(reply);
                }
            }
            () = client.closed() => {
                // Only the end of the daemon closes its queue.
                let _ = events.send(Event::ClientGone { ticket }).await;
            }
        }
    });
    reply
}

/// What a reload has to tell.
#[must_use]
pub fn reloaded(policy: Result<Policy, String>) -> Vec<Event> {
    match policy {
        Ok(policy) => vec![Event::Reconfigured(policy), Event::Degraded { name: "config", problem: None }],
        Err(problem) => {
            let problem = format!("{problem}; the configuration of before is kept: correct it and reload");
            vec![Event::Degraded { name: "config", problem: Some(problem) }]
        }
    }
}
