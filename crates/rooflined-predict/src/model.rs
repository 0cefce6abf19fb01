//! Time of a whole model on a roofline: a prompt, a token, or both.
//!
//! On a GPU the passes go through an engine's fitted costs ([`step`](super::step)), on a CPU through those of [`cpu`].
//! Where the accelerator's own kernels were calibrated and no engine's costs apply (an engine without costs on CPUs, or `none`
//! after a calibration) a pass is the sum of its operations, each predicted on its own by [`predict`].

use std::collections::BTreeMap;

use thiserror::Error;

use super::costs::{Coefficients, EngineCosts, Family, IntervalSource, Part as CostPart, values};
use super::cpu::{self, CpuCosts};
use super::estimate::{interval, relative_half_width};
use super::learning::anchor::NORMAL_90;
use super::learning::cpu_run::CpuRun;
use super::peaks::PeakTable;
use super::power::Activity;
use super::step::{HOST_BANDWIDTH, HOST_DOUBT, HOST_LINK, Machine, Step, StepTime};
use super::{Engine, EngineProfile, Limit, PredictError, Prediction, Tier, predict};
use rooflined_core::ceilings::{Bound, Provenance, Roofline};
use rooflined_core::operation::{Cost, Op};
use rooflined_core::precision::{NumericFormat, Precision};
use rooflined_core::units::{ArithmeticIntensity, Bytes, BytesPerSecond, Flops, Seconds};
use rooflined_models::class::Class;
use rooflined_models::model::Model;
use rooflined_models::transformer::{Offload, OpCost, Pass, Phase, Request, Run};

pub use super::prediction::{ModelPart, Part};

/// Whose costs a prediction uses.
#[derive(Debug, Clone, Copy)]
pub enum Costs<'a> {
    /// An engine's, fitted from whole runs.
    Engine(&'a EngineCosts),
    /// An engine's on a CPU.
    Cpu { costs: &'a CpuCosts, machine: &'a cpu::Machine },
    /// Calibrated kernels, one operation after the other.
    Kernels(&'a EngineProfile),
}

/// Why a model has no prediction.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// A count that cannot be.
    #[error(transparent)]
    Request(#[from] rooflined_models::transformer::InvalidRequest),
    /// An operation that cannot be, or runs on nothing here.
    #[error(transparent)]
    Op(#[from] PredictError),
    /// The ceilings say too little: no clock or no memory bandwidth.
    #[error("the ceilings of this accelerator are not known well enough: its clock or its memory is missing")]
    NoMachine,
}

/// How much of a prediction is worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// All that candidates are compared by.
    Figures,
    /// With the breakdown of the time and the warnings.
    Full,
}

/// The ceilings of an operating point, resolved once for every run that is predicted there.
#[derive(Debug)]
pub struct PointCeilings<'a> {
    roofline: &'a Roofline,
    peaks: PeakTable,
    /// `None` where it is no GPU, or too little is known of it.
    machine: Option<Machine>,
}

impl<'a> PointCeilings<'a> {
    #[must_use]
    pub fn of(roofline: &'a Roofline) -> Self {
        Self { roofline, peaks: PeakTable::of(roofline), machine: Machine::of(roofline) }
    }
}

/// What a request makes a model do in an engine: the same at every operating point.
#[derive(Debug)]
pub struct ModelRun<'m> {
    engine: Engine,
    model: &'m Model,
    request: Request,
    prefill: Vec<(Pass, Step)>,
    decode: Option<(Pass, Step)>,
    /// Of the model that drafts for it.
    draft: Option<Box<Self>>,
}

impl<'m> ModelRun<'m> {
    /// # Errors
    /// A request that cannot be.
    pub fn new(engine: Engine, model: &'m Model, request: &Request) -> Result<Self, ModelError> {
        Ok(Self::of(engine, model, request, Run::new(model, request)?))
    }

