//! `config.json` of Hugging Face, with its `quantization_config`.
//!
//! `Described` knows what the fields of each family mean. Language models inside others (`text_config`) are what is
//! described.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::families::Described;
use super::fields::{Fields, INNER};
use super::quantisation::{Quantisation, Storage, quantisation};
use super::tower::Tower;
use super::{ENCODER, ImportError, UNNAMED, said, short};
use crate::architecture::{Architecture, Cache, Matrix, Mixer, Part};
use crate::block::Block;
use crate::class::Class;
use crate::drafting::head_weights;
use crate::foreign;
use crate::model::{Drafting, Grouping, Model, WeightGroup};
use crate::recipe::Recipe;
use rooflined_core::precision::WeightFormat;

/// Longest file.
pub const MAX_BYTES: u64 = 16 << 20;
/// Most objects and lists of one. An object of seven bytes takes hundreds once it is read; lists of modules have one for every
/// matrix of a layer.
const MAX_CONTAINERS: u64 = 1 << 17;
/// Most values for each of those.
const VALUES_OF_A_CONTAINER: u64 = 4;

/// The field of those that [`usual`] makes that says whether the model embeds or ranks text.
pub(super) const EMBEDS: &str = "embeds";

/// The field that holds how weights are stored, and what it was called before.
const QUANTISED: &[&str] = &["quantization_config", "compression_config", "quip_params", "aqlm"];

/// What errors call the file.
const CONFIGURATION: &str = "configuration";

