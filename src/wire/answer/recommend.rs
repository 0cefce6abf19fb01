//! The decision, put into the shape of the wire.

use serde_json::{Map, Value, json};

use super::catalogue::Catalogue;
use super::model::ModelTask;
use super::predict;
use super::question::{self, Forms};
use super::run;
use super::settings::{Chosen, Device, Text, settings};
use super::task::{Task, invalid_op, model_at, unpredictable};
use ::predict::Engine;
use decide::optimize::{
    Candidate, Constraint, Decision, Outcome, Published, Query, QueryError, Runs, Sensitivity, Work, decide,
    effort, verdicts,
};
use decide::snapshot::Snapshot;
use roofline::board::{ActiveMode, Reading};
use roofline::hardware::Kind;
use roofline::refusal::{Code, Refusal};
use roofline::units::Bytes;
use roofline::workload::model::Model;
use roofline::workload::transformer::{MemoryFootprint, Request};
use wire::{
    CandidateAnswer, ChoiceAnswer, ModeAnswer, PredictAnswer, RecommendAnswer, RecommendRequest,
    RejectedAnswer, SensitivityAnswer,
};

/// `POST /v1/recommend`.
pub fn recommend(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<RecommendAnswer, Refusal> {
    let elsewhere = elsewhere(snapshot, request)?;
    let snapshot = elsewhere.as_ref().unwrap_or(snapshot);
    let (query, notes) = question::query(snapshot, catalogue, request, Forms::ThatCanBeMade)?;
    let decision = decide(snapshot, &query).map_err(|error| refused(&error))?;
    let mut answer = answered(snapshot, &query, decision)?;
    answer.warnings.extend(notes);
    Ok(answer)
}

/// Most candidates of a hold's query over all power modes, and where each is predicted on its own.
const MOST_HELD: u64 = 4_096;
const MOST_SUMMED: u64 = 256;

/// The query of a hold: what has to be met in whatever power mode, so it names no operating point of its own.
///
/// # Errors
/// The first field that cannot be.
pub fn hold_query(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<Query, Refusal> {
    let given = [
        ("hardware", request.hardware.is_some()),
        ("operating_point", request.operating_point.is_some()),
        ("freedom.power_modes", request.freedom.power_modes.is_some()),
    ];
    if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Code::InvalidField.at(
            field,
            format!("a hold is about this machine in whatever mode meets it, so it takes no {field}"),
            "leave it out",
        ));
    }
    let (mut query, _) = question::query(snapshot, catalogue, request, Forms::AtHand)?;
    let (candidates, summed) = effort(snapshot, &query).map_err(|error| refused(&error))?;
    let most = if summed { MOST_SUMMED } else { MOST_HELD };
    if candidates > most {
        return Err(Code::TooMany.at(
            "freedom",
            format!("{candidates} candidates over all power modes are more than {most}, and a hold is judged again and again"),
            "narrow formats or batch",
        ));
    }
    // What cannot be answered now is no constraint.
    verdicts(snapshot, &query).map_err(|error| refused(&error))?;
    // The service that holds is about to allocate the memory: what was free when it asked is its limit.
    if let Some(memory) = snapshot.state.memory.known() {
        let free = memory.available - query.reserve;
        query.constraints.max_memory = Some(query.constraints.max_memory.map_or(free, |most| most.min(free)));
        query.reserve = Query::WHATEVER_IS_FREE;
    }
    Ok(query)
}

/// The same snapshot at the operating point asked for; `None` where none is.
fn elsewhere(snapshot: &Snapshot, request: &RecommendRequest) -> Result<Option<Snapshot>, Refusal> {
    let Some(point) = &request.operating_point else { return Ok(None) };
    let model = model_at(snapshot, Some(point), "operating_point")?;
    let mut elsewhere = snapshot.clone();
    elsewhere.roofline = model.roofline.into_owned();
    elsewhere.profile = model.profile.into_owned();
    if let Some(view) = point.power_mode.as_ref().and_then(|name| snapshot.mode(name)) {
        let (id, name) = (view.mode.id, view.mode.name.clone());
        elsewhere.state.power_mode = Reading::Known(ActiveMode { id, name });
    }
    Ok(Some(elsewhere))
}

