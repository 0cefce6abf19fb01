//! `measure`: runs operations on this machine now and times them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Context;
use super::args::MeasureArgs;
use super::commands::workload;
use super::failure::Failure;
use super::show::SIMULATED;
use super::table::Table;
use super::words;
use super::working::{Counted, Working};
use rooflined_api::{MeasureAnswer, MeasureRequest};
use rooflined_core::units::{Joules, significant};

/// Longest time that one request may measure.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);
/// The same where power is measured too.
pub const METERED_TIME_LIMIT: Duration = Duration::from_secs(600);

pub async fn run(context: &mut Context, args: &MeasureArgs) -> Result<(), Failure> {
    let mut workloads = Vec::new();
    for op in args.shapes.ops()? {
        workloads.extend(args.formats.iter().map(|format| workload(op, *format, None)));
    }
    let request = MeasureRequest { workloads, power: args.power, ..MeasureRequest::default() };
    let patience = if args.power { METERED_TIME_LIMIT } else { TIME_LIMIT };
    let working = Working::new(&context.printer, Counted::Nothing, "measuring");
    let answer = context.client.another(patience).command("/v1/measure", &request).await?;
    drop(working);
    context.printer.answer("measure", &answer, || Ok(render(&answer.parse()?)))
}

fn render(answer: &MeasureAnswer) -> String {
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
            words::name_measured(&row.op),
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
    let mut text = if answer.simulated { SIMULATED.to_owned() } else { String::new() };
    text.push_str(&table.render());
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
