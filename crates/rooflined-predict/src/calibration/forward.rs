//! A model as the probe's forward pass runs it: the size and storage of every matrix, and nothing of its values.
//!
//! One step adds a token to every sequence. In each layer: norm, query, key and value projections, rotation, attention
//! over the cache, output projection, residual, norm, gate and up projections, activation, down projection, residual;
//! at the end norm, head and the largest logit. Biases, and the row that is looked up in the embedding table, are left
//! out: they are thousandths of the bytes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::accelerator::Accelerator;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::architecture::{FeedForward, Layer, MAX_WIDTH, Mixer};
use rooflined_models::block::Block;
use rooflined_models::class::Class;
use rooflined_models::model::{Model, WeightGroup};
use rooflined_models::transformer::MAX_TOKENS;

/// Most layers of a model that is run.
pub const MAX_FORWARD_LAYERS: usize = 512;
/// Most sequences of a step: beyond, a pass over the weights for every block of columns is no GEMV any more.
pub const MAX_FORWARD_BATCH: u64 = 64;
/// The same on a GPU: its kernels take so many vectors in one pass over the weights, and engines have others for more.
pub const MAX_GPU_FORWARD_BATCH: u64 = 8;
/// Widest head of the GPU's attention, what its width is a multiple of, and query heads that may share keys.
pub const WIDEST_GPU_HEAD: u64 = 256;
const GPU_HEAD_MULTIPLE: u64 = 32;
pub const LARGEST_GPU_GROUP: u64 = 16;
/// Small kernels of a layer on a GPU, which engines start between products and attention: norm; rotation with the new key
/// and value; residual; norm; activation; residual. And those beside the head: norm, largest logit.
pub const GPU_SMALL_KERNELS_OF_LAYER: u32 = 6;
pub const GPU_SMALL_KERNELS_OF_HEAD: u32 = 2;
/// Kernels of attention on a GPU: parts of the cache, and putting them together.
pub const GPU_ATTENTION_KERNELS: u32 = 2;
/// Storage of keys and values.
pub const FORWARD_KV_CACHE: WeightFormat = WeightFormat::Fp16;

/// A model that the probe can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardModel {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the head.
    pub vocab: u64,
    pub head: WeightFormat,
    /// Every layer in order.
    pub layers: Vec<ForwardLayer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardLayer {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Sliding window; absent = the whole context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Inner width of the feed-forward.
    pub intermediate: u64,
    /// Storage of the query projection.
    pub query: WeightFormat,
    /// Storage of the key projection.
    pub key: WeightFormat,
    /// Storage of the value projection.
    pub value: WeightFormat,
    /// Storage of the output projection.
    pub output: WeightFormat,
    /// Storage of the gate; absent where the feed-forward has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<WeightFormat>,
    /// Storage of the up projection.
    pub up: WeightFormat,
    /// Storage of the down projection.
    pub down: WeightFormat,
}

/// Why the probe cannot run a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotRunnable {
    /// A storage without a kernel.
    #[error(
        "{class} is stored as {block}, for which there is no {} kernel; measurable: {}",
        .accelerator.name(), keys(*.accelerator)
    )]
    Storage {
        /// What the tensors are for.
        class: Class,
        block: Block,
        accelerator: Accelerator,
    },
    /// A layer of another kind.
    #[error("layer {layer} {what}, which the forward pass here does not compute; it can be predicted")]
    Layer {
        /// Which, from 0.
        layer: usize,
        what: &'static str,
    },
    /// The tensors are not those of the architecture.
    #[error("layer {layer} needs a {class} of {rows} x {columns}, and the model has no such tensor left")]
    Missing {
        /// Which, from 0; the head follows the last.
        layer: usize,
        class: Class,
        rows: u64,
        columns: u64,
    },
    /// More layers than are run.
    #[error("{0} layers are more than the {MAX_FORWARD_LAYERS} that are run here; it can be predicted")]
    Layers(usize),
}

fn keys(accelerator: Accelerator) -> String {
    let keys: Vec<_> = accelerator.formats().iter().map(|format| format.key()).collect();
    keys.join(", ")
}

