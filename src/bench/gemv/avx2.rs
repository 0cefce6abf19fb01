//! GEMV with 256-bit vectors, with or without AVX-VNNI.
//!
//! Without VNNI, unsigned times signed bytes are summed in pairs to 16 bits, saturating: fine for nibbles, whose
//! pairs stay below 2 x 15 x 127. Bytes are multiplied as |w| x (x with w's sign): 2 x 127 x 127 fits as well.

#![expect(clippy::needless_range_loop, reason = "register arrays are indexed side by side and unrolled")]

use std::arch::x86_64::*;

use half::f16;

use super::activations::{Order, quantise, quantise_blocks, sum_groups};
use super::{Gemv, Row, Task, drive};
use crate::bench::isa::Isa;
use crate::precision::WeightFormat;

pub(super) fn kernel(format: WeightFormat, isa: Isa) -> Option<Gemv> {
    use WeightFormat as F;
    Some(match (isa, format) {
        (Isa::Avx2, F::Fp32) => fp32,
        (Isa::Avx2, F::Fp16) => fp16,
        (Isa::Avx2, F::Bf16) => bf16,
        (Isa::Avx2, F::Int8) => plain::int8,
        (Isa::Avx2, F::Int4) => plain::int4,
        (Isa::Avx2, F::Int4G32) => plain::int4_g32,
        (Isa::Avx2, F::Int4G128) => plain::int4_g128,
        (Isa::Avx2, F::Q8_0) => plain::q8_0,
        (Isa::Avx2, F::Q4_0) => plain::q4_0,
        (Isa::AvxVnni, F::Int8) => vnni::int8,
        (Isa::AvxVnni, F::Int4) => vnni::int4,
        (Isa::AvxVnni, F::Int4G32) => vnni::int4_g32,
        (Isa::AvxVnni, F::Int4G128) => vnni::int4_g128,
        (Isa::AvxVnni, F::Q8_0) => vnni::q8_0,
        (Isa::AvxVnni, F::Q4_0) => vnni::q4_0,
        _ => return None,
    })
}

macro_rules! entries {
    ($features:literal, $($name:ident, $row:ty, |$task:ident| { $($prepare:expr;)* };)*) => {$(
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name($task: &Task) {
            // SAFETY: the caller checked the features and vouches for the task.
            unsafe {
                $($prepare;)*
                drive::<$row>($task);
            }
        }
    )*};
}

macro_rules! integer_entries {
    ($module:ident, $features:literal, $dot:ty) => {
        mod $module {
            use super::*;
            entries! { $features,
                int8, Bytes<$dot>, |task| { quantise(task, Order::Natural); };
                int4, Nibbles<$dot>, |task| { quantise(task, Order::EvenOdd); };
                int4_g32, NibbleBlocks<$dot, 32, false>, |task| {
                    quantise(task, Order::Natural);
                    sum_groups::<32>(task);
                };
                int4_g128, NibbleBlocks<$dot, 128, false>, |task| {
                    quantise(task, Order::Natural);
                    sum_groups::<128>(task);
                };
                q8_0, ByteBlocks<$dot>, |task| { quantise_blocks(task); };
                q4_0, NibbleBlocks<$dot, 32, true>, |task| {
                    quantise_blocks(task);
                    sum_groups::<32>(task);
                };
            }
        }
    };
}

entries! { "avx2,fma,f16c",
    fp32, Float<Fp32>, |task| {};
    fp16, Float<Fp16>, |task| {};
    bf16, Float<Bf16>, |task| {};
}
integer_entries!(plain, "avx2,fma,f16c", Plain);
integer_entries!(vnni, "avx2,fma,f16c,avxvnni", Vnni);

/// How far ahead of its use a line of weights is asked for.
const AHEAD: usize = 4096;

#[inline(always)]
unsafe fn prefetch(p: *const u8) {
    // SAFETY: a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(AHEAD).cast()) };
}

