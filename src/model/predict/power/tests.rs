use std::collections::BTreeMap;

use smallvec::smallvec;

use super::*;
use crate::costs::{engine_costs, recipe};
use crate::model::{Costs, predict_model};
use crate::{Engine, EngineProfile, Prediction, predict};
use roofline::board::OperatingPoint;
use roofline::ceilings::datasheet;
use roofline::hardware::registry;
use roofline::precision::{NumericFormat, WeightFormat};
use roofline::units::Hertz;
use roofline::workload::Op;
use roofline::workload::registry::models;
use roofline::workload::transformer::Request;

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
            busy_w: None,
        },
        flop_precision: Precision::Fp32,
        half_width_ratio: 0.1,
        cap: Some(Watts(300.0)),
        cap_of: "the card's power limit".into(),
        carried: false,
        warnings: Vec::new(),
    }
}

fn second() -> Estimate<Seconds> {
    Estimate { value: Seconds(1.0), low: Seconds(0.8), high: Seconds(1.25) }
}

fn activity(bytes: f64, flops: f64, dequantized: f64) -> Activity {
    Activity { traffic: Bytes(bytes), work: smallvec![(Precision::Fp32, Flops(flops))], dequantized }
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
    let (costs, roofline) = (costs(), roofline("a40", None));
    let heavy = activity(1e12, 40e12, 0.0);
    // 100 J of bytes and 200 J of work over 200 W to spare.
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - 1.5).abs() < 1e-9);
    let (time, limit) = costs.capped(&heavy, &roofline, second());
    assert_eq!(limit, Some(Limit::PowerCap));
    assert!((time.value.get() - 1.5).abs() < 1e-9 && time.low <= time.value && time.value < time.high);
    assert_eq!(costs.capped(&activity(1e11, 1e12, 0.0), &roofline, second()), (second(), None));
    let unlimited = PowerCosts { cap: None, ..costs };
    assert_eq!(unlimited.capped(&heavy, &roofline, second()), (second(), None));
}

#[test]
fn work_of_another_precision_widens_the_interval_and_slows_by_no_more_than_is_certain() {
    let (costs, roofline) = (costs(), roofline("a40", None));
    let heavy =
        Activity { traffic: Bytes(1e11), work: smallvec![(Precision::Fp16, Flops(2e13))], dequantized: 0.0 };
    // A quarter of the energy in a unit of four times the rate is certain: 10 J of bytes and 25 J of work over 200 W.
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - 0.175).abs() < 1e-3);
    assert_eq!(costs.capped(&heavy, &roofline, second()), (second(), None));
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
        let costs =
            power_of(registry().get(NANO), &datasheet(registry().get(NANO).unwrap(), &point)).unwrap();
        assert!(costs.warnings.is_empty(), "{:?}", costs.warnings);
        assert_eq!(costs.coefficients.static_w.to_bits(), mode.static_w.to_bits());
        assert_eq!(costs.rails, Rails::VddCpuGpuCv);
    }
}

#[test]
fn nothing_is_carried_below_the_lowest_clock_without_saying_so() {
    let file = table(NANO).unwrap().file();
    let between = power_of(registry().get(NANO), &roofline(NANO, Some(800e6))).unwrap();
    assert_eq!(between.warnings.len(), 1, "{:?}", between.warnings);
    assert!(between.half_width_ratio > file.half_width_ratio);
    let below = power_of(registry().get(NANO), &roofline(NANO, Some(204e6))).unwrap();
    assert!(below.warnings[0].contains("never measured below"), "{:?}", below.warnings);
    assert!(below.half_width_ratio > between.half_width_ratio);
    let lowest = file.modes.iter().map(|mode| mode.byte_j.to_bits());
    assert!(lowest.into_iter().any(|bits| bits == below.coefficients.byte_j.to_bits()), "not extrapolated");
}

#[test]
fn a_card_that_nobody_measured_has_no_power() {
    assert_eq!(power_of(registry().get("rtx-4090"), &roofline("rtx-4090", None)), None);
    assert_eq!(power_of(None, &roofline(NANO, None)), None);
    let clockless = Roofline { clock: None, ..roofline(NANO, None) };
    assert_eq!(power_of(registry().get(NANO), &clockless), None);
}

/// Every operating point of a module that the registry knows.
fn points_of(hardware: &roofline::hardware::Hardware) -> Vec<(String, Roofline)> {
    let modes = hardware.modes.iter().map(|mode| (mode.name.clone(), mode.operating_point()));
    let points: Vec<_> = modes.collect();
    let points = if points.is_empty() { vec![(String::new(), OperatingPoint::default())] } else { points };
    points.into_iter().map(|(name, point)| (name, datasheet(hardware, &point))).collect()
}

fn modules() -> impl Iterator<Item = &'static roofline::hardware::Hardware> {
    registry().entries().filter(|known| known.kind == roofline::hardware::Kind::Integrated)
}

