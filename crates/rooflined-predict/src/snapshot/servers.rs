//! Servers that somebody watches, each by its newest report.

use serde_json::Value;

/// A server by its newest report.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedServer {
    /// Its name for people.
    pub name: String,
    /// The one user who is shown it; `None` = everybody is.
    pub viewer: Option<u32>,
    /// When it was reported, in seconds since 1970.
    pub reported_unix_s: f64,
    /// Why nothing was learned from the report; `None` where it was.
    pub not_learned: Option<String>,
    /// What ran and how it compares with what was expected before the report was learned from, as the interface writes it.
    pub judged: Value,
}
