use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

mod audit;
mod laws;
mod long_run;
mod queries;
mod restarts;

use super::*;
use crate::fixtures::{board, policy, state};
use crate::machine::machine_key;
use crate::{Command, Effect, Event, Now, Policy, Severity};
use rooflined_core::board::{
    Board, BoardState, JournalEntry, Knob, OrderAnswer, OrderFailure, PowerMode, PowerModes, ReadBack,
    Reading, SwitchOutcome, SwitchPhase, SwitchReport,
};
use rooflined_core::hold::HoldConstraints;
use rooflined_core::names::InstructionSet;
use rooflined_core::units::{Hertz, Watts};
use rooflined_predict::calibration::{CalibrationRecord, PowerUnderLoad, RECORD_SCHEMA, Reference, Regime};
use rooflined_predict::learning::Residuals;
use rooflined_predict::power::{CARRIED_GUESS, label_watts};
use rooflined_predict::snapshot::{Hold, ModeView, PowerControl, Snapshot};
use rooflined_predict::{Engine, EngineProfile};

fn at(seconds: f64) -> Now {
    Now { boottime: Seconds(seconds), unix_s: 1e9 + seconds }
}

fn mode(id: u32, name: &str, gpu_hz: Option<f64>) -> PowerMode {
    PowerMode {
        id,
        name: name.into(),
        cores_online: Some(4),
        cpu_max: None,
        gpu_max: gpu_hz.map(Hertz),
        memory_max: None,
        tpc_mask: None,
        sm_online: Some(8),
        knob: Knob::Nvpmodel,
        settings: Vec::new(),
    }
}

/// Numbers that are no indices, the names of a board in the field.
fn modes() -> Vec<PowerMode> {
    vec![
        mode(0, "MAXN", None),
        mode(1, "15W", Some(612e6)),
        mode(3, "25W", Some(918e6)),
        mode(4, "7W", Some(408e6)),
    ]
}

fn orin() -> Board {
    let modes = PowerModes { default: Some(1), modes: modes(), ..PowerModes::default() };
    Board { modes: Reading::Known(modes), ..board() }
}

/// A calibration in every mode with watts in its name that drew just as much as they say at its worst.
fn metered(governor: &Governor) -> CalibrationRecord {
    let snapshot = governor.snapshot();
    let regime = |mode: PowerMode| {
        let worst = label_watts(&mode.name)?;
        let peak = worst / (1.0 + CARRIED_GUESS) * 0.9999;
        Some(Regime {
            key: mode.name,
            reference: Reference { read: snapshot.roofline.bandwidth.value, core_to_core: None },
            measured_at_unix_s: 1.7e9,
            clock_cap: Some(Hertz(3e9)),
            point: None,
            power: Some(PowerUnderLoad { mean: peak * 0.8, peak, readings: 50, scope: "module".into() }),
            power_points: Vec::new(),
            power_reason: None,
            samples: 40,
            loaded: false,
            roofline: snapshot.roofline.clone(),
            profile: EngineProfile::unknown(Engine::Bare),
        })
    };
    CalibrationRecord {
        schema: RECORD_SCHEMA,
        key: machine_key(&snapshot.board, InstructionSet::Auto),
        measured_at_unix_s: 1.7e9,
        wall: Seconds(8.0),
        plan: "full".into(),
        simulated: false,
        loaded: false,
        other_work: None,
        regimes: modes().into_iter().filter_map(regime).collect(),
        rejected: Vec::new(),
        skipped: Vec::new(),
        power: None,
    }
}

fn active(name: &str) -> ActiveMode {
    let mode = modes().into_iter().find(|mode| mode.name == name).unwrap();
    ActiveMode { id: mode.id, name: mode.name }
}

fn enabled() -> Policy {
    Policy { control_enabled: true, automatic: false, ..policy() }
}

const USER: Client = Client { connection: 1, uid: 1000 };
const ROOT: Client = Client { connection: 2, uid: 0 };

/// A governor with a board and a privileged helper around it, which keeps a journal as the real one does.
struct Rig {
    governor: Governor,
    now: f64,
    live: ActiveMode,
    journal: Option<ActiveMode>,
    /// What comes of entering a mode; `Applied` for the others.
    outcomes: BTreeMap<&'static str, SwitchOutcome>,
    /// Orders are left unanswered.
    silent: bool,
    /// The journal outlives the daemon.
    remembers: bool,
    /// What the daemon was last told to keep.
    kept: Arc<StoredHolds>,
    unanswered: VecDeque<(u64, Order)>,
    orders: Vec<Order>,
    logged: Vec<(Severity, String)>,
    records: Vec<AuditRecord>,
    wake_at: Option<f64>,
    ticket: Ticket,
    replies: Vec<(Ticket, Reply)>,
}

impl Rig {
    fn with(policy: &Policy) -> Self {
        Self::calibrated(policy, |_| {})
    }

    /// With another calibration.
    fn calibrated(policy: &Policy, change: impl FnOnce(&mut CalibrationRecord)) -> Self {
        let mut state = state();
        state.power_mode = Reading::Known(active("25W"));
        let of = |record| Governor::new(at(1.0), orin(), state.clone(), record, Residuals::default(), policy);
        let mut record = metered(&of(None));
        change(&mut record);
        let governor = of(Some(record));
        let mut rig = Self {
            governor,
            now: 1.0,
            live: active("25W"),
            journal: None,
            outcomes: BTreeMap::new(),
            silent: false,
            remembers: false,
            kept: Arc::default(),
            unanswered: VecDeque::new(),
            orders: Vec::new(),
            logged: Vec::new(),
            records: Vec::new(),
            wake_at: None,
            ticket: 0,
            replies: Vec::new(),
        };
        rig.send(Event::Tick);
        rig.orders.clear();
        rig
    }

