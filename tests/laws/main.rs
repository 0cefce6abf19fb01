//! Laws, tables and file formats: what needs nothing but this process, its own files, or a command that ends by itself.

mod carrying;
mod ceilings;
mod config;
mod decisions;
mod engines;
mod hardware;
mod joint;
mod models;
mod operations;
mod quantise;
mod settings;
