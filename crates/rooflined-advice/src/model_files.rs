//! Where requests name models and networks.

use serde_json::{Value, json};

use crate::request::Request;
use rooflined_api::{HoldRequest, NetworkPredictRequest, ObservationRequest, RecommendRequest, Workload};
use rooflined_core::refusal::Refusal;

/// Is given a model or a network and the field that errors name.
pub type Visit<'a> = dyn FnMut(&mut Value, &str) -> Result<(), Refusal> + 'a;

/// Requests that may name models.
pub trait NamesModels {
    /// Shows `visit` every model, wherever it is in the request.
    ///
    /// # Errors
    /// The first one of `visit`.
    fn each_model(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal>;

    /// Shows `visit` every vision network.
    ///
    /// # Errors
    /// The first one of `visit`.
    fn each_network(&mut self, _visit: &mut Visit<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

fn of_network(request: &mut NetworkPredictRequest, at: &str, visit: &mut Visit<'_>) -> Result<(), Refusal> {
    request.network.as_mut().map_or(Ok(()), |network| visit(network, &format!("{at}network")))
}

fn of_workload(workload: &mut Workload, at: &str, visit: &mut Visit<'_>) -> Result<(), Refusal> {
    workload.model.as_mut().map_or(Ok(()), |model| visit(model, &format!("{at}workload.model")))
}

fn of_observations(observations: &mut [ObservationRequest], visit: &mut Visit<'_>) -> Result<(), Refusal> {
    observations.iter_mut().enumerate().try_for_each(|(index, observation)| {
        of_workload(&mut observation.workload, &format!("observations[{index}]."), visit)
    })
}

impl NamesModels for Request {
    fn each_model(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        match self {
            Self::Predict(request) => {
                of_workload(&mut request.workload, "", visit)?;
                of_observations(&mut request.observations, visit)
            }
            Self::Recommend(request) => request.each_model(visit),
            Self::Sweep(request) => {
                let mut models = request.models.iter_mut().enumerate();
                models.try_for_each(|(index, model)| visit(model, &format!("models[{index}]")))
            }
            Self::Analyze(request) => of_workload(&mut request.workload, "", visit),
            Self::Explain(request) => {
                of_workload(&mut request.workload, "", visit)?;
                let actual = request.seen.as_mut().and_then(|seen| seen.workload.as_mut());
                actual.map_or(Ok(()), |workload| of_workload(workload, "seen.", visit))
            }
            _ => Ok(()),
        }
    }

    fn each_network(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        match self {
            Self::PredictNetwork(request) => of_network(request, "", visit),
            Self::RecommendNetwork(request) => of_network(&mut request.workload, "workload.", visit),
            _ => Ok(()),
        }
    }
}

impl NamesModels for RecommendRequest {
    fn each_model(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        of_workload(&mut self.workload, "", visit)
    }
}

impl NamesModels for Vec<ObservationRequest> {
    fn each_model(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        of_observations(self, visit)
    }

    fn each_network(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        self.iter_mut().enumerate().try_for_each(|(index, observation)| {
            let network = observation.network.as_deref_mut();
            network.map_or(Ok(()), |request| {
                of_network(request, &format!("observations[{index}].network."), visit)
            })
        })
    }
}

impl NamesModels for HoldRequest {
    fn each_model(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        self.query.as_mut().map_or(Ok(()), |query| of_workload(&mut query.workload, "query.", visit))
    }
}

/// The part of a model that is shown to others, or kept: of a file its path, which its definition only repeats at length.
#[must_use]
pub fn without_definition(model: &Value) -> Value {
    match model.get("definition").and(model.get("path")) {
        Some(path) => json!({ "path": path }),
        None => model.clone(),
    }
}