    fn new() -> Self {
        Self::with(&enabled())
    }

    fn send(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.governor.handle(at(self.now), event) {
                match effect {
                    Effect::Actuate { order, what } => {
                        self.orders.push(what.clone());
                        if self.silent {
                            self.unanswered.push_back((order, what));
                        } else {
                            let answer = Box::new(self.answer(what));
                            events.push_back(Event::OrderAnswered { order, answer });
                        }
                    }
                    Effect::Reply { ticket, reply } => self.replies.push((ticket, reply)),
                    Effect::Log { severity, message, record } => {
                        self.records.extend(record.map(|record| *record));
                        self.logged.push((severity, message));
                    }
                    Effect::WakeAt(wake_at) => self.wake_at = wake_at.map(Seconds::get),
                    Effect::Save(crate::StoreItem::Holds(kept)) => self.kept = kept,
                    _ => {}
                }
            }
        }
    }

    fn report(&mut self, asked: ActiveMode, outcome: SwitchOutcome) -> SwitchReport {
        let before = self.live.clone();
        if outcome == SwitchOutcome::Applied {
            self.live = asked.clone();
        }
        let mode = Some(self.live.clone());
        SwitchReport {
            outcome,
            asked,
            before: Some(before),
            reached: ReadBack { mode, ..ReadBack::default() },
            message: "as the board would have it".into(),
            hint: Some("look at it".into()),
            writes: Vec::new(),
            took: Seconds(0.5),
        }
    }

    fn answer(&mut self, what: Order) -> OrderAnswer {
        match what {
            Order::SetMode { id, name, dry_run, .. } => {
                assert_eq!(active(&name).id, id);
                let outcome = modes().iter().find(|mode| mode.name == name).and_then(|mode| {
                    self.outcomes.iter().find(|(name, _)| **name == mode.name).map(|(_, outcome)| *outcome)
                });
                let outcome = outcome.unwrap_or(SwitchOutcome::Applied);
                let before = self.live.clone();
                let report = self.report(active(&name), outcome);
                if dry_run {
                    self.live = before;
                } else if outcome == SwitchOutcome::Applied {
                    self.journal.get_or_insert(before);
                }
                OrderAnswer::Switched { report }
            }
            Order::Settle => {
                self.journal = None;
                OrderAnswer::Settled
            }
            Order::Restore => {
                let original = self.journal.take().unwrap_or_else(|| self.live.clone());
                OrderAnswer::Switched { report: self.report(original, SwitchOutcome::Applied) }
            }
            Order::Status => OrderAnswer::Status {
                journal: self.journal.clone().filter(|_| self.remembers).map(|original| JournalEntry {
                    boot_id: "this".into(),
                    original,
                    target: self.live.clone(),
                    phase: SwitchPhase::Applied,
                }),
                recovered: None,
                now: ReadBack { mode: Some(self.live.clone()), ..ReadBack::default() },
            },
        }
    }

    /// Answers what was left unanswered.
    fn speak(&mut self) {
        self.silent = false;
        while let Some((order, what)) = self.unanswered.pop_front() {
            let answer = Box::new(self.answer(what));
            self.send(Event::OrderAnswered { order, answer });
        }
    }

    fn ask_as(&mut self, client: Client, request: ControlRequest) -> Option<Reply> {
        self.ticket += 1;
        let ticket = self.ticket;
        self.send(Event::Requested { ticket, command: Command::Control { client, request } });
        self.reply_to(ticket)
    }

    fn ask(&mut self, request: ControlRequest) -> Option<Reply> {
        self.ask_as(USER, request)
    }

    fn reply_to(&self, ticket: Ticket) -> Option<Reply> {
        let own: Vec<&Reply> =
            self.replies.iter().filter(|(other, _)| *other == ticket).map(|(_, reply)| reply).collect();
        assert!(own.len() < 2, "one reply for each ticket: {own:?}");
        own.first().copied().cloned()
    }

    fn sample(&mut self, seconds: f64) {
        self.now = seconds;
        let mut state = state();
        state.taken_at = Seconds(seconds);
        state.power_mode = Reading::Known(self.live.clone());
        self.send(Event::Sampled(Box::new(state)));
    }

    fn tick(&mut self, seconds: f64) {
        self.now = seconds;
        self.send(Event::Tick);
    }

    fn power(&self) -> PowerControl {
        self.governor.snapshot().power.clone()
    }

    fn mode_in_force(&self) -> String {
        self.governor.snapshot().state.power_mode.known().unwrap().name.clone()
    }

    fn switches(&self) -> Vec<String> {
        let name = |order: &Order| match order {
            Order::SetMode { name, dry_run: false, .. } => Some(name.clone()),
            Order::SetMode { .. } => Some("dry run".into()),
            Order::Restore => Some("restore".into()),
            Order::Settle => Some("settle".into()),
            Order::Status => None,
        };
        self.orders.iter().filter_map(name).collect()
    }
}

fn set(mode: &str) -> ControlRequest {
    ControlRequest::SetMode {
        mode: mode.into(),
        confirm_within: None,
        dry_run: false,
        reason: "a test".into(),
    }
}

fn set_for(mode: &str, seconds: f64) -> ControlRequest {
    ControlRequest::SetMode {
        mode: mode.into(),
        confirm_within: Some(Seconds(seconds)),
        dry_run: false,
        reason: "a test".into(),
    }
}

fn dry(mode: &str) -> ControlRequest {
    ControlRequest::SetMode { mode: mode.into(), confirm_within: None, dry_run: true, reason: String::new() }
}

