//! Peaks of `wgmma` and `tcgen05`: tiles of shared memory through their descriptors and swizzles, accumulators in
//! registers or tensor memory, and factors for each block.

use ptx::{Fault, Module};

use crate::device::{Device, Random, Tally, module};
use crate::formats::{from_e4m3, random_e4m3};
use crate::mma::element;

/// A kernel of the family and the tile that it multiplies.
#[derive(Debug, Clone, Copy)]
pub struct Tile {
    pub module: &'static str,
    pub entry: &'static str,
    kind: &'static str,
    depth: usize,
    bits: usize,
    rows: usize,
    /// Tiles of a block.
    groups: usize,
    threads: u32,
    /// Elements that share a factor, 0 where there are none.
    scaled: usize,
}

const fn warpgroup(module: &'static str, kind: &'static str, depth: usize, bits: usize) -> Tile {
    Tile { module, entry: module, kind, depth, bits, rows: 64, groups: 2, threads: 256, scaled: 0 }
}

const fn tensor(
    module: &'static str,
    entry: &'static str,
    kind: &'static str,
    depth: usize,
    bits: usize,
) -> Tile {
    Tile { module, entry, kind, depth, bits, rows: 128, groups: 1, threads: 128, scaled: 0 }
}

const fn scaled(tile: Tile, block: usize) -> Tile {
    Tile { scaled: block, ..tile }
}

pub const TILES: [Tile; 14] = [
    warpgroup("wgmma_f16", "f16", 64, 16),
    warpgroup("wgmma_bf16", "bf16", 64, 16),
    warpgroup("wgmma_f8", "e4m3", 128, 8),
    warpgroup("wgmma_i8", "s8", 128, 8),
    tensor("tcgen05_f16.sm100", "tcgen05_f16", "f16", 32, 16),
    tensor("tcgen05_f16.sm110", "tcgen05_f16", "f16", 32, 16),
    tensor("tcgen05_bf16.sm100", "tcgen05_bf16", "bf16", 32, 16),
    tensor("tcgen05_bf16.sm110", "tcgen05_bf16", "bf16", 32, 16),
    tensor("tcgen05_f8.sm100", "tcgen05_f8", "e4m3", 64, 8),
    tensor("tcgen05_f8.sm110", "tcgen05_f8", "e4m3", 64, 8),
    tensor("tcgen05_i8.sm100", "tcgen05_i8", "s8", 64, 8),
    tensor("tcgen05_i8.sm110", "tcgen05_i8", "s8", 64, 8),
    scaled(tensor("tcgen05_nvf4.sm100", "tcgen05_nvf4", "e2m1", 128, 4), 16),
    scaled(tensor("tcgen05_nvf4.sm110", "tcgen05_nvf4", "e2m1", 128, 4), 16),
];

const COLUMNS: usize = 256;
/// Sums of products are rounded to single precision once an instruction.
const TOLERANCE: f64 = 1e-6;
/// No launch here needs more warp instructions.
const LIMIT: u64 = 400_000;

/// A matrix of rows in bytes, its opposite in bytes, and its numbers.
struct Matrix {
    bytes: Vec<u8>,
    opposite: Vec<u8>,
    values: Vec<f64>,
}

/// What a launch is given, and what must come of it.
pub struct Inputs {
    a: Matrix,
    b: Matrix,
    scales: Vec<Vec<u8>>,
    wanted: Vec<(f64, f64)>,
}

/// How a launch ended.
#[derive(Debug)]
pub enum Outcome {
    /// The worst error relative to what was added up.
    Right(f64),
    Wrong(String),
    Fault(Fault),
}

impl Tile {
    fn matrix(&self, rows: usize, random: &mut Random) -> Matrix {
        let elements: Vec<_> = (0..rows * self.depth).map(|_| element(self.kind, random)).collect();
        let packed = |bits: &dyn Fn(&(u32, f64, u32)) -> u32| {
            elements
                .chunks_exact(32 / self.bits)
                .flat_map(|word| {
                    let word = word.iter().enumerate();
                    word.fold(0, |word, (at, e)| word | bits(e) << (at * self.bits)).to_le_bytes()
                })
                .collect()
        };
        Matrix {
            bytes: packed(&|element| element.0),
            opposite: packed(&|element| element.2),
            values: elements.iter().map(|element| element.1).collect(),
        }
    }

