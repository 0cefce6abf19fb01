//! PTX text to words and marks.

use crate::ParseError;

/// A piece of PTX text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name, number, directive or opcode: `%r1`, `0f3F800000`, `.reg`, `ld.global.v4.u32`.
    Word(&'a str),
    /// Any other character.
    Mark(char),
}

/// A token and its line, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub token: Token<'a>,
    pub line: usize,
    /// Its bytes in the text, so that an instruction can be quoted.
    pub from: usize,
    pub to: usize,
}

fn in_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// All tokens of the text, without comments and `.loc`/`.file` lines.
pub(crate) fn tokens(text: &str) -> Result<Vec<Placed<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut found = Vec::new();
    while at < bytes.len() {
        let from = at;
        let rest = &bytes[at..];
        if rest[0] == b'\n' {
            line += 1;
            at += 1;
        } else if rest[0].is_ascii_whitespace() || rest[0] == 0 {
            at += 1;
        } else if rest.starts_with(b"//") || starts_line_directive(rest) {
            at += rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            let length = text[at..].find("*/").ok_or_else(|| error(line, "a comment without its end"))? + 2;
            line += rest[..length].iter().filter(|&&c| c == b'\n').count();
            at += length;
        } else if rest[0] == b'"' {
            let length = rest[1..]
                .iter()
                .position(|&c| c == b'"')
                .ok_or_else(|| error(line, "a string without its end"))?
                + 2;
            at += length;
            found.push(Placed { token: Token::Word(&text[from..at]), line, from, to: at });
        } else if in_word(rest[0]) {
            at += word_length(rest);
            found.push(Placed { token: Token::Word(&text[from..at]), line, from, to: at });
        } else if rest[0].is_ascii() {
            at += 1;
            found.push(Placed { token: Token::Mark(char::from(rest[0])), line, from, to: at });
        } else {
            return Err(error(line, "a character that is not ASCII"));
        }
    }
    Ok(found)
}

fn starts_line_directive(rest: &[u8]) -> bool {
    [&b".loc"[..], b".file"].iter().any(|word| {
        rest.strip_prefix(*word).is_some_and(|after| after.first().is_some_and(u8::is_ascii_whitespace))
    })
}

/// The word's bytes; `::` belongs to it where a letter follows (`shared::cta`), a label's `:` does not.
fn word_length(rest: &[u8]) -> usize {
    let mut length = 0;
    while let Some(&c) = rest.get(length) {
        if in_word(c) {
            length += 1;
        } else if rest[length..].starts_with(b"::")
            && rest.get(length + 2).is_some_and(u8::is_ascii_alphanumeric)
        {
            length += 2;
        } else {
            break;
        }
    }
    length
}

fn error(line: usize, what: &str) -> ParseError {
    ParseError { line, what: what.to_owned() }
}
