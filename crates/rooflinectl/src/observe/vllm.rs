//! vLLM: two looks at `/metrics`.
//!
//! `inter_token_latency_seconds` (before 0.11 `time_per_output_token_seconds`) takes a value for every token after the first
//! of a sequence, so its sum over its count is the time of a step. Context is what the cache holds, shared by the sequences.

use std::collections::BTreeSet;

use super::prometheus::samples;
use super::window::{Instant, Skip, Window};

/// Counts that have to agree may differ by this much: the scrape is no instant.
const AGREEMENT_RATIO: f64 = 0.02;

/// One look.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    pub at: Instant,
    /// Labels of engines: one for each data-parallel rank.
    engines: BTreeSet<String>,
    started_s: Option<f64>,
    running: f64,
    waiting: f64,
    prompt_tokens: f64,
    generated_tokens: f64,
    preemptions: f64,
    drafts: f64,
    /// Sum and count of times between tokens.
    between_tokens_s: (f64, f64),
    iterations: f64,
    /// Tokens that the cache holds; `None` where its size is not told.
    cached_tokens: Option<f64>,
    /// As the server names it: `auto`, `fp8`, …
    pub cache_dtype: Option<String>,
}

impl Poll {
    /// What `/metrics` answered; `None` where it lacks what is needed, as with `--disable-log-stats`.
    pub fn read(at: Instant, page: &str) -> Option<Self> {
        let samples = samples(page);
        let value = |names: &[&str]| -> Option<f64> {
            names.iter().find_map(|name| {
                let mut found =
                    samples.iter().filter(|sample| sample.name.strip_prefix("vllm:") == Some(name));
                let first = found.next()?.value;
                Some(found.fold(first, |sum, sample| sum + sample.value))
            })
        };
        let config = samples
            .iter()
            .find(|sample| sample.name == "vllm:cache_config_info")
            .map(|sample| &sample.labels);
        let label = |key: &str| config.and_then(|labels| labels.get(key)).copied();
        let tokens = |key: &str| label(key).and_then(|text| text.parse::<f64>().ok());
        let used = value(&["kv_cache_usage_perc", "gpu_cache_usage_perc"]);
        let cached_tokens = || Some(used? * tokens("num_gpu_blocks")? * tokens("block_size")?);
        let between = |end: &str| {
            let names = ["inter_token_latency_seconds", "time_per_output_token_seconds"];
            names.iter().find_map(|name| value(&[format!("{name}_{end}").as_str()]))
        };
        Some(Self {
            at,
            engines: samples
                .iter()
                .filter_map(|sample| sample.labels.get("engine").map(|engine| (*engine).to_owned()))
                .collect(),
            started_s: samples
                .iter()
                .find(|sample| sample.name == "process_start_time_seconds")
                .map(|sample| sample.value),
            running: value(&["num_requests_running"])?,
            waiting: value(&["num_requests_waiting"])?,
            prompt_tokens: value(&["prompt_tokens_total"])?,
            generated_tokens: value(&["generation_tokens_total"])?,
            preemptions: value(&["num_preemptions_total"]).unwrap_or(0.0),
            drafts: value(&["spec_decode_num_drafts_total"]).unwrap_or(0.0),
            between_tokens_s: (between("sum")?, between("count")?),
            iterations: value(&["iteration_tokens_total_count"])?,
            cached_tokens: cached_tokens(),
            cache_dtype: label("cache_dtype").map(ToOwned::to_owned),
        })
    }

    /// Several engines behind one page cannot be told apart.
    pub fn engines(&self) -> usize {
        self.engines.len()
    }

    /// Whether anything is generated.
    pub fn is_busy(&self) -> bool {
        self.running > 0.0
    }
}

