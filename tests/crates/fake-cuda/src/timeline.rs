//! The device's own time, where calls cost the CPU time: what it does when, and at which clock.
//!
//! Work is given in order and worked out at once, up to its end; before it begins the device idles. Between two changes
//! (the governor looks, another process has its turn, the clock dips) everything runs at one rate.

use std::collections::VecDeque;

use crate::scenario::{Governor, GovernorKind, Scenario};

/// How often devfreq looks at the load.
const POLL_S: f64 = 25e-3;
/// NVML's utilisation is that of the last sixth of a second.
const LOAD_S: f64 = 1.0 / 6.0;
/// Stretches that are remembered: more than a second of what changes most.
const REMEMBERED: usize = 10_000;

/// What a launch wants of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Demand {
    /// Before the work, at any clock.
    pub fixed_s: f64,
    /// For the bytes from DRAM, if it has all of its rate.
    pub dram_s: f64,
    /// For all else.
    pub cycles: f64,
    /// Of the SMs' rate.
    pub compute: f64,
    pub dram_bytes: u64,
}

impl Demand {
    /// Without the fixed part.
    pub fn seconds(&self, hz: f64) -> f64 {
        self.dram_s.max(self.cycles / hz)
    }
}

/// While a kernel waited for another process, the counter of its SM went on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause {
    /// After so many cycles of its own.
    pub at: u64,
    pub cycles: u64,
}

/// What a stretch of time was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    pub hz: f64,
    /// Ours, or another process's.
    pub busy: bool,
    pub throttled: bool,
    pub compute: f64,
    pub dram_bytes_per_s: f64,
}

struct Stretch {
    from_s: f64,
    now: Now,
}

/// What holds until something changes.
struct Conditions {
    hz: f64,
    throttled: bool,
    /// Another process is there and would use the SMs.
    foreign: bool,
    /// It has them now, though we want them too; and whether their counters go on.
    away: Option<bool>,
    dram: f64,
    next_s: f64,
}

pub struct Timeline {
    /// Up to here it is worked out.
    pub now_s: f64,
    hz: f64,
    looks: u64,
    /// Busy since the governor looked last.
    busy_s: f64,
    idle_from_s: f64,
    gated: bool,
    last_change_s: f64,
    cycles_avg: f64,
    request_avg: f64,
    load_avg: f64,
    past: VecDeque<Stretch>,
}

impl Timeline {
    pub fn new(scenario: &Scenario) -> Self {
        let governor = scenario.clock.governor.as_ref();
        Self {
            now_s: 0.0,
            hz: governor.map_or(scenario.clock.sm_hz, |it| it.table_hz[0]),
            looks: 0,
            busy_s: 0.0,
            idle_from_s: 0.0,
            gated: governor.is_some_and(|it| it.gate_s.is_some()),
            last_change_s: f64::NEG_INFINITY,
            cycles_avg: 0.0,
            request_avg: 0.0,
            load_avg: 0.0,
            past: VecDeque::new(),
        }
    }

    /// Lets the device idle until then; what lies before `now_s` is settled.
    pub fn idle_to(&mut self, scenario: &Scenario, to_s: f64) {
        while self.now_s < to_s {
            let here = self.conditions(scenario);
            let until_s = here.next_s.min(to_s);
            let gate = scenario.clock.governor.as_ref().and_then(|it| it.gate_s);
            if !here.foreign && gate.is_some_and(|gate_s| self.now_s - self.idle_from_s >= gate_s) {
                self.gate(scenario);
            }
            self.pass(scenario, &here, until_s, here.foreign, 0.0, 0.0);
        }
    }

    fn gate(&mut self, scenario: &Scenario) {
        let lowest = scenario.clock.governor.as_ref().map(|it| it.table_hz[0]);
        self.gated = true;
        self.hz = lowest.unwrap_or(self.hz);
        (self.cycles_avg, self.request_avg, self.load_avg) = (0.0, 0.0, 0.0);
    }