fn hold(cookie: u64, constraints: HoldConstraints) -> ControlRequest {
    ControlRequest::Hold(Box::new(wanted(cookie, constraints)))
}

fn wanted(cookie: u64, constraints: HoldConstraints) -> Hold {
    Hold {
        cookie,
        constraints,
        query: None,
        app_id: format!("app{cookie}"),
        reason: "a test".into(),
        uid: 0,
        connection: 0,
        expires_at: None,
        attached: true,
        since: Seconds::ZERO,
        waits_until: None,
        satisfied: true,
        unmet: None,
        advice: None,
    }
}

/// It is requested at 0 s, so its end is its time to live.
fn timed(ttl: f64, hold: Hold) -> ControlRequest {
    ControlRequest::Hold(Box::new(Hold { expires_at: Some(Seconds(ttl)), attached: false, ..hold }))
}

fn at_most(watts: f64) -> HoldConstraints {
    HoldConstraints { max_power: Some(Watts(watts)), ..HoldConstraints::default() }
}

fn at_least(mode: &str) -> HoldConstraints {
    HoldConstraints { min_mode: Some(mode.into()), ..HoldConstraints::default() }
}

/// The code, and the message with what to do.
fn refusal(reply: Option<Reply>) -> (&'static str, String) {
    match reply {
        Some(Reply::Refused(refusal)) => (refusal.code.key(), refusal.to_string()),
        other => panic!("{other:?} is no refusal"),
    }
}

fn switched(reply: Option<Reply>) -> (SwitchOutcome, Option<(u64, Seconds)>) {
    match reply {
        Some(Reply::Switched { report, confirm }) => (report.outcome, confirm),
        other => panic!("{other:?} is no switch"),
    }
}

fn held_mode(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Held { mode, .. }) => mode,
        other => panic!("{other:?} is no hold"),
    }
}

#[test]
fn nothing_is_switched_until_control_is_enabled_not_even_by_root() {
    let mut rig = Rig::with(&Policy { control_enabled: false, ..enabled() });
    for request in [set("15W"), dry("15W"), hold(1, at_most(15.0)), ControlRequest::Revert { id: None }] {
        let (code, message) = refusal(rig.ask_as(ROOT, request));
        assert_eq!(code, "control_disabled");
        assert!(message.contains("enabled = true"), "{message}");
    }
    assert!(rig.orders.is_empty(), "not even the privileged helper is woken: {:?}", rig.orders);
}

#[test]
fn only_allowed_modes_are_entered() {
    let only = |names: &[&str]| Policy {
        allowed_modes: Some(names.iter().map(ToString::to_string).collect()),
        ..enabled()
    };
    let mut rig = Rig::with(&only(&["15w"]));
    assert_eq!(refusal(rig.ask(set("7W"))).0, "mode_not_allowed");
    assert_eq!(refusal(rig.ask(dry("7W"))).0, "mode_not_allowed");
    assert_eq!(held_mode(rig.ask(hold(1, at_most(20.0)))), "15W");
    assert_eq!(refusal(rig.ask(hold(2, at_most(7.0)))).0, "unsatisfiable");
    let mut none = Rig::with(&only(&[]));
    assert_eq!(refusal(none.ask(set("15W"))).0, "mode_not_allowed");
    assert_eq!(held_mode(none.ask(hold(1, at_least("25W")))), "25W", "the active one need not be entered");
    let mut all = Rig::with(&Policy { allowed_modes: None, ..enabled() });
    assert_eq!(switched(all.ask(set("7W"))).0, SwitchOutcome::Applied);
}

#[test]
fn a_switch_is_settled_once_the_board_shows_it_and_only_then_replied_to() {
    let mut rig = Rig::new();
    rig.silent = true;
    assert_eq!(rig.ask(set("15w")), None);
    assert_eq!(rig.mode_in_force(), "25W", "asking changes nothing that is shown");
    assert_eq!(rig.power().switching.as_deref(), Some("15W"));
    rig.speak();
    assert_eq!(switched(rig.reply_to(1)), (SwitchOutcome::Applied, None));
    assert_eq!(rig.switches(), ["15W", "settle"]);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("15W", ModeCause::User));
    assert_eq!(rig.power().switching, None);
    assert_eq!(rig.journal, None);
}

#[test]
fn a_mode_is_found_by_its_number_which_is_no_index() {
    let mut rig = Rig::new();
    assert_eq!(switched(rig.ask(set("4"))).0, SwitchOutcome::Applied);
    assert_eq!(rig.mode_in_force(), "7W");
    let (code, message) = refusal(rig.ask(set("2")));
    assert_eq!(code, "unknown_mode");
    assert!(message.contains("MAXN, 15W, 25W, 7W"), "{message}");
    let (_, message) = refusal(rig.ask(set("51W")));
    assert!(message.contains("did you mean"), "{message}");
}

#[test]
fn entering_the_active_mode_has_every_file_compared() {
    let mut rig = Rig::new();
    rig.sample(10.0);
    assert_eq!(switched(rig.ask(set("25W"))), (SwitchOutcome::Applied, None));
    assert_eq!(rig.switches(), ["25W", "settle"], "a reading does not tell of every file");
}

#[test]
fn a_failed_switch_is_reported_and_changes_nothing_that_is_shown() {
    for outcome in [SwitchOutcome::RebootRequired, SwitchOutcome::Refused, SwitchOutcome::NotApplied] {
        let mut rig = Rig::new();
        rig.outcomes.insert("15W", outcome);
        assert_eq!(switched(rig.ask(set("15W"))).0, outcome);
        assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("25W", ModeCause::Boot));
        assert_eq!(rig.switches(), ["15W"]);
        assert_eq!(rig.power().last.unwrap().outcome, outcome);
        assert_eq!(switched(rig.ask(set("7W"))).0, SwitchOutcome::Applied, "and the next one works");
    }
}

