//! Files of one crate that import from each other in a circle.
//!
//! An arrow runs from a file to the file that defines what it names: through imports and qualified paths, in macros
//! too. A name that a module hands on (`pub use child::Name`) counts as the file's that defines it, and handing on is
//! no use. Tests may import as they like. A module is made of the files below it: that they use what it defines for
//! all of them is no arrow, whereas what it uses of them is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A path by its segments.
type Segments = Vec<String>;

/// The groups of files of the crate at `crate_dir`, by their paths in it, that reach each other by imports.
pub fn cycles(crate_dir: &Path) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for root in ["lib.rs", "main.rs", "src/lib.rs", "src/main.rs"] {
        let file = crate_dir.join(root);
        if file.is_file() {
            let mut tree = Modules::default();
            let folder = file.parent().unwrap_or(crate_dir).to_owned();
            tree.read(&file, &folder, Vec::new());
            found.extend(circles(&tree.arrows(crate_dir)));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// What a module defines, imports and names.
#[derive(Default)]
struct Module {
    file: PathBuf,
    defined: BTreeSet<String>,
    /// What imports call things, handed on or not.
    imported: BTreeMap<String, Segments>,
    /// Modules of which everything is imported.
    globs: Vec<Segments>,
    /// Paths that are named outside tests; those that are only handed on are left out.
    named: BTreeSet<Segments>,
}

/// The modules of a crate by their paths.
#[derive(Default)]
struct Modules(BTreeMap<Segments, Module>);

impl Modules {
    /// Reads the file of the module `path`, whose children lie in `folder`.
    fn read(&mut self, file: &Path, folder: &Path, path: Segments) {
        let source = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.take(&parsed.items, file, folder, path);
    }

    fn take(&mut self, items: &[syn::Item], file: &Path, folder: &Path, path: Segments) {
        let mut reader = Reader { module: Module { file: file.to_owned(), ..Module::default() } };
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            reader.module.defined.extend(name(item));
            match item {
                syn::Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let (inside, below) = (folder.join(&name), joined(&path, &name));
                    if let Some((_, items)) = &child.content {
                        self.take(items, file, &inside, below);
                    } else if let Some((file, inside)) = file_of(child, file, folder, &inside) {
                        self.read(&file, &inside, below);
                    }
                }
                item => reader.visit_item(item),
            }
        }
        self.0.insert(path, reader.module);
    }

    /// From each file to those whose items it names.
    fn arrows(&self, crate_dir: &Path) -> BTreeMap<String, BTreeSet<String>> {
        let shown = |path: &Path| path.strip_prefix(crate_dir).unwrap_or(path).display().to_string();
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, module) in &self.0 {
            let to = arrows.entry(shown(&module.file)).or_default();
            for named in &module.named {
                let Some(target) = self.defining(path, named, 0) else { continue };
                let file = &self.0[&target].file;
                // What a module defines for the files below it belongs to all of them.
                if *file != module.file && !path.starts_with(&target) {
                    to.insert(shown(file));
                }
            }
        }
        arrows
    }

    /// The module that defines what `named` means in `from`; `None` where it is another crate's, or a module itself.
    fn defining(&self, from: &[String], named: &[String], depth: usize) -> Option<Segments> {
        /// Names that are handed on more often are handed on in a circle.
        const DEEPEST: usize = 16;
        if depth > DEEPEST {
            return None;
        }
        let (first, rest) = named.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" | "$crate" => (Vec::new(), rest),
            "self" => (from.to_vec(), rest),
            "super" => (from.split_last()?.1.to_vec(), rest),
            _ => (from.to_vec(), named),
        };
        let absolute = at != from || rest.len() < named.len();
        while let Some((name, further)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
            } else if self.0.contains_key(&joined(&at, name)) {
                at.push(name.clone());
            } else {
                let module = self.0.get(&at)?;
                if module.defined.contains(name) {
                    return Some(at);
                }
                if let Some(imported) = module.imported.get(name) {
                    let whole: Segments = imported.iter().chain(further).cloned().collect();
                    // An import of a name of its own (`use serde::Serialize`) is another crate's.
                    return (whole != named || at != from).then(|| self.imported(&at, &whole, depth))?;
                }
                let through = module.globs.iter().find_map(|glob| {
                    let whole: Segments = glob.iter().chain(rest).cloned().collect();
                    (whole != named).then(|| self.imported(&at, &whole, depth))?
                });
                // What is not seen to be defined, by a macro for instance, is taken for the module's own.
                return through.or_else(|| absolute.then_some(at));
            }
            rest = further;
        }
        None
    }

    /// As `defining`, of a path in an import: a first segment that is no module here is a crate.
    fn imported(&self, from: &[String], path: &[String], depth: usize) -> Option<Segments> {
        let first = path.first()?;
        let local = matches!(first.as_str(), "crate" | "self" | "super")
            || self.0.contains_key(&joined(from, first))
            || self.0.get(from).is_some_and(|module| {
                module.defined.contains(first)
                    || module.imported.get(first).is_some_and(|other| other.first() != Some(first))
            });
        if local { self.defining(from, path, depth + 1) } else { None }
    }
}

/// Collects what a module imports and names.
struct Reader {
    module: Module,
}

