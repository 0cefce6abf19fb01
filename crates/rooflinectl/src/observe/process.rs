//! A process of this machine, as /proc shows it: who listens on a port, what it was started with, and whether it had the
//! processors to itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::command_line::{self, Program, Settings};
use super::window::Skip;
use crate::failure::Failure;

/// A thread that computes waits for the others at every operation without giving its processor up, so it runs for nearly all
/// of a window; one that answers requests runs for next to nothing.
const COMPUTES_RATIO: f64 = 0.5;
/// A smaller difference of the clocks with and without suspend is rounding.
const SUSPEND_S: f64 = 0.1;

/// A process by number and birth, so that a reused number is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Clock ticks since boot.
    started: u64,
    pub arguments: Vec<String>,
    /// `None` where it may not be read, as that of another user.
    pub environment: Option<BTreeMap<String, String>>,
    directory: Option<PathBuf>,
}

pub fn read(pid: u32, name: &str) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/{name}")).ok()
}

/// Fields of `stat` after the name, which may hold blanks and brackets: the first is the state, field 3.
pub fn stat(pid: u32) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&read(pid, "stat")?).into_owned();
    Some(text.get(text.rfind(')')? + 1..)?.split_whitespace().map(ToOwned::to_owned).collect())
}

/// Field of `stat`, by its number in proc(5).
pub fn field(stat: &[String], number: usize) -> Option<u64> {
    stat.get(number.checked_sub(3)?)?.parse().ok()
}

/// Why what has this number runs no program; `None` where it does, or is not there.
pub fn not_a_program(pid: u32) -> Option<String> {
    /// PF_KTHREAD of include/linux/sched.h.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let stat = stat(pid)?;
    let parent = field(&stat, 4).unwrap_or_default();
    if stat.first().is_some_and(|state| state == "Z" || state == "X") {
        return Some(format!(
            "a zombie: it has ended, and its parent, process {parent}, has not collected it yet"
        ));
    }
    let is_of_kernel = field(&stat, 9).is_some_and(|flags| flags & KERNEL_THREAD != 0);
    is_of_kernel.then(|| "a thread of the kernel".to_owned())
}

