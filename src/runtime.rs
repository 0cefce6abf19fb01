//! The loop: receive, let the governor decide, carry out. It owns the governor and with it everything that changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::archive::Archive;
use super::calibrate::{Probe, Program};
use super::power::Power;
use super::sampler::Sampler;
use super::{logging, notify, status};
use crate::server::Request;
use rooflined_core::units::Seconds;
use rooflined_governor::{Command, Effect, Event, Governor, Now, Policy, Reply, Severity, StoreItem, Ticket};
use rooflined_hw::boot_time;
use rooflined_predict::snapshot::Snapshot;

/// Between two writes of what was learned, so that a stream of observations costs few. A reporter is answered when it
/// is on the disk, so this is also how long an answer may be late.
const SAVES_APART: Duration = Duration::from_millis(500);
/// What could not be saved is tried again after this long.
const SAVE_AGAIN: Duration = Duration::from_secs(30);
/// Clients that look more often than this tell the governor nothing new.
const WATCHED_APART: Duration = Duration::from_millis(500);
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
    program: Program,
    archive: Archive,
    probe: Option<Probe>,
    power: Option<Power>,
    waiting: HashMap<Ticket, oneshot::Sender<Reply>>,
    last_ticket: Ticket,
    watched_at: Option<Instant>,
    period: Duration,
    sampled_at: Instant,
    overdue: bool,
    unsaved: Option<(Unsaved, Instant)>,
    /// Replies that say that something was learned or forgotten, until it is saved.
    unanswered: Vec<(Ticket, Reply)>,
    /// What was learned last.
    saved_at: Option<Instant>,
    /// When the governor next wants to know that time has passed.
    wake_at: Option<Instant>,
    status: String,
}

/// What waits to be saved, by its kind.
type Unsaved = BTreeMap<&'static str, StoreItem>;

impl Runtime {
    /// The loop before its first turn. `events` is the way back into it for what runs beside it.
    #[must_use]
    pub fn new(
        governor: Governor,
        events: mpsc::Sender<Event>,
        (sampler, period): (Sampler, Duration),
        power: Power,
        program: Program,
        archive: Archive,
    ) -> Self {
        let (published, _) = watch::channel(governor.snapshot());
        Self {
            governor,
            published,
            events,
            sampler,
            program,
            archive,
            probe: None,
            power: Some(power),
            waiting: HashMap::new(),
            last_ticket: OWN_TICKET,
            watched_at: None,
            period,
            sampled_at: Instant::now(),
            overdue: false,
            unsaved: None,
            unanswered: Vec::new(),
            saved_at: None,
            wake_at: None,
            status: String::new(),
        }
    }

