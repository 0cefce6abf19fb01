//! `y = W x` over stored formats: the kernels an inference engine would run for one token.
//!
//! x and y are fp32. Integer formats quantise x once per call, as llama.cpp and others do; its cost is part of the
//! run. Rows are handed to workers evenly, and each worker's rows lie in memory it touched first.
//!
//! Nearly every line of a kernel is an intrinsic or a pointer's, and all of them rest on what [`Gemv`] says: the instructions
//! are there, and the pointers are good for the task's sizes. So a function that is `unsafe` has no further block inside; what
//! it relies on beyond that is said at its place.

#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "the contract of a kernel is that of `Gemv`, for each of its lines"
)]

/// Kernels by their names: what each makes of the right-hand sides first, and the tile that it drives.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! entries {
    ($features:literal, $($name:ident, $tile:ty, |$task:ident| { $($prepare:expr;)* };)*) => {$(
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name($task: &Task) {
            // SAFETY: the caller checked the features and vouches for the task.
            $($prepare;)*
            drive::<$tile>($task);
        }
    )*};
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod pack;
mod scalar;

use half::bf16;

use self::activations::Activations;
use super::isa::Isa;
use rooflined_core::precision::WeightFormat;

/// One worker's share of a call.
#[derive(Clone, Copy)]
pub struct Task {
    /// The first of its rows.
    pub weights: *const u8,
    /// Distance between rows.
    pub row_bytes: usize,
    pub rows: usize,
    /// Weights in a row.
    pub k: usize,
    /// Scale of each of its rows; dangling for formats without.
    pub row_scales: *const f32,
    /// Right-hand sides, each `k` long, one after another.
    pub x: *const f32,
    pub columns: usize,
    /// The first of its results; columns lie `y_stride` apart.
    pub y: *mut f32,
    /// Distance between columns of results.
    pub y_stride: usize,
    /// 64-byte aligned space of [`activations::scratch_bytes`].
    pub scratch: *mut u8,
}

impl Task {
    #[inline(always)]
    unsafe fn row(&self, row: usize) -> *const u8 {
        // SAFETY: `row < rows`, by the callers here.
        self.weights.add(row * self.row_bytes)
    }

    #[inline(always)]
    unsafe fn store(&self, row: usize, column: usize, value: f32) {
        // SAFETY: as above; each result belongs to one worker.
        *self.y.add(column * self.y_stride + row) = value;
    }
}

/// A kernel: computes all of a [`Task`].
///
/// # Safety
/// The instruction set is supported, and the task's pointers are valid for the sizes it states.
pub type Gemv = unsafe fn(&Task);

/// A tile of `R` rows by `C` columns, with `U` independent sums for each element.
trait Tile {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize);
}

/// Covers a task with tiles.
///
/// A single column is done row after row, so that the weights are one stream from memory. Several columns no longer
/// fit the first-level cache beside the weights: four rows at a time use what is loaded of them four times.
#[inline(always)]
unsafe fn drive<T: Tile>(task: &Task) {
    let blocked = if task.columns > 1 { task.rows / 4 * 4 } else { 0 };
    let mut row = 0;
    // SAFETY: tiles stay inside the task's rows and columns.
    while row < blocked {
        let mut column = 0;
        while column + 4 <= task.columns {
            T::tile::<4, 4, 1>(task, row, column);
            column += 4;
        }
        if column + 2 <= task.columns {
            T::tile::<4, 2, 1>(task, row, column);
            column += 2;
        }
        if column < task.columns {
            for row in row..row + 4 {
                T::tile::<1, 1, 4>(task, row, column);
            }
        }
        row += 4;
    }
    while row < task.rows {
        for column in 0..task.columns {
            T::tile::<1, 1, 4>(task, row, column);
        }
        row += 1;
    }
}

/// A stored format on an instruction set, where a row is a sequence of equal steps: vectors of weights, or blocks.
trait Steps {
    type Sum: Copy;
    /// The weights of one step, dequantized.
    type Weights: Copy;
    /// Bytes of a row in one step.
    const BYTES: usize;

    unsafe fn zero() -> Self::Sum;
    unsafe fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    unsafe fn load(p: *const u8) -> Self::Weights;
    /// The last, shorter step of a row: the weights in `left` bytes, and zeros. Formats in blocks have none.
    #[inline(always)]
    unsafe fn load_some(p: *const u8, _left: usize) -> Self::Weights {
        // SAFETY: a row of blocks is whole steps.
        Self::load(p)
    }
    /// Adds the products of a step at byte `at` of the row with a column.
    unsafe fn dot(sum: Self::Sum, weights: Self::Weights, task: &Task, column: usize, at: usize)
    -> Self::Sum;
    /// The same for the last step, whose weights are zero beyond `left` bytes.
    #[inline(always)]
    unsafe fn dot_some(
        sum: Self::Sum,
        weights: Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
        _left: usize,
    ) -> Self::Sum {
        // SAFETY: prepared columns are padded with zeros; the others override this.
        Self::dot(sum, weights, task, column, at)
    }
    /// The element from its sums.
    unsafe fn finish(task: &Task, row: usize, column: usize, sum: Self::Sum) -> f32;
}

