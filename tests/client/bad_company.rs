//! Programs that listen where a daemon would and answer badly.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rooflined_api::{FormatAnswer, FormatsAnswer, StateAnswer};
use rooflined_client::{Bytes, Client, ClientError, address::Socket};
use serde_json::json;

use crate::harness::{Daemon, Impostor, Visit, wait_for};

/// The number of formats, which is the smallest answer.
async fn count_formats(client: &mut Client) -> Result<usize, ClientError> {
    let answer: FormatsAnswer = client.get("/v1/formats").await?.parse()?;
    Ok(answer.formats.len())
}

fn outcome(impostor: &Impostor) -> Result<usize, ClientError> {
    let began = Instant::now();
    let outcome = wait_for(count_formats(&mut impostor.client()));
    // A client of an impostor waits for a second.
    assert!(began.elapsed() < Duration::from_secs(10));
    outcome
}

fn answering(answer: impl Fn(&mut Visit) + Send + Sync + 'static) -> Impostor {
    Impostor::new(move |visit| {
        while visit.read() {
            answer(visit);
        }
    })
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const BODY: &str = "{\"formats\":[],\"serial\":1}";

fn whole_answer() -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len())
}

#[test]
fn odd_ways_to_answer_are_understood() {
    let continued =
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{}", whole_answer());
    let impostor = answering(move |visit| {
        visit.send(continued.as_bytes());
    });
    assert_eq!(outcome(&impostor).unwrap(), 0);
    // Pieces of one byte, each a chunk of its own, and a trailer after the last one.
    let impostor = answering(|visit| {
        visit.send(CHUNKED);
        for byte in BODY.bytes() {
            for piece in [b"1", &b"\r"[..], b"\n", &[byte], b"\r\n"] {
                visit.send(piece);
            }
        }
        visit.send(b"0\r\nx-more: y\r\n\r\n");
    });
    assert_eq!(outcome(&impostor).unwrap(), 0);
    assert_eq!(impostor.asked(), 1);
    // Without a length the answer ends with its connection.
    let impostor = Impostor::new(|visit| {
        visit.read();
        visit.send(b"HTTP/1.0 200 OK\r\n\r\n");
        visit.send(BODY.as_bytes());
    });
    assert_eq!(outcome(&impostor).unwrap(), 0);
}

#[test]
fn an_answer_without_a_body_is_not_waited_for() {
    let impostor = answering(|visit| {
        visit.send(b"HTTP/1.1 204 No Content\r\n\r\n");
    });
    let mut client = impostor.client();
    wait_for(async {
        for _ in 0..2 {
            assert!(client.delete("/v1/observations").await.unwrap().body.is_empty());
        }
    });
    assert_eq!(impostor.visited(), 1, "the second call goes over the connection of the first");
}

#[test]
fn one_that_never_answers_or_drips_is_given_up_in_time() {
    let silent = answering(|visit| {
        visit.read();
    });
    let dripping = answering(|visit| {
        visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while visit.send(b" ") {
            sleep(Duration::from_millis(50));
        }
    });
    // Always more to read, and never an answer.
    let endless = |head: &'static [u8], line: &str| {
        let many = line.repeat(4000);
        answering(move |visit| {
            visit.send(head);
            while visit.send(many.as_bytes()) {}
        })
    };
    let continuing = endless(b"", "HTTP/1.1 100 Continue\r\n\r\n");
    for impostor in [&silent, &dripping, &continuing] {
        match outcome(impostor) {
            Err(ClientError::TimedOut { limit, .. }) => assert_eq!(limit, Duration::from_secs(1)),
            other => panic!("{other:?}"),
        }
    }
    let subscribed = wait_for(async { silent.client().events().await.map(drop) });
    assert!(matches!(subscribed, Err(ClientError::TimedOut { .. })), "{subscribed:?}");
    let control = Impostor::control(|visit| {
        visit.read();
        visit.read();
    });
    let held = wait_for(async { control.client().hold(&json!({"app_id": "test"})).await.map(drop) });
    assert!(matches!(held, Err(ClientError::TimedOut { .. })), "{held:?}");
}

