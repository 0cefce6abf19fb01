//! A server of this process on temporary sockets and on a private bus, and what a client makes of it.

mod advice;
mod control;
mod dbus;
mod descriptors;
mod http;
mod model_files;
mod openapi;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod tiling;
