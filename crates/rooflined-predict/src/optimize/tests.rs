use super::ranking::{CandidateRef, Ranking};
use super::*;
use crate::Engine;
use crate::calibration::{FitContext, MachineKey, PlanContext, PlanKind, calibration_plan, fit};
use crate::fixtures::{board, samples, state, truth};
use crate::snapshot::CalibrationStatus;
use rooflined_core::board::Reading;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Watts};

/// The fixture machine, calibrated.
fn snapshot() -> Snapshot {
    let plan = calibration_plan(
        &PlanContext {
            threads: truth::THREADS,
            core_cache_bytes: 1 << 20,
            last_level_cache_bytes: 16 << 20,
            memory_limit_bytes: 512 << 20,
            time_limit_s: 10,
            accelerator: Default::default(),
        },
        PlanKind::Full,
    );
    let context = FitContext {
        key: MachineKey {
            machine: None,
            board: "cpu".into(),
            cpu: "fixture".into(),
            logical_cpus: 4,
            kernel: None,
            version: "0".into(),
        },
        unix_s: 1.0,
        wall: Seconds(1.0),
        plan: PlanKind::Full,
        simulated: false,
        clock_cap: None,
        dram_bytes: 64 << 20,
        skipped: Vec::new(),
        gpu: None,
        power: None,
        other_work: None,
        fewer_workers: false,
    };
    let record = fit(&samples(&plan), &context).unwrap();
    let regime = record.regimes[0].clone();
    Snapshot {
        serial: 1,
        taken_at: Seconds(1.0),
        board: board(),
        state: state(),
        accelerator: crate::calibration::Accelerator::Cpu,
        hardware: None,
        roofline: regime.roofline,
        profile: regime.profile,
        residuals: std::sync::Arc::default(),
        observed_runs: std::sync::Arc::default(),
        reports: std::sync::Arc::default(),
        servers: std::sync::Arc::default(),
        calibration: Some(record),
        calibration_status: CalibrationStatus::default(),
        reference: None,
        degraded: std::collections::BTreeMap::new(),
        modes: std::sync::Arc::default(),
        busy_clocks: crate::snapshot::BusyClocks::default(),
        power_limit: None,
        power: crate::snapshot::PowerControl::default(),
        control_enabled: false,
    }
}

const FORMATS: [WeightFormat; 4] =
    [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4];

fn gemv(formats: &[WeightFormat]) -> WorkForms {
    WorkForms::Op { op: Op::Gemv { n: 4096, k: 4096 }, formats: formats.to_vec() }
}

fn query() -> Query {
    Query {
        work: gemv(&FORMATS),
        engine: Engine::Bare,
        objective: Objective::Latency,
        constraints: Constraints::default(),
        modes: Modes::Now,
        caps: Vec::new(),
        energy: EnergyBasis::WithIdle,
        allow_reboot: false,
        threads: Vec::new(),
        batch: 1..=1,
        optimism: Optimism::Pessimistic,
        run_time: USUAL_RUN,
        reserve: Bytes::ZERO,
    }
}

fn key(format: WeightFormat) -> Option<String> {
    Some(format.key().to_owned())
}

fn keys(misses: &[Miss]) -> Vec<Constraint> {
    misses.iter().map(|miss| miss.by).collect()
}

fn chosen(query: &Query) -> Candidate {
    decide(&snapshot(), query).unwrap().chosen.unwrap()
}

/// On the fixture int4 costs half a cycle a weight: the smallest format is not the fastest.
#[test]
fn the_smallest_format_is_not_chosen_where_it_is_slow_to_dequantize() {
    let int4_core = 4096.0 * 4096.0 * truth::INT4_CYCLES / f64::from(truth::THREADS) / truth::CLOCK;
    let int8_memory = 4096.0 * 4096.0 / truth::BANDWIDTH;
    assert!(int4_core > int8_memory);
    assert_eq!(chosen(&query()).format, key(WeightFormat::Int8));
}

