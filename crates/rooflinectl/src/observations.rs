//! `observations list|export|forget`.

use rooflined_core::units::significant;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Context;
use super::args::{ObservationsCommand, ReportsArgs};
use super::failure::Failure;
use super::flatten;
use super::rooflines::percent_encode;
use super::table::{Column, Table};
use super::words;
use rooflined_api::{BoardAnswer, ForgottenAnswer, ObservationEntry, ObservationListAnswer};
use rooflined_models::registry::models;

pub async fn run(context: &mut Context, command: &ObservationsCommand) -> Result<(), Failure> {
    match command {
        ObservationsCommand::List(which) => {
            let answer = context.client.get(&format!("/v1/observations{}", query(which))).await?;
            context.printer.answer("observations", &answer, || Ok(render_list(&answer.parse()?, which)))
        }
        ObservationsCommand::Export(which) => {
            let observations = context.client.get(&format!("/v1/observations{}", query(which))).await?;
            let board: BoardAnswer = context.client.get("/v1/board").await?.parse()?;
            let list: ObservationListAnswer = observations.parse()?;
            let rows: Vec<Value> =
                list.observations.iter().filter_map(|entry| row(entry, &board.key)).collect();
            if rows.is_empty() {
                return Err(Failure::failed(
                    "no report of a model's decode or prompt is known",
                    "watch an inference server first: rooflinectl observe --from 8080",
                ));
            }
            context.printer.bytes(flatten::csv("observations", &json!({ "observations": rows })).as_bytes())
        }
        ObservationsCommand::Forget(args) => {
            let route = match args.id {
                Some(id) => format!("/v1/observations/{id}"),
                None => format!("/v1/observations{}", query(&args.which)),
            };
            let answer = context.client.delete(&route).await?;
            let ForgottenAnswer { forgotten } = answer.parse()?;
            if forgotten == 0 {
                return Err(Failure::failed("nothing was forgotten", no_report(&args.which)));
            }
            context.printer.answer("observations", &answer, || {
                Ok(match forgotten {
                    1 => "forgot 1 report\n".to_owned(),
                    several => format!("forgot {several} reports\n"),
                })
            })
        }
    }
}

/// A report as a row of the table that engine costs are fitted to; `None` of an operation and of prompts and answers in one.
fn row(entry: &ObservationEntry, board: &str) -> Option<Value> {
    let (model, batch) = (entry.model.as_ref()?, entry.batch?);
    let tokens = match entry.phase.as_deref()? {
        "decode" => batch,
        "prefill" => batch * entry.prompt_tokens?,
        _ => return None,
    };
    #[expect(clippy::cast_precision_loss, reason = "tokens of a run")]
    let rate = tokens as f64 / entry.time_s;
    Some(json!({
        "id": format!("own-{}", entry.id),
        "device": board,
        "power_mode": entry.power_mode,
        "engine": entry.engine,
        "model": model,
        "arch": model,
        "quant": entry.format,
        "batch": batch,
        "prompt_len": entry.prompt_tokens,
        "depth": entry.context_tokens,
        "phase": entry.phase,
        "tok_s": rate,
        "power_w": entry.power_w,
        "source": "own measurement",
        "quality": "A",
    }))
}

/// The arguments as parameters of a route.
fn query(which: &ReportsArgs) -> String {
    let pairs = [
        ("scope", which.all.then(|| "all".to_owned())),
        ("user", which.user.map(|uid| uid.to_string())),
        ("engine", which.engine.map(|engine| engine.key().to_owned())),
        ("model", which.model.clone()),
        ("op", which.op.clone()),
        ("format", which.format.clone()),
    ];
    let given =
        pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", percent_encode(&value?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// Why there is no report of this choice, and where to look.
fn no_report(which: &ReportsArgs) -> String {
    const ALL: &str = "rooflinectl observations list shows all of yours";
    let unknown = which.model.as_deref().and_then(|name| models().get(name).err());
    match unknown {
        _ if query(which).is_empty() => "nothing was reported".to_owned(),
        Some(unknown) => format!("there is no report about this model; {}", unknown.hint(ALL)),
        None => format!("no report matches; {ALL}"),
    }
}

const COLUMNS: [Column<ObservationEntry>; 8] = [
    (">number", |entry| Some(entry.id.to_string())),
    (">user", |entry| entry.uid.map(|uid| uid.to_string())),
    ("moves", |entry| Some(entry.moves.clone())),
    ("engine", |entry| Some(entry.engine.clone())),
    ("what", |entry| Some(what(entry))),
    ("format", |entry| Some(entry.format.clone())),
    (">time", |entry| Some(words::time(entry.time_s))),
    (">measured/predicted", |entry| entry.measured_over_predicted_ratio.map(significant)),
];

fn render_list(answer: &ObservationListAnswer, which: &ReportsArgs) -> String {
    let mut text = if answer.observations.is_empty() {
        format!("{}\n", no_report(which))
    } else {
        Table::of(&answer.observations, &COLUMNS).render()
    };
    if answer.other_users > 0 {
        let others = answer.other_users;
        let _ = writeln!(text, "  {others} other users have reports that move only their own answers");
    }
    text
}

fn what(entry: &ObservationEntry) -> String {
    if let Some(model) = &entry.model {
        let of = |name: &str, count: Option<u64>| match count {
            Some(count) if count > 0 => format!(", {name} {count}"),
            _ => String::new(),
        };
        let phase = entry.phase.as_deref().unwrap_or_default();
        let (batch, context) = (of("batch", entry.batch), of("context", entry.context_tokens));
        let phase = if phase.is_empty() { String::new() } else { format!(" {phase}") };
        return format!("{model}{phase}{batch}{context}{}", of("prompt", entry.prompt_tokens));
    }
    let op = entry.op.as_ref();
    let word = |key: &str| {
        op.and_then(|op| op.get(key)).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    let sizes = ["m", "n", "k"].into_iter().filter_map(word);
    std::iter::once(word("kind").unwrap_or_default()).chain(sizes).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_model_is_a_row_with_its_rate_and_an_operation_is_none() {
        let entry = |change: Value| {
            let mut entry = json!({
                "id": 4, "uid": 1000, "pid": null, "reported_at_unix_s": 1.0, "moves": "own", "engine": "llama.cpp",
                "model": "qwen3-4b", "op": null, "format": "q4_k_m", "phase": "decode", "batch": 2, "context_tokens": 512,
                "prompt_tokens": null, "power_mode": "15W", "time_s": 0.1, "power_w": null,
                "measured_over_predicted_ratio": null
            });
            entry.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            row(&serde_json::from_value(entry).unwrap(), "jetson-orin-nano-8gb")
        };
        let decode = entry(json!({})).unwrap();
        assert_eq!(decode["tok_s"], 20.0);
        for (column, value) in
            [("id", "own-4"), ("device", "jetson-orin-nano-8gb"), ("arch", "qwen3-4b"), ("quant", "q4_k_m")]
        {
            assert_eq!(decode[column], value);
        }
        let prompt = entry(json!({ "phase": "prefill", "prompt_tokens": 100 })).unwrap();
        assert_eq!(prompt["tok_s"], 2000.0);
        assert_eq!(entry(json!({ "phase": "serve" })), None);
        assert_eq!(entry(json!({ "model": null, "batch": null, "phase": null })), None);
    }
}
