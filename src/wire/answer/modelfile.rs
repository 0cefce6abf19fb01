//! Model files on disk: which files belong to a model, their headers, and the weights in them.
//!
//! A path is a GGUF file or one of its shards, a safetensors file, its index, a `config.json`, or a directory that
//! holds one model in any of these forms. Nothing but plain files is opened, and of those only the headers are read;
//! weights only where they are asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

use roofline::workload::import::config::{self, Config};
use roofline::workload::import::gguf::{self, Header};
use roofline::workload::import::safetensors::{self, Index};
use roofline::workload::import::{ImportError, MAX_TENSORS, Tensor};
use roofline::workload::model::Model;

/// Most files of a directory that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// Most shards of a GGUF model.
const MAX_SHARDS: u64 = 1024;
/// Longest index.
const MAX_INDEX: u64 = 64 << 20;

/// Why a path is no model.
#[derive(Debug, Error)]
pub enum ModelFileError {
    /// It cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A FIFO, socket or device.
    #[error("{} is no plain file", .0.display())]
    NotAFile(PathBuf),
    /// What it holds is no model.
    #[error("{} {source}", path.display())]
    Import {
        path: PathBuf,
        #[source]
        source: ImportError,
    },
    /// A directory without a model.
    #[error("{} holds no .gguf, no .safetensors and no config.json", .0.display())]
    Nothing(PathBuf),
    /// A directory with several.
    #[error("{} holds several models: {}", path.display(), names.join(", "))]
    Several { path: PathBuf, names: Vec<String> },
    /// A configuration where weights are wanted.
    #[error("{} describes a model and holds no weights", .0.display())]
    NoWeights(PathBuf),
    /// A shard whose name does not say which it is, or that is too many.
    #[error("{}: the model is split into {count} files, and the name of this one does not end in -00001-of-{count:05}.gguf", path.display())]
    ShardName {
        path: PathBuf,
        /// How many there should be.
        count: u64,
    },
}

impl ModelFileError {
    /// What to do next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } => "check the path; every shard must lie beside the first",
            Self::NotAFile(_) | Self::Nothing(_) => {
                "give a .gguf or .safetensors file, a config.json, or a directory that holds them"
            }
            Self::Import { source, .. } => source.hint(),
            Self::NoWeights(_) => {
                "give the weights themselves: a .gguf or .safetensors file, or their directory"
            }
            Self::Several { .. } => "name one of the files",
            Self::ShardName { .. } => "give the shards the names that they were published under",
        }
    }
}

/// A model and the files that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFile {
    pub model: Model,
    pub files: Vec<PathBuf>,
}

impl ModelFile {
    /// Whether its weights come from tensors, which are exact, and not from a configuration alone.
    #[must_use]
    pub fn has_tensors(&self) -> bool {
        self.files.iter().any(|file| file.extension().is_none_or(|extension| extension != "json"))
    }
}

/// The tensor table of a model over all its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// `gguf` or `safetensors`.
    pub kind: &'static str,
    /// The tensors; each names its file by its place in `files`.
    pub tensors: Vec<Tensor>,
    pub files: Vec<PathBuf>,
}

/// What lies at a path.
enum Found {
    /// A GGUF file or all its shards.
    Gguf { header: Header, files: Vec<PathBuf> },
    /// Files of a checkpoint in a directory, and the path that errors name.
    Checkpoint { tensors: Vec<Tensor>, files: Vec<PathBuf>, folder: PathBuf, named: PathBuf },
    /// A configuration without weights.
    Configuration(PathBuf),
}

/// Reads the model at `path`.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn load(path: &Path) -> Result<ModelFile, ModelFileError> {
    match find(path)? {
        Found::Gguf { header, files } => {
            let first = files.first().map_or(path, PathBuf::as_path);
            let model = gguf::model(&header, &file_name(first)).map_err(at(first))?;
            Ok(ModelFile { model, files })
        }
        Found::Checkpoint { tensors, files, folder, named } => {
            let config = beside(&folder)?;
            let model =
                safetensors::model(&tensors, config.as_ref(), &folder_name(&folder)).map_err(at(&named))?;
            Ok(ModelFile { model, files })
        }
        Found::Configuration(path) => {
            let model =
                read_configuration(&path)?.model(None, &folder_name(parent(&path))).map_err(at(&path))?;
            Ok(ModelFile { model, files: vec![path] })
        }
    }
}

