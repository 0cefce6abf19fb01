//! The client.

use std::process::ExitCode;

fn main() -> ExitCode {
    rooflinectl::main()
}
