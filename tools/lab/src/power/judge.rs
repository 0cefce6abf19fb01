//! How far power is off where it was not measured, and what that costs those who choose a mode by it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Family, Kernel};
use crate::report::{Coverage, Errors};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::{Kind, Registry};
use rooflined_core::precision::Precision;
use rooflined_core::units::Hertz;
use rooflined_predict::learning::conformal::conformal;
use rooflined_predict::learning::power::{Measured, Point, Sample, fit};
use rooflined_predict::power::{CARRIED_GUESS, Coefficients, KIN, Place, Rails, Reference, power_of};

/// A row that was left out of the fit that predicts it.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut<'a> {
    /// Where it was measured.
    pub point: &'a Point,
    /// What ran; `None` for a kernel.
    pub run: Option<&'a Measured>,
    /// ln(predicted / measured).
    pub error: f64,
}

/// Errors of what was left out of the fit: of each model in turn its decodes on every board; where there is only one, of each
/// of its files; of a card's kernels all but four.
#[must_use]
pub fn left_out_errors<'a>(family: &Family<'a>) -> Vec<LeftOut<'a>> {
    let runs = || family.points.iter().flat_map(|point| &point.runs).filter(|run| !run.is_idle());
    if runs().next().is_none() {
        let kernels = |point: &&'a Point| {
            let point = *point;
            kernel_errors(&point.kernels).into_iter().map(move |error| LeftOut { point, run: None, error })
        };
        return family.points.iter().flat_map(kernels).collect();
    }
    let models: BTreeSet<&str> = runs().map(|run| run.model.as_str()).collect();
    let unit = |run: &Measured| {
        if models.len() > 1 { run.model.clone() } else { format!("{} {}", run.model, run.file) }
    };
    let units: BTreeSet<String> = runs().map(unit).collect();
    let mut errors = Vec::new();
    for left in &units {
        let held = |run: &Measured| !run.is_idle() && unit(run) == *left;
        // One row says nothing of what is left out.
        if runs().filter(|run| !held(run)).count() < 2 {
            continue;
        }
        let energies = family.fit(|_, run| held(run));
        for &point in &family.points {
            let of = energies.at(&point.factors(&family.reference));
            let judged = point.runs.iter().filter(|run| run.decode && held(run));
            errors.extend(judged.map(|run| LeftOut { point, run: Some(run), error: run.sample.error(&of) }));
        }
    }
    errors
}

/// How many decodes of models left out lie in the interval that the errors of all other models give.
#[must_use]
pub fn model_coverage(errors: &[LeftOut<'_>]) -> Option<Coverage> {
    let model = |of: &LeftOut<'_>| of.run.map(|run| run.model.clone());
    let held = errors.iter().filter_map(|one| {
        let others = errors.iter().filter(|other| model(other) != model(one));
        Some((one.error, conformal(others.map(|other| other.error))?.ln_1p()))
    });
    Coverage::of_logs(held)
}

/// Pairs of formats of one model at one point whose watts differ by more than [`SAME_WATTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders {
    pub pairs: usize,
    /// Those that are predicted in the order that was measured, the model left out.
    pub kept: usize,
}

/// Runs of one file at one point differ by so much: a GB10's of a bf16 model by 1 to 8 %, with a median of 3 %.
const SAME_WATTS: f64 = 0.03;

/// Of each format its runs at a point: logarithms of the watts measured and predicted.
type Watts<'a> = BTreeMap<&'a str, Vec<[f64; 2]>>;

