//! What answers are given from beside the machine: known hardware, known models, and models in files.
//!
//! Everything that takes longer to make than to look up is kept, the newest of each kind, so that a stream of questions
//! about the same parts and models costs little more than reading and writing them.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::shorten;
use crate::modelfile::{self, ModelFile};
use decide::snapshot::Snapshot;
use predict::{Engine, costs};
use roofline::hardware::{Kind, Registry, registry};
use roofline::precision::WeightFormat;
use roofline::refusal::{Code, Refusal};
use roofline::workload::model::Model;
use roofline::workload::recipe::Recipe;
use roofline::workload::registry::models;

/// Snapshots of other hardware kept; each is some ten kilobytes.
const SNAPSHOTS: usize = 16;
/// Models kept, likewise.
const MODELS: usize = 64;
/// Models from files kept.
const FILES: usize = 16;

/// Values that were made last, by key.
#[derive(Debug)]
struct Recent<K, V> {
    /// The newest last.
    kept: Mutex<Vec<(K, V)>>,
    most: usize,
}

impl<K, V: Clone> Recent<K, V> {
    const fn new(most: usize) -> Self {
        Self { kept: Mutex::new(Vec::new()), most }
    }

    fn find(&self, wanted: impl Fn(&K) -> bool) -> Option<V> {
        // Nothing that panics runs while it is held, and a list that was cut short is still a list.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().rposition(|(key, _)| wanted(key))?;
        let found = kept[place].1.clone();
        kept[place..].rotate_left(1);
        drop(kept);
        Some(found)
    }

    fn keep(&self, key: K, value: V) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most {
            kept.remove(0);
        }
        kept.push((key, value));
    }
}

/// A file as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
}

/// Who opens the files that requests name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opener {
    /// The program that was given the request, in the directory that it was started in.
    Caller,
    /// A daemon: its working directory is nobody's, so a path has to begin at the root.
    Daemon,
}

/// Known hardware, known models, and models in files.
#[derive(Debug)]
pub struct Catalogue {
    hardware: Cow<'static, Registry>,
    opener: Opener,
    snapshots: Recent<String, Arc<Snapshot>>,
    known: Recent<(String, Recipe), Arc<Model>>,
    files: Recent<Stamp, Arc<ModelFile>>,
}

impl Default for Catalogue {
    /// What is built in, for a daemon.
    fn default() -> Self {
        Self::of(Cow::Borrowed(registry()), Opener::Daemon)
    }
}

impl Catalogue {
    #[must_use]
    pub const fn new(hardware: Registry, opener: Opener) -> Self {
        Self::of(Cow::Owned(hardware), opener)
    }

    const fn of(hardware: Cow<'static, Registry>, opener: Opener) -> Self {
        Self {
            hardware,
            opener,
            snapshots: Recent::new(SNAPSHOTS),
            known: Recent::new(MODELS),
            files: Recent::new(FILES),
        }
    }

    #[must_use]
    pub fn hardware(&self) -> &Registry {
        &self.hardware
    }

    /// What the data sheet says of other hardware than `live`; `None` where `live` is that hardware.
    ///
    /// # Errors
    /// Unknown hardware, or one that nothing is known of without measuring it.
    pub fn snapshot_of(&self, live: Option<&Snapshot>, key: &str) -> Result<Option<Arc<Snapshot>>, Refusal> {
        let found = self.hardware.get(key);
        let name = found.map_or(key, |hardware| &hardware.key);
        if live.is_some_and(|live| live.board.key == name) {
            return Ok(None);
        }
        let hardware = found.ok_or_else(|| {
            Code::UnknownHardware.at(
                "hardware",
                format!("there is no hardware {:?} in the registry", shorten(key)),
                format!("did you mean {}? GET /v1/hardware lists all", self.hardware.nearest(shorten(key))),
            )
        })?;
        if hardware.kind == Kind::Cpu {
            return Err(Code::NotCalibrated.at(
                "hardware",
                format!("no data sheet says what {} reaches: it has to be measured", hardware.key),
                "leave hardware out to ask the daemon of that machine, calibrated with rooflinectl calibrate",
            ));
        }
        if let Some(snapshot) = self.snapshots.find(|kept| *kept == hardware.key) {
            return Ok(Some(snapshot));
        }
        let snapshot = Arc::new(Snapshot::hypothetical(Arc::new(hardware.clone())));
        self.snapshots.keep(hardware.key.clone(), Arc::clone(&snapshot));
        Ok(Some(snapshot))
    }

