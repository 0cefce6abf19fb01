//! The two clocks, read where an answer begins.

use std::time::{SystemTime, UNIX_EPOCH};

use rooflined_core::units::Seconds;
use rooflined_governor::Now;

#[must_use]
pub fn now() -> Now {
    let boottime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a double counts nanoseconds exactly for 104 days, and microseconds for ever"
    )]
    let boottime = Seconds(boottime.tv_sec as f64 + boottime.tv_nsec as f64 * 1e-9);
    // A clock set before 1970 has no date worth showing.
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    Now { boottime, unix_s }
}
