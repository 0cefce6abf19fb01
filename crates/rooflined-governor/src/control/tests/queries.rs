//! Holds with queries. What a query comes to is a table of the test: 25W costs less for a token than the modes above and
//! below it.

#![expect(clippy::disallowed_types, reason = "the table of one test, which answers without state")]

use std::cell::{Cell, RefCell};

use super::*;
use rooflined_core::board::{Memory, Throttle};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_predict::optimize::{
    Constraints, EnergyBasis, ModeVerdict, Modes, Objective, Optimism, Query, QueryError, USUAL_RUN,
    WorkForms,
};
use rooflined_predict::snapshot::{Automatic, HoldQuery};

/// Name, tokens a second, watts. In joules for a token: 0.5, 0.4, 0.316, 0.6.
const TABLE: [(&str, f64, Option<f64>); 4] = [
    ("MAXN", 40.0, Some(20.0)),
    ("15W", 25.0, Some(10.0)),
    ("25W", 38.0, Some(12.0)),
    ("7W", 10.0, Some(6.0)),
];

thread_local! {
    static ANSWERS: RefCell<Vec<(&'static str, f64, Option<f64>)>> = const { RefCell::new(Vec::new()) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// Looks it up. Throttling halves the rate of 25W alone.
fn looked_up(snapshot: &Snapshot, query: &Query) -> Result<Vec<ModeVerdict>, QueryError> {
    ASKED.set(ASKED.get() + 1);
    let throttled = snapshot.state.throttle.known().is_some_and(|throttle| throttle.active);
    let verdict = |mode: &PowerMode| {
        ANSWERS.with_borrow(|answers| {
            let (name, rate, power_w) = *answers.iter().find(|(name, ..)| *name == mode.name)?;
            let rate = if throttled && name == "25W" { rate / 2.0 } else { rate };
            let meets = query.constraints.min_tokens_per_s.is_none_or(|least| rate >= least);
            Some(ModeVerdict {
                mode: mode.key(),
                meets,
                energy_j_per_token: power_w.map(|power| power / rate),
                power_w,
                tokens_per_s: Some(rate),
                misses: if meets { Vec::new() } else { vec!["min_tokens_per_s"] },
            })
        })
    };
    Ok(snapshot.board.power_modes().iter().filter_map(verdict).collect())
}

fn with_auto(auto: Automatic) -> Policy {
    Policy { auto, ..enabled() }
}

/// A board that is in `mode` since long ago.
fn rig_in(mode: &str, policy: &Policy) -> Rig {
    ANSWERS.set(TABLE.to_vec());
    let mut rig = Rig::with(policy);
    rig.governor.power.holds.answer_query = looked_up;
    if mode != "25W" {
        assert_eq!(switched(rig.ask(set(mode))).0, SwitchOutcome::Applied);
    }
    rig.orders.clear();
    rig.now = 100.0;
    rig
}

fn switching_in(mode: &str) -> Rig {
    rig_in(mode, &with_auto(Automatic::Switch))
}

fn asking(cookie: u64, tokens_per_s: f64, constraints: HoldConstraints) -> ControlRequest {
    let query = Query {
        work: WorkForms::Op { op: Op::Gemv { n: 4096, k: 4096 }, formats: vec![WeightFormat::Int8] },
        engine: Engine::Bare,
        objective: Objective::Latency,
        constraints: Constraints { min_tokens_per_s: Some(tokens_per_s), ..Constraints::default() },
        modes: Modes::Live,
        caps: Vec::new(),
        energy: EnergyBasis::WithIdle,
        allow_reboot: false,
        threads: Vec::new(),
        batch: 1..=1,
        optimism: Optimism::Expected,
        run_time: USUAL_RUN,
        reserve: Bytes(0.0),
    };
    let request = Arc::new(serde_json::json!({ "constraints": { "min_tokens_per_s": tokens_per_s } }));
    let query = Some(HoldQuery { query: Arc::new(query), shown: Arc::clone(&request), request });
    ControlRequest::Hold(Box::new(Hold { query, ..wanted(cookie, constraints) }))
}

/// A hold that needs so many tokens a second.
fn rate(cookie: u64, tokens_per_s: f64) -> ControlRequest {
    asking(cookie, tokens_per_s, HoldConstraints::default())
}

fn release(rig: &mut Rig, cookie: u64) {
    assert_eq!(rig.ask(ControlRequest::Release { cookie }), Some(Reply::Done));
}

/// A reading, throttled or with other memory.
fn read(rig: &mut Rig, seconds: f64, change: impl FnOnce(&mut BoardState)) {
    rig.now = seconds;
    let mut state = state();
    state.taken_at = Seconds(seconds);
    state.power_mode = Reading::Known(rig.live.clone());
    change(&mut state);
    rig.send(Event::Sampled(Box::new(state)));
}

fn throttled(state: &mut BoardState) {
    state.throttle = Reading::Known(Throttle { active: true, evidence: vec!["oc3".into()] });
}

fn hold_view(rig: &Rig, cookie: u64) -> Hold {
    rig.power().holds.into_iter().find(|hold| hold.cookie == cookie).unwrap()
}

#[test]
fn neither_the_highest_nor_the_lowest_mode_is_taken_where_one_between_costs_less() {
    for (from, least) in [("MAXN", 5.0), ("15W", 5.0), ("7W", 5.0), ("7W", 20.0), ("15W", 30.0)] {
        let mut rig = switching_in(from);
        assert_eq!(held_mode(rig.ask(rate(1, least))), "25W", "from {from} for {least}");
        assert_eq!((rig.switches(), rig.power().cause), (vec!["25W".to_owned()], ModeCause::Hold));
        assert_eq!(rig.journal, Some(active(from)), "never settled, so that a crash undoes it");
        let hold = hold_view(&rig, 1);
        assert_eq!((hold.satisfied, hold.unmet), (true, None));
        rig.now = 101.0;
        release(&mut rig, 1);
        rig.tick(110.0);
        assert_eq!(
            (rig.switches(), rig.mode_in_force()),
            (vec!["25W".to_owned(), "restore".into()], from.to_owned())
        );
    }
    let mut rig = switching_in("7W");
    assert_eq!(held_mode(rig.ask(rate(1, 39.0))), "MAXN", "the only one that meets it");
}

#[test]
fn a_hold_with_a_query_is_refused_where_nobody_acts_on_it() {
    let mut rig = rig_in("7W", &with_auto(Automatic::Off));
    let (code, message) = refusal(rig.ask(rate(1, 20.0)));
    assert_eq!(code, "auto_off");
    assert!(message.contains("auto = \"switch\""), "{message}");
    assert!(rig.switches().is_empty() && rig.power().holds.is_empty());
}

#[test]
fn advice_names_the_mode_and_what_it_saves_and_nothing_is_switched() {
    let mut rig = rig_in("15W", &with_auto(Automatic::Advise));
    let Some(Reply::Held { mode, satisfied, advice, .. }) = rig.ask(rate(1, 30.0)) else { panic!() };
    assert_eq!((mode.as_str(), satisfied), ("15W", false));
    let advice = advice.unwrap();
    assert_eq!(
        (advice.mode.as_str(), advice.tokens_per_s, advice.power),
        ("25W", Some(38.0), Some(Watts(12.0)))
    );
    assert!((advice.saving_ratio.unwrap() - (1.0 - (12.0 / 38.0) / (10.0 / 25.0))).abs() < 1e-12);
    let unmet = hold_view(&rig, 1).unmet.unwrap();
    for part in ["15W misses min_tokens_per_s", "25W would meet every hold", "advise"] {
        assert!(unmet.contains(part), "{unmet}");
    }
    rig.tick(1000.0);
    assert!(rig.switches().is_empty());
    assert_eq!(refusal(rig.ask(rate(2, 50.0))).0, "unsatisfiable", "as it would be if it were switched");
    assert_eq!(
        switched(rig.ask(set("7W"))).0,
        SwitchOutcome::Applied,
        "a query that is not acted on binds nobody"
    );
    assert_eq!(held_mode(rig.ask(hold(3, at_most(15.0)))), "7W", "nor does it bind who holds to constraints");
    assert_eq!(hold_view(&rig, 3).advice, None, "nothing would meet both, and app1 came first");
}

#[test]
fn a_reload_from_advise_to_switch_to_off_acts_ceases_and_ends_what_is_held() {
    let mut rig = rig_in("15W", &with_auto(Automatic::Advise));
    rig.ask(rate(1, 30.0));
    rig.ask(hold(2, at_most(30.0)));
    rig.send(Event::Reconfigured(with_auto(Automatic::Switch)));
    assert_eq!((rig.mode_in_force().as_str(), hold_view(&rig, 1).satisfied), ("25W", true));
    rig.now = 200.0;
    rig.send(Event::Reconfigured(with_auto(Automatic::Advise)));
    assert_eq!(switched(rig.ask(set("15W"))).0, SwitchOutcome::Applied);
    assert!(!hold_view(&rig, 1).satisfied);
    rig.send(Event::Reconfigured(with_auto(Automatic::Off)));
    let left: Vec<u64> = rig.power().holds.iter().map(|hold| hold.cookie).collect();
    assert_eq!(left, [2], "constraints do not depend on it");
    assert!(rig.logged.iter().any(|(_, line)| line.contains("every hold with a query ends")));
    assert_eq!(rig.power().auto, Automatic::Off);
}

#[test]
fn disabling_it_while_a_mode_is_held_brings_the_mode_of_before_back() {
    let mut rig = switching_in("15W");
    assert_eq!(held_mode(rig.ask(rate(1, 30.0))), "25W");
    rig.send(Event::Reconfigured(with_auto(Automatic::Off)));
    assert_eq!((rig.power().holds.len(), rig.wake_at), (0, Some(110.0)));
    rig.tick(110.0);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("15W", ModeCause::Revert));
}

#[test]
fn a_mode_that_will_do_stays_unless_another_saves_more_than_the_hysteresis() {
    let less = |ratio: f64| {
        let mut rig = switching_in("15W");
        // 15W takes 0.4 J for a token.
        ANSWERS.set(vec![("15W", 25.0, Some(10.0)), ("25W", 50.0, Some(20.0 * (1.0 - ratio)))]);
        let mode = held_mode(rig.ask(rate(1, 20.0)));
        rig.tick(10_000.0);
        assert_eq!(rig.mode_in_force(), mode, "and stays so");
        mode
    };
    assert_eq!(enabled().hysteresis_ratio, 0.1);
    assert_eq!([less(0.0), less(0.09), less(0.11)], ["15W", "15W", "25W"]);
}

#[test]
fn energy_is_saved_no_sooner_than_the_dwell_time_after_the_last_switch_for_a_hold() {
    let mut rig = switching_in("25W");
    assert_eq!(held_mode(rig.ask(rate(1, 39.0))), "MAXN");
    rig.now = 101.0;
    assert_eq!(held_mode(rig.ask(rate(2, 20.0))), "MAXN", "it will do, and was entered just now");
    release(&mut rig, 1);
    assert_eq!((rig.switches(), rig.wake_at), (vec!["MAXN".to_owned()], Some(110.0)));
    rig.tick(109.9);
    assert_eq!(rig.switches(), ["MAXN"]);
    rig.tick(110.0);
    assert_eq!(rig.switches(), ["MAXN", "25W"]);
    rig.tick(10_000.0);
    assert_eq!(rig.switches(), ["MAXN", "25W"], "and that was all");
}

#[test]
fn several_queries_are_answered_at_the_least_energy_of_all_together() {
    let mut rig = switching_in("7W");
    rig.ask(rate(1, 5.0));
    rig.ask(rate(2, 39.0));
    assert_eq!(rig.mode_in_force(), "MAXN", "the only one for both");
    assert!(rig.power().holds.iter().all(|hold| hold.satisfied));
    assert_eq!(hold_view(&rig, 1).advice.unwrap().energy_j_per_token, Some(0.5));
    let (code, message) = refusal(rig.ask(asking(3, 5.0, at_most(20.0))));
    assert_eq!(code, "unsatisfiable");
    assert!(message.contains("app2") && message.contains("misses min_tokens_per_s"), "{message}");
    assert!(!message.contains("app1"), "{message}");
    let (code, message) = refusal(rig.ask(rate(3, 50.0)));
    assert_eq!(code, "unsatisfiable");
    assert!(message.contains("25W misses min_tokens_per_s") && message.contains("relax"), "{message}");
}

#[test]
fn a_query_and_constraints_of_one_hold_are_met_together() {
    let mut rig = switching_in("MAXN");
    assert_eq!(held_mode(rig.ask(asking(1, 5.0, at_most(20.0)))), "15W", "0.4 J and not the 0.6 J of 7W");
}

#[test]
fn of_holds_that_no_mode_meets_together_any_more_the_oldest_is_kept_and_the_others_are_told() {
    // Throttling takes the rate away from the only mode that does for both.
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 30.0));
    rig.ask(hold(2, at_most(25.0)));
    assert!(rig.switches().is_empty());
    for second in 101..120 {
        read(&mut rig, f64::from(second), throttled);
    }
    assert_eq!(rig.switches(), ["MAXN"], "the older one's");
    assert!(hold_view(&rig, 1).satisfied);
    let loser = hold_view(&rig, 2);
    let unmet = loser.unmet.unwrap();
    assert_eq!((loser.satisfied, loser.advice), (false, None));
    for part in ["the power of MAXN is not known", "app1", "15W misses min_tokens_per_s"] {
        assert!(unmet.contains(part), "{unmet}");
    }
    assert_eq!(rig.logged.iter().filter(|(_, line)| line.contains("hold of app2 is not met")).count(), 1);
    // The other way round.
    let mut rig = switching_in("25W");
    rig.ask(hold(2, at_most(25.0)));
    rig.ask(rate(1, 30.0));
    read(&mut rig, 101.0, throttled);
    assert!(rig.switches().is_empty());
    let unmet = hold_view(&rig, 1).unmet.unwrap();
    for part in ["25W misses min_tokens_per_s", "app2", "the power of MAXN is not known"] {
        assert!(unmet.contains(part), "{unmet}");
    }
    read(&mut rig, 102.0, |_| {});
    assert!(hold_view(&rig, 1).satisfied, "until it is over");
    // A loser that goes, goes; one that stays is met when the older one goes.
    read(&mut rig, 103.0, throttled);
    release(&mut rig, 2);
    assert_eq!((rig.mode_in_force().as_str(), hold_view(&rig, 1).satisfied), ("MAXN", true));
}

