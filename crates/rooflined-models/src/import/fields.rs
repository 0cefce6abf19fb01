//! Fields of a JSON object, each known by several names.

use serde_json::{Map, Value};

use super::{ImportError, short};

/// Objects in which composite models keep the configuration of their language model.
pub(super) const INNER: &[&str] =
    &["thinker_config", "text_config", "language_config", "llm_config", "llm_cfg", "language_model"];

/// Reads fields under any of several names.
pub(super) struct Fields<'a> {
    pub map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub fn any(&self, names: &[&str]) -> Option<&'a Value> {
        names.iter().find_map(|name| self.map.get(*name).filter(|value| !value.is_null()))
    }

    /// A whole number that is not negative.
    pub fn number(&self, names: &[&str]) -> Result<Option<u64>, ImportError> {
        let Some(value) = self.any(names) else { return Ok(None) };
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        let number = value.as_u64().or_else(|| whole.map(|number| number as u64));
        number.map(Some).ok_or_else(|| ImportError::Field {
            field: names.first().copied().unwrap_or_default().to_owned(),
            reason: format!("is {}, not a whole number", short(&value.to_string())),
        })
    }

    pub fn text(&self, names: &[&str]) -> Option<&'a str> {
        self.any(names)?.as_str()
    }

    pub fn list(&self, names: &[&str]) -> Option<&'a [Value]> {
        self.any(names)?.as_array().map(Vec::as_slice)
    }

    pub fn inner(&self, names: &[&str]) -> Option<Fields<'a>> {
        self.any(names)?.as_object().map(|map| Fields { map })
    }
}
