//! What each command ends with when something is wrong.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::answers::{self, healthy};
use super::fake::{Fake, Reply};
use super::{bad, contains, ctl, good, run, stderr, stdout};

#[test]
fn bad_values_are_usage_errors_that_name_the_field_and_ask_nobody() {
    let fake = Fake::start(healthy);
    for (args, expected) in [
        ("predict gemv 0 4096", "N is \"0\""),
        ("predict gemv 4096 -1", "K is \"-1\""),
        ("predict gemm 1e18 1 1", "M is \"1e18\""),
        ("predict gemm 1 NaN 1", "N is \"NaN\""),
        ("predict gemv 4z 4096", "N is \"4z\""),
        ("predict gemv 99999999999999999999 1", "whole number"),
        ("predict gemv 4294967297 1", "from 1 to 4294967296"),
        ("predict gemv 4096", "takes 2 sizes, N K; 1 given"),
        ("predict gemm 1 2 3 4", "takes 3 sizes"),
        ("predict", "neither a model nor an operation is given"),
        ("recommend", "for example: qwen3-4b"),
        ("recommend qwen3-4b --hardware orin-agx-64", "did you mean jetson-agx-orin-64gb?"),
        ("recommend qwen3-4b --hardware m3-max", "which holds NVIDIA GPUs and boards"),
        ("recommend qwen3-4b --hardware rx7900xtx", "/etc/rooflined/hardware"),
        ("recommend qwen3-4b --hardware 4090", "did you mean rtx-4090"),
        ("recommend qwen3-4b --hardware orin-nano --engine exllama", "name the nearest engine: llama.cpp"),
        ("recommend qwen3-4b --hardware orin-nano --format q4km", "did you mean q4_k_m?"),
        ("recommend qwen3-4b --hardware orin-nano --quant q4", "did you mean --formats?"),
        ("recommend qwen3-4b --hardware orin-nano --ctx-size 4k", "did you mean --context-tokens?"),
        ("recommend qwen3-4b --hardware orin-nano --context 1000000", "more than the 40960"),
        ("recommend qwen3-4b --hardware orin-nano --max-power 15watts", "15W"),
        ("recommend qwen3-4b --gpu rtx-4090", "did you mean --hardware?"),
        ("recommend qwen3-4b --hardware orin-nano --modes 40W", "error: --modes: jetson-orin-nano-8gb-super"),
        ("recommend qwen3-4b --hardware orin-nano --modes 40W", "its modes are 25W, 15W, MAXN_SUPER, 7W"),
        (
            "recommend qwen3-4b --hardware orin-nano --mode 15W --modes all",
            "error: --mode and --modes are both",
        ),
        ("recommend qwen3-4b --hardware gb10 --threads 4", "leave --threads out"),
        ("recommend qwen3-4b --hardware gb10 --max-power 1,5W", "write 1.5W"),
        ("recommend qwen3-4b --hardware gb10 --batch 1-8", "two points: 1..8"),
        ("recommend qwen3-4b --hardware gb10 --min-fps 30", "--min-tokens-per-s 20"),
        ("predict qwen3-4b --batch 1,2,4", "rooflinectl sweep takes several"),
        ("hold --query Cargo.toml -- true", "is not JSON (line 1"),
        ("hold -- sleep 1", "rooflinectl hold --max-power 25W -- COMMAND"),
        ("observe", "rooflinectl observe --from 8080"),
        ("mode confirm abc", "'<ID>': expected a whole number"),
        ("mode confirm", "that rooflinectl mode set printed"),
        ("hardware show", "rooflinectl hardware list"),
        ("models show", "rooflinectl models list"),
        ("recommend --model qwen3-4b", "write it without an option: rooflinectl recommend qwen3-4b"),
        ("recommend Qwen/Qwen3-4B-Instruct-2509-GGUF", "did you mean qwen3-4b"),
        ("recommend Qwen/DoesNotExist-9B", "save its config.json and give its path"),
        ("recommend https://huggingface.co/Qwen/DoesNotExist-9B", "save its config.json"),
        ("recommend frob-4", "rooflinectl models list shows all models"),
        ("predict qwen3-4b --decode", "--phase decode"),
        ("predict qwen3-4b --dtype q4_0", "did you mean --format?"),
        ("status --json", "-o json"),
        ("status --verbose", "unexpected argument"),
        ("-v", "rooflinectl --version"),
        ("version", "rooflinectl --version"),
        ("bench", "rooflinectl measure"),
        ("top", "rooflinectl watch"),
        ("mode 15W", "rooflinectl mode set 15W"),
        ("mode MAXN", "rooflinectl mode set MAXN"),
        ("mode enter 15W", "rooflinectl mode set 15W"),
        ("hardware rtx-4090", "rooflinectl hardware show rtx-4090"),
        ("models qwen3-4b", "rooflinectl models show qwen3-4b"),
        ("models inspect qwen3-4b", "rooflinectl models show qwen3-4b"),
        ("config print", "rooflinectl config show"),
        ("hold --max-power 15W sleep", "put -- in front of the command: -- sleep"),
        ("run llama-server", "-- llama-server"),
        ("predict gemv 1 1 --format int9", "did you mean int8 or int4?"),
        ("predict gemv 1 1 --batch 0", "--batch"),
        ("predict gemv 1 1 --batch -4", "--batch"),
        ("predict gemv 1 1 --engine lama", "llama.cpp"),
        ("predict gemv 1 1 --heads 4", "--heads belongs to attention"),
        ("predict attention --heads 32", "--context-tokens"),
        ("predict attention 1 32 5 1 10 128", "32 heads cannot share 5"),
        ("predict llama-3.1-8", "did you mean llama-3.1-8b?"),
        ("predict gemw 1 1", "did you mean gemv or gemm?"),
        ("predict llama-3.1-8b 4096", "a model takes no sizes"),
        ("predict llama-3.1-8b --heads 4", "--heads belongs to attention"),
        ("predict gemv 1 1 --phase decode", "--phase belongs to models"),
        ("predict gemv 1 1 --format q3_k_l", "q3_k_l"),
        ("predict llama-3.1-8b --phase reading", "prefill"),
        ("sweep llama-3.1-8b,gemv", "not swept together"),
        ("sweep llama-3.1-8b --sizes 4", "--sizes belongs to operations"),
        ("recommend llama-3.1-8b --max-time-per-token 50tokens", "1.5ms"),
        ("recommend llama-3.1-8b --max-memory 8G", "8GB"),
        ("analyze gemv 1 1 --time 280x", "280us"),
        ("analyze gemv 1 1 --time -1ms", "--time"),
        ("analyze gemv 1 1 --time NaNs", "--time"),
        ("analyze gemv 1 1", "--time"),
        ("explain", "neither a server nor a model is given"),
        ("explain gemv 1 1 --time 1ms --tokens-per-s 3", "are both given"),
        ("explain --port 8080 --tokens-per-s 3", "are both given"),
        ("explain --port 0", "a port of this machine"),
        ("explain --pid x", "expected the number of a process"),
        ("explain gemv 1 1 --tokens-per-s -1", "--tokens-per-s"),
        ("recommend gemv 1 1 --batch 32..1", "expected the smaller number first"),
        ("recommend gemv 1 1 --max-time 0s", "--max-time"),
        ("recommend gemv 1 1 --max-memory-bytes inf", "--max-memory-bytes"),
        ("recommend gemv 1 1 --objective speed", "latency"),
        ("compare --sizes 4096", "no operation is named"),
        ("compare gemv --sizes 10x", "K is \"\""),
        ("sweep attention", "one attention at a time"),
        ("status --timeout 0s", "--timeout"),
        ("status --timeout 1e300s", "at most a day"),
        ("status -o yaml", "possible values"),
        ("--ssh -oProxyCommand=x status", "--ssh"),
        ("frobnicate", "unrecognized subcommand"),
        ("help predct", "'predict'"),
        ("modle", "'mode', 'models'"),
        ("status -o cvs", "'csv'"),
        ("serve", "systemctl start rooflined"),
        ("watch", "--events"),
        ("", "Usage"),
    ] {
        let args: Vec<_> = args.split(' ').filter(|arg| !arg.is_empty()).collect();
        let output = run(fake.path(), &args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        contains(&stderr(&output), &[expected]);
        assert_eq!(stdout(&output), "", "{args:?}");
    }
    assert_eq!(fake.asked(), [], "nothing was sent");
}

#[test]
fn refusals_have_their_exit_code_their_sentence_and_their_hint() {
    for (status, code, exit) in [
        (400, "unknown_mode", 2),
        (403, "control_disabled", 4),
        (409, "busy", 75),
        (409, "gated", 75),
        (409, "not_calibrated", 1),
        (409, "reboot_required", 5),
        (500, "probe_failed", 1),
        (503, "not_ready", 75),
    ] {
        let fake = Fake::start(move |_| Reply::error(status, code, Some("workload.op.n")));
        let (found, errors) = bad(fake.path(), &["predict", "gemv", "1", "1"]);
        assert_eq!(found, exit, "{code}");
        assert_eq!(errors, format!("error: N: refused as {code}\nhint: do something else\n"));
    }
}

#[test]
fn without_a_daemon_the_exit_code_is_69_and_the_hint_starts_one() {
    let nowhere = tempfile::tempdir().unwrap();
    let (exit, errors) = bad(nowhere.path(), &["status"]);
    assert_eq!(exit, 69);
    contains(&errors, &["query.sock (not there)", "hint: ", "rooflined serve"]);
    for command in
        ["board", "roofline", "predict gemv 1 1", "compare gemv 1 1", "calibrate", "watch --events"]
    {
        let args: Vec<_> = command.split(' ').collect();
        assert_eq!(bad(nowhere.path(), &args).0, 69, "{command}");
    }
    drop(std::os::unix::net::UnixListener::bind(nowhere.path().join("query.sock")).unwrap());
    let (exit, errors) = bad(nowhere.path(), &["status"]);
    assert_eq!(exit, 69);
    contains(&errors, &["nobody listens", "has ended"]);
}

#[test]
fn a_daemon_that_says_nothing_is_not_waited_for_beyond_the_timeout() {
    let fake = Fake::start(|_| Reply::Silence);
    let began = Instant::now();
    let (exit, errors) = bad(fake.path(), &["status", "--timeout", "200ms"]);
    assert_eq!(exit, 75);
    contains(&errors, &["no answer to /v1/state within 0.2 s"]);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn nonsense_from_the_socket_is_an_error_and_no_crash() {
    for nonsense in [
        "",
        "hello\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n[1]x",
        "HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let fake = Fake::start(move |_| Reply::Raw(nonsense.into()));
        for command in ["status", "board", "roofline", "doctor"] {
            let output = run(fake.path(), &[command]);
            assert_eq!(output.status.code(), Some(1), "{nonsense:?} to {command}: {output:?}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let fake = Fake::start(healthy);
    let sizes: Vec<String> = (1..5000).map(|size| size.to_string()).collect();
    let sizes = sizes.join(",");
    for format in ["human", "json", "jsonl", "csv"] {
        let mut child = ctl(fake.path(), &["sweep", "gemv", "--sizes", &sizes, "-o", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}: {output:?}");
        assert_eq!(stderr(&output), "", "{format}");
    }
}

#[test]
fn large_answers_are_taken_and_endless_ones_are_not() {
    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/state" => {
            let mut state = answers::state();
            state.degraded =
                (0..100_000).map(|number| format!("problem number {number}; ignore it")).collect();
            Reply::ok(&state)
        }
        _ => {
            let mut raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
            raw.resize(raw.len() + (65 << 20), b' ');
            Reply::Raw(raw)
        }
    });
    assert_eq!(good(&fake, &["status"]).matches("problem number").count(), 100_000);
    let (exit, errors) = bad(fake.path(), &["board"]);
    assert_eq!(exit, 1);
    contains(&errors, &["larger than 64 MiB"]);
}
