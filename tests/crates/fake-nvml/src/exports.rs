//! The functions of NVML, with its own names and argument lists.

#![allow(non_snake_case)]

use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::activity::{Activity, Timed, boottime_ns};
use crate::scenario::{Scenario, Tenant, VARIABLE, lost};

/// An `nvmlReturn_t`.
type Code = c_uint;

const SUCCESS: Code = 0;
const UNINITIALIZED: Code = 1;
const INVALID_ARGUMENT: Code = 2;
const NOT_SUPPORTED: Code = 3;
const INSUFFICIENT_SIZE: Code = 7;
const DRIVER_NOT_LOADED: Code = 9;
const GPU_IS_LOST: Code = 15;
const GPU_NOT_FOUND: Code = 28;
const UNKNOWN: Code = 999;

const HANDLE: usize = 0x4e56;

/// `nvmlReturn_t` in words.
const TEXTS: [(Code, &CStr); 30] = [
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid argument"),
    (3, c"Not supported"),
    (4, c"No permission"),
    (5, c"Already initialized"),
    (6, c"Not found"),
    (7, c"Insufficient size"),
    (8, c"Insufficient external power"),
    (9, c"Driver not loaded"),
    (10, c"Timeout"),
    (11, c"Interrupt request issue"),
    (12, c"Library not found"),
    (13, c"Function not found"),
    (14, c"Corrupted infoROM"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"GPU access blocked by the operating system"),
    (18, c"Driver and library versions differ"),
    (19, c"In use"),
    (20, c"Insufficient memory"),
    (21, c"No data"),
    (22, c"Not supported with ECC on"),
    (23, c"Insufficient resources"),
    (24, c"Frequency not supported"),
    (25, c"Argument version mismatch"),
    (26, c"Deprecated"),
    (27, c"Not ready"),
    (28, c"GPU not found"),
    (999, c"Unknown error"),
];

struct Library {
    scenario: Scenario,
    path: PathBuf,
    trouble: Option<String>,
    /// Started and not stopped so often.
    starts: u32,
    calls: HashMap<&'static str, u64>,
    all_calls: u64,
}

static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| {
    let path = env::var_os(VARIABLE).map(PathBuf::from);
    let scenario = match &path {
        Some(path) => Scenario::read(path),
        None => Err(format!("{VARIABLE} does not name a scenario")),
    };
    let (scenario, trouble) = match scenario {
        Ok(scenario) => (scenario, None),
        Err(trouble) => (Scenario::toy(), Some(trouble)),
    };
    let path = path.unwrap_or_default();
    Mutex::new(Library { scenario, path, trouble, starts: 0, calls: HashMap::new(), all_calls: 0 })
});

enum Answer {
    Code(Code),
    Never,
}

/// Runs a function of the library: counts it, has it fail or hang where the scenario says so, and lets no panic out.
fn call(name: &'static str, body: impl FnOnce(&mut Library) -> Result<(), Code>) -> Code {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        library.enter(name)?;
        body(&mut library).map_err(Answer::Code)
    }));
    match done {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(Answer::Code(code))) => code,
        Ok(Err(Answer::Never)) => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        Err(_) => UNKNOWN,
    }
}

/// As [`call`], with the one GPU that there is.
fn of_device(name: &'static str, device: usize, body: impl FnOnce(&mut Library) -> Result<(), Code>) -> Code {
    call(name, |library| match device {
        HANDLE if lost(&library.path).exists() => Err(GPU_IS_LOST),
        HANDLE => body(library),
        _ => Err(INVALID_ARGUMENT),
    })
}

