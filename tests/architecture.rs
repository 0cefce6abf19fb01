//! The import table of the crate, enforced.
//!
//! Every file below `src` is parsed, and every path in it (imports, expressions, types, macro arguments, attribute
//! strings) is resolved to a top-level module, a dependency or the standard library. Four rules follow from that:
//!
//! 1. *imports*: a module uses only the modules that its row in [`TABLE`] names; tests inside a module are held to it too;
//! 2. *pure*: the upper half has no clock, file, environment, thread, log or task; `#[cfg(test)]` code is exempt;
//! 3. *unsafe*: only `bench` contains it;
//! 4. *thin binaries*: a binary parses, calls and exits in under thirty lines.

#![expect(clippy::panic, reason = "a file that cannot be read fails the test that asked for it, by name")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One row of the table: a module, where it stands, and what it may import.
struct Row {
    module: &'static str,
    layer: Layer,
    imports: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    Pure,
    Adapter,
    /// Compiled for tests alone, and used by any of them.
    Tests,
}

const fn pure(module: &'static str, imports: &'static [&'static str]) -> Row {
    Row { module, layer: Layer::Pure, imports }
}

const fn adapter(module: &'static str, imports: &'static [&'static str]) -> Row {
    Row { module, layer: Layer::Adapter, imports }
}

const fn for_tests(module: &'static str, imports: &'static [&'static str]) -> Row {
    Row { module, layer: Layer::Tests, imports }
}

/// Stands for every module marked pure.
const PURE: &str = "(every pure module)";
/// Stands for every module of the table.
const EVERYTHING: &str = "(everything)";

/// Arrows go up only: a module may import rows above it, and of those the ones it names.
///
/// `calibration` sees the predictor because it fits utilisation tables: a sample becomes a ratio of what was predicted
/// to what was measured, and the prediction must be the predictor's own. `hw` sees `calibration` for the operating
/// point that it reads before and after a run. `actuator` sees `config` because the role of root takes nobody's word for
/// what the configuration allows, and `units` for the clocks that it locks. `cli` sees `hw` for `bundle`, which captures
/// the machine it runs on: a board that the daemon does not start on is the one whose files are wanted. `modelfile` opens the files
/// whose bytes `workload::import` reads, for whoever has a path. `answer` turns a question of the wire into its answer;
/// `server` gives it the machine's own picture, and `cli` that of a data sheet, for which no daemon is needed.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    pure("units", &[]),
    pure("precision", &["units"]),
    pure("hardware", &["units", "precision"]),
    pure("board", &["units"]),
    pure("roofline", &["units", "precision", "hardware", "board"]),
    pure("workload", &["units", "precision"]),
    pure("predict", &["units", "precision", "hardware", "board", "roofline", "workload"]),
    pure("calibration", &["units", "precision", "hardware", "board", "roofline", "workload", "predict"]),
    pure("learning", &["units", "precision", "hardware", "board", "roofline", "workload", "predict"]),
    pure("snapshot", &["units", "precision", "hardware", "board", "roofline", "workload", "predict", "calibration", "learning"]),
    pure("optimize", &["units", "precision", "hardware", "board", "roofline", "workload", "predict", "calibration", "learning", "snapshot"]),
    pure("governor", &["units", "precision", "hardware", "board", "roofline", "workload", "predict", "calibration", "learning", "snapshot", "optimize"]),
    adapter("hw", &["units", "board", "hardware", "calibration"]),
    adapter("bench", &["units", "precision", "calibration"]),
    adapter("store", &[PURE]),
    adapter("config", &[PURE]),
    adapter("modelfile", &["units", "precision", "workload"]),
    adapter("api", &[PURE]),
    adapter("answer", &["api", "modelfile", PURE]),
    adapter("server", &["api", "answer", PURE]),
    adapter("actuator", &["units", "board", "hw", "config"]),
    adapter("client", &["api"]),
    adapter("cli", &["api", "answer", "client", "config", "hw", "modelfile", PURE]),
    adapter("daemon", &[EVERYTHING]),
    adapter("bin", &["daemon", "cli"]),
    for_tests("fixtures", &[PURE]),
];

/// The only module that may contain `unsafe`.
const UNSAFE_HOME: &str = "bench";
/// Dependencies that compute and do nothing else: the ones a pure module may use.
const PURE_CRATES: &[&str] = &["half", "serde", "serde_json", "thiserror", "toml"];
/// What a pure module may take from `std::sync`: shared or once-computed values, not state.
const PURE_SYNC: &[&str] = &["Arc", "Weak", "LazyLock", "OnceLock"];
/// Standard-library paths that reach outside, and what they reach.
const IMPURE_STD: &[(&str, &str)] = &[
    ("std::fs", "a file"),
    ("std::env", "the environment"),
    ("std::net", "the network"),
    ("std::os", "the operating system"),
    ("std::process", "a process"),
    ("std::thread", "a thread"),
    ("std::task", "a task"),
    ("std::future", "a task"),
    ("std::time::Instant", "a clock"),
    ("std::time::SystemTime", "a clock"),
    ("std::time::UNIX_EPOCH", "a clock"),
    ("std::io::stdin", "a terminal"),
    ("std::io::stdout", "a terminal"),
    ("std::io::stderr", "a terminal"),
];
const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg", "thread_local"];
/// Methods of `std::path::Path` that look at the disk.
const IMPURE_METHODS: &[&str] = &[
    "canonicalize",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "try_exists",
];
const LONGEST_BINARY: usize = 29;

fn row(module: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.module == module)
}

fn allows(row: &Row, target: &str) -> bool {
    row.module == target
        || row.imports.iter().any(|import| match *import {
            PURE => self::row(target).is_some_and(|row| row.layer == Layer::Pure),
            EVERYTHING => self::row(target).is_some_and(|row| row.layer != Layer::Tests) && target != "bin",
            name => name == target,
        })
}

/// A broken rule, where it is broken and by what.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: String,
    line: usize,
    what: String,
    rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    rule: {}", self.file, self.line, self.what, self.rule)
    }
}

