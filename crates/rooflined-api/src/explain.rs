//! `POST /v1/explain`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{EstimateAnswer, OperatingPointRequest, Workload, nullable};
use rooflined_core::names::Engine;

/// `POST /v1/explain`: a workload, how fast it ran, and what was seen of its process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Operating point that was expected, without a `power_limit_w`. Absent = the fastest that this machine was calibrated at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Workload that was expected to run: one operation or one model.
    pub workload: Workload,
    /// Inference engine whose kernels run. If none is named, engine and format are chosen as in `POST /v1/predict`.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Build number or release of the engine that was expected. Absent: the newest known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// Measured time of one run, as in `POST /v1/analyze`. Without this and `tokens_per_s` the answer tells what slows the machine
    /// now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Measured rate over the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// What was seen of the process and of the measurement. The daemon adds what it knows of the board.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable::object")]
    pub seen: Option<RunEvidence>,
}

/// What was seen of a process and of its measurement; absent = not looked at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunEvidence {
    /// Number of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What really runs. Fields that are absent are as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Build number or release of the engine that really runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// Logical CPUs that the process may run on: `Cpus_allowed_list` of /proc/PID/status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_allowed: Option<u32>,
    /// Cores that those CPUs are threads of: `core_cpus_list` in /sys/devices/system/cpu/cpu*/topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_allowed: Option<u32>,
    /// CPUs whose time the control groups of the process grant it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// File that holds that quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota_file: Option<String>,
    /// Speed of the cores that it may run on over that of the fastest of the machine, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_speed_ratio: Option<f64>,
    /// Files that hold those speeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_speed_files: Option<String>,
    /// Part of its memory on other nodes than the threads that compute, 0 to 1: /proc/PID/numa_maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_memory_ratio: Option<f64>,
    /// Mean distance of its memory over that of near memory, 1 or more: /sys/devices/system/node/node*/distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_distance_ratio: Option<f64>,
    /// CPU time that its control groups give it beside others, as a part of the usual one: `cpu.weight` over 100, `cpu.shares` over 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_weight_ratio: Option<f64>,
    /// File that holds that weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_weight_file: Option<String>,
    /// Whether it runs under SCHED_IDLE, so only when nobody else wants the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_idle_class: Option<bool>,
    /// Nice value of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    /// Threads that computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computing_threads: Option<u32>,
    /// Of the time that its computing threads wanted a CPU, the part that they waited for one, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_wait_ratio: Option<f64>,
    /// Part of the time that its computing threads slept in the kernel, as they do for pages of a file, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ratio: Option<f64>,
    /// Bytes per second that it read from storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<f64>,
    /// Pages per second that it had to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_faults_per_s: Option<f64>,
    /// Bytes of it in swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<f64>,
    /// Bytes per second that the machine read from swap meanwhile: `pswpin` of /proc/vmstat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_in_bytes_per_s: Option<f64>,
    /// Tasks of others that ran or waited for a CPU, on average: /proc/loadavg.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runnable_tasks: Option<f64>,
    /// Other processes that used CPU time meanwhile, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub others: Vec<OtherProcess>,
    /// File of the CPU kernels that it has loaded, such as `libggml-cpu-haswell.so`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Instructions that its kernels use, as `system_info` in its log names them, such as `AVX2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Vec<String>>,
    /// File that tells those instructions; absent: its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_file: Option<String>,
    /// Whether its kernels were compiled without optimisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_unoptimised: Option<bool>,
    /// Part of the drafted tokens that it accepted, 0 to 1, by its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_ratio: Option<f64>,
    /// Its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
    /// Time of the measured step over that of the last one, where steps became ever faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warming_ratio: Option<f64>,
    /// Whether it has loaded a library that uses a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_library: Option<bool>,
    /// Options under which its time is not that of the model on this accelerator.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub unlike: Vec<String>,
    /// Memory bandwidth of a reference kernel, now or beside the measurement, over that of the calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_ratio: Option<f64>,
    /// Speed of a product of matrices that was run as a reference now, over that of the calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_ratio: Option<f64>,
    /// Longest over shortest repetition of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_ratio: Option<f64>,
    /// What disturbed the measurement, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// What could not be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub unseen: Vec<Unseen>,
    /// Files as they were read, which the evidence of a cause quotes: by path and, of one line, its key, such as
    /// `/proc/7/status: Cpus_allowed_list`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable::or_default")]
    pub files: BTreeMap<String, String>,
}

/// Another process that used CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OtherProcess {
    /// Number of the process.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// CPUs that it used, 1 = one whole.
    pub cpus: f64,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why not.
    pub reason: String,
    /// How to allow it.
    pub grant: String,
}

/// A file or option and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct EvidenceAnswer {
    /// File, option, or field of `GET /v1/state`.
    pub source: String,
    /// What it holds.
    pub value: String,
}

/// One cause of a difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CauseAnswer {
    /// Which one.
    #[cfg_attr(test, schema(value_type = crate::schema::Cause))]
    pub cause: String,
    /// The cause in words, with its numbers.
    pub what: String,
    /// Its part of the difference between expected and measured; the parts of all causes and `unexplained_ratio` add up to 1.
    pub share_ratio: f64,
    /// That part as a rate.
    pub share_tokens_per_s: f64,
    /// What would be reached without it.
    pub without_tokens_per_s: f64,
    /// `predicted`: the effect is that of the prediction; `estimated`: of what was seen; `possible`: seen, and what it costs is
    /// inferred from what nothing else explains.
    #[cfg_attr(test, schema(value_type = crate::schema::Certainty))]
    pub certainty: String,
    /// What shows it.
    pub evidence: Vec<EvidenceAnswer>,
    /// What to do, with the command where there is one.
    pub fix: String,
}

/// Something that often slows a run down, and does not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CheckedAnswer {
    /// What.
    pub what: String,
    /// What was found; `null` where it could not be read.
    pub value: Option<String>,
    /// File or field of `GET /v1/state`, or how to have it checked.
    pub source: String,
}

/// `POST /v1/explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ExplainAnswer {
    /// `as_expected`, `slower_than_expected`, `faster_than_expected`; without a measurement `not_measured`.
    #[cfg_attr(test, schema(value_type = crate::schema::ExplainVerdict))]
    pub verdict: String,
    /// The verdict in a sentence with its numbers.
    pub reason: String,
    /// The rate that was measured, or without a measurement the one predicted with every cause.
    pub measured_tokens_per_s: f64,
    /// Predicted for the workload that was expected, at the operating point that was expected.
    pub expected_tokens_per_s: EstimateAnswer,
    /// That operating point in words.
    pub expected_at: String,
    /// Engine that was expected; `none` of a bare operation.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: String,
    /// Format of the weights that was expected; `null` where there are none, or a file does not say.
    pub format: Option<String>,
    /// Causes of the difference, the one first whose removal gains most. Empty unless it is slower than expected or not measured.
    pub causes: Vec<CauseAnswer>,
    /// Part of the difference that no cause explains; `null` where there are no causes to look for.
    pub unexplained_ratio: Option<f64>,
    /// That part as a rate.
    pub unexplained_tokens_per_s: Option<f64>,
    /// Where a slow run has no cause: what was checked, the most usual cause first. Otherwise what a reference kernel showed.
    #[serde(default)]
    pub checked: Vec<CheckedAnswer>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
