//! What people watch on a machine beside what answers rest on.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use rooflined_api::StateField;
use rooflined_core::board::details::{Details, Engine, Fan, GpuControl};
use rooflined_core::board::{BoardState, Reading};
use rooflined_core::units::Seconds;

/// Fields of the answer whose name is not that in the state.
const NAMES: [(&str, &str); 17] = [
    ("cpu_hz", "cpu_clocks"),
    ("cpu_cap_hz", "cpu_clock_cap"),
    ("gpu_hz", "gpu_clock"),
    ("gpu_cap_hz", "gpu_clock_cap"),
    ("gpu_load_ratio", "gpu_load"),
    ("memory_hz", "memory_clock"),
    ("memory_cap_hz", "memory_clock_cap"),
    ("total_power_w", "rails"),
    ("total_power_of", "rails"),
    ("temperatures_c", "temperatures"),
    ("rails_w", "rails"),
    ("memory_bytes", "memory"),
    ("emc_utilisation_ratio", "emc_utilisation"),
    ("gpu_shared_memory_bytes", "gpu_shared_memory"),
    ("software.jetpack", "jetpack"),
    ("software.cuda", "cuda"),
    ("software.tensorrt", "tensorrt"),
];

/// The files that the fields of a state come from, by the names of the answer. `of_board` has them by those of the
/// state.
pub(super) fn sources<'a>(
    of_board: &BTreeMap<String, String>,
    names: impl IntoIterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let own = |name: &str| {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(|| name.to_owned(), |(_, own)| (*own).to_owned())
    };
    let parts = ["jetpack", "cuda", "tensorrt"].map(|part| format!("software.{part}"));
    let all = names.into_iter().cloned().chain(parts);
    all.filter_map(|name| Some((name.clone(), of_board.get(&format!("state.{}", own(&name)))?.clone())))
        .collect()
}

/// An object under construction, and why some of its values are null.
#[derive(Default)]
struct Parts {
    /// Stands before the keys of reasons.
    prefix: String,
    values: Map<String, Value>,
    reasons: BTreeMap<String, String>,
}

impl Parts {
    fn of(name: &str) -> Self {
        Self { prefix: format!("{name}."), ..Self::default() }
    }

    fn plain(mut self, key: &str, value: impl Serialize) -> Self {
        self.values.insert(key.to_owned(), json!(value));
        self
    }

    fn reading<T: Serialize>(mut self, key: &str, reading: &Reading<T>) -> Self {
        if let Some(reason) = reading.reason() {
            self.reasons.insert(format!("{}{key}", self.prefix), reason.to_owned());
        }
        self.plain(key, reading.known())
    }
}

/// How old a field is: as old as the state, but for what is not read at every sample.
struct Ages<'a> {
    state: &'a BoardState,
    boottime: Seconds,
}

impl Ages<'_> {
    fn of(&self, field: &str) -> f64 {
        let at = self.state.details.read_at.get(field).copied().unwrap_or(self.state.taken_at);
        // Nothing of a state is newer than it, whatever the clocks of its files say.
        (self.boottime - at.min(self.state.taken_at)).get().max(0.0)
    }

    fn value<T>(&self, field: &str, reading: &Reading<T>, show: impl FnOnce(&T) -> Value) -> StateField {
        let known = reading.known();
        StateField {
            value: known.map_or(Value::Null, show),
            age_s: known.map(|_| self.of(field)),
            reason: reading.reason().map(ToOwned::to_owned),
            reasons: BTreeMap::new(),
        }
    }

    /// A list of objects, each with the reasons of what is null in it.
    fn list<T>(&self, field: &str, reading: &Reading<Vec<T>>, part: impl Fn(&T) -> Parts) -> StateField {
        let mut reasons = BTreeMap::new();
        let shown = self.value(field, reading, |all| {
            let parts = all.iter().map(|one| {
                let parts = part(one);
                reasons.extend(parts.reasons);
                Value::Object(parts.values)
            });
            parts.collect()
        });
        StateField { reasons, ..shown }
    }
}

