//! The decision about several workloads against an independent search: the plain cross product of candidates predicted in
//! full, nothing shared but the predictor.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use answer::parse::parse;
use answer::{Catalogue, Opener, Request as AnyRequest, suppose};
use decide::optimize::{
    Constraints, JointDecision, JointError, JointQuery, Modes, Objective, Optimism, Published, QueryError,
    Resident, Sharing, Stored, Totals, USUAL_RUN, Work, decide_jointly,
};
use decide::snapshot::Snapshot;
use predict::learning::models::{ModelQuery, stored_as};
use predict::{Engine, Estimate, costs};
use roofline::ceilings::{Ceiling, Roofline};
use roofline::hardware::registry;
use roofline::precision::WeightFormat;
use roofline::units::{Bytes, Seconds, Watts};
use roofline::workload::registry::models;
use roofline::workload::transformer::{MemoryFootprint, Phase, Request};
use serde_json::{Value, json};
use wire::{ErrorBody, JointRequest};

const MOST_BATCH: u64 = 4;
const KV: [WeightFormat; 2] = [WeightFormat::Fp16, WeightFormat::Q8_0];
const SHARES: [f64; 3] = [0.2, 0.3, 0.5];
const RESERVE: Bytes = Bytes(3e8);

/// A model that may be one of the workloads.
struct Candidate {
    name: &'static str,
    request: Request,
    stored: Vec<Stored>,
    /// Predictions alone, and under each share of a machine that is used at the same time.
    alone: Vec<Row>,
    at_once: Vec<Vec<Row>>,
}

/// A machine and what may run on it.
struct Universe {
    snapshot: Snapshot,
    engine: Engine,
    known: Vec<Candidate>,
    /// Static watts by mode; empty where power is unknown.
    standing: BTreeMap<Option<u32>, (f64, f64)>,
}

#[derive(Clone, Copy)]
struct Row {
    format: usize,
    kv: usize,
    mode: Option<u32>,
    batch: u64,
    /// Middle and upper end.
    time: (f64, f64),
    first: Option<(f64, f64)>,
    each: Option<(f64, f64)>,
    tokens: f64,
    watts: Option<(f64, f64)>,
    memory: f64,
    loss: f64,
}

impl Row {
    /// With a share of the time.
    fn sliced(self, share: f64) -> Self {
        let longer = |(value, high): (f64, f64)| (value / share, high / share);
        Self { time: longer(self.time), first: self.first.map(longer), each: self.each.map(longer), ..self }
    }
}

fn places(snapshot: &Snapshot) -> Vec<(Option<u32>, &Roofline)> {
    let active = snapshot.state.power_mode.known().map(|mode| mode.id);
    let of = |id: u32, roofline| if active == Some(id) { &snapshot.roofline } else { roofline };
    let modes = snapshot.modes.iter();
    let mut places: Vec<_> =
        modes.map(|view| (Some(view.mode.id), of(view.mode.id, &view.roofline))).collect();
    if places.is_empty() {
        places.push((None, &snapshot.roofline));
    }
    places
}

/// Every rate of the machine times `share`, and its clock as it is for what does not grow with fewer SMs.
fn part_of(roofline: &Roofline, share: f64) -> Roofline {
    fn times<R: Copy + std::ops::Mul<f64, Output = R>>(ceiling: Ceiling<R>, share: f64) -> Ceiling<R> {
        ceiling.map(|rate| rate * share)
    }
    let mut part = roofline.clone();
    part.bandwidth = times(part.bandwidth, share);
    part.memory_limit = part.memory_limit.map(|limit| times(limit, share));
    part.pull_limit = part.pull_limit.map(|limit| times(limit, share));
    part.compute.values_mut().for_each(|peak| *peak = times(*peak, share));
    part.whole_clock = part.clock;
    part.clock = part.clock.map(|clock| clock * share);
    part
}

