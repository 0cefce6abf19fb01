//! The real programs as processes of their own: started, asked, misled, killed.

mod actuator;
mod ctl;
mod daemon;
mod power_loss;
#[path = "../support/programs.rs"]
mod programs;
mod store;
