//! Measurements beside their predictions: how far apart they are, and what that means.

use std::fmt::Write;

use serde::Serialize;

use crate::show::SIMULATED;
use crate::table::{Column, Table};
use crate::words;
use rooflined_api::{EstimateAnswer, MeasuredRow};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::significant;

/// Median and 90th percentile of the error under which prediction and measurement agree.
const GOOD: (f64, f64) = (0.08, 0.20);
/// A prediction further off than this part of the measured time counts as wrong, however wide its interval.
const AS_PREDICTED: f64 = 0.20;
/// Ceilings have intervals: a time this much under the physical bound is still possible.
const BOUND_TOLERANCE: f64 = 1.05;
const UNCALIBRATED: &str =
    "the ceilings are not measured yet, so the predictions are guesses: rooflinectl calibrate";

/// What `compare -o json` prints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Comparison {
    pub rows: Vec<Row>,
    /// Median of |predicted - measured| / measured; `null` without rows.
    pub median_error_ratio: Option<f64>,
    pub p90_error_ratio: Option<f64>,
    /// Part of the same rows whose measured time lies within the 90 % interval of the prediction.
    pub inside_interval_ratio: Option<f64>,
    /// Median of the error for the predictions from the calibration alone; `null` where these are the only ones.
    pub median_error_at_calibration_ratio: Option<f64>,
    /// The outcome in a sentence.
    pub verdict: String,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
    /// What the reader should know.
    pub warnings: Vec<String>,
    /// Measured on a simulated accelerator.
    pub simulated: bool,
    /// Of the last snapshot used.
    pub serial: u64,
    #[serde(flatten)]
    pub engine: Option<EngineRun>,
}

/// The inference engine that was run, and the memory before and after.
#[derive(Debug, Clone, Serialize)]
pub struct EngineRun {
    pub engine: Program,
    pub reference: Reference,
}

#[derive(Debug, Clone, Serialize)]
pub struct Program {
    pub name: &'static str,
    pub program: String,
    pub build_commit: Option<String>,
    pub build_number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub backends: Option<String>,
}

/// Bandwidth of a reference read over that of the calibration.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reference {
    pub before_ratio: Option<f64>,
    pub after_ratio: Option<f64>,
    /// Why one of them is `null`.
    pub reason: Option<String>,
}

/// One operation or model in one format.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The engine's own name for it, such as `pp512`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Threads that the engine says it ran with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Cache format that the engine says it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// Predicted tokens per second of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_tokens_per_s: Option<EstimateAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_tokens_per_s: Option<EstimateAnswer>,
    /// Pictures that a network took, over the time of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_pictures_per_s: Option<f64>,
    /// Time of all runs of a network together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_duration_s: Option<f64>,
    /// Length of the prompt that the engine read; `None` where it wrote.
    #[serde(skip)]
    pub prompt_tokens: Option<u64>,
    #[serde(flatten)]
    pub measured: MeasuredRow,
    /// Predicted time of fp16 over that of this format; `null` if fp16 was not measured with it.
    pub speedup_vs_fp16_predicted: Option<f64>,
    /// The same of the measured times.
    pub speedup_vs_fp16_measured: Option<f64>,
    /// `impossible`, `as_predicted` (inside the interval and at most a fifth off), `slower_than_predicted` or
    /// `faster_than_predicted`.
    pub verdict: &'static str,
    /// Why the verdict is not `as_predicted`, as `POST /v1/explain` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl Row {
    /// `calibrated`: the ceilings are no guesses.
    pub fn new(measured: MeasuredRow, calibrated: bool) -> Self {
        let verdict = judge(&measured, calibrated);
        Self {
            test: None,
            threads: None,
            kv_format: None,
            predicted_tokens_per_s: None,
            measured_tokens_per_s: None,
            measured_pictures_per_s: None,
            measured_duration_s: None,
            prompt_tokens: None,
            speedup_vs_fp16_predicted: None,
            speedup_vs_fp16_measured: None,
            verdict,
            cause: None,
            measured,
        }
    }

    fn is_inside(&self) -> bool {
        let EstimateAnswer { low, high, .. } = self.measured.predicted_time_s;
        (low..=high).contains(&self.measured.measured_time_s.value)
    }
}

