//! What people type: operations, sizes, times, ranges. Every mistake is named with its field.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::failure::Failure;
use super::server_address::Address;
use super::{habits, meant, units, words};
use rooflined_api::{NetworkEngine, Offload, OperatingPointRequest, Speculative, Workload};
use rooflined_core::keyed;
use rooflined_core::near::Near;
use rooflined_core::operation::{InvalidOp, MAX_DIMENSION, Op};
use rooflined_core::precision::{Precision, UnknownName, WeightFormat};
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::{UnknownModel, models};
use rooflined_models::transformer::{DraftKind, Phase, Task};
use rooflined_predict::Engine;

/// Where help lists the options that few questions need.
const ATTENTION: &str = "Options of attention";
const SPECULATION: &str = "Options of speculative decoding";

keyed! {
    /// Kinds of operation.
    #[derive(ValueEnum)]
    Kind {
        /// N K
        Gemv = "gemv",
        /// M N K
        Gemm = "gemm",
        /// BATCH HEADS KV_HEADS QUERY_TOKENS CONTEXT_TOKENS HEAD_DIM, then WINDOW if it slides; or the options below
        Attention = "attention",
    }
}

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An operation of this kind.
    Op(Kind),
    /// A model by its key.
    Model(String),
    /// A model in a file or directory.
    File(PathBuf),
}

/// An operation, the name of a known model, or a [path](names_file): last, anything that is here.
///
/// # Errors
/// It is none of these; the nearest is suggested.
pub fn target(text: &str) -> Result<Target, String> {
    if let Ok(kind) = Kind::from_str(text, true) {
        return Ok(Target::Op(kind));
    }
    if names_file(text) {
        return Ok(Target::File(PathBuf::from(text)));
    }
    match models().get(text) {
        // A name that says how the model is stored, that is Ollama's for several, or that is of another model with this
        // architecture goes on as it is: the answer says so.
        Ok(known) => {
            let says_more = models().stored_in(text).is_some() || !known.is_called(text);
            Ok(Target::Model(if says_more { text.to_owned() } else { known.key.clone() }))
        }
        Err(_) if Path::new(text).exists() => Ok(Target::File(PathBuf::from(text))),
        Err(UnknownModel { storage: Some(unread), .. }) => Err(format!("not predicted: {}", unread.hint())),
        Err(error) => {
            let near = Near::of(text, Kind::ALL.map(Kind::key));
            let near = if near.is_empty() { error.near } else { near };
            Err(format!("neither an operation nor a model; {}", meant::instead(text, &near)))
        }
    }
}

/// A model as requests name it.
///
/// # Errors
/// No model has this name, or its file does not exist.
pub fn model(text: &str) -> Result<Value, Failure> {
    match target(text) {
        Ok(Target::Model(key)) => Ok(key.into()),
        Ok(Target::File(path)) => named_file(&path),
        Ok(Target::Op(_)) => Err(Failure::usage(format!("{text} is an operation, and this takes a model"))),
        Err(why) => Err(Failure::usage(format!("{text:?} is {why}"))),
    }
}

/// A file as requests name it.
fn named_file(path: &Path) -> Result<Value, Failure> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text =
        whole.to_str().ok_or_else(|| Failure::usage(format!("{} is not valid UTF-8", path.display())))?;
    match public_name(path).filter(|_| !whole.exists()) {
        Some(name) => Err(unknown_model(name)),
        None => super::contents::require_file(&whole).map(|()| json!({ "path": text })),
    }
}

/// What may be a name on Hugging Face, `OWNER/MODEL`, rather than a path.
fn public_name(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (owner, model) = text.split_once('/')?;
    let is_name = |part: &str| !part.is_empty() && !part.contains('/') && !part.starts_with(['.', '~']);
    let is_site = ["https://", "http://", "hf.co/", "huggingface.co/", "ollama.com/"]
        .iter()
        .any(|site| text.starts_with(site));
    (is_site || is_name(owner) && is_name(model) && !meant::ends_as_file(model)).then_some(text)
}

fn unknown_model(name: &str) -> Failure {
    const ALL: &str =
        "rooflinectl models list shows all; for another model, save its config.json and give its path";
    if let Err(UnknownModel { storage: Some(unread), .. }) = models().get(name) {
        return Failure::usage(format!("{name:?} is not predicted")).with_hint(unread.hint());
    }
    let hint = match meant::known_model(name) {
        Some(model) => format!("did you mean {model}? {ALL}"),
        None if Address::parse(name).is_ok() => {
            format!(
                "a server follows an option: rooflinectl explain --port {name}, rooflinectl observe --from {name}"
            )
        }
        None if name.contains("://")
            && !["huggingface.co/", "ollama.com/"].iter().any(|site| name.contains(site)) =>
        {
            "only addresses of Hugging Face and Ollama name a model: download the file, and give its path"
                .to_owned()
        }
        None => models().near(name).hint(ALL),
    };
    Failure::usage(format!("no model {name:?} is known, and no such file is here")).with_hint(hint)
}

/// Whether a text names a file or directory: it holds a slash or ends as model files do, and what has a slash in its name on
/// Hugging Face is not there.
pub fn names_file(text: &str) -> bool {
    let is_path = text.contains('/') || meant::ends_as_file(text);
    is_path && (models().get(text).is_err() || Path::new(text).exists())
}

/// Several, with commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets(pub Vec<Target>);

/// Several, with commas between.
///
/// # Errors
/// As [`target`], for the first that is neither.
pub fn targets(text: &str) -> Result<Targets, String> {
    let is_one = !text.contains(',');
    let each =
        |part| target(part).map_err(|error| if is_one { error } else { format!("{part:?} is {error}") });
    text.split(',').map(each).collect::<Result<_, _>>().map(Targets)
}

/// One operation, or one model.
#[derive(Debug, Clone, Args)]
pub struct OpArgs {
    /// Model, such as qwen3-4b or Qwen/Qwen3-4B, or the path of its file; or an operation: gemv N K, gemm M N K, attention …
    #[arg(value_parser = target, value_name = "WHAT")]
    pub kind: Option<Target>,
    /// Sizes: gemv N K, gemm M N K
    #[arg(value_name = "SIZE", allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    #[command(flatten)]
    pub attention: AttentionArgs,
}

