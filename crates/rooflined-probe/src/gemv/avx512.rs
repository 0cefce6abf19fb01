//! GEMV with 512-bit vectors.
//!
//! VNNI multiplies unsigned by signed bytes. Weights are made unsigned by an offset (128 for bytes, which is one
//! exclusive or; 8 for nibbles, which are stored that way), and the offset's share, offset x sum of activations, is
//! taken back: per row where there is one scale per row, else per block, sixteen blocks at a time.

use std::arch::x86_64::*;

use super::activations::{Order, quantise, quantise_blocks, sum_groups, to_bf16};
use super::{Gemv, Stepped, Steps, Task, Tile, ahead, drive, prefetch, rescale};
use crate::isa::Isa;
use rooflined_core::precision::WeightFormat;

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

entries! { "avx512f,avx512bw,avx512vl,fma",
    fp32, Stepped<Float<Fp32>>, |task| {};
    fp16, Stepped<Float<Fp16>>, |task| {};
    bf16, Stepped<Float<Bf16>>, |task| {};
}
entries! { "avx512f,avx512bw,avx512vl,avx512bf16", bf16_dot, Stepped<Bf16Dot>, |task| { to_bf16(task); }; }
entries! { "avx512f,avx512bw,avx512vl,avx512vnni",
    int8, Stepped<Bytes>, |task| { quantise(task, Order::Natural); };
    int4, Stepped<Nibbles>, |task| { quantise(task, Order::EvenOdd); };
}
entries! { "avx512f,avx512bw,avx512vl,avx512vnni,f16c",
    int4_g32, Blocks<Q4, false>, |task| {
        quantise(task, Order::Natural);
        sum_groups::<32>(task);
    };
    int4_g128, Stepped<Groups128>, |task| {
        quantise(task, Order::Natural);
        sum_groups::<128>(task);
    };
    q8_0, Blocks<Q8, true>, |task| {
        quantise_blocks(task);
        sum_groups::<32>(task);
    };
    q4_0, Blocks<Q4, true>, |task| {
        quantise_blocks(task);
        sum_groups::<32>(task);
    };
}

/// What all formats with floating-point sums have in common.
macro_rules! float_sums {
    () => {
        type Sum = __m512;
        #[inline(always)]
        unsafe fn zero() -> __m512 {
            _mm512_setzero_ps()
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            _mm512_add_ps(a, b)
        }
    };
}

/// What both formats with one scale per row have in common.
macro_rules! integer_sums {
    ($offset:literal) => {
        type Sum = __m512i;
        #[inline(always)]
        unsafe fn zero() -> __m512i {
            _mm512_setzero_si512()
        }
        #[inline(always)]
        unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi32(a, b)
        }
        #[inline(always)]
        unsafe fn finish(task: &Task, row: usize, column: usize, sum: __m512i) -> f32 {
            // SAFETY: row and column lie inside the task.
            rescale(task, row, column, _mm512_reduce_add_epi32(sum), $offset)
        }
    };
}

/// A mask of the lanes whose `size` bytes are among the `left` ones.
#[inline(always)]
fn lanes(left: usize, size: usize) -> u64 {
    if left / size >= 64 { u64::MAX } else { (1 << (left / size)) - 1 }
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
        _mm512_loadu_ps(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        _mm512_maskz_loadu_ps(mask, p.cast())
    }
}

impl Load for Fp16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: sixteen weights are left in the row.
        _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p.cast()))
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: sixteen weights are left in the row.
        widen(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, p: *const u8) -> __m512 {
        // SAFETY: masked lanes are not touched.
        widen(_mm256_maskz_loadu_epi16(mask, p.cast()))
    }
}

#[inline(always)]
unsafe fn widen(bits: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
}

struct Float<L>(L);

impl<L: Load> Steps for Float<L> {
    float_sums!();
    type Weights = __m512;
    const BYTES: usize = 16 * L::BYTES;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        // SAFETY: a step is left in the row.
        L::load(p)
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> __m512 {
        // SAFETY: masked lanes are not touched.
        L::load_some(lanes(left, L::BYTES) as u16, p)
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512, w: __m512, task: &Task, column: usize, at: usize) -> __m512 {
        // SAFETY: as many activations as weights are left.
        _mm512_fmadd_ps(w, _mm512_loadu_ps(task.x.add(column * task.k + at / L::BYTES)), sum)
    }
    #[inline(always)]
    unsafe fn dot_some(sum: __m512, w: __m512, task: &Task, column: usize, at: usize, left: usize) -> __m512 {
        // SAFETY: masked lanes are not touched.
        let x = task.x.add(column * task.k + at / L::BYTES);
        _mm512_fmadd_ps(w, _mm512_maskz_loadu_ps(lanes(left, L::BYTES) as u16, x), sum)
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: __m512) -> f32 {
        _mm512_reduce_add_ps(sum)
    }
}

