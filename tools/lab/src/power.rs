//! Power that others published: the rows that coefficients of power are fitted to and judged by.

mod judge;

pub use judge::{
    GroupScore, Kernels, format_orders, judge_boards, judge_cards, judge_kernels, judge_labs,
    left_out_errors, model_coverage,
};

use std::collections::BTreeMap;

use super::rounded;
use super::rows::Row;
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Roofline, datasheet};
use rooflined_core::hardware::{Hardware, Kind, Registry};
use rooflined_core::precision::Precision;
use rooflined_core::units::Hertz;
use rooflined_models::registry::Models;
use rooflined_models::transformer::{Phase, Run};
use rooflined_predict::costs::recipe;
use rooflined_predict::learning::conformal::{LEAST_ERRORS, conformal};
use rooflined_predict::learning::power::{Measured, Point, Sample, fit};
use rooflined_predict::power::{
    Activity, CARRIED_GUESS, Energies, ErrorsOf, InvalidPower, Place, PowerFile, Rails, Reference, size,
};
use rooflined_predict::step::Step;

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

/// A run of a card under a power limit, whose model need not be in the registry. Columns that are not named here are not read.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Capped {
    pub device: String,
    /// The clock that the limit led to.
    pub gpu_mhz: f64,
    pub model: String,
    /// `decode` or `prefill`.
    pub phase: String,
    pub tok_s: f64,
    /// Of the GPU, by NVML.
    pub power_w: f64,
    pub bytes_per_token: f64,
    pub weights_per_token: f64,
    pub flops_per_token: f64,
}

