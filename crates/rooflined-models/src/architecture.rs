//! What a transformer is made of, layer by layer, and the matrices that follow.
//!
//! `config/families` says how an [`Architecture`], in which every layer stands for itself, follows from what a file says.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::allocation::Allocation;
use super::class::Class;
use rooflined_core::precision::WeightFormat;

/// Most layers of a model.
pub const MAX_LAYERS: usize = 4096;
/// Largest width, vocabulary or count: products of two fit 64 bits.
pub const MAX_WIDTH: u64 = 1 << 28;

/// An architecture that cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidModel {
    /// Zero, or beyond what any model has.
    #[error("{field} is {value}; it must lie between 1 and {MAX_WIDTH}")]
    Dimension { field: &'static str, value: u64 },
    /// Too many layers or none.
    #[error("layers is {0}; it must lie between 1 and {MAX_LAYERS}")]
    Layers(u64),
    /// Query heads must be a whole multiple of key/value heads.
    #[error(
        "heads is {heads} and kv_heads is {kv_heads}: query heads must be a whole multiple of key/value heads"
    )]
    HeadGroups { heads: u64, kv_heads: u64 },
    /// Without `head_dim` the width is divided among the heads.
    #[error("hidden is {hidden}, which {heads} heads do not divide, and there is no head_dim")]
    HeadDim {
        /// Model width.
        hidden: u64,
        heads: u64,
    },
    /// A token cannot pass more experts than there are.
    #[error("active_experts is {active} of {experts} experts")]
    ActiveExperts {
        /// Experts a token passes.
        active: u64,
        /// Experts of a layer.
        experts: u64,
    },
}

impl InvalidModel {
    /// The field to look at.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Dimension { field, .. } => field,
            Self::Layers(_) => "layers",
            Self::HeadGroups { .. } => "kv_heads",
            Self::HeadDim { .. } => "head_dim",
            Self::ActiveExperts { .. } => "active_experts",
        }
    }
}

/// Heads of softmax attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    pub heads: u64,
    /// Key/value heads: `heads` = MHA, 1 = MQA, between = GQA.
    pub kv_heads: u64,
    /// Width of a query and key head.
    pub head_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Sliding window; `None` = the whole context.
    pub window: Option<u64>,
    /// The query projection is twice as wide: half of it gates the output.
    pub output_gate: bool,
    /// Keys serve as values: there is no value projection.
    pub shared_kv: bool,
    /// Where its keys and values are kept.
    #[serde(default, skip_serializing_if = "Cache::is_own")]
    pub cache: Cache,
}

/// Where a layer of attention keeps its keys and values between passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    #[default]
    Own,
    /// In that of an earlier layer: there is neither a key nor a value projection.
    Reused,
    /// Nowhere: an encoder sees all tokens at once.
    None,
}

impl Cache {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    const fn is_own(&self) -> bool {
        matches!(self, Self::Own)
    }
}

/// Multi-head latent attention: the cache holds one compressed vector a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Latent {
    pub heads: u64,
    /// Rank of the query's factors; absent = one matrix.
    #[serde(default)]
    pub q_rank: Option<u64>,
    /// Rank of the compressed key/value.
    pub kv_rank: u64,
    /// Width of a head's part without position.
    pub nope_dim: u64,
    /// Width of the shared part that carries the position.
    pub rope_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Sliding window; absent = the whole context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Tokens behind the window of which one vector is kept; absent = none are kept behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<u64>,
    /// Width of the key by which an indexer chooses tokens, kept of every token; 0 without an indexer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub index_dim: u64,
}

impl Latent {
    /// Of `all` tokens or pairs of them, `in_window` of which lie in the window, those for which a vector is kept.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates of compression are small")]
    pub fn kept(&self, all: f64, in_window: f64) -> f64 {
        in_window + self.compression.map_or(0.0, |compression| all / compression.max(1) as f64)
    }
}

