//! The steps of a report. Each reads or tries one thing, and leaves what it found in a section of the file.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::super::super::Context;
use super::super::super::args::DoctorArgs;
use super::super::super::calibrate::{self, Progress};
use super::super::super::compare;
use super::super::super::failure::Failure;
use super::super::super::private_daemon::{PrivateDaemon, find_program};
use super::super::super::terminal;
use super::super::super::words;
use super::super::super::working::Working;
use super::super::{Level, findings};
use super::{Sections, StepResult};
use rooflined_api::{
    BoardAnswer, CalibrateRequest, CalibrationAnswer, HoldsAnswer, ModeDetail, ModeRequest, ModesAnswer,
    RevertRequest, StateAnswer, SwitchAnswer,
};
use rooflined_client::{Client, ClientError};
use rooflined_core::board::Reading;
use rooflined_hw::{Discovered, Sampler, SysRoot, bundle, nvml};
use rooflined_predict::calibration::PlanKind;

/// The steps in their order: the name of each, what it looks at, and its time limit in seconds; together less than the report may
/// take.
pub(super) const STEPS: [(Step, &str, &str, u64); 9] = [
    (Step::Doctor, "doctor", "the daemon, its sockets, the kernel", 15),
    (Step::Identity, "identity", "which board it is", 15),
    (Step::Nodes, "nodes", "the device nodes of the GPU's driver", 5),
    (Step::Sensors, "sensors", "two samples of every sensor", 25),
    (Step::Verify, "verify", "every kernel for the GPU once, against the CPU", 110),
    (Step::Calibration, "calibration", "ceilings in the current power mode", 190),
    (Step::Compare, "compare", "operations predicted, then measured", 120),
    (Step::Switch, "switch", "another power mode and back", 60),
    (Step::Bundle, "bundle", "the board's files", 40),
];
/// Longest wait for an answer that nothing has to be measured for.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for a switch.
const SWITCH: Duration = Duration::from_secs(40);
/// The daemon takes a switch back by itself after this long, whatever became of this process.
const CONFIRM_S: f64 = 60.0;
/// Between two samples: rates need two.
const BETWEEN: Duration = Duration::from_secs(1);
/// Between two polls of a switch under way.
const POLL: Duration = Duration::from_millis(200);
/// So many of them have to show the mode that was to be restored.
const POLLS: u32 = 3;
/// A median error above this is no prediction.
const FAR_OFF: f64 = 0.20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Doctor,
    Identity,
    Nodes,
    Sensors,
    Verify,
    Calibration,
    Compare,
    Switch,
    Bundle,
}

impl Step {
    pub async fn perform(self, board: &mut Board, sections: &mut Sections) -> Result<StepResult, Failure> {
        match self {
            Self::Doctor => Ok(doctor(board, sections).await),
            Self::Identity => identity(board, sections).await,
            Self::Nodes => nodes(board, sections).await,
            Self::Sensors => sensors(board, sections).await,
            Self::Verify => verify(board, sections).await,
            Self::Calibration => calibration(board, sections).await,
            Self::Compare => comparison(board, sections).await,
            Self::Switch => switch(board, sections).await,
            Self::Bundle => files(board, sections).await,
        }
    }
}

/// The board and the daemon that is asked about it.
pub(super) struct Board {
    root: SysRoot,
    daemon: Respondent,
    yes: bool,
    ascii: bool,
    /// What the machine is, and, until they are read, where its sensors are.
    found: Option<(rooflined_core::board::Board, Option<Discovered>)>,
    /// The mode to go back to; `None` where nothing was switched.
    original: Option<String>,
}

