//! Measured ceilings → other operating points: [`to_clock`] for a CPU, whose memory has no clock that anybody can
//! read, and [`carry`] for a GPU. [`split`] leaves out what others take at the same point.
//!
//! **Interval.** Besides what the measurement left open, each end moves away from the value by
//! `WIDENING x distance`, where distance is the sum of |ln(ratio)| over what changed: the number of workers, their
//! clock, and for bandwidth the memory clock too. Halving one clock thus adds 10 %. The constant is a guess: it covers
//! voltage, temperature and the parts of a chip that run on other clocks, which a pure proportionality leaves out.

use super::datasheet::{memory_limit, pull_limit};
use super::point::Point;
use super::{Ceiling, Provenance, Roofline};
use crate::board::OperatingPoint;
use crate::hardware::{Hardware, Kind};
use crate::units::{BytesPerSecond, Hertz};

/// Additional relative half-width of the interval per unit of |ln(ratio)|. A documented guess until boards are measured.
const WIDENING: f64 = 0.15;
/// Clocks whose ratio has a smaller logarithm are the same: readings jitter by as much. The logarithm, so that it does
/// not matter which of the two is compared with the other.
const SAME_CLOCK: f64 = 0.005;

fn scale<R: Copy + std::ops::Mul<f64, Output = R>>(
    ceiling: Ceiling<R>,
    factor: f64,
    distance: f64,
) -> Ceiling<R> {
    let widening = WIDENING * distance;
    Ceiling {
        value: ceiling.value * factor,
        low: ceiling.low * (factor * (1.0 - widening).max(0.0)),
        high: ceiling.high * (factor * (1.0 + widening)),
        provenance: ceiling.provenance.max(Provenance::Scaled),
    }
}

/// The roofline of a CPU with its workers at another clock or in another number. Compute follows workers x clock.
/// Bandwidth never rises above what was measured; with fewer workers it falls no faster than their number,
/// because each worker has a limit of its own on bytes in flight. Launch cost follows the clock.
///
/// Returns the roofline unchanged where its own clock is unknown or a new value is not positive.
#[must_use]
pub fn to_clock(roofline: &Roofline, workers: u32, clock: Option<Hertz>) -> Roofline {
    let clock_ratio = match (clock, roofline.clock) {
        (Some(to), Some(from)) if to.is_positive() && from.is_positive() => to / from,
        _ => 1.0,
    };
    let worker_ratio = if workers == 0 || roofline.workers == 0 {
        1.0
    } else {
        f64::from(workers) / f64::from(roofline.workers)
    };
    if clock_ratio.ln().abs() < SAME_CLOCK && workers == roofline.workers {
        return roofline.clone();
    }
    let rate = clock_ratio * worker_ratio;
    let distance = clock_ratio.ln().abs() + worker_ratio.ln().abs();
    let mut scaled = roofline.clone();
    for ceiling in scaled.compute.values_mut() {
        *ceiling = scale(*ceiling, rate, distance);
    }
    let bandwidth_factor = worker_ratio.min(1.0);
    scaled.bandwidth = scale(scaled.bandwidth, bandwidth_factor, distance);
    scaled.copy = scaled.copy.map(|ceiling| scale(ceiling, bandwidth_factor, distance));
    scaled.triad = scaled.triad.map(|ceiling| scale(ceiling, bandwidth_factor, distance));
    scaled.launch = scale(scaled.launch, 1.0 / clock_ratio, distance);
    scaled.workers = if workers == 0 { roofline.workers } else { workers };
    scaled.clock = scaled.clock.map(|from| from * clock_ratio);
    scaled
}

/// What is left of a machine for who has this share of it while others run: every rate and the clock times `share`, which is
/// above 0 and at most 1. Starting an operation takes as long as ever. The memory's own limit shrinks too: what others read
/// cannot be read again.
#[must_use]
pub fn split(roofline: &Roofline, share: f64) -> Roofline {
    let distance = share.ln().abs();
    let part = |ceiling| scale(ceiling, share, distance);
    let mut split = roofline.clone();
    for ceiling in split.compute.values_mut() {
        *ceiling = scale(*ceiling, share, distance);
    }
    for point in &mut split.curve {
        point.read = point.read * share;
    }
    split.bandwidth = part(split.bandwidth);
    split.memory_limit = split.memory_limit.map(|limit| limit.map(|rate| rate * share));
    split.pull_limit = split.pull_limit.map(part);
    split.copy = split.copy.map(part);
    split.triad = split.triad.map(part);
    split.clock = split.clock.map(|clock| clock * share);
    split
}

impl Point {
    /// This point with the clocks of `other` where they are the same but for jitter.
    fn settled_on(self, other: &Self) -> Self {
        let settle = |clock: Hertz, on: Hertz| if (clock / on).ln().abs() < SAME_CLOCK { on } else { clock };
        Self {
            sm: self.sm,
            gpu_clock: settle(self.gpu_clock, other.gpu_clock),
            memory_clock: self.memory_clock.zip(other.memory_clock).map(|(clock, on)| settle(clock, on)),
        }
    }

    /// |ln(ratio)| over SMs and their clock.
    fn distance(&self, other: &Self) -> f64 {
        let sm = f64::from(other.sm) / f64::from(self.sm);
        sm.ln().abs() + (other.gpu_clock / self.gpu_clock).ln().abs()
    }

