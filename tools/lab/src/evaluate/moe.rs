//! `evaluate moe`: layers of experts against tokens at once.

use std::path::Path;

use serde_json::json;

use super::{Record, cells, percent, records};
use crate::operations::moe::{CALIBRATED_TOKENS, Curve, Draw, MoeScore, Rule, evaluate};
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_models::routing::Routing;

/// What the prototype left of skewed curves, best and worst group.
const PROTOTYPE: (f64, f64) = (0.058, 0.071);
/// Error that is aimed at.
const GOAL: f64 = 0.08;

/// `evaluate moe FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let records = records(file, "moe")?;
    let devices = devices(&records);
    let mut scored = Vec::new();
    for (device, curves) in &devices {
        if let Some(hardware) = registry().get(device) {
            scored.push((device.as_str(), evaluate(hardware, curves)));
        }
    }
    if scored.iter().all(|(_, scores)| scores.is_empty()) {
        return Err(Failure::failed(
            format!("{}: no layer of experts can be evaluated", file.display()),
            "shapes are T=… h=… i=… topk=… E=… balanced, or power_law_1.2, of a device that rooflinectl hardware list \
             shows",
        ));
    }
    match printer.format {
        Format::Human => {
            printer.text(&scored.iter().map(|(device, scores)| table(device, scores)).collect::<String>())
        }
        _ => printer.value(
            "evaluation",
            &json!({
                "op": "moe",
                "calibrated_tokens": CALIBRATED_TOKENS,
                "devices": scored
                    .iter()
                    .map(|(device, scores)| json!({ "device": device, "scores": scores }))
                    .collect::<Vec<_>>(),
                "prototype": { "mean_error_ratio": [PROTOTYPE.0, PROTOTYPE.1] },
                "goal": { "error_ratio": GOAL },
            }),
        ),
    }
}

/// The curves of each device, in the order of the file; lines that are no layer of experts are left aside.
fn devices(records: &[Record]) -> Vec<(String, Vec<Curve>)> {
    let mut devices: Vec<(String, Vec<(String, Curve)>)> = Vec::new();
    for record in records {
        let Some((tokens, time, curve)) = point(record) else { continue };
        let index = match devices.iter().position(|(name, _)| *name == record.device) {
            Some(index) => index,
            None => {
                devices.push((record.device.clone(), Vec::new()));
                devices.len() - 1
            }
        };
        let curves = &mut devices[index].1;
        // What is left of the shape without its tokens, and the precision, tell the curve.
        let name =
            format!("{} {}", record.precision, record.shape.split_once(' ').map_or("", |(_, rest)| rest));
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.points.push((tokens, time)),
            None => curves.push((name, Curve { points: vec![(tokens, time)], ..curve })),
        }
    }
    devices
        .into_iter()
        .map(|(name, curves)| (name, curves.into_iter().map(|(_, curve)| curve).collect()))
        .collect()
}

/// `T=1 h=2048 i=512 topk=8 E=256 balanced` and its time; the curve is without points.
fn point(record: &Record) -> Option<(u64, f64, Curve)> {
    let field = |key: &str| {
        let of_key = |part: &str| part.strip_prefix(key)?.strip_prefix('=')?.parse::<u32>().ok();
        record.shape.split_whitespace().find_map(of_key).filter(|size| *size > 0)
    };
    let draw = match record.shape.split_whitespace().last()? {
        "balanced" => Draw::Balanced,
        "power_law_1.2" => Draw::Skewed,
        _ => return None,
    };
    let routing = Routing { experts: field("E")?.into(), active: field("topk")?.into() };
    if routing.active > routing.experts {
        return None;
    }
    let (format, compute) = record.format()?;
    // Gate, up and down.
    let weights = 3.0 * f64::from(field("h")?) * f64::from(field("i")?);
    let curve = Curve { weights, routing, format, compute, draw, points: Vec::new() };
    Some((field("T")?.into(), record.seconds()?, curve))
}

fn table(device: &str, scores: &[MoeScore]) -> String {
    let mut table = Table::new(&[
        "routing",
        "experts read",
        ">curves",
        ">median",
        ">mean",
        ">90 %",
        ">predicted median",
        ">mean",
        ">90 %",
    ]);
    for score in scores {
        let draw = match score.draw {
            Draw::Skewed => "power law 1.2",
            Draw::Balanced => "balanced",
        };
        let rule = match score.rule {
            Rule::Uniform => "E (1 - (1 - k/E)^T)",
            Rule::PowerLaw => "the same over the power law",
            Rule::Dealt => "min(E, T k)",
        };
        let mut row = vec![draw.to_owned(), rule.to_owned(), score.curves.to_string()];
        row.extend(cells(&score.explained));
        row.extend(cells(&score.predicted));
        table.row(row);
    }
    let range = format!("{:.1}-{}", PROTOTYPE.0 * 100.0, percent(PROTOTYPE.1));
    table.row(["prototype".to_owned(), String::new(), String::new(), String::new(), range]);
    let goal = format!("<= {:.0} %", GOAL * 100.0);
    table.row(["goal".to_owned(), String::new(), String::new(), goal.clone(), goal]);
    let tokens = CALIBRATED_TOKENS.map(|tokens| tokens.to_string()).join(", ");
    format!(
        "{device}: three constants fitted to each whole curve; and {tokens} tokens measured, the other points \
         predicted\n\n{}",
        table.render()
    )
}
