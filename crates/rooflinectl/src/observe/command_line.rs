//! What an inference server was started with: its command line, and the environment that it reads too.

use std::collections::BTreeMap;

/// Which program a command line starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    LlamaServer,
    Ollama,
    Vllm,
    Mlc,
    Trtllm,
    /// Anything else.
    Other,
}

/// The settings of a llama-server that its HTTP answers do not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub model: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    /// Of all slots together.
    pub context_tokens: Option<u64>,
    pub slots: Option<u64>,
    pub threads: Option<u64>,
    /// `auto`, `all` or a number of layers.
    pub gpu_layers: Option<String>,
    pub cache_keys: Option<String>,
    pub cache_values: Option<String>,
    /// Tokens of a prompt in one pass.
    pub chunk_tokens: Option<u64>,
    /// Layers whose experts stay on the CPU.
    pub cpu_moe_layers: Option<u64>,
    pub is_without_flash_attention: bool,
    /// Options under which its time is not that of the model on this accelerator.
    pub unlike: Vec<String>,
}

/// Names of an option: the short ones, the long ones, the environment variable.
type Names = (&'static [&'static str], &'static str);
const MODEL: Names = (&["-m", "--model"], "LLAMA_ARG_MODEL");
const HOST: Names = (&["--host"], "LLAMA_ARG_HOST");
const PORT: Names = (&["--port"], "LLAMA_ARG_PORT");
const CONTEXT: Names = (&["-c", "--ctx-size"], "LLAMA_ARG_CTX_SIZE");
const SLOTS: Names = (&["-np", "--parallel"], "LLAMA_ARG_N_PARALLEL");
const THREADS: Names = (&["-t", "--threads"], "LLAMA_ARG_THREADS");
const GPU_LAYERS: Names = (&["-ngl", "--gpu-layers", "--n-gpu-layers"], "LLAMA_ARG_N_GPU_LAYERS");
const BATCH: Names = (&["-b", "--batch-size"], "LLAMA_ARG_BATCH");
const CHUNK: Names = (&["-ub", "--ubatch-size"], "LLAMA_ARG_UBATCH");
const FLASH_ATTENTION: Names = (&["-fa", "--flash-attn"], "LLAMA_ARG_FLASH_ATTN");
const CACHE_KEYS: Names = (&["-ctk", "--cache-type-k"], "LLAMA_ARG_CACHE_TYPE_K");
const CACHE_VALUES: Names = (&["-ctv", "--cache-type-v"], "LLAMA_ARG_CACHE_TYPE_V");
/// What a recommendation sets.
const RECOMMENDED: [Names; 12] = [
    CONTEXT,
    SLOTS,
    BATCH,
    CHUNK,
    GPU_LAYERS,
    THREADS,
    FLASH_ATTENTION,
    CACHE_KEYS,
    CACHE_VALUES,
    (&["-fit", "--fit"], "LLAMA_ARG_FIT"),
    (&["-cram", "--cache-ram"], "LLAMA_ARG_CACHE_RAM"),
    (&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"], "LLAMA_ARG_CTX_CHECKPOINTS"),
];
/// With any of these a step is not one of the model in the file on the one accelerator.
const UNLIKE: [Names; 9] = [
    (&["-ot", "--override-tensor"], "LLAMA_ARG_OVERRIDE_TENSOR"),
    (&["-cmoe", "--cpu-moe"], "LLAMA_ARG_CPU_MOE"),
    (&["-ncmoe", "--n-cpu-moe"], "LLAMA_ARG_N_CPU_MOE"),
    (&["--rpc"], "LLAMA_ARG_RPC"),
    (&["--lora"], ""),
    (&["--lora-scaled"], ""),
    (&["--control-vector"], ""),
    (&["-nkvo", "--no-kv-offload"], "LLAMA_ARG_NO_KV_OFFLOAD"),
    (&["--embedding", "--embeddings"], "LLAMA_ARG_EMBEDDINGS"),
];
/// Options without a value that stand before others.
const TENSOR_SPLIT: Names = (&["-ts", "--tensor-split"], "LLAMA_ARG_TENSOR_SPLIT");
const DRAFTS: Names = (&["--spec-type"], "LLAMA_ARG_SPEC_TYPE");
const DRAFT_MODEL: Names = (&["-md", "--model-draft"], "LLAMA_ARG_MODEL_DRAFT");

/// Which program `arguments` start: its own name, or that of a script behind an interpreter.
pub fn program(arguments: &[String]) -> Program {
    let names: Vec<&str> = arguments.iter().take(3).map(|argument| base(argument)).collect();
    let is = |name: &str| names.iter().take(2).any(|found| *found == name);
    if is("llama-server") {
        Program::LlamaServer
    } else if is("ollama") {
        Program::Ollama
    } else if is("vllm") || arguments.iter().any(|argument| argument.starts_with("vllm.entrypoints")) {
        Program::Vllm
    } else if is("mlc_llm") || arguments.iter().any(|argument| argument == "mlc_llm") {
        Program::Mlc
    } else if is("trtllm-serve") {
        Program::Trtllm
    } else {
        Program::Other
    }
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether an option is set, by whichever of its names or by the environment.
pub fn sets(option: &str, arguments: &[String], environment: &BTreeMap<String, String>) -> bool {
    let known = RECOMMENDED.iter().find(|(names, _)| names.contains(&option));
    known.map_or_else(
        || gives(arguments, &[option]),
        |(names, variable)| gives(arguments, names) || environment.contains_key(*variable),
    )
}

/// Whether `arguments` give one of `names` a value, or name it.
fn gives(arguments: &[String], names: &[&str]) -> bool {
    arguments.iter().any(|argument| names.contains(&argument.as_str()))
}

impl Settings {
    /// Of a llama-server; the command line is stronger than the environment.
    pub fn read(arguments: &[String], environment: &BTreeMap<String, String>) -> Self {
        let text = |(names, variable): Names| -> Option<String> {
            let given = arguments.windows(2).rev().find(|pair| names.contains(&pair[0].as_str()));
            given.map(|pair| pair[1].clone()).or_else(|| environment.get(variable).cloned())
        };
        let number = |names: Names| text(names).and_then(|text| text.parse().ok());
        let is_given =
            |(names, variable): &Names| gives(arguments, names) || environment.contains_key(*variable);
        let mut unlike: Vec<String> = UNLIKE
            .iter()
            .filter(|names| is_given(names))
            .map(|(names, _)| names[names.len() - 1].to_owned())
            .collect();
        if text(DRAFTS).is_some_and(|kind| kind != "none") || is_given(&DRAFT_MODEL) {
            unlike.push("speculative decoding".to_owned());
        }
        if is_given(&TENSOR_SPLIT) {
            unlike.push("--tensor-split".to_owned());
        }
        Self {
            model: text(MODEL),
            host: text(HOST),
            port: number(PORT).and_then(|port: u64| port.try_into().ok()),
            context_tokens: number(CONTEXT),
            slots: number(SLOTS),
            // 0 and -1 stand for its own choice.
            threads: number(THREADS).filter(|threads| *threads > 0),
            gpu_layers: text(GPU_LAYERS),
            cache_keys: text(CACHE_KEYS),
            cache_values: text(CACHE_VALUES),
            chunk_tokens: number(CHUNK),
            cpu_moe_layers: number(UNLIKE[2]),
            is_without_flash_attention: text(FLASH_ATTENTION)
                .is_some_and(|value| ["off", "0", "disabled", "false"].contains(&value.as_str())),
            unlike,
        }
    }

    /// Storage of the cache as requests name it.
    ///
    /// # Errors
    /// Keys and values differ, or it is none that is known.
    pub fn cache_format(&self) -> Result<&'static str, String> {
        let named = |given: &Option<String>| given.clone().unwrap_or_else(|| "f16".to_owned());
        let (keys, values) = (named(&self.cache_keys), named(&self.cache_values));
        if keys != values {
            return Err(format!("keys of the cache are stored as {keys} and values as {values}"));
        }
        Ok(match keys.as_str() {
            "f32" => "fp32",
            "f16" => "fp16",
            "bf16" => "bf16",
            "q8_0" => "q8_0",
            "q4_0" => "q4_0",
            "q4_1" => "q4_1",
            "q5_0" => "q5_0",
            "q5_1" => "q5_1",
            "iq4_nl" => "iq4_nl",
            _ => return Err(format!("the cache is stored as {keys}, which is not a known format")),
        })
    }

    /// Whether every layer was asked to run on the GPU.
    pub fn is_all_on_the_gpu(&self) -> bool {
        /// More layers than any model has.
        const ALL: u64 = 99;
        let layers = self.gpu_layers.as_deref();
        layers == Some("all")
            || layers.and_then(|layers| layers.parse::<u64>().ok()).is_some_and(|layers| layers >= ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn programs_are_known_by_their_name_behind_an_interpreter_too() {
        for (line, expected) in [
            ("/usr/bin/llama-server -m x", Program::LlamaServer),
            ("python3 /opt/llama-server -m x", Program::LlamaServer),
            ("/usr/local/bin/ollama serve", Program::Ollama),
            ("/usr/bin/python3 /usr/bin/vllm serve m", Program::Vllm),
            ("python -m vllm.entrypoints.openai.api_server", Program::Vllm),
            ("python -m mlc_llm serve m", Program::Mlc),
            ("python3 /usr/bin/trtllm-serve m", Program::Trtllm),
            ("grep x llama-server", Program::Other),
            ("", Program::Other),
        ] {
            assert_eq!(program(&arguments(line)), expected, "{line}");
        }
    }

    #[test]
    fn the_command_line_is_stronger_than_the_environment_and_the_last_word_wins() {
        let environment = BTreeMap::from([
            ("LLAMA_ARG_THREADS", "4"),
            ("LLAMA_ARG_CACHE_TYPE_K", "q8_0"),
            ("LLAMA_ARG_PORT", "x"),
        ]);
        let environment =
            environment.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let line =
            arguments("llama-server -m /m/x.gguf -c 512 --ctx-size 4096 -np 2 -t 6 -ngl 99 --port 8081");
        let settings = Settings::read(&line, &environment);
        assert_eq!(settings.model.as_deref(), Some("/m/x.gguf"));
        assert_eq!(
            (settings.context_tokens, settings.slots, settings.threads, settings.port),
            (Some(4096), Some(2), Some(6), Some(8081))
        );
        assert!(settings.is_all_on_the_gpu());
        assert_eq!(
            settings.cache_format().unwrap_err(),
            "keys of the cache are stored as q8_0 and values as f16"
        );
        let same = Settings { cache_values: Some("q8_0".to_owned()), ..settings };
        assert_eq!(same.cache_format(), Ok("q8_0"));
        assert_eq!(Settings::default().cache_format(), Ok("fp16"));
        assert!(!Settings::default().is_all_on_the_gpu());
        assert!(!Settings { gpu_layers: Some("20".to_owned()), ..Settings::default() }.is_all_on_the_gpu());
    }

    #[test]
    fn options_that_change_what_a_step_is_are_named() {
        let unlike = |line: &str| Settings::read(&arguments(line), &BTreeMap::new()).unlike;
        assert_eq!(unlike("llama-server -m x -fa on"), [] as [&str; 0]);
        assert_eq!(unlike("llama-server -ot exps=CPU --lora a.gguf"), ["--override-tensor", "--lora"]);
        assert_eq!(unlike("llama-server -md d.gguf"), ["speculative decoding"]);
        assert_eq!(unlike("llama-server --spec-type draft-mtp"), ["speculative decoding"]);
        assert_eq!(unlike("llama-server --spec-type none"), [] as [&str; 0]);
    }
}
