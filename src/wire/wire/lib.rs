//! Wire types, version 1: what travels over HTTP and D-Bus.
//!
//! Every number carries its unit in its key; unknown is `null`, never 0. Requests refuse fields they do not know;
//! clients must expect new fields and new enumeration members in answers.

#![warn(missing_docs)]

mod absent;
mod advice;
mod answer;
pub mod client;
mod control;
mod hardware;
mod joint;
mod models;
mod power;
mod request;
mod tiling;
mod whole;

pub use advice::{AdviceChange, AdviceStale};
pub use answer::{
    AnalyzeAnswer, BandwidthPointAnswer, BoardAnswer, BreakdownEntry, CalibrateAnswer, CalibrationAnswer,
    CandidateAnswer, CeilingAnswer, CeilingsAnswer, ChoiceAnswer, ErrorAnswer, ErrorBody, EstimateAnswer,
    ForgottenAnswer, FormatAnswer, FormatsAnswer, MeasureAnswer, MeasuredModel, MeasuredOp,
    MeasuredPowerAnswer, MeasuredRow, MemoryAnswer, ModeAnswer, ModeClock, ModeDetail, ModeWarning,
    ModelKind, ModesAnswer, ObservationEntry, ObservationListAnswer, ObservationsAnswer, PredictAnswer,
    RecommendAnswer, RegimeAnswer, RejectedAnswer, ReportsAnswer, RooflineAnswer, SensitivityAnswer,
    StateAnswer, StateField, SweepAnswer, SweepRow,
};
pub use control::{
    AdviceOfHold, ConfirmAnswer, ConfirmRequest, ConstraintsOfHold, DoneAnswer, HeldAnswer, HoldAnswer,
    HoldRequest, HoldsAnswer, ModeRequest, PendingAnswer, RenewRequest, RevertRequest, SwitchAnswer,
};
pub use hardware::{HardwareAnswer, HardwareListAnswer, HardwareSummary, NominalCeilings, NominalModeAnswer};
pub use joint::{
    JointAnswer, JointConstraints, JointFreedom, JointMember, JointRejected, JointRequest, JointTotals,
    JointViolation, JointWorkload, JointWorkloadFreedom, SharedAnswer,
};
pub use models::{BlockAnswer, ClassAnswer, LayersAnswer, ModelAnswer, ModelEntry, ModelsAnswer};
pub use power::{PowerCostsAnswer, PowerPointAnswer};
pub use request::{
    AnalyzeRequest, BatchRange, CalibrateRequest, ConfirmObservationRequest, Constraints, Freedom,
    MeasureRequest, ModesRequest, ObservationRequest, OperatingPointRequest, PredictRequest,
    RecommendRequest, Speculative, SweepRequest, Workload,
};
pub use tiling::{DEFAULT_TILES, MOST_TILES, SmLimitsAnswer, TileAnswer, TilingAnswer, TilingRequest};

/// Version of this interface: the `v1` of every path.
pub const API_VERSION: u32 = 1;
