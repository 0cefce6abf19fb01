//! GEMV with 512-bit vectors.
//!
//! VNNI multiplies unsigned by signed bytes. Weights are made unsigned by an offset (128 for bytes, which is one
//! exclusive or; 8 for nibbles, which are stored that way), and the offset's share, offset x sum of activations, is
//! taken back: per row where there is one scale per row, else per block, sixteen blocks at a time.

#![expect(clippy::needless_range_loop, reason = "register arrays are indexed side by side and unrolled")]

use std::arch::x86_64::*;

use super::activations::{Order, quantise, quantise_blocks, sum_groups, to_bf16};
use super::{Gemv, Row, Task, drive};
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
    ($($name:ident, $features:literal, $row:ty, |$task:ident| { $($prepare:expr;)* };)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name($task: &Task) {
            // SAFETY: the caller checked the features and vouches for the task.
            unsafe {
                $($prepare;)*
                drive::<$row>($task);
            }
        }
    )*};
}

entries! {
    fp32, "avx512f,avx512bw,avx512vl,fma", Float<Fp32>, |task| {};
    fp16, "avx512f,avx512bw,avx512vl,fma", Float<Fp16>, |task| {};
    bf16, "avx512f,avx512bw,avx512vl,fma", Float<Bf16>, |task| {};
    bf16_dot, "avx512f,avx512bw,avx512vl,avx512bf16", Bf16Dot, |task| { to_bf16(task); };
    int8, "avx512f,avx512bw,avx512vl,avx512vnni", Bytes, |task| { quantise(task, Order::Natural); };
    int4, "avx512f,avx512bw,avx512vl,avx512vnni", Nibbles, |task| { quantise(task, Order::EvenOdd); };
    int4_g32, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", Blocks<Q4, false>, |task| {
        quantise(task, Order::Natural);
        sum_groups::<32>(task);
    };
    int4_g128, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", Groups128, |task| {
        quantise(task, Order::Natural);
        sum_groups::<128>(task);
    };
    q8_0, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", Blocks<Q8, true>, |task| {
        quantise_blocks(task);
        sum_groups::<32>(task);
    };
    q4_0, "avx512f,avx512bw,avx512vl,avx512vnni,f16c", Blocks<Q4, true>, |task| {
        quantise_blocks(task);
        sum_groups::<32>(task);
    };
}

/// How far ahead of its use a line of weights is asked for. Rows follow each other, so the next row is covered too.
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

impl<L: Load> Row for Float<L> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked.
        unsafe {
            let w = task.row(row);
            let x = task.x.add(column * task.k);
            let mut sums = [[_mm512_setzero_ps(); C]; U];
            let mut i = 0;
            while i + 16 * U <= task.k {
                for u in 0..U {
                    let at = i + 16 * u;
                    prefetch(w.add(at * L::BYTES));
                    let w = L::load(w.add(at * L::BYTES));
                    for c in 0..C {
                        sums[u][c] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x.add(c * task.k + at)), sums[u][c]);
                    }
                }
                i += 16 * U;
            }
            while i < task.k {
                let left = task.k - i;
                let mask = if left >= 16 { u16::MAX } else { (1 << left) - 1 };
                let w = L::load_some(mask, w.add(i * L::BYTES));
                for c in 0..C {
                    let x = _mm512_maskz_loadu_ps(mask, x.add(c * task.k + i));
                    sums[0][c] = _mm512_fmadd_ps(w, x, sums[0][c]);
                }
                i += 16;
            }
            for c in 0..C {
                task.store(row, column + c, _mm512_reduce_add_ps(total!(sums, c, _mm512_add_ps)));
            }
        }
    }
}

struct Bf16Dot;

#[inline(always)]
unsafe fn dot_bf16(sum: __m512, w: __m512i, x: *const i8) -> __m512 {
    // SAFETY: AVX512-BF16; all types are 64 bytes of plain data; x is padded.
    unsafe {
        let x = _mm512_load_si512(x.cast());
        _mm512_dpbf16_ps(
            sum,
            std::mem::transmute::<__m512i, __m512bh>(w),
            std::mem::transmute::<__m512i, __m512bh>(x),
        )
    }
}

