//! The command line: names and shapes. Values are checked here, so that a wrong one is a usage error that names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum as _};

use super::examples;
use super::failure::Failure;
use super::input::{
    self, EngineChoice, Kind, LimitArgs, Listed, MachineArgs, ModelArgs, OpArgs, ShapeArgs, SubjectArgs,
    Targets,
};
use super::network_args::{DimensionArgs, NetworkArgs};
use super::output::Format;
use super::server_address::Address;
use rooflined_advice::networkfile;
use rooflined_api::{BatchRange, Constraints, ModesRequest, OperatingPointRequest};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;
use rooflined_predict::Engine;
use rooflined_predict::calibration::PlanKind;
use rooflined_predict::optimize::{EnergyBasis, Objective, Optimism};

/// Performance advice from rooflined: what this machine can do, and what would run best on it.
#[derive(Debug, Parser)]
#[command(name = "rooflinectl", version, max_term_width = 110, after_help = EXIT_CODES)]
#[command(help_template = help_template(), mut_subcommands = examples::add)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 wrong command line or file, 3 infeasible, 4 denied, 5 reboot required, \
                          69 daemon unreachable, 75 try again.";

/// The commands as help lists them.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Ask",
        &["recommend", "predict", "sweep", "analyze", "explain", "roofline", "tiling", "quant-error", "mcp"],
    ),
    ("Measure and learn", &["calibrate", "measure", "compare", "observe", "observations", "servers", "run"]),
    ("Watch and control", &["status", "watch", "dashboard", "mode", "hold", "holds"]),
    ("Look up", &["board", "hardware", "models", "formats"]),
    ("Service", &["doctor", "bundle", "config", "metrics", "features", "demo", "completions", "man", "help"]),
];

/// Help of the program, with its commands in groups.
fn help_template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("rooflinectl"));
    let about = |name: &str| match commands.find_subcommand(name) {
        Some(command) => command.get_about().map(ToString::to_string).unwrap_or_default(),
        None => "Print this message or the help of a command".to_owned(),
    };
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        text += &format!("\n{group}:\n");
        for name in names {
            text += &format!("  {name:<13} {}\n", about(name));
        }
    }
    text + "\nOptions:\n{options}\n\n{after-help}"
}

