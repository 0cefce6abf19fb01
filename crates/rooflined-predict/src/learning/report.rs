//! Who reported a measurement, and for whom it counts.

use serde::{Deserialize, Serialize};

use rooflined_core::refusal::{Code, Refusal};

/// Who reports: a process of a user, as the kernel or the bus says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    pub uid: u32,
    pub pid: Option<i32>,
    /// Root, the daemon's own user or a member of its group: its reports count for everybody.
    pub trusted: bool,
}

/// Where a report came from, and so for whom it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Source {
    /// Given with a question, for its answer only.
    #[default]
    Supposed,
    User {
        uid: u32,
        pid: Option<i32>,
        /// It counts for everybody, not for this user only.
        shared: bool,
    },
}

impl Source {
    #[must_use]
    pub fn of(reporter: &Reporter) -> Self {
        let &Reporter { uid, pid, trusted } = reporter;
        Self::User { uid, pid, shared: trusted }
    }

    /// The user whose report it is.
    #[must_use]
    pub const fn uid(&self) -> Option<u32> {
        if let Self::User { uid, .. } = self { Some(*uid) } else { None }
    }

    /// Whether it counts for one user, or one answer, only.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Supposed | Self::User { shared: false, .. })
    }
}

/// Number, source and date of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// No two reports have the same.
    pub id: u64,
    pub source: Source,
    /// Seconds since 1970.
    pub unix_s: f64,
}

/// How many reports moved an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Of the user who asks, or given with the question.
    pub own: u32,
    /// Of root, the daemon's user and its group.
    pub shared: u32,
}

impl Moved {
    /// Counts a report.
    pub const fn count(&mut self, source: &Source) {
        if source.is_own() { self.own += 1 } else { self.shared += 1 }
    }
}

/// Which reports are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this user only; `None` = those of every user.
    pub uid: Option<u32>,
    pub id: Option<u64>,
    /// Key of an engine of models or networks.
    pub engine: Option<String>,
    /// Key or path of a model, or name of a network.
    pub model: Option<String>,
    /// `gemv`, `gemm` or `attention`.
    pub op: Option<String>,
    /// As weights are stored, and the cache where that is unusual.
    pub format: Option<String>,
}

impl Selection {
    /// Whether a report of this is meant; `model` and `op` are `None` where it is of the other.
    #[must_use]
    pub fn takes(
        &self,
        report: &Report,
        engine: &str,
        model: Option<&str>,
        op: Option<&str>,
        format: &str,
    ) -> bool {
        let named = |asked: &Option<String>, found: Option<&str>| {
            asked.as_deref().is_none_or(|asked| Some(asked) == found)
        };
        (self.uid.is_none() || self.uid == report.source.uid())
            && self.id.is_none_or(|id| id == report.id)
            && named(&self.engine, Some(engine))
            && named(&self.model, model)
            && named(&self.op, op)
            && named(&self.format, Some(format))
    }
}

/// The store has no place for another user.
#[must_use]
pub fn too_many_users(most: usize) -> Refusal {
    Code::TooMany.error(
        format!("reports of {most} users are kept already, and none are dropped for a new user"),
        "ask an administrator to forget some: rooflinectl observations forget --user UID; or report as a member of group \
         rooflined",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_without_a_user_takes_everybodys() {
        let report =
            Report { id: 7, source: Source::User { uid: 1000, pid: Some(5), shared: false }, unix_s: 0.0 };
        let takes = |selection: Selection| {
            selection.takes(&report, "llama.cpp", Some("tinyllama-1.1b"), None, "q8_0")
        };
        assert!(takes(Selection::default()));
        assert!(takes(Selection { uid: Some(1000), id: Some(7), ..Selection::default() }));
        assert!(!takes(Selection { uid: Some(1001), ..Selection::default() }));
        assert!(!takes(Selection { op: Some("gemv".into()), ..Selection::default() }));
        assert!(!takes(Selection { model: Some("tinyllama".into()), ..Selection::default() }));
    }
}
