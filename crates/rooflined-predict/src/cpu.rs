//! Time of one pass of a model through an engine's kernels on a CPU.
//!
//! ```text
//! t = sum over kernels: ( (bytes / (eta B))^2 + (weights rows k(rows) v core / (T f))^2 )^(1/2)
//!   + sum over products: rows inputs a / f              on one thread where the kernel has repacked weights and one row
//!   + attention + layers (o core / f + [T > 1] u log2 T)
//! attention, one token a sequence: the same root of pairs A (1 + width / 256) core / (T f) and cache bytes / (eta B)
//! attention, a prompt: pairs (4 + 0.33 width) p core / (T f)
//! ```
//!
//! `B` is what T threads read of a working set as large as the pass's ([`Machine::read_rate`]): a model that fits in the last-level
//! cache is read from there. `f` is the clock, `v` what narrow matrices waste of tiles for several rows. The coefficients are
//! [`CpuCosts`]; `core` multiplies everything that the cores do (with several threads times what these lose to each other), so one
//! run of any model teaches every format. Memory and the unpacking of weights overlap in part: exponents from 1.5 to 4 fit alike
//! because cycles and exponent trade, so it is fixed at 2 and the cycles belong to it.

mod costs;

use serde::{Deserialize, Serialize};

pub use costs::{
    COEFFICIENTS, Coefficient, CpuCosts, Entry, FILES, File, InvalidCpuCosts, Kernel, KernelEntry, Processor,
    ProcessorFile, ROWS, Scalar, cpu_costs,
};

use crate::Engine;
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Hertz, Seconds};
use rooflined_models::architecture::Mixer;
use rooflined_models::model::Model;
use rooflined_models::transformer::{Kind, OpCost, Pass, Request, Run};

/// What tells the costs of a machine's cores and how many of them run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    pub processor: Processor,
    /// Physical cores.
    pub cores: u32,
    /// Threads that are asked for; `None` = what an engine takes, one for every core.
    pub threads: Option<u32>,
    /// Whether the cores share no last-level cache, as far as the newest reference says.
    pub far: bool,
    /// Costs to start from in place of those shipped, as an evaluation takes that fits them without what it judges.
    pub costs: Option<&'static CpuCosts>,
}

/// Single-precision operations that each of `cores` does in a clock cycle, which tells the width of its vectors; `None` where the peak or
/// the clock is unknown.
#[must_use]
pub fn fp32_per_cycle(roofline: &Roofline, cores: u32) -> Option<f64> {
    let clock = roofline.clock.filter(|clock| clock.is_positive())?;
    Some(roofline.compute(Precision::Fp32)?.value.get() / f64::from(cores.max(1)) / clock.get())
}

impl Host {
    /// Threads on a machine with these ceilings.
    #[must_use]
    pub fn threads_on(&self, roofline: &Roofline) -> u32 {
        self.threads.unwrap_or_else(|| roofline.workers.min(self.cores)).max(1)
    }

    /// The ceilings for its number of threads.
    #[must_use]
    pub fn roofline(&self, roofline: &Roofline) -> Roofline {
        scaling::to_threads(roofline, self.threads_on(roofline), self.cores)
    }
}

/// Read rate of a working set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct ReadPoint {
    bytes: f64,
    bytes_per_s: f64,
}

/// A machine that runs some threads, as far as the time of a pass depends on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: Processor,
    pub threads: u32,
    /// Cores that run them.
    pub cores: u32,
    pub clock: Hertz,
    pub far: bool,
    /// Rate at which the threads read main memory.
    memory: BytesPerSecond,
    /// Likewise of working sets that caches may hold, ascending.
    cached: Vec<ReadPoint>,
    /// As in [`Host`].
    #[serde(skip)]
    costs: Option<&'static CpuCosts>,
}

/// The clock of a CPU's cores where none can be read, as in most virtual machines. A guess.
pub const ASSUMED_CLOCK: Hertz = Hertz(2e9);

