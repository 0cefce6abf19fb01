//! Rejection of observations that physics or the model exclude.

use thiserror::Error;

use super::run::Measured;
use crate::Prediction;
use crate::model::ModelError;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Seconds, Watts, significant};
use rooflined_models::transformer::{Phase, Request};

/// An observation may lie this far beyond the physical floor: ceilings have intervals too.
const FLOOR_TOLERANCE: f64 = 1.05;
/// Slower than this many times the prediction is a mistake. The slowest engines published reach a 25th of the bound.
const SLOWEST_RATIO: f64 = 50.0;
/// More power than this many times the design limit is a mistake.
const MOST_POWER_RATIO: f64 = 2.0;
/// From so many tokens on the cache is a part of what a step reads that one would notice.
const LONG_CONTEXT: u64 = 4096;
/// Why nothing was learnt from an observation.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refused {
    #[error(
        "{measured} is {} times faster than the physical bound of {bound}: model, format, batch or unit are wrong", significant(*ratio))]
    Impossible {
        measured: Seconds,
        bound: Seconds,
        /// Bound over measured.
        ratio: f64,
        /// What would explain it, most likely first.
        explanations: String,
    },
    #[error("{measured} is {} times the predicted {predicted}", significant(*ratio))]
    Slow {
        measured: Seconds,
        predicted: Seconds,
        /// Measured over predicted.
        ratio: f64,
    },
    /// A power that the machine cannot draw.
    #[error("{power} is implausible on a machine limited to {limit}")]
    Power {
        power: Watts,
        /// What it is designed for.
        limit: Watts,
    },
    /// A power that is not a positive number.
    #[error("a power of {0} cannot be")]
    NoPower(Watts),
    /// A time that is not a positive number.
    #[error("a time of {0} cannot be")]
    NoTime(Seconds),
    /// More tokens than the model was made for.
    #[error("{tokens} tokens are more than the {limit} that {model} was made for")]
    Context { tokens: u64, limit: u64, model: String },
    /// A run that cannot be.
    #[error(transparent)]
    Request(#[from] ModelError),
}

impl Refused {
    /// For the user who reported it; the field is one of the observation.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.code().at(self.field(), self.to_string(), self.hint())
    }

    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Impossible { .. } | Self::Slow { .. } => Code::ImpossibleObservation,
            Self::Power { .. } | Self::NoPower(_) | Self::NoTime(_) => Code::InvalidField,
            Self::Context { .. } | Self::Request(_) => Code::InvalidDimension,
        }
    }

    /// The field of the observation.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Impossible { .. } | Self::Slow { .. } | Self::NoTime(_) => "time_s",
            Self::Power { .. } | Self::NoPower(_) => "power_w",
            Self::Context { .. } => "workload.context_tokens",
            Self::Request(_) => "workload",
        }
    }

    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Impossible { ratio, explanations, .. } => match unit(*ratio) {
                Some(_) => "looks like another unit, such as tokens per 1000 s: give seconds, or tokens per \
                            second over the whole batch"
                    .to_owned(),
                None => format!("most likely first: {explanations}"),
            },
            Self::Slow { ratio, .. } => match unit(*ratio) {
                Some(name) => format!("looks like {name}: give seconds"),
                None => "give the time of one step in seconds, or tokens per second over the whole batch"
                    .to_owned(),
            },
            Self::Power { .. } => "give watts while it ran".to_owned(),
            Self::NoPower(_) => "give watts above 0, or leave it out".to_owned(),
            Self::NoTime(_) => "give seconds above 0".to_owned(),
            Self::Context { .. } => "give the tokens in the cache of one sequence".to_owned(),
            Self::Request(_) => "give a run that can be: GET /v1/models lists the known models".to_owned(),
        }
    }
}

/// The unit that a time off by this factor was most likely given in.
fn unit(ratio: f64) -> Option<&'static str> {
    let near = |factor: f64| (ratio / factor).log10().abs() < 1.0;
    if near(1e3) {
        Some("milliseconds")
    } else if near(1e6) {
        Some("microseconds")
    } else {
        None
    }
}

