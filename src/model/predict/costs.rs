//! Cost coefficients of an inference engine's kernels on a GPU: a few, each with a spread, fitted from measurements.
//!
//! `config/engines/*.toml` holds, for every engine, the coefficients of a typical machine, those of machines that were
//! measured often enough to differ from it, and how far predictions of unseen models were off. `rooflined-lab
//! fit-engines` writes these files; nobody types them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Engine;
use roofline::precision::{Precision, WeightFormat};
use roofline::workload::block::Block;
use roofline::workload::recipe::{Mix, Recipe};

macro_rules! families {
    ($($(#[$doc:meta])* $variant:ident = $key:literal: $($block:ident)|+;)*) => {
        /// Storage that one kind of kernel dequantizes, at one cost for every weight.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Family { $($(#[$doc])* $variant,)* }

        impl Family {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }

            fn of_key(key: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|family| family.key() == key)
            }

            /// The family of a block type; helpers and full precision count as 16 bits, which is dequantized for nothing.
            /// Without a wildcard, so that the compiler asks for the family of a new block.
            #[must_use]
            pub const fn of(block: Block) -> Self {
                match block {
                    $($(Block::$block)|+ => Self::$variant,)*
                }
            }
        }
    };
}

families! {
    /// 16 bits and more, and helpers: indices, scales, quantised activations.
    Plain = "plain": F16 | Bf16 | F32 | F64 | E8m0 | I64 | I32 | I16 | Q8K;
    /// 8-bit floats.
    Fp8 = "fp8": Fp8E4m3 | Fp8E5m2 | Mxfp8;
    /// 8-bit integers.
    Int8 = "int8": I8 | Q8_0 | Q8_1;
    /// 4-bit integers in groups, as AWQ, GPTQ and MLC pack them.
    Int4 = "int4": Int4 | Int4G32 | Int4G64 | Int4G128 | AwqInt4 | GptqInt4 | Nf4;
    /// Block-scaled 4-bit floats with 8-bit float scales.
    Nvfp4 = "nvfp4": Nvfp4;
    /// Block-scaled 4-bit floats with exponent scales.
    Mxfp4 = "mxfp4": Mxfp4;
    /// 4 bits with one scale for every 32.
    Q4 = "q4": Q4_0 | Q4_1;
    /// 5 bits with one scale for every 32.
    Q5 = "q5": Q5_0 | Q5_1;
    /// Super-blocks of 2 bits.
    Q2K = "q2_k": Q2K;
    /// Super-blocks of 3 bits.
    Q3K = "q3_k": Q3K;
    /// Super-blocks of 4 bits.
    Q4K = "q4_k": Q4K;
    /// Super-blocks of 5 bits.
    Q5K = "q5_k": Q5K;
    /// Super-blocks of 6 bits.
    Q6K = "q6_k": Q6K;
    /// Codebook of 4 bits.
    Iq4 = "iq4": Iq4Nl | Iq4Xs;
    /// Codebooks of 3 bits.
    Iq3 = "iq3": Iq3Xxs | Iq3S;
    /// Codebooks of 2 bits and less.
    Iq2 = "iq2": Iq2Xxs | Iq2Xs | Iq2S | Iq1S | Iq1M | Tq1_0 | Tq2_0;
    /// One-bit blocks of 128.
    Q1 = "q1_0": Q1_0;
    /// Two-bit blocks of 128, and of 64 as older files have them.
    Q2 = "q2_0": Q2_0 | Q2_0G64;
}

macro_rules! coefficients {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, prior $value:literal x $spread:literal, device $device:literal;)*) => {
        /// What is fitted beside the cost of dequantization. All are positive and fitted as logarithms.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scalar { $($(#[$doc])* $variant,)* }

        impl Scalar {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn entry(self) -> (&'static str, f64, f64, f64) {
                match self { $(Self::$variant => ($key, $value, $spread, $device),)* }
            }
        }
    };
}

