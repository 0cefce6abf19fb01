//! Resource limits of one SM (streaming multiprocessor), by compute capability.
//!
//! From the architecture traits of NVIDIA/cccl (`libcudacxx/include/cuda/__device/arch_traits.h`). 7.2, which they leave out,
//! is recalled and taken to be as 7.0.

use rooflined_core::keyed;
use serde::Serialize;

/// 32-bit registers of an SM, the same in every capability below.
pub const REGISTERS: u32 = 65_536;
/// Most registers of a thread.
pub const MOST_REGISTERS: u32 = 255;
/// Registers are handed to a warp in this many at a time.
pub const REGISTER_STEP: u32 = 256;
/// Threads of a warp.
pub const WARP: u32 = 32;

/// Limits of one SM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SmLimits {
    /// Resident threads.
    pub threads: u32,
    /// Resident thread blocks.
    pub blocks: u32,
    /// Shared memory in bytes.
    pub shared_memory: u32,
    /// Shared memory that one block may ask for.
    pub block_shared_memory: u32,
    /// Shared memory that the system takes for each block beside its own.
    pub reserved_shared_memory: u32,
    /// Copies from memory to shared memory run beside the arithmetic (`cp.async`).
    pub asynchronous_copies: bool,
    /// Four warps multiply together and read their operands from shared memory once (`wgmma`, `tcgen05`).
    pub warp_groups: bool,
    /// Sums stand in tensor memory and not in registers (`tcgen05`).
    pub tensor_memory: bool,
}

/// Kibibytes of shared memory, of one block, kibibytes reserved, blocks, threads.
const fn limits((major, minor): (u32, u32)) -> Option<(u32, u32, u32, u32, u32)> {
    Some(match (major, minor) {
        (6, 1) => (96, 48, 0, 32, 2048),
        (7, 0 | 2) => (96, 96, 0, 32, 2048),
        (7, 5) => (64, 64, 0, 16, 1024),
        (8, 0) => (164, 163, 1, 32, 2048),
        (8, 6 | 8) => (100, 99, 1, 16, 1536),
        (8, 7) => (164, 163, 1, 16, 1536),
        (8, 9) => (100, 99, 1, 24, 1536),
        (9, 0) | (10, 0 | 3) => (228, 227, 1, 32, 2048),
        (11, 0) => (228, 227, 1, 24, 1536),
        (12, 0 | 1) => (100, 99, 1, 24, 1536),
        _ => return None,
    })
}

impl SmLimits {
    /// Of a compute capability; `None` for one that the table does not have.
    #[must_use]
    pub fn of(capability: (u32, u32)) -> Option<Self> {
        let (shared, block, reserved, blocks, threads) = limits(capability)?;
        Some(Self {
            threads,
            blocks,
            shared_memory: shared * 1024,
            block_shared_memory: block * 1024,
            reserved_shared_memory: reserved * 1024,
            asynchronous_copies: capability.0 >= 8,
            warp_groups: (9..=11).contains(&capability.0),
            tensor_memory: (10..=11).contains(&capability.0),
        })
    }

    /// Blocks that are resident together, and what keeps it from being more; `None` where not even one fits.
    #[must_use]
    pub fn resident(&self, warps: u32, registers: u32, shared_memory: u32) -> Option<(u32, Resource)> {
        if shared_memory > self.block_shared_memory || registers > MOST_REGISTERS {
            return None;
        }
        let of_warp = (registers * WARP).next_multiple_of(REGISTER_STEP).max(REGISTER_STEP);
        let limits = [
            (self.blocks, Resource::Blocks),
            (self.threads / (warps * WARP).max(1), Resource::Threads),
            (
                self.shared_memory / (shared_memory + self.reserved_shared_memory).max(1),
                Resource::SharedMemory,
            ),
            (REGISTERS / (of_warp * warps).max(1), Resource::Registers),
        ];
        limits.into_iter().min_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0)
    }
}

keyed! {
    /// What limits how many blocks are resident.
    Resource {
        /// The number of blocks itself.
        Blocks = "blocks",
        Threads = "threads",
        SharedMemory = "shared_memory",
        Registers = "registers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;

    #[test]
    fn every_gpu_of_the_registry_has_limits() {
        for hardware in registry().entries() {
            if let Some(capability) = hardware.compute_capability {
                assert!(SmLimits::of(capability).is_some(), "{} {capability:?}", hardware.key);
            }
        }
        assert_eq!(SmLimits::of((3, 5)), None);
    }

    #[test]
    fn residency_is_the_least_of_four_limits() {
        let orin = SmLimits::of((8, 7)).unwrap();
        // 48 KiB and the reserved one: 164 / 49 = 3. Threads: 1536 / 256 = 6. Registers: 65536 / (64 x 32 x 8) = 4.
        assert_eq!(orin.resident(8, 64, 48 * 1024), Some((3, Resource::SharedMemory)));
        // 65536 / (152 x 32 = 4864 a warp, 38912 a block) = 1.
        assert_eq!(orin.resident(8, 152, 8 * 1024), Some((1, Resource::Registers)));
        assert_eq!(orin.resident(8, 16, 1024), Some((6, Resource::Threads)));
        assert_eq!(orin.resident(1, 16, 0), Some((16, Resource::Blocks)));
        assert_eq!(orin.resident(8, 64, 164 * 1024), None, "a block has 163 KiB at most");
        assert_eq!(orin.resident(4, 256, 1024), None, "a thread has 255 registers at most");
    }
}
