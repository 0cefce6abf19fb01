//! How the live view looks: a title, one of three pages, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::live::Live;
use super::wrap::{shortened, wrap_text};
use crate::output::to_ascii;
use crate::{details, modes, show, words};
use rooflined_api::CeilingAnswer;
use rooflined_core::units::significant;

/// Columns before the words of an event: its time and its name.
const BEFORE_EVENT: usize = 23;
/// Lines that say why the daemon does not answer, at most.
const PROBLEM_LINES: usize = 3;
/// Columns of the name before a bar, and of the bar.
const NAME: usize = 12;
const BAR: usize = 20;

/// From this width on, sensors, holds and events stand next to loads and ceilings instead of below them.
const WIDE: u16 = 130;
/// Columns between both.
const GAP: u16 = 2;
const HELP: &str = "\
1           overview: what is busy, and how much of each ceiling is in use
2           every reading, and why the unknown ones are unknown
3           who holds the power mode, and what happened
tab, right  next page
up, down    scroll by a line; page up, page down by ten; home to the top
p, space    pause, and go on
?           this page, and back
q, escape   quit

bandwidth   bandwidth in use, of the ceiling at the current clocks
fp16, int8  at most this much is calculated now: nothing counts operations, so it is the busy time times the peak
measured    the ceiling was measured here; \"scaled\": at other clocks; \"datasheet\": not measured
";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    #[default]
    Overview,
    Values,
    Events,
    /// The keys, and how to read the overview; not among the pages that follow each other.
    Help,
}

impl Page {
    pub const fn next(self) -> Self {
        match self {
            Self::Overview => Self::Values,
            Self::Values => Self::Events,
            Self::Events | Self::Help => Self::Overview,
        }
    }
}

/// What is looked at.
#[derive(Debug, Default)]
pub struct ViewState {
    pub page: Page,
    /// First line of a page that is longer than the screen.
    pub scroll: u16,
    pub paused: bool,
    pub ascii: bool,
    pub colour: bool,
}

impl ViewState {
    pub fn turn(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
    }
}

pub fn draw(frame: &mut Frame<'_>, live: &Live, shown: &mut ViewState) {
    let width = usize::from(frame.area().width);
    let heading = heading(live, shown, width);
    let [title, pages, body, keys] = Layout::vertical([
        Constraint::Length(u16::try_from(heading.len()).unwrap_or(1)),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading), title);
    frame.render_widget(Paragraph::new(tabs(shown)), pages);
    match shown.page {
        Page::Overview => overview(frame, body, live, shown),
        Page::Values => {
            let text = live.state.as_ref().map(|state| show::status(state, live.roofline.as_ref()));
            let lines = text.unwrap_or_default();
            let lines = lines.lines().flat_map(|line| wrap_text(line, width, NAME)).collect();
            scrolled(frame, body, lines, shown);
        }
        Page::Events => {
            let mut lines = holds(live, width);
            lines.push(String::new());
            lines.extend(events(live, width).into_iter().flatten());
            if live.events.is_empty() {
                lines.push("no event since this view began".to_owned());
            }
            scrolled(frame, body, lines, shown);
        }
        Page::Help => {
            let lines = HELP.lines().flat_map(|line| wrap_text(line, width, NAME)).collect();
            scrolled(frame, body, lines, shown);
        }
    }
    let text = "q quit   1 2 3 or tab page   up down scroll   p pause   ? help";
    frame.render_widget(
        Paragraph::new(Line::from(text).style(Style::new().add_modifier(Modifier::DIM))),
        keys,
    );
    if shown.ascii {
        for cell in &mut frame.buffer_mut().content {
            if !cell.symbol().is_ascii() {
                let plain = to_ascii(cell.symbol());
                cell.set_symbol(&plain);
            }
        }
    }
    if !shown.colour {
        for cell in &mut frame.buffer_mut().content {
            cell.fg = ratatui::style::Color::Reset;
            cell.bg = ratatui::style::Color::Reset;
        }
    }
}

