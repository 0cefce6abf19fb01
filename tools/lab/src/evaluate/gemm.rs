//! `evaluate gemm`: a few shapes of each machine and precision are its calibration, the others are predicted.

use std::path::Path;

use serde_json::json;

use super::{Record, records, short};
use crate::operations::gemm::{FEWEST_LEFT, GemmScore, Row, evaluate};
use crate::report::{Errors, Figures, Section, figures, print};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;

/// Numbers of shapes that are taken as the calibration.
const DESIGNS: [(&str, usize); 2] = [("shapes_27", 27), ("shapes_64", 64)];

/// Rows of one machine, precision, kernel and source.
struct Group {
    device: String,
    precision: String,
    engine: String,
    source: String,
    format: Option<WeightFormat>,
    rows: Vec<Row>,
}

/// `evaluate gemm FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let records = records(file, "gemm")?;
    let groups = groups(&records);
    let sections = DESIGNS.map(|(key, shapes)| section(key, shapes, &groups));
    if sections.iter().all(|section| section.rows.is_empty()) {
        let why = groups.iter().find_map(|group| group.score(DESIGNS[0].1).err());
        let why = why.unwrap_or_else(|| "no complete line".to_owned());
        return Err(Failure::failed(
            format!("{}: no group of products can be evaluated: {why}", file.display()),
            format!(
                "give {} lines or more of a device that rooflinectl hardware list shows",
                27 + FEWEST_LEFT
            ),
        ));
    }
    print(printer, &sections)
}

/// Every group by `shapes` of its own, and all of them together.
fn section(key: &'static str, shapes: usize, groups: &[Group]) -> Section {
    let (mut rows, mut pairs, mut left_out, mut faster) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for group in groups {
        match group.score(shapes) {
            Ok(score) => {
                rows.push(group.figures(&score));
                faster += score.faster_than_physics;
                pairs.extend(score.pairs);
            }
            Err(why) => {
                let Group { device, precision, source, .. } = group;
                left_out.push(format!("{device} {precision} ({}): {why}", short(source)));
            }
        }
    }
    if let Some(all) = Errors::of_times(&pairs) {
        let mut row = figures([("device", json!("all")), ("rows", json!(all.rows))]);
        row.extend(all.figures(""));
        row.extend(figures([("faster_than_physics", json!(faster))]));
        rows.push(row);
    }
    let title = format!("{shapes} shapes calibrated, the others predicted");
    Section { facts: figures([("left_out", json!(left_out))]), ..Section::new(key, title, rows) }
}

/// In the order of the file; lines without a size or a time are left aside.
fn groups(records: &[Record]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for record in records {
        let (Some(m), Some(n), Some(k), Some(time)) = (record.m, record.n, record.k, record.seconds()) else {
            continue;
        };
        if m == 0 || n == 0 || k == 0 {
            continue;
        }
        let row = Row { m, n, k, time };
        let same = |group: &&mut Group| {
            group.device == record.device
                && group.precision == record.precision
                && group.engine == record.engine
                && group.source == record.source
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group {
                device: record.device.clone(),
                precision: record.precision.clone(),
                engine: record.engine.clone(),
                source: record.source.clone(),
                format: record.format().map(|(format, _)| format),
                rows: vec![row],
            }),
        }
    }
    groups
}

impl Group {
    /// # Errors
    /// Why it has no score.
    fn score(&self, shapes: usize) -> Result<GemmScore, String> {
        let hardware = registry().get(&self.device).ok_or("the registry does not know the device")?;
        let format = self.format.ok_or("no format has this name")?;
        if self.rows.len() < shapes + FEWEST_LEFT {
            return Err(format!("{} rows leave fewer than {FEWEST_LEFT} to predict", self.rows.len()));
        }
        evaluate(hardware, format, &self.rows, shapes)
            .ok_or_else(|| "the device has no unit for the precision".to_owned())
    }

    fn figures(&self, score: &GemmScore) -> Figures {
        let kernels = if self.engine.is_empty() { short(&self.source) } else { &self.engine };
        let mut row = figures([
            ("device", json!(self.device)),
            ("precision", json!(self.precision)),
            ("kernels", json!(kernels)),
            ("rows", json!(score.errors.rows)),
        ]);
        row.extend(score.errors.figures(""));
        row.extend(figures([
            ("faster_than_physics", json!(score.faster_than_physics)),
            ("constants_alone_mean_error_ratio", json!(score.constants_alone.mean)),
        ]));
        row
    }
}
