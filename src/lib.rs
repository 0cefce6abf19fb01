//! The daemon: starts everything, owns the governor's loop, and ends cleanly.

mod archive;
mod args;
mod calibrate;
mod logging;
mod manual;
mod notify;
mod power;
mod runtime;
mod sampler;
pub mod server;
mod settings;
#[cfg(feature = "simulate")]
mod simulated;
mod socket_error;
mod socket_paths;
mod sockets;
mod status;
pub mod store;
#[cfg(not(feature = "simulate"))]
mod unsimulated;

use std::future::Future;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use rustix::fs::Mode;
use rustix::process::umask;
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use archive::Archive;
use args::{Cli, Role, Serve};
use calibrate::Program;
use power::{Power, Way};
use runtime::{Runtime, duration, now, reloaded};
use sampler::Sampler;
use settings::Settings;
use simulated::SimulationError;
use socket_error::SocketError;
use socket_paths::SocketPaths;
use sockets::Sockets;
#[cfg(not(feature = "simulate"))]
use unsimulated as simulated;

use crate::server::{Control, ModelFiles, Snapshots, Socket, dbus, http};
use crate::store::StoreError;
use rooflined_advice::{Catalogue, Opener};
use rooflined_config::{ConfigError, DEFAULT_FILE, hardware_dir};
use rooflined_core::board::{BoardState, Reading};
use rooflined_core::hardware::{self, Registry};
use rooflined_governor::{Event, Governor, StoredHolds};
use rooflined_hw::{self, SysRoot};

/// Events that may wait for the loop.
const EVENTS: usize = 64;
/// Requests that may wait for the loop; further clients wait themselves.
const REQUESTS: usize = 64;
/// The probe, the servers and the last save may take this long together when the daemon ends.
const END: Duration = Duration::from_millis(1500);

