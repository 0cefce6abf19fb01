//! The command line: arguments in, tables, plots and JSON out, exit codes.
//!
//! | what | where |
//! |---|---|
//! | the program: from the command line to the exit code | `program`, `args`, `input`, `options`, `units`, `mistakes`, `meant`, `habits`, `forms`, `failure`, `context`, `terminal` |
//! | questions | `commands`, `requests`, `rooflines`, `tiling`, `hardware`, `models`, `formats`, `quant_error` with `tensors` |
//! | what runs on this machine | `calibrate`, `measure`, `compare`, `demo` with `private_daemon` |
//! | control | `modes`, `nvpmodel`, `hold`, `run`, `configuration` |
//! | learning | `observe`, `observations`, `servers` |
//! | views | `watch`, `dashboard`, `doctor`, `bundle`, `features`, `mcp` |
//! | output | `output` and `flatten` (JSON, CSV, Prometheus, shell), `table`, `words`, `headline`, `show`, `to_fit`, `details`, `power_costs`, `chart`, `plot`, `svg`, `working` |

mod args;
mod bundle;
mod calibrate;
mod chart;
mod choice;
mod commands;
mod compare;
mod completions;
mod configuration;
mod contents;
mod context;
mod dashboard;
mod demo;
mod details;
mod doctor;
mod examples;
mod explain;
pub mod failure;
mod features;
mod flatten;
mod formats;
mod forms;
mod habits;
mod hardware;
mod headline;
mod hold;
mod input;
mod manual;
mod mcp;
mod meant;
mod measure;
mod mistakes;
mod models;
mod modes;
mod network_advice;
mod network_args;
mod network_inspect;
mod network_log;
mod nvpmodel;
mod observations;
mod observe;
mod options;
pub mod output;
mod plot;
mod power_costs;
mod private_daemon;
mod program;
mod quant_error;
mod recommendation;
mod reference;
mod requests;
mod rooflines;
mod run;
mod server_address;
mod servers;
mod show;
mod signals;
mod ssh;
mod status;
mod svg;
pub mod table;
mod tensors;
mod terminal;
mod textfile;
mod tiling;
mod to_fit;
mod units;
mod watch;
mod words;
mod working;

use context::Context;
pub use program::{main, program};
