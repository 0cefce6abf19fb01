//! Rates that others published: the rows that engine costs are fitted to and judged by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::{Kind, Registry};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Seconds;
use rooflined_models::registry::Models;
use rooflined_models::transformer::{Phase, Request, Run};
use rooflined_predict::Engine;
use rooflined_predict::costs::{
    ASSUMED_NO_DEARER, ASSUMED_ORDER, Build, COEFFICIENTS, Coefficient, Coefficients, EFFECTS, Effect,
    Family, Part, chunk_tokens, recipe,
};
use rooflined_predict::learning::anchor::{Observation, repeated};
use rooflined_predict::learning::fit::{Fitted, Prior, Sample, Spreads, fit};
use rooflined_predict::power::Rails;
use rooflined_predict::step::{Machine, depth};

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name in the table.
    pub id: String,
    /// Key in the registry of hardware.
    pub hardware: String,
    /// Power mode, as the table names it; empty where there is none.
    pub mode: String,
    /// Clocks and SMs where the table has them.
    pub point: OperatingPoint,
    /// Inference engine whose kernels run.
    pub engine: Engine,
    pub build: Build,
    /// The month in which the row came into the table.
    pub added: String,
    /// Key in the registry of models.
    pub model: String,
    /// Storage of the weights.
    pub format: WeightFormat,
    /// Storage of keys and values.
    pub kv_format: WeightFormat,
    pub phase: Phase,
    pub batch: u64,
    /// Tokens in the cache: of a decode in the mean over what it generated.
    pub context_tokens: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer where the rate counts the time of the prompt too; else 0.
    pub output_tokens: u64,
    /// Over all sequences.
    pub tokens_per_s: f64,
    /// Power while it ran.
    pub power_w: Option<f64>,
    pub source: String,
    /// What the meter covered; `None` where the table does not say, and the power is of no use.
    pub rails: Option<Rails>,
    /// What the same meter showed of the idle board.
    pub idle_w: Option<f64>,
    /// The power limit of a card.
    pub limit_w: Option<f64>,
}

impl Row {
    /// What was asked of the model.
    #[must_use]
    pub const fn request(&self) -> Request {
        let decode =
            Request { batch: self.batch, kv_cache: self.kv_format, ..Request::decode(self.context_tokens) };
        match self.phase {
            Phase::Prefill => Request {
                phase: Phase::Prefill,
                prompt_tokens: self.prompt_tokens,
                output_tokens: 0,
                usual_chunk_tokens: chunk_tokens(self.engine),
                ..decode
            },
            Phase::Serve => Request {
                phase: Phase::Serve,
                prompt_tokens: self.prompt_tokens,
                output_tokens: self.output_tokens,
                usual_chunk_tokens: chunk_tokens(self.engine),
                ..decode
            },
            Phase::Decode => decode,
        }
    }

    /// What predictions of it err in.
    #[must_use]
    pub fn part(&self) -> Part {
        match Part::of(self.batch, if self.phase == Phase::Prefill { 1.0 } else { 0.0 }) {
            Part::Decode if self.depth() > 0.5 => Part::Depth,
            part => part,
        }
    }

    /// How much of a decode is at depth.
    #[must_use]
    pub fn depth(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of tokens")]
        depth(self.context_tokens as f64)
    }

    /// Tokens that one run makes or reads.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.request().tokens()
    }

    /// Whether its kernels are the experimental one- and two-bit ones, which differ from version to version.
    #[must_use]
    pub const fn experimental(&self) -> bool {
        matches!(self.format, WeightFormat::Q1_0 | WeightFormat::Q2_0)
    }
}

/// All rows of one engine, ready to be fitted.
#[derive(Debug, Clone)]
pub struct EngineRows {
    pub engine: Engine,
    pub rows: Vec<Row>,
    /// The same as samples; the machine index is the place in `machines`.
    pub samples: Vec<Sample>,
    /// Keys of the machines.
    pub machines: Vec<String>,
    /// Their compute capabilities.
    pub capabilities: Vec<Option<(u32, u32)>>,
    /// Which of them are cards.
    pub cards: Vec<bool>,
}

