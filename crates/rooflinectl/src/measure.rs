//! `measure`: runs operations on this machine now and times them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Context;
use super::args::MeasureArgs;
use super::commands::workload;
use super::failure::Failure;
use super::input;
use super::show::mark_simulated;
use super::table::{Column, Table};
use super::words;
use super::working::{Counted, Working};
use rooflined_api::{MeasureAnswer, MeasureRequest, MeasuredRow};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Joules, significant};

/// Longest time that one request may measure.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);
/// The same where power is measured too.
const METERED_TIME_LIMIT: Duration = Duration::from_secs(600);

pub async fn run(context: &mut Context, args: &MeasureArgs) -> Result<(), Failure> {
    let mut workloads = Vec::new();
    let formats = input::named(&args.formats, &WeightFormat::ALL);
    for op in args.shapes.ops()? {
        workloads.extend(formats.iter().map(|format| workload(op, *format, None)));
    }
    let request = MeasureRequest { workloads, power: args.power, ..MeasureRequest::default() };
    let patience = if args.power { METERED_TIME_LIMIT } else { TIME_LIMIT };
    let working = Working::new(&context.printer, Counted::Nothing, "measuring");
    let answer = context.client.another(patience).command("/v1/measure", &request).await?;
    drop(working);
    let parsed: MeasureAnswer = answer.parse()?;
    if parsed.rows.is_empty() {
        return Err(Failure::failed(
            format!("nothing was measured: {}", parsed.skipped.join("; ")),
            "take smaller sizes or other formats",
        ));
    }
    context.printer.answer("measure", &answer, || Ok(render(&parsed)))
}

const COLUMNS: [Column<MeasuredRow>; 13] = [
    ("operation", |row| Some(words::name_measured(&row.op))),
    ("format", |row| Some(row.format.clone())),
    (">median", |row| Some(words::time(row.measured_time_s.value))),
    (">5 %", |row| Some(words::time(row.measured_time_s.low))),
    (">95 %", |row| Some(words::time(row.measured_time_s.high))),
    (">runs", |row| Some(row.runs.to_string())),
    ("isa", |row| Some(row.isa.clone())),
    ("regime", |row| Some(row.regime.clone())),
    (">predicted", |row| Some(words::time(row.predicted_time_s.value))),
    (">bound", |row| Some(words::time(row.roofline_time_s))),
    (">W", |row| row.power.as_ref()?.power_w.map(significant)),
    (">idle W", |row| row.power.as_ref()?.idle_power_w.map(significant)),
    (">energy above idle", |row| row.power.as_ref()?.energy_j.map(|joules| Joules(joules).to_string())),
];

fn render(answer: &MeasureAnswer) -> String {
    let mut text = mark_simulated(answer.simulated, Table::of(&answer.rows, &COLUMNS).render());
    // Rows without power mostly share one reason.
    let reasons: BTreeSet<_> =
        answer.rows.iter().filter_map(|row| row.power.as_ref()?.reason.as_ref()).collect();
    for reason in reasons {
        text.push_str(&format!("  power: {reason}\n"));
    }
    for skipped in &answer.skipped {
        text.push_str(&format!("  skipped: {skipped}\n"));
    }
    text
}
