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
pub(crate) use super::coefficients::bounded;
pub use super::coefficients::{
    ASSUMED_NO_DEARER, ASSUMED_ORDER, COEFFICIENTS, Coefficient, Coefficients, EFFECTS, Effect, Family,
    ORDER, ORDER_LOG_SD, Scalar, value, values,
};
use super::device_order::{Card, put_in_order};
use rooflined_core::hardware::{Kind, registry};
use rooflined_core::keyed;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_models::allocation::Allocation;
use rooflined_models::recipe::{Mix, Recipe};

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

keyed! {
    /// Whose errors an interval was taken from.
    IntervalSource {
        /// Predictions of this engine, phase and tier on this very machine, before each was observed.
        OwnTier = "own_tier",
        /// Likewise of this engine, in either phase, at this tier or a weaker one.
        OwnEngine = "own_engine",
        /// The scatter of this model's own runs on this machine.
        OwnRuns = "own_runs",
        /// This engine on this kind of machine.
        EngineAndMachine = "engine_and_machine",
        /// This engine on any machine.
        Engine = "engine",
        /// Any engine on any machine.
        All = "all",
        Guess = "guess",
    }
}

impl EngineCosts {
    /// The value of a coefficient; ratios of a ceiling never exceed 1.
    #[must_use]
    pub fn get(&self, coefficient: Coefficient) -> f64 {
        value(&self.log, coefficient)
    }

    /// The interval of a part for a model whose weights are mostly of `family`, of which so much is at depth, from 0 to 1. A decode
    /// at depth is at least as uncertain as one without depth.
    #[must_use]
    pub fn interval(&self, family: Family, part: Part, depth: f64) -> Interval {
        if !matches!(part, Part::Decode | Part::Depth) {
            return self.with_family(family, part);
        }
        let [none, full] = [Part::Decode, Part::Depth].map(|part| self.with_family(family, part));
        let [less, more] = [none, full].map(|interval| interval.half_width_ratio.ln_1p());
        let half_width_ratio = at_depth(less, more, depth).exp_m1();
        Interval { half_width_ratio, ..if depth > 0.5 { full } else { none } }
    }

    fn with_family(&self, family: Family, part: Part) -> Interval {
        let interval = *self.interval.of(part);
        match self.families.get(&family) {
            Some(errors) => {
                let half = interval.half_width_ratio.ln_1p() * errors.ratio.of(part);
                // Errors of another machine say nothing of this machine with this storage.
                let nearest =
                    if errors.here { interval.from } else { interval.from.max(IntervalSource::Engine) };
                Interval { half_width_ratio: half.exp_m1(), from: nearest, ..interval }
            }
            None => {
                let unseen = *self.unseen.of(part);
                let half = unseen.half_width_ratio.max(interval.half_width_ratio);
                Interval { half_width_ratio: half, ..unseen }
            }
        }
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
            memory_bytes: if engine == Engine::LlamaCpp { CONTEXT_BYTES } else { ENGINE_MEMORY_BYTES },
        }
    }
}

/// The interval where no error of any prediction is known.
pub const GUESSED_INTERVAL: Interval =
    Interval { half_width_ratio: 1.0, errors: 0, from: IntervalSource::Guess };
/// CUDA context, kernels and work space: more than llama.cpp's. A guess.
const ENGINE_MEMORY_BYTES: f64 = 5e8;
/// CUDA context and kernels: 0.3 to 0.6 GB have been seen with llama.cpp, of which 0.1 to 0.4 GB are its compute buffer, which is
/// counted apart. A guess.
const CONTEXT_BYTES: f64 = 2e8;

