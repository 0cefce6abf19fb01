//! `mode get|set|confirm|revert` and `holds`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::args::ModeSetArgs;
use super::failure::{Exit, Failure};
use super::output::Format;
use super::table::Table;
use super::words;
use roofline::units::{BytesPerSecond, Hertz, Watts};
use wire::{
    ConfirmRequest, ConstraintsOfHold, HoldAnswer, HoldsAnswer, ModeRequest, ModesAnswer, RevertRequest,
    SwitchAnswer,
};

pub async fn get(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/holds").await?;
    context.printer.answer("mode", &answer, || Ok(active(&answer.parse()?)))
}

fn active(answer: &HoldsAnswer) -> String {
    let mut text = match &answer.active_mode {
        Some(mode) => format!("{mode} ({})\n", why(&answer.cause)),
        None if answer.cause == "external" => {
            "the caps in force are those of no power mode: somebody else changed them\n".to_owned()
        }
        None => "nothing tells the power mode of this machine\n".to_owned(),
    };
    if answer.simulated {
        text += "simulated: no value describes hardware\n";
    }
    if let Some(target) = &answer.switching {
        text += &format!("a switch to {target} is under way\n");
    }
    if let Some(pending) = &answer.pending {
        text += &format!(
            "goes back to {} in {} unless confirmed: rooflinectl mode confirm {}\n",
            pending.original,
            words::time(pending.within_s),
            pending.id
        );
    }
    for hold in &answer.holds {
        let met = match &hold.unmet {
            Some(why) => format!(", not met: {why}"),
            None if hold.satisfied => String::new(),
            None => ", which the mode does not meet".to_owned(),
        };
        text += &format!("held by {} to {}{met}\n", hold.app_id, needs(hold));
    }
    if let Some(advice) = answer.holds.iter().find_map(|hold| hold.advice.as_ref()) {
        let saved = advice.saving_ratio.filter(|ratio| *ratio > 0.0);
        let saved = saved.map_or_else(String::new, |ratio| format!(", and saves {:.0} %", 100.0 * ratio));
        text += &format!("{} meets every hold that can be met at least energy{saved}\n", advice.mode);
    }
    if let Some(reason) = &answer.unavailable {
        text += &format!("modes cannot be switched: {reason}\n");
    } else if !answer.control_enabled {
        text +=
            "modes cannot be switched: set enabled = true under [control] in /etc/rooflined/rooflined.toml\n";
    }
    text
}

/// Why a mode is in force.
pub fn why(cause: &str) -> &str {
    match cause {
        "boot" => "since the daemon started",
        "user" => "a user asked for it",
        "hold" => "it meets every hold",
        "revert" => "it was gone back to",
        "external" => "somebody else switched",
        other => other,
    }
}

