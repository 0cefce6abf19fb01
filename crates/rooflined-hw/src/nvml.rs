//! NVIDIA's management library: the GPU of GB10 machines and cards, and the load of Thor's.
//!
//! Of this machine it is the library itself, loaded when first asked. Its calls may hang in a sick driver, so they
//! are made by a thread of their own and waited for with a limit. Under any other root it is a directory of files,
//! one for each getter: `/rooflined/nvml/0/power_mw` and so on; a getter that is not there is not supported.
//!
//! `NOT_SUPPORTED` is an answer: Orin's library answers so to nearly everything, Thor's to all but the load, GB10's to
//! memory and power limits. The value is then absent, never zero.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

mod parts;

use super::SysRoot;
use super::answers::Answers;
use super::ask::ask;
use rooflined_core::board::Reading;
use rooflined_core::board::details::GpuProcess;
use rooflined_core::board::parse::{self, Temperature};
use rooflined_core::hardware::GpuParts;
use rooflined_core::units::{Bytes, Celsius, Hertz, Watts};

/// The files that stand for the getters of GPUs under a root that is not this machine.
const GPUS: &str = "/rooflined/nvml/";
/// Those of the GPU that is asked.
pub(super) const FILES: &str = "/rooflined/nvml/0";
/// Loading the library wakes the driver, which takes a second where nothing else keeps it awake.
const START_LIMIT: Duration = Duration::from_secs(5);
/// A sample of a dozen getters takes a few milliseconds.
const SAMPLE_LIMIT: Duration = Duration::from_millis(100);
/// Shortest time between two looks at the list of processes.
const PROCESSES_INTERVAL: Duration = Duration::from_secs(10);
const MOST_PROCESSES: usize = 256;
const NAMELESS: &str = "a GPU without a name";

#[derive(Debug, Clone, PartialEq)]
pub enum Nvml {
    Library(Library),
    /// Files below a directory of the tree.
    Files {
        dir: String,
    },
}

/// What does not change while the driver is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub name: Reading<String>,
    pub driver_version: Reading<String>,
    /// Highest clock of the SMs that the driver admits; not one that it reaches.
    pub max_clock: Reading<Hertz>,
    pub parts: GpuParts,
    /// Names of further GPUs, which are not asked.
    pub others: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub temperature: Reading<Celsius>,
    /// Power of the GPU alone.
    pub power: Reading<Watts>,
    /// Busy part, 0 to 1.
    pub load: Reading<f64>,
    pub clock: Reading<Hertz>,
    pub memory_clock: Reading<Hertz>,
    /// Upper bound of the locked clocks.
    pub locked: Reading<Hertz>,
    /// Reasons for a clock below the highest, by bit.
    pub reasons: Reading<u64>,
    /// Processes with memory on the GPU.
    pub processes: Reading<Vec<GpuProcess>>,
}

/// The getters behind a [`Sample`].
const GETTERS: [&str; 8] = [
    "temperature_c",
    "power_mw",
    "utilization_gpu_percent",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "locked_clocks_mhz",
    "throttle_reasons",
    "processes",
];

impl Nvml {
    /// The source for `root`, with what does not change; otherwise why there is none.
    pub(super) fn discover(root: &SysRoot) -> Result<(Self, Facts), String> {
        if root.is_host() {
            return Library::load(None).map(|(library, facts)| (Self::Library(library), facts));
        }
        if !root.path(FILES).is_dir() {
            return Err(format!("no {FILES}: this tree has no answers of NVML"));
        }
        let file = |getter: &str| format!("{FILES}/{getter}");
        let texts = ask(root, ["name", "driver_version", "max_sm_clock_mhz"].map(file));
        let text = |getter: &str| texts.text(&file(getter)).ok_or_else(|| not_supported(&file(getter)));
        let label = |getter: &str| {
            text(getter).map_or_else(Reading::absent, |text| {
                parse::label(text).map_or_else(|| Reading::failed("an empty name"), Reading::Known)
            })
        };
        let (name, driver_version) = (label("name"), label("driver_version"));
        let max_clock = text("max_sm_clock_mhz").map_or_else(Reading::absent, |text| {
            parse::megahertz(text).map_or_else(
                || Reading::failed(format!("{FILES}/max_sm_clock_mhz holds {}", super::excerpt(text))),
                Reading::Known,
            )
        });
        let parts = parts::from_files(root, FILES);
        let others = root.numbered(GPUS, "").into_iter().filter(|(_, gpu)| gpu != "0").map(|(_, gpu)| {
            let name = root.read(&format!("{GPUS}{gpu}/name")).ok();
            name.and_then(|name| parse::label(&name)).unwrap_or_else(|| NAMELESS.into())
        });
        let others = others.collect();
        Ok((Self::Files { dir: FILES.into() }, Facts { name, driver_version, max_clock, parts, others }))
    }

