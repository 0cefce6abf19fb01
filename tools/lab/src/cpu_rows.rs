//! Measured runs of engines on CPUs: `tools/lab/data/cpu_*.csv`.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::in_words;
use rooflinectl::failure::Failure;
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use rooflined_models::model::Model;
use rooflined_models::recipe::{Mix, Recipe};
use rooflined_models::registry::models;
use rooflined_models::transformer::{Phase, Request};
use rooflined_predict::Engine;
use rooflined_predict::cpu::{Host, Processor};
use rooflined_predict::learning::models::Measured;

/// Working set of the reads beside each run.
const READ_BYTES: f64 = 268_435_456.0;
/// A fork and join of the cores that takes longer crosses a cache.
const FAR_NS: f64 = 300.0;
/// Bandwidths beside one run that differ by more: the machine changed under it.
const STEADY: f64 = 1.3;
/// CPUs taken by others that disturb a run: barriers wait for the slowest thread.
const TAKEN: f64 = 0.3;
/// Operations of a core and cycle, for a bound that no run comes near.
const FLOPS_PER_CYCLE: f64 = 512.0;

const WANTED: &str = "give a CSV file with the columns engine, processor, cores, model, format, n_prompt, n_gen, depth, batch, \
                      threads, tokens_per_s, clock_ghz, forkjoin_ns, and read1_gbs and read_all_gbs before and after (_0, _1), \
                      such as tools/lab/data/cpu_llama_cpp.csv";

/// A measured run: a line of the file. Columns that are not named here are not read.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
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
    #[serde(default)]
    tool: String,
    /// CPUs that others kept busy, and that the host took.
    other_cpu: Option<f64>,
    steal: Option<f64>,
}

impl Line {
    /// Whether the machine was the same before and after, and nobody else's meanwhile.
    pub fn steady(&self) -> bool {
        let near = |a: f64, b: f64| (a / b).max(b / a) < STEADY;
        // That tool keeps a CPU busy with its own log.
        let others = if self.tool == "llama-batched-bench" { None } else { self.other_cpu };
        let taken = others.unwrap_or(0.0) + self.steal.unwrap_or(0.0);
        taken < TAKEN
            && near(self.read1_gbs_0, self.read1_gbs_1)
            && near(self.read_all_gbs_0, self.read_all_gbs_1)
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
        }
    }

    pub fn measured(&self) -> Option<Measured> {
        let request = if self.n_prompt > 0 && self.n_gen == 0 {
            Request {
                context_tokens: self.depth,
                batch: self.batch,
                chunk_tokens: rooflined_predict::costs::chunk_tokens(self.engine),
                ..Request::prefill(self.n_prompt)
            }
        } else {
            Request { batch: self.batch, output_tokens: self.n_gen, ..Request::decode(self.depth) }
        };
        // Frameworks keep the cache in the type of the activations, llama.cpp in 16 bits.
        let kv_cache = match self.engine {
            Engine::LlamaCpp => request.kv_cache,
            _ if self.format == WeightFormat::Bf16.key() => WeightFormat::Bf16,
            _ => WeightFormat::Fp32,
        };
        let request = Request { activations: WeightFormat::Fp32, kv_cache, ..request };
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
                costs: None,
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

/// The lines of a file.
pub fn read(file: &Path) -> Result<Vec<Line>, Failure> {
    let named = |what: String| Failure::failed(format!("{}: {what}", file.display()), WANTED);
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .map_err(|error| named(format!("cannot be read: {}", in_words(&error))))?;
    let lines: Vec<Line> =
        reader.deserialize().collect::<Result<_, _>>().map_err(|error| named(in_words(&error)))?;
    if runs(&lines).is_empty() {
        return Err(named("has no steady run of a known model".to_owned()));
    }
    Ok(lines)
}

/// The runs during which the machine stayed the same, of models that are known.
pub fn runs(lines: &[Line]) -> Vec<Measured> {
    lines.iter().filter(|line| line.steady()).filter_map(Line::measured).collect()
}

/// A model of the registry, or the first layers of one: `tinyllama-1.1b-cut6`.
fn model(name: &str, format: &str) -> Option<Model> {
    let recipe: Recipe = format.parse().ok()?;
    let recipe = match recipe {
        // Files have the head in the format of the rest.
        Recipe::Checkpoint(format) => {
            Mix::of(format).map_or(Recipe::WithHead { weights: format, head: format }, Recipe::Gguf)
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