/// A mixer whose state does not grow with the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Linear {
    /// Gated delta rule: a matrix of `key_dim x value_dim` for every value head.
    DeltaNet {
        key_heads: u64,
        value_heads: u64,
        /// Width of a key head.
        key_dim: u64,
        /// Width of a value head.
        value_dim: u64,
        /// Taps of the short convolution.
        kernel: u64,
    },
    /// State space (Mamba-2): a matrix of `head_dim x state` for every head.
    Mamba2 {
        heads: u64,
        head_dim: u64,
        /// Width of the state.
        state: u64,
        /// Groups that share B and C.
        groups: u64,
        /// Taps of the short convolution.
        kernel: u64,
    },
    /// A gated short convolution over the width of the model.
    ShortConvolution {
        /// Taps.
        kernel: u64,
    },
    /// Anything else, known by the size of its state only.
    Other {
        /// Bytes of the state of one sequence in one layer.
        state_bytes: u64,
    },
}

impl Linear {
    /// Bytes of the state of one sequence in one layer of a model `hidden` wide: matrices in fp32, and the last inputs of the
    /// convolution as the engine keeps them.
    #[must_use]
    pub const fn state_bytes(&self, hidden: u64, allocation: Allocation) -> u64 {
        match *self {
            Self::DeltaNet { key_heads, value_heads, key_dim, value_dim, kernel } => {
                value_heads * key_dim * value_dim * 4
                    + allocation.convolution_bytes(2 * key_heads * key_dim + value_heads * value_dim, kernel)
            }
            Self::Mamba2 { heads, head_dim, state, groups, kernel } => {
                heads * head_dim * state * 4
                    + allocation.convolution_bytes(heads * head_dim + 2 * groups * state, kernel)
            }
            Self::ShortConvolution { kernel } => allocation.convolution_bytes(hidden, kernel),
            Self::Other { state_bytes } => state_bytes,
        }
    }

    /// Operations of one token in one layer beside its matrices. Delta rule: decay, read by key, write, read by
    /// query, 7 for every element of the state; state space: decay, write, read, 5; convolution: 2 for every tap.
    #[must_use]
    pub const fn work_per_token(&self, hidden: u64) -> u64 {
        match *self {
            Self::DeltaNet { value_heads, key_dim, value_dim, .. } => 7 * value_heads * key_dim * value_dim,
            Self::Mamba2 { heads, head_dim, state, .. } => 5 * heads * head_dim * state,
            Self::ShortConvolution { kernel } => 2 * hidden * kernel,
            Self::Other { state_bytes } => 7 * (state_bytes / 4),
        }
    }
}

/// What mixes tokens in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    Attention(Attention),
    Latent(Latent),
    /// A state of fixed size.
    Linear(Linear),
    /// Nothing.
    None,
}

/// What follows the mixer in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForward {
    /// Nothing.
    None,
    /// Every token passes all of it.
    Dense {
        /// Inner width.
        intermediate: u64,
    },
    /// A token passes `active` of the experts and what is shared.
    Experts {
        experts: u64,
        /// Experts that a token passes.
        active: u64,
        /// Inner width of one expert.
        intermediate: u64,
        /// Inner width of what every token passes beside them, 0 where there is none.
        shared_intermediate: u64,
        /// The shared part has a gate of its own.
        shared_gate: bool,
        /// Width of what an expert takes and gives, 0 where it is that of the model.
        #[serde(default, skip_serializing_if = "is_zero")]
        width: u64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    /// What mixes tokens.
    pub mixer: Mixer,
    pub feed_forward: FeedForward,
}

/// A transformer, layer by layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Architecture {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the embedding table.
    pub vocab: u64,
    /// Every layer in order.
    pub layers: Vec<Layer>,
    /// Feed-forwards have a gate beside their up projection: three matrices instead of two.
    pub gated_mlp: bool,
    /// The embedding table serves as head.
    pub tied_embeddings: bool,
    /// Longest context the model was made for; `None` where nobody says.
    pub context_tokens: Option<u64>,
    /// Where its matrices are not those that follow from the layers.
    #[serde(skip)]
    pub departures: Departures,
}

