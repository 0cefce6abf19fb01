//! Which rails make up the power of the whole machine. Boards differ, and a sum over all rails counts twice.

use super::rail::Metered;
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{MeterRead, Reading, TotalPower};
use rooflined_core::units::Watts;

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
/// AGX Xavier measures all that comes in: five supplies behind SYS_VIN_HV, and SYS_VIN_MV as SYS5V. None feeds another (Jetson
/// AGX Xavier product design guide DG-09840, figure 5-14).
const AGX_XAVIER: [&str; 6] = ["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"];
/// The one input of smaller modules: Orin NX and Nano, Xavier NX, TX2; POM_5V_IN is Jetson Nano's.
const INPUTS: [&str; 2] = ["VDD_IN", "POM_5V_IN"];
/// Drivers and rails that see a whole machine: GB10's power controller, Apple's, and a supply that measures.
const SYSTEMS: [(&str, &str); 4] = [
    ("spbm", "sys_total"),
    ("macsmc_hwmon", "Total System Power"),
    ("corsairpsu", "power total"),
    ("ibmpowernv", "System"),
];
/// Drivers that see whole packages, of which one counts: several see the same packages, and the first are exact.
const PACKAGES: [&str; 6] = ["intel-rapl", "amd_energy", "fam15h_power", "zenpower", AMD_APU, "apm_xgene"];
/// What an AMD GPU that shares its package with the CPU is called here: its driver's power is that of both (amdgpu's
/// documentation of `power1_average`).
pub(super) const AMD_APU: &str = "amdgpu of an APU";

/// The rules for a machine with these rails, the best first; none where none is known.
fn rules(rails: &[Metered], chip: Option<Chip>) -> Vec<Rule<'_>> {
    let whole = |(device, name): (&str, &str)| {
        let found = rails.iter().find(|of| of.device == device && of.rail.name == name);
        found.map(|rail| Rule { rails: vec![rail], scope: "system" })
    };
    let packages = PACKAGES.into_iter().filter_map(|driver| {
        some("package", rails.iter().filter(|of| of.device == driver && is_package(of)).collect())
    });
    let packages: Vec<Rule<'_>> = packages.collect();
    // What feeds the package among others draws at least as much.
    let least = packages.iter().find_map(|rule| sum(rule, HIGHEST).known().map(|total| total.power));
    let psys = whole(("intel-rapl", "psys")).filter(|rule| {
        sum(rule, HIGHEST).known().is_none_or(|total| least.is_none_or(|least| total.power >= least))
    });
    chip.and_then(|chip| of_jetson(rails, chip))
        .into_iter()
        .chain(SYSTEMS.into_iter().find_map(whole))
        .chain(of_power_meters(rails))
        .chain(psys)
        .chain(packages)
        .collect()
}

/// Other boards have sensors of the same kinds, and carriers have more of them: an INA238 is Thor's input only on a Thor.
fn of_jetson(rails: &[Metered], chip: Chip) -> Option<Rule<'_>> {
    // Makers of carriers write the labels of their device trees by hand.
    let is = |label: &str, name: &str| label.trim().replace([' ', '-'], "_").eq_ignore_ascii_case(name);
    let named =
        |name: &str| rails.iter().find(|of| of.device.starts_with("ina3221") && is(&of.rail.name, name));
    if chip == Chip::Tegra264 {
        // Its INA3221 sees only parts of what the INA238 at the input sees. The carrier draws from that input too.
        let meters = || rails.iter().filter(|of| of.device == "ina238");
        let input = meters().find(|of| of.rail.name == "VIN").or_else(|| meters().next());
        return some("system", input.into_iter().collect());
    }
    let input = INPUTS.into_iter().find_map(named);
    let all = |names: &[&str]| names.iter().map(|name| named(name)).collect::<Option<Vec<_>>>();
    let rails = input.map(|rail| vec![rail]).or_else(|| all(&AGX_ORIN)).or_else(|| all(&AGX_XAVIER));
    some("module", rails?)
}

fn some<'a>(scope: &'static str, rails: Vec<&'a Metered>) -> Option<Rule<'a>> {
    (!rails.is_empty()).then_some(Rule { rails, scope })
}

/// ACPI's power meters. One alone stands at the supply of the machine. Of several the firmware says what each sees: on
/// NVIDIA Grace `Module Power Socket N` covers CPU, memory and GPU of a socket, `Grace Power Socket N` its CPU and memory
/// (NVIDIA Grace performance tuning guide, power meters of hwmon). Several that say nothing may feed one another.
fn of_power_meters(rails: &[Metered]) -> Option<Rule<'_>> {
    let meters: Vec<&Metered> = rails.iter().filter(|of| of.device == "power_meter").collect();
    let that_say = |word: &str| -> Vec<&Metered> {
        let says = |of: &&&Metered| of.rail.name.to_ascii_lowercase().starts_with(word);
        meters.iter().filter(says).copied().collect()
    };
    let whole = some("module", that_say("module power"));
    let system =
        || ["system", "total", "chassis"].into_iter().find_map(|word| some("system", that_say(word)));
    let part = || ["grace power", "cpu power"].into_iter().find_map(|word| some("package", that_say(word)));
    let alone = || match meters.as_slice() {
        [only] => some("system", vec![*only]),
        _ => None,
    };
    whole.or_else(system).or_else(part).or_else(alone)
}

