//! GEMV with 512-bit vectors.
//!
//! VNNI multiplies unsigned by signed bytes. Weights are made unsigned by an offset (128 for bytes, which is one
//! exclusive or; 8 for nibbles, which are stored that way), and the offset's share, offset x sum of activations, is
//! taken back: per row where there is one scale per row, else by starting each block's sum from a prepared bias.

use std::arch::x86_64::*;

use super::activations::{Order, quantise, quantise_blocks, to_bf16};
use super::{Gemv, Task, Tile, drive};
use crate::bench::isa::Isa;
use crate::precision::WeightFormat;

pub(super) fn kernel(format: WeightFormat, isa: Isa) -> Option<Gemv> {
    use WeightFormat as F;
    Some(match (isa, format) {
        (Isa::Avx512Bf16, F::Bf16) => bf16_dot,
        (Isa::Avx512, F::Fp32) => fp32,
        (Isa::Avx512, F::Fp16) => fp16,
        (Isa::Avx512, F::Bf16) => bf16,
        (Isa::Avx512Vnni, F::Int8) => int8,
        (Isa::Avx512Vnni, F::Int4) => int4,
        (Isa::Avx512Vnni, F::Int4G32) => int4_g32,
        (Isa::Avx512Vnni, F::Int4G128) => int4_g128,
        (Isa::Avx512Vnni, F::Q8_0) => q8_0,
        (Isa::Avx512Vnni, F::Q4_0) => q4_0,
        _ => return None,
    })
}

macro_rules! entries {
    ($($name:ident, $features:literal, |$task:ident| $prepare:expr, $tile:ty;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name($task: &Task) {
            // SAFETY: the caller checked the features and vouches for the task.
            unsafe {
                $prepare;
                drive::<$tile>($task);
            }
        }
    )*};
}

entries! {
    fp32, "avx512f,avx512bw,avx512vl,fma", |task| (), Float<Fp32>;
    fp16, "avx512f,avx512bw,avx512vl,fma", |task| (), Float<Fp16>;
    bf16, "avx512f,avx512bw,avx512vl,fma", |task| (), Float<Bf16>;
    bf16_dot, "avx512f,avx512bw,avx512vl,avx512bf16", |task| to_bf16(task), Bf16Dot;
    int8, "avx512f,avx512bw,avx512vl,avx512vnni", |task| quantise(task, Order::Natural, None), Bytes;
    int4, "avx512f,avx512bw,avx512vl,avx512vnni", |task| quantise(task, Order::EvenOdd, None), Nibbles;
    int4_g32, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", |task| quantise(task, Order::Natural, Some(8)), Blocks<Q4, false>;
    int4_g128, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", |task| quantise(task, Order::Natural, Some(8)), Groups128;
    q8_0, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", |task| quantise_blocks(task, Some(128)), Blocks<Q8, true>;
    q4_0, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", |task| quantise_blocks(task, Some(8)), Blocks<Q4, true>;
}

/// How far ahead of its use a line of weights is asked for.
const AHEAD: usize = 2048;

#[inline(always)]
unsafe fn prefetch(p: *const u8) {
    // SAFETY: a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(AHEAD).cast()) };
}

/// Sixteen stored weights as floats.
trait Load {
    const BYTES: usize;
    unsafe fn load(p: *const u8) -> __m512;
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512;
}

struct Fp32;
struct Fp16;
struct Bf16;

impl Load for Fp32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: sixteen weights are left in the row.
        unsafe { _mm512_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        unsafe { _mm512_maskz_loadu_ps(mask, p.cast()) }
    }
}

impl Load for Fp16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: sixteen weights are left in the row.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p.cast())) }
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: sixteen weights are left in the row.
        unsafe { widen(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        unsafe { widen(_mm256_maskz_loadu_epi16(mask, p.cast())) }
    }
}

#[inline(always)]
unsafe fn widen(bits: __m256i) -> __m512 {
    // SAFETY: AVX-512F.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
}

struct Float<L>(L);

impl<L: Load> Tile for Float<L> {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); C]; R];
            let mut x = [_mm512_setzero_ps(); C];
            let mut i = 0;
            while i + 16 <= task.k {
                for c in 0..C {
                    x[c] = _mm512_loadu_ps(task.x.add((column + c) * task.k + i));
                }
                for r in 0..R {
                    let p = task.row(row + r).add(i * L::BYTES);
                    prefetch(p);
                    let w = L::load(p);
                    for c in 0..C {
                        sums[r][c] = _mm512_fmadd_ps(w, x[c], sums[r][c]);
                    }
                }
                i += 16;
            }
            if i < task.k {
                let mask = (1_u16 << (task.k - i)) - 1;
                for c in 0..C {
                    x[c] = _mm512_maskz_loadu_ps(mask, task.x.add((column + c) * task.k + i));
                }
                for r in 0..R {
                    let w = L::load_some(mask, task.row(row + r).add(i * L::BYTES));
                    for c in 0..C {
                        sums[r][c] = _mm512_fmadd_ps(w, x[c], sums[r][c]);
                    }
                }
            }
            for r in 0..R {
                for c in 0..C {
                    task.store(row + r, column + c, _mm512_reduce_add_ps(sums[r][c]));
                }
            }
        }
    }
}

