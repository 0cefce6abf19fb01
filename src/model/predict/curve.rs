//! A model's time and energy at one operating point as functions of the batch, for searches over many batches.
//!
//! What a pass of a dense model asks for is a line in the batch: weights once, cache and work for every sequence. Two
//! passes fix the line, and all that the batch costs at an operating point is a few multiplications. How many experts a
//! batch reads is no line, so a mixture of experts is worked out batch by batch. Either way the figures are those of
//! [`predict_model`](super::model::predict_model), and a test holds them to it.

use std::cell::OnceCell;
use std::ops::{Range, RangeInclusive};

use pulp::{Arch, NullaryFnOnce};
use smallvec::SmallVec;

use super::costs::{Coefficient, Coefficients, EngineCosts, GUESSED_INTERVAL, Interval, Intervals, Part};
use super::model::ModelError;
use super::peaks::{PeakTable, Peaks as _};
use super::power::{Activity, PowerCosts, rungs};
use super::step::{LayerKernels, Machine, Slowness, Step};
use roofline::ceilings::Roofline;
use roofline::units::{BytesPerSecond, Seconds, Watts};
use roofline::workload::model::Model;
use roofline::workload::transformer::{MAX_BATCH, Pass, Phase, Request, Run, Runs};

/// The batches of a range, and those beside it by which power is known not to fall ([`Rising`](super::power::Rising)).
#[derive(Debug, Clone)]
pub struct Batches {
    asked: RangeInclusive<u64>,
    beside: Vec<u64>,
    climb: Vec<Between>,
    /// How far each batch asked for is from the rung below it to the one above.
    along: Vec<f64>,
    /// Sequences beside the first, of all.
    further: Vec<f64>,
}

/// A rung, the one above it, and the batches asked for that lie from the one to below the other.
#[derive(Debug, Clone)]
struct Between {
    /// Places among all batches.
    low: Option<usize>,
    high: Option<usize>,
    asked: Range<usize>,
}

impl Batches {
    #[must_use]
    pub fn new(asked: RangeInclusive<u64>) -> Self {
        let possible = rungs(*asked.end()).filter(|rung| *rung <= MAX_BATCH);
        let beside = possible.filter(|rung| !asked.contains(rung)).collect();
        let mut batches = Self { asked, beside, climb: Vec::new(), along: Vec::new(), further: Vec::new() };
        batches.further = batches.all().map(|batch| as_f64(batch) - 1.0).collect();
        let mut rungs = rungs(batches.last()).peekable();
        while let Some(rung) = rungs.next() {
            let above = rungs.peek().copied();
            let from = batches.along.len();
            let start = *batches.asked.start();
            let lie = start.max(rung)..above.unwrap_or(rung + 1).min(batches.last().saturating_add(1));
            let far = as_f64(above.unwrap_or(rung + 1) - rung);
            batches.along.extend(lie.map(|batch| as_f64(batch - rung) / far));
            let (low, high) = (batches.index(rung), above.and_then(|above| batches.index(above)));
            batches.climb.push(Between { low, high, asked: from..batches.along.len() });
        }
        batches
    }

    /// Those asked for.
    #[must_use]
    pub fn asked(&self) -> RangeInclusive<u64> {
        self.asked.clone()
    }

    /// Those asked for, and then the others.
    pub fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.asked().chain(self.beside.iter().copied())
    }

    /// Sequences beside the first of each of [`all`](Self::all).
    #[must_use]
    pub fn further(&self) -> &[f64] {
        &self.further
    }

    /// The largest that was asked for.
    #[must_use]
    pub const fn last(&self) -> u64 {
        *self.asked.end()
    }

    /// How many were asked for.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "as many as there are candidates")]
    pub fn count(&self) -> usize {
        self.asked.end().saturating_add(1).saturating_sub(*self.asked.start()) as usize
    }

    /// Watts of each batch asked for, no less than of any smaller, as [`Rising`](super::power::Rising) has them, from those
    /// of all batches alone; NaN for what is unknown.
    pub fn rising(&self, alone: &[f64], risen: &mut Vec<f64>) {
        risen.resize(self.along.len(), f64::NAN);
        let known = |place: Option<usize>| alone.get(place?).copied().filter(|watts| watts.is_finite());
        let mut low = f64::NAN;
        for between in &self.climb {
            low = known(between.low).map_or(low, |watts| watts.max(low));
            let climb = known(between.high).map_or(low, |watts| watts.max(low)) - low;
            let asked = between.asked.clone();
            for (risen, along) in risen[asked.clone()].iter_mut().zip(&self.along[asked]) {
                *risen = low + climb * along;
            }
        }
    }

    /// The place of a batch among all; `None` of one that is not there.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "an index into a list that exists")]
    pub fn index(&self, batch: u64) -> Option<usize> {
        if self.asked.contains(&batch) {
            return Some((batch - self.asked.start()) as usize);
        }
        Some(self.count() + self.beside.iter().position(|known| *known == batch)?)
    }
}

