//! What deciding costs where the truth is known: models that were measured in every power mode of a board.
//!
//! Each model file in turn is new to the board: two other models were observed in every mode, and the new one in one mode. Power
//! is what the shipped file would say without the new one: observed power does not update it. [`decide()`] chooses the mode of
//! least energy with a floor under the rate; what its choice takes, measured, over the least that keeps the floor, less one, is
//! the regret. The engine's shipped coefficients know the board's public rows, the judged model's among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::power::{points, power_files, whole};
use super::report::as_f64;
use super::rows::Row;
use rooflined_core::hardware::{Hardware, Registry};
use rooflined_core::units::{Bytes, Seconds};
use rooflined_models::model::Model;
use rooflined_models::registry::Models;
use rooflined_models::transformer::Phase;
use rooflined_predict::calibration::{CalibrationRecord, MachineKey, RECORD_SCHEMA};
use rooflined_predict::costs::recipe;
use rooflined_predict::learning::conformal::quantile;
use rooflined_predict::learning::models::{Measured, ObservedRuns};
use rooflined_predict::optimize::{
    Constraints, EnergyBasis, ModelOrigin, Modes, Objective, Optimism, Query, QueryError, StoredModel,
    USUAL_RUN, WorkForms, decide,
};
use rooflined_predict::power::{Energies, PowerFile, Reference, size};
use rooflined_predict::snapshot::Snapshot;

/// Parts of a model's highest speed that a service may ask for.
const FLOORS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 0.9];

/// Excess of energy over the best choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regret {
    pub count: usize,
    pub mean: f64,
    /// 90 % lie below.
    pub p90: f64,
    pub worst: f64,
}

impl Regret {
    /// The regret of all these choices; `None` without any.
    fn of(mut all: Vec<f64>) -> Option<Self> {
        all.sort_by(f64::total_cmp);
        let worst = *all.last()?;
        let mean = all.iter().sum::<f64>() / as_f64(all.len());
        Some(Self { count: all.len(), mean, p90: quantile(&all, 0.9), worst })
    }
}

/// Choices of modes on one board.
#[derive(Debug, Clone, PartialEq)]
pub struct Choices {
    /// Model files that were measured in every mode.
    pub files: usize,
    /// With no demand on the rate.
    pub free: Option<Regret>,
    /// With a floor under it, met at the pessimistic end; choices that broke a floor are not among them.
    pub floored: Option<Regret>,
    /// Choices whose measured rate lies below the floor, though some mode keeps it.
    pub missed: usize,
    /// Times that no mode was sure to keep the floor, and the one that misses least was taken.
    pub unsure: usize,
}

/// A model file with its rows, one for each mode.
struct File<'a> {
    model: Arc<Model>,
    rows: Vec<&'a Row>,
    /// Watts of the whole module in each.
    watts: Vec<f64>,
}

impl File<'_> {
    /// Joules for a token.
    fn energy(&self, mode: usize) -> f64 {
        self.watts[mode] / self.rows[mode].tokens_per_s
    }

    fn runs(&self, snapshot: &Snapshot, modes: &[usize]) -> Vec<Measured> {
        let run = |mode: &usize| {
            let row = self.rows[*mode];
            let view = snapshot.mode(&row.mode)?;
            Some(Measured {
                engine: row.engine,
                name: row.model.clone(),
                format: row.format.key().to_owned(),
                model: Arc::clone(&self.model),
                request: row.request(),
                roofline: Arc::new(view.roofline.clone()),
                kernels: None,
                cpu: None,
                memory_ratio: None,
                hardware: Some(row.hardware.clone()),
                mode: Some(view.mode.name.clone()),
                time: Seconds(row.tokens() / row.tokens_per_s),
                power: None,
                power_limit: None,
            })
        };
        modes.iter().filter_map(run).collect()
    }
}

