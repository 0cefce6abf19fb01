//! What `quantization_config` says: which modules of a checkpoint are stored as what.
//!
//! `config/quantisation.toml` describes how each method stores a weight. Schemes of single modules are the scheme around
//! them with fields of their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::expression::{Datum, Scope};
use super::families::{Family, chain, read};
use super::fields::Fields;
use super::label::main_block;
use super::names::Names;
use super::{ImportError, short};
use crate::architecture::{Matrix, Part};
use crate::class::Class;
use crate::model::WeightGroup;
use rooflined_core::precision::WeightFormat;

/// Most comparisons of patterns with modules.
const MAX_COMPARISONS: u64 = 20_000_000;
/// Most modules of a list that are looked at.
const MAX_MODULES: usize = 1 << 18;
/// Most schemes that differ; tools write tens.
const MAX_SCHEMES: usize = 1024;
/// Most fields of a scheme, most values in each of them, and its longest text.
const MAX_FIELDS: usize = 256;
const MAX_VALUES: usize = 16;
const MAX_TEXT: usize = 256;
/// How deep objects hold fields of a scheme.
const MAX_DEPTH: usize = 6;

// A test reads the file; one with an error would know no method.
static METHODS: LazyLock<BTreeMap<String, Family>> =
    LazyLock::new(|| read(include_str!("../../config/quantisation.toml")).unwrap_or_default());

/// Objects that hold the fields of a scheme.
const NESTED: &[&str] = &[
    "quantization",
    "global_quant_config",
    "quant_config",
    "weight_quant_params",
    "quant_type",
    "quant_type_kwargs",
    "default",
    "_data",
    "module_fqn_to_config",
    "_default",
    "weights",
    "weight",
];
/// Objects of schemes by module.
const BY_MODULE: &[&str] = &[
    "quantized_layers",
    "extra_config",
    "config_for_layers",
    "layer_quant_config",
    "dynamic",
    "module_fqn_to_config",
];
/// Lists of modules that are left as they were.
const EXEMPT: &[&str] = &[
    "modules_to_not_convert",
    "ignore",
    "exclude_modules",
    "exclude",
    "ignored_layers",
    "llm_int8_skip_modules",
    "skip_modules",
    "linear_weights_not_to_quantize",
];

/// Stands for any matrix where only the kind of its storage is asked.
static TYPICAL: Matrix =
    Matrix { class: Class::Mlp, part: Part::Whole, layer: None, rows: 4096, columns: 4096, matrices: 1 };

/// The fields of a scheme, those around it included.
type Scheme = Map<String, Value>;

/// What `quantization_config` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// The method by its own name: `awq`, `gptq`, `fp8`, `compressed-tensors`, …
    pub method: String,
    /// What the method was made to keep the cache in, by its own word.
    pub cache: Option<String>,
    /// The scheme of modules that no group covers; `None` where they are left as they were.
    general: Option<Scheme>,
    groups: Vec<Group>,
    exempt: Names,
}

/// Modules that are stored alike.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    modules: Names,
    /// As what; `None` where they are left as they were.
    scheme: Option<Scheme>,
}

/// How a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Storage {
    /// The format whose kernels apply.
    pub format: Option<WeightFormat>,
    /// Bits of a weight with everything beside it; `None` where they are those of the format.
    pub bits: Option<f64>,
}

/// A scheme and the matrix that it is asked of.
struct Question<'a> {
    scheme: &'a Scheme,
    chain: Vec<&'static Family>,
    matrix: &'a Matrix,
    /// Keys that are being computed: there they stand for fields of the same name.
    open: Vec<&'a str>,
}

impl<'a> Scope<'a> for Question<'a> {
    fn look_up(&mut self, name: &str, with_defaults: bool) -> Datum<'a> {
        let is = |class| u64::from(self.matrix.class == class);
        let number = match name {
            "rows" => Some(self.matrix.rows),
            "columns" => Some(self.matrix.columns),
            "is_head" => Some(is(Class::Head)),
            "is_expert" => Some(is(Class::Expert)),
            _ => None,
        };
        if let Some(number) = number {
            #[expect(clippy::cast_precision_loss, reason = "widths are bounded")]
            return Datum::Number(number as f64);
        }
        let key = self.chain.iter().find_map(|table| table.keys.get_key_value(name));
        match key.filter(|_| !self.open.contains(&name)) {
            Some(_) if !with_defaults => Datum::Missing,
            Some((key, node)) => {
                self.open.push(key);
                let value = node.evaluate(self);
                self.open.pop();
                value
            }
            None => Datum::of(self.scheme.get(name)),
        }
    }
}

