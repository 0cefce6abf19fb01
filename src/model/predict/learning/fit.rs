//! Fitting an engine's coefficients to measured rates: maximum a posteriori in logarithms.
//!
//! Minimised is `sum w rho((ln t_predicted - ln t_measured) / sigma) + sum ((x - prior) / sd)^2` over the logarithms x of
//! a typical machine's coefficients and of what each machine differs by, and a penalty for a family of storage that
//! comes out cheaper than one that [`ORDER`] puts below it. `rho` is the pseudo-Huber loss: a row that
//! disagrees with all others pulls with a constant force. Levenberg-Marquardt with numeric derivatives; everything is
//! computed in a fixed order, so the same rows give the same figures.

use serde::{Deserialize, Serialize};

use crate::costs::{COEFFICIENTS, Coefficient, Coefficients, ORDER, ORDER_LOG_SD, bounded, values};
use crate::step::{Machine, Step};
use roofline::ceilings::Roofline;
use roofline::units::Seconds;

/// Standard deviation of the logarithm of one row's time that is put down to chance.
pub const ROW_LOG_SD: f64 = 0.05;
/// Rows this many standard deviations off begin to count as outliers.
const OUTLIER: f64 = 1.0;
/// Most steps of the search.
const STEPS: usize = 40;
/// The search ends when a step gains less than this part.
const GAIN: f64 = 1e-5;

/// One pass that repeats, of a measured run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    pub step: Step,
    pub times: f64,
}

/// A measured run of one engine on one machine.
#[derive(Debug, Clone)]
pub struct Sample {
    pub steps: Vec<Repeated>,
    pub machine: Machine,
    pub roofline: std::sync::Arc<Roofline>,
    /// Which machine, as its index among those of the fit.
    pub machine_index: usize,
    /// Natural logarithm of the measured time of all passes in seconds.
    pub log_time: f64,
    /// What it counts for against other rows.
    pub weight: f64,
}

impl Sample {
    /// The least time that physics allows.
    #[must_use]
    pub fn floor(&self) -> Seconds {
        self.steps.iter().map(|part| part.step.floor(&self.roofline) * part.times).sum()
    }

    /// The same at the upper ends of all ceilings: what is faster is impossible.
    #[must_use]
    pub fn fastest(&self) -> Seconds {
        self.steps.iter().map(|part| part.step.fastest(&self.roofline) * part.times).sum()
    }

    /// Predicted time, no less than what physics allows.
    #[must_use]
    pub fn predicted(&self, log: &Coefficients) -> Seconds {
        let values = values(log);
        self.steps.iter().map(|part| self.part(part, &values, self.least(part))).sum()
    }

    fn least(&self, part: &Repeated) -> Seconds {
        part.step.least_by_engine(&self.roofline)
    }

    fn part(&self, part: &Repeated, values: &Coefficients, least: Seconds) -> Seconds {
        let time = part.step.time_with(&self.machine, &*self.roofline, values).total();
        time.max(least) * part.times
    }
}

/// A sample with what stays the same throughout a search.
struct Prepared<'a> {
    sample: &'a Sample,
    /// The least time of each of its steps.
    least: Vec<Seconds>,
    /// The coefficients that its time depends on, each once.
    depends_on: Vec<Coefficient>,
}

impl<'a> Prepared<'a> {
    fn new(sample: &'a Sample) -> Self {
        let mut depends_on: Vec<Coefficient> =
            sample.steps.iter().flat_map(|part| part.step.depends_on()).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        Self { sample, least: sample.steps.iter().map(|part| sample.least(part)).collect(), depends_on }
    }

    fn residual(&self, values: &Coefficients) -> f64 {
        let sample = self.sample;
        let parts = sample.steps.iter().zip(&self.least);
        let time: Seconds = parts.map(|(part, least)| sample.part(part, values, *least)).sum();
        sample.weight.sqrt() * robust((time.get().ln() - sample.log_time) / ROW_LOG_SD)
    }
}

/// What is known before the rows: means and standard deviations of the logarithms.
#[derive(Debug, Clone, Copy)]
pub struct Prior {
    pub mean: Coefficients,
    /// Standard deviations; 0 = fixed.
    pub sd: Coefficients,
}

/// A fit of one engine over several machines.
#[derive(Debug, Clone)]
pub struct Fitted {
    pub typical: Coefficients,
    /// Standard deviations of those.
    pub typical_sd: Coefficients,
    /// What each machine differs by.
    pub difference: Vec<Coefficients>,
    /// Standard deviations of those.
    pub difference_sd: Vec<Coefficients>,
}

