//! Who calls, as the bus says.

use zbus::Connection;
use zbus::fdo::DBusProxy;
use zbus::message::Header;
use zbus::names::BusName;

use crate::server::access::Peer;
use rooflined_advice::recent::Recent;
use rooflined_core::refusal::{Code, Refusal};

/// Senders that are remembered, each with its groups.
const MAX_CALLERS: usize = 256;
const CALLER_BYTES: usize = 1024;

/// Who the bus says the sender of a call is.
pub async fn caller(connection: &Connection, header: &Header<'_>) -> Result<Peer, Refusal> {
    let unknown = || {
        Code::NotAuthorized
            .error("the bus does not report who is calling", "ask as root over the control socket")
    };
    let sender = header.sender().ok_or_else(unknown)?.to_owned();
    let proxy = DBusProxy::new(connection).await.map_err(|_| unknown())?;
    let credentials =
        proxy.get_connection_credentials(BusName::Unique(sender)).await.map_err(|_| unknown())?;
    let uid = credentials.unix_user_id().ok_or_else(unknown)?;
    let pid = credentials.process_id().and_then(|pid| i32::try_from(pid).ok());
    Ok(Peer::new(uid, pid, credentials.unix_group_ids().cloned().unwrap_or_default()))
}

/// Where a call came from.
#[derive(Clone, Copy)]
pub struct Sender<'a, 'm> {
    pub connection: &'a Connection,
    pub header: &'a Header<'m>,
}

/// Senders of calls, which the bus is asked for once: it gives a name once only.
pub struct Callers(Recent<String, Peer>);

impl Default for Callers {
    fn default() -> Self {
        Self(Recent::new(MAX_CALLERS, MAX_CALLERS * CALLER_BYTES))
    }
}

impl Callers {
    /// Who called, if the bus was asked before.
    pub fn recall(&self, header: &Header<'_>) -> Option<Peer> {
        let name = header.sender()?.as_str();
        self.0.find(|known| known == name)
    }

    /// Who called; `None` where the bus does not tell.
    pub async fn find(&self, by: Sender<'_, '_>) -> Option<Peer> {
        if let Some(peer) = self.recall(by.header) {
            return Some(peer);
        }
        let name = by.header.sender()?.as_str();
        let peer = caller(by.connection, by.header).await.ok()?;
        // Looked up here, so that each copy knows it.
        let _ = peer.account();
        self.0.keep(name.to_owned(), peer.clone(), CALLER_BYTES);
        Some(peer)
    }
}
