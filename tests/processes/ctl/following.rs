//! `recommend --watch` against a daemon that ends its streams.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rooflined_api::RecommendAnswer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::answers::{healthy, recommendation};
use super::fake::{Fake, Reply};
use super::{bad, contains, ctl, good};

const ROUTE: &str = "/v1/recommend/watch";

fn event(name: &str, data: &impl serde::Serialize) -> String {
    format!("event: {name}\nid: 1\ndata: {}\n\n", json!(data))
}

fn stale(reason: &str, error: &Value) -> String {
    let stale = json!({
        "reason": reason, "causes": ["mode"], "changes": [], "error": error, "was_serial": 17, "serial": 18,
    });
    event("advice_stale", &stale)
}

fn infeasible() -> RecommendAnswer {
    RecommendAnswer { serial: 19, ..recommendation(false) }
}

/// A daemon of which each connection sees the next of these streams; then it is overloaded.
fn streams(streams: Vec<Vec<String>>) -> Fake {
    let next = AtomicUsize::new(0);
    Fake::start(move |asked| match asked.route.as_str() {
        ROUTE => match streams.get(next.fetch_add(1, Ordering::Relaxed)) {
            Some(events) => Reply::Events(events.clone()),
            None => Reply::error(503, "too_many_connections", None),
        },
        _ => healthy(asked),
    })
}

fn follow(fake: &Fake, args: &[&str]) -> Child {
    let mut command = ctl(fake.path(), &["recommend", "gemv", "64", "64", "--watch"]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// So many lines, then Ctrl-C; the lines, the exit code, standard error.
fn lines(mut child: Child, number: usize) -> (Vec<String>, Option<i32>, String) {
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines = out.lines().map_while(Result::ok).take(number).collect();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let code = child.wait().unwrap().code();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (lines, code, errors)
}

#[test]
fn changes_are_lines_and_a_stream_that_ends_is_opened_again() {
    let first = event("recommend", &recommendation(true));
    let change = [
        stale("the power mode went from 25W to 15W: slower", &Value::Null),
        event("recommend", &infeasible()),
    ];
    let fake = streams(vec![
        [vec![first.clone(), ": still here\n\n".into(), event("later", &json!({}))], change.to_vec()]
            .concat(),
        // Away, and back as it was: nothing to tell. Then as it was at first.
        vec![event("recommend", &infeasible())],
        vec![first.clone()],
        vec![
            first,
            stale("gone", &json!({ "code": "not_calibrated", "message": "m", "field": null, "hint": null })),
        ],
    ]);
    let (lines, code, errors) = lines(follow(&fake, &["-o", "jsonl"]), 4);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({ "event": "recommend", "data": recommendation(true) }));
    assert_eq!(lines[1]["data"]["reason"], "the power mode went from 25W to 15W: slower");
    assert_eq!(lines[1]["recommend"], json!(infeasible()));
    let back = "while the daemon was away: the constraints can be met now, with int8, batch 4";
    assert_eq!((&lines[2]["event"], &lines[2]["data"]["reason"]), (&json!("advice_stale"), &json!(back)));
    assert_eq!((&lines[2]["data"]["was_serial"], &lines[2]["data"]["serial"]), (&json!(19), &json!(17)));
    assert_eq!((&lines[3]["data"]["reason"], &lines[3]["recommend"]), (&json!("gone"), &Value::Null));
    assert_eq!(code, Some(0));
    contains(&errors, &["rooflinectl: the daemon has ended the stream; waiting for it to come back\n"]);
    let asked = fake.asked();
    assert!(asked.iter().all(|asked| asked.socket == "query" && asked.method == "POST"));
    assert_eq!(asked[0].json()["workload"], json!({ "op": { "kind": "gemv", "n": 64, "k": 64 } }));
    assert!(asked.iter().all(|again| again.body == asked[0].body));
}

#[test]
fn people_read_the_answer_and_then_a_line_for_each_change() {
    let fake = streams(vec![vec![
        event("recommend", &recommendation(true)),
        stale("the machine began to throttle: the time is 9.00 ms, outside 1.00 ms to 2.00 ms", &Value::Null),
        event("recommend", &recommendation(true)),
        stale("memory: nothing meets max_time_s any more", &Value::Null),
        event("recommend", &infeasible()),
    ]]);
    let table = good(&fake, &["recommend", "gemv", "64", "64"]).lines().count();
    let (lines, code, _) = lines(follow(&fake, &[]), table + 2);
    assert!(lines[0].starts_with("Use int8, batch 4: "), "{}", lines[0]);
    assert_eq!(lines[1], "int8 it is.");
    let choice = "; now int8, batch 4: ";
    contains(&lines[table], &["the machine began to throttle: the time is 9.00 ms, outside", choice]);
    assert_eq!(
        lines[table + 1],
        "memory: nothing meets --max-time any more; now nothing meets the constraints"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn a_refusal_ends_it_at_once() {
    let fake = Fake::start(|_| Reply::error(400, "unknown_format", Some("freedom.formats[0]")));
    let (exit, errors) = bad(fake.path(), &["recommend", "gemv", "64", "64", "--watch"]);
    assert_eq!(exit, 2);
    contains(&errors, &["refused as unknown_format", "hint: do something else"]);
    // Later too, unless it passes.
    let calls = AtomicUsize::new(0);
    let fake = Fake::start(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Events(vec![event("recommend", &recommendation(true))]),
        1 => Reply::error(503, "not_ready", None),
        _ => Reply::error(409, "not_calibrated", None),
    });
    let output = follow(&fake, &[]).wait_with_output().unwrap();
    assert_eq!((output.status.code(), fake.asked().len()), (Some(1), 3));
    let broken = Fake::start(|_| Reply::Events(vec!["event: recommend\ndata: {\"feasible\":7}\n\n".into()]));
    contains(&bad(broken.path(), &["recommend", "gemv", "64", "64", "--watch"]).1, &["not understood"]);
}
