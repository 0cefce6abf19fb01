//! Cost coefficients of an inference engine's kernels on a CPU: `config/engines/cpu/*.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Engine;
use rooflined_core::keyed;
use rooflined_models::block::Block;

macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident = $key:literal: $($block:ident)|+;)*) => {
        /// Storage that one kind of kernel unpacks, at one cost for every weight.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kernel { $($(#[$doc])* $variant,)* }

        impl Kernel {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }

            /// The kernel of a block type. Without a wildcard, so that the compiler asks for that of a new block.
            #[must_use]
            pub const fn of(block: Block) -> Self {
                match block { $($(Block::$block)|+ => Self::$variant,)* }
            }
        }
    };
}

kernels! {
    /// 32 bits and more, and helpers.
    F32 = "fp32": F32 | F64 | E8m0 | I64 | I32 | I16;
    F16 = "fp16": F16;
    Bf16 = "bf16": Bf16;
    /// 8 bits; 8-bit floats are looked up like them.
    Q8 = "q8_0": Q8_0 | Q8_1 | Q8K | I8 | Fp8E4m3 | Fp8E5m2 | Mxfp8;
    /// 4 bits with a scale and no offset.
    Q4 = "q4_0": Q4_0 | Int4 | Int4G32 | Int4G64 | Int4G128 | Nf4;
    /// 4 bits with a scale and an offset.
    Q4Offset = "q4_1": Q4_1 | AwqInt4 | GptqInt4;
    Q5 = "q5_0": Q5_0;
    Q5Offset = "q5_1": Q5_1;
    Q2K = "q2_k": Q2K;
    Q3K = "q3_k": Q3K;
    Q4K = "q4_k": Q4K;
    Q5K = "q5_k": Q5K;
    Q6K = "q6_k": Q6K;
    Iq4Nl = "iq4_nl": Iq4Nl;
    Iq4Xs = "iq4_xs": Iq4Xs;
    Mxfp4 = "mxfp4": Mxfp4 | Nvfp4;
    Iq3 = "iq3": Iq3Xxs | Iq3S;
    Iq2 = "iq2": Iq2Xxs | Iq2Xs | Iq2S | Iq1S | Iq1M | Tq1_0 | Tq2_0;
    Q1 = "q1": Q1_0 | Q2_0 | Q2_0G64;
}

impl Kernel {
    /// Whether weights are floats, which are multiplied as they are or widened.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Whether inputs are quantised to super-blocks, which takes longer.
    #[must_use]
    pub const fn takes_super_blocks(self) -> bool {
        matches!(
            self,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs | Self::Iq3 | Self::Iq2
        )
    }

    /// Whether weights are repacked into interleaved rows when they are loaded.
    #[must_use]
    pub const fn repacked(self) -> bool {
        matches!(self, Self::Q4 | Self::Q4K | Self::Iq4Nl | Self::Mxfp4 | Self::Q2K)
    }
}

keyed! {
    /// What is known beside the cycles of a weight. All are positive; their logarithms are fitted.
    Scalar {
        /// Factor on everything that the cores do: how a processor differs from the one that was measured.
        Core = "core",
        /// Further factor on kernels for one row and two, which wait for what they read: it differs more than that of tiles.
        OneRow = "one_row_ratio",
        /// Factor on everything that the cores do where several threads run: shares are uneven, and cores slow each other down.
        ManyThreads = "many_threads_ratio",
        /// Part of what one thread reads of main memory that streaming weights reaches.
        BandwidthOneThread = "bandwidth_ratio_one_thread",
        /// Likewise of what several threads read whose cores share a cache.
        Bandwidth = "bandwidth_ratio",
        /// Likewise where they share none.
        BandwidthFar = "bandwidth_ratio_far",
        /// Cycles of a query head and a key with one new token, beside those of the key's elements.
        Attention = "attention_cycles",
        /// Cycles of attention where the cache is quantised, as a factor.
        QuantisedCache = "quantised_cache_ratio",
        /// Cycles of attention over a prompt, as a factor.
        PromptAttention = "prompt_attention_ratio",
        /// Cycles of the small operations of a layer.
        Layer = "layer_cycles",
        /// Time of the barriers of a layer with two threads whose cores share a cache.
        Barrier = "barrier_s",
        /// Likewise where they share none.
        BarrierFar = "barrier_far_s",
        /// Cycles to convert an input element.
        Quantise = "quantise_cycles",
        /// Likewise into super-blocks.
        QuantiseSuper = "quantise_super_cycles",
    }
}

