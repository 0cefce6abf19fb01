//! `mcp`: a server of the Model Context Protocol on standard input and output, so that agents can ask.
//!
//! Each tool is one command of this program with some of its options, and answers with what that command prints: short
//! tables with units. No tool takes an option that changes the machine.

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
use super::input::ends_as_file;

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

struct Field {
    name: &'static str,
    option: &'static str,
    kind: Kind,
    description: &'static str,
}

struct Question {
    name: &'static str,
    command: &'static [&'static str],
    description: &'static str,
    /// What the command is about: its name and description.
    subject: Option<(&'static str, &'static str)>,
    fields: &'static [Field],
}

const MODEL: (&str, &str) = (
    "model",
    "Name on Hugging Face (Qwen/Qwen3-4B) or Ollama (qwen3:4b), a key of the catalogue, or the path of a GGUF, safetensors or \
     config.json file, or of a vision network's .onnx file",
);
const PRECISION: Field = Field {
    name: "precision",
    option: "--precision",
    kind: Kind::Choice(&["fp16", "int8", "tf32", "fp32"]),
    description: "What a vision network is computed in",
};
const SIZE: Field = Field {
    name: "size",
    option: "--size",
    kind: Kind::Text,
    description: "Height and width of a vision network's pictures where its file leaves them open: 640x640",
};
const DIMENSION: Field = Field {
    name: "dimension",
    option: "--dim",
    kind: Kind::Text,
    description: "A dimension that a vision network's file leaves open: batch=1",
};
const HARDWARE: Field = Field {
    name: "hardware",
    option: "--hardware",
    kind: Kind::Text,
    description: "Key or short name of other hardware (orin-nano, thor, spark, rtx-4090; list_hardware has all); without it, this machine",
};
const ENGINE: Field = Field {
    name: "engine",
    option: "--engine",
    kind: Kind::Text,
    description: "Inference engine: llama.cpp, vllm, tensorrt-llm, …; without it, the best that runs there",
};
const CONTEXT: Field = Field {
    name: "context_tokens",
    option: "--context-tokens",
    kind: Kind::Count,
    description: "Tokens in the cache of each sequence; default 4096",
};
const FORMATS: Field = Field {
    name: "formats",
    option: "--formats",
    kind: Kind::Text,
    description: "Weight formats, such as q4_k_m,q8_0; default a file's own, or the engine's usual ones",
};
const OBJECTIVES: &[&str] = &["latency", "throughput", "energy", "power"];

