//! `mode get|set|confirm|revert` and `holds`.

use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::args::ModeSetArgs;
use super::failure::{Exit, Failure};
use super::output::Format;
use super::show::SIMULATED;
use super::table::Table;
use super::{terminal, words};
use rooflined_api::{
    ConfirmRequest, HoldAnswer, HoldConstraints, HoldsAnswer, ModeRequest, ModesAnswer, RevertRequest,
    SwitchAnswer,
};
use rooflined_core::configuration::how_to_enable_control;
use rooflined_core::units::{BytesPerSecond, Hertz, Watts};

pub async fn get(context: &mut Context) -> Result<(), Failure> {
    let answer = context.client.get("/v1/holds").await?;
    context.printer.answer("mode", &answer, || Ok(render_active(&answer.parse()?)))
}

fn render_active(answer: &HoldsAnswer) -> String {
    let mut text = match &answer.active_mode {
        Some(mode) => format!("{mode} ({})\n", why(&answer.cause)),
        None if answer.cause == "external" => {
            "the current caps match no power mode: another program changed them\n".to_owned()
        }
        None => "the power mode of this machine cannot be read\n".to_owned(),
    };
    if answer.simulated {
        text += "simulated: no value describes hardware\n";
    }
    if let Some(target) = &answer.switching {
        text += &format!("a switch to {target} is under way\n");
    }
    if let Some(pending) = &answer.pending {
        text += &format!(
            "returns to {} in {} unless confirmed: rooflinectl mode confirm {}\n",
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
        text += &format!("modes cannot be switched: {}\n", how_to_enable_control());
    }
    text
}

/// Why a mode is in force.
pub fn why(cause: &str) -> &str {
    match cause {
        "boot" => "since the daemon started",
        "user" => "a user asked for it",
        "hold" => "it meets every hold",
        "revert" => "the previous mode was restored",
        "external" => "another program switched",
        other => other,
    }
}

/// Constraints and the query in words.
pub fn needs(hold: &HoldAnswer) -> String {
    let HoldConstraints { mode, min_mode, max_power, min_gpu_clock, min_bandwidth, min_compute } =
        &hold.constraints;
    let parts = [
        mode.as_ref().map(|mode| format!("mode {mode}")),
        min_mode.as_ref().map(|mode| format!("at least {mode}")),
        max_power.map(|power| format!("at most {} W", power.get())),
        min_gpu_clock.map(|clock| format!("GPU at {} MHz or more", clock.get() / 1e6)),
        min_bandwidth.map(|rate| format!("{} GB/s or more", rate.get() / 1e9)),
        min_compute.map(|rate| format!("{} GFLOP/s or more", rate.get() / 1e9)),
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
    context.printer.answer("mode", &answer, || Ok(render_modes(&answer.parse()?)))
}

fn render_modes(answer: &ModesAnswer) -> String {
    let mut text = if answer.simulated { SIMULATED.to_owned() } else { String::new() };
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
        let watts = |watts: Option<f64>, scope: &Option<String>| {
            watts.map_or_else(|| "-".to_owned(), |watts| words::with_scope(Watts(watts), scope.as_ref()))
        };
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
            watts(mode.measured_power_w, &mode.measured_power_scope),
            watts(mode.worst_power_w, &mode.worst_power_scope),
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
        "- is no cap, or not known; ceilings of inactive modes are calculated, nothing was switched; at worst \
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
    context.printer.answer("mode", &answer, || Ok(render_switch(&switch)))?;
    if let Some(confirm) = &switch.confirm
        && context.printer.format == Format::Human
        && terminal::is_attended()
    {
        return ask(context, confirm.id, confirm.within_s).await;
    }
    Ok(match switch.outcome.as_str() {
        "applied" => Exit::Ok,
        "reboot_required" => Exit::RebootRequired,
        _ => Exit::Failed,
    })
}

fn render_switch(switch: &SwitchAnswer) -> String {
    let mut text = format!("{}\n", switch.message);
    for write in &switch.writes {
        text += &format!("  {} <- {}\n", write.path, write.value);
    }
    if let Some(confirm) = &switch.confirm {
        let (id, left) = (confirm.id, words::time(confirm.within_s));
        text += &format!("it is undone in {left} unless confirmed: rooflinectl mode confirm {id}\n");
    }
    text
}

/// Asks the user at the terminal; no answer, or no terminal, means no.
async fn ask(context: &mut Context, id: u64, within_s: f64) -> Result<Exit, Failure> {
    match terminal::ask("keep it?", Duration::from_secs_f64(within_s)).await {
        Some(true) => confirm(context, id).await.map(|()| Exit::Ok),
        Some(false) => revert(context, Some(id)).await.map(|()| Exit::Failed),
        None => Err(Failure::failed("nobody confirmed, so the previous mode was restored", "set it again")),
    }
}

pub async fn confirm(context: &mut Context, id: u64) -> Result<(), Failure> {
    let answer = context.client.command("/v1/mode/confirm", &ConfirmRequest { id }).await?;
    context.printer.answer("confirm", &answer, || Ok("confirmed: the mode stays\n".to_owned()))
}

pub async fn revert(context: &mut Context, id: Option<u64>) -> Result<(), Failure> {
    let answer = context.client.command("/v1/mode/revert", &RevertRequest { id }).await?;
    let switch: SwitchAnswer = answer.parse()?;
    context.printer.answer("mode", &answer, || Ok(render_switch(&switch)))
}
