//! The power modes that nvpmodel would enter, and which of them is in force.

use super::SysRoot;
use super::file::{OpenFile, ReadError};
use super::timed_reader::TimedReader;
use rooflined_core::board::active::{Live, LiveCap, active_mode};
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{BoardState, PowerModes, Reading, nvpmodel};
use rooflined_core::units::Hertz;

/// A symbolic link to the file of the module fitted; on some images a plain copy.
const CONF: &str = "/etc/nvpmodel.conf";
/// The file that nvpmodel was last started with, where that was another (`nvpmodel -f FILE`): it reads that one from then on.
const RECORD: &str = "/var/lib/nvpmodel/conf_file_path";
/// Where only the power mode tells how many SMs are on.
pub(crate) const NO_FILE_OF_SMS: &str = "no file reports how many SMs are on";
/// Files of modes have tens of kilobytes.
const LONGEST: usize = 1 << 20;

/// The modes in nvpmodel's file, with the file they were read from.
pub(super) fn discover(root: &SysRoot) -> Reading<PowerModes> {
    let file = root.resolve(recorded(root).as_deref().unwrap_or(CONF));
    let mut source = TimedReader::new(vec![OpenFile::of_driver(root, &file).limited(LONGEST)]);
    let text = match source.read_all().pop() {
        Some(Ok((text, _))) => text,
        Some(Err(error @ ReadError::Denied { .. })) => {
            return Reading::absent(format!("the power modes may not be read: {error}"));
        }
        Some(Err(error)) => return refused(error.into(), &file),
        None => return Reading::failed(format!("{file} was not read")),
    };
    let modes = PowerModes { source: file.clone(), ..nvpmodel::parse(&text) };
    if modes.modes.is_empty() {
        return Reading::absent(format!("{file} has no power mode"));
    }
    Reading::Known(modes)
}

/// What nvpmodel recorded, where it leads to a file.
fn recorded(root: &SysRoot) -> Option<String> {
    let file = root.read(RECORD).ok()?.trim().to_owned();
    (file.starts_with('/') && root.path(&root.resolve(&file)).is_file()).then_some(file)
}

fn refused(reading: Reading<PowerModes>, file: &str) -> Reading<PowerModes> {
    match reading {
        Reading::Absent { reason } if file == CONF => {
            Reading::absent(format!("no power modes on this machine: {reason}"))
        }
        Reading::Absent { reason } => Reading::absent(format!("{CONF} leads to {file}, but {reason}")),
        other => other,
    }
}

/// What tells which mode is in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModeRule {
    pub chip: Option<Chip>,
    pub modes: Reading<PowerModes>,
    pub cpu_max: Option<Hertz>,
    /// Clocks that the GPU can have, ascending; empty where it does not tell.
    pub gpu_clocks: Vec<Hertz>,
    /// Highest GPU clock by the data sheet.
    pub gpu_max: Option<Hertz>,
    /// SMs that the module has.
    pub sm: Option<u32>,
    /// Clocks that the CPUs can have, ascending; empty where cpufreq does not tell.
    pub cpu_clocks: Vec<Hertz>,
}

/// What tells modes apart by their memory clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MemoryLimits {
    /// The cap as it is set.
    pub cap: Option<LiveCap>,
    pub max: Option<Hertz>,
    /// Highest clock that the firmware admits, where it tells.
    pub admitted: Option<Hertz>,
}

impl ModeRule {
    /// Finds the mode whose caps are those of `state`. `entered` is what nvpmodel says; `cores` are online on the machine, of which
    /// a process may be granted fewer.
    pub fn judge(
        &self,
        state: &mut BoardState,
        memory: MemoryLimits,
        (entered, cores): (Option<u32>, Option<u32>),
    ) {
        let modes = match &self.modes {
            Reading::Known(modes) => modes,
            Reading::Absent { reason } | Reading::Failed { reason } => {
                state.power_mode = Reading::absent(reason);
                return;
            }
        };
        let live = Live {
            cores_online: cores,
            cpu_cap: state.cpu_clock_cap.known().copied(),
            cpu_max: self.cpu_max,
            cpu_clocks: self.cpu_clocks.clone(),
            gpu_cap: state.gpu_clock_cap.known().copied(),
            gpu_clocks: self.gpu_clocks.clone(),
            gpu_max: self.gpu_max,
            memory_cap: memory.cap,
            memory_max: memory.max,
            memory_admitted: memory.admitted,
            tpc_mask: state.tpc_mask.known().copied(),
            throttled: state.throttle.known().is_some_and(|throttle| throttle.active),
        };
        let judgement = active_mode(modes, entered, &live);
        state.mode_note = judgement.note;
        state.power_mode = judgement.mode.map_or_else(Reading::absent, Reading::Known);
        if state.sm_online.known().is_none() {
            self.tell_sm(modes, state);
        }
    }

    /// Where no file tells how many SMs are on, the mode in force does by what it gates; so do modes that all gate the same.
    fn tell_sm(&self, modes: &PowerModes, state: &mut BoardState) {
        let mode = state.power_mode.known().and_then(|active| modes.get(active));
        let active = mode.map(|mode| mode.sm_online);
        let of_all: Vec<Option<u32>> = modes.modes.iter().map(|mode| mode.sm_online).collect();
        let same = || of_all.first().copied().filter(|first| of_all.iter().all(|sm| sm == first)).flatten();
        if let Some(sm) = active.unwrap_or_else(same) {
            state.sm_online = Reading::Known(self.sm.map_or(sm, |most| sm.min(most)));
        } else if let Some(mode) = mode
            && state.sm_online.reason().is_some_and(|reason| reason.starts_with(NO_FILE_OF_SMS))
        {
            let name = &mode.name;
            state.sm_online = Reading::absent(format!(
                "{NO_FILE_OF_SMS}, and the power mode {name} sets no mask of GPU cores that is described"
            ));
        }
    }
}
