//! Loads that the probe holds, and energy counters of a processor's package read from a tree of files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use rooflined_core::board::BoardState;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::Seconds;
use rooflined_hw::{self, Sampler, SysRoot};
use rooflined_predict::calibration::{
    Accelerator, GemvCase, Held, Hold, Kernel, Plan, PowerReading, ProbeEvent, Step, Stores, Stream,
    attribute,
};
use tempfile::TempDir;

/// Of Intel's counters: 2^32 units of 61 µJ.
const RANGE_UJ: u64 = 262_143_328_850;
const POWERCAP: &str = "sys/class/powercap";

/// Two packages, one with a part that must not be counted twice.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (zone, name) in
        [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "package-1")]
    {
        let zone = dir.path().join(POWERCAP).join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("max_energy_range_uj"), format!("{RANGE_UJ}\n")).unwrap();
        fs::write(zone.join("energy_uj"), "0\n").unwrap();
    }
    fs::create_dir_all(dir.path().join("proc")).unwrap();
    fs::write(dir.path().join("proc/stat"), "cpu  1 0 0 1 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n").unwrap();
    dir
}

fn count(root: &Path, zone: &str, microjoules: u64) {
    let file = root.join(POWERCAP).join(zone).join("energy_uj");
    fs::write(file, format!("{microjoules}\n")).unwrap();
}

/// Samples every 50 ms of both packages' counters, which start just below where they wrap and gain what `watts` says.
fn samples(root: &TempDir, watts: impl Fn(f64) -> [f64; 2]) -> Vec<BoardState> {
    let system = SysRoot::new(root.path());
    let (_, discovered) = rooflined_hw::discover(&system);
    let mut sampler = Sampler::new(&system, discovered);
    let mut energies = [RANGE_UJ - 9_000_000, 5_000_000];
    (0..60_u32)
        .map(|n| {
            let now = 100.0 + f64::from(n) * 0.05;
            for (energy, watts) in energies.iter_mut().zip(watts(now)) {
                *energy = (*energy + (watts * 0.05 * 1e6) as u64) % (RANGE_UJ + 1);
            }
            count(root.path(), "intel-rapl:0", energies[0]);
            count(root.path(), "intel-rapl:0:0", energies[0] / 2);
            count(root.path(), "intel-rapl:1", energies[1]);
            rooflined_hw::read_state(&mut sampler, Seconds(now))
        })
        .collect()
}

fn readings(samples: &[BoardState]) -> Vec<PowerReading> {
    let reading = |state: &BoardState| {
        let total = state.total_power.known()?;
        let read = total.read?;
        Some(PowerReading { power: total.power, at: read.at, since: read.since, period: read.period })
    };
    samples.iter().filter_map(reading).collect()
}

#[test]
fn the_packages_of_a_machine_are_added_and_a_counter_that_wraps_shows_no_jump() {
    let root = tree();
    // 9 J are left before the first counter wraps, at 7 W and then 60 W: it does so inside the load.
    let samples = samples(&root, |now| if now < 101.0 { [7.0, 5.0] } else { [60.0, 30.0] });
    assert!(samples[0].total_power.known().is_none(), "a counter has no power before its second sample");
    let total = samples[5].total_power.known().unwrap();
    assert_eq!(total.scope, "package");
    assert_eq!(total.rails, ["package-0", "package-1"], "the cores are in the package already");
    let readings = readings(&samples);
    // What a read takes is part of its stamps, so the powers of single readings jitter; their energy does not.
    let load = attribute(&readings, Seconds(101.0), Seconds(102.5)).unwrap();
    assert!((load.power.get() / 90.0 - 1.0).abs() < 0.03, "{load:?}");
    let idle = attribute(&readings, Seconds(100.0), Seconds(100.99)).unwrap();
    assert!((idle.power.get() / 12.0 - 1.0).abs() < 0.03, "{idle:?}");
}

#[test]
fn a_load_between_two_readings_of_a_counter_has_no_power() {
    let root = tree();
    let readings = readings(&samples(&root, |_| [20.0, 20.0]));
    let why = attribute(&readings, Seconds(101.0), Seconds(101.3)).unwrap_err();
    assert!(why.contains("readings of the meter lie inside"), "{why}");
    let earlier = attribute(&readings, Seconds(10.0), Seconds(12.0)).unwrap_err();
    assert!(earlier.contains("0 readings"), "{earlier}");
}

#[test]
fn a_counter_that_is_reset_is_no_power_and_spoils_one_reading_alone() {
    let root = tree();
    let system = SysRoot::new(root.path());
    for zone in ["intel-rapl:0", "intel-rapl:1"] {
        // Without a range nothing tells a wrap from a reset.
        fs::remove_file(root.path().join(POWERCAP).join(zone).join("max_energy_range_uj")).unwrap();
    }
    let (_, discovered) = rooflined_hw::discover(&system);
    let mut sampler = Sampler::new(&system, discovered);
    let mut power = |now: f64, microjoules| {
        count(root.path(), "intel-rapl:0", microjoules);
        count(root.path(), "intel-rapl:1", microjoules);
        rooflined_hw::read_state(&mut sampler, Seconds(now)).total_power
    };
    power(1.0, 9_000_000);
    let reset = power(2.0, 1_000_000);
    assert!(reset.reason().unwrap().contains("went back"), "{reset:?}");
    let after = power(3.0, 11_000_000);
    assert!((after.known().unwrap().power.get() / 20.0 - 1.0).abs() < 0.05, "{after:?}");
}

