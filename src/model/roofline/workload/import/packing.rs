//! What the tensors of a checkpoint stand for: packed matrices, with scales and zero points beside them.

use std::collections::HashMap;

use super::config::Config;
use super::{ImportError, Tensor, short};
use crate::workload::block::Block;

/// A tensor as the weights it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// How the weights are stored.
    pub block: Block,
    /// Length of the output.
    pub rows: u64,
    /// Length of the input.
    pub columns: u64,
    /// Matrices stacked in it.
    pub matrices: u64,
    /// Weights; 0 for scales and other helpers.
    pub parameters: u64,
}

/// Modules of a checkpoint: a matrix and what belongs to it.
pub(super) struct Modules<'a> {
    parts: HashMap<&'a str, &'a Tensor>,
}

/// Names of what stands beside a packed matrix and holds no weights of its own.
const HELPERS: &[&str] = &[
    "scales",
    "qzeros",
    "g_idx",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "input_scale",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "activation_scale",
    "SCB",
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
];

impl<'a> Modules<'a> {
    /// The modules of a table.
    pub fn of(tensors: &'a [Tensor]) -> Self {
        Self { parts: tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect() }
    }

    fn beside(&self, module: &str, part: &str) -> Option<&'a Tensor> {
        self.parts.get(format!("{module}.{part}").as_str()).copied()
    }

    /// The weights that a tensor stands for.
    pub fn packing(&self, tensor: &Tensor, config: Option<&Config>) -> Result<Packing, ImportError> {
        let (matrices, rows, columns) = tensor.matrix();
        let plain = tensor.elements().unwrap_or(0);
        let (module, part) = tensor.name.rsplit_once('.').unwrap_or(("", &tensor.name));
        if HELPERS.contains(&part) || part.starts_with("bitsandbytes__") || part.ends_with("_scales") {
            return Ok(Packing {
                block: self.host(module, part, tensor),
                rows: 1,
                columns: 0,
                matrices: 0,
                parameters: 0,
            });
        }
        let packed = |block, rows: u64, columns: u64, matrices: u64| {
            let parameters = rows.checked_mul(columns).and_then(|area| area.checked_mul(matrices));
            parameters.map(|parameters| Packing { block, rows, columns, matrices, parameters }).ok_or_else(
                || ImportError::Tensor {
                    name: short(&tensor.name),
                    reason: format!("has the impossible shape {:?}", tensor.shape),
                },
            )
        };
        // Lists of modules are asked only for what may be packed in more than one way.
        let found = config.and_then(|config| config.quantisation.as_ref());
        let bits = || found.and_then(|found| found.bits_of(module));
        match (part, tensor.block) {
            ("qweight", Block::I32) => {
                let (rows, columns, block) = self.integers(module, rows, columns, bits().unwrap_or(4))?;
                packed(block, rows, columns, 1)
            }
            ("weight_packed", Block::I32) => {
                let bits = bits().filter(|bits| matches!(bits, 2 | 3 | 4 | 8)).unwrap_or(4);
                let columns = columns.saturating_mul(32) / bits;
                let block = if bits == 8 { Block::I8 } else { self.grouped(module, "weight_scale", columns) };
                packed(block, rows, columns, matrices)
            }
            ("weight_packed", Block::I8) => packed(Block::Nvfp4, rows, columns.saturating_mul(2), matrices),
            ("weight", Block::I8) if self.beside(module, "weight.absmax").is_some() => {
                // bitsandbytes flattens the matrix: its shape is in a tensor, which is not read.
                packed(Block::Nf4, 1, plain.saturating_mul(2), 1)
            }
            ("weight", Block::I8 | Block::Int4) => {
                match self.beside(module, "weight_scale").map(|scale| scale.block) {
                    Some(Block::Fp8E4m3) => {
                        let per_byte = if tensor.block == Block::I8 { 2 } else { 1 };
                        packed(Block::Nvfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    Some(Block::E8m0 | Block::I8) => {
                        let per_byte = if tensor.block == Block::I8 { 2 } else { 1 };
                        packed(Block::Mxfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    _ => packed(tensor.block, rows, columns, matrices),
                }
            }
            (part, Block::I8) if part.ends_with("_blocks") => {
                // experts x rows x groups x 16 bytes of two weights
                let [experts, rows, groups, bytes] = tensor.shape[..] else {
                    return packed(Block::Mxfp4, rows, columns.saturating_mul(2), matrices);
                };
                packed(Block::Mxfp4, rows, groups.saturating_mul(bytes).saturating_mul(2), experts)
            }
            _ => Ok(Packing { block: tensor.block, rows, columns, matrices, parameters: plain }),
        }
    }

    /// Rows, columns and storage of an AWQ or GPTQ matrix: the scales beside it tell which of its sides is packed.
    fn integers(
        &self,
        module: &str,
        first: u64,
        second: u64,
        bits: u64,
    ) -> Result<(u64, u64, Block), ImportError> {
        let bits = if matches!(bits, 2 | 3 | 4 | 8) { bits } else { 4 };
        let scales = self.beside(module, "scales").map(Tensor::matrix);
        let (rows, columns, gptq) = match scales {
            Some((_, _, outputs)) if outputs == second => (second, first.saturating_mul(32) / bits, true),
            None => (second, first.saturating_mul(32) / bits, true),
            Some(_) => (second.saturating_mul(32) / bits, first, false),
        };
        let group = scales.map_or(128, |(_, groups, _)| columns / groups.max(1));
        let block = match (bits, group, gptq) {
            (8, ..) => Block::I8,
            (4, 128, true) => Block::GptqInt4,
            (4, 128, false) => Block::AwqInt4,
            (4, 32, _) => Block::Int4G32,
            (4, 64, _) => Block::Int4G64,
            (4, ..) => Block::Int4G128,
            _ => Block::I32,
        };
        Ok((rows, columns, block))
    }

    fn grouped(&self, module: &str, scale: &str, columns: u64) -> Block {
        match self.beside(module, scale).map(Tensor::matrix) {
            Some((_, _, groups)) if groups > 1 => match columns / groups {
                32 => Block::Int4G32,
                64 => Block::Int4G64,
                _ => Block::Int4G128,
            },
            _ => Block::Int4,
        }
    }

    /// The storage of the matrix that a helper belongs to, so that their bytes are counted together.
    fn host(&self, module: &str, part: &str, tensor: &Tensor) -> Block {
        let (stem, packed) = match part.strip_suffix("_scales") {
            Some(stem) => (format!("{module}.{stem}_blocks"), Block::Mxfp4),
            None if part == "scales" || part == "qzeros" || part == "g_idx" => {
                let Some(host) = self.beside(module, "qweight") else { return tensor.block };
                let (_, rows, columns) = host.matrix();
                return self.integers(module, rows, columns, 4).map_or(tensor.block, |(_, _, block)| block);
            }
            None => return self.beside_host(module, part).unwrap_or(tensor.block),
        };
        if self.parts.contains_key(stem.as_str()) { packed } else { tensor.block }
    }

    fn beside_host(&self, module: &str, part: &str) -> Option<Block> {
        // bitsandbytes: x.weight.absmax belongs to x.weight
        let inner = module.strip_suffix(".quant_state").unwrap_or(module);
        if part.starts_with("bitsandbytes__")
            || matches!(part, "absmax" | "quant_map" | "nested_absmax" | "nested_quant_map")
        {
            return self.parts.contains_key(inner).then_some(Block::Nf4);
        }
        let host = ["weight", "weight_packed"].iter().find_map(|host| self.beside(module, host))?;
        self.packing(host, None).ok().map(|packing| packing.block)
    }
}
