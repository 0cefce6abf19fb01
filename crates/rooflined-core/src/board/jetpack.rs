//! Which JetPack a release of NVIDIA's board support (L4T) belongs to.

/// Release and JetPack, one pair a line.
const RELEASES: &str = include_str!("jetpack.txt");

/// The JetPack of an L4T release such as `36.4.3`; `None` for one that is not known. `36.4.0` is `36.4`.
#[must_use]
pub fn jetpack(l4t: &str) -> Option<&'static str> {
    let release = l4t.trim().trim_end_matches(".0");
    RELEASES
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(known, _)| *known == release)
        .map(|(_, jetpack)| jetpack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_its_jetpack_and_an_unknown_one_has_none() {
        for (l4t, expected) in [
            ("36.4.3", Some("6.2")),
            ("36.4.0", Some("6.1")),
            ("36.4", Some("6.1")),
            ("35.6.2", Some("5.1.5")),
            ("38.4.0", Some("7.1")),
            ("32.7.1", Some("4.6.1")),
            ("32.7.6", Some("4.6.6")),
            ("32.5.2", Some("4.5.1")),
            ("36.4.9", None),
            ("99.1", None),
            ("", None),
        ] {
            assert_eq!(jetpack(l4t), expected, "{l4t}");
        }
    }
}
