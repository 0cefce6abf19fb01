//! Engines compared: every one that the machine can run and the request allows, each with its own best choice.

use std::cmp::Ordering;

use super::catalogue::Catalogue;
use super::model::has_own_memory;
use super::question::{self, Forms};
use super::wanted::Wanted;
use rooflined_api::{Offload, RecommendRequest, Speculative, Workload};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::transformer::Phase;
use rooflined_predict::Engine;
use rooflined_predict::optimize::{
    Constraint, Decision, Miss, Objective, Query, Score, WorkForms, decide_while,
};
use rooflined_predict::snapshot::Snapshot;

/// Engines with a command for their settings; of equals the first is taken.
const COMPARED: [Engine; 6] = [
    Engine::LlamaCpp,
    Engine::Vllm,
    Engine::TensorRtLlm,
    Engine::TensorRtEdgeLlm,
    Engine::Mlc,
    Engine::Torch,
];
/// Largest search that is done for engines beside the one that was named.
const MOST_BESIDE: u64 = 4_096;

/// Most tokens drafted where the request leaves it open: no published sweep has its best beyond 7.
const MOST_DRAFTED: u64 = 8;

/// What an engine comes to.
pub struct Compared {
    pub engine: Engine,
    pub query: Query,
    /// What the client should know of the query.
    pub notes: Vec<String>,
    pub decision: Decision,
}

impl Compared {
    /// Constraints that its best candidate misses, the factor by which it misses them, and the objective there: less is better.
    fn place(&self) -> (usize, f64, f64) {
        let of = &self.decision;
        let (misses, score) = match (&of.chosen, &of.closest) {
            (Some(chosen), _) => (&[][..], &chosen.score),
            (None, Some((closest, misses))) => (misses.as_slice(), &closest.score),
            (None, None) => return (usize::MAX, f64::INFINITY, f64::INFINITY),
        };
        let factor = misses.iter().map(|miss| 1.0 + miss.ratio().unwrap_or(f64::INFINITY)).product();
        // A step of a decode adds more tokens where some are drafted.
        let is_decode =
            matches!(&self.query.work, WorkForms::Model { request, .. } if request.phase == Phase::Decode);
        let value = match self.query.objective {
            Objective::Latency if is_decode => score.per_token,
            of => objective(of, score),
        };
        (misses.len(), factor, if value.is_nan() { f64::INFINITY } else { value })
    }

    /// The better one first.
    fn order(&self, other: &Self) -> Ordering {
        let (missed, factor, value) = self.place();
        let (other_missed, other_factor, other_value) = other.place();
        missed.cmp(&other_missed).then(factor.total_cmp(&other_factor)).then(value.total_cmp(&other_value))
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
        self.order(other) == Ordering::Less
    }
}

const fn objective(of: Objective, score: &Score) -> f64 {
    match of {
        Objective::Latency => score.time,
        Objective::Throughput => -score.rate,
        Objective::Energy => score.energy,
        Objective::Power => score.watts,
    }
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
    let decided_for = |engine: Engine, workload: Workload| {
        wanted.check()?;
        let request = RecommendRequest { engine, workload, ..request.clone() };
        let (query, notes) = question::query(snapshot, catalogue, &request, Forms::ThatCanBeMade)?;
        let decision = decide_while(wanted.is_wanted(), snapshot, &query)
            .map_err(|error| question::refuse_query(&error))?;
        Ok::<_, Refusal>(Compared { engine, query, notes, decision })
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
        best.notes.push(format!("of 0 to {MOST_DRAFTED} drafted tokens, {depth} are best"));
        Ok(best)
    };
    let decided = |engine: Engine| {
        let all_on_card = with_drafts(engine)?;
        let is_open = request.workload.offload.is_none() && request.workload.speculative.is_none();
        if engine != Engine::LlamaCpp || !is_open || !has_own_memory(snapshot) || !all_on_card.lacks_memory()
        {
            return Ok(all_on_card);
        }
        for layers in 1..=all_on_card.layers_with_experts() {
            let offload = Some(Offload { cpu_moe_layers: Some(layers), gpu_layers: None });
            let mut other = decided_for(engine, Workload { offload, ..request.workload.clone() })?;
            if other.decision.chosen.is_some() {
                other.notes.push(format!(
                    "the experts of {layers} layers stay in the memory of the CPU, the fewest that leave room on the card"
                ));
                return Ok(other);
            }
        }
        Ok(all_on_card)
    };
    let allowed = allowed(request)?;
    let named =
        (request.workload.model.is_none() || request.engine != Engine::Bare).then_some(request.engine);
    let (mut compared, mut first) = (Vec::new(), None);
    if let Some(engine) = named {
        let own = decided(engine)?;
        let is_small = own.decision.candidates <= MOST_BESIDE;
        compared.push(own);
        if request.workload.model.is_none() || request.hypothetical || !is_small {
            return Ok((engine, compared));
        }
    }
    for engine in allowed.into_iter().filter(|engine| Some(*engine) != named) {
        match decided(engine) {
            Ok(decided) => compared.push(decided),
            Err(refusal) if refusal.code == Code::Cancelled => return Err(refusal),
            Err(refusal) => {
                first.get_or_insert(refusal);
            }
        }
    }
    compared.sort_by(Compared::order);
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
    if request.workload.model.is_none() || request.engine != Engine::Bare {
        return Ok(request.engine);
    }
    compare(Wanted::ALWAYS, snapshot, catalogue, request).map(|(engine, _)| engine)
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
