//! A model of the wire → a model and what is asked of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::catalogue::Catalogue;
use super::settings::SPECULATING;
use super::task::format_named;
use super::words::shorten;
use rooflined_api::{self as api, Workload};
use rooflined_core::hardware::Kind;
use rooflined_core::near::Near;
use rooflined_core::precision::{UnknownName, WeightFormat};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::allocation::Allocation;
use rooflined_models::architecture::InvalidModel;
use rooflined_models::class::Class;
use rooflined_models::import::ImportError;
use rooflined_models::import::config::Config;
use rooflined_models::model::{Model, WeightGroup};
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_models::transformer::{DraftKind, Offload, Phase, Request, Speculative, Task};
use rooflined_predict::Engine;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::costs::{self, Build};
use rooflined_predict::snapshot::Snapshot;

/// Tokens that every sequence has room for where the request names no context; fewer where the model was made for fewer.
pub const USUAL_CONTEXT: u64 = 4096;
/// Storage of a model known by its key where the request names none: what it is published in, else what files of the engine usually
/// hold. llama.cpp, MLC and ONNX Runtime convert a model and pack it; the others load its 16-bit checkpoint.
#[must_use]
pub fn usual_format(published: Option<WeightFormat>, engine: Engine) -> WeightFormat {
    published.unwrap_or(match engine {
        Engine::LlamaCpp => WeightFormat::Q4KM,
        Engine::Mlc | Engine::OnnxRuntime => WeightFormat::Int4G32,
        Engine::Bare | Engine::Vllm | Engine::TensorRtLlm | Engine::TensorRtEdgeLlm | Engine::Torch => {
            WeightFormat::Fp16
        }
    })
}

/// The same as the engine stores it.
#[must_use]
pub fn usual_recipe(published: Option<WeightFormat>, engine: Engine) -> Recipe {
    costs::recipe(engine, usual_format(published, engine))
}

/// A model and what is asked of it.
#[derive(Debug, Clone)]
pub struct ModelTask {
    /// Key, path, or what its fields call it: what its runs are filed under.
    pub name: String,
    /// The model in its format.
    pub model: Arc<Model>,
    /// What it is quantised to; `None` for a file that does not say.
    pub format: Option<String>,
    /// What is asked of it.
    pub request: Request,
    /// Inference engine whose kernels run.
    pub engine: Engine,
    /// How old its build is.
    pub build: Build,
    /// What the client should know of the request.
    pub warnings: Vec<String>,
}

impl ModelTask {
    /// Reads the workload at `path` of the request, which has a model. Blocks where the model is a file.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn new(
        snapshot: &Snapshot,
        catalogue: &Catalogue,
        workload: &Workload,
        engine: Engine,
        path: &str,
    ) -> Result<Self, Refusal> {
        if workload.op.is_some() {
            return Err(Code::InvalidField.at(
                format!("{path}.op"),
                format!("{path} has a model and an op"),
                "leave one of the two out",
            ));
        }
        let mut warnings = Vec::new();
        let (model, format) = resolved(catalogue, workload, engine, path, &mut warnings)?;
        let mut request = run_request(snapshot, workload, &model, path, &mut warnings)?;
        request.offload = offload(snapshot, workload, &model, engine, path)?;
        let speculative = request.speculative.zip(workload.speculative.as_ref());
        let model = match speculative {
            Some((speculative, given)) => {
                refuse_speculation(engine, path)?;
                drafted(catalogue, engine, (speculative.kind, given), &model, format.as_deref(), path)?
            }
            None => model,
        };
        request.usual_chunk_tokens = costs::chunk_tokens(engine);
        request.checkpoints = snapshot.checkpoints(engine);
        request.allocation = costs::allocation(engine);
        request.takes_turns = costs::takes_turns(engine);
        warnings.extend(model.warnings.iter().cloned());
        warnings.extend(request.warnings(&model));
        let name = filed_under(workload.model.as_ref(), &model);
        Ok(Self { name, model, format, request, engine, build: Build::default(), warnings })
    }
}

