//! Predictions per second on one core, bytes in to bytes out, as `rooflinectl predict --requests` makes them; beside
//! reading and writing the same lines and answers as plain JSON values in the same run.
//!
//! ```text
//! cargo bench -p rooflined-benches --bench requests
//! ```
//!
//! The lines name hardware, a model, a format and a mode each, and no two neighbours are about the same. Rounds of both
//! take turns, so that the machine's drift hits both; figures are medians over rounds.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where its world does")]

use std::hint::black_box;
use std::time::Instant;

use rooflined_advice::parse::parse;
use rooflined_advice::{Catalogue, Request, suppose};
use serde_json::{Value, json};

const LINES: usize = 2_000;
const ROUNDS: usize = 15;
/// What one core is to make.
const GOAL: f64 = 20_000.0;

/// A line for each combination, in an order that changes everything from line to line.
fn lines(engine: &str, phase: &str) -> Vec<String> {
    let hardware = ["jetson-agx-orin-64gb", "jetson-orin-nano-8gb-super", "h100-sxm", "rtx-4090", "gb10"];
    let models =
        ["llama-3.1-8b", "qwen2.5-7b", "llama-3-70b", "gemma-3-4b", "qwen3-30b-a3b", "tinyllama-1.1b"];
    let formats = ["q4_k_m", "fp16", "q8_0"];
    let line = |index: usize| {
        json!({
            "hardware": hardware[index % hardware.len()],
            "engine": engine,
            "workload": {
                "model": models[index % models.len()], "format": formats[index % formats.len()], "phase": phase,
                "batch": 1 + index % 8, "context_tokens": index % 4096, "prompt_tokens": 512, "output_tokens": 128,
            },
        })
        .to_string()
    };
    (0..LINES).map(line).collect()
}

fn answers(catalogue: &Catalogue, lines: &[String], output: &mut Vec<u8>) {
    output.clear();
    for line in lines {
        let request = Request::Predict(parse(line.as_bytes()).unwrap());
        let answer = suppose(catalogue, &request).unwrap();
        serde_json::to_writer(&mut *output, &answer).unwrap();
        output.push(b'\n');
    }
}

/// Reads every request and writes every answer as a value that nothing is known of.
fn values(lines: &[String], answers: &[Value], output: &mut Vec<u8>) {
    output.clear();
    for (line, answer) in lines.iter().zip(answers) {
        black_box(serde_json::from_str::<Value>(line).unwrap());
        serde_json::to_writer(&mut *output, answer).unwrap();
        output.push(b'\n');
    }
}

fn rate(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    LINES as f64 / times[times.len() / 2]
}

fn main() {
    // Cargo asks benchmarks to list or test themselves; this one only runs.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let catalogue = Catalogue::default();
    for (engine, phase) in [("llama.cpp", "decode"), ("vllm", "decode"), ("llama.cpp", "serve")] {
        let lines = lines(engine, phase);
        let mut output = Vec::new();
        answers(&catalogue, &lines, &mut output);
        let made: Vec<Value> = output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            answers(&catalogue, &lines, &mut output);
            ours.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            values(&lines, &made, &mut output);
            plain.push(begun.elapsed().as_secs_f64());
        }
        let (ours, plain) = (rate(ours), rate(plain));
        let verdict = if ours >= GOAL { "ok" } else { "MISSED" };
        println!(
            "{engine:<10} {phase:<7} {ours:8.0} predictions/s   plain JSON {plain:8.0} lines/s   ratio {:.2}   goal \
             {GOAL:.0}   {verdict}",
            plain / ours
        );
    }
}
