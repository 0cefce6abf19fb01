//! The decision, put into the shape of the wire.

use serde_json::{Map, Value, json};

use super::catalogue::Catalogue;
use super::engines::{self, Compared};
use super::model::ModelTask;
use super::predict;
use super::question::{self, Forms};
use super::run;
use super::settings::{Chosen, Device, SharedMemory, Text, settings};
use super::task::Task;
use super::wanted::Wanted;
use rooflined_api::{
    CandidateAnswer, ChoiceAnswer, EngineAnswer, MissAnswer, ModeAnswer, PredictAnswer, RecommendAnswer,
    RecommendRequest, RejectionAnswer, SensitivityAnswer,
};
use rooflined_core::board::ActiveMode;
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Bytes;
use rooflined_models::model::Model;
use rooflined_models::transformer::{MemoryFootprint, Request};
use rooflined_predict::Engine;
use rooflined_predict::costs::Build;
use rooflined_predict::optimize::{
    Candidate, Decision, Miss, ModelOrigin, Modes, Outcome, Query, Runs, Sensitivity, Tally, WorkForms,
    effort, verdicts,
};
use rooflined_predict::snapshot::{Cap, Snapshot};

/// `POST /v1/recommend`.
pub fn recommend(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
) -> Result<RecommendAnswer, Refusal> {
    let elsewhere = predict::at_operating_point(snapshot, request)?;
    let snapshot = elsewhere.as_ref().unwrap_or(snapshot);
    let (engine, compared) = engines::compare(wanted, snapshot, catalogue, request)?;
    let row = |of: &Compared| {
        let best = of.decision.chosen.as_ref().or(of.decision.closest.as_ref().map(|(closest, _)| closest));
        let shown = best.map(|best| {
            let outcome =
                best.outcome(snapshot, &of.query).map_err(|error| question::refuse_query(&error))?;
            Ok::<_, Refusal>(shown_candidate(snapshot, &of.query, best, outcome))
        });
        Ok::<_, Refusal>(EngineAnswer {
            engine: of.engine.key().to_owned(),
            feasible: of.decision.chosen.is_some(),
            candidate: shown.transpose()?,
        })
    };
    let mut engines = Vec::new();
    if compared.len() > 1 || request.workload.model.is_some() {
        engines = compared.iter().map(row).collect::<Result<_, _>>()?;
    }
    // Where no engine was named, what was excluded was excluded in all of them.
    let is_open = request.workload.model.is_some() && request.engine == Engine::Bare;
    let others = compared.iter().filter(|of| is_open && of.engine != engine);
    let others: Vec<Tally> = others.map(|of| of.decision.tally.clone()).collect();
    let own = compared.into_iter().find(|of| of.engine == engine);
    let Some(Compared { query, notes, mut decision, .. }) = own else {
        return Err(Code::Internal.error("the engine was lost", "report this"));
    };
    others.iter().for_each(|other| decision.tally.add(other));
    let mut answer = answered(snapshot, &query, decision)?;
    let notes = notes.into_iter().filter(|note| !answer.warnings.contains(note)).collect::<Vec<_>>();
    answer.warnings.extend(notes);
    answer.engines = engines;
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
    let engine = engines::engine_for(snapshot, catalogue, request)?;
    let request = RecommendRequest { engine, ..request.clone() };
    let (mut query, _) = question::query(snapshot, catalogue, &request, Forms::AtHand)?;
    let (candidates, summed) = effort(snapshot, &query).map_err(|error| question::refuse_query(&error))?;
    let most = if summed { MOST_SUMMED } else { MOST_HELD };
    if candidates > most {
        return Err(Code::TooMany.at(
            "freedom",
            format!("{candidates} candidates over all power modes are more than {most}, and a hold is judged again and again"),
            "narrow formats or batch",
        ));
    }
    // What cannot be answered now is no constraint.
    verdicts(snapshot, &query).map_err(|error| question::refuse_query(&error))?;
    // The service that holds is about to allocate the memory: what was free when it asked is its limit.
    if let Some(memory) = snapshot.state.memory.known() {
        let free = memory.available - query.reserve;
        query.constraints.max_memory = Some(query.constraints.max_memory.map_or(free, |most| most.min(free)));
        query.reserve = Query::WHATEVER_IS_FREE;
    }
    Ok(query)
}

