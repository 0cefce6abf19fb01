//! The server that is observed: what kind it is, what it runs, and how it is looked at.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::command_line::{Program, Settings};
use super::http::{Answer, HttpError, Server};
use super::owner::Owners;
use super::process::{Activity, FileIdentity, Process};
use super::window::{Instant, Skip, Window};
use super::{llama_server, mlc, trtllm, vllm};
use crate::failure::Failure;
use crate::server_address::Address;
use rooflined_core::keyed;
use rooflined_models::registry::models;
use rooflined_predict::Engine;

/// What the caller says of it, because it does not tell or to correct it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubjectOptions {
    /// Key, or `{"path": …}`. Of a server that is looked at `as_it_is`, only where it does not tell its own.
    pub model: Option<Value>,
    pub format: Option<String>,
    pub kv_format: Option<String>,
    pub context_tokens: Option<u64>,
    /// Threads that compute.
    pub threads: Option<u64>,
    /// Every layer is on the GPU.
    pub offloaded: bool,
    /// Its rows may be taken away from others.
    pub drain: bool,
    /// Settings under which nothing can be learned of it are no mistake: it is looked at as it is.
    pub as_it_is: bool,
}

impl SubjectOptions {
    /// The model to go by, where the server tells `own`.
    fn model(&self, own: Option<Value>) -> Option<Value> {
        let named = self.model.clone();
        if self.as_it_is { own.or(named) } else { named.or(own) }
    }
}

keyed! {
    /// Servers that can be observed.
    Kind {
        LlamaServer = "llama-server",
        Vllm = "vllm",
        Mlc = "mlc_llm",
        Trtllm = "trtllm-serve",
    }
}

impl Kind {
    pub const fn engine(self) -> Engine {
        match self {
            Self::LlamaServer => Engine::LlamaCpp,
            Self::Vllm => Engine::Vllm,
            Self::Mlc => Engine::Mlc,
            Self::Trtllm => Engine::TensorRtLlm,
        }
    }
}

/// One look at it.
#[derive(Debug)]
pub enum Poll {
    LlamaServer(llama_server::Poll),
    Vllm(vllm::Poll),
    Mlc(mlc::Poll),
    Trtllm(trtllm::Poll),
}

impl Poll {
    pub fn at(&self) -> Instant {
        match self {
            Self::LlamaServer(look) => look.at,
            Self::Vllm(look) => look.at,
            Self::Mlc(look) => look.at,
            Self::Trtllm(look) => look.at,
        }
    }

    /// The window from here to `later`.
    ///
    /// # Errors
    /// Why it is missing.
    pub fn window(&self, later: &Self) -> Result<Window, Skip> {
        match (self, later) {
            (Self::LlamaServer(before), Self::LlamaServer(after)) => llama_server::window(before, after),
            (Self::Vllm(before), Self::Vllm(after)) => vllm::window(before, after),
            (Self::Mlc(before), Self::Mlc(after)) => mlc::window(before, after),
            (Self::Trtllm(before), Self::Trtllm(after)) => trtllm::window(before, after),
            _ => Err(Skip::Inconsistent),
        }
    }

    /// The same, where drafted tokens count as steps.
    ///
    /// # Errors
    /// Why it is missing.
    pub fn window_with_drafts(&self, later: &Self) -> Result<Window, Skip> {
        match (self, later) {
            (Self::LlamaServer(before), Self::LlamaServer(after)) => {
                llama_server::window_with_drafts(before, after)
            }
            _ => self.window(later),
        }
    }

    /// Takes over what `earlier` held and only one look can hold.
    pub fn follow(&mut self, earlier: Self) {
        if let (Self::Trtllm(own), Self::Trtllm(earlier)) = (self, earlier) {
            own.follow(earlier);
        }
    }

    /// Whether nothing runs, where that shows; then the server is left alone until it does something.
    pub fn is_idle(&self) -> bool {
        match self {
            Self::LlamaServer(look) => !look.is_busy(),
            Self::Vllm(look) => !look.is_busy(),
            Self::Mlc(_) | Self::Trtllm(_) => false,
        }
    }
}

