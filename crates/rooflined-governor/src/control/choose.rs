//! Choice of the power mode that meets given constraints. Pure functions over the modes of the machine.

use rooflined_core::board::PowerMode;
use rooflined_core::hold::HoldConstraints;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Hertz, Watts};
use rooflined_predict::optimize::ModeVerdict;
use rooflined_predict::power::label_watts;
use rooflined_predict::snapshot::{ModeView, WorstPower, WorstSource};

/// A mode with what is known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) mode: &'a PowerMode,
    /// What it would give; `None` where nobody has worked that out.
    pub(super) view: Option<&'a ModeView>,
    /// Highest GPU clock of the machine, for modes that set no cap.
    pub(super) gpu_clock_limit: Option<Hertz>,
}

impl Candidate<'_> {
    /// The most that the mode draws; `None` where nothing is known of it.
    fn worst_power(&self) -> Option<WorstPower> {
        self.view?.worst_power
    }

    /// What it draws was not measured on this machine, in this mode or another.
    pub(super) fn has_estimated_power(&self) -> bool {
        self.worst_power().is_none_or(|worst| worst.source == WorstSource::Prior)
    }

    /// By what modes are put in order: the most that it draws, else its label; `None` where it promises no bound.
    fn power(&self) -> Option<Watts> {
        self.worst_power().map(|worst| worst.watts).or_else(|| label_watts(&self.mode.name))
    }

    fn compute(&self) -> Option<f64> {
        let roofline = &self.view?.roofline;
        let ceiling = roofline.compute(Precision::Fp16).or_else(|| roofline.compute(Precision::Fp32))?;
        Some(ceiling.value.get())
    }

    fn bandwidth(&self) -> Option<f64> {
        Some(self.view?.roofline.bandwidth.value.get())
    }

    fn gpu_clock(&self) -> Option<Hertz> {
        match (self.mode.gpu_max, self.gpu_clock_limit) {
            (Some(cap), Some(limit)) => Some(cap.min(limit)),
            (cap, limit) => cap.or(limit),
        }
    }

    /// No less compute and no less bandwidth than `other`: by the ceilings, else by the caps that make them.
    fn no_less_than(&self, other: &Self) -> bool {
        if self.mode.is(&other.mode.key()) {
            return true;
        }
        let ceilings = |it: &Self| Some((it.compute()?, it.bandwidth()?));
        // Where the CPU is the accelerator its ceilings may be the same in every mode; then the caps tell.
        if let (Some(own), Some(others)) = (ceilings(self), ceilings(other))
            && own != others
        {
            return own.0 >= others.0 && own.1 >= others.1;
        }
        // What is not capped is at its highest.
        let clock = |cap: Option<Hertz>| cap.map_or(f64::INFINITY, Hertz::get);
        let units = |count: Option<u32>| count.map_or(f64::INFINITY, f64::from);
        let caps = |mode: &PowerMode| {
            [
                clock(mode.gpu_max),
                units(mode.sm_online),
                clock(mode.memory_max),
                clock(mode.cpu_max),
                units(mode.cores_online),
            ]
        };
        caps(self.mode).iter().zip(caps(other.mode)).all(|(own, others)| *own >= others)
    }

    /// The first constraint that this mode does not meet, as a sentence; `None` where it meets all. What is not known of a
    /// mode is not met by it.
    pub(super) fn unmet(&self, constraints: &HoldConstraints, all: &[Candidate<'_>]) -> Option<String> {
        let name = &self.mode.name;
        let named = |wanted: &str| find(all, wanted);
        let HoldConstraints { mode, min_mode, max_power, min_gpu_clock, min_bandwidth, min_compute } =
            constraints;
        if let Some(wanted) = mode
            && named(wanted).is_none_or(|wanted| !wanted.mode.is(&self.mode.key()))
        {
            return Some(format!("{name} is not {wanted}"));
        }
        if let Some(wanted) = min_mode
            && named(wanted).is_none_or(|wanted| !self.no_less_than(wanted))
        {
            return Some(format!("{name} gives less than {wanted}"));
        }
        if let Some(limit) = max_power
            && self.worst_power().is_none_or(|worst| worst.watts > *limit)
        {
            return Some(match self.worst_power() {
                Some(WorstPower { watts, source: WorstSource::Measured | WorstSource::Carried }) => {
                    format!("{name} draws up to {watts} by what was measured here, more than {limit}")
                }
                Some(WorstPower { watts, source: WorstSource::Prior }) => format!(
                    "{name} may draw up to {watts}, more than {limit} (estimated from other boards, not measured here)"
                ),
                None => format!("the power of {name} is not known"),
            });
        }
        if let Some(least) = min_gpu_clock
            && self.gpu_clock().is_none_or(|clock| clock < *least)
        {
            return Some(match self.gpu_clock() {
                Some(clock) => format!("{name} caps the GPU at {clock}, below {least}"),
                None => format!("the GPU clock of {name} is not known"),
            });
        }
        let short = |what: &str, has: Option<f64>, least: f64| {
            has.is_none_or(|has| has < least).then(|| match has {
                Some(_) => format!("{name} gives too little {what}"),
                None => format!("the {what} of {name} is not known"),
            })
        };
        min_bandwidth
            .and_then(|least| short("memory bandwidth", self.bandwidth(), least.get()))
            .or_else(|| min_compute.and_then(|least| short("compute", self.compute(), least.get())))
    }
}

