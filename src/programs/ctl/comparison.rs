//! Measurements beside their predictions: how far they are apart, and what that says.

use std::time::Duration;

use serde::Serialize;

use super::words;
use roofline::precision::WeightFormat;
use wire::{EstimateAnswer, MeasureAnswer, MeasuredRow};

/// Longest time that one request may measure.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(180);
/// Median and 90th percentile of the error under which prediction and measurement agree.
const GOOD: (f64, f64) = (0.08, 0.20);
/// A prediction further off than this part of the measured time was none, however wide its interval.
const AS_PREDICTED: f64 = 0.20;
/// Ceilings have intervals: a time this much under the physical bound is still possible.
const BOUND_TOLERANCE: f64 = 1.05;

/// Said where predictions rest on guesses.
pub(super) const UNCALIBRATED: &str =
    "the ceilings are no measurements yet, so the predictions are guesses: rooflinectl calibrate";

/// What `compare -o json` prints.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// One row for each operation and format.
    pub rows: Vec<Row>,
    /// Median of |predicted - measured| / measured; `null` without rows.
    pub median_error_ratio: Option<f64>,
    pub p90_error_ratio: Option<f64>,
    /// Part of the measured times inside the 90 % interval of their prediction.
    pub inside_interval_ratio: Option<f64>,
    /// Median of the error for the predictions from the calibration alone.
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
}

/// One operation in one format.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// As the daemon measured it.
    #[serde(flatten)]
    pub measured: MeasuredRow,
    /// Predicted time of fp16 over that of this format; `null` if fp16 was not measured beside it.
    pub speedup_vs_fp16_predicted: Option<f64>,
    /// The same of the measured times.
    pub speedup_vs_fp16_measured: Option<f64>,
    /// `impossible`, `as_predicted` (inside the interval and at most a fifth off), `slower_than_predicted` or
    /// `faster_than_predicted`.
    pub verdict: &'static str,
}

pub(super) fn judged(answer: MeasureAnswer, calibrated: bool) -> Comparison {
    let errors = |error: fn(&MeasuredRow) -> f64| -> Vec<f64> {
        let mut errors: Vec<f64> = answer.rows.iter().map(|row| error(row).abs()).collect();
        errors.sort_by(f64::total_cmp);
        errors
    };
    let own = errors(|row| row.error_ratio);
    let (median, p90) = (quantile(&own, 0.5), quantile(&own, 0.9));
    let at_calibration = quantile(&errors(|row| row.error_at_calibration_ratio), 0.5);
    let rows: Vec<Row> = answer.rows.iter().map(|row| judged_row(row, &answer.rows, calibrated)).collect();
    let impossible = rows.iter().filter(|row| row.verdict == "impossible").count();
    Comparison {
        median_error_ratio: median,
        p90_error_ratio: p90,
        inside_interval_ratio: inside(&answer.rows),
        median_error_at_calibration_ratio: at_calibration,
        verdict: verdict(median, p90, rows.len(), impossible),
        rows,
        skipped: answer.skipped,
        warnings: warnings(&answer.rows, calibrated),
        simulated: answer.simulated,
        serial: answer.serial,
    }
}

fn warnings(rows: &[MeasuredRow], calibrated: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !calibrated {
        warnings.push(UNCALIBRATED.to_owned());
    }
    if rows.iter().any(|row| row.op.op().is_none() && row.isa.starts_with("sm_")) {
        warnings.push(
            "a GPU's step is products and attention; norms, rotation, activation and residuals are empty kernels, whose \
             start is in the time and whose work is not"
                .to_owned(),
        );
    }
    let reused = rows.iter().map(|row| row.reused_ratio).fold(0.0, f64::max);
    if reused > 0.0 {
        warnings.push(format!(
            "not all layers found room: {} of a step's bytes came from memory that another layer alike reads too, past \
             the cache",
            words::percent(reused)
        ));
    }
    warnings
}

#[expect(clippy::cast_precision_loss, reason = "a few rows")]
fn inside(rows: &[MeasuredRow]) -> Option<f64> {
    let within = rows.iter().filter(|row| {
        (row.predicted_time_s.low..=row.predicted_time_s.high).contains(&row.measured_time_s.value)
    });
    (!rows.is_empty()).then(|| within.count() as f64 / rows.len() as f64)
}