/// Rows at which the cycles of a kernel are known. Between them its logarithm is a line in that of the rows.
pub const ROWS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 128.0];

/// Coefficients of every kernel: one at each of [`ROWS`], and a factor for few rows and one for many.
const OF_KERNEL: usize = ROWS.len() + 2;

/// How many coefficients there are.
pub const COEFFICIENTS: usize = Scalar::ALL.len() + Kernel::ALL.len() * OF_KERNEL;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coefficient {
    Scalar(Scalar),
    /// Cycles of one core for a weight and a row, at this place of [`ROWS`].
    Cycles(Kernel, usize),
    /// Factor on those of one kernel for few rows, so that one batch teaches its neighbours.
    FewRows(Kernel),
    /// Likewise for many.
    ManyRows(Kernel),
}

impl Coefficient {
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar as usize,
            Self::Cycles(kernel, place) => of_kernel(kernel) + place,
            Self::FewRows(kernel) => of_kernel(kernel) + ROWS.len(),
            Self::ManyRows(kernel) => of_kernel(kernel) + ROWS.len() + 1,
        }
    }
}

const fn of_kernel(kernel: Kernel) -> usize {
    Scalar::ALL.len() + kernel as usize * OF_KERNEL
}

/// The places of [`ROWS`] around `rows`, and the share of the upper one.
pub(super) fn between(rows: f64) -> (usize, usize, f64) {
    let last = ROWS.len() - 1;
    let Some(high) = ROWS.iter().position(|known| *known >= rows) else { return (last, last, 1.0) };
    let low = high.saturating_sub(1);
    if low == high {
        return (low, high, 1.0);
    }
    (low, high, (rows / ROWS[low]).ln() / (ROWS[high] / ROWS[low]).ln())
}

/// Whether kernels take so few rows one by one.
pub(super) const fn few_rows(place: usize) -> bool {
    place < 2
}

/// What the cycles of a kernel at a place of [`ROWS`] are multiplied from, beside what all that the cores do has in common.
pub(super) fn factors(kernel: Kernel, place: usize) -> impl Iterator<Item = Coefficient> {
    let shared = if few_rows(place) {
        [Some(Coefficient::FewRows(kernel)), Some(Coefficient::Scalar(Scalar::OneRow))]
    } else {
        [Some(Coefficient::ManyRows(kernel)), None]
    };
    shared.into_iter().flatten().chain([Coefficient::Cycles(kernel, place)])
}

/// Cycles of a kernel for one weight and row.
pub(super) fn cycles(log: &[f64; COEFFICIENTS], kernel: Kernel, rows: f64) -> f64 {
    let at = |place| factors(kernel, place).map(|coefficient| log[coefficient.index()]).sum::<f64>();
    let (low, high, share) = between(rows);
    (at(low) * (1.0 - share) + at(high) * share).exp()
}

keyed! {
    /// Processors that have costs of their own, told apart by what decides which kernels run and how fast.
    Processor {
        /// AMD with 512-bit units of full width.
        Zen5 = "zen5",
        /// AMD with 512-bit operations in two halves.
        Zen4 = "zen4",
        /// 8-bit matrix tiles.
        Amx = "amx",
        /// 512-bit 8-bit dot products.
        Avx512Vnni = "avx512_vnni",
        /// 256-bit 8-bit dot products.
        AvxVnni = "avx_vnni",
        Avx2 = "avx2",
        /// ARM with 8-bit matrix multiply.
        NeonI8mm = "neon_i8mm",
        /// ARM with 8-bit dot products.
        NeonDotprod = "neon_dotprod",
        Other = "other",
    }
}

