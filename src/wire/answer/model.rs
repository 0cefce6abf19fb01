//! A model of the wire → a model and what is asked of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::catalogue::Catalogue;
use super::shorten;
use super::task::format_named;
use decide::snapshot::Snapshot;
use predict::calibration::Accelerator;
use predict::{Engine, costs};
use roofline::near::Near;
use roofline::precision::{UnknownName, WeightFormat};
use roofline::refusal::{Code, Refusal};
use roofline::workload::architecture::InvalidModel;
use roofline::workload::class::Class;
use roofline::workload::import::ImportError;
use roofline::workload::import::config::Config;
use roofline::workload::model::{Model, WeightGroup};
use roofline::workload::recipe::Recipe;
use roofline::workload::transformer::{Phase, Request, Speculative};
use wire::Workload;

/// Storage of a model known by its key where the request names none.
const DEFAULT_FORMAT: WeightFormat = WeightFormat::Fp16;
const PHASES: [(&str, Phase); 3] =
    [("prefill", Phase::Prefill), ("decode", Phase::Decode), ("serve", Phase::Serve)];

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
        let mut request = run_request(snapshot, workload, path, &mut warnings)?;
        request.usual_chunk_tokens = costs::chunk_tokens(engine);
        let (model, format) = resolved(catalogue, workload, engine, path, &mut warnings)?;
        warnings.extend(model.warnings.iter().cloned());
        warnings.extend(request.warnings(&model));
        let name = filed_under(workload.model.as_ref(), &model);
        Ok(Self { name, model, format, request, engine, warnings })
    }
}

/// Files of one name in two directories are two models, and so are two sets of fields of one kind.
fn filed_under(wanted: Option<&Value>, model: &Model) -> String {
    match wanted {
        Some(Value::String(key)) => key.to_ascii_lowercase(),
        Some(Value::Object(fields)) => match fields.get("path").and_then(Value::as_str) {
            Some(path) => path.to_owned(),
            None => format!("{} of {} weights", model.name, model.parameters()),
        },
        _ => model.name.clone(),
    }
}

/// What is asked of a model.
fn run_request(
    snapshot: &Snapshot,
    workload: &Workload,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<Request, Refusal> {
    let phase = phase(workload.phase.as_deref(), path)?;
    let kv_cache = match &workload.kv_format {
        Some(name) => format_named(name, || format!("{path}.kv_format"))?,
        None => WeightFormat::Fp16,
    };
    let images = workload.image_tokens.unwrap_or(0);
    let needs = |name: &str, given: Option<u64>| {
        let wanted = match name {
            "prompt_tokens" => phase != Phase::Decode && images == 0,
            _ => phase == Phase::Serve,
        };
        match given {
            None if wanted => Err(Code::MissingField.at(
                format!("{path}.{name}"),
                format!("phase {} needs {name}", phase_key(phase)),
                format!("add \"{name}\":512"),
            )),
            _ => Ok(given.unwrap_or(0)),
        }
    };
    let prompt_tokens = needs("prompt_tokens", workload.prompt_tokens)?;
    let output_tokens = needs("output_tokens", workload.output_tokens)?;
    if phase == Phase::Decode && prompt_tokens > 0 {
        warnings.push(format!(
            "prompt_tokens is not looked at in phase decode: the context is context_tokens, {}",
            workload.context_tokens.unwrap_or(0)
        ));
    }
    let not_looked_at = [
        ("output_tokens", output_tokens > 0, Phase::Prefill),
        ("speculative", workload.speculative.is_some(), Phase::Prefill),
        ("image_tokens", images > 0, Phase::Decode),
        ("chunk_tokens", workload.chunk_tokens.is_some(), Phase::Decode),
    ];
    for (name, _, _) in not_looked_at.into_iter().filter(|(_, given, of)| *given && *of == phase) {
        warnings.push(format!("{name} is not looked at in phase {}", phase_key(phase)));
    }
    let request = Request {
        phase,
        batch: workload.batch.unwrap_or(1),
        context_tokens: workload.context_tokens.unwrap_or(0),
        prompt_tokens,
        output_tokens,
        image_tokens: if phase == Phase::Decode { 0 } else { images },
        cached_tokens: workload.cached_tokens.unwrap_or(0),
        chunk_tokens: workload.chunk_tokens,
        usual_chunk_tokens: None,
        speculative: workload.speculative.filter(|_| phase != Phase::Prefill).map(|given| Speculative {
            draft_tokens: given.draft_tokens,
            accepted_per_step: given.accepted_per_step,
        }),
        activations: match snapshot.accelerator {
            Accelerator::Cpu => WeightFormat::Fp32,
            Accelerator::Gpu => WeightFormat::Fp16,
        },
        kv_cache,
    };
    request.validate().map_err(|error| {
        Code::InvalidDimension.at(
            format!("{path}.{}", error.field),
            error.to_string(),
            match error.field {
                "cached_tokens" if phase == Phase::Decode => "only what is in the context can be cached",
                "cached_tokens" => "the last token of a prompt is always computed: give fewer than all",
                "speculative.accepted_per_step" => "give a mean between 0 and draft_tokens",
                _ => "give a whole number within these limits",
            },
        )
    })?;
    Ok(request)
}

const fn phase_key(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
        Phase::Serve => "serve",
    }
}

fn phase(name: Option<&str>, path: &str) -> Result<Phase, Refusal> {
    let Some(name) = name else { return Ok(Phase::Decode) };
    PHASES.into_iter().find(|(key, _)| *key == name).map(|(_, phase)| phase).ok_or_else(|| {
        let known = PHASES.map(|(key, _)| key);
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
            let default = || catalogue.published(key).unwrap_or(DEFAULT_FORMAT);
            let recipe = wanted.unwrap_or_else(|| costs::recipe(engine, default()));
            let model = catalogue.model(key, recipe, &field())?;
            Ok((model, Some(recipe.key().to_owned())))
        }
        Some(Value::Object(fields)) if fields.contains_key("path") || fields.contains_key("fd") => {
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
    let is_file = matches!(wanted, Some(Value::Object(fields)) if fields.contains_key("path"));
    let own = task.format.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(recipe.key()));
    if own && is_file {
        return Ok((Arc::clone(&task.model), task.format.clone()));
    }
    let weights = beside_tower(recipe, &task.model);
    let label = Some(recipe.key().to_owned());
    Ok((Arc::new(Model { weights, label: label.clone(), ..Model::clone(&task.model) }), label))
}

/// The weights of `model` by `recipe`; towers stay as they are, which no engine packs.
fn beside_tower(recipe: Recipe, model: &Model) -> Vec<WeightGroup> {
    let mut weights = recipe.weights(&model.architecture);
    weights.extend(model.weights.iter().filter(|group| group.class == Class::Tower));
    weights
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
