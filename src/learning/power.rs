//! Power that others published: the rows that coefficients of power are fitted to and judged by.

mod judge;

pub use judge::{
    Choices, FLOORS, Kernels, Regret, choose_modes, four_points, judge_kernels, left_out_errors,
};

use std::collections::BTreeMap;

use super::engines::{LEAST_ERRORS, conformal};
use super::nnls;
use super::published::Row;
use crate::board::OperatingPoint;
use crate::hardware::{Hardware, Kind, Registry};
use crate::precision::Precision;
use crate::predict::power::{
    Activity, CARRIED_GUESS, Coefficients, ErrorsOf, InvalidPower, ModeFile, PowerFile, PowerTable, Rails,
};
use crate::predict::step::Step;
use crate::roofline::{Roofline, datasheet};
use crate::workload::registry::Models;
use crate::workload::transformer::{Phase, Run};

/// A steady kernel of one intensity: what it reached and what it drew.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// The device as the table names it.
    pub device: String,
    /// Key in the registry of hardware, where it is known.
    pub hardware: Option<String>,
    /// What it computes in.
    pub precision: Precision,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// Power.
    pub power_w: f64,
}

/// What was done in a second, and the power that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Bytes a second.
    pub bytes: f64,
    /// Operations a second.
    pub flops: f64,
    /// Weights unpacked a second.
    pub unpacked: f64,
    /// Measured, in watts.
    pub power: f64,
}

impl Sample {
    const fn counts(&self, with_flops: bool) -> [f64; nnls::UNKNOWNS] {
        [1.0, self.bytes, if with_flops { self.flops } else { 0.0 }, self.unpacked]
    }

    /// What coefficients say of it, in watts.
    #[must_use]
    pub fn predicted(&self, of: &Coefficients) -> f64 {
        of.static_w
            + of.byte_j * self.bytes
            + of.flop_j.unwrap_or(0.0) * self.flops
            + of.weight_j * self.unpacked
    }

    /// ln(predicted / measured).
    #[must_use]
    pub fn error(&self, of: &Coefficients) -> f64 {
        (self.predicted(of) / self.power).ln()
    }
}

/// The non-negative coefficients with the least relative squared error. `with_flops` = some samples do much arithmetic for
/// each byte and weight; otherwise the energy of an operation is left open.
#[must_use]
pub fn fit(samples: &[Sample], with_flops: bool) -> Coefficients {
    let rows: Vec<nnls::Equation> = samples
        .iter()
        .filter(|sample| sample.power.is_finite() && sample.power > 0.0)
        .map(|sample| (sample.counts(with_flops).map(|count| count / sample.power), 1.0))
        .collect();
    let [static_w, byte_j, flop_j, weight_j] = nnls::solve(&rows);
    Coefficients { static_w, byte_j, flop_j: with_flops.then_some(flop_j), weight_j }
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
    /// The figures.
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
    /// Multiprocessors.
    pub sm: u32,
    /// Nominal bandwidth of the memory, in bytes a second.
    pub memory: f64,
    /// What most of the work was computed in.
    pub precision: Precision,
    /// Runs of models.
    pub runs: Vec<Measured>,
    /// Steady kernels.
    pub kernels: Vec<Sample>,
}

impl Point {
    fn at(hardware: &Hardware, point: &OperatingPoint, rails: Rails, mode: &str) -> Option<(Self, Roofline)> {
        let roofline = datasheet(hardware, point);
        let made = Self {
            hardware: hardware.key.clone(),
            rails,
            mode: mode.to_owned(),
            clock: roofline.clock?.get(),
            sm: roofline.workers,
            memory: roofline.memory_limit?.value.get(),
            precision: Precision::Fp32,
            runs: Vec::new(),
            kernels: Vec::new(),
        };
        Some((made, roofline))
    }

    /// Every sample but those that `leave` says.
    pub fn samples(&self, leave: impl Fn(&Measured) -> bool) -> Vec<Sample> {
        let runs = self.runs.iter().filter(|run| !leave(run)).map(|run| run.sample);
        runs.chain(self.kernels.iter().copied()).collect()
    }

    /// Whether work can be told apart from bytes and weights: a prompt or a kernel of many operations went in.
    #[must_use]
    pub fn with_flops(&self) -> bool {
        self.kernels.len() > 2
            || self.runs.iter().filter(|run| !run.decode && !run.model.is_empty()).count() > 1
    }

