//! Ceilings of every known power mode against a table of expected figures.
//!
//! The figures were computed by hand from SMs x clock x dense rate and bus width x memory clock, and are
//! printed with few digits, so the table itself is checked first: each printed figure must be its formula, rounded.

#![allow(clippy::unwrap_used, reason = "a missing entry fails the test that asked for it")]

use std::collections::BTreeMap;

use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Provenance, Roofline, datasheet};
use rooflined_core::hardware::{Hardware, registry};
use rooflined_core::precision::Precision;
use rooflined_core::units::Hertz;

/// Bus width in bits and dense operations per SM and clock: FP32, TF32, FP16, INT8, FP8, FP4.
struct Chip {
    bus_bits: f64,
    rates: [f64; 6],
}

const fn orin(bus_bits: f64) -> Chip {
    Chip { bus_bits, rates: [256.0, 1024.0, 2048.0, 4096.0, 0.0, 0.0] }
}
const THOR: Chip = Chip { bus_bits: 256.0, rates: [256.0, 4096.0, 8192.0, 16_384.0, 16_384.0, 32_768.0] };
const GB10: Chip = Chip { bus_bits: 256.0, rates: [256.0, 512.0, 1024.0, 2048.0, 2048.0, 4096.0] };

const PRECISIONS: [Precision; 6] =
    [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Int8, Precision::Fp8, Precision::Fp4];

