//! `GET /v1/calibration` and `POST /v1/calibrate`.

use serde::{Deserialize, Serialize};

use super::nullable;
use rooflined_core::names::PlanKind;

/// `POST /v1/calibrate` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CalibrateRequest {
    /// Extent of the measurements: `quick` (about two seconds) or `full`.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::PlanKind))]
    pub plan: PlanKind,
    /// Answer when it has finished rather than when it has started.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub wait: bool,
    /// Run even though the load or temperature gate advises against it.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub force: bool,
}

/// `GET /v1/calibration`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CalibrationAnswer {
    /// The current record; `null` if this machine was never calibrated.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::CalibrationRecord>))]
    pub record: serde_json::Value,
    /// Age of the record; `null` without one.
    pub age_s: Option<f64>,
    /// What is running, waiting or failed.
    #[cfg_attr(test, schema(value_type = crate::schema::CalibrationStatus))]
    pub status: serde_json::Value,
    /// What was learned from observations.
    pub residuals: Vec<ResidualAnswer>,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// `POST /v1/calibrate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CalibrateAnswer {
    /// Number of the job; follow it in `GET /v1/events` or `GET /v1/calibration`.
    pub job: u64,
    /// Whether it has finished; false where the request did not wait for it.
    pub finished: bool,
}

/// What was learned of operations from reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ResidualAnswer {
    /// Engine that ran.
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: String,
    /// Kind of the operation.
    #[cfg_attr(test, schema(value_type = crate::schema::OpKind))]
    pub op: String,
    /// Storage of the weights.
    pub format: String,
    /// Number of reports.
    pub count: u32,
    /// Measured over predicted time.
    pub factor_ratio: f64,
    /// Mean of its logarithm without outliers.
    pub log_mean: f64,
    /// Variance of its logarithm.
    pub log_variance: f64,
}
