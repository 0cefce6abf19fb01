//! `demo`: a tour with a private daemon in a directory of its own. It calibrates this machine, draws its roofline with
//! measured points, compares predicted and measured times, asks what a scheduler would ask, and leaves nothing behind.

mod bus;
pub mod private_daemon;
mod questions;
mod simulated;

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::args::DemoArgs;
use super::calibrate::{self, Progress};
use super::chart::Chart;
use super::compare;
use super::comparison::Comparison;
use super::failure::{Exit, Failure};
use super::output::Printer;
use super::working::Working;
use super::{plot, rooflines, words};
use bus::PrivateBus;
use predict::calibration::PlanKind;
use private_daemon::PrivateDir;
use roofline::refusal::Code;
use roofline::units::BytesPerSecond;
use wire::client::{Client, ClientError};
use wire::{BoardAnswer, CalibrateRequest, CalibrationAnswer, RooflineAnswer, SweepRow};

/// A tour is of what can be measured: on a board whose GPU this version has no kernels for, the CPU.
const CONFIG: &str = "[daemon]\naccelerator = \"cpu\"\n";

/// The tour ends by itself before a minute has passed.
const LIMIT: Duration = Duration::from_secs(58);
/// Other work may spoil a calibration; it is tried again until this much of the time has passed.
const LAST_TRY: Duration = Duration::from_secs(35);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit of a single question.
const TIME_LIMIT: Duration = Duration::from_secs(20);

pub async fn run(printer: &Printer, args: &DemoArgs) -> Result<Exit, Failure> {
    // Dropping the tour ends its processes and removes its directory.
    let outcome = async {
        match &args.simulate {
            Some(board) => simulated::run(printer, board).await,
            None => tour(printer, args).await,
        }
    };
    tokio::select! {
        outcome = outcome => outcome,
        () = tokio::time::sleep(LIMIT) => Err(Failure::failed(
            format!("the demo did not end within {} s", LIMIT.as_secs()),
            "try it on a machine that is less busy, or with --quick",
        )),
        name = interrupted() => Err(Failure::failed(
            format!("ended by {name}; the private daemon is stopped and its directory removed"),
            "start it again with: rooflinectl demo",
        )),
    }
}

/// The signal that asks this process to end.
async fn interrupted() -> &'static str {
    let wait = async |kind: SignalKind, name: &'static str| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
            name
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        name = wait(SignalKind::interrupt(), "SIGINT") => name,
        name = wait(SignalKind::terminate(), "SIGTERM") => name,
        name = wait(SignalKind::hangup(), "SIGHUP") => name,
    }
}

/// What the steps leave for the summary.
#[derive(Default)]
struct Findings {
    board: Option<BoardAnswer>,
    roofline: Option<RooflineAnswer>,
    predicted: Vec<SweepRow>,
    comparison: Option<Comparison>,
    /// What other work did to the calibration.
    load: Option<String>,
    failed: u32,
}

