//! Who reported what was measured, and whom it moves.

use serde::{Deserialize, Serialize};

use roofline::refusal::{Code, Refusal};

/// So many users whose reports agree are believed by everybody: one liar and one honest mistake are not enough.
pub const AGREEING_USERS: usize = 3;
/// How closely reports must agree, as a ratio.
pub const AGREEMENT_RATIO: f64 = 1.25;
/// A report further from what was predicted than this ratio, and than [`DOUBT_SDS`] standard deviations of the prediction,
/// is doubted: it widens the interval and moves nothing.
pub const DOUBT_RATIO: f64 = 4.0;
pub const DOUBT_SDS: f64 = 2.0;
/// So many doubted reports that agree with each other are believed after all, by whoever they would move.
pub const BELIEVED_REPORTS: usize = 3;

/// Whether a report is doubted whose logarithm is off by `error` from a prediction with this standard deviation.
#[must_use]
pub fn is_doubtful(error: f64, log_sd: f64) -> bool {
    error.abs() > DOUBT_RATIO.ln().max(DOUBT_SDS * log_sd)
}

/// Whether two logarithms agree.
#[must_use]
pub fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() < AGREEMENT_RATIO.ln()
}

/// The middle of some values, the lower one of an even number: one of them, so that nobody's value is made up.
#[must_use]
pub fn lower_median<T: Clone>(values: &[T], key: impl Fn(&T) -> f64) -> Option<T> {
    let mut sorted: Vec<&T> = values.iter().collect();
    sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    sorted.get(sorted.len().saturating_sub(1) / 2).map(|value| (*value).clone())
}

/// What independent users, one value each, agree on: the value in the middle and how many agree with it. `None` unless
/// these are [`AGREEING_USERS`] at least and more than half of all.
#[must_use]
pub fn agreed<T: Clone>(users: &[T], key: impl Fn(&T) -> f64) -> Option<(T, usize)> {
    let centre = lower_median(users, &key)?;
    let agreeing = users.iter().filter(|value| agree(key(value), key(&centre))).count();
    (agreeing >= AGREEING_USERS && 2 * agreeing > users.len()).then_some((centre, agreeing))
}

/// Who reports: a process of a user, as the kernel or the bus says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    pub uid: u32,
    pub pid: Option<i32>,
    /// Root, the daemon's own user or a member of its group: everybody believes what it reports.
    pub trusted: bool,
}

/// Where a report came from, and so whom it moves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Source {
    /// Kept by a version that did not ask who.
    #[default]
    Unrecorded,
    /// Given with a question, for its answer only.
    Supposed,
    User {
        uid: u32,
        pid: Option<i32>,
        /// By whom everybody was told to believe it: a trusted reporter itself, or who confirmed it. `None`: it moves the
        /// answers of this user only.
        confirmed_by: Option<u32>,
    },
    /// The middle of what independent users reported.
    Agreed { users: u32 },
}

impl Source {
    #[must_use]
    pub fn of(reporter: &Reporter) -> Self {
        let &Reporter { uid, pid, trusted } = reporter;
        Self::User { uid, pid, confirmed_by: trusted.then_some(uid) }
    }

    /// The user whose report it is.
    #[must_use]
    pub const fn uid(&self) -> Option<u32> {
        if let Self::User { uid, .. } = self { Some(*uid) } else { None }
    }

    /// Whether it moves the answers of one user, or one answer, only.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Supposed | Self::User { confirmed_by: None, .. })
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
    /// That everybody believes.
    pub confirmed: u32,
    /// That are doubted: they widened the interval and moved nothing.
    pub doubted: u32,
}

impl Moved {
    /// Counts a report that is believed.
    pub const fn count(&mut self, source: &Source) {
        if source.is_own() { self.own += 1 } else { self.confirmed += 1 }
    }
}

/// Which reports are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this user only; `None` = whoever reported them.
    pub uid: Option<u32>,
    pub id: Option<u64>,
    pub engine: Option<crate::Engine>,
    /// Key or path of a model.
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
        engine: crate::Engine,
        model: Option<&str>,
        op: Option<&str>,
        format: &str,
    ) -> bool {
        let named = |asked: &Option<String>, found: Option<&str>| {
            asked.as_deref().is_none_or(|asked| Some(asked) == found)
        };
        (self.uid.is_none() || self.uid == report.source.uid())
            && self.id.is_none_or(|id| id == report.id)
            && self.engine.is_none_or(|asked| asked == engine)
            && named(&self.model, model)
            && named(&self.op, op)
            && named(&self.format, Some(format))
    }
}

/// The store has no place for another user.
#[must_use]
pub fn too_many_users(most: usize) -> Refusal {
    Code::TooMany.error(
        format!("reports of {most} users are kept already, and nobody's make way for a stranger's"),
        "ask an administrator to forget some: rooflinectl observations forget --user UID; or report as a member of group \
         rooflined",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_agree_by_the_middle_and_not_by_the_mean() {
        let of = |times: &[f64]| agreed(times, |time| time.ln());
        assert_eq!(of(&[1.0, 1.05]), None, "two are not enough");
        assert_eq!(of(&[1.0, 1.05, 40.0]), None, "nor two of three");
        assert_eq!(of(&[1.0, 1.05, 40.0, 1.1]), Some((1.05, 3)));
        assert_eq!(of(&[40.0, 0.01, 1.05, 1.0, 1.1]), Some((1.05, 3)));
        assert_eq!(of(&[1.0, 1.05, 1.1, 40.0, 41.0, 42.0]), None, "half against half is no agreement");
    }

    #[test]
    fn a_selection_without_a_user_takes_everybodys() {
        let report = Report {
            id: 7,
            source: Source::User { uid: 1000, pid: Some(5), confirmed_by: None },
            unix_s: 0.0,
        };
        let takes = |selection: Selection| {
            selection.takes(&report, crate::Engine::LlamaCpp, Some("tinyllama-1.1b"), None, "q8_0")
        };
        assert!(takes(Selection::default()));
        assert!(takes(Selection { uid: Some(1000), id: Some(7), ..Selection::default() }));
        assert!(!takes(Selection { uid: Some(1001), ..Selection::default() }));
        assert!(!takes(Selection { op: Some("gemv".into()), ..Selection::default() }));
        assert!(!takes(Selection { model: Some("tinyllama".into()), ..Selection::default() }));
    }
}
