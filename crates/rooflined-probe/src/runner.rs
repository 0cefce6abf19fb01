//! From a plan to events: the probe's protocol, its limits and its end.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;

use super::clock::boot_time;
use super::cpu::Cpu;
use super::isa;
use super::other_work::find_other_work;
use super::pool::allowed_cpus;
use super::probe::{Outcome, Probe};
use super::worker_supervisor::WorkerSupervisor;
use rooflined_core::units::{Bytes, Flops, Seconds};
use rooflined_predict::calibration::{Accelerator, Held, Hold, Kernel, Plan, ProbeEvent, Step, disturbed};

/// Bytes of a plan that are read at most.
const MAX_PLAN_BYTES: u64 = 1 << 20;
const MAX_STEPS: usize = 10_000;
/// Loads held for the power meter.
const MAX_HOLDS: usize = 100;
/// What a process of its own adds to a step, in seconds: the driver is opened, and translates the kernel.
const APART_S: f64 = 3.0;
/// Times that a step is measured again when the machine moved under it.
const MAX_RETRIES: u32 = 6;
/// How long a step that is already running may overrun a limit before the process ends without a farewell.
const GRACE: Duration = Duration::from_millis(700);
/// The same where the step runs in a worker, which is killed meanwhile.
const GPU_GRACE: Duration = Duration::from_millis(1700);

/// Makes what measures a plan in place of this machine.
pub type Substitute<'a> = &'a dyn Fn(&Plan) -> io::Result<Box<dyn Probe>>;

/// Measures `plan` on this machine's CPU or GPU, as the plan says, or with the `substitute`, and writes one event a line to
/// `out`. What is learnt of the GPU's kernels is kept in `known`.
///
/// # Errors
/// If the plan makes no sense, no worker can be started, buffers cannot be mapped, there is no substitute, no driver or no
/// GPU, the GPU is lost before anything is measured, or `out` is closed.
fn run(
    plan: &Plan,
    substitute: Option<Substitute<'_>>,
    known: Option<PathBuf>,
    out: &mut dyn Write,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<()> {
    check(plan).map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    let started = Instant::now();
    match (substitute, plan.accelerator) {
        (Some(substitute), _) => drive(substitute(plan)?.as_mut(), plan, started, out, cancelled),
        (None, Accelerator::Cpu) => {
            let plan = avoid_other_work(plan, out)?;
            drive(&mut Cpu::new(&plan)?, &plan, started, out, cancelled)
        }
        (None, Accelerator::Gpu) => {
            let mut supervisor = WorkerSupervisor::open(plan, known, cancelled).map_err(io::Error::other)?;
            emit(out, &ProbeEvent::Device(supervisor.facts().clone()))?;
            drive(&mut supervisor, plan, started, out, cancelled)
        }
    }
}

/// Reports what else the machine does, and gives a plan for some of the CPUs the idlest ones.
fn avoid_other_work<'a>(plan: &'a Plan, out: &mut dyn Write) -> io::Result<Cow<'a, Plan>> {
    let cpus = allowed_cpus(&plan.cpus)?;
    let Some((other_work, idlest)) = find_other_work(&cpus) else { return Ok(Cow::Borrowed(plan)) };
    let choose = plan.cpus.is_empty()
        && other_work.busy_cpus > 0
        && plan.steps.iter().all(|step| (step.threads as usize) < idlest.len());
    emit(out, &ProbeEvent::Beside(other_work))?;
    Ok(if choose { Cow::Owned(Plan { cpus: idlest, ..plan.clone() }) } else { Cow::Borrowed(plan) })
}

