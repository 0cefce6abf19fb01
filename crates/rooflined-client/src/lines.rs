//! An answer of JSON lines that go on for as long as somebody reads them.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use serde_json::Value;

use crate::ClientError;

/// Longest line taken.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The lines of one answer; it ends when they are dropped.
#[derive(Debug)]
pub struct Lines {
    /// Keeps the connection open.
    _sender: SendRequest<Full<Bytes>>,
    body: Incoming,
    pending: Vec<u8>,
}

impl Lines {
    pub(super) const fn new(sender: SendRequest<Full<Bytes>>, body: Incoming) -> Self {
        Self { _sender: sender, body, pending: Vec::new() }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// The connection broke, or the line is not one of ours.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let line = serde_json::from_slice(&line);
                return line.map(Some).map_err(|source| ClientError::Unexpected { source });
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.pending.extend(data);
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return Err(ClientError::TooLarge);
            }
        }
    }
}
