//! `compare MODEL`: the predicted time of a step of a model beside the time that it takes with this program's kernels.

use roofline::units::significant;
use serde_json::Value;

use super::comparison::{Comparison, TIME_LIMIT, judged};
use super::failure::Failure;
use super::model_work::ModelWork;
use super::output::Printer;
use super::table::Table;
use super::words;
use super::working::{Counted, Working};
use roofline::precision::WeightFormat;
use roofline::refusal::Code;
use wire::client::Client;
use wire::{MeasureAnswer, MeasureRequest, MeasuredOp, RooflineAnswer, Workload};

/// Storage of models that have none of their own, where no format is named.
const DEFAULT_FORMATS: [WeightFormat; 3] = [WeightFormat::Fp16, WeightFormat::Q8_0, WeightFormat::Int4];

/// Measures every model in every format, batch and context, one after another.
///
/// # Errors
/// The daemon cannot be reached or refuses.
pub async fn compare(client: &Client, work: &ModelWork, printer: &Printer) -> Result<Comparison, Failure> {
    let mut client = client.another(TIME_LIMIT);
    let ceilings: RooflineAnswer = client.get("/v1/roofline").await?.parse()?;
    let mut whole = MeasureAnswer { rows: Vec::new(), skipped: Vec::new(), simulated: false, serial: 0 };
    let workloads = workloads(work);
    let working = Working::new(printer, Counted::Of(workloads.len() as u64), "measuring");
    for workload in workloads {
        let request = MeasureRequest { workload: Some(workload), ..MeasureRequest::default() };
        match client.command("/v1/measure", &request).await {
            Ok(answer) => {
                let part: MeasureAnswer = answer.parse()?;
                whole.rows.extend(part.rows);
                whole.skipped.extend(part.skipped);
                whole.simulated |= part.simulated;
                whole.serial = part.serial;
            }
            // Of several, one that has no kernel or no room is left out.
            Err(wire::client::ClientError::Refused { body, .. })
                if body.known_code() == Some(Code::UnsupportedWorkload) && combinations(work) > 1 =>
            {
                whole.skipped.push(body.message);
            }
            Err(error) => return Err(error.into()),
        }
        working.advance(1);
    }
    let calibrated = ceilings.bandwidth_bytes_per_s.provenance != "prior";
    Ok(judged(whole, calibrated))
}

fn combinations(work: &ModelWork) -> usize {
    work.models.len() * work.formats.len().max(1) * work.batches.len() * work.contexts.len()
}

fn workloads(work: &ModelWork) -> Vec<Workload> {
    let mut all = Vec::new();
    for model in &work.models {
        let formats: Vec<Option<WeightFormat>> = match (work.formats.is_empty(), model) {
            (false, _) => work.formats.iter().copied().map(Some).collect(),
            (true, Value::String(_)) => DEFAULT_FORMATS.into_iter().map(Some).collect(),
            (true, _) => vec![None],
        };
        for format in formats {
            for &context in &work.contexts {
                for &batch in &work.batches {
                    all.push(Workload {
                        model: Some(model.clone()),
                        format: format.map(|format| format.key().to_owned()),
                        phase: Some("decode".to_owned()),
                        batch: Some(batch),
                        context_tokens: Some(context),
                        ..Workload::default()
                    });
                }
            }
        }
    }
    all
}

/// The rows of models as a table; empty without any.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut table = Table::new(&[
        "model",
        "format",
        ">batch",
        ">context",
        ">predicted",
        "90 % interval",
        ">measured",
        ">tokens/s",
        ">error",
        ">calibrated",
        "inside",
        "limit",
    ]);
    for row in &comparison.rows {
        let measured = &row.measured;
        let MeasuredOp::Model(model) = &measured.op else { continue };
        let (low, high) = (measured.predicted_time_s.low, measured.predicted_time_s.high);
        let inside = (low..=high).contains(&measured.measured_time_s.value);
        table.row([
            words::model(&model.model),
            measured.format.clone(),
            model.batch.to_string(),
            model.context_tokens.to_string(),
            words::time(measured.predicted_time_s.value),
            format!("{} to {}", words::time(low), words::time(high)),
            words::time(measured.measured_time_s.value),
            measured.measured_tokens_per_s.map_or_else(|| "-".to_owned(), |rate| significant(rate.value)),
            words::signed_percent(measured.error_ratio),
            words::signed_percent(measured.error_at_calibration_ratio),
            if inside { "yes" } else { "no" }.to_owned(),
            measured.limit.clone(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_combination_is_asked_for_once() {
        let work = ModelWork {
            models: vec![json!({"path": "/a.gguf"}), json!("tinyllama-1.1b")],
            formats: Vec::new(),
            batches: vec![1, 8],
            contexts: vec![0, 1024],
        };
        let all = workloads(&work);
        assert_eq!(all.len(), 4 + 4 * DEFAULT_FORMATS.len());
        assert!(all.iter().take(4).all(|workload| workload.format.is_none()));
        let named = ModelWork { formats: vec![WeightFormat::Q8_0], ..work };
        assert_eq!(workloads(&named).len(), combinations(&named));
    }
}
