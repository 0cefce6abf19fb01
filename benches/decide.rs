//! Time of one decision over 12 formats x 8 power modes x 32 batches of Llama-3.1-8B, in process, beside predicting as many
//! candidates one by one in the same run.
//!
//! ```text
//! cargo bench -p rooflined-benches --bench decide
//! ```
//!
//! The board is the data sheet of an AGX Orin 64 GB with eight power modes made up between its lowest and its highest. A
//! decision is everything from the checked query to the choice, its full prediction, the front and the reason. The yardstick
//! is a full prediction of each candidate, with its power and its breakdown. What is counted beside it is the whole answer
//! as bytes, and the same asked again from an unchanged snapshot. Figures are medians.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where its world does")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rooflined_advice::recent::Recent;
use rooflined_advice::{Catalogue, Request, answer};
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Hertz, Seconds, Watts};
use rooflined_governor::Now;
use rooflined_models::registry::models;
use rooflined_models::transformer::{Phase, Request as Run};
use rooflined_predict::learning::models::{ModelQuery, stored_as};
use rooflined_predict::optimize::{
    Constraints, EnergyBasis, ModelOrigin, Modes, Objective, Optimism, Query, StoredModel, USUAL_RUN,
    WorkForms, decide,
};
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, costs};
use serde_json::json;

const MODES: u32 = 8;
const BATCHES: u64 = 32;
/// Longest time of a decision, in milliseconds.
const TARGET_MS: f64 = 15.0;
const FORMATS: [WeightFormat; 12] = {
    use WeightFormat as F;
    [
        F::Q2K,
        F::Q3KM,
        F::Q4_0,
        F::Q4KS,
        F::Q4KM,
        F::Q5_0,
        F::Q5KS,
        F::Q5KM,
        F::Q6K,
        F::Q8_0,
        F::Iq4Xs,
        F::Fp16,
    ]
};

fn board() -> Snapshot {
    let hardware = registry().get("jetson-agx-orin-64gb").unwrap().clone();
    let mut snapshot = Snapshot::hypothetical(Arc::new(hardware));
    let mut views = snapshot.modes.as_ref().clone();
    let model = views[0].clone();
    views.clear();
    for id in 0..MODES {
        let mut view = model.clone();
        view.mode.id = id;
        view.mode.name = format!("mode {id}");
        view.mode.gpu_max = Some(Hertz(400e6 + 120e6 * f64::from(id)));
        let (roofline, profile) = snapshot.gpu_at(&view.mode.operating_point()).unwrap();
        (view.roofline, view.profile) = (roofline, profile);
        views.push(view);
    }
    snapshot.modes = Arc::new(views);
    snapshot
}

fn query(phase: Phase, objective: Objective) -> Query {
    let engine = Engine::LlamaCpp;
    let known = models().get("llama-3.1-8b").unwrap();
    let serve = phase == Phase::Serve;
    Query {
        work: WorkForms::Model {
            name: "llama-3.1-8b".to_owned(),
            request: Run {
                phase,
                batch: 1,
                context_tokens: 2048,
                prompt_tokens: if serve { 512 } else { 0 },
                output_tokens: if serve { 128 } else { 0 },
                usual_chunk_tokens: costs::chunk_tokens(engine),
                activations: WeightFormat::Fp16,
                kv_cache: WeightFormat::Fp16,
                ..Run::decode(0)
            },
            stored: FORMATS
                .iter()
                .map(|format| StoredModel {
                    format: Some(format.key().to_owned()),
                    model: Arc::new(known.model(costs::recipe(engine, *format))),
                    quality_loss: Some(format.expected_loss()),
                    origin: ModelOrigin::Otherwise,
                })
                .collect(),
            kv_formats: vec![WeightFormat::Fp16],
        },
        engine,
        objective,
        constraints: Constraints {
            max_time_per_token: Some(Seconds(0.5)),
            max_power: Some(Watts(30.0)),
            ..Constraints::default()
        },
        modes: Modes::All,
        caps: Vec::new(),
        energy: EnergyBasis::WithIdle,
        allow_reboot: false,
        threads: Vec::new(),
        batch: 1..=BATCHES,
        optimism: Optimism::Pessimistic,
        run_time: USUAL_RUN,
        reserve: Bytes(512e6),
    }
}

