//! Ceilings of a CPU that nobody has measured yet: documented guesses with wide intervals, provenance `prior`.

use std::collections::BTreeMap;

use rooflined_core::board::{Board, BoardState};
use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
use rooflined_core::precision::Precision;
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use rooflined_predict::cpu::ASSUMED_CLOCK;

/// Between one DDR4 channel shared with others and a dozen DDR5 channels; most small machines have two.
const BANDWIDTH: Ceiling<BytesPerSecond> =
    prior(BytesPerSecond(25e9), BytesPerSecond(5e9), BytesPerSecond(400e9));
/// A futex wake-up on an idle or a busy machine.
const LAUNCH: Ceiling<Seconds> = prior(Seconds(5e-6), Seconds(0.5e-6), Seconds(100e-6));

const fn prior<R: Copy>(value: R, low: R, high: R) -> Ceiling<R> {
    Ceiling { value, low, high, provenance: Provenance::Prior }
}

/// Operations a cycle and core by instruction set: lanes x 2 (multiply-add) x pipes, two pipes assumed except for
/// 512-bit units, where many parts have one.
fn operations_per_cycle(features: &[String]) -> Vec<(Precision, f64)> {
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let fp32 = if has("avx512f") || (has("avx2") && has("fma")) || has("lasx") {
        32.0
    } else if has("asimd") || has("neon") || has("altivec") {
        16.0
    } else if has("sse2") || has("v") {
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

/// Cores at work times their clocks, an efficient core as half of one: threads of one core share its pipes. `clock` is that of
/// cores that tell none.
fn core_clocks(board: &Board, state: &BoardState, workers: u32, clock: Hertz) -> f64 {
    let known = state.details.cores.known();
    let cap = |cpu: u32| known?.iter().find(|core| core.cpu == cpu)?.clock_cap.known().copied();
    let online = |cpu: u32| known.is_none_or(|cores| cores.iter().any(|core| core.cpu == cpu));
    let mut cores: Vec<f64> = board
        .cpu
        .kinds
        .iter()
        .filter(|core| online(core.first))
        .map(|core| {
            let clock = cap(core.first).filter(|clock| clock.is_positive()).unwrap_or(clock);
            clock.get() * if core.efficient { 0.5 } else { 1.0 }
        })
        .collect();
    if cores.is_empty() {
        return f64::from(workers) * clock.get();
    }
    cores.sort_by(|a, b| b.total_cmp(a));
    cores.iter().take(workers as usize).sum()
}

/// The guessed roofline of a machine.
pub(super) fn roofline(board: &Board, state: &BoardState) -> Roofline {
    let workers = state.cores_online.known().copied().unwrap_or(board.cpu.logical).max(1);
    let told = state
        .cpu_clock_cap
        .known()
        .or_else(|| board.cpu.max_clock.known())
        .copied()
        .filter(|clock| clock.is_positive());
    let cycles = core_clocks(board, state, workers, told.unwrap_or(ASSUMED_CLOCK));
    let compute: BTreeMap<_, _> = operations_per_cycle(&board.cpu.features)
        .into_iter()
        .map(|(precision, rate)| {
            let peak = FlopsPerSecond(rate * cycles);
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
        // A clock that nobody read is not shown.
        clock: told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::details::Core;
    use rooflined_core::board::{CoreKind, Reading};
    use rooflined_core::units::Seconds;
    use rooflined_predict::fixtures;

    fn fp32(board: &Board, state: &BoardState) -> f64 {
        roofline(board, state).compute[&Precision::Fp32].value.get() / 1e9
    }

    #[test]
    fn threads_share_a_core_efficient_cores_do_half_and_no_clock_is_made_up() {
        let mut board = fixtures::board();
        board.cpu.features = vec!["avx2".into(), "fma".into()];
        let core = |cpu, gigahertz: f64| Core {
            cpu,
            busy_ratio: Reading::absent("-"),
            min_clock: Reading::absent("-"),
            clock_cap: Reading::Known(Hertz(gigahertz * 1e9)),
            governor: Reading::absent("-"),
        };
        let mut state = BoardState::unknown(Seconds(1.0), "-");
        state.cores_online = Reading::Known(7);
        state.cpu_clock_cap = Reading::Known(Hertz(5e9));
        // Two cores of two threads, two efficient ones, and one for low power.
        board.cpu.kinds = [(0, false), (2, false), (4, true), (5, true), (6, true)]
            .map(|(first, efficient)| CoreKind { first, efficient })
            .to_vec();
        state.details.cores = Reading::Known(
            [(0, 5.0), (1, 5.0), (2, 5.0), (3, 5.0), (4, 4.0), (5, 4.0), (6, 2.0)]
                .map(|(cpu, clock)| core(cpu, clock))
                .into(),
        );
        assert!((fp32(&board, &state) - 32.0 * (2.0 * 5.0 + 0.5 * (4.0 + 4.0 + 2.0))).abs() < 1e-6);
        // A container with two CPUs.
        state.cores_online = Reading::Known(2);
        assert!((fp32(&board, &state) - 32.0 * 10.0).abs() < 1e-6);
        board.cpu.max_clock = Reading::absent("-");
        let unknown = BoardState::unknown(Seconds(1.0), "-");
        assert_eq!(roofline(&board, &unknown).clock, None);
    }
}
