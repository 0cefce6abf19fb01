//! `predict --requests FILE`: one request a line, one answer a line, in order. A bad line gets an error line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::Context;
use super::failure::Failure;
use crate::api::ErrorBody;
use crate::client::ClientError;

/// Longest line sent; the daemon takes no larger body.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Answers every line of `file` (`-`: standard input). Lines that are refused do not end the run.
pub async fn run(context: &mut Context, file: &Path) -> Result<(), Failure> {
    if file == Path::new("-") {
        return answer_all(context, io::stdin().lock()).await;
    }
    let opened = File::open(file).map_err(|error| unreadable(&file.display().to_string(), &error))?;
    answer_all(context, BufReader::new(opened)).await
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    Failure::failed(
        format!("{what} cannot be read: {error}"),
        "give a file of JSON lines, or - for standard input",
    )
}

/// Reads blockingly: nothing else is to be done until the next line is there.
async fn answer_all(context: &mut Context, mut input: impl BufRead) -> Result<(), Failure> {
    let (mut number, mut refused) = (0_u64, 0_u64);
    loop {
        let line =
            next_line(&mut input).map_err(|error| unreadable(&format!("line {}", number + 1), &error))?;
        let Some(line) = line else { break };
        number += 1;
        let outcome = match line {
            Line::Whole(body) => context.client.post_bytes("/v1/predict", body).await,
            Line::TooLong => Err(ClientError::Refused { status: 413, body: too_long() }),
        };
        match outcome {
            Ok(answer) => context.printer.json(&on_one_line(&answer.body))?,
            Err(ClientError::Refused { body, .. }) => {
                refused += 1;
                let error = serde_json::json!({ "error": body, "line": number });
                context.printer.json(error.to_string().as_bytes())?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    if refused > 0 {
        use io::Write;
        let _ =
            writeln!(io::stderr().lock(), "{refused} of {number} requests were refused; their lines say why");
    }
    Ok(())
}

enum Line {
    Whole(Vec<u8>),
    /// Read to its end and thrown away.
    TooLong,
}

/// The next line without its end; `None` at the end of the input. Holds no more than [`MAX_LINE_BYTES`] of it.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut too_long = false;
    let mut began = false;
    loop {
        let available = input.fill_buf()?;
        if available.is_empty() {
            break;
        }
        began = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        too_long |= line.len() + part.len() > MAX_LINE_BYTES;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = end.map_or(part.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(began.then_some(if too_long { Line::TooLong } else { Line::Whole(line) }))
}

fn too_long() -> ErrorBody {
    ErrorBody {
        code: "body_too_large".to_owned(),
        message: format!("the line is longer than {} KiB", MAX_LINE_BYTES >> 10),
        field: None,
        hint: Some("put one request on each line".to_owned()),
    }
}

/// Line ends within JSON are only ever blanks between its parts.
fn on_one_line(body: &[u8]) -> Vec<u8> {
    body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_the_next_one_is_found() {
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let text = format!("{{}}\n\n{long}\nlast");
        let mut input = BufReader::with_capacity(100, text.as_bytes());
        let mut seen = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            seen.push(match line {
                Line::Whole(line) => String::from_utf8(line).unwrap(),
                Line::TooLong => "too long".to_owned(),
            });
        }
        assert_eq!(seen, ["{}", "", "too long", "last"]);
    }
}
