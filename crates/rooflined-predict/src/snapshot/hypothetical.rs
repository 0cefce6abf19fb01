//! Snapshot of a machine that is not present, from its data sheet: nothing of it was measured, and it has no state.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BusyClocks, CalibrationStatus, ModeView, PowerControl, Snapshot, gpu_model, point_now};
use crate::calibration::Accelerator;
use rooflined_core::board::{
    ActiveMode, Board, BoardState, Cpu, Gpu, GpuDriver, Memory, PowerModes, Reading,
};
use rooflined_core::hardware::{Hardware, Kind, NominalMode};
use rooflined_core::units::{Bytes, Seconds};

/// Serial of a snapshot that was never published.
const HYPOTHETICAL: u64 = 0;

/// Part of the memory of a part that the kernel counts at all: 93 % (Orin Nano 8 GB, GB10) to 96 % (AGX Orin 64 GB)
/// where firmware and display keep their own.
const COUNTED_INTEGRATED: f64 = 0.94;
/// What a system without a desktop takes of that.
const SYSTEM_INTEGRATED: Bytes = Bytes(1e9);
/// Of a card, less what error correction takes on some.
const COUNTED_DISCRETE: f64 = 0.98;
/// A context of the driver.
const SYSTEM_DISCRETE: Bytes = Bytes(0.5e9);

/// What is left of the memory of a part for models, documented guesses for want of a machine to ask; `None` where the
/// registry does not know how much it has.
fn memory(hardware: &Hardware) -> Option<Memory> {
    let installed = hardware.memory?;
    let (counted, system) = match hardware.kind {
        Kind::Integrated | Kind::Cpu => (COUNTED_INTEGRATED, SYSTEM_INTEGRATED),
        Kind::Discrete => (COUNTED_DISCRETE, SYSTEM_DISCRETE),
    };
    let total = installed * counted;
    let available = (total - system).max(Bytes::ZERO);
    Some(Memory { total, available, free: available, swap_used: Bytes::ZERO })
}

fn board(hardware: &Hardware) -> Board {
    let reason = format!("the data sheet of {} does not say", hardware.key);
    let modes = match hardware.modes.as_slice() {
        [] => Reading::absent(format!("the registry knows no power modes of {}", hardware.key)),
        modes => Reading::Known(PowerModes {
            default: modes.first().map(|mode| mode.id),
            modes: modes.iter().map(NominalMode::power_mode).collect(),
            warnings: Vec::new(),
            source: format!("registry: {}", hardware.key),
        }),
    };
    Board {
        key: hardware.key.clone(),
        notes: Vec::new(),
        model: Reading::Known(hardware.name.clone()),
        kernel: Reading::absent(&reason),
        os: Reading::absent(&reason),
        machine: Reading::absent(&reason),
        module: Reading::absent(&reason),
        l4t: Reading::absent(&reason),
        cpu: hardware.cpu.as_ref().map_or_else(
            || Cpu {
                model: Reading::absent(&reason),
                architecture: String::new(),
                logical: hardware.modes.iter().map(|mode| mode.cores_online).max().unwrap_or(0),
                cores: Reading::absent(&reason),
                kinds: Vec::new(),
                max_clock: Reading::absent(&reason),
                caches: Vec::new(),
                features: Vec::new(),
            },
            |cpu| cpu.on_board(&hardware.name),
        ),
        gpu: if hardware.kind == Kind::Cpu {
            Reading::absent(&reason)
        } else {
            Reading::Known(Gpu {
                name: Reading::Known(hardware.name.clone()),
                driver: GpuDriver::Nvml,
                sm_total: Reading::Known(hardware.sm),
                max_clock: Reading::Known(hardware.gpu_clock),
                clocks: Vec::new(),
                driver_version: Reading::absent(&reason),
                parts: Default::default(),
            })
        },
        memory_clock_max: hardware.memory_clock,
        modes,
        memory_total: memory(hardware)
            .map_or_else(|| Reading::absent(&reason), |memory| Reading::Known(memory.total)),
        unified_memory: hardware.kind != Kind::Discrete,
        simulated: false,
        sources: BTreeMap::new(),
    }
}

fn key_of(mode: &NominalMode) -> ActiveMode {
    ActiveMode { id: mode.id, name: mode.name.clone() }
}

fn state(hardware: &Hardware) -> BoardState {
    let reason = format!("{} is other hardware: this is from its data sheet", hardware.key);
    let mut state = BoardState::unknown(Seconds::ZERO, &reason);
    if let Some(mode) = hardware.top_mode() {
        state.power_mode = Reading::Known(key_of(mode));
    }
    if let Some(memory) = memory(hardware) {
        state.memory = Reading::Known(memory);
    }
    state
}

impl Snapshot {
    /// What the data sheet says of `hardware` in its fastest mode. The snapshot of a CPU that nothing describes has no compute
    /// ceilings: they have to be measured.
    #[must_use]
    pub fn hypothetical(hardware: Arc<Hardware>) -> Self {
        let (board, state) = (board(&hardware), state(&hardware));
        let top = hardware.top_mode();
        let view = |mode: &NominalMode| {
            let (roofline, profile) = gpu_model(&hardware, None, &mode.operating_point());
            ModeView {
                mode: mode.power_mode(),
                roofline,
                profile,
                // Gated units stay gated until the next start; what else a kernel cannot change is not known here.
                reboot_required: Some(top.is_some_and(|top| mode.sm_online != top.sm_online)),
                unreachable: Some(format!("{} is other hardware", hardware.key)),
                measured_power: None,
                worst_power: None,
            }
        };
        let modes: Vec<ModeView> = hardware.modes.iter().map(view).collect();
        // The mode in force is the same point whether it is named or not.
        let in_force = top.and_then(|top| modes.iter().find(|view| view.mode.key() == key_of(top)));
        let (roofline, profile) = in_force.map_or_else(
            || gpu_model(&hardware, None, &point_now(&board, &state, Some(&hardware))),
            |view| (view.roofline.clone(), view.profile.clone()),
        );
        let accelerator = if hardware.kind == Kind::Cpu { Accelerator::Cpu } else { Accelerator::Gpu };
        Self {
            serial: HYPOTHETICAL,
            taken_at: Seconds::ZERO,
            accelerator,
            modes: Arc::new(modes),
            board,
            state,
            busy_clocks: BusyClocks::default(),
            hardware: Some(hardware),
            roofline,
            profile,
            residuals: Arc::default(),
            observed_runs: Arc::default(),
            reports: Arc::default(),
            servers: Arc::default(),
            calibration: None,
            calibration_status: CalibrationStatus::default(),
            reference: None,
            degraded: BTreeMap::new(),
            power: PowerControl::default(),
            control_enabled: false,
            power_limit: None,
        }
    }

    /// Whether it describes a machine by its data sheet and no machine that runs it.
    #[must_use]
    pub const fn is_hypothetical(&self) -> bool {
        self.serial == HYPOTHETICAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;

    #[test]
    fn the_mode_in_force_is_the_same_point_whether_it_is_named_or_not() {
        for hardware in registry().entries().filter(|hardware| !hardware.modes.is_empty()) {
            let snapshot = Snapshot::hypothetical(Arc::new(hardware.clone()));
            let active = snapshot.state.power_mode.known().unwrap();
            let view = snapshot.modes.iter().find(|view| view.mode.is(active)).unwrap();
            assert_eq!(snapshot.roofline, view.roofline, "{}", hardware.key);
        }
    }
}