impl Quantisation {
    /// What a reader should know: patterns that were not understood cover nothing here.
    pub(super) fn remarks(&self) -> Vec<String> {
        let unknown: Vec<&str> = self.lists().flat_map(Names::unknown).collect();
        let cache = self.cache.as_ref().map(|cache| match self.kv_format() {
            Some(format) => format!(
                "it keeps its cache in {format}, which predictions take where --kv-format says nothing"
            ),
            None => format!("it is made for a cache in {cache}, which is not known: --kv-format decides"),
        });
        let patterns = unknown.first().map(|first| format!(
            "{} patterns of modules are not understood, the first is {:?}: the weights decide where they are given",
            unknown.len(),
            short(first)
        ));
        cache.into_iter().chain(patterns).collect()
    }

    /// What the cache is kept in where nobody says otherwise.
    pub(super) fn kv_format(&self) -> Option<WeightFormat> {
        match self.cache.as_deref()? {
            // Without scales of tokens engines keep this one of the two.
            "fp8" => Some(WeightFormat::Fp8E4m3),
            word => word.parse().ok(),
        }
    }

    fn lists(&self) -> impl Iterator<Item = &Names> {
        self.groups.iter().map(|group| &group.modules).chain([&self.exempt])
    }

    /// The scheme of the module with one of these names; `None` where it is left as it was.
    fn scheme(&self, names: &[String]) -> Option<&Scheme> {
        if names.iter().any(|name| self.exempt.covers(name)) {
            return None;
        }
        self.group(names).map_or(self.general.as_ref(), |group| group.scheme.as_ref())
    }

    fn group(&self, names: &[String]) -> Option<&Group> {
        self.groups.iter().find(|group| names.iter().any(|name| group.modules.covers(name)))
    }

    /// How a matrix that has one of these names is stored; `None` where it is left as it was.
    pub(super) fn of(&self, names: &[String], matrix: &Matrix) -> Result<Option<Storage>, ImportError> {
        let Some(scheme) = self.scheme(names) else { return Ok(None) };
        let mut question = self.ask(scheme, matrix)?;
        // Most methods leave the tables.
        let table = match matrix.class {
            Class::Head => Some("head"),
            Class::Embedding => Some("embedding"),
            _ => None,
        };
        if table.is_some_and(|key| self.group(names).is_none() && !question.look_up(key, true).is_true()) {
            return Ok(None);
        }
        let storage = question.storage();
        if storage == Storage::default() {
            return Err(self.unclear(&mut question));
        }
        Ok(Some(storage).filter(|storage| storage.bits.is_none_or(|bits| (0.0..16.0).contains(&bits))))
    }

    fn unclear(&self, question: &mut Question<'_>) -> ImportError {
        let mut text = |key| match question.look_up(key, true) {
            Datum::Text(text) => short(text),
            _ => String::new(),
        };
        let (detail, needs) = (text("detail"), text("needs"));
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        ImportError::Method(format!(
            "{:?}{detail}, and its bits per weight follow from {needs}, which the file does not give",
            self.method
        ))
    }

    fn ask<'a>(&self, scheme: &'a Scheme, matrix: &'a Matrix) -> Result<Question<'a>, ImportError> {
        // An algorithm of modelopt decides, whatever holds it.
        let algorithm = scheme.get("quant_algo").and_then(Value::as_str);
        let method = match algorithm {
            Some(algorithm) if algorithm != "mixed_precision" => "compressed-tensors",
            _ => self.method.as_str(),
        };
        let table = METHODS
            .get(method)
            .filter(|_| method != "base")
            .ok_or_else(|| ImportError::Method(format!("{:?}, which is not known", self.method)))?;
        Ok(Question { scheme, chain: chain(table, &METHODS), matrix, open: Vec::new() })
    }

    /// What the weights are stored as for the most part, or the method where no format stands for it.
    pub(super) fn label(&self, weights: &[WeightGroup]) -> String {
        let most = main_block(weights).and_then(|(block, _)| block.format()).filter(|_| self.has_format());
        most.map_or_else(|| self.method.clone(), |format| format.key().to_owned())
    }