/// `["calibration", "sample"]` for `src/calibration/sample.rs`; empty for `src/lib.rs`.
fn module_path(file: &str) -> Vec<String> {
    let inner = file.trim_start_matches("src/").trim_end_matches(".rs");
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    if inner == "lib" { vec![] } else { inner.split('/').map(String::from).collect() }
}

/// The modules that `source` declares for tests alone and keeps in files of their own (`#[cfg(test)] mod tests;`).
fn test_modules(file: &str, source: &str) -> Vec<Vec<String>> {
    let items = syn::parse_file(source).map(|parsed| parsed.items).unwrap_or_default();
    let modules = items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.content.is_none() && is_test(&item.attrs) => {
            Some(item.ident.to_string())
        }
        _ => None,
    });
    modules.map(|name| joined(&module_path(file), &name)).collect()
}

/// Everything `source` does against the rules, as if it stood at `file` (`src/…`).
fn violations(file: &str, source: &str, dependencies: &BTreeSet<String>) -> Vec<Violation> {
    violations_in(file, source, dependencies, &[])
}

/// The same, where `tests` are the modules that only tests compile.
fn violations_in(
    file: &str,
    source: &str,
    dependencies: &BTreeSet<String>,
    tests: &[Vec<String>],
) -> Vec<Violation> {
    let path = module_path(file);
    let mut scan = Scan {
        file,
        dependencies,
        row: path.first().and_then(|top| row(top)),
        names: vec![names_of(&[])],
        testing: usize::from(tests.iter().any(|module| path.starts_with(module))),
        path,
        found: BTreeSet::new(),
    };
    match syn::parse_file(source) {
        Ok(parsed) => scan.run(&parsed, source),
        Err(error) => scan.report(error.span(), format!("does not parse: {error}"), "every file parses"),
    }
    scan.found.into_iter().collect()
}

