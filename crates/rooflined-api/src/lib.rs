//! Wire types, version 1: what travels over HTTP and D-Bus.
//!
//! Every number carries its unit in its key; unknown is `null`, never 0. Requests refuse fields they do not know;
//! clients must expect new fields and new enumeration members in answers.

#![warn(missing_docs)]

mod advice;
mod analyze;
mod board;
mod calibration;
mod control;
mod error;
mod estimate;
mod explain;
mod formats;
mod hardware;
mod measure;
mod models;
mod modes;
mod network_advice;
mod network_inspect;
mod network_request;
mod nullable;
mod numbers;
mod observations;
mod power;
mod predict;
mod recommend;
mod roofline;
mod servers;
mod state;
mod sweep;
#[cfg(test)]
mod tests {
    pub mod schema;
}
mod tiling;
mod workload;

#[cfg(test)]
use tests::schema;

pub use advice::{AdviceChange, AdviceStale};
pub use analyze::{AnalyzeAnswer, AnalyzeRequest};
pub use board::{BoardAnswer, ModeAnswer};
pub use calibration::{CalibrateAnswer, CalibrateRequest, CalibrationAnswer, ResidualAnswer};
pub use control::{
    ConfirmAnswer, ConfirmRequest, DoneAnswer, HeldAnswer, HoldAdvice, HoldAnswer, HoldRequest, HoldsAnswer,
    ModeRequest, PendingAnswer, RenewRequest, RevertRequest, SwitchAnswer, SwitchDifference, SwitchWrite,
};
pub use error::{ErrorAnswer, ErrorBody, ErrorProblem};
pub use estimate::{EstimateAnswer, PowerAnswer};
pub use explain::{
    CauseAnswer, CheckedAnswer, EvidenceAnswer, ExplainAnswer, ExplainRequest, OtherProcess, RunEvidence,
    Unseen,
};
pub use formats::{FormatAnswer, FormatsAnswer};
pub use hardware::{
    CpuPartsAnswer, HardwareAnswer, HardwareListAnswer, HardwareSummary, NominalCeilings, NominalModeAnswer,
};
pub use measure::{
    MeasureAnswer, MeasureRequest, MeasuredModel, MeasuredNetwork, MeasuredOp, MeasuredPowerAnswer,
    MeasuredRow, ModelKind, NetworkKind,
};
pub use models::{BlockAnswer, ClassAnswer, LayersAnswer, ModelAnswer, ModelEntry, ModelsAnswer};
pub use modes::{ModeClock, ModeDetail, ModeWarning, ModesAnswer};
pub use network_advice::{
    NetworkCandidate, NetworkConstraints, NetworkLayerAnswer, NetworkMemoryAnswer, NetworkPredictAnswer,
    NetworkRecommendAnswer, NetworkRecommendRequest, NetworkSharesAnswer,
};
pub use network_inspect::{
    NetworkAnswer, NetworkDla, NetworkFallback, NetworkNode, NetworkOperator, NetworkTensor, NetworkWork,
};
pub use network_request::{NetworkFile, NetworkPredictRequest};
pub use observations::{
    ForgottenAnswer, LearntObservation, ObservationEntry, ObservationListAnswer, ObservationRequest,
    ObservationsAnswer, RefusedObservation, SlowServer,
};
pub use power::{PowerCostsAnswer, PowerPointAnswer};
pub use predict::{BreakdownEntry, MemoryAnswer, PredictAnswer, PredictRequest, ReportsAnswer};
pub use recommend::{
    BatchRange, CandidateAnswer, ChoiceAnswer, Constraints, EngineAnswer, Freedom, MissAnswer, ModesRequest,
    RecommendAnswer, RecommendRequest, RejectionAnswer, SensitivityAnswer,
};
pub use roofline::{BandwidthPointAnswer, CeilingAnswer, CeilingsAnswer, RegimeAnswer, RooflineAnswer};
pub use servers::{JudgedServer, ServerEntry, ServersAnswer};
pub use state::{StateAnswer, StateField};
pub use sweep::{SweepAnswer, SweepRequest, SweepRow, SweepWarning};
pub use tiling::{DEFAULT_TILES, MOST_TILES, SmLimitsAnswer, TileAnswer, TilingAnswer, TilingRequest};
pub use workload::{Offload, OperatingPointRequest, Speculative, Workload};

pub use rooflined_core::hold::HoldConstraints;
pub use rooflined_core::names::{Engine, NetworkEngine, NetworkScope, Objective, Op, Optimism, PlanKind};

/// Schemas of every type here, as `components.schemas` of an OpenAPI 3.1 document.
pub const SCHEMAS: &str = include_str!("schemas.json");

/// Version of this interface: the `v1` of every path.
pub const API_VERSION: u32 = 1;
