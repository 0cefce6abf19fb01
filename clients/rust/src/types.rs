//! Bodies of requests and answers, as the daemon's OpenAPI document describes them.
//!
//! Every number carries its unit in its name. `None` is unknown, never zero, or absent. Requests are made by `new` of what
//! they must have, or `default`, and a function of the name of each field that they may have. Answers may gain fields, and strings
//! that look like an enumeration may gain values.

// Written by tests/client of the daemon's repository, from GET /v1/openapi.json.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{Model, Request, setters};

/// A field of a recommendation that changed, with its previous and its new value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdviceChange {
    /// Where it stands in the answer, such as `decision.format` or `decision.prediction.time_s`.
    pub field: String,
    /// Its value in the new answer.
    pub now: Value,
    /// Its value in the previous answer.
    pub told: Value,
}

/// The mode that meets every hold at least energy, and what the hold's query comes to in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdviceOfHold {
    /// Energy per token; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j_per_token: Option<f64>,
    /// Name of the mode, as the board calls it.
    pub mode: String,
    /// Mean power in the mode; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Part of the energy of all queries together that it saves over the mode in force; negative where that one costs
    /// less and does not meet every hold. `null` where either is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saving_ratio: Option<f64>,
    /// Tokens (columns) per second; `null` without a query, and where nothing tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
}

/// Event `advice_stale` of `POST /v1/recommend/watch`: the previous answer has changed, and event `recommend` with the
/// new one follows, unless it can no longer be answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdviceStale {
    /// What happened: `mode`, `throttle`, `calibration`, `observations`, `clocks`, `ceilings`, `memory`, `modes`
    /// (which of them can be entered) or `other`.
    pub causes: Vec<String>,
    /// What of the answer is altered.
    pub changes: Vec<AdviceChange>,
    /// Why it can no longer be answered; `null` where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// What happened and what of the answer is altered, in a sentence with the numbers.
    pub reason: String,
    /// Of the snapshot that alters it.
    pub serial: u64,
    /// Serial of the snapshot that the previous answer was given from.
    pub was_serial: u64,
}

/// `POST /v1/analyze`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnalyzeAnswer {
    /// Traffic over the measured time.
    pub achieved_bytes_per_s: f64,
    /// Operations over the measured time.
    pub achieved_flops_per_s: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// Physical bound over measured time: 1 = at the ceiling.
    pub ceiling_ratio: f64,
    /// The limiting ceiling, as `limit` of a prediction.
    pub limit: String,
    /// Predicted over measured time.
    pub predicted_ratio: f64,
    /// Prediction for the same workload.
    pub prediction: PredictAnswer,
    /// The verdict in a sentence with its numbers.
    pub reason: String,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// `impossible`, `at_ceiling`, `as_predicted`, `slower_than_predicted` or `faster_than_predicted`.
    pub verdict: String,
}

/// `POST /v1/analyze`: a workload and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnalyzeRequest {
    /// Inference engine whose kernels run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Measured time of one run (operation), or of one step, prompt or answer (model); give this or `tokens_per_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub time_s: Option<f64>,
    /// Measured rate over the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub tokens_per_s: Option<f64>,
    /// Workload that ran: one operation or one model.
    pub workload: Workload,
}

impl Request for AnalyzeRequest {}
setters!(AnalyzeRequest {
    workload: just Workload;
    engine: into String,
    hardware: into String,
    operating_point: just OperatingPointRequest,
    time_s: just f64,
    tokens_per_s: just f64
});

/// Bandwidth at one working-set size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BandwidthPointAnswer {
    /// Read bandwidth that was measured.
    pub read_bytes_per_s: f64,
    /// Number of threads that read.
    pub threads: u64,
    /// Working set over all workers.
    pub working_set_bytes: f64,
}

/// A range of batch sizes, both ends included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchRange {
    /// Largest batch size; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Smallest batch size; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
}

impl Request for BatchRange {}
setters!(BatchRange {
    ;
    max: just u64,
    min: just u64
});

/// What a token reads in one storage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlockAnswer {
    /// Storage of these weights: a block type of the file, or a plain type.
    pub block: String,
    /// Bytes that they take.
    pub bytes: f64,
    /// Number of weights.
    pub weights: f64,
}

/// `GET /v1/board`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardAnswer {
    /// Accelerators, the GPU first where there is one.
    pub accelerators: Vec<Value>,
    /// The processor.
    pub cpu: Value,
    /// The GPU: `name`, `driver` (`devfreq` or `nvml`), `driver_version`, `sm_total`, `max_hz`, `clocks_hz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Value>,
    /// Kernel release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Key in the hardware registry.
    pub key: String,
    /// Release of NVIDIA's board support, such as `36.4.3`; of Jetsons only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l4t: Option<String>,
    /// Size of the memory.
    pub memory: Value,
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Power modes; empty where the machine has none.
    pub modes: Vec<ModeAnswer>,
    /// Part number of the module, such as `p3767-0005-super`; of Jetsons only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// What was assumed when the machine was taken for `key`, and what of it speaks against that, in sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<Vec<String>>,
    /// Operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Why a value is null, by field.
    pub reasons: BTreeMap<String, String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Which file each value came from.
    pub sources: BTreeMap<String, String>,
}

/// A part of a prediction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakdownEntry {
    /// Bytes to and from memory.
    pub bytes: f64,
    /// Operations that it computes.
    pub flops: f64,
    /// Name of the operation.
    pub op: String,
    /// Time of the operation.
    pub time_s: f64,
}

/// `POST /v1/calibrate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CalibrateAnswer {
    /// Whether it has finished; false where the request did not wait for it.
    pub finished: bool,
    /// Number of the job; follow it in `GET /v1/events` or `GET /v1/calibration`.
    pub job: u64,
}

/// `POST /v1/calibrate` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CalibrateRequest {
    /// Run even though the load or temperature gate advises against it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Extent of the measurements: `quick` (about two seconds) or `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Answer when it has finished rather than when it has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

impl Request for CalibrateRequest {}
setters!(CalibrateRequest {
    ;
    force: just bool,
    plan: into String,
    wait: just bool
});

/// `GET /v1/calibration`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CalibrationAnswer {
    /// Age of the record; `null` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// The record in force; `null` before the first.
    pub record: Option<Value>,
    /// What was learned from observations.
    pub residuals: Vec<Value>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// What is running, waiting or failed.
    pub status: Value,
}

/// A candidate of a recommendation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CandidateAnswer {
    /// Batch size: sequences, or columns of an operation.
    pub batch: u64,
    /// Storage of the weights; `null` for a file that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Storage of the key/value cache; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// The power mode; `null` where the machine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// What is predicted of it.
    pub prediction: PredictAnswer,
    /// Expected relative increase of a model's perplexity over 16-bit weights; a prior of the format, `null` where
    /// nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality_loss_ratio: Option<f64>,
    /// Worker threads; `null` where they were not to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
}

/// A ceiling of the roofline with its 90 % interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CeilingAnswer {
    /// Age of the measurement; `null` where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// 5 % lies above.
    pub high: f64,
    /// 5 % lies below.
    pub low: f64,
    /// `measured`, `scaled`, `observed`, `datasheet` or `prior`.
    pub provenance: String,
    /// Best estimate, in the unit that the key of the ceiling names.
    pub value: f64,
}

/// Ceilings at one operating point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CeilingsAnswer {
    /// Main-memory read bandwidth: the smaller of the next two where it was not measured.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Clock the ceilings hold for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Workers the ceilings hold for.
    pub workers: u64,
}

/// A candidate without its prediction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChoiceAnswer {
    /// Batch size: sequences, or columns of an operation.
    pub batch: u64,
    /// Storage of the weights; `null` for a file that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Storage of the key/value cache; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// The power mode; `null` where the machine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// Worker threads; `null` where they were not to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
}