struct Scan<'a> {
    file: &'a str,
    dependencies: &'a BTreeSet<String>,
    /// None for the crate root, which declares modules and imports nothing.
    row: Option<&'static Row>,
    /// Where the scan stands, inline modules included.
    path: Vec<String>,
    /// What each imported name means, one map for each module entered.
    names: Vec<BTreeMap<String, Vec<String>>>,
    /// How many `#[cfg(test)]` items surround this place.
    testing: usize,
    found: BTreeSet<Violation>,
}

impl Scan<'_> {
    fn run(&mut self, parsed: &syn::File, source: &str) {
        if let Some(top) = self.path.first().cloned() {
            if self.row.is_none() {
                let what = format!("module `{top}` has no row in the import table");
                self.report(Span::call_site(), what, "a module gets its row before its first line");
            }
            if top == "bin" && source.lines().count() > LONGEST_BINARY {
                let what = format!("{} lines", source.lines().count());
                self.report(Span::call_site(), what, "a binary parses, calls and exits in under 30 lines");
            }
        }
        self.names = vec![names_of(&parsed.items)];
        self.visit_file(parsed);
    }

    fn report(&mut self, span: Span, what: String, rule: &str) {
        let (file, line) = (self.file.to_owned(), span.start().line);
        self.found.insert(Violation { file, line, what, rule: rule.to_owned() });
    }

    fn is_pure(&self) -> bool {
        self.row.is_some_and(|row| row.layer == Layer::Pure) && self.testing == 0
    }

    /// The full path behind `segments` as written here: `crate::…`, or a dependency's or the standard library's.
    /// None for a name of this module, a method or a variable.
    fn resolve(&self, segments: &[String]) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" | "$crate" => Some(segments.to_vec()),
            "rooflined" if self.path.first().is_some_and(|top| top == "bin") => {
                Some(["crate".to_owned()].iter().chain(rest).cloned().collect())
            }
            "self" if !rest.is_empty() => Some(self.absolute(0, rest)),
            "super" => {
                let up = segments.iter().take_while(|segment| *segment == "super").count();
                Some(self.absolute(up, &segments[up..]))
            }
            "std" | "core" | "alloc" => Some(["std".to_owned()].iter().chain(rest).cloned().collect()),
            name => {
                let known = self.names.last().and_then(|names| names.get(name));
                match known {
                    Some(full) => {
                        let full: Vec<String> = full.iter().chain(rest).cloned().collect();
                        (full[0] != *name).then(|| self.resolve(&full)).flatten().or(Some(full))
                    }
                    None => self.dependencies.contains(name).then(|| segments.to_vec()),
                }
            }
        }
    }

    /// `rest`, as seen from `up` modules above this one.
    fn absolute(&self, up: usize, rest: &[String]) -> Vec<String> {
        let here = &self.path[..self.path.len().saturating_sub(up)];
        ["crate".to_owned()].iter().chain(here).chain(rest).cloned().collect()
    }

    fn check(&mut self, span: Span, segments: &[String], glob: bool) {
        let Some(full) = self.resolve(segments) else { return };
        match full[0].as_str() {
            "crate" | "$crate" => self.check_module(span, &full, glob),
            "std" if self.is_pure() => self.check_std(span, &full, glob),
            name if self.is_pure() && !PURE_CRATES.contains(&name) && self.dependencies.contains(name) => {
                let rule = format!("a pure module uses only these crates: {}", PURE_CRATES.join(", "));
                self.report(span, format!("`{}` in a pure module", full.join("::")), &rule);
            }
            _ => {}
        }
    }

    fn check_module(&mut self, span: Span, full: &[String], glob: bool) {
        let Some(row) = self.row else { return };
        let Some(target) = full.get(1) else {
            if glob {
                let what = "imports the whole crate".to_owned();
                self.report(span, what, "an import names its module");
            }
            return;
        };
        let Some(found) = self::row(target) else {
            let what = format!("`{}` is no module of the import table", full.join("::"));
            return self.report(span, what, "an import names the module that holds the thing");
        };
        if found.layer == Layer::Tests {
            if self.testing == 0 && row.layer != Layer::Tests {
                let what = format!("`{}` uses `{}` outside its tests", row.module, full.join("::"));
                self.report(span, what, "what is made for tests is used by tests");
            }
        } else if !allows(row, target) {
            let what = format!("`{}` uses `{}`", row.module, full.join("::"));
            let list = if row.imports.is_empty() { "nothing".to_owned() } else { row.imports.join(", ") };
            self.report(span, what, &format!("`{}` may import {list}", row.module));
        }
    }

    fn check_std(&mut self, span: Span, full: &[String], glob: bool) {
        let written = full.join("::");
        let below = |path: &str, of: &str| path == of || path.starts_with(&format!("{of}::"));
        let reaches = IMPURE_STD
            .iter()
            .find(|(path, _)| below(&written, path) || (glob && below(path, &written)))
            .map(|(_, what)| *what);
        let sync = match full {
            [_, module] if module == "sync" => glob,
            [_, module, item, ..] if module == "sync" => !PURE_SYNC.contains(&item.as_str()),
            _ => false,
        };
        if let Some(what) = reaches.or(sync.then_some("shared state")) {
            let star = if glob { "::*" } else { "" };
            let what = format!("`{written}{star}` reaches {what}");
            self.report(
                span,
                what,
                "a pure module takes values: no clock, file, environment, thread, log or task",
            );
        }
    }

    fn check_unsafe(&mut self, span: Span, what: &str) {
        if self.path.first().is_none_or(|top| top != UNSAFE_HOME) {
            self.report(span, what.to_owned(), "only `bench` contains unsafe code");
        }
    }

    fn impure(&mut self, span: Span, what: String) {
        if self.is_pure() {
            self.report(
                span,
                what,
                "a pure module takes values: no clock, file, environment, thread, log or task",
            );
        }
    }

    /// Paths inside a macro's arguments or body, which are tokens and no syntax tree.
    fn tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => self.string(literal.span(), &literal.to_string()),
                TokenTree::Ident(ident) if ident == "unsafe" => {
                    self.check_unsafe(ident.span(), "`unsafe` in a macro");
                }
                TokenTree::Ident(ident) if ident == "unsafe_code" => {
                    self.check_unsafe(ident.span(), "the lint `unsafe_code` silenced");
                }
                TokenTree::Ident(ident) => {
                    let (segments, next) = path_of_tokens(&tokens, at);
                    if segments.len() > 1 {
                        self.check(ident.span(), &segments, false);
                    }
                    at = next;
                    continue;
                }
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    /// A path written as a string, as in `#[serde(with = "crate::units")]`.
    fn string(&mut self, span: Span, literal: &str) {
        let text = literal.trim_matches('"');
        if text.starts_with("crate::") || text.starts_with("super::") {
            let segments: Vec<String> = text.split("::").map(|part| part.trim().to_owned()).collect();
            self.check(span, &segments, false);
        }
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                self.use_tree(&path.tree, &joined(prefix, &path.ident.to_string()));
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.use_tree(item, prefix)),
            syn::UseTree::Glob(glob) => self.check(glob.span(), prefix, true),
            syn::UseTree::Name(name) => {
                let ident = name.ident.to_string();
                let path = if ident == "self" { prefix.to_vec() } else { joined(prefix, &ident) };
                self.check_import(name.span(), &path);
            }
            syn::UseTree::Rename(rename) => {
                let ident = rename.ident.to_string();
                let path = if ident == "self" { prefix.to_vec() } else { joined(prefix, &ident) };
                self.check_import(rename.span(), &path);
            }
        }
    }

    /// Importing the crate or `std` itself under a name would hide everything behind it.
    fn check_import(&mut self, span: Span, path: &[String]) {
        self.check(span, path, path.len() == 1);
    }
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let tests = usize::from(is_test(&item.attrs));
        self.testing += tests;
        self.path.push(item.ident.to_string());
        let outer = self.row;
        self.row = outer.or_else(|| row(&self.path[0]));
        let items = item.content.as_ref().map_or(&[][..], |(_, items)| items);
        self.names.push(names_of(items));
        visit::visit_item_mod(self, item);
        self.names.pop();
        self.row = outer;
        self.path.pop();
        self.testing -= tests;
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let tests = usize::from(is_test(attributes(item)));
        self.testing += tests;
        visit::visit_item(self, item);
        self.testing -= tests;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[]);
        // An import inside a function names things for the rest of it.
        if let Some(names) = self.names.last_mut() {
            collect_names(&item.tree, &[], names);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.check(item.span(), &[item.ident.to_string()], true);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.check(path.span(), &segments, false);
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if let Some(elsewhere) = file_elsewhere(attribute) {
            let what = format!("`#[path]` takes `{elsewhere}` from another directory");
            self.report(attribute.span(), what, "a module's file stands below the module it belongs to");
        }
        self.visit_path(attribute.path());
        match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("unsafe") => {
                self.check_unsafe(attribute.span(), "an unsafe attribute");
            }
            // Forbidding or denying the lint is welcome anywhere.
            syn::Meta::List(list) if list.path.is_ident("deny") || list.path.is_ident("forbid") => {}
            syn::Meta::List(list) => self.tokens(list.tokens.clone()),
            syn::Meta::NameValue(pair) => self.visit_expr(&pair.value),
            syn::Meta::Path(_) => {}
        }
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if let Some(name) = item.path.segments.last() {
            let name = name.ident.to_string();
            if IMPURE_MACROS.contains(&name.as_str()) {
                self.impure(item.span(), format!("`{name}!`"));
            }
        }
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        if IMPURE_METHODS.contains(&method.as_str()) {
            self.impure(call.method.span(), format!("`.{method}()` looks at the disk"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_await(&mut self, expr: &'ast syn::ExprAwait) {
        self.impure(expr.await_token.span(), "`.await`".to_owned());
        visit::visit_expr_await(self, expr);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.check_unsafe(block.unsafe_token.span(), "an unsafe block");
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let Some(token) = signature.unsafety {
            self.check_unsafe(token.span(), "an unsafe function");
        }
        if let Some(token) = signature.asyncness {
            self.impure(token.span(), "an async function".to_owned());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = item.unsafety {
            self.check_unsafe(token.span(), "an unsafe impl");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(token) = item.unsafety {
            self.check_unsafe(token.span(), "an unsafe trait");
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.check_unsafe(item.span(), "a foreign block");
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if matches!(item.mutability, syn::StaticMutability::Mut(_)) {
            self.impure(item.span(), "a mutable static".to_owned());
        }
        visit::visit_item_static(self, item);
    }
}

fn joined(prefix: &[String], last: &str) -> Vec<String> {
    prefix.iter().cloned().chain([last.to_owned()]).collect()
}

/// What the imports among `items` call things: `time` → `std::time`, `Clock` → `std::time::Instant`.
fn names_of(items: &[syn::Item]) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    for item in items {
        if let syn::Item::Use(item) = item {
            collect_names(&item.tree, &[], &mut names);
        }
    }
    names
}

fn collect_names(tree: &syn::UseTree, prefix: &[String], names: &mut BTreeMap<String, Vec<String>>) {
    let (name, item) = match tree {
        syn::UseTree::Path(path) => {
            return collect_names(&path.tree, &joined(prefix, &path.ident.to_string()), names);
        }
        syn::UseTree::Group(group) => {
            return group.items.iter().for_each(|item| collect_names(item, prefix, names));
        }
        syn::UseTree::Glob(_) => return,
        syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
        syn::UseTree::Rename(rename) => (rename.rename.to_string(), rename.ident.to_string()),
    };
    let full = if item == "self" { prefix.to_vec() } else { joined(prefix, &item) };
    let name = if name == "self" { prefix.last().cloned().unwrap_or(name) } else { name };
    names.insert(name, full);
}

/// The path that starts at `tokens[start]`, and where the tokens go on after it.
fn path_of_tokens(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let mut segments = vec![tokens[start].to_string()];
    let mut at = start + 1;
    while let [TokenTree::Punct(a), TokenTree::Punct(b), next, ..] = &tokens[at..] {
        if a.as_char() != ':' || b.as_char() != ':' {
            break;
        }
        match next {
            TokenTree::Ident(ident) => segments.push(ident.to_string()),
            // `a::{b, c}`: whatever is inside the braces, `a` is what gets imported from.
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return (segments, at + 2),
            _ => break,
        }
        at += 3;
    }
    (segments, at)
}

/// True for `#[cfg(test)]`, `#[cfg(all(test, …))]` and `#[test]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => requires_test(list.tokens.clone()),
        _ => false,
    })
}

/// `not(test)` and `any(test, …)` also compile without tests, so they do not count.
fn requires_test(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(ident)] => ident == "test",
        [TokenTree::Ident(ident), TokenTree::Group(group)] if ident == "all" => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            inner
                .split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
                .any(|part| requires_test(part.iter().cloned().collect()))
        }
        _ => false,
    }
}

