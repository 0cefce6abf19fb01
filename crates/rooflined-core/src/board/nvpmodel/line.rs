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
    /// It begins with `<`.
    pub opened: bool,
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

/// The words that begin a section.
const SECTIONS: [&str; 4] = ["PARAM", "POWER_MODEL", "PM_CONFIG", "FAN_CONFIG"];

/// The lines of which one was made where line breaks were lost: a header behind anything else, and what belongs below a
/// header behind it. Together they are the text.
pub(super) fn pieces(text: &str) -> Vec<&str> {
    if text.len() > LONGEST_LINE {
        return vec![text];
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = first_break(rest) {
        let (piece, after) = rest.split_at(at);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Where the first line that a text begins with ends, if another follows.
fn first_break(text: &str) -> Option<usize> {
    let start = text.len() - text.trim_start().len();
    let inner = &text[start..];
    let end = comment(inner).unwrap_or(inner.len());
    let header =
        inner[..end].match_indices('<').map(|(at, _)| at).find(|at| *at > 0 && is_section(&inner[*at..]));
    let line = &inner[..header.unwrap_or(end)];
    let behind =
        is_section(line).then(|| line.match_indices('>').find(|(at, _)| is_value(line, &line[at + 1..])));
    behind.flatten().map(|(at, _)| start + at + 1).or_else(|| Some(start + header?))
}

/// Where a comment begins. A name may contain the sign, so in a header only one behind the `>` counts.
fn comment(line: &str) -> Option<usize> {
    let is_header = line.starts_with('<');
    let begins = |at: usize| {
        let before = &line[..at];
        before.trim_end().ends_with('>') || (!is_header && !before.ends_with(|c: char| !c.is_whitespace()))
    };
    line.match_indices('#').map(|(at, _)| at).find(|at| begins(*at))
}

/// Whether a header of a known section begins here.
fn is_section(text: &str) -> bool {
    let word = text.strip_prefix('<').and_then(|text| text.split_whitespace().next());
    word.is_some_and(|word| SECTIONS.contains(&word))
}

/// Whether what stands behind a `>` of `header` is what belongs below it, and no part of a name.
fn is_value(header: &str, text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    match (header.trim_start_matches('<').split_whitespace().next(), words.as_slice()) {
        _ if text.trim_end().ends_with('>') => false,
        (Some("PARAM"), [_, path, ..]) => path.starts_with('/'),
        (Some("POWER_MODEL"), words) => words.len() >= 3,
        _ => false,
    }
}

pub(super) fn read(text: &str) -> Line<'_> {
    // Blocks of NUL are what an interrupted write leaves behind.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    // A lone > closes a header that was warned about already.
    if text.is_empty() || text.starts_with('#') || text == ">" {
        return Line::Empty;
    }
    if text.len() > LONGEST_LINE {
        return Line::TooLong;
    }
    if let Some(inner) = text.strip_prefix('<') {
        return header(inner);
    }
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Line::Damaged(format!("{} is not text; the line is left out", quoted(text)));
    }
    let words: Vec<&str> = text.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
    match words.as_slice() {
        // Taken for a value it would put the lines below it under the section above it.
        [first, second, ..] if SECTIONS.contains(first) && key_of(second).is_some() => match header(text) {
            Line::Header(header) => Line::Header(Header { opened: false, ..header }),
            other => other,
        },
        _ => Line::Words(words),
    }
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
    Line::Header(Header { keyword, opened: true, closed, attributes: attributes(rest) })
}

/// `KEY=value` pairs; a value reaches up to the next key, so it may contain spaces.
fn attributes(text: &str) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, usize, usize)> = Vec::new();
    let mut offset = 0;
    for part in text.split_inclusive(char::is_whitespace) {
        if let Some(key) = key_of(part) {
            if let Some((_, _, end)) = found.last_mut() {
                *end = offset;
            }
            found.push((key, offset + key.len() + 1, text.len()));
        }
        offset += part.len();
    }
    found.into_iter().map(|(key, start, end)| (key, text[start..end].trim())).collect()
}

/// The key of `KEY=value`.
fn key_of(word: &str) -> Option<&str> {
    word.split_once('=').map(|(key, _)| key).filter(|key| KEYS.contains(key))
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