    /// The snapshots that are published.
    #[must_use]
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.published.subscribe()
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
                Some(request) = requests.recv() => self.receive(request).await,
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
                () = sleep_until(save_at), if self.unsaved.is_some() => self.save_and_answer().await,
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
        self.take(Event::Requested { ticket: OWN_TICKET, command: Command::Cancel { job: None } }).await;
        while self.probe.is_some() {
            tokio::select! {
                Some(event) = events.recv() => self.take(event).await,
                () = sleep_until(deadline) => break,
            }
        }
        self.save_and_answer().await;
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
            if changes_what_is_stored(&reply) && self.is_save_near() {
                self.unanswered.push((ticket, reply));
            } else {
                self.answer(ticket, reply);
            }
        }
        if !self.is_save_near() {
            for (ticket, reply) in std::mem::take(&mut self.unanswered) {
                self.answer(ticket, reply);
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            // The client may have gone this instant.
            let _ = waiting.send(reply);
        }
    }

    /// Saves, and answers those who waited for that.
    async fn save_and_answer(&mut self) {
        let replies = std::mem::take(&mut self.unanswered);
        for event in self.save().await {
            self.take(event).await;
        }
        for (ticket, reply) in replies {
            self.answer(ticket, reply);
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
                self.probe = Some(Probe::start(job, plan, self.program.clone(), self.events.clone()));
            }
            Effect::StopProbe { job } => match &mut self.probe {
                Some(probe) if probe.job == job => probe.stop(),
                _ => tracing::debug!(job, "there is no such probe to stop"),
            },
            // A reply that follows may say that it is done, so it must be on the disk by then. Slow servers seldom change.
            Effect::Save(
                item @ (StoreItem::Calibration(_) | StoreItem::Holds(_) | StoreItem::Servers(_)),
            ) => {
                if let Some((unsaved, _)) = &mut self.unsaved {
                    unsaved.remove(item.kind());
                }
                return Some(self.keep(item).await);
            }
            Effect::Actuate { order, what } => return self.power.as_ref()?.order(order, what),
            Effect::Save(item) => {
                self.unsaved_mut().insert(item.kind(), item);
            }
            // Given when everything else is done.
            Effect::Reply { .. } => {}
            Effect::WakeAt(at) => {
                self.wake_at = at.map(|at| Instant::now() + duration((at - boot_time()).max(Seconds::ZERO)));
            }
            Effect::SampleEvery(period) => {
                tracing::debug!(period_s = period.get(), "sampling");
                // Nobody looks any more, or a calibration has ended: what that took is not needed until the next time.
                if duration(period) > self.period {
                    rooflined_probe::release_free_memory();
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

    /// Gives a command a ticket of its own.
    async fn receive(&mut self, request: Request) {
        let event = match request {
            Request::Event(Event::Watched) => {
                if self.watched_at.is_some_and(|at| at.elapsed() < WATCHED_APART) {
                    return;
                }
                tracing::trace!("somebody looks");
                self.watched_at = Some(Instant::now());
                Event::Watched
            }
            Request::Event(event) => event,
            Request::Command { command, reply } => {
                self.last_ticket += 1;
                let ticket = self.last_ticket;
                self.waiting.insert(ticket, forward(ticket, reply, self.events.clone()));
                Event::Requested { ticket, command }
            }
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

    /// Whether there is something to save soon. Nobody waits for what could not be saved and is tried again later.
    fn is_save_near(&self) -> bool {
        self.unsaved.as_ref().is_some_and(|(_, at)| *at <= Instant::now() + SAVES_APART)
    }

    /// Saves what is not saved; what could not be is tried again later.
    async fn save(&mut self) -> Vec<Event> {
        let Some((unsaved, _)) = self.unsaved.take() else { return Vec::new() };
        self.saved_at = Some(Instant::now());
        let mut events = Vec::new();
        for item in unsaved.into_values() {
            events.push(self.keep(item).await);
        }
        events
    }

    /// Saves one thing, and returns what to report of that.
    async fn keep(&mut self, item: StoreItem) -> Event {
        let kept = self.archive.keep(item).await;
        if let Some(item) = kept.again {
            let later = || (Unsaved::default(), Instant::now() + SAVE_AGAIN);
            self.unsaved.get_or_insert_with(later).0.entry(item.kind()).or_insert(item);
        }
        if kept.remade {
            tracing::warn!("the state directory had been removed; everything is saved again");
            let snapshot = self.governor.snapshot();
            let (unsaved, at) = self.unsaved.get_or_insert_with(|| (Unsaved::default(), Instant::now()));
            *at = Instant::now();
            for item in stored_of(&snapshot) {
                unsaved.entry(item.kind()).or_insert(item);
            }
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

/// Whether it says that something was learned or forgotten.
const fn changes_what_is_stored(reply: &Reply) -> bool {
    matches!(reply, Reply::Observed { accepted: 1.., .. } | Reply::Forgotten { count: 1.. })
}

/// All of a snapshot that is stored, without what ends with the boot.
fn stored_of(snapshot: &Snapshot) -> impl Iterator<Item = StoreItem> {
    let record = snapshot.calibration.clone().map(|record| StoreItem::Calibration(Box::new(record)));
    record.into_iter().chain([
        StoreItem::Residuals(Arc::clone(&snapshot.residuals)),
        StoreItem::ObservedRuns(Arc::clone(&snapshot.observed_runs)),
        StoreItem::Reports(Arc::clone(&snapshot.reports)),
    ])
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
            let problem =
                format!("{problem}; the previous configuration stays: correct the mistake and reload");
            vec![Event::Degraded { name: "config", problem: Some(problem) }]
        }
    }
}