/// The file a `#[path = "…"]` names, if that leaves the directory.
fn file_elsewhere(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) if pair.path.is_ident("path") => {
            Some(file.value()).filter(|file| file.contains('/'))
        }
        _ => None,
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        // A module's own visit counts its attributes.
        _ => &[],
    }
}

/// Names of the dependencies in Cargo.toml, as code spells them.
fn dependencies() -> BTreeSet<String> {
    let manifest: toml::Table =
        include_str!("../Cargo.toml").parse().unwrap_or_else(|error| panic!("Cargo.toml: {error}"));
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let of = |table: &toml::Table| -> Vec<String> {
        tables
            .iter()
            .filter_map(|name| table.get(*name)?.as_table())
            .flat_map(|table| table.keys().map(|key| key.replace('-', "_")))
            .collect()
    };
    let mut names: BTreeSet<String> = of(&manifest).into_iter().collect();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    for target in targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table) {
        names.extend(of(target));
    }
    names
}

/// Every Rust file below `directory`, with its path from the package's root.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut found: Vec<PathBuf> = entries
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

#[test]
fn the_crate_keeps_its_import_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dependencies = dependencies();
    let files: Vec<(String, String)> = sources(&root.join("src"))
        .iter()
        .map(|path| {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            (file, fs::read_to_string(path).unwrap())
        })
        .collect();
    let tests: Vec<Vec<String>> =
        files.iter().flat_map(|(file, source)| test_modules(file, source)).collect();
    let all: Vec<Violation> =
        files.iter().flat_map(|(file, source)| violations_in(file, source, &dependencies, &tests)).collect();
    let report: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert!(report.is_empty(), "{} broken rules:\n{}", report.len(), report.join("\n"));
}

