//! The command line: names and shapes. Values are checked here, so that a wrong one is a usage error that names it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::compare_models::{self, ModelWork};
use super::failure::Failure;
use super::input::{self, Kind, ModelArgs, OpArgs, PlaceArgs, ShapeArgs, Targets};
use super::output::Format;
use crate::calibration::PlanKind;
use crate::optimize::{Objective, Optimism};
use crate::precision::WeightFormat;
use crate::predict::Engine;
use crate::workload::recipe::Recipe;

/// Performance advice from rooflined: what this machine can do, and what would run best on it.
#[derive(Debug, Parser)]
#[command(name = "rooflinectl", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 infeasible, 4 denied, 5 reboot required, \
                          69 daemon unreachable, 75 try again.";

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The daemon's directory, or one of its .sock files [default: $XDG_RUNTIME_DIR/rooflined, /tmp/rooflined-UID,
    /// /run/rooflined]
    #[arg(long, global = true, value_name = "PATH", env = "ROOFLINED_SOCKET", hide_env_values = true)]
    pub socket: Option<PathBuf>,
    /// Run rooflinectl on HOST through ssh; paths then name files there
    #[arg(long, global = true, value_name = "HOST")]
    pub ssh: Option<String>,
    /// How to print the answer; json is the daemon's own
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Human)]
    pub output: Format,
    /// Print plain ASCII
    #[arg(long, global = true)]
    pub ascii: bool,
    /// How long to wait for an answer
    #[arg(long, global = true, value_name = "TIME", value_parser = input::timeout, default_value = "30s")]
    pub timeout: Duration,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The machine as it is right now
    Status,
    /// The machine as it is built, and where each value comes from
    Board,
    /// Ceilings and ridge points, drawn
    Roofline(RooflineArgs),
    /// How long an operation or a model takes, here or on other hardware
    Predict(PredictArgs),
    /// Predictions for every combination of shapes or models, formats, power modes, batches and contexts
    Sweep(SweepArgs),
    /// Theory beside measurement: runs operations now
    Compare(CompareArgs),
    /// Run one operation now
    Measure(MeasureArgs),
    /// What a measured time says: part of the ceiling reached, what limits it
    Analyze(AnalyzeArgs),
    /// Measure this machine's ceilings
    Calibrate(CalibrateArgs),
    /// The format and batch that meet a target
    Recommend(Box<RecommendArgs>),
    /// Report a measured time, to learn from
    Observe(ObserveArgs),
    /// Power modes
    #[command(subcommand)]
    Mode(ModeCommand),
    /// Run a command in a power mode that meets what it needs
    Hold(HoldArgs),
    /// Who holds the power mode to what
    Holds,
    /// What each format would lose on a file's own weights; needs no daemon
    QuantError(QuantErrorArgs),
    /// Engine costs from a table of published rates; needs no daemon
    FitEngines(FitEnginesArgs),
    /// Tiles of a matrix product on a GPU: waves, occupancy, what limits them; with --hardware it needs no daemon
    Tiling(TilingArgs),
    /// Coefficients of power from tables of published measurements; needs no daemon
    FitPower(FitPowerArgs),
    /// How far the models are off published measurements; needs no daemon
    #[command(subcommand)]
    Evaluate(EvaluateCommand),
    /// Follow what happens
    Watch(WatchArgs),
    /// Prometheus text
    Metrics,
    /// Find out why something does not work
    Doctor,
    /// Capture this board's files as one text, for a bug report
    Bundle(BundleArgs),
    /// The configuration that the daemon would use
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Known accelerators, their power modes and where each figure comes from; needs no daemon
    #[command(subcommand)]
    Hardware(HardwareCommand),
    /// Models: what they read for a token, in memory and in the cache
    #[command(subcommand)]
    Models(ModelsCommand),
    /// A complete tour with a private daemon: calibrate, draw, compare, ask; under a minute
    Demo(DemoArgs),
    /// Completions for a shell
    Completions {
        /// Whose
        shell: clap_complete::Shell,
    },
}

