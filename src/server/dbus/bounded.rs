//! What stands between a message from the bus and its answer: who sent it, whether it may have one more call under
//! way, and whether its body came at all. A body takes some eighty times its size in memory when it is decoded, and an answer
//! keeps its memory until the bus has taken it, so both count as a part of the call.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

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

/// The callers of all interfaces, and what they share.
pub struct Gate {
    pub callers: Callers,
    calls: Arc<Quota>,
    bodies: Turns,
}

impl Default for Gate {
    fn default() -> Self {
        Self { callers: Callers::default(), calls: Quota::new(MAX_CALLS), bodies: Turns::default() }
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

    /// Answers a call that is let in.
    async fn answer(
        &self,
        server: &ObjectServer,
        connection: &Connection,
        call: &Message,
        name: MemberName<'_>,
    ) -> Result<(), BoxDBusError> {
        let refused = |refusal: Refusal| -> BoxDBusError { Box::new(BusError::from(refusal)) };
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

fn too_large() -> Refusal {
    Code::BodyTooLarge
        .error(format!("the request is larger than {MAX_BODY} bytes"), "ask for fewer at a time")
}

#[async_trait]
impl<I: Interface> Interface for Bounded<I> {
    fn name() -> InterfaceName<'static> {
        I::name()
    }

    fn spawn_tasks_for_methods(&self) -> bool {
        self.interface.spawn_tasks_for_methods()
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
        server: &'call ObjectServer,
        connection: &'call Connection,
        call: &'call Message,
        name: MemberName<'call>,
    ) -> DispatchResult<'call> {
        DispatchResult::Async(Box::pin(self.answer(server, connection, call, name)))
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
