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

pub mod calibration;
pub mod costs;
pub mod cpu;
pub mod curve;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod gemm;
pub mod learning;
pub mod model;
mod peaks;
pub mod power;
pub mod step;
mod surface;
pub mod tiling;

use std::collections::BTreeMap;

pub mod bare;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use thiserror::Error;

use self::bare::AttentionCost;
use self::model::ModelPart;
use self::power::{Activity, Power, PowerCosts, Rising};
use learning::report::Moved;
use roofline::ceilings::{Bound, Provenance, Roofline};
use roofline::precision::{NumericFormat, Precision, WeightFormat};
use roofline::units::{ArithmeticIntensity, BytesPerSecond, FlopsPerSecond, Joules, Seconds, Watts};
use roofline::workload::{Cost, InvalidOp, Op};

pub use gemm::{GemmCost, GemmPoint, Ratios};
pub use roofline::names::Engine;
pub use surface::Surface;

/// Exponent of the norm that joins overlapping parts.
pub const OVERLAP_EXPONENT: i32 = 4;

/// Bits from which on a weight needs no dequantization.
const PLAIN_BITS: f64 = 16.0;

/// An estimate with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate<Q> {
    /// Best estimate.
    pub value: Q,
    /// 5 % lies below.
    pub low: Q,
    /// 5 % lies above.
    pub high: Q,
}

impl<Q> Estimate<Q> {
    /// The same interval of another quantity.
    pub fn map<R>(self, convert: impl Fn(Q) -> R) -> Estimate<R> {
        Estimate { value: convert(self.value), low: convert(self.low), high: convert(self.high) }
    }
}

/// What one format costs an engine's kernels beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FormatCost {
    /// What the kernel computes in.
    pub compute: Precision,
    /// Clock cycles of one worker for one weight and one column.
    pub cycles_per_weight: f64,
    /// Further columns cost this part of the first.
    pub column_ratio: f64,
    /// Part of the bandwidth ceiling that the kernel reaches while it streams, above 0 and at most 1.
    pub bandwidth_ratio: f64,
    /// Time from the start of the kernel to full bandwidth.
    pub ramp: Seconds,
    /// Half-width of the 90 % interval of the kernel's time, relative.
    pub half_width_ratio: f64,
}

/// What an engine's kernels cost on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineProfile {
    pub engine: Engine,
    pub formats: BTreeMap<WeightFormat, FormatCost>,
    /// Blocked GEMM by compute precision.
    pub gemm: BTreeMap<Precision, GemmCost>,
    /// Attention of one new token; `None` where it was not measured.
    #[serde(default)]
    pub attention: Option<AttentionCost>,
    /// Clock cycles of one worker for one element that norms, activations and residuals read or write; `None` where it
    /// was not measured.
    #[serde(default)]
    pub cycles_per_element: Option<f64>,
}

impl EngineProfile {
    /// The same profile while others take bandwidth (`ratio` below 1) or leave more than they did when it was
    /// measured. The ceilings are the machine's own and stay; what a kernel reaches of them moves.
    #[must_use]
    pub fn with_bandwidth_drift(mut self, ratio: f64) -> Self {
        for cost in self.formats.values_mut() {
            cost.bandwidth_ratio = (cost.bandwidth_ratio * ratio).clamp(f64::MIN_POSITIVE, 1.0);
        }
        self
    }

    /// The same costs as a guess for another engine's kernels. Unchanged for its own engine.
    #[must_use]
    pub fn lent_to(mut self, engine: Engine) -> Self {
        if engine != self.engine {
            self.engine = engine;
            self.formats.values_mut().for_each(|cost| cost.half_width_ratio = UNKNOWN_KERNEL_HALF_WIDTH);
            self.gemm.values_mut().for_each(|cost| cost.half_width_ratio = UNKNOWN_KERNEL_HALF_WIDTH);
            self.attention.iter_mut().for_each(|cost| cost.half_width_ratio = UNKNOWN_KERNEL_HALF_WIDTH);
        }
        self
    }

    /// Whether the costs were measured with the engine's own kernels: only this crate's are so far.
    const fn measured(&self) -> bool {
        matches!(self.engine, Engine::Bare)
    }

    /// A profile that knows nothing: predictions rest on the ceilings alone.
    #[must_use]
    pub const fn unknown(engine: Engine) -> Self {
        Self {
            engine,
            formats: BTreeMap::new(),
            gemm: BTreeMap::new(),
            attention: None,
            cycles_per_element: None,
        }
    }
}

/// Which ceiling takes most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Dram,
    Cache,
    /// Dequantizing stored weights in the cores.
    Core,
    Compute,
    /// Starting the operation.
    Launch,
    PowerCap,
}

