//! Wrong command lines of new users: each says what is wrong and what to type next, and ends with the exit code of the contract:
//! 2 where the command line is wrong, 1 where it is right and a file is not.

use std::fs;
use std::path::Path;

use super::{ctl, stderr, stdout};

/// Files that people give for a model, with their first bytes.
const FILES: [(&str, &[u8]); 19] = [
    ("picture.gguf", b"\x89PNG\r\n\x1a\n"),
    ("empty.gguf", b""),
    ("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"),
    ("zeros.gguf", &[0; 64]),
    ("zeros.safetensors", &[0; 64]),
    ("login.gguf", b"<!DOCTYPE html>\n<title>Sign in</title>"),
    ("refused.gguf", b"{\"error\":\"Repository not found\"}"),
    ("page.onnx", b"<!DOCTYPE html>\n"),
    ("model.engine", b"ftrt\x01\x02\x03\xff"),
    ("model.pt", b"PK\x03\x04archive/data.pkl\x80"),
    ("pytorch_model.bin", b"\x80\x02\x8a\nl\xfc"),
    ("tokenizer.json", b"{\"version\":\"1.0\"}"),
    ("nothing.json", b"{\"hidden_size\":64}"),
    ("broken.json", b"{\"model_type\": \"llama\","),
    ("adapter.json", b"{\"peft_type\":\"LORA\"}"),
    ("vision.json", b"{\"model_type\":\"resnet\"}"),
    (
        "whisper.json",
        b"{\"model_type\": \"whisper\", \"d_model\": 512, \"num_hidden_layers\": 6, \"vocab_size\": 51865}",
    ),
    ("requests.jsonl", b"{'model': 1}\n"),
    ("strings.toml", b"[control]\nenabled = \"yes\"\n[daemon]\naccelerator = \"tpu\"\n"),
];

