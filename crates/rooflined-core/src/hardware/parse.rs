//! TOML → [`Hardware`]. The shape is that of the files in `config/hardware`.
//!
//! Nothing unknown is accepted, every number is held to a range in which its unit cannot be mistaken, and every figure
//! names its source. All mistakes of a file are reported at once, each with its line.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::{CpuParts, Hardware, Kind, NominalMode, SmPull};
use crate::document::{Document, DocumentError, read};
use crate::near::Near;
use crate::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, Hertz, Watts};

/// A file as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    key: Option<String>,
    name: Option<String>,
    aliases: Vec<String>,
    kind: Option<Kind>,
    compute_capability: Option<String>,
    sm: Option<u32>,
    sm_per_tpc: Option<u32>,
    tpc_mask_bits: Option<u32>,
    dla_cores: Option<u32>,
    gpu_clock_hz: Option<f64>,
    bus_bits: Option<u32>,
    memory_clock_hz: Option<f64>,
    bandwidth_bytes_per_s: Option<f64>,
    l2_bytes: Option<f64>,
    memory_bytes: Option<f64>,
    tdp_w: Option<f64>,
    min_power_limit_w: Option<f64>,
    notes: Vec<String>,
    flops_per_sm_clock: BTreeMap<Precision, f64>,
    sm_pull: Option<SmPull>,
    cpu: Option<CpuParts>,
    modes: Vec<NominalMode>,
    marketing: BTreeMap<String, f64>,
    sources: BTreeMap<String, Source>,
}

/// `flops_per_sm_clock.fp8 = "…"` may be written as a key in quotes or as a table.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Source {
    One(String),
    EachKey(BTreeMap<String, String>),
}

/// Keys outside of any table.
static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let shape = serde_json::to_value(File::default()).unwrap_or_default();
    shape.as_object().map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
});
/// Those that are no figures, and so need no source.
const WORDS: &[&str] = &["key", "name", "aliases", "kind", "notes", "sources"];

/// From a megahertz, below which a number was meant in MHz or GHz, to what no clock reaches.
const CLOCKS: RangeInclusive<f64> = 1e6..=1e11;
/// Dense operations per SM and clock; data-sheet totals are far above.
const RATES: RangeInclusive<f64> = 1.0..=1e6;
const PULLS: RangeInclusive<f64> = 0.01..=1e4;
const MARKETING: RangeInclusive<f64> = 1e6..=1e21;
const MOST_MODE_IDS: u32 = 9999;
/// A file with more of anything is no description of a machine.
const MOST: usize = 256;
const LONGEST_TEXT: usize = 4000;

impl Hardware {
    /// Reads an entry.
    ///
    /// # Errors
    /// Every mistake in the text, each with its line.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let mut document = Document::parse(text)?;
        let root = document.root().clone();
        let readable = document.readable::<File>(None, &root, |key| {
            let known = || KEYS.iter().map(String::as_str);
            if known().any(|known| known == key) {
                return None;
            }
            let shown: String = key.chars().take(40).collect();
            let all = known().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let near = Near::of(key, known()).written("`", "`");
            Some(format!("unknown key `{shown}`; {}", near.or(&format!("expected {all}"))))
        });
        // Each entry was read by itself before; what was wrong in it is left out.
        let file: File = read(readable).unwrap_or_default();
        file.validate(&mut document);
        document.finish(file.hardware())
    }
}

impl File {
    /// Reports everything that is missing, out of its range or without a source.
    fn validate(&self, document: &mut Document<'_>) {
        self.check_completeness(document);
        self.check_names(document);
        self.check_numbers(document);
        self.check_modes(document);
        self.check_sources(document);
    }

