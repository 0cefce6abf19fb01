//! Where requests are judged: that there is such a route, that it is answered where the request came in, that the caller
//! may, and that query string and body are what the route takes.
//!
//! Both sockets, the bus and every stream ask here, so that none of them admits what another refuses.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::access::{Peer, may_control, may_run};
use super::members::Members;
use super::model_files::Received;
use super::routes::{self, Found, NoRoute, Route, query_pairs};
use super::shares::beside;
use super::{Command, Control, Socket, clock, command, openapi, power};
use answer::parse::parse;
use answer::reports::{self, Listing};
use answer::{Request, models};
use decide::snapshot::Snapshot;
use governor::{Client, ControlRequest};
use predict::Engine;
use predict::learning::report::{Reporter, Selection};
use roofline::precision::{UnknownName, WeightFormat};
use roofline::refusal::{Code, Refusal};
use roofline::workload::recipe::Recipe;
use roofline::workload::registry;
use wire::{ConfirmObservationRequest, ModelAnswer, RecommendRequest};

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

    /// Who reports, and whom it moves.
    fn reporter(self) -> Result<Reporter, Refusal> {
        match self {
            Self::Peer(Some(peer)) => Ok(peer.reporter()),
            Self::Peer(None) => Err(unknown()),
            Self::Allowed(uid) => Ok(Reporter { uid, pid: None, trusted: true }),
        }
    }

    /// The user who called; `None` where nobody tells.
    #[must_use]
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::Peer(peer) => peer.map(|peer| peer.uid),
            Self::Allowed(uid) => Some(uid),
        }
    }

    /// The user who answers for it; `None` where nobody tells.
    #[must_use]
    pub fn account(self) -> Option<u32> {
        match self {
            Self::Peer(peer) => peer.map(Peer::account),
            Self::Allowed(uid) => Some(uid),
        }
    }

    /// Who calibrates and measures.
    fn runs_as(self, control_enabled: bool) -> Result<u32, Refusal> {
        self.may_run(control_enabled)?;
        self.account().ok_or_else(unknown)
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
    /// What the client attached to it.
    pub descriptors: &'a [Arc<Received>],
    pub caller: Caller<'a>,
}

