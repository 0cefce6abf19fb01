//! `watch --events`: one line for each event, until interrupted or until the daemon goes.

use super::Context;
use super::failure::Failure;
use super::output::Format;

/// Prints events as they come; with `-o json` or `jsonl` each as one JSON object.
pub async fn run(context: &mut Context) -> Result<(), Failure> {
    let mut events = context.client.events().await?;
    while let Some(event) = events.next().await? {
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap_or(event.data.into());
        match context.printer.format {
            Format::Human => context.printer.line(&format!("{:<12} {data}", event.name))?,
            _ => {
                let line = serde_json::json!({ "event": event.name, "data": data });
                context.printer.json(line.to_string().as_bytes())?;
            }
        }
    }
    Err(Failure::failed(
        "the daemon has ended the stream of events",
        "look at why with: journalctl -u rooflined",
    ))
}
