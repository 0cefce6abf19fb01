//! A printed command needs what was predicted: it is read as its engine would read it, and its memory counted from what it says.

use std::collections::BTreeMap;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_models::support::{Target, check_family};
use rooflined_models::transformer::{self, DraftKind, MemoryFootprint};
use rooflined_predict::{Engine, costs};
use serde_json::{Value, json};

/// An engine, machines that run it, and formats with what their line has to say of each.
type Place = (Engine, &'static [&'static str], &'static [(&'static str, &'static str)]);
const PLACES: [Place; 5] = [
    (
        Engine::LlamaCpp,
        &["gb10", "jetson-agx-orin-64gb", "jetson-orin-nx-16gb", "jetson-agx-thor-t5000"],
        &[("q4_k_m", " Q4_K_M "), ("q8_0", " Q8_0 "), ("fp16", "--outtype f16 ")],
    ),
    (
        Engine::Vllm,
        &["h100-sxm", "gb10", "jetson-agx-thor-t5000"],
        &[("awq_int4", "AWQ"), ("fp8_e4m3", "fp8"), ("fp16", "--dtype float16")],
    ),
    (
        Engine::TensorRtLlm,
        &["h100-sxm", "h200", "l40s"],
        &[("awq_int4", "AWQ"), ("fp8_e4m3", "FP8"), ("fp16", "float16")],
    ),
    (
        Engine::TensorRtEdgeLlm,
        &["jetson-agx-thor-t5000", "jetson-agx-thor-t4000"],
        &[("int4_g128", "int4_awq"), ("fp8_e4m3", "fp8")],
    ),
    (
        Engine::Mlc,
        &["jetson-agx-orin-64gb", "jetson-orin-nx-16gb"],
        &[("int4_g32", "q4f16_1"), ("fp16", "q0f16")],
    ),
];

/// What drafts for models with as many tokens.
const DRAFT: &str = "llama-3.2-1b";

/// What a command says.
struct Command {
    batch: u64,
    /// Of every sequence.
    context: u64,
    /// Tokens of the largest pass.
    pass: u64,
    kv: WeightFormat,
    /// Copies of the windows and states of every sequence.
    checkpoints: u64,
    /// What drafts, and how many tokens.
    drafts: Option<(DraftKind, u64)>,
}

/// The options of a line by their names: after a blank or `=`, between quotes or semicolons.
fn read(engine: Engine, line: &str) -> Command {
    let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || matches!(c, '"' | ';' | '=')).collect();
    let options: BTreeMap<&str, &str> = words.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let number = |name: &str| options[name].parse::<u64>().unwrap();
    let kv = |name: &str| match options.get(name) {
        Some(&"q8_0") => WeightFormat::Q8_0,
        Some(&("fp8" | "fp8_e4m3")) => WeightFormat::Fp8E4m3,
        Some(other) => panic!("{other}"),
        None => WeightFormat::Fp16,
    };
    let (batch, context, pass, kv) = match engine {
        // llama.cpp makes no pass longer than all of its context.
        Engine::LlamaCpp => {
            let (slots, context) = (number("-np"), number("-c"));
            (slots, context / slots, number("-ub").min(context), kv("-ctk"))
        }
        Engine::Vllm => (
            number("--max-num-seqs"),
            number("--max-model-len"),
            number("--max-num-batched-tokens"),
            kv("--kv-cache-dtype"),
        ),
        Engine::TensorRtLlm => (
            number("--max_batch_size"),
            number("--max_seq_len"),
            number("--max_num_tokens"),
            if line.contains("dtype: fp8") { WeightFormat::Fp8E4m3 } else { WeightFormat::Fp16 },
        ),
        Engine::TensorRtEdgeLlm => (
            number("--max-batch-size"),
            number("--max-kv-cache-capacity"),
            number("--max-input-len") * number("--max-batch-size"),
            kv("--kv_cache_quantization"),
        ),
        _ => (
            number("max_num_sequence"),
            number("context_window_size"),
            number("prefill_chunk_size"),
            WeightFormat::Fp16,
        ),
    };
    let checkpoints = if engine == Engine::LlamaCpp { number("--ctx-checkpoints") } else { 0 };
    Command { batch, context, pass, kv, checkpoints, drafts: drafts(engine, line, &options) }
}

