//! From a table of tensors and what a file says about itself to a model.
//!
//! The table decides wherever it can: which weights there are, how they are stored, whether there is a head, which
//! layers attend, how wide keys and values are. Metadata add what shapes do not show: how many heads share a width,
//! windows, experts per token. Where they are missing the table still gives a model, and a warning.

use std::collections::{BTreeMap, HashMap};

use super::config::{Config, every};
use super::gguf::{Header, Value};
use super::{ImportError, MAX_GROUPS, Tensor, label, short};
use crate::workload::architecture::{
    Description, Experts, InvalidModel, Latent, LayerKind, Linear, MAX_LAYERS, MAX_WIDTH,
};
use crate::workload::block::Block;
use crate::workload::class::{Class, classify, layer};
use crate::workload::model::{Grouping, Model};
use crate::workload::recipe::Mix;

/// What a file says about its model, as far as it says it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Facts {
    pub family: String,
    pub name: Option<String>,
    pub hidden: Option<u64>,
    pub vocab: Option<u64>,
    /// Layers, without those that draft.
    pub layers: Option<u64>,
    /// Layers behind the last that draft tokens.
    pub drafts: u64,
    pub heads: Option<u64>,
    pub kv_heads: Option<u64>,
    pub kv_heads_by_layer: Vec<u64>,
    pub head_dim: Option<u64>,
    pub value_dim: Option<u64>,
    pub window: Option<u64>,
    pub global: Option<(u64, u64)>,
    pub shared_kv: bool,
    pub output_gate: bool,
    pub intermediate: Option<u64>,
    pub intermediate_by_layer: Vec<u64>,
    pub gated: Option<bool>,
    pub experts: Option<Experts>,
    pub sparse: Vec<bool>,
    pub latent: Option<Latent>,
    pub linear: Option<Linear>,
    /// The kind of every layer; empty = not said.
    pub kinds: Vec<LayerKind>,
    pub separate_blocks: bool,
    pub tied: Option<bool>,
    /// Layers that read the cache of others instead of keeping one.
    pub reused: u64,
    pub context: Option<u64>,
}

/// Families whose figures are read as their own engines read them.
const KNOWN: &[&str] = &[
    "llama",
    "llama4",
    "llama4_text",
    "mistral",
    "mistral3",
    "mixtral",
    "qwen2",
    "qwen2moe",
    "qwen2_moe",
    "qwen3",
    "qwen3moe",
    "qwen3_moe",
    "qwen3next",
    "qwen3_next",
    "qwen35",
    "qwen35moe",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3vl",
    "qwen3vlmoe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
    "phi",
    "phi2",
    "phi3",
    "phimoe",
    "gpt-oss",
    "gpt_oss",
    "gpt2",
    "smollm3",
    "lfm2",
    "lfm2moe",
    "lfm2_moe",
    "granite",
    "granitemoe",
    "granitehybrid",
    "deepseek2",
    "deepseek_v2",
    "deepseek_v3",
    "nemotron",
    "nemotron_h",
    "nemotron_h_moe",
    "olmo",
    "olmo2",
    "olmo3",
    "falcon",
    "falcon3",
    "falcon-h1",
    "yi",
    "starcoder2",
    "stablelm",
    "command-r",
    "cohere2",
    "glm4",
    "glm4moe",
    "exaone",
    "exaone4",
    "internlm2",
    "bitnet",
    "mamba",
    "mamba2",
    "minicpm",
    "ernie4_5",
    "ernie4_5-moe",
    "bailingmoe",
    "hunyuan-moe",
    "hunyuan-dense",
    "dots1",
    "baichuan",
];

impl Facts {
    pub fn new(family: String) -> Self {
        Self { family, ..Self::default() }
    }

