//! Modes and holds over the bus, with the real governor.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rooflined::server::dbus::{Bus, NAME, PATH, from_variants};
use rooflined_governor::{Event, Policy};
use rooflined_predict::snapshot::{Automatic, Snapshot};
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};
use zbus::connection::Builder;
use zbus::proxy::MethodFlags;
use zbus::{Connection, OwnedVariant, Proxy};

use super::{Variants, error_of, proxy, variants, wait_for_name};
use crate::support::bus::PrivateBus;
use crate::support::governed::{Daemon, policy};

const POWER: &str = "io.github.rooflined.Rooflined1.Power";
const NOBODY: u32 = 65534;

/// A daemon with modes on a bus, and a client that may control.
struct Rig {
    bus: PrivateBus,
    daemon: Daemon,
    client: Connection,
}

async fn joined(address: &str) -> Connection {
    Builder::address(address).build().await.unwrap()
}

fn with_modes<F: Future<Output = ()>>(policy: &Policy, test: impl FnOnce(Rig) -> F) {
    let Some(bus) = PrivateBus::start() else { return };
    let daemon = Daemon::start_on(policy, Bus::Address(bus.address()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = joined(&bus.address()).await;
        wait_for_name(&client).await;
        let rig = Rig { bus, daemon, client };
        tokio::time::timeout(Duration::from_secs(60), test(rig)).await.unwrap();
    });
}

