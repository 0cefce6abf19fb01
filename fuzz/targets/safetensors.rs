#![no_main]

use libfuzzer_sys::fuzz_target;
use roofline::workload::import::safetensors::{self, Index};

fuzz_target!(|input: (u64, &[u8])| {
    let (length, bytes) = input;
    for length in [bytes.len() as u64, length] {
        let Ok(tensors) = safetensors::read(bytes, length) else { continue };
        if let Ok(model) = safetensors::model(&tensors, None, "fuzzed") {
            assert!(model.bytes_per_token().get() <= model.bytes().get());
        }
    }
    if let Ok(index) = Index::parse(bytes) {
        assert!(index.files().iter().all(|file| !file.contains('/')));
    }
});
