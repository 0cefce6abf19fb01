//! Switching power modes: what the privileged helper is asked for, and what it says came of it.
//!
//! Success is what the live files read back, never an exit code and never what `nvpmodel -q` says.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ActiveMode, Knob, OperatingPoint};
use crate::keyed;
use crate::refusal::{Code, Refusal};
use crate::units::Seconds;

keyed! {
    /// What came of a switch.
    SwitchOutcome {
        /// The live files show the mode that was asked for.
        Applied = "applied",
        /// It takes effect only after a reboot, which nobody here will answer yes to. Nothing was changed.
        RebootRequired = "reboot_required",
        /// The tool, the configuration or a precondition said no. Nothing was changed.
        Refused = "refused",
        /// It was tried, and the live files do not show the mode; the original one was restored where that was possible.
        NotApplied = "not_applied",
    }
}

/// A file that does not hold what the mode says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub path: String,
    /// What the mode would have there.
    pub expected: String,
    /// What it holds; the reason where it could not be read.
    pub found: String,
}

/// What the live files say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadBack {
    /// The mode that they match; `None` where they match none.
    pub mode: Option<ActiveMode>,
    pub point: OperatingPoint,
    /// Where they differ from the mode that was asked for.
    pub differences: Vec<Difference>,
}

/// What came of a switch, with the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwitchReport {
    pub outcome: SwitchOutcome,
    pub asked: ActiveMode,
    /// What was active before.
    pub before: Option<ActiveMode>,
    /// What is in force now.
    pub reached: ReadBack,
    pub message: String,
    /// What to do next where it is not `applied`.
    #[serde(default)]
    pub hint: Option<String>,
    /// What would be written, in order; filled for a dry run.
    #[serde(default)]
    pub writes: Vec<(String, String)>,
    pub took: Seconds,
}

/// A switch that is not settled: what the journal holds, synced to the disk before the first write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The boot it was written in; another boot's switch is undone, not adopted.
    pub boot_id: String,
    /// The mode to go back to.
    pub original: ActiveMode,
    /// The mode asked for last.
    pub target: ActiveMode,
    pub phase: SwitchPhase,
}

/// How far a journalled switch came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchPhase {
    /// The tool was or is about to be run.
    Started,
    /// The live files showed the target; it is kept while the daemon stays connected, and undone when it goes.
    Applied,
    /// The original is being restored.
    Restoring,
}

/// One order to the privileged helper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Order {
    /// Enter a mode. It is provisional until settled: it is undone when the connection closes, or some time later.
    SetMode {
        /// Which, by its number in the privileged helper's own reading of the modes.
        id: u32,
        /// Its name; both must agree, so that a stale number harms nobody.
        name: String,
        knob: Knob,
        /// Say what would be done, and do nothing.
        dry_run: bool,
        /// Undo it only this long after the connection has closed, unless another client takes it over by asking for the
        /// same mode; `None` = at once.
        #[serde(rename = "keep_s", default, skip_serializing_if = "Option::is_none")]
        keep: Option<Seconds>,
    },
    /// What was entered last is meant to stay.
    Settle,
    /// Go back to the journalled original.
    Restore,
    /// Tell the journal and what the live files say.
    Status,
}

/// The answer to one [`Order`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum OrderAnswer {
    /// To [`Order::SetMode`] and [`Order::Restore`].
    Switched {
        report: SwitchReport,
    },
    /// To [`Order::Settle`].
    Settled,
    /// To [`Order::Status`].
    Status {
        /// A switch that is not settled.
        journal: Option<JournalEntry>,
        /// What was done about a journal found at start: `adopted`, `restored`, or why not; `None` if there was none.
        recovered: Option<String>,
        /// What the live files say.
        now: ReadBack,
    },
    Failed(OrderFailure),
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFailure {
    pub message: String,
    /// What to do; `None` where nothing special can be said.
    #[serde(default)]
    pub hint: Option<String>,
}

impl OrderFailure {
    /// With what to do.
    pub fn with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }

    /// For the user who asked for it.
    #[must_use]
    pub fn refusal(self, code: Code) -> Refusal {
        code.error(self.message, self.hint.unwrap_or_else(|| "rooflinectl doctor checks more".to_owned()))
    }
}

impl From<String> for OrderFailure {
    fn from(message: String) -> Self {
        Self { message, hint: None }
    }
}

impl From<&str> for OrderFailure {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl std::error::Error for OrderFailure {}

/// Both in one line.
impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&self.message, self.hint.as_deref()))
    }
}

impl SwitchReport {
    /// For the user who asked for a mode that is not active.
    #[must_use]
    pub fn refusal(self, code: Code) -> Refusal {
        OrderFailure { message: self.message, hint: self.hint }.refusal(code)
    }

    /// The message and what to do next, in one line.
    #[must_use]
    pub fn words(&self) -> String {
        in_one_line(&self.message, self.hint.as_deref())
    }
}

fn in_one_line(message: &str, hint: Option<&str>) -> String {
    hint.map_or_else(|| message.to_owned(), |hint| format!("{message}; {hint}"))
}
