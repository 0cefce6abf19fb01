//! Samples → ceilings and kernel costs.
//!
//! One regime is fitted at a time. What depends on the cores alone (peaks, dequantization costs) is taken from every
//! sample; what depends on memory is taken from the regime's own samples, each normalised by the reference read
//! beside it, so that a neighbour who took bandwidth for one sample does not become a property of a format.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::PlanKind;
use super::record::{CalibrationRecord, MachineKey, PowerUnderLoad, RECORD_SCHEMA, Regime};
use super::sample::{GemvCase, Kernel, OtherWork, Reference, Sample, Stream};
use super::vet::{Rejection, centre, least_disturbed, median, only_clock_moved, quantile, regime_key, vet};
use crate::{Engine, EngineProfile, FormatCost, GemmCost, GemmPoint, OVERLAP_EXPONENT};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline};
use rooflined_core::operation::Op;
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Hertz, Seconds};

/// Why no record came of the samples.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FitError {
    /// Nothing that is needed for any prediction.
    #[error("no usable {what} among {samples} samples ({rejected} rejected{most})")]
    Missing {
        what: &'static str,
        samples: usize,
        rejected: usize,
        /// The commonest reason, as `, most for …`.
        most: String,
    },
}

/// What is known beside the samples.
#[derive(Debug, Clone, PartialEq)]
pub struct FitContext {
    /// What the record will hold for.
    pub key: MachineKey,
    /// Date of the record.
    pub unix_s: f64,
    /// Length of the run.
    pub wall: Seconds,
    pub plan: PlanKind,
    /// The samples come from a simulated accelerator.
    pub simulated: bool,
    /// Clock cap in force; `None` without cpufreq.
    pub clock_cap: Option<Hertz>,
    /// Working set from which a read surely comes from main memory.
    pub dram_bytes: u64,
    /// Steps that the machine cannot do.
    pub skipped: Vec<String>,
    /// The board, where its GPU was measured; `None` for the CPU.
    pub gpu: Option<GpuContext>,
    pub power: Option<PowerUnderLoad>,
    /// What else the machine did when the run began; `None` where that is not known.
    pub other_work: Option<OtherWork>,
    /// Other work left fewer workers than there are cores.
    pub fewer_workers: bool,
}

/// What is known of a board whose GPU was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuContext {
    /// Clocks and units under load.
    pub point: OperatingPoint,
    /// What the units give there at the highest clock that the GPU takes: nothing that was measured can be more.
    pub physical: Roofline,
}

/// Where others had a worker's CPU for more than this part of the time, the run was made beside a load.
const LOADED_RATIO: f64 = 0.05;
/// A measured rate may lie this factor above a data-sheet ceiling: clocks are rounded in names and tables.
const PHYSICAL_MARGIN: f64 = 1.02;

/// Fits a record. Where the clocks of a shared machine never rest, and what is needed would be missing for that alone,
/// samples whose clock moved are used too, and the record is marked `loaded`.
///
/// # Errors
/// When no regime has a bandwidth, an fp32 peak and a clock.
pub fn fit(samples: &[Sample], context: &FitContext) -> Result<CalibrationRecord, FitError> {
    fit_those(samples, context, false).or_else(|error| fit_those(samples, context, true).map_err(|_| error))
}

fn fit_those(
    samples: &[Sample],
    context: &FitContext,
    moving_clocks: bool,
) -> Result<CalibrationRecord, FitError> {
    let mut rejected: Vec<Rejection> = Vec::new();
    let mut used: Vec<&Sample> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        match vet(sample) {
            Some(_) if moving_clocks && only_clock_moved(sample) => used.push(sample),
            Some(rejection) => rejected.push(rejection),
            None if taken_again_beside_others(sample, &samples[index + 1..]) => {}
            None => used.push(sample),
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "compared, not counted")]
    reject_cache_hits(&mut used, &mut rejected, context.dram_bytes as f64);
    if let Some(gpu) = &context.gpu {
        #[expect(clippy::cast_precision_loss, reason = "compared, not counted")]
        reject_impossible(&mut used, &mut rejected, &gpu.physical, context.dram_bytes as f64);
    }
    let used = one_of_each(&used);

    let keys: BTreeSet<&'static str> =
        used.iter().map(|sample| regime_key(&sample.before.reference)).collect();
    let mut regimes = Vec::new();
    let mut missing = "samples";
    for key in keys {
        match RegimeFit::new(&used, key, context).map(RegimeFit::finish) {
            Ok(regime) => regimes.push(regime),
            Err(what) => missing = what,
        }
    }
    if regimes.is_empty() {
        let most = commonest(&rejected).map_or_else(String::new, |code| format!(", most for {code}"));
        return Err(FitError::Missing {
            what: missing,
            samples: samples.len(),
            rejected: rejected.len(),
            most,
        });
    }
    // The regime of the last sample is the one in force now.
    let now = samples.last().map(|sample| regime_key(&sample.after.reference));
    regimes.sort_by_key(|regime| (Some(regime.key.as_str()) != now, std::cmp::Reverse(regime.samples)));
    let loaded = moving_clocks || context.fewer_workers || waited(&used) > LOADED_RATIO;
    if loaded {
        regimes.iter_mut().for_each(Regime::mark_loaded);
    }
    Ok(CalibrationRecord {
        schema: RECORD_SCHEMA,
        loaded,
        other_work: context.other_work.clone().filter(|_| loaded),
        key: context.key.clone(),
        measured_at_unix_s: context.unix_s,
        wall: context.wall,
        plan: match context.plan {
            PlanKind::Full => "full".to_owned(),
            PlanKind::Quick => "quick".to_owned(),
        },
        simulated: context.simulated,
        regimes,
        rejected,
        skipped: context.skipped.clone(),
        power: None,
    })
}

/// Whether a sample that showed nothing was doubted for what the run showed later, taken again, and then found beside other
/// work: that speaks for the doubt.
fn taken_again_beside_others(sample: &Sample, later: &[Sample]) -> bool {
    later.iter().any(|again| {
        again.kernel == sample.kernel && again.threads == sample.threads && again.other_work.is_some()
    })
}

