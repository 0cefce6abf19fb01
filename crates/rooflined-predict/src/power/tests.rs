use std::collections::BTreeMap;

use super::*;
use crate::costs::{engine_costs, recipe};
use crate::model::{Costs, predict_model};
use crate::{Engine, EngineProfile, Prediction, predict};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::{Kind, registry};
use rooflined_core::operation::Op;
use rooflined_core::precision::{NumericFormat, WeightFormat};
use rooflined_core::units::Hertz;
use rooflined_models::registry::models;
use rooflined_models::transformer::Request;

const NANO: &str = "jetson-orin-nano-8gb-super";
const AGX: &str = "jetson-agx-orin-64gb";

fn roofline(key: &str, clock: Option<f64>) -> Roofline {
    let point = OperatingPoint { gpu_clock: clock.map(Hertz), ..OperatingPoint::default() };
    datasheet(registry().get(key).unwrap(), &point)
}

fn costs() -> PowerCosts {
    PowerCosts {
        rails: Rails::Gpu,
        source: PowerSource::Prior,
        coefficients: Coefficients {
            idle_w: 60.0,
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
    let (costs, roofline) = (costs(), roofline("a40", None));
    let heavy = activity(1e12, 40e12, 0.0);
    // 100 J of bytes and 200 J of work over the 230 W that are left of 330, which the interval reaches with 300.
    let least = 300.0 / 230.0;
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - least).abs() < 1e-9);
    let (time, limit) = costs.capped(&heavy, &roofline, second());
    assert_eq!(limit, Some(Limit::PowerCap));
    assert!((time.value.get() - least).abs() < 1e-9 && time.low <= time.value && time.value < time.high);
    assert_eq!(costs.capped(&activity(1e11, 1e12, 0.0), &roofline, second()), (second(), None));
    let unlimited = PowerCosts { cap: None, ..costs };
    assert_eq!(unlimited.capped(&heavy, &roofline, second()), (second(), None));
}

#[test]
fn work_of_another_precision_widens_the_interval_and_slows_by_no_more_than_is_certain() {
    let (costs, roofline) = (costs(), roofline("a40", None));
    let heavy =
        Activity { traffic: Bytes(1e11), work: vec![(Precision::Fp16, Flops(2e13))], dequantized: 0.0 };
    // A quarter of the energy in a unit of four times the rate is certain: 10 J of bytes and 25 J of work over 230 W.
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - 35.0 / 230.0).abs() < 1e-3);
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
        let file = PowerFile::parse(text).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(file.hardware, *key);
        assert!(file.boards.contains(&file.hardware), "{key}");
        assert!(file.boards.iter().all(|board| registry().get(board).is_some()), "{key}");
    }
}

/// The file of all boards with the silicon of an Orin.
fn orin() -> PowerFile {
    PowerFile::parse(FILES.iter().find(|(key, _)| *key == AGX).unwrap().1).unwrap()
}

#[test]
fn a_measured_mode_is_answered_without_reserve_and_in_watts_of_the_module() {
    for (key, modes) in [(NANO, ["7W", "15W", "25W", "MAXN_SUPER"].as_slice()), (AGX, &["30W", "MAXN"])] {
        let known = registry().get(key).unwrap();
        for mode in modes {
            let roofline = datasheet(known, &known.mode(mode).unwrap().operating_point());
            let costs = power_of(Some(known), &roofline).unwrap();
            assert!(costs.warnings.is_empty() && !costs.carried, "{key} {mode}: {:?}", costs.warnings);
            assert_eq!(costs.rails, Rails::Module);
            assert!((costs.half_width_ratio / orin().half_width_ratio - 1.0).abs() < 1e-3, "{key} {mode}");
        }
    }
}

#[test]
fn what_was_not_measured_is_less_certain_the_farther_away_it_is_and_says_so() {
    let file = orin();
    let at = |clock| power_of(registry().get(NANO), &roofline(NANO, Some(clock))).unwrap();
    let (near, far) = (at(800e6), at(204e6));
    for costs in [&near, &far] {
        assert!(costs.carried && costs.warnings[0].contains("was not measured"), "{:?}", costs.warnings);
    }
    assert!(far.half_width_ratio > near.half_width_ratio && near.half_width_ratio > file.half_width_ratio);
    let measured_once = power_of(registry().get("gb10"), &roofline("gb10", Some(2e9))).unwrap();
    // What is estimated from other boards was not measured here.
    let said = "the power of boards like this one was measured at 2489 MHz only";
    assert!(measured_once.warnings[0].starts_with(said), "{:?}", measured_once.warnings);
}

