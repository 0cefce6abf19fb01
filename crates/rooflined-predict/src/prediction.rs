//! A predicted run: its time with an interval, what limits it, what it rests on, and its power.

use thiserror::Error;

use crate::costs::IntervalSource;
use crate::estimate::{Estimate, Limit, Tier, interval};
use crate::learning::report::Moved;
use crate::power::{Activity, Power, PowerCosts, Rising, rungs};
use rooflined_core::ceilings::{Bound, Provenance, Roofline};
use rooflined_core::operation::{Cost, InvalidOp};
use rooflined_core::precision::Precision;
use rooflined_core::units::{ArithmeticIntensity, Bytes, Flops, Joules, Seconds, Watts};

/// A predicted run: of an operation, of a step, or of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Time with its 90 % interval. Of a model: one step of a decode, a prompt, or a prompt and its whole answer.
    pub time: Estimate<Seconds>,
    /// Tokens (columns) that the run makes, or reads of a prompt, over all sequences.
    pub tokens: f64,
    /// The plain physical bound; never above `time`.
    pub roofline_time: Seconds,
    /// The same at the upper ends of the ceilings: what is faster than this is impossible.
    pub floor: Seconds,
    pub cost: Cost,
    /// Weights whose storage the cores have to dequantize; plain ones of 16 bits and more do not count.
    pub dequantized: f64,
    /// What most of the arithmetic runs in.
    pub compute: Precision,
    pub ridge: ArithmeticIntensity,
    /// Side of the ridge.
    pub bound: Bound,
    /// The ceiling that takes most of the time.
    pub limit: Limit,
    pub tier: Tier,
    /// Weakest provenance among the ceilings used.
    pub provenance: Provenance,
    /// Power and energy of the run; `None` where nothing is known of it, or before [`with_power`](Self::with_power).
    pub power: Option<Power>,
    /// How many reports of measured runs moved it.
    pub moved: Moved,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// What only the run of a model has. Boxed: candidates are predicted by the thousand, and most operations lack it.
    pub model: Option<Box<ModelPart>>,
}

impl Prediction {
    /// Energy for each token of the run; `None` where power is unknown.
    #[must_use]
    pub fn energy_per_token(&self) -> Option<Estimate<Joules>> {
        let energy = self.power?.energy;
        (self.tokens > 0.0).then(|| Estimate {
            value: energy.value / self.tokens,
            low: energy.low / self.tokens,
            high: energy.high / self.tokens,
        })
    }

    /// The same above what the idle machine takes in that time.
    #[must_use]
    pub fn marginal_energy_per_token(&self) -> Option<Estimate<Joules>> {
        let idle = self.power?.idle.get() * self.time.value.get() / self.tokens;
        Some(self.energy_per_token()?.map(|energy| Joules((energy.get() - idle).max(0.0))))
    }

    /// Until the first token of an answer; `None` for a decode and for an operation.
    #[must_use]
    pub fn time_to_first_token(&self) -> Option<Estimate<Seconds>> {
        self.model.as_ref()?.time_to_first_token
    }

    /// Of one token after the first of every sequence; `None` for a prompt and for an operation.
    #[must_use]
    pub fn time_per_token(&self) -> Option<Estimate<Seconds>> {
        self.model.as_ref()?.time_per_token
    }

    /// Upper over middle of the interval of the time.
    #[must_use]
    pub fn time_slack(&self) -> f64 {
        self.time.high / self.time.value
    }

    /// The same of the energy; NaN where it is unknown.
    #[must_use]
    pub fn energy_slack(&self) -> f64 {
        self.power.map_or(f64::NAN, |power| power.energy.high / power.energy.value)
    }

    /// The same of the energy above idle.
    #[must_use]
    pub fn marginal_energy_slack(&self) -> f64 {
        self.marginal_energy_per_token().map_or(f64::NAN, |energy| energy.high / energy.value)
    }

    /// The same of the power.
    #[must_use]
    pub fn power_slack(&self) -> f64 {
        self.power.map_or(f64::NAN, |power| power.watts.high / power.watts.value)
    }

