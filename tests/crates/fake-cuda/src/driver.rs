//! What the driver keeps: contexts, modules, streams, events, graphs, and the calls that are to fail.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::{By, Device, Stamp};
use crate::errors::{self, Code};
use crate::memory::Key;
use crate::scenario::{Scenario, VARIABLE};

/// Why a call does not simply return success.
pub enum Answer {
    Code(Code),
    /// It succeeds once that moment has come.
    At(Instant),
    /// It never returns.
    Never,
}

impl From<Code> for Answer {
    fn from(code: Code) -> Self {
        Self::Code(code)
    }
}

pub type Done = Result<(), Answer>;

/// When a call may be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Init,
    Context,
}

/// An operation recorded from a stream, for a graph.
#[derive(Clone)]
pub enum Node {
    Kernel { module: Arc<ptx::Module>, key: Key },
    Fill { address: u64, pattern: Vec<u8>, count: u64 },
    Copy { to: u64, from: u64, bytes: u64 },
}

#[derive(Default)]
pub struct Stream {
    pub capture: Option<Vec<Node>>,
}

#[derive(Clone)]
pub struct Function {
    pub module: u64,
    pub entry: String,
    pub dynamic_shared: i32,
}

pub struct Driver {
    pub device: Device,
    path: PathBuf,
    trouble: Option<String>,
    initialised: bool,
    calls: HashMap<&'static str, u64>,
    all_calls: u64,
    /// What every call answers since a kernel failed.
    pub sticky: Option<Code>,
    pub contexts: HashMap<u64, i32>,
    pub primary: Option<(u64, u64)>,
    pub primary_flags: u32,
    pub modules: HashMap<u64, Arc<ptx::Module>>,
    pub functions: BTreeMap<u64, Function>,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Option<Stamp>>,
    pub graphs: HashMap<u64, Vec<Node>>,
    pub executables: HashMap<u64, Vec<Node>>,
    pub host: HashMap<u64, Vec<u64>>,
    handle: u64,
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));

thread_local! {
    /// The context that is current in this thread; 0 for none.
    pub static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Runs a function of the library: counts it, has it fail or hang where the scenario says so, and lets no panic out.
pub fn call(name: &'static str, needs: Needs, body: impl FnOnce(&mut Driver) -> Done) -> Code {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        driver.enter(name, needs)?;
        body(&mut driver)
    }));
    match done {
        Ok(Ok(())) => errors::SUCCESS,
        Ok(Err(Answer::Code(code))) => code,
        Ok(Err(Answer::At(moment))) => {
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            errors::SUCCESS
        }
        Ok(Err(Answer::Never)) => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        Err(_) => errors::UNKNOWN,
    }
}

impl Driver {
    fn new() -> Self {
        let path = env::var_os(VARIABLE).map(PathBuf::from);
        let scenario = match &path {
            Some(path) => Scenario::read(path),
            None => Err(format!("{VARIABLE} does not name a scenario")),
        };
        let path = path.unwrap_or_default();
        let (scenario, trouble) = match scenario {
            Ok(scenario) => (scenario, None),
            Err(trouble) => (Scenario { no_device: true, ..Scenario::toy() }, Some(trouble)),
        };
        Self {
            device: Device::new(scenario, &path),
            path,
            trouble,
            initialised: false,
            calls: HashMap::new(),
            all_calls: 0,
            sticky: None,
            contexts: HashMap::new(),
            primary: None,
            primary_flags: 0,
            modules: HashMap::new(),
            functions: BTreeMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            host: HashMap::new(),
            handle: 0x5000,
        }
    }

    pub fn scenario(&self) -> &Scenario {
        &self.device.scenario
    }

