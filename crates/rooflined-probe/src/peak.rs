//! Register-only peaks: independent chains of multiply-adds, as many as hide the latency of the widest unit.
//!
//! Operands pass through `black_box`, so no chain can be folded, and every chain ends in a value known in closed
//! form: the floating-point chains converge to a fixed point, the integer chains count.

use super::isa::Isa;
use rooflined_core::precision::Precision;

/// One unit of one instruction set.
#[derive(Clone, Copy)]
pub struct Peak {
    pub isa: Isa,
    pub precision: Precision,
    /// Operations of one iteration, a multiply-add counting as two.
    pub flops: f64,
    /// Runs the chains for a number of iterations and returns the largest relative deviation from the closed form.
    pub run: unsafe fn(u64) -> f64,
}

/// The floating-point chains compute `x <- x * M + A`, whose fixed point is 2; they start at 1.
const M: f32 = 0.5;
const A: f32 = 1.0;

fn converged(iterations: u64, lanes: &[f32]) -> f64 {
    // After n steps the distance from 2 is 0.5^n.
    #[expect(clippy::cast_precision_loss, reason = "beyond 60 iterations the power is zero anyway")]
    let expected = 2.0 - 0.5_f64.powf(iterations as f64);
    lanes.iter().map(|lane| (f64::from(*lane) - expected).abs() / expected).fold(0.0, f64::max)
}

#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "no integer unit")
)]
fn counted(iterations: u64, per_iteration: i32, lanes: &[i32]) -> f64 {
    // Wrapping: the count modulo 2^32 is exact.
    let expected = (iterations as i32).wrapping_mul(per_iteration);
    lanes.iter().map(|lane| if *lane == expected { 0.0 } else { 1.0 }).fold(0.0, f64::max)
}

/// Sums of equal floats are exact up to `limit`; beyond it nothing is claimed.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn counted_up_to(limit: f64, iterations: u64, per_iteration: f64, lanes: &[f32]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "beyond the limit anyway")]
    let expected = (iterations as f64 * per_iteration).min(limit);
    lanes.iter().map(|lane| (f64::from(*lane).min(limit) - expected).abs() / expected).fold(0.0, f64::max)
}

