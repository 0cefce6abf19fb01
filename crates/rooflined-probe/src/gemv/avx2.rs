//! GEMV with 256-bit vectors, with or without AVX-VNNI.
//!
//! Without VNNI, unsigned times signed bytes are summed in pairs to 16 bits, saturating: fine for nibbles, whose
//! pairs stay below 2 x 15 x 127. Bytes are multiplied as |w| x (x with w's sign): 2 x 127 x 127 fits as well.

use std::arch::x86_64::*;

use super::activations::{Order, quantise, quantise_blocks, sum_groups};
use super::{Gemv, Stepped, Steps, Task, drive, padded_copy, rescale};
use crate::isa::Isa;
use rooflined_core::precision::WeightFormat;

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

macro_rules! integer_entries {
    ($module:ident, $features:literal, $dot:ty) => {
        mod $module {
            use super::*;
            entries! { $features,
                int8, Stepped<Bytes<$dot>>, |task| { quantise(task, Order::Natural); };
                int4, Stepped<Nibbles<$dot>>, |task| { quantise(task, Order::EvenOdd); };
                int4_g32, Stepped<NibbleBlocks<$dot, false>>, |task| {
                    quantise(task, Order::Natural);
                    sum_groups::<32>(task);
                };
                int4_g128, Stepped<Groups128<$dot>>, |task| {
                    quantise(task, Order::Natural);
                    sum_groups::<128>(task);
                };
                q8_0, Stepped<ByteBlocks<$dot>>, |task| { quantise_blocks(task); };
                q4_0, Stepped<NibbleBlocks<$dot, true>>, |task| {
                    quantise_blocks(task);
                    sum_groups::<32>(task);
                };
            }
        }
    };
}

entries! { "avx2,fma,f16c",
    fp32, Stepped<Float<Fp32>>, |task| {};
    fp16, Stepped<Float<Fp16>>, |task| {};
    bf16, Stepped<Float<Bf16>>, |task| {};
}
integer_entries!(plain, "avx2,fma,f16c", Plain);
integer_entries!(vnni, "avx2,fma,f16c,avxvnni", Vnni);

/// What all formats with floating-point sums have in common.
macro_rules! float_sums {
    () => {
        type Sum = __m256;
        #[inline(always)]
        unsafe fn zero() -> __m256 {
            _mm256_setzero_ps()
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            _mm256_add_ps(a, b)
        }
    };
}

/// What both formats with one scale per row have in common.
macro_rules! integer_sums {
    ($offset:expr) => {
        type Sum = __m256i;
        #[inline(always)]
        unsafe fn zero() -> __m256i {
            _mm256_setzero_si256()
        }
        #[inline(always)]
        unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
            _mm256_add_epi32(a, b)
        }
        #[inline(always)]
        unsafe fn finish(task: &Task, row: usize, column: usize, sum: __m256i) -> f32 {
            // SAFETY: row and column lie inside the task.
            rescale(task, row, column, sum_integers(sum), $offset)
        }
    };
}

#[inline(always)]
unsafe fn sum_floats(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

#[inline(always)]
unsafe fn sum_integers(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_unpackhi_epi64(v, v));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<1>(v)))
}

/// Eight stored weights as floats.
trait Load {
    const BYTES: usize;
    unsafe fn load(p: *const u8) -> __m256;
}

struct Fp32;
struct Fp16;
struct Bf16;

impl Load for Fp32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        _mm256_loadu_ps(p.cast())
    }
}

impl Load for Fp16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        _mm256_cvtph_ps(_mm_loadu_si128(p.cast()))
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: eight weights are left in the row.
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

struct Float<L>(L);

impl<L: Load> Steps for Float<L> {
    float_sums!();
    type Weights = __m256;
    const BYTES: usize = 8 * L::BYTES;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: a step is left in the row.
        L::load(p)
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> __m256 {
        // SAFETY: a vector's worth of bytes in every format.
        L::load(padded_copy::<32>(p, left).as_ptr())
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256, w: __m256, task: &Task, column: usize, at: usize) -> __m256 {
        // SAFETY: as many activations as weights are left.
        _mm256_fmadd_ps(w, _mm256_loadu_ps(task.x.add(column * task.k + at / L::BYTES)), sum)
    }
    #[inline(always)]
    unsafe fn dot_some(sum: __m256, w: __m256, task: &Task, column: usize, at: usize, left: usize) -> __m256 {
        // SAFETY: only activations that are left are copied.
        let x = task.x.add(column * task.k + at / L::BYTES);
        let x = padded_copy::<32>(x.cast(), left / L::BYTES * 4);
        _mm256_fmadd_ps(w, _mm256_loadu_ps(x.as_ptr().cast()), sum)
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: __m256) -> f32 {
        sum_floats(sum)
    }
}

