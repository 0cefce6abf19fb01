//! One request → one response.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::{MAX_HEADER_BYTES, MAX_HEADERS, advice, attached, write_now};
use crate::server::access::Peer;
use crate::server::advice::Advice;
use crate::server::dispatch::{Answered, Call, Caller, Stream};
use crate::server::events::{self, EventStream, Source};
use crate::server::model_files::FirstBytes;
use crate::server::power::{self, ControlAnswer};
use crate::server::routes::{self, Entrance, Found, NoRoute, Route};
use crate::server::service::Service;
use crate::server::shares::{Place, Quota, QuotaExceeded, User};
use crate::server::{Attachment, Limits, Socket, clock};
use rooflined_advice::modelfile::MAX_HEADER_BYTES as MAX_MODEL_BYTES;
use rooflined_api::{ErrorAnswer, RecommendRequest};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_governor::{Client, ControlRequest};

/// A whole answer, or a stream of events.
pub type Body = Either<Full<Bytes>, StreamBody<EventStream>>;

/// Beyond this a body that is not wanted is not read to its end before the answer.
const MAX_DISCARDED: u64 = 4 * 1024 * 1024;

/// Longest list of layers; a network of a thousand has some 200 kB.
const MAX_NETWORK_BYTES: usize = 1 << 20;

const SERIAL: HeaderName = HeaderName::from_static("x-rooflined-serial");
/// Present on every answer about a simulated board, refusals included.
const SIMULATED: HeaderName = HeaderName::from_static("x-rooflined-simulated");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

type TurnedAway = ((User, QuotaExceeded, u64), LastWords);

/// Answers the requests of all connections of one socket.
pub struct Handler {
    pub service: Arc<Service>,
    socket: Socket,
    pub limits: Limits,
    streams: Arc<Quota>,
    /// Bytes of answers that have not been written yet.
    unread: Arc<Quota>,
    stopped: watch::Receiver<bool>,
    /// Who was turned away last and why, from which snapshot, and what it was told.
    turned_away: Mutex<Option<TurnedAway>>,
}

impl Handler {
    pub fn new(
        service: Arc<Service>,
        socket: Socket,
        limits: Limits,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let streams = Quota::new(limits.streams);
        let unread = Quota::new(limits.unread_bytes);
        Self { service, socket, limits, streams, unread, stopped, turned_away: Mutex::default() }
    }

