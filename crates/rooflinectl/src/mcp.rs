//! `mcp`: a server of the Model Context Protocol on standard input and output, so that agents can ask.
//!
//! Each tool is one command of this program with some of its options, and answers with what that command prints: short
//! tables with units. No tool takes an option that changes the machine.

use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use super::args::Global;
use super::failure::{Exit, Failure};
use super::meant::ends_as_file;

const INSTRUCTIONS: &str = "Predicts speed, power and memory of language models and vision networks on this machine or on other \
                            hardware, and recommends format, power mode and batch size. Ranges in parentheses are 90 % intervals. \
                            Sizes are decimal (1 GB = 1e9 bytes).";
/// Longer answers are cut, because an agent pays for each word.
const MOST_BYTES: usize = 16 << 10;

/// How a value is written on the command line.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// A whole number from 1.
    Count,
    /// A number from 0, followed by its unit.
    Number(&'static str),
    Choice(&'static [&'static str]),
}

/// An argument: its name, which is that of the option with `_` and the unit, how it is written, and what it is.
type Field = (&'static str, Kind, &'static str);

struct Question {
    name: &'static str,
    command: &'static [&'static str],
    description: &'static str,
    /// What the command is about: its name and description.
    subject: Option<(&'static str, &'static str)>,
    /// Arguments of which one is enough in place of the subject.
    instead: &'static [&'static str],
    fields: &'static [Field],
}

const MODEL: (&str, &str) = (
    "model",
    "Name on Hugging Face (Qwen/Qwen3-4B) or Ollama (qwen3:4b), a key of the catalogue, or the path of a GGUF, safetensors or \
     config.json file, or of a vision network's .onnx file",
);
const PRECISION: Field =
    ("precision", Kind::Choice(&["fp16", "int8", "tf32", "fp32"]), "What a vision network is computed in");
const SIZE: Field = (
    "size",
    Kind::Text,
    "Height and width of a vision network's pictures where its file leaves them open: 640x640",
);
const DIMENSION: Field =
    ("dimension", Kind::Text, "A dimension that a vision network's file leaves open: batch=1");
const SCOPE: Field = (
    "scope",
    Kind::Choice(&["engine", "copies", "frame"]),
    "What a vision network's latency covers: the engine alone (default), with copies, or the whole frame",
);
const HARDWARE: Field = (
    "hardware",
    Kind::Text,
    "Key or short name of other hardware (orin-nano, thor, spark, rtx-4090; list_hardware has all); without it, this machine",
);
const ENGINE: Field = (
    "engine",
    Kind::Text,
    "Inference engine: llama.cpp, vllm, tensorrt-llm, …; without it, the best that runs there",
);
const CONTEXT: Field = ("context_tokens", Kind::Count, "Tokens in the cache of each sequence; default 4096");
const FORMATS: Field = (
    "formats",
    Kind::Text,
    "Weight formats, such as q4_k_m,q8_0; default a file's own, or the engine's usual ones",
);
const FORMAT: Field = (
    "format",
    Kind::Text,
    "Weight format: fp16, q8_0, q4_k_m, awq, nvfp4, …; default a file's own, or the recommended one",
);
const BATCH: Field = ("batch", Kind::Count, "Sequences at once; default 1");
const OBJECTIVES: &[&str] = &["latency", "throughput", "energy", "power"];

