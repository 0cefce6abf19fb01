//! `hold`: runs a command in a power mode that meets what it needs. The hold lasts as long as the connection, so it
//! ends with the command, and also if this program is killed. When the daemon is restarted, the same is asked for again: the
//! daemon keeps the hold for its client for a while.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use super::args::HoldArgs;
use super::calibrate;
use super::failure::{Exit, Failure};
use super::words;
use rooflined_advice::parse::parse;
use rooflined_api::{
    CalibrateRequest, HoldConstraints, HoldRequest, ModeDetail, ModesAnswer, RecommendRequest,
};
use rooflined_client::{Client, ClientError, Lines};
use rooflined_core::refusal::Code;
use rooflined_core::units::{Hertz, Watts};
use rooflined_predict::calibration::PlanKind;

/// As shells say it: the command cannot be run, or is not there.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The daemon takes no larger body.
const LONGEST_QUERY: u64 = 60 << 10;
/// Names of holders are cut to this, as the daemon would refuse a longer one.
const LONGEST_NAME: usize = 128;
/// Between two tries to reach a daemon that has gone.
const AGAIN: Duration = Duration::from_millis(500);
/// A switch for the hold may come first.
const ANSWER_TIME: Duration = Duration::from_secs(120);

pub async fn run(context: &mut Context, args: &HoldArgs) -> Result<Exit, Failure> {
    let needs = &args.needs;
    let name = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let name: String = name
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_NAME)
        .collect();
    let query = needs.query.as_deref().map(query).transpose()?;
    let request = HoldRequest {
        constraints: HoldConstraints {
            mode: needs.mode.clone(),
            min_mode: needs.min_mode.clone(),
            max_power: needs.max_power.map(Watts),
            min_gpu_clock: needs.min_gpu_mhz.map(|mhz| Hertz(mhz * 1e6)),
            ..HoldConstraints::default()
        },
        query,
        app_id: if name.is_empty() { "rooflinectl".to_owned() } else { name },
        reason: args.reason.clone(),
        ttl_s: None,
    };
    // Caught from here on, so that none ends this program between the hold and the command.
    let mut signals = Signals::new()?;
    let mut held = Some(match AttachedHold::begin(&mut context.client, request.clone()).await {
        Err(error) if args.calibrate && is_unsatisfiable(&error) => {
            hold_calibrated(&mut context.client, &request, error).await?
        }
        held => held?,
    });
    let mut child = spawn(&args.command)?;
    let status = attend(&mut child, &mut held, &mut signals).await?;
    // The connection closes here, and with it the hold ends.
    drop(held);
    Err(Failure::Ended(code(status)))
}

/// Calibrates in one mode after the other, lowest power first, until one is known to meet `request`, and holds it. A mode
/// that was measured here, and those that draw more than one that turned out to draw too much, are left out.
///
/// # Errors
/// The daemon's last refusal if no mode is left to calibrate; otherwise the error of a calibration or a hold.
async fn hold_calibrated(
    client: &mut Client,
    request: &HoldRequest,
    mut refusal: ClientError,
) -> Result<AttachedHold, Failure> {
    let mut calibrated = BTreeSet::new();
    loop {
        let modes: ModesAnswer = client.get("/v1/modes").await?.parse()?;
        let limit = request.constraints.max_power.map_or(f64::INFINITY, Watts::get);
        let watts = |mode: &&ModeDetail| mode.worst_power_w.unwrap_or(f64::MAX);
        let (measured, unmeasured): (Vec<&ModeDetail>, Vec<&ModeDetail>) =
            modes.modes.iter().partition(|mode| mode.worst_power_source.as_deref() == Some("measured"));
        let too_much =
            measured.iter().map(watts).filter(|watts| *watts > limit).fold(f64::INFINITY, f64::min);
        let next = unmeasured
            .into_iter()
            .filter(|mode| mode.reachable && watts(mode) < too_much && !calibrated.contains(&mode.name))
            .min_by(|a, b| watts(a).total_cmp(&watts(b)));
        let Some(mode) = next else { return Err(refusal.into()) };
        say(&format!("calibrating in {}, whose power was never measured here", mode.name));
        let entered = HoldRequest {
            constraints: HoldConstraints { mode: Some(mode.name.clone()), ..HoldConstraints::default() },
            query: None,
            reason: "calibration before a hold".to_owned(),
            ..request.clone()
        };
        let held = AttachedHold::begin(client, entered).await?;
        let plan = CalibrateRequest { plan: PlanKind::Full, wait: true, force: false };
        calibrate::follow(client, &plan, &mut |_, _| {}).await?;
        drop(held);
        calibrated.insert(mode.name.clone());
        match AttachedHold::begin(client, request.clone()).await {
            Err(error) if is_unsatisfiable(&error) => refusal = error,
            held => return Ok(held?),
        }
    }
}