/// Hardware, mode (of the entry, or none), SM, GPU MHz, memory MHz; then as printed: DRAM GB/s, TFLOPS by precision,
/// ridge point at FP16. An empty string: no such unit.
type Row = (&'static str, Option<&'static str>, u32, f64, f64, &'static str, [&'static str; 6], &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("jetson-orin-nano-4gb", Some("10W"), 4, 624.75, 2133.0, "34.1", ["0.64", "2.6", "5.1", "10.2", "", ""], "150"),
    ("jetson-orin-nano-4gb", Some("7W_AI"), 4, 408.0, 2133.0, "34.1", ["0.42", "1.7", "3.3", "6.7", "", ""], "98"),
    ("jetson-orin-nano-4gb-super", Some("25W"), 4, 1020.0, 3199.0, "51.2", ["1.04", "4.2", "8.4", "16.7", "", ""], "163"),
    ("jetson-orin-nano-4gb-super", Some("MAXN_SUPER"), 4, 1020.0, 3199.0, "51.2", ["1.04", "4.2", "8.4", "16.7", "", ""], "163"),
    ("jetson-orin-nano-4gb", Some("MAXN_SUPER"), 4, 1020.0, 3199.0, "51.2", ["1.04", "4.2", "8.4", "16.7", "", ""], "163"),
    ("jetson-orin-nano-8gb", Some("15W"), 8, 624.75, 2133.0, "68.3", ["1.28", "5.1", "10.2", "20.5", "", ""], "150"),
    ("jetson-orin-nano-8gb", Some("7W"), 4, 408.0, 2133.0, "68.3", ["0.42", "1.7", "3.3", "6.7", "", ""], "49"),
    ("jetson-orin-nano-8gb-super", Some("15W"), 8, 612.0, 2133.0, "68.3", ["1.25", "5.0", "10.0", "20.1", "", ""], "147"),
    ("jetson-orin-nano-8gb-super", Some("25W"), 8, 918.0, 3199.0, "102.4", ["1.88", "7.5", "15.0", "30.1", "", ""], "147"),
    ("jetson-orin-nano-8gb-super", Some("MAXN_SUPER"), 8, 1020.0, 3199.0, "102.4", ["2.09", "8.4", "16.7", "33.4", "", ""], "163"),
    ("jetson-orin-nano-8gb-super", Some("7W"), 4, 408.0, 2133.0, "68.3", ["0.42", "1.7", "3.3", "6.7", "", ""], "49"),
    ("jetson-orin-nx-8gb", Some("MAXN"), 8, 765.0, 3199.0, "102.4", ["1.57", "6.3", "12.5", "25.1", "", ""], "122"),
    ("jetson-orin-nx-16gb", Some("MAXN"), 8, 918.0, 3199.0, "102.4", ["1.88", "7.5", "15.0", "30.1", "", ""], "147"),
    ("jetson-orin-nx-16gb", Some("10W"), 4, 612.0, 2133.0, "68.3", ["0.63", "2.5", "5.0", "10.0", "", ""], "73"),
    ("jetson-orin-nx-16gb", Some("15W"), 4, 612.0, 3199.0, "102.4", ["0.63", "2.5", "5.0", "10.0", "", ""], "49"),
    ("jetson-orin-nx-16gb", Some("25W"), 8, 408.0, 3199.0, "102.4", ["0.84", "3.3", "6.7", "13.4", "", ""], "65"),
    ("jetson-orin-nx-8gb", Some("20W"), 8, 408.0, 3199.0, "102.4", ["0.84", "3.3", "6.7", "13.4", "", ""], "65"),
    ("jetson-orin-nx-16gb-super", Some("40W"), 8, 1173.0, 3199.0, "102.4", ["2.40", "9.6", "19.2", "38.4", "", ""], "188"),
    ("jetson-orin-nx-16gb", Some("MAXN_SUPER"), 8, 1173.0, 3199.0, "102.4", ["2.40", "9.6", "19.2", "38.4", "", ""], "188"),
    ("jetson-orin-nx-8gb-super", Some("MAXN_SUPER"), 8, 1173.0, 3199.0, "102.4", ["2.40", "9.6", "19.2", "38.4", "", ""], "188"),
    ("jetson-agx-orin-32gb", Some("MAXN"), 14, 930.75, 3199.0, "204.7", ["3.34", "13.3", "26.7", "53.4", "", ""], "130"),
    ("jetson-agx-orin-32gb", Some("15W"), 6, 408.0, 2133.0, "136.5", ["0.63", "2.5", "5.0", "10.0", "", ""], "37"),
    ("jetson-agx-orin-32gb", Some("30W"), 8, 612.0, 3199.0, "204.7", ["1.25", "5.0", "10.0", "20.1", "", ""], "49"),
    ("jetson-agx-orin-32gb", Some("40W"), 14, 816.0, 3199.0, "204.7", ["2.92", "11.7", "23.4", "46.8", "", ""], "114"),
    ("jetson-agx-orin-64gb", Some("MAXN"), 16, 1300.5, 3199.0, "204.7", ["5.33", "21.3", "42.6", "85.2", "", ""], "208"),
    ("jetson-agx-orin-64gb", Some("15W"), 6, 408.0, 2133.0, "136.5", ["0.63", "2.5", "5.0", "10.0", "", ""], "37"),
    ("jetson-agx-orin-64gb", Some("30W"), 8, 612.0, 3199.0, "204.7", ["1.25", "5.0", "10.0", "20.1", "", ""], "49"),
    ("jetson-agx-orin-64gb", Some("50W"), 16, 816.0, 3199.0, "204.7", ["3.34", "13.4", "26.7", "53.5", "", ""], "131"),
    ("jetson-agx-thor-t5000", Some("MAXN"), 20, 1575.0, 4266.0, "273.0", ["8.06", "129.0", "258.0", "516.1", "516.1", "1032.2"], "945"),
    ("jetson-agx-thor-t5000", Some("120W"), 20, 1386.0, 4266.0, "273.0", ["7.10", "113.5", "227.1", "454.2", "454.2", "908.3"], "832"),
    ("jetson-agx-thor-t5000", Some("90W"), 12, 1530.0, 4266.0, "273.0", ["4.70", "75.2", "150.4", "300.8", "300.8", "601.6"], "551"),
    ("jetson-agx-thor-t5000", Some("70W"), 12, 1530.0, 4266.0, "273.0", ["4.70", "75.2", "150.4", "300.8", "300.8", "601.6"], "551"),
    ("jetson-agx-thor-t4000", Some("MAXN"), 12, 1530.0, 4266.0, "273.0", ["4.70", "75.2", "150.4", "300.8", "300.8", "601.6"], "551"),
    ("gb10", None, 48, 2540.0, 4266.5, "273.1", ["31.21", "62.4", "124.8", "249.7", "249.7", "499.4"], "457"),
    ("gb10", None, 48, 2483.0, 4266.5, "273.1", ["30.51", "61.0", "122.0", "244.1", "244.1", "488.2"], "447"),
    ("gb10", None, 48, 3003.0, 4266.5, "273.1", ["36.90", "73.8", "147.6", "295.2", "295.2", "590.4"], "541"),
    ("gb10", None, 48, 2100.0, 4266.5, "273.1", ["25.80", "51.6", "103.2", "206.4", "206.4", "412.9"], "378"),
    ("gb10", None, 48, 510.0, 4266.5, "273.1", ["6.27", "12.5", "25.1", "50.1", "50.1", "100.3"], "92"),
];