    /// What a reader should know about these facts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !KNOWN.contains(&self.family.as_str()) {
            warnings.push(format!(
                "architecture {:?} is not known here: weights are counted from their shapes and names",
                self.family
            ));
        }
        if self.reused > 0 {
            warnings.push(format!(
                "{} layers reuse the cache of others; it is counted as if each kept its own",
                self.reused
            ));
        }
        warnings
    }

    /// The same as a description; what must be known and is not stays 0, which is refused by its name.
    pub fn describe(&self) -> Result<Description, ImportError> {
        let layers = self.layers.unwrap_or(0);
        let layers = usize::try_from(layers)
            .ok()
            .filter(|layers| (1..=MAX_LAYERS).contains(layers))
            .ok_or(InvalidModel::Layers(layers))?;
        let kinds = if self.kinds.is_empty() { vec![LayerKind::Full; layers] } else { self.kinds.clone() };
        Ok(Description {
            hidden: self.hidden.unwrap_or(0),
            vocab: self.vocab.unwrap_or(0),
            kinds,
            separate_blocks: self.separate_blocks,
            heads: self.heads.unwrap_or(0),
            kv_heads: self.kv_heads.or(self.heads).unwrap_or(0),
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            window: self.window,
            global: self.global,
            global_shared_kv: self.shared_kv,
            output_gate: self.output_gate,
            intermediate: self.intermediate.unwrap_or(0),
            gated_mlp: self.gated.unwrap_or(true),
            experts: self.experts,
            latent: self.latent,
            linear: self.linear,
            tied_embeddings: self.tied.unwrap_or(false),
            context_tokens: self.context.filter(|context| (1..=MAX_WIDTH).contains(context)),
            kv_heads_by_layer: self.kv_heads_by_layer.clone(),
            intermediate_by_layer: self.intermediate_by_layer.clone(),
            sparse_by_layer: self.sparse.clone(),
        })
    }
}

/// What the tensors of one layer show.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    query: u64,
    key: u64,
    value: u64,
    fused: u64,
    latent: bool,
    linear: bool,
    /// Input width of down projections, which is the inner width even where gate and up are one matrix.
    down: u64,
    up: u64,
    experts: u64,
}

/// A tensor as the weights it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// How the weights are stored.
    pub block: Block,
    /// Length of the output.
    pub rows: u64,
    /// Length of the input.
    pub columns: u64,
    /// Matrices stacked in it.
    pub matrices: u64,
    /// Weights; 0 for scales and other helpers.
    pub parameters: u64,
}

/// A tensor with its use.
struct Weight<'a> {
    tensor: &'a Tensor,
    class: Class,
    layer: Option<usize>,
    packing: Packing,
}

/// The model of a GGUF header.
pub(super) fn from_gguf(header: &Header, file: &str) -> Result<Model, ImportError> {
    let mut facts = gguf_facts(header)?;
    let weights = header
        .tensors
        .iter()
        .map(|tensor| {
            let (matrices, rows, columns) = tensor.matrix();
            let parameters = tensor.elements().unwrap_or(0);
            let packing = Packing { block: tensor.block, rows, columns, matrices, parameters };
            Ok(Weight { tensor, class: classify(&tensor.name), layer: index(&tensor.name)?, packing })
        })
        .collect::<Result<Vec<_>, ImportError>>()?;
    let mix = header.number("general.file_type").and_then(|number| u32::try_from(number).ok());
    let mix = mix.and_then(|number| Mix::from_number(number & !1024));
    facts.name = header.text("general.name").map(short);
    let mut model = assemble(facts, weights, file)?;
    model.label = mix.map(|mix| mix.key().to_owned());
    label::check_gguf(&mut model, mix, file);
    Ok(model)
}

/// The model of a checkpoint.
pub(super) fn from_checkpoint(
    tensors: &[Tensor],
    config: Option<&Config>,
    name: &str,
) -> Result<Model, ImportError> {
    let modules = Modules::of(tensors);
    let facts = config.map_or_else(|| Facts::new("unknown".to_owned()), |config| config.facts.clone());
    let weights = tensors
        .iter()
        .map(|tensor| {
            let packing = modules.packing(tensor, config)?;
            Ok(Weight { tensor, class: classify(&tensor.name), layer: index(&tensor.name)?, packing })
        })
        .collect::<Result<Vec<_>, ImportError>>()?;
    let mut model = assemble(facts, weights, name)?;
    match config {
        Some(config) => label::check_checkpoint(&mut model, config),
        None => model.warnings.push(
            "no config.json beside the weights: heads, windows and experts per token are taken from shapes"
                .to_owned(),
        ),
    }
    Ok(model)
}

fn index(name: &str) -> Result<Option<usize>, ImportError> {
    match layer(name) {
        None => Ok(None),
        Some(number) => match usize::try_from(number) {
            Ok(index) if index < MAX_LAYERS => Ok(Some(index)),
            _ => Err(InvalidModel::Layers(number).into()),
        },
    }
}

