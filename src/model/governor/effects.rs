//! Effects that every decision may have.

use super::{AuditRecord, Effect, Reply, Severity, Ticket};
use roofline::refusal::{Code, Refusal};

pub(super) fn reply(effects: &mut Vec<Effect>, ticket: Ticket, reply: Reply) {
    effects.push(Effect::Reply { ticket, reply });
}

pub(super) fn refuse(effects: &mut Vec<Effect>, ticket: Ticket, refusal: Refusal) {
    reply(effects, ticket, Reply::Refused(refusal));
}

pub(super) fn log(effects: &mut Vec<Effect>, severity: Severity, message: String) {
    effects.push(Effect::Log { severity, message, record: None });
}

/// What is done about power modes, holds and reports is looked for by its fields.
pub(super) fn audit(effects: &mut Vec<Effect>, severity: Severity, message: String, record: AuditRecord) {
    effects.push(Effect::Log { severity, message, record: Some(Box::new(record)) });
}

/// One probe at a time: two would measure each other.
pub(super) fn busy(effects: &mut Vec<Effect>, ticket: Ticket, what: &str) {
    reply(effects, ticket, busy_reply(what));
}

fn busy_reply(what: &str) -> Reply {
    Reply::Refused(
        Code::Busy
            .error(format!("{what} is running"), "wait for the running job: GET /v1/calibration shows it"),
    )
}
