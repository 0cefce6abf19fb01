//! Shares of what users have in common, so that none of them takes it from the others.
//!
//! Quota (connections, streams, subscriptions, calls under way): a user may take one while it has fewer than are free.
//! Alone it has half of them, of two users that take all they get each has a third, of three a quarter; and however much
//! they want, as many as each of them has are left for the next user.
//!
//! Turns (large questions, long bodies): one at a time of a user, so that those of other users come in between, however
//! many it asks at once. Of those who wait for a large question, the one who has used least time lately comes first, and a user
//! who has used next to none does not wait for those who have.
//!
//! A user is who answers for it ([`Peer::account`](super::access::Peer::account)), root and the daemon's own like any other.
//! All of whom nobody tells who they are count as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use rooflined_advice::Wanted;
use rooflined_core::refusal::{Code, Refusal};

/// Who answers for it; `None` where nobody tells.
pub type User = Option<u32>;

/// Large questions that are worked on, of all users; each may hold megabytes.
const LARGE_AT_ONCE: usize = 2;
/// One more is for users who have used less than this, so that the first question of a user waits for nobody's long ones.
const LITTLE_USED: Duration = Duration::from_secs(1);
/// In this time half of what a user has used is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// Less than this is as good as nothing.
const FORGOTTEN: Duration = Duration::from_millis(1);
/// Waiting to be one of them.
const LARGE_WAIT: Duration = Duration::from_secs(5);
/// A body is long that takes some tenths of a millisecond to parse.
pub const LONG_BODY: usize = 8 * 1024;

/// So many places, divided between users.
#[derive(Debug)]
pub struct Quota {
    total: usize,
    taken: Mutex<HashMap<User, usize>>,
}

/// One of the places, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Quota>,
    user: User,
    count: usize,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// The user has this many, and no more are free than that.
    Share(usize),
    /// All of them are taken.
    All(usize),
}

impl QuotaExceeded {
    /// What there is no place for, with what helps.
    #[must_use]
    pub fn refusal(self, user: User, what: &str, hint: &str) -> Refusal {
        let message = match self {
            Self::All(total) => format!("all {total} {what} are in use"),
            Self::Share(own) => {
                let name = user.map_or_else(|| "unknown users".to_owned(), |uid| format!("user {uid}"));
                format!("{name} uses its share of {own} {what}; the rest is kept for others")
            }
        };
        Code::TooManyConnections.error(message, hint)
    }
}

impl Quota {
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
    pub fn take(self: &Arc<Self>, user: User) -> Result<Place, QuotaExceeded> {
        self.take_many(user, 1)
    }

    /// So many places for this user, which are given back together.
    ///
    /// # Errors
    /// It would have more than are free then, or there are not so many.
    pub fn take_many(self: &Arc<Self>, user: User, count: usize) -> Result<Place, QuotaExceeded> {
        let mut taken = self.taken();
        // Whether it may have the last of them.
        let before = count.saturating_sub(1);
        let own = taken.get(&user).copied().unwrap_or(0);
        share(self.total, taken.values().sum::<usize>() + before, own + before)?;
        *taken.entry(user).or_default() += count;
        drop(taken);
        Ok(Place { places: Arc::clone(self), user, count })
    }
}

/// Whether somebody who has `own` of the places may take another one.
///
/// # Errors
/// It has as many as are free, or none is.
pub fn share(total: usize, taken: usize, own: usize) -> Result<(), QuotaExceeded> {
    match total.saturating_sub(taken) {
        0 => Err(QuotaExceeded::All(total)),
        free if own >= free => Err(QuotaExceeded::Share(own)),
        _ => Ok(()),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.user) {
            *count -= self.count;
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
    pub async fn next(&self, user: User) -> Option<OwnedSemaphorePermit> {
        let own = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            of.retain(|_, own| own.strong_count() > 0);
            of.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
                let own = Arc::new(Semaphore::new(1));
                of.insert(user, Arc::downgrade(&own));
                own
            })
        };
        own.acquire_owned().await.ok()
    }

    /// Users that are remembered.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.of.lock().unwrap().len()
    }
}

