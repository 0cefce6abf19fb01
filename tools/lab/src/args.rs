//! The command line of the laboratory.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use rooflinectl::output::Format;

/// Fits the coefficients that rooflined ships, and judges its models by measurements that others published.
#[derive(Debug, Parser)]
#[command(name = "rooflined-lab", version, max_term_width = 110)]
pub struct Cli {
    /// Output format
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Human)]
    pub output: Format,
    /// Plain ASCII output
    #[arg(long, global = true)]
    pub ascii: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fit engine costs to a table of published rates
    FitEngines(FitEnginesArgs),
    /// Fit engine costs on CPUs to measured runs
    FitCpuEngines(FitCpuEnginesArgs),
    /// Fit power coefficients to tables of published measurements
    FitPower(FitPowerArgs),
    /// Print the layers of a vision network in an ONNX file, as tests/data/networks has them
    NetworkLayers {
        /// ONNX file without open sizes
        file: PathBuf,
    },
    /// Take in new rows: how they were predicted, which groups get worse, which shipped coefficients move
    Refresh(RefreshArgs),
    /// Evaluate the models against published measurements
    #[command(subcommand)]
    Evaluate(EvaluateCommand),
}

#[derive(Debug, Args)]
pub struct FitEnginesArgs {
    /// CSV file, one measured run a line
    pub data: PathBuf,
    /// Directory to write the files to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail where the rows give other costs than those built in
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct RefreshArgs {
    /// CSV file of new rows, as `rooflinectl observations export` writes it
    pub new: PathBuf,
    /// CSV file of the rows that the shipped costs were fitted to
    #[arg(long, value_name = "FILE", default_value = "tests/data/published_llm.csv")]
    pub known: PathBuf,
    /// Directory to write the costs fitted to all rows to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct FitCpuEnginesArgs {
    /// CSV files, one measured run a line, such as tools/lab/data/cpu_llama_cpp.csv
    #[arg(required = true)]
    pub data: Vec<PathBuf>,
    /// Directory to write the files to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail where the rows give other costs than those built in
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct FitPowerArgs {
    /// CSV file, one measured run of a model a line
    pub data: PathBuf,
    /// CSV file, further runs in the columns of DATA, of which the power alone is used
    #[arg(long, value_name = "FILE")]
    pub power: Option<PathBuf>,
    /// CSV file, one steady-state kernel a line
    #[arg(long, value_name = "FILE")]
    pub micro: Option<PathBuf>,
    /// CSV file, one run of a card under a power limit a line, with the clock that the limit led to
    #[arg(long, value_name = "FILE")]
    pub caps: Option<PathBuf>,
    /// Directory to write the files to [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail where the rows give other coefficients than those built in
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Subcommand)]
pub enum EvaluateCommand {
    /// Whole models: leave-one-out error of each model predicted from all others
    Engines {
        /// Measurements, such as tests/data/published_llm.csv
        file: PathBuf,
    },
    /// Whole models by group: rows added since a month from those before, each model from all others, and a rule of thumb
    Groups {
        /// Measurements, such as tests/data/published_llm.csv
        file: PathBuf,
        /// First month of the rows that are judged by those before
        #[arg(long, value_name = "YYYY-MM", default_value = "2026-11")]
        since: String,
    },
    /// Engines on CPUs: error of each model before any run, after runs of others, and after one of its own
    Cpu {
        /// Measurements, such as tools/lab/data/cpu_llama_cpp.csv
        file: PathBuf,
    },
    /// Vision networks in TensorRT: error of each family of networks and each board predicted from all others, coverage, and what runs
    /// of a network say about others
    Networks {
        /// Latencies, such as tests/data/published_vision.csv
        file: PathBuf,
        /// Layers of the networks: NAME.json, or NAME.onnx
        #[arg(long, value_name = "DIR", default_value = "tests/data/networks")]
        networks: PathBuf,
    },
    /// Decisions: regret of the power mode chosen for minimum energy, where every mode was measured
    Decisions {
        /// Runs of models, such as tests/data/published_llm.csv
        file: PathBuf,
    },
    /// Matrix products: some shapes of a machine are its calibration, the others are predicted
    Gemm {
        /// Measurements, such as tests/data/published_micro.csv
        file: PathBuf,
    },
    /// Mixture-of-experts layers: bytes read for several tokens at once
    Moe {
        /// Measurements, such as tests/data/published_micro.csv
        file: PathBuf,
    },
    /// Power: error for kernels from four of them, for models left out, and the mode of minimum energy
    Power {
        /// Runs of models, such as tests/data/published_llm.csv
        data: PathBuf,
        /// Steady-state kernels, such as tests/data/published_micro.csv
        micro: Option<PathBuf>,
        /// Further runs in the columns of DATA, such as tests/data/published_power.csv
        #[arg(long, value_name = "FILE")]
        power: Option<PathBuf>,
    },
}
