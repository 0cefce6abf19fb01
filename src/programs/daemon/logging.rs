//! Where the log goes: to journald with its fields when systemd connected standard error to it, else to standard
//! error as text. `ROOFLINED_LOG` takes levels for all or for one crate, such as `debug` or `info,daemon=trace`.

use std::env;
use std::io::{IsTerminal, stderr};

use rustix::fs::fstat;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Filters of the log.
const VARIABLE: &str = "ROOFLINED_LOG";

/// Sets up the log of this process.
pub fn start() {
    let asked = env::var(VARIABLE).unwrap_or_default();
    let default = Targets::new().with_default(LevelFilter::INFO);
    let (filter, problem) = match asked.parse() {
        _ if asked.is_empty() => (default, None),
        Ok(filter) => (filter, None),
        Err(error) => (default, Some(error)),
    };
    let journal = if connected_to_journal() { tracing_journald::layer().ok() } else { None };
    let text = journal.is_none().then(|| {
        let layer = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false);
        layer.with_ansi(stderr().is_terminal())
    });
    let set = tracing_subscriber::registry().with(filter).with(journal).with(text).try_init();
    if set.is_ok()
        && let Some(error) = problem
    {
        tracing::warn!(%error, "{VARIABLE}={asked:?} is no filter, using \"info\"; try \"debug\"");
    }
}

/// Whether standard error is the stream that `JOURNAL_STREAM` names: a child whose output was redirected inherits
/// the variable and not the stream.
fn connected_to_journal() -> bool {
    let Ok(named) = env::var("JOURNAL_STREAM") else { return false };
    fstat(stderr()).is_ok_and(|file| named == format!("{}:{}", file.st_dev, file.st_ino))
}
