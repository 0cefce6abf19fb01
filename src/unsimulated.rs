//! The same as `simulated` in a build that has no simulated boards: a request for one is refused with that reason.

use std::path::Path;
use std::process::ExitCode;

use thiserror::Error;

use super::args::{FakeNvpmodel, Serve};

/// There is no simulated board, and never will be.
#[derive(Debug, Error)]
#[error("this build has no simulated boards; build with --features simulate")]
pub struct SimulationError;

impl SimulationError {
    /// No name is one that could be simulated.
    #[expect(clippy::unused_self, reason = "that of a build with simulated boards asks itself")]
    pub const fn is_of_the_name(&self) -> bool {
        true
    }
}

/// A board while it lives: none does.
#[derive(Debug)]
pub enum Simulation {}

impl Simulation {
    /// The root of its files.
    pub const fn dir(&self) -> &Path {
        match *self {}
    }

    pub const fn key(&self) -> &'static str {
        match *self {}
    }
}

/// No board, if `args` ask for none.
///
/// # Errors
/// They ask for one.
pub fn start(args: &mut Serve) -> Result<Option<Simulation>, SimulationError> {
    if args.simulate.is_some() { Err(SimulationError) } else { Ok(None) }
}

/// The fake nvpmodel of a simulated board.
pub fn nvpmodel(_: &FakeNvpmodel) -> ExitCode {
    refused()
}

/// The role of the probe on a simulated board.
pub fn probe(_: &Path) -> ExitCode {
    refused()
}

fn refused() -> ExitCode {
    eprintln!("rooflined: error: {SimulationError}");
    ExitCode::FAILURE
}
