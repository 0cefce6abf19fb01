//! The life of a switch: what is under way, and what of the mode in force is not settled.
//!
//! The privileged helper undoes whatever was not settled when the connection to the daemon ends, and the mode of holds some
//! time later, so that a daemon that is started again finds it; its journal says to which mode. What that comes to is a [`Standing`], and one order at a time carries it along:
//!
//! ```text
//!            user, no confirmation asked for: entered, then Settle
//!          ┌──────────────────────────────────────────────────────┐
//!          ▼                                                      │
//!     ┌─────────┐  user with confirm_within: entered    ┌─────────┴────────┐
//!     │ Settled ├──────────────────────────────────────►│     Pending      │
//!     │         │◄──────────────────────────────────────┤  base: Settled   │
//!     └─┬─────▲─┘  Confirm: Settle. Revert, deadline    └──────────────────┘
//!       │     │    or control disabled: way back
//!  hold:│     │ last hold ended and dwell time over: way back
//! entered     │ user's switch: entered, then Settle
//!       ▼     │
//!     ┌───────┴─────┐  user with confirm_within: entered ┌───────────────────┐
//!     │ Provisional ├───────────────────────────────────►│      Pending      │
//!     │             │◄───────────────────────────────────┤ base: Provisional │
//!     └─────────────┘  Revert, deadline, while there are └───────────────────┘
//!                      holds: back to their mode
//! ```
//!
//! Every arrow is an order: it takes the standing away with it ([`Stage::InFlight`]), and the answer decides which one
//! comes back. A request for the state and a dry run bring back the one that they left with.
//!
//! | event | from | to |
//! |---|---|---|
//! | a mode is ordered for a user or for holds | `Settled`, `Provisional` | in flight |
//! | … and entered for a user | in flight | in flight with `Settle`, or `Pending` |
//! | … and entered for holds | in flight | `Provisional` |
//! | … and not entered | in flight | as before; `Settled` if the mode of the holds was left all the same |
//! | confirmed, or requested again by a user | `Pending`, `Provisional` | in flight with `Settle` |
//! | … and settled | in flight | `Settled` |
//! | … and not settled | in flight | as below the change: `Settled`, `Provisional` |
//! | reverted, or the deadline passes | `Pending` | in flight back |
//! | the last hold ended, and the dwell time | `Provisional` | in flight back |
//! | … and gone back | in flight | `Settled`; `Provisional` if the mode of the holds was gone back to |
//! | … and not gone back | in flight | as before with a later [`Retry`]; `Settled` when none is left |
//! | somebody else switches | `Pending`, `Provisional` | in flight with `Settle` |
//! | the helper is back, and its journal knows of no switch | in flight | `Settled` |
//! | … or of one that is not this run's | in flight | in flight with `Undo`, then `Settled` |
//! | a hold of an earlier run goes on | `Provisional` | in flight with the same mode, and back |
//! | no answer in time, or the helper is lost | in flight | as where the answer is a failure |

use super::hold::RequestedHold;
use crate::{AuditRecord, Reply, Ticket};
use rooflined_core::board::ActiveMode;
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::PendingConfirmation;

/// The helper has time limits of its own; without an answer for this long it is taken for lost.
pub(super) const ANSWER_LIMIT: Seconds = Seconds(180.0);
/// Attempts to go back; what is left then is undone when the helper's connection ends.
pub(super) const ATTEMPTS: u32 = 3;
/// Pause before the second attempt.
const RETRY: Seconds = Seconds(5.0);

/// Whether an order is under way. There is one at a time.
#[derive(Debug)]
pub(super) enum Stage {
    Idle(Standing),
    InFlight(OrderInFlight),
}

/// What of the mode in force the helper would undo if the daemon died.
#[derive(Debug, Default)]
pub(super) enum Standing {
    /// Nothing.
    #[default]
    Settled,
    /// It was entered for holds.
    Provisional(Provisional),
    /// A user has to confirm it.
    Pending(Box<Pending>),
}

/// What a change is made on top of: the mode of the holds; `None` where it is a settled one.
pub(super) type Base = Option<Provisional>;

/// A mode that was entered for holds.
#[derive(Debug)]
pub(super) struct Provisional {
    pub(super) mode: ActiveMode,
    /// The mode from before the holds, where it is known.
    pub(super) original: Option<ActiveMode>,
    /// After a way back that failed.
    pub(super) retry: Option<Retry>,
}

