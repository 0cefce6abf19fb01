//! What to do about a cause, as far as it can be done on this machine.

use rooflined_core::board::GpuDriver;
use rooflined_core::hardware::Kind;
use rooflined_core::units::Hertz;
use rooflined_predict::snapshot::{ModeView, Snapshot};

/// Machines by what sets their clocks and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// nvpmodel and jetson_clocks.
    Tegra,
    /// nvidia-smi, but no limit of power.
    Gb10,
    /// nvidia-smi.
    Card,
    /// Neither.
    Plain,
}

impl Machine {
    pub fn of(snapshot: &Snapshot) -> Self {
        let (board, hardware) = (&snapshot.board, snapshot.hardware.as_deref());
        let gpu = board.gpu.known();
        if hardware.is_some_and(|of| of.key == "gb10") {
            Self::Gb10
        } else if board.module.known().is_some()
            || gpu.is_some_and(|gpu| gpu.driver == GpuDriver::Devfreq)
            || hardware.is_some_and(|of| of.kind == Kind::Integrated)
        {
            Self::Tegra
        } else if gpu.is_some() {
            Self::Card
        } else {
            Self::Plain
        }
    }
}

/// Which power mode a remedy enters.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// The present one again.
    Same,
    /// The next one with more arithmetic at its clocks and units, or with less.
    Faster,
    Slower,
    /// The next one whose CPU cores are faster.
    FasterCpu,
    /// The next one that leaves more CPUs online.
    MoreCpus,
}

/// The command that enters that mode; `None` if no mode is like this, or if the active mode is unknown.
pub(super) fn enter_mode(snapshot: &Snapshot, target: Target) -> Option<String> {
    let active = snapshot.state.power_mode.known()?;
    let present = snapshot.modes.iter().find(|view| view.mode.is(active))?;
    let speed = |view: &ModeView| match target {
        Target::FasterCpu => view.mode.cpu_max.map_or(0.0, Hertz::get),
        Target::MoreCpus => view.mode.cores_online.map_or(0.0, f64::from),
        _ => view.roofline.compute.values().map(|peak| peak.value.get()).fold(0.0, f64::max),
    };
    let others = snapshot.modes.iter().map(|view| (speed(view), view));
    let is = speed(present);
    let by_speed = |a: &(f64, &ModeView), b: &(f64, &ModeView)| a.0.total_cmp(&b.0);
    let chosen = match target {
        Target::Same => Some((is, present)),
        Target::Slower => others.filter(|of| of.0 < is).max_by(by_speed),
        Target::Faster | Target::FasterCpu | Target::MoreCpus => {
            others.filter(|of| of.0 > is).min_by(by_speed)
        }
    };
    chosen.map(|(_, view)| format!("sudo rooflinectl mode set {}", view.mode.name))
}

/// `first`, and `what` with the command where the machine has a mode to enter.
fn or_mode(snapshot: &Snapshot, first: &str, what: &str, target: Target) -> String {
    match (enter_mode(snapshot, target), first) {
        (Some(command), "") => format!("{what}: {command}"),
        (Some(command), _) => format!("{first}, or {what}: {command}"),
        (None, _) => first.to_owned(),
    }
}

pub(super) fn of_heat(snapshot: &Snapshot) -> String {
    or_mode(snapshot, "clean the fan and give it air", "enter a slower mode", Target::Slower)
}

pub(super) fn of_supply(snapshot: &Snapshot) -> String {
    match Machine::of(snapshot) {
        // Not every driver tells whether clocks are locked.
        Machine::Gb10 => {
            "use the supply that came with it, and unplug it from the wall for a minute: it negotiates its power at the start. If somebody locked the clocks: sudo nvidia-smi --reset-gpu-clocks"
        }
        Machine::Plain => "use a supply and a cable that deliver enough power, and unplug what it feeds by USB",
        Machine::Tegra | Machine::Card => {
            "use the supply that came with it, and unplug it from the wall for a minute: it negotiates its power at the start"
        }
    }
    .to_owned()
}

pub(super) fn of_current(snapshot: &Snapshot) -> String {
    let first = "lower the load or the clocks, because the supply or a regulator is at its limit";
    or_mode(snapshot, first, "enter a slower mode", Target::Slower)
}

