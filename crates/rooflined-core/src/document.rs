//! TOML files that people write: read key by key, so that every mistake is reported at once, each with its line.

use std::fmt;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error as ReadError};

/// Most mistakes looked for in one entry of a table.
const MOST_NESTED: usize = 64;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; `None` for something that is missing from the whole file.
    pub line: Option<usize>,
    /// The key, as `table.key`; `None` where the text is invalid TOML.
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

/// Every mistake in a file, from the top down; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct DocumentError {
    pub problems: Vec<Problem>,
}

/// A file that is TOML, and the mistakes found in it so far.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    problems: Vec<Problem>,
}

impl<'t> Document<'t> {
    /// # Errors
    /// The text is invalid TOML.
    pub fn parse(text: &'t str) -> Result<Self, DocumentError> {
        match DeTable::parse(text) {
            Ok(root) => Ok(Self { text, root, problems: Vec::new() }),
            Err(error) => {
                let line = Some(line(text, error.span().map_or(0, |span| span.start)));
                let message = format!(
                    "invalid TOML: {}; write [TABLE] or KEY = VALUE, with text in quotes and true or false in small letters",
                    error.message()
                );
                Err(DocumentError { problems: vec![Problem { line, key: None, message }] })
            }
        }
    }

    #[must_use]
    pub fn root(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    /// `value`, or every mistake from the top down.
    ///
    /// # Errors
    /// Something was reported.
    pub fn finish<T>(mut self, value: T) -> Result<T, DocumentError> {
        self.problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        if self.problems.is_empty() { Ok(value) } else { Err(DocumentError { problems: self.problems }) }
    }

    /// Reports a mistake in the value at `path`, such as `modes[2].sm_online`, at the line of what is around it where there
    /// is no such value.
    pub fn report(&mut self, path: &str, message: String) {
        let around = path.match_indices(['.', '[']).map(|(end, _)| &path[..end]);
        let nearest = std::iter::once(path).chain(around.rev()).find_map(|path| self.find(path));
        self.report_at(nearest.map(|value| value.span().start), path, message);
    }

    /// Reports a mistake at a place of the text; of several at one key only the first.
    pub fn report_at(&mut self, offset: Option<usize>, path: &str, message: String) {
        if self.problems.iter().any(|problem| problem.key.as_deref() == Some(path)) {
            return;
        }
        let line = offset.map(|offset| line(self.text, offset));
        self.problems.push(Problem { line, key: Some(path.to_owned()), message });
    }

    /// Reports that the value at `path` is not what was expected.
    pub fn expected(&mut self, path: &str, expected: &str) {
        let found = self.find(path).map_or_else(|| "missing".to_owned(), |value| self.found(value));
        self.report(path, format!("`{path}` is {found}, expected {expected}"));
    }

    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    fn find(&self, path: &str) -> Option<&Spanned<DeValue<'t>>> {
        let mut parts = path.split(['.', '[']).map(|part| part.trim_end_matches(']'));
        let first = self.root().get(parts.next()?)?;
        parts.try_fold(first, |value, part| match value.get_ref() {
            DeValue::Table(table) => table.get(part),
            DeValue::Array(list) => list.get(part.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The value as written, or its type where that is long.
    fn found(&self, value: &Spanned<DeValue<'t>>) -> String {
        let written = self.text.get(value.span()).unwrap_or("").trim();
        let long = written.is_empty() || written.chars().count() > 60 || written.contains('\n');
        if value.get_ref().is_table() || long {
            format!("a {}", value.get_ref().type_str())
        } else {
            written.to_owned()
        }
    }

    /// Those entries of `table` from which a `T` can be read, each by itself and without the keys inside it that cannot be;
    /// everything else is reported. `path` is the table's own, and `unknown` the message for a key that does not exist.
    pub fn readable<T: Deserialize<'t>>(
        &mut self,
        path: Option<&str>,
        table: &DeTable<'t>,
        unknown: impl Fn(&str) -> Option<String>,
    ) -> DeTable<'t> {
        let mut readable = DeTable::new();
        for (key, value) in table {
            let name: String = key.get_ref().chars().take(40).collect();
            let full = path.map_or_else(|| name.clone(), |path| format!("{path}.{name}"));
            if let Some(message) = unknown(key.get_ref()) {
                self.report_at(Some(key.span().start), &full, message);
                continue;
            }
            let read_alone = |value: &Spanned<DeValue<'t>>| {
                let mut single = DeTable::new();
                single.insert(key.clone(), value.clone());
                read::<T>(path.map_or_else(|| single.clone(), |path| nested(path, single.clone()))).map(drop)
            };
            if let Some(rest) = self.readable_part(&full, value, read_alone) {
                readable.insert(key.clone(), rest);
            }
        }
        readable
    }

    /// `value` without the keys inside it that cannot be read; `None` where it takes more than that. Each mistake is
    /// reported, and the key with it is taken away to find the next.
    fn readable_part(
        &mut self,
        full: &str,
        value: &Spanned<DeValue<'t>>,
        read: impl Fn(&Spanned<DeValue<'t>>) -> Result<(), ReadError>,
    ) -> Option<Spanned<DeValue<'t>>> {
        let (mut rest, mut only_keys) = (value.clone(), true);
        for _ in 0..MOST_NESTED {
            let Err(error) = read(&rest) else { return only_keys.then_some(rest) };
            let offset = error.span().map_or(value.span().start, |span| span.start);
            let path = steps_to(value, offset).iter().fold(full.to_owned(), |path, step| step.after(&path));
            let what = if value.get_ref().is_table() || value.get_ref().is_array() {
                format!("`{path}`")
            } else {
                format!("`{path}` is {}", self.found(value))
            };
            let message = match expected(error.message()) {
                Some(expected) => format!("{what}, expected {expected}"),
                None => format!("{what}: {}", error.message()),
            };
            self.report_at(Some(offset), &path, message);
            let steps = steps_to(&rest, offset);
            only_keys &= remove(&mut rest, &steps)?;
        }
        None
    }
}

/// What the reader of a type expected, as a sentence; `None` for any other sentence.
fn expected(message: &str) -> Option<String> {
    const KINDS: [&str; 4] = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant "];
    KINDS.iter().find(|kind| message.starts_with(**kind))?;
    let (_, expected) = message.rsplit_once("expected ")?;
    Some(match expected {
        "a string" => "text in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list in [ ]".to_owned(),
        "a map" => "a table".to_owned(),
        number if number.len() <= 4 && number.starts_with('f') => "a number".to_owned(),
        "u8" | "u16" | "u32" => format!("a whole number from 0 to {}", most(expected)),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i32" | "i64" => "a whole number".to_owned(),
        table if table.starts_with("struct ") => "a table".to_owned(),
        names => names.replace('`', ""),
    })
}

/// The largest number of an unsigned type.
fn most(name: &str) -> u32 {
    match name {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        _ => u32::MAX,
    }
}

/// A step from a value into it.
#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn after(&self, path: &str) -> String {
        match self {
            Self::Key(key) => format!("{path}.{}", key.chars().take(40).collect::<String>()),
            Self::Index(index) => format!("{path}[{index}]"),
        }
    }
}

