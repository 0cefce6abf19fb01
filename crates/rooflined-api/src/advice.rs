//! Re-evaluated answers: what a client is sent when its previous one no longer holds.

use serde::{Deserialize, Serialize};

use super::ErrorBody;

/// Event `advice_stale` of `POST /v1/recommend/watch`: the previous answer has changed, and event `recommend` with the
/// new one follows, unless it can no longer be answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct AdviceStale {
    /// What happened and what of the answer is altered, in a sentence with the numbers.
    pub reason: String,
    /// What happened: `mode`, `throttle`, `calibration`, `observations`, `clocks`, `ceilings`, `memory`, `modes` (which of
    /// them can be entered) or `other`.
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::StaleCause>))]
    pub causes: Vec<String>,
    /// What of the answer is altered.
    pub changes: Vec<AdviceChange>,
    /// Why it can no longer be answered; `null` where it can.
    pub error: Option<ErrorBody>,
    /// Serial of the snapshot that the previous answer was given from.
    pub was_serial: u64,
    /// Serial of the snapshot that changes it.
    pub serial: u64,
}

/// A field of a recommendation that changed, with its previous and its new value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct AdviceChange {
    /// Its place in the answer, such as `decision.format` or `decision.prediction.time_s`.
    pub field: String,
    /// Its value in the previous answer.
    pub told: serde_json::Value,
    /// Its value in the new answer.
    pub now: serde_json::Value,
}