/// What must not be missed first: why nothing is of now, that nothing is real, that nothing moves, the mode. The board's name
/// takes the room that is left.
fn heading(live: &Live, shown: &ViewState, width: usize) -> Vec<Line<'static>> {
    let mut spans = Vec::new();
    if live.state.as_ref().is_some_and(|state| state.simulated) {
        spans.push(Span::from("SIMULATED").yellow());
    }
    if shown.paused {
        spans.push(Span::from("PAUSED").yellow());
    }
    if let Some(holds) = &live.holds
        && let Some(mode) = &holds.active_mode
    {
        spans.push(Span::from(format!("{mode} ({})", holds.cause)));
    }
    let board = live.board.as_ref();
    let name = board.map_or("", |board| board.model.as_deref().unwrap_or(&board.key));
    let taken: usize = spans.iter().map(|span| span.width() + 2).sum();
    spans.push(Span::from(shortened(name, width.saturating_sub(taken))).bold());
    let mut title = Vec::new();
    for span in spans {
        if !title.is_empty() {
            title.push(Span::from("  "));
        }
        title.push(span);
    }
    let problem = live.problem.as_ref().map(|problem| wrap_text(&format!("NOT NOW: {problem}"), width, 0));
    let problem = problem.into_iter().flatten().take(PROBLEM_LINES).map(|line| Line::from(line.red()));
    problem.chain([Line::from(title)]).collect()
}

fn tabs(shown: &ViewState) -> Line<'static> {
    let each = [
        (Page::Overview, " 1 overview "),
        (Page::Values, " 2 all values "),
        (Page::Events, " 3 holds, events "),
    ];
    Line::from_iter(each.map(
        |(page, name)| {
            if page == shown.page { Span::from(name).reversed() } else { Span::from(name) }
        },
    ))
}

fn overview(frame: &mut Frame<'_>, area: Rect, live: &Live, shown: &ViewState) {
    let is_wide = area.width >= WIDE;
    let (area, beside) = if is_wide {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(GAP);
        let [left, right] = halves.areas(area);
        (left, right)
    } else {
        (area, Rect::ZERO)
    };
    let width = usize::from(area.width);
    let past = [
        ("power", &live.power, live.number("total_power_w").map(|watts| words::field("_w", &watts.into()))),
        ("gpu load", &live.gpu, live.number("gpu_load_ratio").map(words::percent)),
    ];
    let past: Vec<_> = past.into_iter().filter(|(_, values, _)| values.len() > 1).collect();
    let holds = holds(live, width);
    let events = events(live, width);
    // Of the events at least the newest.
    let newest = events.first().map_or(0, Vec::len);
    let below = past.len() + if is_wide { 0 } else { holds.len() + newest };
    let mut sensors: Vec<_> = sensors(live).iter().map(|line| wrap_text(line, width, NAME)).collect();
    let mut rest = Vec::new();
    if is_wide && !sensors.is_empty() {
        rest = [std::mem::take(&mut sensors).concat(), vec![String::new()]].concat();
    }
    let lines = sections(live, shown.ascii, width, (usize::from(area.height), below), sensors);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let graph = if area.height >= height.saturating_add(7) { 2 } else { 1 };
    let mut rows = vec![Constraint::Length(height)];
    rows.extend(past.iter().map(|_| Constraint::Length(graph)));
    rows.push(Constraint::Min(0));
    let areas = Layout::vertical(rows).split(area);
    frame.render_widget(Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()), areas[0]);
    for ((name, values, now), row) in past.iter().zip(areas.iter().skip(1)) {
        let label = format!("{name:<NAME$}{:>9}  ", now.as_deref().unwrap_or("-"));
        let [left, right] = Layout::horizontal([
            Constraint::Length(u16::try_from(label.len()).unwrap_or(0)),
            Constraint::Min(0),
        ])
        .areas(*row);
        frame.render_widget(Paragraph::new(label), left);
        let data = scaled(values.iter().rev().take(usize::from(right.width)).rev().copied());
        let set = if shown.ascii { PLAIN } else { bar::NINE_LEVELS };
        frame.render_widget(Sparkline::default().data(data).max(100).bar_set(set), right);
    }
    rest.extend(holds.into_iter().chain(events.into_iter().flatten()));
    let below = areas.last().copied().unwrap_or_default();
    let area = if is_wide { beside } else { below };
    frame.render_widget(Paragraph::new(rest.into_iter().map(Line::from).collect::<Vec<_>>()), area);
}

