//! `observe --from` and `observe --pid`: watches an unmodified inference server, takes the stretches of steady decoding that
//! mean something, and reports their medians. One file for each kind of server turns two looks into a window, or says why not.

mod command_line;
mod degraded;
mod http;
mod llama_server;
mod machine;
mod mlc;
mod owner;
mod process;
mod prometheus;
mod subject;
mod trtllm;
mod vllm;
mod window;

use rooflined_core::units::Watts;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Context;
use super::args::ObserveArgs;
use super::failure::{Exit, Failure};
use super::output::Format;
use super::server_address::Address;
use super::signals::wait_for_signal;
use super::words;
pub use command_line::{Program, Settings, program, sets};
use degraded::Degraded;
pub use http::Server;
use machine::{Conditions, Meter};
pub use owner::Owners;
pub use process::{Activity, Process, field, read, stat};
use rooflined_api::{
    BoardAnswer, EstimateAnswer, ObservationRequest, ObservationsAnswer, PredictAnswer, PredictRequest,
    StateAnswer, Workload,
};
use rooflined_client::{Client, ClientError};
use subject::Poll;
pub use subject::{Subject, SubjectOptions};
use window::{Median, Windows};
pub use window::{Skip, Window};

/// Windows that are alike before their median is reported.
const WINDOWS: usize = 3;
/// Steps of a slow server whose mean tells its rate to a tenth.
const LEAST_STEPS: u64 = 5;
/// A first look that no second one has made a window of in this time is given up.
const LONGEST_WINDOW_S: f64 = 120.0;
/// Answers in a row that cannot be read before the server is given up.
const MAX_FAILURES: u32 = 5;

/// How long and how strictly it is watched.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Medians to report; `None` = until it ends.
    pub count: Option<u64>,
    /// Between two looks.
    pub interval: Duration,
    pub limit: Option<Duration>,
    /// Time that the server may wait for a processor, over the time that it runs.
    pub max_wait_ratio: f64,
    /// Report nothing.
    pub dry_run: bool,
}

/// What became of a median.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Learned,
    /// It is not for the daemon.
    NotReported(&'static str),
    /// The daemon does not take it.
    Refused(String),
}

/// One median beside what was predicted before it was reported.
#[derive(Debug, Clone)]
pub struct Observed {
    median: Median,
    /// That computed a step; `None` on a GPU and where nobody tells.
    threads: Option<u32>,
    power_w: Option<f64>,
    predicted: Option<EstimateAnswer>,
    outcome: Outcome,
    /// Why it is slower than expected, where that begins here.
    degraded: Option<String>,
}

/// Everything that was seen of a server.
#[derive(Debug, Default)]
pub struct Summary {
    subject: Option<Value>,
    pub observed: Vec<Observed>,
    windows: Windows,
}

#[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^53")]
fn rate(batch: u64, step_s: f64) -> f64 {
    batch as f64 / step_s
}

impl Observed {
    fn tokens_per_s(&self) -> f64 {
        rate(self.median.batch, self.median.step_s)
    }

    /// Predicted rate over the measured one, less 1.
    fn error_ratio(&self) -> Option<f64> {
        self.predicted.map(|predicted| predicted.value / self.tokens_per_s() - 1.0)
    }

    /// The rate with that of the slowest and of the fastest window.
    fn measured_rate(&self) -> EstimateAnswer {
        let (fastest, slowest) = self.median.step_range_s;
        let batch = self.median.batch;
        EstimateAnswer { value: self.tokens_per_s(), low: rate(batch, slowest), high: rate(batch, fastest) }
    }

    /// One line for people.
    fn line(&self) -> String {
        let median = &self.median;
        let context =
            median.context_tokens.map_or_else(String::new, |tokens| format!(" after {tokens} tokens"));
        let threads = self.threads.map_or_else(String::new, |threads| {
            format!(" on {threads} thread{}", if threads == 1 { "" } else { "s" })
        });
        let predicted = self.predicted.zip(self.error_ratio()).map_or_else(
            || "; no prediction".to_owned(),
            |(predicted, error)| {
                format!(
                    "; predicted {} ({})",
                    words::estimate(&predicted, words::rate),
                    words::signed_percent(error)
                )
            },
        );
        let power = self.power_w.map_or_else(String::new, |watts| format!(", {}", Watts(watts)));
        let outcome = match &self.outcome {
            Outcome::Learned => "learned".to_owned(),
            Outcome::NotReported(why) => format!("not reported: {why}"),
            Outcome::Refused(why) => format!("refused: {why}"),
        };
        let degraded = self.degraded.as_ref().map_or_else(String::new, |why| format!("\ndegraded: {why}"));
        format!(
            "x{}{context}{threads}: {}, step {}{power}, {} windows, {} steps in {:.1} s{predicted}; {outcome}{degraded}",
            median.batch,
            words::estimate(&self.measured_rate(), words::rate),
            words::time(median.step_s),
            median.windows,
            median.steps,
            median.seconds,
        )
    }