/// Sizes of an attention by name.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct AttentionArgs {
    /// Query heads (attention)
    #[arg(long, help_heading = ATTENTION, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub heads: Option<u64>,
    /// Key/value heads (attention) [default: as many as heads]
    #[arg(long, help_heading = ATTENTION, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub kv_heads: Option<u64>,
    /// Query tokens per sequence (attention): 1 = decode [default: 1]
    #[arg(long, help_heading = ATTENTION, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub query_tokens: Option<u64>,
    /// Context length in tokens, with the prompt and the answer (attention, models) [default of models: 4096, or the model's maximum if that is less]
    #[arg(long, visible_alias = "context", value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    pub context_tokens: Option<u64>,
    /// Head dimension (attention) [default: 128]
    #[arg(long, help_heading = ATTENTION, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub head_dim: Option<u64>,
    /// Sliding window (attention)
    #[arg(long, help_heading = ATTENTION, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub window: Option<u64>,
}

/// What is asked of a model.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct ModelArgs {
    /// Kind of request (models) [default: embed for an encoder, else generate]
    #[arg(long, value_parser = one_of::<Task, 3>(TASKS))]
    pub task: Option<Task>,
    /// Phase of generation (models) [default: decode]
    #[arg(long, value_parser = one_of::<Phase, 3>(PHASES))]
    pub phase: Option<Phase>,
    /// Prompt length in tokens (models)
    #[arg(long, visible_alias = "prompt-tokens", value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub prompt: Option<u64>,
    /// Number of tokens to generate (models)
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub output_tokens: Option<u64>,
    /// Tokens already cached: part of the prompt, or the part of the context that all sequences share (models)
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    pub cached_tokens: Option<u64>,
    /// Prompt tokens per pass: llama.cpp's -ub (models) [default: the engine's]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub chunk_tokens: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub speculative: SpeculativeArgs,
    /// Layers whose experts stay in the memory of the CPU, on a machine with a card (models, llama.cpp)
    #[arg(long, value_name = "N", value_parser = count_from_zero, conflicts_with = "gpu_layers", allow_negative_numbers = true)]
    pub n_cpu_moe: Option<u64>,
    /// Layers on the card, the output counted as one; the others stay in the memory of the CPU (models, llama.cpp) [default: all]
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    pub gpu_layers: Option<u64>,
    /// Tokens of the images in every prompt, in addition to --prompt (models)
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    pub image_tokens: Option<u64>,
}

/// Speculative decoding.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct SpeculativeArgs {
    /// Source of drafted tokens (models) [default: draft with --draft-model, else the model's own head, else ngram]
    #[arg(long, help_heading = SPECULATION, value_parser = PossibleValuesParser::new(DraftKind::ALL.map(DraftKind::key)), value_name = "KIND")]
    pub speculative: Option<String>,
    /// The smaller model that drafts, by its key or the path of its file (models)
    #[arg(long, help_heading = SPECULATION, value_name = "MODEL")]
    pub draft_model: Option<String>,
    /// Weight format of --draft-model [default: that of the model; a file's own]
    #[arg(long, help_heading = SPECULATION, value_name = "FORMAT", value_parser = storage, requires = "draft_model")]
    pub draft_format: Option<String>,
    /// Tokens drafted for every sequence and step (models) [default of recommend: the best of 0 to 8]
    #[arg(long, help_heading = SPECULATION, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    pub draft_tokens: Option<u64>,
    /// Chance that a drafted token is accepted if the one before it was, 0.8 or 80% (models)
    #[arg(long, help_heading = SPECULATION, value_name = "RATIO", value_parser = ratio, conflicts_with = "accepted_per_step", allow_negative_numbers = true)]
    pub acceptance: Option<f64>,
    /// Instead of --acceptance: drafted tokens that are accepted on average (models)
    #[arg(long, help_heading = SPECULATION, value_name = "MEAN", requires = "draft_tokens", allow_negative_numbers = true)]
    pub accepted_per_step: Option<f64>,
}

impl SpeculativeArgs {
    /// What is drafted; `None` where no option says.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn given(&self) -> Result<Option<Speculative>, Failure> {
        let Self { speculative, draft_model, draft_format, draft_tokens, acceptance, accepted_per_step } =
            self;
        let given = Speculative {
            kind: speculative.clone(),
            draft_model: draft_model.as_deref().map(self::model).transpose()?,
            draft_format: draft_format.clone(),
            draft_tokens: *draft_tokens,
            acceptance_ratio: *acceptance,
            accepted_per_step: *accepted_per_step,
        };
        Ok((given != Speculative::default()).then_some(given))
    }
}

/// How an engine runs it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct RunArgs {
    /// Worker threads, if the CPU is the accelerator [default: one for every physical core; engine none: as calibrated]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<u32>,
}

/// Those of `options` that the command line has, by name.
pub fn given(options: &impl Serialize) -> impl Iterator<Item = String> {
    let options = serde_json::to_value(options).ok();
    let options = options.and_then(|options| options.as_object().cloned()).unwrap_or_default();
    let given = options.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
    given.map(|(name, _)| format!("--{}", name.replace('_', "-")))
}

/// What is run, how it is stored, and by which engine.
#[derive(Debug, Clone, Args)]
pub struct SubjectArgs {
    #[command(flatten)]
    pub op: OpArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub run: RunArgs,
    /// Weight format [default: a file's own; of a known model the recommended one, with --engine its usual one, such as q4_k_m
    /// with llama.cpp; of an operation fp16]
    #[arg(long, value_parser = storage)]
    pub format: Option<String>,
    /// Key/value cache format (attention, models)
    #[arg(long, value_name = "FORMAT", value_parser = cache_format)]
    pub kv_format: Option<WeightFormat>,
    /// Batch size: columns, or sequences for attention and models
    #[arg(long, value_parser = count, allow_negative_numbers = true)]
    pub batch: Option<u64>,
    /// Inference engine [default: for a model the recommended one, for an operation none]
    #[arg(long, value_parser = engine_choice)]
    pub engine: Option<EngineChoice>,
}

/// An engine of models, or one of vision networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// ONNX Runtime, which runs both, is among these.
    Models(Engine),
    Networks(NetworkEngine),
}