/// Hands the steps of `plan` to `probe`, in order, until they are done, `cancelled`, or out of time since `started`.
///
/// # Errors
/// If `out` cannot be written.
pub fn drive(
    probe: &mut dyn Probe,
    plan: &Plan,
    started: Instant,
    out: &mut dyn Write,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<()> {
    let (measuring, limit_s) = (Instant::now(), plan.time_limit_s - plan.filling_s);
    let reason = || {
        if cancelled() {
            Some("cancelled".to_owned())
        } else if measuring.elapsed().as_secs_f64() >= limit_s
            || started.elapsed().as_secs_f64() >= plan.time_limit_s
        {
            Some(format!("the time limit of {limit_s} s has passed"))
        } else {
            None
        }
    };
    let stop = || reason().is_some();
    let all = plan.steps.len() + plan.holds.len();
    let (idle, loads): (Vec<&Hold>, Vec<&Hold>) = plan.holds.iter().partition(|hold| hold.kernel.is_none());
    // Before anything has run: afterwards the machine takes seconds to be idle again.
    hold(probe, &idle, (0, all), out, &stop)?;
    let mut done = idle.len();
    let mut cut_short = None;
    // What may cost the device comes last.
    let apart = |kernel: &Kernel| probe.stands_apart(kernel);
    let (late_steps, steps): (Vec<&Step>, Vec<&Step>) =
        plan.steps.iter().partition(|step| apart(&step.kernel));
    let (late_loads, loads): (Vec<&Hold>, Vec<&Hold>) =
        loads.into_iter().partition(|hold| hold.kernel.as_ref().is_some_and(apart));
    let late = (late_steps.len() + late_loads.len(), length(&late_loads));
    for (steps, loads, (late, holding)) in [(steps, loads, late), (late_steps, late_loads, (0, 0.0))] {
        let begun = Instant::now();
        let (mut unsettled, cut) = measured(probe, &steps, (done, all), out, &reason)?;
        cut_short = cut_short.or(cut);
        // What has not been measured once goes before what has been.
        let each = begun.elapsed().as_secs_f64() * part(1, steps.len());
        let rest = times(loads.len(), each) + length(&loads) + times(late, each + APART_S) + holding;
        let spent =
            || measuring.elapsed().as_secs_f64().max(started.elapsed().as_secs_f64() - plan.filling_s);
        let spare = || !stop() && spent() + each + rest < limit_s;
        for _ in 0..MAX_RETRIES {
            let before = unsettled.len();
            unsettled = again(probe, unsettled, out, (&stop, &spare))?;
            // What did not help any step will not help the next time.
            if unsettled.len() == before {
                break;
            }
        }
        done += steps.len();
        hold(probe, &loads, (done, all), out, &stop)?;
        done += loads.len();
    }
    if let Some(reason) = probe.lost() {
        return Err(io::Error::other(reason));
    }
    emit(out, &ProbeEvent::Finished { wall: Seconds(started.elapsed().as_secs_f64()), cut_short })
}

/// Measures steps, before which `done` of `all` entries of the plan were there; those that the machine moved under, and why
/// there are no more, if not all were reached.
fn measured<'a>(
    probe: &mut dyn Probe,
    steps: &[&'a Step],
    (done, all): (usize, usize),
    out: &mut dyn Write,
    reason: &dyn Fn() -> Option<String>,
) -> io::Result<(Vec<&'a Step>, Option<String>)> {
    let (mut unsettled, mut settled) = (Vec::new(), Vec::new());
    let mut cut_short = None;
    for (index, step) in steps.iter().enumerate() {
        cut_short = reason();
        if cut_short.is_some() {
            break;
        }
        let fraction = part(done + index, all);
        let threads = if step.threads == 1 { "1 thread".into() } else { format!("{} threads", step.threads) };
        emit(
            out,
            &ProbeEvent::Progress { fraction, step: format!("{}, {threads}", step.kernel.describe()) },
        )?;
        match probe.measure(step, &|| reason().is_some()) {
            Outcome::Measured(sample) => {
                if disturbed(&sample) {
                    unsettled.push(*step);
                } else {
                    settled.push((*step, sample.clone()));
                }
                emit(out, &ProbeEvent::Sample(sample))?;
            }
            Outcome::Skipped(reason) => emit(out, &ProbeEvent::Skipped { kernel: step.kernel, reason })?,
            Outcome::Stopped => {}
            Outcome::Lost(reason) => return Err(io::Error::other(reason)),
        }
    }
    // The last step may have been stopped half-way.
    let cut_short = cut_short.or_else(|| if steps.is_empty() { None } else { reason() });
    // What looked right until others did better.
    for (step, sample) in settled {
        if probe.in_doubt(&sample) {
            unsettled.push(step);
        }
    }
    Ok((unsettled, cut_short))
}

#[expect(clippy::cast_precision_loss, reason = "at most ten thousand steps")]
fn times(count: usize, each_s: f64) -> f64 {
    count as f64 * each_s
}

/// Seconds that loads are held for.
fn length(holds: &[&Hold]) -> f64 {
    holds.iter().map(|hold| hold.hold_s).sum()
}

#[expect(clippy::cast_precision_loss, reason = "at most ten thousand steps")]
fn part(done: usize, all: usize) -> f64 {
    done as f64 / all.max(1) as f64
}

/// Holds loads for the power meter; `done` of `all` entries of the plan were there before.
fn hold(
    probe: &mut dyn Probe,
    holds: &[&Hold],
    (done, all): (usize, usize),
    out: &mut dyn Write,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    for (index, hold) in holds.iter().enumerate() {
        let Ok(length) = Duration::try_from_secs_f64(hold.hold_s) else { continue };
        if stop() {
            break;
        }
        let what = hold.kernel.map_or_else(|| "idle".to_owned(), |kernel| kernel.describe());
        let fraction = part(done + index, all);
        emit(out, &ProbeEvent::Holding { fraction, step: format!("power of {what}") })?;
        let held = match hold.kernel {
            None => Ok(rest(length, stop)),
            Some(kernel) => {
                let step = Step { kernel, threads: hold.threads, budget_s: hold.hold_s };
                probe.hold(&step, length, stop)
            }
        };
        emit(
            out,
            &match held {
                Ok(held) => ProbeEvent::Held(Box::new(held)),
                Err(reason) => ProbeEvent::NotHeld { kernel: hold.kernel, reason },
            },
        )?;
    }
    Ok(())
}

/// Nothing for `length`.
fn rest(length: Duration, stop: &dyn Fn() -> bool) -> Held {
    let (began, start) = (boot_time(), Instant::now());
    while start.elapsed() < length && !stop() {
        thread::sleep(Duration::from_millis(20).min(length));
    }
    Held {
        kernel: None,
        began,
        ended: boot_time(),
        flops: Flops(0.0),
        bytes: Bytes(0.0),
        weights: 0.0,
        temperature: None,
    }
}

/// Measures steps once more that the machine moved under, while there is time to spare; returns those that it moved under
/// again. What the time that is left does not suffice for has been measured once, so nothing is cut short.
fn again<'a>(
    probe: &mut dyn Probe,
    steps: Vec<&'a Step>,
    out: &mut dyn Write,
    (stop, spare): (&dyn Fn() -> bool, &dyn Fn() -> bool),
) -> io::Result<Vec<&'a Step>> {
    let mut unsettled = Vec::new();
    for step in steps {
        if !spare() {
            break;
        }
        emit(
            out,
            &ProbeEvent::Progress { fraction: 1.0, step: format!("{}, again", step.kernel.describe()) },
        )?;
        match probe.measure(step, stop) {
            Outcome::Measured(sample) => {
                if disturbed(&sample) {
                    unsettled.push(step);
                }
                emit(out, &ProbeEvent::Sample(sample))?;
            }
            Outcome::Lost(reason) => return Err(io::Error::other(reason)),
            Outcome::Skipped(_) | Outcome::Stopped => {}
        }
    }
    Ok(unsettled)
}

