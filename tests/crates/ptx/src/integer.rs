//! Integer and bit instructions.

use crate::lanes::{Function, Lanes, Value, each};

/// The function of an opcode without its type, and the type; None where the pair is not known.
macro_rules! of_type {
    ($kind:expr, [$($name:literal $type:ty),*], |$a:ident| $result:expr) => {
        match $kind {
            $($name => Some(each!($type, |$a| $result)),)*
            _ => None,
        }
    };
    ($kind:expr, [$($name:literal $type:ty),*], |$a:ident, $b:ident| $result:expr) => {
        match $kind {
            $($name => Some(each!($type, |$a, $b| $result)),)*
            _ => None,
        }
    };
}

/// The function of an integer instruction, by its opcode's words.
pub(crate) fn function(opcode: &[&str]) -> Option<Function> {
    match *opcode {
        [name @ ("mul" | "mad"), half, kind] => product(name, half, kind),
        ["add", "sat", "s32"] => Some(each!(i32, |a, b| a.saturating_add(b))),
        ["sub", "sat", "s32"] => Some(each!(i32, |a, b| a.saturating_sub(b))),
        [name, kind] => simple(name, kind).or_else(|| bits(name, kind)),
        ["shf", direction, mode, "b32"] => funnel(direction, mode),
        ["prmt", "b32", mode] => permute_mode(mode),
        ["dp4a", a, b] => dot4(a, b),
        ["bfind", "shiftamt", "u32"] => {
            Some(each!(u32, |a| if a == 0 { u32::MAX } else { a.leading_zeros() }))
        }
        _ => None,
    }
}

fn simple(name: &str, kind: &str) -> Option<Function> {
    match name {
        "mov" => of_type!(kind, ["b16" u16, "u16" u16, "s16" u16, "b32" u32, "u32" u32, "s32" u32, "f32" u32,
            "b64" u64, "u64" u64, "s64" u64, "f64" u64], |a| a),
        "add" => of_type!(kind, ["u16" u16, "s16" u16, "u32" u32, "s32" u32, "u64" u64, "s64" u64],
            |a, b| a.wrapping_add(b)),
        "sub" => of_type!(kind, ["u16" u16, "s16" u16, "u32" u32, "s32" u32, "u64" u64, "s64" u64],
            |a, b| a.wrapping_sub(b)),
        // A division by zero is not defined; all ones make it visible.
        "div" => of_type!(kind, ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64],
            |a, b| if b == 0 { !0 } else { a.wrapping_div(b) }),
        "rem" => of_type!(kind, ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64],
            |a, b| if b == 0 { !0 } else { a.wrapping_rem(b) }),
        "min" => of_type!(kind, ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64],
            |a, b| a.min(b)),
        "max" => of_type!(kind, ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64],
            |a, b| a.max(b)),
        "neg" => of_type!(kind, ["s16" i16, "s32" i32, "s64" i64], |a| a.wrapping_neg()),
        "abs" => of_type!(kind, ["s16" i16, "s32" i32, "s64" i64], |a| a.wrapping_abs()),
        _ => None,
    }
}

fn bits(name: &str, kind: &str) -> Option<Function> {
    match name {
        "and" => of_type!(kind, ["b16" u16, "b32" u32, "b64" u64], |a, b| a & b),
        "or" => of_type!(kind, ["b16" u16, "b32" u32, "b64" u64], |a, b| a | b),
        "xor" => of_type!(kind, ["b16" u16, "b32" u32, "b64" u64], |a, b| a ^ b),
        "not" => of_type!(kind, ["b16" u16, "b32" u32, "b64" u64], |a| !a),
        "cnot" => of_type!(kind, ["b16" u16, "b32" u32, "b64" u64], |a| u64::from(a == 0)),
        "shl" | "shr" => shift(name, kind),
        "popc" => of_type!(kind, ["b32" u32, "b64" u64], |a| a.count_ones()),
        "clz" => of_type!(kind, ["b32" u32, "b64" u64], |a| a.leading_zeros()),
        "brev" => of_type!(kind, ["b32" u32, "b64" u64], |a| a.reverse_bits()),
        "bfind" => match kind {
            "u32" => Some(each!(u32, |a| a.checked_ilog2().unwrap_or(u32::MAX))),
            "s32" => Some(each!(i32, |a| {
                (if a < 0 { !a } else { a }).cast_unsigned().checked_ilog2().unwrap_or(u32::MAX)
            })),
            "u64" => Some(each!(u64, |a| a.checked_ilog2().unwrap_or(u32::MAX))),
            _ => None,
        },
        "bfe" => match kind {
            "u32" => Some(each!(u64, |a, at, length| extract(a & 0xffff_ffff, 32, at, length, false))),
            "s32" => Some(each!(u64, |a, at, length| extract(a & 0xffff_ffff, 32, at, length, true))),
            "u64" => Some(each!(u64, |a, at, length| extract(a, 64, at, length, false))),
            "s64" => Some(each!(u64, |a, at, length| extract(a, 64, at, length, true))),
            _ => None,
        },
        "bfi" => match kind {
            "b32" => Some(each!(u64, |a, b, at, length| insert(a, b & 0xffff_ffff, 32, at, length))),
            "b64" => Some(each!(u64, |a, b, at, length| insert(a, b, 64, at, length))),
            _ => None,
        },
        "lop3" if kind == "b32" => Some(each!(u32, |a, b, c, table| lop3(a, b, c, table))),
        "prmt" if kind == "b32" => Some(each!(u32, |a, b, selector| permute(a, b, selector))),
        _ => None,
    }
}

