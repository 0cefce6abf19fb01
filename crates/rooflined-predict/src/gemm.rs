//! Blocked matrix products: what the ceilings say, and what measured shapes say beyond them.

use serde::{Deserialize, Serialize};

use super::surface::Surface;
use rooflined_core::units::Seconds;

/// How a measured GEMM compares with the two-constant model of [`GemmCost`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GemmPoint {
    /// Rows of A.
    pub m: f64,
    /// Columns of C.
    pub n: f64,
    /// Common dimension.
    pub k: f64,
    /// Measured over modelled time in the cores.
    pub time_ratio: f64,
}

/// Measured over modelled time at any shape: a surface through the logarithms at the measured shapes. A measured shape
/// is returned as measured; far from all of them the model stands alone.
///
/// On 608 products of five GPUs that were not among the 64 measured of each, the median error is 4.6 %, where four
/// neighbours weighted by inverse distance leave 5.4 %: `rooflined-lab evaluate gemm` has the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratios(Surface<4>);

impl Ratios {
    /// Through measured shapes.
    #[must_use]
    pub fn through(points: &[GemmPoint]) -> Self {
        let known: Vec<([f64; 4], f64)> = points
            .iter()
            .filter(|point| point.time_ratio > 0.0 && point.time_ratio.is_finite())
            .map(|point| (coordinates(point.m, point.n, point.k), point.time_ratio.ln()))
            .collect();
        Self(Surface::through(&known))
    }

    /// Measured over modelled time; 1 where nothing was measured.
    #[must_use]
    pub fn at(&self, m: f64, n: f64, k: f64) -> f64 {
        self.0.at(&coordinates(m, n, k)).exp()
    }

    /// Mean squared logarithm of what each measured shape would have been predicted at by the others; `None` for fewer
    /// than two.
    #[must_use]
    pub fn left_out_variance(&self) -> Option<f64> {
        let errors = self.0.left_out();
        #[expect(clippy::cast_precision_loss, reason = "a handful of shapes")]
        let count = errors.len() as f64;
        (errors.len() > 1).then(|| errors.iter().map(|error| error * error).sum::<f64>() / count)
    }
}

/// Sizes act in proportion; rows a high power of two apart compete for the same sets of a cache.
fn coordinates(m: f64, n: f64, k: f64) -> [f64; 4] {
    [m.ln(), n.ln(), k.ln(), factors_of_two(k)]
}

/// Factors of two in a row's length, up to where the rows of a page's worth of cache sets coincide.
fn factors_of_two(length: f64) -> f64 {
    const MOST: u32 = 12;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a dimension, at most 2^32")]
    let factors = (length as u64).trailing_zeros().min(MOST);
    f64::from(factors)
}

/// Time of a blocked GEMM in the cores: repacking each weight once, arithmetic at a part of the peak, and what
/// measured shapes nearby say beyond these two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct GemmCost {
    /// Clock cycles of one worker to repack one weight.
    pub cycles_per_weight: f64,
    /// Part of the peak that large products reach, above 0 and at most 1.
    pub utilisation: f64,
    pub points: Vec<GemmPoint>,
    /// Half-width of the 90 % interval, relative, from leaving each point out in turn.
    pub half_width_ratio: f64,
    #[serde(skip)]
    ratios: Ratios,
}

/// As it is written down: the surface follows from the points.
#[derive(Deserialize)]
struct Stored {
    cycles_per_weight: f64,
    utilisation: f64,
    points: Vec<GemmPoint>,
    half_width_ratio: f64,
}

impl From<Stored> for GemmCost {
    fn from(stored: Stored) -> Self {
        Self::new(stored.cycles_per_weight, stored.utilisation, stored.points, stored.half_width_ratio)
    }
}

impl GemmCost {
    /// Two constants, measured shapes beside them, and the relative half-width of the 90 % interval.
    #[must_use]
    pub fn new(
        cycles_per_weight: f64,
        utilisation: f64,
        points: Vec<GemmPoint>,
        half_width_ratio: f64,
    ) -> Self {
        let ratios = Ratios::through(&points);
        Self { cycles_per_weight, utilisation, points, half_width_ratio, ratios }
    }

    /// Measured over modelled time at any shape.
    #[must_use]
    pub const fn ratios(&self) -> &Ratios {
        &self.ratios
    }

    /// Time in the cores, given the time of the arithmetic at the peak and that of one cycle for every weight.
    #[must_use]
    pub fn core_time(&self, [m, n, k]: [f64; 3], at_peak: Seconds, cycle_per_weight: Seconds) -> Seconds {
        let modelled = cycle_per_weight * self.cycles_per_weight + at_peak / self.utilisation;
        (modelled * self.ratios.at(m, n, k)).max(at_peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(m: f64, time_ratio: f64) -> GemmPoint {
        GemmPoint { m, n: 1024.0, k: 1024.0, time_ratio }
    }

    #[test]
    fn a_measured_shape_is_returned_as_measured() {
        let gemm = GemmCost::new(0.0, 0.5, vec![point(8.0, 1.2), point(64.0, 0.8)], 0.1);
        assert!((gemm.ratios().at(8.0, 1024.0, 1024.0) - 1.2).abs() < 1e-5);
        assert!((0.8..1.2).contains(&gemm.ratios().at(22.0, 1024.0, 1024.0)));
        // No ratio makes arithmetic faster than its peak.
        let time = gemm.core_time([64.0, 1024.0, 1024.0], Seconds(1.0), Seconds(0.0));
        assert!((time.get() - 2.0 * 0.8).abs() < 1e-5);
        let fast = GemmCost::new(0.0, 1.0, vec![point(8.0, 0.5)], 0.1);
        assert_eq!(fast.core_time([8.0, 1024.0, 1024.0], Seconds(1.0), Seconds(0.0)), Seconds(1.0));
    }

    #[test]
    fn without_measured_shapes_the_constants_stand_alone() {
        assert_eq!(Ratios::through(&[]).at(3.0, 5.0, 7.0), 1.0);
        assert_eq!(Ratios::through(&[point(8.0, 1.0)]).left_out_variance(), None);
    }

    #[test]
    fn what_is_stored_comes_back_with_its_surface() {
        let gemm = GemmCost::new(0.5, 0.9, vec![point(8.0, 1.2), point(64.0, 0.8)], 0.1);
        let text = serde_json::to_string(&gemm).unwrap();
        assert!(!text.contains("ratios"), "{text}");
        assert_eq!(serde_json::from_str::<GemmCost>(&text).unwrap(), gemm);
    }
}
