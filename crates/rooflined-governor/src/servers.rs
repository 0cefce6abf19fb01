//! Servers that are watched, as those who watch them report: each with its newest report. One that has become slower than expected
//! is noticed when it lasts, until it is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Now;
use rooflined_core::refusal::Refusal;
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::WatchedServer;
use serde_json::Value;

/// Reports in a row that make a change a lasting one.
const LASTING: u32 = 2;
/// A server that nobody reports for so long has ended, or is watched no more.
const FORGOTTEN_AFTER: Seconds = Seconds(3600.0);
/// Servers that are remembered for everybody, or for one user, and all of them together.
const MOST: usize = 16;
const MOST_IN_ALL: usize = 64;

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
    /// Slow reports in a row.
    slow_reports: u32,
    why: Option<String>,
    last: Seconds,
    shown: WatchedServer,
}

/// The servers that are watched now, by who is shown them and by name.
#[derive(Debug, Default)]
pub struct Servers {
    watched: BTreeMap<(Option<u32>, String), Watched>,
    /// `watched` as it is published.
    list: Arc<Vec<WatchedServer>>,
}

impl Servers {
    /// Takes in a report, and why it is not learned from.
    pub fn report(&mut self, now: Now, report: &ServerReport, refusal: Option<&Refusal>) {
        let key = (report.viewer, report.server.clone());
        let before = self.watched.remove(&key);
        self.make_room(report.viewer);
        let (known, known_why) = before.map_or((0, None), |before| (before.slow_reports, before.why));
        let slow_reports = report.slow.as_ref().map_or(0, |_| known.saturating_add(1));
        let shown = WatchedServer {
            name: report.server.clone(),
            viewer: report.viewer,
            reported_unix_s: now.unix_s,
            not_learned: refusal.map(|refusal| refusal.message.clone()),
            judged: report.judged.clone(),
        };
        // Later its figures would only jitter.
        let why = if slow_reports > LASTING { known_why } else { report.slow.clone() };
        self.watched.insert(key, Watched { slow_reports, why, last: now.boottime, shown });
        self.renew_list();
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
        let oldest = candidates.min_by(|(_, a), (_, b)| {
            (a.why.is_some()).cmp(&b.why.is_some()).then(a.last.get().total_cmp(&b.last.get()))
        });
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.watched.remove(&key);
        }
    }

    pub fn forget_old(&mut self, now: Now) {
        let before = self.watched.len();
        self.watched.retain(|_, server| now.boottime - server.last < FORGOTTEN_AFTER);
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

    /// Those shown to everybody that have been slow for long enough to be noticed, in words.
    pub fn lasting(&self) -> Option<String> {
        let lasting = self
            .watched
            .iter()
            .filter(|((viewer, _), server)| viewer.is_none() && server.slow_reports >= LASTING);
        let lines: Vec<String> = lasting
            .filter_map(|((_, name), server)| Some(format!("{name}: {}", server.why.as_ref()?)))
            .collect();
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
        for slow in [None, Some("a"), None, Some("b"), Some("c"), Some("d"), None] {
            servers.report(at(1.0), &report("llama-server on port 8080", slow), None);
            lines.push(servers.lasting());
            assert_eq!(servers.list()[0].judged, Value::from(slow), "it is shown by its newest report");
        }
        let noticed = Some("llama-server on port 8080: c".to_owned());
        assert_eq!(lines, [None, None, None, None, noticed.clone(), noticed, None]);
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
        assert_eq!(list.len(), MOST_IN_ALL);
        assert_eq!(list.iter().filter(|server| server.viewer.is_none()).count(), 1);
        assert!(list.iter().filter(|server| server.viewer == Some(99)).count() == MOST);
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
