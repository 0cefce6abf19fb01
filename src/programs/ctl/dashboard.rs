//! `dashboard`: serves one web page to a browser on this machine, and passes what it asks on to the daemon's sockets.
//!
//! Whoever can connect to a loopback port is not thereby whoever started this program, and every page that is open in a
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
//! | does not read its answer | is cut off after 30 s without progress |
//!
//! The token is random and stands in the fragment of the address, which browsers send to nobody.

mod door;
mod history;
mod listen;
mod pages;
mod proxy;
mod reply;
mod server;
mod session;
mod stall;
mod upload;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::Context;
use super::args::DashboardArgs;
use super::failure::Failure;
use super::output::Format;
use door::Token;
use history::History;
use pages::Pages;
use wire::client::Client;

/// Model files whose beginnings are in memory at once, so that one that comes slowly does not keep another waiting.
const UPLOADS: usize = 2;

/// What every connection works with.
struct Dashboard {
    /// Never connected: each request takes [`Client::another`], which finds a daemon that was started meanwhile.
    client: Client,
    token: Token,
    pages: Pages,
    history: Mutex<History>,
    /// Places for beginnings of model files, in memory from their first byte until they are read.
    uploads: Arc<Semaphore>,
    /// Held while one is read: a header of 64 MiB takes four times its size meanwhile.
    parsing: Arc<tokio::sync::Mutex<()>>,
    started: SystemTime,
    /// For answers.
    timeout: Duration,
}

pub async fn run(context: &mut Context, args: &DashboardArgs) -> Result<(), Failure> {
    let (listener, address) = listen::bind(&args.listen).await?;
    let token = Token::random()?;
    let mut ends = Vec::new();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    // nohup has it ignored, so that the program outlives its terminal.
    let ignored = ignores_hangup();
    for kind in kinds.into_iter().filter(|kind| *kind != SignalKind::hangup() || !ignored) {
        let caught = signal(kind);
        ends.push(caught.map_err(|error| {
            Failure::failed(
                format!("cannot catch signals: {error}"),
                "raise the limit on open files: ulimit -n",
            )
        })?);
    }
    let timeout = context.timeout;
    let url = format!("http://{address}/#token={}", token.as_str());
    let dashboard = Arc::new(Dashboard {
        client: context.client.another(timeout),
        token,
        pages: Pages::new(args.page.clone()),
        history: Mutex::new(History::new(history::now())),
        uploads: Arc::new(Semaphore::new(UPLOADS)),
        parsing: Arc::default(),
        started: SystemTime::now(),
        timeout,
    });
    let mut ended = std::pin::pin!(std::future::poll_fn(|context| {
        if ends.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    }));
    // A daemon that hangs answers late.
    let control = tokio::select! {
        control = session::control(&dashboard) => control,
        () = &mut ended => return Ok(()),
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
        () = &mut ended => {}
    }
    sampling.abort();
    Ok(())
}

/// Why `--ssh` starts no dashboard: its page would be served there, out of reach of the browser here.
pub fn elsewhere(host: &str, args: &DashboardArgs) -> Failure {
    let port = args.listen.rsplit_once(':').map_or("8000", |(_, port)| port);
    let port = if port.parse::<u16>().is_ok_and(|port| port > 0) { port } else { "8000" };
    Failure::usage("--ssh does not forward the dashboard's port").with_hint(format!(
        "ssh -t -L {port}:127.0.0.1:{port} {host} rooflinectl dashboard --listen 127.0.0.1:{port}, and open the \
         address that it prints here"
    ))
}

/// What to open where ssh forwards the port, which is 127.0.0.1 there.
fn forwarded(url: &str, address: SocketAddr) -> String {
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    if address == there {
        return "the same address".to_owned();
    }
    url.replacen(&address.to_string(), &there.to_string(), 1)
}

/// Whether SIGHUP was ignored when this program began; false where the kernel does not say.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Bit n - 1 is signal n.
    mask >> (SignalKind::hangup().as_raw_value() - 1) & 1 == 1
}

fn greeting(url: &str, address: SocketAddr, control: &session::Control) -> String {
    let port = address.port();
    let mut text = format!("dashboard: {url}\n");
    text += &format!(
        "from another machine: ssh -L {port}:{address} HOST, then open {} there\n",
        forwarded(url, address)
    );
    text += &match &control.reason {
        None => "control: available; the page can switch power modes, hold them and calibrate\n".to_owned(),
        Some(reason) => format!("control: not available: {reason}\n"),
    };
    text += "whoever has the address can do what you can; it ends with this program: Ctrl-C\n";
    text
}
