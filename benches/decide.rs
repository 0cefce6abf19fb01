//! Time of one decision over 12 formats x 8 power modes x 64 batches of Llama-3.1-8B, in process, beside predicting the
//! same candidates one by one in the same run.
//!
//! ```text
//! cargo bench --bench decide
//! ```
//!
//! The board is the data sheet of an AGX Orin 64 GB with eight power modes made up between its lowest and its highest. A
//! decision is everything from the checked query to the choice, its full prediction, the front and the reason; what is
//! counted beside it is the whole answer as bytes, and the same asked again from an unchanged snapshot. Rounds take turns;
//! figures are medians.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where its world does")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use answer::{Catalogue, Request, answer};
use daemon::server::form::Form;
use daemon::server::judge::Content;
use daemon::server::{AnswerCache, Asked};
use decide::optimize::{
    Constraints, Modes, Objective, Optimism, Published, Query, Stored, USUAL_RUN, Work, decide,
};
use decide::snapshot::Snapshot;
use governor::Now;
use predict::learning::models::{ModelQuery, stored_as};
use predict::{Engine, costs};
use roofline::hardware::registry;
use roofline::precision::WeightFormat;
use roofline::units::{Bytes, Hertz, Seconds, Watts};
use roofline::workload::registry::models;
use roofline::workload::transformer::{Phase, Request as Run};
use serde_json::json;

const MODES: u32 = 8;
const BATCHES: u64 = 64;
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
        work: Work::Model {
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
                .map(|format| Stored {
                    format: Some(format.key().to_owned()),
                    model: Arc::new(known.model(costs::recipe(engine, *format))),
                    quality_loss: Some(format.expected_loss()),
                    published: Published::Otherwise,
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
    let Work::Model { name, request, stored, kv_formats } = &query.work else { return f64::NAN };
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
                    hardware,
                };
                let prediction = snapshot.observed_runs.predict(&asked).unwrap();
                let costs = snapshot.power_costs(&view.roofline).unwrap();
                let prediction = prediction.with_power_at(&costs, &view.roofline, None);
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
            let time = microseconds(301, || {
                black_box(decide(black_box(&snapshot), black_box(&query))).unwrap();
            });
            let each = microseconds(3, || {
                black_box(one_by_one(black_box(&snapshot), black_box(&query)));
            });
            let verdict = if time <= 200.0 { "ok" } else { "MISSED" };
            println!(
                "decide, {phase_name:<6} {name:<10} {time:8.1} us   target 200 us   {verdict:<6}   one by one {each:9.0} us   ratio {:.4}   {} candidates",
                time / each,
                decision.candidates
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
    let time = microseconds(301, || {
        black_box(whole());
    });
    println!("\nbytes in, bytes out          {time:8.1} us   {} bytes", bytes.len());
    let cache = AnswerCache::default();
    let asked = Asked { viewer: None, form: Form::Json, body: body.as_bytes() };
    cache.insert(snapshot.serial, &asked, &Content::Json(bytes));
    let again = microseconds(3001, || {
        black_box(cache.find(black_box(snapshot.serial), black_box(&asked))).unwrap();
    });
    let verdict = if again <= 5.0 { "ok" } else { "MISSED" };
    println!("the same, asked again        {again:8.2} us   target 5 us   {verdict}");
}
