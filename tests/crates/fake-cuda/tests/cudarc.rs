//! cudarc, unchanged, on the fake driver.
//!
//! The loader reads `LD_LIBRARY_PATH` once, so each test runs its body in a child that is this program again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::env;
use std::ffi::{CString, c_void};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::sys::CUresult::{self, *};
use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};
use fake_cuda::activity::{Activity, boottime_ns};
use fake_cuda::{Corrupt, Fail, Fault, FaultKind, Hang, Host, Scenario, Tenant, Throttle, When};

/// y[i] = factor * x[i], for i < n; and a kernel of one long chain.
const KERNELS: &str = "
.version 7.0
.target sm_80
.address_size 64

.visible .entry scale(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 factor)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r5, [n];
    ld.param.u32 %r7, [factor];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra $DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r4, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.u32 %r6, [%rd6];
    mul.lo.s32 %r8, %r6, %r7;
    st.global.u32 [%rd7], %r8;
$DONE:
    ret;
}

.visible .entry chain(.param .u32 steps)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [steps];
$LOOP:
    add.s32 %r1, %r1, -1;
    setp.ne.s32 %p1, %r1, 0;
    @%p1 bra $LOOP;
    ret;
}

.visible .entry strange()
{
    .reg .b32 %r<2>;
    frobnicate.b32 %r1;
    ret;
}
";

/// Starts this program again for one test, with the scenario.
fn start(test: &str, scenario: &Scenario) -> (tempfile::TempDir, Child) {
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(fake_cuda::install(dir.path(), scenario))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (dir, child)
}

fn is_child() -> bool {
    env::var_os("ROOFLINED_FAKE_GPU").is_some()
}

/// True in the child; in the parent, which starts it with the scenario, false once it has ended well.
fn inside(test: &str, scenario: &Scenario) -> bool {
    if is_child() {
        return true;
    }
    let (_dir, child) = start(test, scenario);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn context() -> CUcontext {
    result::init().unwrap();
    let device = result::device::get(0).unwrap();
    unsafe {
        let context = result::primary_ctx::retain(device).unwrap();
        result::ctx::set_current(context).unwrap();
        context
    }
}

fn load(text: &str) -> Result<CUmodule, DriverError> {
    let text = CString::new(text).unwrap();
    unsafe { result::module::load_data(text.as_ptr().cast()) }
}

fn function(module: CUmodule, name: &str) -> CUfunction {
    unsafe { result::module::get_function(module, CString::new(name).unwrap()) }.unwrap()
}

fn upload(words: &[u32]) -> CUdeviceptr {
    unsafe {
        let place = result::malloc_sync(size_of_val(words)).unwrap();
        result::memcpy_htod_sync(place, words).unwrap();
        place
    }
}

fn download(place: CUdeviceptr, count: usize) -> Result<Vec<u32>, DriverError> {
    let mut words = vec![0; count];
    unsafe { result::memcpy_dtoh_sync(&mut words, place) }.map(|()| words)
}

const DEFAULT: CUstream = std::ptr::null_mut();

fn launch(
    kernel: CUfunction,
    blocks: u32,
    threads: u32,
    stream: CUstream,
    params: &mut [*mut c_void],
) -> Result<(), DriverError> {
    unsafe { result::launch_kernel(kernel, (blocks, 1, 1), (threads, 1, 1), 0, stream, params) }
}

/// `scale` over `n` words.
fn scale(
    kernel: CUfunction,
    stream: CUstream,
    x: CUdeviceptr,
    y: CUdeviceptr,
    n: u32,
    factor: u32,
) -> Result<(), DriverError> {
    let (mut x, mut y, mut n, mut factor) = (x, y, n, factor);
    let mut params =
        [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut n).cast(), (&raw mut factor).cast()];
    launch(kernel, n.div_ceil(128), 128, stream, &mut params)
}

fn chain(kernel: CUfunction, steps: u32) {
    let mut steps = steps;
    launch(kernel, 1, 32, DEFAULT, &mut [(&raw mut steps).cast()]).unwrap();
}

fn event() -> CUevent {
    result::event::create(sys::CUevent_flags_enum::CU_EVENT_DEFAULT).unwrap()
}

fn record(event: CUevent) {
    unsafe { result::event::record(event, DEFAULT) }.unwrap();
}

fn wait(event: CUevent) {
    unsafe { result::event::synchronize(event) }.unwrap();
}

fn query(event: CUevent) -> CUresult {
    code(unsafe { result::event::query(event) })
}

/// Simulated seconds of what `work` does.
fn timed(work: impl FnOnce()) -> f64 {
    let (from, to) = (event(), event());
    record(from);
    work();
    record(to);
    wait(to);
    f64::from(unsafe { result::event::elapsed(from, to) }.unwrap()) / 1e3
}

#[allow(clippy::needless_pass_by_value, reason = "what it is called on is made for it")]
fn code<T>(outcome: Result<T, DriverError>) -> CUresult {
    match outcome {
        Ok(_) => CUDA_SUCCESS,
        Err(error) => error.0,
    }
}