    /// The files to read for a sample; none where the library is asked.
    pub(super) fn paths(&self) -> impl Iterator<Item = String> + '_ {
        let dir = match self {
            Self::Files { dir } => Some(dir),
            Self::Library(_) => None,
        };
        dir.into_iter().flat_map(|dir| GETTERS.map(|getter| format!("{dir}/{getter}")))
    }

    /// Has the library begin a sample, so that it works while files are read.
    pub(super) fn begin(&self) {
        if let Self::Library(library) = self {
            library.begin();
        }
    }

    /// The sample: from the files in [`Nvml::paths`], or what the library has answered by now.
    pub(super) fn finish(&self, answers: &Answers<'_>) -> Sample {
        match self {
            Self::Files { dir } => from_files(dir, answers),
            Self::Library(library) => library.finish(SAMPLE_LIMIT),
        }
    }
}

/// The library's answers as the files that stand for them in a captured tree; empty where there is no library.
#[must_use]
pub fn captured() -> BTreeMap<String, String> {
    let Ok((library, facts)) = Library::load(None) else { return BTreeMap::new() };
    library.begin();
    as_files(&facts, &library.finish(START_LIMIT))
}

/// What is not known has no file.
fn as_files(facts: &Facts, sample: &Sample) -> BTreeMap<String, String> {
    let megahertz = |clock: &Reading<Hertz>| clock.known().map(|clock| format!("{:.0}", clock.get() / 1e6));
    let files = [
        ("name", facts.name.known().cloned()),
        ("driver_version", facts.driver_version.known().cloned()),
        ("max_sm_clock_mhz", megahertz(&facts.max_clock)),
        ("temperature_c", sample.temperature.known().map(|celsius| format!("{:.0}", celsius.get()))),
        ("power_mw", sample.power.known().map(|power| format!("{:.0}", power.get() * 1e3))),
        ("utilization_gpu_percent", sample.load.known().map(|load| format!("{:.0}", load * 100.0))),
        ("sm_clock_mhz", megahertz(&sample.clock)),
        ("memory_clock_mhz", megahertz(&sample.memory_clock)),
        ("throttle_reasons", sample.reasons.known().map(|reasons| format!("{reasons:#x}"))),
    ];
    let files = files.into_iter().map(|(getter, text)| (getter.to_owned(), text));
    let known = files.chain(parts::as_files(&facts.parts));
    let known = known.filter_map(|(getter, text)| Some((format!("{FILES}/{getter}"), text?)));
    let others = facts.others.iter().enumerate();
    known.chain(others.map(|(index, name)| (format!("{GPUS}{}/name", index + 1), name.clone()))).collect()
}

fn not_supported(getter: &str) -> String {
    format!("{getter}: not supported by this GPU")
}

