//! Which block type each matrix gets when a model is quantised: the mixes of llama.cpp, and what checkpoints of other
//! tools leave at 16 bits. Needed only where there is no file to read the answer from.

use std::fmt;
use std::str::FromStr;

use super::architecture::{Architecture, Matrix, Mixer, Part};
use super::block::Block;
use super::class::Class;
use super::model::{Grouping, WeightGroup};
use rooflined_core::keyed;
use rooflined_core::near::Near;
use rooflined_core::precision::{UnknownName, WeightFormat};

macro_rules! mixes {
    ($($variant:ident = $key:literal, $number:expr, $base:ident;)*) => {
        keyed! {
            /// A mix of block types by llama.cpp's name for it.
            Mix { $($variant = $key,)* }
        }

        impl Mix {
            /// The number in a file's `general.file_type`; `None` where none is settled.
            #[must_use]
            pub const fn number(self) -> Option<u32> {
                match self { $(Self::$variant => $number,)* }
            }

            /// What most matrices get.
            #[must_use]
            pub const fn base(self) -> Block {
                match self { $(Self::$variant => Block::$base,)* }
            }
        }
    };
}

mixes! {
    F32 = "fp32", Some(0), F32;
    F16 = "fp16", Some(1), F16;
    Bf16 = "bf16", Some(32), Bf16;
    Q4_0 = "q4_0", Some(2), Q4_0;
    Q4_1 = "q4_1", Some(3), Q4_1;
    Q5_0 = "q5_0", Some(8), Q5_0;
    Q5_1 = "q5_1", Some(9), Q5_1;
    Q8_0 = "q8_0", Some(7), Q8_0;
    Q2K = "q2_k", Some(10), Q2K;
    Q2KS = "q2_k_s", Some(21), Q2K;
    Q3KS = "q3_k_s", Some(11), Q3K;
    Q3KM = "q3_k_m", Some(12), Q3K;
    Q3KL = "q3_k_l", Some(13), Q3K;
    Q4KS = "q4_k_s", Some(14), Q4K;
    Q4KM = "q4_k_m", Some(15), Q4K;
    Q5KS = "q5_k_s", Some(16), Q5K;
    Q5KM = "q5_k_m", Some(17), Q5K;
    Q6K = "q6_k", Some(18), Q6K;
    Iq1S = "iq1_s", Some(24), Iq1S;
    Iq1M = "iq1_m", Some(31), Iq1M;
    Iq2Xxs = "iq2_xxs", Some(19), Iq2Xxs;
    Iq2Xs = "iq2_xs", Some(20), Iq2Xs;
    Iq2S = "iq2_s", Some(28), Iq2Xs;
    Iq2M = "iq2_m", Some(29), Iq2S;
    Iq3Xxs = "iq3_xxs", Some(23), Iq3Xxs;
    Iq3Xs = "iq3_xs", Some(22), Iq3S;
    Iq3S = "iq3_s", Some(26), Iq3S;
    Iq3M = "iq3_m", Some(27), Iq3S;
    Iq4Nl = "iq4_nl", Some(25), Iq4Nl;
    Iq4Xs = "iq4_xs", Some(30), Iq4Xs;
    Tq1_0 = "tq1_0", Some(36), Tq1_0;
    Tq2_0 = "tq2_0", Some(37), Tq2_0;
    Mxfp4Moe = "mxfp4_moe", Some(38), Mxfp4;
    Nvfp4 = "nvfp4_gguf", Some(39), Nvfp4;
    Q1_0 = "q1_0", Some(40), Q1_0;
    Q2_0 = "q2_0", None, Q2_0;
}

impl Mix {
    /// The mix with this number in `general.file_type`.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|mix| mix.number() == Some(number))
    }

    /// The mix that a format's name stands for; `None` for formats that GGUF files do not have.
    #[must_use]
    pub fn of(format: WeightFormat) -> Option<Self> {
        let same = Self::ALL.iter().copied().find(|mix| mix.key() == format.key());
        if format == WeightFormat::Mxfp4 { Some(Self::Mxfp4Moe) } else { same }
    }
}

