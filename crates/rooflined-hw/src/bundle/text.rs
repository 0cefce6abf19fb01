//! The text form of a tree.

use std::fmt::Write;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    File(String),
    Link(String),
    Dir,
    /// Reading it did not end in time.
    Fifo,
    Unreadable,
    /// Reading it failed with this error.
    Failing(String),
}

impl Node {
    /// Bytes of its content.
    pub fn size(&self) -> usize {
        match self {
            Self::File(text) | Self::Link(text) | Self::Failing(text) => text.len(),
            Self::Dir | Self::Fifo | Self::Unreadable => 0,
        }
    }
}

/// A comment, on one line.
pub(super) fn comment(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {line}\n")
}

/// Whether the form can hold a path: braces stand for ranges, and a space ends it.
pub(super) fn is_writable(path: &str) -> bool {
    path.starts_with('/')
        && !path.chars().any(|c| c.is_whitespace() || c.is_control() || c == '{' || c == '\u{fffd}')
}

pub(super) fn entry(out: &mut String, path: &str, node: &Node) {
    // Writing to a String does not fail.
    let _ = match node {
        Node::File(text) => file(out, path, text),
        Node::Link(target) => writeln!(out, "== {path} link == {target}"),
        Node::Dir => writeln!(out, "== {path} dir =="),
        Node::Fifo => writeln!(out, "== {path} fifo =="),
        Node::Unreadable => writeln!(out, "== {path} unreadable =="),
        Node::Failing(error) => writeln!(out, "== {path} failing == {error}"),
    };
}

fn file(out: &mut String, path: &str, text: &str) -> std::fmt::Result {
    // `{n}` would be taken for the number of a range.
    let is_plain = !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') && !text.contains("{n}");
    match text.strip_suffix('\n').filter(|_| is_plain) {
        Some(line) if !line.is_empty() && !line.contains('\n') => writeln!(out, "== {path} == {line}"),
        Some(lines) if !lines.split('\n').any(|line| line.starts_with("== ")) => {
            writeln!(out, "== {path} ==\n{lines}")
        }
        _ => writeln!(out, "== {path} raw == {}", escaped(text)),
    }
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        // A space at the end of a line does not survive every mail program, and one at its start not the reader.
        match c {
            '\\' => out.push_str("\\\\"),
            ' ' | '{' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                for byte in c.to_string().bytes() {
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
            c => out.push(c),
        }
        out
    })
}
