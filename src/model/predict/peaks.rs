//! How fast a machine computes in each precision, for those who ask once and those who ask again and again.

use roofline::ceilings::{Ceiling, Roofline};
use roofline::precision::Precision;
use roofline::units::FlopsPerSecond;

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

    /// The precisions that there are units for, a bit for each.
    pub(super) fn units(&self) -> u32 {
        let known = self.0.iter().enumerate().filter(|(_, peak)| peak.is_some());
        known.fold(0, |units, (precision, _)| units | 1 << precision)
    }
}

impl Peaks for PeakTable {
    fn peak(&self, precision: Precision) -> Option<Ceiling<FlopsPerSecond>> {
        self.0[precision as usize]
    }
}
