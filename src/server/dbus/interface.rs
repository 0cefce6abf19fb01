//! The two interfaces.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use hyper::body::Bytes;
use serde_json::{Value, json};
use zbus::fdo::DBusProxy;
use zbus::message::Header;
use zbus::names::BusName;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedVariant, interface};

use super::bounded::Gate;
use super::callers::{Sender, caller};
use super::convert::{Variants, from_variants, to_variants};
use super::error::BusError;
use super::subscriptions::Subscriptions;
use crate::server::access::{Peer, may_run};
use crate::server::advice::Advice;
use crate::server::clock;
use crate::server::command::encode;
use crate::server::dispatch::{Accepted, Answered, Call, Caller, Stream, dispatch};
use crate::server::routes::{self, Entrance, Found, Route};
use crate::server::service::Service;
use rooflined_advice::parse::parse;
use rooflined_advice::{Request, answer};
use rooflined_api::API_VERSION;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_governor::{Command, Reply};

/// `io.github.rooflined.Rooflined1`.
pub struct Rooflined {
    service: Arc<Service>,
    subscriptions: Arc<Subscriptions>,
    gate: Arc<Gate>,
}

impl Rooflined {
    pub fn new(service: Arc<Service>, gate: Arc<Gate>) -> Self {
        Self { service, subscriptions: Arc::default(), gate }
    }

    /// Who subscribed with which query.
    pub fn subscriptions(&self) -> Arc<Subscriptions> {
        Arc::clone(&self.subscriptions)
    }

    /// Answers a query for the first time and keeps it for its sender.
    async fn begin(
        &self,
        sender: &str,
        cookie: u64,
        json: &str,
        by: Sender<'_, '_>,
    ) -> Result<Variants, Refusal> {
        let snapshot = self.service.snapshot();
        // What this user reports from now on moves this answer, so who it is counts even before there is anything.
        let peer = self.gate.callers.find(by).await;
        let viewer = peer.as_ref().map(Peer::account);
        let call = Call {
            route: Route::RecommendWatch,
            argument: None,
            query: "",
            body: &Bytes::copy_from_slice(json.as_bytes()),
            file: None,
            caller: Caller::Peer(peer.as_ref()),
        };
        let accepted = dispatch(&self.service.control, &snapshot, call).await?;
        let Accepted::Answered(Answered::Stream(Stream::Advice(request))) = accepted else {
            return Err(answered_otherwise());
        };
        let (advice, first) = Advice::begin(&self.service, &snapshot, *request, viewer).await?;
        if !self.subscriptions.begin(cookie, advice) {
            return Err(gone(sender));
        }
        Ok(to_variants(json!(first)))
    }

    /// Answers a question from a body in variants.
    async fn ask(
        &self,
        route: Route,
        request: HashMap<String, OwnedVariant>,
        by: Sender<'_, '_>,
    ) -> Result<Variants, BusError> {
        let body = encode(&from_variants(&request)?)?.into();
        let peer = self.gate.callers.find(by).await;
        let caller = Caller::Peer(peer.as_ref());
        let call = Call { route, argument: None, query: "", body: &body, file: None, caller };
        Ok(to_variants(self.service.value(&self.service.snapshot(), call).await?))
    }

    /// Answers a route as the query socket would.
    async fn respond(
        &self,
        method: &str,
        path: &str,
        body: &Bytes,
        by: Sender<'_, '_>,
    ) -> Result<Answered, Refusal> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let Found { spec, argument } = match routes::find(method, path, Entrance::Bus) {
            Ok(found) => found,
            Err(none) => {
                if let Some(route) = none.elsewhere {
                    let uid = caller(by.connection, by.header).await.ok().map(|peer| peer.uid);
                    self.service.refused(route, body, uid, &none.refusal);
                }
                return Err(none.into());
            }
        };
        let peer = self.gate.callers.find(by).await;
        let (route, argument, caller) = (spec.route, argument.as_deref(), Caller::Peer(peer.as_ref()));
        let call = Call { route, argument, query, body, file: None, caller };
        self.service.respond(&self.service.snapshot(), call).await
    }

    /// A reading route's answer as variants; empty where it fails, which these do not.
    ///
    /// Only a call from outside has a header. The same getter is run to announce a change: if that counted as
    /// somebody looking, every sample would ask for the next one at once.
    fn property(&self, request: &Request, header: Option<&Header<'_>>) -> Variants {
        let now = clock::now();
        if header.is_some() {
            self.service.control.looked();
        }
        let answered = answer(&self.service.snapshot(), &self.service.control.catalogue, now, request);
        let value = answered.ok().and_then(|answer| serde_json::to_value(answer).ok());
        value.map(to_variants).unwrap_or_default()
    }
}

pub(super) fn answered_otherwise() -> Refusal {
    Code::Internal.error("the daemon gave an unexpected answer", "report this")
}

fn gone(sender: &str) -> Refusal {
    Code::NotAuthorized
        .error(format!("{sender:?} has left the bus"), "stay on it for as long as you want updates")
}

/// The argument of `Query`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    path: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    body: Option<Value>,
}

