//! `cvt`: from one type to another.

use crate::float::{BF16, E2M1, E4M3, E5M2, F16, F32, Format, Rounding, TF32, flush};

/// The type of one side of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer { bits: u32, signed: bool },
    Real(Format),
    Double,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::Real(F16),
            "bf16" => Self::Real(BF16),
            "f32" => Self::Real(F32),
            "tf32" => Self::Real(TF32),
            "f64" => Self::Double,
            _ => {
                let signed = name.starts_with('s');
                if !signed && !name.starts_with('u') {
                    return None;
                }
                let bits = name[1..].parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
                Self::Integer { bits, signed }
            }
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i128),
    Real(f64),
}

/// A conversion of one value to one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Convert {
    from: Kind,
    to: Kind,
    rounding: Rounding,
    /// The result, still real, is rounded to an integer.
    integral: bool,
    saturate: bool,
    finite: bool,
    flush: bool,
    relu: bool,
}

/// A conversion of two singles, or of two packed values, to two packed ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pack {
    pub from: Format,
    pub to: Format,
    /// Whether the sources stand in one word.
    pub packed: bool,
    finite: bool,
    relu: bool,
    rounding: Rounding,
}

/// What a `cvt` does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Conversion {
    One(Convert),
    Two(Pack),
}

impl Conversion {
    /// From the words after `cvt`; None where one is not known.
    pub fn named(words: &[&str]) -> Option<Self> {
        let [modifiers @ .., to, from] = words else { return None };
        let mut rounding = None;
        let (mut integral, mut saturate, mut finite, mut flush, mut relu) =
            (false, false, false, false, false);
        for &modifier in modifiers {
            match modifier {
                "sat" => saturate = true,
                "satfinite" => finite = true,
                "ftz" => flush = true,
                "relu" => relu = true,
                _ => {
                    let name = modifier.strip_suffix('i');
                    integral |= name.is_some();
                    rounding = Some(Rounding::named(name.unwrap_or(modifier))?);
                }
            }
        }
        if let Some(pack) = Pack::named(to, from) {
            return Some(Self::Two(Pack {
                finite,
                relu,
                rounding: rounding.unwrap_or(Rounding::Nearest),
                ..pack
            }));
        }
        Some(Self::One(Convert {
            from: Kind::named(from)?,
            to: Kind::named(to)?,
            rounding: rounding.unwrap_or(Rounding::Nearest),
            integral,
            saturate,
            finite,
            flush,
            relu,
        }))
    }
}

impl Convert {
    /// The result's bits; `register` is the destination's width, up to which an integer's sign goes.
    #[inline]
    pub fn apply(self, bits: u64, register: u32) -> u64 {
        let bits = if self.flush && self.from == Kind::Real(F32) { flush(bits) } else { bits };
        let number = match self.from {
            Kind::Integer { bits: width, signed } => {
                let spare = 64 - width;
                Number::Integer(if signed {
                    i128::from((bits << spare).cast_signed() >> spare)
                } else {
                    i128::from((bits << spare) >> spare)
                })
            }
            Kind::Real(F32) => Number::Real(f64::from(f32::from_bits(bits as u32))),
            Kind::Real(format) => Number::Real(format.decode(bits as u32 & 0xffff)),
            Kind::Double => Number::Real(f64::from_bits(bits)),
        };
        match self.to {
            Kind::Integer { bits: width, signed } => self.integer(number, width, signed, register),
            Kind::Real(format) => self.real(number, format),
            Kind::Double => match number {
                Number::Integer(value) => (value as f64).to_bits(),
                Number::Real(value) => self.adjusted(value).to_bits(),
            },
        }
    }

