//! What cargo and clippy cannot say of the workspace.
//!
//! A crate's manifest is its import table, and cargo refuses what is not in it; `crates/rooflined-core/clippy.toml` names what
//! a pure crate may not call. Held here: which layer may import which, that pure crates depend on nothing that reaches
//! outside, what the client must not link, that files of a crate do not import in a circle, that only the probe silences
//! `unsafe_code`, that binaries are thin, and that every crate is laid out and linted alike.

#![expect(clippy::panic, reason = "a file that cannot be read fails the test that asked for it, by name")]

mod cycles;
mod security;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Every package of the product with its layer: 0 is pure, 1 what clients see, 2 the outside world, 3 what is started.
const LAYERS: [(&str, usize); 14] = [
    ("rooflined-core", 0),
    ("rooflined-models", 0),
    ("rooflined-predict", 0),
    ("rooflined-governor", 0),
    ("rooflined-api", 1),
    ("rooflined-client", 1),
    ("rooflined-advice", 1),
    ("rooflined-config", 2),
    ("rooflined-hw", 2),
    ("rooflined-probe", 2),
    ("rooflined-actuator", 2),
    ("rooflined-simulate", 2),
    ("rooflined", 3),
    ("rooflinectl", 3),
];
/// Dependencies that compute and do nothing else: the ones a pure crate may use.
const PURE_CRATES: [&str; 6] = ["half", "serde", "serde_json", "strsim", "thiserror", "toml"];
/// Arrows that the order of storeys allows and the design does not. Adapters take values of the model, so that a board
/// can be read without knowing what is asked about it; the wire's types know names and units; the client needs no daemon.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    ("rooflined-api", &["rooflined-predict", "rooflined-governor"]),
    ("rooflined-hw", &["rooflined-predict", "rooflined-governor", "rooflined-api", "rooflined-advice"]),
    ("rooflined-probe", &["rooflined-governor", "rooflined-api", "rooflined-advice", "rooflined-hw"]),
    (
        "rooflined-actuator",
        &[
            "rooflined-predict",
            "rooflined-governor",
            "rooflined-api",
            "rooflined-advice",
            "rooflined-probe",
            "rooflined-simulate",
        ],
    ),
    (
        "rooflinectl",
        &["rooflined-governor", "rooflined-probe", "rooflined-actuator", "rooflined-simulate", "rooflined"],
    ),
    ("rooflined", &["rooflinectl"]),
];
/// What the client must not link, however far down: the bus, the GPU's driver, kernels, an HTTP server's frame.
const NOT_IN_THE_CLIENT: [&str; 6] =
    ["zbus", "cudarc", "gemm-f32", "gemm-common", "rooflined", "rooflined-probe"];
const LONGEST_BINARY: usize = 29;

/// A package of the product.
struct Crate {
    name: &'static str,
    layer: usize,
    directory: PathBuf,
    manifest: Table,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(text: &str) -> Table {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

fn crates() -> Vec<Crate> {
    let of = |(name, layer): (&'static str, usize)| {
        let directory =
            if name == "rooflined" { root().to_owned() } else { root().join("crates").join(name) };
        Crate { name, layer, manifest: parse(&read(&directory.join("Cargo.toml"))), directory }
    };
    LAYERS.map(of).into()
}

/// The names in a manifest's table of dependencies.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let table = manifest.get("dependencies").and_then(Value::as_table);
    table.into_iter().flat_map(Table::keys).cloned().collect()
}

/// Every file of Rust below `directory`.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() { sources(&path) } else { vec![path] }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    found.sort();
    found
}

/// What is wrong with the imports of the package `name`.
fn wrong_arrows(name: &str, imports: &BTreeSet<String>) -> Vec<String> {
    let layer_of = |name: &str| LAYERS.iter().find(|(of, _)| *of == name).map(|(_, layer)| *layer);
    let layer = layer_of(name).unwrap_or_default();
    let forbidden = FORBIDDEN.iter().find(|(from, _)| *from == name).map_or(&[][..], |(_, to)| to);
    let mut wrong = Vec::new();
    for import in imports {
        match layer_of(import) {
            Some(above) if above > layer => {
                wrong.push(format!("`{name}` imports `{import}`, which stands above it"));
            }
            Some(_) if forbidden.contains(&import.as_str()) => {
                wrong.push(format!("`{name}` imports `{import}`, which is none of its business"));
            }
            Some(_) => {}
            None if import.starts_with("roofline") => {
                wrong.push(format!("`{name}` imports `{import}`, which has no layer"));
            }
            None if layer == 0 && !PURE_CRATES.contains(&import.as_str()) => {
                wrong.push(format!("`{name}` is pure and depends on `{import}`"));
            }
            None => {}
        }
    }
    wrong
}