    fn json(&self) -> Value {
        let (outcome, reason) = match &self.outcome {
            Outcome::Learned => ("learned", None),
            Outcome::NotReported(why) => ("not_reported", Some((*why).to_owned())),
            Outcome::Refused(why) => ("refused", Some(why.clone())),
        };
        json!({
            "batch": self.median.batch, "context_tokens": self.median.context_tokens,
            "threads": self.threads, "tokens_per_s": self.measured_rate(),
            "time_s": self.median.step_s, "windows": self.median.windows, "steps": self.median.steps,
            "duration_s": self.median.seconds, "power_w": self.power_w,
            "predicted_tokens_per_s": self.predicted, "error_ratio": self.error_ratio(),
            "outcome": outcome, "reason": reason, "degraded": self.degraded,
        })
    }
}

impl Summary {
    /// Everything, for programs.
    pub fn json(&self) -> Value {
        json!({
            "server": self.subject, "observations": self.observed.iter().map(Observed::json).collect::<Vec<_>>(),
            "windows": self.windows.taken, "skipped": self.windows.skipped,
        })
    }

    /// What was skipped and why, for people.
    pub fn skipped(&self) -> String {
        let mut text = format!("{} windows of steady decoding\n", self.windows.taken);
        for (why, count) in &self.windows.skipped {
            text += &format!("skipped {count} times: {}\n", why.reason());
        }
        text
    }

    /// Every median, a line each.
    pub fn lines(&self) -> String {
        self.observed.iter().map(|observed| observed.line() + "\n").collect()
    }
}

/// `observe --from URL` or `observe --pid N`.
pub async fn run(context: &mut Context, args: &ObserveArgs) -> Result<(), Failure> {
    let process = args.pid.map(process_of).transpose()?;
    let address = match (&args.from, &process) {
        (Some(address), _) => address.clone(),
        (None, Some(process)) => address_of(process)?,
        (None, None) => return Err(Failure::usage("neither --from nor --pid is given")),
    };
    let plan = Plan {
        count: Some(args.count).filter(|count| *count > 0),
        interval: args.watching.interval,
        limit: args.limit,
        max_wait_ratio: args.watching.max_wait,
        dry_run: args.watching.dry_run,
    };
    let has_gpu = has_gpu(&mut context.client, plan.dry_run).await?;
    let subject = &args.subject;
    let options = SubjectOptions {
        model: subject.op.model(&subject.model)?,
        format: subject.format.clone(),
        kv_format: subject.kv_format.map(|format| format.key().to_owned()),
        context_tokens: subject.op.attention.context_tokens,
        threads: subject.run.threads.map(u64::from),
        offloaded: args.offloaded,
        drain: args.drain,
        as_it_is: false,
    };
    let key = args.watching.api_key_file.as_deref();
    let owners = Owners::of(args.watching.server_user.as_deref())?;
    let server = Server::new(address, key, owners).await?;
    let subject = Subject::find(server, process, &options, has_gpu, (key, owners)).await?;
    let printer = context.printer.clone();
    if printer.format == Format::Human {
        printer.line(&subject.describe())?;
        for note in &subject.notes {
            printer.line(&format!("note: {note}"))?;
        }
    }
    let mut summary = Summary::default();
    let print = |observed: &Observed| match printer.format {
        Format::Human => printer.line(&observed.line()),
        Format::Jsonl => printer.line(&observed.json().to_string()),
        _ => Ok(()),
    };
    let watched = tokio::select! {
        watched = watch(&mut context.client, subject, plan, &mut summary, print) => watched,
        _ = wait_for_signal() => Ok(()),
    };
    match printer.format {
        Format::Human => printer.text(&summary.skipped())?,
        Format::Jsonl => {}
        _ => printer.value("observe", &summary.json())?,
    }
    watched?;
    match summary.observed.is_empty() {
        false => Ok(()),
        true => Err(Failure::try_again(
            format!("no {WINDOWS} similar windows of steady decoding were seen"),
            "keep the same number of requests generating for a minute, and watch longer",
        )),
    }
}

