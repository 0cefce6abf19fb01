//! Why a request is refused: a stable code for programs, a sentence and a remedy for people.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $key:literal;)*) => {
        /// What can go wrong. Clients match on its key, so a key never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }
        }
    };
}

codes! {
    /// The accelerator has no kernels here that measure it.
    NoProbe = "no_probe";
    /// The body is no JSON.
    InvalidJson = "invalid_json";
    /// A field that this version does not know.
    UnknownField = "unknown_field";
    /// A field that the request needs.
    MissingField = "missing_field";
    /// A value of the wrong type or out of range.
    InvalidField = "invalid_field";
    /// A dimension of an operation that cannot exist.
    InvalidDimension = "invalid_dimension";
    UnknownFormat = "unknown_format";
    UnknownPrecision = "unknown_precision";
    UnknownHardware = "unknown_hardware";
    /// No such power mode here.
    UnknownMode = "unknown_mode";
    /// No model has this key.
    UnknownModel = "unknown_model";
    /// A path that cannot be read, or that holds no model.
    UnreadableModel = "unreadable_model";
    /// The fields of a model contradict each other.
    InvalidModel = "invalid_model";
    /// A model where only operations go, or an operation with nothing to choose.
    UnsupportedWorkload = "unsupported_workload";
    /// The inference engine does not run the format there.
    UnsupportedFormat = "unsupported_format";
    /// A constraint that nothing here measures.
    UnsupportedConstraint = "unsupported_constraint";
    /// An objective that nothing here measures.
    UnsupportedObjective = "unsupported_objective";
    /// A clock or unit that this machine does not have.
    UnsupportedOperatingPoint = "unsupported_operating_point";
    /// This accelerator computes in no such precision.
    NoUnit = "no_unit";
    /// A cross product beyond its limit.
    TooMany = "too_many";
    /// Runs of the same workload that agree say otherwise.
    ContradictingObservation = "contradicting_observation";
    /// A measured time that physics or reason excludes.
    ImpossibleObservation = "impossible_observation";
    /// HTTP that is none, or a body that ends early.
    MalformedRequest = "malformed_request";
    /// It is answered on the control socket.
    WrongSocket = "wrong_socket";
    ControlDisabled = "control_disabled";
    /// Nothing is done about queries of holds.
    AutoOff = "auto_off";
    NotAuthorized = "not_authorized";
    /// The configuration does not list the mode.
    ModeNotAllowed = "mode_not_allowed";
    NotFound = "not_found";
    /// No such calibration to cancel.
    NotRunning = "not_running";
    UnknownHold = "unknown_hold";
    /// No such switch waits to be confirmed.
    NotPending = "not_pending";
    /// The route has another method.
    MethodNotAllowed = "method_not_allowed";
    /// Header or body did not arrive in time.
    RequestTimeout = "request_timeout";
    /// Another probe, switch or hold is in the way.
    Busy = "busy";
    /// Load, heat or memory forbid it now.
    Gated = "gated";
    Cancelled = "cancelled";
    /// A calibration has to come first.
    NotCalibrated = "not_calibrated";
    /// The mode needs a reboot.
    RebootRequired = "reboot_required";
    /// The board or its tool said no.
    Refused = "refused";
    /// The live files do not show the mode.
    NotReached = "not_reached";
    /// The mode is in force only until the daemon ends.
    NotSettled = "not_settled";
    /// It is done, but will be gone when the daemon ends.
    NotStored = "not_stored";
    /// No mode meets the constraints.
    Unsatisfiable = "unsatisfiable";
    /// The header has too many lines or bytes.
    HeaderTooLarge = "header_too_large";
    /// The body is too large.
    BodyTooLarge = "body_too_large";
    ProbeFailed = "probe_failed";
    /// The samples contradict each other or physics.
    FitFailed = "fit_failed";
    /// A defect of this program.
    Internal = "internal";
    /// All connections, streams or subscriptions are taken, or as many as one user may have.
    TooManyConnections = "too_many_connections";
    /// The machine has not been read yet.
    NotReady = "not_ready";
    /// Nobody can switch power modes here.
    ControlUnavailable = "control_unavailable";
    /// The daemon is going away.
    ShuttingDown = "shutting_down";
}

impl Code {
    /// The code with this key; `None` for a key of another version.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.key() == key)
    }

    /// A refusal without a field. `hint` says what to do.
    pub fn error(self, message: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { code: self, message: message.into(), hint: hint.into(), field: None }
    }

    /// A refusal for one field of the request.
    pub fn at(
        self,
        field: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Refusal {
        Refusal { field: Some(field.into()), ..self.error(message, hint) }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// A request that is not granted, as the place says that does not grant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for programs.
    pub code: Code,
    /// Why, in one sentence.
    pub message: String,
    pub hint: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
}

/// The sentence and what to do, in one line.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_key_and_no_other_is() {
        for code in Code::ALL {
            assert_eq!(Code::from_key(code.key()), Some(*code));
        }
        assert_eq!(Code::from_key("of_a_newer_daemon"), None);
    }
}