#[test]
fn no_arrow_runs_up_and_pure_crates_only_compute() {
    let wrong: Vec<String> =
        crates().iter().flat_map(|of| wrong_arrows(of.name, &dependencies(&of.manifest))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_has_its_layer() {
    let found: BTreeSet<String> = directories(&root().join("crates"))
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    let layered: BTreeSet<String> =
        LAYERS.iter().map(|(name, _)| (*name).to_owned()).filter(|name| name != "rooflined").collect();
    assert_eq!(found, layered);
}

#[test]
fn a_wrong_arrow_is_named() {
    let cases = [
        ("rooflined-core", "rooflined-hw", "stands above"),
        ("rooflined-core", "tokio", "is pure"),
        ("rooflined-api", "rooflined-predict", "none of its business"),
        ("rooflinectl", "rooflined", "none of its business"),
        ("rooflined-hw", "rooflined-nowhere", "has no layer"),
    ];
    for (name, import, why) in cases {
        let wrong = wrong_arrows(name, &BTreeSet::from([import.to_owned()]));
        assert!(wrong.len() == 1 && wrong[0].contains(why), "{name} -> {import}: {wrong:?}");
    }
    let fine = BTreeSet::from(["rooflined-core".to_owned(), "tokio".to_owned()]);
    assert!(wrong_arrows("rooflined-hw", &fine).is_empty());
}

/// Everything that `start` links: manifests say so for our own crates (the lock file adds what only their tests use),
/// the lock file for the others.
fn linked(start: &str, manifests: &BTreeMap<String, BTreeSet<String>>, lock: &Table) -> BTreeSet<String> {
    let packages = lock["package"].as_array().cloned().unwrap_or_default();
    let locked = |name: &str| -> BTreeSet<String> {
        let of_name = packages.iter().filter(|package| package["name"].as_str() == Some(name));
        let listed = of_name.filter_map(|package| package.get("dependencies")?.as_array());
        // `name version` where there are two versions of one name.
        listed
            .flatten()
            .filter_map(Value::as_str)
            .map(|entry| entry.split(' ').next().unwrap_or(entry).to_owned())
            .collect()
    };
    let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
    while let Some(name) = open.pop() {
        if seen.insert(name.clone()) {
            open.extend(manifests.get(&name).cloned().unwrap_or_else(|| locked(&name)));
        }
    }
    seen
}

#[test]
fn the_client_links_no_bus_no_driver_and_no_kernels() {
    let manifests: BTreeMap<String, BTreeSet<String>> =
        crates().iter().map(|of| (of.name.to_owned(), dependencies(&of.manifest))).collect();
    let lock = parse(&read(&root().join("Cargo.lock")));
    let client = linked("rooflinectl", &manifests, &lock);
    let found: Vec<&str> = NOT_IN_THE_CLIENT.into_iter().filter(|name| client.contains(*name)).collect();
    assert!(found.is_empty(), "rooflinectl links {found:?}");
    let daemon = linked("rooflined", &manifests, &lock);
    let missing: Vec<&str> = NOT_IN_THE_CLIENT.into_iter().filter(|name| !daemon.contains(*name)).collect();
    assert!(missing.is_empty(), "the search would not find {missing:?} where they are");
}

/// Programs of others link the client, so it brings types, HTTP and nothing of the daemon.
#[test]
fn the_client_library_needs_the_wire_types_alone() {
    let ours = |name: &str| -> BTreeSet<String> {
        let found = crates().into_iter().find(|of| of.name == name).map(|of| dependencies(&of.manifest));
        found.unwrap_or_default().into_iter().filter(|name| name.starts_with("rooflined")).collect()
    };
    assert_eq!(ours("rooflined-client"), BTreeSet::from(["rooflined-api".to_owned()]));
    assert_eq!(ours("rooflined-api"), BTreeSet::from(["rooflined-core".to_owned()]));
}

#[test]
fn only_the_probe_contains_unsafe_code() {
    // Built from two halves, so that this file does not name it.
    let lint = ["unsafe", "code"].join("_");
    let silencing = |directory: &Path| -> Vec<String> {
        let files = sources(directory).into_iter().filter(|path| read(path).contains(&lint));
        files.map(|path| path.strip_prefix(root()).unwrap().display().to_string()).collect()
    };
    assert!(silencing(&root().join("src")).is_empty());
    assert_eq!(silencing(&root().join("crates")), ["crates/rooflined-probe/src/lib.rs"]);
    assert_eq!(
        parse(&read(&root().join("Cargo.toml")))["workspace"]["lints"]["rust"][&lint].as_str(),
        Some("deny")
    );
}

#[test]
fn every_crate_is_laid_out_and_linted_alike() {
    for of in crates() {
        let Crate { name, manifest, directory, .. } = &of;
        assert_eq!(manifest["package"]["name"].as_str(), Some(*name));
        assert!(
            manifest.get("lib").is_none(),
            "{name}: the library is src/lib.rs and has the package's name"
        );
        assert!(directory.join("src/lib.rs").is_file(), "{name}");
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{name}");
        assert!(manifest["package"]["description"].as_str().is_some_and(|text| text.len() > 20), "{name}");
        for path in sources(&directory.join("src")) {
            let elsewhere = read(&path).lines().any(|line| line.trim_start().starts_with("#[path"));
            let known = path.ends_with("rooflined-probe/src/peak.rs");
            assert!(!elsewhere || known, "{} takes a module from elsewhere", path.display());
        }
    }
    let lab = parse(&read(&root().join("tools/lab/Cargo.toml")));
    assert_eq!(lab["package"]["publish"].as_bool(), Some(false));
}

#[test]
fn no_files_of_a_crate_import_in_a_circle() {
    let circles: Vec<String> = crates()
        .iter()
        .flat_map(|of| {
            cycles::cycles(&of.directory).into_iter().map(|files| format!("{}: {files:?}", of.name))
        })
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn a_binary_parses_calls_and_exits() {
    let mains = ["src/main.rs", "crates/rooflinectl/src/main.rs", "tools/lab/src/main.rs"];
    for main in mains {
        let lines = read(&root().join(main)).lines().count();
        assert!(lines <= LONGEST_BINARY, "{main} has {lines} lines; move what it does into its crate");
    }
}

#[test]
fn pure_crates_are_kept_from_clocks_files_threads_and_terminals() {
    let rules = parse(&read(&root().join("crates/rooflined-core/clippy.toml")));
    let named = |list: &str| -> BTreeSet<String> {
        let entries = rules[list].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry["path"].as_str()).map(str::to_owned).collect()
    };
    for method in
        ["std::time::Instant::now", "std::fs::read_to_string", "std::env::var", "std::thread::spawn"]
    {
        assert!(named("disallowed-methods").contains(method), "{method}");
    }
    for of in ["std::sync::Mutex", "std::fs::File", "std::process::Command"] {
        assert!(named("disallowed-types").contains(of), "{of}");
    }
    assert!(named("disallowed-macros").contains("std::println"));
    for of in crates().iter().filter(|of| of.layer == 0) {
        let own = parse(&read(&of.directory.join("clippy.toml")));
        assert_eq!(own, rules, "{}", of.name);
        for path in sources(&of.directory.join("src")) {
            let text = read(&path);
            let silenced = text.contains("clippy::disallowed");
            let asynchronous = text
                .lines()
                .any(|line| line.trim_start().starts_with("async ") || line.contains("pub async "));
            assert!(!asynchronous, "{} is pure and asynchronous", path.display());
            let test = path.components().any(|part| part.as_os_str() == "tests")
                || path.ends_with("tests.rs")
                || text.contains("#[cfg(test)]");
            assert!(!silenced || test, "{} silences what keeps it pure", path.display());
        }
    }
}

/// Paths of files that `text` names, from the root of the repository.
fn named_paths(text: &str) -> Vec<&str> {
    const TOPS: [&str; 6] = ["src/", "crates/", "tests/", "config/", "kernels/", "systemd/"];
    let part = |of: char| of.is_ascii_alphanumeric() || "/_.-".contains(of);
    let words = text.split(|of: char| !part(of)).map(|word| word.trim_end_matches(['.', '-']));
    words.filter(|word| TOPS.iter().any(|top| word.starts_with(top)) && word.ends_with(".rs")).collect()
}

#[test]
fn documents_name_files_that_exist() {
    let documents = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/accuracy.md",
        "docs/architecture.md",
        "docs/internals/gpu.md",
        "docs/internals/paths.md",
        "docs/internals/threat-model.md",
    ];
    let texts = documents.map(|document| (document, read(&root().join(document))));
    let named: Vec<(&str, &str)> = texts
        .iter()
        .flat_map(|(document, text)| named_paths(text).into_iter().map(move |path| (*document, path)))
        .collect();
    assert!(named.len() > 30, "only {} paths were found", named.len());
    let lost: Vec<_> = named.into_iter().filter(|(_, path)| !root().join(path).exists()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(named_paths("see `src/a/b.rs`, (tests/c.rs). and src/nowhere"), ["src/a/b.rs", "tests/c.rs"]);
}

/// Each row of `docs/internals/faults.md` names its tests as a file and a function of it.
#[test]
fn every_fault_of_the_documentation_names_a_test_that_exists() {
    let page = read(&root().join("docs/internals/faults.md"));
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault |"));
    let mut named = 0;
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let words: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!words.is_empty() && words.len().is_multiple_of(2), "no file and test: {row}");
        for pair in words.chunks(2) {
            let [file, test] = pair else { continue };
            let text = read(&root().join(file));
            let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("\n{test}() {{"));
            assert!(is_there, "{file} has no test {test}");
            named += 1;
        }
    }
    assert!(named >= 20, "{named} tests are named");
}
