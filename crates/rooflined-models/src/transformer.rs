//! Costs of running a language model: passes over its layers, each a list of operations by class.
//!
//! Formulas count a multiply-add as two operations. `T` are the new tokens of a pass over all its sequences, `B` the
//! sequences, `b` the bytes of an element:
//!
//! * a matrix of `n x k`: `2 T n k` operations, its bytes once a pass, inputs and outputs `T (k + n) b`;
//! * experts: of `E` a token passes `k`; `T` tokens read `E (1 - (1 - k/E)^T)` of them ([`Routing`]), and compute with
//!   `k` each;
//! * causal attention: `4 heads head_dim` operations for every query and the keys it sees; the cache once a pass;
//! * latent attention decodes in the absorbed form, `2 heads (2 rank + rope)` operations a key, and reads
//!   `rank + rope` elements a token and layer; a prompt is computed with whole heads;
//! * linear mixers read and write their state once a pass, whatever the context; where tokens are verified, after each of
//!   them, since any may be taken back;
//! * norms, rotation, activation, residuals move bytes only;
//! * sampling reads the logits of one token of every sequence;
//! * speculative decoding verifies `n` drafted tokens and one more of every sequence in a pass, and moves on by those
//!   that were accepted and that one; what drafts makes `n` passes of one token before each;
//! * a vision tower passes [`PATCHES_PER_IMAGE_TOKEN`] patches for every token of an image.
//!
//! Beside what a pass is assumed to cost stands the [`Least`] that any implementation has to do.
//!
//! [`Routing`]: super::model::Routing

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::allocation::{Allocation, Room};
use super::architecture::{Architecture, Cache, FeedForward, Layer, Linear, Mixer};
use super::block::Block;
use super::class::Class;
use super::compute_buffer::compute_buffer;
use super::model::Model;
use rooflined_core::keyed;
use rooflined_core::operation::{Cost, visible_keys};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Flops};

/// Most tokens of a prompt, a context or an answer.
pub const MAX_TOKENS: u64 = 1 << 26;
/// Most sequences at once.
pub const MAX_BATCH: u64 = 1 << 16;
/// Tokens of a prompt that one pass takes where nothing is known of prompts: the default of vLLM and llama.cpp.
pub const USUAL_PASS: u64 = 2048;
/// Most tokens drafted at once.
pub const MAX_DRAFT_TOKENS: u64 = 256;
/// Patches that a tower passes for each token it hands on: Qwen2-VL merges two by two (arXiv 2409.12191), and so does
/// InternVL (2404.16821). LLaVA merges none, Gemma 3 four by four.
pub const PATCHES_PER_IMAGE_TOKEN: u64 = 4;

keyed! {
    /// Which part of generating text.
    Phase {
        /// A prompt is read.
        Prefill = "prefill",
        /// One token a sequence is added.
        Decode = "decode",
        /// A prompt is read and an answer of some length written: time to first token and time per token.
        Serve = "serve",
    }
}

keyed! {
    /// What a model is asked for.
    #[derive(Default)]
    Task {
        /// Text.
        #[default]
        Generate = "generate",
        /// A vector for every document.
        Embed = "embed",
        /// A score for every document, which holds the query too.
        Rerank = "rerank",
    }
}

impl Task {
    /// What a model was made for.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        match model.is_encoder() {
            true if model.architecture.departures.ranks => Self::Rerank,
            true => Self::Embed,
            false => Self::Generate,
        }
    }
}

keyed! {
    /// What drafts tokens ahead.
    #[derive(Default)]
    DraftKind {
        /// A smaller model.
        Draft = "draft",
        /// A head of the model itself, which predicts further tokens.
        Mtp = "mtp",
        /// Text that came before, at no cost.
        #[default]
        Ngram = "ngram",
    }
}

/// Tokens are drafted, and verified together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Speculative {
    #[serde(default)]
    pub kind: DraftKind,
    /// Drafted for every sequence and step.
    pub draft_tokens: u64,
    /// Of those, how many are accepted in the mean; every step adds one more.
    pub accepted_per_step: f64,
}

impl Speculative {
    /// Of `draft_tokens` each is accepted with this chance where the one before it was.
    #[must_use]
    pub fn with_acceptance(kind: DraftKind, draft_tokens: u64, ratio: f64) -> Self {
        let (mut accepted_per_step, mut chance) = (0.0, 1.0);
        for _ in 0..draft_tokens.min(MAX_DRAFT_TOKENS) {
            chance *= ratio;
            accepted_per_step += chance;
        }
        Self { kind, draft_tokens, accepted_per_step }
    }
}

/// What of a model stays in the memory of the CPU, beside a card that has its own. Both count from the first layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Layers whose experts stay there.
    pub cpu_moe_layers: u64,
    /// Layers that stay there with all that they have.
    pub cpu_layers: u64,
}

impl Offload {
    /// Of all layers the share that stays there.
    fn of_layers(self, model: &Model) -> f64 {
        let all = model.architecture.layers.len() as u64;
        f(self.cpu_layers.min(all)) / f(all.max(1))
    }

    /// Of the weights of a class the share that stays there.
    fn of_weights(self, model: &Model, class: Class) -> f64 {
        match class {
            Class::Expert => {
                let first = self.cpu_moe_layers.max(self.cpu_layers);
                let layers = model.architecture.layers.iter().enumerate();
                let with =
                    layers.filter(|(_, layer)| matches!(layer.feed_forward, FeedForward::Experts { .. }));
                let (all, there) = with.fold((0, 0), |(all, there), (index, _)| {
                    (all + 1, there + u64::from((index as u64) < first))
                });
                f(there) / f(all.max(1))
            }
            Class::Embedding | Class::Head | Class::Tower | Class::Draft => 0.0,
            _ => self.of_layers(model),
        }
    }
}

/// What is asked of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub phase: Phase,
    /// Documents that are embedded or ranked are prompts from which no token follows.
    #[serde(default)]
    pub task: Task,
    pub batch: u64,
    /// Tokens in the cache of every sequence before the prompt or the answer.
    pub context_tokens: u64,
    /// Tokens of every prompt.
    pub prompt_tokens: u64,
    /// Tokens of every answer; 0 for a decode of one step, which fills the context.
    pub output_tokens: u64,
    /// Tokens that the cache of every sequence has room for, where that is more than the run fills.
    #[serde(default)]
    pub window_tokens: u64,
    /// How memory is set aside: the habit of an engine.
    #[serde(default)]
    pub allocation: Allocation,
    /// Whether the prompts of several sequences take turns in passes of one prompt's size: likewise a habit.
    #[serde(default)]
    pub takes_turns: bool,
    /// Tokens of images, which every prompt has beside `prompt_tokens`.
    #[serde(default)]
    pub image_tokens: u64,
    /// Tokens that are not computed because they are cached: of the prompt, and of the context of a decode those that
    /// all sequences share.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Tokens of a sequence that one pass of the prompt takes, where that is settled.
    pub chunk_tokens: Option<u64>,
    /// The same where nothing is settled: the habit of an engine, which others need not share. `None` = all of it.
    #[serde(default)]
    pub usual_chunk_tokens: Option<u64>,
    /// Copies of what a sequence cannot roll back that an engine keeps where prompts are served, in the memory of the model:
    /// [`Model::checkpoint_bytes`] each.
    #[serde(default)]
    pub checkpoints: u64,
    #[serde(default)]
    pub speculative: Option<Speculative>,
    #[serde(default)]
    pub offload: Offload,
    /// Storage of inputs and outputs.
    pub activations: WeightFormat,
    /// Storage of keys and values.
    pub kv_cache: WeightFormat,
}

impl Request {
    /// One token for one sequence after `context_tokens`, with a 16-bit cache.
    #[must_use]
    pub const fn decode(context_tokens: u64) -> Self {
        Self {
            phase: Phase::Decode,
            task: Task::Generate,
            batch: 1,
            context_tokens,
            prompt_tokens: 0,
            output_tokens: 1,
            window_tokens: 0,
            allocation: Allocation::Exact,
            takes_turns: false,
            image_tokens: 0,
            cached_tokens: 0,
            chunk_tokens: None,
            usual_chunk_tokens: None,
            checkpoints: 0,
            speculative: None,
            offload: Offload { cpu_moe_layers: 0, cpu_layers: 0 },
            activations: WeightFormat::Fp16,
            kv_cache: WeightFormat::Fp16,
        }
    }

