//! The time of a network on a roofline.

use thiserror::Error;

use super::costs::{Doubt, NetworkCosts, table};
use super::layers::{Layer, LayerKind, Layers};
use crate::cpu::fp32_per_cycle;
use crate::estimate::{Estimate, interval};
use crate::learning::anchor::{NORMAL_90, Residual};
use crate::power::Activity;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::Hardware;
use rooflined_core::keyed;
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};

/// Channels are padded to a multiple of this on matrix units.
const PAD: f64 = 8.0;
/// Results that a multiprocessor computes at a time.
const TILE: f64 = 64.0 * 64.0;
/// Part of the rate of a large product that a product of a matrix and a few vectors reaches at least.
const VECTORS: f64 = 0.125;
/// Bytes of an engine file that are no weights.
const ENGINE_FILE: f64 = 3e6;

keyed! {
    /// What takes most of a layer's time.
    LayerBound {
        Memory = "memory",
        Compute = "compute",
        Launch = "launch",
    }
}

/// The time of one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerTime {
    pub time: Seconds,
    /// The part of it that starts the kernel.
    pub launch: Seconds,
    pub bound: LayerBound,
    pub flops: Flops,
    pub traffic: Bytes,
    pub precision: Precision,
}

/// A predicted run of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPrediction {
    /// Of the whole batch, inside the engine.
    pub latency: Estimate<Seconds>,
    /// No implementation that multiplies as the file says is faster: `latency` never lies below it.
    pub roofline_time: Seconds,
    /// In the order of [`Layers::layers`].
    pub layers: Vec<LayerTime>,
    /// What costs energy beside time.
    pub activity: Activity,
    /// Bytes of the weights as the engine keeps them.
    pub weights: Bytes,
    /// Most bytes of activations at one time; `None` where a size is unknown.
    pub activations: Option<Bytes>,
    /// Roughly the size of a file with the built engine; `None` where the engine builds none.
    pub engine_file: Option<Bytes>,
    /// The generation whose constants were used.
    pub generation: &'static str,
    /// Published rows behind them.
    pub rows: u32,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl NetworkPrediction {
    /// Time of all layers with this bound.
    #[must_use]
    pub fn time_of(&self, bound: LayerBound) -> Seconds {
        self.layers.iter().filter(|layer| layer.bound == bound).map(|layer| layer.time).sum()
    }

    /// Moves the time, and that of every layer, to what reports of runs say, never below the bound.
    pub fn correct(&mut self, residual: &Residual) {
        let plain = self.latency.value;
        let half_width = (NORMAL_90 * residual.log_sd).exp_m1();
        let bound = self.roofline_time;
        self.latency = interval((plain * residual.log_factor.exp()).max(bound), half_width, bound);
        let factor = self.latency.value / plain;
        for layer in &mut self.layers {
            layer.time = layer.time * factor;
            layer.launch = layer.launch * factor;
        }
    }

    /// The part of the time that starts kernels.
    #[must_use]
    pub fn launch_share(&self) -> f64 {
        let launch: Seconds = self.layers.iter().map(|layer| layer.launch).sum();
        launch / self.layers.iter().map(|layer| layer.time).sum::<Seconds>()
    }
}

/// Why a network has no prediction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkError {
    #[error("TensorRT runs on NVIDIA GPUs, and the accelerator here is a CPU")]
    NeedsGpu,
    #[error("{} builds no engine in {precision} here: choose one of {choices}", engine.name())]
    Precision { engine: NetworkEngine, precision: Precision, choices: String },
    #[error("the batch is 0")]
    Batch,
    #[error("the clock of the CPU is not known here, and the CPU prepares each frame")]
    CpuClock,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Task<'a> {
    costs: &'a NetworkCosts,
    roofline: &'a Roofline,
    engine: NetworkEngine,
    /// Batch over that of the file.
    times: f64,
    on_gpu: bool,
    /// Of the largest cache that was measured; `None` where none was.
    cache: Option<BytesPerSecond>,
}

/// Rate of the matrix units in `precision`. FP16 counts with sums in FP16: on cards that halve the rate for sums in FP32, INT8
/// tells the whole.
fn peak(roofline: &Roofline, precision: Precision) -> Option<FlopsPerSecond> {
    let of = |precision| Some(roofline.compute(precision)?.value);
    match precision {
        Precision::Fp16 => {
            let half_of_int8 = of(Precision::Int8).map(|rate| rate * 0.5);
            let fp16 = of(Precision::Fp16)?;
            Some(half_of_int8.map_or(fp16, |rate| rate.max(fp16)))
        }
        Precision::Tf32 => of(Precision::Tf32).or_else(|| of(Precision::Fp32)),
        _ => of(precision),
    }
}

