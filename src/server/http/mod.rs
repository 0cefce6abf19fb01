//! HTTP/1.1 and JSON over a Unix socket.

use std::future::Future;

use tokio::net::UnixListener;

use super::{Control, Limits, Snapshots, Socket};

/// Answers on `listener` until `stop` resolves, then lets answers in progress finish.
pub async fn serve(
    listener: UnixListener,
    socket: Socket,
    snapshots: Snapshots,
    control: Control,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let _ = (listener, socket, snapshots, control, limits);
    stop.await;
}