impl Fitted {
    /// Sets a coefficient back to what was known before the rows, on every machine.
    pub fn forget(&mut self, coefficient: Coefficient, prior: &Prior) {
        let place = coefficient.index();
        self.typical[place] = prior.mean[place];
        self.difference.iter_mut().for_each(|difference| difference[place] = 0.0);
    }

    /// The coefficients of one machine.
    #[must_use]
    pub fn on(&self, machine: usize) -> Coefficients {
        let mut log = self.typical;
        if let Some(difference) = self.difference.get(machine) {
            log.iter_mut().zip(difference).for_each(|(log, difference)| *log += difference);
        }
        log
    }
}

/// The unknowns: for each machine those that may differ, then those of a typical machine that move. In this order the
/// curvature is zero between machines, and so is its triangle.
struct Layout {
    /// Index of each coefficient of the typical machine.
    typical: [Option<usize>; COEFFICIENTS],
    /// Index of each difference of each machine.
    machines: Vec<[Option<usize>; COEFFICIENTS]>,
    mean: Vec<f64>,
    sd: Vec<f64>,
    /// Sums of unknowns that should not be above zero.
    ordered: Vec<Vec<(usize, f64)>>,
}

impl Layout {
    /// Only what a row depends on is an unknown; everything else stays at its prior.
    fn new(samples: &[Prepared<'_>], machines: usize, prior: &Prior, between: &Coefficients) -> Self {
        let mut layout = Self {
            typical: [None; COEFFICIENTS],
            machines: vec![[None; COEFFICIENTS]; machines],
            mean: Vec::new(),
            sd: Vec::new(),
            ordered: Vec::new(),
        };
        let mut used = [false; COEFFICIENTS];
        let mut used_by = vec![[false; COEFFICIENTS]; machines];
        for sample in samples {
            for coefficient in &sample.depends_on {
                used[coefficient.index()] = true;
                used_by[sample.sample.machine_index][coefficient.index()] = true;
            }
        }
        // What is known of a family bounds those that are in order with it.
        let order = ORDER.map(|(less, more)| [less, more].map(|family| Coefficient::Cycles(family).index()));
        for pair in order {
            if pair.iter().any(|place| used[*place]) {
                pair.iter().for_each(|place| used[*place] = true);
            }
        }
        for (machine, used) in used_by.into_iter().enumerate() {
            for (place, used) in used.into_iter().enumerate() {
                if used && between[place] > 0.0 {
                    layout.machines[machine][place] = Some(layout.mean.len());
                    layout.mean.push(0.0);
                    layout.sd.push(between[place]);
                }
            }
        }
        for (place, used) in used.into_iter().enumerate() {
            if used && prior.sd[place] > 0.0 {
                layout.typical[place] = Some(layout.mean.len());
                layout.mean.push(prior.mean[place]);
                layout.sd.push(prior.sd[place]);
            }
        }
        for pair in order {
            let [Some(less), Some(more)] = pair.map(|place| layout.typical[place]) else { continue };
            layout.ordered.push(vec![(less, 1.0), (more, -1.0)]);
            for own in &layout.machines {
                let own = pair.map(|place| own[place]);
                if own == [None, None] {
                    continue;
                }
                let own = own.into_iter().zip([1.0, -1.0]).filter_map(|(index, sign)| Some((index?, sign)));
                layout.ordered.push([(less, 1.0), (more, -1.0)].into_iter().chain(own).collect());
            }
        }
        layout
    }

    /// Those differences of logarithms that are in the wrong order, in standard deviations, with their slopes.
    fn disorder<'a>(
        &'a self,
        x: &'a [f64],
    ) -> impl Iterator<Item = (f64, impl Iterator<Item = (usize, f64)>)> + 'a {
        self.ordered.iter().filter_map(|terms| {
            let over: f64 = terms.iter().map(|(index, sign)| x[*index] * sign).sum();
            let slopes = terms.iter().map(|(index, sign)| (*index, sign / ORDER_LOG_SD));
            (over > 0.0).then_some((over / ORDER_LOG_SD, slopes))
        })
    }

    /// The values of all coefficients on each machine.
    fn values(&self, prior: &Prior, x: &[f64]) -> Vec<Coefficients> {
        (0..self.machines.len()).map(|machine| values(&self.coefficients(prior, x, machine))).collect()
    }

    fn coefficients(&self, prior: &Prior, x: &[f64], machine: usize) -> Coefficients {
        let mut log = prior.mean;
        let places = self.typical.iter().zip(&self.machines[machine]);
        for (log, (typical, own)) in log.iter_mut().zip(places) {
            *log = typical.map_or(*log, |index| x[index]) + own.map_or(0.0, |index| x[index]);
        }
        log
    }
}

