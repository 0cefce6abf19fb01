//! `doctor --report`: every check of a fresh board in order, each with a time limit, then one file to send.
//!
//! What fails or cannot be done is a line of the table with its reason, and the next step begins. A signal ends the step
//! under way, takes back a switch of the power mode, skips the rest, and the file is written of what there is.

mod private;
mod steps;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::Context;
use super::super::args::DoctorArgs;
use super::super::failure::{Exit, Failure};
use super::super::output::Format;
use super::super::signals::wait_for_signal;
use super::super::table::Table;
use super::super::words;
use private::Private;
use rooflined_core::calendar;
use steps::{Board, STEPS};

/// No report takes longer, whatever hangs.
const WHOLE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Pass,
    Fail,
    Skipped,
}

/// How a step ended.
#[derive(Debug, Clone)]
struct StepResult {
    outcome: Outcome,
    /// What was found, or why not.
    message: String,
    /// What to do; empty if nothing.
    remedy: String,
}

impl StepResult {
    fn pass(message: impl Into<String>) -> Self {
        Self { outcome: Outcome::Pass, message: message.into(), remedy: String::new() }
    }

    fn fail(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { outcome: Outcome::Fail, message: message.into(), remedy: remedy.into() }
    }

    fn skipped(message: impl Into<String>) -> Self {
        Self { outcome: Outcome::Skipped, message: message.into(), remedy: String::new() }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
struct Row {
    step: &'static str,
    outcome: Outcome,
    message: String,
    remedy: String,
    took_s: f64,
}

/// What the steps gather for the file, by section.
type Sections = Map<String, Value>;

pub async fn run(context: &mut Context, args: &DoctorArgs, file: &Path) -> Result<Exit, Failure> {
    let interrupt = wait_for_signal();
    tokio::pin!(interrupt);
    let began = Instant::now();
    let mut board = Board::find(context, args).await?;
    let place = |error: std::io::Error| {
        let message = format!("{} cannot be written: {error}", file.display());
        Failure::failed(message, "give --report a path in a directory that you may write to")
    };
    // Before ten minutes are spent.
    let mut writable = OpenOptions::new();
    writable.write(true).create(true).truncate(false).mode(0o600).open(file).map_err(place)?;
    let mut sections = Sections::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut stopped = None;
    for (index, (step, name, words, limit)) in STEPS.into_iter().enumerate() {
        let at = Instant::now();
        let done = match stopped {
            Some(signal) => StepResult::skipped(format!("ended by {signal}")),
            None => {
                progress(context, index, name, words);
                let limit = Duration::from_secs(limit).min(WHOLE.saturating_sub(began.elapsed()));
                let done = tokio::select! {
                    done = step.perform(&mut board, &mut sections) => done.unwrap_or_else(|failure| failed(&failure)),
                    () = tokio::time::sleep(limit) => StepResult::fail(
                        format!("it did not finish within {} s", limit.as_secs()),
                        "see what hangs with: dmesg, journalctl -u rooflined",
                    ),
                    signal = &mut interrupt => {
                        stopped = Some(signal);
                        StepResult::skipped(format!("ended by {signal}"))
                    }
                };
                match board.restore_mode().await {
                    Ok(()) => done,
                    Err(why) => {
                        StepResult::fail(why, "rooflinectl mode get, then: rooflinectl mode set MODE")
                    }
                }
            }
        };
        let StepResult { outcome, message, remedy } = done;
        rows.push(Row { step: name, outcome, message, remedy, took_s: at.elapsed().as_secs_f64() });
    }
    let versions = board.versions().await;
    let report = document(&rows, sections, versions, &Private::of(board.root(), board.machine()));
    drop(board);
    let text = serde_json::to_string_pretty(&report)
        .map_err(|error| Failure::failed(format!("the report cannot be written: {error}"), "report this"))?;
    std::fs::write(file, text + "\n").map_err(place)?;
    show(context, &rows, file, began.elapsed())?;
    let failed = rows.iter().any(|row| row.outcome == Outcome::Fail) || stopped.is_some();
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// A step that ended with an error: one that may not be done is skipped, not failed.
fn failed(failure: &Failure) -> StepResult {
    let (message, remedy) = (failure.to_string(), failure.hint().unwrap_or_default().to_owned());
    let outcome = if failure.code() == Exit::Denied as u8 { Outcome::Skipped } else { Outcome::Fail };
    StepResult { outcome, message, remedy }
}

/// On standard error, so that the table and JSON stay clean.
fn progress(context: &Context, index: usize, name: &str, words: &str) {
    use std::io::Write;
    let line = format!("[{}/{}] {name}: {words}", index + 1, STEPS.len());
    let line = if context.printer.ascii { super::super::output::to_ascii(&line) } else { line };
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The file: every text in it without what tells who and which machine.
fn document(rows: &[Row], sections: Sections, versions: Value, private: &Private) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    let mut report = Map::new();
    report.insert("report".into(), json!(1));
    report.insert("date".into(), calendar::date(now).into());
    report.insert("versions".into(), versions);
    report.insert("steps".into(), json!(rows));
    report.extend(sections);
    private.without(Value::Object(report))
}

fn show(context: &Context, rows: &[Row], file: &Path, took: Duration) -> Result<(), Failure> {
    let printer = &context.printer;
    let counted = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    if printer.format != Format::Human {
        let value = json!({ "rows": rows, "ok": counted(Outcome::Fail) == 0, "file": file });
        return printer.value("doctor", &value);
    }
    let mut table = Table::new(&["step", "outcome", ">took", "what was found"]);
    for row in rows {
        let outcome = match row.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Skipped => "skipped",
        };
        table.row([row.step.to_owned(), outcome.to_owned(), words::time(row.took_s), short(&row.message)]);
    }
    printer.text(&table.render())?;
    for row in rows.iter().filter(|row| row.outcome == Outcome::Fail) {
        printer.line(&format!("\n{}: {}", row.step, row.message))?;
        if !row.remedy.is_empty() {
            printer.line(&format!("  -> {}", row.remedy))?;
        }
    }
    printer.line(&format!(
        "\n{} passed, {} failed, {} skipped in {}. Everything is in {}: names, serial numbers and addresses are replaced; \
         check it, then send it.",
        counted(Outcome::Pass),
        counted(Outcome::Fail),
        counted(Outcome::Skipped),
        words::time(took.as_secs_f64()),
        file.display(),
    ))
}

/// What fits the table; the file has all of it.
fn short(message: &str) -> String {
    const MOST: usize = 100;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}