#[test]
fn a_mode_that_failed_is_not_entered_again_at_once_to_save_energy() {
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 30.0));
    read(&mut rig, 101.0, throttled);
    assert_eq!(rig.switches(), ["MAXN"]);
    for second in 102..600 {
        read(&mut rig, f64::from(second), |_| {});
    }
    assert_eq!(rig.switches(), ["MAXN"], "it would be throttled again");
    for second in 700..800 {
        read(&mut rig, f64::from(second), |_| {});
    }
    assert_eq!(rig.switches(), ["MAXN", "25W"]);
    // What only a prediction says waits for the dwell time.
    let mut rig = switching_in("7W");
    assert_eq!(held_mode(rig.ask(rate(1, 30.0))), "25W");
    read(&mut rig, 101.0, throttled);
    assert!(!hold_view(&rig, 1).satisfied, "its owner is told at once");
    assert_eq!((rig.switches(), rig.wake_at), (vec!["25W".to_owned()], Some(110.0)));
    rig.tick(110.0);
    assert_eq!(rig.switches(), ["25W", "MAXN"]);
}

#[test]
fn queries_are_answered_when_something_decides_them_and_not_at_each_sample() {
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 20.0));
    let mut since = ASKED.get();
    let mut asked = move || {
        let now = ASKED.get();
        now - std::mem::replace(&mut since, now)
    };
    for second in 101..200 {
        read(&mut rig, f64::from(second), |_| {});
    }
    assert_eq!(asked(), 0);
    read(&mut rig, 200.0, throttled);
    assert_eq!(asked(), 1);
    read(&mut rig, 201.0, throttled);
    assert_eq!(asked(), 0);
    let with_memory = |available: f64| {
        move |state: &mut BoardState| {
            throttled(state);
            state.memory = Reading::Known(Memory {
                total: Bytes(16e9),
                available: Bytes(available),
                free: Bytes(1e9),
                swap_used: Bytes(0.0),
            });
        }
    };
    read(&mut rig, 202.0, with_memory(7.9e9));
    assert_eq!(asked(), 0, "8 GB were");
    read(&mut rig, 203.0, with_memory(3e9));
    assert_eq!(asked(), 1);
    read(&mut rig, 204.0, |state| {
        with_memory(3e9)(state);
        state.cpu_clock_cap = Reading::Known(Hertz(1.5e9));
    });
    assert_eq!(asked(), 1, "the ceilings are those of half the clock");
    release(&mut rig, 1);
    read(&mut rig, 300.0, |_| {});
    assert_eq!(asked(), 0);
}

