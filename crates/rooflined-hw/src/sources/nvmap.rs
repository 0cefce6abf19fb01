//! Memory of a Jetson's GPU, which is the machine's: how much is taken, and by whom.
//!
//! ```text
//! /proc/meminfo                            NvMapMemUsed (kB)                     JetPack 4 to 6
//! /sys/kernel/debug/nvmap/iovmm/clients    CLIENT PROCESS PID SIZE; for root only, Xavier and Orin
//! ```

use super::memory::MEMINFO;
use crate::answers::{EACH_SECOND, File};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{Reading, parse::details as text};

const CLIENTS: &str = "/sys/kernel/debug/nvmap/iovmm/clients";

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let Some(chip) = context.chip else {
        let none = format!("only Tegras count the memory of their GPU apart: {}", context.no_tegra);
        return found(move |_, state| detail!(state.gpu_shared_memory = Reading::absent(&none), None));
    };
    // The chip's driver lists its clients, or nothing else does either.
    let lists = matches!(chip, Chip::Tegra186 | Chip::Tegra194 | Chip::Tegra234);
    let unlisted = !lists && context.nvml.is_none();
    if context.root.read(MEMINFO).is_ok_and(|text| text::nvmap_used(&text).is_some()) {
        plan.add_origin("gpu_shared_memory", format!("{MEMINFO}: NvMapMemUsed"));
    }
    if lists && context.root.path(CLIENTS).is_file() {
        plan.add_origin("gpu_processes", CLIENTS);
    }
    if lists {
        plan.read([File::of_driver(CLIENTS).limited(64 << 10).every(EACH_SECOND)]);
    }
    plan.read([File::of_kernel(MEMINFO)]);
    found(move |answers, state| {
        let none = "no NvMapMemUsed in /proc/meminfo: only JetPack 4 to 6 have it";
        let shared = match answers.text(MEMINFO) {
            Ok(meminfo) => text::nvmap_used(meminfo).map_or_else(|| Reading::absent(none), Reading::Known),
            Err(error) => error.into(),
        };
        detail!(state.gpu_shared_memory = shared, None);
        if lists {
            let clients = answers.value(CLIENTS, "CLIENT PROCESS PID SIZE", text::nvmap_clients);
            detail!(state.gpu_processes = clients, Some(answers.read_at(CLIENTS)));
        }
        if unlisted {
            let none = "the driver of this GPU lists processes through NVML alone, which does not answer";
            detail!(state.gpu_processes = Reading::absent(none), None);
        }
    })
}
