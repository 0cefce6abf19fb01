//! Scores of candidates (time, rate, power, memory, quality), computed for a whole range of batch sizes at a time.

use std::borrow::Cow;

use pulp::{Arch, NullaryFnOnce};

use super::point::CandidatePoint;
use super::{Query, QueryError, Stored, Work, as_f64, with_columns};
use crate::snapshot::Snapshot;
use predict::costs::{Coefficients, EngineCosts, values as values_of};
use predict::curve::{BatchSteps, Batches, Columns, Curve, Site, StepCosts};
use predict::learning::ResidualKey;
use predict::learning::models::{Correction, FittedModel, ModelQuery, stored_as};
use predict::{Engine, EngineProfile, Estimate, Prediction, Tier, predict};
use roofline::ceilings::Provenance;
use roofline::precision::WeightFormat;
use roofline::units::{Joules, Seconds, Watts};
use roofline::workload::Op;
use roofline::workload::transformer::{MemoryFootprint, Phase, Request};

/// What one candidate comes to. NaN stands for what is unknown or what there is none of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Time of the run in seconds.
    pub time: f64,
    /// Upper over middle of the interval of every time.
    pub slack: f64,
    /// Seconds until the first token.
    pub first: f64,
    /// Seconds of a token after the first.
    pub per_token: f64,
    /// Tokens (columns) per second over the batch.
    pub rate: f64,
    /// Watts.
    pub watts: f64,
    /// Upper end of their interval; worked out where there is a limit on them.
    pub watts_high: f64,
    /// Joules for a token.
    pub energy: f64,
    /// Bytes.
    pub memory: f64,
    pub loss: f64,
}

impl Score {
    const UNKNOWN: Self = Self {
        time: f64::NAN,
        slack: f64::NAN,
        first: f64::NAN,
        per_token: f64::NAN,
        rate: f64::NAN,
        watts: f64::NAN,
        watts_high: f64::NAN,
        energy: f64::NAN,
        memory: f64::NAN,
        loss: f64::NAN,
    };

    fn with_power(mut self, watts: Estimate<f64>, energy: Estimate<f64>, tokens: f64) -> Self {
        self.watts = watts.value;
        self.watts_high = watts.high;
        self.energy = energy.value / tokens;
        self
    }

    fn of(prediction: &Prediction, memory: f64, loss: f64) -> Self {
        let (time, tokens) = (prediction.time, prediction.tokens);
        let value = |estimate: Option<Estimate<Seconds>>| estimate.map_or(f64::NAN, |e| e.value.get());
        // The time of an operation is what its limit on a token is about.
        let per_token = match &prediction.model {
            None => time.value.get(),
            Some(model) => value(model.time_per_token),
        };
        let score = Self {
            time: time.value.get(),
            slack: time.high / time.value,
            first: value(prediction.time_to_first_token()),
            per_token,
            rate: tokens / time.value.get(),
            memory,
            loss,
            ..Self::UNKNOWN
        };
        match prediction.power {
            Some(power) => {
                score.with_power(power.watts.map(Watts::get), power.energy.map(Joules::get), tokens)
            }
            None => score,
        }
    }
}

/// Time, rate, power, memory, quality.
pub(super) const CRITERIA: usize = 5;

/// What of a candidate is better where it is less; what is unknown is worse than anything known.
pub(super) fn criteria(score: &Score) -> [f64; CRITERIA] {
    criteria_of(score.time, score.rate, score.watts, score.memory, score.loss)
}

/// The same of its figures.
const fn criteria_of(time: f64, rate: f64, watts: f64, memory: f64, loss: f64) -> [f64; CRITERIA] {
    let watts = if watts.is_nan() { f64::INFINITY } else { watts };
    let loss = if loss.is_nan() { f64::INFINITY } else { loss };
    [time, -rate, watts, memory, loss]
}

/// Scores of a range of batches, by column: most are looked at once and never again.
#[derive(Debug, Clone, Default)]
pub(super) struct Scores {
    pub(super) time: Vec<f64>,
    pub(super) slack: Vec<f64>,
    pub(super) first: Vec<f64>,
    pub(super) per_token: Vec<f64>,
    pub(super) rate: Vec<f64>,
    pub(super) watts: Vec<f64>,
    pub(super) watts_high: Vec<f64>,
    pub(super) energy: Vec<f64>,
    pub(super) memory: Vec<f64>,
    /// The same for every batch.
    pub(super) loss: f64,
    /// Room for power that rises with the batch.
    risen: Vec<f64>,
}