/// The fields with their names.
pub(super) fn fields(state: &BoardState, boottime: Seconds) -> [(&'static str, StateField); 15] {
    let ages = Ages { state, boottime };
    let details = &state.details;
    [
        (
            "cores",
            ages.list("cores", &details.cores, |core| {
                Parts::of(&format!("cpu{}", core.cpu))
                    .plain("cpu", core.cpu)
                    .reading("busy_ratio", &core.busy_ratio)
                    .reading("min_hz", &core.min_clock)
                    .reading("max_hz", &core.clock_cap)
                    .reading("governor", &core.governor)
            }),
        ),
        ("engines", ages.list("engines", &details.engines, engine)),
        (
            "emc_utilisation_ratio",
            ages.value("emc_utilisation", &details.emc_utilisation, |ratio| json!(ratio)),
        ),
        ("fans", ages.list("fans", &details.fans, fan)),
        ("fan_profile", ages.value("fan_profile", &details.fan_profile, |profile| json!(profile))),
        ("gpu_control", gpu_control(&ages, &details.gpu_control)),
        (
            "gpu_processes",
            ages.list("gpu_processes", &details.gpu_processes, |process| {
                Parts::of(&process.pid.to_string())
                    .plain("pid", process.pid)
                    .reading("name", &process.name)
                    .reading("memory_bytes", &process.memory)
            }),
        ),
        (
            "gpu_shared_memory_bytes",
            ages.value("gpu_shared_memory", &details.gpu_shared_memory, |bytes| json!(bytes)),
        ),
        (
            "free_blocks",
            ages.value(
                "free_blocks",
                &details.free_blocks,
                |blocks| json!({ "count": blocks.count, "size_bytes": blocks.size }),
            ),
        ),
        (
            "swap",
            ages.list("swap", &details.swap, |area| {
                Parts::default()
                    .plain("name", &area.name)
                    .plain("kind", &area.kind)
                    .plain("size_bytes", area.size)
                    .plain("used_bytes", area.used)
                    .plain("priority", area.priority)
            }),
        ),
        (
            "zram",
            ages.list("zram", &details.zram, |device| {
                Parts::default()
                    .plain("name", &device.name)
                    .plain("stored_bytes", device.stored)
                    .plain("compressed_bytes", device.compressed)
                    .plain("memory_bytes", device.memory)
            }),
        ),
        (
            "rail_meters",
            ages.list("rail_meters", &details.rail_meters, |meter| {
                Parts::of(&meter.name)
                    .plain("name", &meter.name)
                    .reading("voltage_v", &meter.volts)
                    .reading("current_a", &meter.amperes)
                    .reading("warning_a", &meter.warning_amperes)
                    .reading("critical_a", &meter.critical_amperes)
                    .reading("alarm", &meter.alarm)
                    .plain("source", &meter.source)
            }),
        ),
        (
            "device_temperatures",
            ages.list("device_temperatures", &details.device_temperatures, |device| {
                Parts::of(&device.name)
                    .plain("name", &device.name)
                    .reading("temperature_c", &device.temperature)
                    .reading("critical_c", &device.critical)
                    .plain("source", &device.source)
            }),
        ),
        (
            "jetson_clocks",
            ages.value("jetson_clocks", &details.jetson_clocks, |engaged| jetson_clocks(*engaged)),
        ),
        ("software", software(&ages, details)),
    ]
}

fn engine(engine: &Engine) -> Parts {
    Parts::of(&engine.name)
        .plain("name", &engine.name)
        .reading("clock_hz", &engine.clock)
        .reading("max_hz", &engine.clock_cap)
        .reading("on", &engine.on)
        .plain("source", &engine.source)
}

fn fan(fan: &Fan) -> Parts {
    Parts::of(&fan.name)
        .plain("name", &fan.name)
        .reading("duty_ratio", &fan.duty_ratio)
        .reading("speed_rpm", &fan.speed_rpm)
        .plain("source", &fan.source)
}

fn gpu_control(ages: &Ages<'_>, reading: &Reading<GpuControl>) -> StateField {
    let mut reasons = BTreeMap::new();
    let shown = ages.value("gpu_control", reading, |control| {
        let parts = Parts::default()
            .reading("governor", &control.governor)
            .reading("min_hz", &control.min_clock)
            .reading("railgate_enabled", &control.railgate_enabled)
            .reading("railgate_delay_s", &control.railgate_delay)
            .reading("railgated", &control.railgated)
            .reading("power_control", &control.power_control)
            .reading("scaling_3d", &control.scaling_3d)
            .reading("mask_fixed", &control.mask_fixed);
        reasons = parts.reasons;
        Value::Object(parts.values)
    });
    StateField { reasons, ..shown }
}

/// What the traces of jetson_clocks cannot be told from is said beside them.
fn jetson_clocks(engaged: bool) -> Value {
    let mut value = json!({ "engaged": engaged });
    if engaged {
        value["note"] = json!(
            "a power mode whose caps are the lowest clocks, on a GPU that is kept awake, looks the same; \
             the lock on the memory clock is for root only and was not looked at"
        );
    }
    value
}

fn software(ages: &Ages<'_>, details: &Details) -> StateField {
    let parts = Parts::default()
        .reading("jetpack", &details.jetpack)
        .reading("cuda", &details.cuda)
        .reading("tensorrt", &details.tensorrt);
    StateField {
        age_s: Some(ages.of("software")),
        value: Value::Object(parts.values),
        reason: None,
        reasons: parts.reasons,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::details::Core;
    use rooflined_core::units::Hertz;

    #[test]
    fn a_null_in_a_list_has_its_reason_and_an_old_value_its_age() {
        let mut state = BoardState::unknown(Seconds(100.0), "nothing was read");
        state.details.engines = Reading::Known(vec![Engine {
            name: "VIC".into(),
            clock: Reading::absent("it is off"),
            clock_cap: Reading::Known(Hertz(7.3e8)),
            on: Reading::Known(false),
            source: "/sys/class/devfreq/15340000.vic".into(),
        }]);
        state.details.read_at.insert("engines", Seconds(97.0));
        state.details.cores = Reading::Known(vec![Core {
            cpu: 3,
            busy_ratio: Reading::Known(0.5),
            min_clock: Reading::Known(Hertz(7e8)),
            clock_cap: Reading::Known(Hertz(1e9)),
            governor: Reading::absent("no governor"),
        }]);
        let fields: BTreeMap<_, _> = fields(&state, Seconds(101.0)).into_iter().collect();
        assert_eq!(fields["engines"].value[0]["clock_hz"], Value::Null);
        assert_eq!(fields["engines"].reasons["VIC.clock_hz"], "it is off");
        assert_eq!(fields["engines"].age_s, Some(4.0));
        assert_eq!(fields["cores"].age_s, Some(1.0));
        assert_eq!(fields["cores"].reasons["cpu3.governor"], "no governor");
        assert_eq!(fields["fans"].reason.as_deref(), Some("nothing was read"));
        assert_eq!(fields["software"].reasons.len(), 3);
    }

    #[test]
    fn every_name_of_a_source_is_a_field_of_a_state() {
        let state = json!(BoardState::unknown(Seconds::ZERO, ""));
        for (_, field) in NAMES {
            assert!(state.get(field).is_some(), "{field}");
        }
    }
}