/// Loads, ceilings and sensors. Where they and `below` more lines are too high, first the blank lines are left out and then what
/// page 2 has too.
fn sections(
    live: &Live,
    ascii: bool,
    width: usize,
    (height, below): (usize, usize),
    mut sensors: Vec<Vec<String>>,
) -> Vec<String> {
    let whole = |lines: Vec<String>| -> Vec<String> {
        lines.iter().flat_map(|line| wrap_text(line, width, NAME)).collect()
    };
    let (loads, ceilings) = (whole(loads(live, ascii)), whole(ceilings(live, ascii)));
    let lines =
        |sensors: &[Vec<String>]| loads.len() + ceilings.len() + sensors.iter().map(Vec::len).sum::<usize>();
    let room = height.saturating_sub(below);
    let apart = lines(&sensors) + 2 <= room;
    // The least important stand last.
    while lines(&sensors) > room && sensors.len() > KEPT_SENSORS {
        sensors.pop();
    }
    let blank = || apart.then(String::new);
    loads.iter().cloned().chain(blank()).chain(ceilings).chain(blank()).chain(sensors.concat()).collect()
}

/// A bar of signs that every terminal has.
const PLAIN: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "=",
    half: "=",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

/// In hundredths of the largest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
fn scaled(values: impl Iterator<Item = f64> + Clone) -> Vec<u64> {
    let most = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    values.map(|value| (value.max(0.0) / most * 100.0).round() as u64).collect()
}

/// `memory      ████████            40.1 %  26 GB of 65 GB`; a bar of dots where the share is unknown.
fn bar(name: &str, share: Option<f64>, words: &str, ascii: bool) -> String {
    let (full, empty, none) = if ascii { ('#', '-', '.') } else { ('█', '░', '·') };
    let drawn: String = match share {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and its length"
        )]
        Some(share) => {
            let filled = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
            (0..BAR).map(|place| if place < filled { full } else { empty }).collect()
        }
        None => none.to_string().repeat(BAR),
    };
    let share = share.map_or_else(|| "-".to_owned(), words::percent);
    format!("{name:<NAME$}{drawn} {share:>7}  {words}")
}

/// What is busy, and how much memory is taken.
fn loads(live: &Live, ascii: bool) -> Vec<String> {
    let clock = |name: &str| {
        live.field(name).filter(|field| !field.value.is_null()).map(|field| words::field(name, &field.value))
    };
    let beside = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut lines = vec![bar("cpu", live.part("load", "/busy_ratio"), &beside(vec![clock("cpu_hz")]), ascii)];
    if live.field("gpu_load_ratio").is_some() {
        lines.push(bar("gpu", live.number("gpu_load_ratio"), &beside(vec![clock("gpu_hz")]), ascii));
    }
    let total = live.part("memory_bytes", "/total");
    let used = total
        .zip(live.part("memory_bytes", "/available"))
        .map(|(total, available)| (total - available, total));
    let words_of = |(used, total): (f64, f64)| {
        format!("{} of {}", words::field("_bytes", &used.into()), words::field("_bytes", &total.into()))
    };
    lines.push(bar(
        "memory",
        used.map(|(used, total)| used / total),
        &used.map(words_of).unwrap_or_default(),
        ascii,
    ));
    let swap = live.field("swap").and_then(|field| field.value.as_array()).map(|devices| {
        let sum = |key: &str| devices.iter().filter_map(|one| one.get(key)?.as_f64()).sum::<f64>();
        (sum("used_bytes"), sum("size_bytes"))
    });
    if let Some(swap) = swap.filter(|(_, size)| *size > 0.0) {
        lines.push(bar("swap", Some(swap.0 / swap.1), &words_of(swap), ascii));
    }
    lines
}

/// `7.50 of 15.0 TFLOP/s`: a part of what `all` says, in its unit.
fn part_of(share: f64, all: &str) -> String {
    let number = all.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.map_or_else(|| format!("of {all}"), |number| format!("{} of {all}", significant(number * share)))
}