#[expect(clippy::unused_self, reason = "a property is a method, and some are constant")]
#[interface(name = "io.github.rooflined.Rooflined1")]
impl Rooflined {
    /// Any route of the query socket: `{"path": "/v1/recommend", "body": {…}}` → its answer, both as JSON.
    async fn query(
        &self,
        json: &str,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<String, BusError> {
        let Query { path, method, body } = parse(json.as_bytes())?;
        let method = method.as_deref().unwrap_or(if body.is_some() { "POST" } else { "GET" });
        let body = body.map_or_else(|| Ok(Vec::new()), |body| encode(&body))?.into();
        let by = Sender { connection, header: &header };
        let answer = match self.respond(method, &path, &body, by).await? {
            Answered::Json(json) => json,
            Answered::Static(json) => json.to_vec(),
            Answered::Text(text) => encode(&text)?,
            Answered::Stream(stream) => return Err(stream.refusal().into()),
        };
        String::from_utf8(answer)
            .map_err(|_| Code::Internal.error("the answer is not text", "report this").into())
    }

    /// The body of `POST /v1/predict` and its answer.
    async fn predict(
        &self,
        request: HashMap<String, OwnedVariant>,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Variants, BusError> {
        self.ask(Route::Predict, request, Sender { connection, header: &header }).await
    }

    /// The body of `POST /v1/recommend` and its answer.
    async fn recommend(
        &self,
        request: HashMap<String, OwnedVariant>,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Variants, BusError> {
        self.ask(Route::Recommend, request, Sender { connection, header: &header }).await
    }

    /// The body of `POST /v1/recommend` as JSON, its answer, and a cookie. From then on the sender alone is notified with
    /// AdviceStale and AnswerChanged when the answer has altered, until Unsubscribe or its leaving.
    async fn subscribe(
        &self,
        json: &str,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(u64, Variants), BusError> {
        let sender = header.sender().map(ToString::to_string).unwrap_or_default();
        let user =
            self.gate.callers.find(Sender { connection, header: &header }).await.map(|peer| peer.account());
        let cookie = self.subscriptions.reserve(&sender, user)?;
        // From here on its leaving is noticed; if it left before, nobody will say so again.
        let answered = if on_the_bus(connection, &header).await {
            self.begin(&sender, cookie, json, Sender { connection, header: &header }).await
        } else {
            Err(gone(&sender))
        };
        answered.map(|answer| (cookie, answer)).map_err(|error| {
            self.subscriptions.end(cookie);
            error.into()
        })
    }

    /// Ends a subscription of the sender.
    #[expect(clippy::needless_pass_by_value, reason = "the interface macro hands headers over by value")]
    fn unsubscribe(&self, cookie: u64, #[zbus(header)] header: Header<'_>) -> Result<(), BusError> {
        let sender = header.sender().map(ToString::to_string).unwrap_or_default();
        if self.subscriptions.end_for(cookie, &sender) {
            return Ok(());
        }
        Err(Code::NotFound
            .error(format!("this client has no subscription {cookie}"), "give the cookie that Subscribe gave")
            .into())
    }

    /// Everything that is known, as JSON in a sealed memory file.
    async fn diagnose(&self) -> Result<zbus::OwnedFd, BusError> {
        let (snapshot, now) = (self.service.snapshot(), clock::now());
        let mut facts = serde_json::Map::new();
        for (name, request) in [
            ("board", Request::Board),
            ("state", Request::State),
            ("roofline", Request::Roofline { mode: None, precision: None, hardware: None }),
            ("formats", Request::Formats),
            ("calibration", Request::Calibration),
        ] {
            let fact = answer(&snapshot, &self.service.control.catalogue, now, &request)?;
            facts.insert(name.to_owned(), serde_json::to_value(fact).unwrap_or_default());
        }
        facts.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        facts.insert("control_enabled".to_owned(), snapshot.control_enabled.into());
        facts.insert("taken_at_unix_s".to_owned(), json!(now.unix_s));
        memory_file(Value::Object(facts).to_string().as_bytes()).map_err(|error| {
            Code::Internal.error(format!("no memory file: {error}"), "use Query instead").into()
        })
    }

    /// Advice given before may no longer hold. To everybody when the mode, throttling, a ceiling or the calibration has
    /// changed; to one who subscribed, by its own name, when its own answer has altered.
    #[zbus(signal)]
    pub async fn advice_stale(emitter: &SignalEmitter<'_>, reason: &str, serial: u64) -> zbus::Result<()>;

    /// To one who subscribed: why its answer has altered (`AdviceStale` of the OpenAPI document), and the new one; empty
    /// where it can no longer be answered.
    #[zbus(signal)]
    pub async fn answer_changed(
        emitter: &SignalEmitter<'_>,
        cookie: u64,
        stale: Variants,
        answer: Variants,
    ) -> zbus::Result<()>;

    /// Version of the program.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// Version of the interface.
    #[zbus(property(emits_changed_signal = "const"))]
    fn api_version(&self) -> u32 {
        API_VERSION
    }

    /// `GET /v1/board`.
    #[zbus(property)]
    #[expect(clippy::needless_pass_by_value, reason = "the interface macro hands headers over by value")]
    fn board(&self, #[zbus(header)] header: Option<Header<'_>>) -> Variants {
        self.property(&Request::Board, header.as_ref())
    }

    /// `GET /v1/state`.
    #[zbus(property)]
    #[expect(clippy::needless_pass_by_value, reason = "the interface macro hands headers over by value")]
    fn state(&self, #[zbus(header)] header: Option<Header<'_>>) -> Variants {
        self.property(&Request::State, header.as_ref())
    }

    /// Of the snapshot.
    #[zbus(property)]
    fn serial(&self) -> u64 {
        self.service.snapshot().serial
    }

    /// Names of what does not work.
    #[zbus(property)]
    fn degraded(&self) -> Vec<String> {
        self.service.snapshot().degraded.keys().map(|name| (*name).to_owned()).collect()
    }

    /// Why, by those names, each ending with the remedy.
    #[zbus(property)]
    fn degraded_evidence(&self) -> Variants {
        let snapshot = self.service.snapshot();
        snapshot.degraded.iter().map(|(name, reason)| ((*name).to_owned(), reason.clone().into())).collect()
    }
}

fn memory_file(bytes: &[u8]) -> std::io::Result<zbus::OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = std::fs::File::from(memfd_create("rooflined-diagnosis", flags)?);
    file.write_all(bytes)?;
    std::io::Seek::rewind(&mut file)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(std::os::fd::OwnedFd::from(file).into())
}

/// `io.github.rooflined.Rooflined1.Calibration`.
pub struct Calibration {
    service: Arc<Service>,
}

impl Calibration {
    pub const fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    async fn command(&self, command: Command) -> Result<u64, BusError> {
        match self.service.control.ask(command).await {
            Some(Reply::Started { job } | Reply::Finished { job } | Reply::Cancelled { job }) => Ok(job),
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            Some(_) => Err(answered_otherwise().into()),
            None => {
                Err(Code::ShuttingDown.error("the daemon is shutting down", "try again in a second").into())
            }
        }
    }
}

/// The sender of a call has not left since.
pub(super) async fn on_the_bus(connection: &Connection, header: &Header<'_>) -> bool {
    let Some(sender) = header.sender() else { return false };
    let Ok(bus) = DBusProxy::new(connection).await else { return false };
    bus.name_has_owner(BusName::Unique(sender.to_owned())).await.unwrap_or(false)
}

#[interface(name = "io.github.rooflined.Rooflined1.Calibration")]
impl Calibration {
    /// Starts a calibration: `plan` s (`full`, `quick`), `force` b. Gives the number of the job.
    async fn run(
        &self,
        options: HashMap<String, OwnedVariant>,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<u64, BusError> {
        let caller = caller(connection, &header).await?;
        let call = Call {
            route: Route::Calibrate,
            argument: None,
            query: "",
            body: &encode(&from_variants(&options)?)?.into(),
            file: None,
            caller: Caller::Peer(Some(&caller)),
        };
        match dispatch(&self.service.control, &self.service.snapshot(), call).await? {
            Accepted::Command { command: Command::Calibrate { wait: true, .. }, .. } => {
                let hint = "leave it out and wait for the signal Finished";
                Err(Code::InvalidField.at("wait", "a D-Bus call does not wait that long", hint).into())
            }
            Accepted::Command { command, .. } => self.command(command).await,
            _ => Err(answered_otherwise().into()),
        }
    }

    /// Stops a job.
    async fn cancel(
        &self,
        job: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(), BusError> {
        let caller = caller(connection, &header).await?;
        may_run(Some(&caller), self.service.snapshot().control_enabled)?;
        self.command(Command::Cancel { job: Some(job) }).await.map(drop)
    }

    /// A job moved on.
    #[zbus(signal)]
    pub async fn progress(
        emitter: &SignalEmitter<'_>,
        job: u64,
        fraction: f64,
        step: &str,
    ) -> zbus::Result<()>;

    /// A job ended.
    #[zbus(signal)]
    pub async fn finished(
        emitter: &SignalEmitter<'_>,
        job: u64,
        ok: bool,
        facts: Variants,
    ) -> zbus::Result<()>;

    /// The regimes of the record in force, the newest first.
    #[zbus(property)]
    fn records(&self) -> Vec<Variants> {
        let snapshot = self.service.snapshot();
        let record = snapshot.calibration.as_ref();
        let regimes = record.into_iter().flat_map(|record| {
            record.regimes.iter().map(move |regime| {
                json!({
                    "regime": regime.key, "measured_at_unix_s": regime.measured_at_unix_s,
                    "samples": regime.samples, "plan": record.plan, "simulated": record.simulated,
                    "loaded": regime.loaded,
                    "bandwidth_bytes_per_s": regime.roofline.bandwidth.value,
                    "compute_flops_per_s": regime.roofline.compute.iter()
                        .map(|(precision, ceiling)| (precision.key().to_owned(), json!(ceiling.value)))
                        .collect::<serde_json::Map<_, _>>(),
                    "launch_s": regime.roofline.launch.value,
                })
            })
        });
        regimes.map(to_variants).collect()
    }
}
