//! Floating-point instructions and all comparisons.

use std::cmp::Ordering;

use crate::float::{F32, Rounding, add_odd};
use crate::lanes::{Brain, Comparison, Function, Half, Lanes, Value, both, compare, each};

/// A floating-point function and what is done beside it.
pub(crate) struct Real {
    pub function: Function,
    /// Additions and multiplications a lane.
    pub flops: u32,
    /// Subnormal single-precision sources and results become zero.
    pub flush: bool,
    /// Single-precision results are held between 0 and 1.
    pub saturate: bool,
}

/// The function of a floating-point instruction, by its opcode's words.
pub(crate) fn function(opcode: &[&str]) -> Option<Real> {
    let (&name, modifiers) = opcode.split_first()?;
    let (&kind, modifiers) = modifiers.split_last()?;
    let mut flush = false;
    let mut saturate = false;
    let mut rest = Vec::new();
    for &modifier in modifiers {
        match modifier {
            "ftz" => flush = true,
            "sat" => saturate = true,
            _ => rest.push(modifier),
        }
    }
    if saturate && kind != "f32" {
        return None;
    }
    let function = match kind {
        "f32" => single(name, &rest),
        "f64" => double(name, &rest),
        "f16" => half(name, &rest),
        "f16x2" => half2(name, &rest),
        "bf16" => brain(name, &rest),
        "bf16x2" => brain2(name, &rest),
        _ => None,
    }?;
    let width = if kind.ends_with("x2") { 2 } else { 1 };
    let flops = width
        * match name {
            "add" | "sub" | "mul" => 1,
            "fma" | "mad" => 2,
            _ => 0,
        };
    Some(Real { function, flops, flush: flush && kind == "f32", saturate })
}

fn directed(a: f64, b: f64, rounding: Rounding) -> f32 {
    f32::from_bits(F32.encode(add_odd(a, b), rounding, false))
}

/// A product of two singles is exact as a double.
fn product(a: f32, b: f32) -> f64 {
    f64::from(a) * f64::from(b)
}

fn single(name: &str, modifiers: &[&str]) -> Option<Function> {
    macro_rules! rounded {
        (|$($argument:ident),*| $sum:expr) => {
            match modifiers {
                ["rz"] => Some(each!(f32, |$($argument),*| { let (p, q) = $sum; directed(p, q, Rounding::Zero) })),
                ["rm"] => Some(each!(f32, |$($argument),*| { let (p, q) = $sum; directed(p, q, Rounding::Down) })),
                ["rp"] => Some(each!(f32, |$($argument),*| { let (p, q) = $sum; directed(p, q, Rounding::Up) })),
                _ => None,
            }
        };
    }
    match (name, modifiers) {
        ("add", [] | ["rn"]) => Some(each!(f32, |a, b| a + b)),
        ("sub", [] | ["rn"]) => Some(each!(f32, |a, b| a - b)),
        ("mul", [] | ["rn"]) => Some(each!(f32, |a, b| a * b)),
        ("fma" | "mad", ["rn"]) => Some(each!(f32, |a, b, c| a.mul_add(b, c))),
        ("add", _) => rounded!(|a, b| (f64::from(a), f64::from(b))),
        ("sub", _) => rounded!(|a, b| (f64::from(a), -f64::from(b))),
        ("mul", _) => rounded!(|a, b| (product(a, b), 0.0)),
        ("fma" | "mad", _) => rounded!(|a, b, c| (product(a, b), f64::from(c))),
        ("div", ["rn" | "approx" | "full"]) => Some(each!(f32, |a, b| a / b)),
        ("rcp", ["rn" | "approx"]) => Some(each!(f32, |a| 1.0 / a)),
        ("sqrt", ["rn" | "approx"]) => Some(each!(f32, |a| a.sqrt())),
        ("rsqrt", ["approx"]) => Some(each!(f32, |a| (1.0 / f64::from(a).sqrt()) as f32)),
        ("ex2", ["approx"]) => Some(each!(f32, |a| f64::from(a).exp2() as f32)),
        ("lg2", ["approx"]) => Some(each!(f32, |a| f64::from(a).log2() as f32)),
        ("sin", ["approx"]) => Some(each!(f32, |a| f64::from(a).sin() as f32)),
        ("cos", ["approx"]) => Some(each!(f32, |a| f64::from(a).cos() as f32)),
        ("tanh", ["approx"]) => Some(each!(f32, |a| f64::from(a).tanh() as f32)),
        ("min", []) => Some(each!(f32, |a, b| least(f64::from(a), f64::from(b)) as f32)),
        ("max", []) => Some(each!(f32, |a, b| greatest(f64::from(a), f64::from(b)) as f32)),
        ("min", ["NaN"]) => Some(each!(f32, |a, b| if a.is_nan() || b.is_nan() {
            f32::NAN
        } else {
            least(f64::from(a), f64::from(b)) as f32
        })),
        ("max", ["NaN"]) => Some(each!(f32, |a, b| if a.is_nan() || b.is_nan() {
            f32::NAN
        } else {
            greatest(f64::from(a), f64::from(b)) as f32
        })),
        ("neg", []) => Some(each!(u32, |a| a ^ 0x8000_0000)),
        ("abs", []) => Some(each!(u32, |a| a & 0x7fff_ffff)),
        ("copysign", []) => Some(each!(u32, |a, b| (b & 0x7fff_ffff) | (a & 0x8000_0000))),
        _ => None,
    }
}