/// Each ceiling as a bar: how much of it is used now, as far as that is known.
fn ceilings(live: &Live, ascii: bool) -> Vec<String> {
    let Some(roofline) = &live.roofline else {
        return vec!["no ceilings yet: rooflinectl calibrate --wait".to_owned()];
    };
    let from = |ceiling: &CeilingAnswer| ceiling.provenance.clone();
    let bandwidth = &roofline.bandwidth_bytes_per_s;
    let per_s = |value: f64| words::field("_bytes_per_s", &value.into());
    // The memory controller counts cycles that move data, of all that there are.
    let moved = live
        .number("emc_utilisation_ratio")
        .zip(roofline.memory_limit_bytes_per_s.as_ref())
        .map(|(ratio, limit)| ratio * limit.value);
    let text = moved.map_or_else(
        || format!("of {} ({}), use unknown", per_s(bandwidth.value), from(bandwidth)),
        |moved| {
            format!("{} ({})", part_of(moved / bandwidth.value, &per_s(bandwidth.value)), from(bandwidth))
        },
    );
    let mut lines = vec![bar("bandwidth", moved.map(|moved| moved / bandwidth.value), &text, ascii)];
    // Nothing counts operations: no more can have been done than in the time in which the processor was busy.
    let busy = if live.field("gpu_load_ratio").is_some_and(|field| !field.value.is_null()) {
        live.number("gpu_load_ratio")
    } else if roofline.regimes.is_empty() {
        None
    } else {
        live.part("load", "/busy_ratio")
    };
    for (precision, ceiling) in roofline.compute_flops_per_s.iter().take(4) {
        let peak = words::compute(precision, ceiling.value);
        let text = busy.map_or_else(
            || format!("of {peak} ({}), use unknown", from(ceiling)),
            |busy| format!("≤ {} ({})", part_of(busy, &peak), from(ceiling)),
        );
        lines.push(bar(precision, busy, &text, ascii));
    }
    lines
}

/// Of the sensors those that are always shown: what slows the machine down, and its temperatures.
const KEPT_SENSORS: usize = 2;

/// What slows the machine down, temperatures, rails, fans and engines, a line each, the most important first.
fn sensors(live: &Live) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, label) in [
        ("throttle", "throttle"),
        ("temperatures_c", "heat"),
        ("rails_w", "rails"),
        ("fans", "fans"),
        ("engines", "engines"),
    ] {
        let Some(field) = live.field(name).filter(|field| !field.value.is_null()) else { continue };
        let text = match (name, &field.value) {
            ("throttle", value)
                if value.get("active").and_then(serde_json::Value::as_bool) == Some(false) =>
            {
                "no".to_owned()
            }
            // What is unknown stands on the other page.
            ("temperatures_c" | "rails_w", serde_json::Value::Object(parts)) => parts
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| {
                    let key = key.strip_suffix("-thermal").unwrap_or(key);
                    format!("{key} {}", words::field(name, value))
                })
                .collect::<Vec<_>>()
                .join(", "),
            (_, value) => details::lines(name, value)
                .map_or_else(|| words::field(name, value), |lines| lines.join(", ")),
        };
        lines.push(format!("{label:<NAME$}{text}"));
    }
    lines
}

/// Who holds what, and whether it is met; what waits.
fn holds(live: &Live, width: usize) -> Vec<String> {
    let Some(answer) = &live.holds else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(target) = &answer.switching {
        lines.push(format!("switching to {target}"));
    }
    if let Some(pending) = &answer.pending {
        lines.push(format!("{} waits to be confirmed, else {} again", pending.mode, pending.original));
    }
    for hold in &answer.holds {
        let met = match &hold.unmet {
            _ if hold.satisfied => "met".to_owned(),
            Some(why) => format!("NOT MET: {why}"),
            None => "NOT MET".to_owned(),
        };
        let needs = Some(modes::needs(hold)).filter(|needs| !needs.is_empty());
        let why = if hold.reason.is_empty() { String::new() } else { format!(", for {}", hold.reason) };
        let parts = [needs, Some(met), Some(format!("held for {}", words::age(hold.age_s)))];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        lines.push(format!(
            "{:<NAME$}{} (user {}{why}): {}",
            "hold",
            hold.app_id,
            hold.uid,
            parts.join(", ")
        ));
    }
    if answer.holds.is_empty() {
        lines.push("no holds".to_owned());
    }
    lines.iter().flat_map(|line| wrap_text(line, width, NAME)).collect()
}