/// What a prediction rests on, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Data sheets and guesses.
    Prior,
    /// Ceilings measured on this board.
    BoardCalibrated,
    /// Ceilings and the engine's own kernels measured on this board.
    EngineCalibrated,
    /// The same workload observed at another operating point.
    Anchored,
    /// The same workload observed at this operating point.
    Observed,
}

/// A predicted run: of an operation, of a step, or of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Time with its 90 % interval. Of a model: one step of a decode, a prompt, or a prompt and its whole answer.
    pub time: Estimate<Seconds>,
    /// Tokens (columns) that the run makes, or reads of a prompt, over all sequences.
    pub tokens: f64,
    /// The plain physical bound; never above `time`.
    pub roofline_time: Seconds,
    /// The same at the upper ends of the ceilings: what is faster than this is impossible.
    pub floor: Seconds,
    pub cost: Cost,
    /// Weights whose storage the cores have to dequantize; plain ones of 16 bits and more do not count.
    pub dequantized: f64,
    /// What most of the arithmetic runs in.
    pub compute: Precision,
    pub ridge: ArithmeticIntensity,
    /// Side of the ridge.
    pub bound: Bound,
    /// The ceiling that takes most of the time.
    pub limit: Limit,
    pub tier: Tier,
    /// Weakest provenance among the ceilings used.
    pub provenance: Provenance,
    /// Power and energy of the run; `None` where nothing is known of it, or before [`with_power`](Self::with_power).
    pub power: Option<Power>,
    /// How many reports of measured runs moved it.
    pub moved: Moved,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// What only the run of a model has. Boxed: candidates are predicted by the thousand, and an operation has none of it.
    pub model: Option<Box<ModelPart>>,
}

impl Prediction {
    /// Energy for each token of the run; `None` where power is unknown.
    #[must_use]
    pub fn energy_per_token(&self) -> Option<Estimate<Joules>> {
        let energy = self.power?.energy;
        (self.tokens > 0.0).then(|| Estimate {
            value: energy.value / self.tokens,
            low: energy.low / self.tokens,
            high: energy.high / self.tokens,
        })
    }

    /// Until the first token of an answer; `None` for a decode and for an operation.
    #[must_use]
    pub fn time_to_first_token(&self) -> Option<Estimate<Seconds>> {
        self.model.as_ref()?.time_to_first_token
    }

    /// Of one token after the first of every sequence; `None` for a prompt and for an operation.
    #[must_use]
    pub fn time_per_token(&self) -> Option<Estimate<Seconds>> {
        self.model.as_ref()?.time_per_token
    }

    /// Upper over middle of the interval of the time.
    #[must_use]
    pub fn time_slack(&self) -> f64 {
        self.time.high / self.time.value
    }

    /// The same of the energy; NaN where it is unknown.
    #[must_use]
    pub fn energy_slack(&self) -> f64 {
        self.power.map_or(f64::NAN, |power| power.energy.high / power.energy.value)
    }

    /// The same of the power.
    #[must_use]
    pub fn power_slack(&self) -> f64 {
        self.power.map_or(f64::NAN, |power| power.watts.high / power.watts.value)
    }

    /// What costs energy beside time.
    fn activity(&self) -> Activity {
        let work = match &self.model {
            Some(model) => SmallVec::from_slice(&model.work),
            None => smallvec![(self.compute, self.cost.work)],
        };
        Activity { traffic: self.cost.traffic, work, dequantized: self.dequantized }
    }

    /// What the run draws, whatever smaller batches do.
    fn watts_alone(&self, costs: &PowerCosts, roofline: &Roofline) -> Option<f64> {
        let activity = self.activity();
        let (time, _) = costs.capped(&activity, roofline, self.time);
        Some(costs.of(&activity, roofline, time)?.watts.value.get())
    }

    /// The same prediction with its power and energy, and with the power limit as a further ceiling. Apply corrections of
    /// the time first. It draws no less than the same work with fewer sequences than its `batch`, of which `with` gives the
    /// prediction before its power.
    #[must_use]
    pub fn with_power(
        self,
        costs: &PowerCosts,
        roofline: &Roofline,
        batch: u64,
        mut with: impl FnMut(u64) -> Option<Self>,
    ) -> Self {
        let rising = (batch > 1).then(|| {
            Rising::of(batch, |rung| {
                if rung == batch {
                    return self.watts_alone(costs, roofline);
                }
                with(rung)?.watts_alone(costs, roofline)
            })
        });
        self.with_power_at(costs, roofline, rising.and_then(|rising| rising.at(batch)).map(Watts))
    }

