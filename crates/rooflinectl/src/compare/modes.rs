//! `compare --modes`: the same operations in several power modes, each beside the prediction carried to it from the mode
//! that was active at the start, with the power that the machine's meter shows.
//!
//! Each mode is held by an attached hold, so the machine returns to its own mode when this program ends, however it
//! ends: the hold ends with the connection.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::rows::{Comparison, Modes, Row};
use crate::Context;
use crate::commands::workload;
use crate::failure::{Exit, Failure};
use crate::measure::METERED_TIME_LIMIT;
use crate::words;
use crate::working::{Counted, Working};
use rooflined_api::{
    HoldConstraints, HoldRequest, MeasureAnswer, MeasureRequest, ModesAnswer, OperatingPointRequest,
    PredictAnswer, PredictRequest, StateAnswer,
};
use rooflined_client::{Client, ClientError, Lines};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Code;

/// A mode must show in the live files within this time.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// The way back waits for the dwell time of the daemon, which is ten seconds unless configured.
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// Between two looks at the state.
const PAUSE: Duration = Duration::from_millis(200);
/// Another probe may be running: a calibration that the daemon began by itself.
const BUSY_FOR: Duration = Duration::from_secs(30);

pub async fn compare(
    context: &mut Context,
    wanted: &[String],
    work: &[(Op, Vec<WeightFormat>)],
) -> Result<Comparison, Failure> {
    let mut sweep = Sweep::new(context.client.another(METERED_TIME_LIMIT)).await?;
    let modes = sweep.choose(wanted)?;
    sweep.predict(&modes, work).await?;
    let working = Working::new(&context.printer, Counted::Of(sweep.predicted.len() as u64), "measuring");
    let measured = sweep.measure_all(&modes, &working).await;
    // The way back first: errors are reported afterwards.
    working.say("returning to the previous mode");
    let ended_in = sweep.wait_for_base().await;
    drop(working);
    measured?;
    let mut comparison = Comparison::of(sweep.rows, true);
    comparison.verdict = format!("carried from {}: {}", sweep.base, comparison.verdict);
    Ok(Comparison {
        modes: Some(Modes { base_mode: sweep.base, ended_in: ended_in? }),
        skipped: sweep.skipped,
        simulated: sweep.modes.simulated,
        serial: sweep.modes.serial,
        ..comparison
    })
}

/// A mode that is held, for as long as this is kept.
struct ModeHold {
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
            let why = modes.reason.clone().unwrap_or_else(|| "the current clocks match no mode".into());
            return Err(Failure::failed(
                format!("this machine shows no active power mode: {why}"),
                "leave --modes out to compare the machine as it is",
            ));
        };
        Ok(Self { client, modes, base, predicted: Vec::new(), rows: Vec::new(), skipped: Vec::new() })
    }

    /// The modes to go through, the active one first; those that cannot be entered are reported as skipped.
    fn choose(&mut self, wanted: &[String]) -> Result<Vec<String>, Failure> {
        let all = wanted.iter().any(|name| name.eq_ignore_ascii_case("all"));
        let named = |name: &String, of: &rooflined_api::ModeDetail| {
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
    async fn leave(&mut self, held: ModeHold) -> Result<(), Failure> {
        match self.client.release(held.id).await {
            Ok(_) => Ok(()),
            // The daemon has been restarted meanwhile, and nobody holds.
            Err(ClientError::Refused { body, .. }) if body.known_code() == Some(Code::UnknownHold) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Holds a mode and waits until the live files show it.
    async fn enter(&mut self, mode: &str) -> Result<ModeHold, Failure> {
        let request = HoldRequest {
            constraints: HoldConstraints { mode: Some(mode.to_owned()), ..HoldConstraints::default() },
            query: None,
            app_id: "rooflinectl compare".into(),
            reason: "measures each power mode".into(),
            ttl_s: None,
        };
        let mut lines = self.client.hold(&request).await?;
        let id = lines.next().await?.and_then(|line| line.get("id")?.as_u64());
        let Some(id) = id else {
            return Err(Failure::failed(
                format!("the daemon ended while it entered {mode}"),
                "check the active mode with rooflinectl mode get, then run this again",
            ));
        };
        if !self.waits_until_shown(mode, SHOWN_WITHIN).await? {
            return Err(Failure::failed(
                format!(
                    "{mode} was entered, but the live files do not show it after {} s",
                    SHOWN_WITHIN.as_secs()
                ),
                "rooflinectl mode get shows what is active",
            ));
        }
        Ok(ModeHold { id, _lines: lines })
    }

    async fn read_active_mode(&mut self) -> Result<Option<String>, Failure> {
        let state: StateAnswer = self.client.get("/v1/state").await?.parse()?;
        let mode = state.fields.get("power_mode").map(|field| &field.value);
        Ok(mode.and_then(|mode| mode.get("name")).and_then(Value::as_str).map(str::to_owned))
    }

    async fn waits_until_shown(&mut self, mode: &str, within: Duration) -> Result<bool, Failure> {
        let began = Instant::now();
        loop {
            if self.read_active_mode().await?.as_deref() == Some(mode) {
                return Ok(true);
            }
            if began.elapsed() > within {
                return Ok(false);
            }
            sleep(PAUSE).await;
        }
    }

    async fn measure_in(&mut self, mode: &str, working: &Working) -> Result<(), Failure> {
        let here: Vec<_> = self.predicted.iter().filter(|(of, ..)| of == mode).cloned().collect();
        for (_, op, format, predicted) in here {
            working.say(&format!("{} {format} in {mode}", words::operation(&op)));
            let answer = self.measure(op, format).await?;
            working.advance(1);
            self.skipped.extend(answer.skipped.iter().map(|why| format!("{mode}: {why}")));
            let Some(mut measured) = answer.rows.into_iter().next() else { continue };
            let time = measured.measured_time_s.value;
            measured.predicted_time_s = predicted.time_s;
            measured.error_ratio = (predicted.time_s.value - time) / time;
            measured.roofline_time_s = predicted.roofline_time_s;
            self.rows.push(Row {
                mode: Some(mode.to_owned()),
                carried: Some(mode != self.base),
                ..Row::new(measured, true)
            });
        }
        Ok(())
    }

    /// Measures one operation with its power, and waits for a probe that runs already.
    async fn measure(&mut self, op: Op, format: WeightFormat) -> Result<MeasureAnswer, Failure> {
        let request = MeasureRequest {
            op: Some(op),
            formats: vec![format.key().to_owned()],
            power: true,
            ..MeasureRequest::default()
        };
        let began = Instant::now();
        loop {
            match self.client.command("/v1/measure", &request).await {
                Ok(answer) => return Ok(answer.parse()?),
                Err(ClientError::Refused { body, .. })
                    if body.known_code() == Some(Code::Busy) && began.elapsed() < BUSY_FOR =>
                {
                    sleep(PAUSE).await;
                }
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Waits until the machine is in its own mode again; the mode that it is in then.
    async fn wait_for_base(&mut self) -> Result<Option<String>, Failure> {
        let base = self.base.clone();
        self.waits_until_shown(&base, BACK_WITHIN).await?;
        self.read_active_mode().await
    }
}
