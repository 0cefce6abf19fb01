//! What storing weights in a format does to them: exact packing, its exact meaning, and the error between.
//!
//! [`encode`] packs a matrix of rows x columns, [`decode`] says what the packed weights mean, and [`QuantError`] is the
//! difference. Both follow the formats' own definitions bit by bit; where a definition leaves the search for scales to
//! the packer, the search is documented in the module that does it and never loses to plain rounding.
//!
//! A block format whose blocks must not cross a row refuses rows that are no whole number of blocks
//! ([`Refusal::Ragged`]) unless its own rule says otherwise:
//!
//! | formats | a row that ends within a block |
//! |---|---|
//! | GGUF, `awq_int4`, `gptq_int4` | refused: their writers fall back to another format |
//! | `int4_g*`, `mxfp4`, `mxfp8`, `nvfp4` | the last block is padded with zeros, which change no scale |
//! | `nf4` | blocks run across rows; only the tensor's last one is short |
//!
//! `awq_int4` and `gptq_int4` are rounded to nearest here. Their own methods look at activations as well and do better,
//! so these errors are upper bounds of what a published AWQ or GPTQ file loses.

mod codebook;
mod error;
mod float;
mod gguf;
mod grid;
mod kquant;
mod prior;
mod scaled;
mod search;
mod ternary;

pub use error::{ModelError, QuantError};
pub use float::{
    decode_bf16, decode_e2m1, decode_e4m3, decode_e5m2, decode_e8m0, decode_fp16, encode_bf16, encode_e2m1,
    encode_e4m3, encode_e5m2, encode_fp16, encode_tf32, shared_exponent,
};
pub use prior::quality_loss;

use thiserror::Error;

use super::WeightFormat;

/// A matrix as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    pub format: WeightFormat,
    /// Rows.
    pub rows: usize,
    /// Weights of a row.
    pub columns: usize,
    /// The rows, one after another; `nf4` does not end its blocks with a row.
    pub bytes: Vec<u8>,
    /// One scale per row (`int8`, `int4`); empty for all others.
    pub row_scales: Vec<f32>,
    /// The scale of the whole tensor (`fp8_*`, `nvfp4`); 1 for all others.
    pub tensor_scale: f32,
}

/// Why a tensor is not stored in a format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{format} is not implemented: {reason}")]
    NotImplemented {
        format: WeightFormat,
        /// Why it is missing.
        reason: &'static str,
    },
    /// A row ends within a block.
    #[error("{columns} columns are not a multiple of the {block} weights of a {format} block")]
    Ragged {
        format: WeightFormat,
        /// Weights of a row.
        columns: usize,
        /// Weights of a block.
        block: usize,
    },
    /// A weight is NaN or infinite.
    #[error("{count} weights are NaN or infinite, the first in row {row}, column {column}")]
    NotFinite {
        count: usize,
        /// Row of the first.
        row: usize,
        /// Column of the first.
        column: usize,
    },
    /// A weight, or the scale that it needs, does not fit the format's numbers.
    #[error("weights up to {largest} are beyond what {format} can store")]
    OutOfRange {
        format: WeightFormat,
        /// The largest magnitude, as text.
        largest: String,
    },
    /// The sizes do not belong together.
    #[error("{what}: expected {expected}, found {found}")]
    Size { what: &'static str, expected: usize, found: usize },
}

/// Where a format's rows lie and who packs them.
enum Packing {
    /// Blocks within a row; a short last one is refused or padded.
    Blocks { padded: bool, encode: fn(&[f32], f32, &mut Vec<u8>), decode: fn(&[u8], f32, &mut [f32]) },
    /// Rows with a scale each.
    Rows { encode: fn(&[f32], &mut Vec<u8>) -> f32, decode: fn(&[u8], f32, &mut [f32]) },
    /// Blocks across rows.
    Flat { encode: fn(&[f32], f32, &mut Vec<u8>), decode: fn(&[u8], f32, &mut [f32]) },
}

