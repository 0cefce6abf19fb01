//! Passes the page's requests on to the daemon, each over a connection of its own: who closes a page also takes back what it
//! asked, and a daemon that was started again is found by the next request.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use hyper::{Method, Response, Uri};

use super::Dashboard;
use super::reply::{Body, failed, whole};
use crate::contents;
use rooflined_api::ErrorBody;
use rooflined_client::address::Socket;
use rooflined_client::{Bytes, ClientError};

/// Calibrations and measurements run before they are answered, and wait for the machine to be idle before that.
const LONG: Duration = Duration::from_secs(3600);
/// Switches of the power mode and holds: a helper writes to the system before they are answered.
const SWITCH: Duration = Duration::from_secs(120);
/// What of the daemon's header is passed on.
const PASSED: [HeaderName; 4] = [
    CONTENT_TYPE,
    ALLOW,
    HeaderName::from_static("x-rooflined-serial"),
    HeaderName::from_static("x-rooflined-simulated"),
];

/// The route whose body is the first bytes of a model file.
pub const INSPECT: &str = "/v1/models/inspect";

/// Whether the daemon has routes there.
pub fn is_of_daemon(path: &str) -> bool {
    path.starts_with("/v1/") || path.starts_with("/-/") || path == "/metrics"
}

/// The daemon's answer, whatever that is.
pub async fn pass(dashboard: &Dashboard, method: &Method, target: &Uri, body: Bytes) -> Response<Body> {
    let socket = Socket::of_route(method.as_str(), target.path());
    match forward(dashboard, socket, method, target, body).await {
        Ok(response) => response,
        Err(error) => describe_failure(&error),
    }
}

async fn forward(
    dashboard: &Dashboard,
    socket: Socket,
    method: &Method,
    target: &Uri,
    body: Bytes,
) -> Result<Response<Body>, ClientError> {
    let body = if target.path() == INSPECT { body } else { enclose_files(body).await? };
    let limit = match (socket, target.path()) {
        (Socket::Query, _) => dashboard.timeout,
        (Socket::Control, "/v1/calibrate" | "/v1/measure") => LONG,
        (Socket::Control, _) => SWITCH,
    };
    let route = target.path_and_query().map_or("/", |target| target.as_str());
    let mut client = dashboard.client.another(limit);
    let (sender, answer) = client.pass(socket, method.clone(), route, body).await?;
    let (head, body) = answer.into_parts();
    // An answer of known length is whole; the connection of any other lasts for as long as it is read.
    let body = if head.headers.contains_key(CONTENT_LENGTH) {
        whole(Full::new(body.collect().await?.to_bytes()))
    } else {
        let held = body.map_frame(move |frame| {
            let _ = &sender;
            frame
        });
        held.boxed_unsync()
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    for name in PASSED {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

/// The body with the definitions of the files that it names. They are read with the rights of this program's user, on a
/// thread where a slow disk is waited for.
async fn enclose_files(body: Bytes) -> Result<Bytes, ClientError> {
    if body.is_empty() {
        return Ok(body);
    }
    let reading = tokio::task::spawn_blocking(move || contents::define_models(body));
    reading.await.map_err(|error| ClientError::Unsendable { reason: error.to_string() })?
}

/// Why there is no answer, in the form of the daemon's own errors.
fn describe_failure(error: &ClientError) -> Response<Body> {
    let (status, code) = match error {
        ClientError::Refused { status, body } => return failed(*status, body.clone()),
        ClientError::Unreachable { .. } | ClientError::WithoutControl { .. } => (503, "daemon_unreachable"),
        ClientError::Denied { .. } => (403, "not_authorized"),
        ClientError::TimedOut { .. } => (504, "daemon_timeout"),
        ClientError::Unsendable { .. } => (400, "malformed_request"),
        ClientError::Broken(_) | ClientError::Unexpected { .. } | ClientError::TooLarge => {
            (502, "daemon_broke_off")
        }
    };
    let body = ErrorBody {
        code: code.to_owned(),
        message: error.to_string(),
        hint: error.hint(),
        ..Default::default()
    };
    failed(status, body)
}
