//! What the tool `nvpmodel` keeps.

/// The mode in `/var/lib/nvpmodel/status` (`pmode:0002`, of R32 `pmode:0002 fmode:quiet`): the one that was asked for
/// last and that is set at the next boot. `None` for anything else.
#[must_use]
pub fn parse_status(text: &str) -> Option<u32> {
    let digits = text.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?;
    let digits = digits.trim_end_matches('\0');
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
