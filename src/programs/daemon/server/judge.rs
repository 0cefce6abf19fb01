//! Where requests are judged: that there is such a route, that it is answered where the request came in, that the caller
//! may, and that query string and body are what the route takes.
//!
//! Both sockets, the bus and every stream ask here, so that none of them admits what another refuses.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::access::{Peer, may_control, may_run};
use super::routes::{self, Found, NoRoute, Route, query_pairs};
use super::{Command, Control, Socket, clock, command, openapi, power};
use answer::parse::parse;
use answer::{Request, models};
use decide::snapshot::Snapshot;
use governor::{Client, ControlRequest};
use roofline::precision::{UnknownName, WeightFormat};
use roofline::refusal::{Code, Refusal};
use roofline::workload::recipe::Recipe;
use roofline::workload::registry;
use wire::{ModelAnswer, RecommendRequest};

/// Where a request came in.
#[derive(Debug, Clone, Copy)]
pub enum Entrance<'a> {
    /// One of the two sockets.
    Socket(&'a Socket),
    /// The method `Query` of the bus.
    Bus,
}

#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// Who the kernel or the bus says it is; `None` where it does not tell.
    Peer(Option<&'a Peer>),
    /// A user who was found to be allowed already, by polkit for instance.
    Allowed(u32),
}

impl Caller<'_> {
    /// Who may switch power modes and hold them; no hold of it is attached to a connection yet.
    fn client(self, control_enabled: bool) -> Result<Client, Refusal> {
        let uid = match self {
            Self::Peer(peer) => may_control(peer, control_enabled)?,
            Self::Allowed(uid) => uid,
        };
        Ok(Client { connection: 0, uid })
    }

    /// May it calibrate and measure?
    fn may_run(self, control_enabled: bool) -> Result<(), Refusal> {
        match self {
            Self::Peer(peer) => may_run(peer, control_enabled),
            Self::Allowed(_) => Ok(()),
        }
    }
}

/// A request as a transport sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub route: Route,
    /// Value of the parameter in the path.
    pub argument: Option<&'a str>,
    pub query: &'a str,
    pub body: &'a [u8],
    pub caller: Caller<'a>,
}

/// An answer, or a lasting part of one.
#[derive(Debug)]
pub enum Content {
    /// Made for this request.
    Json(Vec<u8>),
    /// The same for every request.
    Static(&'static [u8]),
    Text(String),
}

/// A request with nothing wrong.
#[derive(Debug)]
pub enum Accepted {
    /// To be answered from the snapshot.
    Question(Request),
    /// To be shown as it is.
    Shown(Content),
    /// The page of Prometheus.
    Metrics,
    /// To be handed to the daemon: about power modes or holds.
    Order { client: Client, request: ControlRequest },
    /// To be handed to the daemon: anything else.
    Command {
        /// What is asked for.
        command: Command,
        /// Whether any observation reports a power, which nothing learns yet.
        power: bool,
    },
    /// To be answered for as long as somebody reads.
    Stream(Stream),
}

/// An answer without an end.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each open stream")]
pub enum Stream {
    /// Whatever changes.
    Events,
    /// A recommendation that is kept true.
    Advice(Box<RecommendRequest>),
    /// A hold that ends with its reader.
    Hold { client: Client, request: ControlRequest },
}

impl Stream {
    /// Why there is none where an answer has an end.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let (message, hint) = match self {
            Self::Events => {
                ("events are a stream", "read GET /v1/events over HTTP, or listen to D-Bus signals")
            }
            Self::Advice(_) => (
                "a recommendation that is kept true is a stream",
                "read POST /v1/recommend/watch over HTTP, or call Subscribe on D-Bus",
            ),
            Self::Hold { .. } => (
                "an attached hold is a stream",
                "hold with POST /v1/holds/attached over HTTP, or call Hold on D-Bus",
            ),
        };
        Code::NotFound.error(message, hint)
    }
}

/// The route for a method and a path that came in here.
///
/// # Errors
/// There is none, or it is answered elsewhere.
pub fn admitted(method: &str, path: &str, entrance: Entrance<'_>) -> Result<Found, NoRoute> {
    let found = routes::find(method, path)?;
    match entrance {
        _ if !found.spec.control => Ok(found),
        Entrance::Socket(Socket::Control) => Ok(found),
        Entrance::Socket(Socket::Query { control }) => {
            Err(wrong_socket(found.spec.path, control.as_deref()).into())
        }
        Entrance::Bus => {
            let hint = "call Run of io.github.rooflined.Rooflined1.Calibration, or use the control socket";
            Err(Code::WrongSocket.error(format!("{path} is not a query"), hint).into())
        }
    }
}

fn wrong_socket(path: &str, control: Option<&Path>) -> Refusal {
    let socket = control
        .map_or_else(|| "/run/rooflined-control/control.sock".to_owned(), |path| path.display().to_string());
    Code::WrongSocket.error(
        format!("{path} is answered on the control socket only"),
        format!("send it to {socket}: curl --unix-socket {socket} …"),
    )
}

