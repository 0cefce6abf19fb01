//! A directory served over FUSE, of which chosen files fail, are cut or never answer. Written against `linux/fuse.h`, version 7.31,
//! with as few operations as reading a tree takes.
//!
//! It is mounted in the mount namespace of the program that reads it, and goes with that.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A read fails.
    Error(Errno),
    /// A read ends in the middle of the text, at another place each time; the end is never among it.
    Torn,
    /// A read is not answered. A signal that ends the reader ends the read too, as it does in most drivers.
    Hang,
    /// A read is not answered, and no signal ends it: a reader that is killed stays until the server lets go.
    HangForGood,
}

/// The number of a request.
type Unique = u64;

#[derive(Default)]
struct Shared {
    faults: Mutex<HashMap<PathBuf, Fault>>,
    /// Reads that were not answered, and of which file.
    hanging: Mutex<HashMap<Unique, PathBuf>>,
    stop: AtomicBool,
}

/// The server of one tree.
pub struct Tree {
    backing: PathBuf,
    device: Option<File>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Tree {
    /// A tree that shows what lies below `backing`. An error says what this machine lacks.
    pub fn serve(backing: &Path) -> Result<Self, &'static str> {
        let allowed = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
        if !allowed.is_ok_and(|status| status.success()) {
            return Err("right to mount");
        }
        let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|_| "/dev/fuse")?;
        let shared: Arc<Shared> = Arc::default();
        let mut server = Server {
            device: device.try_clone().unwrap(),
            backing: backing.to_owned(),
            shared: Arc::clone(&shared),
            nodes: vec![PathBuf::new()],
            cut: HashMap::new(),
        };
        let thread = std::thread::spawn(move || server.run());
        Ok(Self { backing: backing.to_owned(), device: Some(device), shared, thread: Some(thread) })
    }

    /// `program` with the tree mounted at `place`, which it alone sees.
    pub fn mounted(&mut self, place: &Path, program: &Command) -> Command {
        let script = "mount -i -t fuse -o fd=0,rootmode=40000,user_id=0,group_id=0 none \"$0\" && exec \"$@\" </dev/null";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(place);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // Only the server keeps one from then on.
        command.stdin(self.device.take().expect("not mounted before"));
        command
    }

    /// From now on this is wrong with these files, and nothing with any other. What hangs and shall no more is answered.
    pub fn set(&self, faults: &[(&str, Fault)]) {
        let path = |file: &&str| PathBuf::from(file.trim_start_matches('/'));
        *self.shared.faults.lock().unwrap() =
            faults.iter().map(|(file, fault)| (path(file), *fault)).collect();
    }

    /// How many reads are not answered.
    pub fn hanging(&self) -> usize {
        self.shared.hanging.lock().unwrap().len()
    }

    /// The text of a file from now on.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.backing.join(file.trim_start_matches('/')), text).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // With the last descriptor the kernel gives up all that was not answered.
        self.device = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    device: File,
    backing: PathBuf,
    shared: Arc<Shared>,
    /// Paths below the root, by the number of the node less one.
    nodes: Vec<PathBuf>,
    /// How much of a torn file is shown at present.
    cut: HashMap<u64, usize>,
}