/// A server with what it runs.
#[derive(Debug)]
pub struct Subject {
    pub kind: Kind,
    pub server: Server,
    /// `None` where it may not be seen, as behind a port that is forwarded.
    pub process: Option<Process>,
    pub model: Option<Value>,
    pub format: Option<String>,
    pub kv_format: Option<String>,
    /// Where the server does not tell it.
    pub context_tokens: Option<u64>,
    /// Threads it was started with.
    pub threads: Option<u64>,
    /// The figures of this machine are those of its CPU, where the number of threads counts.
    pub is_on_cpu: bool,
    /// What the reader should know.
    pub notes: Vec<String>,
    /// The build that it says it is.
    pub build: Option<String>,
    file: Option<(PathBuf, FileIdentity)>,
}

const GIVE_KEY: &str = "put the key into a file that only you can read, and give --api-key-file FILE";
const UPDATE: &str = "update llama.cpp to a build of August 2025 or later";

fn unanswered(server: &Server, error: &HttpError) -> Failure {
    let hint = "check that the server runs and that this is its HTTP port: ss -ltnp";
    Failure::failed(format!("{} {error}", server.address), hint)
}

fn named(process: Option<&Process>) -> String {
    process.map_or_else(String::new, |process| format!(", process {}", process.pid))
}

impl Subject {
    /// Finds out what answers at the server. `has_gpu` = this machine's figures are those of its GPU.
    ///
    /// # Errors
    /// It cannot be reached, is none that can be observed, or does not tell enough.
    pub async fn find(
        server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        has_gpu: bool,
        key: (Option<&std::path::Path>, Owners),
    ) -> Result<Self, Failure> {
        let found = Self::identify(server, process, options, has_gpu, key).await?;
        Ok(Self { threads: options.threads.or(found.threads), is_on_cpu: !has_gpu, ..found })
    }

    async fn identify(
        mut server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        has_gpu: bool,
        (key, owners): (Option<&std::path::Path>, Owners),
    ) -> Result<Self, Failure> {
        let process = process.or_else(|| Process::listening_on(server.address.port));
        let props = server.get("/props").await.map_err(|error| unanswered(&server, &error))?;
        if let Some(answer) =
            props.json().filter(|answer| answer.get("default_generation_settings").is_some())
        {
            return Self::llama_server(server, process, options, has_gpu, &answer);
        }
        if props.server.starts_with("llama.cpp") {
            return Err(match props.status.as_u16() {
                503 => Failure::try_again("the server still loads its model", "try again when it is ready"),
                401 | 403 => Failure::failed(format!("{} asks for a key", server.address), GIVE_KEY),
                status => Failure::failed(format!("{} answers /props with {status}", server.address), UPDATE),
            });
        }
        let mut get =
            async |route: &str| server.get(route).await.map_err(|error| unanswered(&server, &error));
        if let Some(version) =
            get("/api/version").await?.json().as_ref().and_then(|answer| answer.get("version")?.as_str())
        {
            let loaded = get("/api/ps").await?.json().unwrap_or_default();
            let (version, child) =
                (version.to_owned(), ollama_child(process.as_ref(), &server, version, &loaded)?);
            let offloaded = is_offloaded(&loaded);
            let Some(port) = child.settings().port else {
                return Err(Failure::failed(
                    format!("Ollama's process {} shows no port", child.pid),
                    "name it with --pid, and give its port too",
                ));
            };
            let mut runner = Server::new(Address::local(port), key, owners).await?;
            let props = runner.get("/props").await.map_err(|error| unanswered(&runner, &error))?;
            let answer = props.json().ok_or_else(|| {
                Failure::try_again("the model is still loaded", "try again when it answers")
            })?;
            let options = SubjectOptions { offloaded: options.offloaded || offloaded, ..options.clone() };
            let mut found = Self::llama_server(runner, Some(child), &options, has_gpu, &answer)?;
            found.notes.insert(0, format!("the llama-server that Ollama {version} runs"));
            return Ok(found);
        }
        let models = get("/v1/models").await?;
        let list = models.json().unwrap_or_default();
        let owner =
            list.pointer("/data/0/owned_by").and_then(Value::as_str).unwrap_or("").to_ascii_lowercase();
        match owner.as_str() {
            "vllm" => Self::vllm(server, process, options, &list).await,
            "mlc-llm" => Self::mlc(server, process, options).await,
            "tensorrt_llm" | "tensorrt-llm" => Self::trtllm(server, process, options, &list).await,
            "sglang" => Err(Failure::failed(
                format!("{} is SGLang, for which rooflined has no costs", server.address),
                OBSERVABLE,
            )),
            "me" => Err(Failure::failed(
                format!(
                    "{} is the server of llama-cpp-python, which reports nothing while it generates",
                    server.address
                ),
                "serve the same file with llama-server",
            )),
            _ if models.status.as_u16() == 401 => {
                Err(Failure::failed(format!("{} asks for a key", server.address), GIVE_KEY))
            }
            _ => Err(unknown(&mut server, named(process.as_ref())).await),
        }
    }