/// A change that goes back unless it is confirmed.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its deadline is the next attempt to go back once one has failed.
    pub(super) confirmation: PendingConfirmation,
    pub(super) base: Base,
    retry: Option<Retry>,
}

/// The next attempt to go back after one that failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Retry {
    /// Since a hold or a switch last gave reason to start over.
    failed: u32,
    pub(super) at: Seconds,
}

/// An order whose answer has not come, with the standing that depends on it.
#[derive(Debug)]
pub(super) struct OrderInFlight {
    pub(super) number: u64,
    pub(super) purpose: Purpose,
    pub(super) since: Seconds,
}

/// Who asked for a switch, and why in its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Author {
    pub(super) uid: u32,
    pub(super) reason: String,
}

/// What an order is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// To learn what an earlier run left behind.
    Status {
        standing: Standing,
    },
    /// Asked for by a user, as a question.
    DryRun {
        ticket: Ticket,
        standing: Standing,
    },
    /// Asked for by a user.
    User {
        ticket: Ticket,
        author: Author,
        confirm_within: Option<Seconds>,
        target: String,
        base: Base,
    },
    Hold(HoldSwitch),
    /// To keep what was entered; then somebody may get a reply.
    Settle {
        then: Option<(Ticket, Reply)>,
        base: Base,
        /// What is recorded once it is settled.
        record: Option<Box<AuditRecord>>,
    },
    /// Back from a change that was not confirmed.
    Revert {
        ticket: Option<Ticket>,
        /// Who asked; `None` where its time ran out.
        by: Option<u32>,
        target: String,
        pending: Box<Pending>,
    },
    /// Back after the last hold.
    Return {
        from: Provisional,
    },
    /// Back from what an earlier run of the daemon left behind.
    Undo,
    /// To have what an earlier run entered for holds kept for this one.
    Keep {
        standing: Standing,
    },
}

/// A switch to meet holds.
#[derive(Debug)]
pub(super) struct HoldSwitch {
    /// A new one, unless its client has gone; else those in force.
    pub(super) requested: Option<RequestedHold>,
    pub(super) target: ActiveMode,
    /// Modes that were not reached before.
    pub(super) tried: Vec<ActiveMode>,
    pub(super) base: Base,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Idle(Standing::Settled)
    }
}

impl Stage {
    pub(super) const fn in_flight(&self) -> Option<&OrderInFlight> {
        match self {
            Self::InFlight(order) => Some(order),
            Self::Idle(_) => None,
        }
    }

    /// `None` while an order may change it.
    pub(super) const fn standing(&self) -> Option<&Standing> {
        match self {
            Self::Idle(standing) => Some(standing),
            Self::InFlight(_) => None,
        }
    }

    /// A mode may be entered: no order is under way, and nothing waits to be confirmed.
    pub(super) const fn is_free(&self) -> bool {
        matches!(self, Self::Idle(Standing::Settled | Standing::Provisional(_)))
    }

    /// What waits to be confirmed, also while it is gone back from.
    pub(super) fn pending(&self) -> Option<&Pending> {
        match self {
            Self::Idle(standing) => standing.pending(),
            Self::InFlight(order) => order.purpose.pending(),
        }
    }

    /// The hold that a switch is under way for.
    pub(super) const fn requested_hold(&self) -> Option<&RequestedHold> {
        match self {
            Self::InFlight(OrderInFlight { purpose: Purpose::Hold(switch), .. }) => switch.requested.as_ref(),
            _ => None,
        }
    }

    /// Nobody waits any more for the hold that a switch is under way for. The switch goes on.
    pub(super) fn drop_requested_hold(&mut self, is_gone: impl FnOnce(&RequestedHold) -> bool) {
        if let Self::InFlight(OrderInFlight { purpose: Purpose::Hold(switch), .. }) = self {
            switch.requested.take_if(|requested| is_gone(requested));
        }
    }

    /// A new hold gives reason to try the way back as often as the first time.
    pub(super) fn allow_all_attempts(&mut self) {
        let retry = match self {
            Self::Idle(Standing::Provisional(provisional)) => &mut provisional.retry,
            Self::Idle(Standing::Pending(pending)) => &mut pending.retry,
            _ => return,
        };
        if let Some(retry) = retry {
            retry.failed = 0;
        }
    }
}

impl Standing {
    pub(super) fn pending(&self) -> Option<&Pending> {
        match self {
            Self::Pending(pending) => Some(pending),
            Self::Settled | Self::Provisional(_) => None,
        }
    }

