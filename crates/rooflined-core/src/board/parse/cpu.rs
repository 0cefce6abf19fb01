//! /proc/cpuinfo and CPU lists.

use super::{label, pairs};

/// More CPUs than any kernel is built for.
pub(super) const MOST_CPUS: u32 = 8192;

/// A CPU list as the kernel writes it (`0-3,5`), in ascending order without repetition. An empty text is the empty
/// list; `None` for anything else that is no list, and for CPU numbers no kernel has.
#[must_use]
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // The list must stay bounded although ranges may repeat.
        if first > last || last >= MOST_CPUS || cpus.len() > 8 * MOST_CPUS as usize {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// What /proc/cpuinfo tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuInfo {
    /// Marketing name (x86), the core types with their number (arm64): `10x Cortex-X925 + 10x Cortex-A725`, or what the kernel
    /// calls the core (RISC-V, POWER).
    pub model: Option<String>,
    /// Instruction-set flags of the first CPU in the kernel's spelling.
    pub features: Vec<String>,
    /// `x86_64`, `aarch64`, …; `None` where the fields do not tell.
    pub architecture: Option<&'static str>,
    /// CPUs listed.
    pub processors: u32,
}

/// Reads /proc/cpuinfo of x86, arm64, RISC-V, POWER and LoongArch.
#[must_use]
pub fn cpuinfo(text: &str) -> CpuInfo {
    let first = |wanted: &str| pairs(text).find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let flags = first("flags").or_else(|| first("Features")).unwrap_or("");
    // `POWER9, altivec supported`
    let power = first("cpu").filter(|_| first("timebase").is_some() || first("clock").is_some());
    let mut features: Vec<String> = flags.split_ascii_whitespace().take(1024).filter_map(label).collect();
    if power.is_some_and(|cpu| cpu.contains("altivec")) {
        features.push("altivec".to_owned());
    }
    // `rv64imafdcv_zicntr_…`: a letter for each extension, then longer names.
    let isa = first("isa").filter(|isa| isa.starts_with("rv"));
    if isa.and_then(|isa| isa.get(4..)?.split('_').next()).is_some_and(|letters| letters.contains('v')) {
        features.push("v".to_owned());
    }
    let architecture = if first("CPU implementer").is_some() {
        // 32-bit kernels write 7 and less here.
        Some(if first("CPU architecture").is_some_and(|value| value.starts_with('8')) {
            "aarch64"
        } else {
            "arm"
        })
    } else if first("vendor_id").is_some() && first("flags").is_some() {
        Some(if flags.split_ascii_whitespace().any(|flag| flag == "lm") { "x86_64" } else { "x86" })
    } else if let Some(isa) = isa {
        Some(if isa.starts_with("rv64") { "riscv64" } else { "riscv32" })
    } else if power.is_some() {
        Some("powerpc64")
    } else if first("CPU Family") == Some("Loongson-64bit") {
        Some("loongarch64")
    } else {
        None
    };
    let processors =
        pairs(text).filter(|(key, value)| *key == "processor" && value.parse::<u32>().is_ok()).count();
    CpuInfo {
        // Some arm64 kernels name every core "ARMv8 Processor rev N", which says less than the part number.
        model: arm_cores(text)
            .or_else(|| first("model name").or_else(|| first("Model Name")).and_then(label))
            .or_else(|| first("uarch").or_else(|| isa.filter(|_| architecture.is_some())).and_then(label))
            .or_else(|| power?.split(',').next().and_then(label)),
        features,
        architecture,
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
    }
}

