//! One daemon at a time keeps things in a directory: two would each write over what the other has learned.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::{StoreError, file};
use crate::sockets::describe;

const NAME: &str = "state.lock";
/// Between two looks at a lock that somebody else has.
const PAUSE: Duration = Duration::from_millis(20);

/// The right to write in a directory, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Waits at most `limit` for the daemon that has it; the directory is made if it is missing.
    ///
    /// # Errors
    /// Another daemon keeps it, or the directory cannot be used.
    pub fn take(dir: &Path, limit: Duration) -> Result<Self, StoreError> {
        file::prepare_directory(dir).map_err(|source| StoreError::directory(dir, source))?;
        let path = dir.join(NAME);
        let failed = |error: Errno| StoreError::file(&path, error.into());
        let deadline = Instant::now() + limit;
        loop {
            // A FIFO in its place is waited for by nobody.
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
            let mut lock = Self { file: File::from(file), path: path.clone() };
            match flock(&lock.file, FlockOperation::NonBlockingLockExclusive) {
                // Its holder may have been given another directory in the meantime.
                Ok(()) if !lock.is_in_place() => {}
                Ok(()) => {
                    lock.sign();
                    return Ok(lock);
                }
                // A file system without locks; the sockets keep two daemons of one place apart.
                Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => return Ok(lock),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let holder = lock.holder();
                    return Err(StoreError::InUse { path: dir.to_owned(), holder });
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// False once the directory was removed, or the file in it.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let same =
            |here: fs::Metadata, there: fs::Metadata| (here.dev(), here.ino()) == (there.dev(), there.ino());
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(here), Ok(there)) => same(here, there),
            _ => false,
        }
    }

    /// Only a name for the message of a second daemon: nothing depends on it.
    fn sign(&mut self) {
        let _ = self.file.set_len(0).and_then(|()| writeln!(self.file, "{}", std::process::id()));
    }

    fn holder(&mut self) -> String {
        let mut text = String::new();
        let read = self.file.seek(SeekFrom::Start(0));
        let _ = read.and_then(|_| (&self.file).take(32).read_to_string(&mut text));
        describe(text.trim().parse().ok())
    }
}
