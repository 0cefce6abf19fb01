//! A run of a whole model: what is asked of it, and what somebody measured.

use std::sync::Arc;

use super::anchor::{self, Observation, Subject};
use super::cpu_run::CpuRun;
use crate::costs::{Build, EngineCosts, build_costs};
use crate::cpu::{self, CpuCosts, Host, cpu_costs};
use crate::model::{Costs, ModelError, predict_model};
use crate::step::Machine;
use crate::{Engine, EngineProfile, Prediction};
use rooflined_core::ceilings::Roofline;
use rooflined_core::units::{Hertz, Seconds, Watts};
use rooflined_models::model::Model;
use rooflined_models::transformer::{Request, Run};

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
    /// The CPU that runs it, for an engine with costs on CPUs; `None` elsewhere.
    pub cpu: Option<Host>,
    /// How old the engine's build is.
    pub build: Build,
    /// Key of the hardware, for the costs that were shipped.
    pub hardware: Option<&'a str>,
}

impl<'a> ModelQuery<'a> {
    pub(super) const fn subject(&self) -> Subject<'a> {
        Subject { engine: self.engine, model: self.name, format: self.format }
    }

    pub(super) fn shipped(&self) -> &'static EngineCosts {
        build_costs(self.engine, self.build, self.hardware)
    }

    /// The costs that were shipped for this CPU; `None` where a pass is no sum of an engine's costs on a CPU.
    pub(super) fn cpu_costs(&self) -> Option<&'static CpuCosts> {
        let host = self.cpu.filter(|_| self.kernels.is_none())?;
        host.costs.or_else(|| cpu_costs(self.engine, host.processor))
    }

    /// Predicts it with an engine's costs on this CPU.
    pub(super) fn predict_on_cpu(&self, costs: &CpuCosts) -> Result<Prediction, ModelError> {
        let host = self.cpu.ok_or(ModelError::NoMachine)?;
        let machine = cpu::Machine::of(self.roofline, &host).ok_or(ModelError::NoMachine)?;
        let mut prediction = predict_model(
            &host.roofline(self.roofline),
            Costs::Cpu { costs, machine: &machine },
            self.model,
            self.request,
        )?;
        if machine.threads > host.cores {
            prediction.warnings.push(format!(
                "{} threads on {} cores: at every barrier they wait for the scheduler, which is not predicted; as many threads as \
                 idle cores are fastest",
                machine.threads, host.cores
            ));
        }
        Ok(prediction)
    }

    /// The run as the kernels on this CPU see it.
    pub(super) fn cpu_run(&self) -> Result<CpuRun, ModelError> {
        let host = self.cpu.ok_or(ModelError::NoMachine)?;
        let machine = cpu::Machine::of(self.roofline, &host).ok_or(ModelError::NoMachine)?;
        let run = Run::new(self.model, self.request)?;
        Ok(CpuRun { machine, passes: cpu::repeated(self.model, &run, self.request) })
    }

    pub(super) fn predict(&self, costs: &EngineCosts) -> Result<Prediction, ModelError> {
        if let Some(costs) = self.cpu_costs() {
            return self.predict_on_cpu(costs);
        }
        let costs = self.kernels.map_or(Costs::Engine(costs), Costs::Kernels);
        predict_model(self.roofline, costs, self.model, self.request)
    }

    /// The machine; where it is no GPU, only the ratios of such machines to each other mean anything.
    pub(super) fn machine(&self) -> Machine {
        if let Some(host) = &self.cpu {
            let at = host.roofline(self.roofline);
            let clock = at.clock.unwrap_or(Hertz(1e9));
            return Machine {
                memory: at.bandwidth.value,
                measured: None,
                cycles: f64::from(at.workers) * clock.get(),
                clock,
            };
        }
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
    pub cpu: Option<Host>,
    /// Part of the calibrated bandwidth that a reference read beside the run found: what others take is not learnt as the
    /// engine's. `None` = no reference of that time.
    pub memory_ratio: Option<f64>,
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
            cpu: self.cpu,
            build: Build::Current,
            hardware: self.hardware.as_deref(),
        }
    }

    pub(super) fn observation(
        &self,
        costs: &EngineCosts,
        plain: &Prediction,
    ) -> Result<Observation, ModelError> {
        let run = Run::new(&self.model, &self.request)?;
        let asked = self.asked();
        let on_cpu = asked.cpu_costs().is_some();
        let beside = |run: CpuRun| CpuRun {
            machine: run.machine.with_memory_ratio(self.memory_ratio.unwrap_or(1.0)),
            ..run
        };
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
            steps: if on_cpu { Vec::new() } else { anchor::repeated(self.engine, &self.model, &run) },
            machine: asked.machine(),
            cpu: if on_cpu { Some(beside(asked.cpu_run()?)) } else { None },
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
