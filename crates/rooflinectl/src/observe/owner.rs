//! Whose a server is. Any user may listen on a port, and answer as a server would: what such a server shows says nothing
//! about other users' runs, and it must not be sent a key that is meant for another.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::failure::Failure;

/// Users whose servers are the caller's business.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owners {
    /// Named by the caller, in addition to the caller and root.
    pub named: Option<u32>,
}

impl Owners {
    /// Those of a caller who names this user, if any.
    ///
    /// # Errors
    /// The user is unknown.
    pub fn of(user: Option<&str>) -> Result<Self, Failure> {
        Ok(Self { named: user.map(number).transpose()? })
    }

    pub fn include(self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw() || self.named == Some(uid)
    }
}

/// A user by name or number.
fn number(user: &str) -> Result<u32, Failure> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user));
    line.and_then(|line| line.split(':').nth(2)?.parse().ok()).ok_or_else(|| {
        Failure::usage(format!("/etc/passwd has no user {user:?}")).with_hint("give its number: id -u USER")
    })
}

/// The user whose socket takes connections to `address`, as the kernel tells; `None` where it tells nobody or several.
pub fn user_listening_at(address: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let users: BTreeSet<u32> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| owners(&table, address))
        .collect();
    let mut users = users.into_iter();
    users.next().filter(|_| users.next().is_none())
}

/// Users of the sockets in a table of /proc/net that listen at `address`, or at every address of its port.
fn owners(table: &str, address: SocketAddr) -> Vec<u32> {
    /// TCP_LISTEN.
    const LISTENING: &str = "0A";
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (host, port) = words.get(1)?.rsplit_once(':')?;
        let is_meant = *words.get(3)? == LISTENING && u16::from_str_radix(port, 16).ok()? == address.port();
        let at = ip(host)?.to_canonical();
        (is_meant && (at.is_unspecified() || at == address.ip().to_canonical())).then_some(())?;
        words.get(7)?.parse().ok()
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// An address as these tables write it: words of 32 bits in the machine's order.
fn ip(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: Vec<u8> = words.concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Lines of a little-endian machine.
    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 11 1 0 100 0 0 10 0\n\
        1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 12 1 0 100 0 0 10 0\n\
        2: 0100007F:1F92 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1003        0 13 1 0 100 0 0 10 0\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_owner_of_the_socket_that_listens_is_found() {
        let of = |address: &str| owners(TABLE, address.parse().unwrap());
        assert_eq!(of("127.0.0.1:8080"), [1001]);
        assert_eq!(of("127.0.0.2:8080"), [0; 0], "it listens at another address");
        assert_eq!(of("127.0.0.2:8081"), [1002], "at every address");
        assert_eq!(of("127.0.0.1:8082"), [0; 0], "a connection is not a server");
    }

    #[test]
    fn our_own_socket_is_ours_on_either_kind_of_address() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may lack IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let address = listener.local_addr().unwrap();
            assert_eq!(user_listening_at(address), Some(own));
            drop(listener);
            // A child that another test starts may hold the socket until it runs its program.
            let is_gone = (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                user_listening_at(address).is_none()
            });
            assert!(is_gone, "{address}");
        }
    }

    #[test]
    fn a_stranger_is_nobody_the_caller_answers_for_unless_named() {
        let stranger = rustix::process::geteuid().as_raw() + 7;
        assert!(Owners::default().include(0) && !Owners::default().include(stranger));
        assert!(Owners::of(Some(&stranger.to_string())).unwrap().include(stranger));
        assert_eq!(Owners::of(Some("root")).unwrap().named, Some(0));
        assert!(Owners::of(Some("no such user")).is_err());
    }
}
