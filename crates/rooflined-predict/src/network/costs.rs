//! What a layer costs an engine on a generation of silicon: `config/networks/*.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use thiserror::Error;

use super::layers::LayerKind;
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;

/// Name and text of every file of `config/networks`.
pub const FILES: &[(NetworkEngine, &str)] = &[
    (NetworkEngine::TensorRt, include_str!("../../config/networks/tensorrt.toml")),
    (NetworkEngine::OnnxRuntime, include_str!("../../config/networks/onnxruntime.toml")),
];

/// Costs of a generation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCosts {
    /// `major.minor`, one or several.
    compute_capability: Vec<String>,
    /// Of a CPU: operations in fp32 that each core has to reach in a clock cycle, which tells the width of its vectors.
    #[serde(default)]
    least_fp32_per_cycle: f64,
    convolution: f64,
    dense: f64,
    depthwise: f64,
    /// Products for a result at which half of the rate is reached; 0 where it is always reached.
    pub inner_half: f64,
    /// Channels written at which half of the rate is reached.
    pub columns_half: f64,
    /// Tiles of 64 x 64 results on each multiprocessor at which half of the rate is reached; 0 where the size does not matter.
    #[serde(default)]
    pub tiles_half: f64,
    /// Part of the nominal bandwidth.
    pub bandwidth: f64,
    /// The same for the activations of 1x1 windows and matrix products; as `bandwidth` where absent.
    pub dense_bandwidth: Option<f64>,
    /// The same for weights, read while activations are; together with these where absent.
    pub weight_bandwidth: Option<f64>,
    /// Part of the bandwidth of the largest cache at which activations are read and written; absent where they go to memory.
    pub cache: Option<f64>,
    /// Clock cycles for every kernel.
    #[serde(default)]
    pub launch_cycles: f64,
    /// Seconds for every kernel, in addition.
    #[serde(default)]
    pub launch_s: f64,
    /// Seconds of one core for each element through an exponential.
    #[serde(default)]
    pub activation_s: f64,
    /// Of the 90 % interval.
    pub half_width_ratio: f64,
    /// Published rows behind the constants; 0 where they come from other generations.
    pub rows: u32,
    /// Whose rows.
    pub boards: Vec<String>,
    /// Median error for a family or board that the fit did not see.
    pub left_out_median: f64,
    /// The error that one of ten exceeds.
    pub left_out_p90: f64,
}

impl NetworkCosts {
    /// How many constants a fit moves.
    pub const FITTED: usize = 9;

    /// The constants that a fit moves, by their names.
    fn fitted_mut(&mut self) -> [(&'static str, &mut f64); Self::FITTED] {
        let bandwidth = self.bandwidth;
        [
            ("convolution", &mut self.convolution),
            ("dense", &mut self.dense),
            ("inner_half", &mut self.inner_half),
            ("columns_half", &mut self.columns_half),
            ("tiles_half", &mut self.tiles_half),
            ("bandwidth", &mut self.bandwidth),
            ("dense_bandwidth", self.dense_bandwidth.get_or_insert(bandwidth)),
            ("weight_bandwidth", self.weight_bandwidth.get_or_insert(bandwidth)),
            ("launch_cycles", &mut self.launch_cycles),
        ]
    }

    /// Their names and values.
    #[must_use]
    pub fn fitted(&self) -> [(&'static str, f64); Self::FITTED] {
        self.clone().fitted_mut().map(|(name, value)| (name, *value))
    }

    /// The same constants with other values of these.
    #[must_use]
    pub fn with_fitted(&self, values: [f64; Self::FITTED]) -> Self {
        let mut costs = self.clone();
        for ((_, place), value) in costs.fitted_mut().into_iter().zip(values) {
            *place = value;
        }
        costs
    }

    /// Part of the peak that the largest layer of this kind reaches; 1 for what multiplies nothing.
    #[must_use]
    pub const fn part(&self, kind: LayerKind) -> f64 {
        match kind {
            LayerKind::Convolution => self.convolution,
            LayerKind::Depthwise => self.depthwise,
            LayerKind::Pointwise | LayerKind::Product | LayerKind::Attention => self.dense,
            LayerKind::Elementwise | LayerKind::Normalization | LayerKind::Other | LayerKind::Copy => 1.0,
        }
    }
}

/// What a precision changes.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrecisionCosts {
    /// Part of the peak in that precision, beside the parts of the kinds. With TensorRT it holds for kernels that end in an exponential, such
    /// as SiLU, and others reach the whole.
    pub compute: f64,
    pub half_width_ratio: f64,
}

/// What widens an interval.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Doubt {
    /// For each halving of the clock below the highest.
    pub clock: f64,
    /// For each doubling of the batch.
    pub batch: f64,
    /// Times the share of nodes without a known shape.
    pub unknown: f64,
    /// Times the share of the time in kernels other than windows, products and copies: few rows have much of these.
    #[serde(default)]
    pub rare: f64,
}

