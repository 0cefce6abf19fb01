//! Floating-point formats: their bits from a number and a number from their bits.

/// How a number that lies between two of a format is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// The modifier of an instruction: `rn`, `rz`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rn" => Self::Nearest,
            "rna" => Self::Away,
            "rz" => Self::Zero,
            "rm" => Self::Down,
            "rp" => Self::Up,
            _ => return None,
        })
    }
}

/// A binary format of at most 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    /// The largest finite number's bits.
    largest: u32,
    /// The bits of infinity, where the format has one.
    infinity: Option<u32>,
    /// The bits that a NaN becomes.
    nan: u32,
}

pub(crate) const F32: Format = Format {
    exponent: 8,
    mantissa: 23,
    bias: 127,
    largest: 0x7f7f_ffff,
    infinity: Some(0x7f80_0000),
    nan: 0x7fff_ffff,
};
pub(crate) const F16: Format =
    Format { exponent: 5, mantissa: 10, bias: 15, largest: 0x7bff, infinity: Some(0x7c00), nan: 0x7fff };
pub(crate) const BF16: Format =
    Format { exponent: 8, mantissa: 7, bias: 127, largest: 0x7f7f, infinity: Some(0x7f80), nan: 0x7fff };
/// The upper 19 bits of a single.
pub(crate) const TF32: Format = Format {
    exponent: 8,
    mantissa: 10,
    bias: 127,
    largest: 0x3_fbff,
    infinity: Some(0x3_fc00),
    nan: 0x3_ffff,
};
/// No infinity; all ones are a NaN.
pub(crate) const E4M3: Format =
    Format { exponent: 4, mantissa: 3, bias: 7, largest: 0x7e, infinity: None, nan: 0x7f };
pub(crate) const E5M2: Format =
    Format { exponent: 5, mantissa: 2, bias: 15, largest: 0x7b, infinity: Some(0x7c), nan: 0x7f };
/// Neither infinity nor NaN.
pub(crate) const E2M1: Format =
    Format { exponent: 2, mantissa: 1, bias: 1, largest: 0x7, infinity: None, nan: 0x7 };

impl Format {
    /// Its bits.
    pub fn width(self) -> u32 {
        1 + self.exponent + self.mantissa
    }

    /// The number's bits; beyond the largest, the largest itself if `saturate`.
    #[inline]
    pub fn encode(self, number: f64, rounding: Rounding, saturate: bool) -> u32 {
        let bits = number.to_bits();
        let sign = u32::from(number.is_sign_negative()) << (self.exponent + self.mantissa);
        let magnitude = bits & (u64::MAX >> 1);
        let drop = 52 - self.mantissa;
        let lowest = i64::from(1 - self.bias) + 1023;
        // Rounding to nearest inside the normal range is an addition and a shift.
        if rounding == Rounding::Nearest && (magnitude >> 52).cast_signed() >= lowest {
            let up = (1_u64 << (drop - 1)) - 1 + ((magnitude >> drop) & 1);
            let rounded = (magnitude + up) >> drop;
            let encoded = rounded - ((lowest.cast_unsigned() - 1) << self.mantissa);
            if encoded <= u64::from(self.largest) {
                return sign | encoded as u32;
            }
        }
        if number.is_nan() {
            return self.nan;
        }
        sign | self.encode_any(number.abs(), sign != 0, rounding, saturate)
    }

    fn encode_any(self, number: f64, negative: bool, rounding: Rounding, saturate: bool) -> u32 {
        if number.is_infinite() {
            return if saturate { self.largest } else { self.infinity.unwrap_or(self.nan) };
        }
        let bits = number.to_bits();
        let field = i32::try_from(bits >> 52).unwrap_or(0);
        let fraction = bits & ((1 << 52) - 1);
        let significand = if field == 0 { fraction } else { fraction | 1 << 52 };
        // The exponent above the format's smallest normal one; below it, more bits fall off.
        let above = field.max(1) - 1023 - (1 - self.bias);
        let drop = (52 - self.mantissa + above.min(0).unsigned_abs()).min(63);
        let kept = significand >> drop;
        let lost = significand & ((1 << drop) - 1);
        let half = 1 << (drop - 1);
        let up = match rounding {
            Rounding::Nearest => lost > half || (lost == half && kept & 1 == 1),
            Rounding::Away => lost >= half,
            Rounding::Zero => false,
            Rounding::Down => negative && lost != 0,
            Rounding::Up => !negative && lost != 0,
        };
        let encoded = ((above.max(0) as u64) << self.mantissa) + kept + u64::from(up);
        if encoded <= u64::from(self.largest) {
            return encoded as u32;
        }
        let inward = match rounding {
            Rounding::Nearest | Rounding::Away => false,
            Rounding::Zero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
        };
        if saturate || inward { self.largest } else { self.infinity.unwrap_or(self.nan) }
    }

    /// The number that the bits mean.
    #[inline]
    pub fn decode(self, bits: u32) -> f64 {
        if self == F16 {
            return f64::from(half_to_single(bits as u16));
        }
        if self == BF16 {
            return f64::from(f32::from_bits(bits << 16));
        }
        let sign = bits >> (self.exponent + self.mantissa) & 1;
        let magnitude = bits & ((1 << (self.exponent + self.mantissa)) - 1);
        let number = if Some(magnitude) == self.infinity {
            f64::INFINITY
        } else if magnitude > self.largest {
            f64::NAN
        } else {
            let field = magnitude >> self.mantissa;
            let fraction = magnitude & ((1 << self.mantissa) - 1);
            let significand = if field == 0 { fraction } else { fraction | 1 << self.mantissa };
            let exponent = field.max(1).cast_signed() - self.bias - self.mantissa.cast_signed();
            f64::from(significand) * f64::from_bits((u64::from((exponent + 1023).cast_unsigned())) << 52)
        };
        if sign == 1 { -number } else { number }
    }
}

