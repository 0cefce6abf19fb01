//! What clients are answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PowerCostsAnswer;
use roofline::names::{Engine, Op};
use roofline::refusal::{Code, Refusal};

/// An estimate with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EstimateAnswer {
    /// Best estimate.
    pub value: f64,
    /// 5 % lies below.
    pub low: f64,
    /// 5 % lies above.
    pub high: f64,
}

impl EstimateAnswer {
    /// `amount` for each of these: the rate of something that takes a time, with its interval turned round.
    #[must_use]
    pub fn rate(amount: f64, time: Self) -> Self {
        Self { value: amount / time.value, low: amount / time.high, high: amount / time.low }
    }

    /// The same divided by a positive number.
    #[must_use]
    pub fn per(self, divisor: f64) -> Self {
        Self { value: self.value / divisor, low: self.low / divisor, high: self.high / divisor }
    }
}

/// Every error: `{"error": {…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable; match on this.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
}

impl ErrorBody {
    /// The code, where this version knows it; a newer daemon's is in [`Self::code`] as text.
    #[must_use]
    pub fn known_code(&self) -> Option<Code> {
        Code::from_key(&self.code)
    }
}

impl From<Refusal> for ErrorBody {
    fn from(Refusal { code, message, hint, field }: Refusal) -> Self {
        Self { code: code.key().to_owned(), message, field, hint: Some(hint) }
    }
}

/// `GET /v1/board`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BoardAnswer {
    /// Key in the hardware registry.
    pub key: String,
    /// What was assumed when the machine was taken for `key`, and what of it speaks against that, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Model name.
    pub model: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Part number of the module, such as `p3767-0005-super`; of Jetsons only.
    #[serde(default)]
    pub module: Option<String>,
    /// Release of NVIDIA's board support, such as `36.4.3`; of Jetsons only.
    #[serde(default)]
    pub l4t: Option<String>,
    /// The GPU: `name`, `driver` (`devfreq` or `nvml`), `driver_version`, `sm_total`, `max_hz`, `clocks_hz`.
    #[serde(default)]
    #[schema(value_type = Object, nullable)]
    pub gpu: Option<serde_json::Value>,
    /// Accelerators, the GPU first where there is one.
    #[schema(value_type = Vec<Object>)]
    pub accelerators: Vec<serde_json::Value>,
    /// The processor.
    #[schema(value_type = Object)]
    pub cpu: serde_json::Value,
    /// Size of the memory.
    #[schema(value_type = Object)]
    pub memory: serde_json::Value,
    /// Power modes; empty where the machine has none.
    pub modes: Vec<ModeAnswer>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Which file each value came from.
    pub sources: BTreeMap<String, String>,
    /// Why a value is null, by field.
    pub reasons: BTreeMap<String, String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// A power mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModeAnswer {
    /// Its number.
    pub id: u32,
    /// Name for people.
    pub name: String,
}

/// A value with its age, or `null` with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StateField {
    /// The value: a number, a text, a truth, a list or an object, as the field has it; `null` where there is none.
    pub value: serde_json::Value,
    /// Age of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why a value inside the value is `null`, by its key there: a sensor that is off, a ratio that needs a second sample.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
}

/// `GET /v1/state`: fields by name (`power_mode`, `cores_online`, `cpu_hz`, `cpu_cap_hz`, `gpu_hz`, `gpu_cap_hz`,
/// `gpu_load_ratio`, `sm_online`, `tpc_mask`, `memory_hz`, `memory_cap_hz`, `temperatures_c`, `rails_w`,
/// `total_power_w`, `total_power_of`, `memory_bytes`, `load`, `pressure`, `throttle`). The load of a GPU is that of a short window:
/// average ten of them and more. Powers of rails keep the sign that the sensor tells: near zero one may be negative. Of zones
/// or rails with one name all but the first have their place behind it (`acpitz`, `acpitz-1`, `VDD_IN-1-0041.1`).
///
/// What no answer rests on: `cores` (`busy_ratio`, `min_hz`, `max_hz`, `governor` of each CPU), `engines` (`clock_hz`,
/// `max_hz`, `on`), `emc_utilisation_ratio`, `fans` (`duty_ratio`, `speed_rpm`), `fan_profile`, `gpu_control` (governor,
/// lowest clock, rail gating), `gpu_processes`, `gpu_shared_memory_bytes`, `free_blocks`, `swap`, `zram`, `rail_meters`
/// (`voltage_v`, `current_a`, limits, `alarm`), `device_temperatures`, `jetson_clocks`, `software` (JetPack, CUDA, TensorRT).
/// Some of it is read once in 1, 10 or 60 s; the age says when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StateAnswer {
    /// Fields by the names above, each with its age.
    #[serde(flatten)]
    pub fields: BTreeMap<String, StateField>,
    /// Files that the fields come from, by the same names; what comes from none has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Names of what does not work at present.
    pub degraded: Vec<String>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// A ceiling of the roofline with its 90 % interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CeilingAnswer {
    /// Best estimate, in the unit that the key of the ceiling names.
    pub value: f64,
    /// 5 % lies below.
    pub low: f64,
    /// 5 % lies above.
    pub high: f64,
    /// `measured`, `scaled`, `observed`, `datasheet` or `prior`.
    pub provenance: String,
    /// Age of the measurement; `null` where it was not measured.
    pub age_s: Option<f64>,
}