/// As [`Daemon::until`], while the clients go on.
async fn until(daemon: &Daemon, what: &str, done: impl Fn(&Snapshot) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done(&daemon.snapshots.borrow()) {
        assert!(Instant::now() < end, "{what} did not come: {:?}", daemon.snapshots.borrow().power);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn json_of(variants: &Variants) -> Value {
    from_variants(variants).unwrap()
}

async fn set_mode(power: &Proxy<'_>, mode: &str, options: &str) -> zbus::Result<Value> {
    let answer: Variants = power.call("SetMode", &(mode, variants(options))).await?;
    Ok(json_of(&answer))
}

async fn hold(power: &Proxy<'_>, constraints: &str, options: &str) -> zbus::Result<(u64, Value)> {
    let request = (variants(constraints), "a test", "for a reason", variants(options));
    let (cookie, answer): (u64, Variants) = power.call("Hold", &request).await?;
    Ok((cookie, json_of(&answer)))
}

async fn property(power: &Proxy<'_>, name: &str) -> String {
    // Past the cache of the proxy, which follows signals.
    let properties = proxy(power.connection(), "org.freedesktop.DBus.Properties").await;
    let value: OwnedVariant = properties.call("Get", &(POWER, name)).await.unwrap();
    String::try_from(value).unwrap()
}

async fn list(power: &Proxy<'_>, name: &str) -> Vec<Value> {
    let properties = proxy(power.connection(), "org.freedesktop.DBus.Properties").await;
    let all: Variants = properties.call("GetAll", &POWER).await.unwrap();
    json_of(&all)[name].as_array().unwrap().clone()
}

#[test]
fn properties_show_modes_and_who_holds() {
    with_modes(&policy(), async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let modes = list(&power, "Modes").await;
        let names: Vec<&Value> = modes.iter().map(|mode| &mode["name"]).collect();
        assert_eq!(names, ["25W", "15W", "7W", "MAXN"]);
        assert_eq!((&modes[1]["id"], &modes[1]["gpu_max_hz"]), (&json!(2), &json!(612e6)));
        assert_eq!(modes[1]["gpu_min_hz"], json!(306e6));
        assert_eq!(modes[1]["other_clocks"], json!([{ "name": "DLA0_CORE", "max_hz": 614.4e6 }]));
        assert!(modes[1].get("cpu_min_hz").is_none(), "what is unknown is left out here");
        assert_eq!(
            (&modes[1]["reboot_required"], &modes[3]["reboot_required"]),
            (&json!(false), &json!(true))
        );
        assert!(modes[3]["unreachable"].as_str().unwrap().contains("reboot"));
        // What a hold with `max_power_w` goes by; nothing was read in MAXN, and what is unknown is left out here.
        assert_eq!(modes[2]["worst_power_source"], "measured");
        // The highest reading, and 30 % for loads that were not held.
        let worst = 7.0 * 0.7 * 1.3;
        assert!((modes[2]["worst_power_w"].as_f64().unwrap() - worst).abs() < 1e-9, "{:?}", modes[2]);
        assert!(modes[3].get("worst_power_w").is_none() && modes[3].get("worst_power_source").is_none());
        assert_eq!(property(&power, "ActiveMode").await, "25W");
        assert_eq!(property(&power, "ActiveModeCause").await, "boot");
        assert!(list(&power, "Holds").await.is_empty());
        assert!(power.get_property::<bool>("ControlEnabled").await.unwrap());
        let (cookie, _) = hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        let holds = list(&power, "Holds").await;
        assert_eq!(holds.len(), 1);
        let facts = ["app_id", "reason", "attached", "satisfied"].map(|name| holds[0][name].clone());
        assert_eq!(json!(facts), json!(["a test", "for a reason", true, true]));
        assert_eq!(holds[0]["constraints"], json!({ "max_power_w": 15.0 }));
        assert!(!holds[0].to_string().contains(&cookie.to_string()), "what releases it is its owner's");
        assert_eq!(property(&power, "ActiveMode").await, "7W");
        assert_eq!(property(&power, "ActiveModeCause").await, "hold");
    });
}

#[test]
fn a_switch_is_tried_confirmed_or_taken_back() {
    with_modes(&policy(), async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let mut changes = power.receive_signal("ModeChanged").await.unwrap();
        let mut changed = async || -> (String, String, String) {
            let message = changes.next().await.unwrap();
            let (from, to, cause, details): (_, _, _, Variants) = message.body().deserialize().unwrap();
            assert_eq!(json_of(&details)["simulated"], false);
            (from, to, cause)
        };
        let expected = |from: &str, to: &str, cause: &str| (from.to_owned(), to.to_owned(), cause.to_owned());
        let answer = set_mode(&power, "15W", r#"{"dry_run":true}"#).await.unwrap();
        assert_eq!((&answer["dry_run"], &answer["reached"]), (&json!(true), &json!("25W")), "{answer}");
        let answer = set_mode(&power, "15w", r#"{"confirm_within_s":1,"reason":"a try"}"#).await.unwrap();
        assert_eq!((&answer["outcome"], &answer["reached"]), (&json!("applied"), &json!("15W")));
        assert_eq!(changed().await, expected("25W", "15W", "user"));
        assert_eq!(error_of(set_mode(&power, "7W", "{}").await).0, "Busy");
        assert_eq!(changed().await, expected("15W", "25W", "revert"), "it was not confirmed");
        let answer = set_mode(&power, "15W", r#"{"confirm_within_s":60}"#).await.unwrap();
        let id = answer["confirm"]["id"].as_u64().unwrap();
        assert_eq!(error_of(power.call::<_, _, ()>("Confirm", &(id + 1)).await).0, "InvalidArgs");
        power.call::<_, _, ()>("Confirm", &id).await.unwrap();
        assert_eq!(changed().await, expected("25W", "15W", "user"));
        assert_eq!(error_of(power.call::<_, _, ()>("Confirm", &id).await).0, "InvalidArgs");
        let answer = set_mode(&power, "25W", r#"{"confirm_within_s":60}"#).await.unwrap();
        assert_eq!(changed().await, expected("15W", "25W", "user"));
        power.call::<_, _, ()>("Revert", &answer["confirm"]["id"].as_u64().unwrap()).await.unwrap();
        assert_eq!(changed().await, expected("25W", "15W", "revert"));
        assert_eq!(property(&power, "ActiveMode").await, "15W");
    });
}

#[test]
fn owners_of_holds_are_told_what_becomes_of_them_and_nobody_else() {
    with_modes(&policy(), async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let other = joined(&rig.bus.address()).await;
        let other = proxy(&other, POWER).await;
        let mut released = power.receive_signal("HoldReleased").await.unwrap();
        let mut changed = power.receive_signal("HoldChanged").await.unwrap();
        let mut told_other = other.receive_signal("HoldReleased").await.unwrap();
        let mut ended =
            async || -> (u64, String) { released.next().await.unwrap().body().deserialize().unwrap() };

        let (cookie, held) = hold(&power, r#"{"max_power_w":15}"#, r#"{"ttl_s":60}"#).await.unwrap();
        assert_eq!((&held["mode"], &held["id"]), (&json!("7W"), &json!(cookie)));
        assert!((59.0..=60.0).contains(&held["expires_in_s"].as_f64().unwrap()), "{held}");
        power.call::<_, _, ()>("RenewHold", &(cookie, 3600_u32)).await.unwrap();
        assert!(list(&power, "Holds").await[0]["expires_in_s"].as_f64().unwrap() > 3500.0);
        power.call::<_, _, ()>("Release", &cookie).await.unwrap();
        assert_eq!(ended().await, (cookie, "released".to_owned()));
        assert_eq!(error_of(power.call::<_, _, ()>("Release", &cookie).await).0, "InvalidArgs");
        assert_eq!(error_of(power.call::<_, _, ()>("RenewHold", &(cookie, 60_u32)).await).0, "InvalidArgs");

        let (cookie, _) = hold(&power, r#"{"max_power_w":15}"#, r#"{"ttl_s":1}"#).await.unwrap();
        assert_eq!(ended().await, (cookie, "expired".to_owned()));

        let (cookie, _) = hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        rig.daemon.switch_behind_its_back(0, "25W");
        let facts: (u64, bool, String) = changed.next().await.unwrap().body().deserialize().unwrap();
        assert_eq!(facts, (cookie, false, "25W".to_owned()));
        assert_eq!(property(&power, "ActiveModeCause").await, "external");
        // An administrator's doing, elsewhere; then the owner has none left.
        other.call::<_, _, ()>("Release", &cookie).await.unwrap();
        assert_eq!(ended().await, (cookie, "released".to_owned()));
        let more = tokio::time::timeout(Duration::from_millis(300), async {
            tokio::select! { _ = ended() => "twice", _ = told_other.next() => "somebody else" }
        });
        assert_eq!(more.await.ok(), None);
    });
}

#[test]
fn refusals_of_control_are_named_errors_that_end_with_the_remedy() {
    with_modes(&policy(), async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let refused = |error: (String, String), name: &str, remedy: &str| {
            assert_eq!(error.0, name, "{}", error.1);
            let hint = error.1.split_once("; ").unwrap().1;
            assert!(hint.contains(remedy), "{}", error.1);
        };
        let switch = async |mode: &str, options: &str| error_of(set_mode(&power, mode, options).await);
        let held = async |wanted: &str, options: &str| error_of(hold(&power, wanted, options).await);
        refused(switch("16W", "{}").await, "UnknownMode", "15W");
        refused(switch("MAXN", "{}").await, "RebootRequired", "nvpmodel -m 8");
        refused(switch("", "{}").await, "InvalidArgs", "give 1 to 128 printable");
        refused(switch("15W", r#"{"confirm_within_s":0}"#).await, "InvalidArgs", "from 1 to 3600");
        refused(switch("15W", r#"{"dryrun":true}"#).await, "InvalidArgs", "dry_run");
        refused(switch("15W", r#"{"dry_run":"yes"}"#).await, "InvalidArgs", "");
        refused(held("{}", "{}").await, "InvalidArgs", "max_power_w");
        refused(held(r#"{"max_power_w":-1}"#, "{}").await, "InvalidArgs", "above zero");
        refused(held(r#"{"watts":1}"#, "{}").await, "InvalidArgs", "");
        refused(held(r#"{"mode":"16W"}"#, "{}").await, "UnknownMode", "15W");
        refused(held(r#"{"max_power_w":15}"#, r#"{"ttl_s":0}"#).await, "InvalidArgs", "from 1 to 604800");
        refused(held(r#"{"max_power_w":1}"#, "{}").await, "Unsatisfiable", "relax");
        hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        refused(switch("25W", "{}").await, "Busy", "wait for its end");
        refused(held(r#"{"min_gpu_hz":9e8}"#, "{}").await, "Unsatisfiable", "wait for the end");
        for _ in 1..16 {
            hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        }
        refused(held(r#"{"max_power_w":15}"#, "{}").await, "Busy", "release one");
    });
}

#[test]
fn nothing_is_controlled_over_the_bus_before_control_is_enabled() {
    with_modes(&Policy { control_enabled: false, ..policy() }, async |rig| {
        let power = proxy(&rig.client, POWER).await;
        assert!(!power.get_property::<bool>("ControlEnabled").await.unwrap());
        for error in [
            error_of(set_mode(&power, "15W", r#"{"dry_run":true}"#).await),
            error_of(hold(&power, r#"{"max_power_w":15}"#, "{}").await),
            error_of(power.call::<_, _, ()>("Confirm", &1_u64).await),
            error_of(power.call::<_, _, ()>("Revert", &1_u64).await),
            error_of(power.call::<_, _, ()>("RenewHold", &(1_u64, 5_u32)).await),
            error_of(power.call::<_, _, ()>("Release", &1_u64).await),
        ] {
            assert_eq!(error.0, "ControlDisabled");
            assert!(error.1.contains("; set enabled = true"), "{}", error.1);
        }
        assert_eq!(*rig.daemon.switches.lock().unwrap(), 0);
    });
}

#[test]
fn holds_of_clients_that_leave_the_bus_end() {
    with_modes(&policy(), async |rig| {
        let mut granted = 0;
        for round in 0..12 {
            let mut clients = Vec::new();
            for number in 0..8 {
                let client = joined(&rig.bus.address()).await;
                let power = proxy(&client, POWER).await;
                let watts = if round % 2 == 0 { r#"{"max_power_w":15}"# } else { r#"{"max_power_w":25}"# };
                if number % 2 == 0 {
                    hold(&power, watts, "{}").await.unwrap();
                    granted += 1;
                } else {
                    // Gone before the answer, at one moment or another.
                    let asked = hold(&power, watts, "{}");
                    let _ = tokio::time::timeout(Duration::from_micros(150 * round), asked).await;
                }
                clients.push(client);
            }
            for client in clients {
                client.close().await.unwrap();
            }
            until(&rig.daemon, "the end of the holds", |snapshot| snapshot.power.holds.is_empty()).await;
        }
        // A late grant would be a leak as well.
        tokio::time::sleep(Duration::from_millis(500)).await;
        until(&rig.daemon, "the mode of before", |snapshot| {
            let mode = snapshot.state.power_mode.known().unwrap();
            snapshot.power.holds.is_empty() && mode.name == "25W"
        })
        .await;
        println!("{granted} of 96 clients held for sure, 0 holds left");
    });
}

/// The client has the same name as before, so it goes on holding, and its leaving is noticed.
#[test]
fn a_hold_goes_on_where_only_our_connection_to_the_bus_is_lost() {
    with_modes(&policy(), async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let (cookie, _) = hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        let switches = *rig.daemon.switches.lock().unwrap();
        rig.bus.freeze();
        // A ping is not answered, and the connection is given up.
        tokio::time::sleep(Duration::from_secs(4)).await;
        rig.bus.thaw();
        // Of the new connection.
        wait_for_name(&rig.client).await;
        until(&rig.daemon, "the hold", |snapshot| {
            snapshot.power.holds.iter().any(|hold| hold.cookie == cookie && !hold.is_waiting())
        })
        .await;
        let end = Instant::now() + Duration::from_secs(10);
        while power.call::<_, _, ()>("RenewHold", &(cookie, 60_u32)).await.is_err() {
            assert!(Instant::now() < end, "the daemon is on the bus again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(*rig.daemon.switches.lock().unwrap(), switches, "nothing was switched");
        rig.client.close().await.unwrap();
        until(&rig.daemon, "the end of the hold", |snapshot| snapshot.power.holds.is_empty()).await;
    });
}

#[test]
fn a_hold_waits_for_its_client_where_the_bus_itself_ends() {
    with_modes(&policy(), async |mut rig| {
        let power = proxy(&rig.client, POWER).await;
        let (cookie, _) = hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        rig.bus.kill();
        rig.bus.restart();
        let client = joined(&rig.bus.address()).await;
        wait_for_name(&client).await;
        until(&rig.daemon, "the wait", |snapshot| {
            snapshot.power.holds.iter().any(rooflined_predict::snapshot::Hold::is_waiting)
        })
        .await;
        let again = hold(&proxy(&client, POWER).await, r#"{"max_power_w":15}"#, "{}").await.unwrap();
        assert_eq!(again.0, cookie, "it is the same hold");
        client.close().await.unwrap();
        until(&rig.daemon, "the end of the hold", |snapshot| snapshot.power.holds.is_empty()).await;
    });
}

/// What polkit says, and what it was asked: kind and name of the subject, action, flags.
#[derive(Default)]
struct Opinion {
    allowed: &'static [&'static str],
    /// It would ask for a password, and does where it may; then this is how long the user takes.
    challenge: Option<Duration>,
    silent: bool,
    asked: Vec<(String, String, String, u32)>,
    /// Identifiers under which it was asked, and of what was cancelled.
    cancellable: Vec<String>,
    cancelled: Vec<String>,
}

/// A polkit with an opinion.
struct Authority(Arc<Mutex<Opinion>>);

type Subject = (String, HashMap<String, OwnedVariant>);

#[zbus::interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    async fn check_authorization(
        &self,
        subject: Subject,
        action: &str,
        details: HashMap<String, String>,
        flags: u32,
        cancellation: &str,
    ) -> ((bool, bool, HashMap<String, String>),) {
        assert!(details.is_empty(), "only root may pass details on");
        let name = String::try_from(subject.1["name"].try_clone().unwrap()).unwrap();
        let (allowed, challenge, silent) = {
            let mut opinion = self.0.lock().unwrap();
            opinion.asked.push((subject.0, name, action.to_owned(), flags));
            opinion.cancellable.push(cancellation.to_owned());
            (opinion.allowed.contains(&action), opinion.challenge, opinion.silent)
        };
        if silent {
            std::future::pending::<()>().await;
        }
        match challenge {
            Some(_) if flags == 0 => return ((false, true, HashMap::new()),),
            Some(takes) => tokio::time::sleep(takes).await,
            None => {}
        }
        ((allowed, false, HashMap::new()),)
    }

    fn cancel_check_authorization(&self, cancellation: &str) {
        self.0.lock().unwrap().cancelled.push(cancellation.to_owned());
    }
}

/// What a client of user nobody makes of it; `None`, said aloud, where this user cannot become another.
async fn as_nobody<T: Send + 'static>(
    bus: &PrivateBus,
    test: impl AsyncFnOnce(Proxy<'static>) -> T + Send + 'static,
) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: only root can be a stranger as well; run as root");
        return None;
    }
    let address = bus.address();
    let stranger = move || {
        // Of this thread alone.
        rustix::thread::set_thread_groups(&[]).unwrap();
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = joined(&address).await;
            let power = Proxy::new(&client, NAME, PATH, POWER).await.unwrap();
            let outcome = test(power).await;
            client.close().await.unwrap();
            outcome
        })
    };
    let thread = std::thread::spawn(stranger);
    Some(tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap())
}

async fn refusals(power: Proxy<'static>) -> [String; 2] {
    let name = |error: (String, String)| {
        assert!(error.1.contains("; ask as root, or join the group"), "{}", error.1);
        error.0
    };
    [
        name(error_of(set_mode(&power, "15W", "{}").await)),
        name(error_of(hold(&power, r#"{"max_power_w":15}"#, "{}").await)),
    ]
}

#[test]
fn the_policy_has_the_actions_and_lets_the_daemon_ask_about_others() {
    let policy = include_str!("../../../config/polkit/io.github.rooflined.policy");
    for action in ["io.github.rooflined.set-mode", "io.github.rooflined.hold"] {
        let (_, text) = policy.split_once(&format!("<action id=\"{action}\">")).unwrap();
        let (text, _) = text.split_once("</action>").unwrap();
        // Without it polkit refuses every question of a daemon that is not root.
        assert!(
            text.contains(
                r#"<annotate key="org.freedesktop.policykit.owner">unix-user:rooflined</annotate>"#
            )
        );
        assert!(text.contains("<allow_any>no</allow_any>"), "{action}");
    }
}

#[test]
fn strangers_are_denied_where_there_is_no_polkit() {
    with_modes(&policy(), async |rig| {
        let Some(names) = as_nobody(&rig.bus, refusals).await else { return };
        assert_eq!(names, ["NotAuthorized", "NotAuthorized"]);
        assert_eq!(
            as_nobody(&rig.bus, async |power| property(&power, "ActiveMode").await).await.unwrap(),
            "25W"
        );
        assert_eq!(*rig.daemon.switches.lock().unwrap(), 0);
    });
}

#[test]
fn polkit_is_asked_about_strangers_and_obeyed() {
    with_modes(&policy(), async |rig| {
        let opinion = Arc::new(Mutex::new(Opinion::default()));
        let _polkit = Builder::address(rig.bus.address().as_str())
            .serve_at("/org/freedesktop/PolicyKit1/Authority", Authority(Arc::clone(&opinion)))
            .name("org.freedesktop.PolicyKit1")
            .build()
            .await
            .unwrap();
        let asked = async |power: Proxy<'static>| {
            let own = power.connection().unique_name().unwrap().to_string();
            (own, refusals(power).await)
        };
        let Some((own, names)) = as_nobody(&rig.bus, asked).await else { return };
        assert_eq!(names, ["NotAuthorized", "NotAuthorized"]);
        let about = |action: &str| ("system-bus-name".into(), own.clone(), action.to_owned(), 0);
        let expected = [about("io.github.rooflined.set-mode"), about("io.github.rooflined.hold")];
        assert_eq!(std::mem::take(&mut opinion.lock().unwrap().asked), expected);

        let power = proxy(&rig.client, POWER).await;
        let (of_root, _) = hold(&power, r#"{"max_power_w":25}"#, "{}").await.unwrap();
        assert!(opinion.lock().unwrap().asked.is_empty(), "root needs no polkit");
        opinion.lock().unwrap().allowed = &["io.github.rooflined.hold"];
        let holds = async move |power: Proxy<'static>| {
            let (own, held) = hold(&power, r#"{"max_power_w":15}"#, "{}").await.unwrap();
            assert_eq!(held["mode"], "7W");
            let switch = error_of(set_mode(&power, "15W", "{}").await).0;
            let release = error_of(power.call::<_, _, ()>("Release", &of_root).await);
            assert!(release.1.contains("another user's hold"), "{}", release.1);
            power.call::<_, _, ()>("RenewHold", &(own, 60_u32)).await.unwrap();
            let uids: Vec<Value> =
                list(&power, "Holds").await.into_iter().map(|hold| hold["uid"].clone()).collect();
            (switch, release.0, uids)
        };
        let (switch, release, uids) = as_nobody(&rig.bus, holds).await.unwrap();
        assert_eq!((switch.as_str(), release.as_str()), ("NotAuthorized", "NotAuthorized"));
        assert_eq!(uids, [json!(0), json!(NOBODY)]);
        until(&rig.daemon, "the end of the stranger's hold", |snapshot| snapshot.power.holds.len() == 1)
            .await;
        power.call::<_, _, ()>("Release", &of_root).await.unwrap();
        opinion.lock().unwrap().allowed = &["io.github.rooflined.set-mode"];
        let switched = async |power: Proxy<'static>| {
            (
                set_mode(&power, "15W", "{}").await.unwrap(),
                hold(&power, r#"{"max_power_w":15}"#, "{}").await.is_err(),
            )
        };
        let (answer, denied) = as_nobody(&rig.bus, switched).await.unwrap();
        assert_eq!((&answer["reached"], denied), (&json!("15W"), true));
        opinion.lock().unwrap().silent = true;
        assert_eq!(as_nobody(&rig.bus, refusals).await.unwrap(), ["NotAuthorized", "NotAuthorized"]);
    });
}

/// SetMode by a caller who is prepared to be asked for a password.
async fn set_mode_after_dialogue(power: &Proxy<'_>, mode: &str) -> zbus::Result<()> {
    let body = (mode, HashMap::<&str, OwnedVariant>::new());
    let answer: Option<Variants> =
        power.call_with_flags("SetMode", MethodFlags::ALLOW_INTERACTIVE_AUTH, &body).await?;
    answer.map(drop).ok_or(zbus::Error::InvalidReply)
}

#[test]
fn a_password_is_asked_for_only_where_the_caller_allows_it_and_may_take_its_time() {
    with_modes(&policy(), async |rig| {
        // Longer than any other call is waited for.
        let takes = Duration::from_millis(2500);
        let opinion = Opinion {
            allowed: &["io.github.rooflined.set-mode"],
            challenge: Some(takes),
            ..Opinion::default()
        };
        let opinion = Arc::new(Mutex::new(opinion));
        let _polkit = Builder::address(rig.bus.address().as_str())
            .serve_at("/org/freedesktop/PolicyKit1/Authority", Authority(Arc::clone(&opinion)))
            .name("org.freedesktop.PolicyKit1")
            .build()
            .await
            .unwrap();
        let both = async |power: Proxy<'static>| {
            let (name, text) = error_of(set_mode(&power, "15W", "{}").await);
            assert!(text.contains("wants a password") && text.contains("pkttyagent"), "{text}");
            let began = Instant::now();
            set_mode_after_dialogue(&power, "15W").await.unwrap();
            (name, began.elapsed())
        };
        let Some((name, took)) = as_nobody(&rig.bus, both).await else { return };
        assert_eq!(name, "NotAuthorized");
        assert!(took >= takes);
        let flags: Vec<u32> = opinion.lock().unwrap().asked.iter().map(|asked| asked.3).collect();
        assert_eq!(flags, [0, 1]);
        assert!(opinion.lock().unwrap().cancelled.is_empty());

        // Nobody answers: the call is refused and the dialogue closed, by the name that it was opened under.
        opinion.lock().unwrap().silent = true;
        let denied = async |power: Proxy<'static>| set_mode_after_dialogue(&power, "25W").await.is_err();
        assert!(as_nobody(&rig.bus, denied).await.unwrap());
        let opened = opinion.lock().unwrap().cancellable.last().cloned().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while opinion.lock().unwrap().cancelled != [opened.clone()] {
            assert!(Instant::now() < end, "{:?}", opinion.lock().unwrap().cancelled);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Signals to the daemon that look like polkit's consent to each of its first calls.
async fn forge_consents(forger: &Connection) {
    let consent = ((true, false, HashMap::<&str, &str>::new()),);
    for serial in 1..300_u32 {
        let forged = zbus::Message::signal("/", "org.example.Forger", "Consent")
            .destination(NAME)
            .reply_serial(std::num::NonZeroU32::new(serial))
            .build(&consent)
            .unwrap();
        forger.send(&forged).await.unwrap();
    }
}

#[test]
fn a_signal_with_the_serial_of_a_question_to_polkit_is_no_answer() {
    with_modes(&policy(), async |rig| {
        let opinion = Arc::new(Mutex::new(Opinion { silent: true, ..Opinion::default() }));
        let _polkit = Builder::address(rig.bus.address().as_str())
            .serve_at("/org/freedesktop/PolicyKit1/Authority", Authority(Arc::clone(&opinion)))
            .name("org.freedesktop.PolicyKit1")
            .build()
            .await
            .unwrap();
        let forger = joined(&rig.bus.address()).await;
        let forging = async {
            let end = Instant::now() + Duration::from_secs(10);
            while opinion.lock().unwrap().asked.is_empty() {
                assert!(Instant::now() < end, "polkit was not asked");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            forge_consents(&forger).await;
        };
        let denied = async |power: Proxy<'static>| error_of(set_mode_after_dialogue(&power, "15W").await).0;
        let (name, ()) = tokio::join!(as_nobody(&rig.bus, denied), async {
            if rustix::process::geteuid().is_root() {
                forging.await;
            }
        });
        let Some(name) = name else { return };
        assert_eq!(name, "NotAuthorized");
        assert_eq!(*rig.daemon.switches.lock().unwrap(), 0);
    });
}

#[test]
fn a_query_is_held_as_json_among_the_constraints() {
    let advising = Policy { auto: Automatic::Advise, ..policy() };
    with_modes(&advising, async |rig| {
        let power = proxy(&rig.client, POWER).await;
        let with_query = |query: &str| json!({ "query": query }).to_string();
        let workload = r#""workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"fp32"}"#;
        let (_, held) = hold(&power, &with_query(&format!("{{{workload}}}")), "{}").await.unwrap();
        assert_eq!((&held["mode"], &held["satisfied"]), (&json!("25W"), &json!(true)), "{held}");
        assert_eq!(list(&power, "Holds").await[0]["query"]["workload"]["op"]["n"], 4096);
        for (query, field) in
            [("{", "(query)"), (r#"{"workload":{}}"#, "(query.workload"), (r#"{"work":{}}"#, "(query.work)")]
        {
            let (name, text) = error_of(hold(&power, &with_query(query), "{}").await);
            assert_eq!(name, "InvalidArgs", "{text}");
            assert!(text.contains(field), "{text}");
        }
        rig.daemon.tell(Event::Reconfigured(Policy { auto: Automatic::Off, ..policy() }));
        until(&rig.daemon, "the end", |snapshot| snapshot.power.holds.is_empty()).await;
        let refused = hold(&power, &with_query(&format!("{{{workload}}}")), "{}").await;
        assert_eq!(error_of(refused).0, "ControlDisabled");
    });
}
