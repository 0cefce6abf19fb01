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

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn judged() -> Value {
        json!({
            "engine": "llama.cpp", "model": "/models/x.gguf", "format": null, "batch": 1, "context_tokens": 512,
            "explained": {
                "verdict": "as_expected", "reason": "r", "measured_tokens_per_s": 2.0,
                "expected_tokens_per_s": {"value": 2.0, "low": 1.0, "high": 3.0}, "expected_at": "MAXN", "causes": [],
                "unexplained_ratio": null, "unexplained_tokens_per_s": null, "unseen": [], "simulated": false, "serial": 1,
            },
        })
    }

    fn watched(name: &str, viewer: Option<u32>, judged: Value) -> WatchedServer {
        WatchedServer { name: name.to_owned(), viewer, reported_unix_s: 7.0, not_learned: None, judged }
    }

    #[test]
    fn a_user_is_shown_what_everybody_is_and_the_own_servers() {
        let hardware = registry().get("gb10").unwrap();
        let mut snapshot = Snapshot::hypothetical(Arc::new(hardware.clone()));
        snapshot.servers = Arc::new(vec![
            watched("shared", None, judged()),
            watched("of 1000", Some(1000), judged()),
            watched("of 1001", Some(1001), judged()),
            watched("too large to be kept", None, Value::Null),
        ]);
        let shown = |viewer| {
            let answer = servers(&snapshot, viewer).servers;
            answer.into_iter().map(|entry| (entry.server, entry.shown_to)).collect::<Vec<_>>()
        };
        let shared = ("shared".to_owned(), "everyone".to_owned());
        assert_eq!(shown(Some(1000)), [shared.clone(), ("of 1000".to_owned(), "own".to_owned())]);
        // Nobody in particular, and root, have no servers of others.
        for viewer in [None, Some(0)] {
            assert_eq!(shown(viewer), std::slice::from_ref(&shared));
        }
    }
}
