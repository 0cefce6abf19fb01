//! Energies of a family of machines, fitted to the rates and the power measured at any number of operating points together.

use std::collections::BTreeMap;

use super::nnls;
use crate::power::{Coefficients, Energies, Factors, Place, Rails, Reference};
use rooflined_core::precision::Precision;

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
    /// A machine with nothing running.
    #[must_use]
    pub const fn idle(power: f64) -> Self {
        Self { bytes: 0.0, flops: 0.0, dequantized: 0.0, power }
    }

    /// What coefficients say of it while a kernel runs, in watts.
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
    /// Who measured it; empty for this machine itself.
    pub lab: String,
    pub sample: Sample,
}

impl Measured {
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.model.is_empty()
    }

    /// A prompt, or any phase but decode.
    const fn is_prompt(&self) -> bool {
        !self.decode && !self.is_idle()
    }
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
    pub place: Place,
    /// Size of the board ([`size`](crate::power::size)).
    pub size: f64,
    /// What most of the work was computed in.
    pub precision: Precision,
    /// Runs of models.
    pub runs: Vec<Measured>,
    /// Steady kernels.
    pub kernels: Vec<Sample>,
}

impl Point {
    /// What scales from `reference` to here.
    #[must_use]
    pub fn factors(&self, reference: &Reference) -> Factors {
        reference.factors(&self.place, self.size, reference.clock_hz)
    }

    /// Whether work can be distinguished from bytes and weights: prompts or kernels of many operations went in.
    fn has_work(&self, leave: impl Fn(&Measured) -> bool) -> bool {
        self.kernels.len() > 2 || self.runs.iter().any(|run| !leave(run) && run.is_prompt())
    }
}

/// A byte costs at least this where the meter covers the memory: loads that all move many bytes do not tell it from what busy
/// cores draw. The rail of an AGX Orin's memory rises by so much with what decodes read
/// (github.com/jbecirovski/jetson-llm-maxperf).
const LEAST_BYTE_J: f64 = 24e-12;

/// The non-negative energies with the least relative squared error over all points, without the rows that `leave` says. Every
/// lab counts alike, however many rows it published: rows of one lab share its meter, its board and what else ran there. The
/// energy of an operation is left open where no point has much arithmetic. Where no idle machine was measured, nothing tells
/// what it draws from what cores add as soon as a kernel runs: each gets half.
#[must_use]
pub fn fit(points: &[&Point], reference: &Reference, leave: impl Fn(&Point, &Measured) -> bool) -> Energies {
    let kept = |point: &'_ &Point, run: &&Measured| !leave(point, run);
    let runs = || points.iter().flat_map(|point| point.runs.iter().filter(|run| kept(point, run)));
    let with_work = points.iter().any(|point| point.has_work(|run| leave(point, run)));
    let idle_known = runs().any(Measured::is_idle);
    // Of a card NVML's meter covers the memory; of a GB10 it does not, and samples of that have no bytes.
    let covers_memory = points.iter().all(|point| matches!(point.rails, Rails::Module | Rails::Gpu));
    let least_byte_j = if covers_memory { LEAST_BYTE_J } else { 0.0 };
    let shares = shares(runs().map(|run| run.lab.as_str()));
    let equation = |factors: &Factors, idle: bool, lab: &str, sample: &Sample| -> Option<nnls::Equation> {
        let power = Some(sample.power).filter(|power| power.is_finite() && *power > 0.0)?;
        let cycles = if idle { 0.0 } else { factors.cycles };
        let [standing, active] =
            if idle_known { [factors.idle, cycles] } else { [factors.idle + cycles, 0.0] };
        let work = if with_work { sample.flops * factors.switching } else { 0.0 };
        let counts = [standing, active, sample.bytes, work, sample.dequantized * factors.switching];
        let share = shares.get(lab).copied().unwrap_or(1.0);
        let of_power = counts.map(|count| share * count / power);
        Some((of_power, share * (1.0 - least_byte_j * sample.bytes / power)))
    };
    let rows: Vec<nnls::Equation> = points
        .iter()
        .flat_map(|point| {
            let factors = point.factors(reference);
            let runs = point.runs.iter().filter(|run| kept(point, run));
            let runs = runs.map(|run| (run.is_idle(), run.lab.as_str(), &run.sample));
            let all = runs.chain(point.kernels.iter().map(|sample| (false, "", sample)));
            all.filter_map(|(idle, lab, sample)| equation(&factors, idle, lab, sample)).collect::<Vec<_>>()
        })
        .collect();
    let [idle_w, active_w, more_byte_j, flop_j, weight_j] = nnls::solve(&rows);
    let byte_j =
        if rows.iter().any(|(counts, _)| counts[2] > 0.0) { least_byte_j + more_byte_j } else { 0.0 };
    let active_w = if idle_known { active_w } else { idle_w };
    // The busiest run is that whose cores draw most by the cycle.
    let busiest = points.iter().flat_map(|point| {
        let factors = point.factors(reference);
        let runs = point.runs.iter().filter(|run| kept(point, run));
        runs.map(move |run| {
            let cores = flop_j * run.sample.flops + weight_j * run.sample.dequantized;
            cores * factors.switching / factors.cycles
        })
    });
    let busy_w = busiest.reduce(f64::max).filter(|busy| with_work && *busy > 0.0);
    Energies { idle_w, active_w, byte_j, flop_j: with_work.then_some(flop_j), weight_j, busy_w }
}

/// What each row of a lab counts, so that the rows of every lab have the same sum of squares; 1 in the mean.
fn shares<'a>(labs: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, f64> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for lab in labs {
        *counts.entry(lab).or_default() += 1;
    }
    let (all, each) = (f64::from(counts.values().sum::<u32>()), counts.len().max(1));
    #[expect(clippy::cast_precision_loss, reason = "a count of labs")]
    let mean = all / each as f64;
    counts.into_iter().map(|(lab, count)| (lab, (mean / f64::from(count)).sqrt())).collect()
}

#[cfg(test)]
mod tests;