fn emit(out: &mut dyn Write, event: &ProbeEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Says what is wrong with a plan as a whole. What is wrong with one step only skips that step.
fn check(plan: &Plan) -> Result<(), String> {
    let positive = |value: f64, name: &str| {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(format!("{name} is {value}, expected a positive time"))
        }
    };
    positive(plan.time_limit_s, "time_limit_s")?;
    if !(0.0..plan.time_limit_s).contains(&plan.filling_s) {
        return Err(format!("filling_s is {}, expected a part of the time limit", plan.filling_s));
    }
    if !plan.warm_up_s.is_finite() || plan.warm_up_s < 0.0 {
        return Err(format!("warm_up_s is {}, expected zero or a positive time", plan.warm_up_s));
    }
    if plan.steps.len() > MAX_STEPS {
        return Err(format!("{} steps, expected at most {MAX_STEPS}", plan.steps.len()));
    }
    for (index, step) in plan.steps.iter().enumerate() {
        positive(step.budget_s, &format!("budget_s of step {index} ({})", step.kernel.describe()))?;
    }
    if plan.holds.len() > MAX_HOLDS {
        return Err(format!("{} holds, expected at most {MAX_HOLDS}", plan.holds.len()));
    }
    for (index, hold) in plan.holds.iter().enumerate() {
        positive(hold.hold_s, &format!("hold_s of hold {index}"))?;
    }
    Ok(())
}