// What is assumed before any measurement: a value, the standard deviation of its logarithm over engines, and that of
// one machine against another with the same engine. Documented guesses; the data decides where there is any.
coefficients! {
    /// Part of the memory's nominal bandwidth that streaming weights reaches.
    Bandwidth = "bandwidth_ratio", prior 0.85 x 0.25, device 0.15;
    /// Times that the key/value cache is read, seen from the memory: heads of a group do not always share a read.
    Cache = "kv_ratio", prior 1.5 x 0.7, device 0.5;
    /// Likewise for the states of linear mixers.
    State = "state_ratio", prior 1.5 x 0.7, device 0.0;
    /// Bytes of experts against other weights: scattered reads are slower.
    Expert = "expert_ratio", prior 1.1 x 0.2, device 0.0;
    /// Time of one kernel of the small ones between products, launch included, in seconds, where the GPU runs at 1 GHz.
    Kernel = "kernel_s", prior 4.5e-6 x 0.7, device 0.5;
    /// Further time of a layer with a linear mixer, likewise.
    LinearLayer = "linear_layer_s", prior 20e-6 x 1.0, device 0.0;
    /// Further time of a layer with experts, likewise.
    ExpertLayer = "expert_layer_s", prior 20e-6 x 1.0, device 0.0;
    /// Time of a pass for every sequence: sampling and the way to the host and back, likewise.
    Sequence = "sequence_s", prior 1e-4 x 1.0, device 0.0;
    /// What a further column costs a kernel for few columns, as a part of the first.
    Column = "column_ratio", prior 0.05 x 1.0, device 0.4;
    /// Part of the peak that products of many rows reach, in what they are computed in.
    Product = "product_ratio", prior 0.4 x 0.5, device 0.4;
    /// What products in 8 bits reach of their peak, against those in 16 bits.
    EightBit = "eight_bit_ratio", prior 1.0 x 0.5, device 0.3;
    /// Likewise of products in 4 bits.
    FourBit = "four_bit_ratio", prior 1.0 x 0.5, device 0.3;
    /// Rows at which products reach half of that.
    HalfRows = "half_rows", prior 64.0 x 1.0, device 0.0;
    /// Part of the 16-bit peak that attention over a prompt reaches.
    Attention = "attention_ratio", prior 0.2 x 0.8, device 0.5;
}

/// Families of which the second is no cheaper for the cores, weight by weight, than the first: more bits in the same
/// packing are more to unpack, 16 bits need no unpacking, and those of 8 bits less than six bits in two planes do. An
/// inequality that the rows may break, at a price: [`ORDER_LOG_SD`].
pub const ORDER: [(Family, Family); 6] = [
    (Family::Q4K, Family::Q5K),
    (Family::Q5K, Family::Q6K),
    (Family::Q4, Family::Q5),
    (Family::Plain, Family::Fp8),
    (Family::Plain, Family::Int8),
    (Family::Int8, Family::Q6K),
];
/// How far, as a logarithm, a family is likely to be cheaper than one that [`ORDER`] puts below it.
pub const ORDER_LOG_SD: f64 = 0.05;
/// Families of which the second is taken as no cheaper than the first on a machine without a row of the second, after the
/// fit and in this order. No row says on one machine that 8 bits are dearer than 16, which are twice the bytes to load:
/// where 16 bits were not measured they cost what 8 bits do.
pub const ASSUMED_ORDER: [(Family, Family); 5] = [
    (Family::Q4K, Family::Q5K),
    (Family::Q5K, Family::Q6K),
    (Family::Q4, Family::Q5),
    (Family::Int8, Family::Q6K),
    (Family::Int8, Family::Plain),
];

/// Families of which the first is taken as no dearer than the second on a machine without a row of the first, after the fit:
/// blocks with one scale for every 32, of which 8 bits are more to load. Rows in 5 bits are on three machines. On a GB10
/// (p0712 to p0717) the memory hides what they cost, on an Orin Nano (p0001 to p0007) they come out cheaper than 8 bits, and
/// of the third (gtx-1050ti, p1159) there is a single run, of a model of 135 M weights.
pub const ASSUMED_NO_DEARER: [(Family, Family); 1] = [(Family::Q5, Family::Int8)];