    fn llama_server(
        server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        has_gpu: bool,
        props: &Value,
    ) -> Result<Self, Failure> {
        if props.get("role").and_then(Value::as_str) == Some("router") {
            return Err(Failure::failed(
                format!("{} is a router, whose models run in processes of their own", server.address),
                "observe one of them: rooflinectl observe --pid PID (see ps -C llama-server)",
            ));
        }
        if props.get("endpoint_slots").and_then(Value::as_bool) == Some(false) {
            return Err(Failure::failed(
                format!("{} was started with --no-slots, and nothing else shows the batch", server.address),
                "start llama-server without --no-slots",
            ));
        }
        let mut notes = Vec::new();
        let own = process.as_ref().filter(|process| process.program() == Program::LlamaServer);
        let settings = own.map(Process::settings);
        if own.is_some_and(|own| own.environment.is_none()) {
            notes.push(
                "its environment may not be read: settings made by LLAMA_ARG_… are not seen".to_owned(),
            );
        }
        let kv_format = match (&options.kv_format, &settings) {
            (Some(options), _) => options.clone(),
            (None, Some(settings)) => match settings.cache_format() {
                Ok(format) => format.to_owned(),
                Err(_) if options.as_it_is => {
                    settings.cache_keys.clone().unwrap_or_else(|| "fp16".to_owned())
                }
                Err(why) => {
                    return Err(Failure::failed(
                        format!("{why}: this cannot be predicted"),
                        "start it with -ctk and -ctv alike",
                    ));
                }
            },
            (None, None) if options.as_it_is => "fp16".to_owned(),
            (None, None) => {
                return Err(Failure::failed(
                    format!(
                        "the command line of {}{} cannot be read, or is not that of llama-server",
                        server.address,
                        named(process.as_ref())
                    ),
                    "run this as the server's user, or say how its cache is stored: --kv-format fp16",
                ));
            }
        };
        let unlike = settings.as_ref().and_then(|settings| settings.unlike.first());
        if let Some(unlike) = unlike.filter(|_| !options.as_it_is) {
            return Err(Failure::failed(
                format!(
                    "it runs with {unlike}, so a step is not one of this model on this accelerator alone"
                ),
                "observe it without",
            ));
        }
        let offloaded = options.offloaded || settings.as_ref().is_some_and(Settings::is_all_on_the_gpu);
        if has_gpu && !offloaded && !options.as_it_is {
            return Err(Failure::failed(
                "it does not report whether every layer runs on the GPU",
                "start it with -ngl all, or give --offloaded if its log says so: offloaded 33/33 layers to GPU",
            ));
        }
        let path = settings.as_ref().and_then(|settings| settings.model.clone());
        let path = path.or_else(|| props.get("model_path").and_then(Value::as_str).map(ToOwned::to_owned));
        let path = path.and_then(|path| match &process {
            Some(process) => process.path(&path),
            None => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
        });
        let own = path.as_ref().and_then(|path| path.to_str()).map(|path| json!({ "path": path }));
        let model = options.model(own);
        let Some(model) = model else {
            return Err(Failure::failed(
                "the path of its model is not known from here",
                "name the model, by its key or as /path/to/model.gguf",
            ));
        };
        let file = path.and_then(|path| FileIdentity::of(&path).map(|identity| (path, identity)));
        Ok(Self {
            kind: Kind::LlamaServer,
            server,
            process,
            model: Some(model),
            format: options.format.clone(),
            kv_format: Some(kv_format),
            context_tokens: None,
            threads: settings.and_then(|settings| settings.threads),
            is_on_cpu: false,
            notes,
            build: props.get("build_info").and_then(Value::as_str).map(ToOwned::to_owned),
            file,
        })
    }

