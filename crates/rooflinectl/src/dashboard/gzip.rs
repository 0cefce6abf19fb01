//! Answers in gzip, which every browser takes: over a slow line the page is there in a third of the time.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::body::Body as _;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use rooflined_client::Bytes;

use super::reply::{Body, whole};

/// Shorter bodies fit into one packet as they are.
const SHORTEST: u64 = 1 << 10;
/// Beginnings of the content types that are packed. A stream of events is never packed.
const TYPES: [&str; 5] = ["application/json", "text/plain", "text/html", "text/javascript", "text/css"];

/// Whether a client takes gzip.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let refuses = |quality: &str| {
        let value = quality.trim().strip_prefix("q=").and_then(|value| value.parse::<f32>().ok());
        value.is_some_and(|value| value <= 0.0)
    };
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';');
        parts.next().is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip")) && !parts.any(refuses)
    })
}

/// The same answer as the client takes it: packed where that is worth it, or unpacked. A stream stays as it is.
pub async fn fit(response: Response<Body>, is_accepted: bool) -> Response<Body> {
    let is_packed = response.headers().contains_key(CONTENT_ENCODING);
    let length = response.body().size_hint().exact();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_worth_it = length.is_some_and(|length| length >= SHORTEST)
        && TYPES.iter().any(|packed| kind.starts_with(packed));
    let recode: fn(&[u8]) -> std::io::Result<Vec<u8>> = match (is_packed, is_accepted) {
        (true, false) => unpack,
        (false, true) if is_worth_it => pack,
        _ => return response,
    };
    let (mut head, body) = response.into_parts();
    let recoded = match body.collect().await {
        Ok(collected) => recode(&collected.to_bytes()),
        Err(error) => Err(std::io::Error::other(error)),
    };
    let Ok(bytes) = recoded else {
        let mut failed = Response::new(whole(Full::default()));
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
    };
    if is_packed {
        head.headers.remove(CONTENT_ENCODING);
    } else {
        head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Response::from_parts(head, whole(Full::new(Bytes::from(bytes))))
}

fn pack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(packed.len() * 4);
    GzDecoder::new(packed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &'static str) -> bool {
        is_accepted(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))]))
    }

    #[test]
    fn gzip_is_sent_to_whom_it_is_welcome() {
        assert!(accepts("gzip, deflate, br, zstd") && accepts("br;q=1, GZIP;q=0.5"));
        assert!(!accepts("br, deflate") && !accepts("gzip;q=0") && !accepts("") && !accepts("xgzip"));
        assert!(!is_accepted(&HeaderMap::new()));
    }

    #[test]
    fn what_is_packed_unpacks_to_the_same() {
        for bytes in [&b""[..], b"x", &[0; 100_000], include_bytes!("page/main.js")] {
            assert_eq!(unpack(&pack(bytes).unwrap()).unwrap(), bytes);
        }
        assert!(unpack(b"no gzip").is_err());
    }
}
