//! One file, kept open and read again from its start.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use thiserror::Error;

use super::SysRoot;
use rooflined_core::board::Reading;

/// Most bytes read of a file.
const LIMIT: usize = 64 << 10;

/// Why a file could not be read. Paths are those on the board, without the root they were looked up under.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("no {path}")]
    Missing { path: String },
    /// It exists, but this process may not read it.
    #[error("{path}: permission denied: only {readers} may read it")]
    Denied { path: String, readers: String },
    /// A directory, FIFO, socket or device.
    #[error("{path} is not a regular file")]
    NotAFile { path: String },
    /// The kernel does not support what the file stands for.
    #[error("{path} is not supported by this kernel or device ({source})")]
    Unsupported {
        path: String,
        #[source]
        source: io::Error,
    },
    /// The kernel or its driver refused this time.
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    /// No answer within the time allowed, or still none from an earlier sample.
    #[error("{path} does not answer; it is left alone until it does")]
    Late { path: String },
    /// Only part of the text came: a value that is cut looks like a smaller one.
    #[error("{path} is cut off in the middle")]
    Torn { path: String },
    /// It was not asked, because others kept every helper waiting.
    #[error("{path} was not read: too many other files do not answer")]
    Crowded { path: String },
    /// A source asked for what it does not name among its files.
    #[error("a source asked for a file that is not among its files")]
    NotNamed,
}

impl ReadError {
    /// `place` is where the file lies here.
    fn new(path: &str, place: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            // ENOTDIR: a file where a directory was expected.
            Some(Errno::NOENT | Errno::NOTDIR) => Self::Missing { path },
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied { path, readers: readers(place) },
            // ENXIO: a socket, or a device node without its driver. ESPIPE: what cannot be read by position.
            Some(Errno::ISDIR | Errno::NXIO | Errno::SPIPE) => Self::NotAFile { path },
            Some(Errno::OPNOTSUPP | Errno::NOSYS) => Self::Unsupported { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// True for what will be the same next time.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::Denied { .. } | Self::NotAFile { .. } | Self::Unsupported { .. }
        )
    }
}

impl<T> From<ReadError> for Reading<T> {
    fn from(error: ReadError) -> Self {
        Self::from(&error)
    }
}

impl<T> From<&ReadError> for Reading<T> {
    fn from(error: &ReadError) -> Self {
        if error.is_lasting() { Self::absent(error.to_string()) } else { Self::failed(error.to_string()) }
    }
}

/// Who may read the file at `place`, as far as its permissions tell. A directory that is closed hides them: of sysfs
/// and procfs those are open to root alone.
fn readers(place: &Path) -> String {
    let data = place.metadata().ok().map(|data| (data.mode(), data.uid(), data.gid()));
    let (mode, user, group) = data.unwrap_or_default();
    let mut readers = "root".to_owned();
    if mode & 0o400 != 0 && user != 0 {
        readers += &format!(" and user {user}");
    }
    if mode & 0o040 != 0 {
        readers += &format!(" and group {group}");
    }
    readers
}

/// A file read again and again. The descriptor is kept between reads, which saves the path look-up; sysfs and procfs
/// make their text again for every read from position 0.
#[derive(Debug)]
pub(super) struct OpenFile {
    logical: String,
    path: PathBuf,
    file: Option<File>,
    limit: usize,
    may_wait: bool,
    /// Its text has ended with a line at some time.
    ends_with_line: bool,
    buffer: Vec<u8>,
}

impl OpenFile {
    /// A file that the kernel answers by itself. Opening one never waits, whatever lies at its path.
    pub fn of_kernel(root: &SysRoot, logical: impl Into<String>) -> Self {
        let logical = logical.into();
        let path = root.path(&logical);
        let (limit, buffer) = (LIMIT, Vec::new());
        Self { logical, path, file: None, limit, may_wait: false, ends_with_line: false, buffer }
    }

    /// A file behind a driver: opening and reading may wait, so it is only read by [`super::timed_reader`].
    pub fn of_driver(root: &SysRoot, logical: impl Into<String>) -> Self {
        Self { may_wait: true, ..Self::of_kernel(root, logical) }
    }

