//! What other programs call things, and what they are called here: tables that answers to wrong command lines draw from. Several
//! names of one thing are written with spaces between.

/// Whether `name` is one of `names`.
pub fn lists(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// What other programs call a command below `above`, and what to type instead.
pub const COMMANDS: [(&str, &str, &str); 41] = [
    (
        "rooflinectl",
        "get describe inspect",
        "rooflinectl models show MODEL, rooflinectl models inspect FILE or rooflinectl hardware show KEY",
    ),
    (
        "rooflinectl",
        "apply create edit set",
        "edit /etc/rooflined/rooflined.toml, then rooflinectl config check",
    ),
    (
        "rooflinectl",
        "exec launch",
        "rooflinectl hold --max-power 15W -- COMMAND, or rooflinectl run -- llama-server -m FILE",
    ),
    ("models", "rm remove delete del prune", "no model is stored here: delete the file itself"),
    ("models", "ls all", "rooflinectl models list"),
    ("hardware", "ls all", "rooflinectl hardware list"),
    ("mode", "ls all modes", "rooflinectl mode list"),
    (
        "rooflinectl",
        "serve start daemon up",
        "the daemon has it: rooflined serve, or systemctl start rooflined",
    ),
    ("rooflinectl", "stop down kill", "systemctl stop rooflined"),
    ("rooflinectl", "restart reload", "systemctl reload rooflined, or systemctl restart rooflined"),
    ("rooflinectl", "enable disable", "systemctl enable --now rooflined"),
    ("rooflinectl", "log logs journal events", "rooflinectl watch --events, or journalctl -u rooflined"),
    ("rooflinectl", "version", "rooflinectl --version"),
    ("rooflinectl", "ps", "rooflinectl servers, or rooflinectl holds"),
    (
        "rooflinectl",
        "pull download",
        "models are not fetched: rooflinectl recommend MODEL answers without the file",
    ),
    (
        "rooflinectl",
        "install uninstall update upgrade",
        "the package does that: apt-get install ./rooflined_*.deb, or pip install ./rooflined-*.whl",
    ),
    (
        "rooflinectl",
        "login logout auth",
        "there is no account: the daemon is asked over a socket of this machine",
    ),
    (
        "rooflinectl",
        "init setup configure",
        "edit /etc/rooflined/rooflined.toml, then rooflinectl config check",
    ),
    ("rooflinectl", "nvpmodel jetson_clocks clocks power", "rooflinectl mode list, or rooflinectl status"),
    ("rooflinectl", "temp temperature smi dmon jtop tegrastats", "rooflinectl status, or rooflinectl watch"),
    ("rooflinectl", "test check verify", "rooflinectl doctor, or rooflinectl config check"),
    ("rooflinectl", "estimate fit vram memory", "rooflinectl predict MODEL, or rooflinectl recommend MODEL"),
    ("rooflinectl", "optimize optimise tune advise suggest plan choose", "rooflinectl recommend MODEL"),
    (
        "rooflinectl",
        "chat generate infer",
        "models are not run here; to predict one: rooflinectl predict MODEL",
    ),
    ("rooflinectl", "profile trace", "rooflinectl explain --port 8080, or rooflinectl compare MODEL"),
    (
        "rooflinectl",
        "bench benchmark",
        "rooflinectl measure, or rooflinectl compare for predicted vs. measured",
    ),
    ("rooflinectl", "top monitor stats", "rooflinectl watch"),
    ("rooflinectl", "info device gpu", "rooflinectl board"),
    (
        "rooflinectl",
        "list ls show",
        "rooflinectl models list, hardware list, mode list or formats; to see one: rooflinectl models show MODEL",
    ),
    (
        "hardware",
        "add new import",
        "rooflinectl hardware check FILE, then copy the file to /etc/rooflined/hardware and restart the daemon",
    ),
    ("hardware", "info get describe view", "rooflinectl hardware show KEY"),
    ("hardware", "search find grep filter", "rooflinectl hardware list WORD"),
    ("models", "info get describe view", "rooflinectl models show KEY"),
    ("models", "search find grep filter", "rooflinectl models list WORD"),
    (
        "models",
        "pull download add install import",
        "models are not fetched: name one of rooflinectl models list, or give the path of a file",
    ),
    ("config", "set edit", "edit /etc/rooflined/rooflined.toml, then rooflinectl config check"),
    ("mode", "enter switch use activate", "rooflinectl mode set MODE"),
    ("mode", "status current show", "rooflinectl mode get"),
    ("config", "print get cat dump", "rooflinectl config show"),
    ("config", "validate test verify", "rooflinectl config check"),
    ("observations", "delete remove clear rm", "rooflinectl observations forget"),
];

/// What is typed where a command has nothing to work on, or another number of words than it takes.
pub const MISSING: [(&str, &str); 12] = [
    ("observations forget", "for example: rooflinectl observations forget 12, or --own for all of yours"),
    ("completions", "name a shell: bash, zsh, fish, elvish or powershell"),
    (
        "observe",
        "to watch a server: rooflinectl observe --from 8080; to report a rate: rooflinectl observe MODEL --engine ENGINE --tokens-per-s 40",
    ),
    ("hardware show", "rooflinectl hardware list shows every key"),
    ("analyze", "give what was measured: --time 1.5ms or --tokens-per-s 40"),
    (
        "models inspect",
        "give the path of a .gguf, .safetensors or .onnx file, a config.json, or their directory",
    ),
    ("quant-error", "give the path of a .gguf or .safetensors file of fp32, fp16 or bf16 weights"),
    ("mode set", "rooflinectl mode list shows the modes"),
    ("models show", "rooflinectl models list shows every key"),
    ("mode confirm", "the number is the one that rooflinectl mode set printed"),
    ("hold", "for example: rooflinectl hold --max-power 15W -- COMMAND"),
    ("tiling", "the sizes are M N K, with spaces: rooflinectl tiling 64 4096 4096"),
];

/// Words that a command does not take, and what to do instead; the command by its name without the program.
pub const WORDS: [(&str, &str, &str); 3] = [
    (
        "holds",
        "release stop end rm remove delete kill cancel drop",
        "a hold ends with the command that it was taken for: stop that command",
    ),
    ("servers", "add watch start", "to watch a server: rooflinectl observe --from 8080"),
    ("calibrate", "status show", "rooflinectl roofline has the ceilings with their age"),
];

/// Examples of values, by options without their hyphens, or else by the name of the value in help.
pub const VALUES: [(&str, &str); 19] = [
    ("hardware", "orin-nano; rooflinectl hardware list shows all"),
    ("mode min-mode", "15W; rooflinectl mode list shows all"),
    ("modes", "15W,25W, or all"),
    ("format formats draft-format", "q4_k_m; rooflinectl formats shows all"),
    ("kv-format kv-formats", "q8_0; rooflinectl formats shows all"),
    ("engine engines", "llama.cpp"),
    ("model draft-model", "qwen3-4b; rooflinectl models list shows all"),
    ("port from", "8080"),
    ("listen", "8000"),
    ("size", "640x640"),
    ("batch batches BATCH BATCHES RANGE", "8"),
    ("contexts N CONTEXTS", "4096"),
    ("COUNTS", "1,2,4"),
    ("TIME", "50ms"),
    ("POWER", "15W"),
    ("SIZE", "8GB"),
    ("RATE MEAN", "20"),
    ("RATIO", "5%"),
    ("FILE DIR PATH", "./NAME"),
];

/// Options of other programs that one command is given, without their hyphens, and what to type instead.
pub const HABITS: [(&str, &str, &str); 16] = [
    ("completions", "shell", "name the shell without an option: rooflinectl completions bash"),
    (
        "calibrate",
        "gpu cpu device",
        "set accelerator under [daemon] in /etc/rooflined/rooflined.toml, and restart the daemon",
    ),
    ("calibrate", "all", "leave it out: everything is measured unless --quick is given"),
    ("dashboard", "open browser o", "open the address that it prints"),
    (
        "dashboard",
        "host address addr bind b ip",
        "--listen takes a loopback address; from another machine: ssh -L 8000:127.0.0.1:8000 HOST",
    ),
    (
        "recommend",
        "top limit max-results k",
        "leave it out: the answer lists the choice and its alternatives; -o json has every field",
    ),
    ("set", "m mode", "name the mode without an option: rooflinectl mode set 15W"),
    ("mode", "q query", "rooflinectl mode get"),
    ("mode", "m p", "rooflinectl mode set 15W enters a mode, rooflinectl mode list shows all"),
    ("demo", "hardware board", "rooflinectl demo --simulate BOARD"),
    ("doctor", "fix repair", "it changes nothing: run what its hints say"),
    ("mcp", "port listen host", "it speaks over standard input and output, so it has no port"),
    (
        "servers",
        "port from p url",
        "it lists what was watched in the last hour; to watch a server: rooflinectl observe --from 8080, to ask why it is slow: rooflinectl explain --port 8080",
    ),
    (
        "metrics",
        "port listen p addr address",
        "it prints them once; for Prometheus write a file from a timer: rooflinectl metrics --textfile FILE",
    ),
    ("status", "n interval watch w l loop loop-ms lms f follow", "to see it change: rooflinectl watch"),
    ("status", "q query query-gpu i id", "rooflinectl status --all, or -o json for single values"),
];

/// Programs that run an inference engine, and the engine.
pub const RUNNERS: [(&str, &str); 2] =
    [("ollama lmstudio lm-studio koboldcpp llamafile", "llama.cpp"), ("transformers huggingface", "torch")];

/// What other programs call an option, and our options for it: the first that the command has is meant.
pub const OPTIONS: [(&str, &str); 23] = [
    ("quant quantization quantisation dtype weights precision q load-format", "format formats precision"),
    ("gpu device board machine hw target on", "hardware"),
    ("host remote", "ssh"),
    ("power watts max-watts tdp power-budget budget pl", "max-power power-limit"),
    ("power-mode nvpmodel power-modes", "mode modes"),
    (
        "c ctx ctx-size n-ctx num-ctx context-length context-size max-model-len max-seq-len",
        "context-tokens contexts",
    ),
    ("batch-size bs parallel concurrency max-num-seqs max-batch-size np batch batches", "batch batches"),
    ("t n-threads num-threads threads-batch tb", "threads"),
    ("ub ubatch ubatch-size max-num-batched-tokens chunk-size", "chunk-tokens"),
    ("latency max-latency tpot itl", "max-time-per-token"),
    ("ttft", "max-time-to-first-token"),
    ("throughput tps tokens-per-second min-tps min-throughput", "min-tokens-per-s tokens-per-s"),
    ("memory vram max-memory max-vram memory-available available-memory free-memory", "max-memory-bytes"),
    ("p prompt-tokens prompt-length input-len isl input-tokens", "prompt"),
    ("n output-len osl n-predict max-tokens new-tokens num-predict", "output-tokens"),
    ("kv-cache-dtype cache-type-k cache-type-v ctk ctv kv-cache kv-quant kv-dtype", "kv-format kv-formats"),
    ("ngl n-gpu-layers num-gpu", "gpu-layers"),
    ("ncmoe cpu-moe cmoe", "n-cpu-moe"),
    ("md model-draft speculative-model", "draft-model"),
    ("port listen bind address", "port listen"),
    ("n every delay", "interval"),
    ("fast", "quick"),
    ("goal optimize optimise for", "objective"),
];

/// Options of inference engines that have none here, and what to do about each.
pub const LEFT_OUT: [(&str, &str); 8] = [
    (
        "b n-batch",
        "--batch counts sequences that run at once; llama.cpp's -ub, tokens of a prompt, is --chunk-tokens",
    ),
    (
        "tp tensor-parallel-size pp pipeline-parallel-size dp data-parallel-size ts tensor-split sm split-mode mg main-gpu num-gpus gpus",
        "leave it out: one accelerator is predicted, not several together",
    ),
    (
        "clock gpu-clock freq frequency lgc",
        "a power mode sets the clock: --mode 15W on a Jetson, --mode lgc-2000 on a card",
    ),
    (
        "gpu-memory-utilization mem-fraction-static free-gpu-memory-fraction",
        "leave it out: the answer says what the model needs; rooflinectl recommend --max-memory-bytes 8GB limits it",
    ),
    ("fa flash-attn flash-attention", "leave it out: rooflined assumes the engine's own default"),
    (
        "temp temperature top-k top-p min-p seed s repeat-penalty",
        "leave it out: how a token is chosen does not change the speed",
    ),
    (
        "mlock no-mmap mmap trust-remote-code enforce-eager swap-space numa",
        "leave it out: it is not part of a prediction",
    ),
    ("i interactive cnv f file hf hfr hff", "leave it out: nothing is run; name the model or its file"),
];

/// Formats by names that other programs give them, letters and digits alone, and what was probably meant.
pub const FORMATS: [(&str, &str); 18] = [
    ("4bit 4bits q4 w4 4", "q4_k_m (GGUF), awq_int4 or int4_g128"),
    ("8bit 8bits q8 w8 8", "q8_0 (GGUF), int8 or fp8_e4m3"),
    ("5bit q5", "q5_k_m"),
    ("3bit q3", "q3_k_m"),
    ("2bit q2", "q2_k"),
    ("w4a16 int4weightonly int4wo marlin gptqmarlin awqmarlin", "awq_int4 or gptq_int4"),
    ("w8a8 smoothquant llmint8", "int8"),
    ("float16 half f16 16bit", "fp16"),
    ("bfloat16 b16", "bf16"),
    ("float32 float full f32 32bit", "fp32"),
    ("float8 f8 fp8 e4m3 w8a8fp8", "fp8_e4m3 or fp8_e5m2"),
    ("fp4 float4 f4", "nvfp4 or mxfp4"),
    ("bnb bitsandbytes bnb4bit qlora", "nf4"),
    ("q4044 q4048 q4088", "q4_0, which llama.cpp repacks so when it loads the file"),
    ("q2kxl q2kl", "q2_k"),
    ("q3kxl", "q3_k_l"),
    ("q4kxl q4kl", "q4_k_m"),
    ("q5kxl q5kl q6kxl q6kl q8kxl", "q5_k_m, q6_k or q8_0"),
];

/// Operations by names that other programs give them, and what to give.
pub const OPERATIONS: [(&str, &str); 4] = [
    ("matmul mm bmm linear sgemm hgemm", "a matrix product is gemm M N K"),
    ("matvec mv sgemv", "a product with one column is gemv N K"),
    ("attn sdpa flashattention mha gqa", "give attention with its sizes"),
    ("conv conv2d convolution", "convolutions are predicted as part of a network: give its .onnx file"),
];

/// Units that stand alone where a space was typed before them.
pub const UNITS: [&str; 11] = ["W", "w", "GB", "GiB", "MB", "ms", "us", "s", "%", "k", "min"];
