//! The state directory: what is saved comes back, whatever happens in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rooflined::store::{Store, StoreError};
use rooflined_core::units::BytesPerSecond;
use rooflined_predict::calibration::CalibrationRecord;
use rooflined_predict::learning::Residuals;
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

/// A record in which `number` is found again, as long as a real one.
pub fn record(number: u32) -> CalibrationRecord {
    let ceiling = |value: u32| json!({"value": value, "low": value, "high": value, "provenance": "measured"});
    let curve: Vec<Value> = Vec::new();
    let regime = |key: &str| {
        json!({
            "key": key,
            "reference": {"read": 36e9, "core_to_core": null},
            "measured_at_unix_s": number,
            "samples": number % 50,
            "roofline": {
                "bandwidth": ceiling(number), "curve": curve, "copy": null, "triad": null,
                "compute": {"fp32": ceiling(number)}, "launch": ceiling(1), "ramp": 0.0, "workers": 2, "clock": null,
            },
            "profile": {"engine": "none", "formats": {}, "gemm": {}},
        })
    };
    serde_json::from_value(json!({
        "schema": 2,
        "key": {"machine": "00", "board": "cpu", "cpu": "x", "logical_cpus": 2, "kernel": null, "version": "0"},
        "measured_at_unix_s": number,
        "wall": 9.0,
        "plan": "full",
        "simulated": false,
        "regimes": [regime("near"), regime("far")],
        "rejected": [],
        "skipped": vec![format!("step {number}"); 300],
    }))
    .unwrap()
}

fn residuals() -> Residuals {
    let report = json!({
        "report": {"id": 3, "source": {"from": "user", "uid": 0, "pid": null, "shared": true}, "unix_s": 1e9},
        "key": {"engine": "llama.cpp", "op": "gemv", "rows": 0, "format": "q4_0"},
        "op": {"kind": "gemv", "n": 64, "k": 64}, "time": 0.5, "log_ratio": 0.25,
    });
    serde_json::from_value(json!({"machine": null, "reports": [report]})).unwrap()
}

/// Names in the directory, hidden ones too, sorted.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_holds(store: &Store, number: u32) {
    let loaded = store.load_calibration().unwrap();
    assert_eq!(loaded.damaged, None);
    assert_eq!(loaded.value, Some(record(number)));
}

#[test]
fn what_is_saved_comes_back_and_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("new/state")).unwrap();
    assert_eq!(store.load_calibration().unwrap().value, None);
    assert_eq!(store.load_residuals().unwrap().value, None);
    for number in [7, 8, 9, 10] {
        store.save_calibration(&record(number)).unwrap();
        assert_holds(&store, number);
    }
    store.save_residuals(&residuals()).unwrap();
    assert_eq!(store.load_residuals().unwrap().value, Some(residuals()));
    assert_holds(&Store::open(store.dir()).unwrap(), 10);
    let names = listing(store.dir());
    assert_eq!(names, ["calibration.json", "residuals.json"]);
}

#[test]
fn a_number_that_json_cannot_hold_never_replaces_a_good_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.save_calibration(&record(1)).unwrap();
    for poison in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut bad = record(2);
        bad.regimes[1].roofline.bandwidth.high = BytesPerSecond(poison);
        let error = store.save_calibration(&bad).unwrap_err();
        assert!(matches!(error, StoreError::Unstorable { .. }), "{error}");
    }
    let mut none = record(2);
    none.regimes.clear();
    assert!(store.save_calibration(&none).is_err());
    let mut endless = record(2);
    endless.skipped = vec!["x".repeat(1 << 20); 17];
    let error = store.save_calibration(&endless).unwrap_err().to_string();
    assert!(error.contains("calibration.json is not replaced: ") && error.contains("more than"), "{error}");
    assert_holds(&store, 1);
    assert_eq!(listing(dir.path()), ["calibration.json"]);
}

