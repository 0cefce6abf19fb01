//! One synchronous function for every route that only reads. HTTP and D-Bus translate to it and from it.

mod analyze;
mod board;
pub mod error;
mod hardware;
mod modes;
pub mod parse;
mod predict;
mod recommend;
mod roofline;
mod task;
mod tiling;

use serde::Serialize;

use crate::api::{
    AnalyzeAnswer, AnalyzeRequest, BoardAnswer, CalibrationAnswer, ErrorBody, FormatsAnswer, HardwareAnswer,
    HardwareListAnswer, ModesAnswer, PredictAnswer, PredictRequest, RecommendAnswer, RecommendRequest,
    RooflineAnswer, StateAnswer, SweepAnswer, SweepRequest, TilingAnswer, TilingRequest,
};
use crate::governor::Now;
use crate::hardware::registry;
use crate::snapshot::Snapshot;
use error::Code;

pub use board::state;
pub use predict::{MAX_SWEEP_ROWS, observed};
pub use roofline::{calibration_age, drift};
pub use task::{Task, format_named, invalid_op, operation};

/// A question that changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// `GET /v1/board`
    Board,
    /// `GET /v1/state`
    State,
    /// `GET /v1/roofline`
    Roofline {
        /// Only at this power mode.
        mode: Option<String>,
        /// Only this precision.
        precision: Option<String>,
    },
    /// `GET /v1/modes`
    Modes,
    /// `GET /v1/hardware`, or one entry of it.
    Hardware {
        /// Which; `None` for the list.
        key: Option<String>,
    },
    /// `GET /v1/formats`
    Formats,
    /// `GET /v1/calibration`
    Calibration,
    /// `POST /v1/predict`
    Predict(PredictRequest),
    /// `POST /v1/recommend`
    Recommend(RecommendRequest),
    /// `POST /v1/sweep`
    Sweep(SweepRequest),
    /// `POST /v1/tiling`
    Tiling(TilingRequest),
    /// `POST /v1/analyze`
    Analyze(AnalyzeRequest),
}

/// Its answer; serialises as the answer itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To [`Request::Board`].
    Board(Box<BoardAnswer>),
    /// To [`Request::State`].
    State(Box<StateAnswer>),
    /// To [`Request::Roofline`].
    Roofline(Box<RooflineAnswer>),
    /// To [`Request::Modes`].
    Modes(ModesAnswer),
    /// To [`Request::Hardware`] without a key.
    HardwareList(HardwareListAnswer),
    /// To [`Request::Hardware`] with one.
    Hardware(Box<HardwareAnswer>),
    /// To [`Request::Formats`].
    Formats(FormatsAnswer),
    /// To [`Request::Calibration`].
    Calibration(Box<CalibrationAnswer>),
    /// To [`Request::Predict`].
    Predict(Box<PredictAnswer>),
    /// To [`Request::Recommend`].
    Recommend(Box<RecommendAnswer>),
    /// To [`Request::Sweep`].
    Sweep(SweepAnswer),
    /// To [`Request::Tiling`].
    Tiling(Box<TilingAnswer>),
    /// To [`Request::Analyze`].
    Analyze(Box<AnalyzeAnswer>),
}

/// Answers from one snapshot.
///
/// # Errors
/// A question that cannot be answered as asked, with its code, field and hint.
pub fn answer(snapshot: &Snapshot, now: Now, request: &Request) -> Result<Answer, ErrorBody> {
    Ok(match request {
        Request::Board => Answer::Board(Box::new(board::board(snapshot))),
        Request::State => Answer::State(Box::new(state(snapshot, now))),
        Request::Roofline { mode, precision } => Answer::Roofline(Box::new(roofline::roofline(
            snapshot,
            now,
            mode.as_deref(),
            precision.as_deref(),
        )?)),
        Request::Modes => Answer::Modes(modes::modes(snapshot, now)),
        Request::Hardware { key: None } => Answer::HardwareList(hardware::list(registry())),
        Request::Hardware { key: Some(key) } => Answer::Hardware(Box::new(hardware::show(registry(), key)?)),
        Request::Formats => Answer::Formats(roofline::formats(snapshot)),
        Request::Calibration => Answer::Calibration(Box::new(roofline::calibration(snapshot, now))),
        Request::Predict(request) => Answer::Predict(Box::new(predict::predict(snapshot, request)?)),
        Request::Recommend(request) => Answer::Recommend(Box::new(recommend::recommend(snapshot, request)?)),
        Request::Sweep(request) => Answer::Sweep(predict::sweep(snapshot, request)?),
        Request::Tiling(request) => Answer::Tiling(Box::new(tiling::tiling(snapshot, request)?)),
        Request::Analyze(request) => Answer::Analyze(Box::new(analyze::analyze(snapshot, request)?)),
    })
}

impl Request {
    /// Roughly how many predictions the answer takes.
    #[must_use]
    pub fn effort(&self) -> u64 {
        match self {
            Self::Recommend(request) => {
                let formats = request.freedom.formats.as_ref().map_or(16, Vec::len) as u64;
                let batches = request.freedom.batch.map_or(1, |batch| batch.max.saturating_sub(batch.min));
                formats.saturating_mul(batches)
            }
            Self::Sweep(request) => {
                let formats = request.formats.as_ref().map_or(16, Vec::len) as u64;
                let batches = request.batches.as_ref().map_or(1, Vec::len) as u64;
                (request.ops.len() as u64).saturating_mul(formats).saturating_mul(batches)
            }
            // A thousand variants at a tenth of a prediction each.
            Self::Tiling(_) => 100,
            _ => 1,
        }
    }
}

/// This machine is the only hardware known so far.
fn check_hardware(snapshot: &Snapshot, hardware: Option<&str>) -> Result<(), ErrorBody> {
    match hardware {
        Some(key) if key != snapshot.board.key => Err(Code::UnknownHardware.at(
            "hardware",
            format!("{:?} is not this machine, which is {:?}", shorten(key), snapshot.board.key),
            "leave hardware out to ask about this machine",
        )),
        _ => Ok(()),
    }
}

/// A client's text, short enough to show.
fn shorten(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

/// A finite number above zero, or an error that names the field.
fn positive(field: &str, value: f64) -> Result<f64, ErrorBody> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Code::InvalidField.at(
        field,
        format!("{field} is {value}; it must be a number above zero"),
        format!("give {field} in the unit that its name ends with"),
    ))
}
