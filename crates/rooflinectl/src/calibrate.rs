//! `calibrate`: starts a calibration and, asked to wait, shows how far it is.

use std::io::Write;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Context;
use super::args::CalibrateArgs;
use super::failure::Failure;
use super::words;
use super::working::{Counted, Working};
use rooflined_api::{CalibrateAnswer, CalibrateRequest, CalibrationAnswer};
use rooflined_client::{Client, ClientError, Events};
use rooflined_predict::calibration::OtherWork;

/// Longest calibration waited for, a crowded machine included.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// How often the daemon is asked where no event tells; asking more often would disturb what it measures.
const POLL: Duration = Duration::from_millis(500);

pub async fn run(context: &mut Context, args: &CalibrateArgs) -> Result<(), Failure> {
    let request = CalibrateRequest { plan: args.plan(), wait: false, force: args.force };
    let answer = if args.wait {
        let mut progress = Progress::start(context.printer.ascii);
        follow(&mut context.client, &request, &mut |fraction, step| progress.show(fraction, step)).await?;
        drop(progress);
        context.client.get("/v1/calibration").await?
    } else {
        context.client.command("/v1/calibrate", &request).await?
    };
    context.printer.answer("calibration", &answer, || {
        if args.wait {
            Ok(summary(&answer.parse()?))
        } else {
            let started: CalibrateAnswer = answer.parse()?;
            Ok(format!(
                "calibration {} has started; follow it with: rooflinectl watch --events\n",
                started.job
            ))
        }
    })
}

/// Starts a calibration and returns when it has ended well; `show` is called with its progress.
pub async fn follow(
    client: &mut Client,
    request: &CalibrateRequest,
    show: &mut dyn FnMut(f64, &str),
) -> Result<(), Failure> {
    let mut watcher = client.another(TIME_LIMIT);
    let mut events = watcher.events().await.ok();
    let mut poller = client.another(Duration::from_secs(10));
    let mut commander = client.another(TIME_LIMIT);
    let request = CalibrateRequest { wait: true, ..request.clone() };
    let command = commander.command("/v1/calibrate", &request);
    tokio::pin!(command);
    loop {
        tokio::select! {
            answer = &mut command => {
                answer?;
                show(1.0, "done");
                return Ok(());
            }
            () = change(&mut events) => {}
            () = tokio::time::sleep(POLL) => {}
        }
        if let Ok(status) = status(&mut poller).await {
            let fraction = status.get("fraction").and_then(Value::as_f64);
            let step = status.get("step").and_then(Value::as_str).unwrap_or("starting");
            let waiting = status.get("waiting_reason").and_then(Value::as_str);
            show(fraction.unwrap_or(0.0), waiting.filter(|_| fraction.is_none()).unwrap_or(step));
        }
    }
}

/// Waits for the next event about a calibration; for ever once there are none any more.
async fn change(events: &mut Option<Events>) {
    while let Some(stream) = events {
        match stream.next().await {
            Ok(Some(event)) if event.name == "calibration" => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => *events = None,
        }
    }
    std::future::pending::<()>().await;
}

async fn status(client: &mut Client) -> Result<Value, ClientError> {
    let answer: CalibrationAnswer = client.get("/v1/calibration").await?.parse()?;
    Ok(answer.status)
}

/// What a finished calibration found, as a sentence.
pub fn summary(answer: &CalibrationAnswer) -> String {
    let of = |name: &str| answer.record.get(name);
    let wall =
        of("wall").and_then(Value::as_f64).map_or_else(String::new, |s| format!(" in {}", words::time(s)));
    let count = |name: &str| of(name).and_then(Value::as_array).map_or(0, Vec::len);
    let (points, rejected) = (count("regimes"), count("rejected"));
    let points =
        if points == 1 { "one operating point".to_owned() } else { format!("{points} operating points") };
    let mut text = format!("calibrated{wall}; the ceilings of {points} are measured");
    if let Some(load) = load(&answer.record) {
        text.push_str(&format!("; {load}"));
    }
    text.push_str(&power(&answer.record));
    if rejected > 0 {
        text.push_str(&format!(
            "; {rejected} samples rejected (rooflinectl calibrate --wait -o json lists them)"
        ));
    }
    text + "\ndraw it with: rooflinectl roofline\n"
}

/// What a load did to the newest run; `None` where it was quiet.
pub fn load(record: &Value) -> Option<String> {
    record.get("loaded").and_then(Value::as_bool).filter(|loaded| *loaded)?;
    let work = record.get("other_work").and_then(|work| OtherWork::deserialize(work).ok());
    let work = work.map_or_else(|| ", or at clocks that moved".to_owned(), |work| format!(" ({work})"));
    Some(format!(
        "measured during other work{work}: the least disturbed runs are used, and the intervals are wide"
    ))
}

/// How many loads have a power in the regime in force, or why none has.
fn power(record: &Value) -> String {
    let regime = record.get("regimes").and_then(|regimes| regimes.get(0)).unwrap_or(&Value::Null);
    let points = regime.get("power_points").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let known =
        points.iter().filter(|point| point.get("power_w").is_some_and(|watts| !watts.is_null())).count();
    match regime.get("power_reason").and_then(Value::as_str) {
        Some(why) => format!("; power not measured: {why}"),
        None if points.is_empty() => String::new(),
        None => format!("; power of {known} loads"),
    }
}

/// A progress bar on a terminal, a line for each tenth elsewhere; on standard error, so that answers stay clean.
pub struct Progress {
    bar: Working,
    last_tenth: Option<u8>,
    ascii: bool,
}

impl Progress {
    pub fn start(ascii: bool) -> Self {
        Self { bar: Working::on_terminal(ascii, Counted::Thousandths, ""), last_tenth: None, ascii }
    }

    /// So much of it is done, 0 to 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a small positive range"
    )]
    pub fn show(&mut self, fraction: f64, step: &str) {
        let fraction = fraction.clamp(0.0, 1.0);
        if self.bar.is_shown() {
            self.bar.reach((fraction * 1000.0) as u64);
            self.bar.say(step);
            return;
        }
        let tenth = (fraction * 10.0) as u8;
        if self.last_tenth.is_none_or(|last| tenth > last) {
            self.last_tenth = Some(tenth);
            let step = if self.ascii { super::output::to_ascii(step) } else { step.to_owned() };
            let _ = writeln!(std::io::stderr().lock(), "calibrating {:>3} % {step}", tenth * 10);
        }
    }
}