impl Machine {
    /// The machine of `host` with ceilings `roofline`, at [`ASSUMED_CLOCK`] where no clock was read; `None` without a memory
    /// bandwidth.
    #[must_use]
    pub fn of(roofline: &Roofline, host: &Host) -> Option<Self> {
        let clock = roofline.clock.filter(|clock| clock.is_positive()).unwrap_or(ASSUMED_CLOCK);
        let at = host.roofline(roofline);
        let mut cached: Vec<ReadPoint> = at
            .curve
            .iter()
            .filter(|point| point.threads == at.workers && point.working_set.get() > 0.0)
            .map(|point| ReadPoint { bytes: point.working_set.get(), bytes_per_s: point.read.get() })
            .collect();
        cached.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
        at.bandwidth.value.is_positive().then_some(Self {
            processor: host.processor,
            threads: at.workers,
            cores: at.workers.min(host.cores).max(1),
            clock,
            far: host.far && at.workers > 1,
            memory: at.bandwidth.value,
            cached,
            costs: host.costs,
        })
    }

    /// The costs of an engine on it before any run was observed.
    #[must_use]
    pub fn costs(&self, engine: Engine) -> Option<&'static CpuCosts> {
        self.costs.or_else(|| cpu_costs(engine, self.processor))
    }

    /// The same while others leave `ratio` of the bandwidth.
    #[must_use]
    pub fn with_memory_ratio(mut self, ratio: f64) -> Self {
        self.memory = self.memory * ratio;
        for point in &mut self.cached {
            point.bytes_per_s *= ratio;
        }
        self
    }

    /// Rate at which its threads read a working set again and again: between two that were measured, in proportion to the
    /// logarithms; beyond the largest, main memory's.
    #[must_use]
    pub fn read_rate(&self, working_set: Bytes) -> BytesPerSecond {
        let bytes = working_set.get().max(1.0);
        let Some(above) = self.cached.iter().position(|point| point.bytes >= bytes) else {
            return self.memory;
        };
        let high = self.cached[above];
        let rate = match above.checked_sub(1).map(|below| self.cached[below]) {
            Some(low) => {
                let share = (bytes / low.bytes).ln() / (high.bytes / low.bytes).ln();
                low.bytes_per_s.powf(1.0 - share) * high.bytes_per_s.powf(share)
            }
            None => high.bytes_per_s,
        };
        // The largest sets are main memory by another name: what was found of it once and for all is the better figure.
        BytesPerSecond(rate).max(self.memory)
    }

    /// Whether what it keeps can have been measured.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        positive(self.clock.get())
            && positive(self.memory.get())
            && self.threads > 0
            && self.cores > 0
            && self.cached.len() <= 64
            && self.cached.iter().all(|point| positive(point.bytes) && positive(point.bytes_per_s))
    }
}

/// Products of one kernel with as many rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Product {
    kernel: Kernel,
    weights: f64,
    bytes: f64,
    rows: f64,
    /// Input elements of one row over all matrices.
    inputs: f64,
}

/// What a pass asks of the cores and the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Width of the embedding.
    width: f64,
    layers: f64,
    products: Vec<Product>,
    /// Pairs of a query head and a key that it sees, and the elements of their keys. Of an encoder, half of them: see
    /// [`ENCODER_PAIR`].
    pairs: f64,
    pair_elements: f64,
    /// Several tokens of a sequence at once.
    prompt: bool,
    cache_bytes: f64,
    /// The cache is dequantized while attention walks it.
    cache_quantised: bool,
    other_bytes: f64,
    work: f64,
    /// Bytes that any implementation has to read, and work that it has to do.
    least_bytes: f64,
    least_work: f64,
}

/// Head width at which the elements of a key cost as much as the rest of a pair.
const PAIR_WIDTH: f64 = 256.0;
/// Cycles of a pair in a prompt, and of each element of its key.
const PROMPT_PAIR_CYCLES: f64 = 4.0;
const PROMPT_ELEMENT_CYCLES: f64 = 0.33;
/// A pair of an encoder costs half of one that a causal prompt sees: engines compute the other half of that one too, and mask it.
const ENCODER_PAIR: f64 = 0.5;
/// What narrow matrices waste of tiles of several rows: `(1 + 150 / width) / 1.07`, which is 1 at the width of the models that
/// the cycles were fitted to.
const TILE_WIDTH: f64 = 150.0;
const TILE_REFERENCE: f64 = 1.07;

