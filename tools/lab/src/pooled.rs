//! Intervals for models that nobody measured, from the errors of those that somebody did, left out of the fit.
//!
//! Few errors in a group say little of the next one, and many of another group say something: the typical size of an error
//! is that of all rows, moved towards the engine's, the machine's and the family's of storage by as many models as they
//! have. Every error in units of the size that the *other* models give it is a score, and the quantile of all scores times
//! the size is the interval (locally weighted split-conformal prediction: J. Lei et al., "Distribution-free predictive
//! inference for regression", JASA 113, 2018).

use std::collections::{BTreeMap, BTreeSet};

use super::rounded;
use super::rows::Judged;
use rooflined_predict::Engine;
use rooflined_predict::costs::{
    Family, GUESSED_INTERVAL, Interval, IntervalSource, Intervals, Part, PartRatios,
};
use rooflined_predict::learning::conformal::{COVERAGE, LEAST_ERRORS, conformal};

/// Models for which a group's own errors count as much as those of what it is a part of.
const MODELS: f64 = 5.0;

/// Errors of one part of generating text.
#[derive(Debug, Clone)]
pub struct Errors<'a> {
    judged: Vec<Judged<'a>>,
}

/// Where a prediction is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    engine: Engine,
    hardware: Option<&'a str>,
    family: Option<Family>,
}

impl<'a> Errors<'a> {
    #[must_use]
    pub fn of(judged: &[Judged<'a>], part: Part) -> Self {
        Self { judged: judged.iter().copied().filter(|judged| judged.part() == part).collect() }
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

    /// Typical sizes of an error there and of the engine anywhere, without some models.
    fn size(&self, place: Place<'_>, left_out: &[&str]) -> Option<(f64, f64)> {
        let kept = || self.judged.iter().filter(|one| !left_out.contains(&one.row.model.as_str()));
        #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
        let all = kept().map(|one| one.error.abs()).sum::<f64>() / kept().count() as f64;
        if all.is_nan() || all <= 0.0 {
            return None;
        }
        let of_engine = |one: &Judged<'_>| one.row.engine == place.engine;
        let engine = self.moved(all, left_out, of_engine);
        let machine = place.hardware.map_or(engine, |key| {
            self.moved(engine, left_out, |one| of_engine(one) && one.row.hardware == key)
        });
        let family = place.family.map_or(engine, |family| {
            self.moved(engine, left_out, |one| of_engine(one) && one.family == family)
        });
        Some((machine * family / engine, engine))
    }

    /// What nine of ten errors stay below in units of their typical size, without the models `left_out`.
    fn score(&self, left_out: Option<&str>, places: bool) -> Option<f64> {
        let mut sizes = BTreeMap::new();
        let scores = self.judged.iter().filter(|one| left_out != Some(one.row.model.as_str()));
        let scores = scores.filter_map(|one| {
            let hardware = places.then_some(one.row.hardware.as_str());
            let place = Place { engine: one.row.engine, hardware, family: Some(one.family) };
            let model = one.row.model.as_str();
            let size = sizes.entry((model, place)).or_insert_with(|| {
                let left_out: Vec<&str> = left_out.into_iter().chain([model]).collect();
                self.size(place, &left_out)
            });
            size.map(|(size, _)| one.error.abs() / size)
        });
        quantile(scores.collect())
    }

    /// The interval of an engine on a machine, or on one that nobody measured, with any storage.
    fn interval(&self, engine: Engine, hardware: Option<&str>) -> Interval {
        let place = Place { engine, hardware, family: None };
        let (Some((size, _)), Some(score)) = (self.size(place, &[]), self.score(None, hardware.is_some()))
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
            half_width_ratio: rounded((score * size).exp_m1()),
            errors: u32::try_from(errors).unwrap_or(u32::MAX),
            from,
        })
    }

    /// How much larger errors are where most weights are of `family`.
    fn family_ratio(&self, engine: Engine, family: Family) -> f64 {
        let place = Place { engine, hardware: None, family: Some(family) };
        self.size(place, &[]).map_or(1.0, |(size, of_engine)| rounded(size / of_engine))
    }

    /// Every error with the half-width, as a logarithm, that all other models give it.
    #[must_use]
    pub fn with_intervals(&self) -> Vec<(Judged<'a>, f64)> {
        let mut scores = BTreeMap::new();
        let with = |one: &Judged<'a>| {
            let model = one.row.model.as_str();
            let score = *scores.entry(model).or_insert_with(|| self.score(Some(model), true));
            let hardware = Some(one.row.hardware.as_str());
            let place = Place { engine: one.row.engine, hardware, family: Some(one.family) };
            Some((*one, score? * self.size(place, &[model])?.0))
        };
        self.judged.iter().filter_map(with).collect()
    }
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

const PARTS: [Part; 3] = [Part::Decode, Part::Several, Part::Prefill];

/// The intervals of an engine on a machine, or on one that nobody measured.
#[must_use]
pub fn intervals(judged: &[Judged<'_>], engine: Engine, hardware: Option<&str>) -> Intervals {
    let [decode, several, prefill] = PARTS.map(|part| Errors::of(judged, part).interval(engine, hardware));
    Intervals { decode, several, prefill }
}

/// How the errors of an engine with weights of a family compare with all of the engine.
#[must_use]
pub fn family_ratios(judged: &[Judged<'_>], engine: Engine, family: Family) -> PartRatios {
    let [decode, several, prefill] = PARTS.map(|part| Errors::of(judged, part).family_ratio(engine, family));
    PartRatios { decode, several, prefill }
}

/// The intervals with storage that nobody measured with the engine, from errors of families left out.
#[must_use]
pub fn unseen(judged: &[Judged<'_>]) -> Intervals {
    let [decode, several, prefill] = PARTS.map(|part| {
        let errors: Vec<f64> = Errors::of(judged, part).judged.iter().map(|one| one.error).collect();
        let count = u32::try_from(errors.len()).unwrap_or(u32::MAX);
        conformal(errors).map_or(GUESSED_INTERVAL, |half| Interval {
            half_width_ratio: rounded(half),
            errors: count,
            from: IntervalSource::All,
        })
    });
    Intervals { decode, several, prefill }
}
