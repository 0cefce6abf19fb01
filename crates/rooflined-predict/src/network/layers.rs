//! A network as engines run it: one layer for each kernel, small enough to be sent.

use rooflined_core::keyed;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most layers of a network that is taken from a client.
const MAX_LAYERS: usize = 20_000;
/// Largest number of elements or operations that a layer may have.
const MAX_COUNT: f64 = 1e18;

keyed! {
    /// What kind of kernel runs a layer.
    LayerKind {
        /// A window larger than 1x1.
        Convolution = "convolution",
        /// A window of 1x1: a matrix product over channels.
        Pointwise = "pointwise",
        /// A window over each channel alone.
        Depthwise = "depthwise",
        /// A matrix product with constant weights.
        Product = "product",
        /// A matrix product of two activations, with the softmax behind it.
        Attention = "attention",
        /// Activations and arithmetic that no other layer takes along.
        Elementwise = "elementwise",
        /// Normalisation, softmax or a reduction.
        Normalization = "normalization",
        /// Pooling, interpolation and what is not described further.
        Other = "other",
        /// Bytes moved: an input of a concatenation, a transposition.
        Copy = "copy",
    }
}

impl LayerKind {
    /// Whether few published latencies have much of it.
    #[must_use]
    pub const fn is_rare(self) -> bool {
        matches!(self, Self::Depthwise | Self::Attention | Self::Elementwise | Self::Normalization)
    }

    /// Whether it is a convolution.
    #[must_use]
    pub const fn has_window(self) -> bool {
        matches!(self, Self::Convolution | Self::Pointwise | Self::Depthwise)
    }

    /// Whether it multiplies matrices or windows.
    #[must_use]
    pub const fn multiplies(self) -> bool {
        self.has_window() || matches!(self, Self::Product | Self::Attention)
    }
}

/// What one kernel computes and moves, for the batch of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// As the file calls its first node.
    pub name: String,
    pub kind: LayerKind,
    /// Twice the multiply-adds; 0 for what multiplies nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flops: f64,
    /// Elements of activations that it reads.
    pub reads: f64,
    /// Elements of activations that it writes.
    pub writes: f64,
    /// Elements of its weights.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weights: f64,
    /// Products that are summed up for one result.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inner: f64,
    /// Channels written in one group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub columns: f64,
    /// Positions of the window: 9 for 3x3.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window: f64,
    /// Elements that a core works on one by one, as exponentials and transpositions do, in those of a sigmoid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exponentials: f64,
    /// Elements of activations that an engine without fusion writes and reads again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart: f64,
    /// Kernels that such an engine starts in addition.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart_kernels: f64,
    /// The file has its operands in 8 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quantised: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Layer {
    /// Operations with channels padded to a multiple of `pad`, as kernels compute them; depthwise ones are not padded.
    #[must_use]
    pub fn padded_flops(&self, pad: f64) -> f64 {
        if matches!(self.kind, LayerKind::Depthwise | LayerKind::Attention) || pad <= 1.0 {
            return self.flops;
        }
        let grown =
            |channels: f64| if channels > 0.0 { (channels / pad).ceil() * pad / channels } else { 1.0 };
        let read = self.inner / self.window.max(1.0);
        self.flops * grown(read) * grown(self.columns)
    }
}

/// A network as engines run it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// Name of the network.
    pub name: String,
    /// Pictures in one run of the file as it is.
    pub batch: u64,
    /// Inputs with their sizes.
    pub inputs: Vec<(String, Vec<u64>)>,
    /// Elements of all inputs.
    pub input_elements: f64,
    /// Elements of all outputs.
    pub output_elements: f64,
    /// Trained numbers.
    pub parameters: f64,
    /// Most elements of activations that are needed at one time; `None` where a size is unknown.
    pub live_elements: Option<f64>,
    /// Nodes whose sizes only a run knows; they count for nothing here.
    pub unknown_nodes: u64,
    /// Operators whose work is unknown: no rule describes them, or they have weights, and only a run knows their sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undescribed: Vec<String>,
    /// Names of the inputs of which the file leaves sizes open. Without any, an engine runs this batch only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_inputs: Vec<String>,
    /// Files with weights that are missing next to the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    pub layers: Vec<Layer>,
}

/// Why a network from a client cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidLayers {
    #[error("the network has {0} layers; 1 to {MAX_LAYERS} are taken")]
    Count(usize),
    #[error("the network's batch is 0")]
    Batch,
    #[error("layer {layer:?} has {value} as its {field}; 0 to {MAX_COUNT:e} is taken")]
    Number { layer: String, field: &'static str, value: f64 },
}

impl Layers {
    /// Whether any layer computes in 8 bits because the file says so.
    #[must_use]
    pub fn quantised(&self) -> bool {
        self.layers.iter().any(|layer| layer.quantised)
    }

    /// Whether the file is of another batch than `batch` and cannot be given that one.
    #[must_use]
    pub const fn fixes(&self, batch: u64) -> bool {
        self.open_inputs.is_empty() && self.batch != batch
    }

    /// Twice the multiply-adds of one picture.
    #[must_use]
    pub fn flops(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a batch is a small number")]
        let batch = self.batch as f64;
        self.layers.iter().map(|layer| layer.flops).sum::<f64>() / batch
    }

    /// Checks what a client sent.
    ///
    /// # Errors
    /// The first count that cannot be.
    pub fn check(&self) -> Result<(), InvalidLayers> {
        if self.layers.is_empty() || self.layers.len() > MAX_LAYERS {
            return Err(InvalidLayers::Count(self.layers.len()));
        }
        if self.batch == 0 {
            return Err(InvalidLayers::Batch);
        }
        let fits = |value: f64| (0.0..=MAX_COUNT).contains(&value);
        let wrong = |layer: &str, fields: &[(&'static str, f64)]| {
            let wrong = fields.iter().find(|(_, value)| !fits(*value));
            wrong.map_or(Ok(()), |&(field, value)| {
                Err(InvalidLayers::Number { layer: layer.chars().take(64).collect(), field, value })
            })
        };
        wrong(
            "(all)",
            &[
                ("input_elements", self.input_elements),
                ("output_elements", self.output_elements),
                ("parameters", self.parameters),
                ("live_elements", self.live_elements.unwrap_or_default()),
            ],
        )?;
        self.layers.iter().try_for_each(|layer| {
            wrong(
                &layer.name,
                &[
                    ("flops", layer.flops),
                    ("reads", layer.reads),
                    ("writes", layer.writes),
                    ("weights", layer.weights),
                    ("inner", layer.inner),
                    ("columns", layer.columns),
                    ("window", layer.window),
                    ("exponentials", layer.exponentials),
                    ("apart", layer.apart),
                    ("apart_kernels", layer.apart_kernels),
                ],
            )
        })
    }
}
