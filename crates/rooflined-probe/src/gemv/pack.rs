//! Stored formats, exactly: packing from fp32 and what each stored weight means.
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

use half::{bf16, f16};

use rooflined_core::precision::WeightFormat;

/// A matrix as it is stored.
pub struct Packed {
    /// The rows, one after another.
    pub bytes: Vec<u8>,
    /// One scale per row; empty for formats that keep theirs inside the blocks or have none.
    pub row_scales: Vec<f32>,
}

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
pub fn pack(format: WeightFormat, n: usize, k: usize, weights: &[f32]) -> Option<Packed> {
    if k == 0 || weights.len() != n.checked_mul(k)? {
        return None;
    }
    let mut bytes = Vec::with_capacity(n * row_bytes(format, k)?);
    let mut row_scales = Vec::new();
    for row in weights.chunks_exact(k) {
        let scale = pack_row(format, row, &mut bytes)?;
        if has_row_scales(format) {
            row_scales.push(scale);
        }
    }
    Some(Packed { bytes, row_scales })
}

fn pack_row(format: WeightFormat, row: &[f32], bytes: &mut Vec<u8>) -> Option<f32> {
    use WeightFormat as F;
    let largest = largest(row);
    match format {
        F::Fp32 => bytes.extend(row.iter().flat_map(|w| w.to_le_bytes())),
        F::Fp16 => bytes.extend(row.iter().flat_map(|w| f16::from_f32(*w).to_le_bytes())),
        F::Bf16 => bytes.extend(row.iter().flat_map(|w| bf16::from_f32(*w).to_le_bytes())),
        F::Int8 => {
            let scale = largest / 127.0;
            bytes.extend(row.iter().map(|w| signed(*w, scale, 127.0) as u8));
            return Some(scale);
        }
        F::Int4 => {
            let scale = largest / 7.0;
            for pair in row.chunks(2) {
                let high = pair.get(1).map_or(8, |w| nibble(*w, scale));
                bytes.push(nibble(pair[0], scale) | high << 4);
            }
            return Some(scale);
        }
        F::Q8_0 => {
            for block in row.chunks(32) {
                let scale = f16::from_f32(self::largest(block) / 127.0);
                bytes.extend(scale.to_le_bytes());
                let inner = scale.to_f32();
                bytes.extend((0..32).map(|i| block.get(i).map_or(0, |w| signed(*w, inner, 127.0)) as u8));
            }
        }
        F::Q4_0 | F::Int4G32 => pack_nibble_blocks::<32>(format, row, bytes),
        F::Int4G128 => pack_nibble_blocks::<128>(format, row, bytes),
        _ => return None,
    }
    Some(1.0)
}

