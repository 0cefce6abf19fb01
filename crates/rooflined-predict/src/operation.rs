//! Time of an operation on a roofline, with what an engine's kernels add to it.
//!
//! ```text
//! t = launch + ( t_mem^p + t_compute^p + t_core^p )^(1/p)        p = 4
//! t_mem     = ramp + bytes / (bandwidth x efficiency)
//! t_compute = work / peak; blocked GEMM: (weights x repacking + work / (peak x utilisation)) x ratio(m, n, k)
//! t_core    = weights x cycles_per_weight x (1 + beta (columns - 1)) / (workers x clock)
//! ```
//!
//! The p-norm lets overlapping parts hide each other except where they are equal; p = 4 did best or equal for
//! p in 1..8 on public decode measurements. `roofline_time` is the plain bound max(bytes/bandwidth, work/peak):
//! every term above is at least its counterpart there, so no prediction lies below it.

use crate::engine_profile::{EngineProfile, UNKNOWN_KERNEL_HALF_WIDTH};
use crate::estimate::{Limit, interval, relative_half_width, tier};
use crate::prediction::{PredictError, Prediction};
use rooflined_core::ceilings::{Bound, Provenance, Roofline};
use rooflined_core::operation::{Cost, Op};
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Seconds};

/// Exponent of the norm that joins overlapping parts.
pub const OVERLAP_EXPONENT: i32 = 4;

/// Bits from which on a weight needs no dequantization.
const PLAIN_BITS: f64 = 16.0;

/// Columns of the cached runs that tell what further columns cost.
pub const CALIBRATED_COLUMNS: f64 = 8.0;

/// Predicts one operation.
///
/// # Errors
/// An impossible operation, or a precision with no unit to run on.
pub fn predict(
    roofline: &Roofline,
    profile: &EngineProfile,
    op: &Op,
    format: &NumericFormat,
) -> Result<Prediction, PredictError> {
    op.validate()?;
    let op = &op.canonical();
    let cost = op.cost(format);
    let mut warnings = Vec::new();
    let known = profile.formats.get(&format.weights);
    let wanted = known.map_or(format.compute, |known| known.compute);
    let precision =
        compute_path(roofline, wanted, &mut warnings).ok_or(PredictError::NoUnit { precision: wanted })?;
    let peak = roofline.compute(precision).ok_or(PredictError::NoUnit { precision: wanted })?;
    let bandwidth = roofline.bandwidth;
    let parts = Parts::of(roofline, profile, op, *format, &cost, peak.value);

    let roofline_time = (cost.traffic / roofline.physical_bandwidth()).max(cost.work / peak.value);
    let value = (roofline.launch.value + parts.overlapped()).max(roofline_time);
    let ceilings = relative_half_width(&bandwidth.map(BytesPerSecond::get)) * parts.share_of(parts.memory)
        + relative_half_width(&peak.map(FlopsPerSecond::get)) * parts.share_of(parts.compute);
    let half_width = parts.half_width.hypot(ceilings);
    let provenance = bandwidth.provenance.max(peak.provenance).max(roofline.launch.provenance);
    let highest = bandwidth.high.max(roofline.physical_bandwidth());
    let floor = (cost.traffic / highest).max(cost.work / peak.high);
    // A measured ceiling is the bound, and so is what a data sheet says of memory. A guessed one is not: the truth may be
    // as fast as its upper end.
    let guessed = provenance >= Provenance::Datasheet && roofline.memory_limit.is_none();
    let lowest = if guessed { floor } else { roofline_time };
    Ok(Prediction {
        moved: Default::default(),
        time: interval(value, half_width, lowest),
        tokens: as_f64(op.tokens()),
        roofline_time,
        floor,
        cost,
        dequantized: dequantized(cost.weights, format.weights),
        compute: precision,
        ridge: peak.value / bandwidth.value,
        bound: if cost.traffic / bandwidth.value > cost.work / peak.value {
            Bound::Memory
        } else {
            Bound::Compute
        },
        limit: parts.limit(roofline.launch.value, format.weights).under(roofline),
        tier: tier(provenance, parts.calibrated),
        provenance,
        power: None,
        warnings,
        model: None,
    })
}

/// Those of `weights` that the cores have to dequantize where all are stored this way.
fn dequantized(weights: f64, stored: WeightFormat) -> f64 {
    if stored.bits_per_weight() < PLAIN_BITS { weights } else { 0.0 }
}

