//! Engines compared: every one that the machine can run and the request allows, each with its own best choice.

use std::cmp::Ordering;

use super::catalogue::Catalogue;
use super::model::has_own_memory;
use super::question::{self, Forms};
use super::wanted::Wanted;
use rooflined_api::{Offload, RecommendRequest, Speculative, Workload};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::transformer::Phase;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::optimize::{
    Constraint, Constraints, Decision, Miss, Modes, Objective, Query, QueryError, WorkForms, decide_while,
};
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, cpu};

/// Engines with a command for their settings; of equals the first is taken.
pub const COMPARED: [Engine; 6] = [
    Engine::LlamaCpp,
    Engine::Vllm,
    Engine::TensorRtLlm,
    Engine::TensorRtEdgeLlm,
    Engine::Mlc,
    Engine::Torch,
];
/// Largest search that is done for engines beside the one that was named.
const MOST_BESIDE: u64 = 4_096;

/// Most quality that a choice loses where the request leaves it open and something else meets the limits: formats of 4 bits that were
/// made with care lose 2.8 to 4.3 %, those that were merely rounded 7 to 17 %.
const USUAL_LOSS: f64 = 0.05;

/// Losses below this are as good as none: nobody would wait longer for the difference.
const SAME_LOSS: f64 = 0.01;

/// What is worse by no more than this is as good, if it loses less quality.
const AS_GOOD: f64 = 0.05;

/// Most tokens drafted where the request leaves it open: no published sweep has its best beyond 7.
const MOST_DRAFTED: u64 = 8;

/// What an engine comes to.
pub struct Compared {
    pub engine: Engine,
    pub query: Query,
    /// What the client should know of the query.
    pub notes: Vec<String>,
    pub decision: Decision,
    /// It loses more quality than [`USUAL_LOSS`], which nobody asked for.
    is_lossy: bool,
}

impl Compared {
    /// How good its best candidate is.
    fn place(&self) -> Place {
        let of = &self.decision;
        let (misses, score) = match (&of.chosen, &of.closest) {
            (Some(chosen), _) => (&[][..], &chosen.score),
            (None, Some((closest, misses))) => (misses.as_slice(), &closest.score),
            (None, None) => return Place::NOWHERE,
        };
        // A step of a decode adds more tokens where some are drafted.
        let is_decode =
            matches!(&self.query.work, WorkForms::Model { request, .. } if request.phase == Phase::Decode);
        let (expected, at_worst) = match self.query.objective {
            Objective::Latency if is_decode => (score.per_token, score.per_token * score.slack),
            Objective::Latency => (score.time, score.time * score.slack),
            Objective::Throughput => (-score.rate, -score.rate / score.slack),
            // What is not known of the power is the machine's, and the same for every engine.
            Objective::Energy => (score.energy, score.energy * score.slack),
            Objective::Power => (score.watts, score.watts),
        };
        let known = |value: f64| if value.is_nan() { f64::INFINITY } else { value };
        Place {
            misses: misses.len(),
            is_lossy: self.is_lossy,
            factor: misses.iter().map(|miss| 1.0 + miss.ratio().unwrap_or(f64::INFINITY)).product(),
            expected: known(expected),
            at_worst: known(at_worst),
            loss: known(score.loss).max(SAME_LOSS),
        }
    }

    fn lacks_memory(&self) -> bool {
        let of_memory = |miss: &Miss| matches!(miss.by, Constraint::Available | Constraint::Memory);
        self.decision.chosen.is_none()
            && self.decision.closest.as_ref().is_some_and(|(_, misses)| misses.iter().any(of_memory))
    }

    /// The last layer of a mixture, counted from 1; 0 of a dense model.
    fn layers_with_experts(&self) -> u64 {
        let WorkForms::Model { stored, .. } = &self.query.work else { return 0 };
        let model = stored.first().filter(|of| of.model.routing().is_some());
        model.map_or(0, |of| of.model.architecture.layers.len() as u64)
    }

