//! The search for scales that K-quants and the 4-bit codebook types leave to the packer.
//!
//! The error that is made small is the plain sum of squares. For a sub-block, inverse scales in steps of a tenth of a
//! code around the one that fits the range are tried; the codes that each gives get the scale (and minimum) of least
//! squares, and the best is kept. A block is then packed twice, with the scales found and with those of the range alone
//! ("plain rounding"), and the packing with the smaller error stays: the search never loses.

use super::float::round_even;

/// Steps of a tenth of a code to either side.
const STEPS: i32 = 9;

/// A scale and what is subtracted: weight = scale x code - minimum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Affine {
    pub scale: f32,
    /// Never negative.
    pub minimum: f32,
}

/// Rounds to a code of `low..=high`; what is no number becomes `low`.
pub(super) fn rounded(value: f32, low: f32, high: f32) -> f32 {
    round_even(value.max(low).min(high))
}

/// The value of largest magnitude, the first of equals.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, value| if value.abs() > most.abs() { *value } else { most })
}

/// Scale and minimum that map the range, zero included, to codes 0..=`high`.
pub(super) fn plain_affine(values: &[f32], high: f32) -> Affine {
    let (low, top) = values.iter().fold((0.0_f32, f32::MIN), |(low, top), v| (low.min(*v), top.max(*v)));
    let scale = (top - low) / high;
    Affine { scale: if scale > 0.0 { scale } else { 0.0 }, minimum: -low }
}

/// Scale and minimum of codes 0..=`high` with a small squared error.
pub(super) fn affine(values: &[f32], high: f32) -> Affine {
    let plain = plain_affine(values, high);
    if plain.scale == 0.0 {
        return plain;
    }
    let error = |fit: Affine| {
        let inverse = 1.0 / fit.scale;
        values
            .iter()
            .map(|value| {
                let code = rounded((value + fit.minimum) * inverse, 0.0, high);
                let difference = fit.scale * code - fit.minimum - value;
                difference * difference
            })
            .sum::<f32>()
    };
    let (mut best, mut least) = (plain, error(plain));
    for step in -STEPS..=STEPS {
        let inverse = (high + 0.1 * step as f32) / (plain.scale * high);
        let fit = refit(values, |value| rounded((value + plain.minimum) * inverse, 0.0, high));
        if fit.scale <= 0.0 {
            continue;
        }
        let found = error(fit);
        if found < least {
            (best, least) = (fit, found);
        }
    }
    best
}

/// The least squares of `values` = scale x code - minimum, with a minimum that is not negative.
fn refit(values: &[f32], code: impl Fn(f32) -> f32) -> Affine {
    let (mut l, mut ll, mut x, mut xl) = (0.0_f32, 0.0_f32, 0.0_f32, 0.0_f32);
    for value in values {
        let code = code(*value);
        l += code;
        ll += code * code;
        x += value;
        xl += value * code;
    }
    let count = values.len() as f32;
    let determinant = count * ll - l * l;
    if determinant <= 0.0 {
        return Affine::default();
    }
    let minimum = (l * xl - ll * x) / determinant;
    if minimum < 0.0 {
        return Affine { scale: xl / ll, minimum: 0.0 };
    }
    Affine { scale: (count * xl - l * x) / determinant, minimum }
}

/// The scale that maps the value of largest magnitude to the code `low`.
pub(super) fn plain_symmetric(values: &[f32], low: f32) -> f32 {
    extreme(values) / low
}

/// The scale of codes that `nearest` finds, with a small squared error; `low` is the code of largest magnitude.
pub(super) fn symmetric(values: &[f32], low: f32, nearest: impl Fn(f32) -> f32) -> f32 {
    let extreme = extreme(values);
    if extreme == 0.0 {
        return 0.0;
    }
    let (mut best, mut most) = (extreme / low, 0.0);
    for step in -STEPS..=STEPS {
        let inverse = (low + 0.1 * step as f32 * (low.abs() / 8.0).max(1.0)) / extreme;
        let (mut xl, mut ll) = (0.0_f32, 0.0_f32);
        for value in values {
            let code = nearest(value * inverse);
            xl += value * code;
            ll += code * code;
        }
        // What least squares takes off the sum of squares.
        let gain = xl * xl / ll;
        if ll > 0.0 && gain > most {
            (best, most) = (xl / ll, gain);
        }
    }
    best
}

/// The packing with the smaller squared error, the first of equals.
pub(super) fn better<T>(first: (T, f32), second: (T, f32)) -> T {
    if second.1 < first.1 { second.0 } else { first.0 }
}
