//! `POST /v1/recommend/joint`: several workloads that are resident at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BatchRange, CandidateAnswer, Constraints, EstimateAnswer, ModeAnswer, ModesRequest, Workload, absent,
};
use roofline::names::{Engine, Objective, Optimism, Sharing};

/// What may be chosen of one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JointWorkloadFreedom {
    /// Weight formats to consider; absent as in `Freedom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Key/value cache formats to consider (models only); absent = that of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_formats: Option<Vec<String>>,
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
}

/// One of the workloads that are resident together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JointWorkload {
    /// What is to run; its `format` and `batch` are what `freedom` chooses.
    pub workload: Workload,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Its part of the machine, above 0; all together are 1 at most. Absent = an even part of what the others leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// What must hold of what it gets with its share; `max_power_w` and `min_free_memory_bytes` are the machine's and belong
    /// one level up.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub constraints: Constraints,
    /// What may be chosen of it.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub freedom: JointWorkloadFreedom,
}

/// Limits of all workloads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JointConstraints {
    /// Maximum mean power of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_power_w: Option<f64>,
    /// Maximum memory of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<f64>,
    /// Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_free_memory_bytes: Option<f64>,
}

/// What may be chosen for all workloads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JointFreedom {
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<ModesRequest>,
    /// Allow a mode that needs a reboot.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub allow_reboot: bool,
    /// Expected run time, over which the cost of entering a mode is spread; absent = an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
}

/// `POST /v1/recommend/joint`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JointRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// 2 to 8 of them.
    pub workloads: Vec<JointWorkload>,
    /// `time_slicing` (one after the other, each with its share of the time) or `mps` (at the same time, each with its share
    /// of bandwidth and cores).
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub sharing: Sharing,
    /// Optimization objective: `latency` is the longest of their times, `throughput` the sum of their rates,
    /// `energy` that of a token of any of them, `power` that of all.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub objective: Objective,
    /// What must hold of all together.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub constraints: JointConstraints,
    /// What may be chosen for all together.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub freedom: JointFreedom,
    /// End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub optimism: Optimism,
}

/// What a workload gets with its share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SharedAnswer {
    /// Time of one run.
    pub time_s: EstimateAnswer,
    /// Tokens (columns) per second over its batch.
    pub tokens_per_s: EstimateAnswer,
    /// Time to the first token (models that read a prompt).
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Time of each token of a sequence after the first (models that generate).
    pub time_per_token_s: Option<EstimateAnswer>,
}

/// What one workload would run as.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JointMember {
    /// The model's name, or the kind of the operation.
    pub name: String,
    /// Its part of the machine.
    pub share: f64,
    /// The choice, predicted as if it had the machine for itself.
    #[serde(flatten)]
    pub choice: CandidateAnswer,
    /// What it gets with its share.
    pub shared: SharedAnswer,
    /// Settings by inference engine; without what limits an engine to its share.
    #[schema(value_type = Object)]
    pub settings: serde_json::Value,
}

/// What the workloads come to together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JointTotals {
    /// The longest of their times.
    pub longest_time_s: f64,
    /// Sum of their tokens/s.
    pub tokens_per_s: f64,
    /// Sum of the memory that they take.
    pub memory_bytes: f64,
    /// What can be had now without swapping, before anything of them is loaded; `null` where that is unknown.
    pub memory_available_bytes: Option<f64>,
    /// Mean power; `null` where unknown.
    pub power_w: Option<f64>,
    /// Upper end of its interval; `null` where unknown, or without a limit on it.
    pub power_high_w: Option<f64>,
    /// Energy of a token of any of them; `null` where unknown.
    pub energy_j_per_token: Option<f64>,
}

/// Candidates that a constraint of one workload excluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JointRejected {
    /// Index of the workload in the request.
    pub workload: u64,
    /// Key of the constraint, as in the request.
    pub by: String,
    /// Number of candidates that it excluded.
    pub count: u64,
    /// The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    pub closest: Option<f64>,
}

/// A constraint that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JointViolation {
    /// Index in the request of the workload whose constraint it is; `null` for one of all together.
    pub workload: Option<u64>,
    /// Key of the constraint, as in the request.
    pub by: String,
}

/// `POST /v1/recommend/joint`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JointAnswer {
    /// Whether anything meets the constraints.
    pub feasible: bool,
    /// The power mode for all; `null` where the machine has none.
    pub power_mode: Option<ModeAnswer>,
    /// The choice for each workload in the order of the request; if infeasible, what misses least.
    pub workloads: Vec<JointMember>,
    /// What they come to together.
    pub totals: JointTotals,
    /// Why, in one or two sentences.
    pub reason: String,
    /// What the workloads' own constraints excluded.
    pub rejected: Vec<JointRejected>,
    /// What is not met; empty if feasible.
    pub violated: Vec<JointViolation>,
    /// As asked: `time_slicing` or `mps`.
    pub sharing: String,
    /// The power mode needs a reboot.
    pub reboot_required: bool,
    /// Until the power mode is in force.
    pub entering_s: f64,
    /// What the figures do not cover, and what looks odd about the question.
    pub warnings: Vec<String>,
    /// Candidates of all workloads looked at; every combination of them counts.
    pub candidates: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
}
