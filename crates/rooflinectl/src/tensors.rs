//! Weights of a model's files, read by rows at will.
//!
//! The table of tensors is that of [`modelfile`], which checks it against the files before anything of it is believed;
//! here are the bytes behind it, and what they mean.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use thiserror::Error;

use rooflined_advice::modelfile::{self, ModelFileError};
use rooflined_core::precision::quantise::{self, Encoded, Refusal};
use rooflined_models::block::Block;
use rooflined_models::import::Tensor;

/// Why weights are not read.
#[derive(Debug, Error)]
pub enum TensorError {
    /// There is no model at the path, or it is damaged.
    #[error(transparent)]
    Model(#[from] ModelFileError),
    /// The operating system refused.
    #[error("the weights cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A row does not fit into memory.
    #[error("tensor {0:?} has rows that do not fit into memory")]
    Row(String),
    /// Numbers that are not read.
    #[error("{0} is not read")]
    Storage(Block),
    /// The stored blocks do not fit their sizes.
    #[error(transparent)]
    Blocks(#[from] Refusal),
}

impl TensorError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Model(error) => error.hint(),
            _ => "give a safetensors or GGUF file of fp32, fp16 or bf16 weights",
        }
    }
}

/// Whether numbers stored so can be decoded without scales that are stored elsewhere.
pub fn is_readable(block: Block) -> bool {
    block == Block::F64 || block.packed_as().is_some()
}

/// Rows and columns of a tensor; a vector is one row, and leading dimensions count rows.
pub fn sizes(tensor: &Tensor) -> (u64, u64) {
    let (matrices, rows, columns) = tensor.matrix();
    (matrices.saturating_mul(rows), columns)
}

/// The files of a model with a table of tensors that has been checked.
#[derive(Debug)]
pub struct TensorFile {
    /// `safetensors` or `gguf`.
    pub kind: &'static str,
    /// Its tensors, in the order of the headers.
    pub tensors: Vec<Tensor>,
    files: Vec<File>,
}

impl TensorFile {
    /// Opens the files of a model and reads their headers.
    ///
    /// # Errors
    /// They cannot be read, or a header is not to be trusted.
    pub fn open(path: &Path) -> Result<Self, TensorError> {
        let table = modelfile::table(path)?;
        let files = table.files.iter().map(|path| modelfile::open(path).map(|(file, _)| file));
        Ok(Self { kind: table.kind, tensors: table.tensors, files: files.collect::<Result<_, _>>()? })
    }

    /// Reads `count` rows of a tensor, at even strides. The caller bounds `count` x columns.
    ///
    /// # Errors
    /// The file cannot be read, or is stored in a format that is not.
    pub fn rows(&self, tensor: &Tensor, count: u64) -> Result<Vec<f32>, TensorError> {
        let (rows, columns) = sizes(tensor);
        let count = count.min(rows);
        let stride = tensor.bytes / rows.max(1);
        let fits = |bytes: Option<u64>| {
            bytes
                .and_then(|bytes| usize::try_from(bytes).ok())
                .ok_or_else(|| TensorError::Row(tensor.name.clone()))
        };
        let Some(file) = self.files.get(tensor.file) else {
            return Err(TensorError::Row(tensor.name.clone()));
        };
        let mut bytes = vec![0; fits(stride.checked_mul(count))?];
        if count == rows {
            file.read_exact_at(&mut bytes, tensor.offset)?;
        } else {
            for (i, row) in bytes.chunks_mut(fits(Some(stride))?.max(1)).enumerate() {
                // Rows number fewer than the file has bytes, and what is read of them fits into memory.
                let index = u128::from(rows) * i as u128 / u128::from(count);
                file.read_exact_at(row, tensor.offset + stride * index as u64)?;
            }
        }
        if tensor.block == Block::F64 {
            let eight = |bytes: &[u8]| std::array::from_fn(|i| bytes[i]);
            return Ok(bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(eight(bytes)) as f32).collect());
        }
        let format = tensor.block.packed_as().ok_or(TensorError::Storage(tensor.block))?;
        Ok(quantise::decode(&Encoded {
            format,
            rows: fits(Some(count))?,
            columns: fits(Some(columns))?,
            bytes,
            row_scales: Vec::new(),
            tensor_scale: 1.0,
        })?)
    }
}

#[cfg(test)]
mod tests;
