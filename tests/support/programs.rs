//! Where cargo put the programs that the tests start.

#![allow(dead_code, reason = "each program here uses its own part")]
#![allow(clippy::panic, reason = "a test ends where its world does")]

use std::path::PathBuf;

pub fn rooflined() -> PathBuf {
    built("rooflined")
}

pub fn rooflinectl() -> PathBuf {
    built("rooflinectl")
}

/// A program two directories above this one: cargo names those of the package under test alone.
fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let built = this.parent().and_then(|deps| deps.parent()).map(|profile| profile.join(name));
    match built {
        Some(built) if built.exists() => built,
        _ => panic!("{name} is missing beside {}: run `cargo build --package {name}` first", this.display()),
    }
}
