//! Power while something runs, and the energy that it takes.
//!
//! ```text
//! E = P0 x t + eB x bytes + eF x work + eW x dequantized weights        P = E / t        t >= (E - P0 t) / (Pcap - P0)
//! P0 = idle(size, memory clock, cores x V^2) + busy cores x f x V^2      eF, eW ~ V^2      V(f) = max(floor, 1 - s (1 - f / f_top))
//! ```
//!
//! Energies add where times overlap. The coefficients hold for one family of silicon and one set of rails, and are
//! non-negative: a byte that is moved never saves energy. They are continuous in every clock and in the number of cores, and
//! grow with both; a power mode is nothing but its clocks and units, and the watts in its name count for nothing.
//!
//! More sequences draw no less than fewer ([`rising`](Rising)): past the ridge the sum alone would say so.
//!
//! Cores have a ceiling of their own: busy all the time they draw what they drew in the busiest run that was measured, by the
//! cycle, whether or not a better kernel does more meanwhile. The whole has the limit of the
//! module: where the energy that is certain exceeds it, the clock comes down and the time goes up.
//!
//! `config/power/*.toml` holds what published measurements say of a family; `rooflined-lab fit-power` writes these files.
//! Boards of no family get those of their relatives ([`power_of`]).

mod family;
mod label;
mod rising;
mod table;

pub use family::{JETSON_VOLTAGE, KIN, is_gb10, power_of, size};
pub use label::label_watts;
pub use rising::{Rising, rungs};
pub use table::{
    CARRIED_GUESS, Energies, ErrorsOf, FILES, Factors, InvalidPower, Place, PowerFile, Reference,
};

use serde::Serialize;

use super::peaks::Peaks;
use super::{Estimate, Limit};
use rooflined_core::ceilings::Roofline;
use rooflined_core::keyed;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, Flops, Joules, Seconds, Watts};

keyed! {
    /// What a meter covers. Figures of different rails are never compared, added or carried from one to the other.
    Rails {
        /// Jetson Orin Nano and NX: CPU, GPU and CV cores behind one regulator, without memory and input losses. Published rows of it
        /// are converted to the module before anything is fitted.
        VddCpuGpuCv = "vdd_cpu_gpu_cv",
        /// The whole module: VDD_IN, or the sum of the input rails of an AGX Orin.
        Module = "module",
        /// Module and carrier board.
        System = "system",
        /// What NVML calls the power of the GPU.
        Gpu = "gpu",
        /// CPU package (RAPL).
        Package = "package",
    }
}

impl Rails {
    /// What they cover, as answers say it.
    #[must_use]
    pub const fn scope(self) -> &'static str {
        match self {
            Self::VddCpuGpuCv => "rail:vdd_cpu_gpu_cv",
            Self::Module => "module",
            Self::System => "total_input",
            Self::Gpu => "gpu",
            Self::Package => "rail:package",
        }
    }

    /// The rails of that name; `None` for another.
    #[must_use]
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rails| rails.key() == key)
    }
}

/// A scope as people read it: `module`, `total input`, `package rail`.
#[must_use]
pub fn scope_words(scope: &str) -> String {
    match scope.strip_prefix("rail:") {
        Some(rail) => format!("{rail} rail"),
        None => scope.replace('_', " "),
    }
}

keyed! {
    /// Where coefficients come from.
    PowerSource {
        /// Measured on this machine.
        Measured = "measured",
        /// Published measurements of another machine of the same kind.
        Prior = "prior",
    }
}

/// What costs energy beside time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activity {
    /// Bytes to and from main memory.
    pub traffic: Bytes,
    /// Operations by what they are computed in.
    pub work: Vec<(Precision, Flops)>,
    /// Weights whose storage the cores have to dequantize; plain ones of 16 bits and more do not count.
    pub dequantized: f64,
}

