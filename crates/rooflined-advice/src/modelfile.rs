//! Model files on disk: which files belong to a model, their headers, and the weights in them.
//!
//! A path is a GGUF file or one of its shards, a safetensors file, its index, a `config.json`, or a directory that
//! holds one model in any of these forms. Nothing but plain files is opened, and of those only the headers are read;
//! weights only where they are asked for. The first bytes of one file, sent by somebody who may read it, are enough.
//!
//! All files of a model share one budget: [`MAX_HEADER_BYTES`] of headers, [`MAX_TENSORS`] tensors and [`MAX_TIME`], each
//! looked at while it is spent, so that neither many files nor links to one cost more than one large model does. With
//! what is made of them, and whatever they say, they take no more than 256 MiB of memory.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2};
use thiserror::Error;

use rooflined_core::refusal::Code;
use rooflined_models::definition::Definition;
use rooflined_models::foreign::{self, Foreign, START};
use rooflined_models::import::config::{self, Config};
use rooflined_models::import::gguf::{self, Header};
use rooflined_models::import::projector;
use rooflined_models::import::safetensors::{self, Index, MAX_FILES};
use rooflined_models::import::{ImportError, MAX_NAME, MAX_TENSORS, Tensor};
use rooflined_models::model::Model;

/// Most bytes of headers, indices and configurations, over all files of a model. The headers of a model of 10^12 weights
/// with 384 experts in every layer have some 20 MB.
pub const MAX_HEADER_BYTES: u64 = 64 << 20;
/// Longest time that reading them may take, and the files of a request to a daemon together.
pub const MAX_TIME: Duration = Duration::from_secs(30);
/// Most tensors of a file that is read alone; those of a model of 10^12 weights lie in dozens of files.
const MAX_TENSORS_OF_ONE: u64 = 1 << 15;
/// Most objects and lists of a configuration that is read alone: one for each module whose weights are stored in a way of
/// their own.
const MAX_CONTAINERS_OF_ONE: u64 = 1 << 15;
/// Most bytes of such a configuration.
const MAX_CONFIGURATION_OF_ONE: u64 = 4 << 20;
/// Bytes asked for at once: the time is looked at between two of them.
const MAX_READ: usize = 1 << 20;

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
    #[error("{}", unopened(path, source))]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It lies outside the directory in which files may be read.
    #[error("it is outside the directories of models")]
    Outside,
    /// Reading took too long.
    #[error("reading the headers took more than {} s", MAX_TIME.as_secs())]
    Slow,
    /// A FIFO, socket or device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// What it holds is no model.
    #[error("{}{}{source}", path.display(), source.joint())]
    Import {
        path: PathBuf,
        #[source]
        source: ImportError,
    },
    /// A directory without a model; it may hold a file of another kind.
    #[error("{} holds no .gguf, no .safetensors and no config.json{}", path.display(), other(found.as_ref()))]
    Nothing { path: PathBuf, found: Option<(String, &'static Foreign)> },
    /// A directory with several.
    #[error("{} holds several models: {}", path.display(), names.join(", "))]
    Several { path: PathBuf, names: Vec<String> },
    /// A configuration where weights are wanted.
    #[error("{} describes a model and holds no weights", .0.display())]
    NoWeights(PathBuf),
    /// One shard where there is no way to the others.
    #[error("{} is one of several shards, which are read by their names", .0.display())]
    OneOfSeveral(PathBuf),
    /// A shard whose name does not say which it is, or that is too many.
    #[error("{}: the model is split into {count} files, and the name of this one does not end in -00001-of-{count:05}.gguf", path.display())]
    ShardName {
        path: PathBuf,
        /// How many there should be.
        count: u64,
    },
}

impl ModelFileError {
    /// The code of a refusal. A file of a known other kind is sound; it is the wrong file.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Import { source: ImportError::Foreign(kind), .. } if !kind.is_damaged() => {
                Code::UnsupportedWorkload
            }
            Self::Import { source: ImportError::NotText { .. }, .. } => Code::UnsupportedWorkload,
            _ => Code::UnreadableModel,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open { path, .. } if file_name(path).contains("-of-") => {
                "the model is split into several files: put all of them into one directory, under their own names"
            }
            Self::Open { .. } => "check the path, and who may read it",
            Self::Outside => "put the model, and whatever its links point to, into one of them",
            Self::Slow => "copy the model to a faster disk, or give one file of it",
            Self::Nothing { found: Some((_, kind)), .. } => kind.instead,
            Self::NotAFile(_) | Self::Nothing { .. } => {
                "give a .gguf or .safetensors file, a config.json, or a directory that holds them"
            }
            Self::Import { source, .. } => source.hint(),
            Self::NoWeights(_) => {
                "give the weights themselves: a .gguf or .safetensors file, or their directory"
            }
            Self::Several { .. } => "name one of the files",
            Self::OneOfSeveral(_) => "name the model by its path, in a directory with all its shards",
            Self::ShardName { .. } => "give the shards the names that they were published under",
        }
    }
}