/// The subcommand `rooflined probe`: a plan on standard input, events on standard output. A `substitute` is measured in
/// place of this machine; how kernels of the GPU that stand apart end is kept in the file `known`.
///
/// It ends when the plan is done, its time limit has passed, its standard input or output is closed, or by SIGTERM,
/// whose default action is right for a process with nothing to clean up.
#[must_use]
pub fn probe_main(
    substitute: Option<Substitute<'_>>,
    known: Option<PathBuf>,
    instruction_set: Option<&str>,
) -> ExitCode {
    if let Some(problem) = instruction_set.and_then(|name| isa::force(name).err()) {
        eprintln!("rooflined probe: {problem}");
        return ExitCode::from(2);
    }
    let mut stdin = BufReader::new(io::stdin());
    let plan = match read_plan(&mut stdin) {
        Ok(plan) => plan,
        Err(problem) => {
            eprintln!("rooflined probe: {problem}");
            return ExitCode::from(2);
        }
    };
    let cancelled = Arc::new(AtomicBool::new(false));
    // A plan from a regular file ends right behind its last byte, which says nothing about the one who asked.
    let is_file = rustix::fs::fstat(io::stdin())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let end = |cancelled: &AtomicBool| {
        cancelled.store(true, Ordering::Relaxed);
        thread::sleep(GRACE);
        std::process::exit(0);
    };
    if !is_file {
        let cancelled = Arc::clone(&cancelled);
        thread::spawn(move || {
            // Whatever else arrives is ignored; only the end counts.
            let _ = io::copy(&mut stdin, &mut io::sink());
            end(&cancelled);
        });
    }
    {
        let cancelled = Arc::clone(&cancelled);
        thread::spawn(move || {
            // With nothing asked for, only a reader that is gone ends the wait.
            let stdout = io::stdout();
            while poll(&mut [PollFd::new(&stdout, PollFlags::empty())], None).is_err() {}
            end(&cancelled);
        });
    }
    let gpu = plan.accelerator == Accelerator::Gpu && substitute.is_none();
    if let Ok(limit) = Duration::try_from_secs_f64(plan.time_limit_s) {
        thread::spawn(move || {
            thread::sleep(limit.saturating_add(if gpu { GPU_GRACE } else { GRACE }));
            std::process::exit(0);
        });
    }
    match run(&plan, substitute, known, &mut io::stdout().lock(), &|| cancelled.load(Ordering::Relaxed)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our events has gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rooflined probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_plan(input: &mut impl BufRead) -> Result<Plan, String> {
    let mut line = Vec::new();
    let read = input
        .take(MAX_PLAN_BYTES + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| format!("cannot read the plan from standard input: {error}"))?;
    if read == 0 {
        return Err("standard input is empty, expected a plan as one line of JSON".into());
    }
    if line.len() as u64 > MAX_PLAN_BYTES {
        return Err(format!("the plan is longer than {MAX_PLAN_BYTES} bytes"));
    }
    serde_json::from_slice(&line).map_err(|error| format!("standard input holds no valid plan: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::units::{BytesPerSecond, Hertz};
    use rooflined_predict::calibration::{Clock, Conditions, Reference, Sample};
    use std::cell::Cell;

    struct Scripted;

    impl Probe for Scripted {
        fn measure(&mut self, _: &Step, _: &dyn Fn() -> bool) -> Outcome {
            Outcome::Skipped("scripted".into())
        }
    }

    fn plan(steps: usize) -> Plan {
        Plan {
            steps: vec![Step { kernel: Kernel::Wake, threads: 1, budget_s: 0.001 }; steps],
            holds: Vec::new(),
            accelerator: Accelerator::Cpu,
            cpus: vec![],
            warm_up_s: 0.0,
            time_limit_s: 10.0,
            filling_s: 0.0,
            memory_limit_bytes: 1 << 20,
            seed: 1,
        }
    }

    fn events(out: &[u8]) -> Vec<ProbeEvent> {
        out.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn a_cancelled_plan_says_so_and_still_finishes() {
        let asked = Cell::new(0);
        let mut out = Vec::new();
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        drive(&mut Scripted, &plan(5), Instant::now(), &mut out, &cancelled).unwrap();
        let events = events(&out);
        assert!(events.len() < 11);
        assert!(
            matches!(events.last(), Some(ProbeEvent::Finished { cut_short: Some(why), .. }) if why == "cancelled")
        );
    }

    #[test]
    fn a_bad_plan_is_named_and_an_endless_one_is_cut() {
        assert!(read_plan(&mut &b""[..]).unwrap_err().contains("empty"));
        assert!(read_plan(&mut &b"{\"steps\":["[..]).unwrap_err().contains("no valid plan"));
        assert!(read_plan(&mut &vec![b' '; 2 << 20][..]).unwrap_err().contains("longer than"));
        let mut bad = plan(1);
        bad.steps[0].budget_s = f64::NAN;
        assert!(check(&bad).unwrap_err().contains("budget_s of step 0"));
        let full = Plan { filling_s: 10.0, ..plan(1) };
        assert!(check(&full).unwrap_err().contains("filling_s is 10"));
    }

    /// Every sample is disturbed, and takes a while.
    struct Disturbed;

    impl Probe for Disturbed {
        fn measure(&mut self, step: &Step, _: &dyn Fn() -> bool) -> Outcome {
            thread::sleep(Duration::from_millis(20));
            let conditions = Conditions {
                clock: Clock { effective: Hertz(1e9), reported: None },
                reference: Reference { read: BytesPerSecond(1e9), core_to_core: None },
                steal_ratio: None,
                temperature: None,
            };
            Outcome::Measured(Box::new(Sample {
                kernel: step.kernel,
                threads: step.threads,
                isa: "sm_87".into(),
                flops: Flops(0.0),
                bytes: Bytes(0.0),
                weights: 0.0,
                times: vec![Seconds(1e-3); 3],
                overhead: Seconds::ZERO,
                max_error_ratio: None,
                waiting_ratio: None,
                left_out: 0,
                corrected_ratio: 0.0,
                other_work: Some("somebody".into()),
                before: conditions,
                after: conditions,
            }))
        }

        fn hold(&mut self, _: &Step, _: Duration, _: &dyn Fn() -> bool) -> Result<Held, String> {
            Err("scripted".into())
        }

        fn stands_apart(&self, kernel: &Kernel) -> bool {
            *kernel == Kernel::Submit
        }
    }

    #[test]
    fn nothing_is_taken_again_in_the_time_that_the_rest_needs() {
        let samples = |time_limit_s, hold_s| {
            let mut plan = Plan { time_limit_s, ..plan(2) };
            plan.steps.push(Step { kernel: Kernel::Submit, ..plan.steps[0] });
            plan.holds.push(Hold { kernel: Some(Kernel::Wake), threads: 1, hold_s });
            let mut out = Vec::new();
            drive(&mut Disturbed, &plan, Instant::now(), &mut out, &|| false).unwrap();
            let of = |kernel| {
                let all = events(&out);
                all.iter()
                    .filter(|event| matches!(event, ProbeEvent::Sample(sample) if sample.kernel == kernel))
                    .count()
            };
            (of(Kernel::Wake), of(Kernel::Submit))
        };
        // Twice each: what does not help any step is not tried a third time.
        assert_eq!(samples(1000.0, 1.0), (4, 2));
        // The load needs what is left, and afterwards there is time again.
        assert_eq!(samples(1000.0, 999.0), (2, 2));
    }

    #[test]
    fn time_for_buffers_is_not_for_steps() {
        let measured = |filling_s, spent: Duration| {
            let plan = Plan { time_limit_s: 60.0, filling_s, ..plan(3) };
            let (mut out, began) = (Vec::new(), Instant::now().checked_sub(spent).unwrap());
            drive(&mut Scripted, &plan, began, &mut out, &|| false).unwrap();
            events(&out).iter().filter(|event| matches!(event, ProbeEvent::Skipped { .. })).count()
        };
        // Buffers that took long leave the steps their own time, and buffers that came at once do not add to it.
        assert_eq!(measured(50.0, Duration::from_secs(40)), 3);
        assert_eq!(measured(60.0 - 1e-9, Duration::ZERO), 0);
        assert_eq!(measured(50.0, Duration::from_secs(61)), 0);
    }
}
