//! One vision network at one operating point: the request of a prediction, and part of an observation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OperatingPointRequest, nullable, numbers};
use rooflined_core::names::{NetworkEngine, NetworkScope};

/// A network in an ONNX file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkFile {
    /// A file below a directory of `[models] dirs`, read for 30 s at most.
    pub path: String,
    /// Sizes of dimensions that the file leaves open, by their names, such as `batch`, or by input and place, such as `images.0`.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub dimensions: BTreeMap<String, u64>,
    /// Height and width of the picture, where the file leaves them open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[u64; 2]>,
}

/// `POST /v1/networks/predict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkPredictRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// An ONNX file, or the layers that `rooflinectl` reads from it.
    #[serde(default, deserialize_with = "numbers::without_point")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::NetworkChoice>))]
    pub network: Option<Value>,
    /// `tensorrt` or `onnxruntime`. Absent: TensorRT on a GPU, ONNX Runtime on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::NetworkEngine>))]
    pub engine: Option<NetworkEngine>,
    /// What the engine computes in: `fp16`, `int8` or `tf32` with TensorRT; `fp32`, `tf32`, `fp16` or `int8` with ONNX Runtime. Layers
    /// that the file has in 8 bits stay in them. Absent: `int8` for such a file, else `fp16` on a GPU and `fp32` on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Precision>))]
    pub precision: Option<String>,
    /// Pictures in one run. Absent: as many as in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// What the latency covers: `engine`, `copies` or `frame`.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::NetworkScope))]
    pub scope: NetworkScope,
    /// Worker threads, where the CPU is the accelerator. Absent: one for every physical core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}