/// Constraints and the query in words.
pub fn needs(hold: &HoldAnswer) -> String {
    let ConstraintsOfHold {
        mode,
        min_mode,
        max_power_w,
        min_gpu_hz,
        min_bandwidth_bytes_per_s,
        min_compute_flops_per_s,
    } = &hold.constraints;
    let parts = [
        mode.as_ref().map(|mode| format!("mode {mode}")),
        min_mode.as_ref().map(|mode| format!("at least {mode}")),
        max_power_w.map(|watts| format!("at most {watts} W")),
        min_gpu_hz.map(|hz| format!("GPU at {} MHz or more", hz / 1e6)),
        min_bandwidth_bytes_per_s.map(|rate| format!("{} GB/s or more", rate / 1e9)),
        min_compute_flops_per_s.map(|rate| format!("{} GFLOP/s or more", rate / 1e9)),
        hold.query.as_ref().map(query_in_words),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What a query asks for, without what it asks it of.
fn query_in_words(query: &Value) -> String {
    let limits = query.get("constraints").and_then(Value::as_object);
    let limits: Vec<String> =
        limits.into_iter().flatten().map(|(name, limit)| format!("{name} {limit}")).collect();
    if limits.is_empty() { "a query".to_owned() } else { format!("a query ({})", limits.join(", ")) }
}

pub async fn holds(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/holds").await?;
    context.printer.answer("holds", &answer, || {
        let answer: HoldsAnswer = answer.parse()?;
        if answer.holds.is_empty() {
            return Ok("no active holds\n".to_owned());
        }
        let mut table = Table::new(&["who", ">uid", "needs", "met", ">for", ">ends in", "why"]);
        for hold in &answer.holds {
            table.row([
                hold.app_id.clone(),
                hold.uid.to_string(),
                needs(hold),
                if hold.satisfied { "yes" } else { "no" }.to_owned(),
                words::time(hold.age_s),
                match (hold.waiting_s, hold.expires_in_s) {
                    (Some(left), _) => format!("{} unless its client comes back", words::time(left)),
                    (None, Some(left)) => words::time(left),
                    (None, None) => "with its client".to_owned(),
                },
                hold.reason.clone(),
            ]);
        }
        Ok(table.render())
    })
}

pub async fn list(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/modes").await?;
    context.printer.answer("mode", &answer, || Ok(listed(&answer.parse()?)))
}

fn listed(answer: &ModesAnswer) -> String {
    let mut text =
        if answer.simulated { "SIMULATED: no value describes hardware\n".to_owned() } else { String::new() };
    if let Some(reason) = &answer.reason {
        return text + &format!("no power modes: {reason}\n");
    }
    let mut table = Table::new(&[
        "",
        ">id",
        "mode",
        ">cores",
        ">CPU",
        ">GPU",
        ">memory",
        ">SM",
        ">read",
        ">peak",
        "from",
        ">power",
        ">at worst",
        "by",
        "enter",
    ]);
    for mode in &answer.modes {
        let clock = |hz: Option<f64>| hz.map_or_else(|| "-".to_owned(), |hz| Hertz(hz).to_string());
        let watts =
            |watts: Option<f64>| watts.map_or_else(|| "-".to_owned(), |watts| Watts(watts).to_string());
        let count = |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let ceilings = &mode.ceilings;
        let peak = ["fp16", "fp32"].into_iter().find_map(|key| {
            Some(format!("{} {key}", words::compute(key, ceilings.compute_flops_per_s.get(key)?.value)))
        });
        table.row([
            if mode.active { "*" } else { "" }.to_owned(),
            mode.id.to_string(),
            mode.name.clone(),
            count(mode.cores_online),
            clock(mode.cpu_max_hz),
            clock(mode.gpu_max_hz),
            clock(mode.emc_max_hz),
            count(mode.sm_online),
            BytesPerSecond(ceilings.bandwidth_bytes_per_s.value).to_string(),
            peak.unwrap_or_else(|| "-".to_owned()),
            ceilings.bandwidth_bytes_per_s.provenance.clone(),
            watts(mode.measured_power_w),
            watts(mode.worst_power_w),
            mode.worst_power_source.clone().unwrap_or_else(|| "-".to_owned()),
            match (&mode.unreachable_reason, mode.active) {
                (_, true) => "active".to_owned(),
                (Some(reason), false) => reason.clone(),
                (None, false) => "now".to_owned(),
            },
        ]);
    }
    text.push_str(&table.render());
    for mode in &answer.modes {
        for note in &mode.clock_notes {
            text.push_str(&format!("note: {}: {note}\n", mode.name));
        }
    }
    for warning in &answer.warnings {
        let place = warning.line.map_or_else(String::new, |line| format!(" line {line}"));
        text.push_str(&format!("warning:{place} {}\n", warning.message));
    }
    text.push_str(
        "- is no cap, or not known; ceilings of modes that are not active were worked out, nothing was switched; at worst \
         is what a hold's maximum power is compared with\n",
    );
    text
}

pub async fn set(context: &mut Context, args: &ModeSetArgs) -> Result<Exit, Failure> {
    let request = ModeRequest {
        mode: args.mode.clone(),
        confirm_within_s: args.confirm,
        dry_run: args.dry_run,
        reason: args.reason.clone(),
    };
    let answer = context.client.command("/v1/mode", &request).await?;
    let switch: SwitchAnswer = answer.parse()?;
    context.printer.answer("mode", &answer, || Ok(switched(&switch)))?;
    if let Some(confirm) = &switch.confirm
        && context.printer.format == Format::Human
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
    {
        return ask(context, confirm.id, confirm.within_s).await;
    }
    Ok(match switch.outcome.as_str() {
        "applied" => Exit::Ok,
        "reboot_required" => Exit::RebootRequired,
        _ => Exit::Failed,
    })
}

fn switched(switch: &SwitchAnswer) -> String {
    let mut text = format!("{}\n", switch.message);
    for write in &switch.writes {
        let field = |name: &str| write.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        text += &format!("  {} <- {}\n", field("path"), field("value"));
    }
    if let Some(confirm) = &switch.confirm {
        let (id, left) = (confirm.id, words::time(confirm.within_s));
        text += &format!("it is taken back in {left} unless confirmed: rooflinectl mode confirm {id}\n");
    }
    text
}

/// Asks whoever sits at the terminal; silence means no, as it does without a terminal.
async fn ask(context: &mut Context, id: u64, within_s: f64) -> Result<Exit, Failure> {
    let _ = write!(std::io::stderr().lock(), "keep it? [y/N] ");
    let (said, answer) = tokio::sync::oneshot::channel();
    // A read cannot be cancelled, hence a thread that the process does not wait for.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        let _ = said.send(read.is_ok() && line.trim().eq_ignore_ascii_case("y"));
    });
    let limit = Duration::from_secs_f64(within_s);
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(true)) => confirm(context, id).await.map(|()| Exit::Ok),
        Ok(_) => revert(context, Some(id)).await.map(|()| Exit::Failed),
        Err(_) => Err(Failure::failed("nobody confirmed, so the previous mode was restored", "set it again")),
    }
}

pub async fn confirm(context: &mut Context, id: u64) -> Result<(), Failure> {
    let answer = context.client.command("/v1/mode/confirm", &ConfirmRequest { id }).await?;
    context.printer.answer("confirm", &answer, || Ok("confirmed: the mode stays\n".to_owned()))
}

pub async fn revert(context: &mut Context, id: Option<u64>) -> Result<(), Failure> {
    let answer = context.client.command("/v1/mode/revert", &RevertRequest { id }).await?;
    let switch: SwitchAnswer = answer.parse()?;
    context.printer.answer("mode", &answer, || Ok(switched(&switch)))
}
