//! How the live view looks: a title, one of three pages, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::live::Live;
use crate::output::to_ascii;
use crate::{details, show, words};
use wire::CeilingAnswer;

/// Columns of the name before a bar, and of the bar.
const NAME: usize = 12;
const BAR: usize = 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    #[default]
    Overview,
    Values,
    Events,
}

impl Page {
    pub const fn next(self) -> Self {
        match self {
            Self::Overview => Self::Values,
            Self::Values => Self::Events,
            Self::Events => Self::Overview,
        }
    }
}

/// What is looked at.
#[derive(Debug, Default)]
pub struct Shown {
    pub page: Page,
    /// First line of a page that is longer than the screen.
    pub scroll: u16,
    pub paused: bool,
    pub ascii: bool,
    pub colour: bool,
}

impl Shown {
    pub fn turn(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
    }
}

pub fn draw(frame: &mut Frame<'_>, live: &Live, shown: &mut Shown) {
    let [title, pages, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(live, shown)), title);
    frame.render_widget(Paragraph::new(tabs(shown)), pages);
    match shown.page {
        Page::Overview => overview(frame, body, live, shown),
        Page::Values => {
            let text = live.state.as_ref().map(|state| show::status(state, live.roofline.as_ref()));
            scrolled(frame, body, text.unwrap_or_default().lines().map(ToOwned::to_owned).collect(), shown);
        }
        Page::Events => {
            let mut lines = holds(live);
            lines.push(String::new());
            lines.extend(live.events.iter().map(|(time, words)| format!("{time}  {words}")));
            if live.events.is_empty() {
                lines.push("no event since this view began".to_owned());
            }
            scrolled(frame, body, lines, shown);
        }
    }
    let text = "q quit   1 2 3 or tab page   up down scroll   p pause";
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

fn heading(live: &Live, shown: &Shown) -> Line<'static> {
    let board = live.board.as_ref();
    let name = board.map_or("", |board| board.model.as_deref().unwrap_or(&board.key)).to_owned();
    let mut spans = vec![Span::from("rooflined  ").bold(), Span::from(name)];
    if let Some(holds) = &live.holds
        && let Some(mode) = &holds.active_mode
    {
        spans.push(Span::from(format!("  {mode} ({})", holds.cause)));
    }
    if live.state.as_ref().is_some_and(|state| state.simulated) {
        spans.push(Span::from("  SIMULATED").yellow());
    }
    if shown.paused {
        spans.push(Span::from("  PAUSED").yellow());
    }
    if let Some(problem) = &live.problem {
        spans.push(Span::from(format!("  NOT NOW: {problem}")).red());
    }
    Line::from(spans)
}

fn tabs(shown: &Shown) -> Line<'static> {
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

fn overview(frame: &mut Frame<'_>, area: Rect, live: &Live, shown: &Shown) {
    let mut lines = loads(live, shown.ascii);
    lines.push(String::new());
    lines.extend(ceilings(live, shown.ascii));
    lines.push(String::new());
    lines.extend(sensors(live));
    let past = [
        ("power", &live.power, live.number("total_power_w").map(|watts| words::field("_w", &watts.into()))),
        ("gpu load", &live.gpu, live.number("gpu_load_ratio").map(words::percent)),
    ];
    let past: Vec<_> = past.into_iter().filter(|(_, values, _)| values.len() > 1).collect();
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
    let mut rest = holds(live);
    rest.extend(live.events.iter().map(|(time, words)| format!("{time}  {words}")));
    if let Some(area) = areas.last() {
        frame.render_widget(Paragraph::new(rest.into_iter().map(Line::from).collect::<Vec<_>>()), *area);
    }
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
        || format!("of {} ({}); use not told here", per_s(bandwidth.value), from(bandwidth)),
        |moved| format!("{} of {} ({})", per_s(moved), per_s(bandwidth.value), from(bandwidth)),
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
            || format!("of {peak} ({}); use not told here", from(ceiling)),
            |busy| {
                format!(
                    "at most {} of {peak} ({})",
                    words::compute(precision, ceiling.value * busy),
                    from(ceiling)
                )
            },
        );
        lines.push(bar(precision, busy, &text, ascii));
    }
    lines
}

/// Temperatures, rails, fans, engines and what slows the machine down, a line each.
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
            // What is unknown stands on the other page.
            ("temperatures_c" | "rails_w", serde_json::Value::Object(parts)) => parts
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} {}", words::field(name, value)))
                .collect::<Vec<_>>()
                .join(", "),
            (_, value) => details::lines(name, value)
                .map_or_else(|| words::field(name, value), |lines| lines.join(", ")),
        };
        lines.push(format!("{label:<NAME$}{text}"));
    }
    lines
}

fn holds(live: &Live) -> Vec<String> {
    let Some(answer) = &live.holds else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(target) = &answer.switching {
        lines.push(format!("switching to {target}"));
    }
    if let Some(pending) = &answer.pending {
        lines.push(format!("{} waits to be confirmed, else {} again", pending.mode, pending.original));
    }
    for hold in &answer.holds {
        let met = if hold.satisfied { "met" } else { "NOT MET" };
        lines.push(format!(
            "hold        {} (user {}): {}, {met}, for {}",
            hold.app_id,
            hold.uid,
            hold.reason,
            words::age(hold.age_s)
        ));
    }
    if answer.holds.is_empty() {
        lines.push("no holds".to_owned());
    }
    lines
}

/// Lines of a page, from the one that was scrolled to; no further than to the last.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<String>, shown: &mut Shown) {
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
    use serde_json::json;
    use wire::{StateAnswer, StateField};

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

    fn screen(columns: u16, rows: u16, live: &Live, shown: &mut Shown) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, live, shown)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn bars_say_what_is_used_and_what_is_unknown() {
        let shown = screen(80, 24, &live(), &mut Shown::default());
        assert!(shown.contains("SIMULATED"), "{shown}");
        assert!(shown.contains("cpu         █████░░░░░░░░░░░░░░░  25.0 %"), "{shown}");
        assert!(shown.contains("gpu         ██████████░░░░░░░░░░  50.0 %  612 MHz"), "{shown}");
        assert!(shown.contains("memory      █████░░░░░░░░░░░░░░░  25.0 %  16.0 GB of 64.0 GB"), "{shown}");
        assert!(shown.contains("no ceilings yet"), "{shown}");
        assert!(shown.contains("gpu-thermal 41.5 °C") && !shown.contains("cv0"), "{shown}");
        assert_eq!(bar("bandwidth", None, "", true), format!("bandwidth   {}       -  ", ".".repeat(BAR)));
    }

    #[test]
    fn every_page_fits_any_size_and_scrolls_no_further_than_its_end() {
        for (columns, rows) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            for page in [Page::Overview, Page::Values, Page::Events] {
                let mut shown = Shown { page, scroll: u16::MAX, colour: true, ..Shown::default() };
                screen(columns, rows, &live(), &mut shown);
                screen(columns, rows, &Live::default(), &mut shown);
            }
        }
        let mut shown = Shown { page: Page::Values, scroll: 500, ..Shown::default() };
        let text = screen(80, 8, &live(), &mut shown);
        assert!(text.contains("serial 3") && shown.scroll < 20, "{} {text}", shown.scroll);
    }

    #[test]
    fn plain_terminals_get_plain_signs() {
        let mut live = live();
        live.power.extend([1.0, 5.0, 10.0]);
        let text = screen(80, 24, &live, &mut Shown { ascii: true, ..Shown::default() });
        // The backend itself puts quotes around each row.
        assert!(text.is_ascii() && text.contains("#####---------------"), "{text}");
    }
}
