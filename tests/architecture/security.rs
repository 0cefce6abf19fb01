//! What the documents on security claim of dependencies, tests and fuzz targets is there.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::{crates, directories, parse, read, root, sources};

/// The first cell of every row of the table below a heading, up to the next one, without its backticks.
fn first_cells(text: &str, heading: &str) -> BTreeSet<String> {
    let below = text.lines().skip_while(|line| *line != heading).skip(1);
    let rows = below.take_while(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// The crates from elsewhere that manifests name.
fn direct_dependencies() -> BTreeSet<String> {
    let workspace = parse(&read(&root().join("Cargo.toml")));
    let is_ours = |of: &Value| of.get("path").is_some();
    let shared = workspace["workspace"]["dependencies"].as_table().cloned().unwrap_or_default();
    let mut manifests = ["Cargo.toml", "benches/Cargo.toml", "fuzz/Cargo.toml", "fuzz/libfuzzer/Cargo.toml"]
        .map(|of| root().join(of))
        .to_vec();
    for parent in ["crates", "tests/crates", "tools"].map(|of| root().join(of)) {
        manifests.extend(directories(&parent).into_iter().map(|of| of.join("Cargo.toml")));
    }
    let mut found = BTreeSet::new();
    for manifest in manifests {
        let manifest = parse(&read(&manifest));
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let named = manifest.get(table).and_then(Value::as_table).into_iter().flatten();
            let ours = |name: &str, of: &Value| is_ours(of) || shared.get(name).is_some_and(is_ours);
            found.extend(named.filter(|(name, of)| !ours(name, of)).map(|(name, _)| name.clone()));
        }
    }
    found
}

#[test]
fn every_direct_dependency_has_its_reason() {
    let document = read(&root().join("docs/internals/dependencies.md"));
    let told = first_cells(&document, "## Direct, and why");
    let named = direct_dependencies();
    let untold: Vec<_> = named.difference(&told).collect();
    assert!(untold.is_empty(), "docs/internals/dependencies.md says no reason for {untold:?}");
    let gone: Vec<_> = told.difference(&named).collect();
    assert!(
        gone.is_empty(),
        "docs/internals/dependencies.md has a reason for {gone:?}, which no manifest names"
    );
    assert!(named.len() > 20, "only {} were found", named.len());
}

#[test]
fn no_shared_dependency_is_without_a_user() {
    let workspace = parse(&read(&root().join("Cargo.toml")));
    let shared = workspace["workspace"]["dependencies"].as_table().cloned().unwrap_or_default();
    let external = shared.iter().filter(|(_, of)| of.get("path").is_none()).map(|(name, _)| name.clone());
    let named = direct_dependencies();
    let unused: Vec<_> = external.filter(|name| !named.contains(name)).collect();
    assert!(unused.is_empty(), "no crate names {unused:?}");
}

/// A crate from elsewhere that the sources of ours never mention is compiled, and trusted, for nothing.
#[test]
fn every_crate_uses_what_its_manifest_names() {
    let mut idle = Vec::new();
    for of in crates() {
        let text: String = sources(&of.directory.join("src")).iter().map(|path| read(path)).collect();
        let manifest = of.manifest.get("dependencies").and_then(Value::as_table);
        let unused = manifest.into_iter().flat_map(Table::keys).filter(|name| {
            let name = name.replace('-', "_");
            !text.contains(&format!("{name}::")) && !text.contains(&format!("use {name} "))
        });
        idle.extend(unused.map(|name| format!("{} does not use {name}", of.name)));
    }
    assert!(idle.is_empty(), "{idle:#?}");
}

/// Words in backticks that are names of tests: lower case, with underscores, and longer than those of functions.
fn named_tests(text: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        word.len() > 20
            && word.contains('_')
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn tests_and_targets_that_the_threat_model_names_exist() {
    let text = read(&root().join("docs/internals/threat-model.md"));
    let names = named_tests(&text);
    assert!(names.len() > 20, "only {} names were found", names.len());
    let code: String = ["src", "crates", "tests"]
        .map(|of| root().join(of))
        .iter()
        .flat_map(|of| sources(of))
        .map(|path| read(&path))
        .collect();
    let lost: Vec<_> = names.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(lost.is_empty(), "{lost:?}");

    let told = |path: &str| {
        let text = read(&root().join(path));
        let words = text.split('`').skip(1).step_by(2).map(str::to_owned);
        words.collect::<BTreeSet<String>>()
    };
    let targets = sources(&root().join("fuzz/targets"));
    let targets: Vec<_> = targets.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    assert!(targets.len() >= 12, "only {} targets", targets.len());
    for document in ["docs/internals/threat-model.md", "fuzz/README.md"] {
        let told = told(document);
        let untold: Vec<_> = targets.iter().filter(|target| !told.contains(**target)).collect();
        assert!(untold.is_empty(), "{document} does not name {untold:?}");
    }
}
