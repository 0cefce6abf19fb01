//! Architectures as data: what a family's configuration means, from `config/families/*.toml`.
//!
//! A table describes a family by expressions for its keys; what it leaves out follows from the family that it
//! is `like`, last from `base`. Lists of weights add what the layers here do not have by themselves. Defaults of fields
//! that a file leaves out are those of the family's own configuration class. `gguf.toml` does the same for the metadata of GGUF
//! files, and for what tensors show where nothing else is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::expression::{Datum, Node, Scope};
use super::fields::Fields;
use super::{ImportError, short};
use crate::architecture::{
    Architecture, Attention, Cache, Departures, FeedForward, InvalidModel, Latent, Layer, Linear, MAX_LAYERS,
    MAX_WIDTH, Matrix, Mixer, Part,
};
use crate::class::Class;

/// Files of families, and first that of `base`.
const FILES: &[(&str, &str)] = &[
    ("base", include_str!("../../config/families/base.toml")),
    ("dense", include_str!("../../config/families/dense.toml")),
    ("experts", include_str!("../../config/families/experts.toml")),
    ("hybrid", include_str!("../../config/families/hybrid.toml")),
    ("gemma", include_str!("../../config/families/gemma.toml")),
    ("other", include_str!("../../config/families/other.toml")),
];

/// What tensors show, and the metadata of GGUF files by architecture.
const TENSORS_FILE: &str = include_str!("../../config/families/gguf.toml");

/// Most matrices that lists of weights add to a model.
const MAX_EXTRA: usize = 1 << 17;

/// Weights that a list adds: class, part, and expressions of rows, columns, how many, and whether at all.
#[derive(Debug, Clone)]
struct Extra {
    class: Class,
    part: Part,
    sizes: Vec<Node>,
    condition: Option<Node>,
}

/// A family by one of its names.
#[derive(Debug, Clone, Default)]
pub(super) struct Family {
    /// The family that describes what this one does not.
    like: Option<String>,
    pub keys: BTreeMap<String, Node>,
    /// Weights of the model, and of each layer.
    weights: Vec<Extra>,
    layer_weights: Vec<Extra>,
    /// What a reader should know, and when.
    remarks: Vec<(String, Node)>,
}

// A test reads every file; one with an error would be left out.
static FAMILIES: LazyLock<BTreeMap<String, Family>> =
    LazyLock::new(|| FILES.iter().filter_map(|(_, text)| read(text).ok()).flatten().collect());

static TENSORS: LazyLock<BTreeMap<String, Family>> = LazyLock::new(|| {
    let files = [FILES[0].1, TENSORS_FILE];
    files.into_iter().filter_map(|text| read(text).ok()).flatten().collect()
});

/// Fields that some table of [`TENSORS_FILE`] reads: a file may have thousands of others.
pub(super) static FIELDS_OF_TENSORS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let nodes = TENSORS.values().flat_map(|family| family.keys.values());
    nodes.flat_map(Node::words).collect()
});

/// Sizes and the fields that some family reads for each.
static SIZES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let families = FAMILIES.values().flat_map(|family| family.keys.iter());
    families.flat_map(|(key, node)| node.names().into_iter().map(|name| (key.as_str(), name))).collect()
});

/// Fields that a file may leave out, by family.
pub(super) type Defaults = BTreeMap<String, Map<String, Value>>;

static DEFAULTS: LazyLock<Defaults> =
    LazyLock::new(|| toml::from_str(include_str!("../../config/families/defaults.toml")).unwrap_or_default());

/// The families of one file.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let tables: BTreeMap<String, Map<String, Value>> =
        toml::from_str(text).map_err(|error| error.to_string())?;
    let mut all = BTreeMap::new();
    for (name, table) in tables {
        let wrong = |key: &str, error: String| format!("{name}.{key}: {error}");
        let mut family = Family::default();
        let mut names = vec![name.clone()];
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("like", Value::String(like)) => family.like = Some(like.clone()),
                ("names", Value::Array(list)) => {
                    names.extend(list.iter().filter_map(Value::as_str).map(ToOwned::to_owned));
                }
                ("weights" | "layer_weights", Value::Array(list)) => {
                    let list = list.iter().filter_map(Value::as_str).map(extra);
                    let list = list.collect::<Result<_, _>>().map_err(|error| wrong(key, error))?;
                    if key == "weights" { family.weights = list } else { family.layer_weights = list }
                }
                ("remarks", Value::Array(list)) => {
                    let list = list.iter().filter_map(Value::as_str).map(remark);
                    family.remarks = list.collect::<Result<_, _>>().map_err(|error| wrong(key, error))?;
                }
                (key, Value::String(text)) => {
                    let node = Node::parse(text).map_err(|error| wrong(key, error))?;
                    family.keys.insert(key.to_owned(), node);
                }
                (key, _) => return Err(wrong(key, "an expression was expected".to_owned())),
            }
        }
        for name in names {
            if all.insert(name.clone(), family.clone()).is_some() {
                return Err(format!("{name} is described twice"));
            }
        }
    }
    Ok(all)
}

