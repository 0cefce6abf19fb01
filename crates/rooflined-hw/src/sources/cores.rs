//! Each logical CPU: how busy it is, and what its clock may be.
//!
//! ```text
//! /sys/devices/system/cpu/cpufreq/policyN/  related_cpus  scaling_min_freq  scaling_max_freq (kHz)  scaling_governor
//! ```

use super::cpufreq::{CPUFREQ, policies};
use super::online;
use crate::STAT;
use crate::answers::{Answers, EACH_SECOND, File, SOMETIMES};
use crate::hidden::Hidden;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::Core;
use rooflined_core::board::parse::{self, CpuTimes};
use rooflined_core::board::{Reading, parse::details as text};

struct Cores {
    policies: Vec<Policy>,
    last: Vec<(u32, CpuTimes)>,
    hidden: Hidden,
}

struct Policy {
    dir: String,
    cpus: Vec<u32>,
}

impl Policy {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let policies = policies(context.root).into_iter().map(|(dir, cpus)| Policy { dir, cpus });
    let hidden = Hidden::under(context.root);
    let mut source = Cores { policies: policies.collect(), last: Vec::new(), hidden };
    if context.root.path(STAT).is_file() {
        plan.add_origin("cores", STAT);
    }
    if !source.policies.is_empty() {
        plan.add_origin("cores", format!("{CPUFREQ}/policy*/scaling_{{min_freq,max_freq,governor}}"));
    }
    for policy in &source.policies {
        plan.read([
            File::of_driver(policy.file("scaling_max_freq")),
            File::of_driver(policy.file("scaling_min_freq")).every(EACH_SECOND),
            File::of_driver(policy.file("scaling_governor")).every(SOMETIMES),
        ]);
    }
    plan.read(online::files());
    found(move |answers, state| {
        let times = answers.text(STAT).map(text::core_times).unwrap_or_default();
        let before = std::mem::replace(&mut source.last, times);
        let cores = online::online(answers).map(|online| {
            let limits: Vec<Limits> = source.policies.iter().map(|policy| policy.read(answers)).collect();
            online.into_iter().map(|cpu| source.core(cpu, &before, &limits)).collect()
        });
        detail!(state.cores = cores, None);
    })
}

struct Limits {
    min: Reading<rooflined_core::units::Hertz>,
    cap: Reading<rooflined_core::units::Hertz>,
    governor: Reading<String>,
}

impl Policy {
    fn read(&self, answers: &Answers<'_>) -> Limits {
        let clock = |name: &str| answers.value(&self.file(name), "a clock in kHz", parse::kilohertz);
        Limits {
            min: clock("scaling_min_freq"),
            cap: clock("scaling_max_freq"),
            governor: answers.value(&self.file("scaling_governor"), "a governor", text::word),
        }
    }
}

impl Cores {
    fn core(&self, cpu: u32, before: &[(u32, CpuTimes)], limits: &[Limits]) -> Core {
        let of = |times: &[(u32, CpuTimes)]| {
            times.iter().find(|(number, _)| *number == cpu).map(|(_, times)| *times)
        };
        let busy_ratio = match (of(&self.last), of(before)) {
            (None, _) => self.hidden.explain(Reading::absent(format!("{STAT} has no line of cpu{cpu}"))),
            (Some(_), None) => Reading::absent("the busy part needs a second sample"),
            (Some(now), Some(before)) => now.ratios_since(&before).map_or_else(
                || Reading::absent("no time has passed since the sample before"),
                |(busy, _)| Reading::Known(busy),
            ),
        };
        let policy = self.policies.iter().position(|policy| policy.cpus.contains(&cpu));
        let Some(limits) = policy.and_then(|index| limits.get(index)) else {
            let none = format!("no {CPUFREQ}/policy* is for cpu{cpu}");
            return Core {
                cpu,
                busy_ratio,
                min_clock: self.hidden.explain(Reading::absent(&none)),
                clock_cap: self.hidden.explain(Reading::absent(&none)),
                governor: self.hidden.explain(Reading::absent(none)),
            };
        };
        Core {
            cpu,
            busy_ratio,
            min_clock: limits.min.clone(),
            clock_cap: limits.cap.clone(),
            governor: limits.governor.clone(),
        }
    }
}