struct Stepped<S>(S);

impl<S: Steps> Tile for Stepped<S> {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: steps stay inside the rows, and rows and columns inside the task.
        let mut sums = [[[S::zero(); C]; R]; U];
        let ahead = ahead::<R>(task);
        let mut at = 0;
        while at + U * S::BYTES <= task.row_bytes {
            for (u, sums) in sums.iter_mut().enumerate() {
                let at = at + u * S::BYTES;
                for (r, sums) in sums.iter_mut().enumerate() {
                    let p = task.row(row + r).add(at);
                    // Once a line; further columns find the rows in a cache.
                    if (S::BYTES >= 64 || u.is_multiple_of(64 / S::BYTES)) && (R == 1 || column == 0) {
                        prefetch(p.wrapping_add(ahead));
                    }
                    let weights = S::load(p);
                    for (c, sum) in sums.iter_mut().enumerate() {
                        *sum = S::dot(*sum, weights, task, column + c, at);
                    }
                }
            }
            at += U * S::BYTES;
        }
        while at < task.row_bytes {
            let left = task.row_bytes - at;
            for (r, sums) in sums[0].iter_mut().enumerate() {
                let p = task.row(row + r).add(at);
                let weights = if left >= S::BYTES { S::load(p) } else { S::load_some(p, left) };
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = S::dot_some(*sum, weights, task, column + c, at, left);
                }
            }
            at += S::BYTES;
        }
        for r in 0..R {
            for c in 0..C {
                let mut sum = sums[0][r][c];
                for sums in &sums[1..] {
                    sum = S::add(sum, sums[r][c]);
                }
                task.store(row + r, column + c, S::finish(task, row + r, column + c, sum));
            }
        }
    }
}

/// Asks for a line of memory, at any address.
#[inline(always)]
fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// How far ahead of its use a weight is asked for: along the row, which runs on into the next one, or at the same
/// place in the next rows of a tile.
#[inline(always)]
fn ahead<const R: usize>(task: &Task) -> usize {
    if R == 1 { 4096 } else { R * task.row_bytes }
}

/// The element of a format with one scale per row: takes back what unsigned weights have added, which is exact
/// modulo 2^32, and applies both scales.
#[inline(always)]
unsafe fn rescale(task: &Task, row: usize, column: usize, sum: i32, offset: i32) -> f32 {
    // SAFETY: row and column lie inside the task.
    let sum = sum.wrapping_sub(task.sum(column).wrapping_mul(offset));
    sum as f32 * *task.row_scales.add(row) * task.scale(column)
}

/// Copies the last bytes of a row into a vector's worth of zeros, where there are no masked loads.
#[inline(always)]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "vector paths only")
)]
unsafe fn padded_copy<const N: usize>(p: *const u8, left: usize) -> [u8; N] {
    let mut part = [0; N];
    // SAFETY: the caller states how many bytes are left in the row.
    std::ptr::copy_nonoverlapping(p, part.as_mut_ptr(), left.min(N));
    part
}

/// The kernel for `format` on `isa`; `None` where that level adds nothing for the format.
pub fn kernel(format: WeightFormat, isa: Isa) -> Option<Gemv> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 => avx512::kernel(format, isa),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni | Isa::Avx2 => avx2::kernel(format, isa),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::NeonBf16 => aarch64::kernel(format, isa),
        Isa::Scalar => scalar::kernel(format),
        _ => None,
    }
}

/// The best kernel of this machine; `None` for a format without kernels.
pub fn best(format: WeightFormat) -> Option<(Isa, Gemv)> {
    Isa::supported().find_map(|isa| Some((isa, kernel(format, isa)?)))
}

/// The form in which `isa`'s kernel for `format` multiplies the right-hand sides.
pub const fn activations(format: WeightFormat, isa: Isa) -> Activations {
    match (format, isa) {
        (WeightFormat::Bf16, Isa::Avx512Bf16 | Isa::NeonBf16) => Activations::Bf16,
        _ => Activations::of(format),
    }
}

