//! What services measured: the wire → what can be learnt from, and answers as if it had been.

use std::borrow::Cow;
use std::sync::Arc;

use super::catalogue::Catalogue;
use super::convert::as_f64;
use super::model::ModelTask;
use super::modes::{Model, refuse_power_limit};
use super::network_advice;
use super::run;
use super::task::{Task, model_at, unpredictable, with_threads};
use super::words::{positive, shorten};
use rooflined_api::{ObservationRequest, Workload};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Seconds, Watts};
use rooflined_predict::learning::models::{Measured, ObservedRuns};
use rooflined_predict::learning::vet::Refused;
use rooflined_predict::learning::{Observed, Residuals};
use rooflined_predict::snapshot::Snapshot;

/// Most observations of one request; each is a prediction itself.
pub const MAX_OBSERVATIONS: usize = 256;

/// A reference read this long before an observation arrives was read beside the run.
const BESIDE: Seconds = Seconds(120.0);

/// The observations that one answer rests on.
#[derive(Debug)]
pub struct ObservedSoFar<'a> {
    /// Of operations.
    pub residuals: Cow<'a, Residuals>,
    /// Of models.
    pub observed_runs: Cow<'a, ObservedRuns>,
}

impl<'a> ObservedSoFar<'a> {
    /// What was learnt on this machine.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            residuals: Cow::Borrowed(&snapshot.residuals),
            observed_runs: Cow::Borrowed(&snapshot.observed_runs),
        }
    }

    /// The same as if `observations` had been made as well.
    ///
    /// # Errors
    /// The first of them that would not be learnt from.
    pub fn supposing(
        snapshot: &'a Snapshot,
        catalogue: &Catalogue,
        observations: &[ObservationRequest],
    ) -> Result<Self, Refusal> {
        let mut known = Self::of(snapshot);
        if observations.len() > MAX_OBSERVATIONS {
            return Err(Code::TooMany.at(
                "observations",
                format!("{} observations are more than {MAX_OBSERVATIONS}", observations.len()),
                "send the newest ones",
            ));
        }
        let (mut runs, mut paths) = (Vec::new(), Vec::new());
        for (index, observation) in observations.iter().enumerate() {
            let path = format!("observations[{index}]");
            if observation.workload.model.is_some() {
                runs.push(measured(snapshot, catalogue, observation, &path)?);
                paths.push((path, observation));
            } else if observation.network.is_some() {
                return Err(Code::UnsupportedWorkload.at(
                    format!("{path}.network"),
                    "runs of networks move no prediction of a model or an operation",
                    "report them: POST /v1/observations",
                ));
            } else {
                let (task, time) = timed(snapshot, observation, &path)?;
                known.suppose_op(snapshot, observation, &task, time, &path)?;
            }
        }
        if !runs.is_empty() {
            let outcomes = known.observed_runs.to_mut().observe(&runs, 0.0);
            for (outcome, (path, observation)) in outcomes.into_iter().zip(paths) {
                outcome.map_err(|refused| refusal(&refused, observation, &path))?;
            }
        }
        Ok(known)
    }

    fn suppose_op(
        &mut self,
        snapshot: &Snapshot,
        observation: &ObservationRequest,
        task: &Task,
        time: Seconds,
        path: &str,
    ) -> Result<(), Refusal> {
        let point = observation.operating_point.as_ref();
        refuse_power_limit(point, &format!("{path}.operating_point"))?;
        let model = model_at(snapshot, point, &format!("{path}.operating_point"))?;
        let workload = format!("{path}.workload");
        let prediction = task.predict(&model).map_err(|error| unpredictable(&error, &workload))?;
        let learnt = self.residuals.to_mut().observe(task.residual_key(), task.op, &prediction, time);
        learnt.map_err(|refused| refused.refusal(&time_field(observation, path)))
    }
}

fn time_field(observation: &ObservationRequest, path: &str) -> String {
    format!("{path}.{}", if observation.time_s.is_some() { "time_s" } else { "tokens_per_s" })
}

fn refusal(refused: &Refused, observation: &ObservationRequest, path: &str) -> Refusal {
    let field = match refused.field() {
        "time_s" => time_field(observation, path),
        field => format!("{path}.{field}"),
    };
    Refusal { field: Some(field), ..refused.refusal() }
}

