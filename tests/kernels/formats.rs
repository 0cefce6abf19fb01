//! Stored formats of weights: random ones, and what they mean by the formats' definitions.

use crate::device::Random;

/// Weights of n rows of k, as a kernel is given them and as numbers.
pub struct Weights {
    pub bytes: Vec<u8>,
    pub scales: Vec<u8>,
    /// Row after row.
    pub values: Vec<f64>,
    /// The size of what a value is made of: more than itself where it is a difference.
    pub sizes: Vec<f64>,
}

/// A format: its name in the kernels' names, and what k must be a multiple of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub name: &'static str,
    pub multiple: usize,
    /// Bytes of 256 weights.
    pub bytes_of_256: usize,
}

const fn format(name: &'static str, multiple: usize, bytes_of_256: usize) -> Format {
    Format { name, multiple, bytes_of_256 }
}

pub const FORMATS: [Format; 12] = [
    format("f32", 32, 1024),
    format("f16", 32, 512),
    format("bf16", 32, 512),
    format("i8", 32, 256),
    format("f8", 32, 256),
    format("i4g128", 128, 128),
    format("q8_0", 32, 8 * 34),
    format("q4_0", 32, 8 * 18),
    format("q4_k", 256, 144),
    format("q6_k", 256, 210),
    format("nvf4", 32, 128),
    format("mxf4", 32, 128),
];

/// A half's bits for a number between the smallest normal ones and 2^15, cut off.
pub fn half(value: f64) -> u16 {
    if value == 0.0 {
        return 0;
    }
    let exponent = value.abs().log2().floor();
    let fraction = ((value.abs() / exponent.exp2() - 1.0) * 1024.0) as u16;
    u16::from(value < 0.0) << 15 | ((exponent + 15.0) as u16) << 10 | fraction
}

/// The number of a half that is not infinite.
pub fn from_half(bits: u16) -> f64 {
    from_small(u32::from(bits), 5, 10, 15)
}

/// A number of sign, exponent and mantissa with subnormals below; infinities and NaNs are not among those used.
fn from_small(bits: u32, exponent: u32, mantissa: u32, bias: i32) -> f64 {
    let field = (bits >> mantissa) & ((1 << exponent) - 1);
    let fraction = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
    let size = if field == 0 {
        fraction * 2f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2f64.powi(field.cast_signed() - bias)
    };
    if bits >> (exponent + mantissa) & 1 == 1 { -size } else { size }
}

pub fn from_e4m3(bits: u8) -> f64 {
    from_small(u32::from(bits), 4, 3, 7)
}

pub fn from_e2m1(bits: u8) -> f64 {
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits & 7)] * if bits & 8 == 0 { 1.0 } else { -1.0 }
}

pub fn from_bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// A random e4m3 that is no NaN, subnormals among them.
pub fn random_e4m3(random: &mut Random) -> u8 {
    loop {
        let byte = random.byte();
        if byte & 0x7f != 0x7f {
            return byte;
        }
    }
}

/// A scale as quantised weights have it, of either sign where the format does not forbid it.
fn scale(random: &mut Random) -> f64 {
    (random.unit() * 0.02).clamp(-0.02, 0.02) + 1e-3
}

impl Weights {
    pub fn random(format: Format, n: usize, k: usize, random: &mut Random) -> Self {
        let mut weights =
            Self { bytes: Vec::new(), scales: Vec::new(), values: Vec::new(), sizes: Vec::new() };
        for _ in 0..n {
            weights.row(format.name, k, random);
        }
        assert_eq!(weights.values.len(), n * k);
        assert_eq!(weights.bytes.len(), n * k * format.bytes_of_256 / 256);
        if weights.sizes.is_empty() {
            weights.sizes = weights.values.iter().map(|value| value.abs()).collect();
        }
        weights
    }

    fn row(&mut self, format: &str, k: usize, random: &mut Random) {
        match format {
            "f32" | "f16" | "bf16" => (0..k).for_each(|_| self.plain(format, random.unit())),
            "i8" | "f8" => {
                let row = scale(random) as f32;
                self.scales.extend(row.to_le_bytes());
                for _ in 0..k {
                    let byte = if format == "i8" { random.byte() } else { random_e4m3(random) };
                    let value = if format == "i8" { f64::from(byte.cast_signed()) } else { from_e4m3(byte) };
                    self.bytes.push(byte);
                    self.values.push(f64::from(row) * value);
                }
            }
            "i4g128" => (0..k / 128).for_each(|_| {
                let scale = half(scale(random));
                self.scales.extend(scale.to_le_bytes());
                self.nibbles(64, from_half(scale), random);
            }),
            "q4_0" => (0..k / 32).for_each(|_| {
                let scale = half(scale(random));
                self.bytes.extend(scale.to_le_bytes());
                self.nibbles(16, from_half(scale), random);
            }),
            "q8_0" => (0..k / 32).for_each(|_| {
                let scale = half(scale(random));
                self.bytes.extend(scale.to_le_bytes());
                for _ in 0..32 {
                    let byte = random.byte();
                    self.bytes.push(byte);
                    self.values.push(from_half(scale) * f64::from(byte.cast_signed()));
                }
            }),
            "q4_k" => (0..k / 256).for_each(|_| self.q4_k(random)),
            "q6_k" => (0..k / 256).for_each(|_| self.q6_k(random)),
            "nvf4" => (0..k / 16).for_each(|_| {
                // Unsigned: the sign is the weight's.
                let scale = random_e4m3(random) & 0x7f;
                self.scales.push(scale);
                self.pairs(8, from_e4m3(scale), random);
            }),
            _ => (0..k / 32).for_each(|_| {
                // Neighbours mostly alike, some far apart.
                let scale =
                    if random.below(8) == 0 { 60 + random.below(130) } else { 117 + random.below(20) } as u8;
                self.scales.push(scale);
                self.pairs(16, 2f64.powi(i32::from(scale) - 127), random);
            }),
        }
    }