fn judged_row(row: &MeasuredRow, all: &[MeasuredRow], calibrated: bool) -> Row {
    let fp16 = all.iter().find(|other| other.op == row.op && other.format == WeightFormat::Fp16.key());
    let measured = row.measured_time_s.value;
    let verdict = verdict_of(measured, row.predicted_time_s, row.roofline_time_s, calibrated);
    Row {
        speedup_vs_fp16_predicted: fp16.map(|fp16| fp16.predicted_time_s.value / row.predicted_time_s.value),
        speedup_vs_fp16_measured: fp16.map(|fp16| fp16.measured_time_s.value / measured),
        verdict,
        measured: row.clone(),
    }
}

/// How a measured time stands to its prediction; nothing is impossible under ceilings that are guesses.
pub(super) fn verdict_of(
    measured: f64,
    predicted: EstimateAnswer,
    bound: f64,
    calibrated: bool,
) -> &'static str {
    let error = (predicted.value - measured) / measured;
    if calibrated && measured * BOUND_TOLERANCE < bound {
        "impossible"
    } else if measured > predicted.high || error < -AS_PREDICTED {
        "slower_than_predicted"
    } else if measured < predicted.low || error > AS_PREDICTED {
        "faster_than_predicted"
    } else {
        "as_predicted"
    }
}

/// The outcome of several rows in a sentence, with median and 90th percentile of the sizes of their errors.
pub(super) fn outcome(errors: &[f64], impossible: usize) -> (Option<f64>, Option<f64>, String) {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let (median, p90) = (quantile(&sizes, 0.5), quantile(&sizes, 0.9));
    (median, p90, verdict(median, p90, sizes.len(), impossible))
}

/// Quantile of sorted values, interpolated between neighbours; `None` of nothing.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few rows"
)]
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
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
    use roofline::workload::Op;
    use wire::{EstimateAnswer, MeasuredOp};

    fn row(format: &str, predicted: f64, measured: f64) -> MeasuredRow {
        let around = |value: f64| EstimateAnswer { value, low: value * 0.9, high: value * 1.1 };
        MeasuredRow {
            op: MeasuredOp::Op(Op::Gemv { n: 4096, k: 4096 }),
            format: format.to_owned(),
            predicted_tokens_per_s: None,
            measured_tokens_per_s: None,
            predicted_time_s: around(predicted),
            predicted_at_calibration_s: predicted,
            measured_time_s: around(measured),
            error_ratio: (predicted - measured) / measured,
            error_at_calibration_ratio: (predicted - measured) / measured,
            disturbed: None,
            reused_ratio: 0.0,
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
        judged(MeasureAnswer { rows, skipped: Vec::new(), simulated: false, serial: 1 }, true)
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
    fn verdicts_follow_the_interval_and_the_bound() {
        let verdicts = [100e-6, 112e-6, 89e-6, 70e-6].map(|measured| {
            let row = row("fp32", 100e-6, measured);
            judged_row(&row, &[], true).verdict
        });
        assert_eq!(
            verdicts,
            ["as_predicted", "slower_than_predicted", "faster_than_predicted", "impossible"]
        );
        assert_eq!(comparison(Vec::new()).verdict, "nothing could be measured");
        let wide = |measured: f64| {
            let row = row("fp32", 100e-6, measured);
            let interval = EstimateAnswer { value: 100e-6, low: 10e-6, high: 1000e-6 };
            judged_row(&MeasuredRow { predicted_time_s: interval, ..row }, &[], true).verdict
        };
        // 138 % too slow, 28 % and 57 % too fast, and 19 % either way.
        let verdicts = [42e-6, 139e-6, 233e-6, 84.1e-6, 123e-6].map(wide);
        assert_eq!(verdicts[..3], ["impossible", "slower_than_predicted", "slower_than_predicted"]);
        assert_eq!(verdicts[3..], ["as_predicted"; 2]);
        let above = MeasuredRow { roofline_time_s: 20e-6, ..row("fp32", 100e-6, 42e-6) };
        assert_eq!(judged_row(&above, &[], true).verdict, "faster_than_predicted");
        let guessed = judged_row(&row("fp32", 100e-6, 70e-6), &[], false);
        assert_eq!(guessed.verdict, "faster_than_predicted", "a guess makes nothing impossible");
    }
}
