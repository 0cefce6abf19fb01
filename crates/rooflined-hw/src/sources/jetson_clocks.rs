//! Whether somebody locked the clocks with NVIDIA's jetson_clocks, by what it leaves in files that all may read.

use super::CPUS;
use super::cpufreq::CPUFREQ;
use super::tegra_gpu::bases;
use crate::SysRoot;
use crate::answers::{Answers, EACH_SECOND, File, SOMETIMES};
use crate::source::{DiscoveryContext, Source};
use crate::state::{StateBuilder, detail};
use rooflined_core::board::details::ClockLocks;
use rooflined_core::board::{Reading, parse, parse::details as text};
use rooflined_core::units::Hertz;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct JetsonClocks {
    is_tegra: bool,
    /// Why it is none.
    no_tegra: String,
    policies: Vec<String>,
    gpu: Option<String>,
    /// Files that say whether an idle state is disabled.
    idle: Vec<String>,
    /// File that says whether the GPU is kept awake.
    control: Option<String>,
}

impl Source for JetsonClocks {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let root = context.root;
        if context.chip.is_none() {
            return Some(Self {
                is_tegra: false,
                no_tegra: context.no_tegra.clone(),
                policies: Vec::new(),
                gpu: None,
                idle: Vec::new(),
                control: None,
            });
        }
        let policies =
            root.numbered(CPUFREQ, "policy").into_iter().map(|(_, name)| format!("{CPUFREQ}/{name}"));
        let gpu = context.gpu.as_ref().map(|gpu| gpu.dir.clone());
        // What holds for the first CPU, which is always online, holds for all.
        let idle = root.numbered(&format!("{CPUS}/cpu0/cpuidle"), "state").into_iter();
        let idle = idle.map(|(_, state)| format!("{CPUS}/cpu0/cpuidle/{state}/disable"));
        let mut controls =
            bases(root, gpu.as_deref()).into_iter().map(|base| format!("{base}/power/control"));
        Some(Self {
            is_tegra: true,
            no_tegra: String::new(),
            policies: policies.collect(),
            idle: idle.take(8).collect(),
            control: controls.find(|path| context.has(path)),
            gpu,
        })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        let cpus = (!self.policies.is_empty()).then(|| format!("{CPUFREQ}/policy*/scaling_{{min,max}}_freq"));
        let gpu = self.gpu.as_ref().map(|dir| format!("{dir}/{{min,max}}_freq"));
        let idle = (!self.idle.is_empty()).then(|| format!("{CPUS}/cpu0/cpuidle/state*/disable"));
        let all = [cpus, gpu, idle, self.control.clone()];
        all.into_iter().flatten().map(|files| ("jetson_clocks", files)).collect()
    }

    fn files(&self) -> Vec<File> {
        let dirs =
            self.policies.iter().map(|dir| (dir, "scaling_")).chain(self.gpu.iter().map(|dir| (dir, "")));
        let clocks = dirs.flat_map(|(dir, prefix)| {
            [
                File::of_driver(format!("{dir}/{prefix}max_freq")),
                File::of_driver(format!("{dir}/{prefix}min_freq")).every(EACH_SECOND),
            ]
        });
        let settings =
            self.idle.iter().chain(&self.control).map(|path| File::of_driver(path).every(SOMETIMES));
        clocks.chain(settings).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        if !self.is_tegra {
            let none = format!("only Jetsons have jetson_clocks: {}", self.no_tegra);
            return detail!(state.jetson_clocks = Reading::absent(none), None);
        }
        let range = |dir: &String, prefix: &str, parse: fn(&str) -> Option<Hertz>| {
            let clock = |end: &str| {
                let path = format!("{dir}/{prefix}{end}_freq");
                answers.value(&path, "a clock", parse).known().copied()
            };
            Some((clock("min")?, clock("max")?))
        };
        let idle: Vec<bool> = self
            .idle
            .iter()
            .filter_map(|path| answers.value(path, "0 or 1", text::switch).known().copied())
            .collect();
        let control = self.control.as_ref().and_then(|path| parse::label(answers.text(path).ok()?));
        let locks = ClockLocks {
            // The directory of a policy whose CPUs are all offline does not answer.
            cpus: self.policies.iter().filter_map(|dir| range(dir, "scaling_", parse::kilohertz)).collect(),
            gpu: self.gpu.as_ref().and_then(|dir| range(dir, "", parse::hertz)),
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
    }
}