impl EngineChoice {
    /// The engine that runs a model or an operation; none where nobody named one.
    ///
    /// # Errors
    /// One that runs networks alone.
    pub fn for_models(named: Option<Self>) -> Result<Engine, Failure> {
        match named {
            None => Ok(Engine::Bare),
            Some(Self::Models(engine)) => Ok(engine),
            Some(Self::Networks(engine)) => {
                Err(Failure::usage(format!("{} runs vision networks, which are .onnx files", engine.key()))
                    .with_hint(
                        "for a language model: --engine tensorrt-llm, on a Jetson --engine tensorrt-edge-llm",
                    ))
            }
        }
    }

    /// The key on the wire.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Models(engine) => engine.key(),
            Self::Networks(engine) => engine.key(),
        }
    }

    /// The engine that runs a network; `None` where none is named.
    ///
    /// # Errors
    /// One that runs no networks.
    pub fn for_networks(named: Option<Self>) -> Result<Option<NetworkEngine>, Failure> {
        match named {
            None => Ok(None),
            Some(Self::Models(Engine::OnnxRuntime)) => Ok(Some(NetworkEngine::OnnxRuntime)),
            Some(Self::Models(engine)) => Err(Failure::usage(format!(
                "{} runs no .onnx files: use tensorrt or onnxruntime",
                engine.key()
            ))),
            Some(Self::Networks(engine)) => Ok(Some(engine)),
        }
    }
}

/// An engine of models or of networks.
///
/// # Errors
/// As [`engine`].
pub fn engine_choice(text: &str) -> Result<EngineChoice, String> {
    if ["dla", "nvdla", "tensorrt-dla"].contains(&text.to_ascii_lowercase().as_str()) {
        return Err(
            "the speed of a DLA is not predicted; models inspect FILE.onnx shows the layers that it takes"
                .to_owned(),
        );
    }
    if ["tensorrt", "trt", "trtexec"].contains(&text.to_ascii_lowercase().as_str()) {
        return Ok(EngineChoice::Networks(NetworkEngine::TensorRt));
    }
    engine(text).map(EngineChoice::Models)
}

impl SubjectArgs {
    /// The request's workload, and what it is in words.
    ///
    /// # Errors
    /// A usage error that names what is wrong.
    pub fn workload(&self) -> Result<(Workload, SubjectText), Failure> {
        let Self { op, model, run, batch, .. } = self;
        let engine = EngineChoice::for_models(self.engine)?;
        let (format, batch) = (self.format.as_deref(), *batch);
        let kv_format = self.kv_format.map(|format| format.key().to_owned());
        if let Some(named) = op.model(model)? {
            refuse_bare(self.engine.is_some().then_some(engine))?;
            let what = match &op.kind {
                // The answer says in which format, where nobody named one.
                Some(Target::Model(key)) => {
                    let meant = models().default_tag(key).map(|meant| format!("{key} ({meant})"));
                    (meant.unwrap_or_else(|| key.clone()), format.map(str::to_owned))
                }
                Some(Target::File(path)) => {
                    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                    (name.into_owned(), Some(super::contents::format(path, format)))
                }
                _ => (String::new(), None),
            };
            // A context is filled by a decode; a prompt and its answer have to have room in it.
            let is_read = model.task.is_some_and(|task| task != Task::Generate)
                || model.phase.is_some_and(|phase| phase != Phase::Decode);
            let context = op.attention.context_tokens;
            let workload = Workload {
                model: Some(named),
                format: format.map(str::to_owned),
                kv_format,
                task: model.task.map(|task| task.key().to_owned()),
                phase: model.phase.map(|phase| phase.key().to_owned()),
                batch,
                context_tokens: context.filter(|_| !is_read),
                window_tokens: context.filter(|_| is_read),
                prompt_tokens: model.prompt,
                output_tokens: model.output_tokens,
                cached_tokens: model.cached_tokens,
                chunk_tokens: model.chunk_tokens,
                speculative: model.speculative.given()?,
                offload: model.offload(),
                image_tokens: model.image_tokens,
                threads: run.threads,
                ..Workload::default()
            };
            let phase = Some(model.phase.unwrap_or(Phase::Decode));
            let (what, format) = what;
            return Ok((workload, SubjectText { what, format, phase, batch: batch.unwrap_or(1) }));
        }
        let columns = op.columns(batch);
        let op = op.op(batch)?;
        let format = format.unwrap_or("fp16");
        // A mix of formats is one of whole models.
        self::format(format).map_err(Failure::usage)?;
        let format = Some(format.to_owned());
        let what = words::operation(&op);
        let asked = SubjectText { what, format: format.clone(), phase: None, batch: columns.unwrap_or(1) };
        let workload = Workload {
            op: Some(op),
            format,
            kv_format,
            batch: columns,
            threads: run.threads,
            ..Workload::default()
        };
        Ok((workload, asked))
    }
}

/// Refuses `--engine none` for a model, which always runs in an engine.
///
/// # Errors
/// No engine was named on purpose.
pub fn refuse_bare(named: Option<Engine>) -> Result<(), Failure> {
    if named != Some(Engine::Bare) {
        return Ok(());
    }
    Err(Failure::usage("a model runs in an inference engine, and --engine none is for operations")
        .with_hint("leave it out, or name an engine such as --engine llama.cpp"))
}

/// What models are for.
const TASKS: [(&str, &str); 3] = [
    ("generate", "Write text"),
    ("embed", "Turn each document into a vector"),
    ("rerank", "Score each document, with the query in it"),
];

/// Phases of text generation.
const PHASES: [(&str, &str); 3] = [
    ("prefill", "Read a prompt"),
    ("decode", "Add one token per sequence"),
    ("serve", "Read a prompt and write the answer"),
];

/// One of these keys, of which each has a help.
pub fn one_of<T, const N: usize>(keys: [(&'static str, &'static str); N]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let values = keys.map(|(key, help)| PossibleValue::new(key).help(help));
    PossibleValuesParser::new(values).try_map(|key| serde_json::from_value::<T>(key.into()))
}

impl ModelArgs {
    fn offload(&self) -> Option<Offload> {
        let given = Offload { cpu_moe_layers: self.n_cpu_moe, gpu_layers: self.gpu_layers };
        (given != Offload::default()).then_some(given)
    }
}

