//! The decision against an independent search: every candidate predicted in full, nothing shared but the predictor.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Seconds, Watts};
use rooflined_models::registry::models;
use rooflined_models::transformer::{MemoryFootprint, Phase, Request};
use rooflined_predict::costs;
use rooflined_predict::learning::models::{Measured, ModelQuery, ObservedRuns, stored_as};
use rooflined_predict::optimize::{
    Candidate, Constraint, Constraints, Decision, EnergyBasis, ModelOrigin, Modes, Objective, Optimism,
    Query, QueryError, StoredModel, USUAL_RUN, WorkForms, decide,
};
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, Prediction};

const MOST_BATCH: u64 = 16;
const KV: [WeightFormat; 2] = [WeightFormat::Fp16, WeightFormat::Q8_0];

/// Everything that may be chosen from, predicted in full.
struct Universe {
    snapshot: Snapshot,
    engine: Engine,
    name: &'static str,
    request: Request,
    stored: Vec<StoredModel>,
    /// By format, cache, mode and batch.
    table: Vec<Row>,
}

struct Row {
    format: usize,
    kv: usize,
    mode: Option<u32>,
    batch: u64,
    prediction: Prediction,
    memory: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.prediction.tokens / self.prediction.time.value.get()
    }

    fn value(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Latency => self.prediction.time.value.get(),
            Objective::Throughput => -self.rate(),
            Objective::Energy => {
                self.prediction.energy_per_token().map_or(f64::NAN, |energy| energy.value.get())
            }
            Objective::Power => self.prediction.power.map_or(f64::NAN, |power| power.watts.value.get()),
        }
    }
}

fn formats(engine: Engine) -> Vec<WeightFormat> {
    use WeightFormat as F;
    match engine {
        Engine::LlamaCpp => vec![F::Q4KM, F::Q5KM, F::Q8_0, F::Fp16],
        _ => vec![F::AwqInt4, F::Fp16, F::Nvfp4],
    }
}

fn universe(
    hardware: &str,
    name: &'static str,
    engine: Engine,
    phase: Phase,
    observed_runs: bool,
) -> Universe {
    let hardware = Arc::new(registry().get(hardware).unwrap().clone());
    let mut snapshot = Snapshot::hypothetical(hardware);
    let request = Request {
        phase,
        batch: 1,
        context_tokens: 700,
        prompt_tokens: if phase == Phase::Decode { 0 } else { 900 },
        output_tokens: if phase == Phase::Serve { 100 } else { 0 },
        usual_chunk_tokens: costs::chunk_tokens(engine),
        ..Request::decode(0)
    };
    let known = models().get(name).unwrap();
    let stored: Vec<StoredModel> = formats(engine)
        .into_iter()
        .map(|format| StoredModel {
            format: Some(format.key().to_owned()),
            model: Arc::new(known.model(costs::recipe(engine, format))),
            quality_loss: Some(format.expected_loss()),
            origin: ModelOrigin::Otherwise,
        })
        .collect();
    if observed_runs {
        snapshot.observed_runs = Arc::new(taught(&snapshot, engine, name, &request, &stored[0]));
    }
    let mut universe = Universe { snapshot, engine, name, request, stored, table: Vec::new() };
    universe.table = rows(&universe);
    universe
}

/// Runs of one format that were slower than predicted, at some batches.
fn taught(
    snapshot: &Snapshot,
    engine: Engine,
    name: &str,
    request: &Request,
    stored: &StoredModel,
) -> ObservedRuns {
    let mut observed_runs = ObservedRuns::default();
    for (batch, ratio) in [(1, 1.2), (4, 1.1), (8, 1.3)] {
        let request = Request { batch, ..*request };
        let mut run = Measured {
            engine,
            name: name.to_owned(),
            format: stored.format.clone().unwrap(),
            model: Arc::clone(&stored.model),
            request,
            roofline: Arc::new(snapshot.roofline.clone()),
            kernels: None,
            cpu: None,
            memory_ratio: None,
            hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.clone()),
            mode: None,
            time: Seconds(1.0),
            power: None,
            power_limit: None,
        };
        run.time = observed_runs.predict(&run.asked()).unwrap().time.value * ratio;
        observed_runs.observe(&[run], 0.0).remove(0).unwrap();
    }
    observed_runs
}

