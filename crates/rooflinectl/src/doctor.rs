//! `doctor`: why something does not work, seen from the client's side. Every finding ends with its remedy.

mod control;
mod machine;
mod report;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::args::DoctorArgs;
use super::explain::causes;
use super::failure::{Exit, Failure};
use super::output::Format;
use super::reference::MEMORY;
use super::words;
use rooflined_api::{BoardAnswer, CalibrationAnswer, ExplainAnswer, ExplainRequest, StateAnswer, Workload};
use rooflined_client::address::{Address, Socket};
use rooflined_client::{Answer, Client, ClientError};

/// Longest wait for each answer: a doctor does not hang.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// A calibration older than this (30 days, the default of `calibration.max_age_s`) deserves a word.
const OLD_S: f64 = 2_592_000.0;
/// Above this busy part of the CPUs the default configuration starts no calibration by itself.
const BUSY_RATIO: f64 = 0.2;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but less well.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub message: String,
    /// What to do; empty if nothing.
    pub remedy: String,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), remedy: String::new() }
    }

    fn warn(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, message: message.into(), remedy: remedy.into() }
    }

    fn fail(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, message: message.into(), remedy: remedy.into() }
    }

    fn failed_call(check: &'static str, error: &ClientError) -> Self {
        Self::fail(check, error.to_string(), error.hint().unwrap_or_default())
    }
}