#[test]
fn the_table_has_no_cycle() {
    for (at, row) in TABLE.iter().enumerate() {
        for later in &TABLE[at + 1..] {
            let back = allows(row, later.module) && !row.imports.contains(&EVERYTHING);
            assert!(!back, "`{}` imports `{}`, which stands below it", row.module, later.module);
        }
    }
}

/// What `source` at `file` is blamed for, as `line: what`.
fn blamed(file: &str, source: &str) -> Vec<String> {
    let dependencies = dependencies();
    violations(file, source, &dependencies).iter().map(|v| format!("{}: {}", v.line, v.what)).collect()
}

#[test]
fn an_import_outside_the_row_is_found_however_it_is_written() {
    let cases = [
        ("src/units.rs", "use crate::server;"),
        ("src/units.rs", "use crate::server::http::Answer;"),
        ("src/predict/tiling.rs", "use crate::{units::Bytes, store::Store};"),
        ("src/predict/tiling.rs", "use super::super::daemon;"),
        ("src/predict.rs", "use super::daemon::Loop as L;"),
        ("src/units.rs", "fn f() -> crate::server::Answer { g() }"),
        ("src/units.rs", "fn f() { crate::server::start(); }"),
        ("src/units.rs", "fn f() { let _: Vec<crate::server::Answer> = vec![]; }"),
        ("src/units.rs", "fn f() { assert_eq!(1, crate::server::PORT); }"),
        ("src/units.rs", "macro_rules! m { () => { $crate::server::start() } }"),
        ("src/units.rs", "impl crate::server::Serve for Bytes {}"),
        ("src/units.rs", "#[derive(Serialize)] struct S { #[serde(with = \"crate::server::wire\")] x: u8 }"),
        ("src/units.rs", "#[cfg(test)] mod tests { use crate::server::Answer; }"),
        ("src/units.rs", "mod inner { mod deeper { use super::super::super::server; } }"),
        ("src/client/mod.rs", "use crate::calibration::Sample;"),
        ("src/cli/demo.rs", "use crate::bench::cpu;"),
        ("src/server/http.rs", "use crate::daemon::Loop;"),
        ("src/hw/mod.rs", "use crate::predict::Prediction;"),
        ("src/bin/rooflinectl.rs", "fn main() { rooflined::server::main() }"),
        ("src/predict.rs", "use crate::fixtures::board;"),
        ("src/daemon/mod.rs", "fn f() { crate::fixtures::board(); }"),
        ("src/fixtures.rs", "use crate::hw::SysRoot;"),
        ("src/units.rs", "use crate::*;"),
        ("src/units.rs", "use crate as everything;"),
        ("src/units.rs", "use crate::Answer;"),
        ("src/novelty.rs", "fn f() {}"),
        ("src/units.rs", "#[path = \"server/http.rs\"] mod http;"),
    ];
    for (file, source) in cases {
        assert_eq!(blamed(file, source).len(), 1, "{file}: {source}: {:?}", blamed(file, source));
    }
}

