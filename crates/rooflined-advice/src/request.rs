//! Questions that change nothing, and roughly what an answer takes.

use serde_json::Value;

use super::question::{MOST_SEQUENCES, leaves_batch_open};
use rooflined_api::{
    AnalyzeRequest, BatchRange, ExplainRequest, ModesRequest, NetworkPredictRequest, NetworkRecommendRequest,
    PredictRequest, RecommendRequest, SweepRequest, TilingRequest,
};

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
    /// `POST /v1/sweep`
    Sweep(SweepRequest),
    /// `POST /v1/tiling`
    Tiling(TilingRequest),
    /// `POST /v1/analyze`
    Analyze(AnalyzeRequest),
    /// `POST /v1/explain`
    Explain(Box<ExplainRequest>),
    /// `POST /v1/networks/predict`
    PredictNetwork(NetworkPredictRequest),
    /// `POST /v1/networks/recommend`
    RecommendNetwork(Box<NetworkRecommendRequest>),
}

impl Request {
    /// The hardware that it is about; `None` = this machine.
    #[must_use]
    pub fn hardware(&self) -> Option<&str> {
        match self {
            Self::Roofline { hardware, .. } => hardware.as_deref(),
            Self::Predict(request) => request.hardware.as_deref(),
            Self::Recommend(request) => request.hardware.as_deref(),
            Self::Sweep(request) => request.hardware.as_deref(),
            Self::Analyze(request) => request.hardware.as_deref(),
            Self::PredictNetwork(request) => request.hardware.as_deref(),
            Self::RecommendNetwork(request) => request.workload.hardware.as_deref(),
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
                let open = if leaves_batch_open(request) { MOST_SEQUENCES } else { 1 };
                let range = |batch: BatchRange| batch.max.saturating_sub(batch.min).saturating_add(1);
                let batches = freedom.batch.map_or(open, range);
                let candidates =
                    [caches, modes, threads, batches].into_iter().fold(formats, u64::saturating_mul);
                let engines: u64 = if request.workload.model.is_some() { 6 } else { 1 };
                let candidates = candidates.saturating_mul(engines);
                match &request.workload.model {
                    // What its passes ask for is the same at every operating point, and no breakdown is worked out. This
                    // machine may be one without a GPU, where that is less than half of it.
                    Some(Value::String(_)) if request.hardware.is_some() => {
                        candidates.saturating_mul(3).saturating_add(formats)
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
            // A few hundred layers each.
            Self::PredictNetwork(_) => 100,
            Self::RecommendNetwork(request) => {
                let modes = request.power_modes.as_ref().map_or(1, |_| 8);
                let batches = request.batch.map_or(4, |batch| batch.max.max(1).ilog2().into());
                300_u64.saturating_mul(modes).saturating_mul(batches + 1)
            }
            // A thousand variants at a tenth of a prediction each.
            Self::Tiling(_) => 100,
            // Each is vetted, and the engine's coefficients are fitted again.
            Self::Predict(request) if !request.observations.is_empty() => 1000,
            Self::Predict(PredictRequest { workload, .. })
            | Self::Analyze(AnalyzeRequest { workload, .. }) => workload.model.as_ref().map_or(1, weight),
            // Each cause is predicted alone and left out; some ten are seen at once.
            Self::Explain(request) => request.workload.model.as_ref().map_or(20, |model| 20 * weight(model)),
            _ => 1,
        }
    }
}

/// Predictions of an operation that the prediction of a model takes about as long as: a key is looked up, while fields
/// are unfolded and a file is waited for, however long its medium takes.
fn weight(model: &Value) -> u64 {
    if model.is_string() { 10 } else { 1000 }
}
