//! From a table of tensors and what a file says about itself to a model.
//!
//! The table decides wherever it can: which weights there are, how they are stored, whether there is a head, which
//! layers attend, how wide keys and values are. Metadata add what shapes do not show: how many heads share a width,
//! windows, experts per token. Where they are missing the table still gives a model, and a warning.

use std::collections::BTreeMap;

use super::config::Config;
use super::facts::Facts;
use super::header::Header;
use super::packing::{Modules, Packing};
use super::{ImportError, MAX_GROUPS, Tensor, UNNAMED, label, metadata, short};
use crate::architecture::{
    Architecture, Departures, Experts, InvalidModel, LayerKind, Linear, MAX_LAYERS, Mixer,
};
use crate::block::Block;
use crate::class::{Class, classify, halves, layer};
use crate::foreign;
use crate::model::{Drafting, Grouping, Model};
use crate::recipe::Mix;

/// Weights may differ from those that a configuration describes by this share before a warning says so.
const UNLIKE: f64 = 0.05;

/// What the tensors of one layer show.
#[derive(Debug, Clone, Copy, Default)]
struct LayerShapes {
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

/// A tensor with its use.
struct Weight<'a> {
    tensor: &'a Tensor,
    class: Class,
    layer: Option<usize>,
    packing: Packing,
}

/// The model of a GGUF header.
pub(super) fn from_gguf(header: &Header, file: &str) -> Result<Model, ImportError> {
    if let Some(kind) = metadata::other_kind(header) {
        return Err(kind.into());
    }
    if header.text("general.architecture").is_none() {
        return Err(ImportError::NoFamily("general.architecture"));
    }
    let mut facts = metadata::facts(header)?;
    let has_decoder = header.tensors.iter().any(|tensor| halves(&tensor.name).1);
    let weights = header
        .tensors
        .iter()
        .map(|tensor| {
            let (matrices, rows, columns) = tensor.matrix();
            let parameters = tensor.elements().unwrap_or(0);
            let packing = Packing { block: tensor.block, rows, columns, matrices, parameters };
            Ok(Weight {
                tensor,
                class: class_of(&tensor.name, has_decoder),
                layer: index(&tensor.name)?,
                packing,
            })
        })
        .collect::<Result<Vec<_>, ImportError>>()?;
    let mix = header.number("general.file_type").and_then(|number| u32::try_from(number).ok());
    let mix = mix.and_then(|number| Mix::from_number(number & !1024));
    facts.name = header.text("general.name").map(short);
    let mut model = assemble(facts, None, weights, file)?;
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
    let is_of_adapter =
        |tensor: &Tensor| tensor.name.starts_with("base_model.") || tensor.name.contains("lora_");
    if !tensors.is_empty() && tensors.iter().all(is_of_adapter) {
        return Err(foreign::ADAPTER.into());
    }
    let modules = Modules::of(tensors, config);
    if let Some(found) = config.and_then(|config| config.quantisation.as_ref()) {
        found.check(tensors.iter().filter(|tensor| tensor.block == Block::I32).count())?;
    }
    let facts = config.map_or_else(|| Facts::new(UNNAMED.to_owned()), |config| config.facts.clone());
    let described = config.and_then(|config| config.architecture.clone());
    let has_decoder = tensors.iter().any(|tensor| halves(&tensor.name).1);
    let weights = tensors
        .iter()
        .map(|tensor| {
            let packing = modules.packing(tensor)?;
            Ok(Weight {
                tensor,
                class: class_of(&tensor.name, has_decoder),
                layer: index(&tensor.name)?,
                packing,
            })
        })
        .collect::<Result<Vec<_>, ImportError>>()?;
    let is_labelling = facts.encoder;
    let mut model = assemble(facts, described, weights, name)?;
    // One label is a score.
    let scores = ["score.weight", "classifier.weight", "classifier.out_proj.weight"];
    model.architecture.departures.ranks |= is_labelling
        && tensors.iter().any(|tensor| scores.contains(&&*tensor.name) && tensor.shape.first() == Some(&1));
    match config {
        Some(config) => check_checkpoint(&mut model, config),
        None => model.warnings.push(
            "no config.json next to the weights: heads, windows and experts per token are taken from shapes"
                .to_owned(),
        ),
    }
    Ok(model)
}

