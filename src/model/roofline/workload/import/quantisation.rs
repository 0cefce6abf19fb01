//! What `quantization_config` says: which modules of a checkpoint are stored as what.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::names::Names;
use super::{ImportError, short};
use crate::precision::WeightFormat;

/// Most comparisons of patterns with modules.
const MAX_COMPARISONS: u64 = 20_000_000;

/// What `quantization_config` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// The method by its own name: `awq`, `gptq`, `fp8`, `compressed-tensors`, …
    pub method: String,
    /// What projections are stored as unless a group says otherwise; `None` for a method that we do not know.
    pub format: Option<WeightFormat>,
    /// Bits of a weight where the method leaves a choice.
    pub bits: Option<u64>,
    /// Modules that are stored otherwise, by name.
    pub groups: Vec<Group>,
    /// Only modules of the groups are quantised, and `format` is what most of them are stored as.
    pub named_only: bool,
    /// The head is quantised like the projections; most methods leave it.
    pub head: bool,
    /// Modules left as they were.
    pub exempt: Names,
}

/// Modules that are stored alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub modules: Names,
    /// As what; `None` where the scheme is not known.
    pub format: Option<WeightFormat>,
    /// Bits of a weight.
    pub bits: Option<u64>,
}

impl Quantisation {
    /// What a reader should know: patterns that were not understood cover nothing here.
    pub(super) fn remarks(&self) -> Option<String> {
        let lists = self.groups.iter().map(|group| &group.modules).chain([&self.exempt]);
        let unknown: Vec<&str> = lists.flat_map(Names::unknown).collect();
        let first = unknown.first()?;
        Some(format!(
            "{} patterns of modules are not understood, the first is {:?}: the weights decide where they are given",
            unknown.len(),
            short(first)
        ))
    }

    /// Format and bits of the module with one of these names; `None` where it is left as it was.
    pub(super) fn of(&self, names: &[String]) -> Option<(Option<WeightFormat>, Option<u64>)> {
        if names.iter().any(|name| self.exempt.covers(name)) {
            return None;
        }
        match self.groups.iter().find(|group| names.iter().any(|name| group.modules.covers(name))) {
            Some(group) => Some((group.format, group.bits)),
            None => (!self.named_only).then_some((self.format, self.bits)),
        }
    }

    /// Refuses lists whose comparison with so many modules would take more than a moment.
    pub(super) fn check(&self, modules: usize) -> Result<(), ImportError> {
        let lists = self.groups.iter().map(|group| &group.modules).chain([&self.exempt]);
        let wildcards: usize = lists.map(Names::wildcards).sum();
        let count = (wildcards as u64).saturating_mul(modules as u64);
        if count > MAX_COMPARISONS {
            let what = "comparisons of module patterns";
            return Err(ImportError::TooMany { what, count, limit: MAX_COMPARISONS });
        }
        Ok(())
    }

    /// Bits of a weight of the module with this name.
    pub(super) fn bits_of(&self, module: &str) -> Option<u64> {
        self.of(&[module.to_owned()]).and_then(|(_, bits)| bits)
    }
}

/// Most modules of a list that are looked at.
const MAX_MODULES: usize = 1 << 18;

