//! The time of a network on a roofline.

use thiserror::Error;

use super::costs::{Doubt, NetworkCosts, table};
use super::layers::{Layer, LayerKind, Layers};
use crate::estimate::{Estimate, interval};
use crate::power::Activity;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::Hardware;
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};

/// Channels are padded to a multiple of this on matrix units.
const PAD: f64 = 8.0;
/// Bytes of an engine file that are no weights.
const ENGINE_FILE: f64 = 3e6;

/// What takes most of a layer's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerBound {
    Memory,
    Compute,
    Launch,
}

impl LayerBound {
    /// The key on the wire.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Launch => "launch",
        }
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

/// Operations in fp32 that each worker does in a clock cycle; 0 where the clock or the peak is unknown.
fn fp32_per_cycle(roofline: &Roofline) -> f64 {
    let clock = roofline.clock.filter(|clock| clock.is_positive());
    let (Some(clock), Some(peak)) = (clock, roofline.compute(Precision::Fp32)) else { return 0.0 };
    peak.value.get() / clock.get() / f64::from(roofline.workers.max(1))
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
    /// The time of one layer; `part` is the part of the peak that its precision reaches.
    fn layer(&self, layer: &Layer, precision: Precision, peak: FlopsPerSecond, part: f64) -> LayerTime {
        let costs = self.costs;
        // Memory that an engine without fusion moves: written and read again.
        let apart = if self.fuses() { 0.0 } else { 2.0 * layer.apart };
        let of = |elements: f64| Bytes(elements * width(precision));
        let (weights, activations) =
            (of(layer.weights), of((layer.reads + layer.writes + apart) * self.times));
        let traffic = weights + activations;
        let from_memory = bandwidth(self.roofline) * costs.bandwidth;
        let memory = match (costs.cache, self.cache) {
            (Some(part), Some(cache)) => weights / from_memory + activations / (cache * part),
            _ => traffic / from_memory,
        };
        let saturation = |size: f64, half: f64| if half > 0.0 { size / (size + half) } else { 1.0 };
        let pad = if self.on_gpu { PAD } else { 1.0 };
        let columns = (layer.columns / pad).ceil() * pad;
        let reached = match layer.kind {
            LayerKind::Depthwise => costs.part(layer.kind),
            kind => {
                let of_size =
                    saturation(layer.inner, costs.inner_half) * saturation(columns, costs.columns_half);
                (costs.part(kind) * of_size).min(1.0)
            }
        };
        let multiplies = layer.kind.multiplies() && layer.flops > 0.0;
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

/// Whether a machine with this roofline computes networks in 8 bits faster than in 16.
#[must_use]
pub fn supports_int8(roofline: &Roofline) -> bool {
    let rate = |precision| peak(roofline, precision);
    match (rate(Precision::Int8), rate(Precision::Fp16)) {
        (Some(int8), Some(fp16)) => int8 > fp16,
        (int8, _) => int8.is_some(),
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
    let on_gpu = hardware.is_some_and(|hardware| hardware.compute_capability.is_some());
    let table = table(engine).ok_or(NetworkError::NeedsGpu)?;
    let (generation, costs) =
        table.generation(hardware, fp32_per_cycle(roofline)).ok_or(NetworkError::NeedsGpu)?;
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
    let half_width = half_width(layers, costs, hardware, roofline, table.doubt, batch)
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
        generation,
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

fn warnings(
    layers: &Layers,
    prediction: &NetworkPrediction,
    engine: NetworkEngine,
    precision: Precision,
    batch: u64,
    on_gpu: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if precision == Precision::Int8 && !layers.quantised() {
        warnings.push(
            "int8 keeps its accuracy only with a calibration set of a few hundred real pictures: measure the accuracy"
                .to_owned(),
        );
    }
    if on_gpu && prediction.rows == 0 {
        warnings.push(format!(
            "no published latency of {} on this generation of GPUs is known: the interval is wide",
            engine.name()
        ));
    }
    if batch > 1 {
        warnings.push(format!("a batch of {batch} was compared with no measurement: the interval is wider"));
    }
    if layers.unknown_nodes > 0 {
        warnings.push(format!(
            "{} nodes have sizes that only a run knows, and are not counted",
            layers.unknown_nodes
        ));
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use rooflined_core::board::OperatingPoint;
    use rooflined_core::ceilings::datasheet;
    use rooflined_core::hardware::registry;
    use rooflined_core::units::Hertz;

    fn hardware(key: &str) -> &'static Hardware {
        registry().get(key).unwrap()
    }

    fn convolution(window: f64, cin: f64, cout: f64, positions: f64) -> Layer {
        Layer {
            name: format!("conv {cin} {cout}"),
            kind: if window > 1.0 { LayerKind::Convolution } else { LayerKind::Pointwise },
            flops: 2.0 * window * cin * cout * positions,
            reads: cin * positions,
            writes: cout * positions,
            weights: window * cin * cout,
            inner: window * cin,
            columns: cout,
            window,
            exponentials: cout * positions,
            apart: cout * positions,
            apart_kernels: 1.0,
            quantised: false,
        }
    }

    /// A few stages, each with half the rows and columns of the one before, for pictures `size` times 32 high and wide.
    fn network(size: f64) -> Layers {
        let stage = |index: i32| {
            let (positions, channels) = ((size * 32.0 / 2f64.powi(index)).powi(2), 16.0 * 2f64.powi(index));
            let copy = Layer {
                kind: LayerKind::Copy,
                flops: 0.0,
                weights: 0.0,
                ..convolution(1.0, channels, channels, positions)
            };
            [
                convolution(9.0, channels, channels, positions),
                convolution(1.0, channels, channels, positions),
                copy,
            ]
        };
        let input_elements = 3.0 * (size * 32.0).powi(2);
        Layers {
            name: "stages".to_owned(),
            batch: 1,
            inputs: vec![("images".to_owned(), vec![1, 3, 640, 640])],
            input_elements,
            output_elements: 84.0 * 8400.0,
            parameters: 1e6,
            live_elements: Some(2.0 * input_elements),
            unknown_nodes: 0,
            layers: (1..6).flat_map(stage).collect(),
        }
    }

    fn at(hardware: &Hardware, clock: f64, memory: f64, sm: f64) -> Roofline {
        let of = |part: f64, whole: Hertz| Some(whole * part);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a small number"
        )]
        let sm_online = Some(((f64::from(hardware.sm) * sm) as u32).max(1));
        datasheet(
            hardware,
            &OperatingPoint {
                gpu_clock: of(clock, hardware.gpu_clock),
                memory_clock: hardware.memory_clock.and_then(|whole| of(memory, whole)),
                sm_online,
                ..OperatingPoint::default()
            },
        )
    }

    fn seconds(key: &str, layers: &Layers, roofline: &Roofline, precision: Precision, batch: u64) -> f64 {
        let of =
            predict_network(layers, NetworkEngine::TensorRt, Some(hardware(key)), roofline, precision, batch);
        of.unwrap().latency.value.get()
    }

    const BOARDS: [&str; 5] = [
        "jetson-orin-nano-8gb-super",
        "jetson-agx-orin-64gb",
        "jetson-xavier-nx",
        "rtx-3090",
        "jetson-agx-thor-t5000",
    ];

    proptest! {
        #[test]
        fn higher_clocks_and_more_units_are_never_slower(
            board in 0..BOARDS.len(), size in 1.0..40.0f64,
            (clock, memory, sm) in (0.2..1.0f64, 0.3..1.0f64, 0.2..1.0f64),
            (faster, wider, more) in (1.0..2.0f64, 1.0..2.0f64, 1.0..2.0f64),
        ) {
            let (key, layers) = (BOARDS[board], network(size));
            let of = |clock, memory, sm| seconds(key, &layers, &at(hardware(key), clock, memory, sm), Precision::Fp16, 1);
            let slow = of(clock, memory, sm);
            let fast = of((clock * faster).min(1.0), (memory * wider).min(1.0), (sm * more).min(1.0));
            prop_assert!(fast <= slow * (1.0 + 1e-9), "{fast} {slow}");
        }

        #[test]
        fn larger_pictures_and_batches_are_never_faster(
            board in 0..BOARDS.len(), size in 1.0..40.0f64, larger in 1.0..3.0f64, batch in 1..64u64,
        ) {
            let key = BOARDS[board];
            let roofline = at(hardware(key), 1.0, 1.0, 1.0);
            let of = |size, batch| seconds(key, &network(size), &roofline, Precision::Fp16, batch);
            prop_assert!(of(size * larger, 1) >= of(size, 1));
            let (one, several) = (of(size, batch), of(size, batch + 1));
            prop_assert!(several >= one);
            let a_picture = |time: f64, batch: u64| time / f64::from(u32::try_from(batch).unwrap());
            prop_assert!(a_picture(several, batch + 1) <= a_picture(one, batch) * (1.0 + 1e-9));
        }

        #[test]
        fn no_prediction_beats_the_roofline_and_8_bits_gain_less_than_twice(
            board in 0..BOARDS.len(), size in 1.0..60.0f64, batch in 1..16u64,
        ) {
            let (key, layers) = (BOARDS[board], network(size));
            let roofline = at(hardware(key), 1.0, 1.0, 1.0);
            let of = |precision| {
                predict_network(&layers, NetworkEngine::TensorRt, Some(hardware(key)), &roofline, precision, batch).unwrap()
            };
            let (fp16, int8) = (of(Precision::Fp16), of(Precision::Int8));
            for prediction in [&fp16, &int8] {
                prop_assert!(prediction.latency.low >= prediction.roofline_time);
                prop_assert!(prediction.latency.low <= prediction.latency.value);
                prop_assert!(prediction.latency.value <= prediction.latency.high);
            }
            let gain = fp16.latency.value / int8.latency.value;
            prop_assert!((1.0..2.0).contains(&gain), "{gain}");
        }
    }

    #[test]
    fn the_time_is_the_formula() {
        let nano = hardware("jetson-orin-nano-8gb");
        let layers = Layers { layers: vec![convolution(9.0, 64.0, 64.0, 6400.0)], ..network(1.0) };
        let roofline = at(nano, 1.0, 1.0, 1.0);
        let reached = 1.436 * (576.0 / (576.0 + 18.3)) * (64.0 / (64.0 + 231.0));
        let compute = 2.0 * 9.0 * 64.0 * 64.0 * 6400.0 / (2048.0 * 8.0 * 624.75e6 * reached);
        let expected = compute + 10_870.0 / 624.75e6;
        let found = seconds("jetson-orin-nano-8gb", &layers, &roofline, Precision::Fp16, 1);
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
        // Three channels are computed as eight.
        assert!(
            (convolution(9.0, 3.0, 16.0, 100.0).padded_flops(8.0) / convolution(9.0, 8.0, 16.0, 100.0).flops
                - 1.0)
                .abs()
                < 1e-12
        );
    }

    #[test]
    fn small_networks_are_bound_by_launches_and_large_ones_by_what_they_compute() {
        let key = "jetson-agx-orin-64gb";
        let roofline = at(hardware(key), 1.0, 1.0, 1.0);
        let of = |size| {
            let of = Some(hardware(key));
            predict_network(&network(size), NetworkEngine::TensorRt, of, &roofline, Precision::Fp16, 1)
                .unwrap()
        };
        let small = of(1.0);
        assert!(small.launch_share() > 0.6, "{}", small.launch_share());
        assert!(small.warnings.iter().any(|warning| warning.contains("CUDA graph")));
        let large = of(60.0);
        assert!(
            large.launch_share() < 0.1
                && large.time_of(LayerBound::Compute) > large.time_of(LayerBound::Launch)
        );
        assert!(large.warnings.is_empty(), "{:?}", large.warnings);
    }

    #[test]
    fn doubt_widens_the_interval_and_other_generations_have_the_widest() {
        let slack = |key: &str, precision, batch, clock| {
            let roofline = at(hardware(key), clock, 1.0, 1.0);
            let engine = NetworkEngine::TensorRt;
            let of =
                predict_network(&network(20.0), engine, Some(hardware(key)), &roofline, precision, batch)
                    .unwrap();
            of.latency.high / of.latency.value - 1.0
        };
        let nano = "jetson-orin-nano-8gb-super";
        let known = slack(nano, Precision::Fp16, 1, 1.0);
        assert!((known - 0.16).abs() < 1e-9);
        assert!(slack(nano, Precision::Int8, 1, 1.0) > known && slack(nano, Precision::Int8, 1, 1.0) < 0.25);
        assert!(slack(nano, Precision::Fp16, 4, 1.0) > known);
        assert!(slack(nano, Precision::Fp16, 1, 0.5) > known);
        assert!(slack("jetson-agx-thor-t5000", Precision::Fp16, 1, 1.0) > 0.5);
    }

    #[test]
    fn what_the_accelerator_has_no_unit_for_is_refused_with_what_it_has() {
        let key = "jetson-xavier-nx";
        let roofline = at(hardware(key), 1.0, 1.0, 1.0);
        let ask = |precision, batch, of| {
            predict_network(&network(1.0), NetworkEngine::TensorRt, of, &roofline, precision, batch)
        };
        let refused = ask(Precision::Fp4, 1, Some(hardware(key))).unwrap_err();
        assert!(refused.to_string().contains("fp16") && refused.to_string().contains("int8"), "{refused}");
        assert_eq!(ask(Precision::Fp16, 0, Some(hardware(key))), Err(NetworkError::Batch));
        assert_eq!(ask(Precision::Fp16, 1, None), Err(NetworkError::NeedsGpu));
    }
}
