//! Servers that are watched, as those who watch them report: each with its newest report. One that has become slower than expected
//! is noticed when it lasts, until it lasts that it is as expected again. Nothing of it is stored: after a restart a server that is
//! slow is noticed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Now;
use rooflined_core::refusal::Refusal;
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::WatchedServer;
use serde_json::Value;

/// Slow reports in a row that make a server a slow one, and reports as expected in a row that end it. A server that goes to and fro
/// is slow.
const LASTING: u32 = 2;
const OVER: u32 = 3;
/// A server that nobody reports for so long has ended, or is watched no more.
const FORGOTTEN_AFTER: Seconds = Seconds(3600.0);
/// Servers that are remembered for everybody, or for one user, and all of them together.
const MOST: usize = 16;
const MOST_IN_ALL: usize = 64;
/// Slow servers that are remembered. A further one is listed and not noticed.
const MOST_SLOW: usize = 64;

/// How a server that is watched compares with what was expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerReport {
    /// Position of its observation.
    pub index: usize,
    /// Its name for people.
    pub server: String,
    /// Why it is slower than expected; `None` where it is not.
    pub slow: Option<String>,
    /// Why nothing is learned from the run: it tells of the cause and not of the machine.
    pub refusal: Option<Refusal>,
    /// The one user who is shown it; `None` = everybody is.
    pub viewer: Option<u32>,
    /// What ran and how it compares, as the interface writes it.
    pub judged: Value,
}

#[derive(Debug)]
struct Watched {
    is_slow: bool,
    last: Seconds,
    shown: WatchedServer,
}

/// A server that was slower than expected.
#[derive(Debug)]
struct Slow {
    /// Why, in the words of the report with which it was noticed; later its figures would only jitter.
    why: String,
    is_noticed: bool,
    /// Newest reports in a row that were slow, and that were not.
    slow_reports: u32,
    fine_reports: u32,
    last: Seconds,
}

impl Slow {
    /// Takes in the next report; false where it is over.
    fn goes_on(&mut self, now: Now, slow: Option<&String>) -> bool {
        self.last = now.boottime;
        let Some(why) = slow else {
            (self.slow_reports, self.fine_reports) = (0, self.fine_reports + 1);
            return self.is_noticed && self.fine_reports < OVER;
        };
        (self.slow_reports, self.fine_reports) = (self.slow_reports.saturating_add(1), 0);
        if !self.is_noticed {
            self.why.clone_from(why);
            self.is_noticed = self.slow_reports >= LASTING;
        }
        true
    }
}

/// The servers that are watched now, by who is shown them and by name.
#[derive(Debug, Default)]
pub struct Servers {
    watched: BTreeMap<(Option<u32>, String), Watched>,
    /// Of those shown to everybody the slow ones. They do not give way to others, whoever is listed.
    slow: BTreeMap<String, Slow>,
    /// `watched` as it is published.
    list: Arc<Vec<WatchedServer>>,
}

impl Servers {
    /// Takes in a report, and why it is not learned from.
    pub fn report(&mut self, now: Now, report: &ServerReport, refusal: Option<&Refusal>) {
        let key = (report.viewer, report.server.clone());
        self.watched.remove(&key);
        self.make_room(report.viewer);
        if report.viewer.is_none() {
            self.note_slow(now, &report.server, report.slow.as_ref());
        }
        let shown = WatchedServer {
            name: report.server.clone(),
            viewer: report.viewer,
            reported_unix_s: now.unix_s,
            not_learned: refusal.map(|refusal| refusal.message.clone()),
            judged: report.judged.clone(),
        };
        self.watched.insert(key, Watched { is_slow: report.slow.is_some(), last: now.boottime, shown });
        self.renew_list();
    }

    fn note_slow(&mut self, now: Now, server: &str, slow: Option<&String>) {
        let is_full = self.slow.len() >= MOST_SLOW;
        match (self.slow.get_mut(server), slow) {
            (Some(known), _) => {
                if !known.goes_on(now, slow) {
                    self.slow.remove(server);
                }
            }
            (None, Some(why)) if !is_full => {
                let first = Slow {
                    why: why.clone(),
                    is_noticed: false,
                    slow_reports: 1,
                    fine_reports: 0,
                    last: now.boottime,
                };
                self.slow.insert(server.to_owned(), first);
            }
            (None, _) => {}
        }
    }