/// Reads the object, or the file that modelopt writes beside it.
pub(super) fn quantisation(fields: &Fields<'_>) -> Result<Quantisation, ImportError> {
    // modelopt's own file nests once more.
    let nested = fields.inner(&["quantization"]);
    let fields = nested.as_ref().unwrap_or(fields);
    let method =
        fields.text(&["quant_method", "quant_algo", "producer"]).unwrap_or("unknown").to_ascii_lowercase();
    let (general, mut groups) = schemes(fields)?;
    let own = Fields { map: fields.map };
    let is_grouped = general.is_none() && !groups.is_empty();
    let scheme = general.as_ref().unwrap_or(&own);
    let bits = match fields.number(&["bits", "num_bits", "w_bit"])? {
        Some(bits) => Some(bits),
        None => scheme.number(&["num_bits"])?,
    };
    let uniform = if is_grouped { None } else { format_by(&method, bits, scheme, fields) };
    groups.extend(layers_by_name(fields, &method)?);
    let named_only = uniform.is_none() && !groups.is_empty();
    let most = groups.iter().max_by_key(|group| group.modules.count()).and_then(|group| group.format);
    let format = uniform.or(most);
    groups.extend(dynamic(fields, &method));
    let mut exempt = Vec::new();
    for key in
        ["modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules"]
    {
        exempt.extend(texts(fields.list(&[key]).unwrap_or_default()));
    }
    // GPTQModel leaves out what its dynamic rules start with a minus.
    if let Some(rules) = fields.any(&["dynamic"]).and_then(Value::as_object) {
        exempt
            .extend(rules.keys().filter_map(|rule| rule.strip_prefix("-:")).map(|rule| format!("re:{rule}")));
    }
    let head =
        fields.flag(&["lm_head"]) == Some(true) || groups.iter().any(|group| group.modules.covers("lm_head"));
    Ok(Quantisation {
        method: short(&method),
        format,
        bits,
        groups,
        named_only,
        head,
        exempt: Names::new(exempt),
    })
}

fn texts(list: &[Value]) -> impl Iterator<Item = String> + '_ {
    list.iter().filter_map(Value::as_str).take(MAX_MODULES).map(ToOwned::to_owned)
}

/// The groups of compressed-tensors: the scheme of every `Linear`, and those of modules that are named.
fn schemes<'a>(fields: &Fields<'a>) -> Result<(Option<Fields<'a>>, Vec<Group>), ImportError> {
    let (mut general, mut groups) = (None, Vec::new());
    let configured = fields.any(&["config_groups"]).and_then(Value::as_object);
    for group in configured.into_iter().flat_map(Map::values).filter_map(Value::as_object).take(1024) {
        let Some(scheme) = (Fields { map: group }).inner(&["weights"]) else { continue };
        let targets: Vec<String> =
            texts(group.get("targets").and_then(Value::as_array).map_or(&[], Vec::as_slice)).collect();
        // Classes of modules begin with a capital letter: Linear, FusedMoE.
        let is_class = |target: &String| target.starts_with(|letter: char| letter.is_ascii_uppercase());
        if targets.iter().all(is_class) {
            general.get_or_insert(scheme);
        } else {
            let bits = scheme.number(&["num_bits"])?;
            let format = format_by("compressed-tensors", bits, &scheme, &Fields { map: group });
            groups.push(Group { modules: Names::new(targets), format, bits });
        }
    }
    Ok((general, groups))
}

/// modelopt's mixed precision: an algorithm for every module that is quantised.
fn layers_by_name(fields: &Fields<'_>, method: &str) -> Result<Vec<Group>, ImportError> {
    let Some(layers) = fields.any(&["quantized_layers"]).and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    if layers.len() > MAX_MODULES {
        let (count, limit) = (layers.len() as u64, MAX_MODULES as u64);
        return Err(ImportError::TooMany { what: "quantised layers", count, limit });
    }
    let mut formats: Vec<(Option<WeightFormat>, Vec<String>)> = Vec::new();
    for (name, layer) in layers {
        let format =
            layer.as_object().and_then(|map| format_by(method, None, &Fields { map }, &Fields { map }));
        match formats.iter_mut().find(|(known, _)| *known == format) {
            Some((_, names)) => names.push(name.clone()),
            None => formats.push((format, vec![name.clone()])),
        }
    }
    let group = |(format, names)| Group { modules: Names::new(names), format, bits: None };
    Ok(formats.into_iter().map(group).collect())
}

