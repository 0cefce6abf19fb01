//! `evaluate moe`: layers of experts against tokens at once.

use std::path::Path;

use serde_json::json;

use super::{Record, records};
use crate::operations::moe::{CALIBRATED_TOKENS, Curve, Draw, MoeScore, Rule, evaluate};
use crate::report::{Figures, Section, figures, print};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_models::routing::Routing;

/// `evaluate moe FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (device, curves) in devices(&records(file, "moe")?) {
        if let Some(hardware) = registry().get(&device) {
            rows.extend(evaluate(hardware, &curves).iter().map(|score| row(&device, score)));
        }
    }
    if rows.is_empty() {
        return Err(Failure::failed(
            format!("{}: no layer of experts can be evaluated", file.display()),
            "shapes are T=… h=… i=… topk=… E=… balanced, or power_law_1.2, of a device that rooflinectl hardware list \
             shows",
        ));
    }
    let tokens = CALIBRATED_TOKENS.map(|tokens| tokens.to_string()).join(", ");
    let title = format!(
        "Three constants fitted to each whole curve (explained); and {tokens} tokens measured, the other points predicted"
    );
    print(printer, &[Section::new("curves", title, rows)])
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

fn row(device: &str, score: &MoeScore) -> Figures {
    let draw = match score.draw {
        Draw::Skewed => "power law 1.2",
        Draw::Balanced => "balanced",
    };
    let rule = match score.rule {
        Rule::Uniform => "E (1 - (1 - k/E)^T)",
        Rule::PowerLaw => "the same over the power law",
        Rule::Dealt => "min(E, T k)",
    };
    let mut row = figures([
        ("device", json!(device)),
        ("routing", json!(draw)),
        ("experts_read", json!(rule)),
        ("curves", json!(score.curves)),
    ]);
    row.extend(score.explained.figures("explained_"));
    row.extend(score.predicted.figures("predicted_"));
    row
}