/// A model and the files that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFile {
    pub model: Model,
    /// Whether its weights come from tensors, which are exact, and not from a configuration alone.
    pub exact: bool,
    /// None where somebody else read them.
    pub files: Vec<PathBuf>,
}

impl ModelFile {
    /// The model as another program, which may not read the files, takes it.
    #[must_use]
    pub fn definition(&self) -> Definition {
        Definition::of(&self.model, self.exact)
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

/// Reads the model at `path`, with the rights of the user who runs this program.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn load(path: &Path) -> Result<ModelFile, ModelFileError> {
    Reading::new(None, latest()).load(path)
}

/// The same until then, where every file, and whatever its links lead to, has to lie beneath `root`.
///
/// # Errors
/// As [`load`], and [`ModelFileError::Outside`].
pub fn load_beneath(root: &Path, path: &Path, until: Instant) -> Result<ModelFile, ModelFileError> {
    if !is_beneath(root, path) {
        return Err(ModelFileError::Outside);
    }
    Reading::new(Some(root), until).load(path)
}

/// What the beginning of a file tells.
#[derive(Debug)]
pub enum Beginning {
    /// The model: its header is complete.
    Model(Box<ModelFile>),
    /// The header goes on beyond these, which are so many.
    GoesOn(u64),
}

/// Reads the model in one file of which `source` gives the first bytes, as they come in. `name` may carry a label, as a
/// file's name does.
///
/// # Errors
/// It is something else, or holds no model, or its header is longer than is read.
pub fn load_beginning(source: impl Read, name: &str, until: Instant) -> Result<Beginning, ModelFileError> {
    let ended = Cell::new(None);
    let reading = Reading::new(None, until);
    // One file has no experts of hundreds of files.
    reading.tensors.set(MAX_TENSORS - MAX_TENSORS_OF_ONE);
    let begun = FirstBytes { source, read: 0, is_whole: None, ended: &ended };
    match (reading.single(begun, Path::new(name), name), ended.get()) {
        (Ok(model), _) => Ok(Beginning::Model(Box::new(model))),
        (Err(_), Some(bytes)) if bytes < MAX_HEADER_BYTES => Ok(Beginning::GoesOn(bytes)),
        (Err(_), Some(_)) => Err(at(Path::new(name))(ImportError::Budget {
            what: "bytes of headers",
            limit: MAX_HEADER_BYTES,
        })),
        // More tensors than one file may have, which is less than a model may have.
        (
            Err(ModelFileError::Import { source: ImportError::Budget { what: what @ "tensors", .. }, path }),
            None,
        ) => Err(at(&path)(ImportError::Budget { what, limit: MAX_TENSORS_OF_ONE })),
        (Err(error), None) => Err(error),
    }
}

/// The first bytes of a file, of which the others cannot be read. Nobody tells how long the file is, and only a
/// configuration has to be whole.
struct FirstBytes<'e, R> {
    source: R,
    /// Bytes so far.
    read: u64,
    /// Known after the first byte.
    is_whole: Option<bool>,
    /// How many they are, set where one behind them was asked for.
    ended: &'e Cell<Option<u64>>,
}