/// A command line, its exit code, and a part of what is said.
const LINES: [(&str, i32, &str); 184] = [
    // Commands that look at this machine, and what other programs' users write there.
    ("status --hardware orin-nano", 2, "predict, recommend and sweep take --hardware"),
    ("compare qwen3-4b --hardware orin-nano", 2, "predict, recommend and sweep take --hardware"),
    ("--hardware orin-nano recommend qwen3-4b", 2, "write it behind the command"),
    ("demo --hardware orin-nano", 2, "demo --simulate BOARD"),
    ("mode set -m 0", 2, "rooflinectl mode set 15W"),
    ("mode -q", 2, "rooflinectl mode get"),
    ("watch -n 1", 2, "did you mean --interval?"),
    ("holds list", 2, "takes no name"),
    ("board orin-nano", 2, "hardware show orin-nano"),
    ("bundle board.txt", 2, "--file board.txt"),
    ("doctor --fix", 2, "it changes nothing"),
    ("hardware add mine.toml", 2, "/etc/rooflined/hardware"),
    ("mcp --port 3000", 2, "it has no port"),
    ("recommend qwen3-4b --max-power 5MW", 2, "in W, mW or kW"),
    ("analyze qwen3-4b --time 12", 2, "write 12ms or 12s"),
    // Formats.
    ("predict qwen3-4b --format Q4_K_XL", 2, "did you mean q4_k_m?"),
    ("predict qwen3-4b --format UD-Q4_K_XL", 2, "give the file itself"),
    ("predict qwen3-4b --format 4bit", 2, "did you mean q4_k_m (GGUF), awq_int4"),
    ("predict qwen3-4b --format int-4", 2, "did you mean int4?"),
    ("predict qwen3-4b --format Q4_0_4_4", 2, "did you mean q4_0,"),
    ("predict qwen3-4b --format gptq", 2, "did you mean gptq_int4?"),
    ("predict qwen3-4b --format q4", 2, "did you mean q4_k_m"),
    ("predict qwen3-4b --format float16", 2, "did you mean fp16?"),
    ("predict qwen3-4b --format fp8", 2, "fp8_e4m3 or fp8_e5m2?"),
    ("predict qwen3-4b --format auto", 2, "leave the option out"),
    ("predict qwen3-4b --format q4_k_m,q8_0", 2, "rooflinectl sweep --formats takes several"),
    ("predict qwen3-4b --kv-format q4", 2, "did you mean q4_0"),
    (
        "predict gemv 64 64 --format q3_k_l",
        2,
        "a mix of formats, which a whole model has; most of it is q3_k_m",
    ),
    ("recommend qwen3-4b --batch 1:32", 2, "or a range of them: 8, 1..32"),
    ("hold --min-gpu-mhz fast -- true", 2, "1020MHz"),
    ("predict qwen3-4b --clock 600MHz", 2, "--mode lgc-2000"),
    ("calibrate --fast", 2, "did you mean --quick?"),
    ("predict qwen3-4b --engine all", 2, "leave the option out"),
    ("roofline --precision fp12", 2, "known: fp64"),
    // Options of other programs.
    ("predict qwen3-4b -ngl 99", 2, "'-ngl' found\n\n  tip: did you mean --gpu-layers?"),
    ("predict qwen3-4b -ctk q8_0", 2, "did you mean --kv-format?"),
    ("predict qwen3-4b -fa", 2, "leave it out"),
    ("predict qwen3-4b -c 4096", 2, "did you mean --context-tokens?"),
    ("predict qwen3-4b -t 4", 2, "did you mean --threads?"),
    ("predict qwen3-4b -b 8", 2, "--batch counts sequences"),
    ("predict qwen3-4b -np 4", 2, "did you mean --batch?"),
    ("predict qwen3-4b -ub 512", 2, "did you mean --chunk-tokens?"),
    ("predict qwen3-4b --ub 512", 2, "did you mean --chunk-tokens?"),
    ("recommend qwen3-4b -ngl 99", 2, "did you mean --gpu-layers?"),
    ("sweep qwen3-4b -np 4", 2, "did you mean --batches?"),
    ("sweep qwen3-4b -c 4096", 2, "did you mean --contexts?"),
    ("predict qwen3-4b --gpu-memory-utilization 0.9", 2, "leave it out: the answer says"),
    ("predict qwen3-4b --tp 2", 2, "one accelerator is predicted"),
    ("predict qwen3-4b --tensor-parallel-size 2", 2, "one accelerator is predicted"),
    ("predict qwen3-4b --max-model-len 8192", 2, "did you mean --context-tokens?"),
    ("predict qwen3-4b --quantization awq", 2, "did you mean --format?"),
    ("predict qwen3-4b --temp 0.7", 2, "does not change the speed"),
    ("predict qwen3-4b --min-fps 30", 2, "--min-fps belongs to rooflinectl recommend"),
    ("status --watch", 2, "tip: rooflinectl watch"),
    ("predict qwen3-4b --precision fp16", 2, "the format of a model's weights is --format"),
    ("predict qwen3-4b --engine tensorrt", 2, "--engine tensorrt-llm"),
    // Answers about other hardware.
    (
        "predict qwen3-4b --hardware orin-nano --power-limit 10W",
        2,
        "a Jetson is limited by its power mode: --mode",
    ),
    ("predict qwen3-4b --hardware rtx-4090 --power-limit 200W", 2, "cap the clock instead, --mode lgc-2000"),
    (
        "predict qwen3-4b --hardware rtx-4090 --mode pl-10",
        2,
        "error: --mode: the power of rtx-4090 is not known",
    ),
    ("predict qwen3-4b --hardware rtx-4090 --mode MAXN", 2, "lgc-MHZ caps its clock: lgc-"),
    ("predict qwen3-4b --hardware orin-nano --gpu-layers 10", 2, "error: --gpu-layers: "),
    ("predict gemm 64 4096 4096 --batch 8 --hardware orin-nano", 2, "leave --batch out, or change M"),
    ("sweep qwen3-4b --hardware orin-nano --threads 2,4", 2, "leave --threads out"),
    ("sweep qwen3-4b --hardware orin-nano --contexts 1000000", 2, "error: --contexts: 1000000"),
    ("predict qwen3-4b --hardware orin-nano --context 128k", 2, "add --hypothetical to predict anyway"),
    ("predict qwen3-4b --hardware orin-nano --speculative draft", 2, "add --draft-model llama-3.2-1b,"),
    (
        "predict qwen3-4b --hardware orin-nano --engine-version banana",
        2,
        "such as --engine llama.cpp; write it like",
    ),
    ("predict qwen3-4b --hardware gb10 --engine vllm --engine-version b1234", 2, "not a version of vllm"),
    (
        "predict qwen3-4b --hardware gb10 --engine llama.cpp --engine-version banana",
        2,
        "write it like b10809",
    ),
    ("predict qwen3-4b --hardware orin-nano,gb10", 2, "name one machine at a time: orin-nano"),
    // Words in the wrong place.
    ("predict qwen3-4b orin-nano", 2, "write --hardware orin-nano"),
    ("recommend qwen3-4b rtx-4090", 2, "write --hardware rtx-4090"),
    ("predict qwen3-4b q4_k_m", 2, "write --format q4_k_m"),
    ("predict qwen3-4b hardware", 2, "write --hardware\n"),
    ("predict qwen3-4b hardware=orin-nano", 2, "write --hardware orin-nano\n"),
    ("predict qwen3-4b vllm", 2, "write --engine vllm"),
    ("predict qwen3-4b 15W", 2, "write --mode 15W"),
    ("predict qwen3-4b llama-3.1-8b", 2, "rooflinectl sweep MODEL,llama-3.1-8b"),
    ("predict qwen3-4b,llama-3.1-8b", 2, "several go to rooflinectl sweep"),
    ("predict orin-nano", 2, "it is hardware: name a model first"),
    ("sweep qwen3-4b --batches 1 2 4", 2, "--batches 1,2,4"),
    ("sweep qwen3-4b --batches 1-8", 2, "a range with two points: 1..8"),
    ("sweep qwen3-4b --contexts 1K, 4K", 2, "without spaces: 1,2,4"),
    ("sweep qwen3-4b,nosuch", 2, "\"nosuch\" is neither an operation nor a model"),
    ("recommend qwen3-4b --max-power 15 W", 2, "without a space: 15W"),
    ("recommend qwen3-4b --batch 1,2,4", 2, "a range: 1..4"),
    ("tiling 4096", 2, "rooflinectl tiling 64 4096 4096"),
    ("tiling 4096x4096x4096", 2, "with spaces: rooflinectl tiling"),
    ("tiling gemm 64 4096 4096", 2, "the sizes are M N K"),
    ("predict gemv 4096x4096", 2, "write them with spaces: gemv 4096 4096"),
    ("formats X", 2, "takes no name"),
    ("formats q4_k_m", 2, "rooflinectl models show MODEL --format q4_k_m"),
    ("models list qwen", 2, "rooflinectl models show qwen3-4b"),
    ("hardware list gb10", 2, "rooflinectl hardware show gb10"),
    ("hardware info gb10", 2, "rooflinectl hardware show KEY"),
    ("models pull qwen3-4b", 2, "models are not fetched"),
    ("models inspect qwen", 2, "did you mean qwen3-4b"),
    ("models inspect", 2, "give the path"),
    ("models show ./vision.json", 2, "rooflinectl models inspect ./vision.json"),
    ("roofline orin-nano", 2, "did you mean --hardware orin-nano?"),
    ("analyze gemv 4096 4096", 2, "give what was measured"),
    ("config set x", 2, "edit /etc/rooflined/rooflined.toml"),
    // Values.
    ("recommend qwen3-4b --max-power -5W", 2, "'-5W' for '--max-power': expected more than zero"),
    ("hold --max-power -5W -- true", 2, "expected more than zero"),
    ("recommend qwen3-4b --max-quality-loss 5", 2, "5 alone is 500%: write 5% or 0.05"),
    ("recommend qwen3-4b --max-quality-loss -5%", 2, "expected more than zero"),
    ("recommend qwen3-4b --max-memory 4", 2, "4 alone is 4 bytes: write 4GB"),
    ("recommend qwen3-4b --max-memory 4G", 2, "with its unit: 4GB or 4GiB"),
    ("recommend qwen3-4b --max-time-per-token 50", 2, "50 alone is 50 seconds: write 50ms or 50s"),
    ("recommend qwen3-4b --max-time-to-first-token 500", 2, "write 500ms or 500s"),
    ("recommend qwen3-4b —hardware orin-nano", 2, "write --hardware"),
    ("recommend qwen3-4b –hardware orin-nano", 2, "begins with a long dash"),
    ("—help", 2, "write --help"),
    // Names.
    ("predict hf.co/Qwen/Qwen3-4B-GGUF:Q4_K_M", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict Qwen/Qwen3-4B-GGUF:Q4_K_M", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict qwen3:4b-q4_K_M", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict Qwen3-4B-Q4_K_M", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict yolov8n", 2, "it is a detector of objects: export it to .onnx"),
    ("recommend resnet50", 2, "it is an image classifier: export it to .onnx"),
    ("predict whisper-large-v3", 2, "it is a recogniser of speech: rooflined predicts language models"),
    ("predict qwen3-4b@q4_k_m", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict qwen3-4b/q4_k_m", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict gpt-4o", 2, "not published"),
    ("predict matmul 64 4096 4096", 2, "a matrix product is gemm M N K"),
    // Files.
    ("predict Qwen3-4B-Q4_K_M.gguf", 1, "a known model needs no file: qwen3-4b --format q4_k_m"),
    ("predict missing.gguf", 1, "there is no file"),
    ("predict missing.onnx", 1, "there is no file missing.onnx\nhint: check the path, and who may read it\n"),
    ("models inspect missing.onnx", 1, "there is no file missing.onnx"),
    ("predict missing-00001-of-00002.gguf", 1, "check the path"),
    ("predict yolo11s.pt", 1, "torch.onnx.export"),
    ("models inspect picture.gguf", 1, "picture.gguf is a picture"),
    ("predict picture.gguf --hardware gb10", 1, "picture.gguf is a picture"),
    ("recommend empty.gguf --hardware gb10", 1, "empty.gguf is empty"),
    ("predict pointer.gguf --hardware gb10", 1, "git lfs pull"),
    ("predict zeros.gguf --hardware gb10", 1, "begins with zeros"),
    ("quant-error zeros.safetensors", 1, "begins with zeros"),
    ("predict login.gguf --hardware gb10", 1, "is a web page"),
    ("predict refused.gguf --hardware gb10", 1, "is a text file\nhint: look into it"),
    ("predict page.onnx --hardware gb10", 1, "is a web page"),
    ("predict model.engine --hardware gb10", 1, "is a TensorRT engine"),
    ("predict model.pt --hardware gb10", 1, "is a PyTorch file"),
    ("predict pytorch_model.bin --hardware gb10", 1, "is a PyTorch file"),
    ("predict tokenizer.json --hardware gb10", 1, "give config.json"),
    ("predict nothing.json --hardware gb10", 1, "it has no model_type"),
    ("predict adapter.json --hardware gb10", 1, "give the model that it was trained for"),
    ("models inspect vision.json", 1, "export it to .onnx"),
    ("predict whisper.json --hardware gb10", 1, "is a recogniser of speech"),
    ("models inspect whisper.json", 1, "is a recogniser of speech"),
    ("recommend model.engine --min-fps 30", 1, "model.engine is a TensorRT engine"),
    ("recommend missing.engine --min-fps 30", 1, "there is no file"),
    ("predict model.pt --size 640x640", 1, "model.pt is a PyTorch file"),
    ("run -- llama-server -m missing.gguf", 1, "there is no file"),
    ("quant-error qwen3-4b", 2, "give the path of its .gguf or .safetensors file"),
    ("config check missing.toml", 1, "there is no file missing.toml"),
    ("config show missing.toml", 1, "there is no file missing.toml"),
    ("config show strings.toml", 1, "`control.enabled` is \"yes\", expected true or false"),
    ("config show strings.toml", 1, "expected one of auto, cpu, gpu"),
    // Commands whose words or values are others than those of man, a shell or a server.
    ("man recomend", 2, "there is no command \"recomend\""),
    ("man ./pages", 2, "rooflinectl man --dir DIR"),
    ("completions", 2, "bash, zsh, fish, elvish or powershell"),
    ("calibrate --wait 10", 2, "--wait takes no time"),
    ("calibrate now", 2, "takes no name"),
    ("watch orin-nano", 2, "predict, recommend and sweep take --hardware"),
    ("dashboard 8080", 2, "did you mean --listen 8080?"),
    ("observations forget", 2, "or --own for all of yours"),
    ("compare qwen3-4b q4_k_m", 2, "it is a weight format"),
    ("predict vllm", 2, "it is an inference engine: name a model first"),
    ("explain", 2, "rooflinectl explain --port 8080"),
    ("explain 8080", 2, "a server's port follows --port or --from"),
    ("observe 8080", 2, "a server's port follows --port or --from"),
    ("explain http://127.0.0.1:8080", 2, "rooflinectl explain --port http://127.0.0.1:8080"),
    ("roofline --hardware gb10 --svg missing/x.svg", 1, "hint: name a file in a directory"),
    ("mode list --conf missing.conf", 1, "there is no such file"),
    ("dashboard --listen here", 2, "for example: --listen 8000"),
    ("mcp", 1, "add {\"command\": \"rooflinectl\""),
    ("sweep 4096*4096", 2, "with spaces: gemv 4096 4096"),
    ("sweep gemm 64x4096x4096", 2, "write them with spaces: gemm 64 4096 4096"),
    ("predict Llama 3.1 8B", 2, "did you mean llama-3.1-8b?"),
    ("recommend qwen 3 4b --hardware gb10", 2, "did you mean qwen3-4b?"),
    ("sweep qwen3-4b --contexts 4k..32k", 2, "name some of them: 4096,32768"),
    ("predict qwen3-4b --batch 1..8", 2, "rooflinectl sweep takes several"),
    ("recommend qwen3-4b --memory-available 4GB", 2, "did you mean --max-memory-bytes?"),
    (
        "predict qwen3-4b --hardware gb10 --phase prefill --prompt 8000 --context 4096",
        2,
        "--context-tokens 4096 has no room for --prompt 8000, which fill 8000",
    ),
    (
        "predict qwen3-4b --hardware gb10 --phase serve --prompt 4000 --output-tokens 100 --context 4096",
        2,
        "give --context-tokens 4100 or more",
    ),
];

