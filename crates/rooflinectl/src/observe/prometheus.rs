//! The text format of Prometheus, as servers write it: read leniently, for not all quote their labels or separate with blanks.

use std::collections::BTreeMap;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    pub labels: BTreeMap<&'a str, &'a str>,
    pub value: f64,
}

/// Every sample of a page; lines that are none are passed over.
pub fn samples(page: &str) -> Vec<Sample<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = line.split_at(line.find(|c: char| c == '{' || c.is_whitespace())?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_at(closing(rest)?),
        None => ("", rest),
    };
    let value = rest.trim_start_matches('}').split_whitespace().next()?.parse().ok()?;
    (!name.is_empty()).then(|| Sample { name, labels: pairs(labels), value })
}

/// Where the brace closes that is not inside quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().find_map(|(index, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(index),
            _ => {}
        }
        None
    })
}

/// `a="b",c=d`; a comma inside quotes belongs to the value.
fn pairs(text: &str) -> BTreeMap<&str, &str> {
    let mut quoted = false;
    let parts = text.split(|c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_and_without_quotes_are_read() {
        let page = "# HELP a b\na{x=\"1,} 2\",y=z} 4.5\nb 1.003e+06 1700000000\nmean{batch_size=2}\t0.015\n";
        let found = samples(page);
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].name, found[0].value), ("a", 4.5));
        assert_eq!(found[0].labels, BTreeMap::from([("x", "1,} 2"), ("y", "z")]));
        assert_eq!((found[1].name, found[1].value), ("b", 1_003_000.0));
        assert_eq!((found[2].labels["batch_size"], found[2].value), ("2", 0.015));
    }

    #[test]
    fn lines_that_are_no_samples_are_passed_over() {
        assert_eq!(samples("\n{} 1\nname\nname{x=\"1\n name x\n<html> 3 </html>\n").len(), 1);
        assert!(samples("a{x=\"\\\"}\"} 1")[0].labels.contains_key("x"));
    }
}
