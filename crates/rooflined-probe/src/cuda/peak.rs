//! Peaks: multiply-adds that touch no memory.
//!
//! A tensor-core kernel multiplies the same operands again and again, in turn by a and by -a, and once more by a at the
//! end: whatever the number of iterations, the result is that of one product, which is exact in small whole numbers.
//! Block scales are random powers of two, another one for every block: a factor that reaches the wrong block shows.

use half::{bf16, f16};

use super::driver::{Arg, GpuError, Launch};
use super::kernels::{Entry, Peak, SHARED_COLUMNS, Scale, Tile, peak};
use super::{Cuda, Job, POISON, deviation, floats, launch, words};
use rooflined_core::precision::Precision;
use rooflined_core::precision::quantise::{encode_e2m1, encode_e4m3};
use rooflined_core::units::{Bytes, Flops, Seconds};
use rooflined_predict::calibration::Step;

/// Lanes of a warp, and accumulators that each warp keeps.
const LANES: usize = 32;
const ACCUMULATORS: usize = 8;
/// Rows and columns of one `mma.sync`.
const WARP_ROWS: usize = 16;
const WARP_COLUMNS: usize = 8;
/// Registers of a warp's first operand, second operand and accumulator.
const A_REGISTERS: usize = 4;
const B_REGISTERS: usize = 2;
const C_REGISTERS: usize = 4;
/// What a launch takes at least.
const LAUNCH: Seconds = Seconds(1e-3);
const MOST_ITERATIONS: u32 = 1 << 20;
/// Exponents of block scales are so far from 0 at most: sums of products stay exact in fp32.
const MOST_EXPONENT: i8 = 2;

/// How a precision's elements lie in a word.
#[derive(Debug, Clone, Copy)]
struct Element {
    bits: usize,
    encode: fn(i8) -> u32,
}

impl Element {
    fn of(precision: Precision) -> Option<Self> {
        #[expect(clippy::cast_sign_loss, reason = "two's complement")]
        let (bits, encode): (usize, fn(i8) -> u32) = match precision {
            Precision::Tf32 => (32, |value| f32::from(value).to_bits()),
            Precision::Fp16 => (16, |value| f16::from_f32(value.into()).to_bits().into()),
            Precision::Bf16 => (16, |value| bf16::from_f32(value.into()).to_bits().into()),
            Precision::Fp8 => (8, |value| encode_e4m3(value.into()).into()),
            Precision::Int8 => (8, |value| u32::from(value as u8)),
            Precision::Fp4 => (4, |value| encode_e2m1(value.into()).into()),
            Precision::Int4 => (4, |value| u32::from(value as u8 & 15)),
            _ => return None,
        };
        Some(Self { bits, encode })
    }

    /// Elements of a word, the first in the low bits.
    fn packed(self, values: impl Iterator<Item = i8>) -> u32 {
        values.enumerate().fold(0, |word, (i, value)| word | (self.encode)(value) << (i * self.bits))
    }

    /// Rows as bytes.
    fn rows(self, values: &[i8]) -> Vec<u8> {
        values
            .chunks(32 / self.bits)
            .flat_map(|chunk| self.packed(chunk.iter().copied()).to_le_bytes())
            .collect()
    }
}

/// -2 to 2, which every precision holds exactly, with its negative.
fn small(rng: &mut fastrand::Rng, count: usize) -> Vec<i8> {
    (0..count).map(|_| rng.i8(-2..=2)).collect()
}

fn negative(values: &[i8]) -> Vec<i8> {
    values.iter().map(|value| -value).collect()
}

/// Factors of the blocks of a matrix' rows, as exponents of two.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scales {
    /// Row by row.
    exponents: Vec<i8>,
    /// Blocks of a row.
    blocks: usize,
}

impl Scales {
    fn random(rng: &mut fastrand::Rng, rows: usize, blocks: usize) -> Self {
        let exponent = || rng.i8(-MOST_EXPONENT..=MOST_EXPONENT);
        Self { exponents: std::iter::repeat_with(exponent).take(rows * blocks).collect(), blocks }
    }

