use super::*;
use crate::costs::recipe;
use crate::fixtures::Noise;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_models::transformer::Request;

const KEY: &str = "jetson-agx-orin-64gb";

fn run(model: &str, request: Request, mode: usize) -> Measured {
    let hardware = registry().get(KEY).unwrap();
    let format = "q4_k_m".parse().unwrap();
    let point = hardware.modes[mode].operating_point();
    Measured {
        engine: Engine::LlamaCpp,
        name: model.to_owned(),
        format: "q4_k_m".to_owned(),
        model: Arc::new(models().get(model).unwrap().model(recipe(Engine::LlamaCpp, format))),
        request,
        roofline: Arc::new(datasheet(hardware, &point)),
        kernels: None,
        cpu: None,
        memory_ratio: None,
        hardware: Some(KEY.to_owned()),
        mode: Some(hardware.modes[mode].name.clone()),
        time: Seconds(1.0),
        power: None,
        power_limit: hardware.tdp,
    }
}

fn decode(model: &str, batch: u64, context: u64) -> Measured {
    run(model, Request { batch, ..Request::decode(context) }, 0)
}

fn empty() -> ObservedRuns {
    ObservedRuns::default().of("here".into())
}

fn expected(observed_runs: &ObservedRuns, of: &Measured) -> Prediction {
    observed_runs.predict(&of.asked()).unwrap()
}

fn source(prediction: &Prediction) -> IntervalSource {
    prediction.model.as_ref().unwrap().interval_from
}

fn width(prediction: &Prediction) -> f64 {
    prediction.time.high / prediction.time.low
}

/// The run with `factor` times the time that nothing learnt predicts.
fn at(run: Measured, factor: f64) -> Measured {
    let time = expected(&empty(), &run).time.value * factor;
    Measured { time, ..run }
}

#[track_caller]
fn taught(observed_runs: &mut ObservedRuns, runs: &[Measured]) -> ObservationOutcome {
    let outcomes = observed_runs.observe(runs, 0.0);
    outcomes.into_iter().map(Result::unwrap).next_back().unwrap()
}

fn refusal(observed_runs: &mut ObservedRuns, run: &Measured) -> Refused {
    observed_runs.observe(std::slice::from_ref(run), 0.0).remove(0).unwrap_err()
}

#[test]
fn an_observation_equal_to_the_prediction_changes_almost_nothing() {
    let of = at(decode("llama-3.1-8b", 1, 512), 1.0);
    let (mut observed_runs, plain) = (empty(), expected(&empty(), &of));
    let learnt = taught(&mut observed_runs, std::slice::from_ref(&of));
    assert!((learnt.factor - 1.0).abs() < 1e-3, "{learnt:?}");
    let now = expected(&observed_runs, &of);
    assert_eq!((now.tier, source(&now)), (Tier::Observed, IntervalSource::OwnRuns));
    assert!(width(&now) < width(&plain));
    let other = decode("qwen2.5-7b", 1, 512);
    let ratio = expected(&observed_runs, &other).time.value / expected(&empty(), &other).time.value;
    assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
}

#[test]
fn without_observations_the_answer_is_the_prior_one() {
    let of = decode("llama-3.1-8b", 4, 512);
    let asked = of.asked();
    assert_eq!(expected(&empty(), &of), asked.predict(asked.shipped()).unwrap());
}

#[test]
fn the_tier_rises_with_what_was_seen() {
    let mut observed_runs = empty();
    let tier = |observed_runs: &ObservedRuns, of: &Measured| expected(observed_runs, of).tier;
    let of = at(decode("llama-3.1-8b", 1, 512), 1.3);
    assert_eq!(tier(&observed_runs, &of), Tier::Prior);
    taught(&mut observed_runs, &[at(decode("qwen2.5-7b", 1, 512), 1.3)]);
    assert_eq!(tier(&observed_runs, &of), Tier::EngineCalibrated, "another model with this engine");
    let by_others = expected(&observed_runs, &of).time.value / expected(&empty(), &of).time.value;
    assert!(by_others > 1.05, "what slows one model slows another: {by_others}");
    taught(&mut observed_runs, &[at(decode("llama-3.1-8b", 8, 512), 1.3)]);
    assert_eq!(tier(&observed_runs, &of), Tier::Anchored, "the same model in another batch");
    taught(&mut observed_runs, std::slice::from_ref(&of));
    let now = expected(&observed_runs, &of);
    assert_eq!(now.tier, Tier::Observed);
    assert!((now.time.value / of.time - 1.0).abs() < 0.03, "{now:?}");
    let mode = run("llama-3.1-8b", Request::decode(512), 1);
    assert_eq!(tier(&observed_runs, &mode), Tier::Anchored, "another power mode");
    let engine = Measured { engine: Engine::Vllm, ..of };
    assert_eq!(tier(&observed_runs, &engine), Tier::Prior, "another engine has learnt nothing");
}

