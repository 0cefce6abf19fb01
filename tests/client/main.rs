//! The Rust client of others' programs (`clients/rust`) against a real daemon of a simulated board, and against programs that
//! answer badly. The tests of the Python client have the same cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod bad_company;
mod harness;
mod make_types;
mod places;
mod streams;
mod verbs;
