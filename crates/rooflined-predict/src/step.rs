//! Time of one pass of a model through an engine's kernels on a GPU.
//!
//! ```text
//! t       = overhead + ( t_mem^p + t_core^p )^(1/p)                                              p = 4
//! t_mem   = (weights (1 + (e-1) expert share) / efficiency + kv x a + states x s + rest) / bandwidth
//! t_core  = sum over products of min(few rows, many rows) + attention over a prompt
//!   few   = weights x cycles x (1 + beta (rows - 1)) / (SM x clock)       beta >= 0.65 without a matrix unit for 8 bits
//!   many  = work / (peak x u) x (1 + half / rows) + weights x cycles x unpack x rows / (SM x clock)
//! overhead = (kernels x t_kernel + linear layers x t_l + expert layers x t_e + sequences x t_s) (1 GHz / clock)^(1/2)
//! ```
//!
//! An engine has a kernel for few rows and another for many, and takes the faster; llama.cpp takes the latter from nine tokens a
//! pass on, and only its kernels unpack. Over a prompt, states of linear mixers take work / (peak x scan) as attention does.
//! The coefficients are [`EngineCosts`](super::costs::EngineCosts).
//!
//! On machines where it was found nearer, `bytes x rule / bandwidth` stands for overhead and memory of a decode at depth.
//!
//! The bound under it is another sum: what any implementation has to read over the memory's own bandwidth, or what it has
//! to compute over the fastest unit that takes such weights. Nothing that an engine is assumed to do is in it.

use serde::{Deserialize, Serialize};

use super::costs::{Coefficient, Coefficients, Family, Scalar, precisions, values};
use super::peaks::Peaks;
use super::power::Activity;
use super::{Engine, Limit, OVERLAP_EXPONENT};
use rooflined_core::ceilings::{Ceiling, Roofline};
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Hertz, Seconds};
use rooflined_models::architecture::{FeedForward, Linear, Mixer};
use rooflined_models::model::Model;
use rooflined_models::transformer::{HostShare, Kind, OpCost, Pass};

/// Small kernels of a block beside its products: norm, rotation, cache writes, attention and residual of a mixer;
/// likewise of a feed-forward; of experts with routing, gathering and scattering. Counted in engines' graphs without fusion;
/// what an engine fuses is in the fitted time of one.
const MIXER_KERNELS: f64 = 8.0;
const CONVOLUTION_KERNELS: f64 = 5.0;
const FEED_FORWARD_KERNELS: f64 = 5.0;
const EXPERT_KERNELS: f64 = 8.0;

/// Most tokens of a pass that llama.cpp's kernels for few columns take: `MMVQ_MAX_BATCH_SIZE` of ggml-cuda/mmvq.cuh.
const MOST_FEW: f64 = 8.0;

/// What a further column costs llama.cpp's kernels for few columns at least, as a part of the first, on cards without a matrix
/// unit for 8 bits (Volta and older). From the rows of `published_speculation.csv` on a V100: each drafted token adds a third of a plain
/// step there, and a twelfth on a card with the unit.
const COLUMN_WITHOUT_UNIT: f64 = 0.65;

/// Tokens in the cache from which on a decode counts as one at depth, and up to which nothing of it does.
pub const DEPTH_TOKENS: u64 = 4096;
const SHALLOW_TOKENS: u64 = 1024;

/// What a host is assumed to be: two channels of DDR5-5600 (JEDEC JESD79-5), 64 bits each, and PCIe 3.0 x16.
pub const HOST_BANDWIDTH: BytesPerSecond = BytesPerSecond(2.0 * 8.0 * 5.6e9);
pub const HOST_LINK: BytesPerSecond = BytesPerSecond(15.75e9);
/// Part of it that weights reach, and the time of going to the CPU and back once. From five rates of an RTX 2080 beside an i9-10900X
/// with 94 GB/s (AlexsJones/llmfit, pull requests 775 and 778; tests/laws/offload.rs).
const HOST_RATIO: f64 = 0.5;
const HOST_CROSSING: Seconds = Seconds(0.45e-3);
/// How much longer the CPU's part may take than with the memory assumed: one of DDR4-3200 has 51.2 GB/s.
pub const HOST_DOUBT: f64 = 0.75;

