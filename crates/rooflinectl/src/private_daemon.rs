//! A daemon of our own in a temporary directory, for `demo` and for `doctor --report` where none is installed.
//!
//! It holds the other end of a pipe to this process, so that it ends even if this process is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::failure::Failure;
use rooflined_client::Client;
use tempfile::TempDir;

/// Time for the daemon to answer for the first time.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time for it to end after its standard input was closed.
const END_LIMIT: Duration = Duration::from_secs(3);
/// A socket's path takes 107 bytes; the directory's own name and those of its files need some of them.
const LONGEST_BASE: usize = 68;
/// Variables by which a service manager addresses this process; the daemon would take them for its own.
const OF_SERVICE_MANAGER: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "JOURNAL_STREAM", "STATE_DIRECTORY"];

/// Dropped, it ends first and its directory is removed then.
#[derive(Debug)]
pub struct PrivateDaemon {
    process: Process,
    directory: TempDir,
}

impl PrivateDaemon {
    /// Starts the daemon that belongs to this rooflinectl and waits until it is ready; with `board`, on that simulated one.
    ///
    /// # Errors
    /// It cannot be started, or says why it ended.
    pub async fn start(config: &str, board: Option<&str>) -> Result<Self, Failure> {
        let directory = create_directory(config)?;
        let program = find_program("rooflined");
        let cannot = |error: io::Error| {
            Failure::failed(
                format!("{} cannot be started: {error}", program.display()),
                "put rooflined next to rooflinectl, or on the PATH: cargo build --release --bins",
            )
        };
        let path = directory.path();
        let mut command = Command::new(&program);
        command
            .args(["serve", "--bus", "none", "--exit-on-stdin-close", "--config"])
            .arg(path.join("rooflined.toml"))
            .arg("--socket")
            .arg(path)
            .arg("--state-dir")
            .arg(path.join("state"))
            .args(board.into_iter().flat_map(|key| ["--simulate", key]))
            .stdout(Stdio::null())
            .stderr(File::create(path.join("daemon.log")).map_err(cannot)?);
        for name in OF_SERVICE_MANAGER {
            command.env_remove(name);
        }
        let process = Process::start(command).map_err(cannot)?;
        let mut daemon = Self { process, directory };
        daemon.wait_until_ready().await?;
        Ok(daemon)
    }

    /// The directory of its sockets.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    #[must_use]
    pub fn client(&self, timeout: Duration) -> Client {
        Client::new(Some(self.path()), timeout)
    }

    async fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut client = self.client(START_LIMIT);
        while client.get("/-/ready").await.is_err() {
            let ended = self.process.has_ended();
            if ended || began.elapsed() > START_LIMIT {
                let what = if ended { "ended at once" } else { "is not ready after 10 s" };
                let log = fs::read_to_string(self.path().join("daemon.log")).unwrap_or_default();
                let said = |start: &str| log.lines().rev().find_map(|line| line.strip_prefix(start));
                if let Some(refused) = said("rooflined: error: ") {
                    let failure = match refused.starts_with("no board ") {
                        true => Failure::usage(refused),
                        false => Failure::failed(refused, String::new()),
                    };
                    return Err(failure.with_hint(said("hint: ").unwrap_or(WHOLE_LOG)));
                }
                let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it logged nothing");
                return Err(Failure::failed(format!("the private daemon {what}: {last}"), WHOLE_LOG));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

const WHOLE_LOG: &str = "read its whole log with: rooflined serve";

/// A directory for this user only, with the configuration of a daemon that starts no calibration by itself.
fn create_directory(config: &str) -> Result<TempDir, Failure> {
    let usual = std::env::temp_dir();
    let base = if usual.as_os_str().len() > LONGEST_BASE { PathBuf::from("/tmp") } else { usual };
    let failed = |error: io::Error| {
        Failure::failed(
            format!("cannot make a directory in {}: {error}", base.display()),
            "name a writable directory in TMPDIR",
        )
    };
    let directory = tempfile::Builder::new()
        .prefix("rooflined-demo-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(&base)
        .map_err(failed)?;
    let config = format!("{config}\n[calibration]\nautomatic = false\n");
    fs::write(directory.path().join("rooflined.toml"), config).map_err(failed)?;
    Ok(directory)
}

/// A process that ends when its standard input is closed.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> io::Result<Self> {
        // A group of its own: Ctrl-C reaches this process only, which ends the other.
        command.stdin(Stdio::piped()).process_group(0).spawn().map(Self)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let began = Instant::now();
        while !self.has_ended() && began.elapsed() < END_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.has_ended() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A program in the directory of this one, else the first of that name on the PATH.
pub fn find_program(name: &str) -> PathBuf {
    let neighbour = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    neighbour.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_private_and_leaves_nothing_behind() {
        let directory = create_directory("[control]\nenabled = true\n").unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let config = rooflined_config::Config::load(&[path.join("rooflined.toml")]).unwrap();
        assert!(config.control.enabled && !config.calibration.automatic);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_ends_with_its_input_and_is_killed_if_it_does_not() {
        let began = Instant::now();
        drop(Process::start(Command::new("cat")).unwrap());
        assert!(began.elapsed() < END_LIMIT, "cat ends when its input does");
        let mut stubborn = Command::new("sleep");
        stubborn.arg("60");
        drop(Process::start(stubborn).unwrap());
        assert!(began.elapsed() < END_LIMIT * 2);
    }
}
