//! What holds after every event, in whatever order they come: requests, answers of every kind, late or never, a lost
//! helper, readings, somebody else's switches, other policies and the time that passes.

use proptest::prelude::*;

use super::*;
use rooflined_predict::snapshot::Automatic;

#[derive(Debug, Clone)]
enum Step {
    Ask(Client, ControlRequest),
    Answer(Answer),
    Sample,
    /// Somebody else switches, past this program.
    Meddle(&'static str),
    Pass(f64),
    /// The daemon calls at the time it was asked to.
    Wake,
    Close(u64),
    /// The client of the last request goes.
    Leave,
    Lose {
        recovers: bool,
    },
    Find,
    Reconfigure {
        enabled: bool,
        auto: Automatic,
    },
}

/// What comes of the oldest order that has no answer.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Done,
    Not(SwitchOutcome),
    Failed,
    Nonsense,
}

const NAMES: [&str; 4] = ["MAXN", "15W", "25W", "7W"];
const CONNECTIONS: u64 = 3;
const COOKIES: u64 = 5;

fn constraints() -> impl Strategy<Value = HoldConstraints> {
    prop_oneof![
        prop::sample::select(vec![6.0, 7.0, 15.0, 20.0, 30.0]).prop_map(at_most),
        prop::sample::select(NAMES.to_vec()).prop_map(at_least),
    ]
}

