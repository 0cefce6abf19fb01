//! From a table of tensors and what a file says about itself to a model.
//!
//! The table decides wherever it can: which weights there are, how they are stored, whether there is a head, which
//! layers attend, how wide keys and values are. Metadata add what shapes do not show: how many heads share a width,
//! windows, experts per token. Where they are missing the table still gives a model, and a warning.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::config::{Config, EMBEDS};
use super::families::Described;
use super::fields::Fields;
use super::header::Header;
use super::packing::{Modules, Packing};
use super::projector::UNPROJECTED;
use super::{ENCODER, ImportError, MAX_GROUPS, Tensor, UNNAMED, label, metadata, short};
use crate::architecture::{Architecture, Departures, InvalidModel, MAX_LAYERS, Mixer};
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
    mlp: Inner,
    shared: Inner,
    shared_gate: bool,
    expert: Inner,
    experts: u64,
}

impl LayerShapes {
    fn fields(&self) -> Value {
        json!({"query": self.query, "key": self.key, "value": self.value, "fused": self.fused, "latent": self.latent,
            "linear": self.linear, "inner": self.mlp.width(), "shared": self.shared.width(),
            "shared_gate": self.shared_gate, "expert_inner": self.expert.width(), "experts": self.experts})
    }
}

/// Widths in the middle of a feed-forward.
#[derive(Debug, Clone, Copy, Default)]
struct Inner {
    up: u64,
    /// Input of down projections, which is the inner width even where gate and up are one matrix.
    down: u64,
}

impl Inner {
    fn see(&mut self, name: &str, rows: u64, columns: u64) {
        if ["down", "fc2", "w2"].iter().any(|part| name.contains(part)) {
            self.down = self.down.max(columns);
        } else {
            self.up = self.up.max(rows);
        }
    }

    const fn width(self) -> u64 {
        if self.down > 0 { self.down } else { self.up }
    }
}

/// What a file says beside its tensors.
struct Said {
    family: String,
    name: Option<String>,
    is_gguf: bool,
    /// The metadata of a GGUF file, or the usual fields of a configuration.
    fields: Map<String, Value>,
    /// What the family of the configuration makes of it.
    described: Option<Architecture>,
}

impl Said {
    /// What the tables for tensors make of the `fields`.
    fn by_tensors<'a>(&self, fields: &'a Fields<'a>) -> Result<Described<'a>, ImportError> {
        let architecture = self.is_gguf.then_some(self.family.as_str());
        Described::by_tensors(architecture, fields).ok_or_else(|| ImportError::Family(self.family.clone()))
    }
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
    let family = header.text("general.architecture").map(short);
    let family = family.ok_or(ImportError::NoFamily("general.architecture"))?;
    let said = Said {
        name: header.text("general.name").map(short),
        is_gguf: true,
        fields: metadata::fields(header, &family),
        described: None,
        family,
    };
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
    let mut model = assemble(said, weights, file)?;
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
    let said = Said {
        family: config.map_or_else(|| UNNAMED.to_owned(), |config| config.family.clone()),
        name: None,
        is_gguf: false,
        fields: config.map(|config| config.usual.clone()).unwrap_or_default(),
        described: config.and_then(|config| config.architecture.clone()),
    };
    // An encoder of sound beside a text model, too, is read by no token.
    let decodes = |tensor: &Tensor| halves(&tensor.name).1 || tensor.name.contains("language_model.");
    let has_decoder = tensors.iter().any(decodes);
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
    let is_labelling = said.fields.get(EMBEDS).and_then(Value::as_bool) == Some(true);
    let mut model = assemble(said, weights, name)?;
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
fn assemble(mut said: Said, mut weights: Vec<Weight<'_>>, file: &str) -> Result<Model, ImportError> {
    if weights.is_empty() {
        return Err(ImportError::Field {
            field: "tensors".to_owned(),
            reason: "are none: there are no weights to read".to_owned(),
        });
    }
    let (layers, drafts, is_encoder, is_known) = {
        let fields = Fields { map: &said.fields };
        let mut found = said.by_tensors(&fields)?;
        let drafts = found.number("drafts")?.unwrap_or(0);
        (found.number("said_layers")?, drafts, found.flag("encoder"), found.flag("known"))
    };
    let mut warnings = Vec::new();
    if said.described.is_none() {
        if !is_known {
            warnings.push(format!(
                "architecture {:?} is not known here: weights are counted from their shapes and names",
                said.family
            ));
        }
        warnings.extend(is_encoder.then(|| ENCODER.to_owned()));
    }
    let text = |weight: &&Weight<'_>| !matches!(weight.class, Class::Tower | Class::Draft);
    let last = weights.iter().filter(text).filter_map(|weight| weight.layer).max();
    let found = last.map_or(0, |last| last as u64 + 1);
    let layers = layers.or_else(|| said.described.as_ref().map(|described| described.layers.len() as u64));
    let layers = layers.unwrap_or_else(|| found.saturating_sub(drafts));
    if !(1..=MAX_LAYERS as u64).contains(&layers) {
        return Err(InvalidModel::Layers(layers).into());
    }
    if found > 0 && layers > found {
        warnings.push(format!("it says {layers} layers and has weights of {found}: shards may be missing"));
    }
    use_of_layers(&mut weights, layers);
    let is_tied = !is_encoder && tie(&mut weights);
    let (mut architecture, seen) = if let Some(described) = said.described {
        // Shapes of packed matrices never overrule what a family's configuration says.
        let plain = weights.iter().filter(|weight| weight.packing.block.is_plain());
        (described, look(plain, layers))
    } else {
        let mut seen = look(weights.iter(), layers);
        let architecture = by_tensors(&mut said, &weights, &seen, &mut warnings)?;
        // llama.cpp caches the heads that a file names, however wide its fused matrix is.
        seen.iter_mut().for_each(|seen| seen.fused = 0);
        (architecture, seen)
    };
    let corrected = correct_heads(&mut architecture, &seen);
    if corrected > 0 {
        warnings.push(format!(
            "keys of {corrected} layers are not as wide as it says: the cache is counted from their shapes"
        ));
    }
    architecture.tied_embeddings = is_tied;
    architecture.departures = Departures { ranks: architecture.departures.ranks, ..Departures::default() };
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
        name: said.name.unwrap_or_else(|| file.to_owned()),
        family: said.family,
        architecture,
        weights: groups.finish(),
        label: None,
        warnings,
        drafting: Drafting::default(),
    };
    Ok(with_remarks(model))
}