struct Bf16Dot;

#[inline(always)]
unsafe fn dot_bf16(sum: __m512, w: __m512i, x: __m512i) -> __m512 {
    // SAFETY: AVX512-BF16; both types are 64 bytes of plain data.
    unsafe {
        _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(w), std::mem::transmute::<__m512i, __m512bh>(x))
    }
}

impl Tile for Bf16Dot {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); C]; R];
            let mut x = [_mm512_setzero_si512(); C];
            let mut i = 0;
            while i < task.k {
                let left = task.k - i;
                let mask = if left >= 32 { u32::MAX } else { (1 << left) - 1 };
                for c in 0..C {
                    x[c] = _mm512_load_si512(task.column(column + c).values.add(2 * i).cast());
                }
                for r in 0..R {
                    let p = task.row(row + r).add(2 * i);
                    prefetch(p);
                    let w = _mm512_maskz_loadu_epi16(mask, p.cast());
                    for c in 0..C {
                        sums[r][c] = dot_bf16(sums[r][c], w, x[c]);
                    }
                }
                i += 32;
            }
            for r in 0..R {
                for c in 0..C {
                    task.store(row + r, column + c, _mm512_reduce_add_ps(sums[r][c]));
                }
            }
        }
    }
}

struct Bytes;

impl Tile for Bytes {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let flip = _mm512_set1_epi8(-128);
            let mut sums = [[_mm512_setzero_si512(); C]; R];
            let mut x = [_mm512_setzero_si512(); C];
            let mut i = 0;
            while i + 64 <= task.k {
                for c in 0..C {
                    x[c] = _mm512_load_si512(task.column(column + c).values.add(i).cast());
                }
                for r in 0..R {
                    let p = task.row(row + r).add(i);
                    prefetch(p);
                    let w = _mm512_xor_si512(_mm512_loadu_si512(p.cast()), flip);
                    for c in 0..C {
                        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], w, x[c]);
                    }
                }
                i += 64;
            }
            if i < task.k {
                let mask = (1_u64 << (task.k - i)) - 1;
                for c in 0..C {
                    x[c] = _mm512_load_si512(task.column(column + c).values.add(i).cast());
                }
                for r in 0..R {
                    let p = task.row(row + r).add(i);
                    let w = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, p.cast()), flip);
                    for c in 0..C {
                        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], w, x[c]);
                    }
                }
            }
            finish(task, row, column, sums, 128);
        }
    }
}

/// Takes the offset's share back, which is exact modulo 2^32, and applies both scales.
#[inline(always)]
unsafe fn finish<const R: usize, const C: usize>(
    task: &Task,
    row: usize,
    column: usize,
    sums: [[__m512i; C]; R],
    offset: i32,
) {
    for r in 0..R {
        for c in 0..C {
            // SAFETY: rows and columns lie inside the task.
            unsafe {
                let share = task.sum(column + c).wrapping_mul(offset);
                let sum = _mm512_reduce_add_epi32(sums[r][c]).wrapping_sub(share);
                let value = sum as f32 * *task.row_scales.add(row + r) * task.scale(column + c);
                task.store(row + r, column + c, value);
            }
        }
    }
}

struct Nibbles;

impl Tile for Nibbles {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let mut sums = [[_mm512_setzero_si512(); C]; R];
            let mut i = 0;
            while i < task.row_bytes {
                let left = task.row_bytes - i;
                let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
                for r in 0..R {
                    let p = task.row(row + r).add(i);
                    prefetch(p);
                    let w = _mm512_maskz_loadu_epi8(mask, p.cast());
                    let even = _mm512_and_si512(w, low);
                    let odd = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low);
                    for c in 0..C {
                        let x = task.column(column + c);
                        let x_even = _mm512_load_si512(x.values.add(i).cast());
                        let x_odd = _mm512_load_si512(x.values.add(x.half + i).cast());
                        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], even, x_even);
                        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], odd, x_odd);
                    }
                }
                i += 64;
            }
            finish(task, row, column, sums, 8);
        }
    }
}

struct Groups128;

#[inline(always)]
unsafe fn scale16(p: *const u8) -> __m256i {
    // SAFETY: two bytes of the block.
    unsafe { _mm256_set1_epi16(p.cast::<i16>().read_unaligned()) }
}