/// Totals of one use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassAnswer {
    /// Bits of a weight with its scales.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_weight: Option<f64>,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that a token reads.
    pub bytes_per_token: f64,
    /// Use of the weights, such as attention or the embedding.
    pub class: String,
    /// Number of weights.
    pub parameters: u64,
}

/// What confirms a switch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConfirmAnswer {
    /// For `POST /v1/mode/confirm`.
    pub id: u64,
    /// Time left until the previous mode is restored.
    pub within_s: f64,
}

/// `POST /v1/observations/confirm` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConfirmObservationRequest {
    /// Number of a report that moves only its user's answers, and shall move everybody's.
    pub id: u64,
}

impl Request for ConfirmObservationRequest {}
setters!(ConfirmObservationRequest {
    id: just u64;
});

/// `POST /v1/mode/confirm` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConfirmRequest {
    /// `confirm.id` of the switch.
    pub id: u64,
}

impl Request for ConfirmRequest {}
setters!(ConfirmRequest {
    id: just u64;
});

/// Limits that an answer must keep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Constraints {
    /// Maximum memory for weights and activations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_memory_bytes: Option<f64>,
    /// Maximum power while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_power_w: Option<f64>,
    /// Maximum expected increase of a model's perplexity over 16-bit weights, as a ratio: 0.03 is three per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_quality_loss_ratio: Option<f64>,
    /// Maximum time per token; for an operation the same as `max_time_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_time_per_token_s: Option<f64>,
    /// Maximum time of one run of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_time_s: Option<f64>,
    /// Maximum time to the first token (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_time_to_first_token_s: Option<f64>,
    /// Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never
    /// counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_free_memory_bytes: Option<f64>,
    /// Minimum tokens/s (columns/s) over the whole batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_tokens_per_s: Option<f64>,
}

impl Request for Constraints {}
setters!(Constraints {
    ;
    max_memory_bytes: just f64,
    max_power_w: just f64,
    max_quality_loss_ratio: just f64,
    max_time_per_token_s: just f64,
    max_time_s: just f64,
    max_time_to_first_token_s: just f64,
    min_free_memory_bytes: just f64,
    min_tokens_per_s: just f64
});

/// What a holder needs. At least one field; every one given is met or nothing is held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConstraintsOfHold {
    /// Maximum power of the worst load in the mode, at the pessimistic end; the watts in its name are a label and do
    /// not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_power_w: Option<f64>,
    /// Minimum memory bandwidth that the mode must give.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_bandwidth_bytes_per_s: Option<f64>,
    /// Minimum fp16 peak (fp32 without an fp16 unit).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_compute_flops_per_s: Option<f64>,
    /// Minimum of the cap on the GPU clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_gpu_hz: Option<f64>,
    /// A mode with no less compute and no less memory bandwidth than this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_mode: Option<String>,
    /// Name of the one mode that meets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

impl Request for ConstraintsOfHold {}
setters!(ConstraintsOfHold {
    ;
    max_power_w: just f64,
    min_bandwidth_bytes_per_s: just f64,
    min_compute_flops_per_s: just f64,
    min_gpu_hz: just f64,
    min_mode: into String,
    mode: into String
});

/// Confirmation of a request that returns nothing else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DoneAnswer {
    /// Always `true`; what fails is an error.
    pub done: bool,
}

/// Every error: `{"error": {…}}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorAnswer {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong, for programs and for people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorBody {
    /// Stable; match on this.
    pub code: String,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// One sentence.
    pub message: String,
}

/// An estimate with its 90 % interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EstimateAnswer {
    /// 5 % lies above.
    pub high: f64,
    /// 5 % lies below.
    pub low: f64,
    /// Best estimate.
    pub value: f64,
}

/// `DELETE /v1/observations` and `DELETE /v1/observations/{id}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ForgottenAnswer {
    /// Number of reports that are gone.
    pub forgotten: u64,
}

/// A storage format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FormatAnswer {
    /// Part of the bandwidth ceiling reached on this machine; `null` where it has not been measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_ratio: Option<f64>,
    /// Bits per weight, scales included.
    pub bits_per_weight: f64,
    /// Bytes of a storage block.
    pub block_bytes: u64,
    /// Weights in a storage block.
    pub block_elements: u64,
    /// What computes it on this machine; `null` where it has not been measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// Dequantization cost on this machine in cycles, per weight, worker and column; `null` where it has not been
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_weight: Option<f64>,
    /// Key that requests name it by.
    pub key: String,
    /// What computes it where the unit exists.
    pub native_precision: String,
}

/// `GET /v1/formats`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FormatsAnswer {
    /// Every known format.
    pub formats: Vec<FormatAnswer>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// What may be chosen: formats, power modes, threads, batch sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Freedom {
    /// Allow a mode that needs a reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_reboot: Option<bool>,
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// Weight formats to consider; absent = for an operation every format measured on this machine, for a model the
    /// usual ones of the engine and the one that its file is stored in, for a packed file or checkpoint its own alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Key/value cache formats to consider (models only); absent = that of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_formats: Option<Vec<String>>,
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<ModesRequest>,
    /// Expected run time, over which the cost of entering a mode is spread; absent = an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub run_s: Option<f64>,
    /// Worker threads to consider, where the CPU is the accelerator; absent = as many as it was calibrated with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u64>>,
}

impl Request for Freedom {}
setters!(Freedom {
    ;
    allow_reboot: just bool,
    batch: just BatchRange,
    formats: all String,
    kv_formats: all String,
    power_modes: into ModesRequest,
    run_s: just f64,
    threads: each u64
});

/// `GET /v1/hardware/{key}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HardwareAnswer {
    /// Other keys that it is found by.
    pub aliases: Vec<String>,
    /// Nominal memory bandwidth of the data sheet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Width of the memory interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_bits: Option<u64>,
    /// Ceilings at the reference clocks; `null` for a CPU, which has to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<NominalCeilings>,
    /// CUDA compute capability, such as `8.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Dense operations per SM and clock, by precision.
    pub flops_per_sm_clock: BTreeMap<String, f64>,
    /// Reference clock of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_clock_hz: Option<f64>,
    /// Key that requests name it by.
    pub key: String,
    /// `integrated`, `discrete` or `cpu`.
    pub kind: String,
    /// Size of the second-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<f64>,
    /// What advertisements say: sparse, or of several engines together. Never used.
    pub marketing: BTreeMap<String, f64>,
    /// Size of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Highest memory clock; `null` for a part whose bandwidth is given as such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_hz: Option<f64>,
    /// The vendor's power modes, the default first.
    pub modes: Vec<NominalModeAnswer>,
    /// Name for people.
    pub name: String,
    /// Figures that circulate and are wrong, and what contradicts them.
    pub notes: Vec<String>,
    /// Number of streaming multiprocessors (SM); `null` for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm: Option<u64>,
    /// SMs of one texture-processing cluster (TPC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_per_tpc: Option<u64>,
    /// Bytes that an SM can request from memory per clock; `null` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_pull_bytes_per_clock: Option<EstimateAnswer>,
    /// Where each figure comes from.
    pub sources: BTreeMap<String, String>,
    /// Power limit of the part as sold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdp_w: Option<f64>,
    /// Bits of the mask that gates clusters; `null` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpc_mask_bits: Option<u64>,
}

/// `GET /v1/hardware`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HardwareListAnswer {
    /// Every entry in the order of its key.
    pub hardware: Vec<HardwareSummary>,
}

/// One entry in short.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HardwareSummary {
    /// Nominal memory bandwidth of the data sheet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Dense peak by precision at the reference clock.
    pub compute_flops_per_s: BTreeMap<String, f64>,
    /// Reference clock of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_clock_hz: Option<f64>,
    /// Key that requests name it by.
    pub key: String,
    /// `integrated`, `discrete` or `cpu`.
    pub kind: String,
    /// Size of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Names of the vendor's power modes, the default first.
    pub modes: Vec<String>,
    /// Name for people.
    pub name: String,
    /// Number of streaming multiprocessors (SM); `null` for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm: Option<u64>,
}

