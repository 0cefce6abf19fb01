//! The clock of a memory controller that devfreq governs, on boards that are no Tegras.
//!
//! ```text
//! /sys/class/devfreq/dmc/  cur_freq  max_freq (Hz)      Rockchip; others call it *.memory-controller, *.ddr, …
//! ```

use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::parse;

const DEVFREQ: &str = "/sys/class/devfreq";
/// Parts of the names of such devices. Names with `bw` count in MB/s and are none of them.
const NAMES: [&str; 4] = ["dmc", "ddr", "dram", "memory-controller"];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryController {
    clock: String,
    cap: String,
}

impl Source for MemoryController {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        if context.chip.is_some() {
            return None;
        }
        let is_memory = |name: &String| NAMES.iter().any(|part| name.contains(part)) && !name.contains("bw");
        let name = context.root.names(DEVFREQ).into_iter().find(is_memory)?;
        let file = |file: &str| format!("{DEVFREQ}/{name}/{file}");
        Some(Self { clock: file("cur_freq"), cap: file("max_freq") })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        vec![("memory_clock", self.clock.clone()), ("memory_clock_cap", self.cap.clone())]
    }

    fn files(&self) -> Vec<File> {
        [&self.clock, &self.cap].map(File::of_driver).into()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let clock = |path: &str| answers.value(path, "a clock in Hz", parse::hertz);
        state.set(|state| &mut state.memory_clock, clock(&self.clock));
        state.set(|state| &mut state.memory_clock_cap, clock(&self.cap));
    }
}