/// A half's value: its bits moved into a single are 2^112 too small, with one multiplication put right.
#[inline]
pub(crate) fn half_to_single(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let single = if magnitude >= 0x7c00 {
        0x7f80_0000 | magnitude << 13
    } else {
        (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits()
    };
    f32::from_bits(single | u32::from(bits & 0x8000) << 16)
}

/// The sum, rounded to odd: a second rounding to a format of at most 26 significant bits is then the only one that
/// shows.
#[inline]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    if lost == 0.0 || !lost.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let outward = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if outward { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// A subnormal single becomes a zero of its sign.
#[inline]
pub(crate) fn flush(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_decoding_and_encoding() {
        for bits in 0..=u16::MAX {
            let value = F16.decode(u32::from(bits));
            let reference = half::f16::from_bits(bits);
            if reference.is_nan() {
                assert!(value.is_nan());
                continue;
            }
            assert_eq!(value, reference.to_f64());
            for rounding in [Rounding::Nearest, Rounding::Zero, Rounding::Up] {
                assert_eq!(F16.encode(value, rounding, false), u32::from(bits), "{value}");
            }
        }
    }

    #[test]
    fn singles_round_to_halves_as_a_second_implementation_has_it() {
        let mut random = 0x1234_5678_u32;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            // Most exponents near the format's range.
            let single = f32::from_bits(random & 0x8fff_ffff | 0x3000_0000 | (random & 0x1000_0000) << 2);
            if single.is_nan() {
                continue;
            }
            assert_eq!(
                F16.encode(f64::from(single), Rounding::Nearest, false),
                u32::from(half::f16::from_f32(single).to_bits()),
                "{single:e}"
            );
            assert_eq!(
                BF16.encode(f64::from(single), Rounding::Nearest, false),
                u32::from(half::bf16::from_f32(single).to_bits()),
                "{single:e}"
            );
            assert_eq!(F32.encode(f64::from(single), Rounding::Down, false), single.to_bits());
        }
    }

    #[test]
    fn directed_rounding_goes_where_it_says() {
        let above_one = 1.0 + f64::EPSILON;
        assert_eq!(F16.encode(above_one, Rounding::Up, false), 0x3c01);
        assert_eq!(F16.encode(above_one, Rounding::Down, false), 0x3c00);
        assert_eq!(F16.encode(-above_one, Rounding::Down, false), 0xbc01);
        assert_eq!(F16.encode(-above_one, Rounding::Zero, false), 0xbc00);
        assert_eq!(F16.encode(1e9, Rounding::Nearest, false), 0x7c00);
        assert_eq!(F16.encode(1e9, Rounding::Nearest, true), 0x7bff);
        assert_eq!(F16.encode(1e9, Rounding::Zero, false), 0x7bff);
        assert_eq!(F16.encode(65519.9, Rounding::Nearest, false), 0x7bff);
        assert_eq!(F16.encode(65520.0, Rounding::Nearest, false), 0x7c00);
        // Half of the smallest subnormal is a tie with zero.
        assert_eq!(F16.encode(2f64.powi(-25), Rounding::Nearest, false), 0);
        assert_eq!(F16.encode(2f64.powi(-25), Rounding::Away, false), 1);
        assert_eq!(F16.encode(2f64.powi(-25) * 1.001, Rounding::Nearest, false), 1);
        assert_eq!(TF32.encode(1.0 + 2f64.powi(-11), Rounding::Away, false), (127 << 10) + 1);
        assert_eq!(TF32.encode(1.0 + 2f64.powi(-11), Rounding::Nearest, false), 127 << 10);
    }

    #[test]
    fn the_eight_bit_formats_have_their_published_values() {
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert!(E4M3.decode(0x7f).is_nan());
        assert!(E4M3.decode(0xff).is_nan());
        assert_eq!(E4M3.decode(0x01), 2f64.powi(-9));
        assert_eq!(E4M3.decode(0x08), 2f64.powi(-6));
        assert_eq!(E4M3.decode(0xb8), -1.0);
        assert_eq!(E4M3.encode(1000.0, Rounding::Nearest, true), 0x7e);
        assert_eq!(E4M3.encode(-1000.0, Rounding::Nearest, true), 0xfe);
        assert_eq!(E4M3.encode(1000.0, Rounding::Nearest, false), 0x7f);
        assert_eq!(E4M3.encode(464.0, Rounding::Nearest, false), 0x7e);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert_eq!(E5M2.decode(0x7c), f64::INFINITY);
        assert_eq!(
            (0..8).map(|bits| E2M1.decode(bits)).collect::<Vec<_>>(),
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        );
        assert_eq!(E2M1.encode(-5.1, Rounding::Nearest, true), 0xf);
        for bits in 0..=255 {
            if bits & 0x7f != 0x7f {
                assert_eq!(E4M3.encode(E4M3.decode(bits), Rounding::Nearest, false), bits);
            }
        }
    }

    #[test]
    fn a_sum_rounded_to_odd_keeps_what_a_tie_hides() {
        // 1 + 2^-24 is a tie between two singles; 2^-80 more is not.
        let tie = add_odd(1.0 + 2f64.powi(-24), 2f64.powi(-80));
        assert_eq!(F32.encode(tie, Rounding::Nearest, false), 1f32.to_bits() + 1);
        let under = add_odd(1.0 + 2f64.powi(-24), -2f64.powi(-80));
        assert_eq!(F32.encode(under, Rounding::Nearest, false), 1f32.to_bits());
        assert_eq!(add_odd(1.5, 2.25), 3.75);
    }
}
