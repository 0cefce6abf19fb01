//! What is known of the kernels that few GPUs can run: which were right on this one, and which faulted.
//!
//! ```text
//! {"schema":1,"kernels":[{"module":"wgmma_f16","gpu":"NVIDIA H200","driver":"570.86.15 (CUDA 12.8)","program":"…",
//!                         "outcome":"faulted","reason":"…","unix_s":1795420800.0}, …]}
//! ```
//!
//! A kernel that was right runs with the others from then on; one that faulted is not run again with the same driver, GPU
//! and program. Before it runs for the first time `begun` is written, so that one after which the machine did not come back
//! is not begun for ever. The file is written under another name, synced and renamed; one that cannot be read says nothing.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::cuda::{Group, Identity};
use rooflined_core::calendar::day;

const SCHEMA: u32 = 1;
/// Longest file that is read, and most outcomes that are kept.
const LONGEST: u64 = 256 << 10;
const MOST: usize = 100;
/// Longest reason kept.
const LONGEST_REASON: usize = 300;
/// A kernel that was begun so often and never ended is not begun again: a daemon that is stopped meanwhile is no fault.
const MOST_BEGUN: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Right,
    Faulted,
    Hung,
    /// Not at all, as far as anybody knows.
    Begun(u32),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    module: String,
    gpu: String,
    driver: String,
    /// Version of this program, and the digest of the kernel's text.
    program: String,
    outcome: Ended,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    unix_s: f64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    schema: u32,
    kernels: Vec<Row>,
}

/// The file, if one is kept.
#[derive(Debug, Default)]
pub struct Known {
    path: Option<PathBuf>,
    rows: Vec<Row>,
}

impl Known {
    /// What the file says; without one nothing is known, and nothing kept.
    pub fn read(path: Option<PathBuf>) -> Self {
        let content = path.as_deref().and_then(read).filter(|content| content.schema == SCHEMA);
        Self { path, rows: content.unwrap_or_default().kernels }
    }

    fn row(&self, group: &Group, identity: &Identity) -> Option<&Row> {
        self.rows.iter().find(|row| {
            row.module == group.module
                && row.gpu == identity.gpu
                && row.driver == identity.driver
                && row.program == program(group)
        })
    }

    pub fn is_right(&self, group: &Group, identity: &Identity) -> bool {
        self.row(group, identity).is_some_and(|row| row.outcome == Ended::Right)
    }

    /// Why a kernel is not run again, and what would change that; `None` where it may run.
    pub fn refusal(&self, group: &Group, identity: &Identity) -> Option<String> {
        let row = self.row(group, identity)?;
        let what = match row.outcome {
            Ended::Right => return None,
            Ended::Begun(times) if times < MOST_BEGUN => return None,
            Ended::Begun(times) => format!("was begun {times} times and never came to an end"),
            Ended::Faulted => "faulted".to_owned(),
            Ended::Hung => "hung".to_owned(),
        };
        let because = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
        let again = self.path.as_deref().map_or_else(String::new, |path| {
            format!(
                "; it is tried again with another driver or rooflined, or once {} is removed",
                path.display()
            )
        });
        Some(format!(
            "{} {what} with driver {} on {}{because}{again}",
            row.module,
            row.driver,
            day(row.unix_s)
        ))
    }

    /// It is about to run.
    pub fn begin(&mut self, group: &Group, identity: &Identity) {
        let before = match self.row(group, identity).map(|row| row.outcome) {
            Some(Ended::Begun(times)) => times,
            Some(_) => return,
            None => 0,
        };
        self.note(group, identity, Some(Ended::Begun(before + 1)), "");
    }

    /// It did not run after all.
    pub fn not_run(&mut self, group: &Group, identity: &Identity) {
        if matches!(self.row(group, identity).map(|row| row.outcome), Some(Ended::Begun(_))) {
            self.note(group, identity, None, "");
        }
    }

    pub fn ended(&mut self, group: &Group, identity: &Identity, outcome: Ended, reason: &str) {
        if self.row(group, identity).is_none_or(|row| row.outcome != outcome) {
            self.note(group, identity, Some(outcome), reason);
        }
    }