/// The table `first`, then those that it is like.
pub(super) fn chain(first: &'static Family, all: &'static BTreeMap<String, Family>) -> Vec<&'static Family> {
    let next = |family: &&'static Family| all.get(family.like.as_deref()?);
    std::iter::successors(Some(first), next).take(8).collect()
}

/// `CLASS [small|up|down|gate] ROWS, COLUMNS [, HOW MANY] [if CONDITION]`.
fn extra(text: &str) -> Result<Extra, String> {
    let (text, condition) = match text.split_once(" if ") {
        Some((text, condition)) => (text, Some(Node::parse(condition)?)),
        None => (text, None),
    };
    let (class, rest) = text.split_once(' ').ok_or("a class and sizes were expected")?;
    let class = Class::try_from(class.to_owned())?;
    let parts = [("small ", Part::Small), ("up ", Part::Up), ("down ", Part::Down), ("gate ", Part::Gate)];
    let found = parts.iter().find_map(|(word, part)| rest.strip_prefix(word).map(|rest| (*part, rest)));
    let (part, sizes) = found.unwrap_or((Part::Whole, rest));
    Ok(Extra { class, part, sizes: Node::parse_list(sizes)?, condition })
}

/// `TEXT if CONDITION`.
fn remark(text: &str) -> Result<(String, Node), String> {
    let (text, condition) = text.split_once(" if ").ok_or("a condition was expected")?;
    Ok((text.to_owned(), Node::parse(condition)?))
}

/// A configuration as its family understands it.
pub(super) struct Described<'a> {
    family: &'static str,
    defaults: Option<&'static Map<String, Value>>,
    /// This family, then those that it is like.
    chain: Vec<&'static Family>,
    text: &'a Fields<'a>,
    outer: &'a Fields<'a>,
    layer: Option<usize>,
    /// Of a tower: the widths of the text model and of the tower that is joined to it.
    widths: [u64; 2],
    /// Keys of the layer that are known, and those being computed, which stand for fields of the same name.
    known: BTreeMap<&'static str, Option<Datum<'a>>>,
}

impl<'a> Scope<'a> for Described<'a> {
    fn look_up(&mut self, name: &str, with_defaults: bool) -> Datum<'a> {
        if name == "i" {
            #[expect(clippy::cast_precision_loss, reason = "layers are few")]
            return self.layer.map_or(Datum::Missing, |layer| Datum::Number(layer as f64));
        }
        if let Some(place) = ["text_width", "seen_width"].iter().position(|width| *width == name) {
            #[expect(clippy::cast_precision_loss, reason = "widths are bounded")]
            return Datum::Number(self.widths[place] as f64);
        }
        let found = self.chain.iter().find_map(|family| family.keys.get_key_value(name));
        let Some((key, node)) = found else { return self.field(name, with_defaults) };
        match self.known.get(key.as_str()) {
            // The key is being computed: the name is that of a field.
            Some(None) => return self.field(name, with_defaults),
            // No file gives keys.
            _ if !with_defaults => return Datum::Missing,
            Some(Some(known)) => return known.clone(),
            None => {}
        }
        self.known.insert(key, None);
        let value = match (node.evaluate(self), self.layer) {
            // A list of numbers has one for each layer.
            (Datum::Json(Value::Array(list)), Some(layer)) if list.iter().all(Value::is_number) => {
                Datum::of(list.get(layer))
            }
            (value, _) => value,
        };
        self.known.insert(key, Some(value.clone()));
        value
    }
}