/// Who answers.
enum Respondent {
    Installed(Client),
    /// Started for this report, and ended with it.
    Private(Client, #[expect(dead_code, reason = "kept to be dropped")] PrivateDaemon),
    Nobody(String),
}

impl Board {
    /// The daemon that answers; on this machine itself a private one where none does.
    pub async fn find(context: &Context, args: &DoctorArgs) -> Result<Self, Failure> {
        if !args.root.is_dir() {
            let message = format!("{} is not a directory", args.root.display());
            return Err(Failure::failed(message, "give --root the directory that holds sys, proc and etc"));
        }
        let root = SysRoot::new(&args.root);
        let mut client = context.client.another(ANSWER);
        let daemon = match client.get("/v1/state").await {
            Ok(answer) => {
                let state: StateAnswer = answer.parse()?;
                if state.simulated && root.is_host() {
                    return Err(Failure::failed(
                        "the daemon's board is simulated",
                        "give --root the directory that the daemon was started with, or stop that daemon",
                    ));
                }
                Respondent::Installed(client)
            }
            Err(ClientError::Unreachable { .. }) if root.is_host() => {
                match PrivateDaemon::start("", None).await {
                    Ok(daemon) => Respondent::Private(daemon.client(ANSWER), daemon),
                    Err(failure) => Respondent::Nobody(failure.to_string()),
                }
            }
            Err(error) => Respondent::Nobody(error.to_string()),
        };
        Ok(Self { root, daemon, yes: args.yes, ascii: context.printer.ascii, found: None, original: None })
    }

    pub const fn root(&self) -> &SysRoot {
        &self.root
    }

    /// The hash that stands for this machine in its records.
    pub fn machine(&self) -> Option<&str> {
        self.found.as_ref()?.0.machine.known().map(String::as_str)
    }

    fn client(&self) -> Option<&Client> {
        match &self.daemon {
            Respondent::Installed(client) | Respondent::Private(client, _) => Some(client),
            Respondent::Nobody(_) => None,
        }
    }

    /// A client of its own with this patience, or the line of a step that needs a daemon.
    fn asking(&self, patience: Duration) -> Result<Client, StepResult> {
        match &self.daemon {
            Respondent::Installed(client) | Respondent::Private(client, _) => Ok(client.another(patience)),
            Respondent::Nobody(why) => Err(StepResult::skipped(format!("no daemon: {why}"))),
        }
    }

    fn simulated(&self) -> bool {
        self.found.as_ref().is_some_and(|(board, _)| board.simulated)
    }

    fn has_gpu(&self) -> bool {
        self.found.as_ref().is_some_and(|(board, _)| board.gpu.known().is_some())
    }

    pub async fn versions(&self) -> Value {
        let daemon = match self.client() {
            Some(client) => client.another(ANSWER).get("/v1/openapi.json").await.ok(),
            None => None,
        };
        let daemon = daemon.and_then(|answer| answer.parse::<Value>().ok());
        let daemon = daemon.and_then(|document| document.pointer("/info/version").cloned());
        let private = matches!(self.daemon, Respondent::Private(..));
        json!({
            "rooflinectl": env!("CARGO_PKG_VERSION"), "rooflined": daemon, "private_daemon": private,
            "architecture": std::env::consts::ARCH, "simulated": self.simulated(),
        })
    }

    /// Goes back to the mode before a switch that a step left behind, however it ended.
    pub async fn restore_mode(&mut self) -> Result<(), String> {
        let Some(original) = self.original.clone() else { return Ok(()) };
        let Some(client) = self.client() else { return Ok(()) };
        let mut client = client.another(SWITCH);
        let deadline = Instant::now() + SWITCH;
        let mut last = String::from("the daemon does not report its power mode");
        let mut seen = 0;
        while Instant::now() < deadline {
            match client.get("/v1/holds").await.and_then(|answer| answer.parse::<HoldsAnswer>()) {
                Ok(holds) if holds.switching.is_some() => "a switch is under way".clone_into(&mut last),
                Ok(HoldsAnswer { pending: Some(pending), .. }) => {
                    let request = RevertRequest { id: Some(pending.id) };
                    if let Err(error) = client.command("/v1/mode/revert", &request).await {
                        last = error.to_string();
                    }
                }
                // An order that a signal cut short may be on its way still.
                Ok(holds) if holds.active_mode.as_ref() == Some(&original) => {
                    seen += 1;
                    if seen == POLLS {
                        self.original = None;
                        return Ok(());
                    }
                }
                Ok(holds) => last = format!("the mode is {:?}", holds.active_mode.unwrap_or_default()),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(POLL).await;
        }
        self.original = None;
        Err(format!("the mode was {original} and has not been restored: {last}"))
    }
}

/// Work that reads files and may wait for a driver, in a thread that the end of this process does not wait for.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let (done, outcome) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where the step has ended.
        let _ = done.send(work());
    });
    outcome.await.map_err(|_| Failure::failed("a reader ended early", "report this"))
}