/// How much of a decode of so many tokens in the cache is at depth, from 0 to 1.
#[must_use]
pub fn depth(context_tokens: f64) -> f64 {
    let ramp = (context_tokens / f(SHALLOW_TOKENS)).ln() / (f(DEPTH_TOKENS) / f(SHALLOW_TOKENS)).ln();
    ramp.clamp(0.0, 1.0)
}

fn host_time(host: &HostShare) -> Seconds {
    let rate = if host.is_copied { HOST_LINK } else { HOST_BANDWIDTH * HOST_RATIO };
    host.traffic / rate + HOST_CROSSING * host.crossings
}

/// Products with weights of one family and as many rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Product {
    pub family: Family,
    pub weights: f64,
    pub work: f64,
    /// Tokens that share a matrix.
    pub rows: f64,
}

/// What a pass asks of a machine, summed over its operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub engine: Engine,
    kernels: f64,
    linear_layers: f64,
    expert_layers: f64,
    sequences: f64,
    /// How much of a decode is at depth: 0 up to [`SHALLOW_TOKENS`] in the cache, 1 from [`DEPTH_TOKENS`] on; `None` for a prompt.
    #[serde(default)]
    depth: Option<f64>,
    weight_bytes: f64,
    expert_bytes: f64,
    cache_bytes: f64,
    state_bytes: f64,
    other_bytes: f64,
    attention_work: f64,
    /// Of linear mixers over a prompt.
    #[serde(default)]
    scan_work: f64,
    products: Vec<Product>,
    /// Bytes that any implementation has to read.
    #[serde(default)]
    least_bytes: f64,
    /// Work that any implementation has to do, by what the weights are stored in.
    #[serde(default)]
    least_work: Vec<(Family, f64)>,
    /// What lies in the memory of the CPU.
    #[serde(default)]
    host: HostShare,
}

/// A machine at one operating point, as far as [`Step`] needs it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Nominal bandwidth: of the memory, or what so few SMs can draw of it where that is less.
    pub memory: BytesPerSecond,
    /// What was measured of it; `None` where nothing was.
    pub measured: Option<BytesPerSecond>,
    /// SMs times their clock, in cycles a second.
    pub cycles: f64,
    /// The clock of the SMs; that of the costs where nobody knows it.
    #[serde(default = "reference_clock")]
    pub clock: Hertz,
}

/// The clock at which the time of small kernels is counted.
const REFERENCE_CLOCK: Hertz = Hertz(1e9);

const fn reference_clock() -> Hertz {
    REFERENCE_CLOCK
}

impl Machine {
    /// The machine of a roofline; `None` where it has no GPU's figures: a CPU's cycles are another thing.
    #[must_use]
    pub fn of(roofline: &Roofline) -> Option<Self> {
        let memory = roofline.memory_limit?.value;
        let memory =
            roofline.pull_limit.map_or(memory, |pull| BytesPerSecond(memory.get().min(pull.value.get())));
        let clock = roofline.clock?;
        let measured = (roofline.bandwidth.provenance < rooflined_core::ceilings::Provenance::Datasheet)
            .then_some(roofline.bandwidth.value);
        let cycles = f64::from(roofline.workers) * clock.get();
        Some(Self { memory, measured, cycles, clock })
    }

    /// How much longer small kernels take than at the clock that they are counted at: a part of each is the GPU's, a
    /// part is waiting for the host and the memory, whose clocks stay. The exponent is that of the published power modes.
    fn slowness(&self) -> f64 {
        (REFERENCE_CLOCK / self.clock).sqrt()
    }
}

/// The parts of a step's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Kernels, layers and sequences.
    pub overhead: Seconds,
    /// Main memory.
    pub memory: Seconds,
    pub dequantization: Seconds,
    /// Arithmetic of many rows, and of attention over a prompt.
    pub compute: Seconds,
    /// The CPU's part, or copying from its memory, while the card waits.
    pub host: Seconds,
}