struct Bf16Dot;

impl Steps for Bf16Dot {
    float_sums!();
    type Weights = __m512i;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        // SAFETY: a step is left in the row.
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> __m512i {
        // SAFETY: masked lanes are not touched.
        _mm512_maskz_loadu_epi8(lanes(left, 1), p.cast())
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512, w: __m512i, task: &Task, column: usize, at: usize) -> __m512 {
        // SAFETY: all types are 64 bytes of plain data; the column is padded.
        let x = _mm512_load_si512(task.column(column).values.add(at).cast());
        _mm512_dpbf16_ps(
            sum,
            std::mem::transmute::<__m512i, __m512bh>(w),
            std::mem::transmute::<__m512i, __m512bh>(x),
        )
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: __m512) -> f32 {
        _mm512_reduce_add_ps(sum)
    }
}

/// `sum + w . x` with unsigned weights and 64 aligned activations.
#[inline(always)]
unsafe fn dot(sum: __m512i, w: __m512i, x: *const i8) -> __m512i {
    // SAFETY: AVX512-VNNI; x is padded.
    _mm512_dpbusd_epi32(sum, w, _mm512_load_si512(x.cast()))
}

struct Bytes;

impl Steps for Bytes {
    integer_sums!(128);
    type Weights = __m512i;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        // SAFETY: a step is left in the row.
        _mm512_xor_si512(_mm512_loadu_si512(p.cast()), _mm512_set1_epi8(-128))
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> __m512i {
        // SAFETY: masked lanes are not touched.
        _mm512_xor_si512(_mm512_maskz_loadu_epi8(lanes(left, 1), p.cast()), _mm512_set1_epi8(-128))
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512i, w: __m512i, task: &Task, column: usize, at: usize) -> __m512i {
        // SAFETY: the column is padded.
        dot(sum, w, task.column(column).values.add(at))
    }
}

struct Nibbles;