fn drafts(engine: Engine, line: &str, options: &BTreeMap<&str, &str>) -> Option<(DraftKind, u64)> {
    if engine == Engine::Vllm {
        let (_, rest) = line.split_once("--speculative-config ")?;
        let config: Value = serde_json::from_str(rest.split('\'').nth(1).unwrap()).unwrap();
        let kind = match config["method"].as_str() {
            Some("mtp") => DraftKind::Mtp,
            Some("ngram") => DraftKind::Ngram,
            _ => DraftKind::Draft,
        };
        return Some((kind, config["num_speculative_tokens"].as_u64().unwrap()));
    }
    let (kind, tokens) = match *options.get("--spec-type")? {
        "draft-simple" => (DraftKind::Draft, "--spec-draft-n-max"),
        "draft-mtp" => (DraftKind::Mtp, "--spec-draft-n-max"),
        _ => (DraftKind::Ngram, "--spec-ngram-simple-size-m"),
    };
    assert!(kind != DraftKind::Draft || options["-md"] == "DRAFT.gguf", "{line}");
    assert_eq!(
        options.get("-ctk"),
        options.get("-ctkd").or(options.get("-ctk").filter(|_| kind == DraftKind::Ngram))
    );
    Some((kind, options[tokens].parse().unwrap()))
}

fn answer(body: Value) -> Result<Value, String> {
    let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let answer = suppose(&catalogue, &request).map_err(|refusal| refusal.to_string())?;
    Ok(serde_json::to_value(answer).unwrap())
}

#[test]
fn a_printed_command_needs_what_was_predicted() {
    let mut random = fastrand::Rng::with_seed(26);
    let (mut checked, mut drafted, mut without_room) = (0, 0, 0);
    for (engine, machines, formats) in PLACES {
        for known in models().all() {
            let hardware = machines[random.usize(..machines.len())];
            let (format, said) = formats[random.usize(..formats.len())];
            // Where a model is published in a format of its own, others are not made of it.
            let runs = check_family(engine, &known.family, Target::Gpu(None)).is_ok();
            if known.published_format.is_some() || !runs {
                continue;
            }
            let longest = known.architecture.context_tokens.unwrap_or(1 << 20);
            let context = random.bool().then(|| random.u64(1..=20_000).min(longest));
            let batch = random.u64(1..=6);
            let kv = match engine {
                Engine::LlamaCpp if random.bool() => "q8_0",
                Engine::Vllm | Engine::TensorRtLlm if random.bool() => "fp8_e4m3",
                _ => "fp16",
            };
            let mut workload = json!({"model": known.key, "format": format, "batch": batch, "kv_format": kv});
            if random.bool() && context.is_none() {
                workload["phase"] = "serve".into();
                workload["prompt_tokens"] = random.u64(1..longest.min(20_000) / 3).into();
                workload["output_tokens"] = random.u64(1..longest.min(20_000) / 3).into();
            }
            workload["context_tokens"] = context.into();
            let speculates = matches!(engine, Engine::LlamaCpp | Engine::Vllm) && random.bool();
            let kind = match known.architecture.vocab {
                _ if known.model(Recipe::of(WeightFormat::Bf16)).has_own_head() => DraftKind::Mtp,
                128_256 => DraftKind::Draft,
                _ => DraftKind::Ngram,
            };
            let drafts = speculates.then(|| (kind, random.u64(1..=6)));
            if let Some((kind, tokens)) = drafts {
                workload["speculative"] =
                    json!({"kind": kind.key(), "draft_tokens": tokens, "acceptance_ratio": 0.7});
                if kind == DraftKind::Draft {
                    workload["speculative"]["draft_model"] = DRAFT.into();
                }
                drafted += 1;
            }
            let body = json!({
                "hardware": hardware, "engine": engine.key(), "workload": workload,
            });
            let answer = answer(body).unwrap();
            let Some(decision) = answer["decision"].as_object() else {
                without_room += 1;
                continue;
            };
            let line = answer["apply"]["settings"][engine.key()].as_str().unwrap();
            assert!(line.contains(said), "{format}: {line}");
            let command = read(engine, line);
            let prediction = &decision["prediction"];
            let predicted_context = prediction["context_tokens"].as_u64().unwrap();
            let step = costs::allocation(engine).step();
            assert_eq!(command.batch, batch, "{line}");
            assert_eq!(command.drafts, drafts, "{line}");
            assert_eq!(decision["draft_tokens"], json!(drafts.map(|(_, tokens)| tokens)));
            assert_eq!(
                command.context.div_ceil(step),
                predicted_context.div_ceil(step),
                "{predicted_context}: {line}"
            );
            assert_eq!(command.kv.key(), kv, "{line}");
            assert_eq!(decision["kv_format"], kv);
            if let Some(context) = context {
                assert_eq!(predicted_context, context);
            } else if workload.get("phase").is_none() {
                assert_eq!(predicted_context, longest.min(4096), "{}", known.key);
            }
            let needed = needed(engine, known, format, &command);
            let predicted = prediction["memory_bytes"]["total"].as_f64().unwrap();
            let engine_bytes = prediction["memory_bytes"]["engine"].as_f64().unwrap();
            let off = (needed.get() + engine_bytes) / predicted - 1.0;
            assert!(off.abs() < 0.02, "{} {off}: {line}", known.key);
            checked += 1;
        }
    }
    assert!(
        checked >= 200 && drafted > 30,
        "{checked} checked, {drafted} drafted, {without_room} without room"
    );
}

