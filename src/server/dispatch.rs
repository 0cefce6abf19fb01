//! From a call to what is to be done about it: whether the caller may ask for it here, and whether query string and body are
//! what the route takes.
//!
//! Both sockets, the bus and every stream ask here, so that none of them admits what another refuses.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;
use serde_json::json;

use super::access::{Peer, may_control, may_run};
use super::model_files::FirstBytes;
use super::routes::{Route, query_pairs};
use super::shares::run_blocking;
use super::{Control, clock, command, openapi, power};
use rooflined_advice::parse::parse;
use rooflined_advice::reports::{self, Listing};
use rooflined_advice::servers;
use rooflined_advice::{NamesModels, Request, Wanted, models};
use rooflined_api::{ModelAnswer, RecommendRequest};
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::{UnknownName, WeightFormat};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_governor::{Client, Command, ControlRequest};
use rooflined_models::registry;
use rooflined_predict::Engine;
use rooflined_predict::learning::report::{Reporter, Selection};
use rooflined_predict::snapshot::Snapshot;

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

    /// Who reports, and whom it moves. `server_user`: whose server was measured, where that is another's.
    fn reporter(self, server_user: Option<u32>) -> Result<Reporter, Refusal> {
        match self {
            Self::Peer(Some(peer)) => Ok(peer.reporter(server_user)),
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
    pub body: &'a Bytes,
    /// A model file in the place of a body, read while it comes in.
    pub file: Option<&'a Mutex<Option<FirstBytes>>>,
    pub caller: Caller<'a>,
}

/// An answer, or the beginning of one without an end.
#[derive(Debug)]
pub enum Answered {
    /// Made for this request.
    Json(Vec<u8>),
    /// The same for every request.
    Static(&'static [u8]),
    Text(String),
    Stream(Stream),
}

/// A request with nothing wrong.
#[derive(Debug)]
pub enum Accepted {
    /// Its answer was at hand.
    Answered(Answered),
    /// The page of Prometheus.
    Metrics,
    /// To be answered from the snapshot.
    Question {
        request: Box<Request>,
        /// Files were read for it, which may change while the snapshot stays.
        from_files: bool,
    },
    /// To be handed to the daemon: about power modes or holds.
    Order { client: Client, request: ControlRequest },
    /// To be handed to the daemon: anything else.
    Command {
        /// What is asked for.
        command: Command,
        /// Whether any observation reports a power, which nothing learns yet.
        power: bool,
    },
}

/// An answer without an end.
#[derive(Debug)]
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
                "a recommendation with updates is a stream",
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

/// Checks and parses a request of any route, which is a sign that somebody looks.
///
/// # Errors
/// What is wrong with it.
pub async fn dispatch(
    control: &Control,
    snapshot: &Arc<Snapshot>,
    call: Call<'_>,
) -> Result<Accepted, Refusal> {
    let Call { route, query, body, caller, .. } = call;
    if !matches!(route, Route::Ready | Route::Healthy | Route::OpenApi | Route::Metrics) {
        control.looked();
    }
    let _turn = control.work.body(caller.account(), body).await;
    let takes_parameters = matches!(
        route,
        Route::Roofline
            | Route::Model
            | Route::InspectModel
            | Route::Observations
            | Route::ObservationList
            | Route::ForgetObservations
    );
    if !takes_parameters && !query.is_empty() {
        query_pairs(query, &[])?;
    }
    let request = match route {
        Route::Predict => Request::Predict(parse(body)?),
        Route::Recommend => Request::Recommend(parse(body)?),
        Route::Sweep => Request::Sweep(parse(body)?),
        Route::Analyze => Request::Analyze(parse(body)?),
        Route::Explain => Request::Explain(Box::new(parse(body)?)),
        Route::Tiling => Request::Tiling(parse(body)?),
        Route::PredictNetwork => Request::PredictNetwork(parse(body)?),
        Route::RecommendNetwork => Request::RecommendNetwork(Box::new(parse(body)?)),
        Route::Board => Request::Board,
        Route::State => Request::State,
        Route::Roofline => roofline(query)?,
        Route::Modes => Request::Modes,
        Route::Formats => Request::Formats,
        Route::HardwareList => Request::Hardware { key: None },
        Route::Hardware => Request::Hardware { key: Some(call.argument.unwrap_or_default().to_owned()) },
        Route::Calibration => Request::Calibration,
        Route::Models => return json(&models::list(registry::models())),
        Route::Model => return json(&model(call)?),
        Route::InspectModel => return json(&inspect_model(control, call).await?),
        Route::OpenApi => return Ok(Accepted::Answered(Answered::Static(openapi::document()))),
        Route::Metrics => return Ok(Accepted::Metrics),
        Route::Healthy => return json(&json!({ "healthy": true })),
        Route::Ready => return json(&ready(snapshot)?),
        Route::Holds => return json(&power::holds(snapshot, clock::now())),
        Route::SetMode
        | Route::Confirm
        | Route::Revert
        | Route::Hold
        | Route::HoldAttached
        | Route::Renew
        | Route::Release => return order(control, snapshot, call).await,
        Route::RecommendWatch => {
            let (request, _) = with_files(control, call).await?;
            return Ok(Accepted::Answered(Answered::Stream(Stream::Advice(Box::new(request)))));
        }
        Route::Events => return Ok(Accepted::Answered(Answered::Stream(Stream::Events))),
        Route::Observations => return observations(control, snapshot, call).await,
        Route::ObservationList => {
            return json(&reports::observations(snapshot, &listing(snapshot, call)?));
        }
        Route::Servers => return json(&servers::servers(snapshot, caller.account())),
        Route::ForgetObservations | Route::ForgetObservation => {
            let (which, by) = (forgotten(snapshot, call)?, caller.account());
            return Ok(Accepted::Command { command: Command::Forget { which, by }, power: false });
        }
        Route::Calibrate => {
            caller.may_run(snapshot.control_enabled)?;
            return Ok(Accepted::Command { command: command::calibrate(body)?, power: false });
        }
        Route::Measure => {
            caller.may_run(snapshot.control_enabled)?;
            return Ok(Accepted::Command { command: command::measure(body)?, power: false });
        }
    };
    let (request, from_files) = control.files.resolve(request, caller.account()).await?;
    Ok(Accepted::Question { request: Box::new(request), from_files })
}

/// A request from the body, with the definitions of the files that it names, and whether there are any.
async fn with_files<T>(control: &Control, call: Call<'_>) -> Result<(T, bool), Refusal>
where
    T: serde::de::DeserializeOwned + NamesModels + Send + 'static,
{
    control.files.resolve(parse(call.body)?, call.caller.account()).await
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
            let (hold, _) = with_files(control, call).await?;
            let request = power::hold(control, snapshot, user, (hold, true)).await?;
            return Ok(Accepted::Answered(Answered::Stream(Stream::Hold { client, request })));
        }
        _ => {
            let (hold, _) = with_files(control, call).await?;
            power::hold(control, snapshot, user, (hold, false)).await?
        }
    };
    Ok(Accepted::Order { client, request })
}

/// Longest name of a model file.
const MAX_FILE_NAME: usize = 4096;

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
                let mut known =
                    Engine::ALL.into_iter().map(Engine::key).chain([NetworkEngine::TensorRt.key()]);
                if !known.any(|known| known == value) {
                    return Err(invalid("engine", &value, "give an engine that GET /v1/observations shows"));
                }
                which.engine = Some(value);
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
            Code::NotFound.error(
                format!("{argument:.40?} is not the number of a report"),
                "GET /v1/observations lists them",
            )
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
        "the caller is unknown, so nothing can be stored for them",
        "connect through a Unix socket of this machine",
    )
}

