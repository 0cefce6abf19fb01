//! Where the dashboard listens: on loopback addresses only, because plain HTTP is spoken.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::{TcpListener, lookup_host};

use crate::failure::Failure;

/// Listens at `text`, an address and port of this machine or its port alone, and says where that is.
///
/// # Errors
/// It is no address and port, no loopback address, or taken.
pub async fn bind(text: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let port = text.trim_start_matches(':').parse::<u16>().ok();
    let address = port.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let Ok(found) = lookup_host(address).await else {
        return Err(Failure::usage(format!("--listen {text:?} is not an address and port"))
            .with_hint("for example: --listen 8000, --listen 127.0.0.1:8000, or port 0 for a free one"));
    };
    let found: Vec<SocketAddr> = found.collect();
    // A name that leads elsewhere too is no name of this machine alone.
    if found.is_empty() || !found.iter().all(|address| address.ip().is_loopback()) {
        let port = found.first().map(SocketAddr::port).filter(|port| *port > 0).unwrap_or(8000);
        return Err(Failure::usage(format!(
            "--listen {text} is not a loopback address, and the dashboard speaks plain HTTP"
        ))
        .with_hint(format!(
            "listen on 127.0.0.1 and reach it from elsewhere through ssh: ssh -L {port}:127.0.0.1:{port} HOST"
        )));
    }
    // localhost is an address of each family; IPv4 is what the hint for ssh names.
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first()).copied();
    let Some(address) = address else { return Err(Failure::usage("--listen names no address")) };
    let listening = TcpListener::bind(address).await.and_then(|listener| {
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    });
    listening.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::failed(
            format!("{address} is in use by another program or another dashboard"),
            "take a free port with --listen 127.0.0.1:0, or see who listens with: ss -ltnp",
        ),
        ErrorKind::PermissionDenied => Failure::failed(
            format!("this user may not listen on {address}"),
            "take a port above 1023, or a free one with --listen 127.0.0.1:0",
        ),
        _ => Failure::failed(format!("cannot listen on {address}: {error}"), "try --listen 127.0.0.1:0"),
    })
}
