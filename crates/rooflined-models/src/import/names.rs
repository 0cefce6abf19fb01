//! Lists of modules as quantisation tools write them.
//!
//! An entry is a module's name, a part of one (`self_attn`), a name with `*`, or a regular expression after `re:`. Of
//! expressions a part is understood that covers what tools write: anchors, `.*`, `\.`, `\d+`, `[0-9]+` and
//! alternatives in parentheses. Whole names are looked up, so lists of a hundred thousand cost no more than short ones.

use std::collections::HashSet;

/// Most alternatives that an expression may spell out.
const MAX_ALTERNATIVES: usize = 256;
/// Most patterns with a wildcard; tools write tens.
const MAX_PATTERNS: usize = 4096;
/// Longest expression or pattern in bytes.
const MAX_LENGTH: usize = 512;

/// Modules by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Names without a wildcard.
    whole: HashSet<String>,
    /// Names with `*`, from dot to dot.
    patterns: Vec<String>,
    /// Expressions that are not understood.
    unknown: Vec<String>,
}

impl Names {
    /// The modules of a list.
    pub fn new(entries: impl IntoIterator<Item = String>) -> Self {
        let mut names = Self::default();
        for entry in entries {
            let spelled = match entry.strip_prefix("re:") {
                Some(expression) => spell_out(expression),
                None => Some(vec![entry.clone()]),
            };
            let Some(spelled) = spelled.filter(|found| names.patterns.len() + found.len() <= MAX_PATTERNS)
            else {
                names.unknown.push(entry);
                continue;
            };
            for name in spelled {
                // Some tools name the tensor instead of its module.
                let name = bare(name.strip_suffix(".weight").unwrap_or(&name));
                if name.contains('*') {
                    names.patterns.push(format!("*.{name}.*").replace("*.*", "*").replace("*.*", "*"));
                } else {
                    names.whole.insert(name.trim_matches('.').to_owned());
                }
            }
        }
        names
    }

    /// Entries that are understood.
    #[must_use]
    pub fn count(&self) -> usize {
        self.whole.len() + self.patterns.len()
    }

    /// Entries with a wildcard, each of which is compared with every module.
    #[must_use]
    pub fn wildcards(&self) -> usize {
        self.patterns.len()
    }

    /// Expressions that are not understood.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// Whether the module or a part of its path is in the list. Whole parts only: `layers.1` does not mean layer 10.
    #[must_use]
    pub fn covers(&self, module: &str) -> bool {
        let module = bare(module);
        let ends = || module.match_indices('.').map(|(at, _)| at).chain([module.len()]);
        let starts = || [0].into_iter().chain(module.match_indices('.').map(|(at, _)| at + 1));
        let is_whole = !self.whole.is_empty()
            && starts().any(|start| {
                ends().filter(|end| *end > start).any(|end| self.whole.contains(&module[start..end]))
            });
        is_whole || {
            let name = format!(".{module}.");
            self.patterns.iter().any(|pattern| matches(pattern, &name))
        }
    }
}

/// A name without the wrappers that put the same layers under different first names.
fn bare(name: &str) -> String {
    name.replace("language_model.", "").replace("model.", "").replace("backbone.", "")
}

/// Names with `*` that an expression stands for; `None` where it is not understood.
fn spell_out(expression: &str) -> Option<Vec<String>> {
    if expression.len() > MAX_LENGTH {
        return None;
    }
    let mut found = vec![expression.trim_start_matches('^').trim_end_matches('$').to_owned()];
    while let Some(open) = found.first().and_then(|name| name.rfind('(')) {
        let mut longer = Vec::new();
        for name in &found {
            let open = name.get(open..)?.starts_with('(').then_some(open)?;
            let close = open + name[open..].find(')')?;
            let inner = name[open + 1..close].trim_start_matches("?:");
            for choice in inner.split('|') {
                longer.push(format!("{}{choice}{}", &name[..open], &name[close + 1..]));
            }
        }
        if longer.len() > MAX_ALTERNATIVES {
            return None;
        }
        // The last group goes first, so what stands before it is the same in every choice.
        found = longer;
    }
    // A dot that is meant as one must not become part of a wildcard.
    const DOT: &str = "\u{1}";
    let wild = ["[0-9]+", "\\d+", "[^.]+", "\\w+", ".*", ".+", "[0-9]*", "\\d*", "\\d"];
    let plain = |name: &String| {
        let dotted = name.replace("\\.", DOT);
        let name = wild.iter().fold(dotted, |name, wild| name.replace(wild, "*")).replace(DOT, ".");
        (!name.contains(['(', ')', '[', ']', '{', '}', '+', '?', '|', '\\', '^', '$'])).then_some(name)
    };
    found.iter().map(plain).collect()
}

/// Whether a pattern with `*` matches a whole name, in time proportional to the product of their lengths at worst.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, n));
            p += 1;
        } else if pattern.get(p) == name.get(n) {
            p += 1;
            n += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            p = after;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(entry: &str, module: &str) -> bool {
        Names::new([entry.to_owned()]).covers(module)
    }

    #[test]
    fn names_parts_wildcards_and_expressions_are_understood() {
        let module = "model.layers.10.self_attn.q_proj";
        for entry in [
            "model.layers.10.self_attn.q_proj",
            "language_model.model.layers.10",
            "self_attn",
            "q_proj",
            "layers.*.self_attn",
            "model.layers.*.self_attn*",
            "*q_proj",
            "re:.*self_attn.*",
            "re:.*q_proj$",
            "re:^model\\.layers\\.\\d+\\.self_attn\\.(q|k|v)_proj$",
            "re:model.layers.[0-9]+.(mlp|self_attn).(q_proj|o_proj)",
            "re:.*(?:q|k)_proj",
        ] {
            assert!(covers(entry, module), "{entry}");
        }
        for entry in [
            "layers.1",
            "model.layers.1.self_attn",
            "attn",
            "k_proj",
            "re:.*(k|v)_proj",
            "re:.*mlp.*",
            "lm_head",
            "",
        ] {
            assert!(!covers(entry, module), "{entry}");
        }
    }

    #[test]
    fn what_is_not_understood_covers_nothing_and_is_told() {
        for entry in ["re:a{3}", "re:[a-z]x", "re:(a", "re:a)b(", "re:((((((((((", "re:x|y"] {
            let names = Names::new([entry.to_owned()]);
            assert_eq!(names.unknown().collect::<Vec<_>>(), [entry]);
            assert!(!names.covers("x") && !names.covers("aaa"));
        }
        let bomb = format!("re:{}", "(a|b)".repeat(30));
        assert_eq!(Names::new([bomb]).unknown().count(), 1);
        let long = format!("re:{}", "(".repeat(100_000));
        assert_eq!(Names::new([long]).unknown().count(), 1);
    }

    #[test]
    fn long_lists_are_looked_up() {
        let entries = (0..100_000).map(|index| format!("model.layers.{index}.mlp.experts.7.up_proj"));
        let names = Names::new(entries);
        for index in 0..1000 {
            assert!(names.covers(&format!("model.layers.{index}.mlp.experts.7.up_proj")));
            assert!(!names.covers(&format!("model.layers.{index}.mlp.experts.70.up_proj")));
        }
    }
}
