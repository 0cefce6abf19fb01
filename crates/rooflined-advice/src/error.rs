//! The HTTP status of each code.
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
//! | `unsupported_format` | 400 | a format that the inference engine does not run on this machine |
//! | `unsupported_objective` | 400 | an objective that nothing here measures |
//! | `unsupported_operating_point` | 400 | a clock or unit that this machine does not have |
//! | `no_unit` | 400 | this accelerator computes in no such precision |
//! | `too_many` | 400 | a cross product beyond its limit |
//! | `impossible_observation` | 400 | a measured time that physics or reason excludes |
//! | `slowed_down` | 400 | a run that a cause of the moment slowed down |
//! | `malformed_request` | 400 | HTTP that is none, or a body that ends early |
//! | `wrong_socket` | 403 | it is answered on the control socket |
//! | `control_disabled` | 403 | `[control] enabled = true` is missing |
//! | `not_authorized` | 403 | neither root, nor the daemon's user, nor group `rooflined` |
//! | `auto_off` | 403 | `[policy] auto` is off, so a hold may not carry a query |
//! | `mode_not_allowed` | 403 | the configuration does not list the mode |
//! | `not_found` | 404 | no such route, or nothing of the key in its path |
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
//! | `header_too_large` | 431 | beyond 64 lines or 16 KiB |
//! | `probe_failed` | 500 | the probe ended badly |
//! | `not_stored` | 500 | it is done, but will be gone when the daemon ends: the state directory cannot be written |
//! | `fit_failed` | 500 | the samples contradict each other or physics |
//! | `internal` | 500 | a defect of this program |
//! | `too_many_connections` | 503 | all connections, streams or subscriptions are taken, or as many as one user may have |
//! | `not_ready` | 503 | the machine has not been read yet |
//! | `control_unavailable` | 503 | this machine has no power modes, or nobody who may switch them |
//! | `shutting_down` | 503 | the daemon is going away |

use rooflined_core::refusal::Code;

/// The HTTP status of a refusal.
#[must_use]
pub const fn status(code: Code) -> u16 {
    match code {
        Code::InvalidJson
        | Code::UnknownField
        | Code::MissingField
        | Code::InvalidField
        | Code::InvalidDimension
        | Code::UnknownFormat
        | Code::UnknownPrecision
        | Code::UnknownHardware
        | Code::UnknownMode
        | Code::UnknownModel
        | Code::UnreadableModel
        | Code::InvalidModel
        | Code::UnsupportedWorkload
        | Code::UnsupportedConstraint
        | Code::UnsupportedFormat
        | Code::UnsupportedObjective
        | Code::UnsupportedOperatingPoint
        | Code::NoUnit
        | Code::TooMany
        | Code::ImpossibleObservation
        | Code::SlowedDown
        | Code::MalformedRequest => 400,
        Code::WrongSocket
        | Code::ControlDisabled
        | Code::AutoOff
        | Code::NotAuthorized
        | Code::ModeNotAllowed => 403,
        Code::NotFound | Code::NotRunning | Code::UnknownHold | Code::NotPending => 404,
        Code::MethodNotAllowed => 405,
        Code::RequestTimeout => 408,
        Code::NoProbe
        | Code::Busy
        | Code::Gated
        | Code::Cancelled
        | Code::NotCalibrated
        | Code::RebootRequired
        | Code::Refused
        | Code::NotReached
        | Code::NotSettled
        | Code::Unsatisfiable => 409,
        Code::BodyTooLarge => 413,
        Code::HeaderTooLarge => 431,
        Code::ProbeFailed | Code::FitFailed | Code::NotStored | Code::Internal => 500,
        Code::TooManyConnections | Code::NotReady | Code::ControlUnavailable | Code::ShuttingDown => 503,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_above_lists_every_code_with_its_status() {
        let table = include_str!("error.rs");
        for code in Code::ALL {
            let row = format!("//! | `{}` | {} |", code.key(), status(*code));
            assert!(table.contains(&row), "no row {row:?}");
        }
    }
}
