//! `explain`: why a run is slower than predicted. Watches a server for some seconds, or takes a rate that was measured, adds what
//! /proc shows of the process, and prints the daemon's causes.

mod build;
pub mod causes;
pub mod evidence;
mod log;
mod slow_state;
mod text;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::Context;
use super::args::ExplainArgs;
use super::failure::{Exit, Failure};
use super::input::EngineChoice;
use super::network_args;
use super::observe::{self, Process, Server, Skip, Subject, SubjectOptions, Window};
use super::server_address::Address;
use super::working::{Counted, Working};
use rooflined_api::{ExplainAnswer, ExplainRequest, Offload, RunEvidence, Unseen, Workload};

/// Windows whose middle is taken.
const WINDOWS: usize = 3;
const INTERVAL: Duration = Duration::from_millis(500);
/// A program whose rate is given is watched for so long at most.
const PROGRAM: Duration = Duration::from_secs(3);
/// Without one, the machine is watched for so long.
const AROUND: Duration = Duration::from_secs(1);

/// How long a process that ends may still be listed after its connections are closed.
const ENDING: Duration = Duration::from_millis(200);

pub async fn run(context: &mut Context, args: &ExplainArgs) -> Result<(), Failure> {
    if let Some(hardware) = &args.hardware {
        return Err(Failure::Message {
            exit: Exit::Usage,
            message: "explain looks at the machine that it runs on, not at other hardware".to_owned(),
            hint: Some(format!(
                "run it there: rooflinectl --ssh HOST explain …; or judge the rate by the data sheet: rooflinectl analyze MODEL --tokens-per-s RATE --hardware {hardware}"
            )),
        });
    }
    network_args::refuse_network(args.subject.op.kind.as_ref(), "explain", network_args::MEASURED)?;
    if args.subject.op.kind.is_none() && args.port.is_none() && args.pid.is_none() {
        return Err(Failure::usage("neither a server nor a model is given").with_hint(
            "a server: rooflinectl explain --port 8080; a rate: rooflinectl explain MODEL --tokens-per-s 12; \
             rooflinectl servers lists those that are watched",
        ));
    }
    let process = args.pid.map(observe::process_of).transpose()?;
    let is_measured = args.time.is_some() || args.tokens_per_s.is_some();
    let (what, mut request) = match (&args.port, process) {
        (Some(address), process) => {
            if let Some(process) = &process {
                observe::refuse_other_server(process, address.port)?;
            }
            watch(context, args, address.clone(), process).await?
        }
        (None, Some(process)) if is_measured => {
            let seen = watch_program(context, &process, args.limit.min(PROGRAM)).await?;
            measured(args, Some(seen))?
        }
        (None, Some(process)) => {
            let address = observe::address_of(&process)?;
            watch(context, args, address, Some(process)).await?
        }
        (None, None) => {
            let around = if is_measured { None } else { Some(look_around(context).await) };
            measured(args, around)?
        }
    };
    let mut answer = context.client.post("/v1/explain", &request).await?;
    let parsed: ExplainAnswer = answer.parse()?;
    if !args.no_reference && slow_state::is_open(&parsed) {
        let working = Working::new(&context.printer, Counted::Nothing, "running a reference kernel");
        slow_state::look(&context.client, &mut request, parsed.measured_tokens_per_s).await;
        drop(working);
        answer = context.client.post("/v1/explain", &request).await?;
    }
    context.printer.answer("explain", &answer, || Ok(text::render(&what, &answer.parse()?)))
}

/// Who uses this machine's CPUs now.
async fn look_around(context: &Context) -> RunEvidence {
    let _working = Working::new(&context.printer, Counted::Nothing, "watching the machine");
    evidence::around(AROUND).await
}