/// A run's passes for every batch of a range, whatever the machine.
#[derive(Debug, Clone)]
pub struct BatchSteps<'b> {
    phase: Phase,
    batches: &'b Batches,
    /// Tokens of the run for each sequence.
    tokens_each: f64,
    /// One over those of each batch.
    part_of_token: Vec<f64>,
    decode_tokens: f64,
    passes: Vec<Passes>,
    /// What costs energy with one and with two sequences where everything is a line, at the first operating point that
    /// asked, and the precisions that it has units for: others mostly have the same.
    activities: OnceCell<(u32, [Activity; 2])>,
}

#[derive(Debug, Clone)]
struct Passes {
    repeats: f64,
    prompt: bool,
    steps: Steps,
}

#[derive(Debug, Clone)]
enum Steps {
    /// With one and with two sequences; all others lie on the line through them.
    Line(Box<[Step; 2]>),
    /// For each batch.
    Each(Vec<Step>),
}

impl<'b> BatchSteps<'b> {
    /// What `request` makes `model` do with each of the `batches`; the request's own batch is not looked at.
    ///
    /// # Errors
    /// A request that cannot be.
    pub fn new(
        engine: super::Engine,
        model: &Model,
        request: &Request,
        batches: &'b Batches,
    ) -> Result<Self, ModelError> {
        for batch in [*batches.asked.start(), *batches.asked.end()] {
            Request { batch, ..*request }.validate()?;
        }
        let runs = Runs::of(model);
        let run = |batch| runs.run(&Request { batch, ..*request });
        let [one, two] = [run(1)?, run(2)?];
        let layers = LayerKernels::of(model);
        let step = |pass: &Pass| Step::through(engine, &layers, pass);
        let mut passes: Vec<Passes> = every_pass(&one)
            .zip(every_pass(&two))
            .map(|((a, prompt), (b, _))| Passes {
                repeats: as_f64(a.repeats),
                prompt,
                steps: Steps::Line(Box::new([step(a), step(b)])),
            })
            .collect();
        let straight = |passes: &Passes| match &passes.steps {
            Steps::Line(ends) => ends[0].in_line_with(&ends[1]),
            Steps::Each(_) => false,
        };
        if !passes.iter().all(straight) {
            passes.iter_mut().for_each(|passes| passes.steps = Steps::Each(Vec::new()));
            for batch in batches.all() {
                let run = run(batch)?;
                for (passes, (pass, _)) in passes.iter_mut().zip(every_pass(&run)) {
                    if let Steps::Each(steps) = &mut passes.steps {
                        steps.push(step(pass));
                    }
                }
            }
        }
        let decode_steps = one.decode.as_ref().map_or(0.0, |pass| as_f64(pass.repeats));
        let tokens_each = Request { batch: 1, ..*request }.tokens();
        let decode_tokens = decode_steps * request.tokens_per_step();
        let part = |further: &f64| 1.0 / (tokens_each * (further + 1.0));
        Ok(Self {
            phase: request.phase,
            batches,
            tokens_each,
            part_of_token: batches.further.iter().map(part).collect(),
            decode_tokens,
            passes,
            activities: OnceCell::new(),
        })
    }
}

/// Every pass of a run, and whether it reads the prompt.
fn every_pass(run: &Run) -> impl Iterator<Item = (&Pass, bool)> {
    run.prefill.iter().map(|pass| (pass, true)).chain(run.decode.iter().map(|pass| (pass, false)))
}

/// A quantity that is a line in the batch.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// With one sequence.
    one: f64,
    /// What each further one adds.
    more: f64,
}