    fn is_better_than(&self, other: &Self) -> bool {
        let (own, other) = (self.place(), other.place());
        own.order(&other, |place| place.expected) == Ordering::Less
    }
}

/// How good the best candidate of an engine is; of everything less is better.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Constraints that it misses, and the factor by which it misses them.
    misses: usize,
    factor: f64,
    /// It loses more quality than is usual.
    is_lossy: bool,
    /// The objective there, in the middle and at the worse end of its interval.
    expected: f64,
    at_worst: f64,
    loss: f64,
}

impl Place {
    const NOWHERE: Self = Self {
        misses: usize::MAX,
        is_lossy: true,
        factor: f64::INFINITY,
        expected: f64::INFINITY,
        at_worst: f64::INFINITY,
        loss: f64::INFINITY,
    };

    fn order(&self, other: &Self, value: impl Fn(&Self) -> f64) -> Ordering {
        let missed = self.misses.cmp(&other.misses).then(self.is_lossy.cmp(&other.is_lossy));
        missed.then(self.factor.total_cmp(&other.factor)).then(value(self).total_cmp(&value(other)))
    }

    /// Whether it meets the limits as `best` does, and its middle is at most `most`.
    fn is_like(&self, best: &Self, most: f64) -> bool {
        (self.misses, self.is_lossy, self.factor) == (best.misses, best.is_lossy, best.factor)
            && self.expected <= most
    }

    /// Whether it may be as good as `best`: its middle lies within the interval of that.
    fn may_equal(&self, best: &Self) -> bool {
        self.is_like(best, best.at_worst)
    }

    /// Whether it is as good as `best` but for [`AS_GOOD`]. A rate counts below zero.
    fn is_as_good(&self, best: &Self) -> bool {
        self.is_like(best, best.expected + AS_GOOD * best.expected.abs())
    }
}

/// Puts engines in order, the best first. Some are known from other machines only, so the worse end of each interval counts. Of
/// those that are as good as the best, the one that loses least quality comes first.
fn rank(compared: Vec<Compared>) -> Vec<Compared> {
    let mut all: Vec<_> = compared.into_iter().map(|of| (of.place(), of)).collect();
    all.sort_by(|(place, _), (other, _)| place.order(other, |place| place.at_worst));
    let Some((best, _)) = all.first() else { return Vec::new() };
    let best = *best;
    let equals = all.iter().enumerate().filter(|(_, (place, _))| place.is_as_good(&best));
    let least = equals.min_by(|(_, (place, _)), (_, (other, _))| place.loss.total_cmp(&other.loss));
    if let Some(first) = least.map(|(index, _)| index) {
        all[..=first].rotate_right(1);
    }
    let chosen = all[0].0;
    let rivals =
        all[1..].iter().filter(|(place, _)| place.may_equal(&best) && place.expected < chosen.expected);
    let rival = rivals.min_by(|(place, _), (other, _)| place.expected.total_cmp(&other.expected));
    let note = rival.map(|(place, of)| {
        let engine = of.engine.key();
        let but = if chosen.loss < place.loss { "it loses more quality" } else { "less is known of it" };
        format!("{engine} may be as good or better: the intervals overlap, but {but}")
    });
    // It would be chosen if its loss were usual.
    let lossy = all[1..].iter().filter(|(place, _)| {
        place.is_lossy && !chosen.is_lossy && place.misses == 0 && place.at_worst < chosen.expected
    });
    let lossy = lossy.min_by(|(place, _), (other, _)| place.expected.total_cmp(&other.expected)).map(
        |(place, of)| {
            format!(
                "{} would be better, but loses {:.1} % of quality; \"max_quality_loss_ratio\":{} allows that",
                of.engine.key(),
                place.loss * 100.0,
                (place.loss * 100.0).ceil() / 100.0
            )
        },
    );
    all[0].1.notes.extend(note.into_iter().chain(lossy));
    all.into_iter().map(|(_, of)| of).collect()
}

