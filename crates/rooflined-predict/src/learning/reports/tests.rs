use super::*;
use crate::costs::recipe;
use crate::learning::models::ModelQuery;
use crate::{EngineProfile, Tier, predict};
use rooflined_core::ceilings::{Ceiling, Provenance, Roofline, datasheet};
use rooflined_core::hardware::registry;
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond};
use rooflined_models::registry::models;
use rooflined_models::transformer::Request;

const KEY: &str = "jetson-agx-orin-64gb";

fn run(context: u64) -> Measured {
    let hardware = registry().get(KEY).unwrap();
    let format = "q4_k_m".parse().unwrap();
    let point = hardware.modes[0].operating_point();
    Measured {
        cpu: None,
        memory_ratio: None,
        engine: Engine::LlamaCpp,
        name: "llama-3.1-8b".to_owned(),
        format: "q4_k_m".to_owned(),
        model: Arc::new(models().get("llama-3.1-8b").unwrap().model(recipe(Engine::LlamaCpp, format))),
        request: Request::decode(context),
        roofline: Arc::new(datasheet(hardware, &point)),
        kernels: None,
        hardware: Some(KEY.to_owned()),
        mode: Some(hardware.modes[0].name.clone()),
        time: Seconds(1.0),
        power: None,
        power_limit: hardware.tdp,
    }
}

fn nothing() -> Learnt {
    Learnt::on("here", Residuals::default(), ObservedRuns::default(), Reports::default())
}

const fn by(uid: u32) -> Reporter {
    Reporter { uid, pid: Some(7), trusted: uid == 0 }
}

fn seen(learnt: &Learnt, uid: u32, context: u64) -> Prediction {
    let of = run(context);
    let asked: ModelQuery<'_> = of.asked();
    learnt.view(uid).observed_runs.predict(&asked).unwrap()
}

/// A run with `factor` times the time that nothing learnt predicts.
fn at(context: u64, factor: f64) -> Measured {
    Measured { time: seen(&nothing(), 1, context).time.value * factor, ..run(context) }
}