/// A run longer than its model was made for, for a task at `path`.
///
/// # Errors
/// Code `invalid_dimension`, with how long it may be.
pub fn refuse_overlong(task: &ModelTask, path: &str) -> Result<(), Refusal> {
    let Some(limit) = task.request.exceeds(&task.model) else { return Ok(()) };
    let request = &task.request;
    let beside = request.final_tokens() - request.context_tokens;
    let (field, hint) = match limit.checked_sub(beside) {
        Some(most) => ("context_tokens", format!("give {most} at most")),
        None => ("prompt_tokens", "give fewer tokens of prompt and answer".to_owned()),
    };
    Err(Code::InvalidDimension.at(
        format!("{path}.{field}"),
        format!(
            "{} tokens of context are more than the {limit} that {} was made for",
            request.final_tokens(),
            task.model.name
        ),
        format!("{hint}; {}", super::supported::PREDICT_ANYWAY),
    ))
}

/// Refuses engines whose options for speculative decoding are unknown.
fn refuse_speculation(engine: Engine, path: &str) -> Result<(), Refusal> {
    if engine == Engine::Bare || SPECULATING.contains(&engine) {
        return Ok(());
    }
    Err(Code::UnsupportedWorkload.at(
        format!("{path}.speculative"),
        format!("how to configure {} for speculative decoding is not known", engine.key()),
        "leave it out, or take llama.cpp or vllm",
    ))
}

/// `model`, stored as `format`, with what drafts for it as the workload at `path` says.
///
/// # Errors
/// A model without a head of its own, an unknown model, or one with another vocabulary.
pub fn drafted(
    catalogue: &Catalogue,
    engine: Engine,
    (kind, given): (DraftKind, &api::Speculative),
    model: &Arc<Model>,
    format: Option<&str>,
    path: &str,
) -> Result<Arc<Model>, Refusal> {
    match kind {
        DraftKind::Ngram => Ok(Arc::clone(model)),
        DraftKind::Mtp => model.drafted_by_own_head().map(Arc::new).ok_or_else(|| {
            Code::InvalidField.at(
                format!("{path}.speculative.kind"),
                format!("{} has no known head that predicts further tokens", model.name),
                "give its file, which may hold one, or a draft_model",
            )
        }),
        DraftKind::Draft => {
            let wanted = given.draft_model.clone();
            let format =
                given.draft_format.as_deref().or(format.filter(|_| matches!(wanted, Some(Value::String(_)))));
            let workload =
                Workload { model: wanted, format: format.map(str::to_owned), ..Workload::default() };
            let at = format!("{path}.speculative");
            let (draft, _) =
                resolved(catalogue, &workload, engine, &at, &mut Vec::new()).map_err(|refusal| {
                    refusal.rename_fields(|field| {
                        field.replacen(&format!("{at}.model"), &format!("{at}.draft_model"), 1).replacen(
                            &format!("{at}.format"),
                            &format!("{at}.draft_format"),
                            1,
                        )
                    })
                })?;
            let (own, other) = (model.architecture.vocab, draft.architecture.vocab);
            if own.abs_diff(other) > MOST_OTHER_TOKENS {
                return Err(Code::InvalidField.at(
                    format!("{at}.draft_model"),
                    format!(
                        "{} has {other} tokens and {} {own}: it cannot draft for it",
                        draft.name, model.name
                    ),
                    "take a smaller model of the same family",
                ));
            }
            Ok(Arc::new(model.drafted_by(&draft)))
        }
    }
}

/// Tokens by which vocabularies of one family differ: what llama.cpp allows (`SPEC_VOCAB_MAX_SIZE_DIFFERENCE`).
const MOST_OTHER_TOKENS: u64 = 128;

/// The smallest known model with the vocabulary of a larger one, of the same family where there is one.
fn drafter_for(model: &Model) -> Option<&'static str> {
    let vocabulary = model.architecture.vocab;
    let smaller = models().all().filter(|known| {
        known.architecture.vocab.abs_diff(vocabulary) <= MOST_OTHER_TOKENS
            && !known.model(Recipe::of(WeightFormat::Bf16)).is_encoder()
    });
    let sizes = smaller.filter_map(|known| Some((known.published_parameters?, known)));
    let least = sizes
        .filter(|(parameters, _)| *parameters < model.parameters())
        .min_by_key(|(parameters, known)| (known.family != model.family, *parameters));
    least.map(|(_, known)| known.key.as_str())
}