/// Bandwidth at one working-set size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BandwidthPointAnswer {
    /// Working set over all workers.
    pub working_set_bytes: f64,
    /// Number of threads that read.
    pub threads: u32,
    /// Read bandwidth that was measured.
    pub read_bytes_per_s: f64,
}

/// A regime of the machine and its main ceilings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegimeAnswer {
    /// `near`, `far` or `single`.
    pub key: String,
    /// The regime in force.
    pub active: bool,
    /// Core-to-core latency, one way.
    pub core_to_core_s: Option<f64>,
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: f64,
    /// Time of the measurement, in seconds since 1970.
    pub measured_at_unix_s: f64,
}

/// `GET /v1/roofline`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RooflineAnswer {
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Main-memory copy, read and write counted.
    pub copy_bytes_per_s: Option<CeilingAnswer>,
    /// Main-memory triad, two reads and one write counted.
    pub triad_bytes_per_s: Option<CeilingAnswer>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    #[serde(default)]
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    #[serde(default)]
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Read bandwidth against working set.
    pub bandwidth_curve: Vec<BandwidthPointAnswer>,
    /// Workers the ceilings hold for.
    pub workers: u32,
    /// Clock the ceilings hold for.
    pub clock_hz: Option<f64>,
    /// Power mode the ceilings hold for; `null` on a machine without.
    #[serde(default)]
    pub power_mode: Option<String>,
    /// Regimes of the machine that were measured so far.
    pub regimes: Vec<RegimeAnswer>,
    /// Newest reference read over the calibrated one: below 1 when neighbours take bandwidth; `null` if not measured.
    pub drift_ratio: Option<f64>,
    /// Power and energy coefficients at this operating point.
    #[serde(default)]
    pub power: PowerCostsAnswer,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// Ceilings at one operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CeilingsAnswer {
    /// Main-memory read bandwidth: the smaller of the next two where it was not measured.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Workers the ceilings hold for.
    pub workers: u32,
    /// Clock the ceilings hold for.
    pub clock_hz: Option<f64>,
}

/// A power mode with what it would give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModeDetail {
    /// Its number: not an index, and another mode on every module.
    pub id: u32,
    /// Its name: free text.
    pub name: String,
    /// The mode at boot where none was chosen.
    pub default: bool,
    /// The live files show this mode.
    pub active: bool,
    /// CPUs that stay online; `null` = the mode sets none.
    pub cores_online: Option<u32>,
    /// Lowest CPU clock that the governor may choose; `null` = the mode sets none.
    pub cpu_min_hz: Option<f64>,
    /// Highest CPU clock; `null` = no cap.
    pub cpu_max_hz: Option<f64>,
    /// Lowest GPU clock that the governor may choose; `null` = the mode sets none.
    pub gpu_min_hz: Option<f64>,
    /// Cap on the GPU clock; `null` = no cap.
    pub gpu_max_hz: Option<f64>,
    /// Cap on the memory clock; `null` = no cap.
    pub emc_max_hz: Option<f64>,
    /// Bounds on every other clock that the mode names, in the order of the file: DLA, PVA, video engines.
    pub other_clocks: Vec<ModeClock>,
    /// Gating mask of the texture-processing clusters; `null` = the mode sets none.
    pub tpc_mask: Option<u32>,
    /// SMs that the mask leaves online.
    pub sm_online: Option<u32>,
    /// Entering it from here needs a reboot; `null` where that is unknown.
    pub reboot_required: Option<bool>,
    /// It can be entered now, by those who may.
    pub reachable: bool,
    /// Why it cannot.
    pub unreachable_reason: Option<String>,
    /// What it would give; nothing was switched to find out.
    pub ceilings: CeilingsAnswer,
    /// What keeps its clocks below its caps on this board, such as older firmware, or that nothing tells whether they are
    /// reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_notes: Vec<String>,
    /// Mean power while it was calibrated; `null` where that was not measured.
    pub measured_power_w: Option<f64>,
    /// The most that it draws: memory and cores flat out at once, at the upper end of the 90 % interval. What a hold's
    /// `max_power_w` is compared with; `null` where nothing is known of it, and such a mode meets no limit.
    pub worst_power_w: Option<f64>,
    /// `measured` in this mode on this machine, `carried` from another of its modes, or `prior`: from boards that others
    /// measured; `null` with the watts. The watts in a mode's name count for nothing.
    pub worst_power_source: Option<String>,
}