/// Reads the tensor table of the model at `path`, whatever the model is.
///
/// # Errors
/// Names the file and what is wrong with it; a configuration has no tensors, and big-endian ones are not read.
pub fn table(path: &Path) -> Result<Table, ModelFileError> {
    match find(path)? {
        Found::Gguf { header, .. } if header.big_endian => Err(at(path)(ImportError::BigEndian)),
        Found::Gguf { header, files } => Ok(Table { kind: "gguf", tensors: header.tensors, files }),
        Found::Checkpoint { tensors, files, .. } => Ok(Table { kind: "safetensors", tensors, files }),
        Found::Configuration(path) => Err(ModelFileError::NoWeights(path)),
    }
}

fn find(path: &Path) -> Result<Found, ModelFileError> {
    let metadata = std::fs::metadata(path).map_err(|source| open_error(path, source))?;
    if metadata.is_dir() {
        return directory(path);
    }
    let name = file_name(path);
    if name.ends_with(".index.json") {
        return checkpoint(parent(path), Some(path), &[]);
    }
    if name.ends_with(".json") {
        return Ok(Found::Configuration(path.to_owned()));
    }
    let mut start = Vec::new();
    let (file, _) = open(path)?;
    file.take(9).read_to_end(&mut start).map_err(|source| open_error(path, source))?;
    // A file of safetensors starts with a length, and an object follows.
    match start.get(8) {
        _ if start.starts_with(b"GGUF") || name.ends_with(".gguf") => ggufs(path),
        Some(b'{') => checkpoint(parent(path), None, &[path.to_owned()]),
        _ if name.ends_with(".safetensors") => checkpoint(parent(path), None, &[path.to_owned()]),
        _ if start.first() == Some(&b'{') => Ok(Found::Configuration(path.to_owned())),
        _ => {
            let found = start.get(..4).unwrap_or(&start).escape_ascii().to_string();
            Err(at(path)(ImportError::Magic { expected: "GGUF or safetensors", found }))
        }
    }
}

fn open_error(path: &Path, source: io::Error) -> ModelFileError {
    ModelFileError::Open { path: path.to_owned(), source }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name of a directory, also where it is given as `.`.
fn folder_name(folder: &Path) -> String {
    std::fs::canonicalize(folder).map(|folder| file_name(&folder)).unwrap_or_default()
}

/// Opens a plain file and says how long it is. Anything else is not opened at all, because opening alone can act on a
/// device; should one take the file's place meanwhile, nobody waits for whoever would write to a FIFO.
///
/// # Errors
/// There is none, it may not be read, or it is something else.
pub fn open(path: &Path) -> Result<(File, u64), ModelFileError> {
    let metadata = std::fs::metadata(path).map_err(|source| open_error(path, source))?;
    if !metadata.is_file() {
        return Err(ModelFileError::NotAFile(path.to_owned()));
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| open_error(path, source))?;
    let metadata = file.metadata().map_err(|source| open_error(path, source))?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else {
        Err(ModelFileError::NotAFile(path.to_owned()))
    }
}

/// A small file as a whole.
fn whole(path: &Path, limit: u64) -> Result<Vec<u8>, ModelFileError> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|source| open_error(path, source))?;
    if bytes.len() as u64 > limit {
        let count = bytes.len() as u64;
        let source = ImportError::TooMany { what: "bytes of JSON", count, limit };
        return Err(ModelFileError::Import { path: path.to_owned(), source });
    }
    Ok(bytes)
}

/// Adds the path to an error.
fn at(path: &Path) -> impl Fn(ImportError) -> ModelFileError + '_ {
    move |source| ModelFileError::Import { path: path.to_owned(), source }
}