#[test]
fn damaged_files_are_set_aside_told_of_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.save_calibration(&record(3)).unwrap();
    let path = dir.path().join("calibration.json");
    let stored = fs::read_to_string(&path).unwrap();
    // As earlier versions wrote it, so that every other check comes to bear.
    let (content, _) = stored.split_once(",\"checksum\":").expect("a checksum");
    let good = format!("{content}}}").into_bytes();
    let edited = |from: &str, to: &str| {
        let text = String::from_utf8(good.clone()).unwrap();
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1).into_bytes()
    };
    let mut cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "damaged"),
        (vec![0; 4096], "damaged"),
        (b"null".to_vec(), "damaged"),
        (b"\xff\xfe{}".to_vec(), "damaged"),
        (edited("\"schema\":2", "\"schema\":99"), "schema 99"),
        (edited("\"kind\":\"calibration\"", "\"kind\":\"residuals\""), "it holds \"residuals\""),
        (edited("\"content\":{\"schema\":2", "\"content\":{\"schema\":3"), "its record has schema 3"),
        (edited("\"value\":3", "\"value\":null"), "damaged"),
        ("[".repeat(1 << 20).into_bytes(), "damaged"),
        (stored.replacen("\"value\":3", "\"value\":4", 1).into_bytes(), "its checksum is another"),
    ];
    cases.extend((1..20).map(|part| (good[..good.len() * part / 20].to_vec(), "damaged")));
    for (bytes, reason) in cases {
        fs::write(&path, &bytes).unwrap();
        let loaded = store.load_calibration().unwrap();
        assert_eq!(loaded.value, None);
        let damaged = loaded.damaged.unwrap();
        assert!(damaged.to_string().contains(reason), "{damaged}");
        let aside = damaged.set_aside.unwrap();
        assert_eq!(fs::read(&aside).unwrap(), bytes);
        assert!(!path.exists());
        let kept =
            listing(dir.path()).iter().filter(|name| name.starts_with("calibration.json.damaged-")).count();
        assert!((1..=3).contains(&kept), "{kept}");
        // Nothing there is no damage, and the next calibration is stored as ever.
        assert_eq!(store.load_calibration().unwrap().damaged, None);
    }
    store.save_calibration(&record(4)).unwrap();
    assert_eq!(store.load_calibration().unwrap().value, Some(record(4)));
}

#[test]
fn what_is_no_plain_file_or_too_long_is_set_aside_without_waiting_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let path = dir.path().join("calibration.json");
    let makers: [(&str, &dyn Fn()); 4] = [
        ("not a regular file", &|| fs::create_dir(&path).unwrap()),
        ("not a regular file", &|| {
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        }),
        ("not a regular file", &|| drop(std::os::unix::net::UnixListener::bind(&path).unwrap())),
        ("longer than", &|| fs::File::create(&path).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (reason, make) in makers {
        make();
        let damaged = store.load_calibration().unwrap().damaged.unwrap();
        assert!(damaged.reason.contains(reason) && damaged.set_aside.is_some(), "{damaged}");
    }
    store.save_calibration(&record(4)).unwrap();
    assert_holds(&store, 4);
}

#[test]
fn residuals_that_would_spoil_every_prediction_are_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.save_residuals(&residuals()).unwrap();
    let path = dir.path().join("residuals.json");
    let text = fs::read_to_string(&path).unwrap().replace("0.25", "5000.0");
    fs::write(&path, text).unwrap();
    let loaded = store.load_residuals().unwrap();
    assert!(loaded.value.is_none() && loaded.damaged.is_some());
}

#[test]
fn a_state_directory_that_cannot_be_used_is_an_error_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below"), "/proc/rooflined".into(), "/sys/rooflined".into()] {
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("state directory {}: ", path.display())), "{error}");
        assert!(error.contains("; ") && error.contains("--state-dir"), "{error}");
    }
}

