//! What survives the daemon: the calibration record, reports, holds and slow servers.
//!
//! ```text
//! STATE_DIR/calibration.json          {"schema":2,"kind":"calibration","content":{…},"checksum":"…"}
//! STATE_DIR/residuals.json            {"schema":2,"kind":"residuals",…}
//! STATE_DIR/models.json               {"schema":2,"kind":"models",…}
//! STATE_DIR/reports.json              {"schema":1,"kind":"reports",…}
//! STATE_DIR/holds.json                {"schema":1,"kind":"holds",…}: for the next daemon of this boot, where there are any
//! STATE_DIR/servers.json              {"schema":1,"kind":"servers",…}: the same for servers that are noticed as slow
//! STATE_DIR/state.lock                locked by the daemon that keeps things here; in it the number of its process
//! STATE_DIR/gpu-kernels.json          the probe's own: which kernels were right on this GPU, and which faulted
//! STATE_DIR/NAME.damaged-UNIX_S       a file that could not be used; the newest three of each name are kept
//! STATE_DIR/.NAME.new-PID-N           being written
//! ```
//!
//! A file is written under another name, synced, renamed, and the directory synced: at any moment, also of power
//! loss, the name stands for one complete file. Holds and servers end with the boot, so they are not synced. A file that was altered
//! since, by a failing disk or by hand, does not match its checksum (`checksum.rs`) and is set aside.

mod boot;
mod checksum;
mod file;
mod lock;

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use rooflined_predict::calibration::{CalibrationRecord, RECORD_SCHEMA};
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::models::ObservedRuns;
use rooflined_predict::learning::reports::Reports;

use file::Survives;
pub use lock::Lock;

/// Longest file that is read or written.
const LONGEST: u64 = 16 << 20;
/// Version of the reports of operations.
const RESIDUALS_SCHEMA: u32 = 2;
/// Version of what was learnt of models.
const MODELS_SCHEMA: u32 = 2;
/// Version of what users reported that moves their own answers only.
const REPORTS_SCHEMA: u32 = 1;
const CALIBRATION: &str = "calibration.json";
const RESIDUALS: &str = "residuals.json";
const MODELS: &str = "models.json";
const REPORTS: &str = "reports.json";
/// Read and written by the probe alone, at any time.
pub const GPU_KERNELS: &str = "gpu-kernels.json";

/// Why something could not be stored or read. None of these stops the daemon: it goes on in memory.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The directory cannot be made, read or written.
    #[error("state directory {path}: {source}; {remedy}")]
    Directory {
        path: PathBuf,
        remedy: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file in it cannot be read or written.
    #[error("{path}: {source}; {remedy}")]
    File {
        path: PathBuf,
        remedy: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another daemon keeps things there.
    #[error(
        "state directory {path}: {holder} keeps its state there, and two would each write over what the other has \
         learned; end that one, or choose another directory with --state-dir or [daemon] state_dir"
    )]
    InUse {
        path: PathBuf,
        /// `rooflined (process 42)`.
        holder: String,
    },
    /// The value would not be readable again, so what was stored before is kept.
    #[error("{path} is not replaced: {reason}")]
    Unstorable {
        path: PathBuf,
        /// What is wrong with the value.
        reason: String,
    },
}

/// A stored file that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Where it lies now; `None` if it could not be moved out of the way.
    pub set_aside: Option<PathBuf>,
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; ", self.path.display(), self.reason)?;
        match &self.set_aside {
            Some(aside) => write!(f, "it was set aside as {} and will be rebuilt", aside.display()),
            None => write!(f, "it could not be set aside and will be overwritten"),
        }
    }
}

/// What was found in the state directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<T> {
    /// The value; `None` where nothing was stored, or nothing usable.
    pub value: Option<T>,
    /// The file that was found unusable, if one was.
    pub damaged: Option<Damaged>,
}

/// A stored value, with what tells whether it can be read.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    schema: u32,
    kind: String,
    content: T,
}

/// The part of an [`Envelope`] that every version has.
#[derive(Deserialize)]
struct Label {
    schema: u32,
    kind: String,
}

