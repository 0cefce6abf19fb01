//! The privileged helper: whether it can be reached, and whether its journal is known.

use rooflined_core::board::OrderFailure;

/// What this program knows of the helper.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) connection: Connection,
    /// Its journal has been asked for at least once.
    pub(super) asked_once: bool,
    /// Attempts in a row to undo what an earlier run left behind.
    pub(super) failed_undos: u32,
}

#[derive(Debug)]
pub(super) enum Connection {
    Lost {
        problem: OrderFailure,
    },
    /// What its journal says is not known, or not any more.
    JournalUnread,
    /// Its journal has been asked for.
    JournalRead,
}

impl Helper {
    pub(super) const fn new() -> Self {
        Self { connection: Connection::JournalUnread, asked_once: false, failed_undos: 0 }
    }

    /// Why it cannot be reached.
    pub(super) fn problem(&self) -> Option<&OrderFailure> {
        match &self.connection {
            Connection::Lost { problem } => Some(problem),
            Connection::JournalUnread | Connection::JournalRead => None,
        }
    }

    /// An order may have been carried out of which nothing was heard; the journal knows.
    pub(super) fn distrust_journal(&mut self) {
        if matches!(self.connection, Connection::JournalRead) {
            self.connection = Connection::JournalUnread;
        }
    }
}
