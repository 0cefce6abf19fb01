//! The real programs as processes of their own: started, asked, misled, killed.

mod actuator;
mod ctl;
mod daemon;
mod power_loss;
mod store;
