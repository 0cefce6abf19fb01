//! `run`: starts llama-server with the settings recommended for a target, holds the power mode if that is allowed, observes
//! it, and prints predicted beside measured rates at the end. Signals and the exit code pass through.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::Context;
use super::args::LaunchArgs;
use super::failure::{Exit, Failure};
use super::hold::{self, AttachedHold, Signals, say};
use super::observe::{self, Plan, Process, Program, Server, Settings, Subject, SubjectOptions, Summary};
use super::output::Format;
use super::server_address::Address;
use super::{contents, habits, recommendation, words};
use rooflined_api::{
    BatchRange, CandidateAnswer, Freedom, HoldConstraints, HoldRequest, RecommendAnswer, RecommendRequest,
    Workload,
};
use rooflined_predict::Engine;

const USUAL_PORT: u16 = 8080;
/// Options that make llama-server download its model.
const FETCHED: [&str; 7] = ["-hf", "-hfr", "--hf-repo", "-mu", "--model-url", "-dr", "--docker-repo"];
/// Between two tries to reach the server that starts.
const PAUSE: Duration = Duration::from_millis(500);

pub async fn run(context: &mut Context, args: &LaunchArgs) -> Result<Exit, Failure> {
    let command: Vec<String> = args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    if observe::program(&command) != Program::LlamaServer {
        let own = command[0].rsplit('/').next().unwrap_or_default();
        let start = habits::tip("run", "*", own).unwrap_or(
            "start it as usual, with what rooflinectl recommend MODEL --engine ENGINE prints; then watch it: rooflinectl observe --from PORT",
        );
        return Err(Failure::usage(format!(
            "{own:?} is not llama-server, the only program that run can start"
        ))
        .with_hint(start));
    }
    let settings = Settings::read(&command, &environment);
    let request = request(args, &settings)?;
    let answer: RecommendAnswer = context.client.post("/v1/recommend", &request).await?.parse()?;
    let Some(decision) = answer.decision.as_ref().filter(|_| answer.feasible) else {
        say(recommendation::render(&answer, &request).trim_end());
        return Err(Failure::Reported(Exit::Infeasible));
    };
    let added = added(&answer.apply, &command, &environment)?;
    say(&format!(
        "{} Predicted: {}",
        answer.reason,
        words::estimate(&decision.prediction.tokens_per_s, words::rate)
    ));
    say(&format!("added: {}", if added.is_empty() { "nothing".to_owned() } else { added.join(" ") }));

    // Caught from here on, so that none ends this program between the hold and the command.
    let mut signals = Signals::new()?;
    let mut held = if args.no_hold { None } else { hold_mode(context, decision, &answer.apply).await };
    let mut full: Vec<OsString> = args.command.clone();
    full.extend(added.iter().map(OsString::from));
    let mut child = hold::spawn(&full)?;
    let mut summary = Summary::default();
    let status = match child.id() {
        None => hold::attend(&mut child, &mut held, &mut signals).await,
        Some(pid) => tokio::select! {
            status = hold::attend(&mut child, &mut held, &mut signals) => status,
            never = follow(context, args, pid, settings.port.unwrap_or(USUAL_PORT), &mut summary) => match never {},
        },
    };
    // The connection closes here, and with it the hold ends.
    drop(held);
    conclude(context, decision, &summary)?;
    Err(Failure::Ended(hold::code(status?)))
}

/// The question that the target and the command line stand for. What the command line sets is not to be chosen.
fn request(args: &LaunchArgs, settings: &Settings) -> Result<RecommendRequest, Failure> {
    let model = settings.model.as_deref().ok_or_else(|| {
        let fetches = args.command.iter().any(|word| FETCHED.iter().any(|option| word == option));
        let hint = if fetches {
            "start llama-server once without rooflinectl, so that it downloads the model; then give the file, which its log names, with -m FILE"
        } else {
            "give it: llama-server -m MODEL.gguf"
        };
        Failure::usage("the command line names no model file").with_hint(hint)
    })?;
    let path = std::path::absolute(model).unwrap_or_else(|_| model.into());
    if !path.exists() {
        return Err(Failure::wrong_file(
            format!("there is no file {}", path.display()),
            "check the path; to ask about a model before you download it: rooflinectl recommend MODEL",
        ));
    }
    contents::require_file(&path)?;
    let told = settings
        .context_tokens
        .filter(|tokens| *tokens > 0)
        .map(|tokens| tokens / settings.slots.unwrap_or(1).max(1));
    let cache =
        settings.cache_format().map_err(|why| Failure::usage(why).with_hint("give -ctk and -ctv alike"))?;
    let fixed = |slots: u64| BatchRange { min: slots, max: slots };
    Ok(RecommendRequest {
        workload: Workload {
            model: Some(json!({ "path": path })),
            // This file is served, and none that could be made of it.
            format: contents::format_of(&path),
            kv_format: Some(cache.to_owned()),
            phase: Some("decode".to_owned()),
            context_tokens: args.context_tokens.or(told),
            ..Workload::default()
        },
        engine: Engine::LlamaCpp,
        objective: args.target.objective,
        energy_basis: args.target.energy,
        constraints: args.target.constraints(),
        freedom: Freedom {
            power_modes: args.target.power_modes(),
            threads: settings
                .threads
                .and_then(|threads| u32::try_from(threads).ok())
                .map(|threads| vec![threads]),
            batch: settings.slots.map(fixed).or_else(|| args.target.batch_range()),
            ..Freedom::default()
        },
        optimism: args.target.optimism,
        ..RecommendRequest::default()
    })
}

