//! Whether commands would be obeyed: by the daemon, by the privileged helper behind it, and by nvpmodel behind that.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Client, ClientError, Finding};
use rooflined_api::{HoldsAnswer, ModeRequest, SwitchAnswer};
use rooflined_core::refusal::Code;

/// Where systemd listens for the helper of the system's daemon.
const HELPER: &str = "run/rooflined-actuate/actuate.sock";
const NVPMODEL_CONF: &str = "etc/nvpmodel.conf";
const NVPMODEL: [&str; 2] = ["usr/sbin/nvpmodel", "usr/bin/nvpmodel"];

/// Asks for a switch as a question, which goes the whole way to the helper and changes nothing.
pub async fn control(client: &mut Client) -> Vec<Finding> {
    let Some(mode) = another_mode(client).await else { return vec![without_modes(client).await] };
    let question = ModeRequest { mode: mode.clone(), dry_run: true, ..ModeRequest::default() };
    let asked = client.command("/v1/mode", &serde_json::json!(question)).await;
    let taken = || Finding::ok("control", "commands are accepted");
    match asked.and_then(|answer| answer.parse::<SwitchAnswer>()) {
        Ok(answer) if matches!(answer.outcome.as_str(), "applied" | "reboot_required") => {
            vec![taken(), Finding::ok("helper", format!("answers: {}", answer.message))]
        }
        Ok(answer) => {
            let remedy = "journalctl -u rooflined -u rooflined-actuate";
            vec![taken(), Finding::warn("helper", answer.message, remedy)]
        }
        Err(error) => judge_refusal(client, error).await,
    }
}

/// What a refused question says of the daemon, and of the helper.
async fn judge_refusal(client: &mut Client, error: ClientError) -> Vec<Finding> {
    let ClientError::Refused { status, body } = error else { return vec![unheard(&error)] };
    let remedy = body.hint.clone().unwrap_or_default();
    let code = body.known_code();
    if status == 403 && code != Some(Code::ModeNotAllowed) {
        let root = rustix::process::getuid().is_root() && code == Some(Code::ControlDisabled);
        let beside = if root { "; root may calibrate and measure anyway" } else { "" };
        return vec![Finding::warn("control", format!("{}{beside}", body.message), remedy)];
    }
    match code {
        // Of modes and not of commands, or of the helper.
        Some(Code::ControlUnavailable | Code::NotReached) => {
            let of_helper = unavailable(client).await.is_some() || code == Some(Code::NotReached);
            let check = if of_helper { "helper" } else { "control" };
            vec![Finding::warn(check, body.message, remedy)]
        }
        _ => vec![Finding::ok("control", format!("commands are accepted; right now: {}", body.message))],
    }
}

/// On a machine without power modes there is nothing to switch: what is left are the commands to calibrate and measure.
async fn without_modes(client: &mut Client) -> Finding {
    let impossible = serde_json::json!({ "plan": "none of the plans" });
    match client.command("/v1/calibrate", &impossible).await {
        Err(ClientError::Refused { status: 403 | 503, body }) => {
            Finding::warn("control", body.message, body.hint.unwrap_or_default())
        }
        Err(ClientError::Refused { .. }) => {
            let enabled = holds(client).await.is_some_and(|answer| answer.control_enabled);
            let state = if enabled { "enabled" } else { "disabled" };
            let message = "this user may calibrate and measure; there are no power modes to switch";
            Finding::ok("control", format!("{message} (control is {state})"))
        }
        Err(error) => unheard(&error),
        Ok(_) => Finding::warn("control", "the daemon accepts orders that do not exist", "update the daemon"),
    }
}

fn unheard(error: &ClientError) -> Finding {
    let remedy = match error {
        ClientError::WithoutControl { .. } => "restart the daemon, which makes both sockets".to_owned(),
        error => error.hint().unwrap_or_default(),
    };
    Finding::warn("control", error.to_string(), remedy)
}