impl Scores {
    const fn columns(&mut self) -> [&mut Vec<f64>; 9] {
        let Self {
            time,
            slack,
            first,
            per_token,
            rate,
            watts,
            watts_high,
            energy,
            memory,
            loss: _,
            risen: _,
        } = self;
        [time, slack, first, per_token, rate, watts, watts_high, energy, memory]
    }

    fn clear(&mut self) {
        self.columns().into_iter().for_each(Vec::clear);
    }

    fn push(&mut self, score: &Score) {
        let Score { time, slack, first, per_token, rate, watts, watts_high, energy, memory, loss: _ } =
            *score;
        let values = [time, slack, first, per_token, rate, watts, watts_high, energy, memory];
        self.columns().into_iter().zip(values).for_each(|(column, value)| column.push(value));
    }

    pub(super) fn criteria(&self, index: usize) -> [f64; CRITERIA] {
        let (watts, memory) = (self.watts[index], self.memory[index]);
        criteria_of(self.time[index], self.rate[index], watts, memory, self.loss)
    }

    pub(super) fn get(&self, index: usize) -> Score {
        Score {
            time: self.time[index],
            slack: self.slack[index],
            first: self.first[index],
            per_token: self.per_token[index],
            rate: self.rate[index],
            watts: self.watts[index],
            watts_high: self.watts_high[index],
            energy: self.energy[index],
            memory: self.memory[index],
            loss: self.loss,
        }
    }

    /// The same where only `share` of the time is had: power, while it runs, and memory stay.
    pub(super) fn sliced(&self, share: f64) -> Self {
        let mut sliced = self.clone();
        for column in [&mut sliced.time, &mut sliced.first, &mut sliced.per_token] {
            column.iter_mut().for_each(|time| *time /= share);
        }
        sliced.rate.iter_mut().for_each(|rate| *rate *= share);
        sliced
    }

    /// Makes power rise with the batch, and leaves what was asked for: those of the range of `batches`.
    fn rise(&mut self, batches: &Batches, point: &CandidatePoint<'_>) {
        if let Some(costs) = &point.power {
            batches.rising(&self.watts, &mut self.risen);
            let cap = costs.cap.map_or(f64::INFINITY, Watts::get);
            let Self { watts, watts_high, energy, risen, .. } = self;
            Arch::new().dispatch(Rise { cap, risen, watts, watts_high, energy });
        }
        self.columns().into_iter().for_each(|column| column.truncate(batches.count()));
    }

    /// What a curve says of every batch where nothing corrects it and no power limit slows it down; memory is with one
    /// sequence, and what each further one adds.
    fn fill(&mut self, curve: &Curve<'_>, plain: &Columns, memory: (f64, f64), highest: bool) {
        Arch::new().dispatch(Fill { scores: self, curve, plain, memory, highest });
    }

    #[inline(always)]
    fn fill_in(&mut self, curve: &Curve<'_>, plain: &Columns, (one, more): (f64, f64), highest: bool) {
        let count = plain.total.len();
        self.columns().into_iter().for_each(|column| column.resize(count, f64::NAN));
        let steps = curve.decode_tokens();
        self.time.copy_from_slice(&plain.total);
        curve.slack(plain, &mut self.slack);
        if curve.phase() == Phase::Decode {
            self.first.fill(f64::NAN);
        } else {
            self.first.copy_from_slice(&plain.prompt);
        }
        if steps > 0.0 {
            let of_token = 1.0 / steps;
            for ((each, total), prompt) in self.per_token.iter_mut().zip(&plain.total).zip(&plain.prompt) {
                *each = (total - prompt) * of_token;
            }
        } else {
            self.per_token.fill(f64::NAN);
        }
        curve.rate(plain, &mut self.rate);
        curve.watts(plain, &self.slack, highest, &mut self.watts, &mut self.watts_high);
        curve.joules_per_token(plain, &self.watts, &mut self.energy);
        for (memory, further) in self.memory.iter_mut().zip(curve.batches().further()) {
            *memory = one + more * further;
        }
    }
}

/// Scores to be filled in with the widest vectors that the processor has: what is called is inlined for that, but for power,
/// which sees to that itself.
struct Fill<'f> {
    scores: &'f mut Scores,
    curve: &'f Curve<'f>,
    plain: &'f Columns,
    memory: (f64, f64),
    highest: bool,
}