#[test]
fn the_gpu_of_a_gb10_draws_less_at_a_lower_clock_as_its_owners_report() {
    // GPU watts at 2000 MHz against no lock: -41 to -49 % in five reports; -25 to -36 % at 2200 (the public files that
    // docs/internals/prediction.md names). Module watts fall by less.
    let known = registry().get("gb10").unwrap();
    let file = PowerFile::parse(FILES.iter().find(|(key, _)| *key == "gb10").unwrap().1).unwrap();
    let model = models().get("qwen3-8b").unwrap().model(recipe(Engine::Vllm, WeightFormat::Bf16));
    let saved = |clock: f64, of: &dyn Fn(&Roofline) -> PowerCosts| {
        let watts = |clock: f64| {
            let roofline = roofline("gb10", Some(clock));
            let costs = Costs::Engine(engine_costs(Engine::Vllm, Some("gb10")));
            let plain = predict_model(&roofline, costs, &model, &Request::decode(1024)).unwrap();
            plain.watts_alone(&of(&roofline), &roofline).unwrap()
        };
        1.0 - watts(clock) / watts(2.495e9)
    };
    let gpu = |roofline: &Roofline| file.at(roofline, PowerSource::Prior).unwrap();
    let module = |roofline: &Roofline| power_of(Some(known), roofline).unwrap();
    assert!((0.41..0.49).contains(&saved(2e9, &gpu)), "{}", saved(2e9, &gpu));
    assert!((0.25..0.36).contains(&saved(2.2e9, &gpu)), "{}", saved(2.2e9, &gpu));
    assert!((0.2..0.35).contains(&saved(2e9, &module)), "{}", saved(2e9, &module));
}

#[test]
fn a_card_draws_the_share_of_its_limit_that_another_does_of_its_own() {
    let share = |key: &str, clock: f64| {
        let known = registry().get(key).unwrap();
        let roofline = roofline(key, Some(known.gpu_clock.get() * clock));
        let costs = power_of(Some(known), &roofline).unwrap();
        assert_eq!((costs.rails, costs.cap), (Rails::Gpu, known.tdp), "{key}");
        let seconds = Seconds(1.0);
        let time = Estimate { value: seconds, low: seconds, high: seconds };
        // Half of the bandwidth, for weights of which each core unpacks three a cycle.
        let activity = Activity {
            traffic: Bytes(known.bandwidth.get() * 0.5),
            work: Vec::new(),
            dequantized: f64::from(known.sm) * known.gpu_clock.get() * clock * 3.0,
        };
        (costs.of(&activity, &roofline, time).unwrap().watts.value / known.tdp.unwrap(), costs)
    };
    for clock in [0.5, 0.8, 1.0] {
        let (measured, of) = share("rtx-3090", clock);
        assert!(!of.carried || clock < 1.0);
        for known in registry().entries().filter(|known| known.kind == Kind::Discrete) {
            let (carried, costs) = share(&known.key, clock);
            if FILES.iter().any(|(key, _)| *key == known.key) {
                continue;
            }
            // Below the full clock the constant part of an RTX 3090 and its kin counts for more.
            let is_same = clock >= 1.0 || known.compute_capability == Some((8, 6));
            let is_right = if is_same { (carried / measured - 1.0).abs() < 1e-9 } else { carried < measured };
            assert!(is_right, "{} {clock}: {carried} {measured}", known.key);
            assert!(costs.carried && costs.half_width_ratio > of.half_width_ratio, "{}", known.key);
            assert!(costs.warnings[0].contains("scaled from rtx-3090"), "{:?}", costs.warnings);
        }
    }
}

#[test]
fn what_nobody_measured_has_no_power() {
    assert_eq!(power_of(registry().get("cpu"), &roofline(NANO, None)), None);
    assert_eq!(power_of(None, &roofline(NANO, None)), None);
    let clockless = Roofline { clock: None, ..roofline(NANO, None) };
    assert_eq!(power_of(registry().get(NANO), &clockless), None);
}

/// Every operating point of a module that the registry knows.
fn points_of(hardware: &rooflined_core::hardware::Hardware) -> Vec<(String, Roofline)> {
    let modes = hardware.modes.iter().map(|mode| (mode.name.clone(), mode.operating_point()));
    let points: Vec<_> = modes.collect();
    let points = if points.is_empty() { vec![(String::new(), OperatingPoint::default())] } else { points };
    points.into_iter().map(|(name, point)| (name, datasheet(hardware, &point))).collect()
}

fn modules() -> impl Iterator<Item = &'static rooflined_core::hardware::Hardware> {
    registry().entries().filter(|known| known.kind == rooflined_core::hardware::Kind::Integrated)
}

#[test]
fn every_module_has_power_within_its_limit_and_says_whose_it_is() {
    let mut carried = 0;
    for known in modules() {
        for (mode, roofline) in points_of(known) {
            let costs = power_of(Some(known), &roofline).unwrap_or_else(|| panic!("{} {mode}", known.key));
            let limit = known.tdp.unwrap() * 1.25;
            assert_eq!((costs.cap, costs.rails), (Some(limit), Rails::Module), "{} {mode}", known.key);
            let of = &costs.coefficients;
            assert!(0.0 < of.idle_w && of.idle_w < of.static_w, "{} {mode}: {costs:?}", known.key);
            assert!(of.static_w < 0.8 * limit.get(), "{} {mode}: {costs:?}", known.key);
            let worst = costs.worst(&roofline).unwrap();
            assert!(worst <= limit, "{} {mode}: {worst}", known.key);
            if !FILES.iter().any(|(_, text)| text.contains(&format!("\"{}\"", known.key))) {
                carried += 1;
                assert!(
                    costs.half_width_ratio > 0.17 && costs.words()[0].contains("scaled from"),
                    "{costs:?}"
                );
            }
        }
    }
    assert!(carried > 30, "{carried}");
}

