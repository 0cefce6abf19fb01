//! A board that lives in a directory.
//!
//! [`Simulation::create`] writes the files that a real board shows, as the kernel, the boot scripts and the driver
//! would, and a thread keeps them moving: clocks ramp, rails and temperatures follow the load, caps take effect,
//! heat and current slow the GPU down. Beside them lies a fake of the program nvpmodel. No value describes
//! hardware, and the marker [`MARKER`] says so to readers of the tree.
//!
//! What the daemon knows of such a board it reads from the files, like from any other. The true ceilings of the
//! accelerator are not among them.
//!
//! Files of the simulation itself, below `DIR/rooflined`:
//!
//! | file | holds |
//! |---|---|
//! | `simulated` | the key of the board |
//! | `load` | what a client of the accelerator does, until when: `gpu`, `memory`, `cpu` (0 to 1), `memory_kib`, `until_s` |
//! | `ambient_c` | the temperature of the room |
//! | `faults` | what the fake nvpmodel does wrong: `silent`, `hang`, `status_only`, `half`, `slow` |
//! | `held_mhz` | the clock that firmware holds the GPU at without naming a reason |
//! | `peaks` | part of the GPU clock that over-current events cost |
//! | `nvml/0/*` | what NVML answers |
//! | `lock` | held while the board lives |

mod conf;
mod kernel;
mod live;
mod nvpmodel;
mod physics;
mod simulated_probe;
mod spec;
mod tree;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use thiserror::Error;

use live::Life;
use spec::{BOARDS, Spec};

use rooflined_core::hardware::registry;
use rooflined_predict::calibration::Plan;
use rooflined_probe as bench;
use tempfile::TempDir;

pub use nvpmodel::Ending;
pub use simulated_probe::Simulated;

/// The file, below the root, that makes a tree a simulated one.
pub const MARKER: &str = "/rooflined/simulated";

#[derive(Debug, Error)]
pub enum SimulationError {
    #[error("no board {key:?} can be simulated; expected one of: {}", known.join(", "))]
    Unknown { key: String, known: Vec<&'static str> },
    /// The directory belongs to something else.
    #[error("{} is not empty and holds no simulated board; name an empty directory", path.display())]
    Occupied { path: PathBuf },
    /// The directory belongs to another board.
    #[error("{} holds a simulated {found}; name another directory for {asked}", path.display())]
    Other { path: PathBuf, found: String, asked: &'static str },
    /// Another process already runs this board.
    #[error("the simulated board in {} is alive in another process; end that or name another directory", path.display())]
    Busy { path: PathBuf },
    #[error("the simulated board in {} cannot be written: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Every simulated board watches its files.
    #[error(
        "a simulated board needs an inotify instance, and this user has as many as fs.inotify.max_user_instances allows ({}); end \
         other simulated boards, or raise it: sysctl fs.inotify.max_user_instances=1024",
        limit.as_deref().unwrap_or("unknown")
    )]
    NoWatch { limit: Option<String> },
}

impl SimulationError {
    /// Whether the board that was asked for is what is wrong.
    #[must_use]
    pub const fn is_of_the_name(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// The keys of the boards that can be simulated.
pub fn boards() -> impl Iterator<Item = &'static str> {
    BOARDS.iter().map(|spec| spec.key.as_str())
}

/// The board of that key or alias, as `--hardware` takes them.
fn find(key: &str) -> Option<&'static Spec> {
    let known = registry().get(key)?;
    BOARDS.iter().find(|spec| spec.key == known.key)
}

/// The key of the board that is simulated below `root`; `None` for any other tree.
#[must_use]
pub fn simulated(root: &Path) -> Option<String> {
    kernel::read(root, MARKER)
}

/// A board while it lives. Dropping it stops it; its files stay, unless it was made in a directory of its own.
#[derive(Debug)]
pub struct Simulation {
    // In this order: it stops, lets go of the directory, and removes it.
    life: Option<Life>,
    dir: PathBuf,
    key: &'static str,
    lock: Option<File>,
    /// Removed with it.
    _temporary: Option<TempDir>,
}

