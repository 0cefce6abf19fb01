//! Pressure-stall information.

use crate::ReadError;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::{Pressure, Reading, parse};

const MEMORY: &str = "/proc/pressure/memory";
const CPU: &str = "/proc/pressure/cpu";

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.root.path(MEMORY).is_file() {
        plan.add_origin("pressure", format!("{MEMORY}, {CPU}"));
    }
    plan.read([MEMORY, CPU].map(File::of_kernel));
    found(|answers, state| state.set(|state| &mut state.pressure, pressure(answers)))
}

fn pressure(answers: &Answers<'_>) -> Reading<Pressure> {
    if let Err(error @ (ReadError::Missing { .. } | ReadError::Unsupported { .. })) = answers.text(MEMORY) {
        return Reading::absent(format!("{error}: the kernel was built without PSI or started with psi=0"));
    }
    let cpu = answers.text(CPU).ok();
    answers.value(MEMORY, "a line `some avg10=…`", |text| parse::pressure(text, cpu))
}
