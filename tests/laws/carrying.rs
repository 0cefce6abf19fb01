//! Laws of ceilings over operating points: what the data sheet gives, and what carrying a measurement keeps.

#![allow(clippy::unwrap_used, reason = "a missing entry fails the test that asked for it")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::scaling::carry;
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline, datasheet};
use rooflined_core::hardware::{Hardware, Kind, registry};
use rooflined_core::units::{Bytes, BytesPerSecond, Hertz, Seconds};

/// Every GPU of the registry.
fn gpus() -> impl Strategy<Value = &'static Hardware> {
    let all: Vec<_> = registry().entries().filter(|entry| entry.kind != Kind::Cpu).collect();
    proptest::sample::select(all)
}

prop_compose! {
    fn points()(sm in 1u32..64, gpu in 1e8..3e9_f64, memory in 2e8..5e9_f64) -> OperatingPoint {
        point(sm, gpu, memory)
    }
}

fn point(sm: u32, gpu: f64, memory: f64) -> OperatingPoint {
    OperatingPoint {
        sm_online: Some(sm),
        gpu_clock: Some(Hertz(gpu)),
        memory_clock: Some(Hertz(memory)),
        ..Default::default()
    }
}

fn measured<R: Copy + std::ops::Mul<f64, Output = R>>(value: R) -> Ceiling<R> {
    Ceiling { value, low: value * 0.98, high: value * 1.02, provenance: Provenance::Measured }
}

/// What a calibration at `at` would find on a board that reaches `share` of the memory's limit, or what its
/// SMs pull if that is less. It keeps both limits, as the fit does.
fn calibrated(hardware: &Hardware, at: &OperatingPoint, share: f64) -> Roofline {
    let nominal = datasheet(hardware, at);
    let bandwidth = nominal.bandwidth.value * share;
    Roofline {
        bandwidth: measured(bandwidth),
        curve: vec![
            BandwidthPoint { working_set: Bytes(1e6), threads: 1, read: bandwidth * 5.0 },
            BandwidthPoint { working_set: Bytes(1e9), threads: 1, read: bandwidth },
        ],
        copy: Some(measured(bandwidth * 0.9)),
        triad: None,
        compute: nominal.compute.iter().map(|(name, peak)| (*name, measured(peak.value * share))).collect(),
        launch: measured(Seconds(4e-6)),
        ..nominal
    }
}

fn values(roofline: &Roofline) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::from([
        ("bandwidth".to_owned(), roofline.bandwidth.value.get()),
        ("launches per second".to_owned(), 1.0 / roofline.launch.value.get()),
    ]);
    let mut add = |name: &str, value: Option<f64>| {
        values.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("memory", roofline.memory_limit.map(|limit| limit.value.get()));
    add("pull", roofline.pull_limit.map(|limit| limit.value.get()));
    add("copy", roofline.copy.map(|copy| copy.value.get()));
    for (precision, peak) in &roofline.compute {
        add(precision.key(), Some(peak.value.get()));
    }
    for point in &roofline.curve {
        add(&format!("read of {}", point.working_set), Some(point.read.get()));
    }
    values
}

fn never_lower(less: &Roofline, more: &Roofline) -> Result<(), TestCaseError> {
    let (less, more) = (values(less), values(more));
    prop_assert_eq!(less.keys().collect::<Vec<_>>(), more.keys().collect::<Vec<_>>());
    for (name, before) in &less {
        prop_assert!(more[name] >= before * (1.0 - 1e-9), "{} fell from {} to {}", name, before, more[name]);
    }
    Ok(())
}

