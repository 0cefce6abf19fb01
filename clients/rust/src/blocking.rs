//! The client that blocks.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::address::Socket;
use crate::blocks::Event;
use crate::body::Body;
use crate::error::{Error, Result};
use crate::exchange::{Daemon, Limit};
use crate::io::{Blocking, now};
use crate::stream::{Held, HoldState, OnChange, SWITCH, Stop, Subscription};
use crate::types::*;
use crate::verbs::{Call, Filter, ModelQuery, RooflineQuery, calls as verbs, every_verb};

/// A daemon on this machine. Opens connections when they are needed; cheap to clone, and may be shared by threads.
///
/// Every verb fails as [`Error`] says, and has 30 seconds for its whole exchange where it does not say otherwise.
///
/// ```no_run
/// # fn main() -> rooflined_client::Result<()> {
/// use rooflined_client::Client;
/// use rooflined_client::types::{PredictRequest, Workload};
///
/// let client = Client::new();
/// let workload = Workload::default().model("llama-3.2-1b").format("q4_k_m").phase("decode");
/// let answer = client.predict(&PredictRequest::new(workload).engine("llama.cpp"))?;
/// println!("{} to {} tokens/s", answer.tokens_per_s.low, answer.tokens_per_s.high);
///
/// // Or any JSON:
/// let op = serde_json::json!({"workload": {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}});
/// let answer = client.predict(&op)?;
/// println!("{} s, limited by {}", answer.time_s.value, answer.limit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    daemon: Arc<Daemon>,
    limit: Option<Duration>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! blocking {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty = $call:expr;)*) => {
        /// The verbs. Each fails as [`Error`] says.
        impl Client {
            $(
                $(#[$doc])*
                pub fn $name(&self $(, $argument: $kind)*) -> Result<$answer> {
                    self.ask(&$call?)
                }
            )*
        }
    };
}
every_verb!(blocking);

impl Client {
    /// The daemon of `$ROOFLINED_SOCKET`, else that of this user (`$XDG_RUNTIME_DIR/rooflined`, `/tmp/rooflined-UID`), else that of
    /// the system (`/run/rooflined`). It is looked for whenever a connection is made, so it may start, or end, later than this.
    #[must_use]
    pub fn new() -> Self {
        Self { daemon: Arc::new(Daemon::new(None)), limit: None }
    }

    /// The daemon whose sockets lie in a directory, or have one of them named.
    #[must_use]
    pub fn at(socket: impl AsRef<Path>) -> Self {
        Self { daemon: Arc::new(Daemon::new(Some(socket.as_ref()))), limit: None }
    }

    /// The same client with another time limit for each whole exchange, also of the verbs that have one of their own.
    #[must_use]
    pub fn with_timeout(&self, limit: Duration) -> Self {
        Self { daemon: Arc::clone(&self.daemon), limit: Some(limit) }
    }

    /// Closes idle connections; the client can still be used.
    pub fn close(&self) {
        self.daemon.close();
    }

    /// What changes, beginning with the state.
    ///
    /// # Errors
    /// As the verbs.
    pub fn events(&self) -> Result<Events> {
        self.subscribe(verbs::events()?)
    }

    /// A recommendation kept true: event `recommend`, then `advice_stale` and `recommend` whenever it changes.
    ///
    /// # Errors
    /// As the verbs.
    pub fn watch(&self, body: &impl Body<RecommendRequest>) -> Result<Events> {
        self.subscribe(verbs::watch(body)?)
    }

    /// A power mode that meets constraints and a query, for as long as the guard lives. Answers when the mode is in force.
    ///
    /// # Errors
    /// As the verbs; [`Error::Refused`] where no mode meets them. Has 120 s, or what
    /// [`with_timeout`](Self::with_timeout) says, also each time that it is asked for again.
    pub fn hold(&self, body: &impl Body<HoldRequest>) -> Result<Hold> {
        self.hold_with(body, |_| {})
    }

    /// As [`hold`](Self::hold), and calls `on_change` with what becomes of it, on the thread that attends to it.
    /// Where `on_change` panics the hold ends, as `abandoned`.
    /// Do not drop the guard while holding a lock that `on_change` takes: dropping it waits for that thread.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn hold_with(
        &self,
        body: &impl Body<HoldRequest>,
        on_change: impl Fn(&HoldState) + Send + Sync + 'static,
    ) -> Result<Hold> {
        let on_change: OnChange = Box::new(on_change);
        let limit = self.limit.unwrap_or(SWITCH);
        let (held, stream) =
            now(Held::open::<Blocking>(Arc::clone(&self.daemon), verbs::hold(body)?, limit, on_change))?;
        let attended = Arc::clone(&held);
        let thread = std::thread::Builder::new().name("rooflined-hold".into());
        let thread = thread
            .spawn(move || now(attended.attend(stream)))
            .map_err(|why| Error::system("no thread can be had", why))?;
        Ok(Hold { held, thread: Some(thread) })
    }

    fn ask<A>(&self, call: &Call<A>) -> Result<A> {
        let limit = self.limit.or(call.limit).unwrap_or(crate::TIMEOUT);
        (call.read)(&now(self.daemon.ask::<Blocking>(&call.request, Limit::new(limit)))?)
    }

    fn subscribe(&self, request: crate::body::Encoded) -> Result<Events> {
        let limit = self.limit.unwrap_or(crate::TIMEOUT);
        Ok(Events(now(Subscription::open(Arc::clone(&self.daemon), request, limit))?))
    }
}

/// An iterator over events; ends with an error, with [`Stop::stop`] of any thread, or when it is dropped.
///
/// Where the daemon goes away it is tried again twice a second for a minute, after which the error is told; what happened
/// meanwhile is not, so the event `reconnected` precedes the new state. Whoever reads slowly misses states and no changes.
///
/// ```no_run
/// # fn main() -> rooflined_client::Result<()> {
/// for event in rooflined_client::Client::new().events()? {
///     let event = event?;
///     println!("{}: {}", event.name, event.data);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events(Subscription<Blocking>);

impl Events {
    /// Tries a daemon that has gone for so long; not at all with zero.
    #[must_use]
    pub fn reconnecting_for(mut self, time: Duration) -> Self {
        self.0.reconnect = time;
        self
    }

    /// What ends the iteration from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop(Arc::clone(&self.0.over))
    }
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        now(self.0.next())
    }
}

/// A hold of a power mode; ends when it is dropped, and with the process, however that ends.
///
/// A thread reads what becomes of it. When the daemon is restarted it asks for the same again, twice a second; the daemon keeps
/// the mode meanwhile, for 30 s.
///
/// ```no_run
/// # fn main() -> rooflined_client::Result<()> {
/// use rooflined_client::types::{ConstraintsOfHold, HoldRequest};
///
/// let request = HoldRequest::new("nightly-batch").constraints(ConstraintsOfHold::default().max_power_w(15.0));
/// let hold = rooflined_client::Client::new().hold(&request)?;
/// println!("in {}", hold.state().mode);
/// // … work …
/// drop(hold);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the hold ends when it is dropped"]
pub struct Hold {
    held: Arc<Held>,
    thread: Option<JoinHandle<()>>,
}

impl Hold {
    /// What is known of it now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state()
    }

    /// Ends it and says how it ended.
    pub fn release(mut self) -> HoldState {
        self.end();
        self.state()
    }

    fn end(&mut self) {
        self.held.release();
        // In a forked child there is no such thread, and the parent's hold goes on.
        let thread = self.thread.take().filter(|_| self.held.over.is_own());
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic of the caller's own `on_change` was shown when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}