/// `roofline`
#[derive(Debug, Args)]
pub struct RooflineArgs {
    /// At this power mode instead of now
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Only this precision's ceiling
    #[arg(long, value_name = "PRECISION", value_parser = input::precision)]
    pub precision: Option<crate::precision::Precision>,
    /// Measure a few operations and put them into the plot (takes seconds; needs the control socket)
    #[arg(long)]
    pub measure: bool,
    /// Write the plot to FILE as SVG as well
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `predict`
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The operation or model.
    #[command(flatten)]
    pub op: OpArgs,
    /// What is asked of a model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How the weights are stored [default: fp16; a file's own]
    #[arg(long, value_parser = input::storage)]
    pub format: Option<String>,
    /// How the key/value cache is stored (attention, models)
    #[arg(long, value_name = "FORMAT", value_parser = input::format)]
    pub kv_format: Option<WeightFormat>,
    /// Columns at once (sequences for attention and models)
    #[arg(long, value_parser = input::count, allow_negative_numbers = true)]
    pub batch: Option<u64>,
    /// Whose kernels
    #[arg(long, value_parser = input::engine, default_value = "none")]
    pub engine: Engine,
    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Read one request a line from FILE (- for standard input), print one answer a line; lines that name hardware need
    /// no daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "batch", "kv_format", "format", "mode", "hardware"])]
    pub requests: Option<PathBuf>,
}

/// `sweep`
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// gemv or gemm; or models by key or path, with commas between
    #[arg(value_name = "WHAT", value_parser = input::targets)]
    pub what: Option<Targets>,
    /// One shape: gemv N K, gemm M N K
    #[arg(value_name = "SIZE", allow_negative_numbers = true)]
    pub dims: Vec<String>,
    /// Shapes: gemv 4096 (square) or 4096x1024; gemm 64 (M, with N = K = 4096) or 64x4096x1024
    #[arg(long, value_delimiter = ',', conflicts_with = "dims", allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    /// What is asked of models.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Formats [default: every one measured on this machine, or the usual ones]
    #[arg(long, value_delimiter = ',', value_parser = input::storage)]
    pub formats: Vec<String>,
    /// Columns at once; they replace the M of a GEMM [default: the shapes as they are]. Sequences of a model [default: 1]
    #[arg(long, value_delimiter = ',', value_parser = input::count, allow_negative_numbers = true)]
    pub batches: Vec<u64>,
    /// Tokens already in the cache (models) [default: 0]
    #[arg(long, value_delimiter = ',', value_parser = input::count_from_zero, allow_negative_numbers = true)]
    pub contexts: Vec<u64>,
    /// How the key/value cache is stored (models)
    #[arg(long, value_name = "FORMAT", value_parser = input::format)]
    pub kv_format: Option<WeightFormat>,
    /// Power modes [default: --mode]
    #[arg(long, value_delimiter = ',', conflicts_with = "mode")]
    pub modes: Vec<String>,
    /// Whose kernels
    #[arg(long, value_parser = input::engine, default_value = "none")]
    pub engine: Engine,
    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// `compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// gemv N K, gemm M N K; or models by key or path, of which a step is run with this program's kernels
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub what: Vec<String>,
    /// Shapes: gemv 4096 (square) or 4096x1024; gemm 64 (M, with N = K = 4096) or 64x4096x1024
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    /// Formats [default: fp32,fp16,bf16,int8,int4; a file's own]
    #[arg(long, value_delimiter = ',', value_parser = input::format)]
    pub formats: Vec<WeightFormat>,
    /// Sequences at once (models) [default: 1,8]
    #[arg(long, value_delimiter = ',', value_parser = input::count, allow_negative_numbers = true)]
    pub batches: Vec<u64>,
    /// Tokens already in the cache (models) [default: 0,1024]
    #[arg(long, value_delimiter = ',', value_parser = input::count_from_zero, allow_negative_numbers = true)]
    pub contexts: Vec<u64>,
    /// Go through these power modes, or all of them, and back; beside each measurement stands the prediction carried from
    /// the mode that is active now (needs control)
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    pub modes: Vec<String>,
}

