//! Where everything of a forward pass lies, and how much of it there is.

use super::cache_kernel;
use crate::gemv::{self, Gemv, activations, pack};
use crate::isa::Isa;
use rooflined_core::precision::WeightFormat;
use rooflined_predict::calibration::{ForwardLayer, ForwardModel};

/// Sums of products of bytes are exact in 32 bits up to this row length.
const LONGEST_INTEGER_ROW: usize = 1 << 17;
/// Floats of a cache line: every vector starts on one.
const LINE: usize = 16;

/// One matrix, its rows handed out to workers evenly. Offsets are the same in every worker's part.
#[derive(Clone, Copy)]
pub struct MatrixLayout {
    pub rows: usize,
    pub k: usize,
    pub format: WeightFormat,
    pub isa: Isa,
    pub kernel: Gemv,
    pub row_bytes: usize,
    /// Where a worker's rows begin in its part, and the scales of those that have some.
    pub offset: usize,
    pub scales: usize,
}

pub struct Products {
    pub query: MatrixLayout,
    pub key: MatrixLayout,
    pub value: MatrixLayout,
    pub output: MatrixLayout,
    pub gate: Option<MatrixLayout>,
    pub up: MatrixLayout,
    pub down: MatrixLayout,
}

pub struct LayerLayout {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Keys that the new token sees, its own included.
    pub key_count: usize,
    /// Pairs of a sequence and a key/value head of one worker, at most.
    pub pairs_each: usize,
    /// Where a worker's keys and values begin in its part.
    pub keys: usize,
    pub values: usize,
    /// `None` where attention is run alone.
    pub products: Option<Products>,
}

impl LayerLayout {
    /// Floats of the projections of one token: queries, keys, values.
    pub const fn width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Bytes of the keys, or values, of one sequence and head: a whole number of lines.
    pub const fn cache_bytes(&self) -> usize {
        (2 * self.key_count * self.head_dim).next_multiple_of(64)
    }
}

/// All places, and how many bytes they take together.
pub struct Layout {
    pub threads: usize,
    pub batch: usize,
    pub hidden: usize,
    /// Place of the new token in its sequence.
    pub position: usize,
    pub layers: Vec<LayerLayout>,
    /// `None` where attention is run alone.
    pub head: Option<MatrixLayout>,
    pub cache_kernel: Gemv,
    /// Vectors, in floats from the start of the shared buffer.
    pub start: usize,
    pub gain: usize,
    pub x: usize,
    pub normed: usize,
    pub projected: usize,
    pub mixed: usize,
    pub y: usize,
    pub gate: usize,
    pub up: usize,
    pub logits: usize,
    /// Bytes of a worker's scores; what kernels need for themselves follows.
    pub scores_bytes: usize,
    /// Bytes of every worker's part, of its scratch space, and of the shared buffer.
    pub part: usize,
    pub scratch: usize,
    pub shared: usize,
}

/// Hands out places one after another. Sums saturate: what is larger than any machine is refused by its size.
struct Cursor {
    at: usize,
    threads: usize,
    scratch: usize,
    batch: usize,
}

