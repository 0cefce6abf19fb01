//! The CUDA driver, as much of it as the probe needs: one device, one stream, plain allocations, events and graphs.
//!
//! Calls go through cudarc, which loads `libcuda.so.1` when first asked and panics where it, or a function in it, is
//! missing: [`Device::open`] looks for the library first, and [`guarded`] turns what is left of panics into an error.
//! Names of errors come from the bindings, because asking the driver for them needs a function of its own.

use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result as cu;
use cudarc::driver::sys::{
    self, CUdevice_attribute_enum as Attribute, CUevent_flags_enum, CUfunction_attribute_enum,
    CUgraphInstantiate_flags_enum, CUresult, CUstreamCaptureMode_enum,
};

use roofline::units::Seconds;

/// How long one entry of launches may take; the longest the probe asks for are some tens of milliseconds.
const HANG: Duration = Duration::from_secs(4);
/// Pause between two checks of a launch that runs.
const LOOK: Duration = Duration::from_micros(50);

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

fn driver_error(call: &'static str) -> impl Fn(cu_error::Error) -> GpuError {
    move |error| classify(call, error.0)
}

mod cu_error {
    pub use cudarc::driver::DriverError as Error;
}

/// Errors by number, with what to do. The bindings are those of CUDA 11.4, and a younger driver may return a number that
/// their enumeration does not have: it is looked at as a number only.
#[rustfmt::skip]
const ERRORS: &[(u32, &str, &str)] = &[
    (1, "CUDA_ERROR_INVALID_VALUE", "this is a fault of rooflined: please report it"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY", "end other programs on the GPU, or lower calibration.memory_limit_bytes"),
    (3, "CUDA_ERROR_NOT_INITIALIZED", LOOK_AT_LOG),
    (4, "CUDA_ERROR_DEINITIALIZED", LOOK_AT_LOG),
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
    (999, "CUDA_ERROR_UNKNOWN", LOOK_AT_LOG),
];
const LOOK_AT_LOG: &str = "look at dmesg for NVRM or Xid messages";
const NOT_FOR_IT: &str = "this kernel is not for this GPU or its driver";

fn classify(call: &str, code: CUresult) -> GpuError {
    let number = code as u32;
    let known = ERRORS.iter().find(|(known, ..)| *known == number);
    let message = match known {
        Some((_, name, hint)) => format!("{call}: {name}; {hint}"),
        None => format!("{call}: CUDA error {number}; {LOOK_AT_LOG}"),
    };
    // Of these the context is as it was before.
    if matches!(number, 1 | 2 | 200 | 209 | 218 | 221 | 222 | 500 | 701 | 801) {
        GpuError::Step(message)
    } else {
        lost(message)
    }
}

fn lost(message: String) -> GpuError {
    LOST.store(true, Ordering::Relaxed);
    GpuError::Fatal(message)
}

/// Runs `work`; a panic of the loaded library's bindings becomes an error.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, GpuError>) -> Result<T, GpuError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(GpuError::Fatal(format!("the driver library is not one that can be used: {said}")))
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub name: String,
    /// Compute capability times ten: 87 for 8.7, 110 for 11.0.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// CPU and GPU share one memory.
    pub integrated: bool,
    /// The CUDA version that the driver speaks: 12060 for 12.6.
    pub driver: i32,
    /// Domain, bus, device: where NVML finds it.
    pub pci: (u32, u32, u32),
}

