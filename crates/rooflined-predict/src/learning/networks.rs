//! What measured runs of vision networks say about others.
//!
//! The residual ln(measured / predicted) is a [Gaussian process](super::anchor::Process). Two networks on one engine have as much of it
//! in common as their times go the same ways: by the cosine of the shares of what takes them. Runs of one
//! network share more, the more the nearer their batch, size and clocks are. Each part counts in the standard deviation that the
//! prediction itself states, so runs narrow an interval that was right before. Two places share the smaller of their variances: what
//! makes one of them more doubtful, as a low clock does, is its own.
//!
//! Another clock and bandwidth change a residual more than another size does: of 56 networks and sizes that were published for two
//! boards with the same eight multiprocessors (918 MHz and 102 GB/s, 625 MHz and 68 GB/s), 0.6 to 0.7 of one board's residual is the
//! best guess for the other's, and 0.7 to 1 of that at 640x640 for other sizes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::anchor::{Place, Process, Residual};
use super::report::{Moved, Report, Selection};
use super::{BOUND_TOLERANCE, OUTLIER_FROM_MEDIAN, OUTLIER_RATIO, Refused};
use crate::Tier;
use crate::calibration::median;
use crate::network::{LayerKind, Layers, NetworkPrediction};
use rooflined_core::ceilings::Roofline;
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Hertz, Seconds};

/// Most reports of networks kept; the oldest leave first.
pub const MAX_REPORTS: usize = 128;
/// Parts of a residual's variance: what an engine's networks share, what a network keeps everywhere, and what changes from place to
/// place; together 1. `rooflined-lab evaluate networks` shows what follows.
const OF_ENGINE: f64 = 0.4;
const OF_NETWORK: f64 = 0.25;
const OF_PLACE: f64 = 0.35;
/// What of the network's part holds in another precision.
const OTHER_PRECISION: f64 = 0.5;
/// Distance of the logarithms over which the part of the place falls to a third.
const LENGTH: f64 = 1.0;
/// How much more clocks and bandwidth count in it than batch and size.
const MODE: f64 = 2.0;
/// Places whose logarithms differ by less are the same.
const SAME: f64 = 0.03;
/// No prediction is surer of itself than this, in standard deviations of the logarithm.
const LEAST_LOG_SD: f64 = 0.05;

/// What takes the time of a kernel.
const SHARES: usize = 6;

/// A run of a network among others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkPoint {
    pub engine: NetworkEngine,
    /// Name of its file.
    pub network: String,
    /// Tells networks of one name apart.
    pub parameters: f64,
    pub precision: Precision,
    /// Pictures in one run.
    pub batch: u64,
    /// Logarithms of batch, elements of the inputs, cycles a second of all workers, and bandwidth.
    place: [f64; 4],
    /// Parts of the predicted time: convolutions, products, depthwise convolutions, memory of all other kernels, exponentials and
    /// other arithmetic, launches.
    shares: [f64; SHARES],
    /// Standard deviation of the logarithm that the prediction states.
    log_sd: f64,
}