    /// Makes room for one more of `viewer`: of too many the oldest goes, one that is as expected before a slow one.
    fn make_room(&mut self, viewer: Option<u32>) {
        let own = self.watched.keys().filter(|(other, _)| *other == viewer).count();
        let is_full = |(other, _): &(Option<u32>, String)| match own >= MOST {
            true => *other == viewer,
            // What everybody is shown does not give way to what one user is.
            false => self.watched.len() >= MOST_IN_ALL && other.is_some(),
        };
        let candidates = self.watched.iter().filter(|(key, _)| is_full(key));
        let oldest = candidates
            .min_by(|(_, a), (_, b)| a.is_slow.cmp(&b.is_slow).then(a.last.get().total_cmp(&b.last.get())));
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.watched.remove(&key);
        }
    }

    pub fn forget_old(&mut self, now: Now) {
        let before = self.watched.len();
        self.watched.retain(|_, server| now.boottime - server.last < FORGOTTEN_AFTER);
        self.slow.retain(|_, server| now.boottime - server.last < FORGOTTEN_AFTER);
        if self.watched.len() < before {
            self.renew_list();
        }
    }

    fn renew_list(&mut self) {
        self.list = Arc::new(self.watched.values().map(|server| server.shown.clone()).collect());
    }

    /// All of them, for the snapshot.
    pub fn list(&self) -> Arc<Vec<WatchedServer>> {
        Arc::clone(&self.list)
    }

    /// Those shown to everybody that have been slow for long enough to be noticed, as a sentence.
    pub fn lasting(&self) -> Option<String> {
        let noticed = self.slow.iter().filter(|(_, server)| server.is_noticed);
        let lines: Vec<String> = noticed.map(|(name, server)| format!("{name}: {}", server.why)).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Now {
        Now { boottime: Seconds(seconds), unix_s: seconds }
    }

    fn report(server: &str, slow: Option<&str>) -> ServerReport {
        ServerReport {
            index: 0,
            server: server.to_owned(),
            slow: slow.map(ToOwned::to_owned),
            refusal: None,
            viewer: None,
            judged: Value::from(slow),
        }
    }

    #[test]
    fn a_slow_server_is_noticed_when_it_lasts_and_its_words_stay_until_it_is_over() {
        let mut servers = Servers::default();
        let mut lines = Vec::new();
        for slow in
            [None, Some("a"), None, Some("b"), Some("c"), Some("d"), None, None, Some("e"), None, None, None]
        {
            servers.report(at(1.0), &report("llama-server on port 8080", slow), None);
            lines.push(servers.lasting());
            assert_eq!(servers.list()[0].judged, Value::from(slow), "it is shown by its newest report");
        }
        let noticed = Some("llama-server on port 8080: c".to_owned());
        let during = std::iter::repeat_n(&noticed, 7);
        let expected: Vec<Option<String>> =
            std::iter::repeat_n(&None, 4).chain(during).chain([&None]).cloned().collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_server_that_nobody_reports_is_forgotten_and_not_more_than_some_are_kept() {
        let mut servers = Servers::default();
        for number in 0..100 {
            for _ in 0..2 {
                servers.report(at(f64::from(number)), &report(&number.to_string(), Some("x")), None);
            }
        }
        assert_eq!(servers.lasting().unwrap().split("; ").count(), MOST_SLOW);
        assert_eq!(servers.list().len(), MOST);
        servers.forget_old(at(3000.0));
        assert!(servers.lasting().is_some());
        servers.forget_old(at(3700.0));
        assert_eq!((servers.lasting(), servers.list().len()), (None, 0));
    }

    #[test]
    fn a_slow_server_does_not_give_way_to_those_that_are_as_expected() {
        let mut servers = Servers::default();
        for _ in 0..2 {
            servers.report(at(0.0), &report("slow", Some("x")), None);
        }
        for number in 0..100 {
            servers.report(at(f64::from(number)), &report(&number.to_string(), None), None);
        }
        assert_eq!(servers.lasting().as_deref(), Some("slow: x"));
    }

    #[test]
    fn what_one_user_reports_of_own_servers_degrades_nothing_and_takes_no_room_from_others() {
        let mut servers = Servers::default();
        let of_user = |uid: u32, number: u32| ServerReport {
            viewer: Some(uid),
            ..report(&number.to_string(), Some("x"))
        };
        servers.report(at(0.0), &report("for everybody", None), None);
        for uid in 0..100 {
            for number in 0..20 {
                for _ in 0..2 {
                    servers.report(at(1.0), &of_user(uid, number), None);
                }
            }
        }
        assert_eq!(servers.lasting(), None);
        let list = servers.list();
        assert_eq!(list.len(), MOST_IN_ALL);
        assert_eq!(list.iter().filter(|server| server.viewer.is_none()).count(), 1);
        assert!(list.iter().filter(|server| server.viewer == Some(99)).count() == MOST);
    }

    /// Each server goes to and fro for a while and ends slow. Its event comes when it becomes slow, and never again.
    #[test]
    fn many_servers_that_go_to_and_fro_make_one_event_each() {
        let mut state = 316_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut servers = Servers::default();
        let (mut events, mut before) = (0, None);
        let mut report_of = |servers: &mut Servers, number: usize, slow: bool| {
            servers.report(at(1.0), &report(&format!("server {number}"), slow.then_some("x")), None);
            let now = servers.lasting();
            events += usize::from(now != before);
            before = now;
        };
        let mut fine_in_a_row = [0_u32; 40];
        for _ in 0..4000 {
            let number = usize::try_from(random(40)).unwrap();
            // What lasts as long as `OVER` is a change indeed.
            let slow = random(2) == 0 || fine_in_a_row[number] + 1 >= OVER;
            fine_in_a_row[number] = if slow { 0 } else { fine_in_a_row[number] + 1 };
            report_of(&mut servers, number, slow);
        }
        assert_eq!(events, 40);
        let lines = servers.lasting().unwrap();
        assert!((0..40).all(|number| lines.contains(&format!("server {number}: x"))), "{lines}");
    }

    #[test]
    fn a_report_that_is_not_learned_from_says_why() {
        let mut servers = Servers::default();
        let refusal = rooflined_core::refusal::Code::SlowedDown.error("a neighbour", "stop it");
        servers.report(at(7.0), &report("x", Some("y")), Some(&refusal));
        let list = servers.list();
        assert_eq!((list[0].reported_unix_s, list[0].not_learned.as_deref()), (7.0, Some("a neighbour")));
    }
}
