//! `evaluate cpu`: an engine on CPUs, each model predicted without its own runs, after runs of others, and after one of its own.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{in_words, percent};
use ctl::failure::Failure;
use ctl::output::{Format, Printer};
use ctl::table::Table;
use predict::Engine;
use predict::cpu::{Host, Processor};
use predict::learning::conformal::quantile;
use predict::learning::models::{Measured, ObservedRuns};
use roofline::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline};
use roofline::precision::{Precision, WeightFormat};
use roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use roofline::workload::model::Model;
use roofline::workload::recipe::Recipe;
use roofline::workload::registry::models;
use roofline::workload::transformer::{Phase, Request};

/// Runs of other models before the next is predicted.
const OTHERS: [usize; 2] = [1, 3];
/// Working set of the reads beside each run.
const READ_BYTES: f64 = 268_435_456.0;
/// A fork and join of the cores that takes longer crosses a cache.
const FAR_NS: f64 = 300.0;
/// Bandwidths beside one run that differ by more: the machine changed under it.
const STEADY: f64 = 1.3;
/// Operations of a core and cycle, for a bound that no run comes near.
const FLOPS_PER_CYCLE: f64 = 512.0;

const WANTED: &str = "give a CSV file with the columns engine, processor, cores, model, format, n_prompt, n_gen, depth, batch, \
                      threads, tokens_per_s, clock_ghz, forkjoin_ns, and read1_gbs and read_all_gbs before and after (_0, _1), \
                      such as tests/lab/data/cpu_llama_cpp.csv";

/// A measured run: a line of the file. Columns that are not named here are not read.
#[derive(Debug, Clone, Deserialize)]
struct Line {
    engine: Engine,
    processor: Processor,
    cores: u32,
    model: String,
    format: String,
    n_prompt: u64,
    n_gen: u64,
    depth: u64,
    batch: u64,
    threads: u32,
    tokens_per_s: f64,
    clock_ghz: f64,
    forkjoin_ns: f64,
    read1_gbs_0: f64,
    read_all_gbs_0: f64,
    read1_gbs_1: f64,
    read_all_gbs_1: f64,
}

impl Line {
    /// Whether the machine was the same before and after.
    fn steady(&self) -> bool {
        let near = |a: f64, b: f64| (a / b).max(b / a) < STEADY;
        near(self.read1_gbs_0, self.read1_gbs_1) && near(self.read_all_gbs_0, self.read_all_gbs_1)
    }

    fn roofline(&self) -> Roofline {
        let mean = |a: f64, b: f64| BytesPerSecond((a * b).sqrt() * 1e9);
        let exact = |value| Ceiling { value, low: value, high: value, provenance: Provenance::Measured };
        let point = |threads, read| BandwidthPoint { working_set: Bytes(READ_BYTES), threads, read };
        let all = mean(self.read_all_gbs_0, self.read_all_gbs_1);
        let clock = self.clock_ghz * 1e9;
        let peak = FLOPS_PER_CYCLE * f64::from(self.cores) * clock;
        Roofline {
            // Half of a file may lie in the last-level cache, so the upper end is open.
            bandwidth: Ceiling { value: all, low: all, high: all * 2.0, provenance: Provenance::Measured },
            memory_limit: None,
            pull_limit: None,
            curve: vec![point(1, mean(self.read1_gbs_0, self.read1_gbs_1)), point(self.cores, all)],
            copy: None,
            triad: None,
            compute: [(Precision::Int8, exact(peak).map(FlopsPerSecond))].into(),
            launch: exact(self.forkjoin_ns * 1e-9).map(Seconds),
            ramp: Seconds::ZERO,
            workers: self.cores,
            clock: Some(Hertz(clock)),
            whole_clock: None,
        }
    }

    fn measured(&self) -> Option<Measured> {
        let request = if self.n_prompt > 0 && self.n_gen == 0 {
            Request {
                context_tokens: self.depth,
                batch: self.batch,
                chunk_tokens: predict::costs::chunk_tokens(self.engine),
                ..Request::prefill(self.n_prompt)
            }
        } else {
            Request { batch: self.batch, output_tokens: self.n_gen, ..Request::decode(self.depth) }
        };
        let request = Request { activations: WeightFormat::Fp32, ..request };
        let tokens = if request.phase == Phase::Prefill { self.n_prompt } else { self.n_gen };
        #[expect(clippy::cast_precision_loss, reason = "counts of tokens")]
        let time = (tokens * self.batch) as f64 / self.tokens_per_s;
        Some(Measured {
            engine: self.engine,
            name: self.model.clone(),
            format: self.format.clone(),
            model: Arc::new(model(&self.model, &self.format)?),
            request,
            roofline: Arc::new(self.roofline()),
            kernels: None,
            cpu: Some(Host {
                processor: self.processor,
                cores: self.cores,
                threads: Some(self.threads),
                far: self.forkjoin_ns > FAR_NS,
            }),
            memory_ratio: None,
            hardware: None,
            mode: None,
            time: (time.is_finite() && time > 0.0).then_some(Seconds(time))?,
            power: None,
            power_limit: None,
        })
    }
}

