//! TOML → [`Hardware`]. The shape is that of the files in `config/hardware`.
//!
//! Nothing unknown is let pass, every number is held to a range in which its unit cannot be mistaken, and every figure
//! names its source. All mistakes of a file are reported at once, each with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Hardware, Kind, NominalMode, SmPull};
use crate::near::Near;
use crate::precision::{Precision, UnknownName};
use crate::units::{Bytes, BytesPerSecond, Hertz, Watts};

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; `None` for something that is missing from the whole file.
    pub line: Option<usize>,
    /// The key, as `table.key`; `None` where the text is no TOML.
    pub key: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Everything wrong in a file, from the top down; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct HardwareError {
    pub problems: Vec<Problem>,
}

/// Keys outside of any table.
const KEYS: &[&str] = &[
    "key",
    "name",
    "aliases",
    "kind",
    "compute_capability",
    "sm",
    "sm_per_tpc",
    "tpc_mask_bits",
    "gpu_clock_hz",
    "bus_bits",
    "memory_clock_hz",
    "bandwidth_bytes_per_s",
    "l2_bytes",
    "memory_bytes",
    "tdp_w",
    "notes",
    "flops_per_sm_clock",
    "sm_pull",
    "modes",
    "marketing",
    "sources",
];
/// Those that are no figures, and so need no source.
const WORDS: &[&str] = &["key", "name", "aliases", "kind", "notes", "sources"];
const RATE_TABLE: &str = "flops_per_sm_clock";
const PULL: &[&str] = &["bytes_per_clock", "low", "high"];
const MODE: &[&str] =
    &["id", "name", "cores_online", "cpu_clock_hz", "gpu_clock_hz", "memory_clock_hz", "sm_online"];

/// From a megahertz, below which a number was meant in MHz or GHz, to what no clock reaches.
const CLOCKS: RangeInclusive<f64> = 1e6..=1e11;
/// Dense operations per SM and clock; data-sheet totals are far above.
const RATES: RangeInclusive<f64> = 1.0..=1e6;
const BANDWIDTHS: RangeInclusive<f64> = 1e8..=1e15;
const CACHES: RangeInclusive<f64> = 1024.0..=1e12;
const MEMORIES: RangeInclusive<f64> = 1e6..=1e15;
const POWERS: RangeInclusive<f64> = 0.1..=1e5;
const PULLS: RangeInclusive<f64> = 0.01..=1e4;
const MARKETING: RangeInclusive<f64> = 1e6..=1e21;
/// A file with more of anything is no description of a machine.
const MOST: usize = 256;
const LONGEST_TEXT: usize = 4000;

impl Hardware {
    /// Reads an entry.
    ///
    /// # Errors
    /// Every mistake in the text, each with its line.
    pub fn parse(text: &str) -> Result<Self, HardwareError> {
        let document = DeTable::parse(text).map_err(|error| {
            let line = 1 + newlines(text, error.span().map_or(0, |span| span.start));
            let message = format!("no TOML: {}", error.message());
            HardwareError { problems: vec![Problem { line: Some(line), key: None, message }] }
        })?;
        let mut reader = Reader { text, problems: Vec::new() };
        let hardware = reader.hardware(document.get_ref());
        let mut problems = reader.problems;
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        match hardware {
            Some(hardware) if problems.is_empty() => Ok(hardware),
            _ => Err(HardwareError { problems }),
        }
    }
}

