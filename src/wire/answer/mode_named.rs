//! Power modes by the names that requests give them.

use super::{shorten, subject};
use decide::snapshot::{ModeView, Snapshot};
use roofline::near::Near;
use roofline::refusal::{Code, Refusal};

/// A power mode by name or number.
///
/// # Errors
/// `unknown_mode`, naming those that there are.
pub fn mode_named<'a>(snapshot: &'a Snapshot, field: &str, name: &str) -> Result<&'a ModeView, Refusal> {
    if let Some(view) = snapshot.mode(name) {
        return Ok(view);
    }
    let names: Vec<&str> = snapshot.modes.iter().map(|view| view.mode.name.as_str()).collect();
    if names.is_empty() {
        let why = snapshot.board.modes.reason().unwrap_or("it has none");
        return Err(Code::UnknownMode.at(
            field,
            format!("{} has no power mode {:?}, nor any other: {why}", subject(snapshot), shorten(name)),
            format!("leave {field} out"),
        ));
    }
    let numbered = |view: &&ModeView| name.trim().parse() == Ok(view.mode.id);
    let of_number: Vec<&str> =
        snapshot.modes.iter().filter(numbered).map(|view| view.mode.name.as_str()).collect();
    if of_number.len() > 1 {
        return Err(Code::UnknownMode.at(
            field,
            format!("{} has {} power modes of number {}", subject(snapshot), of_number.len(), shorten(name)),
            format!("ask by name: {}", of_number.join(" or ")),
        ));
    }
    Err(Code::UnknownMode.at(
        field,
        format!("{} has no power mode {:?}", subject(snapshot), shorten(name)),
        Near::of(name, names.iter().copied()).hint(&format!("There are {}", names.join(", "))),
    ))
}
