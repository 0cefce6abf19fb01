//! Puts the libraries where a program under test finds them.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::scenario::{Scenario, VARIABLE};

/// Variables for a child's environment: what `Command::envs` takes.
pub type Env = Vec<(&'static str, String)>;

/// Writes `scenario` to `dir/gpu.toml` and links `libcuda.so.1` and `libnvidia-ml.so.1` there, under both names that
/// are asked for. A program with the variables returned finds this GPU. Writing `gpu.toml` again changes it for the
/// programs started later.
///
/// # Panics
///
/// Where the libraries are not built or `dir` cannot be written: no test can go on without.
pub fn install(dir: &Path, scenario: &Scenario) -> Env {
    try_install(dir, scenario).unwrap_or_else(|error| {
        #[allow(clippy::panic, reason = "see above")]
        {
            panic!("the fake GPU in {}: {error}", dir.display())
        }
    })
}

fn try_install(dir: &Path, scenario: &Scenario) -> Result<Env, String> {
    let text = |error: io::Error| error.to_string();
    let file = dir.join("gpu.toml");
    fs::write(&file, scenario.to_toml()?).map_err(text)?;
    for (built, name) in [("libfake_cuda.so", "libcuda.so"), ("libfake_nvml.so", "libnvidia-ml.so")] {
        // A package's own tests build no library that they do not ask for.
        let Some(built) = library(built).map_err(text)? else { continue };
        for name in [name.to_owned(), format!("{name}.1")] {
            let link = dir.join(name);
            match fs::remove_file(&link) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(text(error)),
                _ => symlink(&built, &link).map_err(text)?,
            }
        }
    }
    let mut search = dir.display().to_string();
    if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        search = format!("{search}:{}", before.display());
    }
    Ok(vec![
        ("LD_LIBRARY_PATH", search),
        (VARIABLE, file.display().to_string()),
        // Buffers of megabytes come and go with every launch: from the heap they cost no page faults each time.
        ("MALLOC_MMAP_THRESHOLD_", (1_u64 << 30).to_string()),
        ("MALLOC_TRIM_THRESHOLD_", (1_u64 << 32).to_string()),
    ])
}

/// A library that cargo built for this test: beside it, or beside the program that it tests.
pub fn library(name: &str) -> io::Result<Option<PathBuf>> {
    let own = env::current_exe()?;
    let mut dirs = own.ancestors().skip(1).take(2);
    Ok(dirs.find_map(|dir| {
        [dir.join(name), dir.join("deps").join(name)].into_iter().find(|library| library.is_file())
    }))
}