impl Line {
    fn through(ends: [f64; 2]) -> Self {
        let more = ends[1] - ends[0];
        // What nothing computes takes for ever with any batch.
        Self { one: ends[0], more: if more.is_finite() { more } else { 0.0 } }
    }

    #[inline(always)]
    fn at(self, further: f64) -> f64 {
        // Without fused multiply-add: a processor of the baseline has none, and calling it costs more than the sum.
        self.one + self.more * further
    }
}

/// The time of one kind of pass.
#[derive(Debug)]
struct PassCurve {
    repeats: f64,
    prompt: bool,
    overhead: Line,
    memory: Line,
    attention: Line,
    /// By the kernel for few rows, and by the one for many.
    products: SmallVec<[[Line; 2]; 4]>,
    /// Bytes that any implementation reads, at the memory's own bandwidth.
    moved: Line,
    /// Work that any implementation does, at the fastest peaks.
    worked: Line,
    /// The engine's work at the peaks of what it computes in.
    worked_by_engine: Line,
}

impl PassCurve {
    fn new<'s>(passes: &Passes, ends: &'s [Step; 2], context: &'s StepContext<'_>) -> Self {
        let line = |quantity: &dyn Fn(&Step) -> f64| Line::through([quantity(&ends[0]), quantity(&ends[1])]);
        let [one, two] = ends;
        let get = |coefficient: Coefficient| context.values[coefficient.index()];
        let times = |step: &'s Step| step.product_times(context.machine, context.peaks, &get);
        let [moved, worked] = Step::floors_of(ends, context.bandwidth, context.slowness);
        Self {
            repeats: passes.repeats,
            prompt: passes.prompt,
            overhead: line(&|step| step.overhead(context.machine, &get).get()),
            memory: line(&|step| step.memory_time(context.machine, &get).get()),
            attention: line(&|step| step.attention_time(context.machine, context.peaks, &get).get()),
            products: times(one)
                .zip(times(two))
                .map(|((few, many), (few_two, many_two))| {
                    [Line::through([few, few_two]), Line::through([many, many_two])]
                })
                .collect(),
            moved: Line::through(moved),
            worked: Line::through(worked),
            worked_by_engine: line(&|step| step.work_time_at(context.peaks).get()),
        }
    }
}

/// Adds time and bound of all passes of each kind, in seconds, for each batch.
struct AddPasses<'p> {
    passes: &'p [PassCurve],
    further: &'p [f64],
    columns: &'p mut Columns,
}

// Plain loops over columns, which the compiler turns into vector instructions, once for each width of vectors: what is
// called has to be inlined for that. Nothing is reordered or fused, so results are the same to the bit with any.
impl NullaryFnOnce for AddPasses<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Columns { core, prompt, total, inverse, bound } = self.columns;
        for pass in self.passes {
            pass.core(self.further, core);
            pass.add_to(self.further, core, total, bound);
            if pass.prompt {
                prompt.iter_mut().zip(&*core).for_each(|(prompt, time)| *prompt += time);
            }
        }
        inverse.iter_mut().zip(&*total).for_each(|(inverse, total)| *inverse = 1.0 / total);
    }
}

impl PassCurve {
    /// Time of arithmetic and dequantization.
    #[inline(always)]
    fn core(&self, further: &[f64], core: &mut [f64]) {
        let attention = self.attention;
        core.iter_mut().zip(further).for_each(|(core, further)| *core = attention.at(*further));
        for &[few, many] in &self.products {
            for (core, further) in core.iter_mut().zip(further) {
                *core += least(few.at(*further), many.at(*further));
            }
        }
    }

    /// Adds time and bound; the place of `core` takes the time of this kind of pass.
    #[inline(always)]
    fn add_to(&self, further: &[f64], core: &mut [f64], total: &mut [f64], bound: &mut [f64]) {
        let Self { repeats, overhead, memory, moved, worked, worked_by_engine, .. } = *self;
        for (((further, core), total), bound) in further.iter().zip(core).zip(total).zip(bound) {
            let memory = memory.at(*further);
            let floor = most(moved.at(*further), worked.at(*further));
            let overlapped = most(most(norm(memory, *core), memory), *core);
            let least = most(floor, worked_by_engine.at(*further));
            *core = most(overhead.at(*further) + overlapped, least) * repeats;
            *total += *core;
            *bound += floor * repeats;
        }
    }
}

