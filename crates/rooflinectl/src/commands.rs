//! Commands that ask one question and print its answer.

use serde_json::Value;

use super::Context;
use super::args::{AnalyzeArgs, MetricsArgs, ObserveArgs, PredictArgs, RecommendArgs, StatusArgs, SweepArgs};
use super::failure::{Exit, Failure};
use super::input::{
    self, AttentionArgs, EngineChoice, Listed, OpArgs, RunArgs, ShapeArgs, SubjectArgs, Target,
};
use super::options::name_options;
use super::output::Format;
use super::{choice, network_advice, network_args, recommendation, show, status, textfile, words};
use rooflined_advice::{Request, usual_recipe};
use rooflined_api::{
    AnalyzeAnswer, AnalyzeRequest, Constraints, Freedom, ObservationRequest, ObservationsAnswer,
    OperatingPointRequest, PredictAnswer, PredictRequest, RecommendAnswer, RecommendRequest, SweepRequest,
    Workload,
};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Watts;
use rooflined_predict::Engine;

/// An operation as a workload of a request.
pub fn workload(op: Op, format: WeightFormat, columns: Option<u64>) -> Workload {
    Workload { op: Some(op), format: Some(format.key().to_owned()), batch: columns, ..Workload::default() }
}

/// Formats as a request names them; `None` leaves the choice to the daemon.
pub fn keys(formats: &[WeightFormat]) -> Option<Vec<String>> {
    (!formats.is_empty()).then(|| formats.iter().map(|format| format.key().to_owned()).collect())
}

pub async fn status(context: &mut Context, args: &StatusArgs) -> Result<(), Failure> {
    let answer = context.client.get("/v1/state").await?;
    if context.printer.format != Format::Human {
        return context.printer.answer("state", &answer, || Ok(String::new()));
    }
    let state = answer.parse()?;
    // Without a calibration the ceilings are missing; everything else is still shown.
    let roofline = context.client.get("/v1/roofline").await.and_then(|answer| answer.parse()).ok();
    if args.all {
        return context.printer.text(&show::status(&state, roofline.as_ref()));
    }
    let board = context.client.get("/v1/board").await.and_then(|answer| answer.parse()).ok();
    context.printer.text(&status::brief(board.as_ref(), &state, roofline.as_ref()))
}

pub async fn board(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/board").await?;
    context.printer.answer("board", &answer, || Ok(show::board(&answer.parse()?)))
}

/// `predict` of one operation, model or network: infeasible where it does not fit, unless that is asked for.
pub async fn predict(context: &mut Context, args: &PredictArgs) -> Result<Exit, Failure> {
    if let Some(path) = network_args::file(args.subject.op.kind.as_ref()) {
        return network_advice::predict(context, args, path).await.map(|()| Exit::Ok);
    }
    args.network.refuse(args.subject.op.kind.as_ref(), &[])?;
    let (workload, asked) = args.subject.workload()?;
    let request = PredictRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point_under(&args.limit),
        engine: EngineChoice::for_models(args.subject.engine)?,
        engine_version: args.engine_version.clone(),
        workload,
        hypothetical: args.hypothetical,
        ..PredictRequest::default()
    };
    let answer = context.ask("/v1/predict", request, Request::Predict).await?;
    let parsed: PredictAnswer = answer.parse()?;
    context.printer.answer("predict", &answer, || {
        let limit = args.limit.power_limit.map(|watts| format!("a limit of {}", Watts(watts)));
        // An older daemon does not say what the mode of a number is called.
        let mode = parsed.mode_name.as_ref().or(args.machine.mode.as_ref());
        let at = mode.into_iter().chain(&limit).map(String::as_str).collect::<Vec<_>>().join(" and ");
        Ok(show::prediction(&asked, Some(at.as_str()).filter(|at| !at.is_empty()), &parsed))
    })?;
    let fits = parsed.memory_bytes.fits != Some(false) || args.hypothetical;
    Ok(if fits { Exit::Ok } else { Exit::Infeasible })
}