/// Rows by engine. A row whose hardware or model is unknown is left out and named.
#[must_use]
pub fn prepare(rows: &[Row], hardware: &Registry, models: &Models) -> (Vec<EngineRows>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut engines: BTreeMap<Engine, EngineRows> = BTreeMap::new();
    for row in rows {
        match sample(row, hardware, models) {
            Ok(mut sample) => {
                let of = engines.entry(row.engine).or_insert_with(|| EngineRows {
                    engine: row.engine,
                    rows: Vec::new(),
                    samples: Vec::new(),
                    machines: Vec::new(),
                    capabilities: Vec::new(),
                    cards: Vec::new(),
                });
                let capability = hardware.get(&row.hardware).and_then(|known| known.compute_capability);
                sample.machine_index =
                    of.machine(&row.hardware, capability, sample.effects[Effect::Card as usize]);
                of.rows.push(row.clone());
                of.samples.push(sample);
            }
            Err(why) => left_out.push(format!("{}: {why}", row.id)),
        }
    }
    let mut engines: Vec<EngineRows> = engines.into_values().collect();
    engines.iter_mut().for_each(EngineRows::weigh);
    (engines, left_out)
}

fn sample(row: &Row, hardware: &Registry, models: &Models) -> Result<Sample, String> {
    let known = hardware.get(&row.hardware).ok_or_else(|| format!("no hardware {:?}", row.hardware))?;
    let roofline = datasheet(known, &row.point);
    let machine = Machine::of(&roofline).ok_or("its hardware has no GPU")?;
    let model = models.get(&row.model).map_err(|error| error.to_string())?;
    let model = model.model(recipe(row.engine, row.format));
    let run = Run::new(&model, &row.request()).map_err(|error| error.to_string())?;
    let steps = repeated(row.engine, &model, &run);
    let log_time = (row.tokens() / row.tokens_per_s).ln();
    if !log_time.is_finite() {
        return Err("its rate is no positive number".to_owned());
    }
    let mut effects = [false; EFFECTS];
    effects[Effect::Card as usize] = known.kind == Kind::Discrete;
    effects[Effect::Early as usize] = row.build == Build::Early;
    Ok(Sample {
        steps,
        machine,
        roofline: Arc::new(roofline),
        machine_index: 0,
        effects,
        log_time,
        weight: 1.0,
    })
}

impl EngineRows {
    fn machine(&mut self, key: &str, capability: Option<(u32, u32)>, is_card: bool) -> usize {
        self.machines.iter().position(|known| known == key).unwrap_or_else(|| {
            self.machines.push(key.to_owned());
            self.capabilities.push(capability);
            self.cards.push(is_card);
            self.machines.len() - 1
        })
    }

    /// Rows of one model in one mode of one machine with builds of one time say much the same: together they weigh as the root of their number.
    fn weigh(&mut self) {
        let key = |row: &Row| {
            (
                row.hardware.clone(),
                row.model.clone(),
                row.mode.clone(),
                row.phase as u8,
                row.build == Build::Early,
            )
        };
        let mut counts: BTreeMap<_, f64> = BTreeMap::new();
        for row in &self.rows {
            *counts.entry(key(row)).or_default() += 1.0;
        }
        for (row, sample) in self.rows.iter().zip(&mut self.samples) {
            sample.weight = 1.0 / counts[&key(row)].sqrt();
        }
    }

    /// The fit of the rows that `keep` says, starting from `from`.
    #[must_use]
    pub fn fit(&self, keep: impl Fn(&Row) -> bool, from: Option<&Fitted>) -> Fitted {
        let kept: Vec<Sample> = self
            .rows
            .iter()
            .zip(&self.samples)
            .filter(|(row, _)| keep(row))
            .map(|(_, sample)| sample.clone())
            .collect();
        fit(&kept, self.machines.len(), &assumed(), &spreads(), from)
    }

    /// Both of [`fit`](Self::fit) and [`in_order`](Self::in_order), starting from `from`.
    #[must_use]
    pub fn fit_ordered(&self, keep: impl Fn(&Row) -> bool, from: &Fitted) -> Fitted {
        self.in_order(&keep, &self.fit(&keep, Some(from)))
    }

