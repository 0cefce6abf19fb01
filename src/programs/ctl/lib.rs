//! The command line: arguments in, tables, plots and JSON out, exit codes.

mod args;
mod bundle;
mod calibrate;
mod chart;
mod commands;
mod compare;
mod compare_engine;
mod compare_models;
mod comparison;
mod completions;
mod configuration;
mod contents;
mod dashboard;
mod demo;
mod details;
mod doctor;
pub mod failure;
mod features;
mod flatten;
mod formats;
mod forms;
mod hardware;
mod headline;
mod hold;
mod input;
mod joint;
mod manual;
mod mistakes;
mod mode;
mod model_work;
mod models;
mod modes_compared;
mod observations;
mod observe;
pub mod output;
mod plot;
mod power;
mod quant_error;
mod recommend_watch;
mod requests;
mod rooflines;
mod run;
mod server_address;
mod show;
mod ssh;
mod svg;
pub mod table;
mod tensors;
mod textfile;
mod tiling;
mod typed;
mod watch;
mod watts;
mod words;
mod working;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use answer::{Catalogue, Opener, Request, suppose};
use args::{Cli, Command, Global, ModeCommand};
use failure::{Exit, Failure, refused};
use output::Printer;
use wire::client::{Answer, Client, ClientError};
use working::{Counted, Working};

/// What a command works with.
struct Context {
    client: Client,
    printer: Printer,
    catalogue: Option<Arc<Catalogue>>,
    /// Longest wait for an answer.
    timeout: Duration,
}

impl Context {
    /// What answers about other hardware are given from; read when it is first needed.
    fn catalogue(&mut self) -> Arc<Catalogue> {
        let catalogue =
            self.catalogue.get_or_insert_with(|| Arc::new(Catalogue::new(hardware::known(), Opener::Caller)));
        Arc::clone(catalogue)
    }

    /// Asks the daemon, or, about hardware that is named, its data sheet.
    async fn ask<T: Serialize>(
        &mut self,
        route: &str,
        body: T,
        question: impl FnOnce(T) -> Request,
    ) -> Result<Answer, Failure> {
        let encoded = serde_json::to_vec(&body)
            .map_err(|source| ClientError::Unsendable { reason: source.to_string() })?;
        let request = question(body);
        let named = request.hardware().is_some();
        let what = if named { "computing" } else { "waiting for the daemon's answer" };
        let _working = Working::new(&self.printer, Counted::Nothing, what);
        if !named {
            return Ok(self.client.post_bytes(route, encoded).await?);
        }
        self.supposed(&request)
    }

    /// Answers about hardware that is named, by its data sheet.
    fn supposed(&mut self, request: &Request) -> Result<Answer, Failure> {
        let answer = suppose(&self.catalogue(), request).map_err(refused)?;
        let body = serde_json::to_vec(&answer).map_err(|source| ClientError::Unexpected { source })?;
        Ok(Answer { serial: None, body: body.into() })
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    program(run)
}

/// Reads the command line of this process, runs it, and ends as it ends.
pub fn program<C: Parser>(run: impl FnOnce(C) -> Result<Exit, Failure>) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let error = mistakes::with_suggestions(error, &C::command(), &words);
            // Help goes to standard output and a mistake to standard error; neither may fail on a closed pipe.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let code = match run(cli) {
        Ok(exit) => exit as u8,
        Err(failure) => {
            report(&failure);
            failure.code()
        }
    };
    ExitCode::from(code)
}

/// Says on standard error what went wrong and what to do next.
fn report(failure: &Failure) {
    use std::io::Write;
    if failure.is_silent() {
        return;
    }
    let mut errors = std::io::stderr().lock();
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(errors, "error: {failure}");
    if let Some(hint) = failure.hint() {
        let _ = writeln!(errors, "hint: {hint}");
    }
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    if let Some(host) = &cli.global.ssh {
        if let Command::Dashboard(args) = &cli.command {
            return Err(dashboard::elsewhere(host, args));
        }
        return ssh::run(host, std::env::args_os().skip(1));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::failed(format!("cannot start: {error}"), "raise the limit on open files: ulimit -n")
    })?;
    let as_typed = !cli.command.takes_requests();
    let ended = runtime
        .block_on(dispatch(cli))
        .map_err(|failure| if as_typed { typed::failure(failure) } else { failure });
    // A disk that does not answer keeps a thread, and nobody waits for that.
    runtime.shutdown_background();
    ended
}

