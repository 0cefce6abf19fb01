//! Power modes and holds: wire → [`ControlRequest`], [`Reply`] and [`Snapshot`] → wire.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::shares::{User, run_blocking};
use super::{Control, clock};
use rooflined_advice::Catalogue;
use rooflined_advice::parse::parse;
use rooflined_api::{
    ConfirmAnswer, ConfirmRequest, DoneAnswer, HeldAnswer, HoldAdvice, HoldAnswer, HoldRequest, HoldsAnswer,
    ModeRequest, PendingAnswer, RecommendRequest, RenewRequest, RevertRequest, SwitchAnswer,
    SwitchDifference, SwitchWrite,
};
use rooflined_core::board::{Difference, SwitchOutcome, SwitchReport};
use rooflined_core::refusal::{Code, Refusal, Refusals};
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Hertz, Seconds, Watts};
use rooflined_governor::{Client, Command, ControlRequest, Now, Reply};
use rooflined_predict::optimize::Query;
use rooflined_predict::snapshot::{Advice, Automatic, Hold, HoldQuery, Snapshot};

/// Longest name or reason that a client may give.
const MAX_WORDS: usize = 128;
/// Longest query that is shown whole, in bytes of JSON.
const MAX_SHOWN: usize = 2048;
/// Longest time to live of a hold: a week.
const MAX_TTL_S: f64 = 604_800.0;
/// Longest time to confirm a switch.
const MAX_CONFIRM_S: f64 = 3600.0;

/// A reply as its route's answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum ControlAnswer {
    /// What came of a switch.
    Switched(SwitchAnswer),
    Held(HeldAnswer),
    Done(DoneAnswer),
}

/// Hands a request to the daemon and waits for what comes of it.
///
/// # Errors
/// Whatever it was refused with; a switch that was not applied is an error unless it was a question.
pub async fn ask(
    control: &Control,
    now: impl Fn() -> Now,
    client: Client,
    request: ControlRequest,
) -> Result<ControlAnswer, Refusal> {
    let dry_run = matches!(request, ControlRequest::SetMode { dry_run: true, .. });
    let reply = control.ask(Command::Control { client, request }).await;
    match reply {
        Some(Reply::Switched { report, confirm }) => {
            switched(now(), *report, confirm, dry_run).map(ControlAnswer::Switched)
        }
        Some(Reply::Held { cookie, mode, expires_at, satisfied, advice }) => {
            let expires_in_s = expires_at.map(|at| left(at, now()));
            let advice = advice.as_ref().map(advice_answer);
            Ok(ControlAnswer::Held(HeldAnswer { id: cookie, mode, satisfied, advice, expires_in_s }))
        }
        Some(Reply::Done) => Ok(ControlAnswer::Done(DoneAnswer { done: true })),
        Some(Reply::Refused(refusal)) => Err(refusal),
        Some(_) => Err(Code::Internal.error("the daemon gave an unexpected answer", "report this")),
        None => Err(Code::ShuttingDown.error("the daemon is shutting down", "try again in a second")),
    }
}

fn switched(
    now: Now,
    report: SwitchReport,
    confirm: Option<(u64, Seconds)>,
    dry_run: bool,
) -> Result<SwitchAnswer, Refusal> {
    let outcome = report.outcome.key();
    let code = match report.outcome {
        SwitchOutcome::Applied => None,
        SwitchOutcome::RebootRequired => Some(Code::RebootRequired),
        SwitchOutcome::Refused => Some(Code::Refused),
        SwitchOutcome::NotApplied => Some(Code::NotReached),
    };
    if let Some(code) = code.filter(|_| !dry_run) {
        return Err(report.refusal(code));
    }
    let message = report.words();
    let name = |mode: rooflined_core::board::ActiveMode| mode.name;
    Ok(SwitchAnswer {
        outcome: outcome.to_owned(),
        asked: report.asked.name,
        before: report.before.map(name),
        reached: report.reached.mode.map(name),
        message,
        dry_run,
        writes: report.writes.into_iter().map(|(path, value)| SwitchWrite { path, value }).collect(),
        differences: report
            .reached
            .differences
            .into_iter()
            .map(|Difference { path, expected, found }| SwitchDifference { path, expected, found })
            .collect(),
        took_s: report.took.get(),
        confirm: confirm.map(|(id, deadline)| ConfirmAnswer { id, within_s: left(deadline, now) }),
    })
}

fn left(deadline: Seconds, now: Now) -> f64 {
    (deadline - now.boottime).max(Seconds::ZERO).get()
}

