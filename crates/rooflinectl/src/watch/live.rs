//! What the view shows: the last answers of the daemon, and how some values went.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::event_text;
use crate::failure::Failure;
use rooflined_api::{BoardAnswer, HoldsAnswer, RooflineAnswer, StateAnswer, StateField};
use rooflined_client::{Client, Event};

/// Values of the past that are kept: two minutes at one a second.
const PAST: usize = 120;
/// Events that are kept.
const EVENTS: usize = 200;
/// Ceilings move with the mode, of which an event tells, and with calibrations.
const CEILINGS_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Live {
    pub board: Option<BoardAnswer>,
    pub state: Option<StateAnswer>,
    pub holds: Option<HoldsAnswer>,
    pub roofline: Option<RooflineAnswer>,
    /// When `roofline` was asked for; `None` asks at the next chance.
    pub asked: Option<Instant>,
    pub power: VecDeque<f64>,
    pub gpu: VecDeque<f64>,
    /// Time of day and words of each, the newest first.
    pub events: VecDeque<(String, String)>,
    /// Why the values above are not those of now.
    pub problem: Option<String>,
}

impl Live {
    pub async fn refresh(&mut self, client: &mut Client) -> Result<(), Failure> {
        let state: StateAnswer = client.get("/v1/state").await?.parse()?;
        if self.board.is_none() {
            self.board = Some(client.get("/v1/board").await?.parse()?);
        }
        if self.asked.is_none_or(|asked| asked.elapsed() >= CEILINGS_EVERY) {
            // Without a calibration there are none, and that is no reason to show nothing.
            self.roofline = client.get("/v1/roofline").await.and_then(|answer| answer.parse()).ok();
            self.asked = Some(Instant::now());
        }
        self.holds = Some(client.get("/v1/holds").await?.parse()?);
        self.state = Some(state);
        let (power, gpu) = (self.number("total_power_w"), self.number("gpu_load_ratio"));
        for (past, value) in [(&mut self.power, power), (&mut self.gpu, gpu)] {
            past.extend(value);
            while past.len() > PAST {
                past.pop_front();
            }
        }
        Ok(())
    }

    pub fn record_event(&mut self, event: &Event) {
        if matches!(event.name.as_str(), "mode" | "roofline" | "calibration") {
            self.asked = None;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_else(|_| event.data.clone().into());
        // Every sample is one, and all of it is on the screen.
        let Some(words) = event_text::in_words(&event.name, &data) else { return };
        self.events.push_front((time_of_day(), format!("{:<12} {words}", event.name)));
        self.events.truncate(EVENTS);
    }

    pub fn field(&self, name: &str) -> Option<&StateField> {
        self.state.as_ref()?.fields.get(name)
    }

    /// A part of a field, by its path: `memory_bytes/total`.
    pub fn part(&self, name: &str, path: &str) -> Option<f64> {
        self.field(name)?.value.pointer(path)?.as_f64()
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.field(name)?.value.as_f64()
    }
}

/// Hours, minutes and seconds of now, UTC as every time of this program.
fn time_of_day() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let second = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}