impl Tile for Groups128 {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks, x is padded to whole groups.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let mut sums = [[_mm512_setzero_ps(); C]; R];
            for group in 0..task.row_bytes / 66 {
                for r in 0..R {
                    let p = task.row(row + r).add(group * 66);
                    prefetch(p);
                    let scale = _mm512_cvtph_ps(scale16(p));
                    let w = _mm512_loadu_si512(p.add(2).cast());
                    let first = _mm512_and_si512(w, low);
                    let second = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low);
                    for c in 0..C {
                        let x = task.column(column + c);
                        let (values, bias) = (x.values.add(group * 128), x.bias.add(group * 32));
                        let a = _mm512_dpbusd_epi32(
                            _mm512_load_si512(bias.cast()),
                            first,
                            _mm512_load_si512(values.cast()),
                        );
                        let b = _mm512_dpbusd_epi32(
                            _mm512_load_si512(bias.add(16).cast()),
                            second,
                            _mm512_load_si512(values.add(64).cast()),
                        );
                        let sum = _mm512_cvtepi32_ps(_mm512_add_epi32(a, b));
                        sums[r][c] = _mm512_fmadd_ps(sum, scale, sums[r][c]);
                    }
                }
            }
            for r in 0..R {
                for c in 0..C {
                    let value = _mm512_reduce_add_ps(sums[r][c]) * task.scale(column + c);
                    task.store(row + r, column + c, value);
                }
            }
        }
    }
}

/// A block of 32 weights behind an fp16 scale, made unsigned.
trait Block {
    const BYTES: usize;
    /// Two blocks side by side.
    unsafe fn pair(p: *const u8) -> __m512i;
    /// One block in the lower half; the upper half is anything.
    unsafe fn single(p: *const u8) -> __m512i;
}

struct Q4;
struct Q8;

impl Block for Q4 {
    const BYTES: usize = 18;
    #[inline(always)]
    unsafe fn pair(p: *const u8) -> __m512i {
        // SAFETY: both blocks lie inside the row.
        unsafe {
            let first = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(2).cast()));
            let second = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(20).cast()));
            unsigned_nibbles(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
        }
    }
    #[inline(always)]
    unsafe fn single(p: *const u8) -> __m512i {
        // SAFETY: the block lies inside the row.
        unsafe { unsigned_nibbles(_mm512_broadcast_i32x4(_mm_loadu_si128(p.add(2).cast()))) }
    }
}

/// Low nibbles of the even 128-bit lanes, high nibbles of the odd ones.
#[inline(always)]
unsafe fn unsigned_nibbles(w: __m512i) -> __m512i {
    // SAFETY: AVX-512F.
    unsafe {
        let shifts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
        _mm512_and_si512(_mm512_srlv_epi64(w, shifts), _mm512_set1_epi8(15))
    }
}

impl Block for Q8 {
    const BYTES: usize = 34;
    #[inline(always)]
    unsafe fn pair(p: *const u8) -> __m512i {
        // SAFETY: both blocks lie inside the row.
        unsafe {
            let first = _mm256_loadu_si256(p.add(2).cast());
            let second = _mm256_loadu_si256(p.add(36).cast());
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
            _mm512_xor_si512(both, _mm512_set1_epi8(-128))
        }
    }
    #[inline(always)]
    unsafe fn single(p: *const u8) -> __m512i {
        // SAFETY: the block lies inside the row.
        unsafe {
            let block = _mm512_castsi256_si512(_mm256_loadu_si256(p.add(2).cast()));
            _mm512_xor_si512(block, _mm512_set1_epi8(-128))
        }
    }
}

/// Blocks of 32; `X_SCALES` says whether the activations have a scale per block as well.
struct Blocks<B, const X_SCALES: bool>(B);

impl<B: Block, const X_SCALES: bool> Tile for Blocks<B, X_SCALES> {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks; x, its biases and scales are padded with zeros to whole groups of 128.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); C]; R];
            let blocks = task.row_bytes / B::BYTES;
            let mut block = 0;
            while block < blocks {
                let pair = block + 2 <= blocks;
                for r in 0..R {
                    let p = task.row(row + r).add(block * B::BYTES);
                    prefetch(p);
                    let first = _mm256_castsi256_si128(scale16(p));
                    let (w, second) = if pair {
                        (B::pair(p), _mm256_castsi256_si128(scale16(p.add(B::BYTES))))
                    } else {
                        (B::single(p), _mm_setzero_si128())
                    };
                    let scales = _mm512_cvtph_ps(_mm256_set_m128i(second, first));
                    for c in 0..C {
                        let x = task.column(column + c);
                        let sum = _mm512_dpbusd_epi32(
                            _mm512_load_si512(x.bias.add(block * 8).cast()),
                            w,
                            _mm512_load_si512(x.values.add(block * 32).cast()),
                        );
                        let sum = _mm512_cvtepi32_ps(sum);
                        let scales = if X_SCALES {
                            _mm512_mul_ps(scales, _mm512_load_ps(x.block_scales.add(block * 8)))
                        } else {
                            scales
                        };
                        sums[r][c] = _mm512_fmadd_ps(sum, scales, sums[r][c]);
                    }
                }
                block += 2;
            }
            for r in 0..R {
                for c in 0..C {
                    let scale = if X_SCALES { 1.0 } else { task.scale(column + c) };
                    task.store(row + r, column + c, _mm512_reduce_add_ps(sums[r][c]) * scale);
                }
            }
        }
    }
}