async fn doctor(board: &Board, sections: &mut Sections) -> StepResult {
    let client = match &board.daemon {
        Respondent::Installed(client) | Respondent::Private(client, _) => client,
        Respondent::Nobody(why) => {
            let remedy = "install it: systemctl enable --now rooflined, or start one: rooflined serve";
            return StepResult::fail(format!("no daemon answers: {why}"), remedy);
        }
    };
    let found = findings(client, &board.root.path("/")).await;
    sections.insert("findings".into(), json!(found));
    let of = |level: Level| found.iter().filter(move |finding| finding.level == level);
    let told = |level| {
        of(level)
            .map(|finding| format!("{}: {}", finding.check, finding.message))
            .collect::<Vec<_>>()
            .join("; ")
    };
    if let Some(first) = of(Level::Fail).next() {
        return StepResult::fail(told(Level::Fail), first.remedy.clone());
    }
    let private = matches!(board.daemon, Respondent::Private(..));
    let begin = if private { "no daemon is installed, a private one was started; " } else { "" };
    match of(Level::Warn).count() {
        0 => StepResult::pass(format!("{begin}{} checks", found.len())),
        _ => StepResult::pass(format!("{begin}{} checks, with warnings: {}", found.len(), told(Level::Warn))),
    }
}

async fn identity(board: &mut Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let root = board.root.clone();
    let (found, discovered) = blocking(move || rooflined_hw::discover(&root)).await?;
    sections.insert("board".into(), json!(found));
    let mut done = judge_identity(&found);
    board.found = Some((found.clone(), Some(discovered)));
    if let Some(client) = board.client() {
        let answer: BoardAnswer = client.another(ANSWER).get("/v1/board").await?.parse()?;
        if answer.key != found.key {
            done = StepResult::fail(
                format!("the daemon identifies it as {}, and this user as {}", answer.key, found.key),
                "see which file the daemon may not read: rooflinectl board, journalctl -u rooflined",
            );
        }
        sections.insert("daemon_board".into(), json!(answer));
    }
    Ok(done)
}

fn judge_identity(found: &rooflined_core::board::Board) -> StepResult {
    let module = found.module.known().map_or_else(String::new, |module| format!(", module {module}"));
    let l4t = found.l4t.known().map_or_else(String::new, |l4t| format!(", L4T {l4t}"));
    match &found.gpu {
        Reading::Known(gpu) => {
            let sm = gpu.sm_total.known().map_or_else(|| "SMs not known".into(), |sm| format!("{sm} SMs"));
            let notes = found.notes.iter().map(|note| format!("; {note}")).collect::<String>();
            StepResult::pass(format!("{}{module}{l4t}, {sm}{notes}", found.key))
        }
        gpu if found.module.known().is_some() => StepResult::fail(
            gpu.reason().unwrap_or("no GPU was found").to_owned(),
            "send the report: a new entry of the registry is made from the board's files in it",
        ),
        gpu => StepResult::pass(format!(
            "{}: {}",
            found.key,
            gpu.reason().unwrap_or("the CPU is the accelerator")
        )),
    }
}

async fn nodes(board: &Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    if board.simulated() {
        return Ok(StepResult::skipped("a simulated board has no device nodes"));
    }
    let root = board.root.clone();
    let nodes = blocking(move || rooflined_hw::gpu_nodes(&root)).await?;
    let listed = nodes.iter().map(|node| json!({ "path": node.path, "denied": node.denied }));
    sections.insert("nodes".into(), listed.collect());
    if let Some(denied) = rooflined_hw::denied_nodes(&nodes) {
        return Ok(StepResult::fail(denied, "sudo usermod -aG video,render \"$USER\", and log in again"));
    }
    Ok(match nodes.len() {
        0 if board.has_gpu() => StepResult::fail(
            "there is no device node of NVIDIA's driver",
            "load it; on a Jetson: systemctl start rooflined-gpu-nodes, then ls /dev/nvgpu /dev/nvmap",
        ),
        0 => StepResult::skipped("there is no NVIDIA driver on this machine"),
        count => StepResult::pass(format!("{count} may be used")),
    })
}

