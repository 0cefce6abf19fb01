//! `--ssh HOST`: the same command line, run by the rooflinectl on that host. The socket is used where it lies and
//! ssh decides who may; files that the command names lie there too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use super::failure::{Exit, Failure};

/// What ssh exits with when it fails itself.
const SSH_FAILED: i32 = 255;

/// A host that does not answer is given up after seconds, where ssh waits for minutes.
const CONNECT: &str = "ConnectTimeout=10";

/// Runs `rooflinectl` with `args` on `host` and ends as it ends.
pub fn run(host: &str, args: impl Iterator<Item = OsString>) -> Result<Exit, Failure> {
    if host.is_empty() || host.starts_with('-') {
        return Err(Failure::usage(format!("{host:?} is not a host")));
    }
    if let Some((name, _)) = host.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
        return Err(Failure::usage(format!("{host} names a port, which ssh takes with ssh:// before it"))
            .with_hint(format!("write --ssh ssh://{host}, or --ssh {name} with the port in ~/.ssh/config")));
    }
    let status = Command::new("ssh")
        .args(["-o", CONNECT])
        .arg("--")
        .arg(host)
        .arg(build_remote_command(args))
        .status();
    let status = status.map_err(|error| {
        Failure::failed(format!("ssh cannot be started: {error}"), "install an OpenSSH client")
    })?;
    match status.code() {
        Some(SSH_FAILED) => Err(Failure::Message {
            exit: Exit::Unreachable,
            message: format!("{host} cannot be reached through ssh"),
            hint: Some(format!("try: ssh {host} rooflinectl status")),
        }),
        Some(code) => Err(Failure::Reported(exit_of(code))).or_else(|failure| match failure {
            Failure::Reported(Exit::Ok) => Ok(Exit::Ok),
            other => Err(other),
        }),
        None => {
            Err(Failure::failed("ssh was ended by a signal", format!("try: ssh {host} rooflinectl status")))
        }
    }
}

/// The exit code that the other rooflinectl ended with; 127 is the remote shell's, which found none.
fn exit_of(code: i32) -> Exit {
    let known = [
        Exit::Ok,
        Exit::Usage,
        Exit::Infeasible,
        Exit::Denied,
        Exit::RebootRequired,
        Exit::Unreachable,
        Exit::TryAgain,
    ];
    known.into_iter().find(|exit| *exit as i32 == code).unwrap_or(Exit::Failed)
}

/// One line for the remote shell: every argument but `--ssh HOST`, each in single quotes.
fn build_remote_command(args: impl Iterator<Item = OsString>) -> OsString {
    let mut line = b"rooflinectl".to_vec();
    let mut args = args;
    while let Some(arg) = args.next() {
        if arg == "--ssh" {
            args.next();
        } else if !arg.as_bytes().starts_with(b"--ssh=") {
            line.push(b' ');
            line.extend(quote(&arg));
        }
    }
    OsString::from_vec(line)
}

/// Within single quotes a shell reads everything but the single quote as it is.
fn quote(arg: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in arg.as_bytes() {
        if *byte == b'\'' { text.extend(b"'\\''") } else { text.push(*byte) }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_left_out_and_everything_else_is_quoted() {
        let args = ["--ssh", "board", "predict", "--requests", "it's; rm", "--ssh=x"].map(OsString::from);
        assert_eq!(
            build_remote_command(args.into_iter()),
            "rooflinectl 'predict' '--requests' 'it'\\''s; rm'"
        );
    }
}
