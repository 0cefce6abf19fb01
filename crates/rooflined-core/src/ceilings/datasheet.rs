//! Data sheet → ceilings at an operating point, for hardware or a power mode that nobody has measured.
//!
//! ```text
//! compute      = SM online x GPU clock x dense operations per SM and clock
//! memory_limit = bus bits / 8 x 2 x memory clock
//! pull_limit   = SM online x GPU clock x bytes that an SM pulls per clock
//! bandwidth    = the smaller of the two
//! ```
//!
//! A data sheet is an upper bound and no estimate. The values are the nominal ones all the same, because that is what
//! the word means and what they are compared with; the intervals reach down to what has been measured.

use std::collections::BTreeMap;

use super::point::Point;
use super::{BandwidthPoint, Ceiling, Provenance, Roofline};
use crate::board::OperatingPoint;
use crate::hardware::{CpuParts, Hardware, Kind, NominalMode};
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};

/// Reads reach this part of the memory's nominal bandwidth at least: 84 % (H200), 86 % (H100, AGX Orin), 93 % (GB10)
/// and 95 % (Thor) have been measured, and generic kernels on GB10 stay at 79 %.
const LEAST_BANDWIDTH: f64 = 0.75;
/// Products reach this part of the nominal peak at least: 61 % (GB10, TF32), 69 % (H100, FP16), 70 % (GB10, FP8).
const LEAST_COMPUTE: f64 = 0.6;
/// Clocks are read with an error: 253 TFLOPS were measured where the clock read allowed 248 (RTX 5090, FP16).
const CLOCK_ERROR: f64 = 1.02;
/// A card whose clock is not known may boost beyond its reference: 2.85 GHz of 2.41 have been seen (RTX 5090).
const BOOST: f64 = 1.2;
/// Starting a kernel from a stream took 1.6 to 2.4 µs on three cards, from a graph 1; below a slow CPU it takes tens.
const LAUNCH_DISCRETE: Ceiling<Seconds> = launch(2.5e-6, 1e-6, 10e-6);
/// Nobody has published it for a Jetson or GB10; engines count 10 to 20 µs a kernel with their own work in it.
const LAUNCH_INTEGRATED: Ceiling<Seconds> = launch(5e-6, 1.5e-6, 25e-6);
/// A CPU that nobody has measured: from one shared channel of DDR4 to a dozen of DDR5.
const CPU_BANDWIDTH: Ceiling<BytesPerSecond> = Ceiling {
    value: BytesPerSecond(25e9),
    low: BytesPerSecond(5e9),
    high: BytesPerSecond(400e9),
    provenance: Provenance::Prior,
};
/// Part of the nominal bandwidth that all threads of a CPU read: the least, the usual, the most.
const CPU_READ: (f64, f64, f64) = (0.55, 0.75, 0.95);
/// Bytes that one core reads of main memory in a clock: some 15 to 25 GB/s on servers, 35 on desktops.
const CPU_CORE_READ: f64 = 7.0;
/// As many cores as would fill the memory one by one, times this, do so together.
const CORES_TO_FILL: f64 = 1.5;
/// Bytes that a core reads of the last-level cache in a clock.
const CACHE_READ: f64 = 8.0;
/// Waking threads on an idle or a busy machine.
const CPU_LAUNCH: Ceiling<Seconds> = launch(5e-6, 0.5e-6, 100e-6);

const fn launch(value: f64, low: f64, high: f64) -> Ceiling<Seconds> {
    Ceiling { value: Seconds(value), low: Seconds(low), high: Seconds(high), provenance: Provenance::Prior }
}

const fn between<R: Copy>(low: R, value: R, high: R) -> Ceiling<R> {
    Ceiling { value, low, high, provenance: Provenance::Datasheet }
}

