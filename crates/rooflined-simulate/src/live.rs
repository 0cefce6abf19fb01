//! The thread that makes a tree live: reads caps and load, steps the physics, rewrites the files that changed.
//!
//! It sleeps until somebody writes a cap or the load, which inotify tells, or until the next tick is due: often under
//! load, seldom once nothing moves any more. The counters of /proc/stat move all the time. They are brought up to date
//! after each reading, so that the next one finds other ones and an idle board costs nothing while nobody looks.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Timespec, inotify};
use rustix::pipe::{PipeFlags, pipe_with};

use super::kernel::{self, number, place, read};
use super::physics::{Caps, Load, ROOM, State, lost_to_peaks, step};
use super::spec::{Rail, Spec};
use super::tree::{self, NVML};
use rooflined_hw::boot_time;

/// Between ticks while there is load or something moves fast.
const BUSY: Duration = Duration::from_millis(100);
/// While temperature and counters still move.
const COOLING: Duration = Duration::from_millis(500);
/// Once nothing moves but the counters of /proc/stat, and nobody reads them.
const IDLE: Duration = Duration::from_secs(4);
/// The CPUs' times.
const STAT: &str = "/proc/stat";
/// Under this directory a client of the accelerator says what it does.
pub(super) const LOAD: &str = "/rooflined/load";

/// What the accelerator's client says, and how much of the shared memory it has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ReportedLoad {
    load: Load,
    memory_kib: u64,
}

/// Reads `gpu 0.9`, `memory 0.8`, `cpu 0.1`, `memory_kib 4096` and `until_s 1234.5` (CLOCK_BOOTTIME), a line each.
fn reported_load(root: &Path, now: f64) -> ReportedLoad {
    let text = read(root, LOAD).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(' '));
        lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse::<f64>().ok())
    };
    if field("until_s").is_none_or(|until| now.is_nan() || until < now) {
        return ReportedLoad::default();
    }
    let part = |name| field(name).filter(|value| value.is_finite()).unwrap_or(0.0).clamp(0.0, 1.0);
    let load = Load { gpu: part("gpu"), memory: part("memory"), cpu: part("cpu") };
    ReportedLoad { load, memory_kib: field("memory_kib").unwrap_or(0.0).clamp(0.0, 1e12) as u64 }
}

/// A file that is kept open and written only when its text changes.
struct WrittenFile {
    file: File,
    text: String,
}

struct Files<'a> {
    root: &'a Path,
    kept: HashMap<String, WrittenFile>,
}

impl Files<'_> {
    /// A file that is not there, such as that of a frequency policy whose CPUs are offline, is passed over.
    fn put(&mut self, path: &str, text: String) -> io::Result<()> {
        let text = text + "\n";
        if let Some(kept) = self.kept.get_mut(path) {
            if kept.text != text {
                kernel::replace(&kept.file, kept.text.len() as u64, &text)?;
                kept.text = text;
            }
            return Ok(());
        }
        let file = match OpenOptions::new().write(true).open(place(self.root, path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        kernel::replace(&file, file.metadata()?.len(), &text)?;
        self.kept.insert(path.to_owned(), WrittenFile { file, text });
        Ok(())
    }

    fn forget(&mut self, part: &str) {
        self.kept.retain(|path, _| !path.contains(part));
    }
}

struct Board<'a> {
    spec: &'static Spec,
    files: Files<'a>,
    caps: Caps,
    online: Vec<u32>,
    state: State,
    memory_kib: u64,
    at: f64,
    /// Over-current events a second, lately.
    events: f64,
}

impl<'a> Board<'a> {
    fn new(spec: &'static Spec, root: &'a Path) -> Self {
        let online = kernel::online(spec, root);
        let caps = caps(spec, root, &online, None);
        Self {
            spec,
            files: Files { root, kept: HashMap::new() },
            caps,
            online,
            state: State::cold(spec, &caps),
            memory_kib: 0,
            at: boot_time().get(),
            events: 0.0,
        }
    }

