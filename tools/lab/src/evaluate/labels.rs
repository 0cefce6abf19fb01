//! `evaluate labels`: twelve decisions, and what they would be if the watts in a mode's name were a coefficient.
//!
//! A mode named 15W is easily taken for one of 15 W. That rule scales what a run draws, so that memory and cores flat out
//! draw what the name says. The name promises nothing of the kind, so such a decision is judged by what the run draws.

use std::sync::Arc;

use serde_json::{Value, json};

use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Watts;
use rooflined_models::registry::models;
use rooflined_models::transformer::Request;
use rooflined_predict::Engine;
use rooflined_predict::costs::{engine_costs, recipe};
use rooflined_predict::model::{Costs, predict_model};
use rooflined_predict::power::label_watts;
use rooflined_predict::snapshot::Snapshot;

/// What a mode is chosen for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    LeastEnergy,
    /// The fastest that draws no more.
    Within(Watts),
}

/// Boards, what each runs, and the supply that it has.
const BOARDS: [(&str, &str, f64); 6] = [
    ("jetson-orin-nano-8gb-super", "llama-3.2-3b", 15.0),
    ("jetson-orin-nx-16gb", "llama-3.1-8b", 15.0),
    ("jetson-agx-orin-32gb", "llama-3.1-8b", 30.0),
    ("jetson-agx-orin-64gb", "llama-3.1-8b", 30.0),
    ("jetson-xavier-nx", "llama-3.2-3b", 12.0),
    ("jetson-agx-xavier", "llama-3.1-8b", 20.0),
];
const CONTEXT: u64 = 4096;

/// A run in a mode.
#[derive(Debug, Clone)]
struct Mode {
    name: String,
    tokens_per_s: f64,
    watts: f64,
    /// The same, scaled to the watts in its name.
    by_label: f64,
}

impl Mode {
    fn joules(&self) -> f64 {
        self.watts / self.tokens_per_s
    }
}

/// One question with both answers; `None` where no mode meets it.
struct Decision {
    hardware: &'static str,
    model: &'static str,
    wanted: Wanted,
    right: Option<Mode>,
    by_label: Option<Mode>,
}

/// `evaluate labels`
pub fn run(printer: &Printer) -> Result<(), Failure> {
    let mut decisions = Vec::new();
    for (hardware, model, supply) in BOARDS {
        let modes = modes(hardware, model)
            .ok_or_else(|| Failure::failed(format!("{model} on {hardware} has no power"), "report this"))?;
        for wanted in [Wanted::LeastEnergy, Wanted::Within(Watts(supply))] {
            let chosen = |watts: fn(&Mode) -> f64| choose(&modes, wanted, watts).cloned();
            let (right, by_label) = (chosen(|mode| mode.watts), chosen(|mode| mode.by_label));
            decisions.push(Decision { hardware, model, wanted, right, by_label });
        }
    }
    match printer.format {
        Format::Human => printer.text(&table(&decisions)),
        _ => printer
            .value("evaluation", &json!({ "decisions": decisions.iter().map(value).collect::<Vec<_>>() })),
    }
}

fn modes(hardware: &str, model: &str) -> Option<Vec<Mode>> {
    const ENGINE: Engine = Engine::LlamaCpp;
    let known = registry().get(hardware)?;
    let model = models().get(model).ok()?.model(recipe(ENGINE, WeightFormat::Q4KM));
    let snapshot = Snapshot::hypothetical(Arc::new(known.clone()));
    let costs = Costs::Engine(engine_costs(ENGINE, Some(&known.key)));
    let mode = |view: &rooflined_predict::snapshot::ModeView| {
        let power = snapshot.power_costs(&view.roofline)?;
        let run = predict_model(&view.roofline, costs, &model, &Request::decode(CONTEXT)).ok()?;
        let run = run.with_power(&power, &view.roofline, 1, |_| None);
        let watts = run.power?.watts.value.get();
        let worst = power.worst(&view.roofline)?;
        let share = label_watts(&view.mode.name).map_or(1.0, |label| (label / worst).min(1.0));
        let tokens_per_s = 1.0 / run.time.value.get();
        Some(Mode { name: view.mode.name.clone(), tokens_per_s, watts, by_label: watts * share })
    };
    snapshot.modes.iter().map(mode).collect()
}

fn choose(modes: &[Mode], wanted: Wanted, watts: fn(&Mode) -> f64) -> Option<&Mode> {
    match wanted {
        Wanted::LeastEnergy => {
            let joules = |mode: &Mode| watts(mode) / mode.tokens_per_s;
            modes.iter().min_by(|a, b| joules(a).total_cmp(&joules(b)))
        }
        Wanted::Within(most) => {
            let within = modes.iter().filter(|mode| watts(mode) <= most.get());
            within.max_by(|a, b| a.tokens_per_s.total_cmp(&b.tokens_per_s))
        }
    }
}

/// What the decision by label costs.
fn verdict(of: &Decision) -> String {
    let (Some(right), Some(taken)) = (&of.right, &of.by_label) else {
        return if of.by_label.is_some() { "none meets it" } else { "-" }.to_owned();
    };
    match of.wanted {
        _ if right.name == taken.name => "the same".to_owned(),
        Wanted::LeastEnergy => format!("{:+.0} % energy", 100.0 * (taken.joules() / right.joules() - 1.0)),
        Wanted::Within(most) if taken.watts > most.get() => {
            format!("{} over", Watts(taken.watts - most.get()))
        }
        Wanted::Within(_) => {
            format!("{:+.0} % speed", 100.0 * (taken.tokens_per_s / right.tokens_per_s - 1.0))
        }
    }
}

fn question(wanted: Wanted) -> String {
    match wanted {
        Wanted::LeastEnergy => "least energy".to_owned(),
        Wanted::Within(most) => format!("fastest in {most}"),
    }
}

fn table(decisions: &[Decision]) -> String {
    let columns = [
        "machine", "model", "question", "mode", ">rate", ">power", "by label", ">claimed", ">drawn",
        "verdict",
    ];
    let mut table = Table::new(&columns);
    let name = |mode: &Option<Mode>| mode.as_ref().map_or("-", |mode| &mode.name).to_owned();
    let watts = |mode: &Option<Mode>, watts: fn(&Mode) -> f64| {
        mode.as_ref().map_or_else(|| "-".to_owned(), |mode| Watts(watts(mode)).to_string())
    };
    for of in decisions {
        let rate = of.right.as_ref().map(|mode| format!("{:.3} /s", mode.tokens_per_s));
        table.row([
            of.hardware.to_owned(),
            of.model.to_owned(),
            question(of.wanted),
            name(&of.right),
            rate.unwrap_or_else(|| "-".to_owned()),
            watts(&of.right, |mode| mode.watts),
            name(&of.by_label),
            watts(&of.by_label, |mode| mode.by_label),
            watts(&of.by_label, |mode| mode.watts),
            verdict(of),
        ]);
    }
    format!(
        "Power modes for q4_k_m in llama.cpp at {CONTEXT} tokens, and those chosen if a mode drew at most what its name says\n{}",
        table.render()
    )
}

fn value(of: &Decision) -> Value {
    let mode = |mode: &Option<Mode>| {
        mode.as_ref().map(|mode| {
            json!({
                "mode": mode.name, "tokens_per_s": mode.tokens_per_s, "power_w": mode.watts,
                "claimed_power_w": mode.by_label,
            })
        })
    };
    json!({
        "hardware": of.hardware, "model": of.model, "question": question(of.wanted), "decision": mode(&of.right),
        "by_label": mode(&of.by_label), "verdict": verdict(of),
    })
}
