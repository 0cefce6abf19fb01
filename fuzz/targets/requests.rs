//! Bodies of requests: refused with a code and a hint, or answered, for this machine and for others by their data sheets.
#![no_main]

use std::sync::LazyLock;

use answer::parse::{parse, parse_list};
use answer::{Catalogue, Request, observed};
use decide::snapshot::Snapshot;
use libfuzzer_sys::fuzz_target;
use roofline::refusal::Refusal;
use rooflined_fuzz::{ask, support};
use serde::de::DeserializeOwned;
use wire::{
    ConfirmRequest, HoldRequest, ModeRequest, ObservationRequest, RenewRequest, RevertRequest, TilingRequest,
};

static MACHINE: LazyLock<(Snapshot, Catalogue)> =
    LazyLock::new(|| (support::snapshot(), Catalogue::default()));

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    parse(body).map_err(told).ok()
}

fn told(refusal: Refusal) {
    assert!(!refusal.message.is_empty() && !refusal.hint.is_empty(), "{refusal:?}");
}

fuzz_target!(|body: &[u8]| {
    let (snapshot, catalogue) = &*MACHINE;
    let questions = [
        read(body).map(Request::Predict),
        read(body).map(|request| Request::Recommend(Box::new(request))),
        read(body).map(|request| Request::Joint(Box::new(request))),
        read(body).map(Request::Sweep),
        read::<TilingRequest>(body).map(Request::Tiling),
        read(body).map(Request::Analyze),
    ];
    for question in questions.into_iter().flatten() {
        ask(snapshot, catalogue, &question);
    }
    let one = read::<ObservationRequest>(body).into_iter();
    let several = parse_list::<ObservationRequest>(body).map_err(told).unwrap_or_default();
    for observation in one.chain(several).take(8) {
        let _ = observed(snapshot, catalogue, &observation, "[0]").map_err(told);
    }
    if let Some(HoldRequest { query: Some(query), .. }) = read(body) {
        let _ = answer::hold_query(snapshot, catalogue, &query).map_err(told);
    }
    read::<ModeRequest>(body);
    read::<ConfirmRequest>(body);
    read::<RevertRequest>(body);
    read::<RenewRequest>(body);
});