/// The parts of a pass's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassTime {
    /// Reading weights and unpacking them, overlapped.
    pub products: Seconds,
    /// Reading alone.
    pub memory: Seconds,
    /// Unpacking quantised weights and multiplying them, alone.
    pub unpacking: Seconds,
    /// Multiplying weights that are floats, alone.
    pub arithmetic: Seconds,
    /// Quantising the inputs.
    pub inputs: Seconds,
    pub attention: Seconds,
    /// Small operations, and barriers between threads.
    pub overhead: Seconds,
}

impl PassTime {
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.products + self.inputs + self.attention + self.overhead
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of layers and tokens are small")]
const fn f(count: u64) -> f64 {
    count as f64
}

impl Work {
    /// What `pass` of `model` asks, with a cache stored as `kv_cache`.
    #[must_use]
    pub fn new(model: &Model, pass: &Pass, kv_cache: WeightFormat) -> Self {
        let mut work = Self {
            width: f(model.architecture.hidden).max(1.0),
            layers: f(pass.layers),
            products: Vec::with_capacity(4),
            pairs: 0.0,
            pair_elements: 0.0,
            prompt: pass.prompt,
            cache_bytes: 0.0,
            cache_quantised: kv_cache.bits_per_weight() < 16.0,
            other_bytes: 0.0,
            work: 0.0,
            least_bytes: 0.0,
            least_work: 0.0,
        };
        for op in &pass.ops {
            work.add(model, op);
        }
        work
    }

    /// What a single operation of a pass asks, without the layers around it.
    #[must_use]
    fn of_op(&self, model: &Model, op: &OpCost) -> Self {
        let mut work = Self {
            layers: 0.0,
            products: Vec::with_capacity(1),
            pairs: 0.0,
            pair_elements: 0.0,
            cache_bytes: 0.0,
            other_bytes: 0.0,
            work: 0.0,
            least_bytes: 0.0,
            least_work: 0.0,
            ..self.clone()
        };
        work.add(model, op);
        work
    }

    fn add(&mut self, model: &Model, op: &OpCost) {
        self.work += op.cost.work.get();
        self.least_bytes += op.least.traffic.get();
        self.least_work += op.least.work.get();
        match op.kind {
            Kind::Attention => {
                // Scores and their sum with the values: four operations for every element of a pair's key.
                let share = if model.is_encoder() { ENCODER_PAIR } else { 1.0 };
                let elements = op.cost.work.get() / 4.0 * share;
                self.pair_elements += elements;
                self.pairs += elements / mean_head_width(model);
                self.cache_bytes += op.cost.traffic.get();
            }
            Kind::Matrix(_) => match (op.shape, op.block) {
                (Some(shape), Some(block)) => {
                    let bytes = op.cost.weights * f(block.bytes()) / f(block.elements());
                    let product = Product {
                        kernel: Kernel::of(block),
                        weights: op.cost.weights,
                        bytes,
                        rows: shape.m.max(1.0),
                        inputs: op.count * f(shape.k),
                    };
                    self.add_product(product);
                }
                _ => self.other_bytes += op.cost.traffic.get(),
            },
            // Vectors of one pass stay in the caches.
            Kind::State => self.other_bytes += op.cost.traffic.get(),
            Kind::Embed | Kind::Elementwise | Kind::Sample => {}
        }
    }

    #[expect(clippy::float_cmp, reason = "the same count of rows by the same path is the same number")]
    fn add_product(&mut self, product: Product) {
        let same = |known: &&mut Product| known.kernel == product.kernel && known.rows == product.rows;
        if let Some(known) = self.products.iter_mut().find(same) {
            known.weights += product.weights;
            known.bytes += product.bytes;
            known.inputs += product.inputs;
        } else {
            self.products.push(product);
        }
    }

