//! `compare`: predicted vs. measured, of operations, models, an inference engine or a vision network, on this machine and now.

mod cause;
mod child;
mod engine;
mod network;
mod rows;

use super::Context;
use super::args::CompareArgs;
use super::commands::keys;
use super::failure::Failure;
use super::input::{self, ShapeArgs};
use super::measure::TIME_LIMIT;
use super::model_work::ModelWork;
use super::output::Format;
use super::words;
use super::working::{Counted, Working};
use rooflined_api::{MeasureAnswer, MeasureRequest, RooflineAnswer, Workload};
use rooflined_client::{Client, ClientError};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Code;

pub use rows::Comparison;
use rows::Row;

/// Storage of models that have none of their own, where no format is named.
const DEFAULT_FORMATS: [WeightFormat; 3] = [WeightFormat::Fp16, WeightFormat::Q8_0, WeightFormat::Int4];

/// Shapes and formats compared when none are named. None of the shapes is one that calibration measures.
#[must_use]
pub fn default_work() -> Vec<(Op, Vec<WeightFormat>)> {
    use WeightFormat::{Bf16, Fp16, Fp32, Int4, Int8};
    let gemv =
        [1024, 4096, 8192].map(|side| (Op::Gemv { n: side, k: side }, vec![Fp32, Fp16, Bf16, Int8, Int4]));
    let gemm = [8, 64, 512].map(|m| (Op::Gemm { m, n: 4096, k: 4096 }, vec![Fp32]));
    gemv.into_iter().chain(gemm).collect()
}

pub async fn run(context: &mut Context, args: &CompareArgs) -> Result<(), Failure> {
    let mut comparison = if let Some(path) = args.network()? {
        network::compare(context, args, path).await?
    } else if let Some(engine) = args.engine {
        engine::compare(context, args, engine).await?
    } else if let Some(work) = args.models()? {
        let requests = model_requests(&work);
        let working = Working::new(&context.printer, Counted::Of(requests.len() as u64), "measuring");
        measure_each(&context.client, &requests, &working).await?
    } else {
        let work = named_work(args)?;
        let rows = work.iter().map(|(_, formats)| formats.len() as u64).sum();
        let working = Working::new(&context.printer, Counted::Of(rows), "measuring");
        compare(&context.client, &work, &working).await?
    };
    cause::add_causes(&mut context.client, &mut comparison, args.engine.unwrap_or_default()).await?;
    match context.printer.format {
        Format::Human => context.printer.text(&comparison.render()),
        _ => context.printer.value("compare", &serde_json::json!(comparison)),
    }
}

/// The shapes that are named, in the formats that are named, or those compared for their kind.
fn named_work(args: &CompareArgs) -> Result<Vec<(Op, Vec<WeightFormat>)>, Failure> {
    let shapes: ShapeArgs = args.shapes()?;
    let mut work = default_work();
    if !shapes.is_empty() {
        let formats = |op: &Op| {
            let like = default_work().into_iter().find(|(other, _)| other.kind() == op.kind());
            like.map_or_else(|| vec![WeightFormat::Fp32], |(_, formats)| formats)
        };
        work = shapes.ops()?.into_iter().map(|op| (op, formats(&op))).collect();
    }
    if !args.formats.is_empty() {
        let named = input::named(&args.formats, WeightFormat::ALL);
        work.iter_mut().for_each(|(_, formats)| formats.clone_from(&named));
    }
    Ok(work)
}

/// Measures operations beside their predictions.
///
/// # Errors
/// The daemon cannot be reached or refuses.
pub async fn compare(
    client: &Client,
    work: &[(Op, Vec<WeightFormat>)],
    working: &Working,
) -> Result<Comparison, Failure> {
    // The formats of one operation within one request are measured under the same conditions.
    let request = |(op, formats): &(Op, Vec<WeightFormat>)| MeasureRequest {
        op: Some(*op),
        formats: keys(formats).unwrap_or_default(),
        ..MeasureRequest::default()
    };
    measure_each(client, &work.iter().map(request).collect::<Vec<_>>(), working).await
}

async fn measure_each(
    client: &Client,
    requests: &[MeasureRequest],
    working: &Working,
) -> Result<Comparison, Failure> {
    let mut client = client.another(TIME_LIMIT);
    let calibrated = is_calibrated(&mut client).await?;
    let mut whole = MeasureAnswer { rows: Vec::new(), skipped: Vec::new(), simulated: false, serial: 0 };
    for request in requests {
        if let Some(op) = &request.op {
            working.say(&words::operation(op));
        }
        match client.command("/v1/measure", request).await {
            Ok(answer) => {
                let part: MeasureAnswer = answer.parse()?;
                whole.rows.extend(part.rows);
                add_once(&mut whole.skipped, part.skipped);
                whole.simulated |= part.simulated;
                whole.serial = part.serial;
            }
            // Of several models, one that has no kernel or no room is left out.
            Err(ClientError::Refused { body, .. })
                if body.known_code() == Some(Code::UnsupportedWorkload)
                    && request.workload.is_some()
                    && requests.len() > 1 =>
            {
                add_once(&mut whole.skipped, [body.message]);
            }
            Err(error) => return Err(error.into()),
        }
        working.advance(request.formats.len().max(1) as u64);
    }
    let rows = whole.rows.iter().map(|row| Row::new(row.clone(), calibrated)).collect();
    Ok(Comparison {
        skipped: whole.skipped,
        simulated: whole.simulated,
        serial: whole.serial,
        ..Comparison::of(rows, calibrated)
    })
}

/// Several batches and contexts of one format are left out for one reason.
fn add_once(reasons: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for reason in more {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
}

/// Whether somebody has measured or specified the bandwidth. Nothing is impossible under a guess.
async fn is_calibrated(client: &mut Client) -> Result<bool, Failure> {
    let ceilings: RooflineAnswer = client.get("/v1/roofline").await?.parse()?;
    Ok(ceilings.bandwidth_bytes_per_s.provenance != "prior")
}

/// A request for every model in every format, context and batch.
fn model_requests(work: &ModelWork) -> Vec<MeasureRequest> {
    let mut requests = Vec::new();
    for model in &work.models {
        let formats: Vec<Option<WeightFormat>> = match (work.formats.is_empty(), model.is_string()) {
            (false, _) => work.formats.iter().copied().map(Some).collect(),
            (true, true) => DEFAULT_FORMATS.into_iter().map(Some).collect(),
            (true, false) => vec![None],
        };
        for format in formats {
            for &context in &work.contexts {
                requests.extend(work.batches.iter().map(|&batch| MeasureRequest {
                    workload: Some(Workload {
                        model: Some(model.clone()),
                        format: format.map(|format| format.key().to_owned()),
                        phase: Some("decode".to_owned()),
                        batch: Some(batch),
                        context_tokens: Some(context),
                        ..Workload::default()
                    }),
                    ..MeasureRequest::default()
                }));
            }
        }
    }
    requests
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
        let all = model_requests(&work);
        assert_eq!(all.len(), 4 + 4 * DEFAULT_FORMATS.len());
        let format = |request: &MeasureRequest| request.workload.as_ref().unwrap().format.clone();
        assert!(all.iter().take(4).all(|request| format(request).is_none()));
        let named = ModelWork { formats: vec![WeightFormat::Q8_0], ..work };
        assert_eq!(model_requests(&named).len(), 2 * 2 * 2);
    }
}