/// Bounds that a mode sets on the clock of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModeClock {
    /// Parameter in the file of modes: `DLA0_CORE`, `PVA0_VPS`, …
    pub name: String,
    /// Lowest clock; `null` = the mode sets none.
    pub min_hz: Option<f64>,
    /// Cap; `null` = no cap.
    pub max_hz: Option<f64>,
}

/// Something in a file of modes that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeWarning {
    /// Line, counted from 1; `null` for the file as a whole.
    pub line: Option<usize>,
    /// What was found and what became of it.
    pub message: String,
}

/// `GET /v1/modes`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModesAnswer {
    /// Number of the default mode.
    pub default: Option<u32>,
    /// Name of the active mode by the live files; `null` where they match none.
    pub active: Option<String>,
    /// `boot`, `user`, `hold`, `revert` or `external`.
    pub active_cause: Option<String>,
    /// In the order of the file; empty on a machine without.
    pub modes: Vec<ModeDetail>,
    /// What was not understood of the file.
    #[schema(value_type = Vec<Object>)]
    pub warnings: Vec<ModeWarning>,
    /// Where the modes come from.
    pub source: Option<String>,
    /// Why there are none; `null` where there are.
    pub reason: Option<String>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// A storage format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FormatAnswer {
    /// Key that requests name it by.
    pub key: String,
    /// Bits per weight, scales included.
    pub bits_per_weight: f64,
    /// Weights in a storage block.
    pub block_elements: u32,
    /// Bytes of a storage block.
    pub block_bytes: u32,
    /// What computes it where the unit exists.
    pub native_precision: String,
    /// What computes it on this machine; `null` where it has not been measured.
    pub compute: Option<String>,
    /// Dequantization cost on this machine in cycles, per weight, worker and column; `null` where it has not been measured.
    pub cycles_per_weight: Option<f64>,
    /// Part of the bandwidth ceiling reached on this machine; `null` where it has not been measured.
    pub bandwidth_ratio: Option<f64>,
}

/// `GET /v1/formats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FormatsAnswer {
    /// Every known format.
    pub formats: Vec<FormatAnswer>,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// Memory that a workload takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryAnswer {
    /// Bytes of the weights.
    pub weights: f64,
    /// Bytes of the key/value cache of all sequences.
    pub kv_cache: f64,
    /// Bytes of the activations: inputs and outputs.
    pub activations: f64,
    /// What the engine takes for itself; absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<f64>,
    /// Sum of the parts above.
    pub total: f64,
    /// What can be had now without swapping; of hardware that is not at hand, its memory less what the system usually
    /// needs. `null` where that is unknown.
    #[serde(default)]
    pub available: Option<f64>,
    /// Whether it fits into that; `null` where it is unknown.
    pub fits: Option<bool>,
}

/// A part of a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BreakdownEntry {
    /// Name of the operation.
    pub op: String,
    /// Time of the operation.
    pub time_s: f64,
    /// Operations that it computes.
    pub flops: f64,
    /// Bytes to and from memory.
    pub bytes: f64,
}

