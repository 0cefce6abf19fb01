//! What was done is found in the log by who, what and why.

use super::*;
use crate::{AuditEvent, AuditRecord};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A change from one mode to another that took.
fn change(event: AuditEvent, from: &str, to: &str, cause: &'static str) -> AuditRecord {
    AuditRecord {
        from: text(from),
        to: text(to),
        cause: Some(cause),
        outcome: Some("applied"),
        ..AuditRecord::of(event)
    }
}

#[test]
fn a_users_switch_is_recorded_with_the_user_and_the_reason() {
    let mut rig = Rig::new();
    rig.ask(set("15W"));
    let by_user = AuditRecord {
        uid: Some(USER.uid),
        reason: text("a test"),
        ..change(AuditEvent::Switch, "25W", "15W", "user")
    };
    assert_eq!(rig.records, [by_user]);
}

#[test]
fn a_switch_that_failed_is_recorded_as_such() {
    let mut rig = Rig::new();
    rig.outcomes.insert("15W", SwitchOutcome::NotApplied);
    rig.ask(set("15W"));
    let [record] = rig.records.as_slice() else { panic!("{:?}", rig.records) };
    assert_eq!((record.outcome, record.to.as_deref()), (Some("not_applied"), Some("15W")));
}

#[test]
fn confirming_and_reverting_are_recorded_with_who_did_it() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 30.0));
    rig.records.clear();
    rig.ask_as(ROOT, ControlRequest::Confirm { id: 1 });
    let kept = AuditRecord {
        from: text("25W"),
        to: text("15W"),
        uid: Some(ROOT.uid),
        ..AuditRecord::of(AuditEvent::Confirm)
    };
    assert_eq!(rig.records, [kept]);
    rig.ask(set_for("7W", 30.0));
    rig.records.clear();
    rig.ask_as(ROOT, ControlRequest::Revert { id: None });
    let reverted = change(AuditEvent::Revert, "7W", "15W", "revert");
    assert_eq!(rig.records, [AuditRecord { uid: Some(ROOT.uid), ..reverted }]);
}

#[test]
fn what_nobody_confirms_is_recorded_as_reverted_by_nobody() {
    let mut rig = Rig::new();
    rig.now = 10.0;
    rig.ask(set_for("15W", 30.0));
    rig.records.clear();
    rig.tick(40.0);
    assert_eq!(rig.records, [change(AuditEvent::Revert, "15W", "25W", "revert")]);
}

#[test]
fn a_hold_is_recorded_from_its_switch_to_its_end() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    let held = |event| AuditRecord {
        uid: Some(USER.uid),
        hold: text("app1"),
        reason: text("a test"),
        ..AuditRecord::of(event)
    };
    let entered = change(AuditEvent::Switch, "25W", "7W", "hold");
    let switch = AuditRecord { hold: text("app1"), reason: text("a test"), uid: Some(USER.uid), ..entered };
    assert_eq!(rig.records, [switch, AuditRecord { to: text("7W"), ..held(AuditEvent::Hold) }]);
    rig.records.clear();
    rig.ask_as(ROOT, ControlRequest::Release { cookie: 1 });
    let released = AuditRecord {
        cause: Some("released"),
        uid: Some(ROOT.uid),
        hold: text("app1"),
        ..AuditRecord::of(AuditEvent::Release)
    };
    assert_eq!(rig.records.first(), Some(&released));
    rig.tick(1000.0);
    assert_eq!(rig.records.last(), Some(&change(AuditEvent::Revert, "7W", "25W", "revert")));
}

#[test]
fn the_end_of_a_hold_is_recorded_with_what_ended_it() {
    let causes = |end: fn(&mut Rig)| {
        let mut rig = Rig::new();
        rig.now = 10.0;
        let timed = Hold { expires_at: Some(Seconds(60.0)), ..wanted(1, at_most(15.0)) };
        rig.ask(ControlRequest::Hold(Box::new(timed)));
        rig.records.clear();
        end(&mut rig);
        rig.records.first().map(|record| (record.event, record.cause, record.uid))
    };
    let ended = |cause| Some((AuditEvent::Release, Some(cause), Some(USER.uid)));
    assert_eq!(causes(|rig| rig.tick(70.0)), ended("expired"));
    let closed = |rig: &mut Rig| rig.send(Event::ConnectionClosed { connection: USER.connection });
    assert_eq!(causes(closed), ended("disconnected"));
    assert_eq!(causes(|rig| rig.send(Event::Reconfigured(policy()))), ended("control_disabled"));
}

#[test]
fn somebody_elses_switch_is_recorded_without_a_user() {
    let mut rig = Rig::new();
    rig.live = active("7W");
    rig.sample(2.0);
    rig.sample(3.0);
    let external = AuditRecord {
        from: text("25W"),
        to: text("7W"),
        cause: Some("external"),
        ..AuditRecord::of(AuditEvent::External)
    };
    assert_eq!(rig.records, [external]);
}