proptest! {
    #[test]
    fn more_of_anything_never_lowers_a_ceiling(
        hardware in gpus(), from in points(), to in points(), share in 0.3..1.2_f64,
        sm in 0u32..64, gpu in 1.0..8.0_f64, memory in 1.0..8.0_f64,
    ) {
        let (Some(slow_gpu), Some(slow_memory)) = (to.gpu_clock, to.memory_clock) else { return Ok(()) };
        let few = to.sm_online.unwrap_or(1);
        let more = point(few + sm, slow_gpu.get() * gpu, slow_memory.get() * memory);
        never_lower(&datasheet(hardware, &to), &datasheet(hardware, &more))?;
        let found = calibrated(hardware, &from, share);
        never_lower(&carry(&found, &from, &to, hardware), &carry(&found, &from, &more, hardware))?;
    }

    #[test]
    fn there_and_back_is_where_it_was(
        hardware in gpus(), from in points(), to in points(), share in 0.3..1.0_f64,
    ) {
        let found = calibrated(hardware, &from, share);
        let back = carry(&carry(&found, &from, &to, hardware), &to, &from, hardware);
        let (before, after) = (values(&found), values(&back));
        for (name, value) in before {
            prop_assert!((after[&name] / value - 1.0).abs() < 1e-9, "{}: {} became {}", name, value, after[&name]);
        }
        prop_assert!(back.bandwidth.low <= found.bandwidth.low && back.bandwidth.high >= found.bandwidth.value);
    }

    #[test]
    fn the_same_point_changes_nothing(hardware in gpus(), at in points(), jitter in 0.9951..1.0049_f64) {
        let found = calibrated(hardware, &at, 0.8);
        let near = OperatingPoint { gpu_clock: at.gpu_clock.map(|clock| clock * jitter), ..at.clone() };
        prop_assert_eq!(carry(&found, &at, &at, hardware), found.clone());
        prop_assert_eq!(carry(&found, &at, &near, hardware), found);
    }

    #[test]
    fn what_is_carried_stays_within_the_memory_and_says_so(
        hardware in gpus(), from in points(), to in points(), share in 0.3..3.0_f64,
    ) {
        // Clocks this close are the same one, and nothing is carried.
        let clock = to.gpu_clock.unwrap() / from.gpu_clock.unwrap();
        prop_assume!((clock - 1.0).abs() > 0.01);
        let found = calibrated(hardware, &from, share);
        let carried = carry(&found, &from, &to, hardware);
        // bus / 8 x 2 x clock, or the bandwidth of a part without a memory clock
        let memory = match hardware.memory_clock {
            Some(_) => f64::from(hardware.bus_bits) / 8.0 * 2.0 * to.memory_clock.unwrap().get(),
            None => hardware.bandwidth.get(),
        };
        // A memory clock within half a percent is the same one.
        prop_assert!(carried.bandwidth.value.get() <= memory * 1.005_1);
        for ceiling in [carried.bandwidth].into_iter().chain(carried.copy) {
            prop_assert!(ceiling.low <= ceiling.value && ceiling.value <= ceiling.high, "{:?}", ceiling);
            prop_assert_eq!(ceiling.provenance, Provenance::Scaled);
        }
        for (precision, peak) in &carried.compute {
            let before = found.compute(*precision).unwrap();
            let rate = f64::from(to.sm_online.unwrap()) * to.gpu_clock.unwrap().get()
                / (f64::from(from.sm_online.unwrap()) * from.gpu_clock.unwrap().get());
            prop_assert!((peak.value.get() / (before.value.get() * rate) - 1.0).abs() < 1e-9);
            prop_assert!(peak.low / peak.value <= before.low / before.value);
            prop_assert!(peak.high / peak.value >= before.high / before.value);
        }
    }

    #[test]
    fn memory_never_depends_on_the_gpus_clock_while_it_is_the_limit(
        hardware in gpus(), from in points(), to in points(), factor in 0.2..5.0_f64,
    ) {
        let other = OperatingPoint { gpu_clock: to.gpu_clock.map(|clock| clock * factor), ..to.clone() };
        let (at, there) = (datasheet(hardware, &to), datasheet(hardware, &other));
        prop_assert_eq!(at.memory_limit, there.memory_limit);
        let limited = |roofline: &Roofline| {
            roofline.pull_limit.is_none_or(|pull| pull.value >= roofline.memory_limit.unwrap().value)
        };
        if limited(&at) && limited(&there) {
            prop_assert_eq!(at.bandwidth.value, there.bandwidth.value);
            let found = calibrated(hardware, &from, 0.8);
            let (at, there) = (carry(&found, &from, &to, hardware), carry(&found, &from, &other, hardware));
            prop_assert!((at.bandwidth.value / there.bandwidth.value - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn intervals_of_data_sheets_enclose_their_values(hardware in gpus(), at in points()) {
        let roofline = datasheet(hardware, &at);
        let limits = [Some(roofline.bandwidth), roofline.memory_limit, roofline.pull_limit];
        for ceiling in limits.into_iter().flatten() {
            prop_assert!(ceiling.low <= ceiling.value && ceiling.value <= ceiling.high, "{:?}", ceiling);
            prop_assert!(ceiling.low > BytesPerSecond::ZERO);
        }
        for ceiling in roofline.compute.values() {
            prop_assert!(ceiling.low <= ceiling.value && ceiling.value <= ceiling.high);
        }
    }
}

#[test]
fn orin_measured_in_maxn_is_carried_to_30_w_by_what_eight_sms_pull() {
    let orin = registry().get("jetson-agx-orin-64gb").unwrap();
    let at = |mode: &str| orin.mode(mode).unwrap().operating_point();
    let mut found = calibrated(orin, &at("MAXN"), 1.0);
    found.bandwidth = measured(BytesPerSecond(177e9));
    let slow = carry(&found, &at("MAXN"), &at("30W"), orin);
    // 177 of 204.736 GB/s, of 8 x 612 MHz x 15.8 B
    let expected = 177.0 / 204.736 * (8.0 * 0.612 * 15.8);
    assert!((slow.bandwidth.value.get() / 1e9 - expected).abs() < 1e-6, "{:?}", slow.bandwidth);
    let range = slow.bandwidth.low.get()..=slow.bandwidth.high.get();
    assert!(range.contains(&67e9), "67 GB/s were measured there: {:?}", slow.bandwidth);
    assert!((slow.memory_limit.unwrap().value.get() / 1e9 - 204.736).abs() < 1e-6);
    // Four fifths of the clock and the same memory: nothing changes but compute.
    let fifty = carry(&found, &at("MAXN"), &at("50W"), orin);
    let pulled: f64 = 16.0 * 0.816 * 15.8;
    assert!((fifty.bandwidth.value.get() / 1e9 - 177.0 / 204.736 * pulled.min(204.736)).abs() < 1e-6);
}

#[test]
fn a_measurement_above_what_was_thought_possible_to_pull_is_believed() {
    let orin = registry().get("jetson-agx-orin-64gb").unwrap();
    let at = |mode: &str| orin.mode(mode).unwrap().operating_point();
    let mut found = calibrated(orin, &at("30W"), 1.0);
    found.bandwidth = measured(BytesPerSecond(80e9));
    let twice = OperatingPoint { gpu_clock: Some(Hertz(1224e6)), ..at("30W") };
    let fast = carry(&found, &at("30W"), &twice, orin);
    assert!((fast.bandwidth.value.get() / 160e9 - 1.0).abs() < 1e-9, "{:?}", fast.bandwidth);
    let back = carry(&fast, &twice, &at("30W"), orin);
    assert!((back.bandwidth.value.get() / 80e9 - 1.0).abs() < 1e-9, "{:?}", back.bandwidth);
}

#[test]
fn a_cpu_is_carried_by_its_own_clock() {
    let cpu = registry().get("cpu").unwrap();
    let mut found = datasheet(cpu, &OperatingPoint::default());
    (found.workers, found.clock) = (4, Some(Hertz(2e9)));
    let to = OperatingPoint { cpu_clock: Some(Hertz(1e9)), cores_online: Some(4), ..Default::default() };
    let slow = carry(&found, &OperatingPoint::default(), &to, cpu);
    assert_eq!((slow.clock, slow.bandwidth.value), (Some(Hertz(1e9)), found.bandwidth.value));
    assert_eq!(slow.launch.value, found.launch.value * 2.0);
}
