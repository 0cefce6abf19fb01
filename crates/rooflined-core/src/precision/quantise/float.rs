//! Scalar conversions: tf32, and the small floats of the OCP 8-bit and microscaling specifications.
//!
//! | format | bits | bias | largest | special |
//! |---|---|---|---|---|
//! | e4m3 | 1-4-3 | 7 | 448 | NaN is all ones; no infinity |
//! | e5m2 | 1-5-2 | 15 | 57344 | as IEEE: infinities and NaNs |
//! | e2m1 | 1-2-1 | 1 | 6 | none |
//! | e8m0 | 8 exponent bits | 127 | 2^127 | 0xff is NaN |
//!
//! Conversions round to nearest, ties to even, and saturate: what is too large, infinity included, becomes the largest
//! number. NaN stays NaN where there is one.

use half::{bf16, f16};

/// A sign, `exponent` and `mantissa` bits, and the code of the largest finite magnitude.
struct SmallFloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    largest_code: u8,
}

const E4M3: SmallFloat = SmallFloat { exponent_bits: 4, mantissa_bits: 3, largest_code: 0x7e };
const E5M2: SmallFloat = SmallFloat { exponent_bits: 5, mantissa_bits: 2, largest_code: 0x7b };
const E2M1: SmallFloat = SmallFloat { exponent_bits: 2, mantissa_bits: 1, largest_code: 0x7 };

/// Two to the power of `exponent`, which a normal number has.
pub(super) const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Rounds to an integer, ties to even; exact for magnitudes up to 2^22.
pub(super) fn round_even(value: f32) -> f32 {
    // Adding 1.5 x 2^23 leaves no bits for a fraction; the addition itself rounds ties to even.
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT) - SHIFT
}

impl SmallFloat {
    const fn bias(&self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Sign and magnitude; `value` is a number.
    #[inline]
    fn encode(&self, value: f32) -> u8 {
        let sign = ((value.to_bits() >> 31) as u8) << (self.exponent_bits + self.mantissa_bits);
        let magnitude = value.abs();
        let (mantissa, bias) = (self.mantissa_bits as i32, self.bias());
        // Above this any rounding saturates, and below it the product is small.
        if magnitude >= power_of_two((1 << self.exponent_bits) - bias) {
            return sign | self.largest_code;
        }
        let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
        let steps = round_even(magnitude * power_of_two(mantissa - exponent)) as u32;
        // A step count that reached the next power of two carries into the exponent by itself.
        let code = (((exponent - 1 + bias) as u32) << mantissa) + steps;
        sign | code.min(u32::from(self.largest_code)) as u8
    }

    /// The value of a code as if no code were special.
    const fn decode(&self, code: u8) -> f32 {
        let exponent = (code >> self.mantissa_bits) as i32 & ((1 << self.exponent_bits) - 1);
        let mantissa = (code & ((1 << self.mantissa_bits) - 1)) as f32;
        let hidden = if exponent == 0 { 0.0 } else { (1 << self.mantissa_bits) as f32 };
        let normal = if exponent == 0 { 1 } else { exponent };
        let magnitude = (hidden + mantissa) * power_of_two(normal - self.bias() - self.mantissa_bits as i32);
        if code >> (self.exponent_bits + self.mantissa_bits) & 1 == 1 { -magnitude } else { magnitude }
    }
}

/// Saturating conversion to e4m3.
#[must_use]
pub fn encode_e4m3(value: f32) -> u8 {
    if value.is_nan() { 0x7f | ((value.to_bits() >> 24) as u8 & 0x80) } else { E4M3.encode(value) }
}

/// The value of an e4m3 code.
#[must_use]
pub const fn decode_e4m3(code: u8) -> f32 {
    if code & 0x7f == 0x7f { f32::NAN } else { E4M3.decode(code) }
}

/// Saturating conversion to e5m2: infinities become the largest number as well.
#[must_use]
pub fn encode_e5m2(value: f32) -> u8 {
    if value.is_nan() { 0x7e | ((value.to_bits() >> 24) as u8 & 0x80) } else { E5M2.encode(value) }
}

/// The value of an e5m2 code.
#[must_use]
pub const fn decode_e5m2(code: u8) -> f32 {
    match code & 0x7f {
        0x7c if code < 0x80 => f32::INFINITY,
        0x7c => f32::NEG_INFINITY,
        0x7d..=0x7f => f32::NAN,
        _ => E5M2.decode(code),
    }
}

/// Saturating conversion to e2m1, in the low four bits. There is no NaN: it becomes the largest number.
#[must_use]
pub fn encode_e2m1(value: f32) -> u8 {
    E2M1.encode(if value.is_nan() { f32::INFINITY } else { value })
}

/// The value of the e2m1 code in the low four bits.
#[must_use]
pub const fn decode_e2m1(code: u8) -> f32 {
    E2M1.decode(code & 15)
}

/// The power of two of an e8m0 code.
#[must_use]
pub const fn decode_e8m0(code: u8) -> f32 {
    match code {
        // 2^-127 is subnormal.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

/// The e8m0 code that microscaling gives a block: the exponent of its largest magnitude less that of the element
/// format's largest number (OCP MX v1.0, 6.3). A block of zeros gets the smallest.
#[must_use]
pub fn shared_exponent(largest: f32, element_exponent: i32) -> u8 {
    let exponent = if largest < f32::MIN_POSITIVE { -127 } else { (largest.to_bits() >> 23) as i32 - 127 };
    (exponent - element_exponent + 127).clamp(0, 254) as u8
}

/// The nearest value with a 10-bit mantissa, ties away from zero, as `cvt.rna.tf32.f32` rounds.
#[must_use]
pub fn encode_tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    f32::from_bits((value.to_bits() + 0x1000) & !0x1fff)
}

/// IEEE binary16, infinite beyond 65519.
#[must_use]
pub fn encode_fp16(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

/// The value of a binary16.
#[must_use]
pub fn decode_fp16(code: u16) -> f32 {
    f16::from_bits(code).to_f32()
}

/// The upper half of a binary32, rounded to nearest even.
#[must_use]
pub fn encode_bf16(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

/// The value of a bfloat16.
#[must_use]
pub fn decode_bf16(code: u16) -> f32 {
    bf16::from_bits(code).to_f32()
}