impl Cursor {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.at;
        self.at = at.saturating_add(bytes).checked_next_multiple_of(64).unwrap_or(usize::MAX);
        at
    }

    fn matrix(&mut self, rows: usize, k: usize, format: WeightFormat) -> Result<MatrixLayout, String> {
        if activations::Activations::of(format) != activations::Activations::Fp32 && k > LONGEST_INTEGER_ROW {
            return Err(format!("rows of {k} may overflow 32-bit sums; at most {LONGEST_INTEGER_ROW}"));
        }
        let none = || format!("there is no CPU kernel for {format}");
        let (isa, kernel) = gemv::best(format).ok_or_else(none)?;
        let row_bytes = pack::row_bytes(format, k).ok_or_else(none)?;
        let each = rows.div_ceil(self.threads);
        let offset = self.take(each.saturating_mul(row_bytes));
        let scales = self.take(if pack::has_row_scales(format) { each.saturating_mul(4) } else { 0 });
        self.scratch = self.scratch.max(activations::scratch_bytes(k, self.batch));
        Ok(MatrixLayout { rows, k, format, isa, kernel, row_bytes, offset, scales })
    }

    fn layer(
        &mut self,
        layer: &ForwardLayer,
        hidden: usize,
        context_tokens: u64,
        products: bool,
    ) -> Result<LayerLayout, String> {
        let [heads, kv_heads, head_dim, inner, key_count] =
            [layer.heads, layer.kv_heads, layer.head_dim, layer.intermediate, layer.keys(context_tokens)]
                .map(size);
        let (q, kv) = (heads.saturating_mul(head_dim), kv_heads.saturating_mul(head_dim));
        let products = if products {
            Some(Products {
                query: self.matrix(q, hidden, layer.query)?,
                key: self.matrix(kv, hidden, layer.key)?,
                value: self.matrix(kv, hidden, layer.value)?,
                output: self.matrix(hidden, q, layer.output)?,
                gate: layer.gate.map(|gate| self.matrix(inner, hidden, gate)).transpose()?,
                up: self.matrix(inner, hidden, layer.up)?,
                down: self.matrix(hidden, inner, layer.down)?,
            })
        } else {
            None
        };
        let pairs = self.batch.saturating_mul(kv_heads);
        let pairs_each = pairs.div_ceil(self.threads.min(pairs).max(1));
        let mut place =
            LayerLayout { heads, kv_heads, head_dim, key_count, pairs_each, keys: 0, values: 0, products };
        let bytes = pairs_each.saturating_mul(place.cache_bytes());
        place.keys = self.take(bytes);
        place.values = self.take(bytes);
        Ok(place)
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Layout {
    /// Places a model for a step of `batch` sequences after `context_tokens`; only caches and what attention needs
    /// unless `products`.
    ///
    /// # Errors
    /// Sizes that cannot be, or a storage without a kernel.
    pub fn new(
        model: &ForwardModel,
        threads: usize,
        batch: u64,
        context_tokens: u64,
        products: bool,
    ) -> Result<Self, String> {
        model.check(batch, context_tokens)?;
        let (hidden, vocab, batch) = (size(model.hidden), size(model.vocab), size(batch));
        let mut cursor = Cursor { at: 0, threads, scratch: 0, batch };
        let layers = model
            .layers
            .iter()
            .map(|layer| cursor.layer(layer, hidden, context_tokens, products))
            .collect::<Result<Vec<_>, _>>()?;
        let head = if products { Some(cursor.matrix(vocab, hidden, model.head)?) } else { None };
        let most = |of: &dyn Fn(&LayerLayout) -> usize| layers.iter().map(of).max().unwrap_or(0);
        let scores_bytes = most(&|layer| {
            let group = layer.heads / layer.kv_heads;
            group.saturating_mul(layer.key_count).saturating_mul(4)
        })
        .next_multiple_of(64);
        let cache_scratch = most(&|layer| {
            activations::scratch_bytes(layer.head_dim.max(layer.key_count), layer.heads / layer.kv_heads)
        });
        let inner = most(&|layer| layer.products.as_ref().map_or(0, |products| products.up.rows));
        let mut floats = 0_usize;
        let mut vector = |length: usize| {
            let at = floats;
            let end = at.saturating_add(batch.saturating_mul(length));
            floats = end.checked_next_multiple_of(LINE).unwrap_or(usize::MAX);
            at
        };
        let [start, x, normed, y, gain] = [hidden; 5].map(&mut vector);
        let projected = vector(most(&LayerLayout::width));
        let mixed = vector(most(&|layer| layer.heads * layer.head_dim));
        let (gate, up) = (vector(inner), vector(inner));
        let logits = vector(if products { vocab } else { 0 });
        Ok(Self {
            threads,
            batch,
            hidden,
            position: size(context_tokens),
            layers,
            head,
            cache_kernel: cache_kernel()?.1,
            start,
            gain,
            x,
            normed,
            projected,
            mixed,
            y,
            gate,
            up,
            logits,
            scores_bytes,
            part: cursor.at,
            scratch: cursor.scratch.max(scores_bytes.saturating_add(cache_scratch)),
            shared: floats.saturating_mul(4),
        })
    }

    pub fn matrices(&self) -> impl Iterator<Item = &MatrixLayout> {
        let layers = self.layers.iter().filter_map(|layer| layer.products.as_ref());
        layers
            .flat_map(|p| {
                [
                    Some(&p.query),
                    Some(&p.key),
                    Some(&p.value),
                    Some(&p.output),
                    p.gate.as_ref(),
                    Some(&p.up),
                    Some(&p.down),
                ]
                .into_iter()
                .flatten()
            })
            .chain(&self.head)
    }

    /// The rows of a worker: from the first up to the end.
    pub const fn rows(&self, place: &MatrixLayout, worker: usize) -> (usize, usize) {
        (place.rows * worker / self.threads, place.rows * (worker + 1) / self.threads)
    }
}
