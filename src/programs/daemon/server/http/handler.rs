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
use crate::server::access::Peer;
use crate::server::advice::Advice;
use crate::server::events::{self, EventStream, Source};
use crate::server::judge::{Call, Caller, Content, Entrance, Stream, admitted};
use crate::server::power::{self, Said};
use crate::server::routes::{Found, NoRoute};
use crate::server::service::{Answered, Service};
use crate::server::{Attachment, Limits, Socket, clock};
use answer::error::status;
use governor::{Client, ControlRequest};
use roofline::refusal::{Code, Refusal};
use wire::{ErrorAnswer, RecommendRequest};

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
        let entrance = Entrance::Socket(&self.socket);
        let found = admitted(request.method().as_str(), request.uri().path(), entrance);
        let mut response = match found {
            Ok(found) => {
                let answered = self.respond(&snapshot, found, request, peer).await;
                answered.unwrap_or_else(refusal)
            }
            Err(none) => nowhere(none),
        };
        self.service.counters.answered(response.status().as_u16());
        response.headers_mut().insert(SERIAL, HeaderValue::from(snapshot.serial));
        if snapshot.board.simulated {
            response.headers_mut().insert(SIMULATED, HeaderValue::from_static("true"));
        }
        response
    }

    async fn respond(
        &self,
        snapshot: &Arc<decide::snapshot::Snapshot>,
        Found { spec, argument }: Found,
        request: Request<Incoming>,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        let body = if spec.method.has_body() {
            self.read(body, head.headers.contains_key(EXPECT)).await?
        } else {
            Bytes::new()
        };
        let call = Call {
            route: spec.route,
            argument: argument.as_deref(),
            query: head.uri.query().unwrap_or_default(),
            body: &body,
            caller: Caller::Peer(peer),
        };
        let content = match self.service.respond(snapshot, call).await? {
            Answered::Whole(content) => content,
            Answered::Stream(Stream::Events) => return self.stream(),
            Answered::Stream(Stream::Advice(request)) => return self.watch(snapshot, *request, peer).await,
            Answered::Stream(Stream::Hold { client, request }) => return self.hold(client, request).await,
        };
        let (content_type, bytes) = match content {
            Content::Json(json) => (JSON, Bytes::from(json)),
            Content::Static(json) => (JSON, Bytes::from_static(json)),
            Content::Text(text) => (PROMETHEUS, Bytes::from(text)),
        };
        let mut response = Response::new(Either::Left(Full::new(bytes)));
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// The body, in time and within its limit.
    async fn read(&self, body: Incoming, expects_continue: bool) -> Result<Bytes, Refusal> {
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
    async fn hold(&self, client: Client, request: ControlRequest) -> Result<Response<Body>, Refusal> {
        let control = &self.service.control;
        // Made before the question, so that a client that goes while it is answered holds nothing.
        let attachment = Attachment::new(control.clone());
        let client = Client { connection: attachment.connection, ..client };
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
        snapshot: &Arc<decide::snapshot::Snapshot>,
        request: RecommendRequest,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, Refusal> {
        let permit = self.stream_permit()?;
        let (advice, first) =
            Advice::begin(&self.service, snapshot, request, peer.map(Peer::account)).await?;
        let source = advice::Source {
            service: Arc::clone(&self.service),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
        };
        Ok(events_of(advice::stream(source, permit, advice, first)))
    }

    /// Permit for one more stream.
    fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Code::TooManyConnections.error(
                format!("all {} event streams are taken", self.limits.streams),
                "close another reader, or ask for GET /v1/state now and then",
            )
        })
    }

    fn stream(&self) -> Result<Response<Body>, Refusal> {
        let source = Source {
            snapshots: self.service.snapshots.clone(),
            control: self.service.control.clone(),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
            permit: self.stream_permit()?,
            counters: Arc::clone(&self.service.counters),
        };
        Ok(events_of(events::stream(source)))
    }

    /// Tells a connection that there is no place for it, and closes it unread.
    pub fn turn_away(&self, stream: &UnixStream) {
        self.service.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.last_words(
            stream,
            Code::TooManyConnections.error(
                format!("all {} connections are taken", self.limits.connections),
                "try again in a second, and close connections that are not used",
            ),
        );
    }

    /// Tells a connection that its header did not come in time.
    pub fn too_slow(&self, stream: &UnixStream) {
        self.last_words(
            stream,
            Code::RequestTimeout.error(
                format!("the header did not arrive within {:?}", self.limits.header_time),
                "send the whole header at once",
            ),
        );
    }

    /// An error outside of any request that hyper knows of; the connection is closed behind it.
    fn last_words(&self, stream: &UnixStream, refusal: Refusal) {
        let code = http_status(&refusal);
        self.service.counters.answered(code.as_u16());
        let body = encoded(refusal);
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

fn encoded(refusal: Refusal) -> Vec<u8> {
    serde_json::to_vec(&ErrorAnswer { error: refusal.into() }).unwrap_or_default()
}

fn http_status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(status(refusal.code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A request that no route takes, as a response.
fn nowhere(none: NoRoute) -> Response<Body> {
    let allow = none.allow().and_then(|methods| HeaderValue::try_from(methods).ok());
    let mut response = refusal(none.refusal);
    if let Some(methods) = allow {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}

/// A refusal as a response.
fn refusal(refusal: Refusal) -> Response<Body> {
    let status = http_status(&refusal);
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(encoded(refusal)))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    // The rest of what was being sent is not a next request.
    if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn too_large(limit: usize) -> Refusal {
    Code::BodyTooLarge.error(
        format!("the body is larger than {limit} bytes"),
        "ask for less at a time; a sweep takes ranges of shapes, formats and batches",
    )
}
