//! The pass against a naive one in fp64, from the same stored bytes.

use super::*;
use crate::elementwise::{EPSILON, ROTATION_BASE};
use crate::pool::allowed_cpus;
use rooflined_predict::calibration::{ForwardLayer, ForwardModel};

fn model(format: WeightFormat, gated: bool) -> ForwardModel {
    let layer = ForwardLayer {
        heads: 6,
        kv_heads: 2,
        head_dim: 16,
        window: None,
        intermediate: 160,
        query: format,
        key: format,
        value: format,
        output: format,
        gate: gated.then_some(format),
        up: format,
        down: format,
    };
    let windowed = ForwardLayer { window: Some(5), heads: 4, kv_heads: 4, ..layer };
    ForwardModel { hidden: 96, vocab: 203, head: format, layers: vec![layer, windowed, layer] }
}

fn buffers(layout: &Layout) -> Buffers {
    let regions = |size: usize| (0..layout.threads).map(|_| Region::new(size).unwrap()).collect();
    Buffers {
        parts: regions(layout.part + 192),
        offset: 192,
        filled: vec![0; layout.threads],
        floats: vec![0; layout.threads],
        pattern: Vec::new(),
        scratch: regions(layout.scratch),
        shared: Region::new(layout.shared).unwrap(),
        rng: fastrand::Rng::with_seed(3),
    }
}