/// Where the matrices of a model are not those that follow from its layers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Departures {
    /// Matrices beside the others.
    pub extra: Vec<Matrix>,
    /// The extra matrices are all that mixers have.
    pub explicit_mixers: bool,
    /// Columns of the embedding table and of the head; 0 where they are as wide as the model.
    pub table_width: u64,
    pub head_width: u64,
    /// Rows of the embedding table beyond the vocabulary.
    pub more_rows: u64,
    /// There is no head: the model does not generate text.
    pub headless: bool,
    /// It scores documents.
    pub ranks: bool,
    /// What its checkpoint was made to keep the cache in; `None` where it says nothing.
    pub kv_format: Option<WeightFormat>,
}

const fn dimension(field: &'static str, value: u64) -> Result<u64, InvalidModel> {
    if value >= 1 && value <= MAX_WIDTH { Ok(value) } else { Err(InvalidModel::Dimension { field, value }) }
}

impl Layer {
    /// Whether there can be such a layer.
    pub(super) fn check(&self) -> Result<(), InvalidModel> {
        match &self.mixer {
            Mixer::None => {}
            Mixer::Attention(attention) => {
                let Attention { heads, kv_heads, head_dim, value_dim, window, .. } = *attention;
                dimension("heads", heads)?;
                dimension("kv_heads", kv_heads)?;
                dimension("head_dim", head_dim)?;
                dimension("value_dim", value_dim)?;
                dimension("window", window.unwrap_or(1))?;
                if heads % kv_heads != 0 {
                    return Err(InvalidModel::HeadGroups { heads, kv_heads });
                }
            }
            Mixer::Latent(latent) => check_latent(latent)?,
            Mixer::Linear(Linear::Other { state_bytes }) => {
                dimension("state_bytes", *state_bytes)?;
            }
            Mixer::Linear(linear) => check_linear(linear)?,
        }
        match self.feed_forward {
            FeedForward::None => {}
            FeedForward::Dense { intermediate } => {
                dimension("intermediate", intermediate)?;
            }
            FeedForward::Experts { experts, active, intermediate, shared_intermediate, .. } => {
                dimension("experts", experts)?;
                dimension("active_experts", active)?;
                dimension("expert_intermediate", intermediate)?;
                if shared_intermediate > MAX_WIDTH {
                    return Err(InvalidModel::Dimension {
                        field: "shared_intermediate",
                        value: shared_intermediate,
                    });
                }
                if active > experts {
                    return Err(InvalidModel::ActiveExperts { active, experts });
                }
            }
        }
        Ok(())
    }
}

impl Architecture {
    /// Whether there can be such a model.
    pub(super) fn check(&self) -> Result<(), InvalidModel> {
        dimension("hidden", self.hidden)?;
        dimension("vocab", self.vocab)?;
        dimension("context_tokens", self.context_tokens.unwrap_or(1))?;
        if !(1..=MAX_LAYERS).contains(&self.layers.len()) {
            return Err(InvalidModel::Layers(self.layers.len() as u64));
        }
        self.layers.iter().try_for_each(Layer::check)
    }
}

fn check_latent(latent: &Latent) -> Result<(), InvalidModel> {
    dimension("heads", latent.heads)?;
    dimension("q_rank", latent.q_rank.unwrap_or(1))?;
    dimension("kv_rank", latent.kv_rank)?;
    dimension("nope_dim", latent.nope_dim)?;
    dimension("rope_dim", latent.rope_dim)?;
    dimension("value_dim", latent.value_dim)?;
    dimension("window", latent.window.unwrap_or(1))?;
    dimension("compression", latent.compression.unwrap_or(1))?;
    dimension("index_dim", latent.index_dim.max(1))?;
    Ok(())
}

