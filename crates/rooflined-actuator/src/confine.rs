//! What neither this process nor the tool it runs can do, for any user: reach another program through a socket,
//! or have the machine rebooted.
//!
//! The tool is root and so are a bus, the service manager and init, which would do anything for it. No mount of the unit
//! and no capability stands between them for good: a socket lies behind every /proc/PID/root, and init takes a signal for
//! an order. So the kernel refuses the system calls themselves (seccomp), for this process and all that it starts. The
//! socket that clients come through was made by somebody else, and `accept` needs none of them.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::Eq;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

/// No socket is made, and not by io_uring, which asks nobody. No reboot, and no kernel to reboot into.
const NEVER: [c_long; 7] = [
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_io_uring_setup,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    // What it signals is a descriptor, which cannot be told from that of init.
    libc::SYS_pidfd_send_signal,
];

/// Init reboots, halts or drops to a shell by signal: no signal to it, by the argument that names the process, and none
/// to everybody at once.
const SIGNALS: [(c_long, u8); 5] = [
    (libc::SYS_kill, 0),
    (libc::SYS_tkill, 0),
    (libc::SYS_tgkill, 1),
    (libc::SYS_rt_sigqueueinfo, 0),
    (libc::SYS_rt_tgsigqueueinfo, 1),
];
const INIT: u64 = 1;
/// -1, as the 32 bits of a process number.
const EVERYBODY: u64 = 0xffff_ffff;
/// Chooses which signal announces that a file is ready, and so sends any.
const F_SETSIG: u64 = 10;

/// Takes all of that from this thread and what it starts, for good.
pub(super) fn confine() -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

fn program() -> Result<BpfProgram, BackendError> {
    let argument = |index, value| SeccompCondition::new(index, Dword, Eq, value);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = NEVER.map(|call| (call, Vec::new())).into();
    for (call, index) in SIGNALS {
        let whom = [INIT, EVERYBODY].map(|whom| SeccompRule::new(vec![argument(index, whom)?]));
        rules.insert(call, whom.into_iter().collect::<Result<_, _>>()?);
    }
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![argument(1, F_SETSIG)?])?]);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    #[test]
    fn neither_sockets_nor_signals_to_init_get_through_and_the_rest_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let bus = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        // Of this thread alone: the test goes on without it.
        let confined = move || {
            if let Err(error) = confine() {
                return Err(error.to_string());
            }
            let denied = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            denied(UnixStream::connect(&path).unwrap_err());
            denied(UnixDatagram::unbound().unwrap_err());
            denied(UnixStream::pair().unwrap_err());
            let (accepted, _) = bus.accept().expect("a socket that is there already accepts");
            drop((accepted, client));
            let sh = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap().success();
            // Signal 0 is a question: of init only root is answered, and here not even root.
            assert!(!sh("kill -0 1"));
            assert!(!sh("kill -0 -1"), "everybody is init as well");
            assert!(sh("sleep 60 & kill $!"), "its own children are its own business");
            Ok(())
        };
        if let Err(reason) = std::thread::spawn(confined).join().unwrap() {
            // An emulated kernel has none.
            assert!(std::env::var_os("QEMU_CPU").is_some(), "this kernel has no seccomp: {reason}");
            eprintln!("SKIPPED: {reason}");
        }
    }
}