    fn check_completeness(&self, document: &mut Document<'_>) {
        let mut required = vec![
            ("key", "the name that requests use"),
            ("name", "what people call it"),
            ("kind", "integrated, discrete or cpu"),
        ];
        let has = |key: &str| document.root().contains_key(key);
        // A CPU of which nothing is said is measured; of one that is described, everything is asked that a prediction needs.
        let has_bandwidth = has("bandwidth_bytes_per_s") || has("bus_bits") && has("memory_clock_hz");
        if self.cpu.is_some() && !has_bandwidth {
            required
                .push(("bandwidth_bytes_per_s", "give it, or bus_bits (64 x channels) and memory_clock_hz"));
        } else if self.kind == Some(Kind::Cpu) && has_bandwidth {
            required.push(("cpu", "its cores, threads, clock_hz, fp32_per_clock and features"));
        }
        if self.kind.is_some_and(|kind| kind != Kind::Cpu) {
            required.extend([
                ("sm", "how many SMs (or other units) compute"),
                ("gpu_clock_hz", "the reference clock"),
                ("bus_bits", "the width of the memory interface"),
                ("flops_per_sm_clock", "dense operations per SM and clock, by precision"),
            ]);
            if !document.root().contains_key("memory_clock_hz") {
                required.push(("bandwidth_bytes_per_s", "give it, or memory_clock_hz"));
            }
        }
        for (key, what) in required {
            if !document.root().contains_key(key) {
                document.report(key, format!("`{key}` is missing: {what}"));
            }
        }
    }

    fn check_names(&self, document: &mut Document<'_>) {
        if self.key.as_ref().is_some_and(|key| !is_key(key)) {
            document.expected("key", KEY_SHAPE);
        }
        if self.aliases.iter().any(|alias| !is_key(alias)) {
            document.expected("aliases", &format!("each {KEY_SHAPE}"));
        }
        if self.compute_capability.is_some() && self.compute_capability().is_none() {
            document.expected("compute_capability", "a string such as \"8.7\"");
        }
        let texts = self.name.iter().map(|name| ("name".to_owned(), name));
        let notes = self.notes.iter().enumerate().map(|(index, note)| (format!("notes[{index}]"), note));
        for (path, text) in texts.chain(notes) {
            if !is_text(text) {
                document.expected(&path, &format!("a string of 1 to {LONGEST_TEXT} bytes"));
            }
        }
        let lengths =
            [("aliases", self.aliases.len()), ("notes", self.notes.len()), ("modes", self.modes.len())];
        for (path, _) in lengths.into_iter().filter(|(_, length)| *length > MOST) {
            document.expected(path, &format!("at most {MOST} of them"));
        }
    }

