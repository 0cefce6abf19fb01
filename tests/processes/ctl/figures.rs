//! Figures as people read them: at most four significant digits, and nothing that only a program would print.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::daemon::harness::{Home, eventually};
use crate::daemon::small_model::small;

const BOARDS: [&str; 3] = ["jetson-orin-nano-8gb-super", "jetson-agx-thor-t5000", "gb10"];
const MODELS: [&str; 3] = ["llama-3.1-8b", "qwen3-30b-a3b", "tinyllama-1.1b"];

/// Words behind a number that is counted or defined, and so is exact however many digits it has.
const EXACT: [&str; 24] = [
    "bits",
    "candidates",
    "tokens",
    "layers",
    "rows",
    "runs",
    "threads",
    "registers",
    "blocks",
    "variants",
    "parts",
    "experts",
    "heads",
    "weights",
    "files",
    "flags",
    "from",
    "need",
    "predictions",
    "more",
    "of",
    "with",
    "SM",
    "and",
];
/// What stands behind an estimate.
const UNITS: [&str; 40] = [
    "s",
    "ms",
    "µs",
    "ns",
    "ps",
    "W",
    "mW",
    "kW",
    "µW",
    "J",
    "mJ",
    "µJ",
    "nJ",
    "pJ",
    "kJ",
    "B",
    "kB",
    "MB",
    "GB",
    "TB",
    "B/s",
    "kB/s",
    "MB/s",
    "GB/s",
    "TB/s",
    "Hz",
    "kHz",
    "MHz",
    "GHz",
    "%",
    "/s",
    "tokens/s",
    "columns/s",
    "GFLOP/s",
    "TFLOP/s",
    "GOP/s",
    "TOP/s",
    "FLOP/B",
    "OP/B",
    "°C",
];

