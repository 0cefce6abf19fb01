//! The laboratory.

use std::process::ExitCode;

fn main() -> ExitCode {
    rooflined_lab::main()
}
