//! Memory of a Jetson's GPU, which is the machine's: how much is taken, and by whom.
//!
//! ```text
//! /proc/meminfo                            NvMapMemUsed (kB)                     JetPack 4 to 6
//! /sys/kernel/debug/nvmap/iovmm/clients    CLIENT PROCESS PID SIZE; for root only, Xavier and Orin
//! ```

use super::memory::MEMINFO;
use crate::SysRoot;
use crate::answers::{Answers, EACH_SECOND, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::{StateBuilder, detail};
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{Reading, parse::details as text};

const CLIENTS: &str = "/sys/kernel/debug/nvmap/iovmm/clients";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Nvmap {
    is_tegra: bool,
    /// Why it is none.
    no_tegra: String,
    /// The chip's driver lists its clients.
    lists: bool,
    /// Nothing else lists them either.
    unlisted: bool,
}

impl Source for Nvmap {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let lists = matches!(context.chip, Some(Chip::Tegra186 | Chip::Tegra194 | Chip::Tegra234));
        let unlisted = context.chip.is_some() && !lists && context.nvml.is_none();
        Some(Self { is_tegra: context.chip.is_some(), no_tegra: context.no_tegra.clone(), lists, unlisted })
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let told = self.is_tegra && root.read(MEMINFO).is_ok_and(|text| text::nvmap_used(&text).is_some());
        let memory = told.then(|| ("gpu_shared_memory", format!("{MEMINFO}: NvMapMemUsed")));
        let clients =
            (self.lists && root.path(CLIENTS).is_file()).then(|| ("gpu_processes", CLIENTS.to_owned()));
        memory.into_iter().chain(clients).collect()
    }

    fn files(&self) -> Vec<File> {
        let clients = self.lists.then(|| File::of_driver(CLIENTS).limited(64 << 10).every(EACH_SECOND));
        clients.into_iter().chain([File::of_kernel(MEMINFO)]).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let none = "no NvMapMemUsed in /proc/meminfo: only JetPack 4 to 6 have it";
        let shared = match answers.text(MEMINFO) {
            _ if !self.is_tegra => {
                Reading::absent(format!("only Tegras count the memory of their GPU apart: {}", self.no_tegra))
            }
            Ok(meminfo) => text::nvmap_used(meminfo).map_or_else(|| Reading::absent(none), Reading::Known),
            Err(error) => error.into(),
        };
        detail!(state.gpu_shared_memory = shared, None);
        if self.lists {
            let clients = answers.value(CLIENTS, "CLIENT PROCESS PID SIZE", text::nvmap_clients);
            detail!(state.gpu_processes = clients, Some(answers.read_at(CLIENTS)));
        }
        if self.unlisted {
            let none = "the driver of this GPU lists processes through NVML alone, which does not answer";
            detail!(state.gpu_processes = Reading::absent(none), None);
        }
    }
}
