//! One step of a model, layer by layer, with the kernels that are calibrated one by one.
//!
//! Every matrix and every cache has the size it really has and lies where nothing else does, so no layer finds another's
//! weights in a cache. Values are random: each matrix repeats a few rows of packed random weights, scaled by the norms
//! so that nothing grows beyond a float or becomes denormal.
//!
//! A layer is seven parallel regions: norm (columns handed out); query, key and value; rotation and attention (pairs of
//! a sequence and a key/value head handed out); output and residual; norm; gate, up and activation; down and residual.
//! Keys are stored token by token, values element by element, so that scores and weighted sums are products with stored
//! fp16 rows, as every other product here.

mod layout;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use half::f16;

pub use self::layout::Layout;
use self::layout::{LayerLayout, MatrixLayout};
use super::Buffers;
use super::deviation::worse;
use super::shared::Shared;
use crate::arena::{Region, replicate};
use crate::elementwise::{Elementwise, angles, rotate};
use crate::gemv::{self, Task, pack};
use crate::isa::Isa;
use crate::pool::Pool;
use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::Encoded;

/// Rows of random weights that a matrix repeats; prime, so that workers' shares do not all start alike.
const TEMPLATE_ROWS: usize = 31;
/// Elements of the random pattern that caches repeat.
const TEMPLATE_CACHE: usize = 4099;
/// Rows of every worker's share of the head that are checked against the reference.
const CHECKED_ROWS: usize = 4;

/// A model bound to its buffers.
pub struct Forward<'a> {
    layout: Layout,
    pool: &'a Pool,
    parts: &'a [Region],
    scratch: &'a [Region],
    /// Where the matrices begin in each part.
    offset: usize,
    /// The vectors that all workers use.
    vectors: Shared<f32>,
    /// Cosine and sine of the new token's position, by width of the head.
    angles: BTreeMap<usize, Vec<[f32; 2]>>,
    functions: Elementwise,
    /// The largest logit that each worker has found for each sequence, ordered like the logit, and its row.
    best: Vec<AtomicU64>,
}

impl<'a> Forward<'a> {
    /// Fills the buffers, which [`Layout`] has measured, with weights, caches and inputs.
    pub fn new(layout: Layout, pool: &'a Pool, buffers: &'a mut Buffers) -> Self {
        buffers.spoil(layout.threads);
        buffers.floats[..layout.threads].fill(0);
        let rng = &mut buffers.rng;
        let mut templates = BTreeMap::new();
        for place in layout.matrices() {
            templates.entry((place.format, place.k)).or_insert_with(|| {
                let weights: Vec<f32> =
                    (0..TEMPLATE_ROWS * place.k).map(|_| pack::random_weight(rng)).collect();
                pack::pack(place.format, TEMPLATE_ROWS, place.k, &weights)
            });
        }
        let cached: Vec<u8> =
            (0..TEMPLATE_CACHE).flat_map(|_| f16::from_f32(pack::random_weight(rng)).to_le_bytes()).collect();
        let vectors = Shared(buffers.shared.start().cast::<f32>());
        let hidden = layout.hidden;
        for i in 0..layout.batch * hidden {
            // SAFETY: `Layout` counted the vectors; no worker is running.
            unsafe { *vectors.at(layout.start + i) = pack::random_weight(rng) };
        }
        for i in 0..layout.batch * layout.layers.iter().map(LayerLayout::width).max().unwrap_or(0) {
            // SAFETY: as above.
            unsafe { *vectors.at(layout.projected + i) = pack::random_weight(rng) };
        }
        for i in 0..hidden {
            // A norm's output then has a length of about one, and so has every product with it.
            let gain = (0.5 + rng.f32()) / (hidden as f32).sqrt();
            // SAFETY: as above.
            unsafe { *vectors.at(layout.gain + i) = gain };
        }
        let widths = layout.layers.iter().map(|layer| layer.head_dim);
        let angles = widths.map(|width| (width, angles(width, layout.position))).collect();
        let Buffers { parts, scratch, offset, .. } = buffers;
        let forward = Self {
            pool,
            parts,
            scratch,
            offset: *offset,
            vectors,
            angles,
            functions: Elementwise::best(),
            best: (0..layout.threads * layout.batch).map(|_| AtomicU64::new(0)).collect(),
            layout,
        };
        pool.run(forward.layout.threads, &|worker| {
            for place in forward.layout.matrices() {
                if let Some(Some(packed)) = templates.get(&(place.format, place.k)) {
                    // SAFETY: the place lies inside the worker's part, which nobody else touches.
                    unsafe { forward.place(worker, place, packed) };
                }
            }
            for layer in &forward.layout.layers {
                for (at, bytes) in [(layer.keys, layer.cache_bytes()), (layer.values, layer.cache_bytes())] {
                    // SAFETY: as above; each pair's keys and values take `cache_bytes`.
                    unsafe { replicate(&cached, forward.at(worker, at), layer.pairs_each * bytes) };
                }
            }
        });
        forward
    }