#[track_caller]
fn report(learnt: &mut Learnt, uid: u32, runs: &[Measured]) {
    let outcomes = learnt.observe_runs(&by(uid), runs, 1e9).unwrap().outcomes;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

fn own(uid: u32) -> Selection {
    Selection { uid: Some(uid), ..Selection::default() }
}

#[test]
fn a_thousand_false_reports_of_a_stranger_move_nobody_else() {
    let mut learnt = nothing();
    report(&mut learnt, 0, &[at(512, 1.1), at(2048, 1.12)]);
    let before = [512, 2048, 100].map(|context| (seen(&learnt, 1001, context), seen(&learnt, 0, context)));
    for index in 0..1000_u32 {
        let lie = at(u64::from(index % 40) * 50, 2.0 + f64::from(index) / 1000.0);
        let _ = learnt.observe_runs(&by(1000), &[lie], 1e9).unwrap();
    }
    let after = [512, 2048, 100].map(|context| (seen(&learnt, 1001, context), seen(&learnt, 0, context)));
    assert_eq!(before, after);
    let (_, stranger) = learnt.reports.users().next().unwrap();
    assert!(stranger.runs().count() <= MAX_RUNS_OF_USER);
    assert_ne!(seen(&learnt, 1000, 512), before[0].0, "what it says moves its own answers");
    learnt.forget(&own(1000));
    assert_eq!(seen(&learnt, 1000, 512), before[0].0);
    assert!(learnt.reports.is_empty());
}

#[test]
fn forgetting_reports_takes_back_exactly_what_they_moved() {
    for reporter in [0, 1000] {
        let mut learnt = nothing();
        report(&mut learnt, 0, &[at(64, 1.05)]);
        let before = seen(&learnt, reporter, 512);
        let slow = at(512, 20.0);
        for _ in 0..10 {
            report(&mut learnt, reporter, std::slice::from_ref(&slow));
        }
        let moved = seen(&learnt, reporter, 512);
        assert_eq!(
            (moved.moved.own + moved.moved.shared, moved.tier),
            (2, Tier::Observed),
            "ten times is once"
        );
        // The run at another context counts as well.
        assert!(moved.time.value > before.time.value * 4.0, "{moved:?}");
        if reporter == 0 {
            let id = learnt.observed_runs.runs().map(|run| run.report().id).max();
            assert_eq!(learnt.forget(&Selection { id, ..own(0) }).0, 1);
        } else {
            assert_eq!(learnt.forget(&own(1000)).0, 1);
        }
        assert_eq!(seen(&learnt, reporter, 512), before);
    }
}

#[test]
fn an_answer_uses_shared_reports_and_the_callers_own() {
    // (who reports, who asks, whether it counts)
    let cases = [(0, 0, true), (0, 1000, true), (1000, 1000, true), (1000, 1001, false), (1000, 0, false)];
    for (reporter, caller, counts) in cases {
        let mut learnt = nothing();
        let plain = seen(&learnt, caller, 512);
        report(&mut learnt, reporter, &[at(512, 1.3)]);
        let answer = seen(&learnt, caller, 512);
        if !counts {
            assert_eq!(answer, plain, "a report of {reporter} for {caller}");
            continue;
        }
        assert!(answer.time.value > plain.time.value * 1.1, "{answer:?}");
        let expected = if reporter == 0 { (0, 1) } else { (1, 0) };
        assert_eq!((answer.moved.own, answer.moved.shared), expected, "a report of {reporter} for {caller}");
    }
}

#[test]
fn however_many_strangers_agree_nobody_else_is_moved() {
    let mut learnt = nothing();
    let plain = seen(&learnt, 9, 512);
    for uid in 1000..1010 {
        report(&mut learnt, uid, &[at(512, 1.3)]);
    }
    assert_eq!(seen(&learnt, 9, 512), plain);
    report(&mut learnt, 0, &[at(512, 0.9)]);
    let both = seen(&learnt, 1000, 512);
    assert_eq!((both.moved.own, both.moved.shared), (1, 1));
    assert!(
        both.time.value > seen(&learnt, 9, 512).time.value,
        "one's own report counts on top of the shared one"
    );
}

#[test]
fn a_flood_makes_only_its_own_reports_leave() {
    let mut learnt = nothing();
    report(&mut learnt, 0, &[at(512, 1.1)]);
    report(&mut learnt, 1001, &[at(1024, 1.2)]);
    let kept = (seen(&learnt, 1001, 1024), seen(&learnt, 9, 512));
    for index in 0..300_u64 {
        report(&mut learnt, 1000, &[at(index * 20, 1.5)]);
    }
    let flood = learnt.reports.users().find(|(uid, _)| *uid == 1000).unwrap().1;
    assert!(flood.runs().count() <= MAX_RUNS_OF_USER);
    assert_eq!((seen(&learnt, 1001, 1024), seen(&learnt, 9, 512)), kept);
    for uid in 2000..2000 + MAX_USERS as u32 {
        let _ = learnt.observe_runs(&by(uid), &[at(u64::from(uid), 1.1)], 1e9);
    }
    let refused = learnt.observe_runs(&by(3000), &[at(64, 1.1)], 1e9).unwrap_err();
    assert!(refused.hint.contains("observations forget"), "{refused:?}");
    assert_eq!((seen(&learnt, 1001, 1024), seen(&learnt, 9, 512)), kept);
}

#[test]
fn what_was_stored_comes_back() {
    let mut learnt = nothing();
    report(&mut learnt, 0, &[at(512, 1.1)]);
    report(&mut learnt, 1000, &[at(2048, 1.4), at(64, 12.0)]);
    let reports: Reports = serde_json::from_str(&serde_json::to_string(&*learnt.reports).unwrap()).unwrap();
    reports.check().unwrap();
    let runs = serde_json::to_string(&*learnt.observed_runs).unwrap();
    let runs: ObservedRuns = serde_json::from_str(&runs).unwrap();
    runs.check().unwrap();
    let again = Learnt::on("here", Residuals::default(), runs, reports);
    for uid in [0, 1000] {
        let (a, b) = (seen(&learnt, uid, 2048), seen(&again, uid, 2048));
        assert!((a.time.value / b.time.value - 1.0).abs() < 1e-9, "{a:?} {b:?}");
    }
}

fn predicted(op: &Op) -> Prediction {
    fn exact<R: Copy>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }
    let roofline = Roofline {
        bandwidth: exact(BytesPerSecond(50e9)),
        memory_limit: None,
        pull_limit: None,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute: BTreeMap::from([(Precision::Fp32, exact(FlopsPerSecond(500e9)))]),
        launch: exact(Seconds(1e-6)),
        ramp: Seconds::ZERO,
        workers: 2,
        clock: None,
    };
    let format = NumericFormat::stored(WeightFormat::Fp32);
    predict(&roofline, &EngineProfile::unknown(Engine::Torch), op, &format).unwrap()
}

#[test]
fn reports_of_operations_count_for_the_same_users() {
    let op = Op::Gemv { n: 4096, k: 4096 };
    let key = ResidualKey::new(Engine::Torch, &op, WeightFormat::Fp32);
    let plain = predicted(&op);
    let mut learnt = nothing();
    let mut report = |uid: u32, factor: f64| {
        let time = plain.time.value * factor;
        learnt.observe_op(&by(uid), op, key.clone(), &predicted(&op), time, 1e9).unwrap().unwrap();
        learnt.clone()
    };
    let seen = |learnt: &Learnt, uid: u32| learnt.view(uid).residuals.correct(&key, predicted(&op));
    for _ in 0..400 {
        report(1000, 30.0);
    }
    let after = report(1000, 30.0);
    assert_eq!(seen(&after, 9), plain, "a stranger's flood");
    let own_answer = seen(&after, 1000);
    assert!((own_answer.time.value / plain.time.value - 30.0).abs() < 1e-6, "{own_answer:?}");
    let after = report(1001, 1.5);
    assert_eq!(seen(&after, 9), plain);
    let mine = seen(&after, 1001);
    assert!((mine.time.value / plain.time.value - 1.5).abs() < 1e-9, "{mine:?}");
    assert_eq!((mine.moved.own, mine.moved.shared), (1, 0));
    let mut after = report(0, 2.0);
    let shared = seen(&after, 9);
    assert!((shared.time.value / plain.time.value - 2.0).abs() < 1e-9, "{shared:?}");
    assert_eq!((shared.moved.own, shared.moved.shared), (0, 1));
    assert_eq!(after.forget(&own(0)).0, 1);
    assert_eq!(seen(&after, 9), plain);
}
