//! Clocks of the CPUs and the caps on them.
//!
//! ```text
//! /sys/devices/system/cpu/cpufreq/policyN/  related_cpus  scaling_cur_freq  scaling_max_freq  cpuinfo_max_freq (kHz)
//! ```

use super::online;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::{Reading, parse};
use rooflined_core::units::Hertz;

pub(super) const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

/// Why there is no policy: hidden, not readable, or not there.
fn none(root: &SysRoot) -> String {
    const CPUS: &str = "/sys/devices/system/cpu";
    let refused = |dir: &str| {
        let error = std::fs::read_dir(root.path(dir)).err()?;
        (error.kind() != std::io::ErrorKind::NotFound).then(|| format!("{dir} cannot be read: {error}"))
    };
    if let Some(why) = refused(CPUS).or_else(|| refused(CPUFREQ)) {
        return why;
    }
    if !root.path(CPUS).is_dir() {
        return format!("no {CPUS} is visible here: a container hides it");
    }
    format!("no {CPUFREQ}/policy*: no cpufreq driver is loaded, or a hypervisor or container hides it")
}

struct Cpufreq {
    policies: Vec<Policy>,
    /// Why there is no policy.
    none: String,
}

/// A directory of cpufreq, and the CPUs that share its clock.
struct Policy {
    current: String,
    cap: String,
    /// Online or not.
    cpus: Vec<u32>,
}

/// The directories of cpufreq, each with the CPUs that share its clock.
pub(super) fn policies(root: &SysRoot) -> Vec<(String, Vec<u32>)> {
    let policies = root.numbered(CPUFREQ, "policy").into_iter().map(|(number, name)| {
        let dir = format!("{CPUFREQ}/{name}");
        let cpus = root.read(&format!("{dir}/related_cpus")).ok();
        let cpus = cpus
            .and_then(|text| parse::cpu_list(&text.split_ascii_whitespace().collect::<Vec<_>>().join(",")));
        (dir, cpus.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![number]))
    });
    policies.collect()
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let policies = policies(context.root).into_iter().map(|(dir, cpus)| Policy {
        current: format!("{dir}/scaling_cur_freq"),
        cap: format!("{dir}/scaling_max_freq"),
        cpus,
    });
    let source = Cpufreq { policies: policies.collect(), none: none(context.root) };
    if !source.policies.is_empty() {
        plan.add_origin("cpu_clocks", format!("{CPUFREQ}/policy*/scaling_cur_freq"));
        plan.add_origin("cpu_clock_cap", format!("{CPUFREQ}/policy*/scaling_max_freq"));
    }
    plan.read(source.policies.iter().map(|policy| File::of_driver(&policy.current)));
    plan.read(source.policies.iter().map(|policy| File::of_driver(&policy.cap)));
    plan.read(online::files());
    found(move |answers, state| {
        state.set(|state| &mut state.cpu_clocks, source.clocks(answers));
        state.set(|state| &mut state.cpu_clock_cap, source.cap(answers));
    })
}

impl Cpufreq {
    /// One clock for each online CPU. A policy that does not answer spoils the list, which has no place for a gap.
    fn clocks(&self, answers: &Answers<'_>) -> Reading<Vec<Hertz>> {
        if self.policies.is_empty() {
            return Reading::absent(&self.none);
        }
        let online = match online::online(answers) {
            Reading::Known(online) => online,
            Reading::Absent { reason } | Reading::Failed { reason } => return Reading::failed(reason),
        };
        let mut clocks: Vec<(u32, Hertz)> = Vec::with_capacity(online.len());
        for policy in &self.policies {
            let cpus: Vec<u32> = policy.cpus.iter().copied().filter(|cpu| online.contains(cpu)).collect();
            // A policy whose CPUs are all offline does not answer, and need not.
            if cpus.is_empty() {
                continue;
            }
            match clock(&policy.current, answers) {
                Reading::Known(clock) => clocks.extend(cpus.into_iter().map(|cpu| (cpu, clock))),
                other => return other.map(|_| Vec::new()),
            }
        }
        if clocks.is_empty() {
            return Reading::failed("no policy of /sys/devices/system/cpu/cpufreq is for an online CPU");
        }
        clocks.sort_by_key(|(cpu, _)| *cpu);
        Reading::Known(clocks.into_iter().map(|(_, clock)| clock).collect())
    }

    /// The highest cap of the policies that answer.
    fn cap(&self, answers: &Answers<'_>) -> Reading<Hertz> {
        let caps = self.policies.iter().map(|policy| clock(&policy.cap, answers));
        caps.fold(Reading::absent(&self.none), |highest, cap| match (highest, cap) {
            (Reading::Known(a), Reading::Known(b)) => Reading::Known(a.max(b)),
            (Reading::Known(a), _) => Reading::Known(a),
            (_, cap) => cap,
        })
    }
}

fn clock(path: &str, answers: &Answers<'_>) -> Reading<Hertz> {
    answers.value(path, "a clock in kHz", parse::kilohertz)
}

/// The highest clock that the policies admit, and the files that tell.
pub(crate) fn max_clock(root: &SysRoot) -> Reading<(Hertz, String)> {
    let mut reason = None;
    let clocks = root.numbered(CPUFREQ, "policy").into_iter().filter_map(|(_, policy)| {
        let file = format!("{CPUFREQ}/{policy}/cpuinfo_max_freq");
        let clock = crate::parsed(&file, root.read(&file), "a clock in kHz", parse::kilohertz);
        reason = reason.take().or_else(|| clock.reason().map(str::to_owned));
        clock.known().copied()
    });
    let highest = clocks.reduce(Hertz::max);
    highest.map_or_else(
        || Reading::absent(reason.unwrap_or_else(|| none(root))),
        |clock| Reading::Known((clock, format!("{CPUFREQ}/policy*/cpuinfo_max_freq"))),
    )
}

/// The clocks that the policies can have, ascending; empty where one does not tell.
pub(crate) fn clocks(root: &SysRoot) -> Vec<Hertz> {
    let tables: Option<Vec<String>> = root
        .numbered(CPUFREQ, "policy")
        .into_iter()
        .map(|(_, policy)| root.read(&format!("{CPUFREQ}/{policy}/scaling_available_frequencies")).ok())
        .collect();
    let texts = tables.unwrap_or_default();
    let mut clocks: Vec<Hertz> =
        texts.iter().flat_map(|text| text.split_ascii_whitespace()).filter_map(parse::kilohertz).collect();
    clocks.sort_by(|a, b| a.get().total_cmp(&b.get()));
    clocks.dedup();
    clocks
}
