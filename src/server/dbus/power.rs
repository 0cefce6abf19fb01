//! `….Power`: modes and holds. A hold lasts until it is released, its time is over, or its sender leaves the bus.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use zbus::fdo::{DBusProxy, NameOwnerChangedStream};
use zbus::message::Header;
use zbus::names::BusName;
use zbus::object_server::{InterfaceRef, SignalEmitter};
use zbus::{Connection, OwnedVariant, interface};

use super::PATH;
use super::bounded::Bounded;
use super::callers::caller;
use super::convert::{Variants, from_variants, to_variants};
use super::error::BusError;
use super::interface::{Rooflined, answered_otherwise, on_the_bus};
use super::polkit::{self, Patience, Verdict};
use crate::server::access::{self, Peer};
use crate::server::command::encode;
use crate::server::dispatch::{Accepted, Answered, Call, Caller, Stream, dispatch};
use crate::server::events::end_of;
use crate::server::power::{self, ControlAnswer};
use crate::server::routes::Route;
use crate::server::service::Service;
use crate::server::{Attachment, Control, clock};
use rooflined_core::board::ClockBounds;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_governor::Client;
use rooflined_predict::snapshot::{Hold, Snapshot};

const SET_MODE: &str = "io.github.rooflined.set-mode";
const HOLD: &str = "io.github.rooflined.hold";

/// `io.github.rooflined.Rooflined1.Power`.
pub struct Power {
    service: Arc<Service>,
    holders: Arc<Holders>,
    patience: Patience,
}

/// How long holds wait for a bus that went away.
const LONGEST_ABSENCE: Duration = Duration::from_secs(30);

/// Every sender that has held, by its unique name. It outlives the connection to the bus: senders are still on the bus when
/// only ours was closed.
#[derive(Default)]
pub struct Holders {
    by_sender: Mutex<HashMap<String, Holder>>,
    /// The bus on which they have their names.
    bus: Mutex<Option<String>>,
    /// When that went away.
    lost_at: Mutex<Option<Instant>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Holders {
    /// Our connection was closed.
    pub fn lose_bus(&self) {
        locked(&self.lost_at).get_or_insert_with(Instant::now);
    }

    /// Ends the wait for a bus that has been away for too long.
    pub fn give_up(&self, control: &Control) {
        let lost_at = *locked(&self.lost_at);
        if lost_at.is_some_and(|lost_at| lost_at.elapsed() > LONGEST_ABSENCE) {
            *locked(&self.lost_at) = None;
            self.orphan(control);
        }
    }

    /// There is a connection: holders that are still on the same bus go on, and those that left it have left. On another bus
    /// the same names are others', so that holds wait for their clients as they do after a restart.
    pub async fn join(&self, connection: &Connection, control: &Control) -> zbus::Result<()> {
        let bus = DBusProxy::new(connection).await?;
        let id = bus.get_id().await?.to_string();
        let before = locked(&self.bus).replace(id.clone());
        *locked(&self.lost_at) = None;
        if before.is_some_and(|before| before != id) {
            self.orphan(control);
        }
        let senders: Vec<String> = locked(&self.by_sender).keys().cloned().collect();
        for sender in senders {
            if !bus.name_has_owner(BusName::try_from(sender.as_str())?).await? {
                locked(&self.by_sender).remove(&sender);
            }
        }
        Ok(())
    }

    /// A holder may come back under another name.
    fn orphan(&self, control: &Control) {
        for (_, holder) in locked(&self.by_sender).drain() {
            control.lost(holder.attachment.connection);
        }
    }
}

struct Holder {
    /// Ends its holds when it goes.
    attachment: Attachment,
    cookies: Vec<u64>,
}

impl Power {
    pub const fn new(service: Arc<Service>, holders: Arc<Holders>, patience: Patience) -> Self {
        Self { service, holders, patience }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<String, Holder>> {
        locked(&self.holders.by_sender)
    }

    /// The sender has left the bus.
    pub fn left(&self, sender: &str) {
        drop(self.holders().remove(sender));
    }

    /// Who was given this cookie.
    fn owner(&self, cookie: u64) -> Option<String> {
        let holders = self.holders();
        holders.iter().find(|(_, holder)| holder.cookies.contains(&cookie)).map(|(sender, _)| sender.clone())
    }

    /// A hold that is no longer in force is nobody's. True for the first who says so: who has to tell the owner.
    fn forget(&self, cookie: u64) -> bool {
        let mut holders = self.holders();
        let mut of_owner = holders.values_mut().map(|holder| &mut holder.cookies);
        let Some(cookies) = of_owner.find(|cookies| cookies.contains(&cookie)) else { return false };
        cookies.retain(|other| *other != cookie);
        true
    }

    /// A caller that may do `action`: as on the control socket, else if polkit says so.
    async fn caller(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        route: Route,
    ) -> Result<Caller<'static>, Refusal> {
        let peer = caller(connection, header).await?;
        let allowed = self.allowed(connection, header, route, &peer).await;
        allowed.inspect_err(|refusal| self.service.refused(route, &[], Some(peer.uid), refusal))
    }

