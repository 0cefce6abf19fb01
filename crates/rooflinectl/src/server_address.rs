//! Where an inference server listens, as people write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::failure::Failure;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    pub port: u16,
    /// Path before every route, without its last slash.
    prefix: String,
}

impl Address {
    /// `8080`, `localhost:8080`, `http://[::1]:8080/prefix`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected a port of this machine, such as 8080, or http://HOST:PORT";
        if text.starts_with("https:") {
            return Err(
                "TLS is not supported; give the server's own plain HTTP port on this machine".to_owned()
            );
        }
        if let Ok(port) = text.parse::<u16>() {
            return if port == 0 { Err(EXPECTED.to_owned()) } else { Ok(Self::local(port)) };
        }
        let (rest, default) = match text.strip_prefix("http://") {
            Some(rest) => (rest, Some(80)),
            None => (text, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, end) = rest.split_once(']').ok_or(EXPECTED)?;
                (host, end.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0),
            None => default,
        };
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '%' | '\\');
        if host.is_empty() || !rest.chars().all(plain) {
            return Err(EXPECTED.to_owned());
        }
        let prefix = path.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { host: host.to_owned(), port: port.ok_or(EXPECTED)?, prefix })
    }

    /// A port of this machine.
    pub fn local(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port, prefix: String::new() }
    }

    /// Path before every route.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Where its name leads.
    ///
    /// # Errors
    /// It leads nowhere, or to another machine: what is learned here is learned of this one.
    pub async fn resolve(&self) -> Result<SocketAddr, Failure> {
        let mut found = tokio::net::lookup_host((self.host.as_str(), self.port)).await.map_err(|error| {
            Failure::failed(
                format!("{} cannot be looked up: {error}", self.host),
                "give its address in digits",
            )
        })?;
        match found.find(|address| is_of_this_machine(address.ip())) {
            Some(address) => Ok(address),
            None => Err(Failure::usage(format!(
                "{self} is not on this machine, so its runs say nothing about this machine's ceilings"
            ))
            .with_hint("observe it where it runs: rooflinectl --ssh HOST observe --from PORT")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}
/// Only an address of an own interface can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown) in [
            ("8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("http://[::1]:8080/api/", "http://[::1]:8080/api"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_says_what_is_expected() {
        for text in [
            "",
            "0",
            "99999",
            "localhost",
            "http://",
            "http://:80",
            "a:b:c",
            "http://h:1/\r\nx",
            "http://[::1",
            "u@h:1",
        ] {
            assert!(
                Address::parse(text).unwrap_err().contains("expected a port of this machine"),
                "{text:?}"
            );
        }
        assert!(Address::parse("https://h").unwrap_err().contains("TLS is not supported"));
    }
}