/// A matrix of a layer: rows, columns, storage.
pub type Matrix = (u64, u64, WeightFormat);

impl ForwardLayer {
    /// Width of the queries of one token.
    #[must_use]
    pub const fn query_width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Width of the keys, or values, of one token.
    #[must_use]
    pub const fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Keys that the new token of a sequence sees, its own included.
    #[must_use]
    pub fn keys(&self, context_tokens: u64) -> u64 {
        let all = context_tokens.saturating_add(1);
        self.window.map_or(all, |window| all.min(window.max(1)))
    }

    /// Its matrices in the order of use.
    pub fn matrices(&self, hidden: u64) -> impl Iterator<Item = Matrix> {
        let (q, kv, inner) = (self.query_width(), self.kv_width(), self.intermediate);
        [
            Some((q, hidden, self.query)),
            Some((kv, hidden, self.key)),
            Some((kv, hidden, self.value)),
            Some((hidden, q, self.output)),
            self.gate.map(|gate| (inner, hidden, gate)),
            Some((inner, hidden, self.up)),
            Some((hidden, inner, self.down)),
        ]
        .into_iter()
        .flatten()
    }
}

impl ForwardModel {
    /// What the probe runs of `model` on `accelerator`. Matrices that a file keeps in one tensor (query, key and value; gate and up) are
    /// run one by one, with the same bytes.
    ///
    /// # Errors
    /// A layer of a kind that is not computed here, or a storage without a kernel.
    pub fn new(model: &Model, accelerator: Accelerator) -> Result<Self, NotRunnable> {
        let architecture = &model.architecture;
        if architecture.layers.len() > MAX_FORWARD_LAYERS {
            return Err(NotRunnable::Layers(architecture.layers.len()));
        }
        let mut unassigned = UnassignedTensors { groups: model.weights.clone(), accelerator };
        let layers = architecture
            .layers
            .iter()
            .enumerate()
            .map(|(index, layer)| unassigned.layer(index, layer, architecture.hidden, architecture.gated_mlp))
            .collect::<Result<Vec<_>, _>>()?;
        let head = unassigned.take(layers.len(), Class::Head, architecture.vocab, architecture.hidden)?;
        Ok(Self { hidden: architecture.hidden, vocab: architecture.vocab, head, layers })
    }

    /// Every matrix in the order of use.
    pub fn matrices(&self) -> impl Iterator<Item = Matrix> {
        let layers = self.layers.iter().flat_map(|layer| layer.matrices(self.hidden));
        layers.chain([(self.vocab, self.hidden, self.head)])
    }

    /// Weights of one step.
    #[must_use]
    pub fn weights(&self) -> f64 {
        self.matrices().map(|(rows, columns, _)| f(rows) * f(columns)).sum()
    }