/// The least disturbed of the samples that ran the same thing in the same regime.
fn one_of_each<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let same = |a: &Sample, b: &Sample| {
        a.kernel == b.kernel
            && a.threads == b.threads
            && regime_key(&a.before.reference) == regime_key(&b.before.reference)
    };
    let mut kept: Vec<&Sample> = Vec::new();
    for &sample in samples {
        if !kept.iter().any(|known| same(known, sample)) {
            let alike = samples.iter().copied().filter(|other| same(other, sample));
            kept.extend(least_disturbed(alike));
        }
    }
    kept
}

/// Part of the time for which a worker was without its CPU, in the mean over the samples.
fn waited(samples: &[&Sample]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a few dozen samples")]
    let count = samples.len().max(1) as f64;
    samples.iter().filter_map(|sample| sample.waiting_ratio).sum::<f64>() / count
}

fn commonest(rejected: &[Rejection]) -> Option<&str> {
    let count = |code: &str| rejected.iter().filter(|rejection| rejection.code == code).count();
    rejected.iter().map(|rejection| rejection.code.as_str()).max_by_key(|code| count(code))
}

/// A read that is said to come from main memory but beats the innermost cache never left it.
fn reject_cache_hits(used: &mut Vec<&Sample>, rejected: &mut Vec<Rejection>, dram_bytes: f64) {
    let all = used.iter().map(|sample| sample.threads).max().unwrap_or(1);
    let reads = |sample: &&&Sample| {
        matches!(sample.kernel, Kernel::Stream { pattern: Stream::Read, .. }) && sample.threads == all
    };
    let innermost = used.iter().filter(reads).min_by(|a, b| working_set(a).total_cmp(&working_set(b)));
    let Some(innermost) = innermost.filter(|sample| working_set(sample) < 4e6) else { return };
    let limit = rate(innermost, 0.05);
    used.retain(|sample| {
        let dram = matches!(sample.kernel, Kernel::Gemv { case: GemvCase::Dram, .. })
            || (working_set(sample).is_finite() && working_set(sample) >= dram_bytes);
        let beats = dram && rate(sample, 0.5) > limit;
        if beats {
            rejected.push(Rejection {
                kernel: sample.kernel,
                threads: sample.threads,
                code: "above_physical_bound".to_owned(),
                reason: format!(
                    "{} is more than the first-level cache gives: a cache hit",
                    rate(sample, 0.5)
                ),
            });
        }
        !beats
    });
}

/// What beats the data sheet at the clocks of the run is a cache hit or a mistake: a result on a board that nobody has
/// seen is believed only below it.
fn reject_impossible(
    used: &mut Vec<&Sample>,
    rejected: &mut Vec<Rejection>,
    physical: &Roofline,
    dram_bytes: f64,
) {
    used.retain(|sample| {
        let fastest = quantile(&sample.times, 0.05);
        let problem = match sample.kernel {
            Kernel::Peak { precision } => {
                let found = sample.flops / fastest;
                physical.compute(precision).filter(|ceiling| found / ceiling.value > PHYSICAL_MARGIN).map(
                    |ceiling| format!("{found} is more than the {} that units and clock give", ceiling.value),
                )
            }
            Kernel::Stream { .. } | Kernel::Gemv { case: GemvCase::Dram, .. } => {
                let limit = physical.memory_limit.map_or(physical.bandwidth.value, |limit| limit.value);
                // Anything else is meant to hit a cache.
                let from_memory = working_set(sample) >= dram_bytes;
                let found = sample.bytes / quantile(&sample.times, 0.5);
                (from_memory && found / limit > PHYSICAL_MARGIN)
                    .then(|| format!("{found} is more than the {limit} of the memory: a cache hit"))
            }
            _ => None,
        };
        if let Some(reason) = &problem {
            rejected.push(Rejection {
                kernel: sample.kernel,
                threads: sample.threads,
                code: "above_physical_bound".to_owned(),
                reason: reason.clone(),
            });
        }
        problem.is_none()
    });
}

fn working_set(sample: &Sample) -> f64 {
    match sample.kernel {
        #[expect(clippy::cast_precision_loss, reason = "compared, not counted")]
        Kernel::Stream { bytes, .. } => bytes as f64,
        _ => f64::INFINITY,
    }
}

/// Bytes per second at a quantile of the times: 0.05 = the fast end.
fn rate(sample: &Sample, q: f64) -> BytesPerSecond {
    sample.bytes / quantile(&sample.times, q)
}

/// Half the spread between the 5 % and 95 % quantiles, relative to the median: what one run may be off.
fn dispersion(sample: &Sample) -> f64 {
    let (low, middle, high) =
        (quantile(&sample.times, 0.05), centre(&sample.times), quantile(&sample.times, 0.95));
    ((high - low) / middle / 2.0).min(1.0)
}

fn reference_read(sample: &Sample) -> BytesPerSecond {
    sample.reference().read
}

fn clock_of(sample: &Sample) -> Hertz {
    (sample.before.clock.effective + sample.after.clock.effective) / 2.0
}

/// Samples of one regime with what has been found of them so far.
struct RegimeFit<'a> {
    key: &'static str,
    /// Every believable sample, for what depends on the cores alone.
    all: &'a [&'a Sample],
    own: Vec<&'a Sample>,
    context: &'a FitContext,
    threads: u32,
    clock: Hertz,
    reference: BytesPerSecond,
    bandwidth: Ceiling<BytesPerSecond>,
    compute: BTreeMap<Precision, Ceiling<FlopsPerSecond>>,
    launch: Ceiling<Seconds>,
}