/// A hold that has been taken or renewed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldAnswer {
    /// Which mode would meet every hold at least energy; `null` where nobody holds with a query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<AdviceOfHold>,
    /// Time left; `null` where only its connection ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<f64>,
    /// What releases it; shown to nobody else.
    pub id: u64,
    /// Name of the mode that it is held in.
    pub mode: String,
    /// That mode meets it; false only for a query while `[policy] auto = "advise"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub satisfied: Option<bool>,
}

/// A hold as everybody may see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HoldAnswer {
    /// Which mode would meet every hold at least energy; `null` where nobody holds with a query, and for a hold that
    /// no mode meets beside the older ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<AdviceOfHold>,
    /// How long it has been in force.
    pub age_s: f64,
    /// Name that the holder gave itself.
    pub app_id: String,
    /// Whether it ends with its connection rather than with time.
    pub attached: bool,
    /// Requirements of the power mode that the holder named.
    pub constraints: ConstraintsOfHold,
    /// Time left; `null` where only its connection ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<f64>,
    /// Its query as it was asked, a model's fields left out; `null` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Value>,
    /// Reason that the holder gave, for people.
    pub reason: String,
    /// The mode in force meets it; false after somebody else switched, where no mode meets it beside older holds, and
    /// while the daemon only advises.
    pub satisfied: bool,
    /// Number of the user that asked.
    pub uid: u64,
    /// Which constraint the mode in force does not meet, and whose hold stands against it; `null` where it is
    /// satisfied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
    /// Time left for its client to come back after a restart of the daemon; `null` where nobody is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_s: Option<f64>,
}

/// `POST /v1/holds` and `POST /v1/holds/attached` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HoldRequest {
    /// Who holds, 1 to 128 characters; shown to everybody.
    pub app_id: String,
    /// What is needed of the mode itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsOfHold>,
    /// A question as for `POST /v1/recommend` that the mode must have an answer to, on this machine: the mode that
    /// answers the queries of all holders at least energy is looked for. Needs `[policy] auto = "advise"` or
    /// `"switch"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<RecommendRequest>,
    /// Why, at most 128 characters; shown to everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ends by itself after this long, 1 to 604800. Required unless the hold is attached to its connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub ttl_s: Option<f64>,
}

impl Request for HoldRequest {}
setters!(HoldRequest {
    app_id: into String;
    constraints: just ConstraintsOfHold,
    query: just RecommendRequest,
    reason: into String,
    ttl_s: just f64
});

/// `GET /v1/holds`: who holds what, and why the active mode is active.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HoldsAnswer {
    /// Name of the active mode; `null` where nothing tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_mode: Option<String>,
    /// `[policy] auto`: `off`, `advise` or `switch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<String>,
    /// `boot`, `user`, `hold`, `revert` or `external`.
    pub cause: String,
    /// Value of `[control] enabled` in the configuration.
    pub control_enabled: bool,
    /// Active holds, the oldest first.
    pub holds: Vec<HoldAnswer>,
    /// A change that waits to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingAnswer>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Target of a switch under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switching: Option<String>,
    /// Why modes cannot be switched at all; `null` where they can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// `POST /v1/recommend/joint`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointAnswer {
    /// Candidates of all workloads looked at; every combination of them counts.
    pub candidates: u64,
    /// Until the power mode is in force.
    pub entering_s: f64,
    /// Whether anything meets the constraints.
    pub feasible: bool,
    /// The power mode for all; `null` where the machine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// Why, in one or two sentences.
    pub reason: String,
    /// The power mode needs a reboot.
    pub reboot_required: bool,
    /// What the workloads' own constraints excluded.
    pub rejected: Vec<JointRejected>,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// As asked: `time_slicing` or `mps`.
    pub sharing: String,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// What they come to together.
    pub totals: JointTotals,
    /// What is not met; empty if feasible.
    pub violated: Vec<JointViolation>,
    /// What the figures do not cover, and what looks odd about the question.
    pub warnings: Vec<String>,
    /// The choice for each workload in the order of the request; if infeasible, what misses least.
    pub workloads: Vec<JointMember>,
}

/// Limits of all workloads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointConstraints {
    /// Maximum memory of all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_memory_bytes: Option<f64>,
    /// Maximum mean power of all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub max_power_w: Option<f64>,
    /// Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never
    /// counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub min_free_memory_bytes: Option<f64>,
}

impl Request for JointConstraints {}
setters!(JointConstraints {
    ;
    max_memory_bytes: just f64,
    max_power_w: just f64,
    min_free_memory_bytes: just f64
});

/// What may be chosen for all workloads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointFreedom {
    /// Allow a mode that needs a reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_reboot: Option<bool>,
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<ModesRequest>,
    /// Expected run time, over which the cost of entering a mode is spread; absent = an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub run_s: Option<f64>,
}

impl Request for JointFreedom {}
setters!(JointFreedom {
    ;
    allow_reboot: just bool,
    power_modes: into ModesRequest,
    run_s: just f64
});

/// What one workload would run as.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointMember {
    /// Batch size: sequences, or columns of an operation.
    pub batch: u64,
    /// Storage of the weights; `null` for a file that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Storage of the key/value cache; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// The model's name, or the kind of the operation.
    pub name: String,
    /// The power mode; `null` where the machine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// What is predicted of it.
    pub prediction: PredictAnswer,
    /// Expected relative increase of a model's perplexity over 16-bit weights; a prior of the format, `null` where
    /// nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality_loss_ratio: Option<f64>,
    /// Settings by inference engine; without what limits an engine to its share.
    pub settings: Value,
    /// Its part of the machine.
    pub share: f64,
    /// What it gets with its share.
    pub shared: SharedAnswer,
    /// Worker threads; `null` where they were not to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
}

/// Candidates that a constraint of one workload excluded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointRejected {
    /// Key of the constraint, as in the request.
    pub by: String,
    /// The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<f64>,
    /// Number of candidates that it excluded.
    pub count: u64,
    /// Index of the workload in the request.
    pub workload: u64,
}

/// `POST /v1/recommend/joint`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointRequest {
    /// What must hold of all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<JointConstraints>,
    /// What may be chosen for all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freedom: Option<JointFreedom>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Optimization objective: `latency` is the longest of their times, `throughput` the sum of their rates, `energy`
    /// that of a token of any of them, `power` that of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimism: Option<String>,
    /// `time_slicing` (one after the other, each with its share of the time) or `mps` (at the same time, each with its
    /// share of bandwidth and cores).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    /// 2 to 8 of them.
    pub workloads: Vec<JointWorkload>,
}

impl Request for JointRequest {}
setters!(JointRequest {
    workloads: each JointWorkload;
    constraints: just JointConstraints,
    freedom: just JointFreedom,
    hardware: into String,
    objective: into String,
    optimism: into String,
    sharing: into String
});

/// What the workloads come to together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointTotals {
    /// Energy of a token of any of them; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j_per_token: Option<f64>,
    /// The longest of their times.
    pub longest_time_s: f64,
    /// What can be had now without swapping, before anything of them is loaded; `null` where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<f64>,
    /// Sum of the memory that they take.
    pub memory_bytes: f64,
    /// Upper end of its interval; `null` where unknown, or without a limit on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_high_w: Option<f64>,
    /// Mean power; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Sum of their tokens/s.
    pub tokens_per_s: f64,
}

/// A constraint that is not met.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointViolation {
    /// Key of the constraint, as in the request.
    pub by: String,
    /// Index in the request of the workload whose constraint it is; `null` for one of all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<u64>,
}

/// One of the workloads that are resident together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointWorkload {
    /// What must hold of what it gets with its share; `max_power_w` and `min_free_memory_bytes` are the machine's and
    /// belong one level up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// Inference engine whose kernels run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What may be chosen of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freedom: Option<JointWorkloadFreedom>,
    /// Its part of the machine, above 0; all together are 1 at most. Absent = an even part of what the others leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub share: Option<f64>,
    /// What is to run; its `format` and `batch` are what `freedom` chooses.
    pub workload: Workload,
}

