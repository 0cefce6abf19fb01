//! Attention of one new token over a cache in fp16.

use super::driver::{Arg, GpuError, Launch};
use super::matrix::encoded;
use super::{Cuda, Job, LARGEST, POISON, deviation, floats, launch};
use half::f16;
use rooflined_core::units::{Bytes, Flops};
use rooflined_predict::calibration::{Kernel, LARGEST_GPU_GROUP, Step, WIDEST_GPU_HEAD};

/// Tokens of the cache that one block takes at least.
const SHORTEST_SPLIT: u64 = 64;
/// Tokens that differ; a prime, so that they and the blocks of a launch do not march in step.
const DISTINCT_TOKENS: usize = 251;

/// The sizes of an attention that the kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    batch: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    /// Tokens that the new one sees, itself included.
    context: u64,
    /// Blocks that share a sequence's key head.
    splits: u64,
}

/// Where one launch of it finds everything.
pub(super) struct Places {
    pub query: Arg,
    pub keys: Arg,
    pub values: Arg,
    pub between: Arg,
    pub out: Arg,
}

/// Keys and values that a cache repeats, token by token.
pub(super) struct Tokens {
    width: usize,
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl Sizes {
    /// # Errors
    /// Sizes that the kernel does not take.
    pub(super) fn new(
        [batch, heads, kv_heads, head_dim, context]: [u64; 5],
        threads: u32,
    ) -> Result<Self, GpuError> {
        let whole = kv_heads > 0 && heads.checked_rem(kv_heads) == Some(0) && heads > 0;
        if !whole
            || heads / kv_heads > LARGEST_GPU_GROUP
            || head_dim == 0
            || head_dim % 32 != 0
            || head_dim > WIDEST_GPU_HEAD
            || batch == 0
        {
            return Err(GpuError::Step(format!(
                "the kernel takes heads of a multiple of 32 up to {WIDEST_GPU_HEAD} in groups of up to {LARGEST_GPU_GROUP}; {heads} heads of {head_dim} on {kv_heads} are none"
            )));
        }
        let cache = batch
            .checked_mul(kv_heads)
            .and_then(|all| all.checked_mul(context)?.checked_mul(head_dim)?.checked_mul(2));
        if cache.is_none_or(|bytes| bytes > LARGEST) {
            return Err(GpuError::Step("the cache is larger than the address space".into()));
        }
        // Two blocks for every SM, each with enough to do.
        let pairs = batch * kv_heads;
        let splits = (2 * u64::from(threads)).div_ceil(pairs).min(context / SHORTEST_SPLIT).max(1);
        Ok(Self { batch, heads, kv_heads, head_dim, context, splits })
    }

    /// Bytes of all keys, and as many of all values.
    pub(super) const fn cache_bytes(&self) -> u64 {
        2 * self.batch * self.kv_heads * self.context * self.head_dim
    }

    /// Elements of the queries, and of the result.
    pub(super) const fn queries(&self) -> u64 {
        self.batch * self.heads * self.head_dim
    }

    /// Heads of all sequences.
    pub(super) fn all_heads(&self) -> usize {
        size(self.batch * self.heads)
    }

    /// Bytes between the two kernels.
    pub(super) const fn between_bytes(&self) -> u64 {
        self.batch * self.heads * self.splits * (self.head_dim + 2) * 4
    }

    fn scale(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "a width of a head")]
        let width = self.head_dim as f32;
        1.0 / width.sqrt()
    }

    /// Operations: a product and a sum for every element of a query and key, and as many of the values.
    pub(super) fn flops(&self) -> Flops {
        #[expect(clippy::cast_precision_loss, reason = "dimensions of a cache")]
        let products = (self.batch * self.heads * self.context * self.head_dim) as f64;
        Flops(4.0 * products)
    }

    /// Both kernels.
    pub(super) fn launches(&self, cuda: &mut Cuda, at: &Places) -> Result<[Launch; 2], GpuError> {
        let narrow = |value: u64| {
            u32::try_from(value).map_err(|_| GpuError::Step("a dimension is beyond 32 bits".into()))
        };
        let (split, split_entry) = cuda.kernel("attention_split")?;
        let (merge, merge_entry) = cuda.kernel("attention_merge")?;
        let mut args = vec![at.query, at.keys, at.values, at.between];
        for number in [self.heads, self.kv_heads, self.head_dim, self.context, self.splits] {
            args.push(Arg::U32(narrow(number)?));
        }
        args.push(Arg::F32(self.scale()));
        let last = vec![at.between, at.out, Arg::U32(narrow(self.head_dim)?), Arg::U32(narrow(self.splits)?)];
        let blocks = narrow(self.batch * self.kv_heads * self.splits)?;
        Ok([
            launch(split, split_entry, blocks, args),
            launch(merge, merge_entry, narrow(self.batch * self.heads)?, last),
        ])
    }

    /// Random queries that fp16 holds exactly, and tokens for a cache to repeat.
    pub(super) fn random(&self, rng: &mut fastrand::Rng) -> (Vec<f64>, Tokens) {
        let mut halves = |count: usize| -> Vec<f64> {
            (0..count).map(|_| f16::from_f32(2.0 * rng.f32() - 1.0).to_f64()).collect()
        };
        let q = halves(size(self.queries()));
        let width = size(self.head_dim);
        // The reference needs no more.
        let distinct = DISTINCT_TOKENS.min(size(self.context * self.batch * self.kv_heads));
        (q, Tokens { width, keys: halves(distinct * width), values: halves(distinct * width) })
    }

    /// What one head of one sequence, `index` = sequence * heads + head, gives where a cache begins with token `begin`.
    pub(super) fn wanted(&self, q: &[f64], tokens: &Tokens, begin: usize, index: usize) -> Vec<f64> {
        let (heads, kv_heads) = (size(self.heads), size(self.kv_heads));
        let pair = index / heads * kv_heads + index % heads / (heads / kv_heads);
        let context = size(self.context);
        let q = &q[index * tokens.width..][..tokens.width];
        attended(q, tokens, (begin + pair * context, context), f64::from(self.scale()))
    }
}