    fn enter(&mut self, name: &'static str, needs: Needs) -> Done {
        let before = self.calls.entry(name).or_default();
        let (before, all) = (std::mem::replace(before, *before + 1), self.all_calls);
        self.all_calls += 1;
        let scenario = &self.device.scenario;
        for fail in &scenario.fail {
            let before = match fail.call.as_str() {
                "*" => all,
                call if call == name => before,
                _ => continue,
            };
            if fail.strikes(before) {
                let code = fail.code;
                if errors::is_sticky(code) {
                    self.sticky = Some(code);
                }
                return Err(code.into());
            }
        }
        let kernel = matches!(name, "cuEventQuery" | "cuStreamQuery");
        if !kernel && scenario.hang.iter().any(|hang| hang.call == name && before >= hang.after) {
            return Err(Answer::Never);
        }
        if needs != Needs::Nothing && !self.initialised {
            return Err(errors::NOT_INITIALIZED.into());
        }
        if needs == Needs::Context {
            if let Some(code) = self.sticky {
                return Err(code.into());
            }
            if !self.contexts.contains_key(&CURRENT.get()) {
                return Err(errors::INVALID_CONTEXT.into());
            }
        }
        Ok(())
    }

    pub fn init(&mut self) -> Done {
        if let Some(trouble) = &self.trouble {
            eprintln!("fake libcuda: {trouble}");
        }
        if self.scenario().no_device {
            return Err(errors::NO_DEVICE.into());
        }
        self.initialised = true;
        Ok(())
    }

    pub fn handle(&mut self) -> u64 {
        self.handle += 16;
        self.handle
    }

    /// The device of that number: there is one.
    pub fn device(&self, device: i32) -> Done {
        if device == 0 && !self.scenario().no_device { Ok(()) } else { Err(errors::INVALID_DEVICE.into()) }
    }

    /// Streams 0, 1 and 2 are always there: the default one and those that mean it by another name.
    pub fn stream(&mut self, stream: u64) -> Result<&mut Stream, Code> {
        match stream {
            0..=2 => Ok(self.streams.entry(stream).or_default()),
            _ => self.streams.get_mut(&stream).ok_or(errors::INVALID_HANDLE),
        }
    }

    /// Whether that launch is one of those that never end.
    fn stuck(&self, launches: u64) -> bool {
        let kernels = ["cuEventQuery", "cuStreamQuery"];
        let mut hangs = self.scenario().hang.iter();
        hangs.any(|hang| kernels.contains(&hang.call.as_str()) && launches > hang.after)
    }

    /// Waits for a moment of the device.
    pub fn wait(&self, stamp: Stamp) -> Done {
        if self.stuck(stamp.launches) {
            return Err(Answer::Never);
        }
        if stamp.outside > Instant::now() { Err(Answer::At(stamp.outside)) } else { Ok(()) }
    }

    pub fn wait_all(&self) -> Done {
        self.wait(self.device.stamp())
    }

    /// Whether a moment of the device has come.
    pub fn query(&self, stamp: Stamp) -> Done {
        if self.stuck(stamp.launches) || stamp.outside > Instant::now() {
            return Err(errors::NOT_READY.into());
        }
        Ok(())
    }

    /// Checks the text and keeps the module.
    pub fn load(&mut self, text: &[u8]) -> Result<u64, Code> {
        // A cubin is ELF, a fatbin starts with its own number; neither is text.
        let Ok(text) = std::str::from_utf8(text) else { return Err(errors::INVALID_IMAGE) };
        if !text.contains(".version") {
            return Err(errors::INVALID_IMAGE);
        }
        if let Some(version) = isa_version(text)
            && version > highest_isa(self.scenario().driver_version)
        {
            return Err(errors::UNSUPPORTED_PTX_VERSION);
        }
        let module = match ptx::Module::parse(text) {
            Ok(module) => module,
            Err(error) => {
                self.note(&error.to_string());
                return Err(errors::INVALID_PTX);
            }
        };
        if !runs_on(module.target(), self.scenario().capability()) {
            return Err(errors::NO_BINARY_FOR_GPU);
        }
        let handle = self.handle();
        self.modules.insert(handle, Arc::new(module));
        Ok(handle)
    }

    /// Gives a stream something to do; a stream that captures remembers it instead.
    pub fn submit(&mut self, stream: u64, node: Node) -> Done {
        if let Some(nodes) = &mut self.stream(stream)?.capture {
            nodes.push(node);
            return Ok(());
        }
        self.perform(node, By::Stream)
    }