fn rows(of: &Universe) -> Vec<Row> {
    let active = of.snapshot.state.power_mode.known().map(|mode| mode.id);
    let mut places: Vec<(Option<u32>, &Roofline)> =
        of.snapshot.modes.iter().map(|view| (Some(view.mode.id), &view.roofline)).collect();
    for place in &mut places {
        if place.0 == active {
            place.1 = &of.snapshot.roofline;
        }
    }
    if places.is_empty() {
        places.push((None, &of.snapshot.roofline));
    }
    let mut rows = Vec::new();
    for (format, stored) in of.stored.iter().enumerate() {
        for (kv, &kv_cache) in KV.iter().enumerate() {
            let filed_as = stored_as(stored.format.as_deref(), kv_cache);
            for &(mode, roofline) in &places {
                for batch in 1..=MOST_BATCH {
                    let request = Request { batch, kv_cache, ..of.request };
                    let asked = ModelQuery {
                        engine: of.engine,
                        name: of.name,
                        format: &filed_as,
                        model: &stored.model,
                        request: &request,
                        roofline,
                        kernels: None,
                        cpu: None,
                        build: costs::Build::Current,
                        hardware: of.snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
                    };
                    let mut prediction = of.snapshot.observed_runs.predict(&asked).unwrap();
                    let costs = of.snapshot.power_costs(roofline);
                    let power = costs.as_ref().map(|costs| (costs, roofline));
                    prediction = prediction.with_power(power, batch, |batch| {
                        let request = Request { batch, ..request };
                        let asked = ModelQuery { request: &request, ..asked.clone() };
                        of.snapshot.observed_runs.predict(&asked).ok()
                    });
                    let engine = of.snapshot.engine_memory(of.engine);
                    let memory = MemoryFootprint::new(&stored.model, &request, engine).total().get();
                    rows.push(Row { format, kv, mode, batch, prediction, memory });
                }
            }
        }
    }
    rows
}

fn universes() -> Vec<Universe> {
    use Phase::{Decode, Prefill, Serve};
    let nano = "jetson-orin-nano-8gb-super";
    vec![
        universe(nano, "llama-3.2-3b", Engine::LlamaCpp, Decode, false),
        universe(nano, "qwen2.5-1.5b", Engine::LlamaCpp, Serve, false),
        universe(nano, "llama-3.2-1b", Engine::LlamaCpp, Decode, true),
        universe("jetson-agx-orin-64gb", "llama-3.1-8b", Engine::LlamaCpp, Serve, true),
        universe("jetson-agx-orin-64gb", "qwen3-30b-a3b", Engine::LlamaCpp, Decode, false),
        universe("jetson-agx-thor-t5000", "gemma-3-4b", Engine::Vllm, Serve, false),
        universe("gb10", "llama-3.1-8b", Engine::Vllm, Prefill, false),
        universe("gb10", "qwen3-30b-a3b", Engine::Vllm, Serve, true),
        universe("h200", "llama-3.1-8b", Engine::Vllm, Decode, false),
    ]
}

/// What a random question may choose from and must keep.
#[derive(Clone)]
struct Question {
    formats: Vec<usize>,
    kv: Vec<usize>,
    modes: Option<Vec<u32>>,
    batch: std::ops::RangeInclusive<u64>,
    objective: Objective,
    optimism: Optimism,
    constraints: Constraints,
}

fn some<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> Vec<T> {
    let mut chosen: Vec<T> = all.iter().copied().filter(|_| random.bool()).collect();
    if chosen.is_empty() {
        chosen.push(all[random.usize(..all.len())]);
    }
    chosen
}

