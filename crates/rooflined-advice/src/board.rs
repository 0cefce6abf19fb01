//! The machine and its state.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::details;
use rooflined_api::{BoardAnswer, ModeAnswer, StateAnswer, StateField};
use rooflined_core::board::{Load, Pressure, Rail, Reading, ThermalZone};
use rooflined_core::configuration::gpu_as_accelerator;
use rooflined_core::hardware::Kind;
use rooflined_core::units::Hertz;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::{Now, Snapshot};

const NO_CACHES: &str = "no /sys/devices/system/cpu/cpu0/cache/index*/size is visible here";
const NO_RATIO: &str =
    "a part of the time since the sample before needs two readings of /proc/stat and ticks between them";
const NO_CPU_PRESSURE: &str = "/proc/pressure/cpu is not there, or has no line `some avg10=…`";

/// A card by whose entry the board is named, and that predictions are not about.
fn unused_card(snapshot: &Snapshot) -> Option<String> {
    let hardware = snapshot.hardware.as_deref()?;
    let is_unused = snapshot.accelerator == Accelerator::Cpu
        && hardware.kind == Kind::Discrete
        && hardware.key == snapshot.board.key;
    let name = &hardware.name;
    is_unused.then(|| {
        format!(
            "ceilings and predictions are about the CPU; {} makes them about the {name}",
            gpu_as_accelerator()
        )
    })
}

/// `GET /v1/board`.
pub fn board(snapshot: &Snapshot) -> BoardAnswer {
    let board = &snapshot.board;
    let cpu = &board.cpu;
    let caches: Vec<Value> = cpu
        .caches
        .iter()
        .map(|cache| {
            json!({
                "level": cache.level, "kind": cache.kind, "size_bytes": cache.size_bytes,
                "shared_by": cache.shared_by, "instances": cache.instances,
            })
        })
        .collect();
    let precisions: Vec<&str> =
        snapshot.precisions().map(rooflined_core::precision::Precision::key).collect();
    let gpu = board.gpu.known();
    let mut accelerators = vec![json!({
        "kind": "cpu", "name": cpu.model.known(), "workers": snapshot.roofline.workers,
        "precisions": precisions,
    })];
    if let Some(gpu) = gpu {
        accelerators
            .insert(0, json!({ "kind": "gpu", "name": gpu.name.known(), "sm_total": gpu.sm_total.known() }));
    }
    let reasons = [
        ("model", board.model.reason()),
        ("kernel", board.kernel.reason()),
        ("os", board.os.reason()),
        ("cpu.model", cpu.model.reason()),
        ("cpu.cores", cpu.cores.reason()),
        ("cpu.max_hz", cpu.max_clock.reason()),
        ("memory.total_bytes", board.memory_total.reason()),
        ("modes", board.modes.reason()),
        ("module", board.module.reason()),
        ("l4t", board.l4t.reason()),
        ("cpu.last_level_cache_bytes", cpu.last_level_cache_bytes().is_none().then_some(NO_CACHES)),
        ("accelerators.cpu.name", cpu.model.reason()),
        ("accelerators.gpu.name", gpu.and_then(|gpu| gpu.name.reason())),
        ("accelerators.gpu.sm_total", gpu.and_then(|gpu| gpu.sm_total.reason())),
        ("gpu", board.gpu.reason()),
        ("gpu.name", gpu.and_then(|gpu| gpu.name.reason())),
        ("gpu.sm_total", gpu.and_then(|gpu| gpu.sm_total.reason())),
        ("gpu.max_hz", gpu.and_then(|gpu| gpu.max_clock.reason())),
        ("gpu.driver_version", gpu.and_then(|gpu| gpu.driver_version.reason())),
    ];
    BoardAnswer {
        key: board.key.clone(),
        notes: board.notes.iter().cloned().chain(unused_card(snapshot)).collect(),
        model: board.model.known().cloned(),
        kernel: board.kernel.known().cloned(),
        os: board.os.known().cloned(),
        module: board.module.known().cloned(),
        l4t: board.l4t.known().cloned(),
        gpu: gpu.map(|gpu| {
            json!({
                "name": gpu.name.known(), "driver": gpu.driver, "driver_version": gpu.driver_version.known(),
                "sm_total": gpu.sm_total.known(), "max_hz": gpu.max_clock.known(), "clocks_hz": gpu.clocks,
            })
        }),
        accelerators,
        cpu: json!({
            "model": cpu.model.known(), "architecture": cpu.architecture, "logical": cpu.logical,
            "cores": cpu.cores.known(), "max_hz": cpu.max_clock.known(), "caches": caches,
            "last_level_cache_bytes": cpu.last_level_cache_bytes(), "features": cpu.features,
        }),
        memory: json!({ "total_bytes": board.memory_total.known(), "unified": board.unified_memory }),
        modes: board
            .power_modes()
            .iter()
            .map(|mode| ModeAnswer { id: mode.id, name: mode.name.clone() })
            .collect(),
        simulated: board.simulated,
        sources: board.sources.clone(),
        reasons: reasons
            .into_iter()
            .filter_map(|(field, reason)| Some((field.to_owned(), reason?.to_owned())))
            .collect(),
        serial: snapshot.serial,
    }
}

