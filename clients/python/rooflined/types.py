"""Bodies of requests and answers, as the daemon's OpenAPI document describes them. Written by make_types.py.

Every number carries its unit in its key. `None` is unknown, never zero. Keys of a class whose name ends in `Optional_` may be
absent. A later daemon may add keys to answers and values to enumerations.
"""

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union


#: An engine of models or of vision networks.
AnyEngine = Literal[
    "none", "llama.cpp", "ollama", "vllm", "tensorrt-llm", "tensorrt-edge-llm", "mlc", "torch", "onnxruntime",
    "tensorrt"
]


#: What the daemon does by itself for holds with a query.
Automatic = Literal["off", "advise", "switch"]


#: Side of the roofline.
Bound = Literal["memory", "compute"]


#: Why a run is slower than expected.
Cause = Literal[
    "power_mode", "gpu_clock_cap", "memory_clock", "sm_gated", "thermal", "power_limit", "current", "supply",
    "gpu_clock", "memory_bandwidth", "slow_state", "gpu_shared", "cpu_clock", "cores_offline", "steal",
    "memory_pressure", "model", "kv_format", "context", "batch", "chunk", "offload", "speculation", "engine_version",
    "threads", "affinity", "smt", "cpu_quota", "slow_cores", "numa", "low_priority", "cpu_weight", "other_process",
    "kernels", "gpu_unused", "page_faults", "swap", "warming", "options", "disturbed"
]


#: How sure the effect of a cause is.
Certainty = Literal["predicted", "estimated", "possible"]


#: How sure the figures of a model are.
Confidence = Literal["config", "recalled", "guess"]


#: A limit that excludes candidates.
Constraint = Literal[
    "max_time_s", "max_time_per_token_s", "max_time_to_first_token_s", "min_tokens_per_s", "max_power_w",
    "max_memory_bytes", "memory_available", "max_quality_loss_ratio", "allow_reboot", "power_unknown"
]


#: What drafts tokens ahead.
DraftKind = Literal["draft", "mtp", "ngram"]


#: What the energy of a token counts.
EnergyBasis = Literal["with_idle", "marginal"]


#: An inference engine; `none` for the daemon's own kernels.
Engine = Literal[
    "none", "llama.cpp", "ollama", "vllm", "tensorrt-llm", "tensorrt-edge-llm", "mlc", "torch", "onnxruntime"
]


#: Stable code of an error.
ErrorCode = Literal[
    "no_probe", "invalid_json", "unknown_field", "missing_field", "invalid_field", "invalid_dimension",
    "unknown_format", "unknown_precision", "unknown_hardware", "unknown_mode", "unknown_model", "unreadable_model",
    "invalid_model", "unsupported_workload", "unsupported_format", "unsupported_constraint", "unsupported_objective",
    "unsupported_operating_point", "no_unit", "too_many", "impossible_observation", "slowed_down", "malformed_request",
    "wrong_socket", "control_disabled", "auto_off", "not_authorized", "mode_not_allowed", "not_found", "not_running",
    "unknown_hold", "not_pending", "method_not_allowed", "request_timeout", "busy", "gated", "cancelled",
    "not_calibrated", "reboot_required", "refused", "not_reached", "not_settled", "not_stored", "unsatisfiable",
    "header_too_large", "body_too_large", "probe_failed", "fit_failed", "internal", "too_many_connections", "not_ready",
    "control_unavailable", "shutting_down"
]


#: How a measured rate compares with the one that was expected.
ExplainVerdict = Literal["as_expected", "slower_than_expected", "faster_than_expected", "not_measured"]


#: What a calibration waits for.
Gate = Literal["load", "memory", "thermal", "back_off", "busy"]


#: The program or file that describes a GPU.
GpuDriver = Literal["devfreq", "nvml"]


#: How memory and accelerator belong together.
HardwareKind = Literal["integrated", "discrete", "cpu"]


#: Whose errors an interval was taken from.
IntervalSource = Literal["own_tier", "own_engine", "own_runs", "engine_and_machine", "engine", "all", "guess"]


#: What takes most of the time of a layer.
LayerBound = Literal["memory", "compute", "launch"]


#: What kind of kernel runs a layer of a network.
LayerKind = Literal[
    "convolution", "pointwise", "depthwise", "product", "attention", "elementwise", "normalization", "other", "copy"
]


#: The ceiling that takes most of the time.
Limit = Literal["dram", "cache", "core", "compute", "launch", "power_cap"]


#: A load that was held while the power meter was read.
LoadKind = Literal["idle", "bandwidth", "compute", "decode"]


#: Why the active mode is active.
ModeCause = Literal["boot", "user", "hold", "revert", "external"]


#: Power modes that are not listed by name.
ModesKind = Literal["all", "live"]


#: Whose answers a report moves.
Moves = Literal["everyone", "own"]


#: An engine that runs vision networks.
NetworkEngine = Literal["tensorrt", "onnxruntime"]


#: What a latency of a vision network covers: the engine alone, with the copies of input and output, or everything from a
#: decoded picture to boxes.
NetworkScope = Literal["engine", "copies", "frame"]


#: What a recommendation optimizes.
Objective = Literal["latency", "throughput", "energy", "power"]


#: Kind of an operation.
OpKind = Literal["gemv", "gemm", "attention"]


#: End of the prediction interval that must meet the constraints.
Optimism = Literal["pessimistic", "expected"]


#: Which part of generating text.
Phase = Literal["prefill", "decode", "serve"]


#: Extent of a calibration.
PlanKind = Literal["full", "quick"]


#: What a power covers; `rail:NAME` is one rail.
PowerScope = Literal["rail:vdd_cpu_gpu_cv", "module", "total_input", "gpu", "rail:package"]


#: Whose measurements power rests on.
PowerSource = Literal["measured", "prior"]


#: What a precision is called.
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]


#: Where a ceiling comes from, the most trustworthy first.
Provenance = Literal["measured", "scaled", "observed", "datasheet", "prior"]


#: What a power meter covers.
Rails = Literal["vdd_cpu_gpu_cv", "module", "system", "gpu", "package"]


#: Whose reports moved a prediction.
ReportScope = Literal["own", "shared"]


#: What limits the number of blocks that an SM holds.
Resource = Literal["blocks", "threads", "shared_memory", "registers"]


#: What made an answer stale.
StaleCause = Literal[
    "mode", "throttle", "calibration", "observations", "clocks", "ceilings", "memory", "modes", "other"
]


#: What came of a switch.
SwitchOutcome = Literal["applied", "reboot_required", "refused", "not_applied"]


#: What a model is asked for.
Task = Literal["generate", "embed", "rerank"]


#: What a prediction rests on, the weakest first.
Tier = Literal["prior", "board_calibrated", "engine_calibrated", "anchored", "observed"]


#: What takes most of the time of a tile.
TileLimit = Literal["dram", "shared_memory", "compute", "launch"]


#: How a measured time compares with the prediction.
Verdict = Literal[
    "impossible", "at_ceiling", "as_predicted", "slower_than_predicted", "faster_than_predicted"
]


#: Use of weights.
WeightClass = Literal[
    "embedding", "norm", "attention_q", "attention_k", "attention_v", "attention_qkv", "attention_latent",
    "attention_out", "linear_mixer", "mlp", "router", "experts", "shared_experts", "head", "other", "tower", "draft"
]


#: Kinds of work of a network, by how their operations are counted.
WorkKind = Literal[
    "convolution", "product", "elementwise", "normalization", "softmax", "pooling", "reduction", "resampling",
    "quantization", "movement", "view", "other"
]


#: Where the worst power of a mode comes from.
WorstSource = Literal["measured", "carried", "prior"]


class BoardAcceleratorGpuOptional_(TypedDict, total=False):
    name: Optional[str]
    sm_total: Optional[int]


class BoardAcceleratorGpu(BoardAcceleratorGpuOptional_):
    """The GPU."""

    kind: Literal["gpu"]


class BoardAcceleratorCpuOptional_(TypedDict, total=False):
    name: Optional[str]


class BoardAcceleratorCpu(BoardAcceleratorCpuOptional_):
    """The processor."""

    kind: Literal["cpu"]
    precisions: List["Precision"]
    workers: int


#: An accelerator of the machine.
BoardAccelerator = Union["BoardAcceleratorGpu", "BoardAcceleratorCpu"]


#: A model: its key, or an object with the path of a file or the fields of a configuration.
ModelRequest = Union[str, Dict[str, Any]]


#: Power modes to consider: all, those that need no reboot, or modes by name or by number in digits.
ModesChoice = Union["ModesKind", List[str]]


#: A vision network.
NetworkChoice = Union["NetworkFile", Dict[str, Any]]


class OpGemv(TypedDict):
    """`y = W x`: the weights are `n` rows of `k`."""

    k: int
    kind: Literal["gemv"]
    n: int


class OpGemm(TypedDict):
    """`C = A W`: A is `m x k`, W is `k x n`."""

    k: int
    kind: Literal["gemm"]
    m: int
    n: int


class OpAttentionOptional_(TypedDict, total=False):
    window: Optional[int]


class OpAttention(OpAttentionOptional_):
    """Scaled dot-product attention of one layer, causal."""

    batch: int
    context_tokens: int
    head_dim: int
    heads: int
    kind: Literal["attention"]
    kv_heads: int
    query_tokens: int


#: One operation.
Op = Union["OpGemv", "OpGemm", "OpAttention"]


class AdviceChange(TypedDict):
    """A field of a recommendation that changed, with its previous and its new value."""

    #: Its place in the answer, such as `decision.format` or `decision.prediction.time_s`.
    field: str
    #: Its value in the new answer.
    now: Any
    #: Its value in the previous answer.
    told: Any


class AdviceStaleOptional_(TypedDict, total=False):
    #: Why it can no longer be answered; `null` where it can.
    error: Optional["ErrorBody"]


class AdviceStale(AdviceStaleOptional_):
    """Event `advice_stale` of `POST /v1/recommend/watch`: the previous answer has changed, and event `recommend` with the
    new one follows, unless it can no longer be answered."""

    #: What happened: `mode`, `throttle`, `calibration`, `observations`, `clocks`, `ceilings`, `memory`, `modes` (which of
    #: them can be entered) or `other`.
    causes: List["StaleCause"]
    #: What of the answer is altered.
    changes: List["AdviceChange"]
    #: What happened and what of the answer is altered, in a sentence with the numbers.
    reason: str
    #: Serial of the snapshot that changes it.
    serial: int
    #: Serial of the snapshot that the previous answer was given from.
    was_serial: int


class AnalyzeAnswerOptional_(TypedDict, total=False):
    #: True where values come from a simulated board, not from hardware.
    simulated: bool


class AnalyzeAnswer(AnalyzeAnswerOptional_):
    """`POST /v1/analyze`."""

    #: Traffic over the measured time.
    achieved_bytes_per_s: float
    #: Operations over the measured time.
    achieved_flops_per_s: float
    #: Side of the roofline that it lies on: `memory` or `compute`.
    bound: "Bound"
    #: Physical bound over measured time: 1 = at the ceiling.
    ceiling_ratio: float
    #: The limiting ceiling, as `limit` of a prediction.
    limit: "Limit"
    #: Predicted over measured time.
    predicted_ratio: float
    #: Prediction for the same workload.
    prediction: "PredictAnswer"
    #: The verdict in a sentence with its numbers.
    reason: str
    #: `impossible`, `at_ceiling`, `as_predicted`, `slower_than_predicted` or `faster_than_predicted`.
    verdict: "Verdict"


class AnalyzeRequestOptional_(TypedDict, total=False):
    #: Inference engine whose kernels run.
    engine: "Engine"
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: Absent = as it is now; other hardware: its fastest mode.
    operating_point: Optional["OperatingPointRequest"]
    #: Measured time of one run (operation), or of one step, prompt or answer (model); give this or `tokens_per_s`.
    time_s: Optional[float]
    #: Measured rate over the batch.
    tokens_per_s: Optional[float]


class AnalyzeRequest(AnalyzeRequestOptional_):
    """`POST /v1/analyze`: a workload and how long it took."""

    #: Workload that ran: one operation or one model.
    workload: "Workload"


class ApplyOptional_(TypedDict, total=False):
    #: Command that sets the clock cap or power limit of the choice, which the daemon does not set itself; `null` without
    #: one.
    enter: Optional[str]
    #: Expected cost of entering the mode; `null` if infeasible.
    entering_s: Optional[float]
    #: Command that lifts it; `null` where that is unknown.
    leave: Optional[str]


class Apply(ApplyOptional_):
    """How to put a recommendation into practice."""

    #: The machine is in the mode of the choice already.
    active: bool
    #: The mode needs a reboot.
    reboot_required: bool
    #: Command line or settings by engine.
    settings: Dict[str, Any]


class BandwidthPointAnswer(TypedDict):
    """Bandwidth at one working-set size."""

    #: Read bandwidth that was measured.
    read_bytes_per_s: float
    #: Number of threads that read.
    threads: int
    #: Working set over all workers.
    working_set_bytes: float


class BatchRange(TypedDict, total=False):
    """A range of batch sizes, both ends included."""

    #: Largest batch size; absent = 1.
    max: int
    #: Smallest batch size; absent = 1.
    min: int


class BlockAnswer(TypedDict):
    """What a token reads in one storage."""

    #: Storage of these weights: a block type of the file, or a plain type.
    block: str
    #: Bytes that they take.
    bytes: float
    #: Number of weights.
    weights: float