/// Shifts by the width or more give zeros, or the sign.
fn shift(name: &str, kind: &str) -> Option<Function> {
    Some(match (name, kind) {
        ("shl", "b16") => each!(u64, |a, by| ((a & 0xffff) << by.min(16) as u32) & 0xffff),
        ("shl", "b32") => {
            each!(u64, |a, by| if by as u32 > 31 { 0 } else { u64::from((a as u32) << by as u32) })
        }
        ("shl", "b64") => each!(u64, |a, by| if by as u32 > 63 { 0 } else { a << by as u32 }),
        ("shr", "u16" | "b16") => each!(u64, |a, by| (a & 0xffff) >> (by as u32).min(63)),
        ("shr", "u32" | "b32") => each!(u64, |a, by| (a & 0xffff_ffff) >> (by as u32).min(63)),
        ("shr", "u64" | "b64") => each!(u64, |a, by| if by as u32 > 63 { 0 } else { a >> by as u32 }),
        ("shr", "s16") => each!(u64, |a, by| a as i16 >> (by as u32).min(15)),
        ("shr", "s32") => each!(u64, |a, by| a as i32 >> (by as u32).min(31)),
        ("shr", "s64") => each!(u64, |a, by| a.cast_signed() >> (by as u32).min(63)),
        _ => return None,
    })
}

fn product(name: &str, half: &str, kind: &str) -> Option<Function> {
    macro_rules! products {
        ($($kind:literal $narrow:ty, $wide:ty, $bits:literal;)*) => {
            match (name, half, kind) {
                $(
                    ("mul", "lo", $kind) => Some(each!($narrow, |a, b| a.wrapping_mul(b))),
                    ("mad", "lo", $kind) => Some(each!($narrow, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
                    ("mul", "hi", $kind) => Some(each!($narrow, |a, b| {
                        ((<$wide>::from(a) * <$wide>::from(b)) >> $bits) as $narrow
                    })),
                    ("mad", "hi", $kind) => Some(each!($narrow, |a, b, c| {
                        (((<$wide>::from(a) * <$wide>::from(b)) >> $bits) as $narrow).wrapping_add(c)
                    })),
                )*
                _ => None,
            }
        };
    }
    macro_rules! wide {
        ($($kind:literal $narrow:ty, $wide:ty;)*) => {
            match (name, half, kind) {
                $(
                    ("mul", "wide", $kind) => Some(each!(u64, |a, b| {
                        <$wide>::from(a as $narrow) * <$wide>::from(b as $narrow)
                    })),
                    ("mad", "wide", $kind) => Some(each!(u64, |a, b, c| {
                        (<$wide>::from(a as $narrow) * <$wide>::from(b as $narrow)).wrapping_add(c as $wide)
                    })),
                )*
                _ => None,
            }
        };
    }
    let narrow = products! {
        "u16" u16, u32, 16; "s16" i16, i32, 16;
        "u32" u32, u64, 32; "s32" i32, i64, 32;
        "u64" u64, u128, 64; "s64" i64, i128, 64;
    };
    narrow.or_else(|| {
        wide! { "u16" u16, u32; "s16" i16, i32; "u32" u32, u64; "s32" i32, i64; }
    })
}

fn funnel(direction: &str, mode: &str) -> Option<Function> {
    /// The two words as one of 64 bits, the second above.
    fn joined(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }
    Some(match (direction, mode) {
        ("l", "wrap") => each!(u32, |a, b, by| ((joined(a, b) << (by & 31)) >> 32) as u32),
        ("r", "wrap") => each!(u32, |a, b, by| (joined(a, b) >> (by & 31)) as u32),
        ("l", "clamp") => each!(u32, |a, b, by| ((joined(a, b) << by.min(32)) >> 32) as u32),
        ("r", "clamp") => each!(u32, |a, b, by| (joined(a, b) >> by.min(32)) as u32),
        _ => return None,
    })
}

/// The field of `length` bits from `at` on; a sign stands for the bits beyond the word.
fn extract(word: u64, width: u32, at: u64, length: u64, signed: bool) -> u64 {
    let (at, length) = (at as u32 & 0xff, length as u32 & 0xff);
    let result = if length == 0 {
        0
    } else {
        let spread =
            if signed && word >> (width - 1) & 1 == 1 && width == 32 { word | !0xffff_ffff } else { word };
        let shifted = if signed {
            (spread.cast_signed() >> at.min(63)).cast_unsigned()
        } else {
            spread.checked_shr(at).unwrap_or(0)
        };
        if length >= width {
            shifted
        } else {
            let field = shifted & ((1 << length) - 1);
            // The sign is the field's last bit inside the word.
            let last = (at + length - 1).min(width - 1);
            if signed && word >> last & 1 == 1 { field | (u64::MAX << length) } else { field }
        }
    };
    if width == 32 { result & 0xffff_ffff } else { result }
}

fn insert(field: u64, word: u64, width: u32, at: u64, length: u64) -> u64 {
    let (at, length) = (at as u32 & 0xff, length as u32 & 0xff);
    if length == 0 || at >= width {
        return word;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    let mask = ones << at;
    let result = (word & !mask) | ((field << at) & mask);
    if width == 32 { result & 0xffff_ffff } else { result }
}

fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let pick = |word: u32, bit: u32| if row >> bit & 1 == 1 { word } else { !word };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result
}

/// Four bytes of the eight; bit 3 of a selector spreads that byte's sign.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    (0..4).fold(0, |result, at| {
        let select = selector >> (4 * at);
        let byte = (bytes >> (8 * (select & 7))) as u8;
        let byte = if select & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() };
        result | u32::from(byte) << (8 * at)
    })
}