impl Request for JointWorkload {}
setters!(JointWorkload {
    workload: just Workload;
    constraints: just Constraints,
    engine: into String,
    freedom: just JointWorkloadFreedom,
    share: just f64
});

/// What may be chosen of one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JointWorkloadFreedom {
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// Weight formats to consider; absent as in `Freedom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Key/value cache formats to consider (models only); absent = that of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_formats: Option<Vec<String>>,
}

impl Request for JointWorkloadFreedom {}
setters!(JointWorkloadFreedom {
    ;
    batch: just BatchRange,
    formats: all String,
    kv_formats: all String
});

/// Number of layers by kind of attention.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayersAnswer {
    /// Attention over the whole context.
    pub full_attention: u64,
    /// Latent attention.
    pub latent_attention: u64,
    /// A state of fixed size.
    pub linear: u64,
    /// Attention over a sliding window.
    pub sliding_attention: u64,
    /// Number of all layers.
    pub total: u64,
    /// The window of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
}

/// `POST /v1/measure`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasureAnswer {
    /// One row for each operation and format.
    pub rows: Vec<MeasuredRow>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// Measured on a simulated accelerator.
    pub simulated: bool,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
}

/// `POST /v1/measure` (control socket): run operations, or a step of models, now. Give `op` with `formats`, a
/// `workload`, or `workloads`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasureRequest {
    /// Formats for `op`; default `["fp32"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// One operation, measured in each of `formats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Value>,
    /// Measure power and energy too: each operation runs again and again until the power meter has seen it, which
    /// takes a second of each, or some with a slow meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<bool>,
    /// One operation or model, with its `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Several operations or models, each with its `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<Workload>>,
}

impl Request for MeasureRequest {}
setters!(MeasureRequest {
    ;
    formats: all String,
    op: into Value,
    power: just bool,
    workload: just Workload,
    workloads: each Workload
});

/// Power and energy of one measured operation or model. What is unknown is `null`, with the reason; never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasuredPowerAnswer {
    /// Time that the readings under load stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Energy of one run without what the idle machine takes in that time: (`power_w` - `idle_power_w`) x
    /// `measured_time_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// That of the idle machine before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_power_w: Option<f64>,
    /// How long the meter takes to a new value; `null` where it does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<f64>,
    /// Mean power while it ran again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Names of the power rails that were added up.
    pub rails: Vec<String>,
    /// Number of readings of the power meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readings: Option<u64>,
    /// Why a number that the meter should tell is `null`; `null` if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// With it: `power_w` x `measured_time_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_energy_j: Option<f64>,
}

/// One measured operation or model beside its prediction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasuredRow {
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// What disturbed the measurement; `null` if nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// Reference read bandwidth beside the measurement over that of the calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_ratio: Option<f64>,
    /// The same for the prediction from the calibration alone.
    pub error_at_calibration_ratio: f64,
    /// (predicted - measured) / measured.
    pub error_ratio: f64,
    /// Storage of the weights; of a file, what most of its bytes are.
    pub format: String,
    /// Instruction set of the kernel, such as `avx512`.
    pub isa: String,
    /// The limiting ceiling, as `limit` of a prediction.
    pub limit: String,
    /// Where the runs lie most densely (half-sample mode), with the 5 % and 95 % quantiles.
    pub measured_time_s: EstimateAnswer,
    /// The same as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_tokens_per_s: Option<EstimateAnswer>,
    /// The operation, or `{"kind":"model",…}`.
    pub op: Value,
    /// Power and energy; `null` where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<MeasuredPowerAnswer>,
    /// Predicted from the calibration alone.
    pub predicted_at_calibration_s: f64,
    /// Predicted for the memory system as the probe beside the measurement saw it.
    pub predicted_time_s: EstimateAnswer,
    /// Predicted tokens per second over all sequences. Absent for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_tokens_per_s: Option<EstimateAnswer>,
    /// Regime it was measured in.
    pub regime: String,
    /// Of a model whose layers did not all find room, the part of its bytes that came from memory which another layer
    /// alike reads too; 0 where each has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reused_ratio: Option<f64>,
    /// Physical bound of the roofline.
    pub roofline_time_s: f64,
    /// Number of timed runs.
    pub runs: u64,
}

/// Memory that a workload takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryAnswer {
    /// Bytes of the activations: inputs and outputs.
    pub activations: f64,
    /// What can be had now without swapping; of hardware that is not at hand, its memory less what the system usually
    /// needs. `null` where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<f64>,
    /// What the engine takes for itself; absent for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<f64>,
    /// Whether it fits into that; `null` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<bool>,
    /// Bytes of the key/value cache of all sequences.
    pub kv_cache: f64,
    /// Sum of the parts above.
    pub total: f64,
    /// Bytes of the weights.
    pub weights: f64,
}

/// A power mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeAnswer {
    /// Its number.
    pub id: u64,
    /// Name for people.
    pub name: String,
}

/// Bounds that a mode sets on the clock of an engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeClock {
    /// Cap; `null` = no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hz: Option<f64>,
    /// Lowest clock; `null` = the mode sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hz: Option<f64>,
    /// Parameter in the file of modes: `DLA0_CORE`, `PVA0_VPS`, …
    pub name: String,
}

/// A power mode with what it would give.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeDetail {
    /// The live files show this mode.
    pub active: bool,
    /// What it would give; nothing was switched to find out.
    pub ceilings: CeilingsAnswer,
    /// What keeps its clocks below its caps on this board, such as older firmware, or that nothing tells whether they
    /// are reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_notes: Option<Vec<String>>,
    /// CPUs that stay online; `null` = the mode sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<u64>,
    /// Highest CPU clock; `null` = no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_max_hz: Option<f64>,
    /// Lowest CPU clock that the governor may choose; `null` = the mode sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_min_hz: Option<f64>,
    /// The mode at boot where none was chosen.
    pub default: bool,
    /// Cap on the memory clock; `null` = no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emc_max_hz: Option<f64>,
    /// Cap on the GPU clock; `null` = no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_max_hz: Option<f64>,
    /// Lowest GPU clock that the governor may choose; `null` = the mode sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_min_hz: Option<f64>,
    /// Its number: not an index, and another mode on every module.
    pub id: u64,
    /// Mean power while it was calibrated; `null` where that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_power_w: Option<f64>,
    /// Its name: free text.
    pub name: String,
    /// Bounds on every other clock that the mode names, in the order of the file: DLA, PVA, video engines.
    pub other_clocks: Vec<ModeClock>,
    /// It can be entered now, by those who may.
    pub reachable: bool,
    /// Entering it from here needs a reboot; `null` where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_required: Option<bool>,
    /// SMs that the mask leaves online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_online: Option<u64>,
    /// Gating mask of the texture-processing clusters; `null` = the mode sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpc_mask: Option<u64>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_reason: Option<String>,
    /// `measured` in this mode on this machine, `carried` from another of its modes, or `prior`: from boards that
    /// others measured; `null` with the watts. The watts in a mode's name count for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_power_source: Option<String>,
    /// The most that it draws: memory and cores flat out at once, at the upper end of the 90 % interval. What a hold's
    /// `max_power_w` is compared with; `null` where nothing is known of it, and such a mode meets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_power_w: Option<f64>,
}

/// `POST /v1/mode` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeRequest {
    /// Restore the previous mode unless it is confirmed within this time, 1 to 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub confirm_within_s: Option<f64>,
    /// Report what would be done, and change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Name of the mode, or its number in digits.
    pub mode: String,
    /// In your own words, at most 128 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Request for ModeRequest {}
setters!(ModeRequest {
    mode: into String;
    confirm_within_s: just f64,
    dry_run: just bool,
    reason: into String
});