impl Row for Bf16Dot {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let w = task.row(row);
            let mut sums = [[_mm512_setzero_ps(); C]; U];
            let mut i = 0;
            while i + 32 * U <= task.k {
                for u in 0..U {
                    let at = 2 * (i + 32 * u);
                    prefetch(w.add(at));
                    let w = _mm512_loadu_si512(w.add(at).cast());
                    for c in 0..C {
                        sums[u][c] = dot_bf16(sums[u][c], w, task.column(column + c).values.add(at));
                    }
                }
                i += 32 * U;
            }
            while i < task.k {
                let left = task.k - i;
                let mask = if left >= 32 { u32::MAX } else { (1 << left) - 1 };
                let w = _mm512_maskz_loadu_epi16(mask, w.add(2 * i).cast());
                for c in 0..C {
                    sums[0][c] = dot_bf16(sums[0][c], w, task.column(column + c).values.add(2 * i));
                }
                i += 32;
            }
            for c in 0..C {
                task.store(row, column + c, _mm512_reduce_add_ps(total!(sums, c, _mm512_add_ps)));
            }
        }
    }
}

/// `sum + w . x` with unsigned weights and 64 aligned activations.
#[inline(always)]
unsafe fn dot(sum: __m512i, w: __m512i, x: *const i8) -> __m512i {
    // SAFETY: AVX512-VNNI; x is padded.
    unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_load_si512(x.cast())) }
}

struct Bytes;

impl Row for Bytes {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let flip = _mm512_set1_epi8(-128);
            let w = task.row(row);
            let mut sums = [[_mm512_setzero_si512(); C]; U];
            let mut i = 0;
            while i + 64 * U <= task.k {
                for u in 0..U {
                    let at = i + 64 * u;
                    prefetch(w.add(at));
                    let w = _mm512_xor_si512(_mm512_loadu_si512(w.add(at).cast()), flip);
                    for c in 0..C {
                        sums[u][c] = dot(sums[u][c], w, task.column(column + c).values.add(at));
                    }
                }
                i += 64 * U;
            }
            while i < task.k {
                let left = task.k - i;
                let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
                let w = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, w.add(i).cast()), flip);
                for c in 0..C {
                    sums[0][c] = dot(sums[0][c], w, task.column(column + c).values.add(i));
                }
                i += 64;
            }
            for c in 0..C {
                finish(task, row, column + c, total!(sums, c, _mm512_add_epi32), 128);
            }
        }
    }
}

/// Takes the offset's share back, which is exact modulo 2^32, and applies both scales.
#[inline(always)]
unsafe fn finish(task: &Task, row: usize, column: usize, sum: __m512i, offset: i32) {
    // SAFETY: row and column lie inside the task.
    unsafe {
        let share = task.sum(column).wrapping_mul(offset);
        let sum = _mm512_reduce_add_epi32(sum).wrapping_sub(share);
        task.store(row, column, sum as f32 * *task.row_scales.add(row) * task.scale(column));
    }
}

struct Nibbles;

impl Row for Nibbles {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows and columns lie inside the task; the tail is masked, and x is padded.
        unsafe {
            let w = task.row(row);
            let mut sums = [[_mm512_setzero_si512(); C]; U];
            let mut i = 0;
            while i + 64 * U <= task.row_bytes {
                for u in 0..U {
                    let at = i + 64 * u;
                    prefetch(w.add(at));
                    let (even, odd) = nibbles(_mm512_loadu_si512(w.add(at).cast()));
                    for c in 0..C {
                        let x = task.column(column + c);
                        sums[u][c] = dot(sums[u][c], even, x.values.add(at));
                        sums[u][c] = dot(sums[u][c], odd, x.values.add(x.half + at));
                    }
                }
                i += 64 * U;
            }
            while i < task.row_bytes {
                let left = task.row_bytes - i;
                let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
                let (even, odd) = nibbles(_mm512_maskz_loadu_epi8(mask, w.add(i).cast()));
                for c in 0..C {
                    let x = task.column(column + c);
                    sums[0][c] = dot(sums[0][c], even, x.values.add(i));
                    sums[0][c] = dot(sums[0][c], odd, x.values.add(x.half + i));
                }
                i += 64;
            }
            for c in 0..C {
                finish(task, row, column + c, total!(sums, c, _mm512_add_epi32), 8);
            }
        }
    }
}

