//! What the driver keeps: contexts, modules, streams, events, graphs, and the calls that are to fail.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::device::{By, Device, Stamp};
use crate::errors::{self, Code};
use crate::host::{HostClock, Left, Pending, STAGED_BYTES};
use crate::memory::{Key, Stray};
use crate::scenario::{FaultKind, Scenario, VARIABLE, lost};

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
    Kernel {
        module: Arc<ptx::Module>,
        key: Key,
    },
    Fill {
        address: u64,
        pattern: Vec<u8>,
        count: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    /// An event that is to be recorded when the graph runs.
    Record {
        event: u64,
    },
}

/// A stream that records what it is given instead of doing it.
pub struct Capture {
    pub nodes: Vec<Node>,
    pub mode: u32,
    pub thread: ThreadId,
    /// A call came that must not come meanwhile.
    pub invalid: bool,
}

#[derive(Default)]
pub struct Stream {
    pub capture: Option<Capture>,
    /// It waits for the default stream, and that one for it.
    pub blocking: bool,
    /// When all that it was given is done, in the device's own time.
    pub ready_s: f64,
}

#[derive(Clone, Copy, Default)]
pub struct Event {
    pub stamp: Option<Stamp>,
    /// Last recorded in a capture, where it has no time.
    pub captured: bool,
    pub untimed: bool,
}

#[derive(Clone)]
pub struct Function {
    pub module: u64,
    pub entry: String,
    pub dynamic_shared: i32,
}

pub struct Driver {
    pub device: Device,
    /// What calls cost, where they do.
    pub clock: Option<HostClock>,
    path: PathBuf,
    trouble: Option<String>,
    initialised: bool,
    calls: HashMap<&'static str, u64>,
    all_calls: u64,
    /// What every call answers since a kernel failed.
    pub sticky: Option<Code>,
    /// The device is gone, which no new context heals.
    lost: bool,
    /// Launches of kernels that do not end well, by the place of their fault in the scenario.
    struck: HashMap<usize, u64>,
    /// The launches after so many never end.
    hung_after: Option<u64>,
    pub contexts: HashMap<u64, i32>,
    pub primary: Option<(u64, u64)>,
    pub primary_flags: u32,
    pub modules: HashMap<u64, Arc<ptx::Module>>,
    pub functions: BTreeMap<u64, Function>,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
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
        if let Some(clock) = &mut driver.clock {
            clock.enter();
        }
        let done = driver.enter(name, needs).and_then(|()| body(&mut driver));
        let driver = &mut *driver;
        if let Some(clock) = &mut driver.clock {
            driver.device.tell(clock.now_s);
            clock.leave();
        }
        done
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
        let clock = scenario.host.clone().map(|host| HostClock::new(host, scenario.clock.seed));
        Self {
            clock,
            device: Device::new(scenario, &path),
            path,
            trouble,
            initialised: false,
            calls: HashMap::new(),
            all_calls: 0,
            sticky: None,
            lost: false,
            struck: HashMap::new(),
            hung_after: None,
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
        if needs != Needs::Nothing && self.lost {
            return Err(errors::UNKNOWN.into());
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
            self.may_be_captured(name)?;
        }
        Ok(())
    }

    /// Refuses what must not be called while a stream captures, which spoils the capture, too: what waits for the whole
    /// context always, and what may wait, from any thread or from the capture's own, as its mode says. Calls that
    /// concern one stream or event are looked at where they are made.
    fn may_be_captured(&mut self, name: &str) -> Done {
        const UNSAFE: [&str; 5] =
            ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2"];
        let always = name == "cuCtxSynchronize";
        if self.clock.is_none() || !always && !UNSAFE.contains(&name) {
            return Ok(());
        }
        let own = thread::current().id();
        let mut code = None;
        for stream in self.streams.values_mut() {
            let Some(capture) = &mut stream.capture else { continue };
            let concerns = match capture.mode {
                0 => true,
                1 => capture.thread == own,
                _ => false,
            };
            if always || concerns || stream.blocking {
                capture.invalid = true;
                let implied = stream.blocking && !always && name != "cuMemAlloc_v2";
                code = Some(if implied {
                    errors::STREAM_CAPTURE_IMPLICIT
                } else {
                    errors::STREAM_CAPTURE_UNSUPPORTED
                });
            }
        }
        code.map_or(Ok(()), |code| Err(code.into()))
    }

