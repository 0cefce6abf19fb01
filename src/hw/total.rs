//! Which rails make up the power of the whole machine. Boards differ, and a sum over all rails counts twice.

use super::discover::RailSource;
use crate::board::{MeterRead, Rail, Reading, TotalPower};
use crate::units::Watts;

/// How the power of the whole machine is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalRule {
    /// Indices of the rails to add.
    pub rails: Vec<usize>,
    /// What the sum covers: `module`, `system` or `package`.
    pub scope: &'static str,
}

/// AGX Orin measures three inputs of the module. VDDQ_VDD2_1V8AO is fed from VIN_SYS_5V0, so it is in it already.
const AGX_ORIN: [&str; 3] = ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"];

/// The rule for a machine with these rails; `None` where none is known, as for AGX Xavier, of whose rails it is not
/// known which feed which.
pub(super) fn rule(rails: &[RailSource]) -> Option<TotalRule> {
    let one = |wanted: &dyn Fn(&RailSource) -> bool| rails.iter().position(wanted).map(|index| vec![index]);
    let input = |scope, rails: Option<Vec<usize>>| Some(TotalRule { rails: rails?, scope });
    // Thor: its INA3221 sees only parts of what the INA238 at the input sees.
    input("module", one(&|rail| rail.device == "ina238"))
        .or_else(|| input("system", one(&|rail| rail.device == "spbm" && rail.name == "sys_total")))
        .or_else(|| input("module", one(&|rail| rail.device.starts_with("ina3221") && rail.name == "VDD_IN")))
        .or_else(|| {
            let found = AGX_ORIN.into_iter().map(|name| rails.iter().position(|rail| rail.name == name));
            input("module", found.collect())
        })
        .or_else(|| input("system", one(&|rail| rail.name == "psys")))
        // ACPI's power meter stands at the supply, where a server has one.
        .or_else(|| input("system", one(&|rail| rail.device == "power_meter")))
        .or_else(|| {
            let packages = rails.iter().enumerate();
            let packages: Vec<usize> =
                packages.filter(|(_, rail)| is_package(rail)).map(|(index, _)| index).collect();
            input("package", (!packages.is_empty()).then_some(packages))
        })
}

/// `package-0` of RAPL, but none of its parts such as `package-0/core`; a socket of amd_energy; fam15h_power.
fn is_package(rail: &RailSource) -> bool {
    let numbered = |prefix| {
        let number = rail.name.strip_prefix(prefix);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match rail.device.as_str() {
        "amd_energy" => numbered("Esocket"),
        "fam15h_power" => true,
        _ => numbered("package-"),
    }
}

/// The total by `rule` from what the rails read now; a rail that does not answer spoils it.
pub(super) fn total(rule: Option<&TotalRule>, rails: &Reading<Vec<Rail>>) -> Reading<TotalPower> {
    let read = match rails {
        Reading::Known(rails) => rails,
        Reading::Absent { reason } => return Reading::absent(reason),
        Reading::Failed { reason } => return Reading::failed(reason),
    };
    let Some(rule) = rule else {
        return Reading::absent("no rule says which rails make up this machine");
    };
    let mut power = Watts::ZERO;
    let mut names = Vec::with_capacity(rule.rails.len());
    let mut when: Option<MeterRead> = None;
    for rail in rule.rails.iter().filter_map(|index| read.get(*index)) {
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
    Reading::Known(TotalPower { power, rails: names, scope: rule.scope.into(), read: when })
}