fn from_files(dir: &str, answers: &Answers<'_>) -> Sample {
    fn value<T>(
        (dir, answers): (&str, &Answers<'_>),
        getter: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Reading<T> {
        let path = format!("{dir}/{getter}");
        match answers.text(&path) {
            Err(super::ReadError::Missing { .. }) => Reading::absent(not_supported(&path)),
            text => super::parsed(&path, text, expected, parse),
        }
    }
    fn number<T>(
        from: (&str, &Answers<'_>),
        getter: &str,
        expected: &str,
        check: impl FnOnce(u64) -> Option<T>,
    ) -> Reading<T> {
        measured(&format!("{}/{getter}", from.0), value(from, getter, expected, parse::unsigned), check)
    }
    let from = (dir, answers);
    Sample {
        temperature: value(from, "temperature_c", "degrees", |text| degrees(parse::signed(text)?)),
        power: number(from, "power_mw", "a power in mW", milliwatts),
        load: value(from, "utilization_gpu_percent", "a load in percent", parse::percent),
        clock: number(from, "sm_clock_mhz", "a clock in MHz", megahertz),
        memory_clock: number(from, "memory_clock_mhz", "a clock in MHz", megahertz),
        locked: match value(from, "locked_clocks_mhz", "two clocks in MHz", locked) {
            Reading::Known(Some(clock)) => Reading::Known(clock),
            Reading::Known(None) => Reading::absent("the GPU's clocks are not locked"),
            Reading::Absent { reason } => Reading::Absent { reason },
            Reading::Failed { reason } => Reading::Failed { reason },
        },
        reasons: value(from, "throttle_reasons", "a mask of reasons", parse::bits),
        processes: value(from, "processes", "processes and their bytes", parse::details::nvml_processes).map(
            |list| {
                let process = |(pid, memory): (u32, Option<Bytes>)| {
                    let name = Reading::absent(format!("{dir}/processes has no names"));
                    GpuProcess { pid, name, memory: held(memory) }
                };
                list.into_iter().map(process).collect()
            },
        ),
    }
}

/// What a process holds. Thor's driver says 0 of all, which is not what they hold.
fn held(memory: Option<Bytes>) -> Reading<Bytes> {
    let told = memory.filter(|memory| memory.is_positive());
    told.map_or_else(|| Reading::absent("NVML does not report how much this process holds"), Reading::Known)
}

/// `0,2200`; an empty text where nothing is locked.
fn locked(text: &str) -> Option<Option<Hertz>> {
    if text.trim().is_empty() {
        return Some(None);
    }
    parse::megahertz(text.split_once(',')?.1).map(Some)
}

fn degrees(value: i64) -> Option<Celsius> {
    match parse::millidegrees(&value.checked_mul(1000)?.to_string())? {
        Temperature::Known(temperature) => Some(temperature),
        Temperature::Off | Temperature::Implausible(_) => None,
    }
}

/// A reading above what any GPU draws is an error.
fn milliwatts(value: u64) -> Option<Watts> {
    (value <= 10_000_000).then_some(Watts(value as f64 / 1e3))
}

fn megahertz(value: u64) -> Option<Hertz> {
    parse::megahertz(&value.to_string())
}

/// A power or a clock. A GPU that works has both, so 0 stands for what nothing measures.
fn measured<T>(what: &str, number: Reading<u64>, check: impl FnOnce(u64) -> Option<T>) -> Reading<T> {
    match number {
        Reading::Known(0) => Reading::absent(format!(
            "{what} is 0: nothing measures it, as on most virtual GPUs, or the GPU is switched off"
        )),
        Reading::Known(value) => check(value).map_or_else(
            || Reading::failed(format!("{what} is {value}, which is not plausible")),
            Reading::Known,
        ),
        Reading::Absent { reason } => Reading::Absent { reason },
        Reading::Failed { reason } => Reading::Failed { reason },
    }
}

/// The library, held by a thread of its own.
#[derive(Clone)]
pub struct Library(Arc<Mutex<Worker>>);

struct Worker {
    requests: Sender<()>,
    samples: Receiver<Sample>,
    /// A sample was asked for and has not come.
    awaited: bool,
}

impl PartialEq for Library {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

impl Library {
    /// Loads the library, the driver's own or the one at `path`, and asks it what does not change.
    ///
    /// # Errors
    /// There is none, it finds no GPU, or it does not answer.
    pub(super) fn load(path: Option<&Path>) -> Result<(Self, Facts), String> {
        let (requests, orders) = channel();
        let (answer, samples) = channel();
        let (first, facts) = channel();
        let path = path.map(PathBuf::from);
        let helper = thread::Builder::new().name("nvml".into()).stack_size(512 << 10);
        helper
            .spawn(move || serve(path.as_deref(), &first, &orders, &answer))
            .map_err(|error| format!("no thread for NVML: {error}"))?;
        let facts = facts.recv_timeout(START_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("NVML did not answer within {START_LIMIT:?}"),
            RecvTimeoutError::Disconnected => "NVML's thread ended without an answer".to_owned(),
        })??;
        Ok((Self(Arc::new(Mutex::new(Worker { requests, samples, awaited: false }))), facts))
    }

    fn begin(&self) {
        let mut worker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An answer to an earlier sample is old by now.
        while worker.samples.try_recv().is_ok() {
            worker.awaited = false;
        }
        if !worker.awaited {
            worker.awaited = worker.requests.send(()).is_ok();
        }
    }

    fn finish(&self, limit: Duration) -> Sample {
        let mut worker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match worker.samples.recv_timeout(limit) {
            Ok(sample) => {
                worker.awaited = false;
                sample
            }
            Err(RecvTimeoutError::Timeout) => {
                Sample::failed("NVML does not answer; it is left alone until it does")
            }
            Err(RecvTimeoutError::Disconnected) => Sample::failed("NVML's thread has ended"),
        }
    }
}

impl Sample {
    fn failed(reason: &str) -> Self {
        Self {
            temperature: Reading::failed(reason),
            power: Reading::failed(reason),
            load: Reading::failed(reason),
            clock: Reading::failed(reason),
            memory_clock: Reading::failed(reason),
            locked: Reading::failed(reason),
            reasons: Reading::failed(reason),
            processes: Reading::failed(reason),
        }
    }
}

/// Index of the GPU that the probe gets: CUDA counts by the place on the bus as well, and shows what CUDA_VISIBLE_DEVICES names.
/// The first where that names none.
#[must_use]
pub fn chosen(nvml: &nvml_wrapper::Nvml) -> u32 {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let count = nvml.device_count().unwrap_or(1);
    let identifiers = |index: u32| {
        let Ok(device) = nvml.device_by_index(index) else { return Vec::new() };
        let parts = (0..device.mig_device_count().unwrap_or(0))
            .filter_map(|part| device.mig_device_by_index(part).ok()?.uuid().ok());
        device.uuid().ok().into_iter().chain(parts).collect()
    };
    (0..count).find(|index| is_named_first(&visible, *index, || identifiers(*index))).unwrap_or(0)
}

/// Whether the first entry is this GPU: its index, the beginning of its identifier or of that of one of its parts, or the older
/// name of a part, `MIG-GPU-…/1/0`.
fn is_named_first(visible: &str, index: u32, identifiers: impl FnOnce() -> Vec<String>) -> bool {
    let first = visible.split(',').next().unwrap_or_default().trim();
    let is = |own: String| own.starts_with(first) || first.contains(own.as_str());
    match first.parse::<u32>() {
        Ok(number) => number == index,
        Err(_) => first.contains('-') && identifiers().into_iter().any(is),
    }
}

/// What the library's thread runs. Everything that may hang happens here.
fn serve(
    path: Option<&Path>,
    first: &Sender<Result<Facts, String>>,
    orders: &Receiver<()>,
    samples: &Sender<Sample>,
) {
    let mut builder = nvml_wrapper::Nvml::builder();
    if let Some(path) = path {
        builder.lib_path(path.as_os_str());
    }
    let nvml = match builder.init() {
        Ok(nvml) => nvml,
        // Its own words say no more than that loading failed.
        Err(NvmlError::LibloadingError(error)) => return drop(first.send(Err(format!("no NVML: {error}")))),
        Err(error) => return drop(first.send(Err(format!("no NVML: {error}")))),
    };
    let count = nvml.device_count().unwrap_or(1);
    let place = chosen(&nvml);
    let device = match nvml.device_by_index(place) {
        Ok(device) => device,
        Err(error) => return drop(first.send(Err(format!("NVML finds no GPU: {error}")))),
    };
    let others = (0..count).filter(|index| *index != place).map(|index| {
        nvml.device_by_index(index).and_then(|device| device.name()).unwrap_or_else(|_| NAMELESS.into())
    });
    let facts = Facts {
        name: reported("name", device.name()),
        driver_version: reported("driver version", nvml.sys_driver_version()),
        max_clock: clock("highest clock", device.max_clock_info(Clock::SM)),
        parts: parts::of(&device),
        others: others.collect(),
    };
    if first.send(Ok(facts)).is_err() {
        return;
    }
    let mut listed: Option<(Instant, Reading<Vec<GpuProcess>>)> = None;
    while orders.recv().is_ok() {
        // What is not supported will not be either in ten seconds, but costs no more than the question.
        let recent = listed.take().filter(|(at, _)| at.elapsed() < PROCESSES_INTERVAL);
        let (at, processes) = recent.unwrap_or_else(|| (Instant::now(), processes(&device)));
        listed = Some((at, processes.clone()));
        if samples.send(sample(&device, processes)).is_err() {
            return;
        }
    }
}

/// Compute and graphics processes, each once with the larger of its memories.
fn processes(device: &Device<'_>) -> Reading<Vec<GpuProcess>> {
    let compute = reported("list of processes", device.running_compute_processes());
    let graphics = reported("list of processes", device.running_graphics_processes());
    let lists = match (compute, graphics) {
        (Reading::Known(mut all), graphics) => {
            all.extend(graphics.known().cloned().unwrap_or_default());
            all
        }
        (_, Reading::Known(graphics)) => graphics,
        (unknown, _) => return unknown.map(|_| Vec::new()),
    };
    let mut held_by: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for process in lists.into_iter().take(MOST_PROCESSES) {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes as f64)),
            UsedGpuMemory::Unavailable => None,
        };
        let largest = held_by.entry(process.pid).or_default();
        *largest = match (*largest, memory) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
    let process = |(pid, memory): (u32, Option<Bytes>)| {
        let comm = format!("/proc/{pid}/comm");
        let name = super::parsed(&comm, SysRoot::host().read(&comm), "a name", parse::label);
        GpuProcess { pid, name, memory: held(memory) }
    };
    Reading::Known(held_by.into_iter().map(process).collect())
}

fn sample(device: &Device<'_>, processes: Reading<Vec<GpuProcess>>) -> Sample {
    Sample {
        processes,
        temperature: within("temperature", device.temperature(TemperatureSensor::Gpu), |value| {
            degrees(i64::from(value))
        }),
        power: measured("NVML's power", reported("power", device.power_usage()).map(u64::from), milliwatts),
        load: within("utilisation", device.utilization_rates(), |rates| {
            parse::percent(&rates.gpu.to_string())
        }),
        clock: clock("clock", device.clock_info(Clock::SM)),
        memory_clock: clock("memory clock", device.clock_info(Clock::Memory)),
        locked: Reading::absent("NVML does not report whether the GPU's clocks are locked"),
        reasons: reported("reasons for a lower clock", device.current_throttle_reasons())
            .map(|reasons| reasons.bits()),
    }
}

fn clock(what: &str, answer: Result<u32, NvmlError>) -> Reading<Hertz> {
    measured(&format!("NVML's {what}"), reported(what, answer).map(u64::from), megahertz)
}

fn within<T, U>(what: &str, answer: Result<T, NvmlError>, check: impl FnOnce(T) -> Option<U>) -> Reading<U> {
    match reported(what, answer).map(check) {
        Reading::Known(Some(value)) => Reading::Known(value),
        Reading::Known(None) => Reading::failed(format!("NVML's {what} is not plausible")),
        Reading::Absent { reason } => Reading::Absent { reason },
        Reading::Failed { reason } => Reading::Failed { reason },
    }
}

/// What will be the same next time is absent, the rest has failed.
fn reported<T>(what: &str, answer: Result<T, NvmlError>) -> Reading<T> {
    match answer {
        Ok(value) => Reading::Known(value),
        Err(NvmlError::NotSupported) => Reading::absent(not_supported(&format!("NVML's {what}"))),
        Err(
            error
            @ (NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::NoPermission),
        ) => Reading::absent(format!("NVML's {what}: {error}")),
        Err(error) => Reading::failed(format!("NVML's {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::answers::{File, Files};
    use rooflined_core::hardware::GpuInstance;
    use rooflined_core::units::Seconds;

    /// The stub library, compiled to answer as `define` says. `None` without a C compiler.
    fn stub(dir: &Path, define: &str) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards/nvml_stub.c");
        let library = dir.join(format!("{define}.so"));
        // Under an emulator `cc` compiles for another machine than this test's.
        let own = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
        let compile = |compiler: &str| {
            let arguments = ["-shared", "-fPIC", "-O0", "-D", define, "-o"];
            Command::new(compiler).args(arguments).arg(&library).arg(&source).status()
        };
        match compile(&own).or_else(|_| compile("cc")) {
            Ok(status) => {
                assert!(status.success(), "the stub library does not compile");
                Some(library)
            }
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                None
            }
        }
    }

    fn loaded(define: &str) -> Option<(Library, Facts)> {
        let dir = tempfile::tempdir().unwrap();
        let library = stub(dir.path(), define)?;
        Some(Library::load(Some(&library)).unwrap())
    }

    fn sample(library: &Library, limit: Duration) -> Sample {
        library.begin();
        library.finish(limit)
    }

    #[test]
    fn the_gpu_that_is_described_is_the_one_that_cuda_shows_first() {
        let own = ["GPU-8932f937-d72c", "MIG-1f0a-77"].map(str::to_owned);
        let is = |visible, index| is_named_first(visible, index, || own.to_vec());
        for (visible, index) in [
            ("1", 1),
            (" 2 ,0", 2),
            ("GPU-8932f937", 0),
            ("GPU-8932f937-d72c,1", 3),
            ("MIG-1f0a-77", 1),
            ("MIG-GPU-8932f937-d72c/1/0", 1),
        ] {
            assert!(is(visible, index), "{visible}");
        }
        for (visible, index) in [("", 0), ("1", 0), ("0,1", 1), ("-1", 0), ("GPU-77", 0), ("NoDevFiles", 0)] {
            assert!(!is(visible, index), "{visible}");
        }
    }

    #[test]
    fn the_library_tells_what_it_supports() {
        let Some((library, facts)) = loaded("OK") else { return };
        assert_eq!(facts.name, Reading::Known("NVIDIA GB10".into()));
        assert_eq!(facts.driver_version, Reading::Known("580.173.02".into()));
        assert_eq!(facts.max_clock, Reading::Known(Hertz(3.003e9)));
        for _ in 0..3 {
            let sample = sample(&library, Duration::from_secs(5));
            assert_eq!(sample.temperature, Reading::Known(Celsius(41.0)));
            assert_eq!(sample.power, Reading::Known(Watts(4.25)));
            assert_eq!(sample.load, Reading::Known(0.37));
            assert_eq!(sample.clock, Reading::Known(Hertz(2.411e9)));
            assert_eq!(sample.reasons, Reading::Known(0x21));
            assert!(matches!(sample.memory_clock, Reading::Absent { .. }), "{:?}", sample.memory_clock);
            assert!(matches!(sample.locked, Reading::Absent { .. }));
        }
    }

    #[test]
    fn what_is_not_supported_is_absent_and_never_zero() {
        let Some((library, facts)) = loaded("NOT_SUPPORTED_ALL") else { return };
        assert_eq!(facts.name, Reading::Known("Orin (nvgpu)".into()));
        assert!(matches!(facts.max_clock, Reading::Absent { .. }));
        let sample = sample(&library, Duration::from_secs(5));
        let absent = "NVML's power: not supported by this GPU";
        assert_eq!(sample.power, Reading::absent(absent));
        assert!(matches!(sample.temperature, Reading::Absent { .. }));
        assert!(matches!(sample.load, Reading::Absent { .. }));
        assert!(matches!(sample.clock, Reading::Absent { .. }));
        assert!(matches!(sample.reasons, Reading::Absent { .. }));
    }

    #[test]
    fn a_gpu_that_is_lost_fails_for_now() {
        let Some((library, _)) = loaded("LOST_ALL") else { return };
        let sample = sample(&library, Duration::from_secs(5));
        assert!(matches!(&sample.power, Reading::Failed { reason } if reason.contains("fell off the bus")));
        assert!(matches!(sample.load, Reading::Failed { .. }));
    }

    #[test]
    fn a_library_without_a_symbol_lacks_that_value_alone() {
        let Some((library, facts)) = loaded("BARE") else { return };
        assert!(matches!(facts.name, Reading::Absent { .. }), "{facts:?}");
        let sample = sample(&library, Duration::from_secs(5));
        assert!(matches!(sample.power, Reading::Absent { .. }), "{sample:?}");
        assert!(matches!(sample.reasons, Reading::Absent { .. }));
    }

    #[test]
    fn a_call_that_hangs_is_left_alone_until_it_answers() {
        let Some((library, _)) = loaded("SLOW") else { return };
        let start = Instant::now();
        let late = sample(&library, Duration::from_millis(20));
        assert!(matches!(&late.power, Reading::Failed { reason } if reason.contains("does not answer")));
        for _ in 0..3 {
            assert!(sample(&library, Duration::from_millis(20)).power.known().is_none());
        }
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(sample(&library, Duration::from_secs(10)).power, Reading::Known(Watts(4.25)));
    }

    #[test]
    fn no_library_is_a_reason_and_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["", "no library"] {
            let path = dir.path().join("libnvidia-ml.so.1");
            std::fs::write(&path, content).unwrap();
            assert!(Library::load(Some(&path)).unwrap_err().starts_with("no NVML: "));
        }
        assert!(Library::load(Some(&dir.path().join("missing"))).unwrap_err().starts_with("no NVML: "));
    }

    #[test]
    fn what_the_library_said_is_read_back_from_its_files() {
        let facts = Facts {
            name: Reading::Known("NVIDIA GB10".into()),
            driver_version: Reading::Known("580.173.02".into()),
            max_clock: Reading::Known(Hertz(3003e6)),
            others: Vec::new(),
            parts: GpuParts {
                compute_capability: Some((12, 1)),
                cores: Some(6144),
                bus_bits: Some(256),
                memory_clock: Some(Hertz(4266e6)),
                memory: Some(Bytes(128e9)),
                is_divided: false,
                instances: vec![
                    GpuInstance { sm: 16, memory: Some(Bytes(40_960.0 * 1_048_576.0)) },
                    GpuInstance { sm: 8, memory: None },
                ],
            },
        };
        let sample = Sample {
            temperature: Reading::Known(Celsius(57.0)),
            power: Reading::Known(Watts(39.08)),
            load: Reading::Known(0.96),
            clock: Reading::Known(Hertz(2509e6)),
            reasons: Reading::Known(0x20),
            ..Sample::failed("not supported")
        };
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::new(dir.path());
        for (file, text) in as_files(&facts, &sample) {
            let place = root.path(&file);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, text).unwrap();
        }
        let (files, read) = Nvml::discover(&root).unwrap();
        assert_eq!(read, facts);
        let mut kept = Files::new(&root, files.paths().map(File::of_driver));
        let back = files.finish(&kept.read(Seconds::ZERO));
        assert_eq!(
            (back.temperature, back.power, back.load),
            (sample.temperature, sample.power, sample.load)
        );
        assert_eq!((back.clock, back.reasons), (sample.clock, sample.reasons));
        assert!(matches!(back.memory_clock, Reading::Absent { .. }), "not supported stays absent");
    }
}