    fn of(engine: Engine, model: &'m Model, request: &Request, run: Run) -> Self {
        let Run { prefill, decode, draft } = run;
        let by = draft.zip(model.drafting.by.as_deref());
        let with_step = |pass: Pass| {
            let step = Step::new(engine, model, &pass);
            (pass, step)
        };
        Self {
            engine,
            model,
            request: *request,
            prefill: prefill.into_iter().map(with_step).collect(),
            decode: decode.map(with_step),
            draft: by.map(|(run, by)| Box::new(Self::of(engine, &by.model, &request.of_draft(), *run))),
        }
    }

    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }
}

/// Predicts what `request` makes `model` take.
///
/// # Errors
/// A request that cannot be, or ceilings that say too little.
pub fn predict_model(
    roofline: &Roofline,
    costs: Costs<'_>,
    model: &Model,
    request: &Request,
) -> Result<Prediction, ModelError> {
    let engine = match costs {
        Costs::Engine(costs) => costs.engine,
        Costs::Cpu { costs, .. } => costs.engine,
        Costs::Kernels(profile) => profile.engine,
    };
    let run = ModelRun::new(engine, model, request)?;
    predict_run(&PointCeilings::of(roofline), costs, &run, Detail::Full)
}

/// Predicts a run at an operating point.
///
/// # Errors
/// Ceilings that say too little.
pub fn predict_run(
    ceilings: &PointCeilings<'_>,
    costs: Costs<'_>,
    run: &ModelRun<'_>,
    detail: Detail,
) -> Result<Prediction, ModelError> {
    let (roofline, request) = (ceilings.roofline, &run.request);
    let mut total = Total::new(ceilings, run, detail);
    let of_draft = run.draft.as_deref();
    for of in [Some(run), of_draft].into_iter().flatten() {
        total.of = of;
        for (pass, step) in &of.prefill {
            total.add(costs, pass, step)?;
        }
    }
    let prompt = total.time;
    for of in [Some(run), of_draft].into_iter().flatten() {
        total.of = of;
        let Some((pass, step)) = &of.decode else { continue };
        total.add(costs, pass, step)?;
    }
    let mut warnings = std::mem::take(&mut total.warnings);
    if detail == Detail::Full {
        let of_request = request.warnings(run.model).into_iter().chain(run.model.warnings.iter().cloned());
        warnings.splice(0..0, of_request);
    }
    let (half_width, interval_from, tier) = doubt(
        roofline,
        costs,
        &total,
        request.batch.saturating_mul(request.verified_tokens()),
        if total.time.is_positive() { prompt / total.time } else { 0.0 },
    );
    let of_host = if total.time.is_positive() { total.step.host / total.time } else { 0.0 };
    let half_width = (1.0 + half_width) * (1.0 + HOST_DOUBT * of_host) - 1.0;
    if detail == Detail::Full && request.offload != Offload::default() {
        warnings.push(format!(
            "the CPU's part is predicted for a memory of {HOST_BANDWIDTH} and a link of {HOST_LINK}, as two channels of DDR5-5600 and PCIe 3.0 x16 have: \
             neither was measured"
        ));
    }
    let value = total.time.max(total.bound);
    let estimate = |time: Seconds, bound: Seconds| interval(time.max(bound), half_width, bound);
    let decode_steps = run.decode.as_ref().map_or(0.0, |(pass, _)| as_f64(pass.repeats));
    let per_token =
        (decode_steps > 0.0).then(|| (total.time - prompt) / (decode_steps * request.tokens_per_step()));
    let bound_share =
        |part: Seconds| if value.is_positive() { total.bound * (part / value) } else { Seconds::ZERO };
    let tokens = request.tokens();
    let peak = total.peak(roofline);
    let intensity_time = (total.traffic / roofline.bandwidth.value, total.work_time);
    total.parts.sort_by(|a, b| b.time.get().total_cmp(&a.time.get()));
    let limit = total.limit();
    Ok(Prediction {
        moved: Default::default(),
        time: estimate(value, total.bound),
        tokens,
        roofline_time: total.bound,
        floor: total.floor,
        cost: Cost { work: total.work, traffic: total.traffic, weights: total.weights },
        dequantized: total.activity.dequantized,
        compute: peak.0,
        ridge: peak.1,
        bound: if intensity_time.0 > intensity_time.1 { Bound::Memory } else { Bound::Compute },
        limit,
        tier,
        provenance: total.provenance,
        power: None,
        warnings,
        model: Some(Box::new(ModelPart {
            time_to_first_token: (request.phase != Phase::Decode)
                .then(|| estimate(prompt, bound_share(prompt))),
            time_per_token: per_token.map(|time| estimate(time, bound_share(time))),
            interval_from,
            breakdown: total.parts,
            work: total.activity.work,
        })),
    })
}

