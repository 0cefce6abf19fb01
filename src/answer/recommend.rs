//! The decision, from the wire and back.

use serde_json::{Map, Value, json};

use super::modes::mode_named;
use super::positive;
use super::predict::shown;
use super::sweep::formats_or_measured;
use super::task::{Task, format_named, invalid_op, model_at, operation, unpredictable};
use crate::answer::error::Code;
use crate::api::{
    self, CandidateAnswer, ErrorBody, ModeAnswer, RecommendAnswer, RecommendRequest, RejectedAnswer,
};
use crate::board::{ActiveMode, Reading};
use crate::optimize::{Candidate, Constraints, Decision, MAX_CANDIDATES, Query, QueryError, decide};
use crate::precision::WeightFormat;
use crate::predict::Engine;
use crate::snapshot::Snapshot;
use crate::units::{Bytes, Seconds};
use crate::workload::Op;

/// `POST /v1/recommend`.
pub fn recommend(snapshot: &Snapshot, request: &RecommendRequest) -> Result<RecommendAnswer, ErrorBody> {
    let elsewhere = elsewhere(snapshot, request)?;
    let snapshot = elsewhere.as_ref().unwrap_or(snapshot);
    let query = query(snapshot, request)?;
    let decision = decide(snapshot, &query).map_err(|error| refused(&error))?;
    Ok(answered(snapshot, &query, decision))
}

/// The same picture at the operating point asked for; `None` where none is.
fn elsewhere(snapshot: &Snapshot, request: &RecommendRequest) -> Result<Option<Snapshot>, ErrorBody> {
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

fn query(snapshot: &Snapshot, request: &RecommendRequest) -> Result<Query, ErrorBody> {
    let op = operation(&request.workload, "workload")?;
    for (index, mode) in request.freedom.power_modes.iter().flatten().enumerate() {
        mode_named(snapshot, &format!("freedom.power_modes[{index}]"), mode)?;
    }
    Ok(Query {
        op,
        engine: request.engine,
        objective: request.objective,
        constraints: constraints(&request.constraints, op)?,
        formats: formats(snapshot, request)?,
        batch: batch(request, op)?,
        optimism: request.optimism,
    })
}

/// A format in the workload fixes the choice; together with a freedom it would contradict it.
fn formats(snapshot: &Snapshot, request: &RecommendRequest) -> Result<Vec<WeightFormat>, ErrorBody> {
    match (&request.workload.format, &request.freedom.formats) {
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            "workload.format",
            "workload.format and freedom.formats are both given",
            "leave workload.format out to let freedom.formats choose",
        )),
        (Some(name), None) => Ok(vec![format_named(name, || "workload.format".to_owned())?]),
        (None, names) => formats_or_measured(snapshot, names.as_deref(), "freedom.formats"),
    }
}

fn batch(request: &RecommendRequest, op: Op) -> Result<std::ops::RangeInclusive<u64>, ErrorBody> {
    match (request.workload.batch, request.freedom.batch) {
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            "workload.batch",
            "workload.batch and freedom.batch are both given",
            "leave workload.batch out to let freedom.batch choose",
        )),
        (_, Some(range)) => Ok(range.min..=range.max),
        (_, None) => {
            let columns = if let Op::Gemm { m, .. } = op { m } else { 1 };
            Ok(columns..=columns)
        }
    }
}

fn constraints(wire: &api::Constraints, op: Op) -> Result<Constraints, ErrorBody> {
    let unsupported = [
        (
            "max_power_w",
            wire.max_power_w.is_some(),
            "nothing on this machine measures the power of an operation",
        ),
        (
            "max_time_to_first_token_s",
            wire.max_time_to_first_token_s.is_some(),
            "it applies to models, and this is an operation",
        ),
    ];
    if let Some((name, _, why)) = unsupported.into_iter().find(|(_, present, _)| *present) {
        return Err(Code::UnsupportedConstraint.at(
            format!("constraints.{name}"),
            format!("{name} cannot be kept: {why}"),
            format!("leave it out; {} takes max_time_s, min_tokens_per_s, max_memory_bytes and max_quality_loss_ratio", op.kind()),
        ));
    }
    let checked = |name: &str, value: Option<f64>| {
        value.map(|value| positive(&format!("constraints.{name}"), value)).transpose()
    };
    let time = checked("max_time_s", wire.max_time_s)?;
    let max_quality_loss = wire.max_quality_loss_ratio;
    if let Some(ratio) = max_quality_loss.filter(|ratio| !ratio.is_finite() || *ratio < 0.0) {
        let field = "constraints.max_quality_loss_ratio";
        return Err(Code::InvalidField.at(
            field,
            format!("{field} is {ratio}; it must be 0 or more"),
            "give the relative increase of perplexity that is acceptable: 0.03 for three per cent",
        ));
    }
    // For an operation the two are one limit; the tighter one binds.
    let per_token = checked("max_time_per_token_s", wire.max_time_per_token_s)?;
    let tightest = time.into_iter().chain(per_token).reduce(f64::min);
    Ok(Constraints {
        max_time: tightest.map(Seconds),
        min_tokens_per_s: checked("min_tokens_per_s", wire.min_tokens_per_s)?,
        max_memory: checked("max_memory_bytes", wire.max_memory_bytes)?.map(Bytes),
        max_quality_loss,
    })
}