    fn has_format(&self) -> bool {
        let largest = self.groups.iter().filter(|group| group.scheme.is_some());
        let largest =
            largest.max_by_key(|group| group.modules.count()).and_then(|group| group.scheme.as_ref());
        let scheme = self.general.as_ref().or(largest);
        scheme.and_then(|scheme| self.ask(scheme, &TYPICAL).ok()?.storage().format).is_some()
    }

    /// Refuses lists whose comparison with so many modules would take more than a moment.
    pub(super) fn check(&self, modules: usize) -> Result<(), ImportError> {
        let wildcards: usize = self.lists().map(Names::wildcards).sum();
        let count = (wildcards as u64).saturating_mul(modules as u64);
        if count > MAX_COMPARISONS {
            let what = "comparisons of module patterns";
            return Err(ImportError::TooMany { what, count, limit: MAX_COMPARISONS });
        }
        Ok(())
    }

    /// A word that the scheme of a module gives.
    pub(super) fn text(&self, module: &str, key: &str) -> Option<String> {
        self.scheme(&[module.to_owned()])?.get(key)?.as_str().map(ToOwned::to_owned)
    }

    /// A whole number that the scheme of a module gives, or that follows from it.
    pub(super) fn number(&self, module: &str, key: &str) -> Option<u64> {
        let mut question = self.ask(self.scheme(&[module.to_owned()])?, &TYPICAL).ok()?;
        let number = question.look_up(key, true).number()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    }
}

impl Question<'_> {
    fn storage(&mut self) -> Storage {
        let format = match self.look_up("stored_as", true) {
            Datum::Text(name) => name.parse().ok(),
            _ => None,
        };
        let bits = self.look_up("total_bits", true).number().filter(|bits| *bits > 0.0);
        Storage { format, bits }
    }
}

/// What the cache is kept in by modelopt's word, or that of compressed-tensors.
fn cache_of(fields: &Fields<'_>) -> Option<String> {
    if let Some(algorithm) = fields.text(&["kv_cache_quant_algo"]) {
        return Some(short(&algorithm.to_ascii_lowercase())).filter(|algorithm| algorithm != "none");
    }
    // Quark describes what it keeps of each projection.
    let kept =
        fields.inner(&["kv_cache_quant_config"]).and_then(|config| config.map.values().next()?.as_object());
    let kept = kept.and_then(|kept| Fields { map: kept }.inner(&["output_tensors"])?.text(&["dtype"]));
    if let Some(kept) = kept {
        return Some(short(kept));
    }
    let scheme = fields.inner(&["kv_cache_scheme"])?;
    let bits = scheme.number(&["num_bits"]).ok().flatten()?;
    let kind = scheme.text(&["type"]).unwrap_or("int");
    Some(format!("{}{bits}", if kind == "float" { "fp" } else { kind }))
}

