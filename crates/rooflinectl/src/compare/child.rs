//! The program of an engine, run to its end.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::failure::Failure;
use crate::signals::wait_for_signal;
use crate::words;

/// Most of what a program prints that is kept.
const MAX_OUTPUT: usize = 4 << 20;

/// What a program printed, and how it ended.
pub struct Output {
    pub text: Vec<u8>,
    pub log: String,
}

impl Output {
    /// The last lines of its log, in which it says what is wrong.
    pub fn last_words(&self) -> String {
        let lines: Vec<_> = self.log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" | ");
        let clean: String = words::printable(&last).chars().take(400).collect();
        if clean.is_empty() { "it said nothing".to_owned() } else { format!("it said: {clean}") }
    }
}

/// What to do where a program cannot be started, or takes too long.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    pub start: &'static str,
    pub less: &'static str,
}

/// Runs a program to its end, its time limit, or ours: it does not outlive this one.
pub async fn run_program(
    name: &str,
    mut command: Command,
    limit: Duration,
    advice: Advice,
) -> Result<Output, Failure> {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
    let mut child =
        child.map_err(|error| Failure::failed(format!("{name} cannot be started: {error}"), advice.start))?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::failed(format!("{name} has no output"), "report this"));
    };
    let work = async { tokio::join!(read_end(stdout), read_end(stderr), child.wait()) };
    let ended = tokio::select! {
        ended = tokio::time::timeout(limit, work) => ended,
        // The program is dropped on the way out, and ends by that.
        signal = wait_for_signal() => {
            return Err(Failure::failed(format!("{name} was stopped because this program received {signal}"), "start it again"));
        }
    };
    let Ok((text, log, status)) = ended else {
        return Err(Failure::failed(
            format!("{name} did not finish within {} s and was stopped", limit.as_secs_f64()),
            advice.less,
        ));
    };
    let output = Output { text, log: String::from_utf8_lossy(&log).into_owned() };
    let status = status.map_err(|error| Failure::failed(format!("{name}: {error}"), "try again"))?;
    if let Some(signal) = status.signal() {
        let hint = if signal == 9 {
            "the kernel kills programs that take too much memory: try a smaller file, or look at dmesg"
        } else {
            "run it by hand with the same file; a build for another CPU ends with signal 4"
        };
        let message = format!("{name} was ended by signal {signal}; {}", output.last_words());
        return Err(Failure::failed(message, hint));
    }
    if !status.success() {
        let code = status.code().unwrap_or_default();
        let message = format!("{name} failed with exit code {code}; {}", output.last_words());
        return Err(Failure::failed(message, "run it by hand with the same file"));
    }
    Ok(output)
}

/// The end of what is read, so that a program which prints without end costs no memory.
async fn read_end(mut source: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read) = source.read(&mut part).await {
        if read == 0 {
            break;
        }
        text.extend_from_slice(&part[..read]);
        if text.len() > 2 * MAX_OUTPUT {
            text.drain(..text.len() - MAX_OUTPUT);
        }
    }
    text
}