fn answered(snapshot: &Snapshot, query: &Query, decision: Decision) -> Result<RecommendAnswer, Refusal> {
    let full = |candidate: &Candidate| {
        let outcome = candidate.outcome(snapshot, query).map_err(|error| question::refuse_query(&error))?;
        Ok::<_, Refusal>(shown_candidate(snapshot, query, candidate, outcome))
    };
    let (closest, misses) = match &decision.closest {
        Some((closest, misses)) => (Some(full(closest)?), misses.as_slice()),
        None => (None, &[][..]),
    };
    let decided = match (decision.chosen.as_ref(), decision.outcome) {
        (Some(chosen), Some(outcome)) => Some(shown_candidate(snapshot, query, chosen, outcome)),
        _ => None,
    };
    let alternatives = decision.alternatives.iter().map(full).collect::<Result<_, _>>()?;
    let chosen = decision.chosen.as_ref();
    let contradicting = if chosen.is_none() { decision.tally.contradicting() } else { Vec::new() };
    let cap = chosen.and_then(|chosen| chosen_cap(snapshot, query, chosen));
    let settings = chosen.map_or_else(Map::new, |chosen| {
        engine_settings(snapshot, &query.work, chosen, &MemoryLimits::of(query))
    });
    let apply = json!({
        "active": chosen.is_some_and(|chosen| is_active(snapshot, chosen)),
        "reboot_required": chosen.is_some_and(|chosen| chosen.reboot_required),
        "entering_s": chosen.map(|chosen| chosen.entering.get()),
        "enter": cap.map(|(_, cap)| cap.command()),
        "leave": cap.and_then(|(hardware, cap)| cap.undo(hardware)),
        "settings": settings,
    });
    Ok(RecommendAnswer {
        engine: query.engine.key().to_owned(),
        engines: Vec::new(),
        feasible: chosen.is_some(),
        energy_basis: query.energy.key().to_owned(),
        reason: match chosen {
            Some(_) => decision.reason,
            None if closest.is_some() => format!("{}; {}", decision.tally.why_none(), decision.reason),
            None => decision.tally.why_none(),
        },
        alternatives,
        rejected: decision
            .tally
            .rejected()
            .iter()
            .map(|rejected| RejectionAnswer {
                by: rejected.by.key().to_owned(),
                count: rejected.count,
                closest: rejected.closest,
                limit: rejected.limit,
            })
            .collect(),
        violated: misses.iter().map(|miss| miss.by.key().to_owned()).collect(),
        misses: misses.iter().map(missed).collect(),
        contradicting: contradicting.iter().map(|by| by.key().to_owned()).collect(),
        sensitivity: decision.sensitivity.as_ref().map(sensitivity),
        apply,
        next_best_measurement: if snapshot.is_hypothetical() {
            Some(format!("run rooflinectl calibrate on the {}", snapshot.board.key))
        } else {
            decision.next_best_measurement
        },
        candidates: decision.tally.candidates(),
        warnings: {
            let mut warnings = decision.hints;
            warnings.extend(closest.as_ref().and_then(|closest| untried_modes(snapshot, query, closest)));
            warnings.extend(chosen.and_then(|chosen| not_enterable(snapshot, chosen)));
            warnings.extend(cap.map(|(hardware, cap)| how_to_cap(hardware, cap)));
            let predicted = decided.as_ref().or(closest.as_ref()).map(|of| &of.prediction.warnings);
            warnings.extend(predicted.into_iter().flatten().cloned());
            warnings
        },
        closest,
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
        decision: decided,
    })
}