#[test]
fn a_mode_that_is_known_to_need_a_reboot_is_not_tried_but_may_be_asked_about() {
    let mut rig = Rig::new();
    let view = |mode: PowerMode| ModeView {
        reboot_required: Some(mode.name == "15W"),
        unreachable: (mode.name == "7W").then(|| "the file is damaged".into()),
        mode,
        roofline: rig.governor.snapshot().roofline.clone(),
        profile: EngineProfile::unknown(Engine::Bare),
        measured_power: None,
        worst_power: None,
    };
    let views = Arc::new(modes().into_iter().map(view).collect::<Vec<_>>());
    let show = |rig: &mut Rig| {
        let snapshot = Snapshot { modes: Arc::clone(&views), ..(*rig.governor.snapshot()).clone() };
        rig.governor.snapshot = Arc::new(snapshot);
    };
    show(&mut rig);
    assert_eq!(refusal(rig.ask(set("15W"))).0, "reboot_required");
    show(&mut rig);
    let (code, message) = refusal(rig.ask(set("7W")));
    assert_eq!(code, "refused");
    assert!(message.contains("the file is damaged"), "{message}");
    show(&mut rig);
    assert_eq!(refusal(rig.ask(hold(1, at_most(20.0)))).0, "unsatisfiable", "neither is entered for a hold");
    assert!(rig.orders.is_empty());
    rig.outcomes.insert("15W", SwitchOutcome::RebootRequired);
    show(&mut rig);
    assert_eq!(switched(rig.ask(dry("15W"))).0, SwitchOutcome::RebootRequired);
    assert_eq!(rig.switches(), ["dry run"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut rig = Rig::new();
    assert_eq!(switched(rig.ask(dry("15W"))), (SwitchOutcome::Applied, None));
    assert_eq!((rig.mode_in_force().as_str(), rig.power().last), ("25W", None));
    assert_eq!(rig.switches(), ["dry run"]);
}

#[test]
fn a_second_switch_finds_the_first_under_way() {
    let mut rig = Rig::new();
    rig.silent = true;
    rig.ask(set("15W"));
    let (code, message) = refusal(rig.ask_as(ROOT, set("7W")));
    assert_eq!(code, "busy");
    assert!(message.contains("15W"), "{message}");
    rig.speak();
    assert_eq!(rig.live.name, "15W");
}

#[test]
fn what_nobody_confirms_is_taken_back_at_its_deadline() {
    let mut rig = Rig::new();
    rig.now = 10.0;
    let (_, confirm) = switched(rig.ask(set_for("15W", 30.0)));
    assert_eq!(confirm, Some((1, Seconds(40.0))));
    assert_eq!(rig.wake_at, Some(40.0), "the daemon knows when to call again");
    let pending = rig.power().pending.unwrap();
    assert_eq!((pending.mode.as_str(), pending.original.as_str()), ("15W", "25W"));
    rig.tick(39.9);
    assert_eq!(rig.switches(), ["15W"]);
    assert_eq!(rig.wake_at, Some(40.0), "and again after each tick");
    rig.tick(40.0);
    assert_eq!(rig.switches(), ["15W", "restore"]);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("25W", ModeCause::Revert));
    assert_eq!((rig.power().pending, rig.wake_at), (None, None));
    assert_eq!(refusal(rig.ask(ControlRequest::Confirm { id: 1 })).0, "not_pending");
}

#[test]
fn a_confirmed_switch_stays() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 30.0));
    assert_eq!(refusal(rig.ask(ControlRequest::Confirm { id: 7 })).0, "not_pending");
    assert_eq!(refusal(rig.ask(set("7W"))).0, "busy", "one change at a time");
    assert_eq!(rig.ask(ControlRequest::Confirm { id: 1 }), Some(Reply::Done));
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["15W", "settle"]);
    assert_eq!(rig.mode_in_force(), "15W");
}

#[test]
fn a_revert_goes_back_before_the_deadline() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 30.0));
    assert_eq!(refusal(rig.ask(ControlRequest::Revert { id: Some(9) })).0, "not_pending");
    assert_eq!(switched(rig.ask(ControlRequest::Revert { id: None })).0, SwitchOutcome::Applied);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().pending), ("25W", None));
    assert_eq!(refusal(rig.ask(ControlRequest::Revert { id: None })).0, "not_pending");
}

#[test]
fn a_way_back_that_fails_is_tried_three_times_and_then_said_aloud() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 10.0));
    let deadline = rig.wake_at.unwrap();
    rig.silent = true;
    let mut times = 0;
    rig.tick(deadline);
    while let Some((order, what)) = rig.unanswered.pop_front() {
        assert_eq!(what, Order::Restore);
        times += 1;
        let answer = Box::new(OrderAnswer::Failed("the tool hangs".into()));
        rig.send(Event::OrderAnswered { order, answer });
        if let Some(wake_at) = rig.wake_at {
            rig.tick(wake_at);
        }
    }
    assert_eq!(times, 3);
    assert!(rig.logged.iter().any(|(severity, line)| *severity == Severity::Error && line.contains("hangs")));
    assert_eq!(rig.power().pending, None);
}

#[test]
fn a_hold_leaves_a_mode_that_will_do() {
    let mut rig = Rig::new();
    assert_eq!(held_mode(rig.ask(hold(1, at_most(30.0)))), "25W", "though 7W would take less");
    assert!(rig.switches().is_empty());
    assert_eq!(rig.power().cause, ModeCause::Boot);
    assert!(rig.power().holds[0].satisfied);
}

