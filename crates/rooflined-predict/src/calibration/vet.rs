//! Rejection of implausible samples.

use serde::{Deserialize, Serialize};

use super::sample::{GemvCase, Kernel, Reference, Sample};
use rooflined_core::precision::Precision;
use rooflined_core::units::Seconds;

/// Core-to-core latency from which two cores are said not to share a cache. Same-complex latencies are some tens of
/// nanoseconds, crossing complexes or sockets takes a hundred or several hundred.
const FAR: Seconds = Seconds(120e-9);

/// The regime that a reference measurement belongs to: `single`, `near` or `far`.
#[must_use]
pub fn regime_key(reference: &Reference) -> &'static str {
    match reference.core_to_core {
        None => "single",
        Some(latency) if latency < FAR => "near",
        Some(_) => "far",
    }
}

/// Part of the effective clock by which before and after may differ.
const CLOCK_TOLERANCE: f64 = 0.05;
/// The same beside other work, whose rests let the clock rise: what follows has wide intervals, and takes the mean.
const LOADED_CLOCK_TOLERANCE: f64 = 0.15;
/// Factor between the clocks before and after from which on a sample says nothing: a rate at their mean may be off by a sixth,
/// which the intervals of a record that is marked `loaded` cover.
const CLOCK_LIMIT: f64 = 1.4;
/// Part of the time without its CPU from which on a worker was beside other work.
const LOADED_WAITING: f64 = 0.1;
/// Part of the CPU time that the hypervisor may take.
const STEAL_TOLERANCE: f64 = 0.05;
/// Part of its runs that may have been subtracted from a sample because a worker was without its CPU. While one worker is off,
/// the others have the memory to themselves; what the cores alone decide is known from their own time.
const CORRECTED_TOLERANCE: f64 = 0.1;
const CORRECTED_CORE_TOLERANCE: f64 = 0.7;
/// Factor between the reference bandwidths before and after, for samples that depend on bandwidth.
const BANDWIDTH_TOLERANCE: f64 = 1.35;
/// No kernel of the plan is done in less: what remains below it is what subtracting the overhead left.
const SHORTEST: f64 = 1e-11;
/// Deviation from the scalar reference, relative to the largest output.
const RESULT_TOLERANCE: f64 = 0.02;
/// The clock is read beside a sample, not during it: a peak may lie this factor above the bound at the clock read.
const CLOCK_MARGIN: f64 = 1.1;
/// Bytes that a core can load in one clock cycle: three 64-byte loads is more than any core built so far.
const LOAD_BYTES_PER_CYCLE: f64 = 192.0;

/// The same for an SM: 128 bytes a cycle from the first level, half as much again for margin.
const GPU_LOAD_BYTES_PER_CYCLE: f64 = 192.0;
/// Whether the instruction set is one of a GPU: `sm_87`, or `simulated`, as only GPUs are.
fn is_gpu(isa: &str) -> bool {
    isa.starts_with("sm_") || isa == "simulated"
}

/// Operations that one worker can do in one clock cycle: the widest units built so far. Of a core two 512-bit
/// multiply-add pipes, four times the operands at 8 bits, matrix extensions doubled again; of a streaming
/// SM the tensor cores of compute capability 10 and 11, and for FP4 those of 10.3, which has half as much again.
fn flops_per_cycle(precision: Precision, isa: &str) -> f64 {
    let gpu = is_gpu(isa);
    match precision {
        Precision::Fp4 if isa == "sm_103" => 49_152.0,
        Precision::Fp64 | Precision::Fp32 if gpu => 256.0,
        Precision::Tf32 if gpu => 4096.0,
        Precision::Fp16 | Precision::Bf16 if gpu => 8192.0,
        Precision::Fp8 | Precision::Int8 | Precision::Fp6 if gpu => 16_384.0,
        _ if gpu => 32_768.0,
        Precision::Fp64 => 32.0,
        Precision::Fp32 | Precision::Tf32 => 64.0,
        Precision::Fp16 | Precision::Bf16 => 256.0,
        _ => 512.0,
    }
}

/// A sample that was not used, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    pub kernel: Kernel,
    /// On how many workers.
    pub threads: u32,
    /// `no_runs`, `wrong_result`, `clock_moved`, `other_work`, `steal`, `preempted`, `regime_moved`, `bandwidth_moved`,
    /// `above_physical_bound` or `implausibly_low`.
    pub code: String,
    /// The same with its numbers, for people.
    pub reason: String,
}

/// `None` if the sample can be used.
#[must_use]
pub fn vet(sample: &Sample) -> Option<Rejection> {
    let problem = problem(sample, sample.kernel != Kernel::Wake)?;
    Some(Rejection {
        kernel: sample.kernel,
        threads: sample.threads,
        code: problem.0.to_owned(),
        reason: problem.1,
    })
}