/// What a frame takes beside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Around {
    /// Resizing and normalising, in cycles of the CPU; `None` where the host is not part of the hardware.
    pub cpu_cycles: Option<f64>,
    #[serde(default)]
    pub cpu_cycles_per_pixel: f64,
    /// The same in seconds on the machines that were published, for a host that nobody names.
    #[serde(default)]
    pub cpu_s: f64,
    #[serde(default)]
    pub cpu_s_per_pixel: f64,
    /// The same by CUDA kernels; `None` on a CPU.
    pub cuda_s: Option<f64>,
    #[serde(default)]
    pub cuda_s_per_pixel: f64,
    /// How far machines lie apart.
    pub factor: f64,
    /// Published figures behind it.
    pub rows: u32,
    /// Part of the memory bandwidth that a copy reaches.
    pub copy: Option<f64>,
    /// Its rate where it goes over a bus.
    pub copy_bytes_per_s: Option<f64>,
    /// For each copy.
    #[serde(default)]
    pub copy_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    around: BTreeMap<String, Around>,
    generation: BTreeMap<String, NetworkCosts>,
    precision: BTreeMap<Precision, PrecisionCosts>,
    pub doubt: Doubt,
}

/// A file that is not as described.
#[derive(Debug, Error)]
#[error("{engine}: {source}")]
pub struct InvalidCosts {
    engine: &'static str,
    #[source]
    source: toml::de::Error,
}

pub(super) fn parse(engine: NetworkEngine, text: &str) -> Result<Table, InvalidCosts> {
    toml::from_str(text).map_err(|source| InvalidCosts { engine: engine.key(), source })
}

static TABLES: LazyLock<Vec<(NetworkEngine, Table)>> = LazyLock::new(|| {
    // A test parses every file, so none is left out here.
    FILES.iter().filter_map(|&(engine, text)| Some((engine, parse(engine, text).ok()?))).collect()
});

/// What is known of an engine; `None` never happens with the files that are built in.
pub(super) fn table(engine: NetworkEngine) -> Option<&'static Table> {
    TABLES.iter().find(|(of, _)| *of == engine).map(|(_, table)| table)
}

impl Table {
    /// What a precision changes; `None` where the engine has none of it.
    pub fn precision(&self, precision: Precision) -> Option<PrecisionCosts> {
        self.precision.get(&precision).copied()
    }

    /// What `hardware` takes beside the engine; `None` for a CPU with an engine that needs a GPU.
    pub fn around(&self, hardware: Option<&Hardware>) -> Option<&Around> {
        let kind = match hardware.map(|hardware| hardware.kind) {
            Some(Kind::Integrated) => "integrated",
            Some(Kind::Discrete) => "discrete",
            Some(Kind::Cpu) | None => "cpu",
        };
        self.around.get(kind)
    }

    /// The name and the costs of the generation of `hardware`, a CPU's by the `fp32_per_cycle` of each core; those of other
    /// generations where it has no rows.
    pub fn generation(
        &self,
        hardware: Option<&Hardware>,
        fp32_per_cycle: f64,
    ) -> Option<(&str, &NetworkCosts)> {
        let capability = hardware.and_then(|hardware| hardware.compute_capability);
        let named = capability.map(|(major, minor)| format!("{major}.{minor}"));
        let is_cpu = hardware.is_none_or(|hardware| hardware.kind == Kind::Cpu);
        let by_capability = named.and_then(|named| {
            self.generation.iter().find(|(_, costs)| costs.compute_capability.contains(&named))
        });
        let by_width = self.generation.iter().find(|(_, costs)| {
            is_cpu && costs.least_fp32_per_cycle > 0.0 && fp32_per_cycle >= costs.least_fp32_per_cycle
        });
        let fallback = if is_cpu { "cpu" } else { "other" };
        by_capability
            .or(by_width)
            .or_else(|| self.generation.get_key_value(fallback))
            .map(|(name, costs)| (name.as_str(), costs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;

    #[test]
    fn every_file_is_read_and_says_what_its_constants_rest_on() {
        for &(engine, text) in FILES {
            let table = parse(engine, text).unwrap();
            for (name, costs) in &table.generation {
                assert!(costs.half_width_ratio >= costs.left_out_p90, "{name}");
                assert!(costs.left_out_median < costs.left_out_p90, "{name}");
                assert_eq!(costs.rows > 0, !costs.boards.is_empty(), "{name}");
                assert!(costs.launch_cycles > 0.0 || costs.launch_s > 0.0, "{name}");
                for part in [costs.convolution, costs.dense, costs.depthwise, costs.bandwidth] {
                    assert!(part > 0.0 && part < 1.8, "{name}");
                }
            }
        }
    }

    #[test]
    fn a_board_has_the_costs_of_its_generation() {
        let generation_of = |engine, key: &str, width| {
            table(engine)?.generation(registry().get(key), width).map(|(name, _)| name)
        };
        let generation = |engine, key: &str| generation_of(engine, key, 0.0);
        let tensorrt = |key: &str| generation(NetworkEngine::TensorRt, key);
        assert_eq!(tensorrt("jetson-agx-orin-64gb"), Some("orin"));
        assert_eq!(tensorrt("jetson-xavier-nx"), Some("xavier"));
        assert_eq!(tensorrt("rtx-3090"), Some("ampere"));
        assert_eq!(tensorrt("t4"), Some("turing"));
        assert_eq!(tensorrt("jetson-agx-thor-t5000"), Some("other"));
        assert_eq!(tensorrt("cpu"), None, "TensorRT needs a GPU");
        assert_eq!(generation(NetworkEngine::OnnxRuntime, "cpu"), Some("cpu"));
        assert_eq!(generation_of(NetworkEngine::OnnxRuntime, "cpu", 30.0), Some("cpu"));
        assert_eq!(generation_of(NetworkEngine::OnnxRuntime, "cpu", 59.0), Some("cpu_avx512"));
        assert_eq!(generation_of(NetworkEngine::TensorRt, "rtx-3090", 59.0), Some("ampere"));
    }
}