/// How a model is quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recipe {
    /// As llama.cpp writes a GGUF file.
    Gguf(Mix),
    /// As tools for safetensors checkpoints do: projections in the format, embedding, head, router and norms at 16
    /// bits. `mxfp4` of a mixture of experts covers the experts alone.
    Checkpoint(WeightFormat),
    /// The same with the embedding and the head in a format of their own.
    WithHead { weights: WeightFormat, head: WeightFormat },
}

impl Recipe {
    /// The usual recipe of a format: GGUF for its own block types, a checkpoint for everything else.
    #[must_use]
    pub fn of(format: WeightFormat) -> Self {
        match Mix::of(format) {
            Some(mix) if !mix.base().is_plain() && format != WeightFormat::Mxfp4 => Self::Gguf(mix),
            _ => Self::Checkpoint(format),
        }
    }

    /// Every recipe that has a name, each once.
    pub fn all() -> impl Iterator<Item = Self> {
        let mixes = Mix::ALL.iter().copied().filter(|mix| mix.key().parse::<WeightFormat>().is_err());
        WeightFormat::ALL.iter().copied().map(Self::of).chain(mixes.map(Self::Gguf))
    }

    /// The name of the recipe's format.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Gguf(mix) => mix.key(),
            Self::Checkpoint(format) | Self::WithHead { weights: format, .. } => format.key(),
        }
    }

    /// The weights of a model quantised this way.
    #[must_use]
    pub fn weights(self, architecture: &Architecture) -> Vec<WeightGroup> {
        let traits = Traits::of(architecture);
        let mut groups = Grouping::default();
        // Values and fused query-key-values are counted apart from layers: only some layers have them.
        let mut values = 0;
        for matrix in architecture.matrices() {
            let block = match self {
                Self::WithHead { head, .. } if matches!(matrix.class, Class::Head | Class::Embedding) => {
                    Block::of(head)
                }
                Self::Checkpoint(format) | Self::WithHead { weights: format, .. } => {
                    checkpoint_block(format, &matrix, &traits)
                }
                Self::Gguf(mix) => gguf_block(mix, &matrix, &traits, values),
            };
            values += usize::from(is_value(&matrix));
            let each = block.size(matrix.rows, matrix.columns);
            // Widths are bounded by the architecture, so neither product wraps; if one did the group would be left out.
            if let (Ok(parameters), Some(bytes)) =
                (u64::try_from(matrix.parameters()), each.and_then(|each| each.checked_mul(matrix.matrices)))
            {
                let shape = (matrix.rows, matrix.columns);
                let _ = groups.add(matrix.class, block, shape, matrix.matrices, parameters, bytes);
            }
        }
        groups.finish()
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

/// A format's key, or one of the mixes that have no format of their own (`q3_k_l`).
impl FromStr for Recipe {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let wanted = name.to_ascii_lowercase();
        if let Ok(format) = wanted.parse() {
            return Ok(Self::of(format));
        }
        Self::all().find(|recipe| recipe.key() == wanted).ok_or_else(|| {
            let near = Near::of(name, Self::all().map(Self::key));
            UnknownName { what: "format", name: name.chars().take(40).collect(), near }
        })
    }
}

/// What the mixes look at beside the matrix itself.
struct Traits {
    layers: usize,
    experts: u64,
    group: u64,
    values: usize,
}

impl Traits {
    fn of(architecture: &Architecture) -> Self {
        let group = architecture.layers.iter().find_map(|layer| match layer.mixer {
            Mixer::Attention(a) => Some(a.heads / a.kv_heads.max(1)),
            _ => None,
        });
        let experts = architecture.layers.iter().find_map(|layer| match layer.feed_forward {
            super::architecture::FeedForward::Experts { experts, .. } => Some(experts),
            _ => None,
        });
        Self {
            layers: architecture.layers.len(),
            experts: experts.unwrap_or(0),
            group: group.unwrap_or(1),
            values: architecture.matrices().iter().filter(|matrix| is_value(matrix)).count(),
        }
    }

    /// llama.cpp calls every model of 80 layers with grouped heads "70B", and gives its narrow value projections more.
    const fn is_70b(&self) -> bool {
        self.layers == 80 && self.group > 1
    }
}