pub(super) fn refused(error: &QueryError) -> Refusal {
    let message = error.to_string();
    match error {
        QueryError::Op(error) => invalid_op(error, "workload.op"),
        QueryError::NoFormats => {
            Code::InvalidField.at("freedom.formats", message, "name at least one format")
        }
        QueryError::NoModes => Code::InvalidField.at(
            "freedom.power_modes",
            message,
            "name at least one, or leave freedom.power_modes out for the current mode",
        ),
        QueryError::EmptyBatch { .. } => Code::InvalidField.at(
            "freedom.batch",
            message,
            "give a min of 1 or more and a max that is no smaller",
        ),
        QueryError::NothingToChoose { .. } => {
            Code::UnsupportedWorkload.at("workload.op.kind", message, "ask POST /v1/predict for its time")
        }
        QueryError::NoThreads => {
            Code::InvalidField.at("freedom.threads", message, "leave freedom.threads out")
        }
        QueryError::NoSuchTime { constraint, .. } => Code::UnsupportedConstraint.at(
            format!("constraints.{constraint}"),
            message,
            "leave it out, or ask for phase serve with several output_tokens, which has both",
        ),
        QueryError::TooMany { most, .. } => Code::TooMany.at(
            "freedom.batch",
            message,
            format!("narrow formats, modes or batch to at most {most} combinations"),
        ),
        QueryError::PowerUnknown { objective: true, .. } => {
            Code::UnsupportedObjective.at("objective", message, "choose latency or throughput")
        }
        QueryError::PowerUnknown { objective: false, .. } => Code::UnsupportedConstraint.at(
            "constraints.max_power_w",
            message,
            "leave it out, or report measured runs with power_w: POST /v1/observations",
        ),
        QueryError::Predict(error) => unpredictable(error, "workload"),
        QueryError::Model(error) => run::unpredictable(error, "workload"),
    }
}

fn answered(snapshot: &Snapshot, query: &Query, decision: Decision) -> Result<RecommendAnswer, Refusal> {
    let full = |candidate: &Candidate| {
        let outcome = candidate.outcome(snapshot, query).map_err(|error| refused(&error))?;
        Ok::<_, Refusal>(shown_candidate(snapshot, (&query.work, query.engine), candidate, outcome))
    };
    let keys = |constraints: &[Constraint]| constraints.iter().map(|by| by.key().to_owned()).collect();
    let (closest, violated) = match &decision.closest {
        Some((closest, violated)) => (Some(full(closest)?), keys(violated)),
        None => (None, Vec::new()),
    };
    let alternatives = decision.alternatives.iter().map(full).collect::<Result<_, _>>()?;
    let chosen = decision.chosen.as_ref();
    let settings = chosen.map_or_else(Map::new, |chosen| {
        engine_settings(snapshot, &query.work, chosen, &MemoryLimits::of(query))
    });
    let apply = json!({
        "reboot_required": chosen.is_some_and(|chosen| chosen.reboot_required),
        "entering_s": chosen.map(|chosen| chosen.entering.get()),
        "settings": settings,
    });
    Ok(RecommendAnswer {
        feasible: chosen.is_some(),
        reason: decision.reason,
        alternatives,
        rejected: decision
            .rejected
            .iter()
            .map(|rejected| RejectedAnswer {
                by: rejected.by.key().to_owned(),
                count: rejected.count,
                closest: rejected.closest,
            })
            .collect(),
        closest,
        violated,
        contradicting: keys(&decision.contradicting),
        sensitivity: decision.sensitivity.as_ref().map(sensitivity),
        apply,
        next_best_measurement: if snapshot.is_hypothetical() {
            Some(format!("calibrate where there is a {}: rooflinectl calibrate", snapshot.board.key))
        } else {
            decision.next_best_measurement
        },
        candidates: decision.candidates,
        warnings: {
            let mut warnings = decision.hints;
            warnings.extend(chosen.and_then(|chosen| not_enterable(snapshot, chosen)));
            warnings
        },
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
        decision: match (decision.chosen, decision.outcome) {
            (Some(chosen), Some(outcome)) => {
                Some(shown_candidate(snapshot, (&query.work, query.engine), &chosen, outcome))
            }
            _ => None,
        },
    })
}

/// Why this daemon would not enter the mode of the choice.
fn not_enterable(snapshot: &Snapshot, chosen: &Candidate) -> Option<String> {
    let mode = chosen.mode.as_ref()?;
    let active = snapshot.state.power_mode.known().is_some_and(|active| active == mode);
    let view = snapshot.modes.iter().find(|view| view.mode.is(mode))?;
    let reason = view.unreachable.as_ref().filter(|_| !active && !snapshot.is_hypothetical())?;
    Some(format!("the daemon would not enter mode {} now: {reason}", mode.name))
}

fn mode(mode: &ActiveMode) -> ModeAnswer {
    ModeAnswer { id: mode.id, name: mode.name.clone() }
}

fn sensitivity(of: &Sensitivity) -> SensitivityAnswer {
    SensitivityAnswer {
        could_change: of.could_change(),
        runner_up: of.runner_up.as_ref().map(choice),
        margin_ratio: of.margin_ratio,
        interval_ratio: of.interval_ratio,
        at_expected: of.at_expected.as_ref().map(choice),
    }
}

fn choice(candidate: &Candidate) -> ChoiceAnswer {
    ChoiceAnswer {
        format: candidate.format.clone(),
        kv_format: candidate.kv_format.map(|format| format.key().to_owned()),
        power_mode: candidate.mode.as_ref().map(mode),
        threads: candidate.threads,
        batch: candidate.batch,
    }
}

pub(super) fn shown_candidate(
    snapshot: &Snapshot,
    (work, engine): (&Work, Engine),
    candidate: &Candidate,
    outcome: Outcome,
) -> CandidateAnswer {
    let ChoiceAnswer { format, kv_format, power_mode, threads, batch } = choice(candidate);
    let loss = candidate.score.loss;
    CandidateAnswer {
        format,
        power_mode,
        batch,
        kv_format,
        threads,
        quality_loss_ratio: loss.is_finite().then_some(loss),
        prediction: prediction(snapshot, (work, engine), candidate, outcome),
    }
}

