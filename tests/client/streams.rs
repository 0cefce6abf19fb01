//! Events, watched recommendations and holds.

use std::time::Duration;

use rooflined_api::{
    AdviceStale, HoldConstraints, HoldRequest, HoldsAnswer, ModesAnswer, RecommendAnswer, RecommendRequest,
};
use rooflined_client::{Client, ClientError, Event, Events, Lines};
use rooflined_core::names::Engine;
use serde_json::{Value, json};

use crate::harness::{Daemon, chat, wait_for};

fn fifteen_watts() -> HoldRequest {
    let constraints = HoldConstraints { mode: Some("15W".to_owned()), ..HoldConstraints::default() };
    HoldRequest {
        app_id: "test".to_owned(),
        reason: "to see".to_owned(),
        constraints,
        ..HoldRequest::default()
    }
}

async fn enter(daemon: &Daemon, mode: &str) {
    daemon.client().command("/v1/mode", &json!({ "mode": mode })).await.unwrap();
}

async fn active_mode(client: &mut Client) -> Option<String> {
    client.get("/v1/modes").await.unwrap().parse::<ModesAnswer>().unwrap().active
}

async fn next(events: &mut Events) -> Event {
    events.next().await.unwrap().unwrap()
}

async fn next_line(lines: &mut Lines) -> Value {
    lines.next().await.unwrap().unwrap()
}

#[test]
fn events_begin_with_the_state_and_a_slow_reader_misses_no_change() {
    let daemon = Daemon::new();
    wait_for(async {
        let mut events = daemon.client().events().await.unwrap();
        assert_eq!(next(&mut events).await.name, "state");
        tokio::time::sleep(Duration::from_secs(2)).await;
        enter(&daemon, "15W").await;
        let changed = loop {
            let event = next(&mut events).await;
            if event.name == "mode" {
                break event;
            }
        };
        assert_eq!(serde_json::from_str::<Value>(&changed.data).unwrap()["to"], "15W");
    });
}

#[test]
fn events_end_when_the_daemon_does_and_a_new_subscription_finds_it_again() {
    let mut daemon = Daemon::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut client = daemon.client();
    let mut events = runtime.block_on(client.events()).unwrap();
    daemon.kill();
    runtime.block_on(async { while let Ok(Some(_)) = events.next().await {} });
    daemon.start();
    let mut events = runtime.block_on(client.events()).unwrap();
    assert_eq!(runtime.block_on(next(&mut events)).name, "state");
}

#[test]
fn a_watched_recommendation_is_answered_again_after_a_change() {
    let daemon = Daemon::new();
    let request =
        RecommendRequest { workload: chat(), engine: Engine::LlamaCpp, ..RecommendRequest::default() };
    wait_for(async {
        let mut events = daemon.client().watch(&request).await.unwrap();
        let first = next(&mut events).await;
        assert_eq!(first.name, "recommend");
        assert!(serde_json::from_str::<RecommendAnswer>(&first.data).unwrap().feasible);
        enter(&daemon, "15W").await;
        let stale = next(&mut events).await;
        assert_eq!(stale.name, "advice_stale");
        assert!(!serde_json::from_str::<AdviceStale>(&stale.data).unwrap().reason.is_empty());
        assert_eq!(next(&mut events).await.name, "recommend");
        let wrong = daemon.client().watch(&json!({"workload": {}})).await;
        assert!(matches!(wrong, Err(ClientError::Refused { .. })));
    });
}

#[test]
fn a_hold_lasts_as_long_as_its_lines() {
    let daemon = Daemon::new();
    wait_for(async {
        let mut client = daemon.client();
        let before = active_mode(&mut client).await;
        let mut hold = client.hold(&fifteen_watts()).await.unwrap();
        let held = next_line(&mut hold).await;
        assert_eq!(
            (&held["event"], &held["mode"], &held["satisfied"]),
            (&json!("held"), &json!("15W"), &json!(true))
        );
        assert_eq!(active_mode(&mut client).await.as_deref(), Some("15W"));
        let holds: HoldsAnswer = client.get("/v1/holds").await.unwrap().parse().unwrap();
        let [only] = &holds.holds[..] else { panic!("{holds:?}") };
        assert_eq!((&*only.app_id, &*only.reason, only.attached), ("test", "to see", true));
        drop(hold);
        let restored = async {
            while active_mode(&mut client).await != before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), restored).await.unwrap();
    });
}

#[test]
fn a_hold_is_refused_for_an_unknown_mode_and_without_control() {
    let code = |daemon: &Daemon, mode: &str| {
        let constraints = HoldConstraints { mode: Some(mode.to_owned()), ..HoldConstraints::default() };
        let request = HoldRequest { constraints, ..fifteen_watts() };
        match wait_for(async { daemon.client().hold(&request).await.map(drop) }) {
            Err(ClientError::Refused { body, .. }) => body.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code(&Daemon::new(), "no such mode"), "unknown_mode");
    assert_eq!(code(&Daemon::with("[calibration]\nautomatic = false\n"), "15W"), "control_disabled");
}

#[test]
fn a_hold_that_somebody_releases_says_so_and_ends() {
    let daemon = Daemon::new();
    wait_for(async {
        let mut client = daemon.client();
        let mut hold = client.hold(&fifteen_watts()).await.unwrap();
        let id = next_line(&mut hold).await["id"].as_u64().unwrap();
        client.release(id).await.unwrap();
        let mut last = json!(null);
        while let Ok(Some(line)) = hold.next().await {
            last = line;
        }
        assert_eq!(last["event"], "ended", "{last}");
    });
}
