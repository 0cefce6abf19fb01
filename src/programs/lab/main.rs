//! The laboratory.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::main()
}