/// Compares the means of each format's runs at a point.
#[must_use]
pub fn format_orders(errors: &[LeftOut<'_>]) -> Orders {
    let mut files: BTreeMap<(&str, &str, &str), Watts<'_>> = BTreeMap::new();
    for of in errors {
        let Some(run) = of.run else { continue };
        let measured = run.sample.power.ln();
        let place = (of.point.hardware.as_str(), of.point.mode.as_str(), run.model.as_str());
        let runs = files.entry(place).or_default().entry(&run.file).or_default();
        runs.push([measured, measured + of.error]);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    let mean = |runs: &[[f64; 2]], of: usize| runs.iter().map(|run| run[of]).sum::<f64>() / runs.len() as f64;
    let mut orders = Orders::default();
    for files in files.values() {
        let watts: Vec<[f64; 2]> = files.values().map(|runs| [mean(runs, 0), mean(runs, 1)]).collect();
        for (place, a) in watts.iter().enumerate() {
            for b in &watts[place + 1..] {
                let [measured, predicted] = [a[0] - b[0], a[1] - b[1]];
                if measured.abs() > SAME_WATTS {
                    orders.pairs += 1;
                    orders.kept += usize::from(measured * predicted > 0.0);
                }
            }
        }
    }
    orders
}

/// Decodes of a board, or of a lab, whose rows were all left out.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupScore {
    pub name: String,
    /// By the rows of the others alone.
    pub alone: Errors,
    /// Of those, within the interval that is stated of such rows.
    pub covered: Coverage,
    /// The others, once one decode at the highest clock was measured: each in turn; `None` without others.
    pub anchored: Option<Errors>,
}

/// Leaves each board of a family out in turn. Its interval is that of a relative.
#[must_use]
pub fn judge_boards(family: &Family<'_>) -> Vec<GroupScore> {
    judge_groups(family, |point, _| &point.hardware, half_width(family).hypot(KIN))
}

/// Leaves out in turn what each lab measured: what a reader may find on a board that others measured. The interval is that of
/// the family's file.
#[must_use]
pub fn judge_labs(family: &Family<'_>) -> Vec<GroupScore> {
    judge_groups(family, |_, run| &run.lab, half_width(family))
}

/// Decodes of cards that have no file of their own, by that of another card ([`power_of`]).
#[must_use]
pub fn judge_cards(families: &[Family<'_>], hardware: &Registry) -> Vec<GroupScore> {
    let judged = families.iter().filter_map(|family| {
        let known = hardware.get(family.hardware).filter(|known| known.kind == Kind::Discrete)?;
        if family.has_work() {
            return None;
        }
        let errors: Vec<(f64, f64)> = family
            .points
            .iter()
            .flat_map(|point| point.runs.iter().filter(|run| run.decode).map(move |run| (point, run)))
            .filter_map(|(point, run)| {
                let clock = Some(Hertz(point.place.clock_hz));
                let at = OperatingPoint { gpu_clock: clock, ..OperatingPoint::default() };
                let costs = power_of(Some(known), &datasheet(known, &at))?;
                let watts = costs.capped_watts(run.sample.predicted(&costs.coefficients));
                Some(((watts / run.sample.power).ln(), costs.half_width_ratio.ln_1p()))
            })
            .collect();
        Some(GroupScore {
            name: family.hardware.to_owned(),
            alone: Errors::of_rates(errors.iter().map(|(error, _)| -error))?,
            covered: Coverage::of_logs(errors.iter().copied())?,
            anchored: None,
        })
    });
    judged.collect()
}

/// That of the family's file.
fn half_width(family: &Family<'_>) -> f64 {
    let errors = left_out_errors(family).into_iter().map(|of| of.error);
    conformal(errors).unwrap_or(CARRIED_GUESS)
}

/// The rows of a family by what they have in common.
type GroupOf = for<'a> fn(&'a Point, &'a Measured) -> &'a str;

fn judge_groups(family: &Family<'_>, group: GroupOf, half_width_ratio: f64) -> Vec<GroupScore> {
    let rows = || family.points.iter().flat_map(|point| point.runs.iter().map(move |run| (*point, run)));
    let groups: BTreeSet<&str> = rows().map(|(point, run)| group(point, run)).collect();
    if groups.len() < 2 {
        return Vec::new();
    }
    let judged = groups.into_iter().filter_map(|name| {
        let energies = family.fit(|point, run| group(point, run) == name);
        let own = rows().filter(|(point, run)| run.decode && group(point, run) == name);
        let errors: Vec<(f64, f64)> = own
            .map(|(point, run)| {
                let of = energies.at(&point.factors(&family.reference));
                (point.place.clock_hz, run.sample.error(&of))
            })
            .collect();
        let top = errors.iter().map(|(clock, _)| *clock).fold(0.0, f64::max);
        let anchored =
            errors.iter().enumerate().filter(|(_, (clock, _))| *clock >= top).flat_map(|(anchor, of)| {
                let others = errors.iter().enumerate().filter(move |(place, _)| *place != anchor);
                others.map(move |(_, other)| other.1 - of.1)
            });
        Some(GroupScore {
            name: name.to_owned(),
            alone: Errors::of_rates(errors.iter().map(|(_, error)| -error))?,
            covered: Coverage::of_logs(errors.iter().map(|(_, error)| (*error, half_width_ratio.ln_1p())))?,
            anchored: Errors::of_rates(anchored.map(|error| -error)),
        })
    });
    judged.collect()
}

/// Coefficients of a device's kernels, where nothing but they is known.
fn steady(kernels: &[Sample]) -> Coefficients {
    let place = Place { clock_hz: 1.0, workers: 1, memory_bytes_per_s: 1.0 };
    let reference = Reference {
        clock_hz: 1.0,
        workers: 1,
        memory_bytes_per_s: 1.0,
        size: 1.0,
        voltage_slope: 0.0,
        voltage_floor: 1.0,
    };
    let point = Point {
        hardware: String::new(),
        rails: Rails::Gpu,
        mode: String::new(),
        place,
        size: 1.0,
        precision: Precision::Fp32,
        runs: Vec::new(),
        kernels: kernels.to_vec(),
    };
    fit(&[&point], &reference, |_, _| false).at(&reference.own_factors(&place))
}

fn kernel_errors(kernels: &[Sample]) -> Vec<f64> {
    let chosen = four_points(kernels);
    let of = steady(&chosen.iter().map(|place| kernels[*place]).collect::<Vec<_>>());
    let rest = kernels.iter().enumerate().filter(|(place, _)| !chosen.contains(place));
    rest.map(|(_, sample)| sample.error(&of)).collect()
}

/// Four kernels as a calibration takes them: the one of most bytes a second, the one of most operations, and those that
/// lie farthest from what is chosen already. Fewer where there are fewer.
#[must_use]
pub fn four_points(kernels: &[Sample]) -> Vec<usize> {
    let most = |of: &dyn Fn(&Sample) -> f64| {
        let best = (0..kernels.len()).max_by(|a, b| of(&kernels[*a]).total_cmp(&of(&kernels[*b])));
        best.map_or((0, 0.0), |place| (place, of(&kernels[place])))
    };
    let ((bandwidth, bytes), (peak, flops)) = (most(&|sample| sample.bytes), most(&|sample| sample.flops));
    let place = |sample: &Sample| (sample.bytes / bytes.max(1.0), sample.flops / flops.max(1.0));
    let mut chosen: Vec<usize> = if kernels.is_empty() { Vec::new() } else { vec![bandwidth, peak] };
    chosen.dedup();
    while chosen.len() < 4.min(kernels.len()) {
        let apart = |a: usize| {
            let (x, y) = place(&kernels[a]);
            let to = |b: &usize| {
                let (u, v) = place(&kernels[*b]);
                (x - u).hypot(y - v)
            };
            chosen.iter().map(to).fold(f64::INFINITY, f64::min)
        };
        let next = (0..kernels.len())
            .filter(|a| !chosen.contains(a))
            .max_by(|a, b| apart(*a).total_cmp(&apart(*b)).then(b.cmp(a)));
        let Some(next) = next else { break };
        chosen.push(next);
    }
    chosen
}

/// Steady kernels of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernels {
    /// As the table names it.
    pub device: String,
    /// Errors of the others.
    pub four: Errors,
    /// Errors of a fit of all to all.
    pub all: Errors,
}

/// Fits four kernels of each device and judges the others.
#[must_use]
pub fn judge_kernels(kernels: &[Kernel]) -> Vec<Kernels> {
    let mut devices: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for kernel in kernels {
        devices.entry(&kernel.device).or_default().push(Sample {
            bytes: kernel.bytes_per_s,
            flops: kernel.flops_per_s,
            dequantized: 0.0,
            power: kernel.power_w,
        });
    }
    let judged = devices.into_iter().filter_map(|(device, samples)| {
        let whole = steady(&samples);
        // A summary takes errors of times, which go the other way round.
        let four = Errors::of_rates(kernel_errors(&samples).into_iter().map(|error| -error))?;
        let all = Errors::of_rates(samples.iter().map(|sample| -sample.error(&whole)))?;
        Some(Kernels { device: device.to_owned(), four, all })
    });
    judged.collect()
}