    fn factor(&self, row: usize, block: usize) -> f64 {
        f64::from(self.exponents[row * self.blocks + block]).exp2()
    }

    /// A byte for each, row by row.
    fn rows(&self, scale: Scale) -> Vec<u8> {
        self.exponents.iter().map(|exponent| scale.code(*exponent)).collect()
    }

    /// A word a lane: those of a row in the word of `lane_of(row)`, and in what the instruction does not look at any others.
    fn lanes(&self, scale: Scale, lane_of: fn(usize) -> usize, rng: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = Self::random(rng, LANES, 4).rows(scale);
        for (row, exponents) in self.exponents.chunks(self.blocks).enumerate() {
            for (block, exponent) in exponents.iter().enumerate() {
                bytes[4 * lane_of(row) + block] = scale.code(*exponent);
            }
        }
        bytes
    }
}

/// `a` (`m x k`) times the transpose of `b` (`n x k`), the blocks of their rows scaled.
fn product(a: &[i8], b: &[i8], k: usize, scales: Option<&[Scales; 2]>) -> Vec<f64> {
    let block = scales.map_or(k, |[of_a, _]| k / of_a.blocks);
    let dot =
        |a: &[i8], b: &[i8]| -> i32 { a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum() };
    let element = |(i, a): (usize, &[i8]), (j, b): (usize, &[i8])| -> f64 {
        let blocks = a.chunks(block).zip(b.chunks(block)).enumerate();
        let scaled = blocks.map(|(at, (a, b))| {
            let factor = scales.map_or(1.0, |[of_a, of_b]| of_a.factor(i, at) * of_b.factor(j, at));
            f64::from(dot(a, b)) * factor
        });
        scaled.sum()
    };
    let rows = a.chunks(k).enumerate();
    rows.flat_map(|a| b.chunks(k).enumerate().map(move |b| element(a, b))).collect()
}

impl Cuda {
    pub(super) fn peak(&mut self, step: &Step, precision: Precision) -> Result<Job, GpuError> {
        if precision == Precision::Fp32 {
            return self.plain_peak(step);
        }
        let kernel = peak(precision, self.device.facts().capability).map_err(GpuError::Step)?;
        self.tensor_peak(step, precision, kernel)
    }

    /// The peak that one kernel finds.
    pub(super) fn tensor_peak(
        &mut self,
        step: &Step,
        precision: Precision,
        kernel: Peak,
    ) -> Result<Job, GpuError> {
        let element = Element::of(precision)
            .ok_or_else(|| GpuError::Step(format!("there is no GPU kernel for the peak of {precision}")))?;
        let (function, entry) = self.kernel(kernel.entry)?;
        // A tile in shared memory keeps an SM busy alone, and tensor memory has room for one.
        let blocks = match kernel.tile {
            Tile::Warp { .. } => self.fill(function, entry, step)?,
            Tile::Shared { .. } => step.threads,
        };
        let operands = Operands::new(kernel, element, entry, &mut self.rng);
        let outputs = blocks as usize * operands.block_words();
        let sizes = [&operands.a, &operands.a2, &operands.b, &operands.scale_a, &operands.scale_b];
        let sizes: Vec<u64> =
            sizes.iter().map(|bytes| bytes.len() as u64).chain([outputs as u64 * 4]).collect();
        let buffers = self.allocate(&sizes)?;
        let [a, a2, b, scale_a, scale_b, out] = buffers.as_slice() else {
            return Err(GpuError::Step("no buffers".into()));
        };
        let filled = [(a, &operands.a), (a2, &operands.a2), (b, &operands.b)];
        for (buffer, bytes) in
            filled.into_iter().chain([(scale_a, &operands.scale_a), (scale_b, &operands.scale_b)])
        {
            buffer.write(0, bytes)?;
        }
        let mut args = vec![a.at(0), a2.at(0), b.at(0)];
        if kernel.scale.is_some() {
            args.extend([scale_a.at(0), scale_b.at(0)]);
        }
        let bound = |iterations: u32| {
            let tail = [Arg::U32(iterations), out.at(0)];
            launch(function, entry, blocks, args.iter().copied().chain(tail).collect())
        };
        let iterations = self.iterations(&bound)?;
        let run = vec![bound(iterations)];
        out.set(POISON)?;
        self.device.run(&run)?;
        let bytes = out.read(0, outputs * 4)?;
        let results = if kernel.halves { 2 * outputs } else { outputs };
        let wanted = operands.wanted.iter().copied().cycle().take(results);
        let error = if kernel.halves {
            deviation(halves(&bytes), wanted)
        } else if matches!(precision, Precision::Int8 | Precision::Int4) {
            #[expect(clippy::cast_possible_wrap, reason = "a signed sum")]
            let found = words(&bytes).map(|word| f64::from(word as i32));
            deviation(found, wanted)
        } else {
            deviation(floats(&bytes), wanted)
        };
        let rounds = 2.0 * f64::from(iterations) + 1.0;
        Ok(Job {
            runs: vec![run],
            flops: Flops(f64::from(blocks) * rounds * operands.block_flops()),
            bytes: Bytes(0.0),
            weights: 0.0,
            error: Some(error),
            _buffers: buffers,
        })
    }