/// The pseudo-Huber loss as a residual: its square is the loss.
fn robust(z: f64) -> f64 {
    let scaled = z / OUTLIER;
    // sqrt(1 + s^2) - 1 without losing digits where s is small.
    let loss = scaled * scaled / ((1.0 + scaled * scaled).sqrt() + 1.0);
    z.signum() * OUTLIER * (2.0 * loss).sqrt()
}

/// Fits `samples` of one engine on `machines` machines, starting from `from` where that is given.
#[must_use]
pub fn fit(
    samples: &[Sample],
    machines: usize,
    prior: &Prior,
    between: &Coefficients,
    from: Option<&Fitted>,
) -> Fitted {
    let samples: Vec<Prepared<'_>> = samples.iter().map(Prepared::new).collect();
    let layout = Layout::new(&samples, machines, prior, between);
    let mut x = layout.mean.clone();
    if let Some(from) = from {
        for place in 0..COEFFICIENTS {
            if let Some(index) = layout.typical[place] {
                x[index] = from.typical[place];
            }
            for (machine, places) in layout.machines.iter().enumerate() {
                if let (Some(index), Some(difference)) = (places[place], from.difference.get(machine)) {
                    x[index] = difference[place];
                }
            }
        }
    }
    let curvature = search(&samples, &layout, prior, &mut x);
    let variance = inverse_diagonal(&curvature);
    let sd = |index: Option<usize>, otherwise: f64| {
        index.and_then(|index| variance.get(index).copied()).map_or(otherwise, f64::sqrt)
    };
    let mut fitted = Fitted {
        typical: prior.mean,
        typical_sd: prior.sd,
        difference: vec![[0.0; COEFFICIENTS]; machines],
        difference_sd: vec![*between; machines],
    };
    for place in 0..COEFFICIENTS {
        if let Some(index) = layout.typical[place] {
            fitted.typical[place] = x[index];
        }
        fitted.typical_sd[place] = sd(layout.typical[place], prior.sd[place]);
        for (machine, places) in layout.machines.iter().enumerate() {
            if let Some(index) = places[place] {
                fitted.difference[machine][place] = x[index];
            }
            fitted.difference_sd[machine][place] = sd(places[place], between[place]);
        }
    }
    fitted
}

/// A symmetric matrix in full.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Matrix {
    size: usize,
    cells: Vec<f64>,
}

impl Matrix {
    pub(super) fn zero(size: usize) -> Self {
        Self { size, cells: vec![0.0; size * size] }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.size + column]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, value: f64) {
        self.cells[row * self.size + column] = value;
    }

    /// The lower triangle L of `L L^T`; `None` where the matrix is not positive definite. A row begins where that of the
    /// matrix does: what is zero before it stays zero.
    pub(super) fn cholesky(&self) -> Option<Lower> {
        let first = |row: usize| (0..row).find(|column| self.at(row, *column) != 0.0).unwrap_or(row);
        let first: Vec<usize> = (0..self.size).map(first).collect();
        let mut lower = Self::zero(self.size);
        for row in 0..self.size {
            for column in first[row]..=row {
                let from = first[row].max(first[column]);
                let [a, b] = [row, column].map(|of| &lower.cells[of * self.size..][from..column.max(from)]);
                let sum: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                let rest = self.at(row, column) - sum;
                if row == column {
                    if rest <= 0.0 || !rest.is_finite() {
                        return None;
                    }
                    lower.set(row, column, rest.sqrt());
                } else {
                    lower.set(row, column, rest / lower.at(column, column));
                }
            }
        }
        Some(Lower { matrix: lower, first })
    }
}

/// A lower triangle L, whose rows are zero before some column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Lower {
    matrix: Matrix,
    /// The first column of each row that is not zero.
    first: Vec<usize>,
}

impl Lower {
    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.matrix.at(row, column)
    }

    /// Solves `L L^T x = b`.
    pub(super) fn solve(&self, b: &[f64]) -> Vec<f64> {
        let size = self.matrix.size;
        let mut x = b.to_vec();
        let row_of = |row: usize| &self.matrix.cells[row * size..][self.first[row]..row];
        for row in 0..size {
            let sum: f64 = row_of(row).iter().zip(&x[self.first[row]..row]).map(|(l, x)| l * x).sum();
            x[row] = (x[row] - sum) / self.at(row, row);
        }
        for row in (0..size).rev() {
            x[row] /= self.at(row, row);
            let solved = x[row];
            x[self.first[row]..row].iter_mut().zip(row_of(row)).for_each(|(x, l)| *x -= l * solved);
        }
        x
    }
}

