//! What observed runs teach of an engine on a CPU.
//!
//! `ln t_measured = ln t(theta) + s_T + r_file + e`: theta are the logarithms of the engine's costs with those shipped as their
//! prior, `s_T` belongs to a number of threads, `r_file` to a model in a format, `e` is chance. All are found together: the
//! maximum a posteriori by Gauss-Newton, rows weighted by the pseudo-Huber loss. What multiplies everything that the cores do is a
//! coefficient of its own, so a run of one format says something of all. The interval of another run is what is left of the
//! unknowns that it depends on, and chance.

use super::anchor::{Observation, Place as _, Residual, RunPoint, Subject};
use super::cpu_run::{CpuRun, FILE_LOG_SD, THREADS_LOG_SD};
use super::fit::{Lower, Matrix};
use super::run::Measured;
use crate::cpu::{COEFFICIENTS, Coefficient, CpuCosts};
use crate::{Engine, Tier};
use rooflined_models::transformer::Phase;

/// Most steps of the search, and the least one worth another.
const STEPS: usize = 30;
const LEAST_STEP: f64 = 1e-5;

/// A model in a format.
type File = (String, String);

/// An engine's costs on a CPU after its observed runs.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedCpu {
    /// Those shipped, moved.
    pub costs: CpuCosts,
    /// Coefficients that the runs say something of.
    places: Vec<usize>,
    threads: Vec<u32>,
    files: Vec<File>,
    /// Differences from the prior: of the coefficients, of the numbers of threads, of the files.
    x: Vec<f64>,
    /// Triangle of the curvature at the optimum, whose inverse is their covariance.
    lower: Lower,
    /// Runs by file, phase and where they stood, for what a prediction rests on.
    seen: Vec<(usize, Phase, RunPoint)>,
}

/// A run among the unknowns.
struct Row<'a> {
    run: &'a CpuRun,
    log_time: f64,
    threads: usize,
    file: usize,
}