    /// Multiply-adds in fp32: x becomes c - x, again and again, which is exact for what x holds.
    fn plain_peak(&mut self, step: &Step) -> Result<Job, GpuError> {
        const C: f32 = 4.0;
        let (function, entry) = self.kernel("fma_f32")?;
        let blocks = self.fill(function, entry, step)?;
        let count = blocks as usize * entry.threads as usize * ACCUMULATORS;
        let x: Vec<f32> = (0..count).map(|_| f32::from(self.rng.i16(-2048..2048)) / 1024.0).collect();
        let buffers = self.allocate(&[count as u64 * 4, count as u64 * 4])?;
        let [input, out] = buffers.as_slice() else { return Err(GpuError::Step("no buffers".into())) };
        input.write(0, &x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())?;
        let bound = |iterations: u32| {
            let args = vec![input.at(0), Arg::F32(-1.0), Arg::F32(C), Arg::U32(iterations), out.at(0)];
            launch(function, entry, blocks, args)
        };
        // Odd, or nothing would have become of x.
        let iterations = self.iterations(&bound)? | 1;
        let run = vec![bound(iterations)];
        out.set(POISON)?;
        self.device.run(&run)?;
        let bytes = out.read(0, count * 4)?;
        let error = deviation(floats(&bytes), x.iter().map(|x| f64::from(C - x)));
        #[expect(clippy::cast_precision_loss, reason = "threads of a GPU")]
        let flops = count as f64 * f64::from(iterations) * 2.0;
        Ok(Job {
            runs: vec![run],
            flops: Flops(flops),
            bytes: Bytes(0.0),
            weights: 0.0,
            error: Some(error),
            _buffers: buffers,
        })
    }