impl<R: Read> Read for FirstBytes<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read += read as u64;
        if self.is_whole.is_none() {
            self.is_whole = buffer[..read].first().map(|first| *first == b'{');
        }
        if read == 0 && self.is_whole == Some(false) && !buffer.is_empty() {
            self.ended.set(Some(self.read));
            return Err(io::Error::other("the beginning of the file ends here"));
        }
        Ok(read)
    }
}

/// When reading that begins now has to be done.
#[must_use]
pub fn latest() -> Instant {
    Instant::now() + MAX_TIME
}

/// Whether `path` names something beneath `root`, by their words alone: nothing is looked at.
#[must_use]
pub fn is_beneath(root: &Path, path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    path.is_absolute() && !climbs && path.strip_prefix(root).is_ok()
}

/// Reads the tensor table of the model at `path`, whatever the model is.
///
/// # Errors
/// Names the file and what is wrong with it; a configuration has no tensors, and big-endian ones are not read.
pub fn table(path: &Path) -> Result<Table, ModelFileError> {
    match Reading::new(None, latest()).find(path)? {
        Found::Gguf { header, .. } if header.big_endian => Err(at(path)(ImportError::BigEndian)),
        Found::Gguf { header, files } => Ok(Table { kind: "gguf", tensors: header.tensors, files }),
        Found::Checkpoint { tensors, files, .. } => Ok(Table { kind: "safetensors", tensors, files }),
        Found::Configuration(path) => Err(ModelFileError::NoWeights(path)),
    }
}

/// What reading the files of one model has cost so far.
struct Reading<'a> {
    /// Nothing outside is opened; `None`: the whole file system.
    root: Option<&'a Path>,
    bytes: Cell<u64>,
    tensors: Cell<u64>,
    until: Instant,
    /// Set by the reader, whose errors pass through parsers that keep their words alone.
    ended: Cell<Option<Spent>>,
}

/// What there was no more of.
#[derive(Debug, Clone, Copy)]
enum Spent {
    Bytes,
    Time,
}

/// A file whose bytes are counted.
struct Counted<'a, R> {
    source: R,
    reading: &'a Reading<'a>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let spent = |what| {
            self.reading.ended.set(Some(what));
            Err(io::Error::other("the budget of this model is spent"))
        };
        if Instant::now() > self.reading.until {
            return spent(Spent::Time);
        }
        let most = buffer.len().min(MAX_READ);
        let read = self.source.read(&mut buffer[..most])?;
        let total = self.reading.bytes.get().saturating_add(read as u64);
        self.reading.bytes.set(total);
        if total > MAX_HEADER_BYTES { spent(Spent::Bytes) } else { Ok(read) }
    }
}

impl<'a> Reading<'a> {
    fn new(root: Option<&'a Path>, until: Instant) -> Self {
        Self { root, bytes: Cell::new(0), tensors: Cell::new(0), until, ended: Cell::new(None) }
    }

    fn load(&self, path: &Path) -> Result<ModelFile, ModelFileError> {
        match self.find(path)? {
            Found::Gguf { header, files } => {
                let first = files.first().map_or(path, PathBuf::as_path);
                let mut model = gguf::model(&header, &file_name(first)).map_err(at(first))?;
                self.add_projector(&mut model, parent(first));
                Ok(ModelFile { model, exact: true, files })
            }
            Found::Checkpoint { tensors, files, folder, named } => {
                let config = self.beside(&folder)?;
                let model = safetensors::model(&tensors, config.as_ref(), &folder_name(&folder))
                    .map_err(at(&named))?;
                Ok(ModelFile { model, exact: true, files })
            }
            Found::Configuration(path) => {
                let config = self.read_configuration(&path)?;
                let model = config.model(None, &folder_name(parent(&path))).map_err(at(&path))?;
                Ok(ModelFile { model, exact: false, files: vec![path] })
            }
        }
    }