/// The low and the high nibbles of every byte.
#[inline(always)]
unsafe fn nibbles(w: __m512i) -> (__m512i, __m512i) {
    // SAFETY: AVX512-BW.
    unsafe {
        let low = _mm512_set1_epi8(15);
        (_mm512_and_si512(w, low), _mm512_and_si512(_mm512_srli_epi16::<4>(w), low))
    }
}

struct Groups128;

impl Row for Groups128 {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks, x is padded to whole groups.
        unsafe {
            let w = task.row(row);
            let groups = task.row_bytes / 66;
            let mut sums = [[_mm512_setzero_ps(); C]; U];
            let mut group = 0;
            while group < groups {
                // The last round may have fewer than U; the sums do not care which of them takes what.
                for u in 0..U.min(groups - group) {
                    let at = group + u;
                    let p = w.add(at * 66);
                    prefetch(p);
                    let scale = _mm512_cvtph_ps(_mm256_set1_epi16(p.cast::<i16>().read_unaligned()));
                    let (first, second) = nibbles(_mm512_loadu_si512(p.add(2).cast()));
                    for c in 0..C {
                        let x = task.column(column + c);
                        let sum = dot(_mm512_setzero_si512(), first, x.values.add(at * 128));
                        let sum = _mm512_cvtepi32_ps(dot(sum, second, x.values.add(at * 128 + 64)));
                        // 8 x the group's sum, spread over the sixteen lanes.
                        let share = _mm512_mul_ps(_mm512_set1_ps(*x.sums.add(at)), _mm512_set1_ps(0.5));
                        sums[u][c] = _mm512_fmadd_ps(_mm512_sub_ps(sum, share), scale, sums[u][c]);
                    }
                }
                group += U;
            }
            for c in 0..C {
                let value = _mm512_reduce_add_ps(total!(sums, c, _mm512_add_ps)) * task.scale(column + c);
                task.store(row, column + c, value);
            }
        }
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

impl Block for Q4 {
    const BYTES: usize = 18;
    const OFFSET: f32 = 8.0;
    #[inline(always)]
    unsafe fn scales(p: *const u8) -> __m256i {
        // SAFETY: 64 bytes from each of four times 72 are 280 of the sixteen blocks' 288.
        unsafe {
            // Lane h takes word 9 * (h % 4) of the quarter that its four blocks are in.
            let word = _mm512_set1_epi64(0x001b_0012_0009_0000);
            let mut scales = _mm512_setzero_si512();
            for quarter in 0..4 {
                let blocks = _mm512_loadu_si512(p.add(quarter * 72).cast());
                scales = _mm512_mask_permutexvar_epi16(scales, 0xf << (4 * quarter), word, blocks);
            }
            _mm512_castsi512_si256(scales)
        }
    }
    #[inline(always)]
    unsafe fn pair(p: *const u8) -> __m512i {
        // SAFETY: both blocks lie inside the row.
        unsafe {
            let first = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(2).cast()));
            let second = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(20).cast()));
            lanes_of_nibbles(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
        }
    }
    #[inline(always)]
    unsafe fn single(p: *const u8) -> __m512i {
        // SAFETY: the block lies inside the row.
        unsafe { lanes_of_nibbles(_mm512_broadcast_i32x4(_mm_loadu_si128(p.add(2).cast()))) }
    }
}

/// Low nibbles of the even 128-bit lanes, high nibbles of the odd ones.
#[inline(always)]
unsafe fn lanes_of_nibbles(w: __m512i) -> __m512i {
    // SAFETY: AVX-512F.
    unsafe {
        let shifts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
        _mm512_and_si512(_mm512_srlv_epi64(w, shifts), _mm512_set1_epi8(15))
    }
}