/// Where it runs.
#[derive(Debug, Clone, Default, Args)]
pub struct MachineArgs {
    /// Other hardware, by its data sheet; needs no daemon: jetson-agx-orin-64gb, … (see hardware list)
    #[arg(long, value_name = "KEY", value_parser = hardware_key)]
    pub hardware: Option<String>,
    /// Power mode; for a card or GB10 also a clock cap (lgc-2000), for a card also a power limit (pl-290) [default: the present
    /// operating point; with --hardware: its fastest]
    #[arg(long, value_name = "MODE", value_parser = mode_name)]
    pub mode: Option<String>,
}

/// A key of hardware; which there are is for the registry to say, that of a daemon too.
///
/// # Errors
/// It is empty, or the value of another option.
fn hardware_key(text: &str) -> Result<String, String> {
    value_of("hardware", text, "for example: orin-nano; rooflinectl hardware list shows all")
}

/// The name of a power mode; which there are is for the machine to say.
///
/// # Errors
/// As [`hardware_key`].
fn mode_name(text: &str) -> Result<String, String> {
    if is_all(text) || text.contains(',') {
        return Err(format!("it names one mode; recommend and sweep take several: write --modes {text}"));
    }
    value_of("mode", text, "for example: 15W; rooflinectl hardware show KEY lists the modes of hardware")
}

fn value_of(option: &str, text: &str, example: &str) -> Result<String, String> {
    match meant::value_of_another(option, text) {
        _ if text.trim().is_empty() => Err(format!("it is empty; {example}")),
        Some(other) => Err(other),
        None => Ok(text.to_owned()),
    }
}

impl MachineArgs {
    /// The operating point of a request.
    #[must_use]
    pub fn point(&self) -> Option<OperatingPointRequest> {
        self.point_under(&LimitArgs::default())
    }

    /// The same under a power limit.
    #[must_use]
    pub fn point_under(&self, limit: &LimitArgs) -> Option<OperatingPointRequest> {
        let (power_mode, power_limit_w) = (self.mode.clone(), limit.power_limit);
        (power_mode.is_some() || power_limit_w.is_some()).then(|| OperatingPointRequest {
            power_mode,
            power_limit_w,
            ..Default::default()
        })
    }
}

/// A limit on the power of a card or a GB10.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitArgs {
    /// Power limit of a card or a GB10, which lowers the clock until the run stays within it: 250W
    #[arg(long, value_name = "POWER", value_parser = watts, allow_negative_numbers = true)]
    pub power_limit: Option<f64>,
}

/// Several shapes of one operation.
#[derive(Debug, Clone, Args)]
pub struct ShapeArgs {
    /// Operation: gemv or gemm
    #[arg(value_enum, value_name = "OP")]
    pub kind: Option<Kind>,
    /// One shape: gemv N K, gemm M N K
    #[arg(value_name = "SIZE", allow_negative_numbers = true)]
    pub dims: Vec<String>,
    /// Shapes: gemv 4096 (square) or 4096x1024; gemm 64 (M, with N = K = 4096) or 64x4096x1024
    #[arg(long, value_delimiter = ',', conflicts_with = "dims", allow_negative_numbers = true)]
    pub sizes: Vec<String>,
}

/// `N` and `K` of a GEMM that only `M` is given of.
const GEMM_SIDE: u64 = 4096;

impl OpArgs {
    /// The operation; `batch` is the sequences of an attention and is left to the request otherwise.
    ///
    /// # Errors
    /// A usage error that names the size which is missing, too many, or not a whole number in range.
    pub fn op(&self, batch: Option<u64>) -> Result<Op, Failure> {
        let kind = match &self.kind {
            Some(Target::Op(kind)) => *kind,
            Some(Target::Model(_) | Target::File(_)) => {
                return Err(Failure::usage("this takes an operation, not a model")
                    .with_hint(format!("for example: {}", example(Kind::Gemv))));
            }
            None => {
                return Err(Failure::usage("neither a model nor an operation is given")
                    .with_hint(format!("for example: qwen3-4b, or {}", example(Kind::Gemv))));
            }
        };
        let op = match kind {
            Kind::Gemv | Kind::Gemm => {
                if let Some(option) = given(&self.attention).next() {
                    return Err(Failure::usage(format!(
                        "{option} belongs to attention, not to {}",
                        kind.key()
                    )));
                }
                matrix(kind, &self.sizes.iter().map(String::as_str).collect::<Vec<_>>())?
            }
            Kind::Attention if self.sizes.is_empty() => self.attention.op(batch)?,
            Kind::Attention => match given(&self.attention).next() {
                Some(option) => {
                    return Err(Failure::usage(format!(
                        "give the sizes either in order or by name, not {option} too"
                    )));
                }
                None => attention(&self.sizes, batch)?,
            },
        };
        valid(op)
    }

    /// What a request's `batch` is for this operation: an attention has its own.
    #[must_use]
    pub fn columns(&self, batch: Option<u64>) -> Option<u64> {
        if self.kind == Some(Target::Op(Kind::Attention)) { None } else { batch }
    }

    /// What a request's `model` is; `None` where an operation is named, or nothing.
    ///
    /// # Errors
    /// A size or an option of operations beside a model, or an option of models without one.
    pub fn model(&self, model: &ModelArgs) -> Result<Option<Value>, Failure> {
        let named = match &self.kind {
            Some(Target::Model(key)) => json!(key),
            Some(Target::File(path)) => named_file(path)?,
            Some(Target::Op(_)) | None => {
                return match given(model).next() {
                    Some(option) => Err(Failure::usage(format!("{option} belongs to models"))
                        .with_hint("name one: rooflinectl models list")),
                    None => Ok(None),
                };
            }
        };
        if let Some(size) = self.sizes.first() {
            return Err(meant::misplaced(size));
        }
        match given(&self.attention).find(|option| option != "--context-tokens") {
            Some(option) => Err(Failure::usage(format!("{option} belongs to attention"))),
            None => Ok(Some(named)),
        }
    }
}

/// What is to run, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectText {
    /// The operation or the model.
    pub what: String,
    /// As its weights are stored; `None` where that is left to the daemon.
    pub format: Option<String>,
    /// Of a model.
    pub phase: Option<Phase>,
    /// Sequences, or columns.
    pub batch: u64,
}