pub async fn run(context: &mut Context, args: &DoctorArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.report {
        return report::run(context, args, file).await;
    }
    let findings = findings(&context.client, Path::new("/")).await;
    let failed = findings.iter().any(|finding| finding.level == Level::Fail);
    if context.printer.format == Format::Human {
        for finding in &findings {
            context.printer.text(&render(finding))?;
        }
    } else {
        context.printer.value("doctor", &serde_json::json!({ "rows": findings, "ok": !failed }))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// What is found of the daemon that `client` asks and of the machine below `root`.
async fn findings(client: &Client, root: &Path) -> Vec<Finding> {
    let mut findings = sockets(client.addresses());
    let query = |address: &Address| address.of(Socket::Query).to_owned();
    let system =
        client.addresses().iter().map(query).any(|path| path.starts_with("/run/rooflined") && path.exists());
    findings.extend(control::way(root, system && root == Path::new("/")));
    findings.extend(daemon(&mut client.another(TIME_LIMIT)).await);
    findings.extend(machine::facts(root));
    findings
}

fn render(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Ok => "ok  ",
        Level::Warn => "warn",
        Level::Fail => "FAIL",
    };
    let remedy =
        if finding.remedy.is_empty() { String::new() } else { format!("\n       -> {}", finding.remedy) };
    format!("{level} {}: {}{remedy}\n", finding.check, finding.message)
}

/// The socket files at every place where a daemon might be. Only one place needs to have them.
fn sockets(addresses: &[Address]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (address, socket) in addresses.iter().flat_map(|a| [(a, Socket::Query), (a, Socket::Control)]) {
        let path = address.of(socket);
        let Ok(found) = fs::metadata(path) else { continue };
        let check = if socket == Socket::Query { "query socket" } else { "control socket" };
        let mode = found.mode() & 0o777;
        let shown = control::describe_file(path, &found);
        findings.push(if !found.file_type().is_socket() {
            Finding::fail(check, format!("{shown} is not a socket"), "move it away and start the daemon again")
        } else if socket == Socket::Control && mode & 0o002 != 0 {
            Finding::warn(
                check,
                format!("{shown}: anyone may connect"),
                "chmod o-w it; the unit file sets 0660",
            )
        } else if let Some(owner) = foreign_owner(path).filter(|_| socket == Socket::Control) {
            Finding::fail(
                check,
                format!("{shown}: user {owner} owns its directory and could put another socket in its place"),
                "systemd-tmpfiles --create rooflined.conf && systemctl restart rooflined-control.socket rooflined",
            )
        } else {
            Finding::ok(check, shown)
        });
    }
    if findings.is_empty() {
        let places: Vec<_> = addresses.iter().map(|a| a.of(Socket::Query).display().to_string()).collect();
        let remedy = "systemctl start rooflined, or by hand: rooflined serve";
        findings.push(Finding::fail("query socket", format!("none at {}", places.join(", ")), remedy));
    }
    findings
}

/// Who owns the directory of a socket, if it is neither root nor this user.
fn foreign_owner(path: &Path) -> Option<u32> {
    let owner = fs::metadata(path.parent()?).ok()?.uid();
    (owner != 0 && owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// What the daemon says of itself.
async fn daemon(client: &mut Client) -> Vec<Finding> {
    let state = match client.get("/v1/state").await {
        Ok(answer) => answer,
        Err(error) => return vec![Finding::failed_call("daemon", &error)],
    };
    let mut findings = vec![version(client).await];
    findings.push(match client.get("/-/ready").await {
        Ok(_) => Finding::ok("ready", format!("serial {}", state.serial.unwrap_or_default())),
        Err(error) => {
            Finding::warn("ready", error.to_string(), "give it some seconds, then: journalctl -u rooflined")
        }
    });
    findings.extend(control::control(client).await);
    if let Ok(board) = client.get("/v1/board").await.and_then(|answer| answer.parse::<BoardAnswer>()) {
        findings.push(identity(&board));
    }
    match client.get("/v1/calibration").await.and_then(|answer| answer.parse()) {
        Ok(answer) => {
            findings.extend(state_findings(&state, is_running(&answer)));
            findings.extend(calibration(&answer));
        }
        Err(error) => {
            findings.extend(state_findings(&state, false));
            findings.push(Finding::failed_call("calibration", &error));
        }
    }
    findings.extend(causes(client).await);
    findings
}

async fn version(client: &mut Client) -> Finding {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let document = client.get("/v1/openapi.json").await.and_then(|answer| answer.parse::<Value>());
    match document.as_ref().map(|document| document.pointer("/info/version").and_then(Value::as_str)) {
        Ok(Some(version)) if version == OWN => Finding::ok("daemon", format!("answers, version {version}")),
        Ok(Some(version)) => Finding::warn(
            "daemon",
            format!("answers, version {version}, and rooflinectl is {OWN}"),
            "restart the daemon after an update: systemctl restart rooflined",
        ),
        Ok(None) => Finding::ok("daemon", "answers"),
        Err(error) => Finding::failed_call("daemon", error),
    }
}

/// What the machine was taken for, and what was assumed.
fn identity(board: &BoardAnswer) -> Finding {
    let reason = board.reasons.get("gpu").filter(|_| board.module.is_some());
    if let Some(reason) = reason {
        let remedy = "answers are about the CPU; please send the file of: rooflinectl doctor --report";
        return Finding::warn("board", format!("{}: {reason}", board.key), remedy);
    }
    let facts: Vec<&str> =
        [board.key.as_str()].into_iter().chain(board.notes.iter().map(String::as_str)).collect();
    if board.key.ends_with("-unlisted") {
        let remedy = "calibrate it, and send the file of: rooflinectl doctor --report";
        return Finding::warn("board", facts.join("; "), remedy);
    }
    Finding::ok("board", facts.join("; "))
}

/// The daemon itself measures, or is asked to.
fn is_running(answer: &CalibrationAnswer) -> bool {
    answer.status.get("running").is_some_and(|running| !running.is_null())
}

/// Something that does not work. What the configuration asks for and the machine cannot do is an error.
fn degraded(problem: &str) -> Finding {
    match problem.strip_prefix("accelerator: ") {
        Some(unmet) => Finding::fail(
            "accelerator",
            unmet,
            "make the GPU usable, or set accelerator = \"auto\" under [daemon] and restart the daemon",
        ),
        None => Finding::warn("degraded", problem, ""),
    }
}

/// With `measuring` the load is the daemon's own.
fn state_findings(answer: &Answer, measuring: bool) -> Vec<Finding> {
    let state: StateAnswer = match answer.parse() {
        Ok(state) => state,
        Err(error) => return vec![Finding::failed_call("state", &error)],
    };
    let mut findings = Vec::new();
    if state.simulated {
        findings.push(Finding::warn(
            "state",
            "simulated: no value describes hardware",
            "start it without --simulate",
        ));
    }
    // Each ends with its remedy.
    findings.extend(state.degraded.iter().map(|problem| degraded(problem)));
    let part = |field: &str, key: &str| state.fields.get(field)?.value.get(key)?.as_f64();
    if let Some(busy) = part("load", "busy_ratio") {
        findings.push(if measuring {
            let message = format!(
                "{} of the CPUs are busy, with a measurement of the daemon itself",
                words::percent(busy)
            );
            Finding::ok("load", message)
        } else if busy > BUSY_RATIO {
            let message =
                format!("{} of the CPUs are busy: measurements would be disturbed", words::percent(busy));
            Finding::warn("load", message, "see what runs with: top")
        } else {
            Finding::ok("load", format!("{} busy", words::percent(busy)))
        });
    }
    if let Some(steal) = part("load", "steal_ratio").filter(|steal| *steal > 0.02) {
        let message = format!("the hypervisor gives {} of the CPU time to others", words::percent(steal));
        findings.push(Finding::warn("steal", message, "predictions are about the remaining time"));
    }
    findings
}

fn calibration(answer: &CalibrationAnswer) -> Vec<Finding> {
    let text = |name: &str| answer.status.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let done = answer.status.get("fraction").and_then(Value::as_f64);
    let mut findings = vec![match answer.age_s {
        _ if answer.status.get("running").is_some_and(Value::is_number) => {
            Finding::ok("calibration", format!("running, {} done", words::percent(done.unwrap_or_default())))
        }
        None => {
            Finding::warn("calibration", "this machine has not been measured", "rooflinectl calibrate --wait")
        }
        Some(age) if age > OLD_S => {
            Finding::warn("calibration", format!("{} old", words::age(age)), "rooflinectl calibrate --wait")
        }
        Some(age) => Finding::ok("calibration", format!("{} old", words::age(age))),
    }];
    if let Some(reason) = text("waiting_reason") {
        findings.push(Finding::warn(
            "calibration",
            format!("waiting: {reason}"),
            "rooflinectl calibrate --force runs anyway",
        ));
    }
    if let Some(error) = text("last_error") {
        findings.push(Finding::warn(
            "calibration",
            format!("the last run failed: {error}"),
            "rooflinectl calibrate --wait",
        ));
    }
    findings
}

/// What slows the machine down now, by what a product of matrices that no cache holds would take.
async fn causes(client: &mut Client) -> Vec<Finding> {
    let workload = Workload { op: Some(MEMORY), format: Some("fp32".to_owned()), ..Workload::default() };
    let request = ExplainRequest { workload, ..ExplainRequest::default() };
    match causes::ask(client, &request).await {
        Ok(answer) => slow(&answer),
        // A machine without ceilings or a daemon of an older version has said so already.
        Err(_) => Vec::new(),
    }
}

/// Others on the GPU and the CPUs slow down nothing that does not run.
fn slow(answer: &ExplainAnswer) -> Vec<Finding> {
    let is_other = |key: &str| ["gpu_shared", "other_process"].contains(&key);
    let named = answer.causes.iter().filter(|cause| !is_other(&cause.cause));
    named.map(|cause| Finding::warn("slow", cause.what.clone(), cause.fix.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_calibration_says_why_and_what_to_do() {
        let answer = CalibrationAnswer {
            record: Value::Null,
            age_s: None,
            status: serde_json::json!({"waiting_reason": "load is 80 %", "last_error": null}),
            residuals: Vec::new(),
            simulated: false,
            serial: 1,
        };
        let findings = calibration(&answer);
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.level == Level::Warn && !finding.remedy.is_empty()));
        assert_eq!(render(&findings[1]).lines().count(), 2);
        let status = serde_json::json!({"running": 1, "fraction": 0.5});
        let findings = calibration(&CalibrationAnswer { status, ..answer });
        assert_eq!(render(&findings[0]), "ok   calibration: running, 50.0 % done\n");
    }
}