fn prediction(
    snapshot: &Snapshot,
    (work, engine): (&Work, Engine),
    candidate: &Candidate,
    outcome: Outcome,
) -> PredictAnswer {
    let work = match outcome.runs {
        Runs::Op { op, format } => {
            let numeric = snapshot.numeric_format(format);
            predict::Work::Op(Task { op, format, numeric, engine })
        }
        Runs::Model { model, request } => {
            let name = match work {
                Work::Model { name, .. } => name.clone(),
                Work::Op { .. } => model.name.clone(),
            };
            let format = candidate.format.clone();
            let task = ModelTask { name, model, format, request, engine, warnings: Vec::new() };
            predict::Work::Model(Box::new(task))
        }
    };
    predict::prediction_answer(snapshot, &work, outcome.prediction)
}

/// Tokens that a chat needs of every sequence where nothing longer was asked for.
const CHAT: u64 = 4096;
/// Most of the memory that is shared with everything else that an engine is let have.
const MOST_SHARED: f64 = 0.92;

/// The settings of every engine; nothing where a file does not say how it is stored.
pub(super) fn engine_settings(
    snapshot: &Snapshot,
    work: &Work,
    chosen: &Candidate,
    limits: &MemoryLimits,
) -> Map<String, Value> {
    let Some(format) = chosen.format.as_deref() else { return Map::new() };
    let mut published = Published::Otherwise;
    let text = match work {
        Work::Op { .. } => None,
        Work::Model { request, stored, .. } => {
            let of = stored.iter().find(|of| of.format == chosen.format);
            published = of.map_or(Published::Otherwise, |of| of.published);
            let request = Request {
                batch: chosen.batch,
                kv_cache: chosen.kv_format.unwrap_or(request.kv_cache),
                ..*request
            };
            let model = of.map(|of| of.model.as_ref());
            Some(Text {
                batch: chosen.batch,
                context_tokens: served_context(snapshot, model, &request, limits),
                prompt_tokens: request.whole_prompt(),
                chunk_tokens: request.chunk_tokens,
                kv_format: chosen.kv_format,
            })
        }
    };
    let device = match (Device::of(snapshot), chosen.threads) {
        (Device::Cpu { .. }, Some(threads)) => Device::Cpu { threads: Some(threads) },
        (device, _) => device,
    };
    let memory_ratio = shared_ratio(snapshot, limits);
    settings(&Chosen { format, text, device, published, memory_ratio })
}

/// What of the memory may be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryLimits {
    /// Left to others.
    pub reserve: Bytes,
    /// The most that the model may take.
    pub most: Option<Bytes>,
}

impl MemoryLimits {
    pub(super) const fn of(query: &Query) -> Self {
        Self { reserve: query.reserve, most: query.constraints.max_memory }
    }

    /// Bytes that a model may take; `None` where the machine's memory is not known.
    fn room(&self, snapshot: &Snapshot) -> Option<Bytes> {
        let room = run::available(snapshot)? - self.reserve;
        Some(self.most.map_or(room, |most| most.min(room)))
    }
}

/// Tokens that a server keeps of every sequence: those asked for, and enough for a chat where the model and the memory have
/// room for it.
fn served_context(
    snapshot: &Snapshot,
    model: Option<&Model>,
    request: &Request,
    limits: &MemoryLimits,
) -> u64 {
    let asked = request.final_tokens();
    let Some((model, room)) = model.zip(limits.room(snapshot)) else { return asked };
    let longest = model.architecture.context_tokens.unwrap_or(CHAT);
    let fits = |tokens: &u64| {
        let longer = request.context_tokens.saturating_add(tokens - asked);
        let request = Request { context_tokens: longer, ..*request };
        MemoryFootprint::new(model, &request, snapshot.engine_memory(Engine::LlamaCpp)).fits(room)
    };
    let wider = [CHAT, CHAT / 2].into_iter().map(|tokens| tokens.min(longest));
    wider.filter(|tokens| *tokens > asked).find(fits).unwrap_or(asked)
}

/// Part of the memory that an engine may take where CPU and GPU share one: what is available now without what must stay
/// free, in whole per cents. `None` where the GPU has its own.
fn shared_ratio(snapshot: &Snapshot, limits: &MemoryLimits) -> Option<f64> {
    let is_shared = snapshot.hardware.as_deref().is_some_and(|hardware| hardware.kind == Kind::Integrated);
    let total = snapshot.state.memory.known().filter(|_| is_shared)?.total;
    let percent = 100.0 * (limits.room(snapshot)? / total);
    // Less than what a model was decided with would not hold it; more than what is free would not be left.
    let whole = if limits.most.is_some() { percent.ceil() } else { percent.floor() };
    (whole > 0.0).then_some((whole / 100.0).min(MOST_SHARED))
}