    fn check_numbers(&self, document: &mut Document<'_>) {
        for (path, whole, range) in [
            ("sm", self.sm, 1..=4096),
            ("sm_per_tpc", self.sm_per_tpc, 1..=64),
            ("tpc_mask_bits", self.tpc_mask_bits, 1..=32),
            ("dla_cores", self.dla_cores, 1..=8),
            ("bus_bits", self.bus_bits, 1..=65_536),
        ] {
            check_whole(document, path, whole, &range);
        }
        for (path, number, range) in [
            ("gpu_clock_hz", self.gpu_clock_hz, CLOCKS),
            ("memory_clock_hz", self.memory_clock_hz, CLOCKS),
            ("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, 1e8..=1e15),
            ("l2_bytes", self.l2_bytes, 1024.0..=1e12),
            ("memory_bytes", self.memory_bytes, 1e6..=1e15),
            ("tdp_w", self.tdp_w, 0.1..=1e5),
            ("min_power_limit_w", self.min_power_limit_w, 0.1..=self.tdp_w.unwrap_or(1e5)),
        ] {
            check_number(document, path, number, &range);
        }
        for (precision, rate) in &self.flops_per_sm_clock {
            check_number(document, &format!("flops_per_sm_clock.{precision}"), Some(*rate), &RATES);
        }
        if let Some(cpu) = &self.cpu {
            check_cpu(document, cpu);
            if self.kind.is_some_and(|kind| kind != Kind::Cpu) {
                document.report("cpu", "`cpu` is for entries whose kind is `cpu`; leave it out".to_owned());
            }
        }
        if let Some(SmPull { bytes_per_clock, low, high }) = self.sm_pull {
            check_number(document, "sm_pull.bytes_per_clock", Some(bytes_per_clock), &PULLS);
            check_number(document, "sm_pull.low", Some(low), &PULLS);
            check_number(document, "sm_pull.high", Some(high), &PULLS);
            let are_plausible = [low, bytes_per_clock, high].iter().all(|bytes| PULLS.contains(bytes));
            if are_plausible && (low > bytes_per_clock || bytes_per_clock > high) {
                let message = "`sm_pull.bytes_per_clock` must lie between `low` and `high`";
                document.report("sm_pull", message.to_owned());
            }
        }
        for (key, figure) in &self.marketing {
            let path = format!("marketing.{key}");
            if marketing_keys().any(|known| known == *key) {
                check_number(document, &path, Some(*figure), &MARKETING);
            } else {
                let known: Vec<String> = marketing_keys().collect();
                let near = Near::of(key, known.iter().map(String::as_str)).written("`marketing.", "`");
                let hint = near.or(&format!("expected one of {}", known.join(", ")));
                document.report(&path, format!("unknown key `{path}`; {hint}"));
            }
        }
    }

    fn check_modes(&self, document: &mut Document<'_>) {
        for (index, mode) in self.modes.iter().enumerate() {
            let path = |key: &str| format!("modes[{index}].{key}");
            if mode.id > MOST_MODE_IDS || !document.contains(&path("id")) {
                document.expected(&path("id"), &format!("a whole number from 0 to {MOST_MODE_IDS}"));
            }
            check_whole(document, &path("cores_online"), Some(mode.cores_online), &(1..=4096));
            check_whole(
                document,
                &path("sm_online"),
                Some(mode.sm_online),
                &(1..=self.sm.unwrap_or(1).max(1)),
            );
            let clocks = [
                ("cpu_clock_hz", mode.cpu_clock),
                ("gpu_clock_hz", Some(mode.gpu_clock)),
                ("memory_clock_hz", Some(mode.memory_clock)),
            ];
            for (key, clock) in clocks {
                check_number(document, &path(key), clock.map(Hertz::get), &CLOCKS);
            }
            if !is_text(&mode.name) {
                document.expected(&path("name"), &format!("a string of 1 to {LONGEST_TEXT} bytes"));
            }
            if self.modes[..index].iter().any(|other| other.name == mode.name) {
                document.report(&path("name"), format!("there are two modes {:?}", mode.name));
            }
        }
    }

    /// Every figure has its source, its own or that of its table; and every source is for something in the file.
    fn check_sources(&self, document: &mut Document<'_>) {
        let figures: Vec<(String, Vec<String>)> = document
            .root()
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), value))
            .filter(|(key, _)| KEYS.contains(key) && !WORDS.contains(&key.as_str()))
            .map(|(key, value)| {
                let parts = value.get_ref().as_table().map(|table| table.keys());
                let parts =
                    parts.into_iter().flatten().map(|part| format!("{key}.{}", part.get_ref())).collect();
                (key, parts)
            })
            .collect();
        let sources = self.sources();
        for (field, text) in &sources {
            let path = format!("sources.{field}");
            if !figures.iter().any(|(key, parts)| key == field || parts.contains(field)) {
                let near = Near::of(field, figures.iter().map(|(key, _)| key.as_str())).written("`", "`");
                let shown: String = path.chars().take(60).collect();
                let message = format!("`{shown}` is the source of nothing in this file");
                let hint = if near.is_empty() { String::new() } else { format!("; {}", near.hint("")) };
                document.report_at(source_offset(document, field), &shown, message + &hint);
            } else if !is_text(text) {
                let message = format!("`{path}` is empty or too long, expected 1 to {LONGEST_TEXT} bytes");
                document.report_at(source_offset(document, field), &path, message);
            }
        }
        for (key, parts) in figures {
            let own = if parts.is_empty() { vec![key.clone()] } else { parts };
            for figure in
                own.into_iter().filter(|figure| !sources.contains_key(&key) && !sources.contains_key(figure))
            {
                let message = format!("`{figure}` has no source; add `{key} = \"…\"` below `[sources]`");
                let offset = document.root().get_key_value(key.as_str()).map(|(key, _)| key.span().start);
                document.report_at(offset, &figure, message);
            }
        }
    }

    fn compute_capability(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.compute_capability.as_ref()?.split_once('.')?;
        let part = |text: &str| text.parse().ok().filter(|number: &u32| *number < 1000);
        Some((part(major)?, part(minor)?))
    }

    /// Sources by field.
    fn sources(&self) -> BTreeMap<String, String> {
        let mut sources = BTreeMap::new();
        for (field, source) in &self.sources {
            match source {
                Source::One(text) => {
                    sources.insert(field.clone(), text.trim().to_owned());
                }
                Source::EachKey(parts) => sources.extend(
                    parts.iter().map(|(part, text)| (format!("{field}.{part}"), text.trim().to_owned())),
                ),
            }
        }
        sources
    }

    fn hardware(self) -> Hardware {
        let memory_clock = self.memory_clock_hz.map(Hertz);
        let bus_bits = self.bus_bits.unwrap_or(0);
        let derived = memory_clock.map(|clock| BytesPerSecond(f64::from(bus_bits) / 8.0 * 2.0 * clock.get()));
        let trimmed = |texts: &[String]| texts.iter().map(|text| text.trim().to_owned()).collect();
        Hardware {
            compute_capability: self.compute_capability(),
            sources: self.sources(),
            key: self.key.unwrap_or_default(),
            name: self.name.unwrap_or_default().trim().to_owned(),
            aliases: self.aliases,
            kind: self.kind.unwrap_or(Kind::Cpu),
            sm: self.sm.unwrap_or(0),
            sm_per_tpc: self.sm_per_tpc.unwrap_or(1),
            tpc_mask_bits: self.tpc_mask_bits,
            dla_cores: self.dla_cores.unwrap_or(0),
            gpu_clock: self.gpu_clock_hz.map_or(Hertz::ZERO, Hertz),
            rates: self.flops_per_sm_clock,
            bus_bits,
            memory_clock,
            bandwidth: self
                .bandwidth_bytes_per_s
                .map(BytesPerSecond)
                .or(derived)
                .unwrap_or(BytesPerSecond::ZERO),
            sm_pull: self.sm_pull,
            l2: self.l2_bytes.map(Bytes),
            memory: self.memory_bytes.map(Bytes),
            tdp: self.tdp_w.map(Watts),
            cpu: self.cpu,
            min_power_limit: self.min_power_limit_w.map(Watts),
            modes: self.modes,
            marketing: self.marketing,
            notes: trimmed(&self.notes),
        }
    }
}