/// (a^4 + b^4)^(1/4), as [`StepTime::total`](super::step::StepTime::total) joins parts that overlap.
#[inline(always)]
fn norm(a: f64, b: f64) -> f64 {
    let (a, b) = (a * a, b * b);
    (a * a + b * b).sqrt().sqrt()
}

/// The larger of two that are numbers, in one instruction.
#[inline(always)]
fn most(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn least(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// A run with every batch of a range, before anything that was learnt, in seconds.
#[derive(Debug, Default)]
pub struct Columns {
    core: Vec<f64>,
    /// Until the first token.
    pub prompt: Vec<f64>,
    pub total: Vec<f64>,
    /// One over that: several quotients have it below the line, and a product takes a fifth of the time.
    inverse: Vec<f64>,
    /// The plain physical bound.
    pub bound: Vec<f64>,
}

impl Columns {
    fn clear(&mut self, count: usize) {
        let Self { core, prompt, total, inverse, bound } = self;
        for column in [core, inverse] {
            column.resize(count, 0.0);
        }
        for column in [prompt, total, bound] {
            column.resize(count, 0.0);
            column.fill(0.0);
        }
    }
}

/// Energy of a run beside the static part, in joules, and what has to be known for it.
#[derive(Debug, Clone, Copy)]
struct RunEnergy {
    dynamic: super::power::Dynamic,
    /// Longest time of the work of one precision at its peak; counts where the energy of an operation is unknown.
    work: f64,
}

/// The same as lines in the batch; of the work one for each precision.
#[derive(Debug)]
struct EnergyLines {
    base: Line,
    value: Line,
    low: Line,
    high: Line,
    work: SmallVec<[Line; 4]>,
}

#[derive(Debug)]
enum Energy {
    Line(EnergyLines),
    Each(Vec<Option<RunEnergy>>),
}

/// What curves ask of an operating point, worked out once for all of them.
#[derive(Debug)]
pub struct Site {
    machine: Option<Machine>,
    peaks: PeakTable,
    bandwidth: BytesPerSecond,
    slowness: Slowness,
}

impl Site {
    #[must_use]
    pub fn of(roofline: &Roofline) -> Self {
        let peaks = PeakTable::of(roofline);
        let slowness = Slowness::of(&peaks);
        let (machine, bandwidth) = (Machine::of(roofline), roofline.physical_bandwidth());
        Self { machine, peaks, bandwidth, slowness }
    }
}

/// An operating point as steps see it.
struct StepContext<'a> {
    machine: &'a Machine,
    peaks: &'a PeakTable,
    bandwidth: BytesPerSecond,
    slowness: &'a Slowness,
    values: &'a Coefficients,
}

#[derive(Debug)]
enum Times {
    Line(Vec<PassCurve>),
    /// Prompt, all, and bound for each batch of the range.
    Each(Vec<(f64, f64, f64)>),
}

/// Power of a run in watts.
#[derive(Debug, Clone, Copy)]
pub struct RunPower {
    /// The best estimate.
    pub watts: f64,
    dynamic: super::power::Dynamic,
}

/// What an engine's costs say of the passes of a run, whatever the operating point.
#[derive(Debug)]
pub struct StepCosts<'a> {
    costs: &'a EngineCosts,
    /// The coefficients that the logarithms of `costs` stand for.
    values: Coefficients,
    /// For each batch of the range; one where all have the same.
    intervals: Vec<Intervals>,
}

impl<'a> StepCosts<'a> {
    /// `values` are those that the costs stand for, which have to be worked out.
    #[must_use]
    pub fn new(costs: &'a EngineCosts, values: &Coefficients, steps: &BatchSteps<'_>) -> Self {
        let of = |step: &Step| costs.intervals(step.main_family());
        let intervals = match steps.passes.first().map(|passes| &passes.steps) {
            Some(Steps::Line(ends)) => vec![of(&ends[0])],
            Some(Steps::Each(steps)) => steps.iter().map(of).collect(),
            None => Vec::new(),
        };
        Self { costs, values: *values, intervals }
    }

    /// Whether they are of these very costs.
    #[must_use]
    pub fn are_of(&self, costs: &EngineCosts) -> bool {
        std::ptr::eq(self.costs, costs)
    }
}

