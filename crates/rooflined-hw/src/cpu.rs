//! The processor: /proc/cpuinfo and /sys/devices/system/cpu.

use std::collections::{BTreeMap, BTreeSet};

use super::{STAT, SysRoot};
use rooflined_core::board::{Cache, CoreKind, Cpu, Reading, parse};
use rooflined_core::units::Hertz;

const CPUINFO: &str = "/proc/cpuinfo";
const CPUS: &str = "/sys/devices/system/cpu";

/// Reads all but the clocks, and notes which file each field came from.
pub(super) fn discover(root: &SysRoot, sources: &mut BTreeMap<String, String>) -> Cpu {
    let mut from = |field: &str, file: &str| sources.insert(field.into(), file.into());
    let text = root.read_long(CPUINFO);
    let reason = text.as_ref().err().map(ToString::to_string);
    let info = parse::cpuinfo(text.as_deref().unwrap_or_default());
    let model = match info.model {
        Some(model) => {
            from("cpu.model", CPUINFO);
            Reading::Known(model)
        }
        None => Reading::absent(reason.unwrap_or_else(|| format!("{CPUINFO} names no processor"))),
    };
    if !info.features.is_empty() {
        from("cpu.features", CPUINFO);
    }
    let architecture = match info.architecture {
        // The program runs on the machine it describes, so it knows what it was built for.
        _ if root.is_host() => std::env::consts::ARCH,
        Some(architecture) => {
            from("cpu.architecture", CPUINFO);
            architecture
        }
        None => "unknown",
    };
    let numbers: Vec<u32> = root.numbered(CPUS, "cpu").into_iter().map(|(number, _)| number).collect();
    let logical = match logical(root, info.processors, &numbers) {
        Some((count, file)) => {
            from("cpu.logical", file);
            count
        }
        // The one that asks.
        None => 1,
    };
    let cores = cores(root, &numbers);
    if cores.known().is_some() {
        from("cpu.cores", &format!("{CPUS}/cpu*/topology/core_cpus_list"));
    }
    let caches = caches(root, &numbers);
    if !caches.is_empty() {
        from("cpu.caches", &format!("{CPUS}/cpu*/cache/index*"));
    }
    Cpu {
        model,
        architecture: architecture.to_owned(),
        logical,
        cores,
        kinds: kinds(root, &numbers, text.as_deref().unwrap_or_default()),
        max_clock: Reading::<Hertz>::absent("not read yet"),
        caches,
        features: info.features,
    }
}

/// CPUs present, from the best file that tells.
fn logical(root: &SysRoot, processors: u32, numbers: &[u32]) -> Option<(u32, &'static str)> {
    let count = |cpus: Vec<u32>| u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let present = root.read("/sys/devices/system/cpu/present").ok().and_then(|text| parse::cpu_list(&text));
    if let Some(cpus) = present.filter(|cpus| !cpus.is_empty()) {
        return Some((count(cpus), "/sys/devices/system/cpu/present"));
    }
    if !numbers.is_empty() {
        return Some((count(numbers.to_vec()), CPUS));
    }
    if processors > 0 {
        return Some((processors, CPUINFO));
    }
    let online = root.read(STAT).map(|text| parse::stat_cpus(&text)).unwrap_or_default();
    (!online.is_empty()).then(|| (count(online), STAT))
}

/// The CPUs that share a core with this one.
fn siblings(root: &SysRoot, number: u32) -> Option<Vec<u32>> {
    ["core_cpus_list", "thread_siblings_list"].into_iter().find_map(|file| {
        let text = root.read(&format!("{CPUS}/cpu{number}/topology/{file}")).ok()?;
        parse::cpu_list(&text).filter(|cpus| cpus.contains(&number))
    })
}

/// Number of cores that these CPUs are threads of; `None` where no file tells.
#[must_use]
pub fn count_cores(root: &SysRoot, cpus: &[u32]) -> Option<u32> {
    cores(root, cpus).known().copied()
}

/// Distinct sets of sibling threads. CPUs that are offline have no topology and are not counted.
fn cores(root: &SysRoot, numbers: &[u32]) -> Reading<u32> {
    let cores: BTreeSet<Vec<u32>> = numbers.iter().filter_map(|number| siblings(root, *number)).collect();
    match u32::try_from(cores.len()) {
        Ok(count) if count > 0 => Reading::Known(count),
        _ => Reading::absent(format!("no {CPUS}/cpu*/topology/core_cpus_list")),
    }
}