    /// Counts the projector file next to a model as its tower. One that cannot be read, or is of another model, is ignored.
    fn add_projector(&self, model: &mut Model, folder: &Path) {
        let is_projector = |name: &String| name.ends_with(".gguf") && name.contains("mmproj");
        let names = self.names(folder).unwrap_or_default();
        for name in names.into_iter().filter(is_projector) {
            let header = self
                .header(&folder.join(&name), |source, length, most| gguf::read_at_most(source, length, most));
            if let Some(header) = header.ok().filter(|header| projector::fits(model, header)) {
                return projector::add_projector(model, &header, &name);
            }
        }
    }

    /// The model in one file; `path` stands for it in errors.
    fn single<R: Read>(&self, mut source: R, path: &Path, name: &str) -> Result<ModelFile, ModelFileError> {
        let mut start = Vec::new();
        source
            .by_ref()
            .take(START as u64)
            .read_to_end(&mut start)
            .map_err(|source| open_error(path, source))?;
        let (whole, length) = (Counted { source: start.as_slice().chain(source), reading: self }, u64::MAX);
        let is_checkpoint = start.get(8) == Some(&b'{');
        let exact = is_checkpoint || start.starts_with(b"GGUF");
        let model = if is_checkpoint {
            let tensors = self.parsed(path, whole, length, |source, length, most| {
                safetensors::read_at_most(source, length, most)
            })?;
            safetensors::model(&tensors, None, name)
        } else if exact {
            let header = self.parsed(path, whole, length, |source, length, most| {
                gguf::read_at_most(source, length, most)
            })?;
            if header.split().1 > 1 {
                return Err(ModelFileError::OneOfSeveral(path.to_owned()));
            }
            gguf::model(&header, name)
        } else if start.first() == Some(&b'{') {
            let json = self.all(path, whole, MAX_CONFIGURATION_OF_ONE)?;
            Config::parse_at_most(&json, MAX_CONTAINERS_OF_ONE).and_then(|config| config.model(None, name))
        } else {
            Err(none(&start, name))
        };
        Ok(ModelFile { model: model.map_err(at(path))?, exact, files: Vec::new() })
    }

    fn find(&self, path: &Path) -> Result<Found, ModelFileError> {
        if self.metadata(path).map_err(|source| open_error(path, source))?.is_dir() {
            return self.directory(path);
        }
        let name = file_name(path);
        if name.ends_with(".index.json") {
            return self.checkpoint(parent(path), Some(path), &[]);
        }
        if name.ends_with(".json") || name.ends_with(".jsonl") {
            return match foreign::of_name(&name) {
                Some(kind) => Err(at(path)(ImportError::Foreign(kind))),
                None => Ok(Found::Configuration(path.to_owned())),
            };
        }
        let mut start = Vec::new();
        let (file, _) = self.open(path)?;
        file.take(START as u64).read_to_end(&mut start).map_err(|source| open_error(path, source))?;
        // A file of safetensors starts with a length, and an object follows.
        match start.get(8) {
            _ if start.starts_with(b"GGUF") => self.ggufs(path),
            Some(b'{') => self.checkpoint(parent(path), None, &[path.to_owned()]),
            _ if start.first() == Some(&b'{') && !name.ends_with(".gguf") => {
                Ok(Found::Configuration(path.to_owned()))
            }
            _ => Err(at(path)(none(&start, &name))),
        }
    }

