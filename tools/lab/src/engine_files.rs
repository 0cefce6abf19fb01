//! Engine costs as files, from published rows.

use std::collections::{BTreeMap, BTreeSet};

use super::fits::{Fits, leave_one_family_out, leave_one_machine_out, leave_one_model_out};
use super::pooled::{family_ratios, intervals, unseen};
use super::rounded;
use super::rows::{CARD, EngineRows, Judged, Row, current, spreads};
use rooflined_predict::Engine;
use rooflined_predict::costs::{
    COEFFICIENTS, Coefficient, Coefficients, Effect, EngineCosts, EngineFile, Entry, Family, Intervals,
    MachineFile,
};
use rooflined_predict::learning::fit::{Fitted, Sample};

/// Engines that a file is written for.
pub const ENGINES: [Engine; 7] = [
    Engine::LlamaCpp,
    Engine::Mlc,
    Engine::Bare,
    Engine::TensorRtEdgeLlm,
    Engine::TensorRtLlm,
    Engine::Torch,
    Engine::Vllm,
];

/// The files of all engines. The same rows give the same files: figures are rounded to four digits, which hides what the
/// mathematics of one processor differs by from another's.
#[must_use]
pub fn engine_files(engines: &[EngineRows]) -> Vec<EngineFile> {
    let fits = Fits::new(engines);
    let known = leave_one_model_out(&fits);
    let unknown = leave_one_machine_out(&fits);
    let unseen = unseen(&leave_one_family_out(&fits));
    let mut files: Vec<EngineFile> =
        fits.all().map(|(rows, all)| file(rows, all, &known, &unknown, unseen)).collect();
    for engine in ENGINES {
        if !files.iter().any(|file| file.engine == engine) {
            files.push(unmeasured(engine, &files, &unknown, unseen));
        }
    }
    files
}

/// The costs of one engine alone, without intervals.
#[must_use]
pub fn costs_file(rows: &EngineRows) -> EngineFile {
    file(rows, &rows.fit(|_| true, None), &[], &[], unseen(&[]))
}

fn file(
    rows: &EngineRows,
    all: &Fitted,
    known: &[Judged<'_>],
    unknown: &[Judged<'_>],
    unseen: Intervals,
) -> EngineFile {
    let families = |test: &dyn Fn(&Row) -> bool| -> BTreeSet<Family> {
        let of = rows.rows.iter().enumerate().filter(|(_, row)| test(row));
        of.map(|(index, _)| rows.family(index)).collect()
    };
    let fitted = rows.in_order(|_| true, all);
    let mut spread = fitted.typical_sd;
    spread.iter_mut().zip(spreads().machines).for_each(|(sd, between)| *sd = sd.hypot(between));
    let typical = entries(&fitted.typical, &spread);
    let mut of_card = spread;
    let card_sd = fitted.effects_sd[Effect::Card as usize];
    of_card.iter_mut().zip(card_sd).for_each(|(sd, of_card)| *sd = sd.hypot(of_card));
    let card = entries(&fitted.typical_with(CARD), &of_card);
    let hardware = rows.machines.iter().enumerate().map(|(index, key)| {
        let count = rows.rows.iter().filter(|row| row.hardware == *key).count();
        let machine = MachineFile {
            rows: u32::try_from(count).unwrap_or(u32::MAX),
            families: families(&|row| row.hardware == *key).into_iter().map(|f| f.key().to_owned()).collect(),
            interval: intervals(known, rows.engine, Some(key)),
            coefficients: own(
                entries(&fitted.on(index, current(rows.cards[index])), &machine_sd(&fitted, index)),
                if rows.cards[index] { &card } else { &typical },
            ),
        };
        (key.clone(), machine)
    });
    EngineFile {
        engine: rows.engine,
        rows: u32::try_from(rows.rows.len()).unwrap_or(u32::MAX),
        interval: intervals(unknown, rows.engine, None),
        unseen,
        family: families(&|_| true)
            .into_iter()
            .map(|family| (family.key().to_owned(), family_ratios(known, rows.engine, family)))
            .collect(),
        hardware: hardware.collect(),
        early: factors(&fitted.effects[Effect::Early as usize]),
        card: own(card.clone(), &typical),
        typical: typical.clone(),
    }
}

/// The entries that say something else than those of a typical machine.
fn own(mut entries: BTreeMap<String, Entry>, typical: &BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    entries.retain(|key, entry| typical.get(key) != Some(entry));
    entries
}

/// What early builds multiply coefficients by, where that is not 1.
fn factors(effect: &Coefficients) -> BTreeMap<String, f64> {
    let factor = |coefficient: Coefficient| (coefficient.key(), rounded(effect[coefficient.index()].exp()));
    Coefficient::all().map(factor).filter(|(_, factor)| (factor - 1.0).abs() > f64::EPSILON).collect()
}

/// The costs of the machine and the build of a sample in a fit, with the intervals of an engine that nobody measured.
#[must_use]
pub fn machine_costs(engine: Engine, fitted: &Fitted, of: &Sample) -> EngineCosts {
    EngineCosts {
        log: fitted.of(of),
        spread: machine_sd(fitted, of.machine_index),
        machine_known: true,
        ..EngineCosts::assumed(engine)
    }
}

fn machine_sd(fitted: &Fitted, machine: usize) -> Coefficients {
    let mut sd = fitted.typical_sd;
    if let Some(of_machine) = fitted.difference_sd.get(machine) {
        sd.iter_mut().zip(of_machine).for_each(|(sd, own)| *sd = sd.hypot(*own));
    }
    sd
}

/// An engine without rows: the mean of the others, each by its rows, and their spread.
fn unmeasured(
    engine: Engine,
    others: &[EngineFile],
    unknown: &[Judged<'_>],
    unseen: Intervals,
) -> EngineFile {
    let (mut log, mut sd) = ([0.0; COEFFICIENTS], [0.0; COEFFICIENTS]);
    for coefficient in Coefficient::all() {
        let place = coefficient.index();
        let values: Vec<(f64, f64)> = others
            .iter()
            .filter(|other| other.rows > 0)
            .filter_map(|other| {
                Some((f64::from(other.rows).sqrt(), other.typical.get(&coefficient.key())?.value.ln()))
            })
            .collect();
        let weight: f64 = values.iter().map(|(weight, _)| weight).sum();
        let (prior, spread) = coefficient.prior();
        log[place] = prior.ln();
        if weight > 0.0 {
            log[place] = values.iter().map(|(weight, log)| weight * log).sum::<f64>() / weight;
        }
        sd[place] = spread;
    }
    let interval = intervals(unknown, engine, None);
    EngineFile {
        engine,
        rows: 0,
        interval,
        unseen,
        family: BTreeMap::new(),
        typical: entries(&log, &sd),
        card: BTreeMap::new(),
        early: BTreeMap::new(),
        hardware: BTreeMap::new(),
    }
}

fn entries(log: &Coefficients, sd: &Coefficients) -> BTreeMap<String, Entry> {
    Coefficient::all()
        .map(|coefficient| {
            let place = coefficient.index();
            let value = log[place].exp().min(coefficient.most()).max(coefficient.least());
            (coefficient.key(), Entry { value: rounded(value), log_sd: rounded(sd[place]) })
        })
        .collect()
}
