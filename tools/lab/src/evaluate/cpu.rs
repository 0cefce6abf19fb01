//! `evaluate cpu`: an engine on CPUs, each model predicted without its own runs, after runs of others, and after one of its own.

use std::path::Path;

use serde_json::json;

use crate::report::{Coverage, Errors, Figures, Section, figures, print};
use crate::{cpu_rows, fit_cpu};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_models::transformer::Phase;
use rooflined_predict::cpu::{CpuCosts, Host, cpu_costs};
use rooflined_predict::learning::models::{Measured, ObservedRuns};

/// Runs of other models before the next is predicted.
const OTHERS: [usize; 2] = [1, 3];

#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Predicted over measured rate or the other way round, less one.
    error: f64,
    inside: bool,
    half_width: f64,
}

/// The prediction of a run after others; `None` where there is none.
fn outcome(known: &ObservedRuns, run: &Measured) -> Option<Outcome> {
    let time = known.predict(&run.asked()).ok()?.time;
    let log = (time.value / run.time).ln();
    Some(Outcome {
        error: log.abs().exp_m1(),
        inside: time.low <= run.time && run.time <= time.high,
        half_width: time.high / time.value - 1.0,
    })
}

/// What `runs` teach where `of` is to be predicted: all start from the costs that know nothing of its model.
fn taught<'a>(of: Option<&Measured>, runs: impl Iterator<Item = &'a Measured>) -> ObservedRuns {
    let mut known = ObservedRuns::default().of("evaluation".into());
    let costs = of.and_then(|of| of.cpu).and_then(|host| host.costs);
    let start = |run: &Measured| Measured { cpu: run.cpu.map(|host| Host { costs, ..host }), ..run.clone() };
    let runs: Vec<Measured> = runs.map(start).collect();
    let _ = known.observe(&runs, 0.0);
    known
}

/// What was asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Decode { all_threads: bool },
    Batch,
    Prompt,
}

impl Asked {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Decode { all_threads: false }, "decode, one thread"),
        (Self::Decode { all_threads: true }, "decode, all threads"),
        (Self::Batch, "decode, several sequences"),
        (Self::Prompt, "prompt"),
    ];

    fn of(run: &Measured) -> Self {
        let threads = run.cpu.and_then(|host| host.threads).unwrap_or(1);
        match run.request.phase {
            Phase::Prefill => Self::Prompt,
            _ if run.request.batch > 1 => Self::Batch,
            _ => Self::Decode { all_threads: threads > 1 },
        }
    }
}

/// Every run of `runs` predicted after what `known` lets through for it; `None` without predictions.
fn judge(
    (observed, runs): (&str, &[Measured]),
    (asked, words): (Asked, &str),
    known: &dyn Fn(&Measured) -> Vec<ObservedRuns>,
) -> Option<Figures> {
    let of = runs.iter().filter(|run| Asked::of(run) == asked);
    let outcomes: Vec<Outcome> = of
        .flat_map(|run| known(run).iter().filter_map(|known| outcome(known, run)).collect::<Vec<_>>())
        .collect();
    let errors = Errors::of(outcomes.iter().map(|outcome| outcome.error))?;
    let mut row =
        figures([("observed", json!(observed)), ("asked", json!(words)), ("runs", json!(errors.rows))]);
    row.extend(errors.figures(""));
    row.extend(Coverage::of(outcomes.iter().map(|outcome| (outcome.inside, outcome.half_width)))?.figures());
    Some(row)
}

fn same_file(a: &Measured, b: &Measured) -> bool {
    a.name == b.name && a.format == b.format
}

/// `count` runs of other models, spread over all there are of them, in three ways.
fn of_others(runs: &[Measured], of: &Measured, count: usize) -> Vec<ObservedRuns> {
    let others: Vec<&Measured> =
        runs.iter().filter(|run| run.engine == of.engine && run.name != of.name).collect();
    if others.len() < count {
        return Vec::new();
    }
    (0..3)
        .map(|start| {
            let place = |index: usize| (start * 5 + index * others.len() / count) % others.len();
            taught(Some(of), (0..count).map(|index| others[place(index)]))
        })
        .collect()
}

/// One run of the same file with another context, batch, phase or number of threads, each in turn.
fn of_itself(runs: &[Measured], of: &Measured) -> Vec<ObservedRuns> {
    let decode = |run: &&Measured| run.request.phase == Phase::Decode && run.request.batch == 1;
    let others = runs.iter().filter(|run| same_file(run, of) && *run != of).filter(decode);
    others.map(|run| taught(Some(of), std::iter::once(run))).collect()
}

/// `evaluate cpu FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let lines = cpu_rows::read(file)?;
    let runs = cpu_rows::runs(&lines);
    let refused = runs.iter().filter(|run| taught(None, std::iter::once(*run)).counts().is_empty()).count();
    let title = "Runs on a CPU, each model predicted without its own runs".to_owned();
    let section = Section::new("cpu", title, stages(&without_their_models(&runs)));
    let facts = [("runs", runs.len()), ("unsteady", lines.len() - runs.len()), ("refused", refused)];
    let facts = figures(facts.map(|(name, count)| (name, json!(count))));
    print(printer, &[Section { facts, ..section }])
}

/// Every run with costs to start from that were fitted without its model.
fn without_their_models(runs: &[Measured]) -> Vec<Measured> {
    let mut judged = runs.to_vec();
    let key = |run: &Measured| (run.engine, run.cpu.map(|host| host.processor), run.name.clone());
    let mut keys: Vec<_> = runs.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    for of in keys {
        let (Some(processor), rest) = (of.1, runs.iter().filter(|run| key(run) != of)) else { continue };
        let rest: Vec<Measured> = rest.filter(|run| run.engine == of.0).cloned().collect();
        // As long as the program runs: one for every model.
        let costs: Option<&'static CpuCosts> = fit_cpu::costs(of.0, processor, &rest)
            .map(|costs| -> &'static CpuCosts { Box::leak(Box::new(costs)) })
            .or_else(|| cpu_costs(of.0, processor));
        for run in judged.iter_mut().filter(|run| key(run) == of) {
            run.cpu = run.cpu.map(|host| Host { costs, ..host });
        }
    }
    judged
}

fn stages(runs: &[Measured]) -> Vec<Figures> {
    let stage = |name: &str, known: &dyn Fn(&Measured) -> Vec<ObservedRuns>| -> Vec<Figures> {
        Asked::ALL.into_iter().filter_map(|asked| judge((name, runs), asked, known)).collect()
    };
    let nothing = taught(None, std::iter::empty());
    let mut stages = stage("nothing", &|_| vec![nothing.clone()]);
    for count in OTHERS {
        let name =
            if count == 1 { "1 run of another model".to_owned() } else { format!("{count} runs of others") };
        stages.extend(stage(&name, &|run| of_others(runs, run, count)));
    }
    let mut names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let others = |name: &str| {
        let of = runs.iter().find(|run| run.name == name);
        taught(of, runs.iter().filter(|run| run.name != name))
    };
    let all: Vec<(&str, ObservedRuns)> = names.into_iter().map(|name| (name, others(name))).collect();
    stages.extend(stage("all runs of others", &|run| {
        all.iter().filter(|(name, _)| *name == run.name).map(|(_, known)| known.clone()).collect()
    }));
    stages.extend(stage("1 run of the file", &|run| of_itself(runs, run)));
    stages
}