    /// The same with another bound on the bytes read.
    pub fn limited(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    pub fn logical(&self) -> &str {
        &self.logical
    }

    pub fn read(&mut self) -> Result<String, ReadError> {
        let text = self.read_once()?;
        // What can be read by position only is still open.
        if !self.may_wait || self.is_whole(&text) || self.file.is_none() {
            return Ok(text);
        }
        // Most texts end with a line. One that does not is read again: a text that was cut is rarely cut at the same place twice.
        let again = self.read_once()?;
        let cut = again.len() != text.len() && (again.starts_with(&text) || text.starts_with(&again));
        if !again.is_empty() && !self.is_whole(&again) && (cut || self.ends_with_line) {
            return Err(ReadError::Torn { path: self.logical.clone() });
        }
        Ok(again)
    }

    fn is_whole(&mut self, text: &str) -> bool {
        let whole = text.ends_with('\n');
        self.ends_with_line |= whole;
        whole
    }

    fn read_once(&mut self) -> Result<String, ReadError> {
        let result = self.fill();
        if result.is_err() {
            self.file = None;
        }
        let length = result.map_err(|source| ReadError::new(&self.logical, &self.path, source))?;
        Ok(String::from_utf8_lossy(&self.buffer[..length]).into_owned())
    }

    fn fill(&mut self) -> io::Result<usize> {
        // A file replaced by rename has lost its name: its descriptor would tell old values for ever.
        if self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|data| data.nlink() == 0)) {
            self.file = None;
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        let by_position = file.metadata()?.is_file();
        let (mut length, mut again) = (0, self.may_wait);
        while length < self.limit {
            if self.buffer.len() == length {
                self.buffer.resize((length + 4096).min(self.limit), 0);
            }
            let free = &mut self.buffer[length..];
            let read = if by_position { file.read_at(free, length as u64) } else { (&file).read(free) };
            match read {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A thermal sensor that is busy answers the next time; one whose domain is off does not.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && again => again = false,
                Err(error) => return Err(error),
            }
            // What can be waited for is read once: a sensor's value is shorter than a pipe's buffer.
            if !by_position {
                return Ok(length);
            }
        }
        self.file = Some(file);
        Ok(length)
    }

    fn open(&self) -> io::Result<File> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        if !self.may_wait {
            flags |= OFlags::NONBLOCK;
        }
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(&self.path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_file() || (self.may_wait && !kind.is_dir()) { Ok(file) } else { Err(Errno::SPIPE.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_be_the_same_next_time_is_absent_and_the_rest_has_failed() {
        let read =
            |errno: Errno| Reading::<()>::from(ReadError::new("/sys/x", Path::new("/nowhere"), errno.into()));
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::ISDIR, Errno::OPNOTSUPP] {
            assert!(matches!(read(errno), Reading::Absent { .. }), "{errno}");
        }
        // A thermal sensor that is busy, an INA3221 without a conversion, an I2C device that does not acknowledge.
        for errno in [Errno::AGAIN, Errno::NODATA, Errno::REMOTEIO, Errno::NODEV, Errno::IO, Errno::MFILE] {
            assert!(matches!(read(errno), Reading::Failed { .. }), "{errno}");
        }
        assert_eq!(
            read(Errno::AGAIN).reason(),
            Some("/sys/x: Resource temporarily unavailable (os error 11)")
        );
    }

    #[test]
    fn a_text_that_is_cut_is_no_value_and_one_that_never_ends_with_a_line_is() {
        let dir = tempfile::tempdir().unwrap();
        let (root, path) = (SysRoot::new(dir.path()), dir.path().join("value"));
        let mut file = OpenFile::of_driver(&root, "/value");
        for whole in ["50125\n", "48906\n"] {
            std::fs::write(&path, whole).unwrap();
            assert_eq!(file.read().unwrap(), whole);
        }
        std::fs::write(&path, "489").unwrap();
        assert_eq!(file.read().unwrap_err().to_string(), "/value is cut off in the middle");
        std::fs::write(&path, "49000\n").unwrap();
        assert_eq!(file.read().unwrap(), "49000\n");
        // Some drivers write no end of line.
        std::fs::write(&path, "489").unwrap();
        assert_eq!(OpenFile::of_driver(&root, "/value").read().unwrap(), "489");
    }
}