/// The ceilings that the data sheet gives at `point`. What the point leaves open, or holds a clock of zero for (a unit
/// that is asleep), is the hardware's own highest; a clock above that is taken as given, because boards are seen to
/// run there. Idle clocks must not be passed: nothing tells them from those under load.
///
/// For a CPU that nothing describes these are guesses of provenance prior, without any compute ceiling: it has to be measured.
#[must_use]
pub fn datasheet(hardware: &Hardware, point: &OperatingPoint) -> Roofline {
    if hardware.kind == Kind::Cpu {
        return match &hardware.cpu {
            Some(cpu) => described_cpu(hardware, cpu, point),
            None => unmeasured_cpu(point),
        };
    }
    let at = Point::of(point, hardware);
    let (memory, pull) = (memory_limit(hardware, &at), pull_limit(hardware, &at));
    let boosts = hardware.kind == Kind::Discrete && !point.gpu_clock.is_some_and(Hertz::is_positive);
    let compute = hardware.rates.iter().map(|(precision, rate)| {
        let peak = FlopsPerSecond(at.sm_clocks() * rate);
        (*precision, between(peak * LEAST_COMPUTE, peak, peak * if boosts { BOOST } else { CLOCK_ERROR }))
    });
    Roofline {
        bandwidth: bandwidth(hardware, &at, memory, pull),
        memory_limit: Some(memory),
        pull_limit: pull,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute: compute.collect(),
        launch: launch_at(hardware, &at),
        ramp: Seconds::ZERO,
        workers: at.sm,
        clock: Some(at.gpu_clock),
    }
}

impl Roofline {
    /// The same ceilings where nothing told how many SMs are on and all were assumed: as few as `least` of them may be. No data
    /// sheet says so, and it is called a guess.
    #[must_use]
    pub fn with_assumed_sm(mut self, least: f64) -> Self {
        for ceiling in self.compute.values_mut().filter(|ceiling| ceiling.provenance == Provenance::Datasheet)
        {
            *ceiling = Ceiling { low: ceiling.low * least, provenance: Provenance::Prior, ..*ceiling };
        }
        if self.bandwidth.provenance == Provenance::Datasheet {
            self.bandwidth.low = self.bandwidth.low * least;
        }
        self
    }
}

/// The smallest instance of a divided GPU: one of seven or eight slices.
const LEAST_INSTANCE: f64 = 1.0 / 8.0;

impl Roofline {
    /// The same ceilings of a GPU that is divided in a way that nothing tells.
    #[must_use]
    pub fn of_unknown_share(self) -> Self {
        self.with_assumed_sm(LEAST_INSTANCE)
    }

    /// The same ceilings of a GPU that nobody has described: guesses, which cards with half of the rates keep too.
    #[must_use]
    pub fn of_unlisted(self) -> Self {
        self.with_assumed_sm(0.5).with_assumed_memory(1.0)
    }

    /// The same ceilings where the width of the memory was assumed: as little as `least` of it may be there. No data sheet says
    /// so, and it is called a guess.
    #[must_use]
    pub fn with_assumed_memory(mut self, least: f64) -> Self {
        let ceilings = std::iter::once(&mut self.bandwidth).chain(&mut self.memory_limit);
        for ceiling in ceilings.filter(|ceiling| ceiling.provenance == Provenance::Datasheet) {
            *ceiling = Ceiling { low: ceiling.low * least, provenance: Provenance::Prior, ..*ceiling };
        }
        self
    }
}

impl NominalMode {
    /// The point that this mode's ceilings hold for.
    #[must_use]
    pub fn operating_point(&self) -> OperatingPoint {
        OperatingPoint {
            power_mode: Some(self.name.clone()),
            sm_online: Some(self.sm_online),
            gpu_clock: Some(self.gpu_clock),
            memory_clock: Some(self.memory_clock),
            cpu_clock: self.cpu_clock,
            cores_online: Some(self.cores_online),
        }
    }
}

/// What the memory alone would give.
pub(super) fn memory_limit(hardware: &Hardware, at: &Point) -> Ceiling<BytesPerSecond> {
    let nominal = hardware.memory_bandwidth(at.memory_clock);
    between(nominal * LEAST_BANDWIDTH, nominal, nominal)
}

/// Memory bandwidth that the SMs together can draw.
pub(super) fn pull_limit(hardware: &Hardware, at: &Point) -> Option<Ceiling<BytesPerSecond>> {
    let pull = hardware.sm_pull?;
    let of = |bytes: f64| BytesPerSecond(bytes * at.sm_clocks());
    let pulled = between(of(pull.low), of(pull.bytes_per_clock), of(pull.high));
    Some(Ceiling { provenance: Provenance::Prior, ..pulled })
}

