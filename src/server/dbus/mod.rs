//! D-Bus: the same answers as over HTTP, properties, and signals when advice goes stale.
//!
//! | name | `io.github.rooflined.Rooflined1` |
//! |---|---|
//! | path | `/io/github/rooflined/Rooflined1` |
//! | interfaces | `io.github.rooflined.Rooflined1`, `….Calibration`, `….Power` |
//! | errors | `….Error.{InvalidArgs,NotCalibrated,Busy,ControlDisabled,NotAuthorized,UnknownMode,RebootRequired,NotReached,Unsatisfiable,Failed}` |
//!
//! An `a{sv}` is the JSON object of the same name: strings are `s`, truths `b`, whole numbers `t` (negative `x`), others
//! `d`, lists `av`, objects `a{sv}`; `null` is left out. Requests may use any number type. Bodies are limited to
//! 64 KiB, as over HTTP.
//!
//! Who calls Subscribe with the body of a recommendation is notified by its own name when the answer has changed; that ends
//! with Unsubscribe, with its leaving, and with ours: subscribe again when the name has a new owner.
//!
//! A bus that goes away is noticed by the end of its socket and by a ping that is not answered; both are reported, and
//! the connection is tried again with growing pauses. HTTP knows nothing of it.

mod advice;
mod bounded;
mod callers;
mod convert;
mod error;
mod interface;
mod polkit;
mod power;
mod publish;
mod socket;
mod subscriptions;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zbus::connection::Builder;
use zbus::fdo::{self, DBusProxy, NameOwnerChangedStream, RequestNameFlags};
use zbus::names::{BusName, WellKnownName};
use zbus::{Address, Connection};

use self::bounded::{Bounded, Gate};
use self::polkit::Patience;
use self::power::Holders;
use self::socket::{BusSocket, Heard};
use super::service::Service;
use super::{Control, Snapshots};

pub use self::convert::{from_variants, to_variants};
pub use rooflined_config::Bus;

pub const NAME: &str = "io.github.rooflined.Rooflined1";
pub const PATH: &str = "/io/github/rooflined/Rooflined1";

/// How patient the adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Longest wait for the bus to accept us, or to answer a ping.
    pub patience: Duration,
    /// Longest wait for a user who is asked for a password.
    pub dialogue: Duration,
    /// Between two pings.
    pub ping: Duration,
    /// First pause before the next attempt; it doubles with each.
    pub shortest_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            dialogue: Duration::from_secs(120),
            ping: Duration::from_secs(30),
            shortest_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// Serves on the bus until `stop` resolves; connects again whenever the bus goes away. `on_state` is called with what does
/// not work (`Some`, for `Event::Degraded { name: "bus", … }`) and that it works again (`None`), on changes only.
pub async fn run(
    bus: Bus,
    snapshots: Snapshots,
    control: Control,
    on_state: impl Fn(Option<String>) + Send + Sync + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    run_at(Pace::default(), bus, snapshots, control, on_state, stop).await;
}

/// [`run`] at another pace.
pub async fn run_at(
    pace: Pace,
    bus: Bus,
    snapshots: Snapshots,
    control: Control,
    on_state: impl Fn(Option<String>) + Send + Sync + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    if bus == Bus::None {
        return stop.await;
    }
    let service = Arc::new(Service::new(snapshots, control, "dbus"));
    tokio::select! {
        () = keep_serving(pace, &bus, &service, on_state) => {}
        () = stop => {}
    }
}

/// Connects, serves, and begins again; never returns.
async fn keep_serving(pace: Pace, bus: &Bus, service: &Arc<Service>, on_state: impl Fn(Option<String>)) {
    let mut pause = pace.shortest_pause;
    let holders = Arc::new(Holders::default());
    // Whatever was said last; the same is not said twice.
    let mut said: Option<String> = None;
    loop {
        let problem = match tokio::time::timeout(pace.patience, connect(pace, bus, service, &holders)).await {
            Ok(Ok((connection, senders, heard))) => {
                pause = pace.shortest_pause;
                if said.take().is_some() {
                    on_state(None);
                }
                tracing::info!(%bus, name = NAME, "serving on the bus");
                let problem = serve(pace, (&connection, &heard), senders, service).await;
                holders.lose_bus();
                problem
            }
            Ok(Err(problem)) => problem,
            Err(_) => format!(
                "the {bus} bus did not answer within {:?}; restart it, or start rooflined with --bus none",
                pace.patience
            ),
        };
        if said.as_ref() != Some(&problem) {
            tracing::debug!(%bus, problem, "the bus does not work");
            on_state(Some(problem.clone()));
            said = Some(problem);
        }
        tokio::time::sleep(pause).await;
        holders.give_up(&service.control);
        pause = (pause * 2).min(pace.longest_pause);
    }
}

