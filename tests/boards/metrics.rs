//! `/metrics` of every captured board, as Prometheus takes it: each family once with its help and its type, no series twice,
//! and names that `promtool check metrics` has nothing against. Where PROMTOOL names that program, it is asked too.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rooflined::server::metrics::{Counters, page};
use rooflined_core::hardware::registry;
use rooflined_core::units::Seconds;
use rooflined_governor::Now;
use rooflined_hw::{Sampler, SysRoot};
use rooflined_predict::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::captured::BOARDS;
use crate::tree::{self, nodes, put, unpack};

/// Base units of Prometheus that these metrics have, and what stands in their place where one has none.
const ENDINGS: [&str; 18] = [
    "_bytes", "_seconds", "_hertz", "_celsius", "_watts", "_volts", "_amperes", "_ratio", "_second",
    "_total", "_info", "_rpm", "_online", "_enabled", "_running", "_failed", "_on", "_id",
];
/// Truths and counts of things, which have no unit.
const PLAIN: [&str; 15] = [
    "process_open_fds",
    "rooflined_snapshot_serial",
    "rooflined_degraded",
    "rooflined_load_average",
    "rooflined_throttled",
    "rooflined_observations",
    "rooflined_model_observations",
    "rooflined_model_observations_refused",
    "rooflined_http_connections",
    "rooflined_http_streams",
    "rooflined_free_blocks",
    "rooflined_jetson_clocks",
    "rooflined_gpu_railgated",
    "rooflined_gpu_scaling_3d",
    "rooflined_rail_alarm",
];

/// The page after two samples.
fn page_of(board: &str) -> String {
    let dir = unpack(&nodes(board, "tree.txt"));
    let root = SysRoot::new(dir.path());
    let (known, discovered) = rooflined_hw::discover(&root);
    let mut sampler = Sampler::new(&root, discovered);
    let _ = rooflined_hw::read_state(&mut sampler, Seconds(1000.0));
    for (path, node) in nodes(board, "after.txt") {
        put(dir.path(), &path, &node);
    }
    let state = rooflined_hw::read_state(&mut sampler, Seconds(2000.0));
    let some = registry().get("gb10").unwrap().clone();
    let calibration = serde_json::from_value(json!({
        "schema": 0, "key": { "machine": null, "board": board, "cpu": "", "logical_cpus": 1, "kernel": null, "version": "" },
        "measured_at_unix_s": 1e9, "wall": 1.0, "plan": "full", "simulated": true, "regimes": [], "rejected": [],
        "skipped": [], "power": null,
    }));
    let calibration = Some(calibration.unwrap());
    let snapshot = Snapshot { board: known, state, calibration, ..Snapshot::hypothetical(Arc::new(some)) };
    page(&snapshot, Now { boottime: Seconds(2001.0), unix_s: 1e9 }, &Counters::default(), "query")
}

/// What is wrong with a page.
fn faults(page: &str) -> Vec<String> {
    let (mut faults, mut families, mut series) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut helped, mut typed) = ("", "");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split(' ').next().unwrap();
            if !families.insert(helped) {
                faults.push(format!("{helped} has HELP twice"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            typed = name;
            if name != helped {
                faults.push(format!("{name} has TYPE and no HELP"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                faults.push(format!("{name} is a {kind}"));
            }
            let known = PLAIN.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending));
            // A count is of a histogram or a summary.
            if !known || name.ends_with("_count") || name.ends_with("_sum") || name.ends_with("_bucket") {
                faults.push(format!("{name} ends neither in a base unit nor is it known to have none"));
            }
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            if name.split('{').next() != Some(typed) {
                faults.push(format!("{name} stands below {typed}"));
            }
            if !series.insert(name) {
                faults.push(format!("{name} stands twice"));
            }
            if !value.parse::<f64>().is_ok_and(f64::is_finite) {
                faults.push(format!("{name} is {value}"));
            }
        }
    }
    faults
}

