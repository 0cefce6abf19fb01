//! nvml-wrapper, unchanged, on the fake library.
//!
//! The loader reads `LD_LIBRARY_PATH` once, so each test runs its body in a child that is this program again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::env;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

use cudarc::driver::result;
use fake_cuda::activity::{Activity, Reporter, boottime_ns};
use fake_cuda::{Fail, Governor, GovernorKind, Host, Scenario, Tenant, When};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

/// True in the child; in the parent, which starts it with the scenario, false once it has ended well.
fn inside(test: &str, scenario: &Scenario) -> bool {
    if env::var_os("ROOFLINED_FAKE_GPU").is_some() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(fake_cuda::install(dir.path(), scenario))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn scenario_path() -> String {
    env::var("ROOFLINED_FAKE_GPU").unwrap()
}

#[test]
fn an_idle_gpu_tells_what_it_is() {
    if !inside("an_idle_gpu_tells_what_it_is", &Scenario::gb10()) {
        return;
    }
    let nvml = Nvml::init().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13000);
    assert_eq!(nvml.device_count().unwrap(), 1);
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA GB10");
    assert!(device.uuid().unwrap().starts_with("GPU-"));
    assert_eq!(device.cuda_compute_capability().unwrap().major, 12);
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 45);
    assert_eq!(device.power_usage().unwrap(), 5000);
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 208);
    assert_eq!(device.max_clock_info(Clock::SM).unwrap(), 2418);
    assert_eq!(device.current_throttle_reasons().unwrap().bits(), 1);
    assert!(matches!(device.memory_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(device.clock_info(Clock::Memory), Err(NvmlError::NotSupported)));
    assert_eq!(device.max_clock_info(Clock::Memory).unwrap(), 4266);
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::InvalidArg)));
}

#[test]
fn the_drivers_load_is_seen_until_it_ends() {
    if !inside("the_drivers_load_is_seen_until_it_ends", &Scenario::toy()) {
        return;
    }
    let path = scenario_path();
    let mut reporter = Reporter::new(Path::new(&path)).unwrap();
    let busy = Activity {
        busy_until_ns: boottime_ns() + 60_000_000_000,
        sm_hz: 10e6,
        compute: 0.5,
        dram_bytes_per_s: 0.25e9,
        throttled: true,
        allocated: 1 << 20,
        timed: None,
    };
    reporter.report(&busy).unwrap();
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    // 2 W idle, half of the 6 W above, and a quarter of a watt for the memory.
    assert_eq!(device.power_usage().unwrap(), 5250);
    let rates = device.utilization_rates().unwrap();
    assert_eq!((rates.gpu, rates.memory), (100, 50));
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 10);
    assert_eq!(device.current_throttle_reasons().unwrap().bits(), 0x20);
    assert_eq!(device.memory_info().unwrap().free, (191 << 20));
    reporter.report(&Activity { busy_until_ns: boottime_ns(), ..busy }).unwrap();
    assert_eq!(device.power_usage().unwrap(), 2000);
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
}

#[test]
fn calls_fail_as_told() {
    let mut lost = Scenario::toy();
    lost.nvml.fail.push(Fail { call: "nvmlDeviceGetPowerUsage".into(), code: 15, after: 1, times: Some(1) });
    lost.nvml.fail.push(Fail::always("nvmlDeviceGetName", 999));
    lost.nvml.not_supported.push("nvmlDeviceGetClockInfo".into());
    if !inside("calls_fail_as_told", &lost) {
        return;
    }
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.power_usage().unwrap(), 2000);
    assert!(matches!(device.power_usage(), Err(NvmlError::GpuLost)));
    assert_eq!(device.power_usage().unwrap(), 2000);
    assert!(matches!(device.name(), Err(NvmlError::Unknown)));
    assert!(matches!(device.clock_info(Clock::SM), Err(NvmlError::NotSupported)));
}

#[test]
fn no_gpu_and_no_driver_are_errors() {
    if !inside("no_gpu_and_no_driver_are_errors", &Scenario { no_device: true, ..Scenario::toy() }) {
        return;
    }
    let nvml = Nvml::init().unwrap();
    assert_eq!(nvml.device_count().unwrap(), 0);
    assert!(nvml.device_by_index(0).is_err());
}