    async fn vllm(
        mut server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        list: &Value,
    ) -> Result<Self, Failure> {
        let page = server.get("/metrics").await.map_err(|error| unanswered(&server, &error))?;
        let Some(look) = vllm::Poll::read(page.at, &page.text()) else {
            return Err(Failure::failed(
                format!("{} keeps no statistics", server.address),
                "start vLLM without --disable-log-stats",
            ));
        };
        if look.engines() > 1 {
            return Err(Failure::failed(
                format!(
                    "{} has {} engines behind one address, which cannot be distinguished",
                    server.address,
                    look.engines()
                ),
                "observe a server with one engine (--data-parallel-size 1)",
            ));
        }
        let mut found = Self::from_hub(Kind::Vllm, server, process, options, list)?;
        let cache = match look.cache_dtype.as_deref() {
            Some("fp8" | "fp8_e4m3") => Some("fp8_e4m3".to_owned()),
            Some("fp8_e5m2") => Some("fp8_e5m2".to_owned()),
            _ => None,
        };
        found.kv_format = options.kv_format.clone().or(cache);
        Ok(found)
    }

    async fn mlc(
        mut server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
    ) -> Result<Self, Failure> {
        let page = server.get("/metrics").await.map_err(|error| unanswered(&server, &error))?;
        if mlc::Poll::read(page.at, &page.text()).is_none() {
            return Err(Failure::failed(
                format!("{} reports no decoding times", server.address),
                "start mlc_llm serve with --enable-metrics or a later version",
            ));
        }
        // Its own names are those of compiled libraries, which say nothing that the registry knows.
        Self::from_hub(Kind::Mlc, server, process, options, &Value::Null)
    }

    async fn trtllm(
        server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        list: &Value,
    ) -> Result<Self, Failure> {
        if !options.drain {
            return Err(Failure::failed(
                format!(
                    "other readers of its /metrics miss the iterations of {} that are read here",
                    server.address
                ),
                "give --drain if nobody else does; it needs enable_iter_perf_stats: true",
            ));
        }
        Self::from_hub(Kind::Trtllm, server, process, options, list)
    }

    /// A server that names its model as a directory or as model hubs do.
    fn from_hub(
        kind: Kind,
        server: Server,
        process: Option<Process>,
        options: &SubjectOptions,
        list: &Value,
    ) -> Result<Self, Failure> {
        let name =
            ["/data/0/root", "/data/0/id"].iter().find_map(|at| list.pointer(at).and_then(Value::as_str));
        let directory = name.filter(|name| name.starts_with('/')).map(|path| json!({ "path": path }));
        let key = || models().get(name?.rsplit('/').next()?).ok();
        let model = options.model(directory.or_else(|| key().map(|known| json!(known.key))));
        let Some(model) = model else {
            return Err(Failure::failed(
                format!(
                    "{} is not a known model",
                    name.map_or_else(|| "what it serves".to_owned(), |name| format!("{name:?}"))
                ),
                "name it and its format: MODEL --format FORMAT (see rooflinectl models list)",
            ));
        };
        if model.is_string() && options.format.is_none() {
            return Err(Failure::failed(
                format!("it does not report how the weights of {model} are stored"),
                "name it: --format bf16, --format awq_int4, …",
            ));
        }
        Ok(Self {
            kind,
            server,
            process,
            model: Some(model),
            format: options.format.clone(),
            kv_format: options.kv_format.clone(),
            context_tokens: options.context_tokens,
            threads: None,
            is_on_cpu: false,
            notes: Vec::new(),
            build: None,
            file: None,
        })
    }

    /// Threads that compute a step, as requests name them: those it was started with, else those `counted`, and no more than there
    /// are logical CPUs to run them; `None` on a GPU.
    pub fn threads(&self, counted: Option<u64>) -> Option<u32> {
        let cpus = std::thread::available_parallelism().map_or(u64::MAX, |cpus| cpus.get() as u64);
        let threads = self.threads.or(counted).filter(|_| self.is_on_cpu);
        threads.and_then(|threads| u32::try_from(threads.min(cpus)).ok())
    }

    /// How many threads computed in the `seconds` between two looks, where they are those of the process that answers.
    pub fn count(&self, now: &Activity, before: &Activity, seconds: f64) -> Option<u64> {
        let counts = self.is_on_cpu && self.kind == Kind::LlamaServer;
        now.computing(before, seconds).filter(|_| counts)
    }