fn assemble(mut facts: Facts, mut weights: Vec<Weight<'_>>, file: &str) -> Result<Model, ImportError> {
    if weights.is_empty() {
        return Err(ImportError::Field {
            field: "tensors".to_owned(),
            reason: "are none: there are no weights to read".to_owned(),
        });
    }
    let mut warnings = facts.warnings();
    let text = |weight: &&Weight<'_>| !matches!(weight.class, Class::Tower | Class::Draft);
    let last = weights.iter().filter(text).filter_map(|weight| weight.layer).max();
    let found = last.map_or(0, |last| last as u64 + 1);
    let layers = facts.layers.unwrap_or_else(|| found.saturating_sub(facts.drafts));
    if found > 0 && layers > found {
        warnings.push(format!("it says {layers} layers and has weights of {found}: shards may be missing"));
    }
    facts.layers = Some(layers);
    use_of_layers(&mut weights, layers);
    tie(&mut facts, &mut weights, &mut warnings);

    let seen = look(&weights, layers);
    complete(&mut facts, &weights, &seen, &mut warnings);
    let mut groups = Grouping::default();
    for Weight { tensor, class, packing, .. } in &weights {
        let Packing { block, rows, columns, matrices, parameters } = *packing;
        groups
            .add(*class, block, (rows, columns), matrices, parameters, tensor.bytes)
            .ok_or(ImportError::TooMany { what: "weights", count: u64::MAX, limit: u64::MAX })?;
        if groups.len() > MAX_GROUPS {
            let (count, limit) = (groups.len() as u64, MAX_GROUPS as u64);
            return Err(ImportError::TooMany { what: "distinct shapes", count, limit });
        }
    }
    let model = Model {
        name: facts.name.clone().unwrap_or_else(|| file.to_owned()),
        family: facts.family.clone(),
        architecture: facts.describe()?.build()?,
        weights: groups.finish(),
        label: None,
        warnings,
    };
    Ok(with_remarks(model))
}

