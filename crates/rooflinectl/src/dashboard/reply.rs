//! What is answered, and errors in the daemon's own form.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use rooflined_api::{ErrorAnswer, ErrorBody};
use rooflined_client::Bytes;
use rooflined_core::refusal::Refusal;

/// Bytes, or an answer of the daemon that is passed on as it comes.
pub type Body = UnsyncBoxBody<Bytes, hyper::Error>;

pub fn whole(body: Full<Bytes>) -> Body {
    body.map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub fn json(value: &impl serde::Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(whole(Full::new(Bytes::from(bytes))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A refusal of this program's own, in the daemon's form.
pub fn refused(refusal: Refusal) -> Response<Body> {
    let code = refusal.code.status();
    failed(code, refusal.into())
}

/// An error with its status. Whatever of the body was not read is no next request, so the connection ends behind it.
pub fn failed(code: u16, error: ErrorBody) -> Response<Body> {
    let mut response = json(&ErrorAnswer { error });
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