const GLOBAL: &str = "Options of every command";
/// Behind the options of a command's own, which count from 0.
const LAST: usize = 1000;

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Directory of the daemon's sockets, or one of its .sock files [default: $XDG_RUNTIME_DIR/rooflined,
    /// /tmp/rooflined-UID, /run/rooflined] [env: ROOFLINED_SOCKET=]
    #[arg(long, global = true, help_heading = GLOBAL, display_order = LAST, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Run rooflinectl on this host through ssh; paths refer to that host
    #[arg(long, global = true, help_heading = GLOBAL, display_order = LAST + 1, value_name = "HOST")]
    pub ssh: Option<String>,
    /// Output format; json is the daemon's own answer
    #[arg(short, long, global = true, help_heading = GLOBAL, display_order = LAST + 2, value_enum, value_name = "FORMAT", default_value_t = Format::Human)]
    pub output: Format,
    /// Plain ASCII output
    #[arg(long, global = true, help_heading = GLOBAL, display_order = LAST + 3)]
    pub ascii: bool,
    /// Time limit for an answer
    #[arg(long, global = true, help_heading = GLOBAL, display_order = LAST + 4, value_name = "TIME", value_parser = input::timeout, default_value = "30s")]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Current state of the machine: clocks, load, memory, power, temperatures
    Status(StatusArgs),
    /// Hardware of the machine, and where each value comes from
    Board,
    /// Ceilings and ridge points, as a plot and a table
    Roofline(RooflineArgs),
    /// Predicted time of an operation or a model, here or on other hardware
    Predict(PredictArgs),
    /// Predictions for every combination of shapes or models, formats, power modes, batch sizes and contexts
    Sweep(SweepArgs),
    /// Predicted vs. measured: runs operations now
    Compare(CompareArgs),
    /// Run operations now and time them
    Measure(MeasureArgs),
    /// Analysis of a measured time: share of the ceiling reached, what limits it
    Analyze(AnalyzeArgs),
    /// Why a server or a measured rate is slower than predicted: causes with their share, evidence and remedy
    Explain(Box<ExplainArgs>),
    /// Measure this machine's ceilings
    Calibrate(CalibrateArgs),
    /// Format, batch size and power mode that meet a target
    Recommend(Box<RecommendArgs>),
    /// Report a measured time, or watch an inference server, so that later predictions learn from it
    Observe(Box<ObserveArgs>),
    /// List and forget reported measurements
    #[command(subcommand)]
    Observations(ObservationsCommand),
    /// Inference servers that were watched in the last hour: measured and expected rate, and why one is slow
    Servers,
    /// Start llama-server with recommended settings, hold the power mode, observe it, and print predicted vs. measured
    Run(LaunchArgs),
    /// List, enter, confirm and revert power modes
    #[command(subcommand)]
    Mode(ModeCommand),
    /// Run a command, holding a power mode that meets its requirements
    Hold(HoldArgs),
    /// List active holds
    Holds,
    /// Quantization error of each format on a file's own weights; needs no daemon
    QuantError(QuantErrorArgs),
    /// Tiles of a matrix product on a GPU: waves, occupancy, limits; needs no daemon with --hardware
    Tiling(TilingArgs),
    /// Live view of the machine: loads, ceilings, sensors, holds, events; --events prints lines
    Watch(WatchArgs),
    /// Dashboard in a browser: serves one web page on this machine's loopback address until Ctrl-C
    Dashboard(DashboardArgs),
    /// Model Context Protocol server for agents, on standard input and output
    Mcp,
    /// Print metrics in the Prometheus text format
    Metrics(MetricsArgs),
    /// Print what the machine can do as labels for Node Feature Discovery (Kubernetes)
    Features(FeaturesArgs),
    /// Diagnose why something does not work; with --report, check a fresh board and write one file to send
    Doctor(DoctorArgs),
    /// Capture this board's files as one text file, for a bug report
    Bundle(BundleArgs),
    /// Check or print the configuration that the daemon would use
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Accelerators in the registry, their power modes and where each figure comes from; needs no daemon
    #[command(subcommand)]
    Hardware(HardwareCommand),
    /// Models: memory size, bytes read per token, key/value cache
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Weight formats: bits per weight, blocks, native precision; needs no daemon
    Formats,
    /// Complete tour with a private daemon: calibrate, draw, compare, ask; under a minute
    Demo(DemoArgs),
    /// Generate completions for a shell
    Completions {
        /// Shell to generate for
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program or of a command
    Man {
        /// Command, such as mode set
        command: Vec<String>,
        /// Write a page for each command to this directory
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
}

impl Command {
    /// Whether requests are written by hand for it, so that their fields are spoken of by their own names.
    #[must_use]
    pub const fn takes_requests(&self) -> bool {
        match self {
            Self::Predict(args) => args.requests.is_some(),
            Self::Hold(args) => args.needs.query.is_some(),
            _ => false,
        }
    }
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Show every reading, and why the unknown ones are unknown
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// Loopback address and port to listen on, or the port alone; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub listen: String,
    /// Directory to serve the page from instead of the built-in one, read again at each request: for work on the page
    #[arg(long, value_name = "DIR", hide = true)]
    pub page: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Write to this file instead, atomically: NAME.prom for node_exporter's textfile collector
    /// directory
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct FeaturesArgs {
    /// Write to this file instead, atomically; Node Feature Discovery reads
    /// /etc/kubernetes/node-feature-discovery/features.d/
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RooflineArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Precision whose ceiling is shown [default: all]
    #[arg(long, value_name = "PRECISION", value_parser = input::precision)]
    pub precision: Option<rooflined_core::precision::Precision>,
    /// Measure a few operations and put them into the plot (takes seconds; needs the control socket)
    #[arg(long, conflicts_with = "hardware")]
    pub measure: bool,
    /// Also write the plot to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Build number or release of the inference engine, such as b10809 [default: the newest known]
    #[arg(long, value_name = "VERSION")]
    pub engine_version: Option<String>,
    /// Predict even if the engine does not run the format on this hardware
    #[arg(long)]
    pub hypothetical: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub limit: LimitArgs,
    /// File of requests, one a line (- for standard input); prints one answer a line; lines that name hardware need no
    /// daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "batch", "threads", "kv_format", "format", "mode", "power_limit", "hardware"])]
    pub requests: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Operation gemv or gemm, or models by key or path, separated by commas
    #[arg(value_name = "WHAT", value_parser = input::targets)]
    pub what: Option<Targets>,
    /// One shape: gemv N K, gemm M N K
    #[arg(value_name = "SIZE", allow_negative_numbers = true)]
    pub dims: Vec<String>,
    /// Shapes: gemv 4096 (square) or 4096x1024; gemm 64 (M, with N = K = 4096) or 64x4096x1024
    #[arg(long, value_delimiter = ',', conflicts_with = "dims", allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Weight formats, or all [default: every one measured on this machine, or the usual ones]
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::storage_or_all)]
    pub formats: Vec<String>,
    /// Batch sizes, such as 1,2,8 or 1..8: columns, which replace the M of a GEMM [default: the shapes as they are]; sequences of
    /// a model [default: 1]
    #[arg(long, value_delimiter = ',', value_parser = input::counts, allow_negative_numbers = true)]
    pub batches: Vec<(u64, u64)>,
    /// Context lengths in tokens (models) [default: 4096, or the model's maximum if that is less]
    #[arg(long, value_delimiter = ',', value_parser = input::counts_from_zero, allow_negative_numbers = true)]
    pub contexts: Vec<(u64, u64)>,
    /// Key/value cache format (models)
    #[arg(long, value_name = "FORMAT", value_parser = input::cache_format)]
    pub kv_format: Option<WeightFormat>,
    /// Power modes, or all [default: --mode]
    #[arg(long, value_delimiter = ',', value_parser = input::mode_or_all, conflicts_with_all = ["mode", "power_limit"])]
    pub modes: Vec<String>,
    /// Worker threads, where the CPU is the accelerator: 1,2,4 or 1..4 [default: what the engine takes, one for every core]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = input::counts)]
    pub threads: Vec<(u64, u64)>,
    /// Inference engine [default: of each model and format the recommended one, of an operation none]
    #[arg(long, value_parser = input::engine)]
    pub engine: Option<Engine>,
    /// Predict even if the engine does not run the format on this hardware
    #[arg(long)]
    pub hypothetical: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub limit: LimitArgs,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Operation gemv N K or gemm M N K; a GGUF file, run in llama.cpp; an .onnx file, run in ONNX Runtime
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub what: Vec<String>,
    /// Shapes: gemv 4096 (square) or 4096x1024; gemm 64 (M, with N = K = 4096) or 64x4096x1024
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    /// Weight formats of operations, or all [default: fp32,fp16,bf16,int8,int4]
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::or_all(input::format))]
    pub formats: Vec<Listed<WeightFormat>>,
    /// Context lengths: tokens already in the cache (a GGUF file) [default: 0]
    #[arg(long, value_delimiter = ',', value_parser = input::counts_from_zero, allow_negative_numbers = true)]
    pub contexts: Vec<(u64, u64)>,
    /// Inference engine that runs a GGUF file: llama.cpp, by its llama-bench
    #[arg(long, value_parser = input::engine)]
    pub engine: Option<Engine>,
    /// Program of the engine, or the directory that holds it; for an .onnx file, a Python that has onnxruntime [default: llama-bench or
    /// python3 on the PATH]
    #[arg(long, value_name = "PATH")]
    pub with: Option<PathBuf>,
    /// Threads of the engine [default: its own]
    #[arg(long, value_name = "N", value_parser = input::threads, allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// Prompt length in tokens (a GGUF file) [default: 512]
    #[arg(long, visible_alias = "prompt-tokens", value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub prompt: Option<u64>,
    /// Number of tokens to generate (a GGUF file) [default: 128]
    #[arg(long, value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub output_tokens: Option<u64>,
    /// Runs of each test (engine) [default: 3; .onnx: 10, for a second at least]
    #[arg(long, value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub repetitions: Option<u64>,
    /// Longest time that the engine may take [default: 15 minutes]
    #[arg(long, value_name = "TIME", value_parser = input::timeout, default_value = "15min", hide_default_value = true)]
    pub time_limit: Duration,
    #[command(flatten)]
    pub dimensions: DimensionArgs,
}