/// Reads what a service measured beside the event loop: each is a prediction itself.
async fn observations(
    control: &Control,
    snapshot: &Arc<Snapshot>,
    call: Call<'_>,
) -> Result<Accepted, Refusal> {
    let mut server_user = None;
    for (_, value) in query_pairs(call.query, &["server_user"])? {
        let number = value.parse().map_err(|_| {
            let message = format!("server_user is {value:.40?}");
            Code::InvalidField.at("server_user", message, "give the number of a user: id -u NAME")
        })?;
        server_user = Some(number);
    }
    let by = call.caller.reporter(server_user)?;
    let (catalogue, snapshot) = (Arc::clone(&control.catalogue), Arc::clone(snapshot));
    let user = call.caller.account();
    let reports = command::Reports::parse(call.body)?;
    let single = reports.single;
    let (list, _) = control
        .files
        .resolve(reports.list, user)
        .await
        .map_err(|error| if single { command::without_list(error) } else { error })?;
    let reports = command::Reports { list, single };
    let turn = control.work.large(user).await?;
    let observe = move |_: Wanted<'_>| command::observe(&snapshot, &catalogue, by, &reports);
    let (command, power) = run_blocking(turn, observe).await.1?;
    Ok(Accepted::Command { command, power })
}

fn json(answer: &impl serde::Serialize) -> Result<Accepted, Refusal> {
    command::encode(answer).map(|json| Accepted::Answered(Answered::Json(json)))
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

/// A model of the registry in a format, or as it is published.
fn model(call: Call<'_>) -> Result<ModelAnswer, Refusal> {
    let key = call.argument.unwrap_or_default();
    let known = registry::models().get(key).map_err(|error| {
        let hint = error.hint("GET /v1/models lists all");
        Code::NotFound.error(format!("there is no model {:?}", error.key), hint)
    })?;
    let (mut recipe, mut cache) = (models::published_recipe(known), WeightFormat::Fp16);
    for (key, value) in query_pairs(call.query, &["format", "kv_format"])? {
        match key.as_str() {
            "format" => recipe = format_of(&key, &value)?,
            _ => cache = format_of(&key, &value)?,
        }
    }
    Ok(models::of_known(known, &known.model(recipe), cache))
}

/// The model in a file of which the body is the beginning.
async fn inspect_model(control: &Control, call: Call<'_>) -> Result<ModelAnswer, Refusal> {
    let (mut name, mut cache) = ("model".to_owned(), WeightFormat::Fp16);
    for (key, value) in query_pairs(call.query, &["name", "kv_format"])? {
        match key.as_str() {
            // Runs of the model are listed under it.
            "name" => name = path_of(value)?,
            _ => cache = format_of(&key, &value)?,
        }
    }
    let sent = call.file.and_then(|file| file.lock().unwrap_or_else(PoisonError::into_inner).take());
    let start = sent.unwrap_or_else(|| call.body.clone().into());
    control.files.inspect(start, name, cache, call.caller.account()).await
}

fn path_of(name: String) -> Result<String, Refusal> {
    if name.is_empty() || name.len() > MAX_FILE_NAME || name.chars().any(char::is_control) {
        let message = format!("name is empty, longer than {MAX_FILE_NAME} bytes or has control characters");
        return Err(Code::InvalidField.at("name", message, "give the name of the file"));
    }
    Ok(name)
}

fn format_of<T: std::str::FromStr<Err = UnknownName>>(key: &str, name: &str) -> Result<T, Refusal> {
    name.parse().map_err(|error: UnknownName| {
        let hint = error.near.hint("GET /v1/formats lists all");
        Code::UnknownFormat.at(key, format!("there is no format {:?}", error.name), hint)
    })
}

/// Ready once the machine has been read.
fn ready(snapshot: &Snapshot) -> Result<serde_json::Value, Refusal> {
    if !snapshot.state.taken_at.is_positive() {
        return Err(Code::NotReady.error(
            "the machine has not been read yet",
            "ask again in a second; rooflinectl doctor checks more",
        ));
    }
    Ok(json!({
        "ready": true, "calibrated": snapshot.calibration.is_some(), "degraded": snapshot.degraded_lines(),
        "serial": snapshot.serial,
    }))
}