impl StepTime {
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.overhead + self.host + overlapped(self.memory, self.dequantization + self.compute)
    }

    /// All parts so many times as long, and so the whole.
    fn scaled(self, times: f64) -> Self {
        Self {
            overhead: self.overhead * times,
            memory: self.memory * times,
            dequantization: self.dequantization * times,
            compute: self.compute * times,
            host: self.host * times,
        }
    }

    #[must_use]
    pub fn limit(&self) -> Limit {
        let parts = [
            (self.memory, Limit::Dram),
            (self.dequantization, Limit::Core),
            (self.compute, Limit::Compute),
            (self.overhead, Limit::Launch),
            (self.host, Limit::Dram),
        ];
        let most = parts.into_iter().max_by(|a, b| a.0.get().total_cmp(&b.0.get()));
        most.map_or(Limit::Dram, |(_, limit)| limit)
    }
}

/// The coefficient of products in fewer than 16 bits.
const fn narrow(precision: Precision) -> Option<Scalar> {
    match precision {
        Precision::Fp4 | Precision::Int4 => Some(Scalar::FourBit),
        Precision::Fp6 | Precision::Fp8 | Precision::Int8 => Some(Scalar::EightBit),
        _ => None,
    }
}

fn overlapped(a: Seconds, b: Seconds) -> Seconds {
    let power = |part: Seconds| part.get().powi(OVERLAP_EXPONENT);
    Seconds((power(a) + power(b)).sqrt().sqrt()).max(a).max(b)
}

#[expect(clippy::cast_precision_loss, reason = "counts of layers and sequences are small")]
const fn f(count: u64) -> f64 {
    count as f64
}

/// What weights can be computed in without losing any of what is stored, whichever engine does it; those of one family by
/// its place here, [`units_of`].
const UNITS: [&[Precision]; 4] = {
    use Precision::{Bf16, Fp4, Fp6, Fp8, Fp16, Fp32, Int4, Int8, Tf32};
    [
        &[Fp16, Bf16, Tf32, Fp32],
        &[Fp8, Int8, Fp16, Bf16, Tf32, Fp32],
        &[Fp6, Fp8, Int8, Fp16, Bf16, Tf32, Fp32],
        &[Fp4, Int4, Fp6, Fp8, Int8, Fp16, Bf16, Tf32, Fp32],
    ]
};

const fn units_of(family: Family) -> usize {
    match family {
        Family::Plain => 0,
        Family::Fp8 | Family::Int8 => 1,
        Family::Q5 | Family::Q5K | Family::Q6K => 2,
        _ => 3,
    }
}

/// Seconds for each operation on the fastest of `units`, at that end of its interval; 0 where there is none.
fn slowness_on(
    units: &[Precision],
    peaks: &impl Peaks,
    end: impl Fn(Ceiling<FlopsPerSecond>) -> FlopsPerSecond,
) -> f64 {
    let known = units.iter().filter_map(|precision| peaks.peak(*precision));
    let fastest = known.map(|peak| end(peak).get()).fold(0.0, |a, b| if b > a { b } else { a });
    if fastest > 0.0 { 1.0 / fastest } else { 0.0 }
}

/// Kernels of the layers of a model beside its products.
#[derive(Debug, Default)]
struct LayerKernels {
    kernels: f64,
    linear: f64,
    experts: f64,
}

impl LayerKernels {
    fn of(model: &Model) -> Self {
        let mut all = Self::default();
        for layer in &model.architecture.layers {
            all.add(layer.mixer, layer.feed_forward);
        }
        all
    }

    fn add(&mut self, mixer: Mixer, feed_forward: FeedForward) {
        self.kernels += match mixer {
            Mixer::None => 0.0,
            Mixer::Linear(Linear::ShortConvolution { .. }) => CONVOLUTION_KERNELS,
            Mixer::Linear(_) => {
                self.linear += 1.0;
                MIXER_KERNELS
            }
            Mixer::Attention(_) | Mixer::Latent(_) => MIXER_KERNELS,
        };
        self.kernels += match feed_forward {
            FeedForward::None => 0.0,
            FeedForward::Dense { .. } => FEED_FORWARD_KERNELS,
            FeedForward::Experts { .. } => {
                self.experts += 1.0;
                EXPERT_KERNELS
            }
        };
    }
}

impl Step {
    /// What `pass` of `model` asks.
    #[must_use]
    pub fn new(engine: Engine, model: &Model, pass: &Pass) -> Self {
        let layers = LayerKernels::of(model);
        let mut step = Self::empty(engine);
        step.host = pass.host;
        // Images in a tower pass none of the layers, and nothing is sampled.
        if pass.layers > 0 {
            // Of every token that is verified the next one is sampled.
            step.sequences = f(pass.sequences) * if pass.prompt { 1.0 } else { f(pass.tokens) };
            (step.kernels, step.linear_layers, step.expert_layers) =
                (layers.kernels, layers.linear, layers.experts);
        }
        if !pass.prompt {
            step.depth = Some(depth(pass.context_tokens));
        }
        for op in &pass.ops {
            step.add(op, pass.prompt);
        }
        step
    }