fn refused(error: &QueryError) -> ErrorBody {
    let message = error.to_string();
    match error {
        QueryError::Op(error) => invalid_op(error, "workload.op"),
        QueryError::NoFormats => {
            Code::InvalidField.at("freedom.formats", message, "name at least one format")
        }
        QueryError::EmptyBatch { .. } => Code::InvalidField.at(
            "freedom.batch",
            message,
            "give a min of 1 or more and a max that is no smaller",
        ),
        QueryError::NothingToChoose { .. } => {
            Code::UnsupportedWorkload.at("workload.op.kind", message, "ask POST /v1/predict for its time")
        }
        QueryError::TooMany { .. } => Code::TooMany.at(
            "freedom.batch",
            message,
            format!("narrow batch or formats to at most {MAX_CANDIDATES} combinations"),
        ),
        QueryError::PowerUnknown => {
            Code::UnsupportedObjective.at("objective", message, "choose latency or throughput")
        }
        QueryError::Predict(error) => unpredictable(error, "workload"),
    }
}

fn answered(snapshot: &Snapshot, query: &Query, decision: Decision) -> RecommendAnswer {
    let candidate = |candidate: Candidate| shown_candidate(snapshot, query.engine, candidate);
    let (closest, violated) = decision.closest.map_or((None, Vec::new()), |(closest, violated)| {
        (Some(closest), violated.iter().map(|by| by.key().to_owned()).collect())
    });
    let settings = decision.chosen.as_ref().map_or_else(Map::new, |chosen| settings(query.engine, chosen));
    RecommendAnswer {
        feasible: decision.chosen.is_some(),
        decision: decision.chosen.map(candidate),
        reason: decision.reason,
        alternatives: decision.alternatives.into_iter().map(candidate).collect(),
        rejected: decision
            .rejected
            .iter()
            .map(|rejected| RejectedAnswer {
                by: rejected.by.key().to_owned(),
                count: rejected.count,
                closest: rejected.closest,
            })
            .collect(),
        closest: closest.map(candidate),
        violated,
        apply: json!({ "reboot_required": false, "settings": settings }),
        next_best_measurement: if snapshot.is_hypothetical() {
            Some(format!("calibrate where there is a {}: rooflinectl calibrate", snapshot.board.key))
        } else {
            decision.next_best_measurement
        },
        candidates: decision.candidates,
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    }
}

fn shown_candidate(snapshot: &Snapshot, engine: Engine, candidate: Candidate) -> CandidateAnswer {
    let numeric = snapshot.numeric_format(candidate.format);
    let task = Task { op: candidate.op, format: candidate.format, numeric, engine };
    let prediction = shown(snapshot, &task, candidate.prediction);
    CandidateAnswer {
        format: candidate.format.key().to_owned(),
        power_mode: snapshot
            .state
            .power_mode
            .known()
            .map(|mode| ModeAnswer { id: mode.id, name: mode.name.clone() }),
        batch: candidate.batch,
        quality_loss_ratio: candidate.quality_loss,
        prediction,
    }
}

/// How the engine is told, where it has a switch for the format.
fn settings(engine: Engine, chosen: &Candidate) -> Map<String, Value> {
    let torchao = match chosen.format {
        WeightFormat::Int8 => Some("Int8WeightOnlyConfig()"),
        WeightFormat::Int4G32 => Some("Int4WeightOnlyConfig(group_size=32)"),
        WeightFormat::Int4G64 => Some("Int4WeightOnlyConfig(group_size=64)"),
        WeightFormat::Int4G128 => Some("Int4WeightOnlyConfig(group_size=128)"),
        _ => None,
    };
    match (engine, torchao) {
        (Engine::Torch, Some(config)) => Map::from_iter([("torchao".to_owned(), config.into())]),
        _ => Map::new(),
    }
}