/// What happened, the newest first, each in its lines.
fn events(live: &Live, width: usize) -> Vec<Vec<String>> {
    let lines = live.events.iter().map(|(time, words)| format!("{time}  {words}"));
    lines.map(|line| wrap_text(&line, width, BEFORE_EVENT)).collect()
}

/// Lines of a page, from the one that was scrolled to; no further than to the last.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<String>, shown: &mut ViewState) {
    let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(area.height);
    shown.scroll = shown.scroll.min(most);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).scroll((shown.scroll, 0)), area);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use rooflined_api::{StateAnswer, StateField};
    use serde_json::json;

    use super::*;

    fn live() -> Live {
        let known = |value| StateField { value, age_s: Some(0.5), reason: None, reasons: BTreeMap::new() };
        let fields = [
            ("load", json!({"average_1m": 0.2, "busy_ratio": 0.25, "steal_ratio": null})),
            ("gpu_load_ratio", json!(0.5)),
            ("gpu_hz", json!(612e6)),
            ("memory_bytes", json!({"total": 64e9, "available": 48e9})),
            ("temperatures_c", json!({"gpu-thermal": 41.5, "cv0-thermal": null})),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), known(value))).collect();
        Live {
            state: Some(StateAnswer {
                fields,
                sources: BTreeMap::new(),
                simulated: true,
                degraded: Vec::new(),
                serial: 3,
            }),
            ..Live::default()
        }
    }

    fn screen(columns: u16, rows: u16, live: &Live, shown: &mut ViewState) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, live, shown)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn bars_say_what_is_used_and_what_is_unknown() {
        let shown = screen(80, 24, &live(), &mut ViewState::default());
        assert!(shown.contains("SIMULATED"), "{shown}");
        assert!(shown.contains("cpu         █████░░░░░░░░░░░░░░░  25.0 %"), "{shown}");
        assert!(shown.contains("gpu         ██████████░░░░░░░░░░  50.0 %  612 MHz"), "{shown}");
        assert!(shown.contains("memory      █████░░░░░░░░░░░░░░░  25.0 %  16.0 GB of 64.0 GB"), "{shown}");
        assert!(shown.contains("no ceilings yet"), "{shown}");
        assert!(shown.contains("heat        gpu 41.5 °C") && !shown.contains("cv0"), "{shown}");
        assert_eq!(bar("bandwidth", None, "", true), format!("bandwidth   {}       -  ", ".".repeat(BAR)));
    }

    /// A board as an Orin is: eight temperatures, every ceiling from the data sheet, a hold and an event that are long.
    fn full() -> Live {
        let mut live = live();
        let fields = &mut live.state.as_mut().unwrap().fields;
        let zones = ["cpu", "cv0", "cv1", "cv2", "gpu", "soc0", "soc1", "soc2", "tj"];
        let zones: serde_json::Map<_, _> =
            zones.iter().map(|zone| (format!("{zone}-thermal"), json!(48.25))).collect();
        for (name, value) in [
            ("temperatures_c", json!(zones)),
            ("throttle", json!({"active": false, "evidence": []})),
            ("rails_w", json!({"VDD_IN": 4.8, "VDD_CPU_GPU_CV": 0.9, "VDD_SOC": 1.4})),
            ("engines", json!([{"name": "NVDEC", "clock_hz": 8e8, "on": true}])),
        ] {
            let known = StateField { value, age_s: Some(0.5), reason: None, reasons: BTreeMap::new() };
            fields.insert(name.to_owned(), known);
        }
        let ceiling =
            |value: f64| json!({"value": value, "low": value, "high": value, "provenance": "datasheet"});
        let peaks = json!({
            "fp32": ceiling(1.88e12), "fp16": ceiling(15.0e12), "bf16": ceiling(15.0e12), "int8": ceiling(30.1e12),
        });
        live.roofline = serde_json::from_value(json!({
            "bandwidth_bytes_per_s": ceiling(68e9), "compute_flops_per_s": peaks, "launch_s": ceiling(2e-6),
            "ridge_flops_per_byte": {}, "bandwidth_curve": [], "workers": 8, "regimes": [], "simulated": true,
            "serial": 3,
        }))
        .ok();
        assert!(live.roofline.is_some());
        live.board = serde_json::from_value(json!({
            "key": "orin", "model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "notes": [],
            "accelerators": [], "cpu": {}, "memory": {}, "modes": [], "simulated": true, "sources": {}, "reasons": {},
            "serial": 3,
        }))
        .ok();
        assert!(live.board.is_some());
        live.holds = serde_json::from_value(json!({
            "active_mode": "MAXN_SUPER", "cause": "hold", "switching": null, "pending": null,
            "holds": [{
                "app_id": "sleep", "reason": "", "uid": 0, "constraints": {"min_mode": "25W", "max_power_w": 25.0},
                "attached": true, "satisfied": true, "age_s": 90.0, "expires_in_s": null,
            }],
            "control_enabled": true, "unavailable": null, "simulated": true, "serial": 3,
        }))
        .ok();
        assert!(live.holds.is_some());
        live.power.extend([4.0, 5.0]);
        live.gpu.extend([0.1, 0.5]);
        let words =
            "advice_stale ask again: the memory available went from 5.90 GB to 1.20 GB and so on to its END";
        live.events.push_front(("12:00:00".to_owned(), words.to_owned()));
        live.problem =
            Some("no daemon answers at /run/user/1000/rooflined/query.sock, which is gone".to_owned());
        live
    }

    #[test]
    fn nothing_important_is_cut_off_at_80_columns() {
        let mut shown = ViewState { paused: true, ..ViewState::default() };
        let text = screen(80, 24, &full(), &mut shown);
        for part in [
            "NOT NOW: no daemon answers at /run/user/1000/rooflined/query.sock",
            "which is gone",
            "SIMULATED  PAUSED  MAXN_SUPER (hold)  NVIDIA Jetson Orin",
            "of 68.0 GB/s (datasheet)",
            "≤ 7.50 of 15.0 TFLOP/s (datasheet)",
            "≤ 15.1 of 30.1 TOP/s (datasheet)",
            "≤ 0.940 of 1.88 TFLOP/s (datasheet)",
            "tj 48.2 °C",
            "sleep (user 0): at least 25W, at most 25 W, met, held for 90",
            "END",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
        shown.turn(Page::Events);
        let text = screen(80, 24, &full(), &mut shown);
        assert!(text.contains("END") && text.contains("at least 25W"), "{text}");
    }

    #[test]
    fn a_wide_screen_has_the_sensors_next_to_the_loads() {
        let text = screen(160, 24, &full(), &mut ViewState::default());
        assert!(text.lines().any(|line| line.contains("cpu  ") && line.contains("throttle    no")), "{text}");
        assert!(text.contains("tj 48.2 °C") && text.contains("END"), "{text}");
    }

    #[test]
    fn every_page_fits_any_size_and_scrolls_no_further_than_its_end() {
        for (columns, rows) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            for page in [Page::Overview, Page::Values, Page::Events] {
                let mut shown = ViewState { page, scroll: u16::MAX, colour: true, ..ViewState::default() };
                screen(columns, rows, &live(), &mut shown);
                screen(columns, rows, &full(), &mut shown);
                screen(columns, rows, &Live::default(), &mut shown);
            }
        }
        let mut shown = ViewState { page: Page::Values, scroll: 500, ..ViewState::default() };
        let text = screen(80, 8, &live(), &mut shown);
        assert!(text.contains("serial 3") && shown.scroll < 20, "{} {text}", shown.scroll);
    }

    #[test]
    fn plain_terminals_get_plain_signs() {
        let mut live = live();
        live.power.extend([1.0, 5.0, 10.0]);
        let text = screen(80, 24, &live, &mut ViewState { ascii: true, ..ViewState::default() });
        // The backend itself puts quotes around each row.
        assert!(text.is_ascii() && text.contains("#####---------------"), "{text}");
    }
}