class BoardAnswerOptional_(TypedDict, total=False):
    #: The GPU: `name`, `driver` (`devfreq` or `nvml`), `driver_version`, `sm_total`, `max_hz`, `clocks_hz`.
    gpu: Optional["BoardGpu"]
    #: Kernel release.
    kernel: Optional[str]
    #: Release of NVIDIA's board support, such as `36.4.3`; of Jetsons only.
    l4t: Optional[str]
    #: Model name.
    model: Optional[str]
    #: Part number of the module, such as `p3767-0005-super`; of Jetsons only.
    module: Optional[str]
    #: What was assumed when the machine was taken for `key`, and what of it speaks against that, in sentences.
    notes: List[str]
    #: Operating system.
    os: Optional[str]


class BoardAnswer(BoardAnswerOptional_):
    """`GET /v1/board`."""

    #: Accelerators, the GPU first where there is one.
    accelerators: List["BoardAccelerator"]
    #: The processor.
    cpu: "BoardCpu"
    #: Key in the hardware registry.
    key: str
    #: Size of the memory.
    memory: "BoardMemory"
    #: Power modes; empty where the machine has none.
    modes: List["ModeAnswer"]
    #: Why a value is null, by field.
    reasons: Dict[str, str]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: Which file each value came from.
    sources: Dict[str, str]


class BoardCache(TypedDict):
    """A cache of the processor."""

    #: Number of instances.
    instances: int
    #: What the kernel says that it holds: data, instructions or both.
    kind: str
    #: Level, counted from 1.
    level: int
    #: CPUs that share one instance.
    shared_by: int
    #: Size of one instance.
    size_bytes: int


class BoardCpuOptional_(TypedDict, total=False):
    #: Number of physical cores.
    cores: Optional[int]
    #: Size of the last level over all its instances.
    last_level_cache_bytes: Optional[int]
    #: Highest clock.
    max_hz: Optional[float]
    #: Model name.
    model: Optional[str]


class BoardCpu(BoardCpuOptional_):
    """The processor."""

    #: Instruction set, such as `aarch64`.
    architecture: str
    #: Caches of each level.
    caches: List["BoardCache"]
    #: Extensions of the instruction set.
    features: List[str]
    #: Number of logical CPUs.
    logical: int


class BoardGpuOptional_(TypedDict, total=False):
    #: Version of the driver.
    driver_version: Optional[str]
    #: Highest clock.
    max_hz: Optional[float]
    #: Name that the driver gives it.
    name: Optional[str]
    #: Number of streaming multiprocessors (SM) with nothing gated.
    sm_total: Optional[int]


class BoardGpu(BoardGpuOptional_):
    """The GPU of the machine."""

    #: Clocks that the driver admits, ascending.
    clocks_hz: List[float]
    #: Who describes it.
    driver: "GpuDriver"


class BoardMemoryOptional_(TypedDict, total=False):
    #: Size.
    total_bytes: Optional[float]


class BoardMemory(BoardMemoryOptional_):
    """Memory of the machine."""

    #: CPU and GPU share it.
    unified: bool


class BreakdownEntry(TypedDict):
    """A part of a prediction."""

    #: Bytes to and from memory.
    bytes: float
    #: Operations that it computes.
    flops: float
    #: Name of the operation.
    op: str
    #: Time of the operation.
    time_s: float


class CalibrateAnswer(TypedDict):
    """`POST /v1/calibrate`."""

    #: Whether it has finished; false where the request did not wait for it.
    finished: bool
    #: Number of the job; follow it in `GET /v1/events` or `GET /v1/calibration`.
    job: int


class CalibrateRequest(TypedDict, total=False):
    """`POST /v1/calibrate` (control socket)."""

    #: Run even though the load or temperature gate advises against it.
    force: bool
    #: Extent of the measurements: `quick` (about two seconds) or `full`.
    plan: "PlanKind"
    #: Answer when it has finished rather than when it has started.
    wait: bool


class CalibrationAnswerOptional_(TypedDict, total=False):
    #: Age of the record; `null` without one.
    age_s: Optional[float]
    #: The current record; `null` if this machine was never calibrated.
    record: Optional["CalibrationRecord"]
    #: True where values come from a simulated board, not from hardware.
    simulated: bool