fn close(found: f64, expected: f64, ratio: f64) {
    assert!((found / expected - 1.0).abs() <= ratio, "{found:e} instead of {expected:e}");
}

#[test]
fn the_gpu_is_the_scenarios() {
    if !inside("the_gpu_is_the_scenarios", &Scenario::gb10()) {
        return;
    }
    let gpu = cudarc::driver::CudaContext::new(0).unwrap();
    assert_eq!(gpu.name().unwrap(), "NVIDIA GB10");
    assert_eq!(gpu.compute_capability().unwrap(), (12, 1));
    assert_eq!(gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap(), 48);
    assert_eq!(gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED).unwrap(), 1);
    assert_eq!(gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).unwrap(), 24 << 20);
    assert_eq!(gpu.total_mem().unwrap(), 119 << 30);
    assert_eq!(gpu.mem_get_info().unwrap(), (100 << 30, 119 << 30));
    assert_ne!(gpu.uuid().unwrap().bytes, [0; 16]);
    let mut version = 0;
    assert_eq!(unsafe { sys::cuDriverGetVersion(&raw mut version) }, CUDA_SUCCESS);
    assert_eq!(version, 13000);
    gpu.synchronize().unwrap();
    assert_eq!(code(result::device::get(1)), CUDA_ERROR_INVALID_DEVICE);
}