/// The engine of the request with its decision, and every engine that was compared with it, the best first. Where a model is asked
/// about and no engine is named, it is the best of them.
///
/// # Errors
/// As the engine that is named; of several the first.
pub fn compare(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<(Engine, Vec<Compared>), Refusal> {
    let named =
        (request.workload.model.is_none() || request.engine != Engine::Bare).then_some(request.engine);
    let is_open = request.constraints.max_quality_loss_ratio.is_none()
        && request.freedom.formats.is_none()
        && request.workload.format.is_none();
    let decided_for = |engine: Engine, workload: Workload| {
        wanted.check()?;
        let request = RecommendRequest { engine, workload, ..request.clone() };
        let (mut query, mut notes) = question::query(snapshot, catalogue, &request, Forms::ThatCanBeMade)?;
        // Low clocks are looked at where nothing else keeps a limit on the power.
        let decided = |query: &mut Query| {
            let decide = |query: &Query| {
                decide_while(wanted.is_wanted(), snapshot, query)
                    .map_err(|error| question::refuse_query(&error))
            };
            let decision = decide(query)?;
            let low = snapshot.low_caps();
            let is_limited = query.constraints.max_power.is_some() && query.modes == Modes::All;
            if decision.chosen.is_some() || !is_limited || low.is_empty() {
                return Ok(decision);
            }
            query.caps.extend(low);
            decide(query)
        };
        let mut decision = decided(&mut query)?;
        // One sequence has the shortest time. More of them raise the rate, so they are tried where that is what counts.
        let is_for_rate = request.objective == Objective::Throughput;
        if question::leaves_batch_open(&request) && (is_for_rate || decision.chosen.is_none()) {
            query.batch = 1..=question::MOST_SEQUENCES;
            decision = loop {
                match decide_while(wanted.is_wanted(), snapshot, &query) {
                    Err(QueryError::TooMany { .. }) if *query.batch.end() > 1 => {
                        query.batch = 1..=query.batch.end() / 2;
                    }
                    other => break other.map_err(|error| question::refuse_query(&error))?,
                }
            };
            let (most, best) = (*query.batch.end(), decision.chosen.as_ref());
            if best.is_some_and(|best| best.batch == most) {
                notes.push(format!(
                    "batch sizes up to {most} were compared: name a range to compare larger ones"
                ));
            }
        }
        let best = decision.chosen.as_ref().or(decision.closest.as_ref().map(|(closest, _)| closest));
        let loses_much = best.is_some_and(|best| best.score.loss > USUAL_LOSS);
        let mut is_lossy = is_open && Some(engine) != named && loses_much;
        if is_lossy && decision.chosen.is_some() {
            let constraints = Constraints { max_quality_loss: Some(USUAL_LOSS), ..query.constraints };
            let mut careful = Query { constraints, ..query.clone() };
            let other = decided(&mut careful)?;
            if other.chosen.is_some() {
                (query, decision, is_lossy) = (careful, other, false);
            }
        }
        Ok::<_, Refusal>(Compared { engine, query, notes, decision, is_lossy })
    };
    let with_drafts = |engine: Engine| {
        let Some(speculative) = request.workload.speculative.as_ref().filter(|of| of.draft_tokens.is_none())
        else {
            return decided_for(engine, request.workload.clone());
        };
        let of = |draft_tokens| {
            let speculative = Speculative { draft_tokens: Some(draft_tokens), ..speculative.clone() };
            decided_for(engine, Workload { speculative: Some(speculative), ..request.workload.clone() })
        };
        let (mut best, mut depth) = (of(0)?, 0);
        for draft_tokens in 1..=MOST_DRAFTED {
            let other = of(draft_tokens)?;
            if other.is_better_than(&best) {
                (best, depth) = (other, draft_tokens);
            }
        }
        best.notes.push(format!("{depth} drafted tokens are best (0 to {MOST_DRAFTED} were compared)"));
        Ok(best)
    };
    let decided = |engine: Engine| {
        let all_on_card = with_drafts(engine)?;
        let is_open = request.workload.offload.is_none() && request.workload.speculative.is_none();
        if engine != Engine::LlamaCpp || !is_open || !has_own_memory(snapshot) || !all_on_card.lacks_memory()
        {
            return Ok(all_on_card);
        }
        let mut fitting = None;
        for layers in 1..=all_on_card.layers_with_experts() {
            let offload = Some(Offload { cpu_moe_layers: Some(layers), gpu_layers: None });
            let mut other = decided_for(engine, Workload { offload, ..request.workload.clone() })?;
            if fitting.is_some() && other.decision.chosen.is_none() || other.lacks_memory() {
                continue;
            }
            other.notes.push(format!(
                "the experts of {layers} layers stay in the memory of the CPU, the fewest that leave room on the card"
            ));
            if other.decision.chosen.is_some() {
                return Ok(other);
            }
            // What fits and misses another limit is nearer than what does not fit.
            fitting = Some(other);
        }
        Ok(fitting.unwrap_or(all_on_card))
    };
    let allowed = allowed(request)?;
    let (mut compared, mut first) = (Vec::new(), None);
    if let Some(engine) = named {
        let own = decided(engine)?;
        let is_small = own.decision.tally.candidates() <= MOST_BESIDE;
        compared.push(own);
        if request.workload.model.is_none() || request.hypothetical || !is_small {
            return Ok((engine, compared));
        }
    }
    // Of a CPU that nobody measured here, only what an engine took on others says how fast it is.
    let is_known = |engine: &Engine| {
        !snapshot.is_hypothetical() || snapshot.accelerator == Accelerator::Gpu || cpu::has_costs(*engine)
    };
    for engine in allowed.into_iter().filter(|engine| Some(*engine) != named).filter(is_known) {
        match decided(engine) {
            Ok(decided) => compared.push(decided),
            Err(refusal) if refusal.code == Code::Cancelled => return Err(refusal),
            Err(refusal) => {
                first.get_or_insert(refusal);
            }
        }
    }
    let compared = rank(compared);
    match (compared.first(), first) {
        (Some(best), _) => Ok((named.unwrap_or(best.engine), compared)),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(Code::Internal.error("no engine was compared", "report this")),
    }
}

/// The engine that a question about a model is answered for: the one that it names, else the one that is recommended.
///
/// # Errors
/// As [`compare`].
pub fn engine_for(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<Engine, Refusal> {
    choice_for(snapshot, catalogue, request).map(|(engine, _)| engine)
}

/// The same with the format that is recommended with it; `None` where an engine is named, or there is no model.
///
/// # Errors
/// As [`compare`].
pub fn choice_for(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<(Engine, Option<String>), Refusal> {
    if request.workload.model.is_none() || request.engine != Engine::Bare {
        return Ok((request.engine, None));
    }
    let (engine, compared) = compare(Wanted::ALWAYS, snapshot, catalogue, request)?;
    let decision = compared.iter().find(|of| of.engine == engine).map(|of| &of.decision);
    let closest = |of: &'_ Decision| of.closest.as_ref().and_then(|(candidate, _)| candidate.format.clone());
    let format =
        decision.and_then(|of| of.chosen.as_ref().map_or_else(|| closest(of), |of| of.format.clone()));
    Ok((engine, format))
}

/// Engines that may be compared. A GGUF file is run by what reads it.
fn allowed(request: &RecommendRequest) -> Result<Vec<Engine>, Refusal> {
    let field = "freedom.engines";
    let engines = match &request.freedom.engines {
        Some(engines) if engines.is_empty() => {
            return Err(Code::InvalidField.at(
                field,
                format!("{field} is empty"),
                "leave it out for every engine that the machine can run",
            ));
        }
        Some(engines) => COMPARED.into_iter().filter(|engine| engines.contains(engine)).collect(),
        None if question::is_gguf(request) => vec![Engine::LlamaCpp],
        None => COMPARED.to_vec(),
    };
    if engines.is_empty() {
        return Err(Code::InvalidField.at(
            field,
            format!("{field} names no engine that runs whole models and is configured by a command"),
            format!("name some of {}", COMPARED.map(Engine::key).join(", ")),
        ));
    }
    Ok(engines)
}
