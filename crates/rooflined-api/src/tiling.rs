//! `POST /v1/tiling`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::OperatingPointRequest;

/// Candidates where the request does not say how many.
pub const DEFAULT_TILES: u64 = 8;
/// Most candidates of one answer; there are no more than blocks and splits.
pub const MOST_TILES: u64 = 128;

/// `POST /v1/tiling`: how to cut an `m x n x k` product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TilingRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = now; of other hardware, its reference clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Rows of the product, `m`.
    pub m: u64,
    /// Columns of the product, `n`.
    pub n: u64,
    /// Common dimension of the operands, `k`.
    pub k: u64,
    /// Storage of the weights, the `n x k` operand; absent = fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How many candidates, 1 to 128; absent = 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// `POST /v1/tiling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TilingAnswer {
    /// Key of the hardware.
    pub hardware: String,
    /// Name for people.
    pub name: String,
    /// SMs online.
    pub sm_online: u32,
    /// GPU clock at which the SMs run; `null` where unknown.
    pub gpu_hz: Option<f64>,
    /// Weight format, the storage of the `n x k` operand.
    pub format: String,
    /// What it is computed in.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub compute: String,
    /// Limits of one SM: threads, blocks, registers, shared memory.
    pub limits: SmLimitsAnswer,
    /// Size of the second-level cache.
    pub l2_bytes: Option<f64>,
    /// Physical bound of the roofline.
    pub roofline_time_s: f64,
    /// Fastest first: the best variant of each block and split.
    pub candidates: Vec<TileAnswer>,
    /// Why the first is first.
    pub reason: String,
    /// Number of variants that were evaluated.
    pub considered: usize,
    /// Variants that do not fit, by what they need too much of.
    pub rejected: BTreeMap<String, usize>,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on; 0 without a daemon.
    pub serial: u64,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What one streaming multiprocessor (SM) holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SmLimitsAnswer {
    /// CUDA compute capability.
    pub compute_capability: String,
    /// Most resident threads.
    pub threads: u32,
    /// Most resident blocks.
    pub blocks: u32,
    /// Number of 32-bit registers.
    pub registers: u32,
    /// Shared memory of the SM.
    pub shared_memory_bytes: u32,
    /// Shared memory of one block.
    pub block_shared_memory_bytes: u32,
    /// Shared memory that the system takes in addition to each block's own.
    pub reserved_shared_memory_bytes: u32,
}

/// One way to cut the product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TileAnswer {
    /// Rows of a block.
    pub m: u32,
    /// Columns of a block.
    pub n: u32,
    /// Step along the common dimension.
    pub k: u32,
    /// Buffers of operands.
    pub stages: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Parts that the common dimension is cut into.
    pub split_k: u32,
    /// Blocks in all.
    pub tiles: u64,
    /// Rounds in which all places are filled.
    pub waves: f64,
    /// Part of the rounds that is filled.
    pub wave_efficiency_ratio: f64,
    /// Part of the arithmetic that is not padding.
    pub tile_efficiency_ratio: f64,
    /// Shared memory of a block.
    pub shared_memory_bytes: u32,
    /// Registers of a thread, estimated.
    pub registers_per_thread: u32,
    /// Blocks resident on one SM.
    pub resident_blocks: u32,
    /// `blocks`, `threads`, `shared_memory` or `registers`.
    #[cfg_attr(test, schema(value_type = crate::schema::Resource))]
    pub resident_limited_by: String,
    /// Resident warps over the most there can be.
    pub occupancy_ratio: f64,
    /// What one block reads.
    pub tile_bytes: f64,
    /// Operations for a byte that a block reads.
    pub tile_intensity_flops_per_byte: f64,
    /// From memory if every block read for itself.
    pub dram_without_reuse_bytes: f64,
    /// From memory with the second-level cache.
    pub dram_bytes: f64,
    /// The former over the latter.
    pub l2_reuse_ratio: f64,
    /// Estimated time; a ranking, not a measurement.
    pub time_s: f64,
    /// Part of it that the launch takes.
    pub launch_s: f64,
    /// Time of the arithmetic; it overlaps with the next two.
    pub compute_s: f64,
    /// Time of the traffic to and from shared memory.
    pub shared_memory_s: f64,
    /// Time of the traffic to and from main memory.
    pub dram_s: f64,
    /// `compute`, `shared_memory`, `dram` or `launch`.
    #[cfg_attr(test, schema(value_type = crate::schema::TileLimit))]
    pub limit: String,
    /// What the variant loses, in a sentence.
    pub reason: String,
}