#[test]
fn a_hold_enters_the_lowest_power_mode_that_will_do_and_its_end_brings_the_old_one_back_after_the_dwell_time()
{
    let mut rig = Rig::new();
    rig.now = 100.0;
    assert_eq!(held_mode(rig.ask(hold(1, at_most(20.0)))), "7W");
    assert_eq!((rig.switches(), rig.power().cause), (vec!["7W".to_owned()], ModeCause::Hold));
    assert_eq!(rig.journal, Some(active("25W")), "never settled, so that a crash undoes it");
    rig.now = 101.0;
    assert_eq!(rig.ask(ControlRequest::Release { cookie: 1 }), Some(Reply::Done));
    assert_eq!(rig.switches(), ["7W"], "a mode entered for a hold stays for the dwell time");
    assert_eq!(rig.wake_at, Some(110.0));
    rig.tick(110.0);
    assert_eq!(rig.switches(), ["7W", "restore"]);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("25W", ModeCause::Revert));
}

#[test]
fn a_hold_that_comes_within_the_dwell_time_costs_no_switch() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(20.0)));
    rig.send(Event::ConnectionClosed { connection: USER.connection });
    rig.tick(5.0);
    assert_eq!(held_mode(rig.ask(hold(2, at_most(15.0)))), "7W");
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["7W"]);
}

#[test]
fn tightening_is_immediate_and_loosening_alone_switches_nothing() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_least("15W")));
    assert_eq!(held_mode(rig.ask(hold(2, at_most(15.0)))), "15W");
    let (code, message) = refusal(rig.ask(hold(3, at_most(7.0))));
    assert_eq!(code, "unsatisfiable");
    assert!(message.contains("app1") && !message.contains("app2"), "{message}");
    rig.ask(ControlRequest::Release { cookie: 1 });
    assert_eq!(held_mode(rig.ask(hold(4, at_most(7.0)))), "7W", "within the dwell time");
    rig.ask(ControlRequest::Release { cookie: 4 });
    rig.tick(500.0);
    assert_eq!(rig.switches(), ["15W", "7W"], "7W still meets what is left");
    rig.ask(ControlRequest::Release { cookie: 2 });
    assert_eq!(rig.switches(), ["15W", "7W", "restore"], "the dwell time is over");
    assert_eq!(rig.mode_in_force(), "25W");
}

#[test]
fn constraints_are_met_or_nothing_is_held() {
    let none = HoldConstraints::default();
    let cases: Vec<(HoldConstraints, Result<&str, &str>)> = vec![
        (none.clone(), Err("missing_field")),
        (HoldConstraints { mode: Some("7w".into()), ..none.clone() }, Ok("7W")),
        (HoldConstraints { mode: Some("0".into()), ..none.clone() }, Ok("MAXN")),
        (HoldConstraints { mode: Some("8W".into()), ..none.clone() }, Err("unknown_mode")),
        (HoldConstraints { min_mode: Some("50W".into()), ..none.clone() }, Err("unknown_mode")),
        (at_least("MAXN"), Ok("MAXN")),
        (at_least("25W"), Ok("25W")),
        (at_most(15.0), Ok("7W")),
        (at_most(6.9), Err("unsatisfiable")),
        (HoldConstraints { min_gpu_clock: Some(Hertz(918e6)), ..none.clone() }, Ok("25W")),
        // No cap and no known limit of the chip: no clock is promised.
        (HoldConstraints { min_gpu_clock: Some(Hertz(919e6)), ..none.clone() }, Err("unsatisfiable")),
        (
            HoldConstraints {
                min_bandwidth: Some(rooflined_core::units::BytesPerSecond(1.0)),
                ..none.clone()
            },
            Ok("25W"),
        ),
        (
            HoldConstraints {
                min_bandwidth: Some(rooflined_core::units::BytesPerSecond(1e15)),
                ..none.clone()
            },
            Err("unsatisfiable"),
        ),
        (
            HoldConstraints { max_power: Some(Watts(15.0)), min_mode: Some("15W".into()), ..none.clone() },
            Ok("15W"),
        ),
        (
            HoldConstraints { max_power: Some(Watts(7.0)), min_mode: Some("15W".into()), ..none },
            Err("unsatisfiable"),
        ),
    ];
    for (constraints, expected) in cases {
        let mut rig = Rig::new();
        let reply = rig.ask(hold(1, constraints.clone()));
        match expected {
            Ok(mode) => assert_eq!(held_mode(reply), mode, "{constraints:?}"),
            Err(code) => {
                assert_eq!(refusal(reply).0, code, "{constraints:?}");
                assert!(rig.power().holds.is_empty() && rig.orders.is_empty());
            }
        }
    }
}

#[test]
fn a_detached_hold_must_have_an_end_and_ends_at_it() {
    let mut rig = Rig::new();
    let detached = |cookie, expires_at| {
        let hold = Hold { expires_at, attached: false, ..wanted(cookie, at_most(15.0)) };
        ControlRequest::Hold(Box::new(hold))
    };
    assert_eq!(refusal(rig.ask(detached(1, None))).0, "missing_field");
    rig.now = 100.0;
    rig.ask(detached(1, Some(Seconds(60.0))));
    rig.send(Event::ConnectionClosed { connection: USER.connection });
    assert_eq!((rig.power().holds.len(), rig.wake_at), (1, Some(160.0)));
    rig.now = 150.0;
    let renewed = rig.ask(ControlRequest::Renew { cookie: 1, ttl: Seconds(60.0) });
    assert!(matches!(renewed, Some(Reply::Held { expires_at: Some(Seconds(210.0)), .. })), "{renewed:?}");
    rig.tick(209.0);
    assert_eq!(rig.power().holds.len(), 1);
    rig.tick(210.0);
    assert!(rig.power().holds.is_empty());
    assert_eq!(rig.mode_in_force(), "25W");
    assert_eq!(refusal(rig.ask(ControlRequest::Release { cookie: 1 })).0, "unknown_hold");
    assert_eq!(refusal(rig.ask(ControlRequest::Renew { cookie: 1, ttl: Seconds(1.0) })).0, "unknown_hold");
}

