//! Whom the daemon believes, over its real socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use rooflined::server::dbus::{NAME, PATH};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};

use super::bus::PrivateBus;
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

/// What is free moves by itself.
fn forget_free_memory(answer: &mut Value) {
    answer["memory_bytes"].as_object_mut().unwrap().retain(|key, _| key != "available" && key != "room");
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
        forget_free_memory(&mut answer);
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
    assert_eq!((answer["accepted"].as_u64(), answer["learnt"][0]["count"].as_u64()), (Some(10), Some(1)));
    let own = predicted(STRANGER);
    let slower = own["time_s"]["value"].as_f64().unwrap() * rate;
    // How far one report that is thirty times off moves its reporter depends on how well engines on this processor are known.
    assert!((1.1..45.0).contains(&slower), "{slower} times as slow: {own}");
    assert_eq!((own["reports"]["scope"].as_str(), own["reports"]["own"].as_u64()), (Some("own"), Some(1)));

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

/// A bus admits only users that the system knows; Debian has these two from the start.
const DAEMON: u32 = 1;
const BIN: u32 = 2;

/// One `Query` on the bus as another user: the answer, or what is said of the error. The bus daemon asks the kernel who connects.
fn bus_as(uid: u32, address: &str, query: &Value) -> Result<Value, String> {
    let ask = async || {
        let connection = zbus::connection::Builder::address(address).build().await.unwrap();
        let proxy = zbus::Proxy::new(&connection, NAME, PATH, NAME).await.unwrap();
        let answer: Result<String, _> = proxy.call("Query", &query.to_string()).await;
        match answer {
            Ok(json) => Ok(serde_json::from_str(&json).unwrap()),
            Err(zbus::Error::MethodError(_, text, _)) => Err(text.unwrap_or_default()),
            Err(other) => panic!("{other}"),
        }
    };
    thread::scope(|scope| {
        let request = scope.spawn(|| {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(ask())
        });
        request.join().unwrap()
    })
}

#[test]
fn users_on_the_bus_are_told_apart_as_those_of_the_socket_are() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become two other users");
        return;
    }
    let Some(bus) = PrivateBus::start() else { return };
    let mut home = Home::new();
    home.bus = bus.address();
    let _daemon = home.start();
    eventually("the bus", || home.log().contains("serving on the bus").then_some(()));
    for dir in [home.path(""), home.path("run")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(home.query(), fs::Permissions::from_mode(0o666)).unwrap();
    let ask = |uid: u32, query: Value| bus_as(uid, &bus.address(), &query);
    let workload: Value = serde_json::from_str(WORKLOAD).unwrap();
    let predict = json!({"path": "/v1/predict", "body": {"engine": "llama.cpp", "workload": workload}});
    let predicted = |uid: u32| {
        let mut answer = ask(uid, predict.clone()).unwrap();
        answer.as_object_mut().unwrap().remove("serial");
        forget_free_memory(&mut answer);
        answer
    };
    let report = |uid: u32, rate: f64| {
        let body = json!([{"engine": "llama.cpp", "workload": workload, "tokens_per_s": rate}]);
        let answer = ask(uid, json!({"path": "/v1/observations", "body": body})).unwrap();
        assert_eq!(answer["accepted"], 1, "{answer}");
    };
    let before = predicted(STRANGER);
    assert_eq!(predicted(DAEMON), before);
    let rate = before["tokens_per_s"]["value"].as_f64().unwrap();
    let seconds = |answer: &Value| answer["time_s"]["value"].as_f64().unwrap();

    // Each moves its own answers, one up and one down, and nobody else's.
    report(STRANGER, rate / 1.5);
    assert_eq!(predicted(DAEMON), before);
    report(DAEMON, rate * 1.2);
    let (slower, faster) = (predicted(STRANGER), predicted(DAEMON));
    assert!(seconds(&slower) > seconds(&before) && seconds(&faster) < seconds(&before));
    for answer in [&slower, &faster] {
        assert_eq!((&answer["reports"]["scope"], &answer["reports"]["own"]), (&json!("own"), &json!(1)));
    }
    // Another user of the bus with no reports is answered as before.
    assert_eq!(seconds(&predicted(BIN)), seconds(&before));
    // A user is one, whichever way it comes.
    let body = predict["body"].to_string();
    for (uid, over_the_bus) in [(STRANGER, &slower), (DAEMON, &faster)] {
        let (status, answer) = http_as(uid, &home.query(), "POST", "/v1/predict", &body);
        assert_eq!((status, &answer["time_s"]), (200, &over_the_bus["time_s"]));
    }

    // Nobody sees or forgets what is another's; root sees both with their users.
    let listed = |uid: u32| ask(uid, json!({"path": "/v1/observations"})).unwrap()["observations"].clone();
    let (own, others) = (listed(STRANGER), listed(DAEMON));
    for (list, uid) in [(&own, STRANGER), (&others, DAEMON)] {
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!((&list[0]["uid"], &list[0]["pid"]), (&json!(uid), &json!(std::process::id())));
    }
    let delete = |uid: u32, path: &str| ask(uid, json!({"method": "DELETE", "path": path}));
    let of_another = format!("/v1/observations/{}", others[0]["id"]);
    let refused = |path: &str| delete(STRANGER, path).unwrap_err();
    assert!(refused(&of_another).starts_with("not_found: "), "{}", refused(&of_another));
    for of_others in ["/v1/observations?scope=all", &format!("/v1/observations?user={DAEMON}")] {
        assert!(refused(of_others).starts_with("control_disabled: "), "{}", refused(of_others));
    }
    let seen = get(&home.query(), "/v1/observations?scope=all");
    let uids: Vec<&Value> = seen["observations"].as_array().unwrap().iter().map(|one| &one["uid"]).collect();
    assert!(uids.len() == 2 && uids.contains(&&json!(STRANGER)) && uids.contains(&&json!(DAEMON)), "{seen}");
    assert_eq!(delete(STRANGER, "/v1/observations?scope=own").unwrap()["forgotten"], 1);
    assert_eq!((predicted(STRANGER), predicted(DAEMON)), (before, faster));

    // What root reports counts for everybody.
    report(0, rate / 1.5);
    let moved = predicted(BIN);
    assert!(seconds(&moved) > seconds(&predicted(DAEMON)), "{moved}");
    assert_eq!(moved["reports"]["scope"], "shared");
}