/// Single-precision operations of a core and cycle that tell full 512-bit units from halves: 64 and 32.
const FULL_512: f64 = 48.0;

impl Processor {
    /// The processor of a machine by its name, its instruction-set flags in the kernel's spelling, and the single-precision
    /// operations that one core does in a cycle, where they were measured.
    #[must_use]
    pub fn of(name: Option<&str>, features: &[String], flops_per_cycle: Option<f64>) -> Self {
        let has = |wanted: &str| features.iter().any(|feature| feature == wanted);
        let amd = name.is_some_and(|name| name.contains("AMD"));
        match () {
            () if has("avx512_vnni") && amd => match flops_per_cycle {
                Some(flops) if flops > FULL_512 => Self::Zen5,
                _ => Self::Zen4,
            },
            () if has("amx_int8") => Self::Amx,
            () if has("avx512_vnni") => Self::Avx512Vnni,
            () if has("avx_vnni") => Self::AvxVnni,
            () if has("avx2") => Self::Avx2,
            () if has("i8mm") => Self::NeonI8mm,
            () if has("asimddp") => Self::NeonDotprod,
            () => Self::Other,
        }
    }

    /// How far an engine may lie above the highest peak that the calibration finds: it does not measure matrix tiles, whose
    /// 2048 operations a cycle are eight times those of 512-bit dot products on one port.
    #[must_use]
    pub(super) const fn beyond_measured_peak(self) -> f64 {
        match self {
            Self::Amx => 8.0,
            _ => 1.0,
        }
    }
}

/// An engine's costs on one kind of processor.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuCosts {
    pub engine: Engine,
    /// Logarithms of the coefficients.
    pub log: Box<[f64; COEFFICIENTS]>,
    /// Standard deviations of the logarithms; 0 = fixed.
    pub sd: Box<[f64; COEFFICIENTS]>,
    /// Whether this kind of processor was measured.
    pub measured: bool,
}

/// A value and the standard deviation of its logarithm.
pub type Entry = (f64, f64);

/// Cycles of a kernel at [`ROWS`], then the standard deviations of the logarithms of those for few rows and for many.
pub type KernelEntry = [f64; ROWS.len() + 2];

/// An engine's costs on one processor as a file has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorFile {
    /// Where the figures are from.
    pub source: String,
    /// Measured runs that they were fitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// The processor whose cycles these are a multiple of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    pub core: Entry,
    /// 1 for sure where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_row_ratio: Option<Entry>,
    pub attention_cycles: Entry,
    pub prompt_attention_ratio: Entry,
    /// Standard deviation of every kernel's logarithm where the cycles are another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_log_sd: Option<f64>,
    /// Standard deviation of what a number of rows costs beside its kernel's factor for few rows or many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_log_sd: Option<f64>,
    /// Factor from four rows on where the cycles are another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub many_rows_ratio: Option<f64>,
    /// Scalars that are not those of the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scalars: BTreeMap<String, Entry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cycles_per_weight: BTreeMap<String, KernelEntry>,
}

/// A file of costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub engine: Engine,
    pub scalars: BTreeMap<String, Entry>,
    pub processors: BTreeMap<String, ProcessorFile>,
}

impl File {
    /// Reads a file's shape; [`costs`](Self::costs) checks what it says.
    ///
    /// # Errors
    /// No TOML of this shape.
    pub fn read(text: &str) -> Result<Self, InvalidCpuCosts> {
        toml::from_str(text).map_err(|error| InvalidCpuCosts::Shape(error.to_string()))
    }

    /// The costs on one processor that it names.
    ///
    /// # Errors
    /// As [`costs`](Self::costs), and where it does not name the processor.
    pub fn costs_on(&self, processor: Processor) -> Result<CpuCosts, InvalidCpuCosts> {
        let key = processor.key();
        let of = self.processors.get(key).ok_or_else(|| InvalidCpuCosts::Missing(key.to_owned()))?;
        costs_of(self, key, of)
    }