/// The model as its tensors show it, with what the file says beside them.
fn by_tensors(
    said: &mut Said,
    weights: &[Weight<'_>],
    seen: &[LayerShapes],
    warnings: &mut Vec<String>,
) -> Result<Architecture, ImportError> {
    said.fields.insert("shapes".to_owned(), seen.iter().map(LayerShapes::fields).collect());
    if let Some(keyed) = seen.iter().find(|seen| seen.key > 0) {
        said.fields.insert("keyed".to_owned(), keyed.fields());
    }
    let is_table = |weight: &&Weight<'_>| {
        matches!(weight.class, Class::Embedding | Class::Head)
            && weight.tensor.shape.len() == 2
            && !weight.tensor.name.contains("per_layer")
    };
    if let Some(Packing { rows, columns, .. }) = weights.iter().find(is_table).map(|weight| weight.packing) {
        said.fields.insert("table".to_owned(), json!({"rows": rows, "columns": columns}));
    }
    let fields = Fields { map: &said.fields };
    let mut described = said.by_tensors(&fields)?;
    let architecture = described.architecture().map_err(|error| match error {
        ImportError::Missing { field, .. } => ImportError::Missing { field, family: said.family.clone() },
        error => error,
    })?;
    warnings.extend(described.remarks(seen.len()));
    warnings.extend(described.flag("sees").then(|| UNPROJECTED.to_owned()));
    Ok(architecture)
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
fn tie(weights: &mut [Weight<'_>]) -> bool {
    let helper = ["per_layer", "position", "wpe", "token_types"];
    let is_table = |weight: &Weight<'_>| {
        weight.class == Class::Embedding && !helper.iter().any(|helper| weight.tensor.name.contains(helper))
    };
    let table = weights.iter().filter(|weight| is_table(weight)).map(|weight| weight.packing.rows).max();
    // What shapes the state before a head is narrower than the table.
    let is_head = |weight: &Weight<'_>| {
        weight.class == Class::Head && table.is_none_or(|rows| weight.packing.rows >= rows / 2)
    };
    if weights.iter().any(is_head) {
        return false;
    }
    for weight in weights.iter_mut().filter(|weight| is_table(weight)) {
        weight.class = Class::Head;
    }
    true
}

fn look<'w, 't: 'w>(weights: impl Iterator<Item = &'w Weight<'t>>, layers: u64) -> Vec<LayerShapes> {
    let mut seen = vec![LayerShapes::default(); usize::try_from(layers).unwrap_or(0).min(MAX_LAYERS)];
    for Weight { tensor, class, layer, packing } in weights {
        let Some(seen) = layer.and_then(|layer| seen.get_mut(layer)) else { continue };
        // Biases say the same as their matrix.
        let is_matrix = packing.parameters > 0 && tensor.shape.len() > 1 && !tensor.name.ends_with("bias");
        let rows = if is_matrix { packing.rows } else { 0 };
        match class {
            Class::AttentionQ => seen.query = seen.query.max(rows),
            Class::AttentionK => seen.key = seen.key.max(rows),
            Class::AttentionV => seen.value = seen.value.max(rows),
            Class::AttentionQkv => seen.fused = seen.fused.max(rows),
            Class::AttentionLatent => seen.latent = true,
            Class::LinearMixer => seen.linear = true,
            Class::Expert if is_matrix => {
                seen.experts = seen.experts.max(packing.matrices);
                seen.expert.see(&tensor.name, rows, packing.columns);
            }
            Class::Mlp if is_matrix => seen.mlp.see(&tensor.name, rows, packing.columns),
            Class::SharedExpert if is_matrix => seen.shared.see(&tensor.name, rows, packing.columns),
            Class::Router => {
                seen.shared_gate |=
                    ["_shexp", "shared_expert_gate"].iter().any(|part| tensor.name.contains(part));
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
