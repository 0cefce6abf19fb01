//! The first line of an answer: what somebody wanted to know, in a sentence.

use super::input::SubjectText;
use super::options::options_for;
use super::words;
use rooflined_api::{
    AnalyzeAnswer, CandidateAnswer, EstimateAnswer, Optimism, PredictAnswer, RecommendAnswer,
    RecommendRequest, SweepAnswer, SweepRow, TilingAnswer,
};
use rooflined_core::units::{Bytes, Seconds, Watts, significant};
use rooflined_models::transformer::Phase;

/// `llama-3.1-8b q4_k_m, context 4096, decodes 14.2 tokens/s (11.9 to 16.8) on jetson-orin-nano-8gb-super at 25W; memory
/// bandwidth limits it`; or `llama-3.1-8b fp16, context 4096, DOES NOT FIT in llama.cpp: it needs 16.7 GB, and there is room for 6.67 GB`.
pub fn prediction(asked: &SubjectText, mode: Option<&str>, answer: &PredictAnswer) -> String {
    let rate = format_rate(&answer.tokens_per_s);
    let time = words::estimate(&answer.time_s, words::time);
    let many = |what: &str| match asked.batch {
        0 | 1 => String::new(),
        batch => format!(" with {batch} {what}"),
    };
    let documents = answer.documents_per_s.as_ref().zip(answer.time_per_document_s.as_ref());
    let documents = documents.map(|(rate, each)| {
        let [value, low, high] = [rate.value, rate.low, rate.high].map(significant);
        let each = words::estimate(each, words::time);
        format!("{value} documents/s ({low} to {high}){}, {each} each", many("at a time"))
    });
    let (does, how) = match asked.phase {
        _ if documents.is_some() => ("reads", documents.unwrap_or_default()),
        None => ("takes", format!("{time}{}", many("columns"))),
        Some(Phase::Decode) => ("decodes", format!("{rate}{}", many("sequences"))),
        Some(Phase::Prefill) => ("reads", format!("the prompt in {time}{}, {rate}", many("sequences"))),
        Some(Phase::Serve) => {
            let first = answer.time_to_first_token_s.as_ref();
            let first = first.map_or_else(String::new, |first| {
                format!(", the first after {}", words::estimate(first, words::time))
            });
            ("serves", format!("{rate}{}{first}", many("sequences")))
        }
    };
    let with = if answer.context_tokens.is_some() { format!(" in {}", answer.engine) } else { String::new() };
    let on = answer.hardware.as_ref().map_or_else(String::new, |hardware| format!(" on {hardware}"));
    let at = mode.map_or_else(String::new, |mode| format!(" at {mode}"));
    let context = answer.context_tokens.map_or_else(String::new, |tokens| format!(", context {tokens},"));
    let what = format!("{}{context}", asked.name(answer.format.as_deref()));
    if answer.memory_bytes.fits == Some(false) {
        let room = describe_room(answer.memory_bytes.room);
        let total = Bytes(answer.memory_bytes.total);
        return format!(
            "{what} DOES NOT FIT{on}{at}{with}: it needs {total}, and {room}\n\
             rooflinectl recommend finds a format and a context that fit. If it had room:\n"
        );
    }
    format!("{what} {does} {how}{with}{on}{at}; {} limits it\n", words::limit(&answer.limit))
}

/// `there is room for 6.67 GB`
fn describe_room(room: Option<f64>) -> String {
    room.map_or_else(
        || "there is room for less".to_owned(),
        |room| format!("there is room for {}", Bytes(room.max(0.0))),
    )
}

/// `14.2 tokens/s (11.9 to 16.8)`
fn format_rate(rate: &EstimateAnswer) -> String {
    let [value, low, high] = [rate.value, rate.low, rate.high].map(significant);
    format!("{value} tokens/s ({low} to {high})")
}

/// `deepseek-r1 is qwen3-8b, as Ollama's default tag. `; empty where the model was named by a name of its own.
fn describe_model(answer: &RecommendAnswer) -> String {
    let meant = answer.warnings.iter().find(|warning| says_model(warning));
    meant.map_or_else(String::new, |meant| format!("{meant}. "))
}

/// Whether a warning says which model a name means, which the first line does.
pub fn says_model(warning: &str) -> bool {
    warning.ends_with("as Ollama's default tag")
}