    /// Does the work from now on, and tells where its counters ran on without it.
    pub fn run(&mut self, scenario: &Scenario, demand: &Demand) -> Vec<Pause> {
        let mut fixed_s = demand.fixed_s;
        if std::mem::take(&mut self.gated) {
            fixed_s += scenario.clock.governor.as_ref().map_or(0.0, |it| it.wake_s);
        }
        let (mut left, mut pauses) = (1.0, Vec::new());
        while fixed_s > 0.0 || left > 0.0 {
            let here = self.conditions(scenario);
            if let Some(counts) = here.away {
                let cycles = ((here.next_s - self.now_s) * here.hz) as u64;
                // The counter matters between its first and its last instruction.
                if counts && left < 1.0 {
                    pauses.push(Pause { at: ((1.0 - left) * demand.cycles) as u64, cycles });
                }
                self.pass(scenario, &here, here.next_s, true, 0.0, 0.0);
                continue;
            }
            let room_s = here.next_s - self.now_s;
            if fixed_s > 0.0 {
                let step_s = fixed_s.min(room_s);
                fixed_s -= step_s;
                self.pass(scenario, &here, self.now_s + step_s, true, 0.0, 0.0);
                continue;
            }
            let whole_s = (demand.dram_s / here.dram).max(demand.cycles / here.hz);
            if whole_s <= 0.0 {
                break;
            }
            let needed_s = left * whole_s;
            let step_s = needed_s.min(room_s);
            left = if needed_s <= room_s { 0.0 } else { left - step_s / whole_s };
            let speed = demand.seconds(here.hz) / whole_s;
            let rate = demand.dram_bytes as f64 / whole_s;
            self.pass(scenario, &here, self.now_s + step_s, true, demand.compute * speed, rate);
        }
        self.idle_from_s = self.now_s;
        pauses
    }

    /// What it was like then, and the share of the time before that it was busy.
    pub fn at(&mut self, scenario: &Scenario, then_s: f64) -> (Now, f64) {
        self.idle_to(scenario, then_s);
        let here = self.conditions(scenario);
        let mut found = Now {
            hz: here.hz,
            busy: here.foreign,
            throttled: here.throttled,
            compute: 0.0,
            dram_bytes_per_s: 0.0,
        };
        let (mut busy_s, mut until_s) = (0.0, self.now_s);
        let from_s = then_s - LOAD_S;
        for stretch in self.past.iter().rev() {
            if stretch.now.busy {
                busy_s += (until_s.min(then_s) - stretch.from_s.max(from_s)).max(0.0);
            }
            if stretch.from_s <= then_s && then_s <= until_s {
                found = stretch.now;
            }
            until_s = stretch.from_s;
            if until_s < from_s {
                break;
            }
        }
        (found, (busy_s / LOAD_S).min(1.0))
    }

    fn conditions(&self, scenario: &Scenario) -> Conditions {
        let mut here = Conditions {
            hz: self.hz,
            throttled: false,
            foreign: false,
            away: None,
            dram: 1.0,
            next_s: (self.looks + 1) as f64 * POLL_S,
        };
        let throttle = scenario.clock.throttle.as_ref();
        let lasting = throttle.and_then(|it| {
            Some((crate::scenario::When { from_s: it.after_s?, for_s: None, every_s: None }, it.factor))
        });
        for (when, factor) in scenario.clock.dip.iter().map(|dip| (dip.when, dip.factor)).chain(lasting) {
            let (on, next_s) = when.at(self.now_s);
            here.next_s = here.next_s.min(next_s);
            if on {
                here.hz *= factor;
                here.throttled = true;
            }
        }
        for tenant in &scenario.tenant {
            let (on, next_s) = tenant.when.at(self.now_s);
            here.next_s = here.next_s.min(next_s);
            if !on {
                continue;
            }
            here.dram *= (1.0 - tenant.dram_share).max(0.01);
            if tenant.share <= 0.0 {
                continue;
            }
            here.foreign = true;
            let turn = crate::scenario::When {
                from_s: tenant.when.from_s,
                for_s: Some(tenant.slice_s),
                every_s: Some(tenant.slice_s / tenant.share),
            };
            let (away, next_s) = turn.at(self.now_s);
            here.next_s = here.next_s.min(next_s);
            if away {
                here.away = Some(!tenant.counters_stop);
            }
        }
        here
    }

    fn pass(
        &mut self,
        scenario: &Scenario,
        here: &Conditions,
        to_s: f64,
        busy: bool,
        compute: f64,
        dram: f64,
    ) {
        let now = Now { hz: here.hz, busy, throttled: here.throttled, compute, dram_bytes_per_s: dram };
        if self.past.back().is_none_or(|last| last.now != now) {
            self.past.push_back(Stretch { from_s: self.now_s, now });
            if self.past.len() > REMEMBERED {
                self.past.pop_front();
            }
        }
        if busy {
            self.busy_s += to_s - self.now_s;
        }
        self.now_s = to_s;
        let look_s = (self.looks + 1) as f64 * POLL_S;
        if to_s >= look_s - 1e-10 {
            self.now_s = look_s;
            self.looks += 1;
            let load = (self.busy_s / POLL_S).min(1.0);
            self.busy_s = 0.0;
            if let Some(governor) = scenario.clock.governor.as_ref().filter(|_| !self.gated) {
                self.look(governor, load);
            }
        }
    }

