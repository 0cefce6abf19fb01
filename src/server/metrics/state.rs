//! Gauges of the machine's state, each made from a field of `GET /v1/state`.

use serde_json::Value;

use super::{Page, gauge, truth};
use rooflined_api::StateAnswer;

/// A family with a sample for a field of the state, or for each item of one that is a list.
struct Series {
    name: &'static str,
    help: &'static str,
    /// The field, and behind a slash the key of the value inside it.
    at: &'static str,
    /// Each label with the key of its text, likewise.
    labels: &'static [(&'static str, &'static str)],
}

const fn series(
    name: &'static str,
    at: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Series {
    Series { name, help, at, labels }
}

/// Key of an item itself.
const ITSELF: &str = "";
/// Key of the place of an item in its list.
const PLACE: &str = "#";

#[rustfmt::skip]
const SERIES: &[Series] = &[
    series("rooflined_power_mode_id", "power_mode/id", &[("name", "name")], "Number of the active power mode."),
    series("rooflined_cpus_online", "cores_online", &[], "Logical CPUs online."),
    series("rooflined_cpu_clock_hertz", "cpu_hz", &[("cpu", PLACE)], "Clock of each online CPU."),
    series("rooflined_cpu_clock_cap_hertz", "cpu_cap_hz", &[], "Highest CPU clock allowed now."),
    series("rooflined_gpu_clock_hertz", "gpu_hz", &[], "GPU clock."),
    series("rooflined_memory_clock_hertz", "memory_hz", &[], "Memory clock."),
    series("rooflined_gpu_clock_cap_hertz", "gpu_cap_hz", &[], "Highest GPU clock allowed now."),
    series("rooflined_memory_clock_cap_hertz", "memory_cap_hz", &[], "Highest memory clock allowed now."),
    series("rooflined_gpu_busy_ratio", "gpu_load_ratio", &[], "Busy part of the GPU in a short window."),
    series("rooflined_gpu_sm_online", "sm_online", &[], "Streaming multiprocessors (SM) online."),
    series("rooflined_memory_total_bytes", "memory_bytes/total", &[], "Usable memory."),
    series("rooflined_memory_available_bytes", "memory_bytes/available", &[], "Memory available without swapping."),
    series("rooflined_swap_used_bytes", "memory_bytes/swap_used", &[], "Swap in use."),
    series("rooflined_load_average", "load/average_1m", &[], "Load average over one minute."),
    series("rooflined_cpu_busy_ratio", "load/busy_ratio", &[], "Busy part of all CPUs."),
    series("rooflined_cpu_steal_ratio", "load/steal_ratio", &[], "Part taken by the hypervisor."),
    series("rooflined_throttled", "throttle/active", &[], "1 while the machine throttles."),
    series("rooflined_cpu_core_busy_ratio", "cores/busy_ratio", &[("cpu", "cpu")], "Busy part of each online CPU."),
    series("rooflined_cpu_clock_min_hertz", "cores/min_hz", &[("cpu", "cpu")], "Lowest clock allowed of each online CPU."),
    series("rooflined_cpu_clock_max_hertz", "cores/max_hz", &[("cpu", "cpu")], "Highest clock allowed of each online CPU."),
    series("rooflined_cpu_governor_info", "cores/governor", &[("cpu", "cpu"), ("governor", "governor")], "Governor of each online CPU; always 1."),
    series("rooflined_engine_clock_hertz", "engines/clock_hz", &[("engine", "name")], "Clock of each engine other than CPU and GPU."),
    series("rooflined_engine_clock_max_hertz", "engines/max_hz", &[("engine", "name")], "Highest clock allowed of each engine."),
    series("rooflined_engine_on", "engines/on", &[("engine", "name")], "1 while the engine is on."),
    series("rooflined_emc_utilisation_ratio", "emc_utilisation_ratio", &[], "Cycles of the memory clock that move data."),
    series("rooflined_fan_duty_ratio", "fans/duty_ratio", &[("fan", "name")], "Part of the time that each fan is driven."),
    series("rooflined_fan_speed_rpm", "fans/speed_rpm", &[("fan", "name")], "Turns of each fan per minute."),
    series("rooflined_fan_profile_info", "fan_profile", &[("profile", ITSELF)], "Profile of the fan control; always 1."),
    series("rooflined_gpu_clock_min_hertz", "gpu_control/min_hz", &[], "Lowest GPU clock allowed."),
    series("rooflined_gpu_governor_info", "gpu_control/governor", &[("governor", "governor")], "Governor of the GPU clock; always 1."),
    series("rooflined_gpu_railgate_enabled", "gpu_control/railgate_enabled", &[], "1 where an idle GPU is switched off."),
    series("rooflined_gpu_railgated", "gpu_control/railgated", &[], "1 while the GPU is switched off."),
    series("rooflined_gpu_scaling_3d", "gpu_control/scaling_3d", &[], "1 where the GPU clock follows the load."),
    series("rooflined_gpu_shared_memory_bytes", "gpu_shared_memory_bytes", &[], "Memory taken for the GPU of what it shares."),
    series("rooflined_gpu_process_memory_bytes", "gpu_processes/memory_bytes", &[("pid", "pid"), ("name", "name")], "Memory of the GPU that each process holds."),
    series("rooflined_free_blocks", "free_blocks/count", &[], "Free blocks of the largest size."),
    series("rooflined_free_block_bytes", "free_blocks/size_bytes", &[], "Largest size of a free block."),
    series("rooflined_swap_area_size_bytes", "swap/size_bytes", &[("area", "name"), ("kind", "kind")], "Size of each swap device or file."),
    series("rooflined_swap_area_used_bytes", "swap/used_bytes", &[("area", "name"), ("kind", "kind")], "Used part of each swap device or file."),
    series("rooflined_zram_stored_bytes", "zram/stored_bytes", &[("device", "name")], "What each compressed device holds, uncompressed."),
    series("rooflined_zram_memory_bytes", "zram/memory_bytes", &[("device", "name")], "Memory that each compressed device takes."),
    series("rooflined_rail_voltage_volts", "rail_meters/voltage_v", &[("rail", "name")], "Voltage of each rail."),
    series("rooflined_rail_current_amperes", "rail_meters/current_a", &[("rail", "name")], "Current of each rail."),
    series("rooflined_rail_current_warning_amperes", "rail_meters/warning_a", &[("rail", "name")], "Mean current above which a rail's meter warns."),
    series("rooflined_rail_current_critical_amperes", "rail_meters/critical_a", &[("rail", "name")], "Current above which a rail's meter alarms."),
    series("rooflined_rail_alarm", "rail_meters/alarm", &[("rail", "name")], "1 while a rail's meter warns or alarms."),
    series("rooflined_device_temperature_celsius", "device_temperatures/temperature_c", &[("device", "name")], "Temperature of each drive, card and the like."),
    series("rooflined_jetson_clocks", "jetson_clocks/engaged", &[], "1 where clocks are locked as jetson_clocks does it."),
    series("rooflined_software_info", "software", &[("jetpack", "jetpack"), ("cuda", "cuda"), ("tensorrt", "tensorrt")], "Versions of NVIDIA's software; always 1."),
];

/// All of it, family by family: a family's samples stand together.
pub(super) fn state(page: &mut Page, state: &StateAnswer) {
    for Series { name, help, at, labels } in SERIES {
        let (field, key) = at.split_once('/').unwrap_or((at, ITSELF));
        let Some(field) = state.fields.get(field) else { continue };
        let items = field.value.as_array().map_or(std::slice::from_ref(&field.value), Vec::as_slice);
        for (place, item) in items.iter().enumerate() {
            let Some(value) = number(part(item, key)) else { continue };
            let text = |key: &str| match part(item, key) {
                _ if key == PLACE => place.to_string(),
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            let labels: Vec<_> = labels.iter().map(|(label, key)| (*label, text(key))).collect();
            let labels: Vec<_> = labels.iter().map(|(label, text)| (*label, text.as_str())).collect();
            page.sample(gauge(name, help), &labels, value);
        }
    }
}

fn part<'v>(item: &'v Value, key: &str) -> &'v Value {
    if key == ITSELF { item } else { item.get(key).unwrap_or(&Value::Null) }
}