fn strings(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

impl Process {
    /// `None` where there is none.
    pub fn find(pid: u32) -> Option<Self> {
        let pairs = |bytes: Vec<u8>| {
            let pair =
                |text: &String| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            strings(&bytes).iter().filter_map(pair).collect()
        };
        Some(Self {
            pid,
            started: field(&stat(pid)?, 22)?,
            arguments: strings(&read(pid, "cmdline")?),
            environment: read(pid, "environ").map(pairs),
            directory: fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        })
    }

    /// Every process that can be seen.
    pub fn all() -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The one that listens on `port`: by its sockets, where they may be read, else the llama-server that was told this port.
    pub fn listening_on(port: u16) -> Option<Self> {
        let inodes: BTreeSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .into_iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listeners(&table).into_iter().filter(|(of, _)| *of == port).collect::<Vec<_>>())
            .map(|(_, inode)| format!("socket:[{inode}]"))
            .collect();
        let pids = Self::all();
        let listens = |pid: &u32| sockets(*pid).iter().any(|socket| inodes.contains(socket));
        // A server's workers may have inherited its socket. Numbers start again, so the lowest need not be the first.
        let owners = pids.iter().copied().filter(listens).filter_map(Self::find);
        owners.min_by_key(|process| (process.started, process.pid)).or_else(|| {
            pids.into_iter().filter_map(Self::find).find(|process| {
                process.program() == Program::LlamaServer && process.settings().port.unwrap_or(8080) == port
            })
        })
    }

    /// Every process that is this program.
    pub fn of(program: Program) -> Vec<Self> {
        Self::all()
            .into_iter()
            .filter_map(Self::find)
            .filter(|process| process.program() == program)
            .collect()
    }

    /// Ports that it listens on, lowest first.
    pub fn ports(&self) -> Vec<u16> {
        let own = sockets(self.pid);
        let tables = ["net/tcp", "net/tcp6"].into_iter().filter_map(|table| read(self.pid, table));
        let ports: BTreeSet<u16> = tables
            .flat_map(|table| listeners(&String::from_utf8_lossy(&table)))
            .filter(|(_, inode)| own.contains(&format!("socket:[{inode}]")))
            .map(|(port, _)| port)
            .collect();
        ports.into_iter().collect()
    }

    /// Whether this user may see its sockets.
    pub fn shows_sockets(&self) -> bool {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).is_ok()
    }

    /// Processes that it started.
    pub fn children(&self) -> Vec<Self> {
        let of_this = |pid: &u32| stat(*pid).and_then(|stat| field(&stat, 4)) == Some(u64::from(self.pid));
        Self::all().into_iter().filter(of_this).filter_map(Self::find).collect()
    }

    /// Name of its program.
    pub fn name(&self) -> String {
        let name = read(self.pid, "comm").map(|name| String::from_utf8_lossy(&name).trim().to_owned());
        name.map_or_else(|| "?".to_owned(), |name| crate::words::printable(&name))
    }

    /// Whether it is the other one, or one of them started the other.
    pub fn is_related_to(&self, other: &Self) -> bool {
        descends_from(self.pid, other.pid) || descends_from(other.pid, self.pid)
    }

    pub fn program(&self) -> Program {
        command_line::program(&self.arguments)
    }

    pub fn settings(&self) -> Settings {
        Settings::read(&self.arguments, self.environment.as_ref().unwrap_or(&BTreeMap::new()))
    }

    /// A path that it names, from where it stands; `None` where that is not known.
    pub fn path(&self, path: &str) -> Option<PathBuf> {
        if Path::new(path).is_absolute() {
            Some(PathBuf::from(path))
        } else {
            Some(self.directory.as_ref()?.join(path))
        }
    }

    /// Where this machine has the file that the process calls `path`, where that is another file than the one at `path` here: it runs
    /// in a root of its own, as in a container. `None` otherwise, and where its root may not be seen.
    pub fn in_own_root(&self, path: &Path) -> Option<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let inner = root.join(path.strip_prefix("/").ok()?);
        let identity = FileIdentity::of(&inner)?;
        (FileIdentity::of(path) != Some(identity)).then_some(inner)
    }

    /// What it has done up to now.
    ///
    /// # Errors
    /// It has ended, or another has its number.
    pub fn activity(&self) -> Result<Activity, Failure> {
        let message = || format!("the server, process {}, has ended", self.pid);
        let gone = || Failure::try_again(message(), "start it, then run this again");
        let stat = stat(self.pid).ok_or_else(gone)?;
        let has_ended = stat.first().is_some_and(|state| state == "Z" || state == "X");
        if has_ended || field(&stat, 22) != Some(self.started) {
            return Err(gone());
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(|_| gone())?;
        let times = tasks.flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u64>().ok());
            Some((task.file_name().to_str()?.parse().ok()?, (numbers.next()?, numbers.next()?)))
        });
        Ok(Activity {
            is_stopped: stat.first().is_some_and(|state| state == "T" || state == "t"),
            ticks: field(&stat, 14).zip(field(&stat, 15)).map(|(user, system)| user + system),
            tasks: times.collect(),
            steal: Steal::read(),
            suspended_s: suspended_s(),
        })
    }
}

/// Whether `pid` is `ancestor` or was started by it, over any number of steps.
fn descends_from(pid: u32, ancestor: u32) -> bool {
    const DEEPEST: usize = 64;
    let parent = |pid: &u32| u32::try_from(field(&stat(*pid)?, 4)?).ok();
    std::iter::successors(Some(pid), parent).take(DEEPEST).any(|of| of == ancestor)
}

/// Port and inode of every listening socket of a table of /proc/net.
fn listeners(table: &str) -> Vec<(u16, String)> {
    /// TCP_LISTEN.
    const LISTENING: &str = "0A";
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        (*words.get(3)? == LISTENING).then_some(())?;
        Some((port, (*words.get(9)?).to_owned()))
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// `socket:[inode]` of every socket that a process has open; none where it may not be read.
fn sockets(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let target = |entry: fs::DirEntry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok();
    entries.filter_map(target).filter(|target| target.starts_with("socket:")).collect()
}

/// Time since boot that the machine was suspended.
fn suspended_s() -> f64 {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    #[expect(clippy::cast_precision_loss, reason = "seconds since boot")]
    let seconds = |time: Timespec| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds(clock_gettime(ClockId::Boottime)) - seconds(clock_gettime(ClockId::Monotonic))
}

/// Ticks of all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steal {
    stolen: u64,
    all: u64,
}

impl Steal {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let ticks: Vec<u64> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map_while(|tick| tick.parse().ok())
            .collect();
        // Guest time, the last two, is in user time already.
        Some(Self { stolen: *ticks.get(7)?, all: ticks.iter().take(8).sum() })
    }
}

