//! Events and holds, which go on over a restart of the daemon.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::blocks::{Event, Framing};
use crate::body::Encoded;
use crate::error::{Error, Result};
use crate::exchange::{Daemon, Limit, Stream};
use crate::io::{Io, Over, lock};

/// Between two tries to reach a daemon that has gone.
const AGAIN: Duration = Duration::from_millis(500);
/// A switch of the power mode may come before the answer.
pub(crate) const SWITCH: Duration = Duration::from_secs(120);
/// For how long a daemon that has gone is tried again.
pub(crate) const RECONNECT: Duration = Duration::from_secs(60);

/// Ends a subscription from another thread.
#[derive(Debug, Clone)]
pub struct Stop(pub(crate) Arc<Over>);

impl Stop {
    /// Ends the iteration, also where somebody waits for the next event.
    pub fn stop(&self) {
        self.0.set();
    }
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct Subscription<I: Io> {
    daemon: Arc<Daemon>,
    request: Encoded,
    limit: Duration,
    pub(crate) reconnect: Duration,
    pub(crate) over: Arc<Over>,
    stream: Option<Stream<I>>,
    waiting: VecDeque<Event>,
    /// Since when the daemon has gone, and why.
    lost: Option<(Instant, Error)>,
}

impl<I: Io> Subscription<I> {
    pub(crate) async fn open(daemon: Arc<Daemon>, request: Encoded, limit: Duration) -> Result<Self> {
        let over = Arc::new(Over::new());
        let stream = daemon.open(&request, Framing::Events, Limit::new(limit), &over).await?;
        Ok(Self {
            daemon,
            request,
            limit,
            reconnect: RECONNECT,
            over,
            stream: Some(stream),
            waiting: VecDeque::new(),
            lost: None,
        })
    }

    /// The next event; `None` after the end. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<Result<Event>> {
        while !self.over.is_over() {
            if let Some(event) = self.waiting.pop_front() {
                return Some(Ok(event));
            }
            let outcome = match &mut self.stream {
                Some(stream) => stream.read(&mut self.waiting).await,
                None => self.again().await,
            };
            match outcome {
                Ok(()) => {}
                Err(_) if self.over.is_over() => {}
                // The connection was lost, or this machine is short of something for a moment.
                Err(why) if self.stream.is_some() && why.is_passing() => {
                    self.stream = None;
                    self.lost = Some((Instant::now(), why));
                }
                Err(why) => {
                    self.stream = None;
                    self.over.set();
                    return Some(Err(why));
                }
            }
        }
        None
    }

    /// One try; an error is final.
    async fn again(&mut self) -> Result<()> {
        let Some((since, why)) = &self.lost else { return Ok(()) };
        let since = *since;
        if since.elapsed() >= self.reconnect {
            return Err(why.clone());
        }
        I::pause(AGAIN, &self.over).await;
        if self.over.is_over() {
            return Ok(());
        }
        match self.daemon.open(&self.request, Framing::Events, Limit::new(self.limit), &self.over).await {
            Ok(stream) => {
                self.stream = Some(stream);
                let data = json!({"gap_s": since.elapsed().as_secs_f64()});
                self.waiting.push_back(Event { name: "reconnected".into(), serial: None, data });
                self.lost = None;
                Ok(())
            }
            Err(why) if why.is_passing() => {
                self.lost = Some((since, why));
                Ok(())
            }
            Err(why) => Err(why),
        }
    }
}

impl<I: Io> Drop for Subscription<I> {
    fn drop(&mut self) {
        self.over.watch(None);
    }
}

/// What is known of a hold, from what the daemon says.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct HoldState {
    /// The cookie of the hold, for the holder alone.
    pub id: u64,
    /// The power mode in force when the daemon last said so.
    pub mode: String,
    /// Whether that mode meets the hold; `None` while that is not known, as during a restart of the daemon.
    pub satisfied: Option<bool>,
    /// Why it does not.
    pub unmet: Option<String>,
    /// Why the hold is over: `released`, `expired`, `control_disabled`, `auto_off`, the code of an error, `abandoned` where
    /// `on_change` panicked or the runtime ended, or what a later daemon says; `None` while it is wanted.
    pub ended: Option<String>,
}