/// `$chains` accumulators of `$vector`, `$repeat` multiply-adds each per iteration.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! chains {
    ($name:ident, $features:literal, $vector:ty, $lane:ty, $start:expr, $a:expr, $b:expr,
     |$acc:ident, $x:ident, $y:ident| $step:expr, $check:expr) => {
        #[target_feature(enable = $features)]
        unsafe fn $name(iterations: u64) -> f64 {
            const LANES: usize = size_of::<$vector>() / size_of::<$lane>();
            // SAFETY: register arithmetic of the enabled features; the transmute is between plain data of one size.
            unsafe {
                let $x = std::hint::black_box($a);
                let $y = std::hint::black_box($b);
                // Each start by itself: chains known to be equal could be merged.
                let mut accumulators: [$vector; CHAINS] =
                    std::array::from_fn(|_| std::hint::black_box($start));
                for _ in 0..iterations {
                    for index in 0..CHAINS {
                        let $acc = accumulators[index];
                        accumulators[index] = $step;
                    }
                }
                let lanes: [[$lane; LANES]; CHAINS] = std::mem::transmute(accumulators);
                $check(iterations, lanes.as_flattened())
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// Two pipes of latency four or five: ten would do; twelve leave registers for the operands on AVX2.
    const CHAINS: usize = 12;

    fn converged64(iterations: u64, lanes: &[f64]) -> f64 {
        let narrow: Vec<f32> = lanes.iter().map(|lane| *lane as f32).collect();
        converged(iterations, &narrow)
    }
    /// Two products of 1 a lane.
    fn twos(iterations: u64, lanes: &[f32]) -> f64 {
        counted_up_to(16_777_216.0, iterations, 2.0, lanes)
    }
    fn counted8(iterations: u64, lanes: &[i32]) -> f64 {
        // Four products of 3 and -2 a lane.
        counted(iterations, -24, lanes)
    }

    chains!(
        fp32_512,
        "avx512f",
        __m512,
        f32,
        _mm512_set1_ps(1.0),
        _mm512_set1_ps(M),
        _mm512_set1_ps(A),
        |acc, m, a| _mm512_fmadd_ps(acc, m, a),
        converged
    );
    chains!(
        fp64_512,
        "avx512f",
        __m512d,
        f64,
        _mm512_set1_pd(1.0),
        _mm512_set1_pd(0.5),
        _mm512_set1_pd(1.0),
        |acc, m, a| _mm512_fmadd_pd(acc, m, a),
        converged64
    );
    chains!(
        fp32_256,
        "avx2,fma",
        __m256,
        f32,
        _mm256_set1_ps(1.0),
        _mm256_set1_ps(M),
        _mm256_set1_ps(A),
        |acc, m, a| _mm256_fmadd_ps(acc, m, a),
        converged
    );
    chains!(
        fp64_256,
        "avx2,fma",
        __m256d,
        f64,
        _mm256_set1_pd(1.0),
        _mm256_set1_pd(0.5),
        _mm256_set1_pd(1.0),
        |acc, m, a| _mm256_fmadd_pd(acc, m, a),
        converged64
    );
    chains!(
        fp32_128,
        "sse2",
        __m128,
        f32,
        _mm_set1_ps(1.0),
        _mm_set1_ps(M),
        _mm_set1_ps(A),
        |acc, m, a| _mm_add_ps(_mm_mul_ps(acc, m), a),
        converged
    );
    chains!(
        fp64_128,
        "sse2",
        __m128d,
        f64,
        _mm_set1_pd(1.0),
        _mm_set1_pd(0.5),
        _mm_set1_pd(1.0),
        |acc, m, a| _mm_add_pd(_mm_mul_pd(acc, m), a),
        converged64
    );
    // bf16 1.0 is 0x3f80.
    chains!(
        bf16_512,
        "avx512f,avx512bf16",
        __m512,
        f32,
        _mm512_setzero_ps(),
        _mm512_set1_epi16(0x3f80),
        _mm512_set1_epi16(0x3f80),
        |acc, x, y| _mm512_dpbf16_ps(
            acc,
            std::mem::transmute::<__m512i, __m512bh>(x),
            std::mem::transmute::<__m512i, __m512bh>(y)
        ),
        twos
    );
    chains!(
        int8_512,
        "avx512f,avx512vnni",
        __m512i,
        i32,
        _mm512_setzero_si512(),
        _mm512_set1_epi8(3),
        _mm512_set1_epi8(-2),
        |acc, x, y| _mm512_dpbusd_epi32(acc, x, y),
        counted8
    );
    chains!(
        int8_256_vnni,
        "avx2,avxvnni",
        __m256i,
        i32,
        _mm256_setzero_si256(),
        _mm256_set1_epi8(3),
        _mm256_set1_epi8(-2),
        |acc, x, y| _mm256_dpbusd_avx_epi32(acc, x, y),
        counted8
    );
    // The products do not depend on the chain: as volatile assembly they are not hoisted out of the loop.
    chains!(
        int8_256,
        "avx2",
        __m256i,
        i32,
        _mm256_setzero_si256(),
        _mm256_set1_epi8(3),
        _mm256_set1_epi8(-2),
        |acc, x, y| {
            let products: __m256i;
            std::arch::asm!("vpmaddubsw {p}, {x}, {y}", p = lateout(ymm_reg) products, x = in(ymm_reg) x,
                y = in(ymm_reg) y, options(nomem, nostack, preserves_flags));
            _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
        },
        counted8
    );

    /// fp16 1.0 is 0x3c00, 0.5 is 0x3800. Written as assembly: the half-precision vector type is not in stable Rust.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn fp16_512(iterations: u64) -> f64 {
        // SAFETY: register arithmetic only; the caller has checked for AVX512-FP16.
        unsafe {
            let m = _mm512_set1_epi16(0x3800);
            let a = _mm512_set1_epi16(0x3c00);
            let mut acc = [a; 10];
            let [x0, x1, x2, x3, x4, x5, x6, x7, x8, x9] = &mut acc;
            std::arch::asm!(
                "2:",
                "vfmadd213ph {x0}, {m}, {a}", "vfmadd213ph {x1}, {m}, {a}", "vfmadd213ph {x2}, {m}, {a}",
                "vfmadd213ph {x3}, {m}, {a}", "vfmadd213ph {x4}, {m}, {a}", "vfmadd213ph {x5}, {m}, {a}",
                "vfmadd213ph {x6}, {m}, {a}", "vfmadd213ph {x7}, {m}, {a}", "vfmadd213ph {x8}, {m}, {a}",
                "vfmadd213ph {x9}, {m}, {a}",
                "dec {n}", "jnz 2b",
                x0 = inout(zmm_reg) *x0, x1 = inout(zmm_reg) *x1, x2 = inout(zmm_reg) *x2, x3 = inout(zmm_reg) *x3,
                x4 = inout(zmm_reg) *x4, x5 = inout(zmm_reg) *x5, x6 = inout(zmm_reg) *x6, x7 = inout(zmm_reg) *x7,
                x8 = inout(zmm_reg) *x8, x9 = inout(zmm_reg) *x9, m = in(zmm_reg) m, a = in(zmm_reg) a,
                n = inout(reg) iterations.max(1) => _, options(nomem, nostack),
            );
            let lanes: [[u16; 32]; 10] = std::mem::transmute(acc);
            let lanes: Vec<f32> =
                lanes.as_flattened().iter().map(|bits| half::f16::from_bits(*bits).to_f32()).collect();
            // Half precision reaches the fixed point to its last bit; before that the closed form holds exactly.
            converged(iterations.max(1), &lanes)
        }
    }

    const fn peak(isa: Isa, precision: Precision, fma_lanes: f64, run: unsafe fn(u64) -> f64) -> Peak {
        Peak { isa, precision, flops: 2.0 * fma_lanes * CHAINS as f64, run }
    }

    pub(super) const PEAKS: &[Peak] = &[
        peak(Isa::Avx512, Precision::Fp64, 8.0, fp64_512),
        peak(Isa::Avx2, Precision::Fp64, 4.0, fp64_256),
        peak(Isa::Sse2, Precision::Fp64, 2.0, fp64_128),
        peak(Isa::Avx512, Precision::Fp32, 16.0, fp32_512),
        peak(Isa::Avx2, Precision::Fp32, 8.0, fp32_256),
        peak(Isa::Sse2, Precision::Fp32, 4.0, fp32_128),
        Peak { isa: Isa::Avx512Fp16, precision: Precision::Fp16, flops: 2.0 * 32.0 * 10.0, run: fp16_512 },
        peak(Isa::Avx512Bf16, Precision::Bf16, 32.0, bf16_512),
        peak(Isa::Avx512Vnni, Precision::Int8, 64.0, int8_512),
        peak(Isa::AvxVnni, Precision::Int8, 32.0, int8_256_vnni),
        peak(Isa::Avx2, Precision::Int8, 32.0, int8_256),
    ];
}

#[cfg(target_arch = "aarch64")]
#[path = "peak_aarch64.rs"]
mod aarch64;

/// Plain Rust, for machines without a vector path here.
fn scalar_fp32(iterations: u64) -> f64 {
    let m = std::hint::black_box(M);
    let a = std::hint::black_box(A);
    let mut chains = [std::hint::black_box(1.0_f32); 16];
    for _ in 0..iterations {
        for chain in &mut chains {
            *chain = *chain * m + a;
        }
    }
    converged(iterations, &chains)
}

const SCALAR: Peak = Peak { isa: Isa::Scalar, precision: Precision::Fp32, flops: 32.0, run: scalar_fp32 };

/// Every unit of this machine for `precision`, best first.
pub fn peaks(precision: Precision) -> impl Iterator<Item = Peak> {
    #[cfg(target_arch = "x86_64")]
    let native = x86::PEAKS;
    #[cfg(target_arch = "aarch64")]
    let native = aarch64::PEAKS;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let native: &[Peak] = &[];
    native
        .iter()
        .copied()
        .chain([SCALAR])
        .filter(move |peak| peak.precision == precision && peak.isa.is_supported())
}

/// Why there is no peak for `precision`, for people.
pub fn absence(precision: Precision) -> String {
    format!("this CPU has no unit that computes in {precision}; it would convert to fp32 first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_ends_where_the_closed_form_says() {
        for precision in &Precision::ALL {
            for peak in peaks(*precision) {
                for iterations in [1, 2, 3, 10, 1000] {
                    // SAFETY: `peaks` yields supported units only.
                    let error = unsafe { (peak.run)(iterations) };
                    assert!(error < 1e-3, "{precision} {} after {iterations}: {error}", peak.isa.key());
                }
            }
        }
    }

    #[test]
    fn no_cpu_here_has_an_fp4_unit() {
        assert_eq!(peaks(Precision::Fp4).count(), 0);
        assert!(absence(Precision::Fp4).contains("fp4"));
    }
}
