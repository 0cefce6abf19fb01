//! Holds across a restart of the daemon.

use super::*;

fn in_15w() -> HoldConstraints {
    HoldConstraints { mode: Some("15W".into()), ..HoldConstraints::default() }
}

/// The next daemon at the same board, with what the one before it kept.
fn restarted(mut before: Rig, seconds: f64) -> Rig {
    let mut state = state();
    state.taken_at = Seconds(seconds);
    state.power_mode = Reading::Known(before.live.clone());
    let governor = Governor::new(at(seconds), orin(), state.clone(), None, Residuals::default(), &enabled());
    let record = metered(&governor);
    let governor = Governor::new(at(seconds), orin(), state, Some(record), Residuals::default(), &enabled());
    before.governor = governor.with_holds(at(seconds), StoredHolds::clone(&before.kept), |_, _| None);
    before.remembers = true;
    before.orders.clear();
    before.replies.clear();
    before.tick(seconds);
    before
}

/// The same request over another connection, with a cookie of its own.
fn again(cookie: u64, of: u64) -> ControlRequest {
    ControlRequest::Hold(Box::new(Hold { cookie, ..wanted(of, in_15w()) }))
}

const BACK: Client = Client { connection: 77, uid: 1000 };

#[test]
fn a_client_that_comes_back_finds_its_hold_and_nothing_is_switched() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    let since = rig.power().holds[0].since;
    assert_eq!((rig.live.name.as_str(), rig.switches()), ("15W", vec!["15W".to_owned()]));
    let mut rig = restarted(rig, 100.0);
    assert_eq!(rig.power().holds[0].waits_until, Some(Seconds(130.0)));
    assert_eq!(rig.power().cause, ModeCause::Hold);
    rig.sample(110.0);
    let reply = rig.ask_as(BACK, again(8, 7));
    assert!(matches!(reply, Some(Reply::Held { cookie: 7, .. })), "{reply:?}");
    let holds = rig.power().holds;
    assert_eq!((holds.len(), holds[0].since, holds[0].waits_until), (1, since, None));
    // Asked for once more, because the helper would keep it for the client of before only.
    assert_eq!(rig.switches(), ["15W"]);
    assert!(matches!(rig.orders.last(), Some(Order::SetMode { keep: Some(KEPT), .. })), "{:?}", rig.orders);
    rig.tick(200.0);
    assert_eq!((rig.power().holds.len(), rig.live.name.as_str()), (1, "15W"));
    assert_eq!(rig.switches(), ["15W"]);
    rig.send(Event::ConnectionClosed { connection: 77 });
    rig.tick(400.0);
    assert_eq!((rig.power().holds.len(), rig.live.name.as_str()), (0, "25W"));
}

#[test]
fn a_client_that_does_not_come_back_has_its_hold_end_and_the_mode_of_before_return() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    let mut rig = restarted(rig, 100.0);
    rig.tick(129.0);
    assert_eq!((rig.power().holds.len(), rig.switches()), (1, vec![]));
    assert_eq!(rig.wake_at, Some(130.0));
    rig.tick(130.0);
    assert_eq!(rig.power().holds.len(), 0);
    rig.tick(400.0);
    assert_eq!((rig.live.name.as_str(), rig.switches()), ("25W", vec!["restore".to_owned()]));
    assert_eq!(*rig.kept, StoredHolds::default());
    assert!(
        rig.logged
            .iter()
            .any(|(_, message)| message.contains("app7") && message.contains("did not come back"))
    );
}

#[test]
fn a_second_restart_gives_nobody_more_time() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    let mut rig = restarted(restarted(rig, 100.0), 120.0);
    assert_eq!(rig.power().holds[0].waits_until, Some(Seconds(130.0)));
    rig.tick(130.0);
    assert_eq!(rig.power().holds.len(), 0);
}

#[test]
fn a_hold_with_an_end_of_its_own_needs_nobody_to_come_back() {
    let mut rig = Rig::new();
    rig.ask(timed(300.0, wanted(7, in_15w())));
    let mut rig = restarted(rig, 100.0);
    assert_eq!(rig.switches(), ["15W"], "the helper keeps it for this daemon too");
    rig.tick(250.0);
    let hold = &rig.power().holds[0];
    assert_eq!((hold.cookie, hold.expires_at, hold.waits_until), (7, Some(Seconds(301.0)), None));
    assert!(matches!(
        rig.ask(ControlRequest::Renew { cookie: 7, ttl: Seconds(100.0) }),
        Some(Reply::Held { .. })
    ));
    rig.tick(349.0);
    assert_eq!(rig.power().holds.len(), 1);
    rig.tick(350.0);
    assert_eq!(rig.power().holds.len(), 0);
}

#[test]
fn as_many_as_a_user_may_have_come_back() {
    let mut rig = Rig::new();
    for cookie in 1..=16 {
        assert!(matches!(rig.ask(hold(cookie, in_15w())), Some(Reply::Held { .. })));
    }
    let mut rig = restarted(rig, 100.0);
    for cookie in 1..=16 {
        let reply = rig.ask_as(BACK, again(100 + cookie, cookie));
        assert!(matches!(reply, Some(Reply::Held { cookie: of, .. }) if of == cookie), "{reply:?}");
    }
    assert!(matches!(rig.ask_as(BACK, hold(300, in_15w())), Some(Reply::Refused(_))), "the limit holds");
    rig.tick(1000.0);
    assert_eq!((rig.power().holds.len(), rig.live.name.as_str()), (16, "15W"));
    assert!(rig.switches().iter().all(|name| name == "15W"), "{:?}", rig.switches());
}

