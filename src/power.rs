//! Connection to the privileged helper: orders go there one after another, and its answers come back as events.
//!
//! The connection is what a provisional mode hangs on: as long as one is not settled it stays open, and when the daemon
//! ends or dies the helper sees it close and goes back, or waits for the next one where holds are to go on. Under systemd the helper is behind its socket; for a tree other
//! than `/`, and for a root that runs the daemon by hand, it is a child with a socket as its standard input.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::calibrate::NOT_FOR_THE_CHILD;
use rooflined_core::board::{JournalEntry, Order, OrderAnswer, OrderFailure};
use rooflined_governor::Event;

/// Where systemd listens for the helper.
const SOCKET: &str = "/run/rooflined-actuate/actuate.sock";
/// Orders that may wait.
const ORDERS: usize = 16;
/// Longest answer: every file of a mode may differ.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// The helper runs its tool up to twice, with a limit of its own each time, after it has waited for one before it.
const ANSWER_TIME: Duration = Duration::from_secs(90);
/// With nothing unsettled the connection is closed after this long, so that the helper can end.
const LINGER: Duration = Duration::from_secs(20);

/// Where the helper listens, and how it is started where nobody else does.
#[derive(Debug, Clone)]
pub struct Way {
    pub program: PathBuf,
    /// Where /sys and /etc are.
    pub root: PathBuf,
    /// Where the daemon keeps things.
    pub state_dir: PathBuf,
    /// Socket of the helper, if not the usual one.
    pub socket: Option<PathBuf>,
    /// The configuration that was asked for.
    pub config: Option<PathBuf>,
}

/// The queue of orders. Dropping it closes the connection.
#[derive(Debug)]
pub struct Power {
    orders: mpsc::Sender<(u64, Order)>,
    worker: JoinHandle<()>,
}

impl Power {
    /// Gets ready. With `look` the helper is asked at once, so that it sees to what an earlier boot left unsettled.
    #[must_use]
    pub fn start(way: Way, events: mpsc::Sender<Event>, look: bool) -> Self {
        let (orders, queue) = mpsc::channel(ORDERS);
        let worker = Worker { way, events, line: None, unsettled: None, keeps: false, problem: None };
        Self { orders, worker: tokio::spawn(worker.run(queue, look)) }
    }

    /// Puts an order in the queue; the event that it comes to at once if that is full.
    pub fn order(&self, order: u64, what: Order) -> Option<Event> {
        self.orders
            .try_send((order, what))
            .err()
            .map(|_| failed(order, OrderFailure::with_hint("too many orders wait", "try again later")))
    }

    /// Closes the connection, which undoes what is unsettled, and waits for that. The caller limits the time.
    pub async fn end(self) {
        drop(self.orders);
        // It only fails if it panicked.
        let _ = self.worker.await;
    }
}

/// An order that came to nothing.
fn failed(order: u64, failure: OrderFailure) -> Event {
    Event::OrderAnswered { order, answer: Box::new(OrderAnswer::Failed(failure)) }
}