    pub fn inputs(&self, random: &mut Random) -> Inputs {
        let (a, b) = (self.matrix(self.rows, random), self.matrix(COLUMNS, random));
        let mut scales = Vec::new();
        let mut factors = Vec::new();
        for (rows, matrix) in [(self.rows, &a), (COLUMNS, &b)] {
            let mut values = matrix.values.clone();
            if let Some(blocks) = (rows * self.depth).checked_div(self.scaled) {
                let bytes: Vec<u8> = (0..blocks).map(|_| random_e4m3(random) & 0x7f).collect();
                for (block, byte) in values.chunks_exact_mut(self.scaled).zip(&bytes) {
                    block.iter_mut().for_each(|value| *value *= from_e4m3(*byte));
                }
                scales.push(bytes);
            }
            factors.push(values);
        }
        let mut wanted = Vec::with_capacity(self.rows * COLUMNS);
        for a in factors[0].chunks_exact(self.depth) {
            for b in factors[1].chunks_exact(self.depth) {
                let products = a.iter().zip(b).map(|(a, b)| a * b);
                wanted.push(
                    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs())),
                );
            }
        }
        Inputs { a, b, scales, wanted }
    }

    /// Runs the kernel of a module, which may be another than the one that is shipped.
    pub fn run(&self, module: &Module, inputs: &Inputs, grid: u32, iterations: u32) -> Outcome {
        let entry = module.entry(self.entry).unwrap();
        let mut device = Device::new();
        let out = device.output(grid as usize * self.groups * self.rows * COLUMNS * 4);
        let given = [&inputs.a.bytes, &inputs.a.opposite, &inputs.b.bytes];
        let mut params: Vec<Vec<u8>> =
            given.into_iter().chain(&inputs.scales).map(|bytes| device.input(bytes).param()).collect();
        params.extend([iterations.to_le_bytes().to_vec(), out.param()]);
        let counts = match device.attempt(entry, grid, self.threads, &params, LIMIT) {
            Ok(counts) => counts,
            Err(fault) => return Outcome::Fault(fault),
        };
        if !device.is_written_once(out) {
            return Outcome::Wrong("not every result is written once".to_owned());
        }
        let mut worst = 0.0_f64;
        for (at, (word, (wanted, size))) in
            device.words(out).into_iter().zip(inputs.wanted.iter().cycle()).enumerate()
        {
            let got = if self.kind == "s8" {
                f64::from(word.cast_signed())
            } else {
                f64::from(f32::from_bits(word))
            };
            let error = if got == *wanted { 0.0 } else { (got - wanted).abs() / size };
            if error.is_nan() || error > TOLERANCE {
                return Outcome::Wrong(format!("word {at}: {got} is not {wanted}, error {error:.2e}"));
            }
            worst = worst.max(error);
        }
        let tiles = grid as usize * self.groups * (2 * iterations as usize + 1);
        let flops = (tiles * 2 * self.rows * COLUMNS * self.depth) as u64;
        if counts.mma_flops.len() != 1 || counts.mma_flops.get(self.kind) != Some(&flops) {
            return Outcome::Wrong(format!("{:?} operations, not {flops}", counts.mma_flops));
        }
        // Every warp reads all factors.
        let matrices: usize = given.iter().map(|bytes| bytes.len()).sum();
        let factors: usize = inputs.scales.iter().map(Vec::len).sum();
        let read = grid as usize * (matrices + self.threads as usize / 32 * factors);
        if counts.global_read != read as u64 {
            return Outcome::Wrong(format!("{} bytes read, not {read}", counts.global_read));
        }
        Outcome::Right(worst)
    }
}

#[test]
fn tiles_are_multiplied_as_their_descriptors_say() {
    let mut tally = Tally::default();
    let mut random = Random(21);
    let mut entries: Vec<&str> = Vec::new();
    for tile in TILES {
        let module = module(tile.module);
        if !entries.contains(&tile.entry) {
            entries.push(tile.entry);
            tally.entry();
        }
        for (grid, iterations) in [(1, 0), (1, 1), (2, 3)] {
            match tile.run(&module, &tile.inputs(&mut random), grid, iterations) {
                Outcome::Right(worst) => {
                    tally.compare(worst, 0.0, 1.0, TOLERANCE, &|| tile.module.to_owned());
                }
                Outcome::Wrong(what) => {
                    panic!("{}, {grid} blocks, {iterations} iterations: {what}", tile.module)
                }
                Outcome::Fault(fault) => panic!("{fault}"),
            }
            tally.case();
        }
    }
    tally.report("tiles");
}
