//! What a GPU's driver says of it beside what its data sheet says.

use rooflined_core::hardware::Hardware;
use rooflined_core::units::Bytes;
use rooflined_predict::calibration::DriverFacts;

/// Clocks are quoted with different roundings, and a boost clock is that of one board of many.
const CLOCK_TOLERANCE: f64 = 0.1;
/// Caches are quoted in powers of two and of ten.
const CACHE_TOLERANCE: f64 = 0.05;

/// What the two say differently, as a sentence. A value that the driver leaves out does not count as one.
pub(super) fn differences(facts: &DriverFacts, hardware: &Hardware, sm_online: Option<u32>) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |what: &str| format!("the GPU's driver reports {what}");
    let sm = sm_online.unwrap_or(hardware.sm);
    if facts.sm_count != 0 && facts.sm_count != sm {
        let expected = if sm_online.is_some() { "the power mode leaves" } else { "the data sheet has" };
        notes.push(format!(
            "{} SMs, {expected} {sm}: samples hold for those",
            of(&facts.sm_count.to_string())
        ));
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes of a cache")]
    let l2 = Bytes(facts.l2_bytes as f64);
    if let Some(nominal) = hardware.l2.filter(|_| facts.l2_bytes != 0)
        && (l2 / nominal - 1.0).abs() > CACHE_TOLERANCE
    {
        let what = format!("{l2} of second-level cache");
        notes.push(format!("{}, the data sheet of {nominal}: buffers follow the larger", of(&what)));
    }
    if facts.bus_bits != 0 && hardware.bus_bits != 0 && facts.bus_bits != hardware.bus_bits {
        let what = format!("a memory interface of {} bits", facts.bus_bits);
        notes.push(format!(
            "{}, the data sheet of {}: bandwidth is the measured one",
            of(&what),
            hardware.bus_bits
        ));
    }
    let clock = facts.sm_clock;
    if clock.is_positive()
        && hardware.gpu_clock.is_positive()
        && (clock / hardware.gpu_clock - 1.0).abs() > CLOCK_TOLERANCE
    {
        let what = format!("SMs of {clock} at most");
        notes.push(format!("{}, the data sheet of {}", of(&what), hardware.gpu_clock));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::known;
    use rooflined_core::units::Hertz;

    #[test]
    fn a_driver_that_agrees_or_says_nothing_gives_no_note_and_one_that_differs_names_each_figure() {
        let h200 = known().get("h200").unwrap();
        assert_eq!(differences(&DriverFacts::default(), h200, None), [""; 0]);
        let told = DriverFacts {
            sm_count: h200.sm,
            l2_bytes: h200.l2.map_or(0, |l2| l2.get() as u64),
            bus_bits: h200.bus_bits,
            sm_clock: h200.gpu_clock,
        };
        assert_eq!(differences(&told, h200, None), [""; 0]);
        assert_eq!(differences(&told, h200, Some(h200.sm)), [""; 0]);
        let other = DriverFacts { sm_count: 66, l2_bytes: 63 << 20, bus_bits: 5120, sm_clock: Hertz(1.2e9) };
        let notes = differences(&other, h200, None);
        assert_eq!(notes.len(), 4, "{notes:?}");
        for (note, figure) in notes.iter().zip(["66 SMs", "66.1 MB", "5120 bits", "1.20 GHz"]) {
            assert!(note.contains(figure), "{figure} in {note}");
        }
        // A mode that gates SMs is what the driver counts by.
        assert!(differences(&told, h200, Some(64))[0].contains("the power mode leaves 64"));
    }
}
