//! Files that are replaced whole.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Files set aside that are kept of each name.
const DAMAGED_KEPT: usize = 3;
/// A file being written is older than this only if its writer is dead.
const ABANDONED: Duration = Duration::from_secs(60);

/// Makes the directory if need be and proves that files can be made in it.
pub(super) fn prepare_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::read_dir(dir)?;
    let probe = dir.join(format!(".probe.new-{}", unique()));
    create(&probe)?;
    fs::remove_file(probe)
}

/// Reads at most `limit` bytes of a plain file. `Ok(Err(_))` says why it can never be used.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Result<Option<Vec<u8>>, String>> {
    // Nothing else than a plain file is ever waited for.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits() as i32;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
        // A socket.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
            return Ok(Err("it is not a regular file".into()));
        }
        Err(error) => return Err(error),
    };
    let data = file.metadata()?;
    if !data.is_file() {
        return Ok(Err("it is not a regular file".into()));
    }
    let too_long = || Ok(Err(format!("longer than {limit} bytes")));
    if data.len() > limit {
        return too_long();
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return too_long();
    }
    Ok(Ok(Some(bytes)))
}

/// What a file has to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Survives {
    /// The death of this process; it means nothing to another boot.
    Kill,
    PowerLoss,
}

/// Puts `bytes` in the place of `name`. At every moment the name stands for the old file or the new one.
pub(super) fn replace(dir: &Path, name: &str, bytes: &[u8], survives: Survives) -> io::Result<()> {
    let new = dir.join(format!(".{name}.new-{}", unique()));
    let written = (|| {
        let mut file = create(&new)?;
        file.write_all(bytes)?;
        if survives == Survives::PowerLoss {
            file.sync_all()?;
        }
        fs::rename(&new, dir.join(name))
    })();
    if written.is_err() {
        // The reason for the failure is what counts; a file left over is removed at a later start.
        let _ = fs::remove_file(&new);
    }
    written?;
    match survives {
        Survives::Kill => Ok(()),
        // The rename itself must survive it too.
        Survives::PowerLoss => File::open(dir)?.sync_all(),
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// A part of a name that no other file has: milliseconds since 1970, process, count.
pub(super) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{count}", time.as_millis(), std::process::id())
}

/// Moves a file out of the way; `None` if that failed.
pub(super) fn set_aside(dir: &Path, path: &Path) -> Option<PathBuf> {
    let prefix = format!("{}.damaged-", path.file_name()?.to_str()?);
    let mut others: Vec<u64> =
        names(dir).iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    others.sort_unstable();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // Two in one second, or a clock set back, must not make the newest look like the oldest.
    let time = others.last().map_or(now, |newest| now.max(newest.saturating_add(1)));
    let target = dir.join(format!("{prefix}{time}"));
    fs::rename(path, &target).ok()?;
    let surplus = (others.len() + 1).saturating_sub(DAMAGED_KEPT);
    for time in others.into_iter().take(surplus) {
        remove(&dir.join(format!("{prefix}{time}")));
    }
    Some(target)
}

/// Removes unfinished files whose writer is dead, and files of raw samples, which earlier versions wrote.
pub(super) fn remove_orphans(dir: &Path) {
    for name in names(dir) {
        let unfinished = name.starts_with('.') && name.contains(".new-");
        let samples = name.starts_with("samples-") && name.ends_with(".jsonl");
        if unfinished || samples {
            let path = dir.join(&name);
            // Another daemon may be writing. What is not a regular file is not ours.
            let Ok(data) = fs::symlink_metadata(&path) else { continue };
            let age = data.modified().map(|time| time.elapsed());
            if data.is_file() && matches!(age, Ok(Ok(age)) if age > ABANDONED) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Housekeeping: what cannot be removed now is tried again at the next start.
pub(super) fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}