const QUESTIONS: &[Question] = &[
    Question {
        name: "recommend",
        command: &["recommend"],
        description: "Which engine, weight format, power mode and batch size meet a target, with the engine's command line and the \
                      runners-up",
        subject: Some(MODEL),
        instead: &[],
        fields: &[
            HARDWARE,
            ENGINE,
            CONTEXT,
            ("objective", Kind::Choice(OBJECTIVES), "What is best; default latency"),
            (
                "modes",
                Kind::Text,
                "Power modes to consider: all, live (without a reboot) or names; default the current one",
            ),
            FORMATS,
            ("batch", Kind::Text, "Sequences at once to consider: 8, or 1..32; default 1"),
            ("max_time_per_token_ms", Kind::Number("ms"), "Longest time per token, in milliseconds"),
            ("min_tokens_per_s", Kind::Number(""), "Least tokens per second over the batch"),
            ("max_power_w", Kind::Number("W"), "Most power of the module or card, in watts"),
            ("max_memory_gb", Kind::Number("GB"), "Most memory for weights, cache and activations, in GB"),
            PRECISION,
            SCOPE,
            SIZE,
            DIMENSION,
            ("min_fps", Kind::Number(""), "Least pictures per second of each stream (vision networks)"),
            ("streams", Kind::Count, "Cameras whose pictures go through the vision network; default 1"),
        ],
    },
    Question {
        name: "predict",
        command: &["predict"],
        description: "Time, rate, power, energy and memory of a model in one configuration, and what limits it",
        subject: Some(MODEL),
        instead: &[],
        fields: &[
            HARDWARE,
            ENGINE,
            CONTEXT,
            FORMAT,
            BATCH,
            (
                "task",
                Kind::Choice(&["generate", "embed", "rerank"]),
                "Writing text, or reading documents; default embed for an encoder, else generate",
            ),
            (
                "phase",
                Kind::Choice(&["prefill", "decode", "serve"]),
                "Reading a prompt, writing a token, or both; default decode",
            ),
            ("prompt_tokens", Kind::Count, "Length of the prompt"),
            ("mode", Kind::Text, "Power mode; default the current one, or the fastest of other hardware"),
            PRECISION,
            SCOPE,
            SIZE,
            DIMENSION,
        ],
    },
    Question {
        name: "explain",
        command: &["explain"],
        description: "Why a running server, or a measured rate of a model, is slower than predicted on this machine: causes with their \
                      share, evidence and remedy. A server is watched for some seconds while it generates (port or pid); a \
                      model without a rate is asked for what slows it on this machine now",
        subject: Some(MODEL),
        instead: &["port", "pid"],
        fields: &[
            ("port", Kind::Count, "Port of the server to watch, on this machine"),
            ("pid", Kind::Count, "Process to watch: of a server, or of a program whose rate was measured"),
            ENGINE,
            CONTEXT,
            ("tokens_per_s", Kind::Number(""), "Measured tokens per second over the batch"),
            (
                "time_ms",
                Kind::Number("ms"),
                "Measured time of one step in milliseconds, in place of tokens_per_s",
            ),
            FORMAT,
            BATCH,
            ("kv_format", Kind::Text, "How the cache is stored: fp16, q8_0, q4_0, …"),
            ("threads", Kind::Count, "Threads that were expected to compute; default one for each core"),
            ("mode", Kind::Text, "Power mode that was expected; default the fastest that was calibrated"),
            ("engine_version", Kind::Text, "Build or release that was expected; default the newest known"),
        ],
    },
    Question {
        name: "inspect_model",
        command: &["models"],
        description: "Parameters, layers, bytes of the weights and of the cache, and where the figures come from; of a vision network its \
                      operations and operators",
        subject: Some(MODEL),
        instead: &[],
        fields: &[SIZE, DIMENSION],
    },
    Question {
        name: "list_hardware",
        command: &["hardware", "list"],
        description: "Boards and cards that can be asked about, with SMs, clock, bandwidth and peaks",
        subject: None,
        instead: &[],
        fields: &[],
    },
    Question {
        name: "board_state",
        command: &["status"],
        description: "This machine now: power mode, clocks, load, memory, power, temperatures and problems",
        subject: None,
        instead: &[],
        fields: &[],
    },
    Question {
        name: "compare",
        command: &["compare"],
        description: "Runs a file on this machine now, for some minutes, and prints its times next to the prediction",
        subject: Some((
            "model",
            "Path of a GGUF file, run in llama.cpp, or of an .onnx file, run in ONNX Runtime",
        )),
        instead: &[],
        fields: &[],
    },
];

impl Kind {
    fn schema(self, description: &str) -> Value {
        match self {
            Self::Text => json!({"type": "string", "description": description}),
            Self::Count => json!({"type": "integer", "minimum": 1, "description": description}),
            Self::Number(_) => json!({"type": "number", "minimum": 0, "description": description}),
            Self::Choice(words) => json!({"type": "string", "enum": words, "description": description}),
        }
    }

    /// The option that is called so.
    fn option(self, name: &str) -> String {
        let unit =
            if let Self::Number(unit) = self { format!("_{}", unit.to_lowercase()) } else { "_".to_owned() };
        let name = name.strip_suffix(&unit).unwrap_or(name);
        format!("--{}", if name == "dimension" { "dim".to_owned() } else { name.replace('_', "-") })
    }