#[test]
fn a_pure_module_reaches_for_nothing() {
    let cases = [
        "use std::fs;",
        "use std::{env, fmt};",
        "use std::time::{Duration, Instant};",
        "use std::time::*;",
        "use std as s;",
        "use std::time; fn f() { let _ = time::SystemTime::now(); }",
        "fn f() { use std::time; time::Instant::now(); }",
        "fn f() { std::thread::sleep(d()); }",
        "fn f() { core::net::Ipv4Addr::LOCALHOST; }",
        "fn f() { assert!(std::env::var(\"X\").is_ok()); }",
        "use std::sync::Mutex;",
        "use std::sync::{Arc, RwLock};",
        "use std::sync::*;",
        "use std::sync::atomic::AtomicU64;",
        "use std::process::Command;",
        "fn f() { let _ = std::io::stdout(); }",
        "use tracing::info;",
        "use rustix::fs::stat;",
        "fn f() { tracing::info!(\"x\"); }",
        "#[tokio::main] fn f() {}",
        "async fn f() {}",
        "fn f() { println!(\"x\"); }",
        "fn f(p: &Path) -> bool { p.exists() }",
        "static mut COUNT: u8 = 0;",
        "use fastrand::u8 as dice;",
        "#[cfg(not(test))] use std::fs;",
        "#[cfg(any(test, feature = \"x\"))] use std::fs;",
    ];
    for source in cases {
        assert_eq!(
            blamed("src/governor/mod.rs", source).len(),
            1,
            "{source}: {:?}",
            blamed("src/governor/mod.rs", source)
        );
        let elsewhere = blamed("src/daemon/mod.rs", source);
        assert!(elsewhere.is_empty(), "{source}: {elsewhere:?}");
    }
}

