//! Physical quantities as types, so that only meaningful arithmetic compiles.
//!
//! Each quantity wraps an `f64` in its SI base unit. Quantities of the same kind add, subtract, compare and divide
//! to a plain ratio; quantities of different kinds combine only where physics gives the result a name:
//!
//! ```
//! use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};
//! let memory_time: Seconds = Bytes(33_554_432.0) / BytesPerSecond(287e9);
//! let compute_time: Seconds = Flops(33_554_432.0) / FlopsPerSecond(62e12);
//! assert!(memory_time > compute_time);
//! ```
//!
//! Bytes over FLOP/s has no name and does not compile:
//!
//! ```compile_fail,E0277
//! use rooflined_core::units::{Bytes, FlopsPerSecond};
//! let nonsense = Bytes(1.0) / FlopsPerSecond(1.0);
//! ```
//!
//! Neither does work over bandwidth taken for a time:
//!
//! ```compile_fail,E0277
//! use rooflined_core::units::{BytesPerSecond, Flops};
//! let nonsense = Flops(1.0) / BytesPerSecond(1.0);
//! ```
//!
//! nor adding bytes to seconds:
//!
//! ```compile_fail,E0308
//! use rooflined_core::units::{Bytes, Seconds};
//! let nonsense = Bytes(1.0) + Seconds(1.0);
//! ```

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($($(#[$doc:meta])* $name:ident, $unit:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Nothing of this quantity.
            pub const ZERO: Self = Self(0.0);

            /// The number in the SI base unit.
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }

            /// The larger of the two; a NaN on one side yields the other.
            #[must_use]
            pub const fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// The smaller of the two; a NaN on one side yields the other.
            #[must_use]
            pub const fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }

            /// True for a finite number above zero: what a rate must be before anything is divided by it.
            #[must_use]
            pub fn is_positive(self) -> bool {
                self.0.is_finite() && self.0 > 0.0
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Mul<$name> for f64 {
            type Output = $name;
            fn mul(self, quantity: $name) -> $name {
                $name(self * quantity.0)
            }
        }
        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        /// The ratio of two like quantities is a plain number.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                Self(iter.map(|quantity| quantity.0).sum())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                engineering(f, self.0, $unit)
            }
        }
    )*};
}

quantity! {
    /// Floating-point (or integer) operations; a multiply-add counts as two.
    Flops, "FLOP";
    /// Bytes moved or held.
    Bytes, "B";
    /// A duration.
    Seconds, "s";
    /// Operations per second.
    FlopsPerSecond, "FLOP/s";
    /// Bytes per second.
    BytesPerSecond, "B/s";
    /// Operations per byte of memory traffic.
    ArithmeticIntensity, "FLOP/B";
    /// Cycles per second.
    Hertz, "Hz";
    /// Power.
    Watts, "W";
    /// Energy.
    Joules, "J";
    /// Temperature; a difference of two is in kelvin.
    Celsius, "°C";
}

macro_rules! relation {
    // quotient = dividend / divisor, and the two products that follow from it
    ($($dividend:ident / $divisor:ident = $quotient:ident;)*) => {$(
        impl Div<$divisor> for $dividend {
            type Output = $quotient;
            fn div(self, divisor: $divisor) -> $quotient {
                $quotient(self.0 / divisor.0)
            }
        }
        impl Mul<$divisor> for $quotient {
            type Output = $dividend;
            fn mul(self, factor: $divisor) -> $dividend {
                $dividend(self.0 * factor.0)
            }
        }
    )*};
}

relation! {
    Bytes / BytesPerSecond = Seconds;
    Bytes / Seconds = BytesPerSecond;
    Flops / FlopsPerSecond = Seconds;
    Flops / Seconds = FlopsPerSecond;
    Flops / Bytes = ArithmeticIntensity;
    FlopsPerSecond / BytesPerSecond = ArithmeticIntensity;
    Joules / Watts = Seconds;
    Joules / Seconds = Watts;
}

/// Cycles that pass in a time at a clock.
impl Mul<Seconds> for Hertz {
    type Output = f64;
    fn mul(self, time: Seconds) -> f64 {
        self.0 * time.0
    }
}

/// The time that a number of cycles takes at a clock.
impl Div<Hertz> for f64 {
    type Output = Seconds;
    fn div(self, clock: Hertz) -> Seconds {
        Seconds(self / clock.0)
    }
}

/// Writes `value` with three significant digits and an SI prefix: `33.6 MB`, `117 µs`.
fn engineering(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    if !value.is_finite() {
        return f.write_str("unknown");
    }
    // Of a temperature a tenth is what a sensor tells apart.
    if unit == "°C" {
        return write!(f, "{:.1} {unit}", if value.abs() < 0.05 { 0.0 } else { value });
    }
    if value.abs() < 0.5e-15 {
        return write!(f, "0 {unit}");
    }
    if unit == "s" && value.abs() >= LONG_TIME {
        return long_time(f, value);
    }
    const PREFIXES: [(f64, &str); 11] = [
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
        (1e-12, "p"),
    ];
    // 999.6 kB would print as 1000 kB: compare against what three digits would show.
    let (scale, prefix) =
        PREFIXES.into_iter().find(|(scale, _)| value.abs() >= scale * 0.9995).unwrap_or((1e-15, "f"));
    let scaled = value / scale;
    let decimals = if scaled.abs() >= 99.95 { 0 } else { 1 + usize::from(scaled.abs() < 9.995) };
    write!(f, "{scaled:.decimals$} {prefix}{unit}")
}

