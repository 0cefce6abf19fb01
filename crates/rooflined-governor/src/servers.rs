//! Servers that are watched, as those who watch them report: each with its newest report. One that has become slower than expected
//! is noticed when it lasts, until it lasts that it is as expected again. Those that are noticed are stored for the next daemon of
//! the same boot.

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
/// Servers that are remembered for everybody, for one user, and for all users together.
const MOST: usize = 64;
const MOST_OF_USER: usize = 16;
const MOST_OF_USERS: usize = 64;

/// The servers that are noticed as slow, by name, and why each is.
pub type SlowServers = BTreeMap<String, String>;

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
    /// Its newest report; `None` = none since the daemon started.
    shown: Option<WatchedServer>,
    /// `None` = as fast as expected.
    slow: Option<Slow>,
    last: Seconds,
}

/// A server that was slower than expected.
#[derive(Debug, Clone)]
struct Slow {
    /// Why, in the words of the report with which it was noticed; later its figures would only jitter.
    why: String,
    is_noticed: bool,
    /// Newest reports in a row that were slow, and that were not.
    slow_reports: u32,
    fine_reports: u32,
}

impl Slow {
    /// After the next report, which says why the server is slow; `None` where it is not, or no more.
    fn after(earlier: Option<Self>, slow: Option<&String>) -> Option<Self> {
        let mut now = match (earlier, slow) {
            (Some(earlier), _) => earlier,
            (None, slow) => Self { why: slow?.clone(), is_noticed: false, slow_reports: 0, fine_reports: 0 },
        };
        let Some(why) = slow else {
            (now.slow_reports, now.fine_reports) = (0, now.fine_reports + 1);
            return (now.is_noticed && now.fine_reports < OVER).then_some(now);
        };
        (now.slow_reports, now.fine_reports) = (now.slow_reports.saturating_add(1), 0);
        if !now.is_noticed {
            now.why.clone_from(why);
            now.is_noticed = now.slow_reports >= LASTING;
        }
        Some(now)
    }
}

/// The servers that are watched now, by who is shown them and by name.
#[derive(Debug, Default)]
pub struct Servers {
    watched: BTreeMap<(Option<u32>, String), Watched>,
    /// `watched` as it is published.
    list: Arc<Vec<WatchedServer>>,
}

impl Servers {
    /// Those that an earlier daemon of this boot noticed.
    pub fn noticed_before(now: Now, slow: SlowServers) -> Self {
        let watched = slow.into_iter().take(MOST).map(|(name, why)| {
            let slow = Slow { why, is_noticed: true, slow_reports: LASTING, fine_reports: 0 };
            ((None, name), Watched { shown: None, slow: Some(slow), last: now.boottime })
        });
        Self { watched: watched.collect(), list: Arc::default() }
    }

    /// Takes in a report, and why it is not learned from.
    pub fn report(&mut self, now: Now, report: &ServerReport, refusal: Option<&Refusal>) {
        let key = (report.viewer, report.server.clone());
        let earlier = self.watched.remove(&key).and_then(|server| server.slow);
        if !self.make_room(report.viewer) {
            return;
        }
        let shown = WatchedServer {
            name: report.server.clone(),
            viewer: report.viewer,
            reported_unix_s: now.unix_s,
            not_learned: refusal.map(|refusal| refusal.message.clone()),
            judged: report.judged.clone(),
        };
        let slow = Slow::after(earlier, report.slow.as_ref());
        self.watched.insert(key, Watched { shown: Some(shown), slow, last: now.boottime });
        self.renew_list();
    }

    /// Makes room for one more of `viewer`: of too many the oldest goes, one that is as expected before a slow one. False where all
    /// are noticed as slow for everybody.
    fn make_room(&mut self, viewer: Option<u32>) -> bool {
        let count = |is_counted: &dyn Fn(Option<u32>) -> bool| {
            self.watched.keys().filter(|(other, _)| is_counted(*other)).count()
        };
        let is_full = count(&|other| other == viewer) >= viewer.map_or(MOST, |_| MOST_OF_USER);
        // What everybody is shown does not give way to what one user is.
        if !is_full && (viewer.is_none() || count(&|other| other.is_some()) < MOST_OF_USERS) {
            return true;
        }
        let gives_way = |(other, _): &(Option<u32>, String), server: &Watched| {
            let is_noticed = other.is_none() && server.slow.as_ref().is_some_and(|slow| slow.is_noticed);
            !is_noticed && if is_full { *other == viewer } else { other.is_some() }
        };
        let candidates = self.watched.iter().filter(|(key, server)| gives_way(key, server));
        let oldest = candidates.min_by(|(_, a), (_, b)| {
            a.slow.is_some().cmp(&b.slow.is_some()).then(a.last.get().total_cmp(&b.last.get()))
        });
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
        self.watched.remove(&key);
        true
    }

    pub fn forget_old(&mut self, now: Now) {
        let before = self.watched.len();
        self.watched.retain(|_, server| now.boottime - server.last < FORGOTTEN_AFTER);
        if self.watched.len() < before {
            self.renew_list();
        }
    }

    fn renew_list(&mut self) {
        self.list = Arc::new(self.watched.values().filter_map(|server| server.shown.clone()).collect());
    }

    /// All of them, for the snapshot.
    pub fn list(&self) -> Arc<Vec<WatchedServer>> {
        Arc::clone(&self.list)
    }

    /// Those shown to everybody that have been slow for long enough to be noticed.
    pub fn noticed(&self) -> SlowServers {
        let of_everybody = self.watched.iter().filter(|((viewer, _), _)| viewer.is_none());
        let slow = of_everybody.filter_map(|((_, name), server)| Some((name, server.slow.as_ref()?)));
        slow.filter(|(_, slow)| slow.is_noticed)
            .map(|(name, slow)| (name.clone(), slow.why.clone()))
            .collect()
    }

    /// The same as a sentence; `None` where there are none.
    pub fn lasting(&self) -> Option<String> {
        let lines: Vec<String> = self.noticed().iter().map(|(name, why)| format!("{name}: {why}")).collect();
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
        assert_eq!(servers.lasting().unwrap().split("; ").count(), MOST);
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
        assert_eq!(list.len(), 1 + MOST_OF_USERS);
        assert_eq!(list.iter().filter(|server| server.viewer.is_none()).count(), 1);
        assert!(list.iter().filter(|server| server.viewer == Some(99)).count() == MOST_OF_USER);
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
    fn a_server_that_was_slow_before_a_restart_is_slow_until_it_is_reported_as_expected() {
        let mut before = Servers::default();
        for _ in 0..LASTING {
            before.report(at(0.0), &report("x", Some("a neighbour")), None);
        }
        let mut servers = Servers::noticed_before(at(10.0), before.noticed());
        assert_eq!(
            (servers.lasting(), servers.list().len()),
            (before.lasting(), 0),
            "nothing is shown twice"
        );
        for reports in 1..=OVER {
            servers.report(at(11.0), &report("x", None), None);
            assert_eq!(servers.lasting().is_some(), reports < OVER);
        }
        let mut unwatched = Servers::noticed_before(at(10.0), before.noticed());
        unwatched.forget_old(at(10.0 + FORGOTTEN_AFTER.get()));
        assert_eq!(unwatched.lasting(), None);
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