/// Adds a run to those of its card at its clock. The arithmetic of packed weights is llama.cpp's, in INT8.
pub fn add_capped(points: &mut Vec<Point>, run: &Capped, hardware: &Registry) {
    let Some(known) = hardware.get(&run.device) else { return };
    let clock = OperatingPoint { gpu_clock: Some(Hertz(run.gpu_mhz * 1e6)), ..OperatingPoint::default() };
    let Some((mut fresh, _)) = at(known, &clock, Rails::Gpu, &format!("{} MHz", run.gpu_mhz)) else { return };
    fresh.precision = Precision::Int8;
    let same = |point: &&mut Point| (&point.hardware, &point.mode) == (&fresh.hardware, &fresh.mode);
    let measured = Measured {
        model: run.model.clone(),
        file: String::new(),
        decode: run.phase == "decode",
        tokens_per_s: run.tok_s,
        lab: String::new(),
        sample: Sample {
            bytes: run.bytes_per_token * run.tok_s,
            flops: run.flops_per_token * run.tok_s,
            dequantized: run.weights_per_token * run.tok_s,
            power: run.power_w,
        },
    };
    match points.iter_mut().find(same) {
        Some(point) => point.runs.push(measured),
        None => {
            fresh.runs.push(measured);
            points.push(fresh);
        }
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
    sort(&mut points);
    (points, left_out)
}

/// By machine, meter and clock.
pub fn sort(points: &mut [Point]) {
    points.sort_by(|a, b| {
        let clocks = a.place.clock_hz.total_cmp(&b.place.clock_hz);
        (&a.hardware, a.rails).cmp(&(&b.hardware, b.rails)).then(clocks)
    });
}

/// What a meter showed of boards with nothing running where no row of theirs says so: mode, watts of the module or of the
/// GPU. github.com/hokwangchoi/jetson-orin-nano-benchmarks (VDD_IN, clocks locked); github.com/hasso5703/dgx-spark-qwen38
/// (`spark_hwmon`).
const IDLE: [(&str, &str, f64); 2] = [("jetson-orin-nano-8gb-super", "MAXN_SUPER", 6.625), ("gb10", "", 5.0)];

/// GPU watts of GB10 in jobs that are bound by arithmetic (82.6 and 87.0 W in
/// nacyot.github.io/artifacts/gb10-clock-cap), which are taken to run at its peak: nobody has published a prompt's.
const COMPUTE_BOUND: [(&str, f64); 1] = [("gb10", 84.8)];

/// Part of a power limit from which on the limit holds the clock down.
const AT_LIMIT: f64 = 0.93;

/// Watts of an Orin Nano's module where its meter saw the rail of CPU, GPU and CV cores alone: VDD_IN is 0.94 W and 1.33
/// times that rail and VDD_SOC, of three readings of all three rails within 1 %
/// (github.com/hokwangchoi/jetson-orin-nano-benchmarks, github.com/YuvrajSingh-mist/SmolHub-Website). VDD_SOC takes 2.43 W at
/// idle with the memory at 102.4 GB/s, goes with its clock, and takes 40 pJ a byte: a guess beside the 58 pJ of an AGX Orin.
fn module_watts(rail: f64, memory_bytes_per_s: f64, bytes_per_s: f64) -> f64 {
    0.94 + 1.33 * (rail + 2.43 * memory_bytes_per_s / 102.4e9 + 40e-12 * bytes_per_s)
}

/// An operating point of which nothing is measured yet, and its ceilings.
fn at(hardware: &Hardware, point: &OperatingPoint, rails: Rails, mode: &str) -> Option<(Point, Roofline)> {
    let roofline = datasheet(hardware, point);
    let made = Point {
        hardware: hardware.key.clone(),
        rails,
        mode: mode.to_owned(),
        place: Place::of(&roofline)?,
        size: size(hardware),
        precision: Precision::Fp32,
        runs: Vec::new(),
        kernels: Vec::new(),
    };
    Some((made, roofline))
}

type Points = BTreeMap<(String, Rails, String), Point>;

/// A row's run as its point has it: the whole module or card, whatever the meter covered.
pub struct Whole {
    point: Point,
    roofline: Roofline,
    /// What most of the work was computed in.
    precision: Option<Precision>,
    pub run: Measured,
}

/// Reads the power of a row.
///
/// # Errors
/// Why the power is of no use, as a sentence.
pub fn whole(row: &Row, hardware: &Registry, models: &Models) -> Result<Whole, String> {
    let metered = row.power_w.filter(|power| *power > 0.0).ok_or("its power is 0")?;
    if row.limit_w.is_some_and(|limit| metered > AT_LIMIT * limit) {
        return Err("its power limit held a clock that nobody measured".to_owned());
    }
    let meter = row.rails.ok_or("nobody says what its meter covered")?;
    let rails = if meter == Rails::VddCpuGpuCv { Rails::Module } else { meter };
    let known = hardware.get(&row.hardware).ok_or_else(|| format!("no hardware {:?}", row.hardware))?;
    let (point, roofline) =
        at(known, &row.point, rails, &row.mode).ok_or("its hardware has no clock or no memory")?;
    let activity = activity(row, &roofline, models)?;
    let seconds = row.tokens() / row.tokens_per_s;
    let traffic = activity.traffic.get() / seconds;
    let power = match meter {
        Rails::VddCpuGpuCv => module_watts(metered, point.place.memory_bytes_per_s, traffic),
        _ => metered,
    };
    // NVML's meter sees the GPU of a GB10 alone, and none of its memory.
    let bytes = if rails == Rails::Gpu && known.kind == Kind::Integrated { 0.0 } else { traffic };
    let most = activity.work.iter().max_by(|a, b| a.1.get().total_cmp(&b.1.get()));
    let run = Measured {
        model: row.model.clone(),
        file: row.format.key().to_owned(),
        decode: row.phase == Phase::Decode,
        tokens_per_s: row.tokens_per_s,
        lab: lab(&row.source).to_owned(),
        sample: Sample {
            bytes,
            flops: activity.all_work().get() / seconds,
            dequantized: activity.dequantized / seconds,
            power,
        },
    };
    Ok(Whole { point, roofline, precision: most.map(|(precision, _)| *precision), run })
}

/// Who published a row: the owner of the repository, or the site.
fn lab(source: &str) -> &str {
    source.split('/').next().unwrap_or(source)
}

fn add_run(points: &mut Points, row: &Row, hardware: &Registry, models: &Models) -> Result<(), String> {
    let Whole { point, roofline, precision, run } = whole(row, hardware, models)?;
    let key = (point.hardware.clone(), point.rails, row.mode.clone());
    let point = points.entry(key).or_insert(point);
    if row.phase == Phase::Prefill || point.runs.is_empty() {
        point.precision = precision.unwrap_or(point.precision);
    }
    let board = point.hardware.as_str();
    let beside = |model: &str, sample| Measured {
        model: model.to_owned(),
        file: String::new(),
        decode: false,
        tokens_per_s: 0.0,
        lab: run.lab.clone(),
        sample,
    };
    let shown = IDLE.iter().find(|(key, mode, _)| (*key, *mode) == (board, row.mode.as_str()));
    if let Some(idle) = row.idle_w.or(shown.map(|(_, _, watts)| *watts))
        && !point.runs.iter().any(Measured::is_idle)
    {
        let idle = beside("", Sample::idle(idle));
        let bound = COMPUTE_BOUND.iter().find(|(key, _)| *key == board);
        let bound = bound.zip(roofline.compute(Precision::Fp16)).map(|((_, power), peak)| {
            beside("compute bound", Sample { flops: peak.value.get(), ..Sample::idle(*power) })
        });
        if bound.is_some() {
            point.precision = Precision::Fp16;
        }
        point.runs.push(idle);
        point.runs.extend(bound);
    }
    point.runs.push(run);
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
    let idle = point.runs.iter().find(|run| run.is_idle()).map(|run| run.sample.power);
    let Some(idle) = idle else { return Vec::new() };
    let before = point.runs.len();
    point.runs.retain(|run| run.sample.power >= idle);
    let out = before - point.runs.len();
    if out == 0 {
        return Vec::new();
    }
    vec![format!("{} {}: {out} below the idle power of {idle} W", point.hardware, point.mode)]
}

/// Points of one family of silicon that one set of energies is fitted to; a card is a family of its own.
#[derive(Debug, Clone)]
pub struct Family<'a> {
    /// The largest of its boards.
    pub hardware: &'a str,
    pub reference: Reference,
    pub points: Vec<&'a Point>,
}

