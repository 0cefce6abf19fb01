//! Where the log goes: to journald with its fields when systemd connected standard error to it, else to standard
//! error as text. Fields carry no prefix: `journalctl EVENT=switch TO=25W` finds what docs/internals/journal.md lists.
//! `ROOFLINED_LOG` takes levels for all or for one crate, such as `debug` or `info,rooflined=trace`.

use std::env;
use std::io::{IsTerminal, stderr};

use rustix::fs::fstat;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use rooflined_governor::{AuditRecord, Severity};

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
    let journal = journal.map(|layer| layer.with_field_prefix(None));
    let text = journal.is_none().then(|| {
        let layer = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false);
        layer.with_ansi(stderr().is_terminal())
    });
    let set = tracing_subscriber::registry().with(filter).with(journal).with(text).try_init();
    if set.is_ok()
        && let Some(error) = problem
    {
        tracing::warn!(%error, "{VARIABLE}={asked:?} is not a filter, using \"info\"; try \"debug\"");
    }
}

/// A line about what was done to the machine, with the fields of its record and the serial of the snapshot it was done on.
pub fn audit(severity: Severity, message: &str, record: &AuditRecord, serial: u64) {
    let AuditRecord { event, from, to, cause, outcome, uid, hold, reason, count } = record;
    let (event, from, to) = (event.key(), from.as_deref(), to.as_deref());
    let (hold, reason) = (hold.as_deref(), reason.as_deref());
    // The level of a line is fixed where it stands.
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(event, from, to, cause, outcome, uid, hold, reason, count, serial, "{message}")
        };
    }
    match severity {
        Severity::Info => line!(info),
        Severity::Warning => line!(warn),
        Severity::Error => line!(error),
    }
}

/// Whether standard error is the stream that `JOURNAL_STREAM` names: a child whose output was redirected inherits
/// the variable and not the stream.
fn connected_to_journal() -> bool {
    let Ok(named) = env::var("JOURNAL_STREAM") else { return false };
    fstat(stderr()).is_ok_and(|file| named == format!("{}:{}", file.st_dev, file.st_ino))
}
