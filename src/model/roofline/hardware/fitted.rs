//! An entry beside the board that was taken for it: what the board tells itself counts.

use super::Hardware;
use crate::board::Board;
use crate::units::{Bytes, Hertz};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

impl Hardware {
    /// The entry with as many SMs as `board` was found to have, which are fewer than its family's where the module is
    /// not listed.
    #[must_use]
    pub fn fitted(self, board: &Board) -> Self {
        let sm = board.gpu.known().and_then(|gpu| gpu.sm_total.known()).copied();
        Self { sm: sm.filter(|sm| *sm > 0).map_or(self.sm, |sm| sm.min(self.sm)), ..self }
    }

    /// Where a board contradicts the entry that it was taken for, in sentences: its memory, the SMs that its power modes
    /// leave on at most, and the highest clock of its GPU.
    #[must_use]
    pub fn contradictions(
        &self,
        memory: Option<Bytes>,
        most_sm: Option<u32>,
        highest: Option<Hertz>,
    ) -> Vec<String> {
        let key = &self.key;
        let mut found = Vec::new();
        if let (Some(memory), Some(sold)) = (memory, self.memory) {
            let ratio = memory / sold;
            if !(0.7..=1.001).contains(&ratio) {
                found.push(format!(
                    "MemTotal is {:.1} GiB, and {key} has {:.0}: what MemTotal tells counts",
                    memory.get() / GIB,
                    sold.get() / GIB,
                ));
            }
        }
        if let Some(sm) = most_sm.filter(|sm| *sm > self.sm) {
            found.push(format!(
                "the power modes leave up to {sm} SMs on, and {key} has {}: nvpmodel's file may be another board's",
                self.sm
            ));
        }
        if let Some(clock) = highest {
            let ratio = clock / self.gpu_clock;
            if !(0.99..=1.01).contains(&ratio) {
                found.push(format!(
                    "the GPU's table of clocks ends at {clock}, and {key} has {}: the table counts",
                    self.gpu_clock
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry;
    use super::*;

    #[test]
    fn a_board_that_is_not_its_entry_is_told_by_its_memory_its_modes_and_its_clocks() {
        let orin = registry().get("jetson-agx-orin-32gb").unwrap();
        let told = |memory: f64, sm, megahertz: f64| {
            orin.contradictions(Some(Bytes(memory * GIB)), Some(sm), Some(Hertz(megahertz * 1e6)))
        };
        assert_eq!(told(29.9, 14, 930.75), Vec::<String>::new());
        assert_eq!(told(29.9, 6, 930.75), Vec::<String>::new(), "no mode need have all");
        let all = told(61.4, 16, 1300.5);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(
            all[0].contains("61.4 GiB") && all[1].contains("16 SMs") && all[2].contains("1.3"),
            "{all:?}"
        );
        assert_eq!(orin.contradictions(None, None, None), Vec::<String>::new());
    }
}