impl CompareArgs {
    /// The models that are named; `None` where operations are, or nothing.
    ///
    /// # Errors
    /// A usage error that names the word which is neither, or an option that does not apply.
    pub fn models(&self) -> Result<Option<ModelWork>, Failure> {
        let first = self.what.first().map(String::as_str);
        if first.is_none_or(|word| Kind::from_str(word, true).is_ok()) {
            if !self.batches.is_empty() || !self.contexts.is_empty() {
                return Err(Failure::usage("--batches and --contexts belong to a model")
                    .with_hint("for example: compare model.gguf --batches 1,8 --contexts 0,1024"));
            }
            return Ok(None);
        }
        if !self.sizes.is_empty() || !self.modes.is_empty() {
            return Err(Failure::usage("--sizes and --modes belong to operations, not to a model"));
        }
        let or =
            |given: &[u64], usual: &[u64]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
        Ok(Some(ModelWork {
            models: self.what.iter().map(|word| compare_models::reference(word)).collect::<Result<_, _>>()?,
            formats: self.formats.clone(),
            batches: or(&self.batches, &compare_models::DEFAULT_BATCHES),
            contexts: or(&self.contexts, &compare_models::DEFAULT_CONTEXTS),
        }))
    }

    /// The operations that are named.
    ///
    /// # Errors
    /// Sizes that are given twice.
    pub fn shapes(&self) -> Result<ShapeArgs, Failure> {
        let (kind, dims) = self.what.split_first().map_or((None, &[][..]), |(kind, dims)| (Some(kind), dims));
        if !dims.is_empty() && !self.sizes.is_empty() {
            return Err(Failure::usage("sizes are given twice: in order and with --sizes"));
        }
        Ok(ShapeArgs {
            kind: kind.and_then(|kind| Kind::from_str(kind, true).ok()),
            dims: dims.to_vec(),
            sizes: self.sizes.clone(),
        })
    }
}

/// `measure`
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// The shapes.
    #[command(flatten)]
    pub shapes: ShapeArgs,
    /// Formats
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::format, default_value = "fp32")]
    pub formats: Vec<WeightFormat>,
    /// Also tell power and energy (runs each until the power meter has seen it: a second, or some with a slow meter)
    #[arg(long)]
    pub power: bool,
}

/// `analyze`
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// The operation or model.
    #[command(flatten)]
    pub op: OpArgs,
    /// What was asked of a model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How the weights are stored [default: fp16; a file's own]
    #[arg(long, value_parser = input::storage)]
    pub format: Option<String>,
    /// How the key/value cache is stored (attention, models)
    #[arg(long, value_name = "FORMAT", value_parser = input::format)]
    pub kv_format: Option<WeightFormat>,
    /// Columns at once (sequences for attention and models)
    #[arg(long, value_parser = input::count, allow_negative_numbers = true)]
    pub batch: Option<u64>,
    /// Whose kernels
    #[arg(long, value_parser = input::engine, default_value = "none")]
    pub engine: Engine,
    /// Where it ran.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Measured time of one run (of a model: one step, the prompt, or prompt and answer): 280us, 1.5ms
    #[arg(long, value_parser = input::seconds, required_unless_present = "tokens_per_s", allow_hyphen_values = true)]
    pub time: Option<f64>,
    /// Measured rate over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, conflicts_with = "time", allow_negative_numbers = true)]
    pub tokens_per_s: Option<f64>,
}

/// `calibrate`
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// The ceilings and the main formats only, about two seconds
    #[arg(long)]
    pub quick: bool,
    /// Stay until it has finished
    #[arg(long)]
    pub wait: bool,
    /// Run even though the machine is busy or hot
    #[arg(long)]
    pub force: bool,
}

impl CalibrateArgs {
    /// How thorough.
    #[must_use]
    pub const fn plan(&self) -> PlanKind {
        if self.quick { PlanKind::Quick } else { PlanKind::Full }
    }
}

