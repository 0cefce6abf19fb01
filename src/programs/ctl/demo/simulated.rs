//! The tour of a simulated board: calibrate, predict, switch power modes and back, hold, get hot, and be refused.
//!
//! A step whose route the daemon does not have is skipped aloud.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::private_daemon::PrivateDir;
use super::{TIME_LIMIT, ceilings, keep};
use crate::calibrate::{self, Progress};
use crate::compare;
use crate::failure::{Exit, Failure};
use crate::output::Printer;
use crate::table::Table;
use crate::working::Working;
use crate::{rooflines, show, words};
use predict::calibration::PlanKind;
use roofline::precision::WeightFormat;
use roofline::refusal::Code;
use roofline::units::BytesPerSecond;
use roofline::workload::Op;
use wire::client::{Client, ClientError};
use wire::{CalibrateRequest, MeasureRequest, RooflineAnswer, StateAnswer};

/// Said first, and of every table.
const SIMULATED: &str = "SIMULATED: no value describes hardware";
/// The oven that every board gets hot in within seconds, and the ordinary room, in °C.
const HOT: &str = "150";
const ORDINARY: &str = "27";
/// The board is heated for no longer than this.
const HEATING: Duration = Duration::from_secs(14);
const STEPS: u32 = 9;
/// What the private daemon may do. The declared clocks are for boards without nvpmodel.
const CONFIG: &str = "[control]\nenabled = true\nclock_modes = [\"quiet=0..1500MHz\"]\n";
/// Power of a service on battery.
const LITTLE: f64 = 30.0;

/// What the steps share.
struct Tour<'a> {
    printer: &'a Printer,
    client: Client,
    board: PathBuf,
    modes: Vec<Value>,
    failed: u32,
    skipped: u32,
}

/// `demo --simulate BOARD`
pub async fn run(printer: &Printer, board: &str) -> Result<Exit, Failure> {
    let began = Instant::now();
    let directory = PrivateDir::create(CONFIG)?;
    let root = directory.path().join("board");
    printer.line(&format!("rooflined demo: a board in a directory. {SIMULATED}.\n"))?;
    let mut daemon = directory.start_daemon("none", Some((board, &root))).await?;
    let mut client = Client::new(Some(directory.path()), TIME_LIMIT);
    daemon.wait_until_ready(&mut client).await?;
    let mut tour = Tour { printer, client, board: root, modes: Vec::new(), failed: 0, skipped: 0 };
    tour.all().await?;
    let problems = match (tour.failed, tour.skipped) {
        (0, 0) => String::new(),
        (failed, skipped) => format!("; {failed} STEPS FAILED, {skipped} SKIPPED"),
    };
    printer.line(&format!("\n{SIMULATED}{problems}; {:.0} s.", began.elapsed().as_secs_f64()))?;
    Ok(if tour.failed == 0 { Exit::Ok } else { Exit::Failed })
}

