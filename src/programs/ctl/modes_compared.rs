//! `compare --modes`: the same operations in several power modes, each beside the prediction carried to it from the mode
//! that was active at the start, with the power that the rails tell.
//!
//! Each mode is held by an attached hold, so the machine goes back to its own mode when this program ends, however it
//! ends: the hold ends with the connection.

use roofline::units::{Joules, Watts};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::Context;
use super::commands::workload;
use super::comparison::{TIME_LIMIT, quantile};
use super::failure::{Exit, Failure};
use super::output::Format;
use super::table::Table;
use super::words;
use super::working::{Counted, Working};
use roofline::precision::WeightFormat;
use roofline::refusal::Code;
use roofline::workload::Op;
use wire::client::{Client, ClientError, Lines};
use wire::{
    ConstraintsOfHold, HoldRequest, MeasureAnswer, MeasureRequest, ModesAnswer, OperatingPointRequest,
    PredictAnswer, PredictRequest, StateAnswer,
};

/// A mode must show in the live files within this time.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// The way back waits for the dwell time of the daemon, which is ten seconds unless configured.
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// Between two readings of the power.
const METER: Duration = Duration::from_millis(200);
/// The rails are read while the load lasts; a measurement of an operation is repeated until it has lasted this long.
const LOADED_FOR: Duration = Duration::from_millis(3000);
/// Governors and regulators follow a load within this time; a reading of before has idle power in it.
const SETTLED: Duration = Duration::from_millis(800);
/// Another probe may be running: a calibration that the daemon began by itself.
const BUSY_FOR: Duration = Duration::from_secs(30);

/// What `compare --modes -o json` prints.
#[derive(Debug, Clone, Serialize)]
pub struct ModesCompared {
    /// One row for each mode, operation and format.
    pub rows: Vec<Row>,
    /// The mode that predictions were carried from.
    pub base_mode: String,
    /// The mode in which the machine was left; `null` if the live files match none.
    pub ended_in: Option<String>,
    /// Median of |predicted - measured| / measured in the modes other than the base; `null` without rows.
    pub median_error_ratio: Option<f64>,
    pub p90_error_ratio: Option<f64>,
    /// Part of those rows whose measured time lies within the predicted interval.
    pub within_interval_ratio: Option<f64>,
    /// The outcome in a sentence.
    pub verdict: String,
    /// Modes and operations left out, and why.
    pub skipped: Vec<String>,
    /// Nothing of this ran on hardware.
    pub simulated: bool,
}

/// One operation in one format and one mode.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub mode: String,
    pub op: Op,
    /// Storage of the weights.
    pub format: String,
    /// Predicted from the base mode, with the interval.
    pub predicted_time_s: wire::EstimateAnswer,
    /// Centre of the runs, with their 5 % and 95 % quantiles.
    pub measured_time_s: wire::EstimateAnswer,
    /// (predicted - measured) / measured.
    pub error_ratio: f64,
    /// Mean power while it ran; `null` where no rail was read within the time.
    pub power_w: Option<f64>,
    /// Energy of one run, from the two; `null` without power.
    pub energy_j: Option<f64>,
    /// Predicted from another mode than this one.
    pub carried: bool,
}

pub async fn run(
    context: &mut Context,
    wanted: &[String],
    work: &[(Op, Vec<WeightFormat>)],
) -> Result<(), Failure> {
    let mut sweep = Sweep::new(context.client.another(TIME_LIMIT)).await?;
    let modes = sweep.choose(wanted)?;
    sweep.predict(&modes, work).await?;
    let working = Working::new(&context.printer, Counted::Of(sweep.predicted.len() as u64), "measuring");
    let measured = sweep.measure_all(&modes, &working).await;
    // The way back first: what went wrong is said afterwards.
    working.say("going back to the mode of before");
    let ended_in = sweep.back().await;
    drop(working);
    measured?;
    let compared = sweep.judged(ended_in?);
    match context.printer.format {
        Format::Human => context.printer.text(&render(&compared)),
        _ => context.printer.value("compare", &serde_json::json!(compared)),
    }
}

/// A mode that is held, for as long as this is kept.
struct Held {
    /// What releases it.
    id: u64,
    _lines: Lines,
}

