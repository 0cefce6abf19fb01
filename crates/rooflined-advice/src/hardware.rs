//! The registry of hardware in the shape of the wire; the command line prints the same without a daemon.

use std::collections::BTreeMap;

use super::convert::ceiling;
use super::words::shorten;
use rooflined_api::{
    CpuPartsAnswer, EstimateAnswer, HardwareAnswer, HardwareListAnswer, HardwareSummary, NominalCeilings,
    NominalModeAnswer,
};
use rooflined_core::board::OperatingPoint;
use rooflined_core::board::identity::of_part_number;
use rooflined_core::ceilings::{Ceiling, Roofline, datasheet};
use rooflined_core::hardware::{Hardware, Kind, NominalMode, Registry};
use rooflined_core::near::Near;
use rooflined_core::precision::Precision;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Watts};

/// `GET /v1/hardware`.
#[must_use]
pub fn list(registry: &Registry) -> HardwareListAnswer {
    HardwareListAnswer { hardware: registry.entries().map(summary).collect() }
}

/// `GET /v1/hardware/{key}`.
///
/// # Errors
/// A key that the registry does not have.
pub fn show(registry: &Registry, key: &str) -> Result<HardwareAnswer, Refusal> {
    registry.get(key).map(entry).ok_or_else(|| unknown(registry, Code::NotFound, "key", key))
}

/// A refusal of hardware that the registry does not have.
#[must_use]
pub fn unknown(registry: &Registry, code: Code, field: &str, key: &str) -> Refusal {
    const ALL: &str = "rooflinectl hardware list shows all";
    const OWN: &str = "describe other hardware in a file in /etc/rooflined/hardware";
    let message = format!("there is no hardware {:?} in the registry", shorten(key));
    if let Some((first, _)) = key.split_once(',') {
        return code.at(field, message, format!("name one machine at a time: {}", shorten(first)));
    }
    if THIS_MACHINE.contains(&key.to_lowercase().trim_end_matches(|of: char| ":0123456789".contains(of))) {
        let own = match code {
            Code::NotFound => "rooflinectl board shows this machine",
            _ => "leave it out for this machine, which rooflinectl board shows",
        };
        return code.at(field, message, format!("{own}; {ALL}"));
    }
    if let Some(board) = older_board(key) {
        let hint =
            format!("rooflinectl hardware list jetson shows newer boards; to predict the older one, {OWN}");
        return code.at(field, format!("{message}: {board} is older than what it holds"), hint);
    }
    if let Some(modules) = of_part_number(key) {
        let (what, hint) = match modules.as_slice() {
            [] => ("a carrier board or a kit", format!("name the module on it, such as orin-nano; {ALL}")),
            modules => ("a module", format!("name it: {}", modules.join(" or "))),
        };
        return code.at(field, format!("{message}: it is the part number of {what}"), hint);
    }
    if let Some(family) = family_of_chip(key) {
        let message = format!("{message}: it is the chip of several modules");
        return code.at(field, message, registry.near(family).hint(ALL));
    }
    if let Some(one) = one_of_several(key) {
        let name = registry
            .get(one)
            .map_or_else(|| registry.near(one).hint(ALL), |one| format!("name one: {}", one.key));
        return code.at(
            field,
            format!("{message}: one accelerator is predicted, not several together"),
            name,
        );
    }
    if let Some(begins) = line_of_cpus(key) {
        let line: Vec<&str> = registry.keys().filter(|entry| entry.starts_with(begins)).collect();
        let near = Near::of(key, line.iter().copied());
        let nearest = line.iter().take(4).copied().collect::<Vec<_>>().join(", ");
        let any = if near.is_empty() { format!("the nearest are {nearest}; {OWN}") } else { OWN.to_owned() };
        return code.at(field, message, near.hint(&any));
    }
    let near = if is_of_another_maker(key) { Near::default() } else { registry.near(key) };
    if !near.is_empty() {
        return code.at(field, message, near.hint(ALL));
    }
    code.at(
        field,
        format!("{message}, which holds NVIDIA GPUs and boards, and CPUs"),
        match is_of_another_maker(key) {
            true => format!("{ALL}; {OWN}"),
            false => format!("name the module or GPU in it, such as orin-nx-16gb; {ALL}; {OWN}"),
        },
    )
}

