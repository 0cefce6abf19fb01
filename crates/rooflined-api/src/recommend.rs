//! `POST /v1/recommend`.

use serde::{Deserialize, Serialize};

use super::{ModeAnswer, OperatingPointRequest, PredictAnswer, Workload, nullable};
use rooflined_core::names::{EnergyBasis, Engine, Objective, Optimism};

/// Limits that an answer must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// Maximum time of one run of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_s: Option<f64>,
    /// Maximum time per token; for an operation the same as `max_time_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_per_token_s: Option<f64>,
    /// Maximum time to the first token (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_to_first_token_s: Option<f64>,
    /// Minimum tokens/s (columns/s) over the whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tokens_per_s: Option<f64>,
    /// Maximum power while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_power_w: Option<f64>,
    /// Maximum memory for weights and activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<f64>,
    /// Maximum expected increase of a model's perplexity over 16-bit weights, as a ratio: 0.03 is three per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_quality_loss_ratio: Option<f64>,
    /// Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_free_memory_bytes: Option<f64>,
}

/// A range of batch sizes, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchRange {
    /// Smallest batch size; absent = 1.
    #[serde(default = "one", deserialize_with = "nullable::or_one")]
    pub min: u64,
    /// Largest batch size; absent = 1.
    #[serde(default = "one", deserialize_with = "nullable::or_one")]
    pub max: u64,
}

const fn one() -> u64 {
    1
}

/// Power modes to consider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(untagged, expecting = "expected \"all\", \"live\" or a list of names")]
pub enum ModesRequest {
    /// `"all"`, or `"live"`: those that need no reboot.
    Kind(String),
    /// Modes by name, or by number in digits.
    Listed(Vec<String>),
}

/// What may be chosen: formats, power modes, threads, batch sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Freedom {
    /// Weight formats to consider; absent = for an operation every format measured on this machine, for a model the usual ones
    /// of the engine and the one that its file is stored in, for a packed file or checkpoint its own alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Key/value cache formats to consider (models only); absent = that of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_formats: Option<Vec<String>>,
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ModesChoice>))]
    pub power_modes: Option<ModesRequest>,
    /// Inference engines to compare for a model; absent = every one that the machine can run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<crate::schema::Engine>>))]
    pub engines: Option<Vec<Engine>>,
    /// Worker threads to consider, where the CPU is the accelerator; absent = as many as it was calibrated with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u32>>,
    /// Batch sizes (columns) to consider; absent = 1, which is fastest for one request. Of a model, up to 64 with the objective
    /// `throughput`, and where 1 does not meet the constraints and `min_tokens_per_s` is one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// Allow a mode that needs a reboot.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub allow_reboot: bool,
    /// Expected run time, over which the cost of switching to a mode is spread; absent = an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
}

/// `POST /v1/recommend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RecommendRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// What is to run; its `format` and `batch` are what `freedom` chooses.
    pub workload: Workload,
    /// Inference engine whose kernels run. Absent: of a model, the best of those that the machine can run; of an operation `none`, this
    /// program's own.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Optimization objective: `latency`, `throughput`, `energy` or `power`.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Objective))]
    pub objective: Objective,
    /// What objective `energy` counts: `with_idle`, or `marginal` for what the run adds to a machine that is on anyway.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::EnergyBasis))]
    pub energy_basis: EnergyBasis,
    /// Limits that the choice must keep.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub constraints: Constraints,
    /// Degrees of freedom of the choice.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub freedom: Freedom,
    /// End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Optimism))]
    pub optimism: Optimism,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "nullable::or_default")]
    pub hypothetical: bool,
}

/// A candidate of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CandidateAnswer {
    /// Storage of the weights; `null` for a file that does not say.
    pub format: Option<String>,
    /// The power mode; `null` where the machine has none.
    pub power_mode: Option<ModeAnswer>,
    /// Batch size: sequences, or columns of an operation.
    pub batch: u64,
    /// Storage of the key/value cache; `null` for an operation.
    #[serde(default)]
    pub kv_format: Option<String>,
    /// Worker threads; `null` where they were not to be chosen.
    #[serde(default)]
    pub threads: Option<u32>,
    /// Tokens drafted for every sequence and step; `null` where none are.
    #[serde(default)]
    pub draft_tokens: Option<u64>,
    /// Layers whose experts stay in the memory of the CPU; `null` where none do.
    #[serde(default)]
    pub cpu_moe_layers: Option<u64>,
    /// Expected relative increase of a model's perplexity over 16-bit weights; a prior of the format, `null` where nothing
    /// is known of it.
    #[serde(default)]
    pub quality_loss_ratio: Option<f64>,
    /// What is predicted of it.
    pub prediction: PredictAnswer,
}

