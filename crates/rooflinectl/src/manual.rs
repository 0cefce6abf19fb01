//! `man`: the manual pages, made of the definition of the arguments.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use super::args::Cli;
use super::failure::Failure;
use super::output::Printer;

pub fn run(printer: &Printer, dir: Option<&Path>) -> Result<(), Failure> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page).map_err(|error| {
            Failure::failed(format!("the page cannot be made: {error}"), "please report it as a bug")
        })?;
        return printer.bytes(&page);
    };
    let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.map_err(|error| {
        let message = format!("the pages cannot be written to {}: {error}", dir.display());
        Failure::failed(message, "name a directory that you may write to")
    })
}