impl Block for Q8 {
    const BYTES: usize = 34;
    const OFFSET: f32 = 128.0;
    #[inline(always)]
    unsafe fn scales(p: *const u8) -> __m256i {
        // SAFETY: 64 bytes from each of eight times 68 are 540 of the sixteen blocks' 544.
        unsafe {
            // Even lanes take word 0 of their pair of blocks, odd lanes word 17.
            let word = _mm512_set1_epi32(0x0011_0000);
            let mut scales = _mm512_setzero_si512();
            for pair in 0..8 {
                let blocks = _mm512_loadu_si512(p.add(pair * 68).cast());
                scales = _mm512_mask_permutexvar_epi16(scales, 3 << (2 * pair), word, blocks);
            }
            _mm512_castsi512_si256(scales)
        }
    }
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

/// Spreads the scales of blocks 2j and 2j+1 over the lanes that their sums are in.
#[inline(always)]
unsafe fn spread(scales: __m512, pair: usize) -> __m512 {
    // SAFETY: AVX-512F.
    unsafe {
        let halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
        let lanes = _mm512_add_epi32(halves, _mm512_set1_epi32(2 * pair as i32));
        _mm512_permutexvar_ps(lanes, scales)
    }
}

impl<B: Block, const X_SCALES: bool> Row for Blocks<B, X_SCALES> {
    #[inline(always)]
    unsafe fn row<const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: rows are whole blocks; x, its sums and scales are padded with zeros to whole sixteens of blocks.
        unsafe {
            let blocks = task.row_bytes / B::BYTES;
            let mut sums = [[_mm512_setzero_ps(); C]; U];
            let mut shares = [_mm512_setzero_ps(); C];
            let mut block = 0;
            while block + 16 <= blocks {
                let p = task.row(row).add(block * B::BYTES);
                let w_scales = _mm512_cvtph_ps(B::scales(p));
                let mut scales = [w_scales; C];
                for c in 0..C {
                    let x = task.column(column + c);
                    if X_SCALES {
                        scales[c] = _mm512_mul_ps(w_scales, _mm512_load_ps(x.scales.add(block)));
                    }
                    shares[c] = _mm512_fmadd_ps(scales[c], _mm512_load_ps(x.sums.add(block)), shares[c]);
                }
                for pair in 0..8 {
                    let p = p.add(2 * pair * B::BYTES);
                    if B::BYTES > 32 || pair % 2 == 0 {
                        prefetch(p);
                    }
                    let w = B::pair(p);
                    for c in 0..C {
                        let x = task.column(column + c).values.add((block + 2 * pair) * 32);
                        let sum = _mm512_cvtepi32_ps(dot(_mm512_setzero_si512(), w, x));
                        sums[pair % U][c] = _mm512_fmadd_ps(sum, spread(scales[c], pair), sums[pair % U][c]);
                    }
                }
                block += 16;
            }
            if block < blocks {
                let mut halves = [0_u16; 16];
                for i in 0..blocks - block {
                    halves[i] = task.row(row).add((block + i) * B::BYTES).cast::<u16>().read_unaligned();
                }
                let w_scales = _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()));
                for c in 0..C {
                    let x = task.column(column + c);
                    let scales = if X_SCALES {
                        _mm512_mul_ps(w_scales, _mm512_load_ps(x.scales.add(block)))
                    } else {
                        w_scales
                    };
                    shares[c] = _mm512_fmadd_ps(scales, _mm512_load_ps(x.sums.add(block)), shares[c]);
                    for pair in 0..(blocks - block).div_ceil(2) {
                        let first = block + 2 * pair;
                        let p = task.row(row).add(first * B::BYTES);
                        // Without a second block its scale is zero.
                        let w = if first + 2 <= blocks { B::pair(p) } else { B::single(p) };
                        let sum = _mm512_cvtepi32_ps(dot(_mm512_setzero_si512(), w, x.values.add(first * 32)));
                        sums[0][c] = _mm512_fmadd_ps(sum, spread(scales, pair), sums[0][c]);
                    }
                }
            }
            for c in 0..C {
                let scale = if X_SCALES { 1.0 } else { task.scale(column + c) };
                let share = _mm512_mul_ps(shares[c], _mm512_set1_ps(B::OFFSET));
                let total = _mm512_sub_ps(total!(sums, c, _mm512_add_ps), share);
                task.store(row, column + c, _mm512_reduce_add_ps(total) * scale);
            }
        }
    }
}
