//! `observations`: what was reported, by whom, and what becomes of it.

use roofline::units::significant;
use std::fmt::Write as _;

use serde_json::Value;

use super::Context;
use super::args::{ObservationsCommand, ReportsArgs};
use super::failure::Failure;
use super::table::Table;
use super::words;
use wire::{ConfirmObservationRequest, ForgottenAnswer, ObservationEntry, ObservationListAnswer};

pub async fn run(context: &mut Context, command: &ObservationsCommand) -> Result<(), Failure> {
    match command {
        ObservationsCommand::List(which) => {
            let answer = context.client.get(&format!("/v1/observations{}", query(which))).await?;
            context.printer.answer("observations", &answer, || Ok(listed(&answer.parse()?)))
        }
        ObservationsCommand::Forget(args) => {
            let route = match args.id {
                Some(id) => format!("/v1/observations/{id}"),
                None => format!("/v1/observations{}", query(&args.which)),
            };
            let answer = context.client.delete(&route).await?;
            context.printer.answer("observations", &answer, || {
                let ForgottenAnswer { forgotten } = answer.parse()?;
                Ok(format!("forgot {forgotten} report{}\n", if forgotten == 1 { "" } else { "s" }))
            })
        }
        ObservationsCommand::Confirm { id } => {
            let request = ConfirmObservationRequest { id: *id };
            let answer = context.client.command("/v1/observations/confirm", &request).await?;
            context
                .printer
                .answer("confirm", &answer, || Ok("confirmed: it moves everybody's answers\n".to_owned()))
        }
    }
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
    let given = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", encoded(&value?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// In percent-encoding.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

fn listed(answer: &ObservationListAnswer) -> String {
    let mut table = Table::new(&[
        ">number",
        ">user",
        "moves",
        "because",
        "engine",
        "what",
        "format",
        ">time",
        ">measured/predicted",
    ]);
    for entry in &answer.observations {
        table.row([
            entry.id.map(|id| id.to_string()).unwrap_or_default(),
            entry.uid.map(|uid| uid.to_string()).unwrap_or_default(),
            entry.moves.clone(),
            because(entry),
            entry.engine.key().to_owned(),
            what(entry),
            entry.format.clone(),
            entry.time_s.map(words::time).unwrap_or_default(),
            entry.measured_over_predicted_ratio.map(significant).unwrap_or_default(),
        ]);
    }
    let mut text =
        if answer.observations.is_empty() { "nothing was reported\n".to_owned() } else { table.render() };
    if answer.other_users > 0 {
        let others = answer.other_users;
        let _ = writeln!(text, "  {others} other users have reports that move only their own answers");
    }
    text
}

fn because(entry: &ObservationEntry) -> String {
    match (entry.because.as_str(), entry.confirmed_by, entry.agreeing_users) {
        ("confirmed", Some(by), _) => format!("confirmed by {by}"),
        ("agreed", _, Some(users)) => format!("{users} users agree"),
        (because, ..) => because.to_owned(),
    }
}

fn what(entry: &ObservationEntry) -> String {
    if let Some(model) = &entry.model {
        let of = |name: &str, count: Option<u64>| match count {
            Some(count) if count > 0 => format!(", {name} {count}"),
            _ => String::new(),
        };
        let phase = entry.phase.as_deref().unwrap_or_default();
        let (batch, context) = (of("batch", entry.batch), of("context", entry.context_tokens));
        return format!("{model} {phase}{batch}{context}{}", of("prompt", entry.prompt_tokens));
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