/// `GET /v1/models/{key}`, and what `rooflinectl models inspect` prints of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelAnswer {
    /// Experts that a token passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_experts: Option<u64>,
    /// Weights that one token passes.
    pub active_parameters: f64,
    /// Bits of a weight that is read, with its scales.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_weight: Option<f64>,
    /// What a token reads by storage, most first.
    pub blocks: Vec<BlockAnswer>,
    /// Bytes of all weights.
    pub bytes: f64,
    /// Bytes of weights that a step of one token reads.
    pub bytes_per_token: f64,
    /// Totals by use.
    pub classes: Vec<ClassAnswer>,
    /// `config`, `recalled` or `guess`; `null` for a file, which is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<String>,
    /// Longest context it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Experts of a layer; `null` for a dense model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<u64>,
    /// The family that its file names.
    pub family: String,
    /// Files that were read.
    pub files: Vec<String>,
    /// What it is quantised to, by its label or as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Its key in the registry; `null` for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Bytes that a token adds to the cache while no window is full.
    pub kv_bytes_per_token: f64,
    /// The same once every window is full.
    pub kv_bytes_per_token_long: f64,
    /// How the cache is stored.
    pub kv_format: String,
    /// Layers by kind.
    pub layers: LayersAnswer,
    /// Name that the model gives itself.
    pub name: String,
    /// Weights, towers and drafts included.
    pub parameters: u64,
    /// Weights by its model card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_parameters: Option<u64>,
    /// Where the figures come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Bytes of the states of one sequence in layers without a cache.
    pub state_bytes: f64,
    /// The embedding table is the head.
    pub tied_embeddings: bool,
    /// Rows of the embedding table.
    pub vocab: u64,
    /// What to know before relying on them.
    pub warnings: Vec<String>,
}

/// One line of the registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelEntry {
    /// Weights that one token passes.
    pub active_parameters: f64,
    /// `config`, `recalled` or `guess`: how sure the figures are.
    pub confidence: String,
    /// Longest context it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// What requests name it by.
    pub key: String,
    /// Bytes that a token adds to a 16-bit cache.
    pub kv_bytes_per_token: f64,
    /// Number of layers.
    pub layers: u64,
    /// Name that the model gives itself.
    pub name: String,
    /// Weights by its matrices.
    pub parameters: u64,
}

/// `GET /v1/models`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelsAnswer {
    /// Every model that is known by its key.
    pub models: Vec<ModelEntry>,
}

/// `GET /v1/modes`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModesAnswer {
    /// Name of the active mode by the live files; `null` where they match none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// `boot`, `user`, `hold`, `revert` or `external`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_cause: Option<String>,
    /// Number of the default mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<u64>,
    /// In the order of the file; empty on a machine without.
    pub modes: Vec<ModeDetail>,
    /// Why there are none; `null` where there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Where the modes come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What was not understood of the file.
    pub warnings: Vec<Value>,
}

/// Power modes to consider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ModesRequest {
    /// `"all"`, or `"live"`: those that need no reboot.
    One(String),
    /// Modes by name, or by number in digits.
    Several(Vec<String>),
}

impl From<&str> for ModesRequest {
    fn from(one: &str) -> Self {
        Self::One(one.to_owned())
    }
}

impl From<String> for ModesRequest {
    fn from(one: String) -> Self {
        Self::One(one)
    }
}

impl<T: Into<String>> FromIterator<T> for ModesRequest {
    fn from_iter<I: IntoIterator<Item = T>>(several: I) -> Self {
        Self::Several(several.into_iter().map(Into::into).collect())
    }
}

/// Ceilings from the data sheet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NominalCeilings {
    /// Memory bandwidth: the smaller of the next two.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Dense peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Bandwidth of the memory alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request; `null` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
}

/// A power mode as the vendor ships it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NominalModeAnswer {
    /// Ceilings of the data sheet at these clocks.
    pub ceilings: NominalCeilings,
    /// Number of CPU cores online.
    pub cores_online: u64,
    /// CPU clock; `null` where it has not been published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_hz: Option<f64>,
    /// Clock of the external memory controller (EMC).
    pub emc_hz: f64,
    /// Highest GPU clock in the mode.
    pub gpu_hz: f64,
    /// Number; two configurations of one board may use the same.
    pub id: u64,
    /// Name for people.
    pub name: String,
    /// Number of streaming multiprocessors (SM) online.
    pub sm_online: u64,
}

/// A report of something that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObservationEntry {
    /// Number of independent users who agree; `null` where nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreeing_users: Option<u64>,
    /// Sequences; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Why: `confirmed` (by `confirmed_by`), `agreed` (by `agreeing_users`), `own`, `doubted` or `unrecorded`.
    pub because: String,
    /// User by whom it was confirmed; `null` where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<u64>,
    /// Tokens that were in the cache; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Engine that ran.
    pub engine: String,
    /// How weights were stored.
    pub format: String,
    /// Number of the report; `null` for what an earlier version learned without keeping reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Measured over predicted: of a model as it was predicted before, of an operation without what was learned;
    /// `null` where that is not known any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_over_predicted_ratio: Option<f64>,
    /// Key, path or name of the model; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whose answers it moves: `everyone`, `own` (those of `uid`), or `nobody` while it is doubted.
    pub moves: String,
    /// The operation, or what kind it is where no more was kept; `null` for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Value>,
    /// `prefill`, `decode` or `serve`; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Process that reported it; `null` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Power mode by name; `null` where it was not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
    /// Reported power; `null` where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Tokens of the prompt; `null` for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// When it was reported, in seconds since 1970; `null` where that was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at_unix_s: Option<f64>,
    /// Measured time of one run; `null` where only ratios were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// User who reported it; `null` where that was not recorded, or where several agreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u64>,
}

/// `GET /v1/observations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObservationListAnswer {
    /// Reports, those of the lowest number first.
    pub observations: Vec<ObservationEntry>,
    /// Other users with reports that move only their own answers and are not listed.
    pub other_users: u64,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// What a service measured: an element of `POST /v1/observations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObservationRequest {
    /// Inference engine whose kernels run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Where it ran; absent = as the machine is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Mean power while it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub power_w: Option<f64>,
    /// Time of one run (operation) or one step (model).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub time_s: Option<f64>,
    /// Aggregate rate; give this or `time_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub tokens_per_s: Option<f64>,
    /// Workload that ran: one operation or one model.
    pub workload: Workload,
}

impl Request for ObservationRequest {}
setters!(ObservationRequest {
    workload: just Workload;
    engine: into String,
    operating_point: just OperatingPointRequest,
    power_w: just f64,
    time_s: just f64,
    tokens_per_s: just f64
});

/// `POST /v1/observations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObservationsAnswer {
    /// Number of observations that were learned from.
    pub accepted: u64,
    /// What was learned of models, by position: `{"index", "factor", "tier", "count", "alarm", "doubted"}`. `factor`
    /// is the time predicted now over what was predicted before anything was learned, `count` the runs of this model
    /// that are kept, `alarm` what changed, `doubted` whether the run contradicts the calibrated costs and moves
    /// nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learnt: Option<Vec<Value>>,
    /// Why the others were not, by position: `{"index", "code", "field", "reason", "hint"}`.
    pub refused: Vec<Value>,
    /// What was not learned of those that were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// Operating point to predict for instead of the present one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperatingPointRequest {
    /// Number of CPU cores online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<u64>,
    /// Clock of the CPU cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub cpu_hz: Option<f64>,
    /// Clock of the external memory controller (EMC).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub emc_hz: Option<f64>,
    /// Clock of the GPU's SMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "crate::body::finite_or_absent")]
    pub gpu_hz: Option<f64>,
    /// A power mode by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
    /// Number of streaming multiprocessors (SM) online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_online: Option<u64>,
}

impl Request for OperatingPointRequest {}
setters!(OperatingPointRequest {
    ;
    cores_online: just u64,
    cpu_hz: just f64,
    emc_hz: just f64,
    gpu_hz: just f64,
    power_mode: into String,
    sm_online: just u64
});

