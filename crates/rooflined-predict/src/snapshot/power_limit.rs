//! Caps that `nvidia-smi` sets on the clock or the power of a card or a GB10, as operating points.
//!
//! A power limit acts through the clock alone: the memory of an RTX 3090 stays at 9501 MHz from 190 to 390 W
//! (github.com/noonghunna/club-3090). So the run under a limit is the same as at the highest clock at which it draws no more.

use std::ops::Range;

use super::{Cap, Snapshot, point_now};
use crate::calibration::Accelerator;
use crate::power::is_gb10;
use crate::{EngineProfile, Prediction};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::units::{Hertz, Watts};

/// Clocks of a card lie this far apart: every clock that `nvidia-smi -q -d SUPPORTED_CLOCKS` lists is a multiple of it.
const STEP_HZ: f64 = 15e6;
/// The lowest of them on most cards since Turing.
const LOWEST_HZ: f64 = 210e6;

/// Clock caps that are proposed lie this far apart, from `LEAST_CLOCK` of the highest clock up. Published sweeps have their least
/// energy at 0.68 to 0.88 of it; below half, the voltage is at its floor and a slower clock only takes longer.
const CAP_STEP_HZ: f64 = 200e6;
const LEAST_CLOCK: f64 = 0.5;
/// Where power is limited, lower ones are looked at too, down to this part: they are slow, but may be all that keeps to the limit.
const LEAST_CLOCK_FOR_POWER: f64 = 0.15;
/// A cap above this part of the highest clock saves too little to be worth a line.
const HIGHEST_CAP: f64 = 0.98;
/// Power limits that are proposed, as parts of what the maker states.
const LIMITS: [f64; 3] = [0.7, 0.8, 0.9];
/// Parts of what the maker states between which drivers take a limit, where the least of a card is not published: 100 to 420 W of the
/// 350 W of an RTX 3090, 200 to 700 W of the 700 W of an H100 (stackhpc/ansible-slurm-appliance, pull request 975).
const SETTABLE: (f64, f64) = (0.28, 1.5);
/// They are multiples of this, rounded up.
const LIMIT_STEP_W: f64 = 5.0;

/// A limit on the power that the clock comes down for.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerLimit {
    pub watts: Watts,
    /// Where the machine runs without it.
    pub point: OperatingPoint,
}

impl PowerLimit {
    /// Clocks that it may lead to, from the lowest; the last is that of the point.
    #[must_use]
    pub fn clocks(&self, snapshot: &Snapshot) -> Vec<Hertz> {
        let top = self.point.gpu_clock.or_else(|| Some(snapshot.hardware.as_deref()?.gpu_clock));
        let Some(top) = top else { return Vec::new() };
        let steps = std::iter::successors(Some(LOWEST_HZ), |clock| Some(clock + STEP_HZ));
        steps.take_while(|clock| *clock < top.get()).map(Hertz).chain([top]).collect()
    }

    /// Ceilings and kernel costs at one of these clocks; `None` where the CPU is the accelerator.
    #[must_use]
    pub fn model_at(&self, snapshot: &Snapshot, clock: Hertz) -> Option<(Roofline, EngineProfile)> {
        snapshot.gpu_at(&OperatingPoint { gpu_clock: Some(clock), ..self.point.clone() })
    }

