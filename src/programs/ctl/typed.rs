//! What is said of a request's fields, in the words of whoever typed a command: options for keys, figures with units.

use super::failure::Failure;
use super::words;
use roofline::units::{Seconds, Watts, significant};
use wire::client::ClientError;

/// Options by the field that they fill, where another name would not do.
const OPTIONS: [(&str, &str); 31] = [
    ("max_time_s", "--max-time"),
    ("max_time_per_token_s", "--max-time-per-token"),
    ("max_time_to_first_token_s", "--max-time-to-first-token"),
    ("min_tokens_per_s", "--min-tokens-per-s"),
    ("max_power_w", "--max-power"),
    ("max_memory_bytes", "--max-memory-bytes"),
    ("min_free_memory_bytes", "--min-free-memory-bytes"),
    ("max_quality_loss_ratio", "--max-quality-loss"),
    ("power_modes", "--modes"),
    ("kv_format", "--kv-format"),
    ("kv_formats", "--kv-formats"),
    ("context_tokens", "--context-tokens"),
    ("prompt_tokens", "--prompt"),
    ("output_tokens", "--output-tokens"),
    ("cached_tokens", "--cached-tokens"),
    ("chunk_tokens", "--chunk-tokens"),
    ("image_tokens", "--image-tokens"),
    ("draft_tokens", "--draft-tokens"),
    ("accepted_per_step", "--accepted-per-step"),
    ("time_s", "--time"),
    ("tokens_per_s", "--tokens-per-s"),
    ("power_w", "--power"),
    ("freedom.batch", "--batch"),
    ("freedom.formats", "--formats"),
    ("freedom.threads", "--threads"),
    ("freedom.run_s", "--run-time"),
    ("workload.batch", "--batch"),
    ("workload.format", "--format"),
    ("workload.threads", "--threads"),
    ("workload.phase", "--phase"),
    ("operating_point.power_mode", "--mode"),
];

/// Parts of a request that the command line has no word for.
const PARTS: [&str; 4] = ["workload.", "constraints.", "freedom.", "speculative."];

/// The option that fills a field, by its key or its path.
fn option(field: &str) -> Option<&'static str> {
    let named = |name: &str| OPTIONS.iter().find(|(key, _)| *key == name).map(|(_, option)| *option);
    named(field).or_else(|| {
        let bare = PARTS.iter().fold(field, |field, part| field.strip_prefix(part).unwrap_or(field));
        named(bare)
    })
}

/// The same failure in the words of the command line.
pub fn failure(failure: Failure) -> Failure {
    match failure {
        Failure::Client(ClientError::Refused { status, mut body }) => {
            body.message = said(&body.message);
            body.field = body.field.map(|field| option(&field).map_or(field, str::to_owned));
            body.hint = body.hint.map(|hint| said(&hint));
            Failure::Client(ClientError::Refused { status, body })
        }
        other => other,
    }
}

/// Options for keys: `add "prompt_tokens":512` is `add --prompt 512`.
pub fn said(text: &str) -> String {
    if let Some(limit) = of_limit(text) {
        return limit;
    }
    let mut told = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_lowercase()) {
        told.push_str(&rest[..start]);
        rest = &rest[start..];
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let key = rest[..end].trim_end_matches('.');
        let behind = &rest[key.len()..];
        // A name in somebody's path is none of ours.
        let in_path = told.ends_with('/') || behind.starts_with('/');
        match option(key).filter(|_| !in_path) {
            // What is typed has neither quotes nor a colon.
            Some(option) if told.ends_with('"') && behind.starts_with("\":") => {
                told.pop();
                told.push_str(option);
                told.push(' ');
                rest = behind[2..].trim_start();
            }
            Some(option) => {
                told.push_str(option);
                rest = behind;
            }
            None => {
                told.push_str(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    told.push_str(rest);
    told.replace(
        "ask POST /v1/predict for its time",
        "ask for its time with: rooflinectl predict attention …",
    )
}

/// A limit that is far from every candidate. The unit of a time was typed, and is not explained again.
fn of_limit(text: &str) -> Option<String> {
    let (key, rest) = text.split_once(" is ")?;
    let option = option(key)?;
    let (limit, rest) = rest.split_once(' ')?;
    let limit: f64 = limit.parse().ok()?;
    let explained = |rest: &str| {
        let what = rest.split_once(": it is in ").map_or("", |(_, unit)| unit);
        if key.ends_with("_s") && !key.ends_with("per_s") {
            String::new()
        } else {
            format!(": it is in {what}")
        }
    };
    let shown = |value: f64| match key {
        "min_tokens_per_s" => words::rate(value),
        "max_power_w" => Watts(value).to_string(),
        _ => Seconds(value).to_string(),
    };
    if let Some((_, rest)) = rest.split_once(", and the closest candidate, ") {
        let (times, rest) = rest.split_once(" times off, has ")?;
        let closest: f64 = rest.split_once(':')?.0.parse().ok()?;
        let times = significant(times.parse().ok()?);
        let (limit, closest) = (shown(limit), shown(closest));
        return Some(format!(
            "{option} is {limit}, and the closest candidate, {times} times off, has {closest}{}",
            explained(rest)
        ));
    }
    let (times, rest) = rest.split_once(", ")?.1.split_once(" times what any candidate takes")?;
    let times = significant(times.parse().ok()?);
    Some(format!("{option} is {}, {times} times what any candidate takes{}", shown(limit), explained(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_options_and_figures_have_their_units() {
        for (text, expected) in [
            (
                "max_time_s is 0.000000001 seconds, and the closest candidate, 29326 times off, has 2.93e-5: it is in \
                 seconds, and 50 ms are 0.05",
                "--max-time is 1.00 ns, and the closest candidate, 29300 times off, has 29.3 µs",
            ),
            (
                "max_time_per_token_s is 5000 seconds, 12345 times what any candidate takes: it is in seconds, and 50 ms are \
                 0.05",
                "--max-time-per-token is 5.00 ks, 12300 times what any candidate takes",
            ),
            (
                "max_power_w is 15000 watts, 600 times what any candidate takes: it is in watts, and 15000 mW are 15",
                "--max-power is 15.0 kW, 600 times what any candidate takes: it is in watts, and 15000 mW are 15",
            ),
            (
                "min_tokens_per_s is 100000 tokens a second, and the closest candidate, 5000 times off, has 2.00e1: it is in \
                 tokens a second, over the whole batch",
                "--min-tokens-per-s is 100000 /s, and the closest candidate, 5000 times off, has 20.0 /s: it is in tokens a \
                 second, over the whole batch",
            ),
            (
                "max_quality_loss_ratio is 3: it is a ratio, and three per cent are 0.03",
                "--max-quality-loss is 3: it is a ratio, and three per cent are 0.03",
            ),
            ("add \"prompt_tokens\":512", "add --prompt 512"),
            ("phase serve needs prompt_tokens", "phase serve needs --prompt"),
            ("leave freedom.threads out", "leave --threads out"),
            ("constraints.max_power_w. And so on", "--max-power. And so on"),
            ("speculative.draft_tokens: too many", "--draft-tokens: too many"),
            ("ask POST /v1/predict for its time", "ask for its time with: rooflinectl predict attention …"),
            (
                "the batch is 4 and time_series stay; µ kv_format",
                "the batch is 4 and time_series stay; µ --kv-format",
            ),
            ("/data/time_s/kv_format.gguf is gone", "/data/time_s/kv_format.gguf is gone"),
            ("", ""),
        ] {
            assert_eq!(said(text), expected);
        }
    }
}