/// `GET /v1/holds`. Nobody is shown what releases another's hold.
#[must_use]
pub fn holds(snapshot: &Snapshot, now: Now) -> HoldsAnswer {
    let power = &snapshot.power;
    HoldsAnswer {
        active_mode: snapshot.state.power_mode.known().map(|mode| mode.name.clone()),
        cause: power.cause.key().to_owned(),
        switching: power.switching.clone(),
        pending: power.pending.as_ref().map(|pending| PendingAnswer {
            id: pending.id,
            mode: pending.mode.clone(),
            original: pending.original.clone(),
            within_s: left(pending.deadline, now),
        }),
        holds: power.holds.iter().map(|hold| hold_answer(hold, now)).collect(),
        control_enabled: snapshot.control_enabled,
        auto: power.auto.key().to_owned(),
        unavailable: power.unavailable.clone(),
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    }
}

fn hold_answer(hold: &Hold, now: Now) -> HoldAnswer {
    HoldAnswer {
        app_id: hold.app_id.clone(),
        reason: hold.reason.clone(),
        uid: hold.uid,
        constraints: hold.constraints.clone(),
        query: hold.query.as_ref().map(|query| Value::clone(&query.shown)),
        attached: hold.attached,
        satisfied: hold.satisfied,
        unmet: hold.unmet.clone(),
        advice: hold.advice.as_ref().map(advice_answer),
        age_s: (now.boottime - hold.since).max(Seconds::ZERO).get(),
        expires_in_s: hold.expires_at.map(|at| left(at, now)),
        waiting_s: hold.waits_until.map(|at| left(at, now)),
    }
}

fn advice_answer(advice: &Advice) -> HoldAdvice {
    HoldAdvice {
        mode: advice.mode.clone(),
        tokens_per_s: advice.tokens_per_s,
        power_w: advice.power.map(Watts::get),
        energy_j_per_token: advice.energy_j_per_token,
        saving_ratio: advice.saving_ratio,
    }
}

/// `POST /v1/mode`.
///
/// # Errors
/// A body that is not this request.
pub fn set_mode(body: &[u8]) -> Result<ControlRequest, Refusal> {
    let ModeRequest { mode, confirm_within_s, dry_run, reason } = parse(body)?;
    let mut refusals = Refusals::default();
    refusals.check(words("mode", &mode, 1));
    refusals.check(words("reason", &reason, 0));
    let confirm_within =
        confirm_within_s.and_then(|s| refusals.check(seconds("confirm_within_s", s, MAX_CONFIRM_S)));
    refusals.finish()?;
    Ok(ControlRequest::SetMode { mode, confirm_within, dry_run, reason })
}

/// `POST /v1/mode/confirm`.
///
/// # Errors
/// A body that is not this request.
pub fn confirm(body: &[u8]) -> Result<ControlRequest, Refusal> {
    let ConfirmRequest { id } = parse(body)?;
    Ok(ControlRequest::Confirm { id })
}

/// `POST /v1/mode/revert`; the body may be left out.
///
/// # Errors
/// A body that is not this request.
pub fn revert(body: &[u8]) -> Result<ControlRequest, Refusal> {
    let RevertRequest { id } = if body.is_empty() { RevertRequest::default() } else { parse(body)? };
    Ok(ControlRequest::Revert { id })
}

/// `POST /v1/holds` and `POST /v1/holds/attached`. A query is read beside the event loop.
///
/// # Errors
/// Terms that cannot be, a query that cannot be asked, or a machine without random numbers.
pub async fn hold(
    control: &Control,
    snapshot: &Arc<Snapshot>,
    user: User,
    (hold, attached): (HoldRequest, bool),
) -> Result<ControlRequest, Refusal> {
    let (mut hold, query) = read_hold(hold, attached, clock::now())?;
    let Some(query) = query else { return Ok(ControlRequest::Hold(hold)) };
    if snapshot.power.auto == Automatic::Off {
        return Err(Code::AutoOff.at(
            "query",
            "auto below [policy] is \"off\", so nothing would act on a query",
            "hold with constraints, or have the administrator set auto = \"switch\" or \"advise\" and reload",
        ));
    }
    let (catalogue, snapshot) = (Arc::clone(&control.catalogue), Arc::clone(snapshot));
    let turn = control.work.large(user).await?;
    hold.query = Some(run_blocking(turn, move |_| hold_query(&snapshot, &catalogue, &query)).await.1?);
    Ok(ControlRequest::Hold(hold))
}

