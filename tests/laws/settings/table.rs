//! The table of what engines support: as `docs/internals/settings.md` prints it, and beside what others have run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_models::support::{Entry, Platform, Target, check, check_family, platforms};
use rooflined_predict::Engine;

const BEGIN: &str = "<!-- support: begin -->\n";
const END: &str = "<!-- support: end -->\n";

fn cell(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "-".to_owned() };
    let mut parts = Vec::new();
    if entry.cpu {
        parts.push("CPU".to_owned());
    }
    for range in &entry.gpus {
        let (major, minor) = range.from;
        parts.push(match range.to {
            None => format!("{major}.{minor} on"),
            Some(most) if most == range.from => format!("{major}.{minor}"),
            Some(most) => format!("{major}.{minor} to {}.{}", most.0, most.1),
        });
    }
    parts.join(", ")
}

/// A row for all formats that every engine treats alike, without those that nobody has where `only_had`.
fn rows(entries: fn(&Platform) -> &[Entry], only_had: bool) -> String {
    let mut groups: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for format in &WeightFormat::ALL {
        let found = |platform| entries(platform).iter().find(|entry| entry.formats.contains(format));
        let cells: Vec<String> = platforms().iter().map(|platform| cell(found(platform))).collect();
        if cells.iter().all(|cell| cell == "-") && only_had {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == cells) {
            Some((_, formats)) => formats.push(format.key()),
            None => groups.push((cells, vec![format.key()])),
        }
    }
    let names: Vec<&str> = platforms().iter().map(|platform| platform.name.as_str()).collect();
    let mut text = format!("| format | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (cells, formats) in groups {
        let _ = writeln!(text, "| {} | {} |", formats.join(" "), cells.join(" | "));
    }
    text
}

/// A line for every engine that has a list, and one for all others.
fn architectures() -> String {
    let mut text = String::new();
    for platform in platforms() {
        if let Some(list) = &platform.architectures {
            let _ = writeln!(text, "- {}: `{}`", platform.name, list.names.join(" "));
        }
    }
    text.push_str("- the others: every architecture\n");
    text
}

fn printed() -> String {
    let mut text = format!(
        "Weights:\n\n{}\nKeys and values, in addition to 16 bits and the type of the model:\n\n{}\n\
         Architectures, as `config.json` or a GGUF file calls them:\n\n{}\nSources:\n\n",
        rows(|platform| &platform.weights, false),
        rows(|platform| &platform.cache, true),
        architectures()
    );
    let mut sources: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for platform in platforms() {
        let mut add =
            |source, what: Vec<_>| sources.entry((&*platform.name, source)).or_default().extend(what);
        add(&platform.source, vec!["where it runs at all"]);
        if let Some(list) = &platform.architectures {
            add(&list.source, vec!["architectures"]);
        }
        for entry in &platform.weights {
            let keys = entry.formats.iter().map(|format| format.key());
            // Twenty-nine of them are told by the table above.
            add(&entry.source, if keys.len() > 12 { vec!["GGUF's formats"] } else { keys.collect() });
        }
        for entry in &platform.cache {
            add(&entry.source, vec!["keys and values"]);
        }
    }
    for ((name, source), what) in sources {
        let _ = writeln!(text, "- {name}: {}: {source}", what.join(", "));
    }
    text
}

/// `ROOFLINED_UPDATE_DOCS=1` writes it.
#[test]
fn the_document_prints_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/internals/settings.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let wanted = printed();
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    assert!(
        found == wanted,
        "docs/internals/settings.md is not the table; ROOFLINED_UPDATE_DOCS=1 writes it\n{wanted}"
    );
}

/// What somebody ran and published is not refused. Other projects' names are those of the published table.
#[test]
fn what_others_have_run_is_supported() {
    let formats = BTreeMap::from([
        ("F16", "fp16"),
        ("FP16", "fp16"),
        ("BF16", "bf16"),
        ("FP8", "fp8_e4m3"),
        ("NVFP4", "nvfp4"),
        ("MXFP4", "mxfp4"),
        ("AWQ-INT4", "awq_int4"),
        ("INT4-AWQ", "awq_int4"),
        ("GPTQ-INT4", "gptq_int4"),
        ("W4A16", "int4_g128"),
        ("INT4-MLC", "int4_g32"),
        ("q4f16_1", "int4_g32"),
    ]);
    let (mut seen, mut header) = (0, Vec::new());
    for line in include_str!("../../data/published_llm.csv").lines() {
        let mut quoted = false;
        let fields: Vec<&str> = line
            .split(|c| {
                quoted ^= c == '"';
                c == ',' && !quoted
            })
            .collect();
        if header.is_empty() {
            header = fields;
            continue;
        }
        let field = |name: &str| fields[header.iter().position(|column| *column == name).unwrap()];
        let lower = field("quant").to_ascii_lowercase();
        let name = formats.get(field("quant")).copied().unwrap_or(&lower);
        let engine =
            Engine::ALL.into_iter().find(|engine| engine.key() == field("engine").to_ascii_lowercase());
        let Some((engine, recipe)) = engine.zip(name.parse::<Recipe>().ok()) else { continue };
        // A fork's blocks of two bits: the Q2_0 of llama.cpp itself is another.
        if name == "q2_0" {
            continue;
        }
        let device = field("device");
        let hardware = registry().get(device).or_else(|| registry().get(&format!("jetson-{device}")));
        let target = Target::Gpu(hardware.and_then(|hardware| hardware.compute_capability));
        let kv_format = (field("kv_bits") == "8").then_some(WeightFormat::Fp8E4m3);
        let family = models().get(field("arch")).map_or("", |known| known.family.as_str());
        assert_eq!(check_family(engine, family, target), Ok(()), "{line}");
        let answer = check(engine, recipe, kv_format, target);
        assert_eq!(answer, Ok(()), "{line}");
        seen += 1;
    }
    assert!(seen > 900, "{seen}");
}

/// A name that a list spells wrongly would refuse what it should allow.
#[test]
fn every_model_is_run_by_an_engine_with_a_list_but_for_these_families() {
    let gpu = Target::Gpu(Some((12, 1)));
    let closed = || platforms().iter().filter(|platform| platform.architectures.is_some());
    let runs = |family: &str| closed().any(|platform| check_family(platform.key, family, gpu).is_ok());
    let refused = models().all().filter(|model| !runs(&model.family));
    let families: BTreeSet<&str> = refused.map(|model| model.family.as_str()).collect();
    let without =
        ["ernie4_5", "ernie4_5_moe", "falcon", "glm4", "lfm2", "lfm2_moe", "mllama_text_model", "olmo2"];
    assert_eq!(families, BTreeSet::from(without));
}