/// Sums up the independent sums of a column.
macro_rules! total {
    ($sums:expr, $c:expr, $add:ident) => {{
        let mut total = $sums[0][$c];
        for u in 1..U {
            total = $add(total, $sums[u][$c]);
        }
        total
    }};
}

#[inline(always)]
unsafe fn sum_floats(v: __m256) -> f32 {
    // SAFETY: AVX.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
}

#[inline(always)]
unsafe fn sum_integers(v: __m256i) -> i32 {
    // SAFETY: AVX2.
    unsafe {
        let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = _mm_add_epi32(v, _mm_unpackhi_epi64(v, v));
        _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<1>(v)))
    }
}

/// Eight stored weights as floats.
trait Load {
    const BYTES: usize;
    unsafe fn load(p: *const u8) -> __m256;
    unsafe fn one(p: *const u8) -> f32;
}

struct Fp32;
struct Fp16;
struct Bf16;

impl Load for Fp32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        unsafe { _mm256_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        // SAFETY: a weight is left in the row.
        unsafe { p.cast::<f32>().read_unaligned() }
    }
}

impl Load for Fp16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        // SAFETY: a weight is left in the row.
        f16::from_bits(unsafe { p.cast::<u16>().read_unaligned() }).to_f32()
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        // SAFETY: a weight is left in the row.
        f32::from_bits(u32::from(unsafe { p.cast::<u16>().read_unaligned() }) << 16)
    }
}

struct Float<L>(L);

impl<L: Load> Row for Float<L> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task.
        unsafe {
            let w = task.row(row);
            let x = task.x.add(column * task.k);
            let mut sums = [[_mm256_setzero_ps(); C]; U];
            let mut i = 0;
            while i + 8 * U <= task.k {
                for u in 0..U {
                    let at = i + 8 * u;
                    if at * L::BYTES % 64 == 0 {
                        prefetch(w.add(at * L::BYTES));
                    }
                    let w = L::load(w.add(at * L::BYTES));
                    for c in 0..C {
                        sums[u][c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x.add(c * task.k + at)), sums[u][c]);
                    }
                }
                i += 8 * U;
            }
            while i + 8 <= task.k {
                let w = L::load(w.add(i * L::BYTES));
                for c in 0..C {
                    sums[0][c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x.add(c * task.k + i)), sums[0][c]);
                }
                i += 8;
            }
            for c in 0..C {
                let mut sum = sum_floats(total!(sums, c, _mm256_add_ps));
                for i in i..task.k {
                    sum += L::one(w.add(i * L::BYTES)) * *x.add(c * task.k + i);
                }
                task.store(row, column + c, sum);
            }
        }
    }
}

/// Dot products of bytes into 32-bit sums.
trait Dot {
    /// What signed weights are made unsigned with, if they are.
    const OFFSET: i32;
    /// Signed weights.
    unsafe fn bytes(sum: __m256i, w: __m256i, x: __m256i) -> __m256i;
    /// Weights of 0 to 15.
    unsafe fn nibbles(sum: __m256i, w: __m256i, x: __m256i) -> __m256i;
}

struct Plain;
struct Vnni;

impl Dot for Plain {
    const OFFSET: i32 = 0;
    #[inline(always)]
    unsafe fn bytes(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX2.
        unsafe { Self::nibbles(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) }
    }
    #[inline(always)]
    unsafe fn nibbles(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX2.
        unsafe {
            let pairs = _mm256_maddubs_epi16(w, x);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
}

impl Dot for Vnni {
    const OFFSET: i32 = 128;
    #[inline(always)]
    unsafe fn bytes(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sum, _mm256_xor_si256(w, _mm256_set1_epi8(-128)), x) }
    }
    #[inline(always)]
    unsafe fn nibbles(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sum, w, x) }
    }
}

