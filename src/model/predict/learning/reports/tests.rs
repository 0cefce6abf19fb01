use super::*;
use crate::costs::recipe;
use crate::learning::models::ModelQuery;
use crate::{EngineProfile, Tier, predict};
use roofline::ceilings::{Ceiling, Provenance, Roofline, datasheet};
use roofline::hardware::registry;
use roofline::precision::{NumericFormat, Precision, WeightFormat};
use roofline::units::{BytesPerSecond, FlopsPerSecond};
use roofline::workload::registry::models;
use roofline::workload::transformer::Request;

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
        // Some contradict what the stranger said itself.
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
fn what_is_far_off_widens_before_it_moves_and_forgetting_takes_it_back_exactly() {
    for trusted in [0, 1000] {
        let mut learnt = nothing();
        report(&mut learnt, 0, &[at(64, 1.05)]);
        let before = seen(&learnt, trusted, 512);
        let lie = at(512, 20.0);
        for _ in 0..10 {
            report(&mut learnt, trusted, std::slice::from_ref(&lie));
        }
        let doubted = seen(&learnt, trusted, 512);
        assert_eq!(
            (doubted.time.value, doubted.tier),
            (before.time.value, before.tier),
            "saying it ten times is once"
        );
        assert!((doubted.time.high / lie.time - 1.0).abs() < 1e-6, "{doubted:?}");
        assert!(doubted.time.low == before.time.low && doubted.moved.doubted == 1, "{doubted:?}");
        assert!(doubted.warnings.iter().any(|warning| warning.contains("contradicts")));
        report(&mut learnt, trusted, &[at(512, 20.2), at(512, 19.8)]);
        let moved = seen(&learnt, trusted, 512);
        // The run that was believed before, of another context, still counts.
        assert!(moved.time.value > lie.time * 0.6, "three that agree are believed: {moved:?}");
        assert_eq!(moved.tier, Tier::Observed);
        let lies = Selection { uid: Some(trusted), ..Selection::default() };
        if trusted == 0 {
            let ids: Vec<u64> = learnt.observed_runs.runs().map(|run| run.report().id).skip(1).collect();
            for id in ids {
                assert_eq!(learnt.forget(&Selection { id: Some(id), ..lies.clone() }).0, 1);
            }
        } else {
            assert_eq!(learnt.forget(&lies).0, 3);
        }
        assert_eq!(seen(&learnt, trusted, 512), before);
    }
}

#[test]
fn a_calibration_drops_what_contradicts_it() {
    let mut learnt = nothing();
    report(&mut learnt, 1000, &[at(512, 20.0)]);
    report(&mut learnt, 1001, &[at(512, 1.2)]);
    assert!(learnt.recalibrated().reports);
    let plain = seen(&nothing(), 1, 512);
    assert_eq!(seen(&learnt, 1000, 512), plain);
    assert!(seen(&learnt, 1001, 512).time.value > plain.time.value * 1.1, "what nothing contradicts is kept");
}

#[test]
fn three_users_who_agree_are_believed_and_two_are_not() {
    let mut learnt = nothing();
    let plain = seen(&learnt, 9, 512);
    report(&mut learnt, 1001, &[at(512, 1.30)]);
    report(&mut learnt, 1002, &[at(512, 1.32), at(512, 1.33), at(512, 1.34)]);
    report(&mut learnt, 1003, &[at(512, 9.0)]);
    assert_eq!(seen(&learnt, 9, 512), plain, "a liar beside two is no third");
    report(&mut learnt, 1004, &[at(512, 1.35)]);
    let agreed = seen(&learnt, 9, 512);
    assert!((agreed.time.value / (plain.time.value * 1.33) - 1.0).abs() < 0.03, "{agreed:?}");
    assert_eq!((agreed.moved.own, agreed.moved.confirmed), (0, 1));
    let source = learnt.observed_runs.runs().next().unwrap().report().source;
    assert_eq!(source, Source::Agreed { users: 3 });
    learnt.forget(&own(1001));
    assert_eq!(seen(&learnt, 9, 512), plain, "one of them took it back");
}