pub fn process_of(pid: u32) -> Result<Process, Failure> {
    if let Some(why) = process::not_a_program(pid) {
        return Err(Failure::failed(
            format!("process {pid} is {why}"),
            "give the process that computes; look for it with: pgrep -a llama-server",
        ));
    }
    Process::find(pid).ok_or_else(|| {
        Failure::failed(
            format!("process {pid} does not exist or cannot be seen"),
            "look for it with: pgrep -a llama-server",
        )
    })
}

/// A process that does not serve `port`.
///
/// # Errors
/// Another one does, and neither started the other.
pub fn refuse_other_server(process: &Process, port: u16) -> Result<(), Failure> {
    let Some(owner) = Process::listening_on(port) else { return Ok(()) };
    if owner.is_related_to(process) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "port {port} belongs to process {} ({}), not to process {} ({})",
        owner.pid,
        owner.name(),
        process.pid,
        process.name()
    ))
    .with_hint(format!("leave --pid out, or give --pid {}", owner.pid)))
}

/// Where a process listens.
pub fn address_of(process: &Process) -> Result<Address, Failure> {
    const LLAMA_SERVER_PORT: u16 = 8080;
    let port = match process.program() {
        Program::LlamaServer => Some(process.settings().port.unwrap_or(LLAMA_SERVER_PORT)),
        _ => process.ports().first().copied(),
    };
    port.map(Address::local).ok_or_else(|| match process.shows_sockets() {
        true => Failure::failed(
            format!("process {} listens on no port, so it is not a server", process.pid),
            "look for the server with: ss -ltnp; for another program give the rate that you measured: \
             rooflinectl explain MODEL --engine torch --tokens-per-s RATE --pid PID",
        ),
        false => Failure::failed(
            format!("the sockets of process {} may not be read, so its port is not known", process.pid),
            "give the port of the server, or run this as its user or with sudo",
        ),
    })
}