/// Memory beside the engine's own, from what the command says alone.
fn needed(
    engine: Engine,
    known: &rooflined_models::registry::KnownModel,
    format: &str,
    command: &Command,
) -> Bytes {
    let recipe = costs::recipe(engine, format.parse().unwrap());
    let model = known.model(recipe);
    let model = match command.drafts {
        Some((DraftKind::Mtp, _)) => model.drafted_by_own_head().unwrap(),
        Some((DraftKind::Draft, _)) => model.drafted_by(&models().get(DRAFT).unwrap().model(recipe)),
        _ => model,
    };
    let speculative =
        command.drafts.map(|(kind, tokens)| transformer::Speculative::with_acceptance(kind, tokens, 0.7));
    let request = transformer::Request {
        batch: command.batch,
        output_tokens: 0,
        chunk_tokens: Some(command.pass),
        window_tokens: command.context.max(command.pass),
        takes_turns: true,
        kv_cache: command.kv,
        speculative,
        allocation: costs::allocation(engine),
        ..transformer::Request::decode(command.context)
    };
    let footprint = MemoryFootprint::new(&model, &request, Bytes::ZERO);
    let room = transformer::Request { window_tokens: command.context, ..request }.room();
    let times = |count: u64| f64::from(u32::try_from(count).unwrap());
    let checkpoints = model.checkpoint_bytes(command.kv, request.allocation) * times(command.checkpoints);
    let states = model.state_bytes(request.allocation) * times(request.verified_tokens());
    let of_draft = model.drafting.by.as_ref().map_or(Bytes::ZERO, |by| {
        by.model.allocated_cache(command.kv, &room) + by.model.state_bytes(request.allocation)
    });
    let cache =
        (model.allocated_cache(command.kv, &room) + states + checkpoints + of_draft) * times(command.batch);
    footprint.weights + footprint.activations + cache
}

#[test]
fn a_context_beyond_the_models_is_refused_and_the_hint_is_kept() {
    for (context, refused) in [(8192, false), (8193, true)] {
        let body = json!({
            "hardware": "gb10", "engine": "llama.cpp",
            "workload": {"model": "llama-3-8b", "format": "q4_k_m", "context_tokens": context},
        });
        let answer = answer(body);
        assert_eq!(answer.is_err(), refused);
        if let Err(message) = answer {
            assert!(message.contains("8193") && message.contains("8192"), "{message}");
        }
    }
}
