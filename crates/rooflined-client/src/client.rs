//! One client: its connections, calls and streams.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use rooflined_api::{ErrorAnswer, ErrorBody};

use crate::address::{self, Address, Socket};
use crate::{ClientError, Events, Lines};

/// Largest answer taken; a sweep of every candidate stays below it.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Time to get a connection, a full backlog included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before another try at a full backlog.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// A connection to one daemon.
#[derive(Debug)]
pub struct Client {
    /// Where the caller says the daemon is.
    given: Option<PathBuf>,
    /// Where to look, best first; shortened to the one that answered.
    addresses: Vec<Address>,
    /// One has answered.
    settled: bool,
    /// The open connections, by [`Socket`].
    open: [Option<SendRequest<Full<Bytes>>>; 2],
    timeout: Duration,
    prepare: Prepare,
}

/// What becomes of every body before it is sent.
pub type Prepare = fn(Bytes) -> Result<Bytes, ClientError>;

/// A successful answer, not yet parsed.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `X-Rooflined-Serial`: the snapshot it was given from.
    pub serial: Option<u64>,
    /// The body as it came.
    pub body: Bytes,
}

impl Answer {
    /// The body as a typed answer, or as any other JSON.
    ///
    /// # Errors
    /// The body is not what this version of the client expects.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(|source| ClientError::Unexpected { source })
    }
}

impl Client {
    /// A client for the daemon at `given` (a directory or a `.sock` file), or wherever one is found.
    /// Nothing is opened yet.
    #[must_use]
    pub fn new(given: Option<&Path>, timeout: Duration) -> Self {
        let addresses = address::candidates(given);
        let given = given.map(Path::to_owned);
        Self { given, addresses, settled: false, open: [None, None], timeout, prepare: Ok }
    }

    /// The same client, which passes every body through `prepare`: a program that may read the files that a body names puts into
    /// it what the daemon may not read.
    #[must_use]
    pub fn preparing(self, prepare: Prepare) -> Self {
        Self { prepare, ..self }
    }

    /// The same daemon over a connection of its own, with another time limit; where none has answered yet, one is looked for.
    #[must_use]
    pub fn another(&self, timeout: Duration) -> Self {
        Self {
            given: self.given.clone(),
            addresses: self.addresses.clone(),
            settled: self.settled,
            open: [None, None],
            timeout,
            prepare: self.prepare,
        }
    }