/// Judges the choice of modes on `hardware` by the rows of it; `None` where fewer than three model files were measured in
/// every one of several modes.
///
/// # Errors
/// A question that cannot be answered.
pub fn choices(
    rows: &[Row],
    hardware: &str,
    registry: &Registry,
    models: &Models,
) -> Result<Option<Choices>, QueryError> {
    let Some(known) = registry.get(hardware) else { return Ok(None) };
    let snapshot = Snapshot::hypothetical(Arc::new(known.clone()));
    let own: Vec<&Row> = rows.iter().filter(|row| row.hardware == known.key && row.rails.is_some()).collect();
    let (modes, files) = files(&own, &snapshot, registry, models);
    if modes.len() < 2 || files.len() < 3 {
        return Ok(None);
    }
    let every: Vec<usize> = (0..modes.len()).collect();
    let (mut free, mut floored, mut missed, mut unsure) = (Vec::new(), Vec::new(), 0, 0);
    for (index, file) in files.iter().enumerate() {
        let mut taught = snapshot.clone();
        taught.calibration = power_without(file, rows, known, registry, models);
        let others: Vec<&File<'_>> =
            files.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other).collect();
        for (first, a) in others.iter().enumerate() {
            for b in &others[first + 1..] {
                let mut runs = a.runs(&snapshot, &every);
                runs.extend(b.runs(&snapshot, &every));
                let mut observed_runs = ObservedRuns::default();
                // What is refused as implausible is not learnt from, as it would not be in a daemon.
                let _ = observed_runs.observe(&runs, 0.0);
                for seen in &every {
                    let mut observed_runs = observed_runs.clone();
                    let _ = observed_runs.observe(&file.runs(&snapshot, &[*seen]), 0.0);
                    taught.observed_runs = Arc::new(observed_runs);
                    for floor in FLOORS {
                        let outcome = judged(&taught, file, &modes, floor)?;
                        missed += usize::from(outcome.missed);
                        unsure += usize::from(outcome.unsure);
                        match outcome.regret {
                            Some(regret) if floor > 0.0 => floored.push(regret),
                            Some(regret) => free.push(regret),
                            None => {}
                        }
                    }
                }
            }
        }
    }
    let (free, floored) = (Regret::of(free), Regret::of(floored));
    Ok(Some(Choices { files: files.len(), free, floored, missed, unsure }))
}

/// Modes by the order of the board, and the files that were measured in all of them.
fn files<'a>(
    rows: &[&'a Row],
    snapshot: &Snapshot,
    registry: &Registry,
    models: &Models,
) -> (Vec<String>, Vec<File<'a>>) {
    let decodes = || rows.iter().copied().filter(|row| row.phase == Phase::Decode && row.power_w.is_some());
    let mut modes: Vec<String> = Vec::new();
    for view in snapshot.modes.iter() {
        let named = |row: &&Row| snapshot.mode(&row.mode).is_some_and(|of| of.mode.id == view.mode.id);
        modes.extend(decodes().find(named).map(|row| row.mode.clone()));
    }
    let mut by_file: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in decodes() {
        by_file.entry((&row.model, row.format.key())).or_default().push(row);
    }
    let complete = |((name, _), rows): ((&str, &str), Vec<&'a Row>)| {
        let in_mode = |mode: &String| rows.iter().copied().find(|row| row.mode == *mode);
        let rows: Vec<&Row> = modes.iter().filter_map(in_mode).collect();
        let first = rows.first().filter(|_| rows.len() == modes.len())?;
        let model = models.get(name).ok()?.model(recipe(first.engine, first.format));
        let watts = rows.iter().map(|row| whole(row, registry, models).map(|of| of.run.sample.power));
        let watts = watts.collect::<Result<_, _>>().ok()?;
        Some(File { model: Arc::new(model), rows, watts })
    };
    let files = by_file.into_iter().filter_map(complete).collect();
    (modes, files)
}

