//! Bandwidth kernels: read, copy and triad over one worker's part of the arrays.
//!
//! Traffic counted: read 1x, copy 2x and triad 3x the array. The read for ownership that an ordinary store causes is
//! not counted. Each kernel runs over whole chunks of [`CHUNK`] bytes from 64-byte aligned starts.

use super::isa::Isa;
use rooflined_predict::calibration::{Stores, Stream};

/// Array parts are whole multiples of this.
pub const CHUNK: usize = 1024;

/// Factor of the triad.
const SCALE: f32 = 0.75;

/// Reads `bytes` bytes of an array.
pub type Read = unsafe fn(*const u8, usize) -> f32;
/// `a = b`, `bytes` long.
pub type Copy = unsafe fn(*mut u8, *const u8, usize);
/// `a = b + s*c`, `bytes` long.
pub type Triad = unsafe fn(*mut u8, *const u8, *const u8, usize);

/// The kernels of one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    pub isa: Isa,
    pub read: Read,
    copy: [Copy; 2],
    triad: [Triad; 2],
    /// Whether the second of each pair really bypasses the caches.
    pub non_temporal: bool,
}

impl Kernels {
    /// Arrays that a pattern touches.
    pub const fn arrays(pattern: Stream) -> usize {
        match pattern {
            Stream::Read | Stream::Write => 1,
            Stream::Copy => 2,
            Stream::Triad => 3,
        }
    }

    /// Runs `pattern` once over arrays of `bytes` each that lie `stride` apart from `start`.
    ///
    /// # Safety
    /// All arrays are initialised, 64-byte aligned, a multiple of [`CHUNK`] long, and used by this thread alone.
    pub unsafe fn run(&self, pattern: Stream, stores: Stores, start: *mut u8, stride: usize, bytes: usize) {
        let kind = usize::from(stores == Stores::NonTemporal);
        // SAFETY: the caller's promise.
        unsafe {
            match pattern {
                Stream::Read => {
                    std::hint::black_box((self.read)(start, bytes));
                }
                // Of GPUs only, and refused before it comes here.
                Stream::Write => {}
                Stream::Copy => (self.copy[kind])(start, start.add(stride), bytes),
                Stream::Triad => (self.triad[kind])(start, start.add(stride), start.add(2 * stride), bytes),
            }
        }
    }
}

/// The kernels for `isa`; `None` where that level adds nothing over the one below.
pub fn kernels(isa: Isa) -> Option<Kernels> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(x86::avx512()),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Some(x86::avx2()),
        #[cfg(target_arch = "x86_64")]
        Isa::Sse2 => Some(x86::sse2()),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => Some(neon::kernels()),
        Isa::Scalar => Some(scalar::kernels()),
        _ => None,
    }
}

/// The widest kernels of this machine.
pub fn best() -> Kernels {
    Isa::supported().find_map(kernels).unwrap_or_else(scalar::kernels)
}