/// A parsed `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub(crate) family: String,
    pub(super) name: Option<String>,
    /// The model as its family describes it; `None` for a family that is not known.
    pub(crate) architecture: Option<Architecture>,
    /// Layers behind the last that draft tokens.
    drafts: u64,
    /// It embeds or ranks text, and generates none.
    is_encoder: bool,
    /// What its modules are called.
    modules: ModuleNames,
    /// The usual fields, for tensors of a family that is not known.
    pub(super) usual: Map<String, Value>,
    /// What weights that are not quantised are stored as.
    pub dtype: Block,
    /// What the projections were quantised to; `None` where they were not.
    pub quantisation: Option<Quantisation>,
    /// For pictures and sound.
    towers: Vec<Tower>,
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not JSON, or a field is no number.
    pub fn parse(json: &[u8]) -> Result<Self, ImportError> {
        Self::parse_at_most(json, MAX_CONTAINERS)
    }

    /// The same, with at most so many objects and lists, which take some 650 bytes of memory each, and four times as many values,
    /// which take some 100.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_at_most(json: &[u8], containers: u64) -> Result<Self, ImportError> {
        if json.len() as u64 > MAX_BYTES {
            let count = json.len() as u64;
            return Err(ImportError::TooMany { what: "bytes of config.json", count, limit: MAX_BYTES });
        }
        Self::from_value(&value(json, containers)?)
    }

    /// The same from fields that came another way, such as inside a request.
    ///
    /// # Errors
    /// It is no object, or a field is no number.
    pub fn from_value(value: &Value) -> Result<Self, ImportError> {
        let Some(map) = value.as_object() else {
            let error = "an object was expected".to_owned();
            return Err(ImportError::Json { what: CONFIGURATION, error });
        };
        let outer = Fields { map };
        if let Some(error) = other_kind(&outer) {
            return Err(error);
        }
        let text = language_model(&outer);
        let (family, known) = described(&outer, &text);
        let described = known.map(|mut described| {
            let drafts = described.number("drafts")?.unwrap_or(0);
            let (has_tower, is_encoder) = (described.flag("tower"), described.flag("encoder"));
            let modules = ModuleNames::of(&mut described);
            Ok::<_, ImportError>((described.architecture()?, (drafts, has_tower, is_encoder, modules)))
        });
        let (architecture, rest) = described.transpose()?.unzip();
        let (drafts, has_tower, is_encoder, modules) =
            rest.unwrap_or((0, true, false, ModuleNames::default()));
        let mut usual =
            Described::unknown(&outer, &text).map(|mut found| usual(&mut found)).unwrap_or_default();
        if is_encoder {
            usual.insert(EMBEDS.to_owned(), true.into());
        }
        let dtype =
            match text.text(&["dtype", "torch_dtype"]).or_else(|| outer.text(&["dtype", "torch_dtype"])) {
                Some("float32") => Block::F32,
                Some("float16") => Block::F16,
                _ => Block::Bf16,
            };
        let quantisation = scheme(&outer, &text)?.map(|fields| quantisation(&fields, &outer)).transpose()?;
        let width = architecture.as_ref().map_or(0, |architecture: &Architecture| architecture.hidden);
        let mut towers = if has_tower { Tower::read(&outer, width)? } else { Vec::new() };
        // A model with a text part may have other parts that its config does not mention.
        let around = outer.text(&["model_type"]).filter(|_| !std::ptr::eq(outer.map, text.map));
        if let Some(around) = around.filter(|name| towers.is_empty() && !Described::knows(name)) {
            towers.push(Tower::unknown(around));
        }
        Ok(Self {
            name: outer.text(&["_name_or_path", "name"]).filter(|name| !name.is_empty()).map(short),
            architecture,
            drafts,
            is_encoder,
            modules,
            usual,
            family,
            dtype,
            quantisation,
            towers,
        })
    }

    /// Adds what a separate `hf_quant_config.json` (modelopt) says, where the configuration itself says nothing.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn with_modelopt(mut self, json: &[u8]) -> Result<Self, ImportError> {
        let value = value(json, MAX_CONTAINERS)?;
        if let (None, Some(map)) = (&self.quantisation, value.as_object()) {
            let fields = Fields { map };
            self.quantisation = Some(quantisation(&fields, &fields)?);
        }
        Ok(self)
    }

    /// The same of a model that is published with what makes a vector of its output: it embeds, and generates no text.
    #[must_use]
    pub fn as_embedder(mut self) -> Self {
        self.is_encoder = true;
        self.usual.insert(EMBEDS.to_owned(), true.into());
        if let Some(architecture) = &mut self.architecture {
            architecture.departures.headless = true;
            for layer in &mut architecture.layers {
                if let Mixer::Attention(attention) = &mut layer.mixer {
                    attention.cache = Cache::None;
                }
            }
        }
        self
    }

    /// The model that the configuration describes, quantised as it says, or by `recipe`.
    ///
    /// # Errors
    /// Fields contradict each other.
    pub fn model(&self, recipe: Option<Recipe>, name: &str) -> Result<Model, ImportError> {
        let unknown = || match self.family.as_str() {
            UNNAMED => ImportError::NoFamily("model_type"),
            family => ImportError::Family(family.to_owned()),
        };
        let mut architecture = self.architecture.clone().ok_or_else(unknown)?;
        let beside = u64::try_from(architecture.parameters()).unwrap_or(u64::MAX);
        if let Some(tower) = self.towers.iter().find(|tower| !tower.is_sized(beside)) {
            return Err(ImportError::Tower(tower.name.clone()));
        }
        let Some(recipe) = recipe else {
            architecture.departures.kv_format = self.quantisation.as_ref().and_then(Quantisation::kv_format);
            let stored = Recipe::of(self.dtype.format().unwrap_or(WeightFormat::Fp16));
            let remarks = self.quantisation.iter().flat_map(Quantisation::remarks).collect();
            let weights = self.stored(&architecture)?;
            let mut model = self.assembled(architecture, weights, stored, remarks, name);
            model.label = Some(match &self.quantisation {
                Some(found) => found.label(&model.weights),
                None => self.dtype.key().to_owned(),
            });
            return Ok(model);
        };
        Ok(self.quantised(architecture, recipe, name))
    }

    /// The same with an architecture that is known to be described, quantised by `recipe`.
    pub(crate) fn quantised(&self, architecture: Architecture, recipe: Recipe, name: &str) -> Model {
        let weights = recipe.weights(&architecture);
        self.assembled(architecture, weights, recipe, Vec::new(), name)
    }

    /// Adds towers and what drafts to the weights of the text model.
    fn assembled(
        &self,
        architecture: Architecture,
        mut weights: Vec<WeightGroup>,
        recipe: Recipe,
        remarks: Vec<String>,
        name: &str,
    ) -> Model {
        let mut warnings = Vec::new();
        if self.is_encoder {
            warnings.push(ENCODER.to_owned());
        }
        warnings.extend(remarks);
        let groups: Vec<WeightGroup> =
            self.towers.iter().flat_map(|tower| tower.weights(self.dtype)).collect();
        if !groups.is_empty() {
            let millions = groups.iter().map(|group| group.parameters).sum::<u64>() / 1_000_000;
            warnings.push(format!(
                "a tower of {millions} million weights for pictures or sound counts as memory; its time counts with \
                 --image-tokens"
            ));
            weights.extend(groups);
        }
        let head = head_weights(recipe, &architecture, self.drafts);
        Model {
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            family: self.family.clone(),
            architecture,
            weights,
            label: Some(recipe.key().to_owned()),
            warnings,
            drafting: Drafting { head, by: None },
        }
    }

    /// The weights as the configuration says that they are stored.
    pub(super) fn stored(&self, architecture: &Architecture) -> Result<Vec<WeightGroup>, ImportError> {
        let matrices = architecture.matrices();
        if let Some(found) = &self.quantisation {
            found.check(matrices.len())?;
        }
        let mut groups = Grouping::default();
        for matrix in matrices {
            let plain = matrix.part == Part::Small
                || matches!(matrix.class, Class::Norm | Class::Router | Class::Tower);
            let storage = match self.quantisation.as_ref().filter(|_| !plain) {
                Some(found) => {
                    found.of(&self.modules.names(&matrix, architecture.tied_embeddings), &matrix)?
                }
                None => None,
            };
            add(&mut groups, &matrix, storage, self.dtype).ok_or(ImportError::TooMany {
                what: "weights",
                count: u64::MAX,
                limit: u64::MAX,
            })?;
        }
        Ok(groups.finish())
    }
}