/// Root may do anything, so this thread gives that right up first.
#[test]
fn a_directory_of_somebody_else_is_an_error_and_nothing_in_it_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.save_calibration(&record(1)).unwrap();
    let before = listing(dir.path());
    let permit =
        |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    rustix::thread::set_capabilities(None, sets).unwrap();

    permit(dir.path(), 0o500);
    let error = Store::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("Permission denied") && error.contains("; give it to the daemon's user"),
        "{error}"
    );
    assert!(store.save_calibration(&record(2)).is_err());
    assert_holds(&store, 1);
    fs::write(dir.path().join("calibration.json"), "damaged").unwrap();
    let damaged = store.load_calibration().unwrap().damaged.unwrap();
    assert!(
        damaged.set_aside.is_none() && damaged.to_string().contains("could not be set aside"),
        "{damaged}"
    );
    permit(dir.path(), 0o700);
    permit(&dir.path().join("calibration.json"), 0o000);
    let error = store.load_calibration().unwrap_err();
    assert!(matches!(error, StoreError::File { .. }), "{error}");
    assert_eq!(listing(dir.path()), before);
}

/// Files left by a writer that was killed are removed, but not while somebody may still be writing them.
#[test]
fn what_a_killed_writer_left_is_removed_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.save_calibration(&record(2)).unwrap();
    let before = listing(dir.path());
    let left = [".calibration.json.new-1-2-3", "samples-1-2-3.jsonl"];
    for name in left {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    fs::write(dir.path().join("notes.jsonl"), "mine").unwrap();
    Store::open(dir.path()).unwrap();
    assert_eq!(listing(dir.path()).len(), before.len() + 3);
    for name in left {
        let file = fs::File::options().write(true).open(dir.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }
    Store::open(dir.path()).unwrap();
    assert_eq!(listing(dir.path()).len(), before.len() + 1);
    assert_holds(&store, 2);
}

pub const DIR_OF_A_CHILD: &str = "ROOFLINED_TEST_STATE_DIR";

/// Not a test by itself: the process that `a_kill_at_any_moment_loses_nothing` kills.
#[test]
#[ignore = "runs until it is killed; started by another test"]
fn saves_in_a_loop() {
    let Some(dir) = std::env::var_os(DIR_OF_A_CHILD) else { return };
    let store = Store::open(dir).unwrap();
    let stored = store.load_calibration().unwrap();
    let mut number = stored.value.map_or(0, |record| record.measured_at_unix_s as u32);
    loop {
        number += 1;
        store.save_calibration(&record(number)).unwrap();
        println!("saved {number}");
    }
}

/// Not a test by itself: the process of which the operations are watched.
#[test]
#[ignore = "started by another test"]
fn saves_once() {
    let Some(dir) = std::env::var_os(DIR_OF_A_CHILD) else { return };
    Store::existing(dir).save_calibration(&record(2)).unwrap();
}

#[test]
fn a_kill_at_any_moment_loses_nothing() {
    const KILLS: u32 = 60;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (mut saves, mut last) = (0, 0);
    for kill in 0..KILLS {
        let spawned = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::saves_in_a_loop", "--ignored", "--nocapture"])
            .env(DIR_OF_A_CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            // ENOEXEC: this is another machine's program, run by an emulator that the kernel does not know.
            Err(error) if error.raw_os_error() == Some(8) => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let output = child.stdout.take().unwrap();
        let (sender, saved) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(number) =
                    line.strip_prefix("saved ").and_then(|number| number.parse::<u32>().ok())
                {
                    sender.send(number).unwrap();
                }
            }
        });
        // Every other time it is surely in the middle of saving, else anywhere from its start.
        let mut acknowledged = last;
        if kill % 2 == 0 {
            acknowledged = saved.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        acknowledged = saved.iter().last().unwrap_or(acknowledged);
        let loaded = store.load_calibration().unwrap();
        assert_eq!(loaded.damaged, None);
        let Some(found) = loaded.value else {
            assert_eq!(acknowledged, 0, "a record that was saved is gone");
            continue;
        };
        let number = found.measured_at_unix_s as u32;
        // What save_calibration returned from is stored; one more may have been in progress.
        assert!(
            number == acknowledged || number == acknowledged + 1,
            "found {number}, acknowledged {acknowledged}"
        );
        assert_holds(&store, number);
        saves += number - last;
        last = number;
    }
    assert!(saves > 0, "no save was completed between {KILLS} kills");
    println!("{KILLS} kills, {saves} saves, files left: {}", listing(dir.path()).len());
}