impl CompareArgs {
    /// The file that is run, where it holds a vision network.
    ///
    /// # Errors
    /// An option that belongs to another question.
    pub fn network(&self) -> Result<Option<&Path>, Failure> {
        let path = self.what.iter().map(Path::new).find(|path| networkfile::is_network(path));
        let of_runs = [
            ("--with", self.with.is_some()),
            ("--threads", self.threads.is_some()),
            ("--repetitions", self.repetitions.is_some()),
        ];
        let of_operations = [("--sizes", !self.sizes.is_empty()), ("--formats", !self.formats.is_empty())];
        let of_models = [
            ("--contexts", !self.contexts.is_empty()),
            ("--prompt", self.prompt.is_some()),
            ("--output-tokens", self.output_tokens.is_some()),
        ];
        let given = |options: &[(&'static str, bool)]| {
            options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
        };
        if path.is_some() {
            if let Some(option) = given(&of_operations).or_else(|| given(&of_models)) {
                return Err(Failure::usage(format!("{option} does not go with an .onnx file"))
                    .with_hint("give the sizes that it leaves open: --size 640x640 --dim batch=1"));
            }
            if self.what.len() > 1 {
                return Err(Failure::usage("one .onnx file is run at a time"));
            }
            return Ok(path);
        }
        if let Some(option) = input::given(&self.dimensions).next() {
            return Err(Failure::usage(format!("{option} belongs to a network in an .onnx file")));
        }
        let (misplaced, owner, example) = match self.engine_of_model() {
            Some(_) => {
                (given(&of_operations), "operations", "an operation: rooflinectl compare gemv 4096 4096")
            }
            None => (
                given(&of_runs).or_else(|| given(&of_models)),
                "model files",
                "a file: rooflinectl compare model.gguf",
            ),
        };
        match misplaced {
            Some(option) => Err(Failure::usage(format!("{option} is for {owner}"))
                .with_hint(format!("leave it out, or name {example}"))),
            None => Ok(None),
        }
    }

    /// The engine that runs the model; `None` where operations are named, or nothing.
    pub fn engine_of_model(&self) -> Option<Engine> {
        let is_model = self.what.first().is_some_and(|word| Kind::from_str(word, true).is_err());
        self.engine.or_else(|| is_model.then_some(Engine::LlamaCpp))
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

#[derive(Debug, Args)]
pub struct MeasureArgs {
    #[command(flatten)]
    pub shapes: ShapeArgs,
    /// Weight formats, or all
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::or_all(input::format), default_value = "fp32")]
    pub formats: Vec<Listed<WeightFormat>>,
    /// Measure power and energy too (runs each for a second, or longer with a slow meter)
    #[arg(long)]
    pub power: bool,
}

#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Measured time of one run (of a model: one step, the prompt, or prompt and answer): 280us, 1.5ms
    #[arg(long, value_parser = input::latency, required_unless_present = "tokens_per_s", allow_hyphen_values = true)]
    pub time: Option<f64>,
    /// Measured tokens/s over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, conflicts_with = "time", allow_negative_numbers = true)]
    pub tokens_per_s: Option<f64>,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Server to watch, on this machine: its port, or http://127.0.0.1:8080
    #[arg(long, display_order = 0, visible_alias = "from", value_name = "PORT|URL", value_parser = Address::parse, conflicts_with_all = EXPLAINED)]
    pub port: Option<Address>,
    /// Process to watch: of a server, or of a program whose rate you measured
    #[arg(long, display_order = 1, value_name = "PID")]
    pub pid: Option<u32>,
    /// Measured time of one run (of a model: one step, the prompt, or prompt and answer): 280us, 1.5ms
    #[arg(long, value_parser = input::seconds, allow_negative_numbers = true)]
    pub time: Option<f64>,
    /// Measured tokens/s over the batch [default: none; then what slows the machine now is listed]
    #[arg(long, value_name = "RATE", value_parser = input::positive, conflicts_with = "time", allow_negative_numbers = true)]
    pub tokens_per_s: Option<f64>,
    /// Power mode that was expected [default: the fastest that was calibrated]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Build number or release of the inference engine that was expected, such as b10809 [default: the newest known]
    #[arg(long, value_name = "VERSION")]
    pub engine_version: Option<String>,
    /// Maximum time to watch
    #[arg(long = "for", value_name = "TIME", value_parser = input::timeout, default_value = "8s")]
    pub limit: Duration,
    /// Skip the two-second reference kernel, which runs on an idle machine if no cause is certain
    #[arg(long)]
    pub no_reference: bool,
    /// File with the key that the server requires
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// User, by name or number, whose servers are trusted like yours and root's: they get the key
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// Only to say what to do instead
    #[arg(long, value_name = "KEY", hide = true)]
    pub hardware: Option<String>,
}