impl Activity {
    /// Adds `times` times `work` in `precision`.
    pub fn add_work(&mut self, precision: Precision, work: Flops) {
        match self.work.iter_mut().find(|(known, _)| *known == precision) {
            Some((_, sum)) => *sum += work,
            None => self.work.push((precision, work)),
        }
    }

    /// Adds another `times` times.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.traffic += other.traffic * times;
        self.dequantized += other.dequantized * times;
        for &(precision, work) in &other.work {
            self.add_work(precision, work * times);
        }
    }

    #[must_use]
    pub fn all_work(&self) -> Flops {
        self.work.iter().map(|(_, work)| *work).sum()
    }
}

/// Non-negative coefficients at one operating point.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Coefficients {
    /// What the machine draws with nothing running, in watts: the least that any run draws.
    pub idle_w: f64,
    /// P0, in watts: that, and what cores draw while a kernel runs.
    pub static_w: f64,
    /// eB, in joules for a byte.
    pub byte_j: f64,
    /// eF, in joules for an operation; `None` where nothing tells it apart from the rest.
    pub flop_j: Option<f64>,
    /// eW, in joules for a weight that is dequantized.
    pub weight_j: f64,
    /// Most that operations and weights took in the busiest run that was measured, in watts; `None` where no run was bound by
    /// them.
    pub busy_w: Option<f64>,
}

/// What power costs at one operating point of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerCosts {
    /// What the meter covered.
    pub rails: Rails,
    pub source: PowerSource,
    pub coefficients: Coefficients,
    /// What the work was computed in when eF was measured.
    pub flop_precision: Precision,
    /// Relative half-width of the 90 % interval.
    pub half_width_ratio: f64,
    /// The limit that holds for what the meter covers; `None` where none is known.
    pub cap: Option<Watts>,
    /// Whose limit that is.
    pub cap_of: String,
    /// They were measured at other operating points, or on other boards.
    pub carried: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Power and energy of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Power {
    /// Mean power while it runs.
    pub watts: Estimate<Watts>,
    /// Energy of the whole run.
    pub energy: Estimate<Joules>,
    /// What the machine draws at the same point with nothing running.
    pub idle: Watts,
    /// What the meter covers.
    pub from: Rails,
    pub source: PowerSource,
}

/// Part of the compute peak up to which work of unknown energy is left out: it hides behind what the weights take.
const NEGLIGIBLE_WORK: f64 = 0.1;

/// Energy beside the static part, in joules, with what is not known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Dynamic {
    /// Of bytes.
    base: f64,
    /// Of operations and weights, before the ceiling of busy cores.
    value: f64,
    low: f64,
    high: f64,
}

/// The same of a run whose time is known.
#[derive(Debug, Clone, Copy)]
struct Spent {
    value: f64,
    low: f64,
    high: f64,
}

impl Spent {
    /// Relative half-width that comes from not knowing what an operation takes in another unit, or in a kernel that keeps
    /// its unit busier than any that was measured.
    fn unknown(&self, standing: f64) -> f64 {
        if self.low < self.high { ((standing + self.high) / (standing + self.low)).sqrt() - 1.0 } else { 0.0 }
    }
}

impl PowerCosts {
    /// Energy beside the static part; `None` where the energy of an operation is unknown and matters.
    fn dynamic(&self, activity: &Activity, peaks: &impl Peaks, time: Seconds) -> Option<Dynamic> {
        let of = &self.coefficients;
        let base = of.byte_j * activity.traffic.get();
        let weights = of.weight_j * activity.dequantized;
        let mut sum = Dynamic { base, value: weights, low: weights, high: weights };
        for &(precision, work) in &activity.work {
            let Some(flop_j) = of.flop_j else {
                let peak = peaks.peak(precision)?.value;
                if Self::matters(work / peak, time) {
                    return None;
                }
                continue;
            };
            let (low, high) = self.flop_range(flop_j, precision, peaks)?;
            sum.value += (low * high).sqrt() * work.get();
            sum.low += low * work.get();
            sum.high += high * work.get();
        }
        Some(sum)
    }