    /// Looks at it once.
    ///
    /// # Errors
    /// It does not answer, or not as it did.
    pub async fn look(&mut self) -> Result<Poll, Failure> {
        let route = if self.kind == Kind::LlamaServer { "/slots" } else { "/metrics" };
        let answer = self.server.get(route).await.map_err(|error| unanswered(&self.server, &error))?;
        let unreadable = |why: &str, hint: &str| {
            Failure::failed(format!("{} answers {route} {why}", self.server.address), hint)
        };
        let looked = match self.kind {
            Kind::LlamaServer => match slots(&answer)? {
                Ok(look) => Some(Poll::LlamaServer(look)),
                Err(llama_server::Unusable::Old) => {
                    return Err(unreadable("without the tokens of each slot", UPDATE));
                }
                Err(llama_server::Unusable::NoSlots) => None,
            },
            Kind::Vllm => vllm::Poll::read(answer.at, &answer.text()).map(Poll::Vllm),
            Kind::Mlc => mlc::Poll::read(answer.at, &answer.text()).map(Poll::Mlc),
            Kind::Trtllm => {
                answer.json().and_then(|rows| trtllm::Poll::read(answer.at, &rows)).map(Poll::Trtllm)
            }
        };
        looked.ok_or_else(|| {
            let status = answer.status.as_u16();
            let hint = match (self.kind, status) {
                (_, 401 | 403) => GIVE_KEY,
                (Kind::LlamaServer, 501) => "start llama-server without --no-slots",
                (Kind::Trtllm, _) => {
                    "start trtllm-serve with enable_iter_perf_stats: true in its configuration"
                }
                _ => "look at it with curl; a newer version may answer differently",
            };
            unreadable(&format!("with status {status} and nothing that is understood"), hint)
        })
    }

    /// Whether the file that it has loaded is another now.
    pub fn has_another_file(&self) -> bool {
        self.file.as_ref().is_some_and(|(path, was)| FileIdentity::of(path).is_none_or(|is| is != *was))
    }

    /// `llama-server at http://…, process 12: x.gguf, cache fp16, 2 threads`.
    pub fn describe(&self) -> String {
        let model = self.model.as_ref().map_or_else(|| "unknown model".to_owned(), crate::words::model);
        let format = self.format.as_ref().map_or_else(String::new, |format| format!(" {format}"));
        let cache = self.kv_format.as_ref().map_or_else(String::new, |format| format!(", cache {format}"));
        let threads = self.threads.map_or_else(String::new, |threads| {
            let ending = if threads == 1 { "" } else { "s" };
            format!(", {threads} thread{ending}")
        });
        let process = named(self.process.as_ref());
        format!("{} at {}{process}: {model}{format}{cache}{threads}", self.kind.key(), self.server.address)
    }

    /// Goes by the model file in the root of its process, where that has one of its own, as in a container.
    pub fn enter_own_root(&mut self) {
        let path = self.model.as_ref().and_then(|model| model.get("path")?.as_str());
        let inner =
            path.zip(self.process.as_ref()).and_then(|(path, process)| process.in_own_root(Path::new(path)));
        if let Some(inner) = inner.as_deref().and_then(Path::to_str) {
            self.model = Some(json!({ "path": inner }));
        }
    }

    /// What events call it.
    pub fn name(&self) -> String {
        format!("{} on port {}", self.kind.key(), self.server.address.port)
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({
            "kind": self.kind.key(), "engine": self.kind.engine().key(), "address": self.server.address.to_string(),
            "pid": self.process.as_ref().map(|process| process.pid), "model": self.model, "format": self.format,
            "kv_format": self.kv_format, "threads": self.threads, "notes": self.notes,
        })
    }
}

/// `/slots` as a look; an error status is one of the server.
fn slots(answer: &Answer) -> Result<Result<llama_server::Poll, llama_server::Unusable>, Failure> {
    if answer.status.as_u16() == 503 {
        return Err(Failure::try_again("the server still loads its model", "try again when it is ready"));
    }
    let answered = answer.json().ok_or(llama_server::Unusable::NoSlots);
    Ok(answered.and_then(|slots| llama_server::Poll::read(answer.at, &slots)))
}