pub(super) fn of_power_limit(snapshot: &Snapshot) -> String {
    match Machine::of(snapshot) {
        Machine::Card => match snapshot.hardware.as_deref().and_then(|hardware| hardware.tdp) {
            Some(stated) => format!("set its own limit: sudo nvidia-smi -pl {:.0}", stated.get()),
            None => "nvidia-smi -q -d POWER shows the range; then: sudo nvidia-smi -pl WATTS".to_owned(),
        },
        Machine::Gb10 => of_supply(snapshot),
        Machine::Tegra | Machine::Plain => match enter_mode(snapshot, Target::Faster) {
            Some(command) => format!("enter a mode with more power: {command}"),
            None if snapshot.board.modes.known().is_some() => {
                "no faster mode draws more power: lower the load".to_owned()
            }
            None => "raise the power cap in the firmware's setup, or in the file that the evidence names"
                .to_owned(),
        },
    }
}

/// Of a clock that is low for no reason that a sensor names, and was `expected`.
pub(super) fn of_clock(snapshot: &Snapshot, expected: Option<Hertz>) -> String {
    match (Machine::of(snapshot), expected) {
        (Machine::Tegra, _) => "sudo jetson_clocks".to_owned(),
        (Machine::Gb10 | Machine::Card, Some(clock)) => {
            format!("sudo nvidia-smi --lock-gpu-clocks={:.0}", clock.get() / 1e6)
        }
        (Machine::Gb10 | Machine::Card, None) => "sudo nvidia-smi --lock-gpu-clocks=MHZ".to_owned(),
        (Machine::Plain, _) => {
            "see what the kernel and the sensors say: sudo dmesg | grep -i throttl; rooflinectl status --all"
                .to_owned()
        }
    }
}

/// Of a state that no sensor shows: firmware and regulators keep theirs over a restart of the programs.
pub(super) fn of_slow_state(snapshot: &Snapshot) -> String {
    match Machine::of(snapshot) {
        Machine::Tegra | Machine::Gb10 => {
            "shut it down, unplug it from the wall for a minute, and start it with the supply that came with it"
        }
        Machine::Card | Machine::Plain => {
            "sudo reboot; if it stays: calibrate again where the machine itself has changed (rooflinectl calibrate --wait)"
        }
    }
    .to_owned()
}

/// Of a cap on the GPU's clock that `source` shows; without one it would be at `hertz`.
pub(super) fn of_gpu_cap(snapshot: &Snapshot, source: &str, hertz: f64) -> String {
    if Machine::of(snapshot) != Machine::Tegra {
        return "sudo nvidia-smi --reset-gpu-clocks".to_owned();
    }
    let is_file = source.starts_with('/') && !source.contains(", ");
    let write = if is_file { format!("echo {hertz:.0} | sudo tee {source}") } else { String::new() };
    match or_mode(snapshot, &write, "enter the mode again", Target::Same) {
        nothing if nothing.is_empty() => "raise max_freq of the GPU in /sys/class/devfreq".to_owned(),
        fix => fix,
    }
}

pub(super) fn of_memory_cap(snapshot: &Snapshot) -> String {
    let first = match Machine::of(snapshot) {
        Machine::Tegra => "sudo jetson_clocks",
        Machine::Gb10 | Machine::Card => "sudo nvidia-smi --reset-memory-clocks",
        Machine::Plain => "raise max_freq of the memory controller in /sys/class/devfreq",
    };
    or_mode(snapshot, first, "enter the mode again, which sets the cap of the memory clock", Target::Same)
}

/// Of SMs that are off.
pub(super) fn of_gated_sms(snapshot: &Snapshot) -> String {
    let is_divided = snapshot.board.gpu.known().is_some_and(|gpu| gpu.parts.is_divided);
    match snapshot.board.modes.known() {
        _ if is_divided => "use a larger instance, or none: sudo nvidia-smi -mig 0".to_owned(),
        Some(_) => {
            let open = snapshot.modes.iter().max_by_key(|view| view.mode.sm_online);
            let name = open.map_or("MODE", |view| view.mode.name.as_str());
            format!("a mode gates them until the next boot: sudo rooflinectl mode set {name}, then reboot")
        }
        None => {
            "the mask that the evidence names gates them: it has to be set at boot, before the GPU is used"
                .to_owned()
        }
    }
}

/// Of a cap on the clock of the CPU's cores; without one it would be at `hertz`.
pub(super) fn of_cpu_cap(snapshot: &Snapshot, hertz: f64) -> String {
    let first = format!("sudo cpupower frequency-set --max {:.0}MHz", hertz / 1e6);
    or_mode(snapshot, &first, "enter a mode with faster cores", Target::FasterCpu)
}