/// Cores with half of the vector pipes of the fast ones that they come with, by implementer and part: Arm's Cortex-A53, -A55,
/// -A510 and -A520, Qualcomm's Kryo Silver, which are made of them, and Apple's Icestorm and Blizzard.
const LITTLE: [(&str, &[&str]); 3] = [
    ("0x41", &["0xd03", "0xd05", "0xd46", "0xd80"]),
    ("0x51", &["0x801", "0x803", "0x805"]),
    ("0x61", &["0x022", "0x024", "0x028", "0x032", "0x034", "0x038"]),
];
/// Devices of the performance counters of Intel's efficient cores. Those with low power have their own since Linux 6.13.
const EFFICIENT: [&str; 2] = ["/sys/devices/cpu_atom/cpus", "/sys/devices/cpu_lowpower/cpus"];

/// Intel's processors of efficient cores alone, by their model of family 6: Alder Lake-N, Sierra Forest and Clearwater Forest.
const EFFICIENT_ALONE: [&str; 3] = ["190", "175", "221"];

/// What kind of core each is. Without topology, on Arm, each CPU is a core; on x86 nothing is known.
fn kinds(root: &SysRoot, numbers: &[u32], cpuinfo: &str) -> Vec<CoreKind> {
    // Intel's hybrid parts have a device of performance counters for each kind.
    let of_device = |file: &str| root.read(file).ok().and_then(|text| parse::cpu_list(&text));
    let atom: Vec<Vec<u32>> = EFFICIENT.into_iter().filter_map(of_device).collect();
    let little = little_cpus(cpuinfo);
    let is_arm = cpuinfo.contains("CPU part");
    let field = |key: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .map(|(name, value)| (name.trim(), value.trim()))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    };
    let has_no_other = (field("vendor_id"), field("cpu family")) == (Some("GenuineIntel"), Some("6"))
        && field("model").is_some_and(|model| EFFICIENT_ALONE.contains(&model));
    let mut cores: BTreeSet<Vec<u32>> = BTreeSet::new();
    for number in numbers {
        cores.extend(siblings(root, *number).or_else(|| is_arm.then(|| vec![*number])));
    }
    // Of Intel's parts with both kinds the efficient ones have one thread.
    let some_have_two = !is_arm && cores.iter().any(|cpus| cpus.len() > 1);
    let kind = |cpus: Vec<u32>| {
        let first = cpus.first().copied()?;
        let efficient = if atom.is_empty() {
            has_no_other || little.contains(&first) || (some_have_two && cpus.len() == 1)
        } else {
            atom.iter().any(|cpus| cpus.contains(&first))
        };
        Some(CoreKind { first, efficient })
    };
    cores.into_iter().filter_map(kind).collect()
}

fn little_cpus(cpuinfo: &str) -> Vec<u32> {
    let (mut number, mut implementer) = (None, "");
    let mut found = Vec::new();
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => number = value.trim().parse::<u32>().ok(),
            "CPU implementer" => implementer = value.trim(),
            "CPU part" => {
                let is_little = LITTLE
                    .iter()
                    .any(|(maker, parts)| *maker == implementer && parts.contains(&value.trim()));
                found.extend(number.filter(|_| is_little));
            }
            _ => {}
        }
    }
    found
}

/// Caches by level, kind and size, each instance counted once however many CPUs share it.
fn caches(root: &SysRoot, numbers: &[u32]) -> Vec<Cache> {
    type Instance = (u32, String, u64, Vec<u32>);
    let mut instances: BTreeSet<Instance> = BTreeSet::new();
    for number in numbers {
        let dir = format!("{CPUS}/cpu{number}/cache");
        for (_, index) in root.numbered(&dir, "index") {
            let read = |file: &str| root.read(&format!("{dir}/{index}/{file}")).ok();
            let level =
                read("level").and_then(|text| text.trim().parse().ok()).filter(|l| (1..=9).contains(l));
            let size = read("size").and_then(|text| parse::cache_size(&text));
            let (Some(level), Some(size)) = (level, size) else { continue };
            let kind = read("type").and_then(|text| parse::label(&text)).unwrap_or_else(|| "unified".into());
            let shared = read("shared_cpu_list").and_then(|text| parse::cpu_list(&text));
            let shared = shared.filter(|cpus| cpus.contains(number)).unwrap_or_else(|| vec![*number]);
            instances.insert((level, kind.to_ascii_lowercase(), size, shared));
        }
    }
    let mut caches: Vec<Cache> = Vec::new();
    for (level, kind, size_bytes, shared) in instances {
        let shared_by = u32::try_from(shared.len()).unwrap_or(u32::MAX);
        let same = caches.iter_mut().find(|known| {
            (known.level, &known.kind, known.size_bytes, known.shared_by)
                == (level, &kind, size_bytes, shared_by)
        });
        match same {
            Some(known) => known.instances += 1,
            None => caches.push(Cache { level, kind, size_bytes, shared_by, instances: 1 }),
        }
    }
    caches
}
