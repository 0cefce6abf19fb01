//! The journal of the privileged helper: when it is read, and what is undone of an earlier run.

use super::helper::Connection;
use super::lifecycle::{ATTEMPTS, Purpose, Stage, Standing};
use crate::{AuditEvent, AuditRecord, Governor, Severity};
use rooflined_core::board::{
    JournalEntry, Order, OrderFailure, ReadBack, SwitchOutcome, SwitchPhase, SwitchReport,
};
use rooflined_predict::snapshot::ModeCause;

impl Governor {
    /// What an earlier run, or a privileged helper that was lost, left behind. Its holds and confirmations died with it, so a
    /// switch that is not settled is undone, unless it is the one that this run still holds or waits for.
    pub(super) fn journal_found(
        &mut self,
        standing: Standing,
        journal: Option<&JournalEntry>,
        recovered: Option<String>,
        found: &ReadBack,
    ) -> Stage {
        let undone = recovered.is_some();
        if let Some(recovered) = recovered {
            let message = format!("an unsettled switch of the power mode was found: {recovered}");
            let record = AuditRecord {
                to: found.mode.as_ref().map(|mode| mode.name.clone()),
                cause: Some(ModeCause::Revert.key()),
                ..AuditRecord::of(AuditEvent::Revert)
            };
            self.effects.audit(Severity::Info, message, record);
        }
        match journal {
            Some(entry) => {
                let ours = standing.unsettled_mode() == Some(entry.target.name.as_str());
                if entry.phase == SwitchPhase::Applied && ours {
                    return Stage::Idle(standing);
                }
                let (from, to) = (&entry.target.name, &entry.original.name);
                self.effects
                    .log(Severity::Warning, format!("power mode {from} was not settled; {to} is restored"));
                return self.send(Purpose::Undo, Order::Restore);
            }
            None => {
                if standing.unsettled_mode().is_some() {
                    let message = "the privileged helper was lost, so the previous power mode was restored";
                    let record = AuditRecord {
                        from: standing.unsettled_mode().map(ToOwned::to_owned),
                        to: found.mode.as_ref().map(|mode| mode.name.clone()),
                        cause: Some(ModeCause::Revert.key()),
                        ..AuditRecord::of(AuditEvent::Revert)
                    };
                    self.effects.audit(Severity::Warning, message.to_owned(), record);
                    self.power.mode.cause = ModeCause::Revert;
                    self.take_reading(found.mode.clone(), found);
                } else if undone {
                    // What was read before the privileged helper went back is nobody else's doing.
                    self.power.mode.cause = ModeCause::Revert;
                    self.take_reading(found.mode.clone(), found);
                }
            }
        }
        Stage::Idle(Standing::Settled)
    }

    pub(crate) fn actuator_changed(&mut self, problem: Option<OrderFailure>) {
        let was_lost = self.power.helper.problem().is_some();
        self.power.helper.connection = match problem {
            None => {
                if was_lost {
                    self.effects.log(Severity::Info, "power modes can be switched again".to_owned());
                }
                Connection::JournalUnread
            }
            Some(problem) => {
                // No answer will come over a connection that is gone.
                self.give_up(&problem);
                if !was_lost {
                    self.effects.log(Severity::Warning, format!("power modes cannot be switched: {problem}"));
                }
                Connection::Lost { problem }
            }
        };
    }

    pub(super) fn finish_undo(&mut self, report: &SwitchReport) {
        self.note_reached(report, ModeCause::Revert, AuditRecord::of(AuditEvent::Revert));
        if report.outcome == SwitchOutcome::Applied {
            self.power.helper.failed_undos = 0;
            self.power.holds.switched_at = None;
        } else {
            self.undo_failed(&report.words());
        }
    }

    /// What an earlier run left behind is still in force; the journal is asked again when the privileged helper is back.
    pub(super) fn undo_failed(&mut self, message: &str) {
        self.power.helper.failed_undos += 1;
        let again = self.power.helper.failed_undos < ATTEMPTS;
        if !again {
            self.power.helper.failed_undos = 0;
        }
        self.report_stuck(again, message);
    }

    /// The first order asks what an earlier run left behind: a later one would take its own switch for that.
    pub(super) fn read_journal(&mut self) {
        let Some(standing) = self.power.stage.standing() else { return };
        // Where nobody may switch it is woken once, for what an earlier run may have left behind.
        let matters = self.policy.control_enabled || standing.unsettled_mode().is_some();
        let is_new =
            matches!(self.power.helper.connection, Connection::JournalUnread) && self.unavailable().is_none();
        if is_new && (!self.power.helper.asked_once || matters) {
            self.power.helper.asked_once = true;
            self.power.helper.connection = Connection::JournalRead;
            self.order(Order::Status, |standing| Ok(Purpose::Status { standing }));
        }
    }
}
