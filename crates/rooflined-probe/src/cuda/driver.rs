//! The CUDA driver, as much of it as the probe needs: one device, one stream, plain allocations, events and graphs.
//!
//! Names of errors are in a table here, because asking the driver for them needs a function of its own.

use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute_enum as Attribute, CUevent, CUfunction, CUfunction_attribute_enum,
    CUgraphExec, CUmodule, CUresult, CUstream, CUstreamCaptureMode_enum,
};

use super::calls::{Calls, Missing};
use rooflined_core::units::Seconds;

/// How long one entry of launches may take; the longest the probe asks for are some tens of milliseconds.
const HANG: Duration = Duration::from_secs(4);
/// How the reason begins when a kernel hangs.
pub const HUNG: &str = "a kernel has not ended";
/// How the reason begins when it is a fault of this program.
pub const OURS: &str = "this is a fault of rooflined";
/// Pause between two checks of a launch that runs.
const LOOK: Duration = Duration::from_micros(50);
/// The same between two looks at how far a row of launches is.
const PROGRESS: Duration = Duration::from_millis(500);

/// Set once the device is lost: a driver that is asked to free what a hanging kernel uses waits for that kernel.
static LOST: AtomicBool = AtomicBool::new(false);

/// Gives something back to the driver, unless the device is lost. What the driver says of it is of no use to anybody.
fn release(work: impl FnOnce() -> Result<(), GpuError>) {
    if !LOST.load(Ordering::Relaxed) {
        let _ = guarded(work);
    }
}

/// What went wrong, and how much of the run it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuError {
    /// This step cannot run; others may.
    Step(String),
    /// The device, or this process' hold on it, is lost.
    Fatal(String),
}

impl GpuError {
    /// The reason, for people.
    pub fn message(self) -> String {
        match self {
            Self::Step(message) | Self::Fatal(message) => message,
        }
    }
}

/// The driver's functions, looked up once.
fn calls() -> Result<&'static Calls, GpuError> {
    static CALLS: OnceLock<Result<Calls, Missing>> = OnceLock::new();
    CALLS.get_or_init(Calls::load).as_ref().map_err(|missing| {
        GpuError::Fatal(match missing {
            Missing::Library(said) => format!(
                "there is no libcuda.so.1: install NVIDIA's driver, or set accelerator = \"cpu\" ({said})"
            ),
            Missing::Function(name) => {
                format!("the driver has no {name}: it is older than CUDA 11.4, update it")
            }
        })
    })
}

/// What a call answered, by its name.
fn answered(call: &'static str, code: u32) -> Result<(), GpuError> {
    if code == SUCCESS { Ok(()) } else { Err(classify(call, code)) }
}

const SUCCESS: u32 = CUresult::CUDA_SUCCESS as u32;
const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
const MOST_DYNAMIC_SHARED: u32 =
    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
const OF_THIS_THREAD: u32 = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;

