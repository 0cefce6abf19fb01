//! The signals that ask this process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for one of them and returns its name. They are caught from this call on, not from the first poll, because a user may
/// send one as soon as something is printed. A hangup that was ignored when this program began stays ignored: nohup has the program outlive
/// its terminal.
pub fn wait_for_signal() -> impl Future<Output = &'static str> {
    let hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
    let interrupt = wait_for(signal(SignalKind::interrupt()).ok(), "SIGINT");
    let terminate = wait_for(signal(SignalKind::terminate()).ok(), "SIGTERM");
    let hangup = wait_for(hangup, "SIGHUP");
    async {
        tokio::select! {
            name = interrupt => name,
            name = terminate => name,
            name = hangup => name,
        }
    }
}

async fn wait_for(signal: Option<Signal>, name: &'static str) -> &'static str {
    match signal {
        Some(mut signal) => {
            signal.recv().await;
            name
        }
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP was ignored when this program began; false where the kernel does not say.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Bit n - 1 is signal n.
    mask >> (SignalKind::hangup().as_raw_value() - 1) & 1 == 1
}
