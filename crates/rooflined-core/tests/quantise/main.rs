//! Storage formats: known answers, laws, and the table of expected losses.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails in a helper of a test fails the test")]

mod errors;
mod known;
mod laws;

/// `count` independent values of the standard normal distribution: Box-Muller over a SplitMix64 stream.
fn gaussian(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 * 2.0_f64.powi(-53)
    };
    (0..count)
        .map(|_| {
            let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), std::f64::consts::TAU * uniform());
            (radius * angle.cos()) as f32
        })
        .collect()
}