/// Relative half-width of the interval, where it comes from, and what the prediction rests on.
fn doubt(
    roofline: &Roofline,
    costs: Costs<'_>,
    total: &Total<'_>,
    batch: u64,
    prompt_share: f64,
) -> (f64, IntervalSource, Tier) {
    match costs {
        Costs::Engine(costs) => {
            let family = total.family.unwrap_or(Family::Plain);
            let depth = total.run.decode.as_ref().map_or(0.0, |(_, step)| step.depth());
            let interval = costs.interval(family, CostPart::of(batch, prompt_share), depth);
            let tier = measured_tier(roofline);
            (interval.half_width_ratio, interval.from, tier)
        }
        Costs::Cpu { costs, machine } => {
            let run = CpuRun { machine: machine.clone(), passes: total.cpu_passes.clone() };
            let own = (NORMAL_90 * run.prior_log_sd(costs)).exp_m1();
            let memory =
                if total.time.is_positive() { (total.step.memory / total.time).min(1.0) } else { 0.0 };
            let ceiling = relative_half_width(&roofline.bandwidth.map(BytesPerSecond::get)) * memory;
            let from = if costs.measured { IntervalSource::EngineAndMachine } else { IntervalSource::Engine };
            (own.hypot(ceiling), from, measured_tier(roofline))
        }
        Costs::Kernels(_) => (total.half_width(), IntervalSource::EngineAndMachine, total.tier),
    }
}

/// What a prediction rests on that takes an engine's costs from elsewhere.
const fn measured_tier(roofline: &Roofline) -> Tier {
    match roofline.bandwidth.provenance {
        Provenance::Measured | Provenance::Scaled => Tier::BoardCalibrated,
        _ => Tier::Prior,
    }
}

/// Sums over passes.
struct Total<'a> {
    ceilings: &'a PointCeilings<'a>,
    run: &'a ModelRun<'a>,
    /// What is being added: the run itself, or that of the model which drafts for it.
    of: &'a ModelRun<'a>,
    detail: Detail,
    time: Seconds,
    bound: Seconds,
    floor: Seconds,
    work: Flops,
    work_time: Seconds,
    traffic: Bytes,
    weights: f64,
    /// Times of the four ceilings.
    step: StepTime,
    parts: Vec<Part>,
    activity: Activity,
    warnings: Vec<String>,
    provenance: Provenance,
    tier: Tier,
    /// Sum of half-widths of operations by calibrated kernels: an error of one repeats in every layer.
    doubt: Seconds,
    compute: BTreeMap<Precision, f64>,
    /// What most weights of the first pass are stored in.
    family: Option<Family>,
    /// The coefficients of the engine's costs, worked out for the first pass.
    values: Option<Coefficients>,
    /// Passes on a CPU.
    cpu_passes: Vec<cpu::Repeated>,
}