    /// Has a capture end in an error, because of a call that concerns its stream or event.
    pub fn spoil(&mut self, stream: u64) {
        if let Some(capture) = self.streams.get_mut(&stream).and_then(|it| it.capture.as_mut())
            && self.clock.is_some()
        {
            capture.invalid = true;
        }
    }

    pub fn init(&mut self) -> Done {
        if let Some(trouble) = &self.trouble {
            eprintln!("fake libcuda: {trouble}");
        }
        if self.scenario().no_device || self.lost || lost(&self.path).exists() {
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
            0 | 1 => Ok(self.streams.entry(0).or_default()),
            2 => Ok(self.streams.entry(2).or_insert_with(|| Stream { blocking: true, ..Stream::default() })),
            _ => self.streams.get_mut(&stream).ok_or(errors::INVALID_HANDLE),
        }
    }

    /// Whether that launch is one of those that never end.
    fn stuck(&self, launches: u64) -> bool {
        let kernels = ["cuEventQuery", "cuStreamQuery"];
        let mut hangs = self.scenario().hang.iter();
        self.hung_after.is_some_and(|after| launches > after)
            || hangs.any(|hang| kernels.contains(&hang.call.as_str()) && launches > hang.after)
    }

    /// Has a kernel end as its fault says; `None` for one that runs.
    fn strike(&mut self, entry: &str) -> Option<FaultKind> {
        let mut faults = self.device.scenario.fault.iter().enumerate();
        let (place, fault) = faults.find(|(_, fault)| fault.strikes(entry))?;
        let before = self.struck.entry(place).or_default();
        *before += 1;
        if *before <= fault.after {
            return None;
        }
        let (kind, code) = (fault.kind, fault.code.unwrap_or(errors::LAUNCH_FAILED));
        match kind {
            FaultKind::Fault => self.sticky = Some(code),
            FaultKind::Hang => {
                self.hung_after.get_or_insert(self.device.launches);
                self.device.launches += 1;
            }
            FaultKind::Lost => self.lost = true,
            FaultKind::Gone => {
                self.lost = true;
                // Without it later processes find the device; this one does not.
                let _ = File::create(lost(&self.path));
            }
        }
        self.note(&format!("{entry}: {kind:?}, as the scenario says"));
        Some(kind)
    }

    /// Waits for a moment of the device.
    pub fn wait(&mut self, stamp: Stamp) -> Done {
        if self.stuck(stamp.launches) {
            return Err(Answer::Never);
        }
        if let Some(clock) = &mut self.clock {
            let waited_s = clock.wait(stamp.device_s);
            let now_s = clock.now_s;
            self.settle(now_s);
            let outside_s = waited_s * self.scenario().pace;
            return if outside_s > 0.0 {
                Err(Answer::At(Instant::now() + Duration::from_secs_f64(outside_s.min(1e6))))
            } else {
                Ok(())
            };
        }
        if stamp.outside > Instant::now() { Err(Answer::At(stamp.outside)) } else { Ok(()) }
    }

    pub fn wait_all(&mut self) -> Done {
        let ready_s = self.streams.values().map(|stream| stream.ready_s).fold(0.0, f64::max);
        self.wait(Stamp { device_s: ready_s, ..self.device.stamp() })
    }

    /// Waits for one stream and what it depends on; without a host all streams are one.
    pub fn wait_for(&mut self, stream: u64) -> Done {
        self.wait(self.stamp_of(stream))
    }