/// The parts of an operation's time that overlap.
struct Parts {
    memory: Seconds,
    compute: Seconds,
    core: Seconds,
    /// Relative half-width of the 90 % interval that the kernel itself adds.
    half_width: f64,
    /// Whether the kernel was measured on this machine.
    calibrated: bool,
}

impl Parts {
    fn of(
        roofline: &Roofline,
        profile: &EngineProfile,
        op: &Op,
        format: NumericFormat,
        cost: &Cost,
        peak: FlopsPerSecond,
    ) -> Self {
        let known = profile.formats.get(&format.weights);
        let ramp = known.map_or(roofline.ramp, |known| known.ramp);
        let memory = |ratio: f64| ramp + cost.traffic / (roofline.bandwidth.value * ratio);
        let compute = |ratio: f64| cost.work / (peak * ratio);
        let blocked = match (op, roofline.clock) {
            (&Op::Gemm { m, n, k }, Some(clock)) if format.weights == WeightFormat::Fp32 => {
                profile.gemm.get(&Precision::Fp32).map(|gemm| (gemm, [m, n, k].map(as_f64), clock))
            }
            _ => None,
        };
        if let Some((gemm, shape, clock)) = blocked {
            let cycle_per_weight = cost.weights / f64::from(roofline.workers.max(1)) / clock;
            return Self {
                memory: memory(known.map_or(1.0, |known| known.bandwidth_ratio)),
                compute: gemm.core_time(shape, cost.work / peak, cycle_per_weight),
                core: Seconds::ZERO,
                half_width: gemm.half_width_ratio,
                calibrated: profile.measured(),
            };
        }
        let columns = match *op {
            Op::Gemm { m, .. } => as_f64(m),
            Op::Gemv { .. } | Op::Attention { .. } => 1.0,
        };
        match (known, roofline.clock, op) {
            (Some(known), Some(clock), Op::Gemv { .. } | Op::Gemm { .. }) => Self {
                memory: memory(known.bandwidth_ratio),
                compute: compute(1.0),
                core: cost.weights * known.cycles_per_weight * (1.0 + known.column_ratio * (columns - 1.0))
                    / f64::from(roofline.workers.max(1))
                    / clock,
                half_width: known.half_width_ratio * beyond_calibrated_columns(columns),
                calibrated: profile.measured(),
            },
            _ => Self {
                memory: memory(1.0),
                compute: compute(1.0),
                core: Seconds::ZERO,
                half_width: UNKNOWN_KERNEL_HALF_WIDTH,
                calibrated: false,
            },
        }
    }

    fn overlapped(&self) -> Seconds {
        let power = |part: Seconds| part.get().powi(OVERLAP_EXPONENT);
        let sum = power(self.memory) + power(self.compute) + power(self.core);
        // Two square roots are the fourth root, and several times cheaper than powf.
        let root = sum.sqrt().sqrt();
        // Tiny parts underflow when raised to the fourth; the largest of them is the limit of the norm.
        Seconds(root).max(self.memory).max(self.compute).max(self.core)
    }

    fn share_of(&self, part: Seconds) -> f64 {
        let total = self.memory + self.compute + self.core;
        if total.is_positive() { part / total } else { 0.0 }
    }

    /// The cores only multiply weights that are not quantised.
    fn limit(&self, launch: Seconds, stored: WeightFormat) -> Limit {
        let cores = if dequantized(1.0, stored) > 0.0 { Limit::Core } else { Limit::Compute };
        let candidates = [
            (self.memory, Limit::Dram),
            (self.compute, Limit::Compute),
            (self.core, cores),
            (launch, Limit::Launch),
        ];
        candidates
            .into_iter()
            .max_by(|a, b| a.0.get().total_cmp(&b.0.get()))
            .map_or(Limit::Dram, |(_, limit)| limit)
    }
}

/// What a precision runs on: its own unit, or the next wider one that exists, with a warning.
pub(crate) fn compute_path(
    roofline: &Roofline,
    wanted: Precision,
    warnings: &mut Vec<String>,
) -> Option<Precision> {
    if roofline.compute.contains_key(&wanted) {
        return Some(wanted);
    }
    let wider: &[Precision] = match wanted {
        // The other 16-bit format is not wider: each loses what the other keeps.
        Precision::Fp16 | Precision::Bf16 | Precision::Tf32 => &[Precision::Fp32],
        Precision::Fp8 | Precision::Fp6 | Precision::Fp4 | Precision::Int8 | Precision::Int4 => {
            &[Precision::Fp16, Precision::Bf16, Precision::Fp32]
        }
        Precision::Fp32 => &[Precision::Fp64],
        Precision::Fp64 => &[],
    };
    let path = wider.iter().copied().find(|precision| roofline.compute.contains_key(precision))?;
    warnings.push(format!("no {wanted} unit here: weights are expanded and computed in {path}"));
    Some(path)
}