/// Time that a user's large questions have taken lately.
#[derive(Debug, Clone, Copy)]
struct Used {
    time: Duration,
    at: Instant,
}

impl Used {
    /// What is left of it.
    fn at(self, now: Instant) -> Duration {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.time.mul_f64(0.5_f64.powf(age / HALF_LIFE.as_secs_f64()))
    }
}

/// Large questions that are worked on, and users who wait for one.
#[derive(Debug, Default)]
struct Desk {
    working: usize,
    /// In the order in which they came.
    waiting: Vec<User>,
    used: HashMap<User, Used>,
}

impl Desk {
    fn used(&self, user: User, now: Instant) -> Duration {
        self.used.get(&user).map_or(Duration::ZERO, |used| used.at(now))
    }

    /// Whether it is this user's turn.
    fn admits(&self, user: User, now: Instant) -> bool {
        let places = LARGE_AT_ONCE + usize::from(self.used(user, now) < LITTLE_USED);
        // Of equals the first.
        let next = self.waiting.iter().min_by_key(|waiting| self.used(**waiting, now));
        self.working < places && next == Some(&user)
    }

    fn charge(&mut self, user: User, time: Duration, now: Instant) {
        let time = self.used(user, now) + time;
        self.used.insert(user, Used { time, at: now });
        self.used.retain(|_, used| used.at(now) > FORGOTTEN);
    }
}

/// Who may work on a large question.
#[derive(Debug, Default)]
struct Desks {
    desk: Mutex<Desk>,
    changed: Notify,
}

impl Desks {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a user, of whom no other question waits.
    async fn next(self: &Arc<Self>, user: User) -> Turn {
        let _waiting = Waiting { desks: Arc::clone(self), user };
        self.desk().waiting.push(user);
        loop {
            // Before the look, so that a change behind it wakes us.
            let changed = self.changed.notified();
            if let Some(turn) = self.admit(user) {
                return turn;
            }
            changed.await;
        }
    }

    fn admit(self: &Arc<Self>, user: User) -> Option<Turn> {
        let began = Instant::now();
        let mut desk = self.desk();
        desk.admits(user, began).then(|| {
            desk.working += 1;
            Turn { desks: Arc::clone(self), user, began }
        })
    }
}

/// A place in the queue.
struct Waiting {
    desks: Arc<Desks>,
    user: User,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.desks.desk().waiting.retain(|other| *other != self.user);
        self.desks.changed.notify_waiters();
    }
}

/// A user's time at work.
#[derive(Debug)]
struct Turn {
    desks: Arc<Desks>,
    user: User,
    began: Instant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut desk = self.desks.desk();
        desk.working -= 1;
        desk.charge(self.user, now - self.began, now);
        drop(desk);
        self.desks.changed.notify_waiters();
    }
}

/// The turns of everything that takes long, whichever way it was asked.
#[derive(Debug, Default)]
pub struct Work {
    large: Turns,
    desks: Arc<Desks>,
    bodies: Turns,
}

/// A large question may be worked on until this is dropped.
#[derive(Debug)]
pub struct Large {
    _own: Option<OwnedSemaphorePermit>,
    _turn: Turn,
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
            Large { _own: own, _turn: self.desks.next(user).await }
        };
        if let Ok(turn) = timeout(LARGE_WAIT, turn).await {
            return Ok(turn);
        }
        let others = if of_others { "of other users" } else { "of the same user" };
        Err(Code::Busy.error(
            format!("large questions {others} are being answered, one at a time of each user"),
            "ask again in a second, or ask for fewer at a time",
        ))
    }

    /// The user's turn to have a body parsed; `None` for one that is short.
    pub async fn body(&self, user: User, body: &[u8]) -> Option<OwnedSemaphorePermit> {
        if body.len() < LONG_BODY { None } else { self.bodies.next(user).await }
    }
}

