//! A question to the optimizer: the work, its limits, and the freedom to choose.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::Engine;
use crate::snapshot::Cap;
use rooflined_core::board::ActiveMode;
use rooflined_core::names::{EnergyBasis, Objective, Optimism};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Seconds, Watts};
use rooflined_models::model::Model;
use rooflined_models::transformer::Request;

/// Limits that an answer must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Constraints {
    /// Longest time of one run.
    pub max_time: Option<Seconds>,
    /// Longest time of one token after the first; for an operation, of the operation.
    pub max_time_per_token: Option<Seconds>,
    /// Longest time until the first token.
    pub max_time_to_first_token: Option<Seconds>,
    /// Fewest tokens (columns) per second over the batch.
    pub min_tokens_per_s: Option<f64>,
    pub max_power: Option<Watts>,
    pub max_memory: Option<Bytes>,
    /// Largest quality loss ratio: the relative increase of perplexity over 16-bit weights.
    pub max_quality_loss: Option<f64>,
}

/// A model as it would be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredModel {
    /// Key of the format; `None` for a file that does not say.
    pub format: Option<String>,
    pub model: Arc<Model>,
    /// Quality loss ratio that is expected of it; `None` where nothing is known.
    pub quality_loss: Option<f64>,
    pub origin: ModelOrigin,
}

/// How a model in a format is come by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelOrigin {
    /// The checkpoint is published in the format, and was trained in it.
    Checkpoint,
    /// A checkpoint that was quantised to the format is published.
    Quantised,
    /// The file is stored in it.
    File,
    /// It has to be made of another.
    #[default]
    Otherwise,
}

/// What is to run, in every form that it may take.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkForms {
    /// An operation; its columns are what the batch ranges over.
    Op {
        op: Op,
        /// Storage of its weights to choose from.
        formats: Vec<WeightFormat>,
    },
    Model {
        /// What its runs are filed under.
        name: String,
        /// What is asked of it; batch and cache are chosen.
        request: Request,
        /// Storage to choose from.
        stored: Vec<StoredModel>,
        /// Storage of the cache to choose from.
        kv_formats: Vec<WeightFormat>,
    },
}

/// Power modes to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modes {
    /// The machine as it is now.
    Now,
    /// Every mode that needs no reboot.
    Live,
    All,
    Listed(Vec<ActiveMode>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub work: WorkForms,
    pub engine: Engine,
    /// What to make as good as possible.
    pub objective: Objective,
    /// What the energy of a token counts.
    pub energy: EnergyBasis,
    pub constraints: Constraints,
    /// Power modes to choose from.
    pub modes: Modes,
    /// Caps of `nvidia-smi` to choose from beside them.
    pub caps: Vec<Cap>,
    /// Whether a mode that needs a reboot may be chosen.
    pub allow_reboot: bool,
    /// Worker threads of the CPU to choose from; empty = as many as now.
    pub threads: Vec<u32>,
    /// Sequences (columns) to choose from.
    pub batch: RangeInclusive<u64>,
    /// Which end of the interval counts.
    pub optimism: Optimism,
    /// How long it will run: what entering a mode takes is spread over it.
    pub run_time: Seconds,
    /// Available memory that is left to others; [`Query::WHATEVER_IS_FREE`] where what is available does not matter.
    pub reserve: Bytes,
}

impl Query {
    /// A reserve that no shortage of memory breaks.
    pub const WHATEVER_IS_FREE: Bytes = Bytes(f64::NEG_INFINITY);
}