    /// The mode of the holds, also below a change that waits to be confirmed.
    pub(super) fn provisional(&self) -> Option<&Provisional> {
        match self {
            Self::Settled => None,
            Self::Provisional(provisional) => Some(provisional),
            Self::Pending(pending) => pending.base.as_ref(),
        }
    }

    /// The mode that this run of the daemon has entered and not settled.
    pub(super) fn unsettled_mode(&self) -> Option<&str> {
        match self {
            Self::Settled => None,
            Self::Provisional(provisional) => Some(&provisional.mode.name),
            Self::Pending(pending) => Some(&pending.confirmation.mode),
        }
    }

    /// What another change is made on top of; itself where it has to be confirmed first.
    fn into_base(self) -> Result<Base, Self> {
        match self {
            Self::Settled => Ok(None),
            Self::Provisional(provisional) => Ok(Some(provisional)),
            Self::Pending(_) => Err(self),
        }
    }

    /// A user's switch; not while another has to be confirmed.
    pub(super) fn enter(
        self,
        ticket: Ticket,
        author: Author,
        confirm_within: Option<Seconds>,
        target: String,
    ) -> Result<Purpose, Self> {
        Ok(Purpose::User { ticket, author, confirm_within, target, base: self.into_base()? })
    }

    /// A switch for holds; not while a user's has to be confirmed.
    pub(super) fn hold(self, requested: Option<RequestedHold>, target: ActiveMode) -> Result<Purpose, Self> {
        Ok(Purpose::Hold(HoldSwitch { requested, target, tried: Vec::new(), base: self.into_base()? }))
    }

    /// What is in force is to stay.
    pub(super) fn settle(self, then: Option<(Ticket, Reply)>, record: Option<Box<AuditRecord>>) -> Purpose {
        let base = match self {
            Self::Settled => None,
            Self::Provisional(provisional) => Some(provisional),
            Self::Pending(pending) => pending.confirmed(),
        };
        Purpose::Settle { then, base, record }
    }

    /// Back from what waits to be confirmed, if anything does: to `target`, else to the previous mode.
    pub(super) fn revert(
        self,
        ticket: Option<Ticket>,
        by: Option<u32>,
        target: Option<String>,
    ) -> Result<Purpose, Self> {
        match self {
            Self::Pending(pending) => {
                let target = target.unwrap_or_else(|| pending.confirmation.original.clone());
                Ok(Purpose::Revert { ticket, by, target, pending })
            }
            Self::Settled | Self::Provisional(_) => Err(self),
        }
    }

    /// Back from the mode of the holds, if it is in force.
    pub(super) fn go_back(self) -> Result<Purpose, Self> {
        match self {
            Self::Provisional(from) => Ok(Purpose::Return { from }),
            Self::Settled | Self::Pending(_) => Err(self),
        }
    }
}

impl From<Base> for Standing {
    fn from(base: Base) -> Self {
        base.map_or(Self::Settled, Self::Provisional)
    }
}

impl Provisional {
    pub(super) const fn new(mode: ActiveMode) -> Self {
        Self { mode, original: None, retry: None }
    }

    /// A way back failed; `None` when it is given up.
    pub(super) fn stuck(self, now: Seconds) -> Base {
        let retry = Retry::next(self.retry, now)?;
        Some(Self { retry: Some(retry), ..self })
    }
}

impl Pending {
    pub(super) fn new(confirmation: PendingConfirmation, base: Base) -> Self {
        let reset = |retry: Retry| Retry { failed: 0, ..retry };
        let base = base.map(|base| Provisional { retry: base.retry.map(reset), ..base });
        Self { confirmation, base, retry: None }
    }

    /// No way back from it has failed.
    pub(super) fn is_untried(&self) -> bool {
        self.retry.is_none_or(|retry| retry.failed == 0)
    }

    /// What is below it, if it should not be settled after all.
    fn confirmed(self) -> Base {
        let retry = self.retry;
        self.base.map(|base| Provisional { retry: retry.or(base.retry), ..base })
    }

    /// It was gone back from to `reached`.
    pub(super) fn reverted(self, reached: &ActiveMode) -> Base {
        let base = self.base.filter(|base| base.mode == *reached);
        base.map(|base| Provisional { retry: None, ..base })
    }

    /// A way back failed; `None` when it is given up.
    pub(super) fn stuck(mut self: Box<Self>, now: Seconds) -> Option<Box<Self>> {
        let retry = Retry::next(self.retry, now)?;
        self.confirmation.deadline = retry.at;
        self.retry = Some(retry);
        Some(self)
    }
}