/// Warns where a checkpoint is not what its configuration says.
fn check_checkpoint(model: &mut Model, config: &Config) {
    check_weights(model, config);
    let Some(found) = &config.quantisation else {
        model.label = Some(config.dtype.key().to_owned());
        if let Some((block, share)) = label::main_block(&model.weights)
            && !block.is_plain()
        {
            model.warnings.push(format!(
                "config.json names no quantisation, and {:.0} % of the layers' weights are {block}",
                share * 100.0
            ));
        }
        return;
    };
    model.label = Some(found.label(&model.weights));
    model.architecture.departures.kv_format = found.kv_format();
    model.warnings.extend(found.remarks());
    let expected = config.architecture.as_ref().and_then(|architecture| config.stored(architecture).ok());
    if let Some(expected) = expected {
        label::compare(model, "config.json describes", &expected);
    }
}

/// Warns where the tensors are not as many weights as the configuration describes: they may be packed in a way that is not known.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no last digit")]
fn check_weights(model: &mut Model, config: &Config) {
    let is_text = |class| !matches!(class, Class::Tower | Class::Draft);
    let matrices = config.architecture.iter().flat_map(Architecture::matrices);
    let described: u128 =
        matrices.filter(|matrix| is_text(matrix.class)).map(|matrix| matrix.parameters()).sum();
    let text = model.weights.iter().filter(|group| is_text(group.class));
    let found: u128 = text.map(|group| u128::from(group.parameters)).sum();
    let billions = |weights: u128| weights as f64 / 1e9;
    let ratio = billions(found) / billions(described).max(f64::MIN_POSITIVE);
    if described > 0 && !(1.0 - UNLIKE..=1.0 + UNLIKE).contains(&ratio) {
        model.warnings.push(format!(
            "config.json describes {:.3} billion weights, and its tensors are understood as {:.3}: bytes are exact, operations may not be",
            billions(described),
            billions(found)
        ));
    }
}

/// The use of a tensor. What encodes for a decoder is a tower: no step of the decoder reads it.
fn class_of(name: &str, has_decoder: bool) -> Class {
    if has_decoder && halves(name).0 { Class::Tower } else { classify(name) }
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

/// The model of a table. Where its family is `described`, heads, windows and states are what the configuration says; shapes
/// of packed matrices never overrule them.
fn assemble(
    mut facts: Facts,
    described: Option<Architecture>,
    mut weights: Vec<Weight<'_>>,
    file: &str,
) -> Result<Model, ImportError> {
    if weights.is_empty() {
        return Err(ImportError::Field {
            field: "tensors".to_owned(),
            reason: "are none: there are no weights to read".to_owned(),
        });
    }
    let mut warnings = if described.is_some() { Vec::new() } else { facts.warnings() };
    let text = |weight: &&Weight<'_>| !matches!(weight.class, Class::Tower | Class::Draft);
    let last = weights.iter().filter(text).filter_map(|weight| weight.layer).max();
    let found = last.map_or(0, |last| last as u64 + 1);
    let drafts = facts.drafts;
    let said = facts.layers.or_else(|| described.as_ref().map(|described| described.layers.len() as u64));
    let layers = said.unwrap_or_else(|| found.saturating_sub(drafts));
    if found > 0 && layers > found {
        warnings.push(format!("it says {layers} layers and has weights of {found}: shards may be missing"));
    }
    facts.layers = Some(layers);
    use_of_layers(&mut weights, layers);
    tie(&mut facts, &mut weights, &mut warnings);

    let architecture = if let Some(mut described) = described {
        let plain = weights.iter().filter(|weight| weight.packing.block.is_plain());
        let corrected = correct_heads(&mut described, &look(plain, layers));
        if corrected > 0 {
            warnings.push(format!(
                "keys of {corrected} layers are not as wide as config.json says: the cache is counted from their shapes"
            ));
        }
        Architecture {
            tied_embeddings: facts.tied == Some(true),
            departures: Departures { ranks: described.departures.ranks, ..Departures::default() },
            ..described
        }
    } else {
        let seen = look(weights.iter(), layers);
        complete(&mut facts, &weights, &seen, &mut warnings);
        let mut built = facts.describe()?.build()?;
        built.departures.ranks = facts.ranks;
        built
    };
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
        architecture,
        weights: groups.finish(),
        label: None,
        warnings,
        drafting: Drafting::default(),
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
        warnings.push("embeddings are declared tied, but the file has a head: the head is read".to_owned());
    }
    if !has_head && !facts.encoder {
        for weight in weights.iter_mut().filter(|weight| weight.class == Class::Embedding) {
            let helper = ["per_layer", "position", "wpe", "token_types"];
            if !helper.iter().any(|helper| weight.tensor.name.contains(helper)) {
                weight.class = Class::Head;
            }
        }
    }
    facts.tied = Some(!has_head && !facts.encoder);
}

