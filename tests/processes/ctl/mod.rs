//! The real rooflinectl against a daemon that is none: what it asks, what it prints, what it ends with.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails in a helper of a test fails the test"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

mod answers;
mod asking;
mod completing;
mod explaining;
mod failing;
mod fake;
mod figures;
mod forms;
mod inference;
mod live;
mod mistakes;
mod observing;
mod quant_error;
mod scenarios;
mod whatif;

use fake::Fake;

/// A command with an environment that is the same everywhere.
fn ctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::programs::rooflinectl());
    command
        .args(args)
        .env_clear()
        .env("ROOFLINED_SOCKET", socket)
        .env("LANG", "C.UTF-8")
        .env("COLUMNS", "100");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

fn run(socket: &Path, args: &[&str]) -> Output {
    ctl(socket, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
fn good(fake: &Fake, args: &[&str]) -> String {
    let output = run(fake.path(), args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    assert_eq!(stderr(&output), "", "{args:?}");
    stdout(&output)
}

/// Exit code and standard error of a command that must fail: one error, at most one hint, never a trace.
#[track_caller]
fn bad(socket: &Path, args: &[&str]) -> (i32, String) {
    let output = run(socket, args);
    let errors = stderr(&output);
    assert!(errors.starts_with("error: "), "{args:?}: {output:?}");
    assert!(!errors.contains("panicked") && !errors.contains("RUST_BACKTRACE"), "{errors}");
    (output.status.code().expect("ended by itself"), errors)
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