/// GPTQModel's rules for modules that have bits or groups of their own.
fn dynamic(fields: &Fields<'_>, method: &str) -> Vec<Group> {
    let rules = fields.any(&["dynamic"]).and_then(Value::as_object);
    let rules = rules.into_iter().flatten().take(1024);
    rules
        .filter_map(|(rule, scheme)| {
            let pattern = (!rule.starts_with("-:")).then(|| rule.strip_prefix("+:").unwrap_or(rule))?;
            let scheme = Fields { map: scheme.as_object()? };
            let bits = scheme.number(&["bits"]).ok().flatten().or(fields.number(&["bits"]).ok().flatten());
            let format = format_by(method, bits, &scheme, fields);
            Some(Group { modules: Names::new([format!("re:{pattern}")]), format, bits })
        })
        .collect()
}

/// The format of a scheme by its algorithm's name, or by its numbers.
fn format_by(
    method: &str,
    bits: Option<u64>,
    scheme: &Fields<'_>,
    fields: &Fields<'_>,
) -> Option<WeightFormat> {
    let algorithm = scheme
        .text(&["quant_algo"])
        .or_else(|| fields.text(&["quant_algo"]))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let layout = fields.text(&["format"]).unwrap_or_default();
    let is_float = scheme.text(&["type"]) == Some("float");
    let group = match fields.number(&["group_size", "q_group_size"]).unwrap_or(None) {
        Some(group) => Some(group),
        None => scheme.number(&["group_size"]).ok().flatten(),
    };
    let named = |name: &str| algorithm.contains(name) || layout.contains(name);
    if named("nvfp4") {
        Some(WeightFormat::Nvfp4)
    } else if named("mxfp4") {
        Some(WeightFormat::Mxfp4)
    } else if named("mxfp8") {
        Some(WeightFormat::Mxfp8)
    } else if algorithm.contains("w4a16") || algorithm.contains("w4a8") || algorithm.contains("int4") {
        Some(int4(group.or(Some(128))))
    } else if algorithm.contains("fp8") {
        Some(WeightFormat::Fp8E4m3)
    } else if algorithm.contains("int8") || algorithm.contains("w8a") {
        Some(WeightFormat::Int8)
    } else {
        // modelopt describes schemes as compressed-tensors does where it names no algorithm.
        let method = if method == "modelopt" && bits.is_some() { "compressed-tensors" } else { method };
        format_of(method, bits, group, is_float, fields)
    }
}

const fn int4(group: Option<u64>) -> WeightFormat {
    match group {
        Some(32) => WeightFormat::Int4G32,
        Some(64) => WeightFormat::Int4G64,
        None => WeightFormat::Int4,
        Some(_) => WeightFormat::Int4G128,
    }
}

fn format_of(
    method: &str,
    bits: Option<u64>,
    group: Option<u64>,
    is_float: bool,
    fields: &Fields<'_>,
) -> Option<WeightFormat> {
    let int4 = int4(group);
    let wide = matches!(group, Some(128) | None);
    match (method, bits.unwrap_or(4)) {
        ("awq", 4) if wide => Some(WeightFormat::AwqInt4),
        ("gptq", 4) if wide => Some(WeightFormat::GptqInt4),
        ("awq" | "gptq", 4) => Some(int4),
        ("awq" | "gptq", 8) => Some(WeightFormat::Int8),
        ("fp8" | "fbgemm_fp8", _) => Some(WeightFormat::Fp8E4m3),
        ("mxfp4", _) => Some(WeightFormat::Mxfp4),
        ("bitsandbytes", _) if fields.flag(&["load_in_8bit", "_load_in_8bit"]) == Some(true) => {
            Some(WeightFormat::Int8)
        }
        ("bitsandbytes", _) => Some(WeightFormat::Nf4),
        ("compressed-tensors", 8) if is_float => Some(WeightFormat::Fp8E4m3),
        ("compressed-tensors", 4) if is_float && group == Some(32) => Some(WeightFormat::Mxfp4),
        ("compressed-tensors", 4) if is_float => Some(WeightFormat::Nvfp4),
        ("compressed-tensors", 8) => Some(WeightFormat::Int8),
        ("compressed-tensors", 4) => Some(int4),
        _ => None,
    }
}