impl Library {
    fn enter(&mut self, name: &'static str) -> Result<(), Answer> {
        let before = self.calls.entry(name).or_default();
        let (before, all) = (std::mem::replace(before, *before + 1), self.all_calls);
        self.all_calls += 1;
        let nvml = &self.scenario.nvml;
        for fail in &nvml.fail {
            let before = match fail.call.as_str() {
                "*" => all,
                call if call == name => before,
                _ => continue,
            };
            if fail.strikes(before) {
                return Err(Answer::Code(fail.code));
            }
        }
        if nvml.hang.iter().any(|hang| hang.call == name && before >= hang.after) {
            return Err(Answer::Never);
        }
        if self.starts == 0 && !name.starts_with("nvmlInit") {
            return Err(Answer::Code(UNINITIALIZED));
        }
        let plain = |name: &str| name.trim_end_matches("_v2").trim_end_matches("_v3").to_owned();
        if nvml.not_supported.iter().any(|it| plain(it) == plain(name)) {
            return Err(Answer::Code(NOT_SUPPORTED));
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Code> {
        if let Some(trouble) = &self.trouble {
            eprintln!("fake libnvidia-ml: {trouble}");
            return Err(DRIVER_NOT_LOADED);
        }
        self.starts += 1;
        Ok(())
    }

    /// What the GPU does now; `None` where it does nothing.
    fn load(&self) -> Option<Activity> {
        let activity = Activity::read(&self.path)?;
        let busy = match activity.timed {
            Some(timed) => timed.busy && runs(timed.pid),
            None => activity.busy_until_ns > boottime_ns(),
        };
        busy.then_some(activity)
    }

    /// What the GPU is at a moment of its own time, where its driver keeps one.
    fn timed(&self) -> Option<(Activity, Timed)> {
        let activity = Activity::read(&self.path)?;
        activity.timed.filter(|timed| runs(timed.pid)).map(|timed| (activity, timed))
    }

    /// The scenario's other processes that are there now. Before the driver's time begins, those that are from the start.
    fn tenants(&self) -> Vec<&Tenant> {
        let known = self.timed().map(|(_, timed)| timed.tenants);
        let here = |place: usize, tenant: &Tenant| match known {
            Some(tenants) => tenants >> place & 1 == 1,
            None => tenant.when.at(0.0).0,
        };
        let tenants = self.scenario.tenant.iter().enumerate();
        tenants.filter(|(place, tenant)| here(*place, tenant)).map(|(_, tenant)| tenant).collect()
    }

    fn power_w(&self) -> f64 {
        let power = &self.scenario.power;
        let load = self.load().unwrap_or_default();
        power.idle_w
            + (power.full_w - power.idle_w) * load.compute.min(1.0)
            + power.w_per_gbs * load.dram_bytes_per_s / 1e9
    }

    fn clock_hz(&self, name: &str, kind: c_uint, highest: bool) -> Result<f64, Code> {
        let clock = &self.scenario.clock;
        if self.scenario.nvml.not_supported.iter().any(|it| *it == format!("{name}({kind})")) {
            return Err(NOT_SUPPORTED);
        }
        match kind {
            // Graphics and SMs are one clock.
            0 | 1 if highest => Ok(clock.sm_hz),
            0 | 1 => Ok(match self.timed() {
                Some((activity, _)) => activity.sm_hz,
                None => self.load().map_or(clock.idle_hz, |load| load.sm_hz),
            }),
            2 => Ok(clock.memory_hz),
            3 => Err(NOT_SUPPORTED),
            _ => Err(INVALID_ARGUMENT),
        }
    }
}

/// Whether there is a process of that number.
fn runs(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Code> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller's to write to by the function's contract.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

unsafe fn put_text(place: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if length as usize <= text.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and the zero after it fit in the caller's `length` bytes.
    unsafe {
        text.as_ptr().copy_to_nonoverlapping(place.cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    call("nvmlInit_v2", Library::start)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    call("nvmlInitWithFlags", Library::start)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Code {
    call("nvmlShutdown", |library| {
        library.starts -= 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    TEXTS.iter().find(|(known, _)| *known == code).map_or(c"Unknown error", |(_, text)| text).as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Code {
    call("nvmlSystemGetDriverVersion", |library| unsafe {
        put_text(version, length, &library.scenario.nvml.driver_version)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> Code {
    call("nvmlSystemGetNVMLVersion", |library| unsafe {
        let cuda = library.scenario.driver_version / 1000;
        put_text(version, length, &format!("{cuda}.{}", library.scenario.nvml.driver_version))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> Code {
    call("nvmlSystemGetCudaDriverVersion_v2", |library| unsafe {
        put(version, library.scenario.driver_version)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Code {
    call("nvmlDeviceGetCount_v2", |library| unsafe { put(count, c_uint::from(!library.scenario.no_device)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut usize) -> Code {
    call("nvmlDeviceGetHandleByIndex_v2", |library| {
        if library.scenario.no_device || index != 0 {
            return Err(if library.scenario.no_device { GPU_NOT_FOUND } else { INVALID_ARGUMENT });
        }
        unsafe { put(device, HANDLE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: usize, name: *mut c_char, length: c_uint) -> Code {
    of_device("nvmlDeviceGetName", device, |library| unsafe {
        put_text(name, length, &library.scenario.name)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: usize, uuid: *mut c_char, length: c_uint) -> Code {
    of_device("nvmlDeviceGetUUID", device, |library| {
        let hex: String = library.scenario.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        unsafe { put_text(uuid, length, &format!("GPU-{}", parts.join("-"))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: usize,
    major: *mut c_int,
    minor: *mut c_int,
) -> Code {
    of_device("nvmlDeviceGetCudaComputeCapability", device, |library| unsafe {
        put(major, library.scenario.compute_capability[0] as c_int)?;
        put(minor, library.scenario.compute_capability[1] as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: usize, _sensor: c_uint, celsius: *mut c_uint) -> Code {
    of_device("nvmlDeviceGetTemperature", device, |library| {
        let known = c_uint::try_from(library.scenario.temperature_c).map_err(|_| UNKNOWN)?;
        unsafe { put(celsius, known) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: usize, milliwatts: *mut c_uint) -> Code {
    of_device("nvmlDeviceGetPowerUsage", device, |library| unsafe {
        put(milliwatts, (library.power_w() * 1e3).round() as c_uint)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: usize, milliwatts: *mut c_uint) -> Code {
    of_device("nvmlDeviceGetEnforcedPowerLimit", device, |library| {
        let Scenario { power, memory, .. } = &library.scenario;
        let most = power.full_w + power.w_per_gbs * memory.dram_bytes_per_s / 1e9;
        unsafe { put(milliwatts, (most * 1e3).round() as c_uint) }
    })
}

/// Percent of the SMs' and of the memory's time.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: usize, rates: *mut Utilization) -> Code {
    of_device("nvmlDeviceGetUtilizationRates", device, |library| {
        let peak = library.scenario.memory.dram_bytes_per_s;
        let known = library.load().map_or(Utilization { gpu: 0, memory: 0 }, |load| {
            let memory = (load.dram_bytes_per_s / peak * 100.0).round().min(100.0) as c_uint;
            Utilization { gpu: 100, memory }
        });
        let gpu = library.timed().map_or(known.gpu, |(_, timed)| (timed.load * 100.0).round() as c_uint);
        unsafe { put(rates, Utilization { gpu, ..known }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(device: usize, kind: c_uint, megahertz: *mut c_uint) -> Code {
    of_device("nvmlDeviceGetClockInfo", device, |library| {
        let clock = library.clock_hz("nvmlDeviceGetClockInfo", kind, false)?;
        unsafe { put(megahertz, (clock / 1e6).round() as c_uint) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: usize, kind: c_uint, megahertz: *mut c_uint) -> Code {
    of_device("nvmlDeviceGetMaxClockInfo", device, |library| {
        let clock = library.clock_hz("nvmlDeviceGetMaxClockInfo", kind, true)?;
        unsafe { put(megahertz, (clock / 1e6).round() as c_uint) }
    })
}

unsafe fn put_reasons(library: &Library, reasons: *mut c_ulonglong) -> Result<(), Code> {
    const IDLE: c_ulonglong = 1;
    const SOFTWARE_THERMAL_SLOWDOWN: c_ulonglong = 0x20;
    let known = match library.load() {
        None => IDLE,
        Some(load) if load.throttled => SOFTWARE_THERMAL_SLOWDOWN,
        Some(_) => 0,
    };
    unsafe { put(reasons, known) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: usize,
    reasons: *mut c_ulonglong,
) -> Code {
    of_device("nvmlDeviceGetCurrentClocksThrottleReasons", device, |library| unsafe {
        put_reasons(library, reasons)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(
    device: usize,
    reasons: *mut c_ulonglong,
) -> Code {
    of_device("nvmlDeviceGetCurrentClocksEventReasons", device, |library| unsafe {
        put_reasons(library, reasons)
    })
}

/// A process on the GPU, as the first version of the functions has it.
#[repr(C)]
struct Process1 {
    pid: c_uint,
    used: c_ulonglong,
}

/// The same, as the second and the third have it.
#[repr(C)]
struct Process2 {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Pid and bytes of each process with a context: the driver's own is one of them.
fn processes(library: &Library) -> Vec<(c_uint, c_ulonglong)> {
    let own = library.timed().map(|(activity, timed)| (timed.pid, activity.allocated));
    own.into_iter().chain(library.tenants().iter().map(|tenant| (tenant.pid, tenant.bytes))).collect()
}

/// Puts the list where the caller has room for it, and its length in any case.
unsafe fn put_processes<T>(
    known: &[(c_uint, c_ulonglong)],
    count: *mut c_uint,
    places: *mut T,
    entry: impl Fn(c_uint, c_ulonglong) -> T,
) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null; it says how many places there are.
    let room = unsafe { count.read() } as usize;
    unsafe { put(count, known.len() as c_uint) }?;
    if room < known.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    for (index, &(pid, used)) in known.iter().enumerate() {
        if places.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: within the caller's places.
        unsafe { put(places.add(index), entry(pid, used)) }?;
    }
    Ok(())
}

/// Instances belong to MIG; without it they are all ones.
fn process2(pid: c_uint, used: c_ulonglong) -> Process2 {
    Process2 { pid, used, gpu_instance: c_uint::MAX, compute_instance: c_uint::MAX }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: usize,
    count: *mut c_uint,
    places: *mut Process1,
) -> Code {
    of_device("nvmlDeviceGetComputeRunningProcesses", device, |library| unsafe {
        put_processes(&processes(library), count, places, |pid, used| Process1 { pid, used })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: usize,
    count: *mut c_uint,
    places: *mut Process2,
) -> Code {
    of_device("nvmlDeviceGetComputeRunningProcesses_v2", device, |library| unsafe {
        put_processes(&processes(library), count, places, process2)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: usize,
    count: *mut c_uint,
    places: *mut Process2,
) -> Code {
    of_device("nvmlDeviceGetComputeRunningProcesses_v3", device, |library| unsafe {
        put_processes(&processes(library), count, places, process2)
    })
}

/// Nobody draws.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: usize,
    count: *mut c_uint,
    places: *mut Process2,
) -> Code {
    of_device("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |_| unsafe {
        put_processes(&[], count, places, process2)
    })
}

/// Bytes: total, free and used.
fn memory_of(library: &Library) -> (u64, u64, u64) {
    let known = &library.scenario.memory;
    let own = library.timed().map(|(activity, _)| activity).or_else(|| library.load());
    let others: u64 = library.tenants().iter().map(|tenant| tenant.bytes).sum();
    let allocated = others + own.map_or(0, |load| load.allocated);
    let free = known.free_bytes.saturating_sub(allocated);
    (known.total_bytes, free, known.total_bytes.saturating_sub(free))
}

/// Bytes.
#[repr(C)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: usize, memory: *mut MemoryInfo) -> Code {
    of_device("nvmlDeviceGetMemoryInfo", device, |library| {
        let (total, free, used) = memory_of(library);
        unsafe { put(memory, MemoryInfo { total, free, used }) }
    })
}

/// Bytes, after the structure's own version.
#[repr(C)]
struct MemoryInfo2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, memory: *mut MemoryInfo2) -> Code {
    of_device("nvmlDeviceGetMemoryInfo_v2", device, |library| {
        let (total, free, used) = memory_of(library);
        // Its size, and 2 in the highest byte.
        let version = size_of::<MemoryInfo2>() as c_uint | 2 << 24;
        unsafe { put(memory, MemoryInfo2 { version, total, reserved: 0, free, used }) }
    })
}
