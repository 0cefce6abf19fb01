//! Fewer bits of one packing are never slower, and an interval never claims to rest on more than it does.

#![allow(clippy::unwrap_used, reason = "what is built in parses, which its own tests show")]

use std::collections::BTreeMap;

use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::{Hardware, registry};
use rooflined_core::precision::WeightFormat;
use rooflined_models::registry::models;
use rooflined_models::transformer::{Phase, Request};
use rooflined_predict::Engine;
use rooflined_predict::costs::{FILES, Family, IntervalSource, Part, engine_costs, recipe};
use rooflined_predict::device_order::is_no_less;
use rooflined_predict::model::{Costs, predict_model};

/// Formats of which the first has fewer bits in the same packing, or is read with half of the bytes.
const PAIRS: [(WeightFormat, WeightFormat); 4] = [
    (WeightFormat::Q4KM, WeightFormat::Q5KM),
    (WeightFormat::Q5KM, WeightFormat::Q6K),
    (WeightFormat::Q4_0, WeightFormat::Q5_0),
    (WeightFormat::Q8_0, WeightFormat::Fp16),
];

/// Differences below this are no order.
const TIE: f64 = 1.001;

fn boards() -> impl Iterator<Item = &'static Hardware> {
    registry().entries().filter(|hardware| hardware.key.starts_with("jetson-") || hardware.key == "gb10")
}

fn points(hardware: &Hardware) -> Vec<OperatingPoint> {
    let of = |mode: &rooflined_core::hardware::NominalMode| OperatingPoint {
        gpu_clock: Some(mode.gpu_clock),
        memory_clock: Some(mode.memory_clock),
        sm_online: Some(mode.sm_online),
        ..OperatingPoint::default()
    };
    if hardware.modes.is_empty() {
        return vec![OperatingPoint::default()];
    }
    hardware.modes.iter().map(of).collect()
}

#[test]
fn fewer_bits_of_one_packing_are_not_slower_on_any_board_in_any_mode() {
    let mut groups = 0;
    let mut inversions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for hardware in boards() {
        let costs = engine_costs(Engine::LlamaCpp, Some(&hardware.key));
        for (mode, point) in points(hardware).iter().enumerate() {
            let roofline = datasheet(hardware, point);
            for model in models().all() {
                let time = |format: WeightFormat| {
                    let model = model.model(recipe(Engine::LlamaCpp, format));
                    let answer =
                        predict_model(&roofline, Costs::Engine(costs), &model, &Request::decode(512));
                    answer.unwrap().time.value.get()
                };
                groups += 1;
                for (fewer, more) in PAIRS {
                    let ratio = time(fewer) / time(more);
                    if ratio > TIE {
                        let mode = hardware.modes.get(mode).map_or("", |mode| mode.name.as_str());
                        let place = format!("{} {mode} {} {ratio:.3}", hardware.key, model.key);
                        inversions.entry(format!("{} {}", fewer.key(), more.key())).or_default().push(place);
                    }
                }
            }
        }
    }
    assert!(groups > 4000, "{groups}");
    for (pair, places) in &inversions {
        assert!(places.is_empty(), "{} of {groups} for {pair}: {places:#?}", places.len());
    }
}

#[test]
fn an_interval_names_no_group_without_rows_of_its_storage() {
    for (name, _) in FILES {
        let engine: Engine = Engine::ALL.into_iter().find(|engine| engine.key() == *name).unwrap();
        let machines = registry().keys().map(Some).chain([None]);
        for hardware in machines {
            let costs = engine_costs(engine, hardware);
            for family in Family::ALL {
                let width = |depth| costs.interval(*family, Part::Decode, depth).half_width_ratio;
                assert!(
                    width(0.0) <= width(0.4) && width(0.4) <= width(1.0),
                    "{name} {hardware:?} {family:?}"
                );
                for (part, depth) in
                    [(Part::Decode, 0.0), (Part::Depth, 1.0), (Part::Several, 0.0), (Part::Prefill, 0.0)]
                {
                    let (interval, of_any) = (costs.interval(*family, part, depth), costs.interval.of(part));
                    match costs.families.get(family) {
                        None => {
                            assert!(interval.from >= IntervalSource::All, "{name} {hardware:?} {family:?}");
                            assert!(interval.half_width_ratio >= of_any.half_width_ratio * 0.999_999);
                        }
                        Some(errors) if !errors.here => {
                            assert!(
                                interval.from >= IntervalSource::Engine,
                                "{name} {hardware:?} {family:?}"
                            );
                        }
                        Some(_) => assert!(costs.machine_known),
                    }
                }
            }
        }
    }
}

#[test]
fn a_card_with_at_least_the_bandwidth_memory_and_peaks_of_another_of_its_family_is_never_slower() {
    let prompt =
        Request { prompt_tokens: 2048, phase: Phase::Prefill, output_tokens: 0, ..Request::decode(0) };
    let requests = [
        Request::decode(512),
        Request::decode(32_768),
        Request { batch: 8, ..Request::decode(2048) },
        Request { usual_chunk_tokens: Some(512), ..prompt },
    ];
    let subjects = [
        (
            Engine::LlamaCpp,
            WeightFormat::Q4KM,
            ["llama-3.2-1b", "llama-3.1-8b", "qwen3.5-35b-a3b", "gpt-oss-120b"],
        ),
        (Engine::Vllm, WeightFormat::Bf16, ["llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b", "qwen3-32b"]),
    ];
    let mut pairs = 0;
    for greater in registry().entries() {
        for lesser in registry().entries().filter(|lesser| lesser.key != greater.key) {
            if !is_no_less(greater, lesser) {
                continue;
            }
            pairs += 1;
            for (engine, format, keys) in subjects {
                for (key, request) in keys.iter().flat_map(|key| requests.map(|request| (key, request))) {
                    let model = models().get(key).unwrap().model(recipe(engine, format));
                    let time = |hardware: &Hardware| {
                        let costs = Costs::Engine(engine_costs(engine, Some(&hardware.key)));
                        let roofline = datasheet(hardware, &OperatingPoint::default());
                        predict_model(&roofline, costs, &model, &request).unwrap().time.value.get()
                    };
                    let (slow, fast) = (time(lesser), time(greater));
                    assert!(
                        fast <= slow * 1.001,
                        "{} {fast} {} {slow} {key} {request:?}",
                        greater.key,
                        lesser.key
                    );
                }
            }
        }
    }
    assert!(pairs >= 20, "{pairs}");
}
