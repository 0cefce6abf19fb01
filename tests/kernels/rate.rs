//! How fast the interpreter is, where somebody asks.

use std::time::Instant;

use ptx::{Arena, Launch};

use crate::device::module;

#[test]
#[ignore = "a measurement: cargo test -p rooflined-kernel-tests rate -- --ignored --nocapture"]
fn rate_of_the_interpreter() {
    let mut arena = Arena::new();
    let bytes = 4 << 20;
    let [a, b, out] = [0x31, 0x32, 0].map(|byte| arena.place(&vec![byte; bytes]).to_le_bytes().to_vec());
    let elements = (bytes as u64 / 16).to_le_bytes().to_vec();
    let number = |value: u32| value.to_le_bytes().to_vec();
    let half = || 0.5_f32.to_le_bytes().to_vec();
    let gemv =
        || vec![a.clone(), b.clone(), half(), b.clone(), number(256), number(4096), number(1), out.clone()];
    for (name, entry, params) in [
        ("stream", "stream_read", vec![a.clone(), elements.clone(), out.clone()]),
        ("stream", "stream_triad", vec![out.clone(), a.clone(), b.clone(), half(), elements.clone()]),
        ("fma", "fma_f32", vec![a.clone(), half(), half(), number(1000), out.clone()]),
        ("gemv_f16", "gemv_f16_b1", gemv()),
        ("gemv_q4_0", "gemv_q4_0_b1", gemv()),
        ("gemv_q4_k", "gemv_q4_k_b1", gemv()),
        ("gemv_i8", "gemv_i8_b1", gemv()),
        ("mma_f16", "mma_f16_f32", vec![a.clone(), a.clone(), b.clone(), number(50), out.clone()]),
    ] {
        let module = module(name);
        let began = Instant::now();
        let launch =
            Launch { grid: [4, 1, 1], block: [256, 1, 1], shared_bytes: 0, params: &params, limit: u64::MAX };
        let counts = ptx::launch(module.entry(entry).unwrap(), &launch, &mut arena)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{entry}: {} warp instructions, {:.0} million lane instructions a second",
            counts.warp_instructions,
            counts.warp_instructions as f64 * 32.0 / seconds / 1e6
        );
    }
}