#[test]
fn a_broken_answer_is_an_error_and_the_request_is_sent_once() {
    let impostor = Impostor::new(|visit| {
        visit.read();
        visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{");
    });
    assert!(matches!(outcome(&impostor), Err(ClientError::Broken(_))));
    assert_eq!(impostor.asked(), 1);
    // The second request has reached a daemon that closes: nobody knows whether it was carried out.
    let impostor = Impostor::new(|visit| {
        visit.read();
        visit.send(whole_answer().as_bytes());
        visit.read();
    });
    let mut client = impostor.client();
    wait_for(async {
        count_formats(&mut client).await.unwrap();
        assert!(matches!(client.post("/v1/observations", &json!({})).await, Err(ClientError::Broken(_))));
        assert_eq!(impostor.asked(), 2);
        count_formats(&mut client).await.unwrap();
    });
    assert_eq!((impostor.asked(), impostor.visited()), (3, 2));
}

#[test]
fn an_answer_that_is_not_http_not_json_or_too_large_is_an_error() {
    let broken: [Vec<u8>; 4] = [
        b"220 mail.example.org ESMTP\r\n".to_vec(),
        [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; 500 << 10], b"\r\n\r\n"].concat(),
        [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"x: y\r\n".repeat(200), b"\r\n"].concat(),
        [CHUNKED, b"1\r\ntoo long\r\n"].concat(),
    ];
    for text in broken {
        let shown = text.escape_ascii().to_string().chars().take(60).collect::<String>();
        let impostor = answering(move |visit| {
            visit.send(&text);
        });
        let outcome = outcome(&impostor);
        assert!(matches!(outcome, Err(ClientError::Broken(_))), "{shown}: {outcome:?}");
    }
    for text in ["content-length: 6\r\n\r\n<html>", "content-length: 4\r\n\r\nnull"] {
        let impostor = answering(move |visit| {
            visit.send(format!("HTTP/1.1 200 OK\r\n{text}").as_bytes());
        });
        assert!(matches!(outcome(&impostor), Err(ClientError::Unexpected { .. })), "{text}");
    }
    let endless = answering(|visit| {
        visit.send(b"HTTP/1.1 200 OK\r\n\r\n");
        let much = vec![b' '; 1 << 20];
        while visit.send(&much) {}
    });
    let mut client = endless.client().another(Duration::from_secs(60));
    let error = wait_for(count_formats(&mut client)).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge) && error.to_string().contains("64 MiB"), "{error}");
    // A refusal of a proxy, which has none of the daemon's codes.
    let plain = answering(|visit| {
        visit.send(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\n\r\nsorry");
    });
    match outcome(&plain) {
        Err(ClientError::Refused { status: 502, body }) => assert_eq!(body.code, "http"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_of_a_later_daemon_are_ignored() {
    let daemon = Daemon::new();
    let get = |route: &str| wait_for(async { daemon.client().get(route).await.unwrap() });
    let formats: FormatsAnswer = get("/v1/formats").parse().unwrap();
    let [known, ..] = &formats.formats[..] else { panic!("there are formats") };
    let mut entry = serde_json::to_value(known).unwrap();
    entry["key"] = "of a later daemon".into();
    entry["added"] = json!({"x": [1, null]});
    let body = json!({"formats": [entry], "serial": 1, "and": "more"}).to_string();
    let parsed = answer_of(body.into()).parse::<FormatsAnswer>().unwrap();
    let wanted = FormatAnswer { key: "of a later daemon".to_owned(), ..known.clone() };
    assert_eq!(parsed.formats, [wanted]);
    let mut body: serde_json::Value = get("/v1/state").parse().unwrap();
    body["and"] = json!({"more": []});
    let state: StateAnswer = answer_of(body.to_string().into()).parse().unwrap();
    assert!(state.fields.len() > 10, "{state:?}");
}

fn answer_of(body: Bytes) -> rooflined_client::Answer {
    rooflined_client::Answer { serial: None, body }
}

#[test]
fn a_request_is_passed_on_with_any_answer() {
    let impostor = answering(|visit| {
        visit.send(b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n");
    });
    wait_for(async {
        let mut client = impostor.client();
        let passed = client.pass(Socket::Query, "GET".parse().unwrap(), "/x", Bytes::new()).await;
        assert_eq!(passed.unwrap().1.status(), 418);
    });
}