#[test]
fn every_module_has_power_within_its_budget_and_says_whose_it_is() {
    let mut carried = 0;
    for known in modules() {
        for (mode, roofline) in points_of(known) {
            let costs = power_of(Some(known), &roofline).unwrap_or_else(|| panic!("{} {mode}", known.key));
            let budget = budget(known, &roofline).unwrap();
            assert_eq!(costs.cap, Some(budget.watts), "{} {mode}", known.key);
            assert!(
                costs.coefficients.static_w < 0.8 * budget.watts.get(),
                "{} {mode}: {costs:?}",
                known.key
            );
            if table(&known.key).is_none() {
                carried += 1;
                assert_eq!(costs.rails, Rails::Module);
                assert!(
                    costs.half_width_ratio >= 0.6 && costs.words()[0].contains("carried from"),
                    "{costs:?}"
                );
            }
        }
    }
    assert!(carried > 30, "{carried}");
}

#[test]
fn what_is_carried_to_an_orin_nx_is_near_what_was_measured_of_one() {
    // VDD_IN of an Orin NX 16GB: ARK-Electronics/ark_jetson_kernel, docs/power.md. Idle, and under a stress test.
    let known = registry().get("jetson-orin-nx-16gb-super").unwrap();
    for (mode, idle, measured) in
        [("25W", false, 16.9), ("MAXN_SUPER", false, 29.4), ("MAXN_SUPER", true, 4.6)]
    {
        let point = known.mode(mode).unwrap().operating_point();
        let roofline = datasheet(known, &point);
        let costs = power_of(Some(known), &roofline).unwrap();
        let watts = if idle { costs.coefficients.static_w } else { costs.flat_out(&roofline).unwrap() };
        let (low, high) = (watts / (1.0 + costs.half_width_ratio), watts * (1.0 + costs.half_width_ratio));
        assert!(low < measured && measured < high, "{mode}: {watts} W, measured {measured} W");
    }
}

#[test]
fn busy_cores_draw_no_more_for_a_better_kernel() {
    let mut costs = costs();
    costs.coefficients.busy_w = Some(50.0);
    let roofline = roofline("a40", None);
    let power = costs.of(&activity(0.0, 30e12, 0.0), &roofline, second()).unwrap();
    assert!((power.watts.value.get() - 150.0).abs() < 1e-9, "{power:?}");
    assert!(power.watts.high.get() > 190.0, "an operation may take what it took: {power:?}");
    // 150 J of bytes over the 150 W that busy cores leave of 200.
    let heavy = activity(1.5e12, 100e12, 0.0);
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - 1.0).abs() < 1e-9);
}