fn request() -> impl Strategy<Value = ControlRequest> {
    let mode = || prop::sample::select(NAMES.to_vec());
    let ttl = || prop::option::of(1.0..100.0).prop_map(|ttl| ttl.map(Seconds));
    let holds = (0..COOKIES, constraints(), ttl()).prop_map(|(cookie, constraints, ttl)| {
        let hold = Hold { expires_at: ttl, attached: ttl.is_none(), ..wanted(cookie, constraints) };
        ControlRequest::Hold(Box::new(hold))
    });
    prop_oneof![
        3 => mode().prop_map(set),
        3 => (mode(), 1.0..60.0).prop_map(|(mode, seconds)| set_for(mode, seconds)),
        1 => mode().prop_map(dry),
        2 => (1_u64..4).prop_map(|id| ControlRequest::Confirm { id }),
        2 => Just(ControlRequest::Revert { id: None }),
        6 => holds,
        1 => (0..COOKIES).prop_map(|cookie| ControlRequest::Renew { cookie, ttl: Seconds(20.0) }),
        3 => (0..COOKIES).prop_map(|cookie| ControlRequest::Release { cookie }),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let outcomes = vec![SwitchOutcome::NotApplied, SwitchOutcome::RebootRequired, SwitchOutcome::Refused];
    prop_oneof![
        12 => Just(Answer::Done),
        2 => prop::sample::select(outcomes).prop_map(Answer::Not),
        2 => Just(Answer::Failed),
        1 => Just(Answer::Nonsense),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let client = (0..CONNECTIONS).prop_map(|connection| Client { connection, uid: 1000 });
    let policy = (prop::bool::weighted(0.7), any::<bool>());
    prop_oneof![
        12 => (client, request()).prop_map(|(client, request)| Step::Ask(client, request)),
        14 => answer().prop_map(Step::Answer),
        5 => Just(Step::Sample),
        1 => prop::sample::select(NAMES.to_vec()).prop_map(Step::Meddle),
        4 => (0.1..20.0).prop_map(Step::Pass),
        5 => Just(Step::Wake),
        1 => (0..CONNECTIONS).prop_map(Step::Close),
        1 => Just(Step::Leave),
        1 => any::<bool>().prop_map(|recovers| Step::Lose { recovers }),
        2 => Just(Step::Find),
        1 => policy.prop_map(|(enabled, switches)| Step::Reconfigure {
            enabled,
            auto: if switches { Automatic::Switch } else { Automatic::Advise },
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..80)
}

/// A machine to which anything may happen.
struct World {
    rig: Rig,
    /// When the last order was sent.
    asked_at: f64,
    lost: bool,
    /// Something went wrong that may leave a mode unsettled, for the helper to undo one day.
    spoilt: bool,
    unheard: Vec<Ticket>,
}

impl World {
    fn new() -> Self {
        let mut rig = Rig::new();
        rig.silent = true;
        Self { rig, asked_at: 0.0, lost: false, spoilt: false, unheard: Vec::new() }
    }

    fn send(&mut self, event: Event) {
        let before = self.rig.unanswered.len();
        let given_up = before > 0 && self.rig.now >= self.asked_at + 180.0;
        self.rig.send(event);
        let sent = self.rig.unanswered.len() - before;
        assert!(sent < 2 && (before == 0 || sent == 0 || given_up), "{:?}", self.rig.unanswered);
        if given_up {
            self.rig.unanswered.drain(..before);
            self.spoilt = true;
        }
        if sent > 0 {
            self.asked_at = self.rig.now;
        }
    }

    fn ask(&mut self, client: Client, request: ControlRequest) {
        self.rig.ticket += 1;
        let ticket = self.rig.ticket;
        self.unheard.push(ticket);
        self.send(Event::Requested { ticket, command: Command::Control { client, request } });
    }

    fn answer(&mut self, how: Answer) {
        let Some((order, what)) = self.rig.unanswered.pop_front() else { return };
        // What is sent to a helper that is gone fails at once.
        let how = if self.lost { Answer::Failed } else { how };
        self.spoilt |= !matches!(how, Answer::Done);
        let answer = match (how, what) {
            (Answer::Done, Order::Status) => self.status(),
            (Answer::Done, what) => self.rig.answer(what),
            (Answer::Not(outcome), Order::SetMode { name, .. }) => {
                OrderAnswer::Switched { report: self.rig.report(active(&name), outcome) }
            }
            (Answer::Not(outcome), Order::Restore) => {
                let original = self.rig.journal.clone().unwrap_or_else(|| self.rig.live.clone());
                OrderAnswer::Switched { report: self.rig.report(original, outcome) }
            }
            (Answer::Nonsense, Order::Status) => OrderAnswer::Settled,
            (Answer::Nonsense, _) => self.status(),
            (Answer::Failed | Answer::Not(_), _) => {
                OrderAnswer::Failed(OrderFailure::with_hint("it hangs", "wait"))
            }
        };
        self.send(Event::OrderAnswered { order, answer: Box::new(answer) });
    }

    fn status(&self) -> OrderAnswer {
        let entry = |original: &ActiveMode| JournalEntry {
            boot_id: "b".into(),
            original: original.clone(),
            target: self.rig.live.clone(),
            phase: SwitchPhase::Applied,
        };
        OrderAnswer::Status {
            journal: self.rig.journal.as_ref().map(entry),
            recovered: None,
            now: ReadBack { mode: Some(self.rig.live.clone()), ..ReadBack::default() },
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask(client, request) => self.ask(client, request),
            Step::Answer(how) => self.answer(how),
            Step::Sample => self.sample(),
            Step::Meddle(name) => self.rig.live = active(name),
            Step::Pass(seconds) => {
                self.rig.now += seconds;
                self.sample();
            }
            Step::Wake => {
                if let Some(wake_at) = self.rig.wake_at {
                    self.rig.now = self.rig.now.max(wake_at);
                    self.send(Event::Tick);
                }
            }
            Step::Close(connection) => {
                self.unheard.clear();
                self.send(Event::ConnectionClosed { connection });
            }
            Step::Leave => {
                let ticket = self.rig.ticket;
                self.unheard.retain(|other| *other != ticket);
                self.send(Event::ClientGone { ticket });
            }
            Step::Lose { recovers } => self.lose(recovers),
            Step::Find => {
                self.lost = false;
                self.send(Event::Actuator { problem: None });
            }
            Step::Reconfigure { enabled: control_enabled, auto } => {
                self.send(Event::Reconfigured(Policy { control_enabled, auto, ..enabled() }));
            }
        }
    }

    /// The helper's connection ends; as a rule it undoes what is not settled.
    fn lose(&mut self, recovers: bool) {
        self.lost = true;
        self.spoilt |= !recovers;
        self.rig.unanswered.clear();
        if recovers && let Some(original) = self.rig.journal.take() {
            self.rig.live = original;
        }
        self.send(Event::Actuator { problem: Some("the helper is gone; start it".into()) });
    }

    fn sample(&mut self) {
        let mut state = state();
        state.taken_at = Seconds(self.rig.now);
        state.power_mode = Reading::Known(self.rig.live.clone());
        self.send(Event::Sampled(Box::new(state)));
    }

    /// Everybody goes, the helper works again, and time passes.
    fn calm_down(&mut self) {
        self.take(Step::Find);
        self.answer_all();
        for connection in 0..CONNECTIONS {
            self.send(Event::ConnectionClosed { connection });
        }
        for _ in 0..40 {
            self.answer_all();
            self.take(Step::Pass(10.0));
            self.take(Step::Wake);
        }
    }

    fn answer_all(&mut self) {
        while !self.rig.unanswered.is_empty() {
            self.answer(Answer::Done);
        }
    }

    fn check(&self) {
        let power = self.rig.power();
        for hold in &power.holds {
            assert_eq!(hold.satisfied, hold.unmet.is_none(), "{hold:?}");
        }
        let stage = &self.rig.governor.power.stage;
        let comes_by = |due: f64| self.rig.wake_at.is_some_and(|wake_at| wake_at <= due);
        assert_eq!(stage.in_flight().is_some(), !self.rig.unanswered.is_empty(), "{stage:?}");
        match stage {
            Stage::InFlight(order) => assert!(comes_by(order.deadline().get()), "waited for for ever"),
            Stage::Idle(_) if self.lost => {}
            Stage::Idle(Standing::Pending(pending)) => {
                assert!(comes_by(pending.confirmation.deadline.get()), "{pending:?}");
                assert!(NAMES.contains(&pending.confirmation.original.as_str()), "{pending:?}");
            }
            Stage::Idle(Standing::Provisional(_)) => {
                assert!(!power.holds.is_empty() || self.rig.wake_at.is_some(), "never gone back from");
            }
            Stage::Idle(Standing::Settled) => {}
        }
        assert_eq!(power.pending.is_some(), stage.pending().is_some());
        for ticket in 1..=self.rig.ticket {
            self.rig.reply_to(ticket);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_there_is_one_order_at_a_time_and_a_way_back(steps in steps()) {
        let mut world = World::new();
        world.check();
        for step in steps {
            world.take(step);
            world.check();
        }
    }

    #[test]
    fn after_the_last_hold_the_settled_mode_is_in_force_and_everyone_was_answered(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.calm_down();
        world.check();
        let power = &world.rig.governor.power;
        prop_assert!(matches!(power.stage, Stage::Idle(Standing::Settled)), "{:?}", power.stage);
        prop_assert!(power.queue.is_empty() && power.holds.active.is_empty());
        prop_assert!(world.spoilt || world.rig.journal.is_none(), "{:?} is not settled", world.rig.live);
        for ticket in world.unheard {
            prop_assert!(world.rig.reply_to(ticket).is_some(), "{} waits for ever", ticket);
        }
    }
}
