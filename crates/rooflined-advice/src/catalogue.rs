//! What answers are given from beside the machine: known hardware, known models, and models in files.
//!
//! Everything that takes longer to make than to look up is kept, the newest of each kind, so that a stream of questions
//! about the same parts and models costs little more than reading and writing them.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::words::shorten;
use crate::modelfile::{self, Beginning, ModelFile, ModelFileError};
use crate::networkfile::{self, NetworkFileError};
use crate::recent::Recent;
use rooflined_api::NetworkFile;
use rooflined_core::hardware::{Registry, registry};
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::definition::Definition;
use rooflined_models::model::Model;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_predict::network::{Layers, fuse};
use rooflined_predict::optimize::ModelOrigin;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, costs};

/// Snapshots of other hardware kept.
const SNAPSHOTS: usize = 16;
const MODELS: usize = 64;
/// Models from files kept.
const FILES: usize = 16;
/// A snapshot or a model takes some ten kilobytes.
const BYTES: usize = 10 * 1024;
/// Longest path, as the kernel has it.
const MAX_PATH: usize = 4096;
/// Longest message about a file, which may repeat its own words.
const MAX_MESSAGE: usize = 600;

/// A file as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
}

/// Who opens the files that requests name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opener {
    /// The program that was given the request, in the directory that it was started in.
    Caller,
    /// A daemon, which anybody may ask: it opens nothing outside these directories, and says of what lies outside neither
    /// what it is nor whether it is there.
    Daemon(Vec<PathBuf>),
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
    /// What is built in, for a daemon that opens no files.
    fn default() -> Self {
        Self::of(Cow::Borrowed(registry()), Opener::Daemon(Vec::new()))
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
            snapshots: Recent::new(SNAPSHOTS, SNAPSHOTS * BYTES),
            known: Recent::new(MODELS, MODELS * BYTES),
            files: Recent::new(FILES, FILES * BYTES),
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
            super::hardware::unknown(&self.hardware, Code::UnknownHardware, "hardware", key)
        })?;
        if !hardware.is_described() {
            return Err(Code::InvalidField.at(
                "hardware",
                format!("{} does not say which CPU it is", hardware.key),
                "name one that rooflinectl hardware list cpu shows; or run rooflined there, measure it with rooflinectl \
                 calibrate, and ask without naming hardware",
            ));
        }
        if let Some(snapshot) = self.snapshots.find(|kept| *kept == hardware.key) {
            return Ok(Some(snapshot));
        }
        let snapshot = Arc::new(Snapshot::hypothetical(Arc::new(hardware.clone())));
        self.snapshots.keep(hardware.key.clone(), Arc::clone(&snapshot), BYTES);
        Ok(Some(snapshot))
    }

    /// A model by its name, quantised by `recipe`.
    ///
    /// # Errors
    /// No model has this name.
    pub fn model(&self, key: &str, recipe: Recipe, field: &str) -> Result<Arc<Model>, Refusal> {
        let known = models().get(key).map_err(|error| {
            Code::UnknownModel.at(
                field,
                format!("there is no model {:?}", shorten(&error.key)),
                error.hint("GET /v1/models lists all"),
            )
        })?;
        if let Some(model) = self.known.find(|(kept, by)| *by == recipe && *kept == known.key) {
            return Ok(model);
        }
        let model = Arc::new(known.model(recipe));
        self.known.keep((known.key.clone(), recipe), Arc::clone(&model), BYTES);
        Ok(model)
    }

    /// The format that a model is published in: what its name says, or what it was trained in where that is narrower than 16
    /// bits.
    #[must_use]
    pub fn published(&self, key: &str) -> Option<WeightFormat> {
        models().stored_in(key).or_else(|| models().get(key).ok()?.published_format)
    }

    /// How the model of this name comes to be in `format`, which is named by its key.
    pub(super) fn origin(&self, key: &str, format: Option<&str>) -> ModelOrigin {
        let recipe = |format: WeightFormat| costs::recipe(Engine::LlamaCpp, format).key();
        let own = self.published(key);
        if !own.is_some_and(|own| format.is_some_and(|format| format == own.key() || format == recipe(own))) {
            return ModelOrigin::Otherwise;
        }
        match models().stored_in(key).map(Recipe::of) {
            None => ModelOrigin::Checkpoint,
            Some(Recipe::Gguf(_)) => ModelOrigin::File,
            Some(_) => ModelOrigin::Quantised,
        }
    }

    /// The model that a request names by its `path`, or by its `definition` as `POST /v1/models/inspect` answers it, where
    /// nothing is opened. Blocks while headers are read.
    ///
    /// # Errors
    /// Another field, a definition that cannot be, or a file that cannot be read, may not be, or holds no model.
    pub fn referenced(&self, fields: &Map<String, Value>, at: &str) -> Result<Arc<ModelFile>, Refusal> {
        let field = format!("{at}.path");
        if let Some(definition) = fields.get("definition") {
            if fields.get("path").is_some_and(|path| !path.is_null()) {
                name_of(fields, &field)?;
            }
            return defined(definition, &format!("{at}.definition")).map(Arc::new);
        }
        no_other_field(fields, &["path"], at)?;
        self.file(name_of(fields, &field)?, &field, modelfile::latest())
    }

    /// The model at `path`. Blocks while its headers are read, until then at the longest.
    ///
    /// # Errors
    /// It cannot be read, may not be, is no plain file, or holds no model.
    pub fn file(&self, path: &str, field: &str, until: Instant) -> Result<Arc<ModelFile>, Refusal> {
        let path = Path::new(path);
        let root = self.root(path, field, MODELS_ELSEWHERE)?;
        let stamp = stamp(path);
        if let Some(file) = stamp.as_ref().and_then(|stamp| self.files.find(|kept| kept == stamp)) {
            return Ok(file);
        }
        let read = match root {
            None => modelfile::load(path),
            Some(root) => modelfile::load_beneath(root, path, until),
        };
        let file = read.map(Arc::new).map_err(|error| self.unreadable(&error, field, MODELS_ELSEWHERE))?;
        // What also rests on files beside this one would change without its changing.
        if let Some(stamp) = stamp.filter(|stamp| file.files == [stamp.path.clone()]) {
            self.files.keep(stamp, Arc::clone(&file), BYTES);
        }
        Ok(file)
    }

    /// The layers of the network that a request names at `at` by the `path` of its ONNX file. Blocks while the graph is read,
    /// until then at the longest.
    ///
    /// # Errors
    /// Another field, a file that cannot be read, may not be, or holds no network, or a dimension without a size.
    pub fn network(&self, named: &Value, at: &str, until: Instant) -> Result<Layers, Refusal> {
        let field = format!("{at}.path");
        let file = NetworkFile::deserialize(named).map_err(|error| {
            let why: String = error.to_string().chars().take(MAX_MESSAGE).collect();
            let hint =
                "write {\"path\": \"/models/x.onnx\", \"dimensions\": {\"batch\": 1}, \"size\": [640, 640]}";
            Code::InvalidField.at(at, format!("{at}: {why}"), hint)
        })?;
        let dimensions = networkfile::dimensions(&file, at)?;
        let path = Path::new(&file.path);
        let root = self.root(path, &field, NETWORKS_ELSEWHERE)?;
        match networkfile::load_beneath(root, path, &dimensions, until) {
            Ok(network) => {
                let layers = fuse(&network);
                layers.check().map_err(|error| {
                    let hint = "check that the file is the network that you expect";
                    Code::InvalidModel.at(at, error.to_string(), hint)
                })?;
                Ok(layers)
            }
            Err(NetworkFileError::File(error)) => Err(self.unreadable(&error, &field, NETWORKS_ELSEWHERE)),
            Err(error) => Err(error.refusal(at)),
        }
    }

    /// The directory below which `path` has to lie; `None` where any file is opened.
    fn root(&self, path: &Path, field: &str, elsewhere: &str) -> Result<Option<&Path>, Refusal> {
        let Opener::Daemon(roots) = &self.opener else { return Ok(None) };
        let root = roots.iter().find(|root| modelfile::is_beneath(root, path));
        root.map(|root| Some(root.as_path())).ok_or_else(|| outside(field, roots, elsewhere))
    }

    /// Why a file was not read.
    fn unreadable(&self, error: &ModelFileError, field: &str, elsewhere: &str) -> Refusal {
        let hint = match (&self.opener, error) {
            (Opener::Daemon(roots), ModelFileError::Outside) => return outside(field, roots, elsewhere),
            (Opener::Daemon(_), ModelFileError::Open { .. }) => {
                "the daemon opens it with its own rights: check the path and who may read it"
            }
            _ => error.hint(),
        };
        error.code().at(field, message(error), hint)
    }
}

