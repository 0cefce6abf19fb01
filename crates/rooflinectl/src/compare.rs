//! `compare`: predicted vs. measured, of operations, a model in llama.cpp or a vision network, on this machine and now.

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
use super::output::Format;
use super::words;
use super::working::{Counted, Working};
use rooflined_api::{MeasureAnswer, MeasureRequest, RooflineAnswer};
use rooflined_client::Client;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_predict::Engine;

pub use rows::Comparison;
use rows::Row;

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
    let (mut comparison, engine) = if let Some(path) = args.network()? {
        (network::compare(context, args, path).await?, Engine::Bare)
    } else if let Some(engine) = args.engine_of_model() {
        (engine::compare(context, args, engine).await?, engine)
    } else {
        let work = named_work(args)?;
        let rows = work.iter().map(|(_, formats)| formats.len() as u64).sum();
        let working = Working::new(&context.printer, Counted::Of(rows), "measuring");
        (compare(&context.client, &work, &working).await?, Engine::Bare)
    };
    cause::add_causes(&mut context.client, &mut comparison, engine).await?;
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
        let named = input::named(&args.formats, &WeightFormat::ALL);
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
    let mut client = client.another(TIME_LIMIT);
    let calibrated = is_calibrated(&mut client).await?;
    let mut whole = MeasureAnswer { rows: Vec::new(), skipped: Vec::new(), simulated: false, serial: 0 };
    for (op, formats) in work {
        working.say(&words::operation(op));
        // The formats of one operation within one request are measured under the same conditions.
        let formats = keys(formats).unwrap_or_default();
        let request = MeasureRequest { op: Some(*op), formats, ..MeasureRequest::default() };
        let part: MeasureAnswer = client.command("/v1/measure", &request).await?.parse()?;
        whole.rows.extend(part.rows);
        whole.skipped.extend(part.skipped);
        whole.simulated |= part.simulated;
        whole.serial = part.serial;
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

/// Whether somebody has measured or specified the bandwidth. Nothing is impossible under a guess.
async fn is_calibrated(client: &mut Client) -> Result<bool, Failure> {
    let ceilings: RooflineAnswer = client.get("/v1/roofline").await?.parse()?;
    Ok(ceilings.bandwidth_bytes_per_s.provenance != "prior")
}
