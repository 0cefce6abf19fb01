//! The coefficients of a step: what each is called, between which values it lies, and which orders hold between them.

use serde::{Deserialize, Serialize};

use rooflined_core::keyed;
use rooflined_models::block::Block;

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

            pub(crate) fn of_key(key: &str) -> Option<Self> {
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
    ($($(#[$doc:meta])* $variant:ident = $key:literal, prior $value:literal x $spread:literal, device $device:literal,
       card $card:literal, early $early:literal x $early_spread:literal;)*) => {
        keyed! {
            /// What is fitted beside the cost of dequantization. All are positive and fitted as logarithms.
            Scalar { $($(#[$doc])* $variant = $key,)* }
        }

        impl Scalar {
            const fn entry(self) -> (f64, f64, f64) {
                match self { $(Self::$variant => ($value, $spread, $device),)* }
            }

            /// Factors that [`Effect`]s are assumed to be, and standard deviations of their logarithms.
            const fn effects(self) -> [(f64, f64); EFFECTS] {
                match self { $(Self::$variant => [(1.0, $card), ($early, $early_spread)],)* }
            }
        }
    };
}

// What is assumed before any measurement: a value, and the standard deviations of its logarithm over engines, between
// machines with the same engine, between cards and boards, and between builds, after the factor of an early one. Documented
// guesses; the data decides where there is any. Launches cost about half with CUDA graphs (realizar on an Orin: 280 kernels of 20 us
// a token, of 10 with graphs). Attention on matrix units (llama.cpp, pull request 11583) makes a prompt of 16384 tokens 1.31 times as
// fast on an RTX 3090, which is attention in half of the time if attention is half of the prompt.
// Products on 8-bit matrix units came in June 2024: 1.3 to 1.6 times as fast (pull request 7676), then 1.14 times (8416).
coefficients! {
    /// Part of the memory's nominal bandwidth that streaming weights reaches.
    Bandwidth = "bandwidth_ratio", prior 0.85 x 0.25, device 0.12, card 0.1, early 1.0 x 0.1;
    /// Times that the key/value cache is read, seen from the memory: heads of a group do not always share a read.
    Cache = "kv_ratio", prior 1.5 x 0.7, device 0.3, card 0.5, early 1.0 x 0.5;
    /// Likewise for the states of linear mixers.
    State = "state_ratio", prior 1.5 x 0.7, device 0.3, card 0.0, early 1.0 x 0.0;
    /// Bytes of experts against other weights: scattered reads are slower.
    Expert = "expert_ratio", prior 1.1 x 0.2, device 0.15, card 0.0, early 1.0 x 0.1;
    /// Time of one kernel of the small ones between products, launch included, in seconds, where the GPU runs at 1 GHz.
    Kernel = "kernel_s", prior 4.5e-6 x 0.7, device 0.5, card 0.7, early 2.0 x 0.5;
    /// Further time of a layer with a linear mixer, likewise.
    LinearLayer = "linear_layer_s", prior 10e-6 x 1.0, device 0.5, card 0.5, early 1.0 x 0.5;
    /// Further time of a layer with experts, likewise.
    ExpertLayer = "expert_layer_s", prior 10e-6 x 1.0, device 0.2, card 0.7, early 1.0 x 0.5;
    /// Time of a pass for every sequence: sampling and the way to the host and back, likewise. It depends on the host.
    Sequence = "sequence_s", prior 1e-4 x 1.0, device 0.5, card 0.7, early 1.0 x 0.7;
    /// What a further column costs a kernel for few columns, as a part of the first.
    Column = "column_ratio", prior 0.05 x 1.0, device 0.4, card 0.4, early 1.0 x 0.4;
    /// What a further column costs llama.cpp's kernels for many columns beside the products, as a part of the first of
    /// those for few: a tile of weights is unpacked again for every tile of columns.
    Unpack = "unpack_ratio", prior 0.01 x 1.0, device 0.3, card 0.0, early 1.0 x 0.0;
    /// Part of the peak that products of many rows reach, in what they are computed in.
    Product = "product_ratio", prior 0.4 x 0.5, device 0.4, card 0.3, early 0.85 x 0.4;
    /// What products in 8 bits reach of their peak, against those in 16 bits.
    EightBit = "eight_bit_ratio", prior 1.0 x 0.5, device 0.3, card 0.3, early 0.6 x 0.3;
    /// Likewise of products in 4 bits.
    FourBit = "four_bit_ratio", prior 1.0 x 0.5, device 0.3, card 0.3, early 1.0 x 0.3;
    /// Rows at which products reach half of that.
    HalfRows = "half_rows", prior 64.0 x 1.0, device 0.0, card 0.3, early 1.0 x 0.3;
    /// Part of the 16-bit peak that attention over a prompt reaches.
    Attention = "attention_ratio", prior 0.2 x 0.8, device 0.5, card 0.5, early 0.5 x 0.6;
    /// Likewise for the states of linear mixers over a prompt, token by token.
    Scan = "scan_ratio", prior 0.03 x 1.5, device 0.0, card 0.0, early 1.0 x 0.0;
    /// Times as long as all bytes take at the memory's nominal bandwidth that a dense model decodes one sequence at depth, where
    /// this rule of thumb was found nearer than the sum of the parts; 1 = the sum. Not fitted with the others.
    DenseRule = "dense_rule_ratio", prior 1.0 x 0.0, device 0.0, card 0.0, early 1.0 x 0.0;
    /// Likewise of a mixture of experts.
    ExpertRule = "expert_rule_ratio", prior 1.0 x 0.0, device 0.0, card 0.0, early 1.0 x 0.0;
}

/// What several machines or builds have in common against the others with the same engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A card beside the processor of a PC or a server, against a module whose cores launch its kernels.
    Card,
    /// [`Build::Early`](crate::costs::Build::Early).
    Early,
}

/// How many there are.
pub const EFFECTS: usize = 2;
/// What they change in the cycles for a weight: factors, and standard deviations of their logarithms.
const CYCLES_EFFECTS: [(f64, f64); EFFECTS] = [(1.0, 0.2), (1.0, 0.2)];

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
            Self::Scalar(scalar) => scalar.key().to_owned(),
            Self::Cycles(family) => format!("cycles_per_weight_{}", family.key()),
        }
    }

    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Self::all().find(|coefficient| coefficient.key() == key)
    }

    /// Value before any measurement, and the standard deviation of its logarithm.
    #[must_use]
    pub const fn prior(self) -> (f64, f64) {
        match self {
            Self::Scalar(scalar) => (scalar.entry().0, scalar.entry().1),
            Self::Cycles(_) => (CYCLES.0, CYCLES.1),
        }
    }

    /// Standard deviation of the logarithm between machines that run the same engine; 0 = the same everywhere.
    #[must_use]
    pub const fn device_spread(self) -> f64 {
        match self {
            Self::Scalar(scalar) => scalar.entry().2,
            Self::Cycles(_) => CYCLES.2,
        }
    }

    /// The factor that each [`Effect`] is assumed to be, and the standard deviation of its logarithm; 0 = the factor is fixed.
    #[must_use]
    pub const fn effects(self) -> [(f64, f64); EFFECTS] {
        match self {
            Self::Scalar(scalar) => scalar.effects(),
            Self::Cycles(_) => CYCLES_EFFECTS,
        }
    }

    /// Bounds of a value that is worth believing: a ratio of a ceiling is at most 1.
    #[must_use]
    pub const fn most(self) -> f64 {
        match self {
            Self::Scalar(Scalar::Bandwidth | Scalar::Product | Scalar::Attention | Scalar::Scan) => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// Likewise from below: the cache is read once at least, and no rule is faster than the memory.
    #[must_use]
    pub const fn least(self) -> f64 {
        match self {
            Self::Scalar(Scalar::Cache | Scalar::DenseRule | Scalar::ExpertRule) => 1.0,
            _ => 0.0,
        }
    }
}

/// Logarithms of all coefficients.
pub type Coefficients = [f64; COEFFICIENTS];

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
