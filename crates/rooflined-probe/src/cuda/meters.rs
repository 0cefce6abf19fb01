//! What the probe reads beside its own clock: temperature and reported clock, from NVML or the kernel's zones, and who else
//! works on the GPU, where NVML tells.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use super::driver::Facts;
use rooflined_core::units::{Celsius, Hertz};

/// Where the kernel keeps its thermal zones.
const ZONES: &str = "/sys/class/thermal";
/// Part of its time, in percent, that a process keeps a GPU busy from which on what is measured beside it is not the GPU's own.
const BUSY_PERCENT: u32 = 10;
/// How long a utilization may tell of work that has ended: NVML averages over up to a second.
const STALE: Duration = Duration::from_millis(1_200);
/// The namespace of the processes that NVML names.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
/// Processes named at most.
const MOST_NAMED: usize = 3;

/// The instruments of one GPU; whatever is missing stays unknown.
pub struct Meters {
    /// The management library, and where on the bus the GPU is.
    nvml: Option<(Nvml, String)>,
    /// When processes were asked for last, in microseconds since 1970, as NVML has it.
    asked: Cell<u64>,
    /// What they did, and when they were asked for.
    worked: RefCell<Option<(Instant, Vec<u32>)>>,
}

impl Meters {
    /// Finds the instruments of a device.
    pub fn find(facts: &Facts) -> Self {
        let (domain, bus, device) = facts.pci;
        let place = format!("{domain:08x}:{bus:02x}:{device:02x}.0");
        let nvml = Nvml::init().ok().map(|nvml| (nvml, place));
        Self { nvml, asked: Cell::new(now()), worked: RefCell::new(None) }
    }

    /// Who else kept the GPU busy, in words, as far as NVML tells what each process did. One that only has a context, as every
    /// desktop and camera has, disturbs nobody.
    pub fn others(&self) -> Option<String> {
        let busy: Vec<u32> = self.worked()?.into_iter().filter(|pid| !is_own(*pid)).collect();
        (!busy.is_empty()).then(|| format!("{} used the GPU too", names(&busy)))
    }

    /// Who may be behind other work that has been seen, in words: the processes that have a context.
    pub fn suspects(&self) -> Option<String> {
        Some(names(&self.neighbours()?))
    }

    /// Processes that kept the GPU busy lately; `None` where NVML does not tell.
    fn worked(&self) -> Option<Vec<u32>> {
        let mut known = self.worked.borrow_mut();
        if let Some(busy) = self.worked_since() {
            *known = Some((Instant::now(), busy));
        }
        // NVML has nothing new for up to a second.
        known.as_ref().filter(|(asked, _)| asked.elapsed() < 2 * STALE).map(|(_, busy)| busy.clone())
    }

    /// The same since this was last asked; `None` where there is nothing new, or nothing of this process.
    fn worked_since(&self) -> Option<Vec<u32>> {
        let (asked, now) = (self.asked.get(), now());
        let mut samples = self.device()?.process_utilization_stats(Some(asked)).ok()?;
        // Drivers also hand out what is older than asked for, and entries that nothing was written to.
        samples.retain(|sample| {
            (asked + 1..=now).contains(&sample.timestamp) && sample.sm_util <= 100 && sample.mem_util <= 100
        });
        self.asked.set(samples.iter().map(|sample| sample.timestamp).max()?);
        samples.iter().find(|sample| sample.pid == std::process::id())?;
        let busy = samples.iter().filter(|sample| sample.sm_util.max(sample.mem_util) >= BUSY_PERCENT);
        Some(busy.map(|sample| sample.pid).collect())
    }

    /// The other processes that have a context on the GPU; `None` without any. In a container processes have other numbers
    /// than NVML says: unless this one is among them, nothing can be said.
    fn neighbours(&self) -> Option<Vec<u32>> {
        let listed = self.device()?.running_compute_processes().ok()?;
        let own = std::process::id();
        let known = listed.iter().any(|process| process.pid == own) || in_first_namespace();
        let pids = listed.iter().map(|process| process.pid);
        let others: Vec<u32> = pids.filter(|pid| !is_own(*pid)).collect();
        (known && !others.is_empty()).then_some(others)
    }

    fn device(&self) -> Option<nvml_wrapper::Device<'_>> {
        let (nvml, place) = self.nvml.as_ref()?;
        nvml.device_by_pci_bus_id(place.as_str())
            .or_else(|error| match nvml.device_count() {
                // With one there is no doubt which.
                Ok(1) => nvml.device_by_index(0),
                _ => Err(error),
            })
            .ok()
    }

    /// Temperature of the GPU; of a board whose library does not tell it that of the hottest zone.
    pub fn temperature(&self) -> Option<Celsius> {
        let reported = self.device().and_then(|device| device.temperature(TemperatureSensor::Gpu).ok());
        reported.map(|degrees| Celsius(f64::from(degrees))).or_else(|| hottest(Path::new(ZONES)))
    }

    /// Version of the driver, as its tools show it.
    pub fn driver(&self) -> Option<String> {
        self.nvml.as_ref()?.0.sys_driver_version().ok().filter(|version| !version.is_empty())
    }

    /// Clock of the SMs as the driver reports it.
    pub fn clock(&self) -> Option<Hertz> {
        let megahertz = self.device()?.clock_info(Clock::SM).ok()?;
        (megahertz > 0).then(|| Hertz(f64::from(megahertz) * 1e6))
    }
}

/// A process by name and number.
fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|letter| !letter.is_control()).collect();
    if name.is_empty() { format!("process {pid}") } else { format!("{name} (process {pid})") }
}

/// Processes by name and number, the first few.
fn names(pids: &[u32]) -> String {
    let named: Vec<String> = pids.iter().take(MOST_NAMED).map(|pid| name_of(*pid)).collect();
    let more = pids.len().saturating_sub(MOST_NAMED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Whether a process is this one, the one that started it, or another that it started: a worker that is still dying.
fn is_own(pid: u32) -> bool {
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    pid == std::process::id() || parent.is_some_and(|parent| pid == parent || parent_of(pid) == Some(parent))
}

fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A name may hold anything, also a parenthesis; behind it come the state and the parent.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Whether processes have the numbers here that the driver knows them by.
fn in_first_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST_PID_NAMESPACE)
}

fn hottest(zones: &Path) -> Option<Celsius> {
    let entries = fs::read_dir(zones).ok()?;
    let read = |path: &Path| fs::read_to_string(path.join("temp")).ok()?.trim().parse::<f64>().ok();
    entries
        .filter_map(|entry| read(&entry.ok()?.path()))
        // A zone that is switched off says -256 °C or more than any chip survives.
        .filter(|thousandths| (-40e3..150e3).contains(thousandths))
        .max_by(f64::total_cmp)
        .map(|thousandths| Celsius(thousandths / 1e3))
}
