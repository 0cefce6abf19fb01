//! What tells one machine from another.

use rooflined_core::board::Board;
use rooflined_core::names::InstructionSet;
use rooflined_predict::calibration::MachineKey;

/// What records of this machine are kept under.
pub(super) fn machine_key(board: &Board, instructions: InstructionSet) -> MachineKey {
    let cpu = board.cpu.model.known().cloned().unwrap_or_else(|| board.cpu.architecture.clone());
    MachineKey {
        machine: board.machine.known().cloned(),
        board: board.key.clone(),
        cpu: match instructions {
            InstructionSet::Auto => cpu,
            forced => format!("{cpu}, {}", forced.key()),
        },
        logical_cpus: board.cpu.logical,
        kernel: board.kernel.known().cloned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What learning is kept under: another version predicts otherwise.
pub(super) fn machine_name(board: &Board) -> String {
    let key = machine_key(board, InstructionSet::Auto);
    format!("{}/{}/{}", key.machine.unwrap_or_default(), key.cpu, key.version)
}
