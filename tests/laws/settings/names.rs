//! Every name that a line has is one that the engine's package has, or its documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use rooflined_advice::settings::MISSING;

use super::each;

/// By package, kind and name: what follows it.
struct Names(BTreeMap<(&'static str, &'static str), Vec<Vec<&'static str>>>);

impl Names {
    fn read() -> Self {
        let mut rows: BTreeMap<_, Vec<Vec<&str>>> = BTreeMap::new();
        let lines = include_str!("names.txt").lines().chain(include_str!("documented.txt").lines());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            rows.entry((words[0], words[1])).or_default().push(words[2..].to_vec());
        }
        Self(rows)
    }

    /// Fails unless the package has every option of `line`, and each has a value that the engine's parser takes.
    fn check(&self, package: &'static str, line: &str) {
        for (flag, value) in options(line) {
            let row = self.0[&(package, "option")].iter().find(|row| row[0] == flag);
            let kind = &row.unwrap_or_else(|| panic!("{package} has no {flag}: {line}"))[1..];
            let is_taken = match kind[0] {
                "switch" => value.is_empty() || value.starts_with('-'),
                "int" => value.parse::<i64>().is_ok(),
                "float" => value.parse::<f64>().is_ok_and(f64::is_finite),
                "text" => !(value.is_empty() || value.starts_with('-')),
                "choice" => kind[1..].contains(&value),
                other => panic!("no type of options: {other}"),
            };
            assert!(is_taken, "{flag} {value} is no {}: {line}", kind.join(" "));
        }
    }

    /// What the option or enumeration `name` takes.
    fn values(&self, package: &'static str, name: &str) -> BTreeSet<&'static str> {
        let row = self.0[&(package, "value")].iter().find(|row| row[0] == name);
        row.unwrap_or_else(|| panic!("no values of {package} {name}"))[1..].iter().copied().collect()
    }

    /// Module and arguments of a class of torchao.
    fn class(&self, name: &str) -> Option<(&'static str, &'static [&'static str])> {
        let row = self.0[&("torchao", "config")].iter().find(|row| row[1] == name)?;
        // Rows are made once for the whole run of a test.
        Some((row[0], Box::leak(row[2..].to_vec().into_boxed_slice())))
    }
}

/// Every different line of an engine that says how.
fn lines(engine: &str) -> &'static BTreeSet<String> {
    static LINES: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        each(|_, key, line| {
            if line.starts_with(MISSING) {
                return;
            }
            let lines = all.entry(key.to_owned()).or_default();
            if !lines.contains(line) {
                lines.insert(line.to_owned());
            }
        });
        all
    });
    &LINES[engine]
}

/// Options of a command and what follows each; a comment is no part of it.
fn options(line: &str) -> Vec<(&str, &str)> {
    let command = line.split("  #").next().unwrap_or_default();
    let words: Vec<&str> = command.split(' ').collect();
    let pairs = words.windows(2).chain(words.last().map(std::slice::from_ref));
    pairs
        .filter(|pair| pair[0].starts_with('-'))
        .map(|pair| (pair[0], pair.get(1).copied().unwrap_or_default()))
        .collect()
}

#[test]
fn llama_cpp_has_every_type_and_option() {
    let names = Names::read();
    let types = names.values("llama_cpp_python", "llama-quantize");
    let mut written = BTreeSet::new();
    for line in lines("llama.cpp") {
        names.check("llama_cpp_python", line);
        let first = line.split(" && ").next().unwrap();
        if first.starts_with("llama-quantize") {
            let kind = first.rsplit(' ').next().unwrap();
            assert!(types.contains(kind), "{kind} in {line}");
            written.insert(kind.to_owned());
        }
    }
    assert!(written.len() > 25, "{written:?}");
}

/// The registry's key for blocks that have the name of others would be reported as the wrong file.
#[test]
fn q2_0_is_named_as_soon_as_its_blocks_are_those_of_llama_cpp() {
    let names = Names::read();
    let row = names.0[&("llama_cpp_python", "block")].iter().find(|row| row[0] == "Q2_0").unwrap();
    let same = row[1] == rooflined_core::precision::WeightFormat::Q2_0.layout().elements.to_string();
    assert_eq!(lines("llama.cpp").iter().any(|line| line.contains(" Q2_0")), same);
}

#[test]
fn vllm_has_every_option_and_value() {
    let names = Names::read();
    for line in lines("vllm") {
        names.check("vllm", line);
        if let Some((_, scheme)) = line.split_once("scheme ") {
            assert!(names.values("compressed_tensors", "scheme").contains(scheme), "{line}");
        }
        if let Some((variable, _)) = line.split(' ').next().and_then(|first| first.split_once('=')) {
            assert_eq!(names.0[&("vllm", "variable")], [[variable]]);
        }
    }
}

#[test]
fn tensorrt_edge_llm_has_every_option_and_value() {
    let names = Names::read();
    for line in lines("tensorrt-edge-llm") {
        names.check("tensorrt_edgellm", line);
    }
}