    /// Brings the tree up to now; says how long it may be left alone.
    fn tick(&mut self) -> io::Result<Duration> {
        let now = boot_time().get();
        let dt = (now - self.at).max(0.0);
        self.at = now;
        let root = self.files.root;
        let online = kernel::online(self.spec, root);
        if online != self.online {
            kernel::settle_cpus(self.spec, root)?;
            // Policies may have gone and come back as other files.
            self.files.forget("/cpufreq/");
            self.online = online;
        }
        self.caps = caps(self.spec, root, &self.online, Some(self.caps));
        let reported = reported_load(root, now);
        self.memory_kib = reported.memory_kib;
        let before = self.state;
        self.state = step(self.spec, &self.caps, reported.load, &before, dt);
        if dt > 0.0 {
            let rate = (self.state.over_current - before.over_current) / dt;
            self.events += (rate - self.events) * (dt / 1.0).min(1.0);
        }
        self.show()?;
        let busy = reported != ReportedLoad::default() || self.state.gpu != before.gpu;
        Ok(match busy {
            true => BUSY,
            false if self.state.settled(&before) => IDLE,
            false => COOLING,
        })
    }

    fn show(&mut self) -> io::Result<()> {
        self.show_gpu()?;
        self.show_cpus()?;
        let (spec, state) = (self.spec, self.state);
        for (index, (_, above, gated)) in spec.thermal.zones.iter().enumerate() {
            let text = tree::zone_text(state.temperature, *above, *gated);
            self.files.put(&format!("/sys/class/thermal/thermal_zone{index}/temp"), text)?;
        }
        let level = if state.throttling() { "1" } else { "0" };
        // gpu-throttle-alert.
        self.files.put("/sys/class/thermal/cooling_device3/cur_state", level.into())?;
        for rail in &spec.rails {
            for (name, text) in tree::rail_texts(rail, rail_power(spec, rail, &state)) {
                self.files.put(&format!("{}/{name}", rail.dir), text)?;
            }
        }
        self.files.put(
            "/sys/devices/platform/soctherm-oc-event/hwmon/hwmon5/oc3_event_cnt",
            format!("{:.0}", state.over_current.floor()),
        )
    }

    fn show_gpu(&mut self) -> io::Result<()> {
        let (spec, state) = (self.spec, self.state);
        // What peaks cost shows as a slightly lower mean clock to a measurement, not in the file of the clock.
        let hz = spec.gpu.down(state.gpu as u64);
        let clock = if state.gated { 0 } else { hz };
        let permille = (state.load.gpu.max(state.load.memory) * 1000.0).round();
        if let Some(dir) = &spec.gpu_devfreq {
            self.files.put(&format!("{dir}/cur_freq"), clock.to_string())?;
            self.files.put(&format!("{dir}/target_freq"), clock.to_string())?;
        }
        if let Some(device) = &spec.gpu_device {
            self.files.put(&format!("{device}/load"), permille.to_string())?;
        }
        // A board has some of these.
        let activity = state.load.memory * state.emc / 1e3;
        let status = if state.gated { "suspended" } else { "active" };
        for (path, text) in [
            ("/sys/kernel/debug/bpmp/debug/clk/emc/rate", format!("{:.0}", state.emc)),
            ("/sys/kernel/debug/cactmon/mc_all", format!("{activity:.0}")),
            ("/sys/class/devfreq/bwmgr/cur_freq", format!("{:.0}", state.emc)),
            ("/sys/bus/pci/devices/0000:01:00.0/power/runtime_status", status.to_owned()),
        ] {
            self.files.put(path, text)?;
        }
        let power = state.idle_power + state.gpu_power + state.memory_power;
        let reasons = match (state.throttling(), permille > 0.0) {
            (true, _) => "0x20",
            (false, true) => "0x0",
            (false, false) => "0x1",
        };
        for (name, text) in [
            ("sm_clock_mhz", format!("{:.0}", state.gpu / 1e6)),
            ("utilization_gpu_percent", format!("{:.0}", permille / 10.0)),
            ("power_mw", format!("{:.0}", power * 1e3)),
            ("temperature_c", format!("{:.0}", state.temperature)),
            ("energy_mj", format!("{:.0}", state.energy * 1e3)),
            ("throttle_reasons", reasons.to_owned()),
        ] {
            self.files.put(&format!("{NVML}/{name}"), text)?;
        }
        let lost = lost_to_peaks(self.events);
        self.files.put("/rooflined/peaks", format!("{lost:.4}"))
    }

