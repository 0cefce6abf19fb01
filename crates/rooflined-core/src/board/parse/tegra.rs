//! Files of NVIDIA's boards: devfreq, the gating mask, caps on the memory clock, nvpmodel's status.

use crate::units::Hertz;

/// Outside of this no clock of any machine is: it is written in another unit, or damaged.
pub(super) const CLOCKS: std::ops::RangeInclusive<f64> = 1e7..=2e10;

/// A clock in Hz as devfreq and the boot processor write it. A stopped clock is no clock to calculate with.
#[must_use]
pub fn hertz(text: &str) -> Option<Hertz> {
    super::unsigned(text).map(|value| Hertz(value as f64)).filter(|clock| CLOCKS.contains(&clock.0))
}

/// A clock in MHz as NVML tells it.
#[must_use]
pub fn megahertz(text: &str) -> Option<Hertz> {
    super::unsigned(text).map(|value| Hertz(value as f64 * 1e6)).filter(|clock| CLOCKS.contains(&clock.0))
}

/// The clocks of `available_frequencies`, ascending. What is no clock is left out.
#[must_use]
pub fn frequencies(text: &str) -> Vec<Hertz> {
    let mut clocks: Vec<Hertz> = text.split_ascii_whitespace().take(512).filter_map(hertz).collect();
    clocks.sort_by(|a, b| a.0.total_cmp(&b.0));
    clocks.dedup();
    clocks
}

/// A cap on a clock as nvpmodel writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cap {
    None,
    At(Hertz),
}

/// A cap in Hz. Uncapped is 0 up to JetPack 5 and -1 since, and reads back as the largest number of its type.
#[must_use]
pub fn clock_cap(text: &str) -> Option<Cap> {
    const LARGEST: [u64; 4] = [i32::MAX as u64, u32::MAX as u64, i64::MAX as u64, u64::MAX];
    if super::signed(text) == Some(-1) {
        return Some(Cap::None);
    }
    match super::unsigned(text)? {
        0 => Some(Cap::None),
        value if LARGEST.contains(&value) => Some(Cap::None),
        _ => hertz(text).map(Cap::At),
    }
}

/// A mask of gated units, decimal or `0x…`.
#[must_use]
pub fn gating_mask(text: &str) -> Option<u32> {
    let text = text.trim();
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
}

/// The busy part of a unit from a load in thousandths.
#[must_use]
pub fn permille(text: &str) -> Option<f64> {
    super::unsigned(text).filter(|load| *load <= 1000).map(|load| load as f64 / 1e3)
}

/// The busy part of a unit from a load in percent.
#[must_use]
pub fn percent(text: &str) -> Option<f64> {
    super::unsigned(text).filter(|load| *load <= 100).map(|load| load as f64 / 1e2)
}

/// A bit mask as NVML's reasons for a lower clock are written: hexadecimal with or without `0x`.
#[must_use]
pub fn bits(text: &str) -> Option<u64> {
    let text = text.trim();
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncapped_clock_is_written_in_several_ways() {
        for none in ["0", "-1\n", "2147483647", "4294967295", "9223372036854775807", "18446744073709551615"] {
            assert_eq!(clock_cap(none), Some(Cap::None), "{none}");
        }
        // Just below and well above the largest signed number of 32 bits, which is no clock of a table.
        assert_eq!(clock_cap("2133000000\n"), Some(Cap::At(Hertz(2.133e9))));
        assert_eq!(clock_cap("3199000000"), Some(Cap::At(Hertz(3.199e9))));
        for garbage in ["", "-2", "x", "1e9", "99999999999", "\u{fffd}"] {
            assert_eq!(clock_cap(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_table_of_clocks_is_sorted_and_bounded() {
        let table = "306000000 1020000000 408000000 0 x -5 408000000 \n";
        assert_eq!(frequencies(table), [Hertz(3.06e8), Hertz(4.08e8), Hertz(1.02e9)]);
        assert_eq!(frequencies(&"10000000 ".repeat(100_000)), [Hertz(1e7)]);
        // In kHz.
        assert!(frequencies("306000 408000 1020000").is_empty());
        assert!(frequencies("").is_empty());
    }

    #[test]
    fn loads_masks_and_bits_have_bounds() {
        assert_eq!(permille("620\n"), Some(0.62));
        assert_eq!(permille("1001"), None);
        assert_eq!(percent("96"), Some(0.96));
        assert_eq!(gating_mask("240\n"), Some(240));
        assert_eq!(gating_mask("0xf0"), Some(240));
        assert_eq!(gating_mask("-1"), None);
        assert_eq!(bits("0x20"), Some(32));
        assert_eq!(bits(""), None);
        assert_eq!(hertz("0"), None);
    }
}
