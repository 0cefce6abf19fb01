//! Power coefficients of an operating point, fitted to the rates and the power measured there, and how they scale from
//! one clock to another.

use std::collections::BTreeSet;

use super::conformal::conformal;
use super::nnls;
use crate::power::{CARRIED_GUESS, Coefficients, Rails, voltage_scale};
use roofline::precision::Precision;

/// What was done in a second, and the power that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Bytes a second.
    pub bytes: f64,
    /// Operations a second.
    pub flops: f64,
    /// Weights dequantized a second.
    pub dequantized: f64,
    /// Measured, in watts.
    pub power: f64,
}

impl Sample {
    const fn counts(&self, with_flops: bool) -> [f64; nnls::UNKNOWNS] {
        [1.0, self.bytes, if with_flops { self.flops } else { 0.0 }, self.dequantized]
    }

    /// What coefficients say of it, in watts.
    #[must_use]
    pub fn predicted(&self, of: &Coefficients) -> f64 {
        of.static_w
            + of.byte_j * self.bytes
            + of.flop_j.unwrap_or(0.0) * self.flops
            + of.weight_j * self.dequantized
    }

    /// ln(predicted / measured).
    #[must_use]
    pub fn error(&self, of: &Coefficients) -> f64 {
        (self.predicted(of) / self.power).ln()
    }
}

/// What weights and operations take beside what a byte takes, on a machine whose rows tell the three apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportions {
    /// eW / eB.
    pub weight: f64,
    /// eF / eB, of the precision of the point that they are for.
    pub flop: f64,
}

/// How much a proportion counts, beside a row whose power were all that of bytes. A choice: with a tenth of it the rows of
/// one model in two formats leave nearly all energy to the bytes, and a module that only reads is above its budget.
const TIE: f64 = 0.4;

/// The non-negative coefficients with the least relative squared error. `with_flops` = some samples do much arithmetic for
/// each byte and weight; otherwise the energy of an operation is left open. `tie` = proportions that decide where the samples
/// do not: bytes, weights and operations of one model go up and down together.
#[must_use]
pub fn fit(samples: &[Sample], with_flops: bool, tie: Option<&Proportions>) -> Coefficients {
    let with_flops = with_flops || tie.is_some();
    let used = || samples.iter().filter(|sample| sample.power.is_finite() && sample.power > 0.0);
    let mut rows: Vec<nnls::Equation> =
        used().map(|sample| (sample.counts(with_flops).map(|count| count / sample.power), 1.0)).collect();
    if let Some(tie) = tie {
        let most = used().map(|sample| sample.bytes / sample.power).fold(0.0, f64::max) * TIE;
        rows.push(([0.0, most, 0.0, -most / tie.weight], 0.0));
        rows.push(([0.0, most, -most / tie.flop, 0.0], 0.0));
    }
    let [static_w, byte_j, flop_j, weight_j] = nnls::solve(&rows);
    Coefficients { static_w, byte_j, flop_j: with_flops.then_some(flop_j), weight_j, busy_w: None }
}

/// A row of a model's run with its power.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Key in the registry of models; empty for the idle board.
    pub model: String,
    /// The stored format; two formats of one model are two files.
    pub file: String,
    /// Decode of one or more sequences.
    pub decode: bool,
    /// Tokens a second over the batch.
    pub tokens_per_s: f64,
    pub sample: Sample,
}

/// All that was measured at one operating point of one machine by one meter.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Key in the registry of hardware.
    pub hardware: String,
    /// What the meter covered.
    pub rails: Rails,
    /// Power mode; empty where there is none.
    pub mode: String,
    /// GPU clock, in hertz.
    pub clock: f64,
    pub sm: u32,
    /// Nominal bandwidth of the memory, in bytes a second.
    pub memory: f64,
    /// What most of the work was computed in.
    pub precision: Precision,
    /// Runs of models.
    pub runs: Vec<Measured>,
    /// Steady kernels.
    pub kernels: Vec<Sample>,
    /// What decides where the rows do not tell bytes, weights and operations apart; `None` where they do.
    pub tie: Option<Proportions>,
}