/// The steps to the innermost value that is written at `offset`, or whose key is.
fn steps_to(value: &Spanned<DeValue<'_>>, offset: usize) -> Vec<Step> {
    fn find(value: &Spanned<DeValue<'_>>, offset: usize) -> Option<Vec<Step>> {
        let step = |step: Step, inner: Vec<Step>| std::iter::once(step).chain(inner).collect();
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.iter().find_map(|(key, value)| {
                let at_key = || key.span().contains(&offset).then(Vec::new);
                Some(step(Step::Key(key.get_ref().to_string()), find(value, offset).or_else(at_key)?))
            }),
            DeValue::Array(list) => list
                .iter()
                .enumerate()
                .find_map(|(index, value)| Some(step(Step::Index(index), find(value, offset)?))),
            _ => None,
        };
        inner.or_else(|| value.span().contains(&offset).then(Vec::new))
    }
    find(value, offset).unwrap_or_default()
}

/// Takes away what is at the end of `steps`: whether that was a key, so that everything else stays where it is. `None` where
/// there is no step.
fn remove(value: &mut Spanned<DeValue<'_>>, steps: &[Step]) -> Option<bool> {
    let (last, before) = steps.split_last()?;
    let around = before.iter().try_fold(value, |value, step| match (value.get_mut(), step) {
        (DeValue::Table(table), Step::Key(key)) => table.get_mut(key.as_str()),
        (DeValue::Array(list), Step::Index(index)) => list.get_mut(*index),
        _ => None,
    })?;
    match (around.get_mut(), last) {
        (DeValue::Table(table), Step::Key(key)) => table.remove(key.as_str()).map(|_| true),
        (DeValue::Array(list), Step::Index(index)) if *index < list.len() => {
            let mut others = DeArray::new();
            for (_, item) in list.iter().enumerate().filter(|(place, _)| place != index) {
                others.push(item.clone());
            }
            *list = others;
            Some(false)
        }
        _ => None,
    }
}

/// A table with `table` as its only entry.
#[must_use]
pub fn nested<'t>(name: &str, table: DeTable<'t>) -> DeTable<'t> {
    let mut outer = DeTable::new();
    outer.insert(Spanned::new(0..0, name.to_owned().into()), Spanned::new(0..0, DeValue::Table(table)));
    outer
}

/// # Errors
/// The first thing that does not fit a `T`.
pub fn read<'t, T: Deserialize<'t>>(table: DeTable<'t>) -> Result<T, ReadError> {
    T::deserialize(Deserializer::from(Spanned::new(0..0, table)))
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
