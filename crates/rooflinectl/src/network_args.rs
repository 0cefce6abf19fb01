//! Options about a vision network, and the request that they make of its file.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::contents;
use super::failure::Failure;
use super::input::{self, EngineChoice, ModelArgs, OpArgs, Target};
use rooflined_advice::networkfile::{self, NetworkFileError};
use rooflined_api::{NetworkPredictRequest, NetworkScope};
use rooflined_core::precision::Precision;
use rooflined_models::network::{Dimensions, Network};
use rooflined_predict::network::fuse;

/// Sizes that an ONNX file leaves open.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct DimensionArgs {
    /// Size of an open dimension of an ONNX file; may be repeated
    #[arg(long, value_name = "NAME=SIZE", value_parser = Dimensions::parse_value)]
    pub dim: Vec<(String, u64)>,
    /// Height and width of the picture, where an ONNX file leaves them open
    #[arg(long, value_name = "HxW", value_parser = Dimensions::parse_size)]
    pub size: Option<(u64, u64)>,
}

impl DimensionArgs {
    /// The same as the reader takes them.
    ///
    /// # Errors
    /// A dimension that has two sizes.
    pub fn dimensions(&self) -> Result<Dimensions, Failure> {
        let mut values = BTreeMap::new();
        for (name, value) in &self.dim {
            if values.insert(name.clone(), *value).is_some() {
                return Err(Failure::usage(format!("--dim {name} is given twice"))
                    .with_hint("give each dimension one size"));
            }
        }
        Ok(Dimensions { values, size: self.size })
    }
}

/// What is asked of a vision network.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct NetworkArgs {
    /// What the engine computes in (.onnx): fp16, int8, tf32, fp32 [default: int8 if the file is quantised, else fp16 on a GPU, fp32 on
    /// a CPU]
    #[arg(long, value_name = "PRECISION", value_parser = input::precision)]
    pub precision: Option<Precision>,
    #[command(flatten)]
    #[serde(flatten)]
    pub dimensions: DimensionArgs,
    /// What the latency covers (.onnx)
    #[arg(long, value_parser = input::one_of::<NetworkScope, 3>(SCOPES))]
    pub scope: Option<NetworkScope>,
}

/// What a latency covers.
const SCOPES: [(&str, &str); 3] = [
    ("engine", "The engine alone"),
    ("copies", "With the copies of input and output"),
    ("frame", "Everything from a decoded picture to boxes"),
];

/// The file that is asked about, where it holds a network.
#[must_use]
pub fn file(target: Option<&Target>) -> Option<&Path> {
    match target {
        Some(Target::File(path)) if networkfile::is_network(path) => Some(path),
        _ => None,
    }
}

/// Refuses a network where `command` takes models and operations alone, and says which command takes it: `instead`, in which FILE
/// stands for its file. A file that holds something else is left to the reader of models.
///
/// # Errors
/// The target is a network.
pub fn refuse_network(target: Option<&Target>, command: &str, instead: &str) -> Result<(), Failure> {
    let Some(path) = file(target) else { return Ok(()) };
    match networkfile::load(path, &Dimensions::default()) {
        Err(NetworkFileError::File(_)) => Ok(()),
        _ => Err(Failure::wrong_file(
            format!(
                "{command} takes models that write text and operations, and {} is a vision network",
                path.display()
            ),
            instead.replace("FILE", &path.display().to_string()),
        )),
    }
}

/// What to do with the measured time of a network.
pub const MEASURED: &str = "rooflinectl predict FILE prints its latency, to compare yours with; to report yours: rooflinectl observe FILE --time 12ms";

/// Refuses options of models that write text, and `others` like them: an answer about a network would ignore them.
///
/// # Errors
/// Names the first that is given.
pub fn refuse_of_models(op: &OpArgs, model: &ModelArgs, others: &[(&str, bool)]) -> Result<(), Failure> {
    let others = others.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| (*option).to_owned());
    let mut given = others.chain(input::given(&op.attention)).chain(input::given(model));
    given.next().map_or(Ok(()), |option| {
        Err(Failure::usage(format!("{option} is for models that write text, and this file holds a network"))
            .with_hint("leave it out; networks take --precision, --size, --dim, --scope, --batch and, in recommend, --min-fps, --max-time and --max-power"))
    })
}

/// Reads a network.
///
/// # Errors
/// The file, or a size that is missing or does not belong to it.
pub fn load(path: &Path, dimensions: &Dimensions) -> Result<Network, Failure> {
    networkfile::load(path, dimensions).map_err(|error| Failure::wrong_file(error.to_string(), error.hint()))
}

impl NetworkArgs {
    /// Refuses options of networks, and `others` like them, where the target is not a network.
    ///
    /// # Errors
    /// Names the first that is given; where the target is a file of another kind, says so.
    pub fn refuse(&self, target: Option<&Target>, others: &[(&str, bool)]) -> Result<(), Failure> {
        let others = others.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| (*option).to_owned());
        let Some(option) = others.chain(input::given(self)).next() else { return Ok(()) };
        if let Some(Target::File(path)) = target {
            contents::require_model(path)?;
        }
        let hint = match option.as_str() {
            "--precision" => "give the network's .onnx file; the format of a model's weights is --format",
            "--min-fps" => "give the network's .onnx file; the rate of a model is --min-tokens-per-s 20",
            _ => "give the network's .onnx file, or leave the option out",
        };
        Err(Failure::usage(format!("{option} belongs to a network in an .onnx file")).with_hint(hint))
    }

    /// The request for the network in the file at `path`.
    ///
    /// # Errors
    /// The file, a dimension without a size, or an engine that runs no networks.
    pub fn request(
        &self,
        path: &Path,
        engine: Option<EngineChoice>,
    ) -> Result<NetworkPredictRequest, Failure> {
        let network = load(path, &self.dimensions.dimensions()?)?;
        Ok(NetworkPredictRequest {
            network: Some(json!(fuse(&network))),
            engine: EngineChoice::for_networks(engine)?,
            precision: self.precision.map(|precision| precision.key().to_owned()),
            scope: self.scope.unwrap_or_default(),
            ..NetworkPredictRequest::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_missing_size_and_a_damaged_file_are_faults_of_the_command_line() {
        let file = tempfile::Builder::new().suffix(".onnx").tempfile().unwrap();
        // Relu of x, whose only dimension is n.
        let bytes = b"\x42\x02\x10\x11\x3a\x20\x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\
            \x5a\x10\x0a\x01x\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01n";
        std::fs::write(&file, bytes).unwrap();
        let missing = load(file.path(), &Dimensions::default()).unwrap_err();
        assert_eq!(
            (missing.exit(), missing.hint().as_deref()),
            (Exit::Usage, Some("add --dim n=1, with your own sizes"))
        );
        std::fs::write(&file, &bytes[..20]).unwrap();
        assert_eq!(load(file.path(), &Dimensions::default()).unwrap_err().exit(), Exit::Usage);
    }
}