impl Point {
    /// Every sample but those that `leave` says.
    pub fn samples(&self, leave: impl Fn(&Measured) -> bool) -> Vec<Sample> {
        let runs = self.runs.iter().filter(|run| !leave(run)).map(|run| run.sample);
        runs.chain(self.kernels.iter().copied()).collect()
    }

    /// Whether work can be distinguished from bytes and weights: a prompt or a kernel of many operations went in.
    #[must_use]
    pub fn with_flops(&self) -> bool {
        self.kernels.len() > 2
            || self.runs.iter().filter(|run| !run.decode && !run.model.is_empty()).count() > 1
    }

    /// Whether its rows tell bytes, weights and operations apart: three models or more, and prompts; or kernels of many
    /// intensities.
    #[must_use]
    pub fn tells_apart(&self) -> bool {
        let models: BTreeSet<&str> =
            self.runs.iter().filter(|run| run.decode).map(|run| run.model.as_str()).collect();
        self.kernels.len() > 2 || (models.len() > 2 && self.with_flops())
    }

    /// Coefficients without what `leave` says. The busiest run is that with the most operations a second that is no decode.
    #[must_use]
    pub fn fit(&self, leave: impl Fn(&Measured) -> bool) -> Coefficients {
        let mut of = fit(&self.samples(&leave), self.with_flops(), self.tie.as_ref());
        let busiest = self.runs.iter().filter(|run| !leave(run) && !run.decode).map(|run| run.sample.flops);
        of.busy_w = of
            .flop_j
            .zip(busiest.reduce(f64::max))
            .map(|(flop_j, flops)| flop_j * flops)
            .filter(|busy| *busy > 0.0);
        of
    }
}

/// How power coefficients scale from one clock to another, learnt from a machine with three points or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockScaling {
    /// Slope of the voltage, relative to that at the highest clock, for each gigahertz.
    pub slope: f64,
    /// Half-width that holds 90 % of the errors between neighbours, the lowest point aside.
    pub half_width: f64,
    /// The same from the second lowest point to the lowest.
    pub below: f64,
}

impl ClockScaling {
    /// From points by rising clock: the slope that carries each to its neighbour best, the lowest not among them, because
    /// below it nothing would be known of the voltage.
    #[must_use]
    pub fn of(points: &[&Point]) -> Option<Self> {
        let (lowest, rest) = points.split_first().filter(|(_, rest)| rest.len() >= 2)?;
        let highest = points.last()?.clock;
        let between = |slope: f64| -> Vec<f64> {
            rest.windows(2)
                .flat_map(|pair| {
                    let mut errors = carried_errors(pair[0], pair[1], slope, highest);
                    errors.extend(carried_errors(pair[1], pair[0], slope, highest));
                    errors
                })
                .collect()
        };
        let cost = |slope: f64| between(slope).iter().map(|error| error * error).sum::<f64>();
        // A grid of a thousandth: the same everywhere, and finer than what the rows can tell.
        let slope = (0..=1000_u32)
            .map(|step| f64::from(step) / 1000.0)
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
            .unwrap_or(0.0);
        let half_width = conformal(between(slope)).unwrap_or(CARRIED_GUESS);
        let below = carried_errors(rest[0], lowest, slope, highest);
        Some(Self { slope, half_width, below: quantile_or_largest(&below) })
    }
}

fn quantile_or_largest(errors: &[f64]) -> f64 {
    let largest = errors.iter().fold(0.0_f64, |most, error| most.max(error.abs()));
    conformal(errors.iter().copied()).unwrap_or_else(|| largest.exp_m1())
}

/// Errors of `to`'s decodes with the coefficients of `from`, the dynamic ones carried by the voltage.
fn carried_errors(from: &Point, to: &Point, slope: f64, highest: f64) -> Vec<f64> {
    let squared = voltage_scale(slope, highest, from.clock, to.clock);
    let mut of = from.fit(|_| false);
    of.byte_j *= squared;
    of.weight_j *= squared;
    of.flop_j = of.flop_j.map(|flop| flop * squared);
    to.runs.iter().filter(|run| run.decode).map(|run| run.sample.error(&of)).collect()
}

#[cfg(test)]
mod tests;
