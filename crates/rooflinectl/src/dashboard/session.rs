//! What the page has to know of this program: its version, which daemon it asks, and what the page may change.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::Dashboard;
use rooflined_api::HoldsAnswer;
use rooflined_client::address::Socket;
use rooflined_client::{Client, ClientError};
use rooflined_core::configuration::how_to_enable_control;

/// Longest wait for the daemon to say whether it takes commands.
const TIME: Duration = Duration::from_secs(5);

/// What the page can change.
#[derive(Debug, Serialize)]
pub struct Control {
    /// Commands are taken from this user: power modes and holds.
    pub available: bool,
    /// Why not; `None` where they are.
    pub reason: Option<String>,
    /// Calibrations and measurements are; from root and the daemon's own user also while control is disabled.
    pub calibration_available: bool,
    /// Why power modes cannot be switched by anybody; `None` where they can, or nobody tells.
    pub modes_unavailable: Option<String>,
}

pub async fn answer(dashboard: &Dashboard) -> Value {
    let mut client = dashboard.client.another(TIME.min(dashboard.timeout));
    let (board, control) = tokio::join!(client.get("/v1/board"), control(dashboard));
    let board: Option<Value> = board.ok().and_then(|answer| answer.parse().ok());
    let simulated = board.as_ref().and_then(|board| board.get("simulated")).cloned().unwrap_or(Value::Null);
    // The one that answers, or the best place to look.
    let socket = client.addresses().first().map(|address| address.of(Socket::Query).display().to_string());
    let started = dashboard.started.duration_since(UNIX_EPOCH).map(|time| time.as_secs()).ok();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "socket": socket,
        "control": control,
        "simulated": simulated,
        "started_unix_s": started,
    })
}

/// Whether the control socket opens for this user and the daemon takes commands there.
pub async fn control(dashboard: &Dashboard) -> Control {
    let mut client = dashboard.client.another(TIME.min(dashboard.timeout));
    let none = |error: &ClientError, modes_unavailable| {
        let reason = error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"));
        Control { available: false, reason: Some(reason), calibration_available: false, modes_unavailable }
    };
    let holds: HoldsAnswer = match client.get("/v1/holds").await.and_then(|answer| answer.parse()) {
        Ok(holds) => holds,
        Err(error) => return none(&error, None),
    };
    if let Err(error) = client.reach(Socket::Control).await {
        return none(&error, holds.unavailable);
    }
    let disabled = || format!("control is disabled; {}", how_to_enable_control());
    Control {
        available: holds.control_enabled,
        reason: (!holds.control_enabled).then(disabled),
        calibration_available: holds.control_enabled || is_of_daemon(&client),
        modes_unavailable: holds.unavailable,
    }
}

/// Whether this user is root, or the one who runs the daemon: its socket is that user's.
fn is_of_daemon(client: &Client) -> bool {
    let user = rustix::process::geteuid();
    let socket = client.addresses().first().map(|address| address.of(Socket::Control));
    let owner = socket.and_then(|path| std::fs::metadata(path).ok()).map(|found| found.uid());
    user.is_root() || owner == Some(user.as_raw())
}