    /// The place of the highest of `clocks` at which `watts` are no more than the limit; the first where none is, and the
    /// last where they are unknown. Watts never fall when a clock rises.
    ///
    /// # Errors
    /// That of `watts`.
    pub fn highest<E>(
        &self,
        clocks: usize,
        mut watts: impl FnMut(usize) -> Result<Option<f64>, E>,
    ) -> Result<usize, E> {
        let limit = self.watts.get();
        let mut keeps = |place| Ok::<_, E>(watts(place)?.is_none_or(|watts| watts <= limit));
        let last = clocks.saturating_sub(1);
        if keeps(last)? {
            return Ok(last);
        }
        let (mut low, mut high) = (0, last);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if keeps(middle)? { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// The most that a run draws under it, whose power is `watts` and at worst `high`: where it would draw more, the driver of a
    /// card lowers the clock further.
    #[must_use]
    pub fn most(&self, snapshot: &Snapshot, watts: Watts, high: Watts) -> Watts {
        let is_card = snapshot.capped_hardware().is_some_and(|hardware| hardware.kind == Kind::Discrete);
        if is_card && watts <= self.watts && high > self.watts { self.watts } else { high }
    }

    /// The same of a prediction.
    pub(crate) fn hold(&self, snapshot: &Snapshot, prediction: &mut Prediction) {
        if let Some(power) = &mut prediction.power {
            power.watts.high = self.most(snapshot, power.watts.value, power.watts.high);
        }
    }

    /// What `predict` gives at the clock that the limit leads to.
    ///
    /// # Errors
    /// Those of `predict`.
    pub fn keep<E>(
        &self,
        snapshot: &Snapshot,
        mut predict: impl FnMut(Roofline, EngineProfile) -> Result<Prediction, E>,
    ) -> Result<Option<Prediction>, E> {
        let clocks = self.clocks(snapshot);
        let mut at = |place: usize| match self.model_at(snapshot, clocks[place]) {
            Some((roofline, profile)) => predict(roofline, profile).map(Some),
            None => Ok(None),
        };
        if clocks.is_empty() {
            return Ok(None);
        }
        let watts = |of: Option<Prediction>| Some(of?.power?.watts.value.get());
        let place = self.highest(clocks.len(), |place| Ok(watts(at(place)?)))?;
        Ok(at(place)?.map(|mut prediction| {
            self.hold(snapshot, &mut prediction);
            prediction
                .warnings
                .extend(self.words(clocks[place], prediction.power.map(|power| power.watts.value)));
            prediction
        }))
    }

    /// What is said of a run that the limit slows down to `clock`, or that exceeds it at every clock.
    #[must_use]
    pub fn words(&self, clock: Hertz, watts: Option<Watts>) -> Option<String> {
        let limit = self.watts;
        match watts {
            None => Some(format!(
                "nothing is known of the power of this run: the limit of {limit} is not applied"
            )),
            Some(watts) if watts > limit => Some(format!(
                "no clock stays within the power limit of {limit}: at the lowest, {clock}, this run draws {watts}"
            )),
            Some(_) if self.point.gpu_clock == Some(clock) => None,
            Some(_) => Some(format!("the power limit of {limit} holds the clock at {clock}")),
        }
    }
}

impl Snapshot {
    /// What the registry knows of this machine, where `nvidia-smi` caps the clock of its accelerator: of cards and GB10.
    #[must_use]
    pub fn capped_hardware(&self) -> Option<&Hardware> {
        let hardware = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu)?;
        (hardware.kind == Kind::Discrete || is_gb10(hardware)).then_some(hardware)
    }

    /// What the driver of a card takes as a power limit, at least and at most; `None` of anything else.
    #[must_use]
    pub fn settable_limits(&self) -> Option<(Watts, Watts)> {
        let card = self.capped_hardware().filter(|hardware| hardware.kind == Kind::Discrete)?;
        let stated = card.tdp?;
        let part = |part: f64| Watts((stated.get() * part).floor());
        Some((card.min_power_limit.unwrap_or_else(|| part(SETTABLE.0)), part(SETTABLE.1)))
    }

    /// Clock caps below those that are proposed, for a limit on the power that nothing else keeps.
    #[must_use]
    pub fn low_caps(&self) -> Vec<Cap> {
        self.clock_caps(LEAST_CLOCK_FOR_POWER..LEAST_CLOCK)
    }

    /// Caps on the clock between parts of the highest.
    fn clock_caps(&self, parts: Range<f64>) -> Vec<Cap> {
        let Some(hardware) = self.capped_hardware() else { return Vec::new() };
        let top = hardware.gpu_clock.get();
        let steps = std::iter::successors(Some(CAP_STEP_HZ), |clock| Some(clock + CAP_STEP_HZ));
        let within =
            steps.skip_while(|clock| *clock < parts.start * top).take_while(|clock| *clock < parts.end * top);
        within.map(|clock| Cap::Clock(whole(clock / 1e6))).collect()
    }

    /// The power limit that keeps a card of known power within `watts`; `None` where its driver takes no such limit.
    #[must_use]
    pub fn cap_within(&self, watts: Watts) -> Option<Cap> {
        let (least, _) = self.settable_limits()?;
        let is_lower = self.capped_hardware()?.tdp.is_some_and(|stated| watts < stated);
        let is_known = self.power_costs(&self.roofline).is_some();
        (is_known && is_lower && least <= watts).then(|| Cap::Power(whole(watts.get().floor())))
    }

    /// Caps worth a look beside the machine as it is. A GB10 takes no power limit, and where nothing is known of the power
    /// a limit cannot be judged.
    #[must_use]
    pub fn proposed_caps(&self) -> Vec<Cap> {
        let Some(hardware) = self.capped_hardware() else { return Vec::new() };
        let clocks = self.clock_caps(LEAST_CLOCK..HIGHEST_CAP).into_iter();
        let stated = hardware.tdp.zip(self.settable_limits());
        let stated = stated.filter(|_| self.power_costs(&self.roofline).is_some());
        let limits = stated.into_iter().flat_map(|(stated, (least, _))| {
            LIMITS.map(|part| ((stated.get() * part / LIMIT_STEP_W).ceil() * LIMIT_STEP_W).max(least.get()))
        });
        let is_declared = |cap: &Cap| self.modes.iter().any(|view| view.mode.is(&cap.mode()));
        let mut caps: Vec<Cap> = clocks.chain(limits.map(|watts| Cap::Power(whole(watts)))).collect();
        caps.dedup();
        caps.retain(|cap| !is_declared(cap));
        caps
    }

    /// The point that a cap makes of this machine as it is now, and the limit that lowers its clock further.
    #[must_use]
    pub fn point_under(&self, cap: Cap) -> (OperatingPoint, Option<PowerLimit>) {
        let mut point = point_now(&self.board, &self.state, self.hardware.as_deref());
        point.gpu_clock = point.gpu_clock.or_else(|| Some(self.hardware.as_deref()?.gpu_clock));
        match cap {
            Cap::Clock(mhz) => {
                let most = Hertz(f64::from(mhz) * 1e6);
                point.gpu_clock = point.gpu_clock.map_or(Some(most), |clock| Some(clock.min(most)));
                (point, None)
            }
            Cap::Power(watts) => {
                let limit = PowerLimit { watts: Watts(f64::from(watts)), point: point.clone() };
                (point, Some(limit))
            }
        }
    }
}

/// A number of megahertz or watts that is whole already.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clock or a power is positive and small"
)]
const fn whole(value: f64) -> u32 {
    value.round() as u32
}
