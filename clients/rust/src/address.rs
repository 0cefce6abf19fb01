//! Where a daemon listens; the same places in the same order as `rooflinectl`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which of the daemon's two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    let apart = PathBuf::from(apart);
    let beside = directory.join("control.sock");
    // Anyone may create a directory of that name below /tmp.
    let owner = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.uid());
    let is_trusted = owner(&apart).is_some_and(|found| found == 0 || Some(found) == owner(directory));
    let apart = apart.join("control.sock");
    let alone = is_trusted && apart.exists() && !beside.exists();
    if directory == Path::new("/run/rooflined") || alone { apart } else { beside }
}

/// One of the places where a daemon is looked for.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// Why whoever listens there is not asked.
    pub(crate) objection: Option<String>,
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self { address: Address::of_path(path), objection: None }
    }
}

/// Where to look now, best first: `given` alone, else `$ROOFLINED_SOCKET` alone, else the user's own places and the system's.
pub(crate) fn places(given: Option<&Path>) -> Vec<Place> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = given.map(Path::to_owned).or_else(|| variable("ROOFLINED_SOCKET")) {
        return vec![Place::from(&*named)];
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = variable("XDG_RUNTIME_DIR").filter(|directory| directory.is_absolute());
    let runtime = runtime.map(|directory| Place::from(&*directory.join("rooflined")));
    let temporary = private(Path::new(&format!("/tmp/rooflined-{uid}")), uid);
    runtime.into_iter().chain([temporary, Place::from(Path::new("/run/rooflined"))]).collect()
}

/// A directory whose name anyone may take: another user's daemon must not answer for ours.
fn private(directory: &Path, uid: u32) -> Place {
    let objection = match std::fs::symlink_metadata(directory) {
        Err(why) => Some(said(&why)),
        Ok(found) if found.is_symlink() => {
            Some("not used: its directory is a symbolic link; remove it".into())
        }
        Ok(found) if !found.is_dir() => {
            Some("not used: what should be its directory is a file; remove it".into())
        }
        Ok(found) if found.uid() != uid => {
            Some(format!("not used: its directory belongs to user {}; have it removed", found.uid()))
        }
        Ok(found) if found.mode() & 0o022 != 0 => {
            Some("not used: others may write to its directory; chmod go-w it, or remove it".into())
        }
        Ok(_) => None,
    };
    // Never the one beside it, which is anyone's as well.
    let address = Address { query: directory.join("query.sock"), control: directory.join("control.sock") };
    Place { address, objection }
}

/// What the system says, in lower case.
pub(crate) fn said(why: &io::Error) -> String {
    let text = why.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
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
        let [place] = &places(Some(Path::new("x/../y")))[..] else { panic!("one place") };
        assert_eq!(place.address.of(Socket::Query), Path::new("x/../y/query.sock"));
        assert!(places(None).len() >= 2 || std::env::var_os("ROOFLINED_SOCKET").is_some());
    }
}