fn chip(key: &str) -> Chip {
    match key {
        "gb10" => GB10,
        _ if key.contains("thor") => THOR,
        _ if key.contains("nano-4gb") => orin(64.0),
        _ if key.contains("agx-orin") => orin(256.0),
        _ => orin(128.0),
    }
}

/// The figure as printed, and half a unit of its last digit.
fn printed(figure: &str) -> (f64, f64) {
    let decimals = figure.split_once('.').map_or(0, |(_, digits)| digits.len());
    (figure.parse().unwrap(), 0.5 * 10_f64.powi(-i32::try_from(decimals).unwrap()))
}

fn ceilings(hardware: &Hardware, row: &Row) -> Roofline {
    let (_, mode, sm, gpu, memory, ..) = *row;
    let given = OperatingPoint {
        sm_online: Some(sm),
        gpu_clock: Some(Hertz(gpu * 1e6)),
        memory_clock: Some(Hertz(memory * 1e6)),
        ..Default::default()
    };
    let Some(name) = mode else { return datasheet(hardware, &given) };
    let mode = hardware.mode(name).unwrap();
    assert_eq!(datasheet(hardware, &given), datasheet(hardware, &mode.operating_point()), "{row:?}");
    datasheet(hardware, &mode.operating_point())
}

#[test]
fn every_mode_has_the_ceilings_that_its_clocks_give() {
    let (mut worst, mut against_print) = ((0.0_f64, String::new()), (0.0_f64, String::new()));
    let mut compared = 0;
    for row in ROWS {
        let (key, mode, sm, gpu, memory, dram, flops, ridge) = *row;
        let chip = chip(key);
        let roofline = ceilings(registry().get(key).unwrap(), row);
        let bytes = chip.bus_bits / 8.0 * 2.0 * memory * 1e6;
        let peak = |rate: f64| f64::from(sm) * gpu * 1e6 * rate;
        let mut checks = vec![("DRAM", roofline.memory_limit.unwrap().value.get() / 1e9, bytes / 1e9, dram)];
        for (index, precision) in PRECISIONS.into_iter().enumerate() {
            match flops[index] {
                "" => assert_eq!(roofline.compute(precision), None, "{key} has no unit for {precision}"),
                shown => {
                    let got = roofline.compute(precision).unwrap().value.get() / 1e12;
                    checks.push((precision.key(), got, peak(chip.rates[index]) / 1e12, shown));
                }
            }
        }
        let fp16 = roofline.compute(Precision::Fp16).unwrap().value.get();
        let limit = roofline.memory_limit.unwrap().value.get();
        checks.push(("ridge", fp16 / limit, peak(chip.rates[2]) / bytes, ridge));
        for (what, got, formula, shown) in checks {
            let at = format!("{key} {mode:?} {gpu} MHz {what}: {got}, formula {formula}, printed {shown}");
            let (value, half_digit) = printed(shown);
            assert!((formula - value).abs() <= half_digit * 1.001, "the table misprints {at}");
            let error = (got / formula - 1.0).abs();
            assert!(error <= 0.005, "{at}");
            // Half a digit of "0.42" is more than half a percent: there only the formula can decide.
            let beyond = ((got - value).abs() - half_digit).max(0.0) / value;
            assert!(beyond <= 0.005, "{at}");
            compared += 1;
            if error > worst.0 {
                worst = (error, at.clone());
            }
            if (got / value - 1.0).abs() > against_print.0 {
                against_print = ((got / value - 1.0).abs(), at);
            }
        }
    }
    println!("{compared} figures of {} rows; worst error {:.2e} ({})", ROWS.len(), worst.0, worst.1);
    println!("against the printed digits {:.2} % ({})", 100.0 * against_print.0, against_print.1);
    assert_eq!(ROWS.len(), 38);
}