fn question(random: &mut fastrand::Rng, of: &Universe) -> Question {
    let has_power = of.table[0].prediction.power.is_some();
    let objectives = [Objective::Latency, Objective::Throughput, Objective::Energy, Objective::Power];
    let objective = objectives[random.usize(..if has_power { 4 } else { 2 })];
    let modes: Vec<u32> = of.snapshot.modes.iter().map(|view| view.mode.id).collect();
    let (a, b) = (random.u64(1..=MOST_BATCH), random.u64(1..=MOST_BATCH));
    // Limits lie where some candidates meet them and others do not.
    let near = &of.table[random.usize(..of.table.len())];
    let mut limit = |value: Option<f64>| {
        let factor = 0.5 + 1.5 * random.f64();
        value.filter(|_| random.u8(..10) < 3).map(|value| value * factor)
    };
    let of_near = &near.prediction;
    let constraints = Constraints {
        max_time: limit(Some(of_near.time.high.get())).map(Seconds),
        max_time_per_token: limit(of_near.time_per_token().map(|time| time.high.get())).map(Seconds),
        max_time_to_first_token: limit(of_near.time_to_first_token().map(|time| time.high.get()))
            .map(Seconds),
        min_tokens_per_s: limit(Some(of_near.tokens / of_near.time.high.get())),
        max_power: limit(of_near.power.map(|power| power.watts.high.get())).map(Watts),
        max_memory: limit(Some(near.memory)).map(Bytes),
        max_quality_loss: limit(of.stored[near.format].quality_loss),
    };
    Question {
        formats: some(random, &(0..of.stored.len()).collect::<Vec<_>>()),
        kv: some(random, &[0, 1]),
        modes: (!modes.is_empty() && random.bool()).then(|| some(random, &modes)),
        batch: a.min(b)..=a.max(b),
        objective,
        optimism: if random.bool() { Optimism::Pessimistic } else { Optimism::Expected },
        constraints,
    }
}

/// The modes of these numbers.
fn listed(snapshot: &Snapshot, ids: &[u32]) -> Modes {
    let named = snapshot.modes.iter().filter(|view| ids.contains(&view.mode.id));
    Modes::Listed(named.map(|view| view.mode.key()).collect())
}

fn query(of: &Universe, question: &Question) -> Query {
    Query {
        work: WorkForms::Model {
            name: of.name.to_owned(),
            request: of.request,
            stored: question.formats.iter().map(|index| of.stored[*index].clone()).collect(),
            kv_formats: question.kv.iter().map(|index| KV[*index]).collect(),
        },
        engine: of.engine,
        objective: question.objective,
        constraints: question.constraints,
        modes: question.modes.as_ref().map_or(Modes::All, |ids| listed(&of.snapshot, ids)),
        caps: Vec::new(),
        energy: EnergyBasis::WithIdle,
        allow_reboot: false,
        threads: Vec::new(),
        batch: question.batch.clone(),
        optimism: question.optimism,
        run_time: USUAL_RUN,
        reserve: Bytes(3e8),
    }
}

/// Rows that a question may choose, each with the constraints that it misses.
fn judged<'a>(of: &'a Universe, question: &Question) -> Vec<(&'a Row, Vec<Constraint>)> {
    let expected = question.optimism == Optimism::Expected;
    let limits = &question.constraints;
    let available = of.snapshot.state.memory.known().unwrap().available - Bytes(3e8);
    of.table
        .iter()
        .filter(|row| {
            question.formats.contains(&row.format)
                && question.kv.contains(&row.kv)
                && question.batch.contains(&row.batch)
                && question.modes.as_ref().is_none_or(|modes| row.mode.is_some_and(|id| modes.contains(&id)))
        })
        .map(|row| {
            let of_row = &row.prediction;
            let time = |estimate: rooflined_predict::Estimate<Seconds>| {
                if expected { estimate.value.get() } else { estimate.high.get() }
            };
            let watts = of_row
                .power
                .map(|power| if expected { power.watts.value.get() } else { power.watts.high.get() });
            let above = |value: Option<f64>, limit: Option<f64>| match (value, limit) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(value), Some(limit)) => value > limit,
            };
            let missed = [
                (Constraint::Time, above(Some(time(of_row.time)), limits.max_time.map(Seconds::get))),
                (
                    Constraint::TimePerToken,
                    above(of_row.time_per_token().map(time), limits.max_time_per_token.map(Seconds::get)),
                ),
                (
                    Constraint::TimeToFirstToken,
                    above(
                        of_row.time_to_first_token().map(time),
                        limits.max_time_to_first_token.map(Seconds::get),
                    ),
                ),
                (
                    Constraint::Rate,
                    limits.min_tokens_per_s.is_some_and(|limit| of_row.tokens / time(of_row.time) < limit),
                ),
                (Constraint::Power, above(watts, limits.max_power.map(Watts::get))),
                (Constraint::Memory, above(Some(row.memory), limits.max_memory.map(Bytes::get))),
                (Constraint::Available, row.memory > available.get()),
                (Constraint::QualityLoss, above(of.stored[row.format].quality_loss, limits.max_quality_loss)),
                (
                    Constraint::PowerUnknown,
                    matches!(question.objective, Objective::Energy | Objective::Power) && watts.is_none(),
                ),
            ];
            (row, missed.into_iter().filter(|(_, missed)| *missed).map(|(by, _)| by).collect())
        })
        .collect()
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn objective_of(candidate: &Candidate, objective: Objective) -> f64 {
    match objective {
        Objective::Latency => candidate.score.time,
        Objective::Throughput => -candidate.score.rate,
        Objective::Energy => candidate.score.energy,
        Objective::Power => candidate.score.watts,
    }
}