    /// When all that a stream was given is done.
    pub fn stamp_of(&self, stream: u64) -> Stamp {
        let stamp = self.device.stamp();
        if self.clock.is_some() { Stamp { device_s: self.ready_s(stream), ..stamp } } else { stamp }
    }

    /// When a stream may go on: the default one waits for every blocking one, and these for it.
    fn ready_s(&self, stream: u64) -> f64 {
        let default = self.streams.get(&0);
        let default_s = default.map_or(0.0, |it| it.ready_s);
        if stream <= 1 {
            let blocking = self.streams.values().filter(|it| it.blocking);
            return blocking.map(|it| it.ready_s).fold(default_s, f64::max);
        }
        self.streams
            .get(&stream)
            .map_or(0.0, |it| if it.blocking { it.ready_s.max(default_s) } else { it.ready_s })
    }

    fn set_ready(&mut self, stream: u64, ready_s: f64) {
        if let Ok(stream) = self.stream(stream) {
            stream.ready_s = stream.ready_s.max(ready_s);
        }
    }

    /// Whether a moment of the device has come.
    pub fn query(&mut self, stamp: Stamp) -> Done {
        if let Some(clock) = &mut self.clock {
            let come = clock.poll(stamp.device_s);
            let now_s = clock.now_s;
            self.settle(now_s);
            return if come && !self.stuck(stamp.launches) { Ok(()) } else { Err(errors::NOT_READY.into()) };
        }
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
        if let Some(clock) = &mut self.clock {
            clock.pay(clock.costs.module_s);
        }
        let handle = self.handle();
        self.modules.insert(handle, Arc::new(module));
        Ok(handle)
    }

    /// Gives a stream something to do; a stream that captures remembers it instead.
    pub fn submit(&mut self, stream: u64, node: Node) -> Done {
        if let Some(capture) = &mut self.stream(stream)?.capture {
            if capture.invalid {
                return Err(errors::STREAM_CAPTURE_INVALIDATED.into());
            }
            capture.nodes.push(node);
            return Ok(());
        }
        if stream <= 1 {
            // A blocking stream that captures would have to wait for it.
            let mut implied = false;
            for other in self.streams.values_mut().filter(|it| it.blocking) {
                if let Some(capture) = &mut other.capture {
                    (capture.invalid, implied) = (true, true);
                }
            }
            if implied && self.clock.is_some() {
                return Err(errors::STREAM_CAPTURE_IMPLICIT.into());
            }
        }
        let Some(clock) = &mut self.clock else { return self.perform(node, By::Stream, 0.0) };
        let mut cold_s = 0.0;
        if let Node::Kernel { key, .. } = &node
            && clock.warm_functions.insert((key.module, key.entry.clone()))
        {
            cold_s = clock.between(self.device.scenario.cold.function_s);
        }
        let on_device_s = cold_s * self.device.scenario.cold.device_share;
        let stall_s = clock.stall();
        clock.pay(clock.costs.launch_s + stall_s + cold_s - on_device_s);
        let submitted_s = clock.now_s;
        let done_s = self.enqueue(stream, node, By::Stream, submitted_s, on_device_s)?;
        if let Some(clock) = &mut self.clock {
            clock.queue(done_s);
        }
        Ok(())
    }