/// What the shipped file of the board's family would say of power without one model file, as a record that holds nothing else.
fn power_without(
    left_out: &File<'_>,
    rows: &[Row],
    board: &Hardware,
    registry: &Registry,
    models: &Models,
) -> Option<CalibrationRecord> {
    let is_left_out =
        |row: &Row| row.model == left_out.rows[0].model && row.format == left_out.rows[0].format;
    let rows: Vec<Row> = rows.iter().filter(|row| !is_left_out(row)).cloned().collect();
    let (points, _) = points(&rows, &[], registry, models);
    let files = power_files(&points, registry).ok()?;
    let file = files.into_iter().find(|file| file.boards.contains(&board.key))?;
    Some(CalibrationRecord {
        schema: RECORD_SCHEMA,
        key: MachineKey {
            machine: None,
            board: board.key.clone(),
            cpu: String::new(),
            logical_cpus: 0,
            kernel: None,
            version: String::new(),
        },
        measured_at_unix_s: 0.0,
        wall: Seconds::ZERO,
        plan: "full".to_owned(),
        simulated: false,
        loaded: false,
        other_work: None,
        regimes: Vec::new(),
        rejected: Vec::new(),
        skipped: Vec::new(),
        power: Some(stated_at(file, board)),
    })
}

/// The file of a family with its energies stated at another of its boards, as [`Reference::factors`] carries them there.
fn stated_at(file: PowerFile, board: &Hardware) -> PowerFile {
    let part = size(board) / file.reference.size;
    let reference = Reference {
        workers: board.sm.max(1),
        memory_bytes_per_s: file.reference.memory_bytes_per_s * part,
        size: size(board),
        ..file.reference
    };
    let cores = f64::from(reference.workers) / f64::from(file.reference.workers);
    let energies = Energies {
        idle_w: file.energies.idle_w * part,
        active_w: file.energies.active_w * cores,
        busy_w: file.energies.busy_w.map(|busy| busy * cores),
        ..file.energies
    };
    PowerFile { hardware: board.key.clone(), energies, reference, ..file }
}

struct Outcome {
    /// `None` where the choice breaks the floor.
    regret: Option<f64>,
    missed: bool,
    unsure: bool,
}

fn judged(snapshot: &Snapshot, file: &File<'_>, modes: &[String], floor: f64) -> Result<Outcome, QueryError> {
    let rate = |mode: usize| file.rows[mode].tokens_per_s;
    let fastest = (0..modes.len()).map(rate).fold(0.0, f64::max);
    let row = file.rows[0];
    let query = Query {
        work: WorkForms::Model {
            name: row.model.clone(),
            request: row.request(),
            stored: vec![StoredModel {
                format: Some(row.format.key().to_owned()),
                model: Arc::clone(&file.model),
                quality_loss: None,
                origin: ModelOrigin::Otherwise,
            }],
            kv_formats: vec![row.kv_format],
        },
        engine: row.engine,
        objective: Objective::Energy,
        constraints: Constraints {
            min_tokens_per_s: (floor > 0.0).then_some(floor * fastest),
            ..Constraints::default()
        },
        modes: Modes::All,
        caps: Vec::new(),
        energy: EnergyBasis::WithIdle,
        allow_reboot: true,
        threads: Vec::new(),
        batch: row.batch..=row.batch,
        optimism: Optimism::Pessimistic,
        run_time: USUAL_RUN,
        reserve: Bytes::ZERO,
    };
    let decision = decide(snapshot, &query)?;
    let unsure = decision.chosen.is_none();
    let taken = decision.chosen.or(decision.closest.map(|(closest, _)| closest));
    let id = taken.and_then(|taken| taken.mode).map(|mode| mode.id);
    let chosen = (0..modes.len())
        .find(|mode| id.is_some() && snapshot.mode(&modes[*mode]).map(|view| view.mode.id) == id)
        .ok_or(QueryError::NoModes)?;
    let keeps = |mode: &usize| rate(*mode) >= floor * fastest;
    let least = (0..modes.len()).filter(keeps).map(|mode| file.energy(mode)).fold(f64::INFINITY, f64::min);
    let missed = !keeps(&chosen);
    let regret = (!missed).then(|| file.energy(chosen) / least - 1.0);
    Ok(Outcome { regret, missed, unsure })
}