    /// How much of it is at depth.
    pub(super) fn depth(&self) -> f64 {
        self.depth.unwrap_or(0.0)
    }

    fn empty(engine: Engine) -> Self {
        Self {
            engine,
            kernels: 0.0,
            linear_layers: 0.0,
            expert_layers: 0.0,
            sequences: 0.0,
            depth: None,
            weight_bytes: 0.0,
            expert_bytes: 0.0,
            cache_bytes: 0.0,
            state_bytes: 0.0,
            other_bytes: 0.0,
            attention_work: 0.0,
            scan_work: 0.0,
            products: Vec::with_capacity(4),
            least_bytes: 0.0,
            least_work: Vec::with_capacity(4),
            host: HostShare::default(),
        }
    }

    fn add(&mut self, op: &OpCost, prompt: bool) {
        let (bytes, work) = (op.cost.traffic.get(), op.cost.work.get());
        self.least_bytes += op.least.traffic.get();
        match op.kind {
            Kind::Attention => {
                self.cache_bytes += bytes;
                if prompt {
                    self.attention_work += work;
                }
            }
            Kind::State => {
                self.state_bytes += bytes;
                if prompt {
                    self.scan_work += work;
                }
            }
            Kind::Matrix(class) => match (op.shape, op.block) {
                (Some(shape), Some(block)) => {
                    self.weight_bytes += bytes;
                    if class == rooflined_models::class::Class::Expert {
                        self.expert_bytes += bytes;
                    }
                    self.add_product(Family::of(block), op.cost.weights, work, shape.m);
                    self.add_least_work(Family::of(block), op.least.work.get());
                }
                _ => self.other_bytes += bytes,
            },
            Kind::Embed | Kind::Elementwise | Kind::Sample => self.other_bytes += bytes,
        }
    }

    #[expect(clippy::float_cmp, reason = "the same count of rows by the same path is the same number")]
    fn add_product(&mut self, family: Family, weights: f64, work: f64, rows: f64) {
        let same = |known: &&mut Product| known.family == family && known.rows == rows;
        if let Some(known) = self.products.iter_mut().find(same) {
            known.weights += weights;
            known.work += work;
        } else {
            self.products.push(Product { family, weights, work, rows });
        }
    }

    fn add_least_work(&mut self, family: Family, work: f64) {
        match self.least_work.iter_mut().find(|(known, _)| *known == family) {
            Some((_, sum)) => *sum += work,
            None => self.least_work.push((family, work)),
        }
    }