impl<'a> Described<'a> {
    /// The family of a configuration; `None` where nothing here describes it.
    pub fn new(family: &str, outer: &'a Fields<'a>, text: &'a Fields<'a>) -> Option<Self> {
        let (name, first) = FAMILIES.get_key_value(family).filter(|(_, family)| family.like.is_some())?;
        Some(Self::of(name, DEFAULTS.get(family), chain(first, &FAMILIES), outer, text))
    }

    /// Whether a table describes models of that name.
    pub fn knows(family: &str) -> bool {
        FAMILIES.contains_key(family)
    }

    /// A tower by the table of that name, beside a text model as wide as the first of the `widths`.
    pub fn tower(
        name: &str,
        (tables, defaults): (&'static BTreeMap<String, Family>, &'static Defaults),
        outer: &'a Fields<'a>,
        fields: &'a Fields<'a>,
        widths: [u64; 2],
    ) -> Option<Self> {
        let (name, first) = tables.get_key_value(name)?;
        Some(Self { widths, ..Self::of(name, defaults.get(name), chain(first, tables), outer, fields) })
    }

    /// A family that is not known, as far as the usual names of fields go.
    pub fn unknown(outer: &'a Fields<'a>, text: &'a Fields<'a>) -> Option<Self> {
        let (name, base) = FAMILIES.get_key_value("base")?;
        Some(Self::of(name, None, chain(base, &FAMILIES), outer, text))
    }

    /// A model by what its tensors show, with what a GGUF file of an `architecture` says or the usual fields of a configuration.
    pub fn by_tensors(architecture: Option<&str>, fields: &'a Fields<'a>) -> Option<Self> {
        let table = |name| TENSORS.get_key_value(name).filter(|(_, family)| family.like.is_some());
        let (name, first) = architecture.map_or(table("tensors"), |name| table(name).or(table("gguf")))?;
        Some(Self::of(name, None, chain(first, &TENSORS), fields, fields))
    }

    fn of(
        family: &'static str,
        defaults: Option<&'static Map<String, Value>>,
        chain: Vec<&'static Family>,
        outer: &'a Fields<'a>,
        text: &'a Fields<'a>,
    ) -> Self {
        Self { family, defaults, chain, text, outer, layer: None, widths: [0; 2], known: BTreeMap::new() }
    }