/// What an observation at `path` says; for the governor to learn from. Blocks where the model is a file.
///
/// # Errors
/// The first field that cannot be.
pub fn observed(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    observation: &ObservationRequest,
    path: &str,
) -> Result<Observed, Refusal> {
    if let Some(network) = &observation.network {
        let field = format!("{path}.network.");
        if observation.workload != Workload::default() || observation.operating_point.is_some() {
            return Err(Code::InvalidField.at(
                format!("{path}.workload"),
                "a network and another workload are both given",
                "describe the run in network alone, with its operating point",
            ));
        }
        let time = time(observation, 1.0, path)?;
        return network_advice::measured(snapshot, network, time, &field)
            .map(|run| Observed::Network(Box::new(run)));
    }
    if observation.workload.model.is_some() {
        let run = measured(snapshot, catalogue, observation, path)?;
        return Ok(Observed::Model(Box::new(run)));
    }
    learnable(observation, path)?;
    let (task, time) = timed(snapshot, observation, path)?;
    Ok(Observed::Op { engine: task.engine, op: task.op, format: task.format, time })
}

/// What is learnt of operations is filed by engine, operation and format, so nothing else may differ from the present.
fn learnable(observation: &ObservationRequest, path: &str) -> Result<(), Refusal> {
    if observation.operating_point.is_some() {
        return Err(Code::UnsupportedOperatingPoint.at(
            format!("{path}.operating_point"),
            "observations of operations are learned at the current operating point only",
            "leave operating_point out and report while the machine is in it",
        ));
    }
    if observation.workload.kv_format.is_some() {
        return Err(Code::UnsupportedWorkload.at(
            format!("{path}.workload.kv_format"),
            "observations of operations are not distinguished by the format of the cache yet",
            "leave kv_format out",
        ));
    }
    Ok(())
}

/// What an observation of an operation at `path` is about and the time of one run.
fn timed(
    snapshot: &Snapshot,
    observation: &ObservationRequest,
    path: &str,
) -> Result<(Task, Seconds), Refusal> {
    if observation.workload.threads.is_some() {
        return Err(Code::UnsupportedWorkload.at(
            format!("{path}.workload.threads"),
            "observations of operations are not distinguished by the number of threads",
            "leave threads out, and report runs with all of them",
        ));
    }
    let task = Task::new(snapshot, &observation.workload, observation.engine, &format!("{path}.workload"))?;
    let time = time(observation, as_f64(task.op.tokens()), path)?;
    Ok((task, time))
}

/// The time of one run, which makes `tokens`.
fn time(observation: &ObservationRequest, tokens: f64, path: &str) -> Result<Seconds, Refusal> {
    if let Some(power) = observation.power_w {
        positive(&format!("{path}.power_w"), power)?;
    }
    let time = match (observation.time_s, observation.tokens_per_s) {
        (Some(time), None) => positive(&format!("{path}.time_s"), time)?,
        (None, Some(rate)) => tokens / positive(&format!("{path}.tokens_per_s"), rate)?,
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                format!("{path}.tokens_per_s"),
                "time_s and tokens_per_s are both given",
                "give one of the two",
            ));
        }
        (None, None) => {
            return Err(Code::MissingField.at(
                format!("{path}.time_s"),
                "neither time_s nor tokens_per_s is given",
                "give one of the two",
            ));
        }
    };
    // A rate of 1e-308 is above zero, and its time is not finite.
    Ok(Seconds(positive(&format!("{path}.time_s"), time)?))
}

/// A measured run of a model at the operating point that the observation names.
fn measured(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    observation: &ObservationRequest,
    path: &str,
) -> Result<Measured, Refusal> {
    let workload = format!("{path}.workload");
    let task = ModelTask::new(snapshot, catalogue, &observation.workload, observation.engine, &workload)?;
    let time = time(observation, run::tokens(&task), path)?;
    let point = observation.operating_point.as_ref();
    refuse_power_limit(point, &format!("{path}.operating_point"))?;
    let at: Model<'_> = model_at(snapshot, point, &format!("{path}.operating_point"))?;
    let threads = observation.workload.threads;
    let at = with_threads(snapshot, at, threads, &format!("{workload}.threads"))?;
    let now = || snapshot.state.power_mode.known().map(|mode| mode.name.clone());
    let mode = match point {
        None => now(),
        Some(point) => point.power_mode.as_deref().map(|mode| shorten(mode).to_owned()),
    };
    let kernels = run::kernels(snapshot, &at, task.engine).map(|kernels| Arc::new(kernels.into_owned()));
    let hardware = snapshot.hardware.as_deref();
    Ok(Measured {
        engine: task.engine,
        format: run::stored_as(&task),
        name: task.name,
        model: task.model,
        request: task.request,
        kernels,
        cpu: snapshot.cpu_host(task.engine, at.threads),
        memory_ratio: snapshot.memory_ratio(BESIDE),
        roofline: Arc::new(at.roofline.into_owned()),
        hardware: hardware.map(|hardware| hardware.key.clone()),
        mode,
        time,
        power: observation.power_w.map(Watts),
        power_limit: hardware.and_then(|hardware| hardware.tdp),
    })
}