fn newlines(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

type Table<'i> = DeTable<'i>;
type Value<'i> = Spanned<DeValue<'i>>;

struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

/// Where nothing is near: all that there are.
fn listed(known: &[&str]) -> String {
    format!("expected {}", known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "))
}

impl Reader<'_> {
    fn report(&mut self, offset: Option<usize>, key: &str, message: String) {
        let line = offset.map(|offset| 1 + newlines(self.text, offset));
        self.problems.push(Problem { line, key: Some(key.to_owned()), message });
    }

    fn expected(&mut self, key: &str, value: &Value<'_>, expected: &str) {
        let written = self.text.get(value.span()).unwrap_or("").trim();
        let found = if written.is_empty() || written.chars().count() > 60 || written.contains('\n') {
            format!("a {}", value.get_ref().type_str())
        } else {
            written.to_owned()
        };
        self.report(Some(value.span().start), key, format!("`{key}` is {found}, expected {expected}"));
    }

    /// Refuses every key of `table` that is not among `known`. `path` is the table's name and a dot, or nothing.
    fn refuse_unknown(&mut self, path: &str, table: &Table<'_>, known: &[&str]) {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let shown: String = name.chars().take(40).collect();
                let near = Near::of(name, known.iter().copied()).written(&format!("`{path}"), "`");
                let message = format!("unknown key `{path}{shown}`; {}", near.or(&listed(known)));
                self.report(Some(key.span().start), &format!("{path}{shown}"), message);
            }
        }
    }

    fn missing(&mut self, key: &str, what: &str) {
        self.report(None, key, format!("`{key}` is missing: {what}"));
    }

    fn number(
        &mut self,
        path: &str,
        table: &Table<'_>,
        name: &str,
        range: &RangeInclusive<f64>,
    ) -> Option<f64> {
        let value = table.get(name)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            DeValue::Integer(whole) => {
                i64::from_str_radix(&whole.as_str().replace('_', ""), whole.radix()).ok().map(|whole| {
                    #[expect(clippy::cast_precision_loss, reason = "clocks and sizes far below 2^53")]
                    let number = whole as f64;
                    number
                })
            }
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let unit = unit_of(name);
            let expected = format!("a number from {:e} to {:e}{unit}", range.start(), range.end());
            self.expected(&format!("{path}{name}"), value, &expected);
        }
        number
    }

    fn whole(
        &mut self,
        path: &str,
        table: &Table<'_>,
        name: &str,
        range: &RangeInclusive<u32>,
    ) -> Option<u32> {
        let value = table.get(name)?;
        let whole = value
            .get_ref()
            .as_integer()
            .and_then(|whole| u32::from_str_radix(&whole.as_str().replace('_', ""), whole.radix()).ok())
            .filter(|whole| range.contains(whole));
        if whole.is_none() {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            self.expected(&format!("{path}{name}"), value, &expected);
        }
        whole
    }

    fn string(&mut self, path: &str, table: &Table<'_>, name: &str) -> Option<String> {
        let value = table.get(name)?;
        self.text_of(&format!("{path}{name}"), value)
    }

    fn text_of(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        let text = value.get_ref().as_str().map(str::trim);
        let text = text.filter(|text| !text.is_empty() && text.len() <= LONGEST_TEXT);
        if text.is_none() {
            self.expected(key, value, &format!("a string of 1 to {LONGEST_TEXT} bytes"));
        }
        text.map(str::to_owned)
    }

    fn strings(&mut self, table: &Table<'_>, name: &str) -> Vec<String> {
        let Some(value) = table.get(name) else { return Vec::new() };
        match value.get_ref().as_array() {
            Some(list) if list.len() <= MOST => {
                list.iter().filter_map(|element| self.text_of(name, element)).collect()
            }
            _ => {
                self.expected(name, value, &format!("a list of at most {MOST} strings"));
                Vec::new()
            }
        }
    }

    fn table<'v, 'i>(&mut self, table: &'v Table<'i>, name: &str) -> Option<&'v Table<'i>> {
        let value = table.get(name)?;
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.expected(name, value, &format!("a table `[{name}]`"));
        }
        found
    }

    fn hardware(&mut self, root: &Table<'_>) -> Option<Hardware> {
        self.refuse_unknown("", root, KEYS);
        let key = self.key(root);
        let name = self.string("", root, "name");
        if !root.contains_key("name") {
            self.missing("name", "what people call it");
        }
        let kind = self.kind(root);
        let rates = self.rates(root);
        let memory_clock = self.number("", root, "memory_clock_hz", &CLOCKS).map(Hertz);
        let bandwidth = self.number("", root, "bandwidth_bytes_per_s", &BANDWIDTHS).map(BytesPerSecond);
        let sm = self.whole("", root, "sm", &(1..=4096)).unwrap_or(0);
        let bus_bits = self.whole("", root, "bus_bits", &(1..=65_536)).unwrap_or(0);
        let gpu_clock = self.number("", root, "gpu_clock_hz", &CLOCKS).map_or(Hertz::ZERO, Hertz);
        if kind.is_some_and(|kind| kind != Kind::Cpu) {
            self.complete(root);
        }
        let derived = memory_clock.map(|clock| BytesPerSecond(f64::from(bus_bits) / 8.0 * 2.0 * clock.get()));
        let hardware = Hardware {
            key: key.unwrap_or_default(),
            name: name.unwrap_or_default(),
            aliases: self.aliases(root),
            kind: kind?,
            compute_capability: self.compute_capability(root),
            sm,
            sm_per_tpc: self.whole("", root, "sm_per_tpc", &(1..=64)).unwrap_or(1),
            tpc_mask_bits: self.whole("", root, "tpc_mask_bits", &(1..=32)),
            gpu_clock,
            rates,
            bus_bits,
            memory_clock,
            bandwidth: bandwidth.or(derived).unwrap_or(BytesPerSecond::ZERO),
            sm_pull: self.sm_pull(root),
            l2: self.number("", root, "l2_bytes", &CACHES).map(Bytes),
            memory: self.number("", root, "memory_bytes", &MEMORIES).map(Bytes),
            tdp: self.number("", root, "tdp_w", &POWERS).map(Watts),
            modes: self.modes(root, sm),
            marketing: self.marketing(root),
            sources: self.sources(root),
            notes: self.strings(root, "notes"),
        };
        self.sourced(root, &hardware);
        Some(hardware)
    }

    /// What everything but a CPU must say.
    fn complete(&mut self, root: &Table<'_>) {
        for (key, what) in [
            ("sm", "how many SMs (or other units) compute"),
            ("gpu_clock_hz", "the reference clock"),
            ("bus_bits", "the width of the memory interface"),
            ("flops_per_sm_clock", "dense operations per SM and clock, by precision"),
        ] {
            if !root.contains_key(key) {
                self.missing(key, what);
            }
        }
        if !root.contains_key("memory_clock_hz") && !root.contains_key("bandwidth_bytes_per_s") {
            self.missing("bandwidth_bytes_per_s", "give it, or memory_clock_hz");
        }
    }

    fn key(&mut self, root: &Table<'_>) -> Option<String> {
        let Some(value) = root.get("key") else {
            self.missing("key", "the name that it is asked for by");
            return None;
        };
        let key = self.text_of("key", value)?;
        if is_key(&key) {
            return Some(key);
        }
        self.expected("key", value, KEY_SHAPE);
        None
    }

    fn aliases(&mut self, root: &Table<'_>) -> Vec<String> {
        let aliases = self.strings(root, "aliases");
        if let (Some(wrong), Some(value)) = (aliases.iter().find(|alias| !is_key(alias)), root.get("aliases"))
        {
            let message = format!("the alias {wrong:?} is not {KEY_SHAPE}");
            self.report(Some(value.span().start), "aliases", message);
        }
        aliases
    }

    fn kind(&mut self, root: &Table<'_>) -> Option<Kind> {
        let Some(value) = root.get("kind") else {
            self.missing("kind", "integrated, discrete or cpu");
            return None;
        };
        match value.get_ref().as_str() {
            Some("integrated") => Some(Kind::Integrated),
            Some("discrete") => Some(Kind::Discrete),
            Some("cpu") => Some(Kind::Cpu),
            _ => {
                self.expected("kind", value, "\"integrated\", \"discrete\" or \"cpu\"");
                None
            }
        }
    }

    fn compute_capability(&mut self, root: &Table<'_>) -> Option<(u32, u32)> {
        let value = root.get("compute_capability")?;
        let parsed =
            value.get_ref().as_str().and_then(|text| text.split_once('.')).and_then(|(major, minor)| {
                let part = |text: &str| text.parse().ok().filter(|number: &u32| *number < 1000);
                Some((part(major)?, part(minor)?))
            });
        if parsed.is_none() {
            self.expected("compute_capability", value, "a string such as \"8.7\"");
        }
        parsed
    }

    fn rates(&mut self, root: &Table<'_>) -> BTreeMap<Precision, f64> {
        let path = format!("{RATE_TABLE}.");
        let mut rates = BTreeMap::new();
        let Some(table) = self.table(root, RATE_TABLE) else { return rates };
        for name in table.keys() {
            match name.get_ref().parse::<Precision>() {
                Ok(precision) if precision.key() == name.get_ref() => {
                    if let Some(rate) = self.number(&path, table, precision.key(), &RATES) {
                        rates.insert(precision, rate);
                    }
                }
                other => {
                    let near = match other {
                        Ok(precision) => Near::of(precision.key(), [precision.key()]),
                        Err(UnknownName { near, .. }) => near,
                    };
                    let known: Vec<&str> = Precision::ALL.iter().map(|precision| precision.key()).collect();
                    let hint = near.written(&format!("`{path}"), "`").or(&listed(&known));
                    let shown: String = name.get_ref().chars().take(40).collect();
                    let message = format!("unknown precision `{path}{shown}`; {hint}");
                    self.report(Some(name.span().start), &format!("{path}{shown}"), message);
                }
            }
        }
        rates
    }

    fn sm_pull(&mut self, root: &Table<'_>) -> Option<SmPull> {
        let table = self.table(root, "sm_pull")?;
        self.refuse_unknown("sm_pull.", table, PULL);
        for key in PULL {
            if !table.contains_key(*key) {
                self.missing(&format!("sm_pull.{key}"), "bytes per SM and clock");
            }
        }
        let mut at = |key| self.number("sm_pull.", table, key, &PULLS);
        let (value, low, high) = (at("bytes_per_clock"), at("low"), at("high"));
        let pull = SmPull { bytes_per_clock: value?, low: low?, high: high? };
        if pull.low > pull.bytes_per_clock || pull.bytes_per_clock > pull.high {
            let offset = root.get("sm_pull").map(|value| value.span().start);
            let message = "`sm_pull.bytes_per_clock` must lie between `low` and `high`".to_owned();
            self.report(offset, "sm_pull.bytes_per_clock", message);
        }
        Some(pull)
    }

    fn modes(&mut self, root: &Table<'_>, sm: u32) -> Vec<NominalMode> {
        let Some(value) = root.get("modes") else { return Vec::new() };
        let Some(list) = value.get_ref().as_array().filter(|list| list.len() <= MOST) else {
            self.expected("modes", value, &format!("at most {MOST} tables `[[modes]]`"));
            return Vec::new();
        };
        let mut modes: Vec<NominalMode> = Vec::new();
        for (index, element) in list.iter().enumerate() {
            let path = format!("modes[{index}].");
            let Some(table) = element.get_ref().as_table() else {
                self.expected(path.trim_end_matches('.'), element, "a table `[[modes]]`");
                continue;
            };
            let Some(mode) = self.mode(&path, table, element.span().start, sm) else { continue };
            if modes.iter().any(|other| other.name == mode.name) {
                let message = format!("there are two modes {:?}", mode.name);
                self.report(Some(element.span().start), &format!("{path}name"), message);
            }
            modes.push(mode);
        }
        modes
    }

    fn mode(&mut self, path: &str, table: &Table<'_>, offset: usize, sm: u32) -> Option<NominalMode> {
        self.refuse_unknown(path, table, MODE);
        for key in MODE.iter().filter(|key| **key != "cpu_clock_hz" && !table.contains_key(**key)) {
            self.report(Some(offset), &format!("{path}{key}"), format!("`{path}{key}` is missing"));
        }
        let id = self.whole(path, table, "id", &(0..=9999));
        let name = self.string(path, table, "name");
        let cores_online = self.whole(path, table, "cores_online", &(1..=4096));
        let cpu_clock = self.number(path, table, "cpu_clock_hz", &CLOCKS).map(Hertz);
        let gpu_clock = self.number(path, table, "gpu_clock_hz", &CLOCKS).map(Hertz);
        let memory_clock = self.number(path, table, "memory_clock_hz", &CLOCKS).map(Hertz);
        let sm_online = self.whole(path, table, "sm_online", &(1..=sm.max(1)));
        Some(NominalMode {
            id: id?,
            name: name?,
            cores_online: cores_online?,
            cpu_clock,
            gpu_clock: gpu_clock?,
            memory_clock: memory_clock?,
            sm_online: sm_online?,
        })
    }

    fn marketing(&mut self, root: &Table<'_>) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let Some(table) = self.table(root, "marketing") else { return figures };
        let known: Vec<String> = marketing_keys().collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.refuse_unknown("marketing.", table, &known);
        for key in known {
            if let Some(figure) = self.number("marketing.", table, key, &MARKETING) {
                figures.insert(key.to_owned(), figure);
            }
        }
        figures
    }

    /// Sources by field; `flops_per_sm_clock.fp8 = "…"` may be written as a key in quotes or as a table.
    fn sources(&mut self, root: &Table<'_>) -> BTreeMap<String, String> {
        let mut sources = BTreeMap::new();
        let Some(table) = self.table(root, "sources") else { return sources };
        for (key, value) in table {
            let field = key.get_ref().as_ref();
            match value.get_ref().as_table() {
                Some(inner) => {
                    for (part, value) in inner {
                        let field = format!("{field}.{}", part.get_ref());
                        self.source(root, field, value, part.span().start, &mut sources);
                    }
                }
                None => self.source(root, field.to_owned(), value, key.span().start, &mut sources),
            }
        }
        sources
    }

    /// A source must be for something that the file has.
    fn source(
        &mut self,
        root: &Table<'_>,
        field: String,
        value: &Value<'_>,
        offset: usize,
        sources: &mut BTreeMap<String, String>,
    ) {
        let exists = match field.split_once('.') {
            Some((table, key)) => root
                .get(table)
                .and_then(|value| value.get_ref().as_table())
                .is_some_and(|table| table.contains_key(key)),
            None => root.contains_key(field.as_str()) && !WORDS.contains(&field.as_str()),
        };
        if exists {
            if let Some(text) = self.text_of(&format!("sources.{field}"), value) {
                sources.insert(field, text);
            }
            return;
        }
        let shown: String = field.chars().take(60).collect();
        let figures: Vec<&str> = figures(root).collect();
        let near = Near::of(&field, figures.iter().copied()).written("`", "`");
        let hint = if near.is_empty() { String::new() } else { format!("; {}", near.hint("")) };
        let message = format!("`sources.{shown}` is the source of nothing in this file{hint}");
        self.report(Some(offset), &format!("sources.{shown}"), message);
    }

    /// Every figure has its source: its own, or that of its table.
    fn sourced(&mut self, root: &Table<'_>, hardware: &Hardware) {
        let fields: BTreeSet<&str> = figures(root).collect();
        for field in fields {
            let Some((key, value)) = root.get_key_value(field) else { continue };
            if hardware.sources.contains_key(field) {
                continue;
            }
            let own: Vec<String> = match value.get_ref().as_table() {
                // A precision that does not exist has been refused already.
                Some(table) => table
                    .keys()
                    .map(|name| name.get_ref().as_ref())
                    .filter(|name| field != RATE_TABLE || name.parse::<Precision>().is_ok())
                    .map(|name| format!("{field}.{name}"))
                    .collect(),
                None => vec![field.to_owned()],
            };
            for figure in own.into_iter().filter(|figure| !hardware.sources.contains_key(figure)) {
                let message = format!("`{figure}` has no source; add `{field} = \"…\"` below `[sources]`");
                self.report(Some(key.span().start), &figure, message);
            }
        }
    }
}

