//! Laws, tables and file formats: what needs nothing but this process, its own files, or a command that ends by itself.

mod caps;
mod carrying;
mod ceilings;
mod config;
mod cpus;
mod decisions;
mod engines;
mod hardware;
mod models;
mod networks;
mod offload;
mod operations;
mod power;
#[path = "../support/programs.rs"]
mod programs;
mod settings;
mod speculation;
