//! Device attributes that follow from a scenario, and the limits of its SMs.

use crate::scenario::Scenario;

/// Domain, bus and device.
pub const PCI_BUS_ID: &str = "0000:01:00.0";

/// Limits of an SM, by compute capability as the CUDA programming guide lists them.
struct Limits {
    threads: i32,
    blocks: i32,
    shared_bytes: i32,
}

fn limits(scenario: &Scenario) -> Limits {
    let (threads, blocks, shared_kib) = match scenario.capability() {
        ..=85 => (2048, 32, 164),
        86 => (1536, 16, 100),
        87 | 88 => (1536, 16, 164),
        89 => (1536, 24, 100),
        90..=109 => (2048, 32, 228),
        110..=119 => (1536, 24, 228),
        _ => (1536, 24, 100),
    };
    Limits { threads, blocks, shared_bytes: shared_kib << 10 }
}

/// The most shared memory that a block can ask for.
pub fn shared_opt_in(scenario: &Scenario) -> i32 {
    limits(scenario).shared_bytes - 1024
}

/// Blocks that an SM holds at once; registers are never what is short.
pub fn resident_blocks(scenario: &Scenario, threads: i32, shared_bytes: usize) -> i32 {
    let limits = limits(scenario);
    let by_threads = limits.threads / (threads + 31).div_euclid(32).max(1) / 32;
    // Each block costs a KiB more than it asks for.
    let by_shared = limits.shared_bytes as usize / (shared_bytes + 1024);
    by_threads.min(limits.blocks).min(i32::try_from(by_shared).unwrap_or(i32::MAX))
}

/// The value of an attribute by its number in `cuda.h`; `None` for a number that is none.
pub fn of_device(scenario: &Scenario, attribute: u32) -> Option<i32> {
    if let Some(&value) = scenario.attributes.get(&attribute.to_string()) {
        return Some(value);
    }
    let limits = limits(scenario);
    let whole = |value: f64| value as i32;
    let discrete = i32::from(!scenario.integrated);
    Some(match attribute {
        0 | 163.. => return None,
        // Threads of a block, and each size of blocks and grids.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        // Shared memory of a block that asks for no more, constants, warp size, pitch, registers.
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => 64 << 10,
        // kHz of the SMs and of the memory.
        13 => whole(scenario.clock.sm_hz / 1e3),
        36 => whole(scenario.clock.memory_hz / 1e3),
        14 => 512,
        15 => 1,
        16 => i32::try_from(scenario.sm_count).unwrap_or(i32::MAX),
        18 => i32::from(scenario.integrated),
        19 | 31 | 41 | 78 | 79 | 80 | 83 | 90 | 95 | 102 => 1,
        // Device number on the PCI bus 1.
        33 => 1,
        // Two transfers a clock.
        37 => whole(scenario.memory.dram_bytes_per_s / scenario.clock.memory_hz / 2.0 * 8.0),
        38 => i32::try_from(scenario.memory.l2_bytes).unwrap_or(i32::MAX),
        39 => limits.threads,
        40 => 2,
        75 => scenario.compute_capability[0] as i32,
        76 => scenario.compute_capability[1] as i32,
        81 => limits.shared_bytes,
        88 | 89 => discrete.max(i32::from(scenario.capability() >= 110)),
        97 => shared_opt_in(scenario),
        106 => limits.blocks,
        111 => 1 << 10,
        115 => discrete,
        120 => i32::from(scenario.capability() >= 90),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_follow_the_board() {
        let orin = Scenario::orin();
        let values: Vec<_> =
            [75, 76, 16, 18, 38, 39, 10].into_iter().map(|it| of_device(&orin, it).unwrap()).collect();
        assert_eq!(values, [8, 7, 16, 1, 4 << 20, 1536, 32]);
        assert_eq!(of_device(&Scenario::h200(), 18), Some(0));
        assert_eq!(of_device(&Scenario::gb10(), 13), Some(2_418_000));
        assert_eq!(of_device(&orin, 0), None);
        let mut odd = orin;
        odd.attributes.insert("16".into(), 14);
        assert_eq!(of_device(&odd, 16), Some(14));
    }

    #[test]
    fn as_many_blocks_as_threads_and_shared_memory_allow() {
        let orin = Scenario::orin();
        assert_eq!(resident_blocks(&orin, 256, 0), 6);
        assert_eq!(resident_blocks(&orin, 32, 0), 16);
        assert_eq!(resident_blocks(&orin, 1, 0), 16);
        assert_eq!(resident_blocks(&orin, 256, 40 << 10), 4);
        assert_eq!(resident_blocks(&Scenario::h200(), 1024, 0), 2);
    }
}
