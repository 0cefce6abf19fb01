//! Recommendations that are kept true over the bus.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rooflined::server::dbus::{NAME, from_variants};
use rooflined_core::board::{Reading, ThermalZone};
use rooflined_core::units::{BytesPerSecond, Celsius};
use serde_json::{Value, json};
use zbus::connection::Builder;
use zbus::{Connection, Proxy};

use super::{Variants, error_of, on_a_bus, proxy, without_nulls};
use crate::support::Server;

const QUERY: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"freedom":{"formats":["int8"]}}"#;

async fn subscribe(rooflined: &Proxy<'_>, query: &str) -> zbus::Result<(u64, Value)> {
    let (cookie, answer): (u64, Variants) = rooflined.call("Subscribe", &query).await?;
    Ok((cookie, from_variants(&answer).unwrap()))
}

fn set_bandwidth(server: &Server, bytes_per_s: f64) {
    server.publish(|snapshot| snapshot.roofline.bandwidth.value = BytesPerSecond(bytes_per_s));
}

/// The next AnswerChanged: its cookie, why, and the new answer.
async fn changed(stream: &mut zbus::proxy::SignalStream<'_>) -> (u64, Value, Value) {
    let message = stream.next().await.unwrap();
    let (cookie, stale, answer): (u64, Variants, Variants) = message.body().deserialize().unwrap();
    (cookie, from_variants(&stale).unwrap(), from_variants(&answer).unwrap())
}

#[test]
fn a_subscriber_alone_is_told_when_its_answer_alters() {
    on_a_bus(async |bus, server, client| {
        let rooflined = proxy(&client, NAME).await;
        let mut changes = rooflined.receive_signal("AnswerChanged").await.unwrap();
        let mut stale_signals = rooflined.receive_signal("AdviceStale").await.unwrap();
        let stranger: Connection = Builder::address(bus.address().as_str()).build().await.unwrap();
        let elsewhere = proxy(&stranger, NAME).await;
        let mut overheard = elsewhere.receive_signal("AnswerChanged").await.unwrap();

        let (cookie, answer) = subscribe(&rooflined, QUERY).await.unwrap();
        assert_eq!(answer, without_nulls(server.post("/v1/recommend", QUERY).json()));
        server.publish(|snapshot| {
            let temperature = Reading::Known(Celsius(90.0));
            snapshot.state.temperatures =
                Reading::Known(vec![ThermalZone { name: "cpu".into(), temperature }]);
        });
        set_bandwidth(&server, 49.9e9);
        set_bandwidth(&server, 40e9);
        let (changed_cookie, stale, answer) = changed(&mut changes).await;
        assert_eq!(
            (changed_cookie, &stale["serial"], &stale["was_serial"]),
            (cookie, &json!(20), &json!(17))
        );
        assert_eq!(stale["causes"], json!(["ceilings"]));
        assert_eq!(answer["serial"], 20);
        // To everybody, and to the subscriber by its name.
        let mine = client.unique_name().unwrap().to_string();
        loop {
            let message = stale_signals.next().await.unwrap();
            let (reason, serial): (String, u64) = message.body().deserialize().unwrap();
            assert_eq!(serial, 20);
            if message.header().destination().is_some_and(|name| name.as_str() == mine) {
                assert_eq!(json!(reason), stale["reason"]);
                break;
            }
        }

        rooflined.call::<_, _, ()>("Unsubscribe", &cookie).await.unwrap();
        let (name, text) = error_of(rooflined.call::<_, _, ()>("Unsubscribe", &cookie).await);
        assert!(name == "InvalidArgs" && text.contains("no subscription"), "{text}");
        let (next, _) = subscribe(&rooflined, QUERY).await.unwrap();
        assert_ne!(next, cookie);
        set_bandwidth(&server, 20e9);
        assert_eq!(changed(&mut changes).await.0, next, "the one that was ended gets nothing");

        let others = error_of(elsewhere.call::<_, _, ()>("Unsubscribe", &next).await);
        assert_eq!(others.0, "InvalidArgs", "only its owner ends it");
        // The bus hands messages over in their order: a signal to everybody would have come before that answer.
        let heard = tokio::time::timeout(Duration::from_millis(50), overheard.next()).await;
        assert!(heard.is_err(), "a stranger heard {heard:?}");
    });
}

