use super::*;
use crate::{Engine, EngineProfile, predict};
use roofline::board::OperatingPoint;
use roofline::ceilings::datasheet;
use roofline::hardware::registry;
use roofline::precision::{NumericFormat, WeightFormat};
use roofline::units::Hertz;
use roofline::workload::Op;

const NANO: &str = "jetson-orin-nano-8gb-super";

fn roofline(key: &str, clock: Option<f64>) -> Roofline {
    let point = OperatingPoint { gpu_clock: clock.map(Hertz), ..OperatingPoint::default() };
    datasheet(registry().get(key).unwrap(), &point)
}

fn costs() -> PowerCosts {
    PowerCosts {
        rails: Rails::Gpu,
        source: PowerSource::Prior,
        coefficients: Coefficients {
            static_w: 100.0,
            byte_j: 100e-12,
            flop_j: Some(5e-12),
            weight_j: 20e-12,
        },
        flop_precision: Precision::Fp32,
        half_width_ratio: 0.1,
        cap: Some(Watts(300.0)),
        warnings: Vec::new(),
    }
}

fn second() -> Estimate<Seconds> {
    Estimate { value: Seconds(1.0), low: Seconds(0.8), high: Seconds(1.25) }
}

fn activity(bytes: f64, flops: f64, dequantized: f64) -> Activity {
    Activity { traffic: Bytes(bytes), work: vec![(Precision::Fp32, Flops(flops))], dequantized }
}

#[test]
fn doing_more_never_takes_less_energy() {
    let (costs, roofline) = (costs(), roofline("a40", None));
    let energy = |bytes, flops, dequantized| {
        costs.of(&activity(bytes, flops, dequantized), &roofline, second()).unwrap().energy.value.get()
    };
    for scale in [0.0, 1e-3, 0.1, 0.5] {
        let less = energy(1e12 * scale, 1e13 * scale, 1e11 * scale);
        let more = scale + 0.1;
        assert!(energy(1e12 * more, 1e13 * scale, 1e11 * scale) >= less);
        assert!(energy(1e12 * scale, 1e13 * more, 1e11 * scale) >= less);
        assert!(energy(1e12 * scale, 1e13 * scale, 1e11 * more) >= less);
    }
}

#[test]
fn power_lies_between_the_static_part_and_the_limit() {
    let (costs, roofline) = (costs(), roofline("a40", None));
    for bytes in [0.0, 1e9, 1e12, 1e15] {
        let power = costs.of(&activity(bytes, 1e12, 0.0), &roofline, second()).unwrap();
        let watts = power.watts;
        assert!(watts.value >= Watts(100.0) && watts.value <= Watts(300.0), "{watts:?}");
        assert!(watts.low <= watts.value && watts.value <= watts.high && watts.high <= Watts(300.0));
        assert!(power.energy.low <= power.energy.value && power.energy.value <= power.energy.high);
        assert_eq!(power.from, Rails::Gpu);
    }
}

#[test]
fn the_power_limit_is_a_ceiling_of_its_own() {
    let costs = costs();
    let heavy = activity(1e12, 40e12, 0.0);
    // 100 J of bytes and 200 J of work over 200 W to spare.
    assert!((costs.least_time(&heavy).unwrap().get() - 1.5).abs() < 1e-9);
    let (time, limit) = costs.capped(&heavy, second());
    assert_eq!(limit, Some(Limit::PowerCap));
    assert!((time.value.get() - 1.5).abs() < 1e-9 && time.low <= time.value && time.value < time.high);
    assert_eq!(costs.capped(&activity(1e11, 1e12, 0.0), second()), (second(), None));
    let unlimited = PowerCosts { cap: None, ..costs };
    assert_eq!(unlimited.capped(&heavy, second()), (second(), None));
}

#[test]
fn work_of_another_precision_widens_the_interval_and_slows_nothing() {
    let (costs, roofline) = (costs(), roofline("a40", None));
    let heavy =
        Activity { traffic: Bytes(1e11), work: vec![(Precision::Fp16, Flops(2e13))], dequantized: 0.0 };
    assert_eq!(costs.least_time(&heavy), None);
    let power = costs.of(&heavy, &roofline, second()).unwrap();
    let same = costs.of(&activity(1e11, 2e13, 0.0), &roofline, second()).unwrap();
    assert!(power.watts.value < same.watts.value);
    let width = |power: &Power| power.energy.high / power.energy.low;
    assert!(width(&power) > width(&same));
}

#[test]
fn work_of_unknown_energy_gives_no_power_where_it_matters() {
    let mut costs = costs();
    costs.coefficients.flop_j = None;
    let roofline = roofline("a40", None);
    let peak = roofline.compute(Precision::Fp32).unwrap().value.get();
    assert!(costs.of(&activity(1e11, peak * 0.05, 0.0), &roofline, second()).is_some());
    assert_eq!(costs.of(&activity(1e11, peak * 0.5, 0.0), &roofline, second()), None);
}