    fn look(&mut self, governor: &Governor, load: f64) {
        let table = &governor.table_hz;
        let (lowest, highest) = (table[0], table[table.len() - 1]);
        let step =
            |hz: f64| table.iter().position(|&known| known >= hz * (1.0 - 1e-9)).unwrap_or(table.len() - 1);
        match governor.kind {
            GovernorKind::Podgov => {
                // Load above 90 % adds a third of the highest clock; else the average of ten looks is held against
                // 70 %, weighed with 80 %, and damped by the average of the requests. 50 ms between two changes.
                self.cycles_avg = (self.cycles_avg * 10.0 + self.hz * load) / 11.0;
                if self.now_s - self.last_change_s < 0.05 - 1e-9 {
                    return;
                }
                let busyness = self.cycles_avg / self.hz;
                let (boost, damp) = if load > 0.9 {
                    (highest / 3.0, 1.0)
                } else {
                    ((0.8 * self.hz * (busyness - 0.7) / 0.7).min(highest / 3.0), 0.7)
                };
                let request = self.hz + boost;
                self.request_avg = (self.request_avg * 10.0 + request) / 11.0;
                let request = damp * request + (1.0 - damp) * self.request_avg;
                let hz = table[step(request.clamp(lowest, highest))];
                if hz != self.hz {
                    self.last_change_s = self.now_s;
                    self.hz = hz;
                }
            }
            GovernorKind::PodgovSteps => {
                // Up by four steps where the average of eight looks is above 70 %, down by one below 60 %.
                self.load_avg = (self.load_avg * 7.0 + load) / 8.0;
                let place = step(self.hz);
                self.hz = if load > 0.9 {
                    highest
                } else if self.load_avg > 0.7 {
                    table[(place + 4).min(table.len() - 1)]
                } else if load < 0.6 {
                    table[place.saturating_sub(1)]
                } else {
                    self.hz
                };
            }
            GovernorKind::Boost => {
                if load > 0.05 {
                    self.hz = table[step((self.hz + (highest - lowest) / 3.0).min(highest))];
                    self.last_change_s = self.now_s;
                } else if self.now_s - self.last_change_s > 0.5 {
                    self.hz = lowest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Dip, Host, Tenant, When};

    /// AGX Orin's clocks.
    const ORIN: [f64; 11] =
        [306e6, 408e6, 510e6, 612e6, 714e6, 816e6, 918e6, 1020e6, 1122e6, 1224e6, 1300.5e6];

    fn governed(kind: GovernorKind) -> Scenario {
        let mut scenario = Scenario { host: Some(Host::jetson()), ..Scenario::orin() };
        scenario.clock.governor = Some(Governor { kind, table_hz: ORIN.to_vec(), gate_s: None, wake_s: 0.0 });
        scenario
    }

    /// Work of a millisecond in each `period_s`, as long as `until` says no, at most ten seconds.
    fn seconds(
        timeline: &mut Timeline,
        scenario: &Scenario,
        load: f64,
        until: impl Fn(&Timeline) -> bool,
    ) -> f64 {
        let begun_s = timeline.now_s;
        while !until(timeline) && timeline.now_s < begun_s + 10.0 {
            let ends_s = timeline.now_s + 1e-3;
            if load > 0.0 {
                timeline.run(scenario, &Demand { fixed_s: 1e-3 * load, ..Demand::default() });
            }
            timeline.idle_to(scenario, ends_s);
        }
        timeline.now_s - begun_s
    }

    #[test]
    fn each_governor_takes_its_time() {
        let top = |it: &Timeline| it.hz > 1.3e9;
        let bottom = |it: &Timeline| it.hz < 0.307e9;
        for (kind, full, most, idle) in [
            (GovernorKind::Podgov, 0.06..0.11, Some(2.0..3.2), 0.5..0.8),
            (GovernorKind::PodgovSteps, 0.02..0.03, Some(0.4..0.5), 0.24..0.34),
            (GovernorKind::Boost, 0.05..0.1, None, 0.5..0.6),
        ] {
            let scenario = governed(kind);
            let mut timeline = Timeline::new(&scenario);
            let up = seconds(&mut timeline, &scenario, 1.0, top);
            // Only after a load that lasted the average takes its time to fall.
            seconds(&mut timeline, &scenario, 1.0, |it| it.now_s > 2.0);
            let down = seconds(&mut timeline, &scenario, 0.0, bottom);
            println!("{kind:?}: up in {up:.3} s, down in {down:.3} s");
            assert!(full.contains(&up) && idle.contains(&down), "{kind:?}: {up} {down}");
            let Some(most) = most else { continue };
            let mut timeline = Timeline::new(&scenario);
            let up = seconds(&mut timeline, &scenario, 0.8, top);
            println!("{kind:?}: up at 80 % in {up:.3} s");
            assert!(most.contains(&up), "{kind:?}: {up}");
        }
        // Below its target that of JetPack 6 never climbs.
        let scenario = governed(GovernorKind::Podgov);
        let mut timeline = Timeline::new(&scenario);
        assert!(seconds(&mut timeline, &scenario, 0.69, |it| it.hz > 307e6) >= 10.0);
    }

    #[test]
    fn a_clock_that_rises_meanwhile_shortens_the_work() {
        let scenario = governed(GovernorKind::PodgovSteps);
        let mut timeline = Timeline::new(&scenario);
        // 25 ms at the lowest clock, the rest at the highest.
        timeline.run(&scenario, &Demand { cycles: 306e6 * 0.025 + 1300.5e6 * 0.1, ..Demand::default() });
        assert!((timeline.now_s - 0.125).abs() < 1e-6, "{}", timeline.now_s);
    }

    #[test]
    fn a_gated_device_wakes_at_its_lowest_clock() {
        let mut scenario = governed(GovernorKind::PodgovSteps);
        if let Some(governor) = &mut scenario.clock.governor {
            (governor.gate_s, governor.wake_s) = (Some(0.1), 0.02);
        }
        let mut timeline = Timeline::new(&scenario);
        timeline.run(&scenario, &Demand { fixed_s: 0.1, ..Demand::default() });
        assert!((timeline.now_s - 0.12).abs() < 1e-9 && timeline.hz > 1.3e9);
        timeline.idle_to(&scenario, 0.5);
        timeline.run(&scenario, &Demand { cycles: 306e3, ..Demand::default() });
        assert!((timeline.now_s - 0.521).abs() < 1e-6, "{}", timeline.now_s);
    }

    #[test]
    fn another_process_takes_its_share() {
        let mut scenario = Scenario { host: Some(Host::default()), ..Scenario::orin() };
        let when = When { from_s: 0.1, for_s: Some(0.2), every_s: None };
        scenario.tenant.push(Tenant {
            pid: 1,
            when,
            share: 0.5,
            slice_s: 1e-3,
            dram_share: 0.0,
            counters_stop: false,
            bytes: 0,
        });
        let mut timeline = Timeline::new(&scenario);
        let one_s = Demand { cycles: scenario.clock.sm_hz, ..Demand::default() };
        let pauses = timeline.run(&scenario, &one_s);
        // 0.1 s of its time are lost in a hundred pauses.
        assert!((timeline.now_s - 1.1).abs() < 1e-6, "{}", timeline.now_s);
        let lost: u64 = pauses.iter().map(|pause| pause.cycles).sum();
        assert_eq!(pauses.len(), 100);
        assert!((lost as f64 / scenario.clock.sm_hz - 0.1).abs() < 1e-6);
        let (now, load) = timeline.at(&scenario, 0.2);
        assert!(now.busy && (load - 1.0).abs() < 1e-6);
        scenario.tenant[0] = Tenant { share: 0.0, dram_share: 0.2, ..scenario.tenant[0].clone() };
        let mut timeline = Timeline::new(&scenario);
        timeline.idle_to(&scenario, 0.1);
        timeline.run(&scenario, &Demand { dram_s: 0.08, ..Demand::default() });
        assert!((timeline.now_s - 0.2).abs() < 1e-6, "{}", timeline.now_s);
    }

    #[test]
    fn a_dip_is_seen_while_it_lasts() {
        let mut scenario = Scenario { host: Some(Host::default()), ..Scenario::orin() };
        let when = When { from_s: 0.2, for_s: Some(0.1), every_s: Some(1.0) };
        scenario.clock.dip.push(Dip { when, factor: 0.5 });
        let mut timeline = Timeline::new(&scenario);
        timeline.run(&scenario, &Demand { cycles: 0.45 * scenario.clock.sm_hz, ..Demand::default() });
        assert!((timeline.now_s - 0.5).abs() < 1e-6, "{}", timeline.now_s);
        assert!(timeline.at(&scenario, 0.25).0.throttled && !timeline.at(&scenario, 0.35).0.throttled);
        assert!(!timeline.at(&scenario, 0.7).0.busy);
    }
}