/// States are products of three: each factor is held to what keeps them far from 64 bits.
fn check_linear(linear: &Linear) -> Result<(), InvalidModel> {
    const MAX_FACTOR: u64 = 1 << 18;
    let check = |fields: &[(&'static str, u64)]| {
        fields
            .iter()
            .find(|(_, value)| !(1..=MAX_FACTOR).contains(value))
            .map_or(Ok(()), |&(field, value)| Err(InvalidModel::Dimension { field, value }))
    };
    match *linear {
        Linear::DeltaNet { key_heads, value_heads, key_dim, value_dim, kernel } => check(&[
            ("key_heads", key_heads),
            ("value_heads", value_heads),
            ("key_dim", key_dim),
            ("value_dim", value_dim),
            ("kernel", kernel),
        ]),
        Linear::Mamba2 { heads, head_dim, state, groups, kernel } => check(&[
            ("heads", heads),
            ("head_dim", head_dim),
            ("state", state),
            ("groups", groups),
            ("kernel", kernel),
        ]),
        Linear::ShortConvolution { kernel } => check(&[("kernel", kernel)]),
        Linear::Other { .. } => Ok(()),
    }
}

/// Which of the matrices of its class a matrix is: mixes of formats tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Gate,
    Up,
    Down,
    /// The only one, or none of these.
    Whole,
    /// A vector or a small convolution, never quantised.
    Small,
}

/// A matrix of the model: `matrices` of `rows x columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    pub class: Class,
    pub part: Part,
    /// Its layer; `None` for embedding, head and last norm.
    pub layer: Option<usize>,
    /// Length of the output.
    pub rows: u64,
    /// Length of the input: what is stored contiguously.
    pub columns: u64,
    /// How many of them: experts.
    pub matrices: u64,
}

impl Architecture {
    /// Every matrix of the model.
    #[must_use]
    pub fn matrices(&self) -> Vec<Matrix> {
        let mut all = Vec::with_capacity(self.layers.len() * 10 + 3);
        let whole = |class, rows, columns| Matrix {
            class,
            part: Part::Whole,
            layer: None,
            rows,
            columns,
            matrices: 1,
        };
        let beside = &self.departures;
        let wide = |width: u64| if width > 0 { width } else { self.hidden };
        let is_head = self.tied_embeddings && !beside.headless;
        let table = if is_head { Class::Head } else { Class::Embedding };
        all.push(whole(table, self.vocab + beside.more_rows, wide(beside.table_width)));
        if !is_head && !beside.headless {
            all.push(whole(Class::Head, self.vocab, wide(beside.head_width)));
        }
        all.push(Matrix { part: Part::Small, ..whole(Class::Norm, 1, self.hidden) });
        for (index, layer) in self.layers.iter().enumerate() {
            let mut add = |class, part, rows, columns, matrices| {
                all.push(Matrix { class, part, layer: Some(index), rows, columns, matrices });
            };
            if !beside.explicit_mixers {
                mixer_matrices(self.hidden, &layer.mixer, &mut add);
            }
            feed_forward_matrices(self.hidden, self.gated_mlp, layer.feed_forward, &mut add);
        }
        all.extend_from_slice(&beside.extra);
        all
    }

    /// Weights of the model.
    #[must_use]
    pub fn parameters(&self) -> u128 {
        self.matrices().iter().map(Matrix::parameters).sum()
    }
}

impl Matrix {
    #[must_use]
    pub fn parameters(&self) -> u128 {
        u128::from(self.rows) * u128::from(self.columns) * u128::from(self.matrices)
    }
}

type Add<'a> = &'a mut dyn FnMut(Class, Part, u64, u64, u64);

