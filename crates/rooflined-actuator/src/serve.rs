//! One client at a time, one order a line: `{"order":7,"verb":"status"}` → `{"order":7,"answer":"status",…}`.
//!
//! A mode that was entered stays provisional until its client settles it; if the client goes first, it is undone, at once or
//! after the time that the client gave the one that follows it.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;
use serde_json::{Map, Value, json};

use super::files;
use super::switch::Helper;
use rooflined_core::board::{Order, OrderAnswer, OrderFailure};

const LONGEST_LINE: usize = 64 << 10;
/// A client that does not take its answer, or does not end its line, is given up after this long.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Between two looks whether a mode has been kept long enough without a client.
const LOOK: Duration = Duration::from_secs(1);

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    heard_at: Instant,
}

/// Whether the connection goes on after what was received.
#[derive(PartialEq)]
enum Then {
    Stay,
    Close,
}

/// Serves the one client at the other end of `stream`, until that goes. Then what is unsettled is undone.
pub(super) fn serve_one(helper: &mut Helper, stream: UnixStream) -> io::Result<()> {
    let mut connection = Connection::new(stream)?;
    let ended = loop {
        match connection.wait_and_hear(helper, None) {
            Ok(Then::Stay) => {}
            Ok(Then::Close) => break Ok(()),
            // It may have gone while its order was carried out, and does not hear the answer.
            Err(error) => break Err(error),
        }
    };
    drop(connection);
    if helper.keeps() {
        wait_for_another(helper);
    } else {
        undo(helper);
    }
    ended
}

/// The next client comes with a helper of its own, which is given the journal. Where none comes, what is unsettled is undone.
fn wait_for_another(helper: &mut Helper) {
    while let Some(left) = helper.kept_for() {
        helper.journal.release();
        sleep(left.min(LOOK));
        match helper.journal.retake(helper.time_limit) {
            Ok(true) => helper.look_again(),
            // It sees to what is unsettled.
            Ok(false) => return,
            Err(error) => return eprintln!("rooflined actuate: error: {error}"),
        }
    }
    undo(helper);
}

/// Serves clients one after another until there has been none for `idle` and nothing is unsettled.
pub(super) fn serve(
    helper: &mut Helper,
    listener: &UnixListener,
    user: &str,
    idle: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut quiet_since = Instant::now();
    loop {
        let quiet = idle.saturating_sub(quiet_since.elapsed());
        // Looked at again and again, because poll does not count the time that the machine sleeps.
        let left = helper.kept_for().map_or(quiet, |left| left.min(LOOK));
        if !ready(&[PollFd::new(listener, PollFlags::IN)], left)? {
            if helper.kept_for().is_some() {
                continue;
            }
            // Nobody came to settle what an earlier run had left.
            if helper.is_restorable() {
                undo(helper);
                quiet_since = Instant::now();
                continue;
            }
            return Ok(());
        }
        let Some(stream) = accept(listener, user) else { continue };
        let mut connection = Connection::new(stream)?;
        loop {
            // An idle client is no reason to stay, unless something is unsettled.
            let limit = helper.unsettled.is_none().then_some(idle);
            match connection.wait_and_hear(helper, Some((listener, user, limit))) {
                Ok(Then::Stay) => {}
                Ok(Then::Close) => break,
                Err(error) => {
                    eprintln!("rooflined actuate: warning: a client was lost: {error}");
                    break;
                }
            }
        }
        drop(connection);
        if !helper.keeps() {
            undo(helper);
        }
        quiet_since = Instant::now();
    }
}

/// Goes back to the original, a few times if need be.
fn undo(helper: &mut Helper) {
    while helper.is_restorable() {
        match helper.undo() {
            Ok(message) => eprintln!("rooflined actuate: the client went before it settled: {message}"),
            Err(message) => eprintln!("rooflined actuate: error: {message}"),
        }
    }
}

/// Takes a client if it may give orders: root, the daemon's user, and who this process runs as.
fn accept(listener: &UnixListener, user: &str) -> Option<UnixStream> {
    let (stream, _) = listener.accept().ok()?;
    let refuse = |why: OrderFailure| {
        eprintln!("rooflined actuate: warning: a client was turned away: {why}");
        // It may be gone already.
        let _ = write_line(&stream, 0, &OrderAnswer::Failed(why));
        None
    };
    match socket_peercred(&stream) {
        Ok(peer)
            if peer.uid.is_root() || peer.uid == geteuid() || Some(peer.uid.as_raw()) == uid_of(user) =>
        {
            stream.set_nonblocking(false).ok()?;
            Some(stream)
        }
        Ok(peer) => {
            let message = format!("user {} may not give orders", peer.uid.as_raw());
            refuse(OrderFailure::with_hint(message, "ask the daemon instead"))
        }
        Err(error) => refuse(format!("its peer credentials cannot be read ({error})").into()),
    }
}