    /// `fitted`, with families in [`ASSUMED_ORDER`] and [`ASSUMED_NO_DEARER`] on the typical machine and on those where no
    /// row that `keep` says is stored in the one that moves. A family raises others only where a row of the engine on a
    /// machine of that compute capability is stored in it.
    #[must_use]
    pub fn in_order(&self, keep: impl Fn(&Row) -> bool, fitted: &Fitted) -> Fitted {
        let measured: BTreeSet<(usize, Family)> = (0..self.rows.len())
            .filter(|index| keep(&self.rows[*index]))
            .map(|index| (self.samples[index].machine_index, self.family(index)))
            .collect();
        let raised = |mut log: Coefficients, machine: Option<usize>| {
            for (less, more) in ASSUMED_ORDER {
                let known = measured.iter().any(|(of, family)| {
                    *family == less
                        && machine.is_none_or(|own| self.capabilities[own] == self.capabilities[*of])
                });
                if known && !machine.is_some_and(|machine| measured.contains(&(machine, more))) {
                    let [less, more] = [less, more].map(|family| Coefficient::Cycles(family).index());
                    log[more] = log[more].max(log[less]);
                }
            }
            for (less, more) in ASSUMED_NO_DEARER {
                if !machine.is_some_and(|machine| measured.contains(&(machine, less))) {
                    let [less, more] = [less, more].map(|family| Coefficient::Cycles(family).index());
                    log[less] = log[less].min(log[more]);
                }
            }
            log
        };
        let difference = |a: Coefficients, b: Coefficients| {
            let mut difference = a;
            difference.iter_mut().zip(b).for_each(|(a, b)| *a -= b);
            difference
        };
        let mut ordered = Fitted { typical: raised(fitted.typical, None), ..fitted.clone() };
        let card = raised(fitted.typical_with(CARD), None);
        ordered.effects[Effect::Card as usize] = difference(card, ordered.typical);
        for (machine, is_card) in self.cards.iter().enumerate() {
            let effects = current(*is_card);
            let own = raised(fitted.on(machine, effects), Some(machine));
            ordered.difference[machine] = difference(own, ordered.typical_with(effects));
        }
        ordered
    }

    /// What most weights of a row are stored in.
    #[must_use]
    pub fn family(&self, index: usize) -> Family {
        self.samples[index].steps.first().map_or(Family::Plain, |part| part.step.main_family())
    }

    /// ln(predicted / measured) of a row.
    #[must_use]
    pub fn error(&self, index: usize, log: &Coefficients) -> f64 {
        let sample = &self.samples[index];
        sample.predicted(log).get().ln() - sample.log_time
    }

    /// What the other machines of a machine's silicon generation differ by from a typical one.
    #[must_use]
    pub fn siblings(&self, machine: &str, fitted: &Fitted) -> Vec<Coefficients> {
        let generation = |key: &str| {
            let place = self.machines.iter().position(|known| known == key)?;
            self.capabilities[place]
        };
        let others = self.machines.iter().zip(&fitted.difference).filter(|(key, _)| *key != machine);
        let own = generation(machine);
        others.filter(|(key, _)| own.is_some() && generation(key) == own).map(|(_, log)| *log).collect()
    }

    /// A row as if it had been observed.
    #[must_use]
    pub fn observation(&self, index: usize) -> Observation {
        let (row, sample) = (&self.rows[index], &self.samples[index]);
        Observation {
            cpu: None,
            engine: row.engine,
            model: row.model.clone(),
            format: row.format.key().to_owned(),
            hardware: Some(row.hardware.clone()),
            mode: Some(row.mode.clone()),
            phase: row.phase,
            batch: row.batch,
            context_tokens: row.context_tokens,
            prompt_tokens: if row.phase == Phase::Decode { 0 } else { row.prompt_tokens },
            steps: sample.steps.clone(),
            machine: sample.machine,
            roofline: Arc::clone(&sample.roofline),
            time: Seconds(sample.log_time.exp()),
        }
    }

    /// Keys of the models, each once, in order.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = self.rows.iter().map(|row| row.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }
}

/// Before any measurement of an engine.
#[must_use]
pub fn assumed() -> Prior {
    let (mut mean, mut sd) = ([0.0; COEFFICIENTS], [0.0; COEFFICIENTS]);
    for coefficient in Coefficient::all() {
        let (value, spread) = coefficient.prior();
        mean[coefficient.index()] = value.ln();
        sd[coefficient.index()] = spread;
    }
    Prior { mean, sd }
}

/// How far machines, kinds of machines and builds lie from each other.
#[must_use]
pub fn spreads() -> Spreads {
    let mut spreads = Spreads::NONE;
    for coefficient in Coefficient::all() {
        let place = coefficient.index();
        spreads.machines[place] = coefficient.device_spread();
        for (effect, (factor, spread)) in spreads.effects.iter_mut().zip(coefficient.effects()) {
            (effect.mean[place], effect.sd[place]) = (factor.ln(), spread);
        }
    }
    spreads
}

/// The effects in a card with a current build.
pub const CARD: [bool; EFFECTS] = current(true);

/// Those in a machine with a current build.
#[must_use]
pub const fn current(is_card: bool) -> [bool; EFFECTS] {
    let mut effects = [false; EFFECTS];
    effects[Effect::Card as usize] = is_card;
    effects
}

/// A row and how far its prediction was off.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    pub row: &'a Row,
    /// What most of its weights are stored in.
    pub family: Family,
    /// ln(predicted / measured).
    pub error: f64,
}
