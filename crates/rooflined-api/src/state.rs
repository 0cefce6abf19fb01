//! `GET /v1/state`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// A value with its age, or `null` with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StateField {
    /// The value: a number, a text, a truth, a list or an object, as the field has it; `null` where there is none.
    pub value: serde_json::Value,
    /// Age of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why a value inside the value is `null`, by its key there: a sensor that is off, a ratio that needs a second sample.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
}

/// `GET /v1/state`: fields by name (`power_mode`, `cores_online`, `cpu_hz`, `cpu_cap_hz`, `gpu_hz`, `gpu_cap_hz`,
/// `gpu_load_ratio`, `sm_online`, `tpc_mask`, `memory_hz`, `memory_cap_hz`, `temperatures_c`, `rails_w`,
/// `total_power_w`, `total_power_of`, `memory_bytes`, `load`, `pressure`, `throttle`). The load of a GPU is that of a short window:
/// average ten of them and more. Powers of rails keep the sign that the sensor tells: near zero one may be negative. Of zones
/// or rails with one name all but the first have their place behind it (`acpitz`, `acpitz-1`, `VDD_IN-1-0041.1`).
///
/// What no answer rests on: `cores` (`busy_ratio`, `min_hz`, `max_hz`, `governor` of each CPU), `engines` (`clock_hz`,
/// `max_hz`, `on`), `emc_utilisation_ratio`, `fans` (`duty_ratio`, `speed_rpm`), `fan_profile`, `gpu_control` (governor,
/// lowest clock, rail gating), `gpu_processes`, `gpu_shared_memory_bytes`, `free_blocks`, `swap`, `zram`, `rail_meters`
/// (`voltage_v`, `current_a`, limits, `alarm`), `device_temperatures`, `jetson_clocks`, `software` (JetPack, CUDA, TensorRT).
/// Some of it is read once in 1, 10 or 60 s; the age says when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StateAnswer {
    /// Fields by the names above, each with its age.
    #[serde(flatten, deserialize_with = "read_state_fields")]
    pub fields: BTreeMap<String, StateField>,
    /// Files that the fields come from, by the same names; absent for fields that no file holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Names of what does not work at present.
    pub degraded: Vec<String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// The members that have the shape of a field; a later daemon may add others.
fn read_state_fields<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, StateField>, D::Error> {
    let members = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let field = |(name, value)| Some((name, serde_json::from_value(value).ok()?));
    Ok(members.into_iter().filter_map(field).collect())
}
