//! What a roofline plot shows, whatever draws it: ceilings, points, and the decades that hold them.

use rooflined_api::{MeasuredRow, PredictAnswer, RooflineAnswer, SweepRow};
use rooflined_core::calendar;
use rooflined_core::units::BytesPerSecond;

use super::words;

#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// FLOP/s.
    pub peak: f64,
    /// `fp32 535 GFLOP/s measured`, `int8 1.79 TOP/s measured`.
    pub label: String,
}

/// How a point came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By running the operation.
    Measured,
    /// By calculation.
    Predicted,
}

/// An operation in the plane of intensity and rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// FLOP per byte.
    pub intensity: f64,
    /// FLOP/s.
    pub rate: f64,
    /// How it came about.
    pub origin: Origin,
    pub label: String,
}

/// A roofline and the points below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Bytes/s of the slope.
    pub bandwidth: f64,
    /// `35.2 GB/s measured`.
    pub bandwidth_label: String,
    /// Ceilings, the highest first.
    pub roofs: Vec<Roof>,
    /// Points in the order drawn.
    pub points: Vec<Point>,
    /// What it shows and where it comes from.
    pub caption: String,
}

/// A range of whole powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decades {
    /// Exponent of the lower end.
    pub from: i32,
    /// Exponent of the upper end.
    pub to: i32,
}