/// The first GPU with its primary context.
pub struct Device {
    handle: sys::CUdevice,
    stream: sys::CUstream,
    facts: Facts,
    /// What keeps the device busy while the CPU queues what is timed.
    lead_in: Option<Launch>,
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
            // SAFETY: looks whether the library can be loaded, which runs its constructors.
            if !unsafe { sys::is_culib_present() } {
                return Err(GpuError::Fatal(
                    "there is no libcuda.so.1: install NVIDIA's driver, or set accelerator = \"cpu\"".into(),
                ));
            }
            cu::init().map_err(driver_error("cuInit"))?;
            let count = cu::device::get_count().map_err(driver_error("cuDeviceGetCount"))?;
            if count < 1 {
                return Err(classify("cuDeviceGetCount", CUresult::CUDA_ERROR_NO_DEVICE));
            }
            let handle = cu::device::get(0).map_err(driver_error("cuDeviceGet"))?;
            let facts = facts(handle)?;
            // SAFETY: the device is the one just given; released when this is dropped.
            let context = unsafe { cu::primary_ctx::retain(handle) }
                .map_err(driver_error("cuDevicePrimaryCtxRetain"))?;
            // SAFETY: the context is alive.
            unsafe { cu::ctx::set_current(context) }.map_err(driver_error("cuCtxSetCurrent"))?;
            // A stream that waits for the default one, in which memory is filled and copied, and the other way round.
            let stream = cu::stream::create(cu::stream::StreamKind::Default)
                .map_err(driver_error("cuStreamCreate"))?;
            Ok(Self { handle, stream, facts, lead_in: None })
        })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Free and total bytes. On a board that shares its memory, free is what the kernel would give at once.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        let (free, total) = cu::mem_get_info().map_err(driver_error("cuMemGetInfo"))?;
        Ok((free as u64, total as u64))
    }

    pub fn allocate(&self, bytes: usize) -> Result<Buffer, GpuError> {
        // SAFETY: the address is only handed to calls that stay within `bytes`.
        let address = unsafe { cu::malloc_sync(bytes.max(16)) }.map_err(driver_error("cuMemAlloc"))?;
        Ok(Buffer { address, bytes })
    }

    pub fn load(&self, ptx: &str) -> Result<Module, GpuError> {
        let text = CString::new(ptx).map_err(|_| GpuError::Step("the PTX text holds a zero byte".into()))?;
        // SAFETY: the image is text that ends with a zero byte, and lives until the call returns.
        let handle = unsafe { cu::module::load_data(text.as_ptr().cast()) }
            .map_err(driver_error("cuModuleLoadData"))?;
        Ok(Module { handle })
    }

    /// Blocks of `threads` that one SM holds at once, and makes room for the shared memory asked for.
    pub fn resident(&self, function: Function, threads: u32, shared: u32) -> Result<u32, GpuError> {
        if shared > 48 << 10 {
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared).unwrap_or(i32::MAX);
            // SAFETY: the function belongs to a loaded module.
            unsafe { cu::function::set_function_attribute(function.handle, attribute, bytes) }
                .map_err(driver_error("cuFuncSetAttribute"))?;
        }
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: as above.
        let blocks = unsafe {
            cu::occupancy::max_active_block_per_multiprocessor(function.handle, threads, shared as usize)
        }
        .map_err(driver_error("cuOccupancyMaxActiveBlocksPerMultiprocessor"))?;
        Ok(u32::try_from(blocks).unwrap_or(0).max(1))
    }

    pub fn run(&self, launches: &[Launch]) -> Result<Seconds, GpuError> {
        self.timed(None, || launches.iter().try_for_each(|launch| self.launch(launch)))
    }

    /// The same behind the lead-in, if there is one by now.
    pub fn run_queued(&self, launches: &[Launch]) -> Result<Seconds, GpuError> {
        self.timed(self.lead_in.as_ref(), || launches.iter().try_for_each(|launch| self.launch(launch)))
    }

    /// From now on graphs are timed behind this launch, so that they are queued before they begin: the time that the CPU
    /// takes to submit them is then none of theirs.
    pub fn lead_in(&mut self, launch: Launch) {
        self.lead_in = Some(launch);
    }

    pub fn graph(&self, launches: &[Launch]) -> Result<Graph, GpuError> {
        // SAFETY: the stream is alive, and nothing else is captured.
        unsafe {
            cu::stream::begin_capture(
                self.stream,
                CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            )
        }
        .map_err(driver_error("cuStreamBeginCapture"))?;
        let launched = launches.iter().try_for_each(|launch| self.launch(launch));
        if launched.is_err() {
            // SAFETY: a capture was begun, and has to be ended; what it says of the broken one is nothing new.
            let _ = unsafe { cu::stream::end_capture(self.stream) };
        }
        launched?;
        // SAFETY: a capture was begun.
        let graph =
            unsafe { cu::stream::end_capture(self.stream) }.map_err(driver_error("cuStreamEndCapture"));
        let graph = graph?;
        // SAFETY: the graph was just captured; it is not needed once it has been instantiated.
        let exec = unsafe {
            let exec = cu::graph::instantiate(graph, CUgraphInstantiate_flags_enum(0))
                .map_err(driver_error("cuGraphInstantiate"));
            cu::graph::destroy(graph).map_err(driver_error("cuGraphDestroy"))?;
            exec?
        };
        Ok(Graph { exec })
    }

    /// Runs a graph `times` in a row; the time between the events around them.
    pub fn run_graph(&self, graph: &Graph, times: u32) -> Result<Seconds, GpuError> {
        self.timed(self.lead_in.as_ref(), || {
            (0..times).try_for_each(|_| {
                // SAFETY: graph and stream are alive.
                unsafe { cu::graph::launch(graph.exec, self.stream) }.map_err(driver_error("cuGraphLaunch"))
            })
        })
    }

    fn timed(
        &self,
        lead_in: Option<&Launch>,
        work: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<Seconds, GpuError> {
        let (begin, end) = (Event::new()?, Event::new()?);
        lead_in.map_or(Ok(()), |launch| self.launch(launch))?;
        begin.record(self.stream)?;
        work()?;
        end.record(self.stream)?;
        end.wait()?;
        // SAFETY: both events were recorded, and the second has happened.
        let milliseconds = unsafe { cu::event::elapsed(begin.handle, end.handle) }
            .map_err(driver_error("cuEventElapsedTime"))?;
        Ok(Seconds(f64::from(milliseconds) / 1e3))
    }

    fn launch(&self, launch: &Launch) -> Result<(), GpuError> {
        let mut words: Vec<u64> = launch.args.iter().map(Arg::bits).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        // SAFETY: the arguments are those that the entry declares, little-endian in words of eight bytes, and live until
        // the driver has copied them; the buffers behind them are kept by the caller until the stream is waited for.
        unsafe {
            cu::launch_kernel(
                launch.function.handle,
                (launch.blocks, 1, 1),
                (launch.threads, 1, 1),
                launch.shared,
                self.stream,
                &mut pointers,
            )
        }
        .map_err(driver_error("cuLaunchKernel"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: both are alive, and nothing uses them any more.
        release(|| unsafe {
            cu::stream::destroy(self.stream).map_err(driver_error("cuStreamDestroy"))?;
            cu::primary_ctx::release(self.handle).map_err(driver_error("cuDevicePrimaryCtxRelease"))
        });
    }
}

fn facts(handle: sys::CUdevice) -> Result<Facts, GpuError> {
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver gave.
        let value = unsafe { cu::device::get_attribute(handle, attribute) };
        value.map(|value| u32::try_from(value).unwrap_or(0)).map_err(driver_error("cuDeviceGetAttribute"))
    };
    let mut driver = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&raw mut driver) }
        .result()
        .map_err(driver_error("cuDriverGetVersion"))?;
    Ok(Facts {
        name: cu::device::get_name(handle).map_err(driver_error("cuDeviceGetName"))?,
        capability: 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        driver,
        pci: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
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
        unsafe { cu::memset_d8_sync(self.address, value, self.bytes) }.map_err(driver_error("cuMemsetD8"))
    }

    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), GpuError> {
        let address = self.within(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the place was checked.
        unsafe { cu::memcpy_htod_sync(address, from) }.map_err(driver_error("cuMemcpyHtoD"))
    }

    pub fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, GpuError> {
        let address = self.within(offset, bytes)?;
        let mut into = vec![0; bytes];
        if bytes > 0 {
            // SAFETY: the place was checked.
            unsafe { cu::memcpy_dtoh_sync(&mut into, address) }.map_err(driver_error("cuMemcpyDtoH"))?;
        }
        Ok(into)
    }

    /// `pattern` again and again over `bytes` from `offset` on.
    pub fn repeat(&self, offset: usize, pattern: &[u8], bytes: usize) -> Result<(), GpuError> {
        self.within(offset, bytes)?;
        let mut done = pattern.len().min(bytes);
        self.write(offset, &pattern[..done])?;
        while done < bytes && done > 0 {
            let more = done.min(bytes - done);
            let (from, to) = (self.within(offset, more)?, self.within(offset + done, more)?);
            // SAFETY: both places were checked, and do not overlap.
            unsafe { cu::memcpy_dtod_sync(to, from, more) }.map_err(driver_error("cuMemcpyDtoD"))?;
            done += more;
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `Device::allocate`, freed once. A context that is lost has freed it already.
        release(|| unsafe { cu::free_sync(self.address) }.map_err(driver_error("cuMemFree")));
    }
}

/// A loaded module. It stays loaded as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    handle: sys::CUmodule,
}

