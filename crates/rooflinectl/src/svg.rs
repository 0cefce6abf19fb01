//! The roofline as an SVG file: both axes logarithmic, one unit of the image a pixel.

use std::fmt::Write;

use super::chart::{Chart, Decades, Origin};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 90.0;
/// Height of a line of small text.
const LINE: f64 = 13.0;

const STYLE: &str = "text{font-family:sans-serif;font-size:12px;fill:#222}.small{font-size:10px;fill:#444}\
                     .title{font-size:16px}.grid{stroke:#ddd;stroke-width:1}.minor{stroke:#f1f1f1;stroke-width:1}\
                     .roof{stroke:#1f4e8c;stroke-width:2;fill:none}.ridge{stroke:#1f4e8c;stroke-dasharray:3 4}\
                     .measured{fill:#1a7f37}.predicted{fill:none;stroke:#b35900;stroke-width:1.5}";

/// The coordinates of the plot.
struct Frame {
    x: Decades,
    y: Decades,
}

impl Frame {
    fn across(&self, intensity: f64) -> f64 {
        LEFT + self.x.place(intensity).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(rate).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The plot as an SVG document.
#[must_use]
pub fn render(chart: &Chart) -> String {
    let frame = Frame { x: chart.intensities(), y: chart.rates() };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>Roofline</title>\n<desc>{}</desc>\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>",
        escaped(&chart.caption)
    );
    text(&mut out, LEFT, 28.0, "title", "start", "Roofline");
    grid(&mut out, &frame);
    ceilings(&mut out, chart, &frame);
    points(&mut out, chart, &frame);
    text(&mut out, LEFT, HEIGHT - 16.0, "small", "start", &chart.caption);
    legend(&mut out, chart);
    out.push_str("</svg>\n");
    out
}

fn grid(out: &mut String, frame: &Frame) {
    for tick in frame.x.ticks() {
        for minor in 2..10 {
            let value = f64::from(minor) * 10_f64.powi(tick);
            if tick < frame.x.to {
                line(out, "minor", (frame.across(value), TOP), (frame.across(value), HEIGHT - BOTTOM));
            }
        }
    }
    for tick in frame.x.ticks() {
        let x = frame.across(10_f64.powi(tick));
        line(out, "grid", (x, TOP), (x, HEIGHT - BOTTOM));
        text(out, x, HEIGHT - BOTTOM + 18.0, "", "middle", &tick_label(tick));
    }
    for tick in frame.y.ticks() {
        let y = frame.down(10_f64.powi(tick));
        line(out, "grid", (LEFT, y), (WIDTH - RIGHT, y));
        text(out, LEFT - 8.0, y + 4.0, "", "end", &tick_label(tick));
    }
    text(
        out,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - BOTTOM + 38.0,
        "",
        "middle",
        "arithmetic intensity, FLOP/byte",
    );
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"20\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 20 {middle:.1})\">FLOP/s or OP/s</text>"
    );
}

/// `0.1`, `1`, `10`, and `10^9` with the power raised beyond that.
fn tick_label(exponent: i32) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if (-3..=3).contains(&exponent) {
        return 10_f64.powi(exponent).to_string();
    }
    let digits = exponent.to_string();
    let raised =
        digits.chars().map(|c| c.to_digit(10).and_then(|d| RAISED.get(d as usize)).copied().unwrap_or('⁻'));
    format!("10{}", raised.collect::<String>())
}