/// What a process has done up to an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    is_stopped: bool,
    /// User and system time.
    ticks: Option<u64>,
    /// Time run and time waited for a processor, in ns, by task.
    tasks: BTreeMap<u32, (u64, u64)>,
    steal: Option<Steal>,
    suspended_s: f64,
}

impl Activity {
    /// Whether it has run since `before`; true where that is not known.
    pub fn has_run_since(&self, before: &Self) -> bool {
        self.ticks.zip(before.ticks).is_none_or(|(now, before)| now > before)
    }

    /// Time waited for a processor over time run, since `before`; `None` where it did not run.
    pub fn wait_ratio(&self, before: &Self) -> Option<f64> {
        let (mut run, mut waited) = (0, 0);
        for (task, (ran, wait)) in &self.tasks {
            let (was_run, was_wait) = before.tasks.get(task).copied().unwrap_or_default();
            run += ran.saturating_sub(was_run);
            waited += wait.saturating_sub(was_wait);
        }
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
        (run > 0).then(|| waited as f64 / run as f64)
    }

    /// Threads that computed in the `seconds` since `before`; `None` where none did, as where tasks may not be read.
    pub fn computing(&self, before: &Self, seconds: f64) -> Option<u64> {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
        let computed = |(task, (ran, _)): &(&u32, &(u64, u64))| {
            let was = before.tasks.get(*task).map_or(0, |(was, _)| *was);
            ran.saturating_sub(was) as f64 / 1e9 > COMPUTES_RATIO * seconds
        };
        Some(self.tasks.iter().filter(computed).count() as u64).filter(|threads| *threads > 0)
    }

    /// How the threads that computed in the `seconds` since `before` spent them; `None` where none did.
    pub fn shares(&self, before: &Self, seconds: f64) -> Option<Shares> {
        /// A thread that wants less of the time than the busiest one does other things.
        const AS_BUSY: f64 = 0.5;
        /// Less of the window is no computing.
        const LEAST_RATIO: f64 = 0.05;
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
        let spent = |(task, (ran, waited)): (&u32, &(u64, u64))| {
            let (was_ran, was_waited) = before.tasks.get(task).copied().unwrap_or_default();
            (ran.saturating_sub(was_ran) as f64 / 1e9, waited.saturating_sub(was_waited) as f64 / 1e9)
        };
        let mut all: Vec<(f64, f64)> = self.tasks.iter().map(spent).collect();
        let most = all.iter().map(|(ran, waited)| ran + waited).fold(0.0, f64::max);
        if most < LEAST_RATIO * seconds {
            return None;
        }
        all.retain(|(ran, waited)| ran + waited >= AS_BUSY * most);
        let waits = all.iter().map(|(ran, waited)| waited / (ran + waited)).fold(0.0, f64::max);
        // While one sleeps, the others spin at the next barrier.
        let slept: f64 = all.iter().map(|(ran, waited)| (seconds - ran - waited).max(0.0)).sum();
        Some(Shares {
            threads: u32::try_from(all.len()).unwrap_or(u32::MAX),
            wait_ratio: waits,
            blocked_ratio: (slept / seconds).min(1.0),
        })
    }

    /// Why the time since `before` does not tell what the server can do.
    pub fn judge(&self, before: &Self, max_wait_ratio: f64) -> Result<(), Skip> {
        if self.is_stopped || before.is_stopped {
            return Err(Skip::Stopped);
        }
        if (self.suspended_s - before.suspended_s).abs() > SUSPEND_S {
            return Err(Skip::Suspended);
        }
        if self.wait_ratio(before).is_some_and(|ratio| ratio > max_wait_ratio) {
            return Err(Skip::Starved);
        }
        let stolen = self.steal.zip(before.steal).is_some_and(|(now, before)| {
            #[expect(clippy::cast_precision_loss, reason = "ticks of a window")]
            let share = now.stolen.saturating_sub(before.stolen) as f64
                / now.all.saturating_sub(before.all).max(1) as f64;
            share > max_wait_ratio
        });
        if stolen { Err(Skip::Stolen) } else { Ok(()) }
    }
}

/// How threads that compute spent a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    pub threads: u32,
    /// Of the time that one of them wanted a processor, the part that it waited for one: the largest.
    pub wait_ratio: f64,
    /// Part of the window that any of them slept.
    pub blocked_ratio: f64,
}

/// What tells one model file from another of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
}