/// `recommend`
#[derive(Debug, Args)]
pub struct RecommendArgs {
    /// The operation or model.
    #[command(flatten)]
    pub op: OpArgs,
    /// What is asked of a model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// What to make as good as possible
    #[arg(long, value_enum, default_value = "latency")]
    pub objective: ObjectiveArg,
    /// Longest time of one run: 1ms
    #[arg(long, value_name = "TIME", value_parser = input::seconds, allow_negative_numbers = true)]
    pub max_time: Option<f64>,
    /// Longest time of one token: 50ms
    #[arg(long, value_name = "TIME", value_parser = input::seconds, allow_negative_numbers = true)]
    pub max_time_per_token: Option<f64>,
    /// Longest time until the first token: 1s (models)
    #[arg(long, value_name = "TIME", value_parser = input::seconds, allow_negative_numbers = true)]
    pub max_time_to_first_token: Option<f64>,
    /// Fewest tokens (columns) per second over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, allow_negative_numbers = true)]
    pub min_tokens_per_s: Option<f64>,
    /// Most memory for weights, cache and activations
    #[arg(long, value_name = "BYTES", value_parser = input::positive, allow_negative_numbers = true)]
    pub max_memory_bytes: Option<f64>,
    /// Memory that has to stay available [default: a twentieth of all, at least 256 MiB]
    #[arg(long, value_name = "BYTES", value_parser = input::positive, allow_negative_numbers = true)]
    pub min_free_memory_bytes: Option<f64>,
    /// Most power: 15W
    #[arg(long, value_name = "POWER", value_parser = input::watts, allow_negative_numbers = true)]
    pub max_power: Option<f64>,
    /// Largest expected increase of perplexity: 0.03 is three per cent
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    pub max_quality_loss: Option<f64>,
    /// Formats to choose from [default: those measured here; a file's own; the engine's usual ones]
    #[arg(long, value_delimiter = ',', value_parser = input::storage)]
    pub formats: Vec<String>,
    /// Formats of the key/value cache to choose from (models) [default: fp16]
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', value_parser = input::format)]
    pub kv_formats: Vec<WeightFormat>,
    /// Power modes to choose from: names, all, or live for those that need no reboot [default: the one in force]
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    pub modes: Vec<String>,
    /// Worker threads to choose from, where the CPU is the accelerator: 1,2,4
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub threads: Vec<u32>,
    /// Sequences (columns) to choose from: 8, or 1..32
    #[arg(long, value_name = "RANGE", value_parser = input::batch_range, allow_negative_numbers = true)]
    pub batch: Option<(u64, u64)>,
    /// A mode that needs a reboot may be chosen
    #[arg(long)]
    pub allow_reboot: bool,
    /// How long it will run that way, over which entering a mode is spread [default: an hour]
    #[arg(long, value_name = "TIME", value_parser = input::seconds, allow_negative_numbers = true)]
    pub run_time: Option<f64>,
    /// Which end of the interval must meet the limits
    #[arg(long, value_enum, default_value = "pessimistic")]
    pub optimism: OptimismArg,
    /// Go on, and say when the machine has altered the answer and what it is then
    #[arg(long)]
    pub watch: bool,
    /// Whose kernels
    #[arg(long, value_parser = input::engine, default_value = "none")]
    pub engine: Engine,
    /// Where it is to run.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Decide for several workloads at once: a file with the body of POST /v1/recommend/joint (- for standard input); with
    /// --hardware it needs no daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "formats", "modes", "batch", "mode", "watch"])]
    pub joint: Option<PathBuf>,
}

/// `observe`
#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// The operation or model.
    #[command(flatten)]
    pub op: OpArgs,
    /// What was asked of a model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How the weights are stored [default: fp16; a file's own]
    #[arg(long, value_parser = input::storage)]
    pub format: Option<String>,
    /// How the key/value cache is stored (models)
    #[arg(long, value_name = "FORMAT", value_parser = input::format)]
    pub kv_format: Option<WeightFormat>,
    /// Power mode that a model ran in [default: the present one]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Columns at once (sequences for attention and models)
    #[arg(long, value_parser = input::count, allow_negative_numbers = true)]
    pub batch: Option<u64>,
    /// Whose kernels
    #[arg(long, value_parser = input::engine, default_value = "none")]
    pub engine: Engine,
    /// Measured time of one run: 280us, 1.5ms
    #[arg(long, value_parser = input::seconds, required_unless_present = "tokens_per_s", allow_negative_numbers = true)]
    pub time: Option<f64>,
    /// Measured columns per second over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, conflicts_with = "time", allow_negative_numbers = true)]
    pub tokens_per_s: Option<f64>,
    /// Measured power: 15W
    #[arg(long, value_name = "POWER", value_parser = input::watts, allow_negative_numbers = true)]
    pub power: Option<f64>,
}