    /// A prompt of one sequence into an empty 16-bit cache.
    #[must_use]
    pub const fn prefill(prompt_tokens: u64) -> Self {
        Self { phase: Phase::Prefill, prompt_tokens, output_tokens: 0, ..Self::decode(0) }
    }

    /// A prompt and its answer.
    #[must_use]
    pub const fn serve(prompt_tokens: u64, output_tokens: u64) -> Self {
        Self { phase: Phase::Serve, prompt_tokens, output_tokens, ..Self::decode(0) }
    }

    /// Tokens in the cache of a sequence at the end.
    #[must_use]
    pub const fn final_tokens(&self) -> u64 {
        let context = self.context_tokens;
        match self.phase {
            Phase::Prefill => context.saturating_add(self.whole_prompt()),
            Phase::Decode => context.saturating_add(self.output_tokens),
            Phase::Serve => context.saturating_add(self.whole_prompt()).saturating_add(self.output_tokens),
        }
    }

    /// Tokens that the cache of a sequence has room for.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.final_tokens().max(self.window_tokens)
    }

    /// Tokens that an engine allocates of the cache of a sequence.
    #[must_use]
    pub fn allocated_tokens(&self) -> u64 {
        self.allocation.padded(self.window())
    }

    /// What an engine is started with room for; its physical batch is llama.cpp's `-ub`.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            allocation: self.allocation,
            slots: self.batch,
            tokens: self.allocated_tokens(),
            physical_batch: self
                .chunk_tokens
                .or(self.usual_chunk_tokens)
                .unwrap_or(USUAL_PASS)
                .max(self.batch),
        }
    }

    /// Documents that are read; `None` where text is generated.
    #[must_use]
    pub fn documents(&self) -> Option<u64> {
        (self.task != Task::Generate).then_some(self.batch)
    }

    /// Tokens of the largest pass over all sequences, for which an engine keeps room.
    #[must_use]
    pub fn largest_pass(&self) -> u64 {
        let prompt = match self.phase {
            // A server that is asked to decode reads prompts all the same.
            Phase::Decode => {
                let usual = self.usual_chunk_tokens.map_or(USUAL_PASS, |usual| usual.min(USUAL_PASS));
                self.chunk_tokens.unwrap_or(usual).min(self.window())
            }
            Phase::Prefill | Phase::Serve => self.chunk(),
        };
        let prompts = if self.takes_turns { 1 } else { self.batch };
        prompts.saturating_mul(prompt).max(self.batch.saturating_mul(self.verified_tokens()))
    }

    /// Tokens of every prompt with those of its images.
    #[must_use]
    pub const fn whole_prompt(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.image_tokens)
    }

    /// Tokens of every prompt that have to be computed.
    const fn computed_prompt(&self) -> u64 {
        self.whole_prompt().saturating_sub(self.cached_tokens)
    }

    /// Tokens that one pass of the prompt takes of every sequence.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        let prompt = self.computed_prompt().max(1);
        self.chunk_tokens.or(self.usual_chunk_tokens).unwrap_or(prompt).clamp(1, prompt)
    }

    /// The request to the model that drafts for this one.
    #[must_use]
    pub const fn of_draft(&self) -> Self {
        let offload = Offload { cpu_moe_layers: 0, cpu_layers: 0 };
        Self { speculative: None, offload, checkpoints: 0, image_tokens: 0, ..*self }
    }

    /// Tokens that a pass of a decode takes of every sequence: the last one, and those drafted.
    #[must_use]
    pub fn verified_tokens(&self) -> u64 {
        1 + self.speculative.map_or(0, |speculative| speculative.draft_tokens)
    }

    /// Tokens that a pass of a decode adds to every sequence, in the mean.
    #[must_use]
    pub fn tokens_per_step(&self) -> f64 {
        1.0 + self.speculative.map_or(0.0, |speculative| speculative.accepted_per_step)
    }

    /// Tokens that a run counts over all sequences: all of the prompt, cached or not, or all of the answer.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        let each = match self.phase {
            Phase::Prefill => f(self.whole_prompt()),
            Phase::Decode => f(self.steps(self.generated())) * self.tokens_per_step(),
            Phase::Serve => f(self.output_tokens),
        };
        f(self.batch) * each
    }

    /// Passes that add `tokens` to every sequence.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no more than the tokens, which are bounded by MAX_TOKENS"
    )]
    fn steps(&self, tokens: u64) -> u64 {
        match self.speculative {
            Some(_) => ((f(tokens) / self.tokens_per_step()).round() as u64).max(1),
            None => tokens,
        }
    }

    /// Tokens that a decode adds: at least one.
    const fn generated(&self) -> u64 {
        if self.output_tokens == 0 { 1 } else { self.output_tokens }
    }

    /// Checks every count.
    ///
    /// # Errors
    /// Names the first field that cannot be.
    pub fn validate(&self) -> Result<(), InvalidRequest> {
        let prompt = self.phase != Phase::Decode;
        let within = |field, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(InvalidRequest { field, value: f(value), least: f(least), most: f(most) })
        };
        within("batch", self.batch, 1, MAX_BATCH)?;
        within("image_tokens", self.image_tokens, 0, MAX_TOKENS)?;
        within("prompt_tokens", self.prompt_tokens, (prompt && self.image_tokens == 0).into(), MAX_TOKENS)?;
        within("output_tokens", self.output_tokens, (self.phase == Phase::Serve).into(), MAX_TOKENS)?;
        within("context_tokens", self.context_tokens, 0, MAX_TOKENS)?;
        // The last token of a prompt is computed: nothing else tells the next.
        let cacheable = if prompt { self.whole_prompt() - 1 } else { self.context_tokens };
        within("cached_tokens", self.cached_tokens, 0, cacheable)?;
        within("chunk_tokens", self.chunk_tokens.unwrap_or(1), 1, MAX_TOKENS)?;
        let Some(speculative) = self.speculative else { return Ok(()) };
        within("speculative.draft_tokens", speculative.draft_tokens, 1, MAX_DRAFT_TOKENS)?;
        let (value, most) = (speculative.accepted_per_step, f(speculative.draft_tokens));
        if (0.0..=most).contains(&value) {
            return Ok(());
        }
        Err(InvalidRequest { field: "speculative.accepted_per_step", value, least: 0.0, most })
    }

    /// The most tokens that `model` was made for, where the run takes more; `None` where it has room, or nobody says how many.
    #[must_use]
    pub fn exceeds(&self, model: &Model) -> Option<u64> {
        model.architecture.context_tokens.filter(|limit| self.final_tokens() > *limit)
    }

    /// What to know before relying on the answer, such as a context beyond what the model was made for.
    #[must_use]
    pub fn warnings(&self, model: &Model) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(limit) = self.exceeds(model) {
            let (tokens, name) = (self.final_tokens(), &model.name);
            warnings.push(format!(
                "{tokens} tokens of context are more than the {limit} that {name} was made for"
            ));
        }
        let has_tower = model.weights.iter().any(|group| group.class == Class::Tower);
        if self.phase != Phase::Decode && self.image_tokens > 0 && !has_tower {
            warnings.push(format!(
                "the time of the vision tower is not counted: {} is known without one; give its files as path",
                model.name
            ));
        }
        warnings
    }
}

/// A count that cannot be.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} is {value}; it must lie between {least} and {most}")]
pub struct InvalidRequest {
    pub field: &'static str,
    pub value: f64,
    pub least: f64,
    pub most: f64,
}

/// What an operation is, for those who know what it costs beside work and traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Rows of the embedding table.
    Embed,
    /// A product with weights of this class.
    Matrix(Class),
    /// Softmax attention over the cache.
    Attention,
    /// The state of linear mixers.
    State,
    /// Norms, rotation, activation, residuals.
    Elementwise,
    Sample,
}

impl Kind {
    /// The name for people and programs.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Matrix(class) => class.key(),
            Self::Attention => "attention",
            Self::State => "state",
            Self::Elementwise => "elementwise",
            Self::Sample => "sample",
        }
    }
}

/// Shape of one of the products that an operation consists of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shape {
    /// Rows of the input: tokens that share the matrix.
    pub m: f64,
    /// Length of the output.
    pub n: u64,
    /// Length of the input.
    pub k: u64,
}