    /// What costs energy beside time.
    fn activity(&self) -> Activity {
        let work = match &self.model {
            Some(model) => model.work.clone(),
            None => vec![(self.compute, self.cost.work)],
        };
        Activity { traffic: self.cost.traffic, work, dequantized: self.dequantized }
    }

    /// What the run draws, whatever smaller batches do.
    #[cfg(test)]
    pub(crate) fn watts_alone(&self, costs: &PowerCosts, roofline: &Roofline) -> Option<f64> {
        let alone = self.clone().with_power_figures(Some((costs, roofline)), AtLeast::default());
        Some(alone.power?.watts.value.get())
    }

    /// The same prediction with its power and energy, and with the power limit as a further ceiling. Apply corrections of
    /// the time first. At worst it takes no less time than the same work with fewer sequences than its `batch`, and it draws no
    /// less; `with` gives the prediction of that before its power.
    #[must_use]
    pub fn with_power(
        self,
        power: Option<(&PowerCosts, &Roofline)>,
        batch: u64,
        mut with: impl FnMut(u64) -> Option<Self>,
    ) -> Self {
        let mut at_least = AtLeast::default();
        if batch > 1 {
            let of = |rung| if rung == batch { Some(self.clone()) } else { with(rung) };
            at_least = Fewer::of(power, batch, of).at(batch, self.tier);
        }
        self.with_power_at(power, at_least)
    }

    /// The same where what smaller batches come to is known already.
    #[must_use]
    pub fn with_power_at(self, power: Option<(&PowerCosts, &Roofline)>, at_least: AtLeast) -> Self {
        let mut prediction = self.with_power_figures(power, at_least);
        if let (Some(of), Some((costs, _))) = (&prediction.power, power) {
            prediction.warnings.extend(costs.cap_words(of.watts.value));
            prediction.warnings.extend(costs.words());
        }
        prediction
    }

    /// The same without warnings.
    pub(crate) fn with_power_figures(
        mut self,
        power: Option<(&PowerCosts, &Roofline)>,
        at_least: AtLeast,
    ) -> Self {
        let activity = self.activity();
        let capped = power.map(|(costs, roofline)| costs.capped(&activity, roofline, self.time));
        if let Some((time, Some(limit))) = capped {
            if let Some(model) = &mut self.model {
                model.slow_down(time.value / self.time.value, time.low / self.time.low);
            }
            self.time = time;
            self.limit = limit;
        }
        if at_least.time_high > self.time.high {
            if let Some(model) = &mut self.model {
                model.widen(at_least.time_high / self.time.high);
            }
            self.time.high = at_least.time_high;
        }
        self.power = power.and_then(|(costs, roofline)| {
            let power = costs.of(&activity, roofline, self.time)?;
            Some(at_least.watts.map_or(power, |watts| costs.at(power, watts)))
        });
        self
    }

    /// The same prediction with its times and interval multiplied, still no lower than the physical bound.
    #[must_use]
    pub fn corrected(mut self, factor: f64, half_width_ratio: f64, tier: Tier) -> Self {
        let (plain, bound) = (self.time.value, self.roofline_time);
        self.time = interval((plain * factor).max(bound), half_width_ratio, bound);
        if let Some(model) = &mut self.model {
            let scale = |estimate: Estimate<Seconds>| {
                let share = if plain.is_positive() { estimate.value / plain } else { 1.0 };
                let least = bound * share.min(1.0);
                interval((estimate.value * factor).max(least), half_width_ratio, least)
            };
            model.correct(scale, self.time.value / plain);
        }
        self.tier = tier;
        // Power follows from the time.
        self.power = None;
        self
    }
}

/// What a run comes to at least, because the same with fewer sequences does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtLeast {
    /// The upper end of its time.
    pub time_high: Seconds,
    /// Its power and the upper end of that; `None` where nothing is known of it.
    pub watts: Option<[Watts; 2]>,
}

impl Default for AtLeast {
    fn default() -> Self {
        Self { time_high: Seconds::ZERO, watts: None }
    }
}

/// What runs that differ in their batch alone come to, at the rungs of [`Rising`].
#[derive(Debug)]
pub struct Fewer {
    /// Of each rung what it rests on, and the upper end of its time.
    times: Vec<(u64, Tier, Seconds)>,
    watts: [Rising; 2],
}

