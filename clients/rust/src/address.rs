//! Where a daemon listens; the same places in the same order as `rooflinectl`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which of the daemon's two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// Answers everything that changes nothing.
    Query,
    /// The same, and what changes something.
    Control,
}

/// The sockets of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    query: PathBuf,
    control: PathBuf,
}

impl Address {
    /// The sockets that a path given by a person stands for: a directory, or one of the two files in it.
    fn of_path(path: &Path) -> Self {
        if path.extension().is_none_or(|extension| extension != "sock") {
            return Self { query: path.join("query.sock"), control: control_beside(path) };
        }
        // The control socket answers questions too.
        if path.file_name().is_some_and(|name| name == "control.sock") {
            return Self { query: path.to_owned(), control: path.to_owned() };
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        Self { query: path.to_owned(), control: control_beside(directory) }
    }

    /// The file of one socket.
    pub(crate) fn of(&self, socket: Socket) -> &Path {
        match socket {
            Socket::Query => &self.query,
            Socket::Control => &self.control,
        }
    }
}

/// The system's control socket lies in a directory of its own, `/run/rooflined-control`; others share one.
fn control_beside(directory: &Path) -> PathBuf {
    let mut apart = directory.components().as_path().as_os_str().to_owned();
    apart.push("-control");
    let apart = PathBuf::from(apart).join("control.sock");
    let beside = directory.join("control.sock");
    let alone = apart.exists() && !beside.exists();
    if directory == Path::new("/run/rooflined") || alone { apart } else { beside }
}

/// Best first: `given` alone, else `$ROOFLINED_SOCKET` alone, else the user's own places and the system's.
pub(crate) fn candidates(given: Option<&Path>) -> Vec<Address> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = given.map(Path::to_owned).or_else(|| variable("ROOFLINED_SOCKET")) {
        return vec![Address::of_path(&named)];
    }
    let uid = rustix::process::getuid().as_raw();
    let temporary = PathBuf::from(format!("/tmp/rooflined-{uid}"));
    // Anyone may create a directory of that name: another user's daemon must not answer for ours.
    let own = std::fs::symlink_metadata(&temporary).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    let runtime = variable("XDG_RUNTIME_DIR").map(|directory| directory.join("rooflined"));
    let places = runtime.into_iter().chain(own.then_some(temporary)).chain([PathBuf::from("/run/rooflined")]);
    places.map(|place| Address::of_path(&place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_each_socket_name_the_same_daemon() {
        let sockets = |path: &str| {
            let address = Address::of_path(Path::new(path));
            [Socket::Query, Socket::Control].map(|socket| address.of(socket).display().to_string())
        };
        assert_eq!(sockets("/x"), ["/x/query.sock", "/x/control.sock"]);
        assert_eq!(sockets("/x/query.sock"), ["/x/query.sock", "/x/control.sock"]);
        assert_eq!(sockets("/x/control.sock"), ["/x/control.sock", "/x/control.sock"]);
        let system = ["/run/rooflined/query.sock", "/run/rooflined-control/control.sock"];
        assert_eq!(sockets("/run/rooflined"), system);
        assert_eq!(sockets("/run/rooflined/")[1], system[1]);
    }

    #[test]
    fn a_given_path_is_the_only_place_looked_at() {
        assert_eq!(candidates(Some(Path::new("/x"))).len(), 1);
        assert!(!candidates(None).is_empty());
    }
}
