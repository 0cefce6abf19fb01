//! Runs the program `nvpmodel`. It is never answered, never forced, and its exit status is no evidence.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

use super::files::resolve;
use rooflined_core::board::OrderFailure;
use rooflined_hw::SysRoot;

/// Where the program may be installed.
const PLACES: [&str; 2] = ["/usr/sbin/nvpmodel", "/usr/bin/nvpmodel"];
/// Bytes of its output that are kept.
const MOST_OUTPUT: usize = 16 << 10;
/// After the reboot question it has read the end of its input and has nothing left to do.
const AFTER_QUESTION: Duration = Duration::from_secs(2);
/// Pause between two checks whether it still runs.
const PAUSE: Duration = Duration::from_millis(5);
/// What it says when the mode needs a reboot (1.1.2 to 1.1.4, JetPack 4 to 7).
const QUESTIONS: [&str; 3] = ["reboot required", "do you want to reboot", "bad input"];

#[derive(Debug, Clone)]
pub(super) struct Tool {
    program: PathBuf,
    root: PathBuf,
    time_limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// It said that it wants a reboot.
    pub wants_reboot: bool,
    /// In words that follow "nvpmodel".
    pub said: String,
}

impl Tool {
    /// Finds the program: `configured`, or in one of its usual places.
    pub fn find(
        root: &SysRoot,
        configured: Option<&str>,
        time_limit: Duration,
    ) -> Result<Self, OrderFailure> {
        let usual = configured.is_none().then_some(PLACES).into_iter().flatten();
        let mut places = configured.into_iter().chain(usual);
        let found = places.find_map(|place| resolve(root, place).ok().filter(|path| path.exists()));
        let Some(program) = found else {
            let place = configured.unwrap_or(PLACES[0]);
            let message = format!("there is no {place} on this machine");
            return Err(OrderFailure::with_hint(message, "install it, or leave the mode"));
        };
        let usable =
            fs::metadata(&program).map(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
        if !usable.unwrap_or(false) {
            let message = format!("{} is not an executable program", program.display());
            return Err(OrderFailure::with_hint(message, "reinstall nvpmodel"));
        }
        Ok(Self { program, root: root.path("/"), time_limit })
    }

    /// Enters a mode, or tries to. `lock` is inherited, so that the program that follows a killed actuator knows that the
    /// tool still runs.
    ///
    /// # Errors
    /// It did not start, so it changed nothing.
    pub fn enter(&self, mode: u32, lock: &fs::File) -> Result<Run, String> {
        let failed = |error: io::Error| format!("{} does not start: {error}", self.program.display());
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(mode.to_string());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").current_dir("/");
        if self.root != Path::new("/") {
            command.env("ROOFLINED_ROOT", &self.root);
        }
        // Its question reads the end of the input, which it takes for "no".
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        fcntl_setfd(lock, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        let started = start(&mut command);
        // It was set a moment ago, so it can be set.
        let _ = fcntl_setfd(lock, FdFlags::CLOEXEC);
        Ok(self.watch(started.map_err(failed)?))
    }

    fn watch(&self, mut child: Child) -> Run {
        let mut deadline = Instant::now() + self.time_limit;
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        for pipe in
            [stdout.as_ref().map(rustix::fd::AsFd::as_fd), stderr.as_ref().map(rustix::fd::AsFd::as_fd)]
        {
            // A pipe that blocks would hold us for as long as something of the tool lives.
            let _ = pipe.map(|pipe| rustix::io::ioctl_fionbio(pipe, true));
        }
        let (mut heard, mut asked) = (Vec::new(), false);
        let ended = loop {
            // The state first: what was written before the end is then read after it.
            let state = child.try_wait();
            hear(stdout.as_mut(), &mut heard);
            hear(stderr.as_mut(), &mut heard);
            if !asked && asks(&heard) {
                asked = true;
                deadline = deadline.min(Instant::now() + AFTER_QUESTION);
            }
            match state {
                Ok(Some(status)) => break format!("ended with {status}"),
                Err(error) => break format!("cannot be waited for ({error})"),
                Ok(None) if Instant::now() >= deadline => {
                    break format!("did not end within {} s and was killed", self.time_limit.as_secs_f64());
                }
                Ok(None) => sleep(PAUSE),
            }
        };
        // Whatever is left of the group goes too, so that nothing writes behind our back.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        Run { wants_reboot: asked, said: format!("{ended}{}", quoted(&heard)) }
    }
}

/// Starts it. A program that is being replaced this instant cannot be run for a moment.
fn start(command: &mut Command) -> io::Result<Child> {
    for _ in 0..20 {
        match command.spawn() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TXTBSY) => sleep(PAUSE),
            started => return started,
        }
    }
    command.spawn()
}

/// Takes what has been written so far. What exceeds the bound is read and forgotten, so that the tool never waits.
fn hear(pipe: Option<&mut impl Read>, heard: &mut Vec<u8>) {
    let Some(pipe) = pipe else { return };
    let mut buffer = [0; 4096];
    // Bounded, because a tool that writes without end must still meet its time limit.
    for _ in 0..64 {
        let Ok(read @ 1..) = pipe.read(&mut buffer) else { return };
        let room = MOST_OUTPUT.saturating_sub(heard.len());
        heard.extend_from_slice(&buffer[..read.min(room)]);
    }
}

fn asks(heard: &[u8]) -> bool {
    let text = String::from_utf8_lossy(heard).to_ascii_lowercase();
    QUESTIONS.iter().any(|question| text.contains(question))
}

/// `: "the last thing it said"`, printable and short.
fn quoted(heard: &[u8]) -> String {
    let text = String::from_utf8_lossy(heard);
    let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else { return String::new() };
    let line: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).take(160).collect();
    format!(", saying {line:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reboot_question_is_recognised_in_any_of_its_lines() {
        assert!(asks(b"NVPM WARN: Reboot required for changing to this power mode: 0\n"));
        assert!(asks(b"NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:"));
        assert!(asks(b"NVPM ERROR: bad input!\n"));
        assert!(!asks(b"NVPM WARN: fan mode is not set!\n\xff\xfe"));
    }

    #[test]
    fn what_was_said_last_is_quoted_without_control_characters() {
        assert_eq!(quoted(b"one\ntwo\x1b[31m \n\n"), ", saying \"two?[31m\"");
        assert_eq!(quoted(b" \n"), "");
    }
}