async fn sensors(board: &mut Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let Some(discovered) = board.found.as_mut().and_then(|(_, discovered)| discovered.take()) else {
        return Ok(StepResult::skipped("the board could not be identified"));
    };
    let root = board.root.clone();
    let samples = blocking(move || {
        let mut sampler = Sampler::new(&root, discovered);
        let first = sampler.sample(rooflined_hw::boot_time());
        std::thread::sleep(BETWEEN);
        [first, sampler.sample(rooflined_hw::boot_time())]
    })
    .await?;
    let samples = json!(samples);
    let mut told = ReadingCounts::default();
    told.look("", samples.pointer("/1").unwrap_or(&Value::Null));
    sections.insert("samples".into(), samples);
    if let Some(client) = board.client() {
        let state = client.another(ANSWER).get("/v1/state").await?;
        sections.insert("daemon_state".into(), state.parse()?);
    }
    let ReadingCounts { known, absent, failed } = told;
    Ok(if failed.is_empty() {
        let without =
            if absent.is_empty() { String::new() } else { format!("; without {}", absent.join("; ")) };
        StepResult::pass(format!("{known} values{without}"))
    } else {
        StepResult::fail(failed.join("; "), "the file named there is in the report; a driver may be missing")
    })
}

/// What the readings of a sample tell, those inside of others included.
#[derive(Debug, Default, PartialEq)]
struct ReadingCounts {
    known: usize,
    /// Where, and why.
    absent: Vec<String>,
    failed: Vec<String>,
}

impl ReadingCounts {
    fn look(&mut self, path: &str, value: &Value) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let said = |kind: &str| {
            let reason = value.get(kind)?.get("reason")?.as_str()?;
            Some(format!("{path}: {reason}"))
        };
        match value {
            Value::Object(_) if said("absent").is_some() => self.absent.extend(said("absent")),
            Value::Object(_) if said("failed").is_some() => self.failed.extend(said("failed")),
            Value::Object(fields) => match fields.get("known") {
                Some(inner) => {
                    self.known += 1;
                    self.look(path, inner);
                }
                None => fields.iter().for_each(|(name, value)| self.look(&below(name), value)),
            },
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let name = value.get("name").and_then(Value::as_str);
                    self.look(&below(&name.map_or_else(|| index.to_string(), str::to_owned)), value);
                }
            }
            _ => {}
        }
    }
}