/// The options of `apply.settings` that the command line and the environment leave open.
fn added(
    apply: &Value,
    command: &[String],
    environment: &BTreeMap<String, String>,
) -> Result<Vec<String>, Failure> {
    let line = apply.pointer("/settings/llama.cpp").and_then(Value::as_str).unwrap_or("");
    let Some((_, options)) = line.split_once("llama-server -m MODEL.gguf") else {
        return Err(Failure::failed(
            format!("the recommendation has no options of llama-server: {line}"),
            "choose other formats of the cache, or start it without this",
        ));
    };
    let mut added = Vec::new();
    let mut is_open = true;
    for word in options.split_whitespace() {
        if word.starts_with('-') {
            is_open = !observe::sets(word, command, environment);
        }
        // A value goes with the option before it.
        if is_open {
            added.push(word.to_owned());
        }
    }
    Ok(added)
}

/// Holds the mode that was chosen, if that is allowed; the command runs in any case.
async fn hold_mode(context: &mut Context, decision: &CandidateAnswer, apply: &Value) -> Option<AttachedHold> {
    let mode = decision.power_mode.as_ref()?;
    if let Some(enter) = apply.get("enter").and_then(Value::as_str) {
        say(&format!("{} is not held: set it with {enter}", mode.name));
        return None;
    }
    let request = HoldRequest {
        constraints: HoldConstraints { mode: Some(mode.name.clone()), ..HoldConstraints::default() },
        query: None,
        app_id: "rooflinectl run".to_owned(),
        reason: "llama-server with recommended settings".to_owned(),
        ttl_s: None,
    };
    match AttachedHold::begin(&mut context.client, request).await {
        Ok(held) => Some(held),
        Err(error) => {
            let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            say(&format!("{} is not held: {error}{hint}", mode.name));
            None
        }
    }
}

/// Waits for the server to answer and observes it until it ends.
async fn follow(
    context: &mut Context,
    args: &LaunchArgs,
    pid: u32,
    port: u16,
    summary: &mut Summary,
) -> std::convert::Infallible {
    if let Err(failure) = observed(context, args, pid, port, summary).await {
        let hint = failure.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
        say(&format!("not observed: {failure}{hint}"));
    }
    std::future::pending().await
}

async fn observed(
    context: &mut Context,
    args: &LaunchArgs,
    pid: u32,
    port: u16,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let has_gpu = observe::has_gpu(&mut context.client, false).await?;
    let owners = observe::Owners::of(args.watching.server_user.as_deref())?;
    let subject = loop {
        // Its own port and not one that another server has taken before it.
        if let Some(process) = listener(pid, port) {
            let key = (args.watching.api_key_file.as_deref(), owners);
            let server = Server::new(Address::local(port), key.0, owners).await?;
            let told = SubjectOptions::default();
            match Subject::find(server, Some(process), &told, has_gpu, key).await {
                Ok(subject) => break subject,
                Err(failure) if failure.exit() == Exit::TryAgain => {}
                Err(failure) => return Err(failure),
            }
        }
        sleep(PAUSE).await;
    };
    say(&format!("observing {}", subject.describe()));
    let plan = Plan {
        count: None,
        interval: args.watching.interval,
        limit: None,
        max_wait_ratio: args.watching.max_wait,
        dry_run: args.watching.dry_run,
    };
    observe::watch(&mut context.client, subject, plan, summary, |_| Ok(())).await
}

/// The process that listens on `port`: `pid`, or one that it started.
fn listener(pid: u32, port: u16) -> Option<Process> {
    let process = Process::find(pid)?;
    if process.ports().contains(&port) {
        return Some(process);
    }
    process.children().into_iter().find(|child| child.ports().contains(&port))
}

/// Predicted beside measured.
fn conclude(context: &Context, decision: &CandidateAnswer, summary: &Summary) -> Result<(), Failure> {
    let predicted = &decision.prediction.tokens_per_s;
    if context.printer.format != Format::Human {
        let mut value = summary.json();
        value["recommended"] = json!({
            "batch": decision.batch, "threads": decision.threads, "power_mode": decision.power_mode,
            "kv_format": decision.kv_format, "predicted_tokens_per_s": predicted,
        });
        return context.printer.value("run", &value);
    }
    say(&format!("recommended x{}: predicted {}", decision.batch, words::estimate(predicted, words::rate)));
    for line in summary.lines().lines().chain(summary.skipped().lines()) {
        say(line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_given_already_are_not_added() {
        let line = "llama-quantize A MODEL.gguf Q4_0 && llama-server -m MODEL.gguf -c 8192 -np 2 -b 2048 -ub 512 -ngl 0 -t 6 --fit off --cache-ram 0 --cache-prompt";
        let apply = json!({"settings": {"llama.cpp": line}});
        let command: Vec<String> = ["llama-server", "-m", "x.gguf", "--threads", "4", "-cram", "1024"]
            .map(ToOwned::to_owned)
            .to_vec();
        let environment = BTreeMap::from([("LLAMA_ARG_BATCH".to_owned(), "1024".to_owned())]);
        let found = added(&apply, &command, &environment).unwrap();
        assert_eq!(found.join(" "), "-c 8192 -np 2 -ub 512 -ngl 0 --fit off --cache-prompt");
        let none = json!({"settings": {"llama.cpp": "not available: no int8"}});
        assert!(added(&none, &command, &environment).unwrap_err().to_string().contains("no int8"));
    }
}
