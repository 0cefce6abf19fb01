//! Who may make the machine work.
//!
//! Reading is open to anyone local. Calibrating and measuring change nothing that lasts, but they take every core for
//! seconds, so:
//!
//! | caller | may calibrate and measure |
//! |---|---|
//! | root | always |
//! | the daemon's own user (somebody who started `rooflined` by hand) | always |
//! | group `rooflined` | once `[control] enabled = true` |
//! | anyone else | no |
//!
//! Power modes and holds change the machine for everybody: the same callers may, but nobody, root included, before
//! `[control] enabled = true`.
//!
//! Anybody may report a measurement. Reports of root, the daemon's own user and group `rooflined` count for everybody, with
//! `[control]` enabled or not, because a report changes nothing on the machine; any other report counts for its user.
//!
//! The caller is who the kernel says it was when it connected (`SO_PEERCRED` on the socket, and what the bus daemon
//! learnt the same way on D-Bus). Membership of the group is the primary group of the connection, or a line of
//! /etc/group; groups that only a directory service knows are admitted by their primary group alone.

use rooflined_core::configuration::how_to_enable_control;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::learning::report::Reporter;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The group whose members may control.
pub const GROUP: &str = "rooflined";

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// The process, where that is told.
    pub pid: Option<i32>,
    /// Groups known of it: the primary one at least.
    pub gids: Vec<u32>,
    account: OnceLock<u32>,
}

impl Peer {
    #[must_use]
    pub const fn new(uid: u32, pid: Option<i32>, gids: Vec<u32>) -> Self {
        Self { uid, pid, gids, account: OnceLock::new() }
    }

    /// The user who answers for it: who may use a range of subordinate users (/etc/subuid), as rootless containers do, is one
    /// user and not as many as the range has.
    #[must_use]
    pub fn account(&self) -> u32 {
        *self.account.get_or_init(|| Users::read().account(self.uid))
    }

    /// A user of whom no process is known, with its primary group.
    #[must_use]
    pub fn of_user(uid: u32) -> Self {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let number = uid.to_string();
        let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
        let gid = line.and_then(|line| line.split(':').nth(3)?.parse().ok());
        Self::new(uid, None, gid.into_iter().collect())
    }

    /// Who reports what this process measured. A user who counts for everybody may have measured another user's server,
    /// who is the reporter then: what a server shows is that user's word.
    #[must_use]
    pub fn reporter(&self, server_user: Option<u32>) -> Reporter {
        let own = Reporter { uid: self.account(), pid: self.pid, trusted: self.is_trusted() };
        match server_user.map(Self::of_user) {
            Some(other) if own.trusted && !other.is_trusted() => {
                Reporter { uid: other.account(), trusted: false, ..own }
            }
            _ => own,
        }
    }

    fn is_trusted(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw() || is_member(self, Path::new("/etc"))
    }
}

/// How long what was read of the users holds: connections may come much faster than users change.
const ACCOUNTS_HOLD: Duration = Duration::from_secs(1);

/// Who answers for which user, read again at most once a second.
#[derive(Debug, Default)]
pub struct Accounts(Mutex<Option<Users>>);

#[derive(Debug)]
struct Users {
    read_at: Instant,
    subuid: String,
    passwd: String,
}

impl Accounts {
    /// [`Peer::account`], which is known to the peer from then on.
    pub fn of(&self, peer: &Peer) -> u32 {
        *peer.account.get_or_init(|| {
            let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if users.as_ref().is_none_or(|users| users.read_at.elapsed() > ACCOUNTS_HOLD) {
                *users = Some(Users::read());
            }
            users.as_ref().map_or(peer.uid, |users| users.account(peer.uid))
        })
    }
}

impl Users {
    fn read() -> Self {
        let read = |name: &str| fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
        let subuid = read("subuid");
        // Names are looked up for ranges only.
        let passwd = if subuid.is_empty() { String::new() } else { read("passwd") };
        Self { read_at: Instant::now(), subuid, passwd }
    }

    fn account(&self, uid: u32) -> u32 {
        account(uid, &self.subuid, &self.passwd)
    }
}

/// `subuid` lines are `name-or-uid:first:count`.
fn account(uid: u32, subuid: &str, passwd: &str) -> u32 {
    let owner = subuid.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let (first, count): (u32, u32) = (first.parse().ok()?, count.trim().parse().ok()?);
        (uid >= first && uid - first < count).then_some(name)
    });
    let Some(owner) = owner else { return uid };
    let named = || {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(owner))?;
        line.split(':').nth(2)?.parse().ok()
    };
    owner.parse().ok().or_else(named).unwrap_or(uid)
}

/// May this peer calibrate and measure?
///
/// # Errors
/// `control_disabled` or `not_authorized`, each with the remedy.
pub fn may_run(peer: Option<&Peer>, control_enabled: bool) -> Result<(), Refusal> {
    let own = rustix::process::geteuid().as_raw();
    decide(peer, own, control_enabled, |peer| is_member(peer, Path::new("/etc")))
}