/// How many coefficients there are: the scalars, and a cost of dequantization for every family.
pub const COEFFICIENTS: usize = Scalar::ALL.len() + Family::ALL.len();
/// Cycles of one SM to dequantize a weight and multiply it, before any measurement.
const CYCLES: (f64, f64, f64) = (0.05, 0.9, 0.3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coefficient {
    Scalar(Scalar),
    /// Cycles of one SM for one weight of the family, with one column.
    Cycles(Family),
}

impl Coefficient {
    /// Every one, in the order of [`Coefficients`].
    pub fn all() -> impl Iterator<Item = Self> {
        let scalars = Scalar::ALL.iter().map(|scalar| Self::Scalar(*scalar));
        scalars.chain(Family::ALL.iter().map(|family| Self::Cycles(*family)))
    }

    /// Its index in [`Coefficients`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar as usize,
            Self::Cycles(family) => Scalar::ALL.len() + family as usize,
        }
    }

    #[must_use]
    pub fn key(self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.entry().0.to_owned(),
            Self::Cycles(family) => format!("cycles_per_weight_{}", family.key()),
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        Self::all().find(|coefficient| coefficient.key() == key)
    }

    /// Value before any measurement, and the standard deviation of its logarithm.
    #[must_use]
    pub const fn prior(self) -> (f64, f64) {
        match self {
            Self::Scalar(scalar) => (scalar.entry().1, scalar.entry().2),
            Self::Cycles(_) => (CYCLES.0, CYCLES.1),
        }
    }

    /// Standard deviation of the logarithm between machines that run the same engine; 0 = the same everywhere.
    #[must_use]
    pub const fn device_spread(self) -> f64 {
        match self {
            Self::Scalar(scalar) => scalar.entry().3,
            Self::Cycles(_) => CYCLES.2,
        }
    }

    /// Bounds of a value that is worth believing: a ratio of a ceiling is at most 1.
    #[must_use]
    pub const fn most(self) -> f64 {
        match self {
            Self::Scalar(Scalar::Bandwidth | Scalar::Product | Scalar::Attention) => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// Likewise from below: the cache is read once at least.
    #[must_use]
    pub const fn least(self) -> f64 {
        match self {
            Self::Scalar(Scalar::Cache) => 1.0,
            _ => 0.0,
        }
    }
}

/// Logarithms of all coefficients.
pub type Coefficients = [f64; COEFFICIENTS];

/// An engine's costs on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineCosts {
    pub engine: Engine,
    /// Logarithms of the values.
    pub log: Coefficients,
    /// Standard deviations of the logarithms: how sure they are, for what is learnt on top.
    pub spread: Coefficients,
    /// 90 % intervals of predictions for a model that nobody measured here, before what its storage adds.
    pub interval: Intervals,
    /// Those for storage of a family that nobody measured with this engine.
    pub unseen: Intervals,
    /// The families that somebody did.
    pub families: BTreeMap<Family, FamilyErrors>,
    /// Whether measurements of this very kind of machine went in.
    pub machine_known: bool,
    /// Memory that the engine takes for itself, in bytes.
    pub memory_bytes: f64,
}

/// Whose errors an interval was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalSource {
    /// Predictions of this engine, phase and tier on this very machine, before each was observed.
    OwnTier,
    /// Likewise of this engine, in either phase, at this tier or a weaker one.
    OwnEngine,
    /// The scatter of this model's own runs on this machine.
    OwnRuns,
    /// This engine on this kind of machine.
    EngineAndMachine,
    /// This engine on any machine.
    Engine,
    /// Any engine on any machine.
    All,
    Guess,
}

impl IntervalSource {
    /// The name on the wire.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::OwnTier => "own_tier",
            Self::OwnEngine => "own_engine",
            Self::OwnRuns => "own_runs",
            Self::EngineAndMachine => "engine_and_machine",
            Self::Engine => "engine",
            Self::All => "all",
            Self::Guess => "guess",
        }
    }
}

impl EngineCosts {
    /// The value of a coefficient; ratios of a ceiling never exceed 1.
    #[must_use]
    pub fn get(&self, coefficient: Coefficient) -> f64 {
        value(&self.log, coefficient)
    }

    /// The intervals for a model whose weights are mostly of `family`.
    #[must_use]
    pub fn intervals(&self, family: Family) -> Intervals {
        let of = |part: Part| {
            let interval = self.interval.of(part);
            match self.families.get(&family) {
                Some(errors) => {
                    let half = interval.half_width_ratio.ln_1p() * errors.ratio.of(part);
                    // Errors of another machine say nothing of this machine with this storage.
                    let nearest =
                        if errors.here { interval.from } else { interval.from.max(IntervalSource::Engine) };
                    Interval { half_width_ratio: half.exp_m1(), from: nearest, ..interval }
                }
                None => {
                    let unseen = self.unseen.of(part);
                    let half = unseen.half_width_ratio.max(interval.half_width_ratio);
                    Interval { half_width_ratio: half, ..unseen }
                }
            }
        };
        Intervals { decode: of(Part::Decode), several: of(Part::Several), prefill: of(Part::Prefill) }
    }