/// `quant-error`
#[derive(Debug, Args)]
pub struct QuantErrorArgs {
    /// safetensors, GGUF or .npy
    pub file: PathBuf,
    /// Formats [default: the usual ones]
    #[arg(long, value_delimiter = ',', value_parser = input::format)]
    pub formats: Vec<WeightFormat>,
    /// Most weights read; larger files give whole rows at even strides
    #[arg(long, value_name = "N", value_parser = input::count, default_value = "4194304", allow_negative_numbers = true)]
    pub max_elements: u64,
}

/// `fit-engines`
#[derive(Debug, Args)]
pub struct FitEnginesArgs {
    /// CSV, one measured run a line
    pub data: PathBuf,
    /// Directory to write the files to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail where the rows give other costs than those built in
    #[arg(long)]
    pub check: bool,
}

/// `tiling`
#[derive(Debug, Args)]
pub struct TilingArgs {
    /// Rows, columns and the common dimension: M N K
    #[arg(value_name = "SIZE", num_args = 3, required = true, allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    /// How the weights are stored
    #[arg(long, value_parser = input::format, default_value = "fp16")]
    pub format: WeightFormat,
    /// On this accelerator of the registry instead of this machine's
    #[arg(long, value_name = "KEY")]
    pub hardware: Option<String>,
    /// At this power mode [default: now; of other hardware, its reference clocks]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// How many candidates
    #[arg(long, value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub limit: Option<u64>,
}

/// `fit-power`
#[derive(Debug, Args)]
pub struct FitPowerArgs {
    /// CSV, one measured run of a model a line
    pub data: PathBuf,
    /// CSV, one steady kernel a line
    #[arg(long, value_name = "FILE")]
    pub micro: Option<PathBuf>,
    /// Directory to write the files to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail where the rows give other coefficients than those built in
    #[arg(long)]
    pub check: bool,
}

/// `evaluate`
#[derive(Debug, Subcommand)]
pub enum EvaluateCommand {
    /// Whole models: each is left out in turn and predicted from all others
    Engines {
        /// Measurements, such as tests/data/published_llm.csv
        file: PathBuf,
    },
    /// The decision: the power mode of least energy, where every mode was measured
    Decisions {
        /// Runs of models, such as tests/data/published_llm.csv
        file: PathBuf,
    },
    /// Matrix products: some shapes of a machine are its calibration, the others are predicted
    Gemm {
        /// Measurements, such as tests/data/published_micro.csv
        file: PathBuf,
    },
    /// Layers of experts: what they read for several tokens at once
    Moe {
        /// Measurements, such as tests/data/published_micro.csv
        file: PathBuf,
    },
    /// Power: of kernels from four of them, of models left out, and the mode of least energy
    Power {
        /// Runs of models, such as tests/data/published_llm.csv
        data: PathBuf,
        /// Steady kernels, such as tests/data/published_micro.csv
        micro: Option<PathBuf>,
    },
}

/// `watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// One line for each event
    #[arg(long, required = true)]
    pub events: bool,
}

/// `bundle`
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// Of the board below DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Write it to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `mode`
#[derive(Debug, Subcommand)]
pub enum ModeCommand {
    /// Every mode with its caps and the ceilings it would give
    List {
        /// Only what this nvpmodel file (- for standard input) says, on any machine and without a daemon
        #[arg(long, value_name = "FILE")]
        conf: Option<PathBuf>,
    },
    /// The active mode, and why it is active
    Get,
    /// Enter a mode
    Set(ModeSetArgs),
    /// Keep a mode that was entered with --confirm
    Confirm {
        /// The number that `mode set` printed
        id: u64,
    },
    /// Go back from a mode that was entered with --confirm
    Revert {
        /// The number that `mode set` printed [default: whichever waits]
        id: Option<u64>,
    },
}