fn double(name: &str, modifiers: &[&str]) -> Option<Function> {
    Some(match (name, modifiers) {
        ("add", [] | ["rn"]) => each!(f64, |a, b| a + b),
        ("sub", [] | ["rn"]) => each!(f64, |a, b| a - b),
        ("mul", [] | ["rn"]) => each!(f64, |a, b| a * b),
        ("fma" | "mad", ["rn"]) => each!(f64, |a, b, c| a.mul_add(b, c)),
        ("div", ["rn"]) => each!(f64, |a, b| a / b),
        ("rcp", ["rn"]) => each!(f64, |a| 1.0 / a),
        ("sqrt", ["rn"]) => each!(f64, |a| a.sqrt()),
        ("min", []) => each!(f64, |a, b| least(a, b)),
        ("max", []) => each!(f64, |a, b| greatest(a, b)),
        ("neg", []) => each!(u64, |a| a ^ 1 << 63),
        ("abs", []) => each!(u64, |a| a & !(1 << 63)),
        _ => return None,
    })
}

/// The functions of a half precision type, alone (`each`) or two in a word (`both`). Sums are rounded to odd first,
/// so that the rounding to the type is the only one.
macro_rules! halves {
    ($function:ident, $each:ident, $kind:ident, $sign:literal, $word:ty) => {
        fn $function(name: &str, modifiers: &[&str]) -> Option<Function> {
            Some(match (name, modifiers) {
                ("add", [] | ["rn"]) => $each!($kind, |a, b| $kind(add_odd(a.0, b.0))),
                ("sub", [] | ["rn"]) => $each!($kind, |a, b| $kind(add_odd(a.0, -b.0))),
                ("mul", [] | ["rn"]) => $each!($kind, |a, b| $kind(a.0 * b.0)),
                ("fma", ["rn"]) => $each!($kind, |a, b, c| $kind(add_odd(a.0 * b.0, c.0))),
                ("fma", ["rn", "relu"]) => $each!($kind, |a, b, c| {
                    let sum = add_odd(a.0 * b.0, c.0);
                    $kind(if sum.is_nan() { sum } else { greatest(sum, 0.0) })
                }),
                ("min", []) => $each!($kind, |a, b| $kind(least(a.0, b.0))),
                ("max", []) => $each!($kind, |a, b| $kind(greatest(a.0, b.0))),
                ("ex2", ["approx"]) => $each!($kind, |a| $kind(a.0.exp2())),
                ("tanh", ["approx"]) => $each!($kind, |a| $kind(a.0.tanh())),
                ("neg", []) => each!($word, |a| a ^ $sign),
                ("abs", []) => each!($word, |a| a & !$sign),
                _ => return None,
            })
        }
    };
}

halves!(half, each, Half, 0x8000, u16);
halves!(half2, both, Half, 0x8000_8000, u32);
halves!(brain, each, Brain, 0x8000, u16);
halves!(brain2, both, Brain, 0x8000_8000, u32);

/// The lesser number; of a number and a NaN the number; of two zeros the negative one.
fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || b < a || (a == b && b.is_sign_negative()) { b } else { a }
}

fn greatest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b > a || (a == b && b.is_sign_positive()) { b } else { a }
}

/// The comparison of a `setp`: where it holds.
pub(crate) fn comparison(operator: &str, kind: &str) -> Option<Comparison> {
    macro_rules! integers {
        ($($name:literal $type:ty),*) => {
            match (operator, kind) {
                $(
                    ("eq", $name) => return Some(compare!($type, |a, b| a == b)),
                    ("ne", $name) => return Some(compare!($type, |a, b| a != b)),
                    ("lt" | "lo", $name) => return Some(compare!($type, |a, b| a < b)),
                    ("le" | "ls", $name) => return Some(compare!($type, |a, b| a <= b)),
                    ("gt" | "hi", $name) => return Some(compare!($type, |a, b| a > b)),
                    ("ge" | "hs", $name) => return Some(compare!($type, |a, b| a >= b)),
                )*
                _ => {}
            }
        };
    }
    macro_rules! reals {
        ($set:literal: $($name:literal $type:ty, $number:expr);*) => {
            match kind {
                $($name => Some(compare!($type, |a, b| outcome($number(a), $number(b)) & $set != 0)),)*
                _ => None,
            }
        };
    }
    macro_rules! of_outcomes {
        ($($operator:literal $set:literal),*) => {
            match operator {
                $($operator => reals!($set: "f32" f32, f64::from; "f64" f64, f64::from; "f16" Half, |a: Half| a.0;
                    "bf16" Brain, |a: Brain| a.0),)*
                _ => None,
            }
        };
    }
    integers!("u16" u16, "b16" u16, "s16" i16, "u32" u32, "b32" u32, "s32" i32, "u64" u64, "b64" u64, "s64" i64);
    of_outcomes!(
        "lt" 0b0001, "eq" 0b0010, "le" 0b0011, "gt" 0b0100, "ne" 0b0101, "ge" 0b0110, "num" 0b0111,
        "nan" 0b1000, "ltu" 0b1001, "equ" 0b1010, "leu" 0b1011, "gtu" 0b1100, "neu" 0b1101, "geu" 0b1110
    )
}