    fn show_cpus(&mut self) -> io::Result<()> {
        let (spec, state) = (self.spec, self.state);
        for cluster in &spec.clusters {
            let first = cluster.cpus.first().copied().unwrap_or_default();
            let dir = format!("/sys/devices/system/cpu/cpufreq/policy{first}");
            let clock = cluster.clocks.down((state.cpu / 1e3) as u64).to_string();
            self.files.put(&format!("{dir}/scaling_cur_freq"), clock.clone())?;
            self.files.put(&format!("{dir}/cpuinfo_cur_freq"), clock)?;
        }
        let text = tree::stat(&self.online, state.cpu_busy, state.cpu_idle);
        self.files.put(STAT, text.trim_end().to_owned())?;
        let average = state.load_average;
        let load = format!("{average:.2} {:.2} {:.2} 1/512 4242", average * 0.8, average * 0.5);
        self.files.put("/proc/loadavg", load)?;
        self.files.put("/proc/meminfo", tree::meminfo(spec, self.memory_kib).trim_end().to_owned())
    }
}

/// The caps as the files have them now. What was written off the clock's table is rounded down in the file, as the
/// kernel does; what cannot be read leaves the cap of before.
fn caps(spec: &'static Spec, root: &Path, online: &[u32], before: Option<Caps>) -> Caps {
    let tidy = |path: &str| {
        let text = read(root, path)?;
        let accepted = kernel::accepted(spec, root, path, &text);
        if accepted != text {
            // Its writer may be writing again.
            let _ = kernel::write(root, path, &accepted);
        }
        accepted.parse::<f64>().ok()
    };
    let (top, lowest, emc) = (spec.gpu.max as f64, spec.gpu.min as f64, spec.emc_max as f64);
    let (gpu_max, gpu_min) = if let Some(dir) = &spec.gpu_devfreq {
        let high = tidy(&format!("{dir}/max_freq")).or(before.map(|caps| caps.gpu_max)).unwrap_or(top);
        let low = tidy(&format!("{dir}/min_freq")).or(before.map(|caps| caps.gpu_min)).unwrap_or(lowest);
        (high, low.min(high))
    } else {
        let text = read(root, &format!("{NVML}/locked_clocks_mhz")).unwrap_or_default();
        let bounds = text.split_once(',').and_then(|(low, high)| {
            Some((low.trim().parse::<f64>().ok()? * 1e6, high.trim().parse::<f64>().ok()? * 1e6))
        });
        bounds.map_or((top, lowest), |(low, high)| {
            (high.clamp(lowest, top), low.clamp(lowest, high.max(lowest)))
        })
    };
    // 0 is no cap on the older kernels.
    let emc_cap = spec.emc_cap_file.as_deref().and_then(tidy).filter(|hz| *hz > 0.0);
    let mask = spec.mask_file.as_deref().and_then(|file| number(root, file)).map_or(0, |mask| mask as u32);
    let policies = spec.clusters.iter().filter(|cluster| cluster.cpus.iter().any(|cpu| online.contains(cpu)));
    let cpu = policies.filter_map(|cluster| {
        tidy(&format!("/sys/devices/system/cpu/cpufreq/policy{}/scaling_max_freq", cluster.cpus.first()?))
    });
    Caps {
        gpu_max,
        gpu_min,
        emc_max: emc_cap.map_or(emc, |hz| hz.min(emc)),
        sm: spec.sm_online(mask),
        cpu_max: cpu.reduce(f64::max).map_or(spec.cpu_max() as f64, |khz| khz) * 1e3,
        cores: u32::try_from(online.len()).unwrap_or(1),
        held: number(root, "/rooflined/held_mhz")
            .filter(|mhz| *mhz > 0.0)
            .map_or(f64::INFINITY, |mhz| mhz * 1e6),
        ambient: number(root, "/rooflined/ambient_c").filter(|c| (-60.0..=150.0).contains(c)).unwrap_or(ROOM),
    }
}

fn rail_power(spec: &Spec, rail: &Rail, state: &State) -> f64 {
    // What idling costs beyond the published idle shows on the input or the GPU's rail.
    let further = if rail.gpu > 0.0 { state.idle_power - spec.power.idle } else { 0.0 };
    rail.idle
        + further
        + rail.gpu * state.gpu_power
        + rail.memory * state.memory_power
        + rail.cpu * state.cpu_power
}

