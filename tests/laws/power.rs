//! What physics says of power, over every machine of the registry that has one.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Roofline, datasheet};
use rooflined_core::hardware::{Hardware, Kind, registry};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Hertz;
use rooflined_models::model::Model;
use rooflined_models::registry::models;
use rooflined_models::transformer::Request;
use rooflined_predict::costs::{engine_costs, recipe};
use rooflined_predict::model::{Costs, predict_model};
use rooflined_predict::power::{PowerCosts, power_of, rungs};
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, Prediction};

const ENGINE: Engine = Engine::LlamaCpp;
/// Rounding, and where two ceilings of a time meet.
const EQUAL: f64 = 1.0 + 1e-6;

/// Clocks and units of a machine.
#[derive(Debug, Clone, Copy)]
struct At {
    clock: f64,
    memory: Option<f64>,
    sm: u32,
}

impl At {
    fn point(self) -> OperatingPoint {
        OperatingPoint {
            gpu_clock: Some(Hertz(self.clock)),
            memory_clock: self.memory.map(Hertz),
            sm_online: Some(self.sm),
            ..OperatingPoint::default()
        }
    }

    fn full(of: &Hardware) -> Self {
        Self { clock: of.gpu_clock.get(), memory: of.memory_clock.map(Hertz::get), sm: of.sm }
    }

    /// A random one, no higher than `most`.
    fn random(random: &mut fastrand::Rng, most: Self) -> Self {
        Self {
            clock: most.clock * (0.2 + 0.8 * random.f64()),
            memory: most.memory.map(|clock| clock * (0.3 + 0.7 * random.f64())),
            sm: random.u32(1..=most.sm),
        }
    }
}

/// Work whose power is predicted.
#[derive(Clone)]
struct Load {
    name: String,
    model: Model,
    request: Request,
}

fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for key in ["smollm2-135m", "llama-3.1-8b", "qwen3-30b-a3b"] {
        for format in [WeightFormat::Fp16, WeightFormat::Q4_0] {
            for request in [Request::decode(2048), Request::prefill(512)] {
                let model = models().get(key).unwrap().model(recipe(ENGINE, format));
                loads.push(Load { name: format!("{key} {format} {:?}", request.phase), model, request });
            }
        }
    }
    loads
}

fn costs_at(of: &Hardware, at: At) -> (PowerCosts, Roofline) {
    let roofline = datasheet(of, &at.point());
    (power_of(Some(of), &roofline).unwrap(), roofline)
}

fn run(of: &Hardware, at: At, load: &Load, batch: u64) -> Prediction {
    let (costs, roofline) = costs_at(of, at);
    let engine = engine_costs(ENGINE, Some(&of.key));
    let plain = |batch| {
        let request = Request { batch, ..load.request };
        predict_model(&roofline, Costs::Engine(engine), &load.model, &request).unwrap()
    };
    let all: BTreeMap<u64, Prediction> = rungs(batch).map(|rung| (rung, plain(rung))).collect();
    plain(batch).with_power(Some((&costs, &roofline)), batch, |fewer| all.get(&fewer).cloned())
}

fn watts(of: &Hardware, at: At, load: &Load, batch: u64) -> f64 {
    run(of, at, load, batch).power.unwrap().watts.value.get()
}

/// Every machine that has power without a calibration.
fn machines() -> Vec<&'static Hardware> {
    let all = registry()
        .entries()
        .filter(|of| power_of(Some(of), &datasheet(of, &OperatingPoint::default())).is_some());
    all.collect()
}

/// Named modes of all machines, as clocks.
fn modes(of: &Hardware) -> impl Iterator<Item = (&str, At)> {
    of.modes.iter().map(|mode| {
        let at =
            At { clock: mode.gpu_clock.get(), memory: Some(mode.memory_clock.get()), sm: mode.sm_online };
        (mode.name.as_str(), at)
    })
}

