//! The power modes that nvpmodel would enter, and the one it entered last.

use super::SysRoot;
use super::file::Kept;
use super::patience::Patience;
use crate::board::{PowerModes, Reading, nvpmodel};

/// A symbolic link to the file of the module fitted; on some images a plain copy.
const CONF: &str = "/etc/nvpmodel.conf";
/// Written at every switch; absent before the first.
pub(super) const STATUS: &str = "/var/lib/nvpmodel/status";
/// Files of modes have tens of kilobytes.
const LONGEST: usize = 1 << 20;

/// The modes in nvpmodel's file, with the file they were read from.
pub(super) fn discover(root: &SysRoot) -> Reading<PowerModes> {
    let file = root.resolve(CONF);
    let mut source = Patience::new(vec![Kept::patient(root, &file).limited(LONGEST)]);
    let text = match source.read_all().pop() {
        Some(Ok((text, _))) => text,
        Some(Err(error)) => return refused(error.into(), &file),
        None => return Reading::failed(format!("{file} was not read")),
    };
    let modes = PowerModes { source: file.clone(), ..nvpmodel::parse(&text) };
    if modes.modes.is_empty() {
        return Reading::absent(format!("{file} has no power mode"));
    }
    Reading::Known(modes)
}

fn refused(reading: Reading<PowerModes>, file: &str) -> Reading<PowerModes> {
    match reading {
        Reading::Absent { reason } if file == CONF => {
            Reading::absent(format!("no power modes on this machine: {reason}"))
        }
        Reading::Absent { reason } => {
            Reading::absent(format!("no power modes on this machine: {CONF} leads to {file}, but {reason}"))
        }
        other => other,
    }
}