/// Commands that read or run something of `home`: a model, a program of the name llama-server that ends at once, a board's files.
fn commands_of(home: &Home) -> Vec<Vec<String>> {
    let Some(model) = small(home, "q8_0") else { return Vec::new() };
    let server = home.path("llama-server");
    fs::write(&server, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let (model, server) = (model.display(), server.display());
    [
        format!("run --no-hold -- {server} -m {model}"),
        format!("run --no-hold --context-tokens 777 --batch 3..5 -- {server} -m {model} -t 2"),
        format!("run --no-hold --max-power 1W -- {server} -m {model}"),
        format!("quant-error {model} --max-elements 65536"),
        format!("quant-error {model} --max-elements 12345 --formats q4_0,nvfp4"),
        format!("bundle --root {} --file {}", home.path("board").display(), home.path("bundle").display()),
        format!("models inspect {model}"),
        format!("predict {model} --engine llama.cpp"),
    ]
    .iter()
    .map(|line| line.split_whitespace().map(str::to_owned).collect())
    .collect()
}

/// Commands for a daemon on a simulated board, and for data sheets alone.
fn commands(board: &str) -> Vec<Vec<String>> {
    let mut all: Vec<String> = [
        "status",
        "board",
        "roofline",
        "mode list",
        "mode get",
        "holds",
        "observations list",
        "formats",
        "hardware list",
        "models list",
        "doctor",
        "config show",
        "predict gemv 1 1 --format int8",
        "predict gemv 4096 4096 --format fp16",
        "predict gemm 1024 16384 16384 --format fp16",
        "predict gemv 16777216 16777216 --format fp16",
        "sweep gemv --sizes 1,64,4096,65536",
        "recommend gemv 4096 4096 --max-time 1ns",
        "recommend gemv 4096 4096 --batch 1..32 --objective throughput",
        "analyze gemv 4096 4096 --format fp16 --time 1s",
        "analyze gemv 4096 4096 --format fp16 --time 1ns",
        "analyze gemv 4096 4096 --format fp16 --time 280us",
        "explain gemv 4096 4096 --format fp16 --time 1s",
        "explain gemv 4096 4096 --format fp16",
        "tiling 64 4096 4096",
        "tiling 1 1 1",
        "tiling 16384 16384 16384",
        "predict attention 1 32 8 1 4096 128",
        "compare gemv 256 256 --formats fp32,int8",
        "compare gemm 8 256 256 --formats fp32",
        "measure gemv --sizes 64,256 --formats fp32,int8",
        "measure gemv 256 256 --power",
        "hold --max-power 1W -- true",
        "features",
        "observe gemv 4096 4096 --format fp16 --time 12345.678us",
        "observations list --all",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push(format!("hardware show {board}"));
    for model in MODELS {
        all.push(format!("models show {model}"));
        for more in [
            "",
            "--batch 64 --context 8192",
            "--phase prefill --prompt 4096",
            "--phase serve --prompt 512 --output-tokens 128",
        ] {
            all.push(format!("predict {model} --format q4_0 --engine llama.cpp {more}"));
            all.push(format!("predict {model} --format q4_0 --engine llama.cpp --hardware {board} {more}"));
        }
        for more in [
            "",
            "--max-power 1W",
            "--max-time-per-token 1us",
            "--objective throughput --batch 1..64 --modes all",
        ] {
            all.push(format!("recommend {model} --engine llama.cpp --hardware {board} {more}"));
        }
        all.push(format!(
            "sweep {model} --engine llama.cpp --formats q4_0,q8_0,fp16 --batches 1,16,256 --contexts 0,4096"
        ));
        all.push(format!("analyze {model} --format q4_0 --engine llama.cpp --tokens-per-s 3"));
    }
    all.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Digits of a number that say something: zeros in front, and those behind a whole one, do not.
fn significant(number: &str) -> usize {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0');
    if number.contains('.') { digits.len() } else { digits.trim_end_matches('0').len() }
}

/// What no figure for people looks like, in a line.
fn mistakes(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<&str> = line.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        let bare =
            word.trim_matches(|c: char| !c.is_alphanumeric() && !"-+.%/°".contains(c)).trim_end_matches('.');
        if ["NaN", "nan", "inf", "-inf", "null", "Infinity", "undefined"].contains(&bare) {
            found.push(bare.to_owned());
        }
        let number = bare.trim_start_matches('+');
        let Ok(value) = number.parse::<f64>() else { continue };
        if number.starts_with('-') && value == 0.0 {
            found.push(format!("a zero with a sign: {number}"));
        }
        let next = words.get(index + 1).map_or("", |next| next.trim_matches(|c: char| ",;:()[]".contains(c)));
        let is_figure = number.contains('.') || UNITS.contains(&next);
        if is_figure && significant(number) > 4 && !EXACT.contains(&next) {
            found.push(format!("{number} {next}"));
        }
        if ["µs", "ms", "ns"].contains(&next) && value.abs() >= 1000.0 {
            found.push(format!("{number} {next} has a larger unit"));
        }
        if next == "ks" || (next == "%" && value.abs() >= 1000.0) {
            found.push(format!("{number} {next} is not what people write"));
        }
        if UNITS.contains(&next)
            && !["%", "°C", "/s", "tokens/s"].contains(&next)
            && number.starts_with("0.0")
        {
            found.push(format!("{number} {next} has a smaller unit, or is 0"));
        }
    }
    found
}

#[test]
fn what_only_a_program_would_print_is_found() {
    for line in [
        "12.300000001 s",
        "it is -0.0 W",
        "NaN",
        "x: null",
        "(inf)",
        "1000 µs",
        "0.00 ms",
        "1234567 B",
        "1.20 ks",
        "24600 %",
    ] {
        assert_eq!(mistakes(line).len(), 1, "{line}: {:?}", mistakes(line));
    }
    for line in [
        "12.3 ms (11.0 to 13.6)",
        "0 W",
        "12300 /s",
        "4.531 bits per weight",
        "123456 tokens",
        "6.18.44-fc",
        "1.00 ms",
        "-3.1 %",
    ] {
        assert_eq!(mistakes(line), Vec::<String>::new(), "{line}");
    }
}

/// What is no estimate: the configuration, definitions of formats, figures that others published, versions.
fn is_exempt(arguments: &[String], line: &str) -> bool {
    let verb = arguments[..2.min(arguments.len())].join(" ");
    ["config show", "formats", "hardware show"].contains(&verb.as_str()) || line.contains("version")
}

#[test]
fn no_figure_has_more_digits_than_it_deserves() {
    let mut all = Vec::new();
    for board in BOARDS {
        let home = Home::new();
        home.configure("[calibration]\nautomatic = false\n[control]\nenabled = true\n");
        let root = home.path("board");
        let _daemon = home.start_with(|command| {
            command.args(["--simulate", board]).arg("--root").arg(root);
        });
        let run = |arguments: &[String]| {
            let mut command = Command::new(crate::programs::rooflinectl());
            command
                .arg("--socket")
                .arg(home.path("run"))
                .args(arguments)
                .env("LANG", "C.UTF-8")
                .env_remove("LC_ALL");
            command.output().unwrap()
        };
        let calibrate = ["calibrate", "--quick", "--wait", "--force"].map(str::to_owned);
        eventually("a calibration", || run(&calibrate).status.success().then_some(()));
        let mut printed = 0;
        for arguments in commands(board).into_iter().chain(commands_of(&home)) {
            let output = run(&arguments);
            let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
            printed += usize::from(output.status.success());
            assert!(!text.is_empty() && !text.contains("panicked"), "{arguments:?}: {text}");
            for line in text.lines() {
                if is_exempt(&arguments, line) {
                    continue;
                }
                all.extend(
                    mistakes(line)
                        .into_iter()
                        .map(|mistake| format!("{}: {mistake} in {line:?}", arguments.join(" "))),
                );
            }
        }
        assert!(printed > 30, "{board}: only {printed} commands had an answer");
    }
    all.sort();
    all.dedup();
    assert!(all.is_empty(), "{} mistakes:\n{}", all.len(), all.join("\n"));
}