    /// Bytes of the weights, all of which a step reads.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        Bytes(self.matrices().map(|(rows, columns, format)| f(rows) * row_bytes(format, columns)).sum())
    }

    /// Bytes of keys and values that a step reads.
    #[must_use]
    pub fn cache_bytes(&self, batch: u64, context_tokens: u64) -> Bytes {
        let elements: f64 =
            self.layers.iter().map(|layer| 2.0 * f(layer.kv_width()) * f(layer.keys(context_tokens))).sum();
        FORWARD_KV_CACHE.bytes(f(batch) * elements)
    }

    /// Operations of a step: two for every weight and sequence, four for every element of a query and the keys it sees.
    #[must_use]
    pub fn work(&self, batch: u64, context_tokens: u64) -> f64 {
        let attention: f64 = self
            .layers
            .iter()
            .map(|layer| 4.0 * f(layer.query_width()) * f(layer.keys(context_tokens)))
            .sum();
        f(batch) * (2.0 * self.weights() + attention)
    }

    /// Bytes that a step needs at once: weights, caches, and a margin for inputs, outputs and alignment.
    #[must_use]
    pub fn memory(&self, batch: u64, context_tokens: u64, threads: u32) -> Bytes {
        // Every worker starts its share of a matrix on a cache line, and rows are handed out whole.
        let rounding: f64 = self
            .matrices()
            .map(|(_, columns, format)| f64::from(threads) * (row_bytes(format, columns) + 64.0))
            .sum();
        let widest = self.layers.iter().map(|layer| layer.query_width().max(layer.intermediate)).max();
        let inputs = f(batch) * (8.0 * f(self.hidden) + 8.0 * f(widest.unwrap_or(0)) + f(self.vocab));
        let quantised = f64::from(threads) * 4.0 * f(batch) * f(widest.unwrap_or(0).max(self.hidden) + 512);
        let scores = self.layers.iter().map(|layer| layer.heads * layer.keys(context_tokens)).max();
        let scores = f64::from(threads) * 4.0 * f(scores.unwrap_or(0));
        self.weight_bytes()
            + self.cache_bytes(batch, context_tokens)
            + Bytes(rounding + 4.0 * inputs + quantised + scores + f(64 << 20))
    }

    /// What is wrong with the sizes, for a model that another process sends.
    ///
    /// # Errors
    /// In words, with the value.
    pub fn check(&self, batch: u64, context_tokens: u64) -> Result<(), String> {
        let within = |name: &str, value: u64, most: u64| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}, not 1 to {most}"))
            }
        };
        within("batch", batch, MAX_FORWARD_BATCH)?;
        within("context_tokens + 1", context_tokens.saturating_add(1), MAX_TOKENS + 1)?;
        within("hidden", self.hidden, MAX_WIDTH)?;
        within("vocab", self.vocab, MAX_WIDTH)?;
        within("layers", self.layers.len() as u64, MAX_FORWARD_LAYERS as u64)?;
        for layer in &self.layers {
            for (name, value) in
                [("heads", layer.heads), ("kv_heads", layer.kv_heads), ("intermediate", layer.intermediate)]
            {
                within(name, value, MAX_WIDTH)?;
            }
            within("head_dim", layer.head_dim, 1 << 16)?;
            within("heads x head_dim", layer.heads.saturating_mul(layer.head_dim), MAX_WIDTH)?;
            if !layer.heads.is_multiple_of(layer.kv_heads) || !layer.head_dim.is_multiple_of(2) {
                return Err(format!(
                    "{} heads of {} on {} key/value heads: heads must divide evenly, and their width by two",
                    layer.heads, layer.head_dim, layer.kv_heads
                ));
            }
        }
        Ok(())
    }

    /// What of it a GPU's kernels do not take, beyond [`Self::check`].
    ///
    /// # Errors
    /// In words, with the value.
    pub fn check_gpu(&self, batch: u64) -> Result<(), String> {
        if batch > MAX_GPU_FORWARD_BATCH {
            return Err(format!(
                "batch is {batch}, and the GPU kernels here take up to {MAX_GPU_FORWARD_BATCH} sequences: ask for fewer, or \
                 predict it for an engine"
            ));
        }
        let unlike = |layer: &&ForwardLayer| {
            layer.head_dim > WIDEST_GPU_HEAD
                || !layer.head_dim.is_multiple_of(GPU_HEAD_MULTIPLE)
                || layer.heads / layer.kv_heads.max(1) > LARGEST_GPU_GROUP
        };
        self.layers.iter().find(unlike).map_or(Ok(()), |layer| Err(no_gpu_attention(layer)))
    }
}

fn no_gpu_attention(layer: &ForwardLayer) -> String {
    format!(
        "{} heads of {} on {} key/value heads: the GPU's attention takes widths of a multiple of {GPU_HEAD_MULTIPLE} up to \
         {WIDEST_GPU_HEAD} in groups of up to {LARGEST_GPU_GROUP}; it can be predicted",
        layer.heads, layer.head_dim, layer.kv_heads
    )
}

#[expect(clippy::cast_precision_loss, reason = "sizes of models stay far below 2^53")]
const fn f(value: u64) -> f64 {
    value as f64
}

