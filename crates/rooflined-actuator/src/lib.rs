//! The privileged helper: enter a power mode, find the way back, hand over a few files. Everything else is the daemon's.
//!
//! It trusts nobody. It reads the configuration and the modes itself, does only what both allow, and takes
//! only orders of a handful of verbs (`serve`). A switch is journalled before it is begun (`journal`), made by
//! the program `nvpmodel` (`tool`) or by a lock on the GPU's clock (`clocks`), judged by what the files read back
//! (`live`), and undone unless its client settles it (`switch`). Neither it nor the tool reaches another program
//! (`confine`).

mod clocks;
mod confine;
mod files;
mod journal;
mod live;
mod serve;
mod switch;
mod tool;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::clocks::Clocks;
use self::journal::Journal;
use self::switch::Helper;
use rooflined_config::DEFAULT_FILE;
use rooflined_hw::SysRoot;

/// Options of `rooflined actuate`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Serve one client on standard input until it closes
    #[arg(long, conflicts_with = "recover")]
    pub stdio: bool,
    /// Undo an earlier unconfirmed switch and exit
    #[arg(long)]
    pub recover: bool,
    /// Find /sys, /etc and nvpmodel of the board below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Keep the journal in this directory
    #[arg(long, value_name = "DIR", env = "STATE_DIRECTORY", default_value = "/var/lib/rooflined-actuate")]
    pub state_dir: PathBuf,
    /// Configuration file; conf.d/*.toml next to it is read too
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub config: PathBuf,
    /// User, besides root, that may give orders
    #[arg(long, value_name = "NAME", default_value = "rooflined")]
    pub user: String,
    /// End after this many seconds without a client
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub idle: f64,
    /// Kill nvpmodel when it runs for longer than this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = seconds)]
    pub time_limit: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let expected = || format!("{text:?} is not a number of seconds from 0.1 to 600");
    text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds)).ok_or_else(expected)
}

/// Runs the privileged helper until its client has gone, or until it has been idle for long enough.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rooflined actuate: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let root = SysRoot::new(&options.root);
    // First, so that nothing is run without it. In a tree that is not the machine nothing real is run.
    if let Err(error) = confine::confine() {
        if root.is_host() {
            let message =
                format!("the kernel takes no filter of system calls ({error}), so nvpmodel is not run");
            return Err(io::Error::other(message));
        }
        eprintln!("rooflined actuate: warning: the kernel takes no filter of system calls: {error}");
    }
    let time_limit = Duration::from_secs_f64(options.time_limit);
    // An actuator before this one may still be restoring, which runs the tool once.
    let journal = Journal::open(&options.state_dir, time_limit + Duration::from_secs(5))
        .map_err(|error| io::Error::other(format!("{}: {error}", options.state_dir.display())))?;
    let boot_id = boot_id(&root);
    let clocks = Clocks::new(&root, &options.state_dir, &boot_id);
    let config = options.config.clone();
    let mut helper =
        Helper { root, config, time_limit, clocks, journal, unsettled: None, recovered: None, boot_id };
    helper.recover();
    if let Some(recovered) = &helper.recovered {
        eprintln!("rooflined actuate: {recovered}");
    }
    if options.recover {
        return match helper.undo() {
            Ok(message) => {
                eprintln!("rooflined actuate: {message}");
                Ok(())
            }
            Err(message) => Err(io::Error::other(message)),
        };
    }
    if options.stdio {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        return serve::serve_one(&mut helper, UnixStream::from(stdin));
    }
    let listener = listenfd::ListenFd::from_env().take_unix_listener(0)?;
    let Some(listener) = listener else {
        let message = "no socket was handed over; start rooflined-actuate.socket, or give --stdio";
        return Err(io::Error::other(message));
    };
    // Handed over without it, and no business of the tool.
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)?;
    serve::serve(&mut helper, &listener, &options.user, Duration::from_secs_f64(options.idle))
}

/// Tells boots apart. A tree that has none is of the boot that we run in.
fn boot_id(root: &SysRoot) -> String {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text = root.read(FILE).or_else(|_| SysRoot::host().read(FILE)).unwrap_or_default();
    text.trim().to_owned()
}