type Problem = Option<(&'static str, String)>;

/// What speaks against a sample, its clock among it or left aside.
fn problem(sample: &Sample, of_clock: bool) -> Problem {
    no_runs(sample)
        .or_else(|| wrong_result(sample))
        .or_else(|| if of_clock { clock_moved(sample) } else { None })
        .or_else(|| sample.other_work.clone().map(|seen| ("other_work", seen)))
        .or_else(|| stolen(sample))
        .or_else(|| preempted(sample))
        .or_else(|| regime_moved(sample))
        .or_else(|| impossible(sample))
}

/// Whether nothing speaks against a sample but a clock that moved, and that by little enough to be covered by wide intervals.
#[must_use]
pub fn only_clock_moved(sample: &Sample) -> bool {
    let (before, after) = (sample.before.clock.effective, sample.after.clock.effective);
    let (slow, fast) = (before.min(after), before.max(after));
    slow.is_positive() && fast <= slow * CLOCK_LIMIT && problem(sample, false).is_none()
}

fn no_runs(sample: &Sample) -> Problem {
    let usable = !sample.times.is_empty() && sample.times.iter().all(|time| time.get() > SHORTEST);
    (!usable).then(|| {
        (
            "no_runs",
            "there is no timed run, or one took no time once the harness' own cost is subtracted".to_owned(),
        )
    })
}

fn wrong_result(sample: &Sample) -> Problem {
    let error = sample.max_error_ratio?;
    // A NaN is wrong too.
    let right = error <= RESULT_TOLERANCE;
    (!right)
        .then(|| ("wrong_result", format!("the result deviates by {error:.2e} from the scalar reference")))
}

fn clock_moved(sample: &Sample) -> Problem {
    let (before, after) = (sample.before.clock.effective, sample.after.clock.effective);
    if !before.is_positive() || !after.is_positive() {
        return Some(("clock_moved", "the clock could not be read".to_owned()));
    }
    let moved = after / before - 1.0;
    let loaded = sample.waiting_ratio.is_some_and(|waiting| waiting >= LOADED_WAITING);
    (moved.abs() > if loaded { LOADED_CLOCK_TOLERANCE } else { CLOCK_TOLERANCE })
        .then(|| ("clock_moved", format!("the clock went from {before} to {after} during the sample")))
}

fn stolen(sample: &Sample) -> Problem {
    let steal = sample.after.steal_ratio?;
    // Where the workers' own accounts show it, the runs that it struck have been left out.
    let accounted = sample.waiting_ratio.is_some_and(|waiting| 2.0 * waiting >= steal);
    (steal > STEAL_TOLERANCE && !accounted)
        .then(|| ("steal", format!("the hypervisor took {:.0} % of the CPU time", steal * 100.0)))
}

fn preempted(sample: &Sample) -> Problem {
    let tolerance = match sample.kernel {
        Kernel::Peak { .. } | Kernel::Gemm { .. } | Kernel::Gemv { case: GemvCase::Cache, .. } => {
            CORRECTED_CORE_TOLERANCE
        }
        _ => CORRECTED_TOLERANCE,
    };
    (sample.corrected_ratio > tolerance).then(|| {
        let lost = sample.corrected_ratio * 100.0;
        ("preempted", format!("others had a worker's CPU for {lost:.0} % even of the least disturbed runs"))
    })
}

/// Whether the machine, rather than the kernel, spoilt a sample: worth measuring again.
#[must_use]
pub fn disturbed(sample: &Sample) -> bool {
    vet(sample).is_some_and(|rejection| {
        matches!(
            rejection.code.as_str(),
            "clock_moved" | "other_work" | "steal" | "preempted" | "regime_moved" | "bandwidth_moved"
        )
    })
}

/// The sample that can be believed most: one that passes [`vet`] before one that does not, then the one whose
/// workers were without their CPU least, then the one beside which memory gave more at its worse end.
pub fn least_disturbed<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<&'a Sample> {
    let waited = |sample: &Sample| sample.waiting_ratio.unwrap_or(0.0);
    let least_read = |sample: &Sample| sample.before.reference.read.min(sample.after.reference.read).get();
    samples.min_by(|a, b| {
        let bad = vet(a).is_some().cmp(&vet(b).is_some());
        bad.then(a.corrected_ratio.total_cmp(&b.corrected_ratio))
            .then(waited(a).total_cmp(&waited(b)))
            .then(least_read(b).total_cmp(&least_read(a)))
    })
}

