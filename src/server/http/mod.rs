//! HTTP/1.1 and JSON over a Unix socket.
//!
//! What a client may do to us, and what stops it:
//!
//! | it | gets |
//! |---|---|
//! | sends its header slowly, or keeps an idle connection | 408 (silently closed if it sent nothing) after 5 s |
//! | sends its body slowly | 408 after 10 s |
//! | sends more than 64 KiB of body, or 64 MiB of a model file | 413 |
//! | sends a model file while another of its user, or two of others, are inspected | waits 5 s, then 409 |
//! | sends over 64 header lines or 16 KiB of header | 431 |
//! | sends what is no HTTP, or half of a header | 400 |
//! | is the 257th connection, or one of a user that has as many as are free | 503 and is closed, without being read |
//! | does not read its answer | is cut off after 30 s without progress, and 2 minutes after its beginning |
//! | leaves many answers unread | 409 until it has read some |
//! | gives a body two lengths | 400 |
//! | has nothing more to send | its answer, as long as it has not closed the connection |
//! | holds a mode and dies | its hold ends with its connection |
//! | reads more than 32 streams of events, recommendations that are kept true among them, or more than its share | 503 |
//! | asks large questions, or sends long bodies, on many connections | one at a time; those of other users come in between |
//! | goes away while a calibration runs for it | the daemon is notified |
//! | was let in just before the daemon ends | half a second to ask, and its answer |
//!
//! Shares of users are in `shares.rs`. Closing on what a client still sends would make its own write fail before it reads the
//! answer, so behind the last answer the rest is read for a moment and thrown away (`drain.rs`).
//!
//! Running out of descriptors pauses accepting and says so once; connections wait in the kernel's queue meanwhile.

mod advice;
mod attached;
mod drain;
mod guard;
mod handler;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::guard::{Guarded, Heard, WriteTimes};
use self::handler::Handler;
use super::access::{Accounts, Peer};
use super::service::Service;
use super::shares::{Place, Quota};
use super::{Control, Limits, Snapshots, Socket};