impl Simulation {
    /// Boots the board `key` in `dir`, or in a new directory that is removed in the end. A directory that holds the
    /// same board already is booted again: the saved power mode, the modes file and the room stay. `program` is the
    /// one that the script of the fake nvpmodel runs.
    ///
    /// # Errors
    /// There is no such board, or the directory is something else's, in use, or cannot be written.
    pub fn create(key: &str, dir: Option<&Path>, program: &Path) -> Result<Self, SimulationError> {
        let spec = find(key)
            .ok_or_else(|| SimulationError::Unknown { key: key.to_owned(), known: boards().collect() })?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SimulationError::Io { path, source }
        };
        let (dir, temporary) = match dir {
            Some(dir) => {
                DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed(dir))?;
                (dir.to_owned(), None)
            }
            None => {
                let readable = fs::Permissions::from_mode(0o755);
                let made =
                    tempfile::Builder::new().prefix("rooflined-board-").permissions(readable).tempdir();
                let made = made.map_err(failed(&std::env::temp_dir()))?;
                (made.path().to_owned(), Some(made))
            }
        };
        // The script of the fake nvpmodel names it, and is run from another directory.
        let dir = dir.canonicalize().map_err(failed(&dir))?;
        let mut simulation = Self { life: None, dir, key: &spec.key, lock: None, _temporary: temporary };
        simulation.claim(spec)?;
        simulation.boot(spec, program)?;
        Ok(simulation)
    }

    /// Sees that the directory is ours to write.
    fn claim(&mut self, spec: &'static Spec) -> Result<(), SimulationError> {
        let path = || self.dir.clone();
        let failed = |source| SimulationError::Io { path: path(), source };
        match simulated(&self.dir) {
            Some(found) if found == spec.key => {}
            Some(found) => return Err(SimulationError::Other { path: path(), found, asked: &spec.key }),
            None => {
                if fs::read_dir(&self.dir).map_err(failed)?.next().is_some() {
                    return Err(SimulationError::Occupied { path: path() });
                }
            }
        }
        let own = self.dir.join("rooflined");
        fs::create_dir_all(&own).map_err(failed)?;
        let lock = OpenOptions::new().create(true).append(true).open(own.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SimulationError::Busy { path: path() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // First of all: an interrupted boot leaves a directory that says what it is.
        fs::write(own.join("simulated"), format!("{}\n", spec.key)).map_err(failed)?;
        self.lock = Some(lock);
        Ok(())
    }

    fn boot(&mut self, spec: &'static Spec, program: &Path) -> Result<(), SimulationError> {
        let failed = |source| SimulationError::Io { path: self.dir.clone(), source };
        tree::write(spec, &self.dir).map_err(failed)?;
        tree::write_lasting(spec, &self.dir, program).map_err(failed)?;
        nvpmodel::boot(spec, &self.dir).map_err(failed)?;
        let watch = live::instance().map_err(|source| {
            // The same error says that this process has no descriptor left; then it could open no file either.
            if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) && File::open(&self.dir).is_ok() {
                let limit = kernel::read(Path::new("/"), "/proc/sys/fs/inotify/max_user_instances");
                SimulationError::NoWatch { limit }
            } else {
                failed(source)
            }
        })?;
        self.life = Some(Life::start(spec, &self.dir, watch).map_err(failed)?);
        Ok(())
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.key
    }
}

/// The program nvpmodel of the simulated board below `root`: `args` are its own.
///
/// # Errors
/// There is no simulated board, or the output is closed.
pub fn fake_nvpmodel(
    root: &Path,
    args: &[String],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    error: &mut dyn Write,
) -> io::Result<Ending> {
    let spec = simulated(root).and_then(|key| find(&key)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{} holds no simulated board", root.display()))
    })?;
    nvpmodel::run(spec, root, args, input, out, error)
}

/// The fake nvpmodel as a program: it gets `args`, and uses the standard streams of this process.
#[must_use]
pub fn nvpmodel_main(root: &Path, args: &[String]) -> ExitCode {
    let (mut out, mut error) = (io::stdout().lock(), io::stderr().lock());
    match fake_nvpmodel(root, args, &mut io::stdin().lock(), &mut out, &mut error) {
        Ok(Ending::Status(status)) => ExitCode::from(status),
        Ok(Ending::Died) => {
            // It does not return.
            let _ = kill_process(getpid(), Signal::KILL);
            ExitCode::FAILURE
        }
        Err(problem) => {
            // Nobody reads the output any more.
            let _ = writeln!(error, "NVPM ERROR: {problem}");
            ExitCode::from(255)
        }
    }
}

/// The subcommand `rooflined probe` on the accelerator of the board that is simulated in `root`.
#[must_use]
pub fn probe_main(root: &Path) -> ExitCode {
    let simulated =
        |plan: &Plan| -> io::Result<Box<dyn bench::Probe>> { Ok(Box::new(Simulated::new(root, plan)?)) };
    bench::probe_main(Some(&simulated), None, None)
}
