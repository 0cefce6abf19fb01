//! Networks in ONNX files on disk. Only the graph is read; weights, in the file or beside it, are left where they are.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::modelfile::{self, ModelFileError};
use rooflined_models::network::{self, Dimensions, Network, NetworkError};

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
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint().to_owned(),
            Self::Network { source, .. } => source.hint(),
        }
    }
}

/// Whether a path is read as a network: its name ends in `.onnx`.
#[must_use]
pub fn is_network(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"))
}

/// Reads the network at `path`, with these values for the dimensions that it leaves open.
///
/// # Errors
/// Names the file and what is wrong with it, or the dimension that has no value.
pub fn load(path: &Path, dimensions: &Dimensions) -> Result<Network, NetworkFileError> {
    let (file, length) = modelfile::open(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    network::read(file, length, &name, dimensions).map_err(|source| {
        let broken = matches!(source, NetworkError::NotOnnx(_) | NetworkError::Cut { .. });
        match modelfile::foreign(path).filter(|_| broken) {
            Some(other) => other.into(),
            None => NetworkFileError::Network { path: path.to_owned(), source },
        }
    })
}