#[test]
fn eight_sms_at_612_mhz_pull_less_than_the_memory_gives() {
    let orin = registry().get("jetson-agx-orin-64gb").unwrap();
    let slow = datasheet(orin, &orin.mode("30W").unwrap().operating_point());
    // 8 SM x 612 MHz x 15.8 B; bandwidthTest reached 67 GB/s, as large a part of it as a read reaches of the memory
    assert!((slow.bandwidth.value.get() / 1e9 - 8.0 * 0.612 * 15.8).abs() < 1e-9, "{:?}", slow.bandwidth);
    assert!((67.0 / (slow.bandwidth.value.get() / 1e9) / (177.0 / 204.736) - 1.0).abs() < 0.005);
    assert_eq!(slow.pull_limit.unwrap().value, slow.bandwidth.value);
    // 256 bit / 8 x 2 x 3199 MHz
    assert!((slow.memory_limit.unwrap().value.get() / 1e9 - 204.736).abs() < 1e-9);
    // 16 SM x 1300.5 MHz read 177 GB/s at least, 8.5 B each
    assert!((slow.bandwidth.low.get() / (8.0 * 612e6 * 8.5) - 1.0).abs() < 1e-9, "{:?}", slow.bandwidth);
    let fast = datasheet(orin, &orin.mode("MAXN").unwrap().operating_point());
    assert_eq!(fast.bandwidth.value, fast.memory_limit.unwrap().value);
}

#[test]
fn what_was_measured_lies_within_the_data_sheets_interval() {
    // GB/s of main memory, read; and TFLOPS of products
    let bandwidths = [
        ("jetson-agx-orin-64gb", Some("MAXN"), 177.0),
        ("jetson-agx-thor-t5000", Some("MAXN"), 259.0),
        ("gb10", None, 252.7),
        ("h100-sxm", None, 2894.0),
        ("h200", None, 4028.0),
    ];
    let point = |hardware: &Hardware, mode: Option<&str>| {
        mode.map(|mode| hardware.mode(mode).unwrap().operating_point()).unwrap_or_default()
    };
    for (key, mode, measured) in bandwidths {
        let hardware = registry().get(key).unwrap();
        let ceiling = datasheet(hardware, &point(hardware, mode)).bandwidth;
        let range = ceiling.low.get()..=ceiling.high.get();
        assert!(range.contains(&(measured * 1e9)), "{key}: {measured} GB/s is not in {ceiling:?}");
        assert_eq!(ceiling.provenance, Provenance::Datasheet);
    }
    let products = [
        ("h100-sxm", Precision::Fp16, None, 686.0),
        ("gb10", Precision::Fp8, Some(2483e6), 164.8),
        ("gb10", Precision::Tf32, Some(2483e6), 37.3),
        ("rtx-4090", Precision::Fp16, None, 168.0),
        ("rtx-5090", Precision::Fp16, Some(2850e6), 253.0),
    ];
    for (key, precision, clock, measured) in products {
        let point = OperatingPoint { gpu_clock: clock.map(Hertz), ..Default::default() };
        let ceiling = datasheet(registry().get(key).unwrap(), &point).compute(precision).unwrap();
        let range = ceiling.low.get()..=ceiling.high.get();
        assert!(range.contains(&(measured * 1e12)), "{key} {precision}: {measured} is not in {ceiling:?}");
    }
}