impl SubjectText {
    /// With its format: the one that was named, or the one of the answer.
    #[must_use]
    pub fn name(&self, answered: Option<&str>) -> String {
        let format = self.format.as_deref().or(answered);
        format.map_or_else(|| self.what.clone(), |format| format!("{} {format}", self.what))
    }

    /// The same, of an answer in this format.
    #[must_use]
    pub fn answered(self, format: Option<&String>) -> Self {
        Self { format: self.format.or_else(|| format.cloned()), ..self }
    }
}

/// `llama-3.1-8b q4_k_m decode x4`, `gemv 4096x4096 int8`.
impl std::fmt::Display for SubjectText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name(None))?;
        if let Some(phase) = self.phase {
            write!(f, " {}", phase.key())?;
        }
        if self.batch > 1 { write!(f, " x{}", self.batch) } else { Ok(()) }
    }
}

impl AttentionArgs {
    fn op(&self, batch: Option<u64>) -> Result<Op, Failure> {
        let missing = |name: &str| {
            Failure::usage(format!("attention needs --{name}"))
                .with_hint("for example: attention --heads 32 --kv-heads 8 --context-tokens 4096")
        };
        let heads = self.heads.ok_or_else(|| missing("heads"))?;
        Ok(Op::Attention {
            batch: batch.unwrap_or(1),
            heads,
            kv_heads: self.kv_heads.unwrap_or(heads),
            query_tokens: self.query_tokens.unwrap_or(1),
            context_tokens: self.context_tokens.ok_or_else(|| missing("context-tokens"))?,
            head_dim: self.head_dim.unwrap_or(128),
            window: self.window,
        })
    }
}

impl ShapeArgs {
    /// Whether nothing at all was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kind.is_none() && self.sizes.is_empty() && self.dims.is_empty()
    }

    /// The shapes.
    ///
    /// # Errors
    /// A usage error that names the size which is wrong.
    pub fn ops(&self) -> Result<Vec<Op>, Failure> {
        let kind = self.kind.ok_or_else(|| {
            Failure::usage("no operation is named").with_hint(format!("for example: {}", example(Kind::Gemv)))
        })?;
        if kind == Kind::Attention {
            return Err(Failure::usage("attention has no stored weights to vary")
                .with_hint("one attention at a time: rooflinectl predict attention …"));
        }
        if self.sizes.is_empty() {
            let dims: Vec<_> = self.dims.iter().map(String::as_str).collect();
            return Ok(vec![valid(matrix(kind, &dims)?)?]);
        }
        self.sizes.iter().map(|text| valid(shape(kind, text)?)).collect()
    }
}

fn valid(op: Op) -> Result<Op, Failure> {
    op.validate().map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            InvalidOp::HeadGroups { heads, .. } => {
                failure.with_hint(format!("give a number that divides {heads}, such as 1 or {heads}"))
            }
            InvalidOp::Dimension { .. } => failure,
        }
    })?;
    Ok(op)
}

/// The sizes of a GEMV or GEMM in order.
fn numbers(kind: Kind, sizes: &[&str]) -> Result<[u64; 3], Failure> {
    let names: &[&str] = if kind == Kind::Gemv { &["n", "k"] } else { &["m", "n", "k"] };
    let usage = names.join(" ").to_uppercase();
    if sizes.len() != names.len() {
        let message = format!("{} takes {} sizes, {usage}; {} given", kind.key(), names.len(), sizes.len());
        let joined = sizes.iter().any(|size| size.contains(meant::JOINTS));
        let how = if joined { "write them with spaces" } else { "for example" };
        return Err(Failure::usage(message).with_hint(format!("{how}: {}", example(kind))));
    }
    let mut values = [0; 3];
    for ((value, text), name) in values.iter_mut().zip(sizes).zip(names) {
        *value = count(text)
            .map_err(|reason| Failure::usage(format!("{} is {text:?}: {reason}", name.to_uppercase())))?;
    }
    Ok(values)
}

/// A GEMV or GEMM from its sizes in order.
fn matrix(kind: Kind, sizes: &[&str]) -> Result<Op, Failure> {
    let [first, second, third] = numbers(kind, sizes)?;
    Ok(match kind {
        Kind::Gemv => Op::Gemv { n: first, k: second },
        Kind::Gemm | Kind::Attention => Op::Gemm { m: first, n: second, k: third },
    })
}

/// A product from its sizes in order: M N K.
///
/// # Errors
/// A usage error that names the size which is wrong.
pub fn product(sizes: &[String]) -> Result<(Op, [u64; 3]), Failure> {
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    let [m, n, k] = numbers(Kind::Gemm, &sizes)?;
    Ok((valid(Op::Gemm { m, n, k })?, [m, n, k]))
}

/// An operation with its sizes.
pub const fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Gemv => "gemv 4096 4096",
        Kind::Gemm => "gemm 64 4096 4096",
        Kind::Attention => "attention 1 32 8 1 4096 128",
    }
}

/// `4096`, `4096x1024`, `64x4096x1024`.
fn shape(kind: Kind, text: &str) -> Result<Op, Failure> {
    let side = GEMM_SIDE.to_string();
    let sizes: Vec<&str> = text.split(meant::JOINTS).collect();
    match (kind, sizes.as_slice()) {
        (Kind::Gemv, &[side]) => matrix(kind, &[side, side]),
        (Kind::Gemm, &[m]) => matrix(kind, &[m, &side, &side]),
        _ => matrix(kind, &sizes),
    }
}

fn attention(sizes: &[String], batch: Option<u64>) -> Result<Op, Failure> {
    const NAMES: [&str; 7] =
        ["batch", "heads", "kv_heads", "query_tokens", "context_tokens", "head_dim", "window"];
    if !(6..=7).contains(&sizes.len()) {
        let message = format!("attention takes 6 or 7 sizes, {}; {} given", NAMES.join(" "), sizes.len());
        return Err(Failure::usage(message).with_hint(format!("for example: {}", example(Kind::Attention))));
    }
    if batch.is_some() {
        return Err(Failure::usage("batch is given twice: as the first size and with --batch"));
    }
    let mut values = [0; 7];
    for ((value, text), name) in values.iter_mut().zip(sizes).zip(NAMES) {
        let parse = if name == "context_tokens" { count_from_zero } else { count };
        *value = parse(text).map_err(|reason| Failure::usage(format!("{name} is {text:?}: {reason}")))?;
    }
    let [batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window] = values;
    let window = (sizes.len() == NAMES.len()).then_some(window);
    Ok(Op::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window })
}