fn mixer_matrices(hidden: u64, mixer: &Mixer, add: Add<'_>) {
    if !matches!(mixer, Mixer::None) {
        add(Class::Norm, Part::Small, 1, hidden, 1);
    }
    match *mixer {
        Mixer::None => {}
        Mixer::Attention(a) => {
            let gate = if a.output_gate { 2 } else { 1 };
            add(Class::AttentionQ, Part::Whole, gate * a.heads * a.head_dim, hidden, 1);
            if a.cache != Cache::Reused {
                add(Class::AttentionK, Part::Whole, a.kv_heads * a.head_dim, hidden, 1);
            }
            if !a.shared_kv && a.cache != Cache::Reused {
                add(Class::AttentionV, Part::Whole, a.kv_heads * a.value_dim, hidden, 1);
            }
            add(Class::AttentionOut, Part::Whole, hidden, a.heads * a.value_dim, 1);
        }
        Mixer::Latent(l) => {
            let query = l.heads * (l.nope_dim + l.rope_dim);
            match l.q_rank {
                Some(rank) => {
                    add(Class::AttentionQ, Part::Down, rank, hidden, 1);
                    add(Class::AttentionQ, Part::Up, query, rank, 1);
                }
                None => add(Class::AttentionQ, Part::Whole, query, hidden, 1),
            }
            add(Class::AttentionLatent, Part::Down, l.kv_rank + l.rope_dim, hidden, 1);
            add(Class::AttentionLatent, Part::Up, l.heads * (l.nope_dim + l.value_dim), l.kv_rank, 1);
            add(Class::AttentionOut, Part::Whole, hidden, l.heads * l.value_dim, 1);
        }
        Mixer::Linear(linear) => linear_matrices(hidden, &linear, add),
    }
}

fn linear_matrices(hidden: u64, linear: &Linear, add: Add<'_>) {
    let class = Class::LinearMixer;
    match *linear {
        Linear::DeltaNet { key_heads, value_heads, key_dim, value_dim, kernel } => {
            let (mixed, values) =
                (2 * key_heads * key_dim + value_heads * value_dim, value_heads * value_dim);
            // The fused input is the part that mixes of formats treat like a value projection.
            add(class, Part::Up, mixed, hidden, 1);
            add(class, Part::Gate, values, hidden, 1);
            // beta and alpha
            add(class, Part::Whole, 2 * value_heads, hidden, 1);
            add(class, Part::Small, mixed, kernel, 1);
            add(class, Part::Small, 1, 2 * value_heads + value_dim, 1);
            add(class, Part::Down, hidden, values, 1);
        }
        Linear::Mamba2 { heads, head_dim, state, groups, kernel } => {
            let (inner, mixed) = (heads * head_dim, heads * head_dim + 2 * groups * state);
            add(class, Part::Whole, inner + mixed + heads, hidden, 1);
            add(class, Part::Small, mixed, kernel, 1);
            add(class, Part::Small, 1, 3 * heads + inner, 1);
            add(class, Part::Down, hidden, inner, 1);
        }
        Linear::ShortConvolution { kernel } => {
            add(class, Part::Whole, 3 * hidden, hidden, 1);
            add(class, Part::Small, hidden, kernel, 1);
            add(class, Part::Down, hidden, hidden, 1);
        }
        Linear::Other { .. } => {}
    }
}