#[test]
fn every_file_that_is_built_in_can_be_read_and_names_known_hardware() {
    assert!(!FILES.is_empty());
    for (key, text) in FILES {
        let table = PowerTable::parse(text).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(table.file().hardware, *key);
        assert!(registry().get(key).is_some(), "{key}");
        assert!(super::table(key).is_some());
    }
}

#[test]
fn a_measured_mode_is_answered_as_measured() {
    let file = table(NANO).unwrap().file();
    for mode in &file.modes {
        let point = registry().get(NANO).unwrap().modes.iter().find(|known| known.name == mode.name).unwrap();
        let point = OperatingPoint {
            gpu_clock: Some(point.gpu_clock),
            memory_clock: Some(point.memory_clock),
            sm_online: Some(point.sm_online),
            ..OperatingPoint::default()
        };
        let costs = power_of(Some(NANO), &datasheet(registry().get(NANO).unwrap(), &point)).unwrap();
        assert!(costs.warnings.is_empty(), "{:?}", costs.warnings);
        assert_eq!(costs.coefficients.static_w.to_bits(), mode.static_w.to_bits());
        assert_eq!(costs.rails, Rails::VddCpuGpuCv);
    }
}

#[test]
fn nothing_is_carried_below_the_lowest_clock_without_saying_so() {
    let file = table(NANO).unwrap().file();
    let between = power_of(Some(NANO), &roofline(NANO, Some(800e6))).unwrap();
    assert_eq!(between.warnings.len(), 1, "{:?}", between.warnings);
    assert!(between.half_width_ratio > file.half_width_ratio);
    let below = power_of(Some(NANO), &roofline(NANO, Some(204e6))).unwrap();
    assert!(below.warnings[0].contains("never measured below"), "{:?}", below.warnings);
    assert!(below.half_width_ratio > between.half_width_ratio);
    let lowest = file.modes.iter().map(|mode| mode.byte_j.to_bits());
    assert!(lowest.into_iter().any(|bits| bits == below.coefficients.byte_j.to_bits()), "not extrapolated");
}

#[test]
fn hardware_that_nobody_measured_has_no_power() {
    assert_eq!(power_of(Some("rtx-4090"), &roofline("rtx-4090", None)), None);
    assert_eq!(power_of(None, &roofline(NANO, None)), None);
    let clockless = Roofline { clock: None, ..roofline(NANO, None) };
    assert_eq!(power_of(Some(NANO), &clockless), None);
}

#[test]
fn an_operation_has_power_from_its_rails_and_says_whose_it_is() {
    let roofline = roofline(NANO, None);
    let costs = power_of(Some(NANO), &roofline).unwrap();
    let format = NumericFormat::stored(WeightFormat::Q4_0);
    let op = Op::Gemv { n: 4096, k: 4096 };
    let plain = predict(&roofline, &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
    assert_eq!(plain.power, None);
    let with = plain.clone().with_power(&costs, &roofline);
    let power = with.power.unwrap();
    assert_eq!(with.time, plain.time);
    assert_eq!(power.from.key(), "vdd_cpu_gpu_cv");
    assert!((1.0..40.0).contains(&power.watts.value.get()), "{power:?}");
    let energy = power.watts.value.get() * with.time.value.get();
    assert!((power.energy.value.get() / energy - 1.0).abs() < 1e-9);
    assert!(with.warnings.iter().any(|warning| warning.contains("others measured")));
}

#[test]
fn impossible_files_are_refused_by_name() {
    let text = FILES.iter().find(|(key, _)| *key == NANO).unwrap().1;
    let good: PowerFile = toml::from_str(text).unwrap();
    let refused = |change: &dyn Fn(&mut PowerFile)| {
        let mut file = good.clone();
        change(&mut file);
        PowerTable::new(file).unwrap_err().to_string()
    };
    assert!(refused(&|file| file.modes[0].byte_j = -1.0).contains("byte_j"));
    assert!(refused(&|file| file.modes[0].static_w = f64::NAN).contains("static_w"));
    assert!(refused(&|file| file.modes[0].gpu_clock_hz = 0.0).contains("gpu_clock_hz"));
    assert!(refused(&|file| file.cap_w = Some(0.5)).contains("static_w"));
    assert!(refused(&|file| file.modes.clear()).contains("modes"));
    assert!(PowerTable::parse("hardware = 3").is_err());
}

#[test]
fn the_voltage_scale_is_one_at_the_same_clock_and_grows_with_it() {
    let scale = |from, to| voltage_scale(0.5, 1e9, from, to);
    assert!((scale(6e8, 6e8) - 1.0).abs() < 1e-12);
    assert!(scale(6e8, 1e9) > 1.0 && scale(1e9, 6e8) < 1.0);
    assert!((scale(6e8, 1e9) * scale(1e9, 6e8) - 1.0).abs() < 1e-12);
}