/// One bit: less, equal, greater, or not to be compared.
fn outcome(a: f64, b: f64) -> u32 {
    match a.partial_cmp(&b) {
        Some(Ordering::Less) => 1,
        Some(Ordering::Equal) => 2,
        Some(Ordering::Greater) => 4,
        None => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(operator: &str, a: f32, b: f32) -> bool {
        let lanes = |value: f32| [u64::from(value.to_bits()); 32];
        comparison(operator, "f32").unwrap()(&lanes(a), &lanes(b)) == u32::MAX
    }

    #[test]
    fn comparisons_with_a_nan_hold_only_where_they_say_so() {
        let nan = f32::NAN;
        for (operator, [less, equal, greater, unordered]) in [
            ("lt", [true, false, false, false]),
            ("ge", [false, true, true, false]),
            ("ne", [true, false, true, false]),
            ("neu", [true, false, true, true]),
            ("leu", [true, true, false, true]),
            ("equ", [false, true, false, true]),
            ("num", [true, true, true, false]),
            ("nan", [false, false, false, true]),
        ] {
            let all = [holds(operator, 1.0, 2.0), holds(operator, -0.0, 0.0), holds(operator, 2.0, 1.0)];
            assert_eq!(all, [less, equal, greater], "{operator}");
            assert_eq!(holds(operator, nan, 1.0), unordered, "{operator}");
        }
    }

    fn two(opcode: &[&str], a: u64, b: u64) -> u64 {
        let mut d = [0; 32];
        match function(opcode).unwrap().function {
            Function::Two(run) => run(&[a; 32], &[b; 32], &mut d),
            _ => panic!("not of two arguments"),
        }
        d[7]
    }

    #[test]
    fn minima_skip_nans_and_order_zeros() {
        let bits = |value: f32| u64::from(value.to_bits());
        assert_eq!(two(&["min", "f32"], bits(f32::NAN), bits(3.0)), bits(3.0));
        assert_eq!(two(&["max", "f32"], bits(3.0), bits(f32::NAN)), bits(3.0));
        assert_eq!(two(&["min", "f32"], bits(0.0), bits(-0.0)), bits(-0.0));
        assert_eq!(two(&["max", "f32"], bits(-0.0), bits(0.0)), bits(0.0));
        assert!(f32::from_bits(two(&["max", "NaN", "f32"], bits(1.0), bits(f32::NAN)) as u32).is_nan());
        assert_eq!(two(&["add", "rz", "f32"], bits(1.0), bits(f32::EPSILON * 0.75)), bits(1.0));
        assert_eq!(two(&["add", "rp", "f32"], bits(1.0), bits(f32::EPSILON * 0.1)), bits(1.0 + f32::EPSILON));
        assert_eq!(two(&["add", "f32"], bits(1.0), bits(f32::EPSILON * 0.75)), bits(1.0 + f32::EPSILON));
    }

    #[test]
    fn packed_halves_are_rounded_each_alone() {
        // 1 + 2^-11 is a tie; 2 + 2^-11 is under one.
        assert_eq!(two(&["add", "f16x2"], 0x3c00_4000, 0x1000_1000), 0x3c00_4000);
        assert_eq!(two(&["add", "rn", "f16x2"], 0x3c01_4000, 0x1000_9000), 0x3c02_4000);
        assert_eq!(two(&["mul", "bf16x2"], 0x3fc0_4000, 0x3fc0_c000), 0x4010_c080);
        assert_eq!(two(&["sub", "f16x2"], 0x7bff_0001, 0xfbff_0002), 0x7c00_8001);
        // An fma is rounded once: (1 + 3/1024)^2 - 1 is 6153/2^20, its square alone would become 1 + 6/1024.
        let mut d = [0; 32];
        match function(&["fma", "rn", "f16"]).unwrap().function {
            Function::Three(run) => run(&[0x3c03; 32], &[0x3c03; 32], &[0xbc00; 32], &mut d),
            _ => panic!("not of three arguments"),
        }
        assert_eq!(half::f16::from_bits(d[0] as u16).to_f64(), 6152.0 * 2f64.powi(-20));
    }
}