impl NetworkPoint {
    /// The point of what was predicted without reports.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "batches are small numbers")]
    pub fn new(
        layers: &Layers,
        engine: NetworkEngine,
        precision: Precision,
        batch: u64,
        roofline: &Roofline,
        prediction: &NetworkPrediction,
    ) -> Self {
        let mut shares = [0.0; SHARES];
        for (layer, time) in layers.layers.iter().zip(&prediction.layers) {
            let at = match layer.kind {
                LayerKind::Convolution => 0,
                LayerKind::Pointwise | LayerKind::Product | LayerKind::Attention => 1,
                LayerKind::Depthwise => 2,
                LayerKind::Copy | LayerKind::Other => 3,
                LayerKind::Elementwise | LayerKind::Normalization => 4,
            };
            shares[at] += (time.time - time.launch).get();
            shares[SHARES - 1] += time.launch.get();
        }
        let length = dot(&shares, &shares).sqrt().max(f64::MIN_POSITIVE);
        let clock = roofline.clock.map_or(1e9, Hertz::get);
        let latency = prediction.latency;
        Self {
            engine,
            network: layers.name.clone(),
            parameters: layers.parameters,
            precision,
            batch,
            place: [
                batch as f64,
                layers.input_elements / layers.batch as f64,
                f64::from(roofline.workers.max(1)) * clock,
                roofline.bandwidth.value.get(),
            ]
            .map(|value| value.max(1.0).ln()),
            shares: shares.map(|share| share / length),
            log_sd: ((latency.high / latency.value).ln() / super::anchor::NORMAL_90).max(LEAST_LOG_SD),
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        self.engine == other.engine && self.network == other.network && self.parameters == other.parameters
    }

    fn is_sound(&self) -> bool {
        let numbers = self.place.iter().chain(&self.shares).chain([&self.log_sd, &self.parameters]);
        numbers.copied().all(f64::is_finite) && self.log_sd > 0.0 && self.log_sd < 10.0
    }

    fn distance(&self, other: &Self) -> f64 {
        let [batch, size, cycles, bandwidth] =
            std::array::from_fn(|at| (self.place[at] - other.place[at]).abs());
        batch + size + MODE * (cycles + bandwidth)
    }
}

impl Place for NetworkPoint {
    fn covariance(&self, other: &Self) -> f64 {
        if self.engine != other.engine {
            return 0.0;
        }
        let of_network = if self.is_of(other) {
            let precision = if self.precision == other.precision { 1.0 } else { OTHER_PRECISION };
            precision * (OF_NETWORK + OF_PLACE * (-self.distance(other) / LENGTH).exp())
        } else {
            0.0
        };
        self.log_sd.min(other.log_sd).powi(2) * (OF_ENGINE * dot(&self.shares, &other.shares) + of_network)
    }

    fn is_same(&self, other: &Self) -> bool {
        let near = self.place.iter().zip(&other.place).all(|(a, b)| (a - b).abs() < SAME);
        self.is_of(other) && self.precision == other.precision && near
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A run that somebody measured, beside what was predicted of it without reports.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredNetwork {
    pub point: NetworkPoint,
    /// Power mode by name.
    pub mode: Option<String>,
    /// Of one run inside the engine.
    pub time: Seconds,
    pub predicted: Seconds,
    /// The least that the ceilings allow.
    pub bound: Seconds,
    /// The ceilings are no guesses.
    pub calibrated: bool,
}

/// A measured run, as it was reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkReport {
    pub report: Report,
    pub point: NetworkPoint,
    /// Power mode by name.
    pub mode: Option<String>,
    /// As it was measured.
    pub time: Seconds,
    /// ln(measured / predicted), by the ceilings of then.
    pub log_ratio: f64,
}

impl NetworkReport {
    /// A report of a measured run.
    ///
    /// # Errors
    /// An impossible time or an outlier is refused with the reason.
    pub fn vetted(report: Report, run: &MeasuredNetwork) -> Result<Self, Refused> {
        let MeasuredNetwork { time, predicted, bound, .. } = *run;
        if !run.calibrated {
            return Err(Refused::NotCalibrated);
        }
        if time * BOUND_TOLERANCE < bound {
            return Err(Refused::Impossible { measured: time, bound, ratio: bound / time });
        }
        let ratio = time / predicted;
        if ratio > OUTLIER_RATIO {
            return Err(Refused::Outlier { measured: time, predicted, ratio });
        }
        Ok(Self { report, point: run.point.clone(), mode: run.mode.clone(), time, log_ratio: ratio.ln() })
    }

    /// Whether no number in it can spoil an answer.
    pub(super) fn is_sound(&self) -> bool {
        self.log_ratio.abs() < 100.0
            && self.time.get().is_finite()
            && self.report.unix_s.is_finite()
            && self.point.is_sound()
    }