/// The thread that moves the board; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Life {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    /// Starts the thread with the board as it is after its boot.
    pub fn start(spec: &'static Spec, root: &Path, watch: OwnedFd) -> io::Result<Self> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        observe(&watch, spec, root)?;
        let root = root.to_owned();
        // Once at least before anybody reads.
        Board::new(spec, &root).tick()?;
        let thread = thread::Builder::new()
            .name("simulation".into())
            .stack_size(256 * 1024)
            .spawn(move || live(spec, &root, &watch, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What tells of writes; the kernel gives a user only so many.
pub(super) fn instance() -> io::Result<OwnedFd> {
    Ok(inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?)
}

/// Has `watch` tell of every write to the caps and the load, and of every reading of the counters. Our own files stay
/// open, so writing them closes none.
fn observe(watch: &OwnedFd, spec: &Spec, root: &Path) -> io::Result<()> {
    let parent = |path: &str| path.rsplit_once('/').map(|(dir, _)| dir.to_owned());
    let caps = [&spec.emc_cap_file, &spec.mask_file].into_iter().flatten().filter_map(|path| parent(path));
    let mut dirs: Vec<String> = caps.chain(spec.gpu_devfreq.clone()).collect();
    dirs.push("/rooflined".into());
    dirs.push(NVML.into());
    dirs.extend((0..spec.cpus()).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}")));
    for dir in dirs.iter().map(|dir| place(root, dir)).filter(|dir| dir.is_dir()) {
        let flags = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(watch, &dir, flags)?;
    }
    inotify::add_watch(watch, place(root, STAT), inotify::WatchFlags::ACCESS)?;
    Ok(())
}

fn live(spec: &'static Spec, root: &Path, watch: &OwnedFd, stopped: &OwnedFd) {
    let mut board = Board::new(spec, root);
    let mut failed = false;
    loop {
        let wait = match board.tick() {
            Ok(wait) => {
                failed = false;
                wait
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    tracing::warn!(root = %root.display(), %error, "the simulated board cannot be written");
                }
                IDLE
            }
        };
        if !rest(wait, watch, stopped) {
            return;
        }
    }
}

/// Waits until the next tick is due: after `wait`, at once after a write, and `BUSY` after the last tick where somebody
/// has read counters since. False once it is to end.
fn rest(mut wait: Duration, watch: &OwnedFd, stopped: &OwnedFd) -> bool {
    let began = Instant::now();
    loop {
        let left = wait.saturating_sub(began.elapsed());
        let mut fds = [PollFd::new(stopped, PollFlags::IN), PollFd::new(watch, PollFlags::IN)];
        let timeout = Timespec::try_from(left).ok();
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted: the next tick comes early.
            return true;
        }
        if !fds[0].revents().is_empty() {
            return false;
        }
        if !fds[1].revents().is_empty() {
            if tells_of_writes(watch) {
                return true;
            }
            wait = wait.min(BUSY);
        }
        if began.elapsed() >= wait {
            return true;
        }
    }
}

/// Takes what inotify has to tell; whether anything of it is more than a reading.
fn tells_of_writes(watch: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut writes = false;
    while let Ok(event) = events.next() {
        writes |= !event.events().contains(inotify::ReadFlags::ACCESS);
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;

    #[test]
    fn the_counters_of_an_idle_board_are_others_when_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let _board =
            Simulation::create("jetson-orin-nano-8gb-super", Some(dir.path()), Path::new("/bin/true"))
                .unwrap();
        // Of the first CPU, busy and idle.
        let ticks = || {
            let stat = read(dir.path(), STAT).unwrap();
            let line = stat.lines().nth(1).unwrap();
            line.split_whitespace().skip(1).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>()
        };
        let (first, start) = (ticks(), boot_time().get());
        let mut before = first;
        // By itself it moves three times in that time, at most.
        let (began, mut moves) = (Instant::now(), 0);
        while moves < 6 {
            assert!(began.elapsed() < 3 * IDLE, "{moves}");
            thread::sleep(Duration::from_millis(200));
            let now = ticks();
            moves += u32::from(now != before);
            before = now;
        }
        // They are those of the time that has passed, up to a reading before the last.
        let passed = boot_time().get() - start;
        assert!((before - first) / 100.0 <= passed + IDLE.as_secs_f64(), "{before} {first} {passed}");
        assert!(before > first + 50.0, "{before} {first}");
    }
}