impl Server {
    fn run(&mut self) {
        let mut buffer = vec![0; 1 << 18];
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.release();
            let mut descriptors = [PollFd::new(&self.device, PollFlags::IN)];
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            if poll(&mut descriptors, Some(&wait)) == Ok(0) {
                continue;
            }
            match self.device.read(&mut buffer) {
                Ok(length) => self.answer(&buffer[..length]),
                Err(error) => match Errno::from_io_error(&error) {
                    // Not mounted yet.
                    Some(Errno::PERM) => sleep(Duration::from_millis(5)),
                    // The request was given up, or there is none yet.
                    Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    // Nobody has it mounted any more.
                    _ => return,
                },
            }
        }
    }

    /// Answers what need not hang any more: the reader asks again.
    fn release(&mut self) {
        let faults = self.shared.faults.lock().unwrap().clone();
        let still = |file: &PathBuf| matches!(faults.get(file), Some(Fault::Hang | Fault::HangForGood));
        let mut hanging = self.shared.hanging.lock().unwrap();
        let free: Vec<Unique> =
            hanging.iter().filter(|(_, file)| !still(file)).map(|(unique, _)| *unique).collect();
        for unique in free {
            hanging.remove(&unique);
            fail(&self.device, unique, Errno::INTR);
        }
    }

    fn answer(&mut self, request: &[u8]) {
        let unique = number(request, 8);
        let node = number(request, 16);
        let body = &request[40..];
        match u32::try_from(number(request, 4) & 0xffff_ffff).unwrap() {
            // LOOKUP, with a name
            1 => {
                let name = body.split(|byte| *byte == 0).next().unwrap();
                let path = self.path(node).join(std::ffi::OsStr::from_bytes(name));
                match fs::symlink_metadata(self.backing.join(&path)) {
                    Err(_) => fail(&self.device, unique, Errno::NOENT),
                    Ok(data) => {
                        let node = self.node(path);
                        let mut entry = [node, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
                        entry.extend(attributes(node, &data));
                        send(&self.device, unique, &entry);
                    }
                }
            }
            // GETATTR
            3 => match fs::symlink_metadata(self.backing.join(self.path(node))) {
                Err(_) => fail(&self.device, unique, Errno::NOENT),
                Ok(data) => {
                    let mut answer = [0_u64, 0].map(u64::to_le_bytes).concat();
                    answer.extend(attributes(node, &data));
                    send(&self.device, unique, &answer);
                }
            },
            // READLINK
            5 => match fs::read_link(self.backing.join(self.path(node))) {
                Err(_) => fail(&self.device, unique, Errno::INVAL),
                Ok(target) => send(&self.device, unique, target.as_os_str().as_bytes()),
            },
            // OPEN, OPENDIR: no handle; every read comes here, past the page cache (FOPEN_DIRECT_IO)
            14 | 27 => send(&self.device, unique, &[0_u64, 1].map(u64::to_le_bytes).concat()),
            15 => self.read(unique, node, number(body, 8)),
            28 => self.list(unique, node, number(body, 8)),
            // INIT: the version, nothing optional, writes of a page
            26 => {
                let mut answer = [7_u32, 31, 0, 0, 0, 4096, 1].map(u32::to_le_bytes).concat();
                answer.resize(64, 0);
                send(&self.device, unique, &answer);
            }
            // RELEASE, FLUSH, RELEASEDIR
            18 | 25 | 29 => send(&self.device, unique, &[]),
            // INTERRUPT: of a request that is named; itself not answered
            36 => {
                let meant = number(body, 0);
                let mut hanging = self.shared.hanging.lock().unwrap();
                let faults = self.shared.faults.lock().unwrap();
                let for_good = |file: &PathBuf| faults.get(file) == Some(&Fault::HangForGood);
                if hanging.get(&meant).is_some_and(|file| !for_good(file)) {
                    hanging.remove(&meant);
                    fail(&self.device, meant, Errno::INTR);
                }
            }
            // FORGET, BATCH_FORGET: not answered
            2 | 42 => {}
            _ => fail(&self.device, unique, Errno::NOSYS),
        }
    }

    fn read(&mut self, unique: Unique, node: u64, offset: u64) {
        let path = self.path(node).to_owned();
        let fault = self.shared.faults.lock().unwrap().get(&path).copied();
        let Ok(mut text) = fs::read(self.backing.join(&path)) else {
            return fail(&self.device, unique, Errno::IO);
        };
        match fault {
            None => {}
            Some(Fault::Error(errno)) => return fail(&self.device, unique, errno),
            Some(Fault::Hang | Fault::HangForGood) => {
                self.shared.hanging.lock().unwrap().insert(unique, path);
                return;
            }
            Some(Fault::Torn) => {
                let cut = self.cut.entry(node).or_default();
                // Another length at each read from the start, and the same for what follows it.
                if offset == 0 {
                    *cut = (*cut + 1) % text.trim_ascii_end().len().max(1);
                }
                text.truncate(*cut);
            }
        }
        let from = usize::try_from(offset).unwrap().min(text.len());
        send(&self.device, unique, &text[from..]);
    }

    fn list(&mut self, unique: Unique, node: u64, offset: u64) {
        let dir = self.backing.join(self.path(node));
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let mut answer = Vec::new();
        for (index, name) in names.iter().enumerate().skip(usize::try_from(offset).unwrap()) {
            let mut entry = [u64::MAX, index as u64 + 1].map(u64::to_le_bytes).concat();
            // The kind is not said: who wants it looks.
            entry.extend([name.len() as u32, 0].map(u32::to_le_bytes).concat());
            entry.extend(name.as_bytes());
            entry.resize(entry.len().next_multiple_of(8), 0);
            if answer.len() + entry.len() > 4096 {
                break;
            }
            answer.extend(entry);
        }
        send(&self.device, unique, &answer);
    }

    fn path(&self, node: u64) -> &Path {
        &self.nodes[usize::try_from(node).unwrap() - 1]
    }

    /// Its number, the same for the same path.
    fn node(&mut self, path: PathBuf) -> u64 {
        let known = self.nodes.iter().position(|other| *other == path);
        let index = known.unwrap_or_else(|| {
            self.nodes.push(path);
            self.nodes.len() - 1
        });
        index as u64 + 1
    }
}

/// The eight bytes there.
fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// `struct fuse_attr`.
fn attributes(node: u64, data: &Metadata) -> Vec<u8> {
    // A page, as sysfs says of all its files; a link is as long as its target.
    let size = if data.is_file() { 4096 } else { data.len() };
    let mut bytes = [node, size, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
    bytes
        .extend([0, 0, 0, data.mode(), 1, data.uid(), data.gid(), 0, 4096, 0].map(u32::to_le_bytes).concat());
    bytes
}

fn send(mut device: &File, unique: Unique, body: &[u8]) {
    let length = 16 + body.len() as u32;
    let mut answer = [length, 0].map(u32::to_le_bytes).concat();
    answer.extend(unique.to_le_bytes());
    answer.extend(body);
    // The asking program may have gone.
    let _ = device.write_all(&answer);
}

fn fail(mut device: &File, unique: Unique, errno: Errno) {
    let mut answer = [16, (-errno.raw_os_error()).cast_unsigned()].map(u32::to_le_bytes).concat();
    answer.extend(unique.to_le_bytes());
    let _ = device.write_all(&answer);
}
