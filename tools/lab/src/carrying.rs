//! How good predictions of whole models are on published rows that did not go into them.

use std::collections::BTreeMap;

use super::engine_files::machine_costs;
use super::fits::Fits;
use super::rows::EngineRows;
use rooflined_models::transformer::Phase;
use rooflined_predict::costs::EngineCosts;
use rooflined_predict::learning::anchor::{NORMAL_90, Observation, RunPoint, Subject, posterior, residual};

/// A row predicted from other runs of the same model.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    /// ln(predicted / measured).
    pub error: f64,
    /// Half of the 90 % interval, as a logarithm.
    pub log_half_width: f64,
    /// Whether the run that it was carried from had another number of SMs.
    pub gated: bool,
}

/// What may differ between a row and the runs that it is predicted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// The power mode: from each one run, to each other.
    Mode,
    /// The context: likewise.
    Context,
    /// The batch: from the smallest, the largest and the one between, to all others.
    Batch,
}

/// Rows of models that were left out of the fit, predicted from other runs of the same model.
#[must_use]
pub fn carried(fits: &Fits<'_>, along: Along) -> Vec<Carried> {
    let mut carried = Vec::new();
    for (engine, model, fitted) in fits.without_models() {
        for group in groups(engine, model, along) {
            let costs = machine_costs(engine.engine, fitted, &engine.samples[group[0]]);
            carry(engine, &group, along, &costs, &mut carried);
        }
    }
    carried
}

/// Places of the rows of a model that differ only along one thing, in groups of two and more.
fn groups(engine: &EngineRows, model: &str, along: Along) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in engine.rows.iter().enumerate() {
        if row.model != model || row.phase != Phase::Decode || (along != Along::Batch && row.batch != 1) {
            continue;
        }
        let (mut mode, mut context, mut batch) =
            (row.mode.clone(), row.context_tokens.to_string(), row.batch.to_string());
        match along {
            Along::Mode => mode.clear(),
            Along::Context => context.clear(),
            Along::Batch => batch.clear(),
        }
        let fixed = format!(
            "{} {} {} {} {mode} {context} {batch}",
            row.hardware, row.source, row.format, row.kv_format
        );
        groups.entry(fixed).or_default().push(index);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

fn carry(
    engine: &EngineRows,
    group: &[usize],
    along: Along,
    costs: &EngineCosts,
    carried: &mut Vec<Carried>,
) {
    let value = |index: usize| -> u64 {
        let row = &engine.rows[index];
        match along {
            Along::Mode => engine.samples[index].machine.cycles.to_bits(),
            Along::Context => row.context_tokens,
            Along::Batch => row.batch,
        }
    };
    if along == Along::Batch {
        let mut sorted = group.to_vec();
        sorted.sort_by_key(|index| value(*index));
        sorted.dedup_by_key(|index| value(*index));
        if sorted.len() < 4 {
            return;
        }
        // The middle one in the logarithm.
        let middle = f64::midpoint(ln(value(sorted[0])), ln(value(sorted[sorted.len() - 1])));
        let inner = &sorted[1..sorted.len() - 1];
        let off = |index: usize| (ln(value(index)) - middle).abs();
        let Some(centre) = inner.iter().copied().min_by(|a, b| off(*a).total_cmp(&off(*b))) else { return };
        let known = [sorted[0], centre, sorted[sorted.len() - 1]];
        for &to in sorted.iter().filter(|index| !known.contains(index)) {
            carried.extend(predicted(engine, &known, to, costs));
        }
        return;
    }
    for &from in group {
        for &to in group.iter().filter(|to| value(**to) != value(from)) {
            carried.extend(predicted(engine, &[from], to, costs));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of sequences")]
fn ln(value: u64) -> f64 {
    (value as f64).ln()
}

/// One row from some others, by the same steps as an answer of the daemon with observations.
fn predicted(engine: &EngineRows, from: &[usize], to: usize, costs: &EngineCosts) -> Option<Carried> {
    let observations: Vec<Observation> = from.iter().map(|index| engine.observation(*index)).collect();
    let observations: Vec<&Observation> = observations.iter().collect();
    let (row, sample) = (&engine.rows[to], &engine.samples[to]);
    let updated = posterior(costs, &observations);
    let format = row.format.key();
    let subject = Subject { engine: row.engine, model: &row.model, format };
    let place = RunPoint::new(row.batch, row.context_tokens, &sample.machine);
    let residual = residual(&updated, &observations, subject, row.phase, &place)?;
    let floor = sample.floor().get().ln();
    let time = (sample.predicted(&updated.log).get().ln() + residual.log_factor).max(floor);
    let sm = |index: usize| engine.samples[index].roofline.workers;
    Some(Carried {
        error: time - sample.log_time,
        log_half_width: NORMAL_90 * residual.log_sd,
        gated: from.iter().any(|index| sm(*index) != sm(to)),
    })
}