/// Read, copy and triad from a vector type's operations. `$lanes` vectors make up one 256-byte step.
macro_rules! vector_kernels {
    ($module:ident, $isa:expr, $features:literal, $vector:ty, $width:literal,
     load $load:expr, store $store:expr, stream $stream:expr, zero $zero:expr, splat $splat:expr,
     add $add:expr, fma $fma:expr, sum $sum:expr, fence $fence:expr, prefetch $prefetch:expr, ahead $ahead:literal) => {
        mod $module {
            use super::*;
            const VECTORS: usize = 512 / $width;

            #[target_feature(enable = $features)]
            unsafe fn read(from: *const u8, bytes: usize) -> f32 {
                // SAFETY: whole chunks inside the array; a prefetch may point anywhere.
                unsafe {
                    let mut sums = [$zero; VECTORS];
                    let mut at = 0;
                    while at < bytes {
                        for line in 0..512 / 64 {
                            $prefetch(from.wrapping_add(at + $ahead + line * 64));
                        }
                        for v in 0..VECTORS {
                            sums[v] = $add(sums[v], $load(from.add(at + v * $width).cast()));
                        }
                        at += 512;
                    }
                    let mut sum = $zero;
                    for v in 0..VECTORS {
                        sum = $add(sum, sums[v]);
                    }
                    $sum(sum)
                }
            }

            vector_kernels!(@stores copy, triad, $features, $width, $load, $store, $splat, $fma, ());
            vector_kernels!(@stores copy_nt, triad_nt, $features, $width, $load, $stream, $splat, $fma, $fence);

            pub(super) fn kernels() -> Kernels {
                Kernels { isa: $isa, read, copy: [copy, copy_nt], triad: [triad, triad_nt], non_temporal: true }
            }
        }
    };
    (@stores $copy:ident, $triad:ident, $features:literal, $width:literal, $load:expr, $store:expr, $splat:expr,
     $fma:expr, $fence:expr) => {
        #[target_feature(enable = $features)]
        unsafe fn $copy(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: whole chunks inside both arrays.
            unsafe {
                let mut at = 0;
                while at < bytes {
                    for v in 0..256 / $width {
                        let at = at + v * $width;
                        $store(to.add(at).cast(), $load(from.add(at).cast()));
                    }
                    at += 256;
                }
                $fence;
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $triad(a: *mut u8, b: *const u8, c: *const u8, bytes: usize) {
            // SAFETY: whole chunks inside the three arrays.
            unsafe {
                let scale = $splat(SCALE);
                let mut at = 0;
                while at < bytes {
                    for v in 0..256 / $width {
                        let at = at + v * $width;
                        $store(a.add(at).cast(), $fma($load(c.add(at).cast()), scale, $load(b.add(at).cast())));
                    }
                    at += 256;
                }
                $fence;
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) };
    }
    #[inline(always)]
    unsafe fn sse_fma(a: __m128, b: __m128, c: __m128) -> __m128 {
        // SAFETY: SSE2 is the baseline.
        unsafe { _mm_add_ps(_mm_mul_ps(a, b), c) }
    }
    #[inline(always)]
    unsafe fn sse_sum(v: __m128) -> f32 {
        // SAFETY: both are 16 bytes of floats.
        let lanes: [f32; 4] = unsafe { std::mem::transmute(v) };
        lanes.iter().sum()
    }
    #[inline(always)]
    unsafe fn avx_sum(v: __m256) -> f32 {
        // SAFETY: both are 32 bytes of floats.
        let lanes: [f32; 8] = unsafe { std::mem::transmute(v) };
        lanes.iter().sum()
    }

    vector_kernels!(wide, Isa::Avx512, "avx512f", __m512, 64,
        load _mm512_load_ps, store _mm512_store_ps, stream _mm512_stream_ps, zero _mm512_setzero_ps(),
        splat _mm512_set1_ps, add _mm512_add_ps, fma _mm512_fmadd_ps, sum _mm512_reduce_add_ps, fence _mm_sfence(),
        prefetch prefetch, ahead 4096);
    vector_kernels!(medium, Isa::Avx2, "avx2,fma", __m256, 32,
        load _mm256_load_ps, store _mm256_store_ps, stream _mm256_stream_ps, zero _mm256_setzero_ps(),
        splat _mm256_set1_ps, add _mm256_add_ps, fma _mm256_fmadd_ps, sum avx_sum, fence _mm_sfence(),
        prefetch prefetch, ahead 4096);
    vector_kernels!(narrow, Isa::Sse2, "sse2", __m128, 16,
        load _mm_load_ps, store _mm_store_ps, stream _mm_stream_ps, zero _mm_setzero_ps(),
        splat _mm_set1_ps, add _mm_add_ps, fma sse_fma, sum sse_sum, fence _mm_sfence(),
        prefetch prefetch, ahead 4096);

    pub(super) fn avx512() -> Kernels {
        wide::kernels()
    }
    pub(super) fn avx2() -> Kernels {
        medium::kernels()
    }
    pub(super) fn sse2() -> Kernels {
        narrow::kernels()
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::*;
    use std::arch::aarch64::*;

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: NEON is the baseline.
        unsafe { vdupq_n_f32(0.0) }
    }
    /// Half of a non-temporal pair: there is no single-register form, so both halves of 32 bytes go at once.
    #[inline(always)]
    unsafe fn stream(to: *mut f32, v: float32x4_t) {
        // SAFETY: 16 bytes at `to` belong to the caller.
        unsafe {
            let halves = vreinterpretq_u64_f32(v);
            std::arch::asm!("stnp {a:d}, {b:d}, [{to}]", to = in(reg) to,
                a = in(vreg) vget_low_u64(halves), b = in(vreg) vget_high_u64(halves),
                options(nostack, preserves_flags));
        }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: NEON is the baseline.
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    vector_kernels!(base, Isa::Neon, "neon", float32x4_t, 16,
        load vld1q_f32, store vst1q_f32, stream stream, zero zero(),
        splat vdupq_n_f32, add vaddq_f32, fma fma, sum vaddvq_f32, fence (),
        prefetch prefetch, ahead 0);

    pub(super) fn kernels() -> Kernels {
        base::kernels()
    }
}

mod scalar {
    use super::*;

    /// # Safety
    /// See [`Kernels::run`].
    unsafe fn floats<'a>(from: *const u8, bytes: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(from.cast(), bytes / 4) }
    }

    unsafe fn read(from: *const u8, bytes: usize) -> f32 {
        let mut sums = [0.0; 32];
        // SAFETY: the caller's promise.
        for chunk in unsafe { floats(from, bytes) }.as_chunks::<32>().0 {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += value;
            }
        }
        sums.iter().sum()
    }

    unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: two arrays, by the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }

    unsafe fn triad(a: *mut u8, b: *const u8, c: *const u8, bytes: usize) {
        // SAFETY: three arrays, by the caller's promise.
        let (a, b, c) = unsafe {
            (std::slice::from_raw_parts_mut(a.cast::<f32>(), bytes / 4), floats(b, bytes), floats(c, bytes))
        };
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = b + SCALE * c;
        }
    }

    pub(super) fn kernels() -> Kernels {
        Kernels { isa: Isa::Scalar, read, copy: [copy; 2], triad: [triad; 2], non_temporal: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Region;

    #[test]
    fn every_instruction_set_sums_copies_and_scales() {
        for isa in Isa::supported() {
            let Some(kernels) = kernels(isa) else { continue };
            let bytes = 5 * CHUNK;
            let floats = bytes / 4;
            let region = Region::new(3 * bytes).unwrap();
            // SAFETY: the region is this test's own.
            let data = unsafe { std::slice::from_raw_parts_mut(region.start().cast::<f32>(), 3 * floats) };
            for stores in [Stores::Temporal, Stores::NonTemporal] {
                for (i, value) in data.iter_mut().enumerate() {
                    *value = (i % 251) as f32;
                }
                let expected: f32 = data[..floats].iter().sum();
                // SAFETY: three initialised arrays of `bytes` lie one after another in the region.
                unsafe {
                    assert_eq!((kernels.read)(region.start(), bytes), expected, "{}", isa.key());
                    kernels.run(Stream::Triad, stores, region.start(), bytes, bytes);
                }
                for i in 0..floats {
                    assert_eq!(data[i], data[floats + i] + 0.75 * data[2 * floats + i], "{} {i}", isa.key());
                }
                // SAFETY: as above.
                unsafe { kernels.run(Stream::Copy, stores, region.start(), bytes, bytes) };
                assert_eq!(data[..floats], data[floats..2 * floats]);
            }
        }
    }
}