/// What is asked of a server rather than given.
const EXPLAINED: [&str; 3] = ["time", "tokens_per_s", "engine"];

impl ExplainArgs {
    /// The operating point that was expected.
    #[must_use]
    pub fn point(&self) -> Option<OperatingPointRequest> {
        let power_mode = Some(self.mode.clone()?);
        Some(OperatingPointRequest { power_mode, ..OperatingPointRequest::default() })
    }
}

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Measure the ceilings and the main formats only, in about two seconds
    #[arg(long)]
    pub quick: bool,
    /// Wait until it has finished
    #[arg(long)]
    pub wait: bool,
    /// Run even if the machine is busy or hot
    #[arg(long)]
    pub force: bool,
}

impl CalibrateArgs {
    #[must_use]
    pub const fn plan(&self) -> PlanKind {
        if self.quick { PlanKind::Quick } else { PlanKind::Full }
    }
}

/// What a recommendation must reach, and among what it may choose.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Optimization objective
    #[arg(long, value_parser = input::one_of::<Objective, 4>(OBJECTIVES), default_value = "latency")]
    pub objective: Objective,
    /// What objective energy counts
    #[arg(long, value_parser = input::one_of::<EnergyBasis, 2>(ENERGY_BASES), default_value = "with_idle")]
    pub energy: EnergyBasis,
    /// Maximum time per token: 50ms
    #[arg(long, value_name = "TIME", value_parser = input::latency, allow_negative_numbers = true)]
    pub max_time_per_token: Option<f64>,
    /// Minimum tokens/s (columns/s) over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, allow_negative_numbers = true)]
    pub min_tokens_per_s: Option<f64>,
    /// Maximum memory for weights, cache and activations: 8GB
    #[arg(long, visible_alias = "max-memory", value_name = "SIZE", value_parser = input::bytes, allow_negative_numbers = true)]
    pub max_memory_bytes: Option<f64>,
    /// Maximum power: 15W
    #[arg(long, value_name = "POWER", value_parser = input::watts, allow_negative_numbers = true)]
    pub max_power: Option<f64>,
    /// Power modes to consider: names, all, or live for those that need no reboot; for cards and GB10, all includes clock caps
    /// (lgc-2000) and power limits (pl-290) [default: the active one; of other hardware the fastest within its own clock]
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = input::mode_or_all)]
    pub modes: Vec<String>,
    /// Batch sizes to consider: 8, or 1..32 [default: 1, which is fastest for one request; up to 64 with --objective throughput, or if
    /// 1 misses --min-tokens-per-s]
    #[arg(long, value_name = "RANGE", value_parser = input::batch_range, allow_negative_numbers = true)]
    pub batch: Option<(u64, u64)>,
    /// End of the prediction interval that must meet the limits
    #[arg(long, value_parser = input::one_of::<Optimism, 2>(OPTIMISMS), default_value = "pessimistic")]
    pub optimism: Optimism,
}

