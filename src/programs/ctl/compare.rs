//! `compare`: predicted vs. measured; `measure`: measured alone. Both run operations on this machine now.

use std::time::Duration;

use super::Context;
use super::args::{CompareArgs, MeasureArgs};
use super::commands::{keys, workload};
use super::comparison::{Comparison, TIME_LIMIT, judged};
use super::failure::Failure;
use super::input::ShapeArgs;
use super::modes_compared;
use super::output::Format;
use super::table::Table;
use super::words;
use super::working::{Counted, Working};
use super::{compare_engine, compare_models};
use roofline::precision::WeightFormat;
use roofline::units::{Joules, significant};
use roofline::workload::Op;
use wire::client::Client;
use wire::{MeasureAnswer, MeasureRequest, RooflineAnswer};

/// The same where power is measured too.
const METERED_TIME_LIMIT: Duration = Duration::from_secs(600);

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
    if let Some(engine) = args.engine {
        return compare_engine::run(context, args, engine).await;
    }
    if let Some(work) = args.models()? {
        let comparison = compare_models::compare(&context.client, &work, &context.printer).await?;
        return match context.printer.format {
            Format::Human => context.printer.text(&render(&comparison)),
            _ => context.printer.value("compare", &serde_json::json!(comparison)),
        };
    }
    let shapes = args.shapes()?;
    let mut work = if shapes.is_empty() { default_work() } else { named_work(&shapes)? };
    if !args.formats.is_empty() {
        work.iter_mut().for_each(|(_, formats)| formats.clone_from(&args.formats));
    }
    if !args.modes.is_empty() {
        return modes_compared::run(context, &args.modes, &work).await;
    }
    let rows = work.iter().map(|(_, formats)| formats.len() as u64).sum();
    let working = Working::new(&context.printer, Counted::Of(rows), "measuring");
    let comparison = compare(&context.client, &work, &working).await?;
    drop(working);
    match context.printer.format {
        Format::Human => context.printer.text(&render(&comparison)),
        _ => context.printer.value("compare", &serde_json::json!(comparison)),
    }
}

/// The shapes named, in the formats that are compared for their kind when none are named.
fn named_work(shapes: &ShapeArgs) -> Result<Vec<(Op, Vec<WeightFormat>)>, Failure> {
    let formats = |op: &Op| {
        let like = default_work().into_iter().find(|(other, _)| other.kind() == op.kind());
        like.map_or_else(|| vec![WeightFormat::Fp32], |(_, formats)| formats)
    };
    Ok(shapes.ops()?.into_iter().map(|op| (op, formats(&op))).collect())
}

/// Measures each operation in its formats; the formats of one operation within one request, so that they are
/// measured under the same conditions.
pub async fn compare(
    client: &Client,
    work: &[(Op, Vec<WeightFormat>)],
    working: &Working,
) -> Result<Comparison, Failure> {
    let mut client = client.another(TIME_LIMIT);
    let ceilings: RooflineAnswer = client.get("/v1/roofline").await?.parse()?;
    let mut whole = MeasureAnswer { rows: Vec::new(), skipped: Vec::new(), simulated: false, serial: 0 };
    for (op, formats) in work {
        working.say(&words::operation(op));
        let request = MeasureRequest {
            op: Some(*op),
            formats: keys(formats).unwrap_or_default(),
            ..MeasureRequest::default()
        };
        let part: MeasureAnswer = client.command("/v1/measure", &request).await?.parse()?;
        whole.rows.extend(part.rows);
        whole.skipped.extend(part.skipped);
        whole.simulated |= part.simulated;
        whole.serial = part.serial;
        working.advance(formats.len() as u64);
    }
    Ok(judged(whole, is_known(&ceilings.bandwidth_bytes_per_s.provenance)))
}

/// Whether somebody has measured or specified the ceiling. Nothing is impossible under a guess.
fn is_known(provenance: &str) -> bool {
    provenance != "prior"
}

