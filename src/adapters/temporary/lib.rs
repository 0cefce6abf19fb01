//! Temporary directories of this program. One is removed with its value; that of a process that was killed is removed by
//! the next that makes one.
//!
//! A process holds a lock on its directory for as long as it lives, so that a directory without one is nobody's.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

/// What a directory is for; the start of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A private daemon of `rooflinectl`.
    Demo,
    /// A simulated board.
    Board,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Demo, Self::Board];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Demo => "rooflined-demo-",
            Self::Board => "rooflined-board-",
        }
    }
}

/// Between making a directory and locking it a process needs less than this.
const MAKING: Duration = Duration::from_secs(10);
/// Digits behind the prefix.
const DIGITS: usize = 8;
/// Locks of daemons and boards inside: whoever started them may be gone before they are.
const INNER_LOCKS: [&str; 2] = ["rooflined.lock", "rooflined/lock"];

/// A directory of this process, removed in the end.
#[derive(Debug)]
pub struct TemporaryDir {
    path: PathBuf,
    _lock: File,
}

impl TemporaryDir {
    /// A name that is not taken, for [`TemporaryDir::create`].
    #[must_use]
    pub fn name(kind: Kind) -> String {
        format!("{}{:08x}", kind.prefix(), fastrand::u32(..))
    }

    /// Makes the directory at `path`, whose last part is a [`TemporaryDir::name`], and clears up beside it.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub fn create(path: PathBuf, mode: u32) -> io::Result<Self> {
        if let Some(base) = path.parent() {
            clear_up(base, MAKING);
        }
        DirBuilder::new().mode(mode).create(&path)?;
        let lock = open(&path, OFlags::DIRECTORY)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What cannot be removed now will not be removable by trying again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories in `base` that processes of this user have left behind, unless they are younger than `making`. One
/// that cannot be removed is left to the next.
fn clear_up(base: &Path, making: Duration) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_ours) {
            let _ = remove_abandoned(&entry.path(), making);
        }
    }
}

fn is_ours(name: &str) -> bool {
    let digits = Kind::ALL.iter().find_map(|kind| name.strip_prefix(kind.prefix()));
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The lock is held until it is gone, so that no other process removes it at the same time.
fn remove_abandoned(path: &Path, making: Duration) -> io::Result<()> {
    // Not what a link leads to.
    let dir = open(path, OFlags::DIRECTORY)?;
    let found = dir.metadata()?;
    let is_new = found.modified()?.elapsed().is_ok_and(|age| age < making);
    if found.uid() != geteuid().as_raw() || is_new {
        return Ok(());
    }
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    for name in INNER_LOCKS {
        match open(&path.join(name), OFlags::empty()) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // Links inside are removed and not followed.
    fs::remove_dir_all(path)
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    File::options().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// As a process that was killed leaves it.
    fn abandoned(base: &Path, kind: Kind) -> PathBuf {
        let path = base.join(TemporaryDir::name(kind));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("state"), "").unwrap();
        path
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_lives_is_not() {
        let base = tempfile::tempdir().unwrap();
        let alive = TemporaryDir::create(base.path().join(TemporaryDir::name(Kind::Board)), 0o700).unwrap();
        let (demo, board) = (abandoned(base.path(), Kind::Demo), abandoned(base.path(), Kind::Board));
        clear_up(base.path(), MAKING);
        assert!(demo.exists() && board.exists(), "somebody may be about to lock them");
        clear_up(base.path(), Duration::ZERO);
        assert!(!demo.exists() && !board.exists());
        assert!(alive.path().exists());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }

    #[test]
    fn a_daemon_that_outlives_who_started_it_keeps_its_directory() {
        let base = tempfile::tempdir().unwrap();
        for name in INNER_LOCKS {
            let dir = abandoned(base.path(), Kind::Demo);
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            let lock = File::create(dir.join(name)).unwrap();
            lock.lock().unwrap();
            clear_up(base.path(), Duration::ZERO);
            assert!(dir.exists(), "{name}");
            drop(lock);
            clear_up(base.path(), Duration::ZERO);
            assert!(!dir.exists(), "{name}");
        }
    }

    #[test]
    fn neither_links_nor_other_names_are_touched() {
        let (base, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("precious"), "").unwrap();
        let link = base.path().join("rooflined-demo-01234567");
        symlink(elsewhere.path(), &link).unwrap();
        let inside = abandoned(base.path(), Kind::Board);
        symlink(elsewhere.path(), inside.join("link")).unwrap();
        let others =
            ["rooflined-demo-", "rooflined-demo-0123456", "rooflined-demo-0123456x", "rooflined-0", "x"];
        for name in others {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        clear_up(base.path(), Duration::ZERO);
        assert!(elsewhere.path().join("precious").exists());
        assert!(link.is_symlink() && !inside.exists());
        assert!(others.iter().all(|name| base.path().join(name).exists()));
    }

    #[test]
    fn another_users_directory_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let dir = abandoned(base.path(), Kind::Demo);
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can give a directory away; run as root");
            return;
        }
        std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
        clear_up(base.path(), Duration::ZERO);
        assert!(dir.exists());
    }
}
