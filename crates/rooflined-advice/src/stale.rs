//! Whether a previous recommendation still holds.
//!
//! It does while its choice is the same and each quantity, predicted again, lies within the 90 % interval of the previous
//! answer. What nobody has acted on, alternatives and what was rejected, may move freely.

use serde::Serialize;
use serde_json::{Value, json};

use super::cause::causes;
use rooflined_api::{
    AdviceChange, AdviceStale, CandidateAnswer, ErrorBody, EstimateAnswer, PowerAnswer, PredictAnswer,
    RecommendAnswer,
};
use rooflined_core::refusal::Refusal;
use rooflined_core::units::{Joules, Seconds, Watts};
use rooflined_predict::power::scope_words;
use rooflined_predict::snapshot::Snapshot;

/// How the answer is altered.
#[derive(Debug, Clone, PartialEq)]
pub struct Altered {
    /// In words, with the numbers.
    pub reason: String,
    pub changes: Vec<AdviceChange>,
}

/// What the answer `now` alters of the `previous` one; `None` where that still holds.
#[must_use]
pub fn altered(previous: &RecommendAnswer, now: &RecommendAnswer) -> Option<Altered> {
    let mut found = Differences::default();
    match (&previous.decision, &now.decision) {
        (Some(previous), Some(now)) => found.candidates("decision", previous, now),
        (None, None) => {
            if let (Some(previous), Some(now)) = (&previous.closest, &now.closest) {
                found.candidates("closest", previous, now);
            }
            if previous.violated != now.violated {
                let words = format!("what comes closest misses {}", list(&now.violated));
                found.push("violated", &previous.violated, &now.violated, words);
            }
        }
        (Some(_), None) => {
            let words = match (now.contradicting.as_slice(), now.violated.as_slice()) {
                (several @ [_, _, ..], _) => format!("nothing meets {} together any more", list(several)),
                (_, []) => "nothing meets the constraints now".to_owned(),
                (_, violated) => format!("nothing meets {} any more", list(violated)),
            };
            found.push("feasible", &true, &false, words);
        }
        (None, Some(choice)) => {
            let words = format!("the constraints can be met now, with {}", chosen(choice));
            found.push("feasible", &false, &true, words);
        }
    }
    let reboot = |answer: &RecommendAnswer| answer.apply.get("reboot_required").and_then(Value::as_bool);
    if let (Some(was), Some(is)) = (reboot(previous), reboot(now))
        && was != is
    {
        let words = if is { "it takes a reboot now" } else { "it no longer needs a reboot" };
        found.push("apply.reboot_required", &was, &is, words.to_owned());
    }
    found.finished()
}

/// What a client that has the previous answer is sent; `None` where the answer still holds. An answer that can no longer
/// be given is altered, and so is one that can be given again.
#[must_use]
pub fn renewed(
    (previous, previous_snapshot): (Result<&RecommendAnswer, &Refusal>, &Snapshot),
    (now, now_of): (Result<&RecommendAnswer, &Refusal>, &Snapshot),
) -> Option<AdviceStale> {
    let altered = match (previous, now) {
        (Ok(previous), Ok(now)) => altered(previous, now)?,
        (Err(previous), Err(now)) if previous.code == now.code && previous.field == now.field => return None,
        (_, Err(error)) => Altered {
            reason: format!("it can no longer be answered: {}", error.message),
            changes: Vec::new(),
        },
        (Err(_), Ok(_)) => Altered { reason: "it can be answered again".to_owned(), changes: Vec::new() },
    };
    let causes = causes(previous_snapshot, now_of);
    let words: Vec<&str> = causes.iter().map(|cause| cause.words.as_str()).collect();
    Some(AdviceStale {
        reason: format!("{}: {}", words.join(", "), altered.reason),
        causes: causes.iter().map(|cause| cause.key.to_owned()).collect(),
        changes: altered.changes,
        error: now.err().cloned().map(ErrorBody::from),
        was_serial: previous_snapshot.serial,
        serial: now_of.serial,
    })
}

#[derive(Default)]
struct Differences {
    changes: Vec<AdviceChange>,
    words: Vec<String>,
}

