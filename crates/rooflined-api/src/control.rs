//! Power modes and holds.

use serde::{Deserialize, Serialize};

use rooflined_core::hold::HoldConstraints;

use super::{RecommendRequest, nullable};

/// `POST /v1/mode` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// Name of the mode, or its number in digits.
    pub mode: String,
    /// Restore the previous mode unless it is confirmed within this time, 1 to 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<f64>,
    /// Report what would be done, and change nothing.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub dry_run: bool,
    /// In your own words, at most 128 characters.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub reason: String,
}

/// `POST /v1/mode/confirm` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfirmRequest {
    /// `confirm.id` of the switch.
    pub id: u64,
}

/// `POST /v1/mode/revert` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevertRequest {
    /// `confirm.id` of the switch; absent = whichever waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// `POST /v1/holds` and `POST /v1/holds/attached` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// What is needed of the mode itself.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::HoldConstraints))]
    pub constraints: HoldConstraints,
    /// A question as for `POST /v1/recommend` that the mode must have an answer to, on this machine: the mode that answers
    /// the queries of all holders at least energy is looked for. Needs `[policy] auto = "advise"` or `"switch"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<RecommendRequest>,
    /// Who holds, 1 to 128 characters; shown to everybody.
    pub app_id: String,
    /// Why, at most 128 characters; shown to everybody.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub reason: String,
    /// Ends by itself after this long, 1 to 604800. Required unless the hold is attached to its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<f64>,
}

/// `PUT /v1/holds/{id}` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// From now, 1 to 604800.
    pub ttl_s: f64,
}

/// What confirms a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfirmAnswer {
    /// For `POST /v1/mode/confirm`.
    pub id: u64,
    /// Time left until the previous mode is restored.
    pub within_s: f64,
}

/// What came of a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SwitchAnswer {
    /// `applied`; in a dry run also `reboot_required`, `refused` or `not_applied`.
    #[cfg_attr(test, schema(value_type = crate::schema::SwitchOutcome))]
    pub outcome: String,
    /// Name of the mode asked for.
    pub asked: String,
    /// Name of the previous mode; `null` where it was unknown.
    pub before: Option<String>,
    /// Name of the mode that the live files show; `null` where they match none.
    pub reached: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// True for a dry run: nothing was changed.
    pub dry_run: bool,
    /// What would be written, in order; filled for a dry run.
    pub writes: Vec<SwitchWrite>,
    /// Where the live files differ from the mode.
    pub differences: Vec<SwitchDifference>,
    /// Duration of the switch.
    pub took_s: f64,
    /// What confirms it; `null` where nothing needs to.
    pub confirm: Option<ConfirmAnswer>,
}

/// A file that a switch would write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SwitchWrite {
    /// Path of the file.
    pub path: String,
    /// Text that would be written.
    pub value: String,
}

/// A file that does not hold what the mode asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SwitchDifference {
    /// Path of the file.
    pub path: String,
    /// Text that the mode would have there.
    pub expected: String,
    /// Text that was found, or why the file could not be read.
    pub found: String,
}

/// A hold that has been taken or renewed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HeldAnswer {
    /// What releases it; shown to nobody else.
    pub id: u64,
    /// Name of the mode that it is held in.
    pub mode: String,
    /// That mode meets it; false only for a query while `[policy] auto = "advise"`.
    #[serde(default = "met")]
    pub satisfied: bool,
    /// Which mode would meet every hold at least energy; `null` where nobody holds with a query.
    #[serde(default)]
    pub advice: Option<HoldAdvice>,
    /// Time left; `null` where only its connection ends it.
    pub expires_in_s: Option<f64>,
}

const fn met() -> bool {
    true
}

/// The mode that meets every hold at least energy, and what the hold's query comes to in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HoldAdvice {
    /// Name of the mode, as the board calls it.
    pub mode: String,
    /// Tokens (columns) per second; `null` without a query, and where nothing tells.
    pub tokens_per_s: Option<f64>,
    /// Mean power in the mode; `null` where unknown.
    pub power_w: Option<f64>,
    /// Energy per token; `null` where unknown.
    pub energy_j_per_token: Option<f64>,
    /// Share of the energy of all queries that it saves over the active mode; negative if the active mode costs
    /// less and does not meet every hold. `null` where either is unknown.
    pub saving_ratio: Option<f64>,
}

/// Confirmation of a request that returns nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct DoneAnswer {
    /// Always `true`; what fails is an error.
    pub done: bool,
}

/// A hold as everybody may see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HoldAnswer {
    /// Name that the holder gave itself.
    pub app_id: String,
    /// Reason that the holder gave, for people.
    pub reason: String,
    /// Number of the user that asked.
    pub uid: u32,
    /// Requirements of the power mode that the holder named.
    #[cfg_attr(test, schema(value_type = crate::schema::HoldConstraints))]
    pub constraints: HoldConstraints,
    /// Its query as it was asked, a model's fields left out; `null` without one.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Option<RecommendRequest>))]
    pub query: Option<serde_json::Value>,
    /// Whether it ends with its connection rather than with time.
    pub attached: bool,
    /// The active mode meets it; false after somebody else switched, if no mode meets it together with older holds, and
    /// while the daemon only advises.
    pub satisfied: bool,
    /// Which constraint the active mode does not meet, and whose hold contradicts it; `null` if it is satisfied.
    #[serde(default)]
    pub unmet: Option<String>,
    /// Which mode would meet every hold at least energy; `null` if no hold has a query, and for a hold that no
    /// mode meets together with the older ones.
    #[serde(default)]
    pub advice: Option<HoldAdvice>,
    /// How long it has been active.
    pub age_s: f64,
    /// Time left; `null` where only its connection ends it.
    pub expires_in_s: Option<f64>,
    /// Time left for its client to come back after a restart of the daemon; `null` where nobody is waited for.
    #[serde(default)]
    pub waiting_s: Option<f64>,
}

/// A change that waits to be confirmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PendingAnswer {
    /// For `POST /v1/mode/confirm` and `POST /v1/mode/revert`.
    pub id: u64,
    /// Name of the mode that was entered.
    pub mode: String,
    /// Name of the mode that is restored unless the change is confirmed.
    pub original: String,
    /// Time left until the previous mode is restored.
    pub within_s: f64,
}

/// `GET /v1/holds`: who holds what, and why the active mode is active.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HoldsAnswer {
    /// Name of the active mode; `null` where nothing tells it.
    pub active_mode: Option<String>,
    /// `boot`, `user`, `hold`, `revert` or `external`.
    #[cfg_attr(test, schema(value_type = crate::schema::ModeCause))]
    pub cause: String,
    /// Target of a switch under way.
    pub switching: Option<String>,
    /// A change that waits to be confirmed.
    pub pending: Option<PendingAnswer>,
    /// Active holds, the oldest first.
    pub holds: Vec<HoldAnswer>,
    /// Value of `[control] enabled` in the configuration.
    pub control_enabled: bool,
    /// `[policy] auto`: `off`, `advise` or `switch`.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = crate::schema::Automatic))]
    pub auto: String,
    /// Why modes cannot be switched at all; `null` where they can.
    pub unavailable: Option<String>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