fn inverse_diagonal(matrix: &Matrix) -> Vec<f64> {
    let Some(lower) = matrix.cholesky() else { return Vec::new() };
    (0..matrix.size)
        .map(|index| {
            let mut unit = vec![0.0; matrix.size];
            unit[index] = 1.0;
            lower.solve(&unit)[index]
        })
        .collect()
}

/// Moves `x` to the minimum and returns the curvature there.
fn search(samples: &[Prepared<'_>], layout: &Layout, prior: &Prior, x: &mut Vec<f64>) -> Matrix {
    let size = x.len();
    let residuals = |x: &[f64]| -> Vec<f64> {
        let values = layout.values(prior, x);
        samples.iter().map(|s| s.residual(&values[s.sample.machine_index])).collect()
    };
    let cost = |x: &[f64], residuals: &[f64]| -> f64 {
        let rows: f64 = residuals.iter().map(|r| r * r).sum();
        let priors: f64 =
            x.iter().zip(&layout.mean).zip(&layout.sd).map(|((x, mean), sd)| ((x - mean) / sd).powi(2)).sum();
        let disorder: f64 = layout.disorder(x).map(|(over, _)| over * over).sum();
        rows + priors + disorder
    };
    let mut now = residuals(x);
    let mut best = cost(x, &now);
    let mut damping = 1e-3;
    let mut curvature = Matrix::zero(size);
    for _ in 0..STEPS {
        let (matrix, gradient) = linearise(samples, layout, prior, x, &now);
        curvature = matrix;
        let mut moved = false;
        for _ in 0..10 {
            let mut damped = curvature.clone();
            for index in 0..size {
                damped.set(index, index, curvature.at(index, index) * (1.0 + damping));
            }
            let Some(lower) = damped.cholesky() else {
                damping *= 10.0;
                continue;
            };
            let step = lower.solve(&gradient);
            let next: Vec<f64> = x.iter().zip(&step).map(|(x, step)| x - step.clamp(-1.0, 1.0)).collect();
            let after = residuals(&next);
            let reached = cost(&next, &after);
            if reached < best {
                let gain = best - reached;
                *x = next;
                now = after;
                moved = gain > GAIN * best;
                best = reached;
                damping = (damping / 5.0).max(1e-9);
                break;
            }
            damping *= 4.0;
        }
        if !moved {
            break;
        }
    }
    curvature
}

/// `J^T J` and `J^T r` of rows and prior together.
fn linearise(
    samples: &[Prepared<'_>],
    layout: &Layout,
    prior: &Prior,
    x: &[f64],
    now: &[f64],
) -> (Matrix, Vec<f64>) {
    const STEP: f64 = 1e-4;
    let size = x.len();
    let mut matrix = Matrix::zero(size);
    let mut gradient = vec![0.0; size];
    for index in 0..size {
        let precision = layout.sd[index].powi(-2);
        matrix.set(index, index, precision);
        gradient[index] = (x[index] - layout.mean[index]) * precision;
    }
    for (over, slopes) in layout.disorder(x) {
        let slopes: Vec<(usize, f64)> = slopes.collect();
        for &(row, a) in &slopes {
            gradient[row] += a * over;
            for &(column, b) in &slopes {
                matrix.set(row, column, matrix.at(row, column) + a * b);
            }
        }
    }
    let mut slopes: Vec<(usize, f64)> = Vec::new();
    let logs: Vec<Coefficients> =
        (0..layout.machines.len()).map(|machine| layout.coefficients(prior, x, machine)).collect();
    let all_values: Vec<Coefficients> = logs.iter().map(values).collect();
    for (sample, now) in samples.iter().zip(now) {
        let machine = sample.sample.machine_index;
        slopes.clear();
        let mut moved = all_values[machine];
        for coefficient in &sample.depends_on {
            let place = coefficient.index();
            let places = [layout.typical[place], layout.machines[machine][place]];
            if places == [None, None] {
                continue;
            }
            let before = moved[place];
            moved[place] = bounded(logs[machine][place] + STEP, *coefficient);
            let slope = (sample.residual(&moved) - now) / STEP;
            moved[place] = before;
            slopes.extend(places.into_iter().flatten().map(|index| (index, slope)));
        }
        for &(row, a) in &slopes {
            gradient[row] += a * now;
            for &(column, b) in &slopes {
                let cell = matrix.at(row, column) + a * b;
                matrix.set(row, column, cell);
            }
        }
    }
    (matrix, gradient)
}