proptest! {
    /// A counter that stands still has no power, and what it counts at once is that of all the time since it counted last.
    #[test]
    fn the_powers_of_a_counter_add_up_to_its_energy_whenever_it_counts(
        growths in prop::collection::vec(prop::sample::select(vec![0_u64, 0, 0, 1, 5_000_000, 40_000_000]), 1..12),
    ) {
        let root = tree();
        let system = SysRoot::new(root.path());
        let mut sampler = Sampler::new(&system, rooflined_hw::discover(&system).1);
        let (mut count_uj, mut energy_uj) = (1_000_u64, 0.0);
        let mut power = |count_uj, now: usize| {
            count(root.path(), "intel-rapl:0", count_uj);
            let state = sampler.sample(Seconds(now as f64 * 10.0));
            state.rails.known().unwrap()[0].clone()
        };
        power(count_uj, 0);
        for (index, growth) in growths.iter().enumerate() {
            count_uj += growth;
            let rail = power(count_uj, index + 1);
            match rail.power.known() {
                Some(watts) => {
                    prop_assert!(*growth > 0);
                    let read = rail.read.unwrap();
                    energy_uj += watts.get() * (read.at - read.since.unwrap()).get() * 1e6;
                }
                None => {
                    prop_assert_eq!(*growth, 0);
                    prop_assert!(rail.power.reason().unwrap().contains("energy_uj stands still"));
                }
            }
        }
        let counted = growths.iter().sum::<u64>() as f64;
        prop_assert!((energy_uj - counted).abs() < 1e-6 * counted + 1e-3, "{} {}", energy_uj, counted);
    }
}

#[test]
fn the_probe_rests_first_and_then_holds_each_load_on_this_machine_and_says_what_was_done() {
    let gemv = |format| Kernel::Gemv { n: 512, k: 512, columns: 1, format, case: GemvCase::Dram };
    let read = Kernel::Stream { pattern: Stream::Read, bytes: 16 << 20, stores: Stores::Temporal };
    let kernels = [read, Kernel::Peak { precision: Precision::Fp32 }, gemv(WeightFormat::Int8)];
    let loads = kernels.into_iter().chain([gemv(WeightFormat::Q4KM)]).map(Some);
    let plan = Plan {
        steps: vec![Step { kernel: Kernel::Wake, threads: 1, budget_s: 0.001 }],
        // Loads first: the probe puts the idle one before all that works.
        holds: loads.chain([None]).map(|kernel| Hold { kernel, threads: 1, hold_s: 0.05 }).collect(),
        accelerator: Accelerator::default(),
        cpus: Vec::new(),
        warm_up_s: 0.05,
        time_limit_s: 60.0,
        filling_s: 0.0,
        memory_limit_bytes: 4 << 30,
        seed: 1,
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_rooflined"))
        .arg("probe")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all((serde_json::to_string(&plan).unwrap() + "\n").as_bytes()).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let events: Vec<ProbeEvent> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let position = |wanted: &dyn Fn(&ProbeEvent) -> bool| events.iter().position(wanted).unwrap();
    let first = position(&|event| matches!(event, ProbeEvent::Held(held) if held.kernel.is_none()));
    let worked = position(&|event| matches!(event, ProbeEvent::Progress { .. }));
    assert!(first < worked, "{text}");
    let held: Vec<&Held> = events
        .iter()
        .filter_map(|event| if let ProbeEvent::Held(held) = event { Some(&**held) } else { None })
        .collect();
    assert_eq!(held.len(), 4, "{text}");
    assert!(held.iter().all(|held| (held.ended - held.began).get() >= 0.05));
    assert!(held.windows(2).all(|pair| pair[0].ended <= pair[1].began), "one after the other");
    let now = rooflined_hw::boot_time();
    assert!(held.iter().all(|held| held.began < now && (now - held.began).get() < 3600.0), "the same clock");
    assert_eq!(held[0].bytes.get() + held[0].flops.get() + held[0].weights, 0.0);
    assert!(held[1].bytes.get() > 0.0 && held[2].flops.get() > 0.0);
    // A byte and a scale for each row; two operations for each weight.
    let (bytes, weights) = (held[3].bytes.get(), held[3].weights);
    assert!(bytes > weights && bytes < 1.1 * weights, "{:?}", held[3]);
    assert!((held[3].flops.get() / weights - 2.0).abs() < 1e-9);
    let refused = events.iter().find_map(|event| match event {
        ProbeEvent::NotHeld { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert!(refused.unwrap().contains("no CPU kernel"), "{text}");
}