/// Time and energy at one operating point by the batch.
#[derive(Debug)]
pub struct Curve<'a> {
    phase: Phase,
    batches: &'a Batches,
    tokens_each: f64,
    part_of_token: &'a [f64],
    decode_tokens: f64,
    times: Times,
    energy: Option<(&'a PowerCosts, Energy)>,
    intervals: &'a [Intervals],
}

impl<'a> Curve<'a> {
    /// The curve at an operating point, with the `costs` of these very steps.
    ///
    /// # Errors
    /// Ceilings that say too little.
    pub fn new(
        steps: &'a BatchSteps<'_>,
        site: &Site,
        costs: &'a StepCosts<'_>,
        power: Option<&'a PowerCosts>,
    ) -> Result<Self, ModelError> {
        let Site { ref machine, ref peaks, bandwidth, ref slowness } = *site;
        let machine = machine.as_ref().ok_or(ModelError::NoMachine)?;
        let context = StepContext { machine, peaks, bandwidth, slowness, values: &costs.values };
        let lines: Option<Vec<PassCurve>> = steps
            .passes
            .iter()
            .map(|passes| match &passes.steps {
                Steps::Line(ends) => Some(PassCurve::new(passes, ends, &context)),
                Steps::Each(_) => None,
            })
            .collect();
        let times = lines.map_or_else(|| Times::Each(each_time(steps, &context)), Times::Line);
        let energy = power.and_then(|power| Some((power, energy(steps, peaks, power)?)));
        Ok(Self {
            phase: steps.phase,
            batches: steps.batches,
            tokens_each: steps.tokens_each,
            part_of_token: &steps.part_of_token,
            decode_tokens: steps.decode_tokens,
            times,
            energy,
            intervals: &costs.intervals,
        })
    }

    /// Tokens that the decode adds to every sequence; 0 where there is none.
    #[must_use]
    pub const fn decode_tokens(&self) -> f64 {
        self.decode_tokens
    }

    /// The batches that it is of.
    #[must_use]
    pub const fn batches(&self) -> &Batches {
        self.batches
    }

    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Works out every batch that the steps were made for, in the order of [`Batches::all`].
    pub fn fill(&self, columns: &mut Columns) {
        let further = &self.batches.further;
        columns.clear(further.len());
        match &self.times {
            Times::Line(passes) => Arch::new().dispatch(AddPasses { passes, further, columns }),
            Times::Each(times) => {
                for (index, (prompt, total, bound)) in times.iter().enumerate().take(columns.total.len()) {
                    columns.prompt[index] = *prompt;
                    columns.total[index] = *total;
                    columns.bound[index] = *bound;
                    columns.inverse[index] = 1.0 / total;
                }
            }
        }
    }

    /// Tokens of the run over all sequences.
    #[must_use]
    pub fn tokens(&self, batch: u64) -> f64 {
        self.tokens_each * as_f64(batch)
    }

    /// Tokens per second of each batch.
    #[inline(always)]
    pub fn rate(&self, columns: &Columns, rate: &mut [f64]) {
        for ((rate, further), inverse) in rate.iter_mut().zip(&self.batches.further).zip(&columns.inverse) {
            *rate = self.tokens_each * (further + 1.0) * inverse;
        }
    }

    /// Joules for a token of each batch that draws so many watts.
    #[inline(always)]
    pub fn joules_per_token(&self, columns: &Columns, watts: &[f64], joules: &mut [f64]) {
        let given = watts.iter().zip(&columns.total).zip(self.part_of_token);
        for (joules, ((watts, total), part)) in joules.iter_mut().zip(given) {
            *joules = watts * total * part;
        }
    }

    /// The interval of a run of which the prompt takes this part of the time.
    #[must_use]
    pub fn interval(&self, batch: u64, prompt_share: f64) -> Interval {
        let own = self.batches.index(batch).and_then(|index| self.intervals.get(index));
        let of = own.or(self.intervals.first());
        of.map_or(GUESSED_INTERVAL, |of| of.of(Part::of(batch, prompt_share)))
    }

