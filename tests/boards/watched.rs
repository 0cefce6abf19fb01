//! What people watch on a board: how often it is read, and the table of docs/internals/sensors.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rooflined_core::board::details::Details;
use rooflined_core::board::{BoardState, Reading};
use rooflined_core::units::Seconds;
use rooflined_hw::{Sampler, SysRoot};
use serde_json::{Value, json};

use crate::tree::{Node, nodes, obey_permissions, put, unpack};

/// What stands in the table: the field, what it is called there, and whether jtop 4.3 shows it.
const ROWS: [(&str, &str, &str); 17] = [
    ("cores", "each CPU: load, governor, lowest and highest clock", "yes"),
    ("engines", "engines: clocks, highest clocks, on or off", "yes, by a service of root"),
    ("emc_utilisation", "utilisation of the memory clock (EMC)", "always 0"),
    ("fans", "fans: drive and speed", "yes"),
    ("fan_profile", "profile of the fan control", "yes"),
    ("gpu_control", "GPU: governor, lowest clock, rail gating, 3D scaling", "yes"),
    ("gpu_processes", "GPU: memory of each process", "yes, by a service of root"),
    ("gpu_shared_memory", "GPU: its part of the shared memory", "yes"),
    ("free_blocks", "largest free blocks (lfb)", "yes"),
    ("swap", "swap areas", "yes"),
    ("zram", "compressed memory (zram)", "yes"),
    ("rail_meters", "rails: volts, amperes, limits, alarms", "yes"),
    ("device_temperatures", "drives and network cards: temperatures", "yes"),
    ("jetson_clocks", "jetson_clocks: engaged or not", "yes, by a service of root"),
    ("jetpack", "JetPack", "yes"),
    ("cuda", "CUDA", "yes"),
    ("tensorrt", "TensorRT", "yes"),
];

const BOARDS: [(&str, &str); 5] = [
    ("agx-orin-64gb-root", "AGX Orin, root"),
    ("orin-nano-8gb-super-user", "Orin Nano"),
    ("agx-thor-t5000-user", "Thor"),
    ("agx-xavier-root", "Xavier, root"),
    ("gb10-devices", "GB10"),
];

fn sampled_twice(board: &str) -> Value {
    let dir = unpack(&nodes(board, "tree.txt"));
    let root = SysRoot::new(dir.path());
    let mut sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    sampler.sample(Seconds(1000.0));
    for (path, node) in nodes(board, "after.txt") {
        put(dir.path(), &path, &node);
    }
    let state = json!(sampler.sample(Seconds(2000.0)));
    assert_eq!(sampler.stuck_sources(), 0, "{board}: a file was read that waits for ever");
    state
}

/// Values that are known, names and places not counted.
fn known(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Array(items) => items.iter().map(known).sum(),
        Value::Object(fields) if fields.contains_key("absent") || fields.contains_key("failed") => 0,
        Value::Object(fields) => {
            let label =
                |key: &str| ["name", "source", "kind", "cpu", "pid", "priority", "scope"].contains(&key);
            fields.iter().filter(|(key, _)| !label(key)).map(|(_, value)| known(value)).sum()
        }
        _ => 1,
    }
}

/// `12` values, `root` where nobody else may read, `-` where the board has none.
fn cell(reading: &Value) -> String {
    let denied = |reading: &Value| reading.to_string().contains("permission denied: only root");
    match known(reading) {
        0 if denied(reading) => "root".to_owned(),
        0 => "-".to_owned(),
        count if denied(reading) => format!("{count}, rest root"),
        count => count.to_string(),
    }
}

#[test]
fn the_table_of_the_documentation_is_what_the_boards_show() {
    obey_permissions();
    let states: Vec<Value> = BOARDS.iter().map(|(board, _)| sampled_twice(board)).collect();
    let details = json!(Details::unknown(""));
    let rows: Vec<&str> = ROWS.iter().map(|(field, ..)| *field).collect();
    for field in details.as_object().unwrap().keys() {
        assert!(rows.contains(&field.as_str()), "{field} has no line");
    }
    let mut table = String::from("| read | jtop |");
    BOARDS.iter().for_each(|(_, name)| write!(table, " {name} |").unwrap());
    table += "\n|---|---|---:|---:|---:|---:|---:|\n";
    for (field, words, jtop) in ROWS {
        write!(table, "| {words} | {jtop} |").unwrap();
        states.iter().for_each(|state| write!(table, " {} |", cell(&state[field])).unwrap());
        table.push('\n');
    }
    let total = |state: &Value, of_details: bool| -> usize {
        let fields = state.as_object().unwrap().iter();
        let fields =
            fields.filter(|(field, _)| *field != "taken_at" && rows.contains(&field.as_str()) == of_details);
        fields.map(|(_, value)| known(value)).sum()
    };
    for (words, parts) in
        [("**values without these lines**", &[false][..]), ("**values with them**", &[false, true])]
    {
        write!(table, "| {words} | |").unwrap();
        let sum = |state: &Value| parts.iter().map(|part| total(state, *part)).sum::<usize>();
        states.iter().for_each(|state| write!(table, " {} |", sum(state)).unwrap());
        table.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/internals/sensors.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- table -->\n").unwrap();
    let (found, after) = rest.split_once("<!-- end of table -->").unwrap();
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}<!-- table -->\n{table}<!-- end of table -->{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "run it with ROOFLINED_UPDATE_DOCS=1 and read the difference");
}

#[test]
fn the_load_of_a_gpu_is_not_read_twice_in_half_a_second() {
    let dir = unpack(&nodes("orin-nano-8gb-super", "tree.txt"));
    let root = SysRoot::new(dir.path());
    let mut sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    let load = "/sys/devices/platform/bus@0/17000000.gpu/load";
    let mut sample_at = |now: f64, text: &str| {
        put(dir.path(), load, &Node::File(text.as_bytes().to_vec()));
        sampler.sample(Seconds(now)).gpu_load
    };
    assert_eq!(sample_at(10.0, "100\n"), Reading::Known(0.1));
    assert_eq!(sample_at(10.45, "200\n"), Reading::Known(0.1), "the last value stands");
    assert_eq!(sample_at(10.5, "300\n"), Reading::Known(0.3));
    assert_eq!(sample_at(10.9, "400\n"), Reading::Known(0.3));
    assert_eq!(sample_at(11.5, "500\n"), Reading::Known(0.5));
    assert_eq!(sample_at(3.0, "600\n"), Reading::Known(0.6), "a clock that went back is a new start");
}

#[test]
fn what_is_read_seldom_says_how_old_it_is() {
    let dir = unpack(&nodes("agx-orin-64gb-root", "tree.txt"));
    let root = SysRoot::new(dir.path());
    let mut sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    let swaps = |state: &BoardState| state.details.swap.known().unwrap().len();
    let first = sampler.sample(Seconds(100.0));
    assert_eq!(swaps(&first), 2);
    put(dir.path(), "/proc/swaps", &Node::File(b"Filename Type Size Used Priority\n".to_vec()));
    let soon = sampler.sample(Seconds(105.0));
    assert_eq!(swaps(&soon), 2, "swap is looked at once in ten seconds");
    let late = sampler.sample(Seconds(110.0));
    assert_eq!(swaps(&late), 0);
    // The first reading was made with the first sample; what is read again is as old as the last.
    let read = |state: &BoardState| state.details.read_at["swap"].get();
    assert!((read(&first) - 100.0).abs() < 1.0 && (read(&late) - 110.0).abs() < 1.0);
    assert!(read(&soon) <= 105.0, "{}", read(&soon));
}
