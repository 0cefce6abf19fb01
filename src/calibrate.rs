//! The probe child: this program again as `rooflined probe`, apart because kernels and driver libraries crash.
//!
//! It is given its plan on standard input, which stays open: closing it cancels the run, and so does the death of
//! the daemon. One JSON event a line comes back on standard output.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, copy, sink};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use rooflined_core::names::InstructionSet;
use rooflined_core::units::Seconds;
use rooflined_governor::Event;
use rooflined_predict::calibration::{Accelerator, Plan, ProbeEvent};

/// A sample with tens of thousands of raw times fits; a runaway line does not.
const MAX_LINE_BYTES: u64 = 8 << 20;
/// Of what the probe says on standard error, this much of the end is kept for the failure reason.
const MAX_COMPLAINT_BYTES: usize = 2048;
/// After its own time limit, and after being asked to stop, the probe may take this long.
const GRACE: Duration = Duration::from_secs(2);
/// Between closing its output and being gone.
const LINGER: Duration = Duration::from_millis(500);
/// Code, stacks and allocator on top of the plan's buffers.
const MEMORY_SLACK_BYTES: u64 = 512 << 20;
/// Variables that belong to the daemon's relation with the service manager.
pub(super) const NOT_FOR_THE_CHILD: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"];

/// What is started as a probe.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// The simulated board that it measures; `None` = this machine.
    pub simulated: Option<PathBuf>,
    /// Vector instructions that it measures.
    pub instruction_set: InstructionSet,
    /// Where it keeps what it learns of the GPU's kernels.
    pub known: PathBuf,
}

/// A probe that runs. Dropping it cancels the run.
#[derive(Debug)]
pub struct Probe {
    /// Number of the job.
    pub job: u64,
    /// Dropped to cancel.
    stop: Option<oneshot::Sender<()>>,
}

impl Probe {
    /// Starts the program with `plan`; everything that follows comes as events, [`Event::ProbeEnded`] last.
    #[must_use]
    pub fn start(job: u64, plan: Plan, program: Program, events: mpsc::Sender<Event>) -> Self {
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(async move {
            let outcome = run(job, &plan, &program, &events, stopped).await;
            // The loop outlives its probe, save at the very end.
            let _ = events.send(Event::ProbeEnded { job, outcome }).await;
        });
        Self { job, stop: Some(stop) }
    }

    /// Asks the probe to stop; it ends with what it has.
    pub fn stop(&mut self) {
        self.stop = None;
    }
}

async fn run(
    job: u64,
    plan: &Plan,
    program: &Program,
    events: &mpsc::Sender<Event>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), String> {
    let started = Instant::now();
    let mut child =
        spawn(program).map_err(|error| format!("{} does not start: {error}", program.path.display()))?;
    // A GPU's driver maps what it likes; its probe counts what it asks for, and the unit's limit holds for both.
    let bounded = plan.accelerator == Accelerator::Cpu;
    let limited = limit(&child, plan.memory_limit_bytes, bounded);
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it has no standard streams".into());
    };
    if let Err(error) = limited {
        tracing::warn!(job, %error, "the probe runs without a memory limit of its own");
    }
    let mut line = serde_json::to_vec(plan).map_err(|error| format!("the plan has no JSON form: {error}"))?;
    line.push(b'\n');

    let complaint = tokio::spawn(tail(stderr));
    let mut stdout = BufReader::new(stdout);
    let mut finished = false;
    let talk = async {
        // A probe that dies early is recognised by its exit, not by the broken pipe.
        let _ = stdin.write_all(&line).await;
        listen(job, &mut stdout, events, &mut finished).await
    };
    let time_limit = Duration::try_from_secs_f64(plan.time_limit_s).unwrap_or(Duration::MAX);
    let heard = tokio::select! {
        heard = timeout(time_limit.saturating_add(GRACE), talk) => {
            heard.unwrap_or_else(|_| Err(format!("ran longer than its limit of {} s", plan.time_limit_s)))
        }
        _ = stopped => Err("was stopped".into()),
    };
    drop(stdin);
    // What it still says is of no use, but a probe that cannot write would end in an error instead of its own way.
    let _ = timeout(GRACE, copy(&mut stdout, &mut sink())).await;
    let status = end(&mut child).await;
    // A process of its own that waits in the GPU's driver may outlive it, and hold standard error open.
    let complaint = timeout(GRACE, complaint).await.map_or_else(|_| String::new(), Result::unwrap_or_default);
    let in_time = started.elapsed() < time_limit;
    if heard.is_ok() && !finished && !in_time && status.as_ref().is_ok_and(ExitStatus::success) {
        // In the middle of a step that a busy machine drew out. What was measured before counts.
        let wall = Seconds(started.elapsed().as_secs_f64());
        let cut_short = Some(format!("the time limit of {} s has passed", plan.time_limit_s));
        let event = Box::new(ProbeEvent::Finished { wall, cut_short });
        return events.send(Event::Probe { job, event }).await.map_err(|_| "the daemon is ending".into());
    }
    judge(heard, status, finished, &complaint)
}

