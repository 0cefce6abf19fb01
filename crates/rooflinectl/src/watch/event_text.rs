//! What an event says, in a sentence.

use serde_json::Value;

use crate::{modes, words};
use rooflined_core::calendar;

/// An event in words; `None` of a sample, which happens every second and is what `status` shows.
pub fn in_words(name: &str, data: &Value) -> Option<String> {
    let words = match name {
        "state" => return None,
        "mode" => mode(data),
        "throttle" => throttle(data),
        "roofline" => ceilings(data),
        "hold" => holds(data),
        "calibration" => calibration(data),
        "degraded" => degraded(data),
        "advice_stale" => text(data, "reason").map(|reason| format!("ask again: {reason}")),
        _ => None,
    };
    // What this program does not know yet is shown as it is.
    Some(words.unwrap_or_else(|| words::field("", data)))
}

fn text<'a>(data: &'a Value, key: &str) -> Option<&'a str> {
    data.get(key)?.as_str().filter(|text| !text.is_empty())
}

fn items<'a>(data: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    data.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// `from 15W to 25W: it meets every hold`
fn mode(data: &Value) -> Option<String> {
    data.get("to")?;
    let name = |key| text(data, key).unwrap_or("none");
    let why = text(data, "cause").map_or_else(String::new, |cause| format!(": {}", modes::why(cause)));
    Some(format!("from {} to {}{why}", name("from"), name("to")))
}

fn throttle(data: &Value) -> Option<String> {
    let evidence: Vec<&str> = items(data, "evidence").filter_map(Value::as_str).collect();
    Some(match data.get("active")?.as_bool()? {
        true if evidence.is_empty() => "the machine throttles".to_owned(),
        true => format!("the machine throttles: {}", evidence.join(", ")),
        false => "the machine no longer throttles".to_owned(),
    })
}

/// `a ceiling moved by -11.8 %; memory bandwidth was 68.0 GB/s and is 60.0 GB/s`
fn ceilings(data: &Value) -> Option<String> {
    let moved = words::signed_percent(data.get("ratio")?.as_f64()? - 1.0);
    let rate = |key| Some(words::field("_bytes_per_s", data.get(key).filter(|rate| rate.is_number())?));
    let bandwidth = match (rate("was_bandwidth_bytes_per_s"), rate("bandwidth_bytes_per_s")) {
        (Some(was), Some(is)) if was != is => format!("; memory bandwidth was {was} and is {is}"),
        (_, Some(is)) => format!("; memory bandwidth is {is}"),
        _ => String::new(),
    };
    Some(format!("a ceiling moved by {moved}{bandwidth}"))
}

/// Who began to hold, who ended, and what else is new about holds.
fn holds(data: &Value) -> Option<String> {
    let who = |hold: &Value| text(hold, "app_id").unwrap_or("somebody").to_owned();
    let mut parts: Vec<String> = items(data, "started")
        .map(|hold| {
            let why = text(hold, "reason").map_or_else(String::new, |reason| format!(" for {reason}"));
            format!("{} began to hold{why}, {}", who(hold), met(hold))
        })
        .collect();
    parts.extend(items(data, "ended").map(|hold| {
        let how = match text(hold, "cause") {
            Some("expired") => "ended with its time",
            Some("control_disabled") => "ended, because control was disabled",
            Some("auto_off") => "ended, because the daemon no longer switches by itself",
            _ => "was released",
        };
        format!("the hold of {} {how}", who(hold))
    }));
    if let Some(target) = text(data, "switching") {
        parts.push(format!("switching to {target}"));
    }
    if let Some(pending) = data.get("pending").filter(|pending| pending.is_object()) {
        let name = |key| text(pending, key).unwrap_or("unknown");
        parts.push(format!("{} waits to be confirmed, else {} again", name("mode"), name("original")));
    }
    if let Some(reason) = text(data, "unavailable") {
        parts.push(format!("modes cannot be switched: {reason}"));
    }
    if parts.is_empty() {
        // Nobody came or went: how the others fare.
        parts.extend(items(data, "holds").map(|hold| format!("the hold of {} is {}", who(hold), met(hold))));
    }
    if parts.is_empty() {
        data.get("holds")?;
        parts.push("nobody holds a power mode".to_owned());
    }
    Some(parts.join("; "))
}