class CalibrationAnswer(CalibrationAnswerOptional_):
    """`GET /v1/calibration`."""

    #: What was learned from observations.
    residuals: List["ResidualAnswer"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: What is running, waiting or failed.
    status: "CalibrationStatus"


class CalibrationRecordOptional_(TypedDict, total=False):
    #: That work; `null` where there was none, or it is unknown.
    other_work: Optional[Dict[str, Any]]
    #: Power and energy coefficients; `null` without a power meter.
    power: Optional[Dict[str, Any]]


class CalibrationRecord(CalibrationRecordOptional_):
    """What a calibration measured."""

    #: Machine that it holds for.
    key: Dict[str, Any]
    #: The newest run was made during other work.
    loaded: bool
    #: Time of the newest measurement, in seconds since 1970.
    measured_at_unix_s: float
    #: Extent of the newest run.
    plan: "PlanKind"
    #: Regimes of the machine, the active one first.
    regimes: List[Dict[str, Any]]
    #: Samples of the newest run that were not used.
    rejected: List[Dict[str, Any]]
    #: Version of this layout.
    schema: int
    #: Measured on a simulated accelerator.
    simulated: bool
    #: Steps of the newest run that this machine cannot do.
    skipped: List[str]
    #: Duration of the newest run in seconds.
    wall: float


class CalibrationStatus(TypedDict, total=False):
    """The calibration that is running or waiting, and the last one."""

    #: Part of it that is done, 0 to 1.
    fraction: Optional[float]
    #: Why the last job failed; `null` if it did not.
    last_error: Optional[str]
    #: Number of the last finished job.
    last_job: Optional[int]
    #: Number of the running job.
    running: Optional[int]
    #: Step that is running.
    step: Optional[str]
    #: Why a wanted calibration has not started.
    waiting_for: Optional["Gate"]
    #: The same in a sentence.
    waiting_reason: Optional[str]


class CandidateAnswerOptional_(TypedDict, total=False):
    #: Layers whose experts stay in the memory of the CPU; `null` where none do.
    cpu_moe_layers: Optional[int]
    #: Tokens drafted for every sequence and step; `null` where none are.
    draft_tokens: Optional[int]
    #: Storage of the weights; `null` for a file that does not say.
    format: Optional[str]
    #: Storage of the key/value cache; `null` for an operation.
    kv_format: Optional[str]
    #: The power mode; `null` where the machine has none.
    power_mode: Optional["ModeAnswer"]
    #: Expected relative increase of a model's perplexity over 16-bit weights; a prior of the format, `null` where nothing
    #: is known of it.
    quality_loss_ratio: Optional[float]
    #: Worker threads; `null` where they were not to be chosen.
    threads: Optional[int]


class CandidateAnswer(CandidateAnswerOptional_):
    """A candidate of a recommendation."""

    #: Batch size: sequences, or columns of an operation.
    batch: int
    #: What is predicted of it.
    prediction: "PredictAnswer"


class CauseAnswer(TypedDict):
    """One cause of a difference."""

    #: Which one.
    cause: "Cause"
    #: `predicted`: the effect is that of the prediction; `estimated`: of what was seen; `possible`: seen, and what it
    #: costs is inferred from what nothing else explains.
    certainty: "Certainty"
    #: What shows it.
    evidence: List["EvidenceAnswer"]
    #: What to do, with the command where there is one.
    fix: str
    #: Its part of the difference between expected and measured; the parts of all causes and `unexplained_ratio` add up to
    #: 1.
    share_ratio: float
    #: That part as a rate.
    share_tokens_per_s: float
    #: The cause in words, with its numbers.
    what: str
    #: What would be reached without it.
    without_tokens_per_s: float


class CeilingAnswerOptional_(TypedDict, total=False):
    #: Age of the measurement; `null` where it was not measured.
    age_s: Optional[float]


class CeilingAnswer(CeilingAnswerOptional_):
    """A ceiling of the roofline with its 90 % interval."""

    #: 5 % lies above.
    high: float
    #: 5 % lies below.
    low: float
    #: `measured`, `scaled`, `observed`, `datasheet` or `prior`.
    provenance: "Provenance"
    #: Best estimate, in the unit that the key of the ceiling names.
    value: float


class CeilingsAnswerOptional_(TypedDict, total=False):
    #: Clock the ceilings hold for.
    clock_hz: Optional[float]
    #: What the memory alone gives, bus width x memory clock; `null` where that is not known.
    memory_limit_bytes_per_s: Optional["CeilingAnswer"]
    #: Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    pull_limit_bytes_per_s: Optional["CeilingAnswer"]


class CeilingsAnswer(CeilingsAnswerOptional_):
    """Ceilings at one operating point."""

    #: Main-memory read bandwidth: the smaller of the next two where it was not measured.
    bandwidth_bytes_per_s: "CeilingAnswer"
    #: Peak by precision: FLOP/s, of integer precisions OP/s.
    compute_flops_per_s: Dict[str, "CeilingAnswer"]
    #: Cost of starting one operation.
    launch_s: "CeilingAnswer"
    #: Ridge point by precision: peak over read bandwidth.
    ridge_flops_per_byte: Dict[str, float]
    #: Workers the ceilings hold for.
    workers: int


class CheckedAnswerOptional_(TypedDict, total=False):
    #: What was found; `null` where it could not be read.
    value: Optional[str]


class CheckedAnswer(CheckedAnswerOptional_):
    """Something that often slows a run down, and does not here."""

    #: File or field of `GET /v1/state`, or how to have it checked.
    source: str
    #: What.
    what: str


class ChoiceAnswerOptional_(TypedDict, total=False):
    #: Storage of the weights; `null` for a file that does not say.
    format: Optional[str]
    #: Storage of the key/value cache; `null` for an operation.
    kv_format: Optional[str]
    #: The power mode; `null` where the machine has none.
    power_mode: Optional["ModeAnswer"]
    #: Worker threads; `null` where they were not to be chosen.
    threads: Optional[int]


class ChoiceAnswer(ChoiceAnswerOptional_):
    """A candidate without its prediction."""

    #: Batch size: sequences, or columns of an operation.
    batch: int


# Totals of one use.
ClassAnswer = TypedDict("ClassAnswer", {
    "bits_per_weight": Optional[float],
    "bytes": int,
    "bytes_per_token": float,
    "class": "WeightClass",
    "parameters": int,
}, total=False)


class ConfirmAnswer(TypedDict):
    """What confirms a switch."""

    #: For `POST /v1/mode/confirm`.
    id: int
    #: Time left until the previous mode is restored.
    within_s: float


class ConfirmRequest(TypedDict):
    """`POST /v1/mode/confirm` (control socket)."""

    #: `confirm.id` of the switch.
    id: int


class Constraints(TypedDict, total=False):
    """Limits that an answer must keep."""

    #: Maximum memory for weights and activations.
    max_memory_bytes: Optional[float]
    #: Maximum power while it runs.
    max_power_w: Optional[float]
    #: Maximum expected increase of a model's perplexity over 16-bit weights, as a ratio: 0.03 is three per cent.
    max_quality_loss_ratio: Optional[float]
    #: Maximum time per token; for an operation the same as `max_time_s`.
    max_time_per_token_s: Optional[float]
    #: Maximum time of one run of the operation.
    max_time_s: Optional[float]
    #: Maximum time to the first token (models only).
    max_time_to_first_token_s: Optional[float]
    #: Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never counts.
    min_free_memory_bytes: Optional[float]
    #: Minimum tokens/s (columns/s) over the whole batch.
    min_tokens_per_s: Optional[float]


class CpuPartsAnswerOptional_(TypedDict, total=False):
    #: Size of the last-level cache.
    cache_bytes: Optional[float]


class CpuPartsAnswer(CpuPartsAnswerOptional_):
    """A CPU by its data sheet."""

    #: Highest clock of these cores when all of them compute.
    clock_hz: float
    #: Physical cores that an engine's threads use: of two kinds, the fast ones.
    cores: int
    #: Instruction-set flags that decide which kernels run.
    features: List[str]
    #: Single-precision operations of a core and clock; a multiply-add is two.
    fp32_per_clock: float
    #: Logical CPUs.
    threads: int


class DoneAnswer(TypedDict):
    """Confirmation of a request that returns nothing else."""

    #: Always `true`; what fails is an error.
    done: bool


class EngineAnswerOptional_(TypedDict, total=False):
    #: Its best candidate; where it does not meet the constraints, the closest one.
    candidate: Optional["CandidateAnswer"]


class EngineAnswer(EngineAnswerOptional_):
    """What one inference engine comes to."""

    #: Its key.
    engine: "Engine"
    #: Whether it meets the constraints.
    feasible: bool


class ErrorAnswer(TypedDict):
    """Every error: `{"error": {…}}`."""

    #: What went wrong.
    error: "ErrorBody"


class ErrorBodyOptional_(TypedDict, total=False):
    #: The field of the request that is wrong.
    field: Optional[str]
    #: What to do next.
    hint: Optional[str]
    #: Every mistake in the request, the one above first; empty where there is only one.
    problems: List["ErrorProblem"]


class ErrorBody(ErrorBodyOptional_):
    """What went wrong, for programs and for people."""

    #: Stable; match on this.
    code: "ErrorCode"
    #: One sentence.
    message: str


class ErrorProblemOptional_(TypedDict, total=False):
    #: The field of the request that is wrong.
    field: Optional[str]
    #: What to do about it.
    hint: Optional[str]


class ErrorProblem(ErrorProblemOptional_):
    """One of several mistakes in a request."""

    #: One sentence.
    message: str


class EstimateAnswer(TypedDict):
    """An estimate with its 90 % interval."""

    #: 5 % lies above.
    high: float
    #: 5 % lies below.
    low: float
    #: Best estimate.
    value: float


class EvidenceAnswer(TypedDict):
    """A file or option and what it holds."""

    #: File, option, or field of `GET /v1/state`.
    source: str
    #: What it holds.
    value: str


class ExplainAnswerOptional_(TypedDict, total=False):
    #: Where a slow run has no cause: what was checked, the most usual cause first. Otherwise what a reference kernel
    #: showed.
    checked: List["CheckedAnswer"]
    #: Engine that was expected; `none` of a bare operation.
    engine: "Engine"
    #: Format of the weights that was expected; `null` where there are none, or a file does not say.
    format: Optional[str]
    #: Part of the difference that no cause explains; `null` where there are no causes to look for.
    unexplained_ratio: Optional[float]
    #: That part as a rate.
    unexplained_tokens_per_s: Optional[float]


class ExplainAnswer(ExplainAnswerOptional_):
    """`POST /v1/explain`."""

    #: Causes of the difference, the one first whose removal gains most. Empty unless it is slower than expected or not
    #: measured.
    causes: List["CauseAnswer"]
    #: That operating point in words.
    expected_at: str
    #: Predicted for the workload that was expected, at the operating point that was expected.
    expected_tokens_per_s: "EstimateAnswer"
    #: The rate that was measured, or without a measurement the one predicted with every cause.
    measured_tokens_per_s: float
    #: The verdict in a sentence with its numbers.
    reason: str
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: What could not be looked at.
    unseen: List["Unseen"]
    #: `as_expected`, `slower_than_expected`, `faster_than_expected`; without a measurement `not_measured`.
    verdict: "ExplainVerdict"


class ExplainRequestOptional_(TypedDict, total=False):
    #: Inference engine whose kernels run. If none is named, engine and format are chosen as in `POST /v1/predict`.
    engine: "Engine"
    #: Build number or release of the engine that was expected. Absent: the newest known.
    engine_version: Optional[str]
    #: Operating point that was expected, without a `power_limit_w`. Absent = the fastest that this machine was calibrated
    #: at.
    operating_point: Optional["OperatingPointRequest"]
    #: What was seen of the process and of the measurement. The daemon adds what it knows of the board.
    seen: Optional["RunEvidence"]
    #: Measured time of one run, as in `POST /v1/analyze`. Without this and `tokens_per_s` the answer tells what slows the
    #: machine now.
    time_s: Optional[float]
    #: Measured rate over the batch.
    tokens_per_s: Optional[float]


class ExplainRequest(ExplainRequestOptional_):
    """`POST /v1/explain`: a workload, how fast it ran, and what was seen of its process."""

    #: Workload that was expected to run: one operation or one model.
    workload: "Workload"


class ForgottenAnswer(TypedDict):
    """`DELETE /v1/observations` and `DELETE /v1/observations/{id}`."""

    #: Number of reports that are gone.
    forgotten: int


class FormatAnswerOptional_(TypedDict, total=False):
    #: Part of the bandwidth ceiling reached on this machine; `null` where it has not been measured.
    bandwidth_ratio: Optional[float]
    #: What computes it on this machine; `null` where it has not been measured.
    compute: Optional["Precision"]
    #: Dequantization cost on this machine in cycles, per weight, worker and column; `null` where it has not been measured.
    cycles_per_weight: Optional[float]


class FormatAnswer(FormatAnswerOptional_):
    """A storage format."""

    #: Bits per weight, scales included.
    bits_per_weight: float
    #: Bytes of a storage block.
    block_bytes: int
    #: Weights in a storage block.
    block_elements: int
    #: Key that requests name it by.
    key: str
    #: What computes it where the unit exists.
    native_precision: "Precision"


class FormatsAnswer(TypedDict):
    """`GET /v1/formats`."""

    #: Every known format.
    formats: List["FormatAnswer"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int


class Freedom(TypedDict, total=False):
    """What may be chosen: formats, power modes, threads, batch sizes."""

    #: Allow a mode that needs a reboot.
    allow_reboot: bool
    #: Batch sizes (columns) to consider; absent = 1, which is fastest for one request. Of a model, up to 64 with the
    #: objective `throughput`, and where 1 does not meet the constraints and `min_tokens_per_s` is one of them.
    batch: Optional["BatchRange"]
    #: Inference engines to compare for a model; absent = every one that the machine can run.
    engines: Optional[List["Engine"]]
    #: Weight formats to consider; absent = for an operation every format measured on this machine, for a model the usual
    #: ones of the engine and the one that its file is stored in, for a packed file or checkpoint its own alone.
    formats: Optional[List[str]]
    #: Key/value cache formats to consider (models only); absent = that of the workload.
    kv_formats: Optional[List[str]]
    #: Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    power_modes: Optional["ModesChoice"]
    #: Expected run time, over which the cost of switching to a mode is spread; absent = an hour.
    run_s: Optional[float]
    #: Worker threads to consider, where the CPU is the accelerator; absent = as many as it was calibrated with.
    threads: Optional[List[int]]


class HardwareAnswerOptional_(TypedDict, total=False):
    #: Nominal memory bandwidth of the data sheet.
    bandwidth_bytes_per_s: Optional[float]
    #: Width of the memory interface.
    bus_bits: Optional[int]
    #: Ceilings at the reference clocks; `null` for a CPU that has to be measured.
    ceilings: Optional["NominalCeilings"]
    #: CUDA compute capability, such as `8.7`.
    compute_capability: Optional[str]
    #: The CPU, where it is the accelerator and its data sheet is known.
    cpu: Optional["CpuPartsAnswer"]
    #: Reference clock of the GPU.
    gpu_clock_hz: Optional[float]
    #: Size of the second-level cache.
    l2_bytes: Optional[float]
    #: Size of the memory.
    memory_bytes: Optional[float]
    #: Highest memory clock; `null` for a part whose bandwidth is given as such.
    memory_clock_hz: Optional[float]
    #: Least power limit that its driver sets; `null` where nobody published it.
    min_power_limit_w: Optional[float]
    #: Number of streaming multiprocessors (SM); `null` for a CPU.
    sm: Optional[int]
    #: SMs of one texture-processing cluster (TPC).
    sm_per_tpc: Optional[int]
    #: Bytes that an SM can request from memory per clock; `null` where it is unknown.
    sm_pull_bytes_per_clock: Optional["EstimateAnswer"]
    #: Power limit of the part as sold.
    tdp_w: Optional[float]
    #: Bits of the mask that gates clusters; `null` without such a mask.
    tpc_mask_bits: Optional[int]


class HardwareAnswer(HardwareAnswerOptional_):
    """`GET /v1/hardware/{key}`."""

    #: Other keys that it is found by.
    aliases: List[str]
    #: Dense operations per SM and clock, by precision.
    flops_per_sm_clock: Dict[str, float]
    #: Key that requests name it by.
    key: str
    #: `integrated`, `discrete` or `cpu`.
    kind: "HardwareKind"
    #: What advertisements say: sparse, or of several engines together. Never used.
    marketing: Dict[str, float]
    #: The vendor's power modes, the default first.
    modes: List["NominalModeAnswer"]
    #: Name for people.
    name: str
    #: Figures that circulate and are wrong, and what contradicts them.
    notes: List[str]
    #: Where each figure comes from.
    sources: Dict[str, str]


class HardwareListAnswer(TypedDict):
    """`GET /v1/hardware`."""

    #: Every entry in the order of its key.
    hardware: List["HardwareSummary"]


class HardwareSummaryOptional_(TypedDict, total=False):
    #: Nominal memory bandwidth of the data sheet.
    bandwidth_bytes_per_s: Optional[float]
    #: Physical cores of a CPU that an engine's threads use; `null` for a GPU.
    cores: Optional[int]
    #: Clock of these cores when all of them compute; `null` for a GPU.
    cpu_clock_hz: Optional[float]
    #: Reference clock of the GPU.
    gpu_clock_hz: Optional[float]
    #: Size of the memory.
    memory_bytes: Optional[float]
    #: Number of streaming multiprocessors (SM); `null` for a CPU.
    sm: Optional[int]


class HardwareSummary(HardwareSummaryOptional_):
    """One entry in short."""

    #: Dense peak by precision at the reference clock.
    compute_flops_per_s: Dict[str, float]
    #: Key that requests name it by.
    key: str
    #: `integrated`, `discrete` or `cpu`.
    kind: "HardwareKind"
    #: Names of the vendor's power modes, the default first.
    modes: List[str]
    #: Name for people.
    name: str


class HeldAnswerOptional_(TypedDict, total=False):
    #: Which mode would meet every hold at least energy; `null` where nobody holds with a query.
    advice: Optional["HoldAdvice"]
    #: Time left; `null` where only its connection ends it.
    expires_in_s: Optional[float]
    #: That mode meets it; false only for a query while `[policy] auto = "advise"`.
    satisfied: bool


class HeldAnswer(HeldAnswerOptional_):
    """A hold that has been taken or renewed."""

    #: What releases it; shown to nobody else.
    id: int
    #: Name of the mode that it is held in.
    mode: str


class HoldAdviceOptional_(TypedDict, total=False):
    #: Energy per token; `null` where unknown.
    energy_j_per_token: Optional[float]
    #: Mean power in the mode; `null` where unknown.
    power_w: Optional[float]
    #: Share of the energy of all queries that it saves over the active mode; negative if the active mode costs less and
    #: does not meet every hold. `null` where either is unknown.
    saving_ratio: Optional[float]
    #: Tokens (columns) per second; `null` without a query, and where nothing tells.
    tokens_per_s: Optional[float]


class HoldAdvice(HoldAdviceOptional_):
    """The mode that meets every hold at least energy, and what the hold's query comes to in it."""

    #: Name of the mode, as the board calls it.
    mode: str


class HoldAnswerOptional_(TypedDict, total=False):
    #: Which mode would meet every hold at least energy; `null` if no hold has a query, and for a hold that no mode meets
    #: together with the older ones.
    advice: Optional["HoldAdvice"]
    #: Time left; `null` where only its connection ends it.
    expires_in_s: Optional[float]
    #: Its query as it was asked, a model's fields left out; `null` without one.
    query: Optional["RecommendRequest"]
    #: Which constraint the active mode does not meet, and whose hold contradicts it; `null` if it is satisfied.
    unmet: Optional[str]
    #: Time left for its client to come back after a restart of the daemon; `null` where nobody is waited for.
    waiting_s: Optional[float]


class HoldAnswer(HoldAnswerOptional_):
    """A hold as everybody may see it."""

    #: How long it has been active.
    age_s: float
    #: Name that the holder gave itself.
    app_id: str
    #: Whether it ends with its connection rather than with time.
    attached: bool
    #: Requirements of the power mode that the holder named.
    constraints: "HoldConstraints"
    #: Reason that the holder gave, for people.
    reason: str
    #: The active mode meets it; false after somebody else switched, if no mode meets it together with older holds, and
    #: while the daemon only advises.
    satisfied: bool
    #: Number of the user that asked.
    uid: int


class HoldConstraints(TypedDict, total=False):
    """What a holder needs. At least one field; every one given is met or nothing is held."""

    #: Maximum power of the worst load in the mode, at the pessimistic end; the watts in its name are a label and do not
    #: count.
    max_power_w: Optional[float]
    #: Minimum memory bandwidth that the mode must give.
    min_bandwidth_bytes_per_s: Optional[float]
    #: Minimum fp16 peak (fp32 without an fp16 unit).
    min_compute_flops_per_s: Optional[float]
    #: Minimum of the cap on the GPU clock.
    min_gpu_hz: Optional[float]
    #: A mode with no less compute and no less memory bandwidth than this one.
    min_mode: Optional[str]
    #: Name of the one mode that meets it.
    mode: Optional[str]


class HoldRequestOptional_(TypedDict, total=False):
    #: What is needed of the mode itself.
    constraints: "HoldConstraints"
    #: A question as for `POST /v1/recommend` that the mode must have an answer to, on this machine: the mode that answers
    #: the queries of all holders at least energy is looked for. Needs `[policy] auto = "advise"` or `"switch"`.
    query: Optional["RecommendRequest"]
    #: Why, at most 128 characters; shown to everybody.
    reason: str
    #: Ends by itself after this long, 1 to 604800. Required unless the hold is attached to its connection.
    ttl_s: Optional[float]


class HoldRequest(HoldRequestOptional_):
    """`POST /v1/holds` and `POST /v1/holds/attached` (control socket)."""

    #: Who holds, 1 to 128 characters; shown to everybody.
    app_id: str


class HoldsAnswerOptional_(TypedDict, total=False):
    #: Name of the active mode; `null` where nothing tells it.
    active_mode: Optional[str]
    #: `[policy] auto`: `off`, `advise` or `switch`.
    auto: "Automatic"
    #: A change that waits to be confirmed.
    pending: Optional["PendingAnswer"]
    #: Target of a switch under way.
    switching: Optional[str]
    #: Why modes cannot be switched at all; `null` where they can.
    unavailable: Optional[str]


class HoldsAnswer(HoldsAnswerOptional_):
    """`GET /v1/holds`: who holds what, and why the active mode is active."""

    #: `boot`, `user`, `hold`, `revert` or `external`.
    cause: "ModeCause"
    #: Value of `[control] enabled` in the configuration.
    control_enabled: bool
    #: Active holds, the oldest first.
    holds: List["HoldAnswer"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool


class JudgedServerOptional_(TypedDict, total=False):
    #: Sequences at once; `null` = 1.
    batch: Optional[int]
    #: Tokens in the cache of each; `null` where they were not reported.
    context_tokens: Optional[int]
    #: Weight format; `null` = the model's own.
    format: Optional[str]
    #: Key or path of the model; `null` for an operation or a model given by its fields.
    model: Optional[str]


class JudgedServer(JudgedServerOptional_):
    """What ran in a server, beside what was expected of it."""

    #: Inference engine.
    engine: "Engine"
    #: The report as `POST /v1/explain` answers it, before anything was learned from it.
    explained: "ExplainAnswer"


class LayersAnswerOptional_(TypedDict, total=False):
    #: The window of those.
    window_tokens: Optional[int]


class LayersAnswer(LayersAnswerOptional_):
    """Number of layers by kind of attention."""

    #: Attention over the whole context.
    full_attention: int
    #: Latent attention.
    latent_attention: int
    #: A state of fixed size.
    linear: int
    #: Attention over a sliding window.
    sliding_attention: int
    #: Number of all layers.
    total: int


class LearntObservationOptional_(TypedDict, total=False):
    #: What changed; `null` if nothing did.
    alarm: Optional[str]


class LearntObservation(LearntObservationOptional_):
    """What was learned from a report of a model."""

    #: Number of runs of this model that are kept.
    count: int
    #: Time predicted now over the time predicted before anything was learned.
    factor: float
    #: Position of the report in the request.
    index: int
    #: What a prediction of this model rests on now.
    tier: "Tier"


class MeasureAnswer(TypedDict):
    """`POST /v1/measure`."""

    #: One row for each operation and format.
    rows: List["MeasuredRow"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: Measured on a simulated accelerator.
    simulated: bool
    #: What could not be measured, and why.
    skipped: List[str]


class MeasureRequest(TypedDict, total=False):
    """`POST /v1/measure` (control socket): run operations now. Give `op` with `formats`, a `workload`, or `workloads`."""

    #: Formats for `op`; default `["fp32"]`.
    formats: List[str]
    #: One operation, measured in each of `formats`.
    op: Optional["Op"]
    #: Measure power and energy too: each operation runs again and again until the power meter has seen it, which takes a
    #: second of each, or some with a slow meter.
    power: bool
    #: One operation, with its `format`.
    workload: Optional["Workload"]
    #: Several operations, each with its `format`.
    workloads: List["Workload"]


class MeasuredPowerAnswerOptional_(TypedDict, total=False):
    #: Time that the readings under load stand for.
    duration_s: Optional[float]
    #: Energy of one run without what the idle machine takes in that time: (`power_w` - `idle_power_w`) x
    #: `measured_time_s`.
    energy_j: Optional[float]
    #: That of the idle machine before.
    idle_power_w: Optional[float]
    #: How long the meter takes to a new value; `null` where it does not tell.
    period_s: Optional[float]
    #: Mean power while it ran again and again.
    power_w: Optional[float]
    #: Number of readings of the power meter.
    readings: Optional[int]
    #: Why a number that the meter should tell is `null`; `null` if none is.
    reason: Optional[str]
    #: What the meter covers: `module`, `system`, `gpu` or `package`.
    scope: Optional["Rails"]
    #: With it: `power_w` x `measured_time_s`.
    total_energy_j: Optional[float]


class MeasuredPowerAnswer(MeasuredPowerAnswerOptional_):
    """Power and energy of one measured operation. What is unknown is `null`, with the reason; never 0."""

    #: Names of the power rails that were added up.
    rails: List[str]


class MeasuredRowOptional_(TypedDict, total=False):
    #: What disturbed the measurement; `null` if nothing did.
    disturbed: Optional[str]
    #: Reference read bandwidth during the measurement over that of the calibration.
    drift_ratio: Optional[float]
    #: Power and energy; `null` where they were not asked for.
    power: Optional["MeasuredPowerAnswer"]


class MeasuredRow(MeasuredRowOptional_):
    """One measured operation next to its prediction."""

    #: Side of the roofline that it lies on: `memory` or `compute`.
    bound: "Bound"
    #: The same for the prediction from the calibration alone.
    error_at_calibration_ratio: float
    #: (predicted - measured) / measured.
    error_ratio: float
    #: Storage of the weights.
    format: str
    #: Instruction set of the kernel, such as `avx512`.
    isa: str
    #: The limiting ceiling, as `limit` of a prediction.
    limit: "Limit"
    #: Where the runs lie most densely (half-sample mode), with the 5 % and 95 % quantiles.
    measured_time_s: "EstimateAnswer"
    #: The operation.
    op: "Op"
    #: Predicted from the calibration alone.
    predicted_at_calibration_s: float
    #: Predicted for the memory system as the probe saw it during the measurement.
    predicted_time_s: "EstimateAnswer"
    #: Regime it was measured in.
    regime: str
    #: Physical bound of the roofline.
    roofline_time_s: float
    #: Number of timed runs.
    runs: int


class MemoryAnswerOptional_(TypedDict, total=False):
    #: Memory available now without swapping; for other hardware, its memory less what the system usually needs. `null`
    #: where that is unknown.
    available: Optional[float]
    #: What the engine takes for itself; absent for an operation.
    engine: Optional[float]
    #: Whether it fits into that room; `null` where it is unknown.
    fits: Optional[bool]
    #: Bytes in the memory of the CPU of a machine with a card, not counted in the parts above; absent if there are no such
    #: bytes.
    host: Optional[float]
    #: Of these the bytes that it may take: some stay free for others. `null` where that is unknown.
    room: Optional[float]


class MemoryAnswer(MemoryAnswerOptional_):
    """Memory that a workload takes."""

    #: Bytes of the activations: inputs and outputs.
    activations: float
    #: Bytes of the key/value cache of all sequences.
    kv_cache: float
    #: Sum of the parts above.
    total: float
    #: Bytes of the weights.
    weights: float


class MissAnswerOptional_(TypedDict, total=False):
    #: By how much that misses the limit, relative to it; `null` where either is unknown.
    excess_ratio: Optional[float]
    #: The limit, in its unit; `null` if it is not a number.
    limit: Optional[float]
    #: What the candidate comes to, at the end of its interval that counts; `null` where that is unknown.
    needed: Optional[float]


class MissAnswer(MissAnswerOptional_):
    """A constraint that the closest candidate does not meet, and by how much."""

    #: Key of the constraint, as in the request.
    by: "Constraint"


class ModeAnswer(TypedDict):
    """A power mode."""

    #: Its number.
    id: int
    #: Name for people.
    name: str


class ModeClockOptional_(TypedDict, total=False):
    #: Cap; `null` = no cap.
    max_hz: Optional[float]
    #: Lowest clock; `null` = the mode sets none.
    min_hz: Optional[float]


class ModeClock(ModeClockOptional_):
    """Bounds that a mode sets on the clock of an engine."""

    #: Parameter in the file of modes: `DLA0_CORE`, `PVA0_VPS`, …
    name: str


class ModeDetailOptional_(TypedDict, total=False):
    #: What keeps its clocks below its caps on this board, such as older firmware, or that nothing tells whether they are
    #: reached.
    clock_notes: List[str]
    #: CPUs that stay online; `null` = the mode sets none.
    cores_online: Optional[int]
    #: Highest CPU clock; `null` = no cap.
    cpu_max_hz: Optional[float]
    #: Lowest CPU clock that the governor may choose; `null` = the mode sets none.
    cpu_min_hz: Optional[float]
    #: Cap on the memory clock; `null` = no cap.
    emc_max_hz: Optional[float]
    #: Cap on the GPU clock; `null` = no cap.
    gpu_max_hz: Optional[float]
    #: Lowest GPU clock that the governor may choose; `null` = the mode sets none.
    gpu_min_hz: Optional[float]
    #: What the meter of that covers, as `scope` of a predicted power; `null` without it.
    measured_power_scope: Optional["PowerScope"]
    #: Mean power while it was calibrated; `null` where that was not measured.
    measured_power_w: Optional[float]
    #: Entering it from here needs a reboot; `null` where that is unknown.
    reboot_required: Optional[bool]
    #: SMs that the mask leaves online.
    sm_online: Optional[int]
    #: Gating mask of the texture-processing clusters; `null` = the mode sets none.
    tpc_mask: Optional[int]
    #: Why it cannot.
    unreachable_reason: Optional[str]
    #: What that covers: the module, or what comes nearest to it, as `scope` of a predicted power; `null` without it.
    worst_power_scope: Optional["PowerScope"]
    #: `measured` in this mode on this machine, `carried` from another of its modes, or `prior`: from boards that others
    #: measured; `null` with the watts. The watts in a mode's name count for nothing.
    worst_power_source: Optional["WorstSource"]
    #: The most that it draws: memory and cores flat out at once, at the upper end of the 90 % interval. What a hold's
    #: `max_power_w` is compared with; `null` where nothing is known of it, and such a mode meets no limit.
    worst_power_w: Optional[float]


class ModeDetail(ModeDetailOptional_):
    """A power mode with what it would give."""

    #: The live files show this mode.
    active: bool
    #: What it would give; nothing was switched to find out.
    ceilings: "CeilingsAnswer"
    #: The mode at boot where none was chosen.
    default: bool
    #: Its number: not an index, and another mode on every module.
    id: int
    #: Its name: free text.
    name: str
    #: Bounds on every other clock that the mode names, in the order of the file: DLA, PVA, video engines.
    other_clocks: List["ModeClock"]
    #: It can be entered now, by those who may.
    reachable: bool


class ModeRequestOptional_(TypedDict, total=False):
    #: Restore the previous mode unless it is confirmed within this time, 1 to 3600.
    confirm_within_s: Optional[float]
    #: Report what would be done, and change nothing.
    dry_run: bool
    #: In your own words, at most 128 characters.
    reason: str


class ModeRequest(ModeRequestOptional_):
    """`POST /v1/mode` (control socket)."""

    #: Name of the mode, or its number in digits.
    mode: str


class ModeWarningOptional_(TypedDict, total=False):
    #: Line, counted from 1; `null` for the file as a whole.
    line: Optional[int]


class ModeWarning(ModeWarningOptional_):
    """Something in a file of modes that was not understood."""

    #: What was found and what became of it.
    message: str


class ModelAnswerOptional_(TypedDict, total=False):
    #: Experts that a token passes.
    active_experts: Optional[int]
    #: Bits of a weight that is read, with its scales.
    bits_per_weight: Optional[float]
    #: `config`, `recalled` or `guess`; `null` for a file, which is exact.
    confidence: Optional["Confidence"]
    #: Longest context it was made for.
    context_tokens: Optional[int]
    #: The model of a file in full. It makes this object a `model` of requests; send it back as it is.
    definition: Optional[Dict[str, Any]]
    #: Experts of a layer; `null` for a dense model.
    experts: Optional[int]
    #: What it is quantised to, by its label or as asked.
    format: Optional[str]
    #: Its key in the registry; `null` for a file.
    key: Optional[str]
    #: The file by which runs of the model are filed; absent for a key.
    path: Optional[str]
    #: Weights by its model card.
    published_parameters: Optional[int]
    #: Where the figures come from.
    source: Optional[str]


class ModelAnswer(ModelAnswerOptional_):
    """`GET /v1/models/{key}`, and `POST /v1/models/inspect` or `rooflinectl models inspect` of a file."""

    #: Weights that one token passes.
    active_parameters: float
    #: What a token reads by storage, most first.
    blocks: List["BlockAnswer"]
    #: Bytes of all weights.
    bytes: float
    #: Bytes of weights that a step of one token reads.
    bytes_per_token: float
    #: Totals by use.
    classes: List["ClassAnswer"]
    #: The family that its file names.
    family: str
    #: Files that were read.
    files: List[str]
    #: Width of the residual stream.
    hidden: int
    #: Bytes that a token adds to the cache while no window is full.
    kv_bytes_per_token: float
    #: The same once every window is full.
    kv_bytes_per_token_long: float
    #: How the cache is stored.
    kv_format: str
    #: Layers by kind.
    layers: "LayersAnswer"
    #: Name that the model gives itself.
    name: str
    #: Weights, towers and drafts included.
    parameters: int
    #: Bytes of the states of one sequence in layers without a cache.
    state_bytes: float
    #: What it is for: `generate` text, or `embed` (and rank) documents, without a decode, a cache or a head.
    task: "Task"
    #: The embedding table is the head.
    tied_embeddings: bool
    #: Rows of the embedding table.
    vocab: int
    #: What to know before relying on them.
    warnings: List[str]


class ModelEntryOptional_(TypedDict, total=False):
    #: Longest context it was made for.
    context_tokens: Optional[int]


class ModelEntry(ModelEntryOptional_):
    """One line of the registry."""

    #: Weights that one token passes.
    active_parameters: float
    #: `config`, `recalled` or `guess`: how sure the figures are.
    confidence: "Confidence"
    #: What requests name it by.
    key: str
    #: Bytes that a token adds to a 16-bit cache.
    kv_bytes_per_token: float
    #: Number of layers.
    layers: int
    #: Name that the model gives itself.
    name: str
    #: Weights by its matrices.
    parameters: int


class ModelsAnswer(TypedDict):
    """`GET /v1/models`."""

    #: Every model that is known by its key.
    models: List["ModelEntry"]


class ModesAnswerOptional_(TypedDict, total=False):
    #: Name of the active mode by the live files; `null` where they match none.
    active: Optional[str]
    #: `boot`, `user`, `hold`, `revert` or `external`.
    active_cause: Optional["ModeCause"]
    #: Number of the default mode.
    default: Optional[int]
    #: Why the list is empty; `null` if it is not.
    reason: Optional[str]
    #: Where the modes come from.
    source: Optional[str]


class ModesAnswer(ModesAnswerOptional_):
    """`GET /v1/modes`"""

    #: In the order of the file; empty on a machine without.
    modes: List["ModeDetail"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: What was not understood of the file.
    warnings: List["ModeWarning"]


class NetworkAnswerOptional_(TypedDict, total=False):
    #: Most bytes of activations at once, in the file's types; `null` where a shape is unknown.
    activation_peak_bytes: Optional[int]
    #: The same with floats of 16 bits.
    activation_peak_fp16_bytes: Optional[int]
    #: Floating-point operations of one run: two for each multiply-add; `null` where a shape is unknown.
    flops: Optional[int]
    #: The program that wrote it; `null` where it does not say.
    writer: Optional[str]


class NetworkAnswer(NetworkAnswerOptional_):
    """`rooflinectl models inspect` of an ONNX file."""

    #: What a DLA would take.
    dla: "NetworkDla"
    #: Nodes that depend on constants alone, so that no engine runs them.
    folded_nodes: int
    #: What a caller hands over.
    inputs: List["NetworkTensor"]
    #: Name of the file, without its ending.
    name: str
    #: The nodes that run, in order.
    nodes: List["NetworkNode"]
    #: Operators by how often they run, most first.
    operators: List["NetworkOperator"]
    #: Version of the default operator set.
    opset: int
    #: What a caller gets.
    outputs: List["NetworkTensor"]
    #: Trained numbers.
    parameters: int
    #: The file.
    path: str
    #: What to know before relying on the figures.
    warnings: List[str]
    #: Bytes of the weights as stored.
    weight_bytes: int
    #: Work by kind, in the order of the kinds; those without a node are left out.
    work: List["NetworkWork"]


class NetworkCandidateOptional_(TypedDict, total=False):
    #: Clock of the GPU, or of the cores; `null` where unknown.
    clock_hz: Optional[float]
    #: Energy of one picture; `null` where unknown.
    energy_j_per_picture: Optional["EstimateAnswer"]
    #: The power mode; `null` where the machine has none.
    power_mode: Optional[str]
    #: Power; `null` where unknown.
    power_w: Optional["PowerAnswer"]


class NetworkCandidate(NetworkCandidateOptional_):
    """A candidate of a recommendation."""

    #: Memory bandwidth.
    bandwidth_bytes_per_s: float
    #: Pictures in one run.
    batch: int
    #: Time of one run.
    latency_s: "EstimateAnswer"
    #: Constraints that it misses, by their keys.
    misses: List[str]
    #: Pictures per second of all streams together.
    pictures_per_s: "EstimateAnswer"
    #: What it computes in.
    precision: "Precision"
    #: Multiprocessors online.
    workers: int


class NetworkConstraints(TypedDict, total=False):
    """Limits that a choice must keep."""

    #: Maximum time of one run.
    max_latency_s: Optional[float]
    #: Maximum power while it runs.
    max_power_w: Optional[float]
    #: Minimum pictures per second of each stream.
    min_pictures_per_s: Optional[float]


class NetworkDla(TypedDict):
    """How TensorRT splits a network between a DLA and the GPU."""

    #: Boards that have a DLA, by the beginning of their keys.
    boards: List[str]
    #: Tensors that are copied between the two.
    crossings: int
    #: Nodes that fall back to the GPU.
    fallback_nodes: int
    #: What falls back and why, most first.
    fallbacks: List["NetworkFallback"]
    #: The last TensorRT that builds for it.
    last_tensorrt: str
    #: Runs of nodes on the DLA; a core holds 16.
    loadables: int
    #: Nodes on the DLA.
    nodes: int


class NetworkFallback(TypedDict):
    """Nodes that fall back to the GPU."""

    #: How many nodes.
    nodes: int
    #: As ONNX spells it.
    operator: str
    #: Why.
    reason: str


class NetworkFileOptional_(TypedDict, total=False):
    #: Sizes of dimensions that the file leaves open, by their names, such as `batch`, or by input and place, such as
    #: `images.0`.
    dimensions: Dict[str, int]
    #: Height and width of the picture, where the file leaves them open.
    size: Optional[List[int]]


class NetworkFile(NetworkFileOptional_):
    """A network in an ONNX file."""

    #: A file below a directory of `[models] dirs`, read for 30 s at most.
    path: str


class NetworkLayerAnswer(TypedDict):
    """The time of one layer: a kernel and the nodes that run in it."""

    #: What takes most of its time: `memory`, `compute` or `launch`.
    bound: "LayerBound"
    #: Bytes to and from memory.
    bytes: float
    #: Operations; a multiply-add counts as two.
    flops: float
    #: What kind of kernel runs it.
    kind: "LayerKind"
    #: As the file calls its first node.
    name: str
    #: What it computes in.
    precision: "Precision"
    #: Its time.
    time_s: float


class NetworkMemoryAnswerOptional_(TypedDict, total=False):
    #: Most bytes of activations at one time; `null` where a size is unknown.
    activations: Optional[float]
    #: Memory available now; for other hardware, its memory less what the system usually needs. `null` where that is
    #: unknown.
    available: Optional[float]
    #: What the engine and its libraries take for themselves; `null`, because nothing is known of it.
    runtime: Optional[float]


class NetworkMemoryAnswer(NetworkMemoryAnswerOptional_):
    """Memory that a network takes."""

    #: Bytes of the weights.
    weights: float


class NetworkNodeOptional_(TypedDict, total=False):
    #: Floating-point operations; `null` where a shape is unknown.
    flops: Optional[int]
    #: What it computes in; `null` for indices and masks.
    precision: Optional["Precision"]


class NetworkNode(NetworkNodeOptional_):
    """One operator at work."""

    #: As the file names it; may be empty.
    name: str
    #: As ONNX spells it.
    operator: str
    #: What it writes.
    outputs: List["NetworkTensor"]
    #: Bytes of its weights.
    weight_bytes: int


class NetworkOperator(TypedDict):
    """How often an operator runs."""

    #: How many nodes.
    nodes: int
    #: As ONNX spells it.
    operator: str


class NetworkPredictAnswerOptional_(TypedDict, total=False):
    #: Clock of the GPU or of the cores; `null` where unknown.
    clock_hz: Optional[float]
    #: Energy of one picture, of the same scope as the power; `null` where unknown.
    energy_j_per_picture: Optional["EstimateAnswer"]
    #: Rough size of the built engine; `null` where none is built.
    engine_file_bytes: Optional[float]
    #: The hardware, where the figures are those of its data sheet and no machine was asked.
    hardware: Optional[str]
    #: The power mode; `null` where the machine has none, or the operating point is not one of its modes.
    power_mode: Optional[str]
    #: Power while it runs; `null` where unknown.
    power_w: Optional["PowerAnswer"]
    #: Reports of measured runs that moved it.
    reports: int


class NetworkPredictAnswer(NetworkPredictAnswerOptional_):
    """`POST /v1/networks/predict`."""

    #: What the scope adds to it; 0 for scope `engine`.
    around_s: float
    #: Memory bandwidth that the prediction starts from.
    bandwidth_bytes_per_s: float
    #: Pictures in one run.
    batch: int
    #: Bytes to and from memory in one run.
    bytes: float
    #: The engine.
    engine: "NetworkEngine"
    #: Time inside the engine alone.
    engine_s: "EstimateAnswer"
    #: Operations of one run.
    flops: float
    #: Generation of silicon whose constants were used.
    generation: str
    #: Time of one run of the batch.
    latency_s: "EstimateAnswer"
    #: The layers in order.
    layers: List["NetworkLayerAnswer"]
    #: Memory.
    memory_bytes: "NetworkMemoryAnswer"
    #: Name of the network.
    network: str
    #: Pictures per second, one run after the other.
    pictures_per_s: "EstimateAnswer"
    #: What most layers compute in.
    precision: "Precision"
    #: The least time inside the engine that the ceilings allow.
    roofline_time_s: float
    #: Published latencies behind them; 0 where they are those of other generations.
    rows: int
    #: What `latency_s` covers.
    scope: "NetworkScope"
    #: Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    serial: int
    #: Where the time goes.
    shares: "NetworkSharesAnswer"
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: What the prediction rests on.
    tier: "Tier"
    #: What the caller should know.
    warnings: List[str]
    #: Multiprocessors and their clock, or cores.
    workers: int


class NetworkPredictRequest(TypedDict, total=False):
    """`POST /v1/networks/predict`."""

    #: Pictures in one run. Absent: as many as in the file.
    batch: Optional[int]
    #: `tensorrt` or `onnxruntime`. Absent: TensorRT on a GPU, ONNX Runtime on a CPU.
    engine: Optional["NetworkEngine"]
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: An ONNX file, or the layers that `rooflinectl` reads from it.
    network: Optional["NetworkChoice"]
    #: Absent = as it is now; other hardware: its fastest mode.
    operating_point: Optional["OperatingPointRequest"]
    #: What the engine computes in: `fp16`, `int8` or `tf32` with TensorRT; `fp32`, `tf32`, `fp16` or `int8` with ONNX
    #: Runtime. Layers that the file has in 8 bits stay in them. Absent: `int8` for such a file, else `fp16` on a GPU and
    #: `fp32` on a CPU.
    precision: Optional["Precision"]
    #: What the latency covers: `engine`, `copies` or `frame`.
    scope: "NetworkScope"
    #: Worker threads, where the CPU is the accelerator. Absent: one for every physical core.
    threads: Optional[int]


class NetworkRecommendAnswerOptional_(TypedDict, total=False):
    #: The command that builds and times the engine; `null` where the engine has none.
    command: Optional[str]


class NetworkRecommendAnswer(NetworkRecommendAnswerOptional_):
    """`POST /v1/networks/recommend`."""

    #: The others, best first; at most ten.
    alternatives: List["NetworkCandidate"]
    #: The choice; where nothing meets the constraints, the closest.
    choice: "NetworkCandidate"
    #: Candidates that were considered.
    considered: int
    #: Whether any candidate meets the constraints.
    feasible: bool
    #: What is predicted of it.
    prediction: "NetworkPredictAnswer"
    #: What the caller should know.
    warnings: List[str]


class NetworkRecommendRequestOptional_(TypedDict, total=False):
    #: Batches to consider. Absent: 1, or up to one picture of each stream.
    batch: Optional["BatchRange"]
    #: Limits that the choice must keep.
    constraints: "NetworkConstraints"
    #: End of the prediction interval that must meet the constraints.
    optimism: "Optimism"
    #: Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    power_modes: Optional["ModesChoice"]
    #: Precisions to consider. Absent: those that the engine has there.
    precisions: Optional[List["Precision"]]
    #: Cameras that are served at once. Absent: 1.
    streams: Optional[int]


class NetworkRecommendRequest(NetworkRecommendRequestOptional_):
    """`POST /v1/networks/recommend`."""

    #: What is to run where; its precision, batch and mode are chosen where they are left out.
    workload: "NetworkPredictRequest"


class NetworkSharesAnswer(TypedDict):
    """Shares of the time of layers by what takes most of theirs; together 1."""

    #: Of layers that wait for arithmetic.
    compute: float
    #: Of layers that take longer to start than to run.
    launch: float
    #: Of layers that wait for memory.
    memory: float


class NetworkTensorOptional_(TypedDict, total=False):
    #: Sizes from the outermost; `null` where only a run knows them.
    shape: Optional[List[int]]


class NetworkTensor(NetworkTensorOptional_):
    """A tensor by its name."""

    #: `fp32`, `fp16`, `int64`, …
    element: str
    #: Unique in its network.
    name: str


class NetworkWorkOptional_(TypedDict, total=False):
    #: Floating-point operations; `null` where a shape is unknown.
    flops: Optional[int]


class NetworkWork(NetworkWorkOptional_):
    """Work of one kind."""

    #: `convolution`, `product`, `elementwise`, …
    kind: "WorkKind"
    #: How many nodes.
    nodes: int
    #: Bytes of their weights.
    weight_bytes: int


class NominalCeilingsOptional_(TypedDict, total=False):
    #: Bandwidth of the memory alone.
    memory_limit_bytes_per_s: Optional["CeilingAnswer"]
    #: Bandwidth that the online SMs can request; `null` where it is unknown.
    pull_limit_bytes_per_s: Optional["CeilingAnswer"]


class NominalCeilings(NominalCeilingsOptional_):
    """Ceilings from the data sheet."""

    #: Memory bandwidth: the smaller of the next two.
    bandwidth_bytes_per_s: "CeilingAnswer"
    #: Dense peak by precision: FLOP/s, of integer precisions OP/s.
    compute_flops_per_s: Dict[str, "CeilingAnswer"]
    #: Ridge point by precision: peak over read bandwidth.
    ridge_flops_per_byte: Dict[str, float]


class NominalModeAnswerOptional_(TypedDict, total=False):
    #: CPU clock; `null` where it has not been published.
    cpu_hz: Optional[float]


class NominalModeAnswer(NominalModeAnswerOptional_):
    """A power mode as the vendor ships it."""

    #: Ceilings of the data sheet at these clocks.
    ceilings: "NominalCeilings"
    #: Number of CPU cores online.
    cores_online: int
    #: Clock of the external memory controller (EMC).
    emc_hz: float
    #: Highest GPU clock in the mode.
    gpu_hz: float
    #: Number; two configurations of one board may use the same.
    id: int
    #: Name for people.
    name: str
    #: Number of streaming multiprocessors (SM) online.
    sm_online: int


class ObservationEntryOptional_(TypedDict, total=False):
    #: Sequences, or pictures; `null` for an operation.
    batch: Optional[int]
    #: Tokens that were in the cache; `null` for an operation.
    context_tokens: Optional[int]
    #: Measured over predicted: for a model as it was predicted before, for an operation or a network without what was
    #: learned; `null` if that is no longer known.
    measured_over_predicted_ratio: Optional[float]
    #: Key, path or name of the model or network; `null` for an operation.
    model: Optional[str]
    #: The operation; `null` for a model.
    op: Optional["ObservedOp"]
    #: `prefill`, `decode` or `serve`; `null` for an operation or a network.
    phase: Optional["Phase"]
    #: Process that reported it; `null` where that is not known.
    pid: Optional[int]
    #: Power mode by name; `null` where it was not known.
    power_mode: Optional[str]
    #: Reported power; `null` where there was none.
    power_w: Optional[float]
    #: Tokens of the prompt; `null` for an operation.
    prompt_tokens: Optional[int]
    #: When it was reported, in seconds since 1970; `null` where that was not recorded.
    reported_at_unix_s: Optional[float]
    #: User who reported it.
    uid: Optional[int]


class ObservationEntry(ObservationEntryOptional_):
    """A report of something that was measured."""

    #: Engine that ran.
    engine: "AnyEngine"
    #: How weights were stored; of a network, what it computed in.
    format: str
    #: Number of the report.
    id: int
    #: Whose answers it moves: `everyone` or `own` (those of `uid`).
    moves: "Moves"
    #: Measured time of one run.
    time_s: float


class ObservationListAnswer(TypedDict):
    """`GET /v1/observations`."""

    #: Reports, those of the lowest number first.
    observations: List["ObservationEntry"]
    #: Other users with reports that move only their own answers and are not listed.
    other_users: int
    #: Serial number of the snapshot that the answer rests on.
    serial: int


class ObservationRequest(TypedDict, total=False):
    """What a service measured: an element of `POST /v1/observations`."""

    #: Inference engine whose kernels run.
    engine: "Engine"
    #: A vision network that ran instead, as `POST /v1/networks/predict` takes it; `time_s` is that of one run inside the
    #: engine.
    network: Optional["NetworkPredictRequest"]
    #: Where it ran; absent = as the machine is now.
    operating_point: Optional["OperatingPointRequest"]
    #: Mean power while it ran.
    power_w: Optional[float]
    #: What was seen of its process. A run that it shows to be slowed down or `disturbed` is not learned from.
    seen: Optional["RunEvidence"]
    #: Name of the server that it ran in, for the event `degraded`: `llama-server on port 8080`. Two reports in a row below
    #: what is expected of it degrade the machine for everybody, until three in a row are as expected, where the reporter's
    #: reports count for everybody.
    server: Optional[str]
    #: Time of one run (operation) or one step (model).
    time_s: Optional[float]
    #: Aggregate rate; give this or `time_s`.
    tokens_per_s: Optional[float]
    #: Workload that ran: one operation or one model.
    workload: "Workload"


class ObservationsAnswerOptional_(TypedDict, total=False):
    #: What was learned of models, by position.
    learnt: List["LearntObservation"]
    #: Servers that are slower than expected, by position.
    slow: List["SlowServer"]
    #: What was not learned of those that were.
    warnings: List[str]


class ObservationsAnswer(ObservationsAnswerOptional_):
    """`POST /v1/observations`."""

    #: Number of observations that were learned from.
    accepted: int
    #: Why the others were not, by position.
    refused: List["RefusedObservation"]


class ObservedOpOptional_(TypedDict, total=False):
    batch: Optional[int]
    context_tokens: Optional[int]
    head_dim: Optional[int]
    heads: Optional[int]
    k: Optional[int]
    kv_heads: Optional[int]
    m: Optional[int]
    n: Optional[int]
    query_tokens: Optional[int]
    window: Optional[int]


class ObservedOp(ObservedOpOptional_):
    """The operation of a report, with its shape where that was kept."""

    kind: "OpKind"


class Offload(TypedDict, total=False):
    """What stays in the memory of the CPU, which computes it. One of the two."""

    #: Layers, from the first, whose experts stay there: llama.cpp's `--n-cpu-moe`.
    cpu_moe_layers: Optional[int]
    #: Layers on the card, the last ones, the output counted as one; the others stay there: llama.cpp's `-ngl`.
    gpu_layers: Optional[int]


class OperatingPointRequest(TypedDict, total=False):
    """Operating point to predict for instead of the present one."""

    #: Number of CPU cores online.
    cores_online: Optional[int]
    #: Clock of the CPU cores.
    cpu_hz: Optional[float]
    #: Clock of the external memory controller (EMC).
    emc_hz: Optional[float]
    #: Clock of the GPU's SMs.
    gpu_hz: Optional[float]
    #: Power limit of a card's board, or of a GB10: the clock comes down until the predicted power keeps to it (predict,
    #: recommend and sweep).
    power_limit_w: Optional[float]
    #: A power mode by name; of a card or a GB10 also `lgc-MHZ` for a clock cap, of a card `pl-WATTS` for a power limit.
    power_mode: Optional[str]
    #: Number of streaming multiprocessors (SM) online.
    sm_online: Optional[int]


class OtherProcess(TypedDict):
    """Another process that used CPU time."""

    #: CPUs that it used, 1 = one whole.
    cpus: float
    #: Name of its program.
    name: str
    #: Number of the process.
    pid: int


class PendingAnswer(TypedDict):
    """A change that waits to be confirmed."""

    #: For `POST /v1/mode/confirm` and `POST /v1/mode/revert`.
    id: int
    #: Name of the mode that was entered.
    mode: str
    #: Name of the mode that is restored unless the change is confirmed.
    original: str
    #: Time left until the previous mode is restored.
    within_s: float


class PowerAnswer(TypedDict):
    """A power with its 90 % interval and what it covers. Only powers of one scope can be compared."""

    #: 5 % lies above.
    high: float
    #: 5 % lies below.
    low: float
    #: `module`: what the board's supply delivers to the module; `total_input`: module and carrier board; `gpu`: what NVML
    #: calls the power of a card; `rail:NAME`: one rail, such as `rail:package` of a CPU.
    scope: "PowerScope"
    #: Best estimate.
    value: float


class PowerCostsAnswerOptional_(TypedDict, total=False):
    #: Energy of a byte to or from memory.
    byte_j: Optional[float]
    #: Energy of an operation of `flop_precision`; `null` where nothing tells it apart.
    flop_j: Optional[float]
    #: What operations are counted in.
    flop_precision: Optional["Precision"]
    #: Half-width of the 90 % interval of power, relative.
    half_width_ratio: Optional[float]
    #: What the meter covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`.
    power_from: Optional["Rails"]
    #: Whose measurements the coefficients are: `measured` here, or `prior`: those of others on such a machine; `null`
    #: without any.
    power_source: Optional["PowerSource"]
    #: Why nothing was measured here; `null` if it was.
    reason: Optional[str]
    #: What stands while a kernel runs: the power of the idle machine and of its busy cores.
    static_w: Optional[float]
    #: Energy of dequantizing a weight.
    weight_j: Optional[float]


class PowerCostsAnswer(PowerCostsAnswerOptional_):
    """Power and energy coefficients where the ceilings hold: energy = `static_w` x time + `byte_j` x bytes + `flop_j` x
    operations + `weight_j` x weights that are dequantized."""

    #: Loads that were held here while the meter was read.
    points: List["PowerPointAnswer"]
    #: What the caller should know.
    warnings: List[str]


class PowerPointAnswerOptional_(TypedDict, total=False):
    #: Kernel that ran; `null` = nothing.
    kernel: Optional[str]
    #: Mean power; `null` with the reason.
    power_w: Optional[float]
    #: What they were computed in; `null` at idle.
    precision: Optional["Precision"]
    #: Why there is no power; `null` if there is one.
    reason: Optional[str]
    #: Hottest thermal zone; `null` where unknown.
    temperature_c: Optional[float]


class PowerPointAnswer(PowerPointAnswerOptional_):
    """A load that was held."""

    #: Bytes a second to and from main memory.
    bytes_per_s: float
    #: Time that the readings stand for.
    duration_s: float
    #: Operations a second.
    flops_per_s: float
    #: `idle`, `bandwidth`, `compute` or `decode`.
    load: "LoadKind"
    #: What the meter covers, as `power_from` of the coefficients.
    power_from: "Rails"
    #: Names of the power rails that were added up.
    rails: List[str]
    #: Number of meter readings.
    readings: int
    #: Weights a second.
    weights_per_s: float


class PredictAnswerOptional_(TypedDict, total=False):
    #: Tokens that the cache of every sequence has room for, as predicted and as the settings of a recommendation have it;
    #: `null` for an operation.
    context_tokens: Optional[int]
    #: Documents per second over the batch (tasks `embed` and `rerank`).
    documents_per_s: Optional["EstimateAnswer"]
    #: Energy of the whole run that `time_s` is of; `null` where unknown.
    energy_j: Optional["EstimateAnswer"]
    #: Energy per token of a model, of the same scope as the power; `null` where unknown, and for an operation.
    energy_j_per_token: Optional["EstimateAnswer"]
    #: The inference engine that it is of: the one asked for; of a model without one, the engine that is recommended for
    #: it.
    engine: "Engine"
    #: Weight format that it is of: the one asked for, else the usual one; of a model without engine and format, the one
    #: that is recommended. `null` for an attention, and where a file does not say how it is stored.
    format: Optional[str]
    #: The hardware, where the figures are those of its data sheet and no machine was asked.
    hardware: Optional[str]
    #: Whose errors the interval was taken from (models only): `own_tier`, `own_engine` or `own_runs` of this machine, else
    #: `engine_and_machine`, `engine`, `all` or `guess`.
    interval_from: Optional["IntervalSource"]
    #: The same above what the idle machine takes in that time: what the token adds where the machine is on anyway.
    marginal_energy_j_per_token: Optional["EstimateAnswer"]
    #: Name of the power mode that was asked about by name or number; absent where none was.
    mode_name: Optional[str]
    #: Whose measurements it rests on: `measured` on this machine, or `prior`: those of others; `null` without power.
    power_source: Optional["PowerSource"]
    #: Power while it runs; `null` where unknown.
    power_w: Optional["PowerAnswer"]
    #: Whose reports of measured runs moved it, and how many; absent without such reports.
    reports: Optional["ReportsAnswer"]
    #: Time of the batch divided by its documents (tasks `embed` and `rerank`).
    time_per_document_s: Optional["EstimateAnswer"]
    #: Time of each token of a sequence after the first (models that generate).
    time_per_token_s: Optional["EstimateAnswer"]
    #: Time to the first token (models that read a prompt).
    time_to_first_token_s: Optional["EstimateAnswer"]


class PredictAnswer(PredictAnswerOptional_):
    """`POST /v1/predict`."""

    #: Operations per byte.
    arithmetic_intensity_flops_per_byte: float
    #: Side of the roofline that it lies on: `memory` or `compute`.
    bound: "Bound"
    #: Parts of the prediction, by operation.
    breakdown: List["BreakdownEntry"]
    #: Traffic of one run.
    bytes: float
    #: What the arithmetic runs in.
    compute: "Precision"
    #: Operations of one run.
    flops: float
    #: What limits it: `dram`, `cache`, `core` (dequantization), `compute`, `launch` or `power_cap`.
    limit: "Limit"
    #: Memory it takes.
    memory_bytes: "MemoryAnswer"
    #: Weakest provenance of the ceilings used.
    provenance: "Provenance"
    #: Ridge point of the precision used.
    ridge_flops_per_byte: float
    #: The least time that any implementation could take; no prediction lies below it.
    roofline_time_s: float
    #: Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: What the prediction rests on.
    tier: "Tier"
    #: Time of one run of an operation. Of a model: one step (decode), the prompt (prefill), or prompt and answer (serve).
    time_s: "EstimateAnswer"
    #: Tokens (columns) per second over the batch: of a prefill those of the prompt, otherwise those generated.
    tokens_per_s: "EstimateAnswer"
    #: What the caller should know.
    warnings: List[str]


class PredictRequestOptional_(TypedDict, total=False):
    #: Inference engine whose kernels run. Absent: of a model, the one that is recommended for it; of an operation `none`,
    #: this program's own.
    engine: "Engine"
    #: Build number or release of the inference engine, such as `b10809`. Absent: the newest known.
    engine_version: Optional[str]
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as
    #: those for similar formats.
    hypothetical: bool
    #: Used for this answer only.
    observations: List["ObservationRequest"]
    #: Absent = as it is now; other hardware: its fastest mode.
    operating_point: Optional["OperatingPointRequest"]


class PredictRequest(PredictRequestOptional_):
    """`POST /v1/predict`."""

    #: Workload to predict: one operation or one model.
    workload: "Workload"


class RecommendAnswerOptional_(TypedDict, total=False):
    #: The candidate that misses the fewest constraints, and of these the one that misses least; only if infeasible.
    closest: Optional["CandidateAnswer"]
    #: The fewest constraints that no candidate meets together; only if infeasible.
    contradicting: List["Constraint"]
    #: The candidate chosen; `null` if infeasible.
    decision: Optional["CandidateAnswer"]
    #: What energy counts in the decision: `with_idle` or `marginal`.
    energy_basis: "EnergyBasis"
    #: The inference engine that the decision is for: the one asked for, or the best of `engines`.
    engine: "Engine"
    #: Every engine that runs the model here and was compared, the best first; empty for an operation.
    engines: List["EngineAnswer"]
    #: The same with what each demands and what the candidate needs.
    misses: List["MissAnswer"]
    #: What would sharpen the answer most.
    next_best_measurement: Optional[str]
    #: How sure the choice is; `null` if infeasible.
    sensitivity: Optional["SensitivityAnswer"]
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: What to know before relying on the answer: what looks odd about the question, such as a limit in another unit, and
    #: every warning of the choice's prediction.
    warnings: List[str]


class RecommendAnswer(RecommendAnswerOptional_):
    """`POST /v1/recommend`."""

    #: Pareto front without the choice.
    alternatives: List["CandidateAnswer"]
    #: How to put it into practice.
    apply: "Apply"
    #: Number of candidates that were evaluated.
    candidates: int
    #: Whether anything meets the constraints.
    feasible: bool
    #: Why, in one or two sentences.
    reason: str
    #: What was excluded and by what.
    rejected: List["RejectionAnswer"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: The constraints that it misses; only if infeasible.
    violated: List["Constraint"]


class RecommendRequestOptional_(TypedDict, total=False):
    #: Limits that the choice must keep.
    constraints: "Constraints"
    #: What objective `energy` counts: `with_idle`, or `marginal` for what the run adds to a machine that is on anyway.
    energy_basis: "EnergyBasis"
    #: Inference engine whose kernels run. Absent: of a model, the best of those that the machine can run; of an operation
    #: `none`, this program's own.
    engine: "Engine"
    #: Degrees of freedom of the choice.
    freedom: "Freedom"
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as
    #: those for similar formats.
    hypothetical: bool
    #: Optimization objective: `latency`, `throughput`, `energy` or `power`.
    objective: "Objective"
    #: Absent = as it is now; other hardware: its fastest mode.
    operating_point: Optional["OperatingPointRequest"]
    #: End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    optimism: "Optimism"


class RecommendRequest(RecommendRequestOptional_):
    """`POST /v1/recommend`."""

    #: What is to run; its `format` and `batch` are what `freedom` chooses.
    workload: "Workload"


class RefusedObservationOptional_(TypedDict, total=False):
    #: Field of the report that is wrong.
    field: Optional[str]


class RefusedObservation(RefusedObservationOptional_):
    """Why a report was refused."""

    #: Stable code of the error.
    code: "ErrorCode"
    #: What to do next.
    hint: str
    #: Position of the report in the request.
    index: int
    #: One sentence.
    reason: str


class RegimeAnswerOptional_(TypedDict, total=False):
    #: Core-to-core latency, one way.
    core_to_core_s: Optional[float]


class RegimeAnswer(RegimeAnswerOptional_):
    """A regime of the machine and its main ceilings."""

    #: The active regime.
    active: bool
    #: Main-memory read bandwidth.
    bandwidth_bytes_per_s: float
    #: `near`, `far` or `single`.
    key: str
    #: Time of the measurement, in seconds since 1970.
    measured_at_unix_s: float


class RejectionAnswerOptional_(TypedDict, total=False):
    #: The value of the one that missed it least, in the constraint's unit; `null` where it is unknown or no number.
    closest: Optional[float]
    #: What the constraint demands, likewise.
    limit: Optional[float]


class RejectionAnswer(RejectionAnswerOptional_):
    """Candidates that a constraint excluded."""

    #: Key of the constraint, as in the request.
    by: "Constraint"
    #: Number of candidates that it excluded.
    count: int


class RenewRequest(TypedDict):
    """`PUT /v1/holds/{id}` (control socket)."""

    #: From now, 1 to 604800.
    ttl_s: float


class ReportsAnswer(TypedDict):
    """Reports of measured runs that moved an answer."""

    #: Number of the caller's reports, or of those given with the question.
    own: int
    #: Whose moved it: `own` (the caller's, or given with the question, and shared ones) or `shared`.
    scope: "ReportScope"
    #: Number of reports of root, the daemon's user and group `rooflined`, which count for everybody.
    shared: int


class ResidualAnswer(TypedDict):
    """What was learned of operations from reports."""

    #: Number of reports.
    count: int
    #: Engine that ran.
    engine: "Engine"
    #: Measured over predicted time.
    factor_ratio: float
    #: Storage of the weights.
    format: str
    #: Mean of its logarithm without outliers.
    log_mean: float
    #: Variance of its logarithm.
    log_variance: float
    #: Kind of the operation.
    op: "OpKind"


class RevertRequest(TypedDict, total=False):
    """`POST /v1/mode/revert` (control socket)."""

    #: `confirm.id` of the switch; absent = whichever waits.
    id: Optional[int]


class RooflineAnswerOptional_(TypedDict, total=False):
    #: Clock the ceilings hold for.
    clock_hz: Optional[float]
    #: Main-memory copy, read and write counted.
    copy_bytes_per_s: Optional["CeilingAnswer"]
    #: Newest reference read over the one calibrated in the same power mode: below 1 when neighbours take bandwidth; `null`
    #: where this mode was not calibrated, or nothing was read in it.
    drift_ratio: Optional[float]
    #: What the memory alone gives, bus width x memory clock; `null` where that is not known.
    memory_limit_bytes_per_s: Optional["CeilingAnswer"]
    #: Power and energy coefficients at this operating point.
    power: "PowerCostsAnswer"
    #: Power mode the ceilings hold for; `null` on a machine without.
    power_mode: Optional[str]
    #: Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    pull_limit_bytes_per_s: Optional["CeilingAnswer"]
    #: Main-memory triad, two reads and one write counted.
    triad_bytes_per_s: Optional["CeilingAnswer"]


class RooflineAnswer(RooflineAnswerOptional_):
    """`GET /v1/roofline`."""

    #: Main-memory read bandwidth.
    bandwidth_bytes_per_s: "CeilingAnswer"
    #: Read bandwidth against working set.
    bandwidth_curve: List["BandwidthPointAnswer"]
    #: Peak by precision: FLOP/s, of integer precisions OP/s.
    compute_flops_per_s: Dict[str, "CeilingAnswer"]
    #: Cost of starting one operation.
    launch_s: "CeilingAnswer"
    #: Regimes of the machine that were measured so far.
    regimes: List["RegimeAnswer"]
    #: Ridge point by precision: peak over read bandwidth.
    ridge_flops_per_byte: Dict[str, float]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: Workers the ceilings hold for.
    workers: int


class RunEvidence(TypedDict, total=False):
    """What was seen of a process and of its measurement; absent = not looked at."""

    #: Part of the drafted tokens that it accepted, 0 to 1, by its log.
    acceptance_ratio: Optional[float]
    #: Part of the time that its computing threads slept in the kernel, as they do for pages of a file, 0 to 1.
    blocked_ratio: Optional[float]
    #: Threads that computed.
    computing_threads: Optional[int]
    #: Files that hold those speeds.
    core_speed_files: Optional[str]
    #: Speed of the cores that it may run on over that of the fastest of the machine, 0 to 1.
    core_speed_ratio: Optional[float]
    #: Cores that those CPUs are threads of: `core_cpus_list` in /sys/devices/system/cpu/cpu*/topology.
    cores_allowed: Optional[int]
    #: CPUs whose time the control groups of the process grant it.
    cpu_quota: Optional[float]
    #: File that holds that quota.
    cpu_quota_file: Optional[str]
    #: Of the time that its computing threads wanted a CPU, the part that they waited for one, 0 to 1.
    cpu_wait_ratio: Optional[float]
    #: File that holds that weight.
    cpu_weight_file: Optional[str]
    #: CPU time that its control groups give it beside others, as a part of the usual one: `cpu.weight` over 100,
    #: `cpu.shares` over 1024.
    cpu_weight_ratio: Optional[float]
    #: Logical CPUs that the process may run on: `Cpus_allowed_list` of /proc/PID/status.
    cpus_allowed: Optional[int]
    #: What disturbed the measurement, in words.
    disturbed: Optional[str]
    #: Build number or release of the engine that really runs.
    engine_version: Optional[str]
    #: Part of its memory on other nodes than the threads that compute, 0 to 1: /proc/PID/numa_maps.
    far_memory_ratio: Optional[float]
    #: Files as they were read, which the evidence of a cause quotes: by path and, of one line, its key, such as
    #: `/proc/7/status: Cpus_allowed_list`.
    files: Dict[str, str]
    #: Whether it has loaded a library that uses a GPU.
    gpu_library: Optional[bool]
    #: Instructions that its kernels use, as `system_info` in its log names them, such as `AVX2`.
    instructions: Optional[List[str]]
    #: File that tells those instructions; absent: its log.
    instructions_file: Optional[str]
    #: Whether it runs under SCHED_IDLE, so only when nobody else wants the CPU.
    is_idle_class: Optional[bool]
    #: Whether its kernels were compiled without optimisation.
    is_unoptimised: Optional[bool]
    #: File of the CPU kernels that it has loaded, such as `libggml-cpu-haswell.so`.
    kernels: Optional[str]
    #: Its log.
    log_file: Optional[str]
    #: Pages per second that it had to wait for.
    major_faults_per_s: Optional[float]
    #: Mean distance of its memory over that of near memory, 1 or more: /sys/devices/system/node/node*/distance.
    memory_distance_ratio: Optional[float]
    #: Memory bandwidth of a reference kernel, now or beside the measurement, over that of the calibration.
    memory_ratio: Optional[float]
    #: Nice value of the process.
    nice: Optional[int]
    #: Other processes that used CPU time meanwhile, the largest first.
    others: List["OtherProcess"]
    #: Number of the process.
    pid: Optional[int]
    #: Speed of a product of matrices that was run as a reference now, over that of the calibration.
    product_ratio: Optional[float]
    #: Bytes per second that it read from storage.
    read_bytes_per_s: Optional[float]
    #: Tasks of others that ran or waited for a CPU, on average: /proc/loadavg.
    runnable_tasks: Optional[float]
    #: Longest over shortest repetition of the measurement.
    spread_ratio: Optional[float]
    #: Bytes per second that the machine read from swap meanwhile: `pswpin` of /proc/vmstat.
    swap_in_bytes_per_s: Optional[float]
    #: Bytes of it in swap.
    swapped_bytes: Optional[float]
    #: Options under which its time is not that of the model on this accelerator.
    unlike: List[str]
    #: What could not be looked at.
    unseen: List["Unseen"]
    #: Time of the measured step over that of the last one, where steps became ever faster.
    warming_ratio: Optional[float]
    #: What really runs. Fields that are absent are as expected.
    workload: Optional["Workload"]


class SensitivityAnswerOptional_(TypedDict, total=False):
    #: What would be chosen if constraints were met at the best estimate; `null` where it is the same.
    at_expected: Optional["ChoiceAnswer"]
    #: Relative half-width of the 90 % interval of the ratio of the two, as if their errors had nothing in common; those of
    #: one engine and model have, so it is wide rather than narrow.
    interval_ratio: Optional[float]
    #: By how much the choice is better in the objective: 0.1 is ten per cent.
    margin_ratio: Optional[float]
    #: The best of another format, mode or number of threads; `null` without one.
    runner_up: Optional["ChoiceAnswer"]


class SensitivityAnswer(SensitivityAnswerOptional_):
    """Whether another choice would be made if the predictions were off by what their intervals allow."""

    #: Whether the runner-up may be the better one: the margin lies within the interval.
    could_change: bool


class ServerEntryOptional_(JudgedServer, total=False):
    #: Why nothing was learned from the report; `null` where it was.
    not_learned: Optional[str]


class ServerEntry(ServerEntryOptional_):
    """A server by its newest report."""

    #: When it was reported, in seconds since 1970.
    reported_at_unix_s: float
    #: Its name: `server` of the report.
    server: str
    #: Who is shown it: `everyone`, or `own` (the user who reported it).
    shown_to: "Moves"


class ServersAnswer(TypedDict):
    """`GET /v1/servers`."""

    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: Servers that were reported in the last hour, by name.
    servers: List["ServerEntry"]


class SlowServer(TypedDict):
    """A server that is slower than expected."""

    #: Position of the report in the request.
    index: int
    #: Why, with the remedy.
    reason: str


class SmLimitsAnswer(TypedDict):
    """What one streaming multiprocessor (SM) holds."""

    #: Shared memory of one block.
    block_shared_memory_bytes: int
    #: Most resident blocks.
    blocks: int
    #: CUDA compute capability.
    compute_capability: str
    #: Number of 32-bit registers.
    registers: int
    #: Shared memory that the system takes in addition to each block's own.
    reserved_shared_memory_bytes: int
    #: Shared memory of the SM.
    shared_memory_bytes: int
    #: Most resident threads.
    threads: int


class Speculative(TypedDict, total=False):
    """Tokens that are drafted ahead and verified together."""

    #: Chance that a drafted token is accepted where the one before it was, between 0 and 1; every step adds one token
    #: more.
    acceptance_ratio: Optional[float]
    #: Instead of `acceptance_ratio`: how many of `draft_tokens` are accepted on average.
    accepted_per_step: Optional[float]
    #: Weight format of the model that drafts. Default: that of the model.
    draft_format: Optional[str]
    #: The model that drafts, named as `model` is. It takes time and memory.
    draft_model: Optional["ModelRequest"]
    #: Tokens drafted for every sequence and step; 0 = none. Absent: `recommend` takes the best of 0 to 8.
    draft_tokens: Optional[int]
    #: What drafts: `draft`, a smaller model; `mtp`, a head of the model itself; `ngram`, text that came before. Default:
    #: `draft` with a `draft_model`, else `mtp` where the model is known to have such a head, else `ngram`.
    kind: Optional["DraftKind"]


class StateAnswerOptional_(TypedDict, total=False):
    #: Files that the fields come from, by the same names; absent for fields that no file holds.
    sources: Dict[str, str]


class StateAnswer(StateAnswerOptional_):
    """`GET /v1/state`: fields by name (`power_mode`, `cores_online`, `cpu_hz`, `cpu_cap_hz`, `gpu_hz`, `gpu_cap_hz`,
    `gpu_load_ratio`, `sm_online`, `tpc_mask`, `memory_hz`, `memory_cap_hz`, `temperatures_c`, `rails_w`, `total_power_w`,
    `total_power_of`, `memory_bytes`, `load`, `pressure`, `throttle`). The load of a GPU is that of a short window: average
    ten of them and more. Powers of rails keep the sign that the sensor tells: near zero one may be negative. Of zones or
    rails with one name all but the first have their place behind it (`acpitz`, `acpitz-1`, `VDD_IN-1-0041.1`). What no
    answer rests on: `cores` (`busy_ratio`, `min_hz`, `max_hz`, `governor` of each CPU), `engines` (`clock_hz`, `max_hz`,
    `on`), `emc_utilisation_ratio`, `fans` (`duty_ratio`, `speed_rpm`), `fan_profile`, `gpu_control` (governor, lowest
    clock, rail gating), `gpu_processes`, `gpu_shared_memory_bytes`, `free_blocks`, `swap`, `zram`, `rail_meters`
    (`voltage_v`, `current_a`, limits, `alarm`), `device_temperatures`, `jetson_clocks`, `software` (JetPack, CUDA,
    TensorRT). Some of it is read once in 1, 10 or 60 s; the age says when."""

    #: Names of what does not work at present.
    degraded: List[str]
    #: Serial number of the snapshot that the answer rests on.
    serial: int
    #: True where values come from a simulated board, not from hardware.
    simulated: bool


class StateFieldOptional_(TypedDict, total=False):
    #: Age of the value.
    age_s: Optional[float]
    #: Why there is no value.
    reason: Optional[str]
    #: Why a value inside the value is `null`, by its key there: a sensor that is off, a ratio that needs a second sample.
    reasons: Dict[str, str]


class StateField(StateFieldOptional_):
    """A value with its age, or `null` with the reason."""

    #: The value: a number, a text, a truth, a list or an object, as the field has it; `null` where there is none.
    value: Any


class SweepAnswerOptional_(TypedDict, total=False):
    #: True where values come from a simulated board, not from hardware.
    simulated: bool
    #: Each once, however many rows it is about.
    warnings: List["SweepWarning"]


class SweepAnswer(SweepAnswerOptional_):
    """`POST /v1/sweep`."""

    #: One row for each combination.
    rows: List["SweepRow"]
    #: Serial number of the snapshot that the answer rests on.
    serial: int


class SweepRequest(TypedDict, total=False):
    """`POST /v1/sweep`: the cross product of shapes or models, formats, power modes, threads, batches and contexts."""

    #: Batch sizes (columns) to consider; absent = 1.
    batches: Optional[List[int]]
    #: Tokens already cached, as in a workload (models only).
    cached_tokens: Optional[int]
    #: Tokens of a prompt that one pass takes, as in a workload (models only).
    chunk_tokens: Optional[int]
    #: Context lengths (models only); absent = as `context_tokens` of a workload.
    contexts: Optional[List[int]]
    #: Inference engine whose kernels run.
    engine: "Engine"
    #: Formats; absent = every format measured on this machine, or the usual ones.
    formats: Optional[List[str]]
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as
    #: those for similar formats.
    hypothetical: bool
    #: Tokens of the images in every prompt, in addition to `prompt_tokens` (models only).
    image_tokens: Optional[int]
    #: Key/value cache format: a key of `GET /v1/formats` (models only).
    kv_format: Optional[str]
    #: Models, each as in a workload.
    models: List["ModelRequest"]
    #: Absent = as it is now; other hardware: its fastest mode.
    operating_point: Optional["OperatingPointRequest"]
    #: Operations, as `op` of a workload.
    ops: List["Op"]
    #: Tokens to generate (models only).
    output_tokens: Optional[int]
    #: `prefill`, `decode` or `serve` (models only).
    phase: Optional["Phase"]
    #: Power modes; absent = the operating point above.
    power_modes: Optional[List[str]]
    #: Tokens of the prompt (models only).
    prompt_tokens: Optional[int]
    #: Speculative decoding (models only).
    speculative: Optional["Speculative"]
    #: Worker threads, where the CPU is the accelerator; absent = one for every physical core, as engines do; without an
    #: engine, as many as were calibrated.
    threads: Optional[List[int]]


class SweepRowOptional_(PredictAnswer, total=False):
    #: The model: its key, or what its file or fields call it. Absent for an operation.
    model: Optional[str]
    #: The operation with its batch applied; `null` for a model.
    op: Optional["Op"]
    #: The power mode, where modes are swept.
    power_mode: Optional["ModeAnswer"]
    #: Expected relative increase of a model's perplexity by its format, a ratio; absent for an operation, and where it is
    #: unknown.
    quality_loss_ratio: Optional[float]
    #: Worker threads, where they are swept.
    threads: Optional[int]


class SweepRow(SweepRowOptional_):
    """One point of a sweep."""

    #: Columns, or sequences of a model.
    batch: int


class SweepWarningOptional_(TypedDict, total=False):
    #: The rows, by position; absent where it is about every row.
    rows: Optional[List[int]]


class SweepWarning(SweepWarningOptional_):
    """What the reader should know of rows of a sweep."""

    #: For people.
    message: str


class SwitchAnswerOptional_(TypedDict, total=False):
    #: Name of the previous mode; `null` where it was unknown.
    before: Optional[str]
    #: What confirms it; `null` where nothing needs to.
    confirm: Optional["ConfirmAnswer"]
    #: Name of the mode that the live files show; `null` where they match none.
    reached: Optional[str]


class SwitchAnswer(SwitchAnswerOptional_):
    """What came of a switch."""

    #: Name of the mode asked for.
    asked: str
    #: Where the live files differ from the mode.
    differences: List["SwitchDifference"]
    #: True for a dry run: nothing was changed.
    dry_run: bool
    #: One sentence for people.
    message: str
    #: `applied`; in a dry run also `reboot_required`, `refused` or `not_applied`.
    outcome: "SwitchOutcome"
    #: Duration of the switch.
    took_s: float
    #: What would be written, in order; filled for a dry run.
    writes: List["SwitchWrite"]


class SwitchDifference(TypedDict):
    """A file that does not hold what the mode asks for."""

    #: Text that the mode would have there.
    expected: str
    #: Text that was found, or why the file could not be read.
    found: str
    #: Path of the file.
    path: str


class SwitchWrite(TypedDict):
    """A file that a switch would write."""

    #: Path of the file.
    path: str
    #: Text that would be written.
    value: str


class TileAnswer(TypedDict):
    """One way to cut the product."""

    #: Time of the arithmetic; it overlaps with the next two.
    compute_s: float
    #: From memory with the second-level cache.
    dram_bytes: float
    #: Time of the traffic to and from main memory.
    dram_s: float
    #: From memory if every block read for itself.
    dram_without_reuse_bytes: float
    #: Step along the common dimension.
    k: int
    #: The former over the latter.
    l2_reuse_ratio: float
    #: Part of it that the launch takes.
    launch_s: float
    #: `compute`, `shared_memory`, `dram` or `launch`.
    limit: "TileLimit"
    #: Rows of a block.
    m: int
    #: Columns of a block.
    n: int
    #: Resident warps over the most there can be.
    occupancy_ratio: float
    #: What the variant loses, in a sentence.
    reason: str
    #: Registers of a thread, estimated.
    registers_per_thread: int
    #: Blocks resident on one SM.
    resident_blocks: int
    #: `blocks`, `threads`, `shared_memory` or `registers`.
    resident_limited_by: "Resource"
    #: Shared memory of a block.
    shared_memory_bytes: int
    #: Time of the traffic to and from shared memory.
    shared_memory_s: float
    #: Parts that the common dimension is cut into.
    split_k: int
    #: Buffers of operands.
    stages: int
    #: What one block reads.
    tile_bytes: float
    #: Part of the arithmetic that is not padding.
    tile_efficiency_ratio: float
    #: Operations for a byte that a block reads.
    tile_intensity_flops_per_byte: float
    #: Blocks in all.
    tiles: int
    #: Estimated time; a ranking, not a measurement.
    time_s: float
    #: Warps of a block.
    warps: int
    #: Part of the rounds that is filled.
    wave_efficiency_ratio: float
    #: Rounds in which all places are filled.
    waves: float


class TilingAnswerOptional_(TypedDict, total=False):
    #: GPU clock at which the SMs run; `null` where unknown.
    gpu_hz: Optional[float]
    #: Size of the second-level cache.
    l2_bytes: Optional[float]
    #: True where values come from a simulated board, not from hardware.
    simulated: bool


class TilingAnswer(TilingAnswerOptional_):
    """`POST /v1/tiling`."""

    #: Fastest first: the best variant of each block and split.
    candidates: List["TileAnswer"]
    #: What it is computed in.
    compute: "Precision"
    #: Number of variants that were evaluated.
    considered: int
    #: Weight format, the storage of the `n x k` operand.
    format: str
    #: Key of the hardware.
    hardware: str
    #: Limits of one SM: threads, blocks, registers, shared memory.
    limits: "SmLimitsAnswer"
    #: Name for people.
    name: str
    #: Why the first is first.
    reason: str
    #: Variants that do not fit, by what they need too much of.
    rejected: Dict[str, int]
    #: Physical bound of the roofline.
    roofline_time_s: float
    #: Serial number of the snapshot that the answer rests on; 0 without a daemon.
    serial: int
    #: SMs online.
    sm_online: int
    #: What the caller should know.
    warnings: List[str]


class TilingRequestOptional_(TypedDict, total=False):
    #: Storage of the weights, the `n x k` operand; absent = fp16.
    format: Optional[str]
    #: A hardware key; absent = this machine.
    hardware: Optional[str]
    #: How many candidates, 1 to 128; absent = 8.
    limit: Optional[int]
    #: Absent = now; of other hardware, its reference clocks.
    operating_point: Optional["OperatingPointRequest"]


class TilingRequest(TilingRequestOptional_):
    """`POST /v1/tiling`: how to cut an `m x n x k` product."""

    #: Common dimension of the operands, `k`.
    k: int
    #: Rows of the product, `m`.
    m: int
    #: Columns of the product, `n`.
    n: int


class Unseen(TypedDict):
    """Something that could not be looked at."""

    #: How to allow it.
    grant: str
    #: Why not.
    reason: str
    #: What.
    what: str


class Workload(TypedDict, total=False):
    """One operation (`op` + `format`) or one model. A body has exactly one of the two."""

    #: Batch size: sequences (models) or columns (operations). Default 1.
    batch: Optional[int]
    #: Tokens already cached: of the prompt, where they are not computed again, or of the context of a decode those that
    #: all sequences share (models only). Default 0.
    cached_tokens: Optional[int]
    #: Tokens of a prompt that one pass takes, each of which reads the weights again (models only): llama.cpp's `-ub`,
    #: vLLM's `--max-num-batched-tokens`. Absent = the engine's default, by which the time is predicted and nothing is
    #: bounded.
    chunk_tokens: Optional[int]
    #: Context length (models only): tokens in the cache, which a step of a decode fills and a prompt comes after. Default:
    #: every sequence has room for 4096 tokens, or for as many as the model was made for, if that is fewer; a decode fills
    #: them, and a prompt begins an empty cache.
    context_tokens: Optional[int]
    #: Weight format: a key of `GET /v1/formats`. Default: a file's own; of a model known by a key what it is published in,
    #: else what the engine's files usually hold: `q4_k_m` with llama.cpp, `int4_g32` with MLC and ONNX Runtime, `fp16`
    #: with the others.
    format: Optional[str]
    #: Tokens of the images in every prompt, in addition to `prompt_tokens` (models only). Default 0.
    image_tokens: Optional[int]
    #: Key/value cache format: a key of `GET /v1/formats`.
    kv_format: Optional[str]
    #: A model: a key of `GET /v1/models`; the answer of `POST /v1/models/inspect`, which `rooflinectl models inspect FILE
    #: -o json` prints too; `{"path": FILE}` below a directory of `[models] dirs`, read for 30 s at most; or the fields of
    #: a Hugging Face `config.json`.
    model: Optional["ModelRequest"]
    #: The part of the model that stays in the memory of the CPU, on a machine with a card (models only, llama.cpp).
    #: Absent: nothing; `recommend` keeps the experts of as few layers there as leave room, where a mixture does not fit.
    offload: Optional["Offload"]
    #: A bare operation: `{"kind":"gemv","n":4096,"k":4096}`.
    op: Optional["Op"]
    #: Tokens to generate (models only).
    output_tokens: Optional[int]
    #: `prefill`, `decode` or `serve` (models only). Default `decode`; documents have only a `prefill`.
    phase: Optional["Phase"]
    #: Tokens of the prompt (models only).
    prompt_tokens: Optional[int]
    #: Speculative decoding (models only).
    speculative: Optional["Speculative"]
    #: `generate`, `embed` or `rerank` (models only). Documents that are embedded or ranked are prompts of `prompt_tokens`,
    #: of which `batch` run together. Default: `embed` for an encoder, otherwise `generate`.
    task: Optional["Task"]
    #: Worker threads, where the CPU is the accelerator. Default: one for every physical core, as engines do; without an
    #: engine, as many as were calibrated.
    threads: Optional[int]
    #: Tokens that every sequence has room for, prompt and answer included (models only): more than it fills, or an error.
    #: Default: as `context_tokens` says.
    window_tokens: Optional[int]
