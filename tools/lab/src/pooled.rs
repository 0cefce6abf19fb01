//! Intervals for models that nobody measured, from the errors of those that somebody did, left out of the fit.
//!
//! Few errors in a group say little of the next one, and many of another group say something: the typical size of an error
//! is that of all rows, moved towards the engine's, the machine's and the family's of storage by as many models as they
//! have. Every error in units of the size that the *other* models give it is a score, and the quantile of all scores times
//! the size is the interval (locally weighted split-conformal prediction: J. Lei et al., "Distribution-free predictive
//! inference for regression", JASA 113, 2018). Decodes at depth are fewer: their sizes are moved from those of other decodes in the
//! same place.

use std::collections::{BTreeMap, BTreeSet};

use super::rounded;
use super::rows::Judged;
use rooflined_predict::Engine;
use rooflined_predict::costs::{
    Family, GUESSED_INTERVAL, Interval, IntervalSource, Intervals, Part, PartRatios, Parts, at_depth,
};
use rooflined_predict::learning::conformal::{COVERAGE, LEAST_ERRORS, conformal};

/// Models for which a group's own errors count as much as those of what it is a part of.
const MODELS: f64 = 5.0;

/// Errors of one part of generating text.
#[derive(Debug, Clone)]
struct Errors<'a> {
    judged: Vec<Judged<'a>>,
    /// Those of the part whose sizes these are moved from, by what they have of their own.
    usual: Option<Box<Self>>,
}

/// Where a prediction is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    engine: Engine,
    hardware: Option<&'a str>,
    family: Option<Family>,
}

impl<'a> Place<'a> {
    fn of(one: &Judged<'a>) -> Self {
        Self { engine: one.row.engine, hardware: Some(&one.row.hardware), family: Some(one.family) }
    }
}

/// Typical sizes of an error of an engine: anywhere, on a machine with any storage, and with storage on any machine.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    engine: f64,
    machine: f64,
    family: f64,
}

impl Sizes {
    /// That on the machine with the storage.
    fn here(self) -> f64 {
        self.machine * self.family / self.engine
    }
}