/// Bytes that the memory gives where nothing else limits: nominal, and no more than the SMs draw.
pub(super) fn bandwidth(roofline: &Roofline) -> BytesPerSecond {
    let nominal = roofline.memory_limit.map_or(roofline.bandwidth.value, |limit| limit.value);
    roofline.pull_limit.map_or(nominal, |limit| nominal.min(limit.value))
}

/// Bandwidth of the largest cache that was measured: twice as fast as memory at least.
fn cache_bandwidth(roofline: &Roofline) -> Option<BytesPerSecond> {
    let memory = bandwidth(roofline);
    let cached =
        roofline.curve.iter().filter(|point| point.threads == roofline.workers && point.read >= memory * 2.0);
    cached.max_by(|a, b| a.working_set.get().total_cmp(&b.working_set.get())).map(|point| point.read)
}

/// Bytes of an element in `precision`.
const fn width(precision: Precision) -> f64 {
    match precision {
        Precision::Int8 | Precision::Fp8 => 1.0,
        Precision::Fp16 | Precision::Bf16 => 2.0,
        _ => 4.0,
    }
}

impl Task<'_> {
    /// The time of one layer; `part` is the part of the peak that its precision reaches with an exponential behind the products.
    fn layer(&self, layer: &Layer, precision: Precision, peak: FlopsPerSecond, part: f64) -> LayerTime {
        let costs = self.costs;
        // Memory that an engine without fusion moves: written and read again.
        let apart = if self.fuses() { 0.0 } else { 2.0 * layer.apart };
        let of = |elements: f64| Bytes(elements * width(precision));
        let (weights, activations) =
            (of(layer.weights), of((layer.reads + layer.writes + apart) * self.times));
        let traffic = weights + activations;
        let memory = self.memory(layer.kind, weights, activations);
        let saturation = |size: f64, half: f64| if half > 0.0 { size / (size + half) } else { 1.0 };
        let pad = if self.on_gpu { PAD } else { 1.0 };
        let columns = (layer.columns / pad).ceil() * pad;
        let reached = match layer.kind {
            LayerKind::Depthwise => costs.part(layer.kind),
            kind => {
                let of_size =
                    saturation(layer.inner, costs.inner_half) * saturation(columns, costs.columns_half);
                // The last products of a tile are summed up while nothing else of the kernel is left to compute.
                let results =
                    layer.flops * self.times / (2.0 * layer.inner * layer.columns).max(1.0) * columns;
                let tiles = results / (TILE * f64::from(self.roofline.workers.max(1)));
                let of_tiles = of_size * saturation(tiles, costs.tiles_half);
                // Few rows are multiplied by kernels without tiles.
                let least = if kind == LayerKind::Product { VECTORS } else { 0.0 };
                (costs.part(kind) * of_tiles.max(least)).min(1.0)
            }
        };
        let multiplies = layer.kind.multiplies() && layer.flops > 0.0;
        // TensorRT ends a kernel in 8 bits with a ReLU at full rate.
        let is_simple = self.engine == NetworkEngine::TensorRt && layer.exponentials == 0.0;
        let part = if is_simple { 1.0 } else { part };
        let arithmetic = if multiplies {
            Flops(layer.padded_flops(pad) * self.times) / (peak * (reached * part))
        } else {
            Seconds::ZERO
        };
        let cores = f64::from(self.roofline.workers.max(1));
        let exponentials = Seconds(layer.exponentials * self.times * costs.activation_s / cores);
        let kernels = 1.0 + if self.fuses() { 0.0 } else { layer.apart_kernels };
        let launch = self.launch() * kernels;
        let compute = arithmetic + exponentials;
        let work = memory.max(arithmetic) + exponentials;
        let bound = if launch > work {
            LayerBound::Launch
        } else if memory > compute {
            LayerBound::Memory
        } else {
            LayerBound::Compute
        };
        LayerTime {
            time: work + launch,
            launch,
            bound,
            flops: Flops(layer.flops * self.times),
            traffic,
            precision,
        }
    }

    /// The time in which `weights` are read, and `activations` read and written.
    fn memory(&self, kind: LayerKind, weights: Bytes, activations: Bytes) -> Seconds {
        let costs = self.costs;
        let nominal = bandwidth(self.roofline);
        if let (Some(part), Some(cache)) = (costs.cache, self.cache) {
            return weights / (nominal * costs.bandwidth) + activations / (cache * part);
        }
        let part = match kind {
            LayerKind::Pointwise | LayerKind::Product => costs.dense_bandwidth.unwrap_or(costs.bandwidth),
            _ => costs.bandwidth,
        };
        match costs.weight_bandwidth {
            Some(of_weights) => (activations / (nominal * part)).max(weights / (nominal * of_weights)),
            None => (weights + activations) / (nominal * part),
        }
    }

    /// Whether activations and additions run in the kernel before them.
    fn fuses(&self) -> bool {
        self.engine == NetworkEngine::TensorRt || !self.on_gpu
    }

    /// Starting one kernel.
    fn launch(&self) -> Seconds {
        let clock = self.roofline.clock.filter(|clock| clock.is_positive());
        let cycles = clock.map_or(0.0, |clock| self.costs.launch_cycles / clock.get());
        Seconds(self.costs.launch_s + cycles)
    }
}