/// No mode meets the constraints.
fn is_unsatisfiable(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { body, .. } if body.known_code() == Some(Code::Unsatisfiable))
}

/// Starts a command.
///
/// # Errors
/// The exit code that shells give a command that cannot be run.
pub fn spawn(command: &[OsString]) -> Result<Child, Failure> {
    let Some((program, rest)) = command.split_first() else {
        return Err(Failure::usage("there is no command to run"));
    };
    Command::new(program).args(rest).spawn().map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
        let why = words::without_numbers(&error.to_string());
        say(&format!("{} cannot be run: {why}", program.display()));
        Failure::Ended(code)
    })
}

/// The question in a file, or as it stands.
fn query(given: &str) -> Result<RecommendRequest, Failure> {
    let bytes = if given.trim_start().starts_with('{') {
        given.as_bytes().to_vec()
    } else {
        let mut bytes = Vec::new();
        let read = File::open(given).and_then(|file| file.take(LONGEST_QUERY + 1).read_to_end(&mut bytes));
        read.map_err(|error| {
            Failure::usage(format!("--query: {given} cannot be read: {error}"))
                .with_hint("name a file, or give JSON that begins with {, such as '{\"workload\": …}'")
        })?;
        bytes
    };
    if bytes.len() as u64 > LONGEST_QUERY {
        return Err(Failure::usage(format!("--query is longer than {LONGEST_QUERY} bytes"))
            .with_hint("name a model by its key or path instead of giving its fields"));
    }
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
        return Err(Failure::usage(format!("--query: {given} is not JSON (line {}, column {})", error.line(), error.column()))
            .with_hint("write a question as POST /v1/recommend takes it: {\"workload\": {\"model\": \"qwen3-4b\"}, \"engine\": \"llama.cpp\"}"));
    }
    parse(&bytes).map_err(|refusal| Failure::in_option("--query", refusal))
}