/// What a sweep ranges over: shapes of an operation, or models.
fn parse_swept(args: &SweepArgs) -> Result<(Vec<Op>, Vec<Value>), Failure> {
    let named = args.what.as_ref().map_or(&[][..], |what| &what.0);
    let kind = match named {
        [] => {
            return Err(Failure::usage("neither a model nor an operation is given")
                .with_hint("for example: qwen3-4b,llama-3.1-8b, or gemv 4096 4096"));
        }
        [Target::Op(kind)] => Some(*kind),
        several => {
            let instead =
                "rooflinectl recommend FILE --modes all compares batch sizes, precisions and power modes";
            for target in several {
                network_args::refuse_network(Some(target), "sweep", instead)?;
            }
            let model = |target: &Target| {
                let op = OpArgs {
                    kind: Some(target.clone()),
                    sizes: args.dims.clone(),
                    attention: AttentionArgs::default(),
                };
                let mistake = || Failure::usage("operations and models are not swept together");
                op.model(&args.model)?.ok_or_else(mistake)
            };
            if !args.sizes.is_empty() {
                return Err(Failure::usage("--sizes belongs to operations"));
            }
            return Ok((Vec::new(), several.iter().map(model).collect::<Result<_, _>>()?));
        }
    };
    let shapes = ShapeArgs { kind, dims: args.dims.clone(), sizes: args.sizes.clone() };
    Ok((shapes.ops()?, Vec::new()))
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

pub async fn sweep(context: &mut Context, args: &SweepArgs) -> Result<(), Failure> {
    let (ops, models) = parse_swept(args)?;
    if !models.is_empty() {
        input::refuse_bare(args.engine)?;
    }
    let request = SweepRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point_under(&args.limit),
        ops,
        models,
        formats: non_empty(&args.formats),
        power_modes: non_empty(&args.modes),
        threads: input::each_thread_count(&args.threads),
        batches: input::each(&args.batches),
        contexts: input::each(&args.contexts),
        kv_format: args.kv_format.map(|format| format.key().to_owned()),
        phase: args.model.phase.map(|phase| phase.key().to_owned()),
        prompt_tokens: args.model.prompt,
        output_tokens: args.model.output_tokens,
        cached_tokens: args.model.cached_tokens,
        chunk_tokens: args.model.chunk_tokens,
        speculative: args.model.speculative.given()?,
        image_tokens: args.model.image_tokens,
        engine: args.engine.unwrap_or_default(),
        hypothetical: args.hypothetical,
    };
    let answer = context.ask("/v1/sweep", request, Request::Sweep).await?;
    context.printer.answer("sweep", &answer, || Ok(show::sweep(&answer.parse()?)))
}

/// `analyze`: ends with a failure where nothing can have run in that time, so that a script notices a wrong unit.
pub async fn analyze(context: &mut Context, args: &AnalyzeArgs) -> Result<Exit, Failure> {
    network_args::refuse_network(args.subject.op.kind.as_ref(), "analyze", network_args::MEASURED)?;
    let (workload, asked) = args.subject.workload()?;
    let request = AnalyzeRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point(),
        workload,
        engine: EngineChoice::for_models(args.subject.engine)?,
        time_s: args.time,
        tokens_per_s: args.tokens_per_s,
    };
    let measured = match (args.time, args.tokens_per_s) {
        (Some(time), _) => format!("in {}", words::time(time)),
        (None, rate) => format!("at {}", words::rate(rate.unwrap_or_default())),
    };
    let answer = context.ask("/v1/analyze", request, Request::Analyze).await?;
    let parsed: AnalyzeAnswer = answer.parse()?;
    let what = format!("{} {measured}", asked.answered(parsed.prediction.format.as_ref()));
    context.printer.answer("analyze", &answer, || Ok(show::analysis(&what, &parsed)))?;
    Ok(if parsed.verdict == "impossible" { Exit::Failed } else { Exit::Ok })
}

pub async fn recommend(context: &mut Context, args: &RecommendArgs) -> Result<Exit, Failure> {
    if let Some(path) = network_args::file(args.op.kind.as_ref()) {
        return network_advice::recommend(context, args, path).await;
    }
    let of_networks = [("--min-fps", args.min_fps.is_some()), ("--streams", args.streams.is_some())];
    args.network.refuse(args.op.kind.as_ref(), &of_networks)?;
    let request = recommend_request(args)?;
    let answer = context
        .ask("/v1/recommend", request.clone(), |request| Request::Recommend(Box::new(request)))
        .await?;
    let parsed: RecommendAnswer = answer.parse()?;
    let printer = &context.printer;
    match printer.format {
        Format::Env => printer.value("recommend", &choice::single(&parsed))?,
        Format::Csv | Format::Prom => printer.value("recommend", &choice::rows(&parsed))?,
        _ => printer.answer("recommend", &answer, || Ok(recommendation::render(&parsed, &request)))?,
    }
    Ok(if parsed.feasible { Exit::Ok } else { Exit::Infeasible })
}