/// The model in a file whose first bytes `source` gives, as they come in.
///
/// # Errors
/// It holds no model, or its header goes on beyond these bytes.
pub fn inspected(source: impl Read, name: &str) -> Result<ModelFile, Refusal> {
    let begun = modelfile::load_beginning(source, name, modelfile::latest())
        .map_err(|error| error.code().error(message(&error), error.hint()))?;
    match begun {
        Beginning::Model(file) => Ok(*file),
        Beginning::GoesOn(bytes) => Err(Code::UnreadableModel.error(
            format!("the header goes on beyond the {bytes} bytes that were sent"),
            format!("send more of the file's first bytes, at most {} MiB", modelfile::MAX_HEADER_BYTES >> 20),
        )),
    }
}

/// Refuses fields beside these.
///
/// # Errors
/// The first of them.
pub fn no_other_field(fields: &Map<String, Value>, known: &[&str], at: &str) -> Result<(), Refusal> {
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(other) => Err(Code::UnknownField.at(
            format!("{at}.{}", shorten(other)),
            format!("a model with a {} has no field {:?}", known.first().unwrap_or(&"path"), shorten(other)),
            "leave it out: the file says everything",
        )),
    }
}

/// What the `path` of a model says. It names what is learnt, for everybody who lists that.
///
/// # Errors
/// It is no text, or none that can be listed.
pub fn name_of<'f>(fields: &'f Map<String, Value>, field: &str) -> Result<&'f str, Refusal> {
    let hint = "write {\"path\":\"/models/x.gguf\"}";
    let Some(path) = fields.get("path").and_then(Value::as_str) else {
        return Err(Code::InvalidField.at(field, format!("{field} is not text"), hint));
    };
    if path.len() > MAX_PATH || path.chars().any(char::is_control) {
        let message = format!("{field} is longer than {MAX_PATH} bytes or has control characters");
        return Err(Code::InvalidField.at(field, message, hint));
    }
    Ok(path)
}