#[test]
fn a_target_nothing_meets_names_the_closest_and_the_constraint() {
    let constraints = Constraints { max_time: Some(Seconds(1e-6)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    assert_eq!(decision.chosen, None);
    let (closest, violated) = decision.closest.unwrap();
    assert_eq!(closest.format, key(WeightFormat::Int8));
    assert_eq!(keys(&violated), [Constraint::Time]);
    assert_eq!(violated[0].limit, Some(1e-6));
    assert_eq!(decision.tally.rejected()[0].count, 4);
    let worst = closest.score.time * closest.score.slack;
    assert_eq!((decision.tally.rejected()[0].closest, violated[0].value), (Some(worst), Some(worst)));
    assert_eq!(decision.tally.why_none(), "nothing meets max_time_s");
}

#[test]
fn more_freedom_and_a_looser_target_are_never_worse() {
    let time = |formats: &[WeightFormat], target: f64| {
        let constraints = Constraints { max_time: Some(Seconds(target)), ..Constraints::default() };
        let query = Query {
            work: gemv(formats),
            constraints,
            objective: Objective::Throughput,
            batch: 1..=16,
            ..query()
        };
        decide(&snapshot(), &query).unwrap().chosen.map_or(0.0, |chosen| chosen.score.rate)
    };
    let all = [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4];
    for count in 1..all.len() {
        assert!(time(&all[..=count], 3e-3) >= time(&all[..count], 3e-3));
    }
    for target in [1e-4, 5e-4, 1e-3, 5e-3] {
        assert!(time(&all, target * 2.0) >= time(&all, target));
    }
}

#[test]
fn what_does_not_fit_into_free_memory_is_not_chosen() {
    let mut small = snapshot();
    let Reading::Known(memory) = &mut small.state.memory else { panic!("the fixture has memory") };
    memory.available = Bytes(20e6);
    let decision = decide(&small, &query()).unwrap();
    assert_eq!(decision.chosen.unwrap().format, key(WeightFormat::Int8), "17 MB fit, 34 MB do not");
    assert!(!decision.reason.contains("only"), "int4 fits as well: {}", decision.reason);
    let two = decide(&small, &Query { work: gemv(&FORMATS[1..3]), ..query() }).unwrap();
    assert!(two.reason.contains("only int8 fits into memory"), "{}", two.reason);
    assert!(
        decision
            .tally
            .rejected()
            .iter()
            .any(|rejected| rejected.by == Constraint::Available && rejected.count == 2)
    );
}

#[test]
fn a_format_that_loses_too_much_is_not_chosen_and_the_closest_is_named() {
    let ask = |limit: f64| {
        let constraints = Constraints { max_quality_loss: Some(limit), ..Constraints::default() };
        decide(&snapshot(), &Query { constraints, ..query() }).unwrap()
    };
    let int8 = WeightFormat::Int8.expected_loss();
    assert_eq!(ask(int8).chosen.unwrap().format, key(WeightFormat::Int8));
    let strict = ask(int8 * 0.99);
    assert_eq!(strict.chosen.unwrap().format, key(WeightFormat::Bf16), "16 bits lose nothing");
    let [rejected] = strict.tally.rejected()[..] else { panic!("{:?}", strict.tally.rejected()) };
    assert_eq!((rejected.by, rejected.count, rejected.closest), (Constraint::QualityLoss, 2, Some(int8)));
    let only = Query {
        work: gemv(&[WeightFormat::Int4]),
        constraints: Constraints { max_quality_loss: Some(0.0), ..Constraints::default() },
        ..query()
    };
    let none = decide(&snapshot(), &only).unwrap();
    assert_eq!(keys(&none.closest.unwrap().1), [Constraint::QualityLoss]);
    assert_eq!(none.tally.why_none(), "nothing meets max_quality_loss_ratio");
}

#[test]
fn impossible_questions_say_what_is_wrong() {
    let ask = |change: fn(&mut Query)| {
        let mut query = query();
        change(&mut query);
        decide(&snapshot(), &query).unwrap_err().to_string()
    };
    assert!(ask(|query| query.work = gemv(&[])).contains("no format"));
    #[expect(clippy::reversed_empty_ranges, reason = "that is the mistake")]
    let reversed = ask(|query| query.batch = 9..=3);
    assert!(reversed.contains("9 to 3 is empty"));
    assert!(ask(|query| query.batch = 0..=3).contains("empty"));
    assert!(ask(|query| query.batch = 1..=u64::MAX).contains("more than"));
    assert!(ask(|query| query.objective = Objective::Power).contains("nothing is known of the power"));
    assert!(
        ask(|query| query.work = WorkForms::Op { op: Op::Gemv { n: 0, k: 1 }, formats: FORMATS.to_vec() })
            .contains("n is 0")
    );
}

#[test]
fn constraints_that_only_together_exclude_everything_are_named_as_contradicting() {
    // Sixteen columns take longer than one, and only sixteen are fast enough together.
    let wide = Query { batch: 1..=16, work: gemv(&[WeightFormat::Int8]), ..query() };
    let scores = |batch: u64| {
        let query = Query { batch: batch..=batch, ..wide.clone() };
        decide(&snapshot(), &query).unwrap().chosen.unwrap().score
    };
    let (one, many) = (scores(1), scores(16));
    let constraints = Constraints {
        max_time: Some(Seconds(one.time * one.slack * 1.01)),
        min_tokens_per_s: Some(many.rate / many.slack * 0.99),
        max_memory: Some(Bytes(1e12)),
        ..Constraints::default()
    };
    let decision = decide(&snapshot(), &Query { constraints, ..wide }).unwrap();
    assert_eq!(decision.chosen, None);
    assert_eq!(decision.tally.contradicting(), [Constraint::Time, Constraint::Rate]);
    let said = decision.tally.why_none();
    let counts = "of 16, 1 meets max_time_s, 10 meet min_tokens_per_s";
    assert_eq!(said, format!("no candidate meets all limits together: {counts}"));
    assert_eq!(decision.closest.unwrap().1.len(), 1, "the nearest breaks one limit only");
}

#[test]
fn a_limit_in_another_unit_is_met_and_looks_odd() {
    let constraints = Constraints { max_time: Some(Seconds(50.0)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    assert!(decision.chosen.is_some());
    let [hint] = decision.hints.as_slice() else { panic!("{:?}", decision.hints) };
    assert!(hint.contains("max_time_s is 50 seconds") && hint.contains("0.05"), "{hint}");
    let constraints = Constraints { max_memory: Some(Bytes(8.0)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    assert!(decision.chosen.is_none() && decision.hints[0].contains("8 GB are 8e9"), "{:?}", decision.hints);
    let constraints = Constraints { max_time: Some(Seconds(1.0)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, work: gemv(&FORMATS[..1]), ..query() }).unwrap();
    let time = decision.chosen.unwrap().score.time;
    let constraints = Constraints { max_time: Some(Seconds(time * 10.0)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    assert_eq!(decision.hints, Vec::<String>::new(), "ten times is generous and no mistake");
    let constraints = Constraints { max_time: Some(Seconds(time / 1e6)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    let [hint] = decision.hints.as_slice() else { panic!("{:?}", decision.hints) };
    assert!(hint.contains("max_time_s is") && hint.contains("times off"), "{hint}");
    let constraints = Constraints { max_time: Some(Seconds(time / 3.0)), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, work: gemv(&FORMATS[..1]), ..query() }).unwrap();
    assert!(decision.chosen.is_none() && decision.hints.is_empty(), "a third is a wish and no other unit");
    let constraints = Constraints { min_tokens_per_s: Some(1e9), ..Constraints::default() };
    let decision = decide(&snapshot(), &Query { constraints, ..query() }).unwrap();
    assert!(
        decision.hints[0].contains("min_tokens_per_s is 1000000000 tokens a second"),
        "{:?}",
        decision.hints
    );
}

#[test]
fn threads_are_a_freedom_of_a_cpu_and_of_no_gpu() {
    let query = Query { threads: vec![1, 2, 4], work: gemv(&[WeightFormat::Int4]), ..query() };
    let decision = decide(&snapshot(), &query).unwrap();
    assert_eq!(decision.tally.candidates(), 3);
    assert_eq!(decision.chosen.unwrap().threads, Some(4), "int4 is limited by the cores");
    let mut gpu = snapshot();
    gpu.accelerator = crate::calibration::Accelerator::Gpu;
    assert_eq!(decide(&gpu, &query).unwrap_err(), QueryError::NoThreads);
}

#[test]
fn the_runner_up_is_another_format_and_says_whether_it_may_be_better() {
    let decision = decide(&snapshot(), &query()).unwrap();
    let sensitivity = decision.sensitivity.unwrap();
    let runner_up = sensitivity.runner_up.clone().unwrap();
    assert_ne!(runner_up.format, decision.chosen.as_ref().unwrap().format);
    let ratio = runner_up.score.time / decision.chosen.unwrap().score.time;
    assert_eq!(sensitivity.margin_ratio, Some(ratio - 1.0));
    assert_eq!(sensitivity.could_change(), ratio - 1.0 < sensitivity.interval_ratio.unwrap());
}

#[test]
fn what_is_unknown_is_no_better_than_what_is_known_to_be_bad() {
    let ends = |unknown: bool| {
        let mut score = decide(&snapshot(), &query()).unwrap().chosen.unwrap().score;
        score.loss = if unknown { f64::NAN } else { 0.5 };
        score::criteria(&score)
    };
    assert!(ends(true)[4] > ends(false)[4]);
}

/// Scores of few values, so that many candidates are alike in something; some are unknown. Quality is the same for all.
fn some_scores(random: &mut fastrand::Rng, count: usize) -> Vec<Score> {
    let loss = if random.u8(..4) == 0 { f64::NAN } else { f64::from(random.u8(..3)) };
    let mut score = || {
        let mut value = |unknown: bool| match random.u8(..8) {
            0 if unknown => f64::NAN,
            value => f64::from(1 + value / 2),
        };
        let (slack, rate, watts) = (value(false), value(false), value(true));
        Score {
            time: value(false),
            slack,
            first: value(true),
            per_token: value(true),
            rate,
            watts,
            watts_high: watts * slack,
            energy: watts / rate,
            memory: value(false),
            loss,
            clock: f64::NAN,
        }
    };
    (0..count).map(|_| score()).collect()
}

fn first_by<T: Copy>(all: impl IntoIterator<Item = T>, value: impl Fn(&T) -> Vec<f64>) -> Option<T> {
    let order = |a: &T, b: &T| {
        let (a, b) = (value(a), value(b));
        let differ = a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
        differ.unwrap_or(std::cmp::Ordering::Equal)
    };
    all.into_iter().min_by(order)
}

/// What is unknown is not.
fn at_most(a: f64, b: f64) -> bool {
    a <= b
}

/// The same by the definitions, from a table of all candidates.
fn ranked_by_the_definitions(
    query: &Query,
    options: usize,
    points: usize,
    rows: &[(CandidateRef, bool)],
) -> (String, Vec<String>) {
    let limits = &query.constraints;
    let slack = |score: &Score, expected: bool| if expected { 1.0 } else { score.slack };
    let value = |by: Constraint, score: &Score, expected: bool| {
        let slack = slack(score, expected);
        match by {
            Constraint::Time => limits.max_time.map(|limit| (score.time * slack, limit.get())),
            Constraint::TimePerToken => {
                limits.max_time_per_token.map(|limit| (score.per_token * slack, limit.get()))
            }
            Constraint::TimeToFirstToken => {
                limits.max_time_to_first_token.map(|limit| (score.first * slack, limit.get()))
            }
            Constraint::Rate => limits.min_tokens_per_s.map(|limit| (score.rate / slack, limit)),
            Constraint::Power => limits
                .max_power
                .map(|limit| (if expected { score.watts } else { score.watts_high }, limit.get())),
            Constraint::Memory => limits.max_memory.map(|limit| (score.memory, limit.get())),
            Constraint::QualityLoss => limits.max_quality_loss.map(|limit| (score.loss, limit)),
            _ => None,
        }
    };
    let missed = |score: &Score, reboot: bool, expected: bool| -> Vec<Constraint> {
        let broken = |by: &Constraint| match by {
            Constraint::Reboot => reboot,
            Constraint::PowerUnknown => {
                matches!(query.objective, Objective::Energy | Objective::Power) && score.watts.is_nan()
            }
            Constraint::Rate => value(*by, score, expected)
                .is_some_and(|(_, limit)| !at_most(limit * slack(score, expected), score.rate)),
            _ => value(*by, score, expected).is_some_and(|(value, limit)| !at_most(value, limit)),
        };
        Constraint::ALL.into_iter().filter(broken).collect()
    };
    let expected = query.optimism == Optimism::Expected;
    let rank = |which: &CandidateRef| {
        let Score { time, rate, watts, energy, memory, loss, .. } = which.score;
        let first = match query.objective {
            Objective::Latency => time,
            Objective::Throughput => -rate,
            Objective::Energy => energy,
            Objective::Power => watts,
        };
        vec![first, time, -rate, energy, memory, loss]
    };
    let meets = |(which, reboot): &(CandidateRef, bool)| {
        missed(&which.score, *reboot, expected).is_empty().then_some(*which)
    };
    let feasible: Vec<CandidateRef> = rows.iter().filter_map(meets).collect();
    let of_pair = |option: usize, point: usize| {
        let alike = feasible.iter().copied().filter(move |of| of.option == option && of.point == point);
        first_by(alike, rank)
    };
    let pairs = (0..points).flat_map(|point| (0..options).map(move |option| (option, point)));
    let mut best: Vec<CandidateRef> = pairs.filter_map(|(option, point)| of_pair(option, point)).collect();
    let chosen = first_by(best.iter().copied(), rank);
    best.retain(|which| !chosen.is_some_and(|chosen| chosen.same(which)));
    let runner_up = first_by(best, rank);
    let at_expected = rows.iter().filter(|(which, reboot)| {
        !expected
            && !missed(&which.score, *reboot, false).is_empty()
            && missed(&which.score, *reboot, true).is_empty()
    });
    let at_expected = first_by(at_expected.map(|(which, _)| *which), rank);
    let at_expected = at_expected
        .filter(|which| {
            first_by(chosen.into_iter().chain([*which]), rank).is_some_and(|first| first.same(which))
        })
        .map(|which| (which.option, which.point, which.batch));
    let rejected: Vec<String> = Constraint::ALL
        .into_iter()
        .filter_map(|by| {
            let broken =
                rows.iter().filter(|(which, reboot)| missed(&which.score, *reboot, expected).contains(&by));
            let values: Vec<f64> = broken
                .map(|(which, _)| value(by, &which.score, expected).map_or(f64::NAN, |(value, _)| value))
                .collect();
            let nearer = if by == Constraint::Rate { f64::max } else { f64::min };
            let nearest = values.iter().copied().fold(f64::NAN, nearer);
            let closest = nearest.is_finite().then_some(nearest);
            (!values.is_empty()).then(|| format!("{:?}", (by, values.len(), closest)))
        })
        .collect();
    let place = |which: Option<CandidateRef>| which.map(|of| (of.option, of.point, of.batch));
    (format!("{:?}", (place(chosen), place(runner_up), at_expected, rows.len())), rejected)
}

#[test]
fn the_ranking_is_what_the_definitions_say_of_all_candidates() {
    const OPTIONS: usize = 3;
    let snapshot = snapshot();
    let mut random = fastrand::Rng::with_seed(3);
    let (mut met, mut unmet) = (0, 0);
    for _ in 0..2_000 {
        let mut limit = || random.bool().then(|| f64::from(random.u8(1..9)));
        let constraints = Constraints {
            max_time: limit().map(Seconds),
            max_time_per_token: limit().map(Seconds),
            max_time_to_first_token: limit().map(Seconds),
            min_tokens_per_s: limit().map(|limit| limit / 3.0),
            max_power: limit().map(Watts),
            max_memory: limit().map(Bytes),
            max_quality_loss: limit(),
        };
        let objectives = [Objective::Latency, Objective::Throughput, Objective::Energy, Objective::Power];
        let objective = objectives[random.usize(..4)];
        let optimism = if random.bool() { Optimism::Pessimistic } else { Optimism::Expected };
        let batch = random.u64(1..4)..=random.u64(4..30);
        let query = Query { constraints, objective, optimism, batch: batch.clone(), ..query() };
        let mut points = points(&snapshot, &query).unwrap();
        points.push(CandidatePoint { reboot: random.bool(), ..points[0].clone() });
        let count = batch.clone().count();
        let mut ranking = Ranking::new(&snapshot, &query, points.len(), OPTIONS);
        let mut rows = Vec::new();
        for option in 0..OPTIONS {
            for (index, point) in points.iter().enumerate() {
                for (batch, score) in batch.clone().zip(some_scores(&mut random, count)) {
                    let which = CandidateRef { option, point: index, batch, score };
                    ranking.consider(which, point);
                    rows.push((which, point.reboot));
                }
            }
        }
        let standings = ranking.standings();
        let place = |which: Option<CandidateRef>| which.map(|of| (of.option, of.point, of.batch));
        let found = (
            place(standings.chosen),
            place(standings.runner_up),
            place(standings.at_expected),
            standings.tally.candidates(),
        );
        let (expected, rejected) = ranked_by_the_definitions(&query, OPTIONS, points.len(), &rows);
        assert_eq!(format!("{found:?}"), expected, "{query:?}");
        let counted =
            standings.tally.rejected().into_iter().map(|of| format!("{:?}", (of.by, of.count, of.closest)));
        assert_eq!(counted.collect::<Vec<_>>(), rejected, "{query:?}");
        if standings.chosen.is_some() { met += 1 } else { unmet += 1 }
    }
    assert!(met > 400 && unmet > 150, "{met} {unmet}");
}

#[test]
fn a_search_ends_where_its_answer_is_no_longer_wanted() {
    let (snapshot, wide) = (snapshot(), Query { batch: 1..=10_000, ..query() });
    let asked = std::cell::Cell::new(0);
    let search = |answers: usize| {
        asked.set(0);
        let is_wanted = || {
            asked.set(asked.get() + 1);
            asked.get() <= answers
        };
        decide_while(&is_wanted, &snapshot, &wide)
    };
    let whole = search(usize::MAX).unwrap();
    assert_eq!(whole.tally.candidates(), 4 * 10_000);
    let often = asked.get();
    assert!(often * STRIDE >= 40_000, "it looks {often} times");
    for answers in [0, 1, 17, often - 1] {
        assert_eq!(search(answers), Err(QueryError::Unwanted));
        assert_eq!(asked.get(), answers + 1, "it goes no further");
    }
}

/// A limit that only the best estimate meets: the reason says what would be chosen, and how to ask for it.
#[test]
fn what_the_reason_says_of_the_best_estimate_is_what_it_chooses() {
    let snapshot = snapshot();
    let mut said = 0;
    for micros in 300..450 {
        let max_time = Some(Seconds(f64::from(micros) * 1e-6));
        let constraints = Constraints { max_time, ..Constraints::default() };
        let worst = Query { constraints, ..query() };
        let expected = Query { optimism: Optimism::Expected, ..worst.clone() };
        let (worst, expected) = (decide(&snapshot, &worst).unwrap(), decide(&snapshot, &expected).unwrap());
        let format = |of: &Decision| of.chosen.as_ref().and_then(|chosen| chosen.format.clone());
        let name = format(&expected).unwrap_or_default();
        let differs = !name.is_empty() && format(&worst).is_none_or(|other| other != name);
        let sentence = format!("with \"optimism\":\"expected\" it would be {name}");
        assert_eq!(worst.reason.contains(&sentence), differs, "{max_time:?}: {}", worst.reason);
        assert!(!expected.reason.contains("optimism"), "{}", expected.reason);
        said += usize::from(differs);
    }
    assert!((5..100).contains(&said), "{said} of 150");
}
