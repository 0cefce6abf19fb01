//! Time of one step of a model with the kernels of this crate, from what each of them costs when it is run alone.
//!
//! ```text
//! t = launches x launch + sum over matrices of ( t_mem^p + t_compute^p + t_core^p )^(1/p)
//!   + sum over layers of ( t_cache^p + t_attention^p )^(1/p) + elements x cycles / (workers x clock)
//! t_attention = pairs of one worker x (cycles_per_pair + head_dim x cycles_per_element) / clock
//! ```
//!
//! A pair is a query head and a key that it sees. Every constant comes from the calibration of single kernels; no step of
//! any model goes into them.

use super::calibration::{GPU_ATTENTION_KERNELS, GPU_SMALL_KERNELS_OF_HEAD, GPU_SMALL_KERNELS_OF_LAYER};
use super::engine_profile::UNKNOWN_KERNEL_HALF_WIDTH;
use super::estimate::{interval, relative_half_width, tier};
use super::operation::{
    OVERLAP_EXPONENT, Parts, as_f64, beyond_calibrated_columns, compute_path, dequantized,
};
use super::step::Step;
use super::{Engine, EngineProfile, FormatCost, Limit, PredictError, Prediction};
use rooflined_core::ceilings::{Bound, Roofline};
use rooflined_core::operation::Cost;
use rooflined_core::precision::{NumericFormat, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};
use rooflined_models::architecture::{Attention, Mixer};
use rooflined_models::model::Model;
use rooflined_models::transformer::{InvalidRequest, Kind, OpCost, Pass, Phase, Request, Run};

pub use super::engine_profile::AttentionCost;

/// Sequences and key/value heads are handed out whole: what the worker with the most of them has.
#[must_use]
pub fn most_of_one_worker(sequences: u64, kv_heads: u64, workers: u32) -> u64 {
    let units = sequences.saturating_mul(kv_heads);
    units.div_ceil(u64::from(workers.max(1)).min(units.max(1)))
}

/// Parallel regions of a layer on a CPU that wake the other workers whatever the batch: query, key and value; attention; output;
/// gate and up; down. Norms do with several sequences.
const REGIONS: f64 = 5.0;
/// Parallel norms of a layer where there are several sequences.
const NORMS: f64 = 2.0;