fn message(error: &ModelFileError) -> String {
    error.to_string().chars().take(MAX_MESSAGE).collect()
}

/// Who else reads model files.
const MODELS_ELSEWHERE: &str = "rooflinectl reads the files that its user may read; other clients send the file's first bytes to \
                                POST /v1/models/inspect and name the model by the answer";
/// Who else reads networks.
const NETWORKS_ELSEWHERE: &str = "rooflinectl and its dashboard read the files that their user may read";

/// Said of every path outside `roots`, whatever lies there: strangers learn nothing of files that the daemon may read.
/// `elsewhere` says who else reads it.
fn outside(field: &str, roots: &[PathBuf], elsewhere: &str) -> Refusal {
    let roots: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
    let below = if roots.is_empty() {
        "name directories in [models] dirs that the daemon itself may read".to_owned()
    } else {
        format!("put the file below {}", roots.join(" or "))
    };
    Code::UnreadableModel.at(
        field,
        "the file is not in a directory from which the daemon reads models",
        format!("check the path and who may read it: {elsewhere}; or {below}"),
    )
}

/// The model that somebody who has read its file sends.
fn defined(definition: &Value, field: &str) -> Result<ModelFile, Refusal> {
    let invalid = |message: String| {
        Code::InvalidModel.at(
            field,
            format!("{field}: {message}"),
            "send what POST /v1/models/inspect of this daemon answers",
        )
    };
    let definition: Definition =
        serde_path_to_error::deserialize(definition).map_err(|error| invalid(error.to_string()))?;
    let exact = definition.exact;
    let model = definition.model().map_err(|error| invalid(error.to_string()))?;
    Ok(ModelFile { model, exact, files: Vec::new() })
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
    fn a_snapshot_is_of_other_hardware_only() {
        let catalogue = Catalogue::default();
        let orin = catalogue.snapshot_of(None, "AGX-Orin-64GB").unwrap().unwrap();
        assert_eq!(orin.board.key, "jetson-agx-orin-64gb");
        assert!(orin.is_hypothetical());
        assert!(catalogue.snapshot_of(Some(&orin), "jetson-agx-orin-64gb").unwrap().is_none());
        assert_eq!(catalogue.snapshot_of(Some(&orin), "cpu").unwrap_err().code, Code::InvalidField);
        assert_eq!(catalogue.snapshot_of(None, "h10").unwrap_err().code, Code::UnknownHardware);
    }
}
