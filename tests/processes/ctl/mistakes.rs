//! Wrong command lines of new users: each says what is wrong and what to type next, and ends with the exit code of the contract:
//! 2 where the command line or a file that it names is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{ctl, stderr, stdout};

/// Files that people give for a model, with their first bytes.
const FILES: [(&str, &[u8]); 23] = [
    ("picture.gguf", b"\x89PNG\r\n\x1a\n"),
    ("empty.gguf", b""),
    ("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"),
    ("zeros.gguf", &[0; 64]),
    ("zeros.safetensors", &[0; 64]),
    ("login.gguf", b"<!DOCTYPE html>\n<title>Sign in</title>"),
    ("refused.gguf", b"{\"error\":\"Repository not found\"}"),
    ("page.onnx", b"<!DOCTYPE html>\n"),
    ("text.onnx", b"hello world\n"),
    // Relu of x, whose only dimension is n.
    (
        "relu.onnx",
        b"\x42\x02\x10\x11\x3a\x20\x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\x5a\x10\x0a\x01x\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01n",
    ),
    ("notes.md", b"# Notes\n"),
    ("Modelfile", b"FROM qwen3:4b\n"),
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
static LINES: [(&str, i32, &str); 453] = [
    // Commands that look at this machine, and what other programs' users write there.
    ("status --hardware orin-nano", 2, "predict, recommend and sweep take --hardware"),
    ("compare qwen3-4b --hardware orin-nano", 2, "predict, recommend and sweep take --hardware"),
    (
        "--hardware orin-nano recommend qwen3-4b",
        2,
        "after the command: rooflinectl recommend qwen3-4b --hardware orin-nano",
    ),
    ("demo --hardware orin-nano", 2, "did you mean --simulate?"),
    ("mode set -m 0", 2, "without an option: rooflinectl mode set 0"),
    ("mode -q", 2, "rooflinectl mode get"),
    ("watch -n 1", 2, "did you mean --interval?"),
    ("holds list", 2, "leave it out: rooflinectl holds"),
    ("board orin-nano", 2, "for another: rooflinectl hardware show orin-nano"),
    ("bundle board.txt", 2, "--file board.txt"),
    ("doctor --fix", 2, "it changes nothing"),
    ("hardware add mine.toml", 2, "/etc/rooflined/hardware"),
    ("mcp --port 3000", 2, "your MCP client starts it with {\"command\""),
    ("recommend qwen3-4b --max-power 5MW", 2, "in W, mW or kW: 15W; write 5W"),
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
    ("predict gemv 64 64 --format q3_k_l", 2, "mixes formats, as only a whole model does; write q3_k_m"),
    ("recommend qwen3-4b --batch one", 2, "or a range of them: 8, 1..32"),
    ("hold --min-gpu-mhz fast -- true", 2, "1020MHz"),
    ("predict qwen3-4b --clock 600MHz", 2, "--mode lgc-2000"),
    ("calibrate --fast", 2, "did you mean --quick?"),
    ("predict qwen3-4b --engine all", 2, "rooflinectl recommend MODEL --engines all"),
    ("roofline --precision fp12", 2, "known: fp64"),
    // Sentences, tasks and sizes instead of names, and files with nothing in them.
    ("what is a roofline", 2, "rooflinectl recommend qwen3-4b --hardware orin-nano"),
    ("can I run llama3", 2, "to begin: rooflinectl demo"),
    ("help me", 2, "rooflinectl help lists the commands"),
    ("7b", 2, "to begin: rooflinectl demo"),
    ("recommend 7b --hardware gb10", 2, "rooflinectl models list 7b"),
    ("predict 1.5B", 2, "rooflinectl models list 1.5B shows the models of that size"),
    ("recommend coding --hardware gb10", 2, "it is a task: name a model for it"),
    ("recommend all --hardware gb10", 2, "rooflinectl sweep qwen3-4b,llama-3.1-8b"),
    ("sweep", 2, "for example: qwen3-4b,llama-3.1-8b"),
    ("predict --requests empty.gguf", 2, "empty.gguf holds no request\nhint: write one on each line"),
    ("predict qwen3-4b --engine none --hardware gb10", 2, "--engine none is for operations"),
    ("recommend qwen3-4b --engine none --hardware gb10", 2, "--engine none is for operations"),
    ("sweep qwen3-4b --engine none --hardware gb10", 2, "--engine none is for operations"),
    ("recommend qwen3-4b --hardware gpu", 2, "leave it out for this machine"),
    ("predict qwen3-4b --hardware localhost", 2, "leave it out for this machine"),
    ("hardware show nvidia", 2, "rooflinectl board shows this machine"),
    ("recommend qwen3-4b --hardware gb10 --users 10", 2, "did you mean --batch?"),
    ("recommend qwen3-4b --hardware gb10 --max-ram 8GB", 2, "did you mean --max-memory"),
    ("recommend qwen3-4b --hardware gb10 --tokens 20", 2, "did you mean --output-tokens?"),
    ("recommend qwen3-4b --hardware gb10 --tok/s 20", 2, "did you mean --min-tokens-per-s?"),
    ("recommend qwen3-4b --cpu-only", 2, "leave it out: --hardware names the machine"),
    (
        "predict qwen3-4b --hardware gb10 --thinking",
        2,
        "for the time of a longer answer: --phase serve --prompt 512 --output-tokens 2000",
    ),
    ("recommend qwen3-4b --hardware gb10 --why", 2, "the answer gives its reason"),
    ("recommend --all --hardware gb10", 2, "--modes all considers every power mode"),
    ("predict qwen3-4b --help-all", 2, "rooflinectl predict --help shows every option"),
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
    ("predict qwen3-4b --min-fps 30", 2, "rooflinectl recommend MODEL --min-tokens-per-s 30"),
    ("status --watch", 2, "to see it change: rooflinectl watch"),
    ("predict qwen3-4b --precision fp16", 2, "the format of a model's weights is --format"),
    ("predict qwen3-4b --engine tensorrt", 2, "--engine tensorrt-llm"),
    // Answers about other hardware.
    (
        "predict qwen3-4b --hardware orin-nano --power-limit 10W",
        2,
        "a Jetson is limited by its power mode: --mode",
    ),
    ("predict qwen3-4b --hardware rtx-4090 --power-limit 900W", 2, "whose own is 450 W"),
    ("predict qwen3-4b --hardware rtx-4090 --mode pl-10", 2, "give pl-126 to pl-450"),
    ("predict qwen3-4b --hardware rtx-4090 --mode MAXN", 2, "lgc-MHZ caps its clock and pl-WATTS its power"),
    ("predict qwen3-4b --hardware orin-nano --gpu-layers 10", 2, "error: --gpu-layers: "),
    ("predict gemm 64 4096 4096 --batch 8 --hardware orin-nano", 2, "leave --batch out, or change M"),
    ("sweep qwen3-4b --hardware orin-nano --threads 2,4", 2, "leave --threads out"),
    ("sweep qwen3-4b --hardware orin-nano --contexts 1000000", 2, "error: --contexts: 1000000"),
    ("predict qwen3-4b --hardware orin-nano --context 128k", 2, "add --hypothetical to predict anyway"),
    (
        "predict qwen3-4b --hardware orin-nano --speculative draft",
        2,
        "add --draft-model qwen3-0.6b, a small model with the same vocabulary",
    ),
    (
        "predict qwen3-4b --hardware orin-nano --engine-version banana",
        2,
        "such as --engine llama.cpp for b10809",
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
    ("predict qwen3-4b hardware", 2, "write --hardware orin-nano; rooflinectl hardware list"),
    ("predict qwen3-4b hardware=orin-nano", 2, "write --hardware orin-nano\n"),
    ("predict qwen3-4b vllm", 2, "write --engine vllm"),
    ("predict qwen3-4b 15W", 2, "write --mode 15W"),
    ("predict qwen3-4b llama-3.1-8b", 2, "rooflinectl sweep MODEL,llama-3.1-8b"),
    ("predict qwen3-4b,llama-3.1-8b", 2, "several go to rooflinectl sweep"),
    ("predict orin-nano", 2, "it is hardware: name a model first"),
    ("sweep qwen3-4b --batches 1 2 4", 2, "--batches 1,2,4"),
    ("sweep qwen3-4b --batches 1-8", 2, "a range with two points: 1..8"),
    ("sweep qwen3-4b --batches 8-1", 2, "a range with two points: 1..8"),
    ("recommend qwen3-4b --batch 8..1", 2, "the smaller number first: 1..8"),
    ("predict qwen3-4b --batch 8-1", 2, "takes several: --batches 1..8"),
    ("recommend qwen3-4b --batch 1:8", 2, "a range with two points: 1..8"),
    // Servers, options and files of llama.cpp, Ollama, vLLM and containers.
    ("run -- ollama serve", 2, "then watch it: rooflinectl observe --from 11434"),
    ("run -- vllm serve Qwen/Qwen3-4B", 2, "rooflinectl recommend MODEL --engine vllm prints; then watch it"),
    ("run -- /opt/bin/server", 2, "rooflinectl observe --from PORT"),
    ("run -- llama-server -hf Qwen/Qwen3-4B-GGUF", 2, "start llama-server once without rooflinectl"),
    ("run -d -- llama-server -m model.gguf", 2, "it stays while the server runs"),
    ("recommend qwen3-4b --device cuda:0", 2, "for another machine: --hardware orin-nano"),
    ("recommend qwen3-4b --hardware cuda:0", 2, "leave it out for this machine"),
    ("predict qwen3-4b --hardware gb10 --batch 100000000", 2, "it counts sequences that run at once"),
    ("recommend qwen3-4b --hardware gb10 --batch 1..100000000", 2, "give a batch range within 1..13107"),
    ("create mine -f Modelfile", 2, "no model is made or stored here"),
    ("images", 2, "rooflinectl models list"),
    ("roofline --precision fp16,int8", 2, "give one, or leave the option out for all"),
    ("servers 8080", 2, "rooflinectl observe --from 8080"),
    ("recommend qwen3-4b --mmproj mmproj.gguf", 2, "--image-tokens 1024"),
    ("observe --port 8080", 2, "rooflinectl observe --from 8080"),
    ("compare gemv 64 64 --prompt 512", 2, "or name a file: rooflinectl compare model.gguf"),
    ("predict qwen3-4b --hardware gb10 --context 10M", 2, "10485760"),
    ("predict qwen3-4b --hardware gb10 --num_ctx 8192", 2, "did you mean --context-tokens?"),
    ("predict qwen3-4b --hardware gb10 --fp16", 2, "write --format fp16"),
    ("predict qwen3-4b --hardware gb10 --q4_k_m", 2, "write --format q4_k_m"),
    ("predict qwen3-4b --hardware gb10 --jinja", 2, "leave it out"),
    ("recommend qwen3-4b --hardware orin-nano --jetpack 6.2", 2, "leave it out"),
    ("recommend qwen3-4b --hardware orin-nano --super", 2, "--hardware orin-nano-super"),
    ("recommend qwen3-4b --hardware orin-nano --vs gb10", 2, "with another --hardware"),
    ("predict text.onnx --hardware orin-nano --useDLACore=0", 2, "the speed of a DLA is not predicted"),
    ("predict --onnx=text.onnx", 2, "without an option: rooflinectl predict text.onnx"),
    ("compare orin-nano agx-orin", 2, "rooflinectl predict MODEL --hardware orin-nano"),
    ("status -a", 2, "did you mean --all?"),
    ("dashboard -p 9000", 2, "--listen 9000"),
    ("hold 15W", 2, "rooflinectl hold --mode 15W -- COMMAND"),
    ("models list --size 4b", 2, "rooflinectl models list 4b"),
    ("help recommend qwen3", 2, "rooflinectl help recommend"),
    ("llama-bench -m model.gguf", 2, "rooflinectl compare FILE"),
    ("jetson-containers run", 2, "rooflinectl observe --from PORT"),
    ("push mine", 2, "no model is stored here"),
    // Something named without a command, and words of container and service tools.
    ("Qwen3-4B", 2, "rooflinectl recommend qwen3-4b, or rooflinectl predict qwen3-4b"),
    ("model.gguf", 2, "rooflinectl recommend model.gguf"),
    ("orin-nano", 2, "rooflinectl hardware show orin-nano"),
    ("8080", 2, "rooflinectl explain --port 8080"),
    ("gemv 4096 4096", 2, "rooflinectl predict gemv 4096 4096"),
    ("15W", 2, "rooflinectl mode set 15W"),
    ("ps", 2, "rooflinectl servers"),
    ("logs -f", 2, "journalctl -u rooflined"),
    ("stop", 2, "systemctl stop rooflined"),
    ("pull qwen3:4b", 2, "models are not fetched"),
    ("tune qwen3-4b", 2, "rooflinectl recommend MODEL"),
    ("measure Qwen3-4B", 2, "rooflinectl predict qwen3-4b"),
    ("measure model.gguf", 2, "rooflinectl compare model.gguf"),
    ("servers --port 8080", 2, "rooflinectl explain --port 8080"),
    ("metrics --port 9100", 2, "--textfile FILE"),
    ("watch 5", 2, "did you mean --interval 5s?"),
    ("watch 500ms", 2, "did you mean --interval 500ms?"),
    ("holds release 7", 2, "stop that command"),
    ("hardware show orin nano", 2, "rooflinectl hardware show orin-nano"),
    ("hardware show jetson-nano", 2, "the Jetson Nano of 2019 is older"),
    ("models show qwen 3 4b", 2, "rooflinectl models show qwen3-4b"),
    ("mode set 15 W", 2, "rooflinectl mode set 15W"),
    ("mode set MAXN SUPER", 2, "rooflinectl mode set MAXN_SUPER"),
    ("predict qwen3-4b --hardware orin nano", 2, "write --hardware orin-nano"),
    ("predict qwen3-4b --hardware", 2, "for example: --hardware orin-nano"),
    ("recommend qwen3-4b --max-power", 2, "for example: --max-power 15W"),
    ("sweep qwen3-4b --formats", 2, "for example: --formats q4_k_m"),
    ("predict qwen3-4b --hardware cpu", 2, "rooflinectl calibrate"),
    ("recommend text.onnx --hardware orin-nano", 2, "open it: a refused download leaves its message there"),
    ("quant-error text.onnx", 2, "give a .gguf or .safetensors file"),
    ("quant-error picture.gguf", 2, "weights of 16 or 32 bits"),
    ("predict qwen3-4b --hardware orin-nano --n-cpu-moe 10", 2, "share one memory"),
    // Units and numbers as others write them, values of another option, habits of other tools.
    ("recommend qwen3-4b --max-time-per-token 50msec", 2, "write 50ms"),
    ("recommend qwen3-4b --max-memory 8192M", 2, "write 8192MB or 8192MiB"),
    ("recommend qwen3-4b --max-memory 8Gi", 2, "write 8GiB"),
    ("recommend qwen3-4b --min-tokens-per-s 20tok/s", 2, "write 20"),
    ("recommend qwen3-4b --max-quality-loss 5pct", 2, "write 5%"),
    ("recommend qwen3-4b --max-power １５W", 2, "write 15W"),
    ("predict qwen3-4b --context 4,096", 2, "write 4096"),
    ("predict qwen3-4b --batch 1e3", 2, "write 1000"),
    ("hold --min-gpu-mhz 1.02 -- true", 2, "write 1.02GHz"),
    ("recommend --engine q4_k_m qwen3-4b", 2, "q4_k_m is a weight format: write --format q4_k_m"),
    ("predict qwen3-4b --format llama.cpp", 2, "write --engine llama.cpp"),
    ("predict qwen3-4b --mode orin-nano", 2, "write --hardware orin-nano"),
    ("predict qwen3-4b --hardware 15W", 2, "write --mode 15W"),
    ("predict --hardware qwen3-4b orin-nano", 2, "qwen3-4b is a model, which is named without an option"),
    ("quant-error q4_k_m model.gguf", 2, "write --formats q4_k_m"),
    ("run qwen3-4b", 2, "rooflinectl run -- llama-server -m MODEL.gguf"),
    ("observe --from qwen3-4b", 2, "such as 8080"),
    ("observe --pid llama-server", 2, "which pgrep NAME prints"),
    ("completions --shell bash", 2, "rooflinectl completions bash"),
    ("man 1 predict", 2, "rooflinectl man predict"),
    ("describe hardware orin-nano", 2, "rooflinectl hardware show BOARD"),
    ("status -l 1", 2, "rooflinectl watch"),
    ("models rm qwen3-4b", 2, "no model is stored here"),
    ("recommend qwen3-4b --all-modes", 2, "did you mean --modes all?"),
    ("predict qwen3-4b --verbose", 2, "-o json has every field"),
    ("status --format json", 2, "the format of the output is -o json"),
    ("sweep qwen3-4b -o out.csv", 2, "to write a file: -o csv > out.csv"),
    ("bundle -o board.txt", 2, "the file is --file board.txt"),
    ("dashboard --host 0.0.0.0", 2, "from another machine: ssh -L"),
    ("demo orin-nano", 2, "did you mean --simulate jetson-orin-nano-8gb-super?"),
    ("models inspect -", 2, "give the path of its file"),
    ("predict --requests .", 2, "is a directory"),
    ("predict “qwen3-4b”", 2, "write qwen3-4b"),
    ("sweep qwen3-4b --contexts 1K, 4K", 2, "without spaces: 1,2,4"),
    ("sweep qwen3-4b,nosuch", 2, "\"nosuch\" is neither an operation nor a model"),
    ("recommend qwen3-4b --max-power 15 W", 2, "without a space: 15W"),
    ("recommend qwen3-4b --batch 1,2,4", 2, "a range: 1..4"),
    ("tiling 4096", 2, "rooflinectl tiling 64 4096 4096"),
    ("tiling 4096x4096x4096", 2, "with spaces: rooflinectl tiling"),
    ("tiling gemm 64 4096 4096", 2, "the sizes are M N K"),
    ("predict gemv 4096x4096", 2, "write them with spaces: gemv 4096 4096"),
    ("formats X", 2, "leave it out: rooflinectl formats"),
    ("formats q4_k_m", 2, "rooflinectl models show MODEL --format q4_k_m"),
    ("models list nosuch", 2, "for another model: rooflinectl models inspect FILE"),
    ("hardware list nosuch", 2, "rooflinectl hardware list shows all"),
    ("hardware info gb10", 2, "rooflinectl hardware show gb10"),
    ("models pull qwen3-4b", 2, "models are not fetched"),
    ("models inspect qwen", 2, "for a known model: rooflinectl models show qwen3-8b"),
    ("models inspect", 2, "give the path"),
    ("models show ./vision.json", 2, "rooflinectl models inspect ./vision.json"),
    ("roofline orin-nano", 2, "did you mean --hardware orin-nano?"),
    ("analyze gemv 4096 4096", 2, "give what was measured"),
    ("config set x", 2, "edit /etc/rooflined/rooflined.toml"),
    // Values.
    ("recommend qwen3-4b --max-power -5W", 2, "'-5W' for '--max-power': it is negative; write 5W"),
    ("hold --max-power -5W -- true", 2, "it is negative; write 5W"),
    ("recommend qwen3-4b --max-quality-loss 5", 2, "5 alone is 500%: write 5% or 0.05"),
    ("recommend qwen3-4b --max-quality-loss -5%", 2, "it is negative; write 5%"),
    ("recommend qwen3-4b --max-memory 4", 2, "4 alone is 4 bytes: write 4GB"),
    ("recommend qwen3-4b --max-memory 4G", 2, "write 4GB or 4GiB"),
    ("recommend qwen3-4b --max-time-per-token 50", 2, "50 alone is 50 seconds: write 50ms or 50s"),
    ("recommend qwen3-4b --max-time-to-first-token 500", 2, "write 500ms or 500s"),
    ("recommend qwen3-4b —hardware orin-nano", 2, "write --hardware"),
    ("recommend qwen3-4b –hardware orin-nano", 2, "begins with a long dash"),
    ("—help", 2, "write --help"),
    // Names, and storages that their endings mean.
    (
        "predict mlx-community/Qwen3-8B-4bit --hardware gb10",
        2,
        "stored for MLX, which runs on Apple machines",
    ),
    ("recommend turboderp/Qwen3-8B-exl2 --hardware gb10", 2, "stored for ExLlama"),
    ("sweep qwen3-8b-exl2 --hardware gb10", 2, "name qwen3-8b and a format, such as int8"),
    ("predict unsloth/Qwen3-8B-unsloth-bnb-4bit --hardware gb10", 2, "rooflinectl predict config.json has"),
    ("models show Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", 2, "rooflinectl models inspect config.json"),
    ("predict qwen3:9b --hardware gb10", 2, "did you mean qwen3-"),
    (
        "predict qwen3-4b --hardware gb10 --engine llama.cpp,vllm",
        2,
        "rooflinectl recommend MODEL --engines llama.cpp,vllm",
    ),
    ("predict qwen3-4b --hardware gb10 --engine sglang", 2, "name the nearest engine: vllm"),
    (
        "recommend qwen3-4b --hardware gb10 --engines llama.cpp,exllamav2",
        2,
        "name the nearest engine: llama.cpp",
    ),
    (
        "predict qwen3-4b --hardware gb10 --format gguf",
        2,
        "did you mean q4_k_m, the usual format of a GGUF file?",
    ),
    ("recommend qwen3-4b --hardware orin-nano --objective quality", 2, "--max-quality-loss 1%"),
    ("predict qwen3-4b --hardware gb10 --images 2", 2, "--image-tokens 1024"),
    (
        "sweep qwen3-4b --hardware orin-nano --formats all --batches 1..64 --contexts 1k,2k,4k",
        2,
        "hint: sweep fewer shapes",
    ),
    ("observe qwen3-4b --engine llama.cpp --time 70", 2, "write 70ms or 70s"),
    ("observe qwen3-4b --tokens-per-s 20", 2, "name it: --engine llama.cpp"),
    ("mode set 15W --confirm", 2, "for example: --confirm 30s"),
    ("observe --from 8080 --for", 2, "for example: --for 30s"),
    (
        "predict Qwen/Qwen3-4B-AWQ --format q8_0 --hardware thor",
        2,
        "leave the format out, or name qwen3-4b, which leaves it open",
    ),
    (
        "predict qwen3-4b-awq --engine llama.cpp --hardware thor",
        2,
        "name qwen3-4b instead, which leaves the format open; the nearest is format q4_k_m",
    ),
    ("predict yolov8n", 2, "it is an object detector: export it to .onnx"),
    ("recommend resnet50", 2, "it is an image classifier: export it to .onnx"),
    ("predict whisper-large-v3", 2, "it is a speech recognition model: rooflined predicts language models"),
    ("predict qwen3-4b@q4_k_m", 69, "no daemon answers"),
    ("predict qwen3-4b/q4_k_m", 2, "did you mean qwen3-4b --format q4_k_m?"),
    ("predict gpt-4o", 2, "not published"),
    ("predict bge-m3 --task embed", 2, "save its config.json and give its path"),
    ("predict matmul 64 4096 4096", 2, "a matrix product is gemm M N K"),
    // Files.
    ("predict Qwen3-4B-Q4_K_M.gguf", 2, "a known model needs no file: qwen3-4b --format q4_k_m"),
    ("predict missing.gguf", 2, "there is no file"),
    ("predict missing.onnx", 2, "there is no file missing.onnx\nhint: check the path, and who may read it\n"),
    ("models inspect missing.onnx", 2, "there is no file missing.onnx"),
    ("predict missing-00001-of-00002.gguf", 2, "check the path"),
    ("predict yolo11s.pt", 2, "check the path; export it to .onnx with torch.onnx.export"),
    ("models inspect picture.gguf", 2, "picture.gguf is a picture"),
    ("predict picture.gguf --hardware gb10", 2, "picture.gguf is a picture"),
    ("recommend empty.gguf --hardware gb10", 2, "empty.gguf is empty"),
    ("predict pointer.gguf --hardware gb10", 2, "git lfs pull"),
    ("predict zeros.gguf --hardware gb10", 2, "begins with zeros"),
    ("quant-error zeros.safetensors", 2, "begins with zeros"),
    ("predict login.gguf --hardware gb10", 2, "is a web page"),
    ("predict refused.gguf --hardware gb10", 2, "is a text file\nhint: open it: a refused download"),
    ("predict page.onnx --hardware gb10", 2, "is a web page"),
    ("predict model.engine --hardware gb10", 2, "is a TensorRT engine"),
    (
        "predict model.pt --hardware gb10",
        2,
        "is a PyTorch file, which is not read\nhint: for a language model give",
    ),
    ("predict pytorch_model.bin --hardware gb10", 2, "is a PyTorch file"),
    ("predict tokenizer.json --hardware gb10", 2, "give config.json"),
    ("predict nothing.json --hardware gb10", 2, "it has no model_type"),
    ("predict adapter.json --hardware gb10", 2, "give the model that it was trained for"),
    ("models inspect vision.json", 2, "export it to .onnx"),
    ("predict whisper.json --hardware gb10", 2, "is a speech recognition model"),
    ("models inspect whisper.json", 2, "is a speech recognition model"),
    ("recommend model.engine --min-fps 30", 2, "model.engine is a TensorRT engine"),
    ("recommend missing.engine --min-fps 30", 2, "there is no file"),
    ("predict model.pt --size 640x640", 2, "model.pt is a PyTorch file"),
    ("run -- llama-server -m missing.gguf", 2, "there is no file"),
    ("quant-error qwen3-4b", 2, "give the path of its .gguf or .safetensors file"),
    ("config check missing.toml", 2, "there is no file missing.toml"),
    ("config show missing.toml", 2, "there is no file missing.toml"),
    ("config show strings.toml", 1, "`control.enabled` is \"yes\", expected true or false"),
    ("config show strings.toml", 1, "expected one of auto, cpu, gpu"),
    // What is meant, where a part of a name, several values or a limit of another kind is given.
    (
        "recommend qwen3-4b --hardware orin",
        2,
        "did you mean jetson-orin-nano-8gb-super, jetson-agx-orin-64gb",
    ),
    ("recommend qwen3-4b --hardware jetson", 2, "did you mean jetson-orin-nano-8gb-super"),
    (
        "recommend qwen3-4b --hardware tpu",
        2,
        "which holds NVIDIA GPUs and boards, and CPUs\nhint: rooflinectl hardware list",
    ),
    ("recommend qwen3-4b --hardware 2x4090", 2, "one accelerator is predicted, not several together"),
    ("recommend qwen3-4b --hardware h100x8", 2, "not several together\nhint: "),
    ("recommend llama --hardware orin-nano", 2, "did you mean llama-3.1-8b, llama-3.2-3b"),
    ("recommend qwen3-4b --hardware orin-nano --mode all", 2, "write --modes all"),
    ("recommend qwen3-4b --hardware orin-nano --modes 15W 25W", 2, "write --modes 15W,25W"),
    ("recommend qwen3-4b --hardware orin-nano --modes 15W;25W", 2, "write --modes 15W,25W"),
    ("recommend qwen3-4b --hardware orin-nano --formats q4_k_m q8_0", 2, "write --formats q4_k_m,q8_0"),
    ("recommend qwen3-4b --max-time-per-token 10t/s", 2, "a rate is --min-tokens-per-s 10"),
    ("recommend qwen3-4b --min-tokens-per-s 50ms", 2, "a time is --max-time-per-token 50ms"),
    ("recommend qwen3-4b --context max", 2, "rooflinectl models show MODEL has the most"),
    ("recommend qwen3-4b --prompt hello", 2, "the length of the prompt in tokens"),
    (
        "recommend qwen3-4b --hardware gb10 --power-limit 20W --modes all",
        2,
        "--power-limit and --modes are both given",
    ),
    (
        "recommend qwen3-4b --engine vllm --engines all",
        2,
        "--engine and --engines are both given\nhint: leave one",
    ),
    ("recommend qwen3-4b --max-power 15W --max-power 20W", 2, "--max-power is given twice"),
    ("recommend qwen3-4b --dry-run", 2, "asking changes nothing"),
    (
        "recommend nonexistent-model-7b",
        2,
        "\"nonexistent-model-7b\" is neither an operation nor a model\nhint: ",
    ),
    ("recommend https://example.com/model.gguf", 2, "download the file, and give its path"),
    ("recommend qwen3-4b --hardware rtx-4090 --engine tensorrt-edge-llm", 2, "on cards use tensorrt-llm"),
    ("recommend notes.md --hardware gb10", 2, "notes.md is a text file\nhint: give a .gguf"),
    ("recommend Modelfile --hardware gb10", 2, "Modelfile of Ollama\nhint: name what follows FROM"),
    (
        "predict qwen3-4b --hardware gb10 --size 640x640",
        2,
        "give the network's .onnx file, or leave the option out",
    ),
    ("predict attention --heads 32 --kv-heads 5 --context 1k", 2, "a number that divides 32"),
    ("predict qwen3-4b --engine-version", 2, "for example: --engine-version b10809"),
    ("status --host nano.local", 2, "did you mean --ssh?"),
    ("status --socket http://localhost:8000", 69, "a socket is a file of this machine"),
    ("watch -i 1", 2, "did you mean --interval?"),
    ("mode set 15W --force", 2, "the old mode comes back unless you run rooflinectl mode confirm"),
    ("mode list --conf text.onnx", 2, "describes no power mode\nhint: on a Jetson"),
    ("mode confirm abc", 2, "the number is the one that rooflinectl mode set printed"),
    ("holds --release 1", 2, "stop that command"),
    ("observations forget all", 2, "--all for everybody's"),
    ("calibrate --mode 15W", 2, "rooflinectl mode set 15W, then rooflinectl calibrate"),
    ("formats --hardware gb10", 2, "rooflinectl sweep MODEL --hardware gb10 --formats all"),
    ("roofline --hardware gb10 --png x.png", 2, "--svg FILE"),
    ("run", 2, "rooflinectl run -- llama-server -m MODEL.gguf"),
    // Commands whose words or values are others than those of man, a shell or a server.
    ("man recomend", 2, "did you mean rooflinectl man recommend?"),
    ("man ./pages", 2, "rooflinectl man --dir DIR"),
    ("completions", 2, "bash, zsh, fish, elvish or powershell"),
    ("calibrate --wait 10", 2, "--wait takes no time"),
    ("calibrate now", 2, "leave it out: rooflinectl calibrate"),
    ("watch orin-nano", 2, "predict, recommend and sweep take --hardware"),
    ("dashboard 8080", 2, "did you mean --listen 8080?"),
    ("observations forget", 2, "or --own for all of yours"),
    ("compare qwen3-4b q4_k_m", 2, "rooflinectl predict qwen3-4b --format q4_k_m"),
    ("compare qwen3-4b", 2, "rooflinectl predict qwen3-4b"),
    ("compare model.gguf --formats int8", 2, "--formats is for operations"),
    ("compare gemv 64 64 --contexts 1024", 2, "--contexts is for model files"),
    ("predict vllm", 2, "it is an inference engine: name a model first"),
    ("explain", 2, "rooflinectl explain --port 8080"),
    ("explain 8080", 2, "a port follows an option\nhint: rooflinectl explain --port 8080"),
    ("observe 8080", 2, "a port follows an option\nhint: rooflinectl observe --from 8080"),
    ("explain http://127.0.0.1:8080", 2, "rooflinectl explain --port http://127.0.0.1:8080"),
    ("roofline --hardware gb10 --svg missing/x.svg", 1, "hint: name a file in a directory"),
    ("mode list --conf missing.conf", 2, "there is no such file"),
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
        "4096 has no room for --prompt 8000\nhint: give --context-tokens 8000",
    ),
    (
        "predict qwen3-4b --hardware gb10 --phase serve --prompt 4000 --output-tokens 100 --context 4096",
        2,
        "give --context-tokens 4100 or more",
    ),
    // Part numbers of boards, and options and units that readers of these messages tried.
    ("predict qwen3-4b --hardware p3768-0000", 2, "carrier board or a kit\nhint: name the module on it"),
    (
        "predict qwen3-4b --hardware p3767-0005",
        2,
        "name it: jetson-orin-nano-8gb or jetson-orin-nano-8gb-super",
    ),
    ("hardware show p3767-0000", 2, "name it: jetson-orin-nx-16gb or jetson-orin-nx-16gb-super"),
    ("recommend qwen3-4b --hardware p3768-0000+p3767-0005", 2, "name it: jetson-orin-nano-8gb or"),
    (
        "predict qwen3-4b --hardware p3701-0000",
        2,
        "name it: jetson-agx-orin-devkit-32gb or jetson-agx-orin-64gb",
    ),
    ("predict qwen3-4b --hardware P3834-0008", 2, "name it: jetson-agx-thor-t5000"),
    ("predict qwen3-4b --hardware 699-13767-0003-300", 2, "name it: jetson-orin-nano-8gb or"),
    ("predict qwen3-4b --hardware 900-13767-0030-000", 2, "name it: jetson-orin-nano-8gb or"),
    (
        "predict qwen3-4b --hardware tegra234",
        2,
        "the chip of several modules\nhint: did you mean jetson-orin",
    ),
    ("predict qwen3-4b --hardware jetson-tx2", 2, "the board is older than what it holds"),
    ("predict qwen3-4b --hardware reComputer-J4012", 2, "name the module or GPU in it"),
    ("predict qwen3-30b-a3b --hardware rtx-4090 -ot exps=CPU", 2, "experts stay on the CPU with --n-cpu-moe"),
    ("predict -hf unsloth/Qwen3-4B-GGUF:Q4_K_M", 2, "rooflinectl predict unsloth/Qwen3-4B-GGUF:Q4_K_M"),
    (
        "predict qwen3-4b --hardware orin-nano -pg 512,128",
        2,
        "--phase serve --prompt 512 --output-tokens 128",
    ),
    ("serve", 2, "to serve a model: rooflinectl run -- llama-server -m MODEL.gguf"),
    ("nvpmodel -m 2", 2, "rooflinectl mode set 2 enters a mode"),
    ("jetson_clocks", 2, "that is another program: sudo jetson_clocks"),
    ("nvidia-smi", 2, "rooflinectl status, or rooflinectl watch"),
    ("mode set --pl 200", 2, "a power limit is set with nvidia-smi -pl WATTS"),
    ("predict text.onnx --hardware orin-nano --saveEngine=x.engine", 2, "no engine is built"),
    ("predict --loadEngine=model.engine", 2, "name the .onnx file that it was built from"),
    ("predict text.onnx --hardware orin-nano --shapes=input:1x3x640x640", 2, "--size 640x640"),
    ("predict text.onnx --hardware orin-nano --best", 2, "--precision int8 or --precision fp16"),
    ("predict text.onnx --hardware orin-nano --int8 --fp16", 2, "write --precision int8"),
    ("predict text.onnx --hardware orin-nano --iterations=100", 2, "nothing is run"),
    ("trtexec --onnx=text.onnx --fp16", 2, "rooflinectl predict FILE.onnx --precision fp16"),
    ("predict qwen3-4b --hardware gb10 --enable-prefix-caching", 2, "--cached-tokens 1024"),
    ("recommend qwen3-4b --max-power 15 watts", 2, "its unit without a space: 15W"),
    ("recommend qwen3-4b --min-tokens-per-s 20 tok/s", 2, "the number of a rate without a unit"),
    ("recommend qwen3-4b --hardware orin-nano --max-power 15000", 2, "15000 alone is 15000 W: write 15000mW"),
    ("recommend qwen3-4b --hardware orin-nano --max-time-per-token 50MS", 2, "write 50ms"),
    ("recommend qwen3-4b --hardware orin-nano --max-temp 70C", 2, "temperature is not predicted"),
    ("predict requests.jsonl --hardware orin-nano", 2, "rooflinectl predict --requests FILE.jsonl"),
    ("models inspect requests.jsonl", 2, "is a file of requests"),
    ("analyze qwen3-4b --hardware orin-nano --measured 20", 2, "did you mean --tokens-per-s?"),
    ("predict qwen3-4b --output-format json", 2, "the format of the output is -o json"),
    ("bench qwen3-4b", 2, "rooflinectl predict MODEL needs no file"),
    ("power 15W", 2, "rooflinectl mode set 15W"),
    ("set mode 15W", 2, "rooflinectl mode set 15W"),
    ("get mode", 2, "rooflinectl mode get"),
    ("predict qwen3-4b --hardware orin-nano --port 8080", 2, "rooflinectl explain --port 8080"),
    ("models show qwen3-4b --hardware orin-nano", 2, "a model is the same everywhere"),
    ("models list --all", 2, "all are listed"),
    ("hardware show orin-nano --mode 15W", 2, "all modes are shown"),
    ("explain why is it slow", 2, "rooflinectl explain MODEL --tokens-per-s 12"),
    ("calibrate -y", 2, "nothing is asked"),
    ("config check -f strings.toml", 2, "rooflinectl config check strings.toml"),
    ("--ssh nvidia@nano.local:22 status", 2, "write --ssh ssh://nvidia@nano.local:22"),
    (
        "sweep --hardware orin-nano --models qwen3-4b,qwen3-8b",
        2,
        "sweep --hardware orin-nano qwen3-4b,qwen3-8b",
    ),
    ("run --port 8080 -- llama-server -m model.gguf", 2, "it is an option of the server"),
    ("run -m model.gguf", 2, "rooflinectl run -- llama-server -m model.gguf"),
    // A network where models alone are taken, a model given twice, weights on the CPU of a board with one memory.
    ("analyze relu.onnx --time 12ms", 2, "rooflinectl predict relu.onnx prints its latency"),
    ("explain relu.onnx --time 12ms", 2, "rooflinectl observe relu.onnx --time 12ms"),
    ("sweep relu.onnx --hardware orin-nano", 2, "rooflinectl recommend relu.onnx --modes all"),
    ("predict qwen3-4b --model qwen3-8b", 2, "for both: rooflinectl sweep qwen3-4b,qwen3-8b"),
    ("--ssh nano.local", 2, "name a command to run there: rooflinectl --ssh nano.local status"),
    ("predict qwen3-4b --hardware orin-nano -ot exps=CPU", 2, "CPU and GPU share one memory there"),
    ("predict qwen3-4b --hardware orin-nano --cpu-offload-gb 4", 2, "CPU and GPU share one memory there"),
    // Options and words that no table has, and those of one command, shell or phase.
    (
        "predict qwen3-4b --hardware gb10 --served-model-name x",
        2,
        "an engine's own; rooflinectl predict --help",
    ),
    ("observations list --limit 5", 2, "rooflinectl observations list --help shows every option"),
    ("predict relu.onnx --hardware orin-nano --exportTimes=t.json", 2, "reads the log of trtexec"),
    ("predict qwen3-30b-a3b --hardware rtx-4090 --n-cpu-moe", 2, "for example: --n-cpu-moe 24"),
    ("completions sh", 2, "rooflinectl completions bash"),
    ("measure bandwidth", 2, "rooflinectl calibrate measures it"),
    ("predict qwen3-4b --phase generation", 2, "did you mean decode?"),
    ("roofline --model qwen3-4b", 2, "rooflinectl predict qwen3-4b"),
    ("models inspect https://example.com/x.gguf", 2, "download the file, and give its path"),
    ("models show missing.gguf", 2, "rooflinectl models inspect FILE"),
    ("hold --for 10m -- sleep 1", 2, "a hold lasts as long as its command"),
    ("sudo rooflinectl status", 2, "type it in front: sudo rooflinectl status"),
    // Names of forms, of what is left out and of files that nothing reads; a unit after a space; a word that belongs to an option.
    ("recommend qwen3-4b --hardware orin-nano -o yaml", 2, "did you mean json?"),
    ("recommend qwen3-4b --hardware orin-nano --no-vllm", 2, "--engines llama.cpp,vllm"),
    ("recommend qwen3-4b --hardware orin-nano --save plan.json", 2, "-o json > answer.json"),
    ("hold --max-power 15 W -- true", 2, "without a space: 15W"),
    ("predict model.tflite", 2, "convert it to .onnx"),
    ("models show qwen3-4b q4_k_m", 2, "write --format q4_k_m"),
    ("hardware check missing.toml", 2, "there is no file missing.toml"),
    ("recommend qwen3-4b --hardware orin-nano --max-watt 15", 2, "did you mean --max-power?"),
    ("recommend qwen3-4b --hardware orin-nano --power-mode all", 2, "did you mean --modes?"),
    ("freq 612MHz", 2, "rooflinectl mode set MODE enters a mode"),
    ("mode set -1", 2, "no number here is negative: write 1"),
    ("sweep qwen3-4b --batches 1..3..8", 2, "a range with two ends, such as 1..8"),
    ("bundle --out board.txt", 2, "did you mean --file?"),
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

/// Words that end a command in a sentence.
const ENDS: [&str; 24] = [
    "and", "answers", "belongs", "can", "compares", "enters", "has", "is", "limits", "lists", "measures",
    "needs", "or", "predicts", "printed", "prints", "reads", "runs", "says", "shows", "starts", "takes",
    "there", "with",
];

/// What the words in capitals stand for.
const STANDS_FOR: [(&str, &str); 11] = [
    ("MODEL", "qwen3-4b"),
    ("FILE", "missing.gguf"),
    ("BOARD", "orin-nano"),
    ("ENGINE", "llama.cpp"),
    ("MODE", "15W"),
    ("PORT", "8080"),
    ("WORD", "orin"),
    ("COMMAND", "true"),
    ("NUMBER", "1"),
    ("NAME", "qwen3-4b"),
    ("DIR", "pages"),
];

/// Commands that stay, or ask another machine: their help is read with the same options.
const STAY: [&str; 4] = ["demo", "dashboard", "mcp", "--ssh"];

/// The commands that a hint or a tip names, with values for the words in capitals.
fn suggested(errors: &str) -> impl Iterator<Item = Vec<String>> {
    let hints = errors
        .lines()
        .filter_map(|line| line.trim().strip_prefix("hint: ").or_else(|| line.trim().strip_prefix("tip: ")));
    hints.flat_map(|hint| hint.split("rooflinectl ").skip(1)).map(|text| {
        let mut words = Vec::new();
        for word in text.split(' ') {
            let bare = word.trim_end_matches([',', ';', ':', '?']);
            if ENDS.contains(&bare) {
                break;
            }
            words.push(
                STANDS_FOR.iter().fold(bare.to_owned(), |word, (name, value)| word.replace(name, value)),
            );
            if bare != word {
                break;
            }
        }
        words
    })
}

#[test]
fn wrong_command_lines_of_new_users_say_what_to_type_next() {
    let directory = tempfile::tempdir().unwrap();
    for (name, start) in FILES {
        fs::write(directory.path().join(name), start).unwrap();
    }
    let run =
        |words: &[&str]| ctl(Path::new("/nonexistent"), words).current_dir(&directory).output().unwrap();
    let mut wrong = Vec::new();
    let mut commands = BTreeMap::new();
    for &(line, code, said) in &LINES {
        let words: Vec<&str> = line.split(' ').collect();
        let output = run(&words);
        let errors = stderr(&output);
        commands.extend(suggested(&errors).map(|words| (words, line)));
        let ok = output.status.code() == Some(code) && errors.contains(said) && stdout(&output).is_empty();
        if !ok || NEVER.iter().any(|word| errors.contains(word)) {
            wrong.push(format!("{line}\n  wanted {code}, {said:?}\n  {:?}, {errors}", output.status.code()));
        }
    }
    // What is suggested is accepted. Its file need not be there, others of these lines say what a file of this table holds, and the
    // name of a command alone is one.
    let is_file = |word: &&str| directory.path().join(word).exists();
    for (words, line) in commands {
        let stays = STAY.iter().any(|stays| words.iter().any(|word| word == stays));
        let words: Vec<&str> = words.iter().map(String::as_str).chain(stays.then_some("--help")).collect();
        let output = run(&words);
        let is_of_a_file = words.iter().any(is_file)
            || ["there is no file", "cannot be read"].iter().any(|said| stderr(&output).contains(said));
        let is_refused = output.status.code() == Some(2) && !is_of_a_file;
        if is_refused && run(&[&["help"], words.as_slice()].concat()).status.code() != Some(0) {
            wrong.push(format!("{line}\n  suggests {}, which is refused", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), LINES.len(), wrong.join("\n"));
}

#[test]
fn a_directory_without_a_model_names_what_it_holds_instead() {
    for (name, said) in [
        ("pytorch_model.bin", "\"pytorch_model.bin\" is a PyTorch file"),
        ("model.engine", "\"model.engine\" is a TensorRT engine"),
        ("model.onnx", "take that file itself"),
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
            assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
            assert!(errors.contains("holds no .gguf") && errors.contains(said), "{words:?}: {errors}");
        }
    }
}
