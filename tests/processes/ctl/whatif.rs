//! What is answered without a daemon: hardware by its data sheet, and streams of requests about it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::answers::healthy;
use super::fake::Fake;
use super::{bad, contains, ctl, run, stderr, stdout};

/// Where no daemon is.
fn nowhere() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn alone(args: &[&str]) -> Output {
    run(nowhere().path(), args)
}

/// The JSON answer that a command must have without a daemon.
#[track_caller]
fn supposed(args: &str) -> Value {
    let args: Vec<&str> = args.split(' ').chain(["-o", "json"]).collect();
    let output = alone(&args);
    // What does not fit has an answer too.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{args:?}: {output:?}");
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn value(answer: &Value, path: &str) -> f64 {
    let found = answer.pointer(path).and_then(Value::as_f64);
    assert!(found.is_some(), "no {path} in {answer}");
    found.unwrap_or_default()
}

#[test]
fn ceilings_of_other_hardware_are_shown_without_a_daemon() {
    let answer = supposed("roofline --hardware jetson-agx-orin-64gb --mode MAXN");
    assert_eq!(
        (&answer["power_mode"], &answer["bandwidth_bytes_per_s"]["provenance"]),
        (&json!("MAXN"), &json!("datasheet"))
    );
    // 3.199 GHz, two transfers a clock, 256 bits wide.
    assert_eq!(value(&answer, "/bandwidth_bytes_per_s/value"), 3.199e9 * 2.0 * 256.0 / 8.0);
    let one = supposed("roofline --hardware jetson-agx-orin-64gb --mode 30W --precision int8");
    assert!(one["compute_flops_per_s"].as_object().is_some_and(|peaks| peaks.keys().eq(["int8"])), "{one}");
    assert!(
        value(&one, "/compute_flops_per_s/int8/value") < value(&answer, "/compute_flops_per_s/int8/value")
    );
    contains(
        &stdout(&alone(&["roofline", "--hardware", "jetson-agx-orin-64gb"])),
        &["205 GB/s", "datasheet"],
    );
    let (exit, errors) = bad(nowhere().path(), &["roofline", "--hardware", "gb11"]);
    assert_eq!(exit, 2, "{errors}");
    contains(&errors, &["gb10"]);
    let measured = alone(&["roofline", "--hardware", "gb10", "--measure"]);
    assert_eq!(measured.status.code(), Some(2), "{measured:?}");
}

/// Output lines of `predict --requests` of a file with these lines.
#[track_caller]
fn streamed(socket: &Path, input: &[u8]) -> (Output, Vec<Value>) {
    let directory = nowhere();
    let file = directory.path().join("requests.jsonl");
    std::fs::write(&file, input).unwrap();
    let output = run(socket, &["predict", "--requests", file.to_str().unwrap()]);
    let lines = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output, lines)
}

const ORIN: &str = r#"{"hardware":"jetson-agx-orin-64gb","workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#;

/// 16 SM x 2 x 1.3 GHz x … is not looked at here: bytes over the bandwidth of the bus bound the time from below.
#[test]
fn hardware_is_predicted_from_its_data_sheet_without_a_daemon() {
    let answer = supposed("predict gemv 4096 4096 --format int8 --hardware jetson-agx-orin-64gb");
    let bytes = 4096.0 * 4096.0 + 2.0 * 2.0 * 4096.0;
    assert_eq!(value(&answer, "/bytes"), bytes);
    let bus = 256.0 / 8.0 * 2.0 * 3199e6;
    assert!((value(&answer, "/roofline_time_s") / (bytes / bus) - 1.0).abs() < 1e-9);
    assert_eq!((&answer["hardware"], &answer["serial"]), (&json!("jetson-agx-orin-64gb"), &json!(0)));
    assert_eq!((&answer["tier"], &answer["simulated"]), (&json!("prior"), &json!(false)));
    contains(&answer["warnings"].to_string(), &["data sheet"]);
    // 64 GiB less what firmware and system keep.
    let available = value(&answer, "/memory_bytes/available");
    assert!((58e9..66e9).contains(&available), "{available}");
}