#[test]
fn only_the_owner_or_an_administrator_lets_go() {
    let mut rig = Rig::new();
    let other = Client { connection: 9, uid: 1001 };
    rig.ask(hold(1, at_most(15.0)));
    rig.ask(hold(2, at_most(15.0)));
    assert_eq!(refusal(rig.ask_as(other, ControlRequest::Release { cookie: 1 })).0, "not_authorized");
    assert_eq!(
        refusal(rig.ask_as(other, ControlRequest::Renew { cookie: 1, ttl: Seconds(1.0) })).0,
        "not_authorized"
    );
    assert_eq!(rig.ask(ControlRequest::Release { cookie: 1 }), Some(Reply::Done));
    assert_eq!(rig.ask_as(ROOT, ControlRequest::Release { cookie: 2 }), Some(Reply::Done));
    assert!(rig.power().holds.is_empty());
}

#[test]
fn holds_are_limited_for_each_user_and_in_all() {
    let mut rig = Rig::new();
    let mut cookie = 0;
    for uid in 0..5 {
        for connection in 0..=holds::MOST_OF_A_USER as u64 {
            cookie += 1;
            let client = Client { connection, uid: 1000 + uid };
            let reply = rig.ask_as(client, hold(cookie, at_most(30.0)));
            let full = connection == holds::MOST_OF_A_USER as u64 || uid == 4;
            assert_eq!(
                matches!(reply, Some(Reply::Refused(Refusal { code: Code::Busy, .. }))),
                full,
                "{uid} {connection}"
            );
        }
    }
    assert_eq!(rig.power().holds.len(), holds::MOST);
}

#[test]
fn a_thousand_holds_of_dying_clients_leave_none() {
    let mut rig = Rig::new();
    let mut in_force = 0;
    for number in 0..1000 {
        rig.now += 0.01;
        let client = Client { connection: 100 + number, uid: 1000 };
        // Some die while their hold is being granted, some while it waits for another's switch, some after.
        rig.silent = number % 3 == 0;
        let limit = if number % 2 == 0 { 15.0 } else { 7.0 };
        rig.ask_as(client, hold(number, at_most(limit)));
        rig.ask_as(client, hold(10_000 + number, at_most(limit)));
        in_force += rig.power().holds.len();
        if number % 5 == 0 {
            let ticket = rig.ticket;
            rig.send(Event::ClientGone { ticket });
        }
        rig.send(Event::ConnectionClosed { connection: client.connection });
        rig.speak();
        assert!(rig.power().holds.is_empty(), "{number}");
    }
    assert!(in_force > 1000, "{in_force}");
    rig.tick(1000.0);
    assert_eq!((rig.mode_in_force().as_str(), rig.journal.as_ref()), ("25W", None));
    assert!(rig.governor.power.queue.is_empty() && rig.governor.power.stage.in_flight().is_none());
}

#[test]
fn holds_wait_for_a_switch_rather_than_fail() {
    let mut rig = Rig::new();
    rig.silent = true;
    assert_eq!(rig.ask(hold(1, at_most(20.0))), None);
    assert_eq!(rig.ask(hold(2, at_least("15W"))), None, "waits for the first");
    assert!(rig.power().holds.is_empty(), "not in force before it is met");
    rig.speak();
    assert_eq!(held_mode(rig.reply_to(1)), "7W");
    assert_eq!(held_mode(rig.reply_to(2)), "15W");
    assert_eq!(rig.switches(), ["7W", "15W"]);
}

#[test]
fn a_hold_tries_the_next_mode_where_the_first_is_not_reached() {
    let mut rig = Rig::new();
    rig.outcomes.insert("7W", SwitchOutcome::RebootRequired);
    assert_eq!(held_mode(rig.ask(hold(1, at_most(20.0)))), "15W");
    assert_eq!(rig.switches(), ["7W", "15W"]);
    let mut rig = Rig::new();
    rig.outcomes.insert("7W", SwitchOutcome::RebootRequired);
    rig.outcomes.insert("15W", SwitchOutcome::NotApplied);
    assert_eq!(refusal(rig.ask(hold(1, at_most(20.0)))).0, "not_reached");
    assert!(rig.power().holds.is_empty());
}

#[test]
fn a_user_may_not_break_a_hold_but_may_switch_within_it() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    let (code, message) = refusal(rig.ask_as(ROOT, set("MAXN")));
    assert_eq!(code, "busy");
    assert!(message.contains("app1"), "{message}");
    assert_eq!(switched(rig.ask(set("15W"))).0, SwitchOutcome::Applied);
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["7W", "15W", "settle"]);
    assert_eq!(rig.mode_in_force(), "15W", "what a user settled during the hold stays after it");
}

#[test]
fn the_mode_of_a_hold_becomes_a_users_own_when_asked_for() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    assert_eq!(switched(rig.ask(set("7W"))), (SwitchOutcome::Applied, None));
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["7W", "settle"]);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("7W", ModeCause::User));
}

