//! Usable memory.

use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::update::Update;
use roofline::board::parse;

pub(crate) const MEMINFO: &str = "/proc/meminfo";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemInfo;

impl Source for MemInfo {
    fn discover(_: &DiscoveryContext<'_>) -> Option<Self> {
        Some(Self)
    }

    fn captured() -> &'static [&'static str] {
        &[MEMINFO]
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let exists = root.path(MEMINFO).is_file();
        exists.then(|| ("memory", MEMINFO.into())).into_iter().collect()
    }

    fn files(&self) -> Vec<File> {
        vec![File::of_kernel(MEMINFO)]
    }

    fn read(&mut self, answers: &Answers<'_>) -> Vec<Update> {
        vec![Update::Memory(answers.value(MEMINFO, "MemTotal", parse::meminfo))]
    }
}