#[test]
fn nothing_works_before_the_start_or_without_a_context() {
    if !inside("nothing_works_before_the_start_or_without_a_context", &Scenario::toy()) {
        return;
    }
    assert_eq!(code(result::device::get_count()), CUDA_ERROR_NOT_INITIALIZED);
    result::init().unwrap();
    assert_eq!(result::device::get_count().unwrap(), 1);
    assert_eq!(code(unsafe { result::malloc_sync(16) }), CUDA_ERROR_INVALID_CONTEXT);
    context();
    assert_eq!(code(unsafe { result::malloc_sync(16) }), CUDA_SUCCESS);
    // A context is current in one thread alone.
    let other = std::thread::spawn(|| code(unsafe { result::malloc_sync(16) }));
    assert_eq!(other.join().unwrap(), CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    if !inside("a_machine_without_a_gpu_says_so", &Scenario { no_device: true, ..Scenario::toy() }) {
        return;
    }
    let error = result::init().unwrap_err();
    assert_eq!(error.0, CUDA_ERROR_NO_DEVICE);
    assert_eq!(error.error_name().unwrap().to_str(), Ok("CUDA_ERROR_NO_DEVICE"));
    assert_eq!(error.error_string().unwrap().to_str(), Ok("no device"));
}

#[test]
fn memory_has_bounds_and_an_end() {
    if !inside("memory_has_bounds_and_an_end", &Scenario::toy()) {
        return;
    }
    context();
    let place = upload(&[1, 2, 3, 4]);
    assert_eq!(place % 256, 0);
    assert_eq!(download(place, 4).unwrap(), [1, 2, 3, 4]);
    assert_eq!(download(place + 8, 2).unwrap(), [3, 4]);
    assert_eq!(code(download(place, 5)), CUDA_ERROR_INVALID_VALUE);
    unsafe {
        result::memset_d8_sync(place + 4, 0xff, 8).unwrap();
        assert_eq!(download(place, 4).unwrap(), [1, u32::MAX, u32::MAX, 4]);
        assert_eq!(sys::cuMemsetD32_v2(place, 7, 2), CUDA_SUCCESS);
        let copy = result::malloc_sync(16).unwrap();
        result::memcpy_dtod_sync(copy, place, 16).unwrap();
        assert_eq!(download(copy, 4).unwrap(), [7, 7, u32::MAX, 4]);
        result::free_sync(place).unwrap();
        assert_eq!(code(result::free_sync(place)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code(download(place, 1)), CUDA_ERROR_INVALID_VALUE);

        let (free, total) = result::mem_get_info().unwrap();
        assert_eq!((free, total), ((192 << 20) - 512, 256 << 20));
        assert_eq!(code(result::malloc_sync(free + 1)), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(code(result::malloc_sync(0)), CUDA_ERROR_INVALID_VALUE);
        let rest = result::malloc_sync(free).unwrap();
        assert_eq!(result::mem_get_info().unwrap().0, 0);
        assert_eq!(code(result::malloc_sync(1)), CUDA_ERROR_OUT_OF_MEMORY);
        result::free_sync(rest).unwrap();
        assert_eq!(code(result::malloc_sync(1)), CUDA_SUCCESS);
    }
}

#[test]
fn a_module_must_suit_driver_and_gpu() {
    if !inside("a_module_must_suit_driver_and_gpu", &Scenario::toy()) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let scale = function(module, "scale");
    assert_eq!(scale, function(module, "scale"));
    let missing = unsafe { result::module::get_function(module, CString::new("no").unwrap()) };
    assert_eq!(code(missing), CUDA_ERROR_NOT_FOUND);
    let with = |version: &str, target: &str| {
        load(&KERNELS.replace("7.0", version).replace("sm_80", target))
            .map_or_else(|error| error.0, |_| CUDA_SUCCESS)
    };
    assert_eq!(with("8.5", "sm_87"), CUDA_SUCCESS);
    assert_eq!(with("8.6", "sm_87"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert_eq!(with("8.4", "sm_89"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(with("8.0", "sm_90a"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(code(load(&KERNELS.replace(".entry scale", ".entry"))), CUDA_ERROR_INVALID_PTX);
    assert_eq!(code(load("\x7fELF")), CUDA_ERROR_INVALID_IMAGE);
    unsafe { result::module::unload(module) }.unwrap();
    assert_eq!(code(launch(scale, 1, 1, DEFAULT, &mut [])), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn calls_fail_as_told_and_go_well_again() {
    let mut failing = Scenario::toy();
    failing.fail.push(Fail { call: "cuMemAlloc_v2".into(), code: 2, after: 1, times: Some(1) });
    failing.fail.push(Fail { call: "cuCtxSynchronize".into(), code: 719, after: 0, times: Some(1) });
    if !inside("calls_fail_as_told_and_go_well_again", &failing) {
        return;
    }
    context();
    let codes: Vec<_> = (0..3).map(|_| code(unsafe { result::malloc_sync(16) })).collect();
    assert_eq!(codes, [CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS]);
    // A failed launch spoils the context for good.
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(code(unsafe { result::malloc_sync(16) }), CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn every_code_has_a_name() {
    if !inside("every_code_has_a_name", &Scenario::toy()) {
        return;
    }
    for error in
        [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_TIMEOUT, CUDA_ERROR_UNKNOWN]
    {
        let error = DriverError(error);
        assert_eq!(error.error_name().unwrap().to_str().unwrap(), format!("{:?}", error.0));
        assert!(!error.error_string().unwrap().is_empty());
    }
}

#[test]
fn a_call_that_hangs_is_left_to_itself() {
    let mut hanging = Scenario::toy();
    hanging.hang.push(Hang { call: "cuMemAlloc_v2".into(), after: 1 });
    if is_child() {
        context();
        unsafe { result::malloc_sync(16) }.unwrap();
        // Others go on.
        let other = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            result::device::get_count().unwrap();
            println!("others go on");
        });
        let _ = unsafe { result::malloc_sync(16) };
        other.join().unwrap();
        println!("it returned");
        return;
    }
    let (_dir, mut child) = start("a_call_that_hangs_is_left_to_itself", &hanging);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("others go on") && !said.contains("it returned"), "{said}");
}

#[test]
fn launches_without_interpretation_cost_their_overhead() {
    let mut empty = Scenario { execute: false, ..Scenario::toy() };
    empty.launch.stream_s = 4e-6;
    empty.launch.graph_s = 1e-6;
    if !inside("launches_without_interpretation_cost_their_overhead", &empty) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    close(timed(|| (0..100).for_each(|_| chain(kernel, 5))), 100.0 * 4e-6, 1e-4);

    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    let mut steps = 5;
    unsafe {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        result::stream::begin_capture(stream, mode).unwrap();
        let captured = timed(|| {
            for _ in 0..20 {
                launch(kernel, 1, 32, stream, &mut [(&raw mut steps).cast()]).unwrap();
            }
        });
        assert!(captured < 1e-9, "{captured}");
        assert_eq!(code(result::stream::synchronize(stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let graph = result::stream::end_capture(stream).unwrap();
        let (mut nodes, flags) = (0, sys::CUgraphInstantiate_flags_enum(0));
        assert_eq!(sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut nodes), CUDA_SUCCESS);
        assert_eq!(nodes, 20);
        let executable = result::graph::instantiate(graph, flags).unwrap();
        close(timed(|| result::graph::launch(executable, stream).unwrap()), 4e-6 + 20.0 * 1e-6, 1e-4);
        result::graph::exec_destroy(executable).unwrap();
        result::graph::destroy(graph).unwrap();
        assert_eq!(code(result::graph::destroy(graph)), CUDA_ERROR_INVALID_HANDLE);
        result::stream::destroy(stream).unwrap();
    }
}

#[test]
fn a_launch_is_checked() {
    if !inside("a_launch_is_checked", &Scenario::toy()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    let mut steps = 1_u32;
    let mut params = [(&raw mut steps).cast()];
    for (blocks, threads) in [(0, 32), (1, 0), (1, 1025)] {
        assert_eq!(code(launch(kernel, blocks, threads, DEFAULT, &mut params)), CUDA_ERROR_INVALID_VALUE);
    }
    let shared =
        unsafe { result::launch_kernel(kernel, (1, 1, 1), (32, 1, 1), 50 << 10, DEFAULT, &mut params) };
    assert_eq!(code(shared), CUDA_ERROR_INVALID_VALUE);
    let mut blocks = 0;
    unsafe { sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, kernel, 256, 0) }
        .result()
        .unwrap();
    assert_eq!(blocks, 6);
}

#[test]
fn kernels_compute() {
    if !inside("kernels_compute", &Scenario::toy()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "scale");
    let x = upload(&(0..1000).collect::<Vec<_>>());
    let y = upload(&[7; 1001]);
    scale(kernel, DEFAULT, x, y, 1000, 3).unwrap();
    let expected: Vec<u32> = (0..1000).map(|i| 3 * i).chain([7]).collect();
    assert_eq!(download(y, 1001).unwrap(), expected);
}

#[test]
fn a_stray_access_spoils_the_context() {
    if !inside("a_stray_access_spoils_the_context", &Scenario::toy()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "scale");
    let (x, y) = (upload(&[1; 64]), upload(&[0; 63]));
    // The launch itself cannot know.
    scale(kernel, DEFAULT, x, y, 64, 3).unwrap();
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(code(download(x, 1)), CUDA_ERROR_ILLEGAL_ADDRESS);
    let faults = std::path::PathBuf::from(env::var("ROOFLINED_FAKE_GPU").unwrap()).with_extension("faults");
    let faults = std::fs::read_to_string(faults).unwrap();
    assert!(faults.contains("scale") && faults.contains("st.global.u32"), "{faults}");
    unsafe { result::primary_ctx::release(0) }.unwrap();
    context();
    assert_eq!(download(x, 1).unwrap(), [1]);
}

#[test]
fn a_misaligned_access_and_an_unknown_instruction_have_codes() {
    if !inside("a_misaligned_access_and_an_unknown_instruction_have_codes", &Scenario::toy()) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let strange = launch(function(module, "strange"), 1, 1, DEFAULT, &mut []);
    assert_eq!(code(strange), CUDA_ERROR_NOT_SUPPORTED);
    let (x, y) = (upload(&[1; 64]), upload(&[0; 65]));
    scale(function(module, "scale"), DEFAULT, x, y + 2, 64, 3).unwrap();
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_MISALIGNED_ADDRESS);
}

#[test]
fn an_endless_kernel_times_out() {
    let short = Scenario { instruction_limit: 1000, ..Scenario::toy() };
    if !inside("an_endless_kernel_times_out", &short) {
        return;
    }
    context();
    chain(function(load(KERNELS).unwrap(), "chain"), 1_000_000);
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_LAUNCH_TIMEOUT);
}

#[test]
fn time_is_the_slowest_resource() {
    if !inside("time_is_the_slowest_resource", &Scenario::toy()) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let (kernel, long) = (function(module, "scale"), function(module, "chain"));
    let n = 1_u32 << 18;
    let (x, y) = (upload(&vec![1; n as usize]), upload(&vec![0; n as usize]));
    // From DRAM: 2 MiB at 0.5 GB/s. Warm, because 1 MiB does not stay in 64 KiB.
    for _ in 0..3 {
        close(timed(|| scale(kernel, DEFAULT, x, y, n, 3).unwrap()), 5e-6 + f64::from(8 * n) / 0.5e9, 0.01);
    }
    // From L2: 32 KiB at two times 64 bytes a clock of 20 MHz, unless issue takes longer: 128 warps of about 20
    // instructions at two times 4 a clock.
    let small = 4096;
    scale(kernel, DEFAULT, x, y, small, 3).unwrap();
    let l2 = timed(|| scale(kernel, DEFAULT, x, y, small, 3).unwrap()) - 5e-6;
    assert!((12.8e-6..20e-6).contains(&l2), "{l2}");
    // One warp: three instructions a step at 20 MHz.
    close(timed(|| chain(long, 100_000)), 3e5 / 20e6, 0.001);
}

#[test]
fn repetitions_are_not_run_again_and_still_count() {
    if !inside("repetitions_are_not_run_again_and_still_count", &Scenario::toy()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    let start = Instant::now();
    chain(kernel, 300_000);
    let once = start.elapsed();
    let start = Instant::now();
    close(timed(|| (0..500).for_each(|_| chain(kernel, 300_000))), 500.0 * 9e5 / 20e6, 0.01);
    let often = start.elapsed();
    assert!(often < 50 * once, "{once:?} once, {often:?} for 500");
}

#[test]
fn memory_holds_what_the_last_launch_wrote() {
    if !inside("memory_holds_what_the_last_launch_wrote", &Scenario::toy()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "scale");
    let (a, b) = (upload(&[1; 64]), upload(&[2; 64]));
    let (x, y) = (upload(&[0; 64]), upload(&[0; 64]));
    let first = |place| download(place, 64).unwrap()[0];
    let run = |from, to, n, factor| scale(kernel, DEFAULT, from, to, n, factor).unwrap();
    // Two inputs take turns on one output.
    for _ in 0..3 {
        run(a, x, 64, 3);
        run(b, x, 64, 3);
    }
    assert_eq!(first(x), 6);
    run(a, x, 64, 3);
    assert_eq!(first(x), 3);
    // A chain of two launches, its input changed behind it.
    for _ in 0..3 {
        run(a, x, 64, 3);
        run(b, x, 64, 3);
        run(x, y, 64, 10);
    }
    assert_eq!((first(x), first(y)), (6, 60));
    run(a, x, 64, 3);
    run(x, y, 64, 10);
    assert_eq!(first(y), 30);
    run(b, x, 64, 3);
    unsafe { result::memcpy_htod_sync(b, &[5_u32; 64]) }.unwrap();
    assert_eq!((first(x), first(y)), (6, 30));
    run(b, x, 64, 3);
    assert_eq!(first(x), 15);
    // In place: each launch works on what the one before left.
    for _ in 0..4 {
        run(a, a, 64, 2);
    }
    assert_eq!(first(a), 16);
    // Different parts of one output.
    for _ in 0..2 {
        run(a, y, 64, 1);
        run(b, y, 32, 1);
    }
    assert_eq!([download(y, 64).unwrap()[31], download(y, 64).unwrap()[32]], [5, 16]);
    for factor in [2, 1] {
        run(a, y, 64, factor);
        run(b, y, 32, 1);
    }
    assert_eq!([download(y, 64).unwrap()[31], download(y, 64).unwrap()[32]], [5, 16]);
    // Poison between two launches that are the same.
    run(a, y, 64, 1);
    unsafe { result::memset_d8_sync(y, 0xee, 4) }.unwrap();
    assert_eq!(first(y), 0xeeee_eeee);
    run(a, y, 64, 1);
    assert_eq!(first(y), 16);
    // An input freed behind a launch that was passed over.
    run(a, x, 64, 2);
    run(b, x, 64, 2);
    run(a, x, 64, 2);
    unsafe { result::free_sync(a) }.unwrap();
    assert_eq!(first(x), 32);
}

#[test]
fn a_wrong_kernel_is_wrong_every_time() {
    let wrong = Scenario { corrupt: vec![Corrupt { entry: "scale".into(), words: 2 }], ..Scenario::toy() };
    if !inside("a_wrong_kernel_is_wrong_every_time", &wrong) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "scale");
    let (x, y) = (upload(&[1; 64]), upload(&[0; 64]));
    for _ in 0..2 {
        scale(kernel, DEFAULT, x, y, 64, 3).unwrap();
        let wrong = download(y, 64).unwrap().iter().filter(|&&word| word != 3).count();
        assert_eq!(wrong, 2);
    }
}

#[test]
fn the_clock_rises_falls_and_trembles() {
    let mut moody = Scenario::toy();
    moody.clock.idle_hz = 5e6;
    moody.clock.ramp_s = 0.5;
    moody.clock.throttle = Some(Throttle { after_launches: Some(100), after_s: None, factor: 0.5 });
    moody.clock.noise = 0.01;
    if !inside("the_clock_rises_falls_and_trembles", &moody) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    let hz: Vec<f64> = (0..120).map(|_| 3e5 / timed(|| chain(kernel, 100_000))).collect();
    close(hz[0], 5e6, 0.06);
    close(hz[90], 20e6, 0.06);
    close(hz[110], 10e6, 0.06);
    let mean = hz[50..100].iter().sum::<f64>() / 50.0;
    close(mean, 20e6, 0.01);
    let deviation = (hz[50..100].iter().map(|hz| (hz / mean - 1.0).powi(2)).sum::<f64>() / 50.0).sqrt();
    assert!((0.006..0.015).contains(&deviation), "{deviation}");
    let path = env::var("ROOFLINED_FAKE_GPU").unwrap();
    let activity = Activity::read(path.as_ref()).unwrap();
    assert!(activity.throttled && activity.busy_until_ns > boottime_ns());
    close(activity.sm_hz, 10e6, 1e-6);
}

#[test]
fn a_liar_is_faster_than_its_memory() {
    if !inside("a_liar_is_faster_than_its_memory", &Scenario { lie_fast: 4.0, ..Scenario::toy() }) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "scale");
    let n = 1_u32 << 18;
    let (x, y) = (upload(&vec![1; n as usize]), upload(&vec![0; n as usize]));
    close(timed(|| scale(kernel, DEFAULT, x, y, n, 3).unwrap()), f64::from(8 * n) / 2e9, 0.01);
}

#[test]
fn with_a_pace_work_takes_time_outside() {
    if !inside("with_a_pace_work_takes_time_outside", &Scenario { pace: 30.0, ..Scenario::toy() }) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    chain(kernel, 100_000);
    result::ctx::synchronize().unwrap();
    let done = event();
    let start = Instant::now();
    chain(kernel, 100_000);
    record(done);
    assert_eq!(query(done), CUDA_ERROR_NOT_READY);
    wait(done);
    assert_eq!(query(done), CUDA_SUCCESS);
    let taken = start.elapsed().as_secs_f64();
    assert!((0.449..30.0).contains(&taken), "{taken}");
}

#[test]
fn a_kernel_that_hangs_is_never_ready() {
    let mut hanging = Scenario::toy();
    hanging.hang.push(Hang { call: "cuEventQuery".into(), after: 2 });
    if is_child() {
        context();
        let kernel = function(load(KERNELS).unwrap(), "chain");
        let events: Vec<_> = (0..3)
            .map(|_| {
                chain(kernel, 10);
                let event = event();
                record(event);
                query(event)
            })
            .collect();
        assert_eq!(events, [CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_NOT_READY]);
        println!("not ready");
        result::ctx::synchronize().unwrap();
        println!("it returned");
        return;
    }
    let (_dir, mut child) = start("a_kernel_that_hangs_is_never_ready", &hanging);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("not ready") && !said.contains("it returned"), "{said}");
}

#[test]
fn a_kernel_ends_as_its_fault_says_and_the_others_as_ever() {
    let mut faulty = Scenario::toy();
    faulty.fault.push(Fault { code: Some(715), after: 1, ..Fault::new("scale", FaultKind::Fault) });
    if !inside("a_kernel_ends_as_its_fault_says_and_the_others_as_ever", &faulty) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let (kernel, other) = (function(module, "scale"), function(module, "chain"));
    let (x, y) = (upload(&[1; 64]), upload(&[0; 64]));
    scale(kernel, DEFAULT, x, y, 64, 3).unwrap();
    chain(other, 10);
    result::ctx::synchronize().unwrap();
    // The launch returns success; whatever comes next tells.
    scale(kernel, DEFAULT, x, y, 64, 5).unwrap();
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_ILLEGAL_INSTRUCTION);
    assert_eq!(code(download(y, 1)), CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

#[test]
fn a_kernel_that_hangs_by_name_is_never_ready_and_the_others_are() {
    let mut faulty = Scenario { execute: false, ..Scenario::toy() };
    faulty.fault.push(Fault::new("sca*", FaultKind::Hang));
    if !inside("a_kernel_that_hangs_by_name_is_never_ready_and_the_others_are", &faulty) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let done = event();
    chain(function(module, "chain"), 10);
    record(done);
    assert_eq!(query(done), CUDA_SUCCESS);
    scale(function(module, "scale"), DEFAULT, 0, 0, 64, 3).unwrap();
    let later = event();
    record(later);
    assert_eq!((query(done), query(later)), (CUDA_SUCCESS, CUDA_ERROR_NOT_READY));
    assert_eq!(code(unsafe { result::malloc_sync(16) }), CUDA_SUCCESS);
}

#[test]
fn a_device_that_is_gone_is_gone_for_every_process() {
    let mut faulty = Scenario { execute: false, ..Scenario::toy() };
    faulty.fault.push(Fault::new("chain", FaultKind::Gone));
    if !inside("a_device_that_is_gone_is_gone_for_every_process", &faulty) {
        return;
    }
    context();
    chain(function(load(KERNELS).unwrap(), "chain"), 10);
    assert_eq!(code(result::ctx::synchronize()), CUDA_ERROR_UNKNOWN);
    assert_eq!(code(unsafe { result::primary_ctx::release(0) }), CUDA_ERROR_UNKNOWN);
    assert_eq!(code(result::init()), CUDA_ERROR_NO_DEVICE);
    let mark = std::path::PathBuf::from(env::var("ROOFLINED_FAKE_GPU").unwrap()).with_extension("lost");
    assert!(mark.exists());
}

/// The toy with a CPU that pays for its calls.
fn hosted() -> Scenario {
    let host = Host { launch_s: 20e-6, latency_s: 0.0, call_s: 0.0, ..Host::default() };
    Scenario { host: Some(host), ..Scenario::toy() }
}

#[test]
fn a_late_cpu_leaves_a_gap_that_earlier_work_hides() {
    let mut scenario = hosted();
    scenario.cold.function_s = [300e-6, 300e-6];
    scenario.cold.graph_s = [300e-6, 300e-6];
    if !inside("a_late_cpu_leaves_a_gap_that_earlier_work_hides", &scenario) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    // 3 instructions of 20 MHz for each step: 1.5 ms, and 5 µs of the device for the launch.
    let work = 1.5e-3 + 5e-6;
    close(timed(|| chain(kernel, 10_000)), 320e-6 + work, 0.002);
    close(timed(|| chain(kernel, 10_000)), 20e-6 + work, 0.002);
    chain(kernel, 10_000);
    close(timed(|| chain(kernel, 10_000)), work, 0.002);
    // Each submission costs the CPU 20 µs: short kernels are as slow as that.
    close(timed(|| (0..100).for_each(|_| chain(kernel, 10))), 100.0 * 20e-6, 0.05);
    // The resolution of events.
    let microseconds = timed(|| chain(kernel, 10)) * 1e6;
    assert!((microseconds * 2.0 - (microseconds * 2.0).round()).abs() < 1e-2, "{microseconds}");
}

#[test]
fn a_query_answers_by_the_clock_that_calls_move() {
    if !inside("a_query_answers_by_the_clock_that_calls_move", &hosted()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    let (from, to) = (event(), event());
    chain(kernel, 10_000);
    record(from);
    chain(kernel, 10_000);
    record(to);
    assert_eq!(query(from), CUDA_ERROR_NOT_READY);
    let elapsed = || code(unsafe { result::event::elapsed(from, to) });
    assert_eq!(elapsed(), CUDA_ERROR_NOT_READY);
    let polls = (0..1000).take_while(|_| query(to) == CUDA_ERROR_NOT_READY).count();
    assert!((3..50).contains(&polls), "{polls}");
    assert_eq!((query(from), elapsed()), (CUDA_SUCCESS, CUDA_SUCCESS));
}

#[test]
fn what_is_not_ordered_is_seen_too_early() {
    if !inside("what_is_not_ordered_is_seen_too_early", &hosted()) {
        return;
    }
    context();
    let module = load(KERNELS).unwrap();
    let (kernel, long) = (function(module, "scale"), function(module, "chain"));
    let stream = |kind| result::stream::create(kind).unwrap();
    let apart = stream(result::stream::StreamKind::NonBlocking);
    let blocking = stream(result::stream::StreamKind::Default);
    let (x, y) = (upload(&[1; 64]), upload(&[7; 64]));
    result::ctx::synchronize().unwrap();
    let first = |place| download(place, 64).unwrap()[0];
    let fill = |value| assert_eq!(unsafe { sys::cuMemsetD32_v2(x, value, 64) }, CUDA_SUCCESS);
    let ready = |stream| unsafe { result::stream::synchronize(stream) }.unwrap();
    // A fill of the default stream is under way when the call returns, and only blocking streams wait for it.
    fill(2);
    scale(kernel, apart, x, y, 64, 10).unwrap();
    ready(apart);
    assert_eq!(first(y), 10);
    fill(3);
    scale(kernel, blocking, x, y, 64, 10).unwrap();
    assert_eq!(first(y), 30);
    fill(4);
    result::ctx::synchronize().unwrap();
    scale(kernel, apart, x, y, 64, 10).unwrap();
    ready(apart);
    assert_eq!(first(y), 40);
    // A small upload is staged.
    unsafe { result::memcpy_htod_sync(x, &[5_u32; 64]) }.unwrap();
    scale(kernel, apart, x, y, 64, 10).unwrap();
    ready(apart);
    assert_eq!(first(y), 40);
    // A download waits for the default stream alone; what another one is still writing is torn.
    let mut steps = 10_000_u32;
    launch(long, 1, 32, apart, &mut [(&raw mut steps).cast()]).unwrap();
    scale(kernel, apart, x, y, 64, 10).unwrap();
    assert_ne!(first(y), 50);
    ready(apart);
    assert_eq!(first(y), 50);
}

#[test]
fn a_capture_is_spoiled_by_what_must_not_come_meanwhile() {
    if !inside("a_capture_is_spoiled_by_what_must_not_come_meanwhile", &hosted()) {
        return;
    }
    context();
    let kernel = function(load(KERNELS).unwrap(), "chain");
    let mut steps = 5_u32;
    let mut captured = |blocking, between: &dyn Fn(CUstream)| {
        use result::stream::StreamKind;
        let kind = if blocking { StreamKind::Default } else { StreamKind::NonBlocking };
        let stream = result::stream::create(kind).unwrap();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        unsafe { result::stream::begin_capture(stream, mode) }.unwrap();
        between(stream);
        let launched = code(launch(kernel, 1, 32, stream, &mut [(&raw mut steps).cast()]));
        (launched, code(unsafe { result::stream::end_capture(stream) }))
    };
    let spoiled = (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    let refused = |code: CUresult| assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(captured(false, &|_| ()), (CUDA_SUCCESS, CUDA_SUCCESS));
    assert_eq!(captured(false, &|_| refused(code(unsafe { result::malloc_sync(16) }))), spoiled);
    assert_eq!(captured(false, &|_| refused(code(result::ctx::synchronize()))), spoiled);
    assert_eq!(
        captured(false, &|stream| refused(code(unsafe { result::stream::synchronize(stream) }))),
        spoiled
    );
    let marked = |stream: CUstream| {
        let mark = event();
        unsafe { result::event::record(mark, stream) }.unwrap();
        assert_eq!(query(mark), CUDA_ERROR_CAPTURED_EVENT);
    };
    assert_eq!(captured(false, &marked), spoiled);
    // The default stream would have to wait for a blocking one.
    let filled = |_: CUstream| {
        assert_eq!(unsafe { sys::cuMemsetD8_v2(0, 0, 1) }, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    };
    assert_eq!(captured(true, &filled), spoiled);
}

#[test]
fn a_counter_runs_on_while_another_process_has_the_device_or_not() {
    let mut shared = hosted();
    for counters_stop in [false, true] {
        let when = When { from_s: 0.0, for_s: None, every_s: None };
        shared.tenant = vec![Tenant {
            pid: 1,
            when,
            share: 0.5,
            slice_s: 1e-3,
            dram_share: 0.0,
            counters_stop,
            bytes: 0,
        }];
        if !inside("a_counter_runs_on_while_another_process_has_the_device_or_not", &shared) {
            continue;
        }
        let scenario = Scenario::read(env::var("ROOFLINED_FAKE_GPU").unwrap().as_ref()).unwrap();
        context();
        let out = upload(&[0; 6]);
        let seconds = run(shipped("launch", "spin"), 1, 32, &mut [out, 200_000]);
        result::ctx::synchronize().unwrap();
        let cycles = f64::from(download(out, 2).unwrap()[0]);
        let counted = if scenario.tenant[0].counters_stop { 0.5 } else { 1.0 };
        close(cycles / seconds / 20e6, counted, 0.05);
        return;
    }
}

/// An entry of a shipped kernel.
fn shipped(file: &str, entry: &str) -> CUfunction {
    let path = format!("{}/../../../kernels/ptx/{file}.ptx", env!("CARGO_MANIFEST_DIR"));
    function(load(&std::fs::read_to_string(path).unwrap()).unwrap(), entry)
}

/// A launch's seconds without its overhead. Each parameter is given as its low bytes.
fn run(kernel: CUfunction, blocks: u32, threads: u32, params: &mut [u64]) -> f64 {
    let mut places: Vec<*mut c_void> = params.iter_mut().map(|value| (&raw mut *value).cast()).collect();
    timed(|| launch(kernel, blocks, threads, DEFAULT, &mut places).unwrap()) - 5e-6
}

fn space(bytes: usize) -> u64 {
    upload(&vec![0x3c00_3c00; bytes / 4])
}

#[test]
fn shipped_kernels_find_the_toys_ceilings() {
    if !inside("shipped_kernels_find_the_toys_ceilings", &Scenario::toy()) {
        return;
    }
    context();
    let (dram, clock, sm_count) = (0.5e9, 20e6, 2.0);
    let out = space(64 << 10);
    let rotated: Vec<_> = (0..4).map(|_| (space(512 << 10), space(256 << 10))).collect();
    let n16 = (256 << 10) / 16;
    for (entry, bytes) in
        [("stream_read", 256 << 10), ("stream_write", 256 << 10), ("stream_copy", 512 << 10)]
    {
        let kernel = shipped("stream", entry);
        for (a, b) in rotated.iter().chain(&rotated) {
            let mut params = match entry {
                "stream_read" => vec![*a, n16, out],
                "stream_write" => vec![*a, n16, 7],
                _ => vec![*a, *b, n16],
            };
            let rate = f64::from(bytes) / run(kernel, 8, 256, &mut params);
            println!("{entry}: {:.4} of DRAM's rate", rate / dram);
            close(rate, dram, 0.06);
        }
    }
    let l2 = 64.0 * sm_count * clock;
    let kernel = shipped("stream", "l2_read");
    // No more blocks than are resident: what came later would find its own lines in L2.
    for blocks in [2, 8, 12] {
        let (small, large) = (32 << 10, 256 << 10);
        run(kernel, blocks, 256, &mut [rotated[0].0, small / 16, 1, out]);
        let rate = (small * 20) as f64 / run(kernel, blocks, 256, &mut [rotated[0].0, small / 16, 20, out]);
        println!("l2_read, {blocks} blocks: {:.4} of L2's rate", rate / l2);
        close(rate, l2, 0.05);
        let rate = (large * 5) as f64 / run(kernel, blocks, 256, &mut [rotated[0].0, large / 16, 5, out]);
        println!("l2_read past L2, {blocks} blocks: {:.4} of DRAM's rate", rate / dram);
        // What the launch before left in L2 is not fetched.
        close(rate, dram, 0.06);
    }
    let steps = 2000;
    let seconds = run(shipped("launch", "spin"), 1, 32, &mut [out, steps]);
    let cycles = download(out, 2).unwrap();
    println!("spin: {:.4} of the clock", f64::from(cycles[0]) / seconds / clock);
    close(f64::from(cycles[0]) / seconds, clock, 0.03);
    assert!(run(shipped("launch", "empty"), 1, 32, &mut []) < 1e-6);
    let peak = 128.0 * sm_count * clock;
    let (one, steps) = (u64::from(1_f32.to_bits()), 200);
    let x = space(8 * 4 * 512);
    let seconds = run(shipped("fma", "fma_f32"), 2, 256, &mut [x, one, one, steps, space(8 * 4 * 512)]);
    let rate = (512 * 8 * 2 * steps) as f64 / seconds;
    println!("fma_f32: {:.4} of the peak", rate / peak);
    close(rate, peak, 0.05);
    // Weights from DRAM, with nothing else in the way: 512 rows of 512.
    for (format, bytes) in [("f16", 512.0 * 1024.0), ("q4_0", 512.0 * 16.0 * 18.0)] {
        let kernel = shipped(&format!("gemv_{format}"), &format!("gemv_{format}_b1"));
        for (a, b) in &rotated[..2] {
            let seconds = run(kernel, 12, 256, &mut [*a, 0, one, *b, 512, 512, 1, out]);
            println!("gemv_{format}: {:.4} of DRAM's rate", bytes / seconds / dram);
            // Blocks of 18 bytes share sectors with their neighbours, and the toy's L2 forgets some in between.
            close(bytes / seconds, dram, 0.12);
        }
    }
}