    async fn allowed(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        route: Route,
        peer: &Peer,
    ) -> Result<Caller<'static>, Refusal> {
        let action =
            if matches!(route, Route::SetMode | Route::Confirm | Route::Revert) { SET_MODE } else { HOLD };
        let enabled = self.service.snapshot().control_enabled;
        match access::may_control(Some(peer), enabled) {
            Ok(uid) => Ok(Caller::Allowed(uid)),
            Err(error) if error.code == Code::NotAuthorized => {
                let verdict = polkit::ask(connection, header, action, self.patience).await;
                match verdict {
                    Verdict::Allowed => Ok(Caller::Allowed(peer.uid)),
                    Verdict::Denied => Err(error),
                    Verdict::AfterDialogue => Err(Code::NotAuthorized.error(
                        format!(
                            "polkit wants a password for {action}, and this call does not allow it to ask"
                        ),
                        "allow interactive authorization in the call (busctl does by default), and have an \
                         authentication agent running: pkttyagent in a terminal",
                    )),
                    Verdict::Dismissed => Err(Code::NotAuthorized.error(
                        format!("polkit asked for a password for {action} and was given none"),
                        "call again and answer it; a session without a desktop needs pkttyagent running",
                    )),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Checks and parses a request as the control socket would.
    async fn dispatch(&self, caller: Caller<'_>, asked: DbusCall<'_>) -> Result<Accepted, Refusal> {
        let DbusCall { route, argument, body } = asked;
        let body = body.map_or_else(|| Ok(Vec::new()), |body| encode(&body))?.into();
        let call = Call { route, argument, query: "", body: &body, file: None, caller };
        let accepted = dispatch(&self.service.control, &self.service.snapshot(), call).await;
        accepted.inspect_err(|refusal| self.service.refused(route, &body, caller.uid(), refusal))
    }

    async fn ask(&self, caller: Caller<'_>, asked: DbusCall<'_>) -> Result<Variants, BusError> {
        let (route, body) = (asked.route, asked.body.as_ref().map(Value::to_string).unwrap_or_default());
        let Accepted::Order { client, request } = self.dispatch(caller, asked).await? else {
            return Err(answered_otherwise().into());
        };
        let answer = power::ask(&self.service.control, clock::now, client, request).await;
        let answer = answer.inspect_err(|refusal| {
            self.service.refused(route, body.as_bytes(), Some(client.uid), refusal);
        })?;
        Ok(to_variants(json!(answer)))
    }
}

/// A request as the control socket would have it.
struct DbusCall<'a> {
    route: Route,
    argument: Option<&'a str>,
    body: Option<Value>,
}

/// A query is given as JSON.
fn parsed(query: Value) -> Result<Value, Refusal> {
    let Value::String(text) = query else { return Ok(query) };
    serde_json::from_str(&text).map_err(|error| {
        Code::InvalidJson.at(
            "query",
            format!("the query is not JSON: {error}"),
            "give the body of POST /v1/recommend as one string",
        )
    })
}

/// Who comes and goes. To be asked for before anybody can hold, so that nobody's leaving is missed.
pub async fn senders(connection: &Connection) -> zbus::Result<NameOwnerChangedStream> {
    DBusProxy::new(connection).await?.receive_name_owner_changed().await
}

/// Ends the holds and subscriptions of senders that leave the bus; returns when the bus fails.
pub async fn watch_senders(connection: &Connection, changes: NameOwnerChangedStream) -> zbus::Error {
    match end_what_leavers_had(connection, changes).await {
        // The stream ends with the connection.
        Ok(()) => zbus::Error::InputOutput(Arc::new(std::io::ErrorKind::ConnectionAborted.into())),
        Err(error) => error,
    }
}

async fn end_what_leavers_had(
    connection: &Connection,
    mut changes: NameOwnerChangedStream,
) -> zbus::Result<()> {
    let power: InterfaceRef<Bounded<Power>> = connection.object_server().interface(PATH).await?;
    let rooflined: InterfaceRef<Bounded<Rooflined>> = connection.object_server().interface(PATH).await?;
    let subscriptions = rooflined.get().await.subscriptions();
    while let Some(change) = changes.next().await {
        if let Ok(args) = change.args()
            && args.new_owner().is_none()
        {
            power.get().await.left(args.name().as_str());
            subscriptions.left(args.name().as_str());
        }
    }
    Ok(())
}

/// `GET /v1/holds`, the holds alone.
fn shown_holds(snapshot: &Snapshot) -> Vec<Variants> {
    let answer = power::holds(snapshot, clock::now());
    answer.holds.into_iter().map(|hold| to_variants(json!(hold))).collect()
}

#[interface(name = "io.github.rooflined.Rooflined1.Power")]
impl Power {
    /// Enters a mode by name: `confirm_within_s` d, `dry_run` b, `reason` s.
    async fn set_mode(
        &self,
        mode: &str,
        options: HashMap<String, OwnedVariant>,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Variants, BusError> {
        let caller = self.caller(connection, &header, Route::SetMode).await?;
        let mut body = from_variants(&options)?;
        body["mode"] = mode.into();
        self.ask(caller, DbusCall { route: Route::SetMode, argument: None, body: Some(body) }).await
    }

    /// Keeps a mode that waits to be confirmed.
    async fn confirm(
        &self,
        id: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(), BusError> {
        let caller = self.caller(connection, &header, Route::Confirm).await?;
        let body = Some(json!({ "id": id }));
        self.ask(caller, DbusCall { route: Route::Confirm, argument: None, body }).await.map(drop)
    }

    /// Goes back from a mode that waits to be confirmed.
    async fn revert(
        &self,
        id: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(), BusError> {
        let caller = self.caller(connection, &header, Route::Revert).await?;
        let body = Some(json!({ "id": id }));
        self.ask(caller, DbusCall { route: Route::Revert, argument: None, body }).await.map(drop)
    }

    /// Holds the machine to constraints until Release, the end of `ttl_s`, or the sender's leaving. One of them may be
    /// `query` s: the body of `POST /v1/recommend` in JSON.
    async fn hold(
        &self,
        constraints: HashMap<String, OwnedVariant>,
        app_id: &str,
        reason: &str,
        options: HashMap<String, OwnedVariant>,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(u64, Variants), BusError> {
        let caller = self.caller(connection, &header, Route::HoldAttached).await?;
        let mut body = from_variants(&options)?;
        let mut constraints = from_variants(&constraints)?;
        let query = constraints.as_object_mut().and_then(|constraints| constraints.remove("query"));
        if let Some(query) = query {
            body["query"] = parsed(query)?;
        }
        body["constraints"] = constraints;
        body["app_id"] = app_id.into();
        body["reason"] = reason.into();
        let meant = body.to_string();
        let asked = DbusCall { route: Route::HoldAttached, argument: None, body: Some(body) };
        let accepted = self.dispatch(caller, asked).await?;
        let Accepted::Answered(Answered::Stream(Stream::Hold { client, request })) = accepted else {
            return Err(answered_otherwise().into());
        };
        let control = &self.service.control;
        let sender = header.sender().map(ToString::to_string).unwrap_or_default();
        let number = {
            let mut holders = self.holders();
            let new = || Holder { attachment: Attachment::new(control.clone()), cookies: Vec::new() };
            holders.entry(sender.clone()).or_insert_with(new).attachment.connection
        };
        // From here on its leaving is noticed; if it left before, nobody will say so again.
        if !on_the_bus(connection, &header).await {
            self.left(&sender);
            return Err(Code::NotAuthorized
                .error("the caller has left the bus", "stay on it for as long as you hold")
                .into());
        }
        let client = Client { connection: number, ..client };
        let said = power::ask(&self.service.control, clock::now, client, request).await;
        let said = said.inspect_err(|refusal| {
            self.service.refused(Route::HoldAttached, meant.as_bytes(), Some(client.uid), refusal);
        })?;
        let ControlAnswer::Held(held) = said else {
            return Err(answered_otherwise().into());
        };
        // A sender that left meanwhile is no longer among the holders, and its number was reported closed; what was
        // granted after that ends here.
        let still_there = self.holders().get_mut(&sender).is_some_and(|holder| {
            let same = holder.attachment.connection == number;
            if same {
                holder.cookies.push(held.id);
            }
            same
        });
        if !still_there {
            self.service.control.closed(number);
        }
        Ok((held.id, to_variants(json!(held))))
    }

    /// Holds on for another `ttl_s` from now.
    async fn renew_hold(
        &self,
        id: u64,
        ttl_s: u32,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(), BusError> {
        let caller = self.caller(connection, &header, Route::Renew).await?;
        let (id, body) = (id.to_string(), Some(json!({ "ttl_s": ttl_s })));
        self.ask(caller, DbusCall { route: Route::Renew, argument: Some(&id), body }).await.map(drop)
    }

    /// Lets go.
    async fn release(
        &self,
        id: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<(), BusError> {
        let caller = self.caller(connection, &header, Route::Release).await?;
        let cookie = id.to_string();
        self.ask(caller, DbusCall { route: Route::Release, argument: Some(&cookie), body: None }).await?;
        if let Err(error) = tell_end(self, &emitter, id, "released").await {
            tracing::debug!(%error, "the end of a hold could not be signalled");
        }
        Ok(())
    }

    /// Another mode is active: from, to, cause, details.
    #[zbus(signal)]
    pub async fn mode_changed(
        emitter: &SignalEmitter<'_>,
        from: &str,
        to: &str,
        cause: &str,
        details: Variants,
    ) -> zbus::Result<()>;

    /// To its owner: whether the mode in force meets a hold, and which mode that is.
    #[zbus(signal)]
    pub async fn hold_changed(
        emitter: &SignalEmitter<'_>,
        id: u64,
        satisfied: bool,
        mode: &str,
    ) -> zbus::Result<()>;

    /// To its owner: a hold has ended, and how.
    #[zbus(signal)]
    pub async fn hold_released(emitter: &SignalEmitter<'_>, id: u64, cause: &str) -> zbus::Result<()>;

    /// Every power mode of the machine.
    #[zbus(property)]
    fn modes(&self) -> Vec<Variants> {
        let snapshot = self.service.snapshot();
        let views = &snapshot.modes;
        (snapshot.board.power_modes().iter())
            .map(|mode| {
                let view = views.iter().find(|view| view.mode.is(&mode.key()));
                let worst = view.and_then(|view| view.worst_power);
                to_variants(json!({
                    "id": mode.id, "name": mode.name, "cores_online": mode.cores_online,
                    "cpu_min_hz": mode.min_clock(ClockBounds::is_cpu), "cpu_max_hz": mode.cpu_max,
                    "gpu_min_hz": mode.min_clock(|clock| clock.name == "GPU"), "gpu_max_hz": mode.gpu_max,
                    "emc_max_hz": mode.memory_max, "other_clocks": rooflined_advice::other_clocks(mode),
                    "sm_online": mode.sm_online, "tpc_mask": mode.tpc_mask,
                    "reboot_required": view.and_then(|view| view.reboot_required),
                    "unreachable": view.and_then(|view| view.unreachable.as_ref()),
                    "measured_power_w": view.and_then(|view| view.measured_power),
                    "worst_power_w": worst.map(|worst| worst.watts),
                    "worst_power_source": worst.map(|worst| worst.source.key()),
                }))
            })
            .collect()
    }

    /// Its name; empty where nothing tells it.
    #[zbus(property)]
    fn active_mode(&self) -> String {
        let snapshot = self.service.snapshot();
        snapshot.state.power_mode.known().map(|mode| mode.name.clone()).unwrap_or_default()
    }

    /// `boot`, `user`, `hold`, `revert` or `external`.
    #[zbus(property)]
    fn active_mode_cause(&self) -> String {
        self.service.snapshot().power.cause.key().to_owned()
    }

    /// Who holds the machine to what; nobody is shown what releases another's hold.
    #[zbus(property)]
    fn holds(&self) -> Vec<Variants> {
        shown_holds(&self.service.snapshot())
    }

    /// `[control] enabled`.
    #[zbus(property)]
    fn control_enabled(&self) -> bool {
        self.service.snapshot().control_enabled
    }
}

pub(super) fn addressed<'a>(emitter: &SignalEmitter<'a>, owner: String) -> zbus::Result<SignalEmitter<'a>> {
    Ok(emitter.to_owned().set_destination(BusName::try_from(owner)?))
}

/// Tells the owner of a hold that it has ended, unless somebody else has.
async fn tell_end(power: &Power, emitter: &SignalEmitter<'_>, cookie: u64, cause: &str) -> zbus::Result<()> {
    match power.owner(cookie) {
        Some(owner) if power.forget(cookie) => {
            Power::hold_released(&addressed(emitter, owner)?, cookie, cause).await
        }
        _ => Ok(()),
    }
}

/// Tells each owner what became of its holds.
pub async fn tell_owners(
    power: &Power,
    emitter: &SignalEmitter<'_>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    let mode = new.state.power_mode.known().map(|mode| mode.name.as_str()).unwrap_or_default();
    for hold in &old.power.holds {
        let now: Option<&Hold> = new.power.holds.iter().find(|other| other.cookie == hold.cookie);
        match now {
            None => tell_end(power, emitter, hold.cookie, end_of(hold, new)).await?,
            Some(now) if now.satisfied != hold.satisfied => {
                if let Some(owner) = power.owner(hold.cookie) {
                    let owner = addressed(emitter, owner)?;
                    Power::hold_changed(&owner, hold.cookie, now.satisfied, mode).await?;
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}