/// A model of the registry, or the first layers of one: `tinyllama-1.1b-cut6`.
fn model(name: &str, format: &str) -> Option<Model> {
    let recipe: Recipe = format.parse().ok()?;
    let recipe = match recipe {
        // Files have the head in the format of the rest.
        Recipe::Checkpoint(format) => {
            roofline::workload::recipe::Mix::of(format).map_or(recipe, Recipe::Gguf)
        }
        _ => recipe,
    };
    let (known, layers) = match name.rsplit_once("-cut") {
        Some((known, layers)) => (known, layers.parse::<usize>().ok()),
        None => (name, None),
    };
    let mut known = models().get(known).ok()?.clone();
    known.architecture.layers.truncate(layers.unwrap_or(usize::MAX));
    Some(known.model(recipe))
}

/// How good predictions of one kind were.
#[derive(Debug, Clone, Serialize)]
struct Judged {
    runs: usize,
    median_error_ratio: f64,
    p90_error_ratio: f64,
    /// Part of the runs inside the 90 % interval.
    inside_ratio: f64,
    /// Median of the upper end over the middle, less one.
    half_width_ratio: f64,
}

impl Judged {
    /// `None` without predictions.
    fn of(outcomes: &[Outcome]) -> Option<Self> {
        let sorted = |value: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let errors = sorted(|outcome| outcome.error);
        #[expect(clippy::cast_precision_loss, reason = "counts of runs")]
        let share = |count: usize| count as f64 / outcomes.len() as f64;
        (!outcomes.is_empty()).then(|| Self {
            runs: outcomes.len(),
            median_error_ratio: quantile(&errors, 0.5),
            p90_error_ratio: quantile(&errors, 0.9),
            inside_ratio: share(outcomes.iter().filter(|outcome| outcome.inside).count()),
            half_width_ratio: quantile(&sorted(|outcome| outcome.half_width), 0.5),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Predicted over measured rate or the other way round, less one.
    error: f64,
    inside: bool,
    half_width: f64,
}

/// The prediction of a run after others; `None` where there is none.
fn outcome(known: &ObservedRuns, run: &Measured) -> Option<Outcome> {
    let time = known.predict(&run.asked()).ok()?.time;
    let log = (time.value / run.time).ln();
    Some(Outcome {
        error: log.abs().exp_m1(),
        inside: time.low <= run.time && run.time <= time.high,
        half_width: time.high / time.value - 1.0,
    })
}

fn taught<'a>(runs: impl Iterator<Item = &'a Measured>) -> ObservedRuns {
    let mut known = ObservedRuns::default().of("evaluation".into());
    let runs: Vec<Measured> = runs.cloned().collect();
    let _ = known.observe(&runs, 0.0);
    known
}

/// What was asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Decode { all_threads: bool },
    Batch,
    Prompt,
}

impl Asked {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Decode { all_threads: false }, "decode, one thread"),
        (Self::Decode { all_threads: true }, "decode, all threads"),
        (Self::Batch, "decode, several sequences"),
        (Self::Prompt, "prompt"),
    ];

    fn of(run: &Measured) -> Self {
        let threads = run.cpu.and_then(|host| host.threads).unwrap_or(1);
        match run.request.phase {
            Phase::Prefill => Self::Prompt,
            _ if run.request.batch > 1 => Self::Batch,
            _ => Self::Decode { all_threads: threads > 1 },
        }
    }
}

/// Every run of `runs` predicted after what `known` lets through for it.
fn judge(runs: &[Measured], asked: Asked, known: impl Fn(&Measured) -> Vec<ObservedRuns>) -> Option<Judged> {
    let of = runs.iter().filter(|run| Asked::of(run) == asked);
    let outcomes: Vec<Outcome> = of
        .flat_map(|run| known(run).iter().filter_map(|known| outcome(known, run)).collect::<Vec<_>>())
        .collect();
    Judged::of(&outcomes)
}