/// From here on people count minutes.
const LONG_TIME: f64 = 119.5;

/// Two units of a clock or calendar: `2 min 5 s`, `3 h 20 min`, `4 days 6 h`.
fn long_time(f: &mut fmt::Formatter<'_>, seconds: f64) -> fmt::Result {
    const STEPS: [(f64, &str, f64, &str); 3] =
        [(86_400.0, "days", 3600.0, "h"), (3600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s")];
    // Two hours or days at least: one day has 24 hours that people count.
    let step = STEPS.into_iter().find(|(large, ..)| seconds.abs() >= 1.95 * large).unwrap_or(STEPS[2]);
    let (large, large_name, small, small_name) = step;
    let whole = (seconds.abs() / small).round();
    let per = large / small;
    let (many, rest) = ((whole / per).floor(), whole % per);
    let sign = if seconds < 0.0 { "-" } else { "" };
    write!(f, "{sign}{many} {large_name}")?;
    if rest > 0.0 { write!(f, " {rest} {small_name}") } else { Ok(()) }
}

/// A plain number with three significant digits: `14.2`, `0.00517`, `12300`, `2.00`, `1.20e-7`.
#[must_use]
#[expect(clippy::cast_sign_loss, reason = "not below zero")]
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match rounded.parse::<f64>() {
        Ok(number) if (-4..7).contains(&exponent) => {
            format!("{number:.decimals$}", decimals = (2 - exponent).max(0) as usize)
        }
        _ => rounded,
    }
}

/// The same with a prefix from a million on: `999000`, `26.9 M`, `1.20 G`.
#[must_use]
pub fn counted(value: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
    let prefix = PREFIXES.into_iter().find(|(scale, _)| value.is_finite() && value.abs() >= scale * 0.9995);
    prefix.map_or_else(
        || significant(value),
        |(scale, prefix)| format!("{} {prefix}", significant(value / scale)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits_and_an_si_prefix() {
        for (shown, expected) in [
            (Bytes(33_554_432.0).to_string(), "33.6 MB"),
            (Seconds(116.9e-6).to_string(), "117 µs"),
            (BytesPerSecond(999_960.0).to_string(), "1.00 MB/s"),
            (Hertz(4.05e9).to_string(), "4.05 GHz"),
            (Watts(0.0).to_string(), "0 W"),
            (Watts(-0.0).to_string(), "0 W"),
            (Watts(f64::NAN).to_string(), "unknown"),
            (Watts(-12.34).to_string(), "-12.3 W"),
            (Seconds(999.96e-6).to_string(), "1.00 ms"),
            (Seconds(9.996e-6).to_string(), "10.0 µs"),
            (Seconds(1e-15).to_string(), "1.00 fs"),
            (Seconds(119.4).to_string(), "119 s"),
            (Seconds(119.6).to_string(), "2 min"),
            (Seconds(125.2).to_string(), "2 min 5 s"),
            (Seconds(-4000.0).to_string(), "-66 min 40 s"),
            (Seconds(12_345.0).to_string(), "3 h 26 min"),
            (Seconds(2e5).to_string(), "2 days 8 h"),
            (Seconds(1e12).to_string(), "11574074 days 2 h"),
            (Bytes(2.5e18).to_string(), "2.50 EB"),
            (counted(999_400.0), "999000"),
            (counted(999_600.0), "1.00 M"),
            (counted(26.94e6), "26.9 M"),
            (counted(f64::INFINITY), "unknown"),
            (Celsius(41.26).to_string(), "41.3 °C"),
            (Celsius(-0.01).to_string(), "0.0 °C"),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn a_plain_number_has_three_significant_digits() {
        for (value, expected) in [
            (14.2345, "14.2"),
            (0.005_17, "0.00517"),
            (12_345.0, "12300"),
            (999.6, "1000"),
            (9.996, "10.0"),
            (2.0, "2.00"),
            (0.0, "0"),
            (-0.0, "0"),
            (-2.7654, "-2.77"),
            (1.2e-7, "1.20e-7"),
            (1e300, "1.00e300"),
            (f64::INFINITY, "unknown"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(significant(value), expected, "{value}");
        }
    }

    #[test]
    fn products_undo_quotients() {
        let time = Bytes(10.0) / BytesPerSecond(4.0);
        assert_eq!(time, Seconds(2.5));
        assert_eq!(time * BytesPerSecond(4.0), Bytes(10.0));
        assert_eq!(Hertz(2.0) * Seconds(3.0), 6.0);
        assert_eq!(6.0 / Hertz(2.0), Seconds(3.0));
    }
}
