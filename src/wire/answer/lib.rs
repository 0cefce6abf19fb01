//! One synchronous function for every route that only reads. HTTP and D-Bus translate to it and from it, and the command
//! line asks it about hardware that is not at hand.

mod analyze;
mod board;
mod catalogue;
pub mod cause;
mod ceilings;
pub mod convert;
mod details;
pub mod error;
pub mod hardware;
mod joint;
mod mode_named;
mod model;
mod model_files;
pub mod modelfile;
pub mod models;
mod modes;
mod observe;
pub mod parse;
mod power;
mod predict;
mod question;
mod recommend;
pub mod reports;
mod run;
pub mod settings;
pub mod stale;
mod supported;
mod sweep;
mod task;
pub mod tiling;

use serde::Serialize;
use serde_json::Value;

use ::predict::Engine;
use decide::snapshot::{Now, Snapshot};
use roofline::refusal::{Code, Refusal};
use roofline::units::Seconds;
use wire::{
    AnalyzeAnswer, AnalyzeRequest, BoardAnswer, CalibrationAnswer, FormatsAnswer, HardwareAnswer,
    HardwareListAnswer, JointAnswer, JointRequest, ModesAnswer, ModesRequest, PredictAnswer, PredictRequest,
    RecommendAnswer, RecommendRequest, RooflineAnswer, StateAnswer, SweepAnswer, SweepRequest, TilingAnswer,
    TilingRequest,
};

pub use board::state;
pub use catalogue::{Catalogue, Opener, begun, name_of, no_other_field, opened};
pub use ceilings::{calibration_age, drift};
pub use model_files::each_model;
pub use modes::other_clocks;
pub use observe::{MAX_OBSERVATIONS, observed};
pub use recommend::hold_query;
pub use sweep::MAX_SWEEP_ROWS;
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
        /// Of other hardware, by its data sheet.
        hardware: Option<String>,
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
    Recommend(Box<RecommendRequest>),
    /// `POST /v1/recommend/joint`
    Joint(Box<JointRequest>),
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
    /// To [`Request::Joint`].
    Joint(Box<JointAnswer>),
    /// To [`Request::Sweep`].
    Sweep(SweepAnswer),
    /// To [`Request::Tiling`].
    Tiling(Box<TilingAnswer>),
    /// To [`Request::Analyze`].
    Analyze(Box<AnalyzeAnswer>),
}

/// Answers from one snapshot, or from the data sheet of the hardware that the request names.
///
/// # Errors
/// A question that cannot be answered as asked, with its code, field and hint.
pub fn answer(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    now: Now,
    request: &Request,
) -> Result<Answer, Refusal> {
    let other =
        request.hardware().map(|key| catalogue.snapshot_of(Some(snapshot), key)).transpose()?.flatten();
    answer_from(other.as_deref().unwrap_or(snapshot), catalogue, now, request)
}

/// Answers a question about other hardware from its data sheet alone.
///
/// # Errors
/// As [`answer`]; also a request that names no hardware, because there is no machine to answer for.
pub fn suppose(catalogue: &Catalogue, request: &Request) -> Result<Answer, Refusal> {
    let key = request.hardware().ok_or_else(|| {
        Code::MissingField.at(
            "hardware",
            "hardware is missing",
            "name it, or start the daemon for this machine",
        )
    })?;
    let snapshot = catalogue.snapshot_of(None, key)?;
    // Without a live machine there is none that the hardware could be.
    let snapshot = snapshot.ok_or_else(|| Code::Internal.error("there is no snapshot", "report this"))?;
    answer_from(&snapshot, catalogue, Now { boottime: Seconds::ZERO, unix_s: 0.0 }, request)
}

fn answer_from(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    now: Now,
    request: &Request,
) -> Result<Answer, Refusal> {
    let hardware = catalogue.hardware();
    Ok(match request {
        Request::Board => Answer::Board(Box::new(board::board(snapshot))),
        Request::State => Answer::State(Box::new(state(snapshot, now))),
        Request::Roofline { mode, precision, hardware: _ } => Answer::Roofline(Box::new(ceilings::roofline(
            snapshot,
            now,
            mode.as_deref(),
            precision.as_deref(),
        )?)),
        Request::Modes => Answer::Modes(modes::modes(snapshot, now)),
        Request::Hardware { key: None } => Answer::HardwareList(hardware::list(hardware)),
        Request::Hardware { key: Some(key) } => Answer::Hardware(Box::new(hardware::show(hardware, key)?)),
        Request::Formats => Answer::Formats(ceilings::formats(snapshot)),
        Request::Calibration => Answer::Calibration(Box::new(ceilings::calibration(snapshot, now))),
        Request::Predict(request) => {
            Answer::Predict(Box::new(predict::predict(snapshot, catalogue, request)?))
        }
        Request::Recommend(request) => {
            Answer::Recommend(Box::new(recommend::recommend(snapshot, catalogue, request)?))
        }
        Request::Joint(request) => {
            Answer::Joint(Box::new(joint::recommend_jointly(snapshot, catalogue, request)?))
        }
        Request::Tiling(request) => Answer::Tiling(Box::new(tiling::tiling(snapshot, hardware, request)?)),
        Request::Sweep(request) => Answer::Sweep(sweep::sweep(snapshot, catalogue, request)?),
        Request::Analyze(request) => {
            Answer::Analyze(Box::new(analyze::analyze(snapshot, catalogue, request)?))
        }
    })
}

