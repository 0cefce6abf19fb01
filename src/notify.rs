//! Notifications to the service manager, where there is one: ready, status, alive, reloading, stopping.

use std::time::Duration;

use sd_notify::NotifyState;

/// Sends, and mentions a failure once at debug: a daemon that works must not die of a deaf manager.
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be notified");
    }
}

/// Sockets listen and the first snapshot is published.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line for `systemctl status`.
pub fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        // Without the stamp systemd would wait for it and call the reload failed.
        Err(error) => tracing::debug!(%error, "the monotonic clock does not answer"),
    }
}

/// The daemon ends by request.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The loop is alive.
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// How often the manager expects [`alive`], halved so that one late wake-up is forgiven; `None` = not at all.
#[must_use]
pub fn watchdog_period() -> Option<Duration> {
    let limit = sd_notify::watchdog_enabled()?;
    Some(limit / 2).filter(|period| !period.is_zero())
}