impl TargetArgs {
    /// The power modes that may be chosen, as a request names them.
    #[must_use]
    pub fn power_modes(&self) -> Option<ModesRequest> {
        match self.modes.as_slice() {
            [] => None,
            [kind] if kind == "all" || kind == "live" => Some(ModesRequest::Kind(kind.clone())),
            modes => Some(ModesRequest::Listed(modes.to_vec())),
        }
    }

    #[must_use]
    pub fn batch_range(&self) -> Option<BatchRange> {
        self.batch.map(|(min, max)| BatchRange { min, max })
    }

    /// The limits of every engine and operation.
    #[must_use]
    pub fn constraints(&self) -> Constraints {
        Constraints {
            max_time_per_token_s: self.max_time_per_token,
            min_tokens_per_s: self.min_tokens_per_s,
            max_power_w: self.max_power,
            max_memory_bytes: self.max_memory_bytes,
            ..Constraints::default()
        }
    }
}

#[derive(Debug, Args)]
pub struct RecommendArgs {
    #[command(flatten)]
    pub op: OpArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Minimum pictures per second of each stream (.onnx)
    #[arg(long, value_name = "RATE", value_parser = input::positive, allow_negative_numbers = true)]
    pub min_fps: Option<f64>,
    /// Cameras served at once (.onnx) [default: 1]
    #[arg(long, value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub streams: Option<u64>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Maximum time of one run: 1ms
    #[arg(long, value_name = "TIME", value_parser = input::latency, allow_negative_numbers = true)]
    pub max_time: Option<f64>,
    /// Maximum time to the first token: 1s (models)
    #[arg(long, value_name = "TIME", value_parser = input::latency, allow_negative_numbers = true)]
    pub max_time_to_first_token: Option<f64>,
    /// Minimum memory that stays available [default: a twentieth of all, at least 256 MiB]
    #[arg(long, visible_alias = "min-free-memory", value_name = "SIZE", value_parser = input::bytes, allow_negative_numbers = true)]
    pub min_free_memory_bytes: Option<f64>,
    /// Maximum expected increase of perplexity: 3%, or 0.03
    #[arg(long, value_name = "RATIO", value_parser = input::ratio, allow_negative_numbers = true)]
    pub max_quality_loss: Option<f64>,
    /// Weight formats to consider, or all [default: for an operation those measured here, for a model the engine's usual ones, for a packed file its own]
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::storage_or_all)]
    pub formats: Vec<String>,
    /// Key/value cache formats to consider, or all (models) [default: fp16]
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', value_parser = input::cache_or_all)]
    pub kv_formats: Vec<String>,
    /// Worker threads to consider, if the CPU is the accelerator: 1,2,4 or 1..4
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = input::counts)]
    pub threads: Vec<(u64, u64)>,
    /// Allow a mode that needs a reboot
    #[arg(long)]
    pub allow_reboot: bool,
    /// Expected run time, over which the cost of switching to a mode is spread [default: an hour]
    #[arg(long, value_name = "TIME", value_parser = input::seconds, allow_negative_numbers = true)]
    pub run_time: Option<f64>,
    /// Inference engine [default: for a model the best that runs there, for an operation none]
    #[arg(long, value_parser = input::engine_choice)]
    pub engine: Option<EngineChoice>,
    /// Inference engines to compare for a model [default: all that run there]
    #[arg(long, value_delimiter = ',', value_parser = input::or_all(input::engine), conflicts_with = "engine")]
    pub engines: Vec<Listed<Engine>>,
    /// Predict even if the engine does not run the format on this hardware
    #[arg(long)]
    pub hypothetical: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub limit: LimitArgs,
}