fn directory(path: &Path) -> Result<Found, ModelFileError> {
    let entries = std::fs::read_dir(path).map_err(|source| open_error(path, source))?;
    let mut names: Vec<String> =
        entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let ending =
        |ending: &str| names.iter().filter(|name| name.ends_with(ending)).cloned().collect::<Vec<_>>();
    let index = ending(".safetensors.index.json");
    if let Some(index) = index.iter().find(|name| *name == "model.safetensors.index.json").or(index.first()) {
        return checkpoint(path, Some(&path.join(index)), &[]);
    }
    // Mistral's own file beside the shards holds the same weights again.
    let mut tensors = ending(".safetensors");
    if tensors.iter().any(|name| name == "model.safetensors") {
        tensors = vec!["model.safetensors".to_owned()];
    } else if tensors.iter().any(|name| !name.starts_with("consolidated")) {
        tensors.retain(|name| !name.starts_with("consolidated"));
    }
    if !tensors.is_empty() {
        let files: Vec<_> = tensors.iter().map(|name| path.join(name)).collect();
        return checkpoint(path, None, &files);
    }
    // A projector for pictures is no model of its own, and further shards come with the first.
    let models: Vec<_> = ending(".gguf")
        .into_iter()
        .filter(|name| !name.contains("mmproj") && shard(name).is_none_or(|(_, number, _)| number == 1))
        .collect();
    match models.as_slice() {
        [one] => ggufs(&path.join(one)),
        [] if names.iter().any(|name| name == "config.json") => {
            Ok(Found::Configuration(path.join("config.json")))
        }
        [] => Err(ModelFileError::Nothing(path.to_owned())),
        several => {
            let names = several.iter().take(5).cloned().collect();
            Err(ModelFileError::Several { path: path.to_owned(), names })
        }
    }
}

/// What precedes the number of a shard, the number from 1, and how many there are.
fn shard(name: &str) -> Option<(&str, u64, u64)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits =
        |text: &str| (text.len() == 5 && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok());
    Some((stem, digits(number)??, digits(count)??))
}

fn ggufs(path: &Path) -> Result<Found, ModelFileError> {
    let header = |path: &Path| {
        let (file, length) = open(path)?;
        gguf::read(BufReader::with_capacity(1 << 16, file), length).map_err(at(path))
    };
    let name = file_name(path);
    let first = header(path)?;
    let (_, count) = first.split();
    if count == 1 {
        return Ok(Found::Gguf { header: first, files: vec![path.to_owned()] });
    }
    let stem = match shard(&name) {
        Some((stem, _, of)) if of == count && count <= MAX_SHARDS => stem,
        _ => return Err(ModelFileError::ShardName { path: path.to_owned(), count }),
    };
    let files: Vec<_> = (1..=count)
        .map(|number| parent(path).join(format!("{stem}-{number:05}-of-{count:05}.gguf")))
        .collect();
    let headers = files.iter().map(|file| header(file)).collect::<Result<Vec<_>, _>>()?;
    let header = gguf::join(headers).map_err(at(path))?;
    Ok(Found::Gguf { header, files })
}

/// A checkpoint in a directory: by its index, or the files given.
fn checkpoint(folder: &Path, index: Option<&Path>, files: &[PathBuf]) -> Result<Found, ModelFileError> {
    let header = |path: &Path| {
        let (file, length) = open(path)?;
        safetensors::read(BufReader::with_capacity(1 << 16, file), length).map_err(at(path))
    };
    let (tensors, files): (Vec<Tensor>, Vec<PathBuf>) = match index {
        Some(path) => {
            let index = Index::parse(&whole(path, MAX_INDEX)?).map_err(at(path))?;
            let mut headers = Vec::new();
            for name in index.files() {
                headers.push((name.to_owned(), header(&folder.join(name))?));
            }
            let files = index.files().into_iter().map(|name| folder.join(name)).collect();
            (index.join(headers).map_err(at(path))?, files)
        }
        None => {
            let mut tensors = Vec::new();
            for (number, file) in files.iter().enumerate() {
                tensors.extend(header(file)?.into_iter().map(|tensor| Tensor { file: number, ..tensor }));
                if tensors.len() as u64 > MAX_TENSORS {
                    let count = tensors.len() as u64;
                    let source = ImportError::TooMany { what: "tensors", count, limit: MAX_TENSORS };
                    return Err(at(file)(source));
                }
            }
            (tensors, files.to_vec())
        }
    };
    let named = index.or(files.first().map(PathBuf::as_path)).unwrap_or(folder).to_owned();
    Ok(Found::Checkpoint { tensors, files, folder: folder.to_owned(), named })
}

/// The configuration in a directory, where there is one.
fn beside(folder: &Path) -> Result<Option<Config>, ModelFileError> {
    let path = folder.join("config.json");
    if !path.exists() {
        return Ok(None);
    }
    read_configuration(&path).map(Some)
}

fn read_configuration(path: &Path) -> Result<Config, ModelFileError> {
    let config = Config::parse(&whole(path, config::MAX_BYTES)?).map_err(at(path))?;
    let extra = parent(path).join("hf_quant_config.json");
    if !extra.exists() {
        return Ok(config);
    }
    let json = whole(&extra, config::MAX_BYTES)?;
    config.with_modelopt(&json).map_err(at(&extra))
}
