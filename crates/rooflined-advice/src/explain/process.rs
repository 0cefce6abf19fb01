//! What of the process and its settings may slow a run down.

use super::cpu_time;
use super::kernels;
use super::suspect::{Change, LESS_TIME, MOST, Suspect, file, log_of};
use rooflined_api::{ExplainRequest, RunEvidence, Speculative, Workload};
use rooflined_core::board::OperatingPoint;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Snapshot;
use serde_json::Value;

/// Longest over shortest repetition from which on other work is likely.
const NOTABLE_SPREAD: f64 = 1.3;
/// Speeds, distances and steps that differ by less are the same.
const LESS_SPEED: f64 = 0.05;
/// No memory is farther, and no first step slower, than this.
const MOST_RATIO: f64 = 1000.0;
/// Bytes a second from storage that are more than a log.
const READING: f64 = 1e6;

/// Numbers of the request that cannot be.
///
/// # Errors
/// The first of them.
pub fn check(seen: &RunEvidence) -> Result<(), Refusal> {
    let ratios = [
        ("cpu_wait_ratio", seen.cpu_wait_ratio),
        ("blocked_ratio", seen.blocked_ratio),
        ("core_speed_ratio", seen.core_speed_ratio),
        ("far_memory_ratio", seen.far_memory_ratio),
        ("acceptance_ratio", seen.acceptance_ratio),
    ];
    let positive = [
        ("cpu_quota", seen.cpu_quota),
        ("memory_ratio", seen.memory_ratio),
        ("product_ratio", seen.product_ratio),
        ("spread_ratio", seen.spread_ratio),
        ("cpu_weight_ratio", seen.cpu_weight_ratio),
        ("cpus_allowed", seen.cpus_allowed.map(f64::from)),
        ("cores_allowed", seen.cores_allowed.map(f64::from)),
    ];
    let bounded =
        [("memory_distance_ratio", seen.memory_distance_ratio), ("warming_ratio", seen.warming_ratio)];
    let others = [
        ("read_bytes_per_s", seen.read_bytes_per_s),
        ("major_faults_per_s", seen.major_faults_per_s),
        ("swapped_bytes", seen.swapped_bytes),
        ("swap_in_bytes_per_s", seen.swap_in_bytes_per_s),
        ("runnable_tasks", seen.runnable_tasks),
        ("others[].cpus", seen.others.iter().map(|other| other.cpus).find(|cpus| *cpus < 0.0)),
    ];
    let refuse = |name: &str, value: f64, range: &str| {
        Err(Code::InvalidField.at(
            format!("seen.{name}"),
            format!("seen.{name} is {value}"),
            format!("give a number {range}, or leave it out"),
        ))
    };
    for (name, value) in ratios {
        if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
            return refuse(name, value, "from 0 to 1");
        }
    }
    for (name, value) in positive {
        if let Some(value) = value.filter(|value| *value <= 0.0) {
            return refuse(name, value, "above 0");
        }
    }
    for (name, value) in bounded {
        if let Some(value) = value.filter(|value| *value <= 0.0 || *value > MOST_RATIO) {
            return refuse(name, value, &format!("above 0 and up to {MOST_RATIO}"));
        }
    }
    for (name, value) in others {
        if let Some(value) = value.filter(|value| *value < 0.0) {
            return refuse(name, value, "of 0 or more");
        }
    }
    Ok(())
}

/// The causes that the process shows.
#[must_use]
pub fn suspects(
    snapshot: &Snapshot,
    expected: &OperatingPoint,
    request: &ExplainRequest,
    seen: &RunEvidence,
) -> Vec<Suspect> {
    let mut found = Vec::new();
    if let Some(actual) = &seen.workload {
        settings(&request.workload, actual, &mut found);
        found.extend(speculation(&request.workload, actual, seen));
    }
    if let Some(version) =
        seen.engine_version.as_ref().filter(|own| request.engine_version.as_ref() != Some(own))
    {
        let change = Change::EngineVersion(version.clone());
        let what = format!("version {version} of {}", request.engine.key());
        found.push(
            Suspect::new("engine_version", what, change, "update the engine to the newest build")
                .shown_by("build_info of the server", version),
        );
    }
    cpu_time::suspects(snapshot, request, seen, &mut found);
    if snapshot.accelerator == Accelerator::Cpu {
        placement(seen, expected, &mut found);
        found.extend(kernels::suspect(&snapshot.board.cpu.features, seen));
        found.extend(kernels::unoptimised(seen));
    } else if seen.gpu_library == Some(false) {
        found.push(
            Suspect::possible(
                "gpu_unused",
                "the process has loaded no library that uses a GPU: it runs on the CPU",
                "install a build of the engine for this GPU, and look at its log for the device that it found",
            )
            .shown_by(file(seen, "maps"), "no libcuda.so"),
        );
    }
    found.extend(pages(seen).map(|pages| match snapshot.accelerator {
        Accelerator::Cpu => pages,
        // Threads sleep while they wait for the GPU, too.
        Accelerator::Gpu => pages.with_unknown_effect(),
    }));
    found.extend(warming(seen));
    for option in &seen.unlike {
        found.push(
            Suspect::possible(
                "options",
                format!("it runs with {option}, for which nothing is predicted"),
                format!("start it without {option}"),
            )
            .shown_by(file(seen, "cmdline"), option),
        );
    }
    if let Some(disturbed) = &seen.disturbed {
        found.push(Suspect::possible("disturbed", disturbed, "repeat it on an idle machine: top"));
    }
    if let Some(spread) = seen.spread_ratio.filter(|spread| *spread > NOTABLE_SPREAD) {
        found.push(
            Suspect::possible(
                "disturbed",
                format!("the longest of its repetitions took {spread:.1} times the shortest: probably other work ran"),
                "repeat it on an idle machine: top",
            )
            .shown_by("longest over shortest repetition", format!("{spread:.2}")),
        );
    }
    found
}