/// What every implementation has to do: sequences may be routed to the same experts, activations and new keys and values
/// may stay on the chip, a prompt may be passed at once, and scores may be computed in anything.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Least {
    /// Operations of products with weights.
    pub work: Flops,
    /// Weights, and cached keys, values and states.
    pub traffic: Bytes,
}

impl Least {
    const NOTHING: Self = Self { work: Flops::ZERO, traffic: Bytes::ZERO };
}

/// All operations of one kind, storage and shape in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OpCost {
    pub kind: Kind,
    /// How their weights are stored; `None` without weights.
    pub block: Option<Block>,
    /// The shape of one of them; `None` where it is no product.
    pub shape: Option<Shape>,
    pub count: f64,
    /// What they cost together. `weights` are those read and dequantized.
    pub cost: Cost,
    pub least: Least,
}

/// Tokens from which llama.cpp copies weights of the CPU's memory to the card and multiplies there (`min_batch_size` of ggml-cuda's
/// offloaded operations).
const LEAST_COPIED: f64 = 32.0;

/// What of a pass lies in the memory of the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostShare {
    /// Weights, and what is read beside them.
    pub traffic: Bytes,
    /// Layers for which activations go there and come back.
    pub crossings: f64,
    /// Whether the weights are copied to the card, which computes everything.
    pub is_copied: bool,
}

/// One pass over all layers, or the mean of several alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pass {
    /// How many passes of this kind there are.
    pub repeats: u64,
    pub sequences: u64,
    /// New tokens of every sequence.
    pub tokens: u64,
    /// Tokens in the cache of every sequence before them, in the mean.
    pub context_tokens: f64,
    /// Whether these are a part of the prompt.
    pub prompt: bool,
    /// Layers passed; none of them by images in a tower.
    pub layers: u64,
    /// What of it is not on the card, and not in `ops` unless it is copied there.
    pub host: HostShare,
    pub ops: Vec<OpCost>,
}

/// All that a request makes a model do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Passes of the prompt: images in the tower, full chunks, and what remains. Empty for a decode.
    pub prefill: Vec<Pass>,
    /// Passes that add to every sequence, averaged over the contexts they meet; `None` for a prefill.
    pub decode: Option<Pass>,
    /// What the model that drafts for it does; `None` where nothing is drafted by a model.
    pub draft: Option<Box<Self>>,
}

#[expect(clippy::cast_precision_loss, reason = "counts are bounded by MAX_TOKENS and MAX_WIDTH")]
const fn f(value: u64) -> f64 {
    value as f64
}

impl Run {
    /// What `request` makes `model` do.
    ///
    /// # Errors
    /// Names the field of the request that cannot be.
    pub fn new(model: &Model, request: &Request) -> Result<Self, InvalidRequest> {
        request.validate()?;
        let mut run = Self::alone(model, request);
        run.draft = request.speculative.zip(model.drafting.by.as_deref()).map(|(speculative, by)| {
            let mut draft = Self::alone(&by.model, &request.of_draft());
            // One pass for every drafted token, before each pass that verifies them.
            if let Some((of, verifies)) = draft.decode.as_mut().zip(run.decode.as_ref()) {
                of.repeats = verifies.repeats.saturating_mul(speculative.draft_tokens);
            }
            Box::new(draft)
        });
        Ok(run)
    }

    /// Its own passes, without those of what drafts.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        self.prefill.iter().chain(&self.decode)
    }

    /// What the model does itself.
    fn alone(model: &Model, request: &Request) -> Self {
        let layers = &DistinctLayers::of(&model.architecture);
        let decode = |context, count| decode_pass(model, layers, request, context, count);
        let prefill = || prefill_passes(model, layers, request);
        match request.phase {
            Phase::Prefill => Self { prefill: prefill(), decode: None, draft: None },
            Phase::Decode => Self {
                prefill: Vec::new(),
                decode: Some(decode(request.context_tokens, request.generated())),
                draft: None,
            },
            Phase::Serve => Self {
                prefill: prefill(),
                draft: None,
                // The first token comes from the prompt's last pass.
                decode: (request.output_tokens > 1).then(|| {
                    decode(request.context_tokens + request.whole_prompt(), request.output_tokens - 1)
                }),
            },
        }
    }
}

/// The layers of a model, equal ones together, each with how often, in the order of their first.
struct DistinctLayers {
    mixers: Vec<(Mixer, f64)>,
    layers: Vec<(Layer, f64)>,
}

impl DistinctLayers {
    fn of(architecture: &Architecture) -> Self {
        let layers = distinct(architecture.layers.iter().map(|layer| (*layer, 1.0)));
        let mixers = distinct(layers.iter().map(|(layer, count)| (layer.mixer, *count)));
        Self { mixers, layers }
    }
}

impl Pass {
    /// What all operations of one pass cost.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let sum = |part: fn(&Cost) -> f64| self.ops.iter().map(|op| part(&op.cost)).sum();
        Cost {
            work: Flops(sum(|cost| cost.work.get())),
            traffic: Bytes(sum(|cost| cost.traffic.get())),
            weights: sum(|cost| cost.weights),
        }
    }
}

/// Passes of a prompt: every full chunk is alike but for its attention, which is averaged.
fn prefill_passes(model: &Model, layers: &DistinctLayers, request: &Request) -> Vec<Pass> {
    let (prompt, chunk) = (request.computed_prompt(), request.chunk());
    let (full, rest) = (prompt / chunk, prompt % chunk);
    let start = request.context_tokens + request.cached_tokens;
    let part = |tokens| Part::Prompt { share: f(tokens) / f(prompt), start };
    let mut passes: Vec<Pass> = tower_pass(model, request).into_iter().collect();
    let contexts = Contexts { first: start, step: f(chunk), count: full };
    passes.push(pass((model, layers), request, contexts, chunk, part(chunk)));
    if rest > 0 {
        let contexts = Contexts { first: start + full * chunk, step: 0.0, count: 1 };
        passes.push(pass((model, layers), request, contexts, rest, part(rest)));
    }
    passes
}

fn decode_pass(model: &Model, layers: &DistinctLayers, request: &Request, context: u64, tokens: u64) -> Pass {
    let contexts = Contexts { first: context, step: request.tokens_per_step(), count: request.steps(tokens) };
    pass((model, layers), request, contexts, request.verified_tokens(), Part::Answer)
}

/// The images of all prompts in the model's vision tower; `None` without either. Its attention is not counted.
fn tower_pass(model: &Model, request: &Request) -> Option<Pass> {
    let images = request.image_tokens.min(request.computed_prompt());
    let tokens = f(request.batch) * f(images);
    let towers = model.weights.iter().filter(|group| group.class == Class::Tower && group.bytes > 0);
    let ops: Vec<OpCost> = towers
        .map(|group| {
            let patches = tokens * f(PATCHES_PER_IMAGE_TOKEN);
            let bytes = Bytes(f(group.bytes));
            let product = group.rows > 1 && group.parameters > 0;
            let work = |rows: f64| Flops(if product { 2.0 * rows * f(group.parameters) } else { 0.0 });
            OpCost {
                kind: Kind::Matrix(group.class),
                block: Some(group.block),
                shape: product.then_some(Shape { m: patches, n: group.rows, k: group.columns }),
                count: f(group.matrices),
                cost: Cost { work: work(patches), traffic: bytes, weights: f(group.parameters) },
                least: Least { work: work(tokens), traffic: bytes },
            }
        })
        .collect();
    let pass = Pass {
        repeats: 1,
        sequences: request.batch,
        tokens: images,
        context_tokens: 0.0,
        prompt: true,
        layers: 0,
        host: HostShare::default(),
        ops,
    };
    (images > 0 && !pass.ops.is_empty()).then_some(pass)
}

/// What a pass is for.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A share of the tokens of a prompt that are computed, after `start` tokens.
    Prompt { share: f64, start: u64 },
    /// Tokens after it.
    Answer,
}

impl Part {
    /// Share of weights of a class that the pass has to read, and share of the work with them that it has to do.
    fn least(self, model: &Model, request: &Request, class: Class, tokens: f64) -> (f64, f64) {
        let routed = match class {
            Class::Expert => model.routing().map_or(1.0, |routing| routing.share_of_one()),
            _ => model.share_read(class, tokens),
        };
        let Self::Prompt { share, .. } = self else { return (routed, 1.0) };
        // The head takes the last token of all, and in the last layer only that one passes more than keys and values.
        let layers = model.architecture.layers.len().max(1) as u64;
        let work = match class {
            Class::Head => share,
            Class::Mlp | Class::Expert | Class::SharedExpert | Class::AttentionQ | Class::AttentionOut => {
                1.0 - 1.0 / f(layers)
            }
            _ => 1.0,
        };
        let settled = request.chunk_tokens.is_some() && class != Class::Head;
        (routed * if settled { 1.0 } else { share }, work)
    }
}

