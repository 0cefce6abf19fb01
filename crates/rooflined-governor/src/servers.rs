//! Servers that have become slower than expected, as those who watch them report: noticed when it lasts, until it is over.

use std::collections::BTreeMap;

use super::Now;
use rooflined_core::refusal::Refusal;
use rooflined_core::units::Seconds;

/// Reports in a row that make a change a lasting one.
const LASTING: u32 = 2;
/// A server that nobody reports for so long has ended, or is watched no more.
const FORGOTTEN_AFTER: Seconds = Seconds(3600.0);
/// Slow servers that are remembered.
const MOST: usize = 16;

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
    /// Everybody is shown it.
    pub public: bool,
}

#[derive(Debug)]
struct Slow {
    reports: u32,
    why: String,
    last: Seconds,
}

/// The servers that are slow now.
#[derive(Debug, Default)]
pub struct SlowServers(BTreeMap<String, Slow>);

impl SlowServers {
    pub fn report(&mut self, now: Now, report: &ServerReport) {
        let Some(why) = report.slow.as_ref() else {
            self.0.remove(&report.server);
            return;
        };
        if self.0.len() >= MOST && !self.0.contains_key(&report.server) {
            return;
        }
        let slow = self.0.entry(report.server.clone()).or_insert_with(|| Slow {
            reports: 0,
            why: why.clone(),
            last: now.boottime,
        });
        slow.reports = slow.reports.saturating_add(1);
        slow.last = now.boottime;
        // Later its figures would only jitter.
        if slow.reports <= LASTING {
            slow.why.clone_from(why);
        }
    }

    pub fn forget_old(&mut self, now: Now) {
        self.0.retain(|_, slow| now.boottime - slow.last < FORGOTTEN_AFTER);
    }

    /// Those that have been slow for long enough to be noticed, in words.
    pub fn lasting(&self) -> Option<String> {
        let lasting = self.0.iter().filter(|(_, slow)| slow.reports >= LASTING);
        let lines: Vec<String> = lasting.map(|(server, slow)| format!("{server}: {}", slow.why)).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Now {
        Now { boottime: Seconds(seconds), unix_s: seconds }
    }

    fn report(slow: Option<&str>) -> ServerReport {
        ServerReport {
            index: 0,
            server: "llama-server on port 8080".to_owned(),
            slow: slow.map(ToOwned::to_owned),
            refusal: None,
            public: true,
        }
    }

    #[test]
    fn a_slow_server_is_noticed_when_it_lasts_and_its_words_stay_until_it_is_over() {
        let mut servers = SlowServers::default();
        let mut lines = Vec::new();
        for slow in [None, Some("a"), None, Some("b"), Some("c"), Some("d"), None] {
            servers.report(at(1.0), &report(slow));
            lines.push(servers.lasting());
        }
        let noticed = Some("llama-server on port 8080: c".to_owned());
        assert_eq!(lines, [None, None, None, None, noticed.clone(), noticed, None]);
    }

    #[test]
    fn a_server_that_nobody_reports_is_forgotten_and_not_more_than_some_are_kept() {
        let mut servers = SlowServers::default();
        for number in 0..100 {
            for _ in 0..2 {
                servers.report(at(1.0), &ServerReport { server: number.to_string(), ..report(Some("x")) });
            }
        }
        assert_eq!(servers.lasting().unwrap().split("; ").count(), MOST);
        servers.forget_old(at(3000.0));
        assert!(servers.lasting().is_some());
        servers.forget_old(at(3602.0));
        assert_eq!(servers.lasting(), None);
    }
}
