//! One request → one response.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{advice, attached, write_now};
use crate::answer::error::{Code, status};
use crate::api::{ErrorAnswer, ErrorBody};
use crate::server::access::Peer;
use crate::server::advice::Advice;
use crate::server::events::{self, EventStream, Source};
use crate::server::power::{self, Said};
use crate::server::routes::{self, Found, Route};
use crate::server::service::{Call, Content, Service};
use crate::server::{Attachment, Limits, Socket, clock};

/// A whole answer, or a stream of events.
pub type Body = Either<Full<Bytes>, StreamBody<EventStream>>;

/// Beyond this an oversized body is not even thrown away: the connection is closed on it.
const MAX_DISCARDED: u64 = 4 * 1024 * 1024;

const SERIAL: HeaderName = HeaderName::from_static("x-rooflined-serial");
/// Present on every answer about a simulated board, refusals included.
const SIMULATED: HeaderName = HeaderName::from_static("x-rooflined-simulated");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Answers the requests of all connections of one socket.
pub struct Handler {
    service: Arc<Service>,
    socket: Socket,
    limits: Limits,
    streams: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Handler {
    pub fn new(
        service: Arc<Service>,
        socket: Socket,
        limits: Limits,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(limits.streams.min(Semaphore::MAX_PERMITS)));
        Self { service, socket, limits, streams, stopped }
    }

    pub const fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Answers one request; never fails.
    pub async fn answer(&self, request: Request<Incoming>, peer: Option<&Peer>) -> Response<Body> {
        let snapshot = self.service.snapshot();
        let found = self.respond(&snapshot, request, peer).await;
        let mut response = found.unwrap_or_else(|error| refusal(&error));
        self.service.counters.answered(response.status().as_u16());
        response.headers_mut().insert(SERIAL, HeaderValue::from(snapshot.serial));
        if snapshot.board.simulated {
            response.headers_mut().insert(SIMULATED, HeaderValue::from_static("true"));
        }
        response
    }

    async fn respond(
        &self,
        snapshot: &Arc<crate::snapshot::Snapshot>,
        request: Request<Incoming>,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, ErrorBody> {
        let (head, body) = request.into_parts();
        let Found { spec, argument } = routes::find(head.method.as_str(), head.uri.path())?;
        if let (true, Socket::Query { control }) = (spec.control, &self.socket) {
            return Err(wrong_socket(spec.path, control.as_deref()));
        }
        if spec.route == Route::Events {
            self.service.watched(crate::server::clock::now().boottime);
            return self.stream();
        }
        let body = if spec.method.has_body() {
            self.read(body, head.headers.contains_key(EXPECT)).await?
        } else {
            Bytes::new()
        };
        if spec.route == Route::HoldAttached {
            return self.hold(snapshot, &body, peer).await;
        }
        let query = head.uri.query().unwrap_or_default();
        if spec.route == Route::RecommendWatch {
            routes::query_pairs(query, &[])?;
            return self.watch(snapshot, &body).await;
        }
        let call = Call { spec, argument: argument.as_deref(), query, body: &body, peer };
        let (content_type, bytes) = match self.service.respond(snapshot, call).await? {
            Content::Json(json) => (JSON, Bytes::from(json)),
            Content::Static(json) => (JSON, Bytes::from_static(json)),
            Content::Text(text) => (PROMETHEUS, Bytes::from(text)),
        };
        let mut response = Response::new(Either::Left(Full::new(bytes)));
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// The body, in time and within its limit.
    async fn read(&self, body: Incoming, expects_continue: bool) -> Result<Bytes, ErrorBody> {
        let limit = self.limits.body_bytes;
        let announced = body.size_hint().exact().unwrap_or(0);
        if announced > limit as u64 {
            // A client that asks first, or sends without end, is not worth listening to.
            if !expects_continue && announced <= MAX_DISCARDED {
                let _ = tokio::time::timeout(self.limits.body_time, discard(body)).await;
            }
            return Err(too_large(limit));
        }
        let reading = Limited::new(body, limit).collect();
        match tokio::time::timeout(self.limits.body_time, reading).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
            Ok(Err(error)) => Err(Code::MalformedRequest.error(
                format!("the body cannot be read: {error}"),
                "send as many bytes as Content-Length says",
            )),
            Err(_) => Err(Code::RequestTimeout.error(
                format!("the body did not arrive within {:?}", self.limits.body_time),
                "send the body right behind the header",
            )),
        }
    }

    /// Holds for as long as the answer is read.
    async fn hold(
        &self,
        snapshot: &Arc<crate::snapshot::Snapshot>,
        body: &[u8],
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, ErrorBody> {
        let control = &self.service.control;
        // Made before the question, so that a client that goes while it is answered holds nothing.
        let attachment = Attachment::new(control.clone());
        let client = power::client(peer, attachment.connection, snapshot.control_enabled)?;
        let request = power::hold(control, snapshot, body, true).await?;
        let Said::Held(held) = power::ask(control, clock::now, client, request).await? else {
            return Err(Code::Internal.error("the daemon answered something else", "report this"));
        };
        let source = attached::Source {
            snapshots: self.service.snapshots.clone(),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
            held,
        };
        let mut response =
            Response::new(Either::Right(StreamBody::new(attached::stream(source, attachment))));
        response.headers_mut().insert(CONTENT_TYPE, LINES);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// Keeps a recommendation true for as long as it is read.
    async fn watch(
        &self,
        snapshot: &Arc<crate::snapshot::Snapshot>,
        body: &[u8],
    ) -> Result<Response<Body>, ErrorBody> {
        self.service.watched(clock::now().boottime);
        // A wrong body is refused whether or not there is a place.
        let request = Advice::query(body)?;
        let permit = self.place()?;
        let (advice, first) = Advice::begin(&self.service, snapshot, request).await?;
        let source = advice::Source {
            service: Arc::clone(&self.service),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
        };
        Ok(events_of(advice::stream(source, permit, advice, first)))
    }

    /// A place among the streams.
    fn place(&self) -> Result<OwnedSemaphorePermit, ErrorBody> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Code::TooManyConnections.error(
                format!("all {} event streams are taken", self.limits.streams),
                "close another reader, or ask for GET /v1/state now and then",
            )
        })
    }

