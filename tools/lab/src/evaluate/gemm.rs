//! `evaluate gemm`: a few shapes of each machine and precision are its calibration, the others are predicted.

use std::path::Path;

use serde_json::{Value, json};

use super::{Record, cells, percent, records, short};
use crate::operations::Score;
use crate::operations::gemm::{FEWEST_LEFT, GemmScore, Row, evaluate};
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;

/// Shapes that are taken as the calibration, and what the prototype left with as many: the best and the worst group.
const DESIGNS: [Design; 2] = [
    Design { shapes: 27, median: None, mean: (0.085, 0.227) },
    Design { shapes: 64, median: Some((0.049, 0.13)), mean: (0.069, 0.167) },
];
/// Median error that is aimed at.
const GOAL_MEDIAN: f64 = 0.08;
/// Mean error that is aimed at.
const GOAL_MEAN: f64 = 0.15;

struct Design {
    shapes: usize,
    median: Option<(f64, f64)>,
    mean: (f64, f64),
}

/// Rows of one machine, precision, kernel and source.
struct Group {
    device: String,
    precision: String,
    engine: String,
    source: String,
    format: Option<WeightFormat>,
    rows: Vec<Row>,
}

struct Outcome<'a> {
    design: &'a Design,
    scored: Vec<(&'a Group, GemmScore)>,
    left_out: Vec<(&'a Group, String)>,
}

/// `evaluate gemm FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let records = records(file, "gemm")?;
    let groups = groups(&records);
    let outcomes: Vec<Outcome<'_>> = DESIGNS.iter().map(|design| Outcome::of(design, &groups)).collect();
    if outcomes.iter().all(|outcome| outcome.scored.is_empty()) {
        let why = outcomes[0].left_out.first().map_or("no complete line", |(_, why)| why.as_str());
        return Err(Failure::failed(
            format!("{}: no group of products can be evaluated: {why}", file.display()),
            format!(
                "give {} lines or more of a device that rooflinectl hardware list shows",
                27 + FEWEST_LEFT
            ),
        ));
    }
    match printer.format {
        Format::Human => printer.text(&outcomes.iter().map(Outcome::table).collect::<Vec<_>>().join("\n")),
        _ => printer.value(
            "evaluation",
            &json!({ "op": "gemm", "designs": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() }),
        ),
    }
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

    fn kernels(&self) -> &str {
        if self.engine.is_empty() { short(&self.source) } else { &self.engine }
    }
}

impl<'a> Outcome<'a> {
    fn of(design: &'a Design, groups: &'a [Group]) -> Self {
        let (mut scored, mut left_out) = (Vec::new(), Vec::new());
        for group in groups {
            match group.score(design.shapes) {
                Ok(score) => scored.push((group, score)),
                Err(why) => left_out.push((group, why)),
            }
        }
        Self { design, scored, left_out }
    }

    /// Over the rows of all groups.
    fn all(&self) -> Option<Score> {
        let pairs: Vec<(f64, f64)> =
            self.scored.iter().flat_map(|(_, score)| score.pairs.iter().copied()).collect();
        Score::of(&pairs)
    }

    fn faster_than_physics(&self) -> usize {
        self.scored.iter().map(|(_, score)| score.faster_than_physics).sum()
    }

    fn table(&self) -> String {
        let mut table = Table::new(&[
            "device",
            "precision",
            "kernels",
            ">rows",
            ">median",
            ">mean",
            ">90 %",
            ">constants alone",
            ">too fast",
        ]);
        for (group, score) in &self.scored {
            let mut row = vec![
                group.device.clone(),
                group.precision.clone(),
                group.kernels().to_owned(),
                score.score.rows.to_string(),
            ];
            row.extend(cells(&score.score));
            row.push(percent(score.constants_alone.mean_error_ratio));
            row.push(score.faster_than_physics.to_string());
            table.row(row);
        }
        if let Some(all) = self.all() {
            let mut row = vec!["all".to_owned(), String::new(), String::new(), all.rows.to_string()];
            row.extend(cells(&all));
            row.extend([String::new(), self.faster_than_physics().to_string()]);
            table.row(row);
        }
        let range = |(best, worst): (f64, f64)| format!("{:.1}-{}", best * 100.0, percent(worst));
        let median = self.design.median.map_or_else(|| "-".to_owned(), range);
        let named = |name: &str| vec![name.to_owned(), String::new(), String::new(), String::new()];
        table.row([named("prototype"), vec![median, range(self.design.mean)]].concat());
        let goal = |limit: f64| format!("<= {:.0} %", limit * 100.0);
        let mut row = named("goal");
        row.extend([goal(GOAL_MEDIAN), goal(GOAL_MEAN), String::new(), String::new(), "0".to_owned()]);
        table.row(row);
        let mut text = format!("{} shapes calibrated, the others predicted\n\n", self.design.shapes);
        text.push_str(&table.render());
        for (group, why) in &self.left_out {
            text.push_str(&format!(
                "  left out: {} {} ({}): {why}\n",
                group.device,
                group.precision,
                short(&group.source)
            ));
        }
        text
    }

    fn json(&self) -> Value {
        let group = |group: &Group| {
            json!({
                "device": group.device,
                "precision": group.precision,
                "engine": (!group.engine.is_empty()).then_some(&group.engine),
                "source": group.source,
            })
        };
        let scored = self.scored.iter().map(|(of, score)| {
            let mut value = group(of);
            value["score"] = json!(score);
            value
        });
        let left_out = self.left_out.iter().map(|(of, why)| {
            let mut value = group(of);
            value["reason"] = json!(why);
            value
        });
        let all = self.all();
        json!({
            "calibrated_shapes": self.design.shapes,
            "groups": scored.collect::<Vec<_>>(),
            "all": all,
            "faster_than_physics": self.faster_than_physics(),
            "prototype": {
                "median_error_ratio": self.design.median.map(|(best, worst)| [best, worst]),
                "mean_error_ratio": [self.design.mean.0, self.design.mean.1],
            },
            "goal": { "median_error_ratio": GOAL_MEDIAN, "mean_error_ratio": GOAL_MEAN },
            "reached": all.is_some_and(|all| {
                all.median_error_ratio <= GOAL_MEDIAN
                    && all.mean_error_ratio <= GOAL_MEAN
                    && self.faster_than_physics() == 0
            }),
            "left_out": left_out.collect::<Vec<_>>(),
        })
    }
}
