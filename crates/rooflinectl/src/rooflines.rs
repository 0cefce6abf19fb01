//! `roofline`: the ceilings as a table, and drawn with operations below them.

use super::Context;
use super::args::RooflineArgs;
use super::chart::Chart;
use super::compare::{self, Comparison};
use super::failure::Failure;
use super::output::Format;
use super::working::{Counted, Working};
use super::{plot, show, svg};
use rooflined_advice::Request;
use rooflined_api::{RooflineAnswer, SweepAnswer, SweepRequest, SweepRow};
use rooflined_client::{Client, ClientError};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Code;

pub async fn run(context: &mut Context, args: &RooflineArgs) -> Result<(), Failure> {
    let machine = &args.machine;
    let answer = match &machine.hardware {
        Some(_) => context.answer_from_data_sheet(&Request::Roofline {
            mode: machine.mode.clone(),
            precision: args.precision.map(|precision| precision.to_string()),
            hardware: machine.hardware.clone(),
        })?,
        None => context.client.get(&route(args)).await?,
    };
    if context.printer.format != Format::Human && args.svg.is_none() {
        return context.printer.answer("roofline", &answer, || Ok(String::new()));
    }
    let parsed: RooflineAnswer = answer.parse()?;
    let mut chart = Chart::new(&parsed);
    // Operations are predicted as the machine is now, so they belong under the current ceilings only.
    if machine.hardware.is_none() && machine.mode.is_none() && args.precision.is_none() {
        let work = list_plotted_operations();
        let predicted = predict(&mut context.client, &work).await?;
        chart.add_predicted(&predicted);
        if args.measure {
            let working = Working::new(&context.printer, Counted::Nothing, "measuring");
            let comparison = compare::compare(&context.client, &work, &working).await?;
            add_measured(&mut chart, &comparison, &predicted);
        }
    } else if args.measure {
        return Err(Failure::usage(
            "--measure shows the machine as it is now: leave --mode and --precision out",
        ));
    }
    if let Some(file) = &args.svg {
        write_svg(&chart, file)?;
    }
    let printer = &context.printer;
    printer.answer("roofline", &answer, || {
        Ok(format!("{}\n{}", plot::draw(&chart, printer), show::roofline(&parsed)))
    })
}

/// The operations that a plot shows.
pub fn list_plotted_operations() -> Vec<(Op, Vec<WeightFormat>)> {
    use WeightFormat::{Bf16, Fp32, Int4, Int8};
    vec![
        (Op::Gemv { n: 4096, k: 4096 }, vec![Fp32, Bf16, Int8, Int4]),
        (Op::Gemm { m: 8, n: 4096, k: 4096 }, vec![Fp32]),
        (Op::Gemm { m: 128, n: 4096, k: 4096 }, vec![Fp32]),
    ]
}

/// Predictions for operations in their formats; formats that this machine cannot compute are left out.
pub async fn predict(
    client: &mut Client,
    work: &[(Op, Vec<WeightFormat>)],
) -> Result<Vec<SweepRow>, Failure> {
    let mut rows = Vec::new();
    for (op, formats) in work {
        for format in formats {
            let request = SweepRequest {
                ops: vec![*op],
                formats: Some(vec![format.key().to_owned()]),
                ..SweepRequest::default()
            };
            match client.post("/v1/sweep", &request).await {
                Ok(answer) => rows.extend(answer.parse::<SweepAnswer>()?.rows),
                Err(ClientError::Refused { body, .. }) if body.known_code() == Some(Code::NoUnit) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
    Ok(rows)
}

/// Puts what was measured into the plot.
pub fn add_measured(chart: &mut Chart, comparison: &Comparison, predicted: &[SweepRow]) {
    let measured: Vec<_> = comparison.rows.iter().map(|row| row.measured.clone()).collect();
    chart.add_measured(&measured, predicted);
}

/// Writes the plot as an SVG file.
pub fn write_svg(chart: &Chart, file: &std::path::Path) -> Result<(), Failure> {
    std::fs::write(file, svg::render(chart)).map_err(|error| {
        Failure::failed(
            format!("{} cannot be written: {error}", file.display()),
            "name a file in a directory that exists and that you may write to",
        )
    })
}

fn route(args: &RooflineArgs) -> String {
    let mode = args.machine.mode.iter().map(|mode| format!("mode={}", percent_encode(mode)));
    let precision = args.precision.iter().map(|precision| format!("precision={precision}"));
    let query: Vec<_> = mode.chain(precision).collect();
    if query.is_empty() { "/v1/roofline".to_owned() } else { format!("/v1/roofline?{}", query.join("&")) }
}

/// Percent-encoded, as a query takes it.
pub fn percent_encode(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = text
        .bytes()
        .map(|byte| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_with_blanks_stays_one_parameter() {
        assert_eq!(percent_encode("MAXN SUPER&x=1/µ"), "MAXN%20SUPER%26x%3D1%2F%C2%B5");
    }
}
