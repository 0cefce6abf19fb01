//! Servers that become slow, as those who watch them report.

use serde_json::{Value, json};

use super::harness::{Home, degraded, http};

/// A report of a server at this part of its predicted rate.
fn report(home: &Home, rate: f64, seen: Option<Value>) -> Value {
    let mut run = json!({
        "engine": "llama.cpp", "workload": {"model": "tinyllama-1.1b", "format": "q8_0", "context_tokens": 512},
    });
    let (status, answer) = http(&home.query(), "POST", "/v1/predict", &run.to_string());
    assert_eq!(status, 200, "{answer}");
    run["tokens_per_s"] = (answer["tokens_per_s"]["value"].as_f64().unwrap() * rate).into();
    run["server"] = "llama-server on port 8080".into();
    run["seen"] = seen.unwrap_or_default();
    let (status, answer) = http(&home.query(), "POST", "/v1/observations", &run.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Half of the time its threads waited for a CPU that another process used.
fn beside_another() -> Option<Value> {
    let others = json!([{"pid": 4711, "name": "make", "cpus": 1.0}]);
    Some(json!({"pid": 12, "cpu_wait_ratio": 0.8, "others": others}))
}

#[test]
fn a_server_that_stays_slow_degrades_the_machine_once_and_until_it_is_over() {
    let home = Home::new();
    let daemon = home.start();
    assert_eq!(report(&home, 1.0, None)["slow"], json!([]));
    let first = report(&home, 0.2, beside_another());
    assert!(first["slow"][0]["reason"].as_str().unwrap().contains("make (process 4711"), "{first}");
    // A run that a neighbour slowed down says nothing of the machine.
    assert_eq!(
        (&first["accepted"], &first["refused"][0]["code"]),
        (&json!(0), &json!("slowed_down")),
        "{first}"
    );
    assert_eq!(degraded(&home), "[]", "one slow report is not a lasting change");
    report(&home, 0.2, beside_another());
    let noticed = degraded(&home);
    assert!(noticed.contains("server: llama-server on port 8080: "), "{noticed}");
    assert!(noticed.contains("make (process 4711"), "{noticed}");
    report(&home, 0.15, beside_another());
    assert_eq!(degraded(&home), noticed, "it is said once");
    let lines = home.log().lines().filter(|line| line.contains("llama-server on port 8080")).count();
    assert_eq!(lines, 1, "{}", home.log());
    drop(daemon);
    let _daemon = home.start();
    assert_eq!(degraded(&home), noticed, "a restart loses nothing");
    assert_eq!(report(&home, 1.0, None)["accepted"], 1);
    report(&home, 0.15, beside_another());
    assert_eq!(degraded(&home), noticed, "to and fro is no recovery");
    for _ in 0..3 {
        report(&home, 1.0, None);
    }
    assert_eq!(degraded(&home), "[]");
    // As expected, but beside others: nothing can be learned from it.
    let disturbed = report(&home, 1.0, Some(json!({"disturbed": "the server waited for a processor"})));
    assert_eq!((&disturbed["accepted"], &disturbed["slow"]), (&json!(0), &json!([])), "{disturbed}");
}

/// What `GET /v1/servers` lists.
fn listed(home: &Home) -> Vec<Value> {
    let (status, answer) = http(&home.query(), "GET", "/v1/servers", "");
    assert_eq!(status, 200, "{answer}");
    answer["servers"].as_array().unwrap().clone()
}

#[test]
fn a_server_is_listed_as_it_was_judged_before_its_report_was_learned_from() {
    let home = Home::new();
    let _daemon = home.start();
    assert_eq!(listed(&home), [Value::Null; 0]);
    report(&home, 1.0, None);
    let [server] = &listed(&home)[..] else { panic!("one was reported") };
    assert_eq!(
        (&server["server"], &server["model"], &server["format"], &server["context_tokens"]),
        (&json!("llama-server on port 8080"), &json!("tinyllama-1.1b"), &json!("q8_0"), &json!(512))
    );
    assert_eq!((&server["shown_to"], &server["not_learned"]), (&json!("everyone"), &Value::Null));
    assert_eq!(server["explained"]["verdict"], "as_expected");
    // A report that nothing is learned from shows too, with its reason and its causes.
    report(&home, 0.2, beside_another());
    let [server] = &listed(&home)[..] else { panic!("it is the same one") };
    assert!(server["not_learned"].as_str().unwrap().contains("make (process 4711"), "{server}");
    assert_eq!(server["explained"]["causes"][0]["cause"], "other_process", "{server}");
    // One that is learned from is judged by what was expected before.
    report(&home, 0.4, None);
    assert_eq!(listed(&home)[0]["explained"]["verdict"], "slower_than_expected");
    // A judgement full of words is not kept.
    let unseen = json!([{"what": "x".repeat(30_000), "reason": "", "grant": ""}]);
    report(&home, 1.0, Some(json!({"unseen": unseen})));
    assert_eq!(listed(&home), [Value::Null; 0]);
}

#[test]
fn a_name_or_evidence_that_cannot_be_is_refused() {
    let home = Home::new();
    let _daemon = home.start();
    let refused = |name: &str, seen: &str| {
        let body = format!(
            r#"{{"engine":"llama.cpp","workload":{{"model":"tinyllama-1.1b","format":"q8_0"}},"tokens_per_s":5,"server":{},"seen":{seen}}}"#,
            json!(name)
        );
        let (status, answer) = http(&home.query(), "POST", "/v1/observations", &body);
        assert_eq!(status, 400, "{answer}");
        answer["error"]["field"].as_str().unwrap().to_owned()
    };
    assert_eq!(refused("", "{}"), "server");
    assert_eq!(refused("a\nb", "{}"), "server");
    assert_eq!(refused(&"x".repeat(101), "{}"), "server");
    assert_eq!(refused("x", r#"{"cpu_wait_ratio":2}"#), "seen.cpu_wait_ratio");
}