fn spawn(program: &Program) -> std::io::Result<Child> {
    let mut command = Command::new(&program.path);
    command.arg("probe");
    match &program.simulated {
        Some(board) => command.arg("--simulate").arg(board),
        None => command.arg("--known").arg(&program.known),
    };
    if program.instruction_set != InstructionSet::Auto {
        command.arg("--instruction-set").arg(program.instruction_set.key());
    }
    // The first GPU by its place on the bus, as the management library counts.
    command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Its own group: Ctrl-C at a terminal is for the daemon, which then stops the probe.
    command.kill_on_drop(true).process_group(0);
    for name in NOT_FOR_THE_CHILD {
        command.env_remove(name);
    }
    command.spawn()
}

/// Bounds what the child may take before it has seen the plan.
fn limit(child: &Child, memory_limit_bytes: u64, bounded: bool) -> std::io::Result<()> {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(pid) = id else { return Ok(()) };
    // If memory runs out all the same, the probe goes first. A kernel without the file has no such choice to make.
    let _ = fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), "900");
    if !bounded {
        return Ok(());
    }
    let bytes = memory_limit_bytes.saturating_add(MEMORY_SLACK_BYTES);
    // Private writable memory, rather than address space, which allocators and drivers reserve without using.
    prlimit(Some(pid), Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    Ok(())
}

/// Hands the child's events on until its output ends.
async fn listen(
    job: u64,
    reader: &mut BufReader<ChildStdout>,
    events: &mpsc::Sender<Event>,
    finished: &mut bool,
) -> Result<(), String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut *reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => return Ok(()),
            Ok(_) if !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES => {
                return Err(format!("wrote a line of more than {MAX_LINE_BYTES} bytes"));
            }
            Ok(_) => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let event: ProbeEvent = serde_json::from_slice(&line)
            .map_err(|error| format!("wrote {:?}, which is no event: {error}", excerpt(&line)))?;
        *finished |= matches!(event, ProbeEvent::Finished { .. });
        if events.send(Event::Probe { job, event: Box::new(event) }).await.is_err() {
            return Err("the daemon is ending".into());
        }
    }
}

/// Waits for the child, whose input is closed by now, and ends it if it does not end.
async fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Ok(status) = timeout(LINGER, child.wait()).await {
        return status;
    }
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
        // It may have ended this instant.
        let _ = kill_process(pid, Signal::TERM);
    }
    if let Ok(status) = timeout(GRACE, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    // A process that waits in a driver may be one that not even this ends.
    timeout(GRACE, child.wait()).await.unwrap_or_else(|_| {
        Err(std::io::Error::other("it waits in the kernel and cannot be stopped; see dmesg"))
    })
}