/// Projections that llama.cpp treats as values: `attn_v`, the fused input of linear attention, the latent's `kv_b`.
const fn is_value(matrix: &Matrix) -> bool {
    matches!(
        (matrix.class, matrix.part),
        (Class::AttentionV, _) | (Class::LinearMixer | Class::AttentionLatent, Part::Up)
    )
}

fn checkpoint_block(format: WeightFormat, matrix: &Matrix, traits: &Traits) -> Block {
    let block = Block::of(format);
    if block.is_plain() {
        return block;
    }
    let quantised = match matrix.class {
        Class::Expert | Class::SharedExpert => true,
        Class::Mlp
        | Class::AttentionQ
        | Class::AttentionK
        | Class::AttentionV
        | Class::AttentionLatent
        | Class::AttentionOut
        | Class::LinearMixer => !(format == WeightFormat::Mxfp4 && traits.experts > 0),
        _ => false,
    };
    if quantised && matrix.part != Part::Small { block } else { Block::Bf16 }
}

/// The first eighth of the layers, the last, and every third between.
const fn more_bits(index: usize, count: usize) -> bool {
    index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2
}

fn gguf_block(mix: Mix, matrix: &Matrix, traits: &Traits, value: usize) -> Block {
    if matrix.part == Part::Small {
        return Block::F32;
    }
    let base = mix.base();
    if base.is_plain() {
        return base;
    }
    let block = match matrix.class {
        Class::Head => head_block(mix, matrix),
        _ if mix == Mix::Mxfp4Moe => {
            if matrix.matrices > 1 {
                Block::Mxfp4
            } else {
                Block::Q8_0
            }
        }
        Class::Embedding => embedding_block(mix),
        _ if is_value(matrix) => value_block(mix, traits, value),
        Class::AttentionK | Class::AttentionQ => query_key_block(mix, matrix.class, traits),
        Class::AttentionOut => output_block(mix, traits),
        Class::Mlp | Class::Expert | Class::SharedExpert => {
            feed_forward_block(mix, matrix.part, matrix.layer.unwrap_or(0), traits)
        }
        _ => base,
    };
    fallback(block, matrix.columns)
}

/// Codebook mixes below three bits, which share most rules.
const fn is_tiny(mix: Mix) -> bool {
    matches!(mix, Mix::Iq1S | Mix::Iq1M | Mix::Iq2Xxs | Mix::Iq2Xs | Mix::Iq2S | Mix::Iq2M)
}

const fn is_2s_or_2m(mix: Mix) -> bool {
    matches!(mix, Mix::Iq2S | Mix::Iq2M)
}

fn head_block(mix: Mix, matrix: &Matrix) -> Block {
    match mix {
        Mix::Q8_0 | Mix::Mxfp4Moe => Block::Q8_0,
        // Publishers of one- and two-bit models store every matrix so.
        Mix::Q1_0 | Mix::Q2_0 => mix.base(),
        _ if !matrix.columns.is_multiple_of(mix.base().elements()) => Block::Q8_0,
        Mix::Iq3Xxs => Block::Q5K,
        _ if is_tiny(mix) => Block::Q5K,
        _ => Block::Q6K,
    }
}

const fn embedding_block(mix: Mix) -> Block {
    match mix {
        Mix::Iq2Xxs | Mix::Iq2Xs | Mix::Iq1S | Mix::Iq1M => Block::Q2K,
        Mix::Iq2S | Mix::Iq2M | Mix::Iq3Xxs => Block::Iq3S,
        Mix::Tq1_0 | Mix::Tq2_0 => Block::Q4K,
        _ => mix.base(),
    }
}

fn value_block(mix: Mix, traits: &Traits, index: usize) -> Block {
    let grouped = traits.group >= 4;
    if is_tiny(mix) {
        return match () {
            () if grouped || traits.experts >= 4 => Block::Q4K,
            () if is_2s_or_2m(mix) => Block::Iq3S,
            () => Block::Q2K,
        };
    }
    let block = match mix {
        Mix::Q2K if grouped => Block::Q4K,
        Mix::Q2K => Block::Q3K,
        Mix::Q2KS | Mix::Iq3Xxs | Mix::Iq3Xs | Mix::Iq3S if grouped => Block::Q4K,
        Mix::Iq3M => Block::Q4K,
        Mix::Q3KM if index < 2 => Block::Q5K,
        Mix::Q3KM => Block::Q4K,
        Mix::Q3KL => Block::Q5K,
        Mix::Iq4Nl | Mix::Iq4Xs if grouped => Block::Q5K,
        Mix::Q4KM | Mix::Q5KM if more_bits(index, traits.values) => Block::Q6K,
        Mix::Q4KS if index < 4 => Block::Q5K,
        _ => mix.base(),
    };
    match block {
        _ if traits.experts == 8 => Block::Q8_0,
        Block::Q3K | Block::Q4K if traits.is_70b() => Block::Q5K,
        _ => block,
    }
}