/// The query of a hold, with the files that it names.
///
/// # Errors
/// It cannot be answered.
pub fn hold_query(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    query: &RecommendRequest,
) -> Result<HoldQuery, Refusal> {
    Ok(HoldQuery {
        query: Arc::new(checked_query(snapshot, catalogue, query)?),
        shown: Arc::new(shown_query(query)),
        request: Arc::new(json!(query)),
    })
}

/// The query of a hold that an earlier daemon stored.
///
/// # Errors
/// It cannot be answered any more.
pub fn stored_hold_query(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &Value,
) -> Result<HoldQuery, Refusal> {
    let query: RecommendRequest = parse(request.to_string().as_bytes())?;
    hold_query(snapshot, catalogue, &query)
}

fn checked_query(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    query: &RecommendRequest,
) -> Result<Query, Refusal> {
    rooflined_advice::hold_query(snapshot, catalogue, query)
        .map_err(|error| error.rename_fields(|field| format!("query.{field}")))
}

/// A query as everybody may see it, in bounded length.
fn shown_query(query: &RecommendRequest) -> Value {
    let mut shown = json!(query);
    if let Some(model) = shown.pointer_mut("/workload/model") {
        *model = rooflined_advice::without_definition(model);
    }
    let fields = |model: &Value| model.is_object() && model.get("path").is_none();
    if shown.pointer("/workload/model").is_some_and(fields) {
        shown["workload"]["model"] = json!({});
    }
    if shown.to_string().len() > MAX_SHOWN {
        shown = json!({ "objective": shown["objective"], "constraints": shown["constraints"] });
    }
    shown
}

/// A hold without its query, and the query.
fn read_hold(
    hold: HoldRequest,
    attached: bool,
    now: Now,
) -> Result<(Box<Hold>, Option<RecommendRequest>), Refusal> {
    let HoldRequest { constraints, query, app_id, reason, ttl_s } = hold;
    let mut refusals = Refusals::default();
    refusals.check(words("app_id", &app_id, 1));
    refusals.check(words("reason", &reason, 0));
    let ttl = ttl_s.and_then(|s| refusals.check(seconds("ttl_s", s, MAX_TTL_S)));
    if ttl_s.is_none() && !attached {
        refusals.add(Code::MissingField.at(
            "ttl_s",
            "a hold that is not attached to its connection needs an end of its own",
            "add ttl_s and renew it with PUT, or hold with POST /v1/holds/attached",
        ));
    }
    for (field, name) in
        [("constraints.mode", &constraints.mode), ("constraints.min_mode", &constraints.min_mode)]
    {
        name.as_ref().and_then(|name| refusals.check(words(field, name, 1)));
    }
    let numbers = [
        ("max_power_w", constraints.max_power.map(Watts::get)),
        ("min_gpu_hz", constraints.min_gpu_clock.map(Hertz::get)),
        ("min_bandwidth_bytes_per_s", constraints.min_bandwidth.map(BytesPerSecond::get)),
        ("min_compute_flops_per_s", constraints.min_compute.map(FlopsPerSecond::get)),
    ];
    for (field, value) in numbers {
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
            refusals.add(Code::InvalidField.at(
                format!("constraints.{field}"),
                format!("constraints.{field} is {value}"),
                "give a number above zero",
            ));
        }
    }
    refusals.finish()?;
    let hold = Hold {
        cookie: cookie()?,
        constraints,
        query: None,
        app_id,
        reason,
        // The governor knows the client.
        uid: 0,
        connection: 0,
        expires_at: ttl.map(|ttl| now.boottime + ttl),
        attached,
        since: now.boottime,
        waits_until: None,
        satisfied: true,
        unmet: None,
        advice: None,
    };
    Ok((Box::new(hold), query))
}

/// `PUT /v1/holds/{id}`.
///
/// # Errors
/// A path or body that is not this request.
pub fn renew(argument: Option<&str>, body: &[u8]) -> Result<ControlRequest, Refusal> {
    let cookie = cookie_of(argument)?;
    let RenewRequest { ttl_s } = parse(body)?;
    Ok(ControlRequest::Renew { cookie, ttl: seconds("ttl_s", ttl_s, MAX_TTL_S)? })
}

/// `DELETE /v1/holds/{id}`.
///
/// # Errors
/// A path that names no hold.
pub fn release(argument: Option<&str>) -> Result<ControlRequest, Refusal> {
    cookie_of(argument).map(|cookie| ControlRequest::Release { cookie })
}