/// Totals as the vendors print them, dense; the registry holds rates.
#[test]
fn cards_have_the_dense_peaks_of_their_data_sheets() {
    let printed: &[(&str, Precision, f64)] = &[
        ("t4", Precision::Fp16, 65.0),
        ("t4", Precision::Fp32, 8.1),
        ("t4", Precision::Int8, 130.0),
        ("v100", Precision::Fp16, 125.0),
        ("v100", Precision::Fp32, 15.7),
        ("v100", Precision::Int8, 62.0),
        ("a100-40gb", Precision::Fp16, 312.0),
        ("a100-80gb", Precision::Int8, 624.0),
        ("a100-pcie-80", Precision::Tf32, 156.0),
        ("l4", Precision::Fp16, 121.0),
        ("l4", Precision::Fp8, 242.0),
        ("l4", Precision::Fp32, 30.3),
        ("h100-sxm", Precision::Fp16, 989.0),
        ("h100-sxm", Precision::Fp8, 1979.0),
        ("h100-sxm", Precision::Tf32, 495.0),
        ("h100-pcie", Precision::Fp16, 756.5),
        ("h100-pcie", Precision::Int8, 1513.0),
        ("h200", Precision::Fp16, 989.0),
        ("b200", Precision::Fp16, 2250.0),
        ("b200", Precision::Fp4, 9000.0),
        ("rtx-4090", Precision::Fp16, 165.0),
        ("rtx-4090", Precision::Int8, 661.0),
        ("rtx-4090", Precision::Fp32, 82.6),
        ("rtx-5090", Precision::Fp16, 209.5),
        ("rtx-5090", Precision::Fp4, 1676.0),
        ("rtx-5090", Precision::Fp32, 104.8),
        ("rtx-pro-6000-bse", Precision::Fp16, 467.8),
        ("rtx-pro-6000-bse", Precision::Fp4, 1871.0),
    ];
    for (key, precision, tera) in printed {
        let roofline = datasheet(registry().get(key).unwrap(), &OperatingPoint::default());
        let got = roofline.compute(*precision).unwrap().value.get() / 1e12;
        assert!((got / tera - 1.0).abs() < 0.012, "{key} {precision}: {got} instead of {tera}");
    }
}

#[test]
fn what_marketing_says_is_never_a_ceiling() {
    for hardware in registry().entries() {
        let roofline = datasheet(hardware, &OperatingPoint::default());
        for (figure, value) in &hardware.marketing {
            let Some(name) = figure.strip_suffix("_sparse_ops_per_s") else { continue };
            let Ok(precision) = name.trim_start_matches("soc_").parse::<Precision>() else { continue };
            let peak = roofline.compute(precision).unwrap().value.get();
            assert!(peak < 0.75 * value, "{}: {precision} {peak:e} beside {value:e}", hardware.key);
        }
    }
}

#[test]
fn clocks_of_units_that_sleep_are_not_used() {
    let thor = registry().get("jetson-agx-thor-t5000").unwrap();
    let asleep = OperatingPoint {
        sm_online: Some(0),
        gpu_clock: Some(Hertz(0.0)),
        memory_clock: Some(Hertz(-1.0)),
        ..Default::default()
    };
    assert_eq!(datasheet(thor, &asleep), datasheet(thor, &OperatingPoint::default()));
    let above = OperatingPoint { gpu_clock: Some(Hertz(1.6e9)), ..Default::default() };
    assert!(above.gpu_clock.unwrap() > thor.gpu_clock);
    // 20 SM x 1.6 GHz x 8192
    let peak = datasheet(thor, &above).compute(Precision::Fp16).unwrap().value.get();
    assert!((peak / 262.144e12 - 1.0).abs() < 1e-12);
}

#[test]
fn a_cpu_has_no_data_sheet() {
    let roofline = datasheet(registry().get("cpu").unwrap(), &OperatingPoint::default());
    assert_eq!(roofline.compute, BTreeMap::new());
    assert_eq!(roofline.memory_limit, None);
    assert_eq!(roofline.bandwidth.provenance, Provenance::Prior);
}