impl<'a> Total<'a> {
    fn new(ceilings: &'a PointCeilings<'a>, run: &'a ModelRun<'a>, detail: Detail) -> Self {
        Self {
            ceilings,
            run,
            of: run,
            detail,
            time: Seconds::ZERO,
            bound: Seconds::ZERO,
            floor: Seconds::ZERO,
            work: Flops(0.0),
            work_time: Seconds::ZERO,
            traffic: Bytes::ZERO,
            weights: 0.0,
            step: StepTime {
                overhead: Seconds::ZERO,
                memory: Seconds::ZERO,
                dequantization: Seconds::ZERO,
                compute: Seconds::ZERO,
                host: Seconds::ZERO,
            },
            parts: Vec::new(),
            activity: Activity::default(),
            warnings: Vec::new(),
            provenance: ceilings.roofline.bandwidth.provenance,
            tier: Tier::EngineCalibrated,
            doubt: Seconds::ZERO,
            compute: BTreeMap::new(),
            family: None,
            values: None,
            cpu_passes: Vec::new(),
        }
    }

    fn add(&mut self, costs: Costs<'_>, pass: &Pass, step: &Step) -> Result<(), ModelError> {
        match costs {
            Costs::Engine(costs) => self.add_step(costs, pass, step),
            Costs::Cpu { costs, machine } => {
                self.add_cpu_pass(costs, machine, pass);
                Ok(())
            }
            Costs::Kernels(profile) => self.add_ops(profile, pass, step),
        }
    }

    fn add_step(&mut self, costs: &EngineCosts, pass: &Pass, step: &Step) -> Result<(), ModelError> {
        let PointCeilings { roofline, peaks, machine } = self.ceilings;
        let machine = machine.as_ref().ok_or(ModelError::NoMachine)?;
        let times = as_f64(pass.repeats);
        let values = *self.values.get_or_insert_with(|| values(&costs.log));
        let part = step.time_with(machine, peaks, &values);
        let (bound, work_time) = (step.floor_at(roofline, peaks), step.work_time_at(peaks));
        let time = part.total().max(bound.max(work_time));
        let (bytes, work) = step.cost();
        self.bound += bound * times;
        self.floor += step.fastest_at(roofline, peaks) * times;
        self.time += time * times;
        self.traffic += bytes * times;
        self.work += work * times;
        self.work_time += work_time * times;
        self.step.overhead += part.overhead * times;
        self.step.memory += part.memory * times;
        self.step.dequantization += part.dequantization * times;
        self.step.compute += part.compute * times;
        self.step.host += part.host * times;
        self.activity.add(&step.activity_at(peaks), times);
        self.family.get_or_insert_with(|| step.main_family());
        self.note_units(step);
        if self.detail == Detail::Full {
            self.spread(machine, &values, pass, time - part.overhead - part.host, times);
            self.part("overhead", part.overhead * times, Flops(0.0), Bytes::ZERO);
            if part.host.is_positive() {
                self.part("host", part.host * times, Flops(0.0), pass.host.traffic * times);
            }
        }
        Ok(())
    }