/// `Use llama.cpp, q4_k_m, mode 25W, batch 1, context 4096: 41.0 tokens/s (35.1 to 46.2) at 13.1 W (module), 24.4 ms a token (limit 100 ms)`; where nothing
/// meets the limits, the nearest. What has no room is not given a rate.
pub fn recommendation(answer: &RecommendAnswer, request: &RecommendRequest) -> String {
    describe_model(answer) + &describe_choice(answer, request)
}

fn describe_choice(answer: &RecommendAnswer, request: &RecommendRequest) -> String {
    match (&answer.decision, &answer.closest) {
        (Some(chosen), _) => {
            format!("Use {}: {}\n", describe_setting(chosen), describe_figures(chosen, request))
        }
        (None, Some(closest)) => {
            let figures = match memory_limit(answer) {
                Some(limit) => {
                    let needs = closest.prediction.memory_bytes.total;
                    let limit = words::beside("memory_bytes", limit.max(0.0), needs);
                    format!(", which needs {}; the limit is {limit}", Bytes(needs))
                }
                None => format!(": {}", describe_figures(closest, request)),
            };
            format!("{} {}{figures}\n", describe_conflict(answer), describe_setting(closest))
        }
        (None, None) => "Nothing can run here: no candidate is left\n".to_owned(),
    }
}

/// Which limit no candidate meets, or which none meets together, and what the nearest breaks of them.
fn describe_conflict(answer: &RecommendAnswer) -> String {
    let broken = || options_for(&answer.violated);
    match answer.contradicting.as_slice() {
        [only] if is_memory(only) => "Nothing fits: the closest is".to_owned(),
        [] if memory_limit(answer).is_some() => "Nothing fits: the closest is".to_owned(),
        [] if answer.violated.is_empty() => "Nothing meets the limits; the closest is".to_owned(),
        [] => format!("Nothing meets {}; the nearest is", broken()),
        [only] if answer.violated == [only.clone()] => format!("Nothing meets {}; the nearest is", broken()),
        [only] => {
            format!("Nothing meets {}; the nearest, which breaks {}, is", options_for([only]), broken())
        }
        several => format!(
            "No candidate meets {} together; the nearest, which breaks {}{}, is",
            options_for(several),
            if answer.violated.len() == 1 { "only " } else { "" },
            broken()
        ),
    }
}

fn is_memory(by: &str) -> bool {
    ["memory_available", "max_memory_bytes"].contains(&by)
}

/// The memory that the closest candidate has no room in; `None` where it has room.
pub fn memory_limit(answer: &RecommendAnswer) -> Option<f64> {
    let limits = answer.misses.iter().filter(|miss| is_memory(&miss.by)).filter_map(|miss| miss.limit);
    limits.min_by(f64::total_cmp)
}

/// `vllm, awq_int4, batch 1, context 4096: 30.1 tokens/s (…)`, of an engine that was not asked for.
pub fn other_engine(candidate: &CandidateAnswer, request: &RecommendRequest) -> String {
    format!("{}: {}", describe_setting(candidate), describe_figures(candidate, request))
}

/// A smaller quality loss is in the table only: that of q4_k_m is 3 %, which most people accept.
const NOTABLE_LOSS: f64 = 0.05;

fn describe_setting(candidate: &CandidateAnswer) -> String {
    let mut parts = Vec::new();
    // Of a model there is a cache, and an engine.
    parts.extend(candidate.kv_format.as_ref().map(|_| candidate.prediction.engine.clone()));
    let format = candidate.format.as_deref().unwrap_or("the file as it is");
    parts.push(match candidate.quality_loss_ratio {
        Some(loss) if loss >= NOTABLE_LOSS => {
            format!("{format} (estimated quality loss {})", words::percent(loss))
        }
        _ => format.to_owned(),
    });
    parts.extend(candidate.power_mode.as_ref().map(|mode| format!("mode {}", mode.name)));
    parts.extend(candidate.threads.map(|threads| format!("{threads} threads")));
    parts.push(format!("batch {}", candidate.batch));
    parts.extend(candidate.prediction.context_tokens.map(|tokens| format!("context {tokens}")));
    parts.join(", ")
}

