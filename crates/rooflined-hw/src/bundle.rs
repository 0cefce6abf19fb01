//! A board's tree as one text file, which tests/boards replays: the bug report is the next fixture.
//!
//! ```text
//! # a comment, before the first file
//! == /sys/path == one line of content
//! == /proc/path ==
//! lines of content, up to the next file
//! == /sys/path raw == bytes with \xNN and \\ and no newline at the end
//! == /sys/path dir ==
//! == /sys/path link == target
//! == /sys/path fifo ==                     a FIFO, or a read that did not end
//! == /sys/path unreadable ==
//! == /sys/path failing == os error 11      a read that the kernel refused
//! ```
//!
//! What is captured is listed in `bundle/files.txt`: what tells of clocks, power,
//! temperatures and modes, and nothing that tells of persons. Serial numbers, MAC addresses, UUIDs, the host's name
//! and its machine id are replaced (`scrub`). Files, bytes and time are bounded, and a file that hangs costs its batch
//! two seconds.

mod scrub;
mod sources;
mod text;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::file::{OpenFile, ReadError};
use super::timed_reader::TimedReader;
use super::{SysRoot, excerpt};
use rooflined_core::board::{nvpmodel, parse};
pub use scrub::Scrub;
pub use sources::swap_area;
use text::Node;

/// Most files captured; a server with 256 CPUs has about 6000 that count.
const MOST_FILES: usize = 16_384;
const MOST_BYTES: usize = 8 << 20;
const LARGEST_FILE: usize = 256 << 10;
const BATCH: usize = 256;
/// How long one batch is waited for.
const BATCH_LIMIT: Duration = Duration::from_secs(2);
/// After this long no more batches are begun.
const TIME_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Bundle {
    pub text: String,
    pub files: usize,
    /// What was left out, as a sentence.
    pub notes: Vec<String>,
}

/// Captures the tree under `root`. `heading` becomes its first comment. `answers` are what sources that are no files
/// say, by the path that stands for them in a tree: `/rooflined/nvml/0/name` and so on.
#[must_use]
pub fn capture(root: &SysRoot, answers: &BTreeMap<String, String>, heading: &str) -> Bundle {
    let mut capture = Capture::new(root);
    capture.links();
    capture.read(sources::files(root));
    let named = capture.named_by_modes();
    capture.read(named);
    for (path, answer) in answers {
        capture.keep(path.clone(), Node::File(sources::part_of(path, answer.clone())));
    }
    for dir in sources::dirs(root) {
        let inside = format!("{dir}/");
        if capture.nodes.range(inside.clone()..).next().is_none_or(|(path, _)| !path.starts_with(&inside)) {
            capture.keep(dir, Node::Dir);
        }
    }
    capture.finish(heading)
}

struct Capture<'a> {
    root: &'a SysRoot,
    scrub: Scrub,
    start: Instant,
    nodes: BTreeMap<String, Node>,
    bytes: usize,
    asked: BTreeSet<String>,
    notes: Vec<String>,
    /// Files that did not fit, were not asked in time, or whose path cannot be written.
    left_out: BTreeMap<&'static str, usize>,
}

impl<'a> Capture<'a> {
    fn new(root: &'a SysRoot) -> Self {
        Self {
            root,
            scrub: Scrub::of(root),
            start: Instant::now(),
            nodes: BTreeMap::new(),
            bytes: 0,
            asked: BTreeSet::new(),
            notes: Vec::new(),
            left_out: BTreeMap::new(),
        }
    }

    fn keep(&mut self, path: String, node: Node) {
        let size = node.size() + path.len();
        let why = if !text::is_writable(&path) || self.scrub.apply("", &path) != path {
            "with a path that cannot be written"
        } else if self.nodes.len() >= MOST_FILES || self.bytes + size > MOST_BYTES {
            "beyond the limit on files and bytes"
        } else {
            self.bytes += size;
            self.nodes.insert(path, node);
            return;
        };
        *self.left_out.entry(why).or_default() += 1;
    }

    /// The symbolic links that say which of several files counts.
    fn links(&mut self) {
        for link in sources::LINKS {
            if let Ok(target) = std::fs::read_link(self.root.path(link)) {
                let target = target.to_string_lossy().into_owned();
                self.keep((*link).to_owned(), Node::Link(target));
            }
        }
    }