/// `mode set`
#[derive(Debug, Args)]
pub struct ModeSetArgs {
    /// Name of the mode, or its number
    #[arg(value_name = "MODE")]
    pub mode: String,
    /// Go back unless it is confirmed within this time: 30s
    #[arg(long, value_name = "TIME", value_parser = input::seconds)]
    pub confirm: Option<f64>,
    /// Only say what would be done
    #[arg(long, conflicts_with = "confirm")]
    pub dry_run: bool,
    /// Why, for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// `hold`
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// What the command needs.
    #[command(flatten)]
    pub needs: HoldNeeds,
    /// Why, for others to see
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// What a command needs of the power mode.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct HoldNeeds {
    /// Exactly this mode
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// No less compute and no less memory bandwidth than in this mode
    #[arg(long, value_name = "MODE")]
    pub min_mode: Option<String>,
    /// Most power: 15W (as measured in the mode, else by its name)
    #[arg(long, value_name = "POWER", value_parser = input::watts)]
    pub max_power: Option<f64>,
    /// Least GPU clock
    #[arg(long, value_name = "MHZ", value_parser = input::positive)]
    pub min_gpu_mhz: Option<f64>,
    /// A mode that answers this question: the body of POST /v1/recommend, as a file or as JSON that begins with {
    #[arg(long, value_name = "FILE|JSON")]
    pub query: Option<String>,
}

/// `config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file, or the one that is installed
    Check {
        /// The file [default: /etc/rooflined/rooflined.toml with conf.d]
        file: Option<PathBuf>,
    },
    /// Print every key with its value
    Show {
        /// The file [default: /etc/rooflined/rooflined.toml with conf.d]
        file: Option<PathBuf>,
    },
}

/// `hardware`
#[derive(Debug, Subcommand)]
pub enum HardwareCommand {
    /// Every entry in a line
    List,
    /// One entry with its sources, notes and the ceilings of its modes
    Show {
        /// Its key, such as jetson-agx-orin-64gb; the prefix jetson- may be left out
        key: String,
    },
    /// Check the description of an accelerator of your own
    Check {
        /// The file, in the shape of config/hardware
        file: PathBuf,
    },
}

/// `models`
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Models that are known by a key
    List,
    /// One of them
    Show {
        /// Its key, such as llama-3.1-8b
        key: String,
        /// How its weights are stored: q4_k_m, awq_int4, nvfp4, …
        #[arg(long, value_parser = input::recipe, default_value = "bf16")]
        format: Recipe,
        /// How its cache is stored
        #[arg(long, value_name = "FORMAT", value_parser = input::format, default_value = "fp16")]
        kv_format: WeightFormat,
    },
    /// Sizes of published files beside what the mixes make of the architectures
    Sizes,
    /// What a file holds: GGUF, safetensors, config.json, or a directory of them; only headers are read
    Inspect {
        /// The file or directory
        path: PathBuf,
        /// How its cache is stored
        #[arg(long, value_name = "FORMAT", value_parser = input::format, default_value = "fp16")]
        kv_format: WeightFormat,
    },
}

/// `demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Calibrate in two seconds rather than ten
    #[arg(long)]
    pub quick: bool,
    /// Write the roofline to FILE as SVG as well
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Show it on a simulated board instead, power modes included: jetson-orin-nano-8gb-super, …
    #[arg(long, value_name = "BOARD", conflicts_with_all = ["quick", "svg"])]
    pub simulate: Option<String>,
}

/// What to make as good as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// Shortest time.
    Latency,
    /// Most columns per second.
    Throughput,
    /// Least energy.
    Energy,
    /// Least power.
    Power,
}

impl From<ObjectiveArg> for Objective {
    fn from(objective: ObjectiveArg) -> Self {
        match objective {
            ObjectiveArg::Latency => Self::Latency,
            ObjectiveArg::Throughput => Self::Throughput,
            ObjectiveArg::Energy => Self::Energy,
            ObjectiveArg::Power => Self::Power,
        }
    }
}

/// Which end of the interval must meet the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OptimismArg {
    /// The worse end.
    Pessimistic,
    /// The best estimate.
    Expected,
}

impl From<OptimismArg> for Optimism {
    fn from(optimism: OptimismArg) -> Self {
        match optimism {
            OptimismArg::Pessimistic => Self::Pessimistic,
            OptimismArg::Expected => Self::Expected,
        }
    }
}