fn regime_moved(sample: &Sample) -> Problem {
    if !depends_on_bandwidth(&sample.kernel) && !matches!(sample.kernel, Kernel::Wake | Kernel::PingPong) {
        return None;
    }
    let (before, after) = (regime_key(&sample.before.reference), regime_key(&sample.after.reference));
    if before != after {
        return Some(("regime_moved", format!("the cores moved from {before} to {after}")));
    }
    if !depends_on_bandwidth(&sample.kernel) {
        return None;
    }
    let (before, after) = (sample.before.reference.read, sample.after.reference.read);
    let ratio = (before / after).max(after / before);
    (ratio > BANDWIDTH_TOLERANCE)
        .then(|| ("bandwidth_moved", format!("the reference bandwidth went from {before} to {after}")))
}

/// Whether a kernel's time is set by main memory.
#[must_use]
pub const fn depends_on_bandwidth(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Stream { .. } | Kernel::Gemv { case: GemvCase::Dram, .. })
}

fn impossible(sample: &Sample) -> Problem {
    let gpu = is_gpu(&sample.isa);
    let fastest = quantile(&sample.times, 0.05);
    let cycles =
        sample.before.clock.effective.max(sample.after.clock.effective) * fastest * f64::from(sample.threads);
    if let Kernel::Peak { precision } = sample.kernel {
        let per_cycle = sample.flops.get() / cycles;
        if per_cycle > flops_per_cycle(precision, &sample.isa) * CLOCK_MARGIN {
            return Some(("above_physical_bound", format!("{per_cycle:.0} operations a cycle and core")));
        }
        if per_cycle < 0.01 {
            return Some(("implausibly_low", format!("{per_cycle:.4} operations a cycle and core")));
        }
    }
    let per_cycle = sample.bytes.get() / cycles;
    if sample.bytes.is_positive()
        && per_cycle > if gpu { GPU_LOAD_BYTES_PER_CYCLE } else { LOAD_BYTES_PER_CYCLE }
    {
        return Some(("above_physical_bound", format!("{per_cycle:.0} bytes a cycle and core")));
    }
    if depends_on_bandwidth(&sample.kernel) && per_cycle < 1e-3 {
        return Some(("implausibly_low", format!("{per_cycle:.5} bytes a cycle and core")));
    }
    None
}

/// Quantile by nearest rank of a list that need not be sorted; zero for an empty list.
#[must_use]
pub fn quantile(times: &[Seconds], q: f64) -> Seconds {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.get()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q).map_or(Seconds::ZERO, Seconds)
}

/// Where the times lie most densely: the half-sample mode (Bickel and Frühwirth, 2006). It halves the list to its
/// densest half until two or three are left. Unlike the median it stays with the undisturbed runs when other
/// processes slow down many of them. Zero for an empty list.
#[must_use]
pub fn centre(times: &[Seconds]) -> Seconds {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.get()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut rest = &sorted[..];
    while rest.len() > 3 {
        let half = rest.len().div_ceil(2);
        let width = |start: usize| rest[start + half - 1] - rest[start];
        let densest = (0..=rest.len() - half).min_by(|&a, &b| width(a).total_cmp(&width(b))).unwrap_or(0);
        rest = &rest[densest..densest + half];
    }
    match *rest {
        [] => Seconds::ZERO,
        [one] => Seconds(one),
        [a, b] => Seconds((a + b) / 2.0),
        // Of three, the two that are closer.
        [a, b, c, ..] if b - a < c - b => Seconds((a + b) / 2.0),
        [_, b, c, ..] => Seconds((b + c) / 2.0),
    }
}

/// Quantile by nearest rank; `None` for an empty list.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index"
)]
fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((q * last as f64).round() as usize).copied()
}

