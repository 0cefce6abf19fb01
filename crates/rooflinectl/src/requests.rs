//! `predict --requests FILE`: one request a line, one answer a line, in order. A bad line gets an error line.
//!
//! Lines that name hardware are answered here from its data sheet, the others by the daemon. Nothing grows with the
//! number of lines, and what has been answered is written before the next line is waited for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use serde::Serialize;

use super::Context;
use super::failure::{Exit, Failure};
use super::working::{Counted, Working};
use rooflined_advice::parse::parse;
use rooflined_advice::{Catalogue, Request, suppose};
use rooflined_api::{ErrorBody, PredictRequest};
use rooflined_client::{Client, ClientError};
use rooflined_core::refusal::{Code, Refusal};

/// A line that is answered.
const EXAMPLE: &str = "{\"hardware\": \"orin-nano\", \"workload\": {\"model\": \"qwen3-4b\"}}";
/// Longest line taken; the daemon takes no larger body.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Bytes read and written at once.
const BUFFER: usize = 64 << 10;

/// Answers every line of `file` (`-`: standard input). Lines that are refused do not end the run; it fails at its end
/// then.
pub async fn run(context: &mut Context, file: &Path) -> Result<Exit, Failure> {
    let catalogue = context.catalogue();
    let working = Working::beside_output(&context.printer, Counted::Lines, "answered");
    let mut run = Run {
        client: &mut context.client,
        catalogue: &catalogue,
        gone: None,
        line: 0,
        refused: 0,
        first: None,
        working: &working,
    };
    if file == Path::new("-") {
        run.all(io::stdin().lock()).await?;
    } else if file.is_dir() {
        return Err(Failure::wrong_file(
            format!("{} cannot be read: it is a directory", file.display()),
            "give a file of JSON lines, or - for standard input",
        ));
    } else {
        let opened = File::open(file).map_err(|error| unreadable(&file.display().to_string(), &error))?;
        run.all(opened).await?;
    }
    let Run { refused, line, first, .. } = run;
    drop(working);
    if line == 0 {
        let input = if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() };
        return Err(Failure::wrong_file(
            format!("{input} holds no request"),
            format!("write one on each line: {EXAMPLE}"),
        ));
    }
    let Some((at, error)) = first else { return Ok(Exit::Ok) };
    Err(Failure::failed(
        format!("{refused} of {line} requests were refused, the first in line {at}: {}", error.message),
        match error.code.as_str() {
            // For a file of another kind the shape of a line helps, and the rules of JSON do not.
            "invalid_json" if refused == line => format!("write one on each line: {EXAMPLE}"),
            _ => error.hint.unwrap_or_else(|| "the answer to each line says why".to_owned()),
        },
    ))
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    Failure::wrong_file(
        format!("{what} cannot be read: {error}"),
        "give a file of JSON lines, or - for standard input",
    )
}

/// An error with the line that it is about.
#[derive(Serialize)]
struct Refused<'a> {
    error: &'a ErrorBody,
    line: u64,
}

struct Run<'a> {
    client: &'a mut Client,
    catalogue: &'a Catalogue,
    /// Why there is no daemon. It is looked for once: a million lines would wait a million times.
    gone: Option<ErrorBody>,
    line: u64,
    refused: u64,
    /// The first that was refused, and why.
    first: Option<(u64, ErrorBody)>,
    working: &'a Working,
}