    /// Coefficients without what `leave` says.
    #[must_use]
    pub fn fit(&self, leave: impl Fn(&Measured) -> bool) -> Coefficients {
        fit(&self.samples(leave), self.with_flops())
    }
}

/// Rows by operating point and meter, and the rows left out with the reason.
#[must_use]
pub fn points(
    rows: &[Row],
    kernels: &[Kernel],
    hardware: &Registry,
    models: &Models,
) -> (Vec<Point>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut points: BTreeMap<(String, Rails, String), Point> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.power_w.is_some()) {
        if let Err(why) = add_run(&mut points, row, hardware, models) {
            left_out.push(format!("{}: {why}", row.id));
        }
    }
    for kernel in kernels {
        add_kernel(&mut points, kernel, hardware);
    }
    let mut points: Vec<Point> = points.into_values().collect();
    for point in &mut points {
        left_out.extend(without_impossible(point));
    }
    points.sort_by(|a, b| {
        (&a.hardware, a.rails).cmp(&(&b.hardware, b.rails)).then(a.clock.total_cmp(&b.clock))
    });
    (points, left_out)
}

type Points = BTreeMap<(String, Rails, String), Point>;

fn add_run(points: &mut Points, row: &Row, hardware: &Registry, models: &Models) -> Result<(), String> {
    let power = row.power_w.filter(|power| *power > 0.0).ok_or("its power is 0")?;
    let rails = row.rails.ok_or("nobody says what its meter covered")?;
    let known = hardware.get(&row.hardware).ok_or_else(|| format!("no hardware {:?}", row.hardware))?;
    let (fresh, roofline) =
        Point::at(known, &row.point, rails, &row.mode).ok_or("its hardware has no clock or no memory")?;
    let activity = activity(row, &roofline, models)?;
    let seconds = row.tokens() / row.tokens_per_s;
    let key = (row.hardware.clone(), rails, row.mode.clone());
    let point = points.entry(key).or_insert(fresh);
    let most = activity.work.iter().max_by(|a, b| a.1.get().total_cmp(&b.1.get()));
    if row.phase == Phase::Prefill || point.runs.is_empty() {
        point.precision = most.map_or(point.precision, |(precision, _)| *precision);
    }
    if let Some(idle) = row.idle_w
        && !point.runs.iter().any(|run| run.model.is_empty())
    {
        let sample = Sample { bytes: 0.0, flops: 0.0, unpacked: 0.0, power: idle };
        let (model, file) = (String::new(), String::new());
        point.runs.push(Measured { model, file, decode: false, tokens_per_s: 0.0, sample });
    }
    point.runs.push(Measured {
        model: row.model.clone(),
        file: row.format.key().to_owned(),
        decode: row.phase == Phase::Decode,
        tokens_per_s: row.tokens_per_s,
        sample: Sample {
            bytes: activity.traffic.get() / seconds,
            flops: activity.all_work().get() / seconds,
            unpacked: activity.unpacked / seconds,
            power,
        },
    });
    Ok(())
}

/// What a row's run does.
fn activity(row: &Row, roofline: &Roofline, models: &Models) -> Result<Activity, String> {
    let model = models.get(&row.model).map_err(|error| error.to_string())?;
    let model = model.model(crate::predict::costs::recipe(row.engine, row.format));
    let run = Run::new(&model, &row.request()).map_err(|error| error.to_string())?;
    let mut sum = Activity::default();
    for pass in run.prefill.iter().chain(&run.decode) {
        #[expect(clippy::cast_precision_loss, reason = "counts of passes are small")]
        let times = pass.repeats as f64;
        sum.add(&Step::new(row.engine, &model, pass).activity(roofline), times);
    }
    Ok(sum)
}

fn add_kernel(points: &mut Points, kernel: &Kernel, hardware: &Registry) {
    let Some(known) = kernel.hardware.as_deref().and_then(|key| hardware.get(key)) else { return };
    let Some((fresh, _)) = Point::at(known, &OperatingPoint::default(), Rails::Gpu, "") else { return };
    let point = points.entry((known.key.clone(), Rails::Gpu, String::new())).or_insert(fresh);
    point.precision = kernel.precision;
    point.kernels.push(Sample {
        bytes: kernel.bytes_per_s,
        flops: kernel.flops_per_s,
        unpacked: 0.0,
        power: kernel.power_w,
    });
}