/// Files of one name in two directories are two models, and so are two sets of fields of one kind.
fn filed_under(wanted: Option<&Value>, model: &Model) -> String {
    match wanted {
        Some(Value::String(name)) => {
            models().get(name).map_or_else(|_| name.to_ascii_lowercase(), |known| known.key.clone())
        }
        Some(Value::Object(fields)) => match fields.get("path").and_then(Value::as_str) {
            Some(path) => path.to_owned(),
            None => format!("{} of {} weights", model.name, model.parameters()),
        },
        _ => model.name.clone(),
    }
}

/// Whether the machine is a card with a memory of its own, beside that of the CPU.
#[must_use]
pub fn has_own_memory(snapshot: &Snapshot) -> bool {
    snapshot.accelerator == Accelerator::Gpu
        && snapshot.hardware.as_deref().is_some_and(|hardware| hardware.kind == Kind::Discrete)
}

/// What of `model` stays in the memory of the CPU.
fn offload(
    snapshot: &Snapshot,
    workload: &Workload,
    model: &Model,
    engine: Engine,
    path: &str,
) -> Result<Offload, Refusal> {
    let Some(given) = workload.offload.filter(|given| *given != api::Offload::default()) else {
        return Ok(Offload::default());
    };
    let at = |name: &str| format!("{path}.offload.{name}");
    let layers = model.architecture.layers.len() as u64;
    let (name, count, most) = match (given.cpu_moe_layers, given.gpu_layers) {
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                at("gpu_layers"),
                "cpu_moe_layers and gpu_layers are both given",
                "leave one of the two out",
            ));
        }
        (Some(count), None) => ("cpu_moe_layers", count, layers),
        (None, count) => ("gpu_layers", count.unwrap_or(0), u64::MAX),
    };
    let offload = match name {
        "cpu_moe_layers" => Offload { cpu_moe_layers: count, cpu_layers: 0 },
        _ => Offload { cpu_moe_layers: 0, cpu_layers: (layers + 1).saturating_sub(count).min(layers) },
    };
    if offload == Offload::default() {
        return Ok(offload);
    }
    // What the machine or the engine cannot do comes first: another option would be refused for it too.
    if !has_own_memory(snapshot) {
        return Err(Code::UnsupportedWorkload.at(
            at(name),
            "CPU and GPU share one memory here, so moving layers from one to the other frees nothing",
            "leave it out; a narrower format or a shorter context takes less memory",
        ));
    }
    if engine != Engine::LlamaCpp {
        return Err(Code::UnsupportedWorkload.at(
            at(name),
            format!("{} keeps no layers in the memory of the CPU, as far as is known here", engine.key()),
            "leave it out, or take llama.cpp",
        ));
    }
    if count > most {
        return Err(Code::InvalidDimension.at(
            at(name),
            format!("{count} are more than the {layers} layers of {}", model.name),
            format!("give {layers} at most"),
        ));
    }
    if name == "cpu_moe_layers" && model.routing().is_none() {
        return Err(Code::InvalidField.at(
            at(name),
            format!("{} has no experts", model.name),
            "give gpu_layers to keep whole layers in the memory of the CPU",
        ));
    }
    Ok(offload)
}