    /// Upper over middle of the interval of each batch.
    #[inline(always)]
    pub fn slack(&self, columns: &Columns, slack: &mut [f64]) {
        let Columns { prompt, total, .. } = columns;
        let [all] = self.intervals else { return self.each_slack(columns, slack) };
        // Three intervals for all: of a prompt, of one sequence, and of several.
        let of = |batch, share| 1.0 + all.of(Part::of(batch, share)).half_width_ratio;
        let (prefill, one, several) = (of(2, 1.0), of(1, 0.0), of(2, 0.0));
        if self.phase == Phase::Decode {
            slack.fill(several);
        } else {
            for ((slack, prompt), total) in slack.iter_mut().zip(prompt).zip(total) {
                *slack = if *prompt > 0.5 * total { prefill } else { several };
            }
        }
        if let Some(index) = self.batches.index(1)
            && (self.phase == Phase::Decode || prompt[index] <= 0.5 * total[index])
        {
            slack[index] = one;
        }
    }

    /// The same where each batch has intervals of its own.
    fn each_slack(&self, columns: &Columns, slack: &mut [f64]) {
        let Columns { prompt, total, .. } = columns;
        let rows = slack.iter_mut().zip(self.batches.all()).zip(prompt).zip(total);
        for (((slack, batch), prompt), total) in rows {
            let share = if self.phase == Phase::Decode { 0.0 } else { prompt / total };
            *slack = 1.0 + self.interval(batch, share).half_width_ratio;
        }
    }

    /// The least time in seconds that the power limit allows with `batch` sequences; 0 without a limit.
    #[must_use]
    pub fn least_time(&self, batch: u64) -> f64 {
        self.spent(batch)
            .map_or(0.0, |(costs, spent)| costs.least_seconds(spent.dynamic.base, spent.dynamic.low))
    }

    /// Relative half-width of what power costs; 0 where nothing is known of it.
    #[must_use]
    pub fn power_half_width(&self) -> f64 {
        self.energy.as_ref().map_or(0.0, |(costs, _)| costs.half_width_ratio)
    }

    /// Energy in joules of the run where it takes `time` seconds, and the part of it beside the static one; `None` where too
    /// little is known.
    #[must_use]
    pub fn energy(&self, batch: u64, time: f64) -> Option<RunPower> {
        let (costs, spent) = self.spent(batch)?;
        if costs.coefficients.flop_j.is_none() && PowerCosts::matters(Seconds(spent.work), Seconds(time)) {
            return None;
        }
        let dynamic = spent.dynamic;
        let total =
            costs.coefficients.static_w * time + dynamic.base + dynamic.value.min(costs.busy_w() * time);
        let watts = costs.capped_watts(total / time);
        (total.is_finite() && total > 0.0).then_some(RunPower { watts, dynamic })
    }

    /// Whether the power limit slows down a run of any batch that `columns` were filled with.
    #[must_use]
    pub fn is_slowed(&self, columns: &Columns) -> bool {
        match &self.energy {
            None => false,
            Some((costs, Energy::Line(EnergyLines { base, low, .. }))) => {
                let [whole, beside_busy_cores] = costs.seconds_per_joule();
                let rows = self.batches.further.iter().zip(&columns.total);
                // All of them, because a loop that may end early takes them one by one.
                rows.fold(false, |slowed, (further, time)| {
                    let (base, low) = (base.at(*further), low.at(*further));
                    slowed | (least(base * beside_busy_cores, (base + low) * whole) > *time)
                })
            }
            Some((_, Energy::Each(_))) => true,
        }
    }

    /// Power in watts of each batch, and where `highest` asks for it its upper end, with the interval of the time being
    /// `slack` times up and down, but for the bound. NaN where too little is known.
    pub fn watts(
        &self,
        columns: &Columns,
        slack: &[f64],
        highest: bool,
        watts: &mut [f64],
        high: &mut [f64],
    ) {
        let Some((costs, Energy::Line(lines))) = &self.energy else {
            watts.fill(f64::NAN);
            high.fill(f64::NAN);
            return;
        };
        let further = &self.batches.further;
        Arch::new().dispatch(Draw { costs, lines, further, columns, watts });
        if highest {
            Arch::new().dispatch(HighestDraw { costs, lines, further, columns, slack, high });
        } else {
            high.fill(f64::NAN);
        }
        if costs.coefficients.flop_j.is_none() {
            for (index, further) in self.batches.further.iter().enumerate() {
                let work = lines.work.iter().map(|line| line.at(*further)).fold(0.0, f64::max);
                if PowerCosts::matters(Seconds(work), Seconds(columns.total[index])) {
                    watts[index] = f64::NAN;
                    high[index] = f64::NAN;
                }
            }
        }
    }

