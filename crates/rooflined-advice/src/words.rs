//! What several answers and refusals say alike.

use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::snapshot::Snapshot;

/// What the snapshot is of, as a sentence.
pub fn subject(snapshot: &Snapshot) -> &str {
    if snapshot.is_hypothetical() { &snapshot.board.key } else { "this machine" }
}

/// A client's text, short enough to show.
pub fn shorten(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

/// A finite number above zero, or an error that names the field.
pub fn positive(field: &str, value: f64) -> Result<f64, Refusal> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Code::InvalidField.at(
        field,
        format!("{field} is {value}; it must be a number above zero"),
        format!("give {field} in the unit that its name ends with"),
    ))
}
