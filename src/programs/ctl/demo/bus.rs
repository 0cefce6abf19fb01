//! A private message bus, and the question asked over it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::private_daemon::Process;
use crate::failure::Failure;
use crate::output::Printer;
use crate::words;

/// Why the step is skipped where there is no bus to be had.
pub const MISSING: &str = "dbus-daemon or dbus-send is not installed; install the package dbus to see this";

/// A request of the HTTP interface, which the method `Query` takes as text.
const QUESTION: &str = r#"{"path": "/v1/predict", "body": {"workload": {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}}}"#;
const NAME: &str = "io.github.rooflined.Rooflined1";
const PATH: &str = "/io/github/rooflined/Rooflined1";
/// Time for the daemon to appear on the bus.
const APPEAR_LIMIT: Duration = Duration::from_secs(5);

/// Ends the bus when standard input is closed, as it does when the demo is gone.
const KEEPER: &str = "dbus-daemon --config-file=\"$1\" --nofork --nopidfile --print-address=1 & bus=$!\n\
                      exec 1>&-\nread -r _\nkill $bus\nwait $bus";

#[derive(Debug)]
pub struct PrivateBus {
    _process: Process,
    address: String,
}

impl PrivateBus {
    /// Starts one with its socket in `directory`; `None` where no dbus-daemon is installed.
    pub fn start(directory: &Path) -> Result<Option<Self>, Failure> {
        let installed = |program: &str| {
            std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
        };
        if !(installed("dbus-daemon") && installed("dbus-send")) {
            return Ok(None);
        }
        let config = directory.join("bus.conf");
        let cannot =
            |reason: String| Failure::failed(format!("the private bus cannot be started: {reason}"), MISSING);
        fs::write(&config, configuration(directory)).map_err(|error| cannot(error.to_string()))?;
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&config).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(command).map_err(|error| cannot(error.to_string()))?;
        let address = process.first_line().ok_or_else(|| cannot("it ended at once".to_owned()))?;
        Ok(Some(Self { _process: process, address }))
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks the daemon for a prediction, with the bus's own command-line tool.
    pub async fn ask(&self, printer: &Printer) -> Result<(), Failure> {
        printer.line("  How long does one token take a layer of 4096x4096 stored as int8?")?;
        printer.line(&format!("  dbus-send --dest={NAME} {PATH} {NAME}.Query string:'{QUESTION}'"))?;
        let began = Instant::now();
        let answer = loop {
            match self.query(QUESTION).await? {
                Err(said) if said.contains("ServiceUnknown") && began.elapsed() < APPEAR_LIMIT => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(said) => {
                    return Err(Failure::failed(
                        format!("the question over D-Bus failed: {said}"),
                        "see that the daemon has its name with: busctl list",
                    ));
                }
                Ok(answer) => break answer,
            }
        };
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let Some(time) = answer["time_s"]["value"].as_f64() else {
            return Err(Failure::failed(
                "the answer over D-Bus has no time_s",
                "compare the versions of both programs",
            ));
        };
        let limit = answer["limit"].as_str().unwrap_or("unknown");
        printer.line(&format!("  -> {} (limited by {limit})", words::time(time)))
    }

    /// The JSON that `Query` answers to `question`, or what the bus or the daemon said against it.
    async fn query(&self, question: &str) -> Result<Result<String, String>, Failure> {
        let output = tokio::process::Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .arg(format!("--dest={NAME}"))
            .args(["--type=method_call", "--print-reply=literal", "--reply-timeout=10000", PATH])
            .arg(format!("{NAME}.Query"))
            .arg(format!("string:{question}"))
            .output()
            .await
            .map_err(|error| Failure::failed(format!("dbus-send does not start: {error}"), MISSING))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }
}

/// A bus for one user: whoever may enter the directory may do everything on it.
fn configuration(directory: &Path) -> String {
    format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
         <busconfig>\n<type>session</type>\n<listen>unix:path={}/bus</listen>\n<auth>EXTERNAL</auth>\n\
         <policy context=\"default\">\n<allow send_destination=\"*\" eavesdrop=\"true\"/>\n\
         <allow eavesdrop=\"true\"/>\n<allow own=\"*\"/>\n</policy>\n</busconfig>\n",
        directory.display()
    )
}
