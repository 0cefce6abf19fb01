//! A stream that gives up on a client which does not read, keeps back what hyper says by itself, and notices a header that
//! hyper hides.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};

/// Every answer of ours has this header.
const OURS: &[u8] = b"x-rooflined-serial";

/// The header that hyper removes where a body has a transfer encoding too.
const LENGTH: &[u8] = b"\ncontent-length:";

/// What has come in, for those that have no access to the stream.
#[derive(Debug, Default)]
pub struct Heard {
    /// Bytes have come in at all.
    anything: AtomicBool,
    /// A line since the last answer begins like a content length. Requests behind one another count as one.
    names_a_length: AtomicBool,
}

impl Heard {
    pub fn anything(&self) -> bool {
        self.anything.load(Ordering::Relaxed)
    }

    pub fn names_a_length(&self) -> bool {
        self.names_a_length.load(Ordering::Relaxed)
    }
}

/// How long a client may take to read.
#[derive(Debug, Clone, Copy)]
pub struct WriteTimes {
    /// Without any progress.
    pub stall: Duration,
    /// From the first byte that had to wait until everything is written.
    pub total: Duration,
}

/// A connection whose writes fail when the client does not read for a while.
pub struct Guarded {
    stream: Arc<UnixStream>,
    times: WriteTimes,
    /// Running while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// When all that is being written must be, from the first write that waited.
    deadline: Option<Instant>,
    /// Bytes came in since the last answer went out.
    unanswered: bool,
    heard: Arc<Heard>,
    /// How much of [`LENGTH`] the last bytes that came in are.
    matched: usize,
    /// The last write did not take everything, so the next one begins in the middle.
    amid: bool,
}

impl Guarded {
    pub const fn new(stream: Arc<UnixStream>, times: WriteTimes, heard: Arc<Heard>) -> Self {
        Self {
            stream,
            times,
            waiting: None,
            deadline: None,
            unanswered: false,
            heard,
            matched: 0,
            amid: false,
        }
    }

    /// Whether the client had begun a request that was not answered.
    pub const fn heard_something(&self) -> bool {
        self.unanswered
    }

    /// Looks for a content length in what has come in.
    fn hear(&mut self, bytes: &[u8]) {
        if !std::mem::replace(&mut self.unanswered, true) {
            self.heard.names_a_length.store(false, Ordering::Relaxed);
            self.matched = 0;
        }
        self.heard.anything.store(true, Ordering::Relaxed);
        for byte in bytes {
            self.matched = match byte.to_ascii_lowercase() {
                byte if byte == LENGTH[self.matched] => self.matched + 1,
                b'\n' => 1,
                _ => 0,
            };
            if self.matched == LENGTH.len() {
                self.heard.names_a_length.store(true, Ordering::Relaxed);
                self.matched = 0;
            }
        }
    }

    /// hyper answers what it cannot read with a status alone, and ends the connection with the error. That is kept back: an
    /// answer with a body is written then.
    fn keeps_back(&self, head: &[u8]) -> bool {
        !self.amid && is_bare_refusal(head)
    }

    /// Writes as soon as that is possible.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        length: usize,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = match self.stream.poll_write_ready(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => match write(&self.stream) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    written => Poll::Ready(written),
                },
            };
            if let Poll::Ready(Ok(written)) = written {
                self.amid = written < length;
            }
            return self.watched(context, written);
        }
    }

    /// Passes a ready result on; starts or checks the timer of one that waits.
    fn watched<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            self.unanswered = false;
            return result;
        }
        let WriteTimes { stall, total } = self.times;
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + total);
        let until = deadline.min(now + stall);
        let timer = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

/// The head of an answer 4xx that did not come from our code.
fn is_bare_refusal(head: &[u8]) -> bool {
    let is_refusal = head.starts_with(b"HTTP/1.") && head.get(9) == Some(&b'4');
    is_refusal && !head.windows(OURS.len()).any(|part| part.eq_ignore_ascii_case(OURS))
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        let before = buffer.filled().len();
        buffer.advance(read);
        if read > 0 {
            self.hear(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.keeps_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.write(context, bytes.len(), |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if slices.first().is_some_and(|head| self.keeps_back(head)) {
            return Poll::Ready(Ok(length));
        }
        self.write(context, length, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A Unix socket has nothing to flush, but hyper asks for it when everything has been written.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.deadline = None;
        Poll::Ready(Ok(()))
    }

    /// Left to the owner of the connection, who may have something to add.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_is_none_of_ours_is_kept_back() {
        let bare =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(is_bare_refusal(bare));
        assert!(is_bare_refusal(b"HTTP/1.0 400 Bad Request\r\n\r\n"));
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\nX-Rooflined-Serial: 17\r\n\r\n"[..],
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"{\"error\":\"HTTP/1.1 400\"}",
            b"",
        ] {
            assert!(!is_bare_refusal(other));
        }
    }
}