/// `GET /v1/state`.
#[must_use]
pub fn state(snapshot: &Snapshot, now: Now) -> StateAnswer {
    let state = &snapshot.state;
    let age = (now.boottime - state.taken_at).get().max(0.0);
    let number = |reading: &Reading<Hertz>| field(reading, age, |clock| json!(clock));
    let fields = [
        (
            "power_mode",
            field(&state.power_mode, age, |mode| {
                let mut mode = json!({ "id": mode.id, "name": mode.name });
                if let Some(note) = &state.mode_note {
                    mode["note"] = json!(note);
                }
                mode
            }),
        ),
        ("cores_online", field(&state.cores_online, age, |cores| json!(cores))),
        ("cpu_hz", field(&state.cpu_clocks, age, |clocks| json!(clocks))),
        ("cpu_cap_hz", number(&state.cpu_clock_cap)),
        ("gpu_hz", number(&state.gpu_clock)),
        ("gpu_cap_hz", number(&state.gpu_clock_cap)),
        ("gpu_load_ratio", field(&state.gpu_load, age, |load| json!(load))),
        ("sm_online", field(&state.sm_online, age, |count| json!(count))),
        ("tpc_mask", field(&state.tpc_mask, age, |mask| json!(mask))),
        ("memory_hz", number(&state.memory_clock)),
        ("memory_cap_hz", number(&state.memory_clock_cap)),
        ("total_power_w", field(&state.total_power, age, |total| json!(total.power))),
        (
            "total_power_of",
            field(&state.total_power, age, |total| json!({ "scope": total.scope, "rails": total.rails })),
        ),
        (
            "temperatures_c",
            named(&state.temperatures, age, |zone: &ThermalZone| (&zone.name, &zone.temperature)),
        ),
        ("rails_w", named(&state.rails, age, |rail: &Rail| (&rail.name, &rail.power))),
        (
            "memory_bytes",
            field(&state.memory, age, |memory| {
                json!({
                    "total": memory.total, "available": memory.available, "free": memory.free,
                    "swap_used": memory.swap_used,
                })
            }),
        ),
        ("load", {
            let open = |load: &Load| {
                let ratios = [("busy_ratio", load.busy_ratio), ("steal_ratio", load.steal_ratio)];
                ratios
                    .into_iter()
                    .filter(|(_, ratio)| ratio.is_none())
                    .map(|(key, _)| (key, NO_RATIO))
                    .collect()
            };
            with_reasons(field(&state.load, age, |load| json!(load)), &state.load, open)
        }),
        ("pressure", {
            let open = |pressure: &Pressure| {
                let open = pressure.cpu_some_ratio.is_none().then_some(("cpu_some_ratio", NO_CPU_PRESSURE));
                open.into_iter().collect()
            };
            with_reasons(field(&state.pressure, age, |pressure| json!(pressure)), &state.pressure, open)
        }),
        ("throttle", field(&state.throttle, age, |throttle| json!(throttle))),
    ];
    let fields = fields.into_iter().chain(details::fields(state, now.boottime));
    let fields: BTreeMap<_, _> = fields.map(|(name, field)| (name.to_owned(), field)).collect();
    StateAnswer {
        sources: details::sources(&snapshot.board.sources, fields.keys()),
        fields,
        simulated: snapshot.board.simulated,
        degraded: snapshot.degraded_lines(),
        serial: snapshot.serial,
    }
}

fn field<T>(reading: &Reading<T>, age: f64, show: impl FnOnce(&T) -> Value) -> StateField {
    let known = reading.known();
    StateField {
        value: known.map_or(Value::Null, show),
        age_s: known.map(|_| age),
        reason: reading.reason().map(ToOwned::to_owned),
        reasons: BTreeMap::new(),
    }
}