/// What is told by labels alone has the value 1.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(is_so) => Some(truth(*is_so)),
        Value::String(_) => Some(1.0),
        Value::Object(parts) => parts.values().any(|part| !part.is_null()).then_some(1.0),
        Value::Null | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use rooflined_core::hardware::registry;
    use rooflined_core::units::Seconds;
    use rooflined_governor::Now;
    use rooflined_predict::snapshot::Snapshot;
    use serde_json::json;

    fn unknown() -> StateAnswer {
        let snapshot = Snapshot::hypothetical(Arc::new(registry().get("gb10").unwrap().clone()));
        rooflined_advice::state(&snapshot, Now { boottime: Seconds::ZERO, unix_s: 0.0 })
    }

    #[test]
    fn what_is_unknown_has_no_series_and_no_series_stands_twice() {
        let mut known = unknown();
        for field in known.fields.values_mut() {
            field.value = Value::Null;
        }
        let mut set = |name: &str, value: Value| known.fields.get_mut(name).unwrap().value = value;
        set(
            "engines",
            json!([
                { "name": "VIC", "clock_hz": 1e8, "max_hz": null, "on": true },
                { "name": "SE", "clock_hz": null, "max_hz": null, "on": true },
            ]),
        );
        set("cpu_hz", json!([2e9, 1e9]));
        set("gpu_processes", json!([{ "pid": 7, "name": null, "memory_bytes": 5.0 }]));
        set("fan_profile", json!("quiet"));
        set("software", json!({ "jetpack": null, "cuda": "12.6", "tensorrt": null }));
        let mut page = Page { text: String::new(), family: "" };
        state(&mut page, &known);
        let samples: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "rooflined_cpu_clock_hertz{cpu=\"0\"} 2000000000",
            "rooflined_cpu_clock_hertz{cpu=\"1\"} 1000000000",
            "rooflined_engine_clock_hertz{engine=\"VIC\"} 100000000",
            "rooflined_engine_on{engine=\"VIC\"} 1",
            "rooflined_engine_on{engine=\"SE\"} 1",
            "rooflined_fan_profile_info{profile=\"quiet\"} 1",
            "rooflined_gpu_process_memory_bytes{pid=\"7\",name=\"\"} 5",
            "rooflined_software_info{jetpack=\"\",cuda=\"12.6\",tensorrt=\"\"} 1",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn every_series_is_made_from_a_field_of_the_state() {
        let fields = unknown().fields;
        for series in SERIES {
            let field = series.at.split('/').next().unwrap();
            assert!(fields.contains_key(field), "{field}");
        }
    }
}
