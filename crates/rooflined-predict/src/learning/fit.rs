//! Fitting an engine's coefficients to measured rates: maximum a posteriori in logarithms.
//!
//! Minimised is `sum w rho((ln t_predicted - ln t_measured) / sigma) + sum ((x - prior) / sd)^2` over the logarithms x of
//! a typical machine's coefficients, of what each [`Effect`](crate::costs::Effect) changes and of what each machine differs by, and a penalty for a family of storage that
//! comes out cheaper than one that [`ORDER`] puts below it. `rho` is the pseudo-Huber loss: a row that
//! disagrees with all others pulls with a constant force. Levenberg-Marquardt with numeric derivatives; everything is
//! computed in a fixed order, so the same rows give the same figures.

use serde::{Deserialize, Serialize};

use crate::costs::{COEFFICIENTS, Coefficient, Coefficients, EFFECTS, ORDER, ORDER_LOG_SD, bounded, values};
use crate::step::{Machine, Step};
use rooflined_core::ceilings::Roofline;
use rooflined_core::units::Seconds;

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
    /// Which effects are in it, by their place in [`Effect`](crate::costs::Effect).
    pub effects: [bool; EFFECTS],
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
    /// Its place among the machines and effects that go together in [`Layout`].
    setting: usize,
}

impl<'a> Prepared<'a> {
    fn new(sample: &'a Sample) -> Self {
        let mut depends_on: Vec<Coefficient> =
            sample.steps.iter().flat_map(|part| part.step.depends_on()).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        let least = sample.steps.iter().map(|part| sample.least(part)).collect();
        Self { sample, least, depends_on, setting: 0 }
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

impl Prior {
    const NONE: Self = Self { mean: [0.0; COEFFICIENTS], sd: [0.0; COEFFICIENTS] };
}

/// How far machines, and builds and kinds of machines, lie from each other: standard deviations of the logarithms.
#[derive(Debug, Clone, Copy)]
pub struct Spreads {
    pub machines: Coefficients,
    pub effects: [Prior; EFFECTS],
}

impl Spreads {
    /// Of one machine that is fitted for itself.
    pub const NONE: Self = Self { machines: [0.0; COEFFICIENTS], effects: [Prior::NONE; EFFECTS] };
}

/// A fit of one engine over several machines.
#[derive(Debug, Clone)]
pub struct Fitted {
    pub typical: Coefficients,
    /// Standard deviations of those.
    pub typical_sd: Coefficients,
    /// What each effect changes.
    pub effects: [Coefficients; EFFECTS],
    /// Standard deviations of those.
    pub effects_sd: [Coefficients; EFFECTS],
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
        self.effects.iter_mut().for_each(|effect| effect[place] = 0.0);
        self.difference.iter_mut().for_each(|difference| difference[place] = 0.0);
    }

    /// The coefficients of a machine that nobody measured.
    #[must_use]
    pub fn typical_with(&self, effects: [bool; EFFECTS]) -> Coefficients {
        let mut log = self.typical;
        for (effect, _) in self.effects.iter().zip(effects).filter(|(_, is_in)| *is_in) {
            log.iter_mut().zip(effect).for_each(|(log, effect)| *log += effect);
        }
        log
    }

    /// The coefficients of one machine.
    #[must_use]
    pub fn on(&self, machine: usize, effects: [bool; EFFECTS]) -> Coefficients {
        let mut log = self.typical_with(effects);
        if let Some(difference) = self.difference.get(machine) {
            log.iter_mut().zip(difference).for_each(|(log, difference)| *log += difference);
        }
        log
    }

    /// Those of the machine and the build that a sample was measured with.
    #[must_use]
    pub fn of(&self, sample: &Sample) -> Coefficients {
        self.on(sample.machine_index, sample.effects)
    }
}

/// The unknowns: for each machine those that may differ, then those that effects change, then those of a typical machine that
/// move. In this order the curvature is zero between machines, and so is its triangle.
struct Layout {
    /// Machines and effects that some sample was measured with.
    settings: Vec<(usize, [bool; EFFECTS])>,
    /// Index of what each effect changes.
    effects: [[Option<usize>; COEFFICIENTS]; EFFECTS],
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
    fn new(samples: &mut [Prepared<'_>], machines: usize, prior: &Prior, spreads: &Spreads) -> Self {
        let mut layout = Self {
            settings: Vec::new(),
            effects: [[None; COEFFICIENTS]; EFFECTS],
            typical: [None; COEFFICIENTS],
            machines: vec![[None; COEFFICIENTS]; machines],
            mean: Vec::new(),
            sd: Vec::new(),
            ordered: Vec::new(),
        };
        let mut used = [false; COEFFICIENTS];
        let mut used_by = vec![[false; COEFFICIENTS]; machines];
        let mut used_with = [[false; COEFFICIENTS]; EFFECTS];
        for sample in samples {
            let setting = (sample.sample.machine_index, sample.sample.effects);
            let known = layout.settings.iter().position(|known| *known == setting);
            sample.setting = known.unwrap_or_else(|| {
                layout.settings.push(setting);
                layout.settings.len() - 1
            });
            for coefficient in &sample.depends_on {
                used[coefficient.index()] = true;
                used_by[setting.0][coefficient.index()] = true;
                for (used, is_in) in used_with.iter_mut().zip(setting.1) {
                    used[coefficient.index()] |= is_in;
                }
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
                if used && spreads.machines[place] > 0.0 {
                    layout.machines[machine][place] = Some(layout.mean.len());
                    layout.mean.push(0.0);
                    layout.sd.push(spreads.machines[place]);
                }
            }
        }
        for (effect, used) in used_with.into_iter().enumerate() {
            for (place, used) in used.into_iter().enumerate() {
                let known = &spreads.effects[effect];
                if used && known.sd[place] > 0.0 {
                    layout.effects[effect][place] = Some(layout.mean.len());
                    layout.mean.push(known.mean[place]);
                    layout.sd.push(known.sd[place]);
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
            let typical = [(less, 1.0), (more, -1.0)];
            layout.ordered.push(typical.to_vec());
            for (machine, effects) in &layout.settings {
                let with = layout.effects.iter().zip(effects).filter(|(_, is_in)| **is_in);
                let own = with.map(|(effect, _)| effect).chain([&layout.machines[*machine]]);
                let signed = |of: &[Option<usize>; COEFFICIENTS]| [(of[pair[0]], 1.0), (of[pair[1]], -1.0)];
                let own: Vec<(usize, f64)> =
                    own.flat_map(signed).filter_map(|(index, sign)| Some((index?, sign))).collect();
                if !own.is_empty() {
                    layout.ordered.push(typical.into_iter().chain(own).collect());
                }
            }
        }
        layout
    }

    /// Moves `x` to where another fit ended.
    fn start(&self, from: &Fitted, x: &mut [f64]) {
        let mut set = |places: &[Option<usize>; COEFFICIENTS], logs: &Coefficients| {
            for (index, log) in places.iter().zip(logs) {
                if let Some(index) = index {
                    x[*index] = *log;
                }
            }
        };
        set(&self.typical, &from.typical);
        self.effects.iter().zip(&from.effects).for_each(|(places, logs)| set(places, logs));
        self.machines.iter().zip(&from.difference).for_each(|(places, logs)| set(places, logs));
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

    /// The values of all coefficients in each setting.
    fn values(&self, prior: &Prior, x: &[f64]) -> Vec<Coefficients> {
        (0..self.settings.len()).map(|setting| values(&self.coefficients(prior, x, setting))).collect()
    }

    fn coefficients(&self, prior: &Prior, x: &[f64], setting: usize) -> Coefficients {
        let mut log = prior.mean;
        for (place, log) in log.iter_mut().enumerate() {
            let own: f64 = self.own(setting, place).map(|index| x[index]).sum();
            *log = self.typical[place].map_or(*log, |index| x[index]) + own;
        }
        log
    }

    /// The unknowns that a coefficient of a setting has beside that of the typical machine.
    fn own(&self, setting: usize, place: usize) -> impl Iterator<Item = usize> + '_ {
        let (machine, effects) = self.settings[setting];
        let with = self.effects.iter().zip(effects).filter(|(_, is_in)| *is_in);
        with.filter_map(move |(effect, _)| effect[place]).chain(self.machines[machine][place])
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
    spreads: &Spreads,
    from: Option<&Fitted>,
) -> Fitted {
    let mut samples: Vec<Prepared<'_>> = samples.iter().map(Prepared::new).collect();
    let layout = Layout::new(&mut samples, machines, prior, spreads);
    let mut x = layout.mean.clone();
    if let Some(from) = from {
        layout.start(from, &mut x);
    }
    let curvature = search(&samples, &layout, prior, &mut x);
    let variance = inverse_diagonal(&curvature);
    let take = |index: Option<usize>, log: &mut f64, sd: &mut f64| {
        if let Some(index) = index {
            *log = x[index];
            *sd = variance.get(index).copied().map_or(*sd, f64::sqrt);
        }
    };
    let mut fitted = Fitted {
        typical: prior.mean,
        typical_sd: prior.sd,
        effects: spreads.effects.map(|effect| effect.mean),
        effects_sd: spreads.effects.map(|effect| effect.sd),
        difference: vec![[0.0; COEFFICIENTS]; machines],
        difference_sd: vec![spreads.machines; machines],
    };
    for place in 0..COEFFICIENTS {
        take(layout.typical[place], &mut fitted.typical[place], &mut fitted.typical_sd[place]);
        for (effect, places) in layout.effects.iter().enumerate() {
            take(places[place], &mut fitted.effects[effect][place], &mut fitted.effects_sd[effect][place]);
        }
        for (machine, places) in layout.machines.iter().enumerate() {
            let sd = &mut fitted.difference_sd[machine][place];
            take(places[place], &mut fitted.difference[machine][place], sd);
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
        samples.iter().map(|s| s.residual(&values[s.setting])).collect()
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
        (0..layout.settings.len()).map(|setting| layout.coefficients(prior, x, setting)).collect();
    let all_values: Vec<Coefficients> = logs.iter().map(values).collect();
    for (sample, now) in samples.iter().zip(now) {
        let setting = sample.setting;
        slopes.clear();
        let mut moved = all_values[setting];
        for coefficient in &sample.depends_on {
            let place = coefficient.index();
            let mut places = layout.own(setting, place).chain(layout.typical[place]).peekable();
            if places.peek().is_none() {
                continue;
            }
            let before = moved[place];
            moved[place] = bounded(logs[setting][place] + STEP, *coefficient);
            let slope = (sample.residual(&moved) - now) / STEP;
            moved[place] = before;
            slopes.extend(places.map(|index| (index, slope)));
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
