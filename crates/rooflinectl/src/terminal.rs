//! Asks the user at the terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Whether somebody can be asked.
pub fn is_attended() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The answer to a question with yes or no, of which no is the usual one; `None` where nobody answers in time.
pub async fn ask(question: &str, limit: Duration) -> Option<bool> {
    let _ = write!(std::io::stderr().lock(), "{question} [y/N] ");
    let (said, answer) = tokio::sync::oneshot::channel();
    // A read cannot be cancelled, hence a thread that the process does not wait for.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        let _ = said.send(read.is_ok() && line.trim().eq_ignore_ascii_case("y"));
    });
    tokio::time::timeout(limit, answer).await.ok().map(|answer| answer == Ok(true))
}
