//! The configuration: wrong with a reason, or the same again when it is written and read.
use std::hint::black_box;
use std::path::Path;

use rooflined_config::Config;

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let file = Path::new("fuzzed.toml");
    match Config::parse(file, text) {
        Ok(config) => {
            black_box((config.control.allowed(), config.control.declared_modes()));
            assert_eq!(Config::parse(file, &config.to_toml()).as_ref(), Ok(&config));
        }
        Err(error) => assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
    }
}