/// Why the model that a server runs cannot be read, before anybody watches it for nothing.
pub async fn unreadable_model(client: &mut Client, subject: &Subject) -> Result<Option<String>, Failure> {
    match predict(client, &request(subject, 1, Some(0), subject.threads(None))).await {
        Err(ClientError::Refused { body, .. })
            if body.field.as_ref().is_some_and(|field| field.starts_with("workload.model")) =>
        {
            Ok(Some(body.message))
        }
        // What else is wrong with it is for the question itself to say.
        Ok(_) | Err(ClientError::Refused { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the figures of this machine are those of a GPU.
pub async fn has_gpu(client: &mut Client, without_daemon: bool) -> Result<bool, Failure> {
    match client.get("/v1/board").await {
        Ok(answer) => {
            let board: BoardAnswer = answer.parse()?;
            Ok(board.accelerators.first().and_then(|first| first.get("kind")?.as_str()) == Some("gpu"))
        }
        Err(ClientError::Unreachable { .. }) if without_daemon => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The first look of what may become a window.
struct FirstPoll {
    look: Poll,
    conditions: Option<Conditions>,
    activity: Option<Activity>,
}

/// Watches `subject` as planned; what it saw is in `summary` also when it is cut short.
pub async fn watch(
    client: &mut Client,
    mut subject: Subject,
    plan: Plan,
    summary: &mut Summary,
    mut print: impl FnMut(&Observed) -> Result<(), Failure>,
) -> Result<(), Failure> {
    summary.subject = Some(subject.json());
    if !plan.dry_run {
        // A model that the daemon cannot read is said now and not after a minute.
        predict(client, &request(&subject, 1, Some(0), subject.threads(None))).await?;
    }
    let deadline = plan.limit.map(|limit| Instant::now() + limit);
    let mut meter = Meter::default();
    let (mut begun, mut last): (Option<FirstPoll>, Option<Poll>) = (None, None);
    let mut rest: Option<Activity> = None;
    let mut degraded = Degraded::default();
    // Of these nothing is learned, but a lasting disturbance is a fault of its own.
    let mut disturbed = Windows::default();
    let mut failures = 0;
    let mut first = true;
    loop {
        if !std::mem::take(&mut first) {
            sleep(plan.interval).await;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(());
        }
        let activity = match subject.process.as_ref().map(Process::activity).transpose() {
            Ok(activity) => activity,
            Err(_) if !summary.observed.is_empty() => return Ok(()),
            Err(gone) => return Err(gone),
        };
        // A look at a server that sleeps would wake it, and at one that may soon, keep it awake.
        if let (Some(rest), Some(now)) = (&rest, &activity)
            && !now.has_run_since(rest)
        {
            continue;
        }
        let mut look = match subject.look().await {
            Ok(look) => look,
            Err(failure) => {
                failures += 1;
                if failures == MAX_FAILURES || !matches!(failure.exit(), Exit::Failed) {
                    return if summary.observed.is_empty() { Err(failure) } else { Ok(()) };
                }
                summary.windows.skip(Skip::Unreadable);
                (begun, last) = (None, None);
                continue;
            }
        };
        failures = 0;
        rest = None;
        if look.is_idle() && begun.as_ref().is_none_or(|begun| begun.look.is_idle()) {
            summary.windows.skip(Skip::Idle);
            // After the look, which itself made the process do something.
            rest = subject.process.as_ref().and_then(|process| process.activity().ok());
            (begun, last) = (None, None);
            continue;
        }
        let conditions = conditions(client, &mut meter, subject.server.now()).await;
        let Some(begin) = &begun else {
            begun = Some(FirstPoll { look, conditions, activity });
            continue;
        };
        // Nothing may have happened between any two looks, also where the first and the last would not show it.
        let since_last = last.as_ref().map_or(Ok(()), |last| match last.window(&look) {
            Err(skip) if skip != Skip::Idle && !skip.may_still_become() => Err(skip),
            _ => Ok(()),
        });
        if let Some(last) = last.take() {
            look.follow(last);
        }
        let steady = since_last.and_then(|()| begin.look.window(&look)?.long_enough());
        let window = steady.and_then(|window| {
            let activities = begin.activity.as_ref().zip(activity.as_ref());
            activities.map_or(Ok(()), |(was, is)| is.judge(was, plan.max_wait_ratio))?;
            begin.conditions.as_ref().zip(conditions.as_ref()).map_or(Ok(()), |(was, is)| was.judge(is))?;
            if subject.has_another_file() { Err(Skip::ModelChanged) } else { Ok(window) }
        });
        let began_s = begin.look.at().at_s;
        match window {
            Err(skip) if skip.may_still_become() && look.at().at_s - began_s < LONGEST_WINDOW_S => {
                last = Some(look);
                continue;
            }
            Err(skip) => {
                summary.windows.skip(skip);
                let slowed = steady.ok().filter(|_| skip.is_slowdown() && !plan.dry_run);
                if let Some(median) = slowed.and_then(|window| disturbed.add(window, None, WINDOWS)) {
                    degraded::report(client, &subject, &median, skip).await;
                }
            }
            Ok(mut window) => {
                window.context_tokens = window.context_tokens.or(subject.context_tokens);
                let activities = activity.as_ref().zip(begin.activity.as_ref());
                window.threads =
                    activities.and_then(|(now, before)| subject.count(now, before, window.seconds));
                let power = meter.mean(began_s, look.at().at_s);
                if let Some(median) = summary.windows.add(window, power, WINDOWS) {
                    let mut observed = report(client, &subject, median, plan.dry_run).await?;
                    degraded.keep_first(&mut observed.degraded);
                    print(&observed)?;
                    summary.observed.push(observed);
                    if plan.count.is_some_and(|count| summary.observed.len() as u64 >= count) {
                        return Ok(());
                    }
                }
            }
        }
        meter.forget_before(look.at().at_s);
        begun = Some(FirstPoll { look, conditions, activity });
    }
}

/// The machine now; `None` without a daemon.
async fn conditions(client: &mut Client, meter: &mut Meter, now_s: f64) -> Option<Conditions> {
    let state: StateAnswer = client.get("/v1/state").await.ok()?.parse().ok()?;
    meter.read(&state, now_s);
    Some(Conditions::of(&state))
}

/// What the server does, as requests say it.
fn request(
    subject: &Subject,
    batch: u64,
    context_tokens: Option<u64>,
    threads: Option<u32>,
) -> PredictRequest {
    let workload = Workload {
        model: subject.model.clone(),
        format: subject.format.clone(),
        kv_format: subject.kv_format.clone(),
        phase: Some("decode".to_owned()),
        batch: Some(batch),
        context_tokens,
        threads,
        ..Workload::default()
    };
    PredictRequest { engine: subject.kind.engine(), workload, ..PredictRequest::default() }
}

async fn predict(client: &mut Client, request: &PredictRequest) -> Result<EstimateAnswer, ClientError> {
    let answer = client.post("/v1/predict", request).await?;
    Ok(answer.parse::<PredictAnswer>()?.tokens_per_s)
}

/// Puts a median beside what is predicted now, and then has it learned.
async fn report(
    client: &mut Client,
    subject: &Subject,
    median: Median,
    dry_run: bool,
) -> Result<Observed, Failure> {
    let threads = subject.threads(median.threads);
    let asked = request(subject, median.batch, median.context_tokens, threads);
    let mut observation = observation(subject, &median);
    let predicted = match median.context_tokens {
        // Of no context in particular there is no prediction.
        None => None,
        Some(_) => predict(client, &asked).await.ok(),
    };
    let power_w = median.power_w;
    let is_slow = predicted.is_some_and(|predicted| rate(median.batch, median.step_s) < predicted.low);
    if is_slow && !dry_run {
        observation.seen = degraded::look(subject).await;
    }
    let mut slow = None;
    let outcome = if dry_run {
        Outcome::NotReported("--dry-run")
    } else if median.context_tokens.is_none() {
        Outcome::NotReported("the server does not report the context; give --context-tokens")
    } else {
        match subject.server.stranger() {
            Err(()) => {
                Outcome::NotReported("nobody tells whose server it is; name its user with --server-user")
            }
            Ok(stranger) => {
                let (outcome, why) = learned(client, &observation, stranger).await?;
                slow = why;
                outcome
            }
        }
    };
    Ok(Observed { median, threads, power_w, predicted, outcome, degraded: slow })
}

/// A median as it is reported.
fn observation(subject: &Subject, median: &Median) -> ObservationRequest {
    let asked = request(subject, median.batch, median.context_tokens, subject.threads(median.threads));
    ObservationRequest {
        workload: asked.workload,
        engine: asked.engine,
        tokens_per_s: Some(rate(median.batch, median.step_s)),
        power_w: median.power_w,
        server: Some(subject.name()),
        ..ObservationRequest::default()
    }
}

/// Has it learned: of the server of another user as that user's report. Also why it is slow, where it is.
async fn learned(
    client: &mut Client,
    observation: &ObservationRequest,
    stranger: Option<u32>,
) -> Result<(Outcome, Option<String>), Failure> {
    let parameter = stranger.map_or_else(String::new, |uid| format!("?server_user={uid}"));
    let answer = match client.post(&format!("/v1/observations{parameter}"), observation).await {
        Ok(answer) => answer.parse::<ObservationsAnswer>()?,
        Err(ClientError::Refused { body, .. }) => return Ok((Outcome::Refused(body.message), None)),
        Err(error) => return Err(error.into()),
    };
    let outcome = match answer.refused.first() {
        None => Outcome::Learned,
        Some(refused) => Outcome::Refused(refused.reason.clone()),
    };
    Ok((outcome, answer.slow.into_iter().next().map(|slow| slow.reason)))
}

/// Windows of steady decoding, in the order in which they were seen, and why others were none.
#[derive(Debug, Default)]
pub struct Steady {
    pub windows: Vec<Window>,
    pub skipped: Vec<Skip>,
}

/// Windows of steady decoding seen in `limit`, until there are `enough`, or at the end the short one of a slow server. The process
/// need not have had the processors to itself, and tokens may be drafted.
pub async fn windows(
    subject: &mut Subject,
    (interval, limit): (Duration, Duration),
    enough: usize,
) -> Result<Steady, Failure> {
    let deadline = Instant::now() + limit;
    let mut found = Steady::default();
    let mut short = None;
    let mut begun: Option<Poll> = None;
    while found.windows.len() < enough && Instant::now() < deadline {
        let look = subject.look().await?;
        match begun.as_ref().map(|begun| begun.window_with_drafts(&look)) {
            Some(Err(skip)) if skip.may_still_become() => {}
            Some(Ok(window)) => match window.long_enough() {
                Ok(window) => {
                    found.windows.push(window);
                    begun = Some(look);
                }
                Err(_) => short = Some(window).filter(|window| window.steps >= LEAST_STEPS),
            },
            other => {
                found.skipped.extend(other.and_then(Result::err));
                begun = Some(look);
            }
        }
        sleep(interval).await;
    }
    if found.windows.is_empty() {
        found.windows.extend(short);
    }
    for window in &mut found.windows {
        window.context_tokens = window.context_tokens.or(subject.context_tokens);
    }
    Ok(found)
}
