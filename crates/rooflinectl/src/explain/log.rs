//! What the log of a llama.cpp server tells, where its output goes to a file that may be read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Bytes at the beginning of a log, and at its end.
const BEGINNING: u64 = 512 * 1024;
const END: u64 = 64 * 1024;

/// Found in a log.
#[derive(Debug, Default, PartialEq)]
pub struct Log {
    pub file: Option<String>,
    /// Names of `system_info` that are on, such as `AVX2`.
    pub instructions: Option<Vec<String>>,
    /// Part of the drafted tokens that was accepted, in the newest request.
    pub acceptance_ratio: Option<f64>,
}

impl Log {
    /// The log of a process: the regular file that its output or its errors go to.
    pub fn of(pid: u32) -> Self {
        let found = [2, 1].into_iter().find_map(|number| {
            let path = format!("/proc/{pid}/fd/{number}");
            // Reading a pipe or a device could wait forever.
            std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
            let log = Self::parse(&text(&path)?);
            (log != Self::default()).then(|| Self { file: named(&path), ..log })
        });
        found.unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        Self {
            file: None,
            instructions: text.lines().rev().find_map(instructions),
            acceptance_ratio: text.lines().rev().find_map(acceptance),
        }
    }
}

fn named(path: &str) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.to_string_lossy().into_owned())
}

/// The beginning and the end of a file.
fn text(path: &str) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut bytes = Vec::new();
    (&mut file).take(BEGINNING).read_to_end(&mut bytes).ok()?;
    if length > BEGINNING {
        bytes.push(b'\n');
        file.seek(SeekFrom::Start(length.saturating_sub(END).max(BEGINNING))).ok()?;
        file.take(END).read_to_end(&mut bytes).ok()?;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `system_info: n_threads = 2 (n_threads_batch = 2) / 4 | CPU : SSE3 = 1 | AVX2 = 1 | …`
fn instructions(line: &str) -> Option<Vec<String>> {
    let (_, rest) = line.split_once("system_info:")?;
    let is_on = |part: &str| {
        let (name, value) = part.rsplit_once('=')?;
        // The first of a backend follows its name.
        let name = name.rsplit(':').next()?.trim();
        (value.trim() == "1").then(|| name.to_owned())
    };
    let names: Vec<String> = rest.split('|').skip(1).filter_map(is_on).collect();
    (!names.is_empty()).then_some(names)
}

/// `draft acceptance rate = 0.57576 (   19 accepted /    33 generated)`
fn acceptance(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("draft acceptance rate =")?;
    let ratio: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (0.0..=1.0).contains(&ratio).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM_INFO: &str = "system_info: n_threads = 2 (n_threads_batch = 2) / 4 | CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | \
                               AVX512_VNNI = 0 | OPENMP = 1 | ";

    #[test]
    fn instructions_and_accepted_drafts_are_read() {
        let text = format!(
            "{SYSTEM_INFO}\nslot print_timing: id 0 | draft acceptance rate = 0.90000 (    9 accepted /    10 generated)\n\
             draft acceptance rate = 0.25000 (    5 accepted /    20 generated)\n"
        );
        let log = Log::parse(&text);
        assert_eq!(log.instructions.unwrap(), ["SSE3", "AVX", "AVX2", "OPENMP"]);
        assert_eq!(log.acceptance_ratio, Some(0.25));
        let other = "system_info: none\ndraft acceptance rate = nan (0 accepted / 0 generated)\n\u{0}\u{1}";
        assert_eq!(Log::parse(other), Log::default());
    }

    #[test]
    fn the_log_of_a_process_is_the_file_that_it_writes_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, format!("{SYSTEM_INFO}\n{}", "x\n".repeat(600 * 1024))).unwrap();
        let file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stderr(file).spawn().unwrap();
        let log = Log::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(log.file.as_deref(), path.to_str());
        assert!(log.instructions.is_some_and(|names| names.contains(&"AVX2".to_owned())));
        assert_eq!(Log::of(0), Log::default());
    }
}
