//! Errors: a stable code for programs, a sentence and a remedy for people.
//!
//! | code | status | meaning |
//! |---|---|---|
//! | `invalid_json` | 400 | the body is no JSON: truncated, NaN, nested too deeply |
//! | `unknown_field` | 400 | a field that this version does not know |
//! | `missing_field` | 400 | a field that the request needs |
//! | `invalid_field` | 400 | a value of the wrong type or out of range |
//! | `invalid_dimension` | 400 | a dimension of an operation that cannot exist |
//! | `unknown_format` | 400 | no such storage format |
//! | `unknown_precision` | 400 | no such precision |
//! | `unknown_hardware` | 400 | no such hardware here |
//! | `unknown_mode` | 400 | no such power mode here |
//! | `unknown_model` | 400 | no model has this key |
//! | `unreadable_model` | 400 | a path that cannot be read, or that holds no model |
//! | `invalid_model` | 400 | the fields of a model contradict each other |
//! | `unsupported_workload` | 400 | a model where only operations go, or an operation with nothing to choose |
//! | `unsupported_constraint` | 400 | a constraint that nothing here measures |
//! | `unsupported_objective` | 400 | an objective that nothing here measures |
//! | `unsupported_operating_point` | 400 | a clock or unit that this machine does not have |
//! | `no_unit` | 400 | this accelerator computes in no such precision |
//! | `too_many` | 400 | a cross product beyond its limit |
//! | `impossible_observation` | 400 | a measured time that physics or reason excludes |
//! | `contradicting_observation` | 400 | runs of the same workload that agree say otherwise |
//! | `malformed_request` | 400 | HTTP that is none, or a body that ends early |
//! | `wrong_socket` | 403 | it is answered on the control socket |
//! | `control_disabled` | 403 | `[control] enabled = true` is missing |
//! | `not_authorized` | 403 | neither root, nor the daemon's user, nor group `rooflined` |
//! | `auto_off` | 403 | `[policy] auto` is off, so a hold may not carry a query |
//! | `mode_not_allowed` | 403 | the configuration does not list the mode |
//! | `not_found` | 404 | no such route |
//! | `not_running` | 404 | no such calibration to cancel |
//! | `unknown_hold` | 404 | no such hold: it has ended, or never was |
//! | `not_pending` | 404 | no such switch waits to be confirmed |
//! | `method_not_allowed` | 405 | the route has another method |
//! | `request_timeout` | 408 | header or body did not arrive in time |
//! | `no_probe` | 409 | there are no kernels for the accelerator, or it is not here |
//! | `busy` | 409 | another probe, switch or hold is in the way |
//! | `gated` | 409 | load, heat or memory forbid it now |
//! | `cancelled` | 409 | it was stopped |
//! | `not_calibrated` | 409 | a calibration has to come first |
//! | `reboot_required` | 409 | the mode needs a reboot, which nobody here will do; nothing was changed |
//! | `refused` | 409 | the board or its tool said no; nothing was changed |
//! | `not_reached` | 409 | the live files do not show the mode that was asked for |
//! | `not_settled` | 409 | the mode is in force, but only until the daemon ends |
//! | `unsatisfiable` | 409 | no mode meets the constraints together with the holds in force |
//! | `body_too_large` | 413 | beyond 64 KiB |
//! | `probe_failed` | 500 | the probe ended badly |
//! | `fit_failed` | 500 | the samples contradict each other or physics |
//! | `internal` | 500 | a defect of this program |
//! | `too_many_connections` | 503 | all connections, or all event streams, are taken |
//! | `not_ready` | 503 | the machine has not been read yet |
//! | `control_unavailable` | 503 | this machine has no power modes, or nobody who may switch them |
//! | `shutting_down` | 503 | the daemon is going away |

use crate::api::ErrorBody;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, $status:literal;)*) => {
        /// What can go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable key.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
        }
    };
}

