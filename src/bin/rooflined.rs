//! The daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("probe") {
        return rooflined::bench::probe_main();
    }
    ExitCode::SUCCESS
}
