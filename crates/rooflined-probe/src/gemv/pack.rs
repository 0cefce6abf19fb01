//! Stored formats that there are kernels for, as [`quantise`](rooflined_core::precision::quantise) defines them.
//!
//! A row is a whole number of blocks; the last one is padded with zeros. Every multi-byte value is little-endian.
//!
//! | format | block |
//! |---|---|
//! | fp32, fp16, bf16 | one value |
//! | int8 | one signed byte; weight = byte x the row's fp32 scale, bytes in -127..=127 |
//! | int4 | two weights a byte, the even one in the low nibble; weight = (nibble - 8) x the row's fp32 scale |
//! | q8_0 | fp16 scale, 32 signed bytes |
//! | q4_0, int4_g32 | fp16 scale, 16 bytes: low nibbles are weights 0..16, high nibbles 16..32; nibble - 8 |
//! | int4_g128 | fp16 scale, 64 bytes: low nibbles are weights 0..64, high nibbles 64..128; nibble - 8 |

use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{Encoded, decode, encode};

/// Whether rows have an fp32 scale beside their blocks.
pub const fn has_row_scales(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Int8 | WeightFormat::Int4)
}

/// Bytes of one row of `k` weights; `None` for a format without kernels here.
pub fn row_bytes(format: WeightFormat, k: usize) -> Option<usize> {
    use WeightFormat as F;
    match format {
        F::Fp32 | F::Fp16 | F::Bf16 | F::Int8 | F::Int4 | F::Int4G32 | F::Int4G128 | F::Q8_0 | F::Q4_0 => {
            let layout = format.layout();
            k.div_ceil(layout.elements as usize).checked_mul(layout.block_bytes() as usize)
        }
        _ => None,
    }
}

/// Stores `n` rows of `k` weights. `None` for a format without kernels here, or where `weights` is no such matrix.
pub fn pack(format: WeightFormat, n: usize, k: usize, weights: &[f32]) -> Option<Encoded> {
    row_bytes(format, k)?;
    if k == 0 || weights.len() != n.checked_mul(k)? {
        return None;
    }
    let padded = k.next_multiple_of(format.layout().elements as usize);
    let mut rows = Vec::with_capacity(n * padded);
    for row in weights.chunks_exact(k) {
        rows.extend_from_slice(row);
        rows.resize(rows.len() + padded - k, 0.0);
    }
    encode(format, n, padded, &rows).ok()
}

/// The weights that a stored row stands for, padding included; empty if the row is not a whole number of blocks.
pub fn weights(format: WeightFormat, row: &[u8], row_scale: f32) -> Vec<f32> {
    let layout = format.layout();
    let encoded = Encoded {
        format,
        rows: 1,
        columns: row.len() / layout.block_bytes() as usize * layout.elements as usize,
        bytes: row.to_vec(),
        row_scales: if has_row_scales(format) { vec![row_scale] } else { Vec::new() },
        tensor_scale: 1.0,
    };
    decode(&encoded).unwrap_or_default()
}

/// A value of magnitude 0.05 to 1: nothing denormal in any format, nothing that rounds to zero.
pub fn random_weight(rng: &mut fastrand::Rng) -> f32 {
    let magnitude = 0.05 + 0.95 * rng.f32();
    if rng.bool() { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn packed_weights_are_within_half_a_step_and_rows_have_the_layouts_size() {
        let mut rng = fastrand::Rng::with_seed(7);
        for (format, step) in [
            (WeightFormat::Fp32, 0.0),
            (WeightFormat::Fp16, 2.0_f64.powi(-11)),
            (WeightFormat::Bf16, 2.0_f64.powi(-8)),
            (WeightFormat::Int8, 1.0 / 127.0),
            (WeightFormat::Int4, 1.0 / 7.0),
            (WeightFormat::Int4G32, 1.0 / 7.0),
            (WeightFormat::Int4G128, 1.0 / 7.0),
            // Codes are rounded against the scale before that is rounded to fp16.
            (WeightFormat::Q8_0, 1.0 / 127.0 + 2.0_f64.powi(-10)),
            // -8..7: the positive end is clipped by up to a whole step.
            (WeightFormat::Q4_0, 2.0 / 8.0),
        ] {
            for k in [1, 31, 33, 100, 256] {
                let originals: Vec<f32> = (0..3 * k).map(|_| random_weight(&mut rng)).collect();
                let packed = pack(format, 3, k, &originals).unwrap();
                let stride = row_bytes(format, k).unwrap();
                assert_eq!(packed.bytes.len(), 3 * stride);
                for (i, original) in originals.chunks_exact(k).enumerate() {
                    let scale = packed.row_scales.get(i).copied().unwrap_or(1.0);
                    let stored = weights(format, &packed.bytes[i * stride..][..stride], scale);
                    for (stored, original) in stored.iter().zip(original) {
                        let error = f64::from((stored - original).abs());
                        assert!(error <= step * 0.51, "{format} k {k}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn gguf_q4_0_blocks_hold_the_known_bytes() {
        // The reference quantiser: d = extreme / -8, code = trunc(x/d + 8.5).
        let mut row = [0.0_f32; 32];
        row[0] = -8.0;
        row[1] = 3.0;
        row[16] = 7.0;
        let packed = pack(WeightFormat::Q4_0, 1, 32, &row).unwrap();
        assert_eq!(packed.bytes[..2], f16::from_f32(1.0).to_le_bytes());
        assert_eq!(packed.bytes[2], 15 << 4);
        assert_eq!(packed.bytes[3], 8 << 4 | 11);
        assert_eq!(packed.bytes[4], 8 << 4 | 8);
    }

    #[test]
    fn formats_without_kernels_and_wrong_sizes_are_refused() {
        assert!(row_bytes(WeightFormat::Q4KM, 256).is_none());
        assert!(pack(WeightFormat::Int8, 2, 3, &[0.0; 5]).is_none());
        assert!(pack(WeightFormat::Int8, 2, 0, &[]).is_none());
    }
}
