//! `GET /v1/board`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /v1/board`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BoardAnswer {
    /// Key in the hardware registry.
    pub key: String,
    /// What was assumed when the machine was taken for `key`, and what of it speaks against that, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Model name.
    pub model: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Part number of the module, such as `p3767-0005-super`; of Jetsons only.
    #[serde(default)]
    pub module: Option<String>,
    /// Release of NVIDIA's board support, such as `36.4.3`; of Jetsons only.
    #[serde(default)]
    pub l4t: Option<String>,
    /// The GPU: `name`, `driver` (`devfreq` or `nvml`), `driver_version`, `sm_total`, `max_hz`, `clocks_hz`.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::BoardGpu>))]
    pub gpu: Option<serde_json::Value>,
    /// Accelerators, the GPU first where there is one.
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::BoardAccelerator>))]
    pub accelerators: Vec<serde_json::Value>,
    /// The processor.
    #[cfg_attr(test, schema(value_type = crate::schema::BoardCpu))]
    pub cpu: serde_json::Value,
    /// Size of the memory.
    #[cfg_attr(test, schema(value_type = crate::schema::BoardMemory))]
    pub memory: serde_json::Value,
    /// Power modes; empty where the machine has none.
    pub modes: Vec<ModeAnswer>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Which file each value came from.
    pub sources: BTreeMap<String, String>,
    /// Why a value is null, by field.
    pub reasons: BTreeMap<String, String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// A power mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModeAnswer {
    /// Its number.
    pub id: u32,
    /// Name for people.
    pub name: String,
}