/// Number of a user, from /etc/passwd; a user that is written as a number is that.
fn uid_of(user: &str) -> Option<u32> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
    line.map_or(user, |line| line.split(':').nth(1).unwrap_or_default()).parse().ok()
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(CLIENT_TIME))?;
        Ok(Self { stream, received: Vec::new(), heard_at: Instant::now() })
    }

    /// Waits for the client, turns others away meanwhile, and does what it says.
    fn wait_and_hear(
        &mut self,
        helper: &mut Helper,
        others: Option<(&UnixListener, &str, Option<Duration>)>,
    ) -> io::Result<Then> {
        let idle = others.and_then(|(_, _, limit)| limit);
        let limit = if self.received.is_empty() { idle } else { Some(CLIENT_TIME) };
        let left =
            limit.map_or(Duration::from_secs(3600), |limit| limit.saturating_sub(self.heard_at.elapsed()));
        let mut waiting = vec![PollFd::new(&self.stream, PollFlags::IN)];
        waiting.extend(others.map(|(listener, ..)| PollFd::new(listener, PollFlags::IN)));
        poll_for(&mut waiting, left)?;
        let heard: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(waiting);
        if heard.first() == Some(&true) {
            return self.hear(helper);
        }
        if let (Some(true), Some((listener, user, _))) = (heard.get(1), others) {
            if let Some(other) = accept(listener, user) {
                let busy =
                    OrderFailure::with_hint("another client is connected", "try again when it has gone");
                let _ = write_line(&other, 0, &OrderAnswer::Failed(busy));
            }
            return Ok(Then::Stay);
        }
        Ok(if limit.is_some_and(|limit| self.heard_at.elapsed() >= limit) { Then::Close } else { Then::Stay })
    }

    /// Reads what is there and obeys every whole line.
    fn hear(&mut self, helper: &mut Helper) -> io::Result<Then> {
        let mut buffer = [0; 8192];
        let read = match self.stream.read(&mut buffer) {
            Ok(0) => return Ok(Then::Close),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Then::Stay),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Then::Close),
            Err(error) => return Err(error),
        };
        if self.received.is_empty() {
            self.heard_at = Instant::now();
        }
        self.received.extend_from_slice(&buffer[..read]);
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            if end > LONGEST_LINE {
                return self.too_long();
            }
            if !line.trim_ascii().is_empty() {
                self.answer(helper, &line)?;
            }
            self.heard_at = Instant::now();
        }
        if self.received.len() > LONGEST_LINE { self.too_long() } else { Ok(Then::Stay) }
    }

    fn too_long(&self) -> io::Result<Then> {
        let message = format!("a line of more than {LONGEST_LINE} bytes is not an order");
        let failure = OrderFailure::with_hint(message, "send shorter ones");
        write_line(&self.stream, 0, &OrderAnswer::Failed(failure))?;
        Ok(Then::Close)
    }

    fn answer(&self, helper: &mut Helper, line: &[u8]) -> io::Result<()> {
        match understand(line) {
            Ok((number, Message::Order(order))) => write_line(&self.stream, number, &helper.execute(order)),
            Ok((number, Message::Open(path))) => match files::open(&helper.root, &path) {
                Ok(file) => hand_over(&self.stream, number, &file),
                Err(failure) => write_line(&self.stream, number, &OrderAnswer::Failed(failure)),
            },
            Err((number, failure)) => write_line(&self.stream, number, &OrderAnswer::Failed(failure)),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Message {
    Order(Order),
    /// Hand over a file that only root may open.
    Open(String),
}

/// Reads a line; an error comes with the number of the order where that can be read.
fn understand(line: &[u8]) -> Result<(u64, Message), (u64, OrderFailure)> {
    let unnumbered = |message: &str, hint: &str| (0, OrderFailure::with_hint(message, hint));
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| unnumbered(&format!("no JSON: {error}"), "send an object a line"))?;
    let Value::Object(mut fields) = value else {
        return Err(unnumbered("no JSON object", "send {\"order\":1,\"verb\":\"status\"}"));
    };
    let Some(number) = fields.remove("order").as_ref().and_then(Value::as_u64) else {
        return Err(unnumbered("`order` is not a whole number", "number the orders from 1"));
    };
    understand_verb(&fields).map(|asked| (number, asked)).map_err(|failure| (number, failure))
}

fn understand_verb(fields: &Map<String, Value>) -> Result<Message, OrderFailure> {
    let unknown_field =
        |name: &str| OrderFailure::with_hint(format!("unknown field `{name}`"), "leave it out");
    if fields.get("verb").and_then(Value::as_str) == Some("open") {
        let path = fields.get("path").and_then(Value::as_str);
        let path = path.ok_or_else(|| OrderFailure::with_hint("`path` is not a text", "name the file"))?;
        if let Some(name) = fields.keys().find(|name| !["verb", "path"].contains(&name.as_str())) {
            return Err(unknown_field(name));
        }
        return Ok(Message::Open(path.to_owned()));
    }
    let sent = Value::Object(fields.clone());
    let order: Order = serde_json::from_value(sent.clone()).map_err(|error| format!("no order: {error}"))?;
    // What was understood, written again, lacks what was not.
    let understood = serde_json::to_value(&order).map_err(|error| error.to_string())?;
    match unknown(&sent, &understood) {
        Some(name) => Err(unknown_field(&name)),
        None => Ok(Message::Order(order)),
    }
}

/// The first field of `sent` that `understood` lacks.
fn unknown(sent: &Value, understood: &Value) -> Option<String> {
    let (Value::Object(sent), Value::Object(understood)) = (sent, understood) else { return None };
    sent.iter().find_map(|(name, value)| match understood.get(name) {
        None => Some(name.clone()),
        Some(known) => unknown(value, known),
    })
}

fn line_of(number: u64, answer: Value) -> Vec<u8> {
    let mut answer = answer;
    if let Value::Object(fields) = &mut answer {
        fields.insert("order".into(), number.into());
    }
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn write_line(mut stream: &UnixStream, number: u64, answer: &OrderAnswer) -> io::Result<()> {
    let answer = serde_json::to_value(answer).unwrap_or_else(|error| {
        let message = format!("the answer has no JSON form: {error}");
        json!({"answer": "failed", "message": message, "hint": "report this as a bug"})
    });
    stream.write_all(&line_of(number, answer))
}

/// The answer `opened` with the descriptor beside it.
fn hand_over(stream: &UnixStream, number: u64, file: &std::fs::File) -> io::Result<()> {
    let line = line_of(number, json!({"answer": "opened"}));
    let descriptors = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    let mut rest = stream;
    rest.write_all(line.get(sent..).unwrap_or_default())
}

fn ready(fds: &[PollFd<'_>], limit: Duration) -> io::Result<bool> {
    poll_for(&mut fds.to_vec(), limit)
}

/// False if the time was up first. An interruption counts as nothing heard.
fn poll_for(fds: &mut [PollFd<'_>], limit: Duration) -> io::Result<bool> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match poll(fds, Some(&limit)) {
        Ok(heard) => Ok(heard > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::Knob;

    #[test]
    fn an_order_is_understood_with_its_number() {
        let line = br#"{"order":7,"verb":"set_mode","id":1,"name":"25W","knob":{"knob":"nvpmodel"},"dry_run":false}"#;
        let order =
            Order::SetMode { id: 1, name: "25W".into(), knob: Knob::Nvpmodel, dry_run: false, keep: None };
        assert_eq!(understand(line), Ok((7, Message::Order(order))));
        let line = br#"{"order":8,"verb":"set_mode","id":1,"name":"25W","knob":{"knob":"nvpmodel"},"dry_run":false,"keep_s":30.0}"#;
        let keep = Some(rooflined_core::units::Seconds(30.0));
        let order = Order::SetMode { id: 1, name: "25W".into(), knob: Knob::Nvpmodel, dry_run: false, keep };
        assert_eq!(understand(line), Ok((8, Message::Order(order))));
        assert_eq!(understand(br#"{"order":1,"verb":"settle"}"#), Ok((1, Message::Order(Order::Settle))));
        let open = br#"{"order":2,"verb":"open","path":"/x"}"#;
        assert_eq!(understand(open), Ok((2, Message::Open("/x".into()))));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let refusal = |line: &str| understand(line.as_bytes()).unwrap_err();
        assert!(refusal(r#"{"order":3,"verb":"reboot"}"#).1.message.contains("reboot"));
        assert_eq!(refusal(r#"{"order":3,"verb":"status","force":true}"#).0, 3);
        assert!(refusal(r#"{"order":3,"verb":"status","force":true}"#).1.message.contains("`force`"));
        let nested = r#"{"order":3,"verb":"set_mode","id":1,"name":"x","knob":{"knob":"nvpmodel","yes":1},"dry_run":true}"#;
        assert!(refusal(nested).1.message.contains("`yes`"));
        assert!(refusal(r#"{"order":3,"verb":"open","path":"/x","mode":"rw"}"#).1.message.contains("`mode`"));
        assert!(refusal(r#"{"order":3,"verb":"set_mode","id":-1,"name":"x","knob":{"knob":"nvpmodel"},"dry_run":true}"#).1.message.contains("no order"));
        for line in ["", "[]", "nonsense", "{}", r#"{"order":"1","verb":"status"}"#, "\u{0}"] {
            assert_eq!(refusal(line).0, 0, "{line:?}");
        }
    }
}
