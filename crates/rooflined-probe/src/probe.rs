//! What a probe is: something that measures, step by step.

use std::time::Duration;

use rooflined_predict::calibration::{Held, Kernel, Sample, Step};

/// What became of a step.
#[derive(Debug)]
pub enum Outcome {
    Measured(Box<Sample>),
    /// It cannot run here; the reason, for people.
    Skipped(String),
    /// It was stopped before three runs were timed.
    Stopped,
    /// What measures is lost, and nothing else can be measured; the reason, for people.
    Lost(String),
}

/// Something that can measure the steps of a plan.
pub trait Probe {
    /// Measures one step; looks at `stop` between runs.
    fn measure(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Outcome;

    /// Runs the kernel of a step again and again for `length`, warm before it begins; looks at `stop` between runs.
    ///
    /// # Errors
    /// It cannot run; the reason, for people.
    fn hold(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, String> {
        let _ = (length, stop);
        Err(format!("this probe cannot hold {}", step.kernel.describe()))
    }

    /// Whether what has been measured since says that something spoilt a sample.
    fn in_doubt(&mut self, _sample: &Sample) -> bool {
        false
    }

    /// Whether it comes last, because it may cost the device.
    fn stands_apart(&self, kernel: &Kernel) -> bool {
        let _ = kernel;
        false
    }

    /// Why nothing can be measured any more, or nothing was; `None` while something can.
    fn lost(&self) -> Option<&str> {
        None
    }
}