impl Tokens {
    fn distinct(&self) -> usize {
        self.keys.len() / self.width
    }

    /// Keys and values as a cache holds them that begins with token `begin`.
    pub(super) fn stored(&self, begin: usize) -> [Vec<u8>; 2] {
        let from = begin % self.distinct() * self.width;
        [&self.keys, &self.values].map(|plane| {
            let (end, start) = plane.split_at(from);
            encoded(&[start, end].concat(), 2)
        })
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Cuda {
    pub(super) fn attention(&mut self, step: &Step) -> Result<Job, GpuError> {
        let Kernel::Attention { batch, heads, kv_heads, head_dim, context_tokens } = step.kernel else {
            return Err(GpuError::Step("no attention".into()));
        };
        // As the CPU counts: the new token sees itself too.
        let context = context_tokens.saturating_add(1);
        let sizes = Sizes::new([batch, heads, kv_heads, head_dim, context], step.threads)?;
        let cache = sizes.cache_bytes();
        let copies = self.copies(2 * cache)?;
        let place = (cache + 64).next_multiple_of(256);
        let queries = sizes.queries();
        let wanted =
            [place.saturating_mul(2 * copies as u64), queries * 2, sizes.between_bytes(), queries * 4];
        let buffers = self.allocate(&wanted)?;
        let [data, query, between, out] = buffers.as_slice() else {
            return Err(GpuError::Step("no buffers".into()));
        };
        let (q, tokens) = sizes.random(&mut self.rng);
        let [keys, values] = tokens.stored(0);
        query.write(0, &encoded(&q, 2))?;
        let mut runs = Vec::new();
        for copy in 0..copies {
            let at = size(place) * 2 * copy;
            data.repeat(at, &keys, size(cache))?;
            data.repeat(at + size(place), &values, size(cache))?;
            let places = Places {
                query: query.at(0),
                keys: data.at(at),
                values: data.at(at + size(place)),
                between: between.at(0),
                out: out.at(0),
            };
            runs.push(Vec::from(sizes.launches(self, &places)?));
        }
        out.set(POISON)?;
        between.set(POISON)?;
        self.device.run(&runs[0])?;
        let found = out.read(0, size(queries) * 4)?;
        let wanted = (0..sizes.all_heads()).flat_map(|index| sizes.wanted(&q, &tokens, 0, index));
        let error = deviation(floats(&found), wanted);
        #[expect(clippy::cast_precision_loss, reason = "bytes of a cache")]
        let read = (2 * cache) as f64;
        Ok(Job {
            runs,
            flops: sizes.flops(),
            bytes: Bytes(read),
            weights: 0.0,
            error: Some(error),
            _buffers: buffers,
        })
    }
}

/// Softmax-weighted values of `count` tokens from `first` on, keys and values repeating: each distinct one counts as often
/// as it comes, so that a long context costs the CPU no more than a short one.
fn attended(q: &[f64], tokens: &Tokens, (first, count): (usize, usize), scale: f64) -> Vec<f64> {
    let (width, distinct) = (tokens.width, tokens.distinct());
    let seen: Vec<(usize, f64, f64)> = (0..distinct.min(count))
        .map(|i| {
            let at = (first + i) % distinct * width;
            let times = (count - i).div_ceil(distinct);
            let score = q.iter().zip(&tokens.keys[at..]).map(|(q, k)| q * k).sum::<f64>() * scale;
            #[expect(clippy::cast_precision_loss, reason = "tokens of a context")]
            (at, times as f64, score)
        })
        .collect();
    let highest = seen.iter().map(|(.., score)| *score).fold(f64::MIN, f64::max);
    let parts: Vec<f64> = seen.iter().map(|(_, times, score)| times * (score - highest).exp()).collect();
    let sum: f64 = parts.iter().sum();
    let mut out = vec![0.0; width];
    for (part, (at, ..)) in parts.iter().zip(&seen) {
        for (out, value) in out.iter_mut().zip(&tokens.values[*at..]) {
            *out += part / sum * value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_tokens_count_as_often_as_they_come() {
        let mut rng = fastrand::Rng::with_seed(5);
        for context in [1, 3, 250, 251, 252, 1000] {
            let sizes = Sizes::new([2, 6, 3, 32, context], 4).unwrap();
            let (q, tokens) = sizes.random(&mut rng);
            let (begin, context) = (77, size(context));
            let distinct = tokens.distinct();
            for index in [0, 5, 11] {
                let pair = index / 6 * 3 + index % 6 / 2;
                // Token by token, from the definition.
                let row = |plane: &[f64], token: usize| -> Vec<f64> {
                    plane[(begin + pair * context + token) % distinct * 32..][..32].to_vec()
                };
                let scores: Vec<f64> = (0..context)
                    .map(|token| {
                        let key = row(&tokens.keys, token);
                        let dot: f64 = q[index * 32..][..32].iter().zip(&key).map(|(q, k)| q * k).sum();
                        (dot / 32_f64.sqrt()).exp()
                    })
                    .collect();
                let sum: f64 = scores.iter().sum();
                let found = sizes.wanted(&q, &tokens, begin, index);
                for (i, found) in found.iter().enumerate() {
                    let wanted: f64 =
                        (0..context).map(|token| scores[token] / sum * row(&tokens.values, token)[i]).sum();
                    assert!((found - wanted).abs() < 1e-6, "{context} {index} {i}: {found} {wanted}");
                }
            }
        }
    }
}
