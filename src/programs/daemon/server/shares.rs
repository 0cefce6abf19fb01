//! Shares of what users have in common, so that none of them takes it from the others.
//!
//! Places (connections, streams, subscriptions, calls under way): a user may take one while it has fewer than are free.
//! Alone it has half of them, of two users that take all they get each has a third, of three a quarter; and however much
//! they want, as many as each of them has are left for whoever comes next.
//!
//! Turns (large questions, long bodies): one at a time of a user, so that those of other users come in between, however
//! many it asks at once.
//!
//! A user is who answers for it ([`Peer::account`](super::access::Peer::account)), root and the daemon's own like any other.
//! All of whom nobody tells who they are count as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use roofline::refusal::{Code, Refusal};

/// Who answers for it; `None` where nobody tells.
pub type User = Option<u32>;

/// Large questions that are worked on or next in line, of all users; each may hold megabytes.
const LARGE_AT_ONCE: usize = 2;
/// Waiting to be one of them.
const LARGE_WAIT: Duration = Duration::from_secs(5);
/// A body is long that takes some tenths of a millisecond to parse.
const LONG_BODY: usize = 8 * 1024;

/// So many places, divided between users.
#[derive(Debug)]
pub struct Places {
    total: usize,
    taken: Mutex<HashMap<User, usize>>,
}

/// One of the places, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    user: User,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// The user has this many, and no more are free than that.
    Share(usize),
    /// All of them are taken.
    All(usize),
}

impl NoPlace {
    /// What there is no place for, with what helps.
    #[must_use]
    pub fn refusal(self, user: User, what: &str, hint: &str) -> Refusal {
        let message = match self {
            Self::All(total) => format!("all {total} {what} are taken"),
            Self::Share(own) => {
                let name = user.map_or_else(|| "unknown users".to_owned(), |uid| format!("user {uid}"));
                format!("the {own} {what} of {name} are its share: no more are free for everybody else")
            }
        };
        Code::TooManyConnections.error(message, hint)
    }
}

impl Places {
    #[must_use]
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<User, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for this user.
    ///
    /// # Errors
    /// It has as many as are free, or none is.
    pub fn take(self: &Arc<Self>, user: User) -> Result<Place, NoPlace> {
        let mut taken = self.taken();
        share(self.total, taken.values().sum(), taken.get(&user).copied().unwrap_or(0))?;
        *taken.entry(user).or_default() += 1;
        drop(taken);
        Ok(Place { places: Arc::clone(self), user })
    }
}

/// Whether somebody who has `own` of the places may take another one.
///
/// # Errors
/// It has as many as are free, or none is.
pub fn share(total: usize, taken: usize, own: usize) -> Result<(), NoPlace> {
    match total.saturating_sub(taken) {
        0 => Err(NoPlace::All(total)),
        free if own >= free => Err(NoPlace::Share(own)),
        _ => Ok(()),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

/// One turn at a time for each user, in the order in which they ask.
#[derive(Debug, Default)]
pub struct Turns {
    of: Mutex<HashMap<User, Weak<Semaphore>>>,
}

impl Turns {
    /// The user's next turn; it ends when it is dropped.
    async fn next(&self, user: User) -> Option<OwnedSemaphorePermit> {
        let own = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            of.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
                of.retain(|_, own| own.strong_count() > 0);
                let own = Arc::new(Semaphore::new(1));
                of.insert(user, Arc::downgrade(&own));
                own
            })
        };
        own.acquire_owned().await.ok()
    }
}

/// The turns of everything that takes long, whichever way it was asked.
#[derive(Debug)]
pub struct Work {
    large: Turns,
    places: Arc<Semaphore>,
    bodies: Turns,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            large: Turns::default(),
            places: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            bodies: Turns::default(),
        }
    }
}

/// A large question may be worked on until this is dropped.
#[derive(Debug)]
pub struct Large {
    _own: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

impl Work {
    /// The user's turn for a large question.
    ///
    /// # Errors
    /// `busy` where it did not come in time.
    pub async fn large(&self, user: User) -> Result<Large, Refusal> {
        let mut of_others = false;
        let turn = async {
            let own = self.large.next(user).await;
            of_others = true;
            // It is never closed.
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            Some(Large { _own: own, _place: place })
        };
        if let Ok(Some(turn)) = timeout(LARGE_WAIT, turn).await {
            return Ok(turn);
        }
        let others = if of_others { "of other users" } else { "of the same user" };
        Err(Code::Busy.error(
            format!("large questions {others} are being answered, one at a time of each user"),
            "ask again in a second, or ask for less at a time",
        ))
    }