    /// The same with its watts known already, of the batch alone where they are `None`.
    #[must_use]
    pub fn with_power_at(mut self, costs: &PowerCosts, roofline: &Roofline, watts: Option<Watts>) -> Self {
        let activity = self.activity();
        let (time, binds) = costs.capped(&activity, roofline, self.time);
        if let Some(limit) = binds {
            if let Some(model) = &mut self.model {
                model.slow_down(time.value / self.time.value, time.low / self.time.low);
            }
            self.time = time;
            self.limit = limit;
        }
        self.power = costs.of(&activity, roofline, time).map(|power| match watts {
            Some(watts) => costs.at(power, watts),
            None => power,
        });
        if let Some(power) = &self.power {
            self.warnings.extend(costs.cap_words(power.watts.value));
            self.warnings.extend(costs.words());
        }
        self
    }

    /// The same prediction with its times and interval multiplied, still no lower than the physical bound.
    #[must_use]
    pub fn corrected(mut self, factor: f64, half_width_ratio: f64, tier: Tier) -> Self {
        let (plain, bound) = (self.time.value, self.roofline_time);
        self.time = interval((plain * factor).max(bound), half_width_ratio, bound);
        if let Some(model) = &mut self.model {
            let scale = |estimate: Estimate<Seconds>| {
                let share = if plain.is_positive() { estimate.value / plain } else { 1.0 };
                let least = bound * share.min(1.0);
                interval((estimate.value * factor).max(least), half_width_ratio, least)
            };
            model.correct(scale, self.time.value / plain);
        }
        self.tier = tier;
        // Power follows from the time.
        self.power = None;
        self
    }
}

impl Prediction {
    /// The same with intervals that reach `slower` times as long and `faster` times as short as the expected times.
    #[must_use]
    pub fn reaching(mut self, slower: f64, faster: f64) -> Self {
        let (value, bound) = (self.time.value, self.roofline_time);
        let reach = |part: Estimate<Seconds>| {
            let least = if value.is_positive() { bound * (part.value / value).min(1.0) } else { bound };
            Estimate {
                low: part.low.min((part.value * (1.0 / faster)).max(least)),
                high: part.high.max(part.value * slower),
                ..part
            }
        };
        if let Some(model) = &mut self.model {
            model.correct(reach, 1.0);
        }
        self.time = reach(self.time);
        self
    }
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    #[error(transparent)]
    Op(#[from] InvalidOp),
    /// No ceiling for the precision, and none for one it can fall back to.
    #[error("this accelerator has no unit for {precision} and no wider one to fall back to")]
    NoUnit { precision: Precision },
}

/// Columns of the cached runs that tell what further columns cost.
pub const CALIBRATED_COLUMNS: f64 = 8.0;

/// Relative half-width of the interval where nothing but ceilings is known. A kernel reaches 0.5-1.0 of the plain
/// roofline on most published GPU and CPU rows.
const UNKNOWN_KERNEL_HALF_WIDTH: f64 = 0.5;

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
        limit: parts.limit(roofline.launch.value),
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

    fn limit(&self, launch: Seconds) -> Limit {
        let candidates = [
            (self.memory, Limit::Dram),
            (self.compute, Limit::Compute),
            (self.core, Limit::Core),
            (launch, Limit::Launch),
        ];
        candidates
            .into_iter()
            .max_by(|a, b| a.0.get().total_cmp(&b.0.get()))
            .map_or(Limit::Dram, |(_, limit)| limit)
    }
}

/// What a precision runs on: its own unit, or the next wider one that exists, with a warning.
fn compute_path(roofline: &Roofline, wanted: Precision, warnings: &mut Vec<String>) -> Option<Precision> {
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

fn tier(provenance: Provenance, kernel_calibrated: bool) -> Tier {
    match (provenance, kernel_calibrated) {
        (Provenance::Measured | Provenance::Scaled, true) => Tier::EngineCalibrated,
        (Provenance::Measured | Provenance::Scaled, false) => Tier::BoardCalibrated,
        (Provenance::Observed, _) => Tier::Observed,
        (Provenance::Datasheet | Provenance::Prior, _) => Tier::Prior,
    }
}

/// A 90 % interval that is symmetric in the logarithm and never below the physical bound.
fn interval(value: Seconds, half_width_ratio: f64, bound: Seconds) -> Estimate<Seconds> {
    let factor = 1.0 + half_width_ratio;
    Estimate { value, low: (value / factor).max(bound), high: value * factor }
}

fn relative_half_width(ceiling: &roofline::ceilings::Ceiling<f64>) -> f64 {
    (ceiling.high - ceiling.low) / (2.0 * ceiling.value)
}

#[expect(clippy::cast_precision_loss, reason = "dimensions are bounded by MAX_DIMENSION = 2^32")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofline::ceilings::Ceiling;
    use roofline::units::Hertz;

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
            whole_clock: None,
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
