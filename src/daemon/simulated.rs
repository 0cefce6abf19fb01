//! A simulated board in place of the machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Signal, getpid, kill_process};

use super::args::{Serve, StandIn};
use crate::hw::simulate::{self, Ending, Simulation, SimulationError};

/// Boots the board that `args` ask for, and lets them say the rest: its files are the root, and what is kept is kept
/// below it.
///
/// # Errors
/// There is no such board, or its directory cannot be used.
pub fn start(args: &mut Serve) -> Result<Option<Simulation>, SimulationError> {
    let Some(key) = &args.simulate else { return Ok(None) };
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("rooflined"));
    let simulation = Simulation::create(key, args.root.as_deref(), &program)?;
    args.root = Some(simulation.dir().to_owned());
    args.state_dir.get_or_insert_with(|| simulation.dir().join("rooflined/state"));
    Ok(Some(simulation))
}

/// Where the simulated accelerator is that a probe of `root` must measure; `None` where the machine is real. A tree
/// that another process simulates is no less simulated.
pub fn accelerator(root: &Path) -> Option<PathBuf> {
    simulate::simulated(root).map(|_| root.to_owned())
}

/// The role of the stand-in nvpmodel.
pub fn nvpmodel(args: &StandIn) -> ExitCode {
    let (mut out, mut error) = (io::stdout().lock(), io::stderr().lock());
    let ending =
        simulate::stand_in_nvpmodel(&args.root, &args.args, &mut io::stdin().lock(), &mut out, &mut error);
    match ending {
        Ok(Ending::Status(status)) => ExitCode::from(status),
        Ok(Ending::Died) => {
            // It does not return.
            let _ = kill_process(getpid(), Signal::KILL);
            ExitCode::FAILURE
        }
        Err(problem) => {
            // Whoever is not listening is not told.
            let _ = writeln!(error, "NVPM ERROR: {problem}");
            ExitCode::from(255)
        }
    }
}
