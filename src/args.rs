//! The command line of `rooflined`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use rooflined_config::Bus;
use rooflined_core::names::InstructionSet;

/// Performance advice on the device itself: which precision, power mode and batch size meet my target?
#[derive(Debug, Parser)]
#[command(name = "rooflined", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub role: Option<Role>,
    #[command(flatten)]
    pub serve: Serve,
}

/// Role in which the program runs.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Run the daemon (the default)
    Serve(Serve),
    /// Run the measurement plan on standard input, print samples, exit
    Probe(Probe),
    /// Privileged helper: change power modes, as root, for the daemon
    Actuate(rooflined_actuator::Options),
    /// Fake nvpmodel of a simulated board
    #[command(hide = true, disable_help_flag = true)]
    FakeNvpmodel(FakeNvpmodel),
    /// Write the manual pages, for packagers
    #[command(hide = true)]
    Man {
        /// Directory to write them to
        dir: PathBuf,
    },
}

/// Options of `rooflined probe`.
#[derive(Debug, Clone, Default, Args)]
pub struct Probe {
    /// Directory of a simulated board to measure instead of this machine
    #[arg(long, value_name = "DIR")]
    pub simulate: Option<PathBuf>,
    /// Run every kernel for the GPU once instead, compare its results with the CPU's, and print a line for each
    #[arg(long, conflicts_with = "simulate")]
    pub verify: bool,
    /// File listing the kernels that were verified here, and those that faulted and are skipped
    #[arg(long, value_name = "FILE", conflicts_with_all = ["simulate", "verify"])]
    pub known: Option<PathBuf>,
    /// Vector instructions of the CPU to use
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(InstructionSet::ALL.map(InstructionSet::key)))]
    pub instruction_set: Option<String>,
    /// Hold the GPU and answer another probe
    #[arg(long, hide = true, exclusive = true)]
    pub worker: bool,
}

/// Options of `rooflined fake-nvpmodel`.
#[derive(Debug, Clone, Args)]
pub struct FakeNvpmodel {
    /// Directory of the simulated board
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Arguments of nvpmodel
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// Options of `rooflined serve`. Each overrides its key in the configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// Configuration file; conf.d/*.toml next to it is read too [default: /etc/rooflined/rooflined.toml, if any]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Root directory of the board's /sys, /proc and /etc [default: that of the configuration, /]
    #[arg(long, value_name = "DIR", env = "ROOFLINED_ROOT")]
    pub root: Option<PathBuf>,
    /// Board to simulate, in the directory named with --root or in a temporary one
    #[arg(long, value_name = "BOARD")]
    pub simulate: Option<String>,
    /// Directory for query.sock and control.sock
    #[arg(long, value_name = "DIR")]
    pub socket: Option<PathBuf>,
    /// D-Bus to appear on: system, session, none or an address
    #[arg(long, value_name = "BUS")]
    pub bus: Option<Bus>,
    /// Directory for calibrations and learned corrections
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,
    /// Exit when standard input is closed
    #[arg(long)]
    pub exit_on_stdin_close: bool,
}

/// Words of other programs, and what to type instead.
const HABITS: [(&str, &str); 9] = [
    (
        "recommend predict sweep analyze explain measure compare calibrate observe watch mode hold holds hardware models doctor demo metrics board",
        "rooflinectl COMMAND",
    ),
    ("start up run daemon", "rooflined serve, or the service: systemctl start rooflined"),
    ("stop down kill", "systemctl stop rooflined"),
    ("restart reload status enable disable", "systemctl COMMAND rooflined"),
    ("config check validate", "rooflined --check-config"),
    (
        "port listen host bind http",
        "it answers on sockets only; in a browser: rooflinectl dashboard --listen 8000",
    ),
    (
        "d daemonize detach background foreground",
        "leave it out: it stays in the foreground; as a service: systemctl start rooflined",
    ),
    ("v verbose debug log-level q quiet", "set the environment instead: ROOFLINED_LOG=debug rooflined"),
    ("c conf config-file", "--config FILE"),
];

/// The same mistake with what to type instead, where other programs have that word.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return error,
    };
    let Some(ContextValue::String(typed)) = error.get(kind) else { return error };
    let word = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
    let tip = match HABITS.iter().find(|(names, _)| names.split(' ').any(|name| name == word)) {
        Some((_, tip)) => tip.replace("COMMAND", word),
        None => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_role_with_the_same_options() {
        let bare = Cli::try_parse_from(["rooflined", "--socket", "/tmp/x", "--bus", "none"]).unwrap();
        assert!(bare.role.is_none());
        assert_eq!(bare.serve.socket.as_deref(), Some(Path::new("/tmp/x")));
        let named =
            Cli::try_parse_from(["rooflined", "serve", "--socket", "/tmp/x", "--bus", "none"]).unwrap();
        let Some(Role::Serve(serve)) = named.role else { panic!("not the serve role") };
        assert_eq!(serve.socket, bare.serve.socket);
        assert_eq!(serve.bus, bare.serve.bus);
    }

    #[test]
    fn the_fake_nvpmodel_gets_its_arguments_as_they_are() {
        let line = ["rooflined", "fake-nvpmodel", "--root", "/tmp/x", "-q", "--verbose", "-m", "1"];
        let Some(Role::FakeNvpmodel(fake)) = Cli::try_parse_from(line).unwrap().role else {
            panic!("another role")
        };
        assert_eq!(fake.args, ["-q", "--verbose", "-m", "1"]);
    }

    #[test]
    fn words_of_other_programs_are_answered_with_what_to_type() {
        for (line, tip) in [
            ("rooflined start", "systemctl start rooflined"),
            ("rooflined restart", "systemctl restart rooflined"),
            ("rooflined recommend", "rooflinectl recommend"),
            ("rooflined --port 80", "dashboard --listen"),
            ("rooflined -d", "stays in the foreground"),
        ] {
            let said = with_tip(Cli::try_parse_from(line.split(' ')).unwrap_err()).to_string();
            assert!(said.contains(tip), "{line}: {said}");
        }
    }

    #[test]
    fn a_bus_that_is_neither_a_name_nor_an_address_is_refused() {
        let error = Cli::try_parse_from(["rooflined", "--bus", "sytem"]).unwrap_err().to_string();
        assert!(error.contains("\"system\""), "says what is expected: {error}");
    }
}
