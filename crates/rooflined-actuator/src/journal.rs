//! What was begun and is not settled, on the disk before the first write.
//!
//! `switch.json` in the state directory is replaced whole: written beside, synced, renamed, and the directory synced.
//! Two locks lie next to it. `lock` is held by the one actuator that may work; `tool.lock` is inherited by the tool
//! it runs, so that an actuator that follows a killed one sees a tool that is still writing. One whose client has gone and
//! that waits for the next gives both up: the next client may come with an actuator of its own.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use rooflined_core::board::{ActiveMode, JournalEntry, SwitchPhase};
use rooflined_core::units::Seconds;

/// Bytes read of the journal at most.
const LONGEST: u64 = 64 << 10;
/// Pause between two attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// The file's content: the entry and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub entry: JournalEntry,
    /// How often restoring failed, over all runs of the helper.
    #[serde(default)]
    pub failed_restores: u32,
    /// It is undone only this long after its client has gone.
    #[serde(rename = "keep_s", default)]
    pub keep: Option<Seconds>,
    /// CLOCK_BOOTTIME of that, since the client has gone.
    #[serde(rename = "kept_until_s", default)]
    pub kept_until: Option<Seconds>,
}

impl Record {
    /// The same way back from another place.
    pub fn reaching(self, target: ActiveMode, phase: SwitchPhase) -> Self {
        Self { entry: JournalEntry { target, phase, ..self.entry }, ..self }
    }
}

#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
    lock: File,
    tool_lock: File,
}

impl Journal {
    /// Makes the directory if need be and waits at most `time_limit` for another actuator to end. A tool that a killed
    /// one left behind is waited for as long, and then killed.
    pub fn open(dir: &Path, time_limit: Duration) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = lock_file(&dir.join("lock"))?;
        if !lock_within(&lock, time_limit)? {
            return Err(io::Error::other("another actuator works with this state directory"));
        }
        let tool_lock = lock_file(&dir.join("tool.lock"))?;
        lock_tool(&tool_lock, time_limit)?;
        Ok(Self { dir: dir.to_owned(), lock, tool_lock })
    }

    /// Lets another actuator work until [`Journal::retake`].
    pub fn release(&self) {
        for lock in [&self.tool_lock, &self.lock] {
            // It fails only for what is no file.
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }

    /// False if another actuator works.
    pub fn retake(&self, time_limit: Duration) -> io::Result<bool> {
        if !lock_within(&self.lock, Duration::ZERO)? {
            return Ok(false);
        }
        lock_tool(&self.tool_lock, time_limit).map(|()| true)
    }

    /// What the tool shall inherit while it runs.
    pub const fn tool_lock(&self) -> &File {
        &self.tool_lock
    }

    fn path(&self) -> PathBuf {
        self.dir.join("switch.json")
    }

    /// The record on the disk. One that cannot be understood is set aside and reported as an error.
    pub fn load(&self) -> Result<Option<Record>, String> {
        let path = self.path();
        let read = || -> io::Result<Option<Vec<u8>>> {
            let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
            let file = match File::options().read(true).custom_flags(flags).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let mut bytes = Vec::new();
            file.take(LONGEST).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        let problem = match read() {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => match serde_json::from_slice(&bytes) {
                Ok(record) => return Ok(Some(record)),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let aside = self.dir.join("switch.json.damaged");
        let kept = fs::rename(&path, &aside).is_ok();
        let kept = if kept { format!("; it is kept as {}", aside.display()) } else { String::new() };
        Err(format!("the journal could not be read ({problem}){kept}; the mode was left as it is"))
    }

    /// Puts the record on the disk; on return it is there for good.
    pub fn store(&self, record: &Record) -> io::Result<()> {
        replace(&self.path(), &serde_json::to_vec(record)?, 0o600)
    }

    /// Removes the record: nothing is unsettled any more.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        File::open(&self.dir)?.sync_all()
    }
}

/// Puts `bytes` in the place of the file: its name stands for the old file or the new one, at every moment and after
/// a loss of power.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // One actuator works at a time, so the name is free or left over from one that was killed.
    let new = dir.join(format!(".{}.new", name.to_string_lossy()));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}

fn lock_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
    File::options().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)
}

/// Waits for a tool that is still writing, and kills it in the end.
fn lock_tool(tool_lock: &File, time_limit: Duration) -> io::Result<()> {
    if lock_within(tool_lock, time_limit)? {
        return Ok(());
    }
    let killed = kill_holders(tool_lock)?;
    eprintln!("rooflined actuate: warning: killed {killed} processes of a tool that did not end");
    if lock_within(tool_lock, time_limit)? {
        return Ok(());
    }
    Err(io::Error::other("a tool of an earlier switch does not end, not even killed"))
}

/// False if somebody else holds it for longer than `time_limit`.
fn lock_within(file: &File, time_limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + time_limit;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills every process that has the file open, this one excepted.
fn kill_holders(file: &File) -> io::Result<usize> {
    let (ours, wanted) = (std::process::id(), file.metadata()?);
    let mut killed = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = descriptors.flatten().any(|descriptor| {
            fs::metadata(descriptor.path())
                .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        });
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| holds && id != ours) {
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
    }
    Ok(killed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mode = |id, name: &str| ActiveMode { id, name: name.into() };
        let (original, target) = (mode(0, "15W"), mode(1, "25W"));
        let entry = JournalEntry { boot_id: "b".into(), original, target, phase: SwitchPhase::Started };
        Record { entry, failed_restores: 1, keep: Some(Seconds(30.0)), kept_until: None }
    }

    #[test]
    fn a_record_is_read_as_it_was_stored_and_gone_when_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), Duration::ZERO).unwrap();
        assert_eq!(journal.load(), Ok(None));
        journal.store(&record()).unwrap();
        assert_eq!(journal.load(), Ok(Some(record())));
        journal.clear().unwrap();
        journal.clear().unwrap();
        assert_eq!(journal.load(), Ok(None));
    }

    #[test]
    fn a_record_of_an_earlier_version_is_undone_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), Duration::ZERO).unwrap();
        let mut value = serde_json::to_value(record()).unwrap();
        for name in ["keep_s", "kept_until_s"] {
            value.as_object_mut().unwrap().remove(name).unwrap();
        }
        fs::write(journal.path(), value.to_string()).unwrap();
        assert_eq!(journal.load(), Ok(Some(Record { keep: None, ..record() })));
    }

    #[test]
    fn an_actuator_that_waits_lets_another_work() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path(), Duration::ZERO).unwrap();
        first.release();
        let second = Journal::open(dir.path(), Duration::ZERO).unwrap();
        assert!(!first.retake(Duration::ZERO).unwrap());
        drop(second);
        assert!(first.retake(Duration::ZERO).unwrap());
    }

    #[test]
    fn a_damaged_record_is_set_aside_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), Duration::ZERO).unwrap();
        fs::write(journal.path(), "{\"boot_id\":").unwrap();
        assert!(journal.load().unwrap_err().contains("left as it is"));
        assert_eq!(journal.load(), Ok(None));
        assert!(dir.path().join("switch.json.damaged").exists());
    }

    #[test]
    fn a_second_actuator_does_not_work_beside_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path(), Duration::ZERO).unwrap();
        let error = Journal::open(dir.path(), Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains("another actuator"), "{error}");
        drop(first);
        Journal::open(dir.path(), Duration::ZERO).unwrap();
    }
}