/// The contexts that passes of one kind meet: an arithmetic series.
#[derive(Debug, Clone, Copy)]
struct Contexts {
    first: u64,
    step: f64,
    count: u64,
}

impl Contexts {
    fn mean(self) -> f64 {
        f(self.first) + self.step * (f(self.count) - 1.0) / 2.0
    }

    /// Mean over the passes of the pairs of a query and a key it sees. Where the passes follow each other without a gap
    /// or an overlap, their sum is that of one pass over all their tokens; else it is taken at their mean.
    fn mean_pairs(self, tokens: u64, window: Option<u64>) -> f64 {
        if (self.step - f(tokens)).abs() < 1e-9 {
            let all = f(tokens) * f(self.count);
            visible_keys(all, f(self.first), window.map(f)) / f(self.count)
        } else {
            visible_keys(f(tokens), self.mean(), window.map(f))
        }
    }

    /// Mean over the passes of the cached tokens that any of their `tokens` queries sees: what came before and the
    /// new ones, or what is left of them in a window that moves with the queries.
    fn mean_read(self, tokens: u64, window: Option<u64>) -> f64 {
        let Some(window) = window else { return self.mean() + f(tokens) };
        let most = f(window) + f(tokens) - 1.0;
        // Passes before the window is full read all; those are the first of the series.
        let full_at = (most - f(tokens) - f(self.first)) / self.step.max(1.0);
        let growing = full_at.ceil().clamp(0.0, f(self.count));
        let sum = growing * (f(self.first) + f(tokens)) + self.step * growing * (growing - 1.0) / 2.0;
        (sum + (f(self.count) - growing) * most) / f(self.count)
    }
}

fn pass(
    (model, layers): (&Model, &DistinctLayers),
    request: &Request,
    contexts: Contexts,
    tokens: u64,
    part: Part,
) -> Pass {
    let total = f(request.batch) * f(tokens);
    // Tokens of all sequences that end in logits.
    let prompt = matches!(part, Part::Prompt { .. });
    let told = if prompt { f(request.batch) } else { total };
    let mut ops = Vec::with_capacity(model.weights.len() + 6);
    matrix_ops(model, request, [total, told], part, &mut ops);
    mixer_ops((model, layers), request, contexts, tokens, part, &mut ops);
    let hidden = model.architecture.hidden;
    let mut moving = |kind, block, count, work: f64, traffic| {
        let cost = Cost { work: Flops(work), traffic, weights: 0.0 };
        ops.push(OpCost { kind, block, shape: None, count, cost, least: Least::NOTHING });
    };
    let row = Block::of(request.activations);
    moving(Kind::Embed, Some(row), 1.0, 0.0, request.activations.bytes(2.0 * total * f(hidden)));
    let (count, elements) = elementwise(model, layers, total);
    moving(Kind::Elementwise, None, count, 0.0, request.activations.bytes(elements));
    if request.task == Task::Generate && !model.is_encoder() {
        let logits = told * f(model.architecture.vocab);
        moving(Kind::Sample, None, 1.0, logits, Bytes(4.0 * logits));
    }
    let host = host_share(model, request, total, &mut ops);
    Pass {
        repeats: contexts.count,
        sequences: request.batch,
        tokens,
        context_tokens: contexts.mean(),
        prompt,
        layers: model.architecture.layers.len() as u64,
        host,
        ops,
    }
}

/// Takes out of `ops` what the CPU does in a pass of so many tokens.
fn host_share(model: &Model, request: &Request, tokens: f64, ops: &mut [OpCost]) -> HostShare {
    let offload = request.offload;
    if offload == Offload::default() {
        return HostShare::default();
    }
    let is_copied = tokens >= LEAST_COPIED;
    let mut traffic = Bytes::ZERO;
    for op in ops {
        let share = match op.kind {
            Kind::Matrix(class) => offload.of_weights(model, class),
            Kind::Attention | Kind::State | Kind::Elementwise => offload.of_layers(model),
            Kind::Embed | Kind::Sample => 0.0,
        };
        if is_copied {
            if matches!(op.kind, Kind::Matrix(_)) {
                traffic += op.cost.traffic * share;
            }
            continue;
        }
        traffic += op.cost.traffic * share;
        let rest = 1.0 - share;
        op.count *= rest;
        let Cost { work, traffic: moved, weights } = op.cost;
        op.cost = Cost { work: work * rest, traffic: moved * rest, weights: weights * rest };
        op.least = Least { work: op.least.work * rest, traffic: op.least.traffic * rest };
    }
    let experts = offload.cpu_moe_layers.saturating_sub(offload.cpu_layers);
    // Whole layers follow each other on the CPU: the activations come back once.
    let crossings = f(experts) + f(offload.cpu_layers.min(1));
    HostShare { traffic, crossings: if is_copied { 0.0 } else { crossings }, is_copied }
}

/// Products with weights. The head sees the tokens that are `told`; an expert sees its share of all.
fn matrix_ops(model: &Model, request: &Request, [tokens, told]: [f64; 2], part: Part, ops: &mut Vec<OpCost>) {
    let routing = model.routing();
    for group in &model.weights {
        let share = model.share_read(group.class, tokens);
        let is_left = group.class == Class::Head && request.task != Task::Generate;
        if share == 0.0 || group.bytes == 0 || is_left {
            continue;
        }
        let (m, used) = match (group.class, routing) {
            (Class::Head, _) => (told, 1.0),
            // Tokens times experts per token, over the experts that are read at all.
            (Class::Expert, Some(routing)) => (tokens * routing.share_of_one() / share, share),
            _ => (tokens, 1.0),
        };
        let matrices = f(group.matrices) * used;
        let parameters = f(group.parameters) * used;
        // Vectors and helpers are added or scale, which costs bytes and no products.
        let is_product = group.rows > 1 && group.parameters > 0;
        let (work, activations) = if is_product {
            (2.0 * m * parameters, request.activations.bytes(m * f(group.rows + group.columns) * matrices))
        } else {
            (0.0, Bytes::ZERO)
        };
        let (least_read, least_done) = part.least(model, request, group.class, tokens);
        ops.push(OpCost {
            kind: Kind::Matrix(group.class),
            block: Some(group.block),
            shape: is_product.then_some(Shape { m, n: group.rows, k: group.columns }),
            count: matrices,
            cost: Cost {
                work: Flops(work),
                traffic: Bytes(f(group.bytes) * share) + activations,
                weights: parameters,
            },
            least: Least { work: Flops(work * least_done), traffic: Bytes(f(group.bytes) * least_read) },
        });
    }
}

/// Attention and states, equal layers together.
fn mixer_ops(
    (model, layers): (&Model, &DistinctLayers),
    request: &Request,
    contexts: Contexts,
    tokens: u64,
    part: Part,
    ops: &mut Vec<OpCost>,
) {
    for &(mixer, count) in &layers.mixers {
        let (kind, cost, least) = match mixer {
            Mixer::None => continue,
            Mixer::Linear(linear) => {
                let is_answer = matches!(part, Part::Answer);
                let written = if is_answer { tokens } else { 1 };
                let cost = state_cost(model.architecture.hidden, &linear, request, tokens, written);
                // A prompt may begin with an empty state, and 16 bits of an element hold enough.
                let kept = if is_answer { 1.0 / f(1 + written) } else { 0.0 };
                (Kind::State, cost, cost.traffic * kept)
            }
            Mixer::Attention(_) | Mixer::Latent(_) => (
                Kind::Attention,
                attention_cost(&mixer, request, contexts, tokens, part),
                least_cache_read(&mixer, request, contexts, tokens, part),
            ),
        };
        ops.push(OpCost {
            kind,
            block: None,
            shape: None,
            count,
            cost: Cost {
                work: cost.work * count,
                traffic: cost.traffic * count,
                weights: cost.weights * count,
            },
            least: Least { work: Flops::ZERO, traffic: least * count },
        });
    }
}

