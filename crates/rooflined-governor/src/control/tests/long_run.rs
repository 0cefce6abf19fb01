//! A day of a board in simulated time: what is kept of it does not grow with it.

use super::*;
use rooflined_core::board::{Load, Throttle};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_predict::learning::Observed;
use rooflined_predict::learning::report::Reporter;

const HOUR: u32 = 3600;
/// Between two readings.
const STEP: u32 = 10;

/// What happened in the day.
#[derive(Debug, Default)]
struct Counts {
    published: u32,
    switches: u32,
    replies: u32,
}

struct Day {
    rig: Rig,
    counts: Counts,
}

impl Day {
    fn send(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.rig.governor.handle(at(self.rig.now), event) {
                match effect {
                    Effect::Actuate { order, what } => {
                        self.counts.switches += u32::from(matches!(what, Order::SetMode { .. }));
                        let answer = Box::new(self.rig.answer(what));
                        events.push_back(Event::OrderAnswered { order, answer });
                    }
                    Effect::Publish(_) => self.counts.published += 1,
                    Effect::Reply { .. } => self.counts.replies += 1,
                    Effect::WakeAt(wake_at) => self.rig.wake_at = wake_at.map(Seconds::get),
                    _ => {}
                }
            }
        }
    }

    /// What all clients and the board do at one time.
    fn live(&mut self, second: u32) {
        self.rig.now = f64::from(second);
        let every = |period: u32| second.is_multiple_of(period);
        if self.rig.wake_at.is_some_and(|wake_at| wake_at <= self.rig.now) {
            self.send(Event::Tick);
        }
        let mut state = state();
        state.taken_at = Seconds(self.rig.now);
        state.power_mode = Reading::Known(self.rig.live.clone());
        let hot = second % 600 < 30;
        let evidence =
            if hot { vec![format!("the cap on the clock fell at {second} s")] } else { Vec::new() };
        state.throttle = Reading::Known(Throttle { active: hot, evidence });
        let busy = f64::from(second % 1000) / 4000.0;
        state.load =
            Reading::Known(Load { average_1m: busy, busy_ratio: Some(busy), steal_ratio: Some(0.0) });
        self.send(Event::Sampled(Box::new(state)));
        let ticket = u64::from(second) * 10;
        let client = Client { connection: u64::from(second), uid: 1000 + second / STEP % 5 };
        let control = |ticket, client, request| Event::Requested {
            ticket,
            command: Command::Control { client, request },
        };
        if every(60) {
            let terms = hold(u64::from(second), if every(120) { at_most(15.0) } else { at_least("25W") });
            self.send(control(ticket, client, terms));
        }
        // Each dies with its hold, twenty seconds later.
        if second % 60 == 20 {
            self.send(Event::ConnectionClosed { connection: u64::from(second - 20) });
        }
        if every(300) {
            let mode = if every(600) { "15W" } else { "25W" };
            let request = if every(900) { set_for(mode, 30.0) } else { set(mode) };
            self.send(control(ticket + 1, ROOT, request));
        }
        if every(120) {
            let by = Reporter { uid: client.uid, pid: Some(7), trusted: every(1200) };
            let op = Op::Gemv { n: 4096, k: 4096 };
            let time = Seconds(2e-3 + f64::from(second % 700) * 1e-6);
            let observed = Observed::Op { engine: Engine::Bare, op, format: WeightFormat::Fp32, time };
            self.send(Event::Requested {
                ticket: ticket + 3,
                command: Command::Observe { by, observations: vec![observed], servers: Vec::new() },
            });
        }
    }

    /// Length of everything that the governor keeps, written out.
    fn size(&self) -> usize {
        format!("{:?}", self.rig.governor).len()
    }
}

#[test]
fn a_day_of_switches_throttling_and_dying_clients_leaves_nothing_behind() {
    let mut day = Day { rig: Rig::new(), counts: Counts::default() };
    let mut sizes = Vec::new();
    for hour in 0..24 {
        for second in (hour * HOUR..(hour + 1) * HOUR).step_by(STEP as usize).skip(1) {
            day.live(second);
        }
        // At the end of an hour no client of a hold lives.
        sizes.push(day.size());
    }
    let Counts { published, switches, replies } = day.counts;
    assert!(published > 1000 && switches > 200 && replies > 1000);
    assert!(day.rig.power().holds.is_empty(), "{:?}", day.rig.power().holds);
    // What is learnt is bounded, and its bounds are reached within hours.
    let (early, late) = (&sizes[6..12], &sizes[18..]);
    let most = |sizes: &[usize]| sizes.iter().copied().max().unwrap_or(0);
    assert!(most(late) * 100 <= most(early) * 105, "{sizes:?}");
}