    pub(super) fn is_selected(&self, which: &Selection) -> bool {
        let of = &self.point;
        which.takes(&self.report, of.engine.key(), Some(&of.network), None, of.precision.key())
    }
}

/// What reports say about one network.
#[derive(Debug, Clone)]
pub struct NetworkLearning {
    process: Process<NetworkPoint>,
    /// Runs of this network among them.
    pub own: usize,
    /// How many reports move it, by whose they are.
    pub moved: Moved,
}

impl NetworkLearning {
    /// Of the network in `asked`; `None` where no report is of its engine. Runs of others that are far from all of them count for their own
    /// network only.
    #[must_use]
    pub fn new(reports: &[Arc<NetworkReport>], asked: &NetworkPoint) -> Option<Self> {
        let of_engine = reports.iter().filter(|report| report.point.engine == asked.engine);
        let (own, others): (Vec<_>, Vec<_>) = of_engine.partition(|report| report.point.is_of(asked));
        let middle = median(others.iter().map(|report| report.log_ratio)).unwrap_or_default();
        let near =
            |report: &&&Arc<NetworkReport>| (report.log_ratio - middle).abs() <= OUTLIER_FROM_MEDIAN.ln();
        let used: Vec<_> = others.iter().filter(near).chain(&own).collect();
        let mut moved = Moved::default();
        used.iter().for_each(|report| moved.count(&report.report.source));
        let places = used.iter().map(|report| report.point.clone()).collect();
        let ratios: Vec<f64> = used.iter().map(|report| report.log_ratio).collect();
        Some(Self { process: Process::new(places, &ratios)?, own: own.len(), moved })
    }