impl FileIdentity {
    /// `None` where it cannot be seen.
    pub fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let modified_ns = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
        Some(Self { device: file.dev(), inode: file.ino(), size: file.len(), modified_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn activity(run: u64, wait: u64, steal: u64) -> Activity {
        Activity {
            is_stopped: false,
            ticks: Some(run / 10_000_000),
            tasks: BTreeMap::from([(1, (run, wait)), (2, (0, 9_000_000))]),
            steal: Some(Steal { stolen: steal, all: 1000 + run / 10_000_000 }),
            suspended_s: 0.0,
        }
    }

    #[test]
    fn this_process_is_found_by_the_port_it_listens_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Process::listening_on(port).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.ports().contains(&port), "{:?}", own.ports());
        assert_eq!(own.program(), Program::Other);
        assert_eq!(own.path("x"), Some(std::env::current_dir().unwrap().join("x")));
        drop(listener);
        assert_eq!(Process::listening_on(port), None);
    }

    /// An emulator of programs shows them no ticks of their own.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_process_has_run_after_a_clock_tick() {
        let own = Process::find(std::process::id()).unwrap();
        let before = own.activity().unwrap();
        let mut sum = 0_u64;
        while !own.activity().unwrap().has_run_since(&before) {
            sum = std::hint::black_box((0..1_000_000).fold(sum, u64::wrapping_add));
        }
        assert!(own.activity().unwrap().wait_ratio(&before).is_some());
    }

    #[test]
    fn a_process_that_has_ended_or_never_was_is_none() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        assert!(process.activity().is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Process::find(child.id()), None);
        let ended = process.activity().unwrap_err();
        assert_eq!(ended.exit(), crate::failure::Exit::TryAgain);
    }

    #[test]
    fn what_runs_no_program_says_what_it_is() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        // Until it has ended; nobody waits for it yet.
        let why = loop {
            if let Some(why) = not_a_program(ended.id()) {
                break why;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert!(why.contains("a zombie") && why.contains(&std::process::id().to_string()), "{why}");
        ended.wait().unwrap();
        assert_eq!(not_a_program(ended.id()), None);
        assert_eq!(not_a_program(std::process::id()), None);
        let own = Process::find(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let related = Process::find(child.id()).unwrap();
        assert!(own.is_related_to(&related) && related.is_related_to(&own) && own.is_related_to(&own));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!Process::find(other.id()).unwrap().is_related_to(&related));
        for one in [&mut child, &mut other] {
            one.kill().unwrap();
            one.wait().unwrap();
        }
    }

    #[test]
    fn threads_that_compute_are_told_from_those_that_answer() {
        let of = |runs: [u64; 4]| Activity {
            tasks: (1..).zip(runs.map(|run| (run * 1_000_000, 0))).collect(),
            ..activity(0, 0, 0)
        };
        let before = of([5_000, 0, 100, 9_000]);
        assert_eq!(of([6_960, 1_400, 150, 9_000]).computing(&before, 2.0), Some(2));
        assert_eq!(before.computing(&before, 2.0), None);
        // A thread that began in the window.
        let after = of([6_960, 1_400, 150, 9_000]);
        assert_eq!(after.computing(&Activity { tasks: BTreeMap::new(), ..before }, 8.0), Some(2));
    }

    #[test]
    fn waiting_steal_stops_and_suspends_spoil_a_window() {
        let before = activity(1_000_000_000, 0, 0);
        let judge = |after: &Activity| after.judge(&before, 0.03);
        let quiet = activity(2_000_000_000, 20_000_000, 0);
        assert_eq!(judge(&quiet), Ok(()));
        assert_eq!(judge(&activity(2_000_000_000, 40_000_000, 0)), Err(Skip::Starved));
        assert_eq!(judge(&activity(2_000_000_000, 0, 50)), Err(Skip::Stolen));
        assert_eq!(judge(&Activity { is_stopped: true, ..quiet.clone() }), Err(Skip::Stopped));
        assert_eq!(judge(&Activity { suspended_s: 5.0, ..quiet.clone() }), Err(Skip::Suspended));
        assert_eq!(before.wait_ratio(&before), None);
        assert_eq!(activity(2_000_000_000, 900_000_000, 0).judge(&before, 1.0), Ok(()));
    }

    #[test]
    fn tables_of_the_kernel_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0\n   \
                     1: 0100007F:1F91 0100007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 12346 1 0\n";
        assert_eq!(listeners(table), [(8080, "12345".to_owned())]);
        let steal = Steal::parse("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1\n").unwrap();
        assert_eq!(steal, Steal { stolen: 10, all: 100 });
        assert_eq!(Steal::parse(""), None);
    }
}