fn rows(snapshot: &Snapshot, engine: Engine, known: &Candidate, share: Option<f64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (mode, whole) in places(snapshot) {
        let part = share.map_or_else(|| whole.clone(), |share| part_of(whole, share));
        let mut costs = snapshot.power_costs(whole);
        if let (Some(costs), Some(share)) = (&mut costs, share) {
            let standing = costs.coefficients.static_w;
            costs.cap = costs.cap.map(|cap| Watts(standing + share * (cap.get() - standing)));
        }
        for (format, stored) in known.stored.iter().enumerate() {
            for (kv, &kv_cache) in KV.iter().enumerate() {
                let filed_as = stored_as(stored.format.as_deref(), kv_cache);
                for batch in 1..=MOST_BATCH {
                    let request = Request { batch, kv_cache, ..known.request };
                    let asked = ModelQuery {
                        engine,
                        name: known.name,
                        format: &filed_as,
                        model: &stored.model,
                        request: &request,
                        roofline: &part,
                        kernels: None,
                        cpu: None,
                        hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
                    };
                    let mut prediction = snapshot.observed_runs.predict(&asked).unwrap();
                    if let Some(costs) = &costs {
                        prediction = prediction.with_power(costs, &part, batch, |batch| {
                            let request = Request { batch, ..request };
                            snapshot
                                .observed_runs
                                .predict(&ModelQuery { request: &request, ..asked.clone() })
                                .ok()
                        });
                    }
                    let ends = |estimate: Estimate<Seconds>| (estimate.value.get(), estimate.high.get());
                    rows.push(Row {
                        format,
                        kv,
                        mode,
                        batch,
                        time: ends(prediction.time),
                        first: prediction.time_to_first_token().map(ends),
                        each: prediction.time_per_token().map(ends),
                        tokens: prediction.tokens,
                        watts: prediction
                            .power
                            .map(|power| (power.watts.value.get(), power.watts.high.get())),
                        memory: MemoryFootprint::new(&stored.model, &request, snapshot.engine_memory(engine))
                            .total()
                            .get(),
                        loss: stored.quality_loss.unwrap(),
                    });
                }
            }
        }
    }
    rows
}