struct Sweep {
    client: Client,
    modes: ModesAnswer,
    base: String,
    predicted: Vec<(String, Op, WeightFormat, PredictAnswer)>,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

impl Sweep {
    async fn new(mut client: Client) -> Result<Self, Failure> {
        let modes: ModesAnswer = client.get("/v1/modes").await?.parse()?;
        let Some(base) = modes.active.clone() else {
            let why = modes.reason.clone().unwrap_or_else(|| "the live files match none".into());
            return Err(Failure::failed(
                format!("this machine shows no active power mode: {why}"),
                "leave --modes out to compare it as it is",
            ));
        };
        Ok(Self { client, modes, base, predicted: Vec::new(), rows: Vec::new(), skipped: Vec::new() })
    }

    /// The modes to go through, the active one first; those that cannot be entered are left out aloud.
    fn choose(&mut self, wanted: &[String]) -> Result<Vec<String>, Failure> {
        let all = wanted.iter().any(|name| name.eq_ignore_ascii_case("all"));
        let named = |name: &String, of: &wire::ModeDetail| {
            of.name.eq_ignore_ascii_case(name) || name.parse() == Ok(of.id)
        };
        let unknown =
            wanted.iter().find(|name| !all && !self.modes.modes.iter().any(|mode| named(name, mode)));
        if let Some(name) = unknown {
            let names: Vec<_> = self.modes.modes.iter().map(|mode| mode.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "there is no power mode {name:?}; there are {}",
                names.join(", ")
            )));
        }
        let mut chosen = vec![self.base.clone()];
        for mode in &self.modes.modes {
            if mode.active || !(all || wanted.iter().any(|name| named(name, mode))) {
                continue;
            }
            if mode.reachable {
                chosen.push(mode.name.clone());
            } else if !all {
                let why = mode.unreachable_reason.clone().unwrap_or_default();
                let exit =
                    if mode.reboot_required == Some(true) { Exit::RebootRequired } else { Exit::Denied };
                let hint = Some("rooflinectl mode list shows which modes can be entered now".to_owned());
                return Err(Failure::Message {
                    exit,
                    message: format!("{} cannot be entered: {why}", mode.name),
                    hint,
                });
            } else {
                let why = mode.unreachable_reason.clone().unwrap_or_default();
                self.skipped.push(format!("{}: {why}", mode.name));
            }
        }
        Ok(chosen)
    }

    /// Asks for every prediction before anything is switched: from then on the machine is measured elsewhere.
    async fn predict(&mut self, modes: &[String], work: &[(Op, Vec<WeightFormat>)]) -> Result<(), Failure> {
        for mode in modes {
            for (op, formats) in work {
                for format in formats {
                    let request = PredictRequest {
                        workload: workload(*op, *format, None),
                        operating_point: Some(OperatingPointRequest {
                            power_mode: Some(mode.clone()),
                            ..OperatingPointRequest::default()
                        }),
                        ..PredictRequest::default()
                    };
                    match self.client.post("/v1/predict", &request).await {
                        Ok(answer) => self.predicted.push((mode.clone(), *op, *format, answer.parse()?)),
                        Err(ClientError::Refused { body, .. }) if body.known_code() == Some(Code::NoUnit) => {
                            self.skipped.push(format!("{mode}: {}", body.message));
                        }
                        Err(other) => return Err(other.into()),
                    }
                }
            }
        }
        Ok(())
    }

    async fn measure_all(&mut self, modes: &[String], working: &Working) -> Result<(), Failure> {
        for mode in modes {
            let held = if *mode == self.base { None } else { Some(self.enter(mode).await?) };
            self.measure_in(mode, working).await?;
            if let Some(held) = held {
                self.leave(held).await?;
            }
        }
        Ok(())
    }

    /// Ends a hold and waits for that: the daemon may notice a closed connection only after the next hold has come, which
    /// the one of before would then stand against.
    async fn leave(&mut self, held: Held) -> Result<(), Failure> {
        match self.client.release(held.id).await {
            Ok(_) => Ok(()),
            // The daemon has been restarted meanwhile, and nobody holds.
            Err(ClientError::Refused { body, .. }) if body.known_code() == Some(Code::UnknownHold) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Holds a mode and waits until the live files show it.
    async fn enter(&mut self, mode: &str) -> Result<Held, Failure> {
        let request = HoldRequest {
            constraints: ConstraintsOfHold { mode: Some(mode.to_owned()), ..ConstraintsOfHold::default() },
            query: None,
            app_id: "rooflinectl compare".into(),
            reason: "measures each power mode".into(),
            ttl_s: None,
        };
        let mut lines = self.client.hold(&request).await?;
        let id = lines.next().await?.and_then(|line| line.get("id")?.as_u64());
        let Some(id) = id else {
            return Err(Failure::failed(
                format!("the daemon ended while {mode} was entered"),
                "rooflinectl mode get shows what is active; then run it again",
            ));
        };
        if !self.shows(mode, SHOWN_WITHIN).await? {
            return Err(Failure::failed(
                format!(
                    "{mode} was entered, but the live files do not show it after {} s",
                    SHOWN_WITHIN.as_secs()
                ),
                "rooflinectl mode get shows what is active",
            ));
        }
        Ok(Held { id, _lines: lines })
    }

    async fn active(&mut self) -> Result<Option<String>, Failure> {
        let state: StateAnswer = self.client.get("/v1/state").await?.parse()?;
        let mode = state.fields.get("power_mode").map(|field| &field.value);
        Ok(mode.and_then(|mode| mode.get("name")).and_then(Value::as_str).map(str::to_owned))
    }

    async fn shows(&mut self, mode: &str, within: Duration) -> Result<bool, Failure> {
        let began = Instant::now();
        loop {
            if self.active().await?.as_deref() == Some(mode) {
                return Ok(true);
            }
            if began.elapsed() > within {
                return Ok(false);
            }
            sleep(METER).await;
        }
    }

    async fn measure_in(&mut self, mode: &str, working: &Working) -> Result<(), Failure> {
        let here: Vec<_> = self.predicted.iter().filter(|(of, ..)| of == mode).cloned().collect();
        for (_, op, format, predicted) in here {
            working.say(&format!("{} {format} in {mode}", words::operation(&op)));
            let (answer, power) = self.metered(op, format).await?;
            working.advance(1);
            self.skipped.extend(answer.skipped.iter().map(|why| format!("{mode}: {why}")));
            let Some(measured) = answer.rows.first() else { continue };
            let time = measured.measured_time_s;
            self.rows.push(Row {
                mode: mode.to_owned(),
                op,
                format: format.key().to_owned(),
                predicted_time_s: predicted.time_s,
                measured_time_s: time,
                error_ratio: (predicted.time_s.value - time.value) / time.value,
                power_w: power,
                energy_j: power.map(|power| power * time.value),
                carried: mode != self.base,
            });
        }
        Ok(())
    }

    /// Measures one operation again and again until the rails have been read under its load.
    async fn metered(
        &mut self,
        op: Op,
        format: WeightFormat,
    ) -> Result<(MeasureAnswer, Option<f64>), Failure> {
        let request = MeasureRequest {
            op: Some(op),
            formats: vec![format.key().to_owned()],
            ..MeasureRequest::default()
        };
        let mut meter = Meter::default();
        let (began, mut first): (Instant, Option<MeasureAnswer>) = (Instant::now(), None);
        loop {
            let mut measuring = self.client.another(TIME_LIMIT);
            let mut run = Box::pin(measuring.command("/v1/measure", &request));
            let answer = loop {
                match timeout(METER, &mut run).await {
                    Ok(answer) => break answer,
                    Err(_) => meter.read(&mut self.client).await?,
                }
            };
            drop(run);
            match answer {
                Ok(answer) => {
                    let answer: MeasureAnswer = answer.parse()?;
                    let nothing = answer.rows.is_empty();
                    first.get_or_insert(answer);
                    meter.read(&mut self.client).await?;
                    if nothing || began.elapsed() > LOADED_FOR {
                        break;
                    }
                }
                Err(ClientError::Refused { body, .. })
                    if body.known_code() == Some(Code::Busy) && began.elapsed() < BUSY_FOR =>
                {
                    sleep(METER).await;
                }
                Err(other) => return Err(other.into()),
            }
        }
        let answer = first.ok_or_else(|| Failure::failed("nothing was measured", "try again"))?;
        Ok((answer, meter.mean()))
    }

    /// Waits until the machine is in its own mode again.
    async fn back(&mut self) -> Result<Option<String>, Failure> {
        let base = self.base.clone();
        self.shows(&base, BACK_WITHIN).await?;
        self.active().await
    }

    fn judged(self, ended_in: Option<String>) -> ModesCompared {
        let carried: Vec<&Row> = self.rows.iter().filter(|row| row.carried).collect();
        let mut errors: Vec<f64> = carried.iter().map(|row| row.error_ratio.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let (median, p90) = (quantile(&errors, 0.5), quantile(&errors, 0.9));
        let inside = carried.iter().filter(|row| {
            (row.predicted_time_s.low..=row.predicted_time_s.high).contains(&row.measured_time_s.value)
        });
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let within = (!carried.is_empty()).then(|| inside.count() as f64 / carried.len() as f64);
        let verdict = match (median, p90) {
            (Some(median), Some(p90)) => format!(
                "carried from {}: median error {}, 90th percentile {} over {} rows",
                self.base,
                words::percent(median),
                words::percent(p90),
                carried.len()
            ),
            _ => format!("no mode but {} could be measured", self.base),
        };
        ModesCompared {
            base_mode: self.base,
            ended_in,
            median_error_ratio: median,
            p90_error_ratio: p90,
            within_interval_ratio: within,
            verdict,
            skipped: self.skipped,
            simulated: self.modes.simulated,
            rows: self.rows,
        }
    }
}

/// Readings of the total power while a load lasts, each counted once.
#[derive(Debug, Default)]
struct Meter {
    readings: Vec<f64>,
    last: Option<f64>,
    began: Option<Instant>,
}

impl Meter {
    async fn read(&mut self, client: &mut Client) -> Result<(), Failure> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let state: StateAnswer = client.get("/v1/state").await?.parse()?;
        let Some(field) = state.fields.get("total_power_w") else { return Ok(()) };
        let watts = field.value.as_f64().or_else(|| field.value.get("power")?.as_f64());
        let (Some(watts), Some(age)) = (watts, field.age_s) else { return Ok(()) };
        // A reading of before the load, or the one that was counted already.
        if age + SETTLED.as_secs_f64() > began.elapsed().as_secs_f64() || self.last == Some(watts) {
            return Ok(());
        }
        self.last = Some(watts);
        self.readings.push(watts);
        Ok(())
    }

    /// `None` where no rail was read in time.
    fn mean(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let mean = self.readings.iter().sum::<f64>() / self.readings.len() as f64;
        (!self.readings.is_empty()).then_some(mean)
    }
}

fn render(compared: &ModesCompared) -> String {
    let mut table = Table::new(&[
        "mode",
        "operation",
        "format",
        ">predicted",
        ">measured",
        ">error",
        ">power",
        ">energy",
    ]);
    for row in &compared.rows {
        table.row([
            row.mode.clone(),
            words::operation(&row.op),
            row.format.clone(),
            words::time(row.predicted_time_s.value),
            words::time(row.measured_time_s.value),
            words::signed_percent(row.error_ratio),
            row.power_w.map_or_else(|| "-".to_owned(), |watts| Watts(watts).to_string()),
            row.energy_j.map_or_else(|| "-".to_owned(), |joules| Joules(joules).to_string()),
        ]);
    }
    let mut text =
        if compared.simulated { "SIMULATED: no hardware ran this\n".to_owned() } else { String::new() };
    text.push_str(&table.render());
    for skipped in &compared.skipped {
        text.push_str(&format!("  skipped: {skipped}\n"));
    }
    text.push_str(&format!("\n{}\n", compared.verdict));
    match &compared.ended_in {
        Some(mode) if *mode == compared.base_mode => {
            text.push_str(&format!("the machine is in {mode} again\n"));
        }
        Some(mode) => text.push_str(&format!(
            "warning: the machine is in {mode} and not in {}: rooflinectl mode get says why\n",
            compared.base_mode
        )),
        None => text.push_str("warning: the live files match no power mode: rooflinectl mode get\n"),
    }
    text
}
