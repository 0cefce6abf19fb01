//! What may slow a run down: what shows it, what it does to the prediction, and what to do about it.

use rooflined_api::{EvidenceAnswer, Offload, RunEvidence, Speculative};
use rooflined_core::board::OperatingPoint;
use rooflined_core::keyed;
use rooflined_core::units::Hertz;
use serde_json::Value;

/// Less of the time of a process is noise.
pub const LESS_TIME: f64 = 0.03;
/// Most of the rate that an estimate takes away.
pub const MOST: f64 = 0.95;

/// What a cause changes in the conditions of a prediction. Changes of different causes may come in any order.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// No clock of the GPU above this.
    GpuClock(Hertz),
    MemoryClock(Hertz),
    Sm(u32),
    CpuClock(Hertz),
    Cores(u32),
    /// Part of the memory's bandwidth that is left.
    MemoryRatio(f64),
    Threads(u32),
    KvFormat(String),
    ContextTokens(u64),
    Batch(u64),
    ChunkTokens(u64),
    Offload(Offload),
    Speculative(Box<Speculative>),
    /// Another model, or the same in another format.
    Model {
        model: Value,
        format: Option<String>,
    },
    EngineVersion(String),
    /// Instructions that the kernels do not use.
    Without(Vec<&'static str>),
    /// Part of the rate that is left, where the predictor has no term for it.
    Rate(f64),
    /// Part of the rate that is left beside others who want the same CPUs at the same priority.
    Rivals(f64),
    /// Part of the rate that is left beside them at the low priority of the process.
    LowPriority(f64),
}

keyed! {
    /// How sure the effect of a cause is.
    Certainty {
        /// The predictor has a term for it.
        Predicted = "predicted",
        /// From what was seen of the process.
        Estimated = "estimated",
        /// It was seen; what it costs is inferred from what nothing else explains.
        Possible = "possible",
    }
}

impl Certainty {
    /// What the certainty leaves open of an effect: the standard deviation of its logarithm. Guesses; that of clocks and units
    /// over a `distance` is the widening of carried ceilings.
    pub fn spread(self, effect: f64, distance: f64) -> f64 {
        match self {
            Self::Predicted => 0.1 * effect + 0.15 * distance,
            Self::Estimated => 0.5 * effect,
            Self::Possible => 0.5,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    pub key: &'static str,
    pub what: String,
    pub changes: Vec<Change>,
    pub certainty: Certainty,
    pub evidence: Vec<EvidenceAnswer>,
    pub fix: String,
}

impl Suspect {
    /// One whose effect the predictor has a term for.
    pub fn new(key: &'static str, what: impl Into<String>, change: Change, fix: impl Into<String>) -> Self {
        let certainty = match change {
            Change::Rate(_) | Change::Rivals(_) | Change::LowPriority(_) => Certainty::Estimated,
            _ => Certainty::Predicted,
        };
        Self {
            key,
            what: what.into(),
            changes: vec![change],
            certainty,
            evidence: Vec::new(),
            fix: fix.into(),
        }
    }

    /// One that was seen, and whose effect nothing tells.
    pub fn possible(key: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            key,
            what: what.into(),
            changes: Vec::new(),
            certainty: Certainty::Possible,
            evidence: Vec::new(),
            fix: fix.into(),
        }
    }

    /// How far it moves clocks and units from `expected`, in natural logarithms.
    pub fn distance(&self, expected: &OperatingPoint) -> f64 {
        let clock = |is: Hertz, expected: Option<Hertz>| {
            expected.filter(|_| is.is_positive()).map_or(0.0, |expected| (expected / is).ln())
        };
        let count = |is: u32, expected: Option<u32>| {
            expected.filter(|_| is > 0).map_or(0.0, |expected| (f64::from(expected) / f64::from(is)).ln())
        };
        let of = |change: &Change| match *change {
            Change::GpuClock(is) => clock(is, expected.gpu_clock),
            Change::MemoryClock(is) => clock(is, expected.memory_clock),
            Change::CpuClock(is) => clock(is, expected.cpu_clock),
            Change::Sm(is) => count(is, expected.sm_online),
            Change::Cores(is) => count(is, expected.cores_online),
            _ => 0.0,
        };
        self.changes.iter().map(|change| of(change).max(0.0)).sum()
    }

    /// The same, where nothing tells its effect.
    pub fn with_unknown_effect(mut self) -> Self {
        self.changes.clear();
        self.certainty = Certainty::Possible;
        self
    }

    /// The same, with an effect that is only estimated.
    pub const fn estimated(mut self) -> Self {
        self.certainty = Certainty::Estimated;
        self
    }

    pub fn shown_by(mut self, source: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(EvidenceAnswer { source: source.into(), value: value.into() });
        self
    }
}

/// A file of the process in /proc.
pub fn file(seen: &RunEvidence, name: &str) -> String {
    seen.pid.map_or_else(|| format!("/proc/PID/{name}"), |pid| format!("/proc/{pid}/{name}"))
}

/// The log of its server.
pub fn log_of(seen: &RunEvidence) -> String {
    seen.log_file.clone().unwrap_or_else(|| "log of the server".to_owned())
}
