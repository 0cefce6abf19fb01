//! `rooflined probe --verify`: every kernel of the GPU once, whatever becomes of the others.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::cuda::{NOT_NATIVE, TOLERANCE, entries};
use super::worker::Loss;
use super::worker_supervisor::{Trouble, WorkerSupervisor};
use rooflined_predict::calibration::{Accelerator, Plan};

/// Bytes that buffers may take.
const MEMORY: u64 = 1 << 30;
/// Seconds for opening the GPU for the first time, which translates kernels.
const OPENING_S: f64 = 60.0;

/// A line of the output.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Verified {
    entry: String,
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    /// Largest deviation from a reference in double precision, relative to the largest value.
    Error(f64),
    /// It did not run; the reason.
    Skipped(String),
    /// It cost the process' hold on the GPU.
    Faulted(String),
    /// It did not end.
    Hung(String),
}

/// What became of a kernel, in the order of the table's last line.
const OUTCOMES: [&str; 6] = ["right", "wrong", "faulted", "hung", "not run", "not for this GPU"];
/// Of them, those that fail the whole.
const FAILURES: [&str; 3] = ["wrong", "faulted", "hung"];

impl Found {
    fn outcome(&self) -> &'static str {
        match self {
            // No number is not right.
            Self::Error(error) if *error <= TOLERANCE => "right",
            Self::Error(_) => "wrong",
            Self::Faulted(_) => "faulted",
            Self::Hung(_) => "hung",
            Self::Skipped(reason) if reason.contains(NOT_NATIVE) => "not for this GPU",
            Self::Skipped(_) => "not run",
        }
    }

    fn because(&self) -> String {
        match self {
            Self::Error(error) => format!("error {error:.1e}"),
            Self::Skipped(_) if self.outcome() == "not for this GPU" => String::new(),
            Self::Skipped(reason) | Self::Faulted(reason) | Self::Hung(reason) => reason.clone(),
        }
    }
}

/// The subcommand: an outcome a line, and at the end a table, on standard error unless people read standard output. Fails
/// if a kernel is wrong, faults or hangs.
#[must_use]
pub fn verify_main() -> ExitCode {
    let people = io::stdout().is_terminal();
    let mut all = Vec::new();
    let outcome = verify(&mut |verified| {
        if !people {
            // A reader that has gone does not end what was asked for.
            let line = serde_json::to_string(&verified).unwrap_or_default();
            let _ = writeln!(io::stdout(), "{line}");
        }
        all.push(verified);
    });
    if let Err(error) = outcome {
        eprintln!("rooflined probe: {error}");
        return ExitCode::FAILURE;
    }
    let table = table(&all);
    let _ = if people {
        io::stdout().write_all(table.as_bytes())
    } else {
        io::stderr().write_all(table.as_bytes())
    };
    let failures = FAILURES.map(|outcome| count(&all, outcome));
    let [wrong, faulted, hung] = failures;
    if failures == [0; 3] {
        return ExitCode::SUCCESS;
    }
    if faulted + hung > 0 {
        eprintln!(
            "rooflined probe: {faulted} kernels fault and {hung} hang on this GPU; a calibration goes without them"
        );
    }
    if wrong > 0 {
        eprintln!("rooflined probe: {wrong} kernels compute wrong results on this GPU");
    }
    ExitCode::FAILURE
}

/// Runs every kernel of this program that the first GPU has the units for, and hands the outcome of each to `each`.
fn verify(each: &mut dyn FnMut(Verified)) -> Result<(), String> {
    let plan = Plan {
        steps: Vec::new(),
        holds: Vec::new(),
        accelerator: Accelerator::Gpu,
        cpus: Vec::new(),
        warm_up_s: 0.0,
        time_limit_s: OPENING_S,
        filling_s: 0.0,
        memory_limit_bytes: MEMORY,
        seed: 11,
    };
    let mut supervisor = WorkerSupervisor::open(&plan, None, &|| false)?;
    let mut entries = entries();
    // What may cost the device comes last.
    entries.sort_by_key(|entry| supervisor.is_apart(entry));
    for entry in entries {
        let found = match supervisor.verify(&entry) {
            Ok(error) => Found::Error(error),
            Err(Trouble::Refused(reason)) => Found::Skipped(reason),
            Err(Trouble::Stopped) => Found::Skipped("it was stopped".into()),
            Err(Trouble::Lost { reason, loss: Loss::Hung }) => Found::Hung(reason),
            Err(Trouble::Lost { reason, .. }) => Found::Faulted(reason),
        };
        each(Verified { entry, found });
    }
    Ok(())
}

fn count(all: &[Verified], outcome: &str) -> usize {
    all.iter().filter(|verified| verified.found.outcome() == outcome).count()
}

fn table(all: &[Verified]) -> String {
    let width = all.iter().map(|verified| verified.entry.len()).max().unwrap_or(0);
    let outcome_width = OUTCOMES.iter().map(|outcome| outcome.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Verified { entry, found } in all {
        let line = format!("{entry:width$}  {:outcome_width$}  {}", found.outcome(), found.because());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let counts = OUTCOMES.map(|outcome| format!("{} {outcome}", count(all, outcome)));
    // Writing to a string does not fail.
    let _ = writeln!(text, "{} kernels: {}", all.len(), counts.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entry: &str, found: Found) -> Verified {
        Verified { entry: entry.into(), found }
    }

    #[test]
    fn lines_are_those_of_a_flat_object() {
        let line = |found| serde_json::to_value(of("mma_f8", found)).unwrap();
        assert_eq!(line(Found::Error(0.5)), serde_json::json!({ "entry": "mma_f8", "error": 0.5 }));
        let why = || "why".to_owned();
        assert_eq!(line(Found::Skipped(why())), serde_json::json!({ "entry": "mma_f8", "skipped": "why" }));
        assert_eq!(line(Found::Faulted(why())), serde_json::json!({ "entry": "mma_f8", "faulted": "why" }));
        assert_eq!(line(Found::Hung(why())), serde_json::json!({ "entry": "mma_f8", "hung": "why" }));
    }

    #[test]
    fn the_table_has_every_kernel_and_counts_them() {
        let all = [
            of("a", Found::Error(0.0)),
            of("long_name", Found::Error(f64::NAN)),
            of("c", Found::Hung("for ever".into())),
            of("d", Found::Skipped(format!("d {NOT_NATIVE} on compute capability 8.7"))),
            of("e", Found::Skipped("needs 8 GB".into())),
        ];
        let table = table(&all);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "long_name  wrong             error NaN");
        assert_eq!(lines[2], "c          hung              for ever");
        assert_eq!(lines[3], "d          not for this GPU");
        assert_eq!(lines[5], "5 kernels: 1 right, 1 wrong, 0 faulted, 1 hung, 1 not run, 1 not for this GPU");
    }
}
