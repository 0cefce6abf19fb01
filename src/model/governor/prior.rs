//! Ceilings of a CPU that nobody has measured yet: documented guesses with wide intervals, provenance `prior`.

use std::collections::BTreeMap;

use roofline::board::{Board, BoardState};
use roofline::ceilings::{Ceiling, Provenance, Roofline};
use roofline::precision::Precision;
use roofline::units::{BytesPerSecond, FlopsPerSecond, Hertz, Seconds};

/// Between one DDR4 channel shared with others and a dozen DDR5 channels; most small machines have two.
const BANDWIDTH: Ceiling<BytesPerSecond> =
    prior(BytesPerSecond(25e9), BytesPerSecond(5e9), BytesPerSecond(400e9));
/// A futex wake-up on an idle or a busy machine.
const LAUNCH: Ceiling<Seconds> = prior(Seconds(5e-6), Seconds(0.5e-6), Seconds(100e-6));
/// Where nothing tells the clock.
const CLOCK: Hertz = Hertz(2e9);

const fn prior<R: Copy>(value: R, low: R, high: R) -> Ceiling<R> {
    Ceiling { value, low, high, provenance: Provenance::Prior }
}

/// Operations a cycle and core by instruction set: lanes x 2 (multiply-add) x pipes, two pipes assumed except for
/// 512-bit units, where many parts have one.
fn operations_per_cycle(features: &[String]) -> Vec<(Precision, f64)> {
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let fp32 = if has("avx512f") || (has("avx2") && has("fma")) {
        32.0
    } else if has("asimd") || has("neon") {
        16.0
    } else if has("sse2") {
        8.0
    } else {
        2.0
    };
    let mut rates = vec![(Precision::Fp32, fp32)];
    if has("avx512_bf16") || has("bf16") {
        rates.push((Precision::Bf16, fp32 * 2.0));
    }
    if has("avx512_fp16") || has("asimdhp") || has("fphp") {
        rates.push((Precision::Fp16, fp32 * 2.0));
    }
    if has("avx512_vnni") || has("avx_vnni") || has("asimddp") {
        rates.push((Precision::Int8, fp32 * 4.0));
    }
    rates
}

/// The guessed roofline of a machine.
pub(super) fn roofline(board: &Board, state: &BoardState) -> Roofline {
    let workers = state.cores_online.known().copied().unwrap_or(board.cpu.logical).max(1);
    let clock = state
        .cpu_clock_cap
        .known()
        .or_else(|| board.cpu.max_clock.known())
        .copied()
        .filter(|clock| clock.is_positive())
        .unwrap_or(CLOCK);
    let compute: BTreeMap<_, _> = operations_per_cycle(&board.cpu.features)
        .into_iter()
        .map(|(precision, rate)| {
            let peak = FlopsPerSecond(rate * f64::from(workers) * clock.get());
            (precision, prior(peak, peak / 4.0, peak * 2.5))
        })
        .collect();
    Roofline {
        bandwidth: BANDWIDTH,
        memory_limit: None,
        pull_limit: None,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute,
        launch: LAUNCH,
        ramp: Seconds::ZERO,
        workers,
        clock: Some(clock),
        whole_clock: None,
    }
}
