//! Engines, fans, rails and the like in a few short lines.

use serde_json::Value;

use super::words;

/// Longest line of a value: with its label it fits a terminal of 80 columns.
const WIDTH: usize = 56;

/// The lines of a field that is a list of things or has many parts; `None` of any other.
#[must_use]
pub fn lines(name: &str, value: &Value) -> Option<Vec<String>> {
    let items = value.as_array().map(Vec::as_slice);
    let each = |show: fn(&Value) -> String| items.map(|items| wrap_items(items.iter().map(show)));
    match name {
        "cores" => items.map(cores),
        "engines" => each(engine),
        "fans" => each(fan),
        "gpu_control" => Some(wrap_items(gpu_control(value))),
        "gpu_processes" => each(process),
        "free_blocks" => Some(vec![format!("{} x {}", text(value, "count"), text(value, "size_bytes"))]),
        "swap" => each(swap),
        "zram" => each(zram),
        "rail_meters" => each(rail),
        "device_temperatures" => each(device),
        "jetson_clocks" => {
            let engaged = value.get("engaged").and_then(Value::as_bool)?;
            Some(vec![if engaged { "engaged" } else { "not engaged" }.to_owned()])
        }
        "software" => Some(wrap_items(software(value))),
        _ => None,
    }
}

/// One part in the unit of its key; `-` where it is not known.
fn text(value: &Value, key: &str) -> String {
    value
        .get(key)
        .filter(|part| !part.is_null())
        .map_or_else(|| "-".to_owned(), |part| words::field(key, part))
}

fn format_known(value: &Value, key: &str) -> Option<String> {
    value.get(key).filter(|part| !part.is_null()).map(|part| words::field(key, part))
}

/// The items one after the other, in lines that are not too long.
fn wrap_items(items: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + item.chars().count() <= WIDTH => {
                line.push_str(", ");
                line.push_str(&item);
            }
            _ => lines.push(item),
        }
    }
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}

/// Cores of one governor and one range of clocks share a line.
fn cores(cores: &[Value]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&Value>)> = Vec::new();
    for core in cores {
        let known = |field: &str| core.get(field).is_some_and(|value| !value.is_null());
        let governor = known("governor").then(|| text(core, "governor"));
        let clocks = (known("min_hz") || known("max_hz"))
            .then(|| format!("{} to {}", text(core, "min_hz"), text(core, "max_hz")));
        let rule = governor.into_iter().chain(clocks).collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, group)) => group.push(core),
            None => groups.push((rule, vec![core])),
        }
    }
    let mut lines = Vec::new();
    for (rule, group) in groups {
        let cpus = numbers(&group);
        lines.push(if rule.is_empty() { cpus } else { format!("{cpus}: {rule}") });
        let busy: Vec<String> =
            group.iter().filter_map(|core| core.get("busy_ratio")?.as_f64()).map(percent).collect();
        if !busy.is_empty() {
            let mut parts = wrap_items(busy);
            parts[0] = format!("busy {}", parts[0]);
            lines.extend(parts.into_iter().map(|line| format!("  {line}")));
        }
    }
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// `0-3` for neighbours, `0, 5` otherwise.
fn numbers(cores: &[&Value]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in cores.iter().filter_map(|core| core.get("cpu")?.as_u64()) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u64, u64)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    format!("cpu {}", ranges.iter().map(range).collect::<Vec<_>>().join(", "))
}

fn engine(engine: &Value) -> String {
    let name = text(engine, "name");
    let on = engine.get("on").and_then(Value::as_bool);
    match (on, format_known(engine, "clock_hz")) {
        (Some(false), _) => format!("{name} off"),
        (_, Some(clock)) => format!("{name} {clock}"),
        (Some(true), None) => format!("{name} on"),
        (None, None) => format!("{name} -"),
    }
}

fn fan(fan: &Value) -> String {
    let speed = fan.get("speed_rpm").and_then(Value::as_f64).map(|speed| format!(" at {speed:.0} rpm"));
    format!("{} {}{}", text(fan, "name"), text(fan, "duty_ratio"), speed.unwrap_or_default())
}