    /// The value as the command line takes it, or what is expected instead.
    fn written(self, value: &Value) -> Result<String, String> {
        match self {
            Self::Text => value.as_str().map(ToOwned::to_owned).ok_or_else(|| "a string".to_owned()),
            Self::Count => {
                let count = value.as_u64().filter(|&count| count > 0);
                count.map(|count| count.to_string()).ok_or_else(|| "a whole number from 1".to_owned())
            }
            Self::Number(unit) => {
                let number = value.as_f64().filter(|&number| number >= 0.0);
                number.map(|number| format!("{number}{unit}")).ok_or_else(|| "a number from 0".to_owned())
            }
            Self::Choice(words) => {
                let word = value.as_str().filter(|word| words.contains(word));
                word.map(ToOwned::to_owned).ok_or_else(|| format!("one of {}", words.join(", ")))
            }
        }
    }
}

impl Question {
    fn tool(&self) -> Tool {
        let mut properties = JsonObject::new();
        if let Some((name, description)) = self.subject {
            properties.insert(name.to_owned(), Kind::Text.schema(description));
        }
        let fields = self.fields.iter();
        properties.extend(fields.map(|(name, kind, about)| ((*name).to_owned(), kind.schema(about))));
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": self.subject.map(|(name, _)| name).filter(|_| self.instead.is_empty()).as_slice(),
            "additionalProperties": false,
        });
        let Value::Object(schema) = schema else { unreachable!("an object is written above") };
        Tool::new(self.name, self.description, Arc::new(schema))
            .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
    }

    /// The arguments of the command, or what is wrong with those of the call.
    fn arguments(&self, call: &JsonObject) -> Result<Vec<String>, String> {
        let mut arguments: Vec<String> = self.command.iter().map(|&word| word.to_owned()).collect();
        let mut subject = None;
        for (name, value) in call {
            if self.subject.is_some_and(|(expected, _)| expected == name) {
                subject =
                    Some(Kind::Text.written(value).map_err(|expected| mistake(name, value, &expected))?);
                continue;
            }
            let Some((_, kind, _)) = self.fields.iter().find(|(known, _, _)| known == name) else {
                let own = self.fields.iter().map(|(name, _, _)| *name);
                let names: Vec<&str> = self.subject.iter().map(|(name, _)| *name).chain(own).collect();
                return Err(format!("{} has no argument {name}; it takes {}", self.name, names.join(", ")));
            };
            let written = kind.written(value).map_err(|expected| mistake(name, value, &expected))?;
            arguments.push(format!("{}={written}", kind.option(name)));
        }
        if let Some((name, description)) = self.subject {
            let Some(subject) = subject else {
                if self.instead.iter().any(|name| call.contains_key(*name)) {
                    return Ok(arguments);
                }
                let or: String = self.instead.iter().flat_map(|name| [" or ", name]).collect();
                let state = if or.is_empty() { "" } else { ". board_state tells how busy this machine is" };
                return Err(format!("{} needs {name}{or}: {description}{state}", self.name));
            };
            // A file is inspected, a name is looked up.
            if self.command == ["models"] {
                let is_file = Path::new(&subject).exists() || ends_as_file(&subject);
                let verb = if is_file { "inspect" } else { "show" };
                arguments.insert(self.command.len(), verb.to_owned());
            }
            arguments.extend(["--".to_owned(), subject]);
        }
        Ok(arguments)
    }
}

fn mistake(name: &str, value: &Value, expected: &str) -> String {
    format!("{name} is {value}, and has to be {expected}")
}

struct Server {
    /// Options that say where the daemon is.
    global: Vec<String>,
}