/// What a program without a server does, over `window`.
async fn watch_program(
    context: &Context,
    process: &Process,
    window: Duration,
) -> Result<RunEvidence, Failure> {
    let working = Working::new(&context.printer, Counted::Nothing, "watching the process");
    let began = Instant::now();
    let before = evidence::Counters::read(process)?;
    tokio::time::sleep(window).await;
    let after = evidence::Counters::read(process)?;
    drop(working);
    if !after.has_run_since(&before) {
        return Err(Failure::try_again(
            format!(
                "process {} used no CPU while it was watched, so it is not what you measured",
                process.pid
            ),
            format!(
                "give the process that computes, which may be one that it started (pgrep -P {}), and ask while it runs",
                process.pid
            ),
        ));
    }
    Ok(evidence::of(process, (&before, &after), began.elapsed().as_secs_f64()))
}

/// A measurement that is given, and what was seen of the process that it is of.
fn measured(args: &ExplainArgs, seen: Option<RunEvidence>) -> Result<(String, ExplainRequest), Failure> {
    let (workload, asked) = args.subject.workload()?;
    let request = ExplainRequest {
        operating_point: args.point(),
        workload,
        engine: EngineChoice::for_models(args.subject.engine)?,
        engine_version: args.engine_version.clone(),
        time_s: args.time,
        tokens_per_s: args.tokens_per_s,
        seen,
    };
    Ok((asked.to_string(), request))
}

/// A server, watched for as long as the arguments allow.
async fn watch(
    context: &mut Context,
    args: &ExplainArgs,
    address: Address,
    process: Option<Process>,
) -> Result<(String, ExplainRequest), Failure> {
    let has_gpu = observe::has_gpu(&mut context.client, false).await?;
    let key = args.api_key_file.as_deref();
    let owners = observe::Owners::of(args.server_user.as_deref())?;
    let server = Server::new(address, key, owners).await?;
    let subject = &args.subject;
    // What the caller names is what was expected; what runs is asked of the server.
    let named = subject.op.model(&subject.model)?;
    let as_it_is = SubjectOptions {
        model: named.clone(),
        format: subject.format.clone(),
        as_it_is: true,
        ..SubjectOptions::default()
    };
    let mut found = Subject::find(server, process, &as_it_is, has_gpu, (key, owners)).await?;
    found.enter_own_root();
    let unread = match observe::unreadable_model(&mut context.client, &found).await? {
        Some(why) => Some(unread_model(&found, named.is_some(), why)?),
        None => None,
    };
    let working = Working::new(&context.printer, Counted::Nothing, "watching the server");
    let began = Instant::now();
    let before = found.process.as_ref().map(evidence::Counters::read).transpose()?;
    let watched = observe::windows(&mut found, (INTERVAL, args.limit), WINDOWS).await;
    if watched.is_err() {
        // A process that ends closes its connections before it is gone.
        tokio::time::sleep(ENDING).await;
    }
    // That the process has ended says more than a connection that is refused.
    let after = found.process.as_ref().map(evidence::Counters::read).transpose()?;
    let observe::Steady { mut windows, skipped } = watched?;
    drop(working);
    let warming_ratio = warming(&windows);
    windows.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
    let Some(window) = windows.get(windows.len() / 2).copied() else {
        return Err(nothing_steady(args.limit, &skipped));
    };
    let mut seen = match (&found.process, &before, &after) {
        (Some(process), Some(before), Some(after)) => {
            evidence::of(process, (before, after), began.elapsed().as_secs_f64())
        }
        _ => RunEvidence::default(),
    };
    seen.warming_ratio = warming_ratio;
    let actual = found
        .model
        .clone()
        .filter(|actual| unread.is_none() && named.as_ref().is_some_and(|named| named != actual));
    seen.unseen.extend(unread);
    let expected = Workload {
        model: named.clone().or_else(|| found.model.clone()),
        format: subject.format.clone(),
        kv_format: subject.kv_format.map(|format| format.key().to_owned()),
        phase: Some("decode".to_owned()),
        batch: subject.batch.or(Some(window.batch)),
        context_tokens: subject.op.attention.context_tokens.or(window.context_tokens),
        threads: subject.run.threads,
        ..Workload::default()
    };
    let settings = found.process.as_ref().map(Process::settings).unwrap_or_default();
    seen.workload = Some(Workload {
        model: actual,
        kv_format: found.kv_format.clone(),
        batch: Some(window.batch),
        context_tokens: window.context_tokens,
        chunk_tokens: settings.chunk_tokens,
        threads: found
            .is_on_cpu
            .then_some(found.threads)
            .flatten()
            .and_then(|count| u32::try_from(count).ok()),
        offload: offload(&settings, has_gpu),
        ..Workload::default()
    });
    seen.engine_version = found.build.clone();
    let offloaded = seen.workload.as_ref().is_some_and(|workload| workload.offload.is_some());
    seen.unlike = settings.unlike;
    if settings.is_without_flash_attention {
        seen.unlike.push("--flash-attn off".to_owned());
    }
    // What is predicted is no unknown option.
    seen.unlike.retain(|option| !(offloaded && option == "--n-cpu-moe"));
    let request = ExplainRequest {
        operating_point: args.point(),
        workload: expected,
        engine: found.kind.engine(),
        engine_version: args.engine_version.clone(),
        time_s: Some(window.step_s),
        tokens_per_s: None,
        seen: Some(seen),
    };
    Ok((found.describe(), request))
}