    /// Replaces what is known of a module on this GPU, whatever the driver and the program were.
    fn note(&mut self, group: &Group, identity: &Identity, outcome: Option<Ended>, reason: &str) {
        let Some(path) = &self.path else { return };
        self.rows.retain(|row| row.module != group.module || row.gpu != identity.gpu);
        if let Some(outcome) = outcome {
            self.rows.push(Row {
                module: group.module.to_owned(),
                gpu: identity.gpu.clone(),
                driver: identity.driver.clone(),
                program: program(group),
                outcome,
                reason: reason.chars().take(LONGEST_REASON).collect(),
                unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            });
        }
        let surplus = self.rows.len().saturating_sub(MOST);
        self.rows.drain(..surplus);
        if let Err(error) = write(path, &self.rows) {
            eprintln!("rooflined probe: {}: {error}; a kernel that faults will run again", path.display());
        }
    }
}

fn program(group: &Group) -> String {
    format!("{}, {:016x}", env!("CARGO_PKG_VERSION"), group.digest)
}

fn read(path: &Path) -> Option<Content> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(path: &Path, rows: &[Row]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    serde_json::to_writer(&file, &Content { schema: SCHEMA, kernels: rows.to_vec() })?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_predict::calibration::DriverFacts;

    fn identity(driver: &str) -> Identity {
        Identity { gpu: "Toy".into(), driver: driver.into(), capability: 90, facts: DriverFacts::default() }
    }

    const WGMMA: Group = Group { module: "wgmma_f16", apart: true, digest: 7 };

    #[test]
    fn a_fault_is_remembered_for_its_driver_and_its_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpu-kernels.json");
        let mut known = Known::read(Some(path.clone()));
        assert_eq!(known.refusal(&WGMMA, &identity("1")), None);
        known.begin(&WGMMA, &identity("1"));
        known.ended(&WGMMA, &identity("1"), Ended::Faulted, "CUDA_ERROR_LAUNCH_FAILED");
        let known = Known::read(Some(path.clone()));
        let refusal = known.refusal(&WGMMA, &identity("1")).unwrap();
        for part in ["wgmma_f16 faulted with driver 1 on 20", "LAUNCH_FAILED", &path.display().to_string()] {
            assert!(refusal.contains(part), "{refusal}");
        }
        assert_eq!(known.refusal(&WGMMA, &identity("2")), None);
        assert_eq!(known.refusal(&Group { digest: 8, ..WGMMA }, &identity("1")), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(Known::read(Some(path)).refusal(&WGMMA, &identity("1")), None);
    }

    #[test]
    fn a_kernel_that_ends_the_machine_is_begun_twice_and_not_a_third_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpu-kernels.json");
        for times in 0..4 {
            let mut known = Known::read(Some(path.clone()));
            assert_eq!(known.refusal(&WGMMA, &identity("1")).is_some(), times >= 2, "{times}");
            if times < 2 {
                known.begin(&WGMMA, &identity("1"));
            }
        }
        let mut known = Known::read(Some(path));
        known.ended(&WGMMA, &identity("1"), Ended::Right, "");
        assert!(known.is_right(&WGMMA, &identity("1")) && known.refusal(&WGMMA, &identity("1")).is_none());
        // What was right does not become unknown by being run again.
        known.begin(&WGMMA, &identity("1"));
        known.not_run(&WGMMA, &identity("1"));
        assert!(known.is_right(&WGMMA, &identity("1")));
    }

    #[test]
    fn a_file_that_is_none_says_nothing_and_a_directory_that_is_none_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpu-kernels.json");
        for text in ["", "{", "[]", "{\"schema\":2,\"kernels\":[]}", "{\"schema\":1,\"kernels\":[{}]}"] {
            fs::write(&path, text).unwrap();
            assert!(Known::read(Some(path.clone())).rows.is_empty(), "{text}");
        }
        let mut lost = Known::read(Some(dir.path().join("none/gpu-kernels.json")));
        lost.ended(&WGMMA, &identity("1"), Ended::Hung, "");
        // For the rest of this run it is.
        assert!(lost.refusal(&WGMMA, &identity("1")).unwrap().contains("hung"));
    }
}
