//! Attention of one new token over a cache in fp16.

use super::driver::{Arg, GpuError};
use super::matrix::encoded;
use super::{Cuda, Job, LARGEST, POISON, deviation, floats, launch};
use half::f16;
use predict::calibration::{Kernel, Step};
use roofline::units::{Bytes, Flops};

/// Widest head, and query heads that share keys, of the kernel.
const WIDEST: u64 = 256;
const LARGEST_GROUP: u64 = 16;
/// Tokens of the cache that one block takes at least.
const SHORTEST_SPLIT: u64 = 64;

impl Cuda {
    pub(super) fn attention(&mut self, step: &Step) -> Result<Job, GpuError> {
        let Kernel::Attention { batch, heads, kv_heads, head_dim, context_tokens } = step.kernel else {
            return Err(GpuError::Step("no attention".into()));
        };
        // As the CPU counts: the new token sees itself too.
        let context = context_tokens.saturating_add(1);
        let whole = kv_heads > 0 && heads.checked_rem(kv_heads) == Some(0) && heads > 0;
        if !whole
            || heads / kv_heads > LARGEST_GROUP
            || head_dim == 0
            || head_dim % 32 != 0
            || head_dim > WIDEST
            || batch == 0
        {
            return Err(GpuError::Step(format!(
                "the kernel takes heads of a multiple of 32 up to {WIDEST} in groups of up to {LARGEST_GROUP}; {heads} heads of {head_dim} on {kv_heads} are none"
            )));
        }
        let cache = batch
            .checked_mul(kv_heads)
            .and_then(|all| all.checked_mul(context)?.checked_mul(head_dim)?.checked_mul(2));
        let Some(cache) = cache.filter(|bytes| *bytes <= LARGEST) else {
            return Err(GpuError::Step("the cache is larger than the address space".into()));
        };
        let copies = self.copies(2 * cache)?;
        // Two blocks for every SM, each with enough to do.
        let pairs = batch * kv_heads;
        let splits = (2 * u64::from(step.threads)).div_ceil(pairs).min(context / SHORTEST_SPLIT).max(1);
        let place = (cache + 64).next_multiple_of(256);
        let queries = batch * heads * head_dim;
        let work = batch * heads * splits * (head_dim + 2) * 4;
        let sizes = [place.saturating_mul(2 * copies as u64), queries * 2, work, queries * 4];
        let buffers = self.allocate(&sizes)?;
        let [data, query, between, out] = buffers.as_slice() else {
            return Err(GpuError::Step("no buffers".into()));
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut halves = |count: usize| -> Vec<f64> {
            (0..count).map(|_| f16::from_f32(2.0 * self.rng.f32() - 1.0).to_f64()).collect()
        };
        let q = halves(size(queries));
        // Keys and values of a prime number of tokens, again and again: the reference needs no more.
        let (width, tokens) = (size(head_dim), size(context));
        let distinct = 251_usize.min(tokens * size(pairs));
        let (keys, values) = (halves(distinct * width), halves(distinct * width));
        query.write(0, &encoded(&q, 2))?;
        for copy in 0..copies {
            let at = size(place) * 2 * copy;
            data.repeat(at, &encoded(&keys, 2), size(cache))?;
            data.repeat(at + size(place), &encoded(&values, 2), size(cache))?;
        }
        let narrow = |value: u64| {
            u32::try_from(value).map_err(|_| GpuError::Step("a dimension is beyond 32 bits".into()))
        };
        let (split, split_entry) = self.kernel("attention_split")?;
        let (merge, merge_entry) = self.kernel("attention_merge")?;
        #[expect(clippy::cast_precision_loss, reason = "a width of a head")]
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (blocks, merged) = (narrow(pairs * splits)?, narrow(batch * heads)?);
        let numbers = [heads, kv_heads, head_dim, context, splits].map(narrow);
        let mut runs = Vec::new();
        for copy in 0..copies {
            let at = size(place) * 2 * copy;
            let mut args = vec![query.at(0), data.at(at), data.at(at + size(place)), between.at(0)];
            for number in &numbers {
                args.push(Arg::U32(number.clone()?));
            }
            args.push(Arg::F32(scale));
            let last = vec![between.at(0), out.at(0), Arg::U32(narrow(head_dim)?), Arg::U32(narrow(splits)?)];
            runs.push(vec![
                launch(split, split_entry, blocks, args),
                launch(merge, merge_entry, merged, last),
            ]);
        }
        out.set(POISON)?;
        between.set(POISON)?;
        self.device.run(&runs[0])?;
        let found = out.read(0, size(queries) * 4)?;
        let group = size(heads / kv_heads);
        let wanted = q.chunks(width).enumerate().flat_map(|(index, q)| {
            let pair = index / size(heads) * size(kv_heads) + index % size(heads) / group;
            attended(q, &keys, &values, (pair * tokens, tokens), f64::from(scale))
        });
        let error = deviation(floats(&found), wanted);
        #[expect(clippy::cast_precision_loss, reason = "dimensions of a cache")]
        let (read, pairs_of_tokens) = ((2 * cache) as f64, (batch * heads * context) as f64);
        #[expect(clippy::cast_precision_loss, reason = "a width")]
        let width = head_dim as f64;
        Ok(Job {
            runs,
            flops: Flops(4.0 * pairs_of_tokens * width),
            bytes: Bytes(read),
            weights: 0.0,
            error: Some(error),
            _buffers: buffers,
        })
    }
}

/// Softmax-weighted values of `tokens` from `first` on, keys and values repeating.
fn attended(
    q: &[f64],
    keys: &[f64],
    values: &[f64],
    (first, tokens): (usize, usize),
    scale: f64,
) -> Vec<f64> {
    let width = q.len();
    let distinct = keys.len() / width;
    let token = |i: usize| (first + i) % distinct * width;
    let scores: Vec<f64> = (0..tokens)
        .map(|i| q.iter().zip(&keys[token(i)..]).map(|(q, k)| q * k).sum::<f64>() * scale)
        .collect();
    let highest = scores.iter().copied().fold(f64::MIN, f64::max);
    let parts: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f64 = parts.iter().sum();
    let mut out = vec![0.0; width];
    for (i, part) in parts.iter().enumerate() {
        for (out, value) in out.iter_mut().zip(&values[token(i)..]) {
            *out += part / sum * value;
        }
    }
    out
}