impl NullaryFnOnce for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.scores.fill_in(self.curve, self.plain, self.memory, self.highest);
    }
}

/// Raises power to what it has risen to, and what follows from it.
struct Rise<'r> {
    cap: f64,
    risen: &'r [f64],
    watts: &'r mut [f64],
    watts_high: &'r mut [f64],
    energy: &'r mut [f64],
}

impl NullaryFnOnce for Rise<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { cap, .. } = self;
        let own = self.watts.iter_mut().zip(self.watts_high).zip(self.energy);
        for (((watts, high), energy), risen) in own.zip(self.risen) {
            // Unknown stays unknown, and rounding puts nothing in another order.
            let known = risen.is_finite() && !watts.is_nan();
            let ratio = if known { risen / *watts } else { 1.0 };
            *watts = if known { *risen } else { *watts };
            let raised = *high * ratio;
            *high = if known && raised > cap { cap } else { raised };
            *energy *= ratio;
        }
    }
}

/// Scores of one form of the work, one operating point after another.
pub(super) enum Scorer<'a> {
    Op(Box<OpScorer<'a>>),
    Model(Box<ModelScorer<'a>>),
}

/// Room for the columns of a range of batches, which one scorer after the other fills.
#[derive(Debug, Default)]
pub(super) struct Room<'a> {
    columns: Columns,
    scores: Scores,
    /// What the costs of an engine come to, which most forms share.
    values: Option<(&'a EngineCosts, Coefficients)>,
}

pub(super) struct OpScorer<'a> {
    snapshot: &'a Snapshot,
    query: &'a Query,
    op: Op,
    format: WeightFormat,
    batches: &'a Batches,
}

pub(super) struct ModelScorer<'a> {
    snapshot: &'a Snapshot,
    query: &'a Query,
    name: &'a str,
    stored: &'a Stored,
    filed_as: String,
    request: Request,
    batches: &'a Batches,
    /// Worked out for the first operating point whose engine has costs of its own.
    steps: Option<BatchSteps<'a>>,
    /// Worked out for the first operating point with these costs.
    costs: Option<StepCosts<'a>>,
    /// Bytes with one sequence, and what each further one adds.
    memory: (f64, f64),
}

impl<'a> Scorer<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        query: &'a Query,
        batches: &'a Batches,
        option: usize,
    ) -> Result<Self, QueryError> {
        match &query.work {
            Work::Op { op, formats } => Ok(Self::Op(Box::new(OpScorer {
                snapshot,
                query,
                op: *op,
                format: formats[option],
                batches,
            }))),
            Work::Model { name, request, stored, kv_formats } => {
                let (stored, kv_cache) = form(stored, kv_formats, option);
                let request = Request { kv_cache, ..*request };
                let one = footprint(snapshot, query.engine, stored, &Request { batch: 1, ..request });
                // Weights and what the engine takes for itself are there once.
                let more = one.kv_cache + one.activations;
                Ok(Self::Model(Box::new(ModelScorer {
                    snapshot,
                    query,
                    name,
                    stored,
                    filed_as: stored_as(stored.format.as_deref(), kv_cache),
                    request,
                    batches,
                    steps: None,
                    costs: None,
                    memory: (one.total().get(), more.get()),
                })))
            }
        }
    }

    /// The score of every batch at `point`, whose roofline is that of `site`.
    pub(super) fn at<'r>(
        &mut self,
        point: &CandidatePoint<'_>,
        site: &Site,
        room: &'r mut Room<'a>,
    ) -> Result<&'r Scores, QueryError> {
        match self {
            Self::Op(scorer) => scorer.at(point, room),
            Self::Model(scorer) => scorer.at(point, site, room),
        }
    }
}

/// Which storage an option stands for.
pub(super) fn form<'a>(
    stored: &'a [Stored],
    kv_formats: &[WeightFormat],
    option: usize,
) -> (&'a Stored, WeightFormat) {
    (&stored[option / kv_formats.len()], kv_formats[option % kv_formats.len()])
}

/// What a model takes while it runs.
pub(super) fn footprint(
    snapshot: &Snapshot,
    engine: Engine,
    stored: &Stored,
    request: &Request,
) -> MemoryFootprint {
    MemoryFootprint::new(&stored.model, request, snapshot.engine_memory(engine))
}