/// The core types of an arm64 machine in the order listed, with their number where there is more than one type.
fn arm_cores(text: &str) -> Option<String> {
    let mut cores: Vec<(String, u32)> = Vec::new();
    let mut implementer = None;
    for (key, value) in pairs(text) {
        match key {
            "CPU implementer" => implementer = hexadecimal(value),
            "CPU part" => {
                let Some((implementer, part)) = implementer.zip(hexadecimal(value)) else { continue };
                let name = arm_core(implementer, part)
                    .map_or_else(|| format!("arm core {implementer:#04x}:{part:#05x}"), str::to_owned);
                // No machine has more than a few types; a hostile file must not grow the list.
                match cores.iter().position(|(known, _)| *known == name) {
                    Some(known) => cores[known].1 = cores[known].1.saturating_add(1),
                    None if cores.len() < 8 => cores.push((name, 1)),
                    None => {}
                }
            }
            _ => {}
        }
    }
    match cores.as_slice() {
        [] => None,
        [(name, _)] => Some(name.clone()),
        several => Some(
            several.iter().map(|(name, count)| format!("{count}x {name}")).collect::<Vec<_>>().join(" + "),
        ),
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Name of a core by the implementer and part fields of its MIDR register.
const fn arm_core(implementer: u32, part: u32) -> Option<&'static str> {
    const ARM: u32 = 0x41;
    const NVIDIA: u32 = 0x4e;
    Some(match (implementer, part) {
        (ARM, 0xd03) => "Cortex-A53",
        (ARM, 0xd04) => "Cortex-A35",
        (ARM, 0xd05) => "Cortex-A55",
        (ARM, 0xd07) => "Cortex-A57",
        (ARM, 0xd08) => "Cortex-A72",
        (ARM, 0xd09) => "Cortex-A73",
        (ARM, 0xd0a) => "Cortex-A75",
        (ARM, 0xd0b) => "Cortex-A76",
        (ARM, 0xd0c) => "Neoverse-N1",
        (ARM, 0xd0d) => "Cortex-A77",
        (ARM, 0xd40) => "Neoverse-V1",
        (ARM, 0xd41) => "Cortex-A78",
        (ARM, 0xd42) => "Cortex-A78AE",
        (ARM, 0xd44) => "Cortex-X1",
        (ARM, 0xd46) => "Cortex-A510",
        (ARM, 0xd47) => "Cortex-A710",
        (ARM, 0xd48) => "Cortex-X2",
        (ARM, 0xd49) => "Neoverse-N2",
        (ARM, 0xd4b) => "Cortex-A78C",
        (ARM, 0xd4d) => "Cortex-A715",
        (ARM, 0xd4e) => "Cortex-X3",
        (ARM, 0xd4f) => "Neoverse-V2",
        (ARM, 0xd80) => "Cortex-A520",
        (ARM, 0xd81) => "Cortex-A720",
        (ARM, 0xd82) => "Cortex-X4",
        (ARM, 0xd83) => "Neoverse-V3AE",
        (ARM, 0xd84) => "Neoverse-V3",
        (ARM, 0xd85) => "Cortex-X925",
        (ARM, 0xd87) => "Cortex-A725",
        (ARM, 0xd8e) => "Neoverse-N3",
        (NVIDIA, 0x003) => "Denver 2",
        (NVIDIA, 0x004) => "Carmel",
        (ARM, 0xd0e) => "Cortex-A76AE",
        (ARM, 0xd88) => "Cortex-A520AE",
        (ARM, 0xd89) => "Cortex-A720AE",
        (0x43, 0x0af) => "ThunderX2",
        (0x46, 0x001) => "A64FX",
        (0x48, 0xd01) => "Kunpeng 920",
        (0x51, 0x001) => "Qualcomm Oryon",
        (0x51, 0x802) => "Kryo 3xx Gold",
        (0x51, 0x803) => "Kryo 3xx Silver",
        (0x51, 0x804) => "Kryo 4xx Gold",
        (0x51, 0x805) => "Kryo 4xx Silver",
        (0x61, 0x022 | 0x024 | 0x028) => "Apple Icestorm",
        (0x61, 0x023 | 0x025 | 0x029) => "Apple Firestorm",
        (0x61, 0x032 | 0x034 | 0x038) => "Apple Blizzard",
        (0x61, 0x033 | 0x035 | 0x039) => "Apple Avalanche",
        (0xc0, 0xac3) => "Ampere-1",
        (0xc0, 0xac4) => "Ampere-1A",
        _ => return None,
    })
}
