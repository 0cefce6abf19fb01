//! Dates, in UTC, from seconds since 1970.

/// `2026-11-20`.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "whole days within some thousand years")]
pub fn day(unix_s: f64) -> String {
    // Days to year, month and day: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let shifted = (within(unix_s) / 86_400.0) as i64 + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// `2026-11-20 18:25 UTC`.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "minutes of a day")]
pub fn date(unix_s: f64) -> String {
    let minute = (within(unix_s) % 86_400.0 / 60.0) as u32;
    format!("{} {:02}:{:02} UTC", day(unix_s), minute / 60, minute % 60)
}

/// Of the years that have four digits.
fn within(unix_s: f64) -> f64 {
    unix_s.clamp(0.0, 253_402_300_799.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, wanted) in [
            (0.0, "1970-01-01 00:00 UTC"),
            (951_782_400.0, "2000-02-29 00:00 UTC"),
            (951_868_800.0, "2000-03-01 00:00 UTC"),
            (1_795_199_129.0, "2026-11-20 18:25 UTC"),
            (1_795_391_999.0, "2026-11-22 23:59 UTC"),
            (1_798_761_599.0, "2026-12-31 23:59 UTC"),
            (f64::INFINITY, "9999-12-31 23:59 UTC"),
        ] {
            assert_eq!(date(unix_s), wanted);
            assert!(wanted.starts_with(&day(unix_s)));
        }
    }
}