/// Why the daemon did not run.
#[derive(Debug, Error)]
enum DaemonError {
    #[error("{0}\nhint: correct it, check it with `rooflined --check-config`, and try again")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    State(#[from] StoreError),
    #[error("there is no configuration file {}\nhint: give the path of a file, or leave --config out for {DEFAULT_FILE}, if there is one", .0.display())]
    NoConfiguration(PathBuf),
    #[error("{0}\nhint: for example: rooflined --simulate jetson-orin-nano-8gb-super")]
    NoBoard(SimulationError),
    #[error(transparent)]
    Simulation(SimulationError),
    #[error("cannot start: {0}; check the limits on processes, memory and open files (ulimit -a)")]
    System(#[from] io::Error),
    #[error("the manual pages cannot be written to {}: {source}; name a directory that you may write to", dir.display())]
    Manual { dir: PathBuf, source: io::Error },
    #[error("a server ended by itself: {0}; the log has the reason, please report it as a bug")]
    Server(String),
}

impl From<SimulationError> for DaemonError {
    fn from(error: SimulationError) -> Self {
        if error.is_of_the_name() { Self::NoBoard(error) } else { Self::Simulation(error) }
    }
}

/// Runs `rooflined` with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| args::with_tip(error).exit());
    let outcome = match cli.role {
        Some(Role::Probe(args)) if args.worker => return rooflined_probe::worker_main(),
        Some(Role::Probe(args)) if args.verify => return rooflined_probe::verify_main(),
        Some(Role::Probe(args)) => match &args.simulate {
            Some(root) => return simulated::probe(root),
            None => return rooflined_probe::probe_main(None, args.known, args.instruction_set.as_deref()),
        },
        Some(Role::Actuate(options)) => return rooflined_actuator::main(&options),
        Some(Role::FakeNvpmodel(args)) => return simulated::nvpmodel(&args),
        Some(Role::Man { dir }) => manual::write(&dir).map_err(|source| DaemonError::Manual { dir, source }),
        Some(Role::Serve(args)) => serve(args),
        None => serve(cli.serve),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rooflined: error: {error}");
            // As for every value that the command line cannot have.
            if matches!(error, DaemonError::NoBoard(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn serve(mut args: Serve) -> Result<(), DaemonError> {
    if let Some(file) = args.config.as_ref().filter(|file| !file.try_exists().unwrap_or(true)) {
        return Err(DaemonError::NoConfiguration(file.clone()));
    }
    // The configuration is checked without a board. Dropped last, after everything that reads the board.
    let simulation = if args.check_config { None } else { simulated::start(&mut args)? };
    let settings = Settings::load(&args)?;
    if args.check_config {
        say(&match settings.files.as_slice() {
            [] => "no configuration file: the defaults apply".to_owned(),
            files => format!("{}: valid", join(files)),
        });
        return Ok(());
    }
    if let Some(file) = &settings.config {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        rooflined_core::configuration::declare(file.display().to_string());
    }
    logging::start();
    if let Some(board) = &simulation {
        let (key, root) = (board.key(), board.dir().display());
        tracing::warn!(board = key, %root, simulated = true, "SIMULATED: no value describes hardware");
    }
    // Nothing that this process makes is for others until its mode says so.
    umask(Mode::RWXG | Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_stack_size(512 * 1024)
        .build()?;
    let ended = runtime.block_on(run(args, settings));
    // A file that a server still reads does not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    ended
}

/// From the first sample to the last save.
async fn run(args: Serve, settings: Settings) -> Result<(), DaemonError> {
    // First, so that from here on no signal ends the daemon without its cleaning up.
    let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let mut hangup = signal(SignalKind::hangup())?;
    let Sockets { query, control, replaceable, hold } =
        Sockets::open(&SocketPaths::find(settings.socket_dir.as_deref()))?;
    let paths = [path_of(Some(&query)), path_of(control.as_ref())];

    let (archive, earlier) = Archive::open(&settings.state_dir)?;
    // Before the machine is looked for among it.
    let catalogue = catalogue(&settings);
    let (mut board, gpu_fault, mut machine) = discover(&settings.root);
    if let (Reading::Absent { .. }, Some(declared)) = (&board.modes, &settings.declared_modes) {
        board.modes = Reading::Known(declared.clone());
    }
    // A probe must never measure this machine in place of a simulated one, whichever process simulates it.
    let simulated = board.simulated.then(|| settings.root.clone());
    let state = machine();
    let policy = &settings.policy;
    let governor = Governor::new(now(), board, state, earlier.record, earlier.residuals, policy).with_learnt(
        now(),
        earlier.observed_runs,
        earlier.reports,
    );
    let governor = governor.with_slow_servers(now(), earlier.servers);

    let governor = with_stored_holds(governor, earlier.holds, &catalogue);

    let (events_in, mut events) = mpsc::channel(EVENTS);
    let (requests_in, mut requests) = mpsc::channel(REQUESTS);
    let period = duration(policy.idle_period);
    let deliver = {
        let events = events_in.clone();
        move |state| events.blocking_send(Event::Sampled(Box::new(state))).is_ok()
    };
    let sampler = Sampler::start(period, machine, deliver)?;
    let (stop, stopping) = watch::channel(false);
    let mut control_end = Control::new(requests_in);
    control_end.catalogue = Arc::clone(&catalogue);
    control_end.files = Arc::new(ModelFiles::new(settings.model_dirs.clone()));
    let program = std::env::current_exe()?;
    let power = power(&settings, &program, events_in.clone());
    let known = settings.state_dir.join(store::GPU_KERNELS);
    let instruction_set = settings.policy.instruction_set;
    let program = Program { path: program, simulated, instruction_set, known };
    let mut daemon = Runtime::new(governor, events_in.clone(), (sampler, period), power, program, archive);
    let snapshots = daemon.snapshots();
    let servers = Servers { snapshots, control: control_end, events: events_in, stopping };
    let control_kind = replaceable.clone().map_or(Socket::Control, |refusal| Socket::Unsafe { refusal });
    let mut tasks = servers.start(&settings, query, (control, control_kind), &paths)?;

    if !earlier.problems.is_empty() {
        daemon.take(archive::degraded(Some(earlier.problems.join("; also ")))).await;
    }
    if let Some(refusal) = replaceable {
        let problem = Some(refusal.to_string());
        daemon.take(Event::Degraded { name: "control_socket", problem }).await;
    }
    // Not looked at again: a driver that loads later restarts the unit.
    if let Some(problem) =
        rooflined_hw::denied_nodes(&rooflined_hw::gpu_nodes(&rooflined_hw::SysRoot::new(&settings.root)))
    {
        tracing::warn!(%problem, "device nodes are denied");
        daemon.take(Event::Degraded { name: "gpu_nodes", problem: Some(problem) }).await;
    }
    if let Some(problem) = gpu_fault {
        daemon.take(Event::Degraded { name: "gpu", problem: Some(problem) }).await;
    }
    daemon.take(Event::Tick).await;

    let listening = paths.iter().flatten().cloned().collect::<Vec<_>>();
    say(&format!("listening on {}", join(&listening)));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        sockets = join(&listening),
        state_dir = %settings.state_dir.display(),
        "ready"
    );
    notify::ready(daemon.status());

    let reload = async || {
        hangup.recv().await;
        reload(&args, &settings)
    };
    let why = stop_reason(&mut signals, args.exit_on_stdin_close, &mut tasks);
    let outcome = daemon.run(&mut events, &mut requests, reload, why).await;

    notify::stopping();
    stop.send_replace(true);
    // Answers and events hold senders; nothing waits for a loop that no longer turns.
    drop(requests);
    let servers_end = async { while tasks.join_next().await.is_some() {} };
    let ended = async { tokio::join!(daemon.end(&mut events, END), servers_end) };
    if tokio::time::timeout(END, ended).await.is_err() {
        tracing::warn!("something did not end in time and is cut off");
    }
    drop(hold);
    tracing::info!("ended");
    outcome
}

/// Goes on with the holds of an earlier daemon of this boot.
fn with_stored_holds(governor: Governor, stored: StoredHolds, catalogue: &Catalogue) -> Governor {
    if !stored.holds.is_empty() {
        tracing::info!(
            count = stored.holds.len(),
            "holds from before the restart continue; waiting for their clients"
        );
    }
    let snapshot = governor.snapshot();
    governor.with_holds(now(), stored, |hold, request| {
        let query = server::power::stored_hold_query(&snapshot, catalogue, request);
        if let Err(refusal) = &query {
            tracing::warn!(app_id = hold.app_id, %refusal, "a hold ends: its query can no longer be answered");
        }
        query.ok()
    })
}

/// Known hardware, the user's own included; what is wrong with a file of it is logged and keeps no other out.
fn catalogue(settings: &Settings) -> Arc<Catalogue> {
    let (user, problems) = hardware_dir(&settings.hardware_dir);
    for problem in problems {
        tracing::warn!(%problem, "a description of hardware is not used");
    }
    hardware::declare(&user);
    // Files are read before a request is answered: this opens none.
    Arc::new(Catalogue::new(Registry::with(user), Opener::Daemon(Vec::new())))
}

/// What the servers share.
struct Servers {
    snapshots: Snapshots,
    control: Control,
    events: mpsc::Sender<Event>,
    stopping: watch::Receiver<bool>,
}

impl Servers {
    fn start(
        self,
        settings: &Settings,
        query: std::os::unix::net::UnixListener,
        (control, control_kind): (Option<std::os::unix::net::UnixListener>, Socket),
        paths: &[Option<PathBuf>; 2],
    ) -> io::Result<JoinSet<()>> {
        let mut tasks = JoinSet::new();
        let kinds = [Socket::Query { control: paths[1].clone() }, control_kind];
        for (listener, socket) in [Some(query), control].into_iter().zip(kinds) {
            let Some(listener) = listener else { continue };
            let listener = UnixListener::from_std(listener)?;
            let (snapshots, control) = (self.snapshots.clone(), self.control.clone());
            let limits = settings.limits.clone();
            tasks.spawn(http::serve(listener, socket, snapshots, control, limits, self.stopped()));
        }
        let on_state = {
            let events = self.events.clone();
            move |problem| {
                // Called from the loop's own thread, which must not wait for itself.
                let events = events.clone();
                tokio::spawn(async move { events.send(Event::Degraded { name: "bus", problem }).await });
            }
        };
        let stopped = self.stopped();
        tasks.spawn(dbus::run(settings.bus.clone(), self.snapshots, self.control, on_state, stopped));
        Ok(tasks)
    }

    /// Resolves when the daemon ends.
    fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.stopping.clone();
        async move {
            // An error means that the daemon is gone already.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }
}

/// Connection to the privileged helper. With control enabled it is opened at once.
fn power(settings: &Settings, program: &std::path::Path, events: mpsc::Sender<Event>) -> Power {
    let way = Way {
        program: program.to_owned(),
        root: settings.root.clone(),
        state_dir: settings.state_dir.clone(),
        socket: settings.actuator.clone(),
        config: settings.config.clone(),
    };
    Power::start(way, events, settings.policy.control_enabled)
}

/// What the machine is, why a GPU that it has cannot be used, and a function that reads how it is.
fn discover(
    root: &std::path::Path,
) -> (rooflined_core::board::Board, Option<String>, impl FnMut() -> BoardState + Send + 'static) {
    let root = SysRoot::new(root);
    let (board, discovered) = rooflined_hw::discover(&root);
    let gpu_fault = discovered.gpu_fault().map(str::to_owned);
    let mut sampler = rooflined_hw::Sampler::new(&root, discovered);
    (board, gpu_fault, move || rooflined_hw::read_state(&mut sampler, rooflined_hw::boot_time()))
}

/// Reads the configuration again. What is fixed at the start stays as it is, and a change of it is mentioned.
fn reload(args: &Serve, started_with: &Settings) -> Vec<Event> {
    notify::reloading();
    match Settings::load(args) {
        Ok(settings) => {
            match settings.waiting(started_with).as_slice() {
                [] => tracing::info!(files = join(&settings.files), "the configuration was read again"),
                keys => tracing::warn!(
                    "the configuration was read again; these take effect at the next start: {}",
                    keys.join(", ")
                ),
            }
            reloaded(Ok(settings.policy))
        }
        Err(error) => reloaded(Err(error.to_string())),
    }
}

/// Resolves when the daemon shall end, and says why in the log. A daemon that one of its servers has left is of no
/// use: it ends in an error, and the service manager starts another.
async fn stop_reason(
    signals: &mut [Signal; 2],
    exit_on_stdin_close: bool,
    servers: &mut JoinSet<()>,
) -> Result<(), DaemonError> {
    let [terminate, interrupt] = signals;
    let stdin = async {
        match exit_on_stdin_close.then(stdin_closed) {
            // A thread that does not start leaves the signals.
            Some(Ok(closed)) => drop(closed.await),
            _ => std::future::pending().await,
        }
    };
    let reason = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = stdin => "standard input was closed",
        Some(ended) = servers.join_next() => {
            let reason = ended.err().map_or_else(|| "without a reason".into(), |error| error.to_string());
            return Err(DaemonError::Server(reason));
        }
    };
    tracing::info!(reason, "ending");
    Ok(())
}

/// Resolves at the end of standard input. A read cannot be cancelled, hence a thread that the process does not wait
/// for.
fn stdin_closed() -> io::Result<oneshot::Receiver<()>> {
    let (closed, waiting) = oneshot::channel();
    thread::Builder::new().name("stdin".into()).stack_size(64 * 1024).spawn(move || {
        let (mut stdin, mut buffer) = (io::stdin().lock(), [0; 256]);
        while matches!(stdin.read(&mut buffer), Ok(1..)) {}
        drop(closed);
    })?;
    Ok(waiting)
}

/// Where a listener is bound.
fn path_of(listener: Option<&std::os::unix::net::UnixListener>) -> Option<PathBuf> {
    listener?.local_addr().ok()?.as_pathname().map(PathBuf::from)
}

/// A line on standard output, which may be closed.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
