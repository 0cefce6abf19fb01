//! The two sockets: who holds them, and that exactly one daemon serves a directory.
//!
//! systemd hands them over by name (`query`, `control`). Otherwise they are made here, under an exclusive lock on
//! `rooflined.lock` next to the query socket: the daemon that has the lock may replace a socket that nobody answers on.
//! The lock file itself stays; removing it would let two daemons lock two files of one name.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, Gid, Mode, OFlags, chown, flock};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::socket_error::{LONGEST_PATH, SocketError};
use super::socket_paths::SocketPaths;
use rooflined_core::refusal::{Code, Refusal};

/// The group that may control.
const GROUP: &str = "rooflined";
/// Connections that wait to be accepted: each waits behind few, however fast they come. The units say `Backlog=`.
const BACKLOG: i32 = 256;

/// The sockets, listening. Dropping it removes those that were made here and lets the next daemon in.
#[derive(Debug)]
pub struct Sockets {
    /// For the queries of everyone.
    pub query: UnixListener,
    /// For those who may change something; absent where the service manager handed over none.
    pub control: Option<UnixListener>,
    /// Why no command is taken over the control socket, ending with the remedy: somebody could put another in its place.
    pub replaceable: Option<Refusal>,
    /// What is undone at the end.
    pub hold: Hold,
}

/// What was made, and the lock on the directory.
#[derive(Debug, Default)]
pub struct Hold {
    _made: Vec<Made>,
    _lock: Option<File>,
}

/// A socket file, known by its inode: another daemon may have put its own there since.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for Made {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket was not removed");
        }
    }
}

impl Sockets {
    /// Takes the sockets handed over by the service manager, or makes them at `paths`.
    ///
    /// # Errors
    /// Another daemon serves the directory, or it cannot be written.
    pub fn open(paths: &SocketPaths) -> Result<Self, SocketError> {
        if let Some((query, control)) = handed_over()? {
            // The manager starts one daemon for its sockets; the lock only names it to one started by hand.
            let lock = paths.query.parent().and_then(|dir| lock(dir, &paths.query).ok());
            let replaceable = control.as_ref().and_then(|control| replaceable(control).err());
            return Ok(Self { query, control, replaceable, hold: Hold { _made: Vec::new(), _lock: lock } });
        }
        paths.make_dirs()?;
        let dir = paths.query.parent().unwrap_or(Path::new("."));
        let lock = lock(dir, &paths.query)?;
        let group = if geteuid().is_root() { group_id() } else { None };
        let (query, query_made) = listen(&paths.query, 0o666, None)?;
        // Without the group its members' place must not be filled by whatever group this process has.
        let control_mode = if group.is_some() { 0o660 } else { 0o600 };
        let (control, control_made) = listen(&paths.control, control_mode, group)?;
        let hold = Hold { _made: vec![query_made, control_made], _lock: Some(lock) };
        Ok(Self { query, control: Some(control), replaceable: None, hold })
    }
}

/// Sockets by their names from the service manager; `None` where it handed over nothing.
fn handed_over() -> Result<Option<(UnixListener, Option<UnixListener>)>, SocketError> {
    let failed = |error: io::Error| SocketError::Activation(error.to_string());
    let names: Vec<String> =
        sd_notify::listen_fds_with_names().map_err(failed)?.map(|(_, name)| name).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut handed = listenfd::ListenFd::from_env();
    let (mut query, mut control) = (None, None);
    for (index, name) in names.iter().enumerate() {
        let slot = match name.as_str() {
            "query" => &mut query,
            "control" => &mut control,
            other => return Err(SocketError::Activation(format!("one is named {other:?}"))),
        };
        *slot = handed.take_unix_listener(index).map_err(failed)?;
    }
    let query = query.ok_or_else(|| SocketError::Activation("none is named \"query\"".into()))?;
    for listener in std::iter::once(&query).chain(&control) {
        listener.set_nonblocking(true).map_err(failed)?;
    }
    Ok(Some((query, control)))
}

/// Whether the control socket that was handed over, and its directory, belong to root or to the maker of the socket:
/// to the service manager, and not to the user of this service.
fn replaceable(control: &UnixListener) -> Result<(), Refusal> {
    let address = control.local_addr().ok();
    // One without a name is in nobody's directory.
    let Some(path) = address.as_ref().and_then(|address| address.as_pathname()) else { return Ok(()) };
    let maker = socket_peercred(control).map_or(0, |maker| maker.uid.as_raw());
    let dir = path.parent().unwrap_or(Path::new("/"));
    for (path, names) in [(dir, "directory"), (path, "socket")] {
        let owner = match fs::symlink_metadata(path) {
            Ok(found) => found.uid(),
            Err(error) => {
                let message = format!("{}: {error}", path.display());
                return Err(Code::ControlUnavailable.error(message, "restart rooflined-control.socket"));
            }
        };
        if owner != 0 && owner != maker {
            return Err(Code::ControlUnavailable.error(
                format!(
                    "the {names} {} belongs to user {owner}, who could put another control socket in its place, so \
                     no command is taken over it",
                    path.display()
                ),
                "run systemd-tmpfiles --create rooflined.conf and restart rooflined-control.socket",
            ));
        }
    }
    Ok(())
}