    /// Most that cores draw for what they do; infinite where nothing tells.
    fn busy_w(&self) -> f64 {
        self.coefficients.busy_w.unwrap_or(f64::INFINITY)
    }

    fn spent(&self, dynamic: &Dynamic, seconds: f64) -> Spent {
        let most = self.busy_w() * seconds;
        Spent {
            value: dynamic.base + dynamic.value.min(most),
            low: dynamic.base + dynamic.low.min(most),
            high: dynamic.base + dynamic.high,
        }
    }

    /// Whether work that takes this long at its peak says anything of the energy of a run of `time`.
    fn matters(work: Seconds, time: Seconds) -> bool {
        work > time * NEGLIGIBLE_WORK
    }

    /// Energy of one operation. A unit that does more operations in a cycle takes between as much for each, and as much
    /// for each cycle, as the one that was measured.
    fn flop_range(&self, flop_j: f64, precision: Precision, peaks: &impl Peaks) -> Option<(f64, f64)> {
        if precision == self.flop_precision {
            return Some((flop_j, flop_j));
        }
        let known = peaks.peak(self.flop_precision)?.value;
        let by_cycle = flop_j * (known / peaks.peak(precision)?.value);
        Some((flop_j.min(by_cycle), flop_j.max(by_cycle)))
    }

    /// The least time in seconds that the power limit allows for the energy that is certain, which is that of the low end of
    /// the interval; 0 without a limit.
    fn least_seconds(&self, base: f64, low: f64) -> f64 {
        let certain = self.cap.map_or(f64::INFINITY, Watts::get) * (1.0 + self.half_width_ratio);
        let spare = certain - self.coefficients.static_w;
        if spare <= 0.0 {
            return 0.0;
        }
        let whole = (base + low) * (1.0 / spare);
        // Bytes alone, beside cores that are busy.
        let beside_busy_cores = spare - self.busy_w();
        if beside_busy_cores > 0.0 { whole.min(base * (1.0 / beside_busy_cores)) } else { whole }
    }

    /// The same of an activity; `None` without a limit, or where its energy is unknown.
    #[must_use]
    pub fn least_time(&self, activity: &Activity, roofline: &Roofline) -> Option<Seconds> {
        self.cap?;
        let dynamic = self.dynamic(activity, roofline, Seconds(f64::INFINITY))?;
        Some(Seconds(self.least_seconds(dynamic.base, dynamic.low)))
    }

    /// The time with the power limit as a further ceiling, and that ceiling where it binds.
    #[must_use]
    pub fn capped(
        &self,
        activity: &Activity,
        roofline: &Roofline,
        time: Estimate<Seconds>,
    ) -> (Estimate<Seconds>, Option<Limit>) {
        let Some(least) = self.least_time(activity, roofline).filter(|least| *least > time.value) else {
            return (time, None);
        };
        let slower = least / time.value;
        let low = time.low.max(least / (1.0 + self.half_width_ratio));
        let capped = Estimate { value: least, low: low.min(least), high: time.high * slower };
        (capped, Some(Limit::PowerCap))
    }

    /// `power` of the same run with these watts as its mean and their upper end, in the same time.
    #[must_use]
    pub fn at(&self, power: Power, [watts, high]: [Watts; 2]) -> Power {
        let ratio = watts / power.watts.value;
        let low = Watts(self.capped_watts(power.watts.low.get() * ratio));
        // Middle and upper end are not multiplied: rounding would put them in another order.
        let watts = Estimate { value: watts, low, high: high.max(watts) };
        Power { watts, energy: power.energy.map(|energy| energy * ratio), ..power }
    }

