//! Decode attention over an fp16 cache, in splits that are then merged.

use crate::device::{Device, Random, Tally, module, singles};
use crate::formats::{from_half, half};

#[derive(Debug, Clone, Copy)]
struct Case {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    context: usize,
    splits: usize,
}

const fn case(
    batch: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    context: usize,
    splits: usize,
) -> Case {
    Case { batch, heads, kv_heads, dim, context, splits }
}

/// One position; fewer positions than threads or splits; odd contexts; each grouping of heads; each dim's tail.
const CASES: [Case; 12] = [
    case(1, 1, 1, 32, 1, 1),
    case(1, 1, 1, 64, 7, 3),
    case(1, 4, 1, 128, 3, 5),
    case(2, 8, 2, 64, 129, 2),
    case(1, 16, 1, 32, 65, 3),
    case(1, 6, 2, 96, 33, 2),
    case(1, 5, 5, 160, 31, 1),
    case(3, 2, 1, 256, 47, 4),
    case(1, 28, 4, 128, 100, 3),
    case(1, 8, 8, 192, 15, 2),
    case(1, 10, 2, 224, 17, 2),
    case(1, 32, 2, 64, 200, 7),
];

/// Random halves and their values.
fn halves(count: usize, scale: f64, random: &mut Random) -> (Vec<u8>, Vec<f64>) {
    let bits: Vec<u16> = (0..count).map(|_| half(scale * random.unit())).collect();
    (
        bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
        bits.iter().map(|&bits| from_half(bits)).collect(),
    )
}

#[test]
fn attention_over_splits_is_attention() {
    let module = module("attention");
    let mut tally = Tally::default();
    let mut random = Random(5);
    tally.entry();
    tally.entry();
    for case in CASES {
        run(&mut tally, &module, case, &mut random);
    }
    merge_alone(&mut tally, &module, &mut random);
    tally.report("attention");
}

fn run(tally: &mut Tally, module: &ptx::Module, case: Case, random: &mut Random) {
    let Case { batch, heads, kv_heads, dim, context, splits } = case;
    let what = format!("{case:?}");
    let positions = batch * kv_heads * context;
    let (q_bytes, q) = halves(batch * heads * dim, 2.0, random);
    let (k_bytes, k) = halves(positions * dim, 2.0, random);
    let (v_bytes, v) = halves(positions * dim, 1.0, random);
    let scale = 1.0 / (dim as f32).sqrt();
    let mut device = Device::new();
    let [q_in, k_in, v_in] = [&q_bytes, &k_bytes, &v_bytes].map(|bytes| device.input(bytes));
    let work = device.output(4 * batch * heads * splits * (dim + 2));
    let number = |value: usize| (value as u32).to_le_bytes().to_vec();
    let params = [
        q_in.param(),
        k_in.param(),
        v_in.param(),
        work.param(),
        number(heads),
        number(kv_heads),
        number(dim),
        number(context),
        number(splits),
        scale.to_le_bytes().to_vec(),
    ];
    let grid = (batch * kv_heads * splits) as u32;
    device.launch(module.entry("attention_split").unwrap(), grid, 128, &params);
    device.assert_written_once(work, &what);
    // The cache comes from memory once; lanes past a part's last token, or past dim, read again what others read.
    for cache in [k_in, v_in] {
        let (least, _, _) = device.reads(cache);
        let once = if context >= 32 && dim.is_multiple_of(64) { least == 1 } else { least >= 1 };
        assert!(once, "{what}: some byte of the cache is read {least} times");
    }
    for part in device.floats(work).chunks_exact(dim + 2) {
        assert!(part[1].is_finite() && part[1] >= 0.0, "{what}: the sum of a split is {}", part[1]);
        assert_eq!(part[0] == f32::NEG_INFINITY, part[1] == 0.0, "{what}: {} with sum {}", part[0], part[1]);
        if part[1] == 0.0 {
            assert!(part[2..].iter().all(|&value| value == 0.0), "{what}: an empty split has values");
        }
    }
    device.as_input(work);
    let out = device.output(4 * batch * heads * dim);
    let params = [work.param(), out.param(), number(dim), number(splits)];
    let counts =
        device.launch(module.entry("attention_merge").unwrap(), (batch * heads) as u32, 128, &params);
    device.assert_written_once(out, &what);
    assert_eq!(counts.global_written, (4 * batch * heads * dim) as u64, "{what}");
    let got = device.floats(out);
    for b in 0..batch {
        for head in 0..heads {
            let at = (b * heads + head) * dim;
            let first = (b * kv_heads + head / (heads / kv_heads)) * context * dim;
            let cache = first..first + context * dim;
            let (wanted, size) = softmax(&q[at..at + dim], &k[cache.clone()], &v[cache], f64::from(scale));
            for i in 0..dim {
                let what = || format!("{what}, sequence {b}, head {head}, value {i}");
                tally.compare(f64::from(got[at + i]), wanted[i], size[i], 2e-6, &what);
            }
        }
    }
    tally.case();
}

/// One head's output, and the same with the values' sizes.
fn softmax(q: &[f64], k: &[f64], v: &[f64], scale: f64) -> (Vec<f64>, Vec<f64>) {
    let dim = q.len();
    let scores: Vec<f64> =
        k.chunks_exact(dim).map(|k| scale * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    let (mut out, mut size) = (vec![0.0; dim], vec![0.0; dim]);
    for (weight, v) in weights.iter().zip(v.chunks_exact(dim)) {
        for i in 0..dim {
            out[i] += weight * v[i] / total;
            size[i] += weight * v[i].abs() / total;
        }
    }
    (out, size)
}

/// Splits without positions, before and after others, count for nothing.
fn merge_alone(tally: &mut Tally, module: &ptx::Module, random: &mut Random) {
    let dim = 64;
    let value: Vec<f32> = (0..dim).map(|_| random.unit() as f32).collect();
    for (splits, filled) in [(1, 0), (2, 0), (2, 1), (5, 3)] {
        let mut work = Vec::new();
        for split in 0..splits {
            if split == filled {
                work.extend([1.5, 2.0]);
                work.extend(&value);
            } else {
                work.extend([f32::NEG_INFINITY, 0.0]);
                work.extend(vec![0.0; dim]);
            }
        }
        let mut device = Device::new();
        let (input, out) = (device.input(&singles(&work)), device.output(4 * dim));
        let params = [
            input.param(),
            out.param(),
            (dim as u32).to_le_bytes().to_vec(),
            (splits as u32).to_le_bytes().to_vec(),
        ];
        device.launch(module.entry("attention_merge").unwrap(), 1, 128, &params);
        device.assert_written_once(out, "attention_merge");
        for (got, value) in device.floats(out).into_iter().zip(&value) {
            let wanted = f64::from(*value) / 2.0;
            tally.compare(f64::from(got), wanted, wanted.abs(), 2e-7, &|| format!("{splits} splits"));
        }
        tally.case();
    }
}
