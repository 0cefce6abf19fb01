//! Whether somebody locked the clocks with NVIDIA's jetson_clocks, by what it leaves in files that all may read.

use super::CPUS;
use super::cpufreq::CPUFREQ;
use super::tegra_gpu::bases;
use crate::answers::{EACH_SECOND, File, SOMETIMES};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::ClockLocks;
use rooflined_core::board::{Reading, parse, parse::details as text};
use rooflined_core::units::Hertz;

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.chip.is_none() {
        let none = format!("only Jetsons have jetson_clocks: {}", context.no_tegra);
        return found(move |_, state| detail!(state.jetson_clocks = Reading::absent(&none), None));
    }
    let root = context.root;
    let policies = root.numbered(CPUFREQ, "policy").into_iter();
    let policies: Vec<String> = policies.map(|(_, name)| format!("{CPUFREQ}/{name}/scaling_")).collect();
    let gpu = context.gpu.as_ref().map(|gpu| format!("{}/", gpu.dir));
    // What holds for the first CPU, which is always online, holds for all.
    let idle = root.numbered(&format!("{CPUS}/cpu0/cpuidle"), "state").into_iter().take(8);
    let idle: Vec<String> = idle.map(|(_, state)| format!("{CPUS}/cpu0/cpuidle/{state}/disable")).collect();
    let bases = bases(root, context.gpu.as_ref().map(|gpu| gpu.dir.as_str())).into_iter();
    let control = bases.map(|base| format!("{base}/power/control")).find(|path| context.has(path));
    if !policies.is_empty() {
        plan.add_origin("jetson_clocks", format!("{CPUFREQ}/policy*/scaling_{{min,max}}_freq"));
    }
    if let Some(begin) = &gpu {
        plan.add_origin("jetson_clocks", format!("{begin}{{min,max}}_freq"));
    }
    if !idle.is_empty() {
        plan.add_origin("jetson_clocks", format!("{CPUS}/cpu0/cpuidle/state*/disable"));
    }
    if let Some(path) = &control {
        plan.add_origin("jetson_clocks", path);
    }
    for begin in policies.iter().chain(&gpu) {
        plan.read([
            File::of_driver(format!("{begin}max_freq")),
            File::of_driver(format!("{begin}min_freq")).every(EACH_SECOND),
        ]);
    }
    plan.read(idle.iter().chain(&control).map(|path| File::of_driver(path).every(SOMETIMES)));
    found(move |answers, state| {
        let range = |begin: &String, parse: fn(&str) -> Option<Hertz>| {
            let clock =
                |end: &str| answers.value(&format!("{begin}{end}_freq"), "a clock", parse).known().copied();
            Some((clock("min")?, clock("max")?))
        };
        let idle: Vec<bool> = idle
            .iter()
            .filter_map(|path| answers.value(path, "0 or 1", text::switch).known().copied())
            .collect();
        let control = control.as_ref().and_then(|path| parse::label(answers.text(path).ok()?));
        let locks = ClockLocks {
            // The directory of a policy whose CPUs are all offline does not answer.
            cpus: policies.iter().filter_map(|begin| range(begin, parse::kilohertz)).collect(),
            gpu: gpu.as_ref().and_then(|begin| range(begin, parse::hertz)),
            idle_disabled: (!idle.is_empty()).then(|| idle.contains(&true)),
            gpu_kept_on: control.map(|control| control == "on"),
        };
        let unknown = || {
            Reading::absent(
                "too little is known to tell: it takes the lowest and highest clocks of CPUs and GPU, and either \
                 cpu0/cpuidle/state*/disable or power/control of the GPU",
            )
        };
        detail!(state.jetson_clocks = locks.engaged().map_or_else(unknown, Reading::Known), None);
    })
}