/// The keys of a file that hold figures.
fn figures<'r>(root: &'r Table<'_>) -> impl Iterator<Item = &'r str> {
    let names = root.keys().map(|key| key.get_ref().as_ref());
    names.filter(|name| KEYS.contains(name) && !WORDS.contains(name))
}

/// `int8_sparse_ops_per_s` for the GPU by itself, `soc_int8_sparse_ops_per_s` together with the accelerators beside it.
fn marketing_keys() -> impl Iterator<Item = String> {
    Precision::ALL.iter().flat_map(|precision| {
        ["", "soc_"].map(|prefix| format!("{prefix}{}_sparse_ops_per_s", precision.key()))
    })
}

const KEY_SHAPE: &str = "1 to 64 of a-z, 0-9, dot, dash and underscore, the first a letter or digit";

fn is_key(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    key.len() <= 64 && key.starts_with(plain) && key.chars().all(|c| plain(c) || matches!(c, '.' | '-' | '_'))
}

/// The unit that a key's name ends with, for a message.
fn unit_of(name: &str) -> &'static str {
    match name {
        _ if name.ends_with("bytes_per_s") => " bytes per second",
        _ if name.ends_with("ops_per_s") => " operations per second",
        _ if name.ends_with("_hz") => " Hz",
        _ if name.ends_with("_bytes") => " bytes",
        _ if name.ends_with("_w") => " W",
        "bytes_per_clock" | "low" | "high" => " bytes per SM and clock",
        _ => " operations per SM and clock",
    }
}