impl Decades {
    /// The smallest range of decades with these values inside.
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (low, high) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
        if low > high {
            return Self { from: 0, to: 1 };
        }
        let (from, to) = (exponent(low.floor()), exponent(high.ceil()));
        Self { from, to: to.max(from + 1) }
    }

    /// Where `value` lies in the range: 0 at its lower end, 1 at its upper.
    #[must_use]
    pub fn place(self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }

    /// The exponents of its ticks.
    pub fn ticks(self) -> impl Iterator<Item = i32> {
        self.from..=self.to
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to what an f64 can hold as a power of ten")]
fn exponent(log: f64) -> i32 {
    log.clamp(-300.0, 300.0) as i32
}

impl Chart {
    /// The plot of an answer, still without points.
    #[must_use]
    pub fn new(answer: &RooflineAnswer) -> Self {
        let bandwidth = &answer.bandwidth_bytes_per_s;
        let mut roofs: Vec<Roof> = answer
            .compute_flops_per_s
            .iter()
            .map(|(precision, ceiling)| Roof {
                peak: ceiling.value,
                label: format!(
                    "{precision} {} {}",
                    words::compute(precision, ceiling.value),
                    ceiling.provenance
                ),
            })
            .collect();
        roofs.sort_by(|a, b| b.peak.total_cmp(&a.peak));
        Self {
            bandwidth: bandwidth.value,
            bandwidth_label: format!("{} {}", BytesPerSecond(bandwidth.value), bandwidth.provenance),
            roofs,
            points: Vec::new(),
            caption: caption(answer),
        }
    }

    /// Adds the rows of a sweep.
    pub fn add_predicted(&mut self, rows: &[SweepRow]) {
        self.points.extend(rows.iter().map(|row| {
            let PredictAnswer { flops, time_s, arithmetic_intensity_flops_per_byte, .. } = &row.prediction;
            Point {
                intensity: *arithmetic_intensity_flops_per_byte,
                rate: flops / time_s.value,
                origin: Origin::Predicted,
                label: words::name_swept(row),
            }
        }));
    }

    /// Adds measured rows, each at the intensity that it was predicted to have.
    pub fn add_measured(&mut self, rows: &[MeasuredRow], predicted: &[SweepRow]) {
        self.points.extend(rows.iter().filter_map(|row| {
            let op = row.op.op()?;
            let same = |other: &&SweepRow| {
                other.op == Some(*op) && other.prediction.format.as_ref() == Some(&row.format)
            };
            let same = predicted.iter().find(same)?;
            Some(Point {
                intensity: same.prediction.arithmetic_intensity_flops_per_byte,
                rate: same.prediction.flops / row.measured_time_s.value,
                origin: Origin::Measured,
                label: format!("{} {}", words::operation(op), row.format),
            })
        }));
    }

    /// Intensity at which a ceiling meets the slope.
    #[must_use]
    pub fn ridge(&self, roof: &Roof) -> f64 {
        roof.peak / self.bandwidth
    }

    #[must_use]
    pub fn peak(&self) -> Option<f64> {
        self.roofs.first().map(|roof| roof.peak)
    }

    /// Decades of intensity: every ridge and point, from 0.1 on.
    #[must_use]
    pub fn intensities(&self) -> Decades {
        let ridges = self.roofs.iter().map(|roof| self.ridge(roof) * 2.0);
        Decades::around(ridges.chain(self.points.iter().map(|point| point.intensity)).chain([0.1]))
    }

    /// Decades of rate: the ceilings, the points, and the slope where it enters.
    #[must_use]
    pub fn rates(&self) -> Decades {
        let first = self.bandwidth * 10_f64.powi(self.intensities().from);
        let roofs = self.roofs.iter().map(|roof| roof.peak * 1.2);
        Decades::around(roofs.chain(self.points.iter().map(|point| point.rate)).chain([first]))
    }

    /// Whether points of this origin are in the plot.
    #[must_use]
    pub fn has(&self, origin: Origin) -> bool {
        self.points.iter().any(|point| point.origin == origin)
    }
}

fn caption(answer: &RooflineAnswer) -> String {
    let regime = answer.regimes.iter().find(|regime| regime.active);
    let measured = regime.map_or_else(
        || format!("memory bandwidth is {}", answer.bandwidth_bytes_per_s.provenance),
        |regime| format!("measured {} (regime {})", calendar::date(regime.measured_at_unix_s), regime.key),
    );
    let simulated = if answer.simulated { "SIMULATED, describes no real hardware; " } else { "" };
    let clock = answer
        .clock_hz
        .map_or_else(String::new, |hz| format!(" at {}", words::field("clock_hz", &hz.into())));
    format!("{simulated}{measured}; {} workers{clock}; serial {}", answer.workers, answer.serial)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A chart with one ceiling of every kind and both kinds of points.
    pub fn example() -> Chart {
        let roof = |peak, label: &str| Roof { peak, label: label.to_owned() };
        let point =
            |intensity, rate, origin| Point { intensity, rate, origin, label: "gemv <&> \"x\"".to_owned() };
        Chart {
            bandwidth: 40e9,
            bandwidth_label: "40.0 GB/s measured".to_owned(),
            roofs: vec![roof(2e12, "int8 2.00 TOP/s measured"), roof(500e9, "fp32 500 GFLOP/s scaled")],
            points: vec![point(0.5, 18e9, Origin::Predicted), point(2.0, 60e9, Origin::Measured)],
            caption: "measured 2026-11-20; 2 workers".to_owned(),
        }
    }

    #[test]
    fn every_ceiling_ridge_and_point_lies_inside() {
        let chart = example();
        let (x, y) = (chart.intensities(), chart.rates());
        for roof in &chart.roofs {
            assert!((0.0..1.0).contains(&x.place(chart.ridge(roof))));
            assert!((0.0..1.0).contains(&y.place(roof.peak)));
        }
        for point in &chart.points {
            assert!(
                (0.0..1.0).contains(&x.place(point.intensity)) && (0.0..1.0).contains(&y.place(point.rate))
            );
        }
        assert_eq!(x, Decades { from: -1, to: 2 });
    }

    #[test]
    fn nothing_to_show_is_still_a_range() {
        assert_eq!(Decades::around([f64::NAN, 0.0, -1.0].into_iter()), Decades { from: 0, to: 1 });
        assert_eq!(Decades::around([10.0].into_iter()), Decades { from: 1, to: 2 });
    }
}
