//! A model with random weights.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::harness::{Home, missing};

/// A model of 2.9 million weights in the format; `None` without Python.
pub fn small(home: &Home, format: &str) -> Option<PathBuf> {
    let path = home.path(&format!("small-{format}.gguf"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random_gguf.py");
    let written =
        Command::new("python3").arg(script).args(["small", format, "--inner", "704"]).arg(&path).output();
    let Ok(written) = written else {
        missing("python3", "write a model");
        return None;
    };
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    Some(path)
}

pub fn ctl(home: &Home, args: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .arg("--socket")
        .arg(home.path("run"))
        .args(args)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .output()
        .unwrap()
}
