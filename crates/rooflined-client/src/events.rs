//! Server-sent events, as the HTML standard frames them: `field: value` lines, an empty line ends an event.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;

use crate::ClientError;

/// Longest event taken.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `state`, `mode`, `roofline`, `calibration`, …; `message` where the daemon named none.
    pub name: String,
    /// Its data, JSON.
    pub data: String,
}

/// A subscription; it ends when it is dropped.
#[derive(Debug)]
pub struct Events {
    /// Keeps the connection open.
    _sender: SendRequest<Full<Bytes>>,
    body: Incoming,
    frames: Frames,
}

impl Events {
    pub(super) fn new(sender: SendRequest<Full<Bytes>>, body: Incoming) -> Self {
        Self { _sender: sender, body, frames: Frames::default() }
    }

    /// The next event; `None` once the daemon has ended the stream.
    ///
    /// # Errors
    /// The connection broke, or an event is larger than 1 MiB.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.frames.pop() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.frames.push(&data)?;
            }
        }
    }
}

/// Bytes that have arrived and do not yet make an event.
#[derive(Debug, Default)]
struct Frames {
    pending: Vec<u8>,
}

impl Frames {
    fn push(&mut self, data: &[u8]) -> Result<(), ClientError> {
        // Carriage returns are optional in the framing and never part of JSON text.
        self.pending.extend(data.iter().filter(|byte| **byte != b'\r'));
        if self.pending.len() > MAX_EVENT_BYTES { Err(ClientError::TooLarge) } else { Ok(()) }
    }

    fn pop(&mut self) -> Option<Event> {
        loop {
            let end = self.pending.windows(2).position(|pair| pair == b"\n\n")?;
            let rest = self.pending.split_off(end + 2);
            let block = std::mem::replace(&mut self.pending, rest);
            // A block without data is a comment or a keep-alive.
            if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                return Some(event);
            }
        }
    }
}

fn parse(block: &str) -> Option<Event> {
    let mut name = "message";
    let mut data: Option<String> = None;
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value,
            "data" => match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            },
            _ => {}
        }
    }
    Some(Event { name: name.to_owned(), data: data? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_any_cut_and_keep_alives_are_no_events() {
        let stream = b": hello\n\nevent: state\r\nid: 4\r\ndata: {\"a\":1}\r\n\r\ndata: x\ndata: y\n\n";
        for cut in 0..stream.len() {
            let mut frames = Frames::default();
            let mut events = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                frames.push(part).unwrap();
                events.extend(std::iter::from_fn(|| frames.pop()));
            }
            let shown: Vec<_> =
                events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(shown, [("state", "{\"a\":1}"), ("message", "x\ny")], "cut at {cut}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut frames = Frames::default();
        let chunk = [b'x'; 1 << 16];
        let taken = (0..64).take_while(|_| frames.push(&chunk).is_ok()).count();
        assert_eq!(taken, MAX_EVENT_BYTES >> 16);
    }
}