const fn query_key_block(mix: Mix, class: Class, traits: &Traits) -> Block {
    if traits.experts == 8 && matches!(class, Class::AttentionK) {
        return if is_tiny(mix) { Block::Q4K } else { Block::Q8_0 };
    }
    match mix {
        Mix::Iq3Xs => Block::Iq3Xxs,
        Mix::Iq3Xxs => Block::Iq2S,
        _ => mix.base(),
    }
}

const fn output_block(mix: Mix, traits: &Traits) -> Block {
    if traits.experts == 8 {
        return match mix {
            Mix::Q2K
            | Mix::Iq3Xs
            | Mix::Iq3Xxs
            | Mix::Q3KS
            | Mix::Q3KM
            | Mix::Iq4Nl
            | Mix::Q4KS
            | Mix::Q4KM
            | Mix::Iq3S
            | Mix::Iq3M
            | Mix::Iq4Xs => Block::Q5K,
            _ if is_tiny(mix) => Block::Q5K,
            _ => mix.base(),
        };
    }
    match mix {
        Mix::Q2K => Block::Q3K,
        Mix::Q3KM | Mix::Iq3M => Block::Q4K,
        Mix::Q3KL => Block::Q5K,
        Mix::Iq3Xxs | Mix::Iq2S | Mix::Iq2M => Block::Iq3S,
        Mix::Iq1S | Mix::Iq1M => Block::Iq2Xxs,
        _ => mix.base(),
    }
}

const fn feed_forward_block(mix: Mix, part: Part, index: usize, traits: &Traits) -> Block {
    let (layers, first) = (traits.layers, index < traits.layers / 8);
    if !matches!(part, Part::Down) {
        let middle = index >= layers / 8 && index < 7 * layers / 8;
        return if matches!(mix, Mix::Iq3Xs) && middle { Block::Iq3Xxs } else { mix.base() };
    }
    match mix {
        Mix::Iq2S | Mix::Iq2M if first => Block::Iq3S,
        Mix::Iq1S | Mix::Iq1M | Mix::Iq2Xxs | Mix::Iq2Xs if first => Block::Q2K,
        Mix::Q2K => Block::Q3K,
        Mix::Q2KS if first => Block::Q4K,
        Mix::Q3KM if index < layers / 16 => Block::Q5K,
        Mix::Q3KM => Block::Q4K,
        Mix::Iq3M if first || (traits.experts == 8 && more_bits(index, layers)) => Block::Q4K,
        Mix::Q3KL => Block::Q5K,
        Mix::Q4KM | Mix::Q5KM if more_bits(index, layers) => Block::Q6K,
        // Without an importance matrix IQ4 mixes would give the first eighth Q5_K, and IQ3_XXS every down projection Q4_K or
        // Q3_K: published files are made with one.
        Mix::Q4KS if first => Block::Q5K,
        _ => mix.base(),
    }
}

/// Rows that are no whole number of super-blocks get a type with blocks of 32, and 16 bits where even that fails.
const fn fallback(block: Block, columns: u64) -> Block {
    if columns.is_multiple_of(block.elements()) {
        return block;
    }
    let smaller = match block {
        Block::Q2K | Block::Q3K | Block::Tq1_0 | Block::Tq2_0 | Block::Q2_0 => Block::Q4_0,
        Block::Q4K => Block::Q5_0,
        Block::Q5K => Block::Q5_1,
        Block::Q6K => Block::Q8_0,
        _ => Block::Iq4Nl,
    };
    if columns.is_multiple_of(smaller.elements()) { smaller } else { Block::F16 }
}