    fn add_cpu_pass(&mut self, costs: &CpuCosts, machine: &cpu::Machine, pass: &Pass) {
        let (roofline, model) = (self.ceilings.roofline, self.of.model);
        let work = cpu::Work::new(model, pass, self.run.request.kv_cache);
        let times = as_f64(pass.repeats);
        let part = work.time(machine, &costs.log);
        let bound = work.floor(machine, roofline);
        let time = part.total().max(bound);
        self.bound += bound * times;
        self.floor += work.fastest(machine, roofline) * times;
        self.time += time * times;
        self.traffic += work.bytes() * times;
        self.work += work.work() * times;
        self.step.overhead += part.overhead * times;
        self.step.memory += part.memory * times;
        self.step.dequantization += (part.unpacking + part.inputs) * times;
        self.step.compute += (part.arithmetic + part.attention) * times;
        self.activity.traffic += work.bytes() * times;
        let (mut floats, mut quantised) = (0.0, 0.0);
        for (kernel, weights) in work.weights() {
            *(if kernel.is_float() { &mut floats } else { &mut quantised }) += weights;
        }
        self.weights += floats + quantised;
        self.activity.dequantized += quantised * times;
        // Floats are multiplied in single precision, codes in the fastest that there is.
        let float = roofline.compute.get_key_value(&Precision::Fp32).filter(|_| floats > quantised);
        let fastest = || roofline.compute.iter().max_by(|a, b| a.1.value.get().total_cmp(&b.1.value.get()));
        if let Some((precision, peak)) = float.or_else(fastest) {
            self.work_time += work.work() / peak.value * times;
            self.activity.add_work(*precision, work.work() * times);
            *self.compute.entry(*precision).or_default() += floats + quantised;
        }
        if self.detail == Detail::Full {
            let alone: Vec<f64> = work.alone(model, pass, machine, &costs.log).collect();
            let sum: f64 = alone.iter().sum();
            for (op, alone) in pass.ops.iter().zip(alone) {
                let share = if sum > 0.0 { alone / sum } else { 0.0 };
                let time = (time - part.overhead).max(Seconds::ZERO) * (share * times);
                self.part(op.kind.key(), time, op.cost.work * times, op.cost.traffic * times);
            }
            self.part("overhead", part.overhead * times, Flops(0.0), Bytes::ZERO);
        }
        self.cpu_passes.push(cpu::Repeated { work, times });
    }

    /// Counts what the weights are computed in, and warns once of a format that no unit takes.
    fn note_units(&mut self, step: &Step) {
        for (family, wanted, found) in step.paths(&self.ceilings.peaks) {
            if let Some(found) = found {
                *self.compute.entry(found).or_default() += step.weights_of(family);
                self.weights += step.weights_of(family);
            }
            if self.detail == Detail::Full && found != Some(wanted) && step.many_rows() {
                let path = found.map_or("nothing", Precision::key);
                let text = format!(
                    "no {wanted} unit for {}: {} is computed in {path}",
                    step.engine.key(),
                    family.key()
                );
                self.warn_once(text);
            }
        }
    }

    fn warn_once(&mut self, text: String) {
        let known = self.run.model.warnings.iter().chain(&self.warnings).any(|known| *known == text);
        if !known {
            self.warnings.push(text);
        }
    }

    /// Spreads a pass's time beside its overhead over the kinds of operations, in proportion to what each takes alone.
    fn spread(&mut self, machine: &Machine, values: &Coefficients, pass: &Pass, time: Seconds, times: f64) {
        let (engine, peaks) = (self.run.engine, &self.ceilings.peaks);
        let alone: Vec<f64> = pass
            .ops
            .iter()
            .map(|op| Step::of_op(engine, op, pass.prompt).time_with(machine, peaks, values).total().get())
            .collect();
        let sum: f64 = alone.iter().sum();
        for (op, alone) in pass.ops.iter().zip(alone) {
            let share = if sum > 0.0 { alone / sum } else { 0.0 };
            self.part(op.kind.key(), time * (share * times), op.cost.work * times, op.cost.traffic * times);
        }
    }