struct Worker {
    way: Way,
    events: mpsc::Sender<Event>,
    line: Option<Line>,
    /// What the helper has journalled, by its last answer.
    unsettled: Option<JournalEntry>,
    /// The mode in force is to be kept for the next daemon.
    keeps: bool,
    /// What was reported last; the outer `None`: nothing yet.
    problem: Option<Option<OrderFailure>>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::Receiver<(u64, Order)>, look: bool) {
        if look {
            // What is wrong has been reported.
            let _ = self.connect().await;
        }
        loop {
            let idle = self.line.is_some() && self.unsettled.is_none();
            let next = tokio::select! {
                next = queue.recv() => next,
                () = closed(self.line.as_mut()) => {
                    self.lost("it closed the connection").await;
                    continue;
                }
                () = tokio::time::sleep(LINGER), if idle => {
                    self.hang_up().await;
                    continue;
                }
            };
            let Some((order, what)) = next else { break };
            let event = match self.carry_out(what).await {
                Ok(answer) => Event::OrderAnswered { order, answer: Box::new(answer) },
                Err(failure) => failed(order, failure),
            };
            self.tell(event).await;
        }
        self.hang_up().await;
    }

    /// One order and its answer.
    async fn carry_out(&mut self, what: Order) -> Result<OrderAnswer, OrderFailure> {
        self.connect().await?;
        let changes = !matches!(what, Order::Status | Order::SetMode { dry_run: true, .. });
        let keeps = match &what {
            Order::SetMode { dry_run: false, keep, .. } => Some(keep.is_some()),
            Order::Settle | Order::Restore => Some(false),
            Order::SetMode { .. } | Order::Status => None,
        };
        let answer = match self.ask(what).await {
            Ok(answer) => {
                self.keeps = keeps.unwrap_or(self.keeps);
                answer
            }
            Err(problem) => {
                self.lost(&problem.to_string()).await;
                return Err(OrderFailure::with_hint(
                    format!(
                        "the privileged helper was lost ({problem}), and undoes or keeps what it was doing"
                    ),
                    "look at the active mode",
                ));
            }
        };
        // What is journalled decides whether the connection has to stay.
        if changes && let Err(problem) = self.look().await {
            self.lost(&problem.to_string()).await;
        }
        Ok(answer)
    }

    /// Sees to a connection.
    async fn connect(&mut self) -> Result<(), OrderFailure> {
        if self.line.is_some() {
            return Ok(());
        }
        let opened = match Line::open(&self.way).await {
            Ok(line) => {
                self.line = Some(line);
                self.look().await
            }
            Err(problem) => Err(problem),
        };
        if opened.is_err() {
            self.line = None;
        }
        self.is_reached(opened.clone().err()).await;
        opened
    }

    /// Asks for the journal.
    async fn look(&mut self) -> Result<(), OrderFailure> {
        match self.ask(Order::Status).await? {
            OrderAnswer::Status { journal, recovered, .. } => {
                if let Some(recovered) = recovered.filter(|_| self.line.as_mut().is_some_and(Line::is_new)) {
                    tracing::warn!("the privileged helper found a switch that was not settled; {recovered}");
                }
                self.unsettled = journal;
                Ok(())
            }
            OrderAnswer::Failed(failure) => Err(failure),
            OrderAnswer::Switched { .. } | OrderAnswer::Settled => {
                Err("it gave an answer of the wrong kind".into())
            }
        }
    }

    async fn ask(&mut self, what: Order) -> Result<OrderAnswer, OrderFailure> {
        let Some(line) = &mut self.line else { return Err("there is no connection".into()) };
        let answer = timeout(ANSWER_TIME, line.ask(&what)).await;
        answer.unwrap_or_else(|_| Err(format!("it did not answer within {} s", ANSWER_TIME.as_secs()).into()))
    }

    /// The connection is gone. If something hung on it the helper is asked at once what became of that.
    async fn lost(&mut self, why: &str) {
        let depended = self.unsettled.take();
        self.hang_up().await;
        if let Some(entry) = depended {
            let (target, original) = (&entry.target.name, &entry.original.name);
            tracing::warn!(
                mode = target,
                original,
                "the privileged helper was lost with a mode that is not settled: {why}"
            );
            // Else nobody would ask what became of the mode.
            let message = format!("the privileged helper was lost: {why}");
            self.is_reached(Some(OrderFailure::with_hint(message, "it is started again by itself"))).await;
            // What is wrong with it has been reported.
            let _ = self.connect().await;
        }
    }

    /// Closes the connection and waits for a child to end by itself: it may be restoring. One that keeps a mode for the next
    /// daemon outlives this one.
    async fn hang_up(&mut self) {
        let stays = self.unsettled.take().is_some() && self.keeps;
        if let Some(Line { reader, writer, child, .. }) = self.line.take() {
            drop((reader, writer));
            if let Some(mut child) = child.filter(|_| !stays)
                && timeout(ANSWER_TIME, child.wait()).await.is_err()
            {
                tracing::warn!("the privileged helper does not end");
            }
        }
    }

    async fn is_reached(&mut self, problem: Option<OrderFailure>) {
        if self.problem.as_ref() != Some(&problem) {
            self.problem = Some(problem.clone());
            self.tell(Event::Actuator { problem }).await;
        }
    }

    async fn tell(&self, event: Event) {
        // Only the end of the daemon closes the queue.
        let _ = self.events.send(event).await;
    }
}