    /// Reads files that are not in it yet.
    fn read(&mut self, paths: impl IntoIterator<Item = String>) {
        // A link is kept as one, and what it leads to under its own name.
        let links: BTreeSet<&str> = sources::LINKS.iter().copied().collect();
        let is_link = |path: &str| links.contains(path) && self.nodes.contains_key(path);
        let fresh: Vec<String> = paths
            .into_iter()
            .filter(|path| !is_link(path))
            .filter(|path| self.asked.insert(path.clone()))
            .collect();
        for batch in fresh.chunks(BATCH) {
            if self.start.elapsed() > TIME_LIMIT {
                *self.left_out.entry("not asked for want of time").or_default() += batch.len();
                continue;
            }
            let kept = |path: &String| OpenFile::of_driver(self.root, path).limited(LARGEST_FILE);
            let answers = TimedReader::new(batch.iter().map(kept).collect()).waiting(BATCH_LIMIT).read_all();
            for (path, answer) in batch.iter().zip(answers) {
                self.note(path, answer.map(|(text, _)| text));
            }
        }
    }

    fn note(&mut self, path: &str, answer: Result<String, ReadError>) {
        let node = match answer {
            Ok(text) => {
                if text.len() >= LARGEST_FILE {
                    self.notes.push(format!("{path} goes on after {LARGEST_FILE} bytes"));
                }
                let text = sources::part_of(path, text);
                Node::File(self.scrub.apply(path, &text))
            }
            // Where a file is expected a directory is a fault worth keeping.
            Err(ReadError::NotAFile { .. }) if self.root.path(path).is_dir() => Node::Dir,
            // Gone since it was listed, or a device.
            Err(ReadError::Missing { .. } | ReadError::NotAFile { .. }) => return,
            Err(ReadError::Denied { .. }) => Node::Unreadable,
            Err(ReadError::Late { .. }) => Node::Fifo,
            Err(ReadError::Unsupported { source, .. } | ReadError::Io { source, .. }) => {
                let error =
                    source.raw_os_error().map_or_else(|| source.to_string(), |n| format!("os error {n}"));
                Node::Failing(excerpt(&error).trim_matches('"').to_owned())
            }
            Err(ReadError::Torn { .. }) => {
                self.notes.push(format!("{path} is left out: it is cut off at another place each time"));
                return;
            }
            Err(ReadError::Crowded { .. } | ReadError::NotNamed) => {
                *self.left_out.entry("not asked because others did not answer").or_default() += 1;
                return;
            }
        };
        self.keep(path.to_owned(), node);
    }

    /// The live files that the power modes set: they show which mode is in force.
    fn named_by_modes(&self) -> BTreeSet<String> {
        let confs = self.nodes.iter().filter(|(path, _)| path.starts_with("/etc/nvpmodel"));
        let texts = confs.filter_map(|(_, node)| match node {
            Node::File(text) => Some(text),
            _ => None,
        });
        let paths = texts.flat_map(|text| nvpmodel::parse(text).modes).flat_map(|mode| mode.settings);
        let paths: BTreeSet<String> = paths.flat_map(|setting| setting.paths).collect();
        // Anybody can write such a file: what it names is only believed where boards keep their switches.
        let switches = paths.into_iter().filter(|path| {
            ["/sys/", "/opt/nvidia/"].iter().any(|place| path.starts_with(place)) && !path.contains("/../")
        });
        switches.flat_map(|pattern| sources::expand(self.root, &pattern)).collect()
    }

    fn finish(mut self, heading: &str) -> Bundle {
        let left_out = std::mem::take(&mut self.left_out);
        self.notes.extend(left_out.into_iter().map(|(why, count)| format!("left out {why}: {count}")));
        let mut text = String::new();
        let kernel = self.root.read("/proc/sys/kernel/osrelease").ok();
        let kernel = kernel.and_then(|text| parse::label(&text)).unwrap_or_else(|| "unknown".into());
        for line in [heading.to_owned(), format!("kernel {kernel}, {} files", self.nodes.len())]
            .iter()
            .chain(&self.notes)
        {
            text.push_str(&text::comment(line));
        }
        for (path, node) in &self.nodes {
            text::entry(&mut text, path, node);
        }
        Bundle { text, files: self.nodes.len(), notes: self.notes }
    }
}
