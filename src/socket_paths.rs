//! Paths of the sockets, and that their directory is safe.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::socket_error::SocketError;

/// Paths of the two sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPaths {
    /// Socket of the queries, for everyone.
    pub query: PathBuf,
    /// Socket of what changes something, for those who may.
    pub control: PathBuf,
    /// Only this user may enter the directory.
    private: bool,
}

impl SocketPaths {
    /// Those in the directory asked for, or in the usual one of this user.
    #[must_use]
    pub fn find(asked: Option<&Path>) -> Self {
        let inside = |dir: &Path, private| Self {
            query: dir.join("query.sock"),
            control: dir.join("control.sock"),
            private,
        };
        if let Some(dir) = asked {
            return inside(dir, false);
        }
        if geteuid().is_root() {
            return Self {
                query: "/run/rooflined/query.sock".into(),
                control: "/run/rooflined-control/control.sock".into(),
                private: false,
            };
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        match runtime.filter(|dir| dir.is_absolute() && dir.is_dir()) {
            Some(dir) => inside(&dir.join("rooflined"), true),
            None => inside(Path::new(&format!("/tmp/rooflined-{}", geteuid().as_raw())), true),
        }
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.query.parent().into_iter().chain(self.control.parent())
    }

    /// Makes the directories where they are missing.
    ///
    /// # Errors
    /// They cannot be made, or somebody else could put false sockets into a private one.
    pub fn make_dirs(&self) -> Result<(), SocketError> {
        self.dirs().try_for_each(|dir| if self.private { make_private(dir) } else { make_open(dir) })?;
        self.control.parent().map_or(Ok(()), is_ours)
    }
}

/// A directory that others may enter; one that exists is left as it is.
fn make_open(dir: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Make { path: dir.to_owned(), source };
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).create(dir).map_err(failed)?;
    fs::set_permissions(dir, Permissions::from_mode(0o755)).map_err(failed)
}

/// The directory of the control socket belongs to root or to this user: another one could put a false socket there.
fn is_ours(dir: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Make { path: dir.to_owned(), source };
    let owner = fs::metadata(dir).map_err(failed)?.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(SocketError::NotPrivate { path: dir.to_owned(), what: format!("belongs to user {owner}") })
}

/// A directory of this user and nobody else. Its name may be guessable and its parent writable to everyone (/tmp).
fn make_private(dir: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Make { path: dir.to_owned(), source };
    let not_private = |what: String| SocketError::NotPrivate { path: dir.to_owned(), what };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(dir).map_err(failed)?;
    if found.is_symlink() {
        return Err(not_private("is a symbolic link".into()));
    }
    if !found.is_dir() {
        return Err(not_private("is not a directory".into()));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(not_private(format!("belongs to user {}", found.uid())));
    }
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_made_for_this_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("rooflined");
        make_private(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        make_private(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn no_control_socket_is_made_in_another_users_directory() {
        let parent = tempfile::tempdir().unwrap();
        let paths = SocketPaths::find(Some(parent.path()));
        paths.make_dirs().unwrap();
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can give a directory away; run as root");
            return;
        }
        std::os::unix::fs::chown(parent.path(), Some(65534), None).unwrap();
        let error = paths.make_dirs().unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534") && error.contains("could be replaced"), "{error}");
    }

    #[test]
    fn a_symbolic_link_is_no_private_directory() {
        let parent = tempfile::tempdir().unwrap();
        let (target, link) = (parent.path().join("target"), parent.path().join("link"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = make_private(&link).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        // /proc/1 belongs to root, or to nobody that this test is.
        let dir = Path::new("/proc/1");
        let foreign = fs::metadata(dir).is_ok_and(|found| found.uid() != geteuid().as_raw());
        if !foreign {
            eprintln!("skipped: this user owns {}", dir.display());
            return;
        }
        let error = make_private(dir).unwrap_err().to_string();
        assert!(error.contains("belongs to user"), "{error}");
    }
}