#[test]
fn a_change_taken_back_during_a_hold_goes_back_to_the_holds_mode() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    rig.ask(set_for("15W", 30.0));
    assert_eq!(rig.power().pending.unwrap().original, "7W");
    rig.ask(ControlRequest::Revert { id: None });
    assert_eq!(rig.mode_in_force(), "7W");
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.tick(1000.0);
    assert_eq!(rig.switches(), ["7W", "15W", "7W", "restore"]);
    assert_eq!(rig.mode_in_force(), "25W");
}

#[test]
fn a_hold_granted_by_an_unconfirmed_mode_is_met_after_that_was_taken_back() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 30.0));
    assert_eq!(held_mode(rig.ask(hold(1, at_most(15.0)))), "15W");
    let (code, message) = refusal(rig.ask(hold(2, at_most(7.0))));
    assert_eq!(code, "busy", "{message}");
    rig.tick(100.0);
    assert_eq!(rig.switches(), ["15W", "restore", "7W"]);
    assert!(rig.power().holds[0].satisfied);
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.tick(1000.0);
    assert_eq!(rig.mode_in_force(), "25W");
}

#[test]
fn somebody_elses_switch_is_reported_once_and_not_fought() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    rig.sample(10.0);
    rig.live = active("MAXN");
    rig.sample(11.0);
    assert_eq!(rig.power().cause, ModeCause::Hold, "one reading may be a torn one");
    rig.sample(12.0);
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("MAXN", ModeCause::External));
    assert!(!rig.power().holds[0].satisfied, "its owner is told");
    assert_eq!(rig.switches(), ["7W", "settle"], "nobody restores over it one day");
    for second in 13..60 {
        rig.sample(f64::from(second));
    }
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.sample(1000.0);
    assert_eq!(rig.switches(), ["7W", "settle"]);
    let lines = rig.logged.iter().filter(|(_, line)| line.contains("another program")).count();
    assert_eq!(lines, 1);
}

#[test]
fn a_new_hold_is_met_after_somebody_elses_switch() {
    let mut rig = Rig::new();
    rig.live = active("MAXN");
    rig.sample(11.0);
    rig.sample(12.0);
    assert_eq!(rig.power().cause, ModeCause::External);
    assert_eq!(held_mode(rig.ask(hold(1, at_most(15.0)))), "7W");
    rig.ask(ControlRequest::Release { cookie: 1 });
    rig.tick(1000.0);
    assert_eq!(rig.mode_in_force(), "MAXN", "the mode from before the hold");
}

#[test]
fn a_reading_that_was_begun_before_a_switch_ended_does_not_undo_it() {
    let mut rig = Rig::new();
    rig.now = 50.0;
    rig.ask(set("15W"));
    for _ in 0..3 {
        let mut late = state();
        late.taken_at = Seconds(49.9);
        late.power_mode = Reading::Known(active("25W"));
        rig.send(Event::Sampled(Box::new(late)));
    }
    assert_eq!((rig.mode_in_force().as_str(), rig.power().cause), ("15W", ModeCause::User));
}

#[test]
fn readings_that_fail_are_nobodys_switch() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    for second in 2..10 {
        let mut blind = state();
        blind.taken_at = Seconds(f64::from(second));
        blind.power_mode = Reading::failed("EAGAIN");
        rig.now = f64::from(second);
        rig.send(Event::Sampled(Box::new(blind)));
    }
    assert_eq!(rig.power().cause, ModeCause::Hold);
    assert_eq!(rig.switches(), ["7W"]);
}

#[test]
fn a_root_role_that_is_lost_ends_what_waits_for_it_and_is_asked_when_it_is_back() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    rig.silent = true;
    rig.ask(set("15W"));
    let lost = "the privileged helper is gone; systemctl start rooflined-actuate.socket";
    let problem =
        OrderFailure::with_hint("the privileged helper is gone", "systemctl start rooflined-actuate.socket");
    rig.send(Event::Actuator { problem: Some(problem) });
    assert_eq!(refusal(rig.reply_to(2)).0, "not_reached");
    assert_eq!(rig.power().unavailable.as_deref(), Some(lost));
    let (code, message) = refusal(rig.ask(set("15W")));
    assert_eq!(code, "control_unavailable");
    assert!(message.starts_with(lost), "{message}");
    assert_eq!(refusal(rig.ask(hold(2, at_most(7.0)))).0, "control_unavailable");
    // The connection's end undid what was not settled.
    rig.unanswered.clear();
    rig.silent = false;
    rig.live = active("25W");
    rig.journal = None;
    rig.orders.clear();
    rig.send(Event::Actuator { problem: None });
    assert_eq!(rig.orders[0], Order::Status);
    assert_eq!(rig.switches(), ["7W"], "the hold lives, so it is met again");
    assert!(rig.power().holds[0].satisfied);
    assert_eq!(rig.power().unavailable, None);
}

fn journal(target: &str, phase: SwitchPhase) -> OrderAnswer {
    OrderAnswer::Status {
        journal: Some(JournalEntry {
            boot_id: "b".into(),
            original: active("25W"),
            target: active(target),
            phase,
        }),
        recovered: Some("adopted".into()),
        now: ReadBack { mode: Some(active(target)), ..ReadBack::default() },
    }
}