fn source_offset(document: &Document<'_>, field: &str) -> Option<usize> {
    let table = document.root().get("sources")?.get_ref().as_table()?;
    let part = || {
        let (key, part) = field.split_once('.')?;
        table.get(key)?.get_ref().as_table()?.get(part)
    };
    Some(table.get(field).or_else(part)?.span().start)
}

fn check_cpu(document: &mut Document<'_>, cpu: &CpuParts) {
    check_whole(document, "cpu.cores", Some(cpu.cores), &(1..=4096));
    check_whole(document, "cpu.threads", Some(cpu.threads), &(cpu.cores.max(1)..=16_384));
    check_number(document, "cpu.clock_hz", Some(cpu.clock_hz), &CLOCKS);
    check_number(document, "cpu.fp32_per_clock", Some(cpu.fp32_per_clock), &(1.0..=1024.0));
    check_number(document, "cpu.cache_bytes", cpu.cache_bytes, &(1024.0..=1e11));
    let known: Vec<&str> = CpuParts::known_features().collect();
    for feature in cpu.features.iter().filter(|feature| !known.contains(&feature.as_str())) {
        let near = Near::of(feature, known.iter().copied()).written("`", "`");
        let shown: String = feature.chars().take(40).collect();
        let hint = near.or(&format!("expected some of {}", known.join(", ")));
        document.report("cpu.features", format!("unknown feature `{shown}`; {hint}"));
    }
}

fn check_whole(document: &mut Document<'_>, path: &str, whole: Option<u32>, range: &RangeInclusive<u32>) {
    if whole.is_some_and(|whole| !range.contains(&whole)) {
        document.expected(path, &format!("a whole number from {} to {}", range.start(), range.end()));
    }
}

fn check_number(document: &mut Document<'_>, path: &str, number: Option<f64>, range: &RangeInclusive<f64>) {
    if number.is_some_and(|number| !range.contains(&number)) {
        let unit = unit_of(path);
        document.expected(path, &format!("a number from {:e} to {:e}{unit}", range.start(), range.end()));
    }
}

/// `int8_sparse_ops_per_s` for the GPU by itself, `soc_int8_sparse_ops_per_s` together with the SoC's other accelerators.
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

fn is_text(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= LONGEST_TEXT
}

/// The unit that a key's name ends with, for a message.
fn unit_of(path: &str) -> &'static str {
    match path {
        _ if path.ends_with("bytes_per_s") => " bytes per second",
        _ if path.ends_with("ops_per_s") => " operations per second",
        _ if path.ends_with("_hz") => " Hz",
        _ if path.ends_with("_bytes") => " bytes",
        _ if path.ends_with("_w") => " W",
        "cpu.fp32_per_clock" => " operations per core and clock",
        "cpu.cores" | "cpu.threads" => "",
        _ if path.starts_with("sm_pull.") => " bytes per SM and clock",
        _ => " operations per SM and clock",
    }
}