/// Works on a thread of its own and gives the turn back. Work that asks whether it is wanted ends early where nobody waits
/// any more; other work is over when it is done.
///
/// # Errors
/// Those of the work.
pub async fn run_blocking<P: Send + 'static, T: Send + 'static>(
    turn: P,
    work: impl FnOnce(Wanted<'_>) -> Result<T, Refusal> + Send + 'static,
) -> (Option<P>, Result<T, Refusal>) {
    let unfinished = || Code::Internal.error("the answer was not finished", "report this");
    // Gone with the one who waits.
    let waiting = Arc::new(());
    let watched = Arc::downgrade(&waiting);
    let work = move || {
        let is_wanted = || watched.strong_count() > 0;
        (turn, work(Wanted::while_true(&is_wanted)))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok((turn, done)) => (Some(turn), done),
        Err(_) => (None, Err(unfinished())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Takes places until there is none for this user.
    fn all_of(places: &Arc<Quota>, user: u32) -> (Vec<Place>, QuotaExceeded) {
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
        let places = Quota::new(256);
        let (first, full) = all_of(&places, 0);
        assert_eq!((first.len(), full), (128, QuotaExceeded::Share(128)));
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
            let places = Quota::new(240);
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
            assert!(places.take(Some(users)).is_ok(), "the next user finds a place");
        }
    }

    #[test]
    fn the_only_place_can_be_taken() {
        let places = Quota::new(1);
        let place = places.take(None).unwrap();
        assert_eq!(places.take(None).unwrap_err(), QuotaExceeded::All(1));
        assert_eq!(places.take(Some(1)).unwrap_err(), QuotaExceeded::All(1));
        drop(place);
        assert!(places.take(Some(1)).is_ok());
        assert_eq!(Quota::new(0).take(None).unwrap_err(), QuotaExceeded::All(0));
    }

    #[test]
    fn a_user_is_told_its_share() {
        let refusal = QuotaExceeded::Share(128).refusal(Some(1000), "connections", "close some");
        assert_eq!(refusal.code, Code::TooManyConnections);
        assert!(
            refusal.message.contains("user 1000 uses its share of 128 connections"),
            "{}",
            refusal.message
        );
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

    /// Two users keep the places busy for good; another comes first when it has used less, and does not wait at all before
    /// it has used anything.
    #[test]
    fn the_user_of_least_time_comes_next() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        for (user, seconds) in [(1, 20), (2, 10), (3, 5)] {
            desk.charge(Some(user), Duration::from_secs(seconds), now);
        }
        desk.working = LARGE_AT_ONCE;
        desk.waiting = vec![Some(1), Some(2), Some(3)];
        assert!(desk.waiting.iter().all(|user| !desk.admits(*user, now)), "there is no place");
        desk.working -= 1;
        assert_eq!([1, 2, 3].map(|user| desk.admits(Some(user), now)), [false, false, true]);
        desk.working += 1;
        desk.waiting.push(Some(4));
        assert!(desk.admits(Some(4), now), "its first question waits for nobody");
        desk.working += 1;
        assert!(!desk.admits(Some(4), now), "but there is an end to places");
    }

    #[test]
    fn what_was_used_is_forgotten_by_half_in_a_while() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        desk.charge(Some(1), Duration::from_secs(8), now);
        let later = now + 2 * HALF_LIFE;
        assert!(desk.used(Some(1), later).abs_diff(Duration::from_secs(2)) < Duration::from_millis(1));
        desk.charge(Some(2), Duration::from_secs(1), now + 20 * HALF_LIFE);
        assert_eq!(desk.used.len(), 1, "nobody is remembered for good");
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_stopped() {
        let (stopped, is_stopped) = std::sync::mpsc::channel();
        let task = tokio::spawn(run_blocking((), move |wanted| {
            while wanted.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = stopped.send(());
            Ok(())
        }));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(is_stopped.try_recv().is_err(), "it goes on while somebody waits");
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        is_stopped.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn many_places_are_taken_and_given_back_together() {
        let places = Quota::new(100);
        let first = places.take_many(Some(1), 50).unwrap();
        assert_eq!(places.take(Some(1)).unwrap_err(), QuotaExceeded::Share(50));
        assert_eq!(places.take_many(Some(2), 26).unwrap_err(), QuotaExceeded::Share(25));
        let second = places.take_many(Some(2), 25).unwrap();
        drop(first);
        assert!(places.take_many(Some(1), 37).is_ok(), "half of what is free");
        drop(second);
        assert!(places.taken().is_empty());
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