async fn tour(printer: &Printer, args: &DemoArgs) -> Result<Exit, Failure> {
    let began = Instant::now();
    let directory = PrivateDir::create(CONFIG)?;
    let bus = PrivateBus::start(directory.path())?;
    let address = bus.as_ref().map_or("none", PrivateBus::address);
    printer.line("rooflined demo: everything below happens on this machine, now.\n")?;
    heading(printer, 1, "a private daemon")?;
    let mut daemon = directory.start_daemon(address, None).await?;
    let mut client = Client::new(Some(directory.path()), TIME_LIMIT);
    daemon.wait_until_ready(&mut client).await?;
    printer.line(&format!(
        "  listening in {}; bus: {}",
        directory.path().display(),
        bus_in_words(bus.as_ref())
    ))?;

    let mut findings = Findings::default();
    let board = introduce(printer, &mut client).await;
    findings.board = keep(&mut findings.failed, board)?;
    heading(printer, 2, "calibration: what can this machine do?")?;
    let calibrated = measure_ceilings(printer, &mut client, args).await;
    findings.roofline = keep(&mut findings.failed, calibrated)?;
    findings.load = load_beside(&mut client).await;
    if let Some(load) = &findings.load {
        printer.line(&format!("  {load}"))?;
    }
    heading(printer, 3, "operations run now, under the roofline")?;
    let compared = measure_operations(printer, &mut client).await;
    if let Some((predicted, comparison)) = keep(&mut findings.failed, compared)? {
        (findings.predicted, findings.comparison) = (predicted, Some(comparison));
    }
    let drawn = draw(printer, args, &findings);
    keep(&mut findings.failed, drawn)?;
    heading(printer, 4, "predicted vs. measured")?;
    if let Some(comparison) = &findings.comparison {
        printer.text(&compare::render(comparison))?;
    }
    heading(printer, 5, "three questions of a scheduler, over HTTP")?;
    let asked = questions::ask_three(printer, &mut client).await;
    keep(&mut findings.failed, asked)?;
    heading(printer, 6, "one question over D-Bus")?;
    let asked = match &bus {
        Some(bus) => bus.ask(printer).await,
        None => printer.line(&format!("  SKIPPED: {}", bus::MISSING)),
    };
    keep(&mut findings.failed, asked)?;
    printer.line(&summary(&findings, bus.is_some(), began.elapsed()))?;
    Ok(if findings.failed == 0 { Exit::Ok } else { Exit::Failed })
}

fn heading(printer: &Printer, number: u32, title: &str) -> Result<(), Failure> {
    printer.line(&format!("\n[{number}/6] {title}"))
}

fn bus_in_words(bus: Option<&PrivateBus>) -> &'static str {
    if bus.is_some() { "a private dbus-daemon" } else { "none" }
}

/// The outcome of a step. A step that failed is reported and counted, and the tour goes on; a reader who has gone
/// ends it.
fn keep<T>(failed: &mut u32, outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(failure @ (Failure::ReaderGone | Failure::Output(_))) => Err(failure),
        Err(failure) => {
            super::report(&failure);
            *failed += 1;
            Ok(None)
        }
    }
}

async fn introduce(printer: &Printer, client: &mut Client) -> Result<BoardAnswer, Failure> {
    let board: BoardAnswer = client.get("/v1/board").await?.parse()?;
    printer.line(&format!("  {}", machine(&board)))?;
    Ok(board)
}

/// The machine in a line.
fn machine(board: &BoardAnswer) -> String {
    let cpu = board.cpu.get("model").and_then(serde_json::Value::as_str).unwrap_or("unknown CPU");
    let logical = board.cpu.get("logical").and_then(serde_json::Value::as_u64);
    let cpus = logical.map_or_else(String::new, |count| format!(", {count} logical CPUs"));
    let kernel = board.kernel.as_deref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
    format!("{cpu}{cpus}{kernel}")
}

async fn measure_ceilings(
    printer: &Printer,
    client: &mut Client,
    args: &DemoArgs,
) -> Result<RooflineAnswer, Failure> {
    let mut plan = if args.quick { PlanKind::Quick } else { PlanKind::Full };
    let began = Instant::now();
    loop {
        // The machine may be busy: that is for the intervals to say, not a reason to show nothing.
        let request = CalibrateRequest { plan, wait: true, force: true };
        let mut progress = Progress::leaving_signals(printer.ascii);
        let outcome =
            calibrate::follow(client, &request, &mut |fraction, step| progress.show(fraction, step)).await;
        drop(progress);
        match outcome {
            Err(Failure::Client(ClientError::Refused { body, .. }))
                if body.known_code() == Some(Code::FitFailed) && began.elapsed() < LAST_TRY =>
            {
                printer.line(&format!("  {}; measuring again, briefly", body.message))?;
                // A short run finds a quiet moment more easily than a long one.
                plan = PlanKind::Quick;
                tokio::time::sleep(PAUSE).await;
            }
            outcome => {
                outcome?;
                break;
            }
        }
    }
    let answer: RooflineAnswer = client.get("/v1/roofline").await?.parse()?;
    printer.line(&format!(
        "  {} in {}",
        ceilings(&answer).join(", "),
        words::time(began.elapsed().as_secs_f64())
    ))?;
    Ok(answer)
}

