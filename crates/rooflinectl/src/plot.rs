//! The roofline in a terminal: both axes logarithmic, drawn with Braille dots, or with stars where only ASCII shows.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};

use super::chart::{Chart, Decades, Origin, Roof};
use super::output::Printer;

/// Columns for the labels of the vertical axis, the axis itself included.
const GUTTER: u16 = 7;
/// Below this a plot shows nothing.
const SMALLEST: (u16, u16) = (40, 12);
/// More would not be read.
const LARGEST: (u16, u16) = (160, 40);

/// The plot as lines of text.
#[must_use]
pub fn draw(chart: &Chart, printer: &Printer) -> String {
    let columns = printer.columns.clamp(SMALLEST.0, LARGEST.0);
    // Leaves room for the prompt and the axis below.
    let lines = printer.lines.saturating_sub(4).clamp(SMALLEST.1, LARGEST.1);
    let area = Rect::new(0, 0, columns - GUTTER, lines);
    let (x, y) = (chart.intensities(), chart.rates());
    let mut buffer = Buffer::empty(area);
    Canvas::default()
        .marker(if printer.ascii { Marker::Custom('*') } else { Marker::Braille })
        .x_bounds([f64::from(x.from), f64::from(x.to)])
        .y_bounds([f64::from(y.from), f64::from(y.to)])
        .paint(|context| {
            for line in lines_of(chart, x, y) {
                context.draw(&line);
            }
        })
        .render(area, &mut buffer);
    put_points(&mut buffer, chart, x, y, printer.ascii);
    put_labels(&mut buffer, chart, x, y);

    let mut text = String::from("FLOP/s or OP/s\n");
    for row in 0..lines {
        let label = tick_at(row, lines, y).map(rate_tick).unwrap_or_default();
        let axis = if label.is_empty() { '│' } else { '┤' };
        let axis = if printer.ascii { '|' } else { axis };
        let content = row_text(&buffer, row, printer.colour);
        let _ = writeln!(text, "{label:>width$}{axis}{content}", width = usize::from(GUTTER - 1));
    }
    text.push_str(&bottom(x, area.width, printer.ascii));
    text.push_str(&legend(chart, printer.ascii));
    let _ = writeln!(text, "{}", chart.caption);
    text
}

/// The slope up to its highest ridge, and each ceiling from its ridge on, in the logarithms.
fn lines_of(chart: &Chart, x: Decades, y: Decades) -> Vec<Line> {
    let slope_end = chart.peak().unwrap_or(10_f64.powi(y.to)).min(10_f64.powi(y.to));
    let start = 10_f64.powi(x.from).max(10_f64.powi(y.from) / chart.bandwidth);
    let line = |x1: f64, y1: f64, x2: f64, y2: f64| Line {
        x1: x1.log10(),
        y1: y1.log10(),
        x2: x2.log10(),
        y2: y2.log10(),
        color: Color::Reset,
    };
    let mut lines = vec![line(start, start * chart.bandwidth, slope_end / chart.bandwidth, slope_end)];
    let end = 10_f64.powi(x.to);
    lines.extend(chart.roofs.iter().map(|roof| line(chart.ridge(roof), roof.peak, end, roof.peak)));
    lines
}

/// The cell that a share of the area falls into, from its upper left corner.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the area")]
fn cell(area: Rect, across: f64, up: f64) -> (u16, u16) {
    let column = across.clamp(0.0, 1.0) * f64::from(area.width - 1);
    let row = (1.0 - up.clamp(0.0, 1.0)) * f64::from(area.height - 1);
    (column.round() as u16, row.round() as u16)
}

fn put_points(buffer: &mut Buffer, chart: &Chart, x: Decades, y: Decades, ascii: bool) {
    // Measured points come last, so that a prediction that is right does not hide them.
    for origin in [Origin::Predicted, Origin::Measured] {
        for point in chart.points.iter().filter(|point| point.origin == origin) {
            let position = cell(buffer.area, x.place(point.intensity), y.place(point.rate));
            let (symbol, colour) = mark(origin, ascii);
            buffer[position].set_symbol(symbol).set_style(Style::new().fg(colour));
        }
    }
}