#[test]
fn a_switch_that_an_earlier_run_left_unsettled_is_undone() {
    let mut rig = Rig::new();
    rig.silent = true;
    rig.send(Event::Actuator { problem: None });
    let (order, what) = rig.unanswered.pop_front().unwrap();
    assert_eq!(what, Order::Status);
    assert_eq!(rig.ask(set("7W")), None, "waits for what is found rather than failing");
    (rig.live, rig.journal) = (active("15W"), Some(active("25W")));
    rig.send(Event::OrderAnswered { order, answer: Box::new(journal("15W", SwitchPhase::Applied)) });
    assert_eq!(rig.unanswered.front().map(|(_, what)| what), Some(&Order::Restore));
    rig.speak();
    assert_eq!(rig.switches(), ["restore", "7W", "settle"]);
    assert_eq!(switched(rig.reply_to(1)).0, SwitchOutcome::Applied);
    assert!(rig.logged.iter().any(|(_, line)| line.contains("adopted")));
}

#[test]
fn the_first_order_asks_what_an_earlier_run_left_behind() {
    let mut state = state();
    state.power_mode = Reading::Known(active("25W"));
    let mut governor = Governor::new(at(1.0), orin(), state, None, Residuals::default(), &enabled());
    let request = set("15W");
    let effects = governor
        .handle(at(1.0), Event::Requested { ticket: 1, command: Command::Control { client: USER, request } });
    let orders: Vec<&Order> = (effects.iter())
        .filter_map(|effect| if let Effect::Actuate { what, .. } = effect { Some(what) } else { None })
        .collect();
    assert_eq!(orders, [&Order::Status]);
}

#[test]
fn a_switch_that_the_root_role_adopted_for_this_run_goes_on() {
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 60.0));
    rig.silent = true;
    rig.send(Event::Actuator { problem: None });
    let (order, _) = rig.unanswered.pop_front().unwrap();
    rig.send(Event::OrderAnswered { order, answer: Box::new(journal("15W", SwitchPhase::Applied)) });
    rig.speak();
    assert_eq!(rig.ask(ControlRequest::Confirm { id: 1 }), Some(Reply::Done));
    assert_eq!(rig.mode_in_force(), "15W");
}

#[test]
fn a_root_role_that_never_answers_does_not_keep_everyone_waiting_for_ever() {
    let mut rig = Rig::new();
    rig.silent = true;
    rig.ask(set("15W"));
    let limit = rig.wake_at.unwrap();
    rig.tick(limit);
    let (code, message) = refusal(rig.reply_to(1));
    assert_eq!(code, "not_reached");
    assert!(message.contains("has not answered"), "{message}");
    let late = rig.unanswered.pop_front().unwrap();
    let keep = None;
    assert_eq!(
        late.1,
        Order::SetMode { id: 1, name: "15W".into(), knob: Knob::Nvpmodel, dry_run: false, keep }
    );
    let answer = Box::new(OrderAnswer::Settled);
    rig.send(Event::OrderAnswered { order: late.0, answer });
    assert!(rig.logged.iter().any(|(_, line)| line.contains("too late")));
}

#[test]
fn disabling_control_ends_holds_and_takes_back_what_was_not_confirmed() {
    let mut rig = Rig::new();
    rig.ask(hold(1, at_most(15.0)));
    rig.send(Event::Reconfigured(Policy { control_enabled: false, ..enabled() }));
    assert!(rig.power().holds.is_empty());
    rig.tick(1000.0);
    assert_eq!(rig.mode_in_force(), "25W");
    let mut rig = Rig::new();
    rig.ask(set_for("15W", 3600.0));
    rig.send(Event::Reconfigured(Policy { control_enabled: false, ..enabled() }));
    assert_eq!((rig.mode_in_force().as_str(), rig.power().pending), ("25W", None));
}

#[test]
fn a_machine_without_modes_says_so_and_names_the_remedy() {
    let mut governor = Governor::new(at(1.0), board(), state(), None, Residuals::default(), &enabled());
    let request = set("15W");
    let effects = governor
        .handle(at(1.0), Event::Requested { ticket: 1, command: Command::Control { client: ROOT, request } });
    let [Effect::Reply { reply: Reply::Refused(refusal), .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(refusal.code, Code::ControlUnavailable);
    assert!(refusal.hint.contains("clock_modes"), "{refusal}");
    assert!(governor.snapshot().power.unavailable.is_some());
}

#[test]
fn locked_clocks_stay_shown_where_nothing_reads_them() {
    let mut machine = orin();
    let Reading::Known(modes) = &mut machine.modes else { panic!() };
    modes.modes[1].knob = Knob::LockedClocks { min: Hertz(0.0), max: Hertz(612e6) };
    let mut rig = Rig::new();
    rig.governor.board = machine;
    rig.ask(set("15W"));
    let mut blind = state();
    blind.taken_at = Seconds(5.0);
    blind.power_mode = Reading::absent("NVML does not tell");
    rig.now = 5.0;
    rig.send(Event::Sampled(Box::new(blind)));
    assert_eq!(rig.mode_in_force(), "15W");
}

#[test]
fn a_hold_on_power_goes_by_the_worst_load_and_not_by_the_mean_or_the_name() {
    let ask = |watts| {
        let mut rig = Rig::calibrated(&enabled(), |record| {
            // In 7W loads were seen that drew 13.5 W; their mean was 11 W.
            let seen = record.regimes.iter_mut().find(|regime| regime.key == "7W").unwrap();
            let power = seen.power.as_mut().unwrap();
            (power.mean, power.peak) = (Watts(11.0), Watts(13.5));
            // Nothing was measured in 15W.
            record.regimes.retain(|regime| regime.key != "15W");
        });
        rig.ask(hold(1, at_most(watts)))
    };
    for watts in [7.0, 12.0, 13.0, 15.0] {
        let (code, message) = refusal(ask(watts));
        assert_eq!(code, "unsatisfiable", "{watts} W: {message}");
    }
    assert_eq!(held_mode(ask(18.0)), "7W", "13.5 W, and 30 % for loads that were not held");
}
