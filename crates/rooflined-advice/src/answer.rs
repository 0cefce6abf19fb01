//! Answers from a snapshot, or from a data sheet.

use serde::Serialize;

use super::{
    analyze, board, ceilings, explain, hardware, modes, network_advice, predict, recommend, sweep, tiling,
};
use crate::catalogue::Catalogue;
use crate::request::Request;
use crate::wanted::Wanted;
use rooflined_api::{
    AnalyzeAnswer, BoardAnswer, CalibrationAnswer, ExplainAnswer, FormatsAnswer, HardwareAnswer,
    HardwareListAnswer, ModesAnswer, NetworkPredictAnswer, NetworkRecommendAnswer, PredictAnswer,
    RecommendAnswer, RooflineAnswer, StateAnswer, SweepAnswer, TilingAnswer,
};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{Now, Snapshot};

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
    /// To [`Request::Explain`].
    Explain(Box<ExplainAnswer>),
    /// To [`Request::PredictNetwork`].
    PredictNetwork(Box<NetworkPredictAnswer>),
    /// To [`Request::RecommendNetwork`].
    RecommendNetwork(Box<NetworkRecommendAnswer>),
}

impl Answer {
    /// Its warnings, where it is about a run.
    const fn warnings_mut(&mut self) -> Option<&mut Vec<String>> {
        match self {
            Self::Predict(answer) => Some(&mut answer.warnings),
            Self::Recommend(answer) => Some(&mut answer.warnings),
            Self::PredictNetwork(answer) => Some(&mut answer.warnings),
            Self::RecommendNetwork(answer) => Some(&mut answer.warnings),
            _ => None,
        }
    }
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
    answer_while(Wanted::ALWAYS, snapshot, catalogue, now, request)
}

/// [`answer`], as long as somebody waits for it.
///
/// # Errors
/// As [`answer`]; also where nobody waits any more.
pub fn answer_while(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    now: Now,
    request: &Request,
) -> Result<Answer, Refusal> {
    let other =
        request.hardware().map(|key| catalogue.snapshot_of(Some(snapshot), key)).transpose()?.flatten();
    answer_from(wanted, other.as_deref().unwrap_or(snapshot), catalogue, now, request)
}

/// Answers a question about other hardware from its data sheet alone.
///
/// # Errors
/// As [`answer`]; also for a request that names no hardware: there is no machine to answer for.
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
    answer_from(Wanted::ALWAYS, &snapshot, catalogue, Now { boottime: Seconds::ZERO, unix_s: 0.0 }, request)
}

fn answer_from(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    now: Now,
    request: &Request,
) -> Result<Answer, Refusal> {
    let hardware = catalogue.hardware();
    let mut answer = match request {
        Request::Board => Answer::Board(Box::new(board::board(snapshot))),
        Request::State => Answer::State(Box::new(board::state(snapshot, now))),
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
            Answer::Recommend(Box::new(recommend::recommend(wanted, snapshot, catalogue, request)?))
        }
        Request::Tiling(request) => Answer::Tiling(Box::new(tiling::tiling(snapshot, hardware, request)?)),
        Request::Sweep(request) => Answer::Sweep(sweep::sweep(wanted, snapshot, catalogue, request)?),
        Request::Analyze(request) => {
            Answer::Analyze(Box::new(analyze::analyze(snapshot, catalogue, request)?))
        }
        Request::Explain(request) => {
            Answer::Explain(Box::new(explain::explain(snapshot, catalogue, request)?))
        }
        Request::PredictNetwork(request) => {
            Answer::PredictNetwork(Box::new(network_advice::predict(snapshot, request)?))
        }
        Request::RecommendNetwork(request) => {
            Answer::RecommendNetwork(Box::new(network_advice::recommend(wanted, snapshot, request)?))
        }
    };
    let meant = request.hardware().and_then(|key| hardware::other_variants(catalogue.hardware(), key));
    if let (Some(meant), Some(warnings)) = (meant, answer.warnings_mut()) {
        warnings.insert(0, meant);
    }
    Ok(answer)
}