#[test]
fn tensorrt_llm_has_every_option_and_value() {
    let names = Names::read();
    let (algorithms, caches) =
        (names.values("tensorrt_llm", "quant_algo"), names.values("tensorrt_llm", "kv_cache_config.dtype"));
    let mut written = BTreeSet::new();
    for line in lines("tensorrt-llm") {
        names.check("tensorrt_llm", line);
        if let Some((_, algorithm)) = line.split_once("quant_algo ") {
            let algorithm = algorithm.split(';').next().unwrap();
            assert!(algorithms.contains(algorithm), "{algorithm} in {line}");
            written.insert(algorithm.to_owned());
        }
        if let Some((_, cache)) = line.split_once("kv_cache_config: {dtype: ") {
            assert!(caches.contains(cache.trim_end_matches('}')), "{line}");
        }
    }
    assert_eq!(written.len(), algorithms.len(), "{written:?}");
}

#[test]
fn mlc_has_every_option_and_value() {
    let names = Names::read();
    let (overrides, kinds) =
        (names.values("mlc_llm", "--overrides"), names.values("mlc_llm", "--quantization"));
    for line in lines("mlc") {
        names.check("mlc_llm", line);
        for (flag, value) in options(line) {
            assert!(flag != "--quantization" || kinds.contains(value), "{line}");
            if flag == "--overrides" {
                for pair in value.trim_matches('"').split(';') {
                    let (name, number) = pair.split_once('=').unwrap();
                    assert!(overrides.contains(name) && number.parse::<u64>().is_ok(), "{pair} in {line}");
                }
            }
        }
    }
}

/// No option is given twice, and a part of the memory is a part.
#[test]
fn every_line_is_well_formed() {
    let mut seen = 0;
    for engine in ["llama.cpp", "vllm", "tensorrt-llm", "tensorrt-edge-llm", "mlc"] {
        for line in lines(engine) {
            for command in line.split("  #").next().unwrap().split(" && ") {
                let given = options(command);
                for (index, (flag, value)) in given.iter().enumerate() {
                    assert!(given[..index].iter().all(|(other, _)| other != flag), "{flag} twice in {line}");
                    if matches!(*flag, "--gpu-memory-utilization" | "--kv_cache_free_gpu_memory_fraction") {
                        let ratio: f64 = value.parse().unwrap();
                        assert!(ratio > 0.0 && ratio < 1.0, "{line}");
                    }
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 1_000, "{seen}");
}

/// A call in a line of Python: its class, and what is between its brackets.
fn calls(text: &str) -> Vec<(&str, &str)> {
    let mut calls = Vec::new();
    for (open, _) in text.match_indices('(') {
        let start = text[..open].rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        let mut depth = 0;
        let close = text[open..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        calls.push((&text[start..open], &text[open + 1..open + close.unwrap()]));
    }
    calls
}

/// Names of the keyword arguments between brackets, without those of calls inside.
fn keywords(arguments: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in arguments.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == ',' && depth == 0 {
            parts.push(&arguments[start..at]);
            start = at + 1;
        }
    }
    parts.push(&arguments[start..]);
    let named = |part: &&str| part.find('=').is_some_and(|at| !part[..at].contains('('));
    parts.into_iter().filter(named).map(|part| part.split('=').next().unwrap().trim()).collect()
}

#[test]
fn torchao_has_every_class_with_every_argument() {
    let names = Names::read();
    let mut classes = BTreeSet::new();
    for line in lines("torchao").iter().filter(|line| !line.starts_with("none: ")) {
        for (class, arguments) in calls(line) {
            let (_, known) = names.class(class).unwrap_or_else(|| panic!("torchao has no {class}: {line}"));
            for keyword in keywords(arguments) {
                assert!(known.contains(&keyword), "{class} has no {keyword}: {line}");
            }
            assert!(arguments.is_empty() || !known.is_empty(), "{class} takes nothing: {line}");
            classes.insert(class.to_owned());
        }
        for (argument, enumeration) in
            [("int4_packing_format=\"", "Int4PackingFormat"), ("step=\"", "QuantizationStep")]
        {
            for (_, rest) in line.match_indices(argument).map(|(at, _)| line[at..].split_at(argument.len())) {
                let value = rest.split('"').next().unwrap();
                // GPTQ's own steps are plain strings: "observe" and "convert".
                assert!(value == "observe" || names.values("torchao", enumeration).contains(value), "{line}");
            }
        }
    }
    assert!(classes.len() >= 10, "{classes:?}");
}

#[test]
fn torch_imports_every_class_from_where_torchao_has_it() {
    let names = Names::read();
    for line in lines("torch") {
        let mut imported = BTreeSet::new();
        for statement in line.split("; ").filter_map(|statement| statement.strip_prefix("from ")) {
            let (module, list) = statement.split_once(" import ").unwrap();
            for name in list.split(", ").filter(|name| *name != "quantize_") {
                assert_eq!(names.class(name).map(|(home, _)| home), Some(module), "{name} in {line}");
                imported.insert(name);
            }
        }
        let used = calls(line)
            .into_iter()
            .map(|(class, _)| class)
            .filter(|class| class.ends_with("Config") || class.starts_with("Per"));
        assert_eq!(used.collect::<BTreeSet<_>>(), imported, "{line}");
    }
}