#[test]
fn the_order_of_observations_does_not_matter() {
    let runs: Vec<Measured> = [(1, 0), (2, 512), (4, 2048), (8, 100), (16, 1000)]
        .into_iter()
        .zip([1.1, 1.3, 1.2, 1.0, 1.25])
        .map(|((batch, context), factor)| at(decode("llama-3.1-8b", batch, context), factor))
        .collect();
    let (mut forwards, mut backwards) = (empty(), empty());
    taught(&mut forwards, &runs);
    taught(&mut backwards, &runs.iter().rev().cloned().collect::<Vec<_>>());
    for of in [decode("llama-3.1-8b", 3, 700), decode("qwen2.5-7b", 1, 512)] {
        let (a, b) = (expected(&forwards, &of).time.value, expected(&backwards, &of).time.value);
        assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    }
}

#[test]
fn more_agreeing_observations_never_widen() {
    let mut observed_runs = empty();
    let mut noise = Noise::new(3);
    let of = at(decode("llama-3.1-8b", 1, 512), 1.2);
    let mut last = width(&expected(&observed_runs, &of));
    for _ in 0..30 {
        let time = of.time * (1.0 + 1e-4 * noise.normal());
        taught(&mut observed_runs, &[Measured { time, ..of.clone() }]);
        let now = width(&expected(&observed_runs, &of));
        assert!(now <= last * (1.0 + 1e-6), "{now} after {last}");
        last = now;
    }
    assert_eq!(source(&expected(&observed_runs, &of)), IntervalSource::OwnTier);
}

#[test]
fn saying_the_same_again_counts_once() {
    let mut observed_runs = empty();
    let of = at(decode("llama-3.1-8b", 1, 512), 1.2);
    for _ in 0..20 {
        assert_eq!(taught(&mut observed_runs, std::slice::from_ref(&of)).count, 1);
    }
    assert_eq!(source(&expected(&observed_runs, &of)), IntervalSource::OwnRuns);
}