fn missed(miss: &Miss) -> MissAnswer {
    MissAnswer {
        by: miss.by.key().to_owned(),
        limit: miss.limit,
        needed: miss.value,
        excess_ratio: miss.ratio(),
    }
}

/// Modes or caps that were not among the candidates, where none of these meets the limits.
fn untried_modes(snapshot: &Snapshot, query: &Query, closest: &CandidateAnswer) -> Option<String> {
    if query.modes != Modes::Now {
        return None;
    }
    if let Some(limit) = query.constraints.max_power {
        if let Some(cap) = snapshot.cap_within(limit) {
            let name = cap.mode().name;
            return Some(format!(
                "the card keeps within {limit} under its own limit: ask with the modes {name} or all"
            ));
        }
        if query.caps.is_empty() && !snapshot.proposed_caps().is_empty() {
            return Some(
                "no cap on its clock was considered; \"power_modes\":\"all\" considers some".to_owned(),
            );
        }
    }
    let mode = &closest.power_mode.as_ref()?.name;
    (snapshot.modes.len() > 1)
        .then(|| format!("only mode {mode} was considered; \"power_modes\":\"all\" considers the others too"))
}

/// Whether this machine is in the mode of the choice already.
fn is_active(snapshot: &Snapshot, chosen: &Candidate) -> bool {
    let active = snapshot.state.power_mode.known().filter(|_| !snapshot.is_hypothetical());
    active.is_some() && active == chosen.mode.as_ref()
}

/// Why this daemon would not enter the mode of the choice.
fn not_enterable(snapshot: &Snapshot, chosen: &Candidate) -> Option<String> {
    let mode = chosen.mode.as_ref()?;
    let view = snapshot.modes.iter().find(|view| view.mode.is(mode))?;
    let here = snapshot.is_hypothetical() || is_active(snapshot, chosen);
    let reason = view.unreachable.as_ref().filter(|_| !here)?;
    Some(format!("the daemon would not enter mode {} now: {reason}", mode.name))
}

/// The cap of `nvidia-smi` that the choice needs, and what it caps.
fn chosen_cap<'a>(snapshot: &'a Snapshot, query: &Query, chosen: &Candidate) -> Option<(&'a Hardware, Cap)> {
    let mode = chosen.mode.as_ref()?;
    let cap = query.caps.iter().find(|cap| cap.mode() == *mode)?;
    Some((snapshot.capped_hardware()?, *cap))
}

/// How to put a cap into practice, which is left to the user.
fn how_to_cap(hardware: &Hardware, cap: Cap) -> String {
    let (name, enter) = (cap.mode().name, cap.command());
    let leave = cap.undo(hardware).map_or_else(String::new, |undo| format!(", and lift it with {undo}"));
    let declared = match cap {
        Cap::Clock(mhz) => {
            format!(
                "; to let rooflined switch it, declare it: [control] clock_modes = [\"{name}=0..{mhz}MHz\"]"
            )
        }
        Cap::Power(_) if hardware.min_power_limit.is_none() => {
            "; the least that its driver takes is not published: nvidia-smi -q -d POWER shows it".to_owned()
        }
        Cap::Power(_) => String::new(),
    };
    format!("rooflined does not set {name}: set it with {enter}{leave}{declared}")
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
    query: &Query,
    candidate: &Candidate,
    outcome: Outcome,
) -> CandidateAnswer {
    let ChoiceAnswer { format, kv_format, power_mode, threads, batch } = choice(candidate);
    let loss = candidate.score.loss;
    let (speculative, cpu_moe_layers) = match &outcome.runs {
        Runs::Model { request, .. } => (request.speculative, request.offload.cpu_moe_layers),
        Runs::Op { .. } => (None, 0),
    };
    CandidateAnswer {
        format,
        power_mode,
        batch,
        kv_format,
        threads,
        draft_tokens: speculative.map(|speculative| speculative.draft_tokens),
        cpu_moe_layers: (cpu_moe_layers > 0).then_some(cpu_moe_layers),
        quality_loss_ratio: loss.is_finite().then_some(loss),
        prediction: prediction(snapshot, query, candidate, outcome),
    }
}