/// `POST /v1/predict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredictAnswer {
    /// Time of one run of an operation. Of a model: one step (decode), the prompt (prefill), or prompt and answer (serve).
    pub time_s: EstimateAnswer,
    /// Tokens (columns) per second over the batch: of a prefill those of the prompt, otherwise those generated.
    pub tokens_per_s: EstimateAnswer,
    /// Time to the first token (models that read a prompt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Time of each token of a sequence after the first (models that generate).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_token_s: Option<EstimateAnswer>,
    /// Power while it runs; `null` where unknown.
    pub power_w: Option<EstimateAnswer>,
    /// What the meter of that power covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`. Powers of different
    /// rails cannot be compared; `null` without power.
    #[serde(default)]
    pub power_from: Option<String>,
    /// Whose measurements it rests on: `measured` on this machine, or `prior`: those of others; `null` without power.
    #[serde(default)]
    pub power_source: Option<String>,
    /// Energy per token; `null` where unknown.
    pub energy_j_per_token: Option<EstimateAnswer>,
    /// Operations of one run.
    pub flops: f64,
    /// Traffic of one run.
    pub bytes: f64,
    /// Operations per byte.
    pub arithmetic_intensity_flops_per_byte: f64,
    /// Ridge point of the precision used.
    pub ridge_flops_per_byte: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// What limits it: `dram`, `cache`, `core` (dequantization), `compute`, `launch` or `power_cap`.
    pub limit: String,
    /// What the arithmetic runs in.
    pub compute: String,
    /// Memory it takes.
    pub memory_bytes: MemoryAnswer,
    /// What the prediction rests on.
    pub tier: String,
    /// Whose errors the interval was taken from (models only): `own_tier`, `own_engine` or `own_runs` of this machine, else
    /// `engine_and_machine`, `engine`, `all` or `guess`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_from: Option<String>,
    /// Weakest provenance of the ceilings used.
    pub provenance: String,
    /// Parts of the prediction, by operation.
    pub breakdown: Vec<BreakdownEntry>,
    /// The least time that any implementation could take; no prediction lies below it.
    pub roofline_time_s: f64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// The hardware, where the figures are those of its data sheet and no machine was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// Whose reports of measured runs moved it, and how many; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<ReportsAnswer>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Reports of measured runs that moved an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportsAnswer {
    /// Whose moved it: `own` (the caller's, or given with the question, beside confirmed ones), `confirmed` or `none`.
    pub scope: String,
    /// Number of the caller's reports, or of those given with the question.
    pub own: u32,
    /// Number of reports that everybody believes.
    pub confirmed: u32,
    /// Number of reports that contradict the calibrated costs: they widened the interval and moved nothing.
    pub doubted: u32,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SweepRow {
    /// The operation with its batch applied; `null` for a model.
    #[schema(value_type = Option<Object>)]
    pub op: Option<Op>,
    /// The model: its key, or what its file or fields call it. Absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Storage of the weights; `null` for a file that does not say.
    pub format: Option<String>,
    /// The power mode, where modes are swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// Worker threads, where they are swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Columns, or sequences of a model.
    pub batch: u64,
    /// Tokens in the cache. Absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The prediction.
    #[serde(flatten)]
    pub prediction: PredictAnswer,
}

/// `POST /v1/sweep`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SweepAnswer {
    /// One row for each combination.
    pub rows: Vec<SweepRow>,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// `POST /v1/analyze`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AnalyzeAnswer {
    /// Operations over the measured time.
    pub achieved_flops_per_s: f64,
    /// Traffic over the measured time.
    pub achieved_bytes_per_s: f64,
    /// Physical bound over measured time: 1 = at the ceiling.
    pub ceiling_ratio: f64,
    /// Predicted over measured time.
    pub predicted_ratio: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// The limiting ceiling, as `limit` of a prediction.
    pub limit: String,
    /// `impossible`, `at_ceiling`, `as_predicted`, `slower_than_predicted` or `faster_than_predicted`.
    pub verdict: String,
    /// The verdict in a sentence with its numbers.
    pub reason: String,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Prediction for the same workload.
    pub prediction: PredictAnswer,
}

/// A candidate of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// Expected relative increase of a model's perplexity over 16-bit weights; a prior of the format, `null` where nothing
    /// is known of it.
    #[serde(default)]
    pub quality_loss_ratio: Option<f64>,
    /// What is predicted of it.
    pub prediction: PredictAnswer,
}

/// Candidates that a constraint excluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RejectedAnswer {
    /// Key of the constraint, as in the request.
    pub by: String,
    /// Number of candidates that it excluded.
    pub count: u64,
    /// The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    pub closest: Option<f64>,
}