#[test]
fn another_user_or_another_question_takes_nothing_over() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    let mut rig = restarted(rig, 100.0);
    let other = Client { connection: 78, uid: 1001 };
    assert!(matches!(rig.ask_as(other, again(8, 7)), Some(Reply::Held { cookie: 8, .. })));
    assert!(matches!(
        rig.ask_as(BACK, hold(9, HoldConstraints { max_power: Some(Watts(16.0)), ..in_15w() })),
        Some(Reply::Held { cookie: 9, .. })
    ));
    assert_eq!(rig.power().holds.iter().filter(|hold| hold.waits_until.is_some()).count(), 1);
}

#[test]
fn where_the_mode_was_left_meanwhile_a_client_that_comes_back_has_it_entered_again() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    // The helper waited in vain.
    rig.live = rig.journal.take().unwrap();
    let mut rig = restarted(rig, 200.0);
    rig.sample(205.0);
    assert_eq!(
        rig.switches(),
        Vec::<String>::new(),
        "nothing is switched for a client that may not come back"
    );
    let reply = rig.ask_as(BACK, again(8, 7));
    assert!(matches!(reply, Some(Reply::Held { cookie: 8, .. })), "{reply:?}");
    assert_eq!((rig.live.name.as_str(), rig.power().holds.len()), ("15W", 1));
    assert_eq!(rig.switches(), ["15W"]);
}

#[test]
fn a_hold_whose_connection_breaks_waits_for_its_client() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    rig.tick(10.0);
    rig.send(Event::ConnectionLost { connection: USER.connection });
    rig.send(Event::ConnectionClosed { connection: USER.connection });
    assert_eq!(rig.power().holds[0].waits_until, Some(Seconds(40.0)));
    let reply = rig.ask_as(BACK, again(8, 7));
    assert!(matches!(reply, Some(Reply::Held { cookie: 7, .. })), "{reply:?}");
    rig.send(Event::ConnectionLost { connection: BACK.connection });
    rig.tick(50.0);
    // Nobody came back, and the mode of before is entered again.
    assert_eq!((rig.power().holds.len(), rig.live.name.as_str()), (0, "25W"));
    assert_eq!(rig.switches().first().map(String::as_str), Some("15W"));
}

#[test]
fn without_holds_what_was_not_settled_is_undone_at_the_start() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    rig.ask(ControlRequest::Release { cookie: 7 });
    assert_eq!(*rig.kept, StoredHolds::default());
    let rig = restarted(rig, 5.0);
    assert_eq!((rig.live.name.as_str(), rig.switches()), ("25W", vec!["restore".to_owned()]));
}

#[test]
fn where_control_was_disabled_meanwhile_every_hold_ends() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    let mut rig = restarted(rig, 100.0);
    rig.send(Event::Reconfigured(Policy { control_enabled: false, ..enabled() }));
    rig.tick(101.0);
    assert_eq!((rig.power().holds.len(), rig.live.name.as_str()), (0, "25W"));
}

/// The mode of a hold that has ended stays for the dwell time. Who sets it then, unless confirmed, does not keep it.
#[test]
fn a_switch_to_the_mode_of_an_ended_hold_goes_back_unless_it_is_confirmed() {
    let mut rig = Rig::new();
    rig.ask(hold(7, in_15w()));
    rig.ask(ControlRequest::Release { cookie: 7 });
    assert_eq!(rig.live.name, "15W", "the dwell time");
    let Some(Reply::Switched { confirm: Some((id, deadline)), .. }) = rig.ask(set_for("15W", 10.0)) else {
        panic!("{:?}", rig.replies)
    };
    assert_eq!(rig.power().pending.map(|pending| pending.original), Some("25W".to_owned()));
    rig.tick(deadline.get());
    assert_eq!((rig.live.name.as_str(), rig.power().pending), ("25W", None));
    assert_eq!(rig.journal, None);
    assert!(matches!(rig.ask(ControlRequest::Confirm { id }), Some(Reply::Refused(_))));
}

/// Deadlines are of CLOCK_BOOTTIME: the wall clock moves none, and sleep of the machine counts.
#[test]
fn a_wall_clock_that_jumps_moves_no_deadline_and_sleep_counts() {
    let mut rig = Rig::new();
    rig.ask(timed(60.0, wanted(7, in_15w())));
    rig.ask(set_for("15W", 30.0));
    for unix_s in [0.0, 4e9, -1e9] {
        rig.governor.handle(Now { boottime: Seconds(20.0), unix_s }, Event::Tick);
        assert_eq!((rig.power().holds.len(), rig.power().pending.is_some()), (1, true), "{unix_s}");
    }
    // An hour of sleep between two events.
    rig.tick(3600.0);
    assert_eq!((rig.power().holds.len(), rig.power().pending), (0, None));
    rig.tick(3700.0);
    assert_eq!(rig.live.name, "25W");
}