/// What every implementation has to read of one layer's cache: what was there before, and what sequences share once.
fn least_cache_read(mixer: &Mixer, request: &Request, contexts: Contexts, tokens: u64, part: Part) -> Bytes {
    let (elements, window) = match *mixer {
        Mixer::Attention(a) => (f(a.kv_heads) * f(a.head_dim + a.value_dim), a.window),
        Mixer::Latent(l) => (f(l.kv_rank + l.rope_dim), l.window),
        Mixer::Linear(_) | Mixer::None => return Bytes::ZERO,
    };
    let (read, before, share) = match part {
        // Later passes find the rest of the prompt still on the chip.
        Part::Prompt { share, start } => (f(start.min(window.unwrap_or(start))), f(start), share),
        Part::Answer => (contexts.mean_read(tokens, window) - f(tokens), contexts.mean(), 1.0),
    };
    let own = read.min(before - f(request.cached_tokens)).max(0.0);
    request.kv_cache.bytes(elements * share * (f(request.batch) * own + (read - own).max(0.0)))
}

/// Values that repeat, each with how often, in the order of their first.
fn distinct<T: PartialEq>(values: impl Iterator<Item = (T, f64)>) -> Vec<(T, f64)> {
    let mut counted = Vec::new();
    for (value, times) in values {
        let same = |(known, _): &&mut (T, f64)| *known == value;
        match counted.iter_mut().find(same) {
            Some((_, count)) => *count += times,
            None => counted.push((value, times)),
        }
    }
    counted
}

/// Attention of one layer in the mean over the passes.
fn attention_cost(mixer: &Mixer, request: &Request, contexts: Contexts, tokens: u64, part: Part) -> Cost {
    let batch = f(request.batch);
    let (work, queries, read) = match *mixer {
        Mixer::Attention(a) => {
            let causal = contexts.mean_pairs(tokens, a.window);
            // Without a cache every token sees those after it too.
            let all = request.whole_prompt();
            let pairs = match a.cache {
                Cache::None => f(tokens) * f(a.window.map_or(all, |window| window.min(all))),
                Cache::Own | Cache::Reused => causal,
            };
            let read = contexts.mean_read(tokens, a.window);
            // QK^T and PV: two operations for every element of a key and of a value.
            let width = f(a.head_dim + a.value_dim);
            (2.0 * f(a.heads) * width * pairs, f(a.heads) * width, read * f(a.kv_heads) * width)
        }
        Mixer::Latent(l) => {
            let pairs = l.kept(contexts.mean_pairs(tokens, None), contexts.mean_pairs(tokens, l.window));
            let read = l.kept(contexts.mean_read(tokens, None), contexts.mean_read(tokens, l.window));
            let cached = f(l.kv_rank + l.rope_dim);
            let (rank, rope, heads) = (f(l.kv_rank), f(l.rope_dim), f(l.heads));
            if matches!(part, Part::Answer) {
                // Absorbed: scores against the latent and the position part, sums of latents.
                (2.0 * heads * (2.0 * rank + rope) * pairs, heads * (2.0 * rank + rope), read * cached)
            } else {
                // Whole heads: keys and values of the context are unfolded from the latent first.
                let width = f(l.nope_dim + l.rope_dim + l.value_dim);
                let unfold = 2.0 * contexts.mean() * rank * heads * f(l.nope_dim + l.value_dim);
                (2.0 * heads * width * pairs + unfold, heads * width, read * cached)
            }
        }
        Mixer::Linear(_) | Mixer::None => (0.0, 0.0, 0.0),
    };
    Cost {
        work: Flops(batch * work),
        traffic: request.activations.bytes(batch * f(tokens) * queries)
            + request.kv_cache.bytes(batch * read),
        weights: 0.0,
    }
}

/// The state of one layer, read once a pass and `written` so often.
fn state_cost(hidden: u64, linear: &Linear, request: &Request, tokens: u64, written: u64) -> Cost {
    let batch = f(request.batch);
    Cost {
        work: Flops(batch * f(tokens) * f(linear.work_per_token(hidden))),
        traffic: Bytes(f(1 + written) * batch * f(linear.state_bytes(hidden, request.allocation))),
        weights: 0.0,
    }
}

/// Kernels beside products, and elements that they move: two norms (in and out) and two residuals (two in, one out) a
/// layer, queries and keys rotated in place, the activation (gate and up in, one out).
fn elementwise(model: &Model, layers: &DistinctLayers, tokens: f64) -> (f64, f64) {
    let (hidden, gated) = (f(model.architecture.hidden), model.architecture.gated_mlp);
    let (mut kernels, mut elements) = (0.0, 2.0 * hidden);
    for &(Layer { mixer, feed_forward }, count) in &layers.layers {
        let around = |present: bool| if present { 5.0 * hidden } else { 0.0 };
        let rotated = match mixer {
            Mixer::Attention(a) => 2.0 * f((a.heads + a.kv_heads) * a.head_dim),
            Mixer::Latent(l) => 2.0 * f((l.heads + 1) * l.rope_dim),
            Mixer::Linear(_) | Mixer::None => 0.0,
        };
        let inner = match feed_forward {
            FeedForward::None => 0.0,
            FeedForward::Dense { intermediate } => f(intermediate),
            FeedForward::Experts { active, intermediate, shared_intermediate, .. } => {
                f(active) * f(intermediate) + f(shared_intermediate)
            }
        };
        let activation = if gated { 3.0 } else { 2.0 } * inner;
        let each = around(!matches!(mixer, Mixer::None)) + around(inner > 0.0) + rotated + activation;
        elements += count * each;
        kernels += count * 6.0;
    }
    (kernels, elements * tokens)
}

/// Memory that a model needs while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryFootprint {
    /// All weights of the file: what is not read is loaded all the same.
    pub weights: Bytes,
    /// Keys, values and states of every sequence at the end, and the copies that the engine keeps of earlier ones.
    pub kv_cache: Bytes,
    /// Inputs and outputs of the widest layer for the largest pass, and the logits: llama.cpp's compute buffer.
    pub activations: Bytes,
    /// What the engine takes for itself: contexts, kernels, work space.
    pub engine: Bytes,
    /// What lies in the memory of the CPU, beside a card with its own, and in none of the others.
    pub host: Bytes,
}

impl MemoryFootprint {
    /// What `request` makes `model` take, with an engine that takes `engine` for itself.
    #[must_use]
    pub fn new(model: &Model, request: &Request, engine: Bytes) -> Self {
        let batch = f(request.batch);
        let checkpoints = if request.whole_prompt() > 0 { request.checkpoints } else { 0 };
        let kept = model.checkpoint_bytes(request.kv_cache, request.allocation) * f(checkpoints);
        // A state for every token that may be taken back.
        let verified = f(request.verified_tokens());
        let states = model.state_bytes(request.allocation) * verified;
        let cache = model.allocated_cache(request.kv_cache, &request.room()) + states;
        let offload = request.offload;
        let away = model.weights.iter().map(|group| f(group.bytes) * offload.of_weights(model, group.class));
        let (away, cached) = (Bytes(away.sum()), (cache + kept) * batch);
        let cached_away = cached * offload.of_layers(model);
        let own = Self {
            weights: model.bytes() - away,
            kv_cache: cached - cached_away,
            host: away + cached_away,
            activations: activations(model, request),
            engine,
        };
        let Some(by) = model.drafting.by.as_deref().filter(|_| request.speculative.is_some()) else {
            return own;
        };
        let draft = Self::new(&by.model, &request.of_draft(), Bytes::ZERO);
        Self {
            weights: own.weights + by.loaded,
            kv_cache: own.kv_cache + draft.kv_cache,
            activations: own.activations + draft.activations,
            engine,
            host: own.host,
        }
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        self.weights + self.kv_cache + self.activations + self.engine
    }

    /// Whether it fits into `available` bytes: on unified memory what the kernel calls available, not what is installed.
    #[must_use]
    pub fn fits(&self, available: Bytes) -> bool {
        self.total() <= available
    }
}

/// What a pass computes in.
fn activations(model: &Model, request: &Request) -> Bytes {
    if request.allocation == Allocation::LlamaCpp {
        return compute_buffer(model, &request.room());
    }
    let widest =
        model.architecture.layers.iter().map(|layer| live_elements(model, layer)).fold(0.0, f64::max);
    let sampled = f(request.batch) * f(request.verified_tokens());
    let logits = Bytes(4.0 * sampled * f(model.architecture.vocab));
    request.activations.bytes(f(request.largest_pass()) * widest) + logits
}

