//! Units and numbers as people write them, and how they are written here: a wrong one is answered with the right one.

/// Other ways to write a unit, in small letters with spaces between, and ours; two where either may be meant.
type Units = [(&'static str, &'static [&'static str])];

pub const TIMES: [(&str, &[&str]); 6] = [
    ("nsec nanos nanoseconds", &["ns"]),
    ("usec micros microseconds", &["us"]),
    ("msec msecs millis milliseconds millisecond", &["ms"]),
    ("sec secs second seconds", &["s"]),
    ("m mins minute minutes", &["min"]),
    ("hr hrs hour hours", &["h"]),
];
pub const SIZES: [(&str, &[&str]); 8] = [
    ("ki", &["KiB"]),
    ("mi", &["MiB"]),
    ("gi", &["GiB"]),
    ("ti", &["TiB"]),
    ("k kilobytes", &["kB", "KiB"]),
    ("m megabytes mbyte mbytes", &["MB", "MiB"]),
    ("g gig gigs gigabytes gbyte gbytes", &["GB", "GiB"]),
    ("t terabytes", &["TB", "TiB"]),
];
/// Nobody means megawatts.
pub const POWERS: [(&str, &[&str]); 3] =
    [("MW watt watts", &["W"]), ("milliwatt milliwatts", &["mW"]), ("kilowatt kilowatts", &["kW"])];
pub const SHARES: [(&str, &[&str]); 1] = [("pct percent p", &["%"])];
pub const CLOCKS: [(&str, &[&str]); 3] =
    [("megahertz m", &["MHz"]), ("gigahertz g", &["GHz"]), ("kilohertz", &["kHz"])];
/// Of plain rates: they have none here.
const RATES: [(&str, &[&str]); 1] = [("tok/s t/s tokens/s tps tok/sec tokens/sec /s fps hz", &[""])];

/// Our ways to write a unit: as it is spelt, or else in other capitals.
fn find(unit: &str, units: &Units) -> Option<&'static [&'static str]> {
    let named = |is: &dyn Fn(&str) -> bool| {
        let is_one = |(names, ours): &&(&'static str, &'static [&'static str])| {
            names.split(' ').chain(ours.iter().copied()).any(is)
        };
        units.iter().find(is_one).map(|(_, ours)| *ours)
    };
    named(&|name| name == unit).or_else(|| named(&|name| name.eq_ignore_ascii_case(unit)))
}

/// The unit that a word alone stands for, as it is written here; empty for one of rates.
pub fn meant(word: &str) -> Option<&'static str> {
    let all: [&Units; 6] = [&POWERS, &TIMES, &SIZES, &SHARES, &CLOCKS, &RATES];
    all.into_iter().find_map(|units| find(word, units)?.first().copied())
}

/// `; write 8GB or 8GiB`; empty where nobody knows what is meant.
pub fn or_write(text: &str, units: &Units) -> String {
    let Some((number, unit)) = number_and_unit(text) else { return String::new() };
    let units = if units.is_empty() { &RATES } else { units };
    let is_ours = units.iter().flat_map(|(_, ours)| *ours).any(|own| *own == unit);
    let written: Vec<String> = match find(&unit, units) {
        _ if unit.is_empty() || is_ours => vec![format!("{number}{unit}")],
        Some(ours) => ours.iter().map(|unit| format!("{number}{unit}")).collect(),
        None => return String::new(),
    };
    if written.iter().any(|written| written == text) {
        String::new()
    } else {
        format!("; write {}", written.join(" or "))
    }
}

/// The number of a rate that was written with its unit: `10` of `10tok/s`.
pub fn rate_in(text: &str) -> Option<String> {
    let (number, unit) = number_and_unit(text)?;
    find(&unit, &RATES).filter(|_| !unit.is_empty()).map(|_| number)
}

/// A whole number that was written with a unit, separators or an exponent: `4kb`, `4,096`, `1e3`, `1M`.
pub fn count_meant(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: f64 = match unit.to_lowercase().as_str() {
        "" | "tokens" | "tok" | "t" => 1.0,
        "k" | "kb" | "kib" | "ki" => 1024.0,
        "m" | "mb" | "mib" | "mi" => 1_048_576.0,
        _ => return None,
    };
    let count = number.parse::<f64>().ok()? * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number that fits is given back"
    )]
    let whole = count as u64;
    #[expect(clippy::cast_precision_loss, reason = "compared with what it was made of")]
    let is_whole = whole as f64 == count;
    (is_whole && whole > 0).then_some(whole)
}

/// A number in our notation, and what follows it.
fn number_and_unit(text: &str) -> Option<(String, String)> {
    let plain: String = text.chars().map(narrow).filter(|of| !of.is_whitespace()).collect();
    let is_number = |of: char| of.is_ascii_digit() || ".,_'".contains(of);
    let end = plain.find(|of| !is_number(of)).unwrap_or(plain.len());
    // An exponent belongs to the number.
    let exponent = plain[end..].strip_prefix(['e', 'E']).filter(|rest| rest.parse::<u8>().is_ok());
    let end = exponent.map_or(end, |_| plain.len());
    let (number, unit) = plain.split_at(end);
    let number = with_point(number)?;
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0)?;
    let number = if exponent.is_some() { value.to_string() } else { number };
    Some((number, unit.to_owned()))
}

/// Wide letters of East Asian keyboards as plain ones.
fn narrow(of: char) -> char {
    match u32::from(of) {
        wide @ 0xFF01..=0xFF5E => char::from_u32(wide - 0xFEE0).unwrap_or(of),
        _ => of,
    }
}

/// A number with a decimal point and without separators: `4,096` and `1.000.000` have groups of three, `1.000,5` and `7,5` a decimal
/// comma. `None` for a list.
fn with_point(text: &str) -> Option<String> {
    let bare: String = text.chars().filter(|of| !"_'".contains(*of)).collect();
    let Some(last) = bare.rfind([',', '.']).map(|at| &bare[at..=at]) else { return Some(bare) };
    let parts: Vec<&str> = bare.split(last).collect();
    let is_group = |part: &&str| part.len() == 3;
    let (first, others) = parts.split_first()?;
    let has_groups = others.iter().all(is_group) && (last == "," || others.len() > 1);
    if !has_groups && others.len() > 1 || others.iter().any(|part| part.is_empty()) {
        return None;
    }
    let first: String = first.chars().filter(char::is_ascii_digit).collect();
    let joint = if has_groups { "" } else { "." };
    Some(format!("{first}{joint}{}", others.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_countries_and_keyboards_are_read_and_lists_are_not() {
        for (text, meant) in [
            ("4,096", Some("4096")),
            ("1.000.000", Some("1000000")),
            ("1.000,5", Some("1000.5")),
            ("7,5", Some("7.5")),
            ("1'024", Some("1024")),
            ("1,2,4", None),
            ("1,", None),
        ] {
            assert_eq!(with_point(text).as_deref(), meant, "{text}");
        }
        assert_eq!(or_write("１５Ｗ", &POWERS), "; write 15W");
        assert_eq!(or_write("15\u{a0}W", &POWERS), "; write 15W");
        assert_eq!(or_write("15J", &POWERS), "");
        assert_eq!(count_meant("1,2,4"), None);
        assert_eq!(count_meant("x"), None);
    }
}