impl Tour<'_> {
    async fn all(&mut self) -> Result<(), Failure> {
        let done = self.introduce().await;
        self.settle(done)?;
        self.heading(2, "power modes, listed without entering any")?;
        let done = self.list_modes().await;
        self.settle(done)?;
        self.heading(3, "calibration, in the mode that is active")?;
        let done = self.calibrate(PlanKind::Full).await.map(|_| ());
        self.settle(done)?;
        self.heading(4, "operations predicted, then measured")?;
        let done = self.compare().await;
        self.settle(done)?;
        let target = self.other_mode();
        self.heading(5, "another power mode: what would be written")?;
        let done = self.dry_run(target.as_deref()).await;
        self.settle(done)?;
        self.heading(6, "the switch: ceilings predicted for the new mode vs. measured in it")?;
        let done = self.switch(target.as_deref()).await;
        self.settle(done)?;
        self.heading(7, "a hold")?;
        let done = self.hold().await;
        self.settle(done)?;
        self.heading(8, "thermal throttling: the board in an oven")?;
        let done = self.heat().await;
        // The room is cooled whatever came of it.
        let cooled = self.room(ORDINARY);
        self.settle(done.and(cooled))?;
        self.heading(9, "a switch reverted, and one refused")?;
        let done = self.revert(target.as_deref()).await;
        self.settle(done)?;
        let done = self.refuse().await;
        self.settle(done)
    }

    fn heading(&self, number: u32, title: &str) -> Result<(), Failure> {
        self.printer.line(&format!("\n[{number}/{STEPS}] {title}"))
    }

    fn say(&self, line: &str) -> Result<(), Failure> {
        self.printer.line(&format!("  {line}"))
    }

    /// A step that the daemon does not know is skipped, one that failed is reported, and the tour goes on.
    fn settle(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Err(Failure::Client(ClientError::Refused { body, .. }))
                if matches!(
                    body.known_code(),
                    Some(Code::NotFound | Code::MethodNotAllowed | Code::UnsupportedOperatingPoint)
                ) =>
            {
                self.skipped += 1;
                self.say(&format!("SKIPPED: {}", body.message))
            }
            outcome => keep(&mut self.failed, outcome).map(|_| ()),
        }
    }

    async fn value(&mut self, route: &str) -> Result<Value, Failure> {
        Ok(self.client.get(route).await?.parse()?)
    }

    async fn command(&mut self, route: &str, body: &Value) -> Result<Value, Failure> {
        Ok(self.client.command(route, body).await?.parse()?)
    }

    async fn introduce(&mut self) -> Result<(), Failure> {
        self.heading(1, "a private daemon on the board's files")?;
        let state: StateAnswer = self.client.get("/v1/state").await?.parse()?;
        self.printer.text(&show::status(&state, None))
    }

    async fn active(&mut self) -> Result<String, Failure> {
        let state = self.value("/v1/state").await?;
        let mode = state.pointer("/power_mode/value");
        let name = mode.and_then(|mode| mode.get("name").or(Some(mode))).and_then(Value::as_str);
        Ok(name.unwrap_or("unknown").to_owned())
    }

    async fn list_modes(&mut self) -> Result<(), Failure> {
        let answer = self.value("/v1/modes").await?;
        self.modes = answer.get("modes").and_then(Value::as_array).cloned().unwrap_or_default();
        if self.modes.is_empty() {
            let reason = answer.get("reason").and_then(Value::as_str).unwrap_or("the board has none");
            return self.say(&format!("none: {reason}"));
        }
        let mut table = Table::new(&["mode", ">SM", ">GPU", ">memory", ">bandwidth", ">fp16", "reboot", ""]);
        for mode in &self.modes {
            let number = |path: &str| mode.pointer(path).and_then(Value::as_f64);
            let megahertz = |path: &str| {
                number(path).map_or_else(|| "no cap".to_owned(), |hz| format!("{:.0} MHz", hz / 1e6))
            };
            let or_unknown =
                |value: Option<f64>, unit: &dyn Fn(f64) -> String| value.map_or_else(|| "?".to_owned(), unit);
            table.row([
                name_of(mode),
                or_unknown(number("/sm_online"), &|sm| format!("{sm:.0}")),
                megahertz("/gpu_max_hz"),
                megahertz("/emc_max_hz"),
                or_unknown(number("/ceilings/bandwidth_bytes_per_s/value"), &|rate| {
                    BytesPerSecond(rate).to_string()
                }),
                or_unknown(number("/ceilings/compute_flops_per_s/fp16/value"), &|rate| {
                    words::compute("fp16", rate)
                }),
                mode.get("reboot_required").map_or_else(String::new, ToString::to_string),
                if mode.get("active") == Some(&Value::Bool(true)) {
                    "<- now".to_owned()
                } else {
                    String::new()
                },
            ]);
        }
        self.printer.text(&table.render())
    }

    /// The slower of the modes that can be entered without a reboot.
    fn other_mode(&self) -> Option<String> {
        let number = |mode: &Value| mode.get("gpu_max_hz").and_then(Value::as_f64);
        let live = self.modes.iter().filter(|mode| {
            mode.get("active") != Some(&Value::Bool(true))
                && mode.get("reboot_required") == Some(&Value::Bool(false))
        });
        let clock = |mode: &Value| number(mode).unwrap_or(f64::INFINITY);
        live.min_by(|a, b| clock(a).total_cmp(&clock(b))).map(name_of)
    }

    async fn calibrate(&mut self, plan: PlanKind) -> Result<RooflineAnswer, Failure> {
        let began = Instant::now();
        let mut progress = Progress::leaving_signals(self.printer.ascii);
        let request = CalibrateRequest { plan, wait: true, force: true };
        let outcome = calibrate::follow(&mut self.client, &request, &mut |fraction, step| {
            progress.show(fraction, step);
        })
        .await;
        drop(progress);
        outcome?;
        let answer: RooflineAnswer = self.client.get("/v1/roofline").await?.parse()?;
        self.say(&format!(
            "{} in {}",
            ceilings(&answer).join(", "),
            words::time(began.elapsed().as_secs_f64())
        ))?;
        Ok(answer)
    }

    async fn compare(&mut self) -> Result<(), Failure> {
        let comparison = compare::compare(&self.client, &rooflines::plotted(), &Working::unseen()).await?;
        self.printer.text(&compare::render(&comparison))
    }

    async fn dry_run(&mut self, target: Option<&str>) -> Result<(), Failure> {
        let Some(target) = target else { return self.nowhere() };
        let answer = self.command("/v1/mode", &json!({ "mode": target, "dry_run": true })).await?;
        let answer = answer.get("report").unwrap_or(&answer);
        for write in answer.get("writes").and_then(Value::as_array).into_iter().flatten() {
            let part = |name: &str, index: usize| {
                write.get(name).or_else(|| write.get(index)).and_then(Value::as_str).unwrap_or("?").to_owned()
            };
            self.say(&format!("{} <- {}", part("path", 0), part("value", 1)))?;
        }
        Ok(())
    }

    fn nowhere(&mut self) -> Result<(), Failure> {
        self.skipped += 1;
        self.say("SKIPPED: the board has no mode that can be entered without a reboot")
    }

    async fn switch(&mut self, target: Option<&str>) -> Result<(), Failure> {
        let Some(target) = target else { return self.nowhere() };
        let before = self.value("/v1/roofline").await?;
        let carried = self.value(&format!("/v1/roofline?mode={target}")).await?;
        let from = self.active().await?;
        let answer = self
            .command("/v1/mode", &json!({ "mode": target, "confirm_within_s": 20, "reason": "demo" }))
            .await?;
        let id = answer.pointer("/confirm/id").or_else(|| answer.pointer("/confirm/0"));
        let id = id.cloned().unwrap_or(Value::Null);
        let entered = self.active().await?;
        self.say(&format!("{from} -> {entered}, to be confirmed within 20 s"))?;
        self.command("/v1/mode/confirm", &json!({ "id": id })).await?;
        self.say("confirmed; measuring there")?;
        self.calibrate(PlanKind::Quick).await?;
        let after = self.value("/v1/roofline").await?;
        let mut table = Table::new(&[
            "ceiling",
            &format!(">{from}"),
            &format!(">{target}, predicted"),
            ">measured",
            ">error",
        ]);
        let bandwidth = |rate: f64| BytesPerSecond(rate).to_string();
        for (name, path, unit) in [
            ("memory read", "/bandwidth_bytes_per_s/value", &bandwidth as &dyn Fn(f64) -> String),
            ("peak fp32", "/compute_flops_per_s/fp32/value", &|rate| words::compute("fp32", rate)),
            ("peak fp16", "/compute_flops_per_s/fp16/value", &|rate| words::compute("fp16", rate)),
            ("peak int8", "/compute_flops_per_s/int8/value", &|rate| words::compute("int8", rate)),
        ] {
            let at = |answer: &Value| answer.pointer(path).and_then(Value::as_f64);
            let (Some(before), Some(carried), Some(after)) = (at(&before), at(&carried), at(&after)) else {
                continue;
            };
            table.row([
                name.to_owned(),
                unit(before),
                unit(carried),
                unit(after),
                words::signed_percent(carried / after - 1.0),
            ]);
        }
        self.printer.text(&table.render())
    }

    async fn hold(&mut self) -> Result<(), Failure> {
        let ttl = 2.0;
        let watts = |name: String| name.trim_start_matches("MODE_").strip_suffix('W')?.parse::<f64>().ok();
        let frugal = self.modes.iter().any(|mode| {
            let now = mode.get("reboot_required") == Some(&Value::Bool(false));
            now && watts(name_of(mode)).is_some_and(|watts| watts <= LITTLE)
        });
        let (what, constraints) = if frugal {
            (format!("at most {LITTLE} W"), json!({ "max_power_w": LITTLE }))
        } else {
            let active = self.active().await?;
            (format!("no less than {active}"), json!({ "min_mode": active }))
        };
        let request = json!({
            "constraints": constraints, "app_id": "demo", "reason": "a tour", "ttl_s": ttl,
        });
        let answer = self.command("/v1/holds", &request).await?;
        let mode = answer.get("mode").and_then(Value::as_str).unwrap_or("the mode that is active").to_owned();
        let held = self.holds().await?;
        self.say(&format!("{what} for {ttl:.0} s: held in {mode}; active holds: {held}"))?;
        tokio::time::sleep(Duration::from_secs_f64(ttl + 0.8)).await;
        let (held, mode) = (self.holds().await?, self.active().await?);
        self.say(&format!("it has run out; active holds: {held}, the mode is {mode}"))
    }

    async fn holds(&mut self) -> Result<usize, Failure> {
        let answer = self.value("/v1/holds").await?;
        Ok(answer.get("holds").and_then(Value::as_array).map_or(0, Vec::len))
    }

    fn room(&self, degrees: &str) -> Result<(), Failure> {
        write(&self.board.join("rooflined/ambient_c"), degrees)
    }

    /// Runs the accelerator in a hot room until something throttles.
    async fn heat(&mut self) -> Result<(), Failure> {
        self.room(HOT)?;
        let request = MeasureRequest {
            op: Some(Op::Gemv { n: 14_336, k: 4096 }),
            formats: vec![WeightFormat::Int8.key().to_owned()],
            ..MeasureRequest::default()
        };
        let began = Instant::now();
        loop {
            self.command("/v1/measure", &json!(request)).await?;
            let state = self.value("/v1/state").await?;
            let active = state.pointer("/throttle/value/active").and_then(Value::as_bool).unwrap_or(false);
            if active || began.elapsed() > HEATING {
                let evidence = state.pointer("/throttle/value/evidence").cloned().unwrap_or(Value::Null);
                let clock = state.pointer("/gpu_hz/value").and_then(Value::as_f64);
                let clock = clock.map_or_else(String::new, |hz| format!(", GPU at {:.0} MHz", hz / 1e6));
                let spent = began.elapsed().as_secs_f64();
                if !active {
                    let message = format!("nothing throttled at {HOT} °C within {spent:.0} s");
                    return Err(Failure::failed(message, "report this"));
                }
                return self
                    .say(&format!("{HOT} °C around it for {spent:.0} s: throttling{clock}: {evidence}"));
            }
        }
    }

    async fn revert(&mut self, target: Option<&str>) -> Result<(), Failure> {
        let active = self.active().await?;
        let other =
            self.modes.iter().map(name_of).find(|name| *name != active && target == Some(active.as_str()));
        let live = self
            .modes
            .iter()
            .find(|mode| name_of(mode) != active && mode.get("reboot_required") == Some(&Value::Bool(false)));
        let Some(other) = live.map(name_of).or(other) else { return self.nowhere() };
        self.command("/v1/mode", &json!({ "mode": other, "confirm_within_s": 20, "reason": "demo" })).await?;
        let entered = self.active().await?;
        self.command("/v1/mode/revert", &json!({})).await?;
        let again = self.active().await?;
        self.say(&format!("{active} -> {entered} -> {again} again, reverted before it was confirmed"))
    }

    /// A mode that gates units: the answer is no, and why.
    async fn refuse(&mut self) -> Result<(), Failure> {
        let gating = self.modes.iter().find(|mode| mode.get("reboot_required") == Some(&Value::Bool(true)));
        let Some(name) = gating.map(name_of) else {
            return self.say("no mode of this board needs a reboot");
        };
        match self.command("/v1/mode", &json!({ "mode": name, "reason": "demo" })).await {
            Err(Failure::Client(ClientError::Refused { body, .. }))
                if body.known_code() == Some(Code::RebootRequired) =>
            {
                self.say(&format!("{name}: {}", body.message))
            }
            Err(other) => Err(other),
            Ok(_) => Err(Failure::failed(format!("{name} was entered without a reboot"), "report this")),
        }
    }
}

fn name_of(mode: &Value) -> String {
    mode.get("name").and_then(Value::as_str).unwrap_or("?").to_owned()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, format!("{text}\n")).map_err(|error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()), "make room on that disk")
    })
}
