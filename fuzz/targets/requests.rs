//! Bodies of requests: refused with a code and a hint, or answered, for this machine and for others by their data sheets.
use std::sync::LazyLock;

use crate::{ask, support};
use rooflined_advice::parse::{parse, parse_list};
use rooflined_advice::{Catalogue, Request, observed};
use rooflined_api::{
    ConfirmRequest, HoldRequest, ModeRequest, ObservationRequest, RenewRequest, RevertRequest, TilingRequest,
};
use rooflined_core::refusal::Refusal;
use rooflined_predict::snapshot::Snapshot;
use serde::de::DeserializeOwned;

static MACHINE: LazyLock<(Snapshot, Catalogue)> =
    LazyLock::new(|| (support::snapshot(), Catalogue::default()));

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    parse(body).map_err(told).ok()
}

fn told(refusal: Refusal) {
    assert!(!refusal.message.is_empty() && !refusal.hint.is_empty(), "{refusal:?}");
}

pub fn run(body: &[u8]) {
    let (snapshot, catalogue) = &*MACHINE;
    let questions = [
        read(body).map(Request::Predict),
        read(body).map(|request| Request::Recommend(Box::new(request))),
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
        let _ = rooflined_advice::hold_query(snapshot, catalogue, &query).map_err(told);
    }
    read::<ModeRequest>(body);
    read::<ConfirmRequest>(body);
    read::<RevertRequest>(body);
    read::<RenewRequest>(body);
}