/// Reads the object, or the file that modelopt writes beside it. `outer` is the configuration around it.
pub(super) fn quantisation(fields: &Fields<'_>, outer: &Fields<'_>) -> Result<Quantisation, ImportError> {
    // modelopt's own file nests once more.
    let nested = fields.inner(&["quantization"]);
    let fields = nested.as_ref().unwrap_or(fields);
    let named = fields.text(&["quant_method"]).map(str::to_ascii_lowercase);
    let method = named.unwrap_or_else(|| {
        let has = |names: &[&str]| fields.any(names).is_some();
        // MLX names no method.
        let usual = [
            (&["quant_algo"] as &[&str], "modelopt"),
            (&["load_in_4bit", "load_in_8bit"], "bitsandbytes"),
            (&["group_size", "mode"], "mlx"),
            (&["codebook"], "quip"),
            (&["nbits_per_codebook"], "aqlm"),
            (&["config_groups"], "compressed-tensors"),
        ];
        usual.iter().find(|(fields, _)| has(fields)).map_or("unknown", |(_, method)| method).to_owned()
    });
    let mut scheme = Scheme::new();
    scheme.extend(outer.any(&["expert_dtype"]).map(|dtype| ("expert_dtype".to_owned(), dtype.clone())));
    overlay(fields.map, &mut scheme);
    let mut found = Quantisation {
        method: short(&method),
        cache: cache_of(fields),
        general: None,
        groups: Vec::new(),
        exempt: Names::default(),
    };
    let mut modules = Modules::default();
    let general = compressed(fields, &scheme, &mut modules)?;
    let mut exempt = Vec::new();
    visit(fields.map, 0, &mut |key, value| {
        if let (true, Some(list)) = (EXEMPT.contains(&key), value.as_array()) {
            exempt.extend(list.iter().filter_map(Value::as_str).take(MAX_MODULES).map(ToOwned::to_owned));
        } else if let (true, Some(map)) = (BY_MODULE.contains(&key), value.as_object()) {
            // A rule of GPTQModel without fields changes nothing unless it leaves a module out.
            let says = |module: &str, scheme: &Value| {
                key != "dynamic" || module.starts_with("-:") || scheme != &Value::Object(Map::new())
            };
            let said = map.iter().filter(|(module, scheme)| *module != "_default" && says(module, scheme));
            for (module, scheme) in said {
                modules.add(module, scheme, &general)?;
            }
        } else if (key == "lm_head" || key.contains('.')) && (value.is_object() || value.is_boolean()) {
            modules.add(key, value, &general)?;
        }
        Ok(())
    })?;
    // GPTQ may name all that it stores.
    let only: Vec<String> =
        texts(fields.any(&["modules_in_block_to_quantize"]), 0).take(MAX_MODULES).collect();
    let is_limited = !only.is_empty();
    if is_limited {
        modules.put("modules_in_block_to_quantize".to_owned(), only, || Some(general.clone()))?;
    }
    found.groups =
        modules.all.into_iter().map(|(scheme, names)| Group { modules: Names::new(names), scheme }).collect();
    found.exempt = Names::new(exempt);
    // What names its modules may say nothing of the others.
    let says = |scheme: &Scheme| {
        let storage = found.ask(scheme, &TYPICAL).map(|mut question| question.storage());
        storage.map_or(true, |storage| storage != Storage::default())
    };
    found.general =
        Some(general.clone()).filter(|general| !is_limited && (found.groups.is_empty() || says(general)));
    Ok(found)
}