    /// Has a stream do something that is submitted at that moment; when it is done.
    fn enqueue(
        &mut self,
        stream: u64,
        node: Node,
        by: By,
        submitted_s: f64,
        cold_s: f64,
    ) -> Result<f64, Answer> {
        let costs = self.clock.as_ref().map(|clock| (clock.costs.latency_s, clock.costs.lag_s));
        let (latency_s, lag_s) = costs.unwrap_or_default();
        let begin_s = self.ready_s(stream).max(submitted_s + latency_s);
        let left = |what: Left, seconds: f64| Pending { done_s: begin_s + lag_s + seconds, what };
        let done_s = match node {
            Node::Fill { address, pattern, count } => {
                let bytes = pattern.len() as u64 * count;
                self.device.memory.check(address, bytes).map_err(|_| errors::INVALID_VALUE)?;
                self.leave(left(Left::Fill { address, pattern, count }, self.device.dram_seconds(bytes)))
            }
            Node::Copy { to, from, bytes } => {
                self.device.memory.check(from, bytes).map_err(|_| errors::INVALID_VALUE)?;
                self.device.memory.check(to, bytes).map_err(|_| errors::INVALID_VALUE)?;
                self.leave(left(Left::Copy { to, from, bytes }, self.device.dram_seconds(2 * bytes)))
            }
            Node::Record { event } => {
                let stamp = Stamp { device_s: begin_s, ..self.device.stamp() };
                self.events.insert(event, Event { stamp: Some(stamp), ..Event::default() });
                begin_s
            }
            Node::Kernel { .. } => {
                // Kernels run one after another, whatever their streams.
                let device_s = self.device.timeline.as_ref().map_or(0.0, |it| it.now_s);
                let begin_s = begin_s.max(device_s);
                self.settle(begin_s);
                if let (Some(timeline), scenario) = (&mut self.device.timeline, &self.device.scenario) {
                    timeline.idle_to(scenario, begin_s);
                }
                self.perform(node, by, cold_s)?;
                self.device.timeline.as_ref().map_or(begin_s, |it| it.now_s)
            }
        };
        self.set_ready(stream, done_s);
        Ok(done_s)
    }

    fn leave(&mut self, pending: Pending) -> f64 {
        let done_s = pending.done_s;
        if let Some(clock) = &mut self.clock {
            clock.pending.push(pending);
        }
        done_s
    }

    /// Has memory hold what was done by then.
    fn settle(&mut self, moment_s: f64) {
        let Some(clock) = &mut self.clock else { return };
        for left in clock.done_by(moment_s) {
            // Memory that was freed meanwhile takes nothing.
            let _ = match left {
                Left::Upload { to, content } => {
                    self.device.sweep(to, content.len() as u64, true);
                    let copy = |memory: &mut [u8]| memory.copy_from_slice(&content);
                    self.device.memory.change(to, content.len() as u64, copy)
                }
                Left::Fill { address, pattern, count } => {
                    self.device.sweep(address, pattern.len() as u64 * count, true);
                    self.fill(address, &pattern, count)
                }
                Left::Copy { to, from, bytes } => {
                    self.device.sweep(to, bytes, true);
                    self.copy(to, from, bytes)
                }
                Left::Download { pinned, offset, from, bytes } => {
                    let words = self.host.get_mut(&pinned);
                    let content = self.device.memory.read(from, bytes);
                    if let (Some(words), Ok(content)) = (words, content) {
                        for (index, &byte) in content.iter().enumerate() {
                            let (word, shift) = ((offset + index) / 8, (offset + index) % 8 * 8);
                            words[word] = words[word] & !(0xff << shift) | u64::from(byte) << shift;
                        }
                    }
                    Ok(())
                }
            };
        }
    }

    fn fill(&mut self, address: u64, pattern: &[u8], count: u64) -> Result<(), Stray> {
        let bytes = pattern.len() as u64 * count;
        let fill = |memory: &mut [u8]| {
            let mut filled = pattern.len().min(memory.len());
            memory[..filled].copy_from_slice(&pattern[..filled]);
            // What is filled is copied behind itself: twice as much every time.
            while (1..memory.len()).contains(&filled) {
                let more = filled.min(memory.len() - filled);
                memory.copy_within(..more, filled);
                filled += more;
            }
        };
        self.device.memory.change(address, bytes, fill)
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), Stray> {
        let content = self.device.memory.read(from, bytes)?.to_vec();
        self.device.memory.change(to, bytes, |memory| memory.copy_from_slice(&content))
    }

