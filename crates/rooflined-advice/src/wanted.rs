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
        if (self.0)() { Ok(()) } else { Err(unwanted()) }
    }

    /// The same for work that asks by itself.
    pub(crate) const fn is_wanted(self) -> &'a dyn Fn() -> bool {
        self.0
    }
}

/// Where nobody waits any more, who therefore does not read this.
pub fn unwanted() -> Refusal {
    Code::Cancelled.error("nobody waits for the answer any more", "ask again")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use rooflined_core::hardware::registry;
    use rooflined_core::units::Seconds;
    use rooflined_predict::snapshot::{Now, Snapshot};
    use serde_json::json;

    use super::*;
    use crate::{Answer, Catalogue, Opener, Request, answer_while};

    #[test]
    fn one_large_search_ends_in_the_middle_where_nobody_waits() {
        let snapshot =
            Snapshot::hypothetical(Arc::new(registry().get("jetson-agx-orin-64gb").unwrap().clone()));
        let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
        let body = json!({
            "engine": "vllm", "workload": {"model": "llama-3.2-1b"}, "freedom": {"batch": {"min": 1, "max": 1000}},
        });
        let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
        let asked = Cell::new(0);
        let answered = |times: usize| {
            asked.set(0);
            let is_wanted = || {
                asked.set(asked.get() + 1);
                asked.get() <= times
            };
            let now = Now { boottime: Seconds::ZERO, unix_s: 0.0 };
            answer_while(Wanted::while_true(&is_wanted), &snapshot, &catalogue, now, &request)
        };
        let Answer::Recommend(whole) = answered(usize::MAX).unwrap() else { panic!("another answer") };
        let (often, candidates) = (asked.get(), whole.candidates as usize);
        assert!(often * 256 >= candidates, "{candidates} candidates, and it looked {often} times");
        for times in [1, often / 2, often - 1] {
            assert_eq!(answered(times).unwrap_err().code, Code::Cancelled);
            assert_eq!(asked.get(), times + 1, "it goes no further");
        }
    }
}