const fn mark(origin: Origin, ascii: bool) -> (&'static str, Color) {
    match (origin, ascii) {
        (Origin::Measured, false) => ("●", Color::Green),
        (Origin::Measured, true) => ("o", Color::Green),
        (Origin::Predicted, false) => ("◇", Color::Yellow),
        (Origin::Predicted, true) => ("+", Color::Yellow),
    }
}

/// Each ceiling's name at its right end: above its line, or on it where another ceiling lies above; ceilings of one
/// height share a name. The slope's name beside it.
fn put_labels(buffer: &mut Buffer, chart: &Chart, x: Decades, y: Decades) {
    let area = buffer.area;
    let row_of = |roof: &Roof| cell(area, 1.0, y.place(roof.peak)).1;
    let lines: Vec<u16> = chart.roofs.iter().map(row_of).collect();
    let mut taken: Vec<(u16, String)> = Vec::new();
    for roof in &chart.roofs {
        let line = row_of(roof);
        let above = line.saturating_sub(1);
        let free = |row: u16, taken: &[(u16, String)]| taken.iter().all(|(other, _)| *other != row);
        let row = if !lines.contains(&above) && free(above, &taken) { above } else { line };
        match taken.iter_mut().find(|(other, _)| *other == row) {
            Some((_, label)) => {
                let joined = format!("{label}, {}", roof.label);
                // The table below the plot has every ceiling; here the highest of a crowd must do.
                if joined.len() <= usize::from(area.width) * 2 / 3 {
                    *label = joined;
                }
            }
            None => taken.push((row, roof.label.clone())),
        }
    }
    for (row, label) in &taken {
        let column = area.width.saturating_sub(u16::try_from(label.len()).unwrap_or(area.width));
        put_where_empty(buffer, column, *row, label);
    }
    let middle = x.place(chart.peak().unwrap_or(1.0) / chart.bandwidth) * 0.3;
    let rate = 10_f64.powf(f64::from(x.from) + middle * f64::from(x.to - x.from)) * chart.bandwidth;
    let (column, row) = cell(area, middle, y.place(rate));
    let row = row.saturating_sub(2);
    let column = column.saturating_sub(u16::try_from(chart.bandwidth_label.len() / 2).unwrap_or(0));
    put_where_empty(buffer, column, row, &chart.bandwidth_label);
}

/// Writes text without covering a point.
fn put_where_empty(buffer: &mut Buffer, column: u16, row: u16, text: &str) {
    for (symbol, column) in text.chars().zip(column..buffer.area.width) {
        let cell = &mut buffer[(column, row)];
        if cell.fg == Color::Reset {
            cell.set_char(symbol);
        }
    }
}

/// The exponent whose tick stands on this row.
fn tick_at(row: u16, lines: u16, y: Decades) -> Option<i32> {
    let area = Rect::new(0, 0, 2, lines);
    y.ticks().find(|tick| cell(area, 0.0, y.place(10_f64.powi(*tick))).1 == row)
}

/// `100 G` for 10^11.
fn rate_tick(exponent: i32) -> String {
    const PREFIXES: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    let group = exponent.div_euclid(3);
    match usize::try_from(group).ok().and_then(|group| PREFIXES.get(group)) {
        Some(prefix) => format!("{}{prefix}", 10_i32.pow(exponent.rem_euclid(3).unsigned_abs())),
        None => format!("1e{exponent}"),
    }
}

/// `0.1`, `1`, `10`, …
fn intensity_tick(exponent: i32) -> String {
    if (-3..=4).contains(&exponent) { 10_f64.powi(exponent).to_string() } else { format!("1e{exponent}") }
}

