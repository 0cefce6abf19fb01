//! A private message bus.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A dbus-daemon with a configuration of its own.
pub struct PrivateBus {
    child: Option<Child>,
    directory: tempfile::TempDir,
}

const CONFIGURATION: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=@SOCKET@</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
"#;

impl PrivateBus {
    /// Starts one; `None`, said aloud, where there is no dbus-daemon.
    pub fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut bus = Self { child: None, directory };
        let configuration = CONFIGURATION.replace("@SOCKET@", bus.socket().to_str().unwrap());
        std::fs::write(bus.directory.path().join("bus.conf"), configuration).unwrap();
        // Other users may come as well.
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bus.directory.path(), everybody).unwrap();
        if bus.spawn() {
            return Some(bus);
        }
        let strict = std::env::var("ROOFLINED_STRICT").is_ok_and(|value| value == "1");
        assert!(!strict, "there is no dbus-daemon, and ROOFLINED_STRICT=1 forbids to skip");
        // Past the test harness, which keeps what passing tests print to itself.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: there is no dbus-daemon here; install the package dbus");
        None
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("bus.sock")
    }

    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    fn spawn(&mut self) -> bool {
        let _ = std::fs::remove_file(self.socket());
        let spawned = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", self.directory.path().join("bus.conf").display()))
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // As root it complains about a limit that it cannot set.
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = spawned else { return false };
        // The address is printed once the bus listens.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:"), "{line:?}");
        self.child = Some(child);
        true
    }

    /// As a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops answering without closing anything.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Again, at the same address.
    pub fn restart(&mut self) {
        assert!(self.spawn());
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        self.kill();
    }
}
