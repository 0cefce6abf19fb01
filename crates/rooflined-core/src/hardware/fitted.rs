//! An entry beside the board that was taken for it: what the board tells itself counts.

use super::{Hardware, Kind};
use crate::board::{Board, PowerModes, nvpmodel::gating_settings};
use crate::units::{Bytes, Hertz};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Thor's masks of gated units and the SMs that they leave. The bits have no published meaning; the same releases of NVIDIA's
/// files gate 10 and 6 clusters with them (L4T guide R38.4: power modes of Thor; anduril/jetpack-nixos for the last two).
const THOR_MASKS: [(&str, u32); 4] = [("64", 20), ("15873", 12), ("512", 20), ("17353", 12)];
/// Clocks within this ratio are the same.
const SAME_CLOCK: f64 = 0.005;

impl Hardware {
    /// Fills in how many SMs a mode leaves on where its file says so by a mask that counts no clusters: equal masks are
    /// equal SMs. A mode of the data sheet with the same name and clock says what a mask stands for; without one, what is
    /// published about Thor's masks does.
    pub fn tell_sm(&self, modes: &mut PowerModes) {
        let mask = |mode: &crate::board::PowerMode| -> Vec<String> {
            gating_settings(mode).map(|setting| setting.value.trim().to_owned()).collect()
        };
        let published = |mask: &[String]| {
            THOR_MASKS.iter().find(|(text, _)| mask == [*text]).map(|(_, sm)| (*sm).min(self.sm))
        };
        let of_name = |mode: &crate::board::PowerMode| {
            let stated = self.modes.iter().find(|stated| stated.name.eq_ignore_ascii_case(&mode.name))?;
            let same = mode.gpu_max.is_none_or(|cap| (cap / stated.gpu_clock - 1.0).abs() <= SAME_CLOCK);
            same.then_some(stated.sm_online)
        };
        let told: Vec<(Vec<String>, u32)> = modes
            .modes
            .iter()
            .filter_map(|mode| Some((mask(mode), of_name(mode)?)))
            .filter(|(mask, _)| !mask.is_empty())
            .collect();
        for mode in modes.modes.iter_mut().filter(|mode| mode.sm_online.is_none() && mode.tpc_mask.is_none())
        {
            let own = mask(mode);
            let equal = || told.iter().find(|(mask, _)| *mask == own).map(|(_, sm)| *sm);
            if !own.is_empty() {
                mode.sm_online = published(&own).or_else(equal);
            }
        }
    }

    /// The part of its SMs that the smallest power mode of any part with this silicon leaves on.
    #[must_use]
    pub fn least_sm_ratio(&self) -> f64 {
        let kin = super::registry()
            .entries()
            .filter(|known| known.kind == self.kind && known.compute_capability == self.compute_capability);
        let modes = kin.flat_map(|known| known.modes.iter().map(|mode| mode.sm_online));
        modes.map(|sm| f64::from(sm) / f64::from(self.sm.max(1))).fold(1.0, f64::min)
    }

    /// The entry with as many SMs as `board` was found to have, which are fewer than its family's where the module is
    /// not listed, with the bandwidth of its own memory, and the share of an instance where its GPU is divided.
    #[must_use]
    pub fn fitted(self, board: &Board) -> Self {
        let parts = board.gpu.known().map(|gpu| gpu.parts.clone()).unwrap_or_default();
        let bandwidth = self.other_bandwidth(&parts).unwrap_or(self.bandwidth);
        let this = Self { bandwidth, ..self }.of_instance(&parts);
        let sm = board.gpu.known().and_then(|gpu| gpu.sm_total.known()).copied();
        Self { sm: sm.filter(|sm| *sm > 0).map_or(this.sm, |sm| sm.min(this.sm)), ..this }
    }

    /// What this machine's accelerator is by its key, fitted to it. A GPU that nobody has described is what its driver tells
    /// of it.
    #[must_use]
    pub fn of_board(board: &Board) -> Option<Self> {
        let entry = super::known().get(&board.key).cloned()?;
        let told = || {
            let gpu = board.gpu.known().filter(|_| entry.kind == Kind::Cpu)?;
            Self::of_parts(gpu.name.known()?, *gpu.max_clock.known()?, &gpu.parts)
        };
        Some(told().unwrap_or(entry).fitted(board))
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
                    "MemTotal is {:.1} GiB, and {key} has {:.0}: the value of MemTotal counts",
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
    fn equal_masks_leave_equal_sms_whatever_the_clock_or_the_name() {
        let mode = |id: u32, name: &str, mask: &str, clock: &str| {
            format!(
                "< POWER_MODEL ID={id} NAME={name} >\nGPU_POWER_GATING GPU_PG_MASK {mask}\nGPU MAX_FREQ {clock}\n"
            )
        };
        let text = [
            "< PARAM TYPE=FILE NAME=GPU_POWER_GATING >\nGPU_PG_MASK /opt/nvidia/l4t-gpusetup/gpu_pg_mask\n\
             < PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ /sys/class/devfreq/gpu-gpc-0/max_freq\n"
                .to_owned(),
            mode(0, "MAXN", "64", "-1"),
            mode(1, "mine", "15873", "1386000000"),
            mode(2, "120W", "7", "1386000000"),
            mode(3, "quiet", "7", "612000000"),
            mode(4, "odd", "9", "612000000"),
        ];
        let parsed = crate::board::nvpmodel::parse(&text.concat());
        for (key, expected) in [
            ("jetson-agx-thor-t5000", [Some(20), Some(12), Some(20), Some(20), None]),
            // Its data sheet lists no modes, so masks that nobody has published stay unknown.
            ("igx-thor", [Some(20), Some(12), None, None, None]),
        ] {
            let mut modes = parsed.clone();
            registry().get(key).unwrap().tell_sm(&mut modes);
            let found: Vec<_> = modes.modes.iter().map(|mode| mode.sm_online).collect();
            assert_eq!(found, expected, "{key}");
        }
        assert!((registry().get("igx-thor").unwrap().least_sm_ratio() - 0.6).abs() < 1e-9);
    }

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