/// Locks the directory of the sockets for this process.
fn lock(dir: &Path, query: &Path) -> Result<File, SocketError> {
    let path = dir.join("rooflined.lock");
    let failed = |error: Errno| SocketError::Make { path: path.clone(), source: error.into() };
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o600);
    let (file, writable) = match rustix::fs::open(&path, flags | OFlags::RDWR | OFlags::CREATE, mode) {
        Ok(file) => (file, true),
        // Left behind by another user's daemon; a lock needs no right to write.
        Err(Errno::ACCESS) => (rustix::fs::open(&path, flags | OFlags::RDONLY, mode).map_err(failed)?, false),
        Err(error) => return Err(failed(error)),
    };
    let mut file = File::from(file);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(held(&mut file, query)),
        Err(error) => return Err(failed(error)),
    }
    if writable {
        // Only a name for the message of a second daemon: nothing depends on it.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
    Ok(file)
}

/// Who has the lock. It may have been taken this instant by a daemon that has not said its number yet.
fn held(lock: &mut File, query: &Path) -> SocketError {
    for _ in 0..20 {
        let mut text = String::new();
        let _ = lock.seek(SeekFrom::Start(0)).and_then(|_| lock.take(32).read_to_string(&mut text));
        if let Ok(pid) = text.trim().parse() {
            return SocketError::Held { holder: describe(Some(pid)), path: query.to_owned() };
        }
        sleep(Duration::from_millis(25));
    }
    SocketError::Held { holder: describe(None), path: query.to_owned() }
}

/// `rooflined (process 42)`.
pub fn describe(pid: Option<u32>) -> String {
    let Some(pid) = pid else { return "another process".into() };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = if name.is_empty() { "a process" } else { name.trim() };
    format!("{name} (process {pid})")
}

/// Listens at `path`, in place of a socket that nobody answers on. Must be called under the lock.
fn listen(path: &Path, mode: u32, group: Option<Gid>) -> Result<(UnixListener, Made), SocketError> {
    let failed = |source| SocketError::Listen { path: path.to_owned(), source };
    let length = path.as_os_str().len();
    if length > LONGEST_PATH {
        return Err(SocketError::TooLong { path: path.to_owned(), length });
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::Occupied { path: path.to_owned() });
        }
        Ok(_) => match holder(path) {
            Some(holder) => return Err(SocketError::Held { holder, path: path.to_owned() }),
            None => fs::remove_file(path).map_err(failed)?,
        },
    }
    // The umask of the daemon (077) keeps others out until the mode is set.
    let listener = UnixListener::bind(path).map_err(failed)?;
    let made = Made { path: path.to_owned(), inode: inode(path).unwrap_or_default() };
    if let Some(group) = group {
        chown(path, None, Some(group)).map_err(|error| failed(error.into()))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    // Only of a socket of our own: to listen again makes this process the one that the kernel tells as its maker.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((listener, made))
}

/// Who answers on a socket; `None` if nobody does. Never waits: a holder that hangs still holds it.
fn holder(path: &Path) -> Option<String> {
    let attempt = || -> Result<u32, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let pid = socket_peercred(&socket)?.pid;
        Ok(pid.as_raw_nonzero().get().unsigned_abs())
    };
    match attempt() {
        Ok(pid) => Some(describe(Some(pid))),
        Err(Errno::CONNREFUSED | Errno::NOENT) => None,
        Err(_) => Some(describe(None)),
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Number of the group [`GROUP`].
fn group_id() -> Option<Gid> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let line = groups.lines().find_map(|line| line.strip_prefix(GROUP)?.strip_prefix(':'))?;
    line.split(':').nth(1)?.parse().ok().map(Gid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("query.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path, 0o666, None), Err(SocketError::Occupied { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_path_too_long_for_a_socket_says_so() {
        let path = Path::new("/tmp").join("x".repeat(120));
        let error = listen(&path, 0o666, None).unwrap_err().to_string();
        assert!(error.contains("shorter --socket"), "{error}");
    }

    #[test]
    fn a_socket_is_removed_unless_another_has_taken_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("query.sock");
        let (_listener, made) = listen(&path, 0o666, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(made);
        assert!(path.exists(), "the other's socket stays");
        drop(other);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("query.sock");
        let live = UnixListener::bind(&path).unwrap();
        let error = listen(&path, 0o666, None).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "names the holder: {error}");
        drop(live);
        listen(&path, 0o666, None).unwrap();
    }

    #[test]
    fn a_control_socket_that_another_user_could_replace_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let control = UnixListener::bind(&path).unwrap();
        assert_eq!(replaceable(&control), Ok(()));
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can give a directory away; run as root");
            return;
        }
        for given in [dir.path(), &path] {
            std::os::unix::fs::chown(given, Some(65534), None).unwrap();
            let problem = replaceable(&control).unwrap_err().to_string();
            assert!(problem.contains(&format!("{} belongs to user 65534", given.display())), "{problem}");
            assert!(problem.contains("; run systemd-tmpfiles --create"), "{problem}");
            std::os::unix::fs::chown(given, Some(0), None).unwrap();
        }
        assert_eq!(replaceable(&control), Ok(()));
    }
}