/// A whole number from 1 to [`MAX_DIMENSION`].
///
/// # Errors
/// What is accepted, as a sentence.
pub fn count(text: &str) -> Result<u64, String> {
    whole(text).filter(|count| (1..=MAX_DIMENSION).contains(count)).ok_or_else(|| no_count(text, 1))
}

/// What was expected instead of `text`, which is not a whole number.
fn no_count(text: &str, least: u64) -> String {
    let most = if whole(text) > Some(MAX_DIMENSION) { format!(" to {MAX_DIMENSION}") } else { String::new() };
    let expected = format!("expected a whole number from {least}{most}, such as 8, 512 or 4k");
    let is_range = text.contains("..") || with_other_points(text).is_some();
    if let Some(meant) = units::count_meant(text).filter(|meant| (least..=MAX_DIMENSION).contains(meant)) {
        return format!("expected a whole number without a unit or separators: write {meant}");
    }
    match text {
        "" => format!("{expected}; lists are written without spaces: 1,2,4"),
        _ if text.contains(',') => format!("{expected}, without commas; rooflinectl sweep takes several"),
        _ if is_range => "expected one number; rooflinectl sweep takes several: --batches 1..8".to_owned(),
        _ => expected,
    }
}

/// A number of threads.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn threads(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(value) if value >= 1 => Ok(value),
        _ => Err("expected a whole number of threads from 1".to_owned()),
    }
}

/// A whole number from 0 to [`MAX_DIMENSION`].
///
/// # Errors
/// What is accepted, as a sentence.
pub fn count_from_zero(text: &str) -> Result<u64, String> {
    whole(text).filter(|count| *count <= MAX_DIMENSION).ok_or_else(|| no_count(text, 0))
}

/// A whole number; k stands for 1024 and M for its square, as in the sizes of contexts and matrices.
fn whole(text: &str) -> Option<u64> {
    let (number, scale) = match text.char_indices().last()? {
        (end, 'k' | 'K') => (&text[..end], 1 << 10),
        (end, 'm' | 'M') => (&text[..end], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// A number above zero, alone or with one of the units; of two that match, the first.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, scale) = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))
        .unwrap_or((text, 1.0));
    positive(number.trim_end()).ok().map(|number| number * scale).filter(|value| *value > 0.0)
}

/// A finite number above zero.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("expected a number above zero, such as 30{}", units::or_write(text, &[]))),
    }
}

/// A time in seconds, or with its unit.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn seconds(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    with_unit(text, &UNITS).ok_or_else(|| {
        format!("expected a time above zero: 280us, 1.5ms, 2s{}", units::or_write(text, &units::TIMES))
    })
}

/// A size in bytes, or with its unit.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn bytes(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let size = with_unit(text, &UNITS).ok_or_else(|| {
        let meant = units::or_write(text, &units::SIZES);
        let example = if meant.is_empty() { ": 8GB or 8GiB" } else { "" };
        format!("expected a size above zero with its unit{example}{meant}")
    })?;
    if size < LEAST_BYTES && text.parse::<f64>().is_ok() {
        return Err(format!("{text} alone is {text} bytes: write {text}GB, {text}GiB or {text}B"));
    }
    Ok(size)
}

/// Nobody means fewer bytes by a number without a unit.
const LEAST_BYTES: f64 = 1e6;
/// Nobody means a slower clock by a number without a unit.
const LEAST_MEGAHERTZ: f64 = 10.0;
/// Nobody means more watts by a number without a unit.
const MOST_WATTS: f64 = 3000.0;
/// Nobody means more seconds by a number without a unit where a latency is limited.
const MOST_SECONDS: f64 = 10.0;

/// The time of an answer or a part of it, as [`seconds`].
///
/// # Errors
/// What is accepted, as a sentence; also for a number that may be milliseconds.
pub fn latency(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        time if time >= MOST_SECONDS && text.parse::<f64>().is_ok() => {
            Err(format!("{text} alone is {text} seconds: write {text}ms or {text}s"))
        }
        time => Ok(time),
    }
}

/// A share of one, or a percentage with its sign.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    match number.parse::<f64>() {
        Ok(share) if share > 1.0 && scale == 1.0 && share.is_finite() => {
            Err(format!("{text} alone is {}%: write {text}% or {}", share * 100.0, share / 100.0))
        }
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(share / scale),
        _ => Err(format!(
            "expected a share of zero or more: 0.03 or 3%{}",
            units::or_write(text, &units::SHARES)
        )),
    }
}

/// A waiting time, at most a day.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text)?;
    if seconds > 86_400.0 {
        return Err("expected at most a day, 86400s".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A clock in megahertz, with or without its unit.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn megahertz(text: &str) -> Result<f64, String> {
    let clock = with_unit(text, &[("MHz", 1.0), ("GHz", 1e3), ("kHz", 1e-3)]).ok_or_else(|| {
        format!("expected a clock above zero: 1020MHz{}", units::or_write(text, &units::CLOCKS))
    })?;
    if clock < LEAST_MEGAHERTZ && text.parse::<f64>().is_ok() {
        return Err(format!("{text} alone is {text} MHz: write {text}GHz"));
    }
    Ok(clock)
}

/// A power in watts, with or without its unit.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn watts(text: &str) -> Result<f64, String> {
    let power = with_unit(text, &[("mW", 1e-3), ("kW", 1e3), ("W", 1.0), ("w", 1.0)]).ok_or_else(|| {
        format!("expected a power above zero in W, mW or kW: 15W{}", units::or_write(text, &units::POWERS))
    })?;
    if power > MOST_WATTS && text.parse::<f64>().is_ok() {
        return Err(format!("{text} alone is {text} W: write {text}mW or {text}W"));
    }
    Ok(power)
}

/// `8`, or `1..32` with both ends included.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn batch_range(text: &str) -> Result<(u64, u64), String> {
    if let Some(((min, _), (_, max))) = text.split_once(',').zip(text.rsplit_once(',')) {
        return Err(format!("expected one number or a range: {min}..{max}"));
    }
    range(text, |number| {
        count(number).map_err(|_| "expected a whole number from 1, or a range of them: 8, 1..32".to_owned())
    })
}

