//! What power costs, as a sentence.

use super::table::Table;
use super::words;
use rooflined_api::PowerCostsAnswer;
use rooflined_core::units::{BytesPerSecond, Joules, Watts};

/// The held loads and what was made of them, beside the ceilings.
#[must_use]
pub fn detailed(costs: &PowerCostsAnswer) -> String {
    let mut text = String::new();
    if !costs.points.is_empty() {
        let mut table =
            Table::new(&["power of", "what", ">power", ">read", ">work", ">weights", ">readings"]);
        for point in &costs.points {
            let power = point.power_w.map_or_else(|| "-".to_owned(), |watts| Watts(watts).to_string());
            table.row([
                point.load.clone(),
                point.kernel.clone().unwrap_or_else(|| "nothing".to_owned()),
                power,
                BytesPerSecond(point.bytes_per_s).to_string(),
                words::compute(point.precision.as_deref().unwrap_or_default(), point.flops_per_s),
                words::rate(point.weights_per_s),
                point.readings.to_string(),
            ]);
        }
        text.push_str(&table.render());
        // One reason is often that of all.
        let mut said: Vec<&String> = costs.points.iter().filter_map(|point| point.reason.as_ref()).collect();
        said.dedup();
        said.iter().for_each(|why| text.push_str(&format!("  {why}\n")));
    }
    text.push_str(&format!("power: {}\n", line(costs)));
    text
}

/// In a line: the coefficients and whose they are, or why there are none.
#[must_use]
pub fn line(costs: &PowerCostsAnswer) -> String {
    let why = costs.reason.as_deref().unwrap_or("nothing is known of it");
    let (Some(source), Some(from), Some(fixed)) = (&costs.power_source, &costs.power_from, costs.static_w)
    else {
        return format!("not measured: {why}");
    };
    let picojoules = |joules: Option<f64>| {
        joules.map_or_else(|| "unknown".to_owned(), |joules| Joules(joules).to_string())
    };
    let half = costs.half_width_ratio.map_or_else(String::new, |half| format!(", ±{}", words::percent(half)));
    let mut text = format!(
        "{} while it runs, {} a byte, {} an operation in {}, {} a weight ({from}, {source}{half})",
        Watts(fixed),
        picojoules(costs.byte_j),
        picojoules(costs.flop_j),
        costs.flop_precision.as_deref().unwrap_or("-"),
        picojoules(costs.weight_j),
    );
    if source != "measured" {
        text.push_str(&format!("; not measured here: {why}"));
    }
    text
}