/// What further columns cost is measured at [`CALIBRATED_COLUMNS`]; the doubt grows by half with every doubling beyond.
fn beyond_calibrated_columns(columns: f64) -> f64 {
    1.0 + 0.5 * (columns / CALIBRATED_COLUMNS).log2().max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "dimensions are bounded by MAX_DIMENSION = 2^32")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Tier;
    use crate::engine_profile::FormatCost;
    use rooflined_core::ceilings::Ceiling;
    use rooflined_core::names::Engine;
    use rooflined_core::units::Hertz;

    fn exact<R>(value: R) -> Ceiling<R>
    where
        R: Copy,
    {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }

    fn orin() -> Roofline {
        Roofline {
            bandwidth: exact(BytesPerSecond(60e9)),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: BTreeMap::from([(Precision::Fp16, exact(FlopsPerSecond(2.7e12)))]),
            launch: exact(Seconds(5e-6)),
            ramp: Seconds(2e-6),
            workers: 8,
            clock: Some(Hertz(1e9)),
        }
    }

    #[test]
    fn a_decode_gemv_is_memory_bound() {
        let op = Op::Gemv { n: 4096, k: 4096 };
        let format = NumericFormat::stored(WeightFormat::Fp16);
        let prediction = predict(&orin(), &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
        assert_eq!(prediction.bound, Bound::Memory);
        assert_eq!(prediction.limit, Limit::Dram);
        assert_eq!(prediction.tier, Tier::BoardCalibrated);
        // launch + ramp + bytes / bandwidth; the compute part is 45 times smaller and vanishes in the norm.
        let bytes = 2.0 * (4096.0 * 4096.0 + 8192.0);
        let expected = 5e-6 + 2e-6 + bytes / 60e9;
        assert!((prediction.time.value.get() / expected - 1.0).abs() < 1e-6, "{:?}", prediction.time);
    }

    #[test]
    fn weights_that_are_slow_to_dequantize_make_the_core_the_limit() {
        let mut profile = EngineProfile::unknown(Engine::Bare);
        profile.formats.insert(
            WeightFormat::Q4KM,
            FormatCost {
                compute: Precision::Fp16,
                cycles_per_weight: 0.5,
                column_ratio: 0.1,
                bandwidth_ratio: 1.0,
                ramp: Seconds::ZERO,
                half_width_ratio: 0.1,
            },
        );
        let op = Op::Gemv { n: 4096, k: 4096 };
        let format = NumericFormat::stored(WeightFormat::Q4KM);
        let prediction = predict(&orin(), &profile, &op, &format).unwrap();
        assert_eq!(prediction.limit, Limit::Core);
        assert_eq!(prediction.tier, Tier::EngineCalibrated);
        let core = 4096.0 * 4096.0 * 0.5 / 8.0 / 1e9;
        assert!(prediction.time.value.get() >= core);

        let kernel = profile.formats[&WeightFormat::Q4KM];
        profile.formats.insert(WeightFormat::Fp16, kernel);
        let of_floats = predict(&orin(), &profile, &op, &NumericFormat::stored(WeightFormat::Fp16)).unwrap();
        assert_eq!(of_floats.limit, Limit::Compute);
    }

    #[test]
    fn a_precision_without_a_unit_falls_back_and_says_so() {
        let format = NumericFormat::stored(WeightFormat::Nvfp4);
        let op = Op::Gemv { n: 64, k: 64 };
        let prediction = predict(&orin(), &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
        assert_eq!(prediction.compute, Precision::Fp16);
        assert_eq!(prediction.warnings.len(), 1);
    }

    #[test]
    fn a_precision_with_nothing_wider_has_no_prediction() {
        let format = NumericFormat { compute: Precision::Fp64, ..NumericFormat::stored(WeightFormat::Fp32) };
        let op = Op::Gemv { n: 64, k: 64 };
        assert_eq!(
            predict(&orin(), &EngineProfile::unknown(Engine::Bare), &op, &format),
            Err(PredictError::NoUnit { precision: Precision::Fp64 })
        );
    }
}
