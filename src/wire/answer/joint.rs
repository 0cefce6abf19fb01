//! The decision about several workloads, between the wire and the search.

use serde_json::Value;

use super::catalogue::Catalogue;
use super::positive;
use super::question::{self, Forms};
use super::recommend::{MemoryLimits, engine_settings, refused, shown_candidate};
use decide::optimize::{
    Joint, JointDecision, JointError, JointQuery, MAX_WORKLOADS, Member, Modes, Query, QueryError, Resident,
    Score, Sharing, USUAL_RUN, Work, decide_jointly,
};
use decide::snapshot::Snapshot;
use predict::calibration::Accelerator;
use roofline::refusal::{Code, Refusal};
use roofline::units::{Bytes, Seconds, Watts};
use wire::{
    Constraints, EstimateAnswer, Freedom, JointAnswer, JointMember, JointRejected, JointRequest, JointTotals,
    JointViolation, JointWorkload, ModeAnswer, RecommendRequest, SharedAnswer,
};

/// `POST /v1/recommend/joint`.
pub fn recommend_jointly(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &JointRequest,
) -> Result<JointAnswer, Refusal> {
    let query = query(snapshot, catalogue, request)?;
    let decision = decide_jointly(snapshot, &query).map_err(|error| wrong(&error))?;
    answered(snapshot, &query, decision)
}

fn query(snapshot: &Snapshot, catalogue: &Catalogue, request: &JointRequest) -> Result<JointQuery, Refusal> {
    let count = request.workloads.len();
    if !(2..=MAX_WORKLOADS).contains(&count) {
        return Err(wrong(&JointError::Workloads { count }));
    }
    let shares = shares(&request.workloads)?;
    let limit = |name: &str, value: Option<f64>| {
        value.map(|value| positive(&format!("constraints.{name}"), value)).transpose()
    };
    let max_power = limit("max_power_w", request.constraints.max_power_w)?.map(Watts);
    let max_memory = limit("max_memory_bytes", request.constraints.max_memory_bytes)?.map(Bytes);
    let run_time = match request.freedom.run_s {
        Some(run) => Seconds(positive("freedom.run_s", run)?),
        None => USUAL_RUN,
    };
    let mut residents = Vec::with_capacity(count);
    // The same of every workload.
    let (mut modes, mut reserve) = (Modes::Now, Bytes::ZERO);
    for (index, (of, share)) in request.workloads.iter().zip(shares).enumerate() {
        own_limits(index, &of.constraints)?;
        let single = single(request, of);
        let (asked, _) = question::query(snapshot, catalogue, &single, Forms::ThatCanBeMade)
            .map_err(|error| located(error, index))?;
        let Query { work, engine, constraints, batch, .. } = asked;
        residents.push(Resident { work, engine, share, constraints, batch });
        (modes, reserve) = (asked.modes, asked.reserve);
    }
    Ok(JointQuery {
        residents,
        sharing: request.sharing,
        objective: request.objective,
        max_power,
        max_memory,
        modes,
        allow_reboot: request.freedom.allow_reboot,
        optimism: request.optimism,
        run_time,
        reserve,
    })
}

/// The question about one of the workloads alone.
fn single(request: &JointRequest, of: &JointWorkload) -> RecommendRequest {
    let min_free_memory_bytes = request.constraints.min_free_memory_bytes;
    RecommendRequest {
        hardware: None,
        operating_point: None,
        workload: of.workload.clone(),
        engine: of.engine,
        objective: request.objective,
        constraints: Constraints { min_free_memory_bytes, ..of.constraints },
        freedom: Freedom {
            formats: of.freedom.formats.clone(),
            kv_formats: of.freedom.kv_formats.clone(),
            power_modes: request.freedom.power_modes.clone(),
            threads: None,
            batch: of.freedom.batch,
            allow_reboot: request.freedom.allow_reboot,
            run_s: None,
        },
        optimism: request.optimism,
        hypothetical: false,
    }
}

