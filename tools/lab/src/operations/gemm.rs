//! Products measured elsewhere: some shapes of a machine and precision are taken as its calibration, the others are
//! predicted.
//!
//! ```text
//! time = (launch + (memory^4 + compute^4)^(1/4)) x ratio(m, n, k)
//! ```
//!
//! The three constants and the surface of ratios are fitted to the calibration shapes alone; the surface is the one that
//! a calibration of this machine uses.

use super::{Constants, Ideal};
use crate::report::{Errors, as_f64};
use rooflined_core::hardware::Hardware;
use rooflined_core::operation::Op;
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_predict::{GemmPoint, Ratios};

/// Rows that must be left over for a score to mean anything.
pub const FEWEST_LEFT: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Rows of A.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    pub k: u64,
    /// Measured seconds.
    pub time: f64,
}

/// How one group did.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmScore {
    /// With ratios between measured shapes.
    pub errors: Errors,
    /// With the three constants alone.
    pub constants_alone: Errors,
    /// Predictions below what the data sheet allows.
    pub faster_than_physics: usize,
    /// Predicted and measured seconds of the rows that were left over.
    pub pairs: Vec<(f64, f64)>,
}

/// Predicts what is left of `rows` from `shapes` of them; `None` for too few rows or a precision that the hardware
/// has no unit for.
#[must_use]
pub fn evaluate(hardware: &Hardware, format: WeightFormat, rows: &[Row], shapes: usize) -> Option<GemmScore> {
    if shapes == 0 || rows.len() < shapes.saturating_add(FEWEST_LEFT) {
        return None;
    }
    let machine = Machine::new(hardware, format)?;
    let design = spread_out(rows, shapes);
    let calibration: Vec<&Row> = design.iter().map(|index| &rows[*index]).collect();
    let runs: Vec<(Ideal, f64)> = calibration.iter().map(|row| (machine.ideal(row), row.time)).collect();
    let constants = Constants::fitted(&runs, None);
    let points: Vec<GemmPoint> = calibration
        .iter()
        .map(|row| {
            let [m, n, k] = sizes(row);
            GemmPoint { m, n, k, time_ratio: row.time / constants.time(machine.ideal(row)) }
        })
        .collect();
    let ratios = Ratios::through(&points);
    let (mut pairs, mut alone, mut faster_than_physics) = (Vec::new(), Vec::new(), 0);
    for (_, row) in rows.iter().enumerate().filter(|(index, _)| !design.contains(index)) {
        let [m, n, k] = sizes(row);
        let modelled = constants.time(machine.ideal(row));
        let bound = machine.bound(row);
        let predicted = (modelled * ratios.at(m, n, k)).max(bound);
        faster_than_physics += usize::from(predicted < bound);
        pairs.push((predicted, row.time));
        alone.push((modelled.max(bound), row.time));
    }
    Some(GemmScore {
        errors: Errors::of_times(&pairs)?,
        constants_alone: Errors::of_times(&alone)?,
        faster_than_physics,
        pairs,
    })
}

/// Indices of `count` rows as far from each other as can be in the logarithms of their sizes: the one furthest from the
/// middle first, then always the one furthest from all before it. The first of equals, so that nothing is random.
fn spread_out(rows: &[Row], count: usize) -> Vec<usize> {
    let points: Vec<[f64; 3]> = rows.iter().map(|row| sizes(row).map(f64::ln)).collect();
    let middle: [f64; 3] = std::array::from_fn(|axis| {
        points.iter().map(|point| point[axis]).sum::<f64>() / as_f64(points.len().max(1))
    });
    let squared = |a: &[f64; 3], b: &[f64; 3]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let mut distance: Vec<f64> = points.iter().map(|point| squared(point, &middle)).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count.min(points.len()) {
        let mut furthest = 0;
        for index in 1..points.len() {
            if distance[index] > distance[furthest] {
                furthest = index;
            }
        }
        let first = chosen.is_empty();
        chosen.push(furthest);
        for (index, point) in points.iter().enumerate() {
            let to_new = squared(point, &points[furthest]);
            distance[index] = if first { to_new } else { distance[index].min(to_new) };
        }
        // Twins of a chosen row are at distance zero as well; it must not be chosen twice.
        distance[furthest] = -1.0;
    }
    chosen
}