/// May this peer switch power modes and hold them? Gives its user.
///
/// # Errors
/// `control_disabled`, for everyone, or `not_authorized`, each with the remedy.
pub fn may_control(peer: Option<&Peer>, control_enabled: bool) -> Result<u32, Refusal> {
    if !control_enabled {
        return Err(disabled());
    }
    may_run(peer, control_enabled)?;
    peer.map(|peer| peer.uid).ok_or_else(unknown)
}

fn unknown() -> Refusal {
    Code::NotAuthorized
        .error("the kernel does not report who is calling", "connect through a Unix socket of this machine")
}

fn disabled() -> Refusal {
    Code::ControlDisabled.error("control is not enabled on this machine", how_to_enable_control())
}

fn decide(
    peer: Option<&Peer>,
    own: u32,
    control_enabled: bool,
    is_member: impl FnOnce(&Peer) -> bool,
) -> Result<(), Refusal> {
    let Some(peer) = peer else { return Err(unknown()) };
    if peer.uid == 0 || peer.uid == own {
        return Ok(());
    }
    if !control_enabled {
        return Err(disabled());
    }
    if is_member(peer) {
        return Ok(());
    }
    Err(Code::NotAuthorized.error(
        format!("user {} is neither root, nor the daemon's user, nor in group {GROUP}", peer.uid),
        format!("ask as root, or join the group: usermod -aG {GROUP} USER, then log in again"),
    ))
}

/// Looks the group up at each request: requests of this kind are rare, and membership may change.
fn is_member(peer: &Peer, etc: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(etc.join(name)).unwrap_or_default();
    member(peer, &read("group"), &read("passwd"))
}

/// `group` lines are `name:password:gid:user,user`; `passwd` lines are `name:password:uid:gid:…`.
fn member(peer: &Peer, group: &str, passwd: &str) -> bool {
    let Some(line) = group.lines().find(|line| line.split(':').next() == Some(GROUP)) else { return false };
    let mut fields = line.split(':').skip(2);
    let gid: Option<u32> = fields.next().and_then(|gid| gid.parse().ok());
    if gid.is_some_and(|gid| peer.gids.contains(&gid)) {
        return true;
    }
    let members = fields.next().unwrap_or_default();
    let uid = peer.uid.to_string();
    passwd
        .lines()
        .filter(|line| line.split(':').nth(2) == Some(&uid))
        .filter_map(|line| line.split(':').next())
        .any(|name| members.split(',').any(|member| member == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32) -> Peer {
        Peer::new(uid, None, vec![gid])
    }

    fn code(peer: Option<&Peer>, enabled: bool, in_group: bool) -> Option<Code> {
        decide(peer, 900, enabled, |_| in_group).err().map(|error| error.code)
    }

    #[test]
    fn root_and_the_daemons_own_user_may_always() {
        for uid in [0, 900] {
            assert_eq!(code(Some(&peer(uid, 1)), false, false), None);
        }
    }

    #[test]
    fn others_need_the_switch_and_the_group() {
        let other = peer(1000, 1000);
        assert_eq!(code(Some(&other), false, true), Some(Code::ControlDisabled));
        assert_eq!(code(Some(&other), true, false), Some(Code::NotAuthorized));
        assert_eq!(code(Some(&other), true, true), None);
        assert_eq!(code(None, true, true), Some(Code::NotAuthorized));
    }

    #[test]
    fn power_modes_are_nobodys_before_control_is_enabled() {
        let root = peer(0, 0);
        assert_eq!(may_control(Some(&root), false).unwrap_err().code, Code::ControlDisabled);
        assert_eq!(may_control(Some(&root), true), Ok(0));
        assert_eq!(may_control(None, true).unwrap_err().code, Code::NotAuthorized);
    }

    #[test]
    fn a_subordinate_user_is_its_owner() {
        let subuid = "ann:100000:65536\n1002:165536:65536\nghost:231072:65536\nbad:x:1\n";
        let passwd = "root:x:0:0::/:\nann:x:1001:1001::/:\n";
        for (uid, owner) in [
            (1001, 1001),
            (99_999, 99_999),
            (100_000, 1001),
            (165_535, 1001),
            (165_536, 1002),
            (231_072, 231_072),
            (296_608, 296_608),
        ] {
            assert_eq!(account(uid, subuid, passwd), owner, "{uid}");
        }
    }

    #[test]
    fn membership_is_the_primary_group_or_a_line_of_the_group_file() {
        let group = "root:x:0:\nrooflined:x:777:ann,bob\nrooflined2:x:778:eve\n";
        let passwd = "ann:x:1001:1001::/:\neve:x:1002:1002::/:\nan:x:1003:1003::/:\n";
        assert!(member(&peer(1001, 1001), group, passwd));
        assert!(member(&peer(1002, 777), group, passwd));
        assert!(!member(&peer(1002, 1002), group, passwd));
        assert!(!member(&peer(1003, 1003), group, passwd), "a prefix of a name is another name");
        assert!(!member(&peer(1001, 1001), "", ""));
    }
}
