//! A model file of which the page sends the beginning.

use hyper::header::HeaderMap;
use serde_json::Value;
use roofline::refusal::{Code, Refusal};
use wire::client::Bytes;

pub const PATH: &str = "/dashboard/model";
/// Most bytes of a header.
pub const MAX_BYTES: usize = 64 << 20;

pub async fn answer(_headers: &HeaderMap, _start: Bytes) -> Result<Value, Refusal> {
    Err(Code::Internal.error("not yet", "wait"))
}