impl Differences {
    fn push(
        &mut self,
        field: impl Into<String>,
        previous: &impl Serialize,
        now: &impl Serialize,
        words: String,
    ) {
        self.changes.push(AdviceChange { field: field.into(), told: json!(previous), now: json!(now) });
        self.words.push(words);
    }

    fn candidates(&mut self, at: &str, previous: &CandidateAnswer, now: &CandidateAnswer) {
        for (key, what, was, is) in [
            ("format", "format", &previous.format, &now.format),
            ("kv_format", "format of the cache", &previous.kv_format, &now.kv_format),
        ] {
            if was != is {
                let words =
                    format!("the {what} is {} instead of {}", key_of(is.as_ref()), key_of(was.as_ref()));
                self.push(format!("{at}.{key}"), was, is, words);
            }
        }
        if previous.power_mode != now.power_mode {
            let words = format!("the power mode is {} instead of {}", mode(now), mode(previous));
            self.push(format!("{at}.power_mode"), &previous.power_mode, &now.power_mode, words);
        }
        if previous.batch != now.batch {
            let words = format!("the batch is {} instead of {}", now.batch, previous.batch);
            self.push(format!("{at}.batch"), &previous.batch, &now.batch, words);
        }
        if previous.threads != now.threads {
            let number =
                |threads: Option<u32>| threads.map_or("unknown".to_owned(), |number| number.to_string());
            let words = format!(
                "the number of threads is {} instead of {}",
                number(now.threads),
                number(previous.threads)
            );
            self.push(format!("{at}.threads"), &previous.threads, &now.threads, words);
        }
        for quantity in QUANTITIES {
            let (was, is) = ((quantity.of)(&previous.prediction), (quantity.of)(&now.prediction));
            // Powers of different rails cannot be compared, and what is not known can be neither kept nor broken.
            let scope =
                |of: &CandidateAnswer| of.prediction.power_w.as_ref().map(|power| power.scope.clone());
            if quantity.metered && scope(previous) != scope(now) {
                continue;
            }
            if let (Some(was), Some(is)) = (was, is)
                && (is.value < was.low || is.value > was.high)
            {
                let text = quantity.text;
                let scope = scope(now).filter(|_| quantity.metered);
                let scope = scope.map_or_else(String::new, |scope| format!(" ({})", scope_words(&scope)));
                let words = format!(
                    "the {}{scope} is {}, outside {} to {}",
                    quantity.name,
                    text(is.value),
                    text(was.low),
                    text(was.high)
                );
                self.push(format!("{at}.prediction.{}", quantity.key), &was, &is, words);
            }
        }
    }

    fn finished(self) -> Option<Altered> {
        (!self.changes.is_empty()).then(|| Altered { reason: self.words.join("; "), changes: self.changes })
    }
}

/// A quantity that an answer gives with an interval.
struct Quantity {
    key: &'static str,
    name: &'static str,
    of: fn(&PredictAnswer) -> Option<EstimateAnswer>,
    text: fn(f64) -> String,
    /// It is what a power meter would show.
    metered: bool,
}

const fn of_a_clock(
    key: &'static str,
    name: &'static str,
    of: fn(&PredictAnswer) -> Option<EstimateAnswer>,
    text: fn(f64) -> String,
) -> Quantity {
    Quantity { key, name, of, text, metered: false }
}

const fn of_a_meter(
    key: &'static str,
    name: &'static str,
    of: fn(&PredictAnswer) -> Option<EstimateAnswer>,
    text: fn(f64) -> String,
) -> Quantity {
    Quantity { key, name, of, text, metered: true }
}

const QUANTITIES: [Quantity; 6] = [
    of_a_clock("time_s", "time", |p| Some(p.time_s), time),
    of_a_clock("tokens_per_s", "rate", |p| Some(p.tokens_per_s), rate),
    of_a_clock("time_to_first_token_s", "time to the first token", |p| p.time_to_first_token_s, time),
    of_a_clock("time_per_token_s", "time per token", |p| p.time_per_token_s, time),
    of_a_meter(
        "power_w",
        "power",
        |p| p.power_w.as_ref().map(PowerAnswer::estimate),
        |watts| Watts(watts).to_string(),
    ),
    of_a_meter(
        "energy_j_per_token",
        "energy per token",
        |p| p.energy_j_per_token,
        |joules| Joules(joules).to_string(),
    ),
];