#[derive(Debug, Subcommand)]
pub enum ObservationsCommand {
    /// List the reports that affect your predictions, with author and effect
    List(ReportsArgs),
    /// Print measured rates of models as CSV in this project's format, ready to send
    Export(ReportsArgs),
    /// Forget reports: your own, or with --all everybody's (root, group rooflined)
    Forget(ForgetArgs),
}

/// Which reports are meant.
#[derive(Debug, Args)]
pub struct ReportsArgs {
    /// Reports of every user (root, group rooflined)
    #[arg(long)]
    pub all: bool,
    /// Reports of this user, by number
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Reports of this inference engine
    #[arg(long, value_parser = input::engine_choice)]
    pub engine: Option<EngineChoice>,
    /// Reports of this model: its key or path, or the name of an .onnx file
    #[arg(long, value_name = "MODEL", conflicts_with = "op")]
    pub model: Option<String>,
    /// Reports of this kind of operation: gemv, gemm, attention
    #[arg(long, value_name = "KIND")]
    pub op: Option<String>,
    /// Reports of this weight format
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("meant").required(true).multiple(true).args(["id", "own", "all", "user", "engine", "model", "op", "format"]))]
pub struct ForgetArgs {
    /// Number of the report
    #[arg(conflicts_with_all = ["own", "all", "user", "engine", "model", "op", "format"])]
    pub id: Option<u64>,
    /// Every report of yours
    #[arg(long, conflicts_with = "all")]
    pub own: bool,
    #[command(flatten)]
    pub which: ReportsArgs,
}

#[derive(Debug, Args)]
pub struct ObserveArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Power mode that a model ran in [default: the active one]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Measured time of one run: 280us, 1.5ms
    #[arg(long, value_parser = input::latency, required_unless_present_any = ["tokens_per_s", "from", "pid", "log"], allow_negative_numbers = true)]
    pub time: Option<f64>,
    /// Measured tokens/s (columns/s) over the batch
    #[arg(long, value_name = "RATE", value_parser = input::positive, conflicts_with = "time", allow_negative_numbers = true)]
    pub tokens_per_s: Option<f64>,
    /// Output of trtexec or onnxruntime_perf_test, which timed an .onnx file; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["time", "tokens_per_s"])]
    pub log: Option<PathBuf>,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Measured power: 15W
    #[arg(long, value_name = "POWER", value_parser = input::watts, allow_negative_numbers = true)]
    pub power: Option<f64>,
    /// Server to watch, on this machine: its port, or http://127.0.0.1:8080
    #[arg(long, display_order = 0, value_name = "URL", value_parser = Address::parse, conflicts_with_all = MEASURED)]
    pub from: Option<Address>,
    /// Process of a server to watch
    #[arg(long, display_order = 1, value_name = "PID", conflicts_with_all = MEASURED)]
    pub pid: Option<u32>,
    /// Number of observations to report, each the median of three similar windows; 0 = until the server ends (--from, --pid)
    #[arg(long, value_name = "N", default_value = "1")]
    pub count: u64,
    /// Maximum time to watch (--from, --pid) [default: until --count is reached]
    #[arg(long = "for", value_name = "TIME", value_parser = input::timeout)]
    pub limit: Option<Duration>,
    /// Every layer is on the GPU, according to the server's log (--from, --pid)
    #[arg(long)]
    pub offloaded: bool,
    /// Read trtllm-serve's iterations; other readers then miss them (--from, --pid)
    #[arg(long)]
    pub drain: bool,
    #[command(flatten)]
    pub watching: WatchingArgs,
}

/// How a server is watched.
#[derive(Debug, Args)]
pub struct WatchingArgs {
    /// Time between two polls of the server
    #[arg(long, value_name = "TIME", value_parser = input::timeout, default_value = "1s")]
    pub interval: Duration,
    /// Maximum share of its run time that the server waits for a CPU
    #[arg(long, value_name = "RATIO", value_parser = input::positive, default_value_t = MAX_WAIT_RATIO)]
    pub max_wait: f64,
    /// File with the key that the server requires
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// User, by name or number, whose servers are trusted like yours and root's: they get the key, and their runs count as yours
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// Watch only: report nothing to the daemon
    #[arg(long)]
    pub dry_run: bool,
}