fn check(of: &Universe, question: &Question, decision: &Decision) {
    let judged = judged(of, question);
    assert_eq!(decision.tally.candidates(), judged.len() as u64);
    let feasible: Vec<&Row> =
        judged.iter().filter(|(_, missed)| missed.is_empty()).map(|(row, _)| *row).collect();
    let best = feasible.iter().map(|row| row.value(question.objective)).reduce(f64::min);
    let chosen = decision.chosen.as_ref();
    let found = chosen.map(|chosen| objective_of(chosen, question.objective));
    match (best, found) {
        (None, None) => {}
        (Some(best), Some(found)) => assert!(same(best, found), "{best} {found} {:?}", question.constraints),
        _ => panic!("{best:?} {found:?} {:?}", question.constraints),
    }
    for by in Constraint::ALL {
        let count = judged.iter().filter(|(_, missed)| missed.contains(&by)).count() as u64;
        let reported =
            decision.tally.rejected().into_iter().find(|rejected| rejected.by == by).map_or(0, |r| r.count);
        assert_eq!(reported, count, "{by:?}");
    }
    for alternative in &decision.alternatives {
        let score = &alternative.score;
        let better = |row: &&Row| {
            let loss = of.stored[row.format].quality_loss.unwrap();
            let watts = row.prediction.power.map_or(f64::INFINITY, |power| power.watts.value.get());
            let pairs = [
                (row.prediction.time.value.get(), score.time),
                (-row.rate(), -score.rate),
                (watts, if score.watts.is_nan() { f64::INFINITY } else { score.watts }),
                (row.memory, score.memory),
                (loss, score.loss),
            ];
            let margin = |(a, b): &(f64, f64)| match (a.is_infinite(), b.is_infinite()) {
                (true, true) => 0.0,
                (true, false) => f64::NEG_INFINITY,
                (false, true) => f64::INFINITY,
                (false, false) => (*b - *a) / b.abs().max(1e-300),
            };
            pairs.iter().all(|pair| margin(pair) >= -1e-12) && pairs.iter().any(|pair| margin(pair) > 1e-9)
        };
        assert!(!feasible.iter().any(better), "{alternative:?} is beaten");
    }
    if let Some((_, missed)) = &decision.closest {
        assert!(feasible.is_empty() && !missed.is_empty());
        let fewest = judged.iter().map(|(_, missed)| missed.len()).min();
        assert_eq!(fewest, Some(missed.len()), "{:?}", question.constraints);
        let set = decision.tally.contradicting();
        assert!(!set.is_empty());
        assert!(judged.iter().all(|(_, missed)| set.iter().any(|by| missed.contains(by))));
    }
}

/// What a decision says of the candidate, and what predicting it alone says.
fn assert_same_figures(candidate: &Candidate, row: &Row) {
    let (score, of_row) = (&candidate.score, &row.prediction);
    let seconds = |time: Option<rooflined_predict::Estimate<Seconds>>| time.map(|time| time.value.get());
    let watts = of_row.power.map(|power| power.watts);
    let pairs = [
        (score.time, Some(of_row.time.value.get())),
        (score.slack, Some(of_row.time_slack())),
        (score.first, seconds(of_row.time_to_first_token())),
        (score.per_token, seconds(of_row.time_per_token())),
        (score.rate, Some(row.rate())),
        (score.watts, watts.map(|watts| watts.value.get())),
        (score.watts_high, watts.map(|watts| watts.high.get())),
        (score.energy, of_row.energy_per_token().map(|energy| energy.value.get())),
        (score.memory, Some(row.memory)),
    ];
    for (index, (found, expected)) in pairs.into_iter().enumerate() {
        let expected = expected.unwrap_or(f64::NAN);
        let alike = (found.is_nan() && expected.is_nan()) || same(found, expected);
        assert!(alike, "{index}: {found} {expected} {candidate:?}");
    }
}