/// Bytes of a row, which is a whole number of blocks, with its scale where rows have one.
fn row_bytes(format: WeightFormat, columns: u64) -> f64 {
    let layout = format.layout();
    let elements = u64::from(layout.elements);
    let scale = if matches!(format, WeightFormat::Int8 | WeightFormat::Int4) { 4.0 } else { 0.0 };
    f(columns.div_ceil(elements)) * f(u64::from(layout.block_bytes())) + scale
}

/// The tensors that no layer has taken yet. Which layer of several alike gets which storage does not change the time.
struct UnassignedTensors {
    groups: Vec<WeightGroup>,
    accelerator: Accelerator,
}

impl UnassignedTensors {
    fn layer(
        &mut self,
        index: usize,
        layer: &Layer,
        hidden: u64,
        gated: bool,
    ) -> Result<ForwardLayer, NotRunnable> {
        let unlike = |what| NotRunnable::Layer { layer: index, what };
        let attention = match layer.mixer {
            Mixer::Attention(attention) => attention,
            Mixer::Latent(_) => return Err(unlike("has latent attention")),
            Mixer::Linear(_) => return Err(unlike("has a linear mixer")),
            Mixer::None => return Err(unlike("has no attention")),
        };
        let intermediate = match layer.feed_forward {
            FeedForward::Dense { intermediate } => intermediate,
            FeedForward::Experts { .. } => return Err(unlike("has experts")),
            FeedForward::None => return Err(unlike("has no feed-forward")),
        };
        if attention.value_dim != attention.head_dim {
            return Err(unlike("has values of another width than its keys"));
        }
        if attention.output_gate || attention.shared_kv {
            return Err(unlike("has a gated output or keys that serve as values"));
        }
        if !attention.head_dim.is_multiple_of(2) {
            return Err(unlike("has heads of odd width"));
        }
        let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let [query, key, value] = match self.find(Class::AttentionQkv, q + 2 * kv, hidden) {
            Some(_) => [self.take(index, Class::AttentionQkv, q + 2 * kv, hidden)?; 3],
            None => [
                self.take(index, Class::AttentionQ, q, hidden)?,
                self.take(index, Class::AttentionK, kv, hidden)?,
                self.take(index, Class::AttentionV, kv, hidden)?,
            ],
        };
        let output = self.take(index, Class::AttentionOut, hidden, q)?;
        let (gate, up) = if !gated {
            (None, self.take(index, Class::Mlp, intermediate, hidden)?)
        } else if self.find(Class::Mlp, 2 * intermediate, hidden).is_some() {
            let both = self.take(index, Class::Mlp, 2 * intermediate, hidden)?;
            (Some(both), both)
        } else {
            let gate = self.take(index, Class::Mlp, intermediate, hidden)?;
            (Some(gate), self.take(index, Class::Mlp, intermediate, hidden)?)
        };
        let down = self.take(index, Class::Mlp, hidden, intermediate)?;
        Ok(ForwardLayer {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            window: attention.window,
            intermediate,
            query,
            key,
            value,
            output,
            gate,
            up,
            down,
        })
    }

    fn find(&mut self, class: Class, rows: u64, columns: u64) -> Option<&mut WeightGroup> {
        self.groups.iter_mut().find(|group| {
            group.class == class && group.rows == rows && group.columns == columns && group.matrices > 0
        })
    }

