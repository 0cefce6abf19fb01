//! What the tensors of a checkpoint stand for: packed matrices, with scales and zero points beside them.

use std::collections::HashMap;

use super::config::Config;
use super::{ImportError, Tensor, short};
use crate::architecture::{Architecture, Part};
use crate::block::Block;
use crate::class::{Class, classify, layer};

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

/// Use, layer, whether it is the way down, and number of weights.
type MatrixKey = (Class, Option<u64>, bool, u64);

/// Modules of a checkpoint: a matrix and what belongs to it.
pub(super) struct Modules<'a> {
    parts: HashMap<&'a str, &'a Tensor>,
    config: Option<&'a Config>,
    /// Rows and columns of the matrices that the configuration describes.
    shapes: HashMap<MatrixKey, (u64, u64)>,
}

/// Names of tensors that hold the codes of a matrix. Whatever else its module has but a bias stands beside them.
const CODES: &[&str] = &[
    "qweight",
    "weight_packed",
    "q_weight",
    "trellis",
    "W_q",
    "Qidxs",
    "codes",
    "indices",
    "compressed",
    "_weight_qdata",
    "weight_qdata",
    "weight:qdata",
    "_data",
];

/// Names of what stands beside a matrix whose own tensor is called `weight`, or above its codes, and holds no weights.
const HELPERS: &[&str] = &[
    "scales",
    "qzeros",
    "qbiases",
    "g_idx",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "weight_format",
    "input_scale",
    "output_scale",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "activation_scale",
    "pre_quant_scale",
    "tables",
    "tables2",
    "SCB",
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
    "_scale",
    "_shift",
    "_zero_point",
];

/// Modules in a module of codes that hold no weights of their own.
const CODEBOOKS: &[&str] = &["centroids", "res_centroids", "outlier_centroids"];

impl<'a> Modules<'a> {
    /// The modules of a table, which `config` describes.
    pub fn of(tensors: &'a [Tensor], config: Option<&'a Config>) -> Self {
        let described = config.and_then(|config| config.architecture.as_ref());
        let matrices = described.map(Architecture::matrices).unwrap_or_default();
        let shapes = matrices.iter().filter_map(|matrix| {
            let layer = matrix.layer.map(|layer| layer as u64);
            let each = matrix.rows.checked_mul(matrix.columns)?;
            let key = (matrix.class, layer, matrix.part == Part::Down, each);
            Some((key, (matrix.rows, matrix.columns)))
        });
        let parts = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        Self { parts, config, shapes: shapes.collect() }
    }

