//! What other programs call things, and what they are called here: tables that answers to wrong command lines draw from. Several
//! names of one thing are written with spaces between.

/// Whether `name` is one of `names`.
pub fn lists(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// What other programs call a command below `above`, and what to type instead.
pub const COMMANDS: [(&str, &str, &str); 16] = [
    ("rooflinectl", "serve start daemon", "the daemon has it: rooflined serve"),
    ("rooflinectl", "version", "rooflinectl --version"),
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
        "rooflinectl models list, rooflinectl hardware list, rooflinectl formats or rooflinectl mode list",
    ),
    (
        "hardware",
        "add new import",
        "rooflinectl hardware check FILE, then copy the file to /etc/rooflined/hardware and restart the daemon",
    ),
    ("hardware", "info get describe view", "rooflinectl hardware show KEY"),
    ("models", "info get describe view", "rooflinectl models show KEY"),
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

/// Options of other programs that one command is given, without their hyphens, and what to type instead.
pub const HABITS: [(&str, &str, &str); 6] = [
    ("set", "m mode", "name the mode without an option: rooflinectl mode set 15W"),
    ("mode", "q query", "rooflinectl mode get"),
    ("mode", "m p", "rooflinectl mode set 15W enters a mode, rooflinectl mode list shows all"),
    ("demo", "hardware board", "rooflinectl demo --simulate BOARD"),
    ("doctor", "fix repair", "it changes nothing: run what its hints say"),
    ("mcp", "port listen host", "it speaks over standard input and output, so it has no port"),
];

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