#[test]
fn a_mode_whose_energy_is_unknown_comes_after_those_whose_is_known_and_then_power_decides() {
    let chosen = |answers: &[(&'static str, f64, Option<f64>)]| {
        let mut rig = switching_in("7W");
        ANSWERS.set(answers.to_vec());
        held_mode(rig.ask(rate(1, 20.0)))
    };
    assert_eq!(chosen(&[("15W", 25.0, None), ("25W", 38.0, None)]), "15W", "by their labels");
    assert_eq!(chosen(&[("15W", 25.0, None), ("25W", 38.0, Some(30.0))]), "25W");
    // Two queries, the energy of one of them unknown everywhere: the power of both is.
    let mut rig = switching_in("25W");
    ANSWERS.set(vec![("25W", 38.0, None)]);
    assert_eq!(held_mode(rig.ask(rate(1, 20.0))), "25W");
    rig.tick(1000.0);
    assert_eq!(rig.switches().len(), 0, "nothing is proven to save anything");
    assert_eq!(hold_view(&rig, 1).advice.unwrap().saving_ratio, None);
}

#[test]
fn only_modes_that_may_be_entered_are_chosen() {
    let only = |names: &[&str]| Policy {
        allowed_modes: Some(names.iter().map(ToString::to_string).collect()),
        ..with_auto(Automatic::Switch)
    };
    let mut rig = rig_in("25W", &only(&["15W"]));
    assert_eq!(switched(rig.ask(set("15W"))).0, SwitchOutcome::Applied);
    assert_eq!(held_mode(rig.ask(rate(1, 20.0))), "15W", "though 25W costs less");
    assert_eq!(refusal(rig.ask(rate(2, 30.0))).0, "unsatisfiable");
    let mut rig = switching_in("7W");
    rig.outcomes.insert("25W", SwitchOutcome::RebootRequired);
    assert_eq!(held_mode(rig.ask(rate(1, 20.0))), "15W", "the next best of those that are reached");
    rig.tick(500.0);
    assert_eq!(rig.switches(), ["25W", "15W"], "what was not reached is not tried again to save energy");
}

#[test]
fn an_attempt_to_save_energy_that_fails_leaves_holds_met() {
    let mut rig = switching_in("MAXN");
    ANSWERS.set(vec![("MAXN", 40.0, Some(20.0))]);
    assert_eq!(held_mode(rig.ask(rate(1, 5.0))), "MAXN");
    ANSWERS.set(TABLE.to_vec());
    rig.outcomes.insert("25W", SwitchOutcome::Refused);
    read(&mut rig, 101.0, throttled);
    read(&mut rig, 102.0, |_| {});
    assert_eq!(rig.switches(), ["15W"], "throttled, 25W costs more than that");
    read(&mut rig, 200.0, |_| {});
    assert_eq!(rig.switches(), ["15W", "25W"]);
    read(&mut rig, 300.0, |_| {});
    assert_eq!(rig.switches(), ["15W", "25W"]);
    assert!(hold_view(&rig, 1).satisfied);
    assert!(!rig.logged.iter().any(|(_, line)| line.contains("not met")), "{:?}", rig.logged);
}

#[test]
fn a_users_own_switch_within_the_holds_stays_and_one_that_breaks_them_is_refused() {
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 20.0));
    let (code, message) = refusal(rig.ask_as(ROOT, set("7W")));
    assert_eq!(code, "busy");
    assert!(message.contains("app1") && message.contains("7W misses min_tokens_per_s"), "{message}");
    assert_eq!(switched(rig.ask(set("MAXN"))).0, SwitchOutcome::Applied);
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["MAXN", "settle"], "the user knows why");
    assert_eq!(held_mode(rig.ask(rate(2, 5.0))), "25W", "a new hold starts a new choice");
}