/// How an engine stores a model that is asked for by a format's name: llama.cpp as its own mixes, MLC with the head packed as the
/// rest but in AWQ (`is_final_fc` of its awq_quantization.py), TensorRT-Edge-LLM with an FP8 head beside NVFP4 (a guess that its
/// rates confirm: with a 16-bit head they would beat the memory), the others with a 16-bit head.
#[must_use]
pub fn recipe(engine: Engine, format: WeightFormat) -> Recipe {
    match (engine, format) {
        (Engine::LlamaCpp, _) => Mix::of(format).map_or_else(|| Recipe::of(format), Recipe::Gguf),
        (Engine::Mlc, _) if format.bits_per_weight() < 8.0 && format != WeightFormat::AwqInt4 => {
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
        // Blackwell multiplies blocks of 4-bit floats as they are (ggml-org/llama.cpp, mmq.cuh).
        (Engine::LlamaCpp, Family::Nvfp4 | Family::Mxfp4) => {
            &[Precision::Fp4, Precision::Int8, Precision::Fp16, Precision::Fp32]
        }
        (Engine::LlamaCpp, _) => &[Precision::Int8, Precision::Fp16, Precision::Fp32],
        (_, Family::Fp8) => &[Precision::Fp8, Precision::Fp16, Precision::Bf16, Precision::Fp32],
        (_, Family::Nvfp4 | Family::Mxfp4) => {
            &[Precision::Fp4, Precision::Fp8, Precision::Fp16, Precision::Bf16, Precision::Fp32]
        }
        // torchao keeps the weights alone in 8 bits.
        (Engine::Torch, Family::Int8) => &[Precision::Fp16, Precision::Bf16, Precision::Fp32],
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
    /// The same with a long context.
    Depth,
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

/// Between half-widths at no depth and at full depth, which is never the narrower.
#[must_use]
pub fn at_depth(none: f64, full: f64, depth: f64) -> f64 {
    none + (full - none).max(0.0) * depth
}

/// Something for each part of generating text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts<T> {
    pub decode: T,
    pub depth: T,
    pub several: T,
    pub prefill: T,
}

pub type Intervals = Parts<Interval>;
pub type PartRatios = Parts<f64>;

impl<T> Parts<T> {
    pub fn each(of: impl Fn(Part) -> T) -> Self {
        Self {
            decode: of(Part::Decode),
            depth: of(Part::Depth),
            several: of(Part::Several),
            prefill: of(Part::Prefill),
        }
    }

    pub const fn of(&self, part: Part) -> &T {
        match part {
            Part::Decode => &self.decode,
            Part::Depth => &self.depth,
            Part::Several => &self.several,
            Part::Prefill => &self.prefill,
        }
    }
}

impl Intervals {
    const GUESSED: Self = Self {
        decode: GUESSED_INTERVAL,
        depth: GUESSED_INTERVAL,
        several: GUESSED_INTERVAL,
        prefill: GUESSED_INTERVAL,
    };

    /// For builds that nobody measured.
    fn widen(&mut self) {
        *self = Self::each(|part| {
            let interval = *self.of(part);
            let half = interval.half_width_ratio.ln_1p() * NEWER_WIDENING;
            Interval { half_width_ratio: half.exp_m1(), ..interval }
        });
    }
}

impl PartRatios {
    fn is_valid(&self) -> bool {
        [self.decode, self.depth, self.several, self.prefill]
            .iter()
            .all(|ratio| ratio.is_finite() && *ratio > 0.0)
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
    /// Those of a typical card where they are not the same.
    #[serde(default)]
    pub card: BTreeMap<String, Entry>,
    /// What coefficients of early builds are multiplied by.
    #[serde(default)]
    pub early: BTreeMap<String, f64>,
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
    /// A name that is not a coefficient.
    #[error("{0:?} is not a coefficient of an engine")]
    Unknown(String),
    /// A name that is not a family of storage.
    #[error("{0:?} is not a family of storage")]
    Family(String),
    #[error("{0:?} is missing")]
    Missing(String),
    /// A value that is not a positive number.
    #[error("{0:?} must be a positive number with a log_sd of 0 or more")]
    Value(String),
}

/// The costs of one engine with builds of one time on all machines.
#[derive(Debug, Clone, PartialEq)]
struct CostsByMachine {
    typical: EngineCosts,
    card: EngineCosts,
    machines: BTreeMap<String, EngineCosts>,
}

impl CostsByMachine {
    fn on(&self, hardware: Option<&str>) -> &EngineCosts {
        match hardware {
            Some(key) => self.machines.get(key).unwrap_or_else(|| self.unlisted(key)),
            None => &self.typical,
        }
    }

    /// Those of a machine that nobody measured.
    fn unlisted(&self, key: &str) -> &EngineCosts {
        if is_card(key) { &self.card } else { &self.typical }
    }

    /// Gives machines that nobody measured what those of their silicon generation have in common.
    fn add_siblings(&mut self) {
        let base = |costs: &Self, key: &str| costs.unlisted(key).log;
        let mut measured: BTreeMap<(u32, u32), Vec<Coefficients>> = BTreeMap::new();
        for (key, costs) in &self.machines {
            if let Some(generation) = registry().get(key).and_then(|hardware| hardware.compute_capability) {
                let mut difference = costs.log;
                difference.iter_mut().zip(base(self, key)).for_each(|(log, base)| *log -= base);
                measured.entry(generation).or_default().push(difference);
            }
        }
        for hardware in registry().entries() {
            let siblings = hardware.compute_capability.and_then(|generation| measured.get(&generation));
            if let Some(siblings) = siblings.filter(|_| !self.machines.contains_key(&hardware.key)) {
                let mut costs = self.unlisted(&hardware.key).clone();
                take_from_siblings(&mut costs.log, siblings);
                self.machines.insert(hardware.key.clone(), costs);
            }
        }
    }

    /// See [`device_order`](crate::device_order).
    fn put_in_order(&mut self, files: &BTreeMap<String, MachineFile>) {
        let cards = registry().entries().filter(|hardware| hardware.kind == Kind::Discrete);
        let mut cards: BTreeMap<&str, Card<'_>> = cards
            .map(|hardware| {
                let key = hardware.key.as_str();
                let rows = files.get(key).map_or(0, |file| file.rows);
                (key, Card { hardware, log: self.on(Some(key)).log, rows })
            })
            .collect();
        put_in_order(&mut cards);
        for (key, card) in cards {
            let mut costs = self.on(Some(key)).clone();
            if costs.log != card.log {
                costs.log = card.log;
                self.machines.insert(key.to_owned(), costs);
            }
        }
    }

    fn each(&mut self, mut change: impl FnMut(&mut EngineCosts)) {
        [&mut self.typical, &mut self.card]
            .into_iter()
            .chain(self.machines.values_mut())
            .for_each(&mut change);
    }
}

/// How many machines of a generation that do not differ from a typical one are assumed beside those measured. Of 0.3, 1, 3 and none at all
/// (`evaluate engines`, machine unknown) this one makes nothing worse: prompts 29.8 -> 27.7 %, decode 10.1 -> 10.0 %.
const ASSUMED_SIBLINGS: f64 = 3.0;

/// Moves a typical machine's logarithms by what measured machines of one silicon generation differ by. A rule of thumb is of one
/// machine.
pub fn take_from_siblings(log: &mut Coefficients, differences: &[Coefficients]) {
    #[expect(clippy::cast_precision_loss, reason = "a count of machines")]
    let count = differences.len() as f64 + ASSUMED_SIBLINGS;
    for coefficient in Coefficient::all().filter(|coefficient| coefficient.device_spread() > 0.0) {
        let place = coefficient.index();
        log[place] += differences.iter().map(|difference| difference[place]).sum::<f64>() / count;
    }
}

fn is_card(key: &str) -> bool {
    registry().get(key).is_some_and(|hardware| hardware.kind == Kind::Discrete)
}

/// The costs of one engine on all machines.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineTable {
    current: CostsByMachine,
    early: CostsByMachine,
    newer: CostsByMachine,
}

impl EngineTable {
    /// Reads a file.
    ///
    /// # Errors
    /// A file of another shape; the field is named.
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
        let mut card = typical.clone();
        card.set(&file.card)?;
        let mut current = CostsByMachine { typical, card, machines: BTreeMap::new() };
        for (key, machine) in &file.hardware {
            let costs = machine.costs(current.unlisted(key))?;
            current.machines.insert(key.clone(), costs);
        }
        current.add_siblings();
        current.put_in_order(&file.hardware);
        let mut early = current.clone();
        for (key, factor) in &file.early {
            let coefficient = Coefficient::of_key(key).ok_or_else(|| InvalidCosts::Unknown(key.clone()))?;
            if !(factor.is_finite() && *factor > 0.0) {
                return Err(InvalidCosts::Value(key.clone()));
            }
            early.each(|costs| costs.log[coefficient.index()] += factor.ln());
        }
        let mut newer = current.clone();
        newer.each(|costs| {
            costs.interval.widen();
            costs.unseen.widen();
        });
        Ok(Self { current, early, newer })
    }

    /// The costs of a build on a machine by its key in the registry of hardware.
    #[must_use]
    pub fn on(&self, hardware: Option<&str>, build: Build) -> &EngineCosts {
        let builds = match build {
            Build::Early => &self.early,
            Build::Current => &self.current,
            Build::Newer => &self.newer,
        };
        builds.on(hardware)
    }
}

impl MachineFile {
    /// Its costs, those of an unlisted machine of its kind where it has none.
    fn costs(&self, unlisted: &EngineCosts) -> Result<EngineCosts, InvalidCosts> {
        let mut costs = unlisted.clone();
        costs.set(&self.coefficients)?;
        costs.interval = self.interval;
        for key in &self.families {
            let family = Family::of_key(key).ok_or_else(|| InvalidCosts::Family(key.clone()))?;
            let errors = costs.families.get_mut(&family).ok_or_else(|| InvalidCosts::Missing(key.clone()))?;
            errors.here = true;
        }
        costs.machine_known = true;
        Ok(costs)
    }
}

/// How old the build of an engine is, against those that were measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Build {
    /// Of llama.cpp, from before 2025: fused kernels, CUDA graphs and attention changed most after it. Of other engines too few
    /// machines were measured with early versions and with current ones.
    Early,
    #[default]
    Current,
    /// Newer than any that was measured.
    Newer,
}

