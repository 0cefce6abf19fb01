//! Power that others published: the rows that coefficients of power are fitted to and judged by.

mod judge;

pub use judge::{Choices, FLOORS, Kernels, Regret, choose_modes, judge_kernels, left_out_errors};

use std::collections::BTreeMap;

use super::rounded;
use super::rows::Row;
use predict::costs::recipe;
use predict::learning::conformal::{LEAST_ERRORS, conformal, quantile};
use predict::learning::power::{ClockScaling, Measured, Point, Proportions, Sample};
use predict::power::{
    Activity, CARRIED_GUESS, Coefficients, ErrorsOf, InvalidPower, ModeFile, PowerFile, PowerTable, Rails,
};
use predict::step::Step;
use roofline::board::OperatingPoint;
use roofline::ceilings::{Roofline, datasheet};
use roofline::hardware::{Hardware, Kind, Registry};
use roofline::precision::Precision;
use roofline::workload::registry::Models;
use roofline::workload::transformer::{Phase, Run};

/// A steady kernel of one intensity: what it reached and what it drew.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// The device as the table names it.
    pub device: String,
    /// Key in the registry of hardware, where it is known.
    pub hardware: Option<String>,
    /// What it computes in.
    pub precision: Precision,
    pub bytes_per_s: f64,
    pub flops_per_s: f64,
    pub power_w: f64,
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
    tie(&mut points, hardware);
    (points, left_out)
}

/// Points of modules whose rows do not tell bytes, weights and operations apart get the proportions of those that do.
fn tie(points: &mut [Point], hardware: &Registry) {
    let integrated = |point: &Point| {
        let known = hardware.get(&point.hardware)?;
        (known.kind == Kind::Integrated).then_some(known)
    };
    let rate = |point: &Point| integrated(point)?.rates.get(&point.precision).copied();
    let teachers = points.iter().filter(|point| point.tells_apart()).filter_map(|point| {
        let (rate, of) = (rate(point)?, point.fit(|_| false));
        let flop = of.flop_j.filter(|flop| *flop > 0.0)? / of.byte_j;
        // By the root of the rate: between as much for each operation and as much for each cycle.
        (of.byte_j > 0.0 && of.weight_j > 0.0).then(|| (of.weight_j / of.byte_j, flop * rate.sqrt()))
    });
    let (mut weights, mut flops): (Vec<f64>, Vec<f64>) = teachers.unzip();
    if weights.is_empty() {
        return;
    }
    let [weight, flop] = [&mut weights, &mut flops].map(|ratios| {
        ratios.sort_by(f64::total_cmp);
        quantile(ratios, 0.5)
    });
    for point in points.iter_mut().filter(|point| !point.tells_apart()) {
        point.tie = rate(point).map(|rate| Proportions { weight, flop: flop / rate.sqrt() });
    }
}

/// An operating point of which nothing is measured yet, and its ceilings.
fn at(hardware: &Hardware, point: &OperatingPoint, rails: Rails, mode: &str) -> Option<(Point, Roofline)> {
    let roofline = datasheet(hardware, point);
    let made = Point {
        hardware: hardware.key.clone(),
        rails,
        mode: mode.to_owned(),
        clock: roofline.clock?.get(),
        sm: roofline.workers,
        memory: roofline.memory_limit?.value.get(),
        precision: Precision::Fp32,
        runs: Vec::new(),
        kernels: Vec::new(),
        tie: None,
    };
    Some((made, roofline))
}

type Points = BTreeMap<(String, Rails, String), Point>;

fn add_run(points: &mut Points, row: &Row, hardware: &Registry, models: &Models) -> Result<(), String> {
    let power = row.power_w.filter(|power| *power > 0.0).ok_or("its power is 0")?;
    let rails = row.rails.ok_or("nobody says what its meter covered")?;
    let known = hardware.get(&row.hardware).ok_or_else(|| format!("no hardware {:?}", row.hardware))?;
    let (fresh, roofline) =
        at(known, &row.point, rails, &row.mode).ok_or("its hardware has no clock or no memory")?;
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
        let sample = Sample { bytes: 0.0, flops: 0.0, dequantized: 0.0, power: idle };
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
            dequantized: activity.dequantized / seconds,
            power,
        },
    });
    Ok(())
}

/// What a row's run does.
fn activity(row: &Row, roofline: &Roofline, models: &Models) -> Result<Activity, String> {
    let model = models.get(&row.model).map_err(|error| error.to_string())?;
    let model = model.model(recipe(row.engine, row.format));
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
    let Some((fresh, _)) = at(known, &OperatingPoint::default(), Rails::Gpu, "") else { return };
    let point = points.entry((known.key.clone(), Rails::Gpu, String::new())).or_insert(fresh);
    point.precision = kernel.precision;
    point.kernels.push(Sample {
        bytes: kernel.bytes_per_s,
        flops: kernel.flops_per_s,
        dequantized: 0.0,
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
        let carried = ClockScaling::of(&points);
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
        busy_w: of.busy_w.map(rounded),
        half_width_ratio: None,
    }
}

#[cfg(test)]
mod tests;