    /// Takes over the entries of a file; says which there were.
    fn set(&mut self, entries: &BTreeMap<String, Entry>) -> Result<[bool; COEFFICIENTS], InvalidCosts> {
        let mut set = [false; COEFFICIENTS];
        for (key, entry) in entries {
            let coefficient = Coefficient::of_key(key).ok_or_else(|| InvalidCosts::Unknown(key.clone()))?;
            let positive = entry.value.is_finite() && entry.value > 0.0;
            if !positive || !entry.log_sd.is_finite() || entry.log_sd < 0.0 {
                return Err(InvalidCosts::Value(key.clone()));
            }
            self.log[coefficient.index()] = entry.value.ln();
            self.spread[coefficient.index()] = entry.log_sd;
            set[coefficient.index()] = true;
        }
        Ok(set)
    }

    /// What is assumed of an engine that nobody measured.
    #[must_use]
    pub fn assumed(engine: Engine) -> Self {
        let (mut log, mut spread) = ([0.0; COEFFICIENTS], [0.0; COEFFICIENTS]);
        for coefficient in Coefficient::all() {
            let (value, sd) = coefficient.prior();
            log[coefficient.index()] = value.ln();
            spread[coefficient.index()] = sd.hypot(coefficient.device_spread());
        }
        Self {
            engine,
            log,
            spread,
            interval: Intervals::GUESSED,
            unseen: Intervals::GUESSED,
            families: BTreeMap::new(),
            machine_known: false,
            memory_bytes: ENGINE_MEMORY_BYTES,
        }
    }
}

/// The interval where no error of any prediction is known.
pub const GUESSED_INTERVAL: Interval =
    Interval { half_width_ratio: 1.0, errors: 0, from: IntervalSource::Guess };
/// CUDA context, kernels and work space: 0.3 to 0.6 GB have been seen with llama.cpp, more with the others. A guess.
const ENGINE_MEMORY_BYTES: f64 = 5e8;

/// The value of a coefficient among logarithms.
#[must_use]
pub fn value(log: &Coefficients, coefficient: Coefficient) -> f64 {
    bounded(log[coefficient.index()], coefficient)
}

/// The value of a coefficient whose logarithm is `log`.
pub(crate) fn bounded(log: f64, coefficient: Coefficient) -> f64 {
    log.exp().min(coefficient.most()).max(coefficient.least())
}

/// The values of all coefficients, by [`Coefficient::index`].
#[must_use]
pub fn values(log: &Coefficients) -> Coefficients {
    let mut values = [0.0; COEFFICIENTS];
    for coefficient in Coefficient::all() {
        values[coefficient.index()] = value(log, coefficient);
    }
    values
}

/// How an engine stores a model that is asked for by a format's name: llama.cpp as its own mixes, MLC with the head as
/// packed as the rest, TensorRT-Edge-LLM with an FP8 head beside NVFP4 (a guess that its rates confirm: with a 16-bit
/// head they would beat the memory), the others with a 16-bit head.
#[must_use]
pub fn recipe(engine: Engine, format: WeightFormat) -> Recipe {
    match (engine, format) {
        (Engine::LlamaCpp, _) => Mix::of(format).map_or_else(|| Recipe::of(format), Recipe::Gguf),
        (Engine::Mlc, _) if format.bits_per_weight() < 8.0 => {
            Recipe::WithHead { weights: format, head: format }
        }
        (Engine::TensorRtEdgeLlm, WeightFormat::Nvfp4) => {
            Recipe::WithHead { weights: format, head: WeightFormat::Fp8E4m3 }
        }
        _ => Recipe::of(format),
    }
}

