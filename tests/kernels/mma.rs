//! Peaks of `mma.sync`: fragments, their products, and the operations counted.

use crate::device::{Device, Random, Tally, module};
use crate::formats::{from_bf16, from_e2m1, from_e4m3, from_half, half, random_e4m3};

/// A kernel of the family and its instruction's shape.
struct Peak {
    module: &'static str,
    entry: &'static str,
    /// The factors' type as the counts name it, and as [`element`] knows it.
    kind: &'static str,
    depth: usize,
    /// Bits of an element.
    bits: usize,
    /// Of the sum of products, what the accumulator may be off by.
    tolerance: f64,
}

const fn peak(
    module: &'static str,
    entry: &'static str,
    kind: &'static str,
    depth: usize,
    bits: usize,
    tolerance: f64,
) -> Peak {
    Peak { module, entry, kind, depth, bits, tolerance }
}

const PEAKS: [Peak; 9] = [
    peak("mma_f16", "mma_f16_f32", "f16", 16, 16, 1e-6),
    peak("mma_f16", "mma_f16_f16", "f16", 16, 16, 2e-3),
    peak("mma_bf16", "mma_bf16", "bf16", 16, 16, 1e-6),
    peak("mma_tf32", "mma_tf32", "tf32", 8, 32, 1e-6),
    peak("mma_i8", "mma_i8", "s8", 32, 8, 0.0),
    peak("mma_i4", "mma_i4", "s4", 64, 4, 0.0),
    peak("mma_f8", "mma_f8", "e4m3", 32, 8, 1e-6),
    peak("mma_nvf4", "mma_nvf4", "e2m1", 64, 4, 1e-6),
    peak("mma_mxf8", "mma_mxf8", "e4m3", 32, 8, 1e-6),
];

const ROWS: usize = 16;
const COLUMNS: usize = 8;
const ACCUMULATORS: usize = 8;

/// A random element's bits, its value, and the bits of its opposite.
pub fn element(kind: &str, random: &mut Random) -> (u32, f64, u32) {
    match kind {
        "f16" => {
            let bits = half(random.unit());
            (u32::from(bits), from_half(bits), u32::from(bits ^ 0x8000))
        }
        "bf16" => {
            let bits = ((random.unit() as f32).to_bits() >> 16) as u16;
            (u32::from(bits), from_bf16(bits), u32::from(bits ^ 0x8000))
        }
        "tf32" => {
            // The lower 13 bits do not count.
            let bits = (random.unit() as f32).to_bits();
            (bits, f64::from(f32::from_bits(bits & !0x1fff)), bits ^ 0x8000_0000)
        }
        // The least number has no opposite.
        "s8" => {
            let value = random.below(255) as i32 - 127;
            (value as u32 & 0xff, f64::from(value), -value as u32 & 0xff)
        }
        "s4" => {
            let value = random.below(15) as i32 - 7;
            (value as u32 & 0xf, f64::from(value), -value as u32 & 0xf)
        }
        "e2m1" => {
            let bits = random.byte() & 0xf;
            (u32::from(bits), from_e2m1(bits), u32::from(bits ^ 8))
        }
        _ => {
            let bits = random_e4m3(random);
            (u32::from(bits), from_e4m3(bits), u32::from(bits ^ 0x80))
        }
    }
}

/// Row and column of A of the element that a lane holds: word r, place e of n (PTX ISA, "Matrix Fragments").
fn place_of_a(lane: usize, r: usize, e: usize, n: usize) -> (usize, usize) {
    (lane / 4 + if r % 2 == 1 { 8 } else { 0 }, lane % 4 * n + e + if r >= 2 { 4 * n } else { 0 })
}

/// Row and column of B.
fn place_of_b(lane: usize, r: usize, e: usize, n: usize) -> (usize, usize) {
    (lane % 4 * n + e + 4 * n * r, lane / 4)
}

/// Packs elements into the words of a fragment, 32 lanes a word.
fn fragment(words: usize, bits: usize, at: impl Fn(usize, usize, usize, usize) -> u32) -> Vec<u8> {
    let n = 32 / bits;
    let word = |r: usize, lane: usize| (0..n).map(|e| at(lane, r, e, n) << (e * bits)).fold(0, |a, b| a | b);
    (0..words)
        .flat_map(|r| (0..32).flat_map(move |lane| word(r, lane).to_le_bytes()).collect::<Vec<_>>())
        .collect()
}

/// The factors of a block of the depth, for `lines` rows of A or columns of B: words of lanes, and numbers.
fn scales(
    kind: &str,
    lanes: impl Fn(usize) -> usize,
    lines: usize,
    random: &mut Random,
) -> (Vec<u8>, Vec<Vec<f64>>) {
    // What the lanes hold that are not asked.
    let mut words = random.words(32);
    let mut values = Vec::new();
    for line in 0..lines {
        let at = 4 * lanes(line);
        if kind == "e2m1" {
            let bytes: Vec<u8> = (0..4).map(|_| random_e4m3(random) & 0x7f).collect();
            words[at..at + 4].copy_from_slice(&bytes);
            values.push(bytes.into_iter().map(from_e4m3).collect());
        } else {
            let byte = 120 + random.below(12) as u8;
            words[at] = byte;
            values.push(vec![2f64.powi(i32::from(byte) - 127)]);
        }
    }
    (words, values)
}