    /// Opens with `flags` whatever may be opened here.
    fn opened(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        // What is only looked at takes no other flags.
        let quiet =
            if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let flags = flags | quiet | OFlags::CLOEXEC;
        let Some(root) = self.root else {
            return Ok(openat(CWD, path, flags, Mode::empty())?.into());
        };
        let inside = path.strip_prefix(root).map_err(|_| rustix::io::Errno::XDEV)?;
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let directory = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&directory, inside, flags, Mode::empty(), resolve)?.into())
    }

    /// What lies at a path, which is not opened for that.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match self.root {
            None => std::fs::metadata(path),
            Some(_) => self.opened(path, OFlags::PATH)?.metadata(),
        }
    }

    /// A plain file and its length; anything else is not opened at all, because opening alone can act on a device. Should
    /// one take the file's place meanwhile, nothing waits for a writer of a FIFO.
    fn open(&self, path: &Path) -> Result<(Counted<'_, File>, u64), ModelFileError> {
        let metadata = self.metadata(path).map_err(|source| open_error(path, source))?;
        if !metadata.is_file() {
            return Err(ModelFileError::NotAFile(path.to_owned()));
        }
        let file = self.opened(path, OFlags::RDONLY).map_err(|source| open_error(path, source))?;
        let metadata = file.metadata().map_err(|source| open_error(path, source))?;
        if !metadata.is_file() {
            return Err(ModelFileError::NotAFile(path.to_owned()));
        }
        Ok((Counted { source: file, reading: self }, metadata.len()))
    }

    /// The same for parsers that ask for a few bytes at a time. What is read ahead does not count.
    fn header<T>(
        &self,
        path: &Path,
        read: impl FnOnce(&mut dyn Read, u64, u64) -> Result<T, ImportError>,
    ) -> Result<T, ModelFileError> {
        let (file, length) = self.open(path)?;
        self.parsed(path, file, length, read)
    }

    fn parsed<T>(
        &self,
        path: &Path,
        file: Counted<'_, impl Read>,
        length: u64,
        read: impl FnOnce(&mut dyn Read, u64, u64) -> Result<T, ImportError>,
    ) -> Result<T, ModelFileError> {
        let mut source = Counted { source: BufReader::with_capacity(1 << 16, file.source), reading: self };
        let left = MAX_TENSORS.saturating_sub(self.tensors.get());
        read(&mut source, length, left).map_err(|error| self.spent_or(path, error))
    }

    /// What a file that cannot be read holds instead; `None` where its first bytes do not tell.
    fn named(&self, path: &Path) -> Option<ModelFileError> {
        let mut start = Vec::new();
        self.open(path).ok()?.0.take(START as u64).read_to_end(&mut start).ok()?;
        foreign::of_bytes(&start).map(|kind| at(path)(ImportError::Foreign(kind)))
    }

    fn count(&self, tensors: usize) {
        self.tensors.set(self.tensors.get().saturating_add(tensors as u64));
    }

    /// Why reading ended: what was spent, where something was.
    fn spent_or(&self, path: &Path, error: ImportError) -> ModelFileError {
        match self.ended.get() {
            Some(Spent::Bytes) => {
                at(path)(ImportError::Budget { what: "bytes of headers", limit: MAX_HEADER_BYTES })
            }
            Some(Spent::Time) => ModelFileError::Slow,
            None => at(path)(error),
        }
    }

    /// A small file as a whole.
    fn whole(&self, path: &Path, limit: u64) -> Result<Vec<u8>, ModelFileError> {
        let (file, _) = self.open(path)?;
        self.all(path, file, limit)
    }

    fn all(&self, path: &Path, file: Counted<'_, impl Read>, limit: u64) -> Result<Vec<u8>, ModelFileError> {
        let mut bytes = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| self.spent_or(path, ImportError::Io(source)))?;
        if bytes.len() as u64 > limit {
            let count = bytes.len() as u64;
            return Err(at(path)(ImportError::TooMany { what: "bytes of JSON", count, limit }));
        }
        Ok(bytes)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let directory = self.opened(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)?.take(MAX_ENTRIES) {
            let Ok(entry) = entry else { continue };
            if let Ok(name) = std::str::from_utf8(entry.file_name().to_bytes()) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn directory(&self, path: &Path) -> Result<Found, ModelFileError> {
        let names = self.names(path).map_err(|source| open_error(path, source))?;
        let ending =
            |ending: &str| names.iter().filter(|name| name.ends_with(ending)).cloned().collect::<Vec<_>>();
        let index = ending(".safetensors.index.json");
        if let Some(index) =
            index.iter().find(|name| *name == "model.safetensors.index.json").or(index.first())
        {
            return self.checkpoint(path, Some(&path.join(index)), &[]);
        }
        // Mistral's own file beside the shards holds the same weights again.
        let mut tensors = ending(".safetensors");
        if tensors.iter().any(|name| name == "model.safetensors") {
            tensors = vec!["model.safetensors".to_owned()];
        } else if tensors.iter().any(|name| !name.starts_with("consolidated")) {
            tensors.retain(|name| !name.starts_with("consolidated"));
        }
        if tensors.len() > MAX_FILES {
            let (count, limit) = (tensors.len() as u64, MAX_FILES as u64);
            return Err(at(path)(ImportError::TooMany { what: "files", count, limit }));
        }
        if !tensors.is_empty() {
            let files: Vec<_> = tensors.iter().map(|name| path.join(name)).collect();
            return self.checkpoint(path, None, &files);
        }
        // A projector for pictures is no model of its own, and further shards come with the first.
        let models: Vec<_> = ending(".gguf")
            .into_iter()
            .filter(|name| !name.contains("mmproj") && shard(name).is_none_or(|(_, number, _)| number == 1))
            .collect();
        match models.as_slice() {
            [one] => self.ggufs(&path.join(one)),
            [] if names.iter().any(|name| name == "config.json") => {
                Ok(Found::Configuration(path.join("config.json")))
            }
            // The cache of Hugging Face keeps a directory for each version, and what is current under refs.
            [] if names.iter().any(|name| name == "snapshots") => {
                let snapshots = path.join("snapshots");
                let current = self.whole(&path.join("refs/main"), MAX_NAME).ok();
                let current = current.and_then(|name| String::from_utf8(name).ok());
                let versions = self.names(&snapshots).map_err(|source| open_error(&snapshots, source))?;
                let mut versions = versions.iter().filter(|name| !name.starts_with('.'));
                let named = versions.clone().find(|name| current.as_deref().map(str::trim) == Some(*name));
                match named.or_else(|| versions.next()) {
                    Some(version) => self.directory(&snapshots.join(version)),
                    None => Err(ModelFileError::Nothing { path: snapshots, found: None }),
                }
            }
            [] => {
                let found = names.iter().find_map(|name| Some((name.clone(), foreign::of_name(name)?)));
                Err(ModelFileError::Nothing { path: path.to_owned(), found })
            }
            several => {
                let names = several.iter().take(5).cloned().collect();
                Err(ModelFileError::Several { path: path.to_owned(), names })
            }
        }
    }

    fn ggufs(&self, path: &Path) -> Result<Found, ModelFileError> {
        let header = |path: &Path| {
            let header =
                self.header(path, |source, length, most| gguf::read_at_most(source, length, most))?;
            self.count(header.tensors.len());
            Ok(header)
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
        drop(first);
        self.tensors.set(0);
        let files: Vec<_> = (1..=count)
            .map(|number| parent(path).join(format!("{stem}-{number:05}-of-{count:05}.gguf")))
            .collect();
        let mut headers = Vec::new();
        for file in &files {
            let mut shard = header(file)?;
            if !headers.is_empty() {
                // The first describes the model; the others repeat it at most.
                shard.metadata.retain(|key, _| key.starts_with("split."));
            }
            headers.push(shard);
        }
        let header = gguf::join(headers).map_err(at(path))?;
        Ok(Found::Gguf { header, files })
    }

    /// A checkpoint in a directory: by its index, or the files given.
    fn checkpoint(
        &self,
        folder: &Path,
        index: Option<&Path>,
        files: &[PathBuf],
    ) -> Result<Found, ModelFileError> {
        let header = |path: &Path| {
            let read = |source: &mut dyn Read, length, most| safetensors::read_at_most(source, length, most);
            let tensors = self.header(path, read).map_err(|error| self.named(path).unwrap_or(error))?;
            self.count(tensors.len());
            Ok(tensors)
        };
        let (tensors, files): (Vec<Tensor>, Vec<PathBuf>) = match index {
            Some(path) => {
                let index = Index::parse(&self.whole(path, MAX_INDEX)?).map_err(at(path))?;
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
                }
                (tensors, files.to_vec())
            }
        };
        let named = index.or(files.first().map(PathBuf::as_path)).unwrap_or(folder).to_owned();
        Ok(Found::Checkpoint { tensors, files, folder: folder.to_owned(), named })
    }

    /// The configuration in a directory, where there is one.
    fn beside(&self, folder: &Path) -> Result<Option<Config>, ModelFileError> {
        let path = folder.join("config.json");
        if self.metadata(&path).is_err() {
            return Ok(None);
        }
        self.read_configuration(&path).map(Some)
    }

    fn read_configuration(&self, path: &Path) -> Result<Config, ModelFileError> {
        let json = self.whole(path, config::MAX_BYTES)?;
        let kind = || foreign::of_bytes(json.get(..START).unwrap_or(&json)).map(ImportError::Foreign);
        let is_json = matches!(json.trim_ascii_start().first(), Some(b'{' | b'['));
        let named = |error| if is_json { error } else { kind().unwrap_or(error) };
        let mut config = Config::parse(&json).map_err(|error| at(path)(named(error)))?;
        // What sentence-transformers writes beside a model that embeds.
        if ["modules.json", "1_Pooling/config.json"]
            .iter()
            .any(|name| self.metadata(&parent(path).join(name)).is_ok())
        {
            config = config.as_embedder();
        }
        let extra = parent(path).join("hf_quant_config.json");
        if self.metadata(&extra).is_err() {
            return Ok(config);
        }
        let json = self.whole(&extra, config::MAX_BYTES)?;
        config.with_modelopt(&json).map_err(at(&extra))
    }
}