#[test]
fn memory_is_bounded_and_the_oldest_leave_first() {
    let mut observed_runs = empty();
    for context in 0..70 {
        taught(&mut observed_runs, &[at(decode("llama-3.1-8b", 1, 100 * context), 1.0)]);
    }
    assert_eq!(observed_runs.runs.len(), MAX_RUNS_OF_MODEL);
    assert_eq!(observed_runs.runs[0].observation.context_tokens, 600);
    let bytes = serde_json::to_vec(&observed_runs).unwrap().len();
    assert!(
        bytes / observed_runs.runs.len() * MAX_RUNS < 12 << 20,
        "{bytes} bytes of {} runs",
        observed_runs.runs.len()
    );
    let back: ObservedRuns = serde_json::from_slice(&serde_json::to_vec(&observed_runs).unwrap()).unwrap();
    back.check().unwrap();
    let of = decode("llama-3.1-8b", 1, 512);
    let (before, after) = (expected(&observed_runs, &of), expected(&back.clone().of("here".into()), &of));
    assert!((before.time.value / after.time.value - 1.0).abs() < 1e-9);
    assert_eq!(back.of("elsewhere".into()).runs.len(), 0);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason_and_changes_nothing() {
    let mut observed_runs = empty();
    let of = at(decode("llama-3.1-8b", 1, 512), 1.0);
    for factor in [1.01, 1.0, 0.99] {
        taught(&mut observed_runs, &[Measured { time: of.time * factor, ..of.clone() }]);
    }
    let before = observed_runs.clone();
    let with = |time: f64| Measured { time: of.time * time, ..of.clone() };
    let cases = [
        (with(1e-3), "impossible_observation", "time_s", "another unit"),
        (with(0.1), "impossible_observation", "time_s", "batch"),
        (with(1e3), "impossible_observation", "time_s", "milliseconds"),
        (with(1e6), "impossible_observation", "time_s", "microseconds"),
        (with(60.0), "impossible_observation", "time_s", "tokens per second"),
        (with(-1.0), "invalid_field", "time_s", "seconds"),
        (with(f64::NAN), "invalid_field", "time_s", "seconds"),
        (Measured { power: Some(Watts(0.0)), ..of.clone() }, "invalid_field", "power_w", "watts"),
        (Measured { power: Some(Watts(6e4)), ..of.clone() }, "invalid_field", "power_w", "watts"),
        (decode("llama-3.1-8b", 0, 512), "invalid_dimension", "workload", "GET"),
        (decode("llama-3.1-8b", 1, 1 << 20), "invalid_dimension", "workload.context_tokens", "cache"),
    ];
    for (run, code, field, hint) in &cases {
        let refused = refusal(&mut observed_runs, run);
        assert_eq!((refused.code().key(), refused.field()), (*code, *field), "{refused}");
        assert!(refused.hint().contains(hint), "{refused}: {}", refused.hint());
    }
    assert_eq!(observed_runs.refused(), cases.len() as u64);
    assert_eq!(observed_runs.runs, before.runs);
    assert_eq!(observed_runs.engines, before.engines);
    assert_eq!(expected(&observed_runs, &of), expected(&before, &of));
}

#[test]
fn one_wild_run_among_several_moves_nothing_and_most_of_them_do() {
    let mut observed_runs = empty();
    let of = at(decode("llama-3.1-8b", 1, 512), 1.0);
    for factor in [1.01, 1.0, 0.99, 1.005] {
        taught(&mut observed_runs, &[Measured { time: of.time * factor, ..of.clone() }]);
    }
    let (other, slow) =
        (decode("qwen2.5-7b", 1, 512), |times: f64| Measured { time: of.time * times, ..of.clone() });
    let before = [&of, &other].map(|run| expected(&observed_runs, run).time.value);
    taught(&mut observed_runs, &[slow(20.0)]);
    let after = [&of, &other].map(|run| expected(&observed_runs, run).time.value);
    for (before, after) in before.into_iter().zip(after) {
        assert!((after / before - 1.0).abs() < 0.005, "{before} {after}");
    }
    taught(&mut observed_runs, &[19.9, 20.1, 20.2, 19.8].map(slow));
    let now = expected(&observed_runs, &of);
    assert!((now.time.value / slow(20.0).time - 1.0).abs() < 0.05, "five of nine say so: {now:?}");
}

#[test]
fn a_machine_that_slows_is_noticed_and_learnt_again() {
    let (mut observed_runs, mut noise) = (empty(), Noise::new(11));
    let of = at(decode("llama-3.1-8b", 1, 512), 1.1);
    let mut measured =
        |slow: f64| Measured { time: of.time * slow * (0.02 * noise.normal()).exp(), ..of.clone() };
    for _ in 0..60 {
        assert_eq!(taught(&mut observed_runs, &[measured(1.0)]).alarm, None);
    }
    let before = expected(&observed_runs, &of);
    assert!(before.warnings.iter().all(|warning| !warning.contains("slower")));
    let noticed = (1..=10).find(|_| taught(&mut observed_runs, &[measured(1.2)]).alarm.is_some());
    assert!(noticed.is_some_and(|count| count <= 8), "{noticed:?}");
    let doubtful = expected(&observed_runs, &of);
    assert!(doubtful.tier < Tier::Anchored);
    assert!(width(&doubtful) > width(&before) * 1.2);
    assert!(
        doubtful.warnings.iter().any(|warning| warning.contains("slower") && warning.contains("calibrate"))
    );
    assert_eq!(observed_runs.alarms().len(), 1);
    let recovered = (1..=30).find(|_| taught(&mut observed_runs, &[measured(1.2)]).alarm.is_none());
    assert!(recovered.is_some(), "{:?}", observed_runs.engines);
    let now = expected(&observed_runs, &of);
    assert_eq!(now.tier, Tier::Observed);
    assert!((now.time.value / (of.time * 1.2) - 1.0).abs() < 0.03, "{now:?}");
}

/// A machine that was seen to change: runs at its pace, then twice as slow until that is noticed, on `dates`.
fn changed_at(dates: impl Fn(usize) -> f64) -> (ObservedRuns, Measured) {
    let (mut observed_runs, mut noise) = (empty(), Noise::new(5));
    let of = at(decode("llama-3.1-8b", 1, 512), 1.0);
    let mut measured =
        |slow: f64| Measured { time: of.time * slow * (0.01 * noise.normal()).exp(), ..of.clone() };
    for _ in 0..20 {
        observed_runs.observe(&[measured(1.0)], 1.8e9);
    }
    for index in 0..8 {
        if observed_runs.alarms().is_empty() {
            observed_runs.observe(&[measured(2.0)], dates(index));
        }
    }
    assert_eq!(observed_runs.alarms().len(), 1);
    (observed_runs, of)
}

#[test]
fn a_calibration_explains_what_changed() {
    let (mut observed_runs, of) = changed_at(|_| 1.8e9);
    observed_runs.recalibrated();
    assert_eq!(observed_runs.alarms().len(), 0);
    assert_eq!(expected(&observed_runs, &of), expected(&empty(), &of));
}

#[test]
fn a_change_is_forgotten_with_the_runs_that_showed_it_whatever_the_clock_said() {
    let (mut observed_runs, _) = changed_at(|index| if index == 0 { 4e9 } else { 1.8e9 });
    observed_runs.forget(|_| true);
    assert_eq!(observed_runs.alarms().len(), 0, "nothing is left that showed it");
    // A run from 1970 that came after the change was noticed did not show it.
    let (mut observed_runs, of) = changed_at(|_| 1.8e9);
    observed_runs.observe(&[Measured { time: of.time * 2.0, ..of }], 0.0);
    let last = observed_runs.forget(|run| run.unix_s < 1e9);
    assert_eq!((last, observed_runs.alarms().len()), (1, 1));
}

#[test]
fn an_old_error_weighs_less_than_a_new_one() {
    let past = |error, unix_s| PastError {
        number: 0,
        phase: Phase::Decode,
        tier: Tier::Observed,
        error,
        unix_s,
        watched_log_sd: None,
    };
    let day = 86_400.0;
    let errors: Vec<PastError> =
        (0..60).map(|index| past(if index < 6 { 0.5 } else { 0.02 }, f64::from(index) * 3.0 * day)).collect();
    let half = |errors: &[PastError]| weighted(&errors.iter().collect::<Vec<_>>());
    assert!((half(&errors).unwrap() - 0.02_f64.exp_m1()).abs() < 1e-12);
    let together: Vec<PastError> = errors.iter().map(|error| PastError { unix_s: 0.0, ..*error }).collect();
    assert!((half(&together).unwrap() - 0.5_f64.exp_m1()).abs() < 1e-12);
    assert_eq!(half(&errors[..9]), None);
}

/// A run that was reported while the clock was wrong, however wrong, makes none of the others count for nothing.
#[test]
fn a_clock_that_jumps_leaves_past_errors_their_weight() {
    let at = |error, unix_s| PastError {
        number: 0,
        phase: Phase::Decode,
        tier: Tier::Observed,
        error,
        unix_s,
        watched_log_sd: None,
    };
    let half = |errors: &[PastError]| weighted(&errors.iter().collect::<Vec<_>>()).unwrap();
    let small = 0.02_f64.exp_m1();
    for wrong in [0.0, 1e8, 1.79e9, 4e9, 1e15] {
        let mut errors: Vec<PastError> =
            (0..40).map(|hour| at(0.02, 1.8e9 + f64::from(hour) * 3600.0)).collect();
        // One large error among forty; nine of ten lie below the small ones.
        errors[20] = at(0.5, wrong);
        assert!((half(&errors) - small).abs() < 1e-12, "{wrong} in the middle");
        errors.swap(20, 39);
        assert!((half(&errors) - small).abs() < 1e-12, "{wrong} at the end: {}", half(&errors));
    }
}
