//! What an evaluation found: how far predictions are off, as tables for people and as JSON, both of the same figures.

use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_predict::learning::conformal::quantile;
use serde_json::{Map, Value, json};

/// Errors of predictions, as parts of what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    pub rows: usize,
    pub median: f64,
    pub mean: f64,
    /// 90 % lie below.
    pub p90: f64,
}

impl Errors {
    /// Of sizes of errors; `None` without any.
    #[must_use]
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut off: Vec<f64> = errors.into_iter().collect();
        off.sort_by(f64::total_cmp);
        let sum: f64 = off.iter().sum();
        (!off.is_empty()).then(|| Self {
            rows: off.len(),
            median: quantile(&off, 0.5),
            mean: sum / as_f64(off.len()),
            p90: quantile(&off, 0.9),
        })
    }

    /// Of rates, from ln(predicted time / measured time).
    #[must_use]
    pub fn of_rates(logs: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::of(logs.into_iter().map(|log| (-log).exp_m1().abs()))
    }

    /// Of pairs of predicted and measured time.
    #[must_use]
    pub fn of_times(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::of(pairs.iter().map(|(predicted, measured)| (predicted / measured - 1.0).abs()))
    }

    /// With `of` in front of their names.
    #[must_use]
    pub fn figures(&self, of: &str) -> Figures {
        let ratios = [("median", self.median), ("mean", self.mean), ("p90", self.p90)];
        ratios.map(|(name, value)| (format!("{of}{name}_error_ratio"), json!(value))).into()
    }
}

/// Coverage of 90 % intervals, and their median half-width as a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    pub rows: usize,
    /// Part of them inside.
    pub covered: f64,
    /// Half-width that half of them exceed.
    pub half_width: f64,
}

impl Coverage {
    /// Of whether each was inside, and its half-width; `None` without any.
    #[must_use]
    pub fn of(intervals: impl IntoIterator<Item = (bool, f64)>) -> Option<Self> {
        let (inside, mut widths): (Vec<bool>, Vec<f64>) = intervals.into_iter().unzip();
        widths.sort_by(f64::total_cmp);
        (!widths.is_empty()).then(|| Self {
            rows: widths.len(),
            covered: as_f64(inside.iter().filter(|inside| **inside).count()) / as_f64(inside.len()),
            half_width: quantile(&widths, 0.5),
        })
    }

    /// Of errors with their half-widths, both as logarithms.
    #[must_use]
    pub fn of_logs(errors: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        Self::of(errors.into_iter().map(|(error, half)| (error.abs() <= half, half.exp_m1())))
    }

    #[must_use]
    pub fn figures(&self) -> Figures {
        figures([("covered_ratio", json!(self.covered)), ("median_half_width_ratio", json!(self.half_width))])
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows")]
pub const fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Names with what was found, in order. A name that ends in `_ratio` is that of a part.
pub type Figures = Vec<(String, Value)>;

pub fn figures<const N: usize>(named: [(&str, Value); N]) -> Figures {
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// One table.
pub struct Section {
    /// Its name in JSON.
    pub key: &'static str,
    pub title: String,
    pub rows: Vec<Figures>,
    /// What is said below the table.
    pub facts: Figures,
}

impl Section {
    #[must_use]
    pub const fn new(key: &'static str, title: String, rows: Vec<Figures>) -> Self {
        Self { key, title, rows, facts: Vec::new() }
    }

    fn json(&self) -> Value {
        let object = |of: &Figures| -> Map<String, Value> { of.iter().cloned().collect() };
        let mut all = object(&self.facts);
        all.insert("rows".to_owned(), self.rows.iter().map(object).collect());
        Value::Object(all)
    }

    /// The table with its title; empty without rows and facts.
    #[must_use]
    pub fn text(&self) -> String {
        let mut columns: Vec<(&str, bool)> = Vec::new();
        for (name, value) in self.rows.iter().flatten() {
            if !columns.iter().any(|(known, _)| known == name) {
                columns.push((name, value.is_number()));
            }
        }
        let heading = |(name, is_number): &(&str, bool)| {
            format!("{}{}", if *is_number { ">" } else { "" }, in_words(name))
        };
        let headings: Vec<String> = columns.iter().map(heading).collect();
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        for row in &self.rows {
            let cell = |(name, _): &(&str, bool)| {
                row.iter().find(|(own, _)| own == name).map(|(name, value)| text(name, value))
            };
            table.row(columns.iter().map(|column| cell(column).unwrap_or_default()));
        }
        let mut said =
            format!("{}\n{}", self.title, if self.rows.is_empty() { String::new() } else { table.render() });
        for (name, value) in &self.facts {
            said += &format!("{}: {}\n", in_words(name), text(name, value));
        }
        said
    }
}

/// Prints what was found; every section without rows and facts is left out.
///
/// # Errors
/// Standard output is closed or full.
pub fn print(printer: &Printer, sections: &[Section]) -> Result<(), Failure> {
    let shown = || sections.iter().filter(|section| !section.rows.is_empty() || !section.facts.is_empty());
    match printer.format {
        Format::Human => printer.text(&shown().map(Section::text).collect::<Vec<_>>().join("\n")),
        _ => printer
            .value("evaluation", &shown().map(|section| (section.key.to_owned(), section.json())).collect()),
    }
}

/// `median_error_ratio` as `median error`.
fn in_words(name: &str) -> String {
    name.strip_suffix("_ratio").unwrap_or(name).replace('_', " ")
}

fn text(name: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(|item| text(name, item)).collect::<Vec<_>>().join(", "),
        Value::Number(number) if name.ends_with("_ratio") => percent(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

#[must_use]
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}