/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a request's header.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Pause after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Without a failure for so long, accepting works again.
const ACCEPT_RECOVERED: Duration = Duration::from_secs(10);
/// Connections without a place that are waited for until they have read their last answer.
const LINGERING: usize = 64;
/// How long one that has sent nothing may still ask after the signal to stop.
const FIRST_QUESTION: Duration = Duration::from_millis(500);
/// Longest wait for one that was turned away.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Answers on `listener` until `stop` resolves, then lets answers in progress finish.
pub async fn serve(
    listener: UnixListener,
    socket: Socket,
    snapshots: Snapshots,
    control: Control,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let label = if matches!(socket, Socket::Query { .. }) { "query" } else { "control" };
    let service = Arc::new(Service::new(snapshots, control, label));
    let (stopping, stopped) = watch::channel(false);
    let (places, lingering) = (Quota::new(limits.connections), Quota::new(LINGERING));
    let accounts = Accounts::default();
    let handler = Arc::new(Handler::new(service, socket, limits.clone(), stopped.clone()));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut starvation = Starvation::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        // All that have ended, each time: they keep their memory until then, and connections may come faster than one is
        // reaped for each.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                starvation.accepted(label);
                let peer = peer_of(&stream).map(Arc::new);
                let user = peer.as_deref().map(|peer| accounts.of(peer));
                match places.take(user) {
                    Ok(place) => {
                        let caller = (peer, place, Arc::clone(&lingering));
                        connections.spawn(connection(stream, Arc::clone(&handler), stopped.clone(), caller));
                    }
                    Err(full) => {
                        handler.turn_away(&stream, user, full);
                        if let Ok(place) = lingering.take(user) {
                            let mut stopped = stopped.clone();
                            connections.spawn(async move {
                                drain::drain(&stream, LINGER_TIME, &mut stopped).await;
                                drop(place);
                            });
                        }
                    }
                }
            }
            Err(error) => {
                starvation.failed(&error, label);
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

/// Whether connections cannot be accepted, which is said when it begins and when it ends.
#[derive(Default)]
struct Starvation {
    /// While it lasts, when `accept` failed last.
    failed_at: Option<Instant>,
}

impl Starvation {
    fn failed(&mut self, error: &io::Error, label: &str) {
        if self.failed_at.replace(Instant::now()).is_none() {
            tracing::warn!(%error, label, "cannot accept connections; they wait until this ends");
        }
    }

    /// Some are accepted while others fail: it has ended when none has failed for a while.
    fn accepted(&mut self, label: &str) {
        if self.failed_at.is_some_and(|failed_at| failed_at.elapsed() > ACCEPT_RECOVERED) {
            self.failed_at = None;
            tracing::info!(label, "connections are accepted again");
        }
    }
}

/// Who the kernel says it was when it connected.
fn peer_of(stream: &UnixStream) -> Option<Peer> {
    let peer = stream.peer_cred().ok()?;
    Some(Peer::new(peer.uid(), peer.pid(), vec![peer.gid()]))
}

/// Serves one connection to its end.
async fn connection(
    stream: UnixStream,
    handler: Arc<Handler>,
    mut stopped: watch::Receiver<bool>,
    (peer, place, lingering): (Option<Arc<Peer>>, Place, Arc<Quota>),
) {
    let counters = Arc::clone(&handler.service.counters);
    counters.connections.fetch_add(1, Ordering::Relaxed);
    let limits = handler.limits.clone();
    let user = peer.as_deref().map(Peer::account);
    let (answering, stopping) = (Arc::clone(&handler), stopped.clone());
    let heard = Arc::new(Heard::default());
    let sized = Arc::clone(&heard);
    let service = service_fn(move |request| {
        let (handler, peer, stopping) = (Arc::clone(&answering), peer.clone(), stopping.clone());
        let two_lengths = sized.names_a_length() && request.headers().contains_key(TRANSFER_ENCODING);
        // Boxed, because only a movable future lets the stream be taken back for the answer to a slow header.
        Box::pin(async move {
            let mut answer = if two_lengths {
                handler.refuse_two_lengths()
            } else {
                handler.answer(request, peer.as_deref()).await
            };
            if *stopping.borrow() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(answer)
        })
    });
    let stream = Arc::new(stream);
    let times = WriteTimes { stall: limits.write_stall, total: limits.write_total };
    let io = TokioIo::new(Guarded::new(Arc::clone(&stream), times, Arc::clone(&heard)));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        // Who has nothing more to send may still wait for an answer; one that has gone is noticed below.
        .half_close(true)
        .serve_connection(io, service);
    let mut gone = pin!(drain::client_gone(&stream));
    let (mut end, mut ending) = (pin!(time_to_end(stopped.clone(), &heard)), false);
    let ended = loop {
        tokio::select! {
            // What a client sent before it went is looked at first.
            biased;
            ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => break Some(ended),
            () = &mut gone => break None,
            () = &mut end, if !ending => {
                ending = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let unanswered = connection.into_parts().io.into_inner().heard_something();
    let answered = match ended {
        Some(Ok(())) => true,
        Some(Err(error)) => {
            tracing::debug!(%error, "connection ended");
            handler.cut_short(&stream, &error, unanswered)
        }
        None => false,
    };
    counters.connections.fetch_sub(1, Ordering::Relaxed);
    drop(place);
    if answered && let Ok(_place) = lingering.take(user) {
        drain::drain(&stream, limits.header_time, &mut stopped).await;
    }
}

/// Resolves at the signal to stop, or a moment later for a client that has sent nothing: it may be writing its question, and
/// closing would make that fail.
async fn time_to_end(mut stopped: watch::Receiver<bool>, heard: &Heard) {
    // Without a sender there is nobody left to serve for.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    if !heard.anything() {
        tokio::time::sleep(FIRST_QUESTION).await;
    }
}

/// Writes what fits into the socket's buffer, which a short answer does.
fn write_now(stream: &UnixStream, bytes: &[u8]) {
    match stream.try_write(bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => tracing::debug!(%error, "the client has gone"),
    }
}