fn gpu_control(control: &Value) -> Vec<String> {
    let flag = |key: &str, yes: &str, no: &str| {
        control.get(key)?.as_bool().map(|set| if set { yes } else { no }.to_owned())
    };
    let parts = [
        format_known(control, "governor"),
        format_known(control, "min_hz").map(|clock| format!("at least {clock}")),
        flag("railgated", "switched off now", "switched on"),
        flag("railgate_enabled", "switched off when idle", "never switched off"),
        format_known(control, "power_control").map(|control| format!("power control {control}")),
        flag("scaling_3d", "3D scaling", "no 3D scaling"),
        flag("mask_fixed", "gated clusters fixed until a reboot", "gated clusters not fixed yet"),
    ];
    parts.into_iter().flatten().collect()
}

fn process(process: &Value) -> String {
    format!("{} {} {}", text(process, "pid"), text(process, "name"), text(process, "memory_bytes"))
}

fn swap(area: &Value) -> String {
    format!("{} {} of {}", text(area, "name"), text(area, "used_bytes"), text(area, "size_bytes"))
}

fn zram(device: &Value) -> String {
    format!("{} {} in {}", text(device, "name"), text(device, "stored_bytes"), text(device, "memory_bytes"))
}

fn rail(meter: &Value) -> String {
    let number = |key: &str| meter.get(key).and_then(Value::as_f64);
    let mut line = text(meter, "name");
    let volts = number("voltage_v").map_or_else(|| "- V".to_owned(), |volts| format!("{volts:.2} V"));
    let amperes = number("current_a").map_or_else(|| "- A".to_owned(), |amperes| format!("{amperes:.2} A"));
    line += &format!(" {volts} {amperes}");
    if let Some(limit) = number("warning_a") {
        line += &format!(" (warns at {limit:.2} A)");
    }
    if meter.get("alarm").and_then(Value::as_bool) == Some(true) {
        line += " ALARM";
    }
    line
}

fn device(device: &Value) -> String {
    format!("{} {}", text(device, "name"), text(device, "temperature_c"))
}

fn software(software: &Value) -> Vec<String> {
    let part = |(key, name): (&str, &str)| Some(format!("{name} {}", format_known(software, key)?));
    [("jetpack", "JetPack"), ("cuda", "CUDA"), ("tensorrt", "TensorRT")]
        .into_iter()
        .filter_map(part)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn engines_and_rails_take_few_short_lines() {
        let engines = json!([
            {"name": "NVDEC", "clock_hz": 8.544e8, "on": true},
            {"name": "VIC", "clock_hz": 1.15e8, "on": false},
            {"name": "APE", "clock_hz": null, "on": null},
        ]);
        assert_eq!(lines("engines", &engines).unwrap(), ["NVDEC 854 MHz, VIC off, APE -"]);
        let rails = json!([
            {"name": "VDD_IN", "voltage_v": 5.056, "current_a": 0.92, "warning_a": 4.984, "alarm": false},
            {"name": "VDD_SOC", "voltage_v": 5.056, "current_a": -0.008, "warning_a": null, "alarm": true},
        ]);
        let expected = ["VDD_IN 5.06 V 0.92 A (warns at 4.98 A)", "VDD_SOC 5.06 V -0.01 A ALARM"];
        assert_eq!(lines("rail_meters", &rails).unwrap(), expected);
        assert_eq!(lines("swap", &json!([])).unwrap(), ["none"]);
        assert_eq!(lines("gpu_hz", &json!(3e8)), None);
    }

    #[test]
    fn cores_of_one_rule_share_a_line_and_no_line_is_long() {
        let core = |cpu: u32, max: f64| json!({"cpu": cpu, "busy_ratio": 1.0, "min_hz": 7.296e8, "max_hz": max, "governor": "schedutil"});
        let mut cores: Vec<Value> = (0..14).map(|cpu| core(cpu, 1.344e9)).collect();
        cores.push(core(15, 2e9));
        let shown = lines("cores", &json!(cores)).unwrap();
        assert!(shown[0].starts_with("cpu 0-13: schedutil, 730 MHz to 1.34 GHz"), "{shown:?}");
        let unknown = json!({"cpu": 0, "busy_ratio": null, "min_hz": null, "max_hz": null, "governor": null});
        assert_eq!(lines("cores", &json!([unknown])).unwrap(), ["cpu 0"]);
        assert!(shown.iter().any(|line| line.starts_with("cpu 15: ")), "{shown:?}");
        assert!(shown.iter().all(|line| line.chars().count() <= WIDTH + 7), "{shown:?}");
    }
}
