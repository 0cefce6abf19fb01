//! Commands that ask one question and print its answer.

use super::Context;
use super::args::{AnalyzeArgs, ObserveArgs, PredictArgs, RecommendArgs, SweepArgs};
use super::failure::{Exit, Failure};
use super::output::Format;
use super::{show, words};
use crate::api::{
    AnalyzeRequest, BatchRange, Constraints, Freedom, ObservationRequest, ObservationsAnswer,
    OperatingPointRequest, PredictRequest, RecommendAnswer, RecommendRequest, SweepRequest, Workload,
};
use crate::precision::WeightFormat;
use crate::workload::Op;

/// An operation as a workload of a request.
pub fn workload(op: Op, format: WeightFormat, columns: Option<u64>) -> Workload {
    Workload { op: Some(op), format: Some(format.key().to_owned()), batch: columns, ..Workload::default() }
}

/// Formats as a request names them; `None` leaves the choice to the daemon.
pub fn keys(formats: &[WeightFormat]) -> Option<Vec<String>> {
    (!formats.is_empty()).then(|| formats.iter().map(|format| format.key().to_owned()).collect())
}

/// What was asked, in words: `gemv 4096x4096 int8 x4`.
fn asked(op: &Op, format: WeightFormat, columns: Option<u64>) -> String {
    let columns =
        columns.filter(|columns| *columns > 1).map_or_else(String::new, |columns| format!(" x{columns}"));
    format!("{} {format}{columns}", words::operation(op))
}

/// `status`
pub async fn status(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/state").await?;
    let roofline = match context.printer.format {
        // Without a calibration there are no ceilings, and that is no reason to show nothing.
        Format::Human => context.client.get("/v1/roofline").await.and_then(|answer| answer.parse()).ok(),
        _ => None,
    };
    context.printer.answer("state", &answer, || Ok(show::status(&answer.parse()?, roofline.as_ref())))
}

/// `board`
pub async fn board(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/board").await?;
    context.printer.answer("board", &answer, || Ok(show::board(&answer.parse()?)))
}

/// `predict` of one operation.
pub async fn predict(context: &mut Context, args: &PredictArgs) -> Result<(), Failure> {
    let op = args.op.op(args.batch)?;
    let columns = args.op.columns(args.batch);
    let mut workload = workload(op, args.format, columns);
    workload.kv_format = args.kv_format.map(|format| format.key().to_owned());
    let point =
        args.mode.clone().map(|mode| OperatingPointRequest { power_mode: Some(mode), ..Default::default() });
    let request =
        PredictRequest { operating_point: point, engine: args.engine, workload, ..PredictRequest::default() };
    let answer = context.client.post("/v1/predict", &request).await?;
    context.printer.answer("predict", &answer, || {
        Ok(show::prediction(&asked(&op, args.format, columns), &answer.parse()?))
    })
}

/// `sweep`
pub async fn sweep(context: &mut Context, args: &SweepArgs) -> Result<(), Failure> {
    let request = SweepRequest {
        ops: args.shapes.ops()?,
        formats: keys(&args.formats),
        batches: (!args.batches.is_empty()).then(|| args.batches.clone()),
        engine: args.engine,
    };
    let answer = context.client.post("/v1/sweep", &request).await?;
    context.printer.answer("sweep", &answer, || Ok(show::sweep(&answer.parse()?)))
}

/// `analyze`
pub async fn analyze(context: &mut Context, args: &AnalyzeArgs) -> Result<(), Failure> {
    let op = args.op.op(args.batch)?;
    let columns = args.op.columns(args.batch);
    let request = AnalyzeRequest {
        workload: workload(op, args.format, columns),
        engine: args.engine,
        time_s: args.time,
    };
    let answer = context.client.post("/v1/analyze", &request).await?;
    let what = format!("{} in {}", asked(&op, args.format, columns), words::time(args.time));
    context.printer.answer("analyze", &answer, || Ok(show::analysis(&what, &answer.parse()?)))
}

/// `recommend`
pub async fn recommend(context: &mut Context, args: &RecommendArgs) -> Result<Exit, Failure> {
    let op = args.op.op(None)?;
    let request = RecommendRequest {
        workload: Workload { op: Some(op), ..Workload::default() },
        engine: args.engine,
        objective: args.objective.into(),
        constraints: Constraints {
            max_time_s: args.max_time,
            min_tokens_per_s: args.min_tokens_per_s,
            max_memory_bytes: args.max_memory_bytes,
            max_power_w: args.max_power,
            ..Constraints::default()
        },
        freedom: Freedom {
            formats: keys(&args.formats),
            batch: args.batch.map(|(min, max)| BatchRange { min, max }),
            ..Freedom::default()
        },
        optimism: args.optimism.into(),
        ..RecommendRequest::default()
    };
    let answer = context.client.post("/v1/recommend", &request).await?;
    let parsed: RecommendAnswer = answer.parse()?;
    context.printer.answer("recommend", &answer, || Ok(show::recommendation(&parsed)))?;
    Ok(if parsed.feasible { Exit::Ok } else { Exit::Infeasible })
}

/// `observe`
pub async fn observe(context: &mut Context, args: &ObserveArgs) -> Result<(), Failure> {
    let op = args.op.op(args.batch)?;
    let request = ObservationRequest {
        workload: workload(op, args.format, args.op.columns(args.batch)),
        engine: args.engine,
        tokens_per_s: args.tokens_per_s,
        time_s: args.time,
        power_w: args.power,
        ..ObservationRequest::default()
    };
    let answer = context.client.post("/v1/observations", &request).await?;
    let parsed: ObservationsAnswer = answer.parse()?;
    context
        .printer
        .answer("observations", &answer, || Ok(format!("learnt from {} observation\n", parsed.accepted)))?;
    match parsed.refused.first() {
        None => Ok(()),
        Some(refused) => {
            let reason = refused
                .get("reason")
                .and_then(|reason| reason.as_str())
                .map_or_else(|| refused.to_string(), ToOwned::to_owned);
            Err(Failure::failed(
                format!("the observation was not learnt from: {reason}"),
                "check shape, format and unit of the time",
            ))
        }
    }
}

/// `metrics`
pub async fn metrics(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/metrics").await?;
    context.printer.bytes(&answer.body)
}