/// An answer, or a lasting part of one.
#[derive(Debug, Clone)]
pub enum Content {
    /// Made for this request.
    Json(Vec<u8>),
    /// The same for the bus.
    Members(Members),
    /// The same for every request.
    Static(&'static [u8]),
    Text(String),
}

/// A request with nothing wrong.
#[derive(Debug)]
pub enum Accepted {
    /// To be answered from the snapshot.
    Question(Box<Request>),
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
        Entrance::Socket(Socket::Unsafe { problem }) => {
            let (what, remedy) = problem.rsplit_once("; ").unwrap_or((problem, "restart rooflined"));
            Err(Code::ControlUnavailable.error(what, remedy).into())
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

/// May the caller ask this at all, whatever stands in the body?
///
/// # Errors
/// It may not.
pub fn may(snapshot: &Snapshot, call: Call<'_>) -> Result<(), Refusal> {
    match call.route {
        Route::Measure => call.caller.may_run(snapshot.control_enabled),
        Route::Hold | Route::HoldAttached => call.caller.client(snapshot.control_enabled).map(drop),
        Route::Observations => call.caller.reporter().map(drop),
        _ => Ok(()),
    }
}

/// Judges a request of any route. Whatever files it names have been read: their contents stand in its body.
///
/// # Errors
/// What is wrong with it.
pub async fn judge(control: &Control, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Accepted, Refusal> {
    let route = call.route;
    let takes_parameters =
        matches!(route, Route::Roofline | Route::Model | Route::ObservationList | Route::ForgetObservations);
    if !takes_parameters {
        query_pairs(call.query, &[])?;
    }
    let question = |request| Ok(Accepted::Question(Box::new(request)));
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
        Route::Observations => observations(control, snapshot, call).await,
        Route::ObservationList => json(&reports::observations(snapshot, &listing(snapshot, call)?)),
        Route::ConfirmObservation => {
            let uid = call.caller.runs_as(snapshot.control_enabled)?;
            let ConfirmObservationRequest { id } = parse(call.body)?;
            Ok(Accepted::Command { command: Command::ConfirmReport { id, uid }, power: false })
        }
        Route::ForgetObservations | Route::ForgetObservation => {
            let (which, by) = (forgotten(snapshot, call)?, call.caller.account());
            Ok(Accepted::Command { command: Command::Forget { which, by }, power: false })
        }
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
    let user = call.caller.account();
    let request = match call.route {
        Route::SetMode => power::set_mode(call.body)?,
        Route::Confirm => power::confirm(call.body)?,
        Route::Revert => power::revert(call.body)?,
        Route::Renew => power::renew(call.argument, call.body)?,
        Route::Release => power::release(call.argument)?,
        Route::HoldAttached => {
            let request = power::hold(control, snapshot, user, (call.body, true)).await?;
            return Ok(Accepted::Stream(Stream::Hold { client, request }));
        }
        _ => power::hold(control, snapshot, user, (call.body, false)).await?,
    };
    Ok(Accepted::Order { client, request })
}

const SELECTION: &[&str] = &["scope", "user", "engine", "model", "op", "format"];

/// What the parameters of a request name, and whether they name it of everybody (`scope=all`) or of another user.
fn selection(query: &str) -> Result<(Selection, bool), Refusal> {
    let (mut which, mut all) = (Selection::default(), false);
    let invalid = |key: &str, value: &str, hint: &str| {
        let value: String = value.chars().take(40).collect();
        Code::InvalidField.at(key, format!("{key} is {value:?}"), hint)
    };
    for (key, value) in query_pairs(query, SELECTION)? {
        match key.as_str() {
            "scope" => match value.as_str() {
                "own" => all = false,
                "all" => all = true,
                _ => return Err(invalid("scope", &value, "give own, or all")),
            },
            "user" => {
                let uid = value
                    .parse()
                    .map_err(|_| invalid("user", &value, "give the number of a user: id -u NAME"))?;
                which.uid = Some(uid);
            }
            "engine" => {
                let engine = Engine::ALL.into_iter().find(|engine| engine.key() == value);
                let hint = "give an engine that GET /v1/observations shows";
                which.engine = Some(engine.ok_or_else(|| invalid("engine", &value, hint))?);
            }
            "model" => which.model = Some(value),
            "op" => which.op = Some(value),
            _ => which.format = Some(value),
        }
    }
    Ok((which, all))
}

/// Who may calibrate may see everybody's reports.
fn listing(snapshot: &Snapshot, call: Call<'_>) -> Result<Listing, Refusal> {
    let (which, all) = selection(call.query)?;
    if all {
        call.caller.may_run(snapshot.control_enabled)?;
    }
    Ok(Listing { viewer: call.caller.account(), all, which })
}

/// A user's own reports are its own to forget; who may calibrate may forget everybody's.
fn forgotten(snapshot: &Snapshot, call: Call<'_>) -> Result<Selection, Refusal> {
    let own = call.caller.account();
    if call.route == Route::ForgetObservation {
        let argument = call.argument.unwrap_or_default();
        let id = argument.parse().map_err(|_| {
            Code::NotFound
                .error(format!("{argument:.40?} is no number of a report"), "GET /v1/observations lists them")
        })?;
        let uid = if call.caller.may_run(snapshot.control_enabled).is_ok() {
            None
        } else {
            Some(own.ok_or_else(unknown)?)
        };
        return Ok(Selection { uid, id: Some(id), ..Selection::default() });
    }
    let (which, all) = selection(call.query)?;
    if all || which.uid.is_some_and(|uid| Some(uid) != own) {
        call.caller.may_run(snapshot.control_enabled)?;
    }
    match (all, which.uid) {
        (true, _) | (_, Some(_)) => Ok(which),
        (false, None) => Ok(Selection { uid: Some(own.ok_or_else(unknown)?), ..which }),
    }
}

fn unknown() -> Refusal {
    Code::NotAuthorized.error(
        "nobody tells who is calling, so that nothing can be kept as theirs",
        "connect through a Unix socket of this machine",
    )
}

/// Reads what a service measured beside the event loop: each is a prediction itself.
async fn observations(
    control: &Control,
    snapshot: &Arc<Snapshot>,
    call: Call<'_>,
) -> Result<Accepted, Refusal> {
    let by = call.caller.reporter()?;
    let (catalogue, snapshot) = (Arc::clone(control.catalogue()), Arc::clone(snapshot));
    let body = call.body.to_vec();
    let turn = control.work().large(call.caller.account()).await?;
    let (command, power) = beside(turn, move || command::observe(&snapshot, &catalogue, by, &body)).await.1?;
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
        let hint = error.near.hint("GET /v1/models lists all");
        Code::NotFound.error(format!("there is no model {:?}", error.key), hint)
    })?;
    let (mut recipe, mut cache) = (Recipe::of(WeightFormat::Bf16), WeightFormat::Fp16);
    for (key, value) in query_pairs(call.query, &["format", "kv_format"])? {
        let unknown = |error: UnknownName| {
            let hint = error.near.hint("GET /v1/formats lists all");
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