#[test]
fn watts_never_fall_when_a_clock_a_unit_or_the_load_grows() {
    let (mut random, loads, mut cases) = (fastrand::Rng::with_seed(3), loads(), 0);
    for of in machines() {
        for load in &loads {
            for _ in 0..12 {
                let high = At::random(&mut random, At::full(of));
                let low = At::random(&mut random, high);
                let (few, many) = (1 << random.u32(0..4), random.u64(1..=16));
                let full = watts(of, high, load, few);
                let lower = [
                    ("gpu clock", At { clock: low.clock, ..high }, few),
                    ("memory clock", At { memory: low.memory, ..high }, few),
                    ("cores", At { sm: low.sm, ..high }, few),
                    ("all of these", low, few),
                ];
                for (what, at, batch) in lower {
                    let less = watts(of, at, load, batch);
                    cases += 1;
                    assert!(
                        less <= full * EQUAL,
                        "{} {} {what}: {less} W at {at:?}, {full} W at {high:?}",
                        of.key,
                        load.name
                    );
                }
                let more = watts(of, high, load, few.max(many));
                cases += 1;
                assert!(full <= more * EQUAL, "{} {} batch {few}, {many}: {full} {more}", of.key, load.name);
            }
        }
    }
    assert!(cases > 20_000, "{cases}");
}

