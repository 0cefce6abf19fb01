//! The client for tokio.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::address::Socket;
use crate::blocks::Event;
use crate::body::{Body, Encoded};
use crate::error::{Error, Result};
use crate::exchange::{Daemon, Limit};
use crate::io::Tokio;
use crate::stream::{Held, HoldState, OnChange, SWITCH, Stop, Subscription};
use crate::types::*;
use crate::verbs::{Call, Filter, ModelQuery, RooflineQuery, calls as verbs, every_verb};

/// A daemon on this machine, for tokio, whose runtime needs `enable_all`; otherwise as `Client`.
///
/// A question that is dropped is given up; a change that is dropped may have been carried out.
///
/// ```no_run
/// # async fn example() -> rooflined_client::Result<()> {
/// use rooflined_client::AsyncClient;
///
/// let client = AsyncClient::new();
/// let (board, modes) = (client.board().await?, client.modes().await?);
/// println!("{} in {:?}", board.key, modes.active);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AsyncClient {
    daemon: Arc<Daemon>,
    limit: Option<Duration>,
}

impl Default for AsyncClient {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! asynchronous {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty = $call:expr;)*) => {
        /// The verbs. Each fails as [`Error`] says.
        impl AsyncClient {
            $(
                $(#[$doc])*
                pub async fn $name(&self $(, $argument: $kind)*) -> Result<$answer> {
                    self.ask(&$call?).await
                }
            )*
        }
    };
}
every_verb!(asynchronous);

impl AsyncClient {
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
    pub async fn events(&self) -> Result<AsyncEvents> {
        self.subscribe(verbs::events()?).await
    }

    /// A recommendation kept true: event `recommend`, then `advice_stale` and `recommend` whenever it changes.
    ///
    /// # Errors
    /// As the verbs.
    pub async fn watch(&self, body: &impl Body<RecommendRequest>) -> Result<AsyncEvents> {
        self.subscribe(verbs::watch(body)?).await
    }

    /// A power mode that meets constraints and a query, for as long as the guard lives. Answers when the mode is in force.
    ///
    /// # Errors
    /// As the verbs; [`Error::Refused`] where no mode meets them. Has 120 s, or what
    /// [`with_timeout`](Self::with_timeout) says, also each time that it is asked for again.
    pub async fn hold(&self, body: &impl Body<HoldRequest>) -> Result<AsyncHold> {
        self.hold_with(body, |_| {}).await
    }

    /// As [`hold`](Self::hold), and calls `on_change` with what becomes of it, in the task that attends to it.
    /// Where `on_change` panics the hold ends, as `abandoned`.
    /// Do not hold a lock that `on_change` takes across an await.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub async fn hold_with(
        &self,
        body: &impl Body<HoldRequest>,
        on_change: impl Fn(&HoldState) + Send + Sync + 'static,
    ) -> Result<AsyncHold> {
        let (request, on_change): (_, OnChange) = (verbs::hold(body)?, Box::new(on_change));
        has_runtime()?;
        let limit = self.limit.unwrap_or(SWITCH);
        let (held, stream) = Held::open::<Tokio>(Arc::clone(&self.daemon), request, limit, on_change).await?;
        let task = tokio::spawn(Arc::clone(&held).attend(stream));
        Ok(AsyncHold { held, task })
    }

    async fn ask<A>(&self, call: &Call<A>) -> Result<A> {
        has_runtime()?;
        let limit = self.limit.or(call.limit).unwrap_or(crate::TIMEOUT);
        (call.read)(&self.daemon.ask::<Tokio>(&call.request, Limit::new(limit)).await?)
    }

    async fn subscribe(&self, request: Encoded) -> Result<AsyncEvents> {
        has_runtime()?;
        let limit = self.limit.unwrap_or(crate::TIMEOUT);
        Ok(AsyncEvents(Subscription::open(Arc::clone(&self.daemon), request, limit).await?))
    }
}

/// Without a runtime tokio panics.
fn has_runtime() -> Result<()> {
    tokio::runtime::Handle::try_current().map(drop).map_err(|why| Error::System {
        message: "call this within a tokio runtime, or use `Client`, which needs none".into(),
        source: Some(Arc::new(why)),
    })
}

/// Events, for tokio; as `Events`. Ends when it is dropped.
///
/// ```no_run
/// # async fn example() -> rooflined_client::Result<()> {
/// let mut events = rooflined_client::AsyncClient::new().events().await?;
/// while let Some(event) = events.next().await {
///     println!("{}", event?.name);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncEvents(Subscription<Tokio>);

impl AsyncEvents {
    /// The next event; `None` after an error or [`Stop::stop`]. Nothing is lost where this is dropped while it waits, in `select!`.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        self.0.next().await
    }

    /// Tries a daemon that has gone for so long; not at all with zero.
    #[must_use]
    pub fn reconnecting_for(mut self, time: Duration) -> Self {
        self.0.reconnect = time;
        self
    }

    /// What ends the iteration from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop(Arc::clone(&self.0.over))
    }
}

/// A hold of a power mode, for tokio; as `Hold`. A task reads what becomes of it.
#[derive(Debug)]
#[must_use = "the hold ends when it is dropped"]
pub struct AsyncHold {
    held: Arc<Held>,
    task: JoinHandle<()>,
}

impl AsyncHold {
    /// What is known of it now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state()
    }

    /// Ends it and says how it ended.
    pub fn release(self) -> HoldState {
        self.held.release();
        self.held.state()
    }
}

impl Drop for AsyncHold {
    fn drop(&mut self) {
        self.held.release();
        self.task.abort();
    }
}
