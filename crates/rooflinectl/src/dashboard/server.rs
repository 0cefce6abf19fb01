//! Connections of browsers, and which of their requests goes where.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONNECTION, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::auth::{self, Content};
use super::reply::{self, Body, refused, whole};
use super::{Dashboard, gzip, history, network, proxy, session};
use rooflined_advice::modelfile;
use rooflined_api::ErrorAnswer;
use rooflined_client::Bytes;
use rooflined_core::refusal::{Code, Refusal};

/// Connections at once.
const MAX_CONNECTIONS: usize = 256;
/// Time for a header to arrive, for the next request on an idle connection, and for a connection to show the token at all.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Time for a body to arrive; the first bytes of a model file may come over a slow line.
const BODY_TIME: Duration = Duration::from_secs(60);
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;
/// As large as the daemon takes.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The same for questions about vision networks, which hold their layers.
const MAX_NETWORK_BYTES: usize = 1 << 20;
/// The same for the first bytes of a model file, and for the graph of a network.
#[expect(clippy::cast_possible_truncation, reason = "64 MiB")]
const MAX_FILE_BYTES: usize = modelfile::MAX_HEADER_BYTES as usize;
/// Pause after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// On every answer: what a page from here may load and do, and that nobody else may embed or keep it.
const PROTECTION: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
];

/// Answers on `listener` for as long as it is polled.
pub async fn serve(listener: TcpListener, dashboard: Arc<Dashboard>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Events come in small pieces.
        let _ = stream.set_nodelay(true);
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let dashboard = Arc::clone(&dashboard);
                tokio::spawn(async move {
                    connection(stream, dashboard).await;
                    drop(place);
                });
            }
            Err(_) => turn_away(&stream),
        }
    }
}

async fn connection(stream: TcpStream, dashboard: Arc<Dashboard>) {
    let admitted = Arc::new(AtomicBool::new(false));
    let service = {
        let admitted = Arc::clone(&admitted);
        service_fn(move |request| {
            let (dashboard, admitted) = (Arc::clone(&dashboard), Arc::clone(&admitted));
            async move { Ok::<_, Infallible>(protected(answer(&dashboard, request, &admitted).await)) }
        })
    };
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    // A client without a token has no more than this of a place, however it reads and writes.
    let served = timeout(HEADER_TIME, serving.as_mut()).await;
    if served.is_err() && admitted.load(Ordering::Relaxed) {
        // What a browser does to its connection is its own affair.
        let _ = serving.await;
    }
}

/// The header of every answer says what it may be used for.
fn protected(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in PROTECTION {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn answer(dashboard: &Dashboard, request: Request<Incoming>, admitted: &AtomicBool) -> Response<Body> {
    let takes_gzip = gzip::is_accepted(request.headers());
    let response = route(dashboard, request, admitted).await.unwrap_or_else(refused);
    gzip::fit(response, takes_gzip).await
}

async fn route(
    dashboard: &Dashboard,
    request: Request<Incoming>,
    admitted: &AtomicBool,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    auth::check_target(&head.method, &head.uri, &head.headers)?;
    let path = head.uri.path();
    if !is_guarded(path) {
        return page(dashboard, &head.method, path);
    }
    let (content, limit) = match path {
        proxy::INSPECT | network::ROUTE => (Content::File, MAX_FILE_BYTES),
        _ if path.starts_with("/v1/networks/") => (Content::Json, MAX_NETWORK_BYTES),
        _ => (Content::Json, MAX_BODY_BYTES),
    };
    auth::check_admission(&dashboard.token, &head.method, &head.headers, content)?;
    admitted.store(true, Ordering::Relaxed);
    match (path, &head.method) {
        ("/dashboard/session", &Method::GET) => Ok(reply::json(&session::answer(dashboard).await)),
        ("/dashboard/history", &Method::GET) => Ok(history::answer(dashboard)),
        (network::ROUTE, &Method::POST) => network::answer(read(body, limit).await?).await,
        ("/dashboard/session" | "/dashboard/history" | network::ROUTE, _) => Err(Code::MethodNotAllowed
            .error(format!("{path} has another method"), "see docs/internals/routes.md")),
        _ if path.starts_with("/dashboard/") => {
            Err(Code::NotFound.error(format!("there is no {path:.80} here"), "see docs/internals/routes.md"))
        }
        _ => {
            let body = read(body, limit).await?;
            Ok(proxy::pass(dashboard, &head.method, &head.uri, body).await)
        }
    }
}

/// Whether a path is for those alone who have the token; all others are the page's files, which hold no data.
fn is_guarded(path: &str) -> bool {
    proxy::is_of_daemon(path) || path.starts_with("/dashboard/")
}

fn page(dashboard: &Dashboard, method: &Method, path: &str) -> Result<Response<Body>, Refusal> {
    if ![Method::GET, Method::HEAD].contains(method) {
        return Err(Code::MethodNotAllowed.error(format!("{method} is not for the page's files"), "use GET"));
    }
    let file = dashboard.pages.get(path);
    let Some(file) = file else {
        return Err(Code::NotFound.error(
            format!("the page has no file {path:.80}"),
            "begin at /; the daemon's routes begin with /v1/",
        ));
    };
    let mut response = file.map(whole);
    // Nobody keeps a place by asking for files, for which no token is needed.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// The body, in time and within its limit.
async fn read(body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    match timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Code::BodyTooLarge
            .error(format!("the body is larger than {limit} bytes"), "ask for fewer at a time")),
        Ok(Err(error)) => Err(Code::MalformedRequest
            .error(format!("the body cannot be read: {error}"), "send as many bytes as Content-Length says")),
        Err(_) => Err(Code::RequestTimeout.error(
            format!("the body did not arrive within {} s", BODY_TIME.as_secs()),
            "send the body right behind the header",
        )),
    }
}

/// Tells a connection that there is no place for it, unread.
fn turn_away(stream: &TcpStream) {
    let refusal =
        Code::TooManyConnections.error("all connections of the dashboard are in use", "close other tabs");
    let body = serde_json::to_vec(&ErrorAnswer { error: refusal.into() }).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\ncache-control: no-store\r\n{}\r\n",
        body.len(),
        PROTECTION.map(|(name, value)| format!("{name}: {value}\r\n")).concat()
    );
    // It fits into the buffer of the socket; a client that has left gets no answer.
    let _ = stream.try_write(&[head.into_bytes(), body].concat());
}
