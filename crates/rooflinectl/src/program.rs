//! From the command line of this process to its exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command, Global, ModeCommand};
use super::context::Context;
use super::failure::{Exit, Failure};
use super::output::{Format, Printer};
use super::words::without_numbers;
use super::{
    bundle, calibrate, commands, compare, completions, configuration, contents, dashboard, demo, doctor,
    explain, features, formats, forms, hardware, hold, manual, mcp, meant, measure, mistakes, models, modes,
    nvpmodel, observations, observe, quant_error, requests, rooflines, run, servers, ssh, tiling, watch,
};
use rooflined_client::Client;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    program(run)
}

/// Reads the command line of this process, runs it, and ends as it ends.
pub fn program<C: Parser>(run: impl FnOnce(C) -> Result<Exit, Failure>) -> ExitCode {
    let words = typed_words();
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let of_words = || mistakes::of_words(&words).filter(|_| error.use_stderr());
            if let Some(failure) = mistakes::glued_option(&words, &C::command()).or_else(of_words) {
                report(&failure);
                return ExitCode::from(failure.code());
            }
            let error = mistakes::with_suggestions(error, &C::command(), &words);
            // Help goes to standard output and a mistake to standard error; neither may fail on a closed pipe.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let code = match run(cli) {
        Ok(exit) => exit as u8,
        Err(failure) => {
            let of_words = mistakes::of_words(&words).filter(|_| failure.exit() == Exit::Usage);
            let failure = of_words.unwrap_or(failure);
            report(&failure);
            failure.code()
        }
    };
    ExitCode::from(code)
}

/// The command line of this process.
fn typed_words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Says on standard error what went wrong and what to do next.
fn report(failure: &Failure) {
    use std::io::Write;
    if failure.is_silent() {
        return;
    }
    let mut errors = std::io::stderr().lock();
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(errors, "error: {}", without_numbers(&failure.to_string()));
    if let Some(hint) = failure.hint() {
        let _ = writeln!(errors, "hint: {hint}");
    }
    for problem in failure.further_problems() {
        let _ = writeln!(errors, "error: {problem}");
        if let Some(hint) = &problem.hint {
            let _ = writeln!(errors, "hint: {hint}");
        }
    }
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    if let Some(host) = &cli.global.ssh {
        if let Command::Dashboard(args) = &cli.command {
            return Err(dashboard::refuse_over_ssh(host, args));
        }
        return ssh::run(host, std::env::args_os().skip(1));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::failed(format!("cannot start: {error}"), "raise the limit on open files: ulimit -n")
    })?;
    if let Some(note) = meant::runner(&typed_words()).filter(|_| cli.global.output == Format::Human) {
        use std::io::Write;
        // The answer matters more than a note that nobody can read.
        let _ = writeln!(std::io::stderr(), "note: {note}");
    }
    let has_options = !cli.command.takes_requests();
    let ended = runtime
        .block_on(dispatch(cli))
        .map_err(|failure| if has_options { failure.naming_option() } else { failure });
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
        client: Client::new(socket(&global).as_deref(), global.timeout).preparing(contents::define_models),
        printer: Printer::from_environment(global.output, global.ascii),
        catalogue: None,
        timeout: global.timeout,
    };
    let context = &mut context;
    match cli.command {
        Command::Mcp => mcp::run(&global).await?,
        Command::Status(args) => commands::status(context, &args).await?,
        Command::Board => commands::board(context).await?,
        Command::Roofline(args) => rooflines::run(context, &args).await?,
        Command::Predict(args) => match &args.requests {
            Some(file) => return requests::run(context, file).await,
            None => return commands::predict(context, &args).await,
        },
        Command::Sweep(args) => commands::sweep(context, &args).await?,
        Command::Compare(args) => compare::run(context, &args).await?,
        Command::Measure(args) => measure::run(context, &args).await?,
        Command::Analyze(args) => return commands::analyze(context, &args).await,
        Command::Explain(args) => explain::run(context, &args).await?,
        Command::Calibrate(args) => calibrate::run(context, &args).await?,
        Command::Recommend(args) => return commands::recommend(context, &args).await,
        Command::Observe(args) if args.from.is_some() || args.pid.is_some() => {
            observe::run(context, &args).await?;
        }
        Command::Observe(args) => commands::observe(context, &args).await?,
        Command::Servers => servers::run(context).await?,
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
        Command::Mode(ModeCommand::List { conf: Some(conf) }) => nvpmodel::list(&context.printer, &conf)?,
        Command::Mode(ModeCommand::List { conf: None }) => modes::list(context).await?,
        Command::Mode(ModeCommand::Get) => modes::get(context).await?,
        Command::Mode(ModeCommand::Set(args)) => return modes::set(context, &args).await,
        Command::Mode(ModeCommand::Confirm { id }) => modes::confirm(context, id).await?,
        Command::Mode(ModeCommand::Revert { id }) => modes::revert(context, id).await?,
        Command::Hold(args) => return hold::run(context, &args).await,
        Command::Holds => modes::holds(context).await?,
        Command::Config(command) => return configuration::run(&context.printer, &command),
        Command::Hardware(command) => return hardware::run(&context.printer, &command),
        Command::Models(command) => return models::run(&context.printer, &command),
        Command::Formats => formats::run(&context.printer)?,
        Command::Demo(args) => return demo::run(&context.printer, &args).await,
        Command::Completions { shell } => completions::run(&context.printer, shell)?,
        Command::Man { command, dir } => manual::run(&context.printer, &command, dir.as_deref())?,
    }
    Ok(Exit::Ok)
}