/// The one llama-server that Ollama runs.
fn ollama_child(
    process: Option<&Process>,
    server: &Server,
    version: &str,
    loaded: &Value,
) -> Result<Process, Failure> {
    // Whatever else listens there, as a proxy does, starts llama-servers that are not Ollama's.
    let parents = match process {
        Some(process) if process.program() == Program::Ollama => vec![process.clone()],
        Some(_) => Vec::new(),
        None => Process::of(Program::Ollama),
    };
    let mut children: Vec<Process> = parents.iter().flat_map(Process::children).collect();
    children.retain(|child| child.program() == Program::LlamaServer);
    match children.len() {
        1 => Ok(children.remove(0)),
        0 if is_before_0_30(version) => Err(Failure::failed(
            format!("{} is Ollama {version}, which reports nothing while it generates", server.address),
            "update Ollama to 0.30 or later, whose models run in llama-server",
        )),
        0 if loaded.pointer("/models/0").is_none() => Err(Failure::try_again(
            "Ollama has no model loaded",
            "send it a request, or load one: ollama run MODEL",
        )),
        0 => Err(Failure::failed(
            "the process that runs Ollama's model cannot be found",
            "run this as root or as Ollama's user, on the machine and outside of its container",
        )),
        _ => Err(Failure::failed(
            format!("Ollama runs {} models at once, which slow each other down", children.len()),
            "stop all but one: ollama stop MODEL",
        )),
    }
}

/// `0.29.4`, `0.6.2-rc1`; what is no version is not old.
fn is_before_0_30(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(0)), Some(Ok(minor))) => minor < 30,
        _ => false,
    }
}

/// Whether `/api/ps` says that all of the one model is in the GPU's memory.
fn is_offloaded(loaded: &Value) -> bool {
    let size = |key: &str| loaded.pointer(&format!("/models/0/{key}")).and_then(Value::as_u64);
    size("size").zip(size("size_vram")).is_some_and(|(size, on_gpu)| on_gpu >= size)
}

/// Servers that cannot be observed, by a field that only they answer, and what it holds where others answer it too: route and
/// field, the value, what the server is, what to do.
const UNOBSERVABLE: [(&str, &str, &str, &str, &str); 3] = [
    (
        "/health",
        "kv_cache_dtype",
        "",
        "TensorRT-Edge-LLM's server, which reports nothing about its steps",
        "report its own benchmark: rooflinectl observe MODEL --engine tensorrt-edge-llm --tokens-per-s RATE",
    ),
    (
        "/v2",
        "name",
        "triton",
        "Triton, whose counters mix prompts and steps",
        "observe the engine behind it, or report its own benchmark: rooflinectl observe MODEL --tokens-per-s RATE",
    ),
    (
        "/info",
        "max_total_tokens",
        "",
        "Text Generation Inference, for which rooflined has no costs",
        OBSERVABLE,
    ),
];
const OBSERVABLE: &str = "llama-server, Ollama, vLLM, MLC and TensorRT-LLM can be observed; of another server give what it \
                          measured: rooflinectl observe MODEL --engine ENGINE --tokens-per-s RATE";

/// The name of a server that cannot be observed, by what only it answers.
async fn unknown(server: &mut Server, process: String) -> Failure {
    let address = server.address.clone();
    for (route, field, value, name, instead) in UNOBSERVABLE {
        let answer = server.get(route).await.ok().and_then(|answer| answer.json());
        let found = answer.as_ref().and_then(|answer| answer.get(field));
        if found.is_some_and(|found| value.is_empty() || found == value) {
            return Failure::failed(format!("{address} is {name}"), instead);
        }
    }
    let page = server.get("/metrics").await.ok().filter(Answer::is_ok);
    if page.is_some_and(|page| page.text().contains("nv_inference_count")) {
        let message = format!("{address} is Triton's metrics port, whose counters mix prompts and steps");
        return Failure::failed(message, "observe the engine behind it");
    }
    Failure::failed(
        format!("{address}{process} answers, but not like an inference server that rooflined knows"),
        OBSERVABLE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_ollama_are_compared_as_numbers() {
        for (version, old) in [
            ("0.29.9", true),
            ("0.6.2-rc1", true),
            ("0.30.0", false),
            ("0.100.1", false),
            ("1.2.0", false),
            ("dev", false),
        ] {
            assert_eq!(is_before_0_30(version), old, "{version}");
        }
    }

    #[test]
    fn a_model_that_is_partly_in_main_memory_is_not_offloaded() {
        let loaded = |on_gpu: u64| json!({"models": [{"name": "x", "size": 100, "size_vram": on_gpu}]});
        assert!(
            is_offloaded(&loaded(100)) && !is_offloaded(&loaded(60)) && !is_offloaded(&json!({"models": []}))
        );
    }
}
