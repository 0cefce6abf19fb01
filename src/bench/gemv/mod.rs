//! `y = W x` over stored formats: the kernels an inference engine would run for one token.
//!
//! x and y are fp32. Integer formats quantise x once per call, as llama.cpp and others do; its cost is part of the
//! run. Rows are handed to workers evenly, and each worker's rows lie in memory it touched first.

pub mod activations;
pub mod pack;
mod scalar;
#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod avx512;

use half::bf16;

use self::activations::Activations;
use super::isa::Isa;
use crate::precision::WeightFormat;

/// One worker's share of a call.
#[derive(Clone, Copy)]
pub struct Task {
    /// The first of its rows.
    pub weights: *const u8,
    /// Distance between rows.
    pub row_bytes: usize,
    /// Its rows.
    pub rows: usize,
    /// Row length.
    pub k: usize,
    /// Scale of each of its rows; dangling for formats without.
    pub row_scales: *const f32,
    /// Right-hand sides, each `k` long, one after another.
    pub x: *const f32,
    /// How many.
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
        unsafe { self.weights.add(row * self.row_bytes) }
    }

    #[inline(always)]
    unsafe fn store(&self, row: usize, column: usize, value: f32) {
        // SAFETY: as above; each result belongs to one worker.
        unsafe { *self.y.add(column * self.y_stride + row) = value };
    }
}

/// A kernel: computes all of a [`Task`].
///
/// # Safety
/// The instruction set is supported, and the task's pointers are valid for the sizes it states.
pub type Gemv = unsafe fn(&Task);

/// A tile of `R` rows by `C` columns.
trait Tile {
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize);
}

/// Covers a task with tiles. All columns of a few rows are done before the next rows, so that weights come from
/// memory once.
#[inline(always)]
unsafe fn drive<T: Tile>(task: &Task) {
    let mut row = 0;
    // SAFETY: tiles stay inside the task's rows and columns.
    unsafe {
        while row + 4 <= task.rows {
            let mut column = 0;
            while column + 4 <= task.columns {
                T::tile::<2, 4>(task, row, column);
                T::tile::<2, 4>(task, row + 2, column);
                column += 4;
            }
            while column < task.columns {
                T::tile::<4, 1>(task, row, column);
                column += 1;
            }
            row += 4;
        }
        while row < task.rows {
            for column in 0..task.columns {
                T::tile::<1, 1>(task, row, column);
            }
            row += 1;
        }
    }
}

/// The kernel for `format` on `isa`; `None` where that level adds nothing for the format.
pub fn kernel(format: WeightFormat, isa: Isa) -> Option<Gemv> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 => avx512::kernel(format, isa),
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

/// Result of one row and the sum of its terms' magnitudes, in fp64 from the definitions of `pack` and
/// [`Activations`]: shares no code with any kernel.
pub fn reference(format: WeightFormat, form: Activations, row: &[u8], row_scale: f32, x: &[f32]) -> (f64, f64) {
    let quantise = |block: &[f32], value: f32| {
        let scale = block.iter().fold(0.0_f32, |most, x| x.abs().max(most)) / 127.0;
        if scale == 0.0 { 0.0 } else { f64::from((value * (1.0 / scale)).round_ties_even()) * f64::from(scale) }
    };
    let block = if form == Activations::Int8Blocks { 32 } else { x.len().max(1) };
    let mut sum = 0.0;
    let mut magnitude = 0.0;
    // The largest value of a block is the same for all of its members.
    for (start, part) in x.chunks(block).enumerate().map(|(i, part)| (i * block, part)) {
        let extreme = [part.iter().fold(0.0_f32, |most, x| x.abs().max(most))];
        for (i, value) in part.iter().enumerate() {
            let value = match form {
                Activations::Fp32 => f64::from(*value),
                Activations::Bf16 => bf16::from_f32(*value).to_f64(),
                Activations::Int8 | Activations::Int8Blocks => quantise(&extreme, *value),
            };
            let term = pack::weight(format, row, row_scale, start + i) * value;
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
                        for columns in [1, 3, 4, 9] {
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
        for format in WeightFormat::ALL {
            assert_eq!(kernel(*format, Isa::Scalar).is_some(), FORMATS.contains(format), "{format}");
        }
    }
}
