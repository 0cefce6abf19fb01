//! A hundred subscribers, and every event to each of them in order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use zbus::connection::Builder;
use zbus::{MatchRule, MessageStream};

use super::bus::PrivateBus;
use super::harness::{Home, eventually, get, http};

const BOARD: &str = "jetson-orin-nano-8gb-super";
const SUBSCRIBERS: usize = 100;
/// Streams of events that one user has on a socket: half of docs/internals/limits.md's 32.
const STREAMS: usize = 16;
/// Entered one after the other, none of them with a reboot; the board starts in the second.
const MODES: [&str; 4] = ["15W", "25W", "15W", "25W"];

/// A mode that a subscriber was told of, and when.
type Told = (String, Instant);

/// Everything about modes that a stream of events brings, from a thread of its own.
fn stream(socket: &Path) -> Receiver<Told> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let head = lines.next().unwrap().unwrap();
    assert!(head.contains(" 200 "), "{head}");
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut mode = false;
        for line in lines.map_while(Result::ok) {
            if let Some(name) = line.strip_prefix("event:") {
                mode = name.trim() == "mode";
            }
            let Some(data) = line.strip_prefix("data:").filter(|_| mode) else { continue };
            let data: Value = serde_json::from_str(data.trim()).unwrap();
            let to = ["mode", "to", "name"].into_iter().find_map(|key| data[key].as_str());
            if tell
                .send((to.unwrap_or_else(|| panic!("no mode in {data}")).to_owned(), Instant::now()))
                .is_err()
            {
                return;
            }
        }
    });
    told
}

/// The same of the signal `ModeChanged`, over one connection for each subscriber.
fn signals(address: String, count: usize) -> Vec<Receiver<Told>> {
    let (tells, all): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let (ready, started) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut listening = Vec::new();
            for tell in tells {
                let connection = Builder::address(address.as_str()).build().await.unwrap();
                let rule = MatchRule::builder()
                    .msg_type(zbus::message::Type::Signal)
                    .interface("io.github.rooflined.Rooflined1.Power")
                    .member("ModeChanged")
                    .build()
                    .unwrap();
                let mut messages = MessageStream::for_match_rule(rule, &connection, None).await.unwrap();
                listening.push(async move {
                    while let Some(Ok(message)) = messages.next().await {
                        let now = Instant::now();
                        let body = message.body();
                        let (_, to, _, _): (
                            String,
                            String,
                            String,
                            std::collections::HashMap<String, zbus::OwnedVariant>,
                        ) = body.deserialize().unwrap();
                        if tell.send((to, now)).is_err() {
                            return;
                        }
                    }
                });
            }
            ready.send(()).unwrap();
            futures_util::future::join_all(listening).await;
        });
    });
    started.recv_timeout(Duration::from_secs(60)).expect("every connection to the bus");
    all
}

/// Takes what comes until the last of `MODES` has been told of once more than before.
fn told(of: &Receiver<Told>) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    while all.len() < MODES.len() {
        all.push(of.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("only {all:?} came")));
    }
    all
}

#[test]
fn a_hundred_subscribers_hear_of_every_switch_in_order() {
    let Some(bus) = PrivateBus::start() else { return };
    let mut home = Home::new();
    home.bus = bus.address();
    home.configure("[calibration]\nautomatic = false\n[control]\nenabled = true\ndwell_s = 0\n");
    let (root, address) = (home.path("board"), bus.address());
    let _daemon = home.start_with(|command| {
        command.args(["--simulate", BOARD]).arg("--root").arg(root);
    });
    eventually("the first mode", || get(&home.query(), "/v1/holds")["active_mode"].as_str().map(|_| ()));
    let mut streams: Vec<Receiver<Told>> = Vec::new();
    for socket in [home.query(), home.control()] {
        streams.extend((0..STREAMS).map(|_| stream(&socket)));
    }
    let count = SUBSCRIBERS - streams.len();
    let signals = signals(address, count);
    let mut asked = Vec::new();
    for mode in MODES {
        asked.push(Instant::now());
        let (status, switch) =
            http(&home.control(), "POST", "/v1/mode", &json!({ "mode": mode }).to_string());
        assert_eq!((status, &switch["reached"]), (200, &json!(mode)), "{switch}");
    }
    for (what, subscribers) in [("streams of events", &streams), ("subscribers on the bus", &signals)] {
        let heard: Vec<Vec<Told>> = subscribers.iter().map(told).collect();
        for each in &heard {
            assert_eq!(each.iter().map(|(mode, _)| mode.as_str()).collect::<Vec<_>>(), MODES, "{what}");
        }
        for (index, mode) in MODES.iter().enumerate() {
            let times = heard.iter().map(|each| each[index].1);
            let (first, last) = (times.clone().min().unwrap(), times.max().unwrap());
            println!(
                "{} {what}: {mode} is heard of {:.1} ms after it was asked for, by the last {:.1} ms after the first",
                heard.len(),
                (first - asked[index]).as_secs_f64() * 1e3,
                (last - first).as_secs_f64() * 1e3
            );
        }
    }
}
