//! A measured time beside the ceilings.

use super::catalogue::Catalogue;
use super::modes::refuse_power_limit;
use super::predict::{Work, completed, prediction_answer};
use super::run;
use super::task::{model_at, unpredictable, with_threads};
use super::words::positive;
use rooflined_api::{AnalyzeAnswer, AnalyzeRequest, RecommendRequest};
use rooflined_core::ceilings::Roofline;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Seconds, significant};
use rooflined_predict::Prediction;
use rooflined_predict::learning::vet::{explanations, is_impossible};
use rooflined_predict::snapshot::Snapshot;

/// A prediction further off than this part of the measured time counts as wrong, however wide its interval.
const AS_PREDICTED: f64 = 0.20;
/// From this part of the ceiling on there is nothing left to gain.
const AT_CEILING: f64 = 0.95;

/// `POST /v1/analyze`.
pub fn analyze(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &AnalyzeRequest,
) -> Result<AnalyzeAnswer, Refusal> {
    refuse_power_limit(request.operating_point.as_ref(), "operating_point")?;
    let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
    let model = with_threads(snapshot, model, request.workload.threads, "workload.threads")?;
    let question = RecommendRequest {
        operating_point: request.operating_point.clone(),
        workload: request.workload.clone(),
        engine: request.engine,
        ..RecommendRequest::default()
    };
    let (engine, workload) = completed(snapshot, catalogue, question)?;
    let work = Work::new(snapshot, catalogue, &workload, engine, "workload")?;
    let time = measured_time(request, work.tokens())?;
    let (prediction, cached) = match &work {
        Work::Op(task) => {
            let prediction = task.predict(&model).map_err(|error| unpredictable(&error, "workload"))?;
            let prediction = snapshot.residuals.correct(&task.residual_key(), prediction);
            let cached = cached(snapshot, prediction.cost.traffic);
            (prediction, cached)
        }
        Work::Model(task) => (run::run(snapshot, &model, &snapshot.observed_runs, task, "workload")?, None),
    };
    let explanations = match &work {
        Work::Op(_) => "Check the unit of the time, the sizes and the format.".to_owned(),
        Work::Model(task) => format!("Most likely first: {}.", explanations(&task.request)),
    };
    let (verdict, reason) = judge(&model.roofline, &prediction, time, cached, &explanations);
    Ok(AnalyzeAnswer {
        achieved_flops_per_s: (prediction.cost.work / time).get(),
        achieved_bytes_per_s: (prediction.cost.traffic / time).get(),
        ceiling_ratio: prediction.roofline_time / time,
        predicted_ratio: prediction.time.value / time,
        bound: prediction.bound.key().to_owned(),
        limit: prediction.limit.key().to_owned(),
        verdict: verdict.to_owned(),
        reason,
        simulated: snapshot.board.simulated,
        prediction: prediction_answer(snapshot, &work, prediction),
    })
}

/// The time of one run, given as such or as a rate.
fn measured_time(request: &AnalyzeRequest, tokens: f64) -> Result<Seconds, Refusal> {
    let time = match (request.time_s, request.tokens_per_s) {
        (Some(time), None) => positive("time_s", time)?,
        (None, Some(rate)) => tokens / positive("tokens_per_s", rate)?,
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                "tokens_per_s",
                "time_s and tokens_per_s are both given",
                "give one of the two",
            ));
        }
        (None, None) => {
            return Err(Code::MissingField.at("time_s", "time_s is missing", "add time_s or tokens_per_s"));
        }
    };
    // A rate of 1e-308 is above zero, and its time is not finite.
    Ok(Seconds(positive("time_s", time)?))
}

fn judge(
    roofline: &Roofline,
    expected: &Prediction,
    time: Seconds,
    cached: Option<Bytes>,
    explanations: &str,
) -> (&'static str, String) {
    let (bound, floor) = (expected.roofline_time, expected.floor);
    let (predicted, cost) = (expected.time, expected.cost);
    let share = 100.0 * (bound / time);
    if is_impossible(time, floor) {
        let peak = roofline.compute(expected.compute);
        let mut reason = format!(
            "{time} is {} times faster than the physical bound of {floor}: it would take {} and {}, and the \
             ceilings are {} and {}. {explanations}",
            significant(floor / time),
            cost.traffic / time,
            cost.work / time,
            roofline.bandwidth.value,
            peak.map_or_else(String::new, |peak| peak.value.to_string()),
        );
        if let Some(cache) = cached {
            reason.push_str(&format!(
                " Or the data was still in the {cache} cache from the run before: the bound is for main memory."
            ));
        }
        return ("impossible", reason);
    }
    if bound / time >= AT_CEILING {
        return (
            "at_ceiling",
            format!("{time} is {share:.0} % of the ceiling: nothing is left to gain here."),
        );
    }
    let shown = format!("predicted {} ({} to {})", predicted.value, predicted.low, predicted.high);
    let error = predicted.value / time - 1.0;
    let within = if (predicted.low..=predicted.high).contains(&time) {
        ", though within its wide interval"
    } else {
        ""
    };
    if time > predicted.high || error < -AS_PREDICTED {
        let factor = time / predicted.value;
        let reason = format!(
            "{time} is {} times the time {shown}{within}; it reaches {share:.0} % of the ceiling.",
            significant(factor)
        );
        return ("slower_than_predicted", reason);
    }
    if time < predicted.low || error > AS_PREDICTED {
        let factor = predicted.value / time;
        let reason = format!(
            "{time} is {} times faster than {shown}{within} and at {share:.0} % of the ceiling.",
            significant(factor)
        );
        return ("faster_than_predicted", reason);
    }
    ("as_predicted", format!("{time} lies within what was {shown}; it reaches {share:.0} % of the ceiling."))
}

/// Size of the last-level cache if `traffic` fits into it.
fn cached(snapshot: &Snapshot, traffic: Bytes) -> Option<Bytes> {
    let size = snapshot.board.cpu.last_level_cache_bytes()?;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let size = Bytes(size as f64);
    (traffic <= size).then_some(size)
}