/// Nothing is impossible under ceilings that are guesses.
fn judge(row: &MeasuredRow, calibrated: bool) -> &'static str {
    let (measured, predicted) = (row.measured_time_s.value, row.predicted_time_s);
    let error = (predicted.value - measured) / measured;
    if calibrated && measured * BOUND_TOLERANCE < row.roofline_time_s {
        "impossible"
    } else if measured > predicted.high || error < -AS_PREDICTED {
        "slower_than_predicted"
    } else if measured < predicted.low || error > AS_PREDICTED {
        "faster_than_predicted"
    } else {
        "as_predicted"
    }
}

impl Comparison {
    /// The rows with what follows from them.
    pub fn of(mut rows: Vec<Row>, calibrated: bool) -> Self {
        add_speedups(&mut rows);
        let errors = |error: fn(&MeasuredRow) -> f64| -> Vec<f64> {
            let mut errors: Vec<f64> = rows.iter().map(|row| error(&row.measured).abs()).collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let own = errors(|row| row.error_ratio);
        let (median, p90) = (quantile(&own, 0.5), quantile(&own, 0.9));
        let impossible = rows.iter().filter(|row| row.verdict == "impossible").count();
        // An engine is predicted from the calibration only.
        let referred = rows.iter().all(|row| row.test.is_none());
        let at_calibration = errors(|row| row.error_at_calibration_ratio);
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let share = |part: usize| (!rows.is_empty()).then(|| part as f64 / rows.len() as f64);
        Self {
            median_error_ratio: median,
            p90_error_ratio: p90,
            inside_interval_ratio: share(rows.iter().filter(|row| row.is_inside()).count()),
            median_error_at_calibration_ratio: quantile(&at_calibration, 0.5).filter(|_| referred),
            verdict: verdict(median, p90, rows.len(), impossible),
            warnings: (!calibrated).then(|| UNCALIBRATED.to_owned()).into_iter().collect(),
            rows,
            ..Self::default()
        }
    }

    /// The comparison as a table, below its verdict.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = if self.simulated { SIMULATED.to_owned() } else { String::new() };
        let _ = writeln!(text, "{}\n", self.verdict);
        text.push_str(&Table::of(&self.rows, &COLUMNS).render());
        let mut causes: Vec<(&str, Vec<String>)> = Vec::new();
        for row in &self.rows {
            let Some(cause) = row.cause.as_deref() else { continue };
            let name = row.test.clone().unwrap_or_else(|| words::name_measured(&row.measured.op));
            let name = format!("{name} {}", row.measured.format);
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, names)) => names.push(name),
                None => causes.push((cause, vec![name])),
            }
        }
        for (cause, names) in causes {
            let _ = writeln!(text, "  {}: {cause}", names.join(", "));
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "  skipped: {skipped}");
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        if let Some(median) = self.median_error_at_calibration_ratio {
            let _ =
                writeln!(text, "without each row's reference read: median error {}", words::percent(median));
        }
        text.extend(self.engine.as_ref().map(EngineRun::render));
        text
    }
}

impl EngineRun {
    fn render(&self) -> String {
        let Program { name, program, build_commit, version, backends, .. } = &self.engine;
        let version = version.as_ref().map_or_else(String::new, |version| format!(", {version}"));
        let build = build_commit.as_ref().map_or_else(String::new, |commit| format!(", build {commit}"));
        let backends = backends.as_ref().map_or_else(String::new, |backends| format!(", {backends}"));
        let Reference { before_ratio, after_ratio, reason } = &self.reference;
        let shown = |ratio: &Option<f64>| {
            ratio.map_or_else(|| "unknown".to_owned(), |ratio| words::signed_percent(ratio - 1.0))
        };
        let reason = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        format!(
            "{name}: {program}{version}{build}{backends}\nmemory compared with the calibration: {} before, {} after{reason}\n",
            shown(before_ratio),
            shown(after_ratio)
        )
    }
}

