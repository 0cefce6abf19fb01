//! A private message bus, and the question asked over it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use zbus::{OwnedVariant, Variant};

use super::house::Process;
use crate::cli::failure::Failure;
use crate::cli::output::Printer;
use crate::cli::words;

/// What is said where there is no bus to be had.
pub const MISSING: &str =
    "dbus-daemon is not installed; install the package dbus (Debian: dbus-daemon) to see this";

const NAME: &str = "io.github.rooflined.Rooflined1";
const PATH: &str = "/io/github/rooflined/Rooflined1";
/// Time for the daemon to appear on the bus.
const APPEAR_LIMIT: Duration = Duration::from_secs(5);

/// Ends the bus when standard input is closed, as it does when the demo is gone.
const KEEPER: &str = "dbus-daemon --config-file=\"$1\" --nofork --nopidfile --print-address=1 & bus=$!\n\
                      exec 1>&-\nread -r _\nkill $bus\nwait $bus";

/// A running bus.
#[derive(Debug)]
pub struct PrivateBus {
    _process: Process,
    address: String,
}

impl PrivateBus {
    /// Starts one with its socket in `directory`; `None` where no dbus-daemon is installed.
    pub fn start(directory: &Path) -> Result<Option<Self>, Failure> {
        let installed = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("dbus-daemon").is_file()));
        if !installed {
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

    /// Its D-Bus address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks the daemon for a prediction.
    pub async fn ask(&self, printer: &Printer) -> Result<(), Failure> {
        let failed = |error: zbus::Error| {
            Failure::failed(
                format!("the question over D-Bus failed: {error}"),
                "see that the daemon has its name with: busctl list",
            )
        };
        printer.line("  How long does one token take a layer of 4096x4096 stored as int8?")?;
        printer.line(&format!(
            "  busctl call {NAME} {PATH} {NAME} Predict 'a{{sv}}' … workload: op gemv n=4096 k=4096, format int8"
        ))?;
        let connection =
            zbus::connection::Builder::address(self.address.as_str()).build().await.map_err(failed)?;
        let began = Instant::now();
        let reply = loop {
            let reply = connection.call_method(Some(NAME), PATH, Some(NAME), "Predict", &(question(),)).await;
            match reply {
                Err(zbus::Error::MethodError(ref name, ..))
                    if name.ends_with("ServiceUnknown") && began.elapsed() < APPEAR_LIMIT =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                reply => break reply.map_err(failed)?,
            }
        };
        let answer: HashMap<String, OwnedVariant> = reply.body().deserialize().map_err(failed)?;
        let time = answer.get("time_s").and_then(|value| number(value, "value"));
        let Some(time) = time else {
            return Err(Failure::failed(
                "the answer over D-Bus has no time_s",
                "compare the versions of both programs",
            ));
        };
        let limit =
            answer.get("limit").and_then(|value| <&str>::try_from(&**value).ok()).unwrap_or("unknown");
        printer.line(&format!("  -> {} (limited by {limit})", words::time(time)))
    }
}

/// `{"workload": {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}}`
fn question() -> HashMap<&'static str, Variant<'static>> {
    let op: HashMap<&str, Variant<'_>> = HashMap::from([
        ("kind", Variant::from("gemv")),
        ("n", Variant::from(4096_u64)),
        ("k", Variant::from(4096_u64)),
    ]);
    let workload: HashMap<&str, Variant<'_>> =
        HashMap::from([("op", Variant::from(op)), ("format", Variant::from("int8"))]);
    HashMap::from([("workload", Variant::from(workload))])
}

/// The number called `name` in a dictionary, or the value itself where it is a number.
fn number(value: &Variant<'_>, name: &str) -> Option<f64> {
    match value {
        Variant::F64(number) => Some(*number),
        Variant::Variant(inner) => number(inner, name),
        Variant::Dict(dict) => dict
            .iter()
            .find(|(key, _)| matches!(key, Variant::Str(key) if key.as_str() == name))
            .and_then(|(_, value)| number(value, name)),
        _ => None,
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
