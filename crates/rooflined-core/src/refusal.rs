//! Why a request is refused: a stable code for programs, a sentence and a remedy for people.

use std::fmt;

use crate::keyed;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, $status:literal;)*) => {
        keyed! {
            /// What can go wrong. Clients match on its key, so a key never changes its meaning.
            Code { $($(#[$doc])* $variant = $key,)* }
        }

        impl Code {
            /// The HTTP status of a refusal.
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
    /// A model where only operations go, an operation with nothing to choose, or a file of a kind that is not predicted.
    UnsupportedWorkload = "unsupported_workload", 400;
    /// The inference engine does not run the format there.
    UnsupportedFormat = "unsupported_format", 400;
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
    /// A measured time that physics or reason excludes.
    ImpossibleObservation = "impossible_observation", 400;
    /// A run that a cause of the moment slowed down.
    SlowedDown = "slowed_down", 400;
    /// Malformed HTTP, or a body that ends early.
    MalformedRequest = "malformed_request", 400;
    /// It is answered on the control socket.
    WrongSocket = "wrong_socket", 403;
    /// `[control] enabled = true` is missing.
    ControlDisabled = "control_disabled", 403;
    /// Nothing is done about queries of holds.
    AutoOff = "auto_off", 403;
    /// Neither root, nor the daemon's user, nor group `rooflined`.
    NotAuthorized = "not_authorized", 403;
    /// The configuration does not list the mode.
    ModeNotAllowed = "mode_not_allowed", 403;
    /// No such route, or nothing of the key in its path.
    NotFound = "not_found", 404;
    /// No such calibration to cancel.
    NotRunning = "not_running", 404;
    /// No such hold: it has ended, or never was.
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
    /// It is done, but will be gone when the daemon ends.
    NotStored = "not_stored", 500;
    /// No mode meets the constraints.
    Unsatisfiable = "unsatisfiable", 409;
    /// The header has too many lines or bytes.
    HeaderTooLarge = "header_too_large", 431;
    /// The body is too large.
    BodyTooLarge = "body_too_large", 413;
    /// The probe ended badly.
    ProbeFailed = "probe_failed", 500;
    /// The samples contradict each other or physics.
    FitFailed = "fit_failed", 500;
    /// A defect of this program.
    Internal = "internal", 500;
    /// All connections, streams or subscriptions are taken, or as many as one user may have.
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

    /// A refusal without a field. `hint` says what to do.
    pub fn error(self, message: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal {
            code: self,
            message: message.into(),
            hint: hint.into(),
            field: None,
            problems: Box::default(),
        }
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

/// Most mistakes that one refusal lists.
pub const MOST_PROBLEMS: usize = 16;

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
    /// Every mistake, the one above first; empty where there is only one.
    pub problems: Box<[Problem]>,
}

/// One of several mistakes in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub hint: String,
    pub field: Option<String>,
}

impl Refusal {
    /// The same refusal with each field renamed.
    #[must_use]
    pub fn rename_fields(mut self, rename: impl Fn(String) -> String) -> Self {
        self.field = self.field.map(&rename);
        for problem in &mut self.problems {
            problem.field = problem.field.take().map(&rename);
        }
        self
    }

    fn into_problems(self) -> Vec<Problem> {
        let Self { message, hint, field, problems, .. } = self;
        if problems.is_empty() { vec![Problem { message, hint, field }] } else { problems.into_vec() }
    }
}

/// The mistakes found in one request so far.
#[derive(Debug, Default)]
pub struct Refusals {
    first: Option<Refusal>,
    problems: Vec<Problem>,
}

impl Refusals {
    /// The value, or `None` where the refusal was noted.
    pub fn check<T>(&mut self, result: Result<T, Refusal>) -> Option<T> {
        result.map_err(|refusal| self.add(refusal)).ok()
    }

    pub fn add(&mut self, refusal: Refusal) {
        let first = self.first.get_or_insert_with(|| refusal.clone());
        first.problems = Box::default();
        self.problems.extend(refusal.into_problems());
        self.problems.truncate(MOST_PROBLEMS);
    }

    /// How many mistakes were found, up to [`MOST_PROBLEMS`].
    #[must_use]
    pub const fn count(&self) -> usize {
        self.problems.len()
    }

    /// # Errors
    /// Every mistake found, as one refusal with the code of the first.
    pub fn finish(self) -> Result<(), Refusal> {
        let Some(first) = self.first else { return Ok(()) };
        let problems = if self.problems.len() > 1 { self.problems } else { Vec::new() };
        Err(Refusal { problems: problems.into(), ..first })
    }
}

/// Every value.
///
/// # Errors
/// Every refusal, as one.
pub fn all<T>(results: impl IntoIterator<Item = Result<T, Refusal>>) -> Result<Vec<T>, Refusal> {
    let mut refusals = Refusals::default();
    let values = results.into_iter().filter_map(|result| refusals.check(result)).collect();
    refusals.finish()?;
    Ok(values)
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
    fn several_mistakes_are_one_refusal_that_lists_them_all() {
        let wrong = |field: &str| Code::InvalidField.at(field, format!("{field} is wrong"), "mend it");
        let fields = |refusal: &Refusal| {
            refusal.problems.iter().map(|problem| problem.field.clone().unwrap()).collect::<Vec<_>>()
        };
        let numbers =
            |most: i32| all((0..most).map(|n| if n % 2 == 0 { Ok(n) } else { Err(wrong(&n.to_string())) }));
        assert_eq!(numbers(1), Ok(vec![0]));
        assert_eq!(numbers(2), Err(wrong("1")), "a single mistake is not listed again");
        let three = numbers(6).unwrap_err();
        assert_eq!((three.code, three.message.as_str()), (Code::InvalidField, "1 is wrong"));
        assert_eq!(fields(&three), ["1", "3", "5"]);
        // Lists of mistakes join, in their order.
        let mut joined = Refusals::default();
        joined.add(wrong("0"));
        joined.add(three);
        let joined = joined.finish().unwrap_err().rename_fields(|field| format!("ops[{field}]"));
        assert_eq!(joined.field.as_deref(), Some("ops[0]"));
        assert_eq!(fields(&joined), ["ops[0]", "ops[1]", "ops[3]", "ops[5]"]);
        assert_eq!(numbers(1000).unwrap_err().problems.len(), MOST_PROBLEMS);
    }

    #[test]
    fn every_code_is_found_by_its_key_and_no_other_is() {
        for code in Code::ALL {
            assert_eq!(Code::from_key(code.key()), Some(code));
        }
        assert_eq!(Code::from_key("of_a_newer_daemon"), None);
    }
}