impl Family<'_> {
    /// Energies without the rows that `leave` says.
    #[must_use]
    pub fn fit(&self, leave: impl Fn(&Point, &Measured) -> bool) -> Energies {
        fit(&self.points, &self.reference, leave)
    }

    /// Whether its rows tell the energy of an operation. Decodes alone do not tell it, nor what a byte takes, from what
    /// busy cores draw: another card's file says more than they do ([`judge_cards`]).
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.fit(|_, _| false).flop_j.is_some()
    }

    /// Its boards, each once.
    #[must_use]
    pub fn boards(&self) -> Vec<&str> {
        let mut boards: Vec<&str> = self.points.iter().map(|point| point.hardware.as_str()).collect();
        boards.dedup();
        boards
    }
}

/// Points by family and meter.
#[must_use]
pub fn families<'a>(points: &'a [Point], hardware: &Registry) -> Vec<Family<'a>> {
    let mut families: BTreeMap<(String, Rails), Vec<&Point>> = BTreeMap::new();
    for point in points {
        let silicon = hardware.get(&point.hardware).filter(|known| known.kind == Kind::Integrated);
        let silicon = silicon.and_then(|known| known.compute_capability);
        let family =
            silicon.map_or_else(|| point.hardware.clone(), |(major, minor)| format!("{major}.{minor}"));
        families.entry((family, point.rails)).or_default().push(point);
    }
    let family = |points: Vec<&'a Point>| {
        let largest = *points.iter().max_by(|a, b| a.size.total_cmp(&b.size))?;
        let reference = Reference::of(hardware.get(&largest.hardware)?);
        Some(Family { hardware: &largest.hardware, reference, points })
    };
    families.into_values().filter_map(family).collect()
}

/// The files of all families. The same rows give the same files: figures are rounded to four digits.
///
/// # Errors
/// Rows from which no file can be made.
pub fn power_files(points: &[Point], hardware: &Registry) -> Result<Vec<PowerFile>, InvalidPower> {
    let families = families(points, hardware);
    let errors = |family: &Family<'_>| -> Vec<f64> {
        left_out_errors(family).into_iter().map(|left_out| left_out.error).collect()
    };
    let all: Vec<f64> = families.iter().flat_map(errors).collect();
    let file = |family: &Family<'_>| {
        let own = errors(family);
        let (errors, errors_of) =
            if own.len() >= LEAST_ERRORS { (&own, ErrorsOf::Hardware) } else { (&all, ErrorsOf::All) };
        let half_width = conformal(errors.iter().copied()).unwrap_or(CARRIED_GUESS);
        let (known, first) = (hardware.get(family.hardware), family.points[0]);
        let discrete = known.is_some_and(|known| known.kind == Kind::Discrete);
        let (of, at) = (family.fit(|_, _| false), &family.reference);
        let file = PowerFile {
            hardware: family.hardware.to_owned(),
            boards: family.boards().into_iter().map(ToOwned::to_owned).collect(),
            rails: first.rails,
            rows: family.points.iter().map(|point| count(point)).sum(),
            half_width_ratio: rounded(half_width),
            errors: u32::try_from(errors.len()).unwrap_or(u32::MAX),
            errors_of,
            flop_precision: first.precision,
            cap_w: known.and_then(|known| known.tdp).filter(|_| discrete).map(|tdp| rounded(tdp.get())),
            energies: Energies {
                idle_w: rounded(of.idle_w),
                active_w: rounded(of.active_w),
                byte_j: rounded(of.byte_j),
                flop_j: of.flop_j.map(rounded),
                weight_j: rounded(of.weight_j),
                busy_w: of.busy_w.map(rounded),
            },
            reference: Reference { memory_bytes_per_s: rounded(at.memory_bytes_per_s), ..*at },
            points: family
                .points
                .iter()
                .map(|point| Place {
                    clock_hz: rounded(point.place.clock_hz),
                    memory_bytes_per_s: rounded(point.place.memory_bytes_per_s),
                    ..point.place
                })
                .collect(),
        };
        file.check()?;
        Ok(file)
    };
    families.iter().filter(|family| family.has_work()).map(file).collect()
}

fn count(point: &Point) -> u32 {
    u32::try_from(point.runs.len() + point.kernels.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