/// Adds a matrix as it is stored, or as `dtype`; `None` where a sum does not fit 64 bits.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a byte in a matrix"
)]
fn add(groups: &mut Grouping, matrix: &Matrix, storage: Option<Storage>, dtype: Block) -> Option<()> {
    let Matrix { class, rows, columns, matrices, .. } = *matrix;
    let parameters = u64::try_from(matrix.parameters()).ok()?;
    let Storage { format, bits } = storage.unwrap_or_default();
    // Where no format stands for a method, the narrowest block that holds its codes.
    let wide = bits.and_then(|bits| {
        [Block::Int4, Block::Int4G32, Block::I8].into_iter().find(|block| bits <= block.bits())
    });
    let block = match (format, storage) {
        (Some(format), _) => Block::of(format),
        (None, Some(_)) => wide.unwrap_or(Block::I8),
        (None, None) => dtype,
    };
    let most = block.size(rows, columns)?.checked_mul(matrices)?;
    let bytes = match bits.map(|bits| (parameters as f64 * bits / 8.0).ceil()) {
        Some(bytes) => (bytes < 9e18).then_some(bytes as u64)?,
        None => most,
    };
    groups.add(class, block, (rows, columns), matrices, parameters, bytes.min(most))?;
    // What a block has no room for stands beside it, as the scales of a checkpoint do.
    let beside = bytes.saturating_sub(most);
    if beside > 0 { groups.add(class, block, (1, 0), 0, 0, beside) } else { Some(()) }
}

/// Reads JSON that takes no more memory than a configuration does.
fn value(json: &[u8], most: u64) -> Result<Value, ImportError> {
    let (mut containers, mut values) = (0, 1);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => containers += 1,
            b',' if !quoted => values += 1,
            _ => {}
        }
    }
    let most_values = VALUES_OF_A_CONTAINER * most;
    for (what, count, limit) in [("objects and lists", containers, most), ("values", values, most_values)] {
        if count > limit {
            return Err(ImportError::TooMany { what, count, limit });
        }
    }
    // Editors on Windows write a mark before the first byte.
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    serde_json::from_slice(&without_infinities(json))
        .map_err(|error| ImportError::Json { what: CONFIGURATION, error: said(&error) })
}

/// Python writes `NaN` and `Infinity` where JSON has no such numbers: they become `null`.
fn without_infinities(json: &[u8]) -> Cow<'_, [u8]> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let mut text = Vec::new();
    let (mut quoted, mut at, mut copied) = (false, 0, 0);
    while let Some(byte) = json.get(at) {
        let word = WORDS.iter().find(|word| !quoted && json[at..].starts_with(word));
        if let Some(word) = word {
            text.extend_from_slice(&json[copied..at]);
            text.extend_from_slice(b"null");
            copied = at + word.len();
        }
        quoted ^= *byte == b'"';
        let escaped = quoted && *byte == b'\\';
        at += word.map_or(1 + usize::from(escaped), |word| word.len());
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    text.extend_from_slice(&json[copied..]);
    Cow::Owned(text)
}

