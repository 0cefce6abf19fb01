//! The constants of a generation of GPUs, fitted to measured latencies of vision networks.
//!
//! Robust least squares on ln(predicted / measured): Gauss-Newton steps in the logarithms of the constants, rows far off weighing less,
//! each constant drawn towards where it starts.

use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Roofline, datasheet};
use rooflined_core::hardware::Hardware;
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::Seconds;
use rooflined_predict::network::{Layers, NetworkCosts, NetworkPrediction, predict_network_by};

/// A measured run of a network.
#[derive(Debug, Clone)]
pub struct NetworkRun<'a> {
    pub hardware: &'a Hardware,
    pub roofline: Roofline,
    pub network: String,
    pub size: u32,
    pub layers: Layers,
    pub precision: Precision,
    pub batch: u64,
    pub time: Seconds,
}

impl NetworkRun<'_> {
    /// Ceilings of a board at its highest clocks.
    #[must_use]
    pub fn roofline_of(hardware: &Hardware) -> Roofline {
        datasheet(hardware, &OperatingPoint::default())
    }

    /// Its prediction by these constants; `None` where there is none.
    #[must_use]
    pub fn predict(&self, costs: &NetworkCosts) -> Option<NetworkPrediction> {
        let engine = NetworkEngine::TensorRt;
        let hardware = Some(self.hardware);
        predict_network_by(costs, &self.layers, engine, hardware, &self.roofline, self.precision, self.batch)
            .ok()
    }

    /// Pixels of a side of the pictures that the file of the network is for.
    #[must_use]
    pub fn side_of(layers: &Layers) -> Option<u32> {
        layers.inputs.first()?.1.last().and_then(|&side| u32::try_from(side).ok())
    }

    /// Whether the pictures have the size of the network's file.
    #[must_use]
    pub fn is_own_size(&self) -> bool {
        Self::side_of(&self.layers) == Some(self.size)
    }

    /// ln(predicted / measured) and the half-width of the stated interval, as a ratio.
    #[must_use]
    pub fn judged(&self, costs: &NetworkCosts) -> (f64, f64) {
        self.predict(costs).map_or((f64::NAN, 0.0), |NetworkPrediction { latency, .. }| {
            ((latency.value / self.time).ln(), latency.high / latency.value - 1.0)
        })
    }

    /// ln(predicted / measured).
    #[must_use]
    pub fn error(&self, costs: &NetworkCosts) -> f64 {
        self.judged(costs).0
    }

    /// What makes networks a family: the name without its size, as yolov8 of yolov8n and resnet of resnet50.
    #[must_use]
    pub fn family(&self) -> &str {
        if self.network.starts_with("yolo") {
            return self.network.trim_end_matches(|letter: char| "ntsmlx".contains(letter));
        }
        self.network.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default()
    }
}

const COUNT: usize = NetworkCosts::FITTED;
/// Standard deviations of the logarithms: of a row, and of each constant about where it starts.
const ROW: f64 = 0.08;
const CONSTANTS: [f64; COUNT] = [0.1, 0.1, 0.2, 0.3, 0.7, 0.2, 0.3, 0.3, 0.5];
/// Rows further off than this weigh less.
const ROBUST: f64 = 0.08;
const STEPS: usize = 6;
const NUDGE: f64 = 0.01;

/// The constants that `runs` lead to from `start`.
#[must_use]
pub fn fit(start: &NetworkCosts, runs: &[&NetworkRun<'_>]) -> NetworkCosts {
    let origin = start.fitted().map(|(_, value)| value.ln());
    let at = |logs: &[f64; COUNT]| start.with_fitted(logs.map(f64::exp));
    let mut logs = origin;
    for _ in 0..STEPS {
        let here = at(&logs);
        let errors: Vec<f64> = runs.iter().map(|run| run.error(&here)).collect();
        let slopes: [Vec<f64>; COUNT] = std::array::from_fn(|index| {
            let mut moved = logs;
            moved[index] += NUDGE;
            let moved = at(&moved);
            runs.iter().zip(&errors).map(|(run, error)| (run.error(&moved) - error) / NUDGE).collect()
        });
        let weights: Vec<f64> =
            errors.iter().map(|error| (ROBUST / error.abs()).min(1.0) / (ROW * ROW)).collect();
        let sum =
            |a: &[f64], b: &[f64]| -> f64 { (0..runs.len()).map(|row| weights[row] * a[row] * b[row]).sum() };
        let mut normal = [[0.0; COUNT + 1]; COUNT];
        for (row, cells) in normal.iter_mut().enumerate() {
            for column in 0..COUNT {
                cells[column] = sum(&slopes[row], &slopes[column]);
            }
            let prior = 1.0 / (CONSTANTS[row] * CONSTANTS[row]);
            cells[row] += prior;
            cells[COUNT] = -sum(&slopes[row], &errors) - prior * (logs[row] - origin[row]);
        }
        for (log, step) in logs.iter_mut().zip(solve(normal)) {
            *log += step.clamp(-0.5, 0.5);
        }
    }
    at(&logs)
}

/// Solves a symmetric positive system, whose right side is the last column, by elimination.
fn solve(mut cells: [[f64; COUNT + 1]; COUNT]) -> [f64; COUNT] {
    for pivot in 0..COUNT {
        let row = cells[pivot];
        for below in cells.iter_mut().skip(pivot + 1) {
            let factor = below[pivot] / row[pivot];
            below.iter_mut().zip(row).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    let mut solution = [0.0; COUNT];
    for row in (0..COUNT).rev() {
        let known: f64 = (row + 1..COUNT).map(|column| cells[row][column] * solution[column]).sum();
        solution[row] = (cells[row][COUNT] - known) / cells[row][row];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let mut cells = [[0.0; COUNT + 1]; COUNT];
        for (row, of) in cells.iter_mut().enumerate() {
            of[row] = 4.0;
            if row > 0 {
                of[row - 1] = 1.0;
            }
            if row + 1 < COUNT {
                of[row + 1] = 1.0;
            }
            of[COUNT] = 6.0 - if row == 0 || row + 1 == COUNT { 1.0 } else { 0.0 };
        }
        assert!(solve(cells).iter().all(|value| (value - 1.0).abs() < 1e-12));
    }
}
