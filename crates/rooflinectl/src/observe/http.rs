//! HTTP/1.1 over plain TCP to a server that is not ours: capped in time and size, and never trusted.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::owner::{Owners, user_listening_at};
use super::window::Instant;
use crate::failure::Failure;
use crate::server_address::Address;

/// Largest answer taken.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Time for one answer, the connection included.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest key read from a file.
const MAX_KEY_BYTES: usize = 4096;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    #[error("cannot be reached: {0}")]
    Unreachable(std::io::Error),
    #[error("did not answer {route} within {} s", LIMIT.as_secs())]
    TimedOut { route: String },
    #[error("broke off its answer to {route}")]
    Broken { route: String },
    #[error("listens as {}, who is not to be sent the key", .user.map_or_else(|| "an unknown user".to_owned(), |uid| format!("user {uid}")))]
    Stranger { user: Option<u32> },
    #[error("answered {route} with more than {} MiB", MAX_ANSWER_BYTES >> 20)]
    TooLarge { route: String },
}

/// An answer with any status.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    /// What calls itself the server.
    pub server: String,
    pub at: Instant,
    pub body: Bytes,
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        self.status.is_success()
    }

    /// The body as JSON; `None` where it is none, or the status is no success.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok().filter(|_| self.is_ok())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A server over one connection that is opened again when it is closed.
#[derive(Debug)]
pub struct Server {
    pub address: Address,
    peer: SocketAddr,
    key: Option<HeaderValue>,
    owners: Owners,
    open: Option<SendRequest<Empty<Bytes>>>,
    epoch: std::time::Instant,
}

impl Server {
    /// Nothing is opened yet. `key_file` holds the key that the server asks for, which servers of `owners` alone are sent.
    ///
    /// # Errors
    /// The address is not one of this machine, or the key cannot be read.
    pub async fn new(address: Address, key_file: Option<&Path>, owners: Owners) -> Result<Self, Failure> {
        let peer = address.resolve().await?;
        let key = key_file.map(key).transpose()?;
        Ok(Self { address, peer, key, owners, open: None, epoch: std::time::Instant::now() })
    }

    /// A user whose server it is, where that is neither the caller's nor one that the caller named; `Err` where nobody
    /// tells whose.
    pub fn stranger(&self) -> Result<Option<u32>, ()> {
        let user = user_listening_at(self.peer).ok_or(())?;
        Ok((!self.owners.include(user)).then_some(user))
    }

    /// Whether the key may be sent to the user who listens now.
    fn check_owner(&self) -> Result<(), HttpError> {
        if self.key.is_none() {
            return Ok(());
        }
        match user_listening_at(self.peer) {
            Some(user) if self.owners.include(user) => Ok(()),
            user => Err(HttpError::Stranger { user }),
        }
    }

    /// Seconds since the beginning, on the clock of [`Answer::at`].
    pub fn now(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64()
    }

    /// Asks for `route`.
    ///
    /// # Errors
    /// See [`HttpError`]. A status that is no success is an answer.
    pub async fn get(&mut self, route: &str) -> Result<Answer, HttpError> {
        let answer = timeout(LIMIT, self.exchange(route)).await;
        answer.unwrap_or_else(|_| {
            self.open = None;
            Err(HttpError::TimedOut { route: route.to_owned() })
        })
    }

    async fn exchange(&mut self, route: &str) -> Result<Answer, HttpError> {
        let broken = || HttpError::Broken { route: route.to_owned() };
        let kept = self.open.take().filter(|sender| !sender.is_closed());
        let reused = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        // Ready means idle, not alive; one that has died of age is replaced once.
        let mut asked = self.now();
        let mut response = sender.send_request(self.request(route).map_err(|_| broken())?).await;
        if response.is_err() && reused {
            sender = self.connect().await?;
            asked = self.now();
            response = sender.send_request(self.request(route).map_err(|_| broken())?).await;
        }
        let response = response.map_err(|_| broken())?;
        let status = response.status();
        let server =
            response.headers().get("server").and_then(|name| name.to_str().ok()).unwrap_or("").to_owned();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(|error| {
            if error.is::<hyper::Error>() {
                broken()
            } else {
                HttpError::TooLarge { route: route.to_owned() }
            }
        })?;
        let answered = self.now();
        let at = Instant { at_s: f64::midpoint(asked, answered), reply_s: answered - asked };
        self.open = Some(sender);
        Ok(Answer { status, server, at, body: body.to_bytes() })
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, HttpError> {
        self.check_owner()?;
        let stream = TcpStream::connect(self.peer).await.map_err(HttpError::Unreachable)?;
        // Another may have taken the port in between.
        self.check_owner()?;
        // It costs time only, and the time of a reply is what counts.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| HttpError::Unreachable(std::io::Error::other(error)))?;
        // Ends with the connection; its error also reaches the request that is under way.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, route: &str) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .uri(format!("{}{route}", self.address.prefix()))
            .header(HOST, self.address.authority());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        request.body(Empty::new())
    }
}

/// The key in a file, as a header that is not printed.
fn key(file: &Path) -> Result<HeaderValue, Failure> {
    let hint = "put the key alone into a file that only you can read";
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("{} cannot be read: {error}", file.display())).with_hint(hint)
    })?;
    let text = text.trim();
    let wrong = || Failure::usage(format!("{} contains no key", file.display())).with_hint(hint);
    if text.is_empty() || text.len() > MAX_KEY_BYTES {
        return Err(wrong());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}