/// The body that the arguments of `recommend` stand for.
fn recommend_request(args: &RecommendArgs) -> Result<RecommendRequest, Failure> {
    let subject = SubjectArgs {
        op: args.op.clone(),
        model: args.model.clone(),
        run: RunArgs::default(),
        format: None,
        kv_format: None,
        batch: None,
        engine: args.engine,
    };
    let (workload, _) = subject.workload()?;
    let engines = input::named(&args.engines, &[]);
    Ok(RecommendRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point_under(&args.limit),
        // What the storage is, is what is asked.
        workload: Workload { format: None, ..workload },
        engine: EngineChoice::for_models(args.engine)?,
        objective: args.target.objective,
        energy_basis: args.target.energy,
        constraints: Constraints {
            max_time_s: args.max_time,
            max_time_to_first_token_s: args.max_time_to_first_token,
            max_quality_loss_ratio: args.max_quality_loss,
            min_free_memory_bytes: args.min_free_memory_bytes,
            ..args.target.constraints()
        },
        freedom: Freedom {
            formats: non_empty(&args.formats),
            kv_formats: non_empty(&args.kv_formats),
            power_modes: args.target.power_modes(),
            engines: non_empty(&engines).filter(|_| !args.engines.contains(&Listed::All)),
            threads: input::each_thread_count(&args.threads),
            batch: args.target.batch_range(),
            allow_reboot: args.allow_reboot,
            run_s: args.run_time,
        },
        optimism: args.target.optimism,
        hypothetical: args.hypothetical,
    })
}

/// What is learned of a known model is learned of a format: says which, where no option does.
fn note_assumption(context: &mut Context, workload: &Workload, engine: Engine) -> Result<(), Failure> {
    let Some(model) = &workload.model else { return Ok(()) };
    if engine == Engine::Bare {
        return Err(Failure::usage("which engine ran the model is not given").with_hint(
            "name it: --engine llama.cpp; to watch a server instead: rooflinectl observe --from 8080",
        ));
    }
    let Some(key) = model.as_str().filter(|_| workload.format.is_none()) else { return Ok(()) };
    let usual = usual_recipe(context.catalogue().published(key), engine);
    if context.printer.format == Format::Human {
        context.printer.line(&format!(
            "note: taken as {}, what {} usually runs; if it was another, forget this report and give --format",
            usual.key(),
            engine.key()
        ))?;
    }
    Ok(())
}

pub async fn observe(context: &mut Context, args: &ObserveArgs) -> Result<(), Failure> {
    let point =
        |mode: &String| OperatingPointRequest { power_mode: Some(mode.clone()), ..Default::default() };
    let operating_point = args.mode.as_ref().map(point);
    let request = if let Some(path) = network_args::file(args.subject.op.kind.as_ref()) {
        network_advice::observation(args, path, operating_point)?
    } else {
        args.network.refuse(args.subject.op.kind.as_ref(), &[("--log", args.log.is_some())])?;
        let (workload, _) = args.subject.workload()?;
        let engine = EngineChoice::for_models(args.subject.engine)?;
        note_assumption(context, &workload, engine)?;
        ObservationRequest {
            workload,
            operating_point,
            engine,
            tokens_per_s: args.tokens_per_s,
            time_s: args.time,
            power_w: args.power,
            ..ObservationRequest::default()
        }
    };
    let answer = context.client.post("/v1/observations", &request).await?;
    let parsed: ObservationsAnswer = answer.parse()?;
    context.printer.answer("observations", &answer, || Ok(show::observations(&parsed)))?;
    match parsed.refused.first() {
        None => Ok(()),
        Some(refused) => Err(Failure::failed(
            format!("the observation was not accepted: {}", name_options(&refused.reason)),
            name_options(&refused.hint),
        )),
    }
}

/// The page as a collector takes it in among its own metrics: node_exporter has `process_…` of itself, and two series of one name
/// would cost it all of them.
fn rename_process_metrics(page: &str) -> String {
    page.lines()
        .map(|line| match line.split_inclusive(' ').position(|word| word.starts_with("process_")) {
            Some(0) => format!("rooflined_{line}\n"),
            Some(2) if line.starts_with("# ") => {
                format!("{}\n", line.replacen(" process_", " rooflined_process_", 1))
            }
            _ => format!("{line}\n"),
        })
        .collect()
}

pub async fn metrics(context: &mut Context, args: &MetricsArgs) -> Result<(), Failure> {
    let answer = context.client.get("/metrics").await?;
    match &args.textfile {
        Some(file) => {
            textfile::replace(file, rename_process_metrics(&String::from_utf8_lossy(&answer.body)).as_bytes())
        }
        None => context.printer.bytes(&answer.body),
    }
}

#[cfg(test)]
mod tests {
    use super::rename_process_metrics;

    #[test]
    fn only_the_names_of_the_daemons_own_load_change_in_a_collectors_file() {
        let page = "# HELP process_open_fds Open process_ descriptors.\n# TYPE process_open_fds gauge\nprocess_open_fds 9\n\
                    # HELP rooflined_load_average Of process_ things.\nrooflined_rail{rail=\"process_x\"} 1\n";
        let expected = "# HELP rooflined_process_open_fds Open process_ descriptors.\n# TYPE rooflined_process_open_fds gauge\n\
                        rooflined_process_open_fds 9\n# HELP rooflined_load_average Of process_ things.\n\
                        rooflined_rail{rail=\"process_x\"} 1\n";
        assert_eq!(rename_process_metrics(page), expected);
    }
}