    fn field(&self, name: &str, with_defaults: bool) -> Datum<'a> {
        let layer = self.layer.and_then(|layer| self.of_layer(layer)?.get(name));
        let (text, outer) = (self.text.map.get(name), self.outer.map.get(name));
        let default = self.defaults.filter(|_| with_defaults).and_then(|defaults| defaults.get(name));
        // What the outer configuration says of itself comes last, and first under a name that asks for it. A field that is
        // there and null has no value, whatever the default.
        if let Some(name) = name.strip_prefix("outer_") {
            let of_outer = |name: &str| self.outer.map.get(name).and_then(Value::as_str);
            // Before version 5 of transformers the text model decided.
            let decides = of_outer("transformers_version").is_some_and(|version| version.starts_with('5'));
            let around = of_outer("model_type").filter(|_| with_defaults && decides);
            let default = around.filter(|_| name == "tie_word_embeddings");
            let default = default.and_then(|around| DEFAULTS.get("ties")?.get(around));
            return Datum::of(self.outer.map.get(name).or(default));
        }
        // What holds a text model under its own name describes its other parts with plain fields.
        let is_own = std::ptr::eq(self.text.map, self.outer.map)
            || self.outer.map.get("model_type").and_then(Value::as_str) == Some(self.family);
        let outer = outer.filter(|value| is_own || value.is_object() || value.is_array());
        Datum::of(layer.or(text).or(default).or(outer))
    }

    /// What `per_layer_config` says of a layer, under its number with or without zeros before it.
    fn of_layer(&self, layer: usize) -> Option<&'a Value> {
        let map = self.text.map.get("per_layer_config")?.as_object()?;
        [format!("{layer:02}"), layer.to_string(), format!("{layer:03}")].iter().find_map(|key| map.get(key))
    }

    fn at(&mut self, layer: Option<usize>) {
        self.layer = layer;
        self.known.clear();
    }

    fn evaluate(&mut self, key: &'static str) -> Datum<'a> {
        self.look_up(key, true)
    }

    pub fn text(&mut self, key: &'static str) -> Option<&'a str> {
        if let Datum::Text(text) = self.evaluate(key) { Some(text) } else { None }
    }

    pub fn flag(&mut self, key: &'static str) -> bool {
        self.evaluate(key).is_true()
    }

    /// A whole number; `None` where it is missing.
    pub fn number(&mut self, key: &'static str) -> Result<Option<u64>, ImportError> {
        let found = match self.evaluate(key) {
            Datum::Missing => return Ok(None),
            Datum::Number(number) => match whole(number) {
                Some(number) => return Ok(Some(number)),
                None => Value::from(number).to_string(),
            },
            Datum::Text(text) => format!("{:?}", short(text)),
            Datum::Json(value) => short(&value.to_string()),
        };
        Err(wrong(self.field_of(key), format!("is {found}, not a whole number within reason")))
    }

    fn need(&mut self, key: &'static str) -> Result<u64, ImportError> {
        self.number(key)?.ok_or_else(|| {
            let (field, family) = (self.field_of(key).to_owned(), self.family.to_owned());
            ImportError::Missing { field, family }
        })
    }

    /// The longest context as the file gives it: that of the family's default belongs to another model.
    fn context(&self) -> Option<u64> {
        let names = self.names("context");
        let given = names.iter().find_map(|name| Datum::of(self.text.map.get(*name)).number());
        given.and_then(whole).filter(|tokens| (1..=MAX_WIDTH).contains(tokens))
    }

    fn names(&self, key: &str) -> Vec<&'static str> {
        self.chain.iter().find_map(|family| family.keys.get(key)).map(Node::names).unwrap_or_default()
    }

    /// The field that gives a key, for messages: the one that the file has, or the usual one.
    fn field_of(&self, key: &'static str) -> &'static str {
        let names = self.names(key);
        let is_field =
            |name: &&&str| !self.chain.iter().any(|family| name != &&key && family.keys.contains_key(**name));
        let given = names.iter().find(|name| self.text.map.contains_key(**name));
        given.or_else(|| names.iter().find(is_field)).copied().unwrap_or(key)
    }

    /// Refuses a size under a name that this family does not read where its default would count in its place.
    fn check_names(&self) -> Result<(), ImportError> {
        for key in ["hidden", "layers", "heads", "vocab", "intermediate"] {
            let names = self.names(key);
            let is_given = names.iter().any(|name| self.text.map.contains_key(*name));
            let default =
                names.iter().find(|name| self.defaults.is_some_and(|defaults| defaults.contains_key(**name)));
            let Some(default) = default.filter(|_| !is_given) else { continue };
            let is_read = |name: &str| {
                let keys = self.chain.iter().flat_map(|family| family.keys.keys());
                let nodes = keys.filter_map(|key| self.chain.iter().find_map(|family| family.keys.get(key)));
                nodes.flat_map(Node::words).any(|word| word == name)
            };
            let synonyms = SIZES.iter().filter(|(of, _)| *of == key).map(|(_, name)| *name);
            let found = synonyms.filter(|name| self.text.map.get(*name).is_some_and(Value::is_u64));
            if let Some(name) = found.into_iter().find(|name| !is_read(name)) {
                let reason = format!(
                    "is not a field of architecture {:?}, which calls it {default} and has none",
                    self.family
                );
                return Err(wrong(name, reason));
            }
        }
        Ok(())
    }

    /// Every layer, and the matrices that the families' lists add.
    pub fn architecture(&mut self) -> Result<Architecture, ImportError> {
        self.check_names()?;
        let layers = self.need("layers")?;
        let layers = usize::try_from(layers)
            .ok()
            .filter(|layers| (1..=MAX_LAYERS).contains(layers))
            .ok_or(InvalidModel::Layers(layers))?;
        if let Some(described) =
            self.number("described_layers")?.filter(|described| *described < layers as u64)
        {
            return Err(wrong("layer_types", format!("describes {described} of {layers} layers")));
        }
        let mut architecture = Architecture {
            hidden: self.need("hidden")?,
            vocab: self.need("vocab")?,
            layers: Vec::with_capacity(layers),
            gated_mlp: self.flag("gated"),
            tied_embeddings: self.flag("tied"),
            context_tokens: self.context(),
            departures: Departures {
                extra: Vec::new(),
                explicit_mixers: self.flag("explicit_mixers"),
                table_width: self.number("table_width")?.unwrap_or(0),
                head_width: self.number("head_width")?.unwrap_or(0),
                more_rows: self.number("more_rows")?.unwrap_or(0),
                headless: self.flag("headless"),
                ranks: self.flag("ranks"),
                kv_format: None,
            },
        };
        let mut extra = self.matrices()?;
        for index in 0..layers {
            self.at(Some(index));
            self.layer(index, &mut architecture.layers)?;
            self.weights(|family| &family.layer_weights, Some(index), &mut extra)?;
        }
        self.at(None);
        architecture.departures.extra = extra;
        architecture.check()?;
        Ok(architecture)
    }

    /// What a reader should know about one of the layers.
    pub fn remarks(&mut self, layers: usize) -> Vec<String> {
        let chain = self.chain.clone();
        let list = chain.iter().map(|family| &family.remarks).find(|list| !list.is_empty());
        let mut holds = |condition: &'static Node| {
            (0..layers).any(|layer| {
                self.at(Some(layer));
                condition.evaluate(self).is_true()
            })
        };
        let said = list.into_iter().flatten().filter(|(_, condition)| holds(condition));
        said.map(|(text, _)| text.clone()).collect()
    }

    /// The matrices of the model's own list.
    pub fn matrices(&mut self) -> Result<Vec<Matrix>, ImportError> {
        let mut extra = Vec::new();
        self.weights(|family| &family.weights, None, &mut extra)?;
        Ok(extra)
    }

    fn layer(&mut self, index: usize, layers: &mut Vec<Layer>) -> Result<(), ImportError> {
        let feed_forward = self.feed_forward()?;
        let family = self.family;
        let kind = self.text("mixer").ok_or_else(|| ImportError::Missing {
            field: "layer_types".to_owned(),
            family: family.to_owned(),
        })?;
        // A state beside attention counts as a layer of its own without a feed-forward.
        let mut kinds = kind.split('+').peekable();
        while let Some(kind) = kinds.next() {
            let feed_forward = if kinds.peek().is_some() { FeedForward::None } else { feed_forward };
            layers.push(Layer { mixer: self.mixer(kind, index)?, feed_forward });
        }
        Ok(())
    }

    fn mixer(&mut self, kind: &str, index: usize) -> Result<Mixer, ImportError> {
        Ok(match kind {
            "none" | "mlp" | "moe" | "-" | "E" => Mixer::None,
            "full" | "full_attention" | "attention" | "global" | "global_attention" | "*" => {
                self.attention(None)?
            }
            "sliding" | "sliding_attention" | "local" | "local_attention" => {
                self.attention(Some("window"))?
            }
            "chunked_attention" => self.attention(Some("chunk"))?,
            "linear" | "linear_attention" | "mamba" | "mamba2" | "recurrent" | "conv" | "M" => {
                Mixer::Linear(self.linear()?)
            }
            "latent" => Mixer::Latent(Latent {
                heads: self.need("heads")?,
                q_rank: self.number("q_rank")?.filter(|rank| *rank > 0),
                kv_rank: self.need("kv_rank")?,
                nope_dim: self.need("nope_dim")?,
                rope_dim: self.need("rope_dim")?,
                value_dim: self.need("value_dim")?,
                window: self.number("latent_window")?.filter(|window| *window > 0),
                compression: self.number("compression")?.filter(|compression| *compression > 0),
                index_dim: self.number("index_dim")?.unwrap_or(0),
            }),
            kind => {
                let reason = format!(
                    "has layer {index} of kind {:?}, which is not known of {:?}",
                    short(kind),
                    self.family
                );
                return Err(undescribed("layer_types", reason));
            }
        })
    }

    fn attention(&mut self, window: Option<&'static str>) -> Result<Mixer, ImportError> {
        let (hidden, heads) = (self.need("hidden")?, self.need("heads")?);
        let head_dim = match self.evaluate("head_dim").number() {
            Some(width) if width.fract() != 0.0 && heads > 0 && !hidden.is_multiple_of(heads) => {
                return Err(InvalidModel::HeadDim { hidden, heads }.into());
            }
            _ => self.need("head_dim")?,
        };
        let window = window.map(|key| self.number(key)).transpose()?.flatten().filter(|window| *window > 0);
        // A window that no context fills hides nothing.
        let context = self.context().unwrap_or(u64::MAX);
        let window = window.filter(|window| *window < context);
        Ok(Mixer::Attention(Attention {
            heads,
            kv_heads: self.need("kv_heads")?,
            head_dim,
            value_dim: self.number("value_dim")?.unwrap_or(head_dim),
            window,
            output_gate: self.flag("output_gate"),
            shared_kv: self.flag("shared_kv"),
            cache: match (self.flag("reuses_cache"), self.flag("encoder")) {
                (true, _) => Cache::Reused,
                (false, true) => Cache::None,
                (false, false) => Cache::Own,
            },
        }))
    }

    fn linear(&mut self) -> Result<Linear, ImportError> {
        Ok(match self.text("linear") {
            Some("delta_net") => Linear::DeltaNet {
                key_heads: self.need("key_heads")?,
                value_heads: self.need("value_heads")?,
                key_dim: self.need("key_dim")?,
                value_dim: self.need("state_value_dim")?,
                kernel: self.need("kernel")?,
            },
            Some("mamba2") => Linear::Mamba2 {
                heads: self.need("state_heads")?,
                head_dim: self.need("state_head_dim")?,
                state: self.need("state")?,
                groups: self.number("groups")?.unwrap_or(1),
                kernel: self.need("kernel")?,
            },
            Some("conv") => Linear::ShortConvolution { kernel: self.need("kernel")? },
            Some("other") => Linear::Other { state_bytes: self.need("state_bytes")? },
            _ => {
                let reason = format!(
                    "has layers with a state, whose sizes are not known of architecture {:?}",
                    self.family
                );
                return Err(undescribed("layer_types", reason));
            }
        })
    }

    fn feed_forward(&mut self) -> Result<FeedForward, ImportError> {
        Ok(match self.text("feed_forward") {
            Some("dense") => FeedForward::Dense { intermediate: self.need("intermediate")? },
            Some("experts") => FeedForward::Experts {
                experts: self.need("experts")?,
                active: self.need("active_experts")?,
                intermediate: self.need("expert_intermediate")?,
                shared_intermediate: self.number("shared_intermediate")?.unwrap_or(0),
                shared_gate: self.flag("shared_gate"),
                width: self.number("expert_width")?.unwrap_or(0),
            },
            _ => FeedForward::None,
        })
    }

    /// The matrices of the nearest list, for the model or a layer.
    fn weights(
        &mut self,
        list: impl Fn(&'static Family) -> &'static Vec<Extra>,
        layer: Option<usize>,
        extra: &mut Vec<Matrix>,
    ) -> Result<(), ImportError> {
        let found =
            self.chain.iter().map(|family: &&'static Family| list(family)).find(|list| !list.is_empty());
        for Extra { class, part, sizes, condition } in found.into_iter().flatten() {
            if condition.as_ref().is_some_and(|condition| !condition.evaluate(self).is_true()) {
                continue;
            }
            let mut size =
                |place: usize, default: Option<u64>| match sizes.get(place).map(|node| node.evaluate(self)) {
                    Some(Datum::Number(number)) => whole(number)
                        .ok_or_else(|| wrong(class.key(), format!("would have {number} rows or columns"))),
                    None if default.is_some() => Ok(default.unwrap_or(1)),
                    _ => Err(undescribed(
                        class.key(),
                        format!("of architecture {:?} follows from fields that are missing", self.family),
                    )),
                };
            let (rows, columns, matrices) = (size(0, None)?, size(1, None)?, size(2, Some(1))?);
            if extra.len() == MAX_EXTRA {
                return Err(ImportError::TooMany {
                    what: "weights",
                    count: MAX_EXTRA as u64 + 1,
                    limit: MAX_EXTRA as u64,
                });
            }
            if ![rows, columns, matrices].contains(&0) {
                extra.push(Matrix { class: *class, part: *part, layer, rows, columns, matrices });
            }
        }
        Ok(())
    }
}

fn undescribed(field: &str, reason: String) -> ImportError {
    ImportError::Undescribed { field: field.to_owned(), reason }
}

fn wrong(field: &str, reason: String) -> ImportError {
    ImportError::Field { field: field.to_owned(), reason }
}

/// A number of things: whole, not negative, and no more than any model has.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to be whole and in range"
)]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=(1_u64 << 40) as f64).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests;