fn same_file(a: &Measured, b: &Measured) -> bool {
    a.name == b.name && a.format == b.format
}

/// `count` runs of other models, spread over all there are of them, in three ways.
fn of_others(runs: &[Measured], of: &Measured, count: usize) -> Vec<ObservedRuns> {
    let others: Vec<&Measured> = runs.iter().filter(|run| run.name != of.name).collect();
    if others.len() < count {
        return Vec::new();
    }
    (0..3)
        .map(|start| {
            let place = |index: usize| (start * 5 + index * others.len() / count) % others.len();
            taught((0..count).map(|index| others[place(index)]))
        })
        .collect()
}

/// One run of the same file with another context, batch, phase or number of threads, each in turn.
fn of_itself(runs: &[Measured], of: &Measured) -> Vec<ObservedRuns> {
    let decode = |run: &&Measured| run.request.phase == Phase::Decode && run.request.batch == 1;
    let others = runs.iter().filter(|run| same_file(run, of) && *run != of).filter(decode);
    others.map(|run| taught(std::iter::once(run))).collect()
}

/// `evaluate cpu FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let named = |what: String| Failure::failed(format!("{}: {what}", file.display()), WANTED);
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .map_err(|error| named(format!("cannot be read: {}", in_words(&error))))?;
    let lines: Vec<Line> =
        reader.deserialize().collect::<Result<_, _>>().map_err(|error| named(in_words(&error)))?;
    let runs: Vec<Measured> = lines.iter().filter(|line| line.steady()).filter_map(Line::measured).collect();
    if runs.is_empty() {
        return Err(named("has no steady run of a known model".to_owned()));
    }
    let refused = runs.iter().filter(|run| taught(std::iter::once(*run)).counts().is_empty()).count();
    let stages: Vec<(String, Vec<Option<Judged>>)> = stages(&runs);
    match printer.format {
        Format::Human => {
            let mut text = format!(
                "{} runs, {} left out because the machine changed beside them, {refused} refused as impossible\n",
                runs.len(),
                lines.len() - runs.len()
            );
            let mut table =
                Table::new(&["observed before", "asked", ">runs", ">median", ">90 %", ">inside", ">half-width"]);
            for (stage, judged) in &stages {
                for ((_, asked), judged) in Asked::ALL.iter().zip(judged) {
                    let Some(judged) = judged else { continue };
                    let cells = [
                        judged.median_error_ratio,
                        judged.p90_error_ratio,
                        judged.inside_ratio,
                        judged.half_width_ratio,
                    ];
                    let cells = cells.map(percent);
                    table.row([stage.clone(), (*asked).to_owned(), judged.runs.to_string()].into_iter().chain(cells));
                }
            }
            text.push_str(&table.render());
            printer.text(&text)
        }
        _ => printer.value(
            "evaluation",
            &json!({
                "runs": runs.len(),
                "unsteady": lines.len() - runs.len(),
                "refused": refused,
                "stages": stages
                    .iter()
                    .map(|(stage, judged)| json!({
                        "observed": stage,
                        "asked": Asked::ALL
                            .iter()
                            .zip(judged)
                            .filter_map(|((_, asked), judged)| Some(((*asked).to_owned(), json!(judged.as_ref()?))))
                            .collect::<serde_json::Map<_, _>>(),
                    }))
                    .collect::<Vec<_>>(),
            }),
        ),
    }
}

fn stages(runs: &[Measured]) -> Vec<(String, Vec<Option<Judged>>)> {
    let stage = |name: String, known: &dyn Fn(&Measured) -> Vec<ObservedRuns>| {
        (name, Asked::ALL.iter().map(|(asked, _)| judge(runs, *asked, known)).collect())
    };
    let nothing = taught(std::iter::empty());
    let mut stages = vec![stage("nothing".to_owned(), &|_| vec![nothing.clone()])];
    for count in OTHERS {
        let name =
            if count == 1 { "1 run of another model".to_owned() } else { format!("{count} runs of others") };
        stages.push(stage(name, &|run| of_others(runs, run, count)));
    }
    let mut names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let all: Vec<(&str, ObservedRuns)> =
        names.into_iter().map(|name| (name, taught(runs.iter().filter(|run| run.name != name)))).collect();
    stages.push(stage("all runs of others".to_owned(), &|run| {
        all.iter().filter(|(name, _)| *name == run.name).map(|(_, known)| known.clone()).collect()
    }));
    stages.push(stage("1 run of the file".to_owned(), &|run| of_itself(runs, run)));
    stages
}