/// The comparison as a table.
#[must_use]
pub fn render(comparison: &Comparison) -> String {
    // Two columns that would only hold dashes would make lines too long for nothing.
    let speedups = comparison.rows.iter().any(|row| row.speedup_vs_fp16_measured.is_some());
    let mut columns = vec!["operation", "format", ">predicted", ">measured", ">error", ">drift"];
    if speedups {
        columns.extend([">x fp16", ">measured"]);
    }
    columns.extend(["bound, limit", "verdict"]);
    let mut table = Table::new(&columns);
    let speedup = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), significant);
    for row in &comparison.rows {
        let measured = &row.measured;
        let mut cells = vec![
            words::measured(&measured.op),
            measured.format.clone(),
            words::time(measured.predicted_time_s.value),
            words::time(measured.measured_time_s.value),
            words::signed_percent(measured.error_ratio),
            measured.drift_ratio.map_or_else(|| "-".to_owned(), |drift| words::signed_percent(drift - 1.0)),
        ];
        if speedups {
            cells.extend([speedup(row.speedup_vs_fp16_predicted), speedup(row.speedup_vs_fp16_measured)]);
        }
        cells.extend([format!("{}, {}", measured.bound, measured.limit), row.verdict.replace('_', " ")]);
        table.row(cells);
    }
    let mut text =
        if comparison.simulated { "SIMULATED: no hardware ran this\n".to_owned() } else { String::new() };
    text.push_str(&format!("{}\n\n", comparison.verdict));
    let models = comparison.rows.iter().any(|row| row.measured.op.op().is_none());
    text.push_str(&if models { compare_models::table(comparison) } else { table.render() });
    for skipped in &comparison.skipped {
        text.push_str(&format!("  skipped: {skipped}\n"));
    }
    for warning in &comparison.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    if let Some(median) = comparison.median_error_at_calibration_ratio {
        text.push_str(&format!(
            "from the calibration alone, without the reference read beside each row: median {}\n",
            words::percent(median)
        ));
    }
    text
}

pub async fn measure(context: &mut Context, args: &MeasureArgs) -> Result<(), Failure> {
    let mut workloads = Vec::new();
    for op in args.shapes.ops()? {
        workloads.extend(args.formats.iter().map(|format| workload(op, *format, None)));
    }
    let request = MeasureRequest { workloads, power: args.power, ..MeasureRequest::default() };
    let patience = if args.power { METERED_TIME_LIMIT } else { TIME_LIMIT };
    let working = Working::new(&context.printer, Counted::Nothing, "measuring");
    let answer = context.client.another(patience).command("/v1/measure", &request).await?;
    drop(working);
    context.printer.answer("measure", &answer, || Ok(measured(&answer.parse()?)))
}

fn measured(answer: &MeasureAnswer) -> String {
    let mut columns = vec![
        "operation",
        "format",
        ">median",
        ">5 %",
        ">95 %",
        ">runs",
        "isa",
        "regime",
        ">predicted",
        ">bound",
    ];
    let metered = answer.rows.iter().any(|row| row.power.is_some());
    if metered {
        columns.extend([">W", ">idle W", ">energy above idle"]);
    }
    let mut table = Table::new(&columns);
    for row in &answer.rows {
        let mut cells = vec![
            words::measured(&row.op),
            row.format.clone(),
            words::time(row.measured_time_s.value),
            words::time(row.measured_time_s.low),
            words::time(row.measured_time_s.high),
            row.runs.to_string(),
            row.isa.clone(),
            row.regime.clone(),
            words::time(row.predicted_time_s.value),
            words::time(row.roofline_time_s),
        ];
        if metered {
            let power = row.power.as_ref();
            let watts = |watts: Option<f64>| watts.map_or_else(|| "-".to_owned(), significant);
            cells.extend([
                watts(power.and_then(|power| power.power_w)),
                watts(power.and_then(|power| power.idle_power_w)),
                power
                    .and_then(|power| power.energy_j)
                    .map_or_else(|| "-".to_owned(), |joules| Joules(joules).to_string()),
            ]);
        }
        table.row(cells);
    }
    let mut text =
        if answer.simulated { "SIMULATED: no hardware ran this\n".to_owned() } else { String::new() };
    text.push_str(&table.render());
    // What there is no power of has one reason mostly.
    let mut said = Vec::new();
    for reason in answer.rows.iter().filter_map(|row| row.power.as_ref()?.reason.as_ref()) {
        if !said.contains(&reason) {
            text.push_str(&format!("  power: {reason}\n"));
            said.push(reason);
        }
    }
    for skipped in &answer.skipped {
        text.push_str(&format!("  skipped: {skipped}\n"));
    }
    text
}