    fn beside(&self, module: &str, part: &str) -> Option<&'a Tensor> {
        self.parts.get(format!("{module}.{part}").as_str()).copied()
    }

    /// The codes of a module.
    fn codes(&self, module: &str) -> Option<&'a Tensor> {
        CODES.iter().find_map(|part| self.beside(module, part))
    }

    /// A number of the scheme that the configuration gives a module.
    fn number(&self, module: &str, key: &str) -> Option<u64> {
        self.config?.quantisation.as_ref()?.number(module, key).filter(|number| *number > 0)
    }

    /// What the codes of a tensor belong to, and its own name there.
    fn place(tensor: &Tensor) -> (&str, &str) {
        tensor.name.rsplit_once('.').unwrap_or(("", &tensor.name))
    }

    fn is_helper(&self, tensor: &Tensor) -> bool {
        let (module, part) = Self::place(tensor);
        let last = module.rsplit('.').next().unwrap_or_default();
        HELPERS.contains(&part)
            || CODEBOOKS.contains(&last)
            || (part == "biases" && self.beside(module, "scales").is_some())
            || part.starts_with("bitsandbytes__")
            || part.ends_with("_scales")
            || (part != "bias" && !CODES.contains(&part) && self.codes(module).is_some())
    }

    /// The weights that a tensor stands for.
    pub fn packing(&self, tensor: &Tensor) -> Result<Packing, ImportError> {
        if self.is_helper(tensor) {
            let block = self.host(tensor);
            return Ok(Packing { block, rows: 1, columns: 0, matrices: 0, parameters: 0 });
        }
        self.weights(tensor)
    }

    fn weights(&self, tensor: &Tensor) -> Result<Packing, ImportError> {
        let (matrices, rows, columns) = tensor.matrix();
        let plain = tensor.elements().unwrap_or(0);
        let (module, part) = Self::place(tensor);
        let packed = |block, rows: u64, columns: u64, matrices: u64| {
            let parameters = rows.checked_mul(columns).and_then(|area| area.checked_mul(matrices));
            parameters.map(|parameters| Packing { block, rows, columns, matrices, parameters }).ok_or_else(
                || ImportError::Tensor {
                    name: short(&tensor.name),
                    reason: format!("has the impossible shape {:?}", tensor.shape),
                },
            )
        };
        // Weights of which the codes do not show how they are laid out.
        let flat_of = |parameters: u64, block: Block| {
            let (rows, columns) = self.shape(tensor, parameters);
            packed(block, rows, columns, 1)
        };
        let flat = |bits: u64, block: Option<Block>| {
            let parameters = tensor.bytes.saturating_mul(8) / bits.max(1);
            flat_of(parameters, block.unwrap_or_else(|| narrow(bits)))
        };
        // Lists of modules are asked only for what may be packed in more than one way.
        let bits = || self.number(module, "width").filter(|bits| matches!(bits, 1..=8));
        match (part, tensor.block) {
            // MLX: packed along the inputs, with a scale for every group.
            ("weight", Block::I32) if self.beside(module, "scales").is_some() => {
                let bits = bits().unwrap_or(4);
                let columns = columns.saturating_mul(32) / bits;
                let block = if bits > 4 { Block::I8 } else { self.grouped(module, "scales", columns) };
                packed(block, rows, columns, matrices)
            }
            // quark: packed along the outputs.
            ("weight", Block::I32) if self.beside(module, "weight_scale").is_some() => {
                packed(Block::Int4G128, columns.saturating_mul(8), rows, matrices)
            }
            ("weight", Block::I8) if self.is_method("bitnet") => {
                packed(Block::Int4, rows.saturating_mul(4), columns, matrices)
            }
            ("qweight", Block::I32) => {
                let (rows, columns, block) = self.integers(module, rows, columns, bits().unwrap_or(4))?;
                packed(block, rows, columns, 1)
            }
            ("qweight", Block::I8) => packed(Block::Mxfp4, rows, columns.saturating_mul(2), matrices),
            // EXL2: groups of rows have bits of their own.
            ("q_weight", _) => {
                let inputs = self.beside(module, "q_invperm").and_then(Tensor::elements).unwrap_or(0);
                let share = tensor.bytes.saturating_mul(8) / inputs.saturating_mul(columns).max(1);
                packed(narrow(share + 1), columns, inputs, 1)
            }
            // EXL3: tiles of 16 x 16 weights, with 16 codes of 16 bits for each bit of a weight.
            ("trellis", _) => {
                let [inputs, outputs, words] = tensor.shape[..] else { return flat(4, None) };
                packed(narrow(words / 16), outputs.saturating_mul(16), inputs.saturating_mul(16), 1)
            }
            // HQQ fills the last words up: the scales tell how many weights there are.
            ("W_q", _) => {
                let groups = self.beside(module, "scale").and_then(Tensor::elements);
                let bits = bits().unwrap_or(4);
                match groups.zip(self.number(module, "group")) {
                    Some((groups, each)) => flat_of(groups.saturating_mul(each), narrow(bits)),
                    None => flat(bits, None),
                }
            }
            // QuIP#: words along the inputs.
            ("Qidxs", _) => {
                let each = rows.saturating_mul(bits().unwrap_or(2)).max(1);
                packed(Block::Int4, rows, tensor.bytes.saturating_mul(8) / each, 1)
            }
            ("codes", _) => {
                let codebooks = self.beside(module, "codebooks").map(|codebooks| &codebooks.shape[..]);
                match (&tensor.shape[..], codebooks) {
                    (&[outputs, inputs, _], Some(&[_, _, out_group, in_group])) => packed(
                        Block::Int4,
                        outputs.saturating_mul(out_group),
                        inputs.saturating_mul(in_group),
                        1,
                    ),
                    _ => flat(2, None),
                }
            }
            ("indices", _) => {
                match (self.number(module, "out_features"), self.number(module, "in_features")) {
                    (Some(rows), Some(columns)) => packed(Block::Int4, rows, columns, 1),
                    _ => flat(2, None),
                }
            }
            // Tiles of packed weights.
            ("_weight_qdata" | "weight_qdata" | "weight:qdata", Block::I32) => flat(4, Some(Block::Int4G128)),
            ("_weight_qdata" | "weight_qdata" | "weight:qdata", Block::I8) => {
                // Scales of groups run along the inputs first, those of outputs have one column.
                let scale = part.replace("qdata", "scale");
                let grouped =
                    self.beside(module, &scale).is_some_and(|scale| scale.matrix().2 == rows && rows > 1);
                let per_byte = if grouped { 2 } else { 1 };
                let block = if grouped { Block::Int4G128 } else { Block::I8 };
                packed(block, rows, columns.saturating_mul(per_byte), matrices)
            }
            ("_data", _) if module.ends_with("._data") => {
                let scheme = module.trim_end_matches("._data").trim_end_matches(".weight");
                let weights = self.config.and_then(|config| config.quantisation.as_ref());
                let is_two =
                    weights.is_some_and(|found| found.text(scheme, "weights").as_deref() == Some("int2"));
                flat(if is_two { 2 } else { 4 }, None)
            }
            // 2:4 of Marlin: half of the weights, in tiles of 16 x 16.
            ("weight_packed", Block::I32) if self.beside(module, "meta").is_some() => {
                let bits = bits().unwrap_or(4);
                packed(narrow(bits), columns.saturating_mul(32) / bits / 16, rows.saturating_mul(32), 1)
            }
            ("weight_packed", Block::I32) => {
                let bits = bits().unwrap_or(4);
                // The last word of a row may be filled up: its groups tell how many weights it has.
                let groups = self.beside(module, "weight_scale").map(|scale| scale.matrix().2);
                let whole = groups.zip(self.number(module, "group")).filter(|(groups, _)| *groups > 1);
                let whole = whole.map_or(u64::MAX, |(groups, each)| groups.saturating_mul(each));
                let columns = columns.saturating_mul(32 / bits).min(whole);
                let block = match bits {
                    5.. => Block::I8,
                    4 => self.grouped(module, "weight_scale", columns),
                    _ => narrow(bits),
                };
                packed(block, rows, columns, matrices)
            }
            ("weight_packed", Block::I8) => {
                let is_shared =
                    self.beside(module, "weight_scale").is_some_and(|scale| scale.block != Block::Fp8E4m3);
                let block = if is_shared { Block::Mxfp4 } else { Block::Nvfp4 };
                packed(block, rows, columns.saturating_mul(2), matrices)
            }
            // Half of the weights, and a bit for each that says which.
            ("compressed", block) => packed(block, rows, columns.saturating_mul(2), matrices),
            ("weight", Block::I8) if self.beside(module, "weight.absmax").is_some() => {
                // bitsandbytes flattens the matrix: its shape is in a tensor, which is not read.
                flat(4, Some(Block::Nf4))
            }
            // modelopt and HIGGS: packed along the outputs, each of which has its scales.
            ("weight", Block::I8 | Block::I16) if self.outputs(module) > rows => {
                packed(Block::Int4, self.outputs(module), columns, matrices)
            }
            ("weight", Block::I8 | Block::Int4) => {
                let per_byte = if tensor.block == Block::I8 { 2 } else { 1 };
                match self.beside(module, "weight_scale").map(|scale| scale.block) {
                    Some(Block::Fp8E4m3) => {
                        packed(Block::Nvfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    Some(Block::E8m0 | Block::I8) => {
                        packed(Block::Mxfp4, rows, columns.saturating_mul(per_byte), matrices)
                    }
                    _ => packed(tensor.block, rows, columns, matrices),
                }
            }
            ("weight", Block::Fp8E4m3)
                if self.beside(module, "weight_scale").is_some_and(|scale| {
                    matches!(scale.block, Block::E8m0 | Block::I8) && scale.matrix().2 == columns / 32
                }) =>
            {
                packed(Block::Mxfp8, rows, columns, matrices)
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

    /// Rows of the scales next to a matrix, where they stand for groups of inputs; 0 without them.
    fn outputs(&self, module: &str) -> u64 {
        let scales = ["weight_scale", "scales"].iter().find_map(|part| self.beside(module, part));
        scales.map(Tensor::matrix).filter(|(_, _, groups)| *groups > 1).map_or(0, |(_, rows, _)| rows)
    }

    fn is_method(&self, method: &str) -> bool {
        self.config
            .and_then(|config| config.quantisation.as_ref())
            .is_some_and(|found| found.method == method)
    }

    /// Rows and columns of so many weights: those of the matrix that the configuration describes, or all in one row.
    fn shape(&self, tensor: &Tensor, parameters: u64) -> (u64, u64) {
        let is_down = ["down", "w2", "fc2", "out_proj"].iter().any(|part| tensor.name.contains(part));
        let key = (classify(&tensor.name), layer(&tensor.name), is_down, parameters);
        self.shapes.get(&key).copied().unwrap_or((1, parameters))
    }

    /// Rows, columns and storage of an AWQ or GPTQ matrix: the scales beside it tell which of its sides is packed.
    fn integers(
        &self,
        module: &str,
        first: u64,
        second: u64,
        bits: u64,
    ) -> Result<(u64, u64, Block), ImportError> {
        let scales = self.beside(module, "scales").map(Tensor::matrix);
        let (rows, columns, gptq) = match scales {
            Some((_, _, outputs)) if outputs == second => (second, first.saturating_mul(32) / bits, true),
            None => (second, first.saturating_mul(32) / bits, true),
            Some(_) => (second.saturating_mul(32) / bits, first, false),
        };
        let group = scales.map_or(128, |(_, groups, _)| columns / groups.max(1));
        let block = match (bits, group, gptq) {
            (5.., ..) => Block::I8,
            (4, 128, true) => Block::GptqInt4,
            (4, 128, false) => Block::AwqInt4,
            (4, 32, _) => Block::Int4G32,
            (4, 64, _) => Block::Int4G64,
            _ => Block::Int4,
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
    fn host(&self, tensor: &Tensor) -> Block {
        let (module, part) = Self::place(tensor);
        if let Some(stem) = part.strip_suffix("_scales") {
            let host = self.beside(module, &format!("{stem}_blocks"));
            return host.map_or(tensor.block, |_| Block::Mxfp4);
        }
        // bitsandbytes: x.weight.absmax belongs to x.weight, and quanto's x.weight._scale to x.weight._data._data.
        let inner = module.strip_suffix(".quant_state").unwrap_or(module);
        let above = module.rsplit_once('.').and_then(|(above, _)| self.codes(above));
        let within = self.codes(&format!("{module}._data"));
        let candidates = [
            self.codes(module),
            self.beside(module, "weight"),
            self.parts.get(inner).copied(),
            within,
            above,
        ];
        let found = candidates.into_iter().flatten().find(|host| !self.is_helper(host));
        found.and_then(|host| self.weights(host).ok()).map_or(tensor.block, |packing| packing.block)
    }
}

/// The narrowest block with room for codes of so many bits.
const fn narrow(bits: u64) -> Block {
    if bits > 4 { Block::I8 } else { Block::Int4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Name, storage and shape.
    type Part = (&'static str, Block, &'static [u64]);

    /// A matrix of 4096 outputs and 2048 inputs as each tool writes it.
    #[test]
    fn packed_matrices_have_their_rows_columns_and_weights() {
        use Block::{Bf16, F16, F32, Fp8E4m3, I8, I16, I32, I64};
        const OUT: u64 = 4096;
        const IN: u64 = 2048;
        // Codes of three bits, ten in a word.
        const WORDS: u64 = IN.div_ceil(10);
        const GROUPS: u64 = (OUT * IN / 64).div_ceil(10);
        let method = |method: &str| json!({"quant_method": method});
        let bits = |method: &str, bits: u64| json!({"quant_method": method, "bits": bits, "group_size": 128});
        let hqq = json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}});
        let layer = json!({"in_features": IN, "out_features": OUT, "vector_lens": [-1, 8], "num_centroids": [-1, 65536]});
        let vptq =
            json!({"quant_method": "vptq", "config_for_layers": {"model.layers.0.mlp.up_proj": layer}});
        let pack = |bits: u64| {
            json!({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],
            "weights": {"num_bits": bits, "type": "int", "group_size": 128}}}})
        };
        let cases: [(Value, &[Part]); 27] = [
            (
                method("exl2"),
                &[("q_weight", I32, &[320, OUT]), ("q_invperm", I32, &[IN]), ("q_scale", I32, &[16, 512])],
            ),
            (
                method("exl3"),
                &[("trellis", I16, &[IN / 16, OUT / 16, 64]), ("suh", F16, &[IN]), ("mcg", I32, &[])],
            ),
            (
                hqq,
                &[
                    ("W_q", I8, &[OUT * IN / 128, 64]),
                    ("scale", Bf16, &[OUT * IN / 64, 1]),
                    ("shape", I64, &[2]),
                ],
            ),
            (
                json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}}}),
                &[("W_q", I32, &[GROUPS, 64]), ("scale", Bf16, &[OUT * IN / 64, 1])],
            ),
            (pack(3), &[("weight_packed", I32, &[OUT, WORDS]), ("weight_scale", Bf16, &[OUT, 16])]),
            (
                json!({"quant_method": "quip", "codebook": "E8P12"}),
                &[("Qidxs", I64, &[OUT, IN / 32]), ("SU", F16, &[IN]), ("Wscale", F32, &[])],
            ),
            (
                json!({"quant_method": "higgs", "bits": 4, "group_size": 256}),
                &[
                    ("weight", I16, &[OUT / 4, IN]),
                    ("scales", F16, &[OUT, IN / 256]),
                    ("tables2", F16, &[256, 256, 2]),
                ],
            ),
            (
                json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 128}),
                &[
                    ("weight", I8, &[OUT / 2, IN]),
                    ("weight_scale", Bf16, &[OUT, IN / 128]),
                    ("pre_quant_scale", Bf16, &[IN]),
                ],
            ),
            (
                json!({"quant_method": "modelopt", "quant_algo": "MXFP8"}),
                &[("weight", Fp8E4m3, &[OUT, IN]), ("weight_scale", I8, &[OUT, IN / 32])],
            ),
            (
                method("aqlm"),
                &[
                    ("codes", I16, &[OUT, IN / 8, 1]),
                    ("codebooks", F16, &[1, 65536, 1, 8]),
                    ("scales", F16, &[OUT, 1, 1, 1]),
                ],
            ),
            (
                vptq,
                &[
                    ("indices", I32, &[1, IN, 256]),
                    ("centroids.weight", Bf16, &[1, 65536 * 8]),
                    ("perm", I16, &[IN]),
                ],
            ),
            (method("quanto"), &[("weight._data", I8, &[OUT, IN]), ("weight._scale", Bf16, &[OUT, 1])]),
            (
                json!({"quant_method": "quanto", "weights": "int4"}),
                &[
                    ("weight._data._data", I8, &[OUT * IN / 256, 128]),
                    ("weight._shift", Bf16, &[OUT * IN / 128, 1]),
                ],
            ),
            (method("torchao"), &[("_weight_qdata", I8, &[OUT, IN]), ("_weight_scale", Bf16, &[OUT, 1])]),
            (
                method("torchao"),
                &[("_weight_qdata", I8, &[OUT, IN / 2]), ("_weight_scale", Bf16, &[IN / 128, OUT])],
            ),
            (
                method("torchao"),
                &[
                    ("_weight_qdata", I32, &[OUT / 8, IN / 128, 32, 4]),
                    ("_weight_scale_and_zero", Bf16, &[16, OUT, 2]),
                ],
            ),
            (
                pack(4),
                &[
                    ("weight_packed", I32, &[IN / 32, 2 * OUT]),
                    ("scale_packed", F16, &[16, OUT]),
                    ("meta", I16, &[OUT, IN / 16]),
                ],
            ),
            (
                pack(4),
                &[
                    ("weight_packed", I32, &[OUT, IN / 8]),
                    ("weight_scale", Bf16, &[OUT, 16]),
                    ("weight_shape", I64, &[2]),
                ],
            ),
            (
                method("compressed-tensors"),
                &[("compressed", Fp8E4m3, &[OUT, IN / 2]), ("bitmask", I8, &[OUT, IN / 8])],
            ),
            (
                bits("gptq", 4),
                &[
                    ("qweight", I32, &[IN / 8, OUT]),
                    ("scales", F16, &[16, OUT]),
                    ("qzeros", I32, &[16, OUT / 8]),
                ],
            ),
            (
                bits("gptq", 2),
                &[("qweight", I32, &[IN / 16, OUT]), ("scales", F16, &[16, OUT]), ("g_idx", I32, &[IN])],
            ),
            (
                bits("awq", 4),
                &[
                    ("qweight", I32, &[IN, OUT / 8]),
                    ("scales", F16, &[16, OUT]),
                    ("qzeros", I32, &[16, OUT / 8]),
                ],
            ),
            (
                bits("mlx", 6),
                &[
                    ("weight", I32, &[OUT, IN * 6 / 32]),
                    ("scales", Bf16, &[OUT, 16]),
                    ("biases", Bf16, &[OUT, 16]),
                ],
            ),
            (method("bitnet"), &[("weight", I8, &[OUT / 4, IN]), ("weight_scale", Bf16, &[1])]),
            (method("quark"), &[("weight", I32, &[IN, OUT / 8]), ("weight_scale", F16, &[16, OUT])]),
            (method("fp_quant"), &[("qweight", I8, &[OUT, IN / 2]), ("scales", I8, &[OUT, IN / 32])]),
            (
                method("bitsandbytes"),
                &[("weight", I8, &[OUT * IN / 2, 1]), ("weight.absmax", F32, &[OUT * IN / 64])],
            ),
        ];
        for (quantisation, tensors) in cases {
            let fields = json!({"model_type": "llama", "hidden_size": IN, "intermediate_size": OUT, "num_hidden_layers": 1,
                "num_attention_heads": 16, "quantization_config": quantisation});
            let config = Config::from_value(&fields).unwrap();
            let tensor = |(name, block, shape): &Part| Tensor {
                name: format!("model.layers.0.mlp.up_proj.{name}"),
                block: *block,
                shape: shape.to_vec(),
                file: 0,
                offset: 0,
                bytes: block.size(1, shape.iter().product()).unwrap(),
            };
            let tensors: Vec<Tensor> = tensors.iter().map(tensor).collect();
            let modules = Modules::of(&tensors, Some(&config));
            let packings: Vec<Packing> =
                tensors.iter().map(|tensor| modules.packing(tensor).unwrap()).collect();
            let Packing { rows, columns, matrices, parameters, block } = packings[0];
            assert_eq!((rows, columns, matrices, parameters), (OUT, IN, 1, OUT * IN), "{quantisation}");
            for beside in &packings[1..] {
                assert_eq!((beside.parameters, beside.block), (0, block), "{quantisation}");
            }
        }
    }
}