/// Thirty-two aligned activations.
#[inline(always)]
unsafe fn load(x: *const i8) -> __m256i {
    // SAFETY: x is aligned and padded.
    unsafe { _mm256_load_si256(x.cast()) }
}

/// Takes the offset's share back, which is exact modulo 2^32, and applies both scales.
#[inline(always)]
unsafe fn finish(task: &Task, row: usize, column: usize, sum: i32, offset: i32) {
    // SAFETY: row and column lie inside the task.
    unsafe {
        let sum = sum.wrapping_sub(task.sum(column).wrapping_mul(offset));
        task.store(row, column, sum as f32 * *task.row_scales.add(row) * task.scale(column));
    }
}

struct Bytes<D>(D);

impl<D: Dot> Row for Bytes<D> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; x is padded.
        unsafe {
            let w = task.row(row);
            let mut sums = [[_mm256_setzero_si256(); C]; U];
            let mut i = 0;
            while i + 32 * U <= task.k {
                for u in 0..U {
                    let at = i + 32 * u;
                    if at % 64 == 0 {
                        prefetch(w.add(at));
                    }
                    let w = _mm256_loadu_si256(w.add(at).cast());
                    for c in 0..C {
                        sums[u][c] = D::bytes(sums[u][c], w, load(task.column(column + c).values.add(at)));
                    }
                }
                i += 32 * U;
            }
            while i < task.k {
                // The last part of a row goes through a buffer: there are no masked byte loads.
                let mut part = [0_u8; 32];
                let len = (task.k - i).min(32);
                std::ptr::copy_nonoverlapping(w.add(i), part.as_mut_ptr(), len);
                let w = _mm256_loadu_si256(part.as_ptr().cast());
                for c in 0..C {
                    sums[0][c] = D::bytes(sums[0][c], w, load(task.column(column + c).values.add(i)));
                }
                i += 32;
            }
            for c in 0..C {
                finish(task, row, column + c, sum_integers(total!(sums, c, _mm256_add_epi32)), D::OFFSET);
            }
        }
    }
}

/// The low and the high nibbles of every byte.
#[inline(always)]
unsafe fn nibbles(w: __m256i) -> (__m256i, __m256i) {
    // SAFETY: AVX2.
    unsafe {
        let low = _mm256_set1_epi8(15);
        (_mm256_and_si256(w, low), _mm256_and_si256(_mm256_srli_epi16::<4>(w), low))
    }
}

struct Nibbles<D>(D);

impl<D: Dot> Row for Nibbles<D> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; x is padded.
        unsafe {
            let w = task.row(row);
            let mut sums = [[_mm256_setzero_si256(); C]; U];
            let mut i = 0;
            while i < task.row_bytes {
                let whole = i + 32 * U <= task.row_bytes;
                for u in 0..U {
                    let at = i + 32 * u;
                    let mut part = [0_u8; 32];
                    let w = if whole {
                        if at % 64 == 0 {
                            prefetch(w.add(at));
                        }
                        _mm256_loadu_si256(w.add(at).cast())
                    } else {
                        let len = task.row_bytes.saturating_sub(at).min(32);
                        std::ptr::copy_nonoverlapping(w.wrapping_add(at), part.as_mut_ptr(), len);
                        _mm256_loadu_si256(part.as_ptr().cast())
                    };
                    let (even, odd) = nibbles(w);
                    for c in 0..C {
                        let x = task.column(column + c);
                        // Padding ends with the column's half; a part of zeros may lie beyond.
                        let at = at.min(x.half - 32);
                        sums[u][c] = D::nibbles(sums[u][c], even, load(x.values.add(at)));
                        sums[u][c] = D::nibbles(sums[u][c], odd, load(x.values.add(x.half + at)));
                    }
                }
                i += 32 * U;
            }
            for c in 0..C {
                finish(task, row, column + c, sum_integers(total!(sums, c, _mm256_add_epi32)), 8);
            }
        }
    }
}

