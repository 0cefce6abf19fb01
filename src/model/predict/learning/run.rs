//! A run of a whole model: what is asked of it, and what somebody measured.

use std::sync::Arc;

use super::anchor::{self, Observation, Subject};
use crate::costs::{EngineCosts, engine_costs};
use crate::model::{Costs, ModelError, predict_model};
use crate::step::Machine;
use crate::{Engine, EngineProfile, Prediction};
use roofline::ceilings::Roofline;
use roofline::units::{Hertz, Seconds, Watts};
use roofline::workload::model::Model;
use roofline::workload::transformer::{Request, Run};

/// A model to predict at one operating point.
#[derive(Debug, Clone)]
pub struct ModelQuery<'a> {
    pub engine: Engine,
    /// Key, path or name of the model.
    pub name: &'a str,
    pub format: &'a str,
    pub model: &'a Model,
    /// What is asked of it.
    pub request: &'a Request,
    /// Ceilings at the operating point.
    pub roofline: &'a Roofline,
    /// Calibrated kernels, where a pass is the sum of its operations; `None` = the engine's costs.
    pub kernels: Option<&'a EngineProfile>,
    /// Key of the hardware, for the costs that were shipped.
    pub hardware: Option<&'a str>,
}

impl<'a> ModelQuery<'a> {
    pub(super) const fn subject(&self) -> Subject<'a> {
        Subject { engine: self.engine, model: self.name, format: self.format }
    }

    pub(super) fn shipped(&self) -> &'static EngineCosts {
        engine_costs(self.engine, self.hardware)
    }

    pub(super) fn predict(&self, costs: &EngineCosts) -> Result<Prediction, ModelError> {
        let costs = self.kernels.map_or(Costs::Engine(costs), Costs::Kernels);
        predict_model(self.roofline, costs, self.model, self.request)
    }

    /// The machine; where it is no GPU, only the ratios of such machines to each other mean anything.
    pub(super) fn machine(&self) -> Machine {
        Machine::of(self.roofline).unwrap_or_else(|| Machine {
            memory: self.roofline.bandwidth.value,
            measured: None,
            cycles: f64::from(self.roofline.workers) * self.roofline.clock.unwrap_or(Hertz(1e9)).get(),
            clock: self.roofline.clock.unwrap_or(Hertz(1e9)),
        })
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.request.context_tokens.saturating_add(self.request.prompt_tokens)
    }
}

/// A run that somebody measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub engine: Engine,
    /// Key, path or name of the model.
    pub name: String,
    pub format: String,
    pub model: Arc<Model>,
    pub request: Request,
    /// Ceilings at the operating point it ran at.
    pub roofline: Arc<Roofline>,
    /// As in [`ModelQuery`].
    pub kernels: Option<Arc<EngineProfile>>,
    /// As in [`ModelQuery`].
    pub hardware: Option<String>,
    /// Power mode by name.
    pub mode: Option<String>,
    /// Time of the run, as [`Prediction::time`] counts it.
    pub time: Seconds,
    pub power: Option<Watts>,
    /// What the machine is designed to draw at most.
    pub power_limit: Option<Watts>,
}

impl Measured {
    /// What would have been asked beforehand.
    #[must_use]
    pub fn asked(&self) -> ModelQuery<'_> {
        ModelQuery {
            engine: self.engine,
            name: &self.name,
            format: &self.format,
            model: &self.model,
            request: &self.request,
            roofline: &self.roofline,
            kernels: self.kernels.as_deref(),
            hardware: self.hardware.as_deref(),
        }
    }

    pub(super) fn observation(
        &self,
        costs: &EngineCosts,
        plain: &Prediction,
    ) -> Result<Observation, ModelError> {
        let run = Run::new(&self.model, &self.request)?;
        let mut observation = Observation {
            engine: self.engine,
            model: self.name.clone(),
            format: self.format.clone(),
            hardware: self.hardware.clone(),
            mode: self.mode.clone(),
            phase: self.request.phase,
            batch: self.request.batch,
            context_tokens: self.request.context_tokens,
            prompt_tokens: self.request.prompt_tokens,
            steps: anchor::repeated(self.engine, &self.model, &run),
            machine: self.asked().machine(),
            // The curve is no part of a step's time and most of the bytes.
            roofline: Arc::new(Roofline { curve: Vec::new(), ..Roofline::clone(&self.roofline) }),
            time: self.time,
        };
        if self.kernels.is_some() {
            // Kept so that its ratio to the engine's costs is that to the kernels' prediction.
            let ratio = (self.time / plain.time.value).ln() - observation.log_ratio(costs);
            observation.time = observation.time * ratio.exp();
        }
        Ok(observation)
    }
}