/// What can be checked without a prediction.
///
/// # Errors
/// A time, a power or a context that cannot be.
pub fn request(run: &Measured) -> Result<(), Refused> {
    if !(run.time.get().is_finite() && run.time.is_positive()) {
        return Err(Refused::NoTime(run.time));
    }
    if let Some(power) = run.power {
        if !(power.get().is_finite() && power.get() > 0.0) {
            return Err(Refused::NoPower(power));
        }
        if let Some(limit) = run.power_limit.filter(|limit| power.get() > MOST_POWER_RATIO * limit.get()) {
            return Err(Refused::Power { power, limit });
        }
    }
    let tokens = run.request.final_tokens();
    match run.model.architecture.context_tokens.filter(|limit| tokens > *limit) {
        Some(limit) => Err(Refused::Context { tokens, limit, model: run.model.name.clone() }),
        None => Ok(()),
    }
}

/// What would explain a run of a model that is faster than physics allows, most likely first.
#[must_use]
pub fn explanations(request: &Request) -> String {
    let decode = request.phase != Phase::Prefill;
    let own_cache = request.cached_tokens == 0;
    let reasons = [
        (true, "the model or its format is smaller than assumed (give workload.format)"),
        (
            decode && request.speculative.is_none(),
            "tokens were drafted (give draft_tokens and accepted_per_step)",
        ),
        (!decode && own_cache, "a part of the prompt was cached (give cached_tokens)"),
        (
            decode && own_cache && request.batch > 1 && request.context_tokens + request.prompt_tokens > 0,
            "the sequences share a prompt (give cached_tokens)",
        ),
        (
            decode && request.final_tokens() > LONG_CONTEXT && request.kv_cache.bits_per_weight() >= 16.0,
            "the cache is stored in fewer bits (give kv_format)",
        ),
        (
            !decode && request.chunk_tokens.is_some(),
            "the prompt was passed in larger chunks (give chunk_tokens)",
        ),
        (true, "the batch or a token count was larger (tokens_per_s counts the whole batch)"),
        (true, "the power mode was a faster one (give power_mode)"),
    ];
    let likely: Vec<&str> = reasons.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect();
    likely.join("; ")
}

/// Whether nothing can have run in this time, where `floor` is the least with every ceiling at its upper end.
#[must_use]
pub fn is_impossible(measured: Seconds, floor: Seconds) -> bool {
    measured * FLOOR_TOLERANCE < floor
}

/// Whether the time can be.
///
/// # Errors
/// Faster than the floor, or slower than any engine.
pub fn plausible(run: &Measured, predicted: &Prediction) -> Result<(), Refused> {
    let (measured, bound) = (run.time, predicted.floor);
    if is_impossible(measured, bound) {
        let explanations = explanations(&run.request);
        return Err(Refused::Impossible { measured, bound, ratio: bound / measured, explanations });
    }
    let ratio = measured / predicted.time.value;
    if ratio > SLOWEST_RATIO {
        return Err(Refused::Slow { measured, predicted: predicted.time.value, ratio });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_models::transformer::{DraftKind, Speculative};

    #[test]
    fn what_would_explain_a_run_is_named_most_likely_first() {
        // A format that was not named comes before all of them.
        let first = |request: &Request| {
            let explanations = explanations(request);
            let (format, others) = explanations.split_once("; ").unwrap();
            assert!(format.contains("give workload.format"), "{format}");
            others.split(" (").next().unwrap_or_default().to_owned()
        };
        let decode = Request::decode(1000);
        assert_eq!(first(&decode), "tokens were drafted");
        let drafted = Some(Speculative { kind: DraftKind::Ngram, draft_tokens: 3, accepted_per_step: 1.5 });
        let batch = Request { batch: 8, speculative: drafted, ..decode };
        assert_eq!(first(&batch), "the sequences share a prompt");
        assert_eq!(first(&Request::prefill(1000)), "a part of the prompt was cached");
        let cached = Request { cached_tokens: 10, ..Request::prefill(1000) };
        assert_eq!(first(&cached), "the batch or a token count was larger");
        for request in [decode, batch, cached] {
            assert!(explanations(&request).contains("the power mode was a faster one"));
        }
        assert!(explanations(&Request::decode(8000)).contains("give kv_format"));
    }
}