/// Result of one row and the sum of its terms' magnitudes, in fp64 from the definitions of the format and
/// [`Activations`]: shares no code with any kernel.
pub fn reference(
    format: WeightFormat,
    form: Activations,
    row: &[u8],
    row_scale: f32,
    x: &[f32],
) -> (f64, f64) {
    let quantise = |block: &[f32], value: f32| {
        let scale = block.iter().fold(0.0_f32, |most, x| x.abs().max(most)) / 127.0;
        if scale == 0.0 {
            0.0
        } else {
            f64::from((value * (1.0 / scale)).round_ties_even()) * f64::from(scale)
        }
    };
    let block = if form == Activations::Int8Blocks { 32 } else { x.len().max(1) };
    let weights = pack::weights(format, row, row_scale);
    let mut sum = 0.0;
    let mut magnitude = 0.0;
    // The largest value of a block is the same for all of its members.
    for (part, weights) in x.chunks(block).zip(weights.chunks(block)) {
        let extreme = [part.iter().fold(0.0_f32, |most, x| x.abs().max(most))];
        for (value, weight) in part.iter().zip(weights) {
            let value = match form {
                Activations::Fp32 => f64::from(*value),
                Activations::Bf16 => bf16::from_f32(*value).to_f64(),
                Activations::Int8 | Activations::Int8Blocks => quantise(&extreme, *value),
            };
            let term = f64::from(*weight) * value;
            sum += term;
            magnitude += term.abs();
        }
    }
    (sum, magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [WeightFormat; 9] = [
        WeightFormat::Fp32,
        WeightFormat::Fp16,
        WeightFormat::Bf16,
        WeightFormat::Int8,
        WeightFormat::Int4,
        WeightFormat::Int4G32,
        WeightFormat::Int4G128,
        WeightFormat::Q8_0,
        WeightFormat::Q4_0,
    ];

    /// Largest deviation of `y = W x` relative to the sum of the terms' magnitudes.
    fn deviation(format: WeightFormat, isa: Isa, gemv: Gemv, n: usize, k: usize, columns: usize) -> f64 {
        let mut rng = fastrand::Rng::with_seed((n * 1000 + k * 10 + columns) as u64);
        let weights: Vec<f32> = (0..n * k).map(|_| pack::random_weight(&mut rng)).collect();
        let packed = pack::pack(format, n, k, &weights).unwrap();
        let x: Vec<f32> = (0..k * columns).map(|_| pack::random_weight(&mut rng) * 3.0).collect();
        let mut y = vec![f32::NAN; n * columns];
        let mut scratch = vec![0_u8; activations::scratch_bytes(k, columns) + 64];
        let row_bytes = pack::row_bytes(format, k).unwrap();
        // An exactly sized copy: a read past the end is a read past the allocation.
        let stored = packed.bytes.clone().into_boxed_slice();
        let task = Task {
            weights: stored.as_ptr(),
            row_bytes,
            rows: n,
            k,
            row_scales: packed.row_scales.as_ptr(),
            x: x.as_ptr(),
            columns,
            y: y.as_mut_ptr(),
            y_stride: n,
            scratch: scratch.as_mut_ptr().wrapping_add(scratch.as_ptr().align_offset(64)),
        };
        // SAFETY: the buffers above have the sizes the task states; the caller checked the instruction set.
        unsafe { gemv(&task) };
        let mut worst = 0.0_f64;
        for column in 0..columns {
            for row in 0..n {
                let stored = &stored[row * row_bytes..][..row_bytes];
                let scale = packed.row_scales.get(row).copied().unwrap_or(1.0);
                let form = activations(format, isa);
                let (expected, magnitude) = reference(format, form, stored, scale, &x[column * k..][..k]);
                worst = worst.max((f64::from(y[column * n + row]) - expected).abs() / magnitude);
                assert!(!y[column * n + row].is_nan());
            }
        }
        worst
    }

    #[test]
    fn every_kernel_agrees_with_the_definition_at_odd_sizes() {
        for isa in Isa::supported() {
            for format in FORMATS {
                let Some(gemv) = kernel(format, isa) else { continue };
                for k in [1, 2, 31, 32, 33, 64, 65, 100, 127, 128, 129, 320, 1000] {
                    for n in [1, 3, 4, 17] {
                        for columns in [1, 2, 3, 7, 8, 17] {
                            let error = deviation(format, isa, gemv, n, k, columns);
                            assert!(error < 2e-6, "{format} {} {n}x{k} x{columns}: {error}", isa.key());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_format_has_a_scalar_kernel_and_only_those() {
        for format in &WeightFormat::ALL {
            assert_eq!(kernel(*format, Isa::Scalar).is_some(), FORMATS.contains(format), "{format}");
        }
    }
}