const QUESTIONS: &[Question] = &[
    Question {
        name: "recommend",
        command: &["recommend"],
        description: "Which engine, weight format, power mode and batch size meet a target, with the engine's command line and the \
                      runners-up",
        subject: Some(MODEL),
        fields: &[
            HARDWARE,
            ENGINE,
            CONTEXT,
            Field {
                name: "objective",
                option: "--objective",
                kind: Kind::Choice(OBJECTIVES),
                description: "What is best; default latency",
            },
            Field {
                name: "modes",
                option: "--modes",
                kind: Kind::Text,
                description: "Power modes to consider: all, live (without a reboot) or names; default the current one",
            },
            FORMATS,
            Field {
                name: "batch",
                option: "--batch",
                kind: Kind::Text,
                description: "Sequences at once to consider: 8, or 1..32; default 1",
            },
            Field {
                name: "max_time_per_token_ms",
                option: "--max-time-per-token",
                kind: Kind::Number("ms"),
                description: "Longest time per token, in milliseconds",
            },
            Field {
                name: "min_tokens_per_s",
                option: "--min-tokens-per-s",
                kind: Kind::Number(""),
                description: "Least tokens per second over the batch",
            },
            Field {
                name: "max_power_w",
                option: "--max-power",
                kind: Kind::Number("W"),
                description: "Most power of the module or card, in watts",
            },
            Field {
                name: "max_memory_gb",
                option: "--max-memory-bytes",
                kind: Kind::Number("GB"),
                description: "Most memory for weights, cache and activations, in GB",
            },
            SIZE,
            DIMENSION,
            Field {
                name: "min_fps",
                option: "--min-fps",
                kind: Kind::Number(""),
                description: "Least pictures per second of each stream (vision networks)",
            },
            Field {
                name: "streams",
                option: "--streams",
                kind: Kind::Count,
                description: "Cameras whose pictures go through the vision network; default 1",
            },
        ],
    },
    Question {
        name: "predict",
        command: &["predict"],
        description: "Time, rate, power, energy and memory of a model in one configuration, and what limits it",
        subject: Some(MODEL),
        fields: &[
            HARDWARE,
            ENGINE,
            CONTEXT,
            Field {
                name: "format",
                option: "--format",
                kind: Kind::Text,
                description: "Weight format: fp16, q8_0, q4_k_m, awq, nvfp4, …; default fp16, or a file's own",
            },
            Field {
                name: "batch",
                option: "--batch",
                kind: Kind::Count,
                description: "Sequences at once; default 1",
            },
            Field {
                name: "task",
                option: "--task",
                kind: Kind::Choice(&["generate", "embed", "rerank"]),
                description: "Writing text, or reading documents; default embed for an encoder, else generate",
            },
            Field {
                name: "phase",
                option: "--phase",
                kind: Kind::Choice(&["prefill", "decode", "serve"]),
                description: "Reading a prompt, writing a token, or both; default decode",
            },
            Field {
                name: "prompt_tokens",
                option: "--prompt",
                kind: Kind::Count,
                description: "Length of the prompt",
            },
            Field {
                name: "mode",
                option: "--mode",
                kind: Kind::Text,
                description: "Power mode; default the current one, or the fastest of other hardware",
            },
            PRECISION,
            SIZE,
            DIMENSION,
        ],
    },
    Question {
        name: "explain",
        command: &["explain"],
        description: "Why a measured rate of a model is below the prediction on this machine: causes with their share, evidence and \
                      remedy; without a rate, what slows the machine now",
        subject: Some(MODEL),
        fields: &[
            ENGINE,
            CONTEXT,
            Field {
                name: "tokens_per_s",
                option: "--tokens-per-s",
                kind: Kind::Number(""),
                description: "Measured tokens per second over the batch",
            },
            Field {
                name: "format",
                option: "--format",
                kind: Kind::Text,
                description: "Weight format: fp16, q8_0, q4_k_m, awq, nvfp4, …; default fp16, or a file's own",
            },
            Field {
                name: "batch",
                option: "--batch",
                kind: Kind::Count,
                description: "Sequences at once; default 1",
            },
            Field {
                name: "mode",
                option: "--mode",
                kind: Kind::Text,
                description: "Power mode that was expected; default the fastest that was calibrated",
            },
        ],
    },
    Question {
        name: "inspect_model",
        command: &["models"],
        description: "Parameters, layers, bytes of the weights and of the cache, and where the figures come from; of a vision network its \
                      operations and operators",
        subject: Some(MODEL),
        fields: &[SIZE, DIMENSION],
    },
    Question {
        name: "list_hardware",
        command: &["hardware", "list"],
        description: "Boards, cards and CPUs that can be asked about, with cores, clock, bandwidth and peaks",
        subject: None,
        fields: &[],
    },
    Question {
        name: "board_state",
        command: &["status"],
        description: "This machine now: power mode, clocks, load, memory, power, temperatures and problems",
        subject: None,
        fields: &[],
    },
    Question {
        name: "compare",
        command: &["compare"],
        description: "Runs a step of a model on this machine now, for some seconds, and prints it next to the prediction",
        subject: Some(MODEL),
        fields: &[FORMATS],
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
        properties.extend(fields.map(|field| (field.name.to_owned(), field.kind.schema(field.description))));
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": self.subject.map(|(name, _)| name).as_slice(),
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
            let Some(field) = self.fields.iter().find(|field| field.name == name) else {
                let names: Vec<&str> = self
                    .subject
                    .iter()
                    .map(|(name, _)| *name)
                    .chain(self.fields.iter().map(|field| field.name))
                    .collect();
                return Err(format!("{} has no argument {name}; it takes {}", self.name, names.join(", ")));
            };
            let written = field.kind.written(value).map_err(|expected| mistake(name, value, &expected))?;
            arguments.push(format!("{}={written}", field.option));
        }
        if let Some((name, description)) = self.subject {
            let subject = subject.ok_or_else(|| format!("{} needs {name}: {description}", self.name))?;
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
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(
            format!("the MCP session did not start: {error}"),
            "start it from an MCP client, over stdio",
        )
    };
    let service =
        Server { global: options }.serve(rmcp::transport::stdio()).await.map_err(|error| failed(&error))?;
    service.waiting().await.map_err(|error| failed(&error))?;
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
                let is_file = question.fields.iter().any(|field| field.name == "dimension");
                call.insert(name.to_owned(), json!(if is_file { "./detector.onnx" } else { "llama-3.1-8b" }));
            }
            for field in question.fields {
                let value = match (field.kind, field.name) {
                    (Kind::Text, "batch") => json!("1..4"),
                    (Kind::Text, "formats" | "format") => json!("q8_0"),
                    (Kind::Text, "engine") => json!("llama.cpp"),
                    (Kind::Text, "dimension") => json!("batch=1"),
                    (Kind::Text, "size") => json!("640x480"),
                    (Kind::Text, _) => json!("all"),
                    (Kind::Count, _) => json!(2),
                    (Kind::Number(_), _) => json!(12.5),
                    (Kind::Choice(words), _) => json!(words[0]),
                };
                call.insert(field.name.to_owned(), value);
            }
            let arguments = question.arguments(&call).unwrap();
            let line = ["rooflinectl".to_owned()].into_iter().chain(arguments);
            Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{}: {error}", question.name));
        }
    }

    #[test]
    fn mistakes_name_the_argument_and_what_it_takes() {
        let recommend = &QUESTIONS[0];
        let mistake = |call: Value| recommend.arguments(call.as_object().unwrap()).unwrap_err();
        assert!(mistake(json!({})).starts_with("recommend needs model: "));
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