impl Retry {
    /// Later each time; `None` after the last.
    fn next(previous: Option<Self>, now: Seconds) -> Option<Self> {
        let failed = previous.map_or(0, |retry| retry.failed) + 1;
        (failed < ATTEMPTS).then(|| Self { failed, at: now + RETRY * f64::from(1_u32 << (failed - 1)) })
    }
}

impl OrderInFlight {
    /// When its answer is not waited for any longer.
    pub(super) fn deadline(&self) -> Seconds {
        self.since + ANSWER_LIMIT
    }

    pub(super) fn described(&self) -> String {
        match (self.purpose.target(), &self.purpose) {
            (Some(target), _) => format!("a switch to {target} is under way"),
            (None, Purpose::Settle { .. }) => "a switch is being completed".to_owned(),
            (None, Purpose::Status { .. } | Purpose::Keep { .. }) => {
                "the state of the power modes is being read".to_owned()
            }
            (None, _) => "a switch back is under way".to_owned(),
        }
    }
}

impl Purpose {
    /// Nobody asked for it.
    pub(super) const fn is_housekeeping(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Settle { then: None, .. } | Self::Undo | Self::Keep { .. })
    }

    /// Name of the mode that is being entered.
    pub(super) fn target(&self) -> Option<&str> {
        match self {
            Self::User { target, .. } | Self::Revert { target, .. } => Some(target),
            Self::Hold(switch) => Some(&switch.target.name),
            _ => None,
        }
    }

    fn pending(&self) -> Option<&Pending> {
        match self {
            Self::Status { standing } | Self::Keep { standing } | Self::DryRun { standing, .. } => {
                standing.pending()
            }
            Self::Revert { pending, .. } => Some(pending),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(id: u32, name: &str) -> ActiveMode {
        ActiveMode { id, name: name.into() }
    }

    fn pending(base: Base) -> Box<Pending> {
        let (mode, original) = ("15W".into(), "25W".into());
        let confirmation = PendingConfirmation { id: 1, mode, original, deadline: Seconds(30.0) };
        Box::new(Pending::new(confirmation, base))
    }

    #[test]
    fn nothing_is_entered_over_a_change_that_waits_to_be_confirmed() {
        let entered = Standing::Pending(pending(None)).enter(
            1,
            Author { uid: 1000, reason: String::new() },
            None,
            "7W".into(),
        );
        let standing = entered.expect_err("a user's switch");
        let standing = standing.hold(None, mode(4, "7W")).expect_err("a switch for holds");
        let standing = standing.go_back().expect_err("the way back of holds");
        assert!(
            matches!(standing.revert(None, None, None), Ok(Purpose::Revert { target, .. }) if target == "25W")
        );
    }

    #[test]
    fn there_is_no_way_back_from_what_is_settled() {
        let standing = Standing::Settled.revert(None, None, None).expect_err("a change");
        let standing = standing.go_back().expect_err("a mode of holds");
        assert!(matches!(standing.settle(None, None), Purpose::Settle { base: None, .. }));
    }

    #[test]
    fn what_is_not_settled_after_all_is_the_mode_of_the_holds_with_the_attempts_so_far() {
        let base = Some(Provisional::new(mode(4, "7W")));
        let stuck = pending(base).stuck(Seconds(30.0)).expect("a second attempt");
        let Purpose::Settle { base: Some(base), .. } = Standing::Pending(stuck).settle(None, None) else {
            panic!()
        };
        assert_eq!((base.mode.id, base.retry), (4, Some(Retry { failed: 1, at: Seconds(35.0) })));
    }

    #[test]
    fn a_way_back_is_tried_three_times_and_its_deadline_is_the_next_attempt() {
        let again = pending(None).stuck(Seconds(30.0)).expect("a second attempt");
        assert_eq!((again.confirmation.deadline, again.is_untried()), (Seconds(35.0), false));
        let again = again.stuck(Seconds(35.0)).expect("a third attempt");
        assert_eq!(again.confirmation.deadline, Seconds(45.0));
        assert!(again.stuck(Seconds(45.0)).is_none());
    }

    #[test]
    fn only_the_way_back_to_the_mode_of_the_holds_keeps_it() {
        let base = || Some(Provisional::new(mode(4, "7W")));
        assert!(pending(base()).reverted(&mode(4, "7W")).is_some());
        assert!(pending(base()).reverted(&mode(3, "25W")).is_none());
    }
}
