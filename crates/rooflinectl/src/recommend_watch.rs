//! `recommend --watch`: the answer, then one line whenever the machine has altered it, until interrupted. A daemon that
//! goes away is waited for; what changed meanwhile is reported when it is back.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::failure::{Exit, Failure};
use super::options::name_options;
use super::output::Format;
use super::signals::wait_for_signal;
use super::{Context, recommendation, words};
use rooflined_advice::stale::{altered, chosen};
use rooflined_api::{AdviceStale, RecommendAnswer, RecommendRequest};
use rooflined_client::{ClientError, Event, Events};

/// Before the daemon is looked for again; it doubles with each attempt.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

pub async fn run(context: &mut Context, request: &RecommendRequest) -> Result<Exit, Failure> {
    if request.hardware.is_some() {
        return Err(Failure::usage(
            "--watch follows a machine, and the data sheet behind --hardware never changes",
        )
        .with_hint("leave out --watch to ask once, or --hardware to follow the daemon's machine"));
    }
    tokio::select! {
        ended = follow(context, request) => ended.map(|never| match never {}),
        _ = wait_for_signal() => Ok(Exit::Ok),
    }
}

async fn follow(context: &mut Context, request: &RecommendRequest) -> Result<Infallible, Failure> {
    let mut events = context.client.watch(request).await?;
    let mut previous = None;
    loop {
        read(context, request, &mut events, &mut previous).await?;
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(
            std::io::stderr().lock(),
            "rooflinectl: the daemon has ended the stream; waiting for it to come back"
        );
        events = resubscribe(context, request).await?;
    }
}

/// Subscribes again as soon as a daemon answers.
async fn resubscribe(context: &mut Context, request: &RecommendRequest) -> Result<Events, Failure> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
        match context.client.watch(request).await {
            Ok(events) => return Ok(events),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// It may be otherwise in a moment.
const fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Broken(_) | ClientError::TimedOut { .. } => true,
        ClientError::Refused { status, .. } => *status == 503,
        _ => false,
    }
}

/// Prints what a stream brings to its end. `previous` is the answer printed last.
async fn read(
    context: &Context,
    request: &RecommendRequest,
    events: &mut Events,
    previous: &mut Option<RecommendAnswer>,
) -> Result<(), Failure> {
    let mut stale: Option<AdviceStale> = None;
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) | Err(ClientError::Broken(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match event.name.as_str() {
            "advice_stale" => {
                let why: AdviceStale = parse_event(&event)?;
                if why.error.is_some() {
                    // No answer follows.
                    print_change(context, &why, None)?;
                } else {
                    stale = Some(why);
                }
            }
            "recommend" => {
                let answer: RecommendAnswer = parse_event(&event)?;
                match (stale.take(), previous.as_ref()) {
                    (Some(why), _) => print_change(context, &why, Some(&answer))?,
                    (None, None) => print_first(context, request, &answer)?,
                    (None, Some(before)) => match while_away(before, &answer) {
                        Some(why) => print_change(context, &why, Some(&answer))?,
                        None => continue,
                    },
                }
                *previous = Some(answer);
            }
            _ => {}
        }
    }
}

fn parse_event<T: serde::de::DeserializeOwned>(event: &Event) -> Result<T, ClientError> {
    serde_json::from_str(&event.data).map_err(|source| ClientError::Unexpected { source })
}

/// What altered while no daemon was there; `None` where the answer printed last still holds.
fn while_away(before: &RecommendAnswer, now: &RecommendAnswer) -> Option<AdviceStale> {
    let altered = altered(before, now)?;
    Some(AdviceStale {
        reason: format!("while the daemon was away: {}", altered.reason),
        causes: vec!["other".to_owned()],
        changes: altered.changes,
        error: None,
        was_serial: before.serial,
        serial: now.serial,
    })
}

fn print_first(
    context: &Context,
    request: &RecommendRequest,
    answer: &RecommendAnswer,
) -> Result<(), Failure> {
    match context.printer.format {
        Format::Human => context.printer.text(&recommendation::render(answer, request)),
        _ => print_json(context, &json!({ "event": "recommend", "data": answer })),
    }
}

fn print_change(
    context: &Context,
    why: &AdviceStale,
    answer: Option<&RecommendAnswer>,
) -> Result<(), Failure> {
    match context.printer.format {
        Format::Human => {
            let now = answer.map(|answer| format!("; now {}", in_short(answer))).unwrap_or_default();
            context.printer.line(&format!("{}{now}", name_options(&why.reason)))
        }
        _ => print_json(context, &json!({ "event": "advice_stale", "data": why, "recommend": answer })),
    }
}

fn print_json(context: &Context, value: &Value) -> Result<(), Failure> {
    context.printer.json(value.to_string().as_bytes())
}

/// `int8, batch 4, 15W: 1.2 ms (1.1 to 1.3 ms), 3200 /s`.
fn in_short(answer: &RecommendAnswer) -> String {
    let Some(choice) = &answer.decision else { return "nothing meets the constraints".to_owned() };
    let prediction = &choice.prediction;
    let power = prediction.power_w.as_ref();
    let power = power.map_or_else(String::new, |power| format!(", {}", words::power(power)));
    format!(
        "{}: {}, {}{power}",
        chosen(choice),
        words::estimate(&prediction.time_s, words::time),
        words::rate(prediction.tokens_per_s.value)
    )
}