    /// The costs on every processor that it names.
    ///
    /// # Errors
    /// Names the entry that is missing, unknown, or not a positive number.
    pub fn costs(&self) -> Result<BTreeMap<Processor, CpuCosts>, InvalidCpuCosts> {
        let named = |key: &str| {
            let found = Processor::ALL.iter().copied().find(|processor| processor.key() == key);
            found.ok_or_else(|| InvalidCpuCosts::Unknown(key.to_owned()))
        };
        self.processors.iter().map(|(key, of)| Ok((named(key)?, costs_of(self, key, of)?))).collect()
    }
}

/// Why a file of costs is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCpuCosts {
    /// No TOML of this shape.
    #[error("{0}")]
    Shape(String),
    /// A name that is not a coefficient, a kernel or a processor.
    #[error("{0:?} is not a coefficient, kernel or processor")]
    Unknown(String),
    #[error("{0:?} is missing")]
    Missing(String),
    /// A value that is not a positive number, or a spread below 0.
    #[error("{0:?} must be positive with a log_sd of 0 or more")]
    Value(String),
}

/// The same where nothing is said.
const ROWS_LOG_SD: f64 = 0.1;
/// What is assumed of a kernel that a file does not name: as dear as the dearest that it names, and far from sure.
const UNNAMED_LOG_SD: f64 = 0.8;

impl CpuCosts {
    fn set(
        &mut self,
        coefficient: Coefficient,
        name: &str,
        (value, sd): Entry,
    ) -> Result<(), InvalidCpuCosts> {
        let sound = value.is_finite() && value > 0.0 && sd.is_finite() && sd >= 0.0;
        if !sound {
            return Err(InvalidCpuCosts::Value(name.to_owned()));
        }
        self.log[coefficient.index()] = value.ln();
        self.sd[coefficient.index()] = sd;
        Ok(())
    }

    /// Value of a coefficient.
    #[must_use]
    pub fn get(&self, coefficient: Coefficient) -> f64 {
        self.log[coefficient.index()].exp()
    }
}

/// Reads a file: the costs on every processor that it names.
///
/// # Errors
/// A file of another shape; the entry is named.
pub fn parse(text: &str) -> Result<BTreeMap<Processor, CpuCosts>, InvalidCpuCosts> {
    File::read(text)?.costs()
}

