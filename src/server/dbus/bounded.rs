//! What stands between a message from the bus and its answer: who sent it, whether it may have one more call under
//! way, and whether its body came at all. A body takes some eighty times its size in memory when it is decoded, and an answer
//! keeps its memory until the bus has taken it, so both count as a part of the call.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::Semaphore;
use zbus::export::async_trait::async_trait;
use zbus::fdo;
use zbus::message::{Header, Message};
use zbus::names::{InterfaceName, MemberName};
use zbus::object_server::{DispatchResult, Interface, SignalEmitter};
use zbus::{BoxDBusError, Connection, ObjectServer, OwnedVariant, Variant};

use super::callers::{Callers, Sender};
use super::error::BusError;
use super::socket::MAX_BODY;
use crate::server::shares::{LONG_BODY, Quota, Turns};
use rooflined_core::refusal::{Code, Refusal};

/// Calls that are being answered; of one user half of them, and less where others have some.
const MAX_CALLS: usize = 256;
/// Tasks for calls: those that are being answered, and those that are refused and wait until the bus has taken that.
const MAX_TASKS: usize = 2 * MAX_CALLS;

/// The callers of all interfaces, and what they share.
pub struct Gate {
    pub callers: Callers,
    calls: Arc<Quota>,
    tasks: Arc<Semaphore>,
    bodies: Turns,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            callers: Callers::default(),
            calls: Quota::new(MAX_CALLS),
            tasks: Arc::new(Semaphore::new(MAX_TASKS)),
            bodies: Turns::default(),
        }
    }
}

/// An interface behind the gate.
pub struct Bounded<I> {
    interface: I,
    gate: Arc<Gate>,
}

impl<I: Interface> Bounded<I> {
    pub const fn new(interface: I, gate: Arc<Gate>) -> Self {
        Self { interface, gate }
    }

    /// Answers a call, and says on the bus why if that fails.
    async fn answer_on(connection: Connection, call: Message) {
        let (server, header) = (connection.object_server(), call.header());
        let answered = async {
            let path = header.path().ok_or_else(gone)?.to_owned();
            let this = server.interface::<_, Self>(path).await.map_err(|_| gone())?;
            let name = header.member().ok_or_else(gone)?.to_owned();
            this.get().await.answer(server, &connection, &call, name).await
        };
        if let Err(error) = answered.await
            && let Err(error) = connection.reply_dbus_error(&header, error).await
        {
            tracing::debug!(%error, "a call on the bus was not answered");
        }
    }

    /// Answers a call that is let in.
    async fn answer(
        &self,
        server: &ObjectServer,
        connection: &Connection,
        call: &Message,
        name: MemberName<'_>,
    ) -> Result<(), BoxDBusError> {
        let (header, body) = (call.header(), call.body());
        // What came without the body that it announces had too large a one.
        let was_dropped = body.is_empty() && !body.signature().to_string().is_empty();
        if was_dropped || body.len() > MAX_BODY {
            return Err(refused(too_large()));
        }
        let take = |user| {
            let hint = "wait for answers before asking for more";
            let place = self.gate.calls.take(user);
            place.map_err(|full| refused(full.refusal(user, "calls under way", hint)))
        };
        let user = match self.gate.callers.recall(&header) {
            Some(peer) => Some(peer.account()),
            None => {
                // The bus takes a while to tell who it is, so that is a call under way too, of a user who is not known yet.
                let _place = take(None)?;
                let caller = self.gate.callers.find(Sender { connection, header: &header }).await;
                caller.map(|peer| peer.account())
            }
        };
        let _place = take(user)?;
        let _turn = if body.len() < LONG_BODY { None } else { self.gate.bodies.next(user).await };
        match self.interface.call(server, connection, call, name.clone()) {
            DispatchResult::Async(answered) => answered.await,
            DispatchResult::NotFound | DispatchResult::RequiresMut => {
                Err(Box::new(fdo::Error::UnknownMethod(format!("Unknown method '{name}'"))))
            }
        }
    }
}

impl<I> Deref for Bounded<I> {
    type Target = I;

    fn deref(&self) -> &I {
        &self.interface
    }
}

fn refused(refusal: Refusal) -> BoxDBusError {
    Box::new(BusError::from(refusal))
}

fn gone() -> BoxDBusError {
    Box::new(fdo::Error::UnknownObject("the object has left the bus".to_owned()))
}

fn no_task() -> Refusal {
    Code::TooManyConnections.error(
        format!("all {MAX_TASKS} calls under way are in use"),
        "wait for answers before asking for more",
    )
}

fn too_large() -> Refusal {
    Code::BodyTooLarge
        .error(format!("the request is larger than {MAX_BODY} bytes"), "ask for fewer at a time")
}

#[async_trait]
impl<I: Interface> Interface for Bounded<I> {
    fn name() -> InterfaceName<'static> {
        I::name()
    }

    /// zbus would begin tasks without a limit.
    fn spawn_tasks_for_methods(&self) -> bool {
        false
    }

    async fn get(
        &self,
        property: &str,
        server: &ObjectServer,
        connection: &Connection,
        header: Option<&Header<'_>>,
        emitter: &SignalEmitter<'_>,
    ) -> Option<Result<OwnedVariant, BoxDBusError>> {
        self.interface.get(property, server, connection, header, emitter).await
    }

    async fn get_all(
        &self,
        server: &ObjectServer,
        connection: &Connection,
        header: Option<&Header<'_>>,
        emitter: &SignalEmitter<'_>,
    ) -> fdo::Result<HashMap<String, OwnedVariant>> {
        self.interface.get_all(server, connection, header, emitter).await
    }

    async fn set_mut(
        &mut self,
        property: &str,
        value: &Variant<'_>,
        server: &ObjectServer,
        connection: &Connection,
        header: Option<&Header<'_>>,
        emitter: &SignalEmitter<'_>,
    ) -> Option<Result<(), BoxDBusError>> {
        self.interface.set_mut(property, value, server, connection, header, emitter).await
    }

    fn call<'call>(
        &'call self,
        _: &'call ObjectServer,
        connection: &'call Connection,
        call: &'call Message,
        _: MemberName<'call>,
    ) -> DispatchResult<'call> {
        let task = Arc::clone(&self.gate.tasks).try_acquire_owned();
        DispatchResult::Async(Box::pin(async move {
            // Refused here, while nothing more is read from the bus: what waits is the bus's to limit.
            let task = task.map_err(|_| refused(no_task()))?;
            let (connection, call) = (connection.clone(), call.clone());
            tokio::spawn(async move {
                Self::answer_on(connection, call).await;
                drop(task);
            });
            Ok(())
        }))
    }

    /// No method of ours changes its interface.
    fn call_mut<'call>(
        &'call mut self,
        _: &'call ObjectServer,
        _: &'call Connection,
        _: &'call Message,
        _: MemberName<'call>,
    ) -> DispatchResult<'call> {
        DispatchResult::NotFound
    }

    fn introspect_to_writer(&self, writer: &mut dyn std::fmt::Write, level: usize) {
        self.interface.introspect_to_writer(writer, level);
    }
}