/// What other work did to the calibration; `None` where there was none.
async fn load_beside(client: &mut Client) -> Option<String> {
    let answer: CalibrationAnswer = client.get("/v1/calibration").await.ok()?.parse().ok()?;
    calibrate::load(&answer.record)
}

/// The main ceilings in words.
fn ceilings(answer: &RooflineAnswer) -> Vec<String> {
    let bandwidth = &answer.bandwidth_bytes_per_s;
    let from = if bandwidth.provenance == "measured" {
        String::new()
    } else {
        format!(" ({})", bandwidth.provenance)
    };
    let mut found = vec![format!("memory {}{from}", BytesPerSecond(bandwidth.value))];
    let compute = &answer.compute_flops_per_s;
    found.extend(compute.iter().map(|(name, peak)| format!("{name} {}", words::compute(name, peak.value))));
    found
}

async fn measure_operations(
    printer: &Printer,
    client: &mut Client,
) -> Result<(Vec<SweepRow>, Comparison), Failure> {
    let work = rooflines::plotted();
    let predicted = rooflines::predicted(client, &work).await?;
    let comparison = compare::compare(client, &work, &Working::unseen()).await?;
    if comparison.rows.is_empty() {
        return Err(Failure::failed("no operation could be measured", comparison.skipped.join("; ")));
    }
    printer.line(&format!("  {} operations predicted, then measured", comparison.rows.len()))?;
    Ok((predicted, comparison))
}

fn draw(printer: &Printer, args: &DemoArgs, findings: &Findings) -> Result<(), Failure> {
    let Some(answer) = &findings.roofline else { return Ok(()) };
    let mut chart = Chart::new(answer);
    chart.add_predicted(&findings.predicted);
    if let Some(comparison) = &findings.comparison {
        rooflines::add_measured(&mut chart, comparison, &findings.predicted);
    }
    printer.line("")?;
    printer.text(&plot::draw(&chart, printer))?;
    if let Some(file) = &args.svg {
        rooflines::write_svg(&chart, file)?;
        printer.line(&format!("  written to {}", file.display()))?;
    }
    Ok(())
}

fn summary(findings: &Findings, with_bus: bool, wall: Duration) -> String {
    let mut parts = Vec::new();
    if let Some(answer) = &findings.roofline {
        parts.push(format!("measured {}", ceilings(answer).join(", ")));
    }
    if let Some(comparison) = &findings.comparison {
        let median = comparison.median_error_ratio.map_or_else(|| "unknown".to_owned(), words::percent);
        parts.push(format!("{} operations with a median error of {median}", comparison.rows.len()));
    }
    if findings.load.is_some() {
        parts.push("beside other work, so with wide intervals; on a quiet machine it is sharper".to_owned());
    }
    let board = findings.board.as_ref();
    let simulated = board.is_none_or(|board| board.simulated)
        || findings.roofline.as_ref().is_some_and(|answer| answer.simulated)
        || findings.comparison.as_ref().is_some_and(|comparison| comparison.simulated);
    let real = if simulated { "SOMETHING WAS SIMULATED" } else { "nothing was simulated" };
    let failed = match findings.failed {
        0 => String::new(),
        1 => "; 1 STEP FAILED".to_owned(),
        count => format!("; {count} STEPS FAILED"),
    };
    let skipped = if with_bus { "" } else { "; D-Bus skipped" };
    let on = board.map_or_else(|| "this machine".to_owned(), machine);
    format!("\nOn {on}: {}; {real}{skipped}{failed}; {:.0} s.", parts.join("; "), wall.as_secs_f64())
}
