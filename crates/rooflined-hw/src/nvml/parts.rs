//! What NVML tells of the parts of a GPU, whatever it is, and of the instances of one that is divided (MIG).
//!
//! ```text
//! compute_capability           8.9
//! num_gpu_cores                16384
//! memory_bus_width_bits        384
//! max_memory_clock_mhz         10501
//! memory_total_bytes           25757220864
//! mig/0/multiprocessor_count   60
//! mig/0/memory_size_mb         40192            none where the instances share one memory
//! ```

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;

use crate::SysRoot;
use rooflined_core::board::parse;
use rooflined_core::hardware::{GpuInstance, GpuParts};
use rooflined_core::units::{Bytes, Hertz};

const MIB: f64 = 1024.0 * 1024.0;
/// More instances than any GPU can be divided into.
const MOST_INSTANCES: u32 = 64;

/// What is not supported is not there.
pub(super) fn of(device: &Device<'_>) -> GpuParts {
    let capability = device.cuda_compute_capability().ok();
    let number = |value: i32| u32::try_from(value).ok();
    let parts = GpuParts {
        compute_capability: capability.and_then(|of| Some((number(of.major)?, number(of.minor)?))),
        cores: device.num_cores().ok(),
        bus_bits: device.memory_bus_width().ok(),
        memory_clock: device.max_clock_info(Clock::Memory).ok().map(|clock| Hertz(f64::from(clock) * 1e6)),
        memory: device.memory_info().ok().map(|memory| Bytes(memory.total as f64)),
        is_divided: false,
        instances: instances(device),
    };
    parts.plausible()
}

fn instances(device: &Device<'_>) -> Vec<GpuInstance> {
    let Ok(most) = device.mig_device_count() else { return Vec::new() };
    let instance = |index: u32| {
        let attributes = device.mig_device_by_index(index).ok()?.attributes().ok()?;
        let memory = Bytes(attributes.memory_size_mb as f64 * MIB);
        Some(GpuInstance {
            sm: attributes.multiprocessor_count,
            memory: Some(memory).filter(|memory| memory.is_positive()),
        })
    };
    (0..most.min(MOST_INSTANCES)).filter_map(instance).collect()
}

pub(super) fn from_files(root: &SysRoot, dir: &str) -> GpuParts {
    let text = |getter: &str| root.read(&format!("{dir}/{getter}")).ok();
    let number = |getter: &str| parse::unsigned(&text(getter)?);
    let small = |getter: &str| u32::try_from(number(getter)?).ok();
    let capability = text("compute_capability").and_then(|text| {
        let (major, minor) = text.trim().split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let instance = |name: String| {
        let memory = number(&format!("mig/{name}/memory_size_mb")).map(|size| Bytes(size as f64 * MIB));
        Some(GpuInstance { sm: small(&format!("mig/{name}/multiprocessor_count"))?, memory })
    };
    let names = root.names(&format!("{dir}/mig")).into_iter().take(MOST_INSTANCES as usize);
    let parts = GpuParts {
        compute_capability: capability,
        cores: small("num_gpu_cores"),
        bus_bits: small("memory_bus_width_bits"),
        memory_clock: text("max_memory_clock_mhz").and_then(|text| parse::megahertz(&text)),
        memory: number("memory_total_bytes").map(|bytes| Bytes(bytes as f64)),
        is_divided: false,
        instances: names.filter_map(instance).collect(),
    };
    parts.plausible()
}

/// The files that [`from_files`] reads.
pub(super) fn as_files(parts: &GpuParts) -> Vec<(String, Option<String>)> {
    let number = |value: f64| format!("{value:.0}");
    let capability = parts.compute_capability.map(|(major, minor)| format!("{major}.{minor}"));
    let mut files = vec![
        ("compute_capability".to_owned(), capability),
        ("num_gpu_cores".to_owned(), parts.cores.map(|cores| cores.to_string())),
        ("memory_bus_width_bits".to_owned(), parts.bus_bits.map(|bits| bits.to_string())),
        ("max_memory_clock_mhz".to_owned(), parts.memory_clock.map(|clock| number(clock.get() / 1e6))),
        ("memory_total_bytes".to_owned(), parts.memory.map(|memory| number(memory.get()))),
    ];
    for (index, instance) in parts.instances.iter().enumerate() {
        let file = |getter: &str| format!("mig/{index}/{getter}");
        files.push((file("multiprocessor_count"), Some(instance.sm.to_string())));
        files.push((file("memory_size_mb"), instance.memory.map(|memory| number(memory.get() / MIB))));
    }
    files
}