    /// The user's turn to have a body parsed; `None` for one that is short.
    pub async fn body(&self, user: User, body: &[u8]) -> Option<OwnedSemaphorePermit> {
        if body.len() < LONG_BODY { None } else { self.bodies.next(user).await }
    }
}

/// Works beside the event loop and gives the turn back. Where nobody waits any more it is over when the work is done.
///
/// # Errors
/// Those of the work.
pub async fn beside<P: Send + 'static, T: Send + 'static>(
    turn: P,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> (Option<P>, Result<T, Refusal>) {
    let unfinished = || Code::Internal.error("the answer was not finished", "report this");
    match tokio::task::spawn_blocking(move || (turn, work())).await {
        Ok((turn, done)) => (Some(turn), done),
        Err(_) => (None, Err(unfinished())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Takes places until there is none for this user.
    fn all_of(places: &Arc<Places>, user: u32) -> (Vec<Place>, NoPlace) {
        let mut held = Vec::new();
        loop {
            match places.take(Some(user)) {
                Ok(place) => held.push(place),
                Err(full) => return (held, full),
            }
        }
    }

    #[test]
    fn one_user_has_half_and_leaves_half() {
        let places = Places::new(256);
        let (first, full) = all_of(&places, 0);
        assert_eq!((first.len(), full), (128, NoPlace::Share(128)));
        let (second, _) = all_of(&places, 1000);
        assert_eq!(second.len(), 64, "half of what is left");
        let (third, _) = all_of(&places, 1001);
        assert_eq!(third.len(), 32);
        drop(first);
        let (again, _) = all_of(&places, 0);
        assert_eq!(again.len(), (256 - 64 - 32) / 2, "what was given back is there again");
    }

    /// n users that take turns at taking one have T / (n + 1) each, and as many are left.
    #[test]
    fn greedy_users_have_equal_shares_and_leave_one_more() {
        for users in 1..20_u32 {
            let places = Places::new(240);
            let mut held = Vec::new();
            loop {
                let before = held.len();
                held.extend((0..users).filter_map(|user| places.take(Some(user)).ok()));
                if held.len() == before {
                    break;
                }
            }
            let share = 240 / (users as usize + 1);
            for user in 0..users {
                let own = held.iter().filter(|place| place.user == Some(user)).count();
                assert!(own.abs_diff(share) <= 1, "{users} users: {own} of {share}");
            }
            assert!(places.take(Some(users)).is_ok(), "whoever comes next finds a place");
        }
    }

    #[test]
    fn the_only_place_can_be_taken() {
        let places = Places::new(1);
        let place = places.take(None).unwrap();
        assert_eq!(places.take(None).unwrap_err(), NoPlace::All(1));
        assert_eq!(places.take(Some(1)).unwrap_err(), NoPlace::All(1));
        drop(place);
        assert!(places.take(Some(1)).is_ok());
        assert_eq!(Places::new(0).take(None).unwrap_err(), NoPlace::All(0));
    }

    #[test]
    fn a_user_is_told_its_share() {
        let refusal = NoPlace::Share(128).refusal(Some(1000), "connections", "close some");
        assert_eq!(refusal.code, Code::TooManyConnections);
        assert!(refusal.message.contains("128 connections of user 1000"), "{}", refusal.message);
    }

    #[tokio::test]
    async fn the_large_questions_of_one_user_do_not_hold_up_another() {
        let work = Work::default();
        let first = work.large(Some(1)).await.unwrap();
        let mut queued: Vec<_> = (0..50).map(|_| Box::pin(work.large(Some(1)))).collect();
        for question in &mut queued {
            assert!(question.now_or_never().is_none(), "one at a time of a user");
        }
        let other = work.large(Some(2)).now_or_never();
        assert!(other.is_some_and(|turn| turn.is_ok()), "another user's turn has come");
        drop((queued, first));
        assert!(work.large(Some(1)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn users_take_turns_however_many_questions_they_ask() {
        let work = Arc::new(Work::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for user in [1, 1, 1, 1, 1, 1, 1, 1, 2, 3] {
            let (work, order) = (Arc::clone(&work), Arc::clone(&order));
            tasks.spawn(async move {
                let turn = work.large(Some(user)).await.unwrap();
                order.lock().unwrap().push(user);
                tokio::task::yield_now().await;
                drop(turn);
            });
        }
        while tasks.join_next().await.is_some() {}
        let order = order.lock().unwrap();
        for user in [2, 3] {
            let place = order.iter().position(|other| *other == user).unwrap();
            assert!(place <= 3, "{order:?}");
        }
    }

    #[tokio::test]
    async fn long_bodies_of_a_user_are_parsed_one_at_a_time() {
        let work = Work::default();
        let long = vec![b' '; LONG_BODY];
        let turn = work.body(Some(1), &long).await;
        assert!(turn.is_some());
        assert!(work.body(Some(1), &long).now_or_never().is_none());
        assert!(work.body(Some(1), b"{}").now_or_never().is_some(), "a short one does not wait");
        assert!(work.body(Some(2), &long).now_or_never().is_some());
    }
}