    /// Power and energy of a run that takes `time`; `None` where too little is known.
    #[must_use]
    pub fn of(&self, activity: &Activity, roofline: &Roofline, time: Estimate<Seconds>) -> Option<Power> {
        if !time.value.is_positive() || !time.low.is_positive() {
            return None;
        }
        let dynamic = self.dynamic(activity, roofline, time.value)?;
        let (watts, energy) = self.spread_over(&dynamic, time)?;
        Some(Power {
            watts: Estimate { value: Watts(watts.value), low: Watts(watts.low), high: Watts(watts.high) },
            energy: Estimate {
                value: Joules(energy.value),
                low: Joules(energy.low),
                high: Joules(energy.high),
            },
            idle: Watts(self.coefficients.idle_w),
            from: self.rails,
            source: self.source,
        })
    }

    /// Power in watts and energy in joules of a run that takes `time` and this energy beside the static part; `None` where
    /// there is none of either. A run that takes longer draws less and takes more: by the dynamic share of the power, by
    /// the static one of the energy.
    fn spread_over(
        &self,
        dynamic: &Dynamic,
        time: Estimate<Seconds>,
    ) -> Option<(Estimate<f64>, Estimate<f64>)> {
        let seconds = time.value.get();
        let standing = self.coefficients.static_w * seconds;
        let spent = self.spent(dynamic, seconds);
        let total = standing + spent.value;
        if !(total.is_finite() && total > 0.0) {
            return None;
        }
        let slow = (time.high / time.low).sqrt() - 1.0;
        let own = joined(self.half_width_ratio, spent.unknown(standing));
        let share = spent.value / total;
        let watts = spread(total / seconds, joined(own, share * slow)).map(|watts| self.capped_watts(watts));
        let energy = spread(watts.value * seconds, joined(own, (1.0 - share) * slow));
        Some((watts, energy))
    }

    /// No more than the power limit; NaN, which is unknown, stays that.
    #[must_use]
    pub fn capped_watts(&self, watts: f64) -> f64 {
        self.cap.map(Watts::get).filter(|cap| watts > *cap).unwrap_or(watts)
    }

    /// The pessimistic end of what the machine draws at its worst: memory and cores of `roofline` both flat out, as far as
    /// its module lets it. `None` where too little is known.
    #[must_use]
    pub fn worst(&self, roofline: &Roofline) -> Option<Watts> {
        let watts = self.flat_out(roofline)? * (1.0 + self.half_width_ratio);
        Some(Watts(self.capped_watts(watts)))
    }

    /// Watts with memory and cores both flat out.
    fn flat_out(&self, roofline: &Roofline) -> Option<f64> {
        let of = &self.coefficients;
        let bandwidth = roofline.bandwidth.value.get();
        let at_peak = || {
            let peak = roofline.compute(self.flop_precision)?.value.get();
            Some(of.flop_j? * peak)
        };
        // A byte of weights holds a few of them: two of four bits.
        let dequantization = of.weight_j * 2.0 * bandwidth;
        let cores = match of.busy_w {
            Some(busy) => busy,
            None => at_peak()?.max(dequantization),
        };
        Some(of.static_w + of.byte_j * bandwidth + cores)
    }

    /// What is said where the limit acts.
    pub(super) fn cap_words(&self, watts: Watts) -> Option<String> {
        let cap = self.cap.filter(|cap| watts >= *cap)?;
        Some(format!("power is held at {cap} by {}, which lowers the clock", self.cap_of))
    }

    /// What is said beside an answer that rests on them.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = self.warnings.clone();
        if self.source == PowerSource::Prior {
            words.push(format!(
                "power of the {} is estimated from other boards, not measured on this one",
                scope_words(self.rails.scope())
            ));
        }
        words
    }
}

/// Doubts that have nothing to do with each other; `hypot` guards against overflow that ratios do not come near.
#[expect(clippy::imprecise_flops, reason = "hypot costs several times as much")]
fn joined(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

/// A 90 % interval that is symmetric in the logarithm.
fn spread(value: f64, half_width_ratio: f64) -> Estimate<f64> {
    let factor = 1.0 + half_width_ratio;
    Estimate { value, low: value / factor, high: value * factor }
}

#[cfg(test)]
mod tests;