#[test]
fn what_is_carried_to_other_modules_is_near_what_was_measured_of_them() {
    // VDD_IN of an Orin NX 16GB, idle and under a stress test: ARK-Electronics/ark_jetson_kernel, docs/power.md. VIN of a
    // Thor near idle, and the socket of idle Xaviers: the public files that docs/internals/prediction.md names.
    for (key, mode, idle, measured) in [
        ("jetson-orin-nx-16gb-super", "25W", false, 16.9),
        ("jetson-orin-nx-16gb-super", "MAXN_SUPER", false, 29.4),
        ("jetson-orin-nx-16gb-super", "MAXN_SUPER", true, 4.6),
        ("jetson-agx-thor-t5000", "MAXN", true, 24.6),
        ("jetson-agx-xavier", "MODE_15W", true, 6.5),
    ] {
        let known = registry().get(key).unwrap();
        let roofline = datasheet(known, &known.mode(mode).unwrap().operating_point());
        let costs = power_of(Some(known), &roofline).unwrap();
        let loaded = || (costs.flat_out(&roofline).unwrap(), costs.half_width_ratio);
        // The clocks of an idle board are free to fall below those of its mode.
        let (watts, off) =
            if idle { (costs.coefficients.idle_w, costs.half_width_ratio.max(0.3)) } else { loaded() };
        let (low, high) = (watts / (1.0 + off), watts * (1.0 + off));
        assert!(low < measured && measured < high, "{key} {mode}: {watts} W, measured {measured} W");
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
    // 150 J of bytes over the 180 W that busy cores leave of 230.
    let heavy = activity(1.5e12, 100e12, 0.0);
    assert!((costs.least_time(&heavy, &roofline).unwrap().get() - 150.0 / 180.0).abs() < 1e-9);
}

#[test]
fn an_integer_gemm_on_a_module_takes_what_was_measured_and_not_the_limit_three_times() {
    let known = registry().get("jetson-agx-orin-64gb").unwrap();
    let roofline = datasheet(known, &OperatingPoint::default());
    let costs = power_of(Some(known), &roofline).unwrap();
    let format = NumericFormat::stored(WeightFormat::Int8);
    let op = Op::Gemm { m: 4096, n: 4096, k: 4096 };
    let plain = predict(&roofline, &EngineProfile::unknown(Engine::Bare), &op, &format).unwrap();
    let with = plain.clone().with_power_at(Some((&costs, &roofline)), Default::default());
    let watts = with.power.unwrap().watts;
    assert!(watts.value < Watts(60.0) && watts.high <= Watts(75.0), "{watts:?}");
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
    let with = plain.clone().with_power_at(Some((&costs, &roofline)), Default::default());
    let power = with.power.unwrap();
    assert_eq!(with.time, plain.time);
    assert_eq!(power.from.key(), "module");
    assert!((1.0..40.0).contains(&power.watts.value.get()), "{power:?}");
    let energy = power.watts.value.get() * with.time.value.get();
    assert!((power.energy.value.get() / energy - 1.0).abs() < 1e-9);
    assert!(with.warnings.iter().any(|warning| warning.contains("from other boards")));
}

#[test]
fn impossible_files_are_refused_by_name() {
    let good = orin();
    let refused = |change: &dyn Fn(&mut PowerFile)| {
        let mut file = good.clone();
        change(&mut file);
        file.check().unwrap_err().to_string()
    };
    assert!(refused(&|file| file.energies.byte_j = -1.0).contains("byte_j"));
    assert!(refused(&|file| file.energies.idle_w = f64::NAN).contains("idle_w"));
    assert!(refused(&|file| file.reference.clock_hz = 0.0).contains("clock_hz"));
    assert!(refused(&|file| file.cap_w = Some(0.5)).contains("idle_w"));
    assert!(refused(&|file| file.points.clear()).contains("points"));
    assert!(PowerFile::parse("hardware = 3").is_err());
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
                        plain[&batch].clone().with_power(Some((&costs, &roofline)), batch, |fewer| {
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
                    let run = plain.with_power_at(Some((&costs, &roofline)), Default::default());
                    count += 1;
                    visit(&format!("{} {mode} {op:?} {format}", known.key), &costs, &[run], &[]);
                }
            }
        }
    }
    count
}

#[test]
fn no_prediction_is_above_the_limit_or_reaches_it_without_naming_the_limit() {
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
        "{count} predictions, {held} at the limit, {slowed} slowed by it"
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
