//! Usable memory: that of the machine, or what a control group leaves of it.

use crate::answers::File;
use crate::cgroup::{self, MemoryLevel};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::{Memory, parse};
use rooflined_core::units::Bytes;

pub(crate) const MEMINFO: &str = "/proc/meminfo";

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.root.path(MEMINFO).is_file() {
        plan.add_origin("memory", MEMINFO);
    }
    plan.read([File::of_kernel(MEMINFO)]);
    let levels = context.limits.memory.clone();
    for level in &levels {
        for limit in &level.limits {
            plan.add_origin("memory", limit);
        }
        plan.read(level.limits.iter().chain([&level.usage, &level.stat]).map(File::of_kernel));
    }
    found(move |answers, state| {
        let memory = answers.value(MEMINFO, "MemTotal", parse::meminfo);
        let text = |path: &String| answers.text(path).ok().map(str::to_owned);
        state.set(|state| &mut state.memory, memory.map(|memory| limited(&levels, memory, text)));
    })
}

/// What of the machine's memory every level leaves to this process.
pub(crate) fn limited(
    levels: &[MemoryLevel],
    mut memory: Memory,
    text: impl Fn(&String) -> Option<String>,
) -> Memory {
    for level in levels {
        let texts: Vec<String> = level.limits.iter().filter_map(&text).collect();
        let own = cgroup::limit(texts.iter().map(String::as_str));
        let stat = text(&level.stat).unwrap_or_default();
        let Some(limit) = own.into_iter().chain(cgroup::limit_above(&stat)).min() else { continue };
        let used = text(&level.usage).and_then(|text| parse::unsigned(&text)).unwrap_or(0);
        let reclaimable = cgroup::reclaimable(&stat);
        let bytes = |count: u64| Bytes(count as f64);
        memory.total = memory.total.min(bytes(limit));
        memory.free = memory.free.min(bytes(limit.saturating_sub(used)));
        let left = limit.saturating_sub(used.saturating_sub(reclaimable));
        memory.available = memory.available.min(bytes(left));
    }
    memory
}
