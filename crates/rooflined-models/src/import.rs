//! Models from files: bytes in, [`Model`](super::model::Model) out. Only headers are read.
//!
//! Readers take any [`std::io::Read`] and ask it for no more than the header; opening files is an adapter's work. What
//! a file claims is never believed before it has been checked against how large the file is and against the limits
//! here, so a hostile file costs bounded time and memory.

use std::io;

use thiserror::Error;

use super::architecture::InvalidModel;
use super::block::Block;
use super::foreign::Foreign;

mod assemble;
pub mod config;
mod expression;
mod families;
mod fields;
pub mod gguf;
mod header;
mod label;
mod metadata;
mod names;
mod packing;
pub mod projector;
pub mod quantisation;
pub mod safetensors;
mod tower;

pub use names::Names;
pub use packing::Packing;

/// The family of a file that names none.
pub(crate) const UNNAMED: &str = "unknown";
/// What a reader of an encoder's figures should know.
const ENCODER: &str = "it is an encoder, which embeds or ranks documents: it has no decode, no cache and no head, and \
     predictions are of documents";
/// Most tensors of a model, over all its files.
pub const MAX_TENSORS: u64 = 1 << 18;
/// Longest name of a tensor or key in bytes.
pub const MAX_NAME: u64 = 512;
/// Longest part of a message that repeats a file's own words.
const MAX_WORDS: usize = 200;
/// Distinct combinations of use, storage and shape; real models have below a hundred.
pub(super) const MAX_GROUPS: usize = 4096;