/// A connection that owns the name and has the object on it, who comes and goes on its bus, and how often that was heard.
async fn connect(
    pace: Pace,
    bus: &Bus,
    service: &Arc<Service>,
    holders: &Arc<Holders>,
) -> Result<(Connection, NameOwnerChangedStream, Heard), String> {
    let patience = Patience { plain: pace.patience, dialogue: pace.dialogue };
    let failed = |error: zbus::Error| {
        format!("the {bus} bus cannot be used ({error}); start it, or start rooflined with --bus none")
    };
    let gate = Arc::new(Gate::default());
    let rooflined = interface::Rooflined::new(Arc::clone(service), Arc::clone(&gate));
    let calibration = interface::Calibration::new(Arc::clone(service));
    let power = power::Power::new(Arc::clone(service), Arc::clone(holders), patience);
    let (builder, heard) = builder(bus).map_err(failed)?;
    let connection = builder
        .serve_at(PATH, Bounded::new(rooflined, Arc::clone(&gate)))
        .serve_at(PATH, Bounded::new(calibration, Arc::clone(&gate)))
        .serve_at(PATH, Bounded::new(power, Arc::clone(&gate)))
        // A caller that waits for less long says so.
        .method_timeout(pace.dialogue + pace.patience)
        .build()
        .await
        .map_err(failed)?;
    bound_properties(&connection, &gate).await.map_err(failed)?;
    let senders = power::senders(&connection).await.map_err(failed)?;
    holders.join(&connection, &service.control).await.map_err(failed)?;
    match connection.request_name_with_flags(NAME, RequestNameFlags::DO_NOT_QUEUE).await {
        Ok(_) => Ok((connection, senders, heard)),
        Err(zbus::Error::NameTaken) => Err(taken(bus, &connection).await),
        Err(error) => Err(format!(
            "the {bus} bus does not give out {NAME} ({error}); install the policy file \
             /usr/share/dbus-1/system.d/{NAME}.conf, or start rooflined with --bus none"
        )),
    }
}

/// A connection to be, through a socket that takes no large messages where the bus has a Unix socket, as every system bus
/// does.
fn builder(bus: &Bus) -> zbus::Result<(Builder<'static>, Heard)> {
    let address = match bus {
        Bus::Session => Address::session()?,
        Bus::Address(address) => address.parse()?,
        Bus::System | Bus::None => Address::system()?,
    };
    Ok(match BusSocket::connect(&address)? {
        Some(socket) => {
            let heard = Arc::clone(&socket.heard);
            (Builder::socket(socket), heard)
        }
        None => (Builder::address(address), Heard::default()),
    })
}

/// Puts the properties, which zbus adds to every object, behind the gate too: a read of all of them is as large an answer as
/// any.
async fn bound_properties(connection: &Connection, gate: &Arc<Gate>) -> zbus::Result<()> {
    let server = connection.object_server();
    server.remove::<fdo::Properties, _>(PATH).await?;
    server.at(PATH, Bounded::new(fdo::Properties, Arc::clone(gate))).await?;
    Ok(())
}

/// Who has our name.
async fn taken(bus: &Bus, connection: &Connection) -> String {
    let owner = owner(connection).await.unwrap_or_else(|_| "another program".to_owned());
    format!("{NAME} on the {bus} bus belongs to {owner}; stop that, or start rooflined with --bus none")
}

async fn owner(connection: &Connection) -> zbus::Result<String> {
    let proxy = DBusProxy::new(connection).await?;
    let owner = proxy.get_name_owner(BusName::from(WellKnownName::try_from(NAME)?)).await?;
    let credentials = proxy.get_connection_credentials(BusName::from(owner.clone())).await?;
    Ok(match credentials.process_id() {
        Some(pid) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} (pid {pid} {owner})", name.trim_end())
        }
        None => owner.to_string(),
    })
}

/// Publishes signals until the bus is gone; says how that showed.
async fn serve(
    pace: Pace,
    (connection, heard): (&Connection, &Heard),
    senders: NameOwnerChangedStream,
    service: &Arc<Service>,
) -> String {
    let mut publishing = pin!(publish::run(connection, service));
    let mut telling = pin!(advice::run(connection, service));
    let senders = power::watch_senders(connection, senders);
    let ping =
        || async { DBusProxy::new(connection).await?.get_id().await.map(drop).map_err(zbus::Error::from) };
    tokio::select! {
        () = connection.closed() => {
            "the bus closed the connection; it is tried again by itself, so start the bus again".to_owned()
        }
        problem = unanswered_ping(pace, heard, ping) => problem,
        error = senders => format!(
            "senders cannot be watched ({error}); the connection is tried again by itself, so check the bus"
        ),
        Err(error) = &mut telling => format!(
            "subscribers cannot be notified ({error}); the connection is tried again by itself, so check the bus"
        ),
        Err(error) = &mut publishing => format!(
            "signals cannot be sent ({error}); the connection is tried again by itself, so check the bus"
        ),
    }
}

/// Returns when a ping was not answered, and nothing else came meanwhile: behind many calls the answer may take longer.
async fn unanswered_ping<F>(pace: Pace, heard: &Heard, ping: impl Fn() -> F) -> String
where
    F: Future<Output = zbus::Result<()>>,
{
    loop {
        tokio::time::sleep(pace.ping).await;
        let before = heard.load(Ordering::Relaxed);
        match tokio::time::timeout(pace.patience, ping()).await {
            Ok(Ok(())) => {}
            Err(_) if heard.load(Ordering::Relaxed) != before => {}
            Ok(Err(error)) => {
                return format!(
                    "the bus does not answer ({error}); it is tried again by itself, so restart the bus"
                );
            }
            Err(_) => {
                return format!(
                    "the bus did not answer within {:?}; it is tried again by itself, so restart the bus",
                    pace.patience
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bus_that_is_busy_with_other_things_is_no_silent_one() {
        let tick = Duration::from_millis(2);
        let pace = Pace { ping: tick, patience: 100 * tick, ..Pace::default() };
        let heard = Heard::default();
        let talking = async {
            for _ in 0..300 {
                heard.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(tick).await;
            }
        };
        tokio::select! {
            problem = unanswered_ping(pace, &heard, std::future::pending) => panic!("{problem}"),
            () = talking => {}
        }
        let problem = unanswered_ping(pace, &heard, std::future::pending).await;
        assert!(problem.contains("did not answer"), "{problem}");
    }
}