/// The mode of that name, upper and lower case alike; failing that, of that number if only one has it.
pub(super) fn find<'a, 'b>(all: &'b [Candidate<'a>], name: &str) -> Option<&'b Candidate<'a>> {
    let name = name.trim();
    let id: Option<u32> = name.parse().ok();
    (all.iter().find(|candidate| candidate.mode.name == name))
        .or_else(|| all.iter().find(|candidate| candidate.mode.name.eq_ignore_ascii_case(name)))
        .or_else(|| {
            let mut numbered = all.iter().filter(|candidate| id == Some(candidate.mode.id));
            numbered.next().filter(|_| numbered.next().is_none())
        })
}

/// A quantity of a mode, summed over the queries that were judged; `None` where it is unknown for one of them.
fn summed(
    mode: &Candidate<'_>,
    judged: &[&[ModeVerdict]],
    quantity: fn(&ModeVerdict) -> Option<f64>,
) -> Option<f64> {
    let of_one = |verdicts: &&[ModeVerdict]| {
        let verdict = verdicts.iter().find(|verdict| mode.mode.is(&verdict.mode))?;
        quantity(verdict).filter(|value| value.is_finite() && *value > 0.0)
    };
    judged.iter().map(of_one).sum()
}

/// Joules for a token of each query.
fn energy(mode: &Candidate<'_>, judged: &[&[ModeVerdict]]) -> Option<f64> {
    summed(mode, judged, |verdict| verdict.energy_j_per_token)
}

/// The part of the energy that the queries need in `from` and do not need in `to`; `None` where either is unknown.
pub(super) fn saving(from: &Candidate<'_>, to: &Candidate<'_>, judged: &[&[ModeVerdict]]) -> Option<f64> {
    if judged.is_empty() {
        return None;
    }
    Some(1.0 - energy(to, judged)? / energy(from, judged)?)
}

