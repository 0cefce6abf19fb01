//! A simulated board in place of the machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{FakeNvpmodel, Serve};

pub use rooflined_simulate::{Simulation, SimulationError};

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

/// The fake nvpmodel of a simulated board.
pub fn nvpmodel(args: &FakeNvpmodel) -> ExitCode {
    rooflined_simulate::nvpmodel_main(&args.root, &args.args)
}

/// The role of the probe on the board that is simulated in `root`.
pub fn probe(root: &Path) -> ExitCode {
    rooflined_simulate::probe_main(root)
}
