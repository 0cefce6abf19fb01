//! The configuration: wrong with a reason, or the same again when it is written and read.
#![no_main]

use std::hint::black_box;
use std::path::Path;

use config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = Path::new("fuzzed.toml");
    match Config::parse(file, text) {
        Ok(config) => {
            black_box((config.control.allowed(), config.control.declared_modes()));
            assert_eq!(Config::parse(file, &config.to_toml()).as_ref(), Ok(&config));
        }
        Err(error) => assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
    }
});