#[test]
fn a_mode_of_the_registry_is_slower_than_the_fastest() {
    let time = |mode: &str| {
        let args = format!("predict gemm 512 4096 4096 --hardware orin-nano-8gb-super{mode}");
        value(&supposed(&args), "/time_s/value")
    };
    assert_eq!(time(""), time(" --mode MAXN_SUPER"));
    assert!(time(" --mode 15W") > 1.5 * time(""));
    assert_eq!(time(" --mode 0"), time(" --mode 15W"), "0 is its number");
}

/// The vendor's table has both, and both are number 0.
#[test]
fn two_modes_with_one_number_are_two_modes() {
    let predict =
        |mode: &str| format!("predict gemm 512 4096 4096 --hardware jetson-orin-nx-16gb --mode {mode}");
    let time = |mode: &str| value(&supposed(&predict(mode)), "/time_s/value");
    assert!(time("MAXN_SUPER") < 0.9 * time("MAXN"));
    let output = alone(&predict("0").split(' ').collect::<Vec<_>>());
    contains(&stderr(&output), &["2 power modes of number 0", "MAXN or MAXN_SUPER"]);
}

/// Llama-3.1-8B Q4_K_M makes 8.09 tok/s in AGX Orin's 30 W mode (llama.cpp, row p0230 of the published table): eight SMs at
/// 612 MHz draw too little of the memory for 16 bits to be faster.
#[test]
fn few_slow_multiprocessors_draw_too_little_for_wide_weights() {
    let rate = |format: &str| {
        let args = format!(
            "predict llama-3.1-8b --format {format} --engine llama.cpp --hardware jetson-agx-orin-64gb --mode MODE_30W"
        );
        value(&supposed(&args), "/tokens_per_s/value")
    };
    let (packed, plain) = (rate("q4_k_m"), rate("fp16"));
    assert!((8.09 / 1.25..8.09 * 1.25).contains(&packed), "{packed}");
    assert!(plain < 77e9 / 16.06e9 * 1.01, "no more than the 77 GB/s of `mode list`: {plain}");
    assert!(packed > plain, "{packed} {plain}");
}

/// Each changes the time, and the bound where no implementation can do without.
#[test]
fn what_is_cached_chunked_or_drafted_counts() {
    let predict = |args: &str| {
        let base = "predict llama-3.1-8b --format q4_k_m --engine llama.cpp --hardware jetson-agx-orin-64gb";
        let answer = supposed(&format!("{base} {args}"));
        ["/time_s/value", "/roofline_time_s", "/tokens_per_s/value"].map(|path| value(&answer, path))
    };
    let prompt = "--phase prefill --prompt 4096";
    let plain = predict(prompt);
    let cached = predict(&format!("{prompt} --cached-tokens 3072"));
    assert!(cached[0] < 0.4 * plain[0] && cached[1] < 0.3 * plain[1], "{cached:?} {plain:?}");
    assert!(cached[2] > 2.5 * plain[2], "the whole prompt counts: {cached:?} {plain:?}");
    // 4096 tokens in passes of 16 read the weights 256 times.
    let chunked = predict(&format!("{prompt} --chunk-tokens 16"));
    assert!(chunked[0] > plain[0] && chunked[1] > 3.0 * plain[1], "{chunked:?} {plain:?}");
    let wide = predict(&format!("{prompt} --chunk-tokens 4096"));
    assert!(wide[0] < plain[0] && (wide[1] / plain[1] - 1.0).abs() < 1e-9, "{wide:?} {plain:?}");
    let step = predict("--context 1024");
    let drafted = predict("--context 1024 --draft-tokens 4 --accepted-per-step 2.5");
    // A step of five tokens costs less than twice one of one, and adds three and a half.
    assert!(drafted[0] > step[0] && drafted[2] > 1.75 * step[2], "{drafted:?} {step:?}");
    assert!((drafted[1] / step[1] - 1.0).abs() < 1e-9, "the same weights and cache: {drafted:?} {step:?}");
    let images = predict("--phase prefill --prompt 64 --image-tokens 576");
    assert_eq!(images, predict("--phase prefill --prompt 640"));
    for (args, words) in [
        ("--context 100 --cached-tokens 101", "--cached-tokens is 101; it must lie between 0 and 100"),
        ("--phase prefill --prompt 64 --cached-tokens 64", "give fewer than all"),
        ("--draft-tokens 4 --accepted-per-step 5", "between 0 and --draft-tokens"),
        ("--draft-tokens 4", "--acceptance is missing"),
    ] {
        let line = format!("predict llama-3.1-8b --format q4_k_m --hardware jetson-agx-orin-64gb {args}");
        let output = alone(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success());
        contains(&stderr(&output), &[words]);
    }
}