    /// Upper end of the power of what [`energy`](Self::energy) returned, where the time is uncertain by the factor
    /// `1 + slow` both ways.
    #[must_use]
    pub fn highest_watts(&self, power: &RunPower, time: f64, slow: f64) -> f64 {
        let Some((costs, _)) = self.energy.as_ref() else { return f64::NAN };
        costs.watts_over(&power.dynamic, time, slow).1
    }

    fn spent(&self, batch: u64) -> Option<(&'a PowerCosts, RunEnergy)> {
        let (costs, energy) = self.energy.as_ref()?;
        match energy {
            Energy::Line(EnergyLines { base, value, low, high, work }) => {
                let further = as_f64(batch) - 1.0;
                let work = work.iter().map(|line| line.at(further)).fold(0.0, f64::max);
                let [base, value, low, high] = [base, value, low, high].map(|line| line.at(further));
                Some((*costs, RunEnergy { dynamic: super::power::Dynamic { base, value, low, high }, work }))
            }
            Energy::Each(spent) => Some((*costs, (*spent.get(self.batches.index(batch)?)?)?)),
        }
    }
}

/// Power of each batch.
struct Draw<'d> {
    costs: &'d PowerCosts,
    lines: &'d EnergyLines,
    further: &'d [f64],
    columns: &'d Columns,
    watts: &'d mut [f64],
}

impl NullaryFnOnce for Draw<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (static_w, busy_w, cap) = limits(self.costs);
        let EnergyLines { base, value, .. } = *self.lines;
        for ((watts, further), inverse) in self.watts.iter_mut().zip(self.further).zip(&self.columns.inverse)
        {
            let cores = least(value.at(*further) * inverse, busy_w);
            *watts = least(static_w + base.at(*further) * inverse + cores, cap);
        }
    }
}

/// Upper end of the power of each batch, as [`PowerCosts::watts_over`] has it, but for a root of a root's square.
struct HighestDraw<'d> {
    costs: &'d PowerCosts,
    lines: &'d EnergyLines,
    further: &'d [f64],
    columns: &'d Columns,
    slack: &'d [f64],
    high: &'d mut [f64],
}

impl NullaryFnOnce for HighestDraw<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (static_w, busy_w, cap) = limits(self.costs);
        let half_width = self.costs.half_width_ratio * self.costs.half_width_ratio;
        let EnergyLines { base, value, low, high, .. } = *self.lines;
        let Columns { total, inverse, bound, .. } = self.columns;
        let given = self.further.iter().zip(total).zip(inverse).zip(bound).zip(self.slack);
        for (highest, ((((further, time), inverse), bound), slack)) in self.high.iter_mut().zip(given) {
            let (standing, busy, base) = (static_w * time, busy_w * time, base.at(*further));
            let spent = standing + base + least(value.at(*further), busy);
            let (low, high) = (base + least(low.at(*further), busy), base + high.at(*further));
            let unknown = most(((standing + high) / (standing + low)).sqrt() - 1.0, 0.0);
            // Where the bound lies inside the interval, its lower end is nearer.
            let slow = least(*slack, (time * slack / bound).sqrt()) - 1.0;
            let slow = (spent - standing) / spent * slow;
            let own = half_width + unknown * unknown + slow * slow;
            *highest = least(spent * inverse * (1.0 + own.sqrt()), cap);
        }
    }
}

/// Static power, the most that operations draw, and the limit, in watts.
fn limits(costs: &PowerCosts) -> (f64, f64, f64) {
    (costs.coefficients.static_w, costs.busy_w(), costs.cap.map_or(f64::INFINITY, Watts::get))
}