/// Of CPUs that stay slow under load without a cap.
pub(super) fn of_cpu_clock(snapshot: &Snapshot) -> String {
    or_mode(
        snapshot,
        "let the governor raise it: sudo cpupower frequency-set --governor performance; if it stays, it is hot or at a power limit: rooflinectl status --all",
        "enter a mode with faster cores",
        Target::FasterCpu,
    )
}

pub(super) fn of_offline_cpus(snapshot: &Snapshot) -> String {
    or_mode(
        snapshot,
        "echo 1 | sudo tee /sys/devices/system/cpu/cpu*/online",
        "enter a mode with more",
        Target::MoreCpus,
    )
}

/// Of other processes on the GPU.
pub(super) fn of_sharing(snapshot: &Snapshot) -> String {
    let list = match Machine::of(snapshot) {
        Machine::Gb10 | Machine::Card => "nvidia-smi",
        Machine::Tegra | Machine::Plain => "rooflinectl status --all",
    };
    format!("end those that you do not need, or run one after the other: {list} lists them")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::machine::suspects;
    use super::*;
    use rooflined_api::RunEvidence;
    use rooflined_core::board::details::GpuProcess;
    use rooflined_core::board::{ActiveMode, OperatingPoint, Reading, Throttle};
    use rooflined_core::hardware::registry;
    use rooflined_core::units::Hertz;

    fn server() -> RunEvidence {
        RunEvidence { pid: Some(7), ..RunEvidence::default() }
    }

    /// A machine on which everything is low that can be.
    fn slow(key: &str, has_modes: bool, evidence: &str) -> Snapshot {
        let mut snapshot = Snapshot::hypothetical(Arc::new(registry().get(key).unwrap().clone()));
        if key == "cpu" {
            snapshot.board.gpu = Reading::absent("no NVIDIA GPU");
        }
        if !has_modes {
            snapshot.board.modes = Reading::absent("no /etc/nvpmodel.conf");
            snapshot.state.power_mode = Reading::absent("no modes");
        } else if let Reading::Known(modes) = &snapshot.board.modes {
            let last = modes.modes.last().unwrap();
            snapshot.state.power_mode = Reading::Known(ActiveMode { id: last.id, name: last.name.clone() });
        }
        let state = &mut snapshot.state;
        state.throttle = Reading::Known(Throttle { active: true, evidence: vec![evidence.to_owned()] });
        state.gpu_clock = Reading::Known(Hertz(200e6));
        state.gpu_load = Reading::Known(0.9);
        snapshot.busy_clocks.gpu = Some(Hertz(200e6));
        let state = &mut snapshot.state;
        state.memory_clock_cap = Reading::Known(Hertz(600e6));
        state.sm_online = Reading::Known(2);
        state.cpu_clock_cap = Reading::Known(Hertz(700e6));
        state.cores_online = Reading::Known(2);
        let process = |pid| GpuProcess {
            pid,
            name: Reading::Known("llama".into()),
            memory: Reading::absent("not told"),
        };
        state.details.gpu_processes = Reading::Known(vec![process(7), process(8)]);
        snapshot
    }

    fn remedies(snapshot: &Snapshot) -> Vec<String> {
        let expected = OperatingPoint {
            gpu_clock: Some(Hertz(1e9)),
            memory_clock: Some(Hertz(2e9)),
            sm_online: Some(8),
            cpu_clock: Some(Hertz(2e9)),
            cores_online: Some(8),
            ..OperatingPoint::default()
        };
        let found = suspects(snapshot, &expected, &server());
        assert!(!found.is_empty());
        found.into_iter().map(|suspect| suspect.fix).collect()
    }

    /// The key, whether it has power modes, and what no remedy may name there.
    const MACHINES: [(&str, bool, &[&str]); 9] = [
        ("cpu", false, &["jetson_clocks", "nvidia-smi", "mode set"]),
        ("h100-sxm", false, &["jetson_clocks", "mode set"]),
        ("rtx-4090", false, &["jetson_clocks", "mode set"]),
        ("gb10", false, &["jetson_clocks", "mode set", "-pl"]),
        ("jetson-orin-nano-8gb-super", true, &["nvidia-smi"]),
        ("jetson-orin-nano-8gb-super", false, &["nvidia-smi", "mode set"]),
        ("jetson-agx-orin-64gb", true, &["nvidia-smi"]),
        ("igx-thor", false, &["nvidia-smi", "mode set"]),
        ("jetson-xavier-nx", false, &["nvidia-smi", "mode set"]),
    ];

    #[test]
    fn a_remedy_can_be_applied_on_the_machine_that_it_is_for() {
        for (key, has_modes, impossible) in MACHINES {
            for evidence in [
                "the firmware says: throttled (/sys/devices/platform/soc/soc:firmware/get_throttled holds 4)",
                "the firmware says: under-voltage (/sys/devices/platform/soc/soc:firmware/get_throttled holds 1)",
                "cpu-throttle-alert is at 1 (/sys/class/thermal/cooling_device3/cur_state)",
                "NVML names as reason for a lower clock: power cap",
                "3 more over-current events",
                "something else",
            ] {
                for with_cap in [false, true] {
                    let mut snapshot = slow(key, has_modes, evidence);
                    if with_cap {
                        snapshot.state.throttle = Reading::absent("no sensor");
                        snapshot.state.gpu_clock_cap = Reading::Known(Hertz(300e6));
                    }
                    for fix in remedies(&snapshot) {
                        let named = impossible.iter().find(|tool| fix.contains(**tool));
                        assert_eq!(named, None, "{key}, {evidence}: {fix}");
                        assert!(!fix.trim().is_empty(), "{key}, {evidence}");
                        assert!(
                            !fix.ends_with(" MODE") && !fix.contains(" MODE,"),
                            "{key}, {evidence}: {fix}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_mode_to_enter_is_the_next_slower_or_faster_one() {
        let mut snapshot = slow("jetson-orin-nano-8gb-super", true, "");
        let targets = [Target::Slower, Target::Same, Target::Faster];
        for (name, expected) in [
            ("7W", [None, Some("7W"), Some("15W")]),
            ("15W", [Some("7W"), Some("15W"), Some("25W")]),
            ("MAXN_SUPER", [Some("25W"), Some("MAXN_SUPER"), None]),
        ] {
            snapshot.state.power_mode = Reading::Known(snapshot.mode(name).unwrap().mode.key());
            let expected = expected.map(|mode| mode.map(|mode| format!("sudo rooflinectl mode set {mode}")));
            assert_eq!(targets.map(|target| enter_mode(&snapshot, target)), expected, "{name}");
        }
    }

    /// A clock below the cap is the heat's; one at the cap may be either's, and then both are to be undone.
    #[test]
    fn a_users_cap_shows_while_the_board_is_hot() {
        let evidence = "cpu-throttle-alert is at 1 (/sys/class/thermal/cooling_device3/cur_state)";
        let file = "/sys/class/devfreq/17000000.gpu/max_freq";
        let named = |cap: f64, busy: f64| {
            let mut snapshot = slow("jetson-orin-nano-8gb-super", false, evidence);
            snapshot.state.gpu_clock_cap = Reading::Known(Hertz(cap));
            snapshot.busy_clocks.gpu = Some(Hertz(busy));
            snapshot.board.sources.insert("state.gpu_clock_cap".into(), file.into());
            let expected = OperatingPoint { gpu_clock: Some(Hertz(1e9)), ..OperatingPoint::default() };
            let found = suspects(&snapshot, &expected, &server());
            let of_clock =
                found.into_iter().filter(|suspect| ["thermal", "gpu_clock_cap"].contains(&suspect.key));
            of_clock.map(|suspect| (suspect.key, suspect.fix)).collect::<Vec<_>>()
        };
        let keys: Vec<&str> = named(6e8, 4e8).iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["gpu_clock_cap", "thermal"]);
        let [("thermal", fix)] = &named(4e8, 4e8)[..] else { panic!("{:?}", named(4e8, 4e8)) };
        assert!(fix.contains("if the cap stays when it is cool") && fix.contains(file), "{fix}");
    }

    #[test]
    fn a_raspberry_pi_that_throttles_without_under_voltage_is_hot() {
        let fix = |evidence: &str| remedies(&slow("cpu", false, evidence)).pop().unwrap();
        assert_eq!(fix("the firmware says: the CPU's clock is capped"), "clean the fan and give it air");
        assert!(fix("the firmware says: under-voltage").starts_with("use a supply and a cable"));
    }

    #[test]
    fn a_cap_of_the_gpus_clock_is_raised_in_its_file() {
        let mut snapshot = slow("jetson-orin-nano-8gb-super", false, "");
        snapshot.state.throttle = Reading::absent("no sensor");
        snapshot.state.gpu_clock_cap = Reading::Known(Hertz(300e6));
        let file = "/sys/class/devfreq/17000000.gpu/max_freq";
        snapshot.board.sources.insert("state.gpu_clock_cap".into(), file.into());
        let fixes = remedies(&snapshot);
        assert!(fixes.contains(&format!("echo 1000000000 | sudo tee {file}")), "{fixes:?}");
    }
}