/// `package-0` of RAPL, or `package-0-die-1` where a package has several dies, but none of their parts such as
/// `package-0/core`; a socket of amd_energy; fam15h_power; zenpower's package, or cores and SoC; an APU by its GPU, whose other
/// figure is for shorter times; cores and the rest of an Altra. What intel-rapl-mmio counts are the same packages once more.
fn is_package(of: &Metered) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let package = |text: &str| match text.split_once("-die-") {
        Some((package, die)) => digits(package) && digits(die),
        None => digits(text),
    };
    match of.device.as_str() {
        "amd_energy" => of.rail.name.strip_prefix("Esocket").is_some_and(digits),
        "fam15h_power" => true,
        "zenpower" => of.rail.name.starts_with("SVI2_P_") || of.rail.name == "RAPL_P_Package",
        AMD_APU => of.rail.name != "fastPPT",
        // Of Ampere's Altra, and `CPU power-…` of a second socket.
        "apm_xgene" => ["CPU power", "IO power"].iter().any(|name| of.rail.name.starts_with(name)),
        _ => of.rail.name.strip_prefix("package-").is_some_and(package),
    }
}

pub(super) struct GpuPower {
    pub meter: &'static str,
    pub power: Reading<Watts>,
    pub read: MeterRead,
}

/// The total from what the rails read now. A processor's package is not the machine where a GPU does the work, so the
/// power of that counts then.
pub(super) fn total(rails: &[Metered], gpu: Option<&GpuPower>, chip: Option<Chip>) -> Reading<TotalPower> {
    let highest = if chip.is_some() { HIGHEST_OF_TEGRA } else { HIGHEST };
    let rules = rules(rails, chip).into_iter().filter(|rule| gpu.is_none() || rule.scope != "package");
    // A meter that is off or damaged does not hide the next one.
    let mut first = None;
    for rule in rules {
        let total = sum(&rule, highest);
        if total.known().is_some() {
            return total;
        }
        first.get_or_insert(total);
    }
    match (first, gpu) {
        (_, Some(gpu)) => gpu.power.clone().map(|power| TotalPower {
            power,
            rails: vec![gpu.meter.into()],
            scope: "gpu".into(),
            read: Some(gpu.read),
        }),
        (Some(unknown), None) => unknown,
        (None, None) if rails.is_empty() => Reading::absent(NO_METER),
        (None, None) => Reading::absent(no_rule(chip)),
    }
}

/// Why rails that are there are no total.
fn no_rule(chip: Option<Chip>) -> String {
    let missing = match chip {
        None => return "no rule says which rails make up this machine".to_owned(),
        Some(Chip::Tegra264) => "no ina238 at the input".to_owned(),
        Some(_) => {
            let all = [AGX_ORIN.join(", "), AGX_XAVIER.join(", ")].join(" or ");
            format!("no {}, nor {all} together", INPUTS.join(" or "))
        }
    };
    format!("no rule says which rails make up this module: {missing}")
}

/// A machine that runs draws more than this. Below it a sensor is off, mounted in reverse or damaged, or in another unit.
const LOWEST: Watts = Watts(0.05);
/// No Tegra draws more, whatever its carrier feeds.
const HIGHEST_OF_TEGRA: Watts = Watts(1000.0);
/// No machine with one system does.
const HIGHEST: Watts = Watts(100_000.0);

/// A rail that does not answer spoils it.
fn sum(rule: &Rule<'_>, highest: Watts) -> Reading<TotalPower> {
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
    if power < LOWEST || power > highest {
        let names = names.join(" + ");
        return Reading::failed(format!(
            "{names} reports {power}, which is implausible for a running machine"
        ));
    }
    Reading::Known(TotalPower { power, rails: names, scope: rule.scope.into(), read: when })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::Rail;

    fn metered(meters: &[(&str, &str, f64)]) -> Vec<Metered> {
        let of = |(device, name, watts): &(&str, &str, f64)| Metered {
            device: (*device).to_owned(),
            place: String::new(),
            rail: Rail {
                name: (*name).to_owned(),
                power: Reading::Known(Watts(*watts)),
                energy: None,
                read: None,
            },
        };
        meters.iter().map(of).collect()
    }

    /// Several drivers see the same packages, and a meter that is off, damaged or below what it feeds hides no other.
    #[test]
    fn a_package_counts_once_and_a_bad_meter_hides_no_good_one() {
        let rapl = ("intel-rapl", "package-0", 91.0);
        for (meters, watts, scope) in [
            (
                vec![("zenpower", "SVI2_P_Core", 45.0), ("zenpower", "SVI2_P_SoC", 17.0), rapl],
                91.0,
                "package",
            ),
            (vec![("amd_energy", "Esocket0", 96.0), rapl], 91.0, "package"),
            (vec![rapl, ("intel-rapl", "package-1", 9.0)], 100.0, "package"),
            (vec![rapl, ("intel-rapl", "psys", 120.0)], 120.0, "system"),
            (vec![rapl, ("intel-rapl", "psys", 1.9)], 91.0, "package"),
            (vec![rapl, ("intel-rapl", "psys", 0.0)], 91.0, "package"),
            (vec![("power_meter", "power1", 4_294_967.295), rapl], 91.0, "package"),
            (vec![("power_meter", "power1", 0.0), rapl], 91.0, "package"),
            (vec![("power_meter", "power1", 228.0), rapl], 228.0, "system"),
        ] {
            let meters = metered(&meters);
            let total = total(&meters, None, None).known().cloned().unwrap();
            assert_eq!((total.power, total.scope.as_str()), (Watts(watts), scope));
        }
        let bad = metered(&[("power_meter", "power1", 0.0)]);
        assert!(
            total(&bad, None, None).reason().unwrap().contains("which is implausible for a running machine")
        );
    }
}
