//! What the page has to know of this program: its version, which daemon it asks, and what the page may change.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::Dashboard;
use wire::HoldsAnswer;
use wire::client::Client;
use wire::client::address::Socket;

/// Time for the daemon to say whether it takes commands.
const TIME: Duration = Duration::from_secs(5);

/// Whether the page can change something.
#[derive(Debug, Serialize)]
pub struct Control {
    pub available: bool,
    /// Why not; `None` where it can.
    pub reason: Option<String>,
}

pub async fn answer(dashboard: &Dashboard) -> Value {
    let mut client = dashboard.client.another(TIME);
    let board: Option<Value> = match client.get("/v1/board").await {
        Ok(answer) => answer.parse().ok(),
        Err(_) => None,
    };
    let simulated = board.as_ref().and_then(|board| board.get("simulated")).cloned().unwrap_or(Value::Null);
    // The one that answers, or the best place to look.
    let socket = client.addresses().first().map(|address| address.of(Socket::Query).display().to_string());
    let started = dashboard.started.duration_since(UNIX_EPOCH).map(|time| time.as_secs()).ok();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "socket": socket,
        "control": control(&dashboard.client).await,
        "simulated": simulated,
        "started_unix_s": started,
    })
}

/// Whether the control socket opens for this user and the daemon takes commands there.
pub async fn control(client: &Client) -> Control {
    match refused(client).await {
        None => Control { available: true, reason: None },
        reason => Control { available: false, reason },
    }
}

async fn refused(client: &Client) -> Option<String> {
    let with_hint = |error: wire::client::ClientError| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    let mut client = client.another(TIME);
    let holds: HoldsAnswer = match client.get("/v1/holds").await.and_then(|answer| answer.parse()) {
        Ok(holds) => holds,
        Err(error) => return Some(with_hint(error)),
    };
    if let Err(error) = client.reach(Socket::Control).await {
        return Some(with_hint(error));
    }
    (!holds.control_enabled).then(|| {
        "control is disabled; set enabled = true under [control] in /etc/rooflined/rooflined.toml".to_owned()
    })
}