/// A candidate without its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SensitivityAnswer {
    /// Whether the runner-up may be the better one: the margin lies within the interval.
    pub could_change: bool,
    /// The best of another format, mode or number of threads; `null` where there is none.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecommendAnswer {
    /// Whether anything meets the constraints.
    pub feasible: bool,
    /// The candidate chosen; `null` if infeasible.
    pub decision: Option<CandidateAnswer>,
    /// Why, in one or two sentences.
    pub reason: String,
    /// Pareto front without the choice.
    pub alternatives: Vec<CandidateAnswer>,
    /// What was excluded and by what.
    pub rejected: Vec<RejectedAnswer>,
    /// The candidate that misses least; only if infeasible.
    pub closest: Option<CandidateAnswer>,
    /// The constraints that it misses; only if infeasible.
    pub violated: Vec<String>,
    /// The fewest constraints that no candidate meets together; only if infeasible.
    #[serde(default)]
    pub contradicting: Vec<String>,
    /// How sure the choice is; `null` if infeasible.
    #[serde(default)]
    pub sensitivity: Option<SensitivityAnswer>,
    /// What looks odd about the question, such as a limit in another unit.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// How to put it into practice.
    #[schema(value_type = Object)]
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

/// `GET /v1/calibration`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CalibrationAnswer {
    /// The record in force; `null` before the first.
    #[schema(value_type = Object, nullable)]
    pub record: serde_json::Value,
    /// Age of the record; `null` where there is none.
    pub age_s: Option<f64>,
    /// What is running, waiting or failed.
    #[schema(value_type = Object)]
    pub status: serde_json::Value,
    /// What was learned from observations.
    #[schema(value_type = Vec<Object>)]
    pub residuals: Vec<serde_json::Value>,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// `POST /v1/calibrate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalibrateAnswer {
    /// Number of the job; follow it in `GET /v1/events` or `GET /v1/calibration`.
    pub job: u64,
    /// Whether it has finished; false where the request did not wait for it.
    pub finished: bool,
}

/// `POST /v1/observations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObservationsAnswer {
    /// Number of observations that were learned from.
    pub accepted: u64,
    /// What was learned of models, by position: `{"index", "factor", "tier", "count", "alarm", "doubted"}`. `factor` is the time
    /// predicted now over what was predicted before anything was learned, `count` the runs of this model that are kept, `alarm`
    /// what changed, `doubted` whether the run contradicts the calibrated costs and moves nothing yet.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub learnt: Vec<serde_json::Value>,
    /// Why the others were not, by position: `{"index", "code", "field", "reason", "hint"}`.
    #[schema(value_type = Vec<Object>)]
    pub refused: Vec<serde_json::Value>,
    /// What was not learned of those that were.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A report of something that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObservationEntry {
    /// Number of the report; `null` for what an earlier version learned without keeping reports.
    pub id: Option<u64>,
    /// User who reported it; `null` where that was not recorded, or where several agreed.
    pub uid: Option<u32>,
    /// Process that reported it; `null` where that is not known.
    pub pid: Option<i32>,
    /// When it was reported, in seconds since 1970; `null` where that was not recorded.
    pub reported_at_unix_s: Option<f64>,
    /// Whose answers it moves: `everyone`, `own` (those of `uid`), or `nobody` while it is doubted.
    pub moves: String,
    /// Why: `confirmed` (by `confirmed_by`), `agreed` (by `agreeing_users`), `own`, `doubted` or `unrecorded`.
    pub because: String,
    /// User by whom it was confirmed; `null` where it was not.
    pub confirmed_by: Option<u32>,
    /// Number of independent users who agree; `null` where nobody was asked.
    pub agreeing_users: Option<u32>,
    /// Engine that ran.
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Key, path or name of the model; `null` for an operation.
    pub model: Option<String>,
    /// The operation, or what kind it is where no more was kept; `null` for a model.
    #[schema(value_type = Option<Object>)]
    pub op: Option<serde_json::Value>,
    /// How weights were stored.
    pub format: String,
    /// `prefill`, `decode` or `serve`; `null` for an operation.
    pub phase: Option<String>,
    /// Sequences; `null` for an operation.
    pub batch: Option<u64>,
    /// Tokens that were in the cache; `null` for an operation.
    pub context_tokens: Option<u64>,
    /// Tokens of the prompt; `null` for an operation.
    pub prompt_tokens: Option<u64>,
    /// Power mode by name; `null` where it was not known.
    pub power_mode: Option<String>,
    /// Measured time of one run; `null` where only ratios were kept.
    pub time_s: Option<f64>,
    /// Reported power; `null` where there was none.
    pub power_w: Option<f64>,
    /// Measured over predicted: of a model as it was predicted before, of an operation without what was learned; `null` where
    /// that is not known any more.
    pub measured_over_predicted_ratio: Option<f64>,
}

