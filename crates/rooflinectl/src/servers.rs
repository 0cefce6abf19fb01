//! `servers`: what the daemon knows of the inference servers that somebody watches.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Context;
use super::failure::Failure;
use super::show::mark_simulated;
use super::table::{Column, Table};
use super::words;
use rooflined_api::{ServerEntry, ServersAnswer};

pub async fn run(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/servers").await?;
    context.printer.answer("servers", &answer, || Ok(render(&answer.parse()?)))
}

const COLUMNS: [Column<ServerEntry>; 9] = [
    ("server", |of| Some(words::printable(&of.server))),
    ("model", |of| of.judged.model.as_deref().map(words::printable)),
    ("format", |of| of.judged.format.clone()),
    (">batch", |of| Some(of.judged.batch.unwrap_or(1).to_string())),
    (">measured", |of| Some(words::rate(of.judged.explained.measured_tokens_per_s))),
    (">expected", |of| Some(words::rate(of.judged.explained.expected_tokens_per_s.value))),
    ("verdict", |of| Some(of.judged.explained.verdict.replace('_', " "))),
    ("learned", |of| Some(if of.not_learned.is_none() { "yes" } else { "no" }.to_owned())),
    (">seen", |of| Some(format!("{} ago", words::time(age_s(of))))),
];

fn age_s(entry: &ServerEntry) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs_f64() - entry.reported_at_unix_s).max(0.0)
}

/// The servers, and below them why those are slow that are.
fn render(answer: &ServersAnswer) -> String {
    if answer.servers.is_empty() {
        return "no server was watched in the last hour; watch one: rooflinectl observe --from 8080 --count 0\n".to_owned();
    }
    let mut text = Table::of(&answer.servers, &COLUMNS).render();
    for ServerEntry { server, not_learned, judged, .. } in &answer.servers {
        let reasons = not_learned.iter().map(|why| format!("not learned: {why}"));
        let causes = judged.explained.causes.iter().map(|cause| {
            let share = words::percent(cause.share_ratio);
            format!("{share} of the difference: {} -> {}", cause.what, cause.fix)
        });
        for line in reasons.chain(causes) {
            let _ = writeln!(text, "  {}: {}", words::printable(server), words::printable(&line));
        }
    }
    let simulated = answer.servers.iter().any(|entry| entry.judged.explained.simulated);
    mark_simulated(simulated, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_server_is_shown_with_its_cause() {
        let answer = serde_json::json!({"serial": 1, "servers": [{
            "server": "llama-server on port 8080", "reported_at_unix_s": 100.0, "shown_to": "own", "not_learned": "too slow",
            "engine": "llama.cpp", "model": "/m/x.gguf", "format": null, "batch": 2, "context_tokens": 512,
            "explained": {
                "verdict": "slower_than_expected", "reason": "r", "measured_tokens_per_s": 5.0,
                "expected_tokens_per_s": {"value": 10.0, "low": 9.0, "high": 11.0}, "expected_at": "MAXN",
                "causes": [{
                    "cause": "clock", "what": "a lower clock", "share_ratio": 0.8, "share_tokens_per_s": 4.0,
                    "without_tokens_per_s": 9.0, "certainty": "likely", "evidence": [], "fix": "enter MAXN",
                }],
                "unexplained_ratio": null, "unexplained_tokens_per_s": null, "unseen": [], "simulated": false, "serial": 1,
            },
        }]});
        let text = render(&serde_json::from_value(answer).unwrap());
        for part in
            ["llama-server on port 8080", "slower than expected", " ago", "not learned: too slow", "80"]
        {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(text.contains("a lower clock -> enter MAXN"), "{text}");
    }
}
