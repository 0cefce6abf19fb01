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
    let mut apart = directory.components().as_path().as_os_str().to_owned();
    apart.push("-control");
    let apart = PathBuf::from(apart);
    let beside = directory.join("control.sock");
    if directory == Path::new("/run/rooflined") {
        return apart.join("control.sock");
    }
    // Anyone may create a directory of that name below /tmp.
    let owner = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.uid());
    let trusted = owner(&apart).is_some_and(|found| found == 0 || Some(found) == owner(directory));
    let apart = apart.join("control.sock");
    if trusted && apart.exists() && !beside.exists() { apart } else { beside }
}

/// Whether a directory whose name anyone may take is this user's, and nobody else may put a socket there.
fn is_private(directory: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0)
}

/// Where to look for a daemon, best first: at `given` only, else in `$XDG_RUNTIME_DIR/rooflined`, in
/// `/tmp/rooflined-UID` if it belongs to this user and others may not write to it, and in `/run/rooflined`.
#[must_use]
pub fn candidates(given: Option<&Path>) -> Vec<Address> {
    if let Some(path) = given {
        return vec![Address::of_path(path)];
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    let temporary = PathBuf::from(format!("/tmp/rooflined-{uid}"));
    // Another user's daemon must not answer for ours.
    let own = is_private(&temporary, uid);
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
    fn a_directory_that_others_may_write_to_is_not_private() {
        use std::fs::{DirBuilder, Permissions, set_permissions};
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

        let outer = tempfile::tempdir().unwrap();
        let own = outer.path().join("own");
        DirBuilder::new().mode(0o755).create(&own).unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert!(is_private(&own, uid));
        assert!(!is_private(&own, uid + 1));
        for mode in [0o775, 0o757] {
            set_permissions(&own, Permissions::from_mode(mode)).unwrap();
            assert!(!is_private(&own, uid), "{mode:o}");
        }
        let link = outer.path().join("link");
        symlink(outer.path(), &link).unwrap();
        assert!(!is_private(&link, uid) && !is_private(&outer.path().join("missing"), uid));
    }

    #[test]
    fn a_control_directory_of_a_stranger_is_not_used() {
        let outer = tempfile::tempdir().unwrap();
        let [own, apart] = ["x", "x-control"].map(|name| outer.path().join(name));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&apart).unwrap();
        std::fs::write(apart.join("control.sock"), "").unwrap();
        assert_eq!(control_beside(&own), apart.join("control.sock"));
        // Only root can give a directory away.
        if std::os::unix::fs::chown(&apart, Some(12_345), None).is_ok() {
            assert_eq!(control_beside(&own), own.join("control.sock"));
        }
    }

    #[test]
    fn a_given_path_is_the_only_place_looked_at() {
        assert_eq!(candidates(Some(Path::new("/x"))).len(), 1);
        assert!(!candidates(None).is_empty());
    }
}