/// What a name of several variants means, and what to ask about the others: `orin-nano` of the Super; `None` where the name is the key.
pub(super) fn other_variants(registry: &Registry, name: &str) -> Option<String> {
    let own = registry.get(name)?;
    let letters = |text: &str| -> String { text.chars().filter(char::is_ascii_alphanumeric).collect() };
    let bare = |text: &str| letters(&text.to_lowercase()).trim_start_matches("jetson").to_owned();
    let wanted = bare(name);
    let is_other =
        |key: &&str| *key != own.key && !key.ends_with("-unlisted") && bare(key).starts_with(&wanted);
    let others: Vec<&str> = registry.keys().filter(is_other).collect();
    (bare(&own.key) != wanted && !others.is_empty()).then(|| {
        format!("{name} means {} here; to ask about another variant, name it: {}", own.key, others.join(", "))
    })
}

/// How the keys of the line begin that the name of a CPU belongs to.
fn line_of_cpus(key: &str) -> Option<&'static str> {
    const LINES: &[(&str, &str)] = &[
        ("epyc", "epyc"),
        ("xeon", "xeon"),
        ("threadripper", "threadripper"),
        ("ryzen", "ryzen"),
        ("ultra", "core-ultra"),
        ("core", "core"),
        ("i3", "core"),
        ("i5", "core"),
        ("i7", "core"),
        ("i9", "core"),
        ("n9", "n1"),
        ("n2", "n1"),
        ("raspberry", "raspberry"),
        ("rpi", "raspberry"),
        ("rk3", "rk3588"),
        ("altra", "altra"),
        ("ampereone", "ampereone"),
        ("graviton", "graviton"),
    ];
    let key = key.to_lowercase();
    let words: Vec<&str> = key.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |line: &str| words.iter().any(|word| word.starts_with(line));
    LINES.iter().find(|(line, _)| has(line)).map(|(_, begins)| *begins)
}

/// What people call the machine in front of them.
const THIS_MACHINE: [&str; 11] =
    ["this", "here", "local", "localhost", "host", "auto", "default", "gpu", "cuda", "nvidia", "pc"];

/// The accelerator of a name that counts several: `h100` of `8xh100` or `h100x8`.
fn one_of_several(key: &str) -> Option<&str> {
    let is_count = |text: &str| text.parse::<u8>().is_ok_and(|count| count > 1);
    let key = key.trim();
    let before = key.split_once(['x', 'X']).filter(|(count, _)| is_count(count)).map(|(_, one)| one);
    let one = before
        .or_else(|| key.rsplit_once(['x', 'X']).filter(|(_, count)| is_count(count)).map(|(one, _)| one))?;
    Some(one.trim_matches(['-', '_', ' '])).filter(|one| !one.is_empty())
}

/// What the modules with a chip are called.
fn family_of_chip(key: &str) -> Option<&'static str> {
    match key.to_lowercase().trim_start_matches("tegra").trim_start_matches('t') {
        "194" => Some("xavier"),
        "234" => Some("orin"),
        "264" => Some("thor"),
        _ => None,
    }
}

/// Boards before Xavier, whose names are parts of the names of later ones.
fn older_board(key: &str) -> Option<&'static str> {
    let key = key.to_lowercase().replace(['_', ' '], "-");
    let key = key.trim_start_matches("nvidia-").trim_start_matches("jetson-");
    match key {
        "nano" | "nano-2gb" | "nano-4gb" | "nano-devkit" => Some("the Jetson Nano of 2019"),
        "tx1" | "tx2" | "tx2-nx" | "tx2i" | "tx2-4gb" | "tk1" => Some("the board"),
        _ => None,
    }
}

/// Whether the name is that of a GPU that NVIDIA does not make.
fn is_of_another_maker(key: &str) -> bool {
    let key = key.to_lowercase();
    let begins = |word: &str| key.split(|c: char| !c.is_alphanumeric()).any(|own| own.starts_with(word));
    [
        "apple", "mac", "m1", "m2", "m3", "m4", "m5", "amd", "radeon", "rx", "mi2", "mi3", "instinct",
        "strix", "intel", "arc", "gaudi", "adreno", "tpu", "npu",
    ]
    .into_iter()
    .any(begins)
}

/// Zero of a quantity means that the machine has no such part: unknown on the wire, never 0.
fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn by_key<T>(values: impl IntoIterator<Item = (Precision, T)>) -> BTreeMap<String, T> {
    values.into_iter().map(|(precision, value)| (precision.key().to_owned(), value)).collect()
}