/// The model that a server runs cannot be read: then it is not compared with the one that was named.
///
/// # Errors
/// None was named.
fn unread_model(found: &Subject, is_named: bool, why: String) -> Result<Unseen, Failure> {
    let path = found.model.as_ref().and_then(|model| model.get("path")?.as_str());
    // What this user meets says more than what the daemon does.
    let own = path.and_then(|path| match std::fs::File::open(path).err()?.kind() {
        ErrorKind::NotFound => Some(format!("{path} is not there")),
        ErrorKind::PermissionDenied => Some(format!("{path} may not be read")),
        _ => None,
    });
    let reason = own.unwrap_or(why);
    if is_named {
        return Ok(Unseen {
            what: "whether the server runs the model that you named".to_owned(),
            reason,
            grant: "run this as the server's user or with sudo; where it runs in a container, in there"
                .to_owned(),
        });
    }
    Err(Failure::failed(
        format!("the model of the server cannot be read ({reason})"),
        "run this as the server's user or with sudo, or name what it runs: \
         rooflinectl explain --port PORT MODEL --format FORMAT",
    ))
}

/// Step time of the window in the middle over that of the last one, where each was faster than the one before.
fn warming(windows: &[Window]) -> Option<f64> {
    let is_warming =
        windows.len() >= WINDOWS && windows.windows(2).all(|pair| pair[1].step_s < pair[0].step_s);
    let (middle, last) = (windows.get(windows.len() / 2)?, windows.last()?);
    is_warming.then(|| middle.step_s / last.step_s)
}

/// No stretch of steady decoding was seen.
fn nothing_steady(limit: Duration, skipped: &[Skip]) -> Failure {
    let most = skipped.iter().max_by_key(|skip| skipped.iter().filter(|other| other == skip).count());
    let why = most.map_or_else(String::new, |skip| format!(", mostly because {}", skip.reason()));
    let hint = match most {
        // Then the rate that clients see is not that of decoding.
        Some(Skip::Prompt | Skip::RequestsChanged | Skip::BatchVaried) => {
            "its rate includes reading prompts: keep the same requests generating, or give what was measured of decoding \
             alone: --tokens-per-s RATE"
        }
        _ => {
            "keep a request generating meanwhile, or watch longer with --for 30s; or give what was measured: --tokens-per-s RATE"
        }
    };
    let message = format!("the server generated nothing steadily in {} s{why}", limit.as_secs_f64());
    Failure::try_again(message, hint)
}

/// Layers that the settings keep on the CPU of a machine with a GPU.
fn offload(settings: &observe::Settings, has_gpu: bool) -> Option<Offload> {
    if !has_gpu {
        return None;
    }
    let gpu_layers = settings.gpu_layers.as_deref().and_then(|layers| layers.parse().ok());
    let offload = Offload {
        cpu_moe_layers: settings.cpu_moe_layers,
        gpu_layers: gpu_layers.filter(|_| !settings.is_all_on_the_gpu() && settings.cpu_moe_layers.is_none()),
    };
    (offload != Offload::default()).then_some(offload)
}