    /// Where the daemon is looked for, best first; the one that answered alone after the first call.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Asks for `route` on the query socket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(&mut self, route: &str) -> Result<Answer, ClientError> {
        self.call(Socket::Query, Method::GET, route, Bytes::new()).await
    }

    /// Posts `body` to `route` on the query socket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post(&mut self, route: &str, body: &impl Serialize) -> Result<Answer, ClientError> {
        self.post_bytes(route, encode(body)?).await
    }

    /// Posts a body that is already JSON, or claims to be.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post_bytes(
        &mut self,
        route: &str,
        body: impl Into<Bytes> + Send,
    ) -> Result<Answer, ClientError> {
        self.call(Socket::Query, Method::POST, route, body.into()).await
    }

    /// Deletes what `route` names, on the query socket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&mut self, route: &str) -> Result<Answer, ClientError> {
        self.call(Socket::Query, Method::DELETE, route, Bytes::new()).await
    }

    /// Posts `body` to `route` on the control socket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn command(&mut self, route: &str, body: &impl Serialize) -> Result<Answer, ClientError> {
        self.call(Socket::Control, Method::POST, route, encode(body)?).await
    }

    /// Subscribes to `GET /v1/events` over a connection of its own, which has no time limit.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&mut self) -> Result<Events, ClientError> {
        let (sender, body) = self.stream(Socket::Query, Method::GET, "/v1/events", Bytes::new()).await?;
        Ok(Events::new(sender, body))
    }

    /// Has a recommendation kept true: the events of `POST /v1/recommend/watch`, over a connection of its own, which has
    /// no time limit.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn watch(&mut self, body: &impl Serialize) -> Result<Events, ClientError> {
        let body = encode(body)?;
        let (sender, body) = self.stream(Socket::Query, Method::POST, "/v1/recommend/watch", body).await?;
        Ok(Events::new(sender, body))
    }

    /// Holds for as long as the lines are kept, over a connection of its own.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hold(&mut self, body: &impl Serialize) -> Result<Lines, ClientError> {
        let body = encode(body)?;
        let (sender, body) = self.stream(Socket::Control, Method::POST, "/v1/holds/attached", body).await?;
        Ok(Lines::new(sender, body))
    }

    /// Ends a hold; once this is answered nothing is held by it any more.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release(&mut self, id: u64) -> Result<Answer, ClientError> {
        self.call(Socket::Control, Method::DELETE, &format!("/v1/holds/{id}"), Bytes::new()).await
    }

    /// Passes a request on as it is, over a connection of its own, and gives what is answered, whatever that is. Only the
    /// beginning of the answer has a time limit; dropping it ends the connection.
    ///
    /// # Errors
    /// See [`ClientError`]; the daemon's own refusals are answers here.
    pub async fn pass(
        &mut self,
        socket: Socket,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), ClientError> {
        let mut sender = self.connect(socket).await?;
        let request = request(&method, route, body)?;
        let response = within(self.timeout, route, sender.send_request(request)).await??;
        Ok((sender, response))
    }

    /// Whether a socket takes connections from this user; nothing is asked.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] or [`ClientError::Denied`].
    pub async fn reach(&mut self, socket: Socket) -> Result<(), ClientError> {
        self.connect(socket).await.map(drop)
    }

    /// Asks over a connection of its own for an answer that goes on; only its beginning has a time limit.
    async fn stream(
        &mut self,
        socket: Socket,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<(SendRequest<Full<Bytes>>, Incoming), ClientError> {
        let body = (self.prepare)(body)?;
        let (sender, response) = self.pass(socket, method, route, body).await?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(refusal(status, &collect(response).await?));
        }
        Ok((sender, response.into_body()))
    }

    async fn call(
        &mut self,
        socket: Socket,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let body = (self.prepare)(body)?;
        within(self.timeout, route, self.exchange(socket, method, route, body)).await?
    }

    async fn exchange(
        &mut self,
        socket: Socket,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let mut retried = false;
        let response = loop {
            let kept = self.open[socket.index()].take().filter(|sender| !sender.is_closed());
            let reused = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect(socket).await?,
            };
            let request = request(&method, route, body.clone())?;
            match sender.send_request(request).await {
                Ok(response) => {
                    self.open[socket.index()] = Some(sender);
                    break response;
                }
                // The daemon closed an idle connection before it saw anything of this request.
                Err(error) if error.is_canceled() && reused && !retried => retried = true,
                Err(error) => return Err(error.into()),
            }
        };
        let status = response.status();
        let serial = response
            .headers()
            .get("x-rooflined-serial")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok());
        let body = collect(response).await?;
        if status.is_success() { Ok(Answer { serial, body }) } else { Err(refusal(status, &body)) }
    }

    /// Opens a connection to the first daemon that takes one, and stays with it.
    async fn connect(&mut self, socket: Socket) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        if self.given.is_none() {
            // Directories come and go, and change hands. A client that has found a daemon stays with it.
            let places = address::candidates(None);
            if !self.settled {
                self.addresses = places;
            } else if let Some(gone) = self.addresses.first().map(|address| address.of(socket))
                && !places.iter().any(|place| place.of(socket) == gone)
            {
                let absent = std::io::ErrorKind::NotFound.into();
                return Err(ClientError::unreachable(socket, vec![(gone.to_owned(), absent)]));
            }
        }
        let mut failures = Vec::new();
        for address in &self.addresses {
            let path = address.of(socket);
            match open(path).await {
                Ok(stream) => {
                    let (sender, connection) =
                        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
                    // Ends with the connection; its error also reaches the request that is under way.
                    tokio::spawn(connection);
                    self.addresses = vec![address.clone()];
                    self.settled = true;
                    return Ok(sender);
                }
                Err(error) => failures.push((path.to_owned(), error)),
            }
        }
        if socket == Socket::Control {
            for address in &self.addresses {
                if open(address.of(Socket::Query)).await.is_ok() && !address.of(socket).exists() {
                    return Err(ClientError::WithoutControl { path: address.of(socket).to_owned() });
                }
            }
        }
        Err(ClientError::unreachable(socket, failures))
    }
}

/// Connects, waiting while the daemon's backlog is full.
async fn open(path: &Path) -> std::io::Result<UnixStream> {
    let attempt = async {
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BACKLOG_PAUSE).await;
                }
                result => return result,
            }
        }
    };
    timeout(CONNECT_TIMEOUT, attempt).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

async fn within<T>(limit: Duration, route: &str, work: impl Future<Output = T>) -> Result<T, ClientError> {
    timeout(limit, work).await.map_err(|_| ClientError::TimedOut { route: route.to_owned(), limit })
}

fn encode(body: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|source| ClientError::Unsendable { reason: source.to_string() })
}

fn request(method: &Method, route: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
    let mut request = Request::builder().method(method).uri(route).header("host", "rooflined");
    if *method == Method::POST || *method == Method::PUT {
        request = request.header("content-type", "application/json");
    }
    request
        .body(Full::new(body))
        .map_err(|source| ClientError::Unsendable { reason: format!("{route:?}: {source}") })
}

async fn collect(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    match Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => (*error).into(),
            Err(_) => ClientError::TooLarge,
        }),
    }
}

/// The error that an answer with this status stands for.
fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let body = serde_json::from_slice::<ErrorAnswer>(body).map_or_else(
        |_| ErrorBody {
            code: "http".to_owned(),
            message: format!("the daemon answered {status}"),
            field: None,
            hint: None,
            problems: Box::default(),
        },
        |answer| answer.error,
    );
    ClientError::Refused { status: status.as_u16(), body }
}