    /// Copies from the host in a stream. Small copies from pageable memory are done after the call; all others, and
    /// those that a call waits for, when it returns.
    pub fn upload(&mut self, stream: u64, to: u64, content: &[u8], waits: bool, pinned: bool) -> Done {
        let bytes = content.len() as u64;
        self.device.memory.check(to, bytes).map_err(|_| errors::INVALID_VALUE)?;
        let seconds = self.device.host_seconds(bytes);
        let Some(clock) = &mut self.clock else {
            let copy = |memory: &mut [u8]| memory.copy_from_slice(content);
            self.device.memory.change(to, bytes, copy).map_err(|_| errors::INVALID_VALUE)?;
            self.device.host_copy(to, bytes, true);
            return Ok(());
        };
        clock.handle(bytes);
        clock.pay(clock.costs.launch_s);
        let lag_s = clock.costs.lag_s;
        let begin_s = (clock.now_s + clock.costs.latency_s).max(self.ready_s(stream));
        let done_s = begin_s + lag_s + seconds;
        self.leave(Pending { done_s, what: Left::Upload { to, content: content.to_vec() } });
        self.set_ready(stream, done_s);
        let staged = bytes <= STAGED_BYTES && !pinned;
        if staged || pinned && !waits { Ok(()) } else { self.wait_for_moment(done_s) }
    }

    /// Copies to the host in a stream. What a kernel is still writing is torn.
    ///
    /// # Safety
    ///
    /// `to` has room for `bytes` bytes.
    pub unsafe fn download(&mut self, stream: u64, to: *mut u8, from: u64, bytes: u64, waits: bool) -> Done {
        let seconds = self.device.host_seconds(bytes);
        self.device.memory.check(from, bytes).map_err(|_| errors::INVALID_VALUE)?;
        if let Some(clock) = &mut self.clock {
            clock.pay(clock.costs.launch_s);
            let begin_s = (clock.now_s + clock.costs.latency_s).max(self.ready_s(stream));
            let done_s = begin_s + seconds;
            self.set_ready(stream, done_s);
            if !waits && let Some((pinned, offset)) = self.pinned(to as u64, bytes) {
                self.leave(Pending { done_s, what: Left::Download { pinned, offset, from, bytes } });
                return Ok(());
            }
            self.settle(begin_s);
            let torn = self.device.memory.written_s(from) > begin_s + 1e-9;
            let content = self.device.memory.read(from, bytes).map_err(|_| errors::INVALID_VALUE)?;
            for (index, &byte) in content.iter().enumerate() {
                // SAFETY: within the caller's room.
                unsafe { to.add(index).write(if torn { !byte } else { byte }) };
            }
            let done = self.wait_for_moment(done_s);
            if let Some(clock) = &mut self.clock {
                clock.handle(bytes);
            }
            return done;
        }
        let content = self.device.memory.read(from, bytes).map_err(|_| errors::INVALID_VALUE)?;
        // SAFETY: the caller's room.
        unsafe { content.as_ptr().copy_to_nonoverlapping(to, content.len()) };
        self.device.host_copy(from, bytes, false);
        self.wait_all()
    }

    /// The allocation of pinned memory that the bytes lie in, and where.
    pub fn pinned(&self, address: u64, bytes: u64) -> Option<(u64, usize)> {
        self.host.iter().find_map(|(&start, words)| {
            let offset = address.checked_sub(start)?;
            (offset + bytes <= words.len() as u64 * 8).then_some((start, offset as usize))
        })
    }

    fn wait_for_moment(&mut self, device_s: f64) -> Done {
        self.wait(Stamp { device_s, ..self.device.stamp() })
    }

