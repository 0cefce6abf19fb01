//! The private directory of a demo and the processes that live in it. All of them end with the demo: they hold the
//! other end of a pipe to it, so that even a killed demo leaves no process behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use temporary::{Kind, TemporaryDir};
use wire::client::Client;

/// Time for the daemon to answer for the first time.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time for a process to end after its standard input was closed.
const END_LIMIT: Duration = Duration::from_secs(3);
/// A socket's path takes 107 bytes; the file names need some of them.
const LONGEST_DIRECTORY: usize = 90;

/// A directory of our own, removed in the end, with that of a demo that was killed.
#[derive(Debug)]
pub struct PrivateDir {
    dir: TemporaryDir,
}

impl PrivateDir {
    /// Makes the directory, for this user only, with this configuration for its daemon.
    pub fn create(config: &str) -> Result<Self, Failure> {
        let name = TemporaryDir::name(Kind::Demo);
        let path = [std::env::temp_dir(), PathBuf::from("/tmp")]
            .into_iter()
            .map(|base| base.join(&name))
            .find(|path| path.as_os_str().len() <= LONGEST_DIRECTORY)
            .unwrap_or_else(|| PathBuf::from("/tmp").join(&name));
        let failed = |error: std::io::Error| {
            Failure::failed(
                format!("cannot make {}: {error}", path.display()),
                "name a writable directory in TMPDIR",
            )
        };
        let directory = Self { dir: TemporaryDir::create(path.clone(), 0o700).map_err(failed)? };
        // Nothing but this tour talks to the daemon, so it may be asked to measure; it shall not start by itself.
        let config = format!("{config}\n[calibration]\nautomatic = false\n");
        fs::write(path.join("rooflined.toml"), config).map_err(|error| {
            Failure::failed(format!("cannot write to {}: {error}", path.display()), "make room on that disk")
        })?;
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the daemon that belongs to this rooflinectl; with `board`, on one that is simulated in a directory.
    pub async fn start_daemon(&self, bus: &str, board: Option<(&str, &Path)>) -> Result<Daemon, Failure> {
        let program = program_beside_us("rooflined");
        let log = self.path().join("daemon.log");
        let cannot = |error: std::io::Error| {
            Failure::failed(
                format!("{} cannot be started: {error}", program.display()),
                "put rooflined beside rooflinectl, or on the PATH: cargo build --release --bins",
            )
        };
        let errors = File::create(&log).map_err(cannot)?;
        let mut command = Command::new(&program);
        command
            .arg("serve")
            .arg("--config")
            .arg(self.path().join("rooflined.toml"))
            .arg("--socket")
            .arg(self.path())
            .arg("--state-dir")
            .arg(self.path().join("state"))
            .args(["--bus", bus, "--exit-on-stdin-close"])
            .args(board.into_iter().flat_map(|(key, _)| ["--simulate", key]))
            .args(board.into_iter().flat_map(|(_, root)| [OsStr::new("--root"), root.as_os_str()]))
            .stdout(Stdio::null())
            .stderr(errors);
        // These would make it take over what a service manager gave to us.
        for name in [
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "LISTEN_FDS",
            "LISTEN_PID",
            "JOURNAL_STREAM",
            "STATE_DIRECTORY",
        ] {
            command.env_remove(name);
        }
        let process = Process::start(command).map_err(cannot)?;
        Ok(Daemon { process, log })
    }
}

#[derive(Debug)]
pub struct Daemon {
    process: Process,
    log: PathBuf,
}

impl Daemon {
    /// Waits until it answers that it is ready.
    pub async fn wait_until_ready(&mut self, client: &mut Client) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            if client.get("/-/ready").await.is_ok() {
                return Ok(());
            }
            let ended = self.process.ended();
            if ended || began.elapsed() > START_LIMIT {
                let what = if ended { "ended at once" } else { "is not ready after 10 s" };
                return Err(Failure::failed(
                    format!("the private daemon {what}: {}", self.last_words()),
                    "see what it says with: rooflined serve",
                ));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The last line of its log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
    }
}

/// A process that ends when its standard input is closed.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it with a pipe as its standard input.
    pub fn start(mut command: Command) -> std::io::Result<Self> {
        // A group of its own: Ctrl-C is for us, and we end it in our own time.
        let child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        Ok(Self { child })
    }

    /// The first line that it prints.
    pub fn first_line(&mut self) -> Option<String> {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut()?).read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(ToOwned::to_owned)
    }

    fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let began = Instant::now();
        while !self.ended() && began.elapsed() < END_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program in the directory of this one, else the first of that name on the PATH.
pub fn program_beside_us(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_private_and_leaves_nothing_behind() {
        use std::os::unix::fs::PermissionsExt;
        let directory = PrivateDir::create("[control]\nenabled = true\n").unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let config = config::Config::load(&[path.join("rooflined.toml")]).unwrap();
        assert!(config.control.enabled && !config.calibration.automatic);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_ends_with_its_input_and_is_killed_if_it_does_not() {
        let began = Instant::now();
        let reader = Process::start(Command::new("cat")).unwrap();
        drop(reader);
        assert!(began.elapsed() < END_LIMIT, "cat ends when its input does");
        let mut stubborn = Command::new("sleep");
        stubborn.arg("60");
        drop(Process::start(stubborn).unwrap());
        assert!(began.elapsed() < END_LIMIT * 2);
    }
}
