#![no_main]

use libfuzzer_sys::fuzz_target;
use rooflined::api::{AnalyzeRequest, PredictRequest, RecommendRequest, SweepRequest};
use rooflined::server::parse::parse;

fuzz_target!(|body: &[u8]| {
    let errors = [
        parse::<PredictRequest>(body).err(),
        parse::<RecommendRequest>(body).err(),
        parse::<SweepRequest>(body).err(),
        parse::<AnalyzeRequest>(body).err(),
    ];
    for error in errors.into_iter().flatten() {
        assert!(!error.code.is_empty() && !error.message.is_empty() && error.hint.is_some());
    }
});
