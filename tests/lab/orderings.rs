//! Fewer bits of one packing are never slower, and an interval never claims to rest on more than it does.

#![allow(clippy::unwrap_used, reason = "what is built in parses, which its own tests show")]

use std::collections::BTreeMap;

use predict::Engine;
use predict::costs::{FILES, Family, IntervalSource, Part, engine_costs, recipe};
use predict::model::{Costs, predict_model};
use roofline::board::OperatingPoint;
use roofline::ceilings::datasheet;
use roofline::hardware::{Hardware, registry};
use roofline::precision::WeightFormat;
use roofline::workload::registry::models;
use roofline::workload::transformer::Request;

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
    let of = |mode: &roofline::hardware::NominalMode| OperatingPoint {
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
                for part in [Part::Decode, Part::Several, Part::Prefill] {
                    let (interval, of_any) = (costs.intervals(*family).of(part), costs.interval.of(part));
                    match costs.families.get(family) {
                        None => {
                            assert!(interval.from >= IntervalSource::All, "{name} {hardware:?} {family:?}");
                            assert!(interval.half_width_ratio >= of_any.half_width_ratio);
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