#[test]
fn unsafe_code_is_found_outside_bench_only() {
    let cases = [
        "fn f() { unsafe { g() } }",
        "unsafe fn f() {}",
        "unsafe impl Send for X {}",
        "unsafe trait T {}",
        "unsafe extern \"C\" { safe fn g(); }",
        "#[unsafe(no_mangle)] fn f() {}",
        "#[allow(unsafe_code)] fn f() {}",
        "macro_rules! m { () => { unsafe { g() } } }",
        "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }",
    ];
    for source in cases {
        assert_eq!(
            blamed("src/hw/mod.rs", source).len(),
            1,
            "{source}: {:?}",
            blamed("src/hw/mod.rs", source)
        );
        assert!(blamed("src/bench/cpu/x86.rs", source).is_empty(), "{source}");
    }
    assert!(
        blamed("src/lib.rs", "#[allow(unsafe_code)] pub mod bench; #[deny(unsafe_code)] pub mod hw;")
            .is_empty()
    );
    assert_eq!(blamed("src/lib.rs", "#[allow(unsafe_code)] pub mod hw;").len(), 1);
}

#[test]
fn what_the_rules_allow_is_not_blamed() {
    let cases = [
        ("src/lib.rs", "pub mod units; pub mod server;"),
        (
            "src/governor/mod.rs",
            "use crate::snapshot::Snapshot; use std::sync::Arc; use std::time::Duration;",
        ),
        (
            "src/governor/holds.rs",
            "use super::Governor; use std::collections::BTreeMap; use serde::Serialize;",
        ),
        (
            "src/governor/mod.rs",
            "#[cfg(test)] mod tests { use std::fs; use std::time::Instant; use super::*; }",
        ),
        ("src/governor/mod.rs", "#[cfg(all(test, unix))] mod tests { use std::fs; }"),
        ("src/governor/mod.rs", "//! Not `std::fs`.\nfn f(fs: u8) -> u8 { fs }"),
        ("src/governor/mod.rs", "mod clock { pub fn now() {} } fn f() { clock::now() }"),
        ("src/governor/mod.rs", "#[cfg(test)] mod tests { use crate::fixtures::board; }"),
        ("src/calibration/fit.rs", "use crate::predict::Prediction; use super::sample::Sample;"),
        ("src/daemon/mod.rs", "use crate::{bench, governor::Governor, hw, server, store};"),
        ("src/bin/rooflined.rs", "fn main() { rooflined::daemon::main() }"),
        ("src/units.rs", "pub(crate) fn f() {} pub(super) fn g() {}"),
        ("src/bench/peak.rs", "#[path = \"peak_aarch64.rs\"] mod aarch64;"),
    ];
    for (file, source) in cases {
        assert!(blamed(file, source).is_empty(), "{file}: {source}: {:?}", blamed(file, source));
    }
}

#[test]
fn a_file_that_only_tests_compile_may_be_impure() {
    let tests = test_modules("src/governor/mod.rs", "mod holds; #[cfg(test)] mod tests;");
    assert_eq!(tests, [["governor", "tests"]]);
    let source = "use std::fs; use crate::server::Answer;";
    let found = violations_in("src/governor/tests.rs", source, &dependencies(), &tests);
    assert_eq!(found.len(), 1, "the import table still holds: {found:?}");
}

#[test]
fn a_binary_of_thirty_lines_is_too_long() {
    let source = "\n".repeat(29) + "fn main() {}\n";
    assert_eq!(blamed("src/bin/rooflined.rs", &source).len(), 1);
    assert!(blamed("src/bin/rooflined.rs", &source[1..]).is_empty());
}

#[test]
fn a_violation_names_file_line_thing_and_rule() {
    let found = violations("src/units.rs", "//! Units.\n\nuse crate::server::Answer;\n", &dependencies());
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["src/units.rs:3: `units` uses `crate::server::Answer`\n    rule: `units` may import nothing"]
    );
}