fn row_text(buffer: &Buffer, row: u16, colour: bool) -> String {
    let mut text = String::new();
    for column in 0..buffer.area.width {
        let cell = &buffer[(column, row)];
        let symbol = if cell.symbol() == "\u{2800}" { " " } else { cell.symbol() };
        let code = match cell.fg {
            Color::Green => "32",
            Color::Yellow => "33",
            _ => "",
        };
        if colour && !code.is_empty() {
            let _ = write!(text, "\x1b[{code}m{symbol}\x1b[0m");
        } else {
            text.push_str(symbol);
        }
    }
    text.trim_end().to_owned()
}

/// The horizontal axis with its ticks.
fn bottom(x: Decades, width: u16, ascii: bool) -> String {
    let (dash, tick_mark, corner) = if ascii { ('-', '+', '+') } else { ('─', '┴', '└') };
    let mut axis = vec![dash; usize::from(width)];
    let mut labels = vec![' '; usize::from(width)];
    let mut write = |middle: usize, text: &str| {
        let start = middle.saturating_sub(text.len() / 2).min(labels.len().saturating_sub(text.len()));
        for (symbol, place) in text.chars().zip(&mut labels[start..]) {
            *place = symbol;
        }
    };
    let column =
        |exponent: f64| usize::from(cell(Rect::new(0, 0, width, 2), x.place(10_f64.powf(exponent)), 0.0).0);
    // Between the last two ticks there is room for the unit.
    write(column(f64::from(x.to) - 0.5), "FLOP/byte");
    for tick in x.ticks() {
        let column = column(f64::from(tick));
        axis[column] = tick_mark;
        write(column, &intensity_tick(tick));
    }
    let margin = " ".repeat(usize::from(GUTTER - 1));
    let axis: String = axis.into_iter().collect();
    let labels: String = labels.into_iter().collect();
    format!("{margin}{corner}{axis}\n{margin} {}\n", labels.trim_end())
}

fn legend(chart: &Chart, ascii: bool) -> String {
    let entries = [(Origin::Measured, "measured"), (Origin::Predicted, "predicted")];
    let shown: Vec<_> = entries
        .into_iter()
        .filter(|(origin, _)| chart.has(*origin))
        .map(|(origin, name)| format!("{} {name}", mark(origin, ascii).0))
        .collect();
    if shown.is_empty() { String::new() } else { format!("{}\n", shown.join("   ")) }
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::example;
    use super::super::output::Format;
    use super::*;

    fn printer(columns: u16, ascii: bool) -> Printer {
        Printer { format: Format::Human, ascii, colour: false, columns, lines: 24 }
    }

    #[test]
    fn every_width_keeps_its_lines_within_it() {
        for columns in [10, 40, 80, 133, 400] {
            let text = draw(&example(), &printer(columns, false));
            let plot: Vec<_> = text.lines().filter(|line| line.contains(['│', '┤', '└'])).collect();
            assert_eq!(plot.len(), 21, "{text}");
            let limit = usize::from(columns.clamp(SMALLEST.0, LARGEST.0));
            assert!(plot.iter().all(|line| line.chars().count() <= limit), "{text}");
        }
    }

    #[test]
    fn ceilings_points_and_ticks_are_named() {
        let text = draw(&example(), &printer(100, false));
        for part in
            ["int8 2.00 TOP/s measured", "fp32 500 GFLOP/s scaled", "40.0 GB/s measured", "● measured"]
        {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        for tick in ["1 T┤", "100 G┤", "10 G┤", "0.1", "FLOP/byte"] {
            assert!(text.contains(tick), "no {tick:?} in\n{text}");
        }
    }

    #[test]
    fn ascii_is_ascii_and_colour_is_only_on_request() {
        let text = draw(&example(), &printer(80, true));
        assert!(text.is_ascii() && text.contains('*') && text.contains("o measured"), "{text}");
        assert!(!text.contains('\x1b'));
        let coloured = draw(&example(), &Printer { colour: true, ..printer(80, false) });
        assert!(coloured.contains("\x1b[32m●\x1b[0m"));
    }
}
