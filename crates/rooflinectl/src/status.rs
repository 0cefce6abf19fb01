//! The first screen of `status`: what somebody looks for, in a dozen lines.

use std::fmt::Write;

use serde_json::Value;

use super::show::{self, SIMULATED};
use super::table::Table;
use super::words;
use rooflined_api::{BoardAnswer, RooflineAnswer, StateAnswer};
use rooflined_core::units::{Bytes, Celsius, Hertz, Watts};

/// Ceilings of arithmetic that are shown where there are these, else the first.
const PRECISIONS: [&str; 2] = ["peak fp16", "peak int8"];

/// Board, mode, power, clocks, memory, load, heat, ceilings and problems. `board` and `roofline` are unknown where the daemon does
/// not tell them.
pub fn brief(board: Option<&BoardAnswer>, state: &StateAnswer, roofline: Option<&RooflineAnswer>) -> String {
    let reading = Reading(state);
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    if let Some(board) = board {
        let name = board.model.as_ref().map_or_else(String::new, |model| format!("{model}, "));
        row("board", format!("{name}{}", board.key));
    }
    row("mode", reading.mode());
    row("power", reading.power());
    row("clocks", reading.clocks());
    row("memory", reading.memory());
    row("load", reading.load());
    row("hottest", reading.hottest());
    match roofline {
        Some(roofline) => {
            for (name, ceiling) in main_ceilings(roofline) {
                row(&name, ceiling);
            }
        }
        None => row("ceilings", "unknown until you run: rooflinectl calibrate --wait".to_owned()),
    }
    let mut text = if state.simulated { SIMULATED.to_owned() } else { String::new() };
    text += &table.render();
    let problems = reading.problems();
    if problems.is_empty() {
        text += "no problems; every reading: rooflinectl status --all\n";
    } else {
        text += "problems (more: rooflinectl doctor; every reading: rooflinectl status --all)\n";
        for problem in problems {
            let _ = writeln!(text, "  {problem}");
        }
    }
    text
}

/// The memory's, and two of arithmetic.
fn main_ceilings(roofline: &RooflineAnswer) -> Vec<(String, String)> {
    let mut all = show::ceilings(roofline, usize::MAX);
    let is_usual = |name: &str| PRECISIONS.contains(&name);
    if all.iter().any(|(name, _)| is_usual(name)) {
        all.retain(|(name, _)| is_usual(name) || !name.starts_with("peak"));
    }
    all.truncate(1 + PRECISIONS.len());
    all
}

struct Reading<'a>(&'a StateAnswer);

impl Reading<'_> {
    fn value(&self, name: &str) -> &Value {
        self.0.fields.get(name).map_or(&Value::Null, |field| &field.value)
    }

    fn number(&self, name: &str, part: &str) -> Option<f64> {
        self.value(name).pointer(part)?.as_f64()
    }

    /// Why something is unknown.
    fn missing(&self, name: &str) -> String {
        show::missing(self.0.fields.get(name).and_then(|field| field.reason.as_deref()))
    }

    fn mode(&self) -> String {
        match self.value("power_mode").get("name").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => self.missing("power_mode"),
        }
    }

    fn power(&self) -> String {
        let scope = self.value("total_power_of").get("scope").and_then(Value::as_str).map(str::to_owned);
        self.number("total_power_w", "").map_or_else(
            || self.missing("total_power_w"),
            |watts| words::with_scope(Watts(watts), scope.as_ref()),
        )
    }

    /// `GPU 306 MHz (up to 918 MHz), CPU 729 MHz, memory 2.13 GHz`
    fn clocks(&self) -> String {
        let clock = |name: &str, field: &str, part: &str, cap: &str| {
            let now = self.number(field, part)?;
            let cap = self.number(cap, "").map_or_else(String::new, |cap| format!(" (up to {})", Hertz(cap)));
            Some(format!("{name} {}{cap}", Hertz(now)))
        };
        let clocks = [
            clock("GPU", "gpu_hz", "", "gpu_cap_hz"),
            clock("CPU", "cpu_hz", "/0", "cpu_cap_hz"),
            clock("memory", "memory_hz", "", "memory_cap_hz"),
        ];
        joined(clocks).unwrap_or_else(|| self.missing("cpu_hz"))
    }

    fn memory(&self) -> String {
        let sizes = self.number("memory_bytes", "/available").zip(self.number("memory_bytes", "/total"));
        sizes.map_or_else(
            || self.missing("memory_bytes"),
            |(free, total)| format!("{} free of {}", Bytes(free), Bytes(total)),
        )
    }

    fn load(&self) -> String {
        let share = |name: &str, field: &str, part: &str| {
            self.number(field, part).map(|share| format!("{name} {}", words::percent(share)))
        };
        let cores = self
            .number("cores_online", "")
            .map_or_else(|| "CPU".to_owned(), |cores| format!("CPU ({cores} cores)"));
        let loads = [
            share("GPU", "gpu_load_ratio", ""),
            share(&cores, "load", "/busy_ratio"),
            share("memory controller", "emc_utilisation_ratio", ""),
        ];
        joined(loads).unwrap_or_else(|| self.missing("load"))
    }

    fn hottest(&self) -> String {
        let all = self.value("temperatures_c").as_object().into_iter().flatten();
        let hottest =
            all.filter_map(|(name, value)| Some((name, value.as_f64()?))).max_by(|a, b| a.1.total_cmp(&b.1));
        hottest.map_or_else(
            || self.missing("temperatures_c"),
            |(name, value)| format!("{} ({})", Celsius(value), name.strip_suffix("-thermal").unwrap_or(name)),
        )
    }

    fn problems(&self) -> Vec<String> {
        let throttle = self.value("throttle");
        let evidence = throttle.get("evidence").and_then(Value::as_array).into_iter().flatten();
        let evidence: Vec<_> = evidence.filter_map(Value::as_str).collect();
        let is_throttled = throttle.get("active").and_then(Value::as_bool) == Some(true);
        let throttled = is_throttled.then(|| format!("throttled: {}", evidence.join("; ")));
        throttled.into_iter().chain(self.0.degraded.iter().cloned()).collect()
    }
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