impl Request {
    /// The hardware that it is about; `None` = the machine at hand.
    #[must_use]
    pub fn hardware(&self) -> Option<&str> {
        match self {
            Self::Roofline { hardware, .. } => hardware.as_deref(),
            Self::Predict(request) => request.hardware.as_deref(),
            Self::Recommend(request) => request.hardware.as_deref(),
            Self::Joint(request) => request.hardware.as_deref(),
            Self::Sweep(request) => request.hardware.as_deref(),
            Self::Analyze(request) => request.hardware.as_deref(),
            _ => None,
        }
    }

    /// Roughly how many predictions the answer takes.
    #[must_use]
    pub fn effort(&self) -> u64 {
        let list = |list: Option<usize>, usual: usize| list.unwrap_or(usual).max(1) as u64;
        match self {
            Self::Recommend(request) => {
                let freedom = &request.freedom;
                let formats = list(freedom.formats.as_ref().map(Vec::len), 16);
                let caches = list(freedom.kv_formats.as_ref().map(Vec::len), 1);
                let modes = match &freedom.power_modes {
                    None => 1,
                    Some(ModesRequest::Kind(_)) => 8,
                    Some(ModesRequest::Listed(modes)) => modes.len() as u64,
                };
                let threads = list(freedom.threads.as_ref().map(Vec::len), 1);
                let batches =
                    freedom.batch.map_or(1, |batch| batch.max.saturating_sub(batch.min).saturating_add(1));
                let candidates =
                    [caches, modes, threads, batches].into_iter().fold(formats, u64::saturating_mul);
                match &request.workload.model {
                    // An engine's costs are lines in the batch; this machine may be one without a GPU, which is
                    // summed candidate by candidate.
                    Some(Value::String(_))
                        if request.engine != Engine::Bare && request.hardware.is_some() =>
                    {
                        (candidates / 32).saturating_add(formats)
                    }
                    Some(model) => candidates.saturating_mul(weight(model)),
                    _ => candidates,
                }
            }
            Self::Sweep(request) => {
                let formats = list(request.formats.as_ref().map(Vec::len), 16);
                let batches = list(request.batches.as_ref().map(Vec::len), 1);
                let modes = list(request.power_modes.as_ref().map(Vec::len), 1);
                let threads = list(request.threads.as_ref().map(Vec::len), 1);
                let contexts = list(request.contexts.as_ref().map(Vec::len), 1);
                let models =
                    request.models.iter().fold(0, |sum: u64, model| sum.saturating_add(weight(model)));
                let what = (request.ops.len() as u64).saturating_add(models.saturating_mul(contexts));
                what.saturating_mul(formats)
                    .saturating_mul(batches)
                    .saturating_mul(modes)
                    .saturating_mul(threads)
            }
            // Sets of candidates are compared beside what they are predicted from.
            Self::Joint(_) => 1000,
            // A thousand variants at a tenth of a prediction each.
            Self::Tiling(_) => 100,
            // Each is vetted, and the engine's coefficients are fitted again.
            Self::Predict(request) if !request.observations.is_empty() => 1000,
            Self::Predict(PredictRequest { workload, .. })
            | Self::Analyze(AnalyzeRequest { workload, .. }) => workload.model.as_ref().map_or(1, weight),
            _ => 1,
        }
    }
}

/// What of a model is shown to others, or kept: its contents say no more than its path, and at length.
#[must_use]
pub fn without_contents(model: &Value) -> Value {
    let mut shown = model.clone();
    if let Some(fields) = shown.as_object_mut().filter(|fields| fields.contains_key("path")) {
        fields.remove("contents");
    }
    shown
}

/// Predictions of an operation that the prediction of a model takes about as long as: a key is looked up, while fields
/// are unfolded and a file is waited for, however long its medium takes.
fn weight(model: &Value) -> u64 {
    if model.is_string() { 10 } else { 1000 }
}

/// What the snapshot is of, in words.
fn subject(snapshot: &Snapshot) -> &str {
    if snapshot.is_hypothetical() { &snapshot.board.key } else { "this machine" }
}

/// A client's text, short enough to show.
fn shorten(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

/// A finite number above zero, or an error that names the field.
fn positive(field: &str, value: f64) -> Result<f64, Refusal> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Code::InvalidField.at(
        field,
        format!("{field} is {value}; it must be a number above zero"),
        format!("give {field} in the unit that its name ends with"),
    ))
}
