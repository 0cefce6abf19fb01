//! A model as a workload: its architecture, and its weights grouped by use, shape and storage.
//!
//! Weights come from the tensor table of a file, which is exact, or from an architecture and a recipe.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Room};
use super::architecture::{Architecture, Attention, Cache, FeedForward, Mixer};
use super::block::Block;
use super::class::Class;
pub use super::routing::Routing;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;

/// Weights of one class that are stored and shaped alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightGroup {
    pub class: Class,
    pub block: Block,
    /// Length of the output of one matrix.
    pub rows: u64,
    /// Length of its input.
    pub columns: u64,
    /// Matrices of this shape, every expert of every layer counted.
    pub matrices: u64,
    pub parameters: u64,
    /// Bytes with scales, zero points and padding.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    pub name: String,
    /// The family that its file names: `llama`, `qwen3moe`.
    pub family: String,
    pub architecture: Architecture,
    pub weights: Vec<WeightGroup>,
    /// What the file says it was quantised to.
    pub label: Option<String>,
    /// What a reader should know before relying on the figures.
    pub warnings: Vec<String>,
    /// What drafts tokens for it.
    #[serde(skip)]
    pub drafting: Drafting,
}

/// What drafts for a model, or could.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drafting {
    /// Weights of the head that a model was published with, where its own weights do not hold them.
    pub head: Vec<WeightGroup>,
    pub by: Option<Arc<Drafter>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Drafter {
    pub model: Model,
    /// Its weights beside those of the model that it drafts for.
    pub loaded: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClassTotal {
    pub class: Class,
    pub parameters: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Bytes that one token reads.
    pub bytes_per_token: f64,
    /// Bits per weight with everything stored beside them; `None` without weights.
    pub bits_per_weight: Option<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "sizes of models stay far below 2^53")]
const fn f(value: u64) -> f64 {
    value as f64
}

impl Model {
    /// Weights of the model, towers and drafts included.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.weights.iter().map(|group| group.parameters).sum()
    }

    /// Weights that one token passes: no embedding unless it is the head, and the chosen experts only.
    #[must_use]
    pub fn active_parameters(&self) -> f64 {
        self.weights.iter().map(|group| f(group.parameters) * self.share_read(group.class, 1.0)).sum()
    }

    /// Bytes of all weights.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(f(self.weights.iter().map(|group| group.bytes).sum()))
    }

    /// Bytes of weights that a step of one token reads.
    #[must_use]
    pub fn bytes_per_token(&self) -> Bytes {
        Bytes(self.weights.iter().map(|group| f(group.bytes) * self.share_read(group.class, 1.0)).sum())
    }

    /// Share of a class that a step of `tokens` tokens reads; a table that is no head is read a row at a time, which
    /// counts as nothing.
    #[must_use]
    pub fn share_read(&self, class: Class, tokens: f64) -> f64 {
        match class {
            Class::Expert => self.routing().map_or(1.0, |routing| routing.share_read(tokens)),
            class if class.read_whole() => 1.0,
            _ => 0.0,
        }
    }

    /// How tokens are spread over experts; `None` for a dense model.
    #[must_use]
    pub fn routing(&self) -> Option<Routing> {
        self.architecture.layers.iter().find_map(|layer| match layer.feed_forward {
            FeedForward::Experts { experts, active, .. } => Some(Routing { experts, active }),
            FeedForward::None | FeedForward::Dense { .. } => None,
        })
    }

    /// Whether it embeds, labels or ranks documents, and generates no text.
    #[must_use]
    pub fn is_encoder(&self) -> bool {
        let is_encoding =
            |mixer: &Mixer| matches!(mixer, Mixer::Attention(Attention { cache: Cache::None, .. }));
        self.architecture.layers.iter().any(|layer| is_encoding(&layer.mixer))
    }

    /// Bytes that one more token adds to the cache while no window is full.
    #[must_use]
    pub fn kv_bytes_per_token(&self, format: WeightFormat) -> Bytes {
        self.kv_cache(1, format)
    }

    /// Bytes of the cache of one sequence with `tokens` tokens: keys and values, or the latent and the position part
    /// (MLA), of every layer; layers with a window hold no more than it.
    #[must_use]
    pub fn kv_cache(&self, tokens: u64, format: WeightFormat) -> Bytes {
        format.bytes(self.architecture.layers.iter().map(|layer| layer.mixer.cached_elements(tokens)).sum())
    }

    /// Bytes that an engine sets aside for the cache of one sequence.
    #[must_use]
    pub fn allocated_cache(&self, format: WeightFormat, room: &Room) -> Bytes {
        let elements = |mixer: Mixer| mixer.elements_kept(room.tokens, |window| room.in_window(window));
        format.bytes(self.architecture.layers.iter().map(|layer| elements(layer.mixer)).sum())
    }

    /// Bytes of the states of one sequence in layers whose state does not grow.
    #[must_use]
    pub fn state_bytes(&self, allocation: Allocation) -> Bytes {
        let hidden = self.architecture.hidden;
        Bytes(
            self.architecture
                .layers
                .iter()
                .map(|layer| match layer.mixer {
                    Mixer::Linear(linear) => f(linear.state_bytes(hidden, allocation)),
                    _ => 0.0,
                })
                .sum(),
        )
    }

    /// Bytes of a copy of what one sequence cannot roll back to an earlier token: full windows, and states.
    #[must_use]
    pub fn checkpoint_bytes(&self, format: WeightFormat, allocation: Allocation) -> Bytes {
        let windows = self.architecture.layers.iter().map(|layer| match layer.mixer {
            Mixer::Attention(Attention { window: Some(window), .. }) => layer.mixer.cached_elements(window),
            _ => 0.0,
        });
        format.bytes(windows.sum()) + self.state_bytes(allocation)
    }

    /// Totals by class, in the order of [`Class::ALL`], classes without a tensor left out.
    #[must_use]
    pub fn by_class(&self) -> Vec<ClassTotal> {
        let mut totals: BTreeMap<Class, (u64, u64)> = BTreeMap::new();
        for group in &self.weights {
            let total = totals.entry(group.class).or_default();
            total.0 += group.parameters;
            total.1 += group.bytes;
        }
        totals
            .into_iter()
            .map(|(class, (parameters, bytes))| ClassTotal {
                class,
                parameters,
                bytes,
                bytes_per_token: f(bytes) * self.share_read(class, 1.0),
                bits_per_weight: (parameters > 0).then(|| f(bytes) * 8.0 / f(parameters)),
            })
            .collect()
    }

    /// Weights and bytes that a token reads by storage, most bytes first.
    #[must_use]
    pub fn by_block(&self) -> Vec<(Block, f64, Bytes)> {
        let mut totals: BTreeMap<Block, (f64, f64)> = BTreeMap::new();
        for group in &self.weights {
            let share = self.share_read(group.class, 1.0);
            let total = totals.entry(group.block).or_default();
            total.0 += f(group.parameters) * share;
            total.1 += f(group.bytes) * share;
        }
        let mut all: Vec<_> =
            totals.into_iter().map(|(block, (weights, bytes))| (block, weights, Bytes(bytes))).collect();
        all.sort_by(|a, b| b.2.get().total_cmp(&a.2.get()));
        all
    }
}