fn open_error(path: &Path, source: io::Error) -> ModelFileError {
    if source.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error()) {
        return ModelFileError::Outside;
    }
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
/// device; should one take the file's place meanwhile, nothing waits for a writer of a FIFO.
///
/// # Errors
/// There is none, it may not be read, or it is something else.
pub fn open(path: &Path) -> Result<(File, u64), ModelFileError> {
    open_beneath(None, path)
}

/// The same of a file that has to lie beneath `root`, with whatever its links lead to, if there is a root.
///
/// # Errors
/// As [`open`], and [`ModelFileError::Outside`].
pub fn open_beneath(root: Option<&Path>, path: &Path) -> Result<(File, u64), ModelFileError> {
    if root.is_some_and(|root| !is_beneath(root, path)) {
        return Err(ModelFileError::Outside);
    }
    let reading = Reading::new(root, latest());
    let (file, length) = reading.open(path)?;
    Ok((file.source, length))
}

/// That a file cannot be opened, as a sentence.
#[must_use]
pub fn unopened(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no file {path}"),
        io::ErrorKind::PermissionDenied => format!("{path} may not be read by this user"),
        _ => format!("{path} cannot be read: {error}"),
    }
}

/// Why a file with these first bytes is not a model.
fn none(start: &[u8], name: &str) -> ImportError {
    foreign::of(start, name).map_or_else(
        || {
            let found = start.get(..4).unwrap_or(start).escape_ascii().to_string();
            ImportError::Magic { expected: "GGUF or safetensors", found }
        },
        ImportError::Foreign,
    )
}

/// `; model.engine is a TensorRT engine`.
fn other(found: Option<&(String, &'static Foreign)>) -> String {
    found.map_or_else(String::new, |(name, kind)| format!("; {name:?} is {}", kind.what))
}

/// What `source`, the file at `path`, holds instead of what its name promises; `None` where its first bytes do not tell.
pub(crate) fn foreign(mut source: impl Read + Seek, path: &Path) -> Option<ModelFileError> {
    let mut start = Vec::new();
    source.rewind().ok()?;
    source.take(START as u64).read_to_end(&mut start).ok()?;
    foreign::of_bytes(&start).map(|kind| at(path)(ImportError::Foreign(kind)))
}

/// Adds the path to an error.
fn at(path: &Path) -> impl Fn(ImportError) -> ModelFileError + '_ {
    move |source| ModelFileError::Import { path: path.to_owned(), source }
}

/// What precedes the number of a shard, the number from 1, and how many there are.
fn shard(name: &str) -> Option<(&str, u64, u64)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits =
        |text: &str| (text.len() == 5 && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok());
    Some((stem, digits(number)??, digits(count)??))
}
