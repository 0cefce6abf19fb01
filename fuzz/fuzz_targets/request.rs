#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{AnalyzeRequest, PredictRequest, RecommendRequest, SweepRequest};
use answer::parse::parse;

fuzz_target!(|body: &[u8]| {
    let errors = [
        parse::<PredictRequest>(body).err(),
        parse::<RecommendRequest>(body).err(),
        parse::<SweepRequest>(body).err(),
        parse::<AnalyzeRequest>(body).err(),
    ];
    for error in errors.into_iter().flatten() {
        assert!(!error.message.is_empty() && !error.hint.is_empty());
    }
});