    fn take(
        &mut self,
        layer: usize,
        class: Class,
        rows: u64,
        columns: u64,
    ) -> Result<WeightFormat, NotRunnable> {
        let Some(group) = self.find(class, rows, columns) else {
            return Err(NotRunnable::Missing { layer, class, rows, columns });
        };
        group.matrices -= 1;
        let block = group.block;
        block
            .format()
            .filter(|format| self.accelerator.formats().contains(format))
            .ok_or(NotRunnable::Storage { class, block, accelerator: self.accelerator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_models::recipe::Recipe;
    use rooflined_models::registry::models;

    fn known(key: &str, format: WeightFormat) -> Model {
        models().get(key).unwrap().model(Recipe::of(format))
    }

    #[test]
    fn a_model_of_the_registry_is_run_with_all_of_the_bytes_that_a_token_reads() {
        for format in [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Q8_0] {
            let model = known("tinyllama-1.1b", format);
            let forward = ForwardModel::new(&model, Accelerator::Cpu).unwrap();
            let norms: f64 = model
                .weights
                .iter()
                .filter(|group| group.class == Class::Norm)
                .map(|group| f(group.bytes))
                .sum();
            assert_eq!(forward.weight_bytes().get() + norms, model.bytes_per_token().get(), "{format}");
            assert_eq!(forward.cache_bytes(8, 1023), model.kv_cache(1024, FORWARD_KV_CACHE) * 8.0);
            assert!(forward.memory(8, 1023, 2) > forward.weight_bytes() + forward.cache_bytes(8, 1023));
            assert_eq!(forward.check(8, 1023), Ok(()));
        }
    }

    #[test]
    fn storage_without_a_kernel_and_layers_of_another_kind_are_named() {
        let said = |model: &Model| ForwardModel::new(model, Accelerator::Cpu).unwrap_err().to_string();
        let mixed = said(&known("tinyllama-1.1b", WeightFormat::Q4KM));
        assert!(mixed.contains("stored as q4_k") || mixed.contains("stored as q6_k"), "{mixed}");
        let experts =
            models().all().find(|known| known.model(Recipe::of(WeightFormat::Bf16)).routing().is_some());
        let experts = said(&experts.unwrap().model(Recipe::of(WeightFormat::Bf16)));
        assert!(experts.contains("experts") || experts.contains("attention"), "{experts}");
    }

    #[test]
    fn a_gpu_takes_its_own_formats_batches_and_heads() {
        let on_gpu = |key, format| ForwardModel::new(&known(key, format), Accelerator::Gpu);
        let forward = on_gpu("tinyllama-1.1b", WeightFormat::Mxfp4).unwrap();
        assert_eq!(forward.check_gpu(8), Ok(()));
        assert!(forward.check_gpu(9).unwrap_err().contains("batch is 9"));
        let said = on_gpu("tinyllama-1.1b", WeightFormat::Int4).unwrap_err().to_string();
        assert!(said.contains("no GPU kernel; measurable: fp32"), "{said}");
        // The most common file: its head, and some values and ways down, in six bits.
        let mixed = known("tinyllama-1.1b", WeightFormat::Q4KM);
        let forward = on_gpu("tinyllama-1.1b", WeightFormat::Q4KM).unwrap();
        let stored = |format| forward.matrices().filter(|matrix| matrix.2 == format).count();
        assert_eq!(stored(WeightFormat::Q4KM) + stored(WeightFormat::Q6K), forward.matrices().count());
        assert!(forward.head == WeightFormat::Q6K && stored(WeightFormat::Q6K) > 1);
        let norms = mixed.weights.iter().filter(|group| group.class == Class::Norm);
        let norms: f64 = norms.map(|group| f(group.bytes)).sum();
        assert_eq!(forward.weight_bytes().get() + norms, mixed.bytes_per_token().get());
        for (heads, kv_heads, head_dim) in [(8, 4, 80), (8, 4, 288), (34, 2, 64)] {
            let mut other = forward.clone();
            other.layers[5] = ForwardLayer { heads, kv_heads, head_dim, ..other.layers[5] };
            assert!(other.check_gpu(1).unwrap_err().contains(&format!("{heads} heads of {head_dim}")));
        }
    }

    #[test]
    fn sizes_from_elsewhere_are_checked() {
        let forward =
            ForwardModel::new(&known("tinyllama-1.1b", WeightFormat::Q8_0), Accelerator::Cpu).unwrap();
        assert!(forward.check(0, 0).unwrap_err().contains("batch is 0"));
        assert!(forward.check(65, 0).is_err());
        assert!(forward.check(1, u64::MAX).is_err());
        let mut uneven = forward.clone();
        uneven.layers[3].kv_heads = 5;
        assert!(uneven.check(1, 0).unwrap_err().contains("5 key/value heads"));
        let mut empty = forward;
        empty.layers.clear();
        assert!(empty.check(1, 0).is_err());
    }
}