/// Errors by number, with what to do.
#[rustfmt::skip]
const ERRORS: &[(u32, &str, &str)] = &[
    (1, "CUDA_ERROR_INVALID_VALUE", "this is a fault of rooflined: please report it"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY", "end other programs on the GPU, or lower calibration.memory_limit_bytes"),
    (3, "CUDA_ERROR_NOT_INITIALIZED", LOOK_AT_LOG),
    (4, "CUDA_ERROR_DEINITIALIZED", LOOK_AT_LOG),
    (34, "CUDA_ERROR_STUB_LIBRARY", "a toolkit's stub was found in place of the driver: take its stubs folder out of LD_LIBRARY_PATH"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process holds the GPU in exclusive mode (nvidia-smi -q -d COMPUTE)"),
    (100, "CUDA_ERROR_NO_DEVICE", "the driver sees no GPU: is /dev/nvidia* (or /dev/nvhost-*) there, and may this user open it?"),
    (101, "CUDA_ERROR_INVALID_DEVICE", LOOK_AT_LOG),
    (200, "CUDA_ERROR_INVALID_IMAGE", NOT_FOR_IT),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", NOT_FOR_IT),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE", "the GPU's memory is damaged: look at nvidia-smi -q -d ECC"),
    (218, "CUDA_ERROR_INVALID_PTX", NOT_FOR_IT),
    (221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "install the driver's libnvidia-ptxjitcompiler"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is too old for this kernel: update it"),
    (500, "CUDA_ERROR_NOT_FOUND", "this is a fault of rooflined: please report it"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS", LOOK_AT_LOG),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", NOT_FOR_IT),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the GPU also draws a screen, which limits how long a kernel may run"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", NOT_FOR_IT),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS", LOOK_AT_LOG),
    (719, "CUDA_ERROR_LAUNCH_FAILED", LOOK_AT_LOG),
    (801, "CUDA_ERROR_NOT_SUPPORTED", NOT_FOR_IT),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is still starting: is nvidia-fabricmanager running?"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "kernel module and driver library do not belong together: reboot after a driver update"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", OF_CAPTURE),
    (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", OF_CAPTURE),
    (902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", OF_CAPTURE),
    (903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", OF_CAPTURE),
    (904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", OF_CAPTURE),
    (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", OF_CAPTURE),
    (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", OF_CAPTURE),
    (907, "CUDA_ERROR_CAPTURED_EVENT", OF_CAPTURE),
    (908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", OF_CAPTURE),
    (999, "CUDA_ERROR_UNKNOWN", LOOK_AT_LOG),
];
const LOOK_AT_LOG: &str = "look at dmesg for NVRM or Xid messages";
const OF_CAPTURE: &str = "the launches of this step could not be recorded as a graph: please report it";
const NOT_FOR_IT: &str = "this kernel is not for this GPU or its driver";

fn classify(call: &str, number: u32) -> GpuError {
    let known = ERRORS.iter().find(|(known, ..)| *known == number);
    let message = match known {
        Some((_, name, hint)) => format!("{call}: {name}; {hint}"),
        None => format!("{call}: CUDA error {number}; {LOOK_AT_LOG}"),
    };
    // Of these the context is as it was before.
    if matches!(number, 1 | 2 | 200 | 209 | 218 | 221 | 222 | 500 | 701 | 801 | 900..=908) {
        GpuError::Step(message)
    } else {
        lost(message)
    }
}

fn lost(message: String) -> GpuError {
    LOST.store(true, Ordering::Relaxed);
    GpuError::Fatal(message)
}

/// Runs `work`; a panic becomes an error, so that what has been measured is not lost with it.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, GpuError>) -> Result<T, GpuError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(GpuError::Fatal(format!("{OURS}, please report it: {said}")))
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub name: String,
    /// Compute capability times ten: 87 for 8.7, 110 for 11.0.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Bytes of the second-level cache, as the driver tells them.
    pub l2_bytes: u64,
    /// Width of the memory interface in bits, and the highest clock of the SMs in kHz, as the driver tells them.
    pub bus_bits: u32,
    pub clock_khz: u32,
    /// CPU and GPU share one memory.
    pub integrated: bool,
    /// The CUDA version that the driver speaks: 12060 for 12.6.
    pub driver: i32,
    /// Domain, bus, device: where NVML finds it.
    pub pci: (u32, u32, u32),
}

/// The first GPU with its primary context.
pub struct Device {
    handle: CUdevice,
    stream: CUstream,
    facts: Facts,
}

#[expect(
    clippy::unused_self,
    reason = "the calls need the context that the device keeps, and do not name it"
)]
impl Device {
    /// Opens the first GPU and makes its primary context current.
    ///
    /// # Errors
    /// There is no driver or no device, by name.
    pub fn open() -> Result<Self, GpuError> {
        guarded(|| {
            let calls = calls()?;
            let (mut count, mut handle, mut context, mut stream) = (0, 0, ptr::null_mut(), ptr::null_mut());
            // SAFETY: takes a number.
            answered("cuInit", unsafe { (calls.init)(0) })?;
            // SAFETY: writes a number.
            answered("cuDeviceGetCount", unsafe { (calls.device_count)(&raw mut count) })?;
            if count < 1 {
                return Err(classify("cuDeviceGetCount", NO_DEVICE));
            }
            // SAFETY: writes a number.
            answered("cuDeviceGet", unsafe { (calls.device)(&raw mut handle, 0) })?;
            let facts = facts(calls, handle)?;
            // SAFETY: the device is the one just given; the context is released when this is dropped.
            let retained = unsafe { (calls.context_retain)(&raw mut context, handle) };
            answered("cuDevicePrimaryCtxRetain", retained)?;
            // SAFETY: the context is alive.
            answered("cuCtxSetCurrent", unsafe { (calls.context_set)(context) })?;
            // SAFETY: writes a handle; 0 asks for a stream that waits for the default one, in which memory is filled and
            // copied, and the other way round.
            answered("cuStreamCreate", unsafe { (calls.stream_create)(&raw mut stream, 0) })?;
            Ok(Self { handle, stream, facts })
        })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Free and total bytes. On a board that shares its memory, free is what the kernel would give at once.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        answered("cuMemGetInfo", unsafe { (calls()?.memory_info)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    pub fn allocate(&self, bytes: usize) -> Result<Buffer, GpuError> {
        let mut address = 0;
        // SAFETY: writes a number, which is only handed to calls that stay within `bytes`.
        answered("cuMemAlloc", unsafe { (calls()?.allocate)(&raw mut address, bytes.max(16)) })?;
        Ok(Buffer { address, bytes })
    }

    pub fn load(&self, ptx: &str) -> Result<Module, GpuError> {
        let text = CString::new(ptx).map_err(|_| GpuError::Step("the PTX text holds a zero byte".into()))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the image is text that ends with a zero byte, and lives until the call returns.
        let loaded = unsafe { (calls()?.module_load)(&raw mut handle, text.as_ptr().cast()) };
        answered("cuModuleLoadData", loaded)?;
        Ok(Module { handle })
    }

    /// Blocks of `threads` that one SM holds at once, and makes room for the shared memory asked for.
    pub fn resident(&self, function: Function, threads: u32, shared: u32) -> Result<u32, GpuError> {
        if shared > 48 << 10 {
            let bytes = i32::try_from(shared).unwrap_or(i32::MAX);
            // SAFETY: the function belongs to a loaded module.
            let set = unsafe { (calls()?.function_set)(function.handle, MOST_DYNAMIC_SHARED, bytes) };
            answered("cuFuncSetAttribute", set)?;
        }
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        let mut blocks = 0;
        // SAFETY: as above; writes a number.
        answered("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            (calls()?.occupancy)(&raw mut blocks, function.handle, threads, shared as usize)
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0).max(1))
    }

    /// Runs launches on a device that has nothing else to do; the time from before the first is submitted. What it takes to
    /// submit them is in it.
    pub fn run(&self, launches: &[Launch]) -> Result<Seconds, GpuError> {
        let begin = self.mark()?;
        launches.iter().try_for_each(|launch| self.launch(launch))?;
        let end = self.mark()?;
        end.wait()?;
        end.after(&begin)
    }

    /// An event behind everything that has been submitted.
    pub fn mark(&self) -> Result<Event, GpuError> {
        let event = Event::new()?;
        event.record(self.stream)?;
        Ok(event)
    }

    pub fn graph(&self, launches: &[Launch]) -> Result<Graph, GpuError> {
        let calls = calls()?;
        // SAFETY: the stream is alive, and nothing else is captured.
        answered("cuStreamBeginCapture", unsafe { (calls.capture_begin)(self.stream, OF_THIS_THREAD) })?;
        let launched = launches.iter().try_for_each(|launch| self.launch(launch));
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a capture was begun, and has to be ended whatever became of it, or the stream takes nothing else.
        let ended = unsafe { (calls.capture_end)(self.stream, &raw mut graph) };
        if ended != SUCCESS {
            // SAFETY: as above. One that could not be ended is abandoned; where it had ended, this says so and harms nobody.
            let _ = unsafe { (calls.capture_end)(self.stream, &raw mut graph) };
        }
        let made = launched.and(answered("cuStreamEndCapture", ended)).and_then(|()| {
            // SAFETY: the graph was just captured.
            answered("cuGraphInstantiate", unsafe { (calls.graph_instantiate)(&raw mut exec, graph, 0) })
        });
        if !graph.is_null() {
            // SAFETY: it is not needed once it has been instantiated, nor where it could not be. What is left of one that
            // cannot be destroyed harms nobody.
            let _ = unsafe { (calls.graph_destroy)(graph) };
        }
        made?;
        Ok(Graph { exec })
    }

    pub fn launch_graph(&self, graph: &Graph) -> Result<(), GpuError> {
        // SAFETY: graph and stream are alive.
        answered("cuGraphLaunch", unsafe { (calls()?.graph_launch)(graph.exec, self.stream) })
    }

    pub fn launch(&self, launch: &Launch) -> Result<(), GpuError> {
        let mut words: Vec<u64> = launch.args.iter().map(Arg::bits).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        // SAFETY: the arguments are those that the entry declares, little-endian in words of eight bytes, and live until
        // the driver has copied them; the buffers behind them are kept by the caller until the stream is waited for.
        answered("cuLaunchKernel", unsafe {
            (calls()?.launch)(
                launch.function.handle,
                launch.blocks,
                1,
                1,
                launch.threads,
                1,
                1,
                launch.shared,
                self.stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: both are alive, and nothing uses them any more.
        release(|| unsafe {
            answered("cuStreamDestroy", (calls()?.stream_destroy)(self.stream))?;
            answered("cuDevicePrimaryCtxRelease", (calls()?.context_release)(self.handle))
        });
    }
}

fn facts(calls: &Calls, handle: CUdevice) -> Result<Facts, GpuError> {
    let read = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: the device is one that the driver gave; writes a number.
        let got = unsafe { (calls.device_attribute)(&raw mut value, attribute as u32, handle) };
        answered("cuDeviceGetAttribute", got)?;
        Ok::<_, GpuError>(u32::try_from(value).unwrap_or(0))
    };
    let mut driver = 0;
    // SAFETY: writes a number.
    answered("cuDriverGetVersion", unsafe { (calls.driver_version)(&raw mut driver) })?;
    let mut name = [0_u8; 256];
    // SAFETY: writes no more bytes than it is told; the last one stays zero.
    answered("cuDeviceGetName", unsafe { (calls.device_name)(name.as_mut_ptr().cast(), 255, handle) })?;
    let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
    Ok(Facts {
        name: name.into_owned(),
        capability: 10 * read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        sm_count: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
        l2_bytes: read(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        bus_bits: read(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        clock_khz: read(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        integrated: read(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        driver,
        pci: (
            read(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            read(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            read(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        ),
    })
}

/// Memory of the device, freed when dropped.
#[derive(Debug)]
pub struct Buffer {
    address: u64,
    bytes: usize,
}

impl Buffer {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// An argument that points `offset` bytes into it.
    pub fn at(&self, offset: usize) -> Arg {
        Arg::Pointer(self.address + offset as u64)
    }

    fn within(&self, offset: usize, bytes: usize) -> Result<u64, GpuError> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        inside.then(|| self.address + offset as u64).ok_or_else(|| {
            GpuError::Step(format!("{bytes} bytes at {offset} lie outside a buffer of {}", self.bytes))
        })
    }

    pub fn set(&self, value: u8) -> Result<(), GpuError> {
        // SAFETY: the allocation is `bytes` long.
        answered("cuMemsetD8", unsafe { (calls()?.fill)(self.address, value, self.bytes) })?;
        filled()
    }

    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), GpuError> {
        self.copy_in(offset, from)?;
        filled()
    }

    fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), GpuError> {
        let address = self.within(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the place was checked.
        answered("cuMemcpyHtoD", unsafe { (calls()?.copy_in)(address, from.as_ptr().cast(), from.len()) })
    }

    pub fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, GpuError> {
        let address = self.within(offset, bytes)?;
        let mut into = vec![0_u8; bytes];
        if bytes > 0 {
            // SAFETY: the place was checked.
            let copied = unsafe { (calls()?.copy_out)(into.as_mut_ptr().cast(), address, bytes) };
            answered("cuMemcpyDtoH", copied)?;
        }
        Ok(into)
    }

    /// `pattern` again and again over `bytes` from `offset` on.
    pub fn repeat(&self, offset: usize, pattern: &[u8], bytes: usize) -> Result<(), GpuError> {
        self.within(offset, bytes)?;
        let mut done = pattern.len().min(bytes);
        self.copy_in(offset, &pattern[..done])?;
        while done < bytes && done > 0 {
            let more = done.min(bytes - done);
            let (from, to) = (self.within(offset, more)?, self.within(offset + done, more)?);
            // SAFETY: both places were checked, and do not overlap.
            answered("cuMemcpyDtoD", unsafe { (calls()?.copy_within)(to, from, more) })?;
            done += more;
        }
        filled()
    }
}

/// Waits for what the default stream was given. Fills, and copies to the device, may return before they are done, and the
/// probe's stream is not relied upon to wait for another.
fn filled() -> Result<(), GpuError> {
    let done = Event::new()?;
    done.record(ptr::null_mut())?;
    done.wait()
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `Device::allocate`, freed once. A context that is lost has freed it already.
        release(|| answered("cuMemFree", unsafe { (calls()?.free)(self.address) }));
    }
}

/// A loaded module. It stays loaded as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    handle: CUmodule,
}

impl Module {
    pub fn function(&self, name: &str) -> Result<Function, GpuError> {
        let name = CString::new(name).map_err(|_| GpuError::Step("a name with a zero byte".into()))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the module is loaded for as long as the process lives; writes a handle.
        let found = unsafe { (calls()?.module_function)(&raw mut handle, self.handle, name.as_ptr()) };
        answered("cuModuleGetFunction", found)?;
        Ok(Function { handle })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Function {
    handle: CUfunction,
}

#[derive(Debug, Clone, Copy)]
pub enum Arg {
    Pointer(u64),
    U32(u32),
    U64(u64),
    F32(f32),
}

impl Arg {
    pub const NULL: Self = Self::Pointer(0);

    fn bits(&self) -> u64 {
        match *self {
            Self::Pointer(bits) | Self::U64(bits) => bits,
            Self::U32(bits) => bits.into(),
            Self::F32(value) => value.to_bits().into(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Launch {
    pub function: Function,
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// In the order of the entry's declaration.
    pub args: Vec<Arg>,
}

/// Launches that the device starts by itself, one after the other.
pub struct Graph {
    exec: CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated once, destroyed once.
        release(|| answered("cuGraphExecDestroy", unsafe { (calls()?.graph_exec_destroy)(self.exec) }));
    }
}

/// A moment of the device.
pub struct Event {
    handle: CUevent,
}

impl Event {
    fn new() -> Result<Self, GpuError> {
        let mut handle = ptr::null_mut();
        // SAFETY: writes a handle; 0 asks for one that keeps the time.
        answered("cuEventCreate", unsafe { (calls()?.event_create)(&raw mut handle, 0) })?;
        Ok(Self { handle })
    }

    fn record(&self, stream: CUstream) -> Result<(), GpuError> {
        // SAFETY: both are alive.
        answered("cuEventRecord", unsafe { (calls()?.event_record)(self.handle, stream) })
    }

    /// Whether the device has come so far.
    pub fn happened(&self) -> Result<bool, GpuError> {
        // SAFETY: the event was recorded.
        match unsafe { (calls()?.event_query)(self.handle) } {
            NOT_READY => Ok(false),
            code => answered("cuEventQuery", code).map(|()| true),
        }
    }

    /// What the device took from `earlier` to here; both have happened.
    pub fn after(&self, earlier: &Self) -> Result<Seconds, GpuError> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events were recorded; writes a number.
        answered("cuEventElapsedTime", unsafe {
            (calls()?.event_elapsed)(&raw mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(Seconds(f64::from(milliseconds) / 1e3))
    }

    /// Asks instead of waiting, so that a device that never answers does not take this process along.
    pub fn wait(&self) -> Result<(), GpuError> {
        self.wait_behind(&[])
    }

    /// The same for one behind others: the time limit is for each of them.
    pub fn wait_behind(&self, earlier: &[Self]) -> Result<(), GpuError> {
        let (mut begun, mut looked, mut passed) = (Instant::now(), Instant::now(), 0);
        loop {
            if self.happened()? {
                return Ok(());
            }
            if looked.elapsed() > PROGRESS {
                looked = Instant::now();
                let before = passed;
                while let Some(event) = earlier.get(passed) {
                    if !event.happened()? {
                        break;
                    }
                    passed += 1;
                }
                if passed > before {
                    begun = looked;
                }
            }
            let waited = begun.elapsed();
            if waited > HANG {
                return Err(lost(format!(
                    "{HUNG} within {HANG:?}: the GPU hangs, or others keep it busy; look at dmesg for Xid messages"
                )));
            }
            // Most launches are done within a millisecond; asking all the time keeps a core busy.
            if waited > LOOK {
                thread::sleep(LOOK);
            }
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        release(|| answered("cuEventDestroy", unsafe { (calls()?.event_destroy)(self.handle) }));
    }
}