/// A change that waits to be confirmed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingAnswer {
    /// For `POST /v1/mode/confirm` and `POST /v1/mode/revert`.
    pub id: u64,
    /// Name of the mode that was entered.
    pub mode: String,
    /// Name of the mode that is restored unless the change is confirmed.
    pub original: String,
    /// Time left until the previous mode is restored.
    pub within_s: f64,
}

/// Power and energy coefficients where the ceilings hold: energy = `static_w` x time + `byte_j` x bytes + `flop_j` x
/// operations + `weight_j` x weights that are dequantized.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PowerCostsAnswer {
    /// Energy of a byte to or from memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_j: Option<f64>,
    /// Energy of an operation of `flop_precision`; `null` where nothing tells it apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flop_j: Option<f64>,
    /// What operations are counted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flop_precision: Option<String>,
    /// Half-width of the 90 % interval of power, relative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width_ratio: Option<f64>,
    /// Loads that were held here while the meter was read.
    pub points: Vec<PowerPointAnswer>,
    /// What the meter covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_from: Option<String>,
    /// Whose measurements the coefficients are: `measured` here, or `prior`: those of others on such a machine; `null`
    /// without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_source: Option<String>,
    /// Why nothing was measured here; `null` if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Static power: that of the machine with nothing running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_w: Option<f64>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// Energy of dequantizing a weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_j: Option<f64>,
}

/// A load that was held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PowerPointAnswer {
    /// Bytes a second to and from main memory.
    pub bytes_per_s: f64,
    /// Time that the readings stand for.
    pub duration_s: f64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// Kernel that ran; `null` = nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// `idle`, `bandwidth`, `compute` or `decode`.
    pub load: String,
    /// What the meter covers, as `power_from` of the coefficients.
    pub power_from: String,
    /// Mean power; `null` with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// What they were computed in; `null` at idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Names of the power rails that were added up.
    pub rails: Vec<String>,
    /// Number of meter readings.
    pub readings: u64,
    /// Why there is no power; `null` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Hottest thermal zone; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Weights a second.
    pub weights_per_s: f64,
}

/// `POST /v1/predict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PredictAnswer {
    /// Operations per byte.
    pub arithmetic_intensity_flops_per_byte: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// Parts of the prediction, by operation.
    pub breakdown: Vec<BreakdownEntry>,
    /// Traffic of one run.
    pub bytes: f64,
    /// What the arithmetic runs in.
    pub compute: String,
    /// Energy per token; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j_per_token: Option<EstimateAnswer>,
    /// Operations of one run.
    pub flops: f64,
    /// The hardware, where the figures are those of its data sheet and no machine was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Whose errors the interval was taken from (models only): `own_tier`, `own_engine` or `own_runs` of this machine,
    /// else `engine_and_machine`, `engine`, `all` or `guess`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_from: Option<String>,
    /// What limits it: `dram`, `cache`, `core` (dequantization), `compute`, `launch` or `power_cap`.
    pub limit: String,
    /// Memory it takes.
    pub memory_bytes: MemoryAnswer,
    /// What the meter of that power covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`. Powers of
    /// different rails cannot be compared; `null` without power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_from: Option<String>,
    /// Whose measurements it rests on: `measured` on this machine, or `prior`: those of others; `null` without power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_source: Option<String>,
    /// Power while it runs; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<EstimateAnswer>,
    /// Weakest provenance of the ceilings used.
    pub provenance: String,
    /// Whose reports of measured runs moved it, and how many; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reports: Option<ReportsAnswer>,
    /// Ridge point of the precision used.
    pub ridge_flops_per_byte: f64,
    /// The least time that any implementation could take; no prediction lies below it.
    pub roofline_time_s: f64,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// What the prediction rests on.
    pub tier: String,
    /// Time of each token of a sequence after the first (models that generate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_token_s: Option<EstimateAnswer>,
    /// Time of one run of an operation. Of a model: one step (decode), the prompt (prefill), or prompt and answer
    /// (serve).
    pub time_s: EstimateAnswer,
    /// Time to the first token (models that read a prompt).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Tokens (columns) per second over the batch: of a prefill those of the prompt, otherwise those generated.
    pub tokens_per_s: EstimateAnswer,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// `POST /v1/predict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PredictRequest {
    /// Inference engine whose kernels run; default `none`, this program's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good
    /// as those for similar formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypothetical: Option<bool>,
    /// Used for this answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observations: Option<Vec<ObservationRequest>>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Workload to predict: one operation or one model.
    pub workload: Workload,
}

impl Request for PredictRequest {}
setters!(PredictRequest {
    workload: just Workload;
    engine: into String,
    hardware: into String,
    hypothetical: just bool,
    observations: each ObservationRequest,
    operating_point: just OperatingPointRequest
});

/// `POST /v1/recommend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecommendAnswer {
    /// Pareto front without the choice.
    pub alternatives: Vec<CandidateAnswer>,
    /// How to put it into practice.
    pub apply: Value,
    /// Number of candidates that were evaluated.
    pub candidates: u64,
    /// The candidate that misses least; only if infeasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<CandidateAnswer>,
    /// The fewest constraints that no candidate meets together; only if infeasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradicting: Option<Vec<String>>,
    /// The candidate chosen; `null` if infeasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<CandidateAnswer>,
    /// Whether anything meets the constraints.
    pub feasible: bool,
    /// What would sharpen the answer most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_best_measurement: Option<String>,
    /// Why, in one or two sentences.
    pub reason: String,
    /// What was excluded and by what.
    pub rejected: Vec<RejectedAnswer>,
    /// How sure the choice is; `null` if infeasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<SensitivityAnswer>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// The constraints that it misses; only if infeasible.
    pub violated: Vec<String>,
    /// What looks odd about the question, such as a limit in another unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// `POST /v1/recommend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecommendRequest {
    /// Limits that the choice must keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// Inference engine whose kernels run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Degrees of freedom of the choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freedom: Option<Freedom>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good
    /// as those for similar formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypothetical: Option<bool>,
    /// Optimization objective: `latency`, `throughput`, `energy` or `power`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimism: Option<String>,
    /// What is to run; its `format` and `batch` are what `freedom` chooses.
    pub workload: Workload,
}

impl Request for RecommendRequest {}
setters!(RecommendRequest {
    workload: just Workload;
    constraints: just Constraints,
    engine: into String,
    freedom: just Freedom,
    hardware: into String,
    hypothetical: just bool,
    objective: into String,
    operating_point: just OperatingPointRequest,
    optimism: into String
});

/// A regime of the machine and its main ceilings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegimeAnswer {
    /// The regime in force.
    pub active: bool,
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: f64,
    /// Core-to-core latency, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_to_core_s: Option<f64>,
    /// `near`, `far` or `single`.
    pub key: String,
    /// Time of the measurement, in seconds since 1970.
    pub measured_at_unix_s: f64,
}

/// Candidates that a constraint excluded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RejectedAnswer {
    /// Key of the constraint, as in the request.
    pub by: String,
    /// The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<f64>,
    /// Number of candidates that it excluded.
    pub count: u64,
}

/// `PUT /v1/holds/{id}` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RenewRequest {
    /// From now, 1 to 604800.
    #[serde(serialize_with = "crate::body::finite")]
    pub ttl_s: f64,
}

impl Request for RenewRequest {}
setters!(RenewRequest {
    ttl_s: just f64;
});

/// Reports of measured runs that moved an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportsAnswer {
    /// Number of reports that everybody believes.
    pub confirmed: u64,
    /// Number of reports that contradict the calibrated costs: they widened the interval and moved nothing.
    pub doubted: u64,
    /// Number of the caller's reports, or of those given with the question.
    pub own: u64,
    /// Whose moved it: `own` (the caller's, or given with the question, beside confirmed ones), `confirmed` or `none`.
    pub scope: String,
}

/// `POST /v1/mode/revert` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RevertRequest {
    /// `confirm.id` of the switch; absent = whichever waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

impl Request for RevertRequest {}
setters!(RevertRequest {
    ;
    id: just u64
});

