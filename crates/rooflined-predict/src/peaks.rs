//! How fast a machine computes in each precision, for those who ask once and those who ask again and again.

use rooflined_core::ceilings::{Ceiling, Roofline};
use rooflined_core::precision::Precision;
use rooflined_core::units::FlopsPerSecond;

/// How fast a machine computes in a precision; `None` where it has no unit for it.
pub(super) trait Peaks {
    fn peak(&self, precision: Precision) -> Option<Ceiling<FlopsPerSecond>>;
}

impl Peaks for Roofline {
    fn peak(&self, precision: Precision) -> Option<Ceiling<FlopsPerSecond>> {
        self.compute(precision)
    }
}

/// The peaks of a roofline for those who ask for them again and again.
#[derive(Debug)]
pub(super) struct PeakTable([Option<Ceiling<FlopsPerSecond>>; Precision::ALL.len()]);

impl PeakTable {
    pub(super) fn of(roofline: &Roofline) -> Self {
        let mut peaks = [None; Precision::ALL.len()];
        for (precision, peak) in &roofline.compute {
            peaks[*precision as usize] = Some(*peak);
        }
        Self(peaks)
    }
}

impl Peaks for PeakTable {
    fn peak(&self, precision: Precision) -> Option<Ceiling<FlopsPerSecond>> {
        self.0[precision as usize]
    }
}