impl Steps for Nibbles {
    integer_sums!(8);
    type Weights = (__m512i, __m512i);
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a step is left in the row.
        nibbles(_mm512_loadu_si512(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> Self::Weights {
        // SAFETY: masked lanes are not touched.
        nibbles(_mm512_maskz_loadu_epi8(lanes(left, 1), p.cast()))
    }
    #[inline(always)]
    unsafe fn dot(
        sum: __m512i,
        (even, odd): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> __m512i {
        // SAFETY: both halves of the column are padded.
        let x = task.column(column);
        dot(dot(sum, even, x.values.add(at)), odd, x.values.add(x.half + at))
    }
}

/// The low and the high nibbles of every byte.
#[inline(always)]
unsafe fn nibbles(w: __m512i) -> (__m512i, __m512i) {
    let low = _mm512_set1_epi8(15);
    (_mm512_and_si512(w, low), _mm512_and_si512(_mm512_srli_epi16::<4>(w), low))
}

struct Groups128;

impl Steps for Groups128 {
    float_sums!();
    type Weights = (__m512i, __m512i, __m512);
    const BYTES: usize = 66;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        let scale = _mm512_cvtph_ps(_mm256_set1_epi16(p.cast::<i16>().read_unaligned()));
        let (first, second) = nibbles(_mm512_loadu_si512(p.add(2).cast()));
        (first, second, scale)
    }
    #[inline(always)]
    unsafe fn dot(
        sum: __m512,
        (first, second, scale): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> __m512 {
        // SAFETY: the column and its sums are padded to whole groups.
        let (x, group) = (task.column(column), at / 66);
        let products = dot(_mm512_setzero_si512(), first, x.values.add(group * 128));
        let products = _mm512_cvtepi32_ps(dot(products, second, x.values.add(group * 128 + 64)));
        // 8 x the group's sum, spread over the sixteen lanes.
        let share = _mm512_set1_ps(0.5 * *x.sums.add(group));
        _mm512_fmadd_ps(_mm512_sub_ps(products, share), scale, sum)
    }
    #[inline(always)]
    unsafe fn finish(task: &Task, _: usize, column: usize, sum: __m512) -> f32 {
        // SAFETY: the column lies inside the task.
        _mm512_reduce_add_ps(sum) * task.scale(column)
    }
}

/// A block of 32 weights behind an fp16 scale, made unsigned.
trait Block {
    const BYTES: usize;
    /// What was added to make the weights unsigned.
    const OFFSET: f32;
    /// The scales of sixteen blocks.
    unsafe fn scales(p: *const u8) -> __m256i;
    /// Two blocks side by side.
    unsafe fn pair(p: *const u8) -> __m512i;
    /// One block in the lower half; the upper half is anything.
    unsafe fn single(p: *const u8) -> __m512i;
}

struct Q4;
struct Q8;

/// The same address, by a way the compiler cannot follow. It would otherwise notice that the scales are loaded from
/// the same bytes as the weights, and put both together with three times the instructions.
#[inline(always)]
fn unrelated(mut p: *const u8) -> *const u8 {
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!("/* {p} */", p = inout(reg) p, options(pure, readonly, nostack, preserves_flags));
    }
    p
}

impl Block for Q4 {
    const BYTES: usize = 18;
    const OFFSET: f32 = 8.0;
    #[inline(always)]
    unsafe fn scales(p: *const u8) -> __m256i {
        // SAFETY: 64 bytes from each of four times 72 are 280 of the sixteen blocks' 288.
        // Lane h takes word 9 * (h % 4) of the quarter that its four blocks are in.
        let word = _mm512_set1_epi64(0x001b_0012_0009_0000);
        let mut scales = _mm512_setzero_si512();
        for quarter in 0..4 {
            let blocks = _mm512_loadu_si512(p.add(quarter * 72).cast());
            scales = _mm512_mask_permutexvar_epi16(scales, 0xf << (4 * quarter), word, blocks);
        }
        _mm512_castsi512_si256(scales)
    }
    #[inline(always)]
    unsafe fn pair(p: *const u8) -> __m512i {
        // SAFETY: both blocks lie inside the row.
        let first = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(2).cast()));
        let second = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(20).cast()));
        lanes_of_nibbles(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
    }
    #[inline(always)]
    unsafe fn single(p: *const u8) -> __m512i {
        // SAFETY: the block lies inside the row.
        lanes_of_nibbles(_mm512_broadcast_i32x4(_mm_loadu_si128(p.add(2).cast())))
    }
}

/// Low nibbles of the even 128-bit lanes, high nibbles of the odd ones.
#[inline(always)]
unsafe fn lanes_of_nibbles(w: __m512i) -> __m512i {
    let shifts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
    _mm512_and_si512(_mm512_srlv_epi64(w, shifts), _mm512_set1_epi8(15))
}

impl Block for Q8 {
    const BYTES: usize = 34;
    const OFFSET: f32 = 128.0;
    #[inline(always)]
    unsafe fn scales(p: *const u8) -> __m256i {
        // SAFETY: 64 bytes from each of eight times 68 are 540 of the sixteen blocks' 544.
        // Even lanes take word 0 of their pair of blocks, odd lanes word 17.
        let word = _mm512_set1_epi32(0x0011_0000);
        let mut scales = _mm512_setzero_si512();
        for pair in 0..8 {
            let blocks = _mm512_loadu_si512(p.add(pair * 68).cast());
            scales = _mm512_mask_permutexvar_epi16(scales, 3 << (2 * pair), word, blocks);
        }
        _mm512_castsi512_si256(scales)
    }
    #[inline(always)]
    unsafe fn pair(p: *const u8) -> __m512i {
        // SAFETY: both blocks lie inside the row.
        let first = _mm256_loadu_si256(p.add(2).cast());
        let second = _mm256_loadu_si256(p.add(36).cast());
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
        _mm512_xor_si512(both, _mm512_set1_epi8(-128))
    }
    #[inline(always)]
    unsafe fn single(p: *const u8) -> __m512i {
        // SAFETY: the block lies inside the row.
        let block = _mm512_castsi256_si512(_mm256_loadu_si256(p.add(2).cast()));
        _mm512_xor_si512(block, _mm512_set1_epi8(-128))
    }
}