#[test]
fn clocks_of_an_operating_point_count() {
    let of = |m: u32, point: &str| {
        format!(
            r#"{{"hardware":"jetson-agx-orin-64gb","operating_point":{point},"workload":{{"op":{{"kind":"gemm","m":{m},"n":4096,"k":4096}}}}}}"#
        )
    };
    let line = |point: &str| of(1024, point);
    let input = [
        line("{}"),
        line(r#"{"gpu_hz":6.5e8}"#),
        line(r#"{"sm_online":8}"#),
        line(r#"{"power_mode":"MODE_30W"}"#),
        of(16, "{}"),
        of(16, r#"{"emc_hz":1.6e9}"#),
        line(r#"{"gpu_hz":650}"#),
        line(r#"{"sm_online":17}"#),
        line(r#"{"power_mode":"40W"}"#),
        line(r#"{"gpu_hz":1e308}"#),
        line(r#"{"gpu_hz":-1}"#),
    ];
    let (output, answers) = streamed(nowhere().path(), input.join("\n").as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let time = |index: usize| value(&answers[index], "/time_s/value");
    for (slower, full) in [(1, 0), (2, 0), (3, 0), (5, 4)] {
        assert!(time(slower) > time(full), "{slower}: {} {}", answers[slower], answers[full]);
    }
    for (index, field) in [(6, "gpu_hz"), (7, "sm_online"), (8, "power_mode"), (9, "gpu_hz"), (10, "gpu_hz")]
    {
        assert_eq!(
            answers[index]["error"]["field"],
            format!("operating_point.{field}"),
            "{}",
            answers[index]
        );
        assert_eq!(answers[index]["line"], index + 1);
        assert!(!answers[index]["error"]["message"].as_str().unwrap().contains("this machine"));
    }
}

#[test]
fn every_command_that_takes_hardware_needs_no_daemon() {
    let sweep = supposed("sweep gemv 4096 4096 --hardware h100 --batches 1,8");
    let formats: Vec<&str> =
        sweep["rows"].as_array().unwrap().iter().filter_map(|row| row["format"].as_str()).collect();
    assert!(formats.contains(&"fp16") && formats.contains(&"fp8_e4m3") && !formats.contains(&"nvfp4"));
    let modes = supposed("sweep gemv 64 64 --formats fp16 --hardware agx-orin-64gb --modes MAXN,MODE_15W");
    assert_eq!(modes["rows"][1]["power_mode"]["name"], "MODE_15W");
    assert!(value(&modes, "/rows/1/time_s/value") > value(&modes, "/rows/0/time_s/value"));
    let analysis = alone(
        &"analyze gemv 4096 4096 --format fp8_e4m3 --time 1us --hardware h100 -o json"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    assert_eq!(analysis.status.code(), Some(1), "a script notices: {analysis:?}");
    assert_eq!(serde_json::from_str::<Value>(&stdout(&analysis)).unwrap()["verdict"], "impossible");
    let choice = supposed("recommend gemv 4096 4096 --hardware t4 --formats fp16,int8 --max-time 1ms");
    assert_eq!(choice["decision"]["format"], "int8");
    let nothing = alone(&["recommend", "gemv", "4096", "4096", "--hardware", "t4", "--max-time", "1us"]);
    assert_eq!(nothing.status.code(), Some(3), "{nothing:?}");
    contains(&stdout(&nothing), &["nothing meets --max-time"]);
    assert!(alone(&["hardware", "list"]).status.success());
    assert!(alone(&["models", "list"]).status.success());
}

#[test]
fn what_cannot_be_supposed_says_why() {
    let nowhere = nowhere();
    for (args, expected) in [
        ("predict gemv 1 1 --hardware jetson-orin-nan-8gb", "did you mean jetson-orin-nano-8gb?"),
        ("predict gemv 1 1 --hardware gb10 --mode MAXN", "gb10 has no power mode"),
        ("predict gemv 1 1 --hardware jetson-agx-orin-64gb --mode 31W", "its modes are MODE_30W, MAXN"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let (exit, errors) = bad(nowhere.path(), &args);
        assert_eq!(exit, 2, "{errors}");
        contains(&errors, &[expected, "hint: "]);
    }
    let (exit, errors) = bad(nowhere.path(), &["predict", "gemv", "1", "1", "--hardware", "cpu"]);
    assert_eq!(exit, 2);
    contains(&errors, &["does not say which CPU", "hardware list cpu", "rooflinectl calibrate"]);
}

#[test]
fn lines_with_hardware_are_answered_and_the_others_say_that_there_is_no_daemon() {
    let plain = r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1}}}"#;
    let input = format!("{ORIN}\n{plain}\n{plain}\n{ORIN}\n");
    let (output, answers) = streamed(nowhere().path(), input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    contains(&stderr(&output), &["2 of 4"]);
    assert_eq!(answers[0], answers[3]);
    for (index, line) in [(1, 2), (2, 3)] {
        assert_eq!(answers[index]["error"]["code"], "unreachable");
        assert_eq!(answers[index]["line"], line);
        contains(answers[index]["error"]["hint"].as_str().unwrap(), &["hardware list", "rooflined serve"]);
    }
    // With a daemon only the lines without hardware are asked of it.
    let fake = Fake::start(healthy);
    let (output, answers) = streamed(fake.path(), input.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!((answers[1]["serial"].as_u64(), answers[0]["serial"].as_u64()), (Some(17), Some(0)));
    assert_eq!(fake.asked().len(), 2);
}

/// Whatever stands on a line: an answer or an error for it, the next line is not harmed, and the end says so.
#[test]
fn bad_lines_are_error_lines() {
    let deep = format!(r#"{{"hardware":{}"#, "[".repeat(10_000));
    let long = format!(r#"{{"hardware":"{}"}}"#, "y".repeat(1 << 20));
    let model = |model: &str| format!(r#"{{"hardware":"h100","workload":{{"model":{model}}}}}"#);
    let op = |op: &str| format!(r#"{{"hardware":"h100","workload":{{"op":{op}}}}}"#);
    let deep_model = model(&format!("{}{}", "{\"a\":".repeat(100), "1"));
    let lines: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "invalid_json"),
        (b"null".to_vec(), "invalid_field"),
        (b"[]".to_vec(), "invalid_field"),
        (b"\xff\xfe".to_vec(), "invalid_json"),
        (b"{\"hardware\":\"\xff\"}".to_vec(), "invalid_json"),
        (b"\0".to_vec(), "invalid_json"),
        (deep.into_bytes(), "invalid_json"),
        (long.into_bytes(), "body_too_large"),
        (deep_model.into_bytes(), "invalid_json"),
        (op(r#"{"kind":"gemv","n":NaN,"k":1}"#).into_bytes(), "invalid_json"),
        (op(r#"{"kind":"gemv","n":-1,"k":1}"#).into_bytes(), "invalid_dimension"),
        (op(r#"{"kind":"gemv","n":1e308,"k":1}"#).into_bytes(), "invalid_dimension"),
        (op(r#"{"kind":"gemv","n":0,"k":1}"#).into_bytes(), "invalid_dimension"),
        (br#"{"hardware":"h101","workload":{}}"#.to_vec(), "unknown_hardware"),
        (br#"{"hardware":"cpu","workload":{}}"#.to_vec(), "invalid_field"),
        (br#"{"hardware":7,"workload":{}}"#.to_vec(), "invalid_field"),
        (br#"{"hardware":"h100","workload":{}}"#.to_vec(), "missing_field"),
        (br#"{"hardware":"h100","wrkload":{}}"#.to_vec(), "unknown_field"),
    ];
    let mut input = Vec::new();
    for (line, _) in &lines {
        input.extend_from_slice(line);
        input.push(b'\n');
        input.extend_from_slice(ORIN.as_bytes());
        input.extend_from_slice(b"\r\n");
    }
    let (output, answers) = streamed(nowhere().path(), &input);
    assert_eq!(output.status.code(), Some(1));
    contains(&stderr(&output), &[&format!("{} of {}", lines.len(), 2 * lines.len())]);
    assert_eq!(answers.len(), 2 * lines.len());
    for (index, (line, code)) in lines.iter().enumerate() {
        let (refusal, next) = (&answers[2 * index], &answers[2 * index + 1]);
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]);
        assert_eq!(refusal["error"]["code"], *code, "{shown}: {refusal}");
        assert!(refusal["error"]["hint"].is_string(), "{shown}");
        assert!(next["time_s"]["value"].is_f64(), "after {shown}: {next}");
    }
}

#[test]
fn an_empty_file_and_what_is_no_file_are_errors() {
    let (output, answers) = streamed(nowhere().path(), b"");
    assert!(output.status.code() == Some(2) && answers.is_empty());
    contains(&stderr(&output), &["requests.jsonl holds no request", "hint: "]);
    let (output, answers) = streamed(nowhere().path(), ORIN.as_bytes());
    assert!(output.status.success() && answers.len() == 1, "the last line needs no end");
    let nowhere = nowhere();
    for path in [nowhere.path().join("none"), nowhere.path().to_owned()] {
        let (exit, errors) = bad(nowhere.path(), &["predict", "--requests", path.to_str().unwrap()]);
        assert_eq!(exit, 2);
        contains(&errors, &["cannot be read", "hint: "]);
    }
}

#[test]
fn answers_come_before_the_next_line_is_waited_for() {
    let nowhere = nowhere();
    let mut child = ctl(nowhere.path(), &["predict", "--requests", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = BufReader::new(output).lines();
    for _ in 0..3 {
        // The beginning of the next line does not hold back the answer to this one.
        write!(input, "{ORIN}\n{{").unwrap();
        contains(&answers.next().unwrap().unwrap(), &["roofline_time_s"]);
        writeln!(input, "}}").unwrap();
        contains(&answers.next().unwrap().unwrap(), &["error"]);
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Two processes stream a file each at the same time, and a reader that leaves ends a third quietly.
#[test]
fn streams_do_not_disturb_each_other() {
    let directory = nowhere();
    let file = directory.path().join("requests.jsonl");
    std::fs::write(&file, format!("{ORIN}\n").repeat(20_000)).unwrap();
    let start = || -> std::process::Child {
        let mut command: Command = ctl(directory.path(), &["predict", "--requests", file.to_str().unwrap()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (one, two, mut third) = (start(), start(), start());
    let mut first = [0; 10];
    std::io::Read::read_exact(&mut third.stdout.take().unwrap(), &mut first).unwrap();
    let outputs = [one, two].map(|child| child.wait_with_output().unwrap());
    for output in &outputs {
        assert!(output.status.success());
        assert_eq!(stdout(output).lines().count(), 20_000);
    }
    assert!(outputs[0].stdout == outputs[1].stdout, "the same questions have the same answers");
    let output = third.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// The error of a command that is refused, as it is told to people.
#[track_caller]
fn refused(args: &str) -> String {
    let args: Vec<&str> = args.split(' ').collect();
    let output = alone(&args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    stderr(&output)
}

#[test]
fn what_an_engine_does_not_run_is_refused_with_the_nearest_that_it_does() {
    for (args, says) in [
        ("vllm --format awq_int4 --hardware v100", "format gptq_int4"),
        ("vllm --format nvfp4 --hardware jetson-agx-orin-64gb", "format awq_int4"),
        ("vllm --format q4_k_m --hardware jetson-agx-thor-t5000", "not tuned"),
        ("llama.cpp --format q4_k_m --kv-format fp8_e4m3 --hardware h100-sxm", "--kv-format q8_0"),
        ("tensorrt-llm --format fp16 --hardware jetson-agx-orin-64gb", "tensorrt-edge-llm"),
        ("mlc --format q4_k_m --hardware jetson-orin-nx-16gb", "format int4_g32"),
    ] {
        let text = refused(&format!("predict llama-3.1-8b --engine {args}"));
        contains(&text, &[says, "--hypothetical"]);
        let answer = supposed(&format!("predict llama-3.1-8b --hypothetical --engine {args}"));
        assert!(value(&answer, "/time_s/value") > 0.0);
        contains(&answer["warnings"].to_string(), &["hypothetical: "]);
    }
    let body =
        r#"{"hardware":"v100","engine":"vllm","workload":{"model":"llama-3.1-8b","format":"awq_int4"}}"#;
    let (_, lines) = streamed(nowhere().path(), body.as_bytes());
    let error = &lines[0]["error"];
    assert_eq!((&error["code"], &error["field"]), (&json!("unsupported_format"), &json!("workload.format")));
}

/// Whatever is asked for, the line of the engine is there for what is chosen.
#[test]
fn a_recommendation_is_one_that_its_engine_runs() {
    let engines = ["llama.cpp", "vllm", "tensorrt-llm", "tensorrt-edge-llm", "mlc", "torch"];
    let boards = ["v100", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000", "gb10", "rtx-4090"];
    let named = ["", " --formats awq_int4,nvfp4,q4_k_m,fp16,int4_g32 --kv-formats fp16,fp8_e4m3,q8_0"];
    let mut chosen = 0;
    for engine in engines {
        for board in boards {
            for formats in named {
                let args =
                    format!("recommend llama-3.1-8b --engine {engine} --hardware {board}{formats} -o json");
                let args: Vec<&str> = args.split(' ').collect();
                let output = alone(&args);
                if output.status.code() == Some(2) {
                    contains(&stderr(&output), &["--hypothetical"]);
                    continue;
                }
                let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
                if answer["feasible"] == json!(true) {
                    let line = answer["apply"]["settings"][engine].as_str().unwrap();
                    assert!(!line.starts_with("not available"), "{args:?}: {line}");
                    chosen += 1;
                }
            }
        }
    }
    assert!(chosen > 30, "{chosen}");
}

#[test]
fn a_checkpoint_published_in_four_bits_is_recommended_as_it_is() {
    for (engine, hardware) in
        [("llama.cpp", "gb10"), ("vllm", "gb10"), ("llama.cpp", "jetson-agx-thor-t5000")]
    {
        let answer = supposed(&format!(
            "recommend gpt-oss-120b --engine {engine} --hardware {hardware} --context 4096"
        ));
        let line = answer["apply"]["settings"][engine].as_str().unwrap();
        assert!(!line.contains("llama-quantize") && !line.contains("--quantization"), "{line}");
        contains(&answer["decision"]["format"].to_string(), &["mxfp4"]);
        assert_eq!(value(&answer, "/decision/quality_loss_ratio"), 0.0);
    }
    let answer = supposed("predict gpt-oss-20b --engine llama.cpp --hardware gb10");
    assert!(value(&answer, "/memory_bytes/weights") < 14e9);
}

#[test]
fn a_server_has_the_context_that_was_predicted_and_a_part_of_a_shared_memory() {
    let line = |args: &str, engine: &str| {
        let answer = supposed(&format!("recommend llama-3.1-8b --engine {engine} {args}"));
        answer["apply"]["settings"][engine].as_str().unwrap().to_owned()
    };
    let orin = "--hardware jetson-agx-orin-64gb";
    for (context, said) in [("", "4096"), (" --context 512", "512")] {
        let asked = format!("{orin}{context}");
        contains(&line(&asked, "llama.cpp"), &[&format!(" -c {said} ")]);
        contains(&line(&asked, "vllm"), &[&format!(" --max-model-len {said} ")]);
    }
    contains(&line(orin, "vllm"), &[" --gpu-memory-utilization 0."]);
    assert!(!line("--hardware rtx-4090 --context 512", "vllm").contains("utilization"));
}

#[test]
fn a_vision_tower_is_counted_or_said() {
    let answer =
        supposed("predict gemma-3-4b --engine llama.cpp --format q4_k_m --hardware jetson-orin-nano-8gb");
    contains(&answer["warnings"].to_string(), &["tower of 416 million", "counts as memory"]);
    let config = json!({"model_type": "gemma3", "text_config": {"num_hidden_layers": 2, "hidden_size": 256,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96},
        "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "num_hidden_layers": 27, "patch_size": 14}});
    let weights = |config: &Value| {
        let body = json!({"hardware": "gb10", "engine": "vllm", "workload": {"model": config, "format": "int4_g128"}});
        let (_, lines) = streamed(nowhere().path(), body.to_string().as_bytes());
        value(&lines[0], "/memory_bytes/weights")
    };
    let mut text = config.clone();
    text.as_object_mut().unwrap().remove("vision_config");
    let tower = weights(&config) - weights(&text);
    assert!((tower / (2.0 * 416.47e6) - 1.0).abs() < 1e-3, "{tower}");
}

/// The first line of what a command prints for people without a daemon.
#[track_caller]
fn headline(args: &str) -> String {
    let output = alone(&args.split(' ').collect::<Vec<_>>());
    let line = stdout(&output).lines().next().unwrap().to_owned();
    let exit = if line.contains(" DOES NOT FIT ") { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(exit), "{args}: {output:?}");
    line
}

#[test]
fn a_name_of_ollama_without_a_tag_is_its_default_and_the_answer_says_so() {
    for command in ["predict llama3.1", "recommend llama3.1", "sweep llama3.1 --formats q4_k_m"] {
        let args = format!("{command} --hardware gb10 --engine llama.cpp");
        let text = stdout(&alone(&args.split(' ').collect::<Vec<_>>()));
        contains(&text, &["llama3.1 is llama-3.1-8b, as Ollama's default tag"]);
    }
    let of = |name: &str| {
        supposed(&format!("predict {name} --hardware gb10 --engine llama.cpp"))["time_s"].clone()
    };
    assert_eq!(of("qwen3"), of("qwen3-8b"));
    assert_eq!(of("gemma3:latest"), of("gemma-3-4b"));
}

#[test]
fn a_mode_that_is_asked_for_by_its_number_is_answered_by_its_name() {
    let line = headline("predict qwen3-4b --format q4_k_m --hardware orin-nano --mode 2");
    contains(&line, &[" on jetson-orin-nano-8gb-super at MAXN_SUPER; "]);
}

/// 16.1 GB of weights in fp16 have no place in 8 GB.
#[test]
fn what_does_not_fit_is_said_before_what_it_would_do() {
    let line =
        headline("predict llama-3.1-8b --format fp16 --hardware jetson-orin-nano-8gb-super --mode 25W");
    assert!(
        line.starts_with(
            "llama-3.1-8b fp16, context 4096, DOES NOT FIT on jetson-orin-nano-8gb-super at 25W in "
        ),
        "{line}"
    );
    assert!(line.contains(": it needs 1") && line.contains(" GB, and there is room for "), "{line}");
    let line =
        headline("predict llama-3.1-8b --format q4_k_m --hardware jetson-orin-nano-8gb-super --mode 25W");
    assert!(line.starts_with("llama-3.1-8b q4_k_m, context 4096, decodes "), "{line}");
}

#[test]
fn a_list_that_is_cut_says_how_to_see_the_rest() {
    let listed = |modes: &str| {
        let line = "recommend qwen3-4b --hardware orin-nano --engine llama.cpp --modes";
        let words: Vec<&str> = line.split(' ').chain([modes]).collect();
        stdout(&run(nowhere().path(), &words))
    };
    contains(&listed("all"), &["at most 12 others are listed", "name it: --modes NAME"]);
    assert!(!listed("7W").contains("others are listed"));
}

#[test]
fn the_first_line_names_the_format_that_nobody_named() {
    // gpt-oss is published in 4 bits; files for llama.cpp are packed, and vLLM loads the checkpoint of 16 bits.
    for (args, named) in [
        ("llama-3.1-8b --engine llama.cpp", "llama-3.1-8b q4_k_m,"),
        ("llama-3.1-8b --engine mlc", "llama-3.1-8b int4_g32,"),
        ("llama-3.1-8b --engine vllm", "llama-3.1-8b fp16,"),
        ("gpt-oss-20b", "gpt-oss-20b mxfp4"),
    ] {
        let line = headline(&format!("predict {args} --hardware jetson-agx-thor-t5000"));
        assert!(line.starts_with(named), "{line}");
    }
}

/// Who names neither engine nor format gets the prediction of what is recommended.
#[test]
fn a_prediction_of_a_model_alone_is_that_of_the_recommendation() {
    for model in ["llama-3.1-8b", "qwen3-4b", "llama-3.1-70b"] {
        let predicted = supposed(&format!("predict {model} --hardware orin-nano"));
        let output = alone(&["recommend", model, "--hardware", "orin-nano", "-o", "json"]);
        let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let chosen = if answer["feasible"] == true { &answer["decision"] } else { &answer["closest"] };
        assert_eq!(
            (&predicted["engine"], &predicted["format"]),
            (&answer["engine"], &chosen["format"]),
            "{model}"
        );
        assert_eq!(predicted["time_s"], chosen["prediction"]["time_s"], "{model}");
    }
}

/// The row with the highest rate of all needs more than twice the memory that there is.
#[test]
fn the_best_of_a_sweep_can_run() {
    let args = "sweep llama-3.1-8b --formats q4_k_m,fp16 --batches 1,64 --contexts 4096 --hardware orin-nano-8gb-super";
    let answer = supposed(args);
    let rows = answer["rows"].as_array().unwrap();
    let best = |fits: &dyn Fn(&Value) -> bool| {
        let rows = rows.iter().filter(|row| fits(&row["memory_bytes"]["fits"]));
        rows.max_by(|a, b| value(a, "/tokens_per_s/value").total_cmp(&value(b, "/tokens_per_s/value")))
            .unwrap()
    };
    let chosen = best(&|fits| *fits == true);
    assert_eq!(best(&|_| true)["memory_bytes"]["fits"], false, "{answer}");
    let excluded = rows.iter().filter(|row| row["memory_bytes"]["fits"] == false).count();
    let text = stdout(&alone(&args.split(' ').collect::<Vec<_>>()));
    let line = text.lines().next().unwrap();
    let batch = if chosen["batch"] == 1 { "," } else { " x64," };
    let named = format!(
        "4 predictions in llama.cpp; the highest rate: llama-3.1-8b {}{batch}",
        chosen["format"].as_str().unwrap()
    );
    assert!(line.starts_with(&named), "{line}");
    contains(line, &[&format!("; {excluded} of them do")]);
    contains(&text, &[" memory  fits ", " NO "]);
    let line = headline("sweep llama-3.1-8b --formats fp16 --batches 1,64 --hardware orin-nano-8gb-super");
    assert!(
        line.starts_with("2 predictions, and NOTHING FITS: the least, llama-3.1-8b fp16, needs 1"),
        "{line}"
    );
    contains(&line, &[", and there is room for "]);
}

#[test]
fn a_refused_field_is_named_by_its_option() {
    let hardware = "--hardware jetson-agx-orin-64gb";
    let said = |args: &str| {
        let output = alone(&format!("{args} {hardware}").split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "{args}");
        stdout(&output) + &stderr(&output)
    };
    let text = said("recommend gemm 512 512 512 --max-time 1ns");
    contains(&text, &["Nothing meets --max-time; the nearest is ", "--max-time is ", " times off, has "]);
    let text = said("predict llama-3.1-8b --phase serve");
    contains(&text, &["error: phase serve needs --prompt\nhint: add --prompt 512\n"]);
    contains(
        &said("predict llama-3.1-8b --phase serve --prompt 8"),
        &["--output-tokens", "hint: add --output-tokens 512\n"],
    );
    contains(
        &said("recommend attention 1 32 8 1 4096 128"),
        &["hint: ask rooflinectl predict for its time\n"],
    );
    // The author of a request written by hand knows its keys.
    let request =
        json!({"hardware": "jetson-agx-orin-64gb", "workload": {"model": "llama-3.1-8b", "phase": "serve"}});
    let (_, lines) = streamed(nowhere().path(), request.to_string().as_bytes());
    contains(lines[0]["error"]["hint"].as_str().unwrap(), &["add \"prompt_tokens\":512"]);
}