/// Why a step has no prediction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StepError {
    /// A count that cannot be.
    #[error(transparent)]
    Request(#[from] InvalidRequest),
    /// A format that nothing here computes with.
    #[error(transparent)]
    Op(#[from] PredictError),
    /// Not one token for every sequence.
    #[error("the kernels here add one token to every sequence; ask for phase decode")]
    Phase,
}

/// Sums over the operations of a step.
struct Sum {
    time: Seconds,
    /// Time times relative half-width: errors of one kernel repeat in every layer.
    doubt: Seconds,
    cost: Cost,
    dequantized: f64,
    /// Arithmetic at its peaks.
    arithmetic: Seconds,
    /// Time of what each ceiling limits.
    limits: [(Limit, Seconds); 4],
    calibrated: bool,
}

impl Sum {
    fn add(&mut self, time: Seconds, half_width: f64, limit: Limit) {
        self.time += time;
        self.doubt += time * half_width;
        for (known, sum) in &mut self.limits {
            if *known == limit {
                *sum += time;
            }
        }
    }

    fn count(&mut self, cost: &Cost) {
        self.cost = Cost {
            work: self.cost.work + cost.work,
            traffic: self.cost.traffic + cost.traffic,
            weights: self.cost.weights + cost.weights,
        };
    }
}

/// Predicts one step: a token for every sequence of `request` after its context.
///
/// # Errors
/// A count that cannot be, another phase, or a format that nothing here computes with.
pub fn predict_step(
    roofline: &Roofline,
    profile: &EngineProfile,
    model: &Model,
    request: &Request,
) -> Result<Prediction, StepError> {
    if request.phase != Phase::Decode {
        return Err(StepError::Phase);
    }
    let request = Request { output_tokens: 1, ..*request };
    let run = Run::new(model, &request)?;
    let Some(pass) = run.decode else { return Err(StepError::Phase) };
    let mut warnings = request.warnings(model);
    let mut sum = Sum {
        time: Seconds::ZERO,
        doubt: Seconds::ZERO,
        cost: Cost { work: Flops::ZERO, traffic: Bytes::ZERO, weights: 0.0 },
        dequantized: 0.0,
        arithmetic: Seconds::ZERO,
        limits: [Limit::Dram, Limit::Compute, Limit::Core, Limit::Launch].map(|limit| (limit, Seconds::ZERO)),
        calibrated: profile.engine == Engine::Bare,
    };
    for op in &pass.ops {
        match op.kind {
            Kind::Matrix(_) => matrix(roofline, profile, &request, op, &mut sum, &mut warnings)?,
            Kind::Elementwise | Kind::Sample => elements(roofline, profile, &request, op, &mut sum),
            // Attention is timed layer by layer below, a row of the table is copied, and states are those of layers that
            // no kernel here computes.
            Kind::Attention | Kind::Embed | Kind::State => sum.count(&op.cost),
        }
    }
    for layer in &model.architecture.layers {
        match layer.mixer {
            Mixer::Attention(a) => attention(roofline, profile, &request, &a, &mut sum),
            Mixer::None => {}
            Mixer::Latent(_) | Mixer::Linear(_) => sum.calibrated = false,
        }
    }
    sum.add(roofline.launch.value * launches(roofline, model, &request, &pass), 0.2, Limit::Launch);
    let step = Step::new(profile.engine, model, &pass);
    let bounds = [step.floor(roofline), step.fastest(roofline)];
    Ok(finish(roofline, profile, request.tokens(), bounds, &sum, warnings))
}

/// How often a step starts something: on a GPU the kernels of its graph, on a CPU its parallel regions.
fn launches(roofline: &Roofline, model: &Model, request: &Request, pass: &Pass) -> f64 {
    let layers = as_f64(model.architecture.layers.len() as u64);
    // Only of GPUs is the memory's own limit known.
    if roofline.memory_limit.is_some() {
        let products = pass.ops.iter().filter(|op| matches!(op.kind, Kind::Matrix(_)) && op.shape.is_some());
        let each = f64::from(GPU_ATTENTION_KERNELS + GPU_SMALL_KERNELS_OF_LAYER);
        return products.map(|op| op.count).sum::<f64>()
            + layers * each
            + f64::from(GPU_SMALL_KERNELS_OF_HEAD);
    }
    let norms = if request.batch > 1 { NORMS } else { 0.0 };
    layers * (REGIONS + norms) + 1.0 + norms.min(1.0)
}

fn finish(
    roofline: &Roofline,
    profile: &EngineProfile,
    tokens: f64,
    [roofline_time, floor]: [Seconds; 2],
    sum: &Sum,
    mut warnings: Vec<String>,
) -> Prediction {
    warnings.sort();
    warnings.dedup();
    let bandwidth = roofline.bandwidth;
    let value = sum.time.max(roofline_time);
    let memory =
        sum.limits.iter().find(|(limit, _)| *limit == Limit::Dram).map_or(Seconds::ZERO, |(_, t)| *t);
    let ceilings = relative_half_width(&bandwidth.map(BytesPerSecond::get)) * (memory / value);
    let half_width = (sum.doubt / value).hypot(ceilings);
    let wanted = profile
        .formats
        .values()
        .next()
        .map_or(rooflined_core::precision::Precision::Fp32, |cost| cost.compute);
    let compute = compute_path(roofline, wanted, &mut Vec::new()).unwrap_or(wanted);
    let peak = roofline.compute(compute).map_or(FlopsPerSecond(f64::INFINITY), |peak| peak.value);
    let provenance = bandwidth.provenance.max(roofline.launch.provenance);
    let limit = sum.limits.iter().max_by(|a, b| a.1.get().total_cmp(&b.1.get())).map_or(Limit::Dram, |l| l.0);
    Prediction {
        moved: Default::default(),
        time: interval(value, half_width, roofline_time),
        tokens,
        roofline_time,
        floor,
        cost: sum.cost,
        dequantized: sum.dequantized,
        compute,
        ridge: peak / bandwidth.value,
        bound: if sum.cost.traffic / bandwidth.value > sum.arithmetic {
            Bound::Memory
        } else {
            Bound::Compute
        },
        limit,
        tier: tier(provenance, sum.calibrated),
        provenance,
        power: None,
        warnings,
        model: None,
    }
}

/// Products with weights: every matrix is a GEMV with a column for each sequence.
fn matrix(
    roofline: &Roofline,
    profile: &EngineProfile,
    request: &Request,
    op: &OpCost,
    sum: &mut Sum,
    warnings: &mut Vec<String>,
) -> Result<(), PredictError> {
    let Some(shape) = op.shape.filter(|_| op.count > 0.0) else {
        // Biases and norms: their bytes.
        sum.add(op.cost.traffic / roofline.bandwidth.value, UNKNOWN_KERNEL_HALF_WIDTH, Limit::Dram);
        sum.count(&op.cost);
        return Ok(());
    };
    let format = op.block.and_then(rooflined_models::block::Block::format).unwrap_or(WeightFormat::Fp32);
    let numeric = NumericFormat { activations: request.activations, ..NumericFormat::stored(format) };
    let known = profile.formats.get(&format);
    let wanted = known.map_or(numeric.compute, |known| known.compute);
    let precision =
        compute_path(roofline, wanted, warnings).ok_or(PredictError::NoUnit { precision: wanted })?;
    let peak = roofline.compute(precision).ok_or(PredictError::NoUnit { precision: wanted })?;
    // Inputs and outputs stay in the caches between products: their bytes are part of the bound only.
    let weights = Cost {
        work: op.cost.work / op.count,
        traffic: stored(op, shape_bytes(request, op)) / op.count,
        weights: op.cost.weights / op.count,
    };
    let parts = parts(roofline, known, &weights, shape.m, peak.value);
    sum.add(parts.overlapped() * op.count, parts.half_width, parts.limit(Seconds::ZERO));
    sum.arithmetic += op.cost.work / peak.value;
    sum.calibrated &= parts.calibrated;
    sum.dequantized += dequantized(op.cost.weights, format);
    sum.count(&Cost { traffic: weights.traffic * op.count, ..op.cost });
    Ok(())
}

/// Bytes of inputs and outputs of all products of an operation.
fn shape_bytes(request: &Request, op: &OpCost) -> Bytes {
    op.shape.map_or(Bytes::ZERO, |shape| {
        request.activations.bytes(shape.m * (as_f64(shape.n) + as_f64(shape.k)) * op.count)
    })
}

fn stored(op: &OpCost, inputs: Bytes) -> Bytes {
    (op.cost.traffic - inputs).max(Bytes::ZERO)
}

fn parts(
    roofline: &Roofline,
    known: Option<&FormatCost>,
    cost: &Cost,
    columns: f64,
    peak: FlopsPerSecond,
) -> Parts {
    let ramp = known.map_or(roofline.ramp, |known| known.ramp);
    let ratio = known.map_or(1.0, |known| known.bandwidth_ratio);
    let memory = ramp + cost.traffic / (roofline.bandwidth.value * ratio);
    let compute = cost.work / peak;
    match (known, roofline.clock) {
        (Some(known), Some(clock)) => Parts {
            memory,
            compute,
            core: cost.weights * known.cycles_per_weight * (1.0 + known.column_ratio * (columns - 1.0))
                / f64::from(roofline.workers.max(1))
                / clock,
            half_width: known.half_width_ratio * beyond_calibrated_columns(columns),
            calibrated: true,
        },
        _ => Parts {
            memory,
            compute,
            core: Seconds::ZERO,
            half_width: UNKNOWN_KERNEL_HALF_WIDTH,
            calibrated: false,
        },
    }
}

/// Attention of one layer; its traffic has been counted.
fn attention(roofline: &Roofline, profile: &EngineProfile, request: &Request, a: &Attention, sum: &mut Sum) {
    let keys = request.context_tokens.saturating_add(1).min(a.window.unwrap_or(u64::MAX));
    let elements =
        as_f64(request.batch) * as_f64(a.kv_heads) * as_f64(a.head_dim + a.value_dim) * as_f64(keys);
    let cost = profile.formats.get(&request.kv_cache);
    let ratio = cost.map_or(1.0, |cost| cost.bandwidth_ratio);
    let ramp = cost.map_or(roofline.ramp, |cost| cost.ramp);
    let memory = ramp + request.kv_cache.bytes(elements) / (roofline.bandwidth.value * ratio);
    let (Some(known), Some(clock)) = (profile.attention, roofline.clock) else {
        sum.calibrated = false;
        return sum.add(memory, UNKNOWN_KERNEL_HALF_WIDTH, Limit::Dram);
    };
    let units = most_of_one_worker(request.batch, a.kv_heads, roofline.workers);
    let queries = as_f64(request.verified_tokens());
    let pairs = as_f64(units) * as_f64(a.heads / a.kv_heads.max(1)) * as_f64(keys) * queries;
    let core = Seconds(known.cycles(pairs, as_f64(a.head_dim)) / clock.get());
    let joined = memory.get().powi(OVERLAP_EXPONENT) + core.get().powi(OVERLAP_EXPONENT);
    let time = Seconds(joined.sqrt().sqrt()).max(memory).max(core);
    sum.add(time, known.half_width_ratio, if memory > core { Limit::Dram } else { Limit::Core });
}

/// Norms, rotation, activation, residuals, and the search for the largest logit, on vectors in the caches.
fn elements(roofline: &Roofline, profile: &EngineProfile, request: &Request, op: &OpCost, sum: &mut Sum) {
    let bytes = match op.kind {
        Kind::Sample => 4.0,
        _ => request.activations.bytes(1.0).get(),
    };
    let count = op.cost.traffic.get() / bytes;
    match (profile.cycles_per_element, roofline.clock) {
        (Some(cycles), Some(clock)) => {
            let time = Seconds(count * cycles / f64::from(roofline.workers.max(1)) / clock.get());
            sum.add(time, UNKNOWN_KERNEL_HALF_WIDTH, Limit::Core);
        }
        _ => sum.calibrated = false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use rooflined_core::ceilings::{Ceiling, Provenance};
    use rooflined_core::precision::Precision;
    use rooflined_core::units::Hertz;
    use rooflined_models::recipe::Recipe;
    use rooflined_models::registry::models;

    fn exact<R: Copy>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }

    fn machine() -> Roofline {
        Roofline {
            bandwidth: exact(BytesPerSecond(20e9)),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: BTreeMap::from([(Precision::Fp32, exact(FlopsPerSecond(200e9)))]),
            launch: exact(Seconds(1e-6)),
            ramp: Seconds::ZERO,
            workers: 2,
            clock: Some(Hertz(3e9)),
        }
    }

    fn profile() -> EngineProfile {
        let cost = FormatCost {
            compute: Precision::Fp32,
            cycles_per_weight: 0.05,
            column_ratio: 0.3,
            bandwidth_ratio: 1.0,
            ramp: Seconds::ZERO,
            half_width_ratio: 0.1,
        };
        EngineProfile {
            formats: [WeightFormat::Fp32, WeightFormat::Fp16, WeightFormat::Bf16, WeightFormat::Q8_0]
                .map(|format| (format, cost))
                .into(),
            attention: Some(AttentionCost {
                cycles_per_pair: 10.0,
                cycles_per_element: 0.2,
                half_width_ratio: 0.2,
            }),
            cycles_per_element: Some(0.3),
            ..EngineProfile::unknown(Engine::Bare)
        }
    }

    fn tiny(format: WeightFormat) -> Model {
        models().get("tinyllama-1.1b").unwrap().model(Recipe::of(format))
    }

    fn time(batch: u64, context: u64) -> Prediction {
        let request = Request { batch, activations: WeightFormat::Fp32, ..Request::decode(context) };
        predict_step(&machine(), &profile(), &tiny(WeightFormat::Bf16), &request).unwrap()
    }

    #[test]
    fn a_step_takes_the_time_that_its_bytes_need_where_memory_is_slow() {
        let prediction = time(1, 0);
        let bytes = tiny(WeightFormat::Bf16).bytes_per_token().get();
        // Launches, elementwise work and the part of the norm that the cores add are a few percent.
        let ratio = prediction.time.value.get() / (bytes / 20e9);
        assert!((1.0..1.06).contains(&ratio), "{ratio}");
        assert_eq!((prediction.limit, prediction.bound), (Limit::Dram, Bound::Memory));
        assert_eq!(prediction.tier, crate::Tier::EngineCalibrated);
        assert!(prediction.time.low >= prediction.roofline_time);
    }

    #[test]
    fn more_sequences_and_more_context_never_take_less_time() {
        let mut last = Seconds::ZERO;
        for (batch, context) in [(1, 0), (1, 1024), (2, 1024), (8, 1024), (8, 4096)] {
            let prediction = time(batch, context);
            assert!(prediction.time.value > last, "{batch} {context}");
            assert!(prediction.time.value >= prediction.roofline_time);
            last = prediction.time.value;
        }
    }

    #[test]
    fn a_gpu_starts_every_kernel_of_its_graph() {
        let gpu = Roofline { memory_limit: Some(exact(BytesPerSecond(20e9))), ..machine() };
        let slow = Roofline { launch: exact(Seconds(11e-6)), ..gpu.clone() };
        let model = tiny(WeightFormat::Bf16);
        let request = Request { activations: WeightFormat::Fp32, ..Request::decode(100) };
        let time = |machine| predict_step(machine, &profile(), &model, &request).unwrap().time.value;
        // 22 layers of seven products, two kernels of attention and six small ones; head, norm, largest logit.
        let kernels = 22.0 * (7.0 + 2.0 + 6.0) + 3.0;
        let found = (time(&slow) - time(&gpu)).get() / 10e-6;
        assert!((found - kernels).abs() < 1e-6, "{found}");
    }

    #[test]
    fn attention_is_as_slow_as_the_worker_with_the_most_heads() {
        assert_eq!(most_of_one_worker(1, 4, 2), 2);
        assert_eq!(most_of_one_worker(1, 5, 2), 3);
        assert_eq!(most_of_one_worker(1, 2, 16), 1);
        assert_eq!(most_of_one_worker(8, 2, 16), 1);
        assert_eq!(most_of_one_worker(0, 0, 0), 0);
    }

    #[test]
    fn what_was_not_calibrated_is_not_said_to_be() {
        let request = Request::decode(100);
        let without = EngineProfile { attention: None, ..profile() };
        let model = tiny(WeightFormat::Bf16);
        let prediction = predict_step(&machine(), &without, &model, &request).unwrap();
        assert_eq!(prediction.tier, crate::Tier::BoardCalibrated);
        let prefill = predict_step(&machine(), &profile(), &model, &Request::prefill(10));
        assert_eq!(prefill, Err(StepError::Phase));
        let none = predict_step(&machine(), &profile(), &model, &Request { batch: 0, ..request });
        assert!(matches!(none, Err(StepError::Request(_))));
    }
}