/// Rate, power and the times that the limits are about; an operation has its time.
fn describe_figures(candidate: &CandidateAnswer, request: &RecommendRequest) -> String {
    let (prediction, limits) = (&candidate.prediction, &request.constraints);
    let limited =
        |limit: Option<f64>| limit.map_or_else(String::new, |limit| format!(" (limit {})", Seconds(limit)));
    let at = prediction.power_w.as_ref().map_or_else(String::new, |power| {
        let limit = limits.max_power_w.map_or_else(String::new, |limit| match request.optimism {
            Optimism::Pessimistic => format!(", at worst {} (limit {})", Watts(power.high), Watts(limit)),
            Optimism::Expected => format!(" (limit {})", Watts(limit)),
        });
        format!(" at {}{limit}", words::power(power))
    });
    // Of a model there is a cache; an operation counts columns.
    if candidate.kv_format.is_none() {
        let time = words::estimate(&prediction.time_s, words::time);
        return format!("{time}{}{at}", limited(limits.max_time_s));
    }
    let mut parts = vec![format!("{}{at}", format_rate(&prediction.tokens_per_s))];
    if let Some(first) = &prediction.time_to_first_token_s {
        parts.push(format!(
            "{} to the first token{}",
            words::time(first.value),
            limited(limits.max_time_to_first_token_s)
        ));
    }
    if let Some(each) = &prediction.time_per_token_s {
        let of = if candidate.batch > 1 { " of each sequence" } else { "" };
        parts.push(format!(
            "{} a token{of}{}",
            words::time(each.value),
            limited(limits.max_time_per_token_s)
        ));
    }
    parts.join(", ")
}

/// `12 predictions; the highest rate: llama-3.1-8b q4_0 x4, 14.2 tokens/s (11.9 to 16.8); 3 of them do not fit`, of those that can run.
pub fn sweep(answer: &SweepAnswer) -> String {
    let rate = |row: &&SweepRow| row.prediction.tokens_per_s.value;
    let needs = |row: &&SweepRow| row.prediction.memory_bytes.total;
    let can_run = |row: &&SweepRow| row.prediction.memory_bytes.fits != Some(false);
    let setting = |row: &SweepRow| {
        let mode = row.power_mode.as_ref().map_or_else(String::new, |mode| format!(" in mode {}", mode.name));
        let batch = if row.batch > 1 { format!(" x{}", row.batch) } else { String::new() };
        format!("{}{batch}{mode}", words::name_swept(row))
    };
    let count = answer.rows.len();
    let predictions = if count == 1 { "prediction" } else { "predictions" };
    let rows = answer.rows.iter();
    let excluded = count - rows.clone().filter(can_run).count();
    if let Some(best) = rows.clone().filter(can_run).max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        let figure = match best.op {
            Some(_) => words::estimate(&best.prediction.time_s, words::time),
            None => format_rate(&best.prediction.tokens_per_s),
        };
        let excluded = match excluded {
            0 => String::new(),
            1 => "; 1 of them does not fit".to_owned(),
            several => format!("; {several} of them do not fit"),
        };
        let own = &best.prediction.engine;
        let engine = match &best.op {
            None if rows.clone().all(|row| row.prediction.engine == *own) => format!(" in {own}"),
            None => " in the recommended engine of each".to_owned(),
            Some(_) => String::new(),
        };
        return format!(
            "{count} {predictions}{engine}; the highest rate: {}, {figure}{excluded}\n",
            setting(best)
        );
    }
    rows.min_by(|a, b| needs(a).total_cmp(&needs(b))).map_or_else(
        || "no prediction: none of these runs here\n".to_owned(),
        |least| {
            format!(
                "{count} {predictions}, and NOTHING FITS: the least, {}, needs {}, and {}\n",
                setting(least),
                Bytes(needs(&least)),
                describe_room(least.prediction.memory_bytes.room)
            )
        },
    )
}

/// `gemv 4096x4096 int8 in 700 µs: as predicted, 84.1 % of the ceiling; memory bandwidth limits it`.
pub fn analysis(what: &str, answer: &AnalyzeAnswer) -> String {
    let share = words::percent(answer.ceiling_ratio);
    let of = if share.ends_with("times") { "" } else { " of" };
    let verdict = answer.verdict.replace('_', " ");
    format!("{what}: {verdict}, {share}{of} the ceiling; {} limits it\n", words::limit(&answer.limit))
}

/// `The fastest of 8 ways to cut it: blocks of 128x128, steps of 32, 41.0 µs`.
pub fn tiling(answer: &TilingAnswer) -> String {
    answer.candidates.first().map_or_else(
        || "no tiling fits into a streaming multiprocessor\n".to_owned(),
        |best| {
            format!(
                "blocks of {}x{} in steps of {} are fastest: {}\n",
                best.m,
                best.n,
                best.k,
                words::time(best.time_s)
            )
        },
    )
}
