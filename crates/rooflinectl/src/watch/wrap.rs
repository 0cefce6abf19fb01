//! Lines that are no wider than the screen.

/// The words of `text` in lines of at most `width` characters, all but the first indented; a word that is longer is cut.
pub fn wrap_text(text: &str, width: usize, indent: usize) -> Vec<String> {
    let width = width.max(1);
    let indent = if indent * 2 < width { indent } else { 0 };
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    let mut used = 0;
    // Blanks that line up columns belong to the word before them.
    for word in text.split_inclusive(' ') {
        let bare = word.trim_end().chars().count();
        if used + bare > width && used > indent {
            lines.push(" ".repeat(indent));
            used = indent;
        }
        if used == indent && lines.len() > 1 && bare == 0 {
            continue;
        }
        for letter in word.chars() {
            if used >= width {
                if letter == ' ' {
                    break;
                }
                lines.push(" ".repeat(indent));
                used = indent;
            }
            if let Some(line) = lines.last_mut() {
                line.push(letter);
            }
            used += 1;
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// `text`, or its beginning and a sign that there is more.
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { String::new() } else { format!("{}…", kept.trim_end()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_and_no_line_is_too_long() {
        let text = "heat        cpu 41.5 °C, gpu 40.0 °C, soc0 41.0 °C, soc1 41.2 °C, tj 42.0 °C";
        for width in 1..90 {
            let lines = wrap_text(text, width, 12);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text), "{width}");
        }
        let lines = wrap_text(text, 40, 12);
        assert_eq!(lines[0], "heat        cpu 41.5 °C, gpu 40.0 °C,");
        assert_eq!(lines[1], "            soc0 41.0 °C, soc1 41.2 °C,");
        assert_eq!(wrap_text("short", 80, 12), ["short"]);
        assert_eq!(wrap_text("", 80, 12), [""]);
    }

    #[test]
    fn a_name_that_is_too_long_says_so() {
        assert_eq!(shortened("NVIDIA Jetson Orin Nano", 14), "NVIDIA Jetson…");
        assert_eq!(
            (shortened("abc", 3), shortened("abc", 1), shortened("abc", 0)),
            ("abc".into(), "…".into(), String::new())
        );
    }
}
