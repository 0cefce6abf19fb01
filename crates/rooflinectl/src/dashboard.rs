//! `dashboard`: serves one web page to a browser on this machine, and passes what it asks on to the daemon's sockets.
//!
//! Another user can connect to a loopback port too, and every page that is open in a
//! browser can make that send requests here. So:
//!
//! | it | gets |
//! |---|---|
//! | asks for anything but the page without the token | 403 |
//! | is another website, or a name that somebody had resolve to this machine | 403 |
//! | writes the target of its request as a proxy's client does, or two hosts | 400 |
//! | sends its header slowly, keeps an idle connection, or shows no token | is closed after 10 s |
//! | sends a body in chunks | 400 |
//! | sends its body slowly | 408 |
//! | sends more body than the route takes | 413 |
//! | is a connection too many | 503, unread |
//!
//! The token is random and stands in the fragment of the address, which browsers send to nobody.

mod auth;
mod gzip;
mod history;
mod listen;
mod network;
mod pages;
mod proxy;
mod reply;
mod server;
mod session;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::Context;
use super::args::DashboardArgs;
use super::failure::Failure;
use super::output::Format;
use super::signals::wait_for_signal;
use auth::Token;
use history::History;
use pages::Pages;
use rooflined_client::Client;

/// What every connection works with.
struct Dashboard {
    /// Never connected: each request takes [`Client::another`], which finds a daemon that was started meanwhile.
    client: Client,
    token: Token,
    pages: Pages,
    history: Mutex<History>,
    started: SystemTime,
    /// For answers.
    timeout: Duration,
}

pub async fn run(context: &mut Context, args: &DashboardArgs) -> Result<(), Failure> {
    let (listener, address) = listen::bind(&args.listen).await?;
    let token = Token::random()?;
    let ended = wait_for_signal();
    tokio::pin!(ended);
    let timeout = context.timeout;
    let url = format!("http://{address}/#token={}", token.as_str());
    let dashboard = Arc::new(Dashboard {
        client: context.client.another(timeout),
        token,
        pages: Pages::new(args.page.clone()),
        history: Mutex::new(History::new(history::now())),
        started: SystemTime::now(),
        timeout,
    });
    // A daemon that hangs answers late.
    let control = tokio::select! {
        control = session::control(&dashboard) => control,
        _ = &mut ended => return Ok(()),
    };
    if context.printer.format == Format::Human {
        context.printer.text(&greeting(&url, address, &control))?;
    } else {
        let value = serde_json::json!({ "url": url, "control": control });
        context.printer.value("dashboard", &value)?;
    }
    let sampling = tokio::spawn(history::sample(Arc::clone(&dashboard)));
    tokio::select! {
        () = server::serve(listener, Arc::clone(&dashboard)) => {}
        _ = &mut ended => {}
    }
    sampling.abort();
    Ok(())
}

/// Why `--ssh` starts no dashboard: its page would be served there, out of reach of the browser here.
pub fn refuse_over_ssh(host: &str, args: &DashboardArgs) -> Failure {
    let port = args.listen.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let port = port.unwrap_or("8000");
    Failure::usage("--ssh does not forward the dashboard's port").with_hint(format!(
        "ssh -t -L {port}:127.0.0.1:{port} {host} rooflinectl dashboard --listen 127.0.0.1:{port}, and open the \
         address that it prints here"
    ))
}

/// What to open where ssh forwards the port, which is 127.0.0.1 there.
fn forwarded_url(url: &str, address: SocketAddr) -> String {
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    if address == there {
        return "the same address".to_owned();
    }
    url.replacen(&address.to_string(), &there.to_string(), 1)
}

fn greeting(url: &str, address: SocketAddr, control: &session::Control) -> String {
    let port = address.port();
    let mut text = format!("dashboard: {url}\n");
    text += &format!(
        "from another machine: ssh -L {port}:{address} HOST, then open {} there\n",
        forwarded_url(url, address)
    );
    text += &match &control.reason {
        None => "control: available; the page can switch power modes, hold them and calibrate\n".to_owned(),
        Some(reason) => format!("control: not available: {reason}\n"),
    };
    text += "anyone who has this address can do what you can, until you end this program with Ctrl-C\n";
    text
}