#[inline(always)]
unsafe fn half_scale(p: *const u8) -> __m256 {
    // SAFETY: two bytes of the block.
    unsafe { _mm256_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned())) }
}

struct ByteBlocks<D>(D);

impl<D: Dot> Row for ByteBlocks<D> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks, x is padded to whole blocks. Both ways of the dot product work on signed
        // weights here: with one block a sum, taking an offset back would cost as much as it saves.
        unsafe {
            let blocks = task.row_bytes / 34;
            let mut sums = [[_mm256_setzero_ps(); C]; U];
            let mut block = 0;
            while block < blocks {
                for u in 0..U.min(blocks - block) {
                    let at = block + u;
                    let p = task.row(row).add(at * 34);
                    prefetch(p);
                    let scale = half_scale(p);
                    let w = _mm256_loadu_si256(p.add(2).cast());
                    let magnitude = _mm256_abs_epi8(w);
                    for c in 0..C {
                        let x = task.column(column + c);
                        let signed = _mm256_sign_epi8(load(x.values.add(at * 32)), w);
                        let sum = D::nibbles(_mm256_setzero_si256(), magnitude, signed);
                        let scale = _mm256_mul_ps(scale, _mm256_broadcast_ss(&*x.scales.add(at)));
                        sums[u][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, sums[u][c]);
                    }
                }
                block += U;
            }
            for c in 0..C {
                task.store(row, column + c, sum_floats(total!(sums, c, _mm256_add_ps)));
            }
        }
    }
}

/// Blocks of `GROUP` nibbles; `X_SCALES` says whether the activations have a scale per block as well.
struct NibbleBlocks<D, const GROUP: usize, const X_SCALES: bool>(D);

impl<D: Dot, const GROUP: usize, const X_SCALES: bool> Row for NibbleBlocks<D, GROUP, X_SCALES> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks, x is padded to whole blocks.
        unsafe {
            let bytes = 2 + GROUP / 2;
            let blocks = task.row_bytes / bytes;
            let mut sums = [[_mm256_setzero_ps(); C]; U];
            let mut block = 0;
            while block < blocks {
                for u in 0..U.min(blocks - block) {
                    let at = block + u;
                    let p = task.row(row).add(at * bytes);
                    prefetch(p);
                    let scale = half_scale(p);
                    for c in 0..C {
                        let x = task.column(column + c);
                        let values = x.values.add(at * GROUP);
                        let mut sum = _mm256_setzero_si256();
                        if GROUP == 32 {
                            let w = _mm_loadu_si128(p.add(2).cast());
                            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(w), w);
                            let both = _mm256_and_si256(both, _mm256_set1_epi8(15));
                            sum = D::nibbles(sum, both, load(values));
                        } else {
                            for part in 0..GROUP / 64 {
                                let w = _mm256_loadu_si256(p.add(2 + 32 * part).cast());
                                let (first, second) = nibbles(w);
                                sum = D::nibbles(sum, first, load(values.add(32 * part)));
                                sum = D::nibbles(sum, second, load(values.add(GROUP / 2 + 32 * part)));
                            }
                        }
                        // 8 x the block's sum, spread over the eight lanes.
                        let sum = _mm256_sub_ps(_mm256_cvtepi32_ps(sum), _mm256_broadcast_ss(&*x.sums.add(at)));
                        let scale = if X_SCALES {
                            _mm256_mul_ps(scale, _mm256_broadcast_ss(&*x.scales.add(at)))
                        } else {
                            scale
                        };
                        sums[u][c] = _mm256_fmadd_ps(sum, scale, sums[u][c]);
                    }
                }
                block += U;
            }
            for c in 0..C {
                let scale = if X_SCALES { 1.0 } else { task.scale(column + c) };
                task.store(row, column + c, sum_floats(total!(sums, c, _mm256_add_ps)) * scale);
            }
        }
    }
}