/// Why a file is no model that we can read.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The source of the bytes failed.
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
    /// The first bytes are those of something else.
    #[error("is not a {expected} file: it starts with \"{found}\"")]
    Magic { expected: &'static str, found: String },
    /// It is of a kind that is known, and holds no model.
    #[error("is {}", .0.what)]
    Foreign(&'static Foreign),
    /// A version that we do not know.
    #[error("is GGUF version {0}; versions 1 to 3 are known")]
    Version(u32),
    /// The file ends too early.
    #[error("is cut: {what} needs {needed} bytes and the file has {available}")]
    Cut {
        what: String,
        /// Length of the file that it would need.
        needed: u64,
        available: u64,
    },
    /// More of something than any model has.
    #[error("claims {count} {what}; at most {limit} are read")]
    TooMany { what: &'static str, count: u64, limit: u64 },
    /// More than is read of all files of a model together.
    #[error("the files of this model have more than {limit} {what}, of which no more is read")]
    Budget { what: &'static str, limit: u64 },
    /// A number that stands for no type.
    #[error("{what} is of unknown type {number}")]
    UnknownType { what: String, number: String },
    /// A number that stands for a type of another program.
    #[error("{what} is of type {number}, which {whose}")]
    ForeignType { what: String, number: u32, whose: &'static str },
    /// Arrays in arrays in arrays.
    #[error("nests arrays more than {0} deep in {1}")]
    Nested(usize, String),
    /// Big-endian or otherwise not read as data.
    #[error("is big-endian: its header is read, its weights are not")]
    BigEndian,
    /// Two of the same name.
    #[error("holds {what} {name:?} twice")]
    Duplicate {
        /// `tensor` or `key`.
        what: &'static str,
        name: String,
    },
    /// A tensor that cannot be.
    #[error("tensor {name:?} {reason}")]
    Tensor { name: String, reason: String },
    /// Two tensors claim the same bytes.
    #[error("tensors {first:?} and {second:?} overlap")]
    Overlap {
        /// The one that starts first.
        first: String,
        second: String,
    },
    /// A value of the wrong kind or out of range.
    #[error("{field} {reason}")]
    Field { field: String, reason: String },
    /// A field of a file that may be right, of a form that nothing here describes.
    #[error("{field} {reason}")]
    Undescribed { field: String, reason: String },
    /// A field that a family has no default for.
    #[error("{field} is not given, and architecture {family:?} has no default for it")]
    Missing { field: String, family: String },
    /// Something else than a model that generates text.
    #[error("is {what} and generates no text")]
    NotText { what: String, instead: &'static str },
    /// JSON that does not parse.
    #[error("holds no valid {what}: {error}")]
    Json {
        what: &'static str,
        /// Where it went wrong.
        error: String,
    },
    /// A family that nothing here describes, without weights that would tell.
    #[error("is of architecture {0:?}, which is not known")]
    Family(String),
    /// A tower that nothing here describes.
    #[error("has the tower {0:?} for pictures or sound, whose sizes are not known")]
    Tower(String),
    /// A configuration that names no family.
    #[error("does not say what it describes: it has no {0}")]
    NoFamily(&'static str),
    /// A way of quantising that nothing here describes, or of which the file says too little, without weights that would tell.
    #[error("is quantised by {0}")]
    Method(String),
    /// Shards that do not belong together.
    #[error("shards do not fit together: {0}")]
    Shards(String),
    /// An architecture that cannot exist.
    #[error("describes a model that cannot be: {0}")]
    Model(#[from] InvalidModel),
}

/// A tensor as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub block: Block,
    /// Its shape as PyTorch writes it: the contiguous dimension last. At most eight dimensions.
    pub shape: Vec<u64>,
    /// Which of the files that the table was joined from holds it, from 0.
    pub file: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Bytes in that file.
    pub bytes: u64,
}

impl Tensor {
    /// Elements; `None` where the product does not fit 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length))
    }

    /// Matrices, rows and columns: leading dimensions count matrices, and a vector is one row.
    #[must_use]
    pub fn matrix(&self) -> (u64, u64, u64) {
        match self.shape.as_slice() {
            [] => (1, 1, 1),
            [columns] => (1, 1, *columns),
            [stack @ .., rows, columns] => {
                (stack.iter().fold(1u64, |product, &length| product.saturating_mul(length)), *rows, *columns)
            }
        }
    }
}

impl From<Foreign> for ImportError {
    fn from(Foreign { what, instead }: Foreign) -> Self {
        Self::NotText { what: what.to_owned(), instead }
    }
}

impl ImportError {
    /// What stands between the name of a file and this.
    #[must_use]
    pub const fn joint(&self) -> &'static str {
        match self {
            Self::Budget { .. }
            | Self::UnknownType { .. }
            | Self::ForeignType { .. }
            | Self::Tensor { .. }
            | Self::Overlap { .. }
            | Self::Field { .. }
            | Self::Undescribed { .. }
            | Self::Missing { .. }
            | Self::Shards(_) => ": ",
            _ => " ",
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io(_) => "check the disk and the permissions",
            Self::Magic { .. } => "give a .gguf or .safetensors file, a config.json, or an .onnx file",
            Self::Foreign(kind) => kind.instead,
            Self::Version(_) | Self::UnknownType { .. } => {
                "the file may be newer than this program, or damaged: update rooflined, or fetch the file again"
            }
            Self::Cut { .. } => "the download may be incomplete: fetch it again",
            Self::TooMany { .. } | Self::Nested(..) => {
                "no model has that: the file is damaged or not what it says"
            }
            Self::Budget { .. } => {
                "give one file of the model, or a directory that holds this model alone and holds it once"
            }
            Self::BigEndian => "convert it to little-endian: gguf_convert_endian.py of llama.cpp",
            Self::Duplicate { .. } | Self::Tensor { .. } | Self::Overlap { .. } => {
                "the file is damaged or was written wrongly: fetch or convert it again"
            }
            Self::NotText { instead, .. } => instead,
            Self::ForeignType { .. } => {
                "give a file that llama.cpp reads, or the model's config.json with --format"
            }
            Self::NoFamily(_) => {
                "give the config.json that was published with the model, or its .gguf or .safetensors file"
            }
            Self::Field { .. } | Self::Model(_) => {
                "correct the field, or give the file that the model came with"
            }
            Self::Undescribed { .. }
            | Self::Missing { .. }
            | Self::Family(_)
            | Self::Tower(_)
            | Self::Method(_) => {
                "give the weights' header: a .safetensors or .gguf file tells the sizes of any model"
            }
            Self::Json { .. } => "check the file with a JSON reader, or fetch it again",
            Self::Shards(_) => {
                "fetch every file of the model into one directory, under the names it was published with"
            }
        }
    }
}

/// A name cut to what fits a message.
pub(super) fn short(name: &str) -> String {
    name.chars().take(80).collect()
}

/// What is wrong with JSON, in words that fit a message: serde repeats what it found, however long that is.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, place) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    // The parser's own words for what it found.
    let what = match what.strip_prefix("invalid type: ").or_else(|| what.strip_prefix("invalid value: ")) {
        _ if what.starts_with("EOF") => "it ends too early".to_owned(),
        Some(found) => {
            format!("it has {}", found.replacen("sequence", "a list", 1).replacen("map,", "an object,", 1))
        }
        None => what.to_owned(),
    };
    let mut words: String = what.chars().take(MAX_WORDS).collect();
    if words.len() < what.len() {
        words.push('…');
    }
    if place.is_empty() { words } else { format!("{words} at line {place}") }
}

/// Refuses tensors that share bytes or lie outside the `available` bytes of their file. Extents are (start, end, index).
fn check_extents(
    mut extents: Vec<(u64, u64, usize)>,
    available: u64,
    name: impl Fn(usize) -> String,
) -> Result<(), ImportError> {
    extents.sort_unstable();
    if let Some(&(_, end, index)) = extents.iter().find(|(_, end, _)| *end > available) {
        return Err(ImportError::Cut { what: format!("tensor {:?}", name(index)), needed: end, available });
    }
    let mut last: Option<(u64, usize)> = None;
    for (start, end, index) in extents {
        if let Some((last_end, last_index)) = last
            && start < last_end
            && start < end
        {
            return Err(ImportError::Overlap { first: name(last_index), second: name(index) });
        }
        if last.is_none_or(|(last_end, _)| end > last_end) {
            last = Some((end, index));
        }
    }
    Ok(())
}
