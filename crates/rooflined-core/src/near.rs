//! What was probably meant by a name that nothing has: the one place that suggests keys of hardware, models, formats,
//! engines, power modes, precisions, fields and routes.
//!
//! Separators and case say nothing (`orin nano`, `Q4-K-M`), nor do the owner and the ending that the hub of models adds
//! (`meta-llama/Llama-3.1-8B-Instruct`). A part of a key means every key that has it, most alike first; otherwise a name
//! is near when about a third of its letters are wrong, and where none is near nothing is suggested.

use std::fmt;

/// More than these say no more than a list of all does.
const MOST: usize = 3;
/// Letters of a name that are looked at: a hostile one costs no more than a long one.
const LONGEST: usize = 64;
/// Shorter parts of a key mean anything.
const SHORTEST_PART: usize = 3;
/// Shorter keys stand in many a name that means another: `fp6` in `fp64`.
const SHORTEST_WITHIN: usize = 6;
/// What a hub appends to the name of a model that has the same shapes.
const ENDINGS: [&str; 8] = ["gguf", "instruct", "chat", "base", "it", "hf", "awq", "gptq"];

/// The names that are near, at most three, the nearest first. Shown as `a, b or c`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near(Vec<String>);

impl Near {
    /// Those of `candidates` that `name` was probably meant to be.
    pub fn of<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        Self::with_usual(name, candidates, &[])
    }

    /// The same; of candidates that have `name` in them, those that people ask for most come first, in the order of `usual`.
    pub fn with_usual<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>, usual: &[&str]) -> Self {
        let name: String = name.chars().take(4 * LONGEST).collect::<String>().to_lowercase();
        // A path or an owner in front is none of a key; a key may hold a slash itself.
        let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let (whole, last) = (bare(&name), without_endings(&last));
        let mut found: Vec<(Likeness, &str)> = candidates
            .into_iter()
            .filter_map(|candidate| {
                let likeness =
                    [&whole, &last].into_iter().filter_map(|wanted| likeness(wanted, candidate)).min();
                likeness.or_else(|| has_words(&name, candidate)).map(|likeness| (likeness, candidate))
            })
            .collect();
        found.sort_by_key(|(likeness, candidate)| {
            let place = usual.iter().position(|asked| asked == candidate).filter(|_| likeness.has_name());
            (likeness.kind, place.unwrap_or(usual.len()), likeness.distance)
        });
        // What is another way to write the name leaves no doubt, and a part of a key is better than a likeness.
        // Of likenesses the greatest counts alone.
        if let Some((best, _)) = found.first().copied() {
            found.retain(|(likeness, _)| {
                likeness.kind == best.kind
                    && (matches!(best.kind, Kind::Part | Kind::Words) || *likeness == best)
            });
        }
        let mut near: Vec<String> = Vec::new();
        for (_, candidate) in found {
            if near.len() < MOST && !near.iter().any(|named| named == candidate) {
                near.push(candidate.to_owned());
            }
        }
        Self(near)
    }

    /// Nothing is near.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nearest.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// Each, the nearest first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The same names as written in a file: `` `a`, `b` or `c` `` with `quote` on both sides, behind `prefix`.
    #[must_use]
    pub fn written(&self, before: &str, after: &str) -> Self {
        Self(self.0.iter().map(|name| format!("{before}{name}{after}")).collect())
    }

    /// `did you mean a or b?`; where nothing is near, `OTHERWISE`.
    #[must_use]
    pub fn or(&self, otherwise: &str) -> String {
        if self.is_empty() { otherwise.to_owned() } else { self.hint("") }
    }

    /// `did you mean a or b? OTHERWISE`; where nothing is near, `OTHERWISE` alone.
    #[must_use]
    pub fn hint(&self, otherwise: &str) -> String {
        if self.is_empty() {
            return otherwise.to_owned();
        }
        let question = format!("did you mean {self}?");
        if otherwise.is_empty() { question } else { format!("{question} {otherwise}") }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_last() {
            None => Ok(()),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
        }
    }
}

/// How a candidate is like the name: the smaller the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Another way to write it.
    Same,
    /// The candidate stands in the name, or the name in the candidate.
    Part,
    /// Some letters are wrong.
    Misspelt,
    /// Every word stands in the candidate, in another order.
    Words,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    kind: Kind,
    distance: usize,
}

impl Likeness {
    /// Whether the candidate has the whole name in it.
    const fn has_name(self) -> bool {
        match self.kind {
            Kind::Part => self.distance < WITHIN * PLACE,
            Kind::Words => true,
            Kind::Same | Kind::Misspelt => false,
        }
    }
}

/// Where a part stands decides before any number of letters.
const PLACE: usize = 4 * LONGEST;
/// The place of a candidate within the name.
const WITHIN: usize = 2;

fn likeness(wanted: &str, candidate: &str) -> Option<Likeness> {
    let key = bare(&candidate.to_lowercase());
    let (length, longer) = (wanted.chars().count(), wanted.len().max(key.len()));
    if length == 0 || key.is_empty() {
        return None;
    }
    if *wanted == key {
        return Some(Likeness { kind: Kind::Same, distance: 0 });
    }
    let part = if key.starts_with(wanted) {
        Some(0)
    } else if key.contains(wanted) {
        Some(1)
    } else if key.len() >= SHORTEST_WITHIN && wanted.contains(&key) {
        Some(WITHIN)
    } else {
        None
    };
    if let Some(place) = part.filter(|_| length >= SHORTEST_PART) {
        // The shortest key around the name, the longest within it.
        let distance = place * PLACE + wanted.len().abs_diff(key.len());
        return Some(Likeness { kind: Kind::Part, distance });
    }
    let distance = strsim::osa_distance(wanted, &key);
    (distance <= longer.min(LONGEST).div_euclid(3).clamp(1, 4) && distance < length)
        .then_some(Likeness { kind: Kind::Misspelt, distance })
}

/// Every word of the name stands in the candidate, whatever their order: `orin-agx-64` in `jetson-agx-orin-64gb`.
fn has_words(name: &str, candidate: &str) -> Option<Likeness> {
    let key = candidate.to_lowercase();
    let words = || name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let has_several = words().filter(|word| word.len() > 1).nth(1).is_some();
    (has_several && words().all(|word| key.contains(word)))
        .then_some(Likeness { kind: Kind::Words, distance: key.len() })
}

/// Letters and digits alone.
fn bare(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).take(LONGEST).collect()
}

/// The same without what a hub appends: `llama-3.1-8b-instruct` is `llama318b`.
fn without_endings(name: &str) -> String {
    let mut words: Vec<&str> =
        name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    while words.len() > 1 && words.last().is_some_and(|word| ENDINGS.contains(word)) {
        words.pop();
    }
    words.concat().chars().take(LONGEST).collect()
}