fn prediction(snapshot: &Snapshot, query: &Query, candidate: &Candidate, outcome: Outcome) -> PredictAnswer {
    let (work, engine) = (&query.work, query.engine);
    let work = match outcome.runs {
        Runs::Op { op, format } => {
            let numeric = snapshot.numeric_format(format);
            predict::Work::Op(Task { op, format, numeric, engine })
        }
        Runs::Model { model, request } => {
            let name = match work {
                WorkForms::Model { name, .. } => name.clone(),
                WorkForms::Op { .. } => model.name.clone(),
            };
            let format = candidate.format.clone();
            let task = ModelTask {
                name,
                model,
                format,
                request,
                engine,
                build: Build::default(),
                warnings: Vec::new(),
            };
            predict::Work::Model(Box::new(task))
        }
    };
    let mut answer = predict::prediction_answer(snapshot, &work, outcome.prediction);
    let memory = &mut answer.memory_bytes;
    memory.room = MemoryLimits::of(query).room(snapshot).map(Bytes::get);
    memory.fits = memory.room.map(|room| memory.total <= room);
    answer
}

/// The settings of every engine; nothing where a file does not say how it is stored.
pub(super) fn engine_settings(
    snapshot: &Snapshot,
    work: &WorkForms,
    chosen: &Candidate,
    limits: &MemoryLimits,
) -> Map<String, Value> {
    let Some(format) = chosen.format.as_deref() else { return Map::new() };
    let mut origin = ModelOrigin::Otherwise;
    let mut shared = None;
    let mut family = "";
    let text = match work {
        WorkForms::Op { .. } => None,
        WorkForms::Model { request, stored, .. } => {
            let of = stored.iter().find(|of| of.format == chosen.format);
            origin = of.map_or(ModelOrigin::Otherwise, |of| of.origin);
            let model = of.map(|of| of.model.as_ref());
            family = model.map_or("", |model| &model.family);
            let kv_cache = chosen.kv_format.unwrap_or(request.kv_cache);
            let request = Request { batch: chosen.batch, kv_cache, ..*request };
            let layers = model.map_or(0, |model| model.architecture.layers.len() as u64);
            shared = model.and_then(|model| shared_memory(snapshot, model, &request, limits));
            Some(Text {
                batch: chosen.batch,
                context_tokens: request.window(),
                prompt_tokens: request.whole_prompt(),
                chunk_tokens: request.chunk_tokens,
                kv_format: chosen.kv_format,
                drafts: request.speculative.map(|of| (of.kind, of.draft_tokens)),
                cpu_moe_layers: request.offload.cpu_moe_layers,
                gpu_layers: (request.offload.cpu_layers > 0)
                    .then(|| (layers + 1).saturating_sub(request.offload.cpu_layers)),
            })
        }
    };
    let device = match (Device::of(snapshot), chosen.threads) {
        (Device::Cpu { .. }, Some(threads)) => Device::Cpu { threads: Some(threads) },
        (device, _) => device,
    };
    settings(&Chosen { format, text, family, device, origin, shared })
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

/// The memory and what the model takes of it; `None` where the GPU has its own.
fn shared_memory(
    snapshot: &Snapshot,
    model: &Model,
    request: &Request,
    limits: &MemoryLimits,
) -> Option<SharedMemory> {
    let is_shared = snapshot.hardware.as_deref().is_some_and(|hardware| hardware.kind == Kind::Integrated);
    let memory = snapshot.state.memory.known().filter(|_| is_shared)?;
    // Only vLLM and TensorRT-LLM are given a part of it; they have no checkpoints.
    let request = Request { checkpoints: 0, ..*request };
    let engine = snapshot.engine_memory(Engine::Vllm);
    Some(SharedMemory {
        total: memory.total,
        available: memory.available,
        room: limits.room(snapshot)?,
        footprint: MemoryFootprint::new(model, &request, engine),
    })
}
