//! The bounds that a power mode sets on clocks, of every engine that its file names.

use super::PowerMode;
use crate::units::Hertz;

/// Bounds on one clock. `None` where the mode sets none.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockBounds {
    /// Parameter of the file: `GPU`, `DLA0_CORE`, `CPU_A78_0`, …
    pub name: String,
    pub min: Option<Hertz>,
    pub max: Option<Hertz>,
}

/// Beyond this it is the largest number of some type, which stands for no cap.
const HIGHEST: f64 = 2e10;

impl ClockBounds {
    /// Whether the clock is that of CPUs.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        is_cpu(&self.name)
    }
}

fn is_cpu(param: &str) -> bool {
    param == "CPU" || param.starts_with("CPU_")
}

impl PowerMode {
    /// The lowest clock that the governor may choose: of the CPUs the lowest of the clusters.
    #[must_use]
    pub fn min_clock(&self, of: impl Fn(&ClockBounds) -> bool) -> Option<Hertz> {
        self.clock_bounds().iter().filter(|clock| of(clock)).filter_map(|clock| clock.min).reduce(Hertz::min)
    }

    /// The clocks that have no field of their own: neither CPUs nor GPU nor memory.
    #[must_use]
    pub fn other_clocks(&self) -> Vec<ClockBounds> {
        let own = |clock: &ClockBounds| clock.is_cpu() || clock.name == "GPU" || clock.name == "EMC";
        self.clock_bounds().into_iter().filter(|clock| !own(clock)).collect()
    }

    /// The bounds on each clock that the mode names, in the order of the file.
    #[must_use]
    pub fn clock_bounds(&self) -> Vec<ClockBounds> {
        let mut all: Vec<ClockBounds> = Vec::new();
        for setting in &self.settings {
            let is_max = match setting.arg.trim_end_matches("_KNEXT") {
                "MAX_FREQ" => true,
                "MIN_FREQ" => false,
                _ => continue,
            };
            let index = match all.iter().position(|bounds| bounds.name == setting.param) {
                Some(index) => index,
                None => {
                    all.push(ClockBounds { name: setting.param.clone(), min: None, max: None });
                    all.len() - 1
                }
            };
            let clock = clock(&setting.param, &setting.value);
            if is_max { all[index].max = clock } else { all[index].min = clock }
        }
        all
    }
}

/// 0, -1 and the largest number of a type are no bound.
fn clock(param: &str, value: &str) -> Option<Hertz> {
    // cpufreq counts in kHz, devfreq and the clocks of the firmware in Hz.
    let scale = if is_cpu(param) { 1e3 } else { 1.0 };
    let number = value
        .trim()
        .parse::<i128>()
        .ok()
        .filter(|number| *number > 0 && ![i128::from(i32::MAX), i128::from(u32::MAX)].contains(number))?;
    let hertz = number as f64 * scale;
    (hertz <= HIGHEST).then_some(Hertz(hertz))
}

#[cfg(test)]
mod tests {
    use crate::board::nvpmodel;
    use crate::units::Hertz;

    #[test]
    fn every_clock_that_a_mode_names_has_its_bounds() {
        let text = "< PARAM TYPE=CLOCK NAME=CPU_A78_0 >\nMAX_FREQ /c/max\nMIN_FREQ /c/min\n\
                    < PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ /g/max\nMIN_FREQ /g/min\n\
                    < PARAM TYPE=CLOCK NAME=DLA0_CORE >\nMAX_FREQ /d\n\
                    < PARAM TYPE=CLOCK NAME=PVA0_VPS >\nMAX_FREQ /p\n\
                    < POWER_MODEL ID=0 NAME=A >\nCPU_A78_0 MIN_FREQ 729600\nCPU_A78_0 MAX_FREQ 2147483647\n\
                    GPU MIN_FREQ 0\nGPU MAX_FREQ 918000000\nDLA0_CORE MAX_FREQ 614400000\nPVA0_VPS MAX_FREQ -1\n\
                    < PM_CONFIG DEFAULT=0 >\n";
        let modes = nvpmodel::parse(text);
        let bounds = modes.modes[0].clock_bounds();
        let found: Vec<_> = bounds.iter().map(|clock| (clock.name.as_str(), clock.min, clock.max)).collect();
        let expected = [
            ("CPU_A78_0", Some(Hertz(729.6e6)), None),
            ("GPU", None, Some(Hertz(918e6))),
            ("DLA0_CORE", None, Some(Hertz(614.4e6))),
            ("PVA0_VPS", None, None),
        ];
        assert_eq!(found, expected);
    }
}
