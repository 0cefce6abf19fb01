//! `GET /v1/servers`: the servers that somebody watches, each with what slows it down.

use rooflined_api::{JudgedServer, ServerEntry, ServersAnswer};
use rooflined_predict::snapshot::{Snapshot, WatchedServer};

/// The servers of `snapshot` that `viewer` is shown.
#[must_use]
pub fn servers(snapshot: &Snapshot, viewer: Option<u32>) -> ServersAnswer {
    let is_shown = |server: &&WatchedServer| server.viewer.is_none() || server.viewer == viewer;
    let entries = snapshot.servers.iter().filter(is_shown).filter_map(entry);
    ServersAnswer { servers: entries.collect(), serial: snapshot.serial }
}

/// `None` where nothing was kept of how it compares.
fn entry(server: &WatchedServer) -> Option<ServerEntry> {
    let judged: JudgedServer = serde_json::from_value(server.judged.clone()).ok()?;
    Some(ServerEntry {
        server: server.name.clone(),
        reported_at_unix_s: server.reported_unix_s,
        shown_to: if server.viewer.is_none() { "everyone" } else { "own" }.to_owned(),
        not_learned: server.not_learned.clone(),
        judged,
    })
}