/// Packs a matrix of `rows` x `columns` weights, row by row.
///
/// # Errors
/// The format cannot hold it, or `weights` is no such matrix. An empty matrix is packed into nothing.
pub fn encode(
    format: WeightFormat,
    rows: usize,
    columns: usize,
    weights: &[f32],
) -> Result<Encoded, Refusal> {
    check_size("weights", rows.checked_mul(columns), weights.len())?;
    let packing = packing(format);
    let block = check_blocks(format, columns, &packing)?;
    if let Some(reason) = without_encoder(format) {
        return Err(Refusal::NotImplemented { format, reason });
    }
    check_finite(columns, weights)?;
    let mut encoded = Encoded {
        format,
        rows,
        columns,
        bytes: Vec::with_capacity(stored_bytes(format, rows, columns, &packing)),
        row_scales: Vec::new(),
        tensor_scale: tensor_scale(format, weights),
    };
    if columns == 0 {
        return Ok(encoded);
    }
    let (bytes, scale) = (&mut encoded.bytes, encoded.tensor_scale);
    match packing {
        Packing::Rows { encode, .. } => {
            encoded.row_scales = weights.chunks(columns).map(|row| encode(row, bytes)).collect();
        }
        Packing::Flat { encode, .. } => weights.chunks(block).for_each(|part| encode(part, scale, bytes)),
        Packing::Blocks { encode, .. } => {
            // Formats of single values take a row at once.
            let block = if block == 1 { columns } else { block };
            let mut whole = vec![0.0; block];
            for part in weights.chunks(columns).flat_map(|row| row.chunks(block)) {
                if part.len() == block {
                    encode(part, scale, bytes);
                } else {
                    whole[..part.len()].copy_from_slice(part);
                    whole[part.len()..].fill(0.0);
                    encode(&whole, scale, bytes);
                }
            }
        }
    }
    Ok(encoded)
}

/// What the packed weights mean. Not finite where the bytes say so, or where a scale did not fit.
///
/// # Errors
/// The sizes do not belong together.
pub fn decode(encoded: &Encoded) -> Result<Vec<f32>, Refusal> {
    let &Encoded { format, rows, columns, ref bytes, ref row_scales, tensor_scale } = encoded;
    let packing = packing(format);
    let block = check_blocks(format, columns, &packing)?;
    let count = rows.saturating_mul(columns);
    let expected = stored_bytes(format, rows, columns, &packing);
    check_size("bytes", Some(expected), bytes.len())?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut weights = vec![0.0_f32; count];
    let stride = block_bytes(format);
    match packing {
        Packing::Rows { decode, .. } => {
            check_size("row scales", Some(rows), row_scales.len())?;
            let stored = bytes.chunks(expected / rows);
            for ((row, stored), scale) in weights.chunks_mut(columns).zip(stored).zip(row_scales) {
                decode(stored, *scale, row);
            }
        }
        Packing::Flat { decode, .. } => {
            for (part, stored) in weights.chunks_mut(block).zip(bytes.chunks(stride)) {
                decode(stored, tensor_scale, part);
            }
        }
        Packing::Blocks { decode, .. } => {
            // Formats of single values take a row at once.
            let (block, stride) = if block == 1 { (columns, columns * stride) } else { (block, stride) };
            let parts = weights.chunks_mut(columns).flat_map(|row| row.chunks_mut(block));
            let mut whole = vec![0.0; block];
            for (part, stored) in parts.zip(bytes.chunks(stride)) {
                if part.len() == block {
                    decode(stored, tensor_scale, part);
                } else {
                    decode(stored, tensor_scale, &mut whole);
                    part.copy_from_slice(&whole[..part.len()]);
                }
            }
        }
    }
    Ok(weights)
}

