//! How far results lie from the reference.

/// The larger deviation. A NaN is the largest of all, and finite so that it survives the way through JSON.
pub fn worse(worst: f64, deviation: f64) -> f64 {
    if deviation.is_nan() { f64::MAX } else { worst.max(deviation) }
}

#[cfg(test)]
mod tests {
    use super::worse;

    #[test]
    fn a_result_that_is_no_number_is_the_worst_of_all() {
        let worst = [0.1, f64::NAN, 0.2].into_iter().fold(0.0, worse);
        assert_eq!(worst, f64::MAX);
        let back: f64 = serde_json::from_str(&serde_json::to_string(&worst).unwrap()).unwrap();
        assert!(back > 1e300);
    }
}