    fn integer(self, number: Number, width: u32, signed: bool, register: u32) -> u64 {
        let (least, most) = match (signed, width) {
            (true, _) => (-(1_i128 << (width - 1)), (1_i128 << (width - 1)) - 1),
            (false, _) => (0, (1_i128 << width) - 1),
        };
        let value = match number {
            Number::Integer(value) if self.saturate => value.clamp(least, most),
            Number::Integer(value) => value,
            // A NaN becomes 0, what is out of range the nearest end.
            Number::Real(value) => (round(value, self.rounding) as i128).clamp(least, most),
        };
        let spare = 64 - width;
        let bits = value as u64;
        let spread = if signed {
            ((bits << spare).cast_signed() >> spare).cast_unsigned()
        } else {
            (bits << spare) >> spare
        };
        if register >= 64 { spread } else { spread & ((1 << register) - 1) }
    }

    fn real(self, number: Number, format: Format) -> u64 {
        let encoded = match number {
            // Straight from the integer, so that it is rounded once.
            Number::Integer(value) if format == F32 && self.rounding == Rounding::Nearest => {
                (value as f32).to_bits()
            }
            Number::Integer(value) => format.encode(to_odd(value), self.rounding, self.finite),
            Number::Real(value) => format.encode(self.adjusted(value), self.rounding, self.finite),
        };
        let encoded = u64::from(encoded);
        match format {
            TF32 => encoded << 13,
            F32 if self.flush => flush(encoded),
            _ => encoded,
        }
    }

    /// A real number rounded to an integer, held between 0 and 1 or above 0 where the conversion says so.
    fn adjusted(self, value: f64) -> f64 {
        let value = if self.integral { round(value, self.rounding) } else { value };
        if self.saturate {
            // A NaN becomes 0.
            if value > 0.0 { value.min(1.0) } else { 0.0 }
        } else if self.relu && value < 0.0 {
            0.0
        } else {
            value
        }
    }
}

/// The integer as a double, rounded to odd, for a format of fewer bits.
fn to_odd(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let kept = (magnitude >> drop) | u128::from(magnitude & ((1 << drop) - 1) != 0);
    let double = kept as f64 * f64::from(drop).exp2();
    if value < 0 { -double } else { double }
}