impl Reader {
    fn import(&mut self, tree: &syn::UseTree, prefix: &[String], handed_on: bool) {
        let (name, path) = match tree {
            syn::UseTree::Path(path) => {
                return self.import(&path.tree, &joined(prefix, &path.ident.to_string()), handed_on);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.import(item, prefix, handed_on));
            }
            syn::UseTree::Glob(_) => {
                self.module.globs.push(prefix.to_vec());
                return;
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned().unwrap_or_default(), prefix.to_vec())
            }
            syn::UseTree::Name(name) => (name.ident.to_string(), joined(prefix, &name.ident.to_string())),
            syn::UseTree::Rename(rename) => {
                (rename.rename.to_string(), joined(prefix, &rename.ident.to_string()))
            }
        };
        if !handed_on {
            self.module.named.insert(path.clone());
        }
        if path.len() > 1 {
            self.module.imported.insert(name, path);
        }
    }

    fn tokens(&mut self, stream: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in stream {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Group(group) => {
                    self.name(std::mem::take(&mut path));
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.name(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.name(path);
    }

    /// A name alone is the module's own, or was imported.
    fn name(&mut self, path: Segments) {
        if path.len() > 1 {
            self.module.named.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let handed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], handed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        visit::visit_macro(self, item);
        self.tokens(item.tokens.clone());
    }
}

/// Every file that can be reached from `from`, itself only in a circle.
fn reached<'a>(arrows: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(
            arrows.get(at).into_iter().flatten().map(String::as_str).filter(|next| seen.insert(*next)),
        );
    }
    seen
}

/// The strongly connected files, where they are more than one.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reaches: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (file.as_str(), reached(arrows, file))).collect();
    let circles: BTreeSet<Vec<String>> = reaches
        .iter()
        .filter(|(file, all)| all.contains(*file))
        .map(|(file, all)| {
            let back = |other: &&&str| reaches.get(**other).is_some_and(|all| all.contains(file));
            all.iter().filter(back).map(|other| (*other).to_owned()).collect()
        })
        .collect();
    circles.into_iter().collect()
}

/// The file of a module without a body, and the folder of its children.
fn file_of(module: &syn::ItemMod, parent: &Path, folder: &Path, inside: &Path) -> Option<(PathBuf, PathBuf)> {
    let elsewhere = module.attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            path,
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }),
            ..
        }) if path.is_ident("path") => Some(file.value()),
        _ => None,
    });
    if let Some(elsewhere) = elsewhere {
        let file = parent.parent()?.join(elsewhere);
        let folder = file.parent()?.to_owned();
        return Some((file, folder));
    }
    let plain = folder.join(format!("{}.rs", module.ident));
    let file = if plain.is_file() { plain } else { inside.join("mod.rs") };
    file.is_file().then(|| (file, inside.to_owned()))
}

fn joined(prefix: &[String], last: &str) -> Segments {
    prefix.iter().cloned().chain([last.to_owned()]).collect()
}

/// True for `#[test]` and for what is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text == "test" || text.starts_with("all (test") || text.starts_with("all(test")
        }
        _ => false,
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// What an item is called in its module.
fn name(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate in a folder of its own, from its files and their sources.
    fn made_up(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, source) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, source).unwrap();
        }
        folder
    }

    #[test]
    fn a_cycle_is_found_and_a_name_handed_on_is_none() {
        let made_up = made_up(&[
            ("lib.rs", "mod above; mod below; mod parent; mod user; pub struct Shared;"),
            // A circle: an import one way, a path in a function the other.
            ("above.rs", "use super::below::Thing; pub const LIMIT: u8 = 1; fn f(_: Thing) {}"),
            ("below.rs", "pub struct Thing; fn f() { assert_eq!(crate::above::LIMIT, 1); }"),
            // None: the parent hands on what the child defines, and the child's neighbour takes it from the parent.
            ("parent.rs", "mod child; mod sibling; pub use child::Kept; pub struct Own;"),
            ("parent/child.rs", "use super::Own; use crate::Shared; pub struct Kept(Own, Shared);"),
            ("parent/sibling.rs", "use super::Kept; fn f(_: Kept) {}"),
            // None: only tests look back.
            (
                "user.rs",
                "use crate::parent::Kept; pub fn f(_: Kept) {} #[cfg(test)] mod tests { use crate::above; }",
            ),
        ]);
        assert_eq!(cycles(made_up.path()), [["above.rs", "below.rs"]]);
    }

    #[test]
    fn a_cycle_through_modules_in_scope_is_found() {
        let made_up = made_up(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use super::b; pub fn f() { b::f() }"),
            (
                "b.rs",
                "use crate::{a, c::{self, G}}; pub fn f() { c::f(G) } pub type T = u8; fn g() { let _ = a::f; }",
            ),
            ("c.rs", "pub struct G; pub fn f(_: G) {}"),
        ]);
        assert_eq!(cycles(made_up.path()), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_module_and_the_files_that_it_is_made_of_are_no_cycle() {
        let made_up = made_up(&[
            ("lib.rs", "mod parent;"),
            ("parent.rs", "mod child; use child::Part; pub struct Whole(Part);"),
            ("parent/child.rs", "use super::Whole; pub struct Part; pub fn f(_: &Whole) {}"),
        ]);
        assert!(cycles(made_up.path()).is_empty());
    }
}
