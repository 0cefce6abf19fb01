//! A daemon in a real control group: what it advises about is what the group leaves to it, though limits stand a level above.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::{Home, get, missing, skip};

const ROOT: &str = "/sys/fs/cgroup";
const LIMIT: u64 = 512 << 20;

/// A group with one below it, in which processes are. Gone when it is dropped.
struct Group {
    outer: PathBuf,
}

impl Group {
    /// In the hierarchy at `mount`, with these controllers in one of version 2; why there is none otherwise.
    fn new(mount: &str, controllers: Option<&str>) -> Result<Self, String> {
        let outer = PathBuf::from(format!("{ROOT}{mount}/rooflined-test-{}", std::process::id()));
        let in_words = |error: std::io::Error| format!("{}: {error}", outer.display());
        fs::create_dir_all(&outer).map_err(in_words)?;
        let group = Self { outer: outer.clone() };
        if let Some(controllers) = controllers {
            for dir in [&PathBuf::from(format!("{ROOT}{mount}")), &outer] {
                fs::write(dir.join("cgroup.subtree_control"), controllers).map_err(in_words)?;
            }
        }
        fs::create_dir_all(group.inner()).map_err(in_words)?;
        Ok(group)
    }

    fn inner(&self) -> PathBuf {
        self.outer.join("inner")
    }

    /// Sets a limit of the outer group, and returns its file.
    fn set(&self, file: &str, value: &str) -> String {
        let path = self.outer.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed leaves its group a moment later.
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(self.inner()).is_err() && Instant::now() < until {
            sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir(&self.outer);
    }
}

/// Starts in these groups what `command` would start.
fn within(groups: &[&Group], command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let enters: String =
        groups.iter().map(|group| format!("echo $$ >{}/cgroup.procs && ", group.inner().display())).collect();
    shell
        .arg("-c")
        .arg(format!("{enters}exec \"$@\""))
        .arg("sh")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    shell
}

/// What a daemon in these groups takes the machine for: its board and its state.
fn seen_in(groups: &[&Group]) -> (Value, Value) {
    let home = Home::new();
    let mut daemon = home.launch(within(groups, &home.command()));
    daemon.wait_ready();
    (get(&home.query(), "/v1/board"), get(&home.query(), "/v1/state"))
}

#[track_caller]
fn has_note(board: &Value, note: &str) {
    let notes = board["notes"].as_array().unwrap();
    assert!(notes.iter().any(|said| said.as_str().unwrap().contains(note)), "no {note:?} in {notes:?}");
}

fn limits_memory(groups: &[&Group], file: &str) {
    let (board, state) = seen_in(groups);
    let memory = &state["memory_bytes"]["value"];
    assert_eq!(memory["total"].as_f64(), Some(LIMIT as f64), "{memory}");
    assert!(memory["available"].as_f64().unwrap() <= LIMIT as f64, "{memory}");
    has_note(&board, &format!("of memory: {file}"));
}

fn limits_cpus(groups: &[&Group], file: &str, online: usize) {
    let (board, state) = seen_in(groups);
    assert_eq!(state["cores_online"]["value"], 1, "{state}");
    has_note(&board, &format!("this process gets 1 of {online} CPUs: {file}"));
}

/// Whether `file` of a hierarchy is there.
fn has(file: &str) -> bool {
    PathBuf::from(format!("{ROOT}/{file}")).exists()
}

#[test]
fn limits_of_real_control_groups_are_those_of_the_advice() {
    if !rustix::process::geteuid().is_root() {
        return missing("root", "make control groups");
    }
    let online = std::thread::available_parallelism().unwrap().get();
    let mut tried = 0;
    if has("cgroup.controllers") {
        match Group::new("", Some("+memory +cpu +cpuset")) {
            Ok(group) => {
                limits_memory(&[&group], &group.set("memory.max", &LIMIT.to_string()));
                if online > 1 {
                    limits_cpus(&[&group], &group.set("cpu.max", "100000 100000"), online);
                    group.set("cpu.max", "max 100000");
                    group.set("cpuset.cpus", "0");
                    let inner = group.inner().join("cpuset.cpus.effective").display().to_string();
                    limits_cpus(&[&group], &inner, online);
                }
                tried += 1;
            }
            Err(why) => skip(&format!("no group of version 2 can be made here: {why}")),
        }
    } else {
        skip("the control groups of version 2 have no controllers here");
    }
    if ["memory", "cpu", "cpuset"].iter().all(|controller| has(&format!("{controller}/cgroup.procs"))) {
        match ["/memory", "/cpu", "/cpuset"].map(|mount| Group::new(mount, None)) {
            [Ok(memory), Ok(cpu), Ok(cpuset)] => {
                limits_memory(&[&memory], &memory.set("memory.limit_in_bytes", &LIMIT.to_string()));
                if online > 1 {
                    limits_cpus(&[&memory, &cpu], &cpu.set("cpu.cfs_quota_us", "100000"), online);
                    for dir in [&cpuset.outer, &cpuset.inner()] {
                        let nodes = fs::read_to_string(format!("{ROOT}/cpuset/cpuset.mems")).unwrap();
                        fs::write(dir.join("cpuset.mems"), nodes).unwrap();
                        fs::write(dir.join("cpuset.cpus"), "0").unwrap();
                    }
                    let inner = cpuset.inner().join("cpuset.effective_cpus").display().to_string();
                    limits_cpus(&[&cpuset], &inner, online);
                }
                tried += 1;
            }
            of => {
                let why: Vec<String> = of.into_iter().filter_map(Result::err).collect();
                skip(&format!("no groups of version 1 can be made here: {}", why.join(", ")));
            }
        }
    } else {
        skip("there are no control groups of version 1 here");
    }
    if tried == 0 {
        missing("hierarchy of control groups", "limit a daemon with");
    }
}