#[expect(clippy::cast_precision_loss, reason = "dimensions are at most 2^32")]
fn sizes(row: &Row) -> [f64; 3] {
    [row.m, row.n, row.k].map(|size| size as f64)
}

/// Nominal ceilings for one format.
struct Machine {
    format: NumericFormat,
    bandwidth: f64,
    peak: f64,
    cache: f64,
}

impl Machine {
    fn new(hardware: &Hardware, format: WeightFormat) -> Option<Self> {
        let mut numeric = NumericFormat::stored(format);
        // Both operands of a narrow product are narrow; counting its output as narrow too keeps the bound a bound.
        if matches!(numeric.compute, Precision::Fp8 | Precision::Fp4 | Precision::Int8) {
            numeric.activations = format;
        }
        let rate = hardware.rates.get(&numeric.compute)?;
        let machine = Self {
            format: numeric,
            bandwidth: hardware.bandwidth.get(),
            peak: f64::from(hardware.sm) * hardware.gpu_clock.get() * rate,
            cache: hardware.l2.map_or(0.0, rooflined_core::units::Bytes::get),
        };
        (machine.bandwidth > 0.0 && machine.peak > 0.0).then_some(machine)
    }

    fn ideal(&self, row: &Row) -> Ideal {
        let cost = Op::Gemm { m: row.m, n: row.n, k: row.k }.cost(&self.format);
        Ideal { memory: cost.traffic.get() / self.bandwidth, compute: cost.work.get() / self.peak }
    }

    /// No run is faster: arithmetic at the peak, and from memory what the second-level cache cannot have kept from the
    /// run before. Repeated products of 16 MB run at up to 1.85 times the bandwidth of memory where that cache is 96 MB.
    fn bound(&self, row: &Row) -> f64 {
        let ideal = self.ideal(row);
        ideal.compute.max(ideal.memory - self.cache / self.bandwidth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;

    fn rows() -> Vec<Row> {
        let machine = Machine::new(registry().get("h100-sxm").unwrap(), WeightFormat::Bf16).unwrap();
        let mut rows = Vec::new();
        for m in [1, 4, 16, 64, 256, 1024, 4096] {
            for n in [1024, 4096, 16384] {
                for k in [1024, 4096, 8192] {
                    let mut row = Row { m, n, k, time: 0.0 };
                    let truth = Constants { launch_s: 3e-6, bandwidth_ratio: 0.85, utilisation_ratio: 0.7 };
                    row.time = truth.time(machine.ideal(&row));
                    rows.push(row);
                }
            }
        }
        rows
    }

    #[test]
    fn times_of_the_model_itself_are_predicted_and_none_beats_physics() {
        let hardware = registry().get("h100-sxm").unwrap();
        let score = evaluate(hardware, WeightFormat::Bf16, &rows(), 27).unwrap();
        assert_eq!(score.errors.rows, 7 * 9 - 27);
        assert!(score.errors.p90 < 0.03, "{score:?}");
        assert_eq!(score.faster_than_physics, 0);
        assert_eq!(Some(score), evaluate(hardware, WeightFormat::Bf16, &rows(), 27), "nothing is random");
    }

    #[test]
    fn shapes_are_spread_out_and_none_is_taken_twice() {
        let mut twins = rows();
        twins.extend(rows());
        let mut chosen = spread_out(&twins, 80);
        let corners = &chosen[..2];
        let sizes = |index: usize| (twins[index].m, twins[index].n, twins[index].k);
        assert!(corners.iter().any(|index| sizes(*index).0 == 1), "{corners:?}");
        assert!(corners.iter().any(|index| sizes(*index).0 == 4096), "{corners:?}");
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 80);
    }

    #[test]
    fn too_few_rows_and_a_missing_unit_have_no_score() {
        let hardware = registry().get("h100-sxm").unwrap();
        assert_eq!(evaluate(hardware, WeightFormat::Bf16, &rows()[..30], 27), None);
        assert_eq!(evaluate(hardware, WeightFormat::Nvfp4, &rows(), 27), None);
        assert_eq!(evaluate(hardware, WeightFormat::Bf16, &rows(), usize::MAX), None);
    }
}