impl OpScorer<'_> {
    fn at<'r>(&self, point: &CandidatePoint<'_>, room: &'r mut Room<'_>) -> Result<&'r Scores, QueryError> {
        let scores = &mut room.scores;
        let lent = lent(&point.profile, self.query.engine);
        let loss = self.format.expected_loss();
        scores.clear();
        scores.loss = loss;
        for columns in self.batches.all() {
            let prediction =
                predicted_op(self.snapshot, point, &lent, self.query.engine, self.op, self.format, columns)?;
            let prediction = with_power(prediction, point, None);
            let memory = prediction.cost.traffic;
            scores.push(&Score::of(&prediction, memory.get(), loss));
        }
        scores.rise(self.batches, point);
        Ok(scores)
    }
}

/// This crate's own kernels, or the same as a guess for another engine's.
pub(super) fn lent<'p>(profile: &'p EngineProfile, engine: Engine) -> Cow<'p, EngineProfile> {
    if engine == profile.engine {
        Cow::Borrowed(profile)
    } else {
        Cow::Owned(profile.clone().lent_to(engine))
    }
}

/// An operation with what was learnt, before its power.
pub(super) fn predicted_op(
    snapshot: &Snapshot,
    point: &CandidatePoint<'_>,
    profile: &EngineProfile,
    engine: Engine,
    op: Op,
    format: WeightFormat,
    columns: u64,
) -> Result<Prediction, QueryError> {
    let op = with_columns(op, columns);
    op.validate()?;
    let plain = predict(&point.roofline, profile, &op, &snapshot.numeric_format(format))?;
    Ok(snapshot.residuals.correct(&ResidualKey::new(engine, &op, format), plain))
}

impl<'a> ModelScorer<'a> {
    fn at<'r>(
        &mut self,
        point: &CandidatePoint<'_>,
        site: &Site,
        room: &'r mut Room<'a>,
    ) -> Result<&'r Scores, QueryError> {
        let Room { columns, scores, values } = room;
        scores.loss = self.loss();
        let kernels = self.snapshot.kernels(&point.profile, self.query.engine);
        let asked = asked(
            self.snapshot,
            self.query,
            self.name,
            &self.filed_as,
            self.stored,
            &self.request,
            point,
            kernels.as_deref(),
        );
        // Neither a sum of kernels nor a pass on a CPU is a line in the batch.
        if kernels.is_some() || asked.cpu.is_some() {
            scores.clear();
            for batch in self.batches.all() {
                let request = Request { batch, ..self.request };
                let prediction = self
                    .snapshot
                    .observed_runs
                    .predict(&ModelQuery { request: &request, ..asked.clone() })?;
                let prediction = with_power(prediction, point, None);
                let (memory, loss) = (self.memory_of(batch), self.loss());
                scores.push(&Score::of(&prediction, memory, loss));
            }
            scores.rise(self.batches, point);
            return Ok(scores);
        }
        let fitted_model = self.snapshot.observed_runs.fitted_model(&asked);
        let steps = match &self.steps {
            Some(steps) => steps,
            None => {
                let steps =
                    BatchSteps::new(self.query.engine, &self.stored.model, &self.request, self.batches)?;
                self.steps.insert(steps)
            }
        };
        let costs = match &self.costs {
            Some(known) if known.are_of(fitted_model.costs) => known,
            _ => {
                let costs = fitted_model.costs;
                let known = values.take().filter(|(known, _)| std::ptr::eq(*known, costs));
                let (_, values) = values.insert(known.unwrap_or_else(|| (costs, values_of(&costs.log))));
                self.costs.insert(StepCosts::new(costs, values, steps))
            }
        };
        let curve = Curve::new(steps, site, costs, point.power.as_ref())?;
        let plain_tier = match point.roofline.bandwidth.provenance {
            Provenance::Measured | Provenance::Scaled => Tier::BoardCalibrated,
            _ => Tier::Prior,
        };
        let (one, more) = self.memory;
        let highest = self.query.constraints.max_power.is_some();
        curve.fill(columns);
        if fitted_model.is_plain() && !curve.is_slowed(columns) {
            scores.fill(&curve, columns, self.memory, highest);
            scores.rise(curve.batches(), point);
            return Ok(scores);
        }
        scores.clear();
        for (index, batch) in curve.batches().all().enumerate() {
            let plain = UncorrectedRun {
                prompt: columns.prompt[index],
                total: columns.total[index],
                bound: columns.bound[index],
                tokens: curve.tokens(batch),
            };
            let memory = one + more * (as_f64(batch) - 1.0);
            let score = Score { memory, ..timed(&curve, &fitted_model, &plain, batch, plain_tier, highest) };
            scores.push(&score);
        }
        scores.rise(curve.batches(), point);
        Ok(scores)
    }

    fn memory_of(&self, batch: u64) -> f64 {
        self.memory.0 + self.memory.1 * (as_f64(batch) - 1.0)
    }

    fn loss(&self) -> f64 {
        self.stored.quality_loss.unwrap_or(f64::NAN)
    }
}