    fn plain(&mut self, format: &str, value: f64) {
        let (bytes, value) = match format {
            "f32" => ((value as f32).to_le_bytes().to_vec(), f64::from(value as f32)),
            "f16" => (half(value).to_le_bytes().to_vec(), from_half(half(value))),
            _ => {
                let bits = ((value as f32).to_bits() >> 16) as u16;
                (bits.to_le_bytes().to_vec(), from_bf16(bits))
            }
        };
        self.bytes.extend(bytes);
        self.values.push(value);
    }

    /// Low nibbles first, then the high ones; a weight is the nibble less 8.
    fn nibbles(&mut self, bytes: usize, scale: f64, random: &mut Random) {
        let packed: Vec<u8> = (0..bytes).map(|_| random.byte()).collect();
        let low = packed.iter().map(|byte| byte & 15);
        let high = packed.iter().map(|byte| byte >> 4);
        self.values.extend(low.chain(high).map(|nibble| scale * (f64::from(nibble) - 8.0)));
        self.bytes.extend(packed);
    }

    /// Neighbours in the low and the high nibble; e2m1.
    fn pairs(&mut self, bytes: usize, scale: f64, random: &mut Random) {
        for _ in 0..bytes {
            let byte = random.byte();
            self.bytes.push(byte);
            self.values.extend([scale * from_e2m1(byte), scale * from_e2m1(byte >> 4)]);
        }
    }

    /// ggml's super-block: two halves, eight scales and eight minima of six bits in twelve bytes, 256 nibbles.
    fn q4_k(&mut self, random: &mut Random) {
        let (d, least) = (half(scale(random)), half(scale(random)));
        let packed: Vec<u8> = (0..12).map(|_| random.byte()).collect();
        let nibbles: Vec<u8> = (0..128).map(|_| random.byte()).collect();
        for block in 0..8 {
            let (scale, minimum) = if block < 4 {
                (packed[block] & 63, packed[block + 4] & 63)
            } else {
                let upper = |at: usize| packed[at] >> 6 << 4;
                (packed[block + 4] & 15 | upper(block - 4), packed[block + 4] >> 4 | upper(block))
            };
            let scale = from_half(d) * f64::from(scale);
            let minimum = from_half(least) * f64::from(minimum);
            for byte in &nibbles[block / 2 * 32..block / 2 * 32 + 32] {
                let nibble = if block % 2 == 0 { byte & 15 } else { byte >> 4 };
                self.values.push(scale * f64::from(nibble) - minimum);
                self.sizes.push((scale * f64::from(nibble)).abs() + minimum.abs());
            }
        }
        self.bytes.extend(d.to_le_bytes());
        self.bytes.extend(least.to_le_bytes());
        self.bytes.extend(packed);
        self.bytes.extend(nibbles);
    }

    /// ggml's super-block: 128 bytes of low nibbles, 64 of upper bits, sixteen signed scales, a half. Written down as its
    /// dequantisation goes: four weights, 32 apart, of each byte of upper bits.
    fn q6_k(&mut self, random: &mut Random) {
        let low: Vec<u8> = (0..128).map(|_| random.byte()).collect();
        let high: Vec<u8> = (0..64).map(|_| random.byte()).collect();
        let scales: Vec<i8> = (0..16).map(|_| random.byte().cast_signed()).collect();
        let d = half(scale(random));
        let mut values = [0.0; 256];
        for (part, values) in values.chunks_exact_mut(128).enumerate() {
            let (low, high, scales) = (&low[64 * part..], &high[32 * part..], &scales[8 * part..]);
            for at in 0..32 {
                let codes = [
                    low[at] & 15 | (high[at] & 3) << 4,
                    low[at + 32] & 15 | (high[at] >> 2 & 3) << 4,
                    low[at] >> 4 | (high[at] >> 4 & 3) << 4,
                    low[at + 32] >> 4 | (high[at] >> 6 & 3) << 4,
                ];
                for (quarter, code) in codes.into_iter().enumerate() {
                    let scale = f64::from(scales[at / 16 + 2 * quarter]);
                    values[at + 32 * quarter] = from_half(d) * scale * (f64::from(code) - 32.0);
                }
            }
        }
        self.values.extend(values);
        self.bytes.extend(low);
        self.bytes.extend(high);
        self.bytes.extend(scales.iter().map(|scale| scale.cast_unsigned()));
        self.bytes.extend(d.to_le_bytes());
    }
}