/// What an engine's kernels for many rows compute in, best first: llama.cpp multiplies its integer blocks as 8-bit
/// integers, the others expand to 16 bits what no unit takes as it is.
#[must_use]
pub const fn precisions(engine: Engine, family: Family) -> &'static [Precision] {
    match (engine, family) {
        (Engine::LlamaCpp, Family::Plain | Family::Fp8) => {
            &[Precision::Fp16, Precision::Bf16, Precision::Fp32]
        }
        (Engine::LlamaCpp, _) => &[Precision::Int8, Precision::Fp16, Precision::Fp32],
        (_, Family::Fp8) => &[Precision::Fp8, Precision::Fp16, Precision::Bf16, Precision::Fp32],
        (_, Family::Nvfp4 | Family::Mxfp4) => {
            &[Precision::Fp4, Precision::Fp8, Precision::Fp16, Precision::Bf16, Precision::Fp32]
        }
        (_, Family::Int8) => &[Precision::Int8, Precision::Fp16, Precision::Bf16, Precision::Fp32],
        _ => &[Precision::Fp16, Precision::Bf16, Precision::Fp32],
    }
}

/// One value of a file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct Entry {
    pub value: f64,
    /// Standard deviation of its logarithm.
    pub log_sd: f64,
}

impl From<(f64, f64)> for Entry {
    fn from((value, log_sd): (f64, f64)) -> Self {
        Self { value, log_sd }
    }
}

impl From<Entry> for (f64, f64) {
    fn from(entry: Entry) -> Self {
        (entry.value, entry.log_sd)
    }
}

/// What predictions err differently in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Tokens of one sequence, one by one.
    Decode,
    /// Tokens of several sequences at once.
    Several,
    Prefill,
}

impl Part {
    /// That of a run with `batch` sequences of which the prompt takes `prompt_share` of the time: a prompt and an
    /// answer together are as doubtful as the part that takes longer.
    #[must_use]
    pub fn of(batch: u64, prompt_share: f64) -> Self {
        match batch {
            _ if prompt_share > 0.5 => Self::Prefill,
            0 | 1 => Self::Decode,
            _ => Self::Several,
        }
    }
}

/// Intervals of the parts of generating text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Of tokens of one sequence.
    pub decode: Interval,
    /// Of tokens of several sequences at once.
    pub several: Interval,
    pub prefill: Interval,
}

impl Intervals {
    const GUESSED: Self =
        Self { decode: GUESSED_INTERVAL, several: GUESSED_INTERVAL, prefill: GUESSED_INTERVAL };

    #[must_use]
    pub const fn of(&self, part: Part) -> Interval {
        match part {
            Part::Decode => self.decode,
            Part::Several => self.several,
            Part::Prefill => self.prefill,
        }
    }
}

/// One number for each part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRatios {
    pub decode: f64,
    pub several: f64,
    pub prefill: f64,
}

impl PartRatios {
    const fn of(&self, part: Part) -> f64 {
        match part {
            Part::Decode => self.decode,
            Part::Several => self.several,
            Part::Prefill => self.prefill,
        }
    }

    fn is_valid(&self) -> bool {
        [self.decode, self.several, self.prefill].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0)
    }
}

/// How predictions err with weights of one family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyErrors {
    /// Against those of the engine with any weights: of the logarithms of the half-widths.
    pub ratio: PartRatios,
    /// Whether some were measured on this kind of machine.
    pub here: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Relative half-width that holds 90 % of the errors of models left out of the fit.
    pub half_width_ratio: f64,
    /// How many errors there are of what `from` names.
    pub errors: u32,
    pub from: IntervalSource,
}

/// One machine in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Rows that went in.
    pub rows: u32,
    /// Families that most of the weights of some row are of.
    pub families: Vec<String>,
    pub interval: Intervals,
    /// Its coefficients where they are not those of a typical machine.
    pub coefficients: BTreeMap<String, Entry>,
}

/// A file of `config/engines`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFile {
    pub engine: Engine,
    /// Rows that went in.
    pub rows: u32,
    /// Intervals on a machine that is not listed.
    pub interval: Intervals,
    /// Intervals for storage of a family that is not listed.
    pub unseen: Intervals,
    /// How the logarithms of half-widths with weights of a family compare with those of the engine.
    #[serde(default)]
    pub family: BTreeMap<String, PartRatios>,
    pub typical: BTreeMap<String, Entry>,
    /// Machines that were measured, by their key in the registry of hardware.
    #[serde(default)]
    pub hardware: BTreeMap<String, MachineFile>,
}

