//! Whether the machine itself is slow, where no cause is certain: reference kernels tell of a state that no counter names.
//!
//! They run only while nothing else computes. Beside a server they would slow it down, find the machine slow by its load, and
//! spoil what is learned from it.

use std::time::Duration;

use crate::observe::Process;
use crate::reference::{MEMORY, PRODUCT, UNCALIBRATED, measure};
use rooflined_api::{ExplainAnswer, ExplainRequest, MeasuredRow, StateAnswer, Unseen};
use rooflined_client::Client;
use rooflined_core::units::significant;

/// Part of the difference that no cause is sure of, from which on the machine itself is looked at.
const UNSURE: f64 = 0.2;
/// A desktop keeps a GPU less busy than this.
const BUSY_GPU: f64 = 0.5;
/// Whether a process computes shows in this time.
const LOOK: Duration = Duration::from_millis(200);
/// A product within the interval of its prediction tells nothing unless it is as fast as this part of it.
const AS_FAST: f64 = 0.8;

/// Whether the answer leaves open what slows the run, or the machine, down.
pub fn is_open(answer: &ExplainAnswer) -> bool {
    let sure = answer.causes.iter().filter(|cause| cause.certainty != "possible");
    match answer.verdict.as_str() {
        "slower_than_expected" => 1.0 - sure.map(|cause| cause.share_ratio).sum::<f64>() > UNSURE,
        "not_measured" => answer.causes.is_empty(),
        _ => false,
    }
}

/// Runs the reference kernels and adds to the request what they show, or why they did not run.
pub async fn look(client: &Client, request: &mut ExplainRequest, measured: f64) {
    let again = ask_again(request, measured);
    let seen = request.seen.get_or_insert_default();
    let rows = match what_computes(client, seen.pid).await {
        Some(what) => Err((format!("{what}, and a reference kernel would run beside it"), again)),
        None => measure(client, &[MEMORY, PRODUCT]).await,
    };
    match rows.and_then(|rows| ratios(&rows)) {
        Ok((memory, product)) => {
            seen.memory_ratio = Some(memory);
            seen.product_ratio = product;
        }
        Err((reason, grant)) => {
            let what = "whether the machine itself is in a slow state, by a reference kernel".to_owned();
            seen.unseen.push(Unseen { what, reason, grant });
        }
    }
}

/// What computes now.
async fn what_computes(client: &Client, pid: Option<u32>) -> Option<String> {
    if let Some(process) = pid.and_then(Process::find)
        && let Ok(before) = process.activity()
    {
        tokio::time::sleep(LOOK).await;
        let computes = process.activity().is_ok_and(|now| now.shares(&before, LOOK.as_secs_f64()).is_some());
        if computes {
            return Some(format!("process {} computes", process.pid));
        }
    }
    let mut client = client.another(Duration::from_secs(3));
    let state: StateAnswer = client.get("/v1/state").await.ok()?.parse().ok()?;
    let load = state.fields.get("gpu_load_ratio").and_then(|field| field.value.as_f64());
    load.filter(|load| *load > BUSY_GPU)
        .map(|load| format!("the GPU is busy for {:.0} % of the time", 100.0 * load))
}

/// How to ask about the same rate while the server rests.
fn ask_again(request: &ExplainRequest, measured: f64) -> String {
    let workload = &request.workload;
    let model =
        workload.model.as_ref().and_then(|model| model.as_str().or_else(|| model.get("path")?.as_str()));
    let Some(model) = model else { return "let it rest, and ask again".to_owned() };
    let option = |name: &str, value: Option<String>| {
        value.map(|value| format!(" --{name} {value}")).unwrap_or_default()
    };
    format!(
        "let it rest, then: rooflinectl explain '{model}' --engine {}{}{}{} --tokens-per-s {}",
        request.engine.key(),
        option("format", workload.format.clone()),
        option("context-tokens", workload.context_tokens.map(|count| count.to_string())),
        option("batch", workload.batch.map(|count| count.to_string())),
        significant(measured)
    )
}