fn each_time(steps: &BatchSteps<'_>, context: &StepContext<'_>) -> Vec<(f64, f64, f64)> {
    let count = steps.passes.iter().map(Passes::len).min().unwrap_or(0);
    let one = |index: usize| {
        let (mut prompt, mut total, mut bound) = (0.0, 0.0, 0.0);
        for passes in &steps.passes {
            let Some(step) = passes.get(index) else { continue };
            let floor = step.floor_at(context.bandwidth, context.slowness);
            let least = floor.max(step.work_time_at(context.peaks));
            let part = step.time_with(context.machine, context.peaks, context.values);
            let time = part.total().max(least).get() * passes.repeats;
            total += time;
            bound += floor.get() * passes.repeats;
            if passes.prompt {
                prompt += time;
            }
        }
        (prompt, total, bound)
    };
    (0..count).map(one).collect()
}

impl Passes {
    const fn len(&self) -> usize {
        match &self.steps {
            Steps::Line(_) => 2,
            Steps::Each(steps) => steps.len(),
        }
    }

    fn get(&self, index: usize) -> Option<&Step> {
        match &self.steps {
            Steps::Line(ends) => ends.get(index),
            Steps::Each(steps) => steps.get(index),
        }
    }
}

impl BatchSteps<'_> {
    /// What costs energy, of the steps at `index` of each kind of pass.
    fn activity(&self, index: usize, peaks: &PeakTable) -> Activity {
        let mut sum = Activity::default();
        for passes in &self.passes {
            if let Some(step) = passes.get(index) {
                sum.add(&step.activity_at(peaks), passes.repeats);
            }
        }
        sum
    }
}

/// `None` where the energy of something that always runs is unknown.
fn energy(steps: &BatchSteps<'_>, peaks: &PeakTable, power: &PowerCosts) -> Option<Energy> {
    let spent = |activity: &Activity| {
        let dynamic = power.dynamic(activity, peaks, Seconds(f64::INFINITY))?;
        let works = activity.work.iter().map(|(precision, work)| {
            peaks.peak(*precision).map_or(f64::INFINITY, |peak| (*work / peak.value).get())
        });
        Some((RunEnergy { dynamic, work: 0.0 }, works.collect::<SmallVec<[f64; 4]>>()))
    };
    let straight = steps.passes.iter().all(|passes| matches!(passes.steps, Steps::Line(_)));
    if straight {
        let work_out = || (peaks.units(), [0, 1].map(|index| steps.activity(index, peaks)));
        let (units, known) = steps.activities.get_or_init(work_out);
        let here = (*units != peaks.units()).then(work_out);
        let [one, two] = here.as_ref().map_or(known, |(_, here)| here);
        let ((one, works), (two, works_two)) = (spent(one)?, spent(two)?);
        let line = |of: fn(&RunEnergy) -> f64| Line::through([of(&one), of(&two)]);
        return Some(Energy::Line(EnergyLines {
            base: line(|spent| spent.dynamic.base),
            value: line(|spent| spent.dynamic.value),
            low: line(|spent| spent.dynamic.low),
            high: line(|spent| spent.dynamic.high),
            work: works.iter().zip(&works_two).map(|(a, b)| Line::through([*a, *b])).collect(),
        }));
    }
    let count = steps.passes.iter().map(Passes::len).min().unwrap_or(0);
    let each = |index| {
        let (spent, works) = spent(&steps.activity(index, peaks))?;
        Some(RunEnergy { work: works.into_iter().fold(0.0, f64::max), ..spent })
    };
    Some(Energy::Each((0..count).map(each).collect()))
}

#[expect(clippy::cast_precision_loss, reason = "counts are bounded by MAX_TOKENS and MAX_BATCH")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::Rising;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn power_of_a_range_rises_as_that_of_each_batch(
            first in 1..80_u64,
            more in 0..80_u64,
            watts in proptest::collection::vec(prop_oneof![4 => 1.0..100.0_f64, 1 => Just(f64::NAN)], 260),
        ) {
            let batches = Batches::new(first..=first + more);
            let alone: Vec<f64> = batches.all().map(|batch| watts[usize::try_from(batch).unwrap()]).collect();
            let mut risen = Vec::new();
            batches.rising(&alone, &mut risen);
            let of = |batch: u64| Some(alone[batches.index(batch)?]).filter(|watts| watts.is_finite());
            let rising = Rising::of(batches.last(), of);
            let expected: Vec<Option<f64>> = batches.asked().map(|batch| rising.at(batch)).collect();
            let found: Vec<Option<f64>> =
                risen.into_iter().map(|watts| Some(watts).filter(|watts| watts.is_finite())).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