fn range(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<(u64, u64), String> {
    if let Some((min, max)) = with_other_points(text) {
        return Err(format!("expected a range with two points: {min}..{max}"));
    }
    if text.matches("..").count() > 1 {
        return Err("expected a range with two ends, such as 1..8".to_owned());
    }
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (parse(min)?, parse(max.strip_prefix('=').unwrap_or(max))?);
    if min > max {
        return Err(format!("expected the smaller number first: {max}..{min}"));
    }
    Ok((min, max))
}

/// The ends of a range that was written otherwise, the smaller one first: `1-8`, `8:1`, `1...8`.
fn with_other_points(text: &str) -> Option<(u64, u64)> {
    let ends = ["...", "-", ":", "–", "~"].iter().find_map(|between| text.split_once(between))?;
    let (first, last) = (whole(ends.0.trim())?, whole(ends.1.trim())?);
    Some((first.min(last), first.max(last)))
}

/// A number of a list, or a range of them: `8`, `1..8`.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn counts(text: &str) -> Result<(u64, u64), String> {
    short_range(text, count)
}

/// The same from 0.
///
/// # Errors
/// What is accepted, as a sentence.
pub fn counts_from_zero(text: &str) -> Result<(u64, u64), String> {
    short_range(text, count_from_zero)
}

fn short_range(text: &str, parse: fn(&str) -> Result<u64, String>) -> Result<(u64, u64), String> {
    /// Longer ones are a mistake: each number is a row.
    const MOST: u64 = 1024;
    match range(text, parse)? {
        (min, max) if max - min >= MOST => {
            Err(format!("{} numbers are more than {MOST}; name some of them: {min},{max}", max - min + 1))
        }
        range => Ok(range),
    }
}

/// Every number of a list; `None` where it is empty.
#[must_use]
pub fn each(list: &[(u64, u64)]) -> Option<Vec<u64>> {
    (!list.is_empty()).then(|| list.iter().flat_map(|&(min, max)| min..=max).collect())
}

/// The same as numbers of threads.
#[must_use]
pub fn each_thread_count(list: &[(u64, u64)]) -> Option<Vec<u32>> {
    let counts = each(list)?;
    Some(counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect())
}

/// A name of a list, or all that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed<T> {
    All,
    One(T),
}

/// The parser of names, which takes `all` too.
pub fn or_all<T: 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Listed<T>, String> + Clone {
    move |text| if is_all(text) { Ok(Listed::All) } else { parse(text).map(Listed::One) }
}

fn is_all(text: &str) -> bool {
    text.eq_ignore_ascii_case("all")
}