/// Every candidate in full, one by one: the yardstick.
fn one_by_one(snapshot: &Snapshot, query: &Query) -> f64 {
    let WorkForms::Model { name, request, stored, kv_formats } = &query.work else { return f64::NAN };
    let hardware = snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str());
    let mut best = f64::INFINITY;
    for stored in stored {
        let filed_as = stored_as(stored.format.as_deref(), kv_formats[0]);
        for view in snapshot.modes.iter() {
            for batch in query.batch.clone() {
                let request = Run { batch, ..*request };
                let asked = ModelQuery {
                    engine: query.engine,
                    name,
                    format: &filed_as,
                    model: &stored.model,
                    request: &request,
                    roofline: &view.roofline,
                    kernels: None,
                    cpu: None,
                    build: costs::Build::Current,
                    hardware,
                };
                let prediction = snapshot.observed_runs.predict(&asked).unwrap();
                let costs = snapshot.power_costs(&view.roofline).unwrap();
                let prediction = prediction.with_power_at(Some((&costs, &view.roofline)), Default::default());
                best = best.min(prediction.time.value.get());
            }
        }
    }
    best
}

/// Median time of one call in microseconds.
fn microseconds(rounds: usize, mut call: impl FnMut()) -> f64 {
    call();
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            call();
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

fn main() {
    let snapshot = board();
    println!(
        "{} formats x {MODES} modes x {BATCHES} batches, Llama-3.1-8B, llama.cpp on a data sheet: no hardware takes part\n",
        FORMATS.len()
    );
    let phases = [("decode", Phase::Decode), ("serve", Phase::Serve)];
    let objectives = [
        ("latency", Objective::Latency),
        ("throughput", Objective::Throughput),
        ("energy", Objective::Energy),
    ];
    for (phase_name, phase) in phases {
        for (name, objective) in objectives {
            let query = query(phase, objective);
            let decision = decide(&snapshot, &query).unwrap();
            let time = microseconds(51, || {
                black_box(decide(black_box(&snapshot), black_box(&query))).unwrap();
            });
            let each = microseconds(5, || {
                black_box(one_by_one(black_box(&snapshot), black_box(&query)));
            });
            let (ms, verdict) = (time / 1e3, if time / 1e3 <= TARGET_MS { "ok" } else { "MISSED" });
            println!(
                "decide, {phase_name:<6} {name:<10} {ms:6.2} ms   target {TARGET_MS} ms   {verdict:<6}   one by one {:6.2} ms   ratio {:.3}   {} candidates",
                each / 1e3,
                time / each,
                decision.tally.candidates()
            );
        }
    }
    let body = json!({
        "workload": { "model": "llama-3.1-8b", "phase": "decode", "context_tokens": 2048 },
        "engine": "llama.cpp",
        "constraints": { "max_time_per_token_s": 0.5 },
        "freedom": {
            "formats": FORMATS.map(WeightFormat::key), "power_modes": "all", "batch": { "min": 1, "max": BATCHES },
        },
    })
    .to_string();
    let (catalogue, now) = (Catalogue::default(), Now { boottime: Seconds(1.0), unix_s: 1.0 });
    let whole = || {
        let request = Request::Recommend(serde_json::from_str(black_box(&body)).unwrap());
        serde_json::to_vec(&answer(&snapshot, &catalogue, now, &request).unwrap()).unwrap()
    };
    let bytes = whole();
    let time = microseconds(51, || {
        black_box(whole());
    });
    println!("\nbytes in, bytes out          {:8.2} ms   {} bytes", time / 1e3, bytes.len());
    let cache = Recent::new(64, 4 << 20);
    cache.keep((snapshot.serial, body.as_bytes().to_vec()), bytes.clone(), body.len() + bytes.len());
    let again = microseconds(3001, || {
        let (serial, body) = black_box((snapshot.serial, body.as_bytes()));
        black_box(cache.find(|(of, asked)| *of == serial && asked == body)).unwrap();
    });
    let verdict = if again <= 5.0 { "ok" } else { "MISSED" };
    println!("the same, asked again        {again:8.2} us   target 5 us   {verdict}");
}