    /// Bytes that it reads.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let weights: f64 = self.products.iter().map(|product| product.bytes).sum();
        Bytes(weights + self.cache_bytes + self.other_bytes)
    }

    #[must_use]
    pub const fn work(&self) -> Flops {
        Flops(self.work)
    }

    /// Weights by kernel.
    pub fn weights(&self) -> impl Iterator<Item = (Kernel, f64)> + '_ {
        self.products.iter().map(|product| (product.kernel, product.weights))
    }

    /// The coefficients that its time depends on, some of them twice.
    pub fn depends_on<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = usize> + 'a {
        let rows = self.products.iter().flat_map(|product| {
            let (low, high, _) = costs::between(product.rows);
            let factors = move |place| costs::factors(product.kernel, place).map(Coefficient::index);
            factors(low).chain(factors(high))
        });
        let scalars = [
            Some(Scalar::Core),
            (machine.threads > 1).then_some(Scalar::ManyThreads),
            Some(bandwidth_of(machine)),
            (self.pairs > 0.0).then_some(if self.prompt {
                Scalar::PromptAttention
            } else {
                Scalar::Attention
            }),
            (self.cache_quantised && self.pairs > 0.0 && !self.prompt).then_some(Scalar::QuantisedCache),
            Some(Scalar::Layer),
            (machine.threads > 1).then_some(if machine.far { Scalar::BarrierFar } else { Scalar::Barrier }),
            Some(Scalar::Quantise),
            Some(Scalar::QuantiseSuper),
        ];
        rows.chain(scalars.into_iter().flatten().map(|scalar| Coefficient::Scalar(scalar).index()))
    }

    /// Its time with the logarithms of the coefficients.
    #[must_use]
    pub fn time(&self, machine: &Machine, log: &[f64; COEFFICIENTS]) -> PassTime {
        let get = |scalar: Scalar| log[Coefficient::Scalar(scalar).index()].exp();
        let many = if machine.threads > 1 { get(Scalar::ManyThreads) } else { 1.0 };
        let core = get(Scalar::Core) * many;
        let cycles = machine.clock.get() * f64::from(machine.cores) / core;
        let one = machine.clock.get();
        let read = machine.read_rate(self.bytes()).get() * get(bandwidth_of(machine)).min(1.0);
        let mut time = PassTime {
            products: Seconds(self.other_bytes / read),
            memory: Seconds(self.other_bytes / read),
            unpacking: Seconds::ZERO,
            arithmetic: Seconds::ZERO,
            inputs: Seconds::ZERO,
            attention: Seconds::ZERO,
            overhead: Seconds::ZERO,
        };
        for product in &self.products {
            let tiles =
                if product.rows > 1.0 { (1.0 + TILE_WIDTH / self.width) / TILE_REFERENCE } else { 1.0 };
            let each = costs::cycles(log, product.kernel, product.rows) * tiles;
            let (memory, core) = (product.bytes / read, product.weights * product.rows * each / cycles);
            time.memory += Seconds(memory);
            let cores = if product.kernel.is_float() { &mut time.arithmetic } else { &mut time.unpacking };
            *cores += Seconds(core);
            time.products += Seconds(memory.hypot(core));
            let quantise = if product.kernel.takes_super_blocks() {
                get(Scalar::QuantiseSuper)
            } else {
                get(Scalar::Quantise)
            };
            let shared =
                if product.kernel.repacked() && product.rows <= 1.0 { 1.0 } else { f64::from(machine.cores) };
            time.inputs += Seconds(product.rows * product.inputs * quantise / (one * shared));
        }
        time.attention = if self.prompt {
            let pairs = PROMPT_PAIR_CYCLES * self.pairs + PROMPT_ELEMENT_CYCLES * self.pair_elements;
            Seconds(pairs * get(Scalar::PromptAttention) / cycles)
        } else {
            let quantised = if self.cache_quantised { get(Scalar::QuantisedCache) } else { 1.0 };
            let pairs = (self.pairs + self.pair_elements / PAIR_WIDTH) * get(Scalar::Attention) * quantised;
            Seconds((pairs / cycles).hypot(self.cache_bytes / read))
        };
        let barrier = if machine.threads > 1 {
            get(if machine.far { Scalar::BarrierFar } else { Scalar::Barrier })
                * f64::from(machine.threads).log2()
        } else {
            0.0
        };
        time.overhead = Seconds(self.layers * (get(Scalar::Layer) * core / one + barrier));
        time
    }

    /// Time of each operation of the pass alone, for shares of the whole.
    pub(crate) fn alone<'a>(
        &'a self,
        model: &'a Model,
        pass: &'a Pass,
        machine: &'a Machine,
        log: &'a [f64; COEFFICIENTS],
    ) -> impl Iterator<Item = f64> + 'a {
        pass.ops.iter().map(move |op| self.of_op(model, op).time(machine, log).total().get())
    }

    /// The least time that physics allows any implementation: the bytes that it has to read at the rate of as large a working
    /// set, the operations that it has to do at the highest peak of any unit.
    #[must_use]
    pub fn floor(&self, machine: &Machine, roofline: &Roofline) -> Seconds {
        self.bounded(
            machine.read_rate(Bytes(self.least_bytes)).max(roofline.physical_bandwidth()),
            machine,
            roofline,
            false,
        )
    }

    /// The same with every ceiling at the upper end of its interval, and where half of it is found in the caches.
    #[must_use]
    pub fn fastest(&self, machine: &Machine, roofline: &Roofline) -> Seconds {
        let open = roofline.bandwidth.high / roofline.bandwidth.value;
        let cached = machine.read_rate(Bytes(self.least_bytes / 2.0)) * open;
        self.bounded(
            cached.max(roofline.bandwidth.high).max(roofline.physical_bandwidth()),
            machine,
            roofline,
            true,
        )
    }

    fn bounded(&self, rate: BytesPerSecond, machine: &Machine, roofline: &Roofline, high: bool) -> Seconds {
        let peaks = roofline.compute.values().map(|peak| if high { peak.high } else { peak.value }.get());
        let peak = peaks.fold(0.0, f64::max) * machine.processor.beyond_measured_peak();
        let work = if peak > 0.0 { self.least_work / peak } else { 0.0 };
        (Bytes(self.least_bytes) / rate).max(Seconds(work))
    }
}