/// Elements of one token that live at once in a layer: the residual, its normed copy, and queries with keys, values
/// and outputs, or gate, up and their product.
fn live_elements(model: &Model, layer: &Layer) -> f64 {
    let mixed = match layer.mixer {
        Mixer::Attention(a) => f(2 * a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim)),
        Mixer::Latent(l) => f(l.heads * (2 * (l.nope_dim + l.rope_dim) + 2 * l.value_dim)),
        Mixer::Linear(_) => 4.0 * f(model.architecture.hidden),
        Mixer::None => 0.0,
    };
    let inner = match layer.feed_forward {
        FeedForward::None => 0.0,
        FeedForward::Dense { intermediate } => 3.0 * f(intermediate),
        FeedForward::Experts { active, intermediate, shared_intermediate, .. } => {
            3.0 * (f(active) * f(intermediate) + f(shared_intermediate))
        }
    };
    2.0 * f(model.architecture.hidden) + mixed.max(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WeightGroup;
    use crate::recipe::Recipe;
    use crate::registry::models;
    use rooflined_core::operation::Op;
    use rooflined_core::precision::NumericFormat;

    fn model(key: &str, format: WeightFormat) -> Model {
        models().get(key).unwrap().model(Recipe::of(format))
    }

    fn find(pass: &Pass, kind: Kind) -> Cost {
        let ops = pass.ops.iter().filter(|op| op.kind == kind);
        ops.fold(Cost { work: Flops::ZERO, traffic: Bytes::ZERO, weights: 0.0 }, |sum, op| Cost {
            work: sum.work + op.cost.work,
            traffic: sum.traffic + op.cost.traffic,
            weights: sum.weights + op.cost.weights,
        })
    }

    /// Llama-3-8B in fp16: every weight but the embedding once, two operations each.
    #[test]
    fn a_decode_step_reads_every_weight_but_the_embedding_once() {
        let model = model("llama-3-8b", WeightFormat::Fp16);
        let pass = Run::new(&model, &Request::decode(0)).unwrap().decode.unwrap();
        let layer = 4096_u64 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336;
        let products = f(32 * layer + 128_256 * 4096);
        let norms = f(65 * 4096);
        let cost = pass.cost();
        let attention = find(&pass, Kind::Attention);
        let sample = find(&pass, Kind::Sample);
        assert_eq!(cost.work.get() - attention.work.get() - sample.work.get(), 2.0 * products);
        assert_eq!(cost.weights, products + norms);
        assert_eq!(model.bytes_per_token(), Bytes(2.0 * (products + norms)));
        // Everything else that moves is below a thousandth.
        let extra = cost.traffic.get() / model.bytes_per_token().get();
        assert!((1.0..1.001).contains(&extra), "{extra}");
    }

    /// The same attention as a bare operation; `None` for layers that are no plain attention.
    fn attention_op(mixer: &Mixer, request: &Request) -> Option<Op> {
        let Mixer::Attention(a) = mixer else { return None };
        Some(Op::Attention {
            batch: request.batch,
            heads: a.heads,
            kv_heads: a.kv_heads,
            query_tokens: if request.phase == Phase::Decode { 1 } else { request.prompt_tokens },
            context_tokens: request.context_tokens,
            head_dim: a.head_dim,
            window: a.window,
        })
    }

    /// What a request stores things in, as a bare operation takes it.
    const fn numeric_format(weights: WeightFormat, request: &Request) -> NumericFormat {
        let stored = NumericFormat::stored(weights);
        NumericFormat { activations: request.activations, kv_cache: request.kv_cache, ..stored }
    }

    #[test]
    fn attention_of_a_pass_is_that_of_the_bare_operation() {
        let model = model("mistral-7b-v0.1", WeightFormat::Fp16);
        let mixer = model.architecture.layers[0].mixer;
        for request in [
            Request::decode(1023),
            Request::decode(10_000),
            Request { batch: 4, ..Request::decode(4095) },
            Request::prefill(512),
            Request { context_tokens: 4000, ..Request::prefill(512) },
        ] {
            let op = attention_op(&mixer, &request).unwrap();
            let bare = op.cost(&numeric_format(WeightFormat::Fp16, &request));
            let run = Run::new(&model, &request).unwrap();
            let pass = run.decode.as_ref().or(run.prefill.first()).unwrap();
            let here = find(pass, Kind::Attention);
            assert_eq!(here.work, bare.work * 32.0, "{request:?}");
            assert_eq!(here.traffic, bare.traffic * 32.0, "{request:?}");
        }
    }

    /// Chunks and steps against the sum over each of them.
    #[test]
    fn means_over_chunks_and_steps_are_those_of_the_single_passes() {
        for key in ["gemma-3-1b", "llama-3.2-1b", "deepseek-v2-lite", "qwen3.5-0.8b"] {
            let model = model(key, WeightFormat::Fp16);
            let whole = Request { chunk_tokens: Some(100), context_tokens: 450, ..Request::prefill(1000) };
            let passes = Run::new(&model, &whole).unwrap().prefill;
            assert_eq!((passes.len(), passes[0].repeats), (1, 10));
            let single = |context| {
                let one = Request { context_tokens: context, ..Request::prefill(100) };
                find(&Run::new(&model, &one).unwrap().prefill[0], Kind::Attention)
            };
            let (mut work, mut traffic) = (0.0, 0.0);
            for index in 0..10 {
                let cost = single(450 + 100 * index);
                work += cost.work.get() / 10.0;
                traffic += cost.traffic.get() / 10.0;
            }
            let mean = find(&passes[0], Kind::Attention);
            assert!((mean.work.get() / work - 1.0).abs() < 1e-12, "{key}");
            assert!((mean.traffic.get() / traffic - 1.0).abs() < 1e-12, "{key}");

            let many = Request { output_tokens: 300, ..Request::decode(400) };
            let mean = find(&Run::new(&model, &many).unwrap().decode.unwrap(), Kind::Attention);
            let traffic: f64 = (0..300)
                .map(|index| {
                    let run = Run::new(&model, &Request::decode(400 + index)).unwrap();
                    find(&run.decode.unwrap(), Kind::Attention).traffic.get() / 300.0
                })
                .sum();
            assert!((mean.traffic.get() / traffic - 1.0).abs() < 1e-12, "{key}");
        }
    }

    #[test]
    fn a_prompt_that_chunks_do_not_divide_has_a_last_pass() {
        let model = model("llama-3.2-1b", WeightFormat::Q4KM);
        let request = Request { chunk_tokens: Some(512), ..Request::prefill(1300) };
        let passes = Run::new(&model, &request).unwrap().prefill;
        let shape: Vec<_> = passes.iter().map(|pass| (pass.repeats, pass.tokens)).collect();
        assert_eq!(shape, [(2, 512), (1, 276)]);
        // The weights are read again by every pass.
        let read: f64 = passes.iter().map(|pass| f(pass.repeats) * pass.cost().weights).sum();
        let once = Run::new(&model, &Request::prefill(1300)).unwrap().prefill[0].cost().weights;
        assert_eq!(read, 3.0 * once);
    }

    #[test]
    fn experts_are_read_as_often_as_chance_has_it_and_computed_as_routed() {
        let model = model("qwen3-30b-a3b", WeightFormat::Fp16);
        let experts = 48.0 * 128.0 * 3.0 * 2048.0 * 768.0;
        for batch in [1, 4, 32] {
            let pass = Run::new(&model, &Request { batch, ..Request::decode(0) }).unwrap().decode.unwrap();
            let cost = find(&pass, Kind::Matrix(Class::Expert));
            let tokens = f64::from(u32::try_from(batch).unwrap());
            let share = 1.0 - (1.0 - 8.0 / 128.0_f64).powf(tokens);
            assert!((cost.weights / (experts * share) - 1.0).abs() < 1e-12);
            assert!((cost.work.get() / (2.0 * tokens * experts * 8.0 / 128.0) - 1.0).abs() < 1e-12);
        }
    }

    /// DeepSeek: 512 + 64 elements a token and layer, absorbed.
    #[test]
    fn latent_attention_decodes_in_the_absorbed_form() {
        let model = model("deepseek-v3", WeightFormat::Fp8E4m3);
        let pass = Run::new(&model, &Request::decode(4095)).unwrap().decode.unwrap();
        let cost = find(&pass, Kind::Attention);
        assert_eq!(cost.work.get(), 61.0 * 2.0 * 128.0 * 4096.0 * (2.0 * 512.0 + 64.0));
        let queries = 128.0 * (2.0 * 512.0 + 64.0) * 2.0;
        assert_eq!(cost.traffic.get(), 61.0 * (4096.0 * 576.0 * 2.0 + queries));
        assert_eq!(model.kv_cache(4096, WeightFormat::Fp16), Bytes(61.0 * 4096.0 * 576.0 * 2.0));
    }

    #[test]
    fn a_state_costs_the_same_whatever_the_context() {
        let model = model("qwen3.5-35b-a3b", WeightFormat::Fp16);
        let at = |context| {
            find(&Run::new(&model, &Request::decode(context)).unwrap().decode.unwrap(), Kind::State)
        };
        assert_eq!(at(0), at(100_000));
        // 126 MB of matrices read and written, and the inputs of the convolution.
        let convolution = 2.0 * 30.0 * f((2 * 16 * 128 + 32 * 128) * 4 * 2);
        assert_eq!(at(0).traffic.get(), 125_829_120.0 + convolution);
    }

    #[test]
    fn windows_bound_the_cache() {
        let model = model("gemma-3-1b", WeightFormat::Fp16);
        let width = 2.0 * 256.0 * 2.0;
        assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16), Bytes(26.0 * width));
        assert_eq!(
            model.kv_cache(10_000, WeightFormat::Fp16),
            Bytes(width * (22.0 * 512.0 + 4.0 * 10_000.0))
        );
        assert_eq!(model.kv_cache(100, WeightFormat::Q8_0), Bytes(26.0 * 100.0 * 2.0 * 256.0 * 8.5 / 8.0));
    }

    #[test]
    fn serving_is_a_prompt_and_the_tokens_after_the_first() {
        let model = model("llama-3.2-1b", WeightFormat::Q4KM);
        let run = Run::new(&model, &Request::serve(512, 128)).unwrap();
        assert_eq!(run.prefill[0].tokens, 512);
        assert_eq!(run.decode.as_ref().unwrap().repeats, 127);
        assert!(Run::new(&model, &Request::serve(512, 1)).unwrap().decode.is_none());
    }

    fn least(pass: &Pass) -> [f64; 2] {
        let sum = |part: fn(&Least) -> f64| pass.ops.iter().map(|op| part(&op.least)).sum();
        [sum(|least| least.work.get()), sum(|least| least.traffic.get())]
    }

    fn least_of_prompt(model: &Model, request: &Request) -> [f64; 2] {
        let passes = Run::new(model, request).unwrap().prefill;
        passes.iter().fold([0.0, 0.0], |[work, traffic], pass| {
            let [more, moved] = least(pass).map(|part| part * f(pass.repeats));
            [work + more, traffic + moved]
        })
    }

    fn least_of_step(model: &Model, request: &Request) -> [f64; 2] {
        least(&Run::new(model, request).unwrap().decode.unwrap())
    }

    #[test]
    fn the_least_of_a_step_is_its_weights_and_what_was_cached() {
        let model = model("llama-3-8b", WeightFormat::Q4KM);
        let [work, traffic] = least_of_step(&model, &Request::decode(1000));
        let cache = 1000.0 * model.kv_bytes_per_token(WeightFormat::Fp16).get();
        assert!((traffic / (model.bytes_per_token().get() + cache) - 1.0).abs() < 1e-12);
        let products = 32.0 * f(4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336) + f(128_256 * 4096);
        assert_eq!(work, 2.0 * products);
        // Eight sequences have a cache each, but for what they share.
        let batch = Request { batch: 8, ..Request::decode(1000) };
        let own = least_of_step(&model, &batch)[1] - traffic;
        let shared = Request { cached_tokens: 900, ..batch };
        assert!((own / (7.0 * cache) - 1.0).abs() < 1e-9);
        assert!((least_of_step(&model, &shared)[1] - traffic - 0.7 * cache).abs() < 1e-6 * cache);
    }

    #[test]
    fn sequences_may_be_routed_to_the_same_experts() {
        let model = model("qwen3-30b-a3b", WeightFormat::Fp16);
        let one = least_of_step(&model, &Request::decode(0))[1];
        assert_eq!(least_of_step(&model, &Request { batch: 32, ..Request::decode(0) })[1], one);
        let [_, prompt] = least_of_prompt(&model, &Request::prefill(4096));
        assert!((prompt / one - 1.0).abs() < 1e-9, "{prompt} {one}");
    }

    #[test]
    fn chunks_read_the_weights_again_only_where_they_are_settled() {
        let model = model("llama-3.2-1b", WeightFormat::Q4KM);
        let whole = least_of_prompt(&model, &Request::prefill(1300));
        let usual = Request { usual_chunk_tokens: Some(512), ..Request::prefill(1300) };
        for (found, expected) in least_of_prompt(&model, &usual).iter().zip(whole) {
            assert!((found / expected - 1.0).abs() < 1e-12);
        }
        let settled = Request { chunk_tokens: Some(512), ..Request::prefill(1300) };
        assert_eq!(Run::new(&model, &settled).unwrap(), {
            let mut run = Run::new(&model, &usual).unwrap();
            for (pass, other) in run.prefill.iter_mut().zip(Run::new(&model, &settled).unwrap().prefill) {
                pass.ops.iter_mut().zip(other.ops).for_each(|(op, other)| op.least = other.least);
            }
            run
        });
        let head = model.by_class().iter().find(|total| total.class == Class::Head).unwrap().bytes_per_token;
        let expected = 3.0 * (whole[1] - head) + head;
        assert!((least_of_prompt(&model, &settled)[1] / expected - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_cached_is_not_computed_again_and_counts_as_read() {
        let model = model("llama-3.2-1b", WeightFormat::Q4KM);
        let request = Request { cached_tokens: 900, ..Request::prefill(1000) };
        let after = Request { context_tokens: 900, ..Request::prefill(100) };
        let [run, same] = [request, after].map(|request| Run::new(&model, &request).unwrap());
        assert_eq!(run, same);
        assert_eq!((request.tokens(), after.tokens()), (1000.0, 100.0));
        assert_eq!(request.final_tokens(), after.final_tokens());
    }

    #[test]
    fn a_step_verifies_what_was_drafted() {
        let model = model("deepseek-v2-lite", WeightFormat::Fp16);
        let drafted = Some(Speculative { kind: DraftKind::Ngram, draft_tokens: 4, accepted_per_step: 2.5 });
        let request = Request { speculative: drafted, output_tokens: 350, batch: 2, ..Request::decode(500) };
        let pass = Run::new(&model, &request).unwrap().decode.unwrap();
        assert_eq!((pass.repeats, pass.tokens, request.tokens()), (100, 5, 700.0));
        // The head and every other matrix see five tokens of both sequences; the latent stays absorbed.
        let rows = pass.ops.iter().filter_map(|op| match op.kind {
            Kind::Matrix(Class::Expert) => None,
            _ => Some(op.shape?.m),
        });
        assert!(rows.clone().count() > 3 && rows.into_iter().all(|rows| rows == 10.0));
        let one = Run::new(&model, &Request { batch: 2, ..Request::decode(673) }).unwrap().decode.unwrap();
        let keys = find(&pass, Kind::Attention).work / find(&one, Kind::Attention).work;
        assert!((4.9..5.1).contains(&keys), "{keys}");
    }

    /// Twice the pairs of a causal prompt and one more for each token, no cache, and neither a head nor logits.
    #[test]
    fn documents_are_prompts_without_an_answer() {
        let decoder = model("llama-3.2-1b", WeightFormat::Fp16);
        let mut encoder = decoder.clone();
        for layer in &mut encoder.architecture.layers {
            if let Mixer::Attention(attention) = &mut layer.mixer {
                attention.cache = Cache::None;
            }
        }
        let request = |task| Request { task, batch: 4, ..Request::prefill(512) };
        let pass = |model: &Model, task| Run::new(model, &request(task)).unwrap().prefill.remove(0);
        let (prompt, document) = (pass(&decoder, Task::Generate), pass(&encoder, Task::Embed));
        let ratio = find(&document, Kind::Attention).work.get() / find(&prompt, Kind::Attention).work.get();
        assert!((ratio - 2.0 * 512.0 / 513.0).abs() < 1e-9, "{ratio}");
        let is_head = |op: &OpCost| matches!(op.kind, Kind::Matrix(Class::Head) | Kind::Sample);
        assert!(prompt.ops.iter().any(is_head) && !document.ops.iter().any(is_head));
        assert_eq!(encoder.kv_cache(512, WeightFormat::Fp16), Bytes::ZERO);
        assert!(encoder.is_encoder() && !decoder.is_encoder());
        // A model that generates may embed too.
        assert!(!pass(&decoder, Task::Embed).ops.iter().any(is_head));
    }

    #[test]
    fn images_pass_a_tower_where_there_is_one() {
        let mut model = model("llama-3.2-1b", WeightFormat::Fp16);
        let request = Request { image_tokens: 256, ..Request::prefill(44) };
        assert_eq!(Run::new(&model, &request).unwrap(), Run::new(&model, &Request::prefill(300)).unwrap());
        assert!(request.warnings(&model)[0].contains("vision tower"));
        let tower = WeightGroup {
            class: Class::Tower,
            block: Block::F16,
            rows: 1000,
            columns: 1000,
            matrices: 3,
            parameters: 3_000_000,
            bytes: 6_000_000,
        };
        model.weights.push(tower);
        let passes = Run::new(&model, &request).unwrap().prefill;
        assert_eq!((passes.len(), passes[0].layers, passes[0].tokens), (2, 0, 256));
        let cost = passes[0].cost();
        assert_eq!((cost.work.get(), cost.traffic.get()), (2.0 * 4.0 * 256.0 * 3e6, 6e6));
        assert_eq!(least(&passes[0]), [2.0 * 256.0 * 3e6, 6e6]);
        assert!(request.warnings(&model).is_empty());
    }

    #[test]
    fn impossible_requests_name_their_field() {
        let model = model("llama-3.2-1b", WeightFormat::Fp16);
        let field = |request: Request| Run::new(&model, &request).unwrap_err().field;
        assert_eq!(field(Request { batch: 0, ..Request::decode(0) }), "batch");
        assert_eq!(field(Request { batch: u64::MAX, ..Request::decode(0) }), "batch");
        assert_eq!(field(Request::decode(u64::MAX)), "context_tokens");
        assert_eq!(field(Request::prefill(0)), "prompt_tokens");
        assert_eq!(field(Request::serve(5, 0)), "output_tokens");
        assert_eq!(field(Request { chunk_tokens: Some(0), ..Request::prefill(5) }), "chunk_tokens");
        assert_eq!(field(Request { cached_tokens: 5, ..Request::prefill(5) }), "cached_tokens");
        assert_eq!(field(Request { cached_tokens: 6, ..Request::decode(5) }), "cached_tokens");
        let drafted = |draft_tokens, accepted_per_step| Request {
            speculative: Some(Speculative { kind: DraftKind::Ngram, draft_tokens, accepted_per_step }),
            ..Request::decode(0)
        };
        assert_eq!(field(drafted(0, 0.0)), "speculative.draft_tokens");
        for accepted in [-1.0, 4.1, f64::NAN] {
            assert_eq!(field(drafted(4, accepted)), "speculative.accepted_per_step");
        }
    }

    #[expect(clippy::disallowed_macros, clippy::disallowed_methods, reason = "a test of what a walk costs")]
    /// A request is passed by thousands of times a second: the tables are walked, not rebuilt.
    #[test]
    fn unfolding_a_request_takes_microseconds() {
        let model = model("llama-3-70b", WeightFormat::Q4KM);
        let started = std::time::Instant::now();
        for context in 0..1000 {
            Run::new(&model, &Request::decode(context)).unwrap();
        }
        let each = started.elapsed().as_secs_f64() / 1000.0;
        println!("{:.1} us a request", each * 1e6);
        // A fortieth of this is usual; the machine may be busy.
        assert!(each < 1e-3, "{each}");
    }

    #[test]
    fn counts_that_do_not_fit_are_refused_and_never_wrap() {
        let request = Request { prompt_tokens: u64::MAX, ..Request::serve(1, u64::MAX) };
        assert_eq!(Request { context_tokens: u64::MAX, ..request }.final_tokens(), u64::MAX);
        assert!(request.validate().is_err());
    }

    #[test]
    fn a_context_beyond_the_models_limit_is_a_warning() {
        let model = model("llama-3-8b", WeightFormat::Fp16);
        assert!(Request::decode(8191).warnings(&model).is_empty());
        let warning = Request::decode(8192).warnings(&model);
        assert!(warning[0].contains("8193") && warning[0].contains("8192"), "{warning:?}");
    }

    #[test]
    fn a_step_without_an_answer_fills_its_context_and_an_engine_rounds_its_cache() {
        let step = Request { output_tokens: 0, ..Request::decode(4096) };
        assert_eq!((step.final_tokens(), step.window(), step.tokens()), (4096, 4096, 1.0));
        let roomy =
            Request { window_tokens: 4096, allocation: Allocation::LlamaCpp, ..Request::serve(500, 100) };
        assert_eq!((roomy.final_tokens(), roomy.window(), roomy.allocated_tokens()), (600, 4096, 4096));
        let rounded = Request { window_tokens: 0, ..roomy };
        assert_eq!((rounded.window(), rounded.allocated_tokens()), (600, 768));
    }

    #[test]
    fn memory_is_the_sum_of_its_parts_and_fits_or_does_not() {
        let model = model("llama-3-8b", WeightFormat::Q4KM);
        let request = Request { batch: 2, context_tokens: 4096, ..Request::decode(4096) };
        let footprint = MemoryFootprint::new(&model, &request, Bytes(3e8));
        assert_eq!(footprint.weights, model.bytes());
        assert_eq!(footprint.kv_cache, Bytes(2.0 * 4097.0 * 32.0 * 2.0 * 1024.0 * 2.0));
        let sum = footprint.weights + footprint.kv_cache + footprint.activations + Bytes(3e8);
        assert_eq!(footprint.total(), sum);
        assert!(footprint.fits(sum));
        assert!(!footprint.fits(sum - Bytes(1.0)));
    }

    /// Gemma 3 4B: 29 of 34 layers have a window of 1024 tokens, and 4 heads of 256 for keys and for values.
    #[test]
    fn copies_of_windows_are_counted_where_prompts_are_served() {
        let windows = 29.0 * 1024.0 * 4.0 * 2.0 * 256.0 * 2.0;
        let gemma = model("gemma-3-4b", WeightFormat::Q4KM);
        assert_eq!(gemma.checkpoint_bytes(WeightFormat::Fp16, Allocation::LlamaCpp), Bytes(windows));
        let cache = |model: &Model, request: Request, checkpoints| {
            MemoryFootprint::new(model, &Request { checkpoints, ..request }, Bytes::ZERO).kv_cache.get()
        };
        let served = Request { batch: 3, ..Request::prefill(512) };
        assert_eq!(cache(&gemma, served, 2) - cache(&gemma, served, 0), 3.0 * 2.0 * windows);
        let decode = Request::decode(512);
        assert_eq!(cache(&gemma, decode, 2), cache(&gemma, decode, 0));
        let llama = model("llama-3-8b", WeightFormat::Q4KM);
        assert_eq!(cache(&llama, served, 2), cache(&llama, served, 0));
    }

    /// More context, batch or prompt never costs less.
    #[test]
    fn more_never_costs_less() {
        for known in models().all() {
            let model = known.model(Recipe::of(WeightFormat::Q4KM));
            let mut last: Option<Cost> = None;
            for context in [0, 1, 500, 511, 512, 513, 5000] {
                let cost = Run::new(&model, &Request::decode(context)).unwrap().decode.unwrap().cost();
                if let Some(last) = last {
                    assert!(
                        cost.work >= last.work && cost.traffic >= last.traffic,
                        "{} {context}",
                        known.key
                    );
                }
                last = Some(cost);
            }
            let mut last = 0.0;
            for batch in [1, 2, 3, 8, 100] {
                let request = Request { batch, ..Request::decode(100) };
                let traffic = Run::new(&model, &request).unwrap().decode.unwrap().cost().traffic.get();
                assert!(traffic > last, "{} {batch}", known.key);
                last = traffic;
            }
        }
    }
}