/// A mode other than the one in force, for the helper looks for nvpmodel only where something would have to be done.
async fn another_mode(client: &mut Client) -> Option<String> {
    let answer: Value = client.get("/v1/modes").await.ok()?.parse().ok()?;
    let modes = answer.get("modes")?.as_array()?;
    let entered_now = |mode: &&Value| {
        mode.get("name") != answer.get("active") && mode.get("reboot_required") != Some(&Value::Bool(true))
    };
    let mode = modes.iter().find(entered_now).or_else(|| modes.first())?;
    mode.get("name")?.as_str().map(ToOwned::to_owned)
}

async fn holds(client: &mut Client) -> Option<HoldsAnswer> {
    client.get("/v1/holds").await.ok()?.parse().ok()
}

async fn unavailable(client: &mut Client) -> Option<String> {
    holds(client).await?.unavailable
}

/// What of the way to nvpmodel can be seen below `root` without asking anybody: an administrator looks here while control is
/// still disabled.
pub fn way(root: &Path, system: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if system {
        findings.push(helper_socket(&root.join(HELPER)));
    }
    if root.join(NVPMODEL_CONF).exists() {
        findings.push(nvpmodel(root));
    }
    findings
}

fn helper_socket(path: &Path) -> Finding {
    let check = "helper socket";
    let Ok(found) = fs::metadata(path) else {
        let remedy = "systemctl enable --now rooflined-actuate.socket";
        return Finding::warn(check, format!("none at {}: no mode is switched", path.display()), remedy);
    };
    let shown = describe_file(path, &found);
    if !found.file_type().is_socket() || found.uid() != 0 || found.mode() & 0o002 != 0 {
        let message = format!("{shown}; it should belong to root and be closed to others");
        return Finding::fail(check, message, "systemctl restart rooflined-actuate.socket");
    }
    Finding::ok(check, shown)
}

fn nvpmodel(root: &Path) -> Finding {
    let runs = |path: &&Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let places = NVPMODEL.map(|place| root.join(place));
    match places.iter().map(PathBuf::as_path).find(runs) {
        Some(path) => Finding::ok("nvpmodel", path.display().to_string()),
        None => Finding::warn(
            "nvpmodel",
            "/etc/nvpmodel.conf has power modes, but the program that enters them is missing",
            "install nvpmodel, or name it with nvpmodel = \"PATH\" under [control]",
        ),
    }
}

/// `/run/x mode 0660 owner 0:990`.
pub fn describe_file(path: &Path, found: &fs::Metadata) -> String {
    format!("{} mode {:04o} owner {}:{}", path.display(), found.mode() & 0o777, found.uid(), found.gid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::Level;
    use super::*;

    fn levels(root: &Path, system: bool) -> Vec<(&'static str, Level)> {
        way(root, system).into_iter().map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn a_machine_without_nvpmodel_is_not_told_to_install_it() {
        let root = tempfile::tempdir().unwrap();
        assert!(levels(root.path(), false).is_empty());
        assert_eq!(levels(root.path(), true), [("helper socket", Level::Warn)]);
    }

    #[test]
    fn modes_without_the_program_and_a_socket_for_everybody_are_named() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for dir in ["etc", "usr/sbin", "run/rooflined-actuate"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at(NVPMODEL_CONF), "").unwrap();
        fs::write(at(NVPMODEL[0]), "").unwrap();
        let _socket = UnixListener::bind(at(HELPER)).unwrap();
        let set = |path: &str, mode| fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
        set(HELPER, 0o666);
        assert_eq!(levels(root.path(), true), [("helper socket", Level::Fail), ("nvpmodel", Level::Warn)]);
        set(NVPMODEL[0], 0o755);
        set(HELPER, 0o660);
        let root_only = if rustix::process::geteuid().is_root() { Level::Ok } else { Level::Fail };
        assert_eq!(levels(root.path(), true), [("helper socket", root_only), ("nvpmodel", Level::Ok)]);
    }
}
