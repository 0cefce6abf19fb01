//! Long work ends when nobody waits for its answer.

use rooflined_core::refusal::{Code, Refusal};

/// Whether somebody still waits for an answer.
#[derive(Clone, Copy)]
pub struct Wanted<'a>(&'a dyn Fn() -> bool);

impl<'a> Wanted<'a> {
    pub const ALWAYS: Self = Self(&|| true);

    #[must_use]
    pub const fn while_true(is_wanted: &'a dyn Fn() -> bool) -> Self {
        Self(is_wanted)
    }

    /// To be asked between parts of the work.
    ///
    /// # Errors
    /// Nobody waits any more, so nobody reads this.
    pub fn check(self) -> Result<(), Refusal> {
        if (self.0)() {
            return Ok(());
        }
        Err(Code::Cancelled.error("nobody waits for the answer any more", "ask again"))
    }
}
