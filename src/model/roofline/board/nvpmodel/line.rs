//! One line of a file of modes.

use super::LONGEST_LINE;

#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// Blank, or a comment.
    Empty,
    /// Longer than any line that means something.
    TooLong,
    /// `< KEYWORD KEY=value … >`
    Header(Header<'a>),
    /// Anything else, without its comment.
    Words(Vec<&'a str>),
    /// Nothing that can be read, and why.
    Damaged(String),
}

/// The line that begins a section.
#[derive(Debug, PartialEq)]
pub(super) struct Header<'a> {
    /// The first word.
    pub keyword: &'a str,
    /// It ends with `>`.
    pub closed: bool,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Header<'a> {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// The keys that begin an attribute; anything else belongs to the value before it, because names are free text.
const KEYS: [&str; 4] = ["TYPE", "NAME", "ID", "DEFAULT"];

pub(super) fn read(text: &str) -> Line<'_> {
    // Blocks of NUL are what an interrupted write leaves behind.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() || text.starts_with('#') {
        return Line::Empty;
    }
    if text.len() > LONGEST_LINE {
        return Line::TooLong;
    }
    if let Some(inner) = text.strip_prefix('<') {
        return header(inner);
    }
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Line::Damaged(format!("{} is no text; the line is left out", quoted(text)));
    }
    Line::Words(text.split_whitespace().take_while(|word| !word.starts_with('#')).collect())
}

fn header(inner: &str) -> Line<'_> {
    // A comment may follow the header, and a name may contain a >.
    let inner = match inner.rfind('#') {
        Some(comment) if inner[..comment].trim_end().ends_with('>') => inner[..comment].trim_end(),
        _ => inner,
    };
    let (inner, closed) = inner.strip_suffix('>').map_or((inner, false), |inner| (inner, true));
    let inner = inner.trim();
    let (keyword, rest) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
    Line::Header(Header { keyword, closed, attributes: attributes(rest) })
}

/// `KEY=value` pairs; a value reaches up to the next key, so it may contain spaces.
fn attributes(text: &str) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, usize, usize)> = Vec::new();
    let mut offset = 0;
    for part in text.split_inclusive(char::is_whitespace) {
        let key = part.split_once('=').map(|(key, _)| key).filter(|key| KEYS.contains(key));
        if let Some(key) = key {
            if let Some((_, _, end)) = found.last_mut() {
                *end = offset;
            }
            found.push((key, offset + key.len() + 1, text.len()));
        }
        offset += part.len();
    }
    found.into_iter().map(|(key, start, end)| (key, text[start..end].trim())).collect()
}

/// One word of printable text: what a parameter may be called.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// What was found, for a message: quoted, short, and harmless on a terminal.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let short: String = text.chars().take(MOST).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    // Names are quoted only where they would be taken for something else.
    if more.is_empty() && is_word(&short) && short.is_ascii() { short } else { format!("{short:?}{more}") }
}