impl<'a> Errors<'a> {
    fn of(judged: &[Judged<'a>], part: Part) -> Self {
        Self {
            judged: judged.iter().copied().filter(|judged| judged.row.part() == part).collect(),
            usual: (part == Part::Depth).then(|| Box::new(Self::of(judged, Part::Decode))),
        }
    }

    /// Typical size of an error, moved from `parent` by those of a group.
    fn moved(&self, parent: f64, left_out: &[&str], test: impl Fn(&Judged<'_>) -> bool) -> f64 {
        let (mut sum, mut count, mut models) = (0.0, 0.0, BTreeSet::new());
        for one in self.judged.iter().filter(|one| test(one)) {
            let model = one.row.model.as_str();
            if !left_out.contains(&model) {
                sum += one.error.abs();
                count += 1.0;
                models.insert(model);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of models")]
        let models = models.len() as f64;
        if count > 0.0 { (models * sum / count + MODELS * parent) / (models + MODELS) } else { parent }
    }

    /// Typical sizes of an error there, without some models.
    fn sizes(&self, place: Place<'_>, left_out: &[&str]) -> Option<Sizes> {
        let usual = match &self.usual {
            Some(usual) => usual.sizes(place, left_out)?,
            None => {
                let kept = || self.judged.iter().filter(|one| !left_out.contains(&one.row.model.as_str()));
                #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
                let all = kept().map(|one| one.error.abs()).sum::<f64>() / kept().count() as f64;
                (all > 0.0).then_some(Sizes { engine: all, machine: all, family: all })?
            }
        };
        let of_engine = |one: &Judged<'_>| one.row.engine == place.engine;
        let engine = self.moved(usual.engine, left_out, of_engine);
        let scale = engine / usual.engine;
        let machine = place.hardware.map_or(engine, |key| {
            self.moved(usual.machine * scale, left_out, |one| of_engine(one) && one.row.hardware == key)
        });
        let family = place.family.map_or(engine, |family| {
            self.moved(usual.family * scale, left_out, |one| of_engine(one) && one.family == family)
        });
        Some(Sizes { engine, machine, family })
    }

    /// What nine of ten errors stay below in units of their typical size, without the models `left_out`.
    fn score(&self, left_out: Option<&str>, places: bool) -> Option<f64> {
        let mut sizes = BTreeMap::new();
        let scores = self.judged.iter().filter(|one| left_out != Some(one.row.model.as_str()));
        let scores = scores.filter_map(|one| {
            let place = Place::of(one);
            let place = Place { hardware: place.hardware.filter(|_| places), ..place };
            let model = one.row.model.as_str();
            let sizes = sizes.entry((model, place)).or_insert_with(|| {
                let left_out: Vec<&str> = left_out.into_iter().chain([model]).collect();
                self.sizes(place, &left_out)
            });
            sizes.map(|sizes| one.error.abs() / sizes.here())
        });
        quantile(scores.collect())
    }

    /// The interval of an engine on a machine, or on one that nobody measured, with any storage.
    fn interval(&self, engine: Engine, hardware: Option<&str>) -> Interval {
        let place = Place { engine, hardware, family: None };
        let (Some(sizes), Some(score)) = (self.sizes(place, &[]), self.score(None, hardware.is_some()))
        else {
            return GUESSED_INTERVAL;
        };
        let count = |test: &dyn Fn(&Judged<'_>) -> bool| self.judged.iter().filter(|one| test(one)).count();
        let groups = [
            (
                IntervalSource::EngineAndMachine,
                count(&|one| one.row.engine == engine && hardware == Some(one.row.hardware.as_str())),
            ),
            (IntervalSource::Engine, count(&|one| one.row.engine == engine)),
            (IntervalSource::All, count(&|_| true)),
        ];
        let group = groups.into_iter().find(|(_, errors)| *errors >= LEAST_ERRORS);
        group.map_or(GUESSED_INTERVAL, |(from, errors)| Interval {
            half_width_ratio: rounded((score * sizes.here()).exp_m1()),
            errors: u32::try_from(errors).unwrap_or(u32::MAX),
            from,
        })
    }

    /// How much larger errors are where most weights are of `family`.
    fn family_ratio(&self, engine: Engine, family: Family) -> f64 {
        let place = Place { engine, hardware: None, family: Some(family) };
        self.sizes(place, &[]).map_or(1.0, |sizes| rounded(sizes.here() / sizes.engine))
    }
}

/// Every error with the half-width, as a logarithm, that all other models give it.
#[must_use]
pub fn with_intervals<'a>(judged: &[Judged<'a>]) -> Vec<(Judged<'a>, f64)> {
    let errors = Parts::each(|part| Errors::of(judged, part));
    let mut scores = BTreeMap::new();
    let mut half = |one: &Judged<'a>, part: Part| {
        let (errors, model) = (errors.of(part), one.row.model.as_str());
        let score = *scores.entry((part, model)).or_insert_with(|| errors.score(Some(model), true));
        Some(score? * errors.sizes(Place::of(one), &[model])?.here())
    };
    let with = |one: &Judged<'a>| {
        let half = match one.row.part() {
            Part::Decode | Part::Depth => {
                at_depth(half(one, Part::Decode)?, half(one, Part::Depth)?, one.row.depth())
            }
            part => half(one, part)?,
        };
        Some((*one, half))
    };
    judged.iter().filter_map(with).collect()
}

/// The split-conformal quantile; `None` for too few.
fn quantile(mut scores: Vec<f64>) -> Option<f64> {
    if scores.len() < LEAST_ERRORS {
        return None;
    }
    scores.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank"
    )]
    let rank = ((scores.len() as f64 + 1.0) * COVERAGE).ceil() as usize;
    scores.get(rank.min(scores.len()) - 1).copied()
}

/// The intervals of an engine on a machine, or on one that nobody measured.
#[must_use]
pub fn intervals(judged: &[Judged<'_>], engine: Engine, hardware: Option<&str>) -> Intervals {
    Intervals::each(|part| Errors::of(judged, part).interval(engine, hardware))
}

/// How the errors of an engine with weights of a family compare with all of the engine.
#[must_use]
pub fn family_ratios(judged: &[Judged<'_>], engine: Engine, family: Family) -> PartRatios {
    PartRatios::each(|part| Errors::of(judged, part).family_ratio(engine, family))
}

/// The intervals with storage that nobody measured with the engine, from errors of families left out.
#[must_use]
pub fn unseen(judged: &[Judged<'_>]) -> Intervals {
    Intervals::each(|part| {
        let errors: Vec<f64> = Errors::of(judged, part).judged.iter().map(|one| one.error).collect();
        let count = u32::try_from(errors.len()).unwrap_or(u32::MAX);
        conformal(errors).map_or(GUESSED_INTERVAL, |half| Interval {
            half_width_ratio: rounded(half),
            errors: count,
            from: IntervalSource::All,
        })
    })
}
