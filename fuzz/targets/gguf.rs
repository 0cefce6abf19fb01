use rooflined_models::import::gguf;

// The length of the file is not that of the bytes: headers are read of files that are larger.
pub fn run(input: &[u8]) {
    let Some((length, bytes)) = input.split_first_chunk() else { return };
    let length = u64::from_le_bytes(*length);
    for length in [bytes.len() as u64, length] {
        if let Ok(header) = gguf::read(bytes, length)
            && let Ok(model) = gguf::model(&header, "fuzzed-q4_k_m.gguf")
        {
            assert!(model.bytes_per_token().get() <= model.bytes().get());
        }
    }
}
