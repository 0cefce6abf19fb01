//! The functions of the driver API, with its own names and argument lists.
//!
//! Pointers come from C: each is checked for null and otherwise believed, as the real driver does. Contexts, modules,
//! functions, streams, events and graphs are numbers that look like pointers.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::attributes;
use crate::device::Stamp;
use crate::driver::{Answer, CURRENT, Capture, Done, Driver, Event, Function, Needs, Node, Stream, call};
use crate::errors::{self, Code};
use crate::memory::{Key, rounded};

type Handle = u64;

unsafe fn put<T>(place: *mut T, value: T) -> Done {
    if place.is_null() {
        return Err(errors::INVALID_VALUE.into());
    }
    // SAFETY: not null, and the caller's to write to by the function's contract.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

unsafe fn put_text(place: *mut c_char, length: c_int, text: &str) -> Done {
    let Ok(length) = usize::try_from(length) else { return Err(errors::INVALID_VALUE.into()) };
    if place.is_null() || length == 0 {
        return Err(errors::INVALID_VALUE.into());
    }
    let kept = text.len().min(length - 1);
    // SAFETY: `length` bytes are the caller's; `kept` and the zero after it lie within.
    unsafe {
        text.as_ptr().copy_to_nonoverlapping(place.cast(), kept);
        place.add(kept).write(0);
    }
    Ok(())
}

unsafe fn name_at(place: *const c_char) -> Result<String, Code> {
    if place.is_null() {
        return Err(errors::INVALID_VALUE);
    }
    // SAFETY: a C string by the function's contract.
    Ok(unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> Code {
    call("cuInit", Needs::Nothing, |driver| {
        if flags != 0 {
            return Err(errors::INVALID_VALUE.into());
        }
        driver.init()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    call("cuDriverGetVersion", Needs::Nothing, |driver| unsafe {
        put(version, driver.scenario().driver_version)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: Code, text: *mut *const c_char) -> Code {
    call("cuGetErrorName", Needs::Nothing, |_| match errors::name(error) {
        Some(name) => unsafe { put(text, name.as_ptr()) },
        None => Err(errors::INVALID_VALUE.into()),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: Code, text: *mut *const c_char) -> Code {
    call("cuGetErrorString", Needs::Nothing, |_| match errors::text(error) {
        Some(words) => unsafe { put(text, words.as_ptr()) },
        None => Err(errors::INVALID_VALUE.into()),
    })
}

// Devices

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    call("cuDeviceGetCount", Needs::Init, |_| unsafe { put(count, 1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    call("cuDeviceGet", Needs::Init, |driver| {
        driver.device(ordinal)?;
        unsafe { put(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Code {
    call("cuDeviceGetName", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe { put_text(name, length, &driver.scenario().name) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> Code {
    call("cuDeviceGetUuid", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe { put(uuid, driver.scenario().uuid()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Code {
    call("cuDeviceGetUuid_v2", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe { put(uuid, driver.scenario().uuid()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Code {
    call("cuDeviceGetAttribute", Needs::Init, |driver| {
        driver.device(device)?;
        let known = attributes::of_device(driver.scenario(), attribute).ok_or(errors::INVALID_VALUE)?;
        unsafe { put(value, known) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Code {
    call("cuDeviceTotalMem_v2", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe { put(bytes, driver.scenario().memory.total_bytes as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> Code {
    call("cuDeviceGetPCIBusId", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe { put_text(text, length, attributes::PCI_BUS_ID) }
    })
}

// Contexts

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> Code {
    call("cuDevicePrimaryCtxRetain", Needs::Init, |driver| {
        driver.device(device)?;
        let (handle, uses) = driver.primary.unwrap_or_else(|| (driver.handle(), 0));
        driver.primary = Some((handle, uses + 1));
        driver.contexts.insert(handle, device);
        unsafe { put(context, handle) }
    })
}

fn release(driver: &mut Driver, device: c_int) -> Done {
    driver.device(device)?;
    match driver.primary {
        None => Err(errors::INVALID_CONTEXT.into()),
        Some((handle, 1)) => {
            driver.primary = None;
            driver.contexts.remove(&handle);
            driver.sticky = None;
            Ok(())
        }
        Some((handle, uses)) => {
            driver.primary = Some((handle, uses - 1));
            Ok(())
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease(device: c_int) -> Code {
    call("cuDevicePrimaryCtxRelease", Needs::Init, |driver| release(driver, device))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    call("cuDevicePrimaryCtxRelease_v2", Needs::Init, |driver| release(driver, device))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint) -> Code {
    call("cuDevicePrimaryCtxSetFlags", Needs::Init, |driver| {
        driver.primary_flags = flags;
        driver.device(device)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> Code {
    call("cuDevicePrimaryCtxSetFlags_v2", Needs::Init, |driver| {
        driver.primary_flags = flags;
        driver.device(device)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Code {
    call("cuDevicePrimaryCtxGetState", Needs::Init, |driver| {
        driver.device(device)?;
        unsafe {
            put(flags, driver.primary_flags)?;
            put(active, c_int::from(driver.primary.is_some()))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(context: *mut Handle, _flags: c_uint, device: c_int) -> Code {
    call("cuCtxCreate_v2", Needs::Init, |driver| {
        driver.device(device)?;
        let handle = driver.handle();
        driver.contexts.insert(handle, device);
        CURRENT.set(handle);
        unsafe { put(context, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> Code {
    call("cuCtxDestroy_v2", Needs::Init, |driver| {
        driver.contexts.remove(&context).ok_or(errors::INVALID_CONTEXT)?;
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        if driver.contexts.is_empty() {
            driver.sticky = None;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> Code {
    call("cuCtxSetCurrent", Needs::Init, |driver| {
        if context != 0 && !driver.contexts.contains_key(&context) {
            return Err(errors::INVALID_CONTEXT.into());
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> Code {
    call("cuCtxGetCurrent", Needs::Init, |_| unsafe { put(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Code {
    call("cuCtxGetDevice", Needs::Context, |_| unsafe { put(device, 0) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    call("cuCtxSynchronize", Needs::Context, Driver::wait_all)
}

// Modules

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> Code {
    call("cuModuleLoadData", Needs::Context, |driver| unsafe { load(driver, module, image) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_uint,
    _values: *mut *mut c_void,
) -> Code {
    call("cuModuleLoadDataEx", Needs::Context, |driver| unsafe { load(driver, module, image) })
}

unsafe fn load(driver: &mut Driver, module: *mut Handle, image: *const c_void) -> Done {
    if image.is_null() {
        return Err(errors::INVALID_VALUE.into());
    }
    // SAFETY: PTX ends with a zero. A cubin or fatbin does not, but its first bytes hold one before they end.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let handle = driver.load(text.to_bytes())?;
    unsafe { put(module, handle) }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> Code {
    call("cuModuleUnload", Needs::Context, |driver| {
        driver.modules.remove(&module).ok_or(errors::INVALID_HANDLE)?;
        if driver.clock.is_some() {
            driver.wait_all()?;
        }
        driver.functions.retain(|_, function| function.module != module);
        driver.device.forget(module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> Code {
    call("cuModuleGetFunction", Needs::Context, |driver| {
        let entry = unsafe { name_at(name) }?;
        let loaded = driver.modules.get(&module).ok_or(errors::INVALID_HANDLE)?;
        if loaded.entry(&entry).is_none() {
            return Err(errors::NOT_FOUND.into());
        }
        let known = driver.functions.iter().find(|(_, it)| it.module == module && it.entry == entry);
        let handle = match known.map(|(handle, _)| *handle) {
            Some(handle) => handle,
            None => {
                let handle = driver.handle();
                driver.functions.insert(handle, Function { module, entry, dynamic_shared: 48 << 10 });
                handle
            }
        };
        unsafe { put(function, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: Handle) -> Code {
    call("cuFuncGetAttribute", Needs::Context, |driver| {
        let found = driver.functions.get(&function).ok_or(errors::INVALID_HANDLE)?;
        let module = driver.modules.get(&found.module).ok_or(errors::INVALID_HANDLE)?;
        let (major, minor) = module.version();
        let known = match attribute {
            0 => 1024,
            4 => 32,
            5 => (major * 10 + minor) as c_int,
            6 => driver.scenario().capability() as c_int,
            8 => found.dynamic_shared,
            9 => -1,
            1..=16 => 0,
            _ => return Err(errors::INVALID_VALUE.into()),
        };
        unsafe { put(value, known) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) -> Code {
    call("cuFuncSetAttribute", Needs::Context, |driver| {
        let most = attributes::shared_opt_in(driver.scenario());
        let found = driver.functions.get_mut(&function).ok_or(errors::INVALID_HANDLE)?;
        match attribute {
            8 if (0..=most).contains(&value) => found.dynamic_shared = value,
            9 if (-1..=100).contains(&value) => {}
            14 => {}
            _ => return Err(errors::INVALID_VALUE.into()),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: Handle, _config: c_uint) -> Code {
    call("cuFuncSetCacheConfig", Needs::Context, |driver| {
        driver.functions.get(&function).map(|_| ()).ok_or_else(|| errors::INVALID_HANDLE.into())
    })
}

fn occupancy(driver: &Driver, function: Handle, threads: c_int, shared_bytes: usize) -> Result<c_int, Code> {
    driver.functions.get(&function).ok_or(errors::INVALID_HANDLE)?;
    if !(1..=1024).contains(&threads) {
        return Err(errors::INVALID_VALUE);
    }
    Ok(attributes::resident_blocks(driver.scenario(), threads, shared_bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: Handle,
    threads: c_int,
    shared_bytes: usize,
) -> Code {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Needs::Context, |driver| {
        let resident = occupancy(driver, function, threads, shared_bytes)?;
        unsafe { put(blocks, resident) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: Handle,
    threads: c_int,
    shared_bytes: usize,
    _flags: c_uint,
) -> Code {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", Needs::Context, |driver| {
        let resident = occupancy(driver, function, threads, shared_bytes)?;
        unsafe { put(blocks, resident) }
    })
}

// Memory

unsafe fn allocate(driver: &mut Driver, place: *mut u64, bytes: usize) -> Done {
    if bytes == 0 {
        return Err(errors::INVALID_VALUE.into());
    }
    let free = driver.scenario().memory.free_bytes.saturating_sub(driver.device.memory.allocated());
    if rounded(bytes) > free {
        return Err(errors::OUT_OF_MEMORY.into());
    }
    let address = driver.device.memory.allocate(bytes as u64).ok_or(errors::OUT_OF_MEMORY)?;
    unsafe { put(place, address) }
}

fn free(driver: &mut Driver, address: u64) -> Done {
    if address == 0 {
        return Ok(());
    }
    driver.device.memory.free(address).map_err(|_| errors::INVALID_VALUE.into())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(place: *mut u64, bytes: usize) -> Code {
    call("cuMemAlloc_v2", Needs::Context, |driver| unsafe { allocate(driver, place, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(place: *mut u64, bytes: usize, stream: Handle) -> Code {
    call("cuMemAllocAsync", Needs::Context, |driver| {
        driver.stream(stream)?;
        unsafe { allocate(driver, place, bytes) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call("cuMemFree_v2", Needs::Context, |driver| {
        free(driver, address)?;
        driver.wait_all()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> Code {
    call("cuMemFreeAsync", Needs::Context, |driver| {
        driver.stream(stream)?;
        free(driver, address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    call("cuMemGetInfo_v2", Needs::Context, |driver| {
        let memory = &driver.scenario().memory;
        let left = memory.free_bytes.saturating_sub(driver.device.memory.allocated());
        unsafe {
            put(free, left as usize)?;
            put(total, memory.total_bytes as usize)
        }
    })
}

fn host_allocate(driver: &mut Driver, bytes: usize) -> Result<u64, Code> {
    if bytes == 0 {
        return Err(errors::INVALID_VALUE);
    }
    let mut words = Vec::new();
    words.try_reserve_exact(bytes.div_ceil(8)).map_err(|_| errors::OUT_OF_MEMORY)?;
    words.resize(bytes.div_ceil(8), 0_u64);
    let address = words.as_mut_ptr() as u64;
    driver.host.insert(address, words);
    Ok(address)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(place: *mut u64, bytes: usize, _flags: c_uint) -> Code {
    call("cuMemHostAlloc", Needs::Context, |driver| {
        let address = host_allocate(driver, bytes)?;
        unsafe { put(place, address) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(place: *mut u64, bytes: usize) -> Code {
    call("cuMemAllocHost_v2", Needs::Context, |driver| {
        let address = host_allocate(driver, bytes)?;
        unsafe { put(place, address) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: u64) -> Code {
    call("cuMemFreeHost", Needs::Context, |driver| {
        driver.host.remove(&address).map(|_| ()).ok_or_else(|| errors::INVALID_VALUE.into())
    })
}

/// In a stream, or in the default one and waited for.
unsafe fn to_device(
    driver: &mut Driver,
    stream: Option<Handle>,
    to: u64,
    from: *const c_void,
    bytes: usize,
) -> Done {
    if bytes == 0 {
        return Ok(());
    }
    if from.is_null() {
        return Err(errors::INVALID_VALUE.into());
    }
    // SAFETY: the caller's bytes by the function's contract, and not device memory.
    let content = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    let pinned = driver.pinned(from as u64, bytes as u64).is_some();
    driver.upload(stream.unwrap_or(0), to, content, stream.is_none(), pinned)
}

unsafe fn to_host(
    driver: &mut Driver,
    stream: Option<Handle>,
    to: *mut c_void,
    from: u64,
    bytes: usize,
) -> Done {
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(errors::INVALID_VALUE.into());
    }
    // SAFETY: the caller's bytes by the function's contract.
    unsafe { driver.download(stream.unwrap_or(0), to.cast(), from, bytes as u64, stream.is_none()) }
}

/// A copy that the host takes part in cannot be kept for a graph: its host memory may be gone by then.
fn outside_capture(driver: &mut Driver, stream: Handle) -> Done {
    match driver.stream(stream)?.capture {
        None => Ok(()),
        Some(_) => {
            driver.spoil(stream);
            Err(errors::STREAM_CAPTURE_UNSUPPORTED.into())
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> Code {
    call("cuMemcpyHtoD_v2", Needs::Context, |driver| unsafe { to_device(driver, None, to, from, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Code {
    call("cuMemcpyHtoDAsync_v2", Needs::Context, |driver| {
        outside_capture(driver, stream)?;
        unsafe { to_device(driver, Some(stream), to, from, bytes) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Code {
    call("cuMemcpyDtoH_v2", Needs::Context, |driver| unsafe { to_host(driver, None, to, from, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> Code {
    call("cuMemcpyDtoHAsync_v2", Needs::Context, |driver| {
        outside_capture(driver, stream)?;
        match unsafe { to_host(driver, Some(stream), to, from, bytes) } {
            Err(Answer::At(_)) if driver.clock.is_none() => Ok(()),
            done => done,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Code {
    call("cuMemcpyDtoD_v2", Needs::Context, |driver| {
        driver.submit(0, Node::Copy { to, from, bytes: bytes as u64 })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
    call("cuMemcpyDtoDAsync_v2", Needs::Context, |driver| {
        driver.submit(stream, Node::Copy { to, from, bytes: bytes as u64 })
    })
}

fn fill(address: u64, pattern: &[u8], count: usize) -> Node {
    Node::Fill { address, pattern: pattern.to_vec(), count: count as u64 }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(address: u64, value: u8, count: usize) -> Code {
    call("cuMemsetD8_v2", Needs::Context, |driver| driver.submit(0, fill(address, &[value], count)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle) -> Code {
    call("cuMemsetD8Async", Needs::Context, |driver| driver.submit(stream, fill(address, &[value], count)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(address: u64, value: c_uint, count: usize) -> Code {
    call("cuMemsetD32_v2", Needs::Context, |driver| {
        driver.submit(0, fill(address, &value.to_le_bytes(), count))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, stream: Handle) -> Code {
    call("cuMemsetD32Async", Needs::Context, |driver| {
        driver.submit(stream, fill(address, &value.to_le_bytes(), count))
    })
}

// Streams

/// The flag of a stream that the default one does not wait for.
const NON_BLOCKING: c_uint = 1;

unsafe fn new_stream(driver: &mut Driver, place: *mut Handle, flags: c_uint) -> Done {
    if flags > NON_BLOCKING {
        return Err(errors::INVALID_VALUE.into());
    }
    let handle = driver.handle();
    let blocking = flags != NON_BLOCKING;
    driver.streams.insert(handle, Stream { blocking, ..Stream::default() });
    unsafe { put(place, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(place: *mut Handle, flags: c_uint) -> Code {
    call("cuStreamCreate", Needs::Context, |driver| unsafe { new_stream(driver, place, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(place: *mut Handle, flags: c_uint, _priority: c_int) -> Code {
    call("cuStreamCreateWithPriority", Needs::Context, |driver| unsafe { new_stream(driver, place, flags) })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Code {
    call("cuStreamDestroy_v2", Needs::Context, |driver| {
        driver.streams.remove(&stream).map(|_| ()).ok_or_else(|| errors::INVALID_HANDLE.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    call("cuStreamSynchronize", Needs::Context, |driver| {
        outside_capture(driver, stream)?;
        driver.wait_for(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> Code {
    call("cuStreamQuery", Needs::Context, |driver| {
        outside_capture(driver, stream)?;
        driver.query(driver.stamp_of(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Code {
    call("cuStreamWaitEvent", Needs::Context, |driver| {
        let known = *driver.events.get(&event).ok_or(errors::INVALID_HANDLE)?;
        let waiting = driver.stream(stream)?;
        waiting.ready_s = waiting.ready_s.max(known.stamp.map_or(0.0, |stamp| stamp.device_s));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) -> Code {
    call("cuStreamBeginCapture_v2", Needs::Context, |driver| {
        // The default streams cannot be captured.
        if stream <= 2 {
            return Err(errors::STREAM_CAPTURE_UNSUPPORTED.into());
        }
        let stream = driver.stream(stream)?;
        if stream.capture.is_some() {
            return Err(errors::ILLEGAL_STATE.into());
        }
        let thread = std::thread::current().id();
        stream.capture = Some(Capture { nodes: Vec::new(), mode, thread, invalid: false });
        Ok(())
    })
}

/// The mode of a capture that any thread may end.
const RELAXED: c_uint = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> Code {
    call("cuStreamEndCapture", Needs::Context, |driver| {
        let strict = driver.clock.is_some();
        let captures = &mut driver.stream(stream)?.capture;
        let own = std::thread::current().id();
        if strict && captures.as_ref().is_some_and(|it| it.mode != RELAXED && it.thread != own) {
            return Err(errors::STREAM_CAPTURE_WRONG_THREAD.into());
        }
        let Capture { nodes, invalid, .. } = captures.take().ok_or(errors::ILLEGAL_STATE)?;
        if invalid && strict {
            unsafe { put(graph, 0) }?;
            return Err(errors::STREAM_CAPTURE_INVALIDATED.into());
        }
        let handle = driver.handle();
        driver.graphs.insert(handle, nodes);
        unsafe { put(graph, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: *mut c_uint) -> Code {
    call("cuStreamIsCapturing", Needs::Context, |driver| {
        let capture = driver.stream(stream)?.capture.as_ref();
        let state = capture.map_or(0, |it| if it.invalid { 2 } else { 1 });
        unsafe { put(status, state) }
    })
}

// Graphs

unsafe fn instantiate(driver: &mut Driver, place: *mut Handle, graph: Handle) -> Done {
    let nodes = driver.graphs.get(&graph).cloned().ok_or(errors::INVALID_HANDLE)?;
    driver.instantiate(&nodes);
    let handle = driver.handle();
    driver.executables.insert(handle, nodes);
    unsafe { put(place, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiate(
    place: *mut Handle,
    graph: Handle,
    _node: *mut Handle,
    _log: *mut c_char,
    _size: usize,
) -> Code {
    call("cuGraphInstantiate", Needs::Context, |driver| unsafe { instantiate(driver, place, graph) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiate_v2(
    place: *mut Handle,
    graph: Handle,
    _node: *mut Handle,
    _log: *mut c_char,
    _size: usize,
) -> Code {
    call("cuGraphInstantiate_v2", Needs::Context, |driver| unsafe { instantiate(driver, place, graph) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    place: *mut Handle,
    graph: Handle,
    _flags: c_ulonglong,
) -> Code {
    call("cuGraphInstantiateWithFlags", Needs::Context, |driver| unsafe { instantiate(driver, place, graph) })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: Handle, stream: Handle) -> Code {
    call("cuGraphUpload", Needs::Context, |driver| {
        driver.stream(stream)?;
        let nodes = driver.executables.get(&executable).ok_or(errors::INVALID_HANDLE)?.len();
        driver.upload_graph(executable, nodes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> Code {
    call("cuGraphLaunch", Needs::Context, |driver| {
        outside_capture(driver, stream)?;
        driver.launch_graph(executable, stream)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> Code {
    call("cuGraphGetNodes", Needs::Context, |driver| {
        let known = driver.graphs.get(&graph).ok_or(errors::INVALID_HANDLE)?.len();
        if count.is_null() {
            return Err(errors::INVALID_VALUE.into());
        }
        if !nodes.is_null() {
            // SAFETY: not null; it says how many places `nodes` has.
            let places = unsafe { count.read() };
            for node in 0..places {
                let handle = if node < known { graph + 1 + node as u64 } else { 0 };
                // SAFETY: within the places.
                unsafe { nodes.add(node).write(handle) };
            }
        }
        unsafe { put(count, known) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> Code {
    call("cuGraphDestroy", Needs::Context, |driver| {
        driver.graphs.remove(&graph).map(|_| ()).ok_or_else(|| errors::INVALID_HANDLE.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: Handle) -> Code {
    call("cuGraphExecDestroy", Needs::Context, |driver| {
        if let Some(clock) = &mut driver.clock {
            clock.warm_graphs.remove(&executable);
        }
        driver.executables.remove(&executable).map(|_| ()).ok_or_else(|| errors::INVALID_HANDLE.into())
    })
}

// Events

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut Handle, flags: c_uint) -> Code {
    call("cuEventCreate", Needs::Context, |driver| {
        let handle = driver.handle();
        // 2 is the flag of an event that takes no time.
        driver.events.insert(handle, Event { untimed: flags & 2 != 0, ..Event::default() });
        unsafe { put(event, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Code {
    call("cuEventRecord", Needs::Context, |driver| driver.record(event, stream, false))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) -> Code {
    // 1 is an event of the graph that a stream captures.
    call("cuEventRecordWithFlags", Needs::Context, |driver| driver.record(event, stream, flags == 1))
}

/// An event's moment; one that was recorded in a capture cannot be asked for.
fn moment(driver: &mut Driver, event: Handle) -> Result<Option<Stamp>, Answer> {
    let known = *driver.events.get(&event).ok_or(errors::INVALID_HANDLE)?;
    if known.captured && driver.clock.is_some() {
        let streams: Vec<Handle> = driver.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| driver.spoil(stream));
        return Err(errors::CAPTURED_EVENT.into());
    }
    Ok(known.stamp)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> Code {
    call("cuEventQuery", Needs::Context, |driver| match moment(driver, event)? {
        None => Ok(()),
        Some(stamp) => driver.query(stamp),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Code {
    call("cuEventSynchronize", Needs::Context, |driver| match moment(driver, event)? {
        None => Ok(()),
        Some(stamp) => driver.wait(stamp),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> Code {
    call("cuEventElapsedTime", Needs::Context, |driver| {
        let stamp = |event| match driver.events.get(&event) {
            Some(Event { stamp: Some(stamp), untimed: false, .. }) => Ok(*stamp),
            _ => Err(errors::INVALID_HANDLE),
        };
        let (start, end) = (stamp(start)?, stamp(end)?);
        let mut seconds = end.device_s - start.device_s;
        if let Some(clock) = &driver.clock {
            if start.device_s.max(end.device_s) > clock.now_s {
                return Err(errors::NOT_READY.into());
            }
            // The resolution that the manual names.
            seconds = (seconds / 0.5e-6).round() * 0.5e-6;
        }
        driver.query(end)?;
        unsafe { put(milliseconds, (seconds * 1e3) as f32) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Code {
    call("cuEventDestroy_v2", Needs::Context, |driver| {
        driver.events.remove(&event).map(|_| ()).ok_or_else(|| errors::INVALID_HANDLE.into())
    })
}

// Launches

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    call("cuLaunchKernel", Needs::Context, |driver| {
        let found = driver.functions.get(&function).cloned().ok_or(errors::INVALID_HANDLE)?;
        let module = driver.modules.get(&found.module).cloned().ok_or(errors::INVALID_HANDLE)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let fits = |sizes: [c_uint; 3], most: [c_uint; 3]| {
            sizes.iter().zip(most).all(|(&size, most)| size >= 1 && size <= most)
        };
        let threads: u64 = block.iter().map(|&size| u64::from(size)).product();
        if !fits(grid, [i32::MAX as c_uint, 65535, 65535])
            || !fits(block, [1024, 1024, 64])
            || threads > 1024
            || i64::from(shared_bytes) > i64::from(found.dynamic_shared)
        {
            return Err(errors::INVALID_VALUE.into());
        }
        if !extra.is_null() {
            return Err(errors::NOT_SUPPORTED.into());
        }
        let entry = module.entry(&found.entry).ok_or(errors::NOT_FOUND)?;
        let mut values = Vec::new();
        for (index, param) in entry.params().iter().enumerate() {
            if params.is_null() {
                return Err(errors::INVALID_VALUE.into());
            }
            // SAFETY: as many pointers as the entry has parameters, each to that parameter's bytes.
            let value = unsafe {
                let place = params.add(index).read().cast::<u8>();
                if place.is_null() {
                    return Err(errors::INVALID_VALUE.into());
                }
                std::slice::from_raw_parts(place, param.bytes).to_vec()
            };
            values.push(value);
        }
        let key = Key { module: found.module, entry: found.entry, grid, block, shared_bytes, params: values };
        driver.submit(stream, Node::Kernel { module, key })
    })
}