/// Waits for the command; passes signals on to it and says what becomes of the hold, of which there may be none.
///
/// # Errors
/// The command is lost.
pub async fn attend(
    child: &mut Child,
    held: &mut Option<AttachedHold>,
    signals: &mut Signals,
) -> Result<ExitStatus, Failure> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    loop {
        tokio::select! {
            status = child.wait() => {
                return status.map_err(|error| Failure::failed(format!("cannot wait for the command: {error}"), "run it again"));
            }
            line = next(held), if held.is_some() => match line {
                Some(line) => tell(&line),
                None => {
                    *held = None;
                    say("the hold has ended; the command goes on without it");
                }
            },
            signal = signals.next() => {
                if let Some(pid) = pid {
                    // It may have ended this instant.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// The next line of the hold; `None` where it has ended.
async fn next(held: &mut Option<AttachedHold>) -> Option<Value> {
    held.as_mut()?.next().await
}

/// A hold, over a connection that is made again where the daemon is.
#[derive(Debug)]
pub struct AttachedHold {
    client: Client,
    request: HoldRequest,
    lines: Option<Lines>,
    /// The daemon said that it ends.
    is_over: bool,
}

impl AttachedHold {
    /// Holds, and says in which mode.
    ///
    /// # Errors
    /// It was refused.
    pub async fn begin(client: &mut Client, request: HoldRequest) -> Result<Self, ClientError> {
        let mut lines = client.hold(&request).await?;
        if let Some(line) = lines.next().await? {
            say(&format!("held in {}", mode_of(&line)));
        }
        Ok(Self { client: client.another(ANSWER_TIME), request, lines: Some(lines), is_over: false })
    }

    /// The next line; `None` where it has ended for good.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(lines) = &mut self.lines {
                if let Ok(Some(line)) = lines.next().await {
                    self.is_over |= line.get("event").and_then(Value::as_str) == Some("ended");
                    return Some(line);
                }
                self.lines = None;
                if self.is_over {
                    return None;
                }
                say("the daemon has gone; the hold is asked for again when it is back");
            }
            match self.client.hold(&self.request).await {
                Ok(lines) => self.lines = Some(lines),
                Err(error) if is_passing(&error) => tokio::time::sleep(AGAIN).await,
                Err(error) => {
                    let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                    say(&format!("the hold was not renewed: {error}{hint}"));
                    return None;
                }
            }
        }
    }
}

/// A daemon that is being started does not answer yet, or is not ready to switch.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::WithoutControl { .. }
        | ClientError::Denied { .. }
        | ClientError::Broken(_)
        | ClientError::TimedOut { .. } => true,
        ClientError::Refused { status, body } => *status == 503 || body.known_code() == Some(Code::Busy),
        _ => false,
    }
}

fn mode_of(line: &Value) -> &str {
    line.get("mode").and_then(Value::as_str).unwrap_or("an unknown mode")
}

fn tell(line: &Value) {
    let mode = || line.get("mode").and_then(Value::as_str).unwrap_or("another mode").to_owned();
    match (line.get("event").and_then(Value::as_str), line.get("satisfied").and_then(Value::as_bool)) {
        // After a restart of the daemon.
        (Some("held"), _) => say(&format!("held in {} again", mode_of(line))),
        (Some("satisfied"), Some(false)) => match line.get("reason").and_then(Value::as_str) {
            Some(reason) => say(&format!("{} does not meet the hold: {reason}", mode())),
            None => say(&format!("{} does not meet the hold", mode())),
        },
        (Some("satisfied"), Some(true)) => say(&format!("{} meets the hold again", mode())),
        (Some("ended"), _) => match line.get("cause").and_then(Value::as_str) {
            Some("auto_off") => say("auto below [policy] was set to \"off\", which ends holds with a query"),
            Some("control_disabled") => say("control was disabled, which ends every hold"),
            _ => {}
        },
        _ => {}
    }
}

/// On standard error, because standard output is the command's.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "rooflinectl: {text}");
}

/// As shells say it: 128 and the signal for a command that was killed.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8)
}

/// The signals that are passed on.
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches them from here on.
    ///
    /// # Errors
    /// They cannot be caught.
    pub fn new() -> Result<Self, Failure> {
        let caught = |kind| {
            signal(kind)
                .map_err(|error| Failure::failed(format!("cannot catch signals: {error}"), "try again"))
        };
        Ok(Self {
            terminate: caught(SignalKind::terminate())?,
            hangup: caught(SignalKind::hangup())?,
            interrupt: caught(SignalKind::interrupt())?,
            quit: caught(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Signal {
        loop {
            let signal = tokio::select! {
                _ = self.terminate.recv() => Signal::TERM,
                _ = self.hangup.recv() => Signal::HUP,
                _ = self.interrupt.recv() => Signal::INT,
                _ = self.quit.recv() => Signal::QUIT,
            };
            // The terminal sends these to the command as well, which shall not hear them twice.
            let from_terminal = matches!(signal, Signal::INT | Signal::QUIT) && in_foreground();
            if !from_terminal {
                return signal;
            }
        }
    }
}

/// Whether keys at the terminal reach this process and its children.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp())
}