#[expect(clippy::too_many_arguments, reason = "what a model is predicted from")]
pub(super) fn asked<'a>(
    snapshot: &'a Snapshot,
    query: &Query,
    name: &'a str,
    filed_as: &'a str,
    stored: &'a Stored,
    request: &'a Request,
    point: &'a CandidatePoint<'_>,
    kernels: Option<&'a EngineProfile>,
) -> ModelQuery<'a> {
    ModelQuery {
        engine: query.engine,
        name,
        format: filed_as,
        model: &stored.model,
        request,
        roofline: &point.roofline,
        kernels,
        cpu: snapshot.cpu_host(query.engine, point.threads),
        hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
    }
}

/// With what `watts` says, of the batch alone where that is `None`; nothing is known of what is NaN.
pub(super) fn with_power(
    prediction: Prediction,
    point: &CandidatePoint<'_>,
    watts: Option<f64>,
) -> Prediction {
    match &point.power {
        Some(costs) => {
            let watts = watts.filter(|watts| watts.is_finite()).map(Watts);
            prediction.with_power_at(costs, &point.roofline, watts)
        }
        None => prediction,
    }
}

/// A run before anything that was learnt, in seconds.
#[derive(Debug, Clone, Copy)]
struct UncorrectedRun {
    prompt: f64,
    total: f64,
    bound: f64,
    tokens: f64,
}

/// Times, power and energy of one batch: what [`Prediction`] says of it, without its words. The upper end of the power
/// is worked out where `highest` asks for it.
fn timed(
    curve: &Curve<'_>,
    fitted_model: &FittedModel<'_>,
    plain: &UncorrectedRun,
    batch: u64,
    plain_tier: Tier,
    highest: bool,
) -> Score {
    let share = if curve.phase() == Phase::Decode { 0.0 } else { plain.prompt / plain.total };
    let interval = curve.interval(batch, share);
    let correction = fitted_model.correction(batch, interval.half_width_ratio, interval.from, plain_tier);
    let steps = curve.decode_tokens();
    let each = if steps > 0.0 { (plain.total - plain.prompt) / steps } else { f64::NAN };
    let first = if curve.phase() == Phase::Decode { f64::NAN } else { plain.prompt };
    let (mut time, mut first, mut per_token, slack) = match correction {
        // A plain prediction lies above its bound.
        None => (plain.total, first, each, 1.0 + interval.half_width_ratio),
        Some(Correction { factor, half_width, slower, .. }) => {
            // A part is bounded by its share of the physical bound; what there is none of stays unknown.
            let part = |time: f64| {
                let bound = plain.bound * (time / plain.total).min(1.0);
                if time * factor < bound { bound } else { time * factor }
            };
            ((plain.total * factor).max(plain.bound), part(first), part(each), (1.0 + half_width).max(slower))
        }
    };
    let least = curve.least_time(batch);
    // Where the bound lies inside the interval, its lower end is nearer.
    let low = |time: f64| (time / slack).max(plain.bound);
    let mut slow = slack - 1.0;
    if least > time {
        let slower = least / time;
        first *= slower;
        per_token *= slower;
        let low = low(time).max(least / (1.0 + curve.power_half_width())).min(least);
        slow = (least * slack / low).sqrt() - 1.0;
        time = least;
    } else if plain.bound * slack > time {
        slow = (time * slack / low(time)).sqrt() - 1.0;
    }
    let mut score = Score { time, slack, first, per_token, rate: plain.tokens / time, ..Score::UNKNOWN };
    if let Some(power) = curve.energy(batch, time) {
        score.watts = power.watts;
        score.energy = power.watts / score.rate;
        if highest {
            score.watts_high = curve.highest_watts(&power, time, slow);
        }
    }
    score
}
