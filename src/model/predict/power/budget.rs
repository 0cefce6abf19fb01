//! The power that the maker of a module allows it in a mode.

use super::table::same_point;
use roofline::ceilings::Roofline;
use roofline::hardware::{Hardware, Kind, NominalMode};
use roofline::units::Watts;

/// A power limit with the name of what it is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    pub watts: Watts,
    /// `the budget of mode 15W`, `the budget of the module`.
    pub of: String,
    /// It is that of a mode, whose clocks the maker chose for it.
    pub is_of_mode: bool,
}

/// The watts in a mode's name: a number directly before a `W` that ends a word. They are a budget and no measurement.
/// `None` for names such as `MAXN`, which promise no bound.
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

/// The budget at the operating point of `roofline`: the watts in the name of the vendor's mode with these clocks, of
/// several the most; elsewhere, and in modes without watts, that of the module: its `tdp_w`, or the most of a mode that is
/// capped no higher. `None` of a card, whose limit is that of its file, and where the registry knows none.
#[must_use]
pub fn budget(hardware: &Hardware, roofline: &Roofline) -> Option<Budget> {
    if hardware.kind != Kind::Integrated {
        return None;
    }
    let labelled = |mode: &NominalMode| Some((label_watts(&mode.name)?, mode.name.clone()));
    let most = |a: &(Watts, String), b: &(Watts, String)| a.0.get().total_cmp(&b.0.get());
    let here = hardware.modes.iter().filter(|mode| same_point(mode, hardware, roofline));
    if let Some((watts, name)) = here.filter_map(labelled).max_by(most) {
        return Some(Budget { watts, of: format!("the budget of mode {name}"), is_of_mode: true });
    }
    let clock = roofline.clock?.get() * 1.001;
    let below = hardware.modes.iter().filter(|mode| mode.gpu_clock.get() <= clock);
    let modes = below.filter_map(|mode| label_watts(&mode.name));
    let watts = modes.chain(hardware.tdp).reduce(Watts::max)?;
    Some(Budget { watts, of: "the budget of the module".to_owned(), is_of_mode: false })
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
