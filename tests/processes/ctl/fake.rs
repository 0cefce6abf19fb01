//! A daemon that is none: HTTP/1.1 over two sockets, with canned answers, and a record of what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// `query` or `control`.
    pub socket: &'static str,
    pub method: String,
    pub route: String,
    pub body: String,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the fake does with a request.
pub enum Reply {
    /// Status and body.
    Whole(u16, String),
    /// Server-sent events, each written as it is, then the end of the stream.
    Events(Vec<String>),
    /// Bytes as they are, then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, ever.
    Silence,
}

impl Reply {
    pub fn ok(value: &impl serde::Serialize) -> Self {
        Self::Whole(200, serde_json::to_string(value).unwrap())
    }

    pub fn error(status: u16, code: &str, field: Option<&str>) -> Self {
        let error = serde_json::json!({"error": {
            "code": code, "message": format!("refused as {code}"), "field": field, "hint": "do something else",
        }});
        Self::Whole(status, error.to_string())
    }
}

type Answering = dyn Fn(&Received) -> Reply + Send + Sync;

/// A running fake; its sockets vanish with it.
pub struct Fake {
    directory: tempfile::TempDir,
    asked: Arc<Mutex<Vec<Received>>>,
}

impl Fake {
    pub fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let asked = Arc::<Mutex<Vec<Received>>>::default();
        let answer: Arc<Answering> = Arc::new(answer);
        for socket in ["query", "control"] {
            let listener = UnixListener::bind(directory.path().join(format!("{socket}.sock"))).unwrap();
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                    thread::spawn(move || {
                        let _ = serve(socket, &stream, &asked, &*answer);
                    });
                }
            });
        }
        Self { directory, asked }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn asked(&self) -> Vec<Received> {
        self.asked.lock().unwrap().clone()
    }

    /// The only request to this route.
    pub fn asked_of(&self, route: &str) -> Received {
        let all: Vec<_> = self.asked().into_iter().filter(|asked| asked.route == route).collect();
        assert_eq!(all.len(), 1, "requests to {route}");
        all[0].clone()
    }
}

fn serve(
    socket: &'static str,
    stream: &UnixStream,
    record: &Mutex<Vec<Received>>,
    answer: &Answering,
) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream.try_clone()?;
    while let Some(asked) = read(socket, &mut input)? {
        record.lock().unwrap().push(asked.clone());
        match answer(&asked) {
            Reply::Whole(status, body) => {
                write!(
                    output,
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nx-rooflined-serial: 17\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                )?;
            }
            Reply::Events(events) => {
                write!(output, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")?;
                for event in events {
                    output.write_all(event.as_bytes())?;
                }
                break;
            }
            Reply::Raw(bytes) => {
                output.write_all(&bytes)?;
                break;
            }
            Reply::Silence => thread::sleep(std::time::Duration::from_secs(60)),
        }
    }
    stream.shutdown(std::net::Shutdown::Both)
}

fn read(socket: &'static str, input: &mut impl BufRead) -> std::io::Result<Option<Received>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(ToOwned::to_owned);
    let (method, route) = (words.next().unwrap(), words.next().unwrap());
    let mut length = 0;
    loop {
        let mut header = String::new();
        input.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(Received { socket, method, route, body: String::from_utf8(body).unwrap() }))
}