    /// Writes a worker's share of a matrix: template rows over and over, with their scales.
    unsafe fn place(&self, worker: usize, place: &MatrixLayout, packed: &Encoded) {
        let (first, end) = self.layout.rows(place, worker);
        let rows = end - first;
        // SAFETY: `Layout` counted the rows and the scales behind them.
        unsafe {
            replicate(&packed.bytes, self.at(worker, place.offset), rows * place.row_bytes);
            let scales = self.at(worker, place.scales).cast::<f32>();
            for (row, scale) in (0..rows).zip(packed.row_scales.iter().cycle()) {
                *scales.add(row) = *scale;
            }
        }
    }

    /// A pointer into a worker's part.
    fn at(&self, worker: usize, offset: usize) -> *mut u8 {
        self.parts[worker].start().wrapping_add(self.offset + offset)
    }

    /// What most of the time is dispatched to.
    pub fn isa(&self) -> Isa {
        self.layout.matrices().next().map_or(Isa::Scalar, |place| place.isa)
    }

    /// Adds a token to every sequence and returns the most likely next ones.
    pub fn step(&self) -> Vec<usize> {
        let layout = &self.layout;
        let (batch, hidden, threads) = (layout.batch, layout.hidden, layout.threads);
        // SAFETY: both vectors hold `batch * hidden` floats and do not overlap; no worker is running.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.vectors.at(layout.start),
                self.vectors.at(layout.x),
                batch * hidden,
            );
        }
        for layer in &layout.layers {
            self.layer(layer);
        }
        self.norm();
        let Some(head) = &layout.head else { return Vec::new() };
        self.pool.run(threads, &|worker| {
            // SAFETY: each worker writes its own rows of the logits and reads them back.
            unsafe {
                self.multiply(worker, head, layout.normed, layout.logits, head.rows);
                let (first, end) = layout.rows(head, worker);
                for column in 0..batch {
                    let logits = self.vector(layout.logits + column * head.rows + first, end - first);
                    self.best[worker * batch + column].store(largest(logits, first), Ordering::Relaxed);
                }
            }
        });
        let best = |column: usize| {
            (0..threads).map(|worker| self.best[worker * batch + column].load(Ordering::Relaxed)).max()
        };
        (0..batch).map(|column| (best(column).unwrap_or(0) & u64::from(u32::MAX)) as usize).collect()
    }

    fn layer(&self, layer: &LayerLayout) {
        let layout = &self.layout;
        let threads = layout.threads;
        let Some(products) = &layer.products else { return self.attention(layer) };
        self.norm();
        self.pool.run(threads, &|worker| {
            let width = layer.width();
            for (place, start) in [
                (&products.query, 0),
                (&products.key, layer.heads * layer.head_dim),
                (&products.value, (layer.heads + layer.kv_heads) * layer.head_dim),
            ] {
                // SAFETY: each worker writes its own rows of the projections.
                unsafe { self.multiply(worker, place, layout.normed, layout.projected + start, width) };
            }
        });
        self.attention(layer);
        self.pool.run(threads, &|worker| self.multiply_and_add(worker, &products.output, layout.mixed));
        self.norm();
        self.pool.run(threads, &|worker| {
            let inner = products.up.rows;
            // SAFETY: each worker writes its own rows of both, and reads no others.
            unsafe {
                if let Some(gate) = &products.gate {
                    self.multiply(worker, gate, layout.normed, layout.gate, inner);
                }
                self.multiply(worker, &products.up, layout.normed, layout.up, inner);
                let (first, end) = layout.rows(&products.up, worker);
                for column in 0..layout.batch {
                    let at = column * inner + first;
                    let up = self.vector(layout.up + at, end - first);
                    if products.gate.is_some() {
                        (self.functions.activate)(self.vector(layout.gate + at, end - first), up);
                    } else {
                        (self.functions.activate_alone)(up);
                    }
                }
            }
        });
        let inner = if products.gate.is_some() { layout.gate } else { layout.up };
        self.pool.run(threads, &|worker| self.multiply_and_add(worker, &products.down, inner));
    }

    /// Norms every column of the residual stream.
    fn norm(&self) {
        let layout = &self.layout;
        let workers = layout.threads.min(layout.batch);
        self.pool.run(workers, &|worker| {
            for column in (worker..layout.batch).step_by(workers) {
                let at = column * layout.hidden;
                // SAFETY: each column belongs to one worker; the gain is only read.
                unsafe {
                    (self.functions.norm)(
                        self.vector(layout.x + at, layout.hidden),
                        self.vector(layout.gain, layout.hidden),
                        self.vector(layout.normed + at, layout.hidden),
                    );
                }
            }
        });
    }

    /// A worker's rows of a product added to the residual stream.
    fn multiply_and_add(&self, worker: usize, place: &MatrixLayout, x: usize) {
        let layout = &self.layout;
        let (first, end) = layout.rows(place, worker);
        // SAFETY: each worker writes its own rows of both.
        unsafe {
            self.multiply(worker, place, x, layout.y, layout.hidden);
            for column in 0..layout.batch {
                let at = column * layout.hidden + first;
                (self.functions.add)(
                    self.vector(layout.x + at, end - first),
                    self.vector(layout.y + at, end - first),
                );
            }
        }
    }

    /// Rotation, the new key and value, scores, softmax and weighted sum of one layer.
    pub fn attention(&self, layer: &LayerLayout) {
        let layout = &self.layout;
        let pairs = layout.batch * layer.kv_heads;
        let workers = layout.threads.min(pairs);
        self.pool.run(workers, &|worker| {
            for (place, pair) in (worker..pairs).step_by(workers).enumerate() {
                // SAFETY: each pair of a sequence and a key/value head belongs to one worker.
                unsafe { self.attend(worker, layer, place, pair / layer.kv_heads, pair % layer.kv_heads) };
            }
        });
    }

    /// One sequence and one key/value head with the query heads that share it.
    unsafe fn attend(&self, worker: usize, layer: &LayerLayout, place: usize, column: usize, kv_head: usize) {
        let layout = &self.layout;
        let (width, keys) = (layer.head_dim, layer.key_count);
        let group = layer.heads / layer.kv_heads;
        let angles = self.angles.get(&width).map_or(&[][..], Vec::as_slice);
        let projected = layout.projected + column * layer.width();
        let queries = projected + kv_head * group * width;
        let key = projected + (layer.heads + kv_head) * width;
        let value = key + layer.kv_heads * width;
        let bytes = layer.cache_bytes();
        let key_cache = self.at(worker, layer.keys + place * bytes);
        let value_cache = self.at(worker, layer.values + place * bytes);
        let scratch = self.scratch[worker].start();
        let scores = scratch.cast::<f32>();
        let beyond = scratch.wrapping_add(layout.scores_bytes);
        let task = |weights: *mut u8, rows: usize, k: usize, x: *const f32, y: *mut f32| Task {
            weights,
            row_bytes: 2 * k,
            rows,
            k,
            row_scales: std::ptr::dangling(),
            x,
            columns: group,
            y,
            y_stride: rows,
            scratch: beyond,
        };
        // SAFETY: `Layout` counted the caches, scores and vectors; slices are used one at a time.
        unsafe {
            for head in self.vector(queries, group * width).chunks_exact_mut(width) {
                rotate(head, angles);
            }
            let key = self.vector(key, width);
            rotate(key, angles);
            // The new token takes the last place: where a context has just this length.
            let slot = keys - 1;
            let new_key = key_cache.cast::<u16>().add(slot * width);
            for (i, (key, value)) in key.iter().zip(self.vector(value, width)).enumerate() {
                new_key.add(i).write_unaligned(f16::from_f32(*key).to_bits());
                value_cache
                    .cast::<u16>()
                    .add(i * keys + slot)
                    .write_unaligned(f16::from_f32(*value).to_bits());
            }
            (layout.cache_kernel)(&task(key_cache, keys, width, self.vectors.at(queries), scores));
            let scale = 1.0 / (width as f32).sqrt();
            for head in 0..group {
                let scores = std::slice::from_raw_parts_mut(scores.add(head * keys), keys);
                (self.functions.softmax)(scores, scale);
            }
            let out = layout.mixed + (column * layer.heads + kv_head * group) * width;
            (layout.cache_kernel)(&task(value_cache, width, keys, scores, self.vectors.at(out)));
        }
    }

    /// A worker's rows of the product of a matrix with every column of the vector at `x`.
    unsafe fn multiply(&self, worker: usize, place: &MatrixLayout, x: usize, y: usize, y_stride: usize) {
        let (first, end) = self.layout.rows(place, worker);
        let task = Task {
            weights: self.at(worker, place.offset),
            row_bytes: place.row_bytes,
            rows: end - first,
            k: place.k,
            row_scales: self.at(worker, place.scales).cast(),
            x: self.vectors.at(x),
            columns: self.layout.batch,
            y: self.vectors.at(y + first),
            y_stride,
            scratch: self.scratch[worker].start(),
        };
        // SAFETY: `Layout` found the kernel among those that this machine supports and counted every buffer.
        unsafe { (place.kernel)(&task) };
    }

    #[expect(clippy::mut_from_ref, reason = "workers share the vectors and use disjoint parts")]
    unsafe fn vector(&self, at: usize, length: usize) -> &mut [f32] {
        // SAFETY: the caller stays inside the vectors that `Layout` counted, and holds one slice of a place at a time.
        unsafe { std::slice::from_raw_parts_mut(self.vectors.at(at), length) }
    }

    /// A stored row of a matrix and its scale.
    fn stored(&self, place: &MatrixLayout, row: usize) -> (&[u8], f32) {
        let worker = (0..self.layout.threads).find(|worker| row < self.layout.rows(place, *worker).1);
        let worker = worker.unwrap_or(0);
        let within = row - self.layout.rows(place, worker).0;
        // SAFETY: the row lies in the worker's share; nobody writes to it.
        unsafe {
            let start = self.at(worker, place.offset + within * place.row_bytes);
            let scale = if pack::has_row_scales(place.format) {
                *self.at(worker, place.scales).cast::<f32>().add(within)
            } else {
                1.0
            };
            (std::slice::from_raw_parts(start, place.row_bytes), scale)
        }
    }

    /// Runs a step and compares some logits with the definition, given the head's input. What is no number anywhere in
    /// a layer is none in every logit.
    pub fn check(&self) -> f64 {
        self.step();
        let Some(head) = &self.layout.head else { return 0.0 };
        let form = gemv::activations(head.format, head.isa);
        let mut worst = 0.0_f64;
        for worker in 0..self.layout.threads {
            let (first, end) = self.layout.rows(head, worker);
            let step = ((end - first) / CHECKED_ROWS).max(1);
            for row in (first..end).step_by(step) {
                let (stored, scale) = self.stored(head, row);
                for column in [0, self.layout.batch - 1] {
                    // SAFETY: no worker is running.
                    let (x, y) = unsafe {
                        (
                            self.vector(self.layout.normed + column * self.layout.hidden, self.layout.hidden),
                            *self.vectors.at(self.layout.logits + column * head.rows + row),
                        )
                    };
                    let (expected, magnitude) = gemv::reference(head.format, form, stored, scale, x);
                    worst = worse(worst, (f64::from(y) - expected).abs() / magnitude);
                }
            }
        }
        worst
    }

    /// The layers, to run their attention alone.
    pub fn layers(&self) -> &[LayerLayout] {
        &self.layout.layers
    }
}

/// The largest value and where it is from `first` on, ordered by value: floats order like their bits once those of
/// negative ones are turned over.
fn largest(values: &[f32], first: usize) -> u64 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (index, value) in values.iter().enumerate() {
        if *value > best.0 {
            best = (*value, index);
        }
    }
    let bits = best.0.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | (first + best.1) as u64 & u64::from(u32::MAX)
}

/// The kernel that multiplies with stored keys and values.
pub fn cache_kernel() -> Result<(Isa, gemv::Gemv), String> {
    gemv::best(WeightFormat::Fp16).ok_or_else(|| "there is no CPU kernel for fp16".to_owned())
}
