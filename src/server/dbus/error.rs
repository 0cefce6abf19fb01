//! Refusals as the bus names them.

use zbus::message::{Header, Message};
use zbus::names::ErrorName;

use rooflined_core::refusal::{Code, Problem, Refusal};

/// A refusal as a D-Bus error: `code (field): message; hint`, and each further mistake in the same form on a line of its own.
#[derive(Debug)]
pub struct BusError {
    name: &'static str,
    text: String,
}

impl From<Refusal> for BusError {
    fn from(refusal: Refusal) -> Self {
        let name = match refusal.code {
            Code::NotCalibrated => "io.github.rooflined.Rooflined1.Error.NotCalibrated",
            Code::RebootRequired => "io.github.rooflined.Rooflined1.Error.RebootRequired",
            Code::Unsatisfiable => "io.github.rooflined.Rooflined1.Error.Unsatisfiable",
            Code::NotReached | Code::NotSettled | Code::Refused | Code::ControlUnavailable => {
                "io.github.rooflined.Rooflined1.Error.NotReached"
            }
            Code::Busy | Code::Gated | Code::TooManyConnections => {
                "io.github.rooflined.Rooflined1.Error.Busy"
            }
            Code::ControlDisabled | Code::AutoOff => "io.github.rooflined.Rooflined1.Error.ControlDisabled",
            Code::NotAuthorized | Code::WrongSocket | Code::ModeNotAllowed => {
                "io.github.rooflined.Rooflined1.Error.NotAuthorized"
            }
            Code::UnknownMode => "io.github.rooflined.Rooflined1.Error.UnknownMode",
            code if matches!(code.status(), 400 | 404 | 405 | 413) => {
                "io.github.rooflined.Rooflined1.Error.InvalidArgs"
            }
            _ => "io.github.rooflined.Rooflined1.Error.Failed",
        };
        let line = |field: &Option<String>, message: &str, hint: &str| {
            let field = field.as_ref().map_or_else(String::new, |field| format!(" ({field})"));
            format!("{}{field}: {message}; {hint}", refusal.code)
        };
        let mut text = line(&refusal.field, &refusal.message, &refusal.hint);
        for Problem { message, hint, field } in refusal.problems.iter().skip(1) {
            text = text + "\n" + &line(field, message, hint);
        }
        Self { name, text }
    }
}

impl zbus::DBusError for BusError {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        Message::error(call, self.name()).build(&(self.text.as_str(),))
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_static_str_unchecked(self.name)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::refusal::all;

    #[test]
    fn every_error_ends_with_its_remedy() {
        for code in Code::ALL {
            let refusal = BusError::from(code.at("field", "it went wrong", "do this"));
            assert!(refusal.name.starts_with("io.github.rooflined.Rooflined1.Error."));
            assert_eq!(refusal.text, format!("{} (field): it went wrong; do this", code.key()));
        }
        let wrong =
            ["a", "b"].map(|field| Err::<(), _>(Code::InvalidField.at(field, "it went wrong", "do this")));
        let both = BusError::from(all(wrong).unwrap_err());
        assert_eq!(
            both.text,
            "invalid_field (a): it went wrong; do this\ninvalid_field (b): it went wrong; do this"
        );
    }
}