#[test]
fn somebody_elses_switch_is_not_fought_for_a_query() {
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 20.0));
    rig.live = active("7W");
    for second in 101..200 {
        rig.sample(f64::from(second));
    }
    assert!(rig.switches().is_empty());
    let hold = hold_view(&rig, 1);
    assert_eq!((hold.satisfied, hold.unmet.as_deref()), (false, Some("7W misses min_tokens_per_s")));
    assert_eq!(hold.advice.unwrap().mode, "25W");
}

#[test]
fn a_query_that_cannot_be_answered_is_refused_and_one_that_cannot_be_any_more_is_not_met() {
    fn fails(_: &Snapshot, _: &Query) -> Result<Vec<ModeVerdict>, QueryError> {
        Err(QueryError::PowerUnknown { wanted: "energy cannot be minimised", objective: true })
    }
    let mut rig = switching_in("25W");
    rig.ask(rate(1, 20.0));
    rig.governor.power.holds.answer_query = fails;
    let (code, message) = refusal(rig.ask(rate(2, 20.0)));
    assert_eq!(code, "unsatisfiable");
    assert!(message.contains("nothing is known of the power") && message.contains("; send it"), "{message}");
    read(&mut rig, 101.0, throttled);
    let unmet = hold_view(&rig, 1).unmet.unwrap();
    assert!(unmet.contains("nothing is known of the power"), "{unmet}");
    assert!(rig.switches().is_empty());
}
