//! An inference server that is none: HTTP/1.1 over TCP, whose answers are a function of the route and of the time since it
//! was started.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What it does with a request.
pub enum Reply {
    /// Status, name of the server, body.
    Whole(u16, &'static str, String),
    /// The beginning of an answer, then the connection is closed.
    Dropped,
    /// Nothing, ever.
    Silence,
}

impl Reply {
    pub fn json(value: &serde_json::Value) -> Self {
        Self::Whole(200, "", value.to_string())
    }

    pub fn text(body: impl Into<String>) -> Self {
        Self::Whole(200, "", body.into())
    }

    pub fn missing() -> Self {
        Self::Whole(404, "", "{\"detail\":\"Not Found\"}".into())
    }
}

type Answering = dyn Fn(&str, f64) -> Reply + Send + Sync;

pub struct Inference {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Inference {
    /// Serves until the test ends.
    pub fn start(answer: impl Fn(&str, f64) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer: Arc<Answering> = Arc::new(answer);
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (record, began) = (Arc::clone(&asked), Instant::now());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
                thread::spawn(move || {
                    // A client that has gone is no failure of the server.
                    let _ = serve(&stream, &record, began, &*answer);
                });
            }
        });
        Self { port, asked }
    }

    pub fn asked(&self, route: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == route).count()
    }
}

fn serve(
    stream: &TcpStream,
    record: &Mutex<Vec<String>>,
    began: Instant,
    answer: &Answering,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    let mut output = stream;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let route = line.split_whitespace().nth(1).unwrap().to_owned();
        while input.read_line(&mut line)? > 2 {}
        record.lock().unwrap().push(route.clone());
        match answer(&route, began.elapsed().as_secs_f64()) {
            Reply::Whole(status, server, body) => write!(
                output,
                "HTTP/1.1 {status} X\r\nserver: {server}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?,
            Reply::Dropped => {
                write!(output, "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n[{{\"id\":0,")?;
                return stream.shutdown(std::net::Shutdown::Both);
            }
            Reply::Silence => thread::sleep(Duration::from_secs(60)),
        }
    }
}