impl Fewer {
    /// Of runs with `batch` sequences and fewer, of which `with` gives the prediction before its power.
    pub fn of(
        power: Option<(&PowerCosts, &Roofline)>,
        batch: u64,
        mut with: impl FnMut(u64) -> Option<Prediction>,
    ) -> Self {
        let mut fewer = Self { times: Vec::new(), watts: [Rising::default(), Rising::default()] };
        for rung in rungs(batch) {
            let alone = with(rung).map(|prediction| {
                let tier = prediction.tier;
                let time_high = fewer.at(rung, tier).time_high;
                let alone = prediction.with_power_figures(power, AtLeast { time_high, watts: None });
                fewer.times.push((rung, tier, alone.time.high));
                alone
            });
            let alone = alone.and_then(|alone| alone.power).map(|power| power.watts.map(Watts::get));
            let value = fewer.watts[0].push(rung, alone.map(|watts| watts.value));
            let scaled = alone.map(|watts| watts.high * (value / watts.value));
            fewer.watts[1].push(rung, scaled.zip(power).map(|(watts, (costs, _))| costs.capped_watts(watts)));
        }
        fewer
    }

    /// What a run with `batch` sequences comes to at least. One that rests on more than smaller ones do is not widened by them.
    #[must_use]
    pub fn at(&self, batch: u64, tier: Tier) -> AtLeast {
        let smaller = self.times.iter().filter(|(rung, other, _)| *rung <= batch && *other >= tier);
        let [watts, high] = [&self.watts[0], &self.watts[1]].map(|watts| watts.at(batch).map(Watts));
        AtLeast {
            time_high: smaller.map(|(.., high)| *high).fold(Seconds::ZERO, Seconds::max),
            watts: watts.zip(high).map(|(watts, high)| [watts, high]),
        }
    }
}

/// A part of a run's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// What it is spent on: a kind of operation, or `overhead`.
    pub name: &'static str,
    /// Time of all of them in one run.
    pub time: Seconds,
    pub work: Flops,
    /// Bytes.
    pub traffic: Bytes,
}

/// The figures of a predicted run that only a model has.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPart {
    /// Until the first token of an answer; `None` for a decode.
    pub time_to_first_token: Option<Estimate<Seconds>>,
    /// Of one token after the first of every sequence; `None` for a prompt.
    pub time_per_token: Option<Estimate<Seconds>>,
    /// Whose errors the interval was taken from.
    pub interval_from: IntervalSource,
    /// Where the time goes, longest first.
    pub breakdown: Vec<Part>,
    /// Operations by what they are computed in.
    pub work: Vec<(Precision, Flops)>,
}

impl ModelPart {
    /// Every time is `slower` times as long, and the lower end of its interval `lower` times.
    fn slow_down(&mut self, slower: f64, lower: f64) {
        let longer = |estimate: Estimate<Seconds>| Estimate {
            value: estimate.value * slower,
            low: estimate.low * lower,
            high: estimate.high * slower,
        };
        self.time_to_first_token = self.time_to_first_token.map(longer);
        self.time_per_token = self.time_per_token.map(longer);
        self.breakdown.iter_mut().for_each(|part| part.time = part.time * slower);
    }

    /// The upper ends of its times are `wider` times as late.
    fn widen(&mut self, wider: f64) {
        let later = |time: Estimate<Seconds>| Estimate { high: time.high * wider, ..time };
        self.time_to_first_token = self.time_to_first_token.map(later);
        self.time_per_token = self.time_per_token.map(later);
    }

    /// Its times as `scale` makes them, with the whole time `kept` times what it was.
    fn correct(&mut self, scale: impl Fn(Estimate<Seconds>) -> Estimate<Seconds>, kept: f64) {
        self.time_to_first_token = self.time_to_first_token.map(&scale);
        self.time_per_token = self.time_per_token.map(&scale);
        if kept.is_finite() {
            self.breakdown.iter_mut().for_each(|part| part.time = part.time * kept);
        }
    }
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    #[error(transparent)]
    Op(#[from] InvalidOp),
    /// No ceiling for the precision, and none for one it can fall back to.
    #[error("this accelerator has no unit for {precision} and no wider one to fall back to")]
    NoUnit { precision: Precision },
}