/// What promtool says of a page; nothing where it has nothing to say.
fn complaints(promtool: &str, page: &str) -> String {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{promtool}: {error}"));
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { String::new() } else { format!("{}: {said}", output.status) }
}

#[test]
fn prometheus_takes_the_metrics_of_every_board() {
    tree::obey_permissions();
    let promtool = std::env::var("PROMTOOL").ok();
    let mut wrong = Vec::new();
    for board in BOARDS {
        let page = page_of(board);
        assert!(page.lines().count() > 20, "{board}: {page}");
        wrong.extend(faults(&page).into_iter().map(|fault| format!("{board}: {fault}")));
        if let Some(promtool) = &promtool {
            let said = complaints(promtool, &page);
            wrong.extend((!said.is_empty()).then(|| format!("{board}: {said}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The queries of the dashboard with the labels that their legends name.
fn queries() -> Vec<(String, Vec<String>)> {
    let dashboard: Value = serde_json::from_str(include_str!("../../config/grafana/rooflined.json")).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| {
            let legend = target["legendFormat"].as_str().unwrap();
            let labels = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap().to_owned());
            (target["expr"].as_str().unwrap().to_owned(), labels.collect())
        })
        .collect()
}

/// The metrics that a query names.
fn metrics_in(query: &str) -> Vec<&str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("rooflined_")).collect()
}

#[test]
fn every_query_of_the_dashboard_finds_something_on_some_board() {
    tree::obey_permissions();
    let pages: Vec<String> = BOARDS.iter().map(|board| page_of(board)).collect();
    let series: Vec<&str> =
        pages.iter().flat_map(|page| page.lines()).filter(|line| !line.starts_with('#')).collect();
    let queries = queries();
    assert!(queries.len() > 20);
    for (query, labels) in &queries {
        assert!(labels.iter().any(|label| label == "instance"), "{query}: no machine in its legend");
        let metrics = metrics_in(query);
        assert!(!metrics.is_empty(), "{query}");
        for metric in metrics {
            // In a collector's file the daemon's own load has a name of its own.
            let there = metric
                .strip_prefix("rooflined_")
                .filter(|rest| rest.starts_with("process_"))
                .unwrap_or(metric);
            let found = series.iter().find(|line| line.split(['{', ' ']).next() == Some(there));
            let found = found.unwrap_or_else(|| panic!("no board has {metric}, of {query}"));
            // The label of the machine is Prometheus's own.
            for label in labels.iter().filter(|label| *label != "instance") {
                assert!(found.contains(&format!("{label}=\"")), "{found} has no {label}, of {query}");
            }
        }
    }
    let Ok(promtool) = std::env::var("PROMTOOL") else { return };
    // Recording rules are queries that promtool reads; the dashboard's own interval is Grafana's to fill in.
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(index, (query, _))| json!({ "record": format!("query_{index}"), "expr": query.replace("$__rate_interval", "5m") }))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    // JSON is YAML.
    std::fs::write(file.path(), json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string())
        .unwrap();
    let output = Command::new(&promtool).args(["check", "rules"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(&format!("{} rules found", queries.len())),
        "{output:?}"
    );
}

#[test]
fn a_page_that_prometheus_would_refuse_is_found() {
    let head = "# HELP a_bytes A.\n# TYPE a_bytes gauge\n";
    assert!(faults(&format!("{head}a_bytes{{x=\"1\"}} 1\na_bytes{{x=\"2\"}} 1\n")).is_empty());
    for page in [
        format!("{head}a_bytes 1\na_bytes 2\n"),
        format!("{head}a_bytes 1\n{head}a_bytes{{x=\"1\"}} 2\n"),
        format!("{head}b_bytes 1\n"),
        format!("{head}a_bytes NaN\n"),
        head.replace("a_bytes", "a_count"),
        head.replace("a_bytes", "a_total"),
        head.replace("a_bytes", "a_milliseconds_of_it"),
    ] {
        assert_eq!(faults(&page).len(), 1, "{page}: {:?}", faults(&page));
    }
}