/// Predicts one run of `layers` with a batch of `batch` pictures on `roofline`, in the layers' own 8 bits where the file has them
/// and in `precision` elsewhere. `hardware` is what the roofline is of; `None` for a CPU.
///
/// # Errors
/// The engine does not run there, or not in that precision.
pub fn predict_network(
    layers: &Layers,
    engine: NetworkEngine,
    hardware: Option<&Hardware>,
    roofline: &Roofline,
    precision: Precision,
    batch: u64,
) -> Result<NetworkPrediction, NetworkError> {
    let (generation, costs) = network_costs(engine, hardware, roofline).ok_or(NetworkError::NeedsGpu)?;
    let prediction = predict_network_by(costs, layers, engine, hardware, roofline, precision, batch)?;
    Ok(NetworkPrediction { generation, ..prediction })
}

/// The generation whose constants [`predict_network`] takes, and these; `None` for an engine that does not run there.
#[must_use]
pub fn network_costs(
    engine: NetworkEngine,
    hardware: Option<&Hardware>,
    roofline: &Roofline,
) -> Option<(&'static str, &'static NetworkCosts)> {
    table(engine)?.generation(hardware, fp32_per_cycle(roofline, roofline.workers).unwrap_or_default())
}

/// [`predict_network`] by constants of one's own, as a fit tries them.
///
/// # Errors
/// As [`predict_network`].
pub fn predict_network_by(
    costs: &NetworkCosts,
    layers: &Layers,
    engine: NetworkEngine,
    hardware: Option<&Hardware>,
    roofline: &Roofline,
    precision: Precision,
    batch: u64,
) -> Result<NetworkPrediction, NetworkError> {
    let on_gpu = hardware.is_some_and(|hardware| hardware.compute_capability.is_some());
    let table = table(engine).ok_or(NetworkError::NeedsGpu)?;
    if batch == 0 {
        return Err(NetworkError::Batch);
    }
    let known = |precision| Some((table.precision(precision)?, peak(roofline, precision)?));
    let of_precision = known(precision).ok_or_else(|| NetworkError::Precision {
        engine,
        precision,
        choices: Precision::ALL
            .iter()
            .filter(|&&precision| known(precision).is_some())
            .map(|precision| precision.key())
            .collect::<Vec<_>>()
            .join(", "),
    })?;
    // Layers that the file has in 8 bits, and all where 8 bits are asked for of a file without any.
    let eight_bits = known(Precision::Int8);
    let own = layers.quantised();
    #[expect(clippy::cast_precision_loss, reason = "batches are small numbers")]
    let times = batch as f64 / layers.batch as f64;
    let task = Task { costs, roofline, engine, times, on_gpu, cache: cache_bandwidth(roofline) };
    let mut all = Vec::with_capacity(layers.layers.len());
    let mut weights = 0.0;
    for layer in &layers.layers {
        let (precision, (of, peak)) = match eight_bits {
            Some(eight) if layer.quantised => (Precision::Int8, eight),
            _ if own && precision == Precision::Int8 => match known(Precision::Fp16) {
                Some(sixteen) => (Precision::Fp16, sixteen),
                None => (precision, of_precision),
            },
            _ => (precision, of_precision),
        };
        weights += layer.weights * width(precision);
        all.push(task.layer(layer, precision, peak, of.compute));
    }
    let mut activity = Activity::default();
    for layer in &all {
        activity.traffic += layer.traffic;
        activity.add_work(layer.precision, layer.flops);
    }
    let total: Seconds = all.iter().map(|layer| layer.time).sum();
    let roofline_time = least(layers, &all, roofline, times);
    let rare: Seconds = layers
        .layers
        .iter()
        .zip(&all)
        .filter(|(layer, _)| layer.kind.is_rare())
        .map(|(_, time)| time.time)
        .sum();
    let half_width = half_width(layers, costs, hardware, roofline, table.doubt, batch)
        .hypot(table.doubt.rare * (rare / total))
        .hypot(of_precision.0.half_width_ratio.ln_1p());
    let latency = interval(total.max(roofline_time), half_width.exp_m1(), roofline_time);
    let mut prediction = NetworkPrediction {
        latency,
        roofline_time,
        layers: all,
        activity,
        weights: Bytes(weights),
        activations: layers.live_elements.map(|live| Bytes(live * times * width(precision))),
        engine_file: (engine == NetworkEngine::TensorRt).then_some(Bytes(weights + ENGINE_FILE)),
        generation: "own",
        rows: costs.rows,
        warnings: Vec::new(),
    };
    prediction.warnings = warnings(layers, &prediction, engine, precision, batch, on_gpu);
    Ok(prediction)
}