    fn memory_distance(&self, other: &Self) -> f64 {
        match (self.memory_clock, other.memory_clock) {
            (Some(from), Some(to)) => (to / from).ln().abs(),
            _ => 0.0,
        }
    }
}

/// Ceilings measured on this board at `from`, as they would be at `to`; unchanged where both are the same point.
///
/// Compute follows SM x clock, the launch cost the clock. Bandwidth keeps the part that it reached of the smaller of
/// the two limits at `from`, memory and SMs, and is that part of the smaller one at `to`; it never exceeds
/// what the memory gives there. A measurement above what the SMs were thought to draw corrects that
/// figure. On a CPU this is [`to_clock`].
#[must_use]
pub fn carry(
    roofline: &Roofline,
    from: &OperatingPoint,
    to: &OperatingPoint,
    hardware: &Hardware,
) -> Roofline {
    if hardware.kind == Kind::Cpu {
        return to_clock(roofline, to.cores_online.unwrap_or(roofline.workers), to.cpu_clock);
    }
    let from = Point::of(from, hardware);
    let to = Point::of(to, hardware).settled_on(&from);
    if from == to || !roofline.bandwidth.value.is_positive() {
        return roofline.clone();
    }
    let rate = to.sm_clocks() / from.sm_clocks();
    let distance = from.distance(&to);
    let bandwidth_distance = distance + from.memory_distance(&to);
    let limits = Limits::new(roofline, hardware, &from, &to);
    let bandwidth = limits.carry(roofline.bandwidth, bandwidth_distance);
    let factor = bandwidth.value / roofline.bandwidth.value;
    let likewise = |ceiling| scale(ceiling, factor, bandwidth_distance);
    let mut carried = roofline.clone();
    for ceiling in carried.compute.values_mut() {
        *ceiling = scale(*ceiling, rate, distance);
    }
    for point in &mut carried.curve {
        // The cache runs on the clock of the SMs.
        let cached = hardware.l2.is_some_and(|l2| point.working_set <= l2);
        point.read = point.read * if cached { rate } else { factor };
    }
    carried.bandwidth = bandwidth;
    carried.copy = carried.copy.map(likewise);
    carried.triad = carried.triad.map(likewise);
    carried.memory_limit = Some(limits.memory_to);
    carried.pull_limit = limits.pull_to;
    carried.launch = scale(carried.launch, from.gpu_clock / to.gpu_clock, distance);
    carried.workers = to.sm;
    carried.clock = Some(to.gpu_clock);
    carried
}

/// The two limits on bandwidth at both points. Those that the roofline came with go before the data sheet's, so that
/// what a measurement corrected stays corrected on the way back.
struct Limits {
    memory_from: Ceiling<BytesPerSecond>,
    memory_to: Ceiling<BytesPerSecond>,
    pull_from: Option<Ceiling<BytesPerSecond>>,
    pull_to: Option<Ceiling<BytesPerSecond>>,
    /// SM x clock at `to` over that at `from`.
    rate: f64,
}

impl Limits {
    fn new(roofline: &Roofline, hardware: &Hardware, from: &Point, to: &Point) -> Self {
        let memory_from = roofline.memory_limit.unwrap_or_else(|| memory_limit(hardware, from));
        let memory_ratio =
            hardware.memory_bandwidth(to.memory_clock) / hardware.memory_bandwidth(from.memory_clock);
        let rate = to.sm_clocks() / from.sm_clocks();
        let measured = roofline.bandwidth.value;
        let pull_from = roofline.pull_limit.or_else(|| pull_limit(hardware, from)).map(|pull| {
            // What was pulled can be pulled: then the figure was too low.
            Ceiling {
                value: pull.value.max(measured),
                low: pull.low.max(measured),
                high: pull.high.max(measured),
                ..pull
            }
        });
        Self {
            memory_from,
            memory_to: memory_from.map(|limit| limit * memory_ratio),
            pull_from,
            pull_to: pull_from.map(|pull| pull.map(|limit| limit * rate)),
            rate,
        }
    }

    fn carry(&self, measured: Ceiling<BytesPerSecond>, distance: f64) -> Ceiling<BytesPerSecond> {
        let cap = self.memory_to.value;
        let limit_from =
            self.pull_from.map_or(self.memory_from.value, |pull| pull.value.min(self.memory_from.value));
        let limit_to = self.pull_to.map_or(cap, |pull| pull.value.min(cap));
        // What the SMs draw is uncertain only where the measurement did not show it.
        let shown = limit_from < self.memory_from.value;
        let (least, most) = match self.pull_to {
            Some(_) if shown => (limit_to, limit_to),
            Some(pull) => (pull.low.min(cap), pull.high.min(cap)),
            None => (cap * self.rate.min(1.0), cap),
        };
        let widening = WIDENING * distance;
        let value = (limit_to * (measured.value / limit_from)).min(cap);
        Ceiling {
            value,
            low: (least * (measured.low / limit_from) * (1.0 - widening).max(0.0)).min(value),
            high: (most * (measured.high / limit_from) * (1.0 + widening)).min(cap).max(value),
            provenance: measured.provenance.max(Provenance::Scaled),
        }
    }
}