    /// Answers one request; never fails.
    pub async fn answer(&self, request: Request<Incoming>, peer: Option<&Peer>) -> Response<Body> {
        let snapshot = self.service.snapshot();
        let entrance = Entrance::Socket(&self.socket);
        let found = routes::find(request.method().as_str(), request.uri().path(), entrance);
        let mut response = match found {
            Ok(found) => {
                let answered = self.respond(&snapshot, found, request, peer).await;
                answered.unwrap_or_else(refusal)
            }
            Err(none) => {
                // What is answered on the control socket only, for those who may.
                if let Some(route) = none.elsewhere {
                    self.service.refused(route, &[], peer.map(|peer| peer.uid), &none.refusal);
                }
                let expects_continue = request.headers().contains_key(EXPECT);
                let whole = self.discard(request.into_body(), expects_continue).await;
                last_if(!whole, nowhere(none))
            }
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
        snapshot: &Arc<rooflined_predict::snapshot::Snapshot>,
        Found { spec, argument }: Found,
        request: Request<Incoming>,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        let expects_continue = head.headers.contains_key(EXPECT);
        // A model file is read while it comes in.
        let (sender, start) = FirstBytes::new();
        let (mut file, mut sent) = (None, None);
        let body = if spec.route == Route::InspectModel {
            file = Some(Mutex::new(Some(start)));
            sent = Some((sender, body));
            Bytes::new()
        } else if spec.method.has_body() {
            let limit = if matches!(spec.route, Route::PredictNetwork | Route::RecommendNetwork) {
                MAX_NETWORK_BYTES
            } else {
                self.limits.body_bytes
            };
            self.read(body, limit, expects_continue).await?
        } else {
            // It says nothing here.
            self.discard(body, expects_continue).await;
            Bytes::new()
        };
        // Nothing is computed for a client that leaves answers unread.
        drop(self.to_be_read(vec![0], peer)?);
        let call = Call {
            route: spec.route,
            argument: argument.as_deref(),
            query: head.uri.query().unwrap_or_default(),
            body: &body,
            file: file.as_ref(),
            caller: Caller::Peer(peer),
        };
        let answer = async {
            let answered = self.service.respond(snapshot, call).await;
            // Nobody reads on: what still comes is thrown away.
            file.as_ref().map(|file| file.lock().unwrap_or_else(PoisonError::into_inner).take());
            answered
        };
        let passed = async {
            match sent {
                Some((sender, body)) => self.pass_on(body, sender, expects_continue).await,
                None => Ok(()),
            }
        };
        let (answered, passed) = tokio::join!(answer, passed);
        passed?;
        let (content_type, bytes) = match answered? {
            Answered::Json(json) => (JSON, self.to_be_read(json, peer)?),
            Answered::Static(json) => (JSON, Bytes::from_static(json)),
            Answered::Text(text) => (PROMETHEUS, self.to_be_read(text.into_bytes(), peer)?),
            Answered::Stream(Stream::Events) => return self.stream(peer),
            Answered::Stream(Stream::Advice(request)) => return self.watch(snapshot, *request, peer).await,
            Answered::Stream(Stream::Hold { client, request }) => {
                let held = self.hold(client, request).await;
                return held.inspect_err(|refusal| {
                    self.service.refused(spec.route, &body, Some(client.uid), refusal);
                });
            }
        };
        let mut response = Response::new(Either::Left(Full::new(bytes)));
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// The bytes of an answer, which count against its user until they are written.
    fn to_be_read(&self, bytes: Vec<u8>, peer: Option<&Peer>) -> Result<Bytes, Refusal> {
        match self.unread.take_many(peer.map(Peer::account), bytes.len()) {
            Ok(place) => Ok(Bytes::from_owner(Unread { bytes: bytes.into(), _place: place })),
            Err(_) => Err(Code::Busy.error(
                "this user has not read what was answered before, and more would not fit into memory",
                "read the answers on the other connections, or close those",
            )),
        }
    }

    /// A request whose end two parsers would see in different places. The connection ends with the answer.
    pub fn refuse_two_lengths(&self) -> Response<Body> {
        let serial = self.service.snapshots.borrow().serial;
        let mut response = last_if(true, refusal(Code::MalformedRequest.error(
            "the header has both Content-Length and Transfer-Encoding, so the end of the body is not clear",
            "send one of the two",
        )));
        self.service.counters.answered(response.status().as_u16());
        response.headers_mut().insert(SERIAL, HeaderValue::from(serial));
        response
    }

    /// The body, in time and within its limit.
    async fn read(&self, body: Incoming, limit: usize, expects_continue: bool) -> Result<Bytes, Refusal> {
        let announced = body.size_hint().exact().unwrap_or(0);
        if announced > limit as u64 {
            self.discard(body, expects_continue).await;
            return Err(too_large(limit));
        }
        let reading = Limited::new(body, limit).collect();
        match tokio::time::timeout(self.limits.body_time, reading).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
            Ok(Err(error)) => Err(unreadable(error)),
            Err(_) => Err(self.late_body()),
        }
    }

    /// Passes a model file on as it comes in, in time and within its limit; to its end, so that its client comes to read the
    /// answer.
    async fn pass_on(
        &self,
        mut body: Incoming,
        to: mpsc::Sender<Bytes>,
        expects_continue: bool,
    ) -> Result<(), Refusal> {
        let mut left = MAX_MODEL_BYTES;
        if body.size_hint().lower() > left {
            self.discard(body, expects_continue).await;
            return Err(too_large(left));
        }
        let passing = async {
            while let Some(frame) = body.frame().await {
                let Ok(part) = frame.map_err(unreadable)?.into_data() else { continue };
                left = left.checked_sub(part.len() as u64).ok_or_else(|| too_large(MAX_MODEL_BYTES))?;
                let _ = to.send(part).await;
            }
            Ok(())
        };
        tokio::time::timeout(self.limits.body_time, passing).await.unwrap_or_else(|_| Err(self.late_body()))
    }

    fn late_body(&self) -> Refusal {
        Code::RequestTimeout.error(
            format!("the body did not arrive within {:?}", self.limits.body_time),
            "send the body right behind the header",
        )
    }

    /// Reads a body that nobody wants, so that its client comes to read the answer; false where there is more of it. A client
    /// that asks first, or sends without end, is answered at once.
    async fn discard(&self, mut body: Incoming, expects_continue: bool) -> bool {
        if body.is_end_stream() {
            return true;
        }
        if expects_continue || body.size_hint().lower() > MAX_DISCARDED {
            return false;
        }
        let reading = async {
            let mut left = MAX_DISCARDED;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                if length > left {
                    return false;
                }
                left -= length;
            }
            true
        };
        tokio::time::timeout(self.limits.body_time, reading).await.unwrap_or(false)
    }

