//! `docs/internals/scenarios.md`: its questions are asked again, and the answers have to be the ones that it prints: the decision and
//! the words as they stand there, every figure within the interval that is predicted now. `ROOFLINED_UPDATE_DOCS=1` writes
//! them again.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use super::{ctl, stderr, stdout};

fn documents() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/internals")
}

/// Runs a command line of the document without a daemon, beside its files.
fn asked(line: &str, output: &str) -> Output {
    let words: Vec<&str> = line.split(' ').skip(1).chain(["-o", output]).collect();
    let nowhere = tempfile::tempdir().unwrap();
    ctl(nowhere.path(), &words).current_dir(documents()).output().unwrap()
}

/// What is printed for people, line by line.
fn printed(line: &str) -> String {
    let output = asked(line, "human");
    let text = stdout(&output) + &stderr(&output);
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A text without its figures, and without the spaces that line them up.
fn worded(text: &str) -> String {
    let of_figure = |c: char| c.is_ascii_digit() || c == '.';
    let word = |word: &str| {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            word.trim_start_matches(of_figure).to_owned()
        } else {
            word.into()
        }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What is decided, and the figures that it rests on.
fn decided(line: &str) -> (Value, Vec<(String, [f64; 3])>) {
    let output = asked(line, "json");
    let mut figures = Vec::new();
    let answer: Value = match serde_json::from_slice(&output.stdout) {
        Ok(answer) => answer,
        Err(_) => return (json!({"exit": output.status.code(), "says": stderr(&output)}), figures),
    };
    let mut figure = |name: String, prediction: &Value| {
        for key in ["time_s", "tokens_per_s", "power_w", "time_to_first_token_s"] {
            let of = |end: &str| prediction[key][end].as_f64();
            if let (Some(value), Some(low), Some(high)) = (of("value"), of("low"), of("high")) {
                figures.push((format!("{name}{key}"), [value, low, high]));
            }
        }
    };
    let choice = |of: &Value| {
        let mode = &of["power_mode"]["name"];
        json!({"format": of["format"], "kv_format": of["kv_format"], "mode": mode, "batch": of["batch"]})
    };
    let mut decision = json!({"exit": output.status.code()});
    if let Some(feasible) = answer.get("feasible") {
        decision["feasible"] = feasible.clone();
        for key in ["decision", "closest"] {
            if answer.get(key).is_some_and(|found| !found.is_null()) {
                decision[key] = choice(&answer[key]);
                figure(format!("{key}."), &answer[key]["prediction"]);
            }
        }
        decision["violated"] = answer["violated"].clone();
    } else {
        decision["fits"] = answer["memory_bytes"]["fits"].clone();
        decision["limit"] = answer["limit"].clone();
        figure(String::new(), &answer);
    }
    (decision, figures)
}

const FACTS: &str = "<!-- decided: ";

#[test]
fn the_scenarios_are_answered_as_printed() {
    let path = documents().join("scenarios.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    let mut rest = document.as_str();
    let (mut scenarios, mut wrong) = (0, Vec::new());
    while let Some((before, block)) = rest.split_once("```console\n$ ") {
        let (block, after) = block.split_once("```\n").unwrap();
        let (line, text) = block.split_once('\n').unwrap();
        let (decision, figures) = decided(line);
        let shown: Vec<Value> = figures.iter().map(|(name, [value, ..])| json!([name, value])).collect();
        let facts = json!({"decision": decision, "figures": shown});
        let known = after.strip_prefix(FACTS).and_then(|after| after.split_once(" -->\n"));
        let after = known.map_or(after, |(_, after)| after);
        let known: Value =
            known.map_or(Value::Null, |(known, _)| serde_json::from_str(known).unwrap_or_default());
        if known["decision"] != decision {
            wrong.push(format!("{line}\n  printed: {}\n  now: {decision}", known["decision"]));
        }
        let before_now = |name: &str| {
            let all = known["figures"].as_array().into_iter().flatten();
            all.filter(|figure| figure[0] == name).find_map(|figure| figure[1].as_f64())
        };
        for (name, [value, low, high]) in &figures {
            match before_now(name) {
                Some(old) if (*low..=*high).contains(&old) => {}
                old => {
                    wrong.push(format!("{line}\n  {name}: printed {old:?}, now {value} ({low} to {high})"));
                }
            }
        }
        let printed = printed(line);
        if worded(&printed) != worded(text) {
            wrong.push(format!("{line}\n  in words: {text}\n  now: {printed}"));
        }
        let _ = write!(written, "{before}```console\n$ {line}\n{printed}```\n{FACTS}{facts} -->\n");
        rest = after;
        scenarios += 1;
    }
    written.push_str(rest);
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        std::fs::write(&path, written).unwrap();
        return;
    }
    assert!(scenarios >= 10, "{scenarios} scenarios");
    let hint = "ROOFLINED_UPDATE_DOCS=1 cargo test --test processes scenarios writes them again; read the comments again then";
    assert!(wrong.is_empty(), "{}\n{hint}", wrong.join("\n"));
}
