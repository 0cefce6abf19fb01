//! The machine and its state.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use decide::snapshot::{Now, Snapshot};
use roofline::board::{Reading, ThermalZone};
use roofline::units::Hertz;
use wire::{BoardAnswer, ModeAnswer, StateAnswer, StateField};

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
    let precisions: Vec<&str> = snapshot.precisions().map(roofline::precision::Precision::key).collect();
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
        ("gpu", board.gpu.reason()),
        ("gpu.name", gpu.and_then(|gpu| gpu.name.reason())),
        ("gpu.sm_total", gpu.and_then(|gpu| gpu.sm_total.reason())),
        ("gpu.max_hz", gpu.and_then(|gpu| gpu.max_clock.reason())),
        ("gpu.driver_version", gpu.and_then(|gpu| gpu.driver_version.reason())),
    ];
    BoardAnswer {
        key: board.key.clone(),
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
    let zones = |zones: &Vec<ThermalZone>| -> Value {
        zones.iter().map(|zone| (zone.name.clone(), json!(zone.temperature.known()))).collect()
    };
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
        ("temperatures_c", field(&state.temperatures, age, zones)),
        (
            "rails_w",
            field(&state.rails, age, |rails| {
                rails.iter().map(|rail| (rail.name.clone(), json!(rail.power.known()))).collect()
            }),
        ),
        (
            "memory_bytes",
            field(&state.memory, age, |memory| {
                json!({
                    "total": memory.total, "available": memory.available, "free": memory.free,
                    "swap_used": memory.swap_used,
                })
            }),
        ),
        ("load", field(&state.load, age, |load| json!(load))),
        ("pressure", field(&state.pressure, age, |pressure| json!(pressure))),
        ("throttle", field(&state.throttle, age, |throttle| json!(throttle))),
    ];
    StateAnswer {
        fields: fields.map(|(name, field)| (name.to_owned(), field)).into_iter().collect::<BTreeMap<_, _>>(),
        simulated: snapshot.board.simulated,
        degraded: snapshot.degraded_lines(),
        serial: snapshot.serial,
    }
}

fn field<T>(reading: &Reading<T>, age: f64, show: impl FnOnce(&T) -> Value) -> StateField {
    match reading.known() {
        Some(value) => StateField { value: show(value), age_s: Some(age), reason: None },
        None => {
            StateField { value: Value::Null, age_s: None, reason: reading.reason().map(ToOwned::to_owned) }
        }
    }
}