#[test]
fn each_query_is_compared_with_its_own_answer() {
    on_a_bus(async |_bus, server, client| {
        let rooflined = proxy(&client, NAME).await;
        let mut changes = rooflined.receive_signal("AnswerChanged").await.unwrap();
        assert_eq!(error_of(subscribe(&rooflined, "{").await).0, "InvalidArgs");
        assert_eq!(error_of(subscribe(&rooflined, &QUERY.replace("gemv", "gemx")).await).0, "InvalidArgs");
        let other = r#"{"hardware":"h100","workload":{"op":{"kind":"gemv","n":64,"k":64}},"freedom":{"formats":["fp16"]}}"#;
        let (name, text) = error_of(subscribe(&rooflined, other).await);
        assert!(name == "InvalidArgs" && text.starts_with("invalid_field (hardware)"), "{text}");
        assert!(error_of(subscribe(&rooflined, &" ".repeat(1 << 20)).await).1.starts_with("body_too_large"));
        let stream = format!(r#"{{"path":"/v1/recommend/watch","body":{QUERY}}}"#);
        let stream: Result<String, _> = rooflined.call("Query", &stream.as_str()).await;
        assert!(error_of(stream).1.contains("Subscribe"));

        // Ceilings are scaled to another clock while their own is known, which is lost and found again.
        let any = r#"{"operating_point":{"cpu_hz":1e9},"workload":{"op":{"kind":"gemv","n":4096,"k":4096}}}"#;
        let (named, _) = subscribe(&rooflined, QUERY).await.unwrap();
        let (open, _) = subscribe(&rooflined, any).await.unwrap();
        let clock = super::snapshot().roofline.clock;
        server.publish(|snapshot| snapshot.roofline.clock = None);
        let mut seen = std::collections::BTreeMap::new();
        while !seen.contains_key(&open) {
            let (cookie, stale, answer) = changed(&mut changes).await;
            seen.insert(cookie, (stale, answer));
        }
        let (stale, answer) = &seen[&open];
        assert_eq!((&stale["error"]["code"], answer), (&json!("not_calibrated"), &json!({})));
        server.publish(|snapshot| snapshot.roofline.clock = clock);
        loop {
            let (cookie, stale, answer) = changed(&mut changes).await;
            if cookie == open {
                assert!(stale["reason"].as_str().unwrap().contains("can be answered again"), "{stale}");
                assert_eq!(answer["feasible"], true);
                break;
            }
            assert_eq!(cookie, named);
        }
    });
}

#[test]
fn subscriptions_are_bounded_and_end_with_their_sender() {
    on_a_bus(async |bus, _server, client| {
        let rooflined = proxy(&client, NAME).await;
        for _ in 0..100 {
            // A wrong question takes no place.
            assert_eq!(error_of(subscribe(&rooflined, "{}").await).0, "InvalidArgs");
        }
        let mut clients = Vec::new();
        // A user may have as many as are free: of 64 in all a half.
        for _ in 0..4 {
            let one: Connection = Builder::address(bus.address().as_str()).build().await.unwrap();
            let rooflined = proxy(&one, NAME).await;
            for _ in 0..8 {
                subscribe(&rooflined, QUERY).await.unwrap();
            }
            let (name, text) = error_of(subscribe(&rooflined, QUERY).await);
            assert!(name == "Busy" && text.contains("all 8 subscriptions of this client"), "{text}");
            clients.push(one);
        }
        let (name, text) = error_of(subscribe(&rooflined, QUERY).await);
        assert!(name == "Busy" && text.contains("its share of 32 subscriptions"), "{text}");
        clients.pop().unwrap().close().await.unwrap();
        let begun = Instant::now();
        while let Err(error) = subscribe(&rooflined, QUERY).await {
            assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..7 {
            subscribe(&rooflined, QUERY).await.unwrap();
        }
        assert_eq!(error_of(subscribe(&rooflined, QUERY).await).0, "Busy");
    });
}
