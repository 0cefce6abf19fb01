//! The watts in the names of power modes.

use rooflined_core::units::Watts;

/// The watts in a mode's name: a number directly before a `W` that ends a word. They are a label and no
/// measurement: loads draw 0.6 to 0.73 of them, and no prediction rests on them. `None` for names such as `MAXN`.
#[must_use]
pub fn label_watts(name: &str) -> Option<Watts> {
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let ends = name.char_indices().filter(|(at, c)| {
        c.eq_ignore_ascii_case(&'w') && !name[at + 1..].starts_with(|next: char| next.is_ascii_alphanumeric())
    });
    let watts = ends.filter_map(|(at, _)| {
        let before = &name[..at];
        let digits = before.len() - before.trim_end_matches(number).len();
        before[before.len() - digits..].parse::<f64>().ok().filter(|watts| *watts > 0.0)
    });
    watts.max_by(f64::total_cmp).map(Watts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watts_in_a_name_are_found_where_they_are_a_label() {
        for (name, watts) in [
            ("15W", Some(15.0)),
            ("MODE_10W_DESKTOP", Some(10.0)),
            ("30w 2core", Some(30.0)),
            ("7.5W", Some(7.5)),
            ("MODE_20W_6CORE", Some(20.0)),
            ("10W-15W", Some(15.0)),
            ("MAXN", None),
            ("MAXN_SUPER", None),
            ("W", None),
            ("0W", None),
            ("15WATT", None),
            ("4CORE", None),
            ("", None),
            ("größe15W", Some(15.0)),
        ] {
            assert_eq!(label_watts(name), watts.map(Watts), "{name:?}");
        }
    }
}