fn permute_mode(mode: &str) -> Option<Function> {
    Some(match mode {
        "f4e" => each!(u32, |a, b, c| permute(a, b, [0x3210, 0x4321, 0x5432, 0x6543][c as usize & 3])),
        "b4e" => each!(u32, |a, b, c| permute(a, b, [0x5670, 0x6701, 0x7012, 0x0123][c as usize & 3])),
        "rc8" => each!(u32, |a, b, c| permute(a, b, [0x0000, 0x1111, 0x2222, 0x3333][c as usize & 3])),
        "ecl" => each!(u32, |a, b, c| permute(a, b, [0x3210, 0x3211, 0x3222, 0x3333][c as usize & 3])),
        "ecr" => each!(u32, |a, b, c| permute(a, b, [0x0000, 0x1110, 0x2210, 0x3210][c as usize & 3])),
        "rc16" => each!(u32, |a, b, c| permute(a, b, [0x1010, 0x3232, 0x1010, 0x3232][c as usize & 3])),
        _ => return None,
    })
}

fn dot4(a: &str, b: &str) -> Option<Function> {
    fn dot(a: u32, b: u32, signed: (bool, bool)) -> u32 {
        let byte = |word: u32, at: u32, signed: bool| {
            let byte = (word >> (8 * at)) as u8;
            if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
        };
        (0..4).map(|at| byte(a, at, signed.0) * byte(b, at, signed.1)).sum::<i32>().cast_unsigned()
    }
    Some(match (a, b) {
        ("s32", "s32") => each!(u32, |a, b, c| dot(a, b, (true, true)).wrapping_add(c)),
        ("s32", "u32") => each!(u32, |a, b, c| dot(a, b, (true, false)).wrapping_add(c)),
        ("u32", "s32") => each!(u32, |a, b, c| dot(a, b, (false, true)).wrapping_add(c)),
        ("u32", "u32") => each!(u32, |a, b, c| dot(a, b, (false, false)).wrapping_add(c)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prmt_picks_bytes_and_spreads_signs() {
        let (a, b) = (0x8142_0304, 0x1516_9718);
        assert_eq!(permute(a, b, 0x3210), a);
        assert_eq!(permute(a, b, 0x7654), b);
        assert_eq!(permute(a, b, 0x0426), 0x0418_4216);
        // Byte 3 of a is negative, byte 2 is not; byte 1 of b is negative.
        assert_eq!(permute(a, b, 0xbad5), 0xff00_ff97);
    }

    #[test]
    fn bfe_and_bfi_keep_to_the_word() {
        assert_eq!(extract(0x0000_ff00, 32, 8, 4, false), 0xf);
        assert_eq!(extract(0x0000_ff00, 32, 8, 4, true), 0xffff_ffff);
        assert_eq!(extract(0x7000_0000, 32, 28, 8, true), 7);
        assert_eq!(extract(0x8000_0000, 32, 28, 8, true), 0xffff_fff8);
        assert_eq!(extract(0x8000_0000, 32, 40, 8, true), 0xffff_ffff);
        assert_eq!(extract(0x8000_0000, 32, 40, 8, false), 0);
        assert_eq!(extract(0x1234_5678, 32, 0, 0, true), 0);
        assert_eq!(extract(u64::MAX, 64, 4, 255, false), u64::MAX >> 4);
        assert_eq!(insert(0xff, 0, 32, 28, 8), 0xf000_0000);
        assert_eq!(insert(0xff, 0x1111_1111, 32, 4, 4), 0x1111_11f1);
        assert_eq!(insert(0xff, 0x1111_1111, 32, 32, 4), 0x1111_1111);
        assert_eq!(insert(0xff, 0x1111_1111, 32, 4, 0), 0x1111_1111);
    }

    #[test]
    fn lop3_follows_its_table() {
        let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
        assert_eq!(lop3(a, b, c, 0xf0 & 0xcc & 0xaa), a & b & c);
        assert_eq!(lop3(a, b, c, 0xf0 ^ 0xcc ^ 0xaa), a ^ b ^ c);
        assert_eq!(lop3(a, b, c, (0xf0 & 0xcc) | 0xaa), (a & b) | c);
        assert_eq!(lop3(a, b, c, (0xf0 & !0xcc & 0xff) | 0xaa), (a & !b) | c);
    }

    fn two(function: Function, a: u64, b: u64) -> u64 {
        let mut d = [0; 32];
        match function {
            Function::Two(run) => run(&[a; 32], &[b; 32], &mut d),
            _ => panic!("not of two arguments"),
        }
        d[31]
    }

    #[test]
    fn products_have_low_high_and_wide_halves() {
        let minus_two = 0xffff_fffe;
        assert_eq!(two(function(&["mul", "lo", "s32"]).unwrap(), minus_two, 3), 0xffff_fffa);
        assert_eq!(two(function(&["mul", "hi", "s32"]).unwrap(), minus_two, 3), 0xffff_ffff);
        assert_eq!(two(function(&["mul", "hi", "u32"]).unwrap(), minus_two, 3), 2);
        assert_eq!(two(function(&["mul", "wide", "s32"]).unwrap(), minus_two, 3), (-6_i64).cast_unsigned());
        assert_eq!(two(function(&["mul", "wide", "u32"]).unwrap(), minus_two, 3), 0x2_ffff_fffa);
        assert_eq!(two(function(&["mul", "wide", "u16"]).unwrap(), 0xffff, 0xffff), 0xfffe_0001);
        assert_eq!(two(function(&["mul", "wide", "s16"]).unwrap(), 0xffff, 2), 0xffff_fffe);
        assert_eq!(two(function(&["mul", "hi", "u64"]).unwrap(), u64::MAX, u64::MAX), u64::MAX - 1);
    }

    #[test]
    fn shifts_beyond_the_width_give_zeros_or_the_sign() {
        assert_eq!(two(function(&["shl", "b32"]).unwrap(), 1, 32), 0);
        assert_eq!(two(function(&["shl", "b32"]).unwrap(), 3, 31), 0x8000_0000);
        assert_eq!(two(function(&["shl", "b16"]).unwrap(), 3, 15), 0x8000);
        assert_eq!(two(function(&["shr", "u32"]).unwrap(), 0x8000_0000, 100), 0);
        assert_eq!(two(function(&["shr", "s32"]).unwrap(), 0x8000_0000, 100), 0xffff_ffff);
        assert_eq!(two(function(&["shr", "s16"]).unwrap(), 0x8000, 4), 0xf800);
        assert_eq!(two(function(&["shr", "u64"]).unwrap(), 1 << 63, 63), 1);
        let mut d = [0; 32];
        match function(&["shf", "l", "wrap", "b32"]).unwrap() {
            Function::Three(run) => run(&[0x8000_0000; 32], &[1; 32], &[33; 32], &mut d),
            _ => panic!("not of three arguments"),
        }
        assert_eq!(d[0], 3);
    }
}
