//! Holds with a query on the simulated board: the daemon, the privileged helper and the board's nvpmodel are real
//! processes.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Home, eventually, get, http};
use super::small_model;

const BOARD: &str = "jetson-orin-nano-8gb-super";

fn configure(home: &Home, auto: &str) {
    home.configure(&format!(
        "[calibration]\nautomatic = false\n[control]\nenabled = true\ndwell_s = 0\n[policy]\nauto = \"{auto}\"\n"
    ));
}

fn simulated(home: &Home) -> impl FnOnce(&mut Command) {
    let root = home.path("board");
    move |command| {
        command.args(["--simulate", BOARD]).arg("--root").arg(root);
    }
}

fn post(home: &Home, path: &str, body: &Value) -> (u16, Value) {
    http(&home.control(), "POST", path, &body.to_string())
}

fn workload() -> Value {
    json!({ "op": { "kind": "gemv", "n": 4096, "k": 4096 }, "format": "int8" })
}

/// Columns a second that are expected in a mode.
fn rate_in(home: &Home, mode: &str) -> f64 {
    let body = json!({ "workload": workload(), "operating_point": { "power_mode": mode } });
    let (status, answer) = post(home, "/v1/predict", &body);
    assert_eq!(status, 200, "{answer}");
    answer["tokens_per_s"]["value"].as_f64().unwrap()
}

fn query(tokens_per_s: f64) -> Value {
    json!({
        "workload": workload(), "constraints": { "min_tokens_per_s": tokens_per_s }, "optimism": "expected",
    })
}

fn hold(home: &Home, query: &Value) -> (u16, Value) {
    post(home, "/v1/holds", &json!({ "query": query, "app_id": "llm", "ttl_s": 3600 }))
}

fn live_clock(home: &Home) -> String {
    std::fs::read_to_string(home.path("board/sys/class/devfreq/17000000.gpu/max_freq")).unwrap().trim().into()
}