fn ceilings(out: &mut String, chart: &Chart, frame: &Frame) {
    let lowest = (10_f64.powi(frame.x.from)).max(10_f64.powi(frame.y.from) / chart.bandwidth);
    let highest = chart.peak().unwrap_or(10_f64.powi(frame.y.to));
    let start = (frame.across(lowest), frame.down(lowest * chart.bandwidth));
    let end = (frame.across(highest / chart.bandwidth), frame.down(highest));
    line(out, "roof", start, end);
    let angle = (end.1 - start.1).atan2(end.0 - start.0).to_degrees();
    let (x, y) = (start.0 + (end.0 - start.0) * 0.3, start.1 + (end.1 - start.1) * 0.3);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate({angle:.1} {x:.1} {y:.1})\">{}</text>",
        y - 6.0,
        escaped(&chart.bandwidth_label)
    );
    let mut last = f64::NEG_INFINITY;
    for roof in &chart.roofs {
        let (ridge, y) = (frame.across(chart.ridge(roof)), frame.down(roof.peak));
        line(out, "roof", (ridge, y), (WIDTH - RIGHT, y));
        line(out, "ridge", (ridge, y), (ridge, HEIGHT - BOTTOM));
        // Ceilings that lie close get their names one below the other.
        let place = (y - 5.0).max(last + LINE);
        last = place;
        let label = format!("{}, ridge {:.1}", roof.label, chart.ridge(roof));
        text(out, WIDTH - RIGHT - 4.0, place, "", "end", &label);
    }
}

fn points(out: &mut String, chart: &Chart, frame: &Frame) {
    let mut labels: Vec<(f64, f64, &str)> = Vec::new();
    for point in &chart.points {
        let (x, y) = (frame.across(point.intensity), frame.down(point.rate));
        let _ = match point.origin {
            Origin::Measured => {
                writeln!(out, "<circle class=\"measured\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>")
            }
            Origin::Predicted => {
                writeln!(out, "<path class=\"predicted\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6-6z\"/>", y - 6.0)
            }
        };
        // A point and its prediction need one label between them.
        if labels.iter().all(|(_, _, label)| *label != point.label) {
            labels.push((x + 9.0, y + 4.0, &point.label));
        }
    }
    labels.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    for (x, y, label) in labels {
        #[expect(clippy::cast_precision_loss, reason = "a label has a few dozen characters")]
        let width = label.chars().count() as f64 * 5.6;
        let mut y = y;
        for (other_x, other_y, other_width) in &placed {
            let apart = x > other_x + other_width || x + width < *other_x;
            if !apart && (y - other_y).abs() < LINE - 1.0 {
                y = other_y + LINE - 1.0;
            }
        }
        placed.push((x, y, width));
        text(out, x, y, "small", "start", label);
    }
}

fn legend(out: &mut String, chart: &Chart) {
    let y = 24.0;
    let mut x = WIDTH - RIGHT - 190.0;
    if chart.has(Origin::Measured) {
        let _ = writeln!(out, "<circle class=\"measured\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        text(out, x + 10.0, y + 4.0, "", "start", "measured");
        x += 100.0;
    }
    if chart.has(Origin::Predicted) {
        let _ = writeln!(out, "<path class=\"predicted\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6-6z\"/>", y - 6.0);
        text(out, x + 10.0, y + 4.0, "", "start", "predicted");
    }
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, class: &str, anchor: &str, content: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let content = escaped(content);
    let _ = writeln!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

/// Text as XML takes it; control characters have no place in it at all.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::example;
    use super::*;

    /// Every tag is closed in order, and no bare `&` or `<` is left in text: enough to be well-formed here.
    fn well_formed(xml: &str) -> bool {
        let mut open = Vec::new();
        for part in xml.split('<').skip(1) {
            let Some((tag, text)) = part.split_once('>') else { return false };
            if text.contains("& ") || text.replace("&amp;", "").replace("&lt;", "").contains("&<") {
                return false;
            }
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match tag {
                _ if tag.starts_with('?') || tag.ends_with('/') => {}
                _ if tag.starts_with('/') => {
                    if open.pop() != Some(name.to_owned()) {
                        return false;
                    }
                }
                _ => open.push(name.to_owned()),
            }
        }
        open.is_empty()
    }

    #[test]
    fn the_document_is_well_formed_and_names_everything() {
        let svg = render(&example());
        assert!(well_formed(&svg), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        for part in
            ["int8 2.00 TOP/s measured, ridge 50.0", "40.0 GB/s measured", "gemv &lt;&amp;&gt; &quot;x&quot;"]
        {
            assert!(svg.contains(part), "no {part:?}");
        }
        assert_eq!(svg.matches("measured 2026-11-20").count(), 2, "caption and description");
    }
}
