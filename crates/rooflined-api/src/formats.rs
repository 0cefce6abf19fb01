//! `GET /v1/formats`.

use serde::{Deserialize, Serialize};

/// A storage format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct FormatAnswer {
    /// Key that requests name it by.
    pub key: String,
    /// Bits per weight, scales included.
    pub bits_per_weight: f64,
    /// Weights in a storage block.
    pub block_elements: u32,
    /// Bytes of a storage block.
    pub block_bytes: u32,
    /// What computes it where the unit exists.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub native_precision: String,
    /// What computes it on this machine; `null` where it has not been measured.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Precision>))]
    pub compute: Option<String>,
    /// Dequantization cost on this machine in cycles, per weight, worker and column; `null` where it has not been measured.
    pub cycles_per_weight: Option<f64>,
    /// Part of the bandwidth ceiling reached on this machine; `null` where it has not been measured.
    pub bandwidth_ratio: Option<f64>,
}

/// `GET /v1/formats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct FormatsAnswer {
    /// Every known format.
    pub formats: Vec<FormatAnswer>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