/// What a person at a terminal has no use for: fields of requests, numbers and words of the system and of the parser.
const NEVER: [&str; 12] = [
    "workload.",
    "freedom.",
    "constraints.",
    "operating_point",
    "power_mode",
    "gpu_hz",
    "[0]",
    "os error",
    "No such file",
    "EOF while",
    "hypothetical (",
    "panicked",
];

#[test]
fn wrong_command_lines_of_new_users_say_what_to_type_next() {
    let directory = tempfile::tempdir().unwrap();
    for (name, start) in FILES {
        fs::write(directory.path().join(name), start).unwrap();
    }
    let mut wrong = Vec::new();
    for (line, code, said) in LINES {
        let words: Vec<&str> = line.split(' ').collect();
        let output = ctl(Path::new("/nonexistent"), &words).current_dir(&directory).output().unwrap();
        let errors = stderr(&output);
        let ok = output.status.code() == Some(code) && errors.contains(said) && stdout(&output).is_empty();
        if !ok || NEVER.iter().any(|word| errors.contains(word)) {
            wrong.push(format!("{line}\n  wanted {code}, {said:?}\n  {:?}, {errors}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), LINES.len(), wrong.join("\n"));
}

#[test]
fn a_directory_without_a_model_names_what_it_holds_instead() {
    for (name, said) in [
        ("pytorch_model.bin", "\"pytorch_model.bin\" is a PyTorch file"),
        ("model.engine", "\"model.engine\" is a TensorRT engine"),
        ("model.onnx", "give that file itself"),
        ("mmproj-F16.gguf", "give the language model's .gguf file"),
        ("tokenizer.json", "give config.json"),
        ("README.md", "give a .gguf or .safetensors file, a config.json"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(name), "x").unwrap();
        for line in ["models inspect", "predict --hardware gb10"] {
            let mut words: Vec<&str> = line.split(' ').collect();
            words.push(directory.path().to_str().unwrap());
            let output = ctl(Path::new("/nonexistent"), &words).output().unwrap();
            let errors = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
            assert!(errors.contains("holds no .gguf") && errors.contains(said), "{words:?}: {errors}");
        }
    }
}