    /// What they add to a prediction at `point`.
    #[must_use]
    pub fn at(&self, point: &NetworkPoint) -> Residual {
        let residual = self.process.at(point);
        let tier = match residual.tier {
            Tier::Anchored if self.own == 0 => Tier::EngineCalibrated,
            tier => tier,
        };
        Residual { tier, ..residual }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(network: &str, shares: [f64; SHARES], batch: u64, cycles: f64) -> NetworkPoint {
        let length = dot(&shares, &shares).sqrt();
        NetworkPoint {
            engine: NetworkEngine::TensorRt,
            network: network.to_owned(),
            parameters: 1e6,
            precision: Precision::Fp16,
            batch,
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            place: [(batch as f64).ln(), 14.0, cycles.ln(), 25.0],
            shares: shares.map(|share| share / length),
            log_sd: 0.15,
        }
    }

    const CONVOLUTIONS: [f64; SHARES] = [0.6, 0.2, 0.0, 0.1, 0.0, 0.1];
    const DEPTHWISE: [f64; SHARES] = [0.05, 0.3, 0.4, 0.05, 0.1, 0.1];

    fn report(point: &NetworkPoint, ratio: f64) -> Arc<NetworkReport> {
        let run = MeasuredNetwork {
            point: point.clone(),
            mode: None,
            time: Seconds(0.01 * ratio),
            predicted: Seconds(0.01),
            bound: Seconds(0.0001),
            calibrated: true,
        };
        Arc::new(NetworkReport::vetted(Report::default(), &run).unwrap())
    }

    fn at(reports: &[Arc<NetworkReport>], point: &NetworkPoint) -> Residual {
        NetworkLearning::new(reports, point).unwrap().at(point)
    }

    proptest! {
        #[test]
        fn a_run_moves_its_network_most_then_its_other_modes_then_other_networks(
            ratio in 0.6..1.6f64, slower in 0.3..0.9f64,
        ) {
            let here = point("a", CONVOLUTIONS, 1, 1e9);
            let reports = [report(&here, ratio)];
            let same = at(&reports, &here);
            let mode = at(&reports, &point("a", CONVOLUTIONS, 1, 1e9 * slower));
            let alike = at(&reports, &point("b", CONVOLUTIONS, 1, 1e9));
            let unlike = at(&reports, &point("c", DEPTHWISE, 1, 1e9));
            let moves = [same, mode, alike, unlike].map(|residual| residual.log_factor / ratio.ln());
            prop_assert!(moves.is_sorted_by(|a, b| a >= b) && moves[0] > 0.9 && moves[3] > 0.0, "{moves:?}");
            let widths = [same, mode, alike, unlike].map(|residual| residual.log_sd);
            prop_assert!(widths.is_sorted() && widths[3] <= 0.152, "{widths:?}");
            prop_assert_eq!(same.tier, Tier::Observed);
            prop_assert_eq!((mode.tier, alike.tier), (Tier::Anchored, Tier::EngineCalibrated));
        }

        #[test]
        fn a_run_in_another_mode_carries_no_more_than_was_found_and_leaves_the_doubt_of_that_mode(
            ratio in 0.7..1.4f64, slower in 0.3..0.7f64, doubt in 1.0..3.0f64,
        ) {
            let here = point("a", CONVOLUTIONS, 1, 1e9);
            let there = NetworkPoint { log_sd: 0.15 * doubt, ..point("a", CONVOLUTIONS, 1, 1e9 * slower) };
            let carried = at(&[report(&here, ratio)], &there);
            let part = carried.log_factor / ratio.ln();
            prop_assert!((0.5..0.85).contains(&part), "{part}");
            // What is doubtful about the mode alone stays doubtful.
            let own = 0.15 * (doubt * doubt - 1.0).sqrt();
            prop_assert!(carried.log_sd >= own && carried.log_sd <= there.log_sd + 0.01, "{}", carried.log_sd);
            // And a run there says less about the mode that is known well.
            let back = at(&[report(&there, ratio)], &here).log_factor / ratio.ln();
            prop_assert!(back <= part + 1e-9, "{back} {part}");
        }

        #[test]
        fn more_runs_never_widen_an_interval(ratios in proptest::collection::vec(0.8..1.25f64, 2..12)) {
            let asked = point("asked", CONVOLUTIONS, 1, 1e9);
            let run = |(index, ratio): (usize, &f64)| report(&point(&index.to_string(), CONVOLUTIONS, 1, 1e9), *ratio);
            let reports: Vec<_> = ratios.iter().enumerate().map(run).collect();
            let widths: Vec<f64> =
                (1..=reports.len()).map(|count| at(&reports[..count], &asked).log_sd).collect();
            prop_assert!(widths.is_sorted_by(|a, b| *a >= b - 1e-9), "{widths:?}");
        }
    }

    #[test]
    fn a_wild_run_of_another_network_among_several_moves_nothing() {
        let asked = point("asked", CONVOLUTIONS, 1, 1e9);
        let of = |name: &str, ratio| report(&point(name, CONVOLUTIONS, 1, 1e9), ratio);
        let mut reports = vec![of("a", 1.1), of("b", 1.12), of("c", 1.08)];
        let before = at(&reports, &asked).log_factor;
        reports.push(of("wild", 40.0));
        let after = at(&reports, &asked).log_factor;
        assert!((after - before).abs() < 1e-9, "{before} {after}");
        let own = at(&reports, &point("wild", CONVOLUTIONS, 1, 1e9)).log_factor;
        assert!(own > 0.9 * 40f64.ln(), "its own network follows it: {own}");
    }

    #[test]
    fn another_engine_learns_nothing_and_impossible_times_are_refused() {
        let here = point("a", CONVOLUTIONS, 1, 1e9);
        let other = NetworkPoint { engine: NetworkEngine::OnnxRuntime, ..here.clone() };
        assert!(NetworkLearning::new(&[report(&here, 2.0)], &other).is_none());
        let run = |time: f64| MeasuredNetwork {
            point: here.clone(),
            mode: None,
            time: Seconds(time),
            predicted: Seconds(0.01),
            bound: Seconds(0.001),
            calibrated: true,
        };
        let refused = |time| NetworkReport::vetted(Report::default(), &run(time)).unwrap_err();
        assert!(matches!(refused(1e-4), Refused::Impossible { .. }));
        assert!(matches!(refused(10.0), Refused::Outlier { .. }));
        let guessed = MeasuredNetwork { calibrated: false, ..run(0.01) };
        assert_eq!(NetworkReport::vetted(Report::default(), &guessed), Err(Refused::NotCalibrated));
    }
}
