//! The fits of every engine that judge it: of all rows, and without models, machines and families of storage.

use std::collections::{BTreeMap, BTreeSet};

use super::report::Errors;
use super::rows::{EngineRows, Judged, Row, assumed};
use super::thumb::{Asked, Group, LEAST_ROWS, Thumb, all};
use rooflined_predict::costs::{Coefficient, Family, take_from_siblings};
use rooflined_predict::learning::fit::Fitted;

/// The fits of every engine: of all rows, and without each model.
#[derive(Debug)]
pub struct Fits<'a> {
    pub engines: &'a [EngineRows],
    all: Vec<Fitted>,
    without: Vec<BTreeMap<&'a str, Fitted>>,
    /// Groups of decodes at depth in which a rule of thumb is nearer, and is used.
    pub rules: BTreeSet<Group>,
}

impl<'a> Fits<'a> {
    #[must_use]
    pub fn new(engines: &'a [EngineRows]) -> Self {
        let all: Vec<Fitted> = engines.iter().map(|engine| engine.fit(|_| true, None)).collect();
        let without = engines.iter().zip(&all).map(|(engine, all)| {
            let fit = |model: &'a str| (model, engine.fit_ordered(|row| row.model != model, all));
            engine.models().into_iter().map(fit).collect()
        });
        let without = without.collect();
        let mut fits = Self { engines, all, without, rules: BTreeSet::new() };
        fits.add_rules();
        fits
    }

    /// Finds the groups in which a rule of thumb is nearer than the formula, models left out, and makes every fit use it there:
    /// with the constant of the rows that went into the fit. Time never falls with the context, so a rule of decodes at depth
    /// bounds the others as well; it is used where the median of those rises by less than that of decodes at depth falls.
    fn add_rules(&mut self) {
        let without =
            |model: &str| Thumb::of(all(self.engines).filter(|(of, index)| of.rows[*index].model != model));
        let mut thumbs: BTreeMap<&str, Thumb> = BTreeMap::new();
        // ln(predicted / measured), by the formula and with the rule.
        let mut errors: BTreeMap<Group, Vec<[f64; 2]>> = BTreeMap::new();
        let rules: BTreeSet<Group> = all(self.engines).map(|(of, index)| Group::of(of, index)).collect();
        let rules: Vec<Group> = rules.into_iter().filter(|group| group.may_have_rule()).collect();
        for (engine, model, fitted) in self.without_models() {
            let thumb = thumbs.entry(model).or_insert_with(|| without(model));
            let mut ruled = fitted.clone();
            rules.iter().for_each(|rule| thumb.set(*rule, engine, &mut ruled));
            for index in (0..engine.rows.len()).filter(|index| engine.rows[*index].model == model) {
                let error = |fitted: &Fitted| engine.error(index, &fitted.of(&engine.samples[index]));
                errors.entry(Group::of(engine, index)).or_default().push([error(fitted), error(&ruled)]);
            }
        }
        let summaries = |group: Group| {
            let of = errors.get(&group)?;
            let [own, ruled] = [0, 1].map(|place| Errors::of_rates(of.iter().map(|errors| errors[place])));
            Some((own?, ruled?))
        };
        let loss = |group: Group| summaries(group).map_or(0.0, |(own, ruled)| ruled.median - own.median);
        let is_nearer = |rule: &Group| {
            summaries(*rule).is_some_and(|(own, ruled)| own.rows >= LEAST_ROWS && ruled.median < own.median)
                && loss(Group { asked: Asked::Decode, ..*rule }) <= -loss(*rule)
        };
        self.rules = rules.into_iter().filter(is_nearer).collect();
        let of_all = Thumb::of(all(self.engines));
        for (place, engine) in self.engines.iter().enumerate() {
            for rule in self.rules.iter().filter(|rule| rule.engine == engine.engine) {
                of_all.set(*rule, engine, &mut self.all[place]);
                for (model, fitted) in &mut self.without[place] {
                    thumbs[model].set(*rule, engine, fitted);
                }
            }
        }
    }

    /// Each engine with the fit of all of its rows, before what is assumed of the order of families.
    pub fn all(&self) -> impl Iterator<Item = (&'a EngineRows, &Fitted)> {
        self.engines.iter().zip(&self.all)
    }

    /// Each engine and each of its models, with the fit of all others.
    pub fn without_models(&self) -> impl Iterator<Item = (&'a EngineRows, &'a str, &Fitted)> {
        let each = self.engines.iter().zip(&self.without);
        each.flat_map(|(engine, fits)| fits.iter().map(move |(model, fitted)| (engine, *model, fitted)))
    }
}

/// Leaves each model out in turn and predicts its rows from all others.
#[must_use]
pub fn leave_one_model_out<'a>(fits: &Fits<'a>) -> Vec<Judged<'a>> {
    let mut judged = Vec::new();
    for (engine, model, fitted) in fits.without_models() {
        for (index, row) in engine.rows.iter().enumerate().filter(|(_, row)| row.model == model) {
            let error = engine.error(index, &fitted.of(&engine.samples[index]));
            judged.push(Judged { row, family: engine.family(index), error });
        }
    }
    judged
}

/// Leaves each machine out in turn, and each of its models: a board that nobody measured, a model that nobody ran.
#[must_use]
pub fn leave_one_machine_out<'a>(fits: &Fits<'a>) -> Vec<Judged<'a>> {
    let mut judged = Vec::new();
    for (engine, all) in fits.all() {
        for machine in &engine.machines {
            for model in engine.models() {
                let held = |row: &Row| row.hardware == *machine && row.model == model;
                if !engine.rows.iter().any(held) {
                    continue;
                }
                let others = |row: &Row| row.hardware != *machine && row.model != model;
                let fitted = engine.fit_ordered(others, all);
                for (index, row) in engine.rows.iter().enumerate().filter(|(_, row)| held(row)) {
                    let mut log = fitted.typical_with(engine.samples[index].effects);
                    take_from_siblings(&mut log, &engine.siblings(machine, &fitted));
                    let error = engine.error(index, &log);
                    judged.push(Judged { row, family: engine.family(index), error });
                }
            }
        }
    }
    judged
}

/// Leaves each family of storage out in turn and predicts its rows from those of all others.
#[must_use]
pub fn leave_one_family_out<'a>(fits: &Fits<'a>) -> Vec<Judged<'a>> {
    let mut judged = Vec::new();
    for (engine, all) in fits.all() {
        let families: BTreeSet<Family> = (0..engine.rows.len()).map(|index| engine.family(index)).collect();
        for left_out in families {
            let of: BTreeSet<&str> = (0..engine.rows.len())
                .filter(|i| engine.family(*i) == left_out)
                .map(|i| engine.rows[i].id.as_str())
                .collect();
            if of.len() == engine.rows.len() {
                continue;
            }
            // Nothing that was learnt of the family may stay where the search starts.
            let mut from = all.clone();
            from.forget(Coefficient::Cycles(left_out), &assumed());
            let others = |row: &Row| !of.contains(row.id.as_str());
            let fitted = engine.fit_ordered(others, &from);
            for (index, row) in engine.rows.iter().enumerate().filter(|(_, row)| of.contains(row.id.as_str()))
            {
                let error = engine.error(index, &fitted.of(&engine.samples[index]));
                judged.push(Judged { row, family: left_out, error });
            }
        }
    }
    judged
}
