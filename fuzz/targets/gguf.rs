#![no_main]

use libfuzzer_sys::fuzz_target;
use roofline::workload::import::gguf;

// The length of the file is not that of the bytes: headers are read of files that are larger.
fuzz_target!(|input: (u64, &[u8])| {
    let (length, bytes) = input;
    for length in [bytes.len() as u64, length] {
        if let Ok(header) = gguf::read(bytes, length)
            && let Ok(model) = gguf::model(&header, "fuzzed-q4_k_m.gguf")
        {
            assert!(model.bytes_per_token().get() <= model.bytes().get());
        }
    }
});
