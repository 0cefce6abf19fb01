//! The manual pages of `rooflined`, made of the definition of its arguments.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::args::Cli;

/// A page for the program and one for each of its roles, of section 8.
///
/// # Errors
/// The directory or a file in it cannot be written.
pub fn write(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut program = Cli::command().disable_help_subcommand(true);
    // Gives the roles their full names.
    program.build();
    let roles =
        program.get_subcommands().filter(|role| !role.is_hide_set()).cloned().collect::<Vec<Command>>();
    for command in roles.into_iter().chain([program]) {
        Man::new(command).section("8").generate_to(dir)?;
    }
    Ok(())
}