impl Module {
    pub fn function(&self, name: &str) -> Result<Function, GpuError> {
        let name = CString::new(name).map_err(|_| GpuError::Step("a name with a zero byte".into()))?;
        // SAFETY: the module is loaded for as long as the process lives.
        let handle = unsafe { cu::module::get_function(self.handle, name) }
            .map_err(driver_error("cuModuleGetFunction"))?;
        Ok(Function { handle })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Function {
    handle: sys::CUfunction,
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
    exec: sys::CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated once, destroyed once.
        release(|| unsafe { cu::graph::exec_destroy(self.exec) }.map_err(driver_error("cuGraphExecDestroy")));
    }
}

struct Event {
    handle: sys::CUevent,
}

impl Event {
    fn new() -> Result<Self, GpuError> {
        let handle =
            cu::event::create(CUevent_flags_enum::CU_EVENT_DEFAULT).map_err(driver_error("cuEventCreate"))?;
        Ok(Self { handle })
    }

    fn record(&self, stream: sys::CUstream) -> Result<(), GpuError> {
        // SAFETY: both are alive.
        unsafe { cu::event::record(self.handle, stream) }.map_err(driver_error("cuEventRecord"))
    }

    /// Asks instead of waiting, so that a device that never answers does not take this process along.
    fn wait(&self) -> Result<(), GpuError> {
        let begun = Instant::now();
        loop {
            // SAFETY: the event was recorded.
            match unsafe { cu::event::query(self.handle) } {
                Ok(()) => return Ok(()),
                Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => {}
                Err(error) => return Err(classify("cuEventQuery", error.0)),
            }
            let waited = begun.elapsed();
            if waited > HANG {
                return Err(lost(format!(
                    "a kernel has not ended within {HANG:?}: the GPU hangs, or others keep it busy; look at dmesg for Xid messages"
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
        release(|| unsafe { cu::event::destroy(self.handle) }.map_err(driver_error("cuEventDestroy")));
    }
}