fn round(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Away => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

impl Pack {
    fn named(to: &str, from: &str) -> Option<Self> {
        let format = |name: &str| {
            Some(match name {
                "f16x2" => F16,
                "bf16x2" => BF16,
                "e4m3x2" => E4M3,
                "e5m2x2" => E5M2,
                "e2m1x2" => E2M1,
                _ => return None,
            })
        };
        let to = format(to)?;
        let (from, packed) = if from == "f32" { (F32, false) } else { (format(from)?, true) };
        Some(Self { from, to, packed, finite: false, relu: false, rounding: Rounding::Nearest })
    }

    /// The word of the upper and the lower value's bits.
    pub fn apply(self, upper: u64, lower: u64) -> u64 {
        let one = |bits: u64| {
            let value = self.from.decode(bits as u32);
            let value = if self.relu && value < 0.0 { 0.0 } else { value };
            u64::from(self.to.encode(value, self.rounding, self.finite))
        };
        one(upper) << self.to.width() | one(lower)
    }

    /// The two packed values of a word, upper first.
    pub fn split(self, word: u64) -> (u64, u64) {
        let width = self.from.width();
        ((word >> width) & ((1 << width) - 1), word & ((1 << width) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(name: &str, bits: u64, register: u32) -> u64 {
        match Conversion::named(&name.split('.').collect::<Vec<_>>()).unwrap() {
            Conversion::One(convert) => convert.apply(bits, register),
            Conversion::Two(pack) if pack.packed => {
                let (upper, lower) = pack.split(bits);
                pack.apply(upper, lower)
            }
            Conversion::Two(pack) => pack.apply(bits >> 32, bits & 0xffff_ffff),
        }
    }

    fn single(value: f32) -> u64 {
        u64::from(value.to_bits())
    }

    #[test]
    fn integers_are_cut_spread_and_held() {
        assert_eq!(convert("s32.s8", 0x1ff, 32), 0xffff_ffff);
        assert_eq!(convert("u32.u8", 0x1ff, 32), 0xff);
        assert_eq!(convert("s8.s32", 0x180, 32), 0xffff_ff80);
        assert_eq!(convert("u16.u32", 0x1_2345, 16), 0x2345);
        assert_eq!(convert("s64.s32", 0xffff_fffe, 64), u64::MAX - 1);
        assert_eq!(convert("sat.u8.s32", 0xffff_ffff, 32), 0);
        assert_eq!(convert("sat.s8.s32", 300, 32), 127);
    }

    #[test]
    fn reals_become_integers_by_each_rounding() {
        for (name, results) in [
            ("rni.s32.f32", [2, 4, -2, 3]),
            ("rzi.s32.f32", [2, 3, -2, 2]),
            ("rmi.s32.f32", [2, 3, -3, 2]),
            ("rpi.s32.f32", [3, 4, -2, 3]),
        ] {
            for (value, result) in [2.5, 3.5, -2.5, 2.75].into_iter().zip(results) {
                assert_eq!(
                    convert(name, single(value), 32),
                    i64::from(result) as u64 & 0xffff_ffff,
                    "{name} {value}"
                );
            }
        }
        assert_eq!(convert("rni.s32.f32", single(1e20), 32), 0x7fff_ffff);
        assert_eq!(convert("rzi.u32.f32", single(-1.0), 32), 0);
        assert_eq!(convert("rzi.s32.f32", single(f32::NAN), 32), 0);
        assert_eq!(
            convert("rzi.s64.f64", (-1.5e10_f64).to_bits(), 64),
            (-15_000_000_000_i64).cast_unsigned()
        );
        assert_eq!(convert("rni.f32.f32", single(-2.5), 32), single(-2.0));
    }

    #[test]
    fn integers_become_reals_with_one_rounding() {
        assert_eq!(convert("rn.f32.s32", 16_777_217, 32), single(16_777_216.0));
        assert_eq!(convert("rp.f32.u32", 16_777_217, 32), single(16_777_218.0));
        assert_eq!(convert("rz.f32.u32", u64::from(u32::MAX), 32), single(4_294_967_040.0));
        assert_eq!(convert("rn.f32.s8", 0x80, 32), single(-128.0));
        assert_eq!(convert("rn.f16.s32", 2049, 16), 0x6800);
        assert_eq!(convert("rn.f64.u64", u64::MAX, 64), 18_446_744_073_709_551_616_f64.to_bits());
        // A tie between two singles but for the last of 60 bits.
        let just_above = (1 << 60) + (1 << 36) + 1;
        assert_eq!(convert("rn.f32.u64", just_above, 32), (1_u64 << 60).to_f32_up());
        assert_eq!(convert("rz.f32.u64", just_above, 32), single((1_u64 << 60) as f32));
    }

    trait NextUp {
        fn to_f32_up(self) -> u64;
    }
    impl NextUp for u64 {
        fn to_f32_up(self) -> u64 {
            single(self as f32) + 1
        }
    }

    #[test]
    fn packed_values_have_the_first_source_above() {
        let two = single(1.0) << 32 | single(-2.0);
        assert_eq!(convert("rn.f16x2.f32", two, 32), 0x3c00_c000);
        assert_eq!(convert("rn.bf16x2.f32", two, 32), 0x3f80_c000);
        assert_eq!(convert("rn.relu.f16x2.f32", two, 32), 0x3c00_0000);
        assert_eq!(convert("rn.satfinite.e4m3x2.f32", single(1e4) << 32 | single(-2.0), 16), 0x7ec0);
        assert_eq!(convert("rn.f16x2.e4m3x2", 0x7ec0, 32), 0x5f00_c000);
        assert_eq!(convert("rna.tf32.f32", 0x3f80_1000, 32), 0x3f80_2000);
        assert_eq!(convert("rn.tf32.f32", 0x3f80_1000, 32), 0x3f80_0000);
        assert_eq!(convert("f32.f16", 0x0001, 32), single(2f32.powi(-24)));
        assert_eq!(convert("sat.f32.f32", single(1.5), 32), single(1.0));
        assert_eq!(convert("sat.f32.f32", single(f32::NAN), 32), 0);
        assert_eq!(convert("ftz.f32.f32", 1, 32), 0);
    }
}