fn costs_of(file: &File, key: &str, of: &ProcessorFile) -> Result<CpuCosts, InvalidCpuCosts> {
    let mut costs = CpuCosts {
        engine: file.engine,
        log: Box::new([0.0; COEFFICIENTS]),
        sd: Box::new([0.0; COEFFICIENTS]),
        measured: of.like.is_none() && key != Processor::Other.key(),
    };
    let mut scalars = file.scalars.keys().chain(of.scalars.keys());
    if let Some(unknown) = scalars.find(|key| Scalar::ALL.iter().all(|scalar| scalar.key() != *key)) {
        return Err(InvalidCpuCosts::Unknown(unknown.clone()));
    }
    for scalar in Scalar::ALL {
        let entry = match scalar {
            Scalar::Core => of.core,
            Scalar::OneRow => of.one_row_ratio.unwrap_or((1.0, 0.0)),
            Scalar::Attention => of.attention_cycles,
            Scalar::PromptAttention => of.prompt_attention_ratio,
            _ => *of
                .scalars
                .get(scalar.key())
                .or_else(|| file.scalars.get(scalar.key()))
                .ok_or_else(|| InvalidCpuCosts::Missing(scalar.key().to_owned()))?,
        };
        costs.set(Coefficient::Scalar(scalar), scalar.key(), entry)?;
    }
    let source = match &of.like {
        Some(like) => {
            let found = file.processors.get(like).filter(|found| found.like.is_none());
            found.ok_or_else(|| InvalidCpuCosts::Unknown(like.clone()))?
        }
        None => of,
    };
    let tables = &source.cycles_per_weight;
    if let Some(unknown) = tables.keys().find(|key| Kernel::ALL.iter().all(|kernel| kernel.key() != *key)) {
        return Err(InvalidCpuCosts::Unknown(unknown.clone()));
    }
    let dearest = tables.values().max_by(|a, b| a[0].total_cmp(&b[0]));
    let dearest = dearest.ok_or_else(|| InvalidCpuCosts::Missing(format!("{key}.cycles_per_weight")))?;
    for kernel in Kernel::ALL {
        let known = tables.get(kernel.key());
        let row = known.unwrap_or(dearest);
        let spread = |own: f64| match (known, of.each_log_sd.filter(|_| of.like.is_some())) {
            (None, _) => UNNAMED_LOG_SD,
            (Some(_), each) => own.max(each.unwrap_or(0.0)),
        };
        let [.., few, many] = *row;
        costs.set(Coefficient::FewRows(*kernel), kernel.key(), (1.0, spread(few)))?;
        costs.set(Coefficient::ManyRows(*kernel), kernel.key(), (1.0, spread(many)))?;
        for (place, rows) in ROWS.iter().enumerate() {
            let ratio = if *rows >= 4.0 { of.many_rows_ratio.unwrap_or(1.0) } else { 1.0 };
            let entry = (row[place] * ratio, of.rows_log_sd.unwrap_or(ROWS_LOG_SD));
            costs.set(Coefficient::Cycles(*kernel, place), kernel.key(), entry)?;
        }
    }
    Ok(costs)
}

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Name and text of every file of `config/engines/cpu`.
        pub const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../../config/engines/cpu/", $key, ".toml"))),)*];
    };
}

built_in! {
    "llama.cpp",
    "onnxruntime",
    "torch",
}

static TABLES: LazyLock<BTreeMap<Engine, BTreeMap<Processor, CpuCosts>>> = LazyLock::new(|| {
    // A test parses every file, so none is left out here.
    let parsed = FILES.iter().filter_map(|(_, text)| parse(text).ok());
    parsed.filter_map(|table| Some((table.values().next()?.engine, table))).collect()
});