/// Time that a server may wait for a processor, over the time that it runs. A quiet one was seen to wait for up to 2 %, one that
/// shares every core with its client, the observer and the daemon for some more, two threads beside a busy loop for 60 %.
const MAX_WAIT_RATIO: f64 = 0.1;
/// Options of an observation that somebody else measured.
const MEASURED: [&str; 7] = ["time", "tokens_per_s", "power", "batch", "mode", "engine", "log"];

#[derive(Debug, Args)]
pub struct LaunchArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Tokens in the cache of each sequence [default: that of the command line, else 4096]
    #[arg(long, visible_alias = "context", value_name = "N", value_parser = input::count)]
    pub context_tokens: Option<u64>,
    /// Do not hold the power mode
    #[arg(long)]
    pub no_hold: bool,
    #[command(flatten)]
    pub watching: WatchingArgs,
    /// llama-server and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct QuantErrorArgs {
    /// File of weights: safetensors or GGUF
    pub file: PathBuf,
    /// Weight formats, or all [default: the usual ones]
    #[arg(long, visible_alias = "format", value_delimiter = ',', value_parser = input::or_all(input::format))]
    pub formats: Vec<Listed<WeightFormat>>,
    /// Maximum number of weights read; from larger files, whole rows at even strides
    #[arg(long, value_name = "N", value_parser = input::count, default_value = "4194304", allow_negative_numbers = true)]
    pub max_elements: u64,
}

#[derive(Debug, Args)]
pub struct TilingArgs {
    /// Sizes M N K: rows, columns and the common dimension
    #[arg(value_name = "SIZE", num_args = 3, required = true, allow_negative_numbers = true)]
    pub sizes: Vec<String>,
    /// Weight format
    #[arg(long, value_parser = input::format, default_value = "fp16")]
    pub format: WeightFormat,
    /// Accelerator of the registry [default: this machine's]
    #[arg(long, value_name = "KEY")]
    pub hardware: Option<String>,
    /// Power mode [default: the present clocks; of other hardware, its reference clocks]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Maximum number of candidates shown
    #[arg(long, value_name = "N", value_parser = input::count, allow_negative_numbers = true)]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Print one line for each event instead
    #[arg(long)]
    pub events: bool,
    /// Refresh interval
    #[arg(long, value_name = "TIME", value_parser = input::timeout, default_value = "1s")]
    pub interval: Duration,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check the board in order, in ten minutes at most, and write one file to send
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "rooflined-report.json")]
    pub report: Option<PathBuf>,
    /// Switch the power mode and back without asking, if control is enabled
    #[arg(long, requires = "report")]
    pub yes: bool,
    /// Root directory of the board's files
    #[arg(long, value_name = "DIR", default_value = "/", requires = "report")]
    pub root: PathBuf,
}