/// An entry of the registry in short.
#[must_use]
pub fn summary(hardware: &Hardware) -> HardwareSummary {
    let peak = |rate: &f64| rate * f64::from(hardware.sm) * hardware.gpu_clock.get();
    let cpu = hardware.cpu.as_ref();
    let rates = hardware.rates.iter().map(|(name, rate)| (*name, peak(rate)));
    let of_cpu = cpu.into_iter().flat_map(|cpu| {
        let clocks = f64::from(cpu.cores) * cpu.clock_hz;
        cpu.rates().into_iter().map(move |(name, rate)| (name, rate * clocks))
    });
    HardwareSummary {
        key: hardware.key.clone(),
        name: hardware.name.clone(),
        kind: hardware.kind.key().to_owned(),
        sm: Some(hardware.sm).filter(|sm| *sm > 0),
        gpu_clock_hz: positive(hardware.gpu_clock.get()),
        bandwidth_bytes_per_s: positive(hardware.bandwidth.get()),
        cores: cpu.map(|cpu| cpu.cores),
        cpu_clock_hz: cpu.map(|cpu| cpu.clock_hz),
        compute_flops_per_s: by_key(rates.chain(of_cpu)),
        memory_bytes: hardware.memory.map(Bytes::get),
        modes: hardware.modes.iter().map(|mode| mode.name.clone()).collect(),
    }
}

fn nominal_ceilings(roofline: &Roofline) -> NominalCeilings {
    let bandwidth = |of: Ceiling<BytesPerSecond>| ceiling(of.map(BytesPerSecond::get), None);
    let ridge = |precision: &Precision| Some((*precision, roofline.ridge(*precision)?.get()));
    NominalCeilings {
        bandwidth_bytes_per_s: bandwidth(roofline.bandwidth),
        memory_limit_bytes_per_s: roofline.memory_limit.map(bandwidth),
        pull_limit_bytes_per_s: roofline.pull_limit.map(bandwidth),
        compute_flops_per_s: by_key(
            roofline
                .compute
                .iter()
                .map(|(precision, peak)| (*precision, ceiling(peak.map(FlopsPerSecond::get), None))),
        ),
        ridge_flops_per_byte: by_key(roofline.compute.keys().filter_map(ridge)),
    }
}

fn nominal_mode(hardware: &Hardware, mode: &NominalMode) -> NominalModeAnswer {
    NominalModeAnswer {
        id: mode.id,
        name: mode.name.clone(),
        cores_online: mode.cores_online,
        cpu_hz: mode.cpu_clock.map(Hertz::get),
        gpu_hz: mode.gpu_clock.get(),
        emc_hz: mode.memory_clock.get(),
        sm_online: mode.sm_online,
        ceilings: nominal_ceilings(&datasheet(hardware, &mode.operating_point())),
    }
}

/// An entry of the registry with its ceilings, modes and sources.
#[must_use]
pub fn entry(hardware: &Hardware) -> HardwareAnswer {
    let gpu = hardware.kind != Kind::Cpu;
    HardwareAnswer {
        key: hardware.key.clone(),
        name: hardware.name.clone(),
        aliases: hardware.aliases.clone(),
        kind: hardware.kind.key().to_owned(),
        compute_capability: hardware.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        sm: Some(hardware.sm).filter(|sm| *sm > 0),
        sm_per_tpc: gpu.then_some(hardware.sm_per_tpc),
        tpc_mask_bits: hardware.tpc_mask_bits,
        gpu_clock_hz: positive(hardware.gpu_clock.get()),
        flops_per_sm_clock: by_key(hardware.rates.iter().map(|(precision, rate)| (*precision, *rate))),
        bus_bits: Some(hardware.bus_bits).filter(|bits| *bits > 0),
        memory_clock_hz: hardware.memory_clock.map(Hertz::get),
        bandwidth_bytes_per_s: positive(hardware.bandwidth.get()),
        sm_pull_bytes_per_clock: hardware.sm_pull.map(|pull| EstimateAnswer {
            value: pull.bytes_per_clock,
            low: pull.low,
            high: pull.high,
        }),
        l2_bytes: hardware.l2.map(Bytes::get),
        memory_bytes: hardware.memory.map(Bytes::get),
        tdp_w: hardware.tdp.map(Watts::get),
        min_power_limit_w: hardware.min_power_limit.map(Watts::get),
        cpu: hardware.cpu.as_ref().map(|cpu| CpuPartsAnswer {
            cores: cpu.cores,
            threads: cpu.threads,
            clock_hz: cpu.clock_hz,
            fp32_per_clock: cpu.fp32_per_clock,
            cache_bytes: cpu.cache_bytes,
            features: cpu.features.clone(),
        }),
        ceilings: hardware
            .is_described()
            .then(|| nominal_ceilings(&datasheet(hardware, &OperatingPoint::default()))),
        modes: hardware.modes.iter().map(|mode| nominal_mode(hardware, mode)).collect(),
        marketing: hardware.marketing.clone(),
        sources: hardware.sources.clone(),
        notes: hardware.notes.clone(),
    }
}
