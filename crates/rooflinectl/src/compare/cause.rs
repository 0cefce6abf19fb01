//! Why rows were not predicted well, as the daemon explains it.

use super::rows::{Comparison, Row};
use crate::explain::causes;
use crate::failure::Failure;
use rooflined_api::{
    ExplainAnswer, ExplainRequest, MeasuredOp, OperatingPointRequest, RunEvidence, StateAnswer, Workload,
};
use rooflined_client::Client;
use rooflined_predict::Engine;
use serde_json::Value;

/// Adds the cause to every row that was not predicted well.
///
/// # Errors
/// The daemon cannot be reached or refuses.
pub async fn add_causes(
    client: &mut Client,
    comparison: &mut Comparison,
    engine: Engine,
) -> Result<(), Failure> {
    // Nothing but the load explains a network's time yet, and a wide interval may hide what the load cost.
    for row in &mut comparison.rows {
        if let (MeasuredOp::Network(_), Some(disturbed)) = (&row.measured.op, &row.measured.disturbed) {
            row.cause = Some(format!("{disturbed}: repeat it on an idle machine: top"));
        }
    }
    if comparison.rows.iter().all(|row| row.verdict == "as_predicted") {
        return Ok(());
    }
    let state: StateAnswer = client.get("/v1/state").await?.parse()?;
    let mode = state.fields.get("power_mode").and_then(|field| field.value.get("name"));
    let mode = mode.and_then(Value::as_str).map(str::to_owned);
    for row in comparison.rows.iter_mut().filter(|row| row.verdict != "as_predicted") {
        if let Some(request) = request(row, mode.clone(), engine) {
            row.cause = cause_in(&causes::ask(client, &request).await?);
        }
    }
    Ok(())
}

/// The first cause with its remedy, or why there is none.
fn cause_in(answer: &ExplainAnswer) -> Option<String> {
    if answer.verdict == "as_expected" {
        return Some("it lies within the wide interval of the prediction".to_owned());
    }
    let first = answer.causes.first().map(|cause| format!("{}: {}", cause.what, cause.fix));
    first.or_else(|| Some(answer.reason.clone()))
}

/// The question that explains a row; `None` for a network, whose time nothing explains yet.
fn request(row: &Row, mode: Option<String>, engine: Engine) -> Option<ExplainRequest> {
    let measured = &row.measured;
    let format = Some(measured.format.clone());
    let workload = match &measured.op {
        MeasuredOp::Op(op) => Workload { op: Some(*op), format, ..Workload::default() },
        MeasuredOp::Model(model) => Workload {
            // A file has a format of its own.
            format: format.filter(|_| model.model.is_string()),
            model: Some(model.model.clone()),
            kv_format: row.kv_format.clone(),
            phase: Some(model.phase.clone()),
            batch: Some(model.batch),
            context_tokens: Some(model.context_tokens),
            prompt_tokens: row.prompt_tokens,
            threads: row.threads,
            ..Workload::default()
        },
        MeasuredOp::Network(_) => return None,
    };
    let time = measured.measured_time_s;
    let seen = RunEvidence {
        memory_ratio: measured.drift_ratio.filter(|ratio| *ratio > 0.0),
        spread_ratio: (time.low > 0.0).then(|| time.high / time.low),
        disturbed: measured.disturbed.clone(),
        ..RunEvidence::default()
    };
    Some(ExplainRequest {
        operating_point: mode
            .map(|mode| OperatingPointRequest { power_mode: Some(mode), ..OperatingPointRequest::default() }),
        workload,
        engine,
        time_s: Some(time.value),
        seen: Some(seen),
        ..ExplainRequest::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_api::{EstimateAnswer, MeasuredRow};
    use rooflined_core::operation::Op;

    #[test]
    fn what_was_seen_of_a_row_is_evidence() {
        let time = EstimateAnswer { value: 2e-4, low: 1e-4, high: 3e-4 };
        let measured = MeasuredRow {
            op: MeasuredOp::Op(Op::Gemv { n: 4096, k: 4096 }),
            format: "q4_0".into(),
            predicted_time_s: EstimateAnswer { value: 1e-4, low: 9e-5, high: 1.1e-4 },
            predicted_at_calibration_s: 1e-4,
            measured_time_s: time,
            error_ratio: -0.5,
            error_at_calibration_ratio: -0.5,
            drift_ratio: Some(0.7),
            disturbed: Some("seen".into()),
            regime: "near".into(),
            runs: 9,
            isa: "avx2".into(),
            bound: "memory".into(),
            limit: "dram".into(),
            roofline_time_s: 5e-5,
            power: None,
        };
        let asked = request(&Row::new(measured, true), Some("25W".into()), Engine::Bare).unwrap();
        let seen = asked.seen.unwrap();
        assert_eq!((seen.memory_ratio, seen.disturbed.as_deref()), (Some(0.7), Some("seen")));
        assert!((seen.spread_ratio.unwrap() - 3.0).abs() < 1e-9);
        assert_eq!((asked.time_s, asked.workload.format.as_deref()), (Some(2e-4), Some("q4_0")));
        assert_eq!(asked.operating_point.unwrap().power_mode.as_deref(), Some("25W"));
    }
}
