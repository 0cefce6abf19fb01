//! The rule of thumb that predictions are held against: a constant times the bytes that a run reads over the bandwidth of the data sheet.
//!
//! The constant is the median of the rows of a group: one kind of machine, engine, kind of model and what was asked. Where it is
//! nearer than the formula, predictions use it ([`Scalar::DenseRule`], [`Scalar::ExpertRule`]).

use std::collections::BTreeMap;

use super::rows::{EngineRows, Row};
use rooflined_models::architecture::FeedForward;
use rooflined_models::registry::models;
use rooflined_models::transformer::Phase;
use rooflined_predict::Engine;
use rooflined_predict::costs::{Coefficient, Scalar};
use rooflined_predict::learning::conformal::quantile;
use rooflined_predict::learning::fit::Fitted;
use rooflined_predict::step::DEPTH_TOKENS;

/// How far a constant may be off for a machine: what its own runs move it by.
const RULE_LOG_SD: f64 = 0.1;
/// A group with fewer rows says little.
pub const LEAST_ROWS: usize = 10;

/// What is asked of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Decode,
    Depth,
    Several,
    Prompt,
}

impl Asked {
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Depth => "decode at depth",
            Self::Several => "several sequences",
            Self::Prompt => "prompt",
        }
    }

    const fn of(row: &Row) -> Self {
        match (row.phase, row.batch) {
            (Phase::Prefill, _) => Self::Prompt,
            (_, 2..) => Self::Several,
            _ if row.context_tokens >= DEPTH_TOKENS => Self::Depth,
            _ => Self::Decode,
        }
    }
}

/// Machines, an engine, a kind of model and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub is_card: bool,
    pub engine: Engine,
    pub is_mixture: bool,
    pub asked: Asked,
}

impl Group {
    #[must_use]
    pub fn of(engine: &EngineRows, index: usize) -> Self {
        let row = &engine.rows[index];
        let known = models().get(&row.model);
        let is_mixture = known.is_ok_and(|model| {
            let mut layers = model.architecture.layers.iter();
            layers.any(|layer| matches!(layer.feed_forward, FeedForward::Experts { .. }))
        });
        let is_card = engine.cards[engine.samples[index].machine_index];
        Self { is_card, engine: row.engine, is_mixture, asked: Asked::of(row) }
    }

    #[must_use]
    pub fn words(self) -> String {
        format!(
            "{}, {}, {}, {}",
            if self.is_card { "cards" } else { "boards" },
            self.engine.key(),
            if self.is_mixture { "mixtures" } else { "dense" },
            self.asked.words()
        )
    }

    /// Whether predictions may use the rule: of one sequence at depth, the one part that rises with the bytes alone; and on
    /// boards, between which no order has to hold as it has between cards.
    #[must_use]
    pub fn may_have_rule(self) -> bool {
        self.asked == Asked::Depth && !self.is_card
    }

    const fn rule(self) -> Scalar {
        if self.is_mixture { Scalar::ExpertRule } else { Scalar::DenseRule }
    }
}

/// ln(measured seconds / seconds to read the bytes at the bandwidth of the data sheet).
fn log_slowness(engine: &EngineRows, index: usize) -> f64 {
    let sample = &engine.samples[index];
    let bytes: f64 = sample.steps.iter().map(|part| part.step.cost().0.get() * part.times).sum();
    sample.log_time - (bytes / sample.machine.memory.get()).ln()
}

/// Medians of the slowness of rows, by group, and by what is asked for groups that have none.
#[derive(Default)]
pub struct Thumb {
    groups: BTreeMap<Group, Vec<f64>>,
    asked: BTreeMap<Asked, Vec<f64>>,
}

impl Thumb {
    #[must_use]
    pub fn of<'a>(rows: impl Iterator<Item = (&'a EngineRows, usize)>) -> Self {
        let mut thumb = Self::default();
        for (engine, index) in rows {
            let (group, slowness) = (Group::of(engine, index), log_slowness(engine, index));
            thumb.groups.entry(group).or_default().push(slowness);
            thumb.asked.entry(group.asked).or_default().push(slowness);
        }
        thumb.groups.values_mut().chain(thumb.asked.values_mut()).for_each(|of| of.sort_by(f64::total_cmp));
        thumb
    }

    /// ln(what the rule says / measured) of a row.
    #[must_use]
    pub fn error(&self, engine: &EngineRows, index: usize) -> f64 {
        let group = Group::of(engine, index);
        let known = self.groups.get(&group).or_else(|| self.asked.get(&group.asked));
        known.map_or(f64::INFINITY, |slowness| quantile(slowness, 0.5)) - log_slowness(engine, index)
    }
    /// Makes a fit of an engine use the rule for a group on the machines that have a row of it.
    pub fn set(&self, rule: Group, engine: &EngineRows, fitted: &mut Fitted) {
        let Some(slowness) = self.groups.get(&rule) else { return };
        let place = Coefficient::Scalar(rule.rule()).index();
        if rule.engine != engine.engine {
            return;
        }
        for index in (0..engine.rows.len()).filter(|index| Group::of(engine, *index) == rule) {
            let machine = engine.samples[index].machine_index;
            fitted.difference[machine][place] = quantile(slowness, 0.5).max(0.0);
            fitted.difference_sd[machine][place] = RULE_LOG_SD;
        }
    }
}

/// Every row.
pub fn all(engines: &[EngineRows]) -> impl Iterator<Item = (&EngineRows, usize)> {
    engines.iter().flat_map(|engine| (0..engine.rows.len()).map(move |index| (engine, index)))
}