/// The window between two looks.
///
/// # Errors
/// Why it is missing.
pub fn window(before: &Poll, after: &Poll) -> Result<Window, Skip> {
    let grown = |counter: fn(&Poll) -> f64| counter(after) - counter(before);
    let generated = grown(|look| look.generated_tokens);
    let count = grown(|look| look.between_tokens_s.1);
    let iterations = grown(|look| look.iterations);
    if before.started_s != after.started_s || [generated, count, iterations].iter().any(|grown| *grown < 0.0)
    {
        return Err(Skip::Restarted);
    }
    if !before.is_busy() && !after.is_busy() && generated == 0.0 {
        return Err(Skip::Idle);
    }
    if grown(|look| look.drafts) != 0.0 {
        return Err(Skip::Speculation);
    }
    if grown(|look| look.prompt_tokens) != 0.0 {
        return Err(Skip::Prompt);
    }
    if before.waiting != 0.0 || after.waiting != 0.0 || grown(|look| look.preemptions) != 0.0 {
        return Err(Skip::Queued);
    }
    if before.running != after.running {
        return Err(Skip::BatchVaried);
    }
    let batch = before.running;
    let agree = |one: f64, other: f64| (one - other).abs() <= AGREEMENT_RATIO * one.max(other);
    // A prompt that is read in chunks moves its counter only at its end; the iterations show it.
    if !agree(count, generated) || !agree(generated, batch * iterations) {
        return Err(if count < batch * iterations { Skip::Prompt } else { Skip::Inconsistent });
    }
    let seconds = before.at.until(after.at)?;
    let step_s = grown(|look| look.between_tokens_s.0) / count;
    let context =
        before.cached_tokens.zip(after.cached_tokens).map(|(was, is)| f64::midpoint(was, is) / batch);
    let whole = |value: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts, checked to be positive"
        )]
        let whole = value.round().clamp(0.0, 1e15) as u64;
        whole
    };
    Window::new(whole(batch), context.map(whole), whole(iterations), seconds, step_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page after `steps` steps of 10 ms of `batch` sequences.
    fn page(batch: u64, steps: u64, change: &[(&str, &str)]) -> String {
        let tokens = batch * steps;
        let mut page = format!(
            "# TYPE vllm:num_requests_running gauge\n\
             vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} {batch}\n\
             vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} 0\n\
             vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 0.25\n\
             vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"auto\",num_gpu_blocks=\"1000\"}} 1.0\n\
             vllm:prompt_tokens_total{{engine=\"0\",model_name=\"m\"}} 512\n\
             vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {tokens}\n\
             vllm:num_preemptions_total{{engine=\"0\",model_name=\"m\"}} 0\n\
             vllm:inter_token_latency_seconds_sum{{engine=\"0\",model_name=\"m\"}} {}\n\
             vllm:inter_token_latency_seconds_count{{engine=\"0\",model_name=\"m\"}} {tokens}\n\
             vllm:iteration_tokens_total_count{{engine=\"0\",model_name=\"m\"}} {steps}\n\
             process_start_time_seconds 1.7e9\n",
            0.01 * tokens as f64,
        );
        for (from, to) in change {
            assert!(page.contains(from), "{from}");
            page = page.replace(from, to);
        }
        page
    }

    fn look(at_s: f64, page: &str) -> Poll {
        Poll::read(Instant { at_s, reply_s: 0.001 }, page).unwrap()
    }

    #[test]
    fn the_time_between_tokens_is_a_step_and_the_cache_is_shared() {
        let window = window(&look(0.0, &page(4, 100, &[])), &look(2.0, &page(4, 300, &[]))).unwrap();
        // 0.25 x 1000 blocks x 16 tokens over 4 sequences.
        assert_eq!((window.batch, window.context_tokens, window.steps), (4, Some(1000), 200));
        assert!((window.step_s - 0.01).abs() < 1e-9);
    }

    #[test]
    fn older_names_are_read_too() {
        let old = [
            ("inter_token_latency", "time_per_output_token"),
            ("vllm:kv_cache_usage", "vllm:gpu_cache_usage"),
        ];
        let window = window(&look(0.0, &page(1, 100, &old)), &look(2.0, &page(1, 300, &old))).unwrap();
        assert_eq!((window.batch, window.context_tokens), (1, Some(4000)));
    }

    #[test]
    fn what_is_no_steady_decoding_is_named() {
        let then = |page: String| {
            let before = look(0.0, &super::tests::page(4, 100, &[]));
            window(&before, &look(2.0, &page)).and_then(Window::long_enough)
        };
        assert_eq!(then(page(4, 120, &[])), Err(Skip::TooShort));
        assert_eq!(then(page(3, 300, &[])), Err(Skip::BatchVaried));
        assert_eq!(then(page(4, 50, &[])), Err(Skip::Restarted));
        assert_eq!(then(page(4, 300, &[("1.7e9", "1.8e9")])), Err(Skip::Restarted));
        assert_eq!(then(page(4, 300, &[("} 512", "} 900")])), Err(Skip::Prompt));
        assert_eq!(
            then(page(
                4,
                300,
                &[(
                    "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0",
                    "vllm:num_requests_waiting 2"
                )]
            )),
            Err(Skip::Queued)
        );
        // A chunked prefill took iterations of its own.
        assert_eq!(
            then(page(4, 300, &[("_total_count{engine=\"0\",model_name=\"m\"} 300", "_total_count 340")])),
            Err(Skip::Prompt)
        );
        let idle = page(0, 300, &[]);
        assert_eq!(window(&look(0.0, &idle), &look(2.0, &idle)), Err(Skip::Idle));
        let drafts = page(4, 300, &[]) + "vllm:spec_decode_num_drafts_total 5\n";
        assert_eq!(then(drafts), Err(Skip::Speculation));
    }

    #[test]
    fn a_page_without_statistics_is_none() {
        let at = Instant { at_s: 0.0, reply_s: 0.0 };
        assert_eq!(Poll::read(at, "process_start_time_seconds 1.7e9\n"), None);
        let two = page(4, 1, &[]) + "vllm:num_requests_running{engine=\"1\"} 1\n";
        assert_eq!(look(0.0, &two).engines(), 2);
    }
}
