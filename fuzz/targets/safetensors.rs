use rooflined_models::import::safetensors::{self, Index};

pub fn run(input: &[u8]) {
    let Some((length, bytes)) = input.split_first_chunk() else { return };
    let length = u64::from_le_bytes(*length);
    for length in [bytes.len() as u64, length] {
        let Ok(tensors) = safetensors::read(bytes, length) else { continue };
        if let Ok(model) = safetensors::model(&tensors, None, "fuzzed") {
            assert!(model.bytes_per_token().get() <= model.bytes().get());
        }
    }
    if let Ok(index) = Index::parse(bytes) {
        assert!(index.files().iter().all(|file| !file.contains('/')));
    }
}
