//! A stream of answers, cut into events.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};

const MAX_EVENT_BYTES: usize = 1 << 20;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// `state`, `mode`, `throttle`, `roofline`, `calibration`, `hold`, `degraded`, `advice_stale`, `recommend`, or what a later
    /// daemon adds. `reconnected` comes from this client: events may be missing before it.
    pub name: String,
    /// The snapshot that it is about.
    pub serial: Option<u64>,
    /// What is told, as JSON.
    pub data: Value,
}

impl Event {
    /// The data as a type of [`types`](crate::types): of `recommend` a `RecommendAnswer`, of `advice_stale` an `AdviceStale`.
    ///
    /// # Errors
    /// [`Error::Unexpected`]: it has another shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let name = &self.name;
        T::deserialize(&self.data)
            .map_err(|why| Error::unreadable(format!("the event {name} is not understood"), why))
    }
}

/// How events follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// JSON, one value a line, with its name in `event`.
    Lines,
}

/// Cuts a stream into events.
#[derive(Debug)]
pub(crate) struct Blocks {
    framing: Framing,
    pending: Vec<u8>,
}

impl Blocks {
    pub(crate) const fn new(framing: Framing) -> Self {
        Self { framing, pending: Vec::new() }
    }

    /// The events that `data` completes, comments left out.
    ///
    /// # Errors
    /// Something is no JSON, or an event is larger than 1 MiB.
    pub(crate) fn feed(&mut self, data: &[u8], into: &mut VecDeque<Event>) -> Result<()> {
        let end: &[u8] = if self.framing == Framing::Lines { b"\n" } else { b"\n\n" };
        // Before what is new there is no end, but perhaps the beginning of one.
        let mut from = (self.pending.len() + 1).saturating_sub(end.len());
        // Carriage returns are optional in the framing and no part of JSON.
        self.pending.extend(data.iter().filter(|byte| **byte != b'\r'));
        let mut begin = 0;
        while let Some(at) = self.pending[from..].windows(end.len()).position(|window| window == end) {
            let block = &self.pending[begin..from + at];
            into.extend(if self.framing == Framing::Lines { line(block)? } else { event(block)? });
            begin = from + at + end.len();
            from = begin;
        }
        self.pending.drain(..begin);
        if self.pending.len() > MAX_EVENT_BYTES {
            return Err(Error::unexpected("an event is larger than 1 MiB"));
        }
        Ok(())
    }
}

fn json(text: &[u8]) -> Result<Value> {
    serde_json::from_slice(text).map_err(|why| Error::unreadable("an event is not understood", why))
}

fn line(block: &[u8]) -> Result<Option<Event>> {
    if block.trim_ascii().is_empty() {
        return Ok(None);
    }
    let data = json(block)?;
    let name = data["event"].as_str().unwrap_or("message").to_owned();
    Ok(Some(Event { name, serial: None, data }))
}

fn event(block: &[u8]) -> Result<Option<Event>> {
    let (mut name, mut serial, mut data) = ("message".to_owned(), None, None::<Vec<u8>>);
    for line in block.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => name = String::from_utf8_lossy(value).into_owned(),
            b"id" => serial = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()),
            b"data" => match &mut data {
                Some(before) => {
                    before.push(b'\n');
                    before.extend_from_slice(value);
                }
                None => data = Some(value.to_owned()),
            },
            _ => {}
        }
    }
    data.map(|data| Ok(Event { name, serial, data: json(&data)? })).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fed(framing: Framing, parts: &[&[u8]]) -> Result<Vec<(String, Option<u64>, Value)>> {
        let (mut blocks, mut events) = (Blocks::new(framing), VecDeque::new());
        for part in parts {
            blocks.feed(part, &mut events)?;
        }
        Ok(events.into_iter().map(|event| (event.name, event.serial, event.data)).collect())
    }

    #[test]
    fn events_survive_any_cut_and_comments_are_none() {
        let text = b": hello\n\nevent: state\r\nid: 4\r\ndata: {\"a\":1}\r\n\r\n\ndata: [1,\ndata: 2]\n\n";
        let wanted =
            [("state".to_owned(), Some(4), json!({"a": 1})), ("message".to_owned(), None, json!([1, 2]))];
        for cut in 0..text.len() {
            assert_eq!(fed(Framing::Events, &[&text[..cut], &text[cut..]]).unwrap(), wanted, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(fed(Framing::Events, &bytes).unwrap(), wanted);
    }

    #[test]
    fn lines_survive_any_cut() {
        let text = b"{\"event\":\"held\",\"id\":1}\n\n{\"event\":\"heartbeat\"}\r\n";
        for cut in 0..text.len() {
            let events = fed(Framing::Lines, &[&text[..cut], &text[cut..]]).unwrap();
            let names: Vec<&str> = events.iter().map(|event| &*event.0).collect();
            assert_eq!(names, ["held", "heartbeat"], "cut at {cut}");
        }
    }

    #[test]
    fn what_is_too_large_or_no_json_is_an_error() {
        let large = vec![b'a'; MAX_EVENT_BYTES + 1];
        assert!(fed(Framing::Events, &[&large]).is_err());
        assert!(fed(Framing::Lines, &[b"{\n"]).is_err());
        assert!(fed(Framing::Events, &[b"data: {\n\n"]).is_err());
    }
}
