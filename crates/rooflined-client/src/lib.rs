//! Talks to the daemon: HTTP/1.1 with JSON over a Unix socket, with the request and answer types of `rooflined-api`.
//!
//! A [`Client`] opens a connection when it is first needed and keeps it. It looks for the daemon at the path that the caller
//! gives, or where a daemon of this user or of the system would listen ([`address`]). It runs on the caller's tokio runtime.

#![warn(missing_docs)]

pub mod address;
mod client;
mod error;
mod events;
mod lines;

pub use client::{Answer, Client, MAX_ANSWER_BYTES, Prepare};
pub use error::ClientError;
pub use events::{Event, Events};
pub use hyper::body::Bytes;
pub use lines::Lines;

/// The examples of the manual.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/api.md")]
struct Manual;
