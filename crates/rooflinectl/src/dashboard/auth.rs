//! Who is let in: the one place that decides whether a request may be answered.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN, TRANSFER_ENCODING};
use hyper::{Method, Uri};

use crate::failure::Failure;
use rooflined_core::refusal::{Code, Refusal};

const TOKEN: HeaderName = HeaderName::from_static("x-rooflined-token");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Random bytes of a token: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;

/// What the page shows to be let in.
pub struct Token(String);

impl Token {
    /// A new one from the kernel.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn random() -> Result<Self, Failure> {
        let mut bytes = [0_u8; TOKEN_BYTES];
        let mut filled = 0;
        while filled < TOKEN_BYTES {
            let rest = bytes.get_mut(filled..).unwrap_or_default();
            filled +=
                rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
                    Failure::failed(format!("the kernel provides no random bytes: {error}"), "try again")
                })?;
        }
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In a time that does not tell how much of it was right.
    fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing =
            own.iter().zip(given).fold(0, |differing, (a, b)| std::hint::black_box(differing | (a ^ b)));
        own.len() == given.len() && differing == 0
    }
}

/// May this be answered at all, to anybody? Asked of the page's own files too.
///
/// # Errors
/// Its target or its host is not what a browser at this address sends.
pub fn check_target(method: &Method, target: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if ![Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE].contains(method) {
        let message = format!("{method} is not answered here");
        return Err(Code::MethodNotAllowed.error(message, "use GET, POST, PUT or DELETE"));
    }
    if target.scheme().is_some() || target.authority().is_some() || !target.path().starts_with('/') {
        return Err(Code::MalformedRequest.error(
            "the target of the request is not a path",
            "this is not a proxy: send GET /PATH with a Host header",
        ));
    }
    // Browsers send lengths. A length beside it, which the two ends may understand differently, is not seen here any more.
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(Code::MalformedRequest.error(
            "bodies with a Transfer-Encoding are not accepted",
            "send the body with its Content-Length",
        ));
    }
    host(headers).map(drop)
}

/// May the sender see and do what is not the page's alone?
///
/// # Errors
/// It has no token, or another website sent it.
pub fn check_admission(
    token: &Token,
    method: &Method,
    headers: &HeaderMap,
    content: Content,
) -> Result<(), Refusal> {
    let host = host(headers)?;
    let foreign = |message: String| {
        Code::NotAuthorized.error(message, "open the address that rooflinectl dashboard printed")
    };
    let origin = only(headers, &ORIGIN)?;
    if origin.is_some_and(|origin| !origin.eq_ignore_ascii_case(&format!("http://{host}"))) {
        return Err(foreign("another website sent this request".to_owned()));
    }
    if only(headers, &FETCH_SITE)?.is_some_and(|site| site != "same-origin") {
        return Err(foreign("another website made the browser send this request".to_owned()));
    }
    let given = headers.get(TOKEN).filter(|_| headers.get_all(TOKEN).iter().count() == 1);
    if !given.is_some_and(|given| token.is(given.as_bytes())) {
        let message = if given.is_some() {
            "X-Rooflined-Token is not the token of this dashboard"
        } else {
            "the header X-Rooflined-Token is missing"
        };
        return Err(foreign(message.to_owned()));
    }
    let changes = ![Method::GET, Method::HEAD].contains(method);
    if changes && origin.is_none() {
        return Err(foreign(format!("{method} without an Origin is not from the dashboard's page")));
    }
    if changes {
        content.is_that_of(headers)?;
    }
    Ok(())
}

/// What the body of a request may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Json,
    /// JSON, or the beginning of a file.
    File,
}

impl Content {
    fn is_that_of(self, headers: &HeaderMap) -> Result<(), Refusal> {
        let given = only(headers, &CONTENT_TYPE)?.unwrap_or_default();
        let kind = given.split(';').next().unwrap_or_default().trim();
        let json = kind.eq_ignore_ascii_case("application/json");
        if json || (self == Self::File && kind.eq_ignore_ascii_case("application/octet-stream")) {
            return Ok(());
        }
        // What an HTML form can send without asking first is none of these.
        let expected = if self == Self::Json { "application/json" } else { "application/octet-stream" };
        Err(Code::MalformedRequest
            .error("the content type is not the one of this route", format!("send Content-Type: {expected}")))
    }
}

/// The host and port that the request names, which are of this machine by their very words: no name server had a say.
fn host(headers: &HeaderMap) -> Result<&str, Refusal> {
    let host = only(headers, &HOST)?.unwrap_or_default();
    if is_loopback(host) {
        return Ok(host);
    }
    Err(Code::NotAuthorized.error(
        "the Host of this request is neither localhost nor a loopback address",
        "open the address that rooflinectl dashboard printed; through ssh -L it stays 127.0.0.1",
    ))
}

fn is_loopback(authority: &str) -> bool {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => (name, None),
            Some((name, port)) => match port.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None => return false,
            },
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_here = if authority.starts_with('[') {
        name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
    } else {
        name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
    };
    is_here && port.is_none_or(is_port)
}

/// A header that stands there once or not at all.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str());
    match (first, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Code::MalformedRequest
            .error(format!("the header {name} appears twice, or is not text"), "send it once")),
    }
}
