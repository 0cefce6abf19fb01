//! An operating point as the ceilings of a GPU need it.

use crate::board::OperatingPoint;
use crate::hardware::Hardware;
use crate::units::Hertz;

/// An operating point of a GPU with nothing left open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// SMs online.
    pub sm: u32,
    pub gpu_clock: Hertz,
    /// `None` for a part whose memory has no clock to go by.
    pub memory_clock: Option<Hertz>,
}

impl Point {
    /// What `point` leaves open is the hardware's own highest, and so is a clock of zero.
    pub fn of(point: &OperatingPoint, hardware: &Hardware) -> Self {
        let positive = |clock: Option<Hertz>| clock.filter(|clock| clock.is_positive());
        Self {
            sm: point.sm_online.filter(|sm| *sm > 0).unwrap_or(hardware.sm),
            gpu_clock: positive(point.gpu_clock).unwrap_or(hardware.gpu_clock),
            memory_clock: hardware
                .memory_clock
                .map(|highest| positive(point.memory_clock).unwrap_or(highest)),
        }
    }

    /// Clocks per second of all SMs together.
    pub fn sm_clocks(&self) -> f64 {
        f64::from(self.sm) * self.gpu_clock.get()
    }
}
