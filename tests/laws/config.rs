//! The configuration: defaults, merging, and how a mistake is reported.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rooflined_config::{Automatic, Bus, Config, Location};

const SHIPPED: &str = include_str!("../../config/rooflined.toml");

/// The shipped file with the # taken from every key.
fn uncommented() -> String {
    let key = |line: &&str| {
        line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    SHIPPED.lines().map(|line| if key(&line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n")
}

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("test.toml"), text).map_err(|error| error.to_string())
}

/// The one message that `text` leads to.
fn mistake(text: &str) -> String {
    let message = parse(text).expect_err(text);
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn the_shipped_file_shows_every_key_with_its_default() {
    assert_eq!(parse(SHIPPED), Ok(Config::default()), "commented");
    assert_eq!(parse(&uncommented()), Ok(Config::default()), "uncommented");
    let shown: toml::Table = uncommented().parse().unwrap();
    let shown: BTreeSet<(String, String)> = shown
        .iter()
        .flat_map(|(table, keys)| {
            keys.as_table().unwrap().keys().map(move |key| (table.clone(), key.clone()))
        })
        .collect();
    let known = Config::TABLES
        .iter()
        .flat_map(|(table, keys)| keys.iter().map(|key| ((*table).into(), (*key).into())));
    assert_eq!(shown, known.collect());
    for (table, _) in Config::TABLES {
        assert!(SHIPPED.contains(&format!("\n[{table}]\n")), "[{table}]");
    }
}

#[test]
fn every_key_in_the_shipped_file_follows_its_comment() {
    let lines: Vec<&str> = SHIPPED.lines().collect();
    for pair in lines.windows(2) {
        if pair[1].starts_with('#') && pair[1].contains(" = ") && !pair[1].starts_with("# ") {
            assert!(pair[0].starts_with("# "), "{}", pair[1]);
        }
    }
}

#[test]
fn what_is_shown_loads_back_to_the_same() {
    let text = "[daemon]\nbus = 'unix:path=/tmp/b'\nstate_dir = '/tmp/s'\nmax_connections = 0x10\n[sampling]\nperiod_s = 2\n[control]\nenabled = true\nallowed_modes = ['15W', 'MAXN']\n";
    let config = parse(text).unwrap();
    assert_eq!(config.daemon.bus, Bus::Address("unix:path=/tmp/b".into()));
    assert_eq!(config.daemon.state_dir, Location::Path("/tmp/s".into()));
    assert_eq!((config.daemon.max_connections, config.sampling.period_s), (16, 2.0));
    assert_eq!(parse(&config.to_toml()), Ok(config));
    assert_eq!(parse(&Config::default().to_toml()), Ok(Config::default()));
}

#[test]
fn an_unknown_key_names_the_line_and_the_nearest_key() {
    for (text, expected) in [
        (
            "\n[sampling]\nperod_s = 1\n",
            "test.toml:3: unknown key `sampling.perod_s`; did you mean `period_s`?",
        ),
        (
            "[sampling]\nbus = 'none'\n",
            "test.toml:2: unknown key `sampling.bus`; it belongs below `[daemon]`",
        ),
        (
            "[metrics]\nx = 1\n",
            "test.toml:2: unknown key `metrics.x`; `[metrics]` has no keys in this version",
        ),
        (
            "[engines.llama]\n",
            "test.toml:1: unknown key `engines.llama`; `[engines]` has no keys in this version",
        ),
        ("[smapling]\n", "test.toml:1: unknown table `[smapling]`; did you mean `[sampling]`?"),
        ("period_s = 1\n", "test.toml:1: `period_s` is outside any table; move it below `[sampling]`"),
        ("period = 1\n", "test.toml:1: unknown key `period`; did you mean `period_s` below `[sampling]`?"),
        (
            "daemon = 1\n",
            "test.toml:1: `daemon` is a table, expected `[daemon]` and its keys on the lines after it",
        ),
    ] {
        assert_eq!(mistake(text), expected, "{text}");
    }
}

#[test]
fn a_wrong_value_names_the_line_and_what_was_expected() {
    for (line, expected) in [
        ("max_connections = -5", "-5, expected a whole number from 0 to 4294967295"),
        ("max_connections = 0", "0, expected a number from 1 to 4096"),
        ("max_connections = 99999999999", "99999999999, expected a whole number from 0 to 4294967295"),
        ("max_connections = 2.5", "2.5, expected a whole number from 0 to 4294967295"),
        ("max_connections = '7'", "'7', expected a whole number from 0 to 4294967295"),
        ("header_timeout_s = nan", "nan, expected a number from 0.1 to 300"),
        ("header_timeout_s = inf", "inf, expected a number from 0.1 to 300"),
        ("header_timeout_s = -1", "-1, expected a number from 0.1 to 300"),
        ("header_timeout_s = true", "true, expected a number"),
        ("root = 'sys'", "'sys', expected an absolute path"),
        ("socket_dir = 'run'", "'run': expected \"auto\" or an absolute path"),
        (
            "bus = 'sytem'",
            "'sytem': expected \"system\", \"session\", \"none\" or an address such as \"unix:path=/run/bus\"",
        ),
    ] {
        let key = line.split(' ').next().unwrap();
        assert_eq!(
            mistake(&format!("[daemon]\n\n{line}\n")),
            format!("test.toml:3: `daemon.{key}` is {expected}")
        );
    }
    for line in [
        "max_connections = 99999999999999999999999",
        "header_timeout_s = 2026-01-01",
        "root = {}",
        "max_connections = 99999999999999999999999999999999999999999999999999",
    ] {
        let key = line.split(' ').next().unwrap();
        let message = mistake(&format!("[daemon]\n\n{line}\n"));
        assert!(message.starts_with(&format!("test.toml:3: `daemon.{key}`")), "{message}");
    }
    assert!(mistake("[control]\nallowed_modes = [1]").contains("expected text in quotes"));
    let paths = "expected a list of absolute paths without \"..\"";
    for (dirs, expected) in [
        ("['models']", paths),
        ("['/srv/models', 'models']", paths),
        ("['/srv/../etc']", paths),
        ("['~/models']", paths),
        ("'/srv/models'", "expected a list"),
        ("[1]", "expected a path in quotes"),
    ] {
        let message = mistake(&format!("[models]\ndirs = {dirs}\n"));
        assert!(message.contains("test.toml:2: `models.dirs"), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(parse("[models]\ndirs = []\n").unwrap().models.dirs, Vec::<PathBuf>::new());
    assert_eq!(
        parse("[models]\ndirs = ['/a', '/b/']\n").unwrap().models.dirs,
        [Path::new("/a"), Path::new("/b")]
    );
    assert!(mistake("[control]\nenabled = 'yes'").contains("expected true or false"));
    let expected = "expected one of off, advise, switch";
    assert!(mistake("[policy]\nauto = 'on'").ends_with(expected));
    assert!(mistake("[policy]\nhysteresis_ratio = 1.5").ends_with("expected a number from 0 to 1"));
    for policy in [Automatic::Off, Automatic::Advise, Automatic::Switch] {
        let config = parse(&format!("[policy]\nauto = '{}'\n", policy.key())).unwrap();
        assert_eq!(config.policy.auto, policy);
        assert_eq!(parse(&config.to_toml()), Ok(config));
    }
    assert!(mistake("[calibration]\nmax_load_ratio = 20").ends_with("expected a number from 0 to 1"));
}

#[test]
fn text_that_is_no_toml_names_the_line() {
    assert!(
        mistake("[daemon]\nbus = \n").starts_with("test.toml:2: invalid TOML: "),
        "{}",
        mistake("[daemon]\nbus = \n")
    );
    let twice = mistake("[daemon]\nroot = '/'\nroot = '/'\n");
    assert!(twice.starts_with("test.toml:3: invalid TOML: duplicate key"), "{twice}");
    assert!(mistake(&"[".repeat(100_000)).starts_with("test.toml:1: invalid TOML: "));
}

#[test]
fn every_mistake_is_reported_at_once_from_the_top_down() {
    let text = "[sampling]\nidle = 1\nperiod_s = 0\n[control]\nmodes = []\n[daemon]\nbody = 1\n";
    let message = parse(text).unwrap_err();
    let lines: Vec<&str> = message.lines().map(|line| &line[..12]).collect();
    assert_eq!(lines, ["test.toml:2:", "test.toml:3:", "test.toml:5:", "test.toml:7:"]);
}

#[test]
fn later_files_replace_single_keys_in_the_order_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("rooflined.toml");
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    let part = |name: &str, text: &str| fs::write(dir.path().join("conf.d").join(name), text).unwrap();
    fs::write(&main, "[sampling]\nperiod_s = 2\nidle_period_s = 60\n[daemon]\nbus = 'none'\n").unwrap();
    part("20-b.toml", "[sampling]\nperiod_s = 4\n");
    part("10-a.toml", "[sampling]\nperiod_s = 3\n[daemon]\nbus = 'session'\n");
    part("30-note.txt", "invalid TOML");
    part(".hidden.toml", "invalid TOML");
    let files = Config::files(&main).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["rooflined.toml", "10-a.toml", "20-b.toml"]);
    let config = Config::load(&files).unwrap();
    assert_eq!((config.sampling.period_s, config.sampling.idle_period_s), (4.0, 60.0));
    assert_eq!(config.daemon.bus, Bus::Session);
    part("20-b.toml", "[sampling]\nperiods = 4\n");
    let problems = Config::check(&files);
    assert_eq!((problems.len(), problems[0].line, &problems[0].file), (1, Some(2), &files[2]));
    assert_eq!(problems[0].key.as_deref(), Some("sampling.periods"));
}

#[test]
fn without_any_file_the_defaults_hold_and_a_file_asked_for_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("rooflined.toml");
    let files = Config::files(&main).unwrap();
    assert_eq!(files, Vec::<PathBuf>::new());
    assert_eq!(Config::load(&files), Ok(Config::default()));
    let message = Config::load(&[main]).unwrap_err().to_string();
    assert!(message.contains("rooflined.toml: there is no such file"), "{message}");
}

#[test]
fn files_that_are_no_text_or_endless_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    fs::write(&file, b"[daemon]\nbus = '\xff'\n").unwrap();
    let message = Config::load(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(message.ends_with("c.toml:2: invalid TOML: not UTF-8 text"), "{message}");
    let message = Config::load(&["/dev/zero".into()]).unwrap_err().to_string();
    assert_eq!(message, "/dev/zero: cannot be read: it is not a regular file");
    fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    let message = Config::load(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(message.ends_with("c.toml: cannot be read: longer than 1 MiB; no configuration is"), "{message}");
}

proptest! {
    /// The shipped file with a piece cut out and another put in: a configuration or a list of mistakes with lines.
    #[test]
    fn no_text_makes_the_parser_panic(at in 0..2500_usize, cut in 0..60_usize, put in "\\PC{0,30}|[\\[\\]{}=\"'\n#0-9a-z_.-]{0,30}") {
        let text = uncommented();
        let end = (at + cut).min(text.len());
        let (Some(before), Some(after)) = (text.get(..at), text.get(end..)) else { return Ok(()) };
        let text = format!("{before}{put}{after}");
        if let Err(error) = Config::parse(Path::new("t"), &text) {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            prop_assert!(!error.problems.is_empty());
            for problem in &error.problems {
                prop_assert!(problem.line.is_some_and(|line| (1..=lines).contains(&line)), "{problem}");
            }
        }
    }
}

#[test]
fn every_mode_may_be_set_unless_the_list_says_which() {
    let control = |text: &str| parse(&format!("[control]\n{text}\n")).unwrap().control;
    let every = control("");
    assert_eq!((every.allowed(), every.allows("MAXN")), (None, true));
    let none = control("allowed_modes = []");
    assert_eq!((none.allowed(), none.allows("MAXN")), (Some(Vec::new()), false));
    let some = control("allowed_modes = ['15W']");
    assert!(some.allows("15w") && !some.allows("25W"));
    assert!(control("allowed_modes = ['15W', '*']").allows("25W"));
}

#[test]
fn declared_clocks_are_read_strictly() {
    let text = "[control]\nclock_modes = ['quiet=0..1500MHz', 'full speed=600..2400MHz']";
    let control = parse(text).unwrap().control;
    let modes = control.declared_modes().unwrap().modes;
    let shown: Vec<_> = modes
        .iter()
        .map(|mode| (mode.id, mode.name.as_str(), mode.gpu_max.map(rooflined_core::units::Hertz::get)))
        .collect();
    assert_eq!(shown, [(0, "default", None), (1, "quiet", Some(1.5e9)), (2, "full speed", Some(2.4e9))]);
    assert_eq!(parse("").unwrap().control.declared_modes(), None);
    for wrong in [
        "'quiet'",
        "'quiet=1500MHz'",
        "'quiet=0..1500'",
        "'quiet=0..1500 MHz'",
        "'=0..1500MHz'",
        "'quiet=1500..0MHz'",
        "'quiet=-1..1500MHz'",
        "'quiet=0..0MHz'",
        "'quiet=0..1e3MHz'",
        "'quiet=0..99999MHz'",
        "'3=0..1500MHz'",
        "' quiet=0..1500MHz'",
        "'default=0..1500MHz'",
        "'a=0..1MHz', 'A=0..2MHz'",
        "'quiet=0..99999999999MHz'",
    ] {
        let message = mistake(&format!("[control]\nclock_modes = [{wrong}]"));
        assert!(message.contains("NAME=MIN..MAXMHz"), "{wrong}: {message}");
    }
}