/// What drafts for `model`, how much, and how many are accepted; `None` where nothing is drafted.
fn speculation(
    workload: &Workload,
    model: &Model,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<Speculative>, Refusal> {
    let Some(given) = &workload.speculative else { return Ok(None) };
    let at = |name: &str| format!("{path}.speculative.{name}");
    let kind = match &given.kind {
        Some(name) => DraftKind::ALL.into_iter().find(|kind| kind.key() == name).ok_or_else(|| {
            let known = DraftKind::ALL.map(DraftKind::key);
            Code::InvalidField.at(
                at("kind"),
                format!("there is no kind {:?}", shorten(name)),
                Near::of(name, known).hint(&format!("Known: {}", known.join(", "))),
            )
        })?,
        None if given.draft_model.is_some() => DraftKind::Draft,
        None if model.has_own_head() => DraftKind::Mtp,
        None => {
            warnings.push(
                "the time of drafting is not counted: name the model that drafts as draft_model".to_owned(),
            );
            DraftKind::Ngram
        }
    };
    match (kind, &given.draft_model) {
        (DraftKind::Draft, None) => {
            return Err(Code::MissingField.at(
                at("draft_model"),
                "speculation of kind draft needs a model that drafts",
                drafter_for(model).map_or("name a smaller model of the same family".to_owned(), |key| {
                    format!(
                        "add \"draft_model\":\"{key}\", a small model with the same vocabulary; for example with \"draft_tokens\":4 and \"acceptance_ratio\":0.7"
                    )
                }),
            ));
        }
        (DraftKind::Mtp | DraftKind::Ngram, Some(_)) => {
            return Err(Code::InvalidField.at(
                at("draft_model"),
                format!("kind {} has no model that drafts", kind.key()),
                "leave it out, or ask for kind draft",
            ));
        }
        _ => {}
    }
    let draft_tokens = given.draft_tokens.ok_or_else(|| {
        Code::MissingField.at(
            at("draft_tokens"),
            "draft_tokens is missing",
            "give it; recommend finds the best",
        )
    })?;
    if draft_tokens == 0 {
        return Ok(None);
    }
    match (given.acceptance_ratio, given.accepted_per_step) {
        (Some(ratio), None) if (0.0..=1.0).contains(&ratio) => {
            Ok(Some(Speculative::with_acceptance(kind, draft_tokens, ratio)))
        }
        (Some(_), None) => Err(Code::InvalidField.at(
            at("acceptance_ratio"),
            "acceptance_ratio is outside 0 to 1",
            "give the share of first drafted tokens that are accepted: 0.8",
        )),
        (None, Some(accepted_per_step)) => Ok(Some(Speculative { kind, draft_tokens, accepted_per_step })),
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            at("accepted_per_step"),
            "acceptance_ratio and accepted_per_step are both given",
            "leave one of the two out",
        )),
        (None, None) => Err(Code::MissingField.at(
            at("acceptance_ratio"),
            "acceptance_ratio is missing: it depends on the text and on what drafts, so there is no default",
            "add \"acceptance_ratio\":0.8; the engine's log shows yours",
        )),
    }
}