/// However many others are searched: the candidate alone, with a few, and with all.
#[test]
fn the_figures_of_a_candidate_are_those_of_its_own_prediction() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut alternatives = 0;
    for of in universes() {
        let row_of = |candidate: &Candidate| {
            let mode = candidate.mode.as_ref().map(|mode| mode.id);
            let of_it = |row: &&Row| {
                of.stored[row.format].format == candidate.format
                    && Some(KV[row.kv]) == candidate.kv_format
                    && row.mode == mode
                    && row.batch == candidate.batch
            };
            of.table.iter().find(of_it).unwrap()
        };
        let free = || Question {
            formats: (0..of.stored.len()).collect(),
            kv: vec![0, 1],
            modes: None,
            batch: 1..=MOST_BATCH,
            objective: Objective::Latency,
            optimism: Optimism::Expected,
            constraints: Constraints::default(),
        };
        for _ in 0..40 {
            let row = &of.table[random.usize(..of.table.len())];
            let alone = Question {
                formats: vec![row.format],
                kv: vec![row.kv],
                modes: row.mode.map(|mode| vec![mode]),
                batch: row.batch..=row.batch,
                ..free()
            };
            let objective = [Objective::Latency, Objective::Throughput][random.usize(..2)];
            let few = Question { batch: 1..=row.batch, objective, modes: None, ..alone.clone() };
            for question in [alone.clone(), few, Question { objective, ..free() }] {
                let decision = decide(&of.snapshot, &query(&of, &question)).unwrap();
                let closest = decision.closest.as_ref().map(|(candidate, _)| candidate);
                for candidate in decision.chosen.iter().chain(closest).chain(&decision.alternatives) {
                    assert_same_figures(candidate, row_of(candidate));
                    alternatives += 1;
                }
            }
        }
    }
    assert!(alternatives > 2_000, "{alternatives}");
}

const QUESTIONS: usize = 10_800;

