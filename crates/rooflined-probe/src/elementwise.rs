//! What a layer does beside products: norm, rotation, activation, softmax.
//!
//! Every loop is plain Rust over a fixed number of lanes, compiled once for the baseline and once for wider vectors.

use super::isa::Isa;

/// Added to the mean square, as in the models of the Llama family.
pub const EPSILON: f32 = 1e-5;
/// Base of the rotation's frequencies.
pub const ROTATION_BASE: f64 = 10_000.0;
/// Independent sums of a reduction: two of the widest vectors.
const LANES: usize = 32;

/// The functions for one instruction set.
#[derive(Clone, Copy)]
pub struct Elementwise {
    /// `y = x / rms(x) * gain`.
    pub norm: unsafe fn(x: &[f32], gain: &[f32], y: &mut [f32]),
    /// `gate = gate * sigmoid(gate) * up`.
    pub activate: unsafe fn(gate: &mut [f32], up: &[f32]),
    /// `x = x * sigmoid(x)`.
    pub activate_alone: unsafe fn(x: &mut [f32]),
    /// `x = x + y`.
    pub add: unsafe fn(x: &mut [f32], y: &[f32]),
    /// `x = softmax(scale x)`.
    pub softmax: unsafe fn(x: &mut [f32], scale: f32),
}

macro_rules! variants {
    ($($(#[$attribute:meta])* $module:ident;)*) => {$(
        mod $module {
            $(#[$attribute])*
            pub unsafe fn norm(x: &[f32], gain: &[f32], y: &mut [f32]) {
                super::norm(x, gain, y);
            }
            $(#[$attribute])*
            pub unsafe fn activate(gate: &mut [f32], up: &[f32]) {
                super::activate(gate, up);
            }
            $(#[$attribute])*
            pub unsafe fn activate_alone(x: &mut [f32]) {
                super::activate_alone(x);
            }
            $(#[$attribute])*
            pub unsafe fn add(x: &mut [f32], y: &[f32]) {
                super::add(x, y);
            }
            $(#[$attribute])*
            pub unsafe fn softmax(x: &mut [f32], scale: f32) {
                super::softmax(x, scale);
            }
            pub const ALL: super::Elementwise =
                super::Elementwise { norm, activate, activate_alone, add, softmax };
        }
    )*};
}

variants! {
    baseline;
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    wide;
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl,fma"))]
    widest;
}

impl Elementwise {
    /// Those of this machine; each may be called as long as the process lives.
    pub fn best() -> Self {
        if Isa::Avx512.is_supported() {
            widest::ALL
        } else if Isa::Avx2.is_supported() {
            wide::ALL
        } else {
            baseline::ALL
        }
    }
}

#[inline(always)]
fn norm(x: &[f32], gain: &[f32], y: &mut [f32]) {
    let mut sums = [0.0_f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x * x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += x * x;
    }
    let total: f32 = sums.iter().sum();
    let inverse = 1.0 / (total / x.len().max(1) as f32 + EPSILON).sqrt();
    for ((y, x), gain) in y.iter_mut().zip(x).zip(gain) {
        *y = x * inverse * gain;
    }
}

#[inline(always)]
fn activate(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + exponential(-*gate)) * up;
    }
}

#[inline(always)]
fn activate_alone(x: &mut [f32]) {
    for x in x {
        *x /= 1.0 + exponential(-*x);
    }
}

#[inline(always)]
fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[inline(always)]
fn softmax(x: &mut [f32], scale: f32) {
    let mut most = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (most, x) in most.iter_mut().zip(chunk) {
            *most = if *x > *most { *x } else { *most };
        }
    }
    let largest = most.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0_f32; LANES];
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for chunk in whole {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *x = exponential((*x - largest) * scale);
            *sum += *x;
        }
    }
    let mut total: f32 = sums.iter().sum();
    for x in rest {
        *x = exponential((*x - largest) * scale);
        total += *x;
    }
    let inverse = 1.0 / total;
    for x in x {
        *x *= inverse;
    }
}

/// `e^x` to some parts in 10^7 where the result is a normal float; beyond, the nearest such float's order. Without
/// branches, so that loops over it are vectorised.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves the integer nearest to x / ln 2 in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let whole = shifted - MAGIC;
    // ln 2 in two parts, the first with few bits so that its product is exact.
    let r = x - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    // Taylor to the sixth order on |r| <= 0.35: 2e-7.
    let p = 1.0
        + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0))))));
    let exponent = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    p * f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}