    /// As many as make a launch long enough; a few where nothing is timed.
    fn iterations(&self, bound: &dyn Fn(u32) -> Launch) -> Result<u32, GpuError> {
        let mut iterations = 8;
        if !self.timing.is_settled() {
            return Ok(iterations);
        }
        loop {
            let mut time = self.warm_time(&bound(iterations))?;
            if time >= LAUNCH {
                // Once more: other work on the GPU may have made it longer.
                time = time.min(self.warm_time(&bound(iterations))?);
            }
            if time >= LAUNCH || iterations >= MOST_ITERATIONS {
                return Ok(iterations);
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small factor")]
            let factor = (1.2 * (LAUNCH / time.max(Seconds(1e-7)))).ceil().clamp(2.0, 32.0) as u32;
            iterations = (iterations * factor).min(MOST_ITERATIONS);
        }
    }
}

/// What a tensor-core kernel is given, and what must come of it.
struct Operands {
    kernel: Peak,
    warps: usize,
    a: Vec<u8>,
    a2: Vec<u8>,
    b: Vec<u8>,
    scale_a: Vec<u8>,
    scale_b: Vec<u8>,
    /// Of a warp, or of a tile.
    wanted: Vec<f64>,
}

impl Operands {
    fn new(kernel: Peak, element: Element, entry: &Entry, rng: &mut fastrand::Rng) -> Self {
        let warps = entry.threads as usize / LANES;
        match kernel.tile {
            Tile::Warp { k } => {
                let a = small(rng, WARP_ROWS * k);
                let columns: Vec<Vec<i8>> = (0..ACCUMULATORS).map(|_| small(rng, WARP_COLUMNS * k)).collect();
                let order = if kernel.halves { paired } else { accumulator };
                let scales = kernel.scale.map(|scale| {
                    let blocks = k / scale.block();
                    [WARP_ROWS, WARP_COLUMNS].map(|rows| Scales::random(rng, rows, blocks))
                });
                let wanted =
                    columns.iter().flat_map(|b| order(&product(&a, b, k, scales.as_ref()))).collect();
                let [scale_a, scale_b] = match (kernel.scale, &scales) {
                    (Some(scale), Some([of_a, of_b])) => {
                        [of_a.lanes(scale, lane_of_row, rng), of_b.lanes(scale, lane_of_column, rng)]
                    }
                    _ => [const { Vec::new() }; 2],
                };
                Self {
                    kernel,
                    warps,
                    a: fragment(element, &a, k, A_REGISTERS),
                    a2: fragment(element, &negative(&a), k, A_REGISTERS),
                    b: columns.iter().flat_map(|b| fragment(element, b, k, B_REGISTERS)).collect(),
                    scale_a,
                    scale_b,
                    wanted,
                }
            }
            Tile::Shared { m, k, .. } => {
                let (a, b) = (small(rng, m * k), small(rng, SHARED_COLUMNS * k));
                let scales = kernel.scale.map(|scale| {
                    [m, SHARED_COLUMNS].map(|rows| Scales::random(rng, rows, k / scale.block()))
                });
                let [scale_a, scale_b] = match (kernel.scale, &scales) {
                    (Some(scale), Some(of)) => of.each_ref().map(|of| of.rows(scale)),
                    _ => [const { Vec::new() }; 2],
                };
                Self {
                    kernel,
                    warps,
                    wanted: product(&a, &b, k, scales.as_ref()),
                    a2: element.rows(&negative(&a)),
                    a: element.rows(&a),
                    b: element.rows(&b),
                    scale_a,
                    scale_b,
                }
            }
        }
    }

    /// Words that a block writes.
    fn block_words(&self) -> usize {
        match self.kernel.tile {
            Tile::Warp { .. } => {
                self.warps * ACCUMULATORS * C_REGISTERS * LANES / if self.kernel.halves { 2 } else { 1 }
            }
            Tile::Shared { m, groups, .. } => groups * m * SHARED_COLUMNS,
        }
    }