/// Layers behind the last only draft; in layers with a state the fused projections belong to it.
fn use_of_layers(weights: &mut [Weight<'_>], layers: u64) {
    let mut states: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for weight in weights.iter() {
        if let Some(layer) = weight.layer {
            let state = states.entry(layer).or_default();
            state.0 |= weight.class == Class::LinearMixer;
            state.1 |= weight.class == Class::AttentionK;
        }
    }
    for weight in weights {
        let Some(layer) = weight.layer else { continue };
        if layer as u64 >= layers && !matches!(weight.class, Class::Tower) {
            weight.class = Class::Draft;
        } else if states.get(&layer) == Some(&(true, false))
            && matches!(weight.class, Class::AttentionQkv | Class::AttentionQ | Class::AttentionOut)
        {
            weight.class = Class::LinearMixer;
        }
    }
}

/// A file without a head uses its table as one, and reads it in full.
fn tie(facts: &mut Facts, weights: &mut [Weight<'_>], warnings: &mut Vec<String>) {
    let has_head = weights.iter().any(|weight| weight.class == Class::Head);
    if has_head && facts.tied == Some(true) {
        warnings.push(
            "embeddings are said to be tied, and there is a head all the same: it is what is read".to_owned(),
        );
    }
    if !has_head {
        for weight in weights.iter_mut().filter(|weight| weight.class == Class::Embedding) {
            let helper = ["per_layer", "position", "wpe", "token_types"];
            if !helper.iter().any(|helper| weight.tensor.name.contains(helper)) {
                weight.class = Class::Head;
            }
        }
    }
    facts.tied = Some(!has_head);
}

fn look(weights: &[Weight<'_>], layers: u64) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); usize::try_from(layers).unwrap_or(0).min(MAX_LAYERS)];
    for Weight { tensor, class, layer, packing } in weights {
        let Some(seen) = layer.and_then(|layer| seen.get_mut(layer)) else { continue };
        // Vectors are biases and say the same as their matrix.
        let is_matrix = packing.parameters > 0 && tensor.shape.len() > 1;
        let rows = if is_matrix { packing.rows } else { 0 };
        match class {
            Class::AttentionQ => seen.query = seen.query.max(rows),
            Class::AttentionK => seen.key = seen.key.max(rows),
            Class::AttentionV => seen.value = seen.value.max(rows),
            Class::AttentionQkv => seen.fused = seen.fused.max(rows),
            Class::AttentionLatent => seen.latent = true,
            Class::LinearMixer => seen.linear = true,
            Class::Expert => seen.experts = seen.experts.max(packing.matrices),
            Class::Mlp | Class::SharedExpert if is_matrix => {
                if ["down", "fc2", "w2"].iter().any(|part| tensor.name.contains(part)) {
                    seen.down = seen.down.max(packing.columns);
                } else {
                    seen.up = seen.up.max(rows);
                }
            }
            _ => {}
        }
    }
    seen
}

/// Fills in from shapes what metadata did not say, and lets shapes decide where both speak.
fn complete(facts: &mut Facts, weights: &[Weight<'_>], seen: &[Seen], warnings: &mut Vec<String>) {
    let table = weights.iter().find(|weight| {
        let name = &weight.tensor.name;
        matches!(weight.class, Class::Embedding | Class::Head)
            && weight.tensor.shape.len() == 2
            && !name.contains("per_layer")
    });
    if let Some(Packing { rows, columns, .. }) = table.map(|weight| weight.packing) {
        facts.vocab = facts.vocab.filter(|vocab| *vocab == rows).or(Some(rows));
        if facts.hidden.is_some_and(|hidden| hidden != columns) {
            warnings.push(format!(
                "it says a width of {} and its table is {columns} wide: the table counts",
                facts.hidden.unwrap_or(0)
            ));
        }
        facts.hidden = Some(columns);
    }
    complete_heads(facts, seen, warnings);
    let sliding = |index: usize| facts.kinds.get(index) == Some(&LayerKind::Sliding);
    let kinds: Vec<LayerKind> = seen
        .iter()
        .enumerate()
        .map(|(index, seen)| match seen {
            Seen { key: 0, fused: 0, latent: false, linear: true, .. } => LayerKind::Linear,
            Seen { key: 0, fused: 0, latent: false, linear: false, query: 0, .. } => LayerKind::FeedForward,
            _ if sliding(index) && facts.window.is_some() => LayerKind::Sliding,
            _ => LayerKind::Full,
        })
        .collect();
    if !kinds.is_empty() {
        facts.kinds = kinds;
    }
    if facts.kinds.contains(&LayerKind::Linear) && facts.linear.is_none() {
        warnings.push("the state of its linear layers is not described: it is counted as nothing".to_owned());
        facts.linear = Some(Linear::Other { state_bytes: 1 });
    }
    if facts.latent.is_none() && seen.iter().any(|seen| seen.latent) {
        warnings
            .push("its latent attention is not described: the cache is counted as of whole heads".to_owned());
    }
    let count = seen.iter().map(|seen| seen.experts).max().unwrap_or(0);
    if count > 0 {
        complete_experts(facts, weights, count, warnings);
        facts.sparse = seen.iter().map(|seen| seen.experts > 0).collect();
    }
    facts.separate_blocks = false;
    let inner = |seen: &Seen| if seen.down > 0 { seen.down } else { seen.up };
    facts.intermediate_by_layer = seen.iter().map(inner).collect();
}

/// How keys, values and queries divide into heads.
fn complete_heads(facts: &mut Facts, seen: &[Seen], warnings: &mut Vec<String>) {
    let Some(first) = seen.iter().find(|seen| seen.key > 0) else { return };
    if facts.heads.is_none() {
        warnings.push("heads are not described: keys count as one head".to_owned());
        facts.heads = Some((first.query / first.key).max(1));
        facts.kv_heads = Some(1);
        facts.head_dim = Some(first.key);
        facts.value_dim = Some(first.value.max(1));
        return;
    }
    let width = |index: usize| match (facts.global, facts.kinds.get(index)) {
        (Some((_, width)), Some(LayerKind::Full)) => Some(width),
        _ => facts.head_dim.or_else(|| {
            let (hidden, heads) = (facts.hidden?, facts.heads?);
            (heads > 0 && hidden.is_multiple_of(heads)).then(|| hidden / heads)
        }),
    };
    let said = |index: usize| match (facts.global, facts.kinds.get(index)) {
        (Some((heads, _)), Some(LayerKind::Full)) => Some(heads),
        _ => facts.kv_heads_by_layer.get(index).copied().or(facts.kv_heads),
    };
    let mut differ = 0;
    let by_layer: Vec<u64> = seen
        .iter()
        .enumerate()
        .map(|(index, seen)| {
            let said = said(index).unwrap_or(1);
            match width(index) {
                Some(width) if width > 0 && seen.key > 0 && seen.key.is_multiple_of(width) => {
                    differ += u64::from(seen.key / width != said);
                    seen.key / width
                }
                _ => said,
            }
        })
        .collect();
    if differ > 0 {
        warnings.push(format!(
            "keys of {differ} layers are not as wide as it says: the cache is counted from their shapes"
        ));
    }
    facts.kv_heads_by_layer = by_layer;
}

fn complete_experts(facts: &mut Facts, weights: &[Weight<'_>], stacked: u64, warnings: &mut Vec<String>) {
    let widths =
        weights.iter().filter(|weight| weight.class == Class::Expert && weight.packing.parameters > 0);
    let hidden = facts.hidden.unwrap_or(0);
    let width = widths.map(|weight| weight.packing.rows.min(weight.packing.columns)).max().unwrap_or(1);
    let experts = facts.experts.get_or_insert_with(|| {
        warnings.push("experts per token are not described: all are counted as read".to_owned());
        Experts { count: stacked, active: stacked, ..Experts::default() }
    });
    if experts.intermediate == 0 {
        experts.intermediate = width.min(hidden.max(1)).max(1);
    }
    experts.dense_layers = 0;
}

/// Warnings about what is not read and what was not recognised.
#[expect(clippy::cast_precision_loss, reason = "shares need no last digit")]
fn with_remarks(mut model: Model) -> Model {
    let total = model.bytes().get();
    let bytes = |class| {
        model.weights.iter().filter(|group| group.class == class).map(|group| group.bytes).sum::<u64>()
    };
    let mut remarks = Vec::new();
    for (class, what) in [
        (Class::Tower, "towers for pictures or sound, which generating text does not read"),
        (Class::Draft, "layers that draft tokens ahead, which are not read without speculation"),
    ] {
        let bytes = bytes(class) as f64;
        if bytes > 0.0 {
            remarks.push(format!("{:.1} % of the file are {what}", 100.0 * bytes / total));
        }
    }
    let other = bytes(Class::Other) as f64 / total;
    if other > 0.01 {
        remarks.push(format!(
            "{:.1} % of the bytes have names that say nothing; they are counted as read",
            100.0 * other
        ));
    }
    model.warnings.extend(remarks);
    model
}

fn gguf_facts(header: &Header) -> Result<Facts, ImportError> {
    let family = header.text("general.architecture").map_or_else(|| "unknown".to_owned(), short);
    let number = |key: &str| header.number(&format!("{family}.{key}"));
    let by_layer = |key: &str| match header.metadata.get(&format!("{family}.{key}")) {
        Some(Value::Numbers(numbers)) => numbers.clone(),
        _ => Vec::new(),
    };
    let drafts = number("nextn_predict_layers").unwrap_or(0);
    let layers = number("block_count").map(|blocks| blocks.saturating_sub(drafts));
    if let Some(layers) = layers.filter(|layers| !(1..=MAX_LAYERS as u64).contains(layers)) {
        return Err(InvalidModel::Layers(layers).into());
    }
    let heads = by_layer("attention.head_count").into_iter().max().or_else(|| number("attention.head_count"));
    let kv_by_layer = by_layer("attention.head_count_kv");
    let kv_heads = number("attention.head_count_kv").or_else(|| kv_by_layer.iter().copied().max()).or(heads);
    let latent = gguf_latent(&number, heads);
    let full = number("attention.key_length");
    let sliding = number("attention.key_length_swa");
    let mut facts = Facts {
        hidden: number("embedding_length"),
        vocab: number("vocab_size").or(match header.metadata.get("tokenizer.ggml.tokens") {
            Some(Value::Array(count)) => Some(*count),
            _ => None,
        }),
        layers,
        drafts,
        heads: heads.filter(|heads| *heads > 0),
        kv_heads,
        kv_heads_by_layer: kv_by_layer,
        head_dim: if latent.is_some() { None } else { sliding.or(full) },
        value_dim: number("attention.value_length_swa").or_else(|| number("attention.value_length")),
        global: sliding.and(full).zip(kv_heads).map(|(width, heads)| (heads, width)),
        window: number("attention.sliding_window").filter(|window| *window > 0),
        intermediate: number("feed_forward_length"),
        gated: Some(has_gate(header)),
        experts: number("expert_count").filter(|count| *count > 0).map(|count| Experts {
            count,
            active: number("expert_used_count").unwrap_or(0),
            intermediate: number("expert_feed_forward_length")
                .or_else(|| number("feed_forward_length"))
                .unwrap_or(0),
            shared_intermediate: shared_width(header),
            shared_gate: header.tensors.iter().any(|tensor| tensor.name.contains("ffn_gate_inp_shexp")),
            dense_layers: number("leading_dense_block_count").unwrap_or(0),
        }),
        linear: gguf_linear(header, &family, &number),
        context: number("context_length"),
        reused: number("attention.shared_kv_layers").unwrap_or(0),
        latent,
        ..Facts::new(family.clone())
    };
    facts.output_gate = has_output_gate(header, &facts);
    facts.kinds = gguf_kinds(header, &facts);
    Ok(facts)
}

/// Whether the query projection is twice as wide as the input of the output projection.
fn has_output_gate(header: &Header, facts: &Facts) -> bool {
    let width = facts.global.map(|(_, width)| width).or(facts.head_dim);
    let expected = width.zip(facts.heads).and_then(|(width, heads)| width.checked_mul(heads));
    let query = header.tensors.iter().find(|tensor| tensor.name.ends_with(".attn_q.weight"));
    match (expected.and_then(|expected| expected.checked_mul(2)), query) {
        (Some(doubled), Some(query)) => query.matrix().1 == doubled && facts.linear.is_some(),
        _ => false,
    }
}

fn has_gate(header: &Header) -> bool {
    let mut plain = false;
    for tensor in &header.tensors {
        if tensor.name.contains(".ffn_gate.")
            || tensor.name.contains(".ffn_gate_exps.")
            || tensor.name.contains("ffn_gate_up_exps")
        {
            return true;
        }
        plain |= tensor.name.contains(".ffn_up.");
    }
    // phi3 and its kin keep gate and up in one matrix, twice as wide as the down projection's input.
    let rows =
        |part: &str| header.tensors.iter().find(|tensor| tensor.name.contains(part)).map(Tensor::matrix);
    match (rows(".ffn_up."), rows(".ffn_down.")) {
        (Some((_, up, _)), Some((_, _, down))) => up == down.saturating_mul(2),
        _ => !plain,
    }
}

fn shared_width(header: &Header) -> u64 {
    let up = header.tensors.iter().find(|tensor| tensor.name.contains("ffn_up_shexp"));
    up.map_or(0, |tensor| tensor.matrix().1)
}

fn gguf_latent(number: &dyn Fn(&str) -> Option<u64>, heads: Option<u64>) -> Option<Latent> {
    let kv_rank = number("attention.kv_lora_rank").filter(|rank| *rank > 0)?;
    let rope_dim = number("rope.dimension_count")?;
    // Since the absorbed form was added, key_length is that of the latent and the head's own stands apart.
    let key = number("attention.key_length_mla").or_else(|| number("attention.key_length"))?;
    Some(Latent {
        heads: heads?,
        q_rank: number("attention.q_lora_rank").filter(|rank| *rank > 0),
        kv_rank,
        nope_dim: key.checked_sub(rope_dim)?,
        rope_dim,
        value_dim: number("attention.value_length_mla").or_else(|| number("attention.value_length"))?,
    })
}

fn gguf_linear(header: &Header, family: &str, number: &dyn Fn(&str) -> Option<u64>) -> Option<Linear> {
    if let Some(kernel) = number("shortconv.l_cache") {
        return Some(Linear::ShortConvolution { kernel });
    }
    let (inner, state) = (number("ssm.inner_size")?, number("ssm.state_size")?);
    let rank = number("ssm.time_step_rank").filter(|rank| *rank > 0)?;
    let kernel = number("ssm.conv_kernel").unwrap_or(4);
    let groups = number("ssm.group_count").unwrap_or(1);
    let has = |part: &str| header.tensors.iter().any(|tensor| tensor.name.contains(part));
    if has("ssm_x") || family == "mamba" || !inner.is_multiple_of(rank) {
        // Mamba-1: a vector of `state` for every channel.
        return Some(Linear::Other { state_bytes: inner.saturating_mul(state).saturating_mul(4) });
    }
    let width = inner / rank;
    Some(if has("ssm_ba") || has("ssm_beta") {
        Linear::DeltaNet { key_heads: groups, value_heads: rank, key_dim: state, value_dim: width, kernel }
    } else {
        Linear::Mamba2 { heads: rank, head_dim: width, state, groups, kernel }
    })
}

/// Which layers see a window. Which attend at all is read from the tensors.
fn gguf_kinds(header: &Header, facts: &Facts) -> Vec<LayerKind> {
    let layers = facts.layers.and_then(|layers| usize::try_from(layers).ok()).unwrap_or(0);
    if facts.window.is_none() {
        return Vec::new();
    }
    let key = format!("{}.attention.sliding_window_pattern", facts.family);
    match header.metadata.get(&key) {
        Some(Value::Numbers(pattern)) => (0..layers)
            .map(|index| if pattern.get(index) == Some(&1) { LayerKind::Sliding } else { LayerKind::Full })
            .collect(),
        Some(Value::Unsigned(period)) => every(layers, *period, LayerKind::Sliding),
        _ => match facts.family.as_str() {
            "gemma2" | "gpt-oss" => every(layers, 2, LayerKind::Sliding),
            "gemma3" => every(layers, 6, LayerKind::Sliding),
            "gemma3n" => every(layers, 5, LayerKind::Sliding),
            "cohere2" | "olmo2" | "exaone4" | "llama4" => every(layers, 4, LayerKind::Sliding),
            // llama.cpp keeps the whole context of the others although they name a window.
            _ => Vec::new(),
        },
    }
}

/// Modules of a checkpoint: a matrix and what belongs to it.
struct Modules<'a> {
    parts: HashMap<&'a str, &'a Tensor>,
}

/// Names of what stands beside a packed matrix and holds no weights of its own.
const HELPERS: &[&str] = &[
    "scales",
    "qzeros",
    "g_idx",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "input_scale",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "activation_scale",
    "SCB",
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
];

impl<'a> Modules<'a> {
    fn of(tensors: &'a [Tensor]) -> Self {
        Self { parts: tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect() }
    }

    fn beside(&self, module: &str, part: &str) -> Option<&'a Tensor> {
        self.parts.get(format!("{module}.{part}").as_str()).copied()
    }

    fn packing(&self, tensor: &Tensor, config: Option<&Config>) -> Result<Packing, ImportError> {
        let (matrices, rows, columns) = tensor.matrix();
        let plain = tensor.elements().unwrap_or(0);
        let (module, part) = tensor.name.rsplit_once('.').unwrap_or(("", &tensor.name));
        if HELPERS.contains(&part) || part.starts_with("bitsandbytes__") || part.ends_with("_scales") {
            return Ok(Packing {
                block: self.host(module, part, tensor),
                rows: 1,
                columns: 0,
                matrices: 0,
                parameters: 0,
            });
        }
        let packed = |block, rows: u64, columns: u64, matrices: u64| {
            let parameters = rows.checked_mul(columns).and_then(|area| area.checked_mul(matrices));
            parameters.map(|parameters| Packing { block, rows, columns, matrices, parameters }).ok_or_else(
                || ImportError::Tensor {
                    name: short(&tensor.name),
                    reason: format!("has the impossible shape {:?}", tensor.shape),
                },
            )
        };
        let bits = config.and_then(|config| config.quantisation.as_ref()).and_then(|found| found.bits);
        match (part, tensor.block) {
            ("qweight", Block::I32) => {
                let (rows, columns, block) = self.integers(module, rows, columns, bits.unwrap_or(4))?;
                packed(block, rows, columns, 1)
            }
            ("weight_packed", Block::I32) => {
                let bits = bits.filter(|bits| matches!(bits, 2 | 3 | 4 | 8)).unwrap_or(4);
                let columns = columns.saturating_mul(32) / bits;
                let block = if bits == 8 { Block::I8 } else { self.grouped(module, "weight_scale", columns) };
                packed(block, rows, columns, matrices)
            }
            ("weight_packed", Block::I8) => packed(Block::Nvfp4, rows, columns.saturating_mul(2), matrices),
            ("weight", Block::I8) if self.beside(module, "weight.absmax").is_some() => {
                // bitsandbytes flattens the matrix: its shape is in a tensor, which is not read.
                packed(Block::Nf4, 1, plain.saturating_mul(2), 1)
            }
            ("weight", Block::I8 | Block::Int4) => {
                match self.beside(module, "weight_scale").map(|scale| scale.block) {
                    Some(Block::Fp8E4m3) => {
                        let per_byte = if tensor.block == Block::I8 { 2 } else { 1 };
                        packed(Block::Nvfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    Some(Block::E8m0 | Block::I8) => {
                        let per_byte = if tensor.block == Block::I8 { 2 } else { 1 };
                        packed(Block::Mxfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    _ => packed(tensor.block, rows, columns, matrices),
                }
            }
            (part, Block::I8) if part.ends_with("_blocks") => {
                // experts x rows x groups x 16 bytes of two weights
                let [experts, rows, groups, bytes] = tensor.shape[..] else {
                    return packed(Block::Mxfp4, rows, columns.saturating_mul(2), matrices);
                };
                packed(Block::Mxfp4, rows, groups.saturating_mul(bytes).saturating_mul(2), experts)
            }
            _ => Ok(Packing { block: tensor.block, rows, columns, matrices, parameters: plain }),
        }
    }

    /// Rows, columns and storage of an AWQ or GPTQ matrix: the scales beside it tell which of its sides is packed.
    fn integers(
        &self,
        module: &str,
        first: u64,
        second: u64,
        bits: u64,
    ) -> Result<(u64, u64, Block), ImportError> {
        let bits = if matches!(bits, 2 | 3 | 4 | 8) { bits } else { 4 };
        let scales = self.beside(module, "scales").map(Tensor::matrix);
        let (rows, columns, gptq) = match scales {
            Some((_, _, outputs)) if outputs == second => (second, first.saturating_mul(32) / bits, true),
            None => (second, first.saturating_mul(32) / bits, true),
            Some(_) => (second.saturating_mul(32) / bits, first, false),
        };
        let group = scales.map_or(128, |(_, groups, _)| columns / groups.max(1));
        let block = match (bits, group, gptq) {
            (8, ..) => Block::I8,
            (4, 128, true) => Block::GptqInt4,
            (4, 128, false) => Block::AwqInt4,
            (4, 32, _) => Block::Int4G32,
            (4, 64, _) => Block::Int4G64,
            (4, ..) => Block::Int4G128,
            _ => Block::I32,
        };
        Ok((rows, columns, block))
    }

    fn grouped(&self, module: &str, scale: &str, columns: u64) -> Block {
        match self.beside(module, scale).map(Tensor::matrix) {
            Some((_, _, groups)) if groups > 1 => match columns / groups {
                32 => Block::Int4G32,
                64 => Block::Int4G64,
                _ => Block::Int4G128,
            },
            _ => Block::Int4,
        }
    }

    /// The storage of the matrix that a helper belongs to, so that their bytes are counted together.
    fn host(&self, module: &str, part: &str, tensor: &Tensor) -> Block {
        let (stem, packed) = match part.strip_suffix("_scales") {
            Some(stem) => (format!("{module}.{stem}_blocks"), Block::Mxfp4),
            None if part == "scales" || part == "qzeros" || part == "g_idx" => {
                let Some(host) = self.beside(module, "qweight") else { return tensor.block };
                let (_, rows, columns) = host.matrix();
                return self.integers(module, rows, columns, 4).map_or(tensor.block, |(_, _, block)| block);
            }
            None => return self.beside_host(module, part).unwrap_or(tensor.block),
        };
        if self.parts.contains_key(stem.as_str()) { packed } else { tensor.block }
    }

    fn beside_host(&self, module: &str, part: &str) -> Option<Block> {
        // bitsandbytes: x.weight.absmax belongs to x.weight
        let inner = module.strip_suffix(".quant_state").unwrap_or(module);
        if part.starts_with("bitsandbytes__")
            || matches!(part, "absmax" | "quant_map" | "nested_absmax" | "nested_quant_map")
        {
            return self.parts.contains_key(inner).then_some(Block::Nf4);
        }
        let host = ["weight", "weight_packed"].iter().find_map(|host| self.beside(module, host))?;
        self.packing(host, None).ok().map(|packing| packing.block)
    }
}