/// Candidates that a constraint excluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RejectionAnswer {
    /// Key of the constraint, as in the request.
    #[cfg_attr(test, schema(value_type = crate::schema::Constraint))]
    pub by: String,
    /// Number of candidates that it excluded.
    pub count: u64,
    /// The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    pub closest: Option<f64>,
    /// What the constraint demands, likewise.
    #[serde(default)]
    pub limit: Option<f64>,
}

/// What one inference engine comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct EngineAnswer {
    /// Its key.
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: String,
    /// Whether it meets the constraints.
    pub feasible: bool,
    /// Its best candidate; where it does not meet the constraints, the closest one.
    pub candidate: Option<CandidateAnswer>,
}

/// A constraint that the closest candidate does not meet, and by how much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MissAnswer {
    /// Key of the constraint, as in the request.
    #[cfg_attr(test, schema(value_type = crate::schema::Constraint))]
    pub by: String,
    /// The limit, in its unit; `null` if it is not a number.
    pub limit: Option<f64>,
    /// What the candidate comes to, at the end of its interval that counts; `null` where that is unknown.
    pub needed: Option<f64>,
    /// By how much that misses the limit, relative to it; `null` where either is unknown.
    pub excess_ratio: Option<f64>,
}

/// A candidate without its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ChoiceAnswer {
    /// Storage of the weights; `null` for a file that does not say.
    pub format: Option<String>,
    /// Storage of the key/value cache; `null` for an operation.
    pub kv_format: Option<String>,
    /// The power mode; `null` where the machine has none.
    pub power_mode: Option<ModeAnswer>,
    /// Worker threads; `null` where they were not to be chosen.
    pub threads: Option<u32>,
    /// Batch size: sequences, or columns of an operation.
    pub batch: u64,
}

/// Whether another choice would be made if the predictions were off by what their intervals allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SensitivityAnswer {
    /// Whether the runner-up may be the better one: the margin lies within the interval.
    pub could_change: bool,
    /// The best of another format, mode or number of threads; `null` without one.
    pub runner_up: Option<ChoiceAnswer>,
    /// By how much the choice is better in the objective: 0.1 is ten per cent.
    pub margin_ratio: Option<f64>,
    /// Relative half-width of the 90 % interval of the ratio of the two, as if their errors had nothing in common; those of
    /// one engine and model have, so it is wide rather than narrow.
    pub interval_ratio: Option<f64>,
    /// What would be chosen if constraints were met at the best estimate; `null` where it is the same.
    pub at_expected: Option<ChoiceAnswer>,
}

/// `POST /v1/recommend`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RecommendAnswer {
    /// The inference engine that the decision is for: the one asked for, or the best of `engines`.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: String,
    /// Every engine that runs the model here and was compared, the best first; empty for an operation.
    #[serde(default)]
    pub engines: Vec<EngineAnswer>,
    /// Whether anything meets the constraints.
    pub feasible: bool,
    /// The candidate chosen; `null` if infeasible.
    pub decision: Option<CandidateAnswer>,
    /// What energy counts in the decision: `with_idle` or `marginal`.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = crate::schema::EnergyBasis))]
    pub energy_basis: String,
    /// Why, in one or two sentences.
    pub reason: String,
    /// Pareto front without the choice.
    pub alternatives: Vec<CandidateAnswer>,
    /// What was excluded and by what.
    pub rejected: Vec<RejectionAnswer>,
    /// The candidate that misses the fewest constraints, and of these the one that misses least; only if infeasible.
    pub closest: Option<CandidateAnswer>,
    /// The constraints that it misses; only if infeasible.
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::Constraint>))]
    pub violated: Vec<String>,
    /// The same with what each demands and what the candidate needs.
    #[serde(default)]
    pub misses: Vec<MissAnswer>,
    /// The fewest constraints that no candidate meets together; only if infeasible.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::Constraint>))]
    pub contradicting: Vec<String>,
    /// How sure the choice is; `null` if infeasible.
    #[serde(default)]
    pub sensitivity: Option<SensitivityAnswer>,
    /// What to know before relying on the answer: what looks odd about the question, such as a limit in another unit, and every warning
    /// of the choice's prediction.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// How to put it into practice.
    #[cfg_attr(test, schema(value_type = crate::schema::Apply))]
    pub apply: serde_json::Value,
    /// What would sharpen the answer most.
    pub next_best_measurement: Option<String>,
    /// Number of candidates that were evaluated.
    pub candidates: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