const COLUMNS: [Column<Row>; 14] = [
    ("operation", |row| Some(row.test.clone().unwrap_or_else(|| words::name_measured(&row.measured.op)))),
    ("format", |row| Some(row.measured.format.clone())),
    (">threads", |row| row.threads.map(|threads| threads.to_string())),
    (">predicted", |row| Some(words::time(row.measured.predicted_time_s.value))),
    ("90 % interval", |row| {
        let EstimateAnswer { low, high, .. } = row.measured.predicted_time_s;
        row.measured.op.op().is_none().then(|| format!("{} to {}", words::time(low), words::time(high)))
    }),
    (">measured", |row| Some(words::time(row.measured.measured_time_s.value))),
    (">tokens/s", |row| row.measured_tokens_per_s.map(|rate| significant(rate.value))),
    (">pictures/s", |row| row.measured_pictures_per_s.map(significant)),
    (">error", |row| Some(words::signed_percent(row.measured.error_ratio))),
    (">drift", |row| row.measured.drift_ratio.map(|drift| words::signed_percent(drift - 1.0))),
    (">predicted/fp16", |row| row.speedup_vs_fp16_predicted.map(significant)),
    (">measured/fp16", |row| row.speedup_vs_fp16_measured.map(significant)),
    ("bound, limit", |row| Some(format!("{}, {}", row.measured.bound, row.measured.limit))),
    ("verdict", |row| Some(row.verdict.replace('_', " "))),
];

/// Over the fp16 row of the same operation.
fn add_speedups(rows: &mut [Row]) {
    let fp16: Vec<Row> =
        rows.iter().filter(|row| row.measured.format == WeightFormat::Fp16.key()).cloned().collect();
    for row in rows {
        let same = |other: &&Row| other.measured.op == row.measured.op;
        let Some(Row { measured: fp16, .. }) = fp16.iter().find(same) else { continue };
        let over = |fp16: EstimateAnswer, own: EstimateAnswer| Some(fp16.value / own.value);
        row.speedup_vs_fp16_predicted = over(fp16.predicted_time_s, row.measured.predicted_time_s);
        row.speedup_vs_fp16_measured = over(fp16.measured_time_s, row.measured.measured_time_s);
    }
}

/// Quantile of sorted values, interpolated between neighbours; `None` of nothing.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few rows"
)]
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