impl HoldState {
    fn take(&mut self, event: &Event) {
        let data = &event.data;
        let text = |key: &str| data[key].as_str().map(str::to_owned);
        match &*event.name {
            "held" => {
                self.id = data["id"].as_u64().unwrap_or_default();
                self.mode = text("mode").unwrap_or_default();
                (self.satisfied, self.unmet) = (data["satisfied"].as_bool(), None);
            }
            "satisfied" => {
                self.mode = text("mode").unwrap_or_else(|| std::mem::take(&mut self.mode));
                (self.satisfied, self.unmet) = (data["satisfied"].as_bool(), text("reason"));
            }
            "ended" => self.ended = Some(text("cause").unwrap_or_else(|| "ended".into())),
            _ => {}
        }
    }
}

/// Called whenever the state of a hold changes.
pub(crate) type OnChange = Box<dyn Fn(&HoldState) + Send + Sync>;

/// Says that nobody attends to a hold any more, also after a panic of `on_change`.
struct Attended(Arc<Held>);

impl Drop for Attended {
    fn drop(&mut self) {
        let held = &self.0;
        held.over.watch(None);
        if !held.over.is_over() {
            let mut state = lock(&held.state);
            state.satisfied = state.satisfied.filter(|_| state.ended.is_some());
            state.ended.get_or_insert_with(|| "abandoned".into());
        }
    }
}

/// A hold that is in force: what its guard and whoever attends to it share.
pub(crate) struct Held {
    daemon: Arc<Daemon>,
    request: Encoded,
    limit: Duration,
    on_change: OnChange,
    pub(crate) over: Over,
    state: Mutex<HoldState>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Held").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Held {
    /// Answers when the mode is in force.
    pub(crate) async fn open<I: Io>(
        daemon: Arc<Daemon>,
        request: Encoded,
        limit: Duration,
        on_change: OnChange,
    ) -> Result<(Arc<Self>, Stream<I>)> {
        let (over, whole) = (Over::new(), Limit::new(limit));
        let mut stream = daemon.open::<I>(&request, Framing::Lines, whole, &over).await?;
        let (mut state, mut events, mut is_held) = (HoldState::default(), VecDeque::new(), false);
        while !is_held {
            stream.read_within(&mut events, whole).await?;
            for event in events.drain(..) {
                is_held |= event.name == "held";
                state.take(&event);
            }
            if let Some(cause) = &state.ended {
                return Err(Error::unexpected(format!("the hold ended before it began: {cause}")));
            }
        }
        Ok((Arc::new(Self { daemon, request, limit, on_change, over, state: Mutex::new(state) }), stream))
    }

    pub(crate) fn state(&self) -> HoldState {
        lock(&self.state).clone()
    }

    /// The guard is given up.
    pub(crate) fn release(&self) {
        self.over.set();
        lock(&self.state).ended.get_or_insert_with(|| "released".into());
    }

    fn change(&self, change: impl FnOnce(&mut HoldState)) {
        let state = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.clone()
        };
        if !self.over.is_over() {
            (self.on_change)(&state);
        }
    }

    /// Keeps the state up to date and asks again when the daemon was restarted, until the hold ends.
    pub(crate) fn attend<I: Io>(self: Arc<Self>, first: Stream<I>) -> impl Future<Output = ()> + Send {
        let attended = Attended(Arc::clone(&self));
        async move {
            // Also where it never runs.
            let _attended = attended;
            self.keep(first).await;
        }
    }

    async fn keep<I: Io>(&self, first: Stream<I>) {
        let (mut stream, mut events) = (first, VecDeque::new());
        while !self.over.is_over() && lock(&self.state).ended.is_none() {
            let read = stream.read(&mut events).await;
            for event in events.drain(..).filter(|event| event.name != "heartbeat") {
                self.change(|state| state.take(&event));
            }
            if read.is_err() && lock(&self.state).ended.is_none() {
                drop(stream);
                match self.again::<I>().await {
                    Some(opened) => stream = opened,
                    None => break,
                }
            }
        }
    }

    async fn again<I: Io>(&self) -> Option<Stream<I>> {
        let was_known = lock(&self.state).satisfied.is_some();
        if was_known {
            self.change(|state| state.satisfied = None);
        }
        loop {
            I::pause(AGAIN, &self.over).await;
            if self.over.is_over() {
                return None;
            }
            match self.daemon.open(&self.request, Framing::Lines, Limit::new(self.limit), &self.over).await {
                Ok(stream) => return Some(stream),
                Err(why) if why.is_passing() => {}
                Err(why) => {
                    self.change(|state| {
                        (state.ended, state.unmet) = (Some(why.code().to_owned()), Some(why.to_string()));
                    });
                    return None;
                }
            }
        }
    }
}