async fn verify(board: &Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    if board.simulated() {
        return Ok(StepResult::skipped("a simulated board has no GPU that could run a kernel"));
    }
    if !board.has_gpu() {
        return Ok(StepResult::skipped("there is no NVIDIA GPU here"));
    }
    let program = find_program("rooflined");
    let cannot = |error: std::io::Error| {
        Failure::failed(
            format!("{} cannot be run: {error}", program.display()),
            "put rooflined next to rooflinectl",
        )
    };
    let mut child = Command::new(&program)
        .args(["probe", "--verify"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot)?;
    let rows = sections.entry("verify").or_insert_with(|| json!([]));
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let said = tokio::spawn(async move {
        let mut said = String::new();
        if let Some(errors) = errors {
            let _ = errors.take(1 << 20).read_to_string(&mut said).await;
        }
        said
    });
    // Each is kept at once: a hang later on costs none of those before.
    if let Some(output) = output {
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await.map_err(cannot)? {
            if let (Ok(row @ Value::Object(_)), Value::Array(rows)) =
                (serde_json::from_str(&line), &mut *rows)
            {
                rows.push(row);
            }
        }
    }
    let status = child.wait().await.map_err(cannot)?;
    let said = said.await.unwrap_or_default();
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let with = |outcome: &'static str| rows.iter().filter(move |row| row.get(outcome).is_some());
    let mut counted = format!("{} kernels ran, {} skipped", with("error").count(), with("skipped").count());
    for outcome in ["faulted", "hung"] {
        let names: Vec<_> = with(outcome).filter_map(|row| row.get("entry")?.as_str()).collect();
        if !names.is_empty() {
            counted.push_str(&format!(", {} {outcome} ({})", names.len(), names.join(", ")));
        }
    }
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it did not say why").to_owned();
    sections.insert("verify_said".into(), said.into());
    Ok(match status.success() {
        true => StepResult::pass(format!("{counted}, none wrong")),
        false => StepResult::fail(format!("{counted}: {last}"), "send the report; Xid lines are in: dmesg"),
    })
}

async fn calibration(board: &Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let mut client = match board.asking(ANSWER) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let request = CalibrateRequest { plan: PlanKind::Full, wait: true, force: true };
    let mut progress = Progress::start(board.ascii);
    let outcome =
        calibrate::follow(&mut client, &request, &mut |fraction, step| progress.show(fraction, step)).await;
    drop(progress);
    // What a run that failed says of itself counts as well.
    let answer: CalibrationAnswer = client.get("/v1/calibration").await?.parse()?;
    let summary = calibrate::summary(&answer);
    sections.insert("calibration".into(), json!(answer));
    sections.insert("roofline".into(), client.get("/v1/roofline").await?.parse()?);
    outcome?;
    Ok(StepResult::pass(summary.lines().next().unwrap_or_default()))
}

async fn comparison(board: &Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let client = match board.asking(ANSWER) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let comparison = compare::compare(&client, &compare::default_work(), &Working::unseen()).await?;
    sections.insert("comparison".into(), json!(comparison));
    let impossible = comparison.rows.iter().any(|row| row.verdict == "impossible");
    let far_off = comparison.median_error_ratio.is_none_or(|error| error > FAR_OFF);
    Ok(if impossible || far_off {
        StepResult::fail(comparison.verdict, "repeat it on a quiet machine: rooflinectl compare")
    } else {
        StepResult::pass(comparison.verdict)
    })
}

async fn switch(board: &mut Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let mut client = match board.asking(SWITCH) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let modes: ModesAnswer = client.get("/v1/modes").await?.parse()?;
    let holds: HoldsAnswer = client.get("/v1/holds").await?.parse()?;
    let (active, target) = (modes.active.clone(), other(&modes));
    sections.insert("modes".into(), json!(modes));
    if let Some(reason) = modes.reason.as_ref().or(holds.unavailable.as_ref()) {
        return Ok(StepResult::skipped(reason));
    }
    if matches!(board.daemon, Respondent::Private(..)) {
        return Ok(StepResult::skipped("a private daemon switches nothing: install it and enable [control]"));
    }
    if !holds.control_enabled {
        return Ok(StepResult::skipped(
            "enabled is not true under [control] in the daemon's configuration file",
        ));
    }
    if !holds.holds.is_empty() || holds.pending.is_some() {
        return Ok(StepResult::skipped("a mode is held, or waits to be confirmed: rooflinectl holds"));
    }
    let Some(active) = active else {
        return Ok(StepResult::skipped("the live files show no mode, so the previous one is unknown"));
    };
    let Some(target) = target else {
        return Ok(StepResult::skipped(format!(
            "from {active} every other mode needs a reboot, or is not allowed"
        )));
    };
    if !board.yes && !agreed(&active, &target).await {
        return Ok(StepResult::skipped(format!("not agreed to; --yes switches to {target} and back")));
    }
    let mut steps = Vec::new();
    let request = |dry_run: bool| ModeRequest {
        mode: target.clone(),
        confirm_within_s: Some(CONFIRM_S).filter(|_| !dry_run),
        dry_run,
        reason: "doctor --report".into(),
    };
    let dry: SwitchAnswer = client.command("/v1/mode", &request(true)).await?.parse()?;
    steps.push(json!(dry));
    sections.insert("switch".into(), json!(steps));
    if dry.outcome != "applied" {
        return Ok(StepResult::skipped(format!("{target}: {}", dry.message)));
    }
    // From here on somebody goes back, whatever happens: the next step, a signal, or the daemon by itself.
    board.original = Some(active.clone());
    let there = client.command("/v1/mode", &request(false)).await;
    let there: SwitchAnswer = match there {
        Ok(answer) => answer.parse()?,
        Err(error) => {
            return Ok(StepResult::fail(format!("{target}: {error}"), error.hint().unwrap_or_default()));
        }
    };
    steps.push(json!(there));
    let state = client.get("/v1/state").await?;
    let shown: Value = state.parse()?;
    sections.insert("switch".into(), json!(steps));
    sections.insert("switched_state".into(), shown);
    board.restore_mode().await.map_err(|why| Failure::failed(why, "rooflinectl mode get"))?;
    let after: HoldsAnswer = client.get("/v1/holds").await?.parse()?;
    sections.insert("after_switch".into(), json!(after));
    Ok(if there.outcome == "applied" && there.reached.as_deref() == Some(target.as_str()) {
        StepResult::pass(format!("{active} to {target} in {} and back", words::time(there.took_s)))
    } else {
        StepResult::fail(
            format!("{target}: {}", there.message),
            "rooflinectl mode list shows which modes may be entered",
        )
    })
}

/// The mode to try: one that needs no reboot, and rather one that leaves the memory as it is.
fn other(modes: &ModesAnswer) -> Option<String> {
    let active = modes.modes.iter().find(|mode| mode.active)?;
    let live = |mode: &&ModeDetail| !mode.active && mode.reachable && mode.reboot_required == Some(false);
    let alters =
        |mode: &&ModeDetail| (mode.emc_max_hz != active.emc_max_hz, mode.tpc_mask != active.tpc_mask);
    modes.modes.iter().filter(live).min_by_key(alters).map(|mode| mode.name.clone())
}

/// Whether the user at the terminal agrees; no answer, or no terminal, means no.
async fn agreed(active: &str, target: &str) -> bool {
    let question = format!("switch from {active} to {target} and back?");
    terminal::is_attended() && terminal::ask(&question, ANSWER * 2).await == Some(true)
}

async fn files(board: &Board, sections: &mut Sections) -> Result<StepResult, Failure> {
    let root = board.root.clone();
    let captured = blocking(move || {
        let answers = if root.is_host() { nvml::captured() } else { Default::default() };
        let heading = format!("board tree, captured by rooflined {}", env!("CARGO_PKG_VERSION"));
        bundle::capture(&root, &answers, &heading)
    })
    .await?;
    let message = format!("{} files", captured.files);
    sections.insert("bundle".into(), captured.text.into());
    sections.insert("bundle_notes".into(), json!(captured.notes));
    Ok(StepResult::pass(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_that_fails_inside_of_a_list_is_told_with_its_path() {
        let mut told = ReadingCounts::default();
        told.look(
            "",
            &json!({
                "taken_at": 3.0,
                "load": {"known": {"average": {"known": 0.5}, "busy": {"absent": {"reason": "no /proc/stat"}}}},
                "rails": {"known": [
                    {"name": "VDD_IN", "power": {"failed": {"reason": "os error 5"}}, "energy": null},
                    {"name": "VDD_SOC", "power": {"known": 4.0}},
                ]},
                "temperatures": {"absent": {"reason": "no zones"}},
            }),
        );
        assert_eq!(told.known, 4, "load, its average, rails, VDD_SOC");
        assert_eq!(told.absent, ["load.busy: no /proc/stat", "temperatures: no zones"]);
        assert_eq!(told.failed, ["rails.VDD_IN.power: os error 5"]);
    }

    #[test]
    fn all_steps_together_take_less_than_a_report_may() {
        let sum: u64 = STEPS.iter().map(|(.., limit)| limit).sum();
        assert!(Duration::from_secs(sum) < super::super::WHOLE, "{sum}");
    }
}
