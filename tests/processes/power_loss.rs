//! Power lost between any two operations on the files of the store and of the journal: what is then on the disk is the
//! old state or the new one, whole.
//!
//! The operations are those that strace saw a real process do. What a loss of power leaves of them is worked out by the
//! weakest promise that a file system makes: what a file holds is certain after its fsync, and names are certain after that
//! of their directory; of everything else any part may be there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rooflined::store::Store;

use crate::actuator::boards::nano;
use crate::actuator::harness::{Line, PATIENCE, Tree};
use crate::daemon::harness::missing;
use crate::store::{DIR_OF_A_CHILD, record};

/// Names in a directory, and the file that each stands for.
type Names = BTreeMap<String, usize>;

#[derive(Debug, Clone, PartialEq)]
enum Op {
    Create(String),
    Sync(String),
    Rename(String, String),
    Remove(String),
    SyncDirectory,
    /// Another program was started.
    Run(String),
}

/// A directory before, what was done in it, and what every file of it held in the end.
struct Trace {
    before: BTreeMap<String, Vec<u8>>,
    ops: Vec<Op>,
    after: BTreeMap<String, Vec<u8>>,
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_file());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// `command` under strace; `None` where there is none.
fn traced(command: &Command, log: &Path) -> Option<Command> {
    if Command::new("strace").arg("-V").output().is_err() {
        missing("strace", "see the operations of a save");
        return None;
    }
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-s", "4096", "-e", "signal=none", "-o"]).arg(log);
    traced.args(["-e", "trace=open,openat,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,execve"]);
    traced.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    Some(traced)
}

/// The operations on plain files of `dir` that succeeded, in their order.
fn ops(log: &Path, dir: &Path) -> Vec<Op> {
    let within = |path: &str| {
        let path = Path::new(path);
        (path.parent() == Some(dir)).then(|| path.file_name().unwrap().to_str().unwrap().to_owned())
    };
    let mut ops = Vec::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let call = call.rsplit(' ').next().unwrap();
        let quoted: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
        let path = rest.split_once('<').and_then(|(_, path)| path.split_once('>')).map(|(path, _)| path);
        let failed = rest.rsplit_once(" = ").is_none_or(|(_, result)| result.starts_with('-'));
        let here = quoted.iter().any(|path| within(path).is_some());
        assert!(!(here && rest.contains("unfinished")), "two at once: {line}");
        // What a program that was started went on with stands in a line of its own.
        if failed && call != "execve" {
            continue;
        }
        ops.extend(match (call, quoted.as_slice(), path) {
            ("open" | "openat", [path, ..], _) if rest.contains("O_CREAT") => within(path).map(Op::Create),
            ("fsync" | "fdatasync", _, Some(path)) if Path::new(path) == dir => Some(Op::SyncDirectory),
            ("fsync" | "fdatasync", _, Some(path)) => within(path).map(Op::Sync),
            ("rename" | "renameat" | "renameat2", [from, to], _) => {
                within(from).zip(within(to)).map(|(from, to)| Op::Rename(from, to))
            }
            ("unlink" | "unlinkat", [path], _) => within(path).map(Op::Remove),
            ("execve", [program, ..], _) => Some(Op::Run((*program).to_owned())),
            _ => None,
        });
    }
    ops
}

impl Trace {
    /// Every directory that a loss of power before operation `at` may leave.
    fn left(&self, at: usize) -> BTreeSet<BTreeMap<String, Vec<u8>>> {
        let mut files: Vec<Vec<u8>> = self.before.values().cloned().collect();
        let mut synced = vec![true; files.len()];
        let mut certain: Names = self.before.keys().cloned().zip(0..).collect();
        let mut now = certain.clone();
        let mut pending: Vec<(Op, usize)> = Vec::new();
        for (index, op) in self.ops[..at].iter().enumerate() {
            match op {
                Op::Create(name) => {
                    // One that is there is opened, not made.
                    if now.contains_key(name) {
                        continue;
                    }
                    files.push(self.held(index, name));
                    synced.push(false);
                    now.insert(name.clone(), files.len() - 1);
                    pending.push((op.clone(), files.len() - 1));
                }
                Op::Sync(name) => synced[now[name]] = true,
                Op::Rename(from, to) => {
                    let file = now.remove(from).unwrap();
                    now.insert(to.clone(), file);
                    pending.push((op.clone(), file));
                }
                Op::Remove(name) => {
                    let Some(file) = now.remove(name) else { continue };
                    pending.push((op.clone(), file));
                }
                Op::SyncDirectory => {
                    certain.clone_from(&now);
                    pending.clear();
                }
                Op::Run(_) => {}
            }
        }
        let mut left = BTreeSet::new();
        for done in 0..1_u32 << pending.len() {
            let mut names = certain.clone();
            for (bit, (op, file)) in pending.iter().enumerate() {
                if (done >> bit) & 1 == 0 {
                    continue;
                }
                match op {
                    Op::Create(name) => {
                        names.insert(name.clone(), *file);
                    }
                    Op::Rename(from, to) => {
                        names.remove(from);
                        names.insert(to.clone(), *file);
                    }
                    Op::Remove(name) => {
                        names.remove(name);
                    }
                    Op::Sync(_) | Op::SyncDirectory | Op::Run(_) => {}
                }
            }
            for part in 0..3 {
                let content = |file: usize| {
                    let whole = &files[file];
                    let length = if synced[file] { whole.len() } else { whole.len() * part / 2 };
                    whole[..length].to_vec()
                };
                left.insert(names.iter().map(|(name, file)| (name.clone(), content(*file))).collect());
            }
        }
        left
    }