fn feed_forward_matrices(hidden: u64, gated: bool, feed_forward: FeedForward, add: Add<'_>) {
    let mut block = |class, intermediate, width, matrices| {
        if gated {
            add(class, Part::Gate, intermediate, width, matrices);
        }
        add(class, Part::Up, intermediate, width, matrices);
        add(class, Part::Down, width, intermediate, matrices);
    };
    match feed_forward {
        FeedForward::None => return,
        FeedForward::Dense { intermediate } => block(Class::Mlp, intermediate, hidden, 1),
        FeedForward::Experts { experts, intermediate, shared_intermediate, shared_gate, width, .. } => {
            block(Class::Expert, intermediate, if width > 0 { width } else { hidden }, experts);
            if shared_intermediate > 0 {
                block(Class::SharedExpert, shared_intermediate, hidden, 1);
            }
            add(Class::Router, Part::Small, experts, hidden, 1);
            if shared_gate {
                add(Class::Router, Part::Small, 1, hidden, 1);
            }
        }
    }
    add(Class::Norm, Part::Small, 1, hidden, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama-3-8B.
    fn llama() -> Architecture {
        let attention = Attention {
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            value_dim: 128,
            window: None,
            output_gate: false,
            shared_kv: false,
            cache: Cache::Own,
        };
        let layer = Layer {
            mixer: Mixer::Attention(attention),
            feed_forward: FeedForward::Dense { intermediate: 14336 },
        };
        Architecture {
            hidden: 4096,
            vocab: 128_256,
            layers: vec![layer; 32],
            gated_mlp: true,
            tied_embeddings: false,
            context_tokens: Some(8192),
            departures: Departures::default(),
        }
    }

    #[test]
    fn parameters_are_the_sum_of_the_matrices() {
        let layer = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096;
        let expected = 32 * layer + 2 * 128_256 * 4096 + 4096;
        assert_eq!(llama().parameters(), expected);
    }

    #[test]
    fn a_tied_table_counts_once_and_is_the_head() {
        let tied = Architecture { tied_embeddings: true, ..llama() };
        assert_eq!(llama().parameters() - tied.parameters(), 128_256 * 4096);
        assert!(tied.matrices().iter().all(|matrix| matrix.class != Class::Embedding));
        assert_eq!(tied.matrices().iter().filter(|matrix| matrix.class == Class::Head).count(), 1);
    }

    #[test]
    fn contradictions_name_their_field() {
        let field = |change: &dyn Fn(&mut Architecture)| {
            let mut changed = llama();
            change(&mut changed);
            changed.check().unwrap_err().field()
        };
        let attention = |change: &dyn Fn(&mut Attention)| {
            field(&|changed| {
                let Mixer::Attention(attention) = &mut changed.layers[3].mixer else { panic!() };
                change(attention);
            })
        };
        assert_eq!(attention(&|attention| attention.kv_heads = 5), "kv_heads");
        assert_eq!(attention(&|attention| attention.kv_heads = 0), "kv_heads");
        assert_eq!(attention(&|attention| attention.head_dim = 0), "head_dim");
        assert_eq!(attention(&|attention| attention.window = Some(0)), "window");
        assert_eq!(field(&|changed| changed.hidden = 0), "hidden");
        assert_eq!(field(&|changed| changed.vocab = u64::MAX), "vocab");
        assert_eq!(field(&|changed| changed.layers.clear()), "layers");
        let dense = FeedForward::Dense { intermediate: 0 };
        assert_eq!(field(&|changed| changed.layers[0].feed_forward = dense), "intermediate");
        let experts = FeedForward::Experts {
            experts: 8,
            active: 9,
            intermediate: 100,
            shared_intermediate: 0,
            shared_gate: false,
            width: 0,
        };
        assert_eq!(field(&|changed| changed.layers[0].feed_forward = experts), "active_experts");
    }

    #[test]
    fn states_have_the_published_sizes() {
        // Qwen3.5-35B-A3B: 126 MB read and written a step, 30 layers, without the convolution
        let linear =
            Linear::DeltaNet { key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128, kernel: 4 };
        let matrices = 32 * 128 * 128 * 4;
        assert_eq!(2 * 30 * matrices, 125_829_120);
        assert_eq!(linear.state_bytes(2048, Allocation::Exact), matrices + (2 * 16 * 128 + 32 * 128) * 4 * 2);
        // llama.cpp: Qwen3.5 has 3 taps of 8192 channels in fp32.
        assert_eq!(linear.state_bytes(2048, Allocation::LlamaCpp), matrices + 8192 * 3 * 4);
        // LFM2.5-350M: 12288 bytes read and written
        assert_eq!(2 * Linear::ShortConvolution { kernel: 3 }.state_bytes(1024, Allocation::Exact), 12288);
    }
}
