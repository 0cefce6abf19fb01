//! Measured ceilings → other operating points: [`to_clock`] for a CPU, whose memory has no clock that anybody can
//! read, and [`carry`] for a GPU.
//!
//! **Interval.** Besides what the measurement left open, each end moves away from the value by
//! `WIDENING x distance`, where distance is the sum of |ln(ratio)| over what changed: the number of workers, their
//! clock, and for bandwidth the memory clock too. Halving one clock thus adds 10 %. The constant is a guess: it covers
//! voltage, temperature and the parts of a chip that run on other clocks, which a pure proportionality leaves out.

use super::datasheet::{memory_limit, pull_limit};
use super::point::Point;
use super::{BandwidthPoint, Ceiling, Provenance, Roofline};
use crate::board::OperatingPoint;
use crate::hardware::{Hardware, Kind};
use crate::units::{Bytes, BytesPerSecond, Hertz};

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
/// Bandwidth never rises above what was measured; with fewer workers it is what as many read where that was measured, else it
/// falls with their number, and no faster: each worker has a limit of its own on bytes in flight. Launch cost follows the clock.
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
    let bandwidth_factor =
        read_ratio(roofline, scaled_workers(roofline, workers)).unwrap_or(worker_ratio.min(1.0));
    scaled.bandwidth = of_workers(roofline, scaled_workers(roofline, workers), distance);
    scaled.copy = scaled.copy.map(|ceiling| scale(ceiling, bandwidth_factor, distance));
    scaled.triad = scaled.triad.map(|ceiling| scale(ceiling, bandwidth_factor, distance));
    scaled.launch = scale(scaled.launch, 1.0 / clock_ratio, distance);
    scaled.workers = if workers == 0 { roofline.workers } else { workers };
    scaled.clock = scaled.clock.map(|from| from * clock_ratio);
    scaled
}

const fn scaled_workers(roofline: &Roofline, workers: u32) -> u32 {
    if workers == 0 { roofline.workers } else { workers }
}

/// How far above the middle of its runs the read of some threads may lie: one of a few runs finds its neighbours quiet.
const QUIET_NEIGHBOURS: f64 = 1.15;

/// What `threads` read of main memory over what all workers do, from the numbers that were measured; between two of them in
/// proportion to the logarithms. `None` where too few were measured to tell.
fn read_ratio(roofline: &Roofline, threads: u32) -> Option<f64> {
    let of_all = roofline.curve.iter().filter(|point| point.threads == roofline.workers);
    let largest = of_all.max_by(|a, b| a.working_set.get().total_cmp(&b.working_set.get()))?.working_set;
    // The same working set for all, or a cache would be compared with main memory.
    let points =
        || roofline.curve.iter().filter(|point| point.working_set == largest && point.read.is_positive());
    let read = |threads: u32| points().find(|point| point.threads == threads).map(|point| point.read.get());
    let all = read(roofline.workers)?;
    let counts = || points().map(|point| point.threads).filter(|count| *count > 0);
    let below = counts().filter(|count| *count <= threads).max()?;
    let above = counts().filter(|count| *count >= threads).min().unwrap_or(below);
    let (low, high) = (read(below)?, read(above)?);
    let share = if above > below {
        (f64::from(threads) / f64::from(below)).ln() / (f64::from(above) / f64::from(below)).ln()
    } else {
        0.0
    };
    Some((low.powf(1.0 - share) * high.powf(share) / all).min(1.0))
}

/// Main-memory bandwidth of another number of workers. One core's share is no fraction of the whole: it has a limit of its
/// own on bytes in flight, and alone reaches half of what all do, or all of it. Where nobody measured it, the upper end stays
/// that of all workers.
fn of_workers(roofline: &Roofline, workers: u32, distance: f64) -> Ceiling<BytesPerSecond> {
    let all = roofline.bandwidth;
    let proportion = (f64::from(workers) / f64::from(roofline.workers.max(1))).min(1.0);
    match read_ratio(roofline, workers) {
        Some(_) if workers == roofline.workers => scale(all, 1.0, distance),
        Some(ratio) => {
            let value = all.value * ratio;
            Ceiling {
                value,
                low: all.low * ratio,
                high: (all.high * ratio).max(value * QUIET_NEIGHBOURS).min(all.high.max(value)),
                provenance: all.provenance,
            }
        }
        None => {
            let scaled = scale(all, proportion, distance);
            Ceiling { high: scaled.high.max(all.high), ..scaled }
        }
    }
}

/// The ceilings of a CPU for a number of threads on `cores` physical cores. A second thread of a core adds no arithmetic; the
/// bandwidth is what that many threads were measured to read, where they were. Unchanged where as many threads are meant
/// already.
#[must_use]
pub fn to_threads(roofline: &Roofline, threads: u32, cores: u32) -> Roofline {
    let cores = cores.max(1);
    if threads == 0 || roofline.workers == 0 || threads == roofline.workers {
        return roofline.clone();
    }
    let rate = f64::from(threads.min(cores)) / f64::from(roofline.workers.min(cores));
    let distance = rate.ln().abs();
    let mut scaled = roofline.clone();
    for ceiling in scaled.compute.values_mut() {
        *ceiling = scale(*ceiling, rate, distance);
    }
    scaled.bandwidth = of_workers(roofline, threads, distance);
    let factor = scaled.bandwidth.value / roofline.bandwidth.value;
    scaled.copy = scaled.copy.map(|ceiling| scale(ceiling, factor, distance));
    scaled.triad = scaled.triad.map(|ceiling| scale(ceiling, factor, distance));
    let own: Vec<Bytes> =
        scaled.curve.iter().filter(|point| point.threads == threads).map(|point| point.working_set).collect();
    let inferred = roofline.curve.iter().filter(|point| {
        point.threads == roofline.workers && own.iter().all(|known| *known != point.working_set)
    });
    scaled.curve.extend(inferred.map(|point| BandwidthPoint {
        threads,
        read: point.read * factor,
        ..*point
    }));
    scaled.workers = threads;
    scaled
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