/// A service plans with the upper ends: they must not say that more users are served sooner, or for fewer watts.
#[test]
fn at_worst_more_sequences_take_no_less_time_and_draw_no_less() {
    use WeightFormat as F;
    let formats = [F::Q4KM, F::Q5KM, F::Q6K, F::Q8_0, F::Iq4Xs, F::Fp16, F::AwqInt4, F::Int4G32, F::Fp8E4m3];
    let boards = ["jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "gb10", "rtx-4090", "h100-sxm"];
    let batches: Vec<u64> = (1..=9).chain([12, 13, 16, 24, 31, 32, 64]).collect();
    let mut cases = 0;
    for (of, engine) in
        boards.iter().flat_map(|key| Engine::ALL.into_iter().map(move |engine| (*key, engine)))
    {
        let of = registry().get(of).unwrap();
        let points = modes(of).map(|(_, at)| at).chain([At::full(of)]).take(3);
        for (at, format) in points.flat_map(|at| formats.map(|format| (at, format))) {
            let (costs, roofline) = costs_at(of, at);
            for key in ["qwen3-4b", "qwen3-30b-a3b"] {
                let model = models().get(key).unwrap().model(recipe(engine, format));
                for request in [Request::decode(4096), Request::prefill(512)] {
                    let plain = |batch| {
                        let of = Costs::Engine(engine_costs(engine, Some(&of.key)));
                        predict_model(&roofline, of, &model, &Request { batch, ..request }).unwrap()
                    };
                    let plain: BTreeMap<u64, Prediction> =
                        rungs(64).chain(batches.iter().copied()).map(|batch| (batch, plain(batch))).collect();
                    let mut last = (0.0, 0.0);
                    for batch in &batches {
                        let power = Some((&costs, &roofline));
                        let run = plain[batch]
                            .clone()
                            .with_power(power, *batch, |fewer| plain.get(&fewer).cloned());
                        let now = (run.time.high.get(), run.power.unwrap().watts.high.get());
                        cases += 1;
                        assert!(
                            last.0 <= now.0 * EQUAL && last.1 <= now.1 * EQUAL,
                            "{} {engine:?} {key} {format} {:?} x{batch}: {last:?} s and W, then {now:?}",
                            of.key,
                            request.phase
                        );
                        last = now;
                    }
                }
            }
        }
    }
    assert!(cases > 20_000, "{cases}");
}

#[test]
fn an_idle_board_draws_less_than_any_run() {
    let (mut random, loads) = (fastrand::Rng::with_seed(5), loads());
    for of in machines() {
        for load in &loads {
            let at = At::random(&mut random, At::full(of));
            let idle = costs_at(of, at).0.coefficients.idle_w;
            let watts = watts(of, at, load, 1);
            assert!(0.0 < idle && idle < watts, "{} {}: {idle} W idle, {watts} W", of.key, load.name);
        }
    }
}

#[test]
fn two_per_cent_of_clock_are_no_step_in_watts() {
    let (loads, mut cases) = (loads(), 0);
    for of in machines() {
        let full = At::full(of);
        let places = modes(of).map(|(_, at)| at).chain([full]).collect::<Vec<_>>();
        for load in &loads {
            for at in &places {
                for step in 0..60 {
                    let clock = full.clock * (0.3 + 0.7 * f64::from(step) / 60.0);
                    let low = watts(of, At { clock, ..*at }, load, 1);
                    let high = watts(of, At { clock: clock * 1.02, ..*at }, load, 1);
                    cases += 1;
                    assert!(high < low * 1.05, "{} {} {at:?} {clock}: {low} {high}", of.key, load.name);
                }
            }
        }
    }
    assert!(cases > 40_000, "{cases}");
}

#[test]
fn no_named_mode_is_a_dip_in_the_power_of_its_clocks() {
    let (loads, mut dips, mut all) = (loads(), Vec::new(), 0);
    for of in machines() {
        let snapshot = Snapshot::hypothetical(Arc::new(of.clone()));
        for ((name, at), view) in modes(of).zip(snapshot.modes.iter()) {
            all += 1;
            let by_name = snapshot.power_costs(&view.roofline).unwrap();
            let (by_clock, _) = costs_at(of, at);
            assert_eq!(by_name, by_clock, "{} {name} is nothing but its clocks", of.key);
            let here = |factor: f64| watts(of, At { clock: at.clock * factor, ..at }, &loads[3], 1);
            let (below, named, above) = (here(0.96), here(1.0), here(1.04));
            if named < below * 0.9 && named < above * 0.9 {
                dips.push(format!("{} {name}: {below:.1} {named:.1} {above:.1}", of.key));
            }
        }
    }
    assert!(all > 60 && dips.is_empty(), "{} of {all} modes: {dips:#?}", dips.len());
}

#[test]
fn a_smaller_module_draws_no_more_than_a_larger_one_of_its_family_at_the_same_point() {
    let (mut random, mut pairs) = (fastrand::Rng::with_seed(9), 0);
    let modules: Vec<_> = machines().into_iter().filter(|of| of.kind == Kind::Integrated).collect();
    for small in &modules {
        let larger = modules.iter().filter(|large| {
            large.key != small.key
                && large.compute_capability == small.compute_capability
                && (large.sm >= small.sm && large.bus_bits >= small.bus_bits)
                && large.gpu_clock >= small.gpu_clock
                && large.memory_clock >= small.memory_clock
        });
        for large in larger {
            for _ in 0..20 {
                let at = At::random(&mut random, At::full(small));
                let ([small_costs, large_costs], rooflines) = {
                    let (a, b) = (costs_at(small, at), costs_at(large, at));
                    ([a.0, b.0], [a.1, b.1])
                };
                let [of, others] = [&small_costs.coefficients, &large_costs.coefficients];
                assert!(of.idle_w <= others.idle_w * EQUAL && of.static_w <= others.static_w * EQUAL);
                assert!(rooflines[0].bandwidth.value.get() <= rooflines[1].bandwidth.value.get() * EQUAL);
                for (part, others) in [
                    (of.byte_j, others.byte_j),
                    (of.weight_j, others.weight_j),
                    (of.flop_j.unwrap(), others.flop_j.unwrap()),
                    (of.busy_w.unwrap(), others.busy_w.unwrap()),
                ] {
                    assert!(part <= others * EQUAL, "{} {}: {of:?} {others:?}", small.key, large.key);
                }
                pairs += 1;
            }
        }
    }
    assert!(pairs > 500, "{pairs}");
}

#[test]
fn the_worst_of_a_mode_is_no_more_than_its_module_can_draw() {
    for of in machines() {
        for (name, at) in modes(of) {
            let (costs, roofline) = costs_at(of, at);
            let worst = costs.worst(&roofline).unwrap().get();
            let most = of.tdp.unwrap().get() * 1.25;
            assert!(costs.coefficients.static_w < worst && worst <= most, "{} {name}: {worst} W", of.key);
        }
    }
}

#[test]
fn the_least_energy_of_a_few_clocks_is_that_of_every_clock() {
    let (loads, mut cases) = (loads(), 0);
    for of in machines() {
        let full = At::full(of);
        for load in &loads {
            let energy =
                |clock: f64| run(of, At { clock, ..full }, load, 1).energy_per_token().unwrap().value.get();
            let least =
                |clocks: &mut dyn Iterator<Item = f64>| clocks.map(energy).fold(f64::INFINITY, f64::min);
            let lowest = full.clock * 0.3;
            let steps =
                |count: u32| move |step| lowest + (full.clock - lowest) * f64::from(step) / f64::from(count);
            let few = least(&mut (0..=16).map(steps(16)));
            // Every 10 MHz or less.
            let every = least(&mut (0..=180).map(steps(180)));
            cases += 1;
            assert!(few <= every * 1.02, "{} {}: {few} {every}", of.key, load.name);
        }
    }
    assert!(cases > 300, "{cases}");
}