#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Uses `dir`, which is made if it is missing, and removes what earlier runs left half-written.
    ///
    /// # Errors
    /// The directory cannot be made, listed or written to; the message ends with the remedy.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let dir = dir.into();
        file::prepare_directory(&dir).map_err(|source| StoreError::directory(&dir, source))?;
        let store = Self { dir };
        file::remove_orphans(&store.dir);
        Ok(store)
    }

    /// Reads `dir` as it is. What cannot be written to may still hold a calibration.
    #[must_use]
    pub fn existing(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The stored calibration.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_calibration(&self) -> Result<Loaded<CalibrationRecord>, StoreError> {
        self.load(CALIBRATION, "calibration", RECORD_SCHEMA, |record: &CalibrationRecord| {
            if record.schema != RECORD_SCHEMA {
                return Err(format!(
                    "its record has schema {}, this version reads {RECORD_SCHEMA}",
                    record.schema
                ));
            }
            if record.regimes.is_empty() {
                return Err("it holds no regime".into());
            }
            Ok(())
        })
    }

    /// Replaces the calibration.
    ///
    /// # Errors
    /// The old one is still in place: the value holds a number that is not finite or is too long, or the system refuses to
    /// write.
    pub fn save_calibration(&self, record: &CalibrationRecord) -> Result<(), StoreError> {
        if record.regimes.is_empty() || record.schema != RECORD_SCHEMA {
            let reason = "a record needs a regime and the schema of this version".into();
            return Err(StoreError::Unstorable { path: self.dir.join(CALIBRATION), reason });
        }
        let bytes = self.encode(CALIBRATION, "calibration", RECORD_SCHEMA, record)?;
        self.write(CALIBRATION, &bytes)
    }

    /// What was learnt.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_residuals(&self) -> Result<Loaded<Residuals>, StoreError> {
        self.load(RESIDUALS, "residuals", RESIDUALS_SCHEMA, Residuals::check)
    }

    /// Replaces what was learnt.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_residuals(&self, residuals: &Residuals) -> Result<(), StoreError> {
        let bytes = self.encode(RESIDUALS, "residuals", RESIDUALS_SCHEMA, residuals)?;
        self.write(RESIDUALS, &bytes)
    }

    /// What was learnt of models.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_observed_runs(&self) -> Result<Loaded<ObservedRuns>, StoreError> {
        self.load(MODELS, "models", MODELS_SCHEMA, ObservedRuns::check)
    }

    /// Replaces what was learnt of models.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_observed_runs(&self, observed_runs: &ObservedRuns) -> Result<(), StoreError> {
        let bytes = self.encode(MODELS, "models", MODELS_SCHEMA, observed_runs)?;
        self.write(MODELS, &bytes)
    }

    /// What users reported that moves their own answers only.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_reports(&self) -> Result<Loaded<Reports>, StoreError> {
        self.load(REPORTS, "reports", REPORTS_SCHEMA, Reports::check)
    }

    /// Replaces what users reported that moves their own answers only.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_reports(&self, reports: &Reports) -> Result<(), StoreError> {
        let bytes = self.encode(REPORTS, "reports", REPORTS_SCHEMA, reports)?;
        self.write(REPORTS, &bytes)
    }

    fn load<T: DeserializeOwned>(
        &self,
        name: &str,
        kind: &str,
        schema: u32,
        sound: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<Loaded<T>, StoreError> {
        let bytes = match self.read(name)? {
            Ok(None) => return Ok(Loaded { value: None, damaged: None }),
            Ok(Some(bytes)) => bytes,
            Err(reason) => return Ok(self.damaged(name, reason)),
        };
        // The label first: of another version nothing else is known.
        let label = checksum::verify(&bytes).and_then(|()| {
            serde_json::from_slice::<Label>(&bytes).map_err(|error| format!("damaged: {error}"))
        });
        let content = label.and_then(
            |label| {
                if label.kind != kind || label.schema != schema {
                    let (found, version) = (label.kind, label.schema);
                    return Err(format!("it holds {found:.40?} of schema {version}, this version reads {kind:?} of schema {schema}"));
                }
                let envelope: Envelope<T> =
                    serde_json::from_slice(&bytes).map_err(|error| format!("damaged: {error}"))?;
                sound(&envelope.content)?;
                Ok(envelope.content)
            },
        );
        Ok(match content {
            Ok(content) => Loaded { value: Some(content), damaged: None },
            Err(reason) => self.damaged(name, reason),
        })
    }

    /// The bytes of a file: `Ok(Err(reason))` if it can never be used, `Ok(Ok(None))` if there is none.
    fn read(&self, name: &str) -> Result<Result<Option<Vec<u8>>, String>, StoreError> {
        let path = self.dir.join(name);
        file::read(&path, LONGEST).map_err(|source| StoreError::file(&path, source))
    }

    fn damaged<T>(&self, name: &str, reason: String) -> Loaded<T> {
        let path = self.dir.join(name);
        let set_aside = file::set_aside(&self.dir, &path);
        Loaded { value: None, damaged: Some(Damaged { path, reason, set_aside }) }
    }

    fn encode<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        kind: &str,
        schema: u32,
        content: &T,
    ) -> Result<Vec<u8>, StoreError> {
        encoded::<T>(&self.dir.join(name), &Envelope { schema, kind: kind.into(), content })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_to_survive(name, bytes, Survives::PowerLoss)
    }

    fn write_to_survive(&self, name: &str, bytes: &[u8], survives: Survives) -> Result<(), StoreError> {
        file::replace(&self.dir, name, bytes, survives)
            .map_err(|source| StoreError::file(&self.dir.join(name), source))
    }
}

impl StoreError {
    fn directory(path: &Path, source: io::Error) -> Self {
        Self::Directory { path: path.to_owned(), remedy: remedy(&source), source }
    }

    fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), remedy: remedy(&source), source }
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "give it to the daemon's user (chown), or choose another directory with --state-dir or [daemon] state_dir"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "make it writable and restart the daemon, or choose another directory with --state-dir or [daemon] state_dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space on its file system",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in its place: remove it, or choose another directory with --state-dir"
        }
        _ => "check the directory, or choose another with --state-dir or [daemon] state_dir",
    }
}

/// JSON that is known to read back. serde_json writes a number that is not finite as null, which no number can be
/// read from, so reading it here finds every such number before it replaces anything.
fn encoded<T: Serialize + DeserializeOwned>(
    path: &Path,
    value: &Envelope<&T>,
) -> Result<Vec<u8>, StoreError> {
    let refused = |reason: String| StoreError::Unstorable { path: path.to_owned(), reason };
    let bytes = serde_json::to_vec(value).map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > LONGEST {
        return Err(refused(format!("{} bytes are more than the {LONGEST} allowed", bytes.len())));
    }
    match serde_json::from_slice::<Envelope<T>>(&bytes) {
        Ok(_) => Ok(checksum::add(bytes)),
        Err(error) => {
            Err(refused(format!("it could not be read back, as a number in it is not finite ({error})")))
        }
    }
}
