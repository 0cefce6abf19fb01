//! NVIDIA's GPUs on the PCI bus, which are there whether a driver answers or not.

use super::SysRoot;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// Display controllers: VGA (0300), 3D (0302).
const DISPLAY: &str = "0x03";
const WSL: &str = "/dev/dxg";
/// GB10's GPU.
const GB10: &str = "0x2e12";
/// DMI names of machines with a GB10: NVIDIA's own and those of its partners, Dell (`Dell Pro Max with GB10`), HP, ASUS, MSI,
/// Gigabyte, Acer and Lenovo. Lenovo calls the product by a number and the family by its name.
const GB10_PRODUCTS: [&str; 9] = [
    "GB10",
    "DGX_Spark",
    "DGX Spark",
    "ZGX Nano",
    "GX10",
    "EdgeXpert",
    "AI TOP ATOM",
    "GN100",
    "ThinkStation PGX",
];

/// A GPU, by its place on the bus.
pub(super) struct PciGpu {
    pub path: String,
    pub device: String,
    /// The driver that it is bound to.
    pub driver: Option<String>,
}

/// What the bus tells of NVIDIA's GPUs.
pub(super) enum OnBus {
    Found(PciGpu),
    /// A virtual machine of Windows (WSL2) reaches the GPUs of its host, of any maker, through one device.
    OfWindows,
    /// Of so many devices none is one.
    None(usize),
    NotVisible,
}

pub(super) fn nvidia_gpu(root: &SysRoot) -> OnBus {
    let names = root.names(DEVICES);
    let label = |name: &str, file: &str| {
        root.read(&format!("{DEVICES}/{name}/{file}"))
            .map(|text| text.trim().to_ascii_lowercase())
            .unwrap_or_default()
    };
    let is_gpu =
        |name: &&String| label(name, "vendor") == NVIDIA && label(name, "class").starts_with(DISPLAY);
    match names.iter().find(is_gpu) {
        Some(name) => {
            let path = format!("{DEVICES}/{name}");
            let driver = root.resolve(&format!("{path}/driver"));
            let driver = driver.rsplit('/').next().filter(|name| *name != "driver").map(str::to_owned);
            OnBus::Found(PciGpu { path, device: label(name, "device"), driver })
        }
        None if root.path(WSL).exists() => OnBus::OfWindows,
        None if names.is_empty() => OnBus::NotVisible,
        None => OnBus::None(names.len()),
    }
}

/// Whether this is a machine with a GB10, and the file that says so.
pub(super) fn gb10(root: &SysRoot, on_bus: &OnBus) -> Option<String> {
    if let OnBus::Found(gpu) = on_bus
        && gpu.device == GB10
    {
        return Some(format!("{}/device", gpu.path));
    }
    ["product_name", "product_family", "product_version"].into_iter().find_map(|file| {
        let file = format!("/sys/class/dmi/id/{file}");
        let product = root.read(&file).ok()?;
        GB10_PRODUCTS.iter().any(|name| product.contains(name)).then_some(file)
    })
}

impl PciGpu {
    /// `10de:2e12 at /sys/bus/pci/devices/000f:01:00.0, with the driver nouveau`.
    pub fn words(&self) -> String {
        let device = self.device.trim_start_matches("0x");
        let driver =
            self.driver.as_ref().map_or_else(String::new, |name| format!(", with the driver {name}"));
        format!("10de:{device} at {}{driver}", self.path)
    }
}

/// Why no GPU is found where NVML gives `reason`.
pub(super) fn no_gpu(on_bus: &OnBus, reason: &str) -> String {
    match on_bus {
        OnBus::Found(gpu) => {
            format!("an NVIDIA GPU is there ({}), but NVIDIA's driver does not answer: {reason}", gpu.words())
        }
        OnBus::OfWindows => format!(
            "Windows shares its GPUs ({WSL}), but NVIDIA's driver does not answer: {reason}; install NVIDIA's driver on Windows, and \
             start a container with --gpus all"
        ),
        OnBus::None(count) => {
            format!("no NVIDIA GPU: none among the {count} devices of {DEVICES}, and {reason}")
        }
        OnBus::NotVisible => format!("no NVIDIA GPU is visible: {reason}, and {DEVICES} is empty or hidden"),
    }
}