impl Mixer {
    /// Elements that the cache of one sequence holds after `tokens` tokens.
    #[must_use]
    pub fn cached_elements(&self, tokens: u64) -> f64 {
        self.elements_kept(tokens, |window| window.min(tokens))
    }

    /// Elements of a cache with room for `tokens` tokens, or for as many as `in_window` makes of a window.
    fn elements_kept(&self, tokens: u64, in_window: impl Fn(u64) -> u64) -> f64 {
        match *self {
            Self::Attention(Attention { cache: Cache::Reused | Cache::None, .. }) => 0.0,
            Self::Attention(a) => {
                let kept = a.window.map_or(tokens, in_window);
                f(kept) * f(a.kv_heads) * f(a.head_dim + a.value_dim)
            }
            Self::Latent(l) => {
                l.kept(f(tokens), f(l.window.map_or(tokens, in_window))) * f(l.kv_rank + l.rope_dim)
                    + f(tokens) * f(l.index_dim)
            }
            Self::Linear(_) | Self::None => 0.0,
        }
    }
}

/// Collects weights into groups.
#[derive(Debug, Default)]
pub struct Grouping {
    groups: BTreeMap<Key, Totals>,
}

/// Class, storage, rows and columns.
type Key = (Class, Block, u64, u64);
/// Matrices, weights and bytes.
type Totals = (u64, u64, u64);

impl Grouping {
    /// Adds `matrices` of `rows x columns`; `None` where a sum does not fit 64 bits.
    pub fn add(
        &mut self,
        class: Class,
        block: Block,
        shape: (u64, u64),
        matrices: u64,
        parameters: u64,
        bytes: u64,
    ) -> Option<()> {
        let sum = self.groups.entry((class, block, shape.0, shape.1)).or_default();
        sum.0 = sum.0.checked_add(matrices)?;
        sum.1 = sum.1.checked_add(parameters)?;
        sum.2 = sum.2.checked_add(bytes)?;
        Some(())
    }

    /// How many distinct groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    #[must_use]
    pub fn finish(self) -> Vec<WeightGroup> {
        self.groups
            .into_iter()
            .map(|((class, block, rows, columns), (matrices, parameters, bytes))| WeightGroup {
                class,
                block,
                rows,
                columns,
                matrices,
                parameters,
                bytes,
            })
            .collect()
    }
}