    fn part(&mut self, name: &'static str, time: Seconds, work: Flops, traffic: Bytes) {
        let name = if std::ptr::eq(self.of, self.run) { name } else { Class::Draft.key() };
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(part) => {
                part.time += time;
                part.work += work;
                part.traffic += traffic;
            }
            None => self.parts.push(Part { name, time, work, traffic }),
        }
    }

    fn add_ops(&mut self, profile: &EngineProfile, pass: &Pass, step: &Step) -> Result<(), ModelError> {
        let roofline = self.ceilings.roofline;
        let times = as_f64(pass.repeats);
        self.bound += step.floor(roofline) * times;
        self.floor += step.fastest(roofline) * times;
        for op in &pass.ops {
            let (time, precision) = self.op_time(profile, op)?;
            let work = op.cost.work * times;
            let traffic = op.cost.traffic * times;
            self.activity.traffic += traffic;
            self.activity.add_work(precision, work);
            if op.block.is_some_and(|block| Family::of(block) != Family::Plain) {
                self.activity.dequantized += op.cost.weights * times;
            }
            self.time += time * times;
            self.traffic += traffic;
            self.work += work;
            self.weights += op.cost.weights;
            if self.detail == Detail::Full {
                self.part(op.kind.key(), time * times, work, traffic);
            }
        }
        Ok(())
    }

    /// Time of one operation of a pass by calibrated kernels, and what it is computed in.
    fn op_time(&mut self, profile: &EngineProfile, op: &OpCost) -> Result<(Seconds, Precision), ModelError> {
        let roofline = self.ceilings.roofline;
        let Some((single, format)) = as_product(&self.run.request, op, profile) else {
            return Ok((self.moving_time(roofline, op), Precision::Fp32));
        };
        let one = predict(roofline, profile, &single, &format)?;
        let time = one.time.value * op.count;
        self.doubt += time * (one.time.high / one.time.value - 1.0);
        match one.limit {
            Limit::Core => self.step.dequantization += time,
            Limit::Compute => self.step.compute += time,
            Limit::Launch => self.step.overhead += time,
            Limit::Dram | Limit::SmPull | Limit::Cache | Limit::PowerCap => self.step.memory += time,
        }
        self.tier = self.tier.min(one.tier);
        self.provenance = self.provenance.max(one.provenance);
        self.work_time +=
            roofline.compute(one.compute).map_or(Seconds::ZERO, |peak| op.cost.work / peak.value);
        *self.compute.entry(one.compute).or_default() += op.cost.weights;
        if self.detail == Detail::Full {
            one.warnings.into_iter().for_each(|warning| self.warn_once(warning));
        }
        Ok((time, one.compute))
    }

    /// Time of what is no product: it is started as often as it counts, moves its bytes and does its work in fp32.
    fn moving_time(&mut self, roofline: &Roofline, op: &OpCost) -> Seconds {
        let moved = op.cost.traffic / roofline.bandwidth.value;
        let worked =
            roofline.compute(Precision::Fp32).map_or(Seconds::ZERO, |peak| op.cost.work / peak.value);
        let started = roofline.launch.value * op.count;
        self.step.memory += moved;
        self.step.compute += worked;
        self.step.overhead += started;
        let time = started + moved.max(worked);
        // Half of it: most of its bytes are in a cache, and its kernels are not calibrated.
        self.doubt += time * 0.5;
        time
    }

    /// Relative half-width of what calibrated kernels take.
    fn half_width(&self) -> f64 {
        if self.time.is_positive() { self.doubt / self.time } else { 0.0 }
    }

    fn limit(&self) -> Limit {
        self.step.limit().under(self.ceilings.roofline)
    }

    /// What most weights are computed in, and its ridge.
    fn peak(&self, roofline: &Roofline) -> (Precision, ArithmeticIntensity) {
        let most = self.compute.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(precision, _)| *precision);
        let precision = most.or_else(|| roofline.compute.keys().next().copied()).unwrap_or(Precision::Fp32);
        (precision, roofline.ridge(precision).unwrap_or(ArithmeticIntensity(0.0)))
    }
}

/// One of the products that `op` stands for, and its formats; `None` for what is no product.
fn as_product(request: &Request, op: &OpCost, profile: &EngineProfile) -> Option<(Op, NumericFormat)> {
    let (shape, weights) = (op.shape?, op.block?.format()?);
    let stored = NumericFormat::stored(weights);
    let compute = profile.formats.get(&weights).map_or(stored.compute, |known| known.compute);
    let (activations, kv_cache) = (request.activations, request.kv_cache);
    let format = NumericFormat { weights, activations, kv_cache, compute };
    Some((Op::Gemm { m: round_rows(shape.m), n: shape.n, k: shape.k }, format))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rows are bounded by tokens x batch"
)]
fn round_rows(rows: f64) -> u64 {
    rows.round().max(1.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts are bounded by MAX_TOKENS")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}