/// Takes out what draws less than the idle board.
fn without_impossible(point: &mut Point) -> Vec<String> {
    let idle = point.runs.iter().find(|run| run.model.is_empty()).map(|run| run.sample.power);
    let Some(idle) = idle else { return Vec::new() };
    let before = point.runs.len();
    point.runs.retain(|run| run.sample.power >= idle);
    let out = before - point.runs.len();
    if out == 0 {
        return Vec::new();
    }
    vec![format!("{} {}: {out} below the idle power of {idle} W", point.hardware, point.mode)]
}

/// The files of all machines. The same rows give the same files: figures are rounded to four digits.
///
/// # Errors
/// Rows from which no file can be made.
pub fn power_files(points: &[Point], hardware: &Registry) -> Result<Vec<PowerFile>, InvalidPower> {
    let all: Vec<f64> = points.iter().flat_map(left_out_errors).map(|error| error.1).collect();
    let mut files: Vec<PowerFile> = Vec::new();
    let mut machines: BTreeMap<(&str, Rails), Vec<&Point>> = BTreeMap::new();
    for point in points {
        machines.entry((&point.hardware, point.rails)).or_default().push(point);
    }
    for ((key, rails), points) in machines {
        let own: Vec<f64> =
            points.iter().flat_map(|point| left_out_errors(point)).map(|error| error.1).collect();
        let (errors, errors_of) =
            if own.len() >= LEAST_ERRORS { (&own, ErrorsOf::Hardware) } else { (&all, ErrorsOf::All) };
        let known = hardware.get(key);
        let discrete = rails == Rails::Gpu && known.is_some_and(|known| known.kind == Kind::Discrete);
        let fitted: Vec<Coefficients> = points.iter().map(|point| point.fit(|_| false)).collect();
        let carried = Carried::of(&points);
        let file = PowerFile {
            hardware: key.to_owned(),
            rails,
            rows: points.iter().map(|point| count(point)).sum(),
            half_width_ratio: rounded(conformal(errors.iter().copied()).unwrap_or(CARRIED_GUESS)),
            errors: u32::try_from(errors.len()).unwrap_or(u32::MAX),
            errors_of,
            flop_precision: points[0].precision,
            cap_w: known.and_then(|known| known.tdp).filter(|_| discrete).map(|tdp| rounded(tdp.get())),
            voltage_per_ghz: carried.as_ref().map(|carried| rounded(carried.slope)),
            carried_half_width_ratio: carried.as_ref().map(|carried| rounded(carried.half_width)),
            below_half_width_ratio: carried.as_ref().map(|carried| rounded(carried.below)),
            modes: points.iter().zip(&fitted).map(|(point, of)| mode(point, of)).collect(),
        };
        PowerTable::new(file.clone())?;
        files.push(file);
    }
    Ok(files)
}

fn count(point: &Point) -> u32 {
    u32::try_from(point.runs.len() + point.kernels.len()).unwrap_or(u32::MAX)
}

fn mode(point: &Point, of: &Coefficients) -> ModeFile {
    ModeFile {
        name: point.mode.clone(),
        gpu_clock_hz: rounded(point.clock),
        sm_online: point.sm,
        memory_bytes_per_s: rounded(point.memory),
        rows: count(point),
        static_w: rounded(of.static_w),
        byte_j: rounded(of.byte_j),
        flop_j: of.flop_j.map(rounded),
        weight_j: rounded(of.weight_j),
        half_width_ratio: None,
    }
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// How coefficients go from one clock to another, learnt from a machine with three points or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// Slope of the voltage, relative to that at the highest clock, for each gigahertz.
    pub slope: f64,
    /// Half-width that holds 90 % of the errors between neighbours, the lowest point aside.
    pub half_width: f64,
    /// The same from the second lowest point to the lowest.
    pub below: f64,
}

impl Carried {
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
pub(crate) fn carried_errors(from: &Point, to: &Point, slope: f64, highest: f64) -> Vec<f64> {
    let squared = crate::predict::power::voltage_scale(slope, highest, from.clock, to.clock);
    let mut of = from.fit(|_| false);
    of.byte_j *= squared;
    of.weight_j *= squared;
    of.flop_j = of.flop_j.map(|flop| flop * squared);
    to.runs.iter().filter(|run| run.decode).map(|run| run.sample.error(&of)).collect()
}

#[cfg(test)]
mod tests;