/// `GET /v1/roofline`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RooflineAnswer {
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Read bandwidth against working set.
    pub bandwidth_curve: Vec<BandwidthPointAnswer>,
    /// Clock the ceilings hold for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Main-memory copy, read and write counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_bytes_per_s: Option<CeilingAnswer>,
    /// Newest reference read over the calibrated one: below 1 when neighbours take bandwidth; `null` if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_ratio: Option<f64>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Power and energy coefficients at this operating point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerCostsAnswer>,
    /// Power mode the ceilings hold for; `null` on a machine without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Regimes of the machine that were measured so far.
    pub regimes: Vec<RegimeAnswer>,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Main-memory triad, two reads and one write counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triad_bytes_per_s: Option<CeilingAnswer>,
    /// Workers the ceilings hold for.
    pub workers: u64,
}

/// Whether another choice would be made if the predictions were off by what their intervals allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SensitivityAnswer {
    /// What would be chosen if constraints were met at the best estimate; `null` where it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_expected: Option<ChoiceAnswer>,
    /// Whether the runner-up may be the better one: the margin lies within the interval.
    pub could_change: bool,
    /// Relative half-width of the 90 % interval of the ratio of the two, as if their errors had nothing in common;
    /// those of one engine and model have, so it is wide rather than narrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ratio: Option<f64>,
    /// By how much the choice is better in the objective: 0.1 is ten per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_ratio: Option<f64>,
    /// The best of another format, mode or number of threads; `null` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<ChoiceAnswer>,
}

/// What a workload gets with its share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SharedAnswer {
    /// Time of each token of a sequence after the first (models that generate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_token_s: Option<EstimateAnswer>,
    /// Time of one run.
    pub time_s: EstimateAnswer,
    /// Time to the first token (models that read a prompt).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Tokens (columns) per second over its batch.
    pub tokens_per_s: EstimateAnswer,
}

/// What one streaming multiprocessor (SM) holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SmLimitsAnswer {
    /// Shared memory of one block.
    pub block_shared_memory_bytes: u64,
    /// Most resident blocks.
    pub blocks: u64,
    /// CUDA compute capability.
    pub compute_capability: String,
    /// Number of 32-bit registers.
    pub registers: u64,
    /// Shared memory that the system takes beside each block's own.
    pub reserved_shared_memory_bytes: u64,
    /// Shared memory of the SM.
    pub shared_memory_bytes: u64,
    /// Most resident threads.
    pub threads: u64,
}

/// Tokens that are drafted ahead and verified together. The time of drafting is not counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Speculative {
    /// Of those, how many are accepted in the mean; every step adds one more.
    #[serde(serialize_with = "crate::body::finite")]
    pub accepted_per_step: f64,
    /// Tokens drafted for every sequence and step.
    pub draft_tokens: u64,
}

impl Request for Speculative {}
setters!(Speculative {
    accepted_per_step: just f64,
    draft_tokens: just u64;
});

/// `GET /v1/state`: fields by name (`power_mode`, `cores_online`, `cpu_hz`, `cpu_cap_hz`, `gpu_hz`, `gpu_cap_hz`,
/// `gpu_load_ratio`, `sm_online`, `tpc_mask`, `memory_hz`, `memory_cap_hz`, `temperatures_c`, `rails_w`,
/// `total_power_w`, `total_power_of`, `memory_bytes`, `load`, `pressure`, `throttle`). The load of a GPU is that of a
/// short window: average ten of them and more. Powers of rails keep the sign that the sensor tells: near zero one may
/// be negative. Of zones or rails with one name all but the first have their place behind it (`acpitz`, `acpitz-1`,
/// `VDD_IN-1-0041.1`). What no answer rests on: `cores` (`busy_ratio`, `min_hz`, `max_hz`, `governor` of each CPU),
/// `engines` (`clock_hz`, `max_hz`, `on`), `emc_utilisation_ratio`, `fans` (`duty_ratio`, `speed_rpm`), `fan_profile`,
/// `gpu_control` (governor, lowest clock, rail gating), `gpu_processes`, `gpu_shared_memory_bytes`, `free_blocks`,
/// `swap`, `zram`, `rail_meters` (`voltage_v`, `current_a`, limits, `alarm`), `device_temperatures`, `jetson_clocks`,
/// `software` (JetPack, CUDA, TensorRT). Some of it is read once in 1, 10 or 60 s; the age says when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateAnswer {
    /// Names of what does not work at present.
    pub degraded: Vec<String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Files that the fields come from, by the same names; what comes from none has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<BTreeMap<String, String>>,
    /// Fields by the names above, each with its age.
    #[serde(flatten, deserialize_with = "crate::verbs::known")]
    pub fields: BTreeMap<String, StateField>,
}

/// A value with its age, or `null` with the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateField {
    /// Age of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why a value inside the value is `null`, by its key there: a sensor that is off, a ratio that needs a second
    /// sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<BTreeMap<String, String>>,
    /// The value: a number, a text, a truth, a list or an object, as the field has it; `null` where there is none.
    pub value: Value,
}

/// `POST /v1/sweep`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepAnswer {
    /// One row for each combination.
    pub rows: Vec<SweepRow>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
}

/// `POST /v1/sweep`: the cross product of shapes or models, formats, power modes, threads, batches and contexts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepRequest {
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<Vec<u64>>,
    /// Tokens already cached, as in a workload (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of a prompt that one pass takes, as in a workload (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<u64>,
    /// Context lengths: tokens already in the cache (models only); absent = 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contexts: Option<Vec<u64>>,
    /// Inference engine whose kernels run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Formats; absent = every format measured on this machine, or the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good
    /// as those for similar formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypothetical: Option<bool>,
    /// Tokens of the images in every prompt, beside `prompt_tokens` (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Key/value cache format: a key of `GET /v1/formats` (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// Models, each as in a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<Model>>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Operations, as `op` of a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<Vec<Value>>,
    /// Tokens to generate (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// `prefill`, `decode` or `serve` (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Power modes; absent = the operating point above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<Vec<String>>,
    /// Tokens of the prompt (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Speculative decoding (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculative: Option<Speculative>,
    /// Worker threads, where the CPU is the accelerator; absent = one for every physical core, as engines do; without
    /// an engine, as many as were calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u64>>,
}

impl Request for SweepRequest {}
setters!(SweepRequest {
    ;
    batches: each u64,
    cached_tokens: just u64,
    chunk_tokens: just u64,
    contexts: each u64,
    engine: into String,
    formats: all String,
    hardware: into String,
    hypothetical: just bool,
    image_tokens: just u64,
    kv_format: into String,
    models: all Model,
    operating_point: just OperatingPointRequest,
    ops: all Value,
    output_tokens: just u64,
    phase: into String,
    power_modes: all String,
    prompt_tokens: just u64,
    speculative: just Speculative,
    threads: each u64
});