/// The one with the least energy of all queries; those of which it is unknown come after, by the power that is predicted
/// of the queries. Then the one with the least power: the most that it draws, else its label; then the one with the least compute x
/// bandwidth; then the first of the file. What is unknown comes last, and so does a mode that promises no bound.
pub(super) fn cheapest<'a, 'b>(
    candidates: &'b [Candidate<'a>],
    judged: &[&[ModeVerdict]],
) -> Option<&'b Candidate<'a>> {
    let key = |mode: &Candidate<'_>| {
        [
            energy(mode, judged),
            summed(mode, judged, |verdict| verdict.power_w),
            mode.power().map(Watts::get),
            mode.compute().zip(mode.bandwidth()).map(|(compute, bandwidth)| compute * bandwidth),
        ]
        .map(|quantity| quantity.unwrap_or(f64::INFINITY))
    };
    let earlier = |a: [f64; 4], b: [f64; 4]| {
        let differing = a.iter().zip(b).map(|(a, b)| a.total_cmp(&b)).find(|order| order.is_ne());
        differing.unwrap_or(std::cmp::Ordering::Equal)
    };
    candidates.iter().min_by(|a, b| earlier(key(a), key(b)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use rooflined_core::board::Knob;
    use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
    use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Seconds};
    use rooflined_predict::{Engine, EngineProfile};

    fn mode(id: u32, name: &str) -> PowerMode {
        PowerMode {
            id,
            name: name.into(),
            cores_online: None,
            cpu_max: None,
            gpu_max: None,
            memory_max: None,
            tpc_mask: None,
            sm_online: None,
            knob: Knob::Nvpmodel,
            settings: Vec::new(),
        }
    }

    fn exact<R: Copy>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }

    fn view(id: u32, name: &str, (bandwidth, peak): (f64, f64), watts: Option<f64>) -> ModeView {
        let roofline = Roofline {
            bandwidth: exact(BytesPerSecond(bandwidth)),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: BTreeMap::from([(Precision::Fp16, exact(FlopsPerSecond(peak)))]),
            launch: exact(Seconds::ZERO),
            ramp: Seconds::ZERO,
            workers: 8,
            clock: None,
        };
        let profile = EngineProfile::unknown(Engine::Bare);
        let measured_power = watts.map(Watts);
        let worst_power =
            watts.map(|watts| WorstPower { watts: Watts(watts * 1.1), source: WorstSource::Measured });
        let mode = mode(id, name);
        ModeView {
            mode,
            roofline,
            profile,
            reboot_required: None,
            unreachable: None,
            measured_power,
            worst_power,
        }
    }

    fn all(views: &[ModeView]) -> Vec<Candidate<'_>> {
        let limit = Some(Hertz(1e9));
        views
            .iter()
            .map(|view| Candidate { mode: &view.mode, view: Some(view), gpu_clock_limit: limit })
            .collect()
    }

    #[test]
    fn the_most_that_was_measured_decides_and_a_label_promises_nothing() {
        // A board in the field draws 16.9 W in the mode that is called 25W.
        let views = [
            view(0, "MAXN", (100e9, 20e12), None),
            view(1, "20W", (80e9, 10e12), None),
            view(2, "25W", (90e9, 9e12), Some(16.9)),
            view(3, "20W slow", (40e9, 10e12), None),
        ];
        let all = all(&views);
        let name = |candidates: &[Candidate<'_>]| cheapest(candidates, &[]).unwrap().mode.name.clone();
        assert_eq!(name(&all), "25W");
        assert_eq!(name(&[all[0], all[1], all[3]]), "20W slow");
        assert_eq!(name(&all[..2]), "20W", "a mode without a bound comes last");
        let met = |watts| -> Vec<bool> {
            let limit = HoldConstraints { max_power: Some(Watts(watts)), ..HoldConstraints::default() };
            all.iter().map(|mode| mode.unmet(&limit, &all).is_none()).collect()
        };
        // The mean of the loads is not the worst of them, and 20 W in a name are no measurement.
        assert_eq!(met(17.0), [false; 4]);
        assert_eq!(met(21.0), [false, false, true, false]);
    }

    #[test]
    fn no_less_means_neither_less_compute_nor_less_bandwidth() {
        let views = [
            view(0, "more of both", (100e9, 20e12), None),
            view(1, "wanted", (80e9, 10e12), None),
            view(2, "more bandwidth only", (90e9, 9e12), None),
            view(3, "more compute only", (70e9, 11e12), None),
        ];
        let all = all(&views);
        let wanted = HoldConstraints { min_mode: Some("wanted".into()), ..HoldConstraints::default() };
        let met: Vec<bool> = all.iter().map(|mode| mode.unmet(&wanted, &all).is_none()).collect();
        assert_eq!(met, [true, true, false, false]);
        let ceilings = HoldConstraints {
            min_bandwidth: Some(BytesPerSecond(75e9)),
            min_compute: Some(FlopsPerSecond(9.5e12)),
            min_gpu_clock: Some(Hertz(1e9)),
            ..HoldConstraints::default()
        };
        let met: Vec<bool> = all.iter().map(|mode| mode.unmet(&ceilings, &all).is_none()).collect();
        assert_eq!(met, [true, true, false, false]);
        let faster = HoldConstraints { min_gpu_clock: Some(Hertz(1.1e9)), ..HoldConstraints::default() };
        assert!(all.iter().all(|mode| mode.unmet(&faster, &all).is_some()), "beyond the chip");
    }
}