impl FittedCpu {
    /// Learns from those of `observations` that ran on a CPU; `None` where none did.
    #[must_use]
    pub fn new(engine: Engine, observations: &[&Observation]) -> Option<Self> {
        let of_cpu: Vec<(&Observation, &CpuRun)> =
            observations.iter().filter_map(|of| Some((*of, of.cpu.as_ref()?))).collect();
        let shipped = of_cpu.last()?.1.machine.costs(engine)?;
        let (mut threads, mut files, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rows, mut seen) = (Vec::new(), Vec::new());
        for (of, run) in of_cpu {
            let file = place_of(&mut files, (of.model.clone(), of.format.clone()));
            let row = Row {
                run,
                log_time: of.time.get().ln(),
                threads: place_of(&mut threads, run.machine.threads),
                file,
            };
            rows.push(row);
            seen.push((file, of.phase, of.point()));
            let slopes = run.slopes(&shipped.log);
            places
                .extend(slopes.into_iter().map(|(place, _)| place).filter(|place| shipped.sd[*place] > 0.0));
        }
        places.sort_unstable();
        places.dedup();
        let size = places.len() + threads.len() + files.len();
        let mut fitted = Self {
            costs: shipped.clone(),
            places,
            threads,
            files,
            x: vec![0.0; size],
            lower: Lower::default(),
            seen,
        };
        let mut best = fitted.loss(shipped, &rows, &fitted.x);
        for _ in 0..STEPS {
            let (curvature, gradient) = fitted.linearised(shipped, &rows);
            fitted.lower = curvature.cholesky()?;
            let step = fitted.lower.solve(&gradient);
            let Some((x, loss)) = fitted.shorter(shipped, &rows, &step, best) else { break };
            let moved = x.iter().zip(&fitted.x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            fitted.x = x;
            fitted.costs.log = fitted.log_at(shipped, &fitted.x);
            best = loss;
            if moved < LEAST_STEP {
                break;
            }
        }
        fitted.lower = fitted.linearised(shipped, &rows).0.cholesky()?;
        Some(fitted)
    }

    /// Learns from runs all of which ran on one kind of CPU; `None` where none says anything.
    #[must_use]
    pub fn of_runs(engine: Engine, runs: &[Measured]) -> Option<Self> {
        let observed = |run: &Measured| {
            let asked = run.asked();
            run.observation(asked.shipped(), &asked.predict(asked.shipped()).ok()?).ok()
        };
        let observations: Vec<Observation> = runs.iter().filter_map(observed).collect();
        Self::new(engine, &observations.iter().collect::<Vec<_>>())
    }

    /// Standard deviation of the logarithm of a product of coefficients after the runs.
    #[must_use]
    pub fn log_sd_of(&self, product: &[Coefficient]) -> f64 {
        let mut vector = vec![0.0; self.x.len()];
        let mut rest = 0.0;
        for coefficient in product {
            match self.places.binary_search(&coefficient.index()) {
                Ok(unknown) => vector[unknown] += 1.0,
                Err(_) => rest += self.costs.sd[coefficient.index()].powi(2),
            }
        }
        (self.variance(&vector) + rest).sqrt()
    }

    /// Whether a run says something of a coefficient.
    #[must_use]
    pub fn saw(&self, coefficient: Coefficient) -> bool {
        self.places.binary_search(&coefficient.index()).is_ok()
    }

    /// Variance of a sum of the unknowns, each times its part.
    fn variance(&self, parts: &[f64]) -> f64 {
        let solved = self.lower.solve(parts);
        parts.iter().zip(&solved).map(|(a, b)| a * b).sum()
    }

    /// The step, or a part of it, that lowers the loss.
    fn shorter(
        &self,
        shipped: &CpuCosts,
        rows: &[Row<'_>],
        step: &[f64],
        best: f64,
    ) -> Option<(Vec<f64>, f64)> {
        [1.0, 0.5, 0.25, 0.1, 0.03].into_iter().find_map(|part| {
            let x: Vec<f64> =
                self.x.iter().zip(step).map(|(x, step)| x - (part * step).clamp(-1.0, 1.0)).collect();
            let loss = self.loss(shipped, rows, &x);
            (loss < best).then_some((x, loss))
        })
    }

    fn log_at(&self, shipped: &CpuCosts, x: &[f64]) -> Box<[f64; COEFFICIENTS]> {
        let mut log = shipped.log.clone();
        for (place, x) in self.places.iter().zip(x) {
            log[*place] += x;
        }
        log
    }

    /// Standard deviation of an unknown before any run.
    fn sd(&self, shipped: &CpuCosts, unknown: usize) -> f64 {
        match self.places.get(unknown) {
            Some(place) => shipped.sd[*place],
            None if unknown < self.places.len() + self.threads.len() => THREADS_LOG_SD,
            None => FILE_LOG_SD,
        }
    }

    fn offset(&self, row: &Row<'_>, x: &[f64]) -> f64 {
        let threads = self.places.len() + row.threads;
        let file = self.places.len() + self.threads.len() + row.file;
        x[threads] + x[file]
    }

    fn loss(&self, shipped: &CpuCosts, rows: &[Row<'_>], x: &[f64]) -> f64 {
        let log = self.log_at(shipped, x);
        let of_row = |row: &Row<'_>| {
            let off = row.run.log_time(&log) + self.offset(row, x) - row.log_time;
            2.0 * ((off / row.run.chance()).hypot(1.0) - 1.0)
        };
        let of_prior = |(unknown, x): (usize, &f64)| (x / self.sd(shipped, unknown)).powi(2);
        rows.iter().map(of_row).sum::<f64>() + x.iter().enumerate().map(of_prior).sum::<f64>()
    }

    /// Curvature and gradient of half the loss, a row that is far off counting less.
    fn linearised(&self, shipped: &CpuCosts, rows: &[Row<'_>]) -> (Matrix, Vec<f64>) {
        let mut matrix = Matrix::zero(self.x.len());
        let mut gradient = vec![0.0; self.x.len()];
        for (unknown, x) in self.x.iter().enumerate() {
            let precision = self.sd(shipped, unknown).powi(-2);
            matrix.set(unknown, unknown, precision);
            gradient[unknown] = x * precision;
        }
        for row in rows {
            let off = row.run.log_time(&self.costs.log) + self.offset(row, &self.x) - row.log_time;
            let chance = row.run.chance();
            let weight = (off / chance).hypot(1.0).recip() / (chance * chance);
            let slopes = self.towards(row.run, Some(row.threads), Some(row.file)).0;
            for &(a, slope_a) in &slopes {
                gradient[a] += weight * slope_a * off;
                for &(b, slope_b) in &slopes {
                    matrix.set(a, b, matrix.at(a, b) + weight * slope_a * slope_b);
                }
            }
        }
        (matrix, gradient)
    }

    /// By how much a run's logarithm moves with each unknown, and the variance that no unknown explains.
    fn towards(&self, run: &CpuRun, threads: Option<usize>, file: Option<usize>) -> (Vec<(usize, f64)>, f64) {
        let mut rest = 0.0;
        let mut slopes = Vec::new();
        for (place, slope) in run.slopes(&self.costs.log) {
            match self.places.binary_search(&place) {
                Ok(unknown) => slopes.push((unknown, slope)),
                Err(_) => rest += (slope * self.costs.sd[place]).powi(2),
            }
        }
        match threads {
            Some(threads) => slopes.push((self.places.len() + threads, 1.0)),
            None => rest += THREADS_LOG_SD.powi(2),
        }
        match file {
            Some(file) => slopes.push((self.places.len() + self.threads.len() + file, 1.0)),
            None => rest += FILE_LOG_SD.powi(2),
        }
        (slopes, rest)
    }

    /// What the runs add to a prediction by [`costs`](Self::costs), and how sure it is then.
    #[must_use]
    pub fn at(&self, run: &CpuRun, subject: Subject<'_>, phase: Phase, here: &RunPoint) -> Residual {
        let threads = self.threads.iter().position(|known| *known == run.machine.threads);
        let file =
            self.files.iter().position(|(model, format)| model == subject.model && format == subject.format);
        let (slopes, rest) = self.towards(run, threads, file);
        let mut vector = vec![0.0; self.x.len()];
        for (unknown, slope) in slopes {
            vector[unknown] = slope;
        }
        let known = self.variance(&vector);
        let prompt = |phase: Phase| phase == Phase::Prefill;
        let of_file = self.seen.iter().filter(|(known, ..)| Some(*known) == file);
        let same =
            |(_, of, point): &&(usize, Phase, RunPoint)| prompt(*of) == prompt(phase) && point.is_same(here);
        let offset =
            |unknown: Option<usize>, from: usize| unknown.map_or(0.0, |unknown| self.x[from + unknown]);
        Residual {
            log_factor: offset(threads, self.places.len())
                + offset(file, self.places.len() + self.threads.len()),
            log_sd: (known + rest + run.chance().powi(2)).sqrt(),
            tier: match (of_file.clone().any(|seen| same(&seen)), file) {
                (true, _) => Tier::Observed,
                (false, Some(_)) => Tier::Anchored,
                (false, None) => Tier::EngineCalibrated,
            },
            count: of_file.count(),
        }
    }
}

fn place_of<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

#[cfg(test)]
mod tests;