/// What storing `weights` in `format` and reading them back changes.
///
/// # Errors
/// As [`encode`], and where a weight does not fit.
pub fn quant_error(
    format: WeightFormat,
    rows: usize,
    columns: usize,
    weights: &[f32],
) -> Result<QuantError, Refusal> {
    let restored = decode(&encode(format, rows, columns, weights)?)?;
    if restored.iter().any(|weight| !weight.is_finite()) {
        return Err(Refusal::OutOfRange { format, largest: format!("{:e}", largest(weights)) });
    }
    Ok(QuantError::between(weights, &restored))
}

/// Bytes of a block as [`encode`] writes it.
#[must_use]
pub fn block_bytes(format: WeightFormat) -> usize {
    format.layout().block_bytes() as usize
}

/// Why there is no encoder for a format; `None` where there is one.
#[must_use]
pub const fn without_encoder(format: WeightFormat) -> Option<&'static str> {
    use WeightFormat as F;
    match format {
        F::Iq1S | F::Iq1M | F::Iq2Xxs | F::Iq2Xs | F::Iq2S | F::Iq3Xxs | F::Iq3S => Some(
            "its encoder weighs errors by an importance matrix of activations, which weights alone do not give",
        ),
        _ => None,
    }
}

fn packing(format: WeightFormat) -> Packing {
    use WeightFormat as F;
    let blocks = |encode, decode| Packing::Blocks { padded: false, encode, decode };
    let padded = |encode, decode| Packing::Blocks { padded: true, encode, decode };
    match format {
        F::Fp32 => blocks(scaled::encode_fp32, scaled::decode_fp32),
        F::Tf32 => blocks(scaled::encode_tf32, scaled::decode_fp32),
        F::Fp16 => blocks(scaled::encode_fp16, scaled::decode_fp16),
        F::Bf16 => blocks(scaled::encode_bf16, scaled::decode_bf16),
        F::Fp8E4m3 => blocks(scaled::encode_fp8_e4m3, scaled::decode_fp8_e4m3),
        F::Fp8E5m2 => blocks(scaled::encode_fp8_e5m2, scaled::decode_fp8_e5m2),
        F::Int8 => Packing::Rows { encode: scaled::encode_int8_row, decode: scaled::decode_int8_row },
        F::Int4 => Packing::Rows { encode: scaled::encode_int4_row, decode: scaled::decode_int4_row },
        F::Int4G32 | F::Int4G64 | F::Int4G128 => padded(scaled::encode_int4_group, scaled::decode_int4_group),
        F::Nf4 => Packing::Flat { encode: codebook::encode_nf4, decode: codebook::decode_nf4 },
        F::Mxfp4 => padded(scaled::encode_mxfp4, scaled::decode_mxfp4),
        F::Mxfp8 => padded(scaled::encode_mxfp8, scaled::decode_mxfp8),
        F::Nvfp4 => padded(scaled::encode_nvfp4, scaled::decode_nvfp4),
        F::AwqInt4 | F::GptqInt4 => blocks(scaled::encode_asymmetric, scaled::decode_asymmetric),
        F::Q4_0 => blocks(gguf::encode_q4_0, gguf::decode_q4_0),
        F::Q4_1 => blocks(gguf::encode_q4_1, gguf::decode_q4_1),
        F::Q5_0 => blocks(gguf::encode_q5_0, gguf::decode_q5_0),
        F::Q5_1 => blocks(gguf::encode_q5_1, gguf::decode_q5_1),
        F::Q8_0 => blocks(gguf::encode_q8_0, gguf::decode_q8_0),
        F::Q2K => blocks(kquant::encode_q2_k, kquant::decode_q2_k),
        F::Q3KM => blocks(kquant::encode_q3_k, kquant::decode_q3_k),
        F::Q4KS | F::Q4KM => blocks(kquant::encode_q4_k, kquant::decode_q4_k),
        F::Q5KS | F::Q5KM => blocks(kquant::encode_q5_k, kquant::decode_q5_k),
        F::Q6K => blocks(kquant::encode_q6_k, kquant::decode_q6_k),
        F::Iq4Nl => blocks(codebook::encode_iq4_nl, codebook::decode_iq4_nl),
        F::Iq4Xs => blocks(codebook::encode_iq4_xs, codebook::decode_iq4_xs),
        F::Iq1S => blocks(nothing, grid::decode_iq1_s),
        F::Iq1M => blocks(nothing, grid::decode_iq1_m),
        F::Iq2Xxs => blocks(nothing, grid::decode_iq2_xxs),
        F::Iq2Xs => blocks(nothing, grid::decode_iq2_xs),
        F::Iq2S => blocks(nothing, grid::decode_iq2_s),
        F::Iq3Xxs => blocks(nothing, grid::decode_iq3_xxs),
        F::Iq3S => blocks(nothing, grid::decode_iq3_s),
        F::Tq1_0 => blocks(ternary::encode_tq1_0, ternary::decode_tq1_0),
        F::Tq2_0 => blocks(ternary::encode_tq2_0, ternary::decode_tq2_0),
        F::Q1_0 => blocks(ternary::encode_q1_0, ternary::decode_q1_0),
        F::Q2_0 => blocks(ternary::encode_q2_0, ternary::decode_q2_0),
    }
}

