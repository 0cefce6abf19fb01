//! Tensors of a file: safetensors, GGUF and .npy headers, and rows of numbers read at will.
//!
//! Only headers are read at first. A header is not trusted: its counts are checked against the file's size before
//! anything is made room for, everything kept has a cap, and tensors that lie outside the file or over one another
//! are refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use thiserror::Error;

use crate::precision::WeightFormat;
use crate::precision::quantise::{self, Encoded, Refusal};

mod gguf;
mod npy;
mod safetensors;

/// Most tensors of a file.
const MAX_TENSORS: usize = 100_000;
/// Longest name of a tensor, in bytes.
const MAX_NAME: usize = 1024;
/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 8;

/// Why a file is not read.
#[derive(Debug, Error)]
pub enum TensorError {
    /// The operating system refused.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// No regular file.
    #[error("is no regular file")]
    NotAFile,
    /// None of the three kinds.
    #[error("is neither safetensors nor GGUF nor .npy")]
    Unknown,
    /// The header contradicts itself or the file.
    #[error("{kind}: {what}")]
    Header {
        /// Of which kind of file.
        kind: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The stored blocks do not fit their sizes.
    #[error(transparent)]
    Blocks(#[from] Refusal),
}

/// How numbers are stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// In a format of ours.
    As(WeightFormat),
    /// IEEE binary64, read as fp32.
    Fp64,
    /// In one that is not read.
    Other(String),
}

impl Stored {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::As(format) => format.key(),
            Self::Fp64 => "fp64",
            Self::Other(name) => name,
        }
    }

    /// Elements and bytes of a block; `None` where they are not known.
    fn block(&self) -> Option<(u64, u64)> {
        match self {
            Self::As(format) => {
                Some((format.layout().elements.into(), quantise::block_bytes(*format) as u64))
            }
            Self::Fp64 => Some((1, 8)),
            Self::Other(_) => None,
        }
    }
}

/// One tensor of a file.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Sizes, the slowest first; the last one is a row.
    pub shape: Vec<u64>,
    /// How its numbers are stored.
    pub stored: Stored,
    /// First byte in the file.
    offset: u64,
    /// Bytes in the file.
    bytes: u64,
}

impl Tensor {
    /// Weights of a row.
    pub fn columns(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Weights. Multiplied in the order in which the product was checked when the header was read.
    pub fn elements(&self) -> u64 {
        self.rows() * self.columns()
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.shape.iter().rev().skip(1).product()
    }
}

/// A file with a header that has been read and checked.
#[derive(Debug)]
pub struct TensorFile {
    /// `safetensors`, `gguf` or `npy`.
    pub kind: &'static str,
    /// Its tensors, in the order of the header.
    pub tensors: Vec<Tensor>,
    file: File,
}

impl TensorFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// It cannot be read, or its header is not to be trusted.
    pub fn open(path: &Path) -> Result<Self, TensorError> {
        // A FIFO without a writer must not hang us, nor a device be read.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(TensorError::NotAFile);
        }
        let (size, mut magic) = (metadata.len(), [0; 8]);
        let known = usize::try_from(size).unwrap_or(8).min(8);
        file.read_exact_at(&mut magic[..known], 0)?;
        let (kind, tensors) = if magic.starts_with(b"GGUF") {
            ("gguf", gguf::read(&file, size)?)
        } else if magic.starts_with(b"\x93NUMPY") {
            ("npy", npy::read(&file, size, path)?)
        } else if safetensors::is_likely(magic, size) {
            ("safetensors", safetensors::read(&file, size)?)
        } else {
            return Err(TensorError::Unknown);
        };
        check(kind, &tensors, size)?;
        Ok(Self { kind, tensors, file })
    }

    /// Reads `count` rows of a tensor, at even strides. The caller bounds `count` x columns.
    ///
    /// # Errors
    /// The file cannot be read, or is stored in a format that is not.
    pub fn rows(&self, tensor: &Tensor, count: u64) -> Result<Vec<f32>, TensorError> {
        let rows = tensor.rows();
        let count = count.min(rows);
        let stride = tensor.bytes / rows.max(1);
        let size = |bytes: u64| {
            usize::try_from(bytes).map_err(|_| header(self.kind, "a row does not fit into memory"))
        };
        let mut bytes = vec![0; size(stride * count)?];
        if count == rows {
            self.file.read_exact_at(&mut bytes, tensor.offset)?;
        } else {
            for (i, row) in bytes.chunks_mut(size(stride)?.max(1)).enumerate() {
                // Rows number fewer than the file has bytes, and what is read of them fits into memory.
                let index = u128::from(rows) * i as u128 / u128::from(count);
                self.file.read_exact_at(row, tensor.offset + stride * index as u64)?;
            }
        }
        match &tensor.stored {
            Stored::As(format) => Ok(quantise::decode(&Encoded {
                format: *format,
                rows: size(count)?,
                columns: size(tensor.columns())?,
                bytes,
                row_scales: Vec::new(),
                tensor_scale: 1.0,
            })?),
            Stored::Fp64 => {
                let eight = |bytes: &[u8]| std::array::from_fn(|i| bytes[i]);
                Ok(bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(eight(bytes)) as f32).collect())
            }
            Stored::Other(name) => Err(header(self.kind, format!("{name} is not read"))),
        }
    }
}

fn header(kind: &'static str, what: impl Into<String>) -> TensorError {
    TensorError::Header { kind, what: what.into() }
}

/// A name as far as it is fit to be shown.
fn shown(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Bytes of a tensor of `shape`; `None` where they are beyond counting or a row is no whole number of blocks.
fn bytes_of(shape: &[u64], (elements, bytes): (u64, u64)) -> Option<u64> {
    let columns = shape.last().copied().unwrap_or(1);
    let rows = shape.iter().rev().skip(1).try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    rows.checked_mul(columns)?;
    if !columns.is_multiple_of(elements) {
        return None;
    }
    rows.checked_mul(columns / elements)?.checked_mul(bytes)
}

/// Every tensor lies within the file, and no two over one another.
fn check(kind: &'static str, tensors: &[Tensor], size: u64) -> Result<(), TensorError> {
    let mut places = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let end = tensor.offset.checked_add(tensor.bytes).filter(|end| *end <= size).ok_or_else(|| {
            header(kind, format!("tensor {} ends beyond the file; is it cut off?", shown(&tensor.name)))
        })?;
        if tensor.bytes > 0 {
            places.push((tensor.offset, end, &tensor.name));
        }
    }
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(header(
            kind,
            format!("tensors {} and {} lie over one another", shown(pair[0].2), shown(pair[1].2)),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