/// Which part of the bandwidth its threads reach.
const fn bandwidth_of(machine: &Machine) -> Scalar {
    match (machine.threads, machine.far) {
        (1, _) => Scalar::BandwidthOneThread,
        (_, false) => Scalar::Bandwidth,
        (_, true) => Scalar::BandwidthFar,
    }
}

/// Mean width of keys and values over the layers with attention.
fn mean_head_width(model: &Model) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for layer in &model.architecture.layers {
        if let Mixer::Attention(a) = layer.mixer {
            sum += f(a.head_dim + a.value_dim) / 2.0;
            count += 1.0;
        }
    }
    if count > 0.0 { sum / count } else { 128.0 }
}

/// A pass that repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    pub work: Work,
    pub times: f64,
}

/// The passes of a run.
#[must_use]
pub fn repeated(model: &Model, run: &Run, request: &Request) -> Vec<Repeated> {
    let of = |model, pass: &Pass| Repeated {
        work: Work::new(model, pass, request.kv_cache),
        times: f(pass.repeats),
    };
    let own = run.passes().map(|pass| of(model, pass));
    let draft = run.draft.iter().zip(&model.drafting.by);
    own.chain(draft.flat_map(|(run, by)| run.passes().map(|pass| of(&by.model, pass)))).collect()
}

/// Whether an engine has costs of its own on CPUs.
#[must_use]
pub fn has_costs(engine: Engine) -> bool {
    cpu_costs(engine, Processor::Other).is_some()
}

#[cfg(test)]
mod tests;
