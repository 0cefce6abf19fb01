//! A run on a CPU as an engine's kernels see it, and how sure its time is before any was observed.

use rooflined_core::units::Seconds;
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::cpu::{COEFFICIENTS, CpuCosts, Machine, Repeated};

/// Standard deviations of logarithms: of what a number of threads has of its own, and a file; of one run with one thread, and
/// with several, which wait for each other.
pub(super) const THREADS_LOG_SD: f64 = 0.03;
pub(super) const FILE_LOG_SD: f64 = 0.04;
const ONE_THREAD_LOG_SD: f64 = 0.06;
const MANY_THREADS_LOG_SD: f64 = 0.08;
/// Step of the numeric derivatives.
const DERIVATIVE: f64 = 1e-4;

/// A run as an engine's kernels on a CPU see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuRun {
    pub machine: Machine,
    pub passes: Vec<Repeated>,
}

impl CpuRun {
    /// Logarithm of its predicted time.
    pub(super) fn log_time(&self, log: &[f64; COEFFICIENTS]) -> f64 {
        let time = |part: &Repeated| part.work.time(&self.machine, log).total().get() * part.times;
        self.passes.iter().map(time).sum::<f64>().ln()
    }

    /// The coefficients that it depends on, and by how much its logarithm moves with each.
    pub(super) fn slopes(&self, log: &[f64; COEFFICIENTS]) -> Vec<(usize, f64)> {
        let mut places: Vec<usize> =
            self.passes.iter().flat_map(|part| part.work.depends_on(&self.machine)).collect();
        places.sort_unstable();
        places.dedup();
        let now = self.log_time(log);
        let mut moved = *log;
        let slope = |place: usize| {
            moved[place] += DERIVATIVE;
            let slope = (self.log_time(&moved) - now) / DERIVATIVE;
            moved[place] = log[place];
            (place, slope)
        };
        places.into_iter().map(slope).collect()
    }

    pub(super) const fn chance(&self) -> f64 {
        if self.machine.threads > 1 { MANY_THREADS_LOG_SD } else { ONE_THREAD_LOG_SD }
    }

    /// Standard deviation of the logarithm of its measured time before any run was seen.
    #[must_use]
    pub fn prior_log_sd(&self, costs: &CpuCosts) -> f64 {
        let of_costs: f64 =
            self.slopes(&costs.log).into_iter().map(|(place, slope)| (slope * costs.sd[place]).powi(2)).sum();
        (of_costs + THREADS_LOG_SD.powi(2) + FILE_LOG_SD.powi(2) + self.chance().powi(2)).sqrt()
    }

    /// Whether what was read from a file can be such a run.
    #[must_use]
    pub fn is_sound(&self, engine: Engine) -> bool {
        self.machine.is_sound()
            && self.machine.costs(engine).is_some_and(|costs| self.log_time(&costs.log).is_finite())
    }

    /// Logarithm of `time` over that predicted with the shipped costs; NaN where the engine has none here.
    #[must_use]
    pub fn log_ratio(&self, engine: Engine, time: Seconds) -> f64 {
        self.machine.costs(engine).map_or(f64::NAN, |costs| self.log_ratio_to(costs, time))
    }

    /// Logarithm of `time` over that predicted with `costs`.
    pub(super) fn log_ratio_to(&self, costs: &CpuCosts, time: Seconds) -> f64 {
        time.get().ln() - self.log_time(&costs.log)
    }
}