#[test]
fn a_scenario_that_does_not_parse_is_no_driver() {
    if !inside("a_scenario_that_does_not_parse_is_no_driver", &Scenario::toy()) {
        return;
    }
    fs::write(scenario_path(), "colour = 3").unwrap();
    assert!(matches!(Nvml::init(), Err(NvmlError::DriverNotLoaded)));
}

const SPIN: &str = "
.version 7.0
.target sm_80
.address_size 64

.visible .entry spin(.param .u32 steps)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [steps];
$LOOP:
    add.s32 %r1, %r1, -1;
    setp.ne.s32 %p1, %r1, 0;
    @%p1 bra $LOOP;
    ret;
}
";

/// Both libraries unchanged: a kernel on the one, watched through the other.
#[test]
fn a_kernel_is_seen_while_it_runs() {
    let slow = Scenario { pace: 40.0, ..Scenario::toy() };
    if !inside("a_kernel_is_seen_while_it_runs", &slow) {
        return;
    }
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    let text = CString::new(SPIN).unwrap();
    let mut steps = 300_000_u32;
    result::init().unwrap();
    unsafe {
        let context = result::primary_ctx::retain(result::device::get(0).unwrap()).unwrap();
        result::ctx::set_current(context).unwrap();
        let module = result::module::load_data(text.as_ptr().cast()).unwrap();
        let kernel = result::module::get_function(module, CString::from(c"spin")).unwrap();
        let mut params = [(&raw mut steps).cast()];
        result::launch_kernel(kernel, (2, 1, 1), (128, 1, 1), 0, null_mut(), &mut params).unwrap();
    }
    // 900,000 instructions a warp, four warps on each of two SMs: 45 ms at 20 MHz, forty times slowed.
    assert_eq!(device.utilization_rates().unwrap().gpu, 100);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 20);
    assert!((7900..=8000).contains(&device.power_usage().unwrap()), "{}", device.power_usage().unwrap());
    result::ctx::synchronize().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    assert_eq!(device.power_usage().unwrap(), 2000);
}

/// Another process is listed, and its share of the time and the clock that follows the load are seen.
#[test]
fn another_process_and_the_clock_under_load_are_seen() {
    let mut shared = Scenario { host: Some(Host::default()), ..Scenario::toy() };
    let table_hz = vec![5e6, 10e6, 20e6];
    shared.clock.governor =
        Some(Governor { kind: GovernorKind::PodgovSteps, table_hz, gate_s: None, wake_s: 0.0 });
    shared.tenant.push(Tenant {
        pid: 4242,
        when: When { from_s: 0.2, for_s: None, every_s: None },
        share: 0.5,
        slice_s: 1e-3,
        dram_share: 0.0,
        counters_stop: false,
        bytes: 1 << 20,
    });
    if !inside("another_process_and_the_clock_under_load_are_seen", &shared) {
        return;
    }
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.running_compute_processes().unwrap().is_empty());
    let pids = || -> Vec<u32> {
        device.running_compute_processes().unwrap().iter().map(|process| process.pid).collect()
    };
    let text = CString::new(SPIN).unwrap();
    let spin = |mut steps: u32| unsafe {
        let module = result::module::load_data(text.as_ptr().cast()).unwrap();
        let kernel = result::module::get_function(module, CString::from(c"spin")).unwrap();
        let mut params = [(&raw mut steps).cast()];
        result::launch_kernel(kernel, (2, 1, 1), (128, 1, 1), 0, null_mut(), &mut params).unwrap();
    };
    result::init().unwrap();
    unsafe {
        result::ctx::set_current(result::primary_ctx::retain(result::device::get(0).unwrap()).unwrap())
            .unwrap();
    }
    assert_eq!(pids(), [std::process::id()]);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 5);
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    // 75 ms at the full clock, or a little more; the other process is not there yet.
    spin(500_000);
    result::ctx::synchronize().unwrap();
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 20);
    assert!((30..70).contains(&device.utilization_rates().unwrap().gpu));
    spin(1_000_000);
    result::ctx::synchronize().unwrap();
    assert_eq!(pids(), [std::process::id(), 4242]);
    assert_eq!(device.utilization_rates().unwrap().gpu, 100);
}
