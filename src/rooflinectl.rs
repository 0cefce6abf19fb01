//! The client.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctl::main()
}