    pub fn perform(&mut self, node: Node, by: By) -> Done {
        match node {
            Node::Kernel { module, key } => {
                if let Err(code) = self.device.launch(&module, key, by) {
                    if let Some(fault) = self.device.fault.take() {
                        self.note(&fault);
                    }
                    if !errors::is_sticky(code) {
                        return Err(code.into());
                    }
                    // A launch has long returned when its kernel fails: the next call tells.
                    self.sticky = Some(code);
                }
            }
            Node::Fill { address, pattern, count } => {
                let bytes = pattern.len() as u64 * count;
                let fill = |memory: &mut [u8]| {
                    for chunk in memory.chunks_mut(pattern.len()) {
                        chunk.copy_from_slice(&pattern);
                    }
                };
                self.device.memory.change(address, bytes, fill).map_err(|_| errors::INVALID_VALUE)?;
                self.device.device_fill(address, bytes, bytes);
            }
            Node::Copy { to, from, bytes } => {
                let content =
                    self.device.memory.read(from, bytes).map_err(|_| errors::INVALID_VALUE)?.to_vec();
                let copy = |memory: &mut [u8]| memory.copy_from_slice(&content);
                self.device.memory.change(to, bytes, copy).map_err(|_| errors::INVALID_VALUE)?;
                self.device.device_fill(to, bytes, 2 * bytes);
            }
        }
        Ok(())
    }

    /// Leaves a line beside the scenario that says why a launch failed.
    fn note(&self, what: &str) {
        let file = OpenOptions::new().append(true).create(true).open(self.path.with_extension("faults"));
        if let Ok(mut file) = file {
            // Without it a fault has no explanation, and still its code.
            let _ = writeln!(file, "{what}");
        }
    }
}

/// `.version 7.0` as (7, 0).
fn isa_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The newest PTX ISA that a driver compiles, from the table of releases in the PTX manual.
fn highest_isa(driver: i32) -> (u32, u32) {
    let (major, minor) = (driver / 1000, u32::try_from(driver % 1000 / 10).unwrap_or(0));
    match major {
        ..=10 => (6, 5),
        11 => (7, minor),
        12 => (
            8,
            match minor {
                0..=5 => minor,
                // 12.6 brought none.
                _ => minor - 1,
            },
        ),
        _ => (9, minor),
    }
}

/// Whether text for that target is compiled for a GPU of that compute capability: plain targets for every newer one,
/// `a` for exactly that one, `f` for newer ones of the same family.
fn runs_on(target: &str, capability: u32) -> bool {
    let Some(rest) = target.strip_prefix("sm_") else { return false };
    let digits = rest.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let Ok(number) = digits.parse::<u32>() else { return false };
    match &rest[digits.len()..] {
        "" => capability >= number,
        "a" => capability == number,
        "f" => capability / 10 == number / 10 && capability >= number,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_compiles_what_its_release_knew() {
        for (driver, isa) in
            [(11040, (7, 4)), (12040, (8, 4)), (12060, (8, 5)), (12080, (8, 7)), (12090, (8, 8))]
        {
            assert_eq!(highest_isa(driver), isa, "{driver}");
        }
        assert_eq!(highest_isa(13000), (9, 0));
        assert_eq!(isa_version("//\n.version 8.4\n.target sm_89"), Some((8, 4)));
        assert_eq!(isa_version(".target sm_89"), None);
    }

    #[test]
    fn a_target_runs_where_it_was_meant_to() {
        for (target, capability, runs) in [
            ("sm_80", 87, true),
            ("sm_80", 121, true),
            ("sm_89", 87, false),
            ("sm_90a", 90, true),
            ("sm_90a", 100, false),
            ("sm_110f", 110, true),
            ("sm_100f", 103, true),
            ("sm_100f", 110, false),
            ("sm_120f", 121, true),
            ("sm_121f", 120, false),
            ("sm_120f", 90, false),
            ("compute_80", 90, false),
        ] {
            assert_eq!(runs_on(target, capability), runs, "{target} on {capability}");
        }
    }
}