fn verdict(median: Option<f64>, p90: Option<f64>, rows: usize, impossible: usize) -> String {
    let (Some(median), Some(p90)) = (median, p90) else { return "nothing could be measured".to_owned() };
    let agree = if median <= GOOD.0 && p90 <= GOOD.1 {
        "prediction and measurement agree"
    } else {
        "prediction and measurement differ"
    };
    let beyond = match impossible {
        0 => String::new(),
        count => {
            format!("; {count} faster than the physical bound, which means cached data or a wrong ceiling")
        }
    };
    format!(
        "{agree}: median error {}, 90th percentile {} over {} rows{beyond}",
        words::percent(median),
        words::percent(p90),
        rows
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_api::MeasuredOp;
    use rooflined_core::operation::Op;

    fn row(format: &str, predicted: f64, measured: f64) -> MeasuredRow {
        let around = |value: f64| EstimateAnswer { value, low: value * 0.9, high: value * 1.1 };
        MeasuredRow {
            op: MeasuredOp::Op(Op::Gemv { n: 4096, k: 4096 }),
            format: format.to_owned(),
            predicted_time_s: around(predicted),
            predicted_at_calibration_s: predicted,
            measured_time_s: around(measured),
            error_ratio: (predicted - measured) / measured,
            error_at_calibration_ratio: (predicted - measured) / measured,
            disturbed: None,
            drift_ratio: None,
            regime: "near".to_owned(),
            runs: 10,
            isa: "scalar".to_owned(),
            bound: "memory".to_owned(),
            limit: "dram".to_owned(),
            roofline_time_s: predicted * 0.8,
            power: None,
        }
    }

    fn comparison(rows: Vec<MeasuredRow>) -> Comparison {
        Comparison::of(rows.into_iter().map(|row| Row::new(row, true)).collect(), true)
    }

    #[test]
    fn speed_ups_are_over_the_fp16_row_of_the_same_operation() {
        let comparison = comparison(vec![row("fp16", 100e-6, 110e-6), row("int8", 50e-6, 52e-6)]);
        let int8 = &comparison.rows[1];
        assert_eq!(int8.speedup_vs_fp16_predicted, Some(2.0));
        assert!((int8.speedup_vs_fp16_measured.unwrap() - 110.0 / 52.0).abs() < 1e-12);
        let json = serde_json::json!(comparison);
        for key in ["op", "format", "predicted_time_s", "measured_time_s", "error_ratio", "bound", "limit"] {
            assert!(!json["rows"][0][key].is_null(), "{key}");
        }
    }

    #[test]
    fn without_fp16_there_is_no_speed_up() {
        let comparison = comparison(vec![row("int8", 50e-6, 52e-6)]);
        assert_eq!(comparison.rows[0].speedup_vs_fp16_predicted, None);
        assert!(serde_json::json!(comparison)["rows"][0]["speedup_vs_fp16_measured"].is_null());
    }

    #[test]
    fn the_median_takes_the_size_of_the_error_and_not_its_sign() {
        let rows = vec![row("a", 90e-6, 100e-6), row("b", 110e-6, 100e-6), row("c", 120e-6, 100e-6)];
        let comparison = comparison(rows);
        assert!((comparison.median_error_ratio.unwrap() - 0.1).abs() < 1e-9);
        assert!((comparison.p90_error_ratio.unwrap() - 0.18).abs() < 1e-9);
        assert!(comparison.verdict.starts_with("prediction and measurement differ"));
    }

    #[test]
    fn causes_that_are_alike_are_shown_once() {
        let slow = Row { cause: Some("it is hot".to_owned()), ..Row::new(row("q4_0", 100e-6, 150e-6), true) };
        let shown = Comparison::of(vec![slow.clone(), slow], true).render();
        assert!(shown.contains("  gemv 4096x4096 q4_0, gemv 4096x4096 q4_0: it is hot"), "{shown}");
    }

    #[test]
    fn verdicts_follow_the_interval_and_the_bound() {
        let verdicts = [100e-6, 112e-6, 89e-6, 70e-6].map(|measured| {
            let row = row("fp32", 100e-6, measured);
            judge(&row, true)
        });
        assert_eq!(
            verdicts,
            ["as_predicted", "slower_than_predicted", "faster_than_predicted", "impossible"]
        );
        assert_eq!(comparison(Vec::new()).verdict, "nothing could be measured");
        let wide = |measured: f64| {
            let row = row("fp32", 100e-6, measured);
            let interval = EstimateAnswer { value: 100e-6, low: 10e-6, high: 1000e-6 };
            judge(&MeasuredRow { predicted_time_s: interval, ..row }, true)
        };
        // 138 % too slow, 28 % and 57 % too fast, and 19 % either way.
        let verdicts = [42e-6, 139e-6, 233e-6, 84.1e-6, 123e-6].map(wide);
        assert_eq!(verdicts[..3], ["impossible", "slower_than_predicted", "slower_than_predicted"]);
        assert_eq!(verdicts[3..], ["as_predicted"; 2]);
        let above = MeasuredRow { roofline_time_s: 20e-6, ..row("fp32", 100e-6, 42e-6) };
        assert_eq!(judge(&above, true), "faster_than_predicted");
        let guessed = judge(&row("fp32", 100e-6, 70e-6), false);
        assert_eq!(guessed, "faster_than_predicted", "a guess makes nothing impossible");
    }
}