/// The object that says how weights are stored; `None` where they are not quantised.
fn scheme<'a>(outer: &Fields<'a>, text: &Fields<'a>) -> Result<Option<Fields<'a>>, ImportError> {
    // MLX keeps its scheme under a name of its own, next to that of what it converted.
    const OWN: &[&str] = &["quantization"];
    let own = || outer.inner(OWN).filter(|fields| !fields.map.is_empty());
    let found = own().filter(|fields| fields.any(&["bits", "mode"]).is_some());
    let found = found.or_else(|| outer.inner(QUANTISED)).or_else(|| text.inner(QUANTISED)).or_else(own);
    let said = [QUANTISED, OWN].iter().find_map(|names| outer.any(names).or_else(|| text.any(names)));
    match said.filter(|_| found.is_none()) {
        Some(Value::String(word)) if !word.is_empty() => {
            Err(ImportError::Method(format!("{:?}, and the file says nothing else of it", short(word))))
        }
        _ => Ok(found),
    }
}

/// What a configuration describes that is no model of text; `None` where it may be one.
fn other_kind(outer: &Fields<'_>) -> Option<ImportError> {
    // Diffusers name the class of each part of a pipeline.
    if let Some(class) = outer.text(&["_class_name"]) {
        let kind = foreign::GENERATOR;
        let what = format!("{} ({})", kind.what, short(class));
        return Some(ImportError::NotText { what, instead: kind.instead });
    }
    let class = outer.list(&["architectures"]).and_then(|classes| classes.first()?.as_str());
    let drafts = [
        "draft_vocab_size",
        "speculators_model_type",
        "medusa_num_heads",
        "dflash_config",
        "eagle_aux_hidden_state_layer_ids",
    ];
    let fields = |names: &[&str]| names.iter().all(|name| outer.map.contains_key(*name));
    let own =
        foreign::BY_FIELDS.iter().find(|(names, _)| outer.any(&["model_type"]).is_none() && fields(names));
    if let Some((_, kind)) = own {
        return Some(ImportError::Foreign(kind));
    }
    let kind = if outer.any(&["peft_type"]).is_some() {
        foreign::ADAPTER
    } else if drafts.iter().any(|field| outer.any(&[*field]).is_some())
        || class.is_some_and(|class| class.contains("Eagle3"))
    {
        foreign::DRAFTER
    } else {
        let family = outer.text(&["model_type"])?;
        let is_part = outer.inner(INNER).is_none();
        let other = || {
            let by_class = class.and_then(foreign::of_class);
            by_class
                .or_else(|| foreign::of_part(family).filter(|_| is_part))
                .filter(|_| !Described::knows(family))
        };
        foreign::of_family(family).or_else(other)?
    };
    Some(kind.into())
}

/// The configuration of the language model: the innermost that names its layers, its family, or anything at all where
/// the outer one has no layers of its own.
fn language_model<'a>(outer: &Fields<'a>) -> Fields<'a> {
    let mut text = Fields { map: outer.map };
    while let Some(inner) = text.inner(INNER) {
        let has_layers =
            |fields: &Fields<'_>| fields.any(&["num_hidden_layers", "n_layer", "hidden_size"]).is_some();
        let is_named = inner.text(&["model_type"]).is_some() || inner.inner(INNER).is_some();
        if !has_layers(&inner) && !is_named && has_layers(&text) {
            break;
        }
        text = inner;
    }
    text
}

/// Who describes the model: the family of its own name, or the one around it where it speaks for all its parts.
fn described<'a>(outer: &'a Fields<'a>, text: &'a Fields<'a>) -> (String, Option<Described<'a>>) {
    let class = outer.list(&["architectures"]).and_then(|classes| classes.first()?.as_str());
    let mut names = [text, outer].map(|fields| fields.text(&["model_type"]));
    let around = names[1].and_then(|name| Described::new(name, outer, text));
    if around.is_some_and(|mut around| around.flag("composite")) {
        names.reverse();
    }
    // Few classes are families of their own.
    let known = class
        .into_iter()
        .chain(names.into_iter().flatten())
        .find_map(|name| Described::new(name, outer, text).map(|found| (name, found)));
    match known {
        Some((name, found)) => (short(name), Some(found)),
        None => (names.into_iter().flatten().next().map_or_else(|| UNNAMED.to_owned(), short), None),
    }
}