/// Judges a request of any route. Looks at files where a model is one.
///
/// # Errors
/// What is wrong with it.
pub async fn judge(control: &Control, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Accepted, Refusal> {
    let route = call.route;
    if !matches!(route, Route::Roofline | Route::Model) {
        query_pairs(call.query, &[])?;
    }
    let question = |request| Ok(Accepted::Question(request));
    match route {
        Route::Predict => question(Request::Predict(parse(call.body)?)),
        Route::Recommend => question(Request::Recommend(Box::new(parse(call.body)?))),
        Route::Joint => question(Request::Joint(Box::new(parse(call.body)?))),
        Route::Sweep => question(Request::Sweep(parse(call.body)?)),
        Route::Tiling => question(Request::Tiling(parse(call.body)?)),
        Route::Analyze => question(Request::Analyze(parse(call.body)?)),
        Route::Board => question(Request::Board),
        Route::State => question(Request::State),
        Route::Roofline => question(roofline(call.query)?),
        Route::Modes => question(Request::Modes),
        Route::Formats => question(Request::Formats),
        Route::HardwareList => question(Request::Hardware { key: None }),
        Route::Hardware => {
            question(Request::Hardware { key: Some(call.argument.unwrap_or_default().to_owned()) })
        }
        Route::Calibration => question(Request::Calibration),
        Route::Models => json(&models::list(registry::models())),
        Route::Model => json(&model(call)?),
        Route::OpenApi => Ok(Accepted::Shown(Content::Static(openapi::document()))),
        Route::Metrics => Ok(Accepted::Metrics),
        Route::Healthy => json(&json!({ "healthy": true })),
        Route::Ready => json(&ready(snapshot)?),
        Route::Holds => json(&power::holds(snapshot, clock::now())),
        Route::SetMode
        | Route::Confirm
        | Route::Revert
        | Route::Hold
        | Route::HoldAttached
        | Route::Renew
        | Route::Release => order(control, snapshot, call).await,
        Route::RecommendWatch => Ok(Accepted::Stream(Stream::Advice(Box::new(parse(call.body)?)))),
        Route::Events => Ok(Accepted::Stream(Stream::Events)),
        Route::Observations => observations(control, snapshot, call.body).await,
        Route::Calibrate => {
            call.caller.may_run(snapshot.control_enabled)?;
            Ok(Accepted::Command { command: command::calibrate(call.body)?, power: false })
        }
        Route::Measure => {
            call.caller.may_run(snapshot.control_enabled)?;
            Ok(Accepted::Command { command: command::measure(call.body)?, power: false })
        }
    }
}

/// Who may not is refused before anything of the body is looked at.
async fn order(control: &Control, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Accepted, Refusal> {
    let client = call.caller.client(snapshot.control_enabled)?;
    let request = match call.route {
        Route::SetMode => power::set_mode(call.body)?,
        Route::Confirm => power::confirm(call.body)?,
        Route::Revert => power::revert(call.body)?,
        Route::Renew => power::renew(call.argument, call.body)?,
        Route::Release => power::release(call.argument)?,
        Route::HoldAttached => {
            let request = power::hold(control, snapshot, call.body, true).await?;
            return Ok(Accepted::Stream(Stream::Hold { client, request }));
        }
        _ => power::hold(control, snapshot, call.body, false).await?,
    };
    Ok(Accepted::Order { client, request })
}

/// Reads what a service measured beside the event loop: its model may be a file.
async fn observations(control: &Control, snapshot: &Arc<Snapshot>, body: &[u8]) -> Result<Accepted, Refusal> {
    let (catalogue, snapshot) = (Arc::clone(control.catalogue()), Arc::clone(snapshot));
    let body = body.to_vec();
    let worker = tokio::task::spawn_blocking(move || command::observe(&snapshot, &catalogue, &body));
    let (command, power) = worker.await.unwrap_or_else(|_| {
        Err(Code::Internal.error("the observations were not read to the end", "report this"))
    })?;
    Ok(Accepted::Command { command, power })
}

fn json(answer: &impl serde::Serialize) -> Result<Accepted, Refusal> {
    command::encode(answer).map(|json| Accepted::Shown(Content::Json(json)))
}

fn roofline(query: &str) -> Result<Request, Refusal> {
    let (mut mode, mut precision, mut hardware) = (None, None, None);
    for (key, value) in query_pairs(query, &["mode", "precision", "hardware"])? {
        match key.as_str() {
            "mode" => mode = Some(value),
            "precision" => precision = Some(value),
            _ => hardware = Some(value),
        }
    }
    Ok(Request::Roofline { mode, precision, hardware })
}

/// A model of the registry in a format (bf16 where none is named).
fn model(call: Call<'_>) -> Result<ModelAnswer, Refusal> {
    let key = call.argument.unwrap_or_default();
    let known = registry::models().get(key).map_err(|error| {
        let hint = format!("did you mean {}? GET /v1/models lists all", error.nearest);
        Code::NotFound.error(format!("there is no model {:?}", error.key), hint)
    })?;
    let (mut recipe, mut cache) = (Recipe::of(WeightFormat::Bf16), WeightFormat::Fp16);
    for (key, value) in query_pairs(call.query, &["format", "kv_format"])? {
        let unknown = |error: UnknownName| {
            let hint = format!("did you mean {}?", error.nearest);
            Code::UnknownFormat.at(&key, format!("there is no format {:?}", error.name), hint)
        };
        match key.as_str() {
            "format" => recipe = value.parse().map_err(unknown)?,
            _ => cache = value.parse().map_err(unknown)?,
        }
    }
    Ok(models::of_known(known, &known.model(recipe), cache))
}

/// Ready once the machine has been read.
fn ready(snapshot: &Snapshot) -> Result<serde_json::Value, Refusal> {
    if !snapshot.state.taken_at.is_positive() {
        return Err(Code::NotReady.error(
            "the machine has not been read yet",
            "ask again in a second; rooflinectl doctor looks further",
        ));
    }
    Ok(json!({
        "ready": true, "calibrated": snapshot.calibration.is_some(), "degraded": snapshot.degraded_lines(),
        "serial": snapshot.serial,
    }))
}