fn bandwidth(
    hardware: &Hardware,
    at: &Point,
    memory: Ceiling<BytesPerSecond>,
    pull: Option<Ceiling<BytesPerSecond>>,
) -> Ceiling<BytesPerSecond> {
    match pull {
        Some(pull) => {
            let least =
                between(memory.low.min(pull.low), memory.value.min(pull.value), memory.high.min(pull.high));
            // No data sheet says what SMs draw.
            let provenance = if pull.value < memory.value { pull.provenance } else { memory.provenance };
            Ceiling { provenance, ..least }
        }
        // Nobody knows what so many SMs draw at this clock: at worst in proportion to both.
        None => {
            let full = Point::of(&OperatingPoint::default(), hardware).sm_clocks();
            Ceiling { low: memory.low * (at.sm_clocks() / full).min(1.0), ..memory }
        }
    }
}

/// The time falls with the clock; the constants hold at the hardware's own.
fn launch_at(hardware: &Hardware, at: &Point) -> Ceiling<Seconds> {
    let full = match hardware.kind {
        Kind::Discrete => LAUNCH_DISCRETE,
        Kind::Integrated | Kind::Cpu => LAUNCH_INTEGRATED,
    };
    full.map(|time| time * (hardware.gpu_clock / at.gpu_clock))
}

/// A CPU by its data sheet with all its cores at its own clock, whose threads read less than its memory gives and one of them less
/// than all. [`to_clock`](super::scaling::to_clock) makes of it what fewer cores and other clocks do.
fn described_cpu(hardware: &Hardware, cpu: &CpuParts, point: &OperatingPoint) -> Roofline {
    let nominal = hardware.memory_bandwidth(point.memory_clock);
    let (least, usual, most) = CPU_READ;
    let bandwidth = between(nominal * least, nominal * usual, nominal * most);
    let cores = f64::from(cpu.cores.max(1));
    let compute = cpu.rates().into_iter().map(|(precision, rate)| {
        let peak = FlopsPerSecond(rate * cores * cpu.clock_hz);
        (precision, between(peak * LEAST_COMPUTE, peak, peak * BOOST))
    });
    Roofline {
        bandwidth,
        memory_limit: Some(between(bandwidth.low, nominal, nominal)),
        pull_limit: None,
        curve: reads_of_cpu(cpu, bandwidth.value),
        copy: None,
        triad: None,
        compute: compute.collect(),
        launch: CPU_LAUNCH,
        ramp: Seconds::ZERO,
        workers: cpu.cores,
        clock: Some(cpu.clock()),
    }
}

/// What one core reads, what as many as it takes to fill the memory do, and all; and what all read of the caches.
fn reads_of_cpu(cpu: &CpuParts, all: BytesPerSecond) -> Vec<BandwidthPoint> {
    let cache = cpu.cache_bytes.unwrap_or(0.0);
    let point = |working_set: f64, threads: u32, read: BytesPerSecond| BandwidthPoint {
        working_set: Bytes(working_set),
        threads,
        read,
    };
    let one = all.min(BytesPerSecond(CPU_CORE_READ * cpu.clock_hz));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dozen cores")]
    let enough = ((all / one * CORES_TO_FILL).ceil() as u32).min(cpu.cores);
    let memory = (cache * 4.0).max(1e9);
    let mut reads = vec![point(memory, cpu.cores, all)];
    reads.extend((enough < cpu.cores).then(|| point(memory, enough, all)));
    reads.extend((cpu.cores > 1).then(|| point(memory, 1, one)));
    let cached = BytesPerSecond(CACHE_READ * f64::from(cpu.cores) * cpu.clock_hz).max(all);
    reads.extend((cache > 0.0).then(|| point(cache / 2.0, cpu.cores, cached)));
    reads
}

fn unmeasured_cpu(point: &OperatingPoint) -> Roofline {
    Roofline {
        bandwidth: CPU_BANDWIDTH,
        memory_limit: None,
        pull_limit: None,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute: BTreeMap::new(),
        launch: CPU_LAUNCH,
        ramp: Seconds::ZERO,
        workers: point.cores_online.unwrap_or(1).max(1),
        clock: point.cpu_clock.filter(|clock| clock.is_positive()),
    }
}