codes! {
    /// The accelerator has no kernels here that measure it.
    NoProbe = "no_probe", 409;
    /// The body is no JSON.
    InvalidJson = "invalid_json", 400;
    /// A field that this version does not know.
    UnknownField = "unknown_field", 400;
    /// A field that the request needs.
    MissingField = "missing_field", 400;
    /// A value of the wrong type or out of range.
    InvalidField = "invalid_field", 400;
    /// A dimension of an operation that cannot exist.
    InvalidDimension = "invalid_dimension", 400;
    /// No such storage format.
    UnknownFormat = "unknown_format", 400;
    /// No such precision.
    UnknownPrecision = "unknown_precision", 400;
    /// No such hardware here.
    UnknownHardware = "unknown_hardware", 400;
    /// No such power mode here.
    UnknownMode = "unknown_mode", 400;
    /// No model has this key.
    UnknownModel = "unknown_model", 400;
    /// A path that cannot be read, or that holds no model.
    UnreadableModel = "unreadable_model", 400;
    /// The fields of a model contradict each other.
    InvalidModel = "invalid_model", 400;
    /// A model where only operations go, or an operation with nothing to choose.
    UnsupportedWorkload = "unsupported_workload", 400;
    /// A constraint that nothing here measures.
    UnsupportedConstraint = "unsupported_constraint", 400;
    /// An objective that nothing here measures.
    UnsupportedObjective = "unsupported_objective", 400;
    /// A clock or unit that this machine does not have.
    UnsupportedOperatingPoint = "unsupported_operating_point", 400;
    /// This accelerator computes in no such precision.
    NoUnit = "no_unit", 400;
    /// A cross product beyond its limit.
    TooMany = "too_many", 400;
    /// Runs of the same workload that agree say otherwise.
    ContradictingObservation = "contradicting_observation", 400;
    /// A measured time that physics or reason excludes.
    ImpossibleObservation = "impossible_observation", 400;
    /// HTTP that is none, or a body that ends early.
    MalformedRequest = "malformed_request", 400;
    /// It is answered on the control socket.
    WrongSocket = "wrong_socket", 403;
    /// Control is not enabled.
    ControlDisabled = "control_disabled", 403;
    /// Nothing is done about queries of holds.
    AutoOff = "auto_off", 403;
    /// The caller may not.
    NotAuthorized = "not_authorized", 403;
    /// The configuration does not list the mode.
    ModeNotAllowed = "mode_not_allowed", 403;
    /// No such route.
    NotFound = "not_found", 404;
    /// No such calibration to cancel.
    NotRunning = "not_running", 404;
    /// No such hold.
    UnknownHold = "unknown_hold", 404;
    /// No such switch waits to be confirmed.
    NotPending = "not_pending", 404;
    /// The route has another method.
    MethodNotAllowed = "method_not_allowed", 405;
    /// Header or body did not arrive in time.
    RequestTimeout = "request_timeout", 408;
    /// Another probe, switch or hold is in the way.
    Busy = "busy", 409;
    /// Load, heat or memory forbid it now.
    Gated = "gated", 409;
    /// It was stopped.
    Cancelled = "cancelled", 409;
    /// A calibration has to come first.
    NotCalibrated = "not_calibrated", 409;
    /// The mode needs a reboot.
    RebootRequired = "reboot_required", 409;
    /// The board or its tool said no.
    Refused = "refused", 409;
    /// The live files do not show the mode.
    NotReached = "not_reached", 409;
    /// The mode is in force only until the daemon ends.
    NotSettled = "not_settled", 409;
    /// No mode meets the constraints.
    Unsatisfiable = "unsatisfiable", 409;
    /// The body is too large.
    BodyTooLarge = "body_too_large", 413;
    /// The probe ended badly.
    ProbeFailed = "probe_failed", 500;
    /// The samples contradict each other or physics.
    FitFailed = "fit_failed", 500;
    /// A defect of this program.
    Internal = "internal", 500;
    /// All connections, or all event streams, are taken.
    TooManyConnections = "too_many_connections", 503;
    /// The machine has not been read yet.
    NotReady = "not_ready", 503;
    /// Nobody can switch power modes here.
    ControlUnavailable = "control_unavailable", 503;
    /// The daemon is going away.
    ShuttingDown = "shutting_down", 503;
}

impl Code {
    /// The code with this key; `None` for a key of another version.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.key() == key)
    }

    /// An error without a field. `hint` says what to do.
    pub fn error(self, message: impl Into<String>, hint: impl Into<String>) -> ErrorBody {
        ErrorBody {
            code: self.key().to_owned(),
            message: message.into(),
            field: None,
            hint: Some(hint.into()),
        }
    }

    /// An error about one field of the request.
    pub fn at(
        self,
        field: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> ErrorBody {
        ErrorBody { field: Some(field.into()), ..self.error(message, hint) }
    }
}

/// The HTTP status of an error.
#[must_use]
pub fn status(error: &ErrorBody) -> u16 {
    Code::from_key(&error.code).map_or(500, Code::status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_above_lists_every_code_with_its_status() {
        let table = include_str!("error.rs");
        for code in Code::ALL {
            let row = format!("//! | `{}` | {} |", code.key(), code.status());
            assert!(table.contains(&row), "no row {row:?}");
            assert_eq!(Code::from_key(code.key()), Some(*code));
        }
    }
}
