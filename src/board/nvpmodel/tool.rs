//! What the tool `nvpmodel` prints, and what it keeps.

use crate::board::{ActiveMode, parse};

/// The mode in the answer of `nvpmodel -q`: the line `NV Power Mode: NAME` and its number on the next. Warnings of the
/// tool (`NVPM WARN: …`) may stand in front and between. `None` where the answer names no mode, as on a board where
/// none was ever set.
///
/// It is what the tool believes, not what is in force: after a refused switch it still names a mode.
#[must_use]
pub fn parse_query(stdout: &str) -> Option<ActiveMode> {
    const NAME: &str = "NV Power Mode:";
    let mut lines = stdout.lines().map(str::trim).filter(|line| !line.is_empty());
    let name = lines.find_map(|line| parse::label(line.split_once(NAME)?.1))?;
    let id = lines.find(|line| !line.starts_with("NVPM"))?.parse().ok()?;
    Some(ActiveMode { id, name })
}

/// The mode in `/var/lib/nvpmodel/status` (`pmode:0002`, of R32 `pmode:0002 fmode:quiet`): the one that was asked for
/// last and that is set at the next boot. `None` for anything else.
#[must_use]
pub fn parse_status(text: &str) -> Option<u32> {
    let digits = text.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?;
    let digits = digits.trim_end_matches('\0');
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