#[derive(Debug, Args)]
pub struct BundleArgs {
    /// Root directory of the board's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// File to write to [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ModeCommand {
    /// List power modes with their caps and the ceilings they would give
    List {
        /// nvpmodel file to read instead (- for standard input), on any machine and without a daemon
        #[arg(long, value_name = "FILE")]
        conf: Option<PathBuf>,
    },
    /// Print the active power mode, and why it is active
    Get,
    /// Enter a power mode
    Set(ModeSetArgs),
    /// Keep a mode that was entered with --confirm
    Confirm {
        /// Number that `mode set` printed
        id: u64,
    },
    /// Return from a mode that was entered with --confirm
    Revert {
        /// Number that `mode set` printed [default: the switch that waits]
        id: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub struct ModeSetArgs {
    /// Name of the mode, or its number
    #[arg(value_name = "MODE")]
    pub mode: String,
    /// Time limit for `mode confirm`, after which the previous mode is entered again: 30s
    #[arg(long, value_name = "TIME", value_parser = input::seconds)]
    pub confirm: Option<f64>,
    /// Print what would be done, and change nothing
    #[arg(long, conflicts_with = "confirm")]
    pub dry_run: bool,
    /// Reason, for the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct HoldArgs {
    #[command(flatten)]
    pub needs: HoldNeeds,
    /// Reason, shown to other users
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Calibrate modes whose power was never measured here, if no mode is known to meet the constraints; 10 to 30 s each
    #[arg(long)]
    pub calibrate: bool,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// What a command needs of the power mode.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct HoldNeeds {
    /// Required power mode
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Accept only power modes with at least the compute and memory bandwidth of this one
    #[arg(long, value_name = "MODE")]
    pub min_mode: Option<String>,
    /// Maximum power: 15W (of the worst load in the mode, at the pessimistic end)
    #[arg(long, value_name = "POWER", value_parser = input::watts)]
    pub max_power: Option<f64>,
    /// Minimum GPU clock
    #[arg(long, value_name = "MHZ", value_parser = input::megahertz)]
    pub min_gpu_mhz: Option<f64>,
    /// Query whose recommended mode is held: the body of POST /v1/recommend, as a file or as JSON that begins with {
    #[arg(long, value_name = "FILE|JSON")]
    pub query: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file, or the one that is installed
    Check {
        /// Configuration file [default: /etc/rooflined/rooflined.toml with conf.d]
        file: Option<PathBuf>,
    },
    /// Print every key with its value
    Show {
        /// Configuration file [default: /etc/rooflined/rooflined.toml with conf.d]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum HardwareCommand {
    /// List all entries, or those whose name or kind contains WORD
    List {
        /// Part of a name, such as nano
        #[arg(value_name = "WORD")]
        word: Option<String>,
    },
    /// Show one entry with its sources and the ceilings of its modes
    Show {
        /// Key, such as jetson-agx-orin-64gb; the prefix jetson- may be left out
        key: String,
    },
    /// Check the description of an accelerator of your own
    Check {
        /// Description file, in the format of config/hardware
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models that are known by a key, or those whose name contains WORD
    List {
        /// Part of a name, such as qwen3
        #[arg(value_name = "WORD")]
        word: Option<String>,
    },
    /// Show one model
    Show {
        /// Key, such as llama-3.1-8b
        key: String,
        /// Weight format: q4_k_m, awq_int4, nvfp4, … [default: the one it is published in]
        #[arg(long, value_parser = input::recipe)]
        format: Option<Recipe>,
        /// Key/value cache format
        #[arg(long, value_name = "FORMAT", value_parser = input::cache_format, default_value = "fp16")]
        kv_format: WeightFormat,
    },
    /// Inspect a model file (GGUF, safetensors, config.json, ONNX) or a directory of them; only headers are read
    ///
    /// With -o json, it prints the model object that requests take. For an ONNX file it prints parameters, operations, memory, and
    /// which layers a DLA takes.
    Inspect {
        /// File or directory
        path: PathBuf,
        /// Key/value cache format
        #[arg(long, value_name = "FORMAT", value_parser = input::cache_format, default_value = "fp16")]
        kv_format: WeightFormat,
        #[command(flatten)]
        dimensions: DimensionArgs,
    },
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Calibrate in two seconds rather than ten
    #[arg(long)]
    pub quick: bool,
    /// Also write the roofline to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Show it on a simulated board instead, with its power modes: jetson-orin-nano-8gb-super, …
    #[arg(long, value_name = "BOARD", conflicts_with_all = ["quick", "svg"])]
    pub simulate: Option<String>,
}

/// Optimization objectives of `recommend`.
const OBJECTIVES: [(&str, &str); 4] = [
    ("latency", "Minimum time"),
    ("throughput", "Maximum tokens/s (columns/s)"),
    ("energy", "Minimum energy"),
    ("power", "Minimum power"),
];
/// What the energy of a token counts.
const ENERGY_BASES: [(&str, &str); 2] = [
    ("with_idle", "Everything that the machine draws while it runs"),
    ("marginal", "What the run adds to a machine that is on anyway"),
];
/// Ends of the prediction interval that may have to meet the limits.
const OPTIMISMS: [(&str, &str); 2] =
    [("pessimistic", "Worse end of the interval"), ("expected", "Best estimate")];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Cli, GLOBAL, GROUPS};

    /// Every command below this one, by its full name.
    fn all(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        for below in command.get_subcommands() {
            let name = format!("{path} {}", below.get_name());
            found.push((name.clone(), below.clone()));
            all(below, &name, found);
        }
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut root = Cli::command();
        root.build();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut commands: Vec<&str> = root.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn the_help_of_every_command_has_its_own_options_first_and_the_global_ones_under_their_heading() {
        let mut root = Cli::command();
        root.build();
        let mut commands = Vec::new();
        all(&root, "rooflinectl", &mut commands);
        assert!(commands.len() > 50, "{}", commands.len());
        for (name, mut command) in commands.into_iter().filter(|(name, _)| !name.contains(" help")) {
            let help = command.render_long_help().to_string();
            let parts = help.split_once(&format!("{GLOBAL}:\n"));
            let (own, global) = parts.unwrap_or_else(|| panic!("{name} has no heading {GLOBAL:?}"));
            for option in ["--socket", "--ssh", "--output", "--ascii", "--timeout"] {
                let line = |text: &str| {
                    let first =
                        |line: &str| line.trim().trim_start_matches("-o, ").split(' ').next() == Some(option);
                    text.lines().any(first)
                };
                assert!(line(global) && !line(own), "{name} {option}:\n{help}");
            }
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let Some(long) = argument.get_long() else { continue };
                if argument.get_help_heading() != Some(GLOBAL) {
                    assert!(own.contains(&format!("--{long}")), "{name} --{long} is below the global ones");
                }
            }
        }
    }
}