/// What came of it, in words that follow "the probe failed:".
fn judge(
    heard: Result<(), String>,
    status: std::io::Result<ExitStatus>,
    finished: bool,
    complaint: &str,
) -> Result<(), String> {
    let said = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    let status = match (heard, status) {
        (Err(problem), _) => return Err(format!("it {problem}{said}")),
        (Ok(()), Err(error)) => return Err(format!("it cannot be waited for: {error}")),
        (Ok(()), Ok(status)) => status,
    };
    // `signal: 9 (SIGKILL)` or `exit status: 1`.
    if !status.success() {
        return Err(format!("it ended with {status}{said}"));
    }
    if !finished {
        return Err(format!("it ended before its plan did{said}"));
    }
    Ok(())
}

/// The end of what a stream said, on one line.
async fn tail(mut stream: ChildStderr) -> String {
    tail_of(&mut stream).await
}

async fn tail_of(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(MAX_COMPLAINT_BYTES);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

/// The start of a line for a message.
fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_end_of_a_long_complaint_is_kept() {
        let text = format!("{}\nthe reason\n", "x".repeat(100_000));
        let kept = tail_of(&mut text.as_bytes()).await;
        assert!(kept.len() <= MAX_COMPLAINT_BYTES + 3);
        assert!(kept.ends_with("| the reason"), "{kept}");
    }

    #[test]
    fn a_probe_that_ends_well_without_finishing_has_failed() {
        let ended = Ok(ExitStatus::default());
        let error = judge(Ok(()), ended, false, "out of memory").unwrap_err();
        assert!(error.contains("before its plan did; it said: out of memory"), "{error}");
        assert_eq!(judge(Ok(()), Ok(ExitStatus::default()), true, "noise"), Ok(()));
    }

    #[test]
    fn a_signal_is_named() {
        use std::os::unix::process::ExitStatusExt;
        let error = judge(Ok(()), Ok(ExitStatus::from_raw(9)), false, "").unwrap_err();
        assert!(error.contains("SIGKILL"), "{error}");
    }

    /// What the daemon makes of a program in the place of the probe.
    async fn outcome(script: &str, time_limit_s: f64) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let plan = Plan {
            steps: Vec::new(),
            holds: Vec::new(),
            accelerator: Accelerator::Cpu,
            cpus: Vec::new(),
            warm_up_s: 0.0,
            time_limit_s,
            filling_s: 0.0,
            memory_limit_bytes: 64 << 20,
            seed: 1,
        };
        let (events, mut heard) = mpsc::channel(64);
        let program = Program {
            path,
            simulated: None,
            instruction_set: InstructionSet::Auto,
            known: dir.path().join("known"),
        };
        let probe = Probe::start(7, plan, program, events);
        let ended = loop {
            match heard.recv().await {
                Some(Event::ProbeEnded { job: 7, outcome }) => break outcome,
                Some(_) => {}
                None => panic!("no end was reported"),
            }
        };
        drop(probe);
        ended.expect_err("a failure")
    }

    #[tokio::test]
    async fn a_probe_that_misbehaves_costs_its_run_with_the_reason() {
        const AMPLE: f64 = 100.0;
        const SHORT: f64 = 0.5;
        let cases = [
            ("echo nonsense; exec sleep 100", AMPLE, "which is no event"),
            ("head -c 1000 /dev/zero; exec sleep 100", SHORT, "ran longer than its limit"),
            ("head -c 9000000 /dev/zero | tr '\\0' x; exec sleep 100", AMPLE, "a line of more than"),
            ("read plan; exec sleep 100", SHORT, "ran longer than its limit"),
            ("trap '' TERM; read plan; while :; do sleep 1; done", SHORT, "ran longer than its limit"),
            ("read plan; kill -KILL $$", AMPLE, "SIGKILL"),
            ("read plan; echo 'no memory' >&2; exit 3", AMPLE, "exit status: 3; it said: no memory"),
            ("exit 0", AMPLE, "before its plan did"),
        ];
        for (script, limit, reason) in cases {
            let said = outcome(script, limit).await;
            assert!(said.contains(reason), "{script}: {said}");
        }
    }
}