#[test]
fn an_integer_gemm_on_a_module_takes_what_was_measured_and_not_the_budget_three_times() {
    let known = registry().get("jetson-agx-orin-64gb").unwrap();
    let roofline = datasheet(known, &OperatingPoint::default());
    let costs = power_of(Some(known), &roofline).unwrap();
    let format = NumericFormat::stored(WeightFormat::Int8);
    let op = Op::Gemm { m: 4096, n: 4096, k: 4096 };
    let plain = predict(&roofline, &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
    let with = plain.clone().with_power_at(&costs, &roofline, None);
    let watts = with.power.unwrap().watts;
    assert!(watts.value < Watts(60.0) && watts.high <= Watts(60.0), "{watts:?}");
    assert_eq!(with.time, plain.time);
}

#[test]
fn an_operation_has_power_from_its_rails_and_says_whose_it_is() {
    let roofline = roofline(NANO, None);
    let costs = power_of(registry().get(NANO), &roofline).unwrap();
    let format = NumericFormat::stored(WeightFormat::Q4_0);
    let op = Op::Gemv { n: 4096, k: 4096 };
    let plain = predict(&roofline, &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
    assert_eq!(plain.power, None);
    let with = plain.clone().with_power_at(&costs, &roofline, None);
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

/// Batches of the grid: doublings of one and of three.
const BATCHES: [u64; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96];

/// Every board, mode, model, format, batch and phase of a grid, and operations: (what, costs, predictions, watts of each
/// whatever smaller batches draw).
fn grid(mut visit: impl FnMut(&str, &PowerCosts, &[Prediction], &[f64])) -> usize {
    const MODELS: [&str; 6] =
        ["smollm2-135m", "llama-3.2-1b", "qwen3-4b", "llama-3.1-8b", "qwen3-30b-a3b", "llama-3.3-70b"];
    let of = |key: &str, format| models().get(key).unwrap().model(recipe(Engine::LlamaCpp, format));
    let formats = [WeightFormat::Fp16, WeightFormat::Q8_0, WeightFormat::Q4_0];
    let stored: Vec<_> = MODELS
        .iter()
        .flat_map(|key| formats.iter().map(move |format| (format!("{key} {format}"), of(key, *format))))
        .collect();
    let mut count = 0;
    for known in modules() {
        let engine = engine_costs(Engine::LlamaCpp, Some(&known.key));
        for (mode, roofline) in points_of(known) {
            let costs = power_of(Some(known), &roofline).unwrap();
            for (name, model) in &stored {
                for request in [Request::decode(512), Request::prefill(512)] {
                    let plain = |batch| {
                        let request = Request { batch, ..request };
                        predict_model(&roofline, Costs::Engine(engine), model, &request).unwrap()
                    };
                    let plain: BTreeMap<u64, Prediction> =
                        rungs(96).map(|batch| (batch, plain(batch))).collect();
                    let run = |batch: u64| {
                        plain[&batch].clone().with_power(&costs, &roofline, batch, |fewer| {
                            assert!(fewer < batch, "{fewer} for {batch}");
                            plain.get(&fewer).cloned()
                        })
                    };
                    let alone = |batch: u64| plain[&batch].watts_alone(&costs, &roofline).unwrap();
                    let runs: Vec<Prediction> = BATCHES.map(run).into();
                    count += runs.len();
                    visit(
                        &format!("{} {mode} {name} {:?}", known.key, request.phase),
                        &costs,
                        &runs,
                        &BATCHES.map(alone),
                    );
                }
            }
            for format in [WeightFormat::Fp16, WeightFormat::Int8, WeightFormat::Q4_0] {
                for op in [Op::Gemv { n: 4096, k: 4096 }, Op::Gemm { m: 4096, n: 4096, k: 4096 }] {
                    let profile = EngineProfile::unknown(Engine::Bare);
                    let plain = predict(&roofline, &profile, &op, &NumericFormat::stored(format)).unwrap();
                    let run = plain.with_power_at(&costs, &roofline, None);
                    count += 1;
                    visit(&format!("{} {mode} {op:?} {format}", known.key), &costs, &[run], &[]);
                }
            }
        }
    }
    count
}

#[test]
fn no_prediction_is_above_the_budget_or_reaches_it_without_naming_the_limit() {
    let (mut slowed, mut held) = (0, 0);
    let count = grid(|what, costs, runs, _| {
        for run in runs {
            let power = run.power.unwrap_or_else(|| panic!("{what} has no power"));
            let cap = costs.cap.unwrap();
            let watts = power.watts;
            assert!(watts.value <= cap && watts.high <= cap && watts.low <= watts.value, "{what}: {watts:?}");
            let energy = watts.value.get() * run.time.value.get();
            assert!((power.energy.value.get() / energy - 1.0).abs() < 1e-6, "{what}");
            if watts.value >= cap {
                held += 1;
                assert!(
                    run.warnings.iter().any(|said| said.contains(&costs.cap_of)),
                    "{what}: {:?}",
                    run.warnings
                );
            }
            slowed += usize::from(run.limit == Limit::PowerCap);
        }
    });
    assert!(
        count > 17_000 && held >= slowed,
        "{count} predictions, {held} at the budget, {slowed} slowed by it"
    );
}

#[test]
fn power_never_falls_with_the_batch_and_energy_goes_with_it() {
    // Past the ridge weights are read and dequantized less often in a second while the work rate stays: alone, the sum of
    // energies draws less there.
    let (mut alone, mut with, mut doublings) = (0, Vec::new(), 0);
    grid(|what, _, runs, watts| {
        for (few, batch) in BATCHES.iter().enumerate().filter(|_| !watts.is_empty()) {
            let Some(many) = BATCHES.iter().position(|many| *many == 2 * batch) else { continue };
            doublings += 1;
            let of = |run: &Prediction| run.power.unwrap().watts.value.get();
            alone += usize::from(watts[many] < watts[few]);
            if of(&runs[many]) < of(&runs[few]) {
                with.push(format!("{what} {batch}"));
            }
            assert!(of(&runs[many]) >= watts[many] * (1.0 - 1e-9), "{what} {batch}: no less than alone");
        }
        for run in runs {
            let of = |end: fn(Estimate<f64>) -> f64| end(run.power.unwrap().watts.map(Watts::get));
            let shown = of(|watts| watts.value) * run.time.value.get() / run.tokens;
            let energy = run.energy_per_token().unwrap();
            assert!((energy.value.get() / shown - 1.0).abs() < 1e-9, "{what}: {energy:?}, {shown} J");
            assert!(energy.low <= energy.value && energy.value <= energy.high, "{what}");
            assert!(of(|watts| watts.low) <= of(|watts| watts.value), "{what}");
        }
    });
    assert!(
        with.is_empty(),
        "{} of {doublings} doublings fall: {:?}",
        with.len(),
        &with[..with.len().min(20)]
    );
    assert!(
        doublings > 10_000 && alone > 1000,
        "{alone} of {doublings} doublings fall alone: nothing was tested"
    );
}