impl Run<'_> {
    /// Reads blockingly: nothing else is to be done until the next line is there.
    async fn all(&mut self, input: impl Read) -> Result<(), Failure> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let mut output = io::BufWriter::with_capacity(BUFFER, io::stdout().lock());
        let mut line = Vec::new();
        loop {
            let read = next_line(&mut input, &mut line, &mut output).map_err(|error| match error {
                LineError::Input(error) => unreadable(&format!("line {}", self.line + 1), &error),
                LineError::Output(error) => error.into(),
            })?;
            self.line += 1;
            let answered = match read {
                Line::End => {
                    self.line -= 1;
                    break;
                }
                Line::TooLong => Err(too_long().into()),
                Line::Whole => self.answer(&line, &mut output).await?,
            };
            if let Err(error) = answered {
                self.refused += 1;
                write_json(&mut output, &Refused { error: &error, line: self.line })?;
                self.first.get_or_insert((self.line, error));
            }
            output.write_all(b"\n")?;
            self.working.advance(1);
        }
        Ok(output.flush()?)
    }

    /// Writes the answer to one line without its end, or says why there is none.
    async fn answer(
        &mut self,
        line: &[u8],
        output: &mut impl Write,
    ) -> Result<Result<(), ErrorBody>, Failure> {
        let request = match parse::<PredictRequest>(line) {
            Ok(request) => request,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if request.hardware.is_some() {
            return match suppose(self.catalogue, &Request::Predict(request)) {
                Ok(answer) => write_json(output, &answer).map(Ok),
                Err(refusal) => Ok(Err(refusal.into())),
            };
        }
        if let Some(gone) = &self.gone {
            return Ok(Err(gone.clone()));
        }
        match self.client.post_bytes("/v1/predict", line.to_vec()).await {
            Ok(answer) => {
                output.write_all(&on_one_line(&answer.body))?;
                Ok(Ok(()))
            }
            Err(ClientError::Refused { body, .. }) => Ok(Err(body)),
            Err(other) => {
                let gone = without_daemon(&other);
                self.gone = Some(gone.clone());
                Ok(Err(gone))
            }
        }
    }
}

fn write_json(output: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    // Our own types have string keys and no failing implementation, so only writing can fail.
    serde_json::to_writer(output, value).map_err(|error| Failure::from(io::Error::from(error)))
}

fn without_daemon(error: &ClientError) -> ErrorBody {
    let start = error.hint().map_or_else(String::new, |hint| format!("; or {hint}"));
    ErrorBody {
        code: "unreachable".to_owned(),
        message: error.to_string(),
        field: Some("hardware".to_owned()),
        hint: Some(format!("name the hardware, which needs no daemon: rooflinectl hardware list{start}")),
        problems: Box::default(),
    }
}

enum Line {
    /// It is in the buffer, without its end.
    Whole,
    /// Read to its end and thrown away.
    TooLong,
    /// There is none.
    End,
}

enum LineError {
    Input(io::Error),
    Output(io::Error),
}

/// Reads the next line into `line`, no more than [`MAX_LINE_BYTES`] of it. Before it waits for input, it lets go of
/// what waits to be written.
fn next_line(
    input: &mut BufReader<impl Read>,
    line: &mut Vec<u8>,
    output: &mut impl Write,
) -> Result<Line, LineError> {
    line.clear();
    if !input.buffer().contains(&b'\n') {
        output.flush().map_err(LineError::Output)?;
    }
    let limit = MAX_LINE_BYTES as u64 + 1;
    let read = input.by_ref().take(limit).read_until(b'\n', line).map_err(LineError::Input)?;
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() > MAX_LINE_BYTES {
        input.skip_until(b'\n').map_err(LineError::Input)?;
        return Ok(Line::TooLong);
    }
    Ok(if read == 0 { Line::End } else { Line::Whole })
}

fn too_long() -> Refusal {
    Code::BodyTooLarge.error(
        format!("the line is longer than {} KiB", MAX_LINE_BYTES >> 10),
        "put one request on each line",
    )
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
        let (mut seen, mut line) = (Vec::new(), Vec::new());
        loop {
            let read = next_line(&mut input, &mut line, &mut io::sink());
            seen.push(match read.unwrap_or_else(|_| unreachable!("a slice can be read")) {
                Line::Whole => String::from_utf8(line.clone()).unwrap(),
                Line::TooLong => "too long".to_owned(),
                Line::End => break,
            });
        }
        assert_eq!(seen, ["{}", "", "too long", "last"]);
    }
}
