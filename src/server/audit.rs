//! What was refused, in the log: by whom, what for, and the mode or hold that was meant. What was done is recorded by the
//! governor; only the servers know who was turned away before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::routes::{self, Route};
use rooflined_core::refusal::{Code, Refusal};

/// Anybody can be refused as often as he likes, and shall not drive what others did out of the log: so many lines of a user
/// at once…
const BURST: u32 = 20;
/// …and another one in this time.
const EVERY: Duration = Duration::from_secs(5);
/// Users that are counted apart; further ones are one.
const MOST_USERS: usize = 256;
/// Longest name of a mode or hold that is repeated.
const MAX_WORDS: usize = 128;

/// How much each user has been refused lately.
#[derive(Debug, Default)]
pub struct Refusals {
    of: Mutex<HashMap<Option<u32>, Allowance>>,
}

/// Lines that a user may still cause.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    lines: u32,
    since: Instant,
    /// Refusals without a line since the last one.
    unsaid: u64,
}

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    pub route: Route,
    pub body: &'a [u8],
    /// Who asked; `None` where nobody tells.
    pub uid: Option<u32>,
    pub refusal: &'a Refusal,
    pub serial: u64,
}

impl Refusals {
    /// Records it, unless this user has filled the log with the like already.
    pub fn record(&self, refused: Refused<'_>) {
        let Refused { route, body, uid, refusal, serial } = refused;
        if !is_recorded(route, refusal.code) {
            return;
        }
        let Some(unsaid) = self.take(uid, Instant::now()) else { return };
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let field = |name: &str| {
            let text: String = asked.get(name)?.as_str()?.chars().take(MAX_WORDS).collect();
            (!text.chars().any(char::is_control)).then_some(text)
        };
        let unsaid = Some(unsaid).filter(|unsaid| *unsaid > 0);
        tracing::warn!(
            event = "refusal",
            code = refusal.code.key(),
            route = routes::name_of(route),
            uid,
            to = field("mode"),
            hold = field("app_id"),
            reason = field("reason"),
            unsaid,
            serial,
            "refused: {}",
            refusal.message
        );
    }

    /// Takes a line off the allowance; gives how many were left out before it. `None` where there is none left.
    fn take(&self, uid: Option<u32>, now: Instant) -> Option<u64> {
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = Allowance { lines: BURST, since: now, unsaid: 0 };
        if all.len() >= MOST_USERS && !all.contains_key(&uid) {
            all.retain(|_, other| other.unsaid > 0 || now - other.since < EVERY * BURST);
        }
        let key = if all.len() >= MOST_USERS && !all.contains_key(&uid) { None } else { uid };
        let allowance = all.entry(key).or_insert(whole);
        let earned = (now - allowance.since).as_secs() / EVERY.as_secs();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(BURST);
            allowance.lines = allowance.lines.saturating_add(earned).min(BURST);
            allowance.since = now;
        }
        if allowance.lines == 0 {
            allowance.unsaid += 1;
            return None;
        }
        allowance.lines -= 1;
        Some(std::mem::take(&mut allowance.unsaid))
    }
}

/// Whatever was asked about modes, holds and reports, and of the rest what was denied for who asked it or where.
const fn is_recorded(route: Route, code: Code) -> bool {
    matches!(
        route,
        Route::SetMode
            | Route::Confirm
            | Route::Revert
            | Route::Hold
            | Route::HoldAttached
            | Route::Renew
            | Route::Release
            | Route::ForgetObservations
            | Route::ForgetObservation
    ) || matches!(code, Code::NotAuthorized | Code::ControlDisabled | Code::WrongSocket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_is_refused_without_end_leaves_the_log_to_others() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let lines = (0..1000).filter(|_| refusals.take(Some(1000), now).is_some()).count();
        assert_eq!(lines, BURST as usize);
        assert_eq!(refusals.take(Some(1001), now), Some(0), "another user has lines of its own");
        assert_eq!(
            refusals.take(Some(1000), now + EVERY),
            Some(1000 - u64::from(BURST)),
            "counted, and said later"
        );
        assert_eq!(refusals.take(Some(1000), now + EVERY), None);
    }

    #[test]
    fn users_without_number_do_not_fill_the_memory() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for uid in 0..10_000 {
            refusals.take(Some(uid), now);
        }
        assert!(refusals.of.lock().unwrap().len() <= MOST_USERS + 1);
    }

    #[test]
    fn questions_are_not_recorded_and_denied_work_is() {
        assert!(is_recorded(Route::SetMode, Code::Busy));
        assert!(is_recorded(Route::Calibrate, Code::NotAuthorized));
        assert!(!is_recorded(Route::Calibrate, Code::Busy));
        assert!(!is_recorded(Route::Predict, Code::UnknownFormat));
    }
}