    /// What a file made at this point was filled with: it is found under its last name.
    fn held(&self, made_at: usize, name: &str) -> Vec<u8> {
        let mut name = name.to_owned();
        for op in &self.ops[made_at..] {
            match op {
                Op::Rename(from, to) if *from == name => name.clone_from(to),
                // What replaced it is as good to tell whole from torn.
                Op::Remove(removed) if *removed == name => return b"{\"removed\":0}".to_vec(),
                _ => {}
            }
        }
        self.after.get(&name).cloned().unwrap_or_default()
    }

    /// The first directory that `is_sound` complains of. The count of those that were looked at otherwise.
    fn first_fault(&self, is_sound: impl Fn(usize, &Path) -> Result<(), String>) -> Result<usize, String> {
        let mut count = 0;
        for at in 0..=self.ops.len() {
            for left in self.left(at) {
                let dir = tempfile::tempdir().unwrap();
                for (name, bytes) in &left {
                    fs::write(dir.path().join(name), bytes).unwrap();
                }
                is_sound(at, dir.path()).map_err(|why| format!("before {:?}: {why}", self.ops.get(at)))?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// The same without the operations that make something certain.
    fn careless(self) -> Self {
        let ops = self.ops.into_iter().filter(|op| !matches!(op, Op::Sync(_) | Op::SyncDirectory)).collect();
        Self { ops, ..self }
    }
}

#[test]
fn the_store_holds_the_old_calibration_or_the_new_one() {
    let (dir, log) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let store = Store::open(dir.path()).unwrap();
    store.save_calibration(&record(1)).unwrap();
    let before = contents(dir.path());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "store::saves_once", "--ignored"]).env(DIR_OF_A_CHILD, dir.path());
    let Some(mut child) = traced(&child, log.path()) else { return };
    assert!(child.stdout(Stdio::null()).status().unwrap().success());
    let (ops, after) = (ops(log.path(), dir.path()), contents(dir.path()));
    assert!(ops.iter().filter(|op| matches!(op, Op::Rename(..))).count() == 1, "{ops:?}");
    let trace = Trace { before, ops, after };
    let all = trace.ops.len();
    let is_sound = |at: usize, dir: &Path| {
        let store = Store::existing(dir);
        let loaded = store.load_calibration().unwrap();
        let found = loaded.value.ok_or(format!("{:?}", loaded.damaged))?;
        // After the last operation nothing but the new one is left.
        if found == record(2) || (at < all && found == record(1)) {
            Ok(())
        } else {
            Err("another record".to_owned())
        }
    };
    println!("{} directories, none torn", trace.first_fault(is_sound).unwrap());
    let fault = trace.careless().first_fault(is_sound).expect_err("without fsync something is torn");
    println!("without fsync: {fault}");
}

#[test]
fn the_journal_names_the_way_back_before_the_tool_runs_and_until_it_is_settled() {
    let (tree, log) = (Tree::new(&nano()), tempfile::NamedTempFile::new().unwrap());
    let before = contents(&tree.state_dir());
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = tree.command();
    command.arg("--stdio");
    let Some(mut command) = traced(&command, log.path()) else { return };
    let mut child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
    drop(command);
    let mut line = Line::new(ours);
    assert_eq!(line.set(1, "25W")["outcome"], "applied");
    let after = contents(&tree.state_dir());
    drop(line);
    child.wait().unwrap();
    // Up to the answer; then it goes back.
    let mut ops = ops(log.path(), &tree.state_dir());
    let renames = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Rename(..)));
    let applied = renames.map(|(index, _)| index).nth(1).unwrap();
    let end = ops[applied..].iter().position(|op| *op == Op::SyncDirectory).unwrap();
    ops.truncate(applied + end + 1);
    let tool =
        ops.iter().position(|op| matches!(op, Op::Run(program) if program.ends_with("nvpmodel"))).unwrap();
    let trace = Trace { before, ops, after };
    let is_sound = |at: usize, dir: &Path| match fs::read(dir.join("switch.json")) {
        Ok(bytes) => {
            let entry: serde_json::Value =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            if entry["original"]["name"] == "15W" { Ok(()) } else { Err(entry.to_string()) }
        }
        Err(_) if at <= tool => Ok(()),
        Err(_) => Err("the tool has run and nothing names the way back".to_owned()),
    };
    println!("{} directories, none torn", trace.first_fault(is_sound).unwrap());
    let fault = trace.careless().first_fault(is_sound).expect_err("without fsync something is lost");
    println!("without fsync: {fault}");
}