/// Blocks of 32, sixteen at a time so that their scales are one vector; `X_SCALES` says whether the activations have a
/// scale per block as well.
struct Blocks<B, const X_SCALES: bool>(B);

/// Spreads the scales of blocks 2j and 2j+1 over the lanes that their sums are in.
#[inline(always)]
unsafe fn spread(scales: __m512, pair: usize) -> __m512 {
    let halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    let lanes = _mm512_add_epi32(halves, _mm512_set1_epi32(2 * pair as i32));
    _mm512_permutexvar_ps(lanes, scales)
}

/// The scales of sixteen blocks times those of a column.
#[inline(always)]
unsafe fn joint<const X_SCALES: bool>(scales: __m512, task: &Task, column: usize, block: usize) -> __m512 {
    // SAFETY: scales are padded to sixteen blocks.
    if X_SCALES {
        _mm512_mul_ps(scales, _mm512_load_ps(task.column(column).scales.add(block)))
    } else {
        scales
    }
}

impl<B: Block, const X_SCALES: bool> Tile for Blocks<B, X_SCALES> {
    #[inline(always)]
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks; x, its sums and scales are padded with zeros to whole sixteens of blocks.
        let blocks = task.row_bytes / B::BYTES;
        let ahead = ahead::<R>(task);
        let mut sums = [[[_mm512_setzero_ps(); C]; R]; U];
        let mut shares = [[_mm512_setzero_ps(); C]; R];
        let mut block = 0;
        while block + 16 <= blocks {
            for r in 0..R {
                let p = task.row(row + r).add(block * B::BYTES);
                let own = _mm512_cvtph_ps(B::scales(unrelated(p)));
                let mut scales = [own; C];
                for (c, scales) in scales.iter_mut().enumerate() {
                    *scales = joint::<X_SCALES>(own, task, column + c, block);
                    let x_sums = _mm512_load_ps(task.column(column + c).sums.add(block));
                    shares[r][c] = _mm512_fmadd_ps(*scales, x_sums, shares[r][c]);
                }
                // Written out eight times: as a loop the sums would live in memory.
                macro_rules! pairs {
                    ($($pair:literal)*) => {$(
                        let start = p.add(2 * $pair * B::BYTES);
                        if (B::BYTES > 32 || $pair % 2 == 0) && (R == 1 || column == 0) {
                            prefetch(start.wrapping_add(ahead));
                        }
                        let w = B::pair(start);
                        for c in 0..C {
                            let x = task.column(column + c).values.add((block + 2 * $pair) * 32);
                            let products = _mm512_cvtepi32_ps(dot(_mm512_setzero_si512(), w, x));
                            let sum = &mut sums[$pair % U][r][c];
                            *sum = _mm512_fmadd_ps(products, spread(scales[c], $pair), *sum);
                        }
                    )*};
                }
                pairs!(0 1 2 3 4 5 6 7);
            }
            block += 16;
        }
        if block < blocks {
            for r in 0..R {
                let p = task.row(row + r);
                let mut halves = [0_u16; 16];
                for (half, at) in halves.iter_mut().zip(block..blocks) {
                    *half = p.add(at * B::BYTES).cast::<u16>().read_unaligned();
                }
                let own = _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()));
                for c in 0..C {
                    let x = task.column(column + c);
                    let scales = joint::<X_SCALES>(own, task, column + c, block);
                    shares[r][c] = _mm512_fmadd_ps(scales, _mm512_load_ps(x.sums.add(block)), shares[r][c]);
                    for (pair, at) in (block..blocks).step_by(2).enumerate() {
                        let p = p.add(at * B::BYTES);
                        // Without a second block its scale is zero.
                        let w = if at + 2 <= blocks { B::pair(p) } else { B::single(p) };
                        let products = dot(_mm512_setzero_si512(), w, x.values.add(at * 32));
                        let sum = &mut sums[0][r][c];
                        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), spread(scales, pair), *sum);
                    }
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                let mut sum = sums[0][r][c];
                for sums in &sums[1..] {
                    sum = _mm512_add_ps(sum, sums[r][c]);
                }
                let share = _mm512_mul_ps(shares[r][c], _mm512_set1_ps(B::OFFSET));
                let scale = if X_SCALES { 1.0 } else { task.scale(column + c) };
                let value = _mm512_reduce_add_ps(_mm512_sub_ps(sum, share)) * scale;
                task.store(row + r, column + c, value);
            }
        }
    }
}