fn look<'w, 't: 'w>(weights: impl Iterator<Item = &'w Weight<'t>>, layers: u64) -> Vec<LayerShapes> {
    let mut seen = vec![LayerShapes::default(); usize::try_from(layers).unwrap_or(0).min(MAX_LAYERS)];
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

/// Key/value heads by the shapes of weights that are not packed; how many layers a configuration described otherwise.
fn correct_heads(architecture: &mut Architecture, seen: &[LayerShapes]) -> usize {
    // A state beside attention is a layer more than the file has.
    if architecture.layers.len() != seen.len() {
        return 0;
    }
    let mut corrected = 0;
    for (layer, seen) in architecture.layers.iter_mut().zip(seen) {
        let Mixer::Attention(attention) = &mut layer.mixer else { continue };
        let queries = attention.heads * attention.head_dim * if attention.output_gate { 2 } else { 1 };
        let (rows, each) = match seen.fused {
            0 => (seen.key, attention.head_dim),
            fused => (fused.saturating_sub(queries), attention.head_dim + attention.value_dim),
        };
        let heads = rows / each.max(1);
        let is_whole = heads > 0 && rows.is_multiple_of(each.max(1)) && attention.heads.is_multiple_of(heads);
        if is_whole && heads != attention.kv_heads {
            attention.kv_heads = heads;
            corrected += 1;
        }
    }
    corrected
}

/// Fills in from shapes what metadata did not say, and lets shapes decide where both speak.
fn complete(facts: &mut Facts, weights: &[Weight<'_>], seen: &[LayerShapes], warnings: &mut Vec<String>) {
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
            LayerShapes { key: 0, fused: 0, latent: false, linear: true, .. } => LayerKind::Linear,
            LayerShapes { key: 0, fused: 0, latent: false, linear: false, query: 0, .. } => {
                LayerKind::FeedForward
            }
            // A file that gives a layer no heads for keys says that it has no cache.
            LayerShapes { linear: true, .. } if facts.kv_heads_by_layer.get(index) == Some(&0) => {
                LayerKind::Linear
            }
            LayerShapes { linear: true, latent: false, .. } => LayerKind::FullAndLinear,
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
    let inner = |seen: &LayerShapes| if seen.down > 0 { seen.down } else { seen.up };
    facts.intermediate_by_layer = seen.iter().map(inner).collect();
}

/// How keys, values and queries divide into heads.
fn complete_heads(facts: &mut Facts, seen: &[LayerShapes], warnings: &mut Vec<String>) {
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
    let said = |index: usize| facts.kv_heads_by_layer.get(index).copied().or(facts.kv_heads);
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
        (Class::Tower, "towers for pictures or sound and encoders, which generating text does not read"),
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
