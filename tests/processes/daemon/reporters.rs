//! Whom the daemon believes, over its real socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use rustix::process::{Signal, Uid};
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

use super::harness::{Home, eventually, get, http, skip};

const WORKLOAD: &str = r#"{"model":"tinyllama-1.1b","format":"q8_0","context_tokens":512}"#;
const STRANGER: u32 = 65_534;
const NEIGHBOUR: u32 = 65_533;

/// One request as another user: who connects is decided by the thread that does.
fn http_as(uid: u32, socket: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    thread::scope(|scope| {
        let request = scope.spawn(|| {
            let user = Uid::from_raw(uid);
            set_thread_res_uid(user, user, user).unwrap();
            http(socket, method, path, body)
        });
        request.join().unwrap()
    })
}

#[test]
fn what_a_stranger_reports_moves_the_stranger_alone() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become two other users");
        return;
    }
    let home = Home::new();
    let mut daemon = home.start();
    let query = home.query();
    for dir in [home.path(""), home.path("run")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&query, fs::Permissions::from_mode(0o666)).unwrap();
    let predicted = |uid: u32| {
        let body = format!(r#"{{"engine":"llama.cpp","workload":{WORKLOAD}}}"#);
        let (status, mut answer) = http_as(uid, &query, "POST", "/v1/predict", &body);
        assert_eq!(status, 200, "{answer}");
        answer.as_object_mut().unwrap().remove("serial");
        // What is free moves by itself.
        answer["memory_bytes"].as_object_mut().unwrap().remove("available");
        answer
    };
    let report = |uid: u32, rates: &[f64]| {
        let one =
            |rate: &f64| format!(r#"{{"engine":"llama.cpp","workload":{WORKLOAD},"tokens_per_s":{rate}}}"#);
        let body = format!("[{}]", rates.iter().map(one).collect::<Vec<_>>().join(","));
        let (status, answer) = http_as(uid, &query, "POST", "/v1/observations", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let (mine, other) = (predicted(STRANGER), predicted(NEIGHBOUR));
    let rate = other["tokens_per_s"]["value"].as_f64().unwrap();

    // Ten times the same, far off.
    let answer = report(STRANGER, &[rate / 30.0; 10]);
    assert_eq!(
        (answer["accepted"].as_u64(), answer["learnt"][0]["doubted"].as_bool()),
        (Some(10), Some(true))
    );
    let widened = predicted(STRANGER);
    assert_eq!(widened["time_s"]["value"], mine["time_s"]["value"]);
    let high = |answer: &Value| answer["time_s"]["high"].as_f64().unwrap();
    assert!(high(&widened) * rate > 29.0 && high(&mine) * rate < 10.0, "{widened}");
    assert_eq!(
        (widened["reports"]["scope"].as_str(), widened["reports"]["doubted"].as_u64()),
        (Some("none"), Some(1))
    );

    // A thousand, each a little different.
    for part in 0..4 {
        let lies: Vec<f64> =
            (0..250).map(|index| rate / (2.0 + f64::from(part * 250 + index) / 1000.0)).collect();
        report(STRANGER, &lies);
    }
    assert_eq!(predicted(NEIGHBOUR), other, "1000 false reports move another user by nothing");
    let moved = predicted(STRANGER);
    assert!(moved["time_s"]["value"].as_f64() > mine["time_s"]["value"].as_f64(), "{moved}");
    assert_eq!(moved["reports"]["scope"], "own");

    // The neighbour neither sees nor forgets them.
    let (_, listed) = http_as(NEIGHBOUR, &query, "GET", "/v1/observations", "");
    assert_eq!(
        (listed["observations"].as_array().unwrap().len(), listed["other_users"].as_u64()),
        (0, Some(1))
    );
    let (_, own) = http_as(STRANGER, &query, "GET", "/v1/observations", "");
    let first = &own["observations"][0];
    assert_eq!(
        (first["uid"].as_u64(), first["pid"].as_u64()),
        (Some(65_534), Some(std::process::id().into()))
    );
    let id = first["id"].as_u64().unwrap();
    let path = format!("/v1/observations/{id}");
    assert_eq!(http_as(NEIGHBOUR, &query, "DELETE", &path, "").0, 404);
    assert_eq!(http_as(NEIGHBOUR, &query, "DELETE", "/v1/observations?scope=all", "").0, 403);
    assert_eq!(http_as(NEIGHBOUR, &query, "GET", "/v1/observations?scope=all", "").0, 403);
    let seen = get(&query, "/v1/observations?scope=all");
    assert_eq!(seen["observations"].as_array().unwrap().len(), own["observations"].as_array().unwrap().len());

    // They survive a restart with their user, and are taken back exactly.
    let file = home.path("state").join("reports.json");
    eventually("what was reported is stored", || file.exists().then_some(()));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let _daemon = home.start();
    fs::set_permissions(home.path("run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&query, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(predicted(NEIGHBOUR), other);
    assert_eq!(predicted(STRANGER)["reports"]["scope"], "own");
    let (status, answer) = http_as(STRANGER, &query, "DELETE", "/v1/observations?model=tinyllama-1.1b", "");
    assert_eq!((status, answer["forgotten"].as_u64() > Some(0)), (200, true), "{answer}");
    assert_eq!(predicted(STRANGER), mine);
    assert_eq!(get(&query, "/v1/observations?scope=all")["observations"].as_array().unwrap().len(), 0);
}
