//! A server that has become slower than expected: the daemon says why, and it is printed once until it is over.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Median, Skip, Subject, learned, observation};
use crate::explain::evidence;
use rooflined_api::{ObservationRequest, RunEvidence};
use rooflined_client::Client;

/// Time over which the process is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Whether the last median was slow.
#[derive(Debug, Default)]
pub struct Degraded {
    is_slow: bool,
}

impl Degraded {
    /// Leaves the reason only where it begins here.
    pub fn keep_first(&mut self, reason: &mut Option<String>) {
        let was_slow = std::mem::replace(&mut self.is_slow, reason.is_some());
        if was_slow {
            *reason = None;
        }
    }
}

/// What is seen of the server's process now; `None` where it cannot be seen.
pub async fn look(subject: &Subject) -> Option<RunEvidence> {
    let process = subject.process.as_ref()?;
    let (before, began) = (evidence::Counters::read(process).ok()?, Instant::now());
    sleep(LOOK).await;
    let after = evidence::Counters::read(process).ok()?;
    Some(evidence::of(process, (&before, &after), began.elapsed().as_secs_f64()))
}

/// Reports a median that others disturbed: nothing is learned from it, but the daemon notices where that lasts. Watching goes on
/// whatever it answers.
pub async fn report(client: &mut Client, subject: &Subject, median: &Median, why: Skip) {
    let Ok(stranger) = subject.server.stranger() else { return };
    let seen = look(subject).await.unwrap_or_default();
    let seen = RunEvidence { disturbed: Some(why.reason().to_owned()), ..seen };
    let context_tokens = median.context_tokens.or(subject.context_tokens);
    if context_tokens.is_some() {
        let median = Median { context_tokens, ..median.clone() };
        let observation = ObservationRequest { seen: Some(seen), ..observation(subject, &median) };
        drop(learned(client, &observation, stranger).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_printed_once_until_the_server_recovers() {
        let mut degraded = Degraded::default();
        let printed = [None, Some("a"), Some("b"), Some("c"), None, Some("d"), Some("e")].map(|reason| {
            let mut reason = reason.map(ToOwned::to_owned);
            degraded.keep_first(&mut reason);
            reason
        });
        let once = |reason: &str| Some(reason.to_owned());
        assert_eq!(printed, [None, once("a"), None, None, None, once("d"), None]);
    }
}