/// Where the daemon is, by the option or by the environment. The parser does not look there itself: it would then show the option
/// as one that is needed.
fn socket(global: &Global) -> Option<PathBuf> {
    let named = || std::env::var_os("ROOFLINED_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from);
    global.socket.clone().or_else(named)
}

async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let global = cli.global;
    forms::check(&cli.command, global.output)?;
    let mut context = Context {
        client: Client::new(socket(&global).as_deref(), global.timeout).preparing(contents::enclosed),
        printer: Printer::from_environment(global.output, global.ascii),
        catalogue: None,
        timeout: global.timeout,
    };
    let context = &mut context;
    match cli.command {
        Command::Status => commands::status(context).await?,
        Command::Board => commands::board(context).await?,
        Command::Roofline(args) => rooflines::run(context, &args).await?,
        Command::Predict(args) => match &args.requests {
            Some(file) => return requests::run(context, file).await,
            None => commands::predict(context, &args).await?,
        },
        Command::Sweep(args) => commands::sweep(context, &args).await?,
        Command::Compare(args) => compare::run(context, &args).await?,
        Command::Measure(args) => compare::measure(context, &args).await?,
        Command::Analyze(args) => commands::analyze(context, &args).await?,
        Command::Calibrate(args) => calibrate::run(context, &args).await?,
        Command::Recommend(args) => match &args.joint {
            Some(file) => return joint::run(context, file, args.machine.hardware.as_deref()).await,
            None => return commands::recommend(context, &args).await,
        },
        Command::Observe(args) if args.from.is_some() || args.pid.is_some() => {
            observe::run(context, &args).await?;
        }
        Command::Observe(args) => commands::observe(context, &args).await?,
        Command::Run(args) => return run::run(context, &args).await,
        Command::Observations(command) => observations::run(context, &command).await?,
        Command::QuantError(args) => quant_error::run(&context.printer, &args)?,
        Command::Tiling(args) => tiling::run(context, &args).await?,
        Command::Watch(args) => watch::run(context, &args).await?,
        Command::Dashboard(args) => dashboard::run(context, &args).await?,
        Command::Metrics(args) => commands::metrics(context, &args).await?,
        Command::Features(args) => features::run(context, &args).await?,
        Command::Doctor(args) => return doctor::run(context, &args).await,
        Command::Bundle(args) => bundle::run(&context.printer, &args)?,
        Command::Mode(ModeCommand::List { conf: Some(conf) }) => mode::list(&context.printer, &conf)?,
        Command::Mode(ModeCommand::List { conf: None }) => power::list(context).await?,
        Command::Mode(ModeCommand::Get) => power::get(context).await?,
        Command::Mode(ModeCommand::Set(args)) => return power::set(context, &args).await,
        Command::Mode(ModeCommand::Confirm { id }) => power::confirm(context, id).await?,
        Command::Mode(ModeCommand::Revert { id }) => power::revert(context, id).await?,
        Command::Hold(args) => return hold::run(context, &args).await,
        Command::Holds => power::holds(context).await?,
        Command::Config(command) => return configuration::run(&context.printer, &command),
        Command::Hardware(command) => return hardware::run(&context.printer, &command),
        Command::Models(command) => return models::run(&context.printer, &command),
        Command::Formats => formats::run(&context.printer)?,
        Command::Demo(args) => return demo::run(&context.printer, &args).await,
        Command::Completions { shell } => completions::run(&context.printer, shell)?,
        Command::Man { dir } => manual::run(&context.printer, dir.as_deref())?,
    }
    Ok(Exit::Ok)
}