fn cookie_of(argument: Option<&str>) -> Result<u64, Refusal> {
    argument.and_then(|argument| argument.parse().ok()).ok_or_else(|| {
        Code::UnknownHold.error("the path names no hold", "use the id that POST /v1/holds answered")
    })
}

/// 53 random bits: every program that reads JSON reads them whole, and nobody guesses them.
fn cookie() -> Result<u64, Refusal> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(8) => Ok((u64::from_ne_bytes(bytes) >> 11).max(1)),
        _ => Err(Code::Internal.error("the kernel gives no random numbers", "try again in a second")),
    }
}

fn words(field: &str, text: &str, least: usize) -> Result<(), Refusal> {
    let length = text.chars().count();
    if length < least || length > MAX_WORDS || text.chars().any(char::is_control) {
        let found = if length > MAX_WORDS {
            format!("{length} characters long")
        } else {
            "empty or not printable".into()
        };
        return Err(Code::InvalidField.at(
            field,
            format!("{field} is {found}"),
            format!("give {least} to {MAX_WORDS} printable characters"),
        ));
    }
    Ok(())
}

fn seconds(field: &str, value: f64, most: f64) -> Result<Seconds, Refusal> {
    if (1.0..=most).contains(&value) {
        return Ok(Seconds(value));
    }
    Err(Code::InvalidField.at(
        field,
        format!("{field} is {value}"),
        format!("give a number of seconds from 1 to {most}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_fit_into_a_json_number_and_do_not_repeat() {
        let cookies: std::collections::BTreeSet<u64> = (0..100).map(|_| cookie().unwrap()).collect();
        assert_eq!(cookies.len(), 100);
        assert!(cookies.iter().all(|cookie| *cookie < 1 << 53), "{cookies:?}");
        assert!(cookies.iter().any(|cookie| *cookie > 1 << 48), "all bits are used");
    }

    #[test]
    fn requests_that_make_no_sense_are_refused_by_field() {
        let long = "x".repeat(129);
        let hold_with = |body: String| {
            parse(body.as_bytes()).and_then(|hold| read_hold(hold, false, clock::now())).unwrap_err()
        };
        let cases = [
            (set_mode(br#"{"mode":""}"#).unwrap_err(), "invalid_field", "mode"),
            (set_mode(br#"{}"#).unwrap_err(), "missing_field", "mode"),
            (
                set_mode(br#"{"mode":"15W","confirm_within_s":0}"#).unwrap_err(),
                "invalid_field",
                "confirm_within_s",
            ),
            (
                set_mode(br#"{"mode":"15W","confirm_within_s":1e300}"#).unwrap_err(),
                "invalid_field",
                "confirm_within_s",
            ),
            (set_mode(br#"{"mode":"15W","reason":"a\nb"}"#).unwrap_err(), "invalid_field", "reason"),
            (set_mode(br#"{"mode":"15W","force":true}"#).unwrap_err(), "unknown_field", "force"),
            (confirm(br#"{"id":-1}"#).unwrap_err(), "invalid_field", "id"),
            (hold_with(r#"{"constraints":{},"app_id":"a"}"#.into()), "missing_field", "ttl_s"),
            (
                hold_with(format!(r#"{{"constraints":{{}},"app_id":"{long}","ttl_s":5}}"#)),
                "invalid_field",
                "app_id",
            ),
            (hold_with(r#"{"constraints":{},"app_id":"","ttl_s":5}"#.into()), "invalid_field", "app_id"),
            (
                hold_with(r#"{"constraints":{"max_power_w":-5},"app_id":"a","ttl_s":5}"#.into()),
                "invalid_field",
                "constraints.max_power_w",
            ),
            (
                hold_with(r#"{"constraints":{"watts":5},"app_id":"a","ttl_s":5}"#.into()),
                "unknown_field",
                "constraints.watts",
            ),
            (hold_with(r#"{"constraints":{},"app_id":"a","ttl_s":1e9}"#.into()), "invalid_field", "ttl_s"),
        ];
        for (error, code, field) in cases {
            assert_eq!((error.code.key(), error.field.as_deref()), (code, Some(field)), "{error:?}");
            assert!(!error.hint.is_empty());
        }
        for path in [None, Some(""), Some("x"), Some("-1"), Some("99999999999999999999999")] {
            assert_eq!(release(path).unwrap_err().code, Code::UnknownHold);
        }
    }
}
