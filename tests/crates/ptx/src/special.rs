//! Special registers that stay the same while a block runs.

use crate::lanes::Lanes;

/// Their names; each has a slot after the registers, in this order.
pub(crate) const NAMES: [&str; 26] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%smid",
    "%nsmid",
    "%gridid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%dynamic_smem_size",
    "%total_smem_size",
    "WARP_SZ",
];

/// SMs that blocks are dealt to in turn, for `%smid`.
const SM_COUNT: u32 = 16;

/// What special registers tell of a block.
pub(crate) struct Block {
    pub index: [u32; 3],
    pub linear: u32,
    pub grid: [u32; 3],
    pub threads: [u32; 3],
    pub dynamic_shared: u32,
    pub shared: u32,
}

impl Block {
    /// `%tid` of a lane.
    pub fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let linear = warp * 32 + lane;
        let [x, y, _] = self.threads;
        [linear % x, linear / x % y, linear / (x * y)]
    }

    /// One special register of a warp, by its place in [`NAMES`].
    pub fn lanes(&self, which: usize, warp: u32) -> Lanes {
        std::array::from_fn(|lane| u64::from(self.value(which, warp, lane as u32)))
    }

    fn value(&self, which: usize, warp: u32, lane: u32) -> u32 {
        match which {
            0..3 => self.thread(warp, lane)[which],
            3..6 => self.threads[which - 3],
            6..9 => self.index[which - 6],
            9..12 => self.grid[which - 9],
            12 => lane,
            13 => warp,
            14 => self.threads.iter().product::<u32>().div_ceil(32),
            15 => self.linear % SM_COUNT,
            16 => SM_COUNT,
            17 => 1,
            18 => 1 << lane,
            19 => u32::MAX >> (31 - lane),
            20 => (1 << lane) - 1,
            21 => u32::MAX << lane,
            22 => (u32::MAX << lane) << 1,
            23 => self.dynamic_shared,
            24 => self.shared,
            _ => 32,
        }
    }
}