/// Median of plain numbers; `None` for an empty list.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some((sorted[middle - 1] + upper) / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::calibration::Step;
    use crate::fixtures::sample;

    #[test]
    fn what_was_subtracted_may_be_much_of_the_cores_time_and_little_of_the_memorys() {
        let gemm = Kernel::Gemm { m: 64, n: 1024, k: 1024 };
        let read = Kernel::Stream {
            pattern: super::super::sample::Stream::Read,
            bytes: 64 << 20,
            stores: super::super::sample::Stores::Temporal,
        };
        let corrected = |kernel, corrected_ratio| {
            let step = Step { kernel, threads: 4, budget_s: 0.1 };
            let waiting_ratio = Some(corrected_ratio);
            vet(&Sample { corrected_ratio, waiting_ratio, ..sample(&step, 1.0, 50e-9) }).map(|no| no.code)
        };
        assert_eq!(corrected(gemm, 0.5), None);
        assert_eq!(corrected(read, 0.05), None);
        for (kernel, ratio) in [(gemm, 0.9), (read, 0.5)] {
            assert_eq!(corrected(kernel, ratio).as_deref(), Some("preempted"));
        }
    }

    #[test]
    fn a_stolen_cpu_that_the_workers_saw_spoils_no_sample() {
        let kernel = Kernel::Gemm { m: 64, n: 1024, k: 1024 };
        let mut stolen = sample(&Step { kernel, threads: 4, budget_s: 0.1 }, 1.0, 50e-9);
        stolen.after.steal_ratio = Some(0.3);
        assert_eq!(vet(&stolen).map(|no| no.code).as_deref(), Some("steal"));
        stolen.waiting_ratio = Some(0.25);
        assert_eq!(vet(&stolen), None);
    }

    #[test]
    fn a_sample_beside_other_work_is_worth_taking_again_and_says_what_was_seen() {
        let kernel = Kernel::Peak { precision: Precision::Fp16 };
        let quiet = sample(&Step { kernel, threads: 4, budget_s: 0.1 }, 1.0, 50e-9);
        assert!(vet(&quiet).is_none());
        let beside = Sample { other_work: Some("the GPU stood still for 40 % of the time".into()), ..quiet };
        let why = vet(&beside).unwrap();
        assert_eq!((why.code.as_str(), why.reason.contains("40 %")), ("other_work", true));
        assert!(disturbed(&beside));
    }

    #[test]
    fn of_equals_the_one_beside_which_memory_gave_more_is_believed() {
        let wake = Step { kernel: Kernel::Wake, threads: 4, budget_s: 0.1 };
        let doubted = sample(&wake, 1.0, 50e-9);
        let mut again = doubted.clone();
        for conditions in [&mut again.before, &mut again.after] {
            conditions.reference.read = conditions.reference.read * 1.2;
        }
        for both in [[&doubted, &again], [&again, &doubted]] {
            assert_eq!(least_disturbed(both.into_iter()), Some(&again));
        }
    }

    #[test]
    fn the_fp4_units_of_10_3_are_half_as_fast_again_as_those_of_10_0() {
        // 148 SMs at 1.92 GHz: 14 PFLOPS on 10.3, where 10.0 has 9.3.
        let (sm, clock) = (148, 1.92e9);
        let peak = |isa: &str, precision, per_sm_clock: f64| {
            let step = Step { kernel: Kernel::Peak { precision }, threads: sm, budget_s: 0.1 };
            let mut found = sample(&step, 1e-3, 50e-9);
            for conditions in [&mut found.before, &mut found.after] {
                conditions.clock.effective = rooflined_core::units::Hertz(clock);
            }
            let fastest = quantile(&found.times, 0.05).get();
            let flops = rooflined_core::units::Flops(per_sm_clock * clock * f64::from(sm) * fastest);
            vet(&Sample { isa: isa.into(), flops, ..found }).map(|no| no.code)
        };
        assert_eq!(peak("sm_103", Precision::Fp4, 49_152.0), None);
        assert_eq!(peak("sm_100", Precision::Fp4, 49_152.0).as_deref(), Some("above_physical_bound"));
        assert_eq!(peak("sm_100", Precision::Fp4, 32_768.0), None);
        assert_eq!(peak("sm_103", Precision::Fp8, 24_576.0).as_deref(), Some("above_physical_bound"));
        assert_eq!(peak("sm_103", Precision::Fp4, 60_000.0).as_deref(), Some("above_physical_bound"));
    }

    fn seconds(times: &[f64]) -> Vec<Seconds> {
        times.iter().copied().map(Seconds).collect()
    }

    #[test]
    fn the_centre_stays_with_the_undisturbed_runs() {
        // 40 quiet runs around 1.0 and 60 that shared their core, spread from 1.5 to 3: the median is 1.7.
        let mut times: Vec<f64> = (0..40).map(|i| 1.0 + f64::from(i % 7) * 0.002).collect();
        times.extend((0..60).map(|i| 1.5 + f64::from(i) * 0.025));
        assert!((centre(&seconds(&times)).get() - 1.006).abs() < 0.01);
        assert!(quantile(&seconds(&times), 0.5).get() > 1.6);
    }

    #[test]
    fn the_centre_of_few_runs() {
        assert_eq!(centre(&[]), Seconds(0.0));
        assert_eq!(centre(&seconds(&[2.0])), Seconds(2.0));
        assert_eq!(centre(&seconds(&[2.0, 4.0])), Seconds(3.0));
        assert_eq!(centre(&seconds(&[9.0, 2.0, 4.0])), Seconds(3.0));
        assert_eq!(centre(&seconds(&[1.0; 100])), Seconds(1.0));
    }
}