fn universe(hardware: &str, engine: Engine, of: &[(&'static str, Phase)]) -> Universe {
    let snapshot = Snapshot::hypothetical(Arc::new(registry().get(hardware).unwrap().clone()));
    let formats: &[WeightFormat] = match engine {
        Engine::LlamaCpp => &[WeightFormat::Q4KM, WeightFormat::Q8_0, WeightFormat::Fp16],
        _ => &[WeightFormat::AwqInt4, WeightFormat::Fp16],
    };
    let known = of.iter().map(|&(name, phase)| {
        let request = Request {
            phase,
            batch: 1,
            context_tokens: 700,
            prompt_tokens: if phase == Phase::Decode { 0 } else { 900 },
            output_tokens: if phase == Phase::Serve { 100 } else { 0 },
            usual_chunk_tokens: costs::chunk_tokens(engine),
            ..Request::decode(0)
        };
        let model = models().get(name).unwrap();
        let stored = formats.iter().map(|&format| Stored {
            format: Some(format.key().to_owned()),
            model: Arc::new(model.model(costs::recipe(engine, format))),
            quality_loss: Some(format.expected_loss()),
            published: Published::Otherwise,
        });
        let mut known =
            Candidate { name, request, stored: stored.collect(), alone: Vec::new(), at_once: Vec::new() };
        known.alone = rows(&snapshot, engine, &known, None);
        known.at_once = SHARES.iter().map(|share| rows(&snapshot, engine, &known, Some(*share))).collect();
        known
    });
    let known = known.collect();
    let standing = places(&snapshot).into_iter().filter_map(|(mode, roofline)| {
        let costs = snapshot.power_costs(roofline)?;
        let standing = costs.coefficients.static_w;
        Some((mode, (standing, standing * (1.0 + costs.half_width_ratio))))
    });
    let standing = standing.collect();
    Universe { snapshot, engine, known, standing }
}

fn universes() -> Vec<Universe> {
    use Phase::{Decode, Prefill, Serve};
    let nano = "jetson-orin-nano-8gb-super";
    vec![
        universe(
            nano,
            Engine::LlamaCpp,
            &[("llama-3.2-1b", Decode), ("qwen2.5-1.5b", Serve), ("llama-3.2-3b", Decode)],
        ),
        universe(
            "jetson-agx-orin-64gb",
            Engine::LlamaCpp,
            &[("llama-3.1-8b", Serve), ("qwen3-30b-a3b", Decode), ("llama-3.2-1b", Prefill)],
        ),
        universe("jetson-agx-thor-t5000", Engine::Vllm, &[("gemma-3-4b", Serve), ("llama-3.1-8b", Decode)]),
        universe("h200", Engine::Vllm, &[("llama-3.1-8b", Decode), ("gemma-3-4b", Serve)]),
    ]
}

/// One of the workloads of a random question.
#[derive(Clone)]
struct Asks {
    known: usize,
    share: usize,
    formats: Vec<usize>,
    kv: Vec<usize>,
    batch: RangeInclusive<u64>,
    constraints: Constraints,
}

#[derive(Clone)]
struct Question {
    asks: Vec<Asks>,
    sharing: Sharing,
    modes: Option<Vec<u32>>,
    objective: Objective,
    optimism: Optimism,
    max_power: Option<f64>,
    max_memory: Option<f64>,
}

fn some<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> Vec<T> {
    let mut chosen: Vec<T> = all.iter().copied().filter(|_| random.bool()).collect();
    if chosen.is_empty() {
        chosen.push(all[random.usize(..all.len())]);
    }
    chosen
}

fn rows_of(of: &Universe, asks: &Asks, sharing: Sharing) -> Vec<Row> {
    let known = &of.known[asks.known];
    match sharing {
        Sharing::TimeSlicing => known.alone.iter().map(|row| row.sliced(SHARES[asks.share])).collect(),
        Sharing::Mps => known.at_once[asks.share].clone(),
    }
}

fn question(random: &mut fastrand::Rng, of: &Universe) -> Question {
    let sharing = if random.bool() { Sharing::TimeSlicing } else { Sharing::Mps };
    let objectives = [Objective::Latency, Objective::Throughput, Objective::Energy, Objective::Power];
    let has_power = !of.standing.is_empty();
    let workloads = random.usize(2..4);
    // 0.5 + 0.3 + 0.2 is all of it.
    let mut shares = [0, 1, 2];
    random.shuffle(&mut shares);
    let mut near_memory = 0.0;
    let mut near_watts = 0.0;
    let asks = (0..workloads).map(|index| {
        let mut asks = Asks {
            known: random.usize(..of.known.len()),
            share: shares[index],
            formats: Vec::new(),
            kv: some(random, &[0, 1]),
            batch: 1..=random.u64(1..=MOST_BATCH),
            constraints: Constraints::default(),
        };
        asks.formats = some(random, &(0..of.known[asks.known].stored.len()).collect::<Vec<_>>());
        let all = rows_of(of, &asks, sharing);
        let near = all[random.usize(..all.len())];
        near_memory += near.memory;
        near_watts += near.watts.map_or(0.0, |watts| watts.1) * SHARES[asks.share];
        let mut limit = |value: Option<f64>| {
            let factor = 0.6 + 1.6 * random.f64();
            value.filter(|_| random.u8(..12) < 2).map(|value| value * factor)
        };
        asks.constraints = Constraints {
            max_time: limit(Some(near.time.1)).map(Seconds),
            max_time_per_token: limit(near.each.map(|each| each.1)).map(Seconds),
            max_time_to_first_token: limit(near.first.map(|first| first.1)).map(Seconds),
            min_tokens_per_s: limit(Some(near.tokens / near.time.1)).map(|rate| rate / 2.0),
            max_power: None,
            max_memory: limit(Some(near.memory)).map(Bytes),
            max_quality_loss: limit(Some(near.loss)),
        };
        asks
    });
    let asks = asks.collect();
    let modes: Vec<u32> = of.snapshot.modes.iter().map(|view| view.mode.id).collect();
    let mut limit = |value: f64| (random.u8(..3) == 0).then(|| value * (0.6 + random.f64()));
    let max_memory = limit(near_memory);
    let max_power = limit(near_watts).filter(|_| has_power);
    Question {
        asks,
        sharing,
        modes: (!modes.is_empty() && random.bool()).then(|| some(random, &modes)),
        objective: objectives[random.usize(..if has_power { 4 } else { 2 })],
        optimism: if random.bool() { Optimism::Pessimistic } else { Optimism::Expected },
        max_power,
        max_memory,
    }
}

/// The modes of these numbers.
fn listed(snapshot: &Snapshot, ids: &[u32]) -> Modes {
    let named = snapshot.modes.iter().filter(|view| ids.contains(&view.mode.id));
    Modes::Listed(named.map(|view| view.mode.key()).collect())
}

fn query(of: &Universe, question: &Question) -> JointQuery {
    let resident = |asks: &Asks| {
        let known = &of.known[asks.known];
        Resident {
            work: Work::Model {
                name: known.name.to_owned(),
                request: known.request,
                stored: asks.formats.iter().map(|index| known.stored[*index].clone()).collect(),
                kv_formats: asks.kv.iter().map(|index| KV[*index]).collect(),
            },
            engine: of.engine,
            share: SHARES[asks.share],
            constraints: asks.constraints,
            batch: asks.batch.clone(),
        }
    };
    JointQuery {
        residents: question.asks.iter().map(resident).collect(),
        sharing: question.sharing,
        objective: question.objective,
        max_power: question.max_power.map(Watts),
        max_memory: question.max_memory.map(Bytes),
        modes: question.modes.as_ref().map_or(Modes::All, |ids| listed(&of.snapshot, ids)),
        allow_reboot: false,
        optimism: question.optimism,
        run_time: USUAL_RUN,
        reserve: RESERVE,
    }
}

/// Whether a row keeps the workload's own limits.
fn keeps(row: &Row, limits: &Constraints, expected: bool) -> bool {
    let end = |(value, high): (f64, f64)| if expected { value } else { high };
    let below =
        |value: Option<f64>, limit: Option<f64>| limit.is_none_or(|limit| value.is_some_and(|v| v <= limit));
    below(Some(end(row.time)), limits.max_time.map(Seconds::get))
        && below(row.each.map(end), limits.max_time_per_token.map(Seconds::get))
        && below(row.first.map(end), limits.max_time_to_first_token.map(Seconds::get))
        && limits.min_tokens_per_s.is_none_or(|limit| row.tokens / end(row.time) >= limit)
        && below(Some(row.memory), limits.max_memory.map(Bytes::get))
        && below(Some(row.loss), limits.max_quality_loss)
}

/// What rows in one mode come to together, by the formulas of docs/joint.md.
fn together(of: &Universe, question: &Question, rows: &[&Row]) -> Totals {
    let shares = question.asks.iter().map(|asks| SHARES[asks.share]);
    let unknown = (f64::NAN, f64::NAN);
    let (standing, standing_high) = of.standing.get(&rows[0].mode).copied().unwrap_or(unknown);
    let (watts, watts_high) = match question.sharing {
        Sharing::TimeSlicing => {
            let idle = (1.0 - shares.clone().sum::<f64>()).max(0.0);
            rows.iter().zip(shares).fold((idle * standing, idle * standing_high), |sum, (row, share)| {
                let (watts, high) = row.watts.unwrap_or(unknown);
                (sum.0 + share * watts, sum.1 + share * high)
            })
        }
        Sharing::Mps => rows.iter().fold((standing, standing), |sum, row| {
            let (watts, high) = row.watts.unwrap_or(unknown);
            (sum.0 + watts - standing, sum.1 + high - standing)
        }),
    };
    let rate: f64 = rows.iter().map(|row| row.tokens / row.time.0).sum();
    Totals {
        longest: rows.iter().map(|row| row.time.0).fold(0.0, f64::max),
        rate,
        watts,
        watts_high,
        energy: watts / rate,
        memory: rows.iter().map(|row| row.memory).sum(),
    }
}

fn objective(totals: &Totals, objective: Objective) -> f64 {
    match objective {
        Objective::Latency => totals.longest,
        Objective::Throughput => -totals.rate,
        Objective::Energy => totals.energy,
        Objective::Power => totals.watts,
    }
}

/// Every combination, one after the other.
fn by_force(of: &Universe, question: &Question) -> Option<f64> {
    let expected = question.optimism == Optimism::Expected;
    let needs_power =
        question.max_power.is_some() || matches!(question.objective, Objective::Energy | Objective::Power);
    let available = (of.snapshot.state.memory.known().unwrap().available - RESERVE).get();
    let most = question.max_memory.map_or(available, |limit| limit.min(available));
    let mut best: Option<f64> = None;
    for (mode, _) in places(&of.snapshot) {
        if question.modes.as_ref().is_some_and(|modes| !mode.is_some_and(|id| modes.contains(&id))) {
            continue;
        }
        let tables: Vec<Vec<Row>> = question
            .asks
            .iter()
            .map(|asks| {
                let mut rows = rows_of(of, asks, question.sharing);
                rows.retain(|row| {
                    row.mode == mode
                        && asks.formats.contains(&row.format)
                        && asks.kv.contains(&row.kv)
                        && asks.batch.contains(&row.batch)
                        && keeps(row, &asks.constraints, expected)
                        && !(needs_power && row.watts.is_none())
                });
                rows
            })
            .collect();
        let sets: usize = tables.iter().map(Vec::len).product();
        for set in 0..sets {
            let mut rest = set;
            let rows: Vec<&Row> = tables
                .iter()
                .map(|table| {
                    let row = &table[rest % table.len()];
                    rest /= table.len();
                    row
                })
                .collect();
            let totals = together(of, question, &rows);
            let watts = if expected { totals.watts } else { totals.watts_high };
            if totals.memory > most || question.max_power.is_some_and(|limit| watts > limit) {
                continue;
            }
            let value = objective(&totals, question.objective);
            best = Some(best.map_or(value, |known| known.min(value)));
        }
    }
    best
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn decided(of: &Universe, question: &Question) -> Option<JointDecision> {
    match decide_jointly(&of.snapshot, &query(of, question)) {
        Err(JointError::Query { error: QueryError::PowerUnknown { .. }, .. }) => None,
        other => Some(other.unwrap()),
    }
}

#[test]
fn the_joint_decision_is_the_best_of_the_cross_product() {
    let universes = universes();
    let mut random = fastrand::Rng::with_seed(3);
    let (mut feasible, mut infeasible) = (0, 0);
    for index in 0..3_000 {
        let of = &universes[index % universes.len()];
        let asked = question(&mut random, of);
        let best = by_force(of, &asked);
        let Some(decision) = decided(of, &asked) else {
            assert_eq!(best, None);
            continue;
        };
        let found = decision.chosen.as_ref().map(|joint| objective(&joint.totals, asked.objective));
        match (best, found) {
            (None, None) => {
                infeasible += 1;
                assert!(!decision.violated.is_empty() && decision.closest.is_some(), "{}", decision.reason);
            }
            (Some(best), Some(found)) => {
                feasible += 1;
                assert!(same(best, found), "{index}: {best} {found} {}", decision.reason);
                let members = &decision.chosen.as_ref().unwrap().members;
                assert_eq!(members.len(), asked.asks.len());
                let mode = |index: usize| members[index].candidate.mode.clone();
                assert!((1..members.len()).all(|index| mode(index) == mode(0)));
            }
            _ => panic!("{index}: {best:?} {found:?} {}", decision.reason),
        }
    }
    assert!(feasible > 1_000 && infeasible > 300, "{feasible} {infeasible}");
}

/// The value of the objective, or infinity where nothing is feasible.
fn best(of: &Universe, question: &Question) -> f64 {
    let chosen = decided(of, question).and_then(|decision| decision.chosen);
    chosen.map_or(f64::INFINITY, |joint| objective(&joint.totals, question.objective))
}

#[test]
fn more_freedom_and_looser_limits_are_never_worse() {
    let universes = universes();
    let mut random = fastrand::Rng::with_seed(17);
    for index in 0..600 {
        let of = &universes[index % universes.len()];
        let asked = question(&mut random, of);
        let before = best(of, &asked);
        let mut freer = asked.clone();
        freer.modes = None;
        for asks in &mut freer.asks {
            asks.formats = (0..of.known[asks.known].stored.len()).collect();
            asks.kv = vec![0, 1];
            asks.batch = 1..=MOST_BATCH;
        }
        let mut looser = asked.clone();
        looser.max_power = asked.max_power.map(|limit| limit * 1.3);
        looser.max_memory = None;
        for asks in &mut looser.asks {
            asks.constraints.max_time = None;
            asks.constraints.max_quality_loss = None;
        }
        let expected = Question { optimism: Optimism::Expected, ..asked.clone() };
        for (what, other) in [("freedom", freer), ("limits", looser), ("optimism", expected)] {
            let after = best(of, &other);
            assert!(after <= before || same(after, before), "{what}: {after} {before}");
        }
    }
}

#[test]
fn a_larger_share_never_makes_a_workload_slower_and_none_makes_it_faster_than_alone() {
    for of in universes() {
        for sharing in [Sharing::TimeSlicing, Sharing::Mps] {
            let asks = |known, share| Asks {
                known,
                share,
                formats: vec![0],
                kv: vec![0],
                batch: 2..=2,
                constraints: Constraints::default(),
            };
            let question = Question {
                asks: vec![asks(0, 0), asks(1, 0)],
                sharing,
                modes: None,
                objective: Objective::Latency,
                optimism: Optimism::Pessimistic,
                max_power: None,
                max_memory: None,
            };
            for mode in of.snapshot.modes.iter().map(|view| Modes::Listed(vec![view.mode.key()])) {
                let mut last = f64::INFINITY;
                for step in 1..=18 {
                    let mut query = query(&of, &question);
                    query.modes = mode.clone();
                    query.allow_reboot = true;
                    query.residents[0].share = 0.05 * f64::from(step);
                    query.residents[1].share = 0.1;
                    let chosen = decide_jointly(&of.snapshot, &query).unwrap().chosen.unwrap();
                    let time = chosen.members[0].candidate.score.time;
                    assert!(time <= last, "{time} {last}");
                    last = time;
                    let alone = chosen.members[0].alone.prediction.time.value.get();
                    assert!(time >= alone, "{time} {alone}");
                }
            }
        }
    }
}

/// The answer to a body about an Orin Nano by its data sheet.
fn asked(body: &Value) -> Result<Value, ErrorBody> {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let mut body = body.clone();
    body["hardware"] = json!("jetson-orin-nano-8gb-super");
    let request: JointRequest = parse(&serde_json::to_vec(&body).unwrap())?;
    Ok(serde_json::to_value(suppose(&catalogue, &AnyRequest::Joint(Box::new(request)))?).unwrap())
}

fn two() -> Value {
    json!({ "workloads": [
        { "workload": {"model": "llama-3.2-1b"}, "engine": "llama.cpp", "share": 0.6,
          "freedom": {"formats": ["q4_k_m", "q8_0"], "batch": {"min": 1, "max": 4}} },
        { "workload": {"model": "qwen2.5-1.5b"}, "engine": "llama.cpp",
          "freedom": {"formats": ["q4_k_m", "q8_0"]} },
    ], "objective": "throughput", "freedom": {"power_modes": "all"} })
}

#[test]
fn the_wire_tells_what_each_workload_gets_and_all_together() {
    for sharing in ["time_slicing", "mps"] {
        let mut body = two();
        body["sharing"] = json!(sharing);
        let answer = asked(&body).unwrap();
        assert_eq!((answer["feasible"].as_bool(), answer["sharing"].as_str()), (Some(true), Some(sharing)));
        let shares: Vec<f64> =
            answer["workloads"].as_array().unwrap().iter().map(|of| of["share"].as_f64().unwrap()).collect();
        assert_eq!(shares, [0.6, 0.4], "the absent share is what is left");
        let number = |pointer: &str| answer.pointer(pointer).and_then(Value::as_f64).unwrap();
        let rates = number("/workloads/0/shared/tokens_per_s/value")
            + number("/workloads/1/shared/tokens_per_s/value");
        assert!(same(rates, number("/totals/tokens_per_s")));
        let memory = number("/workloads/0/prediction/memory_bytes/total")
            + number("/workloads/1/prediction/memory_bytes/total");
        assert!(same(memory, number("/totals/memory_bytes")));
        if sharing == "time_slicing" {
            let alone = number("/workloads/0/prediction/time_s/value");
            assert!(same(number("/workloads/0/shared/time_s/value"), alone / 0.6));
        }
        let warnings = answer["warnings"].to_string();
        assert!(warnings.contains("nobody measured it here"), "{warnings}");
        assert!(answer["reason"].as_str().unwrap().contains("llama-3.2-1b as "), "{answer}");
    }
}

#[test]
fn an_infeasible_question_names_the_workload_and_its_constraint_or_the_limit_of_all() {
    let mut body = two();
    body["workloads"][1]["constraints"] = json!({ "max_time_per_token_s": 1e-4 });
    let answer = asked(&body).unwrap();
    assert_eq!(answer["feasible"], false);
    assert_eq!(answer["violated"], json!([{ "workload": 1, "by": "max_time_per_token_s" }]));
    assert_eq!(answer["workloads"].as_array().unwrap().len(), 2);
    let mut body = two();
    body["constraints"] = json!({ "max_memory_bytes": 1e9 });
    let answer = asked(&body).unwrap();
    assert_eq!(answer["violated"], json!([{ "workload": null, "by": "max_memory_bytes" }]));
    let mut body = two();
    body["constraints"] = json!({ "max_power_w": 0.5 });
    let answer = asked(&body).unwrap();
    assert_eq!(answer["violated"], json!([{ "workload": null, "by": "max_power_w" }]));
}

#[test]
fn what_cannot_be_asked_is_refused_with_its_field() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut body = two();
        change(&mut body);
        let error = asked(&body).unwrap_err();
        assert!(error.hint.is_some(), "{error:?}");
        (error.code, error.field.unwrap_or_default())
    };
    let refusal = |code: &str, field: &str| (code.to_owned(), field.to_owned());
    let one = |body: &mut Value| body["workloads"] = json!([two()["workloads"][0]]);
    assert_eq!(refused(&one), refusal("invalid_field", "workloads"));
    let share = |value: Value| move |body: &mut Value| body["workloads"][0]["share"] = value.clone();
    assert_eq!(refused(&share(json!(0))), refusal("invalid_field", "workloads[0].share"));
    assert_eq!(refused(&share(json!(-1))), refusal("invalid_field", "workloads[0].share"));
    assert_eq!(refused(&share(json!(1))), refusal("invalid_field", "workloads[1].share"));
    let both = |body: &mut Value| {
        body["workloads"][0]["share"] = json!(0.7);
        body["workloads"][1]["share"] = json!(0.5);
    };
    assert_eq!(refused(&both), refusal("invalid_field", "workloads"));
    let power = |body: &mut Value| body["workloads"][1]["constraints"] = json!({ "max_power_w": 5 });
    assert_eq!(refused(&power), refusal("invalid_field", "workloads[1].constraints.max_power_w"));
    let format = |body: &mut Value| body["workloads"][1]["freedom"]["formats"] = json!(["q9"]);
    assert_eq!(refused(&format), refusal("unknown_format", "workloads[1].freedom.formats[0]"));
    let model = |body: &mut Value| body["workloads"][0]["workload"]["model"] = json!("llama-9");
    assert_eq!(refused(&model), refusal("unknown_model", "workloads[0].workload.model"));
    let mode = |body: &mut Value| body["freedom"]["power_modes"] = json!(["7kW"]);
    assert_eq!(refused(&mode), refusal("unknown_mode", "freedom.power_modes[0]"));
    let batch = |body: &mut Value| body["workloads"][0]["freedom"]["batch"] = json!({"min": 3, "max": 2});
    assert_eq!(refused(&batch), refusal("invalid_field", "workloads[0].freedom.batch"));
    let many = |body: &mut Value| body["workloads"][0]["freedom"]["batch"] = json!({"max": 1_000_000});
    assert_eq!(refused(&many), refusal("too_many", "workloads"));
    let run = |body: &mut Value| body["freedom"]["run_s"] = json!(-1);
    assert_eq!(refused(&run), refusal("invalid_field", "freedom.run_s"));
    let unknown = |body: &mut Value| body["shares"] = json!([1]);
    assert_eq!(refused(&unknown).0, "unknown_field");
}

#[test]
fn eight_workloads_with_many_batches_are_answered_or_refused_in_bounded_work() {
    for objective in ["latency", "throughput", "energy", "power"] {
        let workload = json!({ "workload": {"model": "llama-3.2-1b"}, "engine": "llama.cpp",
            "freedom": {"formats": ["q4_k_m", "q5_k_m", "q8_0"], "batch": {"max": 16}} });
        let body = json!({ "workloads": vec![workload; 8], "objective": objective,
            "constraints": {"max_power_w": 12}, "freedom": {"power_modes": "all"} });
        match asked(&body) {
            Ok(answer) => assert!(answer["candidates"].as_u64().unwrap() >= 8 * 48, "{objective}"),
            Err(error) => assert_eq!(error.code, "too_many", "{objective}"),
        }
    }
}