#[test]
fn who_is_believed_needs_no_agreement_and_can_give_it() {
    let mut learnt = nothing();
    report(&mut learnt, 1000, &[at(512, 1.3)]);
    let (own, plain) = (seen(&learnt, 1000, 512), seen(&learnt, 9, 512));
    assert_eq!((own.moved.own, own.moved.confirmed, plain.moved), (1, 0, Default::default()));
    let id = learnt.reports.users().next().unwrap().1.runs().next().unwrap().report().id;
    assert!(learnt.confirm(id + 1, 0).is_none());
    assert!(learnt.confirm(id, 0).unwrap().observed_runs);
    assert!(learnt.reports.is_empty());
    let confirmed = seen(&learnt, 9, 512);
    assert_eq!((confirmed.time, confirmed.moved.confirmed), (own.time, 1));
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
fn what_was_stored_comes_back_and_an_older_file_is_read() {
    let mut learnt = nothing();
    report(&mut learnt, 0, &[at(512, 1.1)]);
    report(&mut learnt, 1000, &[at(2048, 1.4), at(64, 12.0)]);
    let text = |value: &serde_json::Value| value.to_string();
    let runs = serde_json::to_value(&*learnt.observed_runs).unwrap();
    let reports = serde_json::to_value(&*learnt.reports).unwrap();
    let back = |runs: &serde_json::Value| {
        let reports: Reports = serde_json::from_str(&text(&reports)).unwrap();
        reports.check().unwrap();
        let runs: ObservedRuns = serde_json::from_str(&text(runs)).unwrap();
        runs.check().unwrap();
        Learnt::on("here", Residuals::default(), runs, reports)
    };
    let again = back(&runs);
    for uid in [0, 1000] {
        let (a, b) = (seen(&learnt, uid, 2048), seen(&again, uid, 2048));
        assert!((a.time.value / b.time.value - 1.0).abs() < 1e-9, "{a:?} {b:?}");
    }
    let mut old = runs;
    for run in old["runs"].as_array_mut().unwrap() {
        for new in ["source", "unix_s", "doubtful", "foreseen"] {
            run.as_object_mut().unwrap().remove(new).unwrap();
        }
    }
    let again = back(&old);
    assert!((seen(&again, 9, 512).time.value / seen(&learnt, 9, 512).time.value - 1.0).abs() < 1e-9);
    assert_eq!(again.observed_runs.runs().next().unwrap().report().source, Source::Unrecorded);
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
        whole_clock: None,
    };
    let format = NumericFormat::stored(WeightFormat::Fp32);
    predict(&roofline, &EngineProfile::unknown(Engine::Numpy), op, &format).unwrap()
}

#[test]
fn operations_are_believed_by_the_same_rules() {
    let op = Op::Gemv { n: 4096, k: 4096 };
    let key = ResidualKey::new(Engine::Numpy, &op, WeightFormat::Fp32);
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
    let doubted = seen(&after, 1000);
    assert_eq!(doubted.time.value, plain.time.value);
    assert!(doubted.time.high > plain.time.value * 29.0, "{doubted:?}");
    report(1001, 1.5);
    report(1002, 1.52);
    let mut after = report(1003, 1.48);
    let agreed = seen(&after, 9);
    assert!((agreed.time.value / plain.time.value - 1.5).abs() < 1e-9, "the middle of three: {agreed:?}");
    assert_eq!(agreed.moved.confirmed, 1);
    assert_eq!(after.forget(&own(1002)).0, 1);
    assert_eq!(seen(&after, 9), plain);
    let after = report(0, 2.0);
    assert!((seen(&after, 9).time.value / plain.time.value - 2.0).abs() < 1e-9, "root is believed at once");
}