/// A setting that is a number: key, words, expected, actual, what it changes, remedy.
type Count<'a> = (&'static str, &'a str, Option<u64>, Option<u64>, fn(u64) -> Change, &'a str);

/// Settings other than expected.
fn settings(expected: &Workload, actual: &Workload, found: &mut Vec<Suspect>) {
    let shown = |value: Option<u64>| value.map_or_else(|| "the usual".to_owned(), |value| value.to_string());
    let counts: [Count<'_>; 3] = [
        (
            "context",
            "tokens of context",
            expected.context_tokens,
            actual.context_tokens,
            Change::ContextTokens,
            "shorten the prompts, or expect the rate of a long context: --context-tokens N",
        ),
        (
            "batch",
            "sequences at once",
            expected.batch,
            actual.batch,
            Change::Batch,
            "send as many requests at once as were expected, or give --batch N",
        ),
        (
            "chunk",
            "tokens of a prompt in one pass",
            expected.chunk_tokens,
            actual.chunk_tokens,
            Change::ChunkTokens,
            "start llama-server with -ub 512 or more",
        ),
    ];
    for (key, words, was, is, change, fix) in counts {
        let Some(count) = is.filter(|is| was != Some(*is)) else { continue };
        let what = format!("{count} {words} instead of {}", shown(was));
        found.push(Suspect::new(key, what, change(count), fix).shown_by("the server", count.to_string()));
    }
    if let Some(format) =
        actual.kv_format.as_ref().filter(|format| expected.kv_format.as_ref() != Some(format))
    {
        let was = expected.kv_format.as_deref().unwrap_or("fp16");
        found.push(
            Suspect::new(
                "kv_format",
                format!("the cache is stored as {format} instead of {was}"),
                Change::KvFormat(format.clone()),
                "start llama-server with -ctk f16 -ctv f16",
            )
            .shown_by("-ctk, -ctv", format),
        );
    }
    if let Some(offload) = actual.offload.filter(|offload| expected.offload != Some(*offload)) {
        let (option, count) = match (offload.gpu_layers, offload.cpu_moe_layers) {
            (Some(layers), _) => ("-ngl", layers),
            (None, layers) => ("--n-cpu-moe", layers.unwrap_or_default()),
        };
        found.push(
            Suspect::new(
                "offload",
                format!("layers stay in the memory of the CPU: {option} {count}"),
                Change::Offload(offload),
                "start llama-server with -ngl all, and with a smaller format or context if it does not fit",
            )
            .shown_by(option, count.to_string()),
        );
    }
    let is_other = |own: &Value| expected.model.as_ref() != Some(own);
    if let Some(model) = actual.model.as_ref().filter(|own| is_other(own)) {
        let name = |model: &Value, format: &Option<String>| {
            let name = match model {
                Value::String(key) => key.clone(),
                fields => fields.get("path").and_then(Value::as_str).unwrap_or("another model").to_owned(),
            };
            format.as_ref().map_or_else(|| name.clone(), |format| format!("{name} {format}"))
        };
        let is = name(model, &actual.format);
        let was = expected.model.as_ref().map_or_else(String::new, |model| name(model, &expected.format));
        found.push(
            Suspect::new(
                "model",
                format!("the server runs {is}, which is not {was}"),
                Change::Model { model: model.clone(), format: actual.format.clone() },
                "start the server with the file that was meant: -m FILE",
            )
            .shown_by("-m", is),
        );
    }
}

/// Drafted tokens that cost more than they gain.
fn speculation(expected: &Workload, actual: &Workload, seen: &RunEvidence) -> Option<Suspect> {
    let own = actual.speculative.clone().or_else(|| expected.speculative.clone());
    let ratio = seen.acceptance_ratio;
    let own = match (own, ratio) {
        (Some(own), Some(ratio)) => Speculative { acceptance_ratio: Some(ratio), ..own },
        (Some(own), None) => own,
        // Which drafts are made is not known: that they are not accepted is.
        (None, Some(ratio)) => {
            let what = format!("{:.0} % of the drafted tokens are accepted", 100.0 * ratio);
            let suspect = Suspect::possible("speculation", what, LESS_DRAFTS);
            return Some(suspect.shown_by(log_of(seen), format!("draft acceptance rate {ratio:.2}")));
        }
        (None, None) => return None,
    };
    if expected.speculative.as_ref() == Some(&own) {
        return None;
    }
    let accepted = own
        .acceptance_ratio
        .map_or_else(|| "an unknown part".to_owned(), |ratio| format!("{:.0} %", 100.0 * ratio));
    let what = format!("{accepted} of the drafted tokens are accepted");
    let suspect = Suspect::new("speculation", what, Change::Speculative(Box::new(own)), LESS_DRAFTS);
    Some(suspect.shown_by(log_of(seen), accepted))
}

