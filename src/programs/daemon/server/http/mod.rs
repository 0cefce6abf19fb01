//! HTTP/1.1 and JSON over a Unix socket.
//!
//! What a client may do to us, and what stops it:
//!
//! | it | gets |
//! |---|---|
//! | sends its header slowly, or keeps an idle connection | 408 (silently closed if it sent nothing) after 5 s |
//! | sends its body slowly | 408 after 10 s |
//! | sends more than 64 KiB of body | 413; up to 4 MiB are read and thrown away so that it hears the answer |
//! | sends over 64 header lines or 16 KiB of header | 431 |
//! | is the 257th connection | 503 and is closed at once, without being read |
//! | does not read its answer | is cut off after 30 s without progress |
//! | holds a mode and dies | its hold ends with its connection |
//! | opens more than 32 streams of events, recommendations that are kept true among them | 503 |
//! | goes away while a calibration runs for it | the daemon is notified |
//!
//! Running out of descriptors pauses accepting and says so once; connections wait in the kernel's queue meanwhile.

mod advice;
mod attached;
mod guard;
mod handler;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use self::guard::Guarded;
use self::handler::Handler;
use super::access::Peer;
use super::service::Service;
use super::{Control, Limits, Snapshots, Socket};

/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a request's header.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Pause after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers on `listener` until `stop` resolves, then lets answers in progress finish.
pub async fn serve(
    listener: UnixListener,
    socket: Socket,
    snapshots: Snapshots,
    control: Control,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let label = if socket == Socket::Control { "control" } else { "query" };
    let service = Arc::new(Service::new(snapshots, control, label));
    let (stopping, stopped) = watch::channel(false);
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let handler = Arc::new(Handler::new(service, socket, limits.clone(), stopped.clone()));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut starved = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Reaped as they end, so that the set does not grow with every connection there ever was.
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                starved = false;
                match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        connections.spawn(connection(stream, Arc::clone(&handler), stopped.clone(), place));
                    }
                    Err(_) => handler.turn_away(&stream),
                }
            }
            Err(error) => {
                if !starved {
                    tracing::warn!(%error, label, "cannot accept connections; they wait until this ends");
                    starved = true;
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let _ = stopping.send(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::debug!(label, "answers still in progress are cut off");
    }
}

/// Serves one connection to its end.
async fn connection(
    stream: UnixStream,
    handler: Arc<Handler>,
    mut stopped: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
) {
    let counters = Arc::clone(&handler.service().counters);
    counters.connections.fetch_add(1, Ordering::Relaxed);
    let peer =
        stream.peer_cred().ok().map(|peer| Arc::new(Peer::new(peer.uid(), peer.pid(), vec![peer.gid()])));
    let limits = handler.limits().clone();
    let answering = Arc::clone(&handler);
    let service = service_fn(move |request| {
        let (handler, peer) = (Arc::clone(&answering), peer.clone());
        // Boxed, because only a movable future lets the stream be taken back for the answer to a slow header.
        Box::pin(
            async move { Ok::<_, std::convert::Infallible>(handler.answer(request, peer.as_deref()).await) },
        )
    });
    let io = TokioIo::new(Guarded::new(stream, limits.write_stall));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(io, service);
    let ended = loop {
        tokio::select! {
            ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => break ended,
            _ = stopped.wait_for(|stopped| *stopped), if !*stopped.borrow() => {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
        if error.is_timeout() {
            let stream = connection.into_parts().io.into_inner();
            if stream.heard_something() {
                handler.too_slow(stream.stream());
            }
        }
    }
    counters.connections.fetch_sub(1, Ordering::Relaxed);
    drop(place);
}

/// Writes what fits into the socket's buffer, which a short answer does.
fn write_now(stream: &UnixStream, bytes: &[u8]) {
    match stream.try_write(bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => tracing::debug!(%error, "the client has gone"),
    }
}