/// The last build of llama.cpp before 2025 was just under this one.
const FIRST_OF_2025: u32 = 4400;
/// The newest versions among the measurements.
const NEWEST_LLAMA: u32 = 10_964;
const NEWEST_VLLM: [u32; 2] = [0, 28];
/// How much wider the logarithms of intervals are for a newer build. A guess.
const NEWER_WIDENING: f64 = 1.5;

impl Build {
    /// Whether somebody who names a version of `engine` names one like this: a build `b10809` or a year of llama.cpp, a release
    /// of the others.
    #[must_use]
    pub fn is_version(engine: Engine, version: &str) -> bool {
        let begins = |word: &str, prefix: &str| {
            word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|of: char| of.is_ascii_digit()))
        };
        match engine {
            Engine::LlamaCpp => version
                .split(|of: char| !of.is_ascii_alphanumeric())
                .any(|word| begins(word, "b") || begins(word, "20") && word.len() == 4),
            _ => begins(version, "v") || begins(version, ""),
        }
    }

    /// Of a version in an engine's own words: a build number, a release, or a year. Current where it says nothing of its age.
    #[must_use]
    pub fn of(engine: Engine, version: &str) -> Self {
        let number = |word: &str| word.parse::<u32>().ok();
        let words = || version.split(|letter: char| !letter.is_ascii_alphanumeric());
        match engine {
            Engine::LlamaCpp => {
                let builds: Vec<u32> =
                    words().filter_map(|word| word.strip_prefix('b').and_then(number)).collect();
                let is_year = |word: &str| {
                    word.len() == 4 && number(word).is_some_and(|year| (2020..2025).contains(&year))
                };
                match builds.iter().max() {
                    Some(build) if *build > NEWEST_LLAMA => Self::Newer,
                    Some(build) if *build < FIRST_OF_2025 => Self::Early,
                    Some(_) => Self::Current,
                    None if words().any(is_year) => Self::Early,
                    None => Self::Current,
                }
            }
            Engine::Vllm => {
                let mut numbers = version.trim_start_matches('v').split('.').map_while(number);
                match [numbers.next(), numbers.next()] {
                    // A year is no release.
                    [Some(major), Some(minor)] if major < 100 && [major, minor] > NEWEST_VLLM => Self::Newer,
                    _ => Self::Current,
                }
            }
            _ => Self::Current,
        }
    }
}

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Name and text of every file of `config/engines`.
        pub const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../config/engines/", $key, ".toml"))),)*];
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
    parsed.map(|table| (table.current.typical.engine, table)).collect()
});
static ASSUMED: LazyLock<BTreeMap<Engine, EngineCosts>> =
    LazyLock::new(|| Engine::ALL.into_iter().map(|engine| (engine, EngineCosts::assumed(engine))).collect());

/// The costs of the newest measured builds of `engine` on a machine of the registry of hardware, or on a typical one.
#[must_use]
pub fn engine_costs(engine: Engine, hardware: Option<&str>) -> &'static EngineCosts {
    build_costs(engine, Build::Current, hardware)
}

/// Likewise of any builds.
#[must_use]
pub fn build_costs(engine: Engine, build: Build, hardware: Option<&str>) -> &'static EngineCosts {
    match TABLES.get(&engine) {
        Some(table) => table.on(hardware, build),
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

/// Whether the prompts of several sequences take turns: a server schedules so many tokens a pass, while others take all prompts at
/// once.
#[must_use]
pub const fn takes_turns(engine: Engine) -> bool {
    matches!(engine, Engine::LlamaCpp | Engine::Vllm | Engine::TensorRtLlm | Engine::Mlc)
}

/// How an engine sets memory aside.
#[must_use]
pub const fn allocation(engine: Engine) -> Allocation {
    match engine {
        Engine::LlamaCpp => Allocation::LlamaCpp,
        Engine::Vllm => Allocation::Paged,
        _ => Allocation::Exact,
    }
}