impl<'a> RegimeFit<'a> {
    fn new(all: &'a [&'a Sample], key: &'static str, context: &'a FitContext) -> Result<Self, &'static str> {
        let own: Vec<&Sample> =
            all.iter().copied().filter(|sample| regime_key(&sample.before.reference) == key).collect();
        let threads = all.iter().map(|sample| sample.threads).max().unwrap_or(1);
        let clock = median(own.iter().map(|sample| clock_of(sample).get())).map(Hertz).ok_or("clock")?;
        let reference = median(own.iter().map(|sample| reference_read(sample).get()))
            .map(BytesPerSecond)
            .ok_or("bandwidth")?;
        let bandwidth = bandwidth_ceiling(&own, threads, reference, context.dram_bytes).ok_or("bandwidth")?;
        let mut compute = peaks(all, threads);
        // What is not multiplied in tensor units falls back on fp32: of a GPU the data sheet knows it, of a CPU nothing does.
        let known = context.gpu.as_ref().and_then(|gpu| gpu.physical.compute(Precision::Fp32));
        if let (false, Some(known)) = (compute.is_empty(), known) {
            compute.entry(Precision::Fp32).or_insert(known);
        }
        if !compute.contains_key(&Precision::Fp32) {
            return Err("fp32 peak");
        }
        let launch = launch(&own, threads).or_else(|| launch(all, threads)).ok_or("wake-up time")?;
        Ok(Self { key, all, own, context, threads, clock, reference, bandwidth, compute, launch })
    }

    /// The measured peaks; of a GPU also those of its data sheet that no usable sample measured: a peak that was
    /// rejected, because the clock fell at the power limit say, is still a unit of this GPU.
    fn every_peak(&self) -> BTreeMap<Precision, Ceiling<FlopsPerSecond>> {
        let mut all = self.compute.clone();
        for (precision, known) in self.context.gpu.iter().flat_map(|gpu| &gpu.physical.compute) {
            all.entry(*precision).or_insert(*known);
        }
        all
    }

    /// Reference bandwidth beside a sample over that of the regime.
    fn drift(&self, sample: &Sample) -> f64 {
        reference_read(sample) / self.reference
    }

    fn finish(self) -> Regime {
        let formats: BTreeMap<WeightFormat, FormatCost> = self
            .formats()
            .into_iter()
            .filter_map(|format| Some((format, self.format_cost(format)?)))
            .collect();
        let gemm = formats.get(&WeightFormat::Fp32).and_then(|fp32| self.gemm(fp32));
        let gemm = gemm.map(|gemm| (Precision::Fp32, gemm)).into_iter().collect();
        let ramp = median(formats.values().map(|cost| cost.ramp.get())).map_or(Seconds::ZERO, Seconds);
        let gpu = self.context.gpu.as_ref();
        let mode = gpu.map(|gpu| gpu.point.power_mode.as_deref().unwrap_or("gpu"));
        Regime {
            key: mode.unwrap_or(self.key).to_owned(),
            reference: Reference {
                read: self.reference,
                core_to_core: median(
                    self.own.iter().filter_map(|sample| Some(sample.before.reference.core_to_core?.get())),
                )
                .map(Seconds),
            },
            measured_at_unix_s: self.context.unix_s,
            clock_cap: self.context.clock_cap,
            point: gpu.map(|gpu| gpu.point.clone()),
            power: self.context.power.clone(),
            power_points: Vec::new(),
            power_reason: None,
            loaded: false,
            samples: u32::try_from(self.own.len()).unwrap_or(u32::MAX),
            roofline: Roofline {
                bandwidth: self.bandwidth,
                memory_limit: gpu.and_then(|gpu| gpu.physical.memory_limit),
                pull_limit: gpu.and_then(|gpu| gpu.physical.pull_limit),
                curve: self.curve(),
                copy: self.stores(Stream::Copy),
                triad: self.stores(Stream::Triad),
                compute: self.every_peak(),
                launch: self.launch,
                ramp,
                workers: self.threads,
                clock: Some(self.clock),
            },
            profile: EngineProfile { engine: Engine::Bare, formats, gemm },
        }
    }

    fn formats(&self) -> BTreeSet<WeightFormat> {
        self.all
            .iter()
            .filter_map(|sample| match sample.kernel {
                Kernel::Gemv { format, .. } => Some(format),
                _ => None,
            })
            .collect()
    }

    /// Cached and main-memory GEMVs of one format → its cost. `None` without a cached run; without a run from main
    /// memory the kernel is taken to reach the ceiling, and the interval says how little that rests on.
    fn format_cost(&self, format: WeightFormat) -> Option<FormatCost> {
        let gemv = |wanted: GemvCase, columns: u64| move |sample: &&Sample| matches!(sample.kernel, Kernel::Gemv { format: f, case, columns: c, .. } if f == format && case == wanted && c == columns);
        let cached = |columns| {
            let costs = self.all.iter().copied().filter(gemv(GemvCase::Cache, columns));
            median(costs.map(|sample| self.cycles_per_weight(sample)))
        };
        let in_cache = cached(1)?.max(1e-4);
        let column_ratio = self
            .all
            .iter()
            .find_map(|sample| match sample.kernel {
                Kernel::Gemv { format: f, case: GemvCase::Cache, columns, .. }
                    if f == format && columns > 1 =>
                {
                    Some(columns)
                }
                _ => None,
            })
            .and_then(|columns| {
                #[expect(clippy::cast_precision_loss, reason = "a handful")]
                let further = (columns - 1) as f64;
                Some(((cached(columns)? / in_cache - 1.0) / further).clamp(0.0, 1.5))
            });
        let compute = if self.context.gpu.is_some() {
            gpu_compute_of(format, &self.compute)
        } else {
            compute_of(format, &self.compute)
        };
        // Normalised by the reference beside it, a run in another regime says as much about the kernel as one in this.
        let dram: Vec<&Sample> = self.all.iter().copied().filter(gemv(GemvCase::Dram, 1)).collect();
        let peak = self.compute.get(&compute)?.value;
        let passes = dram.iter().filter_map(|sample| self.most_cycles_per_weight(sample));
        let cycles_per_weight = passes.fold(in_cache, f64::min);
        let points: Vec<MemoryPoint> =
            dram.iter().filter_map(|sample| self.memory_point(sample, cycles_per_weight, peak)).collect();
        let (ramp, bandwidth_ratio, misfit) = memory_line(&points);
        let spread = median(dram.iter().map(|sample| dispersion(sample))).unwrap_or(0.5);
        Some(FormatCost {
            compute,
            cycles_per_weight,
            // Not measured: on a CPU as dear as the first; kernels for GPUs decode a weight once for up to eight columns.
            column_ratio: column_ratio.unwrap_or(if self.context.gpu.is_some() { 0.0 } else { 1.0 }),
            bandwidth_ratio,
            ramp,
            half_width_ratio: misfit.hypot(spread).hypot(MODEL_HALF_WIDTH),
        })
    }

    /// Clock cycles of one worker for one weight in a cached run.
    fn cycles_per_weight(&self, sample: &Sample) -> f64 {
        let time = (centre(&sample.times) - self.launch.value).max(Seconds(0.0));
        clock_of(sample) * time * f64::from(sample.threads) / sample.weights
    }

    /// The most that a weight can have cost the cores in a run from main memory: no pass takes less time than its cores. A
    /// small matrix in a cache may cost more, because it occupies less of the machine: on an H200, 2112 x 1024 in Q4_K took
    /// 0.226 cycles a weight, and 8192 x 8192 from memory 0.103 in all.
    fn most_cycles_per_weight(&self, sample: &Sample) -> Option<f64> {
        let total = centre(&sample.times) - self.launch.value;
        let ideal = sample.bytes / (self.bandwidth.value * self.drift(sample));
        // Where memory explains the time, the difference of two fourth powers is noise: nearly all of it may be the cores'.
        let left = (fourth(total) - fourth(ideal)).max(0.6 * fourth(total));
        let core = Seconds(left.sqrt().sqrt());
        total.is_positive().then(|| clock_of(sample) * core * f64::from(sample.threads) / sample.weights)
    }

    /// What remains of a main-memory run for memory once launch, dequantization and arithmetic are taken out of the norm.
    fn memory_point(
        &self,
        sample: &Sample,
        cycles_per_weight: f64,
        peak: FlopsPerSecond,
    ) -> Option<MemoryPoint> {
        let total = centre(&sample.times) - self.launch.value;
        let core = sample.weights * cycles_per_weight / f64::from(sample.threads) / clock_of(sample);
        let compute = sample.flops / peak;
        let ideal = sample.bytes / (self.bandwidth.value * self.drift(sample));
        if !total.is_positive() || !ideal.is_positive() {
            return None;
        }
        let left = fourth(total) - fourth(core) - fourth(compute);
        // Where dequantization explains everything, memory took at most what the ideal says.
        let memory = if left > 0.0 { left.sqrt().sqrt() } else { ideal.get() };
        Some(MemoryPoint { ideal: ideal.get(), measured: memory })
    }

    fn gemm(&self, fp32: &FormatCost) -> Option<GemmCost> {
        let peak = self.compute.get(&Precision::Fp32)?.value;
        let runs: Vec<GemmRun> =
            self.all.iter().filter_map(|sample| self.gemm_run(sample, fp32, peak)).collect();
        gemm_cost(&runs)
    }

    /// What remains of a blocked GEMM for the cores once launch and memory are taken out of the norm.
    fn gemm_run(&self, sample: &Sample, fp32: &FormatCost, peak: FlopsPerSecond) -> Option<GemmRun> {
        let Kernel::Gemm { m, n, k } = sample.kernel else { return None };
        let total = centre(&sample.times) - self.launch.value;
        let ceiling = self.bandwidth.value * (fp32.bandwidth_ratio * self.drift(sample)).min(1.0);
        let cost = Op::Gemm { m, n, k }.cost(&NumericFormat {
            activations: WeightFormat::Fp32,
            ..NumericFormat::stored(WeightFormat::Fp32)
        });
        let memory = fp32.ramp + cost.traffic / ceiling;
        // Below a tenth of the whole the difference of two fourth powers is noise: the cores hid behind memory.
        let left = (fourth(total) - fourth(memory)).max(0.1 * fourth(total));
        #[expect(clippy::cast_precision_loss, reason = "dimensions below 2^32")]
        let shape = [m as f64, n as f64, k as f64];
        total.is_positive().then(|| GemmRun {
            shape,
            core: left.sqrt().sqrt(),
            at_peak: (cost.work / (peak * (clock_of(sample) / self.clock))).get(),
            cycle_per_weight: (cost.weights / f64::from(sample.threads) / clock_of(sample)).get(),
        })
    }

    fn curve(&self) -> Vec<BandwidthPoint> {
        let mut curve: Vec<BandwidthPoint> = self
            .own
            .iter()
            .filter_map(|sample| match sample.kernel {
                Kernel::Stream { pattern: Stream::Read, .. } => Some(BandwidthPoint {
                    working_set: Bytes(working_set(sample)),
                    threads: sample.threads,
                    read: rate(sample, 0.5),
                }),
                _ => None,
            })
            .collect();
        curve.sort_by(|a, b| {
            a.threads.cmp(&b.threads).then(a.working_set.get().total_cmp(&b.working_set.get()))
        });
        curve
    }

    /// The better kind of stores for a pattern from main memory.
    fn stores(&self, wanted: Stream) -> Option<Ceiling<BytesPerSecond>> {
        self.own
            .iter()
            .filter(|sample| matches!(sample.kernel, Kernel::Stream { pattern, .. } if pattern == wanted))
            .map(|sample| measured(rate(sample, 0.05), rate(sample, 0.95)))
            .max_by(|a, b| a.value.get().total_cmp(&b.value.get()))
    }
}