fn time(seconds: f64) -> String {
    Seconds(seconds).to_string()
}

fn rate(per_second: f64) -> String {
    format!("{} /s", rooflined_core::units::significant(per_second))
}

fn mode(candidate: &CandidateAnswer) -> &str {
    candidate.power_mode.as_ref().map_or("unknown", |mode| mode.name.as_str())
}

fn key_of(key: Option<&String>) -> &str {
    key.map_or("unknown", String::as_str)
}

/// `int8, batch 4, 15W`; what is unknown or was not to be chosen is left out.
#[must_use]
pub fn chosen(candidate: &CandidateAnswer) -> String {
    let mut parts: Vec<String> = candidate.format.iter().cloned().collect();
    parts.extend(candidate.kv_format.as_ref().map(|format| format!("cache {format}")));
    parts.push(format!("batch {}", candidate.batch));
    parts.extend(candidate.threads.map(|number| format!("{number} threads")));
    parts.extend(candidate.power_mode.as_ref().map(|mode| mode.name.clone()));
    parts.join(", ")
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::refusal::Code;
    use rooflined_governor::fixtures;
    use rooflined_governor::{Governor, Now};
    use rooflined_predict::learning::Residuals;

    fn estimate(value: f64) -> Value {
        json!({ "value": value, "low": 0.9 * value, "high": 1.1 * value })
    }

    fn of_module(watts: f64) -> Value {
        json!({ "value": watts, "low": 0.9 * watts, "high": 1.1 * watts, "scope": "module" })
    }

    fn candidate() -> CandidateAnswer {
        let candidate = json!({
            "format": "int8", "power_mode": { "id": 1, "name": "25W" }, "batch": 4, "quality_loss_ratio": 0.01,
            "prediction": {
                "time_s": estimate(1e-3), "tokens_per_s": estimate(4000.0),
                "time_to_first_token_s": estimate(0.2), "time_per_token_s": estimate(2e-3),
                "power_w": of_module(10.0), "energy_j_per_token": estimate(2.5e-3),
                "flops": 1e9, "bytes": 1e8, "arithmetic_intensity_flops_per_byte": 10.0,
                "ridge_flops_per_byte": 50.0, "bound": "memory", "limit": "dram", "compute": "int8",
                "memory_bytes": { "weights": 1e8, "kv_cache": 0.0, "activations": 0.0, "total": 1e8, "fits": true },
                "tier": "prior", "provenance": "datasheet", "breakdown": [], "roofline_time_s": 0.9e-3,
                "simulated": false, "serial": 17, "warnings": [],
            },
        });
        serde_json::from_value(candidate).unwrap()
    }

    fn feasible() -> RecommendAnswer {
        let answer = json!({
            "feasible": true, "decision": candidate(), "reason": "int8 it is.", "alternatives": [candidate()],
            "rejected": [], "closest": null, "violated": [], "apply": { "reboot_required": false },
            "next_best_measurement": null, "candidates": 64, "simulated": false, "serial": 17,
        });
        serde_json::from_value(answer).unwrap()
    }

    fn infeasible() -> RecommendAnswer {
        RecommendAnswer {
            feasible: false,
            decision: None,
            closest: Some(candidate()),
            violated: vec!["max_time_s".into()],
            ..feasible()
        }
    }

    fn choice(answer: &mut RecommendAnswer) -> &mut CandidateAnswer {
        answer.decision.as_mut().or(answer.closest.as_mut()).unwrap()
    }

    fn time(answer: &mut RecommendAnswer) -> &mut EstimateAnswer {
        &mut choice(answer).prediction.time_s
    }

    type Case = (fn(&mut RecommendAnswer), &'static [&'static str], &'static str);

    /// The change, the fields that it alters, and the words.
    const CASES: &[Case] = &[
        (|_| {}, &[], ""),
        (|a| a.serial = 18, &[], ""),
        (|a| a.reason = "int8 it is, still.".into(), &[], ""),
        (|a| a.alternatives.clear(), &[], ""),
        (|a| a.candidates = 1, &[], ""),
        // At both ends of the interval and a hair beyond.
        (|a| time(a).value = time(a).low, &[], ""),
        (|a| time(a).value = time(a).high, &[], ""),
        (
            |a| time(a).value = time(a).low * (1.0 - 1e-12),
            &["decision.prediction.time_s"],
            "the time is 900 µs, outside 900 µs to 1.10 ms",
        ),
        (
            |a| time(a).value = 1.25e-3,
            &["decision.prediction.time_s"],
            "the time is 1.25 ms, outside 900 µs to 1.10 ms",
        ),
        // A sharper or a vaguer answer with the same centre alters nothing.
        (|a| (time(a).low, time(a).high) = (0.99e-3, 1.01e-3), &[], ""),
        (|a| (time(a).low, time(a).high) = (0.1e-3, 10e-3), &[], ""),
        (
            |a| choice(a).prediction.tokens_per_s.value = 3000.0,
            &["decision.prediction.tokens_per_s"],
            "the rate is 3000 /s, outside 3600 /s to 4400 /s",
        ),
        (
            |a| choice(a).prediction.time_to_first_token_s.as_mut().unwrap().value = 0.3,
            &["decision.prediction.time_to_first_token_s"],
            "the time to the first token is 300 ms, outside 180 ms to 220 ms",
        ),
        (
            |a| choice(a).prediction.time_per_token_s.as_mut().unwrap().value = 1e-3,
            &["decision.prediction.time_per_token_s"],
            "the time per token is 1.00 ms, outside 1.80 ms to 2.20 ms",
        ),
        (
            |a| choice(a).prediction.power_w.as_mut().unwrap().value = 12.0,
            &["decision.prediction.power_w"],
            "the power (module) is 12.0 W, outside 9.00 W to 11.0 W",
        ),
        (
            |a| choice(a).prediction.energy_j_per_token.as_mut().unwrap().value = 5e-3,
            &["decision.prediction.energy_j_per_token"],
            "the energy per token (module) is 5.00 mJ, outside 2.25 mJ to 2.75 mJ",
        ),
        // Unknown now, or of another rail: nothing of the previous answer is known to be wrong.
        (|a| choice(a).prediction.power_w = None, &[], ""),
        (
            |a| {
                let prediction = &mut choice(a).prediction;
                let power = prediction.power_w.as_mut().unwrap();
                (power.scope, power.value) = ("gpu".into(), 4.0);
                prediction.energy_j_per_token.as_mut().unwrap().value = 1e-3;
            },
            &[],
            "",
        ),
        (|a| time(a).value = f64::NAN, &[], ""),
        (
            |a| choice(a).format = Some("int4".into()),
            &["decision.format"],
            "the format is int4 instead of int8",
        ),
        (
            |a| choice(a).kv_format = Some("q8_0".into()),
            &["decision.kv_format"],
            "the format of the cache is q8_0 instead of unknown",
        ),
        (
            |a| choice(a).threads = Some(4),
            &["decision.threads"],
            "the number of threads is 4 instead of unknown",
        ),
        (|a| choice(a).batch = 8, &["decision.batch"], "the batch is 8 instead of 4"),
        (
            |a| choice(a).power_mode.as_mut().unwrap().name = "15W".into(),
            &["decision.power_mode"],
            "the power mode is 15W instead of 25W",
        ),
        (
            |a| choice(a).power_mode = None,
            &["decision.power_mode"],
            "the power mode is unknown instead of 25W",
        ),
        (
            |a| {
                choice(a).format = Some("q4_0".into());
                time(a).value = 0.5e-3;
            },
            &["decision.format", "decision.prediction.time_s"],
            "the format is q4_0 instead of int8; the time is 500 µs, outside 900 µs to 1.10 ms",
        ),
        (
            |a| a.apply = json!({ "reboot_required": true }),
            &["apply.reboot_required"],
            "it takes a reboot now",
        ),
        (|a| a.apply = json!({}), &[], ""),
        (|a| *a = infeasible(), &["feasible"], "nothing meets max_time_s any more"),
    ];

    #[track_caller]
    fn check(previous: &RecommendAnswer, now: &RecommendAnswer, fields: &[&str], words: &str) {
        let found = altered(previous, now);
        let changed = found.as_ref().map_or(&[][..], |altered| &altered.changes);
        let changed: Vec<&str> = changed.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(changed, fields);
        assert_eq!(found.map(|altered| altered.reason).unwrap_or_default(), words);
    }

    #[test]
    fn an_answer_holds_until_its_choice_or_a_quantity_beyond_its_interval_moves() {
        for (change, fields, words) in CASES {
            let previous = feasible();
            let mut now = previous.clone();
            change(&mut now);
            check(&previous, &now, fields, words);
        }
    }

    #[test]
    fn what_came_closest_is_compared_where_nothing_was_feasible() {
        for (change, fields, words) in CASES {
            let previous = infeasible();
            let mut now = previous.clone();
            change(&mut now);
            if now == previous || fields.contains(&"feasible") {
                continue;
            }
            let fields: Vec<String> =
                fields.iter().map(|field| field.replace("decision.", "closest.")).collect();
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            check(&previous, &now, &fields, words);
        }
        let mut now = infeasible();
        now.violated = vec!["max_power_w".into(), "max_memory_bytes".into()];
        check(
            &infeasible(),
            &now,
            &["violated"],
            "what comes closest misses max_power_w and max_memory_bytes",
        );
        check(
            &infeasible(),
            &feasible(),
            &["feasible"],
            "the constraints can be met now, with int8, batch 4, 25W",
        );
    }

    #[test]
    fn changes_carry_what_was_told_and_what_is() {
        let mut now = feasible();
        choice(&mut now).batch = 8;
        time(&mut now).value = 2e-3;
        let altered = altered(&feasible(), &now).unwrap();
        assert_eq!((&altered.changes[0].told, &altered.changes[0].now), (&json!(4), &json!(8)));
        assert_eq!(altered.changes[1].told, estimate(1e-3));
        assert_eq!(altered.changes[1].now["value"], 2e-3);
    }

    #[test]
    fn a_question_that_can_no_longer_be_answered_is_told_once_and_so_is_its_return() {
        let now = Now { boottime: rooflined_core::units::Seconds(1.0), unix_s: 1.7e9 };
        let policy = fixtures::policy();
        let governor =
            Governor::new(now, fixtures::board(), fixtures::state(), None, Residuals::default(), &policy);
        let (old, mut new) = (governor.snapshot(), Snapshot::clone(&governor.snapshot()));
        new.serial = old.serial + 3;
        new.roofline.bandwidth.value = new.roofline.bandwidth.value * 2.0;
        let answer = feasible();
        let gone = Code::NotCalibrated.error("nothing was measured", "calibrate");
        let other = Code::UnknownMode.at("freedom.power_modes[0]", "there is no 15W", "leave it out");
        let previous = renewed((Ok(&answer), &old), (Err(&gone), &new)).unwrap();
        assert_eq!(
            previous.reason,
            "a ceiling moved by +100.0 %: it can no longer be answered: nothing was measured"
        );
        assert_eq!(previous.error, Some(gone.clone().into()));
        assert_eq!(previous.causes, ["ceilings"]);
        assert_eq!((previous.was_serial, previous.serial), (old.serial, old.serial + 3));
        assert_eq!(renewed((Err(&gone), &old), (Err(&gone), &new)), None);
        assert!(renewed((Err(&gone), &old), (Err(&other), &new)).is_some());
        let back = renewed((Err(&gone), &old), (Ok(&answer), &new)).unwrap();
        assert!(back.reason.ends_with("it can be answered again") && back.error.is_none());
        assert_eq!(renewed((Ok(&answer), &old), (Ok(&answer), &new)), None);
    }
}
