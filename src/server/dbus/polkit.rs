//! Whether polkit authorises a caller who is neither root nor in the group.
//!
//! Every question goes through the library's proxy: it takes only a method return or an error for an answer, and the bus
//! delivers those only from the service that was called. A signal with the right reply serial, which any client may send, is
//! never taken for one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::message::{Flags, Header};
use zbus::{Connection, Variant, proxy};

/// `AllowUserInteraction`: ask the user if need be, and answer only then.
const INTERACTIVE: u32 = 1;

/// Dialogues so far; each is cancelled by its number.
static DIALOGUES: AtomicU64 = AtomicU64::new(0);

#[proxy(
    interface = "org.freedesktop.PolicyKit1.Authority",
    default_service = "org.freedesktop.PolicyKit1",
    default_path = "/org/freedesktop/PolicyKit1/Authority"
)]
trait Authority {
    /// Allowed, allowed after a challenge, details. Only root may send details of its own.
    fn check_authorization(
        &self,
        subject: &(&str, HashMap<&str, Variant<'_>>),
        action: &str,
        details: HashMap<&str, &str>,
        flags: u32,
        cancellation: &str,
    ) -> zbus::Result<((bool, bool, HashMap<String, String>),)>;

    fn cancel_check_authorization(&self, cancellation: &str) -> zbus::Result<()>;
}

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

/// How long polkit may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To answer by itself.
    pub plain: Duration,
    /// To answer after asking the user for a password.
    pub dialogue: Duration,
}

/// Asks whether the sender may do `action`. Its user is asked for a password only if the call allows that. A bus without
/// polkit, or one that is slow to answer, means no.
pub async fn ask(connection: &Connection, header: &Header<'_>, action: &str, patience: Patience) -> Verdict {
    let sender = header.sender().map(ToString::to_string).unwrap_or_default();
    let interactive = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
    let (flags, limit) = if interactive { (INTERACTIVE, patience.dialogue) } else { (0, patience.plain) };
    let answer = tokio::time::timeout(limit, check(connection, &sender, action, flags)).await;
    match answer {
        Ok(Ok((true, ..))) => Verdict::Allowed,
        Ok(Ok((false, true, _))) if !interactive => Verdict::AfterDialogue,
        Ok(Ok((false, challenge, details))) => {
            let dismissed = challenge || details.contains_key("polkit.dismissed");
            if dismissed { Verdict::Dismissed } else { Verdict::Denied }
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "polkit does not answer");
            Verdict::Denied
        }
        Err(_) => {
            tracing::debug!(?limit, "polkit did not answer in time");
            Verdict::Denied
        }
    }
}

/// Dropping the future of an interactive question closes its dialogue.
async fn check(
    connection: &Connection,
    sender: &str,
    action: &str,
    flags: u32,
) -> zbus::Result<(bool, bool, HashMap<String, String>)> {
    let authority = AuthorityProxy::new(connection).await?;
    let subject = ("system-bus-name", HashMap::from([("name", Variant::from(sender))]));
    if flags != INTERACTIVE {
        return Ok(authority.check_authorization(&subject, action, HashMap::new(), flags, "").await?.0);
    }
    let number = DIALOGUES.fetch_add(1, Ordering::Relaxed);
    let id = format!("rooflined-{}-{number}", std::process::id());
    let mut dialogue = Dialogue { connection: connection.clone(), id: Some(id.clone()) };
    let answer = authority.check_authorization(&subject, action, HashMap::new(), flags, &id).await;
    dialogue.id = None;
    Ok(answer?.0)
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
            let cancel =
                async { AuthorityProxy::new(&connection).await?.cancel_check_authorization(&id).await };
            if let Err(error) = cancel.await {
                tracing::debug!(%error, "polkit's dialogue could not be closed");
            }
        });
    }
}
