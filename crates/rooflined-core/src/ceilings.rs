//! The roofline at one operating point: ceilings, each with its provenance, and what follows from them.
//!
//! After S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009:
//! attainable = min(peak compute, arithmetic intensity x peak bandwidth).

mod datasheet;
mod point;
pub mod scaling;

pub use datasheet::datasheet;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::keyed;
use crate::precision::Precision;
use crate::units::{ArithmeticIntensity, Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};

keyed! {
    /// Where a number comes from, most trusted first.
    Provenance {
        /// Measured on this machine at this operating point.
        Measured = "measured",
        /// Measured on this machine at another operating point and carried over.
        Scaled = "scaled",
        /// Learned from what services reported.
        Observed = "observed",
        /// From the vendor's data sheet.
        Datasheet = "datasheet",
        /// A documented guess; nobody has measured or specified it.
        Prior = "prior",
    }
}

/// A limit with its 90 % interval and provenance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling<R> {
    /// Best estimate.
    pub value: R,
    /// 5 % of what is plausible lies below.
    pub low: R,
    /// 5 % of what is plausible lies above.
    pub high: R,
    /// Where it comes from.
    pub provenance: Provenance,
}

impl<R: Copy> Ceiling<R> {
    /// The same ceiling with each bound passed through a monotone conversion.
    pub fn map<S>(self, convert: impl Fn(R) -> S) -> Ceiling<S> {
        Ceiling {
            value: convert(self.value),
            low: convert(self.low),
            high: convert(self.high),
            provenance: self.provenance,
        }
    }
}

keyed! {
    /// What limits an operation in the plain roofline.
    Bound {
        /// Left of the ridge point.
        Memory = "memory",
        /// Right of it.
        Compute = "compute",
    }
}

/// Bandwidth measured at one working-set size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BandwidthPoint {
    /// Working set over all workers.
    pub working_set: Bytes,
    pub threads: u32,
    pub read: BytesPerSecond,
}

/// All ceilings at one operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Main-memory read bandwidth of the whole accelerator.
    pub bandwidth: Ceiling<BytesPerSecond>,
    /// What the memory alone would give: bus width x memory clock; `None` where that is not known. The bandwidth above
    /// is the smaller of this and the next.
    #[serde(default)]
    pub memory_limit: Option<Ceiling<BytesPerSecond>>,
    /// Memory bandwidth that the SMs together can draw at their number and clock; `None` where nobody knows.
    #[serde(default)]
    pub pull_limit: Option<Ceiling<BytesPerSecond>>,
    /// Read bandwidth against working set: the caches' plateaus and main memory.
    pub curve: Vec<BandwidthPoint>,
    /// Copy and triad from main memory, the better of ordinary and non-temporal stores, write-allocate not counted.
    pub copy: Option<Ceiling<BytesPerSecond>>,
    /// See `copy`.
    pub triad: Option<Ceiling<BytesPerSecond>>,
    /// Peak rate of each precision that the accelerator has a unit for.
    pub compute: BTreeMap<Precision, Ceiling<FlopsPerSecond>>,
    /// Fixed cost of starting one operation (on a CPU: waking the worker threads).
    pub launch: Ceiling<Seconds>,
    /// Time from the start of an operation to full bandwidth, seen as a constant in `time = ramp + bytes/bandwidth`.
    pub ramp: Seconds,
    /// Workers (CPU cores, or SMs) the ceilings hold for.
    pub workers: u32,
    /// Clock of the workers the ceilings hold for; `None` where nothing tells it.
    pub clock: Option<Hertz>,
}

impl Roofline {
    /// The bandwidth that nothing beats: what the memory alone gives, of which kernels that were measured reach a part and
    /// SMs draw a part that is only known roughly. Where that is not known, what was measured.
    #[must_use]
    pub fn physical_bandwidth(&self) -> BytesPerSecond {
        self.memory_limit.map_or(self.bandwidth.value, |limit| limit.value.max(self.bandwidth.value))
    }

    /// Peak of `precision`; `None` where the accelerator has no unit for it.
    #[must_use]
    pub fn compute(&self, precision: Precision) -> Option<Ceiling<FlopsPerSecond>> {
        self.compute.get(&precision).copied()
    }