/// The plain roofline: all operations at their peaks, or weights, inputs and outputs once at full bandwidth.
fn least(layers: &Layers, all: &[LayerTime], roofline: &Roofline, times: f64) -> Seconds {
    let compute: Seconds = all
        .iter()
        .filter(|layer| layer.flops.get() > 0.0)
        .filter_map(|layer| Some(layer.flops / peak(roofline, layer.precision)?))
        .sum();
    let narrowest = all.iter().map(|layer| width(layer.precision)).fold(4.0, f64::min);
    let weights: f64 = layers.layers.iter().map(|layer| layer.weights).sum();
    let elements = weights + (layers.input_elements + layers.output_elements) * times;
    compute.max(Bytes(elements * narrowest) / roofline.physical_bandwidth())
}

/// Half of the 90 % interval's logarithm, before what the precision adds.
fn half_width(
    layers: &Layers,
    costs: &NetworkCosts,
    hardware: Option<&Hardware>,
    roofline: &Roofline,
    doubt: Doubt,
    batch: u64,
) -> f64 {
    let highest = hardware.map(|hardware| hardware.gpu_clock).filter(|clock| clock.is_positive());
    let slower = match (highest, roofline.clock) {
        (Some(highest), Some(clock)) if clock.is_positive() => (highest / clock).log2().max(0.0),
        _ => 0.0,
    };
    #[expect(clippy::cast_precision_loss, reason = "these are small numbers")]
    let (doublings, unknown) = (
        (batch as f64).log2(),
        layers.unknown_nodes as f64 / (layers.unknown_nodes as f64 + layers.layers.len() as f64),
    );
    costs
        .half_width_ratio
        .ln_1p()
        .hypot(doubt.clock * slower)
        .hypot(doubt.batch * doublings)
        .hypot(doubt.unknown * unknown)
}

/// Part of the time that starting kernels takes from which on a CUDA graph is worth a try.
const LAUNCH_BOUND: f64 = 0.4;

/// That files with weights are not where the network's file says.
#[must_use]
pub fn missing_weights(first: &str, count: usize) -> String {
    let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    let first: String = first.chars().take(100).collect();
    format!("the weights in {first:?}{others} are not next to the file: no engine loads it without them")
}

fn warnings(
    layers: &Layers,
    prediction: &NetworkPrediction,
    engine: NetworkEngine,
    precision: Precision,
    batch: u64,
    on_gpu: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(first) = layers.missing.first() {
        warnings.push(missing_weights(first, layers.missing.len()));
    }
    if precision == Precision::Int8 && !layers.quantised() {
        warnings.push(
            "int8 keeps its accuracy only with a calibration set of a few hundred real pictures: measure the accuracy"
                .to_owned(),
        );
    }
    if on_gpu && prediction.rows == 0 {
        warnings.push(format!(
            "no published latency of {} on this generation of GPUs was used: the interval is wide",
            engine.name()
        ));
    }
    if batch > 1 {
        warnings.push(format!("a batch of {batch} was compared with no measurement: the interval is wider"));
    }
    match layers.unknown_nodes {
        0 => {}
        1 => warnings.push("1 node has sizes that only a run knows, and is not counted".to_owned()),
        nodes => {
            warnings.push(format!("{nodes} nodes have sizes that only a run knows, and are not counted"));
        }
    }
    if on_gpu && prediction.launch_share() > LAUNCH_BOUND {
        warnings.push(format!(
            "starting kernels takes {:.0} % of the time: try a CUDA graph (trtexec --useCudaGraph)",
            prediction.launch_share() * 100.0
        ));
    }
    warnings
}

#[cfg(test)]
mod tests;