/// Never called: [`encode`] has refused these formats before.
fn nothing(_: &[f32], _: f32, _: &mut Vec<u8>) {}

/// The scale that maps the largest weight to the format's largest number; 1 where there is nothing to scale.
fn tensor_scale(format: WeightFormat, weights: &[f32]) -> f32 {
    let most = match format {
        WeightFormat::Fp8E4m3 => 448.0,
        WeightFormat::Fp8E5m2 => 57344.0,
        // The largest e2m1 times the largest e4m3 block scale.
        WeightFormat::Nvfp4 => 6.0 * 448.0,
        _ => return 1.0,
    };
    let scale = largest(weights) / most;
    if scale > 0.0 { scale } else { 1.0 }
}

fn largest(weights: &[f32]) -> f32 {
    weights.iter().fold(0.0, |most, weight| weight.abs().max(most))
}

/// Bytes of the whole matrix; `usize::MAX` where that is more than there can be.
fn stored_bytes(format: WeightFormat, rows: usize, columns: usize, packing: &Packing) -> usize {
    let block = format.layout().elements as usize;
    match packing {
        Packing::Flat { .. } => rows.checked_mul(columns).map(|count| {
            // A short last block keeps its scale and the nibbles it needs.
            count / block * block_bytes(format)
                + (count % block).div_ceil(2)
                + 2 * usize::from(!count.is_multiple_of(block))
        }),
        Packing::Rows { .. } | Packing::Blocks { .. } => {
            columns.div_ceil(block).checked_mul(block_bytes(format)).and_then(|row| row.checked_mul(rows))
        }
    }
    .unwrap_or(usize::MAX)
}

fn check_blocks(format: WeightFormat, columns: usize, packing: &Packing) -> Result<usize, Refusal> {
    let block = format.layout().elements as usize;
    match packing {
        Packing::Blocks { padded: false, .. } if !columns.is_multiple_of(block) => {
            Err(Refusal::Ragged { format, columns, block })
        }
        _ => Ok(block),
    }
}

fn check_size(what: &'static str, expected: Option<usize>, found: usize) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected == found => Ok(()),
        _ => Err(Refusal::Size { what, expected: expected.unwrap_or(usize::MAX), found }),
    }
}

fn check_finite(columns: usize, weights: &[f32]) -> Result<(), Refusal> {
    let Some(first) = weights.iter().position(|weight| !weight.is_finite()) else { return Ok(()) };
    let count = weights[first..].iter().filter(|weight| !weight.is_finite()).count();
    Err(Refusal::NotFinite { count, row: first / columns, column: first % columns })
}