/// `GET /v1/observations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObservationListAnswer {
    /// Reports, those of the lowest number first.
    pub observations: Vec<ObservationEntry>,
    /// Other users with reports that move only their own answers and are not listed.
    pub other_users: u32,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// `DELETE /v1/observations` and `DELETE /v1/observations/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgottenAnswer {
    /// Number of reports that are gone.
    pub forgotten: u64,
}

/// What tells a model from an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A step of a whole model.
    Model,
}

/// A step of a model: a token for every sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredModel {
    /// `model`.
    pub kind: ModelKind,
    /// As it was asked for.
    pub model: serde_json::Value,
    /// `decode`.
    pub phase: String,
    /// Batch size in sequences.
    pub batch: u64,
    /// Tokens in the cache of each before.
    pub context_tokens: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MeasuredOp {
    /// An operation.
    Op(Op),
    /// A model.
    Model(MeasuredModel),
}

impl MeasuredOp {
    /// The operation; `None` for a model.
    #[must_use]
    pub const fn op(&self) -> Option<&Op> {
        match self {
            Self::Op(op) => Some(op),
            Self::Model(_) => None,
        }
    }
}

/// One measured operation or model beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredRow {
    /// The operation, or `{"kind":"model",…}`.
    #[schema(value_type = Object)]
    pub op: MeasuredOp,
    /// Storage of the weights; of a file, what most of its bytes are.
    pub format: String,
    /// Predicted tokens per second over all sequences. Absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_tokens_per_s: Option<EstimateAnswer>,
    /// The same as measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_tokens_per_s: Option<EstimateAnswer>,
    /// Predicted for the memory system as the probe beside the measurement saw it.
    pub predicted_time_s: EstimateAnswer,
    /// Predicted from the calibration alone.
    pub predicted_at_calibration_s: f64,
    /// Where the runs lie most densely (half-sample mode), with the 5 % and 95 % quantiles.
    pub measured_time_s: EstimateAnswer,
    /// (predicted - measured) / measured.
    pub error_ratio: f64,
    /// The same for the prediction from the calibration alone.
    pub error_at_calibration_ratio: f64,
    /// Reference read bandwidth beside the measurement over that of the calibration.
    pub drift_ratio: Option<f64>,
    /// What disturbed the measurement; `null` if nothing did.
    pub disturbed: Option<String>,
    /// Of a model whose layers did not all find room, the part of its bytes that came from memory which another layer
    /// alike reads too; 0 where each has its own.
    #[serde(default)]
    pub reused_ratio: f64,
    /// Regime it was measured in.
    pub regime: String,
    /// Number of timed runs.
    pub runs: u64,
    /// Instruction set of the kernel, such as `avx512`.
    pub isa: String,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    pub bound: String,
    /// The limiting ceiling, as `limit` of a prediction.
    pub limit: String,
    /// Physical bound of the roofline.
    pub roofline_time_s: f64,
    /// Power and energy; `null` where they were not asked for.
    #[serde(default)]
    pub power: Option<MeasuredPowerAnswer>,
}

/// Power and energy of one measured operation or model. What is unknown is `null`, with the reason; never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredPowerAnswer {
    /// Mean power while it ran again and again.
    pub power_w: Option<f64>,
    /// That of the idle machine before.
    pub idle_power_w: Option<f64>,
    /// Energy of one run without what the idle machine takes in that time: (`power_w` - `idle_power_w`) x `measured_time_s`.
    pub energy_j: Option<f64>,
    /// With it: `power_w` x `measured_time_s`.
    pub total_energy_j: Option<f64>,
    /// Time that the readings under load stand for.
    pub duration_s: Option<f64>,
    /// Number of readings of the power meter.
    pub readings: Option<u32>,
    /// How long the meter takes to a new value; `null` where it does not tell.
    pub period_s: Option<f64>,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    pub scope: Option<String>,
    /// Names of the power rails that were added up.
    pub rails: Vec<String>,
    /// Why a number that the meter should tell is `null`; `null` if none is.
    pub reason: Option<String>,
}

/// `POST /v1/measure`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasureAnswer {
    /// One row for each operation and format.
    pub rows: Vec<MeasuredRow>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
    /// Measured on a simulated accelerator.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
