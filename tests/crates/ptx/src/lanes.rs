//! Functions of 32 lanes at once.
//!
//! A register is 32 words of 64 bits; a narrower value stands in the low bits with zeros above.

use crate::float::{BF16, F16, Rounding};

/// One register of a warp.
pub(crate) type Lanes = [u64; 32];

/// What an instruction computes, lane by lane. Every lane is computed, also those that do not take part.
#[derive(Clone, Copy)]
pub(crate) enum Function {
    One(fn(&Lanes, &mut Lanes)),
    Two(fn(&Lanes, &Lanes, &mut Lanes)),
    Three(fn(&Lanes, &Lanes, &Lanes, &mut Lanes)),
    Four(fn(&Lanes, &Lanes, &Lanes, &Lanes, &mut Lanes)),
}

/// Which lanes a comparison holds in.
pub(crate) type Comparison = fn(&Lanes, &Lanes) -> u32;

/// A type that the low bits of a lane can be taken as.
pub(crate) trait Value: Copy {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($kind:ty, $unsigned:ty;)*) => {$(
        impl Value for $kind {
            #[inline]
            fn of(bits: u64) -> Self {
                bits as Self
            }
            #[inline]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )*};
}

integers! { u8, u8; i8, u8; u16, u16; i16, u16; u32, u32; i32, u32; u64, u64; i64, u64; }

impl Value for f32 {
    #[inline]
    fn of(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Value for f64 {
    #[inline]
    fn of(bits: u64) -> Self {
        Self::from_bits(bits)
    }
    #[inline]
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// A half precision number as the number it means; made bits again, it is rounded to nearest.
#[derive(Clone, Copy)]
pub(crate) struct Half(pub f64);

/// The same for bfloat16.
#[derive(Clone, Copy)]
pub(crate) struct Brain(pub f64);

impl Value for Half {
    #[inline]
    fn of(bits: u64) -> Self {
        Self(F16.decode(bits as u32 & 0xffff))
    }
    #[inline]
    fn bits(self) -> u64 {
        u64::from(F16.encode(self.0, Rounding::Nearest, false))
    }
}

impl Value for Brain {
    #[inline]
    fn of(bits: u64) -> Self {
        Self(BF16.decode(bits as u32 & 0xffff))
    }
    #[inline]
    fn bits(self) -> u64 {
        u64::from(BF16.encode(self.0, Rounding::Nearest, false))
    }
}

/// A function of lanes from an expression of values: `each!(i32, |a, b| a.wrapping_add(b))`.
macro_rules! each {
    ($kind:ty, |$a:ident| $result:expr) => {{
        fn run(x: &Lanes, d: &mut Lanes) {
            for lane in 0..32 {
                let $a = <$kind as Value>::of(x[lane]);
                d[lane] = Value::bits($result);
            }
        }
        Function::One(run)
    }};
    ($kind:ty, |$a:ident, $b:ident| $result:expr) => {{
        fn run(x: &Lanes, y: &Lanes, d: &mut Lanes) {
            for lane in 0..32 {
                let ($a, $b) = (<$kind as Value>::of(x[lane]), <$kind as Value>::of(y[lane]));
                d[lane] = Value::bits($result);
            }
        }
        Function::Two(run)
    }};
    ($kind:ty, |$a:ident, $b:ident, $c:ident| $result:expr) => {{
        fn run(x: &Lanes, y: &Lanes, z: &Lanes, d: &mut Lanes) {
            for lane in 0..32 {
                let ($a, $b) = (<$kind as Value>::of(x[lane]), <$kind as Value>::of(y[lane]));
                let $c = <$kind as Value>::of(z[lane]);
                d[lane] = Value::bits($result);
            }
        }
        Function::Three(run)
    }};
    ($kind:ty, |$a:ident, $b:ident, $c:ident, $e:ident| $result:expr) => {{
        fn run(x: &Lanes, y: &Lanes, z: &Lanes, w: &Lanes, d: &mut Lanes) {
            for lane in 0..32 {
                let ($a, $b) = (<$kind as Value>::of(x[lane]), <$kind as Value>::of(y[lane]));
                let ($c, $e) = (<$kind as Value>::of(z[lane]), <$kind as Value>::of(w[lane]));
                d[lane] = Value::bits($result);
            }
        }
        Function::Four(run)
    }};
}

/// The same for two values in one word, of a half precision type.
macro_rules! both {
    ($kind:ty, |$a:ident| $result:expr) => {{
        fn one($a: $kind) -> $kind {
            $result
        }
        each!(u32, |x| crate::lanes::pair(|at| one(crate::lanes::part(x, at)).bits()))
    }};
    ($kind:ty, |$a:ident, $b:ident| $result:expr) => {{
        fn one($a: $kind, $b: $kind) -> $kind {
            $result
        }
        each!(u32, |x, y| crate::lanes::pair(
            |at| one(crate::lanes::part(x, at), crate::lanes::part(y, at)).bits()
        ))
    }};
    ($kind:ty, |$a:ident, $b:ident, $c:ident| $result:expr) => {{
        fn one($a: $kind, $b: $kind, $c: $kind) -> $kind {
            $result
        }
        each!(u32, |x, y, z| crate::lanes::pair(|at| one(
            crate::lanes::part(x, at),
            crate::lanes::part(y, at),
            crate::lanes::part(z, at)
        )
        .bits()))
    }};
}

/// The lower (0) or upper (1) half of a word as a value.
#[inline]
pub(crate) fn part<T: Value>(word: u32, at: u32) -> T {
    T::of(u64::from(word >> (16 * at)) & 0xffff)
}

/// A word from its two halves.
#[inline]
pub(crate) fn pair(half: impl Fn(u32) -> u64) -> u32 {
    (half(0) as u32 & 0xffff) | (half(1) as u32) << 16
}

/// A comparison of lanes from an expression.
macro_rules! compare {
    ($kind:ty, |$a:ident, $b:ident| $result:expr) => {{
        fn run(x: &Lanes, y: &Lanes) -> u32 {
            let mut mask = 0;
            for lane in 0..32 {
                let ($a, $b) = (<$kind as Value>::of(x[lane]), <$kind as Value>::of(y[lane]));
                mask |= u32::from($result) << lane;
            }
            mask
        }
        run as crate::lanes::Comparison
    }};
}

pub(crate) use {both, compare, each};