/// Model error that no calibration of this length resolves: cache sets, page placement, prefetcher state.
const MODEL_HALF_WIDTH: f64 = 0.06;

/// Half-width of the interval of a GEMM where fewer than three were measured.
const FEW_SHAPES: f64 = 0.3;

/// One main-memory run: the time its bytes need at the ceiling, and the time memory really took.
#[derive(Debug, Clone, Copy)]
struct MemoryPoint {
    ideal: f64,
    measured: f64,
}

/// Fits `measured = ramp + ideal / ratio` with relative weights; ramp at least zero, ratio at most one. Returns
/// ramp, ratio and the relative 90 % half-width of what is left over.
fn memory_line(points: &[MemoryPoint]) -> (Seconds, f64, f64) {
    if points.is_empty() {
        return (Seconds::ZERO, 1.0, 0.5);
    }
    // Weighted least squares of y = a + b x, weights 1/y² so that small and large runs count alike.
    let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for point in points {
        let weight = 1.0 / (point.measured * point.measured);
        s += weight;
        sx += weight * point.ideal;
        sy += weight * point.measured;
        sxx += weight * point.ideal * point.ideal;
        sxy += weight * point.ideal * point.measured;
    }
    let determinant = s * sxx - sx * sx;
    let (mut ramp, mut slope) = if points.len() >= 2 && determinant > 1e-9 * s * sxx {
        ((sxx * sy - sx * sxy) / determinant, (s * sxy - sx * sy) / determinant)
    } else {
        (0.0, sxy / sxx)
    };
    if ramp < 0.0 {
        (ramp, slope) = (0.0, sxy / sxx);
    }
    if slope < 1.0 {
        // Nothing streams faster than the ceiling; what is left is ramp.
        (slope, ramp) = (1.0, ((sy - sx) / s).max(0.0));
    }
    let squares: f64 =
        points.iter().map(|point| ((ramp + slope * point.ideal) / point.measured).ln().powi(2)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a handful of points")]
    let freedom = points.len().saturating_sub(2).max(1) as f64;
    (Seconds(ramp), 1.0 / slope, 1.645 * (squares / freedom).sqrt())
}

/// One blocked GEMM: its time in the cores beside what its arithmetic needs at the peak, and the time of one cycle
/// for every weight.
#[derive(Debug, Clone, Copy)]
struct GemmRun {
    shape: [f64; 3],
    core: f64,
    at_peak: f64,
    cycle_per_weight: f64,
}

/// The two constants by least squares of relative errors, and each run's ratio to them.
fn gemm_cost(runs: &[GemmRun]) -> Option<GemmCost> {
    if runs.is_empty() {
        return None;
    }
    let (cycles_per_weight, utilisation) = gemm_constants(runs);
    let point = |run: &GemmRun| {
        let [m, n, k] = run.shape;
        let modelled = run.cycle_per_weight * cycles_per_weight + run.at_peak / utilisation;
        GemmPoint { m, n, k, time_ratio: run.core / modelled }
    };
    let mut cost =
        GemmCost::new(cycles_per_weight, utilisation, runs.iter().map(point).collect(), FEW_SHAPES);
    if let Some(variance) = cost.ratios().left_out_variance().filter(|_| runs.len() >= 3) {
        cost.half_width_ratio = (1.645 * variance.sqrt()).max(MODEL_HALF_WIDTH);
    }
    Some(cost)
}

/// Cycles to repack a weight, at least zero, and utilisation, at most one.
fn gemm_constants(runs: &[GemmRun]) -> (f64, f64) {
    let (mut sxx, mut sxz, mut szz, mut sx, mut sz) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for run in runs {
        let (x, z) = (run.cycle_per_weight / run.core, run.at_peak / run.core);
        sxx += x * x;
        sxz += x * z;
        szz += z * z;
        sx += x;
        sz += z;
    }
    let determinant = sxx * szz - sxz * sxz;
    let (mut cycles, mut slowdown) = if determinant > 1e-9 * sxx * szz {
        ((sx * szz - sz * sxz) / determinant, (sz * sxx - sx * sxz) / determinant)
    } else {
        (0.0, sz / szz)
    };
    if cycles < 0.0 {
        (cycles, slowdown) = (0.0, sz / szz);
    }
    (cycles, 1.0 / slowdown.max(1.0))
}

fn fourth(time: Seconds) -> f64 {
    time.get().powi(OVERLAP_EXPONENT)
}

fn measured<R: Copy + std::ops::Mul<f64, Output = R>>(fast: R, slow: R) -> Ceiling<R> {
    // The fast end is what the hardware can do; noise only ever slows it down.
    Ceiling { value: fast, low: slow, high: fast * 1.02, provenance: Provenance::Measured }
}

/// The most that any kernel got from main memory in this regime; the low end is the regime's typical reference. `None`
/// where nothing but the references beside other samples saw main memory: a regime is more than a glimpse.
fn bandwidth_ceiling(
    own: &[&Sample],
    threads: u32,
    reference: BytesPerSecond,
    dram_bytes: u64,
) -> Option<Ceiling<BytesPerSecond>> {
    let from_memory = |sample: &&&Sample| match sample.kernel {
        Kernel::Stream { bytes, .. } => is_read(sample, threads) && bytes >= dram_bytes,
        Kernel::Gemv { case: GemvCase::Dram, .. } => true,
        _ => false,
    };
    let most = |of: fn(&Sample) -> BytesPerSecond| {
        own.iter().filter(from_memory).map(|sample| of(sample)).reduce(BytesPerSecond::max)
    };
    let best = most(|sample| sample.bytes / centre(&sample.times))?.max(reference);
    // The fastest runs found part of their data in a cache; how much is not known, so they widen the interval.
    let fastest = most(|sample| rate(sample, 0.05))?.max(best * 1.02);
    best.is_positive().then(|| Ceiling {
        value: best,
        low: reference.min(best),
        high: fastest,
        provenance: Provenance::Measured,
    })
}

fn is_read(sample: &Sample, threads: u32) -> bool {
    matches!(sample.kernel, Kernel::Stream { pattern: Stream::Read, .. }) && sample.threads == threads
}

fn peaks(all: &[&Sample], threads: u32) -> BTreeMap<Precision, Ceiling<FlopsPerSecond>> {
    let mut peaks: BTreeMap<Precision, Ceiling<FlopsPerSecond>> = BTreeMap::new();
    for sample in all.iter().filter(|sample| sample.threads == threads) {
        let Kernel::Peak { precision } = sample.kernel else { continue };
        let at = |q| -> FlopsPerSecond { Flops(sample.flops.get()) / quantile(&sample.times, q) };
        let ceiling = measured(at(0.05), at(0.95));
        if peaks.get(&precision).is_none_or(|known| known.value < ceiling.value) {
            peaks.insert(precision, ceiling);
        }
    }
    peaks
}

fn launch(samples: &[&Sample], threads: u32) -> Option<Ceiling<Seconds>> {
    let wake = samples.iter().find(|sample| sample.kernel == Kernel::Wake && sample.threads == threads)?;
    let at = |q| quantile(&wake.times, q);
    Some(Ceiling { value: at(0.5), low: at(0.05), high: at(0.95), provenance: Provenance::Measured })
}

/// What the CPU kernels of a format compute in: integers in 8 bits where there is a peak for it, the rest in fp32
/// (narrow floats are widened as they are loaded).
fn compute_of(format: WeightFormat, compute: &BTreeMap<Precision, Ceiling<FlopsPerSecond>>) -> Precision {
    use WeightFormat as F;
    let wanted = match format {
        F::Int8 | F::Int4 | F::Int4G32 | F::Int4G64 | F::Int4G128 | F::Q8_0 | F::Q4_0 => Precision::Int8,
        F::Bf16 => Precision::Bf16,
        _ => Precision::Fp32,
    };
    if compute.contains_key(&wanted) { wanted } else { Precision::Fp32 }
}

/// What a GPU's kernels compute in: the format's own precision where there is a unit for it, else what it is widened to.
fn gpu_compute_of(format: WeightFormat, compute: &BTreeMap<Precision, Ceiling<FlopsPerSecond>>) -> Precision {
    let choices = [format.native_precision(), Precision::Fp16];
    choices.into_iter().find(|precision| compute.contains_key(precision)).unwrap_or(Precision::Fp32)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{PlanContext, calibration_plan};
    use super::*;
    use crate::fixtures::{point, sample, samples, true_time, truth};
    use crate::predict;
    use rooflined_core::ceilings::datasheet;

    fn plan_context() -> PlanContext {
        PlanContext {
            threads: truth::THREADS,
            core_cache_bytes: 1 << 20,
            last_level_cache_bytes: 16 << 20,
            memory_limit_bytes: 512 << 20,
            time_limit_s: 10,
            accelerator: Default::default(),
        }
    }

    fn context() -> FitContext {
        FitContext {
            key: MachineKey {
                machine: None,
                board: "cpu".into(),
                cpu: "fixture".into(),
                logical_cpus: 4,
                kernel: None,
                version: "0".into(),
            },
            unix_s: 1.0,
            wall: Seconds(1.0),
            plan: PlanKind::Full,
            simulated: false,
            clock_cap: None,
            dram_bytes: plan_context().dram_bytes(),
            skipped: Vec::new(),
            gpu: None,
            power: None,
            other_work: None,
            fewer_workers: false,
        }
    }

    fn full() -> Vec<Sample> {
        samples(&calibration_plan(&plan_context(), PlanKind::Full))
    }

    fn close(found: f64, truth: f64, tolerance: f64) {
        assert!((found / truth - 1.0).abs() <= tolerance, "found {found:e}, the truth is {truth:e}");
    }

    #[test]
    fn the_fit_finds_the_hidden_ceilings() {
        for kind in [PlanKind::Full, PlanKind::Quick] {
            let record = fit(&samples(&calibration_plan(&plan_context(), kind)), &context()).unwrap();
            assert_eq!(record.rejected, [], "{kind:?}");
            let regime = record.current().unwrap();
            assert_eq!(regime.key, "near");
            close(regime.roofline.bandwidth.value.get(), truth::BANDWIDTH, 0.02);
            close(regime.roofline.compute[&Precision::Fp32].value.get(), truth::FP32, 0.02);
            close(regime.roofline.launch.value.get(), truth::WAKE, 0.02);
            close(regime.roofline.clock.unwrap().get(), truth::CLOCK, 1e-9);
            let int4 = regime.profile.formats[&WeightFormat::Int4];
            close(int4.cycles_per_weight, truth::INT4_CYCLES, 0.02);
            close(regime.profile.formats[&WeightFormat::Bf16].ramp.get(), truth::RAMP, 0.3);
        }
    }

    /// Shapes that no plan measures, against the fixture's own arithmetic.
    #[test]
    fn predictions_of_other_shapes_meet_the_truth_within_their_interval() {
        let record = fit(&full(), &context()).unwrap();
        let regime = record.current().unwrap();
        let gemv = |n, k| Kernel::Gemv { n, k, columns: 1, format: WeightFormat::Bf16, case: GemvCase::Dram };
        let cases = [
            (Op::Gemv { n: 1024, k: 1024 }, gemv(1024, 1024), WeightFormat::Bf16),
            (Op::Gemv { n: 4096, k: 4096 }, gemv(4096, 4096), WeightFormat::Bf16),
            (
                Op::Gemm { m: 8, n: 4096, k: 4096 },
                Kernel::Gemm { m: 8, n: 4096, k: 4096 },
                WeightFormat::Fp32,
            ),
            (
                Op::Gemm { m: 64, n: 4096, k: 4096 },
                Kernel::Gemm { m: 64, n: 4096, k: 4096 },
                WeightFormat::Fp32,
            ),
            (
                Op::Gemm { m: 512, n: 4096, k: 4096 },
                Kernel::Gemm { m: 512, n: 4096, k: 4096 },
                WeightFormat::Fp32,
            ),
        ];
        for (op, kernel, format) in cases {
            let numeric = NumericFormat { activations: WeightFormat::Fp32, ..NumericFormat::stored(format) };
            let prediction = predict(&regime.roofline, &regime.profile, &op, &numeric).unwrap();
            let (time, ..) = true_time(&kernel, truth::THREADS, 1.0);
            close(prediction.time.value.get(), time, 0.08);
            assert!(prediction.time.low.get() <= time && time <= prediction.time.high.get(), "{op:?}");
        }
    }

    /// As on an H200, whose SMs a small matrix does not fill: in the cache each weight seems to cost three times as much.
    #[test]
    fn what_a_weight_costs_in_a_cache_is_at_most_what_it_costs_in_a_pass() {
        let mut samples = full();
        for sample in &mut samples {
            if matches!(sample.kernel, Kernel::Gemv { case: GemvCase::Cache, .. }) {
                for time in &mut sample.times {
                    *time = *time * 3.0;
                }
            }
        }
        let record = fit(&samples, &context()).unwrap();
        let regime = record.current().unwrap();
        let passes = samples
            .iter()
            .filter(|sample| matches!(sample.kernel, Kernel::Gemv { case: GemvCase::Dram, columns: 1, .. }));
        let mut compared = 0;
        for sample in passes {
            let Kernel::Gemv { n, k, format, .. } = sample.kernel else { unreachable!() };
            let numeric = NumericFormat { activations: WeightFormat::Fp32, ..NumericFormat::stored(format) };
            let prediction =
                predict(&regime.roofline, &regime.profile, &Op::Gemv { n, k }, &numeric).unwrap();
            close(prediction.time.value.get(), centre(&sample.times).get(), 0.2);
            compared += 1;
        }
        assert!(compared >= 12, "{compared}");
    }

    /// A neighbour takes half of the bandwidth during every second main-memory sample.
    #[test]
    fn a_neighbour_does_not_become_a_property_of_a_format() {
        let plan = calibration_plan(&plan_context(), PlanKind::Full);
        let disturbed: Vec<Sample> = plan
            .steps
            .iter()
            .enumerate()
            .map(|(index, step)| sample(step, if index % 2 == 0 { 1.0 } else { 0.5 }, 50e-9))
            .collect();
        let record = fit(&disturbed, &context()).unwrap();
        let disturbed = record.current().unwrap();
        close(disturbed.roofline.bandwidth.value.get(), truth::BANDWIDTH, 0.02);
        let quiet = fit(&full(), &context()).unwrap();
        for (format, cost) in &quiet.current().unwrap().profile.formats {
            // At the reference bandwidth of its own record, each format costs the same.
            let per_byte =
                |cost: &FormatCost, reference: BytesPerSecond| cost.bandwidth_ratio / reference.get();
            let reference = |record: &CalibrationRecord| record.current().unwrap().reference.read;
            close(
                per_byte(&disturbed.profile.formats[format], reference(&record)),
                per_byte(cost, reference(&quiet)),
                0.05,
            );
        }
    }

    #[test]
    fn a_sample_whose_clock_moved_is_named_and_not_used() {
        let mut samples = full();
        let index = samples
            .iter()
            .position(|s| matches!(s.kernel, Kernel::Peak { precision: Precision::Fp32 }))
            .unwrap();
        let mut slow = samples[index].clone();
        slow.after.clock.effective = slow.before.clock.effective * 0.8;
        slow.times = slow.times.iter().map(|time| *time * 0.5).collect();
        samples.push(slow);
        let record = fit(&samples, &context()).unwrap();
        assert_eq!(record.rejected.len(), 1);
        assert_eq!(record.rejected[0].code, "clock_moved");
        close(record.current().unwrap().roofline.compute[&Precision::Fp32].value.get(), truth::FP32, 0.02);
    }

    /// As on a machine whose neighbours share its clock: what is needed is there, only never at one clock.
    #[test]
    fn clocks_that_never_rest_widen_a_record_rather_than_prevent_it() {
        let moving = |factor: f64, which: fn(&Kernel) -> bool| {
            let mut samples = full();
            for sample in samples.iter_mut().filter(|sample| which(&sample.kernel)) {
                sample.after.clock.effective = sample.before.clock.effective * factor;
            }
            fit(&samples, &context())
        };
        let peaks = |kernel: &Kernel| matches!(kernel, Kernel::Peak { .. });
        let quiet = fit(&full(), &context()).unwrap();
        let width = |record: &CalibrationRecord| {
            let peak = record.current().unwrap().roofline.compute[&Precision::Fp32];
            peak.high / peak.low
        };
        for factor in [0.75, 1.35] {
            for which in [peaks, |_: &Kernel| true] {
                let record = moving(factor, which).unwrap();
                assert!(record.loaded && record.rejected.is_empty(), "{factor}: {:?}", record.rejected);
                let peak = record.current().unwrap().roofline.compute[&Precision::Fp32];
                close(peak.value.get(), truth::FP32, 0.02);
                assert!(width(&record) > 1.4 * width(&quiet), "{factor}");
            }
        }
        // What is not needed is left out, as it was.
        let gemv = |kernel: &Kernel| matches!(kernel, Kernel::Gemv { .. });
        let without = moving(0.75, gemv).unwrap();
        assert!(!without.loaded && !without.rejected.is_empty());
        // So much could be anything.
        let error = moving(0.5, peaks).unwrap_err().to_string();
        assert!(error.contains("no usable fp32 peak") && error.contains("clock_moved"), "{error}");
    }

    #[test]
    fn a_gpu_without_a_usable_fp32_peak_keeps_that_of_its_data_sheet() {
        let mut samples = full();
        samples.retain(|sample| !matches!(sample.kernel, Kernel::Peak { precision: Precision::Fp32 }));
        assert!(fit(&samples, &context()).is_err(), "nothing tells the peak of a CPU");
        let hardware = rooflined_core::hardware::registry().get("h200").unwrap();
        let physical = datasheet(hardware, &OperatingPoint::default());
        let fp32 = physical.compute(Precision::Fp32).unwrap();
        let gpu = Some(GpuContext { point: OperatingPoint::default(), physical });
        let record = fit(&samples, &FitContext { gpu, ..context() }).unwrap();
        let roofline = &record.current().unwrap().roofline;
        assert_eq!(roofline.compute(Precision::Fp32), Some(fp32));
        assert_eq!(roofline.compute(Precision::Bf16).unwrap().provenance, Provenance::Measured);
        let tf32 = roofline.compute(Precision::Tf32).unwrap();
        assert_eq!(tf32.provenance, Provenance::Datasheet, "no kernel of this program measures it there");
    }

    #[test]
    fn values_above_physics_are_refused() {
        let mut samples = full();
        for sample in &mut samples {
            if matches!(sample.kernel, Kernel::Peak { precision: Precision::Bf16 }) {
                // 1e9 operations in a tenth of a microsecond: hundreds of thousands a cycle.
                sample.times = vec![Seconds(1e-7); 5];
            }
        }
        let record = fit(&samples, &context()).unwrap();
        assert_eq!(record.rejected.len(), 1);
        assert_eq!(record.rejected[0].code, "above_physical_bound");
        assert!(!record.current().unwrap().roofline.compute.contains_key(&Precision::Bf16));
    }

    #[test]
    fn a_main_memory_run_that_beats_the_first_cache_is_a_cache_hit() {
        let mut samples = full();
        let hit = samples
            .iter_mut()
            .find(|s| {
                matches!(s.kernel, Kernel::Gemv { format: WeightFormat::Q8_0, case: GemvCase::Dram, .. })
            })
            .unwrap();
        hit.times = hit.times.iter().map(|_| hit.bytes / BytesPerSecond(truth::BANDWIDTH * 41.0)).collect();
        let record = fit(&samples, &context()).unwrap();
        assert_eq!(record.rejected.len(), 1);
        assert!(record.rejected[0].reason.contains("cache hit"), "{:?}", record.rejected);
    }

    #[test]
    fn a_wrong_result_is_not_a_fast_result() {
        for error in [0.5, f64::NAN] {
            let mut samples = full();
            samples[20].max_error_ratio = Some(error);
            assert_eq!(fit(&samples, &context()).unwrap().rejected[0].code, "wrong_result");
        }
    }

    #[test]
    fn each_regime_has_ceilings_of_its_own() {
        let plan = calibration_plan(&plan_context(), PlanKind::Full);
        let mut samples = samples(&plan);
        samples.extend(plan.steps.iter().map(|step| sample(step, 0.5, 400e-9)));
        let record = fit(&samples, &context()).unwrap();
        let keys: Vec<_> = record.regimes.iter().map(|regime| regime.key.as_str()).collect();
        assert_eq!(keys, ["far", "near"], "the regime of the last sample is in force");
        close(record.regimes[0].roofline.bandwidth.value.get(), truth::BANDWIDTH / 2.0, 0.02);
        close(record.regimes[1].roofline.bandwidth.value.get(), truth::BANDWIDTH, 0.02);
    }

    #[test]
    fn moving_between_core_complexes_spoils_a_sample() {
        let mut samples = full();
        samples[3].after = point(1.0, 400e-9);
        assert_eq!(fit(&samples, &context()).unwrap().rejected[0].code, "regime_moved");
    }

    #[test]
    fn a_sample_whose_repeat_was_beside_other_work_is_not_used() {
        let mut samples = full();
        let quiet = fit(&samples, &context()).unwrap().regimes[0].samples;
        let again = Sample { other_work: Some("somebody".into()), ..samples[3].clone() };
        samples.insert(4, again);
        let doubted = fit(&samples, &context()).unwrap();
        assert_eq!(doubted.rejected[0].code, "other_work");
        assert_eq!(doubted.regimes[0].samples, quiet - 1);
    }

    /// Others had a worker's CPU for half of the time; the quiet runs are as fast as ever.
    #[test]
    fn a_run_beside_other_work_is_marked_and_a_quiet_one_replaces_it() {
        let beside = |sample: Sample| Sample { waiting_ratio: Some(0.5), left_out: 40, ..sample };
        let other_work = OtherWork {
            cpus: 4,
            busy_cpus: 1,
            busy_ratio: 0.26,
            load_average: Some(1.1),
            busiest: Some("sh (process 7)".into()),
        };
        let context = FitContext { other_work: Some(other_work.clone()), ..context() };
        let loaded = fit(&full().into_iter().map(beside).collect::<Vec<_>>(), &context).unwrap();
        let quiet = fit(&full(), &context).unwrap();
        assert_eq!((loaded.loaded, loaded.other_work.as_ref()), (true, Some(&other_work)));
        assert_eq!((quiet.loaded, quiet.other_work.as_ref()), (false, None));
        assert_eq!(other_work.to_string(), "1 of 4 cores busy: load 1.1, most of it sh (process 7)");
        let width = |record: &CalibrationRecord, op: &Op| {
            let regime = record.current().unwrap();
            let numeric = NumericFormat {
                activations: WeightFormat::Fp32,
                ..NumericFormat::stored(WeightFormat::Fp32)
            };
            let time = predict(&regime.roofline, &regime.profile, op, &numeric).unwrap().time;
            (time.high / time.low, time.value.get())
        };
        for op in [Op::Gemv { n: 4096, k: 4096 }, Op::Gemm { m: 64, n: 4096, k: 4096 }] {
            let ((wide, beside), (narrow, alone)) = (width(&loaded, &op), width(&quiet, &op));
            assert!(wide > 1.2 * narrow, "{op:?}: {wide} and {narrow}");
            close(beside, alone, 1e-9);
        }
        let replaced = quiet.merged_with(Some(&loaded));
        assert!(!replaced.loaded && replaced.regimes.iter().all(|regime| !regime.loaded));
        let fewer = FitContext { fewer_workers: true, ..context };
        assert!(fit(&full(), &fewer).unwrap().loaded);
    }

    #[test]
    fn nothing_usable_says_what_is_missing() {
        assert!(fit(&[], &context()).is_err());
        let mut samples = full();
        for sample in &mut samples {
            sample.after.steal_ratio = Some(0.4);
        }
        let error = fit(&samples, &context()).unwrap_err().to_string();
        assert!(error.contains("most for steal"), "{error}");
    }

    /// Reads from main memory are lost; what is left of the streams lies in a cache.
    #[test]
    fn a_cache_is_never_taken_for_main_memory() {
        let mut samples = full();
        samples
            .retain(|sample| working_set(sample) < 64e6 || !matches!(sample.kernel, Kernel::Stream { .. }));
        let record = fit(&samples, &context()).unwrap();
        close(record.current().unwrap().roofline.bandwidth.value.get(), truth::BANDWIDTH, 0.05);
    }

    #[test]
    fn a_glimpse_of_a_regime_is_no_regime() {
        let plan = calibration_plan(&plan_context(), PlanKind::Full);
        let mut samples = samples(&plan);
        // Two steps that say nothing about main memory fell into another regime.
        samples.extend(plan.steps[..2].iter().map(|step| sample(step, 0.5, 400e-9)));
        let record = fit(&samples, &context()).unwrap();
        assert_eq!(record.regimes.iter().map(|regime| regime.key.as_str()).collect::<Vec<_>>(), ["near"]);
    }

    #[test]
    fn a_quick_run_does_not_lose_what_a_full_one_measured() {
        let full = fit(&full(), &context()).unwrap();
        let quick = calibration_plan(&plan_context(), PlanKind::Quick);
        let merged = fit(&samples(&quick), &context()).unwrap().merged_with(Some(&full));
        let (merged, full) = (merged.current().unwrap(), full.current().unwrap());
        assert_eq!(merged.profile.formats.len(), full.profile.formats.len());
        assert_eq!(merged.profile.gemm[&Precision::Fp32].points.len(), GEMMS);
        assert_eq!(merged.roofline.curve.len(), full.roofline.curve.len());
        for (format, cost) in &full.profile.formats {
            close(merged.profile.formats[format].bandwidth_ratio, cost.bandwidth_ratio, 0.05);
        }
    }

    /// Blocked products of a full plan.
    const GEMMS: usize = 14;

    #[test]
    fn a_newer_record_keeps_what_the_older_knew_of_other_regimes() {
        let near = fit(&full(), &context()).unwrap();
        let plan = calibration_plan(&plan_context(), PlanKind::Quick);
        let far: Vec<Sample> = plan.steps.iter().map(|step| sample(step, 0.5, 400e-9)).collect();
        let merged = fit(&far, &context()).unwrap().merged_with(Some(&near));
        let keys: Vec<_> = merged.regimes.iter().map(|regime| regime.key.as_str()).collect();
        assert_eq!(keys, ["far", "near"]);
    }
}