/// A list of sensors as an object by name, with the reason of each that tells nothing.
fn named<T, V: Serialize>(
    reading: &Reading<Vec<T>>,
    age: f64,
    part: impl Fn(&T) -> (&String, &Reading<V>),
) -> StateField {
    let shown = |all: &Vec<T>| {
        let parts = all.iter().map(&part);
        parts.map(|(name, value)| (name.clone(), json!(value.known()))).collect()
    };
    let reasons = reading.known().into_iter().flatten().filter_map(|one| {
        let (name, value) = part(one);
        Some((name.clone(), value.reason()?.to_owned()))
    });
    StateField { reasons: reasons.collect(), ..field(reading, age, shown) }
}

fn with_reasons<T>(
    field: StateField,
    reading: &Reading<T>,
    open: impl Fn(&T) -> Vec<(&'static str, &'static str)>,
) -> StateField {
    let reasons = reading.known().map(open).unwrap_or_default().into_iter();
    StateField { reasons: reasons.map(|(key, why)| (key.to_owned(), why.to_owned())).collect(), ..field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::units::{Celsius, Watts};

    #[test]
    fn a_null_inside_a_value_has_its_reason_beside_it() {
        let zone = |name: &str, temperature| ThermalZone { name: name.into(), temperature };
        let zones = Reading::Known(vec![
            zone("cpu", Reading::Known(Celsius(40.0))),
            zone("cv0", Reading::absent("the sensor is off")),
        ]);
        let shown = named(&zones, 1.0, |zone: &ThermalZone| (&zone.name, &zone.temperature));
        let expected = json!({"value": {"cpu": 40.0, "cv0": null}, "age_s": 1.0, "reasons": {"cv0": "the sensor is off"}});
        assert_eq!(json!(shown), expected);
        let rails: Reading<Vec<Rail>> = Reading::absent("no power sensor");
        let shown = named(&rails, 1.0, |rail: &Rail| (&rail.name, &rail.power));
        assert_eq!(json!(shown), json!({"value": null, "reason": "no power sensor"}));
        let rail =
            Rail { name: "VDD_GPU".into(), power: Reading::Known(Watts(-0.392)), energy: None, read: None };
        let shown = named(&Reading::Known(vec![rail]), 1.0, |rail: &Rail| (&rail.name, &rail.power));
        assert_eq!(json!(shown), json!({"value": {"VDD_GPU": -0.392}, "age_s": 1.0}));
    }

    #[test]
    fn a_card_that_predictions_are_not_about_is_said_to_be_left_out() {
        let notes = |accelerator| {
            let hardware = rooflined_core::hardware::registry().get("rtx-4090").unwrap().clone();
            let mut snapshot = Snapshot::hypothetical(std::sync::Arc::new(hardware));
            snapshot.accelerator = accelerator;
            board(&snapshot).notes
        };
        assert!(notes(Accelerator::Cpu).iter().any(|note| note.contains("predictions are about the CPU")));
        assert!(!notes(Accelerator::Gpu).iter().any(|note| note.contains("predictions are about the CPU")));
    }

    #[test]
    fn no_null_of_a_state_is_without_a_reason() {
        fn nulls(value: &Value) -> usize {
            match value {
                Value::Null => 1,
                Value::Object(fields) => fields.values().map(nulls).sum(),
                Value::Array(values) => values.iter().map(nulls).sum(),
                _ => 0,
            }
        }
        let hardware =
            rooflined_core::hardware::registry().get("jetson-orin-nano-8gb-super").unwrap().clone();
        let mut snapshot = Snapshot::hypothetical(std::sync::Arc::new(hardware));
        snapshot.state.load =
            Reading::Known(Load { average_1m: 1.0, busy_ratio: None, steal_ratio: Some(0.0) });
        snapshot.state.pressure = Reading::Known(Pressure { memory_some_ratio: 0.0, cpu_some_ratio: None });
        let temperature = Reading::failed("it does not answer");
        snapshot.state.temperatures = Reading::Known(vec![ThermalZone { name: "tj".into(), temperature }]);
        let now = Now { boottime: rooflined_core::units::Seconds(1.0), unix_s: 1e9 };
        let mut found = 0;
        for (name, field) in state(&snapshot, now).fields {
            let reasons = usize::from(field.reason.is_some()) + field.reasons.len();
            assert_eq!(nulls(&field.value), reasons, "{name}: {field:?}");
            found += field.reasons.len();
        }
        assert_eq!(found, 6, "one each of load, pressure and temperatures, three of software");
    }
}