#[test]
fn tensor_core_peaks_leave_the_product_whatever_the_iterations() {
    let mut tally = Tally::default();
    let mut random = Random(4);
    for peak in PEAKS {
        let module = module(peak.module);
        let entry = module.entry(peak.entry).unwrap();
        tally.entry();
        for (grid, iterations) in [(1, 0), (1, 1), (2, 3)] {
            run(&mut tally, &peak, entry, grid, iterations, &mut random);
        }
    }
    tally.report("mma");
}

fn run(tally: &mut Tally, peak: &Peak, entry: &ptx::Entry, grid: u32, iterations: u32, random: &mut Random) {
    let what = format!("{}, {grid} blocks, {iterations} iterations", peak.entry);
    let &Peak { kind, depth, bits, .. } = peak;
    let scaled = peak.entry == "mma_nvf4" || peak.entry == "mma_mxf8";
    let (words_a, words_b) = (ROWS * depth * bits / 1024, COLUMNS * depth * bits / 1024);
    let words_c = if peak.entry.ends_with("_f16") { 2 } else { 4 };
    let mut matrix = |elements: usize| (0..elements).map(|_| element(kind, random)).collect::<Vec<_>>();
    let left = matrix(ROWS * depth);
    let right: Vec<_> = (0..ACCUMULATORS).map(|_| matrix(depth * COLUMNS)).collect();
    let a = fragment(words_a, bits, |lane, r, e, n| {
        let (row, column) = place_of_a(lane, r, e, n);
        left[row * depth + column].0
    });
    let opposite = fragment(words_a, bits, |lane, r, e, n| {
        let (row, column) = place_of_a(lane, r, e, n);
        left[row * depth + column].2
    });
    let b: Vec<u8> = right
        .iter()
        .flat_map(|right| {
            fragment(words_b, bits, |lane, r, e, n| {
                let (row, column) = place_of_b(lane, r, e, n);
                right[row * COLUMNS + column].0
            })
        })
        .collect();
    let mut device = Device::new();
    let warps = 8 * grid as usize;
    let out = device.output(warps * ACCUMULATORS * words_c * 128);
    let mut params: Vec<Vec<u8>> = [a, opposite, b].iter().map(|bytes| device.input(bytes).param()).collect();
    let mut factors = [vec![vec![1.0]; ROWS], vec![vec![1.0]; COLUMNS]];
    if scaled {
        // Row g: the first lane of group g; row g + 8: the second. Column g: the first.
        let (words, of_a) = scales(kind, |row| row % 8 * 4 + row / 8, ROWS, random);
        params.push(device.input(&words).param());
        let (words, of_b) = scales(kind, |column| column * 4, COLUMNS, random);
        params.push(device.input(&words).param());
        factors = [of_a, of_b];
    }
    params.extend([iterations.to_le_bytes().to_vec(), out.param()]);
    let counts = device.launch(entry, grid, 256, &params);
    device.assert_written_once(out, &what);
    let words = device.words(out);
    for (at, &word) in words.iter().enumerate() {
        let (lane, r, j) = (at % 32, at / 32 % words_c, at / 32 / words_c % ACCUMULATORS);
        let (row, column) = if words_c == 2 {
            (lane / 4 + 8 * r, 2 * (lane % 4))
        } else {
            (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2)
        };
        let mut check = |got: f64, column: usize| {
            let products = (0..depth).map(|i| {
                let scale = |line: &[f64]| line[i * line.len() / depth];
                let factor = scale(&factors[0][row]) * scale(&factors[1][column]);
                left[row * depth + i].1 * right[j][i * COLUMNS + column].1 * factor
            });
            let (wanted, magnitude) =
                products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
            tally.compare(got, wanted, magnitude, peak.tolerance, &|| format!("{what}, word {at}"));
        };
        match (words_c, kind) {
            (2, _) => {
                check(from_half(word as u16), column);
                check(from_half((word >> 16) as u16), column + 1);
            }
            (_, "s8" | "s4") => check(f64::from(word.cast_signed()), column),
            _ => check(f64::from(f32::from_bits(word)), column),
        }
    }
    let per_mma = 2 * ROWS * COLUMNS * depth;
    let flops = warps * ACCUMULATORS * (2 * iterations as usize + 1) * per_mma;
    assert_eq!(counts.mma_flops.get(kind), Some(&(flops as u64)), "{what}: {:?}", counts.mma_flops);
    assert_eq!(counts.mma_flops.len(), 1);
    let scale_bytes = if scaled { 256 } else { 0 };
    // A2 is loaded where there are iterations that use it.
    let times_a = if iterations > 0 { 2 } else { 1 };
    let read = warps * ((times_a * words_a + ACCUMULATORS * words_b) * 128 + scale_bytes);
    assert_eq!(counts.global_read, read as u64, "{what}");
    assert_eq!(counts.global_written, (warps * ACCUMULATORS * words_c * 128) as u64, "{what}");
    tally.case();
}