/// The texts of lists in lists.
fn texts(value: Option<&Value>, depth: usize) -> Box<dyn Iterator<Item = String> + '_> {
    match value {
        Some(Value::String(text)) => Box::new(std::iter::once(text.clone())),
        Some(Value::Array(list)) if depth < MAX_DEPTH => {
            Box::new(list.iter().flat_map(move |value| texts(Some(value), depth + 1)))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// Calls `found` with every field of an object, then with those of the objects that hold a scheme in it.
fn visit<'a>(
    map: &'a Map<String, Value>,
    depth: usize,
    found: &mut dyn FnMut(&'a str, &'a Value) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    for (key, value) in map {
        found(key, value)?;
    }
    // Quark lists the steps of quantising: the last is what is stored.
    let last = |value: &'a Value| value.as_array().map_or(Some(value), |list| list.last());
    let inner = NESTED.iter().filter_map(|key| last(map.get(*key)?)?.as_object());
    for inner in inner.filter(|_| depth < MAX_DEPTH) {
        visit(inner, depth + 1, found)?;
    }
    Ok(())
}

/// Puts the fields of an object over those of a scheme.
fn overlay(map: &Map<String, Value>, scheme: &mut Scheme) {
    let mut add = |key: &str, value: &Value| {
        let is_list = EXEMPT.contains(&key) || BY_MODULE.contains(&key);
        // No group is a way of grouping; other fields without a value say nothing.
        let is_said = !value.is_null() || key == "group_size";
        if is_said && !is_list && key.len() <= MAX_TEXT && scheme.len() < MAX_FIELDS {
            let value = match value.as_str().filter(|_| key == "quant_algo") {
                Some(algorithm) => Value::from(algorithm.to_ascii_lowercase()),
                None => prune(value, 0),
            };
            scheme.insert(key.to_owned(), value);
        }
        Ok(())
    };
    // Nothing here fails.
    let _ = visit(map, 0, &mut add);
}

/// A value without what no scheme needs of it.
fn prune(value: &Value, depth: usize) -> Value {
    match value {
        _ if depth > MAX_DEPTH => Value::Null,
        Value::String(text) => Value::from(text.chars().take(MAX_TEXT).collect::<String>()),
        Value::Array(list) => list.iter().take(MAX_VALUES).map(|value| prune(value, depth + 1)).collect(),
        Value::Object(map) => {
            let short = map.iter().filter(|(key, _)| key.len() <= MAX_TEXT).take(MAX_VALUES);
            short.map(|(key, value)| (key.clone(), prune(value, depth + 1))).collect()
        }
        other => other.clone(),
    }
}

/// Modules by their schemes.
#[derive(Debug, Default)]
struct Modules {
    all: Vec<(Option<Scheme>, Vec<String>)>,
    /// Places in `all` by what the file says.
    places: HashMap<String, usize>,
}

impl Modules {
    /// Adds a module with its own fields: `false` or none leave it as it was, `true` stands for the scheme around it.
    fn add(&mut self, module: &str, own: &Value, general: &Scheme) -> Result<(), ImportError> {
        // GPTQModel's rules leave out what they start with a minus.
        let is_left = module.starts_with("-:");
        let rule = module.strip_prefix("-:").or_else(|| module.strip_prefix("+:"));
        let is_expression =
            |name: &str| name.contains(['\\', '(', '[', '^', '$', '|']) || name.contains(".*");
        let name = match rule.or(Some(module).filter(|name| !name.starts_with("re:") && is_expression(name)))
        {
            Some(rule) => format!("re:{rule}"),
            None => module.to_owned(),
        };
        let scheme = || match own {
            Value::Object(map)
                if !["weights", "weight"].iter().any(|key| map.get(*key) == Some(&Value::Null)) =>
            {
                let mut scheme = general.clone();
                overlay(map, &mut scheme);
                Some(scheme)
            }
            Value::Bool(true) => Some(general.clone()),
            _ => None,
        };
        let text = if is_left { String::new() } else { own.to_string() };
        self.put(text, vec![name], || if is_left { None } else { scheme() })
    }

    fn put(
        &mut self,
        text: String,
        names: Vec<String>,
        scheme: impl FnOnce() -> Option<Scheme>,
    ) -> Result<(), ImportError> {
        let place = *self.places.entry(text).or_insert(self.all.len());
        match self.all.get_mut(place) {
            Some((_, modules)) => modules.extend(names),
            None if place < MAX_SCHEMES => self.all.push((scheme(), names)),
            None => {
                let (count, limit) = (place as u64 + 1, MAX_SCHEMES as u64);
                return Err(ImportError::TooMany { what: "schemes of quantisation", count, limit });
            }
        }
        Ok(())
    }
}

/// The groups of compressed-tensors: adds those of modules that are named, and gives the scheme of every `Linear`.
fn compressed(fields: &Fields<'_>, scheme: &Scheme, modules: &mut Modules) -> Result<Scheme, ImportError> {
    let mut general = None;
    let configured = fields.any(&["config_groups"]).and_then(Value::as_object);
    for group in configured.into_iter().flat_map(Map::values).filter_map(Value::as_object) {
        if !group.get("weights").is_some_and(Value::is_object) {
            continue;
        }
        let targets = group.get("targets").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
        let targets: Vec<String> =
            targets.iter().filter_map(Value::as_str).take(MAX_MODULES).map(ToOwned::to_owned).collect();
        let own = || {
            let mut own = scheme.clone();
            overlay(group, &mut own);
            own
        };
        // Classes of modules begin with a capital letter: Linear, FusedMoE.
        if targets.iter().all(|target| target.starts_with(|letter: char| letter.is_ascii_uppercase())) {
            general.get_or_insert_with(own);
        } else {
            modules.put(Value::from(group.clone()).to_string(), targets, || Some(own()))?;
        }
    }
    Ok(general.unwrap_or_else(|| scheme.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::import::expression::FUNCTIONS;
    use serde_json::json;

    #[test]
    fn every_method_is_understood() {
        let methods = read(include_str!("../../config/quantisation.toml")).unwrap();
        for (name, method) in &methods {
            for call in method.keys.values().flat_map(|node| node.calls()) {
                assert!(FUNCTIONS.contains(&call), "{name}: {call}");
            }
            let is_stored = |table: &&Family| {
                table.keys.contains_key("total_bits") || table.keys.contains_key("stored_as")
            };
            let chain = chain(METHODS.get(name).unwrap(), &METHODS);
            assert!(name == "base" || (chain.len() > 1 && chain.iter().any(is_stored)), "{name}");
        }
    }

    /// Bits of a weight of 4096 x 4096, on average, and the label, by the formulas of the methods' own code.
    #[test]
    fn methods_store_what_their_own_code_writes() {
        let group = |targets: &str, format: &str| {
            json!({"g": {"targets": [targets], "format": format,
            "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": true}}})
        };
        let torchao = |kind: &str, data: Value| json!({"default": {"_type": kind, "_data": data}});
        let float4 = json!({"dtype": "fp4", "group_size": 32});
        let layer =
            json!({"vector_lens": [-1, 8], "num_centroids": [-1, 65536], "num_res_centroids": [-1, 256]});
        for (fields, bits, label) in [
            (json!({"quant_method": "exl2", "bits": 4.65}), 4.65, "exl2"),
            (json!({"quant_method": "exl3", "bits": 3.5}), 3.5, "exl3"),
            (
                json!({"quant_method": "gptq", "bits": 4, "group_size": -1}),
                4.0 + 20.0 / 4096.0 + 32.0 / 4096.0,
                "int4",
            ),
            (
                json!({"quant_method": "gptq", "bits": 3, "group_size": 128}),
                3.0 + 19.0 / 128.0 + 32.0 / 4096.0,
                "gptq",
            ),
            (
                json!({"quant_method": "gptq", "bits": 8, "group_size": 32}),
                8.0 + 24.0 / 32.0 + 32.0 / 4096.0,
                "int8",
            ),
            (json!({"quant_method": "awq", "bits": 4, "group_size": 64}), 4.0 + 20.0 / 64.0, "int4_g64"),
            (
                json!({"quant_method": "intel/auto-round", "bits": 2, "group_size": 64}),
                2.0 + 18.0 / 64.0,
                "intel/auto-round",
            ),
            (json!({"bits": 4, "group_size": 64}), 4.5, "mlx"),
            (json!({"bits": 4, "group_size": 16, "mode": "nvfp4"}), 4.5, "mlx"),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": group("Linear", "marlin-24")}),
                3.125,
                "compressed-tensors",
            ),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": group("re:.*mlp.*", "pack-quantized")}),
                4.125,
                "int4_g128",
            ),
            (
                json!({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}),
                9.0,
                "compressed-tensors",
            ),
            (json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}), 4.125, "int4_g128"),
            (
                json!({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"layers.0.mlp": {"quant_algo": "NVFP4"}}}),
                4.5,
                "nvfp4",
            ),
            (
                json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true}),
                4.0 + 8.0 / 64.0 + 32.0 / 16384.0,
                "nf4",
            ),
            (
                json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2, "group_size": 16}}}),
                4.0,
                "hqq",
            ),
            (
                json!({"quant_method": "hqq", "quant_config": {"mlp.up_proj": {"weight_quant_params": {"nbits": 8, "group_size": 64}}}}),
                8.5,
                "hqq",
            ),
            (
                json!({"quant_method": "aqlm", "nbits_per_codebook": 8, "num_codebooks": 2, "in_group_size": 8, "out_group_size": 1}),
                2.0 * (1.0 + 256.0 * 8.0 * 16.0 / 16_777_216.0) + 16.0 / 4096.0,
                "aqlm",
            ),
            (
                json!({"quant_method": "vptq", "config_for_layers": {"layers.0.mlp.up_proj": layer}}),
                3.0 + 65792.0 * 8.0 * 16.0 / 16_777_216.0,
                "vptq",
            ),
            (json!({"quant_method": "quanto", "weights": "int4"}), 4.25, "quanto"),
            (json!({"quant_method": "metal", "bits": 8}), 8.5, "metal"),
            (json!({"quant_method": "fouroversix"}), 4.5, "nvfp4"),
            (
                json!({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}),
                4.25,
                "mxfp4",
            ),
            (
                json!({"quant_method": "quark", "global_quant_config":
                    {"weight": [{"dtype": "fp8_e4m3"}, {"dtype": "int8"}]}}),
                8.0,
                "int8",
            ),
            (
                json!({"quant_method": "torchao", "quant_type": torchao("Int4WeightOnlyConfig", json!({"group_size": 64}))}),
                4.5,
                "torchao",
            ),
            (json!({"quant_method": "torchao", "quant_type": "int8_weight_only"}), 8.0, "torchao"),
            (json!({"quant_method": "quark", "global_quant_config": {"weight": float4}}), 4.25, "mxfp4"),
            (json!({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}), 4.5, "nvfp4"),
            (json!({"quant_method": "bitnet", "quantization_mode": "offline"}), 2.0, "bitnet"),
        ] {
            let found = read_fields(&fields).unwrap();
            let name = "model.layers.0.mlp.up_proj".to_owned();
            let storage = found.of(&[name], &TYPICAL).unwrap().unwrap();
            let stored = storage.bits.or(storage.format.map(|format| Block::of(format).bits()));
            assert!((stored.unwrap() - bits).abs() < 1e-9, "{fields}: {stored:?}, not {bits}");
            let group = WeightGroup {
                class: Class::Mlp,
                block: storage.format.map_or(Block::Int4, Block::of),
                rows: 4096,
                columns: 4096,
                matrices: 1,
                parameters: 1 << 24,
                bytes: 1 << 23,
            };
            assert_eq!(found.label(&[group]), label, "{fields}");
        }
    }

    fn read_fields(fields: &Value) -> Result<Quantisation, ImportError> {
        let fields = Fields { map: fields.as_object().unwrap() };
        quantisation(&fields, &fields)
    }

    #[test]
    fn modules_are_left_or_stored_otherwise_as_their_lists_say() {
        let bits = |fields: &Value, module: &str| {
            let found =
                read_fields(fields).unwrap().of(&[format!("model.layers.3.{module}")], &TYPICAL).unwrap();
            found.map(|found| {
                found.bits.or(found.format.map(|format| Block::of(format).bits())).unwrap().floor()
            })
        };
        for fields in [
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128,
                "dynamic": {r"+:.*\.mlp\.down_proj.*": {"bits": 8}, r"-:.*\.self_attn\..*": {}}}),
            json!({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config":
                {"model.layers.3.mlp.down_proj": {"bits": 8}, ".*self_attn.*": {"bits": 16}}}),
            json!({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4", "group_size": 128}},
                "layer_quant_config": {"*down_proj": {"weight": {"dtype": "int8"}}, "*self_attn*": {"weight": null}}}),
            json!({"bits": 4, "group_size": 64, "model.layers.3.mlp.down_proj": {"bits": 8, "group_size": 64},
                "model.layers.3.self_attn.q_proj": false}),
            json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
                "backbone.layers.3.mlp.down_proj": {"quant_algo": "FP8"}, "layers.3.mlp.up_proj": {"quant_algo": "NVFP4"}}}),
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.language_model.layers.*.self_attn*"],
                "quantized_layers": {"layers.3.mlp.down_proj": {"quant_algo": "FP8"}}}),
        ] {
            assert_eq!(bits(&fields, "mlp.up_proj"), Some(4.0), "{fields}");
            assert_eq!(bits(&fields, "mlp.down_proj"), Some(8.0), "{fields}");
            assert_eq!(bits(&fields, "self_attn.q_proj"), None, "{fields}");
        }
    }

    #[test]
    fn what_a_file_does_not_tell_is_named() {
        let error = |fields: Value| {
            read_fields(&fields)
                .unwrap()
                .of(&["model.layers.0.mlp.up_proj".to_owned()], &TYPICAL)
                .unwrap_err()
                .to_string()
        };
        assert!(error(json!({"quant_method": "oracular"})).contains("\"oracular\", which is not known"));
        assert!(error(json!({"quant_method": "aqlm", "num_codebooks": 1})).contains("nbits_per_codebook"));
        assert!(error(json!({"quant_method": "gptq", "group_size": 128})).contains("bits and group_size"));
        let kind = json!({"default": {"_type": "OracularConfig"}});
        assert!(
            error(json!({"quant_method": "torchao", "quant_type": kind}))
                .contains("\"torchao\" (OracularConfig)")
        );
    }

    #[test]
    fn heads_and_tables_are_quantised_where_the_method_says_so() {
        let head = Matrix { class: Class::Head, ..TYPICAL };
        let of_head =
            |fields: Value| read_fields(&fields).unwrap().of(&["lm_head".to_owned()], &head).unwrap();
        assert_eq!(of_head(json!({"quant_method": "exl2", "bits": 4.0})).unwrap().bits, Some(6.0));
        assert_eq!(of_head(json!({"quant_method": "gptq", "bits": 4, "group_size": 128})), None);
        assert!(
            of_head(json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": true})).is_some()
        );
        assert!(of_head(json!({"bits": 4, "group_size": 64})).is_some());
        assert_eq!(of_head(json!({"bits": 4, "group_size": 64, "lm_head": false})), None);
    }
}
