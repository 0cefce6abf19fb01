//! Peaks: multiply-adds that touch no memory.
//!
//! A tensor-core kernel multiplies the same operands again and again, in turn by a and by -a, and once more by a at the
//! end: whatever the number of iterations, the result is that of one product, which is exact in small whole numbers.

use half::{bf16, f16};

use super::driver::{Arg, GpuError, Launch};
use super::kernels::{Entry, Peak, SHARED_COLUMNS, Tile, peak};
use super::{Cuda, Job, POISON, deviation, floats, launch, words};
use predict::calibration::Step;
use roofline::precision::Precision;
use roofline::precision::quantise::{encode_e2m1, encode_e4m3};
use roofline::units::{Bytes, Flops, Seconds};

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
/// Weights that share a scale, of nvfp4.
const SCALED: usize = 16;

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

/// `a` (`m x k`) times the transpose of `b` (`n x k`).
fn product(a: &[i8], b: &[i8], k: usize) -> Vec<f64> {
    let row =
        |a: &[i8], b: &[i8]| -> i32 { a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum() };
    a.chunks(k).flat_map(|a| b.chunks(k).map(move |b| f64::from(row(a, b)))).collect()
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

    /// As many as make a launch long enough.
    fn iterations(&self, bound: &dyn Fn(u32) -> Launch) -> Result<u32, GpuError> {
        let mut iterations = 8;
        loop {
            let time = self.device.run(&[bound(iterations)])?;
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
                let wanted = columns.iter().flat_map(|b| order(&product(&a, b, k))).collect();
                // All alike: which lane's word scales which row makes no difference.
                let one = kernel.scale.map_or_else(Vec::new, |one| vec![one; LANES * 4]);
                Self {
                    kernel,
                    warps,
                    a: fragment(element, &a, k, A_REGISTERS),
                    a2: fragment(element, &negative(&a), k, A_REGISTERS),
                    b: columns.iter().flat_map(|b| fragment(element, b, k, B_REGISTERS)).collect(),
                    scale_a: one.clone(),
                    scale_b: one,
                    wanted,
                }
            }
            Tile::Shared { m, k, .. } => {
                let (a, b) = (small(rng, m * k), small(rng, SHARED_COLUMNS * k));
                let scales =
                    |rows: usize| kernel.scale.map_or_else(Vec::new, |one| vec![one; rows * k / SCALED]);
                Self {
                    kernel,
                    warps,
                    wanted: product(&a, &b, k),
                    a2: element.rows(&negative(&a)),
                    a: element.rows(&a),
                    b: element.rows(&b),
                    scale_a: scales(m),
                    scale_b: scales(SHARED_COLUMNS),
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