    /// Operations of a block in one round.
    fn block_flops(&self) -> f64 {
        let (products, depth) = match self.kernel.tile {
            Tile::Warp { k } => (self.warps * ACCUMULATORS * WARP_ROWS * WARP_COLUMNS, k),
            Tile::Shared { m, k, groups } => (groups * m * SHARED_COLUMNS, k),
        };
        #[expect(clippy::cast_precision_loss, reason = "a tile")]
        let flops = (2 * products * depth) as f64;
        flops
    }
}

/// The lane whose word scales a row of A, and a column of B (PTX ISA, "Block scaling", thread-id 0).
const fn lane_of_row(row: usize) -> usize {
    row % 8 * 4 + row / 8
}

const fn lane_of_column(column: usize) -> usize {
    column * 4
}

/// A matrix of rows of `k` (`A`: 16 rows, four registers; the transpose of `B`: 8, two) as a warp holds it: a lane's
/// word of register r has neighbours of row lane / 4, eight further for A's odd registers, and of the other half of k for
/// its upper ones.
fn fragment(element: Element, matrix: &[i8], k: usize, registers: usize) -> Vec<u8> {
    let each = 32 / element.bits;
    let mut bytes = Vec::with_capacity(registers * LANES * 4);
    for register in 0..registers {
        let (below, half) =
            if registers == A_REGISTERS { (register % 2, register / 2) } else { (0, register) };
        for lane in 0..LANES {
            let row = lane / 4 + 8 * below;
            let column = lane % 4 * each + half * 4 * each;
            let values = &matrix[row * k + column..][..each];
            bytes.extend(element.packed(values.iter().copied()).to_le_bytes());
        }
    }
    bytes
}

/// A product of 16 rows and 8 columns as the four registers of an accumulator, register by register.
fn accumulator(product: &[f64]) -> Vec<f64> {
    let place = |register: usize, lane: usize| {
        (lane / 4 + 8 * (register / 2)) * WARP_COLUMNS + lane % 4 * 2 + register % 2
    };
    (0..C_REGISTERS).flat_map(|register| (0..LANES).map(move |lane| product[place(register, lane)])).collect()
}

/// The same as two registers of two neighbours in fp16 each.
fn paired(product: &[f64]) -> Vec<f64> {
    let place = |register: usize, lane: usize| (lane / 4 + 8 * register) * WARP_COLUMNS + lane % 4 * 2;
    (0..C_REGISTERS / 2)
        .flat_map(|register| {
            (0..LANES).flat_map(move |lane| [0, 1].map(|i| product[place(register, lane) + i]))
        })
        .collect()
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(2).map(|half| f16::from_le_bytes([half[0], half[1]]).to_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every other way to hand the factors to the blocks gives a result that is rejected: there is another factor for each.
    #[test]
    fn a_factor_that_reaches_the_wrong_block_gives_a_wrong_result() {
        let tolerance = super::super::verify::TOLERANCE;
        for (m, n, k, scale) in [
            (WARP_ROWS, WARP_COLUMNS, 32, Scale::E8m0),
            (WARP_ROWS, WARP_COLUMNS, 64, Scale::E4m3),
            (128, SHARED_COLUMNS, 128, Scale::E4m3),
        ] {
            let rng = &mut fastrand::Rng::with_seed(7);
            let (a, b) = (small(rng, m * k), small(rng, n * k));
            let blocks = k / scale.block();
            let right = [m, n].map(|rows| Scales::random(rng, rows, blocks));
            let wanted = product(&a, &b, k, Some(&right));
            let of = |right: &Scales, at: &dyn Fn(usize) -> usize| Scales {
                exponents: (0..right.exponents.len()).map(|i| right.exponents[at(i)]).collect(),
                blocks,
            };
            let wrong = |at: &dyn Fn(usize, usize) -> usize| {
                right.each_ref().map(|of_one| of(of_one, &|i| at(i, of_one.exponents.len())))
            };
            let ones = right.each_ref().map(|of| Scales { exponents: vec![0; of.exponents.len()], blocks });
            let mut layouts = vec![
                ("all alike", ones),
                ("a row further", wrong(&|i, all| (i + blocks) % all)),
                ("eight rows further", wrong(&|i, all| (i + 8 * blocks) % all)),
                ("neighbouring rows exchanged", wrong(&|i, _| ((i / blocks) ^ 1) * blocks + i % blocks)),
                ("from the last row on", wrong(&|i, all| all - 1 - i)),
            ];
            // With eight columns, eight further is where it was; with one block a row there is no order of blocks.
            layouts.retain(|(_, layout)| layout != &right);
            if blocks > 1 {
                layouts
                    .push(("blocks before rows", wrong(&|i, all| i % blocks * (all / blocks) + i / blocks)));
                layouts.push((
                    "blocks in the reverse order",
                    wrong(&|i, _| i / blocks * blocks + blocks - 1 - i % blocks),
                ));
            }
            for (layout, scales) in layouts {
                let found = product(&a, &b, k, Some(&scales));
                let error = deviation(found.into_iter(), wanted.iter().copied());
                assert!(error > 10.0 * tolerance, "{m} x {n} x {k}, {layout}: {error}");
            }
        }
    }

    #[test]
    fn codes_of_scales_are_powers_of_two() {
        use rooflined_core::precision::quantise::{decode_e4m3, decode_e8m0};
        for exponent in -MOST_EXPONENT..=MOST_EXPONENT {
            let value = f64::from(exponent).exp2();
            assert_eq!(f64::from(decode_e4m3(Scale::E4m3.code(exponent))), value);
            assert_eq!(f64::from(decode_e8m0(Scale::E8m0.code(exponent))), value);
        }
    }
}
