//! `GET /v1/servers`.

use serde::{Deserialize, Serialize};

use super::ExplainAnswer;
use rooflined_core::names::Engine;

/// `GET /v1/servers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ServersAnswer {
    /// Servers that were reported in the last hour, by name.
    pub servers: Vec<ServerEntry>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// A server by its newest report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ServerEntry {
    /// Its name: `server` of the report.
    pub server: String,
    /// When it was reported, in seconds since 1970.
    pub reported_at_unix_s: f64,
    /// Who is shown it: `everyone`, or `own` (the user who reported it).
    #[cfg_attr(test, schema(value_type = crate::schema::Moves))]
    pub shown_to: String,
    /// Why nothing was learned from the report; `null` where it was.
    pub not_learned: Option<String>,
    /// What ran and how it compares.
    #[serde(flatten)]
    pub judged: JudgedServer,
}

/// What ran in a server, beside what was expected of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct JudgedServer {
    /// Inference engine.
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Key or path of the model; `null` for an operation or a model given by its fields.
    pub model: Option<String>,
    /// Weight format; `null` = the model's own.
    pub format: Option<String>,
    /// Sequences at once; `null` = 1.
    pub batch: Option<u64>,
    /// Tokens in the cache of each; `null` where they were not reported.
    pub context_tokens: Option<u64>,
    /// The report as `POST /v1/explain` answers it, before anything was learned from it.
    pub explained: ExplainAnswer,
}
