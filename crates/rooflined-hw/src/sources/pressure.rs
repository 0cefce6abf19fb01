//! Pressure-stall information.

use crate::ReadError;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::{Pressure, Reading, parse};

const MEMORY: &str = "/proc/pressure/memory";
const CPU: &str = "/proc/pressure/cpu";

/// Both files of /proc/pressure that count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stall;

impl Source for Stall {
    fn discover(_: &DiscoveryContext<'_>) -> Option<Self> {
        Some(Self)
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let exists = root.path(MEMORY).is_file();
        exists.then(|| ("pressure", format!("{MEMORY}, {CPU}"))).into_iter().collect()
    }

    fn files(&self) -> Vec<File> {
        [MEMORY, CPU].map(File::of_kernel).into()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        state.set(|state| &mut state.pressure, pressure(answers));
    }
}

fn pressure(answers: &Answers<'_>) -> Reading<Pressure> {
    if let Err(error @ (ReadError::Missing { .. } | ReadError::Unsupported { .. })) = answers.text(MEMORY) {
        return Reading::absent(format!("{error}: the kernel was built without PSI or started with psi=0"));
    }
    let cpu = answers.text(CPU).ok();
    answers.value(MEMORY, "a line `some avg10=…`", |text| parse::pressure(text, cpu))
}