/// Limits of the machine are not those of a workload.
fn own_limits(index: usize, of: &Constraints) -> Result<(), Refusal> {
    let given = [
        ("max_power_w", of.max_power_w.is_some()),
        ("min_free_memory_bytes", of.min_free_memory_bytes.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Code::InvalidField.at(
            format!("workloads[{index}].constraints.{name}"),
            format!("{name} is a limit of the machine, not of one workload"),
            format!("give it in constraints.{name}, beside workloads"),
        )),
        None => Ok(()),
    }
}

/// The shares as given; those that are absent share evenly what is left.
fn shares(workloads: &[JointWorkload]) -> Result<Vec<f64>, Refusal> {
    let mut sum = 0.0;
    let mut absent: u32 = 0;
    for (workload, of) in workloads.iter().enumerate() {
        match of.share {
            Some(share) if share > 0.0 && share <= 1.0 => sum += share,
            Some(share) => return Err(wrong(&JointError::Share { workload, share })),
            None => absent += 1,
        }
    }
    let left = (1.0 - sum) / f64::from(absent.max(1));
    match workloads.iter().position(|of| of.share.is_none()) {
        // No rounding of shares that are all there is leaves anything worth having.
        Some(index) if left < 1e-6 => Err(Code::InvalidField.at(
            format!("workloads[{index}].share"),
            format!("workloads[{index}].share is absent, and the others take {sum} of the machine"),
            "give every workload its share, 1 at most together",
        )),
        _ => Ok(workloads.iter().map(|of| of.share.unwrap_or(left)).collect()),
    }
}

/// The same error, where the field is in the joint request.
fn located(error: Refusal, index: usize) -> Refusal {
    const SHARED: [&str; 2] = ["freedom.power_modes", "constraints.min_free_memory_bytes"];
    let of_all = |field: &str| SHARED.iter().any(|shared| field.starts_with(shared));
    match error.field {
        Some(field) if !of_all(&field) => Refusal {
            message: format!("workloads[{index}]: {}", error.message),
            field: Some(format!("workloads[{index}].{field}")),
            ..error
        },
        field => Refusal { field, ..error },
    }
}

fn wrong(error: &JointError) -> Refusal {
    let message = error.to_string();
    match error {
        JointError::Workloads { .. } => Code::InvalidField.at(
            "workloads",
            message,
            format!("name 2 to {MAX_WORKLOADS}; ask POST /v1/recommend about one"),
        ),
        JointError::Share { workload, .. } => Code::InvalidField.at(
            format!("workloads[{workload}].share"),
            message,
            "give a part of the machine, such as 0.5, or leave it out for an even part of the rest",
        ),
        JointError::Shares { .. } => {
            Code::InvalidField.at("workloads", message, "make the shares smaller: 1 is the whole machine")
        }
        JointError::Query { workload: Some(index), error } => located(refused(error), *index),
        JointError::Query { workload: None, error: QueryError::PowerUnknown { objective: false, .. } } => {
            Code::UnsupportedConstraint.at(
                "constraints.max_power_w",
                message,
                "leave it out, or report measured runs with power_w: POST /v1/observations",
            )
        }
        JointError::Query { workload: None, error } => refused(error),
        JointError::TooMany { .. } => Code::TooMany.at(
            "workloads",
            message,
            "narrow formats, power modes or batches, or leave out max_power_w or max_memory_bytes where it is not needed",
        ),
    }
}

const fn sharing_key(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::TimeSlicing => "time_slicing",
        Sharing::Mps => "mps",
    }
}

