//! Networks in ONNX files. Only the graph is read; weights, in the file or beside it, are left where they are.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use thiserror::Error;

use crate::modelfile::{self, ModelFileError};
use rooflined_api::NetworkFile;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::network::{self, Dimensions, Network, NetworkError, Open};

/// Most open dimensions that a hint lists.
const MAX_LISTED: usize = 12;
/// Longest message about a file, which may repeat its own words.
const MAX_MESSAGE: usize = 2000;

/// Why a path is no network.
#[derive(Debug, Error)]
pub enum NetworkFileError {
    /// There is no such file, or it is something else than a file.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// What it holds cannot be read as a network.
    #[error("{} {source}", path.display())]
    Network {
        path: PathBuf,
        #[source]
        source: NetworkError,
    },
}

impl NetworkFileError {
    /// What to do next, in the options of `rooflinectl`.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint().to_owned(),
            Self::Network { source, .. } => source.hint(),
        }
    }

    /// The same in the fields of a request that names the file at `at`.
    #[must_use]
    pub fn refusal(&self, at: &str) -> Refusal {
        let unreadable = (Code::UnreadableModel, "path");
        let ((code, field), hint) = match self {
            Self::File(error) => ((error.code(), "path"), self.hint()),
            Self::Network { source, .. } => match source {
                NetworkError::Open(open) => {
                    let names = open.iter().take(MAX_LISTED).map(Open::shown_name);
                    let sizes: Vec<_> = names.map(|name| format!("{name:?}: 1")).collect();
                    let hint = format!(
                        "add \"dimensions\": {{{}}} with your own sizes; \"size\": [640, 640] gives those of pictures",
                        sizes.join(", ")
                    );
                    ((Code::MissingField, "dimensions"), hint)
                }
                NetworkError::NoSuchDimension { .. } => ((Code::InvalidField, "dimensions"), source.hint()),
                NetworkError::NoOpenPicture(_) => {
                    let hint = "leave size out, or export with open height and width";
                    ((Code::InvalidField, "size"), hint.to_owned())
                }
                NetworkError::Shape { .. } | NetworkError::TooLarge(_) => {
                    (unreadable, "check the file with onnx.checker, and the sizes that you give".to_owned())
                }
                _ => (unreadable, source.hint()),
            },
        };
        let message: String = self.to_string().chars().take(MAX_MESSAGE).collect();
        code.at(format!("{at}.{field}"), message, hint)
    }
}

/// Whether a path is read as a network: its name ends in `.onnx`.
#[must_use]
pub fn is_network(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"))
}

/// The sizes that `file`, which a request names at `at`, gives to open dimensions.
///
/// # Errors
/// Names a size that no dimension has.
pub fn dimensions(file: &NetworkFile, at: &str) -> Result<Dimensions, Refusal> {
    let size = file.size.map(|[height, width]| (height, width));
    let dimensions = Dimensions { values: file.dimensions.clone(), size };
    dimensions.check().map_err(|problem| Code::InvalidField.at(at, problem, "give whole numbers above 0"))?;
    Ok(dimensions)
}

/// Reads the network at `path`, with these values for the dimensions that it leaves open.
///
/// # Errors
/// Names the file and what is wrong with it, or the dimension that has no value.
pub fn load(path: &Path, dimensions: &Dimensions) -> Result<Network, NetworkFileError> {
    load_beneath(None, path, dimensions, modelfile::latest())
}

/// The same until then, of a file that has to lie beneath `root`, if there is one.
///
/// # Errors
/// As [`load`], [`ModelFileError::Outside`] and [`ModelFileError::Slow`].
pub fn load_beneath(
    root: Option<&Path>,
    path: &Path,
    dimensions: &Dimensions,
    until: Instant,
) -> Result<Network, NetworkFileError> {
    let (file, length) = modelfile::open_beneath(root, path)?;
    let mut network = read(TimedFile { file, until }, length, path, dimensions)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    network.missing.retain(|beside| !is_there(directory, beside));
    Ok(network)
}

/// Whether `directory` has the file at `beside`, which the network's file chose: only below it is looked.
fn is_there(directory: &Path, beside: &str) -> bool {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    Path::new(beside).components().all(inside) && directory.join(beside).is_file()
}

/// Reads the network in `source`, which has `length` bytes; errors name `path`.
///
/// # Errors
/// As [`load`].
pub fn read(
    mut source: impl Read + Seek,
    length: u64,
    path: &Path,
    dimensions: &Dimensions,
) -> Result<Network, NetworkFileError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    network::read(&mut source, length, &name, dimensions).map_err(|error| {
        let instead = match &error {
            NetworkError::Io(error) if error.kind() == io::ErrorKind::TimedOut => Some(ModelFileError::Slow),
            NetworkError::NotOnnx(_) | NetworkError::Cut { .. } => modelfile::foreign(&mut source, path),
            _ => None,
        };
        match instead {
            Some(instead) => instead.into(),
            None => NetworkFileError::Network { path: path.to_owned(), source: error },
        }
    })
}

/// A file that is read until then.
struct TimedFile {
    file: File,
    until: Instant,
}

impl Read for TimedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

impl Seek for TimedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
