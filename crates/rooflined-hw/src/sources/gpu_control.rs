//! How the clock and the power of a Tegra's GPU are governed.
//!
//! ```text
//! <devfreq>/  governor  min_freq (Hz)
//! gpu.0/      railgate_enable  railgate_delay (ms)  is_railgated  gpu_powered_on  enable_3d_scaling
//!             golden_img_status  power/control  power/runtime_status
//! ```
//!
//! `tpc_fs_mask` lies beside them and is never read: that powers the GPU on.

use super::tegra_gpu::bases;
use crate::answers::{Answers, EACH_SECOND, File, SOMETIMES};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::GpuControl;
use rooflined_core::board::{Reading, parse, parse::details as text};
use rooflined_core::units::Seconds;

/// What is beside the GPU's load.
const CHANGING: [&str; 3] = ["is_railgated", "gpu_powered_on", "power/runtime_status"];
const SETTINGS: [&str; 5] =
    ["railgate_enable", "railgate_delay", "enable_3d_scaling", "golden_img_status", "power/control"];

struct GpuPower {
    /// Files found, by name.
    found: Vec<(&'static str, String)>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let none = match (context.chip, &context.gpu) {
        (None, _) => format!("how a GPU's clock is governed is read on Tegras only: {}", context.no_tegra),
        _ => "no devfreq device of a GPU in /sys/class/devfreq, so nothing shows how its clock is governed"
            .into(),
    };
    let (Some(_), Some(gpu)) = (context.chip, &context.gpu) else {
        return found(move |_, state| detail!(state.gpu_control = Reading::absent(&none), None));
    };
    let bases = bases(context.root, Some(&gpu.dir));
    let first = |file: &'static str| {
        let mut paths = bases.iter().map(|base| format!("{base}/{file}"));
        Some((file, paths.find(|path| context.has(path))?))
    };
    let source = GpuPower { found: CHANGING.into_iter().chain(SETTINGS).filter_map(first).collect() };
    let (governor, min_clock) = (format!("{}/governor", gpu.dir), format!("{}/min_freq", gpu.dir));
    plan.add_origin("gpu_control", &gpu.dir);
    plan.read([File::of_driver(&governor).every(SOMETIMES), File::of_driver(&min_clock).every(EACH_SECOND)]);
    for (name, path) in &source.found {
        plan.add_origin("gpu_control", path.trim_end_matches(name).trim_end_matches('/'));
        let every = if CHANGING.contains(name) { EACH_SECOND } else { SOMETIMES };
        plan.read([File::of_driver(path).every(every)]);
    }
    found(move |answers, state| {
        let control = GpuControl {
            governor: answers.value(&governor, "a governor", text::word),
            min_clock: answers.value(&min_clock, "a clock in Hz", parse::hertz),
            railgate_enabled: source.value(answers, "railgate_enable", "0 or 1", text::switch),
            railgate_delay: source.value(answers, "railgate_delay", "milliseconds", milliseconds),
            railgated: source.railgated(answers),
            power_control: source.value(answers, "power/control", "auto or on", text::word),
            scaling_3d: source.value(answers, "enable_3d_scaling", "0 or 1", text::switch),
            mask_fixed: source.value(answers, "golden_img_status", "0 or 1", text::switch),
        };
        detail!(state.gpu_control = Reading::Known(control), Some(answers.read_at(&min_clock)));
    })
}

impl GpuPower {
    fn value<T>(
        &self,
        answers: &Answers<'_>,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Reading<T> {
        match self.found.iter().find(|(found, _)| *found == name) {
            Some((_, path)) => answers.value(path, expected, parse),
            None => Reading::absent(format!("no {name} next to this GPU")),
        }
    }

    /// Whether the GPU is off: by the rail, by its power, or by what the kernel's power management says.
    fn railgated(&self, answers: &Answers<'_>) -> Reading<bool> {
        let rail = self.value(answers, "is_railgated", "yes or no", yes);
        let power = || self.value(answers, "gpu_powered_on", "0 or 1", text::switch).map(|on| !on);
        let status = || {
            let suspended = |text: &str| match text.trim() {
                "suspended" => Some(true),
                "active" | "resuming" | "suspending" => Some(false),
                _ => None,
            };
            self.value(answers, "power/runtime_status", "active or suspended", suspended)
        };
        let known = [power(), status()].into_iter().find(|reading| reading.known().is_some());
        match (rail, known) {
            (rail @ Reading::Known(_), _) => rail,
            (_, Some(known)) => known,
            (rail, None) => rail,
        }
    }
}

fn yes(text: &str) -> Option<bool> {
    match text.trim() {
        "yes" | "1" => Some(true),
        "no" | "0" => Some(false),
        _ => None,
    }
}

fn milliseconds(text: &str) -> Option<Seconds> {
    parse::unsigned(text).filter(|ms| *ms <= 86_400_000).map(|ms| Seconds(ms as f64 / 1e3))
}
