//! Clocks under a load that lasts. A single sample does not show them: the load is a mean over some tenths of a second, and
//! a clock follows the load as late, so that at the beginning and the end of a load one of the two is of another time.

use std::collections::VecDeque;

use rooflined_core::board::BoardState;
use rooflined_core::units::{Hertz, Seconds};

/// Part of the time from which on a GPU counts as busy: it then runs at the clock that it shows.
const BUSY_GPU: f64 = 0.5;
/// CPUs that are busy where one at least computes all the time.
const BUSY_CPUS: f64 = 1.0;
/// A load that lasts has lasted for so long and over so many samples. Governors of clocks take some tenths of a second.
const LASTS: Seconds = Seconds(1.0);
const SAMPLES: usize = 3;
/// Most samples that are looked back at; those of very fast sampling would fill memory.
const MOST: usize = 256;

/// The highest clocks over the newest samples of a load that lasts; `None` where there is no such load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BusyClocks {
    pub gpu: Option<Hertz>,
    /// Of the fastest CPU.
    pub cpu: Option<Hertz>,
}

/// Follows the samples of a board.
#[derive(Debug, Clone, Default)]
pub struct LoadWatch {
    gpu: Lasting,
    cpu: Lasting,
}

impl LoadWatch {
    /// Takes in the next sample.
    pub fn sampled(&mut self, state: &BoardState) {
        let gpu = state.gpu_load.known().filter(|load| **load >= BUSY_GPU);
        self.gpu.sampled(state.taken_at, gpu.and_then(|_| state.gpu_clock.known().copied()));
        let cpus = state.cores_online.known().copied().map_or(0.0, f64::from);
        let busy =
            state.load.known().and_then(|load| load.busy_ratio).filter(|part| part * cpus >= BUSY_CPUS);
        let fastest = || state.cpu_clocks.known()?.iter().copied().max_by(|a, b| a.get().total_cmp(&b.get()));
        self.cpu.sampled(state.taken_at, busy.and_then(|_| fastest()));
    }

    #[must_use]
    pub fn clocks(&self) -> BusyClocks {
        BusyClocks { gpu: self.gpu.highest(), cpu: self.cpu.highest() }
    }
}

/// Samples under load without a gap: the fewest that last.
#[derive(Debug, Clone, Default)]
struct Lasting {
    samples: VecDeque<(Seconds, Hertz)>,
}

impl Lasting {
    fn sampled(&mut self, at: Seconds, clock: Option<Hertz>) {
        let Some(clock) = clock.filter(|clock| clock.is_positive()) else {
            self.samples.clear();
            return;
        };
        self.samples.push_back((at, clock));
        // The oldest is not needed where the others last by themselves.
        while self.samples.len() > MOST
            || self.samples.len() > SAMPLES
                && self.samples.get(1).is_some_and(|(second, _)| at - *second >= LASTS)
        {
            self.samples.pop_front();
        }
    }

    fn highest(&self) -> Option<Hertz> {
        let ((first, _), (last, _)) = (self.samples.front()?, self.samples.back()?);
        if self.samples.len() < SAMPLES || *last - *first < LASTS {
            return None;
        }
        self.samples.iter().map(|(_, clock)| *clock).max_by(|a, b| a.get().total_cmp(&b.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::{Load, Reading};

    fn sample(at: f64, load: f64, clock: f64) -> BoardState {
        let mut state = BoardState::unknown(Seconds(at), "not read");
        state.gpu_load = Reading::Known(load);
        state.gpu_clock = Reading::Known(Hertz(clock));
        state.cpu_clocks = Reading::Known(vec![Hertz(clock), Hertz(clock / 2.0)]);
        state.cores_online = Reading::Known(4);
        state.load =
            Reading::Known(Load { average_1m: 0.0, busy_ratio: Some(load / 2.0), steal_ratio: None });
        state
    }

    /// A part from 0 to 1 that follows `target` late, as a mean or a governor does.
    struct Late {
        value: f64,
        delay: f64,
    }

    impl Late {
        fn follow(&mut self, target: f64, seconds: f64) -> f64 {
            let most = seconds / self.delay;
            self.value += (target - self.value).clamp(-most, most);
            self.value
        }
    }

    #[test]
    fn loads_that_begin_and_end_show_no_clock_below_the_highest() {
        const LOW: f64 = 306e6;
        const HIGH: f64 = 1.02e9;
        let mut random = fastrand::Rng::with_seed(311);
        let mut told = 0;
        for _ in 0..300 {
            let mut watch = LoadWatch::default();
            // Both are within reach of their targets in less than a second.
            let (mut load, mut clock) = (
                Late { value: 0.0, delay: 0.05 + 0.75 * random.f64() },
                Late { value: 0.0, delay: 0.05 + 0.85 * random.f64() },
            );
            let period = 0.05 + 0.95 * random.f64();
            let (mut at, mut switches_at, mut is_on) = (0.0, 0.5, false);
            while at < 20.0 {
                at += period;
                if at > switches_at {
                    is_on = !is_on;
                    switches_at = at + 0.2 + 4.0 * random.f64();
                }
                let target = f64::from(u8::from(is_on));
                let is = LOW + (HIGH - LOW) * clock.follow(target, period);
                watch.sampled(&sample(at, load.follow(target, period), is));
                for clock in [watch.clocks().gpu, watch.clocks().cpu].into_iter().flatten() {
                    told += 1;
                    assert!(clock.get() > 0.97 * HIGH, "{clock} at {at} of a healthy machine");
                }
            }
        }
        assert!(told > 1000, "a load that lasts shows its clock");
    }

    #[test]
    fn a_clock_that_stays_low_under_load_is_told_within_some_seconds() {
        for period in [0.1, 0.2, 0.5, 1.0, 30.0] {
            let mut watch = LoadWatch::default();
            for number in 0..20 {
                let at = f64::from(number) * period;
                watch.sampled(&sample(at, 0.9, 1e9));
            }
            assert_eq!(watch.clocks().gpu, Some(Hertz(1e9)));
            let mut seconds = 0.0;
            while watch.clocks().gpu != Some(Hertz(5e8)) {
                seconds += period;
                watch.sampled(&sample(20.0 * period + seconds, 0.9, 5e8));
                assert!(seconds <= 3.0 * period + 1.0, "{seconds} s at a period of {period} s");
            }
            assert_eq!(watch.clocks(), BusyClocks { gpu: Some(Hertz(5e8)), cpu: Some(Hertz(5e8)) });
            watch.sampled(&sample(1e4, 0.1, 5e8));
            assert_eq!(watch.clocks(), BusyClocks::default());
        }
    }
}
