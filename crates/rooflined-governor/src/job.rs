//! The running probe child: who asked for it, what it is for, and what it has said so far.

use super::Ticket;
use super::metering::Metering;
use rooflined_core::board::OperatingPoint;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Seconds;
use rooflined_predict::calibration::{Kernel, OtherWork, PlanKind, Sample};

/// The running probe child and what it is for.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) purpose: Purpose,
}

#[derive(Debug)]
pub(super) enum Purpose {
    Calibrate(Box<Calibrating>),
    Measure(Box<Measuring>),
}

impl Purpose {
    /// The power meter beside the probe; `None` where nobody asked for it.
    pub(super) fn metering(&mut self) -> Option<&mut Metering> {
        match self {
            Self::Calibrate(calibrating) => Some(&mut calibrating.metering),
            Self::Measure(measuring) => measuring.metering.as_mut(),
        }
    }
}

/// A calibration under way.
#[derive(Debug)]
pub(super) struct Calibrating {
    pub(super) plan: PlanKind,
    /// Who is answered when it ends.
    pub(super) waiting: Vec<Ticket>,
    pub(super) samples: Vec<Sample>,
    pub(super) skipped: Vec<String>,
    /// Length of the run, and why it was cut short if it was.
    pub(super) finished: Option<(Seconds, Option<String>)>,
    pub(super) cancelled: bool,
    /// What else the machine did when the probe began.
    pub(super) other_work: Option<OtherWork>,
    /// Workers of the plan.
    pub(super) workers: u32,
    /// Where the GPU was when it began; `None` for the CPU.
    pub(super) point: Option<OperatingPoint>,
    pub(super) metering: Metering,
}

/// Who asks for a calibration, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct CalibrationRequest {
    pub(super) ticket: Ticket,
    pub(super) wait: bool,
    pub(super) force: bool,
}

/// A measurement under way.
#[derive(Debug)]
pub(super) struct Measuring {
    pub(super) ticket: Ticket,
    pub(super) work: Vec<((Op, WeightFormat), Kernel)>,
    pub(super) samples: Vec<Sample>,
    pub(super) skipped: Vec<String>,
    /// `Some` once the probe said it was done, with why it was cut short if it was.
    pub(super) finished: Option<Option<String>>,
    /// `None` where power was not asked for.
    pub(super) metering: Option<Metering>,
}

/// Who asks for a measurement, and whether for power too.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasurementRequest {
    pub(super) ticket: Ticket,
    pub(super) power: bool,
}
