//! Intervals from errors alone: how wide one must be to hold nine errors in ten.

/// Errors that a group needs before its own quantile is believed; with fewer the wider group is asked.
pub const LEAST_ERRORS: usize = 10;
/// What intervals are made to hold.
pub const COVERAGE: f64 = 0.9;

/// The half-width that holds [`COVERAGE`] of errors given as ln(predicted / measured): the split-conformal quantile, at
/// rank ceil((n + 1) coverage) of their sizes, as a ratio; `None` for too few.
#[must_use]
pub fn conformal(errors: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sizes: Vec<f64> = errors.into_iter().map(f64::abs).collect();
    if sizes.len() < LEAST_ERRORS {
        return None;
    }
    sizes.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let count = sizes.len() as f64;
    let share = (((count + 1.0) * COVERAGE).ceil() - 1.0) / (count - 1.0);
    Some(quantile(&sizes, share.min(1.0)).exp_m1())
}

/// Linear interpolation between the order statistics of sorted values.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places in a list"
)]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len().saturating_sub(1)) as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    match (sorted.get(below), sorted.get(below + 1)) {
        (Some(low), Some(high)) => low + part * (high - low),
        (Some(only), None) => *only,
        (None, _) => f64::NAN,
    }
}