/// The names of a list, each once, of which `all` are these.
pub fn named<T: Copy + PartialEq>(list: &[Listed<T>], all: &[T]) -> Vec<T> {
    let names = |listed: &Listed<T>| match listed {
        Listed::All => all.to_vec(),
        Listed::One(one) => vec![*one],
    };
    let mut seen = Vec::new();
    for name in list.iter().flat_map(names) {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// A storage format by its key.
///
/// # Errors
/// The nearest known key.
pub fn format(text: &str) -> Result<WeightFormat, String> {
    text.parse().map_err(|error| match recipe(text) {
        Ok(Recipe::Gguf(mix)) if mix.base().format().is_some() => {
            let base = mix.base().format().map_or("", WeightFormat::key);
            format!(
                "{text:?} mixes formats, as only a whole model does; write {base}, in which most of it is"
            )
        }
        _ => unknown(&error),
    })
}

/// A storage format of a key/value cache.
///
/// # Errors
/// The nearest known key, and the usual ones.
pub fn cache_format(text: &str) -> Result<WeightFormat, String> {
    text.parse().map_err(|error: UnknownName| {
        let usual = "usual caches are fp16, fp8_e4m3, q8_0 and q4_0";
        format!("unknown format {:?}; {}", error.name, error.near.hint(usual))
    })
}

/// What is wrong with a name, and where those that there are stand.
fn unknown(error: &UnknownName) -> String {
    let all = match error.what {
        "precision" => {
            let keys: Vec<_> = Precision::ALL.iter().map(|precision| precision.key()).collect();
            let one =
                if error.name.contains(',') { "give one, or leave the option out for all; " } else { "" };
            format!("{one}known: {}", keys.join(", "))
        }
        _ => "rooflinectl formats shows all".to_owned(),
    };
    if let Some(other) = meant::value_of_another("format", &error.name).filter(|_| error.what == "format") {
        return other;
    }
    if let Some(meant) = meant::format(&error.name).filter(|_| error.what == "format") {
        return format!("unknown format {:?}; {meant}", error.name);
    }
    format!("unknown {} {:?}; {}", error.what, error.name, error.near.hint(&all))
}

/// The key of a format or of a mix.
pub fn storage(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty; for example: q4_k_m".to_owned());
    }
    recipe(text).map(|recipe| recipe.key().to_owned())
}

/// The same, or `all`.
pub fn storage_or_all(text: &str) -> Result<String, String> {
    if is_all(text) { Ok("all".to_owned()) } else { storage(text) }
}

/// The name of a power mode, or a word for several: `all`, `live`.
#[expect(clippy::unnecessary_wraps, reason = "a parser of values returns a result")]
pub fn mode_or_all(text: &str) -> Result<String, String> {
    let is_word = is_all(text) || text.eq_ignore_ascii_case("live");
    Ok(if is_word { text.to_ascii_lowercase() } else { text.to_owned() })
}

/// The key of a format of a cache, or `all`.
pub fn cache_or_all(text: &str) -> Result<String, String> {
    if is_all(text) { Ok("all".to_owned()) } else { Ok(cache_format(text)?.key().to_owned()) }
}

/// A format or a mix.
pub fn recipe(text: &str) -> Result<Recipe, String> {
    text.parse().map_err(|error| unknown(&error))
}

/// A precision by its key.
///
/// # Errors
/// The nearest known key.
pub fn precision(text: &str) -> Result<Precision, String> {
    text.parse().map_err(|error| unknown(&error))
}

/// An engine by its key.
///
/// # Errors
/// The known keys.
pub fn engine(text: &str) -> Result<Engine, String> {
    Engine::named(text).ok_or_else(|| {
        if is_all(text) || text.contains(',') {
            return format!(
                "name one, or leave it out for the recommended one; to compare several: rooflinectl recommend MODEL --engines {text}"
            );
        }
        if let Some(other) = meant::value_of_another("engine", text) {
            return other;
        }
        if let Some(instead) = habits::tip("engines", "*", &text.to_ascii_lowercase()) {
            return instead.to_owned();
        }
        let keys: Vec<_> = Engine::ALL.iter().map(|engine| engine.key()).collect();
        let near = Near::of(text, keys.iter().copied());
        near.hint(&format!(
            "{} one of {}",
            if near.is_empty() { "expected" } else { "Expected" },
            keys.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_made_whole_and_a_key_is_found() {
        let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
        assert_eq!(model(file.path().to_str().unwrap()).unwrap(), json!({"path": file.path()}));
        assert!(model("./Cargo.toml").unwrap()["path"].as_str().unwrap().starts_with('/'));
        assert!(model("b.gguf").unwrap_err().to_string().contains("there is no file"));
        assert_eq!(model("TinyLlama-1.1B").unwrap(), json!("tinyllama-1.1b"));
        assert!(model("tinylama").unwrap_err().to_string().contains("tinylama"));
    }

    #[test]
    fn whatever_option_is_given_is_named() {
        let attention = AttentionArgs { window: Some(4), ..AttentionArgs::default() };
        assert_eq!(given(&attention).collect::<Vec<_>>(), ["--window"]);
        let speculative = SpeculativeArgs { accepted_per_step: Some(2.0), ..SpeculativeArgs::default() };
        let model = ModelArgs { n_cpu_moe: Some(0), speculative, ..ModelArgs::default() };
        assert_eq!(given(&model).collect::<Vec<_>>(), ["--accepted-per-step", "--n-cpu-moe"]);
        assert_eq!(given(&ModelArgs::default()).next(), None);
    }

    #[test]
    fn quantities_are_read_with_and_without_units() {
        assert_eq!(seconds("280us"), Ok(280.0 * 1e-6));
        assert_eq!(seconds("2"), Ok(2.0));
        assert_eq!(seconds("2min"), Ok(120.0));
        assert_eq!(watts("900mW"), Ok(0.9));
        assert_eq!([count("4k"), count("1M")], [Ok(4096), Ok(1 << 20)]);
        assert_eq!(bytes("8GB"), Ok(8e9));
        assert_eq!(bytes("8 GiB"), Ok(8_589_934_592.0));
        assert_eq!(bytes("8000000000"), Ok(8e9));
        assert!(
            bytes("8G").is_err() && bytes("-1GB").is_err() && seconds("2x").is_err() && count("k").is_err()
        );
        assert_eq!(ratio("3%"), Ok(0.03));
        assert_eq!(ratio("0.03"), Ok(0.03));
        assert_eq!(seconds("1.5 ms"), Ok(1.5e-3));
        for (text, meant) in [
            ("1,5W", "write 1.5W"),
            ("15watts", "write 15W"),
            ("15 Watt", "write 15W"),
            ("1.000,5W", "write 1000.5W"),
        ] {
            assert!(watts(text).unwrap_err().ends_with(meant), "{text}: {:?}", watts(text));
        }
        for (text, meant) in [
            ("8gb", "8GB or 8GiB"),
            ("8192M", "8192MB or 8192MiB"),
            ("8Gi", "8GiB"),
            ("16 gig", "16GB or 16GiB"),
        ] {
            assert!(bytes(text).unwrap_err().ends_with(meant), "{text}: {:?}", bytes(text));
        }
        assert!(seconds("50msec").unwrap_err().ends_with("write 50ms"));
        assert!(positive("20tok/s").unwrap_err().ends_with("write 20"));
        assert!(ratio("5pct").unwrap_err().ends_with("write 5%"));
        assert!(megahertz("1.02").unwrap_err().ends_with("write 1.02GHz"));
        assert!(watts("banana").unwrap_err().ends_with(": 15W"));
        for wrong in ["0", "0s", "-1ms", "NaNs", "infs", "us", "", "1e-400s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_whole_numbers() {
        assert_eq!(count("4096"), Ok(4096));
        for (text, meant) in
            [("4,096", "4096"), ("4_096", "4096"), ("1e3", "1000"), ("4kb", "4096"), ("1 M", "1048576")]
        {
            assert!(
                count(text).unwrap_err().ends_with(&format!("write {meant}")),
                "{text}: {:?}",
                count(text)
            );
        }
        for wrong in ["0", "-1", "1e18", "NaN", "4MB", "0k", "4096.0", "99999999999999999999", ""] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn batch_ranges_include_both_ends() {
        assert_eq!(batch_range("8"), Ok((8, 8)));
        assert_eq!(batch_range("1..32"), Ok((1, 32)));
        assert_eq!(batch_range("1..=32"), Ok((1, 32)));
        assert!(batch_range("32..1").is_err());
        assert!(batch_range("0..1").is_err());
        for other in ["1-8", "8-1", "1:8", "1...8"] {
            assert_eq!(
                batch_range(other),
                Err("expected a range with two points: 1..8".to_owned()),
                "{other}"
            );
        }
        assert_eq!(batch_range("8..1"), Err("expected the smaller number first: 1..8".to_owned()));
    }

    #[test]
    fn one_size_stands_for_a_square_or_for_the_rows() {
        assert_eq!(shape(Kind::Gemv, "1024").unwrap(), Op::Gemv { n: 1024, k: 1024 });
        assert_eq!(shape(Kind::Gemv, "2x3").unwrap(), Op::Gemv { n: 2, k: 3 });
        assert_eq!(shape(Kind::Gemm, "8").unwrap(), Op::Gemm { m: 8, n: 4096, k: 4096 });
        assert_eq!(shape(Kind::Gemm, "8x2x3").unwrap(), Op::Gemm { m: 8, n: 2, k: 3 });
        assert!(shape(Kind::Gemm, "8x2").is_err());
    }
}
