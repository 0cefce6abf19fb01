//! A server that has become slower than predicted: said once, with the cause, until it is as predicted again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Observed, Process, Subject};
use crate::explain::{causes, evidence};
use rooflined_api::{ExplainRequest, ObservationRequest, RunEvidence};
use rooflined_client::Client;

/// Time over which the process is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Whether it was said already.
#[derive(Debug, Default)]
pub struct Degraded {
    is_slow: bool,
}

impl Degraded {
    /// Whether `observed` is the first median below the interval of its prediction.
    pub fn begins_with(&mut self, observed: &Observed) -> bool {
        let is_slow = observed.predicted.is_some_and(|predicted| observed.tokens_per_s() < predicted.low);
        let was_slow = std::mem::replace(&mut self.is_slow, is_slow);
        is_slow && !was_slow
    }
}

/// Why `observation` is slow, in words; `None` where the daemon does not tell.
pub async fn cause(
    client: &mut Client,
    subject: &Subject,
    observation: ObservationRequest,
) -> Option<String> {
    let seen = match &subject.process {
        Some(process) => look(process).await?,
        None => RunEvidence::default(),
    };
    let request = ExplainRequest {
        workload: observation.workload,
        engine: observation.engine,
        tokens_per_s: observation.tokens_per_s,
        seen: Some(seen),
        ..ExplainRequest::default()
    };
    let answer = causes::ask(client, &request).await.ok()?;
    let first = answer.causes.first().map(|cause| format!("{}; {}", cause.what, cause.fix));
    Some(first.unwrap_or(answer.reason))
}

async fn look(process: &Process) -> Option<RunEvidence> {
    let (before, began) = (evidence::Counters::read(process).ok()?, Instant::now());
    sleep(LOOK).await;
    let after = evidence::Counters::read(process).ok()?;
    Some(evidence::of(process, (&before, &after), began.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::super::{Median, Outcome};
    use super::*;
    use rooflined_api::EstimateAnswer;

    fn observed(rate: f64) -> Observed {
        let step_s = 1.0 / rate;
        let median = Median {
            batch: 1,
            context_tokens: Some(1),
            step_s,
            step_range_s: (step_s, step_s),
            windows: 3,
            steps: 300,
            seconds: 9.0,
            power_w: None,
            threads: None,
        };
        let predicted = Some(EstimateAnswer { value: 90.0, low: 80.0, high: 100.0 });
        Observed {
            median,
            threads: None,
            power_w: None,
            predicted,
            outcome: Outcome::Learned,
            degraded: None,
        }
    }

    #[test]
    fn a_slow_server_is_slow_once_until_it_recovers() {
        let mut degraded = Degraded::default();
        let told: Vec<bool> = [90.0, 50.0, 50.0, 60.0, 85.0, 50.0, 40.0]
            .map(|rate| degraded.begins_with(&observed(rate)))
            .to_vec();
        assert_eq!(told, [false, true, false, false, false, true, false]);
    }
}
