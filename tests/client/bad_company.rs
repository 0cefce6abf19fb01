//! What listens is no daemon, or one that breaks.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rooflined_client::types::ObservationRequest;
use rooflined_client::{Error, Result, Socket, Value};
use serde_json::json;

use crate::harness::{Daemon, Impostor, Visit, asynchronously, chat};

/// The codes of what both clients say when they ask for formats, which has the smallest answer.
fn outcomes(impostor: &Impostor) -> [String; 2] {
    let code = |outcome: Result<usize>| match outcome {
        Ok(count) => count.to_string(),
        Err(error) => error.code().to_owned(),
    };
    let began = Instant::now();
    let mine = impostor.client().formats().map(|formats| formats.len());
    let client = impostor.asynchronous();
    let theirs = asynchronously(async { client.formats().await.map(|formats| formats.len()) });
    // A second each.
    assert!(began.elapsed() < Duration::from_secs(20));
    [code(mine), code(theirs)]
}

fn answering(answer: impl Fn(&mut Visit) + Send + Sync + 'static) -> Impostor {
    Impostor::new(move |visit| {
        while visit.read() {
            answer(visit);
        }
    })
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const BODY: &str = "{\"formats\":[]}";

#[test]
fn odd_ways_to_answer_are_understood() {
    let plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    let continued =
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{plain}");
    let impostor = answering(move |visit| {
        visit.send(continued.as_bytes());
    });
    assert_eq!(outcomes(&impostor), ["0", "0"]);
    // Pieces of one byte, each a chunk of its own, and a line behind the last one.
    let impostor = answering(|visit| {
        visit.send(CHUNKED);
        for byte in BODY.bytes() {
            for piece in [b"1", &b"\r"[..], b"\n", &[byte], b"\r\n"] {
                visit.send(piece);
            }
        }
        visit.send(b"0\r\nx-more: y\r\n\r\n");
    });
    assert_eq!(outcomes(&impostor), ["0", "0"]);
    assert_eq!(impostor.asked(), 2);
    // Without a length the answer ends with its connection.
    let impostor = Impostor::new(|visit| {
        visit.read();
        visit.send(b"HTTP/1.0 200 OK\r\n\r\n");
        visit.send(BODY.as_bytes());
    });
    assert_eq!(outcomes(&impostor), ["0", "0"]);
}

#[test]
fn what_has_no_body_is_not_waited_for() {
    // As the daemon may say what it would answer to GET.
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n";
    for text in
        [head, "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n"]
    {
        let method = if text == head { "HEAD" } else { "DELETE" };
        let impostor = answering(move |visit| {
            visit.send(text.as_bytes());
        });
        let (mine, theirs) = (impostor.client(), impostor.asynchronous());
        for _ in 0..2 {
            assert_eq!(
                mine.request(method, "/v1/formats", None, Socket::Query).unwrap(),
                Value::Null,
                "{text}"
            );
        }
        let answer =
            asynchronously(async { theirs.request(method, "/v1/formats", None, Socket::Query).await });
        assert_eq!(answer.unwrap(), Value::Null, "{text}");
        assert_eq!(
            impostor.visited(),
            2,
            "the second question of one client goes over the first's connection"
        );
    }
    let daemon = Daemon::new();
    let client = daemon.client().with_timeout(Duration::from_secs(20));
    // Refused or not, it is answered.
    match client.request("HEAD", "/v1/formats", None, Socket::Query) {
        Ok(Value::Null) | Err(Error::Refused(_)) => {}
        other => panic!("{other:?}"),
    }
    assert!(client.formats().is_ok());
}

#[test]
fn one_that_never_answers_or_drips_is_given_up_in_time() {
    let silent = answering(|visit| {
        visit.read();
    });
    assert_eq!(outcomes(&silent), ["timed_out", "timed_out"]);
    let dripping = answering(|visit| {
        visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while visit.send(b" ") {
            sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(outcomes(&dripping), ["timed_out", "timed_out"]);
    let error = silent.client().formats().unwrap_err();
    assert!(error.is_passing() && error.to_string().contains("within 1 s"), "{error}");
    match silent.client().events() {
        Err(Error::TimedOut { limit, .. }) => assert_eq!(limit, Duration::from_secs(1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_begun_when_the_time_is_over() {
    let impostor = answering(|visit| {
        visit.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes());
    });
    let report = json!({"workload": {"op": {"kind": "gemv", "n": 1, "k": 1}}, "time_s": 1.0});
    let (mine, theirs) = (impostor.client(), impostor.asynchronous());
    // Without a connection, and with one that is kept.
    for asked in [0, 2] {
        let late = mine.with_timeout(Duration::ZERO).observe(&report).unwrap_err();
        assert!(matches!(late, Error::TimedOut { limit, .. } if limit.is_zero()), "{late:?}");
        let late = asynchronously(async { theirs.with_timeout(Duration::ZERO).observe(&report).await });
        assert_eq!(late.unwrap_err().code(), "timed_out");
        let late = mine.with_timeout(Duration::ZERO).events().unwrap_err();
        assert_eq!(late.code(), "timed_out");
        // Nothing of it is on its way.
        sleep(Duration::from_millis(100));
        assert_eq!((impostor.asked(), impostor.visited()), (asked, asked));
        mine.formats().unwrap();
        asynchronously(async { theirs.formats().await.unwrap() });
    }
    // Always more to read, and never an answer.
    let last_chunk = [CHUNKED, b"0\r\n"].concat();
    for (head, again) in [(vec![], "HTTP/1.1 100 Continue\r\n\r\n"), (last_chunk, "x: y\r\n")] {
        let many = again.repeat(4000);
        let impostor = answering(move |visit| {
            visit.send(&head);
            while visit.send(many.as_bytes()) {}
        });
        assert_eq!(outcomes(&impostor), ["timed_out", "timed_out"]);
    }
}

#[test]
fn a_hold_is_waited_for_no_longer_than_the_client_says() {
    // Without an answer, and with the beginning of one.
    for begins in [false, true] {
        let impostor = Impostor::control(move |visit| {
            visit.read();
            if begins {
                visit.send(CHUNKED);
            }
            visit.read();
        });
        let hold = json!({"app_id": "test"});
        let [mine, theirs] = [
            impostor.client().hold(&hold).unwrap_err(),
            asynchronously(async { impostor.asynchronous().hold(&hold).await.unwrap_err() }),
        ];
        for error in [mine, theirs] {
            let is_right = matches!(error, Error::TimedOut { limit, .. } if limit == Duration::from_secs(1));
            assert!(is_right, "{error:?}");
        }
    }
}

#[test]
fn one_that_breaks_off_is_told_as_that_and_a_report_is_sent_once() {
    let impostor = Impostor::new(|visit| {
        visit.read();
        visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{");
    });
    assert_eq!(outcomes(&impostor), ["connection_lost", "connection_lost"]);
    assert_eq!(impostor.asked(), 2);
    let report = ObservationRequest::new(chat()).time_s(1.0);
    assert_eq!(impostor.client().observe(&report).unwrap_err().code(), "connection_lost");
    assert_eq!(impostor.asked(), 3);
}

#[test]
fn a_kept_connection_that_closes_is_replaced_for_a_question_and_not_for_a_change() {
    let once = || {
        Impostor::new(|visit| {
            visit.read();
            visit.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes());
            visit.read();
        })
    };
    let report = json!({"workload": {"op": {"kind": "gemv", "n": 1, "k": 1}}, "time_s": 1.0});
    let impostor = once();
    let client = impostor.client();
    client.formats().unwrap();
    // On the first connection in vain, then on another.
    client.formats().unwrap();
    assert_eq!(impostor.asked(), 3);
    assert!(matches!(client.observe(&report), Err(Error::ConnectionLost { .. })));
    assert_eq!(impostor.asked(), 4);
    let impostor = once();
    let client = impostor.asynchronous();
    asynchronously(async {
        client.formats().await.unwrap();
        client.formats().await.unwrap();
        assert!(matches!(client.observe(&report).await, Err(Error::ConnectionLost { .. })));
    });
    assert_eq!(impostor.asked(), 4);
}

#[test]
fn what_is_no_http_no_json_or_too_much_is_said() {
    let texts: [Vec<u8>; 6] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>".to_vec(),
        b"220 mail.example.org ESMTP\r\n".to_vec(),
        [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; 80 << 10], b"\r\n\r\n"].concat(),
        [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"x: y\r\n".repeat(100), b"\r\n"].concat(),
        [CHUNKED, b"1\r\ntoo long\r\n"].concat(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull".to_vec(),
    ];
    for text in texts {
        let shown = text.escape_ascii().to_string().chars().take(60).collect::<String>();
        let impostor = answering(move |visit| {
            visit.send(&text);
        });
        assert_eq!(outcomes(&impostor), ["unexpected", "unexpected"], "{shown}");
    }
    let endless = answering(|visit| {
        visit.send(b"HTTP/1.1 200 OK\r\n\r\n");
        let much = vec![b' '; 1 << 20];
        while visit.send(&much) {}
    });
    let client = endless.client().with_timeout(Duration::from_secs(60));
    let error = client.formats().unwrap_err();
    assert!(error.to_string().contains("64 MiB"), "{error}");
    // A refusal without words of ours is one all the same.
    let plain = answering(|visit| {
        visit.send(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\n\r\nsorry");
    });
    assert_eq!(outcomes(&plain), ["http", "http"]);
}

#[test]
fn what_a_later_daemon_adds_is_no_error() {
    let daemon = Daemon::new();
    let [known, ..] = &daemon.client().formats().unwrap()[..] else { panic!("there are formats") };
    let mut entry = serde_json::to_value(known).unwrap();
    entry["key"] = "of a later daemon".into();
    entry["added"] = json!({"x": [1, null]});
    let body = json!({"formats": [entry], "and": "more"}).to_string();
    let impostor = answering(move |visit| {
        visit.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    });
    let mut wanted = known.clone();
    wanted.key = "of a later daemon".into();
    assert_eq!(impostor.client().formats().unwrap(), [wanted]);
    let mut wanted = daemon.client().state().unwrap();
    let mut body = serde_json::to_value(&wanted).unwrap();
    for (name, value) in [("added", json!(3)), ("and", json!({"more": []}))] {
        body[name] = value;
    }
    let body = body.to_string();
    let impostor = answering(move |visit| {
        visit.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    });
    let found = impostor.client().state().unwrap();
    wanted.fields.retain(|name, _| found.fields.contains_key(name));
    assert!(found == wanted && !found.fields.contains_key("added"), "{found:?}");
    assert!(found.fields.len() > 10, "{found:?}");
}
