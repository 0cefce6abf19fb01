//! Why a file is no network that can be read.

use std::io;

use thiserror::Error;

/// Longest part of a message that repeats a file's own words.
const MAX_WORDS: usize = 120;
/// Most dimensions that a message lists.
const MAX_LISTED: usize = 12;

/// Why a file is no network that can be read. Messages follow the file's name.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The source of the bytes failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not those of an ONNX model.
    #[error("is not an ONNX file: {0}")]
    NotOnnx(String),
    /// The file ends too early, or a length in it is wrong.
    #[error("is cut: {what} at byte {at} needs {needed} bytes, and {available} are left")]
    Cut { what: &'static str, at: u64, needed: u64, available: u64 },
    /// More of something than any network has.
    #[error("has more than {limit} {what}")]
    TooMany { what: &'static str, limit: u64 },
    /// A version of the operator set whose rules are not known here.
    #[error("is of operator set {0}; 11 to 22 are read")]
    Opset(u64),
    /// An input of which the file gives no shape.
    #[error("gives no shape for input {:?}", shown(.0))]
    NoShape(String),
    /// Open dimensions without a value: each with the name to give it by.
    #[error("has no value for {}", .0.iter().take(MAX_LISTED).map(Open::in_words).collect::<Vec<_>>().join(", "))]
    Open(Vec<Open>),
    /// A value for a dimension that no input has.
    #[error("has no input with an open dimension {name:?}; open ones: {}", list(known))]
    NoSuchDimension { name: String, known: Vec<String> },
    /// A size for a picture whose size is fixed, or where no input is a picture.
    #[error("has no input whose height and width are open; its inputs are {0}")]
    NoOpenPicture(String),
    /// A node reads what nothing writes, or nodes wait for each other.
    #[error("cannot run: node {node:?} reads tensor {tensor:?}, {reason}")]
    Unwritten { node: String, tensor: String, reason: &'static str },
    /// More elements or dimensions than any tensor has.
    #[error("cannot run: tensor {0:?} is too large")]
    TooLarge(String),
    /// Data of a tensor that are not as long as its sizes need. None at all are left out, not damaged.
    #[error("cannot run: tensor {tensor:?} has {stored} bytes of data, and its sizes need {needed}")]
    Data { tensor: String, stored: u64, needed: u64 },
    /// Two nodes write one tensor.
    #[error("cannot run: tensor {0:?} is written twice")]
    WrittenTwice(String),
    /// Sizes that contradict an operator.
    #[error("cannot run: node {node:?} ({operator}): {reason}")]
    Shape { node: String, operator: String, reason: String },
    /// A subgraph whose work depends on values that only a run knows.
    #[error("runs a subgraph: how often node {node:?} ({operator}) does is known only at run time")]
    Subgraph { node: String, operator: String },
}

/// A dimension without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The name of the input.
    pub input: String,
    /// The name that `--dim` takes.
    pub name: String,
    /// Whether it is the height or width of a picture, which `--size` gives.
    pub is_picture: bool,
}

impl Open {
    /// The beginning of its name.
    #[must_use]
    pub fn shown_name(&self) -> String {
        shown(&self.name)
    }

    fn in_words(&self) -> String {
        format!("dimension `{}` of input `{}`", self.shown_name(), shown(&self.input))
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().take(MAX_LISTED).map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}

/// The beginning of a file's own words.
pub(super) fn shown(words: &str) -> String {
    words.chars().take(MAX_WORDS).filter(|letter| !letter.is_control()).collect()
}

impl NetworkError {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Open(open) => {
                let named = open.iter().take(MAX_LISTED).filter(|open| !open.is_picture);
                let mut options: Vec<_> =
                    named.map(|open| format!("--dim {}=1", open.shown_name())).collect();
                if open.iter().any(|open| open.is_picture) {
                    options.push("--size 640x640".to_owned());
                }
                let sizes = format!("add {}, with your own sizes", options.join(" "));
                // Exporters of text models call their tokens so.
                if open.iter().any(|open| open.input == "input_ids") {
                    return format!(
                        "it reads tokens of text: for tokens per second name the model's key, .gguf or config.json; for one run, {sizes}"
                    );
                }
                sizes
            }
            Self::Opset(_) => {
                "export it again with opset_version=17, or convert it with onnx.version_converter".to_owned()
            }
            Self::NoShape(_) => "export it again with the shapes of its inputs".to_owned(),
            Self::NoSuchDimension { .. } => "give one of the open dimensions".to_owned(),
            Self::NoOpenPicture(_) => "leave out --size, or export with open height and width".to_owned(),
            Self::Io(_) | Self::NotOnnx(_) | Self::Cut { .. } => {
                "check that the file is complete; export it again with torch.onnx.export".to_owned()
            }
            Self::TooMany { .. } => {
                "check that the file is what you expect: no network is this large".to_owned()
            }
            Self::Unwritten { .. }
            | Self::WrittenTwice(_)
            | Self::TooLarge(_)
            | Self::Data { .. }
            | Self::Shape { .. } => {
                "check the file with onnx.checker, and the sizes of --dim and --size".to_owned()
            }
            Self::Subgraph { .. } => {
                "export the network without its loop: usually that is the selection of boxes after it"
                    .to_owned()
            }
        }
    }
}