/// Why a file of engine costs is refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidCosts {
    /// No TOML of this shape.
    #[error("{0}")]
    Shape(String),
    /// A name that is no coefficient.
    #[error("{0:?} is no coefficient of an engine")]
    Unknown(String),
    /// A name that is no family of storage.
    #[error("{0:?} is no family of storage")]
    Family(String),
    #[error("{0:?} is missing")]
    Missing(String),
    /// A value that is no positive number.
    #[error("{0:?} must be a positive number with a log_sd of 0 or more")]
    Value(String),
}

/// The costs of one engine on all machines.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineTable {
    typical: EngineCosts,
    machines: BTreeMap<String, EngineCosts>,
}

impl EngineTable {
    /// Reads a file.
    ///
    /// # Errors
    /// Anything that is no file of this shape, names the field.
    pub fn parse(text: &str) -> Result<Self, InvalidCosts> {
        let file: EngineFile =
            toml::from_str(text).map_err(|error| InvalidCosts::Shape(error.to_string()))?;
        let mut typical = EngineCosts::assumed(file.engine);
        let set = typical.set(&file.typical)?;
        if let Some(absent) = Coefficient::all().find(|coefficient| !set[coefficient.index()]) {
            return Err(InvalidCosts::Missing(absent.key()));
        }
        typical.interval = file.interval;
        typical.unseen = file.unseen;
        for (key, ratio) in &file.family {
            let family = Family::of_key(key).ok_or_else(|| InvalidCosts::Family(key.clone()))?;
            if !ratio.is_valid() {
                return Err(InvalidCosts::Value(key.clone()));
            }
            typical.families.insert(family, FamilyErrors { ratio: *ratio, here: false });
        }
        let machine = |machine: &MachineFile| {
            let mut costs = typical.clone();
            costs.set(&machine.coefficients)?;
            costs.interval = machine.interval;
            for key in &machine.families {
                let family = Family::of_key(key).ok_or_else(|| InvalidCosts::Family(key.clone()))?;
                let errors =
                    costs.families.get_mut(&family).ok_or_else(|| InvalidCosts::Missing(key.clone()))?;
                errors.here = true;
            }
            costs.machine_known = true;
            Ok(costs)
        };
        let machines = file
            .hardware
            .iter()
            .map(|(key, entry)| Ok((key.clone(), machine(entry)?)))
            .collect::<Result<_, InvalidCosts>>()?;
        Ok(Self { typical, machines })
    }

    /// The costs on a machine by its key in the registry of hardware.
    #[must_use]
    pub fn on(&self, hardware: Option<&str>) -> &EngineCosts {
        hardware.and_then(|key| self.machines.get(key)).unwrap_or(&self.typical)
    }
}

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Name and text of every file of `config/engines`.
        pub const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../../../config/engines/", $key, ".toml"))),)*];
    };
}

built_in! {
    "llama.cpp",
    "mlc",
    "none",
    "tensorrt-edge-llm",
    "tensorrt-llm",
    "torch",
    "vllm",
}

static TABLES: LazyLock<BTreeMap<Engine, EngineTable>> = LazyLock::new(|| {
    // A test parses every file, so none is left out here.
    let parsed = FILES.iter().filter_map(|(_, text)| EngineTable::parse(text).ok());
    parsed.map(|table| (table.typical.engine, table)).collect()
});
static ASSUMED: LazyLock<BTreeMap<Engine, EngineCosts>> =
    LazyLock::new(|| Engine::ALL.into_iter().map(|engine| (engine, EngineCosts::assumed(engine))).collect());

/// The costs of `engine` on a machine of the registry of hardware, or on a typical one.
#[must_use]
pub fn engine_costs(engine: Engine, hardware: Option<&str>) -> &'static EngineCosts {
    match TABLES.get(&engine) {
        Some(table) => table.on(hardware),
        None => &ASSUMED[&engine],
    }
}

/// Tokens of a prompt that an engine passes at once: llama.cpp's physical batch, vLLM's scheduled tokens. `None` = all.
#[must_use]
pub const fn chunk_tokens(engine: Engine) -> Option<u64> {
    match engine {
        Engine::LlamaCpp => Some(512),
        Engine::Vllm => Some(8192),
        _ => None,
    }
}