#[test]
fn ten_thousand_random_questions_get_the_optimum_that_brute_force_finds() {
    let universes = universes();
    let mut random = fastrand::Rng::with_seed(5);
    let (mut feasible, mut infeasible) = (0, 0);
    for index in 0..QUESTIONS {
        let of = &universes[index % universes.len()];
        let question = question(&mut random, of);
        match decide(&of.snapshot, &query(of, &question)) {
            Ok(decision) => {
                check(of, &question, &decision);
                if decision.chosen.is_some() { feasible += 1 } else { infeasible += 1 }
            }
            Err(QueryError::PowerUnknown { .. }) => {
                let judged = judged(of, &question);
                assert!(judged.iter().all(|(row, _)| row.prediction.power.is_none()));
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Neither kind is rare, or the questions would prove little.
    assert!(feasible > QUESTIONS / 4 && infeasible > QUESTIONS / 10, "{feasible} {infeasible}");
}

#[test]
fn a_candidates_score_is_its_full_prediction() {
    let mut random = fastrand::Rng::with_seed(7);
    for of in &universes() {
        for _ in 0..20 {
            let limited = of.table[0].prediction.power.is_some() && random.bool();
            let constraints =
                Constraints { max_power: limited.then_some(Watts(1e9)), ..Constraints::default() };
            let query = query(of, &Question { constraints, ..question(&mut random, of) });
            let decision = match decide(&of.snapshot, &query) {
                Err(QueryError::PowerUnknown { .. }) => continue,
                other => other.unwrap(),
            };
            let shown = decision.chosen.iter().chain(&decision.alternatives);
            for candidate in shown {
                let prediction = candidate.outcome(&of.snapshot, &query).unwrap().prediction;
                let score = &candidate.score;
                let value = |estimate: Option<rooflined_predict::Estimate<Seconds>>| {
                    estimate.map_or(f64::NAN, |estimate| estimate.value.get())
                };
                let both_nan = |a: f64, b: f64| (a.is_nan() && b.is_nan()) || same(a, b);
                assert!(same(score.time, prediction.time.value.get()));
                assert!(same(score.time * score.slack, prediction.time.high.get()));
                assert!(both_nan(score.first, value(prediction.time_to_first_token())), "{candidate:?}");
                assert!(both_nan(score.per_token, value(prediction.time_per_token())), "{candidate:?}");
                let watts = prediction.power.map_or(f64::NAN, |power| power.watts.value.get());
                let high = prediction.power.map_or(f64::NAN, |power| power.watts.high.get());
                let energy = prediction.energy_per_token().map_or(f64::NAN, |energy| energy.value.get());
                assert!(both_nan(score.watts, watts), "{candidate:?}");
                // The upper end is worked out where there is a limit on it.
                assert!(!limited || both_nan(score.watts_high, high), "{candidate:?}");
                assert!(both_nan(score.energy, energy), "{candidate:?}");
            }
        }
    }
}

/// The value of the objective, or infinity where nothing is feasible.
fn best(of: &Universe, question: &Question) -> f64 {
    let decision = match decide(&of.snapshot, &query(of, question)) {
        Err(QueryError::PowerUnknown { .. }) => return f64::INFINITY,
        other => other.unwrap(),
    };
    decision.chosen.map_or(f64::INFINITY, |chosen| objective_of(&chosen, question.objective))
}

#[test]
fn more_freedom_and_a_looser_constraint_are_never_worse() {
    let universes = universes();
    let mut random = fastrand::Rng::with_seed(11);
    for index in 0..1_500 {
        let of = &universes[index % universes.len()];
        let asked = question(&mut random, of);
        let before = best(of, &asked);
        let not_worse = |what: &str, question: &Question| {
            let after = best(of, question);
            assert!(after <= before || same(after, before), "{what}: {after} {before}");
        };
        let all = Question {
            formats: (0..of.stored.len()).collect(),
            kv: vec![0, 1],
            modes: None,
            batch: 1..=MOST_BATCH,
            objective: asked.objective,
            optimism: asked.optimism,
            constraints: asked.constraints,
        };
        not_worse("all freedom", &all);
        let of_asked = &asked.constraints;
        let looser = Constraints {
            max_time: of_asked.max_time.map(|limit| limit * 1.3),
            max_time_per_token: of_asked.max_time_per_token.map(|limit| limit * 1.3),
            max_time_to_first_token: of_asked.max_time_to_first_token.map(|limit| limit * 1.3),
            min_tokens_per_s: of_asked.min_tokens_per_s.map(|limit| limit / 1.3),
            max_power: of_asked.max_power.map(|limit| limit * 1.3),
            max_memory: of_asked.max_memory.map(|limit| limit * 1.3),
            max_quality_loss: of_asked.max_quality_loss.map(|limit| limit * 1.3),
        };
        let same_but = |constraints: Constraints, optimism: Optimism| Question {
            formats: asked.formats.clone(),
            kv: asked.kv.clone(),
            modes: asked.modes.clone(),
            batch: asked.batch.clone(),
            objective: asked.objective,
            optimism,
            constraints,
        };
        not_worse("looser limits", &same_but(looser, asked.optimism));
        not_worse("optimism", &same_but(asked.constraints, Optimism::Expected));
    }
}

#[test]
fn the_answer_falls_monotonically_as_the_target_tightens() {
    for of in &universes()[..4] {
        let fastest =
            of.table.iter().map(|row| row.prediction.time.value.get()).fold(f64::INFINITY, f64::min);
        let mut last = f64::NEG_INFINITY;
        // From loose to tight: the most that can be had never rises.
        for step in (0..40).rev() {
            let question = Question {
                formats: (0..of.stored.len()).collect(),
                kv: vec![0],
                modes: None,
                batch: 1..=MOST_BATCH,
                objective: Objective::Throughput,
                optimism: Optimism::Pessimistic,
                constraints: Constraints {
                    max_time: Some(Seconds(fastest * 1.2_f64.powi(step))),
                    ..Constraints::default()
                },
            };
            let value = best(of, &question);
            assert!(value >= last, "{value} {last}");
            last = value;
        }
    }
}