/// One point of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepRow {
    /// Operations per byte.
    pub arithmetic_intensity_flops_per_byte: f64,
    /// Columns, or sequences of a model.
    pub batch: u64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// Parts of the prediction, by operation.
    pub breakdown: Vec<BreakdownEntry>,
    /// Traffic of one run.
    pub bytes: f64,
    /// What the arithmetic runs in.
    pub compute: String,
    /// Tokens in the cache. Absent for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Energy per token; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j_per_token: Option<EstimateAnswer>,
    /// Operations of one run.
    pub flops: f64,
    /// Storage of the weights; `null` for a file that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The hardware, where the figures are those of its data sheet and no machine was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Whose errors the interval was taken from (models only): `own_tier`, `own_engine` or `own_runs` of this machine,
    /// else `engine_and_machine`, `engine`, `all` or `guess`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_from: Option<String>,
    /// What limits it: `dram`, `cache`, `core` (dequantization), `compute`, `launch` or `power_cap`.
    pub limit: String,
    /// Memory it takes.
    pub memory_bytes: MemoryAnswer,
    /// The model: its key, or what its file or fields call it. Absent for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The operation with its batch applied; `null` for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Value>,
    /// What the meter of that power covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`. Powers of
    /// different rails cannot be compared; `null` without power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_from: Option<String>,
    /// The power mode, where modes are swept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// Whose measurements it rests on: `measured` on this machine, or `prior`: those of others; `null` without power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_source: Option<String>,
    /// Power while it runs; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<EstimateAnswer>,
    /// Weakest provenance of the ceilings used.
    pub provenance: String,
    /// Whose reports of measured runs moved it, and how many; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reports: Option<ReportsAnswer>,
    /// Ridge point of the precision used.
    pub ridge_flops_per_byte: f64,
    /// The least time that any implementation could take; no prediction lies below it.
    pub roofline_time_s: f64,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Worker threads, where they are swept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// What the prediction rests on.
    pub tier: String,
    /// Time of each token of a sequence after the first (models that generate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_token_s: Option<EstimateAnswer>,
    /// Time of one run of an operation. Of a model: one step (decode), the prompt (prefill), or prompt and answer
    /// (serve).
    pub time_s: EstimateAnswer,
    /// Time to the first token (models that read a prompt).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Tokens (columns) per second over the batch: of a prefill those of the prompt, otherwise those generated.
    pub tokens_per_s: EstimateAnswer,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What came of a switch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SwitchAnswer {
    /// Name of the mode asked for.
    pub asked: String,
    /// Name of the previous mode; `null` where it was unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What confirms it; `null` where nothing needs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<ConfirmAnswer>,
    /// Where the live files differ from the mode.
    pub differences: Vec<Value>,
    /// True for a dry run: nothing was changed.
    pub dry_run: bool,
    /// One sentence for people.
    pub message: String,
    /// `applied`; in a dry run also `reboot_required`, `refused` or `not_applied`.
    pub outcome: String,
    /// Name of the mode that the live files show; `null` where they match none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<String>,
    /// Duration of the switch.
    pub took_s: f64,
    /// What would be written, in order; filled for a dry run.
    pub writes: Vec<Value>,
}

/// One way to cut the product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TileAnswer {
    /// Time of the arithmetic; it overlaps with the next two.
    pub compute_s: f64,
    /// From memory with the second-level cache.
    pub dram_bytes: f64,
    /// Time of the traffic to and from main memory.
    pub dram_s: f64,
    /// From memory if every block read for itself.
    pub dram_without_reuse_bytes: f64,
    /// Step along the common dimension.
    pub k: u64,
    /// The former over the latter.
    pub l2_reuse_ratio: f64,
    /// Part of it that the launch takes.
    pub launch_s: f64,
    /// `compute`, `shared_memory`, `dram` or `launch`.
    pub limit: String,
    /// Rows of a block.
    pub m: u64,
    /// Columns of a block.
    pub n: u64,
    /// Resident warps over the most there can be.
    pub occupancy_ratio: f64,
    /// What the variant loses, in a sentence.
    pub reason: String,
    /// Registers of a thread, estimated.
    pub registers_per_thread: u64,
    /// Blocks resident on one SM.
    pub resident_blocks: u64,
    /// `blocks`, `threads`, `shared_memory` or `registers`.
    pub resident_limited_by: String,
    /// Shared memory of a block.
    pub shared_memory_bytes: u64,
    /// Time of the traffic to and from shared memory.
    pub shared_memory_s: f64,
    /// Parts that the common dimension is cut into.
    pub split_k: u64,
    /// Buffers of operands.
    pub stages: u64,
    /// What one block reads.
    pub tile_bytes: f64,
    /// Part of the arithmetic that is not padding.
    pub tile_efficiency_ratio: f64,
    /// Operations for a byte that a block reads.
    pub tile_intensity_flops_per_byte: f64,
    /// Blocks in all.
    pub tiles: u64,
    /// Estimated time; a ranking, not a measurement.
    pub time_s: f64,
    /// Warps of a block.
    pub warps: u64,
    /// Part of the rounds that is filled.
    pub wave_efficiency_ratio: f64,
    /// Rounds in which all places are filled.
    pub waves: f64,
}

/// `POST /v1/tiling`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TilingAnswer {
    /// Fastest first: the best variant of each block and split.
    pub candidates: Vec<TileAnswer>,
    /// What it is computed in.
    pub compute: String,
    /// Number of variants that were evaluated.
    pub considered: u64,
    /// Weight format, the storage of the `n x k` operand.
    pub format: String,
    /// GPU clock at which the SMs run; `null` where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_hz: Option<f64>,
    /// Key of the hardware.
    pub hardware: String,
    /// Size of the second-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<f64>,
    /// Limits of one SM: threads, blocks, registers, shared memory.
    pub limits: SmLimitsAnswer,
    /// Name for people.
    pub name: String,
    /// Why the first is first.
    pub reason: String,
    /// Variants that do not fit, by what they need too much of.
    pub rejected: BTreeMap<String, u64>,
    /// Physical bound of the roofline.
    pub roofline_time_s: f64,
    /// Serial number of the snapshot that the answer rests on; 0 without a daemon.
    pub serial: u64,
    /// True where values come from a simulated board, not from hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// SMs online.
    pub sm_online: u64,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// `POST /v1/tiling`: how to cut an `m x n x k` product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TilingRequest {
    /// Storage of the weights, the `n x k` operand; absent = fp16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// A hardware key; absent = this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Common dimension of the operands, `k`.
    pub k: u64,
    /// How many candidates, 1 to 128; absent = 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Rows of the product, `m`.
    pub m: u64,
    /// Columns of the product, `n`.
    pub n: u64,
    /// Absent = now; of other hardware, its reference clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
}

impl Request for TilingRequest {}
setters!(TilingRequest {
    k: just u64,
    m: just u64,
    n: just u64;
    format: into String,
    hardware: into String,
    limit: just u64,
    operating_point: just OperatingPointRequest
});

/// One operation (`op` + `format`) or one model. A body has exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Workload {
    /// Batch size: sequences (models) or columns (operations). Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Tokens already cached: of the prompt, where they are not computed again, or of the context of a decode those
    /// that all sequences share (models only). Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of a prompt that one pass takes, each of which reads the weights again (models only): llama.cpp's `-ub`,
    /// vLLM's `--max-num-batched-tokens`. Absent = the engine's default, by which the time is predicted and nothing is
    /// bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<u64>,
    /// Context length: tokens already in the cache (models only). Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Weight format: a key of `GET /v1/formats`. Default: a file's own, what a model known by a key is published in,
    /// `fp16`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Tokens of the images in every prompt, beside `prompt_tokens` (models only). Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Key/value cache format: a key of `GET /v1/formats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// A model: a key of `GET /v1/models`; `{"path": FILE, "contents": {…}}` as `rooflinectl models contents FILE`
    /// prints it, where nothing is opened; `{"path": FILE}` below a directory of `[models] dirs`; `{"fd": 0}`, the
    /// first descriptor attached (`SCM_RIGHTS`) to the first byte of the request, a file open for reading, with a
    /// `path` that merely names it; or the fields of a Hugging Face `config.json`. Files are read for 30 s at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// A bare operation: `{"kind":"gemv","n":4096,"k":4096}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Value>,
    /// Tokens to generate (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// `prefill`, `decode` or `serve` (models only). Default `decode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Tokens of the prompt (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Speculative decoding (models only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculative: Option<Speculative>,
    /// Worker threads, where the CPU is the accelerator. Default: one for every physical core, as engines do; without
    /// an engine, as many as were calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
}

impl Request for Workload {}
setters!(Workload {
    ;
    batch: just u64,
    cached_tokens: just u64,
    chunk_tokens: just u64,
    context_tokens: just u64,
    format: into String,
    image_tokens: just u64,
    kv_format: into String,
    model: into Model,
    op: into Value,
    output_tokens: just u64,
    phase: into String,
    prompt_tokens: just u64,
    speculative: just Speculative,
    threads: just u64
});
