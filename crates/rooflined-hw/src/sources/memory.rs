//! Usable memory: that of the machine, or what a control group leaves of it.

use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::cgroup::{self, MemoryLevel};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::{Memory, parse};
use rooflined_core::units::Bytes;

pub(crate) const MEMINFO: &str = "/proc/meminfo";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemInfo {
    levels: Vec<MemoryLevel>,
}

impl Source for MemInfo {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        Some(Self { levels: context.limits.memory.clone() })
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let exists = root.path(MEMINFO).is_file().then(|| MEMINFO.to_owned());
        let limits = self.levels.iter().flat_map(|level| &level.limits).cloned();
        exists.into_iter().chain(limits).map(|file| ("memory", file)).collect()
    }

    fn files(&self) -> Vec<File> {
        let levels =
            self.levels.iter().flat_map(|level| level.limits.iter().chain([&level.usage, &level.stat]));
        std::iter::once(File::of_kernel(MEMINFO)).chain(levels.map(File::of_kernel)).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let memory = answers.value(MEMINFO, "MemTotal", parse::meminfo);
        state.set(
            |state| &mut state.memory,
            memory.map(|memory| {
                let text = |path: &String| answers.text(path).ok();
                limited(&self.levels, memory, |path| text(path).map(str::to_owned))
            }),
        );
    }
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
