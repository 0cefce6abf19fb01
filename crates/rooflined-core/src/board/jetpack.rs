//! Which JetPack a release of NVIDIA's board support (L4T) belongs to.

/// Release and JetPack.
const RELEASES: [(&str, &str); 35] = [
    ("39.2", "7.2"),
    ("38.4", "7.1"),
    ("38.2", "7.0"),
    ("36.5", "6.2.2"),
    ("36.4.7", "6.2.1"),
    ("36.4.4", "6.2.1"),
    ("36.4.3", "6.2"),
    ("36.4", "6.1"),
    ("36.3", "6.0"),
    ("36.2", "6.0 DP"),
    ("35.6.4", "5.1.6"),
    ("35.6.3", "5.1.5"),
    ("35.6.2", "5.1.5"),
    ("35.6.1", "5.1.5"),
    ("35.6", "5.1.4"),
    ("35.5", "5.1.3"),
    ("35.4.1", "5.1.2"),
    ("35.3.1", "5.1.1"),
    ("35.2.1", "5.1"),
    ("35.1", "5.0.2"),
    ("34.1.1", "5.0.1 DP"),
    ("34.1", "5.0 DP"),
    ("32.7.6", "4.6.6"),
    ("32.7.5", "4.6.5"),
    ("32.7.4", "4.6.4"),
    ("32.7.3", "4.6.3"),
    ("32.7.2", "4.6.2"),
    ("32.7.1", "4.6.1"),
    ("32.6.1", "4.6"),
    ("32.5.2", "4.5.1"),
    ("32.5.1", "4.5.1"),
    ("32.5", "4.5"),
    ("32.4.4", "4.4.1"),
    ("32.4.3", "4.4"),
    ("32.3.1", "4.3"),
];

/// The JetPack of an L4T release such as `36.4.3`; `None` for one that is not known. `36.4.0` is `36.4`.
#[must_use]
pub fn jetpack(l4t: &str) -> Option<&'static str> {
    let release = l4t.trim().trim_end_matches(".0");
    RELEASES.iter().find(|(known, _)| *known == release).map(|(_, jetpack)| *jetpack)
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
