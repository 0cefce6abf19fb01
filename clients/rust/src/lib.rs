#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![cfg_attr(
    not(any(feature = "blocking", feature = "tokio")),
    allow(dead_code, unused_imports, unused_macros, reason = "without a client only the types are left")
)]

mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
#[cfg(feature = "blocking")]
mod blocking;
mod blocks;
mod body;
mod error;
mod exchange;
mod http;
mod io;
mod stream;
#[rustfmt::skip]
pub mod types;
mod verbs;

use std::time::Duration;

pub use address::Socket;
#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncClient, AsyncEvents, AsyncHold};
#[cfg(feature = "blocking")]
pub use blocking::{Client, Events, Hold};
pub use blocks::Event;
pub use body::{Body, Model, ModelFile, Request};
pub use error::{Cause, Error, Refused, Result};
pub use serde_json::{self, Value};
pub use stream::{HoldState, Stop};
pub use verbs::{Filter, ModelQuery, RooflineQuery};

/// For a whole exchange, where the verb does not say otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
