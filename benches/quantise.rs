//! What packing costs: MB of fp32 weights per second, beside copying the same bytes in the same run.
//!
//! ```text
//! cargo bench -p rooflined-benches --bench quantise
//! ```
//!
//! Each round packs and restores every format and copies once, so that the machine's drift hits all; figures are medians
//! over rounds.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where its world does")]

use std::hint::black_box;
use std::time::Instant;

use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{decode, encode, without_encoder};

const ROWS: usize = 256;
const COLUMNS: usize = 4096;
const ROUNDS: usize = 5;

fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begun = Instant::now();
    let made = black_box(work());
    (begun.elapsed().as_secs_f64(), made)
}

fn rate(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    (ROWS * COLUMNS * 4) as f64 / times[times.len() / 2] / 1e6
}

fn main() {
    // Cargo asks benchmarks to list or test themselves; this one only runs.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let weights: Vec<f32> = (0..ROWS * COLUMNS).map(|_| (0..4).map(|_| rng.f32() - 0.5).sum()).collect();
    let formats: Vec<_> =
        WeightFormat::ALL.iter().copied().filter(|format| without_encoder(*format).is_none()).collect();
    let (mut packing, mut restoring) = (vec![Vec::new(); formats.len()], vec![Vec::new(); formats.len()]);
    let mut copying = Vec::new();
    let mut copy = vec![0.0_f32; weights.len()];
    for _ in 0..=ROUNDS {
        copying.push(seconds(|| black_box(&mut copy).copy_from_slice(black_box(&weights))).0);
        for (i, format) in formats.iter().enumerate() {
            let (time, encoded) = seconds(|| encode(*format, ROWS, COLUMNS, &weights).unwrap());
            packing[i].push(time);
            restoring[i].push(seconds(|| decode(&encoded).unwrap()).0);
        }
    }
    // The first round warms up.
    let median = |times: &[f64]| rate(times[1..].to_vec());
    println!("{:<12} {:>12} {:>12}", "format", "pack MB/s", "restore MB/s");
    println!("{:<12} {:>12.0} {:>12.0}", "memcpy", median(&copying), median(&copying));
    for (i, format) in formats.iter().enumerate() {
        println!("{:<12} {:>12.0} {:>12.0}", format.key(), median(&packing[i]), median(&restoring[i]));
    }
}