    /// A model by its key, quantised by `recipe`.
    ///
    /// # Errors
    /// No model has this key.
    pub fn model(&self, key: &str, recipe: Recipe, field: &str) -> Result<Arc<Model>, Refusal> {
        if let Some(model) = self.known.find(|(kept, by)| *by == recipe && kept.eq_ignore_ascii_case(key)) {
            return Ok(model);
        }
        let known = models().get(key).map_err(|error| {
            Code::UnknownModel.at(
                field,
                format!("there is no model {:?}", shorten(&error.key)),
                format!("did you mean {:?}? GET /v1/models lists all", error.nearest),
            )
        })?;
        let model = Arc::new(known.model(recipe));
        self.known.keep((known.key.clone(), recipe), Arc::clone(&model));
        Ok(model)
    }

    /// The format that a model is published in and was trained in, where that is narrower than 16 bits.
    #[must_use]
    pub fn published(&self, key: &str) -> Option<WeightFormat> {
        models().get(key).ok()?.published_format
    }

    /// Whether `format`, by its key, is that one.
    pub(super) fn is_published(&self, key: &str, format: Option<&str>) -> bool {
        let recipe = |format: WeightFormat| costs::recipe(Engine::LlamaCpp, format).key();
        let own = self.published(key);
        own.is_some_and(|own| format.is_some_and(|format| format == own.key() || format == recipe(own)))
    }

    /// The model at `path`. Blocks while its headers are read.
    ///
    /// # Errors
    /// It cannot be read, is no plain file, or holds no model.
    pub fn file(&self, path: &str, field: &str) -> Result<Arc<ModelFile>, Refusal> {
        let path = Path::new(path);
        if self.opener == Opener::Daemon && !path.is_absolute() {
            return Err(Code::UnreadableModel.at(
                field,
                format!("{:?} does not begin at the root", shorten(&path.to_string_lossy())),
                "the daemon opens it, so give the whole path",
            ));
        }
        let stamp = stamp(path);
        if let Some(file) = stamp.as_ref().and_then(|stamp| self.files.find(|kept| kept == stamp)) {
            return Ok(file);
        }
        let file = modelfile::load(path).map(Arc::new).map_err(|error| {
            let hint = match (self.opener, &error) {
                (Opener::Daemon, modelfile::ModelFileError::Open { .. }) => {
                    "the daemon opens it with its own rights: check the path and who may read it"
                }
                _ => error.hint(),
            };
            Code::UnreadableModel.at(field, error.to_string(), hint)
        })?;
        // What also rests on files beside this one would change without its changing.
        if let Some(stamp) = stamp.filter(|stamp| file.files == [stamp.path.clone()]) {
            self.files.keep(stamp, Arc::clone(&file));
        }
        Ok(file)
    }
}

/// A GGUF file as it is now; `None` for anything else.
fn stamp(path: &Path) -> Option<Stamp> {
    if path.extension().is_none_or(|extension| extension != "gguf") {
        return None;
    }
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Stamp { path: path.to_owned(), length: metadata.len(), modified: metadata.modified().ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_last_is_kept() {
        let recent = Recent::new(2);
        recent.keep(1, "one");
        recent.keep(2, "two");
        assert_eq!(recent.find(|key| *key == 1), Some("one"));
        recent.keep(3, "three");
        assert_eq!(recent.find(|key| *key == 2), None, "it was asked for longest ago");
        assert_eq!(recent.find(|key| *key == 1), Some("one"));
        assert_eq!(recent.find(|key| *key == 3), Some("three"));
    }

    #[test]
    fn a_snapshot_is_of_other_hardware_only() {
        let catalogue = Catalogue::default();
        let orin = catalogue.snapshot_of(None, "AGX-Orin-64GB").unwrap().unwrap();
        assert_eq!(orin.board.key, "jetson-agx-orin-64gb");
        assert!(orin.is_hypothetical());
        assert!(catalogue.snapshot_of(Some(&orin), "jetson-agx-orin-64gb").unwrap().is_none());
        assert_eq!(catalogue.snapshot_of(Some(&orin), "cpu").unwrap_err().code, Code::NotCalibrated);
        assert_eq!(catalogue.snapshot_of(None, "h10").unwrap_err().code, Code::UnknownHardware);
    }
}