/// Resolves when the other end closes; never without a connection.
async fn closed(line: Option<&mut Line>) {
    match line {
        // Nothing is said unasked: whatever comes is the end, or leads to it.
        Some(line) => drop(line.reader.fill_buf().await),
        None => std::future::pending().await,
    }
}

/// A connection to the helper.
struct Line {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    child: Option<Child>,
    asked: u64,
}

impl Line {
    async fn open(way: &Way) -> Result<Self, OrderFailure> {
        let socket = way.socket.as_deref().unwrap_or(Path::new(SOCKET));
        let by_hand = way.root != Path::new("/") || (geteuid().is_root() && !socket.exists());
        let (stream, child) = if way.socket.is_none() && by_hand {
            spawn(way).map_err(|error| {
                let message = format!("the privileged helper does not start: {error}");
                OrderFailure::with_hint(message, "check that it is executable")
            })?
        } else {
            let stream = UnixStream::connect(socket).await.map_err(|error| {
                let message =
                    format!("the privileged helper cannot be reached at {} ({error})", socket.display());
                OrderFailure::with_hint(message, "start rooflined-actuate.socket")
            })?;
            (stream, None)
        };
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: BufReader::new(reader), writer, child, asked: 0 })
    }

    /// True while no more than one question has been asked.
    const fn is_new(&mut self) -> bool {
        self.asked == 1
    }

    async fn ask(&mut self, what: &Order) -> Result<OrderAnswer, OrderFailure> {
        self.asked += 1;
        let mut value =
            serde_json::to_value(what).map_err(|error| format!("the order has no JSON form: {error}"))?;
        if let Value::Object(fields) = &mut value {
            fields.insert("order".into(), self.asked.into());
        }
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        self.writer.write_all(&line).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        (&mut self.reader)
            .take(MAX_ANSWER_BYTES)
            .read_until(b'\n', &mut answer)
            .await
            .map_err(|error| error.to_string())?;
        if answer.is_empty() {
            return Err("it closed the connection".into());
        }
        let mut answer: Value =
            serde_json::from_slice(&answer).map_err(|error| format!("it gave no answer: {error}"))?;
        let number = answer.as_object_mut().and_then(|fields| fields.remove("order"));
        let answer = serde_json::from_value(answer).map_err(|error| format!("it gave no answer: {error}"))?;
        match (number.as_ref().and_then(Value::as_u64), answer) {
            (Some(number), answer) if number == self.asked => Ok(answer),
            // What is said to nobody in particular is why it will not listen.
            (_, OrderAnswer::Failed(failure)) => Err(failure),
            _ => Err("it answered another order".into()),
        }
    }
}

/// Starts the helper as a child.
fn spawn(way: &Way) -> io::Result<(UnixStream, Option<Child>)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(&way.program);
    command.arg("actuate").arg("--stdio").arg("--root").arg(&way.root);
    // The machine has one journal for every helper; a tree has one for each daemon.
    if way.root != Path::new("/") {
        command.arg("--state-dir").arg(way.state_dir.join("actuate"));
    }
    if let Some(config) = &way.config {
        command.arg("--config").arg(config);
    }
    for name in NOT_FOR_THE_CHILD {
        command.env_remove(name);
    }
    command.env_remove("STATE_DIRECTORY");
    // Its own group: Ctrl-C at a terminal is for the daemon, and a switch is finished whatever becomes of that.
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
    let child = command.spawn()?;
    Ok((UnixStream::from_std(ours)?, Some(child)))
}