    /// Records an event; in a capture it orders the graph and measures nothing, unless it is one of the graph's.
    pub fn record(&mut self, event: u64, stream: u64, in_graph: bool) -> Done {
        let untimed = self.events.get(&event).ok_or(errors::INVALID_HANDLE)?.untimed;
        let mut stamp = self.device.stamp();
        if let Some(clock) = &self.clock {
            stamp.device_s = self.ready_s(stream).max(clock.now_s + clock.costs.latency_s);
        }
        if let Some(capture) = &mut self.stream(stream)?.capture {
            if in_graph {
                capture.nodes.push(Node::Record { event });
            } else {
                self.events.insert(event, Event { stamp: None, captured: true, untimed });
            }
            return Ok(());
        }
        self.set_ready(stream, stamp.device_s);
        self.events.insert(event, Event { stamp: Some(stamp), captured: false, untimed });
        Ok(())
    }

    /// Makes a graph ready to be launched; functions that it launches are loaded with it.
    pub fn instantiate(&mut self, nodes: &[Node]) {
        let Some(clock) = &mut self.clock else { return };
        clock.pay(clock.costs.upload_s * nodes.len() as f64);
        for node in nodes {
            if let Node::Kernel { key, .. } = node
                && clock.warm_functions.insert((key.module, key.entry.clone()))
            {
                let cold_s = clock.between(self.device.scenario.cold.function_s);
                clock.pay(cold_s);
            }
        }
    }

    /// Uploads a graph that was not yet; what of that the device takes.
    pub fn upload_graph(&mut self, executable: u64, nodes: usize) -> f64 {
        let Some(clock) = &mut self.clock else { return 0.0 };
        if !clock.warm_graphs.insert(executable) {
            return 0.0;
        }
        let cold = &self.device.scenario.cold;
        let cold_s = clock.between(cold.graph_s);
        clock.pay(cold_s * (1.0 - cold.device_share) + clock.costs.upload_s * nodes as f64);
        cold_s * cold.device_share
    }

    /// Launches a graph: its nodes are submitted one after another, and begin in that order.
    pub fn launch_graph(&mut self, executable: u64, stream: u64) -> Done {
        let nodes = self.executables.get(&executable).cloned().ok_or(errors::INVALID_HANDLE)?;
        let mut cold_s = self.upload_graph(executable, nodes.len());
        let Some(clock) = &mut self.clock else {
            self.device.start_graph();
            return nodes.into_iter().try_for_each(|node| self.perform(node, By::Graph, 0.0));
        };
        cold_s += self.device.scenario.launch.stream_s;
        let (node_s, stall_s, half) = (clock.costs.node_s, clock.stall(), nodes.len() / 2);
        clock.pay(clock.costs.graph_s);
        for (index, node) in nodes.into_iter().enumerate() {
            let Some(clock) = &mut self.clock else { break };
            clock.pay(if index == half { node_s + stall_s } else { node_s });
            let submitted_s = clock.now_s;
            self.enqueue(stream, node, By::Graph, submitted_s, std::mem::take(&mut cold_s))?;
        }
        Ok(())
    }

    fn perform(&mut self, node: Node, by: By, cold_s: f64) -> Done {
        match node {
            Node::Kernel { module, key } => {
                // What comes after a failure is not run; what comes after a hanging kernel waits for ever.
                if self.sticky.is_some() || self.lost || self.strike(&key.entry).is_some() {
                    return Ok(());
                }
                if let Err(code) = self.device.launch(&module, key, by, cold_s) {
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
                self.fill(address, &pattern, count).map_err(|_| errors::INVALID_VALUE)?;
                self.device.device_fill(address, bytes, bytes);
            }
            Node::Copy { to, from, bytes } => {
                self.copy(to, from, bytes).map_err(|_| errors::INVALID_VALUE)?;
                self.device.device_fill(to, bytes, 2 * bytes);
            }
            Node::Record { event } => {
                let stamp = Some(self.device.stamp());
                self.events.insert(event, Event { stamp, ..Event::default() });
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
