//! What polkit says about a caller who is neither root nor in the group.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use zbus::message::{Flags, Header, Message, Type};
use zbus::{Connection, MessageStream, Variant};

const SERVICE: &str = "org.freedesktop.PolicyKit1";
const PATH: &str = "/org/freedesktop/PolicyKit1/Authority";
const INTERFACE: &str = "org.freedesktop.PolicyKit1.Authority";
/// `AllowUserInteraction`: ask the user if need be, and answer only then.
const INTERACTIVE: u32 = 1;

/// Dialogues so far; each is cancelled by its number.
static DIALOGUES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Whatever the caller does. Also where polkit does not answer.
    Denied,
    /// A password would be asked for, which this call does not allow.
    AfterDialogue,
    /// It was asked for, and not given.
    Dismissed,
}

/// What polkit answers: allowed, allowed after a challenge, details.
type Answer = ((bool, bool, HashMap<String, String>),);

/// Asks whether the sender may do `action`. Its user is asked for a password only if the call allows that; then the answer
/// is waited for as long as `dialogue`. A bus without polkit, or one that is slow to answer, means no.
pub async fn ask(connection: &Connection, header: &Header<'_>, action: &str, dialogue: Duration) -> Verdict {
    let sender = header.sender().map(ToString::to_string).unwrap_or_default();
    let interactive = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
    let answered = if interactive {
        with_dialogue(connection, &sender, action, dialogue).await
    } else {
        let body = &(subject(&sender), action, no_details(), 0_u32, "");
        connection.call_method(Some(SERVICE), PATH, Some(INTERFACE), "CheckAuthorization", body).await
    };
    let answer = answered.and_then(|message| message.body().deserialize::<Answer>());
    match answer {
        Ok(((true, ..),)) => Verdict::Allowed,
        Ok(((false, true, _),)) if !interactive => Verdict::AfterDialogue,
        Ok(((false, challenge, details),)) => {
            let dismissed = challenge || details.contains_key("polkit.dismissed");
            if dismissed { Verdict::Dismissed } else { Verdict::Denied }
        }
        Err(error) => {
            tracing::debug!(%error, "polkit does not answer");
            Verdict::Denied
        }
    }
}

/// The connection gives up a call long before a password is typed, so this one is waited for by hand. When its time is
/// over the dialogue is closed.
async fn with_dialogue(
    connection: &Connection,
    sender: &str,
    action: &str,
    dialogue: Duration,
) -> zbus::Result<Message> {
    let number = DIALOGUES.fetch_add(1, Ordering::Relaxed);
    let id = format!("rooflined-{}-{number}", std::process::id());
    let call = Message::method_call(PATH, "CheckAuthorization")
        .destination(SERVICE)
        .interface(INTERFACE)
        .build(&(subject(sender), action, no_details(), INTERACTIVE, id.as_str()))?;
    // Before the call, so that no answer is missed.
    let mut messages = MessageStream::from(connection);
    connection.send(&call).await?;
    let mut open = Dialogue { connection: connection.clone(), id: Some(id) };
    let number = call.primary_header().serial_num();
    let answer = async {
        while let Some(message) = messages.next().await {
            let message = message?;
            if message.header().reply_serial() == Some(number) {
                return Ok(message);
            }
        }
        Err(closed())
    };
    let answer = tokio::time::timeout(dialogue, answer).await.unwrap_or_else(|_| Err(timed_out()))?;
    open.id = None;
    if answer.message_type() == Type::Error { Err(answer.into()) } else { Ok(answer) }
}

fn subject(sender: &str) -> (&'static str, HashMap<&'static str, Variant<'_>>) {
    ("system-bus-name", HashMap::from([("name", Variant::from(sender))]))
}

/// Only root may pass any on.
fn no_details() -> HashMap<&'static str, &'static str> {
    HashMap::new()
}

fn closed() -> zbus::Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()
}

fn timed_out() -> zbus::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// A question that a user still sees.
struct Dialogue {
    connection: Connection,
    /// `None` once it is answered.
    id: Option<String>,
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let connection = self.connection.clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let body = &(id.as_str(),);
            let method = "CancelCheckAuthorization";
            let cancelled = connection.call_method(Some(SERVICE), PATH, Some(INTERFACE), method, body).await;
            if let Err(error) = cancelled {
                tracing::debug!(%error, "polkit was not told that nobody waits any more");
            }
        });
    }
}