#[test]
fn a_query_has_the_board_switched_and_its_end_has_it_go_back() {
    let home = Home::new();
    configure(&home, "switch");
    let daemon = home.start_with(simulated(&home));
    let (status, switch) = post(&home, "/v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((status, &switch["reached"]), (200, &json!("15W")), "{switch}");
    let (slow, fast) = (rate_in(&home, "15W"), rate_in(&home, "25W"));
    assert!(slow < fast, "{slow} {fast}");
    let (status, error) = hold(&home, &query(10.0 * fast));
    assert_eq!((status, &error["error"]["code"]), (409, &json!("unsatisfiable")), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("min_tokens_per_s"), "{error}");

    let (status, held) = hold(&home, &query((slow * fast).sqrt()));
    assert_eq!((status, &held["satisfied"]), (200, &json!(true)), "{held}");
    let mode = held["mode"].as_str().unwrap();
    assert_eq!(held["advice"]["mode"], mode);
    assert!(["25W", "MAXN_SUPER"].contains(&mode), "{held}");
    assert_ne!(live_clock(&home), "612000000", "the files of the board are those of the mode");
    let shown = get(&home.query(), "/v1/holds");
    assert_eq!((&shown["cause"], &shown["auto"]), (&json!("hold"), &json!("switch")));
    let hold = &shown["holds"][0];
    assert_eq!(hold["query"]["workload"]["op"]["kind"], "gemv", "{hold}");
    assert_eq!((&hold["satisfied"], &hold["unmet"]), (&json!(true), &Value::Null));
    let (status, error) = post(&home, "/v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((status, &error["error"]["code"]), (409, &json!("busy")), "a user may not break it");

    let (status, _) = http(&home.control(), "DELETE", &format!("/v1/holds/{}", held["id"]), "");
    assert_eq!(status, 200);
    eventually("the mode of before", || (live_clock(&home) == "612000000").then_some(()));
    eventually("it to be shown", || (get(&home.query(), "/v1/holds")["active_mode"] == "15W").then_some(()));
    drop(daemon);
}

/// A limit between what the modes draw by estimate and what they draw when they are measured.
#[test]
fn a_calibration_tells_whether_a_mode_keeps_a_power_limit_that_no_estimate_does() {
    let home = Home::new();
    configure(&home, "off");
    let daemon = home.start_with(simulated(&home));
    let modes = || get(&home.query(), "/v1/modes")["modes"].clone();
    let of_15w = |field: &str| {
        let modes = modes();
        modes.as_array().unwrap().iter().find(|mode| mode["name"] == "15W").unwrap()[field].clone()
    };
    let estimated = of_15w("worst_power_w").as_f64().unwrap();
    let limit = format!("{:.1}W", 0.75 * estimated);
    let hold = |more: &[&str]| {
        let mut args = vec!["hold", "--max-power", &limit];
        args.extend(more);
        args.extend(["--", "true"]);
        super::small_model::ctl(&home, &args)
    };
    let refused = hold(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    for part in ["15W may draw up to ", "not measured here", "--calibrate"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(of_15w("worst_power_source"), "prior", "nothing was measured to find out");

    let held = hold(&["--calibrate"]);
    let said = String::from_utf8_lossy(&held.stderr).into_owned();
    assert_eq!(held.status.code(), Some(0), "{said}");
    assert!(said.contains("calibrating in 15W") && said.ends_with("held in 15W\n"), "{said}");
    assert_eq!(of_15w("worst_power_source"), "measured");
    assert!(of_15w("worst_power_w").as_f64().unwrap() < 0.75 * estimated);
    drop(daemon);
}

#[test]
fn a_reload_makes_advice_of_a_query_and_then_ends_it() {
    let home = Home::new();
    configure(&home, "advise");
    let mut daemon = home.start_with(simulated(&home));
    post(&home, "/v1/mode", &json!({ "mode": "15W" }));
    let asked = query((rate_in(&home, "15W") * rate_in(&home, "25W")).sqrt());
    let (status, held) = hold(&home, &asked);
    assert_eq!((status, &held["satisfied"], &held["mode"]), (200, &json!(false), &json!("15W")), "{held}");
    let best = held["advice"]["mode"].clone();
    let unmet = get(&home.query(), "/v1/holds")["holds"][0]["unmet"].as_str().unwrap().to_owned();
    for part in ["15W misses min_tokens_per_s", best.as_str().unwrap(), "advise"] {
        assert!(unmet.contains(part), "{unmet}");
    }
    assert_eq!(live_clock(&home), "612000000", "nothing is switched");

    configure(&home, "switch");
    daemon.signal(Signal::HUP);
    daemon.wait_notified("READY=1", 2);
    eventually("the mode", || (get(&home.query(), "/v1/holds")["active_mode"] == best).then_some(()));
    configure(&home, "off");
    daemon.signal(Signal::HUP);
    daemon.wait_notified("READY=1", 3);
    eventually("the mode of before", || {
        let shown = get(&home.query(), "/v1/holds");
        (shown["active_mode"] == "15W" && shown["holds"] == json!([])).then_some(())
    });
    let (status, error) = hold(&home, &asked);
    assert_eq!((status, &error["error"]["code"]), (403, &json!("auto_off")));
    assert!(error["error"]["hint"].as_str().unwrap().contains("auto"), "{error}");
}

#[test]
fn the_examples_of_the_help_are_accepted_on_the_board() {
    let home = Home::new();
    configure(&home, "advise");
    let _daemon = home.start_with(simulated(&home));
    let (server, model) = (home.path("llama-server"), home.path("config.json"));
    std::fs::write(&server, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "torch_dtype": "bfloat16",
    });
    std::fs::write(&model, config.to_string()).unwrap();
    let server = format!("{} -m {}", server.display(), model.display());
    let mut tried = 0;
    for line in include_str!("../../../crates/rooflinectl/src/examples.txt").lines() {
        let asks = ["hold ", "run ", "mode set ", "recommend ", "predict ", "sweep ", "analyze "];
        // Files are those of a reader, and what waits to be confirmed stands in the way of the next.
        if !asks.iter().any(|ask| line.starts_with(ask))
            || [" ./", "--confirm"].iter().any(|not| line.split(" -- ").next().unwrap().contains(not))
        {
            continue;
        }
        let command = if line.starts_with("run ") { server.as_str() } else { "true" };
        let line =
            line.split_once(" -- ").map_or(line.to_owned(), |(ours, _)| format!("{ours} -- {command}"));
        // The switch back after a hold ends a moment after its command.
        let output = eventually(&line, || {
            let output = small_model::ctl(&home, &line.split(' ').collect::<Vec<_>>());
            (output.status.code() != Some(75)).then_some(output)
        });
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {:?}, {errors}", output.status.code());
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}