    /// The coefficients that its time depends on.
    pub fn depends_on(&self) -> impl Iterator<Item = Coefficient> + '_ {
        let scalars = Scalar::ALL.iter().copied().filter(|scalar| match scalar {
            Scalar::Bandwidth | Scalar::Kernel | Scalar::Sequence | Scalar::Product | Scalar::HalfRows => {
                true
            }
            Scalar::Cache => self.cache_bytes > 0.0,
            Scalar::State => self.state_bytes > 0.0,
            Scalar::Expert => self.expert_bytes > 0.0,
            Scalar::LinearLayer => self.linear_layers > 0.0,
            Scalar::ExpertLayer => self.expert_layers > 0.0,
            Scalar::EightBit | Scalar::FourBit => self
                .products
                .iter()
                .any(|product| narrow(precisions(self.engine, product.family)[0]).is_some()),
            Scalar::Column => self.products.iter().any(|product| product.rows > 1.0),
            Scalar::Unpack => self.engine == Engine::LlamaCpp && self.products.iter().any(|p| p.rows > 1.0),
            Scalar::Scan => self.scan_work > 0.0,
            Scalar::Attention => self.attention_work > 0.0,
            Scalar::DenseRule | Scalar::ExpertRule => self.depth.is_some() && *scalar == self.rule(),
        });
        let mut families: Vec<Family> = self.products.iter().map(|product| product.family).collect();
        families.sort_unstable();
        families.dedup();
        scalars.map(Coefficient::Scalar).chain(families.into_iter().map(Coefficient::Cycles))
    }

    /// Its time on a machine whose peaks are those of `roofline`, with coefficients as logarithms.
    #[must_use]
    pub fn time(&self, machine: &Machine, roofline: &Roofline, log: &Coefficients) -> StepTime {
        self.time_with(machine, roofline, &values(log))
    }

    /// The same with the coefficients themselves, by [`Coefficient::index`].
    pub(super) fn time_with(&self, machine: &Machine, peaks: &impl Peaks, values: &Coefficients) -> StepTime {
        let sum = self.sum_of_parts(machine, peaks, values);
        let rule = values[Coefficient::Scalar(self.rule()).index()];
        let Some(depth) = self.depth.filter(|_| rule > 1.0) else { return sum };
        let bandwidth = machine.memory.get() / rule;
        let bandwidth = machine.measured.map_or(bandwidth, |measured| bandwidth.min(measured.get()));
        let memory = Seconds(self.cost().0.get() / bandwidth);
        let [by_sum, by_rule] =
            [sum, StepTime { overhead: Seconds::ZERO, memory, ..sum }].map(|part| part.total().get());
        // More tokens in the cache and more sequences are never faster: both times rise with them, and so does what the slower
        // of the two counts for. The faster counts for one sequence only.
        let time = if self.sequences <= 1.0 && by_rule < by_sum {
            by_rule
        } else {
            by_sum + depth * (by_rule - by_sum).max(0.0)
        };
        sum.scaled(time / by_sum)
    }

    /// The rule of thumb for such a model.
    fn rule(&self) -> Scalar {
        if self.expert_layers > 0.0 { Scalar::ExpertRule } else { Scalar::DenseRule }
    }

    fn sum_of_parts(&self, machine: &Machine, peaks: &impl Peaks, values: &Coefficients) -> StepTime {
        let get = |coefficient: Coefficient| values[coefficient.index()];
        let (mut dequantization, mut compute) = (0.0, 0.0);
        for (product, (few, many)) in self.products.iter().zip(self.product_times(machine, peaks, &get)) {
            // Floats are only multiplied.
            if few <= many && product.family != Family::Plain {
                dequantization += few;
            } else {
                compute += few.min(many);
            }
        }
        StepTime {
            overhead: self.overhead(machine, &get),
            memory: self.memory_time(machine, &get),
            dequantization: Seconds(dequantization),
            compute: Seconds(compute) + self.mixer_time(machine, peaks, &get),
            host: host_time(&self.host),
        }
    }

    /// Time of each product in seconds: by the kernel for few rows, and by the one for many; infinite where no unit
    /// computes it.
    fn product_times<'a>(
        &'a self,
        machine: &Machine,
        peaks: &'a impl Peaks,
        get: &'a impl Fn(Coefficient) -> f64,
    ) -> impl Iterator<Item = (f64, f64)> + 'a {
        let scalar = |scalar: Scalar| get(Coefficient::Scalar(scalar));
        let (ratio, half_rows, column_ratio) =
            (scalar(Scalar::Product), scalar(Scalar::HalfRows), scalar(Scalar::Column));
        let (eight, four) = (scalar(Scalar::EightBit), scalar(Scalar::FourBit));
        let is_llama = self.engine == Engine::LlamaCpp;
        let unpack = if is_llama { scalar(Scalar::Unpack) } else { 0.0 };
        let tokens = self.products.iter().map(|product| product.rows).fold(0.0, f64::max);
        let cycles = machine.cycles;
        self.products.iter().map(move |product| {
            let each = get(Coefficient::Cycles(product.family));
            let column = if self.has_no_unit(peaks, product.family) {
                column_ratio.max(COLUMN_WITHOUT_UNIT)
            } else {
                column_ratio
            };
            let one = product.weights * each / cycles;
            let few = one * (1.0 + column * (product.rows - 1.0).max(0.0));
            let many = self.unit(peaks, product.family).map_or(f64::INFINITY, |(precision, peak)| {
                let against = match narrow(precision) {
                    Some(Scalar::EightBit) => eight,
                    Some(_) => four,
                    None => 1.0,
                };
                product.work / (peak * (ratio * against).min(1.0)) * (1.0 + half_rows / product.rows.max(1.0))
                    + one * unpack * product.rows
            });
            let takes_few = !is_llama || tokens <= MOST_FEW || many.is_infinite();
            (if takes_few { few } else { f64::INFINITY }, many)
        })
    }

    /// Whether llama.cpp multiplies the family as 8-bit integers, and no matrix unit here does.
    fn has_no_unit(&self, peaks: &impl Peaks, family: Family) -> bool {
        let rate = |precision| peaks.peak(precision).map_or(0.0, |peak| peak.value.get());
        self.engine == Engine::LlamaCpp
            && precisions(self.engine, family).contains(&Precision::Int8)
            && rate(Precision::Int8) <= rate(Precision::Fp16)
    }

    /// Time of attention and of states over a prompt.
    fn mixer_time(
        &self,
        machine: &Machine,
        peaks: &impl Peaks,
        get: &impl Fn(Coefficient) -> f64,
    ) -> Seconds {
        let work = |work: f64, ratio: Scalar| {
            if work > 0.0 { work / get(Coefficient::Scalar(ratio)) } else { 0.0 }
        };
        let work = work(self.attention_work, Scalar::Attention) + work(self.scan_work, Scalar::Scan);
        if work <= 0.0 {
            return Seconds::ZERO;
        }
        Seconds(work / self.peak(peaks, Family::Plain).unwrap_or(machine.cycles))
    }

    /// Time beside the work: kernels, layers and sequences.
    fn overhead(&self, machine: &Machine, get: &impl Fn(Coefficient) -> f64) -> Seconds {
        let get = |scalar: Scalar| get(Coefficient::Scalar(scalar));
        let time = self.kernels * get(Scalar::Kernel)
            + self.linear_layers * get(Scalar::LinearLayer)
            + self.expert_layers * get(Scalar::ExpertLayer)
            + self.sequences * get(Scalar::Sequence);
        Seconds(time * machine.slowness())
    }

    fn memory_time(&self, machine: &Machine, get: &impl Fn(Coefficient) -> f64) -> Seconds {
        let get = |scalar: Scalar| get(Coefficient::Scalar(scalar));
        let weights = self.weight_bytes + (get(Scalar::Expert) - 1.0) * self.expert_bytes;
        let streamed = machine.memory * get(Scalar::Bandwidth);
        // A kernel streams no faster than what was measured here.
        let streamed =
            machine.measured.map_or(streamed, |measured| BytesPerSecond(streamed.get().min(measured.get())));
        let rest =
            self.cache_bytes * get(Scalar::Cache) + self.state_bytes * get(Scalar::State) + self.other_bytes;
        Bytes(weights) / streamed + Bytes(rest) / machine.memory
    }

    /// Peak of what a family is computed in where rows are many; `None` where nothing computes it.
    fn peak(&self, peaks: &impl Peaks, family: Family) -> Option<f64> {
        self.unit(peaks, family).map(|(_, peak)| peak)
    }

    /// Likewise with what that is.
    fn unit(&self, peaks: &impl Peaks, family: Family) -> Option<(Precision, f64)> {
        let paths = precisions(self.engine, family);
        paths.iter().find_map(|precision| Some((*precision, peaks.peak(*precision)?.value.get())))
    }

    /// The family that most weights are of; plain where there are none.
    #[must_use]
    pub fn main_family(&self) -> Family {
        let weights = |family: Family| self.weights_of(family);
        let families = self.products.iter().map(|product| product.family);
        families.max_by(|a, b| weights(*a).total_cmp(&weights(*b)).then(b.cmp(a))).unwrap_or(Family::Plain)
    }

    /// What a single operation of a pass asks, without the kernels around it.
    #[must_use]
    pub fn of_op(engine: Engine, op: &OpCost, prompt: bool) -> Self {
        let mut step = Self::empty(engine);
        step.add(op, prompt);
        step
    }

    /// Each family with the precision that its products of many rows would run in where every unit is there, and the
    /// one that they run in here.
    pub(super) fn paths<'a>(
        &'a self,
        peaks: &'a impl Peaks,
    ) -> impl Iterator<Item = (Family, Precision, Option<Precision>)> + 'a {
        self.products.iter().filter_map(|product| {
            let paths = precisions(self.engine, product.family);
            let found = paths.iter().copied().find(|precision| peaks.peak(*precision).is_some());
            // llama.cpp loses nothing by taking blocks of 4-bit floats as 8-bit integers.
            let is_usual = self.engine == Engine::LlamaCpp && found == Some(Precision::Int8);
            Some((product.family, if is_usual { Precision::Int8 } else { *paths.first()? }, found))
        })
    }

    /// Weights of a family.
    #[must_use]
    pub fn weights_of(&self, family: Family) -> f64 {
        self.products.iter().filter(|product| product.family == family).map(|product| product.weights).sum()
    }

    /// Whether any product has enough rows for a matrix unit.
    #[must_use]
    pub fn many_rows(&self) -> bool {
        self.products.iter().any(|product| product.rows > 8.0)
    }

    /// Time of the work alone, at the peaks.
    #[must_use]
    pub fn work_time(&self, roofline: &Roofline) -> Seconds {
        self.work_time_at(roofline)
    }

    pub(super) fn work_time_at(&self, peaks: &impl Peaks) -> Seconds {
        let work = |product: &Product| Some(product.work / self.peak(peaks, product.family)?);
        Seconds(self.products.iter().filter_map(work).sum())
    }

    /// The least time with every ceiling at the upper end of its interval: what is faster is impossible.
    #[must_use]
    pub fn fastest(&self, roofline: &Roofline) -> Seconds {
        self.fastest_at(roofline, roofline)
    }

    /// The same with the peaks of `roofline` resolved before.
    pub(super) fn fastest_at(&self, roofline: &Roofline, peaks: &impl Peaks) -> Seconds {
        let bandwidth = roofline.bandwidth.high.max(roofline.physical_bandwidth());
        (Bytes(self.least_bytes) / bandwidth).max(self.least_work_time(peaks, |peak| peak.high))
    }

    /// The least time that physics allows any implementation.
    #[must_use]
    pub fn floor(&self, roofline: &Roofline) -> Seconds {
        self.floor_at(roofline, roofline)
    }

    /// The same with the peaks of `roofline` resolved before.
    pub(super) fn floor_at(&self, roofline: &Roofline, peaks: &impl Peaks) -> Seconds {
        let moved = Bytes(self.least_bytes) / roofline.physical_bandwidth();
        moved.max(self.least_work_time(peaks, |peak| peak.value))
    }

    /// The least time that the engine is believed to take: no less than physics, nor than its work at the peak of what it
    /// computes in.
    #[must_use]
    pub fn least_by_engine(&self, roofline: &Roofline) -> Seconds {
        self.floor(roofline).max(self.work_time(roofline))
    }

    /// Work that nothing here is known to compute counts as nothing.
    fn least_work_time(
        &self,
        peaks: &impl Peaks,
        end: impl Fn(Ceiling<FlopsPerSecond>) -> FlopsPerSecond,
    ) -> Seconds {
        let time = |(family, work): &(Family, f64)| work * slowness_on(UNITS[units_of(*family)], peaks, &end);
        Seconds(self.least_work.iter().map(time).sum())
    }

    /// What costs energy beside time. Work that no unit takes counts as nothing, as it does in the time.
    #[must_use]
    pub fn activity(&self, roofline: &Roofline) -> Activity {
        self.activity_at(roofline)
    }

    pub(super) fn activity_at(&self, peaks: &impl Peaks) -> Activity {
        let mut activity = Activity { traffic: self.cost().0, ..Activity::default() };
        let unit = |family| {
            let paths = precisions(self.engine, family);
            paths.iter().copied().find(|precision| peaks.peak(*precision).is_some())
        };
        for product in &self.products {
            if product.family != Family::Plain {
                activity.dequantized += product.weights;
            }
            if let Some(precision) = unit(product.family) {
                activity.add_work(precision, Flops(product.work));
            }
        }
        if self.attention_work > 0.0
            && let Some(precision) = unit(Family::Plain)
        {
            activity.add_work(precision, Flops(self.attention_work));
        }
        activity
    }

    /// Bytes and operations of all of it.
    #[must_use]
    pub fn cost(&self) -> (Bytes, Flops) {
        let bytes = self.weight_bytes + self.cache_bytes + self.state_bytes + self.other_bytes;
        let work: f64 = self.products.iter().map(|product| product.work).sum();
        (Bytes(bytes), Flops(work + self.attention_work))
    }
}