impl Forward<'_> {
    fn naive_product(&self, place: &MatrixLayout, x: &[f64]) -> Vec<f64> {
        let element = |row: usize| -> f64 {
            let (stored, scale) = self.stored(place, row);
            x.iter().zip(pack::weights(place.format, stored, scale)).map(|(x, w)| f64::from(w) * x).sum()
        };
        (0..place.rows).map(element).collect()
    }

    fn cached(&self, layer: &LayerLayout, values: bool, pair: usize, index: usize) -> f64 {
        let workers = self.layout.threads.min(self.layout.batch * layer.kv_heads);
        let base = if values { layer.values } else { layer.keys };
        let at = self.at(pair % workers, base + pair / workers * layer.cache_bytes());
        // SAFETY: the index lies inside the pair's cache; no worker is running.
        f16::from_bits(unsafe { at.cast::<u16>().add(index).read_unaligned() }).to_f64()
    }

    fn naive_norm(&self, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        // SAFETY: the gain is as long as the stream is wide; no worker is running.
        let gain = unsafe { self.vector(self.layout.gain, x.len()) };
        let inverse = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        x.iter().zip(gain).map(|(x, gain)| x * inverse * f64::from(*gain)).collect()
    }

    fn naive_attention(&self, layer: &LayerLayout, column: usize, projected: [&[f64]; 3]) -> Vec<f64> {
        let (width, keys) = (layer.head_dim, layer.key_count);
        let turned = |head: &[f64]| -> Vec<f64> {
            let half = width / 2;
            let angle = |i: usize| {
                self.layout.position as f64 * ROTATION_BASE.powf(-2.0 * (i % half) as f64 / width as f64)
            };
            (0..width)
                .map(|i| {
                    let (a, b) = (head[i % half], head[i % half + half]);
                    let (sine, cosine) = angle(i).sin_cos();
                    if i < half { a * cosine - b * sine } else { a * sine + b * cosine }
                })
                .collect()
        };
        let group = layer.heads / layer.kv_heads;
        let mut out = Vec::new();
        for head in 0..layer.heads {
            let kv_head = head / group;
            let pair = column * layer.kv_heads + kv_head;
            let query = turned(&projected[0][head * width..][..width]);
            let new_key = turned(&projected[1][kv_head * width..][..width]);
            let key = |token: usize, i: usize| {
                if token + 1 == keys {
                    new_key[i]
                } else {
                    self.cached(layer, false, pair, token * width + i)
                }
            };
            let value = |token: usize, i: usize| {
                if token + 1 == keys {
                    projected[2][kv_head * width + i]
                } else {
                    self.cached(layer, true, pair, i * keys + token)
                }
            };
            let score = |token: usize| {
                ((0..width).map(|i| query[i] * key(token, i)).sum::<f64>() / (width as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let total: f64 = scores.iter().sum();
            out.extend(
                (0..width)
                    .map(|i| (0..keys).map(|token| scores[token] / total * value(token, i)).sum::<f64>()),
            );
        }
        out
    }

    fn naive_logits(&self, column: usize) -> Vec<f64> {
        let hidden = self.layout.hidden;
        // SAFETY: no worker is running.
        let start = unsafe { self.vector(self.layout.start + column * hidden, hidden) };
        let mut x: Vec<f64> = start.iter().map(|x| f64::from(*x)).collect();
        for layer in &self.layout.layers {
            let p = layer.products.as_ref().unwrap();
            let normed = self.naive_norm(&x);
            let [q, k, v] = [&p.query, &p.key, &p.value].map(|place| self.naive_product(place, &normed));
            let mixed = self.naive_attention(layer, column, [&q, &k, &v]);
            x.iter_mut().zip(self.naive_product(&p.output, &mixed)).for_each(|(x, y)| *x += y);
            let normed = self.naive_norm(&x);
            let up = self.naive_product(&p.up, &normed);
            let swish = |x: f64| x / (1.0 + (-x).exp());
            let inner: Vec<f64> = match &p.gate {
                Some(gate) => {
                    self.naive_product(gate, &normed).iter().zip(&up).map(|(g, u)| swish(*g) * u).collect()
                }
                None => up.into_iter().map(swish).collect(),
            };
            x.iter_mut().zip(self.naive_product(&p.down, &inner)).for_each(|(x, y)| *x += y);
        }
        self.naive_product(self.layout.head.as_ref().unwrap(), &self.naive_norm(&x))
    }
}

/// What rounding activations, keys and values costs: the kernels of a format round them to a part in
/// 2 x 127 of the largest, to 8 bits of mantissa, or not at all, and caches to 11 bits.
fn bound(format: WeightFormat) -> f64 {
    match gemv::activations::Activations::of(format) {
        gemv::activations::Activations::Fp32 if format == WeightFormat::Bf16 => 0.02,
        gemv::activations::Activations::Fp32 | gemv::activations::Activations::Bf16 => 2e-3,
        gemv::activations::Activations::Int8 | gemv::activations::Activations::Int8Blocks => 0.05,
    }
}

#[test]
fn every_storage_batch_and_context_agrees_with_a_naive_pass() {
    let cpus = allowed_cpus(&[]).unwrap();
    for threads in 1..=cpus.len().min(3) {
        let pool = Pool::new(&cpus[..threads]).unwrap();
        for format in rooflined_predict::calibration::MEASURED_FORMATS {
            for (batch, context, gated) in [(1, 0, true), (3, 17, true), (1, 17, false), (3, 0, false)] {
                let layout = Layout::new(&model(format, gated), threads, batch, context, true).unwrap();
                let mut buffers = buffers(&layout);
                let forward = Forward::new(layout, &pool, &mut buffers);
                let first = forward.step();
                assert_eq!(forward.step(), first, "a step leaves nothing behind that changes the next");
                assert!(forward.check() < 1e-5, "{format}");
                for (column, chosen) in first.iter().enumerate() {
                    let expected = forward.naive_logits(column);
                    let rows = expected.len();
                    // SAFETY: no worker is running.
                    let found = unsafe { forward.vector(forward.layout.logits + column * rows, rows) };
                    let most = found.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    assert_eq!(found[*chosen], most, "the largest logit is chosen");
                    let square =
                        |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
                    let off = square(&mut found.iter().zip(&expected).map(|(f, e)| f64::from(*f) - e));
                    let error = off / square(&mut expected.iter().copied());
                    assert!(
                        error < bound(format),
                        "{format} x{batch} after {context}, {threads} threads: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_layout_takes_what_the_model_says_it_does() {
    let model = model(WeightFormat::Q4_0, true);
    for (batch, context) in [(1, 0), (8, 1024)] {
        let layout = Layout::new(&model, 2, batch, context, true).unwrap();
        let placed = (2 * (layout.part + layout.scratch) + layout.shared) as f64;
        assert!(placed <= model.memory(batch, context, 2).get());
        assert!(placed >= (model.weight_bytes() + model.cache_bytes(batch, context)).get());
    }
}

#[test]
fn sizes_that_cannot_be_are_refused_before_anything_is_mapped() {
    let mut huge = model(WeightFormat::Fp32, true);
    huge.vocab = 1 << 28;
    huge.hidden = 1 << 28;
    // Every size is one that a model may have; together they are more than any machine.
    assert!(Layout::new(&huge, 1, 1, 0, true).unwrap().part > 1 << 46);
    let unknown = model(WeightFormat::Q4KM, true);
    assert!(Layout::new(&unknown, 1, 1, 0, true).err().unwrap().contains("q4_k_m"));
    assert!(Layout::new(&model(WeightFormat::Fp32, true), 1, 0, 0, true).is_err());
}