/// Cosine and sine of every frequency of a head at `position`, pair by pair.
pub fn angles(head_dim: usize, position: usize) -> Vec<[f32; 2]> {
    (0..head_dim / 2)
        .map(|pair| {
            let frequency = ROTATION_BASE.powf(-2.0 * pair as f64 / head_dim as f64);
            let (sine, cosine) = (position as f64 * frequency).sin_cos();
            [cosine as f32, sine as f32]
        })
        .collect()
}

/// Rotates a head: its first half and its second half are the two coordinates of the pairs.
pub fn rotate(head: &mut [f32], angles: &[[f32; 2]]) {
    let (first, second) = head.split_at_mut(head.len() / 2);
    for ((a, b), [cosine, sine]) in first.iter_mut().zip(second).zip(angles) {
        (*a, *b) = (*a * cosine - *b * sine, *a * sine + *b * cosine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Elementwise> {
        let mut all = vec![baseline::ALL];
        if Isa::Avx2.is_supported() {
            all.push(wide::ALL);
        }
        if Isa::Avx512.is_supported() {
            all.push(widest::ALL);
        }
        all
    }

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect()
    }

    #[test]
    fn the_exponential_is_right_over_its_range_and_finite_beyond() {
        for i in -870..=880 {
            let x = i as f32 / 10.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exponential(x)) / expected - 1.0).abs();
            assert!(error < 5e-7, "e^{x}: {error}");
        }
        assert!(exponential(-1e30) < 1e-37 && exponential(-1e30) >= 0.0);
        assert!(exponential(1e30).is_finite());
    }

    #[test]
    fn every_variant_agrees_with_the_definitions_at_odd_lengths() {
        for count in [1, 2, 31, 32, 33, 100, 257] {
            let (x, up) = (values(count), values(count + 3)[3..].to_vec());
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            let mean = wide.iter().map(|x| x * x).sum::<f64>() / count as f64;
            let total: f64 = wide.iter().map(|x| (0.3 * x).exp()).sum();
            for functions in all() {
                let (mut normed, mut active, mut alone, mut sum, mut soft) =
                    (vec![0.0; count], x.clone(), x.clone(), x.clone(), x.clone());
                // SAFETY: `all` holds what the machine supports.
                unsafe {
                    (functions.norm)(&x, &up, &mut normed);
                    (functions.activate)(&mut active, &up);
                    (functions.activate_alone)(&mut alone);
                    (functions.add)(&mut sum, &up);
                    (functions.softmax)(&mut soft, 0.3);
                }
                for i in 0..count {
                    let (w, u) = (wide[i], f64::from(up[i]));
                    let sigmoid = w / (1.0 + (-w).exp());
                    for (found, expected) in [
                        (normed[i], w / (mean + f64::from(EPSILON)).sqrt() * u),
                        (active[i], sigmoid * u),
                        (alone[i], sigmoid),
                        (sum[i], w + u),
                        (soft[i], (0.3 * w).exp() / total),
                    ] {
                        assert!(
                            (f64::from(found) - expected).abs() <= 2e-6 * (1.0 + expected.abs()),
                            "{count} {i}: {found} {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_rotation_keeps_lengths_and_position_zero_changes_nothing() {
        let head = values(64);
        let mut turned = head.clone();
        rotate(&mut turned, &angles(64, 0));
        assert_eq!(turned, head);
        rotate(&mut turned, &angles(64, 1023));
        let square = |head: &[f32]| head.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        assert!((square(&turned) / square(&head) - 1.0).abs() < 1e-5);
        assert_ne!(turned, head);
    }
}