/// The request for `model`.
fn run_request(
    snapshot: &Snapshot,
    workload: &Workload,
    model: &Model,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<Request, Refusal> {
    let task = task(workload, model, path)?;
    let phase = match task {
        Task::Generate => phase(workload.phase.as_deref(), path)?,
        Task::Embed | Task::Rerank => Phase::Prefill,
    };
    let kv_cache = match &workload.kv_format {
        Some(name) => format_named(name, || format!("{path}.kv_format"))?,
        // A checkpoint says what its own weights go with.
        None => {
            let own = model.architecture.departures.kv_format.filter(|_| workload.format.is_none());
            own.unwrap_or(WeightFormat::Fp16)
        }
    };
    let images = workload.image_tokens.unwrap_or(0);
    let needs = |name: &str, given: Option<u64>| {
        let wanted = match name {
            "prompt_tokens" => phase != Phase::Decode && images == 0,
            _ => phase == Phase::Serve,
        };
        match given {
            None if wanted && task != Task::Generate => Err(Code::MissingField.at(
                format!("{path}.{name}"),
                format!("task {} needs {name}, the length of a document", task.key()),
                format!("add \"{name}\":512"),
            )),
            None if wanted => Err(Code::MissingField.at(
                format!("{path}.{name}"),
                format!("phase {} needs {name}", phase.key()),
                format!("add \"{name}\":512"),
            )),
            _ => Ok(given.unwrap_or(0)),
        }
    };
    let prompt_tokens = needs("prompt_tokens", workload.prompt_tokens)?;
    let output_tokens = needs("output_tokens", workload.output_tokens)?;
    let usual = USUAL_CONTEXT.min(model.architecture.context_tokens.unwrap_or(USUAL_CONTEXT));
    let window = workload.window_tokens.unwrap_or(usual);
    let (context_tokens, window_tokens) = match (workload.context_tokens, phase) {
        (Some(context), _) => (context, workload.window_tokens.unwrap_or(0)),
        (None, Phase::Decode) => (window.saturating_sub(output_tokens), window),
        (None, Phase::Prefill | Phase::Serve) => (0, window),
    };
    if phase == Phase::Decode && prompt_tokens > 0 {
        warnings.push(format!(
            "prompt_tokens is ignored in phase decode: what counts is context_tokens ({context_tokens}); phase prefill times the prompt"
        ));
    }
    let not_looked_at = [
        ("output_tokens", output_tokens > 0, Phase::Prefill),
        ("speculative", workload.speculative.is_some(), Phase::Prefill),
        ("image_tokens", images > 0, Phase::Decode),
        ("chunk_tokens", workload.chunk_tokens.is_some(), Phase::Decode),
    ];
    for (name, _, _) in not_looked_at.into_iter().filter(|(_, given, of)| *given && *of == phase) {
        warnings.push(format!("{name} is ignored in phase {}", phase.key()));
    }
    let speculative =
        if phase == Phase::Prefill { None } else { speculation(workload, model, path, warnings)? };
    let request = Request {
        phase,
        task,
        batch: workload.batch.unwrap_or(1),
        context_tokens,
        prompt_tokens,
        output_tokens,
        window_tokens,
        allocation: Allocation::Exact,
        takes_turns: false,
        image_tokens: if phase == Phase::Decode { 0 } else { images },
        cached_tokens: workload.cached_tokens.unwrap_or(0),
        chunk_tokens: workload.chunk_tokens,
        usual_chunk_tokens: None,
        checkpoints: 0,
        speculative,
        offload: Offload::default(),
        activations: match snapshot.accelerator {
            Accelerator::Cpu => WeightFormat::Fp32,
            Accelerator::Gpu => WeightFormat::Fp16,
        },
        kv_cache,
    };
    let filled = request.final_tokens();
    if let Some(room) = workload.window_tokens.filter(|room| *room < filled) {
        let parts = [
            ("context_tokens", context_tokens),
            ("prompt_tokens", prompt_tokens),
            ("image_tokens", images),
            ("output_tokens", output_tokens),
        ];
        let given = parts.into_iter().filter(|(_, tokens)| *tokens > 0);
        let given: Vec<String> = given.map(|(name, tokens)| format!("{name} {tokens}")).collect();
        let given = given.join(" and ");
        return Err(Code::InvalidDimension.at(
            format!("{path}.window_tokens"),
            format!("window_tokens {room} has no room for {given}"),
            format!("give window_tokens {filled} or more, or leave it out"),
        ));
    }
    request.validate().map_err(|error| {
        Code::InvalidDimension.at(
            format!("{path}.{}", error.field),
            error.to_string(),
            match error.field {
                "cached_tokens" if phase == Phase::Decode => "only what is in the context can be cached",
                "cached_tokens" => "the last token of a prompt is always computed: give fewer than all",
                "batch" => "it counts sequences that run at once: 1 for one user at a time",
                "speculative.accepted_per_step" => "give a mean between 0 and draft_tokens",
                _ => "give a whole number within these limits",
            },
        )
    })?;
    Ok(request)
}

/// What the model is asked for: an encoder generates nothing, and documents have no decode.
fn task(workload: &Workload, model: &Model, path: &str) -> Result<Task, Refusal> {
    let task = match workload.task.as_deref() {
        None => Task::of(model),
        Some(name) => Task::ALL.into_iter().find(|task| task.key() == name).ok_or_else(|| {
            Code::InvalidField.at(
                format!("{path}.task"),
                format!("there is no task {:?}", shorten(name)),
                format!("known: {}", Task::ALL.map(Task::key).join(", ")),
            )
        })?,
    };
    if task == Task::Generate && model.is_encoder() {
        return Err(Code::UnsupportedWorkload.at(
            format!("{path}.task"),
            format!("{} is an encoder, which generates no text", model.name),
            "ask for task embed or rerank, with the length of a document as prompt_tokens",
        ));
    }
    match workload.phase.as_deref() {
        Some(phase) if task != Task::Generate && phase != Phase::Prefill.key() => {
            Err(Code::UnsupportedWorkload.at(
                format!("{path}.phase"),
                format!("task {} has no phase {:?}: documents are only read", task.key(), shorten(phase)),
                "leave phase out, and give the length of a document as prompt_tokens",
            ))
        }
        _ => Ok(task),
    }
}

fn phase(name: Option<&str>, path: &str) -> Result<Phase, Refusal> {
    let Some(name) = name else { return Ok(Phase::Decode) };
    Phase::ALL.into_iter().find(|phase| phase.key() == name).ok_or_else(|| {
        let known = Phase::ALL.map(Phase::key);
        Code::InvalidField.at(
            format!("{path}.phase"),
            format!("there is no phase {:?}", shorten(name)),
            Near::of(name, known).hint(&format!("Known: {}", known.join(", "))),
        )
    })
}

/// How `engine` stores what a format's name stands for.
fn recipe(name: &str, engine: Engine, path: &str) -> Result<Recipe, Refusal> {
    recipe_at(name, engine, &format!("{path}.format"))
}

fn recipe_at(name: &str, engine: Engine, field: &str) -> Result<Recipe, Refusal> {
    if let Ok(format) = name.parse() {
        return Ok(costs::recipe(engine, format));
    }
    name.parse().map_err(|error: UnknownName| {
        Code::UnknownFormat.at(
            field,
            format!("there is no format {:?}", shorten(name)),
            error.near.hint("GET /v1/formats lists all"),
        )
    })
}

/// The model that a workload names, and what it is quantised to.
fn resolved(
    catalogue: &Catalogue,
    workload: &Workload,
    engine: Engine,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<(Arc<Model>, Option<String>), Refusal> {
    let field = || format!("{path}.model");
    let wanted = workload.format.as_deref().map(|name| recipe(name, engine, path)).transpose()?;
    match workload.model.as_ref() {
        Some(Value::String(key)) => {
            let recipe = wanted.unwrap_or_else(|| usual_recipe(catalogue.published(key), engine));
            let stored = models()
                .stored_in(key)
                .filter(|stored| wanted.is_some_and(|recipe| recipe != costs::recipe(engine, *stored)));
            if let Some(stored) = stored {
                return Err(Code::InvalidField.at(
                    format!("{path}.format"),
                    format!("{:?} is stored in {stored}, and the format is {recipe}", shorten(key)),
                    format!(
                        "leave the format out, or name {}, which leaves it open",
                        models().get(key).map_or("the model", |known| &known.key)
                    ),
                ));
            }
            let model = catalogue.model(key, recipe, &field())?;
            if let Some(meant) = models().default_tag(key) {
                warnings.push(format!("{} is {meant}, as Ollama's default tag", shorten(key)));
            }
            Ok((model, Some(recipe.key().to_owned())))
        }
        Some(Value::Object(fields)) if names_file(fields) => {
            from_file(catalogue, fields, wanted, path, warnings)
        }
        Some(Value::Object(fields)) => {
            let model = inline(fields, wanted).map_err(|error| refused(&error, fields, path))?;
            let format = model.label.clone();
            Ok((Arc::new(model), format))
        }
        _ => Err(Code::InvalidField.at(
            field(),
            format!("{} is neither a key, a path nor the fields of a config.json", field()),
            "write \"llama-3.1-8b\", {\"path\":\"/models/x.gguf\"}, or {\"hidden_size\":4096, …}",
        )),
    }
}

/// The model of `task` in another format, and that format's key. A file whose own format it is is counted as it is;
/// another format is what its tensors would become.
///
/// # Errors
/// An unknown format, named at `field`.
pub fn stored_as(
    catalogue: &Catalogue,
    task: &ModelTask,
    wanted: Option<&Value>,
    name: &str,
    field: &str,
) -> Result<(Arc<Model>, Option<String>), Refusal> {
    let recipe = recipe_at(name, task.engine, field)?;
    if let Some(Value::String(key)) = wanted {
        return Ok((catalogue.model(key, recipe, field)?, Some(recipe.key().to_owned())));
    }
    let is_file = matches!(wanted, Some(Value::Object(fields)) if names_file(fields));
    let own = task.format.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(recipe.key()));
    if own && is_file {
        return Ok((Arc::clone(&task.model), task.format.clone()));
    }
    let weights = beside_tower(recipe, &task.model);
    let label = Some(recipe.key().to_owned());
    Ok((Arc::new(Model { weights, label: label.clone(), ..Model::clone(&task.model) }), label))
}

/// The weights of `model` by `recipe`; towers stay as they are, which no engine packs, and so do heads that draft.
fn beside_tower(recipe: Recipe, model: &Model) -> Vec<WeightGroup> {
    let mut weights = recipe.weights(&model.architecture);
    weights.extend(model.weights.iter().filter(|group| matches!(group.class, Class::Tower | Class::Draft)));
    weights
}

/// Whether the fields name a file, or are what was read from one, rather than those of a `config.json`.
fn names_file(fields: &Map<String, Value>) -> bool {
    fields.contains_key("path") || fields.contains_key("definition")
}

/// A model in a file. What its tensors are stored as is exact; a format that is asked for counts only where the file
/// tells no tensors.
fn from_file(
    catalogue: &Catalogue,
    fields: &Map<String, Value>,
    wanted: Option<Recipe>,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<(Arc<Model>, Option<String>), Refusal> {
    let found = catalogue.referenced(fields, &format!("{path}.model"))?;
    let model = Arc::new(found.model.clone());
    let own = model.label.clone();
    let Some(wanted) = wanted else { return Ok((model, own)) };
    if found.exact {
        if !own.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(wanted.key())) {
            warnings.push(format!(
                "the file is stored as {}, and its exact bytes are counted, not those of {}",
                own.as_deref().unwrap_or("something without a name"),
                wanted.key()
            ));
        }
        return Ok((model, own));
    }
    let weights = beside_tower(wanted, &model);
    let label = Some(wanted.key().to_owned());
    Ok((Arc::new(Model { weights, label: label.clone(), ..found.model.clone() }), label))
}

/// A model from the fields of its `config.json`.
fn inline(fields: &Map<String, Value>, wanted: Option<Recipe>) -> Result<Model, ImportError> {
    Config::from_value(&Value::Object(fields.clone()))?.model(wanted, "model")
}

/// Why fields describe no model, by the names that the client used.
fn refused(error: &ImportError, fields: &Map<String, Value>, path: &str) -> Refusal {
    let at = |field: &str| format!("{path}.model.{field}");
    let hint = "correct the fields; they are those of the model's config.json";
    match error {
        ImportError::Field { field, reason } => {
            Code::InvalidModel.at(at(field), format!("{} {reason}", at(field)), hint)
        }
        ImportError::Missing { field, .. } => {
            Code::MissingField.at(at(field), format!("{path}.model.{error}"), hint)
        }
        ImportError::Undescribed { .. }
        | ImportError::Family(_)
        | ImportError::Tower(_)
        | ImportError::NoFamily(_)
        | ImportError::Method(_)
        | ImportError::NotText { .. } => {
            Code::InvalidModel.at(format!("{path}.model"), format!("{path}.model: {error}"), error.hint())
        }
        ImportError::Model(InvalidModel::HeadGroups { heads, kv_heads }) => Code::InvalidModel.at(
            at("num_key_value_heads"),
            format!(
                "num_attention_heads is {heads} and num_key_value_heads is {kv_heads}: the former must be a whole \
                 multiple of the latter"
            ),
            "1 is MQA, num_attention_heads is MHA",
        ),
        ImportError::Model(InvalidModel::HeadDim { hidden, heads }) => Code::InvalidModel.at(
            at("num_attention_heads"),
            format!(
                "hidden_size is {hidden}, which num_attention_heads, {heads}, does not divide, and there is no \
                 head_dim"
            ),
            "correct one of the two, or add head_dim",
        ),
        ImportError::Model(error) => {
            let field = in_config(error.field());
            let message = match error {
                InvalidModel::Dimension { value: 0, .. } if !fields.contains_key(&*field) => {
                    return Code::MissingField.at(at(&field), format!("{} is missing", at(&field)), hint);
                }
                InvalidModel::Dimension { value, .. } => {
                    format!("{} is {value}; it must be 1 or more, and no wider than any model", at(&field))
                }
                other => other.to_string(),
            };
            Code::InvalidModel.at(at(&field), message, hint)
        }
        other => Code::InvalidModel.at(format!("{path}.model"), format!("{path}.model {other}"), hint),
    }
}

/// Our name of a field as `config.json` spells it.
fn in_config(field: &str) -> Cow<'_, str> {
    Cow::Borrowed(match field {
        "hidden" => "hidden_size",
        "vocab" => "vocab_size",
        "layers" => "num_hidden_layers",
        "heads" => "num_attention_heads",
        "kv_heads" => "num_key_value_heads",
        "intermediate" => "intermediate_size",
        "active_experts" => "num_experts_per_tok",
        other => other,
    })
}