/// What the figures do not cover.
fn honesty(snapshot: &Snapshot, sharing: Sharing) -> Vec<String> {
    let mut words = vec![match sharing {
        Sharing::TimeSlicing => {
            "time slicing is a model (time / share); nobody measured it here, and switching between workloads costs nothing in it"
        }
        Sharing::Mps => {
            "mps is a model (bandwidth, peaks and cycles x share); nobody measured it here, and caches and memory that \
             workloads take from each other beyond their shares are not in it"
        }
    }
    .to_owned()];
    if sharing == Sharing::Mps && snapshot.accelerator == Accelerator::Cpu {
        words.push("the CPU is the accelerator: a share stands for a part of its cores".to_owned());
    }
    words
}

fn answered(
    snapshot: &Snapshot,
    query: &JointQuery,
    decision: JointDecision,
) -> Result<JointAnswer, Refusal> {
    let feasible = decision.chosen.is_some();
    let shown = decision.chosen.or(decision.closest);
    let Some(Joint { members, totals }) = shown else {
        return Err(Code::Internal.error("there was no candidate", "report this"));
    };
    let first = members.first().map(|member| &member.candidate);
    let power_mode = first.and_then(|candidate| candidate.mode.as_ref());
    let power_mode = power_mode.map(|mode| ModeAnswer { id: mode.id, name: mode.name.clone() });
    let reboot_required = first.is_some_and(|candidate| candidate.reboot_required);
    let entering_s = first.map_or(0.0, |candidate| candidate.entering.get());
    let known = |value: f64| value.is_finite().then_some(value);
    let mut warnings = honesty(snapshot, query.sharing);
    warnings.extend(decision.hints);
    let position = |index: usize| index as u64;
    let zipped = members.into_iter().zip(&query.residents);
    Ok(JointAnswer {
        feasible,
        power_mode,
        workloads: zipped.map(|(member, resident)| shown_member(snapshot, resident, member)).collect(),
        totals: JointTotals {
            longest_time_s: totals.longest,
            tokens_per_s: totals.rate,
            memory_bytes: totals.memory,
            memory_available_bytes: snapshot.state.memory.known().map(|memory| memory.available.get()),
            power_w: known(totals.watts),
            power_high_w: known(totals.watts_high),
            energy_j_per_token: known(totals.energy),
        },
        reason: decision.reason,
        rejected: decision
            .rejected
            .iter()
            .map(|(workload, rejected)| JointRejected {
                workload: position(*workload),
                by: rejected.by.key().to_owned(),
                count: rejected.count,
                closest: rejected.closest,
            })
            .collect(),
        violated: decision
            .violated
            .iter()
            .map(|violation| JointViolation {
                workload: violation.workload.map(position),
                by: violation.by.key().to_owned(),
            })
            .collect(),
        sharing: sharing_key(query.sharing).to_owned(),
        reboot_required,
        entering_s,
        warnings,
        candidates: decision.candidates,
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    })
}

fn shown_member(snapshot: &Snapshot, resident: &Resident, member: Member) -> JointMember {
    let Member { candidate, alone } = member;
    let name = match &resident.work {
        Work::Op { op, .. } => op.kind().to_owned(),
        Work::Model { name, .. } => name.clone(),
    };
    let shared = shared(&candidate.score);
    // Each is let have what it was decided with: the rest is for the others.
    let limits = MemoryLimits { reserve: Bytes::ZERO, most: Some(Bytes(candidate.score.memory)) };
    let settings = Value::Object(engine_settings(snapshot, &resident.work, &candidate, &limits));
    let choice = shown_candidate(snapshot, (&resident.work, resident.engine), &candidate, alone);
    JointMember { name, share: resident.share, choice, shared, settings }
}

fn shared(score: &Score) -> SharedAnswer {
    let around = |value: f64| EstimateAnswer { value, low: value / score.slack, high: value * score.slack };
    let known = |value: f64| value.is_finite().then(|| around(value));
    SharedAnswer {
        time_s: around(score.time),
        tokens_per_s: around(score.rate),
        time_to_first_token_s: known(score.first),
        time_per_token_s: known(score.per_token),
    }
}