/// `met`, or what is not and which mode would do.
fn met(hold: &Value) -> String {
    if hold.get("satisfied").and_then(Value::as_bool) == Some(true) {
        return "met".to_owned();
    }
    let why = text(hold, "unmet").map_or_else(String::new, |why| format!(": {why}"));
    let advice =
        text(hold, "advice").map_or_else(String::new, |mode| format!(" (mode {mode} would do best)"));
    format!("NOT MET{why}{advice}")
}

fn calibration(data: &Value) -> Option<String> {
    let done = data.get("fraction").and_then(Value::as_f64);
    if let Some(done) = done {
        let step = text(data, "step").map_or_else(String::new, |step| format!(", {step}"));
        return Some(format!("{} done{step}", words::percent(done)));
    }
    if data.get("running").is_some_and(Value::is_number) {
        return Some("it begins".to_owned());
    }
    if let Some(reason) = text(data, "waiting_reason") {
        return Some(format!("it waits: {reason}"));
    }
    if let Some(error) = text(data, "last_error") {
        return Some(format!("it failed: {error}"));
    }
    let measured = data.get("measured_at_unix_s")?.as_f64();
    Some(measured.map_or_else(
        || "none is running".to_owned(),
        |at| format!("none is running; the newest is of {}", calendar::date(at)),
    ))
}

fn degraded(data: &Value) -> Option<String> {
    data.get("degraded")?;
    let problems: Vec<&str> = items(data, "degraded").filter_map(Value::as_str).collect();
    Some(if problems.is_empty() { "all works again".to_owned() } else { problems.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_event_is_a_sentence() {
        let idle =
            json!({"fraction": null, "running": null, "measured_at_unix_s": 0.0, "waiting_reason": null});
        let hold =
            json!({"app_id": "llama", "reason": "chat", "satisfied": true, "unmet": null, "advice": null});
        for (name, data, expected) in [
            (
                "mode",
                json!({"from": "15W", "to": "25W", "cause": "hold", "serial": 3}),
                "from 15W to 25W: it meets every hold",
            ),
            (
                "mode",
                json!({"from": null, "to": "25W", "cause": "user"}),
                "from none to 25W: a user asked for it",
            ),
            (
                "throttle",
                json!({"active": true, "evidence": ["gpu at 97 °C"]}),
                "the machine throttles: gpu at 97 °C",
            ),
            ("throttle", json!({"active": false, "evidence": []}), "the machine no longer throttles"),
            (
                "roofline",
                json!({"ratio": 0.882, "bandwidth_bytes_per_s": 60e9, "was_bandwidth_bytes_per_s": 68e9}),
                "a ceiling moved by -11.8 %; memory bandwidth was 68.0 GB/s and is 60.0 GB/s",
            ),
            (
                "hold",
                json!({"cause": "user", "ended": [], "started": [hold], "holds": [hold], "pending": null, "switching": "25W"}),
                "llama began to hold for chat, met; switching to 25W",
            ),
            (
                "hold",
                json!({"cause": "user", "ended": [{"app_id": "llama", "cause": "expired"}], "started": [], "holds": []}),
                "the hold of llama ended with its time",
            ),
            (
                "hold",
                json!({"started": [], "ended": [], "holds": [{"app_id": "a", "satisfied": false, "unmet": "mode 25W", "advice": "15W"}]}),
                "the hold of a is NOT MET: mode 25W (mode 15W would do best)",
            ),
            (
                "hold",
                json!({"cause": "user", "started": [], "ended": [], "holds": []}),
                "nobody holds a power mode",
            ),
            ("calibration", json!({"fraction": 0.5, "step": "gemv int8"}), "50.0 % done, gemv int8"),
            (
                "calibration",
                json!({"fraction": null, "waiting_reason": "load is 80 %"}),
                "it waits: load is 80 %",
            ),
            ("calibration", idle, "none is running; the newest is of 1970-01-01 00:00 UTC"),
            ("degraded", json!({"degraded": ["bus: gone; start it"]}), "bus: gone; start it"),
            ("degraded", json!({"degraded": []}), "all works again"),
            (
                "advice_stale",
                json!({"reason": "the machine began to throttle", "serial": 3}),
                "ask again: the machine began to throttle",
            ),
            ("of a newer daemon", json!({"clock_hz": 1e9}), "clock clock 1.00 GHz"),
            ("hold", json!("torn"), "torn"),
        ] {
            assert_eq!(in_words(name, &data).as_deref(), Some(expected), "{name} {data}");
        }
        assert_eq!(in_words("state", &json!({"fields": {}})), None);
    }
}
