//! Which rails make up the power of the whole machine. Boards differ, and a sum over all rails counts twice.

use super::rail::Metered;
use roofline::board::{MeterRead, Reading, TotalPower};
use roofline::units::Watts;

/// Why a machine has no rails.
pub(super) const NO_METER: &str = "no power sensor: no power*_input or energy*_input in /sys/class/hwmon/hwmon*, \
                                   no energy_uj in /sys/class/powercap";

/// The rails to add, and what their sum covers: `module`, `system` or `package`.
struct Rule<'a> {
    rails: Vec<&'a Metered>,
    scope: &'static str,
}

/// AGX Orin measures three inputs of the module. VDDQ_VDD2_1V8AO is fed from VIN_SYS_5V0, so it is in it already. What the
/// sensors of an IGX carrier see (CVB_ATX_…) feeds the module among others: beside its rails it would count twice.
const AGX_ORIN: [&str; 3] = ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"];

/// The rule for a machine with these rails; `None` where none is known, as for AGX Xavier, of whose rails it is not
/// known which feed which.
fn rule(rails: &[Metered]) -> Option<Rule<'_>> {
    let one =
        |wanted: &dyn Fn(&Metered) -> bool| rails.iter().find(|rail| wanted(rail)).map(|rail| vec![rail]);
    let input = |scope, rails: Option<Vec<_>>| Some(Rule { rails: rails?, scope });
    let named = |name: &str| rails.iter().find(|metered| metered.rail.name == name);
    // Thor: its INA3221 sees only parts of what the INA238 at the input sees. A carrier may have another.
    input("module", one(&|of| of.device == "ina238" && of.rail.name == "VIN"))
        .or_else(|| input("module", one(&|of| of.device == "ina238")))
        .or_else(|| input("system", one(&|of| of.device == "spbm" && of.rail.name == "sys_total")))
        .or_else(|| input("module", one(&|of| of.device.starts_with("ina3221") && of.rail.name == "VDD_IN")))
        .or_else(|| input("module", AGX_ORIN.into_iter().map(named).collect()))
        .or_else(|| input("system", one(&|of| of.rail.name == "psys")))
        // ACPI's power meter stands at the supply, where a server has one.
        .or_else(|| input("system", one(&|of| of.device == "power_meter")))
        .or_else(|| {
            let packages: Vec<&Metered> = rails.iter().filter(|of| is_package(of)).collect();
            input("package", (!packages.is_empty()).then_some(packages))
        })
}

/// `package-0` of RAPL, but none of its parts such as `package-0/core`; a socket of amd_energy; fam15h_power.
fn is_package(of: &Metered) -> bool {
    let numbered = |prefix| {
        let number = of.rail.name.strip_prefix(prefix);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match of.device.as_str() {
        "amd_energy" => numbered("Esocket"),
        "fam15h_power" => true,
        _ => numbered("package-"),
    }
}

pub(super) struct GpuPower {
    pub meter: &'static str,
    pub power: Reading<Watts>,
    pub read: MeterRead,
}

/// The total from what the rails read now. A processor's package is not the machine where a GPU does the work, so the
/// power of that counts then.
pub(super) fn total(rails: &[Metered], gpu: Option<&GpuPower>) -> Reading<TotalPower> {
    let rule = rule(rails);
    match (rule, gpu) {
        (Some(rule), gpu) if gpu.is_none() || rule.scope != "package" => sum(&rule),
        (_, Some(gpu)) => gpu.power.clone().map(|power| TotalPower {
            power,
            rails: vec![gpu.meter.into()],
            scope: "gpu".into(),
            read: Some(gpu.read),
        }),
        (_, None) if rails.is_empty() => Reading::absent(NO_METER),
        (_, None) => Reading::absent("no rule says which rails make up this machine"),
    }
}

/// The offsets of sensors together stay above this. Below it one is mounted in reverse, or damaged.
const LOWEST: Watts = Watts(-1.0);

/// A rail that does not answer spoils it.
fn sum(rule: &Rule<'_>) -> Reading<TotalPower> {
    let mut power = Watts::ZERO;
    let mut names = Vec::with_capacity(rule.rails.len());
    let mut when: Option<MeterRead> = None;
    for Metered { rail, .. } in &rule.rails {
        match &rail.power {
            Reading::Known(watts) => power += *watts,
            Reading::Absent { reason } => return Reading::absent(reason),
            Reading::Failed { reason } => return Reading::failed(reason),
        }
        when = match (when, rail.read) {
            (Some(all), Some(one)) => Some(MeterRead::with(all, one)),
            (known, None) | (None, known) => known,
        };
        names.push(rail.name.clone());
    }
    if power < LOWEST {
        let names = names.join(" + ");
        return Reading::failed(format!("{names} tells of {power}: no machine draws less than nothing"));
    }
    Reading::Known(TotalPower { power, rails: names, scope: rule.scope.into(), read: when })
}