    /// Holds for as long as the answer is read.
    async fn hold(&self, client: Client, request: ControlRequest) -> Result<Response<Body>, Refusal> {
        let control = &self.service.control;
        // Made before the question, so that a client that goes while it is answered holds nothing.
        let attachment = Attachment::new(control.clone());
        let client = Client { connection: attachment.connection, ..client };
        let ControlAnswer::Held(held) = power::ask(control, clock::now, client, request).await? else {
            return Err(Code::Internal.error("the daemon gave an unexpected answer", "report this"));
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
        snapshot: &Arc<rooflined_predict::snapshot::Snapshot>,
        request: RecommendRequest,
        peer: Option<&Peer>,
    ) -> Result<Response<Body>, Refusal> {
        let place = self.stream_place(peer)?;
        let (advice, first) =
            Advice::begin(&self.service, snapshot, request, peer.map(Peer::account)).await?;
        let source = advice::Source {
            service: Arc::clone(&self.service),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
        };
        Ok(events_of(advice::stream(source, place, advice, first)))
    }

    /// A place for one more stream.
    fn stream_place(&self, peer: Option<&Peer>) -> Result<Place, Refusal> {
        let user = peer.map(Peer::account);
        let hint = "close another reader, or ask for GET /v1/state now and then";
        self.streams.take(user).map_err(|full| full.refusal(user, "event streams", hint))
    }

    fn stream(&self, peer: Option<&Peer>) -> Result<Response<Body>, Refusal> {
        let source = Source {
            snapshots: self.service.snapshots.clone(),
            control: self.service.control.clone(),
            heartbeat: self.limits.heartbeat,
            stop: self.stopped.clone(),
            place: self.stream_place(peer)?,
            counters: Arc::clone(&self.service.counters),
        };
        Ok(events_of(events::stream(source)))
    }

    /// Tells a connection that there is no place for it, unread. Those who flood are told the same again and again, which
    /// is written once.
    pub fn turn_away(&self, stream: &UnixStream, user: User, full: QuotaExceeded) {
        self.service.counters.refused.fetch_add(1, Ordering::Relaxed);
        let why = (user, full, self.service.snapshots.borrow().serial);
        let mut last = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(told, ..)| *told != why) {
            let hint = "try again in a second, and close connections that are not used";
            *last = Some((why, self.last_words(full.refusal(user, "connections", hint))));
        }
        if let Some((_, words)) = last.as_ref() {
            self.close_with(stream, words);
        }
    }

    /// Tells a client what was wrong with a request of which there is no more than that; false where there is nothing to
    /// tell, or nobody. `heard`: it had sent something since it was answered last.
    pub fn cut_short(&self, stream: &UnixStream, error: &hyper::Error, heard: bool) -> bool {
        let refusal = if error.is_timeout() {
            Code::RequestTimeout.error(
                format!("the header did not arrive within {:?}", self.limits.header_time),
                "send the whole header at once",
            )
        } else if error.is_parse_too_large() {
            Code::HeaderTooLarge.error(
                format!("the header has more than {MAX_HEADERS} lines or {MAX_HEADER_BYTES} bytes"),
                "send fewer and shorter lines; what is asked goes into the body",
            )
        } else if error.is_parse() {
            Code::MalformedRequest.error(
                format!("this is not HTTP/1.1: {error}"),
                "send a request such as: GET /v1/state HTTP/1.1, Host: localhost, and an empty line",
            )
        } else if error.is_incomplete_message() {
            Code::MalformedRequest.error(
                "the header ends in the middle",
                "send all of it, with an empty line behind it, before closing",
            )
        } else {
            return false;
        };
        // A mere status of hyper's was kept back, which counts as if it had been an answer.
        if heard || error.is_parse() {
            self.close_with(stream, &self.last_words(refusal));
            return true;
        }
        false
    }

    /// An error outside of any request that hyper knows of.
    fn last_words(&self, refusal: Refusal) -> LastWords {
        let code = http_status(&refusal);
        let body = encoded(refusal);
        let snapshot = self.service.snapshot();
        let simulated = if snapshot.board.simulated { "x-rooflined-simulated: true\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
             x-rooflined-serial: {}\r\n{simulated}\r\n",
            body.len(),
            snapshot.serial
        );
        LastWords { status: code.as_u16(), bytes: [head.into_bytes(), body].concat() }
    }

    /// The connection is closed behind it.
    fn close_with(&self, stream: &UnixStream, words: &LastWords) {
        self.service.counters.answered(words.status);
        write_now(stream, &words.bytes);
    }
}

/// Bytes that hyper has not written yet, with their place among them.
struct Unread {
    bytes: Box<[u8]>,
    _place: Place,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A whole answer outside of any request.
struct LastWords {
    status: u16,
    bytes: Vec<u8>,
}

/// A stream of events as a response.
fn events_of(stream: EventStream) -> Response<Body> {
    let mut response = Response::new(Either::Right(StreamBody::new(stream)));
    response.headers_mut().insert(CONTENT_TYPE, EVENTS);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn encoded(refusal: Refusal) -> Vec<u8> {
    serde_json::to_vec(&ErrorAnswer { error: refusal.into() }).unwrap_or_default()
}

fn http_status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A request that no route takes, as a response.
fn nowhere(none: NoRoute) -> Response<Body> {
    let allow = none.allow.and_then(|methods| HeaderValue::try_from(methods).ok());
    let mut response = refusal(*none.refusal);
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
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    // The rest of what was being sent is not a next request.
    let last = matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT);
    last_if(last, response)
}

/// The connection is closed behind it where there was more that was not read.
fn last_if(last: bool, mut response: Response<Body>) -> Response<Body> {
    if last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn unreadable(error: impl std::fmt::Display) -> Refusal {
    Code::MalformedRequest
        .error(format!("the body cannot be read: {error}"), "send as many bytes as Content-Length says")
}

fn too_large(limit: impl std::fmt::Display) -> Refusal {
    Code::BodyTooLarge.error(
        format!("the body is larger than {limit} bytes"),
        "ask for fewer at a time; a sweep takes ranges of shapes, formats and batches",
    )
}
