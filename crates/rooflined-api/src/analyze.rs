//! `POST /v1/analyze`.

use serde::{Deserialize, Serialize};

use super::{OperatingPointRequest, PredictAnswer, Workload, nullable};
use rooflined_core::names::Engine;

/// `POST /v1/analyze`: a workload and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AnalyzeRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Workload that ran: one operation or one model.
    pub workload: Workload,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Measured time of one run (operation), or of one step, prompt or answer (model); give this or `tokens_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Measured rate over the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
}

/// `POST /v1/analyze`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct AnalyzeAnswer {
    /// Operations over the measured time.
    pub achieved_flops_per_s: f64,
    /// Traffic over the measured time.
    pub achieved_bytes_per_s: f64,
    /// Physical bound over measured time: 1 = at the ceiling.
    pub ceiling_ratio: f64,
    /// Predicted over measured time.
    pub predicted_ratio: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    #[cfg_attr(test, schema(value_type = crate::schema::Bound))]
    pub bound: String,
    /// The limiting ceiling, as `limit` of a prediction.
    #[cfg_attr(test, schema(value_type = crate::schema::Limit))]
    pub limit: String,
    /// `impossible`, `at_ceiling`, `as_predicted`, `slower_than_predicted` or `faster_than_predicted`.
    #[cfg_attr(test, schema(value_type = crate::schema::Verdict))]
    pub verdict: String,
    /// The verdict in a sentence with its numbers.
    pub reason: String,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Prediction for the same workload.
    pub prediction: PredictAnswer,
}