/// Dot products of bytes into 32-bit sums.
trait Dot {
    /// What signed weights are made unsigned with, if they are.
    const OFFSET: i32;
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
        Self::nibbles(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    }
    #[inline(always)]
    unsafe fn nibbles(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        let pairs = _mm256_maddubs_epi16(w, x);
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

impl Dot for Vnni {
    const OFFSET: i32 = 128;
    #[inline(always)]
    unsafe fn bytes(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(sum, _mm256_xor_si256(w, _mm256_set1_epi8(-128)), x)
    }
    #[inline(always)]
    unsafe fn nibbles(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(sum, w, x)
    }
}

/// Thirty-two aligned activations.
#[inline(always)]
unsafe fn load(x: *const i8) -> __m256i {
    // SAFETY: x is aligned and padded.
    _mm256_load_si256(x.cast())
}

struct Bytes<D>(D);

impl<D: Dot> Steps for Bytes<D> {
    integer_sums!(D::OFFSET);
    type Weights = __m256i;
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256i {
        // SAFETY: a step is left in the row.
        _mm256_loadu_si256(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> __m256i {
        // SAFETY: a vector of bytes.
        _mm256_loadu_si256(padded_copy::<32>(p, left).as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256i, w: __m256i, task: &Task, column: usize, at: usize) -> __m256i {
        // SAFETY: the column is padded.
        D::bytes(sum, w, load(task.column(column).values.add(at)))
    }
}

/// The low and the high nibbles of every byte.
#[inline(always)]
unsafe fn nibbles(w: __m256i) -> (__m256i, __m256i) {
    let low = _mm256_set1_epi8(15);
    (_mm256_and_si256(w, low), _mm256_and_si256(_mm256_srli_epi16::<4>(w), low))
}

struct Nibbles<D>(D);

impl<D: Dot> Steps for Nibbles<D> {
    integer_sums!(8);
    type Weights = (__m256i, __m256i);
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a step is left in the row.
        nibbles(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> Self::Weights {
        // SAFETY: a vector of bytes.
        nibbles(_mm256_loadu_si256(padded_copy::<32>(p, left).as_ptr().cast()))
    }
    #[inline(always)]
    unsafe fn dot(
        sum: __m256i,
        (even, odd): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> __m256i {
        // SAFETY: both halves of the column are padded.
        let x = task.column(column);
        let sum = D::nibbles(sum, even, load(x.values.add(at)));
        D::nibbles(sum, odd, load(x.values.add(x.half + at)))
    }
}

#[inline(always)]
unsafe fn half_scale(p: *const u8) -> __m256 {
    // SAFETY: two bytes of the block.
    _mm256_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned()))
}

struct ByteBlocks<D>(D);

impl<D: Dot> Steps for ByteBlocks<D> {
    float_sums!();
    type Weights = (__m256i, __m256);
    const BYTES: usize = 34;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        (_mm256_loadu_si256(p.add(2).cast()), half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256, (w, scale): Self::Weights, task: &Task, column: usize, at: usize) -> __m256 {
        // SAFETY: the column is padded to whole blocks. Signs move to the activations also where VNNI could take
        // offset weights: with one sum a block, taking the offset back would cost as much.
        let (x, block) = (task.column(column), at / 34);
        let signed = _mm256_sign_epi8(load(x.values.add(block * 32)), w);
        let products = D::nibbles(_mm256_setzero_si256(), _mm256_abs_epi8(w), signed);
        let scale = _mm256_mul_ps(scale, _mm256_broadcast_ss(&*x.scales.add(block)));
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, sum)
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: __m256) -> f32 {
        sum_floats(sum)
    }
}

/// Blocks of 32 nibbles; `X_SCALES` says whether the activations have a scale per block as well.
struct NibbleBlocks<D, const X_SCALES: bool>(D);

impl<D: Dot, const X_SCALES: bool> Steps for NibbleBlocks<D, X_SCALES> {
    float_sums!();
    type Weights = (__m256i, __m256);
    const BYTES: usize = 18;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        let w = _mm_loadu_si128(p.add(2).cast());
        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(w), w);
        (_mm256_and_si256(both, _mm256_set1_epi8(15)), half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256, (w, scale): Self::Weights, task: &Task, column: usize, at: usize) -> __m256 {
        // SAFETY: the column, its sums and scales are padded to whole blocks.
        let (x, block) = (task.column(column), at / 18);
        let products = D::nibbles(_mm256_setzero_si256(), w, load(x.values.add(block * 32)));
        // 8 x the block's sum, spread over the eight lanes.
        let share = _mm256_broadcast_ss(&*x.sums.add(block));
        let scale =
            if X_SCALES { _mm256_mul_ps(scale, _mm256_broadcast_ss(&*x.scales.add(block))) } else { scale };
        _mm256_fmadd_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(products), share), scale, sum)
    }
    #[inline(always)]
    unsafe fn finish(task: &Task, _: usize, column: usize, sum: __m256) -> f32 {
        // SAFETY: the column lies inside the task.
        sum_floats(sum) * if X_SCALES { 1.0 } else { task.scale(column) }
    }
}

/// Groups of 128 nibbles.
struct Groups128<D>(D);

impl<D: Dot> Steps for Groups128<D> {
    float_sums!();
    type Weights = ([(__m256i, __m256i); 2], __m256);
    const BYTES: usize = 66;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        let halves = [p.add(2), p.add(34)];
        (halves.map(|p| nibbles(_mm256_loadu_si256(p.cast()))), half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256, (w, scale): Self::Weights, task: &Task, column: usize, at: usize) -> __m256 {
        // SAFETY: the column and its sums are padded to whole groups.
        let (x, group) = (task.column(column), at / 66);
        let values = x.values.add(group * 128);
        let products = D::nibbles(_mm256_setzero_si256(), w[0].0, load(values));
        let products = D::nibbles(products, w[1].0, load(values.add(32)));
        let products = D::nibbles(products, w[0].1, load(values.add(64)));
        let products = D::nibbles(products, w[1].1, load(values.add(96)));
        // 8 x the group's sum, spread over the eight lanes.
        let share = _mm256_broadcast_ss(&*x.sums.add(group));
        _mm256_fmadd_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(products), share), scale, sum)
    }
    #[inline(always)]
    unsafe fn finish(task: &Task, _: usize, column: usize, sum: __m256) -> f32 {
        // SAFETY: the column lies inside the task.
        sum_floats(sum) * task.scale(column)
    }
}