    /// Arithmetic intensity at which memory and compute time are equal.
    #[must_use]
    pub fn ridge(&self, precision: Precision) -> Option<ArithmeticIntensity> {
        Some(self.compute(precision)?.value / self.bandwidth.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact ceilings, measured, for tests.
    fn roofline(bandwidth: f64, peak: f64) -> Roofline {
        let exact = |value| Ceiling { value, low: value, high: value, provenance: Provenance::Measured };
        Roofline {
            bandwidth: exact(bandwidth).map(BytesPerSecond),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: BTreeMap::from([(Precision::Fp16, exact(peak).map(FlopsPerSecond))]),
            launch: exact(1e-6).map(Seconds),
            ramp: Seconds::ZERO,
            workers: 2,
            clock: Some(Hertz(2e9)),
        }
    }

    #[test]
    fn the_ridge_is_where_memory_and_compute_time_meet() {
        assert_eq!(roofline(287e9, 62e12).ridge(Precision::Fp16).unwrap().get().round(), 216.0);
        assert_eq!(roofline(60e9, 2.7e12).ridge(Precision::Fp16).unwrap().get().round(), 45.0);
    }

    #[test]
    fn a_precision_without_a_unit_has_no_ceiling() {
        let roofline = roofline(287e9, 62e12);
        assert_eq!(roofline.ridge(Precision::Int8), None);
    }

    #[test]
    fn half_the_clock_halves_compute_and_leaves_bandwidth() {
        let slow = scaling::to_clock(&roofline(287e9, 62e12), 2, Some(Hertz(1e9)));
        assert_eq!(slow.compute(Precision::Fp16).unwrap().value, FlopsPerSecond(31e12));
        assert_eq!(slow.bandwidth.value, BytesPerSecond(287e9));
        assert_eq!(slow.bandwidth.provenance, Provenance::Scaled);
        assert!(slow.bandwidth.low < slow.bandwidth.value, "carried ceilings have a wider interval");
    }

    /// Eight cores of which one reads 24, half 80 and all 100 GB/s, and a cache of 400.
    fn eight_cores() -> Roofline {
        let point = |working_set, threads, read| BandwidthPoint {
            working_set: Bytes(working_set),
            threads,
            read: BytesPerSecond(read),
        };
        Roofline {
            curve: vec![point(1e9, 1, 24e9), point(1e9, 4, 80e9), point(8e6, 8, 400e9), point(1e9, 8, 100e9)],
            workers: 8,
            ..roofline(100e9, 800e9)
        }
    }

    #[test]
    fn one_core_reads_what_it_was_measured_to_and_not_its_share() {
        let at = |threads| scaling::to_threads(&eight_cores(), threads, 8);
        assert_eq!(at(1).bandwidth.value, BytesPerSecond(24e9));
        assert_eq!(at(4).bandwidth.value, BytesPerSecond(80e9));
        assert_eq!(at(8), eight_cores());
        let two = at(2).bandwidth;
        assert!((two.value.get() / (24e9f64 * 80e9).sqrt() - 1.0).abs() < 1e-9, "{two:?}");
        assert!(two.high > two.value && two.high <= at(8).bandwidth.high);
        assert_eq!(at(2).compute(Precision::Fp16).unwrap().value, FlopsPerSecond(200e9));
        let cached =
            at(1).curve.iter().find(|point| point.threads == 1 && point.working_set == Bytes(8e6)).copied();
        assert_eq!(cached.unwrap().read, BytesPerSecond(96e9));
        // Cores that are offline read nothing either.
        assert_eq!(scaling::to_clock(&eight_cores(), 4, None).bandwidth.value, BytesPerSecond(80e9));
    }

    #[test]
    fn a_second_thread_of_a_core_adds_no_arithmetic() {
        let physical = scaling::to_threads(&eight_cores(), 4, 4);
        assert_eq!(physical.compute(Precision::Fp16).unwrap().value, FlopsPerSecond(800e9));
        assert_eq!(physical.bandwidth.value, BytesPerSecond(80e9));
    }

    #[test]
    fn where_fewer_threads_were_not_measured_their_bound_is_that_of_all() {
        let one = scaling::to_threads(&Roofline { curve: Vec::new(), ..eight_cores() }, 1, 8);
        assert!(one.bandwidth.value < BytesPerSecond(100e9));
        assert_eq!(one.bandwidth.high, BytesPerSecond(100e9));
    }

    #[test]
    fn an_idle_clock_of_zero_scales_nothing() {
        let same = scaling::to_clock(&roofline(287e9, 62e12), 2, Some(Hertz(0.0)));
        assert_eq!(same, roofline(287e9, 62e12));
    }

    #[test]
    fn a_memory_that_is_assumed_is_a_guess_and_one_that_was_measured_is_not() {
        let family = crate::hardware::registry().get("jetson-orin-nx-unlisted").unwrap();
        let sheet = datasheet(family, &crate::board::OperatingPoint::default());
        let assumed = sheet.clone().with_assumed_memory(0.5);
        for (sheet, assumed) in [
            (sheet.bandwidth, assumed.bandwidth),
            (sheet.memory_limit.unwrap(), assumed.memory_limit.unwrap()),
        ] {
            let low = sheet.low * 0.5;
            assert_eq!(assumed, Ceiling { low, provenance: Provenance::Prior, ..sheet });
        }
        assert_eq!(assumed.compute, sheet.compute);
        let measured = roofline(1e9, 1e9);
        assert_eq!(measured.clone().with_assumed_memory(0.5), measured);
    }
}