fn pack_nibble_blocks<const GROUP: usize>(format: WeightFormat, row: &[f32], bytes: &mut Vec<u8>) {
    for block in row.chunks(GROUP) {
        // GGUF maps the value of largest magnitude to -8 exactly; the group formats are symmetric.
        let scale = if format == WeightFormat::Q4_0 {
            block.iter().copied().fold(0.0_f32, |most, w| if w.abs() > most.abs() { w } else { most }) / -8.0
        } else {
            largest(block) / 7.0
        };
        let scale = f16::from_f32(scale);
        bytes.extend(scale.to_le_bytes());
        let code = |i: usize| block.get(i).map_or(8, |w| nibble(*w, scale.to_f32()));
        bytes.extend((0..GROUP / 2).map(|i| code(i) | code(i + GROUP / 2) << 4));
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

fn signed(weight: f32, scale: f32, limit: f32) -> i8 {
    if scale == 0.0 { 0 } else { (weight / scale).round_ties_even().clamp(-limit, limit) as i8 }
}

fn nibble(weight: f32, scale: f32) -> u8 {
    if scale == 0.0 { 8 } else { ((weight / scale).round_ties_even() + 8.0).clamp(0.0, 15.0) as u8 }
}

/// What the stored weight at `index` of a row means.
pub fn weight(format: WeightFormat, row: &[u8], row_scale: f32, index: usize) -> f64 {
    use WeightFormat as F;
    let half = |at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
    let grouped = |group: usize| {
        let block = index / group * (2 + group / 2);
        let within = index % group;
        let byte = row[block + 2 + within % (group / 2)];
        let code = if within < group / 2 { byte & 15 } else { byte >> 4 };
        (f64::from(code) - 8.0) * f16::from_bits(half(block)).to_f64()
    };
    match format {
        F::Fp32 => f64::from(f32::from_le_bytes([0, 1, 2, 3].map(|i| row[4 * index + i]))),
        F::Fp16 => f16::from_bits(half(2 * index)).to_f64(),
        F::Bf16 => bf16::from_bits(half(2 * index)).to_f64(),
        F::Int8 => f64::from(row[index] as i8) * f64::from(row_scale),
        F::Int4 => {
            let code = row[index / 2] >> (4 * (index % 2)) & 15;
            (f64::from(code) - 8.0) * f64::from(row_scale)
        }
        F::Q8_0 => {
            let block = index / 32 * 34;
            f64::from(row[block + 2 + index % 32] as i8) * f16::from_bits(half(block)).to_f64()
        }
        F::Q4_0 | F::Int4G32 => grouped(32),
        F::Int4G128 => grouped(128),
        _ => f64::NAN,
    }
}

/// A value of magnitude 0.05 to 1: nothing denormal in any format, nothing that rounds to zero.
pub fn random_weight(rng: &mut fastrand::Rng) -> f32 {
    let magnitude = 0.05 + 0.95 * rng.f32();
    if rng.bool() { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (WeightFormat::Q8_0, 1.0 / 127.0),
            // -8..7: the positive end is clipped by up to a whole step.
            (WeightFormat::Q4_0, 2.0 / 8.0),
        ] {
            for k in [1, 31, 33, 100, 256] {
                let weights: Vec<f32> = (0..3 * k).map(|_| random_weight(&mut rng)).collect();
                let packed = pack(format, 3, k, &weights).unwrap();
                let stride = row_bytes(format, k).unwrap();
                assert_eq!(packed.bytes.len(), 3 * stride);
                for (i, original) in weights.iter().enumerate() {
                    let row = &packed.bytes[i / k * stride..][..stride];
                    let scale = packed.row_scales.get(i / k).copied().unwrap_or(1.0);
                    let error = (weight(format, row, scale, i % k) - f64::from(*original)).abs();
                    assert!(error <= step * 0.51, "{format} k {k}: {error}");
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
    fn packed_bytes_mean_what_the_storage_formats_definition_says() {
        use rooflined_core::precision::quantise::{Encoded, decode};
        let mut rng = fastrand::Rng::with_seed(9);
        let weights: Vec<f32> = (0..2 * 256).map(|_| random_weight(&mut rng)).collect();
        for format in WeightFormat::ALL {
            let Some(packed) = pack(*format, 2, 256, &weights) else { continue };
            let stride = row_bytes(*format, 256).unwrap();
            let encoded = Encoded {
                format: *format,
                rows: 2,
                columns: 256,
                bytes: packed.bytes,
                row_scales: packed.row_scales,
                tensor_scale: 1.0,
            };
            for (i, restored) in decode(&encoded).unwrap().iter().enumerate() {
                let scale = encoded.row_scales.get(i / 256).copied().unwrap_or(1.0);
                let row = &encoded.bytes[i / 256 * stride..][..stride];
                assert_eq!(*restored, weight(*format, row, scale, i % 256) as f32, "{format} {i}");
            }
        }
    }

    #[test]
    fn formats_without_kernels_and_wrong_sizes_are_refused() {
        assert!(row_bytes(WeightFormat::Q4KM, 256).is_none());
        assert!(pack(WeightFormat::Int8, 2, 3, &[0.0; 5]).is_none());
        assert!(pack(WeightFormat::Int8, 2, 0, &[]).is_none());
    }
}