/// The costs of `engine` on a processor, else on any; `None` for an engine without costs on CPUs.
#[must_use]
pub fn cpu_costs(engine: Engine, processor: Processor) -> Option<&'static CpuCosts> {
    let table = TABLES.get(&engine)?;
    table.get(&processor).or_else(|| table.get(&Processor::Other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
engine = "llama.cpp"
[scalars]
bandwidth_ratio_one_thread = [0.96, 0.06]
bandwidth_ratio = [0.96, 0.06]
bandwidth_ratio_far = [0.82, 0.09]
many_threads_ratio = [1.0, 0.05]
layer_cycles = [32000.0, 0.5]
barrier_s = [50e-6, 0.5]
barrier_far_s = [120e-6, 0.5]
quantise_cycles = [0.5, 0.35]
quantise_super_cycles = [3.2, 0.35]
quantised_cache_ratio = [1.65, 0.3]
[processors.zen4]
source = "a test"
core = [1.0, 0.1]
attention_cycles = [80.0, 0.15]
prompt_attention_ratio = [1.0, 0.25]
[processors.zen4.cycles_per_weight]
q4_1 = [0.22, 0.2, 0.19, 0.18, 0.17, 0.176, 0.25, 0.2]
[processors.other]
source = "a test"
like = "zen4"
core = [1.0, 0.5]
one_row_ratio = [1.5, 0.3]
each_log_sd = 0.4
many_rows_ratio = 0.5
attention_cycles = [75.0, 0.5]
prompt_attention_ratio = [1.0, 0.7]
[processors.other.scalars]
barrier_s = [70e-6, 0.5]
"#;

    #[test]
    fn every_shipped_file_is_read_and_covers_any_processor() {
        for (name, text) in FILES {
            let table = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(table.contains_key(&Processor::Other), "{name}");
            let of_name = table.values().next().unwrap().engine;
            assert_eq!(of_name.key(), *name);
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let broken = |from: &str, to: &str| parse(&TEXT.replacen(from, to, 1)).unwrap_err();
        assert_eq!(broken("q4_1 =", "q4_9 ="), InvalidCpuCosts::Unknown("q4_9".into()));
        assert_eq!(broken("like = \"zen4\"", "like = \"zen9\""), InvalidCpuCosts::Unknown("zen9".into()));
        assert_eq!(broken("barrier_s = [50e-6, 0.5]", ""), InvalidCpuCosts::Missing("barrier_s".into()));
        assert_eq!(
            broken("barrier_s = [50e-6", "barrier_s = [-1.0"),
            InvalidCpuCosts::Value("barrier_s".into())
        );
        assert!(matches!(broken("0.25, 0.2]", "0.25]"), InvalidCpuCosts::Shape(_)));
    }

    #[test]
    fn a_processor_like_another_has_its_cycles_and_more_doubt() {
        let table = parse(TEXT).unwrap();
        let (zen4, other) = (&table[&Processor::Zen4], &table[&Processor::Other]);
        let (few, many) = (Coefficient::FewRows(Kernel::Q4Offset), Coefficient::ManyRows(Kernel::Q4Offset));
        assert!((cycles(&zen4.log, Kernel::Q4Offset, 1.0) - 0.22).abs() < 1e-9);
        let one_row = cycles(&other.log, Kernel::Q4Offset, 1.0);
        assert!((one_row - 0.22 * 1.5).abs() < 1e-9, "{one_row}");
        assert!((cycles(&other.log, Kernel::Q4Offset, 8.0) - 0.18 * 0.5).abs() < 1e-9);
        assert_eq!((zen4.sd[few.index()], zen4.sd[many.index()]), (0.25, 0.2));
        assert_eq!((other.sd[few.index()], other.sd[many.index()]), (0.4, 0.4));
        let barrier = Coefficient::Scalar(Scalar::Barrier);
        assert!((zen4.get(barrier) - 50e-6).abs() < 1e-12 && (other.get(barrier) - 70e-6).abs() < 1e-12);
        assert!(zen4.measured && !other.measured);
    }

    #[test]
    fn a_processor_is_told_by_what_decides_its_kernels() {
        let of = |name: &str, features: &[&str], flops| {
            let features: Vec<String> = features.iter().map(|feature| (*feature).to_owned()).collect();
            Processor::of(Some(name), &features, flops)
        };
        let epyc = ["avx2", "avx512f", "avx512_vnni", "avx_vnni"];
        assert_eq!(of("AMD EPYC", &epyc, Some(63.0)), Processor::Zen5);
        assert_eq!(of("AMD EPYC", &epyc, Some(31.0)), Processor::Zen4);
        assert_eq!(of("AMD EPYC", &epyc, None), Processor::Zen4);
        assert_eq!(of("Intel Xeon", &["avx2", "avx512_vnni", "amx_int8"], None), Processor::Amx);
        assert_eq!(of("AMD Ryzen 5 3600", &["avx2"], None), Processor::Avx2);
        assert_eq!(of("Cortex-A78AE", &["asimd", "asimddp"], None), Processor::NeonDotprod);
        assert_eq!(of("Cortex-A57", &["asimd"], None), Processor::Other);
    }

    #[test]
    fn cycles_between_known_rows_lie_between_those_known() {
        let costs = cpu_costs(Engine::LlamaCpp, Processor::Zen4).unwrap();
        let at = |rows| cycles(&costs.log, Kernel::Q8, rows);
        assert!((at(1.0) - 0.178).abs() < 1e-9 && (at(1024.0) - 0.069).abs() < 1e-9);
        assert!((at(32f64.sqrt()) - (0.13f64 * 0.1).sqrt()).abs() < 1e-9);
    }
}