const LESS_DRAFTS: &str = "draft fewer tokens (--draft-max 4), or start it without a draft model";

/// Cores and memory that are slower than others of this machine.
fn placement(seen: &RunEvidence, expected: &OperatingPoint, found: &mut Vec<Suspect>) {
    if let Some(ratio) = seen.core_speed_ratio.filter(|ratio| *ratio < 1.0 - LESS_SPEED) {
        let ratio = ratio.max(1.0 - MOST);
        // A clock slows what is computed, and not what waits for memory.
        let change = expected.cpu_clock.map_or(Change::Rate(ratio), |clock| Change::CpuClock(clock * ratio));
        let pid = seen.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
        found.push(
            Suspect::new(
                "slow_cores",
                format!("the cores that it may use have {:.0} % of the speed of the fastest ones", 100.0 * ratio),
                change,
                format!("give it the fast cores, which lscpu -e=CPU,MAXMHZ shows: sudo taskset -a -p -c CPUS {pid}"),
            )
            .estimated()
            .shown_by(
                seen.core_speed_files.as_deref().unwrap_or("/sys/devices/system/cpu"),
                format!("{ratio:.2} of the fastest"),
            ),
        );
    }
    let far = seen.far_memory_ratio.zip(seen.memory_distance_ratio);
    if let Some((part, distance)) = far.filter(|(_, distance)| *distance > 1.0 + LESS_SPEED) {
        found.push(
            Suspect::new(
                "numa",
                format!(
                    "{:.0} % of its memory lies on another node than its threads, at {distance:.1} times the distance",
                    100.0 * part
                ),
                Change::MemoryRatio(1.0 / distance),
                "start it on one node: numactl --cpunodebind=0 --membind=0 COMMAND; or with llama-server --numa distribute",
            )
            .estimated()
            .shown_by(file(seen, "numa_maps"), format!("{:.0} % far", 100.0 * part)),
        );
    }
}

/// A run that was still becoming faster while it was measured.
fn warming(seen: &RunEvidence) -> Option<Suspect> {
    let ratio = seen.warming_ratio.filter(|ratio| *ratio > 1.0 + LESS_SPEED)?;
    let suspect = Suspect::new(
        "warming",
        format!(
            "it became faster while it was measured: clocks and caches were still cold ({ratio:.2} times the last step)"
        ),
        Change::Rate((1.0 / ratio).max(1.0 - MOST)),
        "measure again once it has run for some seconds, and longer: --for 30s",
    );
    Some(suspect.shown_by("time of a step over that of the last one", format!("{ratio:.2}")))
}

/// Pages that come from storage.
fn pages(seen: &RunEvidence) -> Option<Suspect> {
    let swap = seen.swap_in_bytes_per_s.unwrap_or(0.0);
    // What a process reads from storage has what it reads from swap among it.
    let read = (seen.read_bytes_per_s.unwrap_or(0.0) - swap).max(0.0);
    let faults = seen.major_faults_per_s.unwrap_or(0.0);
    let blocked = seen.blocked_ratio.unwrap_or(0.0).min(MOST);
    if blocked < LESS_TIME || (read.max(swap) < READING && faults < 10.0) {
        return None;
    }
    let is_swap = swap.max(READING) > read && (swap > READING || seen.swapped_bytes.unwrap_or(0.0) > READING);
    let (key, what, rate, fix) = if is_swap {
        (
            "swap",
            "pages of it come back from swap",
            swap.max(read),
            "end what else takes memory, or use a smaller format or context: ps --sort=-rss -eo pid,rss,comm | head",
        )
    } else {
        (
            "page_faults",
            "pages of the model come from storage",
            read,
            "give it memory for the whole file (MemoryMax= and MemoryHigh= of its unit, or a smaller format), or keep it there: --mlock",
        )
    };
    let what = format!(
        "{what}: {:.0} MB/s, and its threads sleep for {:.0} % of the time",
        rate / 1e6,
        100.0 * blocked
    );
    let suspect = Suspect::new(key, what, Change::Rate(1.0 - blocked), fix);
    let suspect = if is_swap {
        suspect.shown_by("/proc/vmstat: pswpin", format!("{:.0} MB/s", swap / 1e6))
    } else {
        suspect.shown_by(file(seen, "io: read_bytes"), format!("{:.0} MB/s", read / 1e6))
    };
    Some(suspect.shown_by(file(seen, "stat: majflt"), format!("{faults:.0}/s")))
}
