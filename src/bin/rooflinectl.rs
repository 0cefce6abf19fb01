//! The client.

use std::process::ExitCode;

fn main() -> ExitCode {
    rooflined::cli::main()
}
