//! Where a daemon listens.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which of the daemon's two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// Answers everything that changes nothing.
    Query,
    /// The same and what changes something.
    Control,
}

impl Socket {
    /// The socket that takes a route: what changes something is taken on the control socket alone.
    #[must_use]
    pub fn of_route(method: &str, path: &str) -> Self {
        let path = path.strip_prefix("/v1/").unwrap_or_default();
        let of_control = match method {
            "POST" => {
                ["calibrate", "measure", "mode", "mode/confirm", "mode/revert", "holds", "holds/attached"]
                    .contains(&path)
                    || path == "observations/confirm"
            }
            "PUT" | "DELETE" => path.starts_with("holds/"),
            _ => false,
        };
        if of_control { Self::Control } else { Self::Query }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Query => 0,
            Self::Control => 1,
        }
    }
}

/// The sockets of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    query: PathBuf,
    control: PathBuf,
}

impl Address {
    /// The sockets of a daemon that was started with `--socket directory`, or of the system's in /run/rooflined.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Self {
        Self { query: directory.join("query.sock"), control: control_beside(directory) }
    }

    /// The sockets that a path given by a person stands for: a directory, or one of the two files.
    #[must_use]
    pub fn of_path(path: &Path) -> Self {
        if path.extension().is_none_or(|extension| extension != "sock") {
            return Self::of_directory(path);
        }
        // The control socket answers queries too.
        if path.file_name().is_some_and(|name| name == "control.sock") {
            return Self { query: path.to_owned(), control: path.to_owned() };
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        Self { query: path.to_owned(), control: control_beside(directory) }
    }

    /// The file of one socket.
    #[must_use]
    pub fn of(&self, socket: Socket) -> &Path {
        match socket {
            Socket::Query => &self.query,
            Socket::Control => &self.control,
        }
    }
}

/// The system's control socket lies in a directory of its own, `/run/rooflined-control`; others share one.
fn control_beside(directory: &Path) -> PathBuf {
    let mut apart = directory.as_os_str().to_owned();
    apart.push("-control");
    let apart = PathBuf::from(apart).join("control.sock");
    let beside = directory.join("control.sock");
    if directory == Path::new("/run/rooflined") || (apart.exists() && !beside.exists()) {
        apart
    } else {
        beside
    }
}

/// Where to look for a daemon, best first: at `given` only, else in `$XDG_RUNTIME_DIR/rooflined`, in
/// `/tmp/rooflined-UID` if it belongs to this user, and in `/run/rooflined`.
#[must_use]
pub fn candidates(given: Option<&Path>) -> Vec<Address> {
    if let Some(path) = given {
        return vec![Address::of_path(path)];
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    let temporary = PathBuf::from(format!("/tmp/rooflined-{uid}"));
    // Anyone may create a directory of that name: another user's daemon must not answer for ours.
    let own = std::fs::symlink_metadata(&temporary).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    runtime
        .map(|directory| PathBuf::from(directory).join("rooflined"))
        .into_iter()
        .chain(own.then_some(temporary))
        .chain([PathBuf::from("/run/rooflined")])
        .map(|directory| Address::of_directory(&directory))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_each_socket_file_name_the_same_daemon() {
        let sockets = |path: &str| {
            let address = Address::of_path(Path::new(path));
            [Socket::Query, Socket::Control].map(|socket| address.of(socket).display().to_string())
        };
        assert_eq!(sockets("/x"), ["/x/query.sock", "/x/control.sock"]);
        assert_eq!(sockets("/x/query.sock"), ["/x/query.sock", "/x/control.sock"]);
        assert_eq!(sockets("/x/control.sock"), ["/x/control.sock", "/x/control.sock"]);
        assert_eq!(
            sockets("/run/rooflined"),
            ["/run/rooflined/query.sock", "/run/rooflined-control/control.sock"]
        );
    }

    #[test]
    fn a_given_path_is_the_only_place_looked_at() {
        assert_eq!(candidates(Some(Path::new("/x"))).len(), 1);
        assert!(!candidates(None).is_empty());
    }
}