/// What the usual names of fields say of a family that is not known, under one name each; shapes of tensors say the rest.
fn usual(described: &mut Described<'_>) -> Map<String, Value> {
    const NAMES: &[(&str, &str)] = &[
        ("hidden", "hidden_size"),
        ("vocab", "vocab_size"),
        ("layers", "num_hidden_layers"),
        ("heads", "num_attention_heads"),
        ("kv_heads", "num_key_value_heads"),
        ("head_dim", "attention_head_dim"),
        ("context", "max_position_embeddings"),
        ("experts", "num_experts"),
        ("active_experts", "num_experts_per_tok"),
        ("expert_intermediate", "moe_intermediate_size"),
    ];
    let flags = [("encoder", EMBEDS), ("ranks", "scores")];
    let flags = flags.map(|(key, field)| (field.to_owned(), described.flag(key).into()));
    let number = |(key, field): &(&'static str, &str)| {
        Some(((*field).to_owned(), described.number(key).ok().flatten()?.into()))
    };
    NAMES.iter().filter_map(number).chain(flags).collect()
}

/// What a family calls the parts of its layers: attention, other mixers, feed-forwards, and what holds experts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ModuleNames {
    attention: String,
    linear: String,
    mlp: String,
    experts: String,
}

impl ModuleNames {
    fn of(described: &mut Described<'_>) -> Self {
        let mut name = |key| described.text(key).map(short).unwrap_or_default();
        Self {
            attention: name("attention_module"),
            linear: name("linear_module"),
            mlp: name("mlp_module"),
            experts: name("experts_module"),
        }
    }

    /// Names that a checkpoint would give the module.
    fn names(&self, matrix: &Matrix, tied: bool) -> Vec<String> {
        const TABLE: &str = "model.embed_tokens";
        let Some(layer) = matrix.layer else {
            let names: &[&str] = match matrix.class {
                Class::Head if tied => &["lm_head", TABLE],
                Class::Head => &["lm_head"],
                _ => &[TABLE],
            };
            return names.iter().map(|name| (*name).to_owned()).collect();
        };
        let (module, names): (&str, &[&str]) = match (matrix.class, matrix.part) {
            (Class::AttentionQ, Part::Down) => (&self.attention, &["q_a_proj", "fused_qkv_a_proj_with_mqa"]),
            (Class::AttentionQ, Part::Up) => (&self.attention, &["q_b_proj"]),
            (Class::AttentionQ, _) => (&self.attention, &["q_proj", "qkv_proj"]),
            (Class::AttentionK, _) => (&self.attention, &["k_proj", "qkv_proj"]),
            (Class::AttentionV, _) => (&self.attention, &["v_proj", "qkv_proj"]),
            (Class::AttentionQkv, _) => (&self.attention, &["qkv_proj", "query_key_value", "c_attn", "Wqkv"]),
            (Class::AttentionLatent, Part::Up) => (&self.attention, &["kv_b_proj"]),
            (Class::AttentionLatent, _) => {
                (&self.attention, &["kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa"])
            }
            (Class::AttentionOut, _) => (&self.attention, &["o_proj", "out_proj", "dense"]),
            (Class::LinearMixer, Part::Down) => (&self.linear, &["out_proj"]),
            (Class::LinearMixer, Part::Up) => (&self.linear, &["in_proj_qkvz", "in_proj_qkv"]),
            (Class::LinearMixer, Part::Gate) => (&self.linear, &["in_proj_z", "in_proj_qkvz"]),
            (Class::LinearMixer, _) => (&self.linear, &["in_proj", "in_proj_ba", "in_proj_b"]),
            (_, Part::Gate) => (&self.mlp, &["gate_proj", "gate_up_proj", "w1"]),
            (_, Part::Up) => (&self.mlp, &["up_proj", "gate_up_proj", "w3"]),
            _ => (&self.mlp, &["down_proj", "w2"]),
        };
        let places = match matrix.class {
            Class::Expert => {
                let own = ["experts.0", "experts"].map(|experts| format!("{}.{experts}", self.experts));
                own.into_iter().chain(["block_sparse_moe.experts.0".to_owned()]).collect()
            }
            Class::SharedExpert => {
                ["shared_expert", "shared_experts"].map(|shared| format!("{module}.{shared}")).to_vec()
            }
            _ => vec![module.to_owned()],
        };
        let named = places.iter().flat_map(|place| names.iter().map(move |name| format!("{place}.{name}")));
        named.map(|name| format!("model.layers.{layer}.{}", name.trim_start_matches('.'))).collect()
    }
}

#[cfg(test)]
mod tests;
