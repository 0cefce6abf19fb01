//! `recommend --joint FILE`: one decision for several workloads, asked with a body of `POST /v1/recommend/joint`.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::failure::{Exit, Failure, refused};
use super::table::Table;
use super::{Context, words};
use answer::Request;
use answer::parse::parse;
use roofline::units::Bytes;
use wire::{JointAnswer, JointRequest};

/// Longest body; the daemon takes no larger one.
const MAX_BODY_BYTES: u64 = 64 << 10;

/// Sends the request in `file` (`-`: standard input), about `hardware` where it is named.
pub async fn run(context: &mut Context, file: &Path, hardware: Option<&str>) -> Result<Exit, Failure> {
    let body = read(file)?;
    let mut request: JointRequest = parse(&body).map_err(refused)?;
    if let Some(key) = hardware {
        request.hardware = Some(key.to_owned());
    }
    let question = |request| Request::Joint(Box::new(request));
    let answer = context.ask("/v1/recommend/joint", request, question).await?;
    let parsed: JointAnswer = answer.parse()?;
    context.printer.answer("joint", &answer, || Ok(render(&parsed)))?;
    Ok(if parsed.feasible { Exit::Ok } else { Exit::Infeasible })
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MAX_BODY_BYTES + 1).read_to_end(&mut body)
    } else {
        File::open(file).and_then(|opened| opened.take(MAX_BODY_BYTES + 1).read_to_end(&mut body))
    };
    let name = file.display();
    match read {
        Ok(length) if length as u64 <= MAX_BODY_BYTES => Ok(body),
        Ok(_) => Err(Failure::failed(
            format!("{name} is longer than {} KiB", MAX_BODY_BYTES >> 10),
            "give the body of POST /v1/recommend/joint",
        )),
        Err(error) => Err(Failure::failed(
            format!("{name} cannot be read: {error}"),
            "give a JSON file with the body of POST /v1/recommend/joint, or - for standard input",
        )),
    }
}

fn render(answer: &JointAnswer) -> String {
    let mut text = String::new();
    if answer.simulated {
        text.push_str(super::show::SIMULATED);
    }
    let _ = writeln!(text, "{}", answer.reason);
    let mut table = Table::new(&[
        "workload",
        ">share",
        "format",
        ">batch",
        ">time",
        ">at worst",
        ">alone",
        ">rate",
        ">memory",
    ]);
    for member in &answer.workloads {
        let choice = &member.choice;
        table.row([
            member.name.clone(),
            words::percent(member.share),
            choice.format.clone().unwrap_or_else(|| "as it is".to_owned()),
            choice.batch.to_string(),
            words::time(member.shared.time_s.value),
            words::time(member.shared.time_s.high),
            words::time(choice.prediction.time_s.value),
            words::rate(member.shared.tokens_per_s.value),
            Bytes(choice.prediction.memory_bytes.total).to_string(),
        ]);
    }
    text.push_str(&table.render());
    let totals = &answer.totals;
    let mut together =
        vec![words::rate(totals.tokens_per_s), format!("{} of memory", Bytes(totals.memory_bytes))];
    together.extend(totals.power_w.map(|watts| words::field("_w", &watts.into())));
    together.extend(
        totals.energy_j_per_token.map(|joules| format!("{} a token", words::field("_j", &joules.into()))),
    );
    let mode = answer.power_mode.as_ref().map_or_else(String::new, |mode| format!(" in mode {}", mode.name));
    let _ = writeln!(text, "  together{mode}: {}", together.join(", "));
    if answer.reboot_required {
        text.push_str("  the mode needs a reboot\n");
    }
    let named = |index: u64| {
        let found = usize::try_from(index).ok().and_then(|index| answer.workloads.get(index));
        found.map_or_else(|| index.to_string(), |member| member.name.clone())
    };
    for rejected in &answer.rejected {
        let _ = write!(
            text,
            "  {} of {} excluded by {}",
            words::candidates(rejected.count),
            named(rejected.workload),
            rejected.by
        );
        if let Some(closest) = rejected.closest {
            let _ = write!(text, "; the closest has {}", words::field(&rejected.by, &closest.into()));
        }
        text.push('\n');
    }
    for violation in &answer.violated {
        let whose = violation.workload.map_or_else(|| "all together".to_owned(), named);
        let _ = writeln!(text, "  violated by {whose}: {}", violation.by);
    }
    for warning in &answer.warnings {
        let _ = writeln!(text, "  {warning}");
    }
    let _ = writeln!(text, "  {}, serial {}", words::candidates(answer.candidates), answer.serial);
    text
}