impl Server {
    /// Runs the command, and returns what it printed and whether that is an answer.
    async fn ask(&self, arguments: Vec<String>) -> std::io::Result<(String, bool)> {
        let output = Command::new(std::env::current_exe()?)
            .args(&self.global)
            .args(arguments)
            .env("COLUMNS", "160")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if text.len() > MOST_BYTES {
            text.truncate(text.floor_char_boundary(MOST_BYTES));
            text.push_str("\n… (cut)");
        }
        // That nothing meets the target is an answer.
        let answered = output.status.success() || output.status.code() == Some(Exit::Infeasible as i32);
        Ok((text, answered))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("rooflined", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(QUESTIONS.iter().map(Question::tool).collect()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(question) = QUESTIONS.iter().find(|question| question.name == call.name) else {
            let names: Vec<&str> = QUESTIONS.iter().map(|question| question.name).collect();
            let message = format!("no tool is called {}; there are {}", call.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let (text, answered) = match question.arguments(&call.arguments.unwrap_or_default()) {
            Ok(arguments) => self
                .ask(arguments)
                .await
                .unwrap_or_else(|error| (format!("cannot run rooflinectl: {error}"), false)),
            Err(mistake) => (mistake, false),
        };
        let content = vec![ContentBlock::text(text)];
        Ok(if answered { CallToolResult::success(content) } else { CallToolResult::error(content) }.into())
    }
}

/// Serves until standard input closes.
pub async fn run(global: &Global) -> Result<(), Failure> {
    let mut options = vec![format!("--timeout={}s", global.timeout.as_secs_f64())];
    options.extend(global.socket.iter().map(|path| format!("--socket={}", path.display())));
    const START: &str = "an MCP client starts it: add {\"command\": \"rooflinectl\", \"args\": [\"mcp\"]} to the client's servers";
    if std::io::stdin().is_terminal() {
        let message = "mcp answers an agent's messages, and nobody types those";
        return Err(Failure::usage(message).with_hint(START));
    }
    let service = Server { global: options }.serve(rmcp::transport::stdio()).await.map_err(|_| {
        Failure::failed("standard input did not begin as the Model Context Protocol does", START)
    })?;
    service.waiting().await.map_err(|error| Failure::failed(format!("the session broke: {error}"), START))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_argument_of_every_tool_is_one_of_its_command() {
        for question in QUESTIONS {
            let mut call = JsonObject::new();
            if let Some((name, _)) = question.subject {
                // Only a file has dimensions to fill in; a key is shown and not inspected.
                let is_file = question.fields.iter().any(|(name, ..)| *name == "dimension");
                call.insert(name.to_owned(), json!(if is_file { "./detector.onnx" } else { "llama-3.1-8b" }));
            }
            let mut calls = vec![call];
            for (name, kind, _) in question.fields {
                let value = match (*kind, *name) {
                    (Kind::Text, "batch") => json!("1..4"),
                    (Kind::Text, "formats" | "format") => json!("q8_0"),
                    (Kind::Text, "engine") => json!("llama.cpp"),
                    (Kind::Text, "kv_format") => json!("fp16"),
                    (Kind::Text, "dimension") => json!("batch=1"),
                    (Kind::Text, "size") => json!("640x480"),
                    (Kind::Text, "mode") => json!("MAXN"),
                    (Kind::Text, _) => json!("all"),
                    (Kind::Count, _) => json!(2),
                    (Kind::Number(_), _) => json!(12.5),
                    (Kind::Choice(words), _) => json!(words[0]),
                };
                // A server is asked for what is given of a rate.
                if !question.instead.is_empty() {
                    calls.push(calls[0].clone());
                }
                calls.last_mut().unwrap().insert((*name).to_owned(), value);
            }
            for call in calls {
                let arguments = question.arguments(&call).unwrap();
                let line = ["rooflinectl".to_owned()].into_iter().chain(arguments);
                Cli::try_parse_from(line)
                    .unwrap_or_else(|error| panic!("{} {call:?}: {error}", question.name));
            }
        }
    }

    #[test]
    fn mistakes_name_the_argument_and_what_it_takes() {
        let recommend = &QUESTIONS[0];
        let mistake = |call: Value| recommend.arguments(call.as_object().unwrap()).unwrap_err();
        assert!(mistake(json!({})).starts_with("recommend needs model: "));
        let explain = QUESTIONS.iter().find(|question| question.name == "explain").unwrap();
        let asked = |call: Value| explain.arguments(call.as_object().unwrap());
        assert!(asked(json!({})).unwrap_err().starts_with("explain needs model or port or pid: "));
        assert_eq!(asked(json!({"port": 8080})).unwrap(), ["explain", "--port=8080"]);
        let of_program = json!({"pid": 7, "model": "qwen3-4b", "time_ms": 12.5});
        assert_eq!(asked(of_program).unwrap(), ["explain", "--pid=7", "--time=12.5ms", "--", "qwen3-4b"]);
        assert_eq!(mistake(json!({"model": 4})), "model is 4, and has to be a string");
        assert_eq!(
            mistake(json!({"model": "a", "objective": "fast"})),
            "objective is \"fast\", and has to be one of latency, throughput, energy, power"
        );
        assert!(
            mistake(json!({"model": "a", "power": 4}))
                .starts_with("recommend has no argument power; it takes model, hardware")
        );
        // A model's name is never taken for an option.
        let arguments = recommend.arguments(json!({"model": "--ssh=host"}).as_object().unwrap()).unwrap();
        assert_eq!(arguments, ["recommend", "--", "--ssh=host"]);
    }
}
