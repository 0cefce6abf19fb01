//! The laboratory: fits reproduce the files that are shipped, and evaluations print what they measured.

mod engines;
mod evaluation;
mod orderings;