    fn stream(&self) -> Result<Response<Body>, ErrorBody> {
        let source = Source {
            snapshots: self.service.snapshots.clone(),
            control: self.service.control.clone(),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
            permit: self.place()?,
            counters: Arc::clone(&self.service.counters),
        };
        Ok(events_of(events::stream(source)))
    }

    /// Tells a connection that there is no place for it, and closes it unread.
    pub fn turn_away(&self, stream: &UnixStream) {
        self.service.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.last_words(
            stream,
            &Code::TooManyConnections.error(
                format!("all {} connections are taken", self.limits.connections),
                "try again in a second, and close connections that are not used",
            ),
        );
    }

    /// Tells a connection that its header did not come in time.
    pub fn too_slow(&self, stream: &UnixStream) {
        self.last_words(
            stream,
            &Code::RequestTimeout.error(
                format!("the header did not arrive within {:?}", self.limits.header_time),
                "send the whole header at once",
            ),
        );
    }

    /// An error outside of any request that hyper knows of; the connection is closed behind it.
    fn last_words(&self, stream: &UnixStream, error: &ErrorBody) {
        let code = StatusCode::from_u16(status(error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.service.counters.answered(code.as_u16());
        let body = encoded(error);
        let head = format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
             x-rooflined-serial: {}\r\n\r\n",
            body.len(),
            self.service.snapshots.borrow().serial
        );
        write_now(stream, &[head.into_bytes(), body].concat());
        // What was sent already would turn our close into a reset that overtakes the answer.
        let mut rest = [0; 4096];
        while matches!(stream.try_read(&mut rest), Ok(length) if length > 0) {}
    }
}

/// A stream of events as a response.
fn events_of(stream: EventStream) -> Response<Body> {
    let mut response = Response::new(Either::Right(StreamBody::new(stream)));
    response.headers_mut().insert(CONTENT_TYPE, EVENTS);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Reads to the end and keeps nothing.
async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn encoded(error: &ErrorBody) -> Vec<u8> {
    serde_json::to_vec(&ErrorAnswer { error: error.clone() }).unwrap_or_default()
}

/// An error as a response.
fn refusal(error: &ErrorBody) -> Response<Body> {
    let status = StatusCode::from_u16(status(error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(encoded(error)))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            let methods = error.message.rsplit_once(" takes ").map_or("", |(_, methods)| methods);
            let methods = methods.replace(" or ", ", ").replace("GET", "GET, HEAD");
            if let Ok(methods) = HeaderValue::from_str(&methods) {
                headers.insert(ALLOW, methods);
            }
        }
        // The rest of what was being sent is not a next request.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}

fn too_large(limit: usize) -> ErrorBody {
    Code::BodyTooLarge.error(
        format!("the body is larger than {limit} bytes"),
        "ask for less at a time; a sweep takes ranges of shapes, formats and batches",
    )
}

fn wrong_socket(path: &str, control: Option<&std::path::Path>) -> ErrorBody {
    let socket = control
        .map_or_else(|| "/run/rooflined-control/control.sock".to_owned(), |path| path.display().to_string());
    Code::WrongSocket.error(
        format!("{path} is answered on the control socket only"),
        format!("send it to {socket}: curl --unix-socket {socket} …"),
    )
}