/// Bandwidth and speed of a product over those of the calibration.
///
/// # Errors
/// Why they tell nothing, and what to do about it.
fn ratios(rows: &[MeasuredRow]) -> Result<(f64, Option<f64>), (String, String)> {
    if let Some(why) = rows.iter().find_map(|row| row.disturbed.as_ref()) {
        let again = "try again when nothing else runs: top".to_owned();
        return Err((format!("the reference kernel was disturbed: {why}"), again));
    }
    let row = |op| rows.iter().find(|row| row.op.op() == Some(&op));
    let memory = row(MEMORY).and_then(|row| row.drift_ratio).filter(|ratio| *ratio > 0.0);
    let memory = memory.ok_or_else(|| (UNCALIBRATED.0.to_owned(), UNCALIBRATED.1.to_owned()))?;
    let ratio = |row: &MeasuredRow| {
        let ratio = row.predicted_at_calibration_s / row.measured_time_s.value;
        let is_outside = row.measured_time_s.low > row.predicted_time_s.high;
        (row.bound == "compute" && ratio > 0.0 && (is_outside || ratio > AS_FAST)).then_some(ratio)
    };
    Ok((memory, row(PRODUCT).and_then(ratio)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn a_machine_at_rest_is_looked_at_where_no_cause_is_sure() {
        let cause = |certainty: &str, share: f64| {
            serde_json::json!({"cause": "thermal", "what": "", "share_ratio": share, "share_tokens_per_s": 1, "without_tokens_per_s": 2,
                "certainty": certainty, "evidence": [], "fix": ""})
        };
        let is_open = |verdict: &str, causes: &[Value]| {
            let answer = serde_json::json!({"verdict": verdict, "reason": "", "measured_tokens_per_s": 1, "expected_at": "",
                "expected_tokens_per_s": {"value": 2, "low": 2, "high": 2}, "causes": causes, "unexplained_ratio": null,
                "unexplained_tokens_per_s": null, "unseen": [], "simulated": false, "serial": 1});
            super::is_open(&serde_json::from_value(answer).unwrap())
        };
        assert!(!is_open("as_expected", &[]) && !is_open("faster_than_expected", &[]));
        assert!(is_open("not_measured", &[]) && !is_open("not_measured", &[cause("predicted", 1.0)]));
        assert!(is_open("slower_than_expected", &[]));
        assert!(is_open("slower_than_expected", &[cause("possible", 0.9)]));
        assert!(!is_open("slower_than_expected", &[cause("predicted", 0.5), cause("estimated", 0.4)]));
    }

    #[test]
    fn a_reference_kernel_tells_of_memory_always_and_of_products_where_they_are_sure() {
        use serde_json::json;
        /// Drift of the read, and the upper end of what is predicted for a product of 1 s beside what it took.
        fn ratios(drift: Value, high_s: f64, product_s: f64) -> Result<(f64, Option<f64>), (String, String)> {
            let row = |op: Value, bound: &str, drift: Value, time: f64| {
                json!({"op": op, "format": "fp32", "predicted_time_s": {"value": 1.0, "low": 0.9, "high": high_s},
                    "predicted_at_calibration_s": 1.0, "measured_time_s": {"value": time, "low": 0.98 * time, "high": 1.02 * time},
                    "error_ratio": 0.0, "error_at_calibration_ratio": 0.0, "drift_ratio": drift, "disturbed": null, "regime": "near",
                    "runs": 9, "isa": "avx2", "bound": bound, "limit": "dram", "roofline_time_s": 0.5})
            };
            let rows = [
                row(json!({"kind": "gemv", "n": 8192, "k": 8192}), "memory", drift.clone(), 1.0),
                row(json!({"kind": "gemm", "m": 64, "n": 4096, "k": 4096}), "compute", drift, product_s),
            ];
            super::ratios(&rows.map(|row| serde_json::from_value(row).unwrap()))
        }
        let near = |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 1e-9);
        let (memory, product) = ratios(json!(0.7), 1.1, 2.0).unwrap();
        assert!(near(Some(memory), 0.7) && near(product, 0.5));
        // Fast enough clears the machine; slower, but within the interval of its prediction, tells nothing.
        assert!(near(ratios(json!(1.0), 1.0, 1.2).unwrap().1, 1.0 / 1.2));
        assert_eq!(ratios(json!(1.0), 1.6, 1.5).unwrap().1, None);
        assert!(ratios(Value::Null, 1.1, 1.0).unwrap_err().1.contains("rooflinectl calibrate"));
        assert!(ratios(json!(0.0), 1.1, 1.0).is_err(), "no read is infinitely slow");
    }
}
