#![no_main]

use libfuzzer_sys::fuzz_target;
use roofline::board::nvpmodel;

fuzz_target!(|text: &str| {
    let _ = nvpmodel::parse(text);
});
